//! `topology.node.k8s.io` NodeResourceTopology, in both versions, and the records of which zones a pod runs in.

use crate::read::{At, Object};
use crate::text::{self, Rounding};
use muster_model::{Amounts, GPU, Name, Numa, NumaPolicy, NumaScope, Resource, Zone, ZoneUse};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The zones of a node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Zones(Numa);

impl Zones {
    pub(crate) fn numa(&self) -> Numa {
        self.0.clone()
    }

    pub(crate) fn name(&self, index: u32) -> Option<Name> {
        self.0.zones.get(index as usize).map(|zone| zone.name.clone())
    }

    fn index(&self, name: &str) -> Option<u32> {
        self.0.zones.iter().position(|zone| &*zone.name == name).and_then(|i| u32::try_from(i).ok())
    }
}

pub(crate) fn zones(object: &Object<'_>) -> Zones {
    // The older version names policy and scope in one word, the newer one in attributes, which win.
    let mut policy = NumaPolicy::None;
    let mut scope = NumaScope::Container;
    for at in object.get("topologyPolicies").list() {
        let Some(word) = at.str() else { continue };
        let (stem, of_pod) = match word.strip_suffix("PodLevel") {
            Some(stem) => (stem, true),
            None => (word.strip_suffix("ContainerLevel").unwrap_or(word), false),
        };
        policy = match stem {
            "None" => NumaPolicy::None,
            "BestEffort" => NumaPolicy::BestEffort,
            "Restricted" => NumaPolicy::Restricted,
            "SingleNUMANode" => NumaPolicy::SingleNode,
            _ => {
                at.report("is no topology policy; write one like SingleNUMANodePodLevel");
                continue;
            }
        };
        scope = if of_pod { NumaScope::Pod } else { NumaScope::Container };
    }
    for at in object.get("attributes").list() {
        let value = at.get("value");
        match (at.get("name").str().unwrap_or(""), value.str().unwrap_or("")) {
            ("topologyManagerPolicy", "none") => policy = NumaPolicy::None,
            ("topologyManagerPolicy", "best-effort") => policy = NumaPolicy::BestEffort,
            ("topologyManagerPolicy", "restricted") => policy = NumaPolicy::Restricted,
            ("topologyManagerPolicy", "single-numa-node") => policy = NumaPolicy::SingleNode,
            ("topologyManagerPolicy", _) => {
                value.report("must be none, best-effort, restricted or single-numa-node")
            }
            ("topologyManagerScope", "container") => scope = NumaScope::Container,
            ("topologyManagerScope", "pod") => scope = NumaScope::Pod,
            ("topologyManagerScope", _) => value.report("must be container or pod"),
            _ => {}
        }
    }
    let zones = object
        .get("zones")
        .list()
        .filter(|zone| matches!(zone.get("type").str(), None | Some("Node")))
        .map(|zone| {
            let mut allocatable = Amounts::new();
            let mut available = Amounts::new();
            for at in zone.get("resources").list() {
                let name = at.get("name").str().unwrap_or("");
                let known = |field: &str| at.get(field).exists().then(|| at.get(field));
                let capacity = known("allocatable").or_else(|| known("capacity"));
                add(&mut allocatable, name, capacity);
                add(&mut available, name, known("available").or(capacity));
            }
            Zone { name: zone.get("name").str().unwrap_or("").into(), allocatable, available }
        })
        .collect();
    Zones(Numa { policy, scope, zones })
}

fn add(amounts: &mut Amounts, name: &str, at: Option<At<'_>>) {
    let resource = text::resource(name);
    if let Some(at) = at
        && let Some(quantity) = at.quantity()
    {
        match text::amount(&resource, quantity, Rounding::Down) {
            Ok(amount) => amounts.add(resource, amount),
            Err(problem) => at.report(format!("{} {problem}; it counts as none", at.quoted())),
        }
    }
}

/// A record of zones by name: `[{zone, amount}]`.
pub(crate) type ZoneRecord = Vec<(Name, Amounts)>;

/// What a pod takes from zones, as [`record`] reads it.
pub(crate) fn record_json(uses: &[ZoneUse], zones: &Zones) -> Value {
    let amount = |(resource, n): (&Resource, i64)| match resource {
        Resource::Gpu => ("nvidia.com/gpu".to_owned(), (n / GPU).to_string()),
        Resource::Cpu => (resource.to_string(), format!("{n}m")),
        _ => (resource.to_string(), n.to_string()),
    };
    let shown = uses.iter().filter_map(|used| {
        let amounts: BTreeMap<String, String> = used.amounts.iter().map(amount).collect();
        Some(json!({"zone": &*zones.name(used.zone)?, "amount": amounts}))
    });
    Value::Array(shown.collect())
}

pub(crate) fn record(list: At<'_>) -> ZoneRecord {
    list.list()
        .filter_map(|at| {
            let zone = at.get("zone").name()?;
            let mut amounts = Amounts::new();
            for (name, amount) in at.get("amount").entries() {
                add(&mut amounts, name, Some(amount));
            }
            Some((zone, amounts))
        })
        .collect()
}

/// The record by index, and the zones that the node does not have.
pub(crate) fn resolve(record: &ZoneRecord, zones: Option<&Zones>) -> (Vec<ZoneUse>, Vec<Name>) {
    let mut uses = Vec::new();
    let mut unknown = Vec::new();
    for (name, amounts) in record {
        match zones.map(|zones| zones.index(name)) {
            Some(Some(zone)) => uses.push(ZoneUse { zone, amounts: amounts.clone() }),
            Some(None) => unknown.push(name.clone()),
            // A node without zones has nothing to charge.
            None => {}
        }
    }
    uses.sort();
    (uses, unknown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::Resource;
    use serde_json::{Value, json};

    #[track_caller]
    fn check(object: Value, policy: NumaPolicy, scope: NumaScope, n_diagnostics: usize) {
        let object_ = Object::new("NodeResourceTopology", &object);
        let numa = zones(&object_).numa();
        assert_eq!((numa.policy, numa.scope), (policy, scope), "{object}");
        assert_eq!(object_.into_diagnostics().len(), n_diagnostics, "{object}");
    }

    #[test]
    fn policies_of_both_versions() {
        use NumaPolicy::*;
        use NumaScope::*;
        let attributes = |policy: &str, scope: &str| json!([{"name": "topologyManagerPolicy", "value": policy}, {"name": "topologyManagerScope", "value": scope}]);
        check(json!({}), None, Container, 0);
        check(json!({"topologyPolicies": ["SingleNUMANodePodLevel"]}), SingleNode, Pod, 0);
        check(json!({"topologyPolicies": ["SingleNUMANodeContainerLevel"]}), SingleNode, Container, 0);
        check(json!({"topologyPolicies": ["Restricted"]}), Restricted, Container, 0);
        check(json!({"topologyPolicies": ["BestEffortPodLevel"]}), BestEffort, Pod, 0);
        check(json!({"topologyPolicies": ["Sometimes"]}), None, Container, 1);
        check(json!({"attributes": attributes("single-numa-node", "pod")}), SingleNode, Pod, 0);
        check(json!({"attributes": attributes("best-effort", "world")}), BestEffort, Container, 1);
        check(
            json!({"topologyPolicies": ["SingleNUMANodePodLevel"], "attributes": attributes("none", "container")}),
            None,
            Container,
            0,
        );
    }

    #[test]
    fn zones_and_records() {
        let value = json!({"zones": [
            {"name": "z0", "type": "Node", "resources": [{"name": "cpu", "capacity": "8", "allocatable": "4", "available": "1"}]},
            {"name": "core", "type": "Core"},
            {"name": "z1", "type": "Node", "resources": [{"name": "nvidia.com/gpu", "capacity": 2}]},
        ]});
        let object = Object::new("NodeResourceTopology", &value);
        let zones = zones(&object);
        assert_eq!(zones.0.zones.len(), 2);
        assert_eq!(zones.0.zones[0].allocatable.get(&Resource::Cpu), 4000);
        assert_eq!(zones.0.zones[0].available.get(&Resource::Cpu), 1000);
        assert_eq!(zones.0.zones[1].available.get(&Resource::Gpu), 2000);
        let wanted = vec![("z1".into(), Amounts::new()), ("z9".into(), Amounts::new())];
        let (uses, unknown) = resolve(&wanted, Some(&zones));
        assert_eq!((uses.len(), uses[0].zone, &*unknown), (1, 1, &["z9".into()][..]));
        assert_eq!(resolve(&wanted, None), (vec![], vec![]));
    }
}
