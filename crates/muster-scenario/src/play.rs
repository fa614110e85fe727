//! Running a case: cycles of the engine on the model of its cluster, with what happens between them.
//!
//! In: a case. Out: an [`Outcome`]: what every cycle decided, and where every pod and node stood at each comparison. Every cycle is
//! audited. Between cycles a bound pod starts to run, a promised pod waits again, and an evicted pod is gone and a fresh one of its
//! name waits in its place (or it stays, terminating, where the case says so). Ages do not grow: the clock stands still.

use crate::case::{Case, Evicted};
use crate::expect::Phase;
use muster_engine::Engine;
use muster_model::{
    Allocation, Claim, Cluster, Decisions, Device, DeviceName, DeviceReach, Diagnostic, Expr, GPU, Gang,
    GangPhase, Key, Name, NodeTerm, Op, Placement, Pod, PodState, Policy, Refusal, Resource, Shape,
    ShareSize, Span, Time, ZoneUse,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Why a case could not be run at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlayError {
    #[error("{0}")]
    Skipped(String),
}

/// A case as the engine sees it.
#[derive(Clone, Debug)]
pub struct Setup {
    pub cluster: Cluster,
    pub policy: Policy,
    /// What is wrong with the objects.
    pub diagnostics: Vec<Diagnostic>,
    /// What is wrong with the settings.
    pub settings: Vec<Diagnostic>,
}

/// What came of a case.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What each cycle decided, stable cycles included.
    pub cycles: Vec<CycleOutcome>,
    /// How things stood at the comparison, and then after each stable cycle.
    pub moments: Vec<Moment>,
    /// What is wrong with the input objects.
    pub diagnostics: Vec<Diagnostic>,
    /// What is wrong with the settings.
    pub settings: Vec<Diagnostic>,
}

#[derive(Clone, Debug, Default)]
pub struct CycleOutcome {
    pub decisions: Decisions,
    /// What the auditor has against them.
    pub findings: Vec<String>,
}

#[derive(Clone, Debug, Default)]
pub struct Moment {
    /// By `namespace/name`.
    pub pods: BTreeMap<String, PodOutcome>,
    pub nodes: BTreeMap<String, NodeOutcome>,
    pub gangs: BTreeMap<Key, GangOutcome>,
    /// The parent of every queue.
    pub queues: BTreeMap<String, Option<String>>,
    /// Why gangs wait, by gang.
    pub refusals: BTreeMap<Key, Refusal>,
}

#[derive(Clone, Debug)]
pub struct GangOutcome {
    pub queue: Name,
    pub needed: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PodOutcome {
    pub phase: Phase,
    /// Where it is, is going to be, or is on its way out of.
    pub node: Option<Name>,
    /// Held resources at the start and was evicted on the way.
    pub was_evicted: bool,
    /// Was terminating from the start.
    pub already_terminating: bool,
    pub gang: Option<Key>,
    pub group: Option<Name>,
    pub gpu_groups: Vec<Name>,
    pub zones: Vec<ZoneUse>,
    /// Thousandths of a GPU: what it asks for by number or fraction.
    pub gpus_required: i64,
    /// Thousandths of a GPU: what it is charged where it is.
    pub gpus_accepted: i64,
    pub shape: Arc<Shape>,
    /// The place that it is leaving while it is promised another.
    pub leaving: Option<Place>,
    /// Terminating for so long that its room is not counted on.
    pub stuck: bool,
}

/// Room on a node that a pod holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    pub node: Name,
    pub gpu_groups: Vec<Name>,
    pub zones: Vec<ZoneUse>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeOutcome {
    /// Thousandths of a GPU; a shared GPU counts whole once in use.
    pub idle_gpus: i64,
    pub releasing_gpus: i64,
    /// By zone: what is left, by resource.
    pub zones: Vec<BTreeMap<Resource, i64>>,
    /// Pods that are placed here.
    pub pods: u32,
}

impl PodOutcome {
    pub fn zone_numbers(&self) -> BTreeSet<u32> {
        self.zones.iter().map(|z| z.zone).collect()
    }

    /// It has a node and is going to keep it.
    pub fn placed(&self) -> bool {
        matches!(self.phase, Phase::Bound | Phase::Running)
    }
}

/// Reads the objects and settings of a case into the model.
pub fn setup(case: &Case) -> Result<Setup, PlayError> {
    if let Some(why) = &case.skip {
        return Err(PlayError::Skipped(why.clone()));
    }
    let (mut policy, mut settings) = crate::front::policy(&case.policy);
    let (cluster, diagnostics) = crate::front::cluster(&case.objects, &policy, case.now);
    if let Some(actions) = &case.actions {
        policy.actions.clone_from(actions);
    }
    if cluster.gangs.iter().any(|gang| gang.volcano.is_some()) {
        let (conf, found) = crate::front::volcano(&case.volcano_config);
        policy.volcano = Some(Arc::new(conf));
        settings.extend(found);
    }
    // The plug-in that models zones is switched on by the presence of a report of them.
    policy.numa |= case.policy.get("plugins").is_none() && cluster.nodes.iter().any(|n| n.numa.is_some());
    Ok(Setup { cluster, policy, diagnostics, settings })
}

/// Runs a case. With `explain`, every waiting gang is explained in full, which costs more than deciding does.
pub fn play(case: &Case, explain: bool) -> Result<Outcome, PlayError> {
    play_with(case, explain, &mut |_, cluster, policy, explain| {
        let (mut engine, diagnostics) = Engine::build(cluster.clone(), policy.clone());
        let decisions = engine.cycle(cluster.now);
        let refusals = refusals(&mut engine, &decisions, cluster, explain);
        Decided { decisions, refusals, diagnostics }
    })
}

/// What somebody decided about one cycle.
#[derive(Clone, Debug, Default)]
pub struct Decided {
    pub decisions: Decisions,
    /// Why gangs wait, by gang.
    pub refusals: BTreeMap<Key, Refusal>,
    pub diagnostics: Vec<Diagnostic>,
}

/// Runs a case with anybody's decisions: what was written down of another scheduler, say. `decide` is given the number of the cycle, from
/// 0, the cluster, the policy, and whether waiting gangs are to be explained in full.
pub fn play_with(
    case: &Case,
    explain: bool,
    decide: &mut dyn FnMut(u32, &Cluster, &Policy, bool) -> Decided,
) -> Result<Outcome, PlayError> {
    let Setup { cluster, policy, diagnostics, settings } = setup(case)?;
    let explain = explain || case.expect.asks_why();
    let past = Past::of(&cluster, &case.objects);
    let mut outcome = Outcome { diagnostics, settings, ..Outcome::default() };
    let mut state = State { cluster, evicted: BTreeSet::new(), portions: BTreeMap::new() };
    let cycles = case.cycles.max(1);
    for cycle in 0..cycles + case.stable_cycles {
        let compared = cycle + 1 >= cycles;
        let Decided { decisions, refusals, diagnostics } =
            decide(cycle, &state.cluster, &policy, explain && compared);
        if cycle == 0 {
            outcome.diagnostics.extend(diagnostics);
        }
        let findings = crate::front::audit(&state.cluster, &policy, &decisions);
        state.note(&decisions);
        let as_it_ended = compared && (cycle >= cycles || !case.evicted.recreate);
        if as_it_ended {
            outcome.moments.push(moment(&state, &past, Some(&decisions), refusals.clone()));
        }
        state.cluster = next_cluster(&state.cluster, &decisions, &case.evicted);
        if compared && !as_it_ended {
            outcome.moments.push(moment(&state, &past, None, refusals));
        }
        outcome.cycles.push(CycleOutcome { decisions, findings });
    }
    Ok(outcome)
}

fn refusals(
    engine: &mut Engine,
    decisions: &Decisions,
    cluster: &Cluster,
    explain: bool,
) -> BTreeMap<Key, Refusal> {
    let mut refusals: BTreeMap<Key, Refusal> =
        decisions.refusals.iter().map(|r| (r.gang.clone(), r.clone())).collect();
    if explain {
        for gang in &cluster.gangs {
            if let Some(refusal) = engine.explain(&gang.key, cluster.now) {
                refusals.insert(gang.key.clone(), refusal);
            }
        }
    }
    refusals
}

/// What is remembered of the start.
struct Past {
    states: BTreeMap<Key, PodState>,
    /// Finished pods that the model has no use for.
    over: BTreeMap<String, PodOutcome>,
}

impl Past {
    fn of(cluster: &Cluster, objects: &[Value]) -> Self {
        let states: BTreeMap<Key, PodState> =
            cluster.pods.iter().map(|pod| (pod.key.clone(), pod.state)).collect();
        let mut over = BTreeMap::new();
        for object in objects.iter().filter(|o| o["kind"] == "Pod") {
            let phase = match object["status"]["phase"].as_str() {
                Some("Failed") => Phase::Failed,
                Some("Succeeded") => Phase::Succeeded,
                _ => continue,
            };
            let meta = &object["metadata"];
            let Some(name) = meta["name"].as_str() else { continue };
            let key = Key::new(meta["namespace"].as_str().unwrap_or("default"), name);
            if states.contains_key(&key) {
                continue;
            }
            let gang = meta["annotations"]["pod-group-name"].as_str();
            let outcome = PodOutcome {
                phase,
                node: object["spec"]["nodeName"].as_str().map(Name::from),
                was_evicted: false,
                already_terminating: false,
                gang: gang.map(|g| Key { namespace: key.namespace.clone(), name: Name::from(g) }),
                group: meta["labels"]["kai.scheduler/subgroup-name"].as_str().map(Name::from),
                gpu_groups: Vec::new(),
                zones: Vec::new(),
                gpus_required: 0,
                gpus_accepted: 0,
                shape: Arc::default(),
                leaving: None,
                stuck: false,
            };
            over.insert(key.to_string(), outcome);
        }
        Self { states, over }
    }

    fn held_room(&self, pod: &Key) -> bool {
        self.states.get(pod).is_some_and(|s| s.holds_room())
    }

    fn was_terminating(&self, pod: &Key) -> bool {
        self.states.get(pod).is_some_and(|s| matches!(s, PodState::Releasing | PodState::Stuck))
    }
}

/// The cluster of a cycle, and what happened before it.
struct State {
    cluster: Cluster,
    evicted: BTreeSet<Key>,
    /// What share of a GPU each bound pod was given, in thousandths, where it asked for memory.
    portions: BTreeMap<Key, i64>,
}

impl State {
    fn note(&mut self, decisions: &Decisions) {
        self.evicted.extend(decisions.evictions.iter().map(|e| e.pod.clone()));
        for bind in &decisions.binds {
            if let Some(portion) = bind.placement.gpu_portion {
                self.portions.insert(bind.pod.clone(), portion);
            }
        }
        for promise in &decisions.pipelined {
            if let Some(portion) = promise.placement.gpu_portion {
                self.portions.insert(promise.pod.clone(), portion);
            }
        }
    }
}

/// Where everything stands: as a cycle ended, or (without decisions) with its consequences applied.
fn moment(
    state: &State,
    past: &Past,
    decisions: Option<&Decisions>,
    refusals: BTreeMap<Key, Refusal>,
) -> Moment {
    let none = Decisions::default();
    let decisions = decisions.unwrap_or(&none);
    let bound: BTreeMap<&Key, &Placement> = decisions.binds.iter().map(|b| (&b.pod, &b.placement)).collect();
    let promised: BTreeMap<&Key, &Placement> =
        decisions.pipelined.iter().map(|p| (&p.pod, &p.placement)).collect();
    let evicted: BTreeSet<&Key> = decisions.evictions.iter().map(|e| &e.pod).collect();
    let memory: BTreeMap<&Name, i64> =
        state.cluster.nodes.iter().filter_map(|n| Some((&n.name, n.gpus.memory?))).collect();

    let mut moment = Moment { refusals, ..Moment::default() };
    for pod in &state.cluster.pods {
        let was_evicted = past.held_room(&pod.key) && state.evicted.contains(&pod.key);
        let place = promised.get(&pod.key).or_else(|| bound.get(&pod.key));
        let settled = if past.held_room(&pod.key) { Phase::Running } else { Phase::Bound };
        // One action may bind a pod and a later one evict it again, and promise it another place.
        let phase = if promised.contains_key(&pod.key) {
            Phase::Pipelined
        } else if evicted.contains(&pod.key) {
            Phase::Evicted
        } else if bound.contains_key(&pod.key) {
            settled
        } else {
            match pod.state {
                PodState::Gated | PodState::Pending => Phase::Pending,
                PodState::Binding | PodState::Bound | PodState::Running => settled,
                PodState::Releasing | PodState::Stuck => Phase::Evicted,
                PodState::Succeeded => Phase::Succeeded,
                PodState::Failed => Phase::Failed,
            }
        };
        let held = pod.state.holds_room().then_some(()).and(pod.node.clone()).map(|node| Place {
            node,
            gpu_groups: pod.gpu_groups.clone(),
            zones: pod.zones.clone(),
        });
        let (place, leaving) = match place {
            Some(new) => {
                let new = Place {
                    node: new.node.clone(),
                    gpu_groups: new.gpu_groups.clone(),
                    zones: new.zones.clone(),
                };
                (Some(new), held)
            }
            None => (held, None),
        };
        let node = match (&place, phase) {
            (Some(place), _) => Some(place.node.clone()),
            // A finished pod holds nothing and still says where it was.
            (None, Phase::Failed | Phase::Succeeded) => pod.node.clone(),
            (None, _) => None,
        };
        let (gpus_required, gpus_accepted) = gpus(pod, node.as_ref(), state.portions.get(&pod.key), &memory);
        let (gpu_groups, zones) = place.map(|p| (p.gpu_groups, p.zones)).unwrap_or_default();
        let outcome = PodOutcome {
            phase,
            node,
            was_evicted,
            already_terminating: phase == Phase::Evicted
                && past.was_terminating(&pod.key)
                && !state.evicted.contains(&pod.key),
            gang: pod.gang.clone(),
            group: pod.group.clone(),
            gpu_groups,
            zones,
            gpus_required,
            gpus_accepted,
            shape: pod.shape.clone(),
            leaving,
            stuck: pod.state == PodState::Stuck,
        };
        moment.pods.insert(pod.key.to_string(), outcome);
    }
    for (name, over) in &past.over {
        moment.pods.entry(name.clone()).or_insert_with(|| over.clone());
    }
    for gang in &state.cluster.gangs {
        let outcome = GangOutcome { queue: gang.queue.clone(), needed: crate::words::minimum(gang) };
        moment.gangs.insert(gang.key.clone(), outcome);
    }
    for queue in &state.cluster.queues {
        moment.queues.insert(queue.name.to_string(), queue.parent.as_ref().map(|p| p.to_string()));
    }
    moment.nodes = nodes(&state.cluster, &moment.pods);
    moment
}

/// What a pod asks of GPUs by number or fraction, and what it is charged where it is; both in thousandths.
fn gpus(pod: &Pod, node: Option<&Name>, portion: Option<&i64>, memory: &BTreeMap<&Name, i64>) -> (i64, i64) {
    let whole = pod.shape.requests.get(&Resource::Gpu);
    let Some(share) = pod.shape.gpu_share else { return (whole, if node.is_some() { whole } else { 0 }) };
    let devices = i64::from(share.devices);
    let (asked, charged) = match share.size {
        ShareSize::Portion(portion) => {
            let asked = whole.saturating_add(portion.saturating_mul(devices));
            (asked, asked)
        }
        ShareSize::Memory(mib) => {
            let of_node = node.and_then(|n| memory.get(n)).filter(|m| **m > 0);
            let portion = match (portion, of_node) {
                (Some(portion), _) => *portion,
                // Charged in hundredths of a GPU, and never too little.
                (None, Some(all)) => mib.saturating_mul(100).saturating_add(all - 1) / all * 10,
                (None, None) => 0,
            };
            (whole, whole.saturating_add(portion.saturating_mul(devices)))
        }
    };
    // Who has no place is charged nothing.
    (asked, if node.is_some() { charged } else { 0 })
}

fn nodes(cluster: &Cluster, pods: &BTreeMap<String, PodOutcome>) -> BTreeMap<String, NodeOutcome> {
    #[derive(Default)]
    struct Load {
        held: i64,
        releasing: i64,
        promised: i64,
        /// Shared GPUs, and whether somebody stays on them.
        shared: BTreeMap<Name, bool>,
        promised_shared: BTreeSet<Name>,
        zones: BTreeMap<u32, BTreeMap<Resource, i64>>,
        pods: u32,
    }
    let mut loads: BTreeMap<&str, Load> = BTreeMap::new();
    for pod in pods.values() {
        let whole = pod.shape.requests.get(&Resource::Gpu);
        let at = pod.node.as_ref().map(|node| (node, &pod.gpu_groups, &pod.zones));
        let old = pod.leaving.as_ref().map(|place| (&place.node, &place.gpu_groups, &place.zones));
        // Room that is held now, and whether it will stay held.
        let holds = match pod.phase {
            Phase::Bound | Phase::Running => at.map(|p| (p, true)),
            Phase::Evicted => at.map(|p| (p, pod.stuck)),
            Phase::Pipelined => old.map(|p| (p, false)),
            Phase::Pending | Phase::Failed | Phase::Succeeded => None,
        };
        if let Some(((node, groups, zones), stays)) = holds {
            let load = loads.entry(node).or_default();
            load.held = load.held.saturating_add(whole);
            if !stays {
                load.releasing = load.releasing.saturating_add(whole);
            }
            for group in groups {
                *load.shared.entry(group.clone()).or_default() |= stays;
            }
            for use_ in zones {
                let left = load.zones.entry(use_.zone).or_default();
                for (resource, amount) in use_.amounts.iter() {
                    let sum = left.entry(resource.clone()).or_default();
                    *sum = sum.saturating_add(amount);
                }
            }
            load.pods += u32::from(pod.placed());
        }
        if let (Phase::Pipelined, Some((node, groups, _))) = (pod.phase, at) {
            let load = loads.entry(node).or_default();
            load.promised = load.promised.saturating_add(whole);
            load.promised_shared.extend(groups.iter().cloned());
        }
    }
    let whole_of = |n: usize| i64::try_from(n).unwrap_or(i64::MAX).saturating_mul(GPU);
    let mut nodes = BTreeMap::new();
    for node in &cluster.nodes {
        let none = Load::default();
        let load = loads.get(&*node.name).unwrap_or(&none);
        let going = load.shared.values().filter(|stays| !**stays).count();
        let taken = load.promised_shared.iter().filter(|g| load.shared.get(*g) != Some(&true)).count();
        let idle = node.allocatable.get(&Resource::Gpu) - load.held - whole_of(load.shared.len());
        let releasing = load.releasing + whole_of(going) - load.promised - whole_of(taken);
        let zones = node.numa.iter().flat_map(|numa| numa.zones.iter().enumerate()).map(|(i, zone)| {
            let used = u32::try_from(i).ok().and_then(|i| load.zones.get(&i));
            let left = |resource: &Resource| used.and_then(|u| u.get(resource)).copied().unwrap_or(0);
            zone.allocatable.iter().map(|(r, amount)| (r.clone(), amount - left(r))).collect()
        });
        let outcome = NodeOutcome {
            idle_gpus: idle,
            // Promises beyond what is being released go onto idle room.
            releasing_gpus: releasing.max(0),
            zones: zones.collect(),
            pods: load.pods,
        };
        nodes.insert(node.name.to_string(), outcome);
    }
    nodes
}

/// The cluster of the next cycle.
pub fn next_cluster(cluster: &Cluster, decisions: &Decisions, evicted: &Evicted) -> Cluster {
    let gone: BTreeSet<&Key> = decisions.evictions.iter().map(|e| &e.pod).collect();
    // A pod that one action bound and a later one evicted has gone.
    let kept = decisions.binds.iter().filter(|b| !gone.contains(&b.pod));
    let binds: BTreeMap<&Key, &Placement> = kept.map(|b| (&b.pod, &b.placement)).collect();
    let mut next = cluster.clone();
    let mut freed: BTreeSet<Name> = BTreeSet::new();
    for slot in &mut next.pods {
        let pod = Arc::make_mut(slot);
        let stays = pod.gang.as_ref().is_some_and(|g| stays_terminating(&evicted.stay, g));
        if let Some(placement) = binds.get(&pod.key) {
            pod.state = PodState::Running;
            pod.node = Some(placement.node.clone());
            pod.gpu_groups.clone_from(&placement.gpu_groups);
            pod.gpus.clone_from(&placement.gpus);
            pod.zones.clone_from(&placement.zones);
            pod.nominated = None;
        } else if gone.contains(&pod.key) || pod.state == PodState::Releasing {
            if stays {
                pod.state = PodState::Releasing;
                continue;
            }
            freed.insert(pod.uid.clone());
            pod.state = PodState::Pending;
            pod.node = None;
            pod.gpu_groups.clear();
            pod.gpus.clear();
            pod.zones.clear();
            pod.nominated = None;
        }
    }
    carry_claims(&mut next, &binds, &freed);
    let mut running: BTreeSet<Key> = BTreeSet::new();
    for pod in &next.pods {
        if pod.state.stays() {
            running.extend(pod.gang.clone());
        }
    }
    for slot in &mut next.gangs {
        let start = next_start(slot, running.contains(&slot.key), next.now);
        if slot.last_start != start {
            Arc::make_mut(slot).last_start = start;
        }
    }
    let phases: BTreeMap<&Key, &GangPhase> = decisions.phases.iter().map(|p| (&p.gang, p)).collect();
    for slot in &mut next.gangs {
        if let Some(decided) = phases.get(&slot.key)
            && let Some(group) = &mut Arc::make_mut(slot).volcano
        {
            let group = Arc::make_mut(group);
            group.phase = decided.phase;
            group.allocated_domain.clone_from(&decided.domain);
        }
    }
    next
}

fn stays_terminating(stay: &BTreeSet<String>, gang: &Key) -> bool {
    !stay.is_empty() && (stay.contains(&*gang.name) || stay.contains(&gang.to_string()))
}

/// A gang that runs has run for a minute, or for as long as it had at the start.
fn next_start(gang: &Gang, runs: bool, now: Time) -> Option<Time> {
    let a_minute_ago = now + Span::seconds(-60);
    if runs { Some(gang.last_start.unwrap_or(a_minute_ago)) } else { None }
}

/// Claims that bound pods were given devices for are allocated and reserved for them; what evicted pods held is free again.
fn carry_claims(cluster: &mut Cluster, binds: &BTreeMap<&Key, &Placement>, freed: &BTreeSet<Name>) {
    if cluster.claims.is_empty() {
        return;
    }
    let devices: BTreeMap<&DeviceName, &Arc<Device>> = cluster.devices.iter().map(|d| (&d.name, d)).collect();
    let mut given: BTreeMap<&Key, Vec<(Name, DeviceName)>> = BTreeMap::new();
    for placement in binds.values() {
        for (claim, request, device) in &placement.devices {
            let list = given.entry(claim).or_default();
            let pair = (request.clone(), device.clone());
            // Pods that share a claim may each say what it was given.
            if !list.contains(&pair) {
                list.push(pair);
            }
        }
    }
    let mut holders: BTreeMap<&Key, Vec<Name>> = BTreeMap::new();
    for pod in cluster.pods.iter().filter(|p| binds.contains_key(&p.key)) {
        for use_ in &pod.shape.claims {
            holders.entry(&use_.claim).or_default().push(pod.uid.clone());
        }
    }
    let mut claims = Vec::with_capacity(cluster.claims.len());
    for claim in &cluster.claims {
        let mut claim = Claim::clone(claim);
        if claim.reserved_for.iter().any(|uid| freed.contains(uid)) {
            claim.reserved_for.retain(|uid| !freed.contains(uid));
            if claim.reserved_for.is_empty() {
                claim.allocation = None;
            }
        }
        if let Some(list) = given.remove(&claim.key).filter(|_| claim.allocation.is_none()) {
            let nodes = reach(list.iter().filter_map(|(_, name)| devices.get(name).map(|d| &d.reach)));
            claim.allocation = Some(Allocation { devices: list, nodes });
        }
        for uid in holders.remove(&claim.key).unwrap_or_default() {
            if !claim.reserved_for.contains(&uid) {
                claim.reserved_for.push(uid);
            }
        }
        claims.push(Arc::new(claim));
    }
    cluster.claims = claims;
}

/// Real devices have one term, or a few; beyond this the first devices' terms stand for all.
const MOST_TERMS: usize = 256;

/// From where devices can be used together; no terms: from everywhere.
fn reach<'a>(reaches: impl Iterator<Item = &'a DeviceReach>) -> Vec<NodeTerm> {
    let mut terms: Vec<NodeTerm> = Vec::new();
    for reach in reaches {
        let own = match reach {
            DeviceReach::Everywhere => continue,
            DeviceReach::Node(name) => vec![NodeTerm {
                labels: Vec::new(),
                names: vec![Expr { key: Name::from("metadata.name"), op: Op::In(vec![name.clone()]) }],
            }],
            DeviceReach::Nodes(terms) => terms.clone(),
        };
        if terms.is_empty() {
            terms = own;
        } else if terms != own && terms.len().saturating_mul(own.len()) <= MOST_TERMS {
            // Both must hold: every pair of terms, one of each.
            terms = terms
                .iter()
                .flat_map(|a| {
                    own.iter().map(|b| NodeTerm {
                        labels: [a.labels.clone(), b.labels.clone()].concat(),
                        names: [a.names.clone(), b.names.clone()].concat(),
                    })
                })
                .collect();
            terms.dedup();
        }
    }
    terms
}
