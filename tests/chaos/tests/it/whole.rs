//! Gangs of 64 through a whole cluster: jobs, kubelets, the grouper, the scheduler, bindings; and a scheduler that is killed meanwhile.

use std::time::Duration;

use muster_chaos::audit::Auditor;
use muster_chaos::process::Role;
use muster_chaos::random::Random;
use muster_chaos::rest;
use muster_chaos::world::{NAMESPACE, World};
use muster_scheduler::BindMode;
use muster_sim::Fleet;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

fn job(name: &str, pods: u64, gpus: u64, seconds: u64) -> Value {
    let labels = json!({"app": name, "kai.scheduler/queue": "default-queue"});
    let container = json!({"name": "main", "image": "app:1", "resources": {"limits": {"nvidia.com/gpu": gpus.to_string()}}});
    json!({"apiVersion": "batch/v1", "kind": "Job",
    "metadata": {"name": name, "labels": labels, "annotations": {"kai.scheduler/batch-min-member": pods.to_string()}},
    "spec": {"parallelism": pods, "completions": pods, "backoffLimit": 10_000, "template": {
        "metadata": {"labels": labels, "annotations": {"sim.muster.dev/duration": format!("{seconds}s")}},
        "spec": {"schedulerName": "kai-scheduler", "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]},
    }}})
}

/// Room for one gang of 64 and a bit; four of them and some others come at once.
async fn course(seed: u64, mode: BindMode, kills: u64) {
    let mut random = Random::new(seed);
    let fleet = Fleet::simple(10, 8).unwrap();
    let mut world = World::with_fleet(seed, mode, true, fleet).await.unwrap();
    let cancel = CancellationToken::new();
    let _ends_with_us = cancel.clone().drop_guard();
    let auditor = Auditor::start(&world.api, &world.journal, &cancel);
    world.start_muster();
    let mut jobs: Vec<Value> = (0..4).map(|n| job(&format!("w{n}"), 64, 1, 20)).collect();
    for n in 4..4 + random.between(2, 5) {
        jobs.push(job(&format!("w{n}"), random.between(1, 20), random.between(1, 4), random.between(5, 30)));
    }
    random.shuffle(&mut jobs);
    for job in &jobs {
        world.create(job).await.unwrap();
        tokio::time::sleep(random.millis(0, 100)).await;
    }
    for _ in 0..kills {
        tokio::time::sleep(random.millis(1, 9_000)).await;
        world.kill(Role::Scheduler);
        tokio::time::sleep(random.millis(0, 2_000)).await;
        world.start(Role::Scheduler);
    }
    let mut findings = rest::wait(&world).await.unwrap();
    findings.extend(auditor.take_findings());
    findings.extend(rest::check(&world, &auditor).await.unwrap());
    for job in world.list(&format!("/apis/batch/v1/namespaces/{NAMESPACE}/jobs")).await.unwrap() {
        if job["status"]["succeeded"] != job["spec"]["completions"] {
            findings.push(format!("{} is not complete: {}", job["metadata"]["name"], job["status"]));
        }
    }
    if kills == 0 {
        // Nobody was killed, so no gang was in part for longer than its bindings took.
        let partial = auditor.longest_partial();
        if partial > Duration::from_secs(1) {
            findings.push(format!("a gang was in part for {partial:?}"));
        }
    }
    assert!(findings.is_empty(), "seed {seed}: {}", findings.join("\n"));
}

#[tokio::test(start_paused = true)]
async fn gangs_of_64_one_after_the_other() {
    course(1, BindMode::Inline, 0).await;
    course(2, BindMode::Service, 0).await;
}

#[tokio::test(start_paused = true)]
async fn gangs_of_64_and_a_scheduler_that_is_killed() {
    course(3, BindMode::Inline, 4).await;
    course(4, BindMode::Service, 4).await;
}
