//! What all workload controllers do with the objects they own: make pods from templates, create in growing batches,
//! adopt and release.
//!
//! In: an owner and a template. Out: objects in the API, entered in the store at once.
//! Must stay true: an owner that is being deleted adopts nothing; a batch that fails is not followed by a larger one.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::api::{ApiError, Delete, Patch};
use crate::context::Context;
use crate::object::{Key, Object, Pod, Selector, controller_ref};
use crate::queue::Queue;
use crate::store::Store;

/// An owner that was created within this time is taken to be there.
const FRESH: SignedDuration = SignedDuration::from_secs(10);

/// A pod from a template, named by the server (`generateName`) and controlled by `owner`.
pub fn pod_from_template<O: Object>(owner: &O, template: &Value) -> Value {
    let mut metadata =
        template.get("metadata").filter(|m| m.is_object()).cloned().unwrap_or_else(|| json!({}));
    if let Some(map) = metadata.as_object_mut() {
        map.retain(|key, _| matches!(key.as_str(), "labels" | "annotations" | "finalizers"));
    }
    metadata["generateName"] = json!(pod_prefix(&owner.meta().name));
    metadata["namespace"] = json!(owner.meta().namespace);
    metadata["ownerReferences"] = json!([controller_ref(owner)]);
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": template.get("spec").cloned().unwrap_or_else(|| json!({})),
    })
}

/// The beginning of pod names; the server cuts what is too long to be followed by a suffix.
fn pod_prefix(owner: &str) -> String {
    format!("{owner}-")
}

/// Sets a label in a pod or template that is about to be created.
pub fn set_label(object: &mut Value, name: &str, value: &str) {
    set_meta(object, "labels", name, value);
}

pub fn set_annotation(object: &mut Value, name: &str, value: &str) {
    set_meta(object, "annotations", name, value);
}

fn set_meta(object: &mut Value, map: &str, name: &str, value: &str) {
    for part in [&["metadata"][..], &["metadata", map][..]] {
        let mut at = &mut *object;
        for step in part {
            at = &mut at[*step];
        }
        if !at.is_object() {
            *at = json!({});
        }
    }
    object["metadata"][map][name] = json!(value);
}

/// Creates pods in batches of 1, 2, 4, ...: when the first is refused, nine hundred are not tried.
pub async fn create_pods<O: Object>(cx: &Context, owner: &O, pods: Vec<Value>) -> Result<(), ApiError> {
    if pods.is_empty() || !is_there(cx, owner).await? {
        return Ok(());
    }
    let mut rest = pods.into_iter();
    let mut batch_size = 1;
    loop {
        let batch: Vec<Value> = rest.by_ref().take(batch_size).collect();
        if batch.is_empty() {
            return Ok(());
        }
        batch_size = (batch_size * 2).min(64);
        let results = join_all(batch.iter().map(|pod| create_pod(cx, owner, pod))).await;
        for result in results {
            result?;
        }
    }
}

/// Whether an owner is still there. A watch can be silent for minutes without a word, and pods of an owner that is gone are deleted as soon
/// as they are created, which would bring the next ones at once.
pub async fn is_there<O: Object>(cx: &Context, owner: &O) -> Result<bool, ApiError> {
    if cx.clock.now().duration_since(owner.meta().created()) < FRESH {
        return Ok(true);
    }
    match cx.api.get::<O>(&owner.key()).await {
        Ok(now) if now.meta().uid == owner.meta().uid => return Ok(!now.meta().deleting()),
        Ok(_) => {}
        Err(error) if error.not_found() => {}
        Err(error) => return Err(error),
    }
    cx.store::<O>().remove(&owner.key(), &owner.meta().uid);
    Ok(false)
}

pub async fn create_pod<O: Object>(cx: &Context, owner: &O, pod: &Value) -> Result<Arc<Pod>, ApiError> {
    let created: Result<Pod, ApiError> = cx.api.create(&owner.meta().namespace, pod).await;
    match created {
        Ok(pod) => {
            cx.events.normal(owner, "SuccessfulCreate", format!("Created pod: {}", pod.metadata.name));
            cx.pods.enter(pod.clone());
            Ok(Arc::new(pod))
        }
        Err(error) => {
            if !error.already_exists() {
                let message = format!("Error creating: {}", error.message());
                cx.events.warning(owner, "FailedCreate", message);
            }
            Err(error)
        }
    }
}

/// Deletes pods, many at a time. A pod that is gone already is no error.
pub async fn delete_pods<O: Object>(cx: &Context, owner: &O, pods: &[Arc<Pod>]) -> Result<(), ApiError> {
    for batch in pods.chunks(32) {
        let results = join_all(batch.iter().map(|pod| delete_pod(cx, owner, pod))).await;
        for result in results {
            result?;
        }
    }
    Ok(())
}

async fn delete_pod<O: Object>(cx: &Context, owner: &O, pod: &Pod) -> Result<(), ApiError> {
    let key = pod.key();
    // What was looked at may have changed since, by our own hand too.
    let latest = cx.pods.get(&key).filter(|p| p.metadata.uid == pod.metadata.uid);
    let pod = latest.as_deref().unwrap_or(pod);
    match cx.api.delete::<Pod>(&key, Delete { uid: &pod.metadata.uid, ..Delete::default() }).await {
        Ok(answer) => {
            cx.events.normal(owner, "SuccessfulDelete", format!("Deleted pod: {}", pod.metadata.name));
            // The store learns at once, so that the next look does not count this pod.
            match answer.filter(|pod| pod.metadata.deleting() && !pod.metadata.is_last()) {
                Some(going) => cx.pods.enter(going),
                None => cx.pods.remove(&key, &pod.metadata.uid),
            }
            Ok(())
        }
        Err(error) if error.not_found() || error.conflict() => {
            cx.pods.remove(&key, &pod.metadata.uid);
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// What an owner has: what it controls and still selects, plus what it adopts. What it controls but no longer selects
/// is let go.
pub async fn claim<O: Object, T: Object>(
    cx: &Context,
    store: &Store<T>,
    owner: &O,
    selector: &Selector,
) -> Result<Vec<Arc<T>>, ApiError> {
    let mut mine = Vec::new();
    for object in store.owned_by(&owner.meta().uid) {
        if object.meta().namespace != owner.meta().namespace {
            continue;
        }
        if selector.matches(&object.meta().labels) {
            mine.push(object);
        } else if !owner.meta().deleting() {
            let patch = json!({"metadata": {
                "uid": object.meta().uid,
                "ownerReferences": [{"$patch": "delete", "uid": owner.meta().uid}],
            }});
            match cx.api.patch::<T>(&object.key(), "", Patch::Strategic, &patch).await {
                Ok(free) => store.enter(free),
                Err(error) if error.not_found() || error.conflict() || error.code() == 422 => {}
                Err(error) => return Err(error),
            }
        }
    }
    if owner.meta().deleting() || selector.is_empty() {
        return Ok(mine);
    }
    for object in store.orphans_in(&owner.meta().namespace) {
        if object.meta().deleting() || !selector.matches(&object.meta().labels) {
            continue;
        }
        let patch = json!({"metadata": {
            "uid": object.meta().uid,
            "ownerReferences": [controller_ref(owner)],
        }});
        match cx.api.patch::<T>(&object.key(), "", Patch::Strategic, &patch).await {
            Ok(adopted) => {
                let key = adopted.key();
                store.enter(adopted);
                mine.extend(store.get(&key).filter(|o| o.meta().controlled_by(&owner.meta().uid)));
            }
            // Gone, or another owner was faster.
            Err(error) if error.not_found() || error.conflict() || error.code() == 422 => {}
            Err(error) => return Err(error),
        }
    }
    mine.sort_by_key(|o| o.key());
    mine.dedup_by_key(|o| o.key());
    Ok(mine)
}

/// Wakes the owner of a pod whenever the pod changes, and whoever might adopt it when it has none; after a wait, if the owner would
/// rather look at many changes at once.
pub fn wake_by_pods<O: Object>(
    cx: &Context,
    owners: &Arc<Store<O>>,
    queue: &Arc<Queue<Key>>,
    wait: Duration,
    selects: impl Fn(&O, &Pod) -> bool + Send + Sync + 'static,
) {
    let (owners, queue) = (owners.clone(), queue.clone());
    cx.pods.observe(move |change| {
        for pod in change.sides() {
            match pod.metadata.controller() {
                Some(owner) if owner.kind == O::RESOURCE.kind => {
                    queue.add_after(Key::new(pod.metadata.namespace.clone(), owner.name.clone()), wait);
                }
                Some(_) => {}
                None => {
                    for owner in owners.in_namespace(&pod.metadata.namespace) {
                        if selects(&owner, pod) {
                            queue.add_after(owner.key(), wait);
                        }
                    }
                }
            }
        }
    });
}

/// Wakes an object's own key whenever it changes.
pub fn wake_by_self<O: Object>(owners: &Arc<Store<O>>, queue: &Arc<Queue<Key>>) {
    let queue = queue.clone();
    owners.observe(move |change| {
        if let Some(object) = change.latest() {
            queue.add(object.key());
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::ReplicaSet;

    #[test]
    fn pods_take_only_what_templates_may_set() {
        let mut owner = ReplicaSet::default();
        owner.metadata.name = "rs".into();
        owner.metadata.namespace = "ns".into();
        owner.metadata.uid = "u".into();
        let template = json!({
            "metadata": {"name": "no", "labels": {"a": "b"}, "creationTimestamp": null},
            "spec": {"containers": [], "futureField": 1},
        });
        let mut pod = pod_from_template(&owner, &template);
        set_label(&mut pod, "c", "d");
        set_annotation(&mut pod, "e", "f");
        assert_eq!(
            pod["metadata"],
            json!({
                "generateName": "rs-",
                "namespace": "ns",
                "labels": {"a": "b", "c": "d"},
                "annotations": {"e": "f"},
                "ownerReferences": [{
                    "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "u",
                    "controller": true, "blockOwnerDeletion": true,
                }],
            })
        );
        assert_eq!(pod["spec"]["futureField"], 1, "fields that we do not know pass through");
    }
}
