//! Workloads.

use serde_json::Value;

use super::{Findings, changed, invalid, is_label_key, is_label_value};
use crate::keys::condition as kind;
use crate::object::{at, holds, int, list, text};
use crate::podset::{set_name, shape};

pub fn workload(object: &Value, old: &Value) -> Findings {
    let mut out = changed(object, old, |object, out| {
        let sets = list(object, &["spec", "podSets"]);
        for (i, set) in sets.iter().enumerate() {
            pod_set(set, &format!("spec.podSets[{i}]"), out);
        }
        let n_partial = sets.iter().filter(|set| !at(set, &["minCount"]).is_null()).count();
        if n_partial > 1 {
            out.refuse("spec.podSets", "Invalid value: at most one podSet can use minCount");
        }
        if n_partial > 0 && is_elastic(object) {
            out.refuse(
                "spec.podSets",
                format!(
                    "Invalid value: minCount cannot be used with the annotation {}",
                    crate::keys::ELASTIC
                ),
            );
        }
        if !text(object, &["spec", "priorityClassRef", "name"]).is_empty()
            && at(object, &["spec", "priority"]).is_null()
        {
            out.refuse(
                "spec.priority",
                "Invalid value: null: priority should not be nil when priorityClassRef is set",
            );
        }
        status(object, out);
    });
    if old.is_object() {
        fixed(object, old, &mut out);
    }
    out
}

fn is_elastic(object: &Value) -> bool {
    text(object, &["metadata", "annotations", crate::keys::ELASTIC]) == "true"
}

/// Where pods want to be together.
fn topology(set: &Value, field: &str, out: &mut Findings) {
    let request = at(set, &["topologyRequest"]);
    let modes = ["required", "preferred", "unconstrained"];
    if modes.iter().filter(|mode| !at(request, &[mode]).is_null()).count() > 1 {
        invalid(out, field, request, "write one of required, preferred and unconstrained");
    }
    let (level, size) = (at(request, &["podSetSliceRequiredTopology"]), at(request, &["podSetSliceSize"]));
    let layers = at(request, &["podsetSliceRequiredTopologyConstraints"]);
    if level.is_null() != size.is_null() {
        invalid(out, field, request, "write podSetSliceRequiredTopology and podSetSliceSize together");
    }
    if !level.is_null() && !layers.is_null() {
        let field = format!("{field}.podsetSliceRequiredTopologyConstraints");
        out.refuse(field, "Forbidden: may not be set when podSetSliceRequiredTopology is specified");
    }
    let count = int(set, &["count"]).unwrap_or(1);
    if size.as_i64().is_some_and(|size| size > count) {
        let why = format!("must not be greater than pod set count {count}");
        invalid(out, format!("{field}.podSetSliceSize"), size, why);
    }
}

/// Labels and annotations that pods will have.
fn metadata(set: &Value, field: &str, out: &mut Findings) {
    let entries = |what: &str| at(set, &["template", "metadata", what]).as_object().into_iter().flatten();
    for what in ["labels", "annotations"] {
        for (key, value) in entries(what) {
            let field = format!("{field}.template.metadata.{what}");
            if !is_label_key(key) {
                invalid(out, field, &Value::String(key.clone()), "is no key of a label or an annotation");
            } else if what == "labels" && value.as_str().is_some_and(|value| !is_label_value(value)) {
                invalid(out, format!("{field}[{key}]"), value, "is no value of a label");
            }
        }
    }
}

fn pod_set(set: &Value, field: &str, out: &mut Findings) {
    topology(set, &format!("{field}.topologyRequest"), out);
    metadata(set, field, out);
    let count = int(set, &["count"]).unwrap_or(1);
    if int(set, &["minCount"]).is_some_and(|min| min > count) {
        invalid(
            out,
            format!("{field}.minCount"),
            at(set, &["minCount"]),
            format!("should be positive and less or equal to {count}"),
        );
    }
    for list_name in ["initContainers", "containers"] {
        for (i, container) in list(set, &["template", "spec", list_name]).iter().enumerate() {
            let requests = at(container, &["resources", "requests"]).as_object();
            for (name, amount) in requests.into_iter().flatten() {
                let field = format!("{field}.template.spec.{list_name}[{i}].resources.requests[{name}]");
                if name == "pods" {
                    invalid(out, field, amount, "the key is reserved for internal kueue use");
                } else if amount.as_str().is_some_and(|text| text.starts_with('-'))
                    || amount.as_i64().is_some_and(|n| n < 0)
                {
                    invalid(out, field, amount, "must be greater than or equal to 0");
                }
            }
        }
    }
}

fn status(object: &Value, out: &mut Findings) {
    let sets = list(object, &["spec", "podSets"]);
    let set = |name: &str| sets.iter().find(|set| set_name(set) == name);
    for (i, assigned) in list(object, &["status", "admission", "podSetAssignments"]).iter().enumerate() {
        if set(set_name(assigned)).is_none() {
            out.refuse(
                format!("status.admission.podSetAssignments[{i}].name"),
                format!("Not found: {:?}", set_name(assigned)),
            );
        }
    }
    for (i, done) in list(object, &["status", "reclaimablePods"]).iter().enumerate() {
        let field = format!("status.reclaimablePods[{i}]");
        match set(text(done, &["name"])) {
            None => {
                out.refuse(format!("{field}.name"), format!("Unsupported value: {}", at(done, &["name"])))
            }
            Some(set) => {
                let most = int(set, &["count"]).unwrap_or(1);
                if int(done, &["count"]).is_some_and(|n| n > most) {
                    invalid(
                        out,
                        format!("{field}.count"),
                        at(done, &["count"]),
                        format!("should be less or equal to {most}"),
                    );
                }
            }
        }
    }
}

/// What must stay while quota is held.
fn fixed(object: &Value, old: &Value, out: &mut Findings) {
    let held = |object: &Value| holds(at(object, &["status"]), kind::QUOTA_RESERVED);
    if !(held(old) && held(object)) {
        return;
    }
    // An elastic workload may shrink; what grows is a new one.
    let elastic = is_elastic(object);
    let shapes = |object: &Value| -> Vec<Value> {
        list(object, &["spec", "podSets"]).iter().map(|set| shape(set, !elastic)).collect()
    };
    if shapes(object) != shapes(old) {
        out.refuse("spec.podSets", "Invalid value: field is immutable");
    } else if elastic {
        let sets = list(object, &["spec", "podSets"]).iter().zip(list(old, &["spec", "podSets"]));
        for (i, (new, old)) in sets.enumerate() {
            let most = int(old, &["count"]).unwrap_or(1);
            if int(new, &["count"]).unwrap_or(1) > most {
                let field = format!("spec.podSets[{i}].count");
                let why =
                    format!("must not grow beyond {most} while quota is held; it grows by a new Workload");
                invalid(out, field, at(new, &["count"]), why);
            }
        }
    }
    if text(object, &["spec", "queueName"]) != text(old, &["spec", "queueName"]) {
        invalid(out, "spec.queueName", at(object, &["spec", "queueName"]), "field is immutable");
    }
    let queue = |object: &Value| text(object, &["status", "admission", "clusterQueue"]).to_owned();
    if queue(old) != queue(object) && !queue(old).is_empty() && !queue(object).is_empty() {
        out.refuse("status.admission", "Invalid value: field is immutable");
    }
    // What was given back is not taken again.
    for (i, before) in list(old, &["status", "reclaimablePods"]).iter().enumerate() {
        let name = text(before, &["name"]);
        let now = list(object, &["status", "reclaimablePods"]).iter().find(|r| text(r, &["name"]) == name);
        let n = int(before, &["count"]).unwrap_or(0);
        if now.and_then(|r| int(r, &["count"])).unwrap_or(0) < n && n > 0 {
            out.refuse(
                format!("status.reclaimablePods[{i}].count"),
                format!("Forbidden: cannot be less than {n}"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(object: Value, old: Value, expected: &str) {
        let texts: Vec<String> = workload(&object, &old).errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts.join("; "), expected);
    }

    #[test]
    fn workloads() {
        let with = |sets: Value| json!({"spec": {"podSets": sets}});
        check(with(json!([{"name": "a", "count": 3, "minCount": 2}])), Value::Null, "");
        check(
            with(json!([{"count": 3, "minCount": 4}, {"name": "b", "count": 3, "minCount": 1}])),
            Value::Null,
            "spec.podSets[0].minCount: Invalid value: 4: should be positive and less or equal to 3; \
             spec.podSets: Invalid value: at most one podSet can use minCount",
        );
        let requests = |resource: &str, amount: &str| {
            with(
                json!([{"template": {"spec": {"containers": [{"resources": {"requests": {resource: amount}}}]}}}]),
            )
        };
        check(
            requests("pods", "1"),
            Value::Null,
            "spec.podSets[0].template.spec.containers[0].resources.requests[pods]: Invalid value: \"1\": the key is reserved for internal kueue use",
        );
        check(
            requests("cpu", "-1"),
            Value::Null,
            "spec.podSets[0].template.spec.containers[0].resources.requests[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
        );
    }

    #[test]
    fn where_pods_want_to_be() {
        let with = |request: Value| json!({"spec": {"podSets": [{"count": 4, "topologyRequest": request}]}});
        check(
            with(json!({"required": "rack", "podSetSliceRequiredTopology": "host", "podSetSliceSize": 2})),
            Value::Null,
            "",
        );
        check(
            with(json!({"required": "rack", "unconstrained": true})),
            Value::Null,
            "spec.podSets[0].topologyRequest: Invalid value: {\"required\":\"rack\",\"unconstrained\":true}: write one of required, preferred and unconstrained",
        );
        check(
            with(json!({"podSetSliceRequiredTopology": "host", "podSetSliceSize": 8})),
            Value::Null,
            "spec.podSets[0].topologyRequest.podSetSliceSize: Invalid value: 8: must not be greater than pod set count 4",
        );
        let labelled =
            json!({"spec": {"podSets": [{"template": {"metadata": {"labels": {"a b": "x", "a": "b c"}}}}]}});
        check(
            labelled,
            Value::Null,
            "spec.podSets[0].template.metadata.labels[a]: Invalid value: \"b c\": is no value of a label; \
             spec.podSets[0].template.metadata.labels: Invalid value: \"a b\": is no key of a label or an annotation",
        );
    }

    #[test]
    fn an_elastic_one_may_shrink() {
        let with = |count: i64| {
            json!({"metadata": {"annotations": {crate::keys::ELASTIC: "true"}},
                   "spec": {"podSets": [{"name": "main", "count": count}]},
                   "status": {"conditions": [{"type": "QuotaReserved", "status": "True"}]}})
        };
        check(with(2), with(3), "");
        check(
            with(4),
            with(3),
            "spec.podSets[0].count: Invalid value: 4: must not grow beyond 3 while quota is held; it grows by a new Workload",
        );
        let mut partial = with(4);
        partial["spec"]["podSets"][0]["minCount"] = json!(2);
        check(
            partial,
            Value::Null,
            "spec.podSets: Invalid value: minCount cannot be used with the annotation kueue.x-k8s.io/elastic-job",
        );
    }

    #[test]
    fn what_has_quota_stays_as_it_is() {
        let with = |queue: &str, count: i64, done: i64| {
            json!({"spec": {"queueName": queue, "podSets": [{"name": "main", "count": count}]},
                   "status": {"conditions": [{"type": "QuotaReserved", "status": "True"}],
                              "reclaimablePods": [{"name": "main", "count": done}]}})
        };
        check(with("q", 3, 1), with("q", 3, 0), "");
        check(with("r", 3, 1), with("q", 3, 1), "spec.queueName: Invalid value: \"r\": field is immutable");
        check(with("q", 4, 1), with("q", 3, 1), "spec.podSets: Invalid value: field is immutable");
        check(
            with("q", 3, 0),
            with("q", 3, 1),
            "status.reclaimablePods[0].count: Forbidden: cannot be less than 1",
        );
        check(
            with("q", 3, 5),
            with("q", 3, 1),
            "status.reclaimablePods[0].count: Invalid value: 5: should be less or equal to 3",
        );
    }
}
