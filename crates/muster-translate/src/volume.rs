//! Volumes: PersistentVolumeClaims, PersistentVolumes and StorageClasses, as far as they say where a pod may run.

use crate::pod::VolumeRef;
use crate::read::{At, Object};
use crate::select;
use indexmap::IndexSet;
use muster_model::{Expr, Key, LabelSelector, Labels, Name, NodeTerm, Op, VolumeNeed, VolumeUse};
use std::collections::{BTreeMap, BTreeSet};

const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
/// Labels by which a volume says where it is, without a node affinity. The old spellings mean the new ones.
const PLACES: [(&str, &str); 4] = [
    ("topology.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("topology.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
];

/// A PersistentVolumeClaim.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClaimFacts {
    uid: Option<Name>,
    volume: Option<Name>,
    class: Option<Name>,
    modes: BTreeSet<Name>,
    block: bool,
    /// In bytes.
    size: i128,
    /// Which volumes it would take; `None`: any.
    selector: Option<LabelSelector>,
    selected_node: Option<Name>,
    /// The pods that own it, by uid.
    owners: Vec<Name>,
    leaving: bool,
    lost: bool,
}

/// A PersistentVolume.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct VolumeFacts {
    labels: Labels,
    class: Option<Name>,
    modes: BTreeSet<Name>,
    block: bool,
    size: i128,
    reachable: Vec<NodeTerm>,
    driver: Option<Name>,
    /// The claim that it is kept for, with its uid once it is bound.
    kept_for: Option<(Key, Option<Name>)>,
    /// Neither free nor about to be bound.
    spent: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClassFacts {
    provisioner: Option<Name>,
    waits: bool,
    topologies: Vec<NodeTerm>,
}

/// All that is known of storage.
#[derive(Debug, Default)]
pub(crate) struct Storage {
    pub(crate) claims: BTreeMap<Key, ClaimFacts>,
    pub(crate) classes: BTreeMap<Name, ClassFacts>,
    volumes: BTreeMap<Name, VolumeFacts>,
    /// Volumes that are kept for nobody, by class, and those that are kept for a claim.
    free: BTreeMap<Name, BTreeSet<Name>>,
    kept: BTreeMap<Key, BTreeSet<Name>>,
}

pub(crate) fn claim(object: &Object<'_>) -> ClaimFacts {
    let spec = object.get("spec");
    let owners = object.get("metadata").get("ownerReferences").list();
    ClaimFacts {
        uid: object.get("metadata").get("uid").name(),
        volume: spec.get("volumeName").name(),
        class: class_name(object, spec),
        modes: spec.get("accessModes").names().into_iter().collect(),
        block: spec.get("volumeMode").str() == Some("Block"),
        size: size(spec.get("resources").get("requests").get("storage")),
        selector: spec.get("selector").exists().then(|| select::labels(spec.get("selector"))),
        selected_node: object.annotation(SELECTED_NODE).map(Name::from),
        owners: owners.filter_map(|owner| owner.get("uid").name()).collect(),
        leaving: object.get("metadata").get("deletionTimestamp").exists(),
        lost: object.get("status").get("phase").str() == Some("Lost"),
    }
}

pub(crate) fn volume(object: &Object<'_>) -> VolumeFacts {
    let spec = object.get("spec");
    let labels = object.get("metadata").get("labels").labels();
    let kept = spec.get("claimRef");
    let required = spec.get("nodeAffinity").get("required");
    let terms = required.exists().then(|| select::node_terms(required));
    VolumeFacts {
        class: class_name(object, spec),
        modes: spec.get("accessModes").names().into_iter().collect(),
        block: spec.get("volumeMode").str() == Some("Block"),
        size: size(spec.get("capacity").get("storage")),
        reachable: reachable(terms, &labels),
        driver: spec.get("csi").get("driver").name(),
        kept_for: kept.exists().then(|| {
            let key =
                Key::new(kept.get("namespace").str().unwrap_or(""), kept.get("name").str().unwrap_or(""));
            (key, kept.get("uid").name())
        }),
        spent: object.get("metadata").get("deletionTimestamp").exists()
            || matches!(object.get("status").get("phase").str(), Some("Released" | "Failed")),
        labels,
    }
}

pub(crate) fn class(object: &Object<'_>) -> ClassFacts {
    let topologies = object
        .get("allowedTopologies")
        .list()
        .map(|term| NodeTerm {
            labels: term
                .get("matchLabelExpressions")
                .list()
                .map(|e| Expr {
                    key: e.get("key").str().unwrap_or("").into(),
                    op: Op::In(e.get("values").names()),
                })
                .collect(),
            names: Vec::new(),
        })
        .collect();
    ClassFacts {
        provisioner: object.get("provisioner").name().filter(|p| &**p != NO_PROVISIONER),
        waits: object.get("volumeBindingMode").str() == Some("WaitForFirstConsumer"),
        topologies,
    }
}

fn class_name(object: &Object<'_>, spec: At<'_>) -> Option<Name> {
    object.annotation(OLD_CLASS).map(Name::from).or_else(|| spec.get("storageClassName").name())
}

fn size(at: At<'_>) -> i128 {
    at.quantity().map_or(0, |quantity| quantity.nano())
}

/// Where a volume can be used, its place labels included. Nodes that say nothing of zones and regions are not held to them.
fn reachable(terms: Option<Vec<NodeTerm>>, labels: &Labels) -> Vec<NodeTerm> {
    let places: Vec<Expr> = PLACES
        .iter()
        .filter_map(|(label, means)| {
            let values = labels.get(*label)?;
            let values = values.split("__").map(Name::from).collect();
            Some(Expr { key: (*means).into(), op: Op::In(values) })
        })
        .collect();
    // A term that says nothing holds nowhere, and so does an affinity without terms.
    let terms = terms.map(|mut terms| {
        terms.retain(|term| !(term.labels.is_empty() && term.names.is_empty()));
        terms
    });
    if terms.as_ref().is_some_and(Vec::is_empty) {
        return vec![NodeTerm::default()];
    }
    if places.is_empty() {
        return terms.unwrap_or_default();
    }
    let nowhere_said: Vec<Expr> =
        PLACES.iter().map(|(label, _)| Expr { key: (*label).into(), op: Op::Absent }).collect();
    let base = terms.unwrap_or_else(|| vec![NodeTerm::default()]);
    base.iter()
        .flat_map(|term| {
            [&places, &nowhere_said].map(|more| NodeTerm {
                labels: term.labels.iter().chain(more).cloned().collect(),
                names: term.names.clone(),
            })
        })
        .collect()
}

impl Storage {
    pub(crate) fn put_volume(&mut self, name: Name, facts: VolumeFacts) {
        self.remove_volume(&name);
        self.shelf(&facts).map(|shelf| shelf.insert(name.clone()));
        self.volumes.insert(name, facts);
    }

    pub(crate) fn remove_volume(&mut self, name: &str) {
        if let Some(facts) = self.volumes.remove(name) {
            self.shelf(&facts).map(|shelf| shelf.remove(name));
        }
    }

    /// Where a volume is found by claims that are not bound.
    fn shelf(&mut self, facts: &VolumeFacts) -> Option<&mut BTreeSet<Name>> {
        match (&facts.kept_for, &facts.class) {
            (Some((claim, _)), _) => Some(self.kept.entry(claim.clone()).or_default()),
            (None, Some(class)) => Some(self.free.entry(class.clone()).or_default()),
            (None, None) => None,
        }
    }

    /// The claims that look at one of these volumes: those bound to it, and those that are not bound.
    pub(crate) fn lookers(&self, volumes: &BTreeSet<Name>) -> impl Iterator<Item = &Key> {
        let looks = |claim: &ClaimFacts| claim.volume.as_ref().is_none_or(|volume| volumes.contains(volume));
        self.claims.iter().filter(move |(_, claim)| looks(claim)).map(|(key, _)| key)
    }

    /// What using a claim means for a pod, or what is missing.
    pub(crate) fn resolve(&self, volume: &VolumeRef, pod: &Key, pod_uid: &Name) -> Result<VolumeUse, Name> {
        let key = Key::new(pod.namespace.clone(), volume.claim.clone());
        let Some(claim) = self.claims.get(&key) else {
            return Err(format!("PersistentVolumeClaim {key}").into());
        };
        if volume.ephemeral && !claim.owners.contains(pod_uid) {
            return Err(format!("PersistentVolumeClaim {key} of this pod; the one there is another's").into());
        }
        if claim.leaving {
            return Err(format!("PersistentVolumeClaim {key}; the one there is being deleted").into());
        }
        if claim.lost {
            return Err(format!("the volume of PersistentVolumeClaim {key}, which is lost").into());
        }
        let one_pod = claim.modes.contains("ReadWriteOncePod");
        if let Some(name) = &claim.volume {
            let Some(volume) = self.volumes.get(name) else {
                return Err(format!("PersistentVolume {name}").into());
            };
            let need = VolumeNeed::Bound { reachable: volume.reachable.clone() };
            return Ok(VolumeUse { claim: key, need, driver: volume.driver.clone(), one_pod });
        }
        let Some(class_name) = &claim.class else {
            return Ok(VolumeUse { claim: key, need: VolumeNeed::Unbound, driver: None, one_pod });
        };
        let Some(class) = self.classes.get(class_name) else {
            return Err(format!("StorageClass {class_name}").into());
        };
        let driver = class.provisioner.clone();
        if !class.waits {
            return Ok(VolumeUse { claim: key, need: VolumeNeed::Unbound, driver, one_pod });
        }
        let need = match &claim.selected_node {
            // The volume is being made for this node.
            Some(node) => VolumeNeed::WaitsForPod {
                provisioned: Some(vec![NodeTerm {
                    labels: Vec::new(),
                    names: vec![Expr { key: "metadata.name".into(), op: Op::In(vec![node.clone()]) }],
                }]),
                free: Vec::new(),
            },
            None => VolumeNeed::WaitsForPod {
                // A claim that picks volumes by label is never provisioned for.
                provisioned: (driver.is_some() && claim.selector.is_none()).then(|| class.topologies.clone()),
                free: self.free_for(&key, claim, class_name),
            },
        };
        Ok(VolumeUse { claim: key, need, driver, one_pod })
    }
}

impl Storage {
    /// Where the volumes that the claim could be bound to can be used, each once.
    fn free_for(&self, key: &Key, claim: &ClaimFacts, class: &Name) -> Vec<Vec<NodeTerm>> {
        let names = self.free.get(class).into_iter().chain(self.kept.get(key)).flatten();
        let volumes =
            names.filter_map(|name| self.volumes.get(name)).filter(|volume| volume.suits(key, claim));
        volumes.map(|volume| &volume.reachable).collect::<IndexSet<_>>().into_iter().cloned().collect()
    }
}

impl VolumeFacts {
    /// Whether the claim could be bound to it.
    fn suits(&self, key: &Key, claim: &ClaimFacts) -> bool {
        let kept_for_it = self
            .kept_for
            .as_ref()
            .is_none_or(|(other, uid)| other == key && (uid.is_none() || *uid == claim.uid));
        kept_for_it
            && !self.spent
            && self.class == claim.class
            && self.block == claim.block
            && self.size >= claim.size
            && claim.modes.is_subset(&self.modes)
            && claim.selector.as_ref().is_none_or(|selector| selector.matches(&self.labels))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// A claim `data` with this spec, one volume `pv` and one class `fast`.
    fn storage(claim_spec: Value, volume_spec: Value, class_object: Value) -> Storage {
        let claim_object =
            json!({"metadata": {"name": "data", "namespace": "n", "uid": "c1"}, "spec": claim_spec});
        let volume_object =
            json!({"metadata": {"name": "pv", "labels": volume_spec["labels"]}, "spec": volume_spec});
        let mut storage = Storage::default();
        storage
            .claims
            .insert(Key::new("n", "data"), claim(&Object::new("PersistentVolumeClaim", &claim_object)));
        storage.put_volume("pv".into(), volume(&Object::new("PersistentVolume", &volume_object)));
        storage.classes.insert("fast".into(), class(&Object::new("StorageClass", &class_object)));
        storage
    }

    fn resolve(storage: &Storage, claim: &str) -> Result<VolumeUse, Name> {
        let volume = VolumeRef { claim: claim.into(), ephemeral: false };
        storage.resolve(&volume, &Key::new("n", "p"), &"uid".into())
    }

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect()
    }

    #[test]
    fn what_is_missing_is_named() {
        let s = storage(json!({"volumeName": "gone"}), json!({}), json!({}));
        assert_eq!(resolve(&s, "x"), Err("PersistentVolumeClaim n/x".into()));
        assert_eq!(resolve(&s, "data"), Err("PersistentVolume gone".into()));
        let s = storage(json!({"storageClassName": "slow"}), json!({}), json!({}));
        assert_eq!(resolve(&s, "data"), Err("StorageClass slow".into()));
    }

    #[test]
    fn a_bound_volume_says_where_it_is() {
        let volume = json!({
            "csi": {"driver": "ebs"}, "labels": {"topology.kubernetes.io/zone": "a__b"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "arch", "operator": "In", "values": ["x"]}]}]}},
        });
        let s = storage(json!({"volumeName": "pv", "accessModes": ["ReadWriteOncePod"]}), volume, json!({}));
        let used = resolve(&s, "data").unwrap();
        assert_eq!((used.driver.as_deref(), used.one_pod), (Some("ebs"), true));
        let VolumeNeed::Bound { reachable } = used.need else { panic!() };
        let from = |pairs: &[(&str, &str)]| reachable.iter().any(|t| t.holds("n", &labels(pairs)));
        assert!(from(&[("arch", "x"), ("topology.kubernetes.io/zone", "b")]));
        assert!(!from(&[("arch", "x"), ("topology.kubernetes.io/zone", "c")]));
        assert!(from(&[("arch", "x")]));
        assert!(!from(&[("arch", "y"), ("topology.kubernetes.io/zone", "b")]));
    }

    #[test]
    fn an_unbound_claim_waits_for_the_pod_or_for_somebody_else() {
        let waiting = json!({"provisioner": "p", "volumeBindingMode": "WaitForFirstConsumer",
            "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}]});
        let free = json!({"storageClassName": "fast", "capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"]});
        let wants = |size: &str| json!({"storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}});
        let need = |s: Storage| resolve(&s, "data").unwrap().need;
        let VolumeNeed::WaitsForPod { provisioned, free: volumes } =
            need(storage(wants("5Gi"), free.clone(), waiting.clone()))
        else {
            panic!()
        };
        assert!(provisioned.unwrap()[0].holds("n", &labels(&[("zone", "a")])));
        assert_eq!(volumes, [vec![]]);
        let VolumeNeed::WaitsForPod { free: volumes, .. } =
            need(storage(wants("50Gi"), free.clone(), waiting.clone()))
        else {
            panic!()
        };
        assert!(volumes.is_empty());
        let local = json!({"provisioner": NO_PROVISIONER, "volumeBindingMode": "WaitForFirstConsumer"});
        let VolumeNeed::WaitsForPod { provisioned: None, .. } =
            need(storage(wants("5Gi"), free.clone(), local))
        else {
            panic!()
        };
        assert_eq!(
            need(storage(wants("5Gi"), free.clone(), json!({"provisioner": "p"}))),
            VolumeNeed::Unbound
        );
        assert_eq!(need(storage(json!({}), free.clone(), waiting.clone())), VolumeNeed::Unbound);
        let mut kept = free;
        kept["claimRef"] = json!({"namespace": "n", "name": "other"});
        let VolumeNeed::WaitsForPod { free: volumes, .. } = need(storage(wants("5Gi"), kept, waiting)) else {
            panic!()
        };
        assert!(volumes.is_empty());
    }

    #[test]
    fn an_ephemeral_volume_must_be_the_pods_own() {
        let s = storage(json!({"volumeName": "pv"}), json!({}), json!({}));
        let volume = VolumeRef { claim: "data".into(), ephemeral: true };
        assert!(s.resolve(&volume, &Key::new("n", "p"), &"uid".into()).is_err());
    }
}
