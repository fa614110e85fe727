//! Scenarios as text: a set in short, a number of nodes, and lines of what is done and what must come of it.
//!
//! Nodes have room for one pod each and are closed at first. Lines:
//!
//! | line | what it does |
//! |---|---|
//! | `open N` | so many more nodes take pods |
//! | `close`, `open all` | no node takes new pods; all do |
//! | `set N`, `group NAME N`, `clique NAME N` | scales |
//! | `run A of B` | waits until A of B pods are ready, and sees that it stays so |
//! | `reach A of B` | the same without staying |
//! | `lose N CLIQUE` | deletes pods of a clique and closes their nodes |
//! | `drop N CLIQUE` | deletes pods of a clique |
//! | `remember` | takes down who is there |
//! | `kept CLIQUE ...` | waits until just these cliques have a pod of then |
//! | `same` | sees for a while that nobody of then has gone |
//! | `change IMAGE CLIQUE ...` | changes the template of cliques |
//! | `strategy TYPE` | how changes roll |
//! | `images IMAGE×N ...` | waits for so many pods of each image |
//! | `updated N` | waits for the end of the roll-out, with so many replicas updated |
//! | `wait SECONDS` | lets time pass |

use std::collections::BTreeMap;
use std::time::Duration;

use muster_grove::object::PodCliqueSet;
use muster_runtime::common::{Node, Pod};
use muster_runtime::object::is_true;
use serde_json::{Value, json};

use crate::cluster::{Cluster, SETS, cluster, set, uids};

pub struct Play {
    pub cluster: Cluster,
    name: String,
    remembered: BTreeMap<String, Vec<String>>,
}

/// Plays a scenario on a set given in short.
pub async fn play(text: &str, n_nodes: usize, script: &str) -> Play {
    play_object(set(text), n_nodes, script).await
}

/// Plays a scenario on a set that is applied first.
pub async fn play_object(object: Value, n_nodes: usize, script: &str) -> Play {
    let cluster = cluster(n_nodes).await;
    cluster
        .until(&n_nodes.to_string(), async |cluster: &Cluster| cluster.list::<Node>().await.len().to_string())
        .await;
    cluster.cordon(0, n_nodes, true).await;
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    cluster.apply(object).await;
    let mut play = Play { cluster, name, remembered: BTreeMap::new() };
    play.on(script).await;
    play
}

impl Play {
    pub async fn on(&mut self, script: &str) {
        for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
            self.line(line).await;
        }
    }

    async fn line(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let cluster = &self.cluster;
        match words.as_slice() {
            ["open", "all"] => self.open(usize::MAX).await,
            ["open", n] => self.open(n.parse().unwrap()).await,
            ["close"] => cluster.cordon(0, usize::MAX, true).await,
            ["set", n] => drop(cluster.patch(&format!("{SETS}/{}", self.name), replicas(n)).await),
            ["group", name, n] => {
                let path =
                    format!("/apis/grove.io/v1alpha1/namespaces/default/podcliquescalinggroups/{name}");
                cluster.patch(&path, replicas(n)).await;
            }
            ["clique", name, n] => {
                let path = format!("/apis/grove.io/v1alpha1/namespaces/default/podcliques/{name}");
                cluster.patch(&path, replicas(n)).await;
            }
            [verb @ ("run" | "reach"), a, "of", b] => {
                let expected = format!("{a} of {b}");
                cluster.until(&expected, running).await;
                if *verb == "run" {
                    cluster.rest().await;
                    assert_eq!(running(cluster).await, expected, "{line}: it stays so");
                }
            }
            ["lose", n, clique] => {
                for pod in self.of(clique).await.iter().filter(|pod| pod.is_bound()).take(n.parse().unwrap())
                {
                    let node = format!("/api/v1/nodes/{}", pod.spec.node_name);
                    self.cluster.patch(&node, json!({"spec": {"unschedulable": true}})).await;
                    self.cluster
                        .delete(&format!("/api/v1/namespaces/default/pods/{}", pod.metadata.name))
                        .await;
                }
            }
            ["drop", n, clique] => {
                for pod in self.of(clique).await.iter().take(n.parse().unwrap()) {
                    self.cluster
                        .delete(&format!("/api/v1/namespaces/default/pods/{}", pod.metadata.name))
                        .await;
                }
            }
            ["remember"] => self.remembered = uids(cluster).await,
            ["kept", cliques @ ..] => {
                let before = self.remembered.clone();
                let shown = async |cluster: &Cluster| {
                    let now = uids(cluster).await;
                    let kept = before.iter().filter(|(clique, uids)| {
                        now.get(*clique).is_some_and(|now| uids.iter().any(|uid| now.contains(uid)))
                    });
                    kept.map(|(clique, _)| clique.as_str()).collect::<Vec<_>>().join(" ")
                };
                cluster.until(&cliques.join(" "), shown).await;
            }
            ["same"] => {
                cluster.rest().await;
                cluster.rest().await;
                let now = uids(cluster).await;
                for (clique, uids) in &self.remembered {
                    assert!(uids.iter().all(|uid| now[clique].contains(uid)), "{line}: {clique}");
                }
            }
            ["change", image, cliques @ ..] => self.change(image, cliques).await,
            ["strategy", name] => {
                let body = json!({"spec": {"updateStrategy": {"type": name}}});
                cluster.patch(&format!("{SETS}/{}", self.name), body).await;
            }
            ["images", images @ ..] => cluster.until(&images.join(" "), all_images).await,
            ["updated", n] => {
                let shown = async |cluster: &Cluster| {
                    let sets: Vec<PodCliqueSet> = cluster.list().await;
                    let status = &sets[0].status;
                    let is_over = status["updateProgress"]["updateEndedAt"].is_string();
                    if is_over { status["updatedReplicas"].to_string() } else { "rolling".to_owned() }
                };
                cluster.until(n, shown).await;
            }
            ["wait", seconds] => tokio::time::sleep(Duration::from_secs(seconds.parse().unwrap())).await,
            _ => panic!("no such line: {line}"),
        }
    }

    async fn open(&self, n: usize) {
        let nodes = self.cluster.items("/api/v1/nodes").await;
        for node in nodes.iter().filter(|node| node["spec"]["unschedulable"] == true).take(n) {
            let path = format!("/api/v1/nodes/{}", node["metadata"]["name"].as_str().unwrap());
            self.cluster.patch(&path, json!({"spec": {"unschedulable": false}})).await;
        }
    }

    /// The pods of a clique that stay.
    pub async fn of(&self, clique: &str) -> Vec<Pod> {
        let pods: Vec<Pod> = self.cluster.list().await;
        pods.into_iter()
            .filter(|pod| pod.metadata.labels["grove.io/podclique"] == clique && !pod.metadata.deleting())
            .collect()
    }

    async fn change(&self, image: &str, cliques: &[&str]) {
        let path = format!("{SETS}/{}", self.name);
        let mut all = self.cluster.get(&path).await["spec"]["template"]["cliques"].clone();
        for clique in all.as_array_mut().unwrap() {
            if cliques.contains(&clique["name"].as_str().unwrap()) {
                clique["spec"]["podSpec"]["containers"][0]["image"] = json!(image);
            }
        }
        self.cluster.patch(&path, json!({"spec": {"template": {"cliques": all}}})).await;
    }
}

fn replicas(n: &str) -> Value {
    json!({"spec": {"replicas": n.parse::<i64>().unwrap()}})
}

async fn running(cluster: &Cluster) -> String {
    let pods: Vec<Pod> = cluster.list().await;
    let ready = pods.iter().filter(|pod| is_true(&pod.status.conditions, "Ready")).count();
    format!("{ready} of {}", pods.len())
}

async fn all_images(cluster: &Cluster) -> String {
    let pods = cluster.items("/api/v1/pods").await;
    let mut count: BTreeMap<String, usize> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()) {
        *count.entry(pod["spec"]["containers"][0]["image"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    count.iter().map(|(image, n)| format!("{image}×{n}")).collect::<Vec<_>>().join(" ")
}
