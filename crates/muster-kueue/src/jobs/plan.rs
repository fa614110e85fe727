//! What a job and its workload need.
//!
//! In: a job of any kind as a [`View`], the workloads that it owns, and the little that has to be known besides. Out: [`Action`]s, few at a time: a
//! plan whose actions are done is made again. Must stay true: a job runs only while a workload that asks for the same is admitted; quota is given
//! back only when no pod of the job runs and its template is as it was; there is one workload for a job.

use std::sync::Arc;

use jiff::Timestamp;
use muster_runtime::object::{Meta, Object, Resource};
use serde_json::{Map, Value, json};

use super::{Ended, Job};
use crate::keys::{self, condition as kind};
use crate::object::{Workload, condition, int, list, text};
use crate::podset::{self, Clash, Info, set_name, shape};
use crate::settings::Settings;
use crate::status::Draft;

/// A job as far as it is planned with.
#[derive(Debug, Clone)]
pub struct View {
    pub resource: Resource,
    pub metadata: Meta,
    /// The queue that it goes through; empty: none.
    pub queue: String,
    pub suspended: bool,
    pub active: bool,
    pub ended: Option<Ended>,
    pub pods_ready: bool,
    pub pod_sets: Vec<Value>,
    pub reclaimable: Vec<(String, i64)>,
    /// Its status has to be settled before its template can be set back.
    pub settle: Option<Value>,
}

impl View {
    pub fn of<J: Job>(job: &J) -> Self {
        let meta = job.meta();
        View {
            resource: J::RESOURCE,
            metadata: meta.clone(),
            queue: meta.labels.get(keys::QUEUE).cloned().unwrap_or_default(),
            suspended: job.is_suspended(),
            active: job.is_active(),
            ended: job.ended(),
            pods_ready: job.pods_ready(),
            pod_sets: job.pod_sets(),
            reclaimable: job.reclaimable(),
            settle: job.settle(),
        }
    }
}

/// The name and the value of a priority class, by its group and kind, and its name.
pub type Priorities<'a> = dyn Fn((&str, &str), &str) -> Option<(String, i64)> + 'a;

/// What is known besides.
pub struct World<'a> {
    pub settings: &'a Settings,
    pub now: Timestamp,
    /// A flavor's spec by name.
    pub flavor: &'a dyn Fn(&str) -> Option<Value>,
    /// The value of a priority class by group and name; an empty name: the one that counts for all.
    pub priority: &'a Priorities<'a>,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    CreateWorkload(Value),
    DeleteWorkload {
        name: String,
        uid: String,
    },
    /// Takes our finalizer from a workload.
    LetGo {
        name: String,
    },
    /// A merge patch of a workload's spec or metadata.
    PatchWorkload {
        name: String,
        patch: Value,
    },
    /// The whole new status of a workload.
    WorkloadStatus {
        name: String,
        status: Value,
    },
    Start(Vec<Info>),
    /// Suspend it, with its template as it is.
    Suspend,
    /// A merge patch of the job's status.
    Settle(Value),
    /// Set its template back to that of these pod sets.
    Restore(Vec<Value>),
    /// Tell people: on the job.
    Event {
        warning: bool,
        reason: &'static str,
        message: String,
    },
}

/// Something to say, and nothing went wrong.
fn said(reason: &'static str, message: String) -> Action {
    Action::Event { warning: false, reason, message }
}

pub fn plan(job: &View, owned: &[Arc<Workload>], world: &World<'_>) -> Vec<Action> {
    if job.metadata.deleting() {
        return owned
            .iter()
            .filter(|w| is_held(w))
            .map(|w| Action::LetGo { name: w.metadata.name.clone() })
            .collect();
    }
    if job.queue.is_empty() && !world.settings.managed.without_queue && owned.is_empty() {
        return Vec::new();
    }
    // What is going holds its name until it is let go.
    let (going, owned): (Vec<&Arc<Workload>>, Vec<&Arc<Workload>>) =
        owned.iter().partition(|w| w.metadata.deleting());
    if let Some(workload) = going.first() {
        return leave(job, workload);
    }
    let matching = owned.iter().find(|w| is_same(job, w, world)).copied();
    let strangers: Vec<&Arc<Workload>> =
        owned.iter().copied().filter(|w| matching.is_none_or(|m| m.metadata.uid != w.metadata.uid)).collect();
    match matching {
        Some(workload) => {
            let mut actions: Vec<Action> = strangers.iter().map(|w| delete(w)).collect();
            actions.extend(go_on(job, workload, world));
            actions
        }
        None => begin(job, &strangers, world),
    }
}

fn is_held(workload: &Workload) -> bool {
    workload.metadata.finalizers.iter().any(|f| f == keys::IN_USE)
}

fn delete(workload: &Workload) -> Action {
    Action::DeleteWorkload { name: workload.metadata.name.clone(), uid: workload.metadata.uid.clone() }
}

/// The workload is being deleted: the job must not run without it.
fn leave(job: &View, workload: &Workload) -> Vec<Action> {
    if job.ended.is_none() {
        if let Some(actions) = stop(job, workload.pod_sets(), "Workload is deleted") {
            return actions;
        }
        if job.active {
            return Vec::new();
        }
    }
    if is_held(workload) { vec![Action::LetGo { name: workload.metadata.name.clone() }] } else { Vec::new() }
}

/// Whether a workload asks for what the job has, as it is or as it was started.
fn is_same(job: &View, workload: &Workload, world: &World<'_>) -> bool {
    let shapes =
        |sets: &[Value], counts: bool| -> Vec<Value> { sets.iter().map(|s| shape(s, counts)).collect() };
    let without_min = |mut sets: Vec<Value>| {
        sets.iter_mut().filter_map(Value::as_object_mut).for_each(|set| drop(set.remove("minCount")));
        sets
    };
    if workload.has_quota()
        && let Ok(running) = running(workload, world)
        && without_min(shapes(&running, true)) == without_min(shapes(&job.pod_sets, true))
    {
        return true;
    }
    if job.ended.is_some() || workload.is_finished() {
        return true;
    }
    job.suspended && shapes(workload.pod_sets(), true) == shapes(&job.pod_sets, true)
}

/// The pod sets of a workload as they run.
fn running(workload: &Workload, world: &World<'_>) -> Result<Vec<Value>, Clash> {
    let infos = podset::infos(workload, world.flavor)?;
    workload
        .pod_sets()
        .iter()
        .map(|set| {
            let info = infos
                .iter()
                .find(|info| info.name == set_name(set))
                .ok_or_else(|| Clash::NoSet(set_name(set).to_owned()))?;
            let mut out = set.clone();
            out["template"] = podset::with(&set["template"], info)?;
            out["count"] = json!(info.count);
            Ok(out)
        })
        .collect()
}

/// There is no workload that asks for what the job has.
fn begin(job: &View, strangers: &[&Arc<Workload>], world: &World<'_>) -> Vec<Action> {
    if job.ended.is_some() {
        return Vec::new();
    }
    let before = strangers.first().map_or(&[][..], |w| w.pod_sets());
    let words = if before.is_empty() {
        "Missing Workload; unable to restore pod templates"
    } else {
        "No matching Workload; restoring pod templates according to existent Workload"
    };
    if !job.suspended {
        return vec![Action::Suspend, said("Stopped", words.to_owned())];
    }
    if job.active {
        return Vec::new();
    }
    if let Some(actions) = stop(job, before, words) {
        return actions;
    }
    if let [workload] = strangers
        && !workload.has_quota()
        && !workload.is_finished()
    {
        let patch = json!({"spec": {"podSets": job.pod_sets, "queueName": job.queue}});
        let name = workload.metadata.name.clone();
        let words = format!(
            "Updated not matching Workload for suspended job: {}/{name}",
            workload.metadata.namespace
        );
        return vec![Action::PatchWorkload { name, patch }, said("UpdatedWorkload", words)];
    }
    if !strangers.is_empty() {
        let mut actions: Vec<Action> = strangers.iter().map(|w| delete(w)).collect();
        for workload in strangers {
            let words = format!(
                "Deleted not matching Workload: {}/{}",
                workload.metadata.namespace, workload.metadata.name
            );
            actions.push(said("DeletedWorkload", words));
        }
        return actions;
    }
    let body = workload_for(job, world);
    let words =
        format!("Created Workload: {}/{}", job.metadata.namespace, text(&body, &["metadata", "name"]));
    vec![Action::CreateWorkload(body), said("CreatedWorkload", words)]
}

/// The workload of a job.
pub fn workload_for(job: &View, world: &World<'_>) -> Value {
    let meta = &job.metadata;
    let mut labels: Map<String, Value> = world
        .settings
        .labels_to_copy
        .iter()
        .filter_map(|key| Some((key.clone(), json!(meta.labels.get(key)?))))
        .collect();
    labels.insert(keys::JOB_UID.into(), json!(meta.uid));
    let is_copied = |key: &str| {
        key.starts_with(keys::PROVISIONING_PREFIX)
            || [keys::GATED_BY, keys::ELASTIC, "kueue.x-k8s.io/priority-boost"].contains(&key)
    };
    let annotations: Map<String, Value> = meta
        .annotations
        .iter()
        .filter(|(key, _)| is_copied(key))
        .map(|(key, value)| (key.clone(), json!(value)))
        .collect();
    let mut spec = json!({"podSets": job.pod_sets, "queueName": job.queue, "active": true});
    if let Some(seconds) = max_exec(meta) {
        spec["maximumExecutionTimeSeconds"] = json!(seconds);
    }
    let (class, value) = priority(job, world);
    spec["priority"] = json!(value);
    if let Some(class) = class {
        spec["priorityClassRef"] = class;
    }
    let mut metadata = json!({
        "name": crate::names::workload(job.resource.group, job.resource.kind, &meta.name, &meta.uid),
        "namespace": meta.namespace,
        "labels": labels,
        "finalizers": [keys::IN_USE],
        "ownerReferences": [{
            "apiVersion": job.resource.api_version(), "kind": job.resource.kind, "name": meta.name, "uid": meta.uid,
            "controller": true, "blockOwnerDeletion": true,
        }],
    });
    if !annotations.is_empty() {
        metadata["annotations"] = Value::Object(annotations);
    }
    json!({
        "apiVersion": Workload::RESOURCE.api_version(),
        "kind": Workload::RESOURCE.kind,
        "metadata": metadata,
        "spec": spec,
    })
}

fn max_exec(meta: &Meta) -> Option<i32> {
    meta.labels.get(keys::MAX_EXEC_TIME)?.parse().ok().filter(|seconds| *seconds > 0)
}

/// The class and the value of a job's priority: its own label, the class of its pods, the class for all, none.
fn priority(job: &View, world: &World<'_>) -> (Option<Value>, i64) {
    let of = |(group, kind): (&str, &str), name: &str| {
        let (name, value) = (world.priority)((group, kind), name)?;
        Some((json!({"group": group, "kind": kind, "name": name}), value))
    };
    let label = job.metadata.labels.get(keys::PRIORITY_CLASS).map_or("", String::as_str);
    let pods = job
        .pod_sets
        .iter()
        .map(|set| text(set, &["template", "spec", "priorityClassName"]))
        .find(|c| !c.is_empty());
    let found = if !label.is_empty() {
        of(keys::WORKLOAD_PRIORITY, label)
    } else if let Some(class) = pods {
        of(keys::POD_PRIORITY, class)
    } else {
        of(keys::POD_PRIORITY, "")
    };
    match found {
        Some((class, value)) => (Some(class), value),
        None => (None, 0),
    }
}

/// Stops the job step by step; `None`: it is stopped, and its template as it was.
fn stop(job: &View, sets: &[Value], message: &str) -> Option<Vec<Action>> {
    if !job.suspended {
        return Some(vec![Action::Suspend, said("Stopped", message.to_owned())]);
    }
    if job.active {
        return None;
    }
    if sets.is_empty() || !is_as_started(job) {
        return None;
    }
    match &job.settle {
        Some(status) => Some(vec![Action::Settle(status.clone())]),
        None => Some(vec![Action::Restore(sets.to_vec())]),
    }
}

/// Whether its template still has what an admission added.
fn is_as_started(job: &View) -> bool {
    job.pod_sets.iter().any(|set| !text(set, &["template", "metadata", "labels", keys::POD_SET]).is_empty())
}

/// There is a workload that asks for what the job has.
fn go_on(job: &View, workload: &Workload, world: &World<'_>) -> Vec<Action> {
    let name = workload.metadata.name.clone();
    if let Some(ended) = &job.ended {
        return finish(job, workload, ended, world);
    }
    if workload.is_finished() {
        // It was said to be over, so nothing of it runs.
        return stop(job, workload.pod_sets(), "Workload is finished").unwrap_or_else(|| let_go(workload));
    }
    let mut draft = Draft::new(workload.status(), workload.metadata.generation, world.now);
    if workload.is_evicted() {
        let message = condition(workload.status(), kind::EVICTED).map_or("", |c| text(c, &["message"]));
        if let Some(actions) = stop(job, workload.pod_sets(), message) {
            return actions;
        }
        if job.active || !workload.has_quota() {
            return sync(job, workload, world);
        }
        pods_ready(job, workload, &mut draft);
        draft.end_eviction();
        return vec![Action::WorkloadStatus { name, status: draft.status }];
    }
    if !workload.is_admitted() {
        if let Some(actions) = stop(job, workload.pod_sets(), "Not admitted by cluster queue") {
            return actions;
        }
        let mut actions = sync(job, workload, world);
        pods_ready(job, workload, &mut draft);
        if draft.status != *workload.status() && workload.status().is_object() {
            actions.push(Action::WorkloadStatus { name, status: draft.status });
        }
        return actions;
    }
    if job.suspended {
        return start(workload, world);
    }
    // Pods that are done for good give their quota back; the number of them only grows.
    let known = |set: &str| {
        let sets = list(workload.status(), &["reclaimablePods"]).iter();
        sets.filter(|r| text(r, &["name"]) == set).find_map(|r| int(r, &["count"])).unwrap_or(0)
    };
    if job.reclaimable.iter().any(|(set, n)| *n > known(set)) {
        let pods: Vec<Value> = job
            .reclaimable
            .iter()
            .map(|(set, n)| json!({"name": set, "count": (*n).max(known(set))}))
            .collect();
        draft.set("reclaimablePods", json!(pods));
    }
    pods_ready(job, workload, &mut draft);
    if draft.status == *workload.status() {
        return Vec::new();
    }
    vec![Action::WorkloadStatus { name, status: draft.status }]
}

fn let_go(workload: &Workload) -> Vec<Action> {
    if is_held(workload) { vec![Action::LetGo { name: workload.metadata.name.clone() }] } else { Vec::new() }
}

fn finish(job: &View, workload: &Workload, ended: &Ended, world: &World<'_>) -> Vec<Action> {
    let name = workload.metadata.name.clone();
    if workload.is_finished() {
        return let_go(workload);
    }
    let mut draft = Draft::new(workload.status(), workload.metadata.generation, world.now);
    let reason = if ended.success { "Succeeded" } else { "Failed" };
    draft.condition(kind::FINISHED, true, reason, &ended.message);
    let words = format!("Workload '{}/{name}' is declared finished", job.metadata.namespace);
    vec![Action::WorkloadStatus { name, status: draft.status }, said("FinishedWorkload", words)]
}

fn start(workload: &Workload, world: &World<'_>) -> Vec<Action> {
    match podset::infos(workload, world.flavor) {
        Ok(infos) => {
            let words = format!("Admitted by clusterQueue {}", workload.cluster_queue());
            vec![Action::Start(infos), said("Started", words)]
        }
        // It may come back, and then the workload is looked at again.
        Err(Clash::NoFlavor(_)) => Vec::new(),
        Err(clash) => vec![failed_to_start(workload, &clash, world.now)],
    }
}

/// A workload whose job cannot be started as it was admitted is over.
pub fn failed_to_start(workload: &Workload, clash: &Clash, now: Timestamp) -> Action {
    let mut draft = Draft::new(workload.status(), workload.metadata.generation, now);
    draft.condition(kind::FINISHED, true, "FailedToStart", &clash.to_string());
    Action::WorkloadStatus { name: workload.metadata.name.clone(), status: draft.status }
}

/// What the user may change while a job waits: its queue, its priority, how long it may run.
fn sync(job: &View, workload: &Workload, world: &World<'_>) -> Vec<Action> {
    let mut spec = Map::new();
    if workload.queue() != job.queue && !workload.has_quota() {
        spec.insert("queueName".into(), json!(job.queue));
    }
    let class_name = text(workload.spec(), &["priorityClassRef", "name"]);
    let label = job.metadata.labels.get(keys::PRIORITY_CLASS).map_or("", String::as_str);
    if !label.is_empty() && label != class_name && !workload.has_quota() {
        let (class, value) = priority(job, world);
        if let Some(class) = class {
            spec.insert("priority".into(), json!(value));
            spec.insert("priorityClassRef".into(), class);
        }
    }
    let most = max_exec(&job.metadata).map(i64::from);
    if most != int(workload.spec(), &["maximumExecutionTimeSeconds"]) && !workload.is_admitted() {
        spec.insert("maximumExecutionTimeSeconds".into(), json!(most));
    }
    if spec.is_empty() {
        return Vec::new();
    }
    vec![Action::PatchWorkload { name: workload.metadata.name.clone(), patch: json!({"spec": spec}) }]
}

/// Whether the pods of an admitted workload are ready, for those who wait for that.
fn pods_ready(job: &View, workload: &Workload, draft: &mut Draft) {
    let known = condition(workload.status(), kind::PODS_READY);
    let is = known.is_some_and(|c| text(c, &["status"]) == "True");
    let before = known.map_or("", |c| text(c, &["reason"]));
    let not = "Not all pods are ready or succeeded";
    if !workload.is_admitted() || workload.is_evicted() {
        if is {
            draft.condition(kind::PODS_READY, false, "WaitForStart", not);
        }
        return;
    }
    if job.pods_ready && !job.suspended {
        let reason = if matches!(before, "WaitForRecovery" | "Recovered") { "Recovered" } else { "Started" };
        let words = "All pods reached readiness and the workload is running";
        draft.condition(kind::PODS_READY, true, reason, words);
    } else if is || before == "WaitForRecovery" {
        let words = "At least one pod has failed, waiting for recovery";
        draft.condition(kind::PODS_READY, false, "WaitForRecovery", words);
    } else {
        draft.condition(kind::PODS_READY, false, "WaitForStart", not);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::BatchJob;

    const NOW: &str = "2026-01-01T00:00:00Z";

    fn template() -> Value {
        json!({"metadata": {"labels": {"x": "y"}}, "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}})
    }

    fn job(spec: Value, status: Value) -> BatchJob {
        let mut body =
            json!({"spec": {"parallelism": 3, "completions": 3, "template": template()}, "status": status});
        for (key, value) in spec.as_object().unwrap() {
            body["spec"][key] = value.clone();
        }
        let metadata = Meta {
            name: "j".into(),
            namespace: "ns".into(),
            uid: "u".into(),
            labels: [(keys::QUEUE.to_owned(), "q".to_owned())].into(),
            ..Meta::default()
        };
        BatchJob { metadata, body }
    }

    /// The workload of a job that waits, with these conditions: `Type`, `!Type`, with `:Reason`.
    fn workload(conditions: &str) -> Workload {
        let settings = Settings::default();
        let body = workload_for(&View::of(&job(json!({"suspend": true}), json!({}))), &world(&settings));
        let conditions = crate::status::tests::conditions(conditions);
        let mut workload: Workload = serde_json::from_value(body).unwrap();
        let mut status = json!({"conditions": conditions});
        if crate::object::holds(&status, kind::QUOTA_RESERVED) {
            status["admission"] = json!({"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 3, "flavors": {"cpu": "f"}}]});
        }
        workload.body["status"] = status;
        workload
    }

    fn flavor(name: &str) -> Option<Value> {
        (name == "f").then(|| json!({"nodeLabels": {"pool": "p"}}))
    }

    fn priority(of: (&str, &str), name: &str) -> Option<(String, i64)> {
        ((of, name) == (keys::WORKLOAD_PRIORITY, "high")).then(|| (name.to_owned(), 100))
    }

    fn world(settings: &Settings) -> World<'_> {
        World { settings, now: NOW.parse().unwrap(), flavor: &flavor, priority: &priority }
    }

    fn started(status: Value) -> BatchJob {
        let settings = Settings::default();
        let infos = podset::infos(&workload("QuotaReserved Admitted"), world(&settings).flavor).unwrap();
        let job = job(json!({"suspend": true}), status);
        BatchJob { body: job.started(&infos).unwrap(), ..job }
    }

    fn short(actions: &[Action]) -> String {
        let one = |action: &Action| match action {
            Action::CreateWorkload(_) => "create".to_owned(),
            Action::DeleteWorkload { .. } => "delete".to_owned(),
            Action::LetGo { .. } => "let go".to_owned(),
            Action::PatchWorkload { patch, .. } => format!(
                "patch {}",
                patch["spec"].as_object().unwrap().keys().cloned().collect::<Vec<_>>().join("+")
            ),
            Action::WorkloadStatus { status, .. } => {
                let shown: Vec<String> = list(status, &["conditions"])
                    .iter()
                    .map(|c| {
                        format!(
                            "{}{}:{}",
                            if text(c, &["status"]) == "True" { "" } else { "!" },
                            text(c, &["type"]),
                            text(c, &["reason"])
                        )
                    })
                    .collect();
                format!("status({})", shown.join(" "))
            }
            Action::Start(infos) => format!("start {}", infos[0].count),
            Action::Suspend => "suspend".to_owned(),
            Action::Settle(_) => "settle".to_owned(),
            Action::Restore(_) => "restore".to_owned(),
            Action::Event { reason, .. } => format!("({reason})"),
        };
        actions.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[track_caller]
    fn check(job: &BatchJob, workloads: Vec<Workload>, expected: &str) {
        let settings = Settings::default();
        let owned: Vec<Arc<Workload>> = workloads.into_iter().map(Arc::new).collect();
        assert_eq!(short(&plan(&View::of(job), &owned, &world(&settings))), expected);
    }

    fn waiting() -> BatchJob {
        job(json!({"suspend": true}), json!({}))
    }

    #[test]
    fn a_workload_for_every_job() {
        check(&waiting(), vec![], "create (CreatedWorkload)");
        // Whoever got in without being asked is suspended first.
        check(&job(json!({}), json!({})), vec![], "suspend (Stopped)");
        check(&job(json!({"suspend": true}), json!({"active": 1})), vec![], "");
        let mut none = waiting();
        none.metadata.labels.clear();
        check(&none, vec![], "");
        let ended = job(json!({}), json!({"conditions": [{"type": "Complete", "status": "True"}]}));
        check(&ended, vec![], "");
    }

    #[test]
    fn what_a_workload_is_made_of() {
        let settings = Settings { labels_to_copy: vec!["team".into()], ..Settings::default() };
        let mut job = waiting();
        job.metadata.labels.insert("team".into(), "a".into());
        job.metadata.labels.insert(keys::PRIORITY_CLASS.into(), "high".into());
        job.metadata.labels.insert(keys::MAX_EXEC_TIME.into(), "60".into());
        job.metadata.annotations.insert("provreq.kueue.x-k8s.io/x".into(), "1".into());
        let body = workload_for(&View::of(&job), &world(&settings));
        assert_eq!(body["metadata"]["labels"], json!({"team": "a", keys::JOB_UID: "u"}));
        assert_eq!(body["metadata"]["annotations"], json!({"provreq.kueue.x-k8s.io/x": "1"}));
        assert_eq!(body["spec"]["priority"], 100);
        assert_eq!(
            body["spec"]["priorityClassRef"],
            json!({"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"})
        );
        assert_eq!(body["spec"]["maximumExecutionTimeSeconds"], 60);
        assert_eq!(body["spec"]["podSets"], json!([{"name": "main", "count": 3, "template": template()}]));
        assert_eq!(body["metadata"]["ownerReferences"][0]["controller"], true);
    }

    #[test]
    fn a_job_starts_when_it_is_admitted() {
        check(&waiting(), vec![workload("")], "");
        check(&waiting(), vec![workload("QuotaReserved")], "");
        check(&waiting(), vec![workload("QuotaReserved Admitted")], "start 3 (Started)");
        check(&started(json!({})), vec![workload("QuotaReserved Admitted !PodsReady:WaitForStart")], "");
        check(
            &started(json!({"ready": 3})),
            vec![workload("QuotaReserved Admitted !PodsReady:WaitForStart")],
            "status(QuotaReserved:R Admitted:R PodsReady:Started)",
        );
        check(
            &started(json!({"ready": 2})),
            vec![workload("QuotaReserved Admitted PodsReady:Started")],
            "status(QuotaReserved:R Admitted:R !PodsReady:WaitForRecovery)",
        );
    }

    #[test]
    fn a_job_that_must_go() {
        let evicted = || workload("QuotaReserved Admitted Evicted:Preempted");
        check(&started(json!({"active": 3})), vec![evicted()], "suspend (Stopped)");
        let mut stopping = started(json!({"active": 3, "startTime": NOW}));
        stopping.body["spec"]["suspend"] = json!(true);
        check(&stopping, vec![evicted()], "");
        stopping.body["status"]["active"] = json!(0);
        check(&stopping, vec![evicted()], "settle");
        stopping.body["status"] = json!({});
        check(&stopping, vec![evicted()], "restore");
        check(
            &waiting(),
            vec![evicted()],
            "status(!QuotaReserved:Pending !Admitted:NoReservation Evicted:Preempted Requeued:Preempted)",
        );
    }

    #[test]
    fn a_job_that_changes_while_it_waits() {
        let other = job(json!({"suspend": true, "parallelism": 2}), json!({}));
        check(&other, vec![workload("")], "patch podSets+queueName (UpdatedWorkload)");
        // With quota it is another job.
        check(&other, vec![workload("QuotaReserved")], "delete (DeletedWorkload)");
        check(
            &job(json!({"parallelism": 2}), json!({})),
            vec![workload("QuotaReserved Admitted")],
            "suspend (Stopped)",
        );
        let mut moved = waiting();
        moved.metadata.labels.insert(keys::QUEUE.into(), "r".into());
        check(&moved, vec![workload("")], "patch queueName");
        moved.metadata.labels.insert(keys::PRIORITY_CLASS.into(), "high".into());
        check(&moved, vec![workload("")], "patch priority+priorityClassRef+queueName");
    }

    #[test]
    fn a_job_that_ends() {
        let ended = |kind: &str| started(json!({"conditions": [{"type": kind, "status": "True"}]}));
        let running = || workload("QuotaReserved Admitted");
        check(
            &ended("Complete"),
            vec![running()],
            "status(QuotaReserved:R Admitted:R Finished:Succeeded) (FinishedWorkload)",
        );
        check(
            &ended("Failed"),
            vec![running()],
            "status(QuotaReserved:R Admitted:R Finished:Failed) (FinishedWorkload)",
        );
        check(&ended("Complete"), vec![workload("QuotaReserved Admitted Finished")], "let go");
        let mut going = waiting();
        going.metadata.deletion_timestamp = Some(NOW.parse().unwrap());
        check(&going, vec![running()], "let go");
        let mut without = running();
        without.metadata.deletion_timestamp = Some(NOW.parse().unwrap());
        check(&started(json!({"active": 1})), vec![without], "suspend (Stopped)");
    }

    #[test]
    fn pods_that_are_done_give_their_quota_back() {
        check(
            &started(json!({"ready": 2, "succeeded": 1})),
            vec![workload("QuotaReserved Admitted PodsReady:Started")],
            "status(QuotaReserved:R Admitted:R PodsReady:Started)",
        );
        let mut known = workload("QuotaReserved Admitted PodsReady:Started");
        known.body["status"]["reclaimablePods"] = json!([{"name": "main", "count": 1}]);
        check(&started(json!({"ready": 2, "succeeded": 1})), vec![known], "");
    }

    #[test]
    fn what_cannot_be_started_is_over() {
        let mut clash = workload("QuotaReserved Admitted");
        clash.body["status"]["admissionChecks"] =
            json!([{"name": "c", "podSetUpdates": [{"name": "main", "nodeSelector": {"pool": "q"}}]}]);
        check(&waiting(), vec![clash], "status(QuotaReserved:R Admitted:R Finished:FailedToStart)");
    }
}
