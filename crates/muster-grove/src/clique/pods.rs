//! The pod of a clique.
//!
//! In: the clique, its gang, an index. Out: a pod that the server can take. Must stay true: the user's gates, volumes and
//! variables stay, save variables whose names are ours; the pod is gated, and carries from birth what its scheduler needs.

use serde_json::{Map, Value, json};

use crate::backend::{Backend, Place};
use crate::claims;
use crate::keys;
use crate::names;
use crate::object::{PodClique, text};
use crate::settings::StartStep;
use crate::shape::Clique;

/// Where the secret is seen whose coming starts the containers.
const START_MOUNT: &str = "/var/run/grove/start";
const START_VOLUME: &str = "grove-start";

pub fn pod(
    clique: &Clique<'_>,
    object: &PodClique,
    backend: &dyn Backend,
    place: &Place<'_>,
    pod_index: i64,
) -> Value {
    let set = clique.set;
    let name = &object.metadata.name;
    let mut spec = match &object.spec.pod_spec {
        Value::Object(_) => object.spec.pod_spec.clone(),
        _ => json!({}),
    };
    spec["hostname"] = json!(names::host(name, pod_index));
    spec["subdomain"] = json!(names::replica(&set.metadata.name, clique.replica));
    let scheduler = text(&spec, &["schedulerName"]).to_owned();
    if !scheduler.is_empty() {
        spec["schedulerName"] = json!(place.options.pod_scheduler(&scheduler));
    } else if !set.scheduler_name().is_empty() || !place.options.default_scheduler.is_empty() {
        // One gang, one scheduler: cliques that name none go where the others go.
        spec["schedulerName"] = json!(place.options.pod_scheduler(set.scheduler_name()));
    }
    gate(&mut spec, &place.options.gate);
    limits(&mut spec);
    let shared: Vec<(String, Value)> = claims::of_pod(clique, pod_index)
        .into_iter()
        .map(|(name, claim)| (name, json!({"resourceClaimName": claim})))
        .collect();
    claims::put(&mut spec, &shared, |_| true);
    set_variables(&mut spec, &variables(clique, object));
    let parents = clique.starts_after();
    if !parents.is_empty() {
        match &place.options.start_step {
            StartStep::Secret => wait_for_secret(&mut spec, &names::start_secret(&object.metadata.uid)),
            StartStep::Image(image) => wait_by_image(&mut spec, image, &parents, &set.metadata.name),
        }
    }
    backend.prepare(place, &mut spec);

    let marks = backend.marks(place);
    let mut labels: Map<String, Value> =
        object.metadata.labels.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    labels.insert(keys::POD_INDEX.into(), json!(pod_index.to_string()));
    labels.extend(marks.labels.into_iter().map(|(key, value)| (key.to_owned(), json!(value))));
    let is_internal =
        |key: &str| matches!(key, keys::ADOPTED_HASH | keys::LAST_APPLIED | keys::BACKOFF_LIMIT);
    let mut annotations: Map<String, Value> = object
        .metadata
        .annotations
        .iter()
        .filter(|(key, _)| !is_internal(key))
        .map(|(key, value)| (key.clone(), json!(value)))
        .collect();
    annotations.extend(marks.annotations.into_iter().map(|(key, value)| (key.to_owned(), json!(value))));
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": format!("{name}-"),
            "namespace": object.metadata.namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [muster_runtime::object::controller_ref(object)],
        },
        "spec": spec,
    })
}

fn gate(spec: &mut Value, gate: &str) {
    match spec.get_mut("schedulingGates") {
        Some(Value::Array(gates)) => {
            if !gates.iter().any(|g| text(g, &["name"]) == gate) {
                gates.push(json!({"name": gate}));
            }
        }
        _ => spec["schedulingGates"] = json!([{"name": gate}]),
    }
}

/// Devices cannot be asked for without a limit; whoever writes the one means the other.
fn limits(spec: &mut Value) {
    for container in containers(spec) {
        let Some(resources) = container.get_mut("resources").and_then(Value::as_object_mut) else { continue };
        let devices: Vec<(String, Value)> = resources
            .get("requests")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .filter(|(name, _)| is_device(name))
            .map(|(name, amount)| (name.clone(), amount.clone()))
            .collect();
        if devices.is_empty() {
            continue;
        }
        let limits = resources.entry("limits").or_insert_with(|| json!({}));
        if let Some(limits) = limits.as_object_mut() {
            for (name, amount) in devices {
                limits.entry(name).or_insert(amount);
            }
        }
    }
}

/// A resource that Kubernetes itself knows nothing of.
fn is_device(name: &str) -> bool {
    match name.split_once('/') {
        Some((domain, _)) => domain != "kubernetes.io" && !domain.ends_with(".kubernetes.io"),
        None => name.starts_with("hugepages-"),
    }
}

/// The variables by which pods find each other.
fn variables(clique: &Clique<'_>, object: &PodClique) -> Vec<Value> {
    let set = &clique.set.metadata;
    let plain = |name: &str, value: String| json!({"name": name, "value": value});
    let mut all = vec![
        plain("GROVE_PCS_NAME", set.name.clone()),
        plain("GROVE_PCS_INDEX", clique.replica.to_string()),
        plain("GROVE_PCLQ_NAME", object.metadata.name.clone()),
        plain(
            "GROVE_HEADLESS_SERVICE",
            names::service_host(&set.name, clique.replica, &object.metadata.namespace),
        ),
        json!({
            "name": "GROVE_PCLQ_POD_INDEX",
            "valueFrom": {"fieldRef": {"fieldPath": format!("metadata.labels['{}']", keys::POD_INDEX)}},
        }),
    ];
    if let (Some((group, index)), Some(name)) = (clique.within, clique.group_name()) {
        let members = group.clique_names.iter().filter_map(|name| clique.set.clique_template(name));
        let n_pods = members.fold(0_i64, |sum, member| sum.saturating_add(member.spec.replicas()));
        all.push(plain("GROVE_PCSG_NAME", name));
        all.push(plain("GROVE_PCSG_TEMPLATE_NUM_PODS", n_pods.to_string()));
        all.push(plain("GROVE_PCSG_INDEX", index.to_string()));
    }
    all
}

fn containers(spec: &mut Value) -> impl Iterator<Item = &mut Value> {
    spec.as_object_mut()
        .into_iter()
        .flat_map(|spec| spec.iter_mut())
        .filter(|(kind, _)| matches!(kind.as_str(), "containers" | "initContainers"))
        .filter_map(|(_, list)| list.as_array_mut())
        .flatten()
        .filter(|container| container.is_object())
}

fn set_variables(spec: &mut Value, variables: &[Value]) {
    for container in containers(spec) {
        let own = container.get_mut("env").map(Value::take);
        let mut env = variables.to_vec();
        for variable in own.as_ref().and_then(Value::as_array).into_iter().flatten() {
            let name = text(variable, &["name"]);
            if !variables.iter().any(|ours| text(ours, &["name"]) == name) {
                env.push(variable.clone());
            }
        }
        container["env"] = json!(env);
    }
}

fn push(object: &mut Value, field: &str, item: Value) {
    match object.get_mut(field) {
        Some(Value::Array(items)) => items.push(item),
        _ => object[field] = json!([item]),
    }
}

/// A kubelet starts no container before every volume that a container mounts is there.
fn wait_for_secret(spec: &mut Value, secret: &str) {
    push(spec, "volumes", json!({"name": START_VOLUME, "secret": {"secretName": secret}}));
    for container in containers(spec) {
        push(
            container,
            "volumeMounts",
            json!({"name": START_VOLUME, "mountPath": START_MOUNT, "readOnly": true}),
        );
    }
}

/// Today's way: an init container that asks the API server.
fn wait_by_image(spec: &mut Value, image: &str, parents: &[(String, i64)], set: &str) {
    const INFO: &str = "pod-info-vol";
    let args: Vec<String> = parents.iter().map(|(name, min)| format!("--podcliques={name}:{min}")).collect();
    push(
        spec,
        "initContainers",
        json!({
            "name": "grove-initc",
            "image": image,
            "args": args,
            "volumeMounts": [{"name": INFO, "mountPath": "/var/grove/pod-info", "readOnly": true}],
        }),
    );
    let field = |path: &str, field: String| json!({"path": path, "fieldRef": {"fieldPath": field}});
    push(
        spec,
        "volumes",
        json!({"name": INFO, "downwardAPI": {"items": [
            field("namespace", "metadata.namespace".to_owned()),
            field("podgangname", format!("metadata.labels['{}']", keys::PODGANG)),
        ]}}),
    );
    if text(spec, &["serviceAccountName"]).is_empty() {
        spec["serviceAccountName"] = json!(set);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{GangApi, kai::Kai};
    use crate::object::{PodCliqueSet, PodGang, list};
    use crate::settings::Options;
    use crate::shape::tests::{WL2, set};

    fn object(clique: &Clique<'_>) -> PodClique {
        serde_json::from_value(json!({
            "metadata": {"name": clique.name(), "namespace": "ns", "uid": "u", "labels": clique.labels(),
                         "annotations": {"kept": "yes", keys::ADOPTED_HASH: "a=b"}},
            "spec": {"replicas": 1, "podSpec": clique.template.spec.pod_spec},
        }))
        .unwrap()
    }

    fn make(set: &PodCliqueSet, clique: &Clique<'_>, options: &Options, index: i64) -> Value {
        assert_eq!(clique.set.metadata.name, set.metadata.name);
        let gang: PodGang =
            serde_json::from_value(json!({"metadata": {"name": "wl-0", "uid": "g-1"}})).unwrap();
        let object = object(clique);
        let place = Place {
            gang: &gang,
            clique: &object.metadata.name,
            there: &[],
            options,
            gang_api: GangApi::None,
        };
        pod(clique, &object, &Kai, &place, index)
    }

    fn grouped(set: &PodCliqueSet, index: i64) -> Clique<'_> {
        set.grouped(0, &set.spec.template.pod_clique_scaling_groups[0], index).next().unwrap()
    }

    #[test]
    fn names_gates_and_marks() {
        let mut set = set(WL2);
        set.spec.template.cliques[0].spec.pod_spec["schedulerName"] = json!("grove-scheduler");
        set.spec.template.cliques[0].spec.pod_spec["schedulingGates"] = json!([{"name": "mine"}]);
        let clique = set.standalone(0).next().unwrap();
        let pod = make(&set, &clique, &Options::default(), 3);
        let (meta, spec) = (&pod["metadata"], &pod["spec"]);
        assert_eq!(meta["generateName"], "wl-0-pc-a-");
        assert_eq!(spec["hostname"], "wl-0-pc-a-3");
        assert_eq!(spec["subdomain"], "wl-0");
        assert_eq!(spec["schedulerName"], "kai-scheduler");
        assert_eq!(spec["schedulingGates"], json!([{"name": "mine"}, {"name": "grove.io/podgang"}]));
        assert_eq!(meta["labels"]["grove.io/podclique-pod-index"], "3");
        assert_eq!(meta["labels"]["grove.io/podgang"], "wl-0");
        assert_eq!(meta["labels"]["kai.scheduler/subgroup-name"], "wl-0-pc-a");
        assert_eq!(meta["annotations"]["pod-group-name"], "pg-wl-0-g-1");
        assert_eq!(meta["annotations"]["kept"], "yes");
        assert!(meta["annotations"].get(keys::ADOPTED_HASH).is_none());
        assert_eq!(meta["ownerReferences"][0]["kind"], "PodClique");
    }

    #[test]
    fn today_can_be_chosen() {
        let set = set(WL2);
        let clique = set.standalone(0).next().unwrap();
        let options = Options { gate: keys::GATE_TODAY.into(), ..Options::default() };
        let pod = make(&set, &clique, &options, 0);
        assert_eq!(pod["spec"]["schedulingGates"], json!([{"name": "grove.io/podgang-pending-creation"}]));
    }

    #[test]
    fn variables_come_first_and_replace() {
        let mut set = set(WL2);
        set.spec.template.cliques[1].spec.pod_spec = json!({
            "containers": [{"name": "m", "env": [{"name": "GROVE_PCS_NAME", "value": "mine"}, {"name": "A", "value": "$(GROVE_PCS_NAME)"}]}],
            "initContainers": [{"name": "i"}],
        });
        let pod = make(&set, &grouped(&set, 1), &Options::default(), 0);
        let show = |env: &Value| {
            list(env, &["env"])
                .iter()
                .map(|v| format!("{}={}", text(v, &["name"]), text(v, &["value"])))
                .collect::<Vec<_>>()
                .join(" ")
        };
        let ours = "GROVE_PCS_NAME=wl GROVE_PCS_INDEX=0 GROVE_PCLQ_NAME=wl-0-sg-x-1-pc-b \
                    GROVE_HEADLESS_SERVICE=wl-0.ns.svc.cluster.local GROVE_PCLQ_POD_INDEX= GROVE_PCSG_NAME=wl-0-sg-x \
                    GROVE_PCSG_TEMPLATE_NUM_PODS=4 GROVE_PCSG_INDEX=1";
        assert_eq!(show(&pod["spec"]["containers"][0]), format!("{ours} A=$(GROVE_PCS_NAME)"));
        assert_eq!(show(&pod["spec"]["initContainers"][0]), ours);
        let index = &pod["spec"]["containers"][0]["env"][4]["valueFrom"]["fieldRef"]["fieldPath"];
        assert_eq!(index, "metadata.labels['grove.io/podclique-pod-index']");
    }

    #[test]
    fn waits_for_a_secret() {
        let mut set = set(WL2);
        set.spec.template.clique_startup_type = "CliqueStartupTypeInOrder".into();
        let first = set.standalone(0).next().unwrap();
        assert!(make(&set, &first, &Options::default(), 0)["spec"].get("volumes").is_none());
        let pod = make(&set, &grouped(&set, 0), &Options::default(), 0);
        assert_eq!(
            pod["spec"]["volumes"],
            json!([{"name": "grove-start", "secret": {"secretName": "grove-start-u"}}])
        );
        assert_eq!(pod["spec"]["containers"][0]["volumeMounts"][0]["name"], "grove-start");
        let options = Options { start_step: StartStep::Image("initc:1".into()), ..Options::default() };
        let pod = make(&set, &grouped(&set, 0), &options, 0);
        let init = &pod["spec"]["initContainers"][0];
        assert_eq!(init["args"], json!(["--podcliques=wl-0-pc-a:1"]));
        assert!(init.get("env").is_none());
        assert_eq!(pod["spec"]["serviceAccountName"], "wl");
    }

    #[test]
    fn devices_have_limits() {
        let mut spec = json!({"containers": [
            {"resources": {"requests": {"nvidia.com/gpu": "2", "cpu": "1"}}},
            {"resources": {"requests": {"nvidia.com/gpu": "2"}, "limits": {"nvidia.com/gpu": "3", "cpu": "1"}}},
            {"resources": {"requests": {"cpu": "1"}}},
        ]});
        limits(&mut spec);
        assert_eq!(spec["containers"][0]["resources"]["limits"], json!({"nvidia.com/gpu": "2"}));
        assert_eq!(spec["containers"][1]["resources"]["limits"], json!({"nvidia.com/gpu": "3", "cpu": "1"}));
        assert!(spec["containers"][2]["resources"].get("limits").is_none());
    }

    #[test]
    fn odd_specs_make_no_panic() {
        for odd in [
            json!(null),
            json!(5),
            json!([]),
            json!({"containers": 5}),
            json!({"containers": [5, {"env": 3}]}),
        ] {
            let mut set = set(WL2);
            set.spec.template.clique_startup_type = "CliqueStartupTypeInOrder".into();
            set.spec.template.cliques[1].spec.pod_spec = odd;
            let _ = make(&set, &grouped(&set, 0), &Options::default(), 0);
        }
    }
}
