//! Single steps of admission: each takes what its document gives and answers in the form of its `expect`.

use super::{World, words};
use muster_admit::assign::{
    Assignment, Choice, How, Mode, Oracle, Possibility, Replaced, ReplacedSet, SetAssignment,
};
use muster_admit::ids::{Amounts, FlavorId, PairId, ResourceId, TreeId, Usage, WorkloadId, add_usage};
use muster_admit::order::{Candidate, Turn, compare_candidates};
use muster_admit::place::{Ask, Look, Places, TopologyAssignment};
use muster_admit::reduce;
use muster_admit::spec::{LocalQueue, Stop, TopologyRequest, Weight, Workload};
use muster_admit::victims::Search;
use muster_model::{Key, Name};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

type Answer = Result<Value, String>;

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str, String> {
    value.get(key).and_then(Value::as_str).ok_or_else(|| format!("given.{key}: write a name"))
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::NoFit => "NoFit",
        Mode::Preempt => "Preempt",
        Mode::Deferred => "DeferredFit",
        Mode::Fit => "Fit",
    }
}

pub(super) fn topology(places: &TopologyAssignment) -> Value {
    let domains: Vec<Value> = places
        .domains
        .iter()
        .map(|(values, count)| json!({"values": names(values), "count": count}))
        .collect();
    json!({"levels": names(&places.levels), "domains": domains})
}

fn names(names: &[Name]) -> Vec<&str> {
    names.iter().map(|n| &**n).collect()
}

impl World {
    fn queue(&self) -> Result<TreeId, String> {
        let name = text(&self.given, "clusterQueue")?;
        self.state.tree.queue(name).ok_or_else(|| format!("given.clusterQueue: there is no {name}"))
    }

    /// `{flavor: {resource: amount}}` as usage.
    fn usage(&mut self, value: &Value) -> Usage {
        let mut usage = Usage::new();
        for (flavor, resources) in value.as_object().into_iter().flatten() {
            for (resource, amount) in resources.as_object().into_iter().flatten() {
                let flavor = self.state.ids.flavor(flavor);
                let resource = self.state.ids.resource(resource);
                let pair = self.state.ids.pair(flavor, resource);
                add_usage(&mut usage, pair, amount.as_i64().unwrap_or(0));
            }
        }
        usage
    }

    /// Charges `given.usage`, by queue.
    fn charge(&mut self) {
        let given = self.given.get("usage").cloned().unwrap_or(Value::Null);
        for (queue, usage) in given.as_object().into_iter().flatten() {
            let usage = self.usage(usage);
            if let Some(queue) = self.state.tree.queue(queue) {
                self.state.tree.add(queue, &usage);
            }
        }
    }

    /// Puts a workload into the line of a queue.
    fn enqueue(&mut self, mut workload: Workload, queue: TreeId) -> WorkloadId {
        let key = Key { namespace: workload.key.namespace.clone(), name: "given".into() };
        workload.queue = key.name.clone();
        let cluster_queue = self.state.tree.nodes[queue].name.clone();
        let local =
            LocalQueue { key: key.clone(), cluster_queue, stop: Stop::None, weight: Weight::default() };
        self.state.local_queues.insert(key, local);
        self.state.put_workload(workload, self.now)
    }

    /// By flavor and resource, what a queue has or may have.
    fn by_pair(&self, mut amount: impl FnMut(PairId) -> Option<i64>) -> Value {
        let mut flavors: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
        for i in 0..self.state.tree.n_pairs() {
            let pair = PairId::new(u32::try_from(i).unwrap_or(0));
            if let Some(amount) = amount(pair) {
                let (flavor, resource) = self.state.ids.split(pair);
                let flavor = self.state.ids.flavor_name(flavor).to_string();
                let resource = self.state.ids.resource_name(resource).to_string();
                flavors.entry(flavor).or_default().insert(resource, json!(amount));
            }
        }
        json!(flavors)
    }

    fn written(&self, usage: &Usage) -> Value {
        self.by_pair(|pair| usage.iter().find(|(p, _)| *p == pair).map(|(_, amount)| *amount))
    }
}

pub(super) fn preempt(world: &mut World) -> Answer {
    let queue = world.queue()?;
    let given = world.given.clone();
    let mut incoming = world.workload(given.get("incoming").unwrap_or(&Value::Null))?;
    // Whatever it is said to hold, it wants in.
    incoming.reservation = None;
    let id = world.enqueue(incoming, queue);
    let mut usage = Usage::new();
    for (i, set) in list(&given, "assignment").iter().enumerate() {
        let count = set.get("count").and_then(Value::as_i64).unwrap_or(0);
        let per_pod: Amounts = world.state.wl(id).sets.get(i).map(|s| s.per_pod.clone()).unwrap_or_default();
        for (resource, choice) in set.get("flavors").and_then(Value::as_object).into_iter().flatten() {
            let flavor = world.state.ids.flavor(text(choice, "flavor")?);
            let resource = world.state.ids.resource(resource);
            let amount = muster_admit::ids::amount_of(&per_pod, resource).saturating_mul(count);
            let pair = world.state.ids.pair(flavor, resource);
            add_usage(&mut usage, pair, amount);
        }
    }
    let mut need = Vec::new();
    for pair in list(&given, "needPreemption") {
        let flavor = world.state.ids.flavor(text(pair, "flavor")?);
        let resource = world.state.ids.resource(text(pair, "resource")?);
        need.push(world.state.ids.pair(flavor, resource));
    }
    let search = Search { id, queue, need, usage, asks: Vec::new(), assignment: None, replaced: None };
    let targets = search.targets(&mut world.state);
    let preempted: Map<String, Value> = targets
        .iter()
        .map(|t| (world.state.wl(t.id).spec.key.to_string(), json!(words::cause(t.cause))))
        .collect();
    Ok(json!({"preempted": preempted}))
}

pub(super) fn assign_flavors(world: &mut World) -> Answer {
    let queue = world.queue()?;
    let given = world.given.clone();
    world.charge();
    let workload = world.workload(given.get("workload").unwrap_or(&Value::Null))?;
    let replaced = given.get("replacedSlice").map(|slice| replaced(world, slice));
    let id = world.enqueue(workload, queue);
    let answer = |value: &Value| {
        let possibility = match value.get("possibility").and_then(Value::as_str) {
            Some("Reclaim") => Possibility::Reclaim,
            Some("Preempt") => Possibility::Preempt,
            _ => Possibility::NoCandidates,
        };
        let borrow = value.get("borrow").and_then(Value::as_u64).unwrap_or(0);
        (possibility, u32::try_from(borrow).unwrap_or(0))
    };
    let default = answer(given.get("preemptionOracleDefault").unwrap_or(&Value::Null));
    let mut told: Vec<(FlavorId, ResourceId, (Possibility, u32))> = Vec::new();
    for entry in list(&given, "preemptionOracle") {
        let flavor = world.state.ids.flavor(text(entry, "flavor")?);
        let resource = world.state.ids.resource(text(entry, "resource")?);
        told.push((flavor, resource, answer(entry)));
    }
    let tell = |flavor: FlavorId, resource: ResourceId| {
        told.iter().find(|(f, r, _)| *f == flavor && *r == resource).map_or(default, |(_, _, answer)| *answer)
    };
    let how = How { oracle: Oracle::Told(&tell), replaced: replaced.as_ref(), ..How::default() };
    let assignment = world.state.assign(id, queue, how);
    Ok(assigned(world, &assignment))
}

fn replaced(world: &mut World, slice: &Value) -> Replaced {
    let sets = list(slice, "totalRequests").iter().map(|set| {
        let flavors = set.get("flavors").and_then(Value::as_object).into_iter().flatten();
        let requests = set.get("requests").and_then(Value::as_object).into_iter().flatten();
        ReplacedSet {
            name: set.get("name").and_then(Value::as_str).unwrap_or("").into(),
            flavors: flavors
                .map(|(r, f)| (world.state.ids.resource(r), world.state.ids.flavor(f.as_str().unwrap_or(""))))
                .collect(),
            requests: requests
                .map(|(r, a)| {
                    let amount = a
                        .as_i64()
                        .or_else(|| Some(muster_translate::kueue::amount(r, a.as_str()?.parse().ok()?)));
                    (world.state.ids.resource(r), amount.unwrap_or(0))
                })
                .collect(),
            topology: None,
        }
    });
    Replaced { sets: sets.collect() }
}

fn assigned(world: &World, assignment: &Assignment) -> Value {
    let ids = &world.state.ids;
    let choice = |c: &Choice| {
        let value = json!({
            "flavor": &**ids.flavor_name(c.flavor),
            "mode": mode(c.mode),
            "triedFlavorIdx": c.tried,
            "borrowLevel": c.borrows,
        });
        (ids.resource_name(c.resource).to_string(), value)
    };
    let set = |set: &SetAssignment| {
        let mut reasons: Vec<String> = set.reasons.iter().map(words::reason).collect();
        reasons.sort();
        let requests: Map<String, Value> =
            set.requests.iter().map(|(r, a)| (ids.resource_name(*r).to_string(), json!(a))).collect();
        let flavors: Map<String, Value> = set.flavors.iter().map(choice).collect();
        let mut value = json!({
            "name": &*set.name,
            "count": set.count,
            "mode": mode(set.mode()),
            "flavors": flavors,
            "requests": requests,
            "reasons": reasons,
        });
        if let Some(places) = &set.topology {
            value["topologyAssignment"] = topology(places);
        }
        if let Some(fault) = &set.fault {
            value["error"] = json!(words::fault(fault));
        }
        value
    };
    let sets: Vec<Value> = assignment.sets.iter().map(set).collect();
    let mut value = json!({
        "mode": mode(assignment.mode()),
        "borrowing": assignment.borrows,
        "podSets": sets,
        "usage": world.written(&assignment.usage),
    });
    if let Some(missing) = assignment.missing() {
        value["noFitReason"] = json!(words::missing(missing));
    }
    value
}

pub(super) fn tas_assign(world: &mut World) -> Answer {
    let given = world.given.clone();
    let flavor = text(&given, "flavor")?;
    let flavor = world.state.ids.flavor(flavor);
    let Some(mut places) = world.state.places(flavor).cloned() else {
        return Err("given.flavor: it has no topology".into());
    };
    fill(world, &mut places, &given);
    let workload = match given.get("workload") {
        Some(value) => {
            // What it was assigned it holds.
            let mut value = value.clone();
            if value.pointer("/status/admission").is_some() {
                value["status"]["conditions"] = json!([{"type": "QuotaReserved", "status": "True"}]);
            }
            Some(world.workload(&value)?)
        }
        None => None,
    };
    let held = |name: &Name| -> Option<&TopologyAssignment> {
        let sets = &workload.as_ref()?.reservation.as_ref()?.pod_sets;
        sets.iter().find(|s| s.name == *name)?.topology.as_ref()
    };
    let asks: Vec<Asked> =
        list(&given, "requests").iter().map(|request| asked(world, request)).collect::<Result<_, _>>()?;
    let unhealthy: Vec<Name> = workload.iter().flat_map(|w| w.unhealthy.clone()).collect();
    let look = Look { empty: false, gates: world.state.settings.gates, unhealthy: &unhealthy, taken: &[] };
    let kept = workload.as_ref().is_some_and(|w| w.pod_owned) && look.gates.keep_pod_owned;
    let refs: Vec<Ask<'_>> = asks
        .iter()
        .map(|a| Ask {
            name: &a.name,
            count: a.count,
            per_pod: &a.per_pod,
            rule: &a.rule,
            tolerations: &a.tolerations,
            request: a.request.as_ref(),
            implied: a.implied,
            previous: a.previous.as_ref(),
            held: held(&a.name),
        })
        .collect();
    let mut sets = Map::new();
    if kept {
        for ask in &asks {
            let value = held(&ask.name).map_or(Value::Null, |t| json!({"topologyAssignment": topology(t)}));
            sets.insert(ask.name.to_string(), value);
        }
        return Ok(json!({"podSets": sets}));
    }
    match places.find(&refs, look) {
        Ok(found) => {
            for (ask, found) in asks.iter().zip(found) {
                let value = found.map_or(Value::Null, |t| json!({"topologyAssignment": topology(&t)}));
                sets.insert(ask.name.to_string(), value);
            }
        }
        Err(failed) => {
            for (ask, found) in asks.iter().zip(failed.found) {
                if let Some(found) = found {
                    sets.insert(ask.name.to_string(), json!({"topologyAssignment": topology(&found)}));
                }
            }
            let value = json!({"failed": true, "reason": words::no_place(&failed.why)});
            // All sets of a group fail together.
            let group = asks.get(failed.set).and_then(|a| a.request.as_ref()?.group.clone());
            for (i, ask) in asks.iter().enumerate() {
                let same = group.is_some() && ask.request.as_ref().and_then(|r| r.group.clone()) == group;
                if i == failed.set || same {
                    sets.insert(ask.name.to_string(), value.clone());
                }
            }
        }
    }
    Ok(json!({"podSets": sets}))
}

/// Charges the usage that is given, and holds what is free against what the document says.
fn fill(world: &mut World, places: &mut Places, given: &Value) {
    for (domain, resources) in given.get("tasUsage").and_then(Value::as_object).into_iter().flatten() {
        let Some(leaf) = places.leaf_of(domain) else { continue };
        for (resource, amount) in resources.as_object().into_iter().flatten() {
            let resource = world.state.ids.resource(resource);
            places.use_amount(leaf, resource, amount.as_i64().unwrap_or(0));
        }
    }
    for (domain, resources) in given.get("freeCapacity").and_then(Value::as_object).into_iter().flatten() {
        let Some(leaf) = places.leaf_of(domain) else {
            world.notes.push(format!("freeCapacity: there is no domain {domain}"));
            continue;
        };
        for (name, amount) in resources.as_object().into_iter().flatten() {
            let resource = world.state.ids.resource(name);
            let free = places.free(leaf, resource);
            if Some(free) != amount.as_i64() {
                world.notes.push(format!("freeCapacity: {domain} has {free} of {name}, not {amount}"));
            }
        }
    }
}

struct Asked {
    name: Name,
    count: i32,
    per_pod: Amounts,
    rule: muster_model::NodeRule,
    tolerations: Vec<muster_model::Toleration>,
    request: Option<TopologyRequest>,
    implied: bool,
    previous: Option<TopologyAssignment>,
}

/// A request, read as if it was a set of a workload.
fn asked(world: &mut World, request: &Value) -> Result<Asked, String> {
    let name: Name = request.get("name").and_then(Value::as_str).unwrap_or("").into();
    let mut template = Map::new();
    for field in ["nodeSelector", "affinity", "tolerations"] {
        if let Some(value) = request.get(field) {
            template.insert(field.into(), value.clone());
        }
    }
    let mut set = json!({"name": "main", "count": request.get("count"), "template": {"spec": template}});
    if let Some(topology) = request.get("topologyRequest") {
        set["topologyRequest"] = topology.clone();
    }
    if let Some(group) = request.get("podSetGroupName") {
        set["topologyRequest"]["podSetGroupName"] = group.clone();
    }
    let read = world.workload(&json!({"metadata": {"name": "given"}, "spec": {"podSets": [set]}}))?;
    let set = read.pod_sets.into_iter().next().ok_or("given.requests: there is nothing in it")?;
    let singles = request.get("singlePodRequests").and_then(Value::as_object).into_iter().flatten();
    let per_pod: Amounts = singles
        .map(|(resource, amount)| (world.state.ids.resource(resource), amount.as_i64().unwrap_or(0)))
        .collect();
    let explicit = set.topology.as_ref().is_some_and(TopologyRequest::is_explicit);
    Ok(Asked {
        name,
        count: set.count,
        per_pod,
        rule: set.rule,
        tolerations: set.tolerations,
        implied: request.get("implied").and_then(Value::as_bool).unwrap_or(!explicit),
        request: set.topology,
        previous: request.get("previousAssignment").map(muster_translate::kueue::assignment),
    })
}

pub(super) fn available(world: &mut World) -> Answer {
    world.charge();
    let tree = &world.state.tree;
    let (mut now, mut ever) = (Map::new(), Map::new());
    for queue in tree.queue_ids() {
        let defined = |pair: PairId| tree.cell(queue, pair).defined;
        let name = tree.nodes[queue].name.to_string();
        let available = world.by_pair(|pair| defined(pair).then(|| tree.available(queue, pair)));
        let potential = world.by_pair(|pair| defined(pair).then(|| tree.potential(queue, pair)));
        now.insert(name.clone(), available);
        ever.insert(name, potential);
    }
    Ok(json!({"available": now, "potentialAvailable": ever}))
}

pub(super) fn quota_tree(world: &mut World) -> Answer {
    let given = world.given.clone();
    let ids = |world: &World, key: &str| -> Vec<WorkloadId> {
        list(&given, key)
            .iter()
            .filter_map(Value::as_str)
            .filter_map(|text| {
                let (namespace, name) = text.split_once('/')?;
                world.state.by_key.get(&Key::new(namespace, name)).copied()
            })
            .collect()
    };
    let (removed, added) = (ids(world, "removeWorkloads"), ids(world, "addWorkloads"));
    removed.iter().for_each(|id| world.state.release(*id));
    added.iter().for_each(|id| world.state.hold(*id));
    let tree = &world.state.tree;
    let cells = |node: TreeId| {
        let defined = |pair: PairId| tree.cell(node, pair).defined;
        let quota = world.by_pair(|pair| defined(pair).then(|| tree.cell(node, pair).subtree));
        let usage = world.by_pair(|pair| defined(pair).then(|| tree.cell(node, pair).usage));
        (quota, usage)
    };
    let weight = |node: TreeId| tree.nodes[node].weight.0 / 1_000_000_000;
    let (mut queues, mut cohorts, mut inactive) = (Map::new(), Map::new(), Vec::new());
    for queue in tree.queue_ids() {
        let name = tree.nodes[queue].name.to_string();
        if world.state.queues[queue].inactive.is_some() {
            inactive.push(name);
            continue;
        }
        let (quota, usage) = cells(queue);
        let members: Vec<String> = world.state.queues[queue]
            .members
            .iter()
            .filter(|id| added.contains(id) || !removed.contains(id))
            .map(|id| world.state.wl(*id).spec.key.to_string())
            .collect();
        let value =
            json!({"subtreeQuota": quota, "usage": usage, "workloads": members, "fairWeight": weight(queue)});
        queues.insert(name, value);
    }
    for cohort in tree.cohort_ids() {
        let (quota, usage) = cells(cohort);
        // A cohort that is only named has no weight of its own.
        let weight = if tree.nodes[cohort].explicit { weight(cohort) } else { 0 };
        let value = json!({"subtreeQuota": quota, "usage": usage, "fairWeight": weight});
        cohorts.insert(tree.nodes[cohort].name.to_string(), value);
    }
    Ok(json!({"clusterQueues": queues, "cohorts": cohorts, "inactiveClusterQueues": inactive}))
}

pub(super) fn shares(world: &mut World) -> Answer {
    world.charge();
    let extra = world.given.get("extraRequest").cloned().unwrap_or(Value::Null);
    let extra = world.usage(&extra);
    let tree = &world.state.tree;
    let mut shares = Vec::new();
    let all = tree.queue_ids().map(|q| ("ClusterQueue", q)).chain(tree.cohort_ids().map(|c| ("Cohort", c)));
    for (kind, node) in all {
        let share = if kind == "ClusterQueue" { tree.share_with(node, &extra) } else { tree.share(node) };
        let resource = share.resource().map_or("", |r| world.state.ids.resource_name(r));
        shares.push(json!({
            "kind": kind,
            "name": &*tree.nodes[node].name,
            "share": share.per_mille(),
            "resource": resource,
            "borrowing": share.is_borrowing(),
        }));
    }
    Ok(json!({"shares": shares}))
}

pub(super) fn is_borrowing_on(world: &mut World) -> Answer {
    world.charge();
    let queue = world.queue()?;
    let requested = world.given.get("requested").cloned().unwrap_or(Value::Null);
    let requested = world.usage(&requested);
    let tree = &world.state.tree;
    Ok(json!({
        "borrowing": tree.share(queue).is_borrowing(),
        "borrowingOnRequested": tree.borrows_on_any(queue, &requested),
    }))
}

pub(super) fn to_reserve(world: &mut World) -> Answer {
    world.charge();
    let queue = world.queue()?;
    let usage = world.given.get("assignmentUsage").cloned().unwrap_or(Value::Null);
    let usage = world.usage(&usage);
    let borrows = world.given.get("borrowing").and_then(Value::as_u64).unwrap_or(0);
    let mut assignment = Assignment::default();
    assignment.usage = usage;
    assignment.borrows = u32::try_from(borrows).unwrap_or(0);
    assignment.set_mode(match text(&world.given, "mode")? {
        "Preempt" => Mode::Preempt,
        "Fit" => Mode::Fit,
        _ => Mode::NoFit,
    });
    let reserved = world.state.to_reserve(queue, &assignment);
    Ok(json!({"reserved": world.written(&reserved)}))
}

pub(super) fn entry_order(world: &mut World) -> Answer {
    let given = world.given.clone();
    let mut entries = Vec::new();
    for entry in list(&given, "entries") {
        let workload = world.workload(entry.get("workload").unwrap_or(&Value::Null))?;
        let borrows = entry.get("borrowLevel").and_then(Value::as_u64).unwrap_or(0);
        let preempting = entry.get("isPreemptor").and_then(Value::as_bool).unwrap_or(false);
        let borrows = u32::try_from(borrows).unwrap_or(0);
        entries.push((Turn::new(&workload, borrows, preempting, &world.state.settings), workload.key.name));
    }
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    let order: Vec<&str> = entries.iter().map(|(_, name)| &**name).collect();
    Ok(json!({"order": order}))
}

pub(super) fn candidate_order(world: &mut World) -> Answer {
    let given = world.given.clone();
    let own = given.get("preemptorClusterQueue").and_then(Value::as_str).unwrap_or("");
    let by_usage = world.state.settings.usage_sharing.is_some();
    let mut candidates = Vec::new();
    for entry in list(&given, "candidates") {
        let workload = world.workload(entry.get("workload").unwrap_or(&Value::Null))?;
        let usage = entry.get("localQueueUsage").and_then(Value::as_f64).filter(|_| by_usage);
        let candidate = Candidate {
            evicted: workload.evicted.is_some(),
            own_queue: entry.get("clusterQueue").and_then(Value::as_str) == Some(own),
            usage: usage.map(|used| (workload.queue.clone(), used)),
            priority: muster_admit::order::priority(&workload, &world.state.settings),
            since: workload.reservation.as_ref().and_then(|r| r.since).unwrap_or(world.now),
            uid: workload.uid.clone(),
        };
        candidates.push((candidate, workload.key.name));
    }
    candidates.sort_by(|a, b| compare_candidates(&a.0, &b.0));
    let order: Vec<&str> = candidates.iter().map(|(_, name)| &**name).collect();
    Ok(json!({"order": order}))
}

pub(super) fn partial_search(world: &World) -> Answer {
    let count =
        |value: &Value, key: &str| value.get(key).and_then(Value::as_i64).and_then(|n| i32::try_from(n).ok());
    let sets: Vec<reduce::Range> = list(&world.given, "podSets")
        .iter()
        .map(|set| reduce::Range { count: count(set, "count").unwrap_or(1), min: count(set, "minCount") })
        .collect();
    let most = count(&world.given, "fitsIfTotalAtMost").unwrap_or(0);
    let found = reduce::search(&sets, |counts| (counts.iter().sum::<i32>() <= most).then(|| counts.to_vec()));
    Ok(match found {
        Some(counts) => json!({"found": true, "total": counts.iter().sum::<i32>(), "counts": counts}),
        None => json!({"found": false}),
    })
}
