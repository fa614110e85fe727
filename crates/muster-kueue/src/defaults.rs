//! What jobs and pods with a queue get as they are created: they wait.
//!
//! In: an object that is being created, and the little that must be known of the cluster. Out: the same object, suspended or gated, with the queue of
//! its namespace if it names none. Must stay true: what belongs to another that waits is left alone; twice is once; no input panics.

use muster_runtime::object::Strings;
use serde_json::{Map, Value, json};

use crate::jobs::Job;
use crate::keys;
use crate::object::{BatchJob, at, list, text};
use crate::settings::Managed;

/// What is known of the cluster.
pub struct World<'a> {
    pub managed: &'a Managed,
    /// Labels of the namespace; `None`: not known, and then it is managed if a queue is named.
    pub namespace_labels: Option<&'a Strings>,
    /// Whether the namespace has a local queue named `default`.
    pub has_default_queue: bool,
}

impl World<'_> {
    /// Whether something of this namespace that names a queue, or does not, is managed.
    fn manages(&self, has_queue: bool) -> bool {
        let is_managed = self.namespace_labels.map(|labels| self.managed.namespaces.matches(labels));
        if has_queue {
            is_managed != Some(false)
        } else {
            self.managed.without_queue && is_managed == Some(true)
        }
    }
}

/// Whether an object names a queue. The first look at every job and pod of a cluster, so it costs no more than that.
pub fn has_queue(object: &Value) -> bool {
    !text(object, &["metadata", "labels", keys::QUEUE]).is_empty()
}

fn put_text(object: &mut Value, map: &str, key: &str, value: &str) {
    let Some(object) = object.as_object_mut() else { return };
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    let Some(metadata) = metadata.as_object_mut() else { return };
    let entry = metadata.entry(map).or_insert_with(|| json!({}));
    if entry.is_null() {
        *entry = json!({});
    }
    if let Some(map) = entry.as_object_mut() {
        map.insert(key.to_owned(), json!(value));
    }
}

/// Whether an object belongs to another that waits by itself.
fn is_owned(object: &Value, managed: &Managed) -> bool {
    let owners = list(object, &["metadata", "ownerReferences"]);
    let controller = owners.iter().find(|o| at(o, &["controller"]) == true);
    controller.is_some_and(|owner| {
        (text(owner, &["kind"]), text(owner, &["apiVersion"])) == ("Job", "batch/v1")
            && managed.has(BatchJob::FRAMEWORK)
    })
}

/// Whether a new Job waits for a queue.
pub fn job_waits(object: &Value, world: &World<'_>) -> bool {
    world.manages(has_queue(object) || world.has_default_queue)
        && world.managed.has(BatchJob::FRAMEWORK)
        && !is_owned(object, world.managed)
}

/// A Job of `batch/v1`.
pub fn job(object: &mut Value, world: &World<'_>) {
    if !job_waits(object, world) {
        return;
    }
    if !has_queue(object) && world.has_default_queue {
        put_text(object, "labels", keys::QUEUE, keys::DEFAULT_QUEUE);
    }
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("suspend".into(), json!(true));
    }
}

/// Whether a new plain pod waits for a queue. Only one that it names makes it wait, unless all jobs are managed; and there pods of a parent are left
/// to it.
pub fn pod_waits(object: &Value, world: &World<'_>) -> bool {
    let named = has_queue(object);
    if !world.manages(named) || !world.managed.has("pod") {
        return false;
    }
    let has_parent = !text(object, &["metadata", "annotations", keys::SUSPENDING_PARENT]).is_empty();
    // Pods of jobs that wait are theirs, whatever labels they carry.
    let is_started = !text(object, &["metadata", "labels", keys::POD_SET]).is_empty();
    (named || !has_parent) && !is_started && !is_owned(object, world.managed)
}

/// A plain pod.
pub fn pod(object: &mut Value, world: &World<'_>) {
    if !pod_waits(object, world) {
        return;
    }
    put_text(object, "labels", keys::MANAGED, "true");
    if !text(object, &["metadata", "labels", keys::GROUP_NAME]).is_empty() {
        let role = crate::names::role(&crate::pods::role_shape(at(object, &["spec"])));
        put_text(object, "annotations", keys::ROLE_HASH, &role);
    }
    let wants_domain = [
        keys::REQUIRED_TOPOLOGY,
        keys::PREFERRED_TOPOLOGY,
        keys::UNCONSTRAINED_TOPOLOGY,
        keys::SLICE_TOPOLOGY,
    ]
    .iter()
    .any(|name| !text(object, &["metadata", "annotations", name]).is_empty());
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        add(metadata, "finalizers", json!(keys::MANAGED), |f| f.as_str() == Some(keys::MANAGED));
    }
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        let mut gate = |name: &str| {
            add(spec, "schedulingGates", json!({"name": name}), |g| text(g, &["name"]) == name);
        };
        gate(keys::ADMISSION_GATE);
        if wants_domain {
            gate(keys::TOPOLOGY_GATE);
        }
    }
}

/// Adds to a list what it does not have.
fn add(map: &mut Map<String, Value>, field: &str, item: Value, is: impl Fn(&Value) -> bool) {
    let list = map.entry(field).or_insert_with(|| json!([]));
    if list.is_null() {
        *list = json!([]);
    }
    if let Some(list) = list.as_array_mut()
        && !list.iter().any(is)
    {
        list.push(item);
    }
}

/// What a ClusterQueue means when it does not say: the CRD has the other defaults.
pub fn cluster_queue(object: &mut Value) {
    finalizer(object);
}

/// Flavors are kept while they are in use.
pub fn flavor(object: &mut Value) {
    finalizer(object);
}

fn finalizer(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        add(metadata, "finalizers", json!(keys::IN_USE), |f| f.as_str() == Some(keys::IN_USE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn world<'a>(managed: &'a Managed, labels: Option<&'a Strings>, default: bool) -> World<'a> {
        World { managed, namespace_labels: labels, has_default_queue: default }
    }

    #[track_caller]
    fn check_job(object: Value, default: bool, expected: (Option<bool>, &str)) {
        let settings = Managed::default();
        let mut out = object;
        job(&mut out, &world(&settings, None, default));
        let suspend = at(&out, &["spec", "suspend"]).as_bool();
        assert_eq!((suspend, text(&out, &["metadata", "labels", keys::QUEUE])), expected);
    }

    #[test]
    fn jobs_wait() {
        let with = |queue: &str| json!({"metadata": {"labels": {keys::QUEUE: queue}}, "spec": {}});
        check_job(with("q"), false, (Some(true), "q"));
        check_job(json!({"metadata": {}, "spec": {}}), false, (None, ""));
        check_job(json!({"spec": {}}), true, (Some(true), "default"));
        let owner = json!([{"kind": "Job", "apiVersion": "batch/v1", "controller": true}]);
        check_job(
            json!({"metadata": {"labels": {keys::QUEUE: "q"}, "ownerReferences": owner}, "spec": {}}),
            false,
            (None, "q"),
        );
    }

    #[test]
    fn all_jobs_of_a_namespace_where_that_is_wanted() {
        let settings = Managed { without_queue: true, ..Managed::default() };
        let labels =
            |name: &str| Strings::from([("kubernetes.io/metadata.name".to_owned(), name.to_owned())]);
        let suspended = |namespace: &str| {
            let mut out = json!({"spec": {}});
            job(&mut out, &world(&settings, Some(&labels(namespace)), false));
            out["spec"]["suspend"] == true
        };
        assert!(suspended("team"));
        assert!(!suspended("kube-system"));
    }

    #[test]
    fn a_namespace_that_is_not_managed_is_left_alone() {
        let labels = Strings::from([("kubernetes.io/metadata.name".to_owned(), "kube-system".to_owned())]);
        let managed = Managed::default();
        let object = json!({"metadata": {"labels": {keys::QUEUE: "q"}}, "spec": {}});
        for change in [job, pod] {
            let mut out = object.clone();
            change(&mut out, &world(&managed, Some(&labels), true));
            assert_eq!(out, object);
        }
    }

    #[test]
    fn pods_are_gated() {
        let settings = Managed::default();
        let mut out = json!({"metadata": {"labels": {keys::QUEUE: "q", keys::GROUP_NAME: "g"},
            "annotations": {keys::PREFERRED_TOPOLOGY: "rack"}}, "spec": {"containers": [{}]}});
        pod(&mut out, &world(&settings, None, false));
        assert_eq!(out["metadata"]["labels"][keys::MANAGED], "true");
        assert_eq!(out["metadata"]["finalizers"], json!([keys::MANAGED]));
        assert_eq!(
            out["spec"]["schedulingGates"],
            json!([{"name": keys::ADMISSION_GATE}, {"name": keys::TOPOLOGY_GATE}])
        );
        assert_eq!(out["metadata"]["annotations"][keys::ROLE_HASH].as_str().map(str::len), Some(8));
        let before = out.clone();
        pod(&mut out, &world(&settings, None, false));
        assert_eq!(out, before, "twice is once");
        // The default queue is for jobs; pods have to name theirs.
        let mut plain = json!({"metadata": {}, "spec": {}});
        pod(&mut plain, &world(&settings, None, true));
        assert_eq!(plain, json!({"metadata": {}, "spec": {}}));
    }

    proptest! {
        #[test]
        fn odd_objects_do_no_harm(
            metadata in prop_oneof![Just(json!(null)), Just(json!(1)), Just(json!({"labels": []})), Just(json!({"labels": {keys::QUEUE: "q"}, "finalizers": 3}))],
            spec in prop_oneof![Just(json!(null)), Just(json!("x")), Just(json!({"schedulingGates": "x"})), Just(json!({"schedulingGates": null}))],
        ) {
            let settings = Managed::default();
            for mut object in [json!({"metadata": metadata, "spec": spec}), json!(null), json!([])] {
                pod(&mut object, &world(&settings, None, true));
                job(&mut object, &world(&settings, None, true));
                cluster_queue(&mut object);
            }
        }
    }
}
