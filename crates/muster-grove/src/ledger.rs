//! What is free on nodes, for whoever must know whether a gang fits.
//!
//! In: the nodes and the bound pods of the cluster, followed once somebody asks. Out: [`Site`]s. Must stay true: nothing is followed
//! that nobody asks for; a pod counts from when it has a node until it has ended or is gone.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_runtime::follow::{Collection, Seen, follow};
use muster_runtime::object::{Meta, Strings};
use muster_runtime::{Context, Key, RESYNC};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::watch;

use crate::keys;
use crate::object::text;
use crate::room::{Amounts, Site, Taint, asks, read};

#[derive(Default)]
pub struct Ledger {
    state: Mutex<State>,
    begun: AtomicBool,
    known: watch::Sender<(bool, bool)>,
}

#[derive(Default)]
struct State {
    nodes: HashMap<String, NodeParts>,
    pods: HashMap<Key, Held>,
}

/// What a pod holds, and where.
struct Held {
    node: String,
    asked: Amounts,
    /// The PodGang that it is of; empty without one.
    gang: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NodeParts {
    metadata: Meta,
    spec: NodeSpec,
    status: NodeStatus,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NodeSpec {
    unschedulable: bool,
    taints: Vec<Taint>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NodeStatus {
    allocatable: HashMap<String, Value>,
    conditions: Vec<muster_runtime::object::Condition>,
}

impl Ledger {
    /// What is free now on nodes that take pods, in order of name, once all is known; the first to ask begins to follow.
    pub async fn sites(self: &Arc<Self>, cx: &Context) -> Vec<Site> {
        if !self.begun.swap(true, Ordering::SeqCst) {
            for pods in [false, true] {
                let (ledger, cx) = (self.clone(), cx.clone());
                tokio::spawn(async move { ledger.run(&cx, pods).await });
            }
        }
        let mut known = self.known.subscribe();
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = known.wait_for(|(nodes, pods)| *nodes && *pods).await;
        self.lock().sites()
    }

    /// How many pods of a gang have nodes, as far as is known; [`Ledger::sites`] waits until all is.
    pub fn n_placed(&self, gang: &Key) -> usize {
        let is_of = |(key, held): &(&Key, &Held)| key.namespace == gang.namespace && held.gang == gang.name;
        self.lock().pods.iter().filter(is_of).count()
    }

    async fn run(self: Arc<Self>, cx: &Context, pods: bool) {
        let mut collection = Collection::new(if pods { "/api/v1/pods" } else { "/api/v1/nodes" });
        if pods {
            // Those without a node hold nothing.
            collection.query = "fieldSelector=spec.nodeName%21%3D".to_owned();
        }
        let sink = |seen: Seen<'_>| match seen {
            Seen::Put { key, text } => self.put(pods, key, text),
            Seen::Gone { key, .. } => {
                let mut state = self.lock();
                if pods {
                    state.pods.remove(key);
                } else {
                    state.nodes.remove(&key.name);
                }
            }
            Seen::Synced | Seen::Absent => {
                self.known.send_modify(|known| if pods { known.1 = true } else { known.0 = true });
            }
        };
        follow(cx.api.clone(), collection, RESYNC, cx.cancel.clone(), sink).await;
    }

    fn put(&self, pods: bool, key: &Key, json: &str) {
        if !pods {
            if let Ok(node) = serde_json::from_str::<NodeParts>(json) {
                self.lock().nodes.insert(key.name.clone(), node);
            }
            return;
        }
        let Ok(pod) = serde_json::from_str::<Value>(json) else { return };
        let node = text(&pod, &["spec", "nodeName"]).to_owned();
        let is_over = matches!(text(&pod, &["status", "phase"]), "Succeeded" | "Failed");
        let mut state = self.lock();
        if node.is_empty() || is_over {
            state.pods.remove(key);
        } else {
            let asked = pod.get("spec").map(asks).unwrap_or_default();
            let gang = text(&pod, &["metadata", "labels", keys::PODGANG]).to_owned();
            state.pods.insert(key.clone(), Held { node, asked, gang });
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn sites(&self) -> Vec<Site> {
        let mut used: HashMap<&str, Amounts> = HashMap::new();
        for Held { node, asked, .. } in self.pods.values() {
            let sum = used.entry(node).or_default();
            for (name, amount) in asked {
                let all = sum.entry(name.clone()).or_default();
                *all = all.saturating_add(*amount);
            }
        }
        let takes_pods = |node: &&NodeParts| {
            !node.spec.unschedulable
                && !node.metadata.deleting()
                && muster_runtime::object::is_true(&node.status.conditions, "Ready")
        };
        let mut sites: Vec<Site> = self
            .nodes
            .values()
            .filter(takes_pods)
            .map(|node| {
                let mut free: Amounts = node
                    .status
                    .allocatable
                    .iter()
                    .map(|(name, amount)| (name.clone(), read(amount)))
                    .collect();
                for (name, amount) in used.get(node.metadata.name.as_str()).into_iter().flatten() {
                    *free.entry(name.clone()).or_default() -= amount;
                }
                Site {
                    name: node.metadata.name.clone(),
                    labels: Strings::clone(&node.metadata.labels),
                    taints: node.spec.taints.clone(),
                    free,
                }
            })
            .collect();
        sites.sort_by(|a, b| a.name.cmp(&b.name));
        sites
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_free() {
        let ledger = Ledger::default();
        let put = |pods: bool, name: &str, value: Value| {
            ledger.put(pods, &Key::new(if pods { "ns" } else { "" }, name), &value.to_string());
        };
        let node = |name: &str, ready: &str| {
            json!({"metadata": {"name": name}, "status": {"allocatable": {"cpu": "2", "pods": "3"},
                   "conditions": [{"type": "Ready", "status": ready}]}})
        };
        put(false, "a", node("a", "True"));
        put(false, "b", node("b", "False"));
        let pod = |phase: &str| json!({"metadata": {"labels": {"grove.io/podgang": "g"}}, "spec": {"nodeName": "a", "containers": [{"resources": {"requests": {"cpu": "500m"}}}]}, "status": {"phase": phase}});
        put(true, "p", pod("Running"));
        put(true, "q", pod("Running"));
        let free = || {
            let sites = ledger.lock().sites();
            let shown: Vec<String> =
                sites.iter().map(|s| format!("{} {} {}", s.name, s.free["cpu"], s.free["pods"])).collect();
            shown.join(", ")
        };
        assert_eq!(free(), "a 1000 1000");
        assert_eq!(ledger.n_placed(&Key::new("ns", "g")), 2);
        assert_eq!(ledger.n_placed(&Key::new("other", "g")), 0);
        put(true, "q", pod("Succeeded"));
        assert_eq!(free(), "a 1500 2000");
    }
}
