//! What a Deployment's ReplicaSets must be.
//!
//! In: the Deployment, its ReplicaSets, its pods' states for `Recreate`, the time. Out: actions.
//! Must stay true: pods never exceed the wanted number plus the surge, and never fall below it less the unavailable
//! by our doing; the newest revision is the one whose template equals the Deployment's.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::Deployment;
use crate::json::short_hash;
use crate::object::{Key, Object, ReplicaSet, controller_ref};

pub const REVISION: &str = "deployment.kubernetes.io/revision";
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MAX: &str = "deployment.kubernetes.io/max-replicas";
pub const TEMPLATE_HASH: &str = "pod-template-hash";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Create the ReplicaSet of the current template.
    Create(Value),
    /// Change a ReplicaSet: number, annotations.
    Patch {
        set: Key,
        patch: Value,
        scaled: Option<(i64, i64)>,
    },
    Delete(Key),
    /// Write the revision into the Deployment, together with its status.
    Revision(String),
}

/// What was found and what to do.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    pub new_set: Option<Key>,
    pub actions: Vec<Action>,
}

/// `old_pods_run`: pods of old ReplicaSets still run, which `Recreate` waits for.
pub fn plan(deployment: &Deployment, sets: &[Arc<ReplicaSet>], old_pods_run: bool) -> Plan {
    let mut plan = Plan::default();
    if deployment.metadata.deleting() {
        plan.new_set = find_new(deployment, sets).map(|s| s.key());
        return plan;
    }
    let new = find_new(deployment, sets);
    let old: Vec<&Arc<ReplicaSet>> =
        sets.iter().filter(|s| new.is_none_or(|n| n.metadata.uid != s.metadata.uid)).collect();
    let revision = old.iter().map(|s| revision(s)).max().unwrap_or(0) + 1;
    plan.new_set = new.map(|s| s.key());

    if let Some(new) = new {
        let text = sync_annotations(deployment, new, revision, &mut plan.actions);
        if deployment.metadata.annotation(REVISION) != Some(&text) {
            plan.actions.push(Action::Revision(text));
        }
    }

    let scaling = sets
        .iter()
        .filter(|s| s.replicas() > 0)
        .any(|s| annotation_number(s, DESIRED).is_some_and(|desired| desired != deployment.replicas()));
    if deployment.spec.paused || scaling {
        scale(deployment, new, &old, &mut plan.actions);
    } else if deployment.recreates() {
        recreate(deployment, new, &old, revision, old_pods_run, &mut plan.actions);
    } else {
        roll(deployment, new, &old, revision, &mut plan.actions);
    }
    if complete(deployment, new, sets) || deployment.spec.paused {
        clean_up(deployment, &old, &mut plan.actions);
    }
    plan
}

/// The ReplicaSet whose template is the Deployment's; the oldest, should there be two.
pub fn find_new<'a>(deployment: &Deployment, sets: &'a [Arc<ReplicaSet>]) -> Option<&'a Arc<ReplicaSet>> {
    sets.iter()
        .filter(|s| same_template(&s.spec.template, &deployment.spec.template))
        .min_by_key(|s| (s.metadata.created(), s.metadata.name.clone()))
}

fn same_template(of_set: &Value, of_deployment: &Value) -> bool {
    let mut plain = of_set.clone();
    if let Some(labels) = plain.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(TEMPLATE_HASH);
    }
    let mut wanted = of_deployment.clone();
    if let Some(labels) = wanted.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(TEMPLATE_HASH);
    }
    crate::json::same_but_zeros(&plain, &wanted)
}

fn revision(set: &ReplicaSet) -> i64 {
    annotation_number(set, REVISION).unwrap_or(0)
}

fn annotation_number(set: &ReplicaSet, name: &str) -> Option<i64> {
    set.metadata.annotation(name)?.parse().ok()
}

fn total(sets: impl IntoIterator<Item = impl AsRef<ReplicaSet>>) -> i64 {
    sets.into_iter().fold(0, |sum, s| sum.saturating_add(s.as_ref().replicas()))
}

/// Keeps the new ReplicaSet's annotations what the Deployment's are, and gives it the next revision if it had an
/// older one (a rollback). Out: the revision.
fn sync_annotations(
    deployment: &Deployment,
    new: &ReplicaSet,
    next: i64,
    actions: &mut Vec<Action>,
) -> String {
    let mut annotations = Map::new();
    let current = revision(new);
    let revision = if current < next {
        if current > 0 {
            let mut history: Vec<String> = new
                .metadata
                .annotation(REVISION_HISTORY)
                .map(|h| h.split(',').map(str::to_owned).collect())
                .unwrap_or_default();
            history.push(current.to_string());
            let keep_from = history.len().saturating_sub(100);
            annotations.insert(REVISION_HISTORY.into(), json!(history[keep_from..].join(",")));
        }
        annotations.insert(REVISION.into(), json!(next.to_string()));
        next
    } else {
        current
    };
    for (name, value) in inherited(deployment) {
        if new.metadata.annotations.get(&name) != Some(&value) {
            annotations.insert(name, json!(value));
        }
    }
    let mut patch = Map::new();
    if !annotations.is_empty() {
        patch.insert("metadata".into(), json!({"annotations": annotations}));
    }
    if new.spec.min_ready_seconds != deployment.spec.min_ready_seconds {
        patch.insert("spec".into(), json!({"minReadySeconds": deployment.spec.min_ready_seconds}));
    }
    if !patch.is_empty() {
        actions.push(Action::Patch { set: new.key(), patch: Value::Object(patch), scaled: None });
    }
    revision.to_string()
}

fn inherited(deployment: &Deployment) -> impl Iterator<Item = (String, String)> {
    deployment
        .metadata
        .annotations
        .iter()
        .filter(|(name, _)| {
            !matches!(name.as_str(), LAST_APPLIED | REVISION | REVISION_HISTORY | DESIRED | MAX)
                && name.as_str() != "deprecated.deployment.rollback.to"
        })
        .map(|(name, value)| (name.clone(), value.clone()))
}

fn replica_annotations(deployment: &Deployment) -> Value {
    let (surge, _) = deployment.slack();
    json!({
        DESIRED: deployment.replicas().to_string(),
        MAX: deployment.replicas().saturating_add(surge).to_string(),
    })
}

fn scale_to(deployment: &Deployment, set: &ReplicaSet, to: i64, actions: &mut Vec<Action>) -> bool {
    let to = to.max(0);
    let annotations = replica_annotations(deployment);
    let stale = annotations
        .as_object()
        .is_some_and(|wanted| wanted.iter().any(|(k, v)| set.metadata.annotation(k) != v.as_str()));
    if set.replicas() == to && !stale {
        return false;
    }
    let from = set.replicas();
    actions.push(Action::Patch {
        set: set.key(),
        patch: json!({"metadata": {"annotations": annotations}, "spec": {"replicas": to}}),
        scaled: (from != to).then_some((from, to)),
    });
    from != to
}

fn create(deployment: &Deployment, replicas: i64, revision: i64, actions: &mut Vec<Action>) {
    let collisions = deployment.status.get("collisionCount").and_then(Value::as_i64).unwrap_or(0);
    let hash = short_hash(&deployment.spec.template, collisions);
    let mut template = deployment.spec.template.clone();
    crate::podcontrol::set_label(&mut template, TEMPLATE_HASH, &hash);
    let mut selector = json!(deployment.spec.selector);
    if !selector["matchLabels"].is_object() {
        selector["matchLabels"] = json!({});
    }
    selector["matchLabels"][TEMPLATE_HASH] = json!(hash);
    let mut annotations: Map<String, Value> = inherited(deployment).map(|(k, v)| (k, json!(v))).collect();
    if let Value::Object(more) = replica_annotations(deployment) {
        annotations.extend(more);
    }
    annotations.insert(REVISION.into(), json!(revision.to_string()));
    let labels = template.pointer("/metadata/labels").cloned().unwrap_or_else(|| json!({}));
    actions.push(Action::Create(json!({
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": format!("{}-{hash}", deployment.metadata.name),
            "namespace": deployment.metadata.namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [controller_ref(deployment)],
        },
        "spec": {
            "replicas": replicas.max(0),
            "minReadySeconds": deployment.spec.min_ready_seconds,
            "selector": selector,
            "template": template,
        },
    })));
    if deployment.metadata.annotation(REVISION) != Some(&revision.to_string()) {
        actions.push(Action::Revision(revision.to_string()));
    }
}

/// One step of a rolling update: grow the new set, or else shrink the old ones.
fn roll(
    deployment: &Deployment,
    new: Option<&Arc<ReplicaSet>>,
    old: &[&Arc<ReplicaSet>],
    revision: i64,
    actions: &mut Vec<Action>,
) {
    let want = deployment.replicas();
    let (surge, unavailable) = deployment.slack();
    let n_old = total(old.iter().copied());
    let have = new.map_or(0, |n| n.replicas());
    let room = want.saturating_add(surge).saturating_sub(n_old.saturating_add(have));
    let grown = have.saturating_add(room.clamp(0, (want - have).max(0)));
    let Some(new) = new else {
        create(deployment, grown, revision, actions);
        return;
    };
    let target = if have > want { want } else { grown };
    if scale_to(deployment, new, target, actions) || n_old == 0 {
        return;
    }

    let min_available = want - unavailable;
    let new_unavailable = (have - new.count("availableReplicas")).max(0);
    let mut may_go = n_old + have - min_available - new_unavailable;
    if may_go <= 0 {
        return;
    }
    let mut by_age: Vec<&Arc<ReplicaSet>> = old.to_vec();
    by_age.sort_by_key(|s| (s.metadata.created(), s.metadata.name.clone()));
    let mut sizes: Vec<i64> = by_age.iter().map(|s| s.replicas()).collect();
    // First what does not work anyway: taking it away makes nothing less available.
    for (set, size) in by_age.iter().zip(&mut sizes) {
        let unhealthy = (*size - set.count("availableReplicas")).max(0);
        let goes = unhealthy.min(may_go);
        *size -= goes;
        may_go -= goes;
    }
    let available =
        old.iter().fold(new.count("availableReplicas"), |sum, s| sum + s.count("availableReplicas"));
    let mut may_go = (available - min_available).max(0);
    for size in &mut sizes {
        let goes = may_go.min(*size);
        *size -= goes;
        may_go -= goes;
    }
    for (set, size) in by_age.iter().zip(&sizes) {
        if set.replicas() != *size {
            scale_to(deployment, set, *size, actions);
        }
    }
}

fn recreate(
    deployment: &Deployment,
    new: Option<&Arc<ReplicaSet>>,
    old: &[&Arc<ReplicaSet>],
    revision: i64,
    old_pods_run: bool,
    actions: &mut Vec<Action>,
) {
    let mut shrunk = false;
    for set in old.iter().filter(|s| s.replicas() > 0) {
        shrunk |= scale_to(deployment, set, 0, actions);
    }
    if shrunk || old_pods_run {
        return;
    }
    match new {
        None => create(deployment, deployment.replicas(), revision, actions),
        Some(new) => {
            scale_to(deployment, new, deployment.replicas(), actions);
        }
    }
}

/// The wanted number changed: one set follows it; several share the difference in proportion to their size.
fn scale(
    deployment: &Deployment,
    new: Option<&Arc<ReplicaSet>>,
    old: &[&Arc<ReplicaSet>],
    actions: &mut Vec<Action>,
) {
    let want = deployment.replicas();
    let all: Vec<&Arc<ReplicaSet>> = new.into_iter().chain(old.iter().copied()).collect();
    let active: Vec<&Arc<ReplicaSet>> = all.iter().copied().filter(|s| s.replicas() > 0).collect();
    let latest_old = || old.iter().copied().max_by_key(|s| (revision_of(s), s.metadata.created()));
    let only = match active.len() {
        0 => new.or_else(latest_old),
        1 => active.first().copied(),
        _ => None,
    };
    if let Some(only) = only {
        scale_to(deployment, only, want, actions);
        return;
    }
    if let Some(new) = new
        && new.replicas() == want
        && new.count("availableReplicas") == want
        && annotation_number(new, DESIRED) == Some(want)
    {
        for set in old.iter().filter(|s| s.replicas() > 0) {
            scale_to(deployment, set, 0, actions);
        }
        return;
    }
    if deployment.recreates() {
        return;
    }
    let (surge, _) = deployment.slack();
    let allowed = if want > 0 { want.saturating_add(surge) } else { 0 };
    let sum = total(active.iter().copied());
    let to_add = allowed - sum;
    let mut order = active.clone();
    // Growing favours the newer of two equals, shrinking the older.
    order.sort_by(|a, b| {
        let age = a.metadata.created().cmp(&b.metadata.created());
        b.replicas().cmp(&a.replicas()).then(if to_add > 0 { age.reverse() } else { age })
    });
    let mut added = 0;
    let mut sizes: Vec<i64> = Vec::with_capacity(order.len());
    for set in &order {
        let mut size = set.replicas();
        if to_add != 0 {
            let share = fraction(deployment, set, allowed, want);
            let left = to_add - added;
            let part = if to_add > 0 { share.clamp(0, left.max(0)) } else { share.clamp(left.min(0), 0) };
            size += part;
            added += part;
        }
        sizes.push(size);
    }
    if let Some(first) = sizes.first_mut() {
        *first = (*first + to_add - added).max(0);
    }
    for (set, size) in order.iter().zip(&sizes) {
        scale_to(deployment, set, *size, actions);
    }
}

fn revision_of(set: &Arc<ReplicaSet>) -> i64 {
    revision(set)
}

/// By how much a set of this size grows when the whole grows from what its annotations say to `allowed`.
fn fraction(deployment: &Deployment, set: &ReplicaSet, allowed: i64, want: i64) -> i64 {
    if want == 0 {
        return -set.replicas();
    }
    let before = annotation_number(set, MAX).filter(|n| *n > 0).unwrap_or_else(|| {
        deployment.status.get("replicas").and_then(Value::as_i64).filter(|n| *n > 0).unwrap_or(allowed)
    });
    let scaled = i128::from(set.replicas()) * i128::from(allowed);
    let before = i128::from(before.max(1));
    let rounded = (scaled * 2 + before) / (before * 2);
    i64::try_from(rounded).unwrap_or(i64::MAX) - set.replicas()
}

/// Every pod is of the new template, and there.
fn complete(deployment: &Deployment, new: Option<&Arc<ReplicaSet>>, sets: &[Arc<ReplicaSet>]) -> bool {
    let want = deployment.replicas();
    let sum = |field: &str| sets.iter().fold(0, |sum, s| sum + s.count(field));
    new.is_some_and(|n| n.count("replicas") == want && n.count("availableReplicas") == want)
        && sum("replicas") == want
        && sum("availableReplicas") == want
}

/// Old ReplicaSets beyond the history limit go, the oldest first; one that still has pods stays.
fn clean_up(deployment: &Deployment, old: &[&Arc<ReplicaSet>], actions: &mut Vec<Action>) {
    let limit = usize::try_from(deployment.spec.revision_history_limit.unwrap_or(10)).unwrap_or(0);
    let mut alive: Vec<&&Arc<ReplicaSet>> = old.iter().filter(|s| !s.metadata.deleting()).collect();
    let n_extra = alive.len().saturating_sub(limit);
    alive.sort_by_key(|s| (revision(s), s.metadata.created()));
    for set in alive.into_iter().take(n_extra) {
        let seen = set.count("observedGeneration") >= set.metadata.generation;
        if set.replicas() == 0 && set.count("replicas") == 0 && seen {
            actions.push(Action::Delete(set.key()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(image: &str) -> Value {
        json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"image": image}]}})
    }

    fn deployment(replicas: i64, image: &str, strategy: Value) -> Deployment {
        serde_json::from_value(json!({
            "metadata": {"name": "d", "namespace": "ns", "uid": "du", "annotations": {REVISION: "1"}},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": "a"}},
                "template": template(image),
                "strategy": strategy,
            },
        }))
        .unwrap()
    }

    /// `image revision spec available desired max`
    fn set(text: &str) -> Arc<ReplicaSet> {
        let parts: Vec<&str> = text.split_whitespace().collect();
        let n = |i: usize| parts[i].parse::<i64>().unwrap();
        let mut template = template(parts[0]);
        template["metadata"]["labels"][TEMPLATE_HASH] = json!("h");
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {
                    "name": parts[0], "namespace": "ns", "uid": parts[0],
                    "creationTimestamp": format!("2026-01-01T00:00:{:02}Z", n(1)),
                    "annotations": {REVISION: parts[1], DESIRED: parts[4], MAX: parts[5]},
                },
                "spec": {"replicas": n(2), "template": template},
                "status": {"replicas": n(2), "availableReplicas": n(3), "readyReplicas": n(3)},
            }))
            .unwrap(),
        )
    }

    fn show(plan: &Plan) -> String {
        let parts: Vec<String> = plan
            .actions
            .iter()
            .filter_map(|action| match action {
                Action::Create(set) => Some(format!(
                    "create({} r{})",
                    set["spec"]["replicas"],
                    set["metadata"]["annotations"][REVISION].as_str().unwrap()
                )),
                Action::Patch { set, scaled: Some((from, to)), .. } => {
                    Some(format!("{}:{from}->{to}", set.name))
                }
                Action::Patch { set, patch, scaled: None } => patch
                    .pointer("/metadata/annotations")
                    .and_then(|a| a.get(REVISION))
                    .map(|r| format!("{}:r{}", set.name, r.as_str().unwrap())),
                Action::Delete(key) => Some(format!("delete({})", key.name)),
                Action::Revision(r) => Some(format!("revision({r})")),
            })
            .collect();
        parts.join(" ")
    }

    #[track_caller]
    fn check(deployment: &Deployment, sets: &[&str], old_pods_run: bool, expected: &str) {
        let sets: Vec<Arc<ReplicaSet>> = sets.iter().map(|t| set(t)).collect();
        assert_eq!(show(&plan(deployment, &sets, old_pods_run)), expected);
    }

    #[test]
    fn first_rollout() {
        check(&deployment(3, "v1", json!({})), &[], false, "create(3 r1)");
        check(&deployment(3, "v1", json!({})), &["v1 1 3 0 3 4"], false, "");
        check(&deployment(3, "v1", json!({})), &["v1 1 3 3 3 4"], false, "");
    }

    #[test]
    fn rolling_update() {
        let d = deployment(4, "v2", json!({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}));
        check(&d, &["v1 1 4 4 4 5"], false, "create(1 r2) revision(2)");
        let d = Deployment {
            metadata: crate::object::Meta {
                annotations: [(REVISION.to_owned(), "2".to_owned())].into(),
                ..d.metadata.clone()
            },
            ..d
        };
        check(&d, &["v1 1 4 4 4 5", "v2 2 1 0 4 5"], false, "v1:4->3");
        check(&d, &["v1 1 3 3 4 5", "v2 2 1 1 4 5"], false, "v2:1->2");
        check(&d, &["v1 1 3 3 4 5", "v2 2 2 1 4 5"], false, "v1:3->2");
        check(&d, &["v1 1 0 0 4 5", "v2 2 4 4 4 5"], false, "");
        check(&d, &["v1 1 3 0 4 5", "v2 2 2 2 4 5"], false, "v1:3->1");
    }

    #[test]
    fn percentages_and_fenceposts() {
        let d = deployment(10, "v2", json!({}));
        check(&d, &["v1 1 10 10 10 13"], false, "create(3 r2) revision(2)");
        let d = deployment(1, "v2", json!({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}));
        assert_eq!(d.slack(), (0, 1));
    }

    #[test]
    fn rollback_takes_the_next_revision() {
        let d = deployment(2, "v1", json!({}));
        check(&d, &["v1 1 0 0 2 3", "v2 2 2 2 2 3"], false, "v1:r3 revision(3) v1:0->1");
    }

    #[test]
    fn recreates() {
        let d = deployment(2, "v2", json!({"type": "Recreate"}));
        check(&d, &["v1 1 2 2 2 2"], true, "v1:2->0");
        check(&d, &["v1 1 0 0 2 2"], true, "");
        check(&d, &["v1 1 0 0 2 2"], false, "create(2 r2) revision(2)");
    }

    #[test]
    fn scales() {
        check(&deployment(5, "v1", json!({})), &["v1 1 3 3 3 4"], false, "v1:3->5");
        check(&deployment(0, "v1", json!({})), &["v1 1 3 3 3 4"], false, "v1:3->0");
        let mut d = deployment(20, "v2", json!({"rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}}));
        d.metadata.annotations.insert(REVISION.into(), "2".into());
        check(&d, &["v1 1 8 8 10 12", "v2 2 4 4 10 12"], false, "v1:8->15 v2:4->7");
        let mut d = deployment(5, "v2", json!({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}));
        d.metadata.annotations.insert(REVISION.into(), "2".into());
        check(&d, &["v1 1 8 8 10 12", "v2 2 4 4 10 12"], false, "v1:8->4 v2:4->2");
    }

    #[test]
    fn pausing_stops_rolling_but_not_scaling() {
        let mut d = deployment(3, "v2", json!({}));
        d.spec.paused = true;
        check(&d, &["v1 1 3 3 3 4"], false, "");
        d.spec.replicas = Some(4);
        check(&d, &["v1 1 3 3 3 4"], false, "v1:3->4");
    }

    #[test]
    fn history_is_limited() {
        let mut d = deployment(1, "v4", json!({}));
        d.spec.revision_history_limit = Some(1);
        d.metadata.annotations.insert(REVISION.into(), "4".into());
        check(
            &d,
            &["v1 1 0 0 1 2", "v2 2 0 0 1 2", "v3 3 0 0 1 2", "v4 4 1 1 1 2"],
            false,
            "delete(v1) delete(v2)",
        );
        check(&d, &["v1 1 0 0 1 2", "v2 2 0 0 1 2", "v3 3 0 0 1 2", "v4 4 1 0 1 2"], false, "");
    }

    #[test]
    fn annotations_are_inherited() {
        let mut d = deployment(1, "v1", json!({}));
        d.metadata.annotations.insert("kubernetes.io/change-cause".into(), "why".into());
        let plan = plan(&d, &[set("v1 1 1 1 1 2")], false);
        let Action::Patch { patch, .. } = &plan.actions[0] else { panic!("{plan:?}") };
        assert_eq!(patch["metadata"]["annotations"]["kubernetes.io/change-cause"], "why");
    }
}
