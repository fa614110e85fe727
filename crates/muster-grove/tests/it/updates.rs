//! Changes of templates, order of start, restarts, and how much is written.

use std::collections::BTreeMap;

use muster_grove::Options;
use muster_grove::object::{PodClique, PodCliqueSet};
use muster_runtime::common::Pod;
use muster_runtime::object::condition;
use muster_sim::faults::{Fault, FaultLayer, Rule};
use serde_json::{Value, json};

use crate::cluster::{Cluster, SETS, bare, cluster, gangs, pods, ready, set, uids};

async fn change(cluster: &Cluster, name: &str, cliques: &[&str]) {
    let path = format!("{SETS}/{name}");
    let mut object = cluster.get(&path).await;
    for clique in object["spec"]["template"]["cliques"].as_array_mut().unwrap() {
        if cliques.contains(&clique["name"].as_str().unwrap()) {
            clique["spec"]["podSpec"]["containers"][0]["image"] = json!("app:2");
        }
    }
    let cliques = object["spec"]["template"]["cliques"].clone();
    cluster.patch(&path, json!({"spec": {"template": {"cliques": cliques}}})).await;
}

/// How many pods run each image, leaving ones apart.
async fn images(cluster: &Cluster) -> String {
    let pods = cluster.items("/api/v1/pods").await;
    let mut count: BTreeMap<String, usize> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()) {
        *count.entry(pod["spec"]["containers"][0]["image"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    count.iter().map(|(image, n)| format!("{image}×{n}")).collect::<Vec<_>>().join(" ")
}

async fn progress(cluster: &Cluster) -> String {
    let sets: Vec<PodCliqueSet> = cluster.list().await;
    let progress = &sets[0].status["updateProgress"];
    let ended = if progress["updateEndedAt"].is_string() { "ended" } else { "running" };
    format!("{ended} {} updated", sets[0].status["updatedReplicas"])
}

#[tokio::test(start_paused = true)]
async fn a_change_rolls_over_replicas_one_by_one() {
    let cluster = cluster(12).await;
    cluster.apply(set("p x2; a 3/2; b 1/1; sg x2/1: b")).await;
    cluster.until_pods("ready×10").await;
    cluster.until("p 2/2", ready).await;
    change(&cluster, "p", &["a", "b"]).await;
    let mut fewest = 10;
    let mut both = false;
    loop {
        let pods: Vec<Pod> = cluster.list().await;
        let old = pods.iter().filter(|pod| !pod.metadata.deleting());
        let n_ready =
            old.filter(|pod| muster_runtime::object::is_true(&pod.status.conditions, "Ready")).count();
        fewest = fewest.min(n_ready);
        let sets: Vec<PodCliqueSet> = cluster.list().await;
        let updating = sets[0].status["updateProgress"]["currentlyUpdating"].as_array().map_or(0, Vec::len);
        both |= updating > 1;
        if progress(&cluster).await == "ended 2 updated" && crate::cluster::pods(&cluster).await == "ready×10"
        {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert_eq!(images(&cluster).await, "app:2×10");
    assert!(!both, "one replica at a time");
    assert!(fewest >= 7, "one pod of the clique and one replica of the group at a time, not {fewest}");
}

#[tokio::test(start_paused = true)]
async fn a_roll_out_without_room_stops_after_one() {
    let cluster = cluster(3).await;
    cluster.apply(set("p x1; a 3/2")).await;
    cluster.until_pods("ready×3").await;
    cluster.until("p 1/1", ready).await;
    cluster.cordon(0, 3, true).await;
    change(&cluster, "p", &["a"]).await;
    cluster.until_pods("pending×1 ready×2").await;
    cluster.rest().await;
    assert_eq!(images(&cluster).await, "app:1×2 app:2×1");
    cluster.cordon(0, 3, false).await;
    cluster.until("ended 1 updated", progress).await;
    assert_eq!(images(&cluster).await, "app:2×3");
}

#[tokio::test(start_paused = true)]
async fn on_delete_waits_for_somebody() {
    let cluster = cluster(4).await;
    let mut object = set("p x1; a 2/1; b 1/1; sg x2/1: b");
    object["spec"]["updateStrategy"] = json!({"type": "OnDelete"});
    cluster.apply(object).await;
    cluster.until_pods("ready×4").await;
    cluster.until("p 1/1", ready).await;
    let before = uids(&cluster).await;
    change(&cluster, "p", &["a", "b"]).await;
    cluster.until("ended 0 updated", progress).await;
    cluster.rest().await;
    assert_eq!(uids(&cluster).await, before);
    let pods: Vec<Pod> = cluster.list().await;
    let of_a: Vec<&Pod> =
        pods.iter().filter(|pod| pod.metadata.labels["grove.io/podclique"] == "p-0-a").collect();
    cluster.delete(&format!("/api/v1/namespaces/default/pods/{}", of_a[0].metadata.name)).await;
    cluster.until("app:1×3 app:2×1", images).await;
    cluster.until_pods("ready×4").await;
    // Scaling in takes the old one.
    let clique = "/apis/grove.io/v1alpha1/namespaces/default/podcliques/p-0-a";
    cluster.patch(clique, json!({"spec": {"replicas": 1}})).await;
    cluster.until("app:1×2 app:2×1", images).await;
    // And rolling takes over where it is chosen.
    cluster
        .patch(&format!("{SETS}/p"), json!({"spec": {"updateStrategy": {"type": "RollingRecreate"}}}))
        .await;
    cluster.until("app:2×3", images).await;
    cluster.until("ended 1 updated", progress).await;
}

#[tokio::test(start_paused = true)]
async fn containers_start_in_order() {
    let cluster = cluster(10).await;
    let mut object = set("wl x1; pc-a 2/1; pc-b 1/1; pc-c 3/1; sg-x x2/1: pc-b pc-c");
    object["spec"]["template"]["cliqueStartupType"] = json!("CliqueStartupTypeInOrder");
    object["spec"]["template"]["terminationDelay"] = json!("4h");
    object["spec"]["template"]["cliques"][0]["annotations"] = json!({"sim.muster.dev/ready-delay": "60s"});
    cluster.apply(object).await;
    // Everything is placed at once; what waits is the secret that later cliques mount.
    cluster
        .until("10", async |cluster: &Cluster| {
            let pods: Vec<Pod> = cluster.list().await;
            pods.iter().filter(|pod| pod.is_bound()).count().to_string()
        })
        .await;
    let open = async |cluster: &Cluster| {
        let secrets = cluster.items("/api/v1/namespaces/default/secrets").await;
        let cliques: Vec<PodClique> = cluster.list().await;
        let mut shown: Vec<String> = secrets
            .iter()
            .filter(|secret| secret["metadata"]["name"].as_str().unwrap().starts_with("grove-start-"))
            .map(|secret| {
                let owner = secret["metadata"]["ownerReferences"][0]["name"].as_str().unwrap().to_owned();
                assert!(cliques.iter().any(|clique| clique.metadata.name == owner));
                owner
            })
            .collect();
        shown.sort();
        shown.join(", ")
    };
    // The scaled gang has its own order, and waits for nobody outside.
    cluster.until("wl-0-sg-x-1-pc-c", open).await;
    cluster.until("wl-0-sg-x-0-pc-b, wl-0-sg-x-1-pc-c", open).await;
    cluster.until("wl-0-sg-x-0-pc-b, wl-0-sg-x-0-pc-c, wl-0-sg-x-1-pc-c", open).await;
    cluster.until_pods("ready×10").await;
    let pods: Vec<Pod> = cluster.list().await;
    let times = |clique: &str| -> Vec<_> {
        let of = pods.iter().filter(|pod| pod.metadata.labels["grove.io/podclique"] == clique);
        let ready =
            of.map(|pod| condition(&pod.status.conditions, "Ready").unwrap().last_transition_time.unwrap());
        ready.collect()
    };
    let (a, b, c) = (times("wl-0-pc-a"), times("wl-0-sg-x-0-pc-b"), times("wl-0-sg-x-0-pc-c"));
    assert!(a.iter().max() <= b.iter().min() && b.iter().max() <= c.iter().min(), "{a:?} {b:?} {c:?}");
    let pod = cluster.items("/api/v1/pods?labelSelector=grove.io/podclique%3Dwl-0-sg-x-0-pc-b").await;
    assert_eq!(pod[0]["spec"]["volumes"][0]["name"], "grove-start");
}

#[tokio::test(start_paused = true)]
async fn a_restart_finds_everything_and_writes_nothing() {
    let cluster = bare(10).await;
    let first = cluster.start(Options::default());
    cluster.apply(set("wl x1; pc-a 2/1; pc-b 1/1; pc-c 3/1; sg-x x2/1: pc-b pc-c")).await;
    cluster.until_pods("ready×10").await;
    cluster.until("wl 1/1", ready).await;
    cluster.rest().await;
    first.cancel();
    cluster.take_writes();
    cluster.start(Options::default());
    cluster.rest().await;
    assert_eq!(cluster.take_writes(), BTreeMap::new());
}

#[tokio::test(start_paused = true)]
async fn killed_again_and_again_it_makes_the_same() {
    let cluster = bare(10).await;
    let mut running = cluster.start(Options::default());
    cluster.apply(set("wl x1; pc-a 2/1; pc-b 1/1; pc-c 3/1; sg-x x2/1: pc-b pc-c")).await;
    for pause in [1, 7, 13, 29, 31, 47, 60, 90, 150, 333] {
        tokio::time::sleep(std::time::Duration::from_millis(pause)).await;
        running.cancel();
        running = cluster.start(Options::default());
    }
    cluster.until_pods("ready×10").await;
    cluster.until("wl-0 Running, wl-0-sg-x-0 Running", gangs).await;
    cluster.rest().await;
    assert_eq!(pods(&cluster).await, "ready×10");
}

/// A server that refuses, forgets to answer and cuts watches: what comes of it is the same.
#[tokio::test(start_paused = true)]
async fn a_bad_day_of_the_server() {
    for seed in 1..4 {
        let cluster = bare(10).await;
        let faults = FaultLayer::new(
            seed,
            vec![
                Rule::on("create", "").chance(100).fault(Fault::Status(500)),
                Rule::on("create", "").chance(100).fault(Fault::LostAnswer),
                Rule::on("patch", "").chance(150).fault(Fault::Status(409)),
                Rule::on("patch", "").chance(100).fault(Fault::LostAnswer),
                Rule::on("delete", "").chance(200).fault(Fault::Status(503)),
                Rule::on("watch", "").chance(300).fault(Fault::CutWatch { after: 7 }),
                Rule::on("watch", "").chance(100).fault(Fault::ExpireWatch { after: 11 }),
            ],
        );
        cluster.start_through(Options::default(), faults);
        cluster.apply(set("wl x1; pc-a 2/1; pc-b 1/1; pc-c 3/1; sg-x x2/1: pc-b pc-c")).await;
        cluster.until_pods("ready×10").await;
        cluster.until("wl-0 Running, wl-0-sg-x-0 Running", gangs).await;
        cluster.until("wl 1/1", ready).await;
        change(&cluster, "wl", &["pc-a", "pc-b", "pc-c"]).await;
        cluster.until("ended 1 updated", progress).await;
        cluster.until_pods("ready×10").await;
        assert_eq!(images(&cluster).await, "app:2×10");
        cluster.patch(&format!("{SETS}/wl"), json!({"spec": {"replicas": 0}})).await;
        cluster.until("0 0 0 0", crate::cluster::counts).await;
    }
}

/// Writes for each pod of many small gangs.
#[tokio::test(start_paused = true)]
async fn little_is_written() {
    let cluster = bare(100).await;
    cluster.start(Options::default());
    cluster.apply(set("p x50; a 2/2")).await;
    cluster.until_pods("ready×100").await;
    cluster.until("p 50/50", ready).await;
    cluster.rest().await;
    let writes = cluster.take_writes();
    let n_writes: usize = writes.values().sum();
    println!("{n_writes} writes for 100 pods: {writes:?}");
    assert!(n_writes <= 700, "{n_writes} writes for 100 pods: {writes:?}");
    // One event changes only what it must.
    cluster.delete("/apis/grove.io/v1alpha1/namespaces/default/podcliques/p-7-a").await;
    cluster.rest().await;
    cluster.until_pods("ready×100").await;
    let again: usize = cluster.take_writes().values().sum();
    assert!(again <= 25, "{again}");
}

/// One set with one large gang: creation and gate are two writes for each pod, and the rest must be little.
#[tokio::test(start_paused = true)]
async fn a_large_gang_is_cheap() {
    let cluster = bare(1).await;
    cluster.start(Options::default());
    cluster.apply(set("p x1; a 1000/1000")).await;
    cluster.until_pods("pending×1000").await;
    cluster.rest().await;
    let writes = cluster.take_writes();
    let n_writes: usize = writes.values().sum();
    assert!(n_writes <= 2100, "{n_writes} writes for 1000 pods: {writes:?}");
    assert!(writes["PATCH podgangs"] <= 4, "{writes:?}");
}

/// Objects as today's Grove left them: other hashes, its finalizers, its gate.
#[tokio::test(start_paused = true)]
async fn takes_over_from_another_operator() {
    let cluster = bare(4).await;
    let first =
        cluster.start(Options { gate: "grove.io/podgang-pending-creation".into(), ..Options::default() });
    cluster.apply(set("p x1; a 2/1; b 1/1; sg x2/1: b")).await;
    cluster.until_pods("ready×4").await;
    cluster.rest().await;
    first.cancel();
    let theirs = json!({"labels": {"grove.io/pod-template-hash": "6d8f9c7b5"}});
    let cliques: Vec<PodClique> = cluster.list().await;
    for clique in &cliques {
        let path = format!("/apis/grove.io/v1alpha1/namespaces/default/podcliques/{}", clique.metadata.name);
        let mut meta = theirs.clone();
        meta["finalizers"] = json!(["grove.io/podclique.grove.io"]);
        cluster.patch(&path, json!({"metadata": meta})).await;
        let status = json!({"status": {"currentPodTemplateHash": "6d8f9c7b5"}});
        cluster.patch(&format!("{path}/status"), status).await;
    }
    let pods_before: Vec<Pod> = cluster.list().await;
    for pod in &pods_before {
        let path = format!("/api/v1/namespaces/default/pods/{}", pod.metadata.name);
        cluster.patch(&path, json!({"metadata": theirs})).await;
    }
    let set_path = format!("{SETS}/p");
    cluster.patch(&set_path, json!({"metadata": {"finalizers": ["grove.io/podcliqueset.grove.io"]}})).await;
    let status: Value = json!({"status": {"currentGenerationHash": "7f8c9d"}});
    cluster.patch(&format!("{set_path}/status"), status).await;
    let before = uids(&cluster).await;
    cluster.start(Options::default());
    cluster.rest().await;
    cluster.rest().await;
    assert_eq!(uids(&cluster).await, before, "no pod is restarted");
    cluster.until("p 1/1", ready).await;
    // A change rolls all the same.
    change(&cluster, "p", &["a", "b"]).await;
    cluster.until("app:2×4", images).await;
    // And nothing holds a deletion.
    cluster.delete(&set_path).await;
    cluster.until("0 0 0 0", crate::cluster::counts).await;
}

/// Scaled while a change rolls: what comes is new and is not rolled again, and the roll-out comes to its end.
#[tokio::test(start_paused = true)]
async fn scaled_in_the_middle_of_a_roll_out() {
    let cluster = cluster(20).await;
    let mut object = set("p x2; a 2/1; b 1/1; sg x2/1: b");
    for clique in object["spec"]["template"]["cliques"].as_array_mut().unwrap() {
        clique["annotations"] = json!({"sim.muster.dev/ready-delay": "2s"});
    }
    object["spec"]["template"]["terminationDelay"] = json!("1h");
    cluster.apply(object).await;
    cluster.until_pods("ready×8").await;
    cluster.until("p 2/2", ready).await;
    change(&cluster, "p", &["a", "b"]).await;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    cluster.patch(&format!("{SETS}/p"), json!({"spec": {"replicas": 3}})).await;
    let group = "/apis/grove.io/v1alpha1/namespaces/default/podcliquescalinggroups/p-1-sg";
    cluster.patch(group, json!({"spec": {"replicas": 3}})).await;
    let clique = "/apis/grove.io/v1alpha1/namespaces/default/podcliques/p-1-a";
    cluster.patch(clique, json!({"spec": {"replicas": 3}})).await;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let of_new = uids(&cluster).await["p-2-a"].clone();
    cluster.until("ended 3 updated", progress).await;
    cluster.until_pods("ready×14").await;
    assert_eq!(images(&cluster).await, "app:2×14");
    assert_eq!(uids(&cluster).await["p-2-a"], of_new, "what came new was not rolled");
    // And scaled in while another rolls.
    let path = format!("{SETS}/p");
    let mut cliques = cluster.get(&path).await["spec"]["template"]["cliques"].clone();
    cliques[0]["spec"]["podSpec"]["containers"][0]["image"] = json!("app:3");
    cluster.patch(&path, json!({"spec": {"template": {"cliques": cliques}}})).await;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    cluster.patch(&path, json!({"spec": {"replicas": 1}})).await;
    cluster.until("ended 1 updated", progress).await;
    cluster.until("app:2×2 app:3×2", images).await;
}
