//! Which cliques of a scaling group come and go, and what is true of the group.
//!
//! In: the set, the group, its cliques. Out: actions and the status. Must stay true: replicas are told apart by index, never
//! by count; a replica that is torn down or rolled keeps its gang; a ready replica is rolled only after the status says which
//! one; a replica is torn down alone only while enough others are well.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use muster_runtime::clock::{later, stamp, until};
use muster_runtime::object::Object;
use serde_json::{Map, Value, json};

use crate::action::Action;
use crate::bodies;
use crate::claims;
use crate::conditions::{Wanted, merged};
use crate::keys::{self, condition};
use crate::mirror::Kept;
use crate::object::{
    GroupConfig, PodClique, PodCliqueScalingGroup, PodCliqueSet, condition_status, holds, index, list, text,
};
use crate::set::plan::{claim_actions, clique_change};
use crate::set::status::clique_is_available;
use crate::set::terminate::{breached_since, delay};
use crate::set::update::{clique_is_done, clique_is_updated, is_turn};
use crate::settings::Options;

pub struct Seen<'a> {
    pub set: &'a PodCliqueSet,
    pub config: &'a GroupConfig,
    /// The replica of the set that the group is of.
    pub replica: i64,
    pub group: &'a PodCliqueScalingGroup,
    pub cliques: &'a [Arc<PodClique>],
    /// The claims that the group owns.
    pub claims: &'a [Arc<Kept>],
    pub options: &'a Options,
    pub now: Timestamp,
}

#[derive(Debug, Default)]
pub struct Plan {
    pub actions: Vec<Action>,
    pub status: Value,
    pub wake: Option<Duration>,
    /// Replicas of the group that are torn down now.
    pub terminated: Vec<i64>,
}

/// How one replica of the group stands.
#[derive(Debug, Clone, Default)]
struct Replica {
    index: i64,
    cliques: Vec<Arc<PodClique>>,
    /// All its cliques are there and stay.
    complete: bool,
    scheduled: bool,
    available: bool,
    breached: bool,
    breached_since: Option<Timestamp>,
    /// Something of it is of an old template.
    stale: bool,
    /// All of it is of the new template and has its minimum ready.
    done: bool,
    completed: bool,
}

const BURST: usize = 2000;

pub fn plan(seen: &Seen<'_>) -> Plan {
    let mut plan = Plan::default();
    if seen.group.metadata.deleting() || seen.set.metadata.deleting() {
        return plan;
    }
    let replicas = replicas(seen);
    let progress = update(seen, &replicas, &mut plan);
    terminate(seen, &replicas, &mut plan);
    cliques(seen, &mut plan);
    let name = &seen.group.metadata.name;
    let wanted = claims::of_group(seen.set, seen.config, name, seen.group.spec.replicas());
    plan.actions.extend(claim_actions(seen.set, &wanted, seen.claims));
    plan.status = status(seen, &replicas, progress);
    if plan.actions.len() > BURST {
        plan.actions.truncate(BURST);
        plan.wake = Some(Duration::ZERO);
    }
    plan
}

fn replicas(seen: &Seen<'_>) -> Vec<Replica> {
    let hashes = seen.set.hashes();
    let by_name: BTreeMap<&str, &Arc<PodClique>> =
        seen.cliques.iter().map(|clique| (clique.metadata.name.as_str(), clique)).collect();
    (0..seen.group.spec.replicas())
        .map(|index| {
            let mut out = Replica {
                index,
                complete: true,
                scheduled: true,
                available: true,
                done: true,
                completed: true,
                ..Replica::default()
            };
            let mut n_cliques = 0;
            for shape in seen.set.grouped(seen.replica, seen.config, index) {
                n_cliques += 1;
                let found = by_name.get(shape.name().as_str()).filter(|clique| !clique.metadata.deleting());
                let Some(clique) = found else {
                    out.complete = false;
                    continue;
                };
                let wanted = hashes.get(shape.template.name.as_str()).map_or("", String::as_str);
                let have = crate::object::label(&clique.metadata, keys::TEMPLATE_HASH);
                let is_theirs = !have.is_empty() && !crate::hash::is_ours(have);
                out.scheduled &= holds(&clique.status, condition::CLIQUE_SCHEDULED);
                out.available &= clique_is_available(clique);
                out.breached |= holds(&clique.status, condition::BREACHED);
                out.stale |= !is_theirs && !clique_is_updated(clique, wanted);
                out.done &= clique_is_done(clique, wanted);
                out.completed &= holds(&clique.status, condition::COMPLETED);
                let since = breached_since(&clique.status);
                out.breached_since = [out.breached_since, since].into_iter().flatten().min();
                out.cliques.push((*clique).clone());
            }
            let all = out.complete && n_cliques > 0;
            out.scheduled &= all;
            out.available &= all && out.scheduled;
            out.done &= all;
            out.completed &= all;
            out
        })
        .collect()
}

/// Makes cliques that lack, and deletes those of replicas that are gone.
fn cliques(seen: &Seen<'_>, plan: &mut Plan) {
    let going: BTreeSet<String> = plan
        .actions
        .iter()
        .filter_map(|action| match action {
            Action::Delete { key, .. } => Some(key.name.clone()),
            _ => None,
        })
        .collect();
    let by_name: BTreeMap<&str, &Arc<PodClique>> =
        seen.cliques.iter().map(|clique| (clique.metadata.name.as_str(), clique)).collect();
    let mut expected: BTreeSet<String> = BTreeSet::new();
    for replica in 0..seen.group.spec.replicas() {
        for shape in seen.set.grouped(seen.replica, seen.config, replica) {
            let name = shape.name();
            match by_name.get(name.as_str()) {
                None => plan.actions.push(Action::Create {
                    resource: PodClique::RESOURCE,
                    body: bodies::clique(&shape, seen.options),
                }),
                Some(clique) if clique.metadata.deleting() || going.contains(&name) => {}
                // Replicas of groups are rolled by being made anew; where nothing rolls, objects change in place.
                Some(clique) => {
                    plan.actions.extend(clique_change(clique, &shape, !seen.set.rolls(), seen.options));
                }
            }
            expected.insert(name);
        }
    }
    let excess = seen
        .cliques
        .iter()
        .filter(|clique| !expected.contains(&clique.metadata.name) && !clique.metadata.deleting());
    plan.actions.extend(excess.map(|clique| Action::delete(PodClique::RESOURCE, &clique.metadata)));
}

fn delete(replica: &Replica) -> impl Iterator<Item = Action> {
    replica.cliques.iter().map(|clique| Action::delete(PodClique::RESOURCE, &clique.metadata))
}

/// A replica that is below its minimum for too long goes alone while enough others are well; else it is the set that
/// acts, by the group's own condition.
fn terminate(seen: &Seen<'_>, replicas: &[Replica], plan: &mut Plan) {
    let n_well = replicas.iter().filter(|r| r.complete && !r.breached).count() as i64;
    if n_well < seen.group.spec.min_available() || !plan.actions.is_empty() {
        return;
    }
    let delay = delay(seen.set);
    for replica in replicas {
        let Some(since) = replica.breached_since else { continue };
        let left = until(seen.now, later(since, delay));
        if left.is_zero() {
            plan.actions.extend(delete(replica));
            plan.terminated.push(replica.index);
        } else {
            plan.wake = Some(plan.wake.map_or(left, |wake| wake.min(left)));
        }
    }
}

/// The progress of a roll-out, and what it deletes.
fn update(seen: &Seen<'_>, replicas: &[Replica], plan: &mut Plan) -> Option<Value> {
    let generation = text(&seen.set.status, &["currentGenerationHash"]);
    let old = seen.group.status.get("updateProgress").filter(|progress| progress.is_object()).cloned();
    let is_of = |progress: &Value| text(progress, &["podCliqueSetGenerationHash"]) == generation;
    let is_open = |progress: &Value| text(progress, &["updateEndedAt"]).is_empty();
    let known = text(&seen.group.status, &["currentPodCliqueSetGenerationHash"]);
    let stale: Vec<&Replica> = replicas.iter().filter(|replica| replica.stale).collect();
    let fresh = || json!({"updateStartedAt": stamp(seen.now), "podCliqueSetGenerationHash": generation});
    let mut progress = if !seen.set.rolls() {
        match old {
            Some(old) if is_of(&old) => Some(old),
            _ if !known.is_empty() && known != generation && !stale.is_empty() => {
                let mut progress = fresh();
                progress["updateEndedAt"] = json!(stamp(seen.now));
                Some(progress)
            }
            other => other,
        }
    } else if stale.is_empty() || !is_turn(seen.set, seen.replica) {
        old
    } else {
        old.filter(|progress| is_of(progress) && is_open(progress)).or_else(|| Some(fresh()))
    }?;
    let n_cliques = replicas.iter().map(|replica| replica.cliques.len()).sum::<usize>();
    let n_updated: usize = replicas.iter().filter(|replica| !replica.stale).map(|r| r.cliques.len()).sum();
    progress["totalPodCliquesCount"] = json!(n_cliques);
    progress["updatedPodCliquesCount"] = json!(n_updated);
    if !is_open(&progress) || !seen.set.rolls() || !is_of(&progress) {
        return Some(progress);
    }
    if !stale.is_empty() && !is_turn(seen.set, seen.replica) {
        return Some(progress);
    }
    let selected = progress.get("readyReplicaIndicesSelectedToUpdate").cloned().unwrap_or(Value::Null);
    let current = selected.get("current").and_then(Value::as_i64);
    if stale.is_empty() {
        let is_done = current.is_none_or(|current| {
            replicas.iter().find(|replica| replica.index == current).is_none_or(|replica| replica.done)
        });
        if is_done {
            progress["updateEndedAt"] = json!(stamp(seen.now));
        }
        return Some(progress);
    }
    // Those that do not serve go at once.
    for replica in stale.iter().filter(|replica| !replica.available) {
        plan.actions.extend(delete(replica));
    }
    let at_hand = current.and_then(|current| replicas.iter().find(|replica| replica.index == current));
    match at_hand {
        Some(replica) if replica.stale => {
            if replica.available {
                plan.actions.extend(delete(replica));
            }
            return Some(progress);
        }
        Some(replica) if !replica.done => return Some(progress),
        _ => {}
    }
    let n_available = replicas.iter().filter(|replica| replica.available).count() as i64;
    let next = stale.iter().find(|replica| replica.available);
    if let Some(next) = next
        && n_available >= seen.group.spec.min_available()
    {
        let mut completed: Vec<Value> = list(&selected, &["completed"]).to_vec();
        completed.extend(current.map(|current| json!(current)));
        let mut selected = json!({"current": next.index});
        if !completed.is_empty() {
            selected["completed"] = json!(completed);
        }
        progress["readyReplicaIndicesSelectedToUpdate"] = selected;
    }
    Some(progress)
}

fn status(seen: &Seen<'_>, replicas: &[Replica], progress: Option<Value>) -> Value {
    let group = seen.group;
    let min = group.spec.min_available();
    let n_well = replicas.iter().filter(|replica| replica.complete && !replica.breached).count() as i64;
    let is_updating = seen.set.rolls()
        && progress.as_ref().is_some_and(|progress| text(progress, &["updateEndedAt"]).is_empty());
    let mut wanted = vec![if is_updating {
        Wanted::unknown(condition::BREACHED, "UpdateInProgress", "replicas are being replaced")
    } else {
        let message = format!("{n_well} replicas are well, {min} are needed");
        if n_well < min {
            let reason = "InsufficientAvailablePodCliqueScalingGroupReplicas";
            Wanted::new(condition::BREACHED, true, reason, message)
        } else {
            let reason = "SufficientAvailablePodCliqueScalingGroupReplicas";
            Wanted::new(condition::BREACHED, false, reason, message)
        }
    }];
    let n_scheduled = replicas.iter().filter(|replica| replica.scheduled).count() as i64;
    if n_scheduled >= min || holds(&group.status, condition::WAS_THERE) {
        wanted.push(Wanted::new(condition::WAS_THERE, true, "MinimumWasScheduled", ""));
    }
    // A termination is over when the group is well again.
    if holds(&group.status, condition::TERMINATING) && n_well >= min && n_scheduled >= min {
        wanted.push(Wanted::new(condition::TERMINATING, false, "GangTerminationOver", ""));
    }
    let completed = !replicas.is_empty() && replicas.iter().all(|replica| replica.completed);
    if completed || !condition_status(&group.status, condition::COMPLETED).is_empty() {
        let reason = if completed { "AllCliquesCompleted" } else { "Running" };
        wanted.push(Wanted::new(condition::COMPLETED, completed, reason, ""));
    }
    let mut status: Map<String, Value> = group.status.as_object().cloned().unwrap_or_default();
    status.remove("lastErrors");
    let count = |test: &dyn Fn(&Replica) -> bool| replicas.iter().filter(|r| test(r)).count();
    let mut put = |field: &str, value: Value| status.insert(field.to_owned(), value);
    put("observedGeneration", json!(group.metadata.generation));
    put("replicas", json!(group.spec.replicas()));
    put("scheduledReplicas", json!(n_scheduled));
    put("availableReplicas", json!(count(&|replica| replica.available)));
    put("updatedReplicas", json!(count(&|replica| replica.complete && !replica.stale)));
    put("selector", json!(format!("{}={}", keys::GROUP, group.metadata.name)));
    put("conditions", merged(&group.status, &wanted, seen.now));
    let generation = text(&seen.set.status, &["currentGenerationHash"]);
    let known = text(&group.status, &["currentPodCliqueSetGenerationHash"]);
    let is_current = replicas.iter().all(|replica| !replica.stale);
    if !generation.is_empty() && (known.is_empty() || is_current) {
        put("currentPodCliqueSetGenerationHash", json!(generation));
    }
    match progress {
        Some(progress) => put("updateProgress", progress),
        None => status.remove("updateProgress"),
    };
    Value::Object(status)
}

/// The replica of the set that a group is of, and its config.
pub fn place<'a>(set: &'a PodCliqueSet, group: &PodCliqueScalingGroup) -> Option<(i64, &'a GroupConfig)> {
    let replica = index(&group.metadata, keys::SET_REPLICA)?;
    let mut configs = set.spec.template.pod_clique_scaling_groups.iter();
    let config = configs.find(|config| {
        crate::names::group(&set.metadata.name, replica, &config.name) == group.metadata.name
    })?;
    Some((replica, config))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::tests::set;

    struct Case {
        set: PodCliqueSet,
        group: PodCliqueScalingGroup,
        seconds: i64,
    }

    /// A group of two cliques, with so many replicas.
    fn case(replicas: i64, min: i64) -> Case {
        let mut set = set(&format!("p x1; b 1/1; c 3/1; sg x{replicas}/{min}: b c"));
        set.spec.template.termination_delay = "10s".into();
        set.status = json!({"currentGenerationHash": "m-now"});
        let mut group: PodCliqueScalingGroup =
            serde_json::from_value(bodies::group(&set, 0, &set.spec.template.pod_clique_scaling_groups[0]))
                .unwrap();
        group.status = json!({"currentPodCliqueSetGenerationHash": "m-now"});
        Case { set, group, seconds: 0 }
    }

    impl Case {
        /// Replicas as two letters each, one for each clique: `r` well, `b` breached, `n` breached and never there, `s`
        /// scheduled but not ready, `-` missing, `x` leaving; a `*` behind means of an old template.
        fn look(&self, text: &str) -> Plan {
            let mut cliques = Vec::new();
            for (replica, word) in text.split_whitespace().enumerate() {
                let stale = word.ends_with('*');
                let config = &self.set.spec.template.pod_clique_scaling_groups[0];
                for (shape, state) in self.set.grouped(0, config, replica as i64).zip(word.chars()) {
                    if state == '-' {
                        continue;
                    }
                    let mut body = bodies::clique(&shape, &Options::default());
                    if stale {
                        body["metadata"]["labels"][keys::TEMPLATE_HASH] = json!("mbbbbbbbbbbbbbb");
                    }
                    let is = |on: bool| if on { "True" } else { "False" };
                    let mut conditions = vec![
                        json!({"type": "PodCliqueScheduled", "status": is("rs".contains(state))}),
                        json!({"type": "Available", "status": is(state == 'r')}),
                        json!({"type": "MinAvailableBreached", "status": is("bn".contains(state)),
                               "lastTransitionTime": "2026-01-01T00:00:00Z"}),
                    ];
                    if state != 'n' {
                        conditions.push(json!({"type": "WasAvailable", "status": "True"}));
                    }
                    body["status"] = json!({"conditions": conditions, "replicas": 1, "updatedReplicas": 1});
                    let mut clique: PodClique = serde_json::from_value(body).unwrap();
                    if state == 'x' {
                        clique.metadata.deletion_timestamp = Some(Timestamp::UNIX_EPOCH);
                    }
                    cliques.push(Arc::new(clique));
                }
            }
            let base: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
            plan(&Seen {
                set: &self.set,
                config: &self.set.spec.template.pod_clique_scaling_groups[0],
                replica: 0,
                group: &self.group,
                cliques: &cliques,
                claims: &[],
                options: &Options::default(),
                now: base + jiff::SignedDuration::from_secs(self.seconds),
            })
        }

        #[track_caller]
        fn check(&self, text: &str, expected: &str) -> Value {
            let plan = self.look(text);
            let shown: Vec<String> =
                plan.actions.iter().map(|a| a.short().replace("PodClique p-0-sg-", "")).collect();
            assert_eq!(shown.join(" "), expected, "{text}");
            plan.status
        }
    }

    #[test]
    fn makes_and_deletes_by_index() {
        let mut c = case(2, 1);
        c.check("", "+0-b +0-c +1-b +1-c");
        c.check("rr r-", "+1-c");
        c.check("rr rr", "");
        c.check("xx rr", "");
        c.group.spec.replicas = Some(1);
        c.check("-- rr rr", "+0-b +0-c -1-b -1-c -2-b -2-c");
    }

    fn breach(status: &Value) -> &str {
        condition_status(status, condition::BREACHED)
    }

    /// Replicas of which so many are breached.
    #[test]
    fn breaches() {
        for (min, text, expected) in [
            (2, "rr rr rr rr rb", "False"),
            (1, "rr rb", "False"),
            (1, "rb rb", "True"),
            (2, "rr rb br", "True"),
            (1, "r- bb", "True"),
            (1, "r- rr", "False"),
        ] {
            let c = case(text.split_whitespace().count() as i64, min);
            assert_eq!(breach(&c.look(text).status), expected, "{text} of min {min}");
        }
        assert_eq!(breach(&case(2, 1).look("").status), "True");
    }

    #[test]
    fn counts() {
        let status = case(4, 1).look("rr rs r- bb").status;
        assert_eq!(status["replicas"], 4);
        assert_eq!(status["scheduledReplicas"], 2);
        assert_eq!(status["availableReplicas"], 1);
        assert_eq!(status["updatedReplicas"], 3);
        assert_eq!(status["selector"], "grove.io/podcliquescalinggroup=p-0-sg");
    }

    #[test]
    fn a_replica_goes_alone_while_others_are_well() {
        let mut c = case(2, 1);
        c.seconds = 4;
        c.check("rb rr", "");
        assert_eq!(c.look("rb rr").wake, Some(Duration::from_secs(6)));
        c.seconds = 10;
        c.check("rb rr", "-0-b -0-c");
        assert_eq!(c.look("rb rr").terminated, [0]);
        c.check("rn rr", "");
        c.check("rb rb", "");
        let mut c = case(2, 2);
        c.seconds = 60;
        c.check("rb rr", "");
    }

    #[test]
    fn a_termination_is_over_when_the_group_is_well() {
        let mut c = case(1, 1);
        c.group.status["conditions"] = json!([{"type": "GangTerminationInProgress", "status": "True"}]);
        assert!(holds(&c.look("bb").status, condition::TERMINATING));
        assert!(!holds(&c.look("rr").status, condition::TERMINATING));
    }

    #[test]
    fn rolls_one_ready_replica_after_the_other() {
        let mut c = case(3, 1);
        c.check("rr* rr* rs*", "");
        c.set.status["updateProgress"] = json!({"currentlyUpdating": [{"replicaIndex": 0}]});
        c.group.status = c.check("rr* rr* rs*", "-2-b -2-c");
        assert_eq!(breach(&c.group.status), "Unknown");
        let selected =
            |c: &Case| c.group.status["updateProgress"]["readyReplicaIndicesSelectedToUpdate"].clone();
        assert_eq!(selected(&c), json!({"current": 0}));
        c.group.status = c.check("rr* rr* rs", "-0-b -0-c");
        c.group.status = c.check("rs rr* rr", "");
        assert_eq!(selected(&c), json!({"current": 0}), "not before it is ready");
        c.group.status = c.check("rr rr* rr", "");
        assert_eq!(selected(&c), json!({"current": 1, "completed": [0]}));
        c.group.status = c.check("rr rr* rr", "-1-b -1-c");
        c.group.status = c.check("rr rr rr", "");
        assert!(c.group.status["updateProgress"]["updateEndedAt"].is_string());
        assert_eq!(breach(&c.look("rr rr rr").status), "False");
    }

    #[test]
    fn on_delete_changes_objects_in_place() {
        let mut c = case(1, 1);
        c.set.spec.update_strategy.kind = "OnDelete".into();
        c.group.status["currentPodCliqueSetGenerationHash"] = json!("m-before");
        let status = c.check("rr*", "~0-b ~0-c");
        let progress = &status["updateProgress"];
        assert_eq!(progress["updateStartedAt"], progress["updateEndedAt"]);
    }
}
