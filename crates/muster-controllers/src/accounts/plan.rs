//! The count of one gang.
//!
//! In: its pods, the memory of GPUs by node, the claims that its pods use. Out: a [`Tally`].
//! Must stay true: what is held is part of what is asked for. Done differently from KAI on purpose: the effective request of a
//! pod counts, not its containers alone; a share of several GPUs counts for each; a claim that pods share counts once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_quantity::{Format, Quantity};
use muster_runtime::common::{Pod, PodGroup};
use muster_runtime::object::Strings;
use serde_json::Value;

use super::{Claim, GROUP, SUBGROUP};
use crate::amounts::Amounts;
use crate::request::{self, Ask, GPU, GPU_MEMORY_RESOURCE};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    pub requested: Amounts,
    pub allocated: Amounts,
    /// Pods by subgroup; those without one are under the empty name.
    pub counts: BTreeMap<String, Counts>,
    /// The claims of its pods, so that a change to one is a change here.
    pub claims: BTreeSet<String>,
    /// Some of it depends on the memory of GPUs.
    pub by_memory: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Without a node.
    pub waiting: usize,
    /// On a node, not yet running.
    pub starting: usize,
    pub running: usize,
    /// Being deleted.
    pub leaving: usize,
    pub succeeded: usize,
    pub failed: usize,
}

impl Counts {
    pub fn add(&mut self, other: &Counts) {
        self.waiting += other.waiting;
        self.starting += other.starting;
        self.running += other.running;
        self.leaving += other.leaving;
        self.succeeded += other.succeeded;
        self.failed += other.failed;
    }

    /// Takes away what was added.
    pub fn take(&mut self, other: &Counts) {
        let less = |n: &mut usize, by: usize| *n = n.saturating_sub(by);
        less(&mut self.waiting, other.waiting);
        less(&mut self.starting, other.starting);
        less(&mut self.running, other.running);
        less(&mut self.leaving, other.leaving);
        less(&mut self.succeeded, other.succeeded);
        less(&mut self.failed, other.failed);
    }

    pub fn all(&self) -> usize {
        self.waiting + self.starting + self.running + self.leaving + self.succeeded + self.failed
    }

    /// On a node, or done there.
    pub fn placed(&self) -> usize {
        self.starting + self.running + self.succeeded
    }
}

impl Tally {
    pub fn total(&self) -> Counts {
        let mut total = Counts::default();
        self.counts.values().for_each(|c| total.add(c));
        total
    }
}

/// Memory of one GPU in MiB by node.
#[derive(Debug, Default)]
pub struct GpuMemory {
    by_node: BTreeMap<String, i64>,
    sizes: BTreeMap<i64, usize>,
}

impl GpuMemory {
    /// Out: whether anything changed.
    pub fn set(&mut self, node: &str, memory: Option<i64>) -> bool {
        let old = match memory {
            Some(mib) => self.by_node.insert(node.to_owned(), mib),
            None => self.by_node.remove(node),
        };
        if old == memory {
            return false;
        }
        if let Some(old) = old
            && let Some(n) = self.sizes.get_mut(&old)
        {
            *n -= 1;
            if *n == 0 {
                self.sizes.remove(&old);
            }
        }
        if let Some(new) = memory {
            *self.sizes.entry(new).or_default() += 1;
        }
        true
    }

    fn of(&self, node: &str) -> Option<i64> {
        self.by_node.get(node).copied()
    }

    /// Of the smallest GPU: what a pod that waits may have to take most of.
    fn least(&self) -> Option<i64> {
        self.sizes.keys().next().copied()
    }
}

pub fn tally(pods: &[Arc<Pod>], memory: &GpuMemory, claim: impl Fn(&str) -> Option<Arc<Claim>>) -> Tally {
    let mut tally = Tally::default();
    // Pods of a gang mostly ask for the same.
    let mut last: Option<(&Arc<Pod>, Ask)> = None;
    let mut held_claims: BTreeMap<String, bool> = BTreeMap::new();
    for pod in pods {
        let subgroup = pod.metadata.labels.get(SUBGROUP).map_or("", String::as_str);
        let counts = match tally.counts.get_mut(subgroup) {
            Some(counts) => counts,
            None => tally.counts.entry(subgroup.to_owned()).or_default(),
        };
        let (over, bound, leaving) = (pod.is_over(), pod.is_bound(), pod.metadata.deleting());
        match pod.status.phase.as_str() {
            "Succeeded" => counts.succeeded += 1,
            "Failed" => counts.failed += 1,
            _ if leaving => counts.leaving += 1,
            _ if !bound => counts.waiting += 1,
            "Running" => counts.running += 1,
            _ => counts.starting += 1,
        }
        // What leaves before it came to a node asks for nothing any more.
        if over || (leaving && !bound) {
            continue;
        }
        let asked = match &last {
            Some((like, ask)) if request::alike(like, pod) => ask,
            _ => &last.insert((pod, request::ask(pod))).1,
        };
        tally.requested.add_all(&asked.amounts);
        if bound {
            tally.allocated.add_all(&asked.amounts);
        }
        if let Some(share) = &asked.share {
            let device = if bound { memory.of(&pod.spec.node_name) } else { memory.least() };
            let gpus = share.gpus(device);
            tally.requested.add(GPU, gpus);
            if let Some(asked) = share.memory() {
                tally.by_memory = true;
                tally.requested.add(GPU_MEMORY_RESOURCE, asked);
            }
            if bound {
                tally.allocated.add(GPU, gpus);
            }
        }
        for name in claims_of(pod) {
            *held_claims.entry(name).or_default() |= bound;
        }
    }
    for (name, held) in held_claims {
        if let Some(claim) = claim(&name) {
            let gpus = claimed_gpus(&claim);
            tally.requested.add_all(&gpus);
            if held {
                tally.allocated.add_all(&gpus);
            }
        }
        tally.claims.insert(name);
    }
    tally
}

/// The names of a pod's claims, as far as they are made.
pub fn claims_of(pod: &Pod) -> impl Iterator<Item = String> {
    let text = |value: &Value, field: &str| Some(value.get(field)?.as_str()?.to_owned());
    pod.spec.resource_claims.iter().filter_map(move |reference| {
        if let Some(name) = text(reference, "resourceClaimName") {
            return Some(name);
        }
        let name = text(reference, "name")?;
        let made =
            pod.status.resource_claim_statuses.iter().find(|s| text(s, "name").as_ref() == Some(&name))?;
        text(made, "resourceClaimName")
    })
}

/// GPUs of a claim, by device class: those that it was given, or those that it asks for. Which alternative will be taken, or
/// how many `All` are, is not known before.
fn claimed_gpus(claim: &Claim) -> Amounts {
    let is_gpu = |name: &str| name.contains("gpu");
    let one = Quantity::from_i64(1, Format::DecimalSi);
    let mut gpus = Amounts::new();
    let requests = || claim.spec.pointer("/devices/requests").and_then(Value::as_array).into_iter().flatten();
    let class_of = |body: &Value| Some(body.get("deviceClassName")?.as_str()?.to_owned());
    if let Some(results) = claim.status.pointer("/allocation/devices/results").and_then(Value::as_array) {
        for result in results {
            let text = |field: &str| result.get(field).and_then(Value::as_str).unwrap_or("");
            if result.get("adminAccess").and_then(Value::as_bool) == Some(true) {
                continue;
            }
            let (name, sub) = text("request").split_once('/').unwrap_or((text("request"), ""));
            let request = requests().find(|r| r.get("name").and_then(Value::as_str) == Some(name));
            let class = request.and_then(|request| {
                let alternatives = request.get("firstAvailable").and_then(Value::as_array);
                match alternatives {
                    Some(list) => {
                        class_of(list.iter().find(|a| a.get("name").and_then(Value::as_str) == Some(sub))?)
                    }
                    None => class_of(request.get("exactly").unwrap_or(request)),
                }
            });
            let class = class.unwrap_or_else(|| text("driver").to_owned());
            if is_gpu(&class) || is_gpu(text("driver")) {
                // A class of another name is still a GPU by its driver, and is counted where GPUs are.
                gpus.add(if is_gpu(&class) { &class } else { text("driver") }, one);
            }
        }
        return gpus;
    }
    for request in requests() {
        let body = request.get("exactly").unwrap_or(request);
        let admin = body.get("adminAccess").and_then(Value::as_bool) == Some(true);
        let all = body.get("allocationMode").and_then(Value::as_str) == Some("All");
        let count = body.get("count").and_then(Value::as_i64).unwrap_or(1).clamp(0, 1 << 20);
        if let Some(class) = class_of(body)
            && is_gpu(&class)
            && !admin
            && !all
        {
            gpus.add(&class, one * count);
        }
    }
    gpus
}

/// The name of the group that annotations make a pod a member of.
pub fn group_name(annotations: &Strings) -> Option<&str> {
    annotations.get(GROUP).map(String::as_str).filter(|name| !name.is_empty())
}

/// Whether a change to a pod can change a tally.
pub fn counts_differ(old: &Pod, new: &Pod) -> bool {
    old.status.phase != new.status.phase
        || old.spec.node_name != new.spec.node_name
        || old.metadata.deleting() != new.metadata.deleting()
        || old.metadata.labels.get(SUBGROUP) != new.metadata.labels.get(SUBGROUP)
        || old.status.resource_claim_statuses != new.status.resource_claim_statuses
        || !request::alike(old, new)
}

/// The value from which on a gang may not be preempted.
const FIRST_FIXED: i64 = 100;
/// The priority of a gang whose class is not there and for which there is no default.
const USUAL: i64 = 50;

/// Whether a gang may be preempted. `class`: the value of a priority class by name; `default`: that of the global default.
pub fn preemptible(
    group: &PodGroup,
    class: impl Fn(&str) -> Option<i64>,
    default: impl FnOnce() -> Option<i64>,
) -> bool {
    let text = |field: &str| group.spec.get(field).and_then(Value::as_str).unwrap_or("");
    match text("preemptibility") {
        "preemptible" => true,
        "non-preemptible" => false,
        _ => class(text("priorityClassName")).or_else(default).unwrap_or(USUAL) < FIRST_FIXED,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(text: Value) -> Arc<Pod> {
        Arc::new(serde_json::from_value(text).unwrap())
    }

    /// A pod of one CPU in a phase on a node.
    fn plain(phase: &str, node: &str) -> Arc<Pod> {
        pod(json!({
            "spec": {"nodeName": node, "containers": [{"resources": {"requests": {"cpu": 1}}}]},
            "status": {"phase": phase},
        }))
    }

    fn leaving(phase: &str, node: &str) -> Arc<Pod> {
        let mut pod = Pod::clone(&plain(phase, node));
        pod.metadata.deletion_timestamp = Some(jiff::Timestamp::UNIX_EPOCH);
        Arc::new(pod)
    }

    fn memory() -> GpuMemory {
        let mut memory = GpuMemory::default();
        memory.set("small", Some(16_000));
        memory.set("big", Some(80_000));
        memory
    }

    #[track_caller]
    fn check(pods: &[Arc<Pod>], requested: Value, allocated: Value) {
        let tally = tally(pods, &memory(), |_| None);
        assert_eq!(tally.requested.to_json(), requested, "requested");
        assert_eq!(tally.allocated.to_json(), allocated, "allocated");
    }

    #[test]
    fn who_asks_and_who_holds() {
        check(&[plain("Pending", "")], json!({"cpu": "1"}), json!({}));
        check(&[plain("Pending", "small")], json!({"cpu": "1"}), json!({"cpu": "1"}));
        check(&[plain("Running", "small"), plain("Pending", "")], json!({"cpu": "2"}), json!({"cpu": "1"}));
        check(&[plain("Succeeded", "small"), plain("Failed", "small")], json!({}), json!({}));
        check(&[leaving("Running", "small")], json!({"cpu": "1"}), json!({"cpu": "1"}));
        check(&[leaving("Pending", "")], json!({}), json!({}));
    }

    fn shared(annotations: Value, node: &str) -> Arc<Pod> {
        pod(json!({
            "metadata": {"annotations": annotations},
            "spec": {"nodeName": node},
            "status": {"phase": "Pending"},
        }))
    }

    #[test]
    fn shares_count_for_each_device() {
        let two = json!({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "3"});
        check(
            &[shared(two, "small")],
            json!({"nvidia.com/gpu": "1500m"}),
            json!({"nvidia.com/gpu": "1500m"}),
        );
        let mib = json!({"gpu-memory": "8000"});
        check(
            &[shared(mib.clone(), "")],
            json!({"nvidia.com/gpu": "500m", "run.ai/gpu.memory": "8000Mi"}),
            json!({}),
        );
        check(
            &[shared(mib.clone(), "big")],
            json!({"nvidia.com/gpu": "100m", "run.ai/gpu.memory": "8000Mi"}),
            json!({"nvidia.com/gpu": "100m"}),
        );
        check(&[shared(mib, "elsewhere")], json!({"run.ai/gpu.memory": "8000Mi"}), json!({}));
    }

    #[track_caller]
    fn check_claim(spec: Value, status: Value, requested: Value, allocated: Value) {
        let claim = Arc::new(Claim { spec, status, ..Claim::default() });
        let user = |node: &str| {
            pod(json!({
                "spec": {"nodeName": node, "resourceClaims": [{"name": "x", "resourceClaimTemplateName": "t"}]},
                "status": {"phase": "Pending", "resourceClaimStatuses": [{"name": "x", "resourceClaimName": "made"}]},
            }))
        };
        let pods = [user(""), user("n")];
        let tally = tally(&pods, &memory(), |name| (name == "made").then(|| claim.clone()));
        assert_eq!((tally.requested.to_json(), tally.allocated.to_json()), (requested, allocated));
        assert_eq!(tally.claims.into_iter().collect::<Vec<_>>(), ["made"]);
    }

    #[test]
    fn claims_that_pods_share_count_once() {
        let request = |body: Value| json!({"devices": {"requests": [{"name": "r", "exactly": body}]}});
        let gpu = json!({"deviceClassName": "gpu.x.io", "count": 2});
        check_claim(request(gpu.clone()), json!({}), json!({"gpu.x.io": "2"}), json!({"gpu.x.io": "2"}));
        check_claim(request(json!({"deviceClassName": "nic.x.io"})), json!({}), json!({}), json!({}));
        check_claim(
            request(json!({"deviceClassName": "gpu.x.io", "allocationMode": "All"})),
            json!({}),
            json!({}),
            json!({}),
        );
        let given = json!({"allocation": {"devices": {"results": [
            {"request": "r", "driver": "gpu.x.io"}, {"request": "r", "driver": "gpu.x.io"},
            {"request": "r", "driver": "gpu.x.io"}, {"request": "r", "driver": "gpu.x.io", "adminAccess": true},
        ]}}});
        let all = json!({"deviceClassName": "gpu.x.io", "allocationMode": "All"});
        check_claim(request(all), given, json!({"gpu.x.io": "3"}), json!({"gpu.x.io": "3"}));
        let either = json!({"devices": {"requests": [{"name": "r", "firstAvailable": [
            {"name": "a", "deviceClassName": "gpu-big"}, {"name": "b", "deviceClassName": "gpu-small"}]}]}});
        check_claim(either.clone(), json!({}), json!({}), json!({}));
        let second = json!({"allocation": {"devices": {"results": [{"request": "r/b", "driver": "x.io"}]}}});
        check_claim(either, second, json!({"gpu-small": "1"}), json!({"gpu-small": "1"}));
        check_claim(json!([1]), json!("junk"), json!({}), json!({}));
    }

    #[test]
    fn the_smallest_gpu() {
        let mut memory = memory();
        assert_eq!(memory.least(), Some(16_000));
        assert!(memory.set("small", None));
        assert!(!memory.set("small", None));
        assert_eq!(memory.least(), Some(80_000));
        assert!(memory.set("big", Some(40_000)));
        assert_eq!((memory.least(), memory.of("big")), (Some(40_000), Some(40_000)));
    }

    #[track_caller]
    fn check_preemptible(spec: Value, default: Option<i64>, expected: bool) {
        let group: PodGroup = serde_json::from_value(json!({"spec": spec})).unwrap();
        let class = |name: &str| match name {
            "train" => Some(50),
            "build" => Some(100),
            _ => None,
        };
        assert_eq!(preemptible(&group, class, || default), expected, "{spec}");
    }

    #[test]
    fn preemptibility() {
        check_preemptible(json!({}), None, true);
        check_preemptible(json!({}), Some(1000), false);
        check_preemptible(json!({"priorityClassName": "train"}), Some(1000), true);
        check_preemptible(json!({"priorityClassName": "build"}), None, false);
        check_preemptible(json!({"priorityClassName": "gone"}), None, true);
        check_preemptible(json!({"priorityClassName": "build", "preemptibility": "preemptible"}), None, true);
        check_preemptible(
            json!({"priorityClassName": "train", "preemptibility": "non-preemptible"}),
            None,
            false,
        );
        check_preemptible(json!({"priorityClassName": 5, "preemptibility": ["?"]}), None, true);
    }
}
