//! What a pod asks for, as Kubernetes counts it: containers and sidecars together or the peak of the init containers, whichever
//! is more, and the overhead; and shares of GPUs, which are asked for by annotations.
//!
//! In: a slim pod. Out: an [`Ask`]. The engine's own reader (`muster-translate`) follows the same rule on whole objects, in
//! its own units; here the names of resources stay as they are, because a status shows them.

use k8s_quantity::{Format, Quantity};
use muster_runtime::common::{Container, Node, Pod};
use muster_runtime::object::Strings;

use crate::amounts::Amounts;

/// Whose shares are counted under this name, whoever made the GPU: so does KAI.
pub const GPU: &str = "nvidia.com/gpu";
/// What waiting pods ask for in GPU memory.
pub const GPU_MEMORY_RESOURCE: &str = "run.ai/gpu.memory";

const FRACTION: &str = "gpu-fraction";
const MEMORY: &str = "gpu-memory";
const DEVICES: &str = "gpu-fraction-num-devices";
const NVIDIA_MEMORY: &str = "nvidia.com/gpu.memory";
const AMD_MEMORY: &str = "beta.amd.com/gpu.vram";

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ask {
    pub amounts: Amounts,
    pub share: Option<Share>,
}

/// Parts of so many GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    pub size: Size,
    pub devices: u32,
}

/// How much of each GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// In thousandths.
    Portion(i64),
    /// In MiB.
    Memory(i64),
}

pub fn ask(pod: &Pod) -> Ask {
    let mut running = Amounts::new();
    for container in &pod.spec.containers {
        running.add_all(&of_container(container));
    }
    // Each init container runs beside the sidecars that were declared before it.
    let mut sidecars = Amounts::new();
    let mut peak = Amounts::new();
    for container in &pod.spec.init_containers {
        let mut asked = of_container(container);
        if container.restart_policy == "Always" {
            running.add_all(&asked);
            sidecars.add_all(&asked);
            peak.raise_to(&sidecars);
        } else {
            asked.add_all(&sidecars);
            peak.raise_to(&asked);
        }
    }
    running.raise_to(&peak);
    whole_pod(pod, &mut running);
    running.add_all(&Amounts::read(&pod.spec.overhead));

    let share = share(&pod.metadata.annotations);
    if share.is_some() {
        // Beside a share whole GPUs do not count.
        running.retain(|name| !name.ends_with("gpu"));
    }
    Ask { amounts: running, share }
}

/// Whether two pods ask for the same, judged by what the answer is made of.
pub fn alike(a: &Pod, b: &Pod) -> bool {
    let of = |pod: &Pod, key: &str| pod.metadata.annotations.get(key).cloned();
    a.spec.containers == b.spec.containers
        && a.spec.init_containers == b.spec.init_containers
        && a.spec.overhead == b.spec.overhead
        && a.spec.resources == b.spec.resources
        && [FRACTION, MEMORY, DEVICES].iter().all(|key| of(a, key) == of(b, key))
}

/// What is limited and not asked for is asked for up to the limit.
fn of_container(container: &Container) -> Amounts {
    let mut asked = Amounts::read(&container.resources.limits);
    for name in container.resources.requests.keys() {
        asked.set(name, Quantity::ZERO);
    }
    asked.add_all(&Amounts::read(&container.resources.requests));
    asked
}

/// Requests of the whole pod stand for all of its containers, for the resources that may be written there.
fn whole_pod(pod: &Pod, running: &mut Amounts) {
    let allowed = |name: &str| matches!(name, "cpu" | "memory") || name.starts_with("hugepages-");
    let said = &pod.spec.resources;
    for (name, quantity) in Amounts::read(&said.limits).iter() {
        if allowed(name) && !said.requests.contains_key(name) && running.get(name).is_zero() {
            running.set(name, quantity);
        }
    }
    for (name, quantity) in Amounts::read(&said.requests).iter() {
        if allowed(name) {
            running.set(name, quantity);
        }
    }
}

/// The share of GPUs that annotations ask for; one that makes no sense is none.
pub fn share(annotations: &Strings) -> Option<Share> {
    let devices = match annotations.get(DEVICES).map(|text| text.parse::<u32>()) {
        None => 1,
        Some(Ok(n @ 1..=1024)) => n,
        Some(_) => return None,
    };
    let size = if let Some(text) = annotations.get(FRACTION) {
        let portion = text.parse::<Quantity>().ok()?;
        // Just below one GPU is rounded up to one.
        let below_one = portion > Quantity::ZERO && portion < Quantity::from_i64(1, Format::DecimalSi);
        Size::Portion(below_one.then(|| portion.milli_value())?)
    } else {
        Size::Memory(annotations.get(MEMORY)?.parse::<i64>().ok().filter(|mib| (1..=1 << 40).contains(mib))?)
    };
    Some(Share { size, devices })
}

impl Share {
    /// In GPUs, on devices of so many MiB. A share of memory is rounded up to a hundredth and is never more than the whole
    /// device; on devices of unknown size it is not known.
    pub fn gpus(&self, device_memory: Option<i64>) -> Quantity {
        let each = match self.size {
            Size::Portion(thousandths) => thousandths,
            Size::Memory(mib) => match device_memory {
                Some(all) if all > 0 => {
                    let hundredths = (i128::from(mib) * 100 + i128::from(all) - 1) / i128::from(all);
                    i64::try_from(hundredths.min(100)).unwrap_or(100) * 10
                }
                _ => 0,
            },
        };
        Quantity::from_milli(each) * i64::from(self.devices)
    }

    /// GPU memory in all, when that is what was asked for.
    pub fn memory(&self) -> Option<Quantity> {
        let Size::Memory(mib) = self.size else { return None };
        let all = i128::from(mib) * i128::from(self.devices) * (1 << 20) * 1_000_000_000;
        Some(Quantity::from_nano(all, Format::BinarySi))
    }
}

/// The memory of one GPU of a node in MiB, in steps of 100, as its labels say. Drivers of some generations wrote bytes.
pub fn gpu_memory(node: &Node) -> Option<i64> {
    let labels = &node.metadata.labels;
    let mib = match labels.get(NVIDIA_MEMORY) {
        Some(text) => {
            let number = text.parse::<i64>().ok()?;
            if number >= 1 << 20 { number >> 20 } else { number }
        }
        None => amd_memory(labels)?,
    };
    let mib = mib - mib.rem_euclid(100);
    (mib > 100).then_some(mib)
}

/// The size stands in the value of one label, or in the name of another: `beta.amd.com/gpu.vram.64G`.
fn amd_memory(labels: &Strings) -> Option<i64> {
    let text = match labels.get(AMD_MEMORY) {
        Some(text) => text.as_str(),
        None => labels.keys().find_map(|key| key.strip_prefix(AMD_MEMORY)?.strip_prefix('.'))?,
    };
    // The labeller's G is a gibibyte.
    let text = if text.ends_with('i') { text.to_owned() } else { format!("{text}i") };
    Some(text.parse::<Quantity>().ok()?.value() >> 20)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn cpu(amount: &str) -> Value {
        json!({"resources": {"requests": {"cpu": amount}}})
    }

    fn sidecar(amount: &str) -> Value {
        json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": amount}}})
    }

    #[track_caller]
    fn check(spec: Value, expected: Value) {
        let pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
        assert_eq!(ask(&pod).amounts.to_json(), expected);
    }

    #[test]
    fn effective_requests() {
        check(json!({}), json!({}));
        check(json!({"containers": [cpu("1"), cpu("500m")]}), json!({"cpu": "1500m"}));
        check(json!({"containers": [cpu("1")], "initContainers": [cpu("3"), cpu("2")]}), json!({"cpu": "3"}));
        check(json!({"containers": [cpu("2")], "initContainers": [cpu("1")]}), json!({"cpu": "2"}));
        check(
            json!({"containers": [cpu("1")], "initContainers": [sidecar("1"), cpu("3")]}),
            json!({"cpu": "4"}),
        );
        check(
            json!({"containers": [cpu("1")], "initContainers": [cpu("3"), sidecar("1")]}),
            json!({"cpu": "3"}),
        );
        check(
            json!({"containers": [cpu("3")], "initContainers": [sidecar("1"), cpu("1")]}),
            json!({"cpu": "4"}),
        );
        check(json!({"containers": [cpu("1")], "overhead": {"cpu": "250m"}}), json!({"cpu": "1250m"}));
        check(
            json!({"containers": [cpu("1")], "resources": {"requests": {"cpu": "5"}}, "overhead": {"cpu": 1}}),
            json!({"cpu": "6"}),
        );
        check(
            json!({"containers": [cpu("1")], "resources": {"limits": {"cpu": "5", "memory": "1Ki"}}}),
            json!({"cpu": "1", "memory": "1Ki"}),
        );
        check(
            json!({"containers": [{"resources": {"limits": {"nvidia.com/gpu": 2, "cpu": 4}, "requests": {"cpu": 0}}}]}),
            json!({"nvidia.com/gpu": "2"}),
        );
    }

    #[track_caller]
    fn check_share(annotations: Value, device_memory: Option<i64>, expected: &str) {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"annotations": annotations},
            "spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": 1}}}]},
        }))
        .unwrap();
        let asked = ask(&pod);
        let shown = match asked.share {
            Some(share) => {
                assert!(asked.amounts.is_empty(), "whole GPUs do not count beside a share");
                let memory = share.memory().map(|m| format!(" {m}")).unwrap_or_default();
                format!("{}{memory}", share.gpus(device_memory))
            }
            None => "none".to_owned(),
        };
        assert_eq!(shown, expected, "{annotations}");
    }

    #[test]
    fn shares_of_gpus() {
        check_share(json!({}), None, "none");
        check_share(json!({"gpu-fraction": "0.5"}), None, "500m");
        check_share(json!({"gpu-fraction": "0.25", "gpu-fraction-num-devices": "4"}), None, "1");
        check_share(json!({"gpu-fraction": "0.0001"}), None, "1m");
        check_share(json!({"gpu-memory": "4000"}), Some(16000), "250m 4000Mi");
        check_share(json!({"gpu-memory": "4001"}), Some(16000), "260m 4001Mi");
        check_share(
            json!({"gpu-memory": "4000", "gpu-fraction-num-devices": "2"}),
            Some(16000),
            "500m 8000Mi",
        );
        check_share(json!({"gpu-memory": "99999"}), Some(16000), "1 99999Mi");
        check_share(json!({"gpu-memory": "4000"}), None, "0 4000Mi");
        for bad in ["0", "1", "1.5", "-0.5", "half", ""] {
            check_share(json!({"gpu-fraction": bad}), None, "none");
        }
        for bad in ["0", "-1", "4Gi", "99999999999999999999"] {
            check_share(json!({"gpu-memory": bad}), None, "none");
        }
        check_share(json!({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "0"}), None, "none");
    }

    #[track_caller]
    fn check_memory(labels: Value, expected: Option<i64>) {
        let node: Node = serde_json::from_value(json!({"metadata": {"labels": labels}})).unwrap();
        assert_eq!(gpu_memory(&node), expected, "{labels}");
    }

    #[test]
    fn gpu_memory_by_label() {
        check_memory(json!({}), None);
        check_memory(json!({"nvidia.com/gpu.memory": "81559"}), Some(81500));
        check_memory(json!({"nvidia.com/gpu.memory": "85899345920"}), Some(81900));
        check_memory(json!({"nvidia.com/gpu.memory": "100"}), None);
        check_memory(json!({"nvidia.com/gpu.memory": "-5"}), None);
        check_memory(json!({"nvidia.com/gpu.memory": "big"}), None);
        check_memory(json!({"beta.amd.com/gpu.vram": "64G"}), Some(65500));
        check_memory(json!({"beta.amd.com/gpu.vram.64G": "8", "beta.amd.com/gpu.family": "AI"}), Some(65500));
    }
}
