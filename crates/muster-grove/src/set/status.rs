//! How a set is.
//!
//! In: everything that belongs to it, and the progress of its roll-out. Out: its status. Must stay true: fields that we do not
//! know stay; a replica is available when every clique and every group of it has its minimum ready, or came to a good end.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::plan::Seen;
use super::update::Progress;
use crate::conditions::{Wanted, merged};
use crate::gang::plan::summary;
use crate::keys::{self, condition};
use crate::names;
use crate::object::{PodClique, PodCliqueScalingGroup, PodGang, condition_status, number, text};

pub fn status(seen: &Seen<'_>, progress: &Progress) -> Value {
    let set = seen.set;
    let n_available = available(seen);
    let mut status: Map<String, Value> = set.status.as_object().cloned().unwrap_or_default();
    status.remove("lastErrors");
    let mut wanted: Vec<Wanted> = seen.topology.condition(set).into_iter().collect();
    let is_phase = |gang: &PodGang, phase: &str| text(&gang.status, &["phase"]) == phase;
    let completed = set.replicas() > 0
        && !seen.gangs.is_empty()
        && seen.gangs.iter().all(|gang| is_phase(gang, "Succeeded"));
    let failed = seen.gangs.iter().any(|gang| is_phase(gang, "Failed"));
    if completed || !condition_status(&set.status, condition::COMPLETED).is_empty() {
        let reason = if completed { "AllGangsCompleted" } else { "Running" };
        wanted.push(Wanted::new(condition::COMPLETED, completed, reason, ""));
    }
    if failed || !condition_status(&set.status, condition::FAILED).is_empty() {
        let reason = if failed { "GangFailed" } else { "Running" };
        wanted.push(Wanted::new(condition::FAILED, failed, reason, ""));
    }
    let mut put = |field: &str, value: Value| status.insert(field.to_owned(), value);
    put("observedGeneration", json!(set.metadata.generation));
    put("replicas", json!(set.replicas()));
    put("availableReplicas", json!(n_available));
    put("updatedReplicas", json!(progress.n_updated));
    put("ready", json!(format!("{n_available}/{}", set.replicas())));
    put("hpaPodSelector", json!(format!("{}={}", keys::PART_OF, set.metadata.name)));
    put("currentGenerationHash", json!(progress.generation));
    put("podGangStatuses", summary(seen.gangs));
    let has_conditions = set.status.get("conditions").is_some() || !wanted.is_empty();
    if has_conditions {
        put("conditions", merged(&set.status, &wanted, seen.now));
    }
    match &progress.progress {
        Some(progress) => put("updateProgress", progress.clone()),
        None => status.remove("updateProgress"),
    };
    Value::Object(status)
}

/// Whether a clique has its minimum. Cliques that another program looked after say it by counts alone.
pub fn clique_is_available(clique: &PodClique) -> bool {
    match condition_status(&clique.status, condition::AVAILABLE) {
        "" => number(&clique.status, "readyReplicas") >= clique.spec.min_available(),
        said => said == "True",
    }
}

fn available(seen: &Seen<'_>) -> i64 {
    let set = seen.set;
    let cliques: HashMap<&str, &Arc<PodClique>> =
        seen.cliques.iter().map(|clique| (clique.metadata.name.as_str(), clique)).collect();
    let groups: HashMap<&str, &Arc<PodCliqueScalingGroup>> =
        seen.groups.iter().map(|group| (group.metadata.name.as_str(), group)).collect();
    let is_available = |replica: &i64| {
        let mut own = set.standalone(*replica);
        let of_groups = || {
            set.spec.template.pod_clique_scaling_groups.iter().all(|config| {
                let name = names::group(&set.metadata.name, *replica, &config.name);
                groups.get(name.as_str()).is_some_and(|group| {
                    !group.metadata.deleting()
                        && number(&group.status, "availableReplicas") >= group.spec.min_available()
                })
            })
        };
        own.all(|shape| {
            cliques
                .get(shape.name().as_str())
                .is_some_and(|clique| !clique.metadata.deleting() && clique_is_available(clique))
        }) && of_groups()
    };
    (0..set.replicas()).filter(is_available).count() as i64
}

#[cfg(test)]
mod tests {
    use super::super::plan::tests::Ground;
    use super::*;
    use crate::object::holds;
    use crate::shape::tests::set;

    fn settled(text: &str, available: &[&str], group: i64, phases: &[&str]) -> Value {
        let set = set(text);
        let mut ground = Ground::default();
        let plan = ground.look(&set);
        ground.take(&plan.actions);
        for clique in &mut ground.cliques {
            let mut object = (**clique).clone();
            let is = available.contains(&object.metadata.name.as_str());
            object.status =
                json!({"conditions": [{"type": "Available", "status": if is { "True" } else { "False" }}]});
            *clique = Arc::new(object);
        }
        for object in &mut ground.groups {
            let mut group_object = (**object).clone();
            group_object.status = json!({"availableReplicas": group});
            *object = Arc::new(group_object);
        }
        for (gang, phase) in ground.gangs.iter_mut().zip(phases) {
            let mut object = (**gang).clone();
            object.status = json!({"phase": phase});
            *gang = Arc::new(object);
        }
        ground.look(&set).status
    }

    #[test]
    fn availability() {
        let ready = |status: Value| status["ready"].as_str().unwrap().to_owned();
        assert_eq!(ready(settled("p x2; a 2/1", &[], 0, &[])), "0/2");
        assert_eq!(ready(settled("p x2; a 2/1", &["p-1-a"], 0, &[])), "1/2");
        assert_eq!(ready(settled("p x2; a 2/1; b 1/1", &["p-1-a", "p-0-a", "p-0-b"], 0, &[])), "1/2");
        assert_eq!(ready(settled("p x1; a 2/1; b 1/1; sg x3/2: b", &["p-0-a"], 1, &[])), "0/1");
        assert_eq!(ready(settled("p x1; a 2/1; b 1/1; sg x3/2: b", &["p-0-a"], 2, &[])), "1/1");
        assert_eq!(ready(settled("p x0; a 2/1", &[], 0, &[])), "0/0");
    }

    #[test]
    fn gangs_are_summed_up() {
        let status = settled("p x2; a 2/1", &[], 0, &["Running", "Pending"]);
        assert_eq!(status["podGangStatuses"][0]["name"], "p-0");
        assert_eq!(status["podGangStatuses"][0]["phase"], "Running");
        assert!(status.get("conditions").is_none());
        let status = settled("p x2; a 2/1", &[], 0, &["Succeeded", "Succeeded"]);
        assert!(holds(&status, condition::COMPLETED));
        let status = settled("p x2; a 2/1", &[], 0, &["Succeeded", "Failed"]);
        assert!(holds(&status, condition::FAILED) && !holds(&status, condition::COMPLETED));
    }
}
