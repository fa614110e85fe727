//! LimitRanges. In: the ranges of a namespace and a pod. Out: the pod with default requests and limits, or what it
//! breaks. Pure.

use super::quantity;
use crate::meta;
use k8s_quantity::Quantity;
use serde_json::{Map, Value};

fn items<'a>(ranges: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    ranges
        .iter()
        .filter_map(|r| meta::at(r, "spec.limits").and_then(Value::as_array))
        .flatten()
        .filter(move |l| l["type"] == kind)
}

/// Fills in what containers leave out.
pub fn default(ranges: &[Value], pod: &mut Value) {
    if ranges.is_empty() {
        return;
    }
    let mut told: Vec<String> = Vec::new();
    for list in ["containers", "initContainers"] {
        let Some(containers) =
            pod.get_mut("spec").and_then(|s| s.get_mut(list)).and_then(Value::as_array_mut)
        else {
            continue;
        };
        for container in containers {
            let name = container["name"].as_str().unwrap_or_default().to_string();
            let what = if list == "containers" { "container" } else { "init container" };
            for item in items(ranges, "Container") {
                for (from, to, one) in
                    [("defaultRequest", "requests", "request"), ("default", "limits", "limit")]
                {
                    let Some(defaults) = item[from].as_object() else { continue };
                    let resources = meta::member(container, "resources");
                    let slot = resources.entry(to).or_insert_with(|| Value::Object(Map::new()));
                    let Some(slot) = slot.as_object_mut() else { continue };
                    for (resource, value) in defaults {
                        if !slot.contains_key(resource) {
                            slot.insert(resource.clone(), value.clone());
                            told.push(format!("{resource} {one} for {what} {name}"));
                        }
                    }
                }
            }
        }
    }
    if !told.is_empty() {
        let annotations = meta::edit(pod).entry("annotations").or_insert_with(|| Value::Object(Map::new()));
        if let Some(annotations) = annotations.as_object_mut() {
            annotations
                .insert(ANNOTATION.into(), format!("LimitRanger plugin set: {}", told.join("; ")).into());
        }
    }
}

/// Where the plugin says what it filled in.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// Everything in a pod that a range does not allow.
pub fn violations(ranges: &[Value], pod: &Value) -> Vec<String> {
    let mut found = Vec::new();
    if ranges.is_empty() {
        return found;
    }
    let containers =
        || ["containers", "initContainers"].into_iter().filter_map(|l| pod["spec"][l].as_array()).flatten();
    for item in items(ranges, "Container") {
        for container in containers() {
            let get = |part: &str, name: &str| quantity(&container["resources"][part][name]);
            check(item, "Container", &get, &mut found);
        }
    }
    for item in items(ranges, "Pod") {
        let get = |part: &str, name: &str| {
            let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
            containers.filter_map(|c| quantity(&c["resources"][part][name])).reduce(|a, b| a + b)
        };
        check(item, "Pod", &get, &mut found);
    }
    found
}

fn check(item: &Value, kind: &str, get: &dyn Fn(&str, &str) -> Option<Quantity>, found: &mut Vec<String>) {
    for (name, bound) in item["min"].as_object().into_iter().flatten() {
        let Some(min) = quantity(bound) else { continue };
        match get("requests", name) {
            None => found.push(format!("minimum {name} usage per {kind} is {min}.  No request is specified")),
            Some(request) if request < min => {
                found.push(format!("minimum {name} usage per {kind} is {min}, but request is {request}"));
            }
            Some(_) => {}
        }
    }
    for (name, bound) in item["max"].as_object().into_iter().flatten() {
        let Some(max) = quantity(bound) else { continue };
        match get("limits", name) {
            None => found.push(format!("maximum {name} usage per {kind} is {max}.  No limit is specified")),
            Some(limit) if limit > max => {
                found.push(format!("maximum {name} usage per {kind} is {max}, but limit is {limit}"));
            }
            Some(_) => {}
        }
    }
    for (name, bound) in item["maxLimitRequestRatio"].as_object().into_iter().flatten() {
        let (Some(ratio), Some(request), Some(limit)) =
            (quantity(bound), get("requests", name), get("limits", name))
        else {
            continue;
        };
        let (r, l, most) = (request.milli_value(), limit.milli_value(), ratio.milli_value());
        // limit / request > ratio, without a division: all three in thousandths.
        if r > 0 && i128::from(l) * 1000 > i128::from(r) * i128::from(most) {
            let actual = i128::from(l) * 1_000_000 / i128::from(r);
            found.push(format!(
                "{name} max limit to request ratio per {kind} is {ratio}, but provided ratio is {}.{:06}",
                actual / 1_000_000,
                actual % 1_000_000
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn range(limit: Value) -> Vec<Value> {
        vec![json!({"spec": {"limits": [limit]}})]
    }

    fn pod(resources: Value) -> Value {
        json!({"spec": {"containers": [{"name": "c", "resources": resources}]}})
    }

    #[test]
    fn defaults_fill_only_gaps() {
        let ranges =
            range(json!({"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "100m"}}));
        let mut p = pod(json!({"requests": {"cpu": "2"}}));
        default(&ranges, &mut p);
        assert_eq!(
            p["spec"]["containers"][0]["resources"],
            json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}})
        );
    }

    #[track_caller]
    fn check_text(limit: Value, resources: Value, expected: &[&str]) {
        assert_eq!(violations(&range(limit), &pod(resources)), expected);
    }

    #[test]
    fn bounds() {
        let min = json!({"type": "Container", "min": {"cpu": "500m"}});
        check_text(
            min.clone(),
            json!({}),
            &["minimum cpu usage per Container is 500m.  No request is specified"],
        );
        check_text(
            min.clone(),
            json!({"requests": {"cpu": "0.1"}}),
            &["minimum cpu usage per Container is 500m, but request is 100m"],
        );
        check_text(min, json!({"requests": {"cpu": "1"}}), &[]);
        check_text(
            json!({"type": "Pod", "max": {"memory": "1Gi"}}),
            json!({"limits": {"memory": "2Gi"}}),
            &["maximum memory usage per Pod is 1Gi, but limit is 2Gi"],
        );
        check_text(
            json!({"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}}),
            json!({"requests": {"cpu": "1"}, "limits": {"cpu": "3"}}),
            &["cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000"],
        );
    }
}
