//! Bad days by plan: the examples of docs/chaos.md do what they say, the same way for the same seed.

use std::path::PathBuf;
use std::time::Duration;

use muster_sim::chaos::run::Event;
use muster_sim::chaos::{Chaos, Told};
use muster_sim::deployment::Deployment;
use muster_sim::job::Job;
use muster_sim::object::Node;
use muster_sim::{Fleet, Options};
use serde_json::{Value, json};

use crate::cluster::{Cluster, conditions, deployment, on_a_bad_day, phases, pod, ready_nodes, rollout};

const MINUTE: Duration = Duration::from_secs(60);

fn example(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/chaos").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn options(nodes: usize, gpus: u32) -> Options {
    Options { fleet: Fleet::simple(nodes, gpus).unwrap(), ..Options::default() }
}

/// A line for each thing that was told, without what depends on how busy the cluster was.
fn lines(told: &[Told]) -> Vec<String> {
    told.iter().map(|told| told.to_string().split("; ").next().unwrap_or_default().to_owned()).collect()
}

async fn homes(cluster: &Cluster) -> Vec<String> {
    let mut names: Vec<String> = cluster
        .pods()
        .await
        .into_iter()
        .filter(|pod| !pod.metadata.deleting())
        .map(|pod| pod.spec.node_name.clone())
        .collect();
    names.sort();
    names
}

#[tokio::test(start_paused = true)]
async fn a_rack_is_lost_and_training_moves_to_another() {
    let plan = Chaos::parse("lost-rack.yaml", &example("lost-rack.yaml")).unwrap();
    let (c, told) = on_a_bad_day(options(8, 8), &plan, plan.seed.unwrap()).await;
    let job: Value = serde_saphyr::from_str(&example("training.yaml")).unwrap();
    let mut job = job;
    job["metadata"]["namespace"] = json!("default");
    c.apply::<Job>(job).await;
    c.until(MINUTE, "Running+×4", phases).await;
    let before = homes(&c).await;
    c.until(2 * MINUTE, "4 of 8 ready, 4 tainted", ready_nodes).await;
    let lost = told.lock().unwrap()[0].nodes.clone();
    assert!(before.iter().any(|node| lost.contains(node)), "{before:?} had nothing to fear from {lost:?}");
    // A minute without a sign of life, then ten seconds of patience.
    c.until(2 * MINUTE, "4 pods, 0 on lost nodes", async |c| {
        let now = homes(c).await;
        let on_lost = now.iter().filter(|node| lost.contains(node)).count();
        format!("{} pods, {on_lost} on lost nodes", now.len())
    })
    .await;
    c.until(10 * MINUTE, "Complete+SuccessCriteriaMet ok 4 bad 4", async |c| conditions(c, "training").await)
        .await;
    c.until(10 * MINUTE, "8 of 8 ready, 0 tainted", ready_nodes).await;
    let rack = "node-0, node-1, node-2, node-3";
    assert_eq!(
        lines(&told.lock().unwrap()),
        [
            format!("+30s      power: {rack} fall silent, for 10m"),
            format!("+10m30s   power: {rack} are back")
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_deployment_gets_through_a_bad_day() {
    let plan = Chaos::parse("bad-day.yaml", &example("bad-day.yaml")).unwrap();
    let (c, told) = on_a_bad_day(options(4, 8), &plan, plan.seed.unwrap()).await;
    c.apply::<Deployment>(deployment("web", 20)).await;
    c.until(5 * MINUTE, "20/20/20 of 20", async |c| rollout(c, "web").await).await;
    // Through all of it, and half of them anew in the middle of it.
    tokio::time::sleep(MINUTE).await;
    c.patch::<Deployment>("web", json!({"spec": {"replicas": 10}})).await;
    c.until(5 * MINUTE, "10/10/10 of 10", async |c| rollout(c, "web").await).await;
    c.patch::<Deployment>("web", json!({"spec": {"replicas": 20}})).await;
    c.until(5 * MINUTE, "20/20/20 of 20", async |c| rollout(c, "web").await).await;
    tokio::time::sleep(6 * MINUTE).await;
    assert_eq!(rollout(&c, "web").await, "20/20/20 of 20");
    let told = told.lock().unwrap();
    let suffered = told.iter().filter(|told| told.event == Event::Ends && told.what.ends_with("suffered"));
    let suffered: Vec<&str> = suffered.map(|told| told.what.as_str()).collect();
    assert!(suffered.iter().any(|what| !what.contains(" 0 ")), "nobody suffered: {suffered:?}");
    for fault in &plan.faults {
        let n = told.iter().filter(|told| told.fault == fault.name && told.event == Event::Begins).count();
        assert_eq!(n, fault.when.times.unwrap_or(1) as usize, "{}", fault.name);
    }
}

/// Everything there is, by chance wherever it can be.
const MIXED: &str = "
faults:
- {name: a, every: 1m, jitter: 20s, for: 90s, times: 6, probability: 0.7, node: {state: silent, count: 2}}
- {name: b, at: 30s, every: 2m, for: 1m, times: 3, node: {state: deleted}}
- {name: c, every: 3m, for: 1m, times: 2, node: {state: drained, domain: cloud.provider.com/topology-rack}}
- {name: d, at: 10s, for: 5m, node: {state: unhealthyGpus, gpus: '0,1', count: 3}}
- {name: e, at: 10s, for: 4m, node: {state: notReady, selector: {kubernetes.io/hostname: node-5}}}
- {name: f, for: 3m, api: {share: 0.2, status: 503, from: [services, simulation]}}
- {name: g, at: 2m, jitter: 1m, server: forgetsVersions}
- {name: h, at: 4m, services: killed}
";

async fn course(seed: u64) -> (Vec<String>, Cluster) {
    let plan = Chaos::parse("mixed.yaml", MIXED).unwrap();
    let (c, told) = on_a_bad_day(options(8, 4), &plan, seed).await;
    c.apply::<Deployment>(deployment("web", 8)).await;
    tokio::time::sleep(10 * MINUTE).await;
    let lines = lines(&told.lock().unwrap());
    (lines, c)
}

#[tokio::test(start_paused = true)]
async fn a_seed_is_one_course() {
    let (first, c) = course(5).await;
    assert_eq!(first, course(5).await.0);
    assert_ne!(first, course(6).await.0);
    // And when all is over, all is well.
    c.until(MINUTE, "8 of 8 ready, 0 tainted", ready_nodes).await;
    c.until(MINUTE, "8/8/8 of 8", async |c| rollout(c, "web").await).await;
    for node in c.list::<Node>().await {
        assert!(!node.spec.unschedulable, "{} is cordoned", node.metadata.name);
        assert_eq!(
            node.status.allocatable.get("nvidia.com/gpu").map(String::as_str),
            Some("4"),
            "{}",
            node.metadata.name
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_done_is_told() {
    let text = "faults:
- {name: all, for: 1m, node: {state: silent, names: [node-0, node-1, node-7]}}
- {name: more, at: 10s, node: {state: silent}}
- {name: gpus, at: 2m, node: {state: unhealthyGpus, gpus: '0'}}";
    let plan = Chaos::parse("c.yaml", text).unwrap();
    let (c, told) = on_a_bad_day(options(2, 1), &plan, 1).await;
    c.until(3 * MINUTE, "4", async |_| told.lock().unwrap().len().to_string()).await;
    let said = lines(&told.lock().unwrap());
    assert_eq!(
        said[..3],
        [
            "+0s       all: node-0, node-1 fall silent (there is no node-7), for 1m",
            "+10s      more: no node is left that it could happen to",
            "+1m       all: node-0, node-1 are back",
        ]
    );
    // A pod that wants a GPU goes to the node that still has one.
    let sick = told.lock().unwrap()[3].nodes.clone();
    let limits = json!({"containers": [{"name": "main", "image": "app:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]});
    c.apply::<muster_sim::object::Pod>(pod("p", json!({}), limits)).await;
    c.until(MINUTE, "Running+×1", phases).await;
    assert!(!sick.contains(&homes(&c).await[0]));
}
