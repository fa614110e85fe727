//! Koordinator: a PodGroup of `scheduling.sigs.k8s.io/v1alpha1` for each clique, tied into one gang by annotation.
//!
//! Groups that name each other are placed together or not at all, each with its own minimum: exactly what a PodGang means.

use std::sync::Arc;

use muster_runtime::object::Resource;
use serde_json::{Value, json};

use super::volcano::domain;
use super::{Backend, Desired, Emission, EmitError, GangApi, Marks, Place, Waiting, World, handed_on};
use crate::mirror::Kept;
use crate::object::{PodGang, text};
use crate::settings::BackendName;

pub const GROUP: Resource =
    Resource { group: "scheduling.sigs.k8s.io", version: "v1alpha1", kind: "PodGroup", plural: "podgroups" };

const GROUPS: &str = "gang.scheduling.koordinator.sh/groups";
const MODE: &str = "gang.scheduling.koordinator.sh/mode";
const MATCH_POLICY: &str = "gang.scheduling.koordinator.sh/match-policy";
const WAITING: &str = "gang.scheduling.koordinator.sh/waiting-time";
const TOPOLOGY: &str = "gang.scheduling.koordinator.sh/network-topology-spec";
const POD_GROUP: &str = "pod-group.scheduling.sigs.k8s.io";
/// On a set, and so on its gangs: the quota of its pods.
const QUOTA: &str = "quota.scheduling.koordinator.sh/name";

pub struct Koordinator;

impl Backend for Koordinator {
    fn name(&self) -> BackendName {
        BackendName::Koordinator
    }

    fn resources(&self, _: GangApi) -> Vec<Resource> {
        vec![GROUP]
    }

    fn marks(&self, place: &Place<'_>) -> Marks {
        let mut labels = vec![(POD_GROUP, place.clique.to_owned())];
        if let Some(quota) = place.gang.metadata.labels.get(QUOTA) {
            labels.push((QUOTA, quota.clone()));
        }
        Marks { labels, annotations: Vec::new() }
    }

    fn emit(&self, gang: &PodGang, _: &[Arc<Kept>], world: &World<'_>) -> Result<Emission, EmitError> {
        let namespace = &gang.metadata.namespace;
        let all: Vec<String> =
            gang.spec.podgroups.iter().map(|group| format!("{namespace}/{}", group.name)).collect();
        let mut losses = Vec::new();
        let mut annotations = json!({
            GROUPS: json!(all).to_string(),
            MODE: gang.metadata.annotation(MODE).unwrap_or("Strict"),
            MATCH_POLICY: gang.metadata.annotation(MATCH_POLICY).unwrap_or("once-satisfied"),
            WAITING: gang.metadata.annotation(WAITING).map_or_else(
                || format!("{}s", world.options.koordinator_waiting_seconds),
                str::to_owned,
            ),
        });
        if let Some(gather) = gather(gang, world, &mut losses) {
            annotations[TOPOLOGY] = json!(json!({"gatherStrategy": gather}).to_string());
        }
        for group in gang.spec.podgroups.iter().filter(|group| group.topology_constraint.is_some()) {
            losses.push(format!("topology of {}", group.name));
        }
        for config in &gang.spec.topology_constraint_group_configs {
            losses.push(format!("groups packed together ({})", config.name));
        }
        let resources = gang
            .spec
            .podgroups
            .iter()
            .map(|group| Desired {
                resource: GROUP,
                name: group.name.clone(),
                body: json!({
                    "metadata": {"labels": handed_on(gang), "annotations": annotations},
                    "spec": {
                        "minMember": group.min_replicas,
                        "scheduleTimeoutSeconds": world.options.koordinator_waiting_seconds,
                    },
                }),
                immutable: false,
            })
            .collect();
        Ok(Emission { resources, losses, ..Emission::default() })
    }

    fn observe(&self, there: &[Arc<Kept>]) -> Option<Waiting> {
        let waiting: Vec<&str> = there
            .iter()
            .filter(|kept| matches!(text(&kept.status, &["phase"]), "Pending" | "PreScheduling"))
            .map(|kept| kept.metadata.name.as_str())
            .collect();
        let message = format!("groups wait: {}", waiting.join(", "));
        (!waiting.is_empty()).then_some(Waiting { reason: "WaitingForNodes", message })
    }
}

fn gather(gang: &PodGang, world: &World<'_>, losses: &mut Vec<String>) -> Option<Vec<Value>> {
    let (required, preferred) = gang.spec.topology_constraint.as_ref()?.levels();
    let mut strategies = Vec::new();
    for (key, strategy) in [(required, "MustGather"), (preferred, "PreferGather")] {
        if key.is_empty() {
            continue;
        }
        match domain(world, key) {
            Some(layer) => strategies.push(json!({"layer": layer, "strategy": strategy})),
            None => losses.push(format!("{key} of the gang")),
        }
    }
    (!strategies.is_empty()).then_some(strategies)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{gang, world};
    use super::*;
    use crate::levels::tests::binding;
    use crate::settings::Options;

    #[test]
    fn groups_that_name_each_other() {
        let options = Options::default();
        let emission = Koordinator.emit(&gang("g; g-a 1; g-b 3"), &[], &world(&options, None)).unwrap();
        let shown: Vec<String> = emission
            .resources
            .iter()
            .map(|d| {
                format!(
                    "{} {} {}",
                    d.name,
                    d.body["spec"]["minMember"],
                    text(&d.body, &["metadata", "annotations", GROUPS])
                )
            })
            .collect();
        assert_eq!(shown, [r#"g-a 1 ["ns/g-a","ns/g-b"]"#, r#"g-b 3 ["ns/g-a","ns/g-b"]"#]);
        let annotations = &emission.resources[0].body["metadata"]["annotations"];
        assert_eq!(annotations[WAITING], "600s");
        assert_eq!(annotations[MODE], "Strict");
    }

    #[test]
    fn pods_name_their_group_and_quota() {
        let options = Options::default();
        let mut gang = gang("g; g-a 1");
        gang.metadata.labels.insert(QUOTA.into(), "team".into());
        let place =
            Place { gang: &gang, clique: "g-a", there: &[], options: &options, gang_api: GangApi::None };
        let marks = Koordinator.marks(&place);
        assert_eq!(marks.labels, [(POD_GROUP, "g-a".to_owned()), (QUOTA, "team".to_owned())]);
    }

    #[test]
    fn topology_of_the_whole_only() {
        let options = Options::default();
        let binding = binding();
        let world = World { topology: Some(&binding), ..world(&options, None) };
        let mut gang = gang("g; g-a 1 x; {c y: g-a}");
        gang.spec.topology_constraint = Some(
            serde_json::from_value(
                json!({"packConstraint": {"required": "example.com/block", "preferred": "example.com/rack"}}),
            )
            .unwrap(),
        );
        let emission = Koordinator.emit(&gang, &[], &world).unwrap();
        assert_eq!(
            text(&emission.resources[0].body, &["metadata", "annotations", TOPOLOGY]),
            r#"{"gatherStrategy":[{"layer":"block","strategy":"MustGather"},{"layer":"rack","strategy":"PreferGather"}]}"#
        );
        assert_eq!(emission.losses, ["topology of g-a", "groups packed together (c)"]);
    }
}
