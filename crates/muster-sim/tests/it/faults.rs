//! Bad days: everything still comes about, once.

use std::time::Duration;

use muster_sim::deployment::Deployment;
use muster_sim::faults::{Fault, FaultLayer, Rule};
use muster_sim::job::Job;
use muster_sim::{Fleet, Options};
use serde_json::json;

use crate::cluster::{conditions, deployment, job, phases, rollout, start};

const HOUR: Duration = Duration::from_secs(3600);

fn options() -> Options {
    Options { fleet: Fleet::simple(3, 0).unwrap(), resync: Duration::from_secs(30), ..Options::default() }
}

/// A Deployment and a Job under this bad day; then the sky clears and all must be exactly as asked.
async fn weather(seed: u64, rules: Vec<Rule>) {
    let layer = FaultLayer::new(seed, rules);
    let c = start(options(), Some(layer.clone())).await;
    c.apply::<Deployment>(deployment("web", 5)).await;
    c.apply::<Job>(job("j", json!({"parallelism": 2, "completions": 5}))).await;
    c.until(HOUR, "Complete+SuccessCriteriaMet ok 5 bad 0", async |c| conditions(c, "j").await).await;
    c.until(HOUR, "5/5/5 of 5", async |c| rollout(c, "web").await).await;
    c.until(HOUR, "Running+×5 Succeeded×5", phases).await;
    assert!(layer.n_faults() > 0, "a test of faults needs faults");
    layer.calm();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(phases(&c).await, "Running+×5 Succeeded×5");
}

#[tokio::test(start_paused = true)]
async fn conflicts() {
    weather(1, vec![Rule::on("patch", "").chance(300).fault(Fault::Status(409))]).await;
}

#[tokio::test(start_paused = true)]
async fn a_busy_and_broken_server() {
    weather(
        2,
        vec![
            Rule::on("", "").chance(100).fault(Fault::Status(500)),
            Rule::on("", "").chance(100).fault(Fault::Status(429)),
            Rule::on("", "").chance(50).fault(Fault::Silence),
        ],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn watches_are_cut_and_expire() {
    weather(
        3,
        vec![
            Rule::on("watch", "").chance(500).fault(Fault::CutWatch { after: 2 }),
            Rule::on("watch", "").chance(300).fault(Fault::ExpireWatch { after: 1 }),
            Rule::on("watch", "").chance(200).fault(Fault::Status(410)),
        ],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn events_are_lost_and_repeated() {
    weather(
        4,
        vec![
            Rule::on("watch", "").chance(500).fault(Fault::DropEvents(300)),
            Rule::on("watch", "").chance(500).fault(Fault::RepeatEvents(500)),
        ],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn answers_come_late() {
    weather(5, vec![Rule::on("", "").chance(300).fault(Fault::Delay(Duration::from_secs(3)))]).await;
}

/// The simulation is ended at some moment and another takes over what it left.
#[tokio::test(start_paused = true)]
async fn restarts() {
    let c = start(Options { components: [].into(), ..options() }, None).await;
    let mut running = c.simulate(options(), None);
    c.apply::<Deployment>(deployment("web", 5)).await;
    c.apply::<Job>(job("j", json!({"parallelism": 2, "completions": 5}))).await;
    for i in 0..8_u64 {
        tokio::time::sleep(Duration::from_millis(7 + 613 * i)).await;
        running.cancel();
        running = c.simulate(options(), None);
    }
    c.until(HOUR, "Complete+SuccessCriteriaMet ok 5 bad 0", async |c| conditions(c, "j").await).await;
    c.until(HOUR, "5/5/5 of 5", async |c| rollout(c, "web").await).await;
    c.until(HOUR, "Running+×5 Succeeded×5", phases).await;
}

/// What was asked for happened, but nobody heard: nothing may be left over from asking again.
#[tokio::test(start_paused = true)]
async fn answers_are_lost() {
    weather(
        6,
        vec![
            Rule::on("create", "").chance(300).fault(Fault::LostAnswer),
            Rule::on("patch", "").chance(200).fault(Fault::LostAnswer),
            Rule::on("delete", "").chance(300).fault(Fault::LostAnswer),
        ],
    )
    .await;
}

/// A kubelet that is told to let a pod go and cannot say so at once, while the Job that followed the pod lets go of it: the pod is still
/// there, and its kubelet must not think otherwise.
#[tokio::test(start_paused = true)]
async fn a_pod_of_a_job_that_is_gone_is_let_go_late() {
    // The pod has ended before the Job is known to be gone.
    let late = Rule::on("get", "jobs").fault(Fault::Delay(Duration::from_secs(1)));
    let layer = FaultLayer::new(7, vec![late, Rule::on("delete", "pods").fault(Fault::Silence)]);
    let c = start(options(), Some(layer.clone())).await;
    c.apply::<Job>(job("j", json!({"parallelism": 2, "completions": 2}))).await;
    c.until(HOUR, "Running+×2", phases).await;
    c.delete::<Job>("j").await;
    c.until(HOUR, "Going×2", async |c| {
        let held = c.pods().await.iter().any(|pod| !pod.metadata.finalizers.is_empty());
        if held { "held".into() } else { phases(c).await }
    })
    .await;
    layer.calm();
    c.until(HOUR, "", phases).await;
}
