//! What jobs and pods with a queue of Kueue's get as they are created, and what keeps its kinds from going while they are in use.
//!
//! Hot path: every job and pod of the cluster passes here; one without a queue costs a look at its labels.

use muster_kueue::defaults::{self, World as Known};
use muster_kueue::keys::DEFAULT_QUEUE;
use muster_kueue::{Managed, defaults::has_queue};
use serde_json::Value;

use crate::request::{Asked, Operation};
use crate::verdict::Verdict;
use crate::world::World;

/// A Job of `batch/v1`: it is born suspended, so that no pod of it comes before its turn.
pub fn job(asked: &Asked<'_>, managed: &Managed, world: &dyn World) -> Verdict {
    if asked.operation != Operation::Create {
        return Verdict::default();
    }
    let named = has_queue(asked.object);
    let has_default_queue = !named && world.has_local_queue(asked.namespace, DEFAULT_QUEUE) == Some(true);
    if !named && !has_default_queue && !managed.without_queue {
        return Verdict::default();
    }
    let namespace = world.namespace(asked.namespace);
    let namespace_labels = namespace.as_ref().map(|namespace| &namespace.metadata.labels);
    let known = Known { managed, namespace_labels, has_default_queue };
    if !defaults::job_waits(asked.object, &known) {
        return Verdict::default();
    }
    changed(asked, |job| defaults::job(job, &known))
}

/// A plain pod: it is born gated, which cannot be done later.
pub fn pod(asked: &Asked<'_>, managed: &Managed, world: &dyn World) -> Verdict {
    if asked.operation != Operation::Create || !(managed.without_queue || has_queue(asked.object)) {
        return Verdict::default();
    }
    let namespace = world.namespace(asked.namespace);
    let namespace_labels = namespace.as_ref().map(|namespace| &namespace.metadata.labels);
    let known = Known { managed, namespace_labels, has_default_queue: false };
    if !defaults::pod_waits(asked.object, &known) {
        return Verdict::default();
    }
    changed(asked, |pod| defaults::pod(pod, &known))
}

pub fn cluster_queue(asked: &Asked<'_>) -> Verdict {
    on_create(asked, defaults::cluster_queue)
}

pub fn flavor(asked: &Asked<'_>) -> Verdict {
    on_create(asked, defaults::flavor)
}

fn on_create(asked: &Asked<'_>, change: impl FnOnce(&mut Value)) -> Verdict {
    if asked.operation == Operation::Create { changed(asked, change) } else { Verdict::default() }
}

fn changed(asked: &Asked<'_>, change: impl FnOnce(&mut Value)) -> Verdict {
    let mut made = asked.object.clone();
    change(&mut made);
    let mut verdict = Verdict::default();
    verdict.make(asked.object, made);
    verdict
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::world::Given;

    const QUEUE: &str = "kueue.x-k8s.io/queue-name";

    fn world() -> Given {
        let namespace = |name: &str| {
            let labels = json!({"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}});
            (name.to_owned(), Arc::new(serde_json::from_value(labels).unwrap()))
        };
        Given {
            namespaces: ["team", "other", "kube-system"].map(namespace).into(),
            local_queues: Some([("team".to_owned(), "default".to_owned())].into()),
            ..Given::default()
        }
    }

    #[track_caller]
    fn check(
        rule: fn(&Asked<'_>, &Managed, &dyn World) -> Verdict,
        (namespace, without_queue): (&str, bool),
        object: Value,
        expected: Value,
    ) {
        let managed = Managed { without_queue, ..Managed::default() };
        let (operation, name, uid, old) = (Operation::Create, "x", "u", &Value::Null);
        let asked = Asked { operation, namespace, name, uid, object: &object, old };
        let made = rule(&asked, &managed, &world()).made;
        assert_eq!(made.as_ref().unwrap_or(&object), &expected);
        let later = Asked { operation: Operation::Update, ..asked };
        assert_eq!(rule(&later, &managed, &world()), Verdict::default(), "only as they are created");
    }

    #[test]
    fn jobs() {
        let plain = || json!({"metadata": {}, "spec": {"parallelism": 2}});
        let named = |queue: &str, spec: Value| json!({"metadata": {"labels": {QUEUE: queue}}, "spec": spec});
        let waits = json!({"parallelism": 2, "suspend": true});
        check(job, ("other", false), plain(), plain());
        check(job, ("other", false), named("q", json!({"parallelism": 2})), named("q", waits.clone()));
        check(
            job,
            ("other", false),
            named("q", json!({"suspend": false})),
            named("q", json!({"suspend": true})),
        );
        // The namespace has a queue for those that name none.
        check(job, ("team", false), plain(), named("default", waits.clone()));
        check(job, ("team", false), named("q", json!({"parallelism": 2})), named("q", waits.clone()));
        // Those without one wait too, where that is wanted, and where namespaces are managed.
        check(job, ("other", true), plain(), json!({"metadata": {}, "spec": waits}));
        check(job, ("kube-system", true), plain(), plain());
        check(job, ("kube-system", false), named("q", json!({})), named("q", json!({})));
    }

    #[test]
    fn pods() {
        let plain = || json!({"metadata": {"name": "p"}, "spec": {}});
        check(pod, ("team", false), plain(), plain());
        let gates = json!([{"name": "kueue.x-k8s.io/admission"}]);
        check(
            pod,
            ("team", false),
            json!({"metadata": {"labels": {QUEUE: "q"}}, "spec": {}}),
            json!({"metadata": {"labels": {QUEUE: "q", "kueue.x-k8s.io/managed": "true"},
                                "finalizers": ["kueue.x-k8s.io/managed"]}, "spec": {"schedulingGates": gates}}),
        );
        // Its job waits for it.
        let owned = json!({"metadata": {"labels": {QUEUE: "q"}, "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "controller": true}]}, "spec": {}});
        check(pod, ("team", false), owned.clone(), owned);
    }
}
