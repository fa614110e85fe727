//! The Binding itself.
//!
//! Hot path: guarded by the measurement in `tests/it/speed.rs`. In: an assignment. Out: the one request that puts the pod
//! on its node, its body built as text. Must stay true: a lost answer is no lost binding: whoever finds the pod on the
//! node that was meant calls it success.

use std::fmt::Write;

use muster_runtime::common::Pod;
use muster_runtime::object::Meta;
use muster_runtime::{Api, ApiError, Object};

use crate::assignment::Assignment;
use crate::error::{BindError, Bound, text_of};

/// Posts the Binding, once.
pub(crate) async fn post(api: &Api, assignment: &Assignment) -> Result<Bound, BindError> {
    let key = &assignment.pod;
    let path = Pod::RESOURCE.path(&key.namespace, &key.name, "binding");
    match api.post_text(&path, body(assignment)).await {
        Ok(()) => Ok(Bound { already: false }),
        Err(error) if error.not_found() => Err(BindError::Gone),
        Err(error) if error.code() == 409 => clash(api, assignment, error).await,
        Err(error) => Err(error.into()),
    }
}

/// A 409 has many reasons; the pod tells which.
async fn clash(api: &Api, assignment: &Assignment, error: ApiError) -> Result<Bound, BindError> {
    let pod: Pod = match api.get(&assignment.pod).await {
        Ok(pod) => pod,
        Err(error) if error.not_found() => return Err(BindError::Gone),
        Err(error) => return Err(error.into()),
    };
    let phase = pod.status.phase.as_str();
    if let Some(end) = standing(&pod.metadata, &pod.spec.node_name, phase, assignment) {
        return end;
    }
    if !pod.spec.scheduling_gates.is_empty() {
        return Err(BindError::Refused { text: text_of(&error) });
    }
    Err(BindError::Retry { text: text_of(&error), after: error.retry_after() })
}

/// What the pod as it is says about the assignment; `None` if it can still be bound.
pub(crate) fn standing(
    meta: &Meta,
    node: &str,
    phase: &str,
    assignment: &Assignment,
) -> Option<Result<Bound, BindError>> {
    if !assignment.pod_uid.is_empty() && meta.uid != assignment.pod_uid {
        return Some(Err(BindError::Gone));
    }
    if node == assignment.node {
        return Some(Ok(Bound { already: true }));
    }
    if !node.is_empty() {
        return Some(Err(BindError::Elsewhere { node: node.to_owned() }));
    }
    (meta.deleting() || matches!(phase, "Succeeded" | "Failed")).then_some(Err(BindError::Gone))
}

/// The body of the Binding. What the pod gets besides its node goes along as annotations and as a label, which the server
/// copies to the pod in the same write: annotations always did so, labels since Kubernetes 1.35.
fn body(assignment: &Assignment) -> String {
    let mut out = String::with_capacity(320);
    out.push_str(r#"{"apiVersion":"v1","kind":"Binding","metadata":{"name":"#);
    text(&mut out, &assignment.pod.name);
    out.push_str(r#","namespace":"#);
    text(&mut out, &assignment.pod.namespace);
    if !assignment.pod_uid.is_empty() {
        out.push_str(r#","uid":"#);
        text(&mut out, &assignment.pod_uid);
    }
    if let Some((key, value)) = &assignment.pool {
        out.push_str(r#","labels":{"#);
        text(&mut out, key);
        out.push(':');
        text(&mut out, value);
        out.push('}');
    }
    let annotations = assignment.annotations();
    if !annotations.is_empty() {
        out.push_str(r#","annotations":{"#);
        for (i, (key, value)) in annotations.iter().enumerate() {
            out.push_str(if i == 0 { "" } else { "," });
            text(&mut out, key);
            out.push(':');
            text(&mut out, value);
        }
        out.push('}');
    }
    out.push_str(r#"},"target":{"apiVersion":"v1","kind":"Node","name":"#);
    text(&mut out, &assignment.node);
    out.push_str("}}");
    out
}

/// A JSON string. Names need no escapes, and nearly everything here is a name.
fn text(out: &mut String, value: &str) {
    out.push('"');
    if value.bytes().all(|b| b >= b' ' && b != b'"' && b != b'\\') {
        out.push_str(value);
    } else {
        for c in value.chars() {
            match c {
                '"' | '\\' => out.extend(['\\', c]),
                c if c < ' ' => {
                    // Writing to a string cannot fail.
                    let _ = write!(out, "\\u{:04x}", u32::from(c));
                }
                c => out.push(c),
            }
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use muster_runtime::Key;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::assignment::Received;

    fn assignment() -> Assignment {
        Assignment {
            pod: Key::new("ns", "p"),
            pod_uid: "u".into(),
            node: "n".into(),
            ..Assignment::default()
        }
    }

    #[test]
    fn bodies() {
        let read = |a: &Assignment| serde_json::from_str::<Value>(&body(a)).unwrap();
        let target = json!({"apiVersion": "v1", "kind": "Node", "name": "n"});
        let plain = assignment();
        assert_eq!(
            read(&plain),
            json!({"apiVersion": "v1", "kind": "Binding", "target": target,
                "metadata": {"name": "p", "namespace": "ns", "uid": "u"}})
        );
        let rich = Assignment {
            kind: Received::Fraction,
            zones: Some(json!([{"zone": "0"}])),
            pod_uid: String::new(),
            pool: Some(("pool".into(), "blue".into())),
            ..plain
        };
        assert_eq!(
            read(&rich)["metadata"],
            json!({"name": "p", "namespace": "ns", "labels": {"pool": "blue"}, "annotations": {
                "received-resource-type": "Fraction",
                "kai.scheduler/numa-placement-predicted": "[{\"zone\":\"0\"}]",
            }})
        );
    }

    #[track_caller]
    fn check_standing(pod: Value, expected: &str) {
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let phase = &pod.status.phase;
        let shown = match standing(&pod.metadata, &pod.spec.node_name, phase, &assignment()) {
            None => "free".to_owned(),
            Some(Ok(_)) => "bound".to_owned(),
            Some(Err(error)) => error.to_string(),
        };
        assert_eq!(shown, expected);
    }

    #[test]
    fn what_a_pod_says() {
        let gone = "the pod is gone";
        check_standing(json!({"metadata": {"uid": "u"}}), "free");
        check_standing(json!({"metadata": {"uid": "other"}}), gone);
        check_standing(json!({"metadata": {"uid": "other"}, "spec": {"nodeName": "n"}}), gone);
        check_standing(json!({"metadata": {"uid": "u"}, "spec": {"nodeName": "n"}}), "bound");
        check_standing(
            json!({"metadata": {"uid": "u"}, "spec": {"nodeName": "m"}}),
            "the pod is already bound to node m",
        );
        check_standing(json!({"metadata": {"uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"}}), gone);
        check_standing(json!({"metadata": {"uid": "u"}, "status": {"phase": "Failed"}}), gone);
    }

    proptest! {
        #[test]
        fn any_text_is_json(value in ".*") {
            let mut out = String::new();
            text(&mut out, &value);
            prop_assert_eq!(serde_json::from_str::<String>(&out).unwrap(), value);
        }
    }
}
