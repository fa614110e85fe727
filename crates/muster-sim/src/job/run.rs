//! Runs Jobs.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};

use super::plan::{Plan, plan};
use super::{FINALIZER, INDEX, INDEX_FAILURES, Job};
use crate::api::{ApiError, Delete, Patch};
use crate::context::Context;
use crate::json::merge_patch;
use crate::object::{Key, Object, Pod};
use crate::podcontrol::{
    claim, create_pods, delete_pods, pod_from_template, set_annotation, set_label, wake_by_pods, wake_by_self,
};
use crate::queue::{Next, Queue, work};
use crate::store::Store;

/// Pods of a Job start and end together, and are counted together: Kubernetes waits a second for this, we need not.
const BATCH: Duration = Duration::from_millis(20);
/// The name under which this controller takes Jobs; others are left to whoever they name.
const CONTROLLER: &str = "kubernetes.io/job-controller";

pub fn start(cx: &Context) -> impl Future<Output = ()> + Send + use<> {
    let jobs = cx.store::<Job>();
    let queue = Queue::new();
    let left_over = Queue::new();
    wake_by_self(&jobs, &queue);
    wake_by_pods(cx, &jobs, &queue, BATCH, |job, pod| {
        !job.spec.selector.is_empty() && job.spec.selector.matches(&pod.metadata.labels)
    });
    {
        let left_over = left_over.clone();
        cx.pods.observe(move |change| {
            if let Some(pod) = change.new
                && tracked(pod)
                && (pod.metadata.deleting() || pod.finished() || change.old.is_none())
            {
                left_over.add(pod.key());
            }
        });
    }
    {
        let (left_over, pods) = (left_over.clone(), cx.pods.clone());
        jobs.observe(move |change| {
            if change.new.is_none()
                && let Some(job) = change.old
            {
                for pod in pods.owned_by(&job.metadata.uid) {
                    left_over.add(pod.key());
                }
            }
        });
    }
    let cx = cx.named("job-controller");
    async move {
        if cx.synced([cx.pods.synced()]).await.is_none() || cx.synced([jobs.synced()]).await.is_none() {
            return;
        }
        let jobs_work = work("job", queue, 16, cx.cancel.clone(), |key| look(&cx, &jobs, key));
        let rest_work = work("job-orphans", left_over, 16, cx.cancel.clone(), |key| let_go(&cx, &jobs, key));
        tokio::join!(jobs_work, rest_work);
    }
}

fn tracked(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().any(|f| f == FINALIZER)
}

async fn look(cx: &Context, jobs: &Store<Job>, key: Key) -> Result<Next, ApiError> {
    let Some(job) = jobs.get(&key) else { return Ok(Next::Idle) };
    if job.spec.managed_by.as_deref().is_some_and(|m| m != CONTROLLER) {
        return Ok(Next::Idle);
    }
    let pods = claim(cx, &cx.pods, &*job, &job.spec.selector).await?;
    let plan = plan(&job, &pods, cx.clock.now());
    if plan.expired {
        let delete = Delete { uid: &job.metadata.uid, grace_seconds: None, propagation: Some("Background") };
        return match cx.api.delete::<Job>(&key, delete).await {
            Err(error) if !error.not_found() && !error.conflict() => Err(error),
            _ => Ok(Next::Idle),
        };
    }
    // Pods first, so that the status tells of what is there; but what is counted is written before it is released.
    for result in join_all(plan.drop.iter().map(|pod| release(cx, pod))).await {
        result?;
    }
    let going: Vec<Arc<Pod>> = plan.delete.iter().chain(&plan.drop).cloned().collect();
    let mut failed = delete_pods(cx, &*job, &going).await.err();
    if failed.is_none() && !plan.create.is_empty() {
        failed = create_pods(cx, &*job, new_pods(&job, &plan)).await.err();
    }
    if !plan.status.is_null() {
        let job = jobs.get(&key).unwrap_or_else(|| job.clone());
        write(cx, jobs, &job, &plan).await?;
    }
    let results = join_all(plan.release.iter().map(|pod| release(cx, pod))).await;
    for result in results {
        result?;
    }
    for (kind, reason, message) in &plan.news {
        report(cx, &job, kind, reason, message);
    }
    match failed {
        Some(error) => Err(error),
        None => Ok(plan.wake.map_or(Next::Idle, Next::After)),
    }
}

/// Writes the status if it says anything new. Zeros that Kubernetes writes are news too.
async fn write(cx: &Context, jobs: &Store<Job>, job: &Arc<Job>, plan: &Plan) -> Result<(), ApiError> {
    match merge_patch(&job.status.to_value(), &plan.status) {
        Some(change) => jobs.send_status(&cx.api, &**job, json!({"status": change})).await,
        None => Ok(()),
    }
}

fn new_pods(job: &Job, plan: &Plan) -> Vec<Value> {
    let mut plain = pod_from_template(job, &job.spec.template);
    let mut finalizers = plain["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    finalizers.push(json!(FINALIZER));
    plain["metadata"]["finalizers"] = Value::Array(finalizers);
    for (name, value) in [
        ("batch.kubernetes.io/controller-uid", &job.metadata.uid),
        ("batch.kubernetes.io/job-name", &job.metadata.name),
        ("controller-uid", &job.metadata.uid),
        ("job-name", &job.metadata.name),
    ] {
        if plain["metadata"]["labels"].get(name).is_none() {
            set_label(&mut plain, name, value);
        }
    }
    plan.create
        .iter()
        .map(|index| match index {
            None => plain.clone(),
            Some((index, failures)) => indexed_pod(job, plain.clone(), *index, *failures),
        })
        .collect()
}

fn indexed_pod(job: &Job, mut pod: Value, index: i64, failures: i64) -> Value {
    let text = index.to_string();
    pod["metadata"]["generateName"] = json!(format!("{}-{index}-", job.metadata.name));
    set_annotation(&mut pod, INDEX, &text);
    set_label(&mut pod, INDEX, &text);
    if job.spec.backoff_limit_per_index.is_some() {
        set_annotation(&mut pod, INDEX_FAILURES, &failures.to_string());
    }
    pod["spec"]["hostname"] = json!(format!("{}-{index}", job.metadata.name));
    let env = json!({
        "name": "JOB_COMPLETION_INDEX",
        "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": format!("metadata.labels['{INDEX}']")}},
    });
    for list in ["containers", "initContainers"] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            let mut vars = container["env"].as_array().cloned().unwrap_or_default();
            if !vars.iter().any(|v| v["name"] == "JOB_COMPLETION_INDEX") {
                vars.push(env.clone());
                container["env"] = Value::Array(vars);
            }
        }
    }
    // Indexing a missing list above leaves a null behind.
    if let Some(spec) = pod["spec"].as_object_mut() {
        spec.retain(|_, v| !v.is_null());
    }
    pod
}

/// Lets a counted pod go.
async fn release(cx: &Context, pod: &Pod) -> Result<(), ApiError> {
    let Some(pod) = cx.pods.get(&pod.key()).filter(|p| p.metadata.uid == pod.metadata.uid && tracked(p))
    else {
        return Ok(());
    };
    let rest: Vec<&String> = pod.metadata.finalizers.iter().filter(|f| *f != FINALIZER).collect();
    let patch = json!({"metadata": {"uid": pod.metadata.uid, "finalizers": rest}});
    match cx.api.patch::<Pod>(&pod.key(), "", Patch::Merge, &patch).await {
        Ok(free) => {
            // A pod that was only held by this is gone with it. One that has ended and whose kubelet has yet to let it go is not.
            if free.metadata.is_last() {
                cx.pods.remove(&pod.key(), &pod.metadata.uid);
            } else {
                cx.pods.enter(free);
            }
            Ok(())
        }
        Err(error) if error.not_found() => {
            cx.pods.remove(&pod.key(), &pod.metadata.uid);
            Ok(())
        }
        // Another pod by now, which the watch will say; or a writer was in the way, and it is tried again.
        Err(error) => Err(error),
    }
}

/// A tracked pod whose Job is gone would stay for ever.
async fn let_go(cx: &Context, jobs: &Store<Job>, key: Key) -> Result<Next, ApiError> {
    let Some(pod) = cx.pods.get(&key).filter(|p| tracked(p)) else { return Ok(Next::Idle) };
    if let Some(owner) = pod.metadata.controller() {
        let known = jobs.get(&Key::new(key.namespace.clone(), owner.name.clone()));
        if owner.kind != "Job" || known.is_some_and(|job| job.metadata.uid == owner.uid) {
            return Ok(Next::Idle);
        }
        // The pod may have been heard of before its Job.
        match cx.api.get::<Job>(&Key::new(key.namespace.clone(), owner.name.clone())).await {
            Ok(job) if job.metadata.uid == owner.uid => return Ok(Next::Idle),
            Ok(_) => {}
            Err(error) if error.not_found() => {}
            Err(error) => return Err(error),
        }
    }
    release(cx, &pod).await?;
    Ok(Next::Idle)
}

fn report(cx: &Context, job: &Job, kind: &str, reason: &str, message: &str) {
    match kind {
        "Complete" => cx.events.normal(job, "Completed", "Job completed"),
        "Failed" => {
            let reason = match reason {
                "BackoffLimitExceeded" => "BackoffLimitExceeded",
                "DeadlineExceeded" => "DeadlineExceeded",
                "PodFailurePolicy" => "PodFailurePolicy",
                "FailedIndexes" => "FailedIndexes",
                "MaxFailedIndexesExceeded" => "MaxFailedIndexesExceeded",
                _ => "Failed",
            };
            cx.events.warning(job, reason, message);
        }
        "Suspended" if reason == "JobSuspended" => cx.events.normal(job, "Suspended", "Job suspended"),
        "Suspended" => cx.events.normal(job, "Resumed", "Job resumed"),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexed_pods_know_their_index() {
        let job: Job = serde_json::from_value(json!({
            "metadata": {"name": "j", "namespace": "ns", "uid": "u"},
            "spec": {
                "completionMode": "Indexed",
                "backoffLimitPerIndex": 1,
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}},
            },
        }))
        .unwrap();
        let plan = super::super::plan::Plan {
            create: vec![Some((3, 2))],
            delete: vec![],
            drop: vec![],
            release: vec![],
            status: Value::Null,
            wake: None,
            expired: false,
            news: vec![],
        };
        let pod = &new_pods(&job, &plan)[0];
        assert_eq!(pod["metadata"]["generateName"], "j-3-");
        assert_eq!(pod["metadata"]["annotations"], json!({INDEX: "3", INDEX_FAILURES: "2"}));
        assert_eq!(pod["metadata"]["labels"]["job-name"], "j");
        assert_eq!(pod["metadata"]["finalizers"], json!([FINALIZER]));
        assert_eq!(pod["spec"]["containers"][0]["env"][0]["name"], "JOB_COMPLETION_INDEX");
        assert!(pod["spec"].get("initContainers").is_none());
    }

    #[test]
    fn a_status_survives_the_round_trip() {
        let status = json!({
            "active": 1, "ready": 1, "terminating": 0, "succeeded": 2,
            "completedIndexes": "0,1", "startTime": "2026-01-01T00:00:00Z",
            "conditions": [{"type": "Suspended", "status": "False", "reason": "JobResumed", "message": "m",
                "lastProbeTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "uncountedTerminatedPods": {"failed": ["x"]},
        });
        let job = Job { status: serde_json::from_value(status.clone()).unwrap(), ..Job::default() };
        assert_eq!(job.status.to_value(), status);
    }
}
