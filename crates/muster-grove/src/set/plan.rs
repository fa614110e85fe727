//! Which objects a set should have.
//!
//! In: the set and everything that belongs to it. Out: actions and the status. Must stay true: what is too much is found by
//! comparing names and indexes, never by counting; replicas of cliques and groups that are there are not touched; in a
//! roll-out, the cliques of replicas whose turn has not come stay as they are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use muster_runtime::object::{Meta, Object, Resource};
use muster_runtime::{Key, json};
use serde_json::{Value, json};

use super::{status, terminate, update};
use crate::action::Action;
use crate::bodies;
use crate::claims::{self, Source};
use crate::clique::plan::is_selected;
use crate::gang::plan::want;
use crate::hash;
use crate::keys;
use crate::levels::Topology;
use crate::mirror::Kept;
use crate::names;
use crate::object::{PodClique, PodCliqueScalingGroup, PodCliqueSet, PodGang, index, label, made, text};
use crate::settings::Options;
use crate::shape::Clique;

/// What belongs to a set.
pub struct Seen<'a> {
    pub set: &'a PodCliqueSet,
    /// Those that the set itself controls.
    pub cliques: &'a [Arc<PodClique>],
    pub groups: &'a [Arc<PodCliqueScalingGroup>],
    /// The cliques of a group, by its uid.
    pub group_cliques: &'a dyn Fn(&str) -> Vec<Arc<PodClique>>,
    pub gangs: &'a [Arc<PodGang>],
    /// What else it controls, of one kind.
    pub made: &'a dyn Fn(Resource) -> Vec<Arc<Kept>>,
    pub topology: &'a Topology<'a>,
    pub options: &'a Options,
    pub now: Timestamp,
}

#[derive(Debug, Default)]
pub struct Plan {
    pub actions: Vec<Action>,
    pub status: Value,
    pub wake: Option<Duration>,
    /// Replicas that are torn down now: worth an event.
    pub terminated: Vec<i64>,
}

/// So many objects are made before the set is looked at again.
const BURST: usize = 2000;

pub fn plan(seen: &Seen<'_>) -> Plan {
    let mut plan = Plan::default();
    if seen.set.metadata.deleting() {
        return plan;
    }
    let progress = update::progress(seen);
    plan.status = status::status(seen, &progress);
    let (terminations, wake) = terminate::plan(seen);
    plan.wake = wake;
    plan.terminated = terminations.iter().map(|one| one.replica).collect();
    let torn_down: BTreeSet<i64> = plan.terminated.iter().copied().collect();
    plan.actions.extend(terminations.into_iter().flat_map(|one| one.actions));
    cliques(seen, &torn_down, &mut plan.actions);
    groups(seen, &mut plan.actions);
    gangs(seen, &mut plan.actions);
    others(seen, &mut plan.actions);
    if plan.actions.len() > BURST {
        plan.actions.truncate(BURST);
        plan.wake = Some(Duration::ZERO);
    }
    plan
}

fn by_name<T: Object>(objects: &[Arc<T>]) -> BTreeMap<&str, &Arc<T>> {
    objects.iter().map(|object| (object.meta().name.as_str(), object)).collect()
}

fn cliques(seen: &Seen<'_>, torn_down: &BTreeSet<i64>, actions: &mut Vec<Action>) {
    let set = seen.set;
    let there = by_name(seen.cliques);
    let mut expected: BTreeSet<String> = BTreeSet::new();
    for replica in 0..set.replicas() {
        for shape in set.standalone(replica) {
            let name = shape.name();
            match there.get(name.as_str()) {
                None => actions.push(Action::Create {
                    resource: PodClique::RESOURCE,
                    body: bodies::clique(&shape, seen.options),
                }),
                Some(object) if object.metadata.deleting() || torn_down.contains(&replica) => {}
                Some(object) => {
                    let may_change = !set.rolls() || is_selected(&set.status, replica);
                    actions.extend(clique_change(object, &shape, may_change, seen.options));
                }
            }
            expected.insert(name);
        }
    }
    let excess =
        seen.cliques.iter().filter(|c| !expected.contains(&c.metadata.name) && !c.metadata.deleting());
    actions.extend(excess.map(|c| Action::delete(PodClique::RESOURCE, &c.metadata)));
}

/// What must be written to a clique that is there.
pub fn clique_change(
    object: &PodClique,
    shape: &Clique<'_>,
    may_change: bool,
    options: &Options,
) -> Option<Action> {
    let have = label(&object.metadata, keys::TEMPLATE_HASH);
    let wanted = hash::template(shape.template);
    let body = if have == wanted {
        // The gang of a clique is a matter of minima, which do not change; its label may be missing all the same.
        let missing: serde_json::Map<String, Value> = shape
            .labels()
            .into_iter()
            .filter(|(key, value)| {
                key.starts_with(keys::PREFIX) && object.metadata.labels.get(key) != Some(value)
            })
            .map(|(key, value)| (key, json!(value)))
            .collect();
        if missing.is_empty() {
            return None;
        }
        json!({"metadata": {"labels": missing}})
    } else if !hash::is_ours(have) && !have.is_empty() {
        // Made by another program from the same template: nothing has to be made anew.
        json!({"metadata": {
            "labels": {keys::TEMPLATE_HASH: wanted},
            "annotations": {keys::ADOPTED_HASH: format!("{have}={wanted}")},
        }})
    } else if may_change {
        bodies::clique_update(object, shape, options)
    } else {
        return None;
    };
    let meta = &object.metadata;
    let key = Key::new(meta.namespace.clone(), meta.name.clone());
    Some(Action::Patch { resource: PodClique::RESOURCE, key, body })
}

fn groups(seen: &Seen<'_>, actions: &mut Vec<Action>) {
    let set = seen.set;
    let there = by_name(seen.groups);
    let mut expected: BTreeSet<String> = BTreeSet::new();
    for replica in 0..set.replicas() {
        for config in &set.spec.template.pod_clique_scaling_groups {
            let name = names::group(&set.metadata.name, replica, &config.name);
            if !there.contains_key(name.as_str()) {
                let body = bodies::group(set, replica, config);
                actions.push(Action::Create { resource: PodCliqueScalingGroup::RESOURCE, body });
            }
            expected.insert(name);
        }
    }
    let excess =
        seen.groups.iter().filter(|g| !expected.contains(&g.metadata.name) && !g.metadata.deleting());
    actions.extend(excess.map(|g| Action::delete(PodCliqueScalingGroup::RESOURCE, &g.metadata)));
}

/// How many replicas a group of this set has now, by its full name.
pub fn live(groups: &[Arc<PodCliqueScalingGroup>]) -> impl Fn(&str) -> Option<i64> {
    let known: BTreeMap<String, i64> = groups
        .iter()
        .filter(|group| !group.metadata.deleting())
        .map(|group| (group.metadata.name.clone(), group.spec.replicas()))
        .collect();
    move |name| known.get(name).copied()
}

fn gangs(seen: &Seen<'_>, actions: &mut Vec<Action>) {
    let set = seen.set;
    let there = by_name(seen.gangs);
    let live = live(seen.groups);
    let mut expected: BTreeSet<String> = BTreeSet::new();
    let mut made = Vec::new();
    for replica in 0..set.replicas() {
        for gang in set.gangs(replica, &live) {
            if !there.contains_key(gang.name.as_str()) {
                // Pods are put in as they come.
                let want = want(set, &gang, seen.topology, seen.options, &|_| Vec::new());
                let mut metadata = json!({
                    "name": gang.name,
                    "namespace": set.metadata.namespace,
                    "labels": want.labels,
                });
                if !want.annotations.is_empty() {
                    metadata["annotations"] = json!(want.annotations);
                }
                let body = json!({"metadata": metadata, "spec": want.spec});
                made.push(Action::Create { resource: PodGang::RESOURCE, body });
            }
            expected.insert(gang.name);
        }
    }
    // Those that are too many go first, so that a scheduler does not see both.
    let excess = seen.gangs.iter().filter(|g| !expected.contains(&g.metadata.name) && !g.metadata.deleting());
    actions.extend(excess.map(|g| Action::delete(PodGang::RESOURCE, &g.metadata)));
    actions.extend(made);
}

/// Services, accounts, roles, autoscalers, claims, compute domains.
fn others(seen: &Seen<'_>, actions: &mut Vec<Action>) {
    let set = seen.set;
    let replicas = 0..set.replicas();
    kind(seen, made::SERVICE_ACCOUNT, vec![bodies::service_account(set)], &[], actions);
    kind(seen, made::ROLE, vec![bodies::role(set)], &["rules"], actions);
    kind(seen, made::ROLE_BINDING, vec![bodies::role_binding(set)], &["subjects"], actions);
    let services = replicas.clone().map(|replica| bodies::service(set, replica)).collect();
    kind(seen, made::SERVICE, services, &[], actions);
    let autoscalers = replicas.clone().flat_map(|replica| bodies::autoscalers(set, replica)).collect();
    kind(seen, made::HPA, autoscalers, &["spec"], actions);
    if seen.options.mnnvl {
        let domains = replicas.flat_map(|replica| bodies::compute_domains(set, replica)).collect();
        kind(seen, made::COMPUTE_DOMAIN, domains, &[], actions);
    }
    actions.extend(claim_actions(set, &claims::of_set(set), &(seen.made)(made::CLAIM)));
}

/// Makes what lacks, deletes what is too much, and puts right the fields that can be changed.
fn kind(seen: &Seen<'_>, resource: Resource, wanted: Vec<Value>, fields: &[&str], actions: &mut Vec<Action>) {
    let there = (seen.made)(resource);
    let known: BTreeMap<&str, &Arc<Kept>> =
        there.iter().map(|kept| (kept.metadata.name.as_str(), kept)).collect();
    let mut expected: BTreeSet<String> = BTreeSet::new();
    for body in wanted {
        let name = text(&body, &["metadata", "name"]).to_owned();
        match known.get(name.as_str()) {
            None => actions.push(Action::Create { resource, body }),
            Some(kept) if kept.metadata.deleting() => {}
            Some(kept) => {
                let mut patch = json!({});
                for field in fields {
                    let have = if *field == "spec" {
                        &kept.spec
                    } else {
                        kept.raw.get(field).unwrap_or(&Value::Null)
                    };
                    let want = body.get(field).unwrap_or(&Value::Null);
                    if !contains(have, want) {
                        patch[*field] = want.clone();
                    }
                }
                if patch.as_object().is_some_and(|patch| !patch.is_empty()) {
                    actions.push(Action::Patch { resource, key: key(&kept.metadata), body: patch });
                }
            }
        }
        expected.insert(name);
    }
    let excess = there.iter().filter(|k| !expected.contains(&k.metadata.name) && !k.metadata.deleting());
    actions.extend(excess.map(|kept| Action::delete(resource, &kept.metadata)));
}

fn key(meta: &Meta) -> Key {
    Key::new(meta.namespace.clone(), meta.name.clone())
}

/// Whether all that is wanted is there; what a server fills in beside it does not count.
pub fn contains(have: &Value, want: &Value) -> bool {
    match (have, want) {
        (Value::Object(have), Value::Object(want)) => {
            want.iter().all(|(key, want)| contains(have.get(key).unwrap_or(&Value::Null), want))
        }
        (Value::Array(have), Value::Array(want)) => {
            have.len() == want.len() && have.iter().zip(want).all(|(have, want)| contains(have, want))
        }
        (have, want) => json::same_but_zeros(have, want),
    }
}

/// Makes the claims that lack, and deletes those of replicas that are gone.
pub fn claim_actions(set: &PodCliqueSet, wanted: &[claims::Claim<'_>], there: &[Arc<Kept>]) -> Vec<Action> {
    let names: BTreeSet<&str> = wanted.iter().map(|claim| claim.name.as_str()).collect();
    let known: BTreeSet<&str> = there.iter().map(|kept| kept.metadata.name.as_str()).collect();
    let lacking = wanted.iter().filter(|claim| !known.contains(claim.name.as_str()));
    let mut actions: Vec<Action> = lacking
        .map(|claim| match &claim.source {
            Source::Set(spec) => Action::Create { resource: made::CLAIM, body: claim.body(set, spec) },
            Source::Object(template) => {
                Action::CreateClaim { body: claim.body(set, &Value::Null), template: template.clone() }
            }
        })
        .collect();
    let excess = there
        .iter()
        .filter(|kept| !names.contains(kept.metadata.name.as_str()) && !kept.metadata.deleting())
        .filter(|kept| is_indexed(&kept.metadata));
    actions.extend(excess.map(|kept| Action::delete(made::CLAIM, &kept.metadata)));
    actions
}

fn is_indexed(meta: &Meta) -> bool {
    [keys::SET_REPLICA, keys::GROUP_REPLICA, keys::POD_INDEX].iter().any(|label| index(meta, label).is_some())
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::shape::tests::{WL2, set};

    /// A cluster that does what a plan says, for plans alone.
    #[derive(Default)]
    pub(crate) struct Ground {
        pub(crate) cliques: Vec<Arc<PodClique>>,
        pub(crate) groups: Vec<Arc<PodCliqueScalingGroup>>,
        pub(crate) group_cliques: BTreeMap<String, Vec<Arc<PodClique>>>,
        pub(crate) gangs: Vec<Arc<PodGang>>,
        pub(crate) made: Vec<Arc<Kept>>,
        pub(crate) options: Options,
        pub(crate) now: Option<Timestamp>,
    }

    impl Ground {
        pub(crate) fn look(&self, set: &PodCliqueSet) -> Plan {
            let of_group = |uid: &str| self.group_cliques.get(uid).cloned().unwrap_or_default();
            let made = |resource: Resource| {
                self.made.iter().filter(|kept| kept.resource == resource).cloned().collect()
            };
            plan(&Seen {
                set,
                cliques: &self.cliques,
                groups: &self.groups,
                group_cliques: &of_group,
                gangs: &self.gangs,
                made: &made,
                topology: &Topology::Unneeded,
                options: &self.options,
                now: self.now.unwrap_or(Timestamp::UNIX_EPOCH),
            })
        }

        /// Does what the plan says of objects.
        pub(crate) fn take(&mut self, actions: &[Action]) {
            for action in actions {
                match action {
                    Action::Create { resource, body } => {
                        let mut body = body.clone();
                        body["metadata"]["uid"] = json!(format!("u-{}", text(&body, &["metadata", "name"])));
                        match resource.kind {
                            "PodClique" => self.cliques.push(Arc::new(serde_json::from_value(body).unwrap())),
                            "PodCliqueScalingGroup" => {
                                self.groups.push(Arc::new(serde_json::from_value(body).unwrap()))
                            }
                            "PodGang" => self.gangs.push(Arc::new(serde_json::from_value(body).unwrap())),
                            _ => self.made.push(Arc::new(Kept {
                                resource: *resource,
                                metadata: serde_json::from_value(body["metadata"].clone()).unwrap(),
                                spec: body["spec"].clone(),
                                status: Value::Null,
                                raw: body,
                            })),
                        }
                    }
                    Action::Delete { resource, key, .. } => {
                        self.cliques.retain(|c| resource.kind != "PodClique" || c.metadata.name != key.name);
                        self.groups.retain(|c| {
                            resource.kind != "PodCliqueScalingGroup" || c.metadata.name != key.name
                        });
                        self.gangs.retain(|c| resource.kind != "PodGang" || c.metadata.name != key.name);
                        self.made.retain(|k| k.resource != *resource || k.metadata.name != key.name);
                    }
                    _ => {}
                }
            }
        }
    }

    pub(crate) fn short(actions: &[Action]) -> String {
        actions.iter().map(Action::short).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn makes_everything_once() {
        let set = set(WL2);
        let mut ground = Ground::default();
        let plan = ground.look(&set);
        assert_eq!(
            short(&plan.actions),
            "+PodClique wl-0-pc-a, +PodCliqueScalingGroup wl-0-sg-x, +PodGang wl-0, +PodGang wl-0-sg-x-0, \
             +ServiceAccount wl, +Role grove.io:pcs:wl, +RoleBinding grove.io:pcs:wl, +Service wl-0"
        );
        ground.take(&plan.actions);
        assert_eq!(short(&ground.look(&set).actions), "");
    }

    #[test]
    fn scales_by_index() {
        let mut set = set(WL2);
        let mut ground = Ground::default();
        set.spec.replicas = Some(3);
        let plan = ground.look(&set);
        ground.take(&plan.actions);
        // A hole below must not save what is above.
        ground.cliques.retain(|c| c.metadata.name != "wl-0-pc-a");
        set.spec.replicas = Some(2);
        let plan = ground.look(&set);
        assert_eq!(
            short(&plan.actions),
            "+PodClique wl-0-pc-a, -PodClique wl-2-pc-a, -PodCliqueScalingGroup wl-2-sg-x, -PodGang wl-2, \
             -PodGang wl-2-sg-x-0, -Service wl-2"
        );
        set.spec.replicas = Some(0);
        ground.take(&plan.actions);
        let plan = ground.look(&set);
        ground.take(&plan.actions);
        assert!(ground.cliques.is_empty() && ground.gangs.is_empty());
    }

    #[test]
    fn gangs_follow_live_groups() {
        let set = set(WL2);
        let mut ground = Ground::default();
        let plan = ground.look(&set);
        ground.take(&plan.actions);
        let scale = |ground: &mut Ground, n: i64| {
            let mut group = (*ground.groups[0]).clone();
            group.spec.replicas = Some(n);
            ground.groups[0] = Arc::new(group);
        };
        scale(&mut ground, 3);
        let plan = ground.look(&set);
        assert_eq!(short(&plan.actions), "+PodGang wl-0-sg-x-1");
        ground.take(&plan.actions);
        scale(&mut ground, 1);
        assert_eq!(short(&ground.look(&set).actions), "-PodGang wl-0-sg-x-0, -PodGang wl-0-sg-x-1");
    }

    #[test]
    fn adopts_cliques_of_another_program() {
        let set = set("p x1; a 2/1");
        let mut ground = Ground::default();
        let plan = ground.look(&set);
        ground.take(&plan.actions);
        let mut clique = (*ground.cliques[0]).clone();
        clique.metadata.labels.insert(keys::TEMPLATE_HASH.into(), "6d8f9c7b5".into());
        ground.cliques[0] = Arc::new(clique);
        let plan = ground.look(&set);
        let [Action::Patch { body, .. }] = plan.actions.as_slice() else { panic!("{:?}", plan.actions) };
        let hash = hash::template(&set.spec.template.cliques[0]);
        assert_eq!(
            *body,
            json!({"metadata": {
                "labels": {keys::TEMPLATE_HASH: hash},
                "annotations": {keys::ADOPTED_HASH: format!("6d8f9c7b5={hash}")},
            }})
        );
    }

    proptest! {
        /// However a set is scaled, one pass leads to what a set of that size has from the start.
        #[test]
        fn scaling_leads_to_the_same(from in 0i64..5, to in 0i64..5, lost in prop::collection::vec(any::<bool>(), 5)) {
            let mut set = set(WL2);
            let mut ground = Ground::default();
            set.spec.replicas = Some(from);
            let plan = ground.look(&set);
            ground.take(&plan.actions);
            let mut keep = lost.iter().cycle();
            ground.cliques.retain(|_| *keep.next().unwrap());
            ground.gangs.retain(|_| *keep.next().unwrap());
            ground.made.retain(|_| *keep.next().unwrap());
            set.spec.replicas = Some(to);
            let plan = ground.look(&set);
            ground.take(&plan.actions);
            prop_assert_eq!(short(&ground.look(&set).actions), "");
            let mut fresh = Ground::default();
            let plan = fresh.look(&set);
            fresh.take(&plan.actions);
            let names = |ground: &Ground| {
                let mut names: Vec<String> = ground.cliques.iter().map(|c| c.metadata.name.clone()).collect();
                names.extend(ground.gangs.iter().map(|g| g.metadata.name.clone()));
                names.extend(ground.made.iter().map(|k| format!("{} {}", k.resource.kind, k.metadata.name)));
                names.sort();
                names
            };
            prop_assert_eq!(names(&ground), names(&fresh));
        }
    }

    #[test]
    fn a_set_that_goes_is_left_alone() {
        let mut set = set(WL2);
        set.metadata.deletion_timestamp = Some(Timestamp::UNIX_EPOCH);
        assert!(Ground::default().look(&set).actions.is_empty());
    }

    #[test]
    fn a_huge_set_is_made_in_parts() {
        let set = set("p x20000; a 1/1");
        let plan = Ground::default().look(&set);
        assert_eq!(plan.actions.len(), BURST);
        assert_eq!(plan.wake, Some(Duration::ZERO));
    }

    #[test]
    fn what_a_server_fills_in_is_no_difference() {
        assert!(contains(&json!({"a": 1, "b": {"c": 2, "d": 3}}), &json!({"b": {"c": 2}})));
        assert!(!contains(&json!({"a": [1, 2]}), &json!({"a": [1]})));
        assert!(contains(&json!({}), &json!({"a": 0, "b": []})));
    }
}
