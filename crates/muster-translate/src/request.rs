//! What a pod asks for: containers, sidecars, init containers, overhead and pod-level requests combined, and GPUs in all their forms.

use crate::read::{At, Object};
use crate::text::{self, Rounding};
use muster_model::{Amounts, GPU, GpuShare, Name, Resource, ShareSize};
use std::collections::BTreeMap;

const FRACTION: &str = "gpu-fraction";
const MEMORY: &str = "gpu-memory";
const DEVICES: &str = "gpu-fraction-num-devices";
/// A pod that holds a GPU for the pods that share it; while there are any, their shares are what counts.
const RESERVATION: &str = "kai-resource-reservation";

/// The combined request.
#[derive(Default)]
pub(crate) struct Request {
    pub(crate) amounts: Amounts,
    pub(crate) share: Option<GpuShare>,
    /// Thousandths of a GPU for MIG slices.
    pub(crate) mig_charge: i64,
    pub(crate) containers: Vec<Amounts>,
    pub(crate) pinned: bool,
    /// The GPUs that it holds for others, in thousandths; they are not among the amounts.
    pub(crate) reserved: i64,
    /// What must be put right before it can be placed.
    pub(crate) defects: Vec<Name>,
}

pub(crate) fn request(object: &Object<'_>, spec: At<'_>) -> Request {
    let mut request = Request::default();
    let mut qos = Qos::default();
    let mut running = Amounts::new();
    for container in spec.get("containers").list() {
        let asked = container_request(container.get("resources"), &mut request.defects, &mut qos);
        running.add_all(&asked);
        request.containers.push(asked);
    }
    // Each init container runs beside the sidecars that were declared before it.
    let mut sidecars = Amounts::new();
    let mut peak = Amounts::new();
    for container in spec.get("initContainers").list() {
        let mut asked = container_request(container.get("resources"), &mut request.defects, &mut qos);
        if is_sidecar(container) {
            running.add_all(&asked);
            sidecars.add_all(&asked);
            request.containers.push(asked);
            peak.raise_to(&sidecars);
        } else {
            asked.add_all(&sidecars);
            peak.raise_to(&asked);
        }
    }
    running.raise_to(&peak);

    let whole_pod = spec.get("resources");
    if whole_pod.exists() {
        pod_level(whole_pod, &mut running, &mut request.defects);
    }
    for (resource, amount) in amounts(spec.get("overhead"), &mut request.defects) {
        running.add(resource, amount);
    }
    for (resource, amount) in running.iter() {
        if amount > text::MOST {
            request.defects.push(
                format!("less {resource}: its containers ask for more than 2^53 units together").into(),
            );
        }
    }
    request.amounts = running;
    // However much a pod asks for, it is one pod.
    request.amounts.set(Resource::Pods, 1);

    let guaranteed = match object.get("status").get("qosClass").word() {
        Some(class) => class == "Guaranteed",
        None => qos.guaranteed(),
    };
    request.pinned = guaranteed && qos.whole_cpus();

    gpu_share(object, &mut request);
    mig(object, &mut request);
    if object.namespace() == RESERVATION || object.label("app") == Some(RESERVATION) {
        request.reserved = request.amounts.get(&Resource::Gpu);
        request.amounts.set(Resource::Gpu, 0);
        request.containers.iter_mut().for_each(|c| c.set(Resource::Gpu, 0));
    }
    if request.containers.len() == 1 {
        request.containers.clear();
    }
    request
}

/// Which containers keep running beside the others.
pub(crate) fn is_sidecar(init_container: At<'_>) -> bool {
    init_container.get("restartPolicy").str() == Some("Always")
}

/// What the quality-of-service class is made of.
#[derive(Default)]
struct Qos {
    containers: u32,
    limited: u32,
    broken_cpus: bool,
    any_cpu: bool,
}

impl Qos {
    fn guaranteed(&self) -> bool {
        self.containers > 0 && self.limited == self.containers
    }

    fn whole_cpus(&self) -> bool {
        self.any_cpu && !self.broken_cpus
    }
}

fn container_request(resources: At<'_>, defects: &mut Vec<Name>, qos: &mut Qos) -> Amounts {
    let limits = amounts(resources.get("limits"), defects);
    let mut requests = amounts(resources.get("requests"), defects);
    // What is limited and not asked for is asked for up to the limit.
    for (resource, amount) in &limits {
        requests.entry(resource.clone()).or_insert(*amount);
    }
    let asked: Amounts = requests.into_iter().collect();
    let held = |resource: &Resource| {
        limits.get(resource).is_some_and(|limit| *limit > 0 && *limit == asked.get(resource))
    };
    qos.containers += 1;
    qos.limited += u32::from(held(&Resource::Cpu) && held(&Resource::Memory));
    let cpu = asked.get(&Resource::Cpu);
    qos.any_cpu |= cpu > 0;
    qos.broken_cpus |= cpu % 1000 != 0;
    asked
}

/// A resource list. What cannot be read makes the pod wait.
fn amounts(at: At<'_>, defects: &mut Vec<Name>) -> BTreeMap<Resource, i64> {
    let mut amounts: BTreeMap<Resource, i64> = BTreeMap::new();
    for (name, at) in at.entries() {
        let resource = text::resource(name);
        let problem = match at.quantity().map(|quantity| text::amount(&resource, quantity, Rounding::Up)) {
            Some(Ok(amount)) => {
                let sum = amounts.entry(resource).or_default();
                *sum = sum.saturating_add(amount);
                continue;
            }
            Some(Err(problem)) => {
                at.report(format!("{} {problem}; the pod waits until then", at.quoted()));
                problem
            }
            None => "is no quantity",
        };
        defects.push(format!("a request for {name} that makes sense: {} {problem}", at.quoted()).into());
    }
    amounts
}

/// Pod-level requests stand for all containers together, for the resources that may be written there.
fn pod_level(at: At<'_>, running: &mut Amounts, defects: &mut Vec<Name>) {
    let allowed = |resource: &Resource| match resource {
        Resource::Cpu | Resource::Memory => true,
        Resource::Other(name) => name.starts_with("hugepages-"),
        Resource::Gpu | Resource::Pods => false,
    };
    let requests = amounts(at.get("requests"), defects);
    let limits = amounts(at.get("limits"), defects);
    for (resource, amount) in limits {
        let said = requests.contains_key(&resource) || running.get(&resource) > 0;
        if allowed(&resource) && !said {
            running.set(resource, amount);
        }
    }
    for (resource, amount) in requests {
        if allowed(&resource) {
            running.set(resource, amount);
        }
    }
}

/// A share of GPUs is asked for by annotations, never beside whole GPUs.
fn gpu_share(object: &Object<'_>, request: &mut Request) {
    let fraction = object.annotation(FRACTION);
    let memory = object.annotation(MEMORY);
    let devices = object.annotation(DEVICES);
    let mut defect = |key: &str, problem: String| {
        object
            .report(&format!("metadata.annotations[{key}]"), format!("{problem}; the pod waits until then"));
        request.defects.push(format!("annotation {key}: {problem}").into());
    };
    if fraction.is_none() && memory.is_none() {
        if devices.is_some() {
            defect(DEVICES, format!("needs {FRACTION} or {MEMORY} beside it"));
        }
        return;
    }
    if fraction.is_some() && memory.is_some() {
        defect(MEMORY, format!("stands beside {FRACTION}; write one of the two"));
    }
    let n_devices = match devices.map(str::parse::<u32>) {
        None => 1,
        Some(Ok(n @ 1..=1024)) => n,
        Some(_) => {
            let shown = crate::read::quote(devices.unwrap_or_default());
            defect(DEVICES, format!("{shown} is no number of GPUs; write 1 to 1024"));
            1
        }
    };
    let size = if let Some(text) = fraction {
        match text::thousandths(text) {
            // Just below one GPU is rounded up to one.
            Some(portion @ 1..=GPU) if !is_one(text) => Some(ShareSize::Portion(portion)),
            _ => {
                defect(
                    FRACTION,
                    format!(
                        "{} is no part of a GPU; write a decimal between 0 and 1",
                        crate::read::quote(text)
                    ),
                );
                None
            }
        }
    } else {
        let text = memory.unwrap_or_default();
        match text.parse::<i64>() {
            Ok(mib @ 1..=text::MOST) => Some(ShareSize::Memory(mib)),
            _ => {
                defect(
                    MEMORY,
                    format!(
                        "{} is no amount of memory; write a whole number of MiB",
                        crate::read::quote(text)
                    ),
                );
                None
            }
        }
    };
    if request.amounts.get(&Resource::Gpu) > 0 {
        object.report("spec.containers", "ask for whole GPUs beside a share of one; only the share counts");
        request.reserved = request.amounts.get(&Resource::Gpu);
        request.amounts.set(Resource::Gpu, 0);
        request.containers.iter_mut().for_each(|c| c.set(Resource::Gpu, 0));
    }
    request.share = size.map(|size| GpuShare { size, devices: n_devices });
}

/// Exactly one, in any spelling.
fn is_one(text: &str) -> bool {
    text.parse::<k8s_quantity::Quantity>().is_ok_and(|q| q.nano() >= 1_000_000_000)
}

/// MIG slices are charged by the number of compute parts they have. The old form, an annotation, holds room but is never placed anew.
fn mig(object: &Object<'_>, request: &mut Request) {
    let annotations = object.get("metadata").get("annotations");
    let old: Vec<(Name, i64)> = annotations
        .entries()
        .filter(|(key, _)| key.starts_with(Resource::MIG_PREFIX))
        .filter_map(|(key, at)| {
            Some((key.into(), at.str()?.parse().ok().filter(|n| (0..=1_000_000).contains(n))?))
        })
        .collect();
    for (profile, count) in old {
        request
            .defects
            .push(format!("{profile} as a container request: the annotation is the old form").into());
        request.amounts.add(Resource::Other(profile), count);
    }
    for (resource, count) in request.amounts.iter() {
        if let Some(parts) = resource.mig_parts() {
            request.mig_charge =
                request.mig_charge.saturating_add(parts.saturating_mul(count).saturating_mul(GPU));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(pod: &Value) -> (Request, Vec<String>) {
        let object = Object::new("Pod", pod);
        let request = request(&object, object.get("spec"));
        (request, object.into_diagnostics().iter().map(ToString::to_string).collect())
    }

    #[track_caller]
    fn check(spec: Value, expected: &str) {
        let (request, found) = read(&json!({"spec": spec}));
        assert_eq!(request.amounts.to_string(), expected);
        assert_eq!(found, Vec::<String>::new());
    }

    fn cpu(amount: &str) -> Value {
        json!({"resources": {"requests": {"cpu": amount}}})
    }

    fn sidecar(amount: &str) -> Value {
        json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": amount}}})
    }

    #[test]
    fn effective_requests() {
        check(json!({}), "pods=1");
        check(json!({"containers": [cpu("1"), cpu("500m")]}), "cpu=1500, pods=1");
        check(json!({"containers": [cpu("1")], "initContainers": [cpu("3"), cpu("2")]}), "cpu=3000, pods=1");
        check(json!({"containers": [cpu("2")], "initContainers": [cpu("1")]}), "cpu=2000, pods=1");
        check(
            json!({"containers": [cpu("1")], "initContainers": [sidecar("1"), cpu("3")]}),
            "cpu=4000, pods=1",
        );
        check(
            json!({"containers": [cpu("1")], "initContainers": [cpu("3"), sidecar("1")]}),
            "cpu=3000, pods=1",
        );
        check(
            json!({"containers": [cpu("3")], "initContainers": [sidecar("1"), cpu("1")]}),
            "cpu=4000, pods=1",
        );
        check(json!({"containers": [cpu("1")], "overhead": {"cpu": "250m"}}), "cpu=1250, pods=1");
        check(json!({"containers": [cpu("1")], "resources": {"requests": {"cpu": "5"}}}), "cpu=5000, pods=1");
        check(
            json!({"containers": [cpu("1")], "resources": {"limits": {"cpu": "5", "memory": "1k"}}}),
            "cpu=1000, memory=1000, pods=1",
        );
        check(
            json!({"containers": [{"resources": {"limits": {"nvidia.com/gpu": "2"}}}]}),
            "gpu=2000, pods=1",
        );
        check(json!({"containers": [{"resources": {"requests": {"amd.com/gpu": 1}}}]}), "gpu=1000, pods=1");
    }

    #[test]
    fn what_makes_no_sense_waits() {
        for amount in ["-1", "1e30", "lots"] {
            let (request, found) = read(&json!({"spec": {"containers": [cpu(amount)]}}));
            assert_eq!((request.defects.len(), found.len()), (1, 1), "{amount}: {found:?}");
        }
        let huge: Vec<Value> =
            (0..3).map(|_| json!({"resources": {"requests": {"memory": "9007199254740992"}}})).collect();
        assert_eq!(read(&json!({"spec": {"containers": huge}})).0.defects.len(), 1);
    }

    #[track_caller]
    fn check_share(annotations: Value, expected: Option<(ShareSize, u32)>, n_diagnostics: usize) {
        let (request, found) = read(&json!({"metadata": {"annotations": annotations}}));
        assert_eq!(
            request.share,
            expected.map(|(size, devices)| GpuShare { size, devices }),
            "{annotations}"
        );
        assert_eq!(found.len(), n_diagnostics, "{found:?}");
        assert_eq!(request.defects.len(), n_diagnostics);
    }

    #[test]
    fn shares_of_gpus() {
        use ShareSize::*;
        check_share(json!({}), None, 0);
        check_share(json!({"gpu-fraction": "0.5"}), Some((Portion(500), 1)), 0);
        check_share(
            json!({"gpu-fraction": "0.29", "gpu-fraction-num-devices": "2"}),
            Some((Portion(290), 2)),
            0,
        );
        check_share(json!({"gpu-fraction": "0.9999"}), Some((Portion(1000), 1)), 0);
        check_share(json!({"gpu-memory": "4000"}), Some((Memory(4000), 1)), 0);
        check_share(json!({"gpu-fraction": "1"}), None, 1);
        check_share(json!({"gpu-fraction": "1.5"}), None, 1);
        check_share(json!({"gpu-fraction": "0"}), None, 1);
        check_share(json!({"gpu-fraction": "-0.5"}), None, 1);
        check_share(json!({"gpu-fraction": "half"}), None, 1);
        check_share(json!({"gpu-memory": "4Gi"}), None, 1);
        check_share(json!({"gpu-memory": "0"}), None, 1);
        check_share(
            json!({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "0"}),
            Some((Portion(500), 1)),
            1,
        );
        check_share(json!({"gpu-fraction-num-devices": "2"}), None, 1);
        check_share(json!({"gpu-fraction": "0.5", "gpu-memory": "1"}), Some((Portion(500), 1)), 1);
    }

    #[test]
    fn a_share_beside_whole_gpus_wins() {
        let (request, found) = read(&json!({"metadata": {"annotations": {"gpu-fraction": "0.5"}},
            "spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}));
        assert_eq!((request.amounts.get(&Resource::Gpu), found.len()), (0, 1));
        assert!(request.share.is_some());
    }

    #[track_caller]
    fn check_mig(profile: &str, charge: i64) {
        let (request, _) = read(
            &json!({"spec": {"containers": [{"resources": {"requests": {format!("nvidia.com/mig-{profile}"): "2"}}}]}}),
        );
        assert_eq!(request.mig_charge, charge, "{profile}");
    }

    #[test]
    fn mig_slices_are_charged_by_their_parts() {
        check_mig("1g.5gb", 2000);
        check_mig("3g.20gb", 6000);
        check_mig("1g.10gb.me", 0);
        check_mig("weird", 0);
        check_mig("g.gb", 0);
        let (request, _) = read(&json!({"metadata": {"annotations": {"nvidia.com/mig-1g.5gb": "1"}}}));
        assert_eq!((request.mig_charge, request.defects.len()), (1000, 1));
    }

    #[track_caller]
    fn check_pinned(containers: Value, expected: bool) {
        assert_eq!(read(&json!({"spec": {"containers": containers}})).0.pinned, expected, "{containers}");
    }

    #[test]
    fn guaranteed_pods_with_whole_cpus_are_pinned() {
        let both = |cpu: &str, memory: &str| json!({"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": cpu, "memory": memory}});
        check_pinned(json!([{"resources": both("2", "1G")}]), true);
        check_pinned(json!([{"resources": {"limits": {"cpu": "2", "memory": "1G"}}}]), true);
        check_pinned(json!([{"resources": both("500m", "1G")}, {"resources": both("1500m", "1G")}]), false);
        check_pinned(json!([{"resources": {"requests": {"cpu": "2", "memory": "1G"}}}]), false);
        check_pinned(json!([{"resources": both("2", "1G")}, {}]), false);
        check_pinned(json!([]), false);
        let said = read(
            &json!({"spec": {"containers": [{"resources": both("2", "1G")}]}, "status": {"qosClass": "Burstable"}}),
        );
        assert!(!said.0.pinned);
    }

    #[test]
    fn a_reservation_pod_asks_for_no_gpu_of_its_own() {
        let (request, _) = read(&json!({"metadata": {"namespace": "kai-resource-reservation"},
            "spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "1"}}}]}}));
        assert_eq!((request.amounts.to_string().as_str(), request.reserved), ("cpu=1000, pods=1", 1000));
    }
}
