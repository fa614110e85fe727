//! Rolling a change out over the replicas of a set.
//!
//! In: the set, its status, its cliques and groups. Out: the progress that goes into the status, and the hash of the
//! generation. Must stay true: one replica at a time, and none before the status names it; a set that is seen for the first
//! time, or was kept by another program, is taken as it is; a change in the middle starts over.

use std::sync::Arc;

use muster_runtime::clock::stamp;
use serde_json::{Value, json};

use super::plan::Seen;
use crate::clique::plan::is_selected;
use crate::hash;
use crate::keys::{self, condition};
use crate::names;
use crate::object::{PodClique, holds, index, label, list, number, text};

/// What a set's status says of its roll-out.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Progress {
    pub generation: String,
    pub progress: Option<Value>,
    /// How many replicas run the current template.
    pub n_updated: i64,
}

/// How one replica stands.
#[derive(Debug, Clone, Default, PartialEq)]
struct Replica {
    index: i64,
    /// Every clique and group is there.
    present: bool,
    /// Something of it is of an old template.
    stale: bool,
    /// Everything is there, of the new template, and has its minimum ready.
    done: bool,
    scheduled: i64,
    breached: bool,
    n_cliques_updated: i64,
    n_groups_updated: i64,
}

/// Whether a clique's object and pods are of the template.
pub fn clique_is_updated(clique: &PodClique, wanted: &str) -> bool {
    label(&clique.metadata, keys::TEMPLATE_HASH) == wanted
        && number(&clique.status, "updatedReplicas") >= number(&clique.status, "replicas")
}

/// Whether it also has its minimum ready.
pub fn clique_is_done(clique: &PodClique, wanted: &str) -> bool {
    clique_is_updated(clique, wanted)
        && !clique.metadata.deleting()
        && holds(&clique.status, condition::AVAILABLE)
        && number(&clique.status, "observedGeneration") >= clique.metadata.generation
}

pub fn progress(seen: &Seen<'_>) -> Progress {
    let set = seen.set;
    let wanted = hash::generation(set);
    let known = text(&set.status, &["currentGenerationHash"]);
    let replicas = replicas(seen);
    let n_updated = replicas.iter().filter(|r| r.present && !r.stale).count() as i64;
    let old = set.status.get("updateProgress").filter(|p| p.is_object()).cloned();
    let is_new = !known.is_empty() && known != wanted && hash::is_ours(known);
    let is_running = old.as_ref().is_some_and(|old| text(old, &["updateEndedAt"]).is_empty());
    let any_stale = replicas.iter().any(|replica| replica.stale);

    let mut progress = if is_new {
        Some(json!({"updateStartedAt": stamp(seen.now)}))
    } else if set.rolls() && any_stale && !is_running && !known.is_empty() {
        // Left over from a time when nothing rolled by itself.
        Some(json!({"updateStartedAt": stamp(seen.now)}))
    } else {
        old
    };
    if let Some(progress) = &mut progress {
        count(seen, &replicas, progress);
        let is_open = text(progress, &["updateEndedAt"]).is_empty();
        if is_open && !set.rolls() {
            close(progress, seen);
        } else if is_open {
            step(seen, &replicas, progress);
        }
    }
    Progress { generation: wanted, progress, n_updated }
}

fn count(seen: &Seen<'_>, replicas: &[Replica], progress: &mut Value) {
    let template = &seen.set.spec.template;
    let n_replicas = replicas.len() as i64;
    let n_groups = template.pod_clique_scaling_groups.len() as i64;
    let n_cliques = seen.set.standalone(0).count() as i64;
    progress["totalPodCliquesCount"] = json!(n_replicas * n_cliques);
    progress["totalPodCliqueScalingGroupsCount"] = json!(n_replicas * n_groups);
    progress["updatedPodCliquesCount"] = json!(replicas.iter().map(|r| r.n_cliques_updated).sum::<i64>());
    progress["updatedPodCliqueScalingGroupsCount"] =
        json!(replicas.iter().map(|r| r.n_groups_updated).sum::<i64>());
}

fn close(progress: &mut Value, seen: &Seen<'_>) {
    progress["updateEndedAt"] = json!(stamp(seen.now));
    if let Some(progress) = progress.as_object_mut() {
        progress.remove("currentlyUpdating");
    }
}

/// Goes on to the next replica when the one under way is done.
fn step(seen: &Seen<'_>, replicas: &[Replica], progress: &mut Value) {
    let current = list(progress, &["currentlyUpdating"]).first().cloned();
    if let Some(current) = current {
        let at = number(&current, "replicaIndex");
        // A replica that was scaled away is done with.
        if replicas.iter().any(|replica| replica.index == at && !replica.done) {
            return;
        }
    }
    let next = replicas
        .iter()
        .filter(|replica| replica.stale)
        .min_by_key(|replica| (replica.scheduled > 0, !replica.breached, replica.index));
    match next {
        Some(next) => {
            progress["currentlyUpdating"] =
                json!([{"replicaIndex": next.index, "updateStartedAt": stamp(seen.now)}]);
        }
        None if replicas.iter().all(|replica| !replica.stale) => close(progress, seen),
        None => {}
    }
}

fn replicas(seen: &Seen<'_>) -> Vec<Replica> {
    let set = seen.set;
    let hashes = set.hashes();
    let empty = String::new();
    let hash_of = |name: &str| hashes.get(name).unwrap_or(&empty).as_str();
    let by_name: std::collections::HashMap<&str, &Arc<PodClique>> =
        seen.cliques.iter().map(|clique| (clique.metadata.name.as_str(), clique)).collect();
    let groups: std::collections::HashMap<&str, _> =
        seen.groups.iter().map(|group| (group.metadata.name.as_str(), group)).collect();
    (0..set.replicas())
        .map(|replica| {
            let mut out = Replica { index: replica, ..Replica::default() };
            let mut take = |clique: &PodClique, wanted: &str| -> (bool, bool) {
                let have = label(&clique.metadata, keys::TEMPLATE_HASH);
                let updated = clique_is_updated(clique, wanted);
                // What another program made counts as of this template.
                out.stale |= !updated && (hash::is_ours(have) || have.is_empty());
                out.scheduled += number(&clique.status, "scheduledReplicas");
                out.breached |= holds(&clique.status, condition::BREACHED);
                (updated, clique_is_done(clique, wanted))
            };
            let mut n_cliques = 0;
            let mut all_done = true;
            let mut present = true;
            for shape in set.standalone(replica) {
                match by_name.get(shape.name().as_str()) {
                    Some(clique) => {
                        let (updated, done) = take(clique, hash_of(&shape.template.name));
                        n_cliques += i64::from(updated);
                        all_done &= done;
                    }
                    None => present = false,
                }
            }
            let mut n_groups = 0;
            for config in &set.spec.template.pod_clique_scaling_groups {
                let name = names::group(&set.metadata.name, replica, &config.name);
                let Some(group) = groups.get(name.as_str()) else {
                    present = false;
                    continue;
                };
                let members = (seen.group_cliques)(&group.metadata.uid);
                let mut updated = true;
                let mut n_done = 0;
                for member in &members {
                    let template = config.clique_names.iter().find(|clique| {
                        index(&member.metadata, keys::GROUP_REPLICA).is_some_and(|replica| {
                            names::group_clique(&name, replica, clique) == member.metadata.name
                        })
                    });
                    let Some(template) = template else { continue };
                    let (is_updated, is_done) = take(member, hash_of(template));
                    updated &= is_updated;
                    n_done += i64::from(is_done);
                }
                n_groups += i64::from(updated && !members.is_empty());
                let least = group.spec.min_available().min(group.spec.replicas());
                all_done &= updated && n_done >= least * config.clique_names.len() as i64;
            }
            out.n_cliques_updated = n_cliques;
            out.n_groups_updated = n_groups;
            out.present = present;
            out.done = all_done && present && !out.stale;
            out
        })
        .collect()
}

/// Whether a replica is being rolled now; for groups and cliques.
pub fn is_turn(set: &crate::object::PodCliqueSet, replica: i64) -> bool {
    set.rolls() && is_selected(&set.status, replica)
}

#[cfg(test)]
mod tests {
    use super::super::plan::tests::{Ground, short};
    use super::*;
    use crate::object::PodCliqueSet;
    use crate::shape::tests::set;

    /// A set whose replicas are all there and well.
    fn settled(text: &str) -> (PodCliqueSet, Ground) {
        let mut set = set(text);
        let mut ground = Ground::default();
        let plan = ground.look(&set);
        ground.take(&plan.actions);
        set.status = ground.look(&set).status;
        for name in 0..ground.cliques.len() {
            well(&mut ground, name, true);
        }
        set.status = ground.look(&set).status;
        (set, ground)
    }

    fn well(ground: &mut Ground, at: usize, updated: bool) {
        let mut clique = (*ground.cliques[at]).clone();
        clique.status = json!({
            "replicas": 2, "updatedReplicas": if updated { 2 } else { 0 }, "scheduledReplicas": 2,
            "conditions": [{"type": "Available", "status": "True"}, {"type": "MinAvailableBreached", "status": "False"}],
        });
        ground.cliques[at] = Arc::new(clique);
    }

    fn change(set: &mut PodCliqueSet) {
        set.spec.template.cliques[0].spec.pod_spec["nodeSelector"] = json!({"x": "y"});
    }

    /// Does the patch of the clique that the plan names, and rolls its pods.
    fn patch(ground: &mut Ground, set: &PodCliqueSet, name: &str) {
        let at = ground.cliques.iter().position(|c| c.metadata.name == name).unwrap();
        let mut clique = (*ground.cliques[at]).clone();
        let hash = hash::template(&set.spec.template.cliques[0]);
        clique.metadata.labels.insert(keys::TEMPLATE_HASH.into(), hash);
        ground.cliques[at] = Arc::new(clique);
    }

    #[test]
    fn nothing_to_roll_at_first() {
        let (set, _) = settled("p x2; a 2/1");
        assert_eq!(set.status["currentGenerationHash"], json!(hash::generation(&set)));
        assert!(set.status.get("updateProgress").is_none());
        assert_eq!(set.status["updatedReplicas"], 2);
    }

    #[test]
    fn one_replica_after_the_other() {
        let (mut set, mut ground) = settled("p x2; a 2/1");
        change(&mut set);
        let plan = ground.look(&set);
        assert_eq!(short(&plan.actions), "", "nothing before the status says so");
        set.status = plan.status;
        assert_eq!(set.status["updateProgress"]["currentlyUpdating"][0]["replicaIndex"], 0);
        assert_eq!(set.status["updatedReplicas"], 0);
        let plan = ground.look(&set);
        assert_eq!(short(&plan.actions), "~PodClique p-0-a");
        patch(&mut ground, &set, "p-0-a");
        well(&mut ground, 0, false);
        set.status = ground.look(&set).status;
        assert_eq!(
            set.status["updateProgress"]["currentlyUpdating"][0]["replicaIndex"], 0,
            "pods are old yet"
        );
        well(&mut ground, 0, true);
        set.status = ground.look(&set).status;
        assert_eq!(set.status["updateProgress"]["currentlyUpdating"][0]["replicaIndex"], 1);
        assert_eq!(set.status["updateProgress"]["updatedPodCliquesCount"], 1);
        assert_eq!(short(&ground.look(&set).actions), "~PodClique p-1-a");
        patch(&mut ground, &set, "p-1-a");
        set.status = ground.look(&set).status;
        let progress = &set.status["updateProgress"];
        assert!(
            progress["updateEndedAt"].is_string() && progress.get("currentlyUpdating").is_none(),
            "{progress}"
        );
        assert_eq!(set.status["updatedReplicas"], 2);
    }

    #[test]
    fn the_unplaced_come_first() {
        let (mut set, mut ground) = settled("p x3; a 2/1");
        let mut clique = (*ground.cliques[2]).clone();
        clique.status["scheduledReplicas"] = json!(0);
        ground.cliques[2] = Arc::new(clique);
        change(&mut set);
        let status = ground.look(&set).status;
        assert_eq!(status["updateProgress"]["currentlyUpdating"][0]["replicaIndex"], 2);
    }

    #[test]
    fn scaled_away_while_updating() {
        let (mut set, ground) = settled("p x2; a 2/1");
        change(&mut set);
        set.status = ground.look(&set).status;
        set.status["updateProgress"]["currentlyUpdating"][0]["replicaIndex"] = json!(5);
        let status = ground.look(&set).status;
        assert_eq!(status["updateProgress"]["currentlyUpdating"][0]["replicaIndex"], 0);
    }

    #[test]
    fn on_delete_changes_objects_and_waits_for_nobody() {
        let (mut set, ground) = settled("p x2; a 2/1");
        set.spec.update_strategy.kind = "OnDelete".into();
        change(&mut set);
        let plan = ground.look(&set);
        assert_eq!(short(&plan.actions), "~PodClique p-0-a, ~PodClique p-1-a");
        let progress = &plan.status["updateProgress"];
        assert_eq!(progress["updateStartedAt"], progress["updateEndedAt"]);
    }

    #[test]
    fn from_on_delete_back_to_rolling() {
        let (mut set, mut ground) = settled("p x2; a 2/1");
        set.spec.update_strategy.kind = "OnDelete".into();
        change(&mut set);
        set.status = ground.look(&set).status;
        for (at, name) in ["p-0-a", "p-1-a"].into_iter().enumerate() {
            patch(&mut ground, &set, name);
            well(&mut ground, at, false);
        }
        assert!(ground.look(&set).status["updateProgress"]["updateEndedAt"].is_string());
        set.spec.update_strategy.kind = "RollingRecreate".into();
        let status = ground.look(&set).status;
        assert_eq!(status["updateProgress"]["currentlyUpdating"][0]["replicaIndex"], 0);
    }

    #[test]
    fn another_programs_set_is_taken_as_it_is() {
        let (mut set, ground) = settled("p x1; a 2/1");
        set.status["currentGenerationHash"] = json!("7f9c");
        let status = ground.look(&set).status;
        assert_eq!(status["currentGenerationHash"], json!(hash::generation(&set)));
        assert!(status.get("updateProgress").is_none());
    }
}
