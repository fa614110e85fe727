//! Pod sets: from a job's template into a workload, and from an admission back into the template.
//!
//! In: pod templates as JSON, and what a workload was given. Out: pod sets for a workload's spec; [`Info`], what an admission adds to the pods of a
//! set; templates with that added, or as they were before. Must stay true: adding and restoring undo each other; what two sides want differently is
//! said and not decided.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::keys;
use crate::object::{Workload, at, int, list, text};

/// What an admission adds to the pods of a set.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Info {
    pub name: String,
    pub count: i64,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub node_selector: BTreeMap<String, String>,
    pub tolerations: Vec<Value>,
    pub gates: Vec<String>,
}

/// Two sides want a key to have different values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Clash {
    #[error(
        "invalid admission check PodSetUpdate: conflict for {what}: conflict for key={key}, value1={ours}, value2={theirs}"
    )]
    Key { what: &'static str, key: String, ours: String, theirs: String },
    #[error("flavor {0} is not known")]
    NoFlavor(String),
    #[error("the admission has no pod set {0}")]
    NoSet(String),
}

/// A pod set of a workload.
pub fn pod_set(
    name: &str,
    count: i64,
    template: &Value,
    min_count: Option<i64>,
    index_label: Option<&str>,
) -> Value {
    let mut template = template.clone();
    // What the API server adds to find the pods again does not belong to the request.
    if let Some(Value::Object(labels)) = template.pointer_mut("/metadata/labels") {
        for own in [
            "controller-uid",
            "job-name",
            "batch.kubernetes.io/controller-uid",
            "batch.kubernetes.io/job-name",
        ] {
            labels.remove(own);
        }
    }
    if let Some(metadata) = template.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("creationTimestamp");
    }
    let request = topology_request(&template, index_label);
    let mut set = json!({"name": name, "count": count, "template": template});
    if let Some(min) = min_count {
        set["minCount"] = json!(min);
    }
    if let Some(request) = request {
        set["topologyRequest"] = request;
    }
    set
}

/// What the annotations of a template ask for.
pub fn topology_request(template: &Value, index_label: Option<&str>) -> Option<Value> {
    let annotation = |name: &str| {
        let text = text(template, &["metadata", "annotations", name]);
        (!text.is_empty()).then(|| text.to_owned())
    };
    let mut request = Map::new();
    if let Some(level) = annotation(keys::REQUIRED_TOPOLOGY) {
        request.insert("required".into(), json!(level));
    } else if let Some(level) = annotation(keys::PREFERRED_TOPOLOGY) {
        request.insert("preferred".into(), json!(level));
    } else if annotation(keys::UNCONSTRAINED_TOPOLOGY).is_some_and(|text| text == "true") {
        request.insert("unconstrained".into(), json!(true));
    }
    if let Some(layers) =
        annotation(keys::SLICE_LAYERS).and_then(|text| serde_json::from_str::<Value>(&text).ok())
    {
        request.insert("podsetSliceRequiredTopologyConstraints".into(), layers);
    } else if let Some(level) = annotation(keys::SLICE_TOPOLOGY) {
        request.insert("podSetSliceRequiredTopology".into(), json!(level));
        if let Some(size) = annotation(keys::SLICE_SIZE).and_then(|text| text.parse::<i32>().ok()) {
            request.insert("podSetSliceSize".into(), json!(size));
        }
    }
    if let Some(group) = annotation(keys::POD_SET_GROUP) {
        request.insert("podSetGroupName".into(), json!(group));
    }
    if request.is_empty() {
        return None;
    }
    if let Some(label) = index_label {
        request.insert("podIndexLabel".into(), json!(label));
    }
    Some(Value::Object(request))
}

/// What an admission adds to the pods of each set. `flavor`: a flavor's spec by name.
pub fn infos(workload: &Workload, flavor: impl Fn(&str) -> Option<Value>) -> Result<Vec<Info>, Clash> {
    let status = workload.status();
    let assignments = list(status, &["admission", "podSetAssignments"]);
    workload
        .pod_sets()
        .iter()
        .map(|set| {
            let name = set_name(set);
            let assigned = assignments
                .iter()
                .find(|a| set_name(a) == name)
                .ok_or_else(|| Clash::NoSet(name.to_owned()))?;
            let mut info = Info {
                name: name.to_owned(),
                count: int(assigned, &["count"]).or_else(|| int(set, &["count"])).unwrap_or(1),
                ..Info::default()
            };
            info.labels.insert(keys::POD_SET.into(), name.into());
            // Label values are shorter than names may be.
            for (label, value) in
                [(keys::CLUSTER_QUEUE, workload.cluster_queue()), (keys::LOCAL_QUEUE, workload.queue())]
            {
                if value.len() <= 63 && !value.is_empty() {
                    info.labels.insert(label.into(), value.into());
                }
            }
            if at(assigned, &["topologyAssignment"]).is_object() {
                info.annotations.insert(keys::WORKLOAD.into(), workload.metadata.name.clone());
                info.gates.push(keys::TOPOLOGY_GATE.into());
            }
            let mut flavors: Vec<&str> = at(assigned, &["flavors"])
                .as_object()
                .into_iter()
                .flat_map(|flavors| flavors.values())
                .filter_map(Value::as_str)
                .collect();
            flavors.sort_unstable();
            flavors.dedup();
            for name in flavors {
                let spec = flavor(name).ok_or_else(|| Clash::NoFlavor(name.to_owned()))?;
                add(&mut info.node_selector, &strings(at(&spec, &["nodeLabels"])), "nodeSelector")?;
                info.tolerations.extend(list(&spec, &["tolerations"]).iter().cloned());
            }
            for update in list(status, &["admissionChecks"])
                .iter()
                .flat_map(|check| list(check, &["podSetUpdates"]))
                .filter(|update| text(update, &["name"]) == name)
            {
                add(&mut info.labels, &strings(at(update, &["labels"])), "labels")?;
                add(&mut info.annotations, &strings(at(update, &["annotations"])), "annotations")?;
                add(&mut info.node_selector, &strings(at(update, &["nodeSelector"])), "nodeSelector")?;
                info.tolerations.extend(list(update, &["tolerations"]).iter().cloned());
            }
            Ok(info)
        })
        .collect()
}

pub fn set_name(set: &Value) -> &str {
    match text(set, &["name"]) {
        "" => "main",
        name => name,
    }
}

fn strings(value: &Value) -> BTreeMap<String, String> {
    value
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

fn add(
    to: &mut BTreeMap<String, String>,
    more: &BTreeMap<String, String>,
    what: &'static str,
) -> Result<(), Clash> {
    for (key, theirs) in more {
        match to.get(key) {
            Some(ours) if ours != theirs => {
                return Err(Clash::Key {
                    what,
                    key: key.clone(),
                    ours: ours.clone(),
                    theirs: theirs.clone(),
                });
            }
            _ => {
                to.insert(key.clone(), theirs.clone());
            }
        }
    }
    Ok(())
}

/// A template with what an admission adds.
pub fn with(template: &Value, info: &Info) -> Result<Value, Clash> {
    let mut out = if template.is_object() { template.clone() } else { json!({}) };
    for (path, more, what) in [
        (["metadata", "labels"], &info.labels, "labels"),
        (["metadata", "annotations"], &info.annotations, "annotations"),
        (["spec", "nodeSelector"], &info.node_selector, "nodeSelector"),
    ] {
        let mut map = strings(at(&out, &path));
        add(&mut map, more, what)?;
        if !map.is_empty() {
            put(&mut out, path, json!(map));
        }
    }
    let mut tolerations = list(&out, &["spec", "tolerations"]).to_vec();
    for toleration in &info.tolerations {
        if !tolerations.contains(toleration) {
            tolerations.push(toleration.clone());
        }
    }
    if !tolerations.is_empty() {
        put(&mut out, ["spec", "tolerations"], json!(tolerations));
    }
    let mut gates = list(&out, &["spec", "schedulingGates"]).to_vec();
    for gate in &info.gates {
        if !gates.iter().any(|g| text(g, &["name"]) == gate) {
            gates.push(json!({"name": gate}));
        }
    }
    if !gates.is_empty() {
        put(&mut out, ["spec", "schedulingGates"], json!(gates));
    }
    Ok(out)
}

fn put(value: &mut Value, [outer, inner]: [&str; 2], what: Value) {
    if !value.get(outer).is_some_and(Value::is_object) {
        value[outer] = json!({});
    }
    value[outer][inner] = what;
}

/// A template with labels, annotations, node selector, tolerations and gates as another has them.
pub fn restored(template: &Value, before: &Value) -> Value {
    let mut out = if template.is_object() { template.clone() } else { json!({}) };
    for path in [
        ["metadata", "labels"],
        ["metadata", "annotations"],
        ["spec", "nodeSelector"],
        ["spec", "tolerations"],
        ["spec", "schedulingGates"],
    ] {
        let [outer, inner] = path;
        match at(before, &path) {
            Value::Null => {
                if let Some(map) = out.get_mut(outer).and_then(Value::as_object_mut) {
                    map.remove(inner);
                }
            }
            value => put(&mut out, path, value.clone()),
        }
    }
    // Labels by which the API server finds the pods are not the user's, and stay.
    for (label, value) in strings(at(template, &["metadata", "labels"])) {
        let label_name = label.trim_start_matches("batch.kubernetes.io/");
        if matches!(label_name, "controller-uid" | "job-name") {
            let mut labels = strings(at(&out, &["metadata", "labels"]));
            labels.insert(label, value);
            put(&mut out, ["metadata", "labels"], json!(labels));
        }
    }
    out
}

/// What makes two pod sets the same request: what their pods run and ask for, and how many there are.
pub fn shape(set: &Value, with_count: bool) -> Value {
    let spec = at(set, &["template", "spec"]);
    let containers = |field: &str| -> Vec<Value> {
        list(spec, &[field])
            .iter()
            .map(|c| {
                json!({
                    "name": c.get("name"),
                    "image": c.get("image"),
                    "resources": tidy(at(c, &["resources"])),
                    "restartPolicy": c.get("restartPolicy"),
                })
            })
            .collect()
    };
    let mut out = json!({
        "name": set_name(set),
        "containers": containers("containers"),
        "initContainers": containers("initContainers"),
        "nodeSelector": tidy(at(spec, &["nodeSelector"])),
        "tolerations": tidy(at(spec, &["tolerations"])),
        "affinity": tidy(at(spec, &["affinity"])),
        "priorityClassName": text(spec, &["priorityClassName"]),
        "topology": tidy(at(set, &["topologyRequest"])),
    });
    if with_count {
        out["count"] = json!(int(set, &["count"]).unwrap_or(1));
        out["minCount"] = json!(int(set, &["minCount"]));
    }
    out
}

/// Empty collections count as absent, and quantities as what they say.
fn tidy(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept: Map<String, Value> = map
                .iter()
                .map(|(key, value)| (key.clone(), tidy(value)))
                .filter(|(_, value)| !value.is_null())
                .collect();
            if kept.is_empty() { Value::Null } else { Value::Object(kept) }
        }
        Value::Array(items) if items.is_empty() => Value::Null,
        Value::Array(items) => Value::Array(items.iter().map(tidy).collect()),
        Value::Number(number) => Value::String(number.to_string()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_runtime::object::Meta;

    fn workload(status: Value, spec: Value) -> Workload {
        Workload {
            metadata: Meta { name: "wl".into(), namespace: "ns".into(), ..Meta::default() },
            body: json!({"spec": spec, "status": status}),
        }
    }

    fn admitted() -> Workload {
        workload(
            json!({"admission": {"clusterQueue": "cq", "podSetAssignments": [
                {"name": "main", "count": 2, "flavors": {"cpu": "spot", "memory": "spot"},
                 "topologyAssignment": {"levels": ["h"]}}]},
                "admissionChecks": [{"name": "c", "podSetUpdates": [
                    {"name": "main", "nodeSelector": {"pool": "p"}, "annotations": {"a": "b"}},
                    {"name": "other", "nodeSelector": {"pool": "q"}}]}]}),
            json!({"queueName": "lq", "podSets": [{"name": "main", "count": 3, "template": {"metadata": {"labels": {"x": "y"}},
                "spec": {"nodeSelector": {"own": "1"}}}}]}),
        )
    }

    fn spot(name: &str) -> Option<Value> {
        (name == "spot").then(|| json!({"nodeLabels": {"kind": "spot"}, "tolerations": [{"key": "spot"}]}))
    }

    #[test]
    fn an_admission_is_added_and_taken_back() {
        let workload = admitted();
        let infos = infos(&workload, spot).unwrap();
        let template = &workload.pod_sets()[0]["template"];
        let out = with(template, &infos[0]).unwrap();
        assert_eq!(
            out,
            json!({
                "metadata": {
                    "labels": {"x": "y", keys::POD_SET: "main", keys::CLUSTER_QUEUE: "cq", keys::LOCAL_QUEUE: "lq"},
                    "annotations": {"a": "b", keys::WORKLOAD: "wl"},
                },
                "spec": {
                    "nodeSelector": {"own": "1", "kind": "spot", "pool": "p"},
                    "tolerations": [{"key": "spot"}],
                    "schedulingGates": [{"name": keys::TOPOLOGY_GATE}],
                },
            })
        );
        assert_eq!(infos[0].count, 2);
        assert_eq!(restored(&out, template), *template);
        assert_eq!(with(&out, &infos[0]).unwrap(), out, "twice is once");
    }

    #[test]
    fn a_clash_is_said() {
        let workload = admitted();
        let found = infos(&workload, |_| Some(json!({"nodeLabels": {"pool": "z"}}))).unwrap_err();
        assert_eq!(
            found.to_string(),
            "invalid admission check PodSetUpdate: conflict for nodeSelector: conflict for key=pool, value1=z, value2=p"
        );
        assert_eq!(infos(&workload, |_| None).unwrap_err(), Clash::NoFlavor("spot".into()));
    }

    #[test]
    fn annotations_ask_for_a_topology() {
        let template = |annotations: Value| json!({"metadata": {"annotations": annotations}});
        let ask = |annotations: Value| topology_request(&template(annotations), Some("index"));
        assert_eq!(ask(json!({})), None);
        assert_eq!(
            ask(
                json!({keys::REQUIRED_TOPOLOGY: "rack", keys::SLICE_TOPOLOGY: "host", keys::SLICE_SIZE: "4"})
            ),
            Some(
                json!({"required": "rack", "podSetSliceRequiredTopology": "host", "podSetSliceSize": 4, "podIndexLabel": "index"})
            )
        );
        assert_eq!(
            ask(json!({keys::UNCONSTRAINED_TOPOLOGY: "true"})),
            Some(json!({"unconstrained": true, "podIndexLabel": "index"}))
        );
        assert_eq!(ask(json!({keys::UNCONSTRAINED_TOPOLOGY: "false"})), None);
    }

    #[test]
    fn how_an_amount_is_written_makes_no_other_request() {
        let set = |cpu: Value| json!({"count": 1, "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}}});
        assert_eq!(shape(&set(json!(1)), true), shape(&set(json!("1")), true));
        assert_ne!(shape(&set(json!(1)), true), shape(&set(json!("2")), true));
        let labelled =
            pod_set("main", 1, &json!({"metadata": {"labels": {"job-name": "x", "a": "b"}}}), None, None);
        assert_eq!(labelled["template"]["metadata"]["labels"], json!({"a": "b"}));
    }
}
