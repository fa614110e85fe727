//! From the domains that constraints name to the node labels that schedulers know.
//!
//! In: a set and the ClusterTopologyBinding that it names. Out: constraints in node labels, and the condition that says
//! whether they could be translated. Must stay true: required and preferred are translated each for itself; a domain that
//! the topology does not have is left out, and the condition says so.

use serde_json::{Value, json};

use crate::conditions::Wanted;
use crate::keys::condition;
use crate::object::{ClusterTopologyBinding, PodCliqueSet, TopologyConstraint};
use crate::settings::Options;

/// What is known of the topology that a set names.
#[derive(Debug, Clone, PartialEq)]
pub enum Topology<'a> {
    /// The set has no constraint.
    Unneeded,
    Disabled,
    /// It has constraints and names no topology.
    Nameless,
    Missing(&'a str),
    Known(&'a ClusterTopologyBinding),
}

impl<'a> Topology<'a> {
    pub fn of(
        set: &'a PodCliqueSet,
        options: &Options,
        find: impl FnOnce(&str) -> Option<&'a ClusterTopologyBinding>,
    ) -> Topology<'a> {
        if set.constraints().next().is_none() {
            return Topology::Unneeded;
        }
        if !options.topology {
            return Topology::Disabled;
        }
        match set.topology_name() {
            "" => Topology::Nameless,
            name => find(name).map_or(Topology::Missing(name), Topology::Known),
        }
    }

    /// The binding, if constraints can be translated.
    pub fn binding(&self) -> Option<&'a ClusterTopologyBinding> {
        match self {
            Topology::Known(binding) => Some(binding),
            _ => None,
        }
    }

    fn key(&self, domain: &str) -> Option<&'a str> {
        let mut levels = self.binding()?.spec.levels.iter();
        levels.find(|level| level.domain == domain).map(|level| level.key.as_str())
    }

    /// A constraint as a PodGang says it; `None` when nothing of it can be said.
    pub fn translate(&self, constraint: Option<&TopologyConstraint>) -> Option<Value> {
        let constraint = constraint?;
        let mut pack = json!({});
        for (field, domain) in [("required", constraint.required()), ("preferred", constraint.preferred())] {
            if let Some(key) = self.key(domain) {
                pack[field] = json!(key);
            }
        }
        let said = pack.as_object().is_some_and(|pack| !pack.is_empty());
        said.then(|| json!({"packConstraint": pack}))
    }

    /// What the set says of it.
    pub fn condition(&self, set: &PodCliqueSet) -> Option<Wanted> {
        const KIND: &str = condition::LEVELS_UNAVAILABLE;
        Some(match self {
            Topology::Unneeded => return None,
            Topology::Disabled => Wanted::unknown(
                KIND,
                "TopologyAwareSchedulingDisabled",
                "topology constraints are switched off; they are ignored",
            ),
            Topology::Nameless => Wanted::unknown(
                KIND,
                "TopologyNameMissing",
                "no topologyConstraint names a topology; write topologyName",
            ),
            Topology::Missing(name) => Wanted::unknown(
                KIND,
                "ClusterTopologyNotFound",
                format!("there is no ClusterTopologyBinding {name}"),
            ),
            Topology::Known(binding) => {
                let mut missing: Vec<&str> = set
                    .constraints()
                    .flat_map(|c| [c.required(), c.preferred()])
                    .filter(|domain| !domain.is_empty() && self.key(domain).is_none())
                    .collect();
                missing.sort_unstable();
                missing.dedup();
                if missing.is_empty() {
                    let message = format!("ClusterTopologyBinding {} has them all", binding.metadata.name);
                    Wanted::new(KIND, false, "AllClusterTopologyLevelsAvailable", message)
                } else {
                    let message = format!(
                        "ClusterTopologyBinding {} has no domain {}; constraints on it are ignored",
                        binding.metadata.name,
                        missing.join(", ")
                    );
                    Wanted::new(KIND, true, "ClusterTopologyLevelsUnavailable", message)
                }
            }
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::shape::tests::set;

    pub(crate) fn binding() -> ClusterTopologyBinding {
        let levels: Vec<Value> = ["zone", "block", "rack", "host"]
            .iter()
            .map(|domain| json!({"domain": domain, "key": format!("example.com/{domain}")}))
            .collect();
        serde_json::from_value(json!({"metadata": {"name": "dc"}, "spec": {"levels": levels}})).unwrap()
    }

    pub(crate) fn constraint(required: &str, preferred: &str) -> TopologyConstraint {
        let pack = json!({"required": required, "preferred": preferred});
        serde_json::from_value(json!({"topologyName": "dc", "pack": pack})).unwrap()
    }

    #[track_caller]
    fn check(required: &str, preferred: &str, expected: Value, condition: &str) {
        let binding = binding();
        let mut set = set("p x1; a 1/1");
        set.spec.template.topology_constraint = Some(constraint(required, preferred));
        let topology = Topology::of(&set, &Options::default(), |_| Some(&binding));
        let said = topology.translate(set.spec.template.topology_constraint.as_ref());
        assert_eq!(said.unwrap_or(Value::Null), expected);
        let wanted = topology.condition(&set).unwrap();
        assert_eq!(format!("{} {}", wanted.status, wanted.reason), condition);
    }

    #[test]
    fn required_and_preferred_are_told_apart() {
        let all = "False AllClusterTopologyLevelsAvailable";
        let some = "True ClusterTopologyLevelsUnavailable";
        check("rack", "", json!({"packConstraint": {"required": "example.com/rack"}}), all);
        check("", "host", json!({"packConstraint": {"preferred": "example.com/host"}}), all);
        check(
            "block",
            "host",
            json!({"packConstraint": {"required": "example.com/block", "preferred": "example.com/host"}}),
            all,
        );
        check("row", "host", json!({"packConstraint": {"preferred": "example.com/host"}}), some);
        check("rack", "row", json!({"packConstraint": {"required": "example.com/rack"}}), some);
        check("row", "aisle", Value::Null, some);
    }

    #[test]
    fn what_cannot_be_known() {
        let mut set = set("p x1; a 1/1");
        assert_eq!(Topology::of(&set, &Options::default(), |_| None), Topology::Unneeded);
        set.spec.template.topology_constraint = Some(constraint("rack", ""));
        let reason = |set: &PodCliqueSet, options: &Options| {
            let wanted = Topology::of(set, options, |_| None).condition(set).unwrap();
            format!("{} {}", wanted.status, wanted.reason)
        };
        assert_eq!(reason(&set, &Options::default()), "Unknown ClusterTopologyNotFound");
        let off = Options { topology: false, ..Options::default() };
        assert_eq!(reason(&set, &off), "Unknown TopologyAwareSchedulingDisabled");
        set.spec.template.topology_constraint.as_mut().unwrap().topology_name.clear();
        assert_eq!(reason(&set, &Options::default()), "Unknown TopologyNameMissing");
    }

    #[test]
    fn the_old_spelling_counts() {
        let old: TopologyConstraint = serde_json::from_value(json!({"packDomain": "rack"})).unwrap();
        let binding = binding();
        assert_eq!(
            Topology::Known(&binding).translate(Some(&old)),
            Some(json!({"packConstraint": {"required": "example.com/rack"}}))
        );
    }
}
