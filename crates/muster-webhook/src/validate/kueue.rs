//! Kueue's kinds, and jobs and pods that wait in its queues: the rules are Kueue's, the answers are admission's.
//!
//! Hot path: every job and pod of the cluster passes here; what has nothing to do with Kueue costs a look at its labels.

use muster_kueue::validate::{self as rules, Findings};
use muster_kueue::{Managed, defaults::has_queue, keys};
use serde_json::Value;

use crate::request::{Asked, Operation};
use crate::verdict::{Verdict, quote};
use crate::world::World;

type Rules = fn(&Value, &Value) -> Findings;

fn judged(asked: &Asked<'_>, rules: Rules) -> Verdict {
    match asked.operation {
        Operation::Create | Operation::Update => rules(asked.object, asked.old).into(),
        Operation::Delete | Operation::Connect => Verdict::default(),
    }
}

fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("labels")?.get(key)?.as_str()
}

pub fn job(asked: &Asked<'_>, managed: &Managed, world: &dyn World) -> Verdict {
    let is_meant = managed.without_queue || has_queue(asked.object) || has_queue(asked.old);
    // A frequent mistake: the queue is a label.
    let is_misspelt = || asked.object["metadata"]["annotations"].get(keys::QUEUE).is_some();
    if !is_meant && !is_misspelt() {
        return Verdict::default();
    }
    let mut verdict = judged(asked, rules::job::job);
    missing_queue(asked, world, "job", &mut verdict);
    verdict
}

pub fn pod(asked: &Asked<'_>, managed: &Managed, world: &dyn World) -> Verdict {
    let is_kept = |pod: &Value| label(pod, keys::MANAGED).is_some();
    if !is_kept(asked.object) && !is_kept(asked.old) || !managed.has("pod") {
        return Verdict::default();
    }
    let mut verdict = judged(asked, rules::pod::pod);
    missing_queue(asked, world, "pod", &mut verdict);
    verdict
}

/// A queue that is not there may come later, so this is only said.
fn missing_queue(asked: &Asked<'_>, world: &dyn World, what: &str, verdict: &mut Verdict) {
    let Some(name) = label(asked.object, keys::QUEUE).filter(|name| !name.is_empty()) else { return };
    if asked.operation == Operation::Delete || label(asked.old, keys::QUEUE) == Some(name) {
        return;
    }
    if verdict.allows() && world.has_local_queue(asked.namespace, name) == Some(false) {
        verdict.warn(
            format_args!("metadata.labels[{}]", keys::QUEUE),
            format_args!(
                "there is no LocalQueue {} in the namespace {}; the {what} waits until there is one",
                quote(name),
                asked.namespace
            ),
        );
    }
}

pub fn cluster_queue(asked: &Asked<'_>) -> Verdict {
    judged(asked, rules::queue::cluster_queue)
}

pub fn flavor(asked: &Asked<'_>) -> Verdict {
    judged(asked, rules::queue::flavor)
}

pub fn local_queue(asked: &Asked<'_>) -> Verdict {
    judged(asked, rules::queue::local_queue)
}

pub fn cohort(asked: &Asked<'_>) -> Verdict {
    judged(asked, rules::queue::cohort)
}

pub fn check(asked: &Asked<'_>) -> Verdict {
    judged(asked, rules::queue::check)
}

pub fn workload(asked: &Asked<'_>) -> Verdict {
    // Most writes are of finalizers and labels.
    if asked.operation == Operation::Update && asked.object["spec"] == asked.old["spec"] {
        return Verdict::default();
    }
    judged(asked, rules::workload::workload)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::world::Given;

    #[track_caller]
    fn check(
        rule: fn(&Asked<'_>, &Managed, &dyn World) -> Verdict,
        object: Value,
        old: Value,
        expected: &str,
    ) {
        let world = Given { local_queues: Some([("ns".into(), "q".into())].into()), ..Given::default() };
        let operation = if old.is_null() { Operation::Create } else { Operation::Update };
        let asked = Asked { operation, namespace: "ns", name: "x", uid: "", object: &object, old: &old };
        let verdict = rule(&asked, &Managed::default(), &world);
        let said: Vec<String> =
            verdict.errors.iter().map(ToString::to_string).chain(verdict.warnings.clone()).collect();
        assert_eq!(said.join("; "), expected);
    }

    fn with(labels: Value, annotations: Value) -> Value {
        json!({"metadata": {"labels": labels, "annotations": annotations}, "spec": {}})
    }

    #[test]
    fn jobs() {
        // Nobody's business.
        check(job, with(json!({}), json!({keys::MIN_PARALLELISM: "x"})), Value::Null, "");
        check(job, with(json!({keys::QUEUE: "q"}), json!({})), Value::Null, "");
        check(
            job,
            with(json!({keys::QUEUE: "typo"}), json!({})),
            Value::Null,
            "metadata.labels[kueue.x-k8s.io/queue-name]: there is no LocalQueue \"typo\" in the namespace ns; \
             the job waits until there is one",
        );
        check(
            job,
            with(json!({keys::QUEUE: "typo"}), json!({})),
            with(json!({keys::QUEUE: "typo"}), json!({})),
            "",
        );
        check(
            job,
            with(json!({}), json!({keys::QUEUE: "q"})),
            Value::Null,
            "metadata.annotations[kueue.x-k8s.io/queue-name]: has no effect; write it as a label",
        );
        check(
            job,
            with(json!({}), json!({})),
            with(json!({keys::QUEUE: "q"}), json!({})),
            "metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value: null: field is immutable",
        );
    }

    #[test]
    fn pods() {
        check(pod, with(json!({keys::GROUP_NAME: "g"}), json!({})), Value::Null, "");
        let kept = json!({keys::QUEUE: "q", keys::MANAGED: "true", keys::GROUP_NAME: "g"});
        check(pod, with(kept.clone(), json!({keys::GROUP_COUNT: "2"})), Value::Null, "");
        check(
            pod,
            with(kept, json!({keys::GROUP_COUNT: "two"})),
            Value::Null,
            "metadata.annotations[kueue.x-k8s.io/pod-group-total-count]: Invalid value: \"two\": must be a whole number of at least 1",
        );
    }
}
