//! Devices of dynamic resource allocation: which devices a pod's claims get on a node.
//!
//! In: the devices of the cluster and who holds them ([`DeviceTable`]), the devices that a node can reach,
//! and the claims of a pod that have no allocation yet. Out: devices for every request, or why there are none
//! ([`assign`]). What a pod's claims must satisfy wherever it goes is a matter of [`admit`]; a claim that has
//! its devices already gets no new ones and is only asked where it can be used ([`allocation_reaches`],
//! [`DeviceTable::reaches`]).
//!
//! - A request takes the first of its alternatives with which everything works out, requests and claims in
//!   order. Among devices, those first in the order of their names.
//! - A device is held by one claim. Admin access looks at devices without holding them, and takes nothing
//!   from counters. Within one claim every device comes once.
//! - "All" means every candidate that the node can reach, at least one; if one of them is not free there is
//!   none.
//! - Devices that a constraint concerns must have its attribute, all with one value.
//! - A device takes from counters that its pool shares; what all held devices take stays within the pool's
//!   total.
//!
//! *Invariant:* [`assign`] changes nothing. What it found is put into force and taken back by
//! [`DeviceTable::hold`] and [`DeviceTable::release`], which undo each other.
//! *Invariant:* the order in which devices were put, dropped and put again does not matter; names decide,
//! never ids.

use crate::ids::DeviceId;
use dense::{IdSet, IdVec, Interner, define_id};
use muster_model::{Allocation, Claim, Device, DeviceCount, DeviceName, DeviceReach, Labels, Name, NodeTerm};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How many pods may hold one claim; the API server takes no more.
pub const MOST_PODS: usize = 256;
/// How many devices one claim may have; the API server takes no more.
pub const MOST_DEVICES: usize = 32;
/// How many requests and devices one pod may have here, which bounds the depth of the search.
const MOST_REQUESTS: usize = 256;
const MOST_DEVICES_OF_POD: usize = 1024;
/// How many devices are looked at before a search is given up, beyond those that it looks at even if nothing
/// fails. Devices that nothing tells apart are tried once, so a search that takes this long is about many
/// different ones.
const MOST_STEPS: usize = 10_000;

define_id! {
    /// A counter that a pool shares between its devices.
    struct CounterId;
}

/// The devices of the cluster, and which are held.
#[derive(Clone, Debug, Default)]
pub struct DeviceTable {
    names: Interner<DeviceId, DeviceName>,
    present: IdVec<DeviceId, Option<Entry>>,
    /// How many claims hold it. More than one only if the cluster itself says so.
    holders: IdVec<DeviceId, u32>,
    counters: Interner<CounterId, (Name, Name, Name)>,
    /// What the present and held devices take.
    taken: IdVec<CounterId, i64>,
    /// Devices of one node, in order of their names.
    local: BTreeMap<Name, Vec<DeviceId>>,
    /// Devices that several nodes may reach, in order of their names.
    wide: Vec<DeviceId>,
    /// Candidates that were resolved before, by the address of the list, which is kept so that the address
    /// stays its own.
    resolved: BTreeMap<usize, Resolved>,
}

type Resolved = (Arc<[DeviceName]>, Arc<IdSet<DeviceId>>);

#[derive(Clone, Debug)]
struct Entry {
    device: Arc<Device>,
    counters: SmallVec<[Counter; 2]>,
}

/// What a device takes of a counter, and what there is in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Counter {
    id: CounterId,
    amount: i64,
    total: i64,
}

/// A claim without an allocation, resolved against the table.
#[derive(Clone, Debug)]
pub struct Wanted {
    requests: Vec<Vec<Alternative>>,
    /// The attributes in which devices must agree, one for each constraint.
    same: Vec<Name>,
}

#[derive(Clone, Debug)]
struct Alternative {
    candidates: Arc<IdSet<DeviceId>>,
    count: DeviceCount,
    admin: bool,
    /// The constraints that concern it, as indices.
    same: SmallVec<[usize; 2]>,
}

/// The devices for one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pick {
    /// Indices of the claim in the pod, of the request in the claim, and of the alternative in the request.
    pub claim: usize,
    pub request: usize,
    pub alternative: usize,
    /// Looks at the devices without holding them.
    pub admin: bool,
    pub devices: SmallVec<[DeviceId; 8]>,
}

/// Why a pod's claims get no devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The claim can never be allocated.
    Defect { claim: usize, why: Name },
    /// It is a claim on GPUs that pods share, and not labelled with the queue of this one.
    OtherQueue { claim: usize, label: Option<Name> },
    /// As many pods as may be hold it.
    TooManyPods { claim: usize },
    /// It has its devices, and they cannot be used from this node.
    Elsewhere { claim: usize },
    /// Whatever the others get, this request needs more than there is on this node: how many it needs (of the
    /// alternative that lacks least), how many are free and how many there would be if none were held.
    Short { claim: usize, request: usize, needed: usize, free: usize, there: usize },
    /// Each request could be served, but not all of them together.
    Together,
    /// It asks for more requests or devices than a pod or a claim may have.
    TooMany,
    /// There were too many ways to try them all.
    SearchEnded,
}

/// Whether the pod may use the claim at all, on whatever node. `claim_idx` is only repeated in the answer.
pub fn admit(claim_idx: usize, claim: &Claim, queue: &str, pod_uid: &str) -> Result<(), Refused> {
    if let Some(why) = &claim.defect {
        return Err(Refused::Defect { claim: claim_idx, why: why.clone() });
    }
    if !labelled_for(claim, queue) {
        return Err(Refused::OtherQueue { claim: claim_idx, label: claim.queue.clone() });
    }
    let already = claim.reserved_for.iter().any(|uid| &**uid == pod_uid);
    if !already && claim.reserved_for.len() >= MOST_PODS {
        return Err(Refused::TooManyPods { claim: claim_idx });
    }
    Ok(())
}

/// Whether a claim on GPUs that is not one pod's own carries the label of this queue. Others need none.
pub fn labelled_for(claim: &Claim, queue: &str) -> bool {
    let gpus = claim.requests.iter().flat_map(|request| &request.alternatives).any(|a| a.gpu);
    !gpus || claim.of_pod.is_some() || claim.queue.as_deref() == Some(queue)
}

/// Whether devices that a claim has already can be used from this node.
pub fn allocation_reaches(allocation: &Allocation, node: &str, labels: &Labels) -> bool {
    allocation.nodes.is_empty() || allocation.nodes.iter().any(|term| term.holds(node, labels))
}

/// Finds devices for all requests of these claims. `reach` are the devices that the node can reach, in the
/// order of [`DeviceTable::reach`].
pub fn assign(table: &DeviceTable, reach: &[DeviceId], claims: &[&Wanted]) -> Result<Vec<Pick>, Refused> {
    let mut requests = Vec::new();
    for (claim, wanted) in claims.iter().enumerate() {
        for (request, alternatives) in wanted.requests.iter().enumerate() {
            let offers =
                alternatives.iter().map(|a| offer(table, reach, a)).collect::<SmallVec<[Offer; 1]>>();
            if !offers.iter().any(Offer::is_enough) {
                let least =
                    offers.iter().min_by_key(|offer| offer.needed.saturating_sub(offer.devices.len()));
                let (needed, free, there) = least.map_or((0, 0, 0), |o| (o.needed, o.devices.len(), o.there));
                return Err(Refused::Short { claim, request, needed, free, there });
            }
            requests.push(Request { claim, request, alternatives, offers });
        }
    }
    if requests.len() > MOST_REQUESTS {
        return Err(Refused::TooMany);
    }
    let offered = requests.iter().flat_map(|r| &r.offers).map(|offer| offer.devices.len()).sum();
    let same = claims.iter().map(|wanted| vec![Agreed::default(); wanted.same.len()]).collect();
    let mut search = Search {
        table,
        claims,
        requests: &requests,
        taken: Vec::new(),
        counters: Vec::new(),
        same,
        chosen: vec![0; requests.len()],
        kinds: None,
        steps_left: MOST_STEPS.saturating_add(offered),
        too_many: false,
    };
    if !search.serve(0) {
        return Err(match search {
            Search { steps_left: 0, .. } => Refused::SearchEnded,
            Search { too_many: true, .. } => Refused::TooMany,
            _ => Refused::Together,
        });
    }
    let (taken, chosen) = (search.taken, search.chosen);
    let mut taken = taken.into_iter().peekable();
    let picks = requests.iter().zip(chosen).enumerate().map(|(idx, (request, alternative))| Pick {
        claim: request.claim,
        request: request.request,
        alternative,
        admin: request.alternatives[alternative].admin,
        devices: std::iter::from_fn(|| taken.next_if(|t| t.request == idx)).map(|t| t.device).collect(),
    });
    Ok(picks.collect())
}

impl DeviceTable {
    pub fn new() -> Self {
        Self::default()
    }

    /// A device is there, or is not what it was.
    pub fn put(&mut self, device: Arc<Device>) {
        let id = self.id(&device.name);
        self.take_out(id);
        let counters = (device.counters.iter())
            .map(|(name, amount)| {
                let key = (device.name.driver.clone(), device.name.pool.clone(), name.clone());
                let counter = self.counters.intern(key);
                self.taken.ensure(counter);
                let total = device.counter_totals.iter().find(|(counted, _)| counted == name);
                Counter { id: counter, amount: *amount, total: total.map_or(i64::MAX, |(_, total)| *total) }
            })
            .collect();
        let list = match &device.reach {
            DeviceReach::Node(node) => self.local.entry(node.clone()).or_default(),
            DeviceReach::Nodes(_) | DeviceReach::Everywhere => &mut self.wide,
        };
        let place = list.partition_point(|other| self.names[*other] < device.name);
        list.insert(place, id);
        self.present[id] = Some(Entry { device, counters });
        self.count(id, i64::saturating_add);
    }

    /// A device is gone. That it is held is remembered, in case it comes back.
    pub fn drop(&mut self, name: &DeviceName) {
        if let Some(id) = self.names.get(name) {
            self.take_out(id);
        }
    }

    fn take_out(&mut self, id: DeviceId) {
        self.count(id, i64::saturating_sub);
        let Some(entry) = self.present[id].take() else { return };
        match &entry.device.reach {
            DeviceReach::Node(node) => {
                if let Some(list) = self.local.get_mut(node) {
                    list.retain(|other| *other != id);
                    if list.is_empty() {
                        self.local.remove(node);
                    }
                }
            }
            DeviceReach::Nodes(_) | DeviceReach::Everywhere => self.wide.retain(|other| *other != id),
        }
    }

    /// Adds or takes back what a device takes from counters, if it is there and held.
    fn count(&mut self, id: DeviceId, how: impl Fn(i64, i64) -> i64) {
        if self.holders[id] > 0
            && let Some(entry) = &self.present[id]
        {
            for counter in &entry.counters {
                self.taken[counter.id] = how(self.taken[counter.id], counter.amount);
            }
        }
    }

    /// A claim has these devices now.
    pub fn hold(&mut self, devices: impl IntoIterator<Item = DeviceId>) {
        for id in devices {
            self.holders[id] = self.holders[id].saturating_add(1);
            if self.holders[id] == 1 {
                self.count(id, i64::saturating_add);
            }
        }
    }

    /// The claim has them no more.
    pub fn release(&mut self, devices: impl IntoIterator<Item = DeviceId>) {
        for id in devices {
            if self.holders[id] == 1 {
                self.count(id, i64::saturating_sub);
            }
            self.holders[id] = self.holders[id].saturating_sub(1);
        }
    }

    pub fn is_held(&self, id: DeviceId) -> bool {
        self.holders.get(id).is_some_and(|holders| *holders > 0)
    }

    pub fn name(&self, id: DeviceId) -> &DeviceName {
        &self.names[id]
    }

    /// The device, if it is there.
    pub fn get(&self, id: DeviceId) -> Option<&Device> {
        self.present.get(id)?.as_ref().map(|entry| &*entry.device)
    }

    /// The devices that can be used from this node, in order of their names.
    pub fn reach(&self, node: &str, labels: &Labels) -> Vec<DeviceId> {
        let local = self.local.get(node).map_or(&[][..], Vec::as_slice);
        let mut reach = Vec::with_capacity(local.len());
        let mut local = local.iter().copied().peekable();
        for id in self.wide.iter().copied().filter(|id| self.reaches(*id, node, labels)) {
            while let Some(before) = local.next_if(|other| self.names[*other] < self.names[id]) {
                reach.push(before);
            }
            reach.push(id);
        }
        reach.extend(local);
        reach
    }

    /// Whether this device is there and can be used from this node.
    pub fn reaches(&self, id: DeviceId, node: &str, labels: &Labels) -> bool {
        self.get(id).is_some_and(|device| match &device.reach {
            DeviceReach::Node(name) => &**name == node,
            DeviceReach::Nodes(terms) => terms.iter().any(|term: &NodeTerm| term.holds(node, labels)),
            DeviceReach::Everywhere => true,
        })
    }

    /// What a claim asks for, in ids. It stays right when devices come and go; when the claim changes,
    /// resolve it again.
    pub fn resolve(&mut self, claim: &Claim) -> Wanted {
        let mut requests = Vec::with_capacity(claim.requests.len());
        for request in &claim.requests {
            let concerns = |names: &[Name], alternative: &str| {
                let whole = |name: &str| match name.split_once('/') {
                    Some((first, rest)) => first == &*request.name && rest == alternative,
                    None => name == &*request.name,
                };
                names.is_empty() || names.iter().any(|name| whole(name))
            };
            let alternatives = (request.alternatives.iter())
                .map(|alternative| Alternative {
                    candidates: self.candidates(&alternative.candidates),
                    count: alternative.count,
                    admin: alternative.admin,
                    same: (claim.same.iter().enumerate())
                        .filter(|(_, (names, _))| concerns(names, &alternative.name))
                        .map(|(idx, _)| idx)
                        .collect(),
                })
                .collect();
            requests.push(alternatives);
        }
        Wanted { requests, same: claim.same.iter().map(|(_, attribute)| attribute.clone()).collect() }
    }

    /// The devices that an allocated claim holds: those that it only looks at are left out.
    pub fn held_by(&mut self, claim: &Claim) -> Vec<DeviceId> {
        let Some(allocation) = &claim.allocation else { return Vec::new() };
        let looks_at = |result: &str| {
            let (name, alternative) = result.split_once('/').unwrap_or((result, ""));
            let request = claim.requests.iter().find(|request| &*request.name == name);
            request.is_some_and(|r| r.alternatives.iter().any(|a| &*a.name == alternative && a.admin))
        };
        let held = allocation.devices.iter().filter(|(request, _)| !looks_at(request));
        held.map(|(_, device)| self.id(device)).collect()
    }

    /// The id of a device by its name, whether it is there or not.
    pub fn id(&mut self, name: &DeviceName) -> DeviceId {
        let id = match self.names.get(name) {
            Some(id) => id,
            None => self.names.intern(name.clone()),
        };
        self.present.ensure(id);
        self.holders.ensure(id);
        id
    }

    /// Candidate lists name devices of the whole cluster and are shared by many claims, so each is looked up
    /// once.
    fn candidates(&mut self, names: &Arc<[DeviceName]>) -> Arc<IdSet<DeviceId>> {
        let address = names.as_ptr().addr();
        if let Some((list, ids)) = self.resolved.get(&address)
            && Arc::ptr_eq(list, names)
        {
            return ids.clone();
        }
        let ids: Arc<IdSet<DeviceId>> = Arc::new(names.iter().map(|name| self.id(name)).collect());
        // Lists that nobody else has any more go first; looking for them when their number is a power of two
        // costs little.
        if self.resolved.len().is_power_of_two() {
            self.resolved.retain(|_, (list, _)| Arc::strong_count(list) > 1);
        }
        self.resolved.insert(address, (names.clone(), ids.clone()));
        ids
    }
}

/// What there is on the node for one alternative.
struct Offer {
    /// Those that may be taken, in order.
    devices: SmallVec<[DeviceId; 8]>,
    needed: usize,
    /// How many there are, free or not.
    there: usize,
}

impl Offer {
    fn is_enough(&self) -> bool {
        self.devices.len() >= self.needed
    }
}

fn offer(table: &DeviceTable, reach: &[DeviceId], alternative: &Alternative) -> Offer {
    let mut devices = SmallVec::new();
    let mut there = 0;
    for id in reach.iter().copied().filter(|id| alternative.candidates.contains(*id)) {
        let Some(device) = table.get(id) else { continue };
        there += 1;
        if !device.no_schedule && (alternative.admin || !table.is_held(id)) {
            devices.push(id);
        }
    }
    let needed = match alternative.count {
        DeviceCount::Exactly(count) => usize::try_from(count).unwrap_or(usize::MAX),
        DeviceCount::All => there.max(1),
    };
    Offer { devices, needed, there }
}

struct Request<'a> {
    claim: usize,
    request: usize,
    alternatives: &'a [Alternative],
    offers: SmallVec<[Offer; 1]>,
}

/// The value that the devices of a constraint have, and how many there are.
#[derive(Clone, Default)]
struct Agreed {
    value: Option<Name>,
    devices: usize,
}

struct Taken {
    device: DeviceId,
    request: usize,
    admin: bool,
}

/// A search in depth, requests in order and devices in order, so that the first answer is the one.
struct Search<'a> {
    table: &'a DeviceTable,
    claims: &'a [&'a Wanted],
    requests: &'a [Request<'a>],
    taken: Vec<Taken>,
    /// What the devices taken so far take from counters.
    counters: Vec<(CounterId, i64)>,
    /// By claim and constraint.
    same: Vec<Vec<Agreed>>,
    /// The alternative of each request.
    chosen: Vec<usize>,
    /// Devices of one number are told apart by nothing in this search. Made when something fails for the
    /// first time.
    kinds: Option<BTreeMap<DeviceId, usize>>,
    steps_left: usize,
    too_many: bool,
}

impl Search<'_> {
    /// Serves this request and all after it; if that is impossible, everything is as before.
    fn serve(&mut self, idx: usize) -> bool {
        let Some(request) = self.requests.get(idx) else { return true };
        for (alternative, offer) in request.offers.iter().enumerate() {
            if !offer.is_enough() {
                continue;
            }
            let of_claim =
                self.taken.iter().filter(|t| self.requests[t.request].claim == request.claim).count();
            if of_claim + offer.needed > MOST_DEVICES || self.taken.len() + offer.needed > MOST_DEVICES_OF_POD
            {
                self.too_many = true;
                continue;
            }
            self.chosen[idx] = alternative;
            if self.pick(idx, alternative, 0, offer.needed) {
                return true;
            }
            if self.steps_left == 0 {
                return false;
            }
        }
        false
    }

    /// Takes `missing` more devices, from a place in the list on, and serves the requests after.
    fn pick(&mut self, idx: usize, alternative: usize, from: usize, missing: usize) -> bool {
        if missing == 0 {
            return self.serve(idx + 1);
        }
        let devices = &self.requests[idx].offers[alternative].devices;
        let mut failed: SmallVec<[usize; 4]> = SmallVec::new();
        for place in from..=devices.len() - missing {
            let device = devices[place];
            if !failed.is_empty() && failed.contains(&self.kind(device)) {
                continue;
            }
            if self.steps_left == 0 {
                return false;
            }
            self.steps_left -= 1;
            if self.take(idx, alternative, device) {
                if self.pick(idx, alternative, place + 1, missing - 1) {
                    return true;
                }
                self.put_back(idx, alternative);
                // What failed with this device fails with one like it: taking that one instead would leave
                // this one to the others, and they cannot tell them apart.
                let kind = self.kind(device);
                failed.push(kind);
            }
        }
        false
    }

    fn take(&mut self, idx: usize, alternative: usize, device: DeviceId) -> bool {
        let request = &self.requests[idx];
        let wanted = &request.alternatives[alternative];
        let mine = |t: &Taken| self.requests[t.request].claim == request.claim;
        let clashes = |t: &Taken| t.device == device && (mine(t) || !(t.admin || wanted.admin));
        if self.taken.iter().any(clashes) {
            return false;
        }
        let Some(entry) = self.table.present.get(device).and_then(Option::as_ref) else { return false };
        if !wanted.admin {
            let now: &[(CounterId, i64)] = &self.counters;
            let of = |id, list: &mut dyn Iterator<Item = (CounterId, i64)>| -> i128 {
                list.filter(|(counter, _)| *counter == id).map(|(_, amount)| i128::from(amount)).sum()
            };
            let exceeds = |c: &Counter| {
                // One device may name a counter twice, so its own amounts are summed as well.
                let own = of(c.id, &mut entry.counters.iter().map(|c| (c.id, c.amount)));
                let others = i128::from(self.table.taken[c.id]) + of(c.id, &mut now.iter().copied());
                others + own > i128::from(c.total)
            };
            if entry.counters.iter().any(exceeds) {
                return false;
            }
        }
        let (claim, agreed) = (self.claims[request.claim], &mut self.same[request.claim]);
        let value = |constraint: usize| entry.device.attributes.get(&claim.same[constraint]);
        let agrees = |constraint: &usize| match (value(*constraint), &agreed[*constraint].value) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(value), Some(agreed)) => value == agreed,
        };
        if !wanted.same.iter().all(agrees) {
            return false;
        }
        for constraint in &wanted.same {
            let agreed = &mut agreed[*constraint];
            agreed.value = value(*constraint).cloned();
            agreed.devices += 1;
        }
        if !wanted.admin {
            self.counters.extend(entry.counters.iter().map(|c| (c.id, c.amount)));
        }
        self.taken.push(Taken { device, request: idx, admin: wanted.admin });
        true
    }

    /// Undoes the last [`Self::take`].
    fn put_back(&mut self, idx: usize, alternative: usize) {
        let request = &self.requests[idx];
        let wanted = &request.alternatives[alternative];
        let Some(taken) = self.taken.pop() else { return };
        if !wanted.admin
            && let Some(entry) = self.table.present.get(taken.device).and_then(Option::as_ref)
        {
            self.counters.truncate(self.counters.len() - entry.counters.len());
        }
        for constraint in &wanted.same {
            let agreed = &mut self.same[request.claim][*constraint];
            agreed.devices -= 1;
            if agreed.devices == 0 {
                agreed.value = None;
            }
        }
    }

    fn kind(&mut self, device: DeviceId) -> usize {
        let kinds = self.kinds.get_or_insert_with(|| kinds(self.table, self.claims, self.requests));
        kinds.get(&device).copied().unwrap_or(usize::MAX)
    }
}

/// Sorts devices by all that a search can see of them: which requests may have them, the attributes that
/// constraints name, and the counters.
fn kinds(table: &DeviceTable, claims: &[&Wanted], requests: &[Request<'_>]) -> BTreeMap<DeviceId, usize> {
    let mut offered: BTreeMap<DeviceId, Vec<usize>> = BTreeMap::new();
    for (list, offer) in requests.iter().flat_map(|request| &request.offers).enumerate() {
        for device in &offer.devices {
            offered.entry(*device).or_default().push(list);
        }
    }
    let mut seen = BTreeMap::new();
    let mut kinds = BTreeMap::new();
    for (device, lists) in offered {
        let entry = table.present.get(device).and_then(Option::as_ref);
        let attributes: Vec<Option<&Name>> = (claims.iter().flat_map(|claim| &claim.same))
            .map(|attribute| entry.and_then(|entry| entry.device.attributes.get(attribute)))
            .collect();
        let counters = entry.map(|entry| entry.counters.clone());
        let next = seen.len();
        kinds.insert(device, *seen.entry((lists, attributes, counters)).or_insert(next));
    }
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::{DeviceAlternative, DeviceRequest, Expr, Key, Op};
    use proptest::prelude::*;

    fn device_name(text: &str) -> DeviceName {
        let (pool, device) = text.split_once('/').unwrap_or(("n", text));
        DeviceName { driver: "gpu".into(), pool: pool.into(), device: device.into() }
    }

    /// `name`, `pool/name`, then words: `root=a` an attribute, `mem-2/4` two of the four of a counter,
    /// `tainted`, `on:b` on another node than `n`, `wide` everywhere, `held`.
    fn device(text: &str) -> (Device, bool) {
        let mut words = text.split_whitespace();
        let mut device = Device {
            name: device_name(words.next().unwrap()),
            reach: DeviceReach::Node("n".into()),
            attributes: BTreeMap::new(),
            counters: vec![],
            counter_totals: vec![],
            gpu: true,
            no_schedule: false,
        };
        let mut held = false;
        for word in words {
            if let Some((name, value)) = word.split_once('=') {
                device.attributes.insert(name.into(), value.into());
            } else if let Some((name, amounts)) = word.split_once('-') {
                let (amount, total) = amounts.split_once('/').unwrap();
                device.counters.push((name.into(), amount.parse().unwrap()));
                device.counter_totals.push((name.into(), total.parse().unwrap()));
            } else if let Some(node) = word.strip_prefix("on:") {
                device.reach = DeviceReach::Node(node.into());
            } else {
                match word {
                    "wide" => device.reach = DeviceReach::Everywhere,
                    "tainted" => device.no_schedule = true,
                    "held" => held = true,
                    other => panic!("{other}"),
                }
            }
        }
        (device, held)
    }

    fn table(devices: &str) -> DeviceTable {
        let mut table = DeviceTable::new();
        for text in devices.split(';').map(str::trim).filter(|text| !text.is_empty()) {
            let (device, held) = device(text);
            let id = table.id(&device.name);
            table.put(Arc::new(device));
            if held {
                table.hold([id]);
            }
        }
        table
    }

    /// A claim: requests by `,`, alternatives by `|`, each `count of candidates` with `*` for all of either
    /// and `admin`; constraints after `same`, as `attribute` or `attribute:requests`. Requests are called r0,
    /// r1 .., alternatives a0, a1 ..
    fn claim(text: &str, all: &[DeviceName]) -> Claim {
        let (requests, same) = text.split_once("same").unwrap_or((text, ""));
        let alternative = |(idx, text): (usize, &str), alone: bool| {
            let mut words = text.split_whitespace();
            let count = match words.next().unwrap() {
                "*" => DeviceCount::All,
                count => DeviceCount::Exactly(count.parse().unwrap()),
            };
            let words: Vec<&str> = words.collect();
            let names: Vec<&str> =
                words.iter().copied().filter(|w| !["of", "*", "admin"].contains(w)).collect();
            let candidates: Arc<[DeviceName]> = match names.is_empty() {
                true => all.to_vec().into(),
                false => names.into_iter().map(device_name).collect(),
            };
            let name = if alone { "".into() } else { format!("a{idx}").into() };
            DeviceAlternative { name, candidates, count, admin: words.contains(&"admin"), gpu: true }
        };
        let request = |(idx, text): (usize, &str)| DeviceRequest {
            name: format!("r{idx}").into(),
            alternatives: text.split('|').enumerate().map(|a| alternative(a, !text.contains('|'))).collect(),
        };
        let constraint = |text: &str| {
            let (attribute, requests) = text.split_once(':').unwrap_or((text, ""));
            (requests.split('+').filter(|name| !name.is_empty()).map(Name::from).collect(), attribute.into())
        };
        Claim {
            key: Key::new("default", "claim"),
            requests: requests.split(',').enumerate().map(request).collect(),
            same: same.split_whitespace().map(constraint).collect(),
            allocation: None,
            reserved_for: vec![],
            of_pod: None,
            queue: None,
            defect: None,
        }
    }

    fn outcome(table: &mut DeviceTable, node: &str, claims: &str) -> Result<Vec<Pick>, Refused> {
        let all: Vec<DeviceName> = table.names.iter().map(|(_, name)| name.clone()).collect();
        let wanted: Vec<Wanted> = claims.split(';').map(|text| table.resolve(&claim(text, &all))).collect();
        let wanted: Vec<&Wanted> = wanted.iter().collect();
        assign(table, &table.reach(node, &Labels::new()), &wanted)
    }

    fn show(table: &DeviceTable, picks: &[Pick]) -> String {
        let one = |pick: &Pick| {
            let devices: Vec<&str> = pick.devices.iter().map(|id| &*table.name(*id).device).collect();
            devices.join(" ")
        };
        picks.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    #[track_caller]
    fn check(devices: &str, claims: &str, expected: &str) {
        let mut table = table(devices);
        let outcome = match outcome(&mut table, "n", claims) {
            Ok(picks) => show(&table, &picks),
            Err(refused) => format!("{refused:?}"),
        };
        assert_eq!(outcome, expected);
    }

    #[test]
    fn counts() {
        check("b; a; c", "2 of *", "a b");
        check("a held; b; c", "2 of *", "b c");
        check("a; b", "1 of b", "b");
        check("a; b; c", "1 of *, 1 of *", "a, b");
        check("a; b; c", "1 of *; 2 of *", "a, b c");
        check("a; b", "0 of *", "");
        check("a tainted; b", "1 of *", "b");
        check("a held; b", "2 of *", "Short { claim: 0, request: 0, needed: 2, free: 1, there: 2 }");
        check("a", "1 of a; 1 of missing", "Short { claim: 1, request: 0, needed: 1, free: 0, there: 0 }");
        check("a; b; c", "2 of *; 2 of *", "Together");
        check("", "1 of a", "Short { claim: 0, request: 0, needed: 1, free: 0, there: 0 }");
        assert_eq!(assign(&DeviceTable::new(), &[], &[]), Ok(vec![]));
    }

    #[test]
    fn backtracking() {
        // The first request would take the only device of the second.
        check("a; b", "1 of *, 1 of a", "b, a");
        check("a; b; c", "2 of *, 1 of a", "b c, a");
        check("a; b; c; d", "1 of a b; 1 of a c; 1 of a", "b, c, a");
        check("a; b", "1 of a, 1 of a", "Together");
    }

    #[test]
    fn alternatives() {
        check("a; b; c", "2 of a | 1 of c", "c");
        check("a; b; c", "1 of a | 1 of c", "a");
        // The second best, because only then the other claim can be served.
        check("a; b; c", "1 of a | 1 of c; 1 of a", "c, a");
        check("a; b", "4 of * | 3 of *", "Short { claim: 0, request: 0, needed: 3, free: 2, there: 2 }");
    }

    #[test]
    fn all_of_them() {
        check("a; b; c", "* of *", "a b c");
        check("a; b; c on:other", "* of *", "a b");
        check("a; b held", "* of *", "Short { claim: 0, request: 0, needed: 2, free: 1, there: 2 }");
        check("a; b tainted", "* of *", "Short { claim: 0, request: 0, needed: 2, free: 1, there: 2 }");
        check("a on:other", "* of *", "Short { claim: 0, request: 0, needed: 1, free: 0, there: 0 }");
        check("a; b", "1 of *, * of *", "Together");
        check("a; b held", "* of * | 1 of *", "a");
    }

    #[test]
    fn admin_access() {
        check("a held; b", "1 of * admin", "a");
        check("a held; b held", "* of * admin", "a b");
        // It holds nothing, so another claim may have the device; but one claim has a device once.
        check("a", "1 of * admin; 1 of *", "a, a");
        check("a; b", "1 of * admin, 1 of *", "a, b");
        check("a", "1 of * admin, 1 of *", "Together");
        check("a mem-2/1", "1 of * admin", "a");
        check("a tainted", "1 of * admin", "Short { claim: 0, request: 0, needed: 1, free: 0, there: 1 }");
    }

    #[test]
    fn agreeing() {
        let four = "a root=1; b root=2; c root=2; d";
        check(four, "2 of * same root", "b c");
        check(four, "3 of * same root", "Together");
        check(four, "1 of *, 1 of * same root", "b, c");
        check(four, "1 of *, 1 of * same root:r1", "a, b");
        check(four, "1 of *, 1 of c, 1 of * same root:r0+r1", "b, c, a");
        check(four, "1 of d same root", "Together");
        check(four, "1 of a b | 1 of b, 1 of c same root:r0/a1+r1", "a, c");
        check(four, "1 of b | 1 of a, 1 of c same root", "b, c");
        check("a root=1 arm=x; b root=1 arm=y; c root=1 arm=y", "2 of * same root arm", "b c");
        // Every claim has constraints of its own.
        check(four, "1 of a same root; 1 of b same root", "a, b");
        check("a root=1; b root=2", "* of * same root", "Together");
    }

    #[test]
    fn shared_counters() {
        // A device that can be had whole or in halves.
        let parts = "whole mem-4/4; x-half mem-2/4; y-half mem-2/4; z-half mem-2/4";
        check(parts, "1 of *", "whole");
        check(parts, "2 of *", "x-half y-half");
        check(parts, "3 of *", "Together");
        check(parts, "1 of x-half; 1 of whole", "Together");
        check("whole mem-4/4 held; x-half mem-2/4", "1 of *", "Together");
        check("whole mem-4/4; x-half mem-2/4 held; y-half mem-2/4", "1 of *", "y-half");
        // Counters of different pools are different; a counter without a total bounds nothing.
        check("p/a mem-4/4 held; q/b mem-4/4", "1 of *", "b");
        check("a mem-3/4 mem-3/4; b", "1 of *", "b");
    }

    #[test]
    fn reach() {
        let labels = |text: &str| -> Labels { [("rack".into(), text.into())].into_iter().collect() };
        let mut table = table("c; a wide; d on:m; b on:m");
        let rack = Expr { key: "rack".into(), op: Op::In(vec!["r1".into()]) };
        let (mut fabric, _) = device("bb");
        fabric.reach = DeviceReach::Nodes(vec![NodeTerm { labels: vec![rack], names: vec![] }]);
        table.put(Arc::new(fabric));
        let names = |table: &DeviceTable, node: &str, rack: &str| {
            let reach = table.reach(node, &labels(rack));
            reach.iter().map(|id| table.name(*id).device.to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(&table, "n", "r1"), "a bb c");
        assert_eq!(names(&table, "m", "r2"), "a b d");
        assert_eq!(names(&table, "o", "r2"), "a");
        table.drop(&device_name("b"));
        table.drop(&device_name("a"));
        table.drop(&device_name("never"));
        assert_eq!(names(&table, "m", "r1"), "bb d");
        let id = table.id(&device_name("bb"));
        assert!(table.reaches(id, "x", &labels("r1")) && !table.reaches(id, "x", &labels("r2")));
    }

    #[test]
    fn claims_that_have_their_devices() {
        let named = |node: &str| {
            let name = Expr { key: "metadata.name".into(), op: Op::In(vec![node.into()]) };
            NodeTerm { labels: vec![], names: vec![name] }
        };
        let reaches = |nodes: Vec<NodeTerm>| {
            allocation_reaches(&Allocation { devices: vec![], nodes }, "n", &Labels::new())
        };
        assert!(reaches(vec![]));
        assert!(reaches(vec![named("m"), named("n")]));
        assert!(!reaches(vec![named("m")]));

        let mut table = table("a; b; c");
        let all = ["a", "b", "c"].map(device_name);
        let mut claim = claim("1 of *, 1 of * admin, 1 of * | 1 of * admin", &all);
        assert_eq!(table.held_by(&claim), []);
        let result = |request: &str, device: &str| (request.into(), device_name(device));
        let devices =
            vec![result("r0", "a"), result("r1", "b"), result("r2/a1", "c"), result("r2/a0", "new")];
        claim.allocation = Some(Allocation { devices, nodes: vec![] });
        let held = table.held_by(&claim);
        assert_eq!(held, ["a", "new"].map(|name| table.id(&device_name(name))));
        table.hold(held.clone());
        // It is held before it is there.
        table.put(Arc::new(device("new").0));
        assert!(matches!(outcome(&mut table, "n", "1 of new"), Err(Refused::Short { .. })));
        table.release(held);
        assert!(outcome(&mut table, "n", "1 of new").is_ok());
    }

    #[test]
    fn who_may_use_a_claim() {
        let shared = |label: Option<&str>| Claim { queue: label.map(Name::from), ..claim("1 of a", &[]) };
        let ok = |claim: &Claim| admit(0, claim, "team", "uid");
        assert_eq!(ok(&shared(Some("team"))), Ok(()));
        assert_eq!(ok(&shared(Some("x"))), Err(Refused::OtherQueue { claim: 0, label: Some("x".into()) }));
        assert_eq!(ok(&shared(None)), Err(Refused::OtherQueue { claim: 0, label: None }));
        assert_eq!(ok(&Claim { of_pod: Some("uid".into()), ..shared(None) }), Ok(()));
        let mut no_gpu = shared(None);
        no_gpu.requests[0].alternatives[0].gpu = false;
        assert_eq!(ok(&no_gpu), Ok(()));
        assert_eq!(
            ok(&Claim { defect: Some("no class".into()), ..no_gpu.clone() }),
            Err(Refused::Defect { claim: 0, why: "no class".into() })
        );

        let pods = |n: usize| Claim { reserved_for: vec!["other".into(); n], ..no_gpu.clone() };
        assert_eq!(ok(&pods(255)), Ok(()));
        assert_eq!(ok(&pods(256)), Err(Refused::TooManyPods { claim: 0 }));
        let mut with_us = pods(255);
        with_us.reserved_for.push("uid".into());
        assert_eq!(ok(&with_us), Ok(()));
    }

    #[test]
    fn bounds() {
        let many: Vec<String> = (0..40).map(|i| format!("d{i:02}")).collect();
        check(&many.join(";"), "33 of *", "TooMany");
        check(&many.join(";"), "33 of * | 1 of *", "d00");
        check(&many.join(";"), "20 of *, 13 of *", "TooMany");
        let requests = vec!["0 of *"; 257].join(",");
        check("a", &requests, "TooMany");
        // As deep as a search gets.
        let most: Vec<String> = (0..1025).map(|i| format!("d{i:04}")).collect();
        let claims = |n: usize| vec!["32 of *"; n].join(";");
        assert_eq!(outcome(&mut table(&most.join(";")), "n", &claims(32)).map(|picks| picks.len()), Ok(32));
        check(&most.join(";"), &claims(33), "TooMany");
        // Devices that nothing tells apart are no work.
        check(&many.join(";"), "20 of *; 21 of *", "Together");
        // Devices that are all different are.
        let different: Vec<String> = (0..40).map(|i| format!("d{i:02} c{i}-1/1 even={}", i % 2)).collect();
        check(&different.join(";"), "21 of * same even", "SearchEnded");
    }

    #[test]
    fn lists_are_looked_up_once() {
        let mut table = table("a; b");
        let all = ["a", "b"].map(device_name);
        let mut claim = claim("1 of *, 1 of *", &all);
        claim.requests[1] = claim.requests[0].clone();
        let wanted = table.resolve(&claim);
        assert!(Arc::ptr_eq(&wanted.requests[0][0].candidates, &wanted.requests[1][0].candidates));
        for _ in 0..100 {
            table.resolve(&self::claim("1 of a", &all));
        }
        assert!(table.resolved.len() <= 4, "{}", table.resolved.len());
    }

    /// Every choice in order, with no short cut: devices of a request in any order, checked when all are
    /// chosen.
    fn brute_force(
        table: &DeviceTable,
        reach: &[DeviceId],
        claims: &[&Wanted],
        so_far: &mut Vec<(usize, usize, usize, Vec<DeviceId>)>,
    ) -> bool {
        let next = match so_far.last() {
            None => (0, 0),
            Some((claim, request, ..)) => (*claim, request + 1),
        };
        let mut at = next;
        while at.0 < claims.len() && at.1 >= claims[at.0].requests.len() {
            at = (at.0 + 1, 0);
        }
        if at.0 >= claims.len() {
            return is_valid(table, claims, so_far);
        }
        for (idx, alternative) in claims[at.0].requests[at.1].iter().enumerate() {
            let there: Vec<DeviceId> =
                reach.iter().copied().filter(|id| alternative.candidates.contains(*id)).collect();
            let sets: Vec<Vec<DeviceId>> = match alternative.count {
                DeviceCount::All if there.is_empty() => vec![],
                DeviceCount::All => vec![there],
                DeviceCount::Exactly(n) => subsets(&there, n as usize),
            };
            for set in sets {
                so_far.push((at.0, at.1, idx, set));
                if brute_force(table, reach, claims, so_far) {
                    return true;
                }
                so_far.pop();
            }
        }
        false
    }

    fn subsets(of: &[DeviceId], n: usize) -> Vec<Vec<DeviceId>> {
        let mut masks: Vec<Vec<usize>> = (0..1_u32 << of.len())
            .filter(|mask| mask.count_ones() as usize == n)
            .map(|mask| (0..of.len()).filter(|i| mask >> i & 1 == 1).collect())
            .collect();
        masks.sort();
        masks.into_iter().map(|places| places.into_iter().map(|i| of[i]).collect()).collect()
    }

    /// Whether an answer keeps all the rules in the module's documentation.
    fn is_valid(
        table: &DeviceTable,
        claims: &[&Wanted],
        answer: &[(usize, usize, usize, Vec<DeviceId>)],
    ) -> bool {
        let mut holders: BTreeMap<DeviceId, usize> = BTreeMap::new();
        let mut in_claim: BTreeMap<(usize, DeviceId), usize> = BTreeMap::new();
        let mut counters: BTreeMap<CounterId, i64> = BTreeMap::new();
        let mut values: BTreeMap<(usize, usize), Vec<Option<&Name>>> = BTreeMap::new();
        for (claim, request, alternative, devices) in answer {
            let alternative = &claims[*claim].requests[*request][*alternative];
            for id in devices {
                let entry = table.present[*id].as_ref().unwrap();
                *in_claim.entry((*claim, *id)).or_default() += 1;
                if entry.device.no_schedule || (!alternative.admin && table.is_held(*id)) {
                    return false;
                }
                if !alternative.admin {
                    *holders.entry(*id).or_default() += 1;
                    for counter in &entry.counters {
                        *counters.entry(counter.id).or_insert(table.taken[counter.id]) += counter.amount;
                    }
                }
                for constraint in &alternative.same {
                    let value = entry.device.attributes.get(&claims[*claim].same[*constraint]);
                    values.entry((*claim, *constraint)).or_default().push(value);
                }
            }
        }
        let total = |id: CounterId| {
            let entries = table.present.iter().filter_map(|(_, entry)| entry.as_ref());
            entries.flat_map(|entry| &entry.counters).find(|c| c.id == id).unwrap().total
        };
        holders.values().all(|n| *n <= 1)
            && in_claim.values().all(|n| *n <= 1)
            && counters.iter().all(|(id, taken)| *taken <= total(*id))
            && values.values().all(|values| values[0].is_some() && values.iter().all(|v| *v == values[0]))
    }

    fn any_device() -> impl Strategy<Value = String> {
        let words = prop::sample::subsequence(vec!["held", "tainted", "on:m", "wide"], 0..=1);
        let words = prop_oneof![3 => Just(vec![]), 1 => words];
        let root = prop::sample::select(vec!["", "root=1", "root=2"]);
        let counter = prop::sample::select(vec!["", "", "mem-1/3", "mem-2/3"]);
        (words, root, counter)
            .prop_map(|(words, root, counter)| format!("{} {root} {counter}", words.join(" ")))
    }

    fn any_devices() -> impl Strategy<Value = String> {
        prop::collection::vec(any_device(), 1..6).prop_map(|devices| {
            let named = devices
                .iter()
                .zip(["d", "b", "a", "c", "e", "f"])
                .map(|(text, name)| format!("{name} {text}"));
            named.collect::<Vec<_>>().join(";")
        })
    }

    fn any_claims() -> impl Strategy<Value = String> {
        let names = prop::sample::subsequence(vec!["a", "b", "c", "d", "e"], 1..=5);
        let count = prop_oneof![6 => (0..4_u32).prop_map(|n| n.to_string()), 1 => Just("*".to_owned())];
        let admin = prop_oneof![5 => Just(""), 1 => Just("admin")];
        let alternative = (count, names, admin)
            .prop_map(|(count, names, admin)| format!("{count} of {} {admin}", names.join(" ")));
        let request = prop::collection::vec(alternative, 1..3).prop_map(|a| a.join("|"));
        let same = prop::sample::select(vec!["", "", "same root", "same root:r0", "same root:r0/a1+r1"]);
        let claim = (prop::collection::vec(request, 1..3), same)
            .prop_map(|(r, same)| format!("{} {same}", r.join(",")));
        prop::collection::vec(claim, 1..3).prop_map(|claims| claims.join(";"))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(600))]
        #[test]
        fn it_is_the_first_of_all_that_are_right(devices in any_devices(), claims in any_claims()) {
            let mut table = table(&devices);
            let wanted: Vec<Wanted> = claims.split(';').map(|text| table.resolve(&claim(text, &[]))).collect();
            let wanted: Vec<&Wanted> = wanted.iter().collect();
            let reach = table.reach("n", &Labels::new());
            let found = assign(&table, &reach, &wanted);
            prop_assert_ne!(&found, &Err(Refused::SearchEnded));
            let mut expected = vec![];
            let possible = brute_force(&table, &reach, &wanted, &mut expected);
            let found = found.ok().map(|picks| {
                picks.into_iter().map(|p| (p.claim, p.request, p.alternative, p.devices.to_vec())).collect::<Vec<_>>()
            });
            prop_assert_eq!(found, possible.then_some(expected));
        }

        #[test]
        fn holding_is_undone_by_releasing(devices in any_devices(), claims in any_claims()) {
            let mut table = table(&devices);
            if let Ok(picks) = outcome(&mut table, "n", &claims) {
                let before = (table.holders.clone(), table.taken.clone());
                let held: Vec<DeviceId> = picks.iter().filter(|p| !p.admin).flat_map(|p| p.devices.clone()).collect();
                prop_assert!(held.iter().all(|id| !table.is_held(*id)));
                table.hold(held.clone());
                prop_assert!(held.iter().all(|id| table.holders[*id] == 1));
                table.release(held);
                prop_assert_eq!(before, (table.holders, table.taken));
            }
        }

        #[test]
        fn the_way_there_does_not_matter(
            devices in any_devices(),
            others in any_devices(),
            order in Just((0..5_usize).collect::<Vec<_>>()).prop_shuffle(),
            claims in any_claims(),
        ) {
            // Other devices first, then dropped or replaced, in another order.
            let straight = &mut table(&devices);
            let texts: Vec<&str> = devices.split(';').collect();
            let winding = &mut DeviceTable::new();
            for text in others.split(';') {
                winding.put(Arc::new(device(text).0));
            }
            for i in order {
                let name = device_name(["d", "b", "a", "c", "e"][i]);
                match texts.get(i) {
                    Some(text) => {
                        let (device, held) = device(text);
                        let id = winding.id(&name);
                        if held {
                            winding.hold([id]);
                        }
                        winding.put(Arc::new(device));
                    }
                    None => winding.drop(&name),
                }
            }
            let (a, b) = (outcome(straight, "n", &claims), outcome(winding, "n", &claims));
            match (a, b) {
                (Ok(a), Ok(b)) => prop_assert_eq!(show(straight, &a), show(winding, &b)),
                (a, b) => prop_assert_eq!(a, b),
            }
        }
    }
}
