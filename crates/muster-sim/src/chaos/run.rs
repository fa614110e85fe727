//! Carries a plan out.
//!
//! In: the plan, its seed, an API that no fault reaches, and the gates. Out: what was done, told as it happens. Must stay true: a node
//! suffers from one fault at a time; whatever the run broke it mends, when the time is over or when it is cancelled.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::agenda::{Act, Agenda, Due, random};
use super::{Caller, Chaos, Gates, Matching, NodeState, ServerState, What, Which, words};
use crate::Api;
use crate::api::{ApiError, Delete, Patch};
use crate::faults::{Fault, Random, Rule, RuleId};
use crate::kubelet::node::{DRAIN, FAIL, NOT_READY, UNHEALTHY_GPUS};
use crate::object::Strings;

/// Something that was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Told {
    /// When, counted from the start, as in `2m30s`.
    pub after: String,
    pub fault: String,
    /// Which turn of the fault, from 1.
    pub turn: u32,
    pub event: Event,
    pub what: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Event {
    Begins,
    Ends,
    /// Chance left this turn out.
    Spared,
    /// It could not be done.
    Failed,
}

impl std::fmt::Display for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "+{:<8} {}: {}", self.after, self.fault, self.what)
    }
}

/// Carries the plan out until it is over or cancelled; `tell` hears of everything.
pub async fn run(
    chaos: &Chaos,
    seed: u64,
    api: Api,
    gates: Gates,
    mut tell: impl FnMut(&Told),
    cancel: CancellationToken,
) {
    let start = Instant::now();
    let mut chaos = Run { chaos, seed, api, gates, broken: BTreeMap::new(), held: BTreeSet::new() };
    for due in Agenda::new(&chaos.chaos.faults, seed) {
        if cancel.run_until_cancelled(tokio::time::sleep_until(start + due.at)).await.is_none() {
            break;
        }
        if let Some(told) = chaos.act(due).await {
            tell(&told);
        }
    }
    // What has no end lasts until the cluster is told to stop.
    if !chaos.broken.is_empty() {
        cancel.cancelled().await;
    }
    for (fault, turn) in chaos.broken.keys().copied().collect::<Vec<_>>() {
        let due = Due { at: start.elapsed(), act: Act::End, fault, turn };
        if let Some(told) = chaos.act(due).await {
            tell(&told);
        }
    }
}

struct Run<'a> {
    chaos: &'a Chaos,
    seed: u64,
    api: Api,
    gates: Gates,
    /// What to undo, by fault and turn.
    broken: BTreeMap<(usize, u32), Broken>,
    /// Nodes that suffer.
    held: BTreeSet<String>,
}

enum Broken {
    Nodes(Vec<String>),
    /// Nodes that were deleted, as they are to be made again.
    Deleted(Vec<(String, Value)>),
    Requests(Vec<(Caller, RuleId)>),
    Server,
    Services,
}

impl Run<'_> {
    async fn act(&mut self, due: Due) -> Option<Told> {
        let planned = self.chaos.faults.get(due.fault)?;
        let told = |event, what: String, nodes| Told {
            after: words::span(due.at),
            fault: planned.name.clone(),
            turn: due.turn.saturating_add(1),
            event,
            what,
            nodes,
        };
        Some(match due.act {
            Act::Spare => told(Event::Spared, "chance left this turn out".into(), Vec::new()),
            Act::Begin => match self.begin(due, &planned.what).await {
                Ok((what, nodes)) => {
                    let lasts = planned.when.lasts.map(|lasts| format!(", for {}", words::span(lasts)));
                    told(Event::Begins, what + &lasts.unwrap_or_default(), nodes)
                }
                Err(why) => told(Event::Failed, why, Vec::new()),
            },
            Act::End => {
                // A turn that could not begin has no end.
                let broken = self.broken.remove(&(due.fault, due.turn))?;
                let (what, nodes) = self.end(broken).await;
                told(Event::Ends, what, nodes)
            }
        })
    }

    async fn begin(&mut self, due: Due, what: &What) -> Result<(String, Vec<String>), String> {
        let (broken, said, nodes) = match what {
            What::Nodes { which, state } => {
                let name = self.chaos.faults.get(due.fault).map_or("", |planned| &planned.name);
                // The moment was decided by the first numbers of this turn.
                let mut random = random(self.seed, name, due.turn);
                random.next();
                let (names, broken) = self.break_nodes(which, state, &mut random).await?;
                let mut said = format!("{} {}", names.join(", "), words::node_state(state, names.len() == 1));
                let suffers = |name: &String| names.contains(name) || self.held.contains(name);
                for absent in which.names.iter().filter(|name| !suffers(name)) {
                    said += &format!(" (there is no {absent})");
                }
                (Some(broken), said, names)
            }
            What::Requests { from, matching, share, fault } => {
                let broken = self.break_requests(from, matching, *share, fault);
                (Some(broken), words::requests(from, matching, *share, fault), Vec::new())
            }
            What::Server(state) => {
                (self.break_server(*state).await?, words::server(*state).to_owned(), Vec::new())
            }
            What::ServicesKilled => {
                self.gates.services.kill();
                let stays_dead = self.chaos.faults.get(due.fault).is_some_and(|f| f.when.lasts.is_some());
                self.gates.life.send_modify(|life| {
                    life.n_kills += 1;
                    life.alive = !stays_dead;
                });
                (
                    stays_dead.then_some(Broken::Services),
                    "Muster's services are killed".to_owned(),
                    Vec::new(),
                )
            }
        };
        if let Some(broken) = broken {
            self.broken.insert((due.fault, due.turn), broken);
        }
        Ok((said, nodes))
    }

    async fn end(&mut self, broken: Broken) -> (String, Vec<String>) {
        match broken {
            Broken::Nodes(names) => {
                let well = json!({
                    "metadata": {"annotations": {FAIL: null, NOT_READY: null, UNHEALTHY_GPUS: null, DRAIN: null}},
                });
                let mut back = Vec::new();
                for name in names {
                    self.held.remove(&name);
                    // Somebody may have deleted it meanwhile.
                    if self.api.patch_path(&node_path(&name), Patch::Merge, &well).await.is_ok() {
                        back.push(name);
                    }
                }
                (are_back(&back), back)
            }
            Broken::Deleted(nodes) => {
                let mut back = Vec::new();
                for (name, node) in nodes {
                    self.held.remove(&name);
                    match self.api.create_path("/api/v1/nodes", &node).await {
                        Ok(_) => back.push(name),
                        // Somebody made it again.
                        Err(error) if error.already_exists() => back.push(name),
                        Err(error) => {
                            tracing::warn!(node = name, "the node cannot be made again: {}", error.message())
                        }
                    }
                }
                (are_back(&back), back)
            }
            Broken::Requests(rules) => {
                let n: u64 =
                    rules.into_iter().map(|(caller, id)| self.gates.of(caller).faults.remove(id)).sum();
                (format!("over; {n} {} suffered", if n == 1 { "request" } else { "requests" }), Vec::new())
            }
            Broken::Server => {
                for gate in self.gates.all() {
                    gate.line().restore(0);
                }
                ("the API server is back".into(), Vec::new())
            }
            Broken::Services => {
                self.gates.life.send_modify(|life| life.alive = true);
                ("Muster's services start again".into(), Vec::new())
            }
        }
    }

    /// Chooses nodes and breaks them. Out: their names, and how to mend them.
    async fn break_nodes(
        &mut self,
        which: &Which,
        state: &NodeState,
        random: &mut Random,
    ) -> Result<(Vec<String>, Broken), String> {
        let list = self.api.get_path("/api/v1/nodes").await.map_err(|error| cannot(&error))?;
        let nodes: BTreeMap<String, Value> = list
            .get("items")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|node| Some((node.pointer("/metadata/name")?.as_str()?.to_owned(), node.clone())))
            .collect();
        let chosen = choose(which, nodes.iter().filter(|(name, _)| !self.held.contains(*name)), random);
        if chosen.is_empty() {
            return Err("no node is left that it could happen to".into());
        }
        let (mut names, mut deleted) = (Vec::new(), Vec::new());
        for name in chosen {
            let path = node_path(&name);
            let done = match annotation(state) {
                Some((key, value)) => {
                    let patch = json!({"metadata": {"annotations": {key: value}}});
                    self.api.patch_path(&path, Patch::Merge, &patch).await.map(drop)
                }
                None => self.api.delete_path(&path, Delete::default()).await.map(drop),
            };
            match done {
                Ok(()) => {}
                // One that somebody deleted at this moment has suffered enough.
                Err(error) if error.not_found() => continue,
                Err(error) if names.is_empty() => return Err(cannot(&error)),
                Err(error) => {
                    tracing::warn!(node = name, "chaos passes the node by: {}", error.message());
                    continue;
                }
            }
            if let (NodeState::Deleted, Some(node)) = (state, nodes.get(&name)) {
                deleted.push((name.clone(), reborn(node)));
            }
            self.held.insert(name.clone());
            names.push(name);
        }
        if names.is_empty() {
            return Err("the nodes are gone".into());
        }
        let broken = match state {
            NodeState::Deleted => Broken::Deleted(deleted),
            NodeState::Silent | NodeState::NotReady | NodeState::Drained | NodeState::UnhealthyGpus(_) => {
                Broken::Nodes(names.clone())
            }
        };
        Ok((names, broken))
    }

    fn break_requests(&self, from: &[Caller], matching: &Matching, share: u16, fault: &Fault) -> Broken {
        let any = [String::new()];
        let or_any = |list: &'_ [String]| if list.is_empty() { any.to_vec() } else { list.to_vec() };
        let mut rules = Vec::new();
        for caller in from {
            for verb in or_any(&matching.verbs) {
                for resource in or_any(&matching.resources) {
                    for name in or_any(&matching.names) {
                        let rule = Rule::on(&verb, &resource).named(&name).chance(share).fault(fault.clone());
                        rules.push((*caller, self.gates.of(*caller).faults.add(rule)));
                    }
                }
            }
            if matching.verbs == ["watch"] {
                // Watches that stand already are to suffer, too.
                self.gates.of(*caller).line().reset();
            }
        }
        Broken::Requests(rules)
    }

    async fn break_server(&self, state: ServerState) -> Result<Option<Broken>, String> {
        match state {
            ServerState::Down => {
                for gate in self.gates.all() {
                    gate.line().cut();
                }
                Ok(Some(Broken::Server))
            }
            ServerState::DropsConnections => {
                for gate in self.gates.all() {
                    gate.line().reset();
                }
                Ok(None)
            }
            ServerState::ForgetsVersions => {
                let list =
                    self.api.get_path("/api/v1/nodes?limit=1").await.map_err(|error| cannot(&error))?;
                let version = list.pointer("/metadata/resourceVersion").and_then(Value::as_str);
                let oldest = version.and_then(|version| version.parse().ok()).unwrap_or(0);
                for gate in self.gates.all() {
                    gate.line().reset();
                    gate.line().restore(oldest);
                }
                Ok(None)
            }
        }
    }
}

/// The nodes that a fault takes, in the order of their names. Domains are chosen whole.
fn choose<'a>(
    which: &Which,
    nodes: impl Iterator<Item = (&'a String, &'a Value)>,
    random: &mut Random,
) -> Vec<String> {
    let mut domains: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, node) in nodes {
        let labels: Strings = node
            .pointer("/metadata/labels")
            .and_then(|labels| serde_json::from_value(labels.clone()).ok())
            .unwrap_or_default();
        if !which.names.is_empty() && !which.names.contains(name) {
            continue;
        }
        if which.selector.iter().any(|(key, value)| labels.get(key) != Some(value)) {
            continue;
        }
        let domain = match &which.domain {
            None => Some(name),
            Some(key) => labels.get(key),
        };
        if let Some(domain) = domain {
            domains.entry(domain.clone()).or_default().push(name.clone());
        }
    }
    let mut left: Vec<Vec<String>> = domains.into_values().collect();
    let n = which.count.map_or(left.len(), |n| usize::try_from(n).unwrap_or(usize::MAX).min(left.len()));
    let mut chosen: Vec<String> = Vec::new();
    for _ in 0..n {
        let pick = usize::try_from(random.below(left.len() as u64)).unwrap_or(0);
        chosen.extend(left.remove(pick));
    }
    chosen.sort();
    chosen
}

/// The annotation that makes a simulated node suffer so; none where the object itself goes.
fn annotation(state: &NodeState) -> Option<(&'static str, &str)> {
    Some(match state {
        NodeState::Silent => (FAIL, "true"),
        NodeState::NotReady => (NOT_READY, "chaos"),
        NodeState::Drained => (DRAIN, "true"),
        NodeState::UnhealthyGpus(gpus) => (UNHEALTHY_GPUS, gpus),
        NodeState::Deleted => return None,
    })
}

/// The node as somebody would register it anew: what it is, nothing of what became of it.
fn reborn(node: &Value) -> Value {
    let at = |path: &str| node.pointer(path).cloned().unwrap_or(Value::Null);
    let mut node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": at("/metadata/name"), "labels": at("/metadata/labels"), "annotations": at("/metadata/annotations")},
        "spec": {"taints": at("/spec/taints")},
        "status": {"capacity": at("/status/capacity"), "allocatable": at("/status/allocatable")},
    });
    // What the controllers put on a node that is not well is theirs.
    if let Some(taints) = node.pointer_mut("/spec/taints").and_then(Value::as_array_mut) {
        let own =
            |taint: &Value| taint["key"].as_str().is_some_and(|key| key.starts_with("node.kubernetes.io/"));
        taints.retain(|taint| !own(taint));
    }
    node
}

fn node_path(name: &str) -> String {
    format!("/api/v1/nodes/{name}")
}

fn are_back(names: &[String]) -> String {
    match names {
        [] => "nobody is left to come back".into(),
        [name] => format!("{name} is back"),
        names => format!("{} are back", names.join(", ")),
    }
}

fn cannot(error: &ApiError) -> String {
    format!("cannot be done: {}", error.message())
}

/// Long enough to mend everything when a cluster is stopped.
pub const LAST_CARE: Duration = Duration::from_secs(2);
