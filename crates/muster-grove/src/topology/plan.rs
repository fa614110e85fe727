//! Which topologies a binding needs, and whether they agree with it.
//!
//! In: the binding, and the KAI Topologies it speaks of. Out: a Topology to make or to make anew, and the status. Must stay
//! true: a Topology that the binding names is somebody else's and only compared; one of another owner under our name is never
//! touched.

use jiff::Timestamp;
use muster_runtime::object::Resource;
use serde_json::{Map, Value, json};

use crate::conditions::{Wanted, merged};
use crate::keys::condition;
use crate::object::{ClusterTopologyBinding, list, number, text};
use crate::settings::{BackendName, Options};

pub const TOPOLOGY: Resource =
    Resource { group: "kai.scheduler", version: "v1alpha1", kind: "Topology", plural: "topologies" };

/// What is known of a Topology.
#[derive(Debug, Clone, PartialEq)]
pub enum Found {
    /// The kind is not served.
    Unserved,
    Missing,
    There(Value),
}

#[derive(Debug, PartialEq, Default)]
pub struct Plan {
    /// The Topology to make, without its owner.
    pub create: Option<Value>,
    /// The uid of the Topology to delete first.
    pub delete: Option<String>,
    pub status: Value,
}

/// The scheduler and the Topology that a binding means for KAI, and whether that is somebody else's.
pub fn reference<'a>(binding: &'a ClusterTopologyBinding, options: &Options) -> (&'a str, &'a str, bool) {
    let mut bindings = binding.spec.scheduler_topology_bindings.iter();
    match bindings.find(|b| options.route(&b.scheduler_name) == BackendName::Kai) {
        Some(b) => (&b.scheduler_name, &b.topology_reference, true),
        None => ("kai-scheduler", &binding.metadata.name, false),
    }
}

pub fn plan(binding: &ClusterTopologyBinding, found: &Found, options: &Options, now: Timestamp) -> Plan {
    let (scheduler, name, is_theirs) = reference(binding, options);
    let keys: Vec<&str> = binding.spec.levels.iter().map(|level| level.key.as_str()).collect();
    let levels: Vec<Value> = keys.iter().map(|key| json!({"nodeLabel": key})).collect();
    let body = json!({"metadata": {"name": name}, "spec": {"levels": levels}});
    let mut plan = Plan::default();
    let mut message = String::new();
    let mut generation = None;
    let mut reason = "InSync";
    match found {
        Found::Unserved => {
            reason = "TopologyNotFound";
            "KAI's Topology is not served; install its CRDs".clone_into(&mut message);
        }
        Found::Missing if is_theirs => {
            reason = "TopologyNotFound";
            message = format!("there is no Topology {name}");
        }
        Found::Missing => plan.create = Some(body),
        Found::There(topology) => {
            generation = topology.get("metadata").map(|meta| number(meta, "generation"));
            let have: Vec<&str> =
                list(topology, &["spec", "levels"]).iter().map(|level| text(level, &["nodeLabel"])).collect();
            let owners = list(topology, &["metadata", "ownerReferences"]);
            let is_ours = owners.iter().any(|owner| text(owner, &["uid"]) == binding.metadata.uid);
            if have != keys {
                if is_theirs {
                    reason = "Drift";
                    message =
                        format!("Topology {name} has levels {}, wanted {}", have.join(", "), keys.join(", "));
                } else if is_ours {
                    // Levels cannot be changed.
                    plan.delete = Some(text(topology, &["metadata", "uid"]).to_owned());
                    plan.create = Some(body);
                } else {
                    reason = "Drift";
                    message = format!(
                        "Topology {name} is not ours and has other levels; rename it, or name it in schedulerTopologyBindings"
                    );
                }
            } else if !is_theirs && !is_ours {
                message = format!("Topology {name} is not ours, but agrees");
            }
        }
    }
    let in_sync = reason == "InSync";
    let mut entry = json!({"schedulerName": scheduler, "topologyReference": name, "inSync": in_sync});
    if let Some(generation) = generation.filter(|generation| *generation > 0) {
        entry["schedulerBackendTopologyObservedGeneration"] = json!(generation);
    }
    if !message.is_empty() {
        entry["message"] = json!(message);
    }
    let wanted = match reason {
        "TopologyNotFound" if matches!(found, Found::Unserved) => {
            Wanted::unknown(condition::DRIFT, "TopologyNotFound", message)
        }
        "InSync" => Wanted::new(condition::DRIFT, false, "InSync", message),
        "Drift" => Wanted::new(condition::DRIFT, true, "Drift", message),
        _ => Wanted::new(condition::DRIFT, true, "TopologyNotFound", message),
    };
    let mut status: Map<String, Value> = binding.status.as_object().cloned().unwrap_or_default();
    status.insert("observedGeneration".into(), json!(binding.metadata.generation));
    status.insert("conditions".into(), merged(&binding.status, &[wanted], now));
    status.insert("schedulerTopologyStatuses".into(), json!([entry]));
    plan.status = Value::Object(status);
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::levels::tests::binding;

    /// What is there: `levels owner`, `-` for nothing. Out: what is done, and the condition.
    #[track_caller]
    fn check(reference: &str, there: &str, expected: &str) {
        let mut binding = binding();
        binding.metadata.uid = "me".into();
        if !reference.is_empty() {
            binding.spec.scheduler_topology_bindings = vec![
                serde_json::from_value(
                    json!({"schedulerName": "kai-scheduler", "topologyReference": reference}),
                )
                .unwrap(),
            ];
        }
        let found = match there {
            "-" => Found::Missing,
            "?" => Found::Unserved,
            there => {
                let (levels, owner) = there.split_once(' ').unwrap();
                let levels: Vec<Value> =
                    levels.split(',').map(|l| json!({"nodeLabel": format!("example.com/{l}")})).collect();
                Found::There(json!({
                    "metadata": {"uid": "t", "generation": 2, "ownerReferences": [{"uid": owner}]},
                    "spec": {"levels": levels},
                }))
            }
        };
        let plan = plan(&binding, &found, &Options::default(), Timestamp::UNIX_EPOCH);
        let condition = crate::object::condition(&plan.status, condition::DRIFT).unwrap();
        let sync = plan.status["schedulerTopologyStatuses"][0]["inSync"].as_bool().unwrap();
        let shown = format!(
            "{}{}{} {} {sync}",
            if plan.delete.is_some() { "-" } else { "" },
            if plan.create.is_some() { "+ " } else { "" },
            condition.status,
            condition.reason
        );
        assert_eq!(shown, expected, "{there}");
    }

    #[test]
    fn made_compared_and_left_alone() {
        let all = "zone,block,rack,host";
        check("", "-", "+ False InSync true");
        check("", &format!("{all} me"), "False InSync true");
        check("", "zone,rack me", "-+ False InSync true");
        check("", "zone,rack other", "True Drift false");
        check("", &format!("{all} other"), "False InSync true");
        check("theirs", "-", "True TopologyNotFound false");
        check("theirs", &format!("{all} other"), "False InSync true");
        check("theirs", "zone other", "True Drift false");
        check("", "?", "Unknown TopologyNotFound false");
    }
}
