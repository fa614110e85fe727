//! Devices and the claims on them: each held once, each within what its claim asks for and where its pod can reach it.

use super::{Fate, Finding, Scene, When, World};
use muster_model::{
    Claim, Device, DeviceAlternative, DeviceCount, DeviceName, DeviceReach, DeviceRequest, Key, Name, Node,
    Pod, PodState,
};
use std::collections::{BTreeMap, BTreeSet};

/// More pods than this cannot share a claim: the API has no room for more.
const MAX_USERS: usize = 256;

pub(super) fn check(world: &World<'_>, scene: &Scene<'_>, findings: &mut Vec<Finding>) {
    let asks = |pod: &usize| !world.pod(*pod).shape.claims.is_empty();
    if !scene.fresh.iter().any(|(pod, place)| asks(pod) || !place.placement.devices.is_empty()) {
        return;
    }
    let store = Store::read(world, scene);
    store.allocations(world, scene, findings);
    for (pod, place) in &scene.fresh {
        store.uses(world, world.pod(*pod), *pod, world.node(place.node), findings);
    }
    store.held_twice(scene.when, findings);
    store.counters(scene.when, findings);
    store.crowded(world, scene, findings);
}

/// Claims, devices, and what is allocated at the moment of a scene.
struct Store<'a> {
    claims: BTreeMap<&'a Key, &'a Claim>,
    devices: BTreeMap<&'a DeviceName, &'a Device>,
    /// By claim. An allocation that ends when its last user leaves is not here once that user has left.
    given: BTreeMap<&'a Key, Vec<Given<'a>>>,
}

/// Devices that a claim has.
struct Given<'a> {
    devices: Vec<(&'a Name, &'a DeviceName)>,
    /// The pod whose placement allocates it; `None`: it was so before.
    by: Option<usize>,
    fresh: bool,
}

impl<'a> Store<'a> {
    fn read(world: &World<'a>, scene: &Scene<'a>) -> Self {
        let claims: BTreeMap<&Key, &Claim> = world.cluster.claims.iter().map(|c| (&c.key, &**c)).collect();
        let devices = world.cluster.devices.iter().map(|d| (&d.name, &**d)).collect();
        let mut given: BTreeMap<&Key, Vec<Given<'_>>> = BTreeMap::new();
        let ending = if scene.when == When::Later { ending_claims(world) } else { BTreeSet::new() };
        for claim in claims.values().filter(|claim| !ending.contains(&claim.key)) {
            if let Some(allocation) = &claim.allocation {
                let devices = allocation.devices.iter().map(|(request, device)| (request, device)).collect();
                given.entry(&claim.key).or_default().push(Given { devices, by: None, fresh: false });
            }
        }
        for seat in scene.seats.iter().flatten() {
            let mut taken: BTreeMap<&Key, Vec<(&Name, &DeviceName)>> = BTreeMap::new();
            for (claim, request, device) in seat.placement.iter().flat_map(|placement| &placement.devices) {
                taken.entry(claim).or_default().push((request, device));
            }
            for (claim, devices) in taken {
                given.entry(claim).or_default().push(Given {
                    devices,
                    by: Some(seat.pod),
                    fresh: seat.fresh,
                });
            }
        }
        Self { claims, devices, given }
    }

    /// What the placements allocate is what the claims ask for.
    fn allocations(&self, world: &World<'_>, scene: &Scene<'_>, findings: &mut Vec<Finding>) {
        for (key, given) in &self.given {
            let Some(fresh) = given.iter().find(|given| given.fresh) else { continue };
            if given.len() > 1 {
                findings.push(Finding::ClaimAllocatedTwice { claim: (*key).clone() });
            }
            let Some(by) = fresh.by else { continue };
            let uses = world.pod(by).shape.claims.iter().any(|u| u.claim == **key);
            let (Some(claim), true) = (self.claims.get(key), uses) else {
                findings
                    .push(Finding::ClaimUnusable { pod: world.pod(by).key.clone(), claim: (*key).clone() });
                continue;
            };
            if let Some(node) = scene.node_of[by] {
                self.allocation(claim, &fresh.devices, world.node(node), findings);
            }
        }
    }

    fn allocation(
        &self,
        claim: &Claim,
        given: &[(&Name, &DeviceName)],
        node: &Node,
        findings: &mut Vec<Finding>,
    ) {
        for request in &claim.requests {
            let mine: Vec<&DeviceName> = given
                .iter()
                .filter(|(name, _)| names(request, name).is_some())
                .map(|(_, device)| *device)
                .collect();
            let distinct: BTreeSet<&DeviceName> = mine.iter().copied().collect();
            let fits = |alternative: &DeviceAlternative| {
                let among = mine.iter().all(|device| alternative.candidates.contains(device));
                among
                    && distinct.len() == mine.len()
                    && match alternative.count {
                        DeviceCount::Exactly(n) => mine.len() == n as usize,
                        DeviceCount::All => !mine.is_empty() && self.has_all(alternative, &distinct, node),
                    }
            };
            if !request.alternatives.iter().any(fits) {
                let (claim, request) = (claim.key.clone(), request.name.clone());
                findings.push(Finding::WrongDevices { claim, request, got: mine.len() });
            }
        }
        for (name, device) in given {
            if !claim.requests.iter().any(|request| names(request, name).is_some()) {
                let (claim, request) = (claim.key.clone(), (*name).clone());
                findings.push(Finding::WrongDevices { claim, request, got: 1 });
            }
            let known = self.devices.get(device);
            if known.is_none_or(|device| device.no_schedule && !looks_only(claim, name)) {
                let (claim, device) = (claim.key.clone(), (*device).clone());
                findings.push(Finding::DeviceUnusable { claim, device });
            }
        }
        for (requests, attribute) in &claim.same {
            let concerned = |name: &Name| {
                requests.is_empty()
                    || claim.requests.iter().any(|r| names(r, name).is_some() && requests.contains(&r.name))
                    || requests.contains(name)
            };
            let values: BTreeSet<Option<&Name>> = given
                .iter()
                .filter(|(name, _)| concerned(name))
                .map(|(_, device)| {
                    self.devices.get(device).and_then(|device| device.attributes.get(attribute))
                })
                .collect();
            if values.len() > 1 || values.contains(&None) {
                findings.push(Finding::DevicesDisagree {
                    claim: claim.key.clone(),
                    attribute: attribute.clone(),
                });
            }
        }
    }

    /// Whether all open devices that the node reaches were taken.
    fn has_all(&self, alternative: &DeviceAlternative, taken: &BTreeSet<&DeviceName>, node: &Node) -> bool {
        alternative.candidates.iter().all(|name| {
            let open = self.devices.get(name).is_some_and(|d| !d.no_schedule && reaches(&d.reach, node));
            !open || taken.contains(name)
        })
    }

    /// A newcomer's claims are allocated, and within its reach.
    fn uses(&self, world: &World<'_>, pod: &Pod, index: usize, node: &Node, findings: &mut Vec<Finding>) {
        for wanted in &pod.shape.claims {
            let key = &wanted.claim;
            let Some(claim) = self.claims.get(key).filter(|claim| claim.defect.is_none()) else {
                findings.push(Finding::ClaimUnusable { pod: pod.key.clone(), claim: key.clone() });
                continue;
            };
            let gpu = claim.requests.iter().flat_map(|request| &request.alternatives).any(|a| a.gpu);
            let queue = world.gang_of[index].map(|gang| &world.gang(gang).queue);
            if gpu && claim.of_pod.is_none() && claim.queue.as_ref() != queue {
                findings.push(Finding::ClaimOfOtherQueue { pod: pod.key.clone(), claim: key.clone() });
            }
            let Some(given) = self.given.get(key).and_then(|given| given.first()) else {
                // A pod that is moved keeps what its claim has.
                if !claim.requests.is_empty() && claim.allocation.is_none() {
                    findings.push(Finding::ClaimUnallocated { pod: pod.key.clone(), claim: key.clone() });
                }
                continue;
            };
            let before = claim.allocation.as_ref().filter(|_| given.by.is_none());
            let terms = before.map_or(&[][..], |allocation| &allocation.nodes);
            let allowed = terms.is_empty() || terms.iter().any(|term| term.holds(&node.name, &node.labels));
            for (_, name) in &given.devices {
                let reach = self.devices.get(name).is_none_or(|device| reaches(&device.reach, node));
                if !allowed || !reach {
                    let (pod, node) = (pod.key.clone(), node.name.clone());
                    findings.push(Finding::DeviceUnreachable { pod, node, device: (*name).clone() });
                }
            }
        }
    }

    fn held_twice(&self, when: When, findings: &mut Vec<Finding>) {
        let mut holder: BTreeMap<&DeviceName, &Key> = BTreeMap::new();
        for fresh in [false, true] {
            for (key, given) in &self.given {
                let Some(claim) = self.claims.get(key) else { continue };
                for given in given.iter().filter(|given| given.fresh == fresh) {
                    for (request, device) in &given.devices {
                        if looks_only(claim, request) {
                            continue;
                        }
                        if let Some(other) = holder.insert(device, key)
                            && fresh
                        {
                            let claims = [other.clone(), (*key).clone()];
                            findings.push(Finding::DeviceHeldTwice {
                                device: (*device).clone(),
                                claims,
                                when,
                            });
                        }
                    }
                }
            }
        }
    }

    fn counters(&self, when: When, findings: &mut Vec<Finding>) {
        let mut held: BTreeMap<&DeviceName, bool> = BTreeMap::new();
        for (key, given) in &self.given {
            let Some(claim) = self.claims.get(key) else { continue };
            for given in given {
                for (_, device) in given.devices.iter().filter(|(request, _)| !looks_only(claim, request)) {
                    *held.entry(device).or_default() |= given.fresh;
                }
            }
        }
        let mut used: BTreeMap<(&Name, &Name, &Name), i128> = BTreeMap::new();
        let mut totals: BTreeMap<(&Name, &Name, &Name), i64> = BTreeMap::new();
        let mut asked = BTreeSet::new();
        for (name, fresh) in held {
            let Some(device) = self.devices.get(name) else { continue };
            for (counter, amount) in &device.counters {
                *used.entry((&name.driver, &name.pool, counter)).or_default() += i128::from(*amount);
                if fresh && *amount > 0 {
                    asked.insert((&name.driver, &name.pool, counter));
                }
            }
            for (counter, total) in &device.counter_totals {
                let least = totals.entry((&name.driver, &name.pool, counter)).or_insert(*total);
                *least = (*least).min(*total);
            }
        }
        for counter in asked {
            let (used, total) = (used.get(&counter).copied().unwrap_or(0), totals.get(&counter).copied());
            if let Some(total) = total.filter(|total| used > i128::from(*total)) {
                let (driver, pool, counter) = (counter.0.clone(), counter.1.clone(), counter.2.clone());
                findings.push(Finding::CounterOver { driver, pool, counter, used, total, when });
            }
        }
    }

    fn crowded(&self, world: &World<'_>, scene: &Scene<'_>, findings: &mut Vec<Finding>) {
        let mut joining: BTreeMap<&Key, usize> = BTreeMap::new();
        for (pod, _) in &scene.fresh {
            for wanted in &world.pod(*pod).shape.claims {
                *joining.entry(&wanted.claim).or_default() += 1;
            }
        }
        for (key, n_joining) in joining {
            let users = n_joining + self.claims.get(key).map_or(0, |claim| claim.reserved_for.len());
            // Once room is released, those who held it before may have left; only what is sure is said.
            if scene.when == When::Now && users > MAX_USERS {
                findings.push(Finding::ClaimFull { claim: key.clone(), users });
            }
        }
    }
}

/// Claims that have users, all of whom leave.
fn ending_claims<'a>(world: &World<'a>) -> BTreeSet<&'a Key> {
    let mut leaving: BTreeSet<&Key> = BTreeSet::new();
    let mut staying: BTreeSet<&Key> = BTreeSet::new();
    for (i, fate) in world.fate.iter().enumerate() {
        let pod = world.pod(i);
        let set = match fate {
            Fate::Absent => continue,
            Fate::Lost(_) | Fate::Moved(..) => &mut leaving,
            Fate::Bound(_) => &mut staying,
            _ if pod.state == PodState::Releasing => &mut leaving,
            _ if pod.state.holds_room() => &mut staying,
            _ => continue,
        };
        set.extend(pod.shape.claims.iter().map(|wanted| &wanted.claim));
    }
    leaving.difference(&staying).copied().collect()
}

/// Whether a name in an allocation means this request: its own, or with the alternative's name behind it.
fn names<'r>(request: &'r DeviceRequest, name: &str) -> Option<&'r DeviceRequest> {
    let rest = name.strip_prefix(&*request.name)?;
    let whole = rest.is_empty();
    let part =
        || rest.strip_prefix('/').is_some_and(|rest| request.alternatives.iter().any(|a| *a.name == *rest));
    (whole || part()).then_some(request)
}

/// Whether the request only looks at devices, without holding them.
fn looks_only(claim: &Claim, name: &str) -> bool {
    let request = claim.requests.iter().find_map(|request| names(request, name));
    request.is_some_and(|request| {
        let part = name.get(request.name.len() + 1..);
        let mut meant = request.alternatives.iter().filter(|a| part.is_none_or(|part| *a.name == *part));
        meant.next().is_some_and(|first| first.admin) && meant.all(|a| a.admin)
    })
}

fn reaches(reach: &DeviceReach, node: &Node) -> bool {
    match reach {
        DeviceReach::Node(name) => *name == node.name,
        DeviceReach::Nodes(terms) => terms.iter().any(|term| term.holds(&node.name, &node.labels)),
        DeviceReach::Everywhere => true,
    }
}
