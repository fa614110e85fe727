//! Minima, scaled gangs, tearing down, coming to an end.

use muster_grove::object::{PodCliqueSet, PodGang, holds};
use muster_runtime::common::{Pod, PodGroup};
use serde_json::{Value, json};

use crate::cluster::{Cluster, SETS, by_clique, cluster, counts, gangs, pods, ready, set, uids};

const WL1: &str = "wl x1; pc-a 2/2; pc-b 1/1; pc-c 3/3; sg-x x2/2: pc-b pc-c";
const WL2: &str = "wl x1; pc-a 2/1; pc-b 1/1; pc-c 3/1; sg-x x2/1: pc-b pc-c";
const GROUP: &str = "/apis/grove.io/v1alpha1/namespaces/default/podcliquescalinggroups/wl-0-sg-x";

/// All or nothing: nine of ten nodes are not enough.
#[tokio::test(start_paused = true)]
async fn a_full_gang_waits_for_all_its_nodes() {
    let cluster = cluster(10).await;
    cluster.cordon(0, 1, true).await;
    cluster.apply(set(WL1)).await;
    cluster.until_pods("pending×10").await;
    cluster.rest().await;
    assert_eq!(pods(&cluster).await, "pending×10");
    let gang: Vec<PodGang> = cluster.list().await;
    assert!(!holds(&gang[0].status, "Scheduled"));
    cluster.cordon(0, 1, false).await;
    cluster.until_pods("ready×10").await;
    cluster.until("wl-0 Running", gangs).await;
}

/// Three nodes hold the minimum of the base; the scaled gang's pods are gated until then.
#[tokio::test(start_paused = true)]
async fn minima_first_and_the_base_before_the_rest() {
    let cluster = cluster(10).await;
    cluster.cordon(0, 8, true).await;
    cluster.apply(set(WL2)).await;
    cluster.until_pods("gated×4 pending×6").await;
    cluster.rest().await;
    assert_eq!(pods(&cluster).await, "gated×4 pending×6");
    cluster.cordon(0, 1, false).await;
    cluster
        .until(
            "wl-0-pc-a:pending×1 wl-0-pc-a:ready×1 wl-0-sg-x-0-pc-b:ready×1 wl-0-sg-x-0-pc-c:pending×2 \
             wl-0-sg-x-0-pc-c:ready×1 wl-0-sg-x-1-pc-b:pending×1 wl-0-sg-x-1-pc-c:pending×3",
            by_clique,
        )
        .await;
    cluster.cordon(0, 10, false).await;
    cluster.until_pods("ready×10").await;
    cluster.until("wl-0 Running, wl-0-sg-x-0 Running", gangs).await;
    cluster.until("wl 1/1", ready).await;
    let groups: Vec<PodGroup> = cluster.list().await;
    let min: Vec<i64> = groups.iter().map(|group| group.spec["minMember"].as_i64().unwrap()).collect();
    assert_eq!(min, [3, 2]);
}

#[tokio::test(start_paused = true)]
async fn groups_scale_by_gangs() {
    let cluster = cluster(14).await;
    cluster.apply(set(WL2)).await;
    cluster.until_pods("ready×10").await;
    cluster.patch(GROUP, json!({"spec": {"replicas": 3}})).await;
    cluster.until_pods("ready×14").await;
    cluster.until("wl-0 Running, wl-0-sg-x-0 Running, wl-0-sg-x-1 Running", gangs).await;
    cluster.patch(GROUP, json!({"spec": {"replicas": 1}})).await;
    cluster.until_pods("ready×6").await;
    cluster.until("wl-0 Running", gangs).await;
    // A new replica of the set starts at the template's size.
    cluster.patch(&format!("{SETS}/wl"), json!({"spec": {"replicas": 2}})).await;
    cluster.until("8 2 16 3", counts).await;
}

#[tokio::test(start_paused = true)]
async fn cliques_scale_and_a_pod_that_goes_comes_back() {
    let cluster = cluster(6).await;
    cluster.apply(set("p x1; a 2/1")).await;
    cluster.until_pods("ready×2").await;
    let clique = "/apis/grove.io/v1alpha1/namespaces/default/podcliques/p-0-a";
    cluster.patch(clique, json!({"spec": {"replicas": 4}})).await;
    cluster.until_pods("ready×4").await;
    let gang: Vec<PodGang> = cluster.list().await;
    assert_eq!(gang[0].spec.podgroups[0].min_replicas, 1, "the minimum does not scale");
    let before = uids(&cluster).await;
    let pod: Vec<Pod> = cluster.list().await;
    cluster.delete(&format!("/api/v1/namespaces/default/pods/{}", pod[0].metadata.name)).await;
    cluster
        .until("ready×4 true", async |cluster: &Cluster| {
            format!("{} {}", pods(cluster).await, uids(cluster).await != before)
        })
        .await;
    let gang: Vec<PodGang> = cluster.list().await;
    let listed = &gang[0].spec.podgroups[0].pod_references;
    assert_eq!(listed.len(), 4);
    cluster.patch(clique, json!({"spec": {"replicas": 1}})).await;
    cluster.until_pods("ready×1").await;
}

/// Deletes a pod of a clique and keeps its node from taking another.
async fn lose(cluster: &Cluster, clique: &str) {
    let pods: Vec<Pod> = cluster.list().await;
    let pod = pods
        .iter()
        .find(|pod| {
            pod.metadata.labels["grove.io/podclique"] == clique && pod.is_bound() && !pod.metadata.deleting()
        })
        .unwrap();
    let node = format!("/api/v1/nodes/{}", pod.spec.node_name);
    cluster.patch(&node, json!({"spec": {"unschedulable": true}})).await;
    cluster.delete(&format!("/api/v1/namespaces/default/pods/{}", pod.metadata.name)).await;
}

/// How many cliques kept all their pods, of those that had some.
fn kept(
    before: &std::collections::BTreeMap<String, Vec<String>>,
    after: &std::collections::BTreeMap<String, Vec<String>>,
) -> String {
    let mut names: Vec<&str> = before
        .iter()
        .filter(|(clique, uids)| {
            after.get(*clique).is_some_and(|now| uids.iter().any(|uid| now.contains(uid)))
        })
        .map(|(clique, _)| clique.as_str())
        .collect();
    names.sort_unstable();
    names.join(" ")
}

#[tokio::test(start_paused = true)]
async fn a_gang_below_its_minimum_is_made_anew() {
    let cluster = cluster(10).await;
    cluster.apply(set(WL1)).await;
    cluster.until_pods("ready×10").await;
    cluster.until("wl 1/1", ready).await;
    cluster.rest().await;
    let before = uids(&cluster).await;
    lose(&cluster, "wl-0-pc-a").await;
    cluster.until("", async |cluster: &Cluster| kept(&before, &uids(cluster).await)).await;
    cluster.cordon(0, 10, false).await;
    cluster.until_pods("ready×10").await;
    cluster.until("wl-0 Running", gangs).await;
    let gang: Vec<PodGang> = cluster.list().await;
    assert_eq!(gang.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pod_to_spare_is_no_breach() {
    let cluster = cluster(10).await;
    cluster.apply(set(WL2)).await;
    cluster.until_pods("ready×10").await;
    cluster.rest().await;
    let before = uids(&cluster).await;
    lose(&cluster, "wl-0-pc-a").await;
    cluster.rest().await;
    cluster.rest().await;
    assert_eq!(kept(&before, &uids(&cluster).await).split(' ').count(), 5);
    // The last one is too much.
    lose(&cluster, "wl-0-pc-a").await;
    cluster.until("", async |cluster: &Cluster| kept(&before, &uids(cluster).await)).await;
}

#[tokio::test(start_paused = true)]
async fn a_replica_of_a_group_goes_alone() {
    let cluster = cluster(10).await;
    cluster.apply(set("wl x1; pc-a 2/1; pc-b 1/1; pc-c 3/3; sg-x x2/1: pc-b pc-c")).await;
    cluster.until_pods("ready×10").await;
    cluster.rest().await;
    let before = uids(&cluster).await;
    lose(&cluster, "wl-0-sg-x-0-pc-c").await;
    cluster
        .until("wl-0-pc-a wl-0-sg-x-1-pc-b wl-0-sg-x-1-pc-c", async |cluster: &Cluster| {
            kept(&before, &uids(cluster).await)
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn what_never_ran_is_not_torn_down() {
    let cluster = cluster(5).await;
    cluster.apply(set(WL1)).await;
    cluster.until_pods("pending×10").await;
    let before = uids(&cluster).await;
    cluster.rest().await;
    cluster.rest().await;
    assert_eq!(uids(&cluster).await, before);
}

fn finite(text: &str, duration: &str, exit_code: &str) -> Value {
    let mut set = set(text);
    for clique in set["spec"]["template"]["cliques"].as_array_mut().unwrap() {
        clique["spec"]["podSpec"]["restartPolicy"] = json!("Never");
        clique["annotations"] =
            json!({"sim.muster.dev/duration": duration, "sim.muster.dev/exit-code": exit_code});
    }
    set
}

#[tokio::test(start_paused = true)]
async fn training_comes_to_an_end() {
    let cluster = cluster(5).await;
    cluster.apply(finite("train x1; master 1/1; workers 4/3", "20s", "0")).await;
    cluster.until_pods("ready×5").await;
    cluster.until_pods("done×5").await;
    cluster.until("train-0 Succeeded", gangs).await;
    cluster.rest().await;
    cluster.rest().await;
    assert_eq!(pods(&cluster).await, "done×5", "nothing is made again");
    let sets: Vec<PodCliqueSet> = cluster.list().await;
    assert!(holds(&sets[0].status, "Completed"));
    // What it held is free.
    cluster.apply(set("next x1; a 5/5")).await;
    cluster.until_pods("done×5 ready×5").await;
}

#[tokio::test(start_paused = true)]
async fn failures_are_tried_again_to_a_limit() {
    let cluster = cluster(2).await;
    let mut set = finite("train x1; w 2/2", "5s", "3");
    set["spec"]["template"]["cliques"][0]["annotations"]["grove.io/backoff-limit"] = json!("3");
    cluster.apply(set).await;
    cluster.until("train-0 Failed", gangs).await;
    let before = pods(&cluster).await;
    assert!(before.starts_with("failed×4") || before.starts_with("failed×5"), "{before}");
    cluster.rest().await;
    cluster.rest().await;
    assert_eq!(pods(&cluster).await, before);
    let sets: Vec<PodCliqueSet> = cluster.list().await;
    assert!(holds(&sets[0].status, "Failed"));
}

/// Scales sets and groups while there is no room, then gives room step by step; `n` nodes are free from the start.
struct Steps {
    cluster: Cluster,
    n_free: usize,
}

impl Steps {
    async fn new(text: &str, n_nodes: usize, n_free: usize) -> Self {
        let cluster = cluster(n_nodes).await;
        cluster.cordon(n_free, n_nodes, true).await;
        cluster.apply(set(text)).await;
        Steps { cluster, n_free }
    }

    async fn scale_set(&self, n: i64) {
        self.cluster.patch(&format!("{SETS}/wl"), json!({"spec": {"replicas": n}})).await;
    }

    async fn scale_group(&self, replica: i64, n: i64) {
        let path =
            format!("/apis/grove.io/v1alpha1/namespaces/default/podcliquescalinggroups/wl-{replica}-sg-x");
        self.cluster.patch(&path, json!({"spec": {"replicas": n}})).await;
    }

    /// Frees so many more nodes and says how many pods run then, and of how many.
    async fn room(&mut self, n_more: usize, n_running: usize, n_pods: usize) {
        self.cluster.cordon(self.n_free, n_more, false).await;
        self.n_free += n_more;
        let shown = async |cluster: &Cluster| {
            let pods: Vec<Pod> = cluster.list().await;
            format!("{} of {}", pods.iter().filter(|pod| pod.is_bound()).count(), pods.len())
        };
        let expected = format!("{n_running} of {n_pods}");
        self.cluster.until(&expected, shown).await;
        self.cluster.rest().await;
        assert_eq!(shown(&self.cluster).await, expected, "it stays so");
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_group_scales_as_a_unit() {
    let mut steps = Steps::new(WL1, 14, 10).await;
    steps.room(0, 10, 10).await;
    steps.scale_group(0, 3).await;
    steps.room(3, 10, 14).await;
    steps.room(1, 14, 14).await;
}

#[tokio::test(start_paused = true)]
async fn a_full_set_scales_as_a_unit() {
    let mut steps = Steps::new(WL1, 20, 10).await;
    steps.room(0, 10, 10).await;
    steps.scale_set(2).await;
    steps.room(9, 10, 20).await;
    steps.room(1, 20, 20).await;
}

#[tokio::test(start_paused = true)]
async fn a_scaled_gang_starts_with_its_minimum() {
    let mut steps = Steps::new(WL2, 14, 2).await;
    steps.room(0, 0, 10).await;
    steps.room(1, 3, 10).await;
    steps.room(7, 10, 10).await;
    steps.scale_group(0, 3).await;
    steps.room(1, 10, 14).await;
    steps.room(1, 12, 14).await;
    steps.room(2, 14, 14).await;
}

#[tokio::test(start_paused = true)]
async fn scaled_before_anything_runs() {
    let mut steps = Steps::new(WL2, 14, 0).await;
    steps.room(0, 0, 10).await;
    steps.scale_group(0, 3).await;
    steps.room(0, 0, 14).await;
    steps.room(3, 3, 14).await;
    steps.room(4, 7, 14).await;
    steps.room(7, 14, 14).await;
}

#[tokio::test(start_paused = true)]
async fn two_replicas_and_their_groups() {
    let mut steps = Steps::new(WL2, 28, 0).await;
    steps.room(0, 0, 10).await;
    steps.scale_set(2).await;
    steps.room(0, 0, 20).await;
    steps.scale_group(0, 3).await;
    steps.scale_group(1, 3).await;
    steps.room(0, 0, 28).await;
    steps.room(6, 6, 28).await;
    steps.room(8, 14, 28).await;
    steps.room(14, 28, 28).await;
}

#[tokio::test(start_paused = true)]
async fn the_last_of_a_scaled_replica_counts_for_the_group() {
    let cluster = cluster(10).await;
    cluster.apply(set(WL2)).await;
    cluster.until_pods("ready×10").await;
    cluster.rest().await;
    let before = uids(&cluster).await;
    for _ in 0..3 {
        lose(&cluster, "wl-0-sg-x-0-pc-c").await;
    }
    // One replica of the group is well, so only the other is made anew.
    cluster
        .until("wl-0-pc-a wl-0-sg-x-1-pc-b wl-0-sg-x-1-pc-c", async |cluster: &Cluster| {
            kept(&before, &uids(cluster).await)
        })
        .await;
    cluster.rest().await;
    for _ in 0..3 {
        lose(&cluster, "wl-0-sg-x-1-pc-c").await;
    }
    // Now none is, and the whole replica of the set goes.
    cluster.until("", async |cluster: &Cluster| kept(&before, &uids(cluster).await)).await;
    cluster.cordon(0, 10, false).await;
    cluster.until_pods("ready×10").await;
}
