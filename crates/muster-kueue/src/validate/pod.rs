//! Plain pods that wait in queues.

use serde_json::Value;

use super::{Findings, changed, invalid, is_subdomain};
use crate::keys;
use crate::object::{at, text};

pub fn pod(object: &Value, old: &Value) -> Findings {
    let mut out = changed(object, old, |object, out| {
        let label = |key: &str| at(object, &["metadata", "labels", key]);
        let annotation = |key: &str| at(object, &["metadata", "annotations", key]);
        let managed = label(keys::MANAGED);
        if managed.as_str().is_some_and(|value| value != "true") {
            out.refuse(
                format!("metadata.labels[{}]", keys::MANAGED),
                "Forbidden: managed label value can only be 'true'",
            );
        }
        let queue = label(keys::QUEUE);
        if queue.as_str().is_some_and(|name| !name.is_empty() && !is_subdomain(name)) {
            invalid(out, format!("metadata.labels[{}]", keys::QUEUE), queue, "is no name of a LocalQueue");
        }
        let (group, count) = (label(keys::GROUP_NAME), annotation(keys::GROUP_COUNT));
        match (group.as_str(), count.as_str()) {
            (Some(_), None) => out.refuse(
                format!("metadata.annotations[{}]", keys::GROUP_COUNT),
                format!(
                    "Required value: both the '{}' annotation and the '{}' label should be set",
                    keys::GROUP_COUNT,
                    keys::GROUP_NAME
                ),
            ),
            (None, Some(_)) => out.refuse(
                format!("metadata.labels[{}]", keys::GROUP_NAME),
                format!(
                    "Required value: both the '{}' annotation and the '{}' label should be set",
                    keys::GROUP_COUNT,
                    keys::GROUP_NAME
                ),
            ),
            (Some(name), Some(n)) => {
                if !is_subdomain(name) {
                    invalid(out, format!("metadata.labels[{}]", keys::GROUP_NAME), group, "is no name");
                }
                if n.parse::<i32>().is_ok_and(|n| n < 1) || n.parse::<i32>().is_err() {
                    invalid(
                        out,
                        format!("metadata.annotations[{}]", keys::GROUP_COUNT),
                        count,
                        "must be a whole number of at least 1",
                    );
                }
            }
            (None, None) => {}
        }
        if group.is_null() {
            for key in [keys::GROUP_FAST, keys::GROUP_SERVING, keys::RETRIABLE] {
                if annotation(key).is_string() {
                    out.warnings.push(format!(
                        "metadata.annotations[{key}]: has no effect without the label {}",
                        keys::GROUP_NAME
                    ));
                }
            }
        }
        let prebuilt = label(keys::PREBUILT);
        if group.is_string() && prebuilt.is_string() && prebuilt != group {
            invalid(
                out,
                format!("metadata.labels[{}]", keys::PREBUILT),
                prebuilt,
                "must be the name of the pod group",
            );
        }
        let n_pods = count.as_str().and_then(|n| n.parse().ok()).or(group.is_null().then_some(1));
        super::job::topology(object, "metadata.annotations", n_pods, out);
    });
    if old.is_object() && text(old, &["metadata", "labels", keys::MANAGED]) == "true" {
        for key in [keys::GROUP_NAME, keys::MANAGED] {
            let value = |object: &Value| text(object, &["metadata", "labels", key]).to_owned();
            if value(object) != value(old) {
                invalid(
                    &mut out,
                    format!("metadata.labels[{key}]"),
                    at(object, &["metadata", "labels", key]),
                    "field is immutable",
                );
            }
        }
        // Whoever waits no longer keeps its queue.
        let gated = |object: &Value| {
            let gates = crate::object::list(object, &["spec", "schedulingGates"]);
            gates.iter().any(|g| text(g, &["name"]) == keys::ADMISSION_GATE)
        };
        let queue = |object: &Value| text(object, &["metadata", "labels", keys::QUEUE]).to_owned();
        if !gated(old) && queue(object) != queue(old) {
            invalid(
                &mut out,
                format!("metadata.labels[{}]", keys::QUEUE),
                at(object, &["metadata", "labels", keys::QUEUE]),
                "field is immutable",
            );
        }
        let retriable =
            |object: &Value| text(object, &["metadata", "annotations", keys::RETRIABLE]) != "false";
        if !retriable(old) && retriable(object) {
            out.refuse(
                format!("metadata.annotations[{}]", keys::RETRIABLE),
                "Forbidden: unretriable pod group can't be converted to retriable",
            );
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(object: Value, old: Value, expected: &str) {
        let texts: Vec<String> = pod(&object, &old).errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts.join("; "), expected);
    }

    fn with(labels: Value, annotations: Value) -> Value {
        json!({"metadata": {"labels": labels, "annotations": annotations}, "spec": {}})
    }

    #[test]
    fn pods() {
        check(with(json!({keys::QUEUE: "q"}), json!({})), Value::Null, "");
        check(with(json!({keys::GROUP_NAME: "g"}), json!({keys::GROUP_COUNT: "2"})), Value::Null, "");
        check(
            with(json!({keys::MANAGED: "yes"}), json!({})),
            Value::Null,
            "metadata.labels[kueue.x-k8s.io/managed]: Forbidden: managed label value can only be 'true'",
        );
        check(
            with(json!({keys::GROUP_NAME: "g"}), json!({})),
            Value::Null,
            "metadata.annotations[kueue.x-k8s.io/pod-group-total-count]: Required value: both the \
             'kueue.x-k8s.io/pod-group-total-count' annotation and the 'kueue.x-k8s.io/pod-group-name' label should be set",
        );
        check(
            with(json!({keys::GROUP_NAME: "g"}), json!({keys::GROUP_COUNT: "none"})),
            Value::Null,
            "metadata.annotations[kueue.x-k8s.io/pod-group-total-count]: Invalid value: \"none\": must be a whole number of at least 1",
        );
        let found = pod(&with(json!({keys::QUEUE: "q"}), json!({keys::RETRIABLE: "false"})), &Value::Null);
        assert_eq!(
            found.warnings,
            [
                "metadata.annotations[kueue.x-k8s.io/retriable-in-group]: has no effect without the label kueue.x-k8s.io/pod-group-name"
            ]
        );
        check(
            with(json!({keys::GROUP_NAME: "g", keys::PREBUILT: "w"}), json!({keys::GROUP_COUNT: "2"})),
            Value::Null,
            "metadata.labels[kueue.x-k8s.io/prebuilt-workload-name]: Invalid value: \"w\": must be the name of the pod group",
        );
        check(
            with(json!({keys::QUEUE: "q"}), json!({keys::SLICE_TOPOLOGY: "rack", keys::SLICE_SIZE: "2"})),
            Value::Null,
            "metadata.annotations[kueue.x-k8s.io/podset-slice-size]: Invalid value: \"2\": must not be greater than pod set count 1",
        );
        let managed = |group: &str| {
            with(json!({keys::MANAGED: "true", keys::GROUP_NAME: group}), json!({keys::GROUP_COUNT: "2"}))
        };
        check(
            managed("b"),
            managed("a"),
            "metadata.labels[kueue.x-k8s.io/pod-group-name]: Invalid value: \"b\": field is immutable",
        );
    }
}
