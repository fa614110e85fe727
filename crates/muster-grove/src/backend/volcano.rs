//! Volcano: a PodGroup of `scheduling.volcano.sh/v1beta1` for each gang.
//!
//! Each clique is a sub-group of its own, so that the minima hold together and each for itself. Constraints become network
//! topologies by the names of tiers, which are the domains of the binding.

use std::sync::Arc;

use muster_runtime::object::Resource;
use serde_json::{Value, json};

use super::{Backend, Desired, Emission, EmitError, GangApi, Marks, Place, Waiting, World, handed_on};
use crate::keys;
use crate::mirror::Kept;
use crate::object::{GangConstraint, PodGang, list, text};
use crate::settings::BackendName;

pub const GROUP: Resource =
    Resource { group: "scheduling.volcano.sh", version: "v1beta1", kind: "PodGroup", plural: "podgroups" };

/// On a set: the queue of its gangs.
pub const QUEUE: &str = "scheduling.grove.io/volcano-queue";

pub struct Volcano;

impl Backend for Volcano {
    fn name(&self) -> BackendName {
        BackendName::Volcano
    }

    fn resources(&self, _: GangApi) -> Vec<Resource> {
        vec![GROUP]
    }

    fn marks(&self, place: &Place<'_>) -> Marks {
        let gang = &place.gang.metadata.name;
        Marks {
            labels: Vec::new(),
            annotations: vec![
                ("scheduling.volcano.sh/group-name", gang.clone()),
                ("scheduling.k8s.io/group-name", gang.clone()),
            ],
        }
    }

    fn emit(&self, gang: &PodGang, _: &[Arc<Kept>], world: &World<'_>) -> Result<Emission, EmitError> {
        let mut losses = Vec::new();
        let policies: Vec<Value> = gang
            .spec
            .podgroups
            .iter()
            .map(|group| {
                let mut policy = json!({
                    "name": group.name,
                    "labelSelector": {"matchLabels": {keys::PODCLIQUE: group.name}},
                    "matchLabelKeys": [keys::PODCLIQUE],
                    "subGroupSize": group.min_replicas.max(1),
                    "minSubGroups": 1,
                });
                let what = || format!("topology of {}", group.name);
                if let Some(topology) = network(group.topology_constraint.as_ref(), world, &what, &mut losses)
                {
                    policy["networkTopology"] = topology;
                }
                policy
            })
            .collect();
        let queue = gang.metadata.annotation(QUEUE).map(str::trim).filter(|queue| !queue.is_empty());
        let mut spec = json!({
            "minMember": gang.min_total().max(1),
            "queue": queue.unwrap_or(&world.options.volcano_default_queue),
            "subGroupPolicy": policies,
        });
        let whole = || "topology of the gang".to_owned();
        if let Some(topology) = network(gang.spec.topology_constraint.as_ref(), world, &whole, &mut losses) {
            spec["networkTopology"] = topology;
        }
        for config in &gang.spec.topology_constraint_group_configs {
            losses.push(format!("groups packed together ({})", config.name));
        }
        if !gang.spec.priority_class_name.is_empty() {
            spec["priorityClassName"] = json!(gang.spec.priority_class_name);
        }
        let body = json!({"metadata": {"labels": handed_on(gang)}, "spec": spec});
        let name = gang.metadata.name.clone();
        Ok(Emission {
            resources: vec![Desired { resource: GROUP, name, body, immutable: false }],
            losses,
            hold: false,
        })
    }

    fn observe(&self, there: &[Arc<Kept>]) -> Option<Waiting> {
        let conditions = there.iter().flat_map(|kept| list(&kept.status, &["conditions"]));
        let mut waiting =
            conditions.filter(|c| text(c, &["type"]) == "Unschedulable" && text(c, &["status"]) == "True");
        let last = waiting.next_back()?;
        Some(Waiting { reason: "Unschedulable", message: text(last, &["message"]).to_owned() })
    }
}

/// A constraint as Volcano says it: a tier that must not be left, or should not be.
fn network(
    constraint: Option<&GangConstraint>,
    world: &World<'_>,
    what: &dyn Fn() -> String,
    losses: &mut Vec<String>,
) -> Option<Value> {
    let (required, preferred) = constraint?.levels();
    let (key, mode) = match (required, preferred) {
        ("", "") => return None,
        ("", preferred) => (preferred, "soft"),
        (required, "") => (required, "hard"),
        (required, preferred) => {
            losses.push(format!("{}: {preferred} preferred beside {required} required", what()));
            (required, "hard")
        }
    };
    match domain(world, key) {
        Some(domain) => Some(json!({"mode": mode, "highestTierName": domain})),
        None => {
            losses.push(what());
            None
        }
    }
}

/// The domain that a node label stands for.
pub(super) fn domain<'a>(world: &World<'a>, key: &str) -> Option<&'a str> {
    let mut levels = world.topology?.spec.levels.iter();
    levels.find(|level| level.key == key).map(|level| level.domain.as_str())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{gang, world};
    use super::*;
    use crate::levels::tests::binding;
    use crate::settings::Options;

    #[test]
    fn a_group_and_its_subgroups() {
        let options = Options::default();
        let mut gang = gang("g; g-a 1; g-b 3");
        gang.spec.priority_class_name = "high".into();
        let emission = Volcano.emit(&gang, &[], &world(&options, None)).unwrap();
        assert_eq!(emission.losses, Vec::<String>::new());
        assert_eq!(emission.resources[0].name, "g");
        assert_eq!(
            emission.resources[0].body["spec"],
            json!({
                "minMember": 4, "queue": "default", "priorityClassName": "high",
                "subGroupPolicy": [
                    {"name": "g-a", "labelSelector": {"matchLabels": {"grove.io/podclique": "g-a"}},
                     "matchLabelKeys": ["grove.io/podclique"], "subGroupSize": 1, "minSubGroups": 1},
                    {"name": "g-b", "labelSelector": {"matchLabels": {"grove.io/podclique": "g-b"}},
                     "matchLabelKeys": ["grove.io/podclique"], "subGroupSize": 3, "minSubGroups": 1},
                ],
            })
        );
    }

    #[test]
    fn queues() {
        let options = Options::default();
        let mut gang = gang("g; g-a 1");
        for (said, expected) in [("fast", "fast"), ("  ", "default")] {
            gang.metadata.annotations.insert(QUEUE.into(), said.into());
            let emission = Volcano.emit(&gang, &[], &world(&options, None)).unwrap();
            assert_eq!(emission.resources[0].body["spec"]["queue"], expected);
        }
    }

    #[test]
    fn topologies_by_tier() {
        let options = Options::default();
        let binding = binding();
        let world = World { topology: Some(&binding), ..world(&options, None) };
        let gang = gang(
            "g; @example.com/block; g-a 1 /example.com/rack; g-b 1 example.com/rack/example.com/host; {x example.com/rack: g-a}",
        );
        // The short form splits at the first slash, which keys have too; so the constraints are set by hand.
        let mut gang = PodGang { spec: gang.spec.clone(), ..gang };
        let pack = |required: &str, preferred: &str| {
            Some(
                serde_json::from_value(
                    json!({"packConstraint": {"required": required, "preferred": preferred}}),
                )
                .unwrap(),
            )
        };
        gang.spec.topology_constraint = pack("example.com/block", "");
        gang.spec.podgroups[0].topology_constraint = pack("", "example.com/rack");
        gang.spec.podgroups[1].topology_constraint = pack("nobody/knows", "");
        let emission = Volcano.emit(&gang, &[], &world).unwrap();
        let spec = &emission.resources[0].body["spec"];
        assert_eq!(spec["networkTopology"], json!({"mode": "hard", "highestTierName": "block"}));
        assert_eq!(
            spec["subGroupPolicy"][0]["networkTopology"],
            json!({"mode": "soft", "highestTierName": "rack"})
        );
        assert_eq!(emission.losses, ["topology of g-b", "groups packed together (x)"]);
    }
}
