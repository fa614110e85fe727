//! Field selectors: which labels a kind supports and what value an object has for each.
//!
//! In: a kind, an object in its stored form, and a label. Out: the text to compare a selector's value with. An absent
//! field has the value that the reference server gives it: usually empty, `false` or `0`.

use serde_json::Value;
use std::borrow::Cow;

use crate::{
    Kind,
    json::{flag, int, list, text},
};

/// A selector names a label that the kind has not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FieldLabelError {
    /// Most kinds.
    #[error("field label not supported: {0}")]
    NotSupported(String),
    /// Jobs word it differently.
    #[error("field label {0:?} not supported for Job")]
    NotSupportedForJob(String),
    /// Kinds that know only name and namespace.
    #[error("{0:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")]
    OnlyName(String),
}

/// Checks a label and gives the one that [`field_value`] knows: `spec.host` of a pod is `spec.nodeName`, and the labels
/// of `events.k8s.io` are those of core events, because these are stored.
pub fn field_label<'a>(kind: &Kind, label: &'a str) -> Result<Cow<'a, str>, FieldLabelError> {
    let is_plain = kind.field_labels.iter().all(|known| known.starts_with("metadata."));
    if is_plain && (label == "metadata.name" || label == "metadata.namespace") {
        return Ok(Cow::Borrowed(label));
    }
    if !kind.field_labels.contains(&label) {
        return Err(match kind.kind {
            "Job" => FieldLabelError::NotSupportedForJob(label.to_owned()),
            _ if is_plain => FieldLabelError::OnlyName(label.to_owned()),
            _ => FieldLabelError::NotSupported(label.to_owned()),
        });
    }
    Ok(match (kind.group, kind.kind, label) {
        ("", "Pod", "spec.host") => Cow::Borrowed("spec.nodeName"),
        ("events.k8s.io", _, "reportingController") => Cow::Borrowed("reportingComponent"),
        ("events.k8s.io", _, _) => Cow::Owned(label.replacen("regarding.", "involvedObject.", 1)),
        _ => Cow::Borrowed(label),
    })
}

/// The value of a stored object for a label, or nothing if the kind has no such label.
#[must_use]
pub fn field_value(kind: &Kind, object: &Value, label: &str) -> Option<String> {
    let label = field_label(kind, label).or_else(|error| {
        // The stored labels of events are also accepted as they are.
        if kind.group == "events.k8s.io" && label.starts_with("involvedObject.") {
            Ok(Cow::Borrowed(label))
        } else {
            Err(error)
        }
    });
    let label = label.ok()?;
    Some(match (kind.kind, &*label) {
        ("Pod", "spec.hostNetwork") => flag(object, "spec.hostNetwork").to_string(),
        ("Pod", "status.podIP") => {
            let first = list(object, "status.podIPs").first().map(|ip| text(ip, "ip")).unwrap_or_default();
            if first.is_empty() { text(object, "status.podIP").to_owned() } else { first.to_owned() }
        }
        // Accepted by the server, but it never sets a value for it.
        ("Pod", "status.podIPs") => String::new(),
        ("Node", "spec.unschedulable") => flag(object, "spec.unschedulable").to_string(),
        (_, "status.replicas") => int(object, "status.replicas").unwrap_or(0).to_string(),
        ("Job", "status.successful") => int(object, "status.succeeded").unwrap_or(0).to_string(),
        ("Event", "source") => {
            let component = text(object, "source.component");
            if component.is_empty() { text(object, "reportingComponent") } else { component }.to_owned()
        }
        (_, path) => text(object, path).to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{KubeVersion, find};

    #[track_caller]
    fn check(group: &str, plural: &str, object: &Value, label: &str, expected: Option<&str>) {
        let kind = find(KubeVersion::V1_36, group, "v1", plural).unwrap();
        assert_eq!(field_value(kind, object, label).as_deref(), expected);
    }

    #[test]
    fn values_and_what_stands_for_absent() {
        let pod = json!({"metadata": {"name": "a", "namespace": "n"}, "spec": {"nodeName": "x", "hostNetwork": true},
            "status": {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "::1"}]}});
        check("", "pods", &pod, "metadata.name", Some("a"));
        check("", "pods", &pod, "spec.nodeName", Some("x"));
        check("", "pods", &pod, "spec.host", Some("x"));
        check("", "pods", &pod, "spec.hostNetwork", Some("true"));
        check("", "pods", &pod, "status.podIP", Some("10.0.0.1"));
        check("", "pods", &pod, "status.phase", Some(""));
        check("", "pods", &json!({}), "spec.nodeName", Some(""));
        check("", "pods", &json!({}), "spec.hostNetwork", Some("false"));
        check("", "pods", &json!({}), "spec.containers", None);
        check("", "nodes", &json!({}), "spec.unschedulable", Some("false"));
        check("batch", "jobs", &json!({"status": {"succeeded": 3}}), "status.successful", Some("3"));
        check("apps", "replicasets", &json!({}), "status.replicas", Some("0"));
        check("", "secrets", &json!({"type": "Opaque"}), "type", Some("Opaque"));
        let event = json!({"involvedObject": {"name": "p"}, "reportingComponent": "k"});
        check("", "events", &event, "involvedObject.name", Some("p"));
        check("", "events", &event, "source", Some("k"));
        check("events.k8s.io", "events", &event, "regarding.name", Some("p"));
        check("events.k8s.io", "events", &event, "reportingController", Some("k"));
    }

    #[track_caller]
    fn refused(group: &str, plural: &str, label: &str, expected: &str) {
        let kind = find(KubeVersion::V1_36, group, "v1", plural).unwrap();
        assert_eq!(field_label(kind, label).unwrap_err().to_string(), expected);
    }

    #[test]
    fn unknown_labels() {
        refused("", "pods", "spec.x", "field label not supported: spec.x");
        refused("batch", "jobs", "spec.x", "field label \"spec.x\" not supported for Job");
        refused(
            "",
            "configmaps",
            "data",
            "\"data\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        );
    }
}
