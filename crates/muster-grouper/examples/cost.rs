//! What grouping costs without the API server: per pod of a Job, and per pod of a JobSet with very many sub-groups.
//!
//! `cargo run --release -p muster-grouper --example cost`

use std::sync::Arc;
use std::time::Instant;

use muster_grouper::chain::Keep;
use muster_grouper::plan::plan;
use muster_grouper::{Defaults, Options, Owner, World, group};
use muster_runtime::common::{Pod, PodGroup};
use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let job = json!({
        "metadata": {
            "name": "train-0001", "namespace": "team", "uid": "11111111-2222-3333-4444-555555555555",
            "labels": {"kai.scheduler/queue": "team-a", "app": "train"},
            "annotations": {"kai.scheduler/batch-min-member": "8"},
        },
        "spec": {"parallelism": 8, "template": {"spec": {"containers": [{"name": "main", "image": "app:1"}]}}},
        "status": {"active": 8, "ready": 8, "uncountedTerminatedPods": {}},
    });
    measure("Job", "batch/v1", "Job", &job, json!({"app": "train"}), 100_000)?;
    let set = json!({
        "metadata": {"name": "big", "namespace": "team", "uid": "11111111-2222-3333-4444-555555555555"},
        "spec": {"replicatedJobs": [{"name": "workers", "replicas": 1000, "template": {"spec": {"parallelism": 8}}}]},
    });
    let labels =
        json!({"jobset.sigs.k8s.io/replicatedjob-name": "workers", "jobset.sigs.k8s.io/job-index": "999"});
    measure("JobSet of 1000 replicas", "jobset.x-k8s.io/v1alpha2", "JobSet", &set, labels, 200)?;
    Ok(())
}

fn measure(
    what: &str,
    api_version: &str,
    kind: &str,
    object: &Value,
    labels: Value,
    n: u32,
) -> Result<(), Box<dyn std::error::Error>> {
    let text = object.to_string();
    let keep = Keep { spec: kind == "JobSet", completions: kind == "Job", status: false };
    let start = Instant::now();
    let mut owner = None;
    for _ in 0..n {
        owner = Owner::read(api_version, kind, &text, keep);
    }
    let read = start.elapsed() / n;
    let chain = [Arc::new(owner.ok_or("the owner cannot be read")?)];
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {
            "name": "p", "namespace": "team", "uid": "p", "labels": labels,
            "ownerReferences": [{"apiVersion": api_version, "kind": kind, "name": "o", "uid": "o", "controller": true}],
        },
        "spec": {"schedulerName": "kai-scheduler"},
    }))?;
    let (options, defaults) = (Options::default(), Defaults::default());
    let world = World {
        options: &options,
        defaults: &defaults,
        has_class: &|_| true,
        has_group: &|_| false,
        also: &[],
        peers: None,
    };
    let there: PodGroup = serde_json::from_value(group(&pod, &chain, &world)?.manifest())?;
    let start = Instant::now();
    for _ in 0..n {
        std::hint::black_box(group(&pod, &chain, &world)?);
    }
    let grouped = start.elapsed() / n;
    let grouping = group(&pod, &chain, &world)?;
    let start = Instant::now();
    for _ in 0..n {
        std::hint::black_box(plan(&pod, &grouping, Some(&there), &options));
    }
    let planned = start.elapsed() / n;
    println!("{what}: read {read:?}, group {grouped:?}, compare {planned:?}");
    Ok(())
}
