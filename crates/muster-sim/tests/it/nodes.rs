//! Nodes: they come, fall silent, return, drain and go.

use std::time::{Duration, Instant};

use muster_sim::deployment::Deployment;
use muster_sim::object::Node;
use muster_sim::{Component, Fleet, Options};
use serde_json::{Value, json};

use crate::cluster::{cluster, deployment, phases, ready_nodes, rollout, start};

const SOON: Duration = Duration::from_secs(2);
const MINUTES: Duration = Duration::from_secs(900);

#[tokio::test(start_paused = true)]
async fn nodes_become_ready_and_bare_ones_are_filled_in() {
    let c = cluster(2, 4).await;
    c.until(SOON, "2 of 2 ready, 0 tainted", ready_nodes).await;
    c.apply::<Node>(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "own"}})).await;
    c.until(SOON, "3 of 3 ready, 0 tainted", ready_nodes).await;
    let own = c.get::<Node>("own").await.unwrap();
    assert_eq!(own.status.capacity["cpu"], "96");
    assert_eq!(own.metadata.labels["kubernetes.io/hostname"], "own");
    assert!(own.status.addresses.iter().any(|a| a.kind == "InternalIP"));
    c.until(Duration::from_secs(15), "3", async |c| {
        let leases = c.raw("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases").await;
        leases["items"].as_array().map_or(0, Vec::len).to_string()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_node_fails_and_its_pods_move() {
    let c = cluster(2, 0).await;
    let mut d = deployment("web", 4);
    d["spec"]["template"]["spec"]["tolerations"] = json!([
        {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30},
    ]);
    c.apply::<Deployment>(d).await;
    c.until(SOON, "Running+×4", phases).await;
    c.patch::<Node>("node-0", json!({"metadata": {"annotations": {"sim.muster.dev/fail": "true"}}})).await;
    c.until(MINUTES, "1 of 2 ready, 1 tainted", ready_nodes).await;
    // The old pods stay in sight while their kubelet is silent; the new ones run elsewhere.
    c.until(MINUTES, "Going×4 Running+×4", phases).await;
    assert!(c.pods().await.iter().filter(|p| !p.metadata.deleting()).all(|p| p.spec.node_name == "node-1"));
    c.patch::<Node>("node-0", json!({"metadata": {"annotations": {"sim.muster.dev/fail": null}}})).await;
    c.until(MINUTES, "2 of 2 ready, 0 tainted", ready_nodes).await;
    c.until(MINUTES, "Running+×4", phases).await;
}

#[tokio::test(start_paused = true)]
async fn a_short_silence_costs_nothing() {
    let c = cluster(1, 0).await;
    c.apply::<Deployment>(deployment("web", 2)).await;
    c.until(SOON, "Running+×2", phases).await;
    c.patch::<Node>("node-0", json!({"metadata": {"annotations": {"sim.muster.dev/fail": "true"}}})).await;
    c.until(MINUTES, "0 of 1 ready, 1 tainted", ready_nodes).await;
    c.until(SOON, "Running×2", phases).await;
    c.patch::<Node>("node-0", json!({"metadata": {"annotations": {"sim.muster.dev/fail": null}}})).await;
    c.until(MINUTES, "1 of 1 ready, 0 tainted", ready_nodes).await;
    c.until(SOON, "Running+×2", phases).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_is_drained_and_comes_back() {
    let c = cluster(2, 0).await;
    c.apply::<Deployment>(deployment("web", 3)).await;
    c.until(SOON, "3/3/3 of 3", async |c| rollout(c, "web").await).await;
    let drain = |v: Value| json!({"metadata": {"annotations": {"sim.muster.dev/drain": v}}});
    c.patch::<Node>("node-0", drain(json!("true"))).await;
    c.until(MINUTES, "node-1 node-1 node-1", async |c| {
        let mut nodes: Vec<String> = c.pods().await.into_iter().map(|p| p.spec.node_name).collect();
        nodes.sort();
        nodes.join(" ")
    })
    .await;
    c.patch::<Node>("node-0", drain(Value::Null)).await;
    c.until(SOON, "2 of 2 ready, 0 tainted", ready_nodes).await;
}

#[tokio::test(start_paused = true)]
async fn not_ready_is_said_and_false_means_off() {
    let c = cluster(2, 0).await;
    c.until(SOON, "2 of 2 ready, 0 tainted", ready_nodes).await;
    let not_ready = |text: &str| json!({"metadata": {"annotations": {"sim.muster.dev/not-ready": text}}});
    c.patch::<Node>("node-0", not_ready("disk on fire")).await;
    c.until(SOON, "1 of 2 ready, 1 tainted", ready_nodes).await;
    c.patch::<Node>("node-0", not_ready("false")).await;
    c.until(SOON, "2 of 2 ready, 0 tainted", ready_nodes).await;
}

/// The version that kubelets report is a choice, and machines can be told apart.
#[tokio::test(start_paused = true)]
async fn node_info_is_as_chosen() {
    let options = Options {
        fleet: Fleet::simple(2, 0).unwrap(),
        kubelet_version: "v1.35.0".into(),
        ..Options::default()
    };
    let c = start(options, None).await;
    c.until(SOON, "2 of 2 ready, 0 tainted", ready_nodes).await;
    let info = async |name: &str| c.raw(&format!("/api/v1/nodes/{name}")).await["status"]["nodeInfo"].take();
    let (a, b) = (info("node-0").await, info("node-1").await);
    assert_eq!(a["kubeletVersion"], "v1.35.0");
    assert_ne!(a["machineID"], b["machineID"]);
}

/// A map of NVLinks in the founding documents' form is for schedulers; here it is only stored.
#[tokio::test(start_paused = true)]
async fn a_gpu_topology_map_is_harmless() {
    let c = cluster(1, 4).await;
    let body = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "gpu-topology"},
        "data": {"topology.yaml": "nodes:\n  node-0:\n    gpus:\n    - {id: 0, nvlinks: [1]}\n    - {id: 1, nvlinks: [0]}\n"},
    });
    c.api.create_path("/api/v1/namespaces/default/configmaps", &body).await.unwrap();
    c.apply::<Deployment>(deployment("web", 1)).await;
    c.until(SOON, "Running+×1", phases).await;
    let stored = c.raw("/api/v1/namespaces/default/configmaps/gpu-topology").await;
    assert_eq!(stored["data"], body["data"]);
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_node_that_is_gone_are_cleared_away() {
    let c = cluster(1, 0).await;
    c.apply::<Deployment>(deployment("web", 1)).await;
    c.until(SOON, "Running+×1", phases).await;
    c.delete::<Node>("node-0").await;
    c.until(MINUTES, "Pending×1", phases).await;
}

/// A thousand nodes are there in a moment of real time, and a restart adopts them.
#[tokio::test(start_paused = true)]
async fn a_thousand_nodes() {
    let begin = Instant::now();
    let options = Options {
        fleet: Fleet::simple(1000, 8).unwrap(),
        components: [Component::Nodes, Component::Kubelet, Component::NodeLifecycle].into(),
        ..Options::default()
    };
    let c = start(options.clone(), None).await;
    c.until(Duration::from_secs(30), "1000 of 1000 ready, 0 tainted", ready_nodes).await;
    println!("1000 nodes ready after {:?} of real time", begin.elapsed());
    c.simulate(options, None);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(ready_nodes(&c).await, "1000 of 1000 ready, 0 tainted");
}

/// Many pods at once: all run, nothing is made twice, and the real time is shown.
#[tokio::test(start_paused = true)]
async fn a_thousand_pods() {
    // The number can be raised by hand, to see how the cost grows.
    let n: usize = std::env::var("MUSTER_SIM_PODS").ok().and_then(|n| n.parse().ok()).unwrap_or(1000);
    let c = cluster(n / 10, 0).await;
    c.until(SOON, &format!("{0} of {0} ready, 0 tainted", n / 10), ready_nodes).await;
    let begin = Instant::now();
    c.apply::<Deployment>(deployment("web", i64::try_from(n).unwrap())).await;
    c.until(MINUTES, &format!("{n}/{n}/{n} of {n}"), async |c| rollout(c, "web").await).await;
    println!("{n} pods running after {:?} of real time", begin.elapsed());
    let asked = c.asked.lock().unwrap().clone();
    println!("{asked:?}");
    let count = |what: &str| asked.get(what).copied().unwrap_or(0);
    assert_eq!([count("POST pods"), count("PATCH pods/status")], [n, n]);
    assert!(count("POST events") + count("PATCH events") <= n, "events are for people");
    let statuses = count("PATCH replicasets/status") + count("PATCH deployments/status");
    assert!(statuses <= n / 10 + 40, "{statuses} writes of statuses that only count");
    let bound = c.pods().await.iter().filter(|p| p.ready()).count();
    assert_eq!(bound, n.min(1000), "the first page of the list");
}
