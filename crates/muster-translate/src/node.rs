//! `v1` Node, with what other objects say about it: NodeResourceTopology, CSINode, ResourceSlices and the GPU topology.

use crate::links;
use crate::numa::Zones;
use crate::read::{At, Object};
use crate::text::{self, Rounding};
use muster_model::{
    Amounts, Conditions, Gpus, Labels, Links, MigStrategy, Name, Node, Resource, Taint, TaintEffect,
};
use std::collections::BTreeMap;

const GPU_MEMORY: &str = "nvidia.com/gpu.memory";
const GPU_PRODUCT: &str = "nvidia.com/gpu.product";
const MIG_STRATEGY: &str = "nvidia.com/mig.strategy";
const MIG_ENABLED: &str = "node-role.kubernetes.io/mig-enabled";
const NVLINK_GROUPS: &str = "muster.dev/nvlink-groups";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// What the Node object itself says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodeFacts {
    pub(crate) node: Node,
    /// It counts GPUs as a plain resource.
    pub(crate) counts_gpus: bool,
}

pub(crate) fn node(object: &Object<'_>) -> NodeFacts {
    let labels = object.get("metadata").get("labels").labels();
    let spec = object.get("spec");
    let status = object.get("status");
    let unschedulable = spec.get("unschedulable").bool().unwrap_or(false);

    let mut allocatable = Amounts::new();
    for (name, at) in status.get("allocatable").entries() {
        let resource = text::resource(name);
        if let Some(quantity) = at.quantity() {
            match text::amount(&resource, quantity, Rounding::Down) {
                Ok(amount) => allocatable.add(resource, amount),
                Err(problem) => at.report(format!("{} {problem}; it counts as none", at.quoted())),
            }
        }
    }

    let mut taints = taints(spec.get("taints"));
    if unschedulable {
        taints.push(Taint { key: UNSCHEDULABLE.into(), value: "".into(), effect: TaintEffect::NoSchedule });
    }
    taints.sort();
    taints.dedup();

    let mut conditions = Conditions { unschedulable, ..Conditions::default() };
    for at in status.get("conditions").list() {
        let status = at.get("status").str().unwrap_or("");
        match at.get("type").str().unwrap_or("") {
            "Ready" => conditions.ready = status == "True",
            // Unknown is as bad as true.
            "MemoryPressure" | "DiskPressure" | "PIDPressure" | "NetworkUnavailable" => {
                conditions.pressure |= status != "False";
            }
            _ => {}
        }
    }

    let n_gpus = allocatable.get(&Resource::Gpu) / muster_model::GPU;
    let links = object.annotation(NVLINK_GROUPS).and_then(|text| {
        links::of_annotation(text, n_gpus)
            .map_err(|problem| object.report(&format!("metadata.annotations[{NVLINK_GROUPS}]"), problem))
            .ok()
            .flatten()
    });
    let gpus =
        Gpus { memory: gpu_memory(object, &labels), mig: mig(&labels, &allocatable), dra: false, links };
    NodeFacts {
        counts_gpus: n_gpus > 0,
        node: Node {
            name: object.name().into(),
            labels,
            taints,
            conditions,
            allocatable,
            gpus,
            numa: None,
            attach_limits: BTreeMap::new(),
            images: images(object.get("status").get("images")),
            load: None,
        },
    }
}

/// Images by all of their names.
fn images(list: At<'_>) -> BTreeMap<Name, i64> {
    let mut images = BTreeMap::new();
    for image in list.list() {
        let size = image.get("sizeBytes").int().unwrap_or(0).max(0);
        images.extend(image.get("names").names().into_iter().map(|name| (name, size)));
    }
    images
}

/// Taints of a node, or of a flavor that stands for nodes.
pub(crate) fn taints(list: At<'_>) -> Vec<Taint> {
    list.list()
        .filter_map(|at| {
            let effect = match at.get("effect").str().unwrap_or("") {
                "NoSchedule" => TaintEffect::NoSchedule,
                "PreferNoSchedule" => TaintEffect::PreferNoSchedule,
                "NoExecute" => TaintEffect::NoExecute,
                _ => {
                    at.report(
                        "the effect must be NoSchedule, PreferNoSchedule or NoExecute; the taint is ignored",
                    );
                    return None;
                }
            };
            let value = at.get("value").str().unwrap_or("").into();
            Some(Taint { key: at.get("key").str().unwrap_or("").into(), value, effect })
        })
        .collect()
}

/// The node, with what others say about it.
pub(crate) fn assemble(
    facts: &NodeFacts,
    zones: Option<&Zones>,
    attach_limits: Option<&BTreeMap<Name, u32>>,
    has_gpu_slices: bool,
    links: Option<&Links>,
) -> Node {
    let mut node = facts.node.clone();
    node.numa = zones.map(Zones::numa);
    node.attach_limits = attach_limits.cloned().unwrap_or_default();
    node.gpus.dra = has_gpu_slices && !facts.counts_gpus;
    if node.gpus.links.is_none() {
        node.gpus.links = links.cloned();
    }
    node
}

/// In MiB, in steps of 100. Drivers of some generations wrote bytes. Up to 100 the size is not known.
fn gpu_memory(object: &Object<'_>, labels: &Labels) -> Option<i64> {
    let text = labels.get(GPU_MEMORY)?;
    let Ok(number) = text.parse::<i64>() else {
        object.report(
            &format!("metadata.labels[{GPU_MEMORY}]"),
            "is no whole number of MiB; the size of its GPUs is not known",
        );
        return None;
    };
    let mib = if number >= 1 << 20 { number >> 20 } else { number };
    let mib = mib - mib.rem_euclid(100);
    (mib > 100).then_some(mib)
}

/// The strategy label is on every node that the operator looks after; it means something where GPUs are cut.
fn mig(labels: &Labels, allocatable: &Amounts) -> MigStrategy {
    let has_slices = allocatable.iter().any(|(r, _)| r.mig_parts().is_some());
    let enabled = match labels.get(MIG_ENABLED) {
        Some(value) => matches!(&**value, "1" | "t" | "T" | "true" | "TRUE" | "True"),
        None => has_slices || labels.get(GPU_PRODUCT).is_some_and(|product| product.contains("-MIG-")),
    };
    match labels.get(MIG_STRATEGY).map(|s| &**s) {
        _ if !enabled => MigStrategy::None,
        Some("single") => MigStrategy::Single,
        Some("mixed") => MigStrategy::Mixed,
        _ if has_slices => MigStrategy::Mixed,
        _ => MigStrategy::None,
    }
}

/// CSINode: how many volumes of each driver can be attached.
pub(crate) fn attach_limits(object: &Object<'_>) -> BTreeMap<Name, u32> {
    object
        .get("spec")
        .get("drivers")
        .list()
        .filter_map(|driver| {
            Some((driver.get("name").name()?, driver.get("allocatable").get("count").count()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(value: &Value) -> (Node, Vec<String>) {
        let object = Object::new("Node", value);
        let node = node(&object).node;
        (node, object.into_diagnostics().iter().map(ToString::to_string).collect())
    }

    fn labelled(labels: Value) -> Node {
        read(&json!({"metadata": {"name": "n", "labels": labels}})).0
    }

    #[test]
    fn allocatable_is_in_units_and_gpus_of_all_makers_are_one() {
        let (node, found) = read(&json!({"metadata": {"name": "n"}, "status": {"allocatable": {
            "cpu": "3920m", "memory": "20G", "pods": "110", "nvidia.com/gpu": "2", "amd.com/gpu": 1,
            "hugepages-2Mi": "0", "ephemeral-storage": "-5", "rdma/hca": "9e30",
        }}}));
        let expected: Amounts = [
            (Resource::Cpu, 3920),
            (Resource::Memory, 20_000_000_000),
            (Resource::Pods, 110),
            (Resource::Gpu, 3000),
        ]
        .into_iter()
        .collect();
        assert_eq!(node.allocatable, expected);
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[track_caller]
    fn check_memory(label: &str, expected: Option<i64>) {
        assert_eq!(labelled(json!({GPU_MEMORY: label})).gpus.memory, expected, "{label}");
    }

    #[test]
    fn gpu_memory_is_floored_and_small_is_unknown() {
        check_memory("81559", Some(81500));
        check_memory("85520809984", Some(81500));
        check_memory("100", None);
        check_memory("199", None);
        check_memory("200", Some(200));
        check_memory("-5", None);
        check_memory("big", None);
    }

    #[test]
    fn conditions_and_taints() {
        let with = |conditions: Value, unschedulable: bool| {
            read(&json!({"metadata": {"name": "n"}, "spec": {"unschedulable": unschedulable}, "status": {"conditions": conditions}})).0
        };
        assert!(with(json!([{"type": "Ready", "status": "True"}]), false).conditions.usable());
        assert!(with(json!([]), false).conditions.usable());
        assert!(!with(json!([{"type": "Ready", "status": "Unknown"}]), false).conditions.ready);
        assert!(with(json!([{"type": "DiskPressure", "status": "Unknown"}]), false).conditions.pressure);
        assert!(!with(json!([{"type": "DiskPressure", "status": "False"}]), false).conditions.pressure);
        let cordoned = with(json!([]), true);
        assert!(cordoned.conditions.unschedulable);
        assert_eq!(&*cordoned.taints[0].key, UNSCHEDULABLE);
        let (node, found) = read(&json!({"metadata": {"name": "n"}, "spec": {"taints": [
            {"key": "a", "value": "b", "effect": "NoExecute"}, {"key": "c", "effect": "Maybe"}
        ]}}));
        assert_eq!(
            node.taints,
            [Taint { key: "a".into(), value: "b".into(), effect: TaintEffect::NoExecute }]
        );
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn a_strategy_counts_where_gpus_are_cut() {
        assert_eq!(labelled(json!({MIG_STRATEGY: "mixed"})).gpus.mig, MigStrategy::None);
        assert_eq!(
            labelled(json!({MIG_STRATEGY: "mixed", MIG_ENABLED: "true"})).gpus.mig,
            MigStrategy::Mixed
        );
        assert_eq!(
            labelled(json!({MIG_STRATEGY: "single", MIG_ENABLED: "true"})).gpus.mig,
            MigStrategy::Single
        );
        assert_eq!(
            labelled(json!({MIG_STRATEGY: "single", MIG_ENABLED: "false"})).gpus.mig,
            MigStrategy::None
        );
        let product = json!({MIG_STRATEGY: "single", GPU_PRODUCT: "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"});
        assert_eq!(labelled(product).gpus.mig, MigStrategy::Single);
        let slices = read(&json!({"status": {"allocatable": {"nvidia.com/mig-1g.5gb": "7"}}})).0;
        assert_eq!(slices.gpus.mig, MigStrategy::Mixed);
    }
}
