//! Tearing down replicas of a set that are below their minimum for too long.
//!
//! In: the set, the conditions of its cliques and groups. Out: which replicas go, and when to look again. Must stay true:
//! what never had its minimum is never torn down; a replica that lacks a clique is being made and is left alone; a group says
//! that it caused a termination before its cliques go, and causes none until it was well again; gangs and groups stay.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use muster_runtime::Key;
use muster_runtime::clock::{later, until};
use muster_runtime::object::Object;
use serde_json::{Value, json};

use super::plan::Seen;
use crate::action::Action;
use crate::conditions::{Wanted, merged};
use crate::duration;
use crate::keys::{self, condition};
use crate::names;
use crate::object::{PodClique, PodCliqueScalingGroup, PodCliqueSet, holds, holds_since, index};

/// What is used when a set says nothing, as a webhook would fill it in.
const DELAY: Duration = Duration::from_secs(4 * 3600);

/// A replica that is torn down.
pub struct Termination {
    pub replica: i64,
    pub actions: Vec<Action>,
}

pub fn delay(set: &PodCliqueSet) -> Duration {
    duration::parse(&set.spec.template.termination_delay).filter(|d| !d.is_zero()).unwrap_or(DELAY)
}

/// Since when something that had its minimum is below it.
pub fn breached_since(status: &Value) -> Option<Timestamp> {
    holds_since(status, condition::BREACHED).filter(|_| holds(status, condition::WAS_THERE))
}

pub fn plan(seen: &Seen<'_>) -> (Vec<Termination>, Option<Duration>) {
    let set = seen.set;
    let delay = delay(set);
    let mut wake: Option<Duration> = None;
    let mut out = Vec::new();
    let by_name: HashMap<&str, &Arc<PodClique>> =
        seen.cliques.iter().map(|clique| (clique.metadata.name.as_str(), clique)).collect();
    let mut groups: HashMap<i64, Vec<&Arc<PodCliqueScalingGroup>>> = HashMap::new();
    for group in seen.groups {
        if let Some(replica) = index(&group.metadata, keys::SET_REPLICA) {
            groups.entry(replica).or_default().push(group);
        }
    }
    for replica in 0..set.replicas() {
        let mut cliques: Vec<&Arc<PodClique>> = Vec::new();
        let mut complete = true;
        for shape in set.standalone(replica) {
            match by_name.get(shape.name().as_str()) {
                Some(clique) if !clique.metadata.deleting() => cliques.push(clique),
                _ => complete = false,
            }
        }
        if !complete {
            continue;
        }
        let groups = groups.get(&replica).map_or(&[][..], Vec::as_slice);
        let of_cliques = cliques.iter().filter_map(|clique| breached_since(&clique.status));
        let of_groups = groups
            .iter()
            .filter(|group| !holds(&group.status, condition::TERMINATING))
            .filter_map(|group| breached_since(&group.status));
        let Some(since) = of_cliques.chain(of_groups).min() else { continue };
        let left = until(seen.now, later(since, delay));
        if !left.is_zero() {
            wake = Some(wake.map_or(left, |wake| wake.min(left)));
            continue;
        }
        let mut actions: Vec<Action> = groups.iter().filter_map(|group| mark(group, seen.now)).collect();
        let members = groups.iter().flat_map(|group| (seen.group_cliques)(&group.metadata.uid));
        let all = cliques.iter().map(|clique| (*clique).clone()).chain(members);
        actions.extend(
            all.filter(|clique| !clique.metadata.deleting())
                .map(|clique| Action::delete(PodClique::RESOURCE, &clique.metadata)),
        );
        out.push(Termination { replica, actions });
    }
    (out, wake)
}

fn mark(group: &PodCliqueScalingGroup, now: Timestamp) -> Option<Action> {
    if !holds(&group.status, condition::BREACHED) || holds(&group.status, condition::TERMINATING) {
        return None;
    }
    let wanted = Wanted::new(
        condition::TERMINATING,
        true,
        "GangTerminationActive",
        "the replica is torn down because too little of it was there for too long",
    );
    let meta = &group.metadata;
    Some(Action::PatchStatus {
        resource: PodCliqueScalingGroup::RESOURCE,
        key: Key::new(meta.namespace.clone(), meta.name.clone()),
        version: meta.resource_version.clone(),
        body: json!({"status": {"conditions": merged(&group.status, &[wanted], now)}}),
    })
}

/// The replica of a set as people know it.
pub fn replica_name(set: &PodCliqueSet, replica: i64) -> String {
    names::replica(&set.metadata.name, replica)
}

#[cfg(test)]
mod tests {
    use super::super::plan::tests::{Ground, short};
    use super::*;
    use crate::shape::tests::{WL2, set};

    fn conditions(breached: &str, was_there: bool, extra: &[&str]) -> Value {
        let mut all = vec![json!({"type": "MinAvailableBreached", "status": breached,
                                  "lastTransitionTime": "2026-01-01T00:00:00Z"})];
        if was_there {
            all.push(json!({"type": "WasAvailable", "status": "True"}));
        }
        all.extend(extra.iter().map(|kind| json!({"type": kind, "status": "True"})));
        json!({"conditions": all})
    }

    /// `clique` and `group` as `True`, `False`; `!` means that it never was there, `T` that it terminates.
    #[track_caller]
    fn check(clique: &str, group: &str, seconds: i64, expected: &str) {
        let mut set = set(WL2);
        set.spec.template.termination_delay = "10s".into();
        let mut ground = Ground::default();
        let plan = ground.look(&set);
        ground.take(&plan.actions);
        let read = |text: &str| {
            let extra = if text.ends_with('T') { &["GangTerminationInProgress"][..] } else { &[] };
            conditions(text.trim_end_matches(['!', 'T']), !text.ends_with('!'), extra)
        };
        let mut object = (*ground.cliques[0]).clone();
        object.status = read(clique);
        ground.cliques[0] = Arc::new(object);
        let mut object = (*ground.groups[0]).clone();
        object.status = read(group);
        let member: PodClique = serde_json::from_value(json!({"metadata": {"name": "member"}})).unwrap();
        ground.group_cliques.insert(object.metadata.uid.clone(), vec![Arc::new(member)]);
        ground.groups[0] = Arc::new(object);
        let base: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        ground.now = Some(base + jiff::SignedDuration::from_secs(seconds));
        let plan = ground.look(&set);
        let mut shown = short(&plan.actions);
        if let Some(wake) = plan.wake {
            shown.push_str(&format!("in {}", wake.as_secs()));
        }
        assert_eq!(shown, expected, "{clique} {group}");
    }

    #[test]
    fn after_the_delay_and_not_before() {
        check("False", "False", 60, "");
        check("True", "False", 4, "in 6");
        check("True", "False", 10, "-PodClique wl-0-pc-a, -PodClique member");
        check(
            "False",
            "True",
            10,
            "~PodCliqueScalingGroup/status wl-0-sg-x, -PodClique wl-0-pc-a, -PodClique member",
        );
        check("True!", "False", 60, "");
        check("False", "True!", 60, "");
        check("False", "TrueT", 60, "");
        check("True", "TrueT", 60, "-PodClique wl-0-pc-a, -PodClique member");
        check("Unknown", "False", 60, "");
    }

    #[test]
    fn a_replica_in_the_making_is_left_alone() {
        let mut set = set("p x1; a 1/1; b 1/1");
        set.spec.template.termination_delay = "10s".into();
        let mut ground = Ground::default();
        let plan = ground.look(&set);
        ground.take(&plan.actions);
        let mut object = (*ground.cliques[0]).clone();
        object.status = conditions("True", true, &[]);
        ground.cliques = vec![Arc::new(object)];
        ground.now = Some("2026-02-01T00:00:00Z".parse().unwrap());
        assert_eq!(short(&ground.look(&set).actions), "+PodClique p-0-b");
    }

    #[test]
    fn delays() {
        let mut set = set("p x1; a 1/1");
        assert_eq!(delay(&set), DELAY);
        set.spec.template.termination_delay = "1m".into();
        assert_eq!(delay(&set), Duration::from_secs(60));
        set.spec.template.termination_delay = "soon".into();
        assert_eq!(delay(&set), DELAY);
    }
}
