//! KAI: a PodGroup of `scheduling.run.ai/v2alpha2` for each gang.
//!
//! The group's minimum stands at the root, beside a sub-group for each clique; cliques that are packed together have a
//! parent. An existing PodGroup of the gang keeps its name, its queue and what the scheduler wrote.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_runtime::object::Resource;
use serde_json::{Value, json};

use super::{
    Backend, Desired, Emission, EmitError, GangApi, Marks, Place, Waiting, World, handed_on, said_by_set,
};
use crate::keys::{self, kai};
use crate::mirror::Kept;
use crate::names;
use crate::object::{GangConstraint, PodGang, list, text};
use crate::settings::{BackendName, GroupNames, Options};

pub const GROUP: Resource =
    Resource { group: "scheduling.run.ai", version: "v2alpha2", kind: "PodGroup", plural: "podgroups" };

pub struct Kai;

impl Backend for Kai {
    fn name(&self) -> BackendName {
        BackendName::Kai
    }

    fn resources(&self, _: GangApi) -> Vec<Resource> {
        vec![GROUP]
    }

    fn marks(&self, place: &Place<'_>) -> Marks {
        Marks {
            labels: vec![(kai::SUBGROUP, place.clique.to_owned())],
            annotations: vec![
                (kai::SKIP, "true".to_owned()),
                (kai::GROUP, group_name(place.gang, place.there, place.options)),
            ],
        }
    }

    fn emit(&self, gang: &PodGang, there: &[Arc<Kept>], world: &World<'_>) -> Result<Emission, EmitError> {
        let name = group_name(gang, there, world.options);
        let live = there.iter().find(|kept| kept.metadata.name == name);
        let topology = topology_name(gang, world);
        let constraint = |of: Option<&GangConstraint>| -> Result<Option<Value>, EmitError> {
            let Some((required, preferred)) = of.map(GangConstraint::levels) else { return Ok(None) };
            if required.is_empty() && preferred.is_empty() {
                return Ok(None);
            }
            let Some(topology) = &topology else { return Err(EmitError::NoTopology) };
            let mut out = json!({"topology": topology});
            for (field, level) in [("requiredTopologyLevel", required), ("preferredTopologyLevel", preferred)]
            {
                if !level.is_empty() {
                    out[field] = json!(level);
                }
            }
            Ok(Some(out))
        };

        let mut groups: Vec<Value> = Vec::new();
        let mut parents: BTreeMap<&str, &str> = BTreeMap::new();
        for config in &gang.spec.topology_constraint_group_configs {
            let known = |name: &&String| gang.spec.podgroups.iter().any(|group| group.name == **name);
            let members: Vec<&String> = config.pod_group_names.iter().filter(known).collect();
            if members.is_empty() {
                continue;
            }
            let mut group = json!({"name": config.name, "minSubGroup": members.len()});
            if let Some(constraint) = constraint(config.topology_constraint.as_ref())? {
                group["topologyConstraint"] = constraint;
            }
            groups.push(group);
            parents.extend(members.into_iter().map(|member| (member.as_str(), config.name.as_str())));
        }
        for leaf in &gang.spec.podgroups {
            let mut group = json!({"name": leaf.name, "minMember": leaf.min_replicas});
            if let Some(parent) = parents.get(leaf.name.as_str()) {
                group["parent"] = json!(parent);
            }
            if let Some(constraint) = constraint(leaf.topology_constraint.as_ref())? {
                group["topologyConstraint"] = constraint;
            }
            groups.push(group);
        }

        let mut spec = json!({
            "minMember": gang.min_total(),
            "queue": queue(live, world)?,
            "subGroups": groups,
            "topologyConstraint": constraint(gang.spec.topology_constraint.as_ref())?.unwrap_or_else(|| json!({})),
        });
        if !gang.spec.priority_class_name.is_empty() {
            spec["priorityClassName"] = json!(gang.spec.priority_class_name);
        }
        let body = json!({
            "metadata": {
                "labels": handed_on(gang),
                "annotations": {kai::TOP_OWNER: top_owner(gang)},
            },
            "spec": spec,
        });
        Ok(Emission {
            resources: vec![Desired { resource: GROUP, name, body, immutable: false }],
            ..Emission::default()
        })
    }

    fn observe(&self, there: &[Arc<Kept>]) -> Option<Waiting> {
        let conditions = there.iter().flat_map(|kept| list(&kept.status, &["schedulingConditions"]));
        let newest = conditions
            .filter(|c| text(c, &["type"]) == "UnschedulableOnNodePool" && text(c, &["status"]) == "True")
            .max_by_key(|c| text(c, &["transitionID"]).parse::<i64>().unwrap_or(0))?;
        Some(Waiting { reason: "Unschedulable", message: text(newest, &["message"]).to_owned() })
    }
}

/// The name of the gang's PodGroup: the one it has, or the one it will have.
fn group_name(gang: &PodGang, there: &[Arc<Kept>], options: &Options) -> String {
    let mut owned = there.iter().filter(|kept| kept.resource == GROUP);
    match (owned.next(), options.kai_group_names) {
        (Some(kept), _) => kept.metadata.name.clone(),
        (None, GroupNames::WithUid) => names::kai_group(&gang.metadata.name, &gang.metadata.uid),
        (None, GroupNames::LikeGang) => gang.metadata.name.clone(),
    }
}

/// KAI's Topology of the gang: what the binding says for KAI, else the one that is made from the binding.
fn topology_name(gang: &PodGang, world: &World<'_>) -> Option<String> {
    let annotation = |key| gang.metadata.annotation(key).filter(|name| !name.is_empty());
    if let Some(name) = annotation(keys::TOPOLOGY_NAME) {
        let reference = world.topology.filter(|binding| binding.metadata.name == name).and_then(|binding| {
            let mut bindings = binding.spec.scheduler_topology_bindings.iter();
            bindings.find(|b| world.options.route(&b.scheduler_name) == BackendName::Kai)
        });
        return Some(reference.map_or_else(|| name.to_owned(), |b| b.topology_reference.clone()));
    }
    annotation(kai::TOPOLOGY).map(str::to_owned)
}

/// A queue, once given, is the user's to change.
fn queue(live: Option<&Arc<Kept>>, world: &World<'_>) -> Result<String, EmitError> {
    if let Some(queue) = live.map(|kept| text(&kept.spec, &["queue"])).filter(|queue| !queue.is_empty()) {
        return Ok(queue.to_owned());
    }
    let said = match world.set {
        Some(set) => said_by_set(set, kai::QUEUE).map_err(|(one, other)| EmitError::Queues { one, other })?,
        None => None,
    };
    Ok(said.unwrap_or_else(|| world.options.kai_default_queue.clone()))
}

/// Who the group was made for, as KAI writes it.
fn top_owner(gang: &PodGang) -> String {
    format!(
        "name: {}\nuid: {}\ngroup: scheduler.grove.io\nversion: v1alpha1\nkind: PodGang\n",
        gang.metadata.name, gang.metadata.uid
    )
}

#[cfg(test)]
mod tests {
    use super::super::tests::{gang, world};
    use super::*;
    use crate::object::PodCliqueSet;
    use crate::shape::tests::set;

    fn emit(text: &str, there: &[Arc<Kept>], set: Option<&PodCliqueSet>) -> Result<Value, EmitError> {
        let options = Options::default();
        let emission = Kai.emit(&gang(text), there, &world(&options, set))?;
        assert_eq!(emission.resources.len(), 1);
        let mut out = emission.resources[0].body["spec"].clone();
        out["name"] = json!(emission.resources[0].name);
        Ok(out)
    }

    #[test]
    fn the_documents_group() {
        let options = Options::default();
        let mut gang = gang("ml-training-0; ml-training-0-master 1; ml-training-0-workers 3");
        gang.metadata.uid = "abc-123-def".into();
        gang.metadata.labels.insert("grove.io/scheduler-backend".into(), "kai".into());
        gang.spec.priority_class_name = "high-priority".into();
        let emission = Kai.emit(&gang, &[], &world(&options, None)).unwrap();
        let desired = &emission.resources[0];
        assert_eq!(desired.name, "pg-ml-training-0-abc-123-def");
        assert_eq!(
            desired.body,
            json!({
                "metadata": {
                    "labels": {"app.kubernetes.io/part-of": "set", "grove.io/scheduler-backend": "kai"},
                    "annotations": {"kai.scheduler/top-owner-metadata":
                        "name: ml-training-0\nuid: abc-123-def\ngroup: scheduler.grove.io\nversion: v1alpha1\nkind: PodGang\n"},
                },
                "spec": {
                    "minMember": 4,
                    "priorityClassName": "high-priority",
                    "queue": "default-queue",
                    "subGroups": [
                        {"name": "ml-training-0-master", "minMember": 1},
                        {"name": "ml-training-0-workers", "minMember": 3},
                    ],
                    "topologyConstraint": {},
                },
            })
        );
    }

    #[test]
    fn trees() {
        let spec = emit("g; @zone; {decoders /rack: decoder}; encoder 2 host; decoder 3", &[], None).unwrap();
        assert_eq!(spec["minMember"], 5);
        assert_eq!(
            spec["subGroups"],
            json!([
                {"name": "decoders", "minSubGroup": 1,
                 "topologyConstraint": {"topology": "dc", "preferredTopologyLevel": "rack"}},
                {"name": "encoder", "minMember": 2,
                 "topologyConstraint": {"topology": "dc", "requiredTopologyLevel": "host"}},
                {"name": "decoder", "minMember": 3, "parent": "decoders"},
            ])
        );
        assert_eq!(spec["topologyConstraint"], json!({"topology": "dc", "requiredTopologyLevel": "zone"}));
        let spec = emit("g; {empty rack: }; a 1", &[], None).unwrap();
        assert_eq!(spec["subGroups"], json!([{"name": "a", "minMember": 1}]));
        let spec = emit("g; {gone rack: x y}; a 1", &[], None).unwrap();
        assert_eq!(
            spec["subGroups"],
            json!([{"name": "a", "minMember": 1}]),
            "a parent of nobody is left out"
        );
    }

    #[test]
    fn a_constraint_needs_a_topology() {
        let options = Options::default();
        let mut gang = gang("g; @zone; a 1");
        gang.metadata.annotations.clear();
        assert_eq!(Kai.emit(&gang, &[], &world(&options, None)), Err(EmitError::NoTopology));
        gang.metadata.annotations.insert(kai::TOPOLOGY.into(), "theirs".into());
        let emission = Kai.emit(&gang, &[], &world(&options, None)).unwrap();
        assert_eq!(emission.resources[0].body["spec"]["topologyConstraint"]["topology"], "theirs");
    }

    #[test]
    fn a_binding_may_name_another_topology() {
        let options = Options::default();
        let binding = serde_json::from_value(
            json!({"metadata": {"name": "dc"}, "spec": {"schedulerTopologyBindings": [
            {"schedulerName": "kai-scheduler", "topologyReference": "theirs"}]}}),
        )
        .unwrap();
        let world = World { topology: Some(&binding), ..world(&options, None) };
        let emission = Kai.emit(&gang("g; @zone; a 1"), &[], &world).unwrap();
        assert_eq!(emission.resources[0].body["spec"]["topologyConstraint"]["topology"], "theirs");
    }

    /// Queues as `label annotation clique-a clique-b`, `-` for none.
    #[track_caller]
    fn check_queue(text: &str, expected: &str) {
        let mut set = set("p x1; a 1/1; b 1/1");
        let said: Vec<Option<String>> =
            text.split_whitespace().map(|w| (w != "-").then(|| w.to_owned())).collect();
        let key = || kai::QUEUE.to_owned();
        set.metadata.labels.extend(said[0].clone().map(|v| (key(), v)));
        set.metadata.annotations.extend(said[1].clone().map(|v| (key(), v)));
        set.spec.template.cliques[0].labels.extend(said[2].clone().map(|v| (key(), v)));
        set.spec.template.cliques[1].annotations.extend(said[3].clone().map(|v| (key(), v)));
        let got = match emit("g; a 1", &[], Some(&set)) {
            Ok(spec) => spec["queue"].as_str().unwrap().to_owned(),
            Err(_) => "error".to_owned(),
        };
        assert_eq!(got, expected, "{text}");
    }

    #[test]
    fn queues() {
        check_queue("- - - -", "default-queue");
        check_queue("x - - -", "x");
        check_queue("- x - -", "x");
        check_queue("x y - -", "x");
        check_queue("x - x x", "x");
        check_queue("- - x -", "x");
        check_queue("- - x x", "x");
        check_queue("x - y -", "error");
        check_queue("- - x y", "error");
    }

    fn kept(name: &str, spec: Value, status: Value) -> Arc<Kept> {
        Arc::new(Kept {
            resource: GROUP,
            metadata: serde_json::from_value(json!({"name": name})).unwrap(),
            spec,
            status,
            raw: Value::Null,
        })
    }

    #[test]
    fn what_is_there_keeps_name_and_queue() {
        let live = kept("g", json!({"queue": "moved"}), json!({}));
        let spec = emit("g; a 1", std::slice::from_ref(&live), None).unwrap();
        assert_eq!((spec["name"].as_str(), spec["queue"].as_str()), (Some("g"), Some("moved")));
        let gang = gang("g; a 1");
        let options = Options::default();
        let there = [live];
        let place =
            |there| Place { gang: &gang, clique: "g-a", there, options: &options, gang_api: GangApi::None };
        assert_eq!(
            Kai.marks(&place(&there)).annotations,
            [(kai::SKIP, "true".to_owned()), (kai::GROUP, "g".to_owned())]
        );
        assert_eq!(Kai.marks(&place(&[])).annotations[1].1, "pg-g-u-1");
        assert_eq!(Kai.marks(&place(&[])).labels, [(kai::SUBGROUP, "g-a".to_owned())]);
    }

    #[test]
    fn says_why_it_waits() {
        let status = json!({"schedulingConditions": [
            {"type": "UnschedulableOnNodePool", "status": "True", "transitionID": "1", "message": "old"},
            {"type": "UnschedulableOnNodePool", "status": "True", "transitionID": "12", "message": "no room"},
            {"type": "UnschedulableOnNodePool", "status": "False", "transitionID": "13", "message": "fine"},
        ]});
        let waiting = Kai.observe(&[kept("g", json!({}), status)]).unwrap();
        assert_eq!(waiting.message, "no room");
        assert_eq!(Kai.observe(&[kept("g", json!({}), json!({}))]), None);
    }
}
