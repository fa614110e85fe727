//! Kubernetes' own scheduler, by the gang API that the server has.
//!
//! 1.36 (`v1alpha2`): a Workload of templates and a PodGroup for each clique, named by `schedulingGroup` of its pods. 1.35
//! (`v1alpha1`): a Workload alone, named by `workloadRef`. Older: nothing; pods are held until the gang is complete, and that is
//! said. Groups of that API are gangs each for itself. What it cannot be told (that several groups belong together, that they are packed
//! together, or anything at all on an older server) is held up by the gates: the pods are freed when all of them have room, and bound to
//! the domain that was found for them.

use std::sync::Arc;

use muster_runtime::object::Resource;
use serde_json::{Value, json};

use super::{Backend, Desired, Emission, EmitError, GangApi, Marks, Place, Waiting, World, handed_on};
use crate::mirror::Kept;
use crate::object::{GangConstraint, PodGang, list, text};
use crate::settings::BackendName;

const fn kind(version: &'static str, kind: &'static str, plural: &'static str) -> Resource {
    Resource { group: "scheduling.k8s.io", version, kind, plural }
}

pub const WORKLOAD: Resource = kind("v1alpha2", "Workload", "workloads");
pub const GROUP: Resource = kind("v1alpha2", "PodGroup", "podgroups");
pub const WORKLOAD_1: Resource = kind("v1alpha1", "Workload", "workloads");

/// A Workload holds no more groups than this.
const MOST_GROUPS: usize = 8;
/// The one group of a 1.35 Workload whose gang has more groups than fit.
const WHOLE: &str = "all";

pub struct Default;

impl Backend for Default {
    fn name(&self) -> BackendName {
        BackendName::Default
    }

    fn resources(&self, gang_api: GangApi) -> Vec<Resource> {
        match gang_api {
            GangApi::V1Alpha2 => vec![WORKLOAD, GROUP],
            GangApi::V1Alpha1 => vec![WORKLOAD_1],
            GangApi::None => Vec::new(),
        }
    }

    fn marks(&self, _: &Place<'_>) -> Marks {
        Marks::default()
    }

    fn prepare(&self, place: &Place<'_>, spec: &mut Value) {
        match place.gang_api {
            GangApi::V1Alpha2 => spec["schedulingGroup"] = json!({"podGroupName": place.clique}),
            GangApi::V1Alpha1 => {
                let group = if fits(place.gang) { place.clique } else { WHOLE };
                spec["workloadRef"] = json!({"name": place.gang.metadata.name, "podGroup": group});
            }
            GangApi::None => {}
        }
    }

    fn emit(&self, gang: &PodGang, _: &[Arc<Kept>], world: &World<'_>) -> Result<Emission, EmitError> {
        Ok(match world.gang_api {
            GangApi::V1Alpha2 => second(gang),
            GangApi::V1Alpha1 => first(gang),
            GangApi::None => Emission {
                resources: Vec::new(),
                losses: vec![
                    "the gang: this server has no gang API; pods are held until all of them have room"
                        .to_owned(),
                ],
                hold: gang.min_total() > 1,
            },
        })
    }

    fn observe(&self, there: &[Arc<Kept>]) -> Option<Waiting> {
        let groups = there.iter().filter(|kept| kept.resource == GROUP);
        for group in groups {
            for condition in list(&group.status, &["conditions"]) {
                if text(condition, &["type"]) == "PodGroupScheduled"
                    && text(condition, &["status"]) == "False"
                {
                    let message = format!("{}: {}", group.metadata.name, text(condition, &["message"]));
                    return Some(Waiting { reason: "Unschedulable", message });
                }
            }
        }
        None
    }
}

fn fits(gang: &PodGang) -> bool {
    gang.spec.podgroups.len() <= MOST_GROUPS
}

fn controller_ref(gang: &PodGang) -> Value {
    json!({"apiGroup": "scheduler.grove.io", "kind": "PodGang", "name": gang.metadata.name})
}

fn body(gang: &PodGang, spec: Value) -> Value {
    json!({"metadata": {"labels": handed_on(gang)}, "spec": spec})
}

fn apart(gang: &PodGang) -> Option<String> {
    (gang.spec.podgroups.len() > 1)
        .then(|| "that the groups belong together: they are held until all have room, then each is placed as a gang of its own".to_owned())
}

fn first(gang: &PodGang) -> Emission {
    let group = |name: &str, min: i64| json!({"name": name, "policy": {"gang": {"minCount": min.max(1)}}});
    let mut losses: Vec<String> = Vec::new();
    let groups: Vec<Value> = if fits(gang) {
        losses.extend(apart(gang));
        gang.spec.podgroups.iter().map(|g| group(&g.name, g.min_replicas)).collect()
    } else {
        losses.push(format!("minima of the groups: more than {MOST_GROUPS} groups count as one"));
        vec![group(WHOLE, gang.min_total())]
    };
    if is_packed(gang) {
        losses.push("topology: pods are bound to a domain that had room when they were freed".to_owned());
    }
    let spec = json!({"controllerRef": controller_ref(gang), "podGroups": groups});
    let name = gang.metadata.name.clone();
    let workload = Desired { resource: WORKLOAD_1, name, body: body(gang, spec), immutable: true };
    // One group is a gang by itself; its packing is lost on this server.
    let hold = gang.spec.podgroups.len() > 1 || has_required(gang);
    Emission { resources: vec![workload], losses, hold }
}

fn is_packed(gang: &PodGang) -> bool {
    gang.spec.topology_constraint.is_some()
        || !gang.spec.topology_constraint_group_configs.is_empty()
        || gang.spec.podgroups.iter().any(|group| group.topology_constraint.is_some())
}

fn second(gang: &PodGang) -> Emission {
    let mut losses: Vec<String> = apart(gang).into_iter().collect();
    let is_alone = gang.spec.podgroups.len() == 1;
    if !is_alone && gang.spec.topology_constraint.is_some() {
        losses.push(
            "topology of the gang: pods are bound to a domain that had room when they were freed".to_owned(),
        );
    }
    for config in &gang.spec.topology_constraint_group_configs {
        losses.push(format!("groups packed together ({})", config.name));
    }
    let mut templates: Vec<Value> = Vec::new();
    let mut groups: Vec<Desired> = Vec::new();
    for (index, group) in gang.spec.podgroups.iter().enumerate() {
        let mut spec = json!({"schedulingPolicy": {"gang": {"minCount": group.min_replicas.max(1)}}});
        // A group that is the whole gang has the gang's constraint.
        let constraint = group.topology_constraint.as_ref().or(gang
            .spec
            .topology_constraint
            .as_ref()
            .filter(|_| is_alone));
        if let Some((required, preferred)) = constraint.map(GangConstraint::levels) {
            if !required.is_empty() {
                spec["schedulingConstraints"] = json!({"topology": [{"key": required}]});
            }
            if !preferred.is_empty() {
                losses.push(format!("{preferred} preferred by {}", group.name));
            }
        }
        if !gang.spec.priority_class_name.is_empty() {
            spec["priorityClassName"] = json!(gang.spec.priority_class_name);
        }
        if index < MOST_GROUPS {
            let mut template = spec.clone();
            template["name"] = json!(group.name);
            templates.push(template);
            spec["podGroupTemplateRef"] = json!({"workload": {
                "workloadName": gang.metadata.name,
                "podGroupTemplateName": group.name,
            }});
        }
        groups.push(Desired {
            resource: GROUP,
            name: group.name.clone(),
            body: body(gang, spec),
            immutable: true,
        });
    }
    if gang.spec.podgroups.len() > MOST_GROUPS {
        losses.push(format!("templates of more than {MOST_GROUPS} groups; their PodGroups stand alone"));
    }
    let spec = json!({"controllerRef": controller_ref(gang), "podGroupTemplates": templates});
    let name = gang.metadata.name.clone();
    let mut resources = vec![Desired { resource: WORKLOAD, name, body: body(gang, spec), immutable: true }];
    resources.extend(groups);
    let hold = !is_alone;
    Emission { resources, losses, hold }
}

fn has_required(gang: &PodGang) -> bool {
    let configs =
        gang.spec.topology_constraint_group_configs.iter().map(|config| &config.topology_constraint);
    let groups = gang.spec.podgroups.iter().map(|group| &group.topology_constraint);
    std::iter::once(&gang.spec.topology_constraint)
        .chain(configs)
        .chain(groups)
        .flatten()
        .any(|constraint| !constraint.levels().0.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{gang, world};
    use super::*;
    use crate::settings::Options;

    fn emit(text: &str, gang_api: GangApi) -> Emission {
        let options = Options::default();
        Default.emit(&gang(text), &[], &World { gang_api, ..world(&options, None) }).unwrap()
    }

    #[test]
    fn workload_and_groups() {
        let emission = emit("inference-service-0; inference-service-0-servers 3 rack", GangApi::V1Alpha2);
        assert!(emission.losses.is_empty());
        let [workload, group] = emission.resources.as_slice() else { panic!("{emission:?}") };
        assert_eq!(workload.name, "inference-service-0");
        assert_eq!(
            workload.body["spec"],
            json!({
                "controllerRef": {"apiGroup": "scheduler.grove.io", "kind": "PodGang", "name": "inference-service-0"},
                "podGroupTemplates": [{
                    "name": "inference-service-0-servers",
                    "schedulingPolicy": {"gang": {"minCount": 3}},
                    "schedulingConstraints": {"topology": [{"key": "rack"}]},
                }],
            })
        );
        assert_eq!(
            group.body["spec"],
            json!({
                "schedulingPolicy": {"gang": {"minCount": 3}},
                "schedulingConstraints": {"topology": [{"key": "rack"}]},
                "podGroupTemplateRef": {"workload": {
                    "workloadName": "inference-service-0", "podGroupTemplateName": "inference-service-0-servers"}},
            })
        );
        assert!(group.immutable);
    }

    #[test]
    fn the_older_form() {
        let emission = emit("g; g-a 1; g-b 3", GangApi::V1Alpha1);
        assert_eq!(
            emission.resources[0].body["spec"]["podGroups"],
            json!([{"name": "g-a", "policy": {"gang": {"minCount": 1}}}, {"name": "g-b", "policy": {"gang": {"minCount": 3}}}])
        );
        assert_eq!(emission.losses.len(), 1);
        let many: String = (0..9).map(|i| format!("; g-{i} 2")).collect();
        let emission = emit(&format!("g{many}"), GangApi::V1Alpha1);
        assert_eq!(
            emission.resources[0].body["spec"]["podGroups"],
            json!([{"name": "all", "policy": {"gang": {"minCount": 18}}}])
        );
        let emission = emit(&format!("g{many}"), GangApi::V1Alpha2);
        assert_eq!(emission.resources.len(), 10);
        assert_eq!(emission.resources[0].body["spec"]["podGroupTemplates"].as_array().unwrap().len(), 8);
        assert!(emission.resources[9].body["spec"].get("podGroupTemplateRef").is_none());
    }

    #[test]
    fn without_an_api_it_is_said() {
        let emission = emit("g; g-a 1", GangApi::None);
        assert!(emission.resources.is_empty() && emission.losses.len() == 1);
    }

    #[test]
    fn pods_name_their_group() {
        let options = Options::default();
        let gang = gang("g; g-a 1");
        let prepared = |gang_api| {
            let mut spec = json!({});
            let place = Place { gang: &gang, clique: "g-a", there: &[], options: &options, gang_api };
            Default.prepare(&place, &mut spec);
            spec
        };
        assert_eq!(prepared(GangApi::V1Alpha2), json!({"schedulingGroup": {"podGroupName": "g-a"}}));
        assert_eq!(prepared(GangApi::V1Alpha1), json!({"workloadRef": {"name": "g", "podGroup": "g-a"}}));
        assert_eq!(prepared(GangApi::None), json!({}));
    }

    #[test]
    fn what_is_lost_is_said() {
        let emission = emit("g; @zone; {c rack: g-a}; g-a 1 /host; g-b 1", GangApi::V1Alpha2);
        assert_eq!(emission.losses.len(), 4, "{:?}", emission.losses);
        let emission = emit("g; @zone; g-a 1", GangApi::V1Alpha2);
        assert!(emission.losses.is_empty());
        assert_eq!(
            emission.resources[1].body["spec"]["schedulingConstraints"],
            json!({"topology": [{"key": "zone"}]})
        );
    }
}
