//! Claims on devices (DRA), between the state and the allocator.
//!
//! A claim holds its devices while somebody uses it. One that the cluster has allocated holds them from the start; one that a placement
//! allocates gets them with its first user and gives them back with the last, so that a trial that is undone leaves nothing behind.

use crate::devices::{self, Wanted};
use crate::ids::{DeviceId, NodeId, PodId};
use crate::state::State;
use muster_model::{Claim, Device, DeviceName, Key, Name};
use std::sync::Arc;

/// A device that a placement gives to a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    pub claim: Key,
    pub request: Name,
    pub device: DeviceId,
    /// It only looks at the device.
    pub admin: bool,
    /// Another pod's placement gave it to the claim; this one joins.
    pub shared: bool,
}

/// What is known of a claim; pods may name it before it is there.
#[derive(Default)]
pub struct ClaimRow {
    model: Option<Arc<Claim>>,
    wanted: Option<Wanted>,
    /// Devices that the cluster gave it.
    fixed: Vec<DeviceId>,
    /// Devices that a placement gave it.
    given: Vec<Given>,
    /// Pods that have a place and name it, and those of them that are not being evicted.
    n_known: u32,
    n_users: u32,
    held: bool,
}

impl ClaimRow {
    fn should_hold(&self) -> bool {
        if self.fixed.is_empty() { self.n_users > 0 } else { self.n_users > 0 || self.n_known == 0 }
    }

    fn devices(&self) -> Vec<DeviceId> {
        if self.fixed.is_empty() {
            self.given.iter().filter(|g| !g.admin).map(|g| g.device).collect()
        } else {
            self.fixed.clone()
        }
    }
}

impl State {
    pub fn put_device(&mut self, device: Arc<Device>) {
        self.devices.put(device);
    }

    pub fn drop_device(&mut self, name: &DeviceName) {
        self.devices.drop(name);
    }

    pub fn put_claim(&mut self, claim: Arc<Claim>) {
        let wanted = self.devices.resolve(&claim);
        let fixed = self.devices.held_by(&claim);
        let row = self.claims.entry(claim.key.clone()).or_default();
        if std::mem::take(&mut row.held) {
            self.devices.release(row.devices());
        }
        row.fixed = fixed;
        row.wanted = Some(wanted);
        row.model = Some(claim.clone());
        self.hold_or_release(&claim.key);
    }

    pub fn drop_claim(&mut self, key: &Key) {
        let Some(row) = self.claims.get_mut(key) else { return };
        if std::mem::take(&mut row.held) {
            self.devices.release(row.devices());
        }
        row.model = None;
        row.wanted = None;
        row.fixed.clear();
        if row.n_known == 0 {
            self.claims.remove(key);
        }
    }

    fn hold_or_release(&mut self, key: &Key) {
        let Some(row) = self.claims.get_mut(key) else { return };
        match (row.held, row.should_hold()) {
            (false, true) => {
                row.held = true;
                self.devices.hold(row.devices());
            }
            (true, false) => {
                row.held = false;
                self.devices.release(row.devices());
            }
            _ => {}
        }
    }

    /// A pod with claims comes to a node or leaves it; `stays` is false while it is being evicted.
    pub fn affect_claims(&mut self, shape: &muster_model::Shape, given: &[Given], stays: bool, sign: i64) {
        for use_ in &shape.claims {
            let row = self.claims.entry(use_.claim.clone()).or_default();
            let step = |n: &mut u32| *n = if sign > 0 { *n + 1 } else { n.saturating_sub(1) };
            if sign > 0 && row.fixed.is_empty() && row.n_users == 0 {
                row.given = given.iter().filter(|g| g.claim == use_.claim).cloned().collect();
            }
            step(&mut row.n_known);
            if stays {
                step(&mut row.n_users);
            }
            let is_gone = row.model.is_none() && row.n_known == 0;
            self.hold_or_release(&use_.claim);
            if is_gone {
                self.claims.remove(&use_.claim);
            }
        }
    }

    /// Devices for a pod's claims on a node: what it would be given, or `None` if it cannot be served there.
    pub fn claims_fit(&self, pod: PodId, node: NodeId) -> Option<Vec<Given>> {
        let row = self.pods.row(pod);
        let shape = &self.classes.rows[row.class].shape;
        let gang = row.gang.and_then(|g| self.gangs.rows[g].model.as_ref())?;
        let here = self.nodes.rows[node].model.as_ref()?;
        let mut out = Vec::new();
        let mut open: Vec<(&ClaimRow, &Arc<Claim>)> = Vec::new();
        for (i, use_) in shape.claims.iter().enumerate() {
            let claim = self.claims.get(&use_.claim)?;
            let model = claim.model.as_ref()?;
            devices::admit(i, model, &gang.queue, &row.model.uid).ok()?;
            if let Some(allocation) = &model.allocation {
                // While its users are sent away on trial, somebody else may have been promised its devices.
                let free = claim.held || !claim.fixed.iter().any(|d| self.devices.is_held(*d));
                let reached = |d: &DeviceId| {
                    self.devices.get(*d).is_none() || self.devices.reaches(*d, &here.name, &here.labels)
                };
                if !free
                    || !devices::allocation_reaches(allocation, &here.name, &here.labels)
                    || !claim.fixed.iter().all(reached)
                {
                    return None;
                }
            } else if claim.n_users > 0 {
                if !claim.given.iter().all(|g| self.devices.reaches(g.device, &here.name, &here.labels)) {
                    return None;
                }
                out.extend(claim.given.iter().map(|g| Given { shared: true, ..g.clone() }));
            } else {
                open.push((claim, model));
            }
        }
        if open.is_empty() {
            return Some(out);
        }
        let reach = self.devices.reach(&here.name, &here.labels);
        let wanted: Option<Vec<&Wanted>> = open.iter().map(|(claim, _)| claim.wanted.as_ref()).collect();
        for pick in devices::assign(&self.devices, &reach, &wanted?).ok()? {
            let model = open.get(pick.claim)?.1;
            let request = model.requests.get(pick.request)?;
            let name = match request.alternatives.get(pick.alternative) {
                Some(a) if !a.name.is_empty() => Name::from(format!("{}/{}", request.name, a.name)),
                _ => request.name.clone(),
            };
            out.extend(pick.devices.iter().map(|device| Given {
                claim: model.key.clone(),
                request: name.clone(),
                device: *device,
                admin: pick.admin,
                shared: false,
            }));
        }
        Some(out)
    }

    pub fn device_name(&self, id: DeviceId) -> DeviceName {
        self.devices.name(id).clone()
    }
}
