//! T9k: a PodGroup of `scheduler.tensorstack.dev/v1beta1` for each gang, with a role for each clique.

use std::sync::Arc;

use muster_runtime::object::Resource;
use serde_json::{Value, json};

use super::{Backend, Desired, Emission, EmitError, GangApi, Marks, Place, World, handed_on};
use crate::mirror::Kept;
use crate::object::PodGang;
use crate::settings::BackendName;

pub const GROUP: Resource = Resource {
    group: "scheduler.tensorstack.dev",
    version: "v1beta1",
    kind: "PodGroup",
    plural: "podgroups",
};

const GROUP_NAME: &str = "scheduler.tensorstack.dev/group-name";
const ROLE: &str = "scheduler.tensorstack.dev/role";
/// On a set, and so on its gangs.
const QUEUE: &str = "scheduler.tensorstack.dev/queue";
const PRIORITY: &str = "scheduler.tensorstack.dev/priority";

pub struct T9k;

impl Backend for T9k {
    fn name(&self) -> BackendName {
        BackendName::T9k
    }

    fn resources(&self, _: GangApi) -> Vec<Resource> {
        vec![GROUP]
    }

    fn marks(&self, place: &Place<'_>) -> Marks {
        let mut labels =
            vec![(GROUP_NAME, place.gang.metadata.name.clone()), (ROLE, place.clique.to_owned())];
        if let Some(queue) = said(place.gang, QUEUE) {
            labels.push((QUEUE, queue.to_owned()));
        }
        Marks { labels, annotations: Vec::new() }
    }

    fn emit(&self, gang: &PodGang, _: &[Arc<Kept>], _: &World<'_>) -> Result<Emission, EmitError> {
        let roles: Vec<Value> = gang
            .spec
            .podgroups
            .iter()
            .map(|group| json!({"name": group.name, "minMember": group.min_replicas}))
            .collect();
        let mut losses = Vec::new();
        let mut spec = json!({
            "minMember": gang.min_total(),
            "roles": roles,
            "queue": said(gang, QUEUE).unwrap_or("default"),
        });
        let priority = said(gang, PRIORITY).and_then(|text| text.parse::<i64>().ok());
        match priority.filter(|priority| (0..=100).contains(priority)) {
            Some(priority) => spec["priority"] = json!(priority),
            None if !gang.spec.priority_class_name.is_empty() => losses.push(format!(
                "priority class {} (write a number from 0 to 100 as {PRIORITY})",
                gang.spec.priority_class_name
            )),
            None => {}
        }
        let is_packed = gang.spec.topology_constraint.is_some()
            || !gang.spec.topology_constraint_group_configs.is_empty()
            || gang.spec.podgroups.iter().any(|group| group.topology_constraint.is_some());
        if is_packed {
            losses.push("topology".to_owned());
        }
        let body = json!({"metadata": {"labels": handed_on(gang)}, "spec": spec});
        let name = gang.metadata.name.clone();
        Ok(Emission {
            resources: vec![Desired { resource: GROUP, name, body, immutable: false }],
            losses,
            hold: false,
        })
    }
}

/// A label or an annotation of the gang, which are those of its set.
fn said<'a>(gang: &'a PodGang, key: &str) -> Option<&'a str> {
    let label = gang.metadata.labels.get(key).map(String::as_str);
    label.or_else(|| gang.metadata.annotation(key)).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{gang, world};
    use super::*;
    use crate::settings::Options;

    #[test]
    fn roles() {
        let options = Options::default();
        let mut gang = gang("g; g-master 1; g-worker 2");
        gang.metadata.annotations.clear();
        gang.spec.priority_class_name = "high".into();
        let emission = T9k.emit(&gang, &[], &world(&options, None)).unwrap();
        assert_eq!(
            emission.resources[0].body["spec"],
            json!({"minMember": 3, "queue": "default",
                   "roles": [{"name": "g-master", "minMember": 1}, {"name": "g-worker", "minMember": 2}]})
        );
        assert_eq!(emission.losses.len(), 1, "the class is said to be lost");
        gang.metadata.annotations.insert(PRIORITY.into(), "50".into());
        gang.metadata.labels.insert(QUEUE.into(), "fast".into());
        let emission = T9k.emit(&gang, &[], &world(&options, None)).unwrap();
        let spec = &emission.resources[0].body["spec"];
        assert_eq!((spec["priority"].as_i64(), spec["queue"].as_str()), (Some(50), Some("fast")));
        assert!(emission.losses.is_empty());
    }
}
