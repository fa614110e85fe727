//! What the pods of each node hold, and whether one more fits.
//!
//! In: a node, a pod. Out: the devices it gets, or the reason a kubelet would refuse it with.
//! Must stay true: no device is ever held by two pods, what a pod took is given back exactly once, and a device that
//! is unhealthy is given to nobody.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::fit::{self, Amounts};
use crate::fleet::gpu_uuid;
use crate::kubelet::node::unhealthy_gpus;
use crate::object::{Node, Pod};

/// A node's books.
#[derive(Debug, Default)]
pub struct Books {
    used: Amounts,
    /// What each pod took, by uid.
    taken: HashMap<String, Arc<Amounts>>,
    /// Who holds each device, by resource name and slot.
    held: BTreeMap<String, BTreeMap<u32, String>>,
}

/// The way a kubelet says no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub reason: String,
    pub message: String,
}

/// Devices by resource name.
pub type Devices = Vec<(String, Vec<String>)>;

impl Books {
    /// Takes a pod on. `known` are devices that the pod already has, from before a restart.
    pub fn admit(&mut self, node: &Node, pod: &Pod, known: Option<&Devices>) -> Result<Devices, Refusal> {
        let uid = &pod.metadata.uid;
        let asked = fit::requests(pod);
        if self.taken.contains_key(uid) {
            return Ok(known.cloned().unwrap_or_default());
        }
        // What already runs was admitted before, whatever the node looks like now.
        if known.is_none() {
            if !fit::may_go_to(pod, node) {
                return Err(Refusal {
                    reason: "NodeAffinity".into(),
                    message: "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector".into(),
                });
            }
            let allocatable = Amounts::read(&node.status.allocatable);
            if let Some((name, want, _)) = fit::short_of(&asked, &allocatable, &self.used).first() {
                return Err(Refusal {
                    reason: format!("OutOf{name}"),
                    message: format!(
                        "Pod was rejected: Node didn't have enough resource: {name}, requested: {want}, used: {}, capacity: {}",
                        self.used.get(name),
                        allocatable.get(name)
                    ),
                });
            }
        }
        let mut devices: Vec<(String, Vec<u32>)> = Vec::new();
        for (resource, n) in asked.0.iter().filter(|(name, n)| is_device(name) && **n > 0) {
            let mine = known.and_then(|k| k.iter().find(|(name, _)| name == resource)).map(|(_, ids)| ids);
            let slots = match mine {
                Some(ids) => self.slots_of(node, resource, ids),
                None => self.free_slots(node, resource),
            };
            let wanted = usize::try_from(*n).unwrap_or(0);
            // The node may not have written yet that some are broken.
            if known.is_none() && slots.len() < wanted {
                return Err(Refusal {
                    reason: format!("OutOf{resource}"),
                    message: format!(
                        "Pod was rejected: Node didn't have enough resource: {resource}, requested: {n}, free and healthy: {}",
                        slots.len()
                    ),
                });
            }
            devices.push((resource.clone(), slots.into_iter().take(wanted).collect()));
        }
        self.used.add(&asked);
        let devices: Devices = devices
            .into_iter()
            .map(|(resource, slots)| {
                let ids = slots.iter().map(|slot| self.hold(node, &resource, *slot, uid)).collect();
                (resource, ids)
            })
            .collect();
        // Most pods of a node ask for the same.
        let alike = self.taken.values().find(|taken| ***taken == asked).cloned();
        self.taken.insert(uid.clone(), alike.unwrap_or_else(|| Arc::new(asked)));
        Ok(devices)
    }

    /// Gives back what a pod took; harmless when it holds nothing.
    pub fn release(&mut self, uid: &str) -> bool {
        let Some(taken) = self.taken.remove(uid) else { return false };
        self.used.sub(&taken);
        for slots in self.held.values_mut() {
            slots.retain(|_, holder| holder != uid);
        }
        true
    }

    /// The devices that a pod holds.
    pub fn devices_of(&self, node: &Node, uid: &str) -> Devices {
        let ids = |slots: &BTreeMap<u32, String>| -> Vec<String> {
            let mine = slots.iter().filter(|(_, holder)| *holder == uid);
            mine.map(|(slot, _)| gpu_uuid(&node.metadata.name, *slot)).collect()
        };
        let by_resource = self.held.iter().map(|(resource, slots)| (resource.clone(), ids(slots)));
        by_resource.filter(|(_, ids)| !ids.is_empty()).collect()
    }

    /// The healthy devices that nobody holds.
    fn free_slots(&self, node: &Node, resource: &str) -> Vec<u32> {
        let held = self.held.get(resource);
        let taken = |slot: u32| held.is_some_and(|h| h.contains_key(&slot));
        let unhealthy = unhealthy_gpus(node);
        (0..n_slots(node, resource)).filter(|slot| !taken(*slot) && !unhealthy.contains(slot)).collect()
    }

    /// The slots of devices that a pod had before.
    fn slots_of(&self, node: &Node, resource: &str, ids: &[String]) -> Vec<u32> {
        let slots = 0..n_slots(node, resource);
        slots.filter(|slot| ids.contains(&gpu_uuid(&node.metadata.name, *slot))).collect()
    }

    fn hold(&mut self, node: &Node, resource: &str, slot: u32, uid: &str) -> String {
        self.held.entry(resource.to_owned()).or_default().insert(slot, uid.to_owned());
        gpu_uuid(&node.metadata.name, slot)
    }
}

/// How many devices a node has, the broken ones too.
fn n_slots(node: &Node, resource: &str) -> u32 {
    let n = Amounts::read(&node.status.capacity).get(resource).clamp(0, 1 << 16);
    u32::try_from(n).unwrap_or(0)
}

/// Resources that stand for devices one can tell apart.
fn is_device(name: &str) -> bool {
    name.ends_with("/gpu")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node() -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": "n"},
            "status": {
                "capacity": {"cpu": "4", "nvidia.com/gpu": "3", "pods": "3"},
                "allocatable": {"cpu": "4", "nvidia.com/gpu": "3", "pods": "3"},
            },
        }))
        .unwrap()
    }

    fn pod(uid: &str, cpu: &str, gpus: u32) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"uid": uid},
            "spec": {"containers": [{"resources": {"requests": {"cpu": cpu, "nvidia.com/gpu": gpus.to_string()}}}]},
        }))
        .unwrap()
    }

    fn slots(result: Result<Devices, Refusal>) -> String {
        match result {
            Err(refusal) => refusal.reason,
            Ok(devices) => {
                let ids: Vec<String> = devices.into_iter().flat_map(|(_, ids)| ids).collect();
                let slot = |id: &String| {
                    (0..3).find(|i| gpu_uuid("n", *i) == *id).map_or("?".into(), |i| i.to_string())
                };
                ids.iter().map(slot).collect::<Vec<_>>().join(",")
            }
        }
    }

    #[test]
    fn devices_are_held_once() {
        let mut books = Books::default();
        assert_eq!(slots(books.admit(&node(), &pod("a", "1", 1), None)), "0");
        assert_eq!(slots(books.admit(&node(), &pod("b", "1", 2), None)), "1,2");
        assert_eq!(slots(books.admit(&node(), &pod("c", "1", 1), None)), "OutOfnvidia.com/gpu");
        let held = books.devices_of(&node(), "b");
        assert_eq!(held, [("nvidia.com/gpu".to_owned(), vec![gpu_uuid("n", 1), gpu_uuid("n", 2)])]);
        assert!(books.release("a"));
        assert!(!books.release("a"));
        assert_eq!(books.devices_of(&node(), "a"), []);
        assert_eq!(slots(books.admit(&node(), &pod("c", "1", 1), None)), "0");
        assert_eq!(slots(books.admit(&node(), &pod("d", "3", 0), None)), "OutOfcpu");
        assert_eq!(slots(books.admit(&node(), &pod("d", "1", 0), None)), "");
        assert_eq!(slots(books.admit(&node(), &pod("e", "0", 0), None)), "OutOfpods");
    }

    #[test]
    fn what_is_unhealthy_is_given_to_nobody() {
        let mut sick = node();
        sick.metadata.annotations.insert(crate::kubelet::node::UNHEALTHY_GPUS.into(), "0".into());
        let mut books = Books::default();
        let known = vec![("nvidia.com/gpu".to_owned(), vec![gpu_uuid("n", 0)])];
        assert_eq!(slots(books.admit(&sick, &pod("a", "0", 1), Some(&known))), "0", "what runs stays");
        assert_eq!(slots(books.admit(&sick, &pod("b", "0", 1), None)), "1");
        assert!(books.release("b"));
        assert!(books.release("a"));
        assert_eq!(slots(books.admit(&sick, &pod("c", "0", 3), None)), "OutOfnvidia.com/gpu");
        assert_eq!(slots(books.admit(&sick, &pod("c", "0", 2), None)), "1,2");
    }

    #[test]
    fn a_restart_keeps_devices() {
        let mut books = Books::default();
        let known = vec![("nvidia.com/gpu".to_owned(), vec![gpu_uuid("n", 1)])];
        assert_eq!(slots(books.admit(&node(), &pod("a", "99", 1), Some(&known))), "1");
        assert_eq!(slots(books.admit(&node(), &pod("b", "0", 2), None)), "0,2");
    }
}
