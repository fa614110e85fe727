//! Pods come, run and end; statuses follow, and are written seldom.

use std::time::Duration;

use muster_controllers::status::{self, Options};
use serde_json::{Value, json};

use crate::cluster::{Cluster, GROUPS, PODS, QUEUES, cluster, group, member, pod, queue};

const SOON: Duration = Duration::from_secs(5);

fn list(value: &Value) -> String {
    let all = value.as_object().into_iter().flatten();
    all.map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or("?"))).collect::<Vec<_>>().join(" ")
}

/// Resources as `requested/allocated/non-preemptible`, and the conditions that hold.
async fn shown_group(cluster: &Cluster, name: &str) -> String {
    let group = cluster.get(&format!("{GROUPS}/{name}")).await;
    let resources = &group["status"]["resourcesStatus"];
    let on: Vec<&str> = group["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|c| c["status"] == "True")
        .filter_map(|c| c["type"].as_str())
        .collect();
    let [requested, allocated, fixed] =
        ["requested", "allocated", "allocatedNonPreemptible"].map(|field| list(&resources[field]));
    format!("{requested}/{allocated}/{fixed} {}", on.join("+"))
}

async fn shown_queue(cluster: &Cluster, name: &str) -> String {
    let queue = cluster.get(&format!("{QUEUES}/{name}")).await;
    let status = &queue["status"];
    let children: Vec<&str> =
        status["childQueues"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let on: Vec<&str> = status["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|c| c["status"] == "True")
        .filter_map(|c| c["type"].as_str())
        .collect();
    format!(
        "[{}] {}/{} {}",
        children.join(" "),
        list(&status["requested"]),
        list(&status["allocated"]),
        on.join("+")
    )
}

/// A queue's GPUs are counted as its quota counts them, whoever made them and however they are divided.
#[tokio::test(start_paused = true)]
async fn gpus_of_every_vendor_are_in_the_metrics() {
    let cluster = cluster().await;
    cluster.post(QUEUES, queue("team", "")).await;
    cluster.post(GROUPS, group("g", "team", 1)).await;
    let mut metrics = None;
    cluster.start(|cx| {
        metrics = Some(cx.metrics.clone());
        status::start(cx, Options::default())
    });
    let metrics = metrics.unwrap();
    for (name, gpu, n) in [("amd", "amd.com/gpu", "3"), ("mig", "nvidia.com/mig-2g.10gb", "2")] {
        let mut pod = member(name, "g");
        pod["spec"]["containers"][0]["resources"] = json!({"requests": {gpu: n}, "limits": {gpu: n}});
        cluster.post(PODS, pod).await;
        cluster.bind(name, "n1").await;
    }
    cluster.until(SOON, "7", async |_| metrics.queues.allocated_gpus.of(["team"]).get().to_string()).await;
}

#[tokio::test(start_paused = true)]
async fn statuses_follow_pods() {
    let cluster = cluster().await;
    cluster.post(QUEUES, queue("root", "")).await;
    cluster.post(QUEUES, queue("team", "root")).await;
    cluster.post(GROUPS, group("g", "team", 2)).await;
    let mut metrics = None;
    cluster.start(|cx| {
        metrics = Some(cx.metrics.clone());
        status::start(cx, Options::default())
    });
    let metrics = metrics.unwrap();
    cluster.until(SOON, "[team] / ", async |c| shown_queue(c, "root").await).await;

    for name in ["a", "b"] {
        cluster.post(PODS, member(name, "g")).await;
    }
    cluster.until(SOON, "cpu=2 memory=2Gi// ", async |c| shown_group(c, "g").await).await;
    cluster.until(SOON, "[team] cpu=2 memory=2Gi/ ", async |c| shown_queue(c, "root").await).await;

    for name in ["a", "b"] {
        cluster.bind(name, "n1").await;
    }
    let held = "cpu=2 memory=2Gi/cpu=2 memory=2Gi/ Scheduled";
    cluster.until(SOON, held, async |c| shown_group(c, "g").await).await;
    cluster.until(SOON, "2", async |_| metrics.queues.allocated_cpu.of(["team"]).get().to_string()).await;
    assert_eq!(metrics.queues.info.of(["root"]).get(), 1.0);
    for name in ["a", "b"] {
        cluster.phase(name, "Running").await;
    }
    cluster.until(SOON, &format!("{held}+Running"), async |c| shown_group(c, "g").await).await;
    cluster
        .until(SOON, "[] cpu=2 memory=2Gi/cpu=2 memory=2Gi ", async |c| shown_queue(c, "team").await)
        .await;

    // It becomes non-preemptible and preemptible again.
    cluster.patch(&format!("{GROUPS}/g"), json!({"spec": {"preemptibility": "non-preemptible"}})).await;
    let fixed = "cpu=2 memory=2Gi/cpu=2 memory=2Gi/cpu=2 memory=2Gi Scheduled+Running";
    cluster.until(SOON, fixed, async |c| shown_group(c, "g").await).await;
    cluster.patch(&format!("{GROUPS}/g"), json!({"spec": {"preemptibility": "preemptible"}})).await;
    cluster.until(SOON, &format!("{held}+Running"), async |c| shown_group(c, "g").await).await;

    // It is deleted and made again so fast that its pods count as before.
    cluster.delete(&format!("{GROUPS}/g")).await;
    cluster.post(GROUPS, group("g", "team", 2)).await;
    cluster.until(SOON, &format!("{held}+Running"), async |c| shown_group(c, "g").await).await;

    // It moves to another queue.
    cluster.post(QUEUES, queue("other", "root")).await;
    cluster.patch(&format!("{GROUPS}/g"), json!({"spec": {"queue": "other"}})).await;
    cluster.until(SOON, "[] / ", async |c| shown_queue(c, "team").await).await;
    cluster
        .until(SOON, "[] cpu=2 memory=2Gi/cpu=2 memory=2Gi ", async |c| shown_queue(c, "other").await)
        .await;

    cluster.phase("a", "Succeeded").await;
    cluster.phase("b", "Succeeded").await;
    cluster.until(SOON, "// Scheduled+Completed", async |c| shown_group(c, "g").await).await;
    cluster.until(SOON, "[other team] / ", async |c| shown_queue(c, "root").await).await;
    for name in ["a", "b"] {
        cluster.delete(&format!("{PODS}/{name}")).await;
    }
    tokio::time::sleep(SOON).await;
    assert_eq!(shown_group(&cluster, "g").await, "// Scheduled+Completed", "what has ended stays so");
    cluster.delete(&format!("{QUEUES}/other")).await;
    cluster.until(SOON, "[team] / ", async |c| shown_queue(c, "root").await).await;
}

#[tokio::test(start_paused = true)]
async fn shares_claims_and_odd_queues() {
    let cluster = cluster().await;
    cluster.start(|cx| status::start(cx, Options::default()));
    cluster
        .post(
            "/api/v1/nodes",
            json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n1", "labels": {"nvidia.com/gpu.memory": "16000"}}}),
        )
        .await;
    cluster.post(QUEUES, queue("lost", "nowhere")).await;
    cluster.until(SOON, "[] / Orphan", async |c| shown_queue(c, "lost").await).await;

    cluster.post(GROUPS, group("g", "lost", 1)).await;
    cluster
        .post(
            PODS,
            pod("a", json!({"pod-group-name": "g", "gpu-memory": "4000", "gpu-fraction-num-devices": "4"})),
        )
        .await;
    cluster.post(PODS, pod("b", json!({"pod-group-name": "g", "gpu-fraction": "0.5"}))).await;
    cluster.bind("a", "n1").await;
    cluster.bind("b", "n1").await;
    let held = "cpu=2 memory=2Gi nvidia.com/gpu=1500m";
    let wanted = format!("[] {held} run.ai/gpu.memory=16000Mi/{held} Orphan+OverQuota");
    cluster.until(SOON, &wanted, async |c| shown_queue(c, "lost").await).await;
    cluster
        .patch("/api/v1/nodes/n1", json!({"metadata": {"labels": {"nvidia.com/gpu.memory": "32000"}}}))
        .await;
    let held = "cpu=2 memory=2Gi nvidia.com/gpu=1020m";
    let wanted = format!("{held} run.ai/gpu.memory=16000Mi/{held}/ Scheduled");
    cluster.until(SOON, &wanted, async |c| shown_group(c, "g").await).await;

    cluster.post(QUEUES, queue("nowhere", "")).await;
    cluster
        .until(SOON, &format!("[lost] {held} run.ai/gpu.memory=16000Mi/{held} OverQuota"), async |c| {
            shown_queue(c, "nowhere").await
        })
        .await;
    let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "two", "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu.x.io", "count": 2}}]}}});
    cluster.post("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims", claim).await;
    cluster.post(GROUPS, group("dra", "lost", 1)).await;
    let mut user = member("c", "dra");
    user["spec"]["resourceClaims"] = json!([{"name": "x", "resourceClaimName": "two"}]);
    cluster.post(PODS, user).await;
    let wanted = "cpu=1 gpu.x.io=2 memory=1Gi// ";
    cluster.until(SOON, wanted, async |c| shown_group(c, "dra").await).await;
}

/// Gangs of 8 that come and are placed at once, as a burst does.
async fn burst(cluster: &Cluster, n_gangs: usize) {
    for g in 0..n_gangs {
        cluster.post(GROUPS, group(&format!("g{g}"), "team", 8)).await;
        for p in 0..8 {
            cluster.post(PODS, member(&format!("g{g}-{p}"), &format!("g{g}"))).await;
        }
    }
    for g in 0..n_gangs {
        for p in 0..8 {
            cluster.bind(&format!("g{g}-{p}"), "n1").await;
        }
        // Ten gangs, eighty pods per 100 ms: about what a scheduler does.
        if g % 10 == 9 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    // Kubelets are slower than schedulers, and not in step.
    for p in 0..8 {
        for g in 0..n_gangs {
            cluster.phase(&format!("g{g}-{p}"), "Running").await;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_burst_costs_about_one_write_per_gang_and_a_restart_none() {
    let cluster = cluster().await;
    cluster.post(QUEUES, queue("root", "")).await;
    cluster.post(QUEUES, queue("team", "root")).await;
    let first = cluster.start(|cx| status::start(cx, Options::default()));
    tokio::time::sleep(SOON).await;
    burst(&cluster, 100).await;
    let in_burst = cluster.count("PATCH podgroups/status");
    assert!(in_burst <= 10, "statuses yield to scheduling: {}", cluster.writes());
    let all = "[team] cpu=800 memory=800Gi/cpu=800 memory=800Gi ";
    cluster.until(Duration::from_secs(60), all, async |c| shown_queue(c, "root").await).await;
    let last = "cpu=8 memory=8Gi/cpu=8 memory=8Gi/ Scheduled+Running";
    for g in 0..100 {
        cluster.until(Duration::from_secs(60), last, async |c| shown_group(c, &format!("g{g}")).await).await;
    }
    tokio::time::sleep(SOON).await;
    let (groups, queues) = (cluster.count("PATCH podgroups/status"), cluster.count("PATCH queues/status"));
    assert!((100..=110).contains(&groups), "{}", cluster.writes());
    assert!(queues <= 20, "{}", cluster.writes());

    first.cancel();
    cluster.asked.lock().unwrap().clear();
    cluster.start(|cx| status::start(cx, Options::default()));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(cluster.count("GET podgroups") > 0);
    assert_eq!(cluster.writes(), "", "a restart finds everything as it should be");

    // What somebody overwrites is put right.
    cluster
        .patch(
            &format!("{GROUPS}/g7/status"),
            json!({"status": {"resourcesStatus": {"allocated": {"cpu": "1"}}}}),
        )
        .await;
    cluster.until(SOON, last, async |c| shown_group(c, "g7").await).await;
    // The scheduler's own conditions are not ours.
    cluster.patch(&format!("{GROUPS}/g7/status"), json!({"status": {"schedulingConditions": [{"type": "UnschedulableOnNodePool", "status": "True"}]}})).await;
    cluster.phase("g7-0", "Failed").await;
    cluster.until(SOON, "cpu=7 memory=7Gi/cpu=7 memory=7Gi/ ", async |c| shown_group(c, "g7").await).await;
    let kept = cluster.get(&format!("{GROUPS}/g7")).await;
    assert_eq!(kept["status"]["schedulingConditions"][0]["status"], "True");
}

#[tokio::test(start_paused = true)]
async fn short_lives_cost_nothing() {
    let cluster = cluster().await;
    cluster.post(QUEUES, queue("team", "")).await;
    cluster.start(|cx| status::start(cx, Options::default()));
    tokio::time::sleep(SOON).await;
    for g in 0..20 {
        let name = format!("g{g}");
        cluster.post(GROUPS, group(&name, "team", 1)).await;
        cluster.post(PODS, member(&name, &name)).await;
        cluster.bind(&name, "n1").await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        cluster.delete(&format!("{PODS}/{name}")).await;
        cluster.delete(&format!("{GROUPS}/{name}")).await;
    }
    tokio::time::sleep(SOON).await;
    assert_eq!(cluster.count("PATCH podgroups/status"), 0, "{}", cluster.writes());
    assert_eq!(shown_queue(&cluster, "team").await, "[] / ");
    let queues = cluster.count("PATCH queues/status");
    assert!(queues <= 9, "at most one per second: {}", cluster.writes());
}

/// A small generator of numbers, so that a failure can be seen again.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// What the statuses must say, counted anew from what the server has: cpu requested and allocated of every queue.
async fn counted_anew(cluster: &Cluster) -> Vec<String> {
    let items = async |path: &str| cluster.get(path).await["items"].as_array().cloned().unwrap_or_default();
    let (pods, groups, queues) = (items(PODS).await, items(GROUPS).await, items(QUEUES).await);
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or("").to_owned();
    let parent = |queue: &str| {
        let queue = queues.iter().find(|q| name(q) == queue)?;
        Some(queue["spec"]["parentQueue"].as_str().unwrap_or("").to_owned())
    };
    let mut lines = Vec::new();
    for queue in &queues {
        let (mut requested, mut allocated) = (0, 0);
        for pod in &pods {
            let over = ["Succeeded", "Failed"].contains(&pod["status"]["phase"].as_str().unwrap_or(""));
            let of = pod["metadata"]["annotations"]["pod-group-name"].as_str();
            let Some(group) = groups.iter().find(|g| Some(&*name(g)) == of).filter(|_| !over) else {
                continue;
            };
            let mut way: Vec<String> = Vec::new();
            let mut at = group["spec"]["queue"].as_str().unwrap_or("").to_owned();
            while !at.is_empty() && !way.contains(&at) {
                way.push(at.clone());
                at = parent(&at).unwrap_or_default();
            }
            if way.contains(&name(queue)) {
                requested += 1;
                allocated += i64::from(pod["spec"]["nodeName"].is_string());
            }
        }
        let cpu = |n: i64| if n == 0 { String::new() } else { n.to_string() };
        lines.push(format!("{} {}/{}", name(queue), cpu(requested), cpu(allocated)));
    }
    lines
}

async fn said_by_queues(cluster: &Cluster) -> Vec<String> {
    let queues = cluster.get(QUEUES).await["items"].as_array().cloned().unwrap_or_default();
    let cpu = |queue: &Value, field: &str| queue["status"][field]["cpu"].as_str().unwrap_or("").to_owned();
    queues
        .iter()
        .map(|q| {
            format!(
                "{} {}/{}",
                q["metadata"]["name"].as_str().unwrap(),
                cpu(q, "requested"),
                cpu(q, "allocated")
            )
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn whatever_happens_sums_are_those_of_a_count_anew() {
    for seed in 1..=3 {
        let (mut dice, mut n_sums) = (Dice(seed), 0);
        let cluster = cluster().await;
        let mut service = cluster.start(|cx| status::start(cx, Options::default()));
        for step in 0..120 {
            let (pod, group_name) = (format!("p{}", dice.below(12)), format!("g{}", dice.below(4)));
            let (queue_name, parent) =
                (format!("q{}", dice.below(4)), ["", "q0", "q1", "q2", "q3"][dice.below(5) as usize]);
            let exists = async |path: String| !cluster.get(&path).await.is_null();
            let there = exists(format!("{PODS}/{pod}")).await;
            match dice.below(9) {
                0..=2 if !there => drop(cluster.post(PODS, member(&pod, &group_name)).await),
                0 | 1 if cluster.get(&format!("{PODS}/{pod}")).await["spec"]["nodeName"].is_null() => {
                    cluster.bind(&pod, "n").await
                }
                2 => cluster.phase(&pod, ["Running", "Succeeded", "Failed"][dice.below(3) as usize]).await,
                3 if there => cluster.delete(&format!("{PODS}/{pod}")).await,
                4 if !exists(format!("{GROUPS}/{group_name}")).await => {
                    drop(cluster.post(GROUPS, group(&group_name, &queue_name, 2)).await)
                }
                4 if dice.below(3) == 0 => cluster.delete(&format!("{GROUPS}/{group_name}")).await,
                4 => drop(
                    cluster
                        .patch(&format!("{GROUPS}/{group_name}"), json!({"spec": {"queue": queue_name}}))
                        .await,
                ),
                5 if !exists(format!("{QUEUES}/{queue_name}")).await => {
                    drop(cluster.post(QUEUES, queue(&queue_name, parent)).await)
                }
                5 if dice.below(4) == 0 => cluster.delete(&format!("{QUEUES}/{queue_name}")).await,
                5 => drop(
                    cluster
                        .patch(&format!("{QUEUES}/{queue_name}"), json!({"spec": {"parentQueue": parent}}))
                        .await,
                ),
                6 => tokio::time::sleep(Duration::from_millis(dice.below(1500))).await,
                7 if dice.below(10) == 0 => {
                    service.cancel();
                    service = cluster.start(|cx| status::start(cx, Options::default()));
                }
                _ => {}
            }
            if step % 30 == 29 {
                tokio::time::sleep(SOON).await;
                assert_eq!(
                    said_by_queues(&cluster).await,
                    counted_anew(&cluster).await,
                    "seed {seed} step {step}"
                );
                n_sums += said_by_queues(&cluster).await.iter().filter(|line| !line.ends_with(" /")).count();
            }
        }
        assert!(n_sums > 0, "nothing was ever counted");
    }
}
