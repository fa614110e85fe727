//! Conversion between the served and the stored version of an object.
//!
//! In: an object in one version. Out: the same object in the other. Two kinds are served in more than one version:
//! events (`events.k8s.io/v1`, stored as core `v1`) and horizontal pod autoscalers (`autoscaling/v1`, stored as `v2`).
//! What must stay true: an event, or an autoscaler in version 2, that goes there and back is unchanged.
//!
//! Version 1 of an autoscaler has only a target for processor use; everything else travels in annotations, in the
//! format of the reference server.

use serde_json::{Map, Value, json};

use crate::{
    Kind,
    json::{at, at_mut, child, entries, has, list, remove, set, text},
    normal,
};

/// The object in the stored version of its kind.
#[must_use]
pub fn to_storage(kind: &Kind, object: Value) -> Value {
    match (kind.group, kind.version, kind.kind) {
        ("events.k8s.io", _, "Event") => event_to_core(object),
        ("autoscaling", "v1", "HorizontalPodAutoscaler") => hpa_v1_to_v2(object),
        _ => object,
    }
}

/// The stored object in the version of `kind`.
#[must_use]
pub fn from_storage(kind: &Kind, object: Value) -> Value {
    let mut object = match (kind.group, kind.version, kind.kind) {
        ("events.k8s.io", _, "Event") => event_to_events(object),
        ("autoscaling", "v1", "HorizontalPodAutoscaler") => hpa_v2_to_v1(object),
        _ => return object,
    };
    // The versions differ in the zero values that they write out.
    crate::default(kind, &mut object);
    object
}

/// The names of a field in `events.k8s.io/v1` and in core `v1`.
const EVENT_FIELDS: &[(&str, &str)] = &[
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("reportingController", "reportingComponent"),
];

/// An `events.k8s.io/v1` event as a core event.
#[must_use]
pub fn event_to_core(mut event: Value) -> Value {
    for (new, old) in EVENT_FIELDS {
        rename(&mut event, new, old);
    }
    set_version(&mut event, "v1");
    event
}

/// A core event as an `events.k8s.io/v1` event.
#[must_use]
pub fn event_to_events(mut event: Value) -> Value {
    for (new, old) in EVENT_FIELDS {
        rename(&mut event, old, new);
    }
    set_version(&mut event, "events.k8s.io/v1");
    event
}

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const ROUND_TRIP: &[&str] = &[METRICS, CURRENT_METRICS, CONDITIONS, BEHAVIOR];

/// An `autoscaling/v2` autoscaler as `autoscaling/v1`.
#[must_use]
pub fn hpa_v2_to_v1(mut hpa: Value) -> Value {
    drop_annotations(&mut hpa);
    let mut annotations = Vec::new();
    if let Some(spec) = at_mut(&mut hpa, "spec") {
        if let Some(Value::Array(metrics)) = remove(spec, "metrics") {
            let (cpu, others): (Vec<_>, Vec<_>) = metrics.into_iter().partition(is_cpu_target);
            if let Some(cpu) = cpu.first() {
                set(
                    spec,
                    "targetCPUUtilizationPercentage",
                    at(cpu, "resource.target.averageUtilization").clone(),
                );
            }
            if !others.is_empty() {
                annotations
                    .push((METRICS, Value::Array(others.iter().map(|m| flatten(m, "target")).collect())));
            }
        }
        if let Some(behavior) = remove(spec, "behavior") {
            annotations.push((BEHAVIOR, respell(&behavior, capital)));
        }
    }
    if let Some(status) = at_mut(&mut hpa, "status") {
        let current = remove(status, "currentMetrics").unwrap_or_default();
        if let Some(metrics) = current.as_array().filter(|metrics| !metrics.is_empty()) {
            let cpu = metrics.iter().rfind(|metric| {
                text(metric, "resource.name") == "cpu" && has(metric, "resource.current.averageUtilization")
            });
            if let Some(cpu) = cpu {
                set(
                    status,
                    "currentCPUUtilizationPercentage",
                    at(cpu, "resource.current.averageUtilization").clone(),
                );
            }
            annotations.push((
                CURRENT_METRICS,
                Value::Array(metrics.iter().map(|m| flatten(m, "current")).collect()),
            ));
        }
        if let Some(conditions) = remove(status, "conditions")
            && conditions.as_array().is_some_and(|list| !list.is_empty())
        {
            annotations.push((CONDITIONS, conditions));
        }
    }
    if !annotations.is_empty()
        && let Some(meta) = child(&mut hpa, "metadata")
        && let Some(map) = child(meta, "annotations")
    {
        for (name, value) in annotations {
            set(map, name, value.to_string());
        }
    }
    set_version(&mut hpa, "autoscaling/v1");
    hpa
}

/// An `autoscaling/v1` autoscaler as `autoscaling/v2`.
#[must_use]
pub fn hpa_v1_to_v2(mut hpa: Value) -> Value {
    let saved = |name: &str| -> Option<Value> {
        let text = at(&hpa, "metadata.annotations").get(name)?.as_str()?;
        serde_json::from_str(text).ok()
    };
    let (metrics, current, conditions, behavior) =
        (saved(METRICS), saved(CURRENT_METRICS), saved(CONDITIONS), saved(BEHAVIOR));
    drop_annotations(&mut hpa);
    if let Some(spec) = at_mut(&mut hpa, "spec") {
        let mut all: Vec<Value> = metrics
            .iter()
            .filter_map(Value::as_array)
            .flatten()
            .map(|metric| nest(metric, "target"))
            .collect();
        let cpu = remove(spec, "targetCPUUtilizationPercentage").filter(|percent| !percent.is_null());
        let cpu = match cpu {
            Some(percent) => Some(percent),
            None if all.is_empty() => Some(json!(80)),
            None => None,
        };
        if let Some(percent) = cpu {
            let target = json!({"type": "Utilization", "averageUtilization": percent});
            all.push(json!({"type": "Resource", "resource": {"name": "cpu", "target": target}}));
        }
        set(spec, "metrics", all);
        if let Some(behavior) =
            behavior.filter(|behavior| behavior.as_object().is_some_and(|map| !map.is_empty()))
        {
            set(spec, "behavior", respell(&behavior, lower));
        }
    }
    if let Some(status) = at_mut(&mut hpa, "status") {
        let cpu = remove(status, "currentCPUUtilizationPercentage").filter(|percent| !percent.is_null());
        if let Some(metrics) = current.as_ref().and_then(Value::as_array) {
            set(status, "currentMetrics", metrics.iter().map(|m| nest(m, "current")).collect::<Vec<_>>());
        } else if let Some(percent) = cpu {
            let current = json!({ "averageUtilization": percent });
            set(
                status,
                "currentMetrics",
                json!([{"type": "Resource", "resource": {"name": "cpu", "current": current}}]),
            );
        }
        if let Some(conditions) = conditions.filter(Value::is_array) {
            set(status, "conditions", conditions);
        }
    }
    set_version(&mut hpa, "autoscaling/v2");
    hpa
}

fn is_cpu_target(metric: &Value) -> bool {
    text(metric, "type") == "Resource"
        && text(metric, "resource.name") == "cpu"
        && has(metric, "resource.target.averageUtilization")
}

/// The kinds of metric: field, and the names that version 1 gives to the average value, the value, the metric's name and
/// the metric's selector, in a target and in a status.
struct MetricNames {
    field: &'static str,
    average_value: [&'static str; 2],
    value: [&'static str; 2],
    selector: &'static str,
}

const METRIC_NAMES: &[MetricNames] = &[
    MetricNames {
        field: "resource",
        average_value: ["targetAverageValue", "currentAverageValue"],
        value: ["", ""],
        selector: "",
    },
    MetricNames {
        field: "containerResource",
        average_value: ["targetAverageValue", "currentAverageValue"],
        value: ["", ""],
        selector: "",
    },
    MetricNames {
        field: "pods",
        average_value: ["targetAverageValue", "currentAverageValue"],
        value: ["", ""],
        selector: "selector",
    },
    MetricNames {
        field: "object",
        average_value: ["averageValue", "averageValue"],
        value: ["targetValue", "currentValue"],
        selector: "selector",
    },
    MetricNames {
        field: "external",
        average_value: ["targetAverageValue", "currentAverageValue"],
        value: ["targetValue", "currentValue"],
        selector: "metricSelector",
    },
];

/// A metric of version 2 in the form of version 1: what is below `part` moves up under other names.
fn flatten(metric: &Value, part: &str) -> Value {
    let mut out = metric.clone();
    let column = usize::from(part == "current");
    for names in METRIC_NAMES {
        let Some(source) = at_mut(&mut out, names.field).filter(|source| source.is_object()) else {
            continue;
        };
        let values = remove(source, part).unwrap_or_default();
        let identity = remove(source, "metric").unwrap_or_default();
        let described = remove(source, "describedObject");
        let utilization = if column == 0 { "targetAverageUtilization" } else { "currentAverageUtilization" };
        move_into(source, utilization, at(&values, "averageUtilization"));
        move_into(
            source,
            names.average_value.get(column).copied().unwrap_or_default(),
            at(&values, "averageValue"),
        );
        move_into(source, names.value.get(column).copied().unwrap_or_default(), at(&values, "value"));
        move_into(source, "metricName", at(&identity, "name"));
        move_into(source, names.selector, at(&identity, "selector"));
        if let Some(described) = described {
            set(source, "target", described);
        }
        // Version 1 cannot leave this one out.
        if names.field == "object" && column == 0 && !has(source, "targetValue") {
            set(source, "targetValue", "0");
        }
    }
    out
}

/// The reverse of [`flatten`].
fn nest(metric: &Value, part: &str) -> Value {
    let mut out = metric.clone();
    let column = usize::from(part == "current");
    for names in METRIC_NAMES {
        let Some(source) = at_mut(&mut out, names.field).filter(|source| source.is_object()) else {
            continue;
        };
        let average_name = names.average_value.get(column).copied().unwrap_or_default();
        let value_name = names.value.get(column).copied().unwrap_or_default();
        let utilization = if column == 0 { "targetAverageUtilization" } else { "currentAverageUtilization" };
        let described = if names.field == "object" { remove(source, "target") } else { None };
        let take = |source: &mut Value, name: &str| {
            if name.is_empty() { None } else { remove(source, name) }.filter(|value| !value.is_null())
        };
        let utilization = take(source, utilization);
        let average = take(source, average_name);
        let value = take(source, value_name);
        let name = take(source, "metricName");
        let selector = take(source, names.selector);
        let is_zero =
            value.as_ref().and_then(normal::quantity).is_some_and(|q| q == k8s_quantity::Quantity::ZERO);
        let value = if average.is_some() && is_zero && column == 0 { None } else { value };
        let mut values = Map::new();
        if column == 0 {
            let kind = match (&utilization, &average, &value) {
                (Some(_), _, _) => "Utilization",
                (None, _, Some(_)) if names.field == "external" => "Value",
                (None, None, Some(_)) => "Value",
                _ => "AverageValue",
            };
            values.insert("type".to_owned(), json!(kind));
        }
        for (key, value) in [("averageUtilization", utilization), ("averageValue", average), ("value", value)]
        {
            if let Some(value) = value {
                values.insert(key.to_owned(), value);
            }
        }
        set(source, part, values);
        if name.is_some() || selector.is_some() {
            let mut identity = Map::new();
            identity.extend(name.map(|name| ("name".to_owned(), name)));
            identity.extend(selector.map(|selector| ("selector".to_owned(), selector)));
            set(source, "metric", identity);
        }
        if let Some(described) = described {
            set(source, "describedObject", described);
        }
    }
    out
}

fn move_into(target: &mut Value, key: &str, value: &Value) {
    if !key.is_empty() && !value.is_null() {
        set(target, key, value.clone());
    }
}

/// The same value with every field name respelled. Behaviours are three levels deep, so deeper ones are cut.
fn respell(value: &Value, spell: fn(&str) -> String) -> Value {
    fn walk(value: &Value, spell: fn(&str) -> String, depth: usize) -> Value {
        match value {
            Value::Object(map) if depth > 0 => {
                map.iter().map(|(key, value)| (spell(key), walk(value, spell, depth - 1))).collect()
            }
            Value::Array(items) if depth > 0 => {
                items.iter().map(|item| walk(item, spell, depth - 1)).collect()
            }
            Value::Object(_) | Value::Array(_) => Value::Null,
            scalar => scalar.clone(),
        }
    }
    walk(value, spell, 6)
}

fn capital(name: &str) -> String {
    let mut chars = name.chars();
    chars.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(chars).collect()
}

fn lower(name: &str) -> String {
    let mut chars = name.chars();
    chars.next().map(|first| first.to_ascii_lowercase()).into_iter().chain(chars).collect()
}

fn drop_annotations(hpa: &mut Value) {
    let Some(meta) = at_mut(hpa, "metadata") else { return };
    if let Some(annotations) = at_mut(meta, "annotations") {
        for name in ROUND_TRIP {
            remove(annotations, name);
        }
    }
    if has(meta, "annotations")
        && entries(meta, "annotations").next().is_none()
        && list(meta, "annotations").is_empty()
    {
        remove(meta, "annotations");
    }
}

fn rename(object: &mut Value, from: &str, to: &str) {
    if let Some(value) = remove(object, from) {
        set(object, to, value);
    }
}

fn set_version(object: &mut Value, version: &str) {
    if object.get("apiVersion").is_some() {
        set(object, "apiVersion", version);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_there_and_back() {
        let event = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"}, "eventTime": "t",
            "regarding": {"kind": "Pod", "name": "p"}, "note": "n", "reason": "r", "type": "Normal", "action": "a",
            "reportingController": "c", "reportingInstance": "i", "deprecatedCount": 3,
            "deprecatedSource": {"component": "x"}, "series": {"count": 2},
        });
        let core = event_to_core(event.clone());
        assert_eq!(
            core,
            json!({
                "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "eventTime": "t",
                "involvedObject": {"kind": "Pod", "name": "p"}, "message": "n", "reason": "r", "type": "Normal",
                "action": "a", "reportingComponent": "c", "reportingInstance": "i", "count": 3,
                "source": {"component": "x"}, "series": {"count": 2},
            })
        );
        assert_eq!(event_to_events(core), event);
    }

    #[test]
    fn version_1_of_an_autoscaler() {
        let v1 = json!({"apiVersion": "autoscaling/v1", "spec": {"targetCPUUtilizationPercentage": 50}, "status": {}});
        let v2 = hpa_v1_to_v2(v1.clone());
        assert_eq!(
            v2["spec"]["metrics"],
            json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}])
        );
        assert_eq!(hpa_v2_to_v1(v2), v1);
        let implied = hpa_v1_to_v2(json!({"spec": {}}));
        assert_eq!(implied["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 80);
    }

    #[track_caller]
    fn round_trip(spec: Value, status: Value) {
        let hpa = json!({"apiVersion": "autoscaling/v2", "metadata": {"name": "h"}, "spec": spec, "status": status});
        assert_eq!(hpa_v1_to_v2(hpa_v2_to_v1(hpa.clone())), hpa);
    }

    #[test]
    fn version_2_of_an_autoscaler_there_and_back() {
        let metric = json!({"name": "m", "selector": {"matchLabels": {"a": "b"}}});
        let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}});
        for other in [
            json!({"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}}),
            json!({"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "c",
                "target": {"type": "Utilization", "averageUtilization": 5}}}),
            json!({"type": "Pods", "pods": {"metric": metric, "target": {"type": "AverageValue", "averageValue": "1"}}}),
            json!({"type": "Object", "object": {"metric": metric, "describedObject": {"kind": "K", "name": "n"},
                "target": {"type": "Value", "value": "2"}}}),
            json!({"type": "Object", "object": {"metric": metric, "describedObject": {"kind": "K", "name": "n"},
                "target": {"type": "AverageValue", "averageValue": "2"}}}),
            json!({"type": "External", "external": {"metric": metric, "target": {"type": "Value", "value": "2"}}}),
            json!({"type": "External", "external": {"metric": metric, "target": {"type": "AverageValue", "averageValue": "2"}}}),
        ] {
            round_trip(json!({ "metrics": [other, cpu] }), json!({}));
        }
        let behavior = json!({"scaleDown": {"selectPolicy": "Max", "policies": [{"type": "Pods", "value": 1, "periodSeconds": 5}]}});
        round_trip(
            json!({"metrics": [cpu], "behavior": behavior}),
            json!({"conditions": [{"type": "AbleToScale", "status": "True"}]}),
        );
        round_trip(
            json!({ "metrics": [cpu] }),
            json!({"currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current":
                {"averageUtilization": 5, "averageValue": "1"}}}], "currentReplicas": 1}),
        );
    }
}
