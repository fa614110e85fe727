//! Background work that Kubernetes leaves to controllers but that belongs to the store's meaning: garbage collection by
//! owner, namespace content, CRD instances, gang protection, quota status.
//!
//! In: the store's changes, in order. Out: deletes and finalizer removals, through the same code as requests. Invariant: the
//! index of owners is a function of the store; after a gap it is built anew.

use crate::crd;
use crate::delete::{DeleteOptions, FOREGROUND, ORPHAN, Propagation, is_held, namespace_finalizers};
use crate::meta;
use crate::registry::Served;
use crate::server::ApiServer;
use crate::store::{Clash, Expect, Key, Range, Revision, Stored, Table};
use crate::strategy::Part;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// The field manager of this work, named as the process that does it on a real cluster.
const MANAGER: &str = "kube-controller-manager";
/// Keeps a PodGroup while pods that still run refer to it.
const PODGROUP_PROTECTION: &str = "scheduling.k8s.io/podgroup-protection";

/// Keeps a claim while pods that still run use it.
const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
/// Keeps a volume while a claim is bound to it.
const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";

/// How long to wait after the disk refused a write.
const UNDONE_PAUSE: std::time::Duration = std::time::Duration::from_secs(1);

type Place = (Table, Key);

/// Who owns whom.
#[derive(Default)]
struct Index {
    /// Where each living object is, by uid.
    places: HashMap<Arc<str>, Place>,
    /// Dependents of each owner.
    dependents: HashMap<Arc<str>, BTreeSet<Place>>,
    /// Owners of each object, to undo its entries.
    owners: HashMap<Place, Vec<Arc<str>>>,
}

impl Index {
    fn set(&mut self, table: &Table, object: &Stored) {
        let place = (table.clone(), object.key.clone());
        self.unlink(&place);
        self.places.insert(object.facts.uid.clone(), place.clone());
        for owner in &object.facts.owners {
            self.dependents.entry(owner.clone()).or_default().insert(place.clone());
        }
        if !object.facts.owners.is_empty() {
            self.owners.insert(place, object.facts.owners.clone());
        }
    }

    fn unlink(&mut self, place: &Place) {
        for owner in self.owners.remove(place).into_iter().flatten() {
            if let Some(set) = self.dependents.get_mut(&owner) {
                set.remove(place);
                if set.is_empty() {
                    self.dependents.remove(&owner);
                }
            }
        }
    }

    fn remove(&mut self, table: &Table, object: &Stored) {
        self.unlink(&(table.clone(), object.key.clone()));
        self.places.remove(&object.facts.uid);
    }
}

/// The state of the background loop.
struct Collector {
    server: ApiServer,
    index: Index,
    seen: BTreeMap<Table, Revision>,
    /// Objects that may have lost their last owner.
    suspects: BTreeSet<Place>,
    /// Objects that are going and wait for something of ours.
    going: BTreeSet<Place>,
    /// Namespaces whose quotas need a new status.
    quotas: BTreeSet<Arc<str>>,
}

impl ApiServer {
    /// Runs the background work until the future is dropped.
    pub async fn run(&self) {
        let mut changed = self.store().subscribe_all();
        let mut collector = Collector::new(self);
        let n_undone = || self.store().durability().map_or(0, |d| d.n_undone());
        let mut undone = n_undone();
        loop {
            if undone != n_undone() {
                // The disk refused, and what was done here may be gone with the rest: begin anew, and not at once.
                tokio::time::sleep(UNDONE_PAUSE).await;
                undone = n_undone();
                collector = Collector::new(self);
                self.reload_crds();
            }
            collector.turn();
            if changed.changed().await.is_err() {
                return;
            }
            // Let writers get ahead a little: one turn then covers a burst of changes.
            tokio::task::yield_now().await;
        }
    }
}

impl Collector {
    fn new(server: &ApiServer) -> Collector {
        Collector {
            server: server.clone(),
            index: Index::default(),
            seen: BTreeMap::new(),
            suspects: BTreeSet::new(),
            going: BTreeSet::new(),
            quotas: BTreeSet::new(),
        }
    }

    /// One turn: take in the changes, then act on what they brought up.
    fn turn(&mut self) {
        for table in self.server.store().tables() {
            self.take_in(&table);
        }
        for place in std::mem::take(&mut self.suspects) {
            self.judge(&place);
        }
        for place in std::mem::take(&mut self.going) {
            if self.advance(&place) {
                self.going.insert(place);
            }
        }
        for namespace in std::mem::take(&mut self.quotas) {
            self.report_quotas(&namespace);
        }
    }

    fn take_in(&mut self, table: &Table) {
        let after = self.seen.get(table).copied().unwrap_or(0);
        let store = self.server.inner.store.clone();
        match store.changes(table, after) {
            Ok((changes, upto)) => {
                self.seen.insert(table.clone(), upto);
                for change in changes {
                    if change.deleted {
                        self.gone(table, &change.object);
                    } else {
                        let owners = change.previous.as_ref().map(|p| &p.facts.owners);
                        self.present(table, &change.object, owners != Some(&change.object.facts.owners));
                    }
                    if !change.object.key.namespace.is_empty() && &**table != "leases.coordination.k8s.io" {
                        self.quotas.insert(change.object.key.namespace.clone());
                    }
                }
            }
            Err(_) => {
                // Changes were missed: what is listed now is the truth, and every entry of this table is taken anew.
                let stale: Vec<Arc<str>> = self
                    .index
                    .places
                    .iter()
                    .filter(|(_, (t, _))| t == table)
                    .map(|(uid, _)| uid.clone())
                    .collect();
                let page = match store.list(table, &Range::default(), &mut |_| true) {
                    Ok(page) => page,
                    Err(_) => return,
                };
                self.seen.insert(table.clone(), page.revision);
                let alive: BTreeSet<Arc<str>> = page.items.iter().map(|o| o.facts.uid.clone()).collect();
                for uid in stale.into_iter().filter(|u| !alive.contains(u)) {
                    if let Some(place) = self.index.places.remove(&uid) {
                        self.index.unlink(&place);
                        self.suspects.extend(self.index.dependents.get(&uid).into_iter().flatten().cloned());
                    }
                }
                for object in &page.items {
                    self.present(table, object, true);
                }
            }
        }
    }

    fn present(&mut self, table: &Table, object: &Stored, new_owners: bool) {
        let place = (table.clone(), object.key.clone());
        if new_owners {
            self.index.set(table, object);
            if !object.facts.owners.is_empty() {
                self.suspects.insert(place.clone());
            }
        }
        if object.facts.terminating {
            self.going.insert(place);
        }
    }

    fn gone(&mut self, table: &Table, object: &Stored) {
        self.index.remove(table, object);
        if let Some(dependents) = self.index.dependents.get(&object.facts.uid) {
            self.suspects.extend(dependents.iter().cloned());
        }
    }

    fn fetch(&self, place: &Place) -> Option<(Arc<Served>, Stored, Value)> {
        let served = self.server.kind_of_table(&place.0)?;
        let stored = self.server.store().get(&place.0, &place.1)?;
        let object =
            self.server.in_storage_version(self.server.parse_stored(&stored, &served).ok()?, &served);
        Some((served, stored, object))
    }

    /// Deletes an object that has owners but none that lives; drops references to those that do not.
    fn judge(&mut self, place: &Place) {
        let owners: Vec<Arc<str>> = self.index.owners.get(place).cloned().unwrap_or_default();
        let lives = |uid: &Arc<str>| match self.index.places.get(uid) {
            Some((_, key)) => key.namespace.is_empty() || key.namespace == place.1.namespace,
            None => false,
        };
        // Owners that are going are few, so only their text is read.
        let waits = |uid: &Arc<str>| {
            let Some(place) = self.index.places.get(uid) else { return false };
            self.server.store().get(&place.0, &place.1).is_some_and(|owner| owner.facts.terminating)
                && self
                    .fetch(place)
                    .is_some_and(|(_, _, o)| meta::finalizers(&o).iter().any(|f| f == FOREGROUND))
        };
        let solid: Vec<&Arc<str>> = owners.iter().filter(|u| lives(u) && !waits(u)).collect();
        if solid.len() == owners.len() {
            return;
        }
        let Some((served, stored, mut object)) = self.fetch(place) else { return };
        let before = object.clone();
        if solid.is_empty() {
            if stored.facts.terminating {
                return;
            }
            let waited_for = owners.iter().any(lives);
            let has_dependents = self.index.dependents.contains_key(&stored.facts.uid);
            let propagation = if waited_for && has_dependents {
                Propagation::Foreground
            } else if meta::finalizers(&object).iter().any(|f| f == ORPHAN) {
                Propagation::Orphan
            } else {
                Propagation::Background
            };
            let options = DeleteOptions {
                propagation: Some(propagation),
                uid: Some(stored.facts.uid.to_string()),
                ..DeleteOptions::default()
            };
            if let Err(error) = self.server.delete_object(&served, &place.1, &options)
                && error.code != 404
            {
                tracing::warn!(table = %place.0, name = %place.1.name, %error, "dependent not deleted");
            }
            return;
        }
        let keep: BTreeSet<String> = solid.iter().map(|u| u.to_string()).collect();
        if let Some(list) = meta::edit(&mut object).get_mut("ownerReferences").and_then(Value::as_array_mut) {
            list.retain(|o| o["uid"].as_str().is_some_and(|u| keep.contains(u)));
        }
        let object = self.server.manage_as(MANAGER, &served, Some(&before), object, Part::Main);
        if let Err(Clash::Moved) = self.server.commit(&served, &place.1, Expect::At(stored.revision), &object)
        {
            self.suspects.insert(place.clone());
        }
    }

    /// Takes a deletion one step further; true while it must be looked at again.
    fn advance(&mut self, place: &Place) -> bool {
        let Some((served, stored, object)) = self.fetch(place) else { return false };
        if !stored.facts.terminating {
            return false;
        }
        let finalizers = meta::finalizers(&object);
        let has = |name: &str| finalizers.iter().any(|f| f == name);
        let mut waiting = false;
        if has(ORPHAN) {
            self.set_free(&stored.facts.uid);
            self.drop_finalizer(&served, place, ORPHAN);
        }
        if has(FOREGROUND) {
            let dependents: Vec<Place> =
                self.index.dependents.get(&stored.facts.uid).into_iter().flatten().cloned().collect();
            let blocking = dependents.iter().filter(|d| self.blocks(d, &stored.facts.uid)).count();
            for dependent in dependents {
                self.judge(&dependent);
            }
            if blocking == 0 {
                self.drop_finalizer(&served, place, FOREGROUND);
            } else {
                waiting = true;
            }
        }
        if has(PODGROUP_PROTECTION) && served.is("scheduling.k8s.io", "podgroups") {
            if self.is_podgroup_in_use(&place.1) {
                waiting = true;
            } else {
                self.drop_finalizer(&served, place, PODGROUP_PROTECTION);
            }
        }
        if has(CLAIM_PROTECTION) && served.is("", "persistentvolumeclaims") {
            if self.is_claim_in_use(&place.1) {
                waiting = true;
            } else {
                self.drop_finalizer(&served, place, CLAIM_PROTECTION);
            }
        }
        if has(VOLUME_PROTECTION) && served.is("", "persistentvolumes") {
            if meta::text_at(&object, "status.phase") == "Bound" {
                waiting = true;
            } else {
                self.drop_finalizer(&served, place, VOLUME_PROTECTION);
            }
        }
        if served.is("apiextensions.k8s.io", "customresourcedefinitions") && has(crd::CLEANUP_FINALIZER) {
            if self.empty_table(&place.1.name, None) {
                self.drop_finalizer(&served, place, crd::CLEANUP_FINALIZER);
            } else {
                waiting = true;
            }
        }
        if served.is("", "namespaces") && !namespace_finalizers(&object).is_empty() {
            waiting |= !self.empty_namespace(&served, place);
        }
        waiting
    }

    fn blocks(&self, dependent: &Place, owner: &str) -> bool {
        self.fetch(dependent).is_some_and(|(_, _, object)| {
            object["metadata"]["ownerReferences"]
                .as_array()
                .into_iter()
                .flatten()
                .any(|o| o["uid"] == owner && o["blockOwnerDeletion"] == true)
        })
    }

    /// Removes the references of all dependents to an owner.
    fn set_free(&mut self, owner: &Arc<str>) {
        let dependents: Vec<Place> =
            self.index.dependents.get(owner).into_iter().flatten().cloned().collect();
        for place in dependents {
            while let Some((served, stored, mut object)) = self.fetch(&place) {
                let before = object.clone();
                let metadata = meta::edit(&mut object);
                if let Some(list) = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut) {
                    list.retain(|o| o["uid"] != **owner);
                    if list.is_empty() {
                        metadata.remove("ownerReferences");
                    }
                }
                let object = self.server.manage_as(MANAGER, &served, Some(&before), object, Part::Main);
                let done = self.server.commit(&served, &place.1, Expect::At(stored.revision), &object);
                if let Ok(now) = &done {
                    self.index.set(&place.0, now);
                }
                if !matches!(done, Err(Clash::Moved)) {
                    break;
                }
            }
        }
    }

    fn drop_finalizer(&self, served: &Arc<Served>, place: &Place, name: &str) {
        while let Some((_, stored, mut object)) = self.fetch(place) {
            let mut finalizers = meta::finalizers(&object);
            finalizers.retain(|f| f != name);
            meta::set_finalizers(&mut object, &finalizers);
            if !self.store_or_erase(served, place, &stored, &object) {
                continue;
            }
            return;
        }
    }

    /// Writes the object, or erases it when nothing holds it any more. False when it moved meanwhile.
    fn store_or_erase(&self, served: &Arc<Served>, place: &Place, stored: &Stored, object: &Value) -> bool {
        let held = is_held(served, object);
        let result = if held {
            self.server.commit(served, &place.1, Expect::At(stored.revision), object).map(|_| ())
        } else {
            self.server.erase(served, &place.1, stored.revision, object).map(|_| {
                self.server.after_delete(served, &place.1);
            })
        };
        !matches!(result, Err(Clash::Moved))
    }

    fn is_podgroup_in_use(&self, key: &Key) -> bool {
        self.server.all_in("pods", Some(&key.namespace)).iter().any(|pod| {
            meta::text_at(pod, "spec.schedulingGroup.podGroupName") == &*key.name
                && !matches!(meta::text_at(pod, "status.phase"), "Succeeded" | "Failed")
        })
    }

    fn is_claim_in_use(&self, key: &Key) -> bool {
        self.server.all_in("pods", Some(&key.namespace)).iter().any(|pod| {
            let volumes = meta::at(pod, "spec.volumes").and_then(Value::as_array);
            volumes.into_iter().flatten().any(|v| v["persistentVolumeClaim"]["claimName"] == *key.name)
                && !matches!(meta::text_at(pod, "status.phase"), "Succeeded" | "Failed")
        })
    }

    /// Deletes what a table holds (in a namespace); true when nothing is left.
    fn empty_table(&self, table: &str, namespace: Option<&str>) -> bool {
        let Some(served) = self.server.kind_of_table(table) else { return true };
        let range = Range { namespace, ..Range::default() };
        let Ok(page) = self.server.store().list(table, &range, &mut |_| true) else { return false };
        let options =
            DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
        for object in page.items.iter().filter(|o| !o.facts.terminating) {
            if let Err(error) = self.server.delete_object(&served, &object.key, &options)
                && error.code != 404
            {
                tracing::warn!(table, name = %object.key.name, %error, "not deleted");
            }
        }
        self.server.store().list(table, &range, &mut |_| true).is_ok_and(|p| p.items.is_empty())
    }

    /// Deletes a namespace's content; true when the namespace could be let go.
    fn empty_namespace(&self, served: &Arc<Served>, place: &Place) -> bool {
        let mut empty = true;
        for table in self.server.store().tables() {
            if self.server.kind_of_table(&table).is_some_and(|k| k.namespaced) {
                empty &= self.empty_table(&table, Some(&place.1.name));
            }
        }
        if !empty {
            return false;
        }
        while let Some((_, stored, mut object)) = self.fetch(place) {
            meta::member(&mut object, "spec").remove("finalizers");
            if self.store_or_erase(served, place, &stored, &object) {
                break;
            }
        }
        true
    }

    fn report_quotas(&self, namespace: &str) {
        let table = "resourcequotas";
        if self.server.store().len(table) == 0 {
            return;
        }
        let Some(served) = self.server.kind_of_table(table) else { return };
        for quota in self.server.all_in(table, Some(namespace)) {
            let status = crate::admission::quota_status(&self.server, &quota);
            if quota.get("status") == Some(&status) {
                continue;
            }
            let key = Key::new(namespace, meta::name(&quota));
            let Ok(revision) = meta::text(&quota, "resourceVersion").parse::<Revision>() else { continue };
            let mut counted = quota.clone();
            counted["status"] = status;
            let counted = self.server.manage_as(MANAGER, &served, Some(&quota), counted, Part::Status);
            // A clash means that the quota changed, which brings it here again.
            let _ = self.server.commit(&served, &key, Expect::At(revision), &counted);
        }
    }
}
