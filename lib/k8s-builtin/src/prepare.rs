//! Preparation: what a client may not set is put right before an object is validated and stored.
//!
//! In: an object after [`crate::default`], whose system metadata (`uid`, `creationTimestamp`, generated name) the
//! server has filled in; for an update also the stored object. Out: the object with its status, generation and
//! generated parts as the registry of the reference server would leave them.
//!
//! Alpha fields are kept, as if their feature gates were on.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map, Value, json};

use crate::{
    Kind,
    data::Ty,
    defaults::{fill, resources::qos_class},
    json::{
        at, at_mut, child, copy_field, entries, flag, has, int, list, list_mut, remove, set, set_default,
        text,
    },
};

/// The annotation that stands for a field that old versions of a daemon set had.
pub(crate) const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Whether a status of this kind can be judged without its spec, and finalizers and owners (labels too, of pods) without either: then a write of the one needs
/// no copy of the other. True of the kinds that are written most.
#[must_use]
pub fn is_kept_apart(kind: &Kind) -> bool {
    matches!((kind.group, kind.kind), ("", "Pod") | ("batch", "Job"))
}

/// Prepares an object that is about to be created.
pub fn prepare_create(kind: &Kind, object: &mut Value) {
    // Nodes register together with their status, and reviews are answered in it.
    if kind.has_status && kind.kind != "Node" {
        remove(object, "status");
        fill_status(kind, object);
    }
    if kind.has_generation && kind.kind != "CSIDriver" {
        set_generation(object, 1);
    } else if let Some(meta) = at_mut(object, "metadata") {
        remove(meta, "generation");
    }
    match (kind.group, kind.kind) {
        ("", "Pod") => pod_create(object),
        ("", "Namespace") => namespace_finalizer(object),
        ("", "Service") => service_addresses(object),
        ("apps", "DaemonSet") => set_template_generation(object, 1),
        ("batch", "Job") => job_selector(object),
        ("", "PersistentVolumeClaim") => claim_source(object),
        ("", "PersistentVolume") => {
            // The server has just set when the object came to be, and that is when its phase began.
            let now = at(object, "metadata.creationTimestamp").clone();
            if let (false, Some(status)) = (now.is_null(), at_mut(object, "status")) {
                set(status, "lastPhaseTransitionTime", now);
            }
        }
        ("coordination.k8s.io", "Lease") => coordinated_election(object),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => stored_version(object),
        ("certificates.k8s.io", "CertificateSigningRequest") => {
            if let Some(spec) = at_mut(object, "spec") {
                for key in ["username", "uid", "groups", "extra"] {
                    remove(spec, key);
                }
            }
        }
        _ => {}
    }
}

/// Prepares an object that is about to replace `old`.
pub fn prepare_update(kind: &Kind, new: &mut Value, old: &Value) {
    if kind.has_status {
        copy_field(new, old, "status");
    }
    match (kind.group, kind.kind) {
        ("", "Namespace") => copy_field(new, old, "spec"),
        ("", "Service") => service_update(new, old),
        ("apps", "DaemonSet") => {
            let generation = template_generation(old);
            let is_changed = at(new, "spec.template") != at(old, "spec.template");
            set_template_generation(new, if is_changed { generation.saturating_add(1) } else { generation });
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => stored_version(new),
        ("coordination.k8s.io", "Lease") => coordinated_election(new),
        ("certificates.k8s.io", "CertificateSigningRequest") => copy_field(new, old, "spec"),
        _ => {}
    }
    let generation = int(old, "metadata.generation").unwrap_or(0);
    if kind.has_generation {
        set_generation(
            new,
            if is_desired_changed(kind, new, old) { generation.saturating_add(1) } else { generation },
        );
    } else if let Some(meta) = at_mut(new, "metadata") {
        copy_field(meta, at(old, "metadata"), "generation");
    }
}

/// Prepares an object whose status is about to replace that of `old`: everything else stays as it is stored.
pub fn prepare_status_update(kind: &Kind, new: &mut Value, old: &Value) {
    let kept: Vec<String> = old
        .as_object()
        .into_iter()
        .chain(new.as_object())
        .flat_map(Map::keys)
        .filter(|key| !["status", "metadata", "apiVersion", "kind"].contains(&key.as_str()))
        .cloned()
        .collect();
    for key in kept {
        copy_field(new, old, &key);
    }
    if let Some(meta) = at_mut(new, "metadata") {
        let kept: &[&str] = match kept_by_status(kind) {
            Kept::Metadata => &["labels", "annotations", "finalizers", "ownerReferences"],
            Kept::Labels => &["labels"],
            Kept::Owners => &["ownerReferences"],
            Kept::Nothing => &[],
        };
        for key in ["generation", "deletionTimestamp", "deletionGracePeriodSeconds"].iter().chain(kept) {
            copy_field(meta, at(old, "metadata"), key);
        }
    }
    if kind.kind == "Pod" {
        pod_status(new, old);
    }
}

/// What of the metadata a write of the status leaves as it was, besides what every write does.
enum Kept {
    Metadata,
    Labels,
    Owners,
    Nothing,
}

fn kept_by_status(kind: &Kind) -> Kept {
    match kind.kind {
        "CustomResourceDefinition"
        | "DeviceTaintRule"
        | "FlowSchema"
        | "PodCertificateRequest"
        | "PodGroup"
        | "PriorityLevelConfiguration"
        | "ResourceClaim"
        | "ResourcePoolStatusRequest"
        | "ServiceCIDR"
        | "StorageVersion"
        | "StorageVersionMigration"
        | "ValidatingAdmissionPolicy"
        | "VolumeAttachment" => Kept::Metadata,
        "Deployment" => Kept::Labels,
        "Pod" => Kept::Owners,
        _ => Kept::Nothing,
    }
}

/// The fields that a write of the status never owns, as `fieldsV1` has them.
#[must_use]
pub fn unowned_by_status(kind: &Kind) -> Value {
    match kept_by_status(kind) {
        Kept::Metadata => json!({"f:spec": {}, "f:metadata": {}}),
        Kept::Labels => json!({"f:spec": {}, "f:metadata": {"f:labels": {}}}),
        Kept::Owners => {
            json!({"f:spec": {}, "f:metadata": {"f:deletionTimestamp": {}, "f:ownerReferences": {}}})
        }
        Kept::Nothing => json!({"f:spec": {}}),
    }
}

fn fill_status(kind: &Kind, object: &mut Value) {
    let types = kind.types();
    let Some(field) = types.get(kind.type_id).field("status") else { return };
    let Ty::Ref(id) = field.ty else { return };
    if field.keep_zero {
        return;
    }
    let mut status = json!({});
    fill(types, id, &mut status);
    set(object, "status", status);
}

fn set_generation(object: &mut Value, generation: i64) {
    if let Some(meta) = child(object, "metadata") {
        if generation == 0 {
            remove(meta, "generation");
        } else {
            set(meta, "generation", generation);
        }
    }
}

/// Whether what the user asks for differs: the spec, or everything but metadata where there is no spec.
fn is_desired_changed(kind: &Kind, new: &Value, old: &Value) -> bool {
    match kind.kind {
        "PriorityClass" => false,
        "Deployment" => {
            at(new, "spec") != at(old, "spec")
                || at(new, "metadata.annotations") != at(old, "metadata.annotations")
        }
        _ if has(new, "spec") || has(old, "spec") => at(new, "spec") != at(old, "spec"),
        _ => {
            let desired = |object: &Value| -> Map<String, Value> {
                let skipped = ["metadata", "apiVersion", "kind", "status"];
                let keep = |(key, value): (&String, &Value)| {
                    (!skipped.contains(&key.as_str())).then(|| (key.clone(), value.clone()))
                };
                object.as_object().into_iter().flatten().filter_map(keep).collect()
            };
            desired(new) != desired(old)
        }
    }
}

fn pod_create(pod: &mut Value) {
    let mut status = json!({"phase": "Pending", "qosClass": qos_class(pod)});
    let now = at(pod, "metadata.creationTimestamp").clone();
    if !list(pod, "spec.schedulingGates").is_empty() {
        let message = "Scheduling is blocked due to non-empty scheduling gates";
        set(
            &mut status,
            "conditions",
            json!([{
                "type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": message,
                "lastProbeTime": null, "lastTransitionTime": now,
            }]),
        );
    }
    set(pod, "status", status);
    let labels = at(pod, "metadata.labels").clone();
    for affinity in ["podAffinity", "podAntiAffinity"] {
        let required = format!("spec.affinity.{affinity}.requiredDuringSchedulingIgnoredDuringExecution");
        list_mut(pod, &required).for_each(|term| merge_label_keys(term, &labels));
        let preferred = format!("spec.affinity.{affinity}.preferredDuringSchedulingIgnoredDuringExecution");
        list_mut(pod, &preferred)
            .filter_map(|term| at_mut(term, "podAffinityTerm"))
            .for_each(|term| merge_label_keys(term, &labels));
    }
    list_mut(pod, "spec.topologySpreadConstraints")
        .for_each(|constraint| merge_label_keys(constraint, &labels));
}

/// The label keys of a term become requirements on the values that the pod itself has.
fn merge_label_keys(term: &mut Value, labels: &Value) {
    let mut requirements = Vec::new();
    for (keys, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        for key in list(term, keys).iter().filter_map(Value::as_str) {
            if let Some(value) = labels.get(key) {
                requirements.push(json!({"key": key, "operator": operator, "values": [value]}));
            }
        }
    }
    let Some(selector) = at_mut(term, "labelSelector").filter(|selector| selector.is_object()) else {
        return;
    };
    if requirements.is_empty() {
        return;
    }
    set_default(selector, "matchExpressions", json!([]));
    if let Some(expressions) = at_mut(selector, "matchExpressions").and_then(Value::as_array_mut) {
        expressions.extend(requirements);
    }
}

fn pod_status(new: &mut Value, old: &Value) {
    let old_status = at(old, "status");
    let mut generations: BTreeMap<&str, VecDeque<Option<&Value>>> = BTreeMap::new();
    for condition in list(old_status, "conditions") {
        generations
            .entry(text(condition, "type"))
            .or_default()
            .push_back(condition.get("observedGeneration"));
    }
    let Some(status) = at_mut(new, "status") else { return };
    for key in ["qosClass", "observedGeneration"] {
        if let Some(value) = old_status.get(key) {
            set_default(status, key, value.clone());
        }
    }
    for condition in list_mut(status, "conditions") {
        let same = generations.get_mut(text(condition, "type")).and_then(VecDeque::pop_front);
        if let Some(Some(generation)) = same {
            set_default(condition, "observedGeneration", generation.clone());
        }
    }
}

fn namespace_finalizer(namespace: &mut Value) {
    let Some(spec) = child(namespace, "spec") else { return };
    set_default(spec, "finalizers", json!([]));
    if let Some(finalizers) = at_mut(spec, "finalizers").and_then(Value::as_array_mut)
        && !finalizers.iter().any(|name| name == "kubernetes")
    {
        finalizers.push(json!("kubernetes"));
    }
}

/// Address families and the list form of the address. The server allocates the address itself.
fn service_addresses(service: &mut Value) {
    if text(service, "spec.type") == "ExternalName" {
        return;
    }
    let address = text(service, "spec.clusterIP").to_owned();
    let first =
        list(service, "spec.clusterIPs").first().and_then(Value::as_str).unwrap_or_default().to_owned();
    let Some(spec) = at_mut(service, "spec") else { return };
    if first.is_empty() && !address.is_empty() {
        set(spec, "clusterIPs", json!([address]));
    } else if address.is_empty() && !first.is_empty() {
        set(spec, "clusterIP", first.clone());
    }
    let is_headless = address == "None" || first == "None";
    if is_headless && entries(spec, "selector").next().is_none() {
        // Whoever fills in the addresses of such a service may use both families.
        set_default(spec, "ipFamilies", json!(["IPv4", "IPv6"]));
        set_default(spec, "ipFamilyPolicy", "RequireDualStack");
    }
    let family = if address.contains(':') || first.contains(':') { "IPv6" } else { "IPv4" };
    set_default(spec, "ipFamilies", json!([family]));
    set_default(spec, "ipFamilyPolicy", "SingleStack");
}

/// What was allocated stays, unless the update says otherwise.
fn service_update(new: &mut Value, old: &Value) {
    let is_external = |service: &Value| text(service, "spec.type") == "ExternalName";
    let has_node_ports = |service: &Value| {
        let is_allocated = at(service, "spec.allocateLoadBalancerNodePorts").as_bool().unwrap_or(true);
        match text(service, "spec.type") {
            "NodePort" => true,
            "LoadBalancer" => is_allocated,
            _ => false,
        }
    };
    let ports_of = |service: &Value| -> Vec<i64> {
        list(service, "spec.ports")
            .iter()
            .filter_map(|port| int(port, "nodePort").filter(|p| *p != 0))
            .collect()
    };
    // A changed address counts, also when a client that knows only the one field left the list as it was.
    let addresses = list(new, "spec.clusterIPs");
    if at(new, "spec.clusterIP") != at(old, "spec.clusterIP")
        && (addresses == list(old, "spec.clusterIPs")
            || (addresses.is_empty() && !text(new, "spec.clusterIP").is_empty()))
        && let address = text(new, "spec.clusterIP").to_owned()
        && let Some(spec) = at_mut(new, "spec")
    {
        remove(spec, "clusterIPs");
        if !address.is_empty() {
            set(spec, "clusterIPs", json!([address]));
        }
    }
    // What only another type has is released, unless the client changed it.
    let is_balancer = |service: &Value| text(service, "spec.type") == "LoadBalancer";
    let has_policy = |service: &Value| {
        matches!(text(service, "spec.type"), "LoadBalancer" | "NodePort")
            || !list(service, "spec.externalIPs").is_empty()
    };
    let mut released: Vec<&str> = Vec::new();
    if is_external(new) && !is_external(old) {
        released.extend(["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"]);
    }
    if is_balancer(old) && !is_balancer(new) {
        released.extend(["allocateLoadBalancerNodePorts", "loadBalancerClass", "healthCheckNodePort"]);
    }
    if has_policy(old) && !has_policy(new) {
        released.push("externalTrafficPolicy");
    }
    let frees_ports = has_node_ports(old) && !has_node_ports(new) && ports_of(new) == ports_of(old);
    if let Some(spec) = at_mut(new, "spec") {
        for key in released {
            if spec.get(key) == at(old, "spec").get(key) {
                remove(spec, key);
            }
        }
        for port in list_mut(spec, "ports").filter(|_| frees_ports) {
            remove(port, "nodePort");
        }
    }
    if !is_external(new)
        && !is_external(old)
        && let Some(spec) = at_mut(new, "spec")
    {
        for key in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if let Some(value) = at(old, "spec").get(key) {
                set_default(spec, key, value.clone());
            }
        }
    }
    if has_node_ports(new) && has_node_ports(old) {
        let kept: BTreeSet<i64> = ports_of(new).into_iter().collect();
        let used: BTreeSet<i64> = ports_of(old).into_iter().filter(|port| kept.contains(port)).collect();
        let by_name: BTreeMap<&str, i64> = list(old, "spec.ports")
            .iter()
            .map(|port| (text(port, "name"), int(port, "nodePort").unwrap_or(0)))
            .collect();
        for port in list_mut(new, "spec.ports") {
            let number = by_name.get(text(port, "name")).copied().filter(|number| !used.contains(number));
            if let Some(number) = number.filter(|number| *number != 0) {
                set_default(port, "nodePort", number);
            }
        }
    }
    if text(new, "spec.externalTrafficPolicy") == "Local"
        && text(new, "spec.type") == "LoadBalancer"
        && let Some(port) = at(old, "spec").get("healthCheckNodePort").cloned()
        && let Some(spec) = at_mut(new, "spec")
    {
        set_default(spec, "healthCheckNodePort", port);
    }
    if !is_external(new) {
        service_addresses(new);
    }
}

fn template_generation(daemon_set: &Value) -> i64 {
    at(daemon_set, "metadata.annotations")
        .get(TEMPLATE_GENERATION)
        .and_then(Value::as_str)
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

pub(crate) fn set_template_generation(daemon_set: &mut Value, generation: i64) {
    if let Some(meta) = child(daemon_set, "metadata")
        && let Some(annotations) = child(meta, "annotations")
    {
        set(annotations, TEMPLATE_GENERATION, generation.to_string());
    }
}

fn job_selector(job: &mut Value) {
    if flag(job, "spec.manualSelector") {
        return;
    }
    // Labels that were defaulted from the template are the same map in the reference server.
    let is_shared = at(job, "metadata.labels") == at(job, "spec.template.metadata.labels");
    let name = text(job, "metadata.name").to_owned();
    let uid = text(job, "metadata.uid").to_owned();
    let Some(spec) = child(job, "spec") else { return };
    if let Some(template) = child(spec, "template")
        && let Some(meta) = child(template, "metadata")
        && let Some(labels) = child(meta, "labels")
    {
        for label in ["job-name", "batch.kubernetes.io/job-name"] {
            set_default(labels, label, name.clone());
        }
        for label in ["controller-uid", "batch.kubernetes.io/controller-uid"] {
            set_default(labels, label, uid.clone());
        }
    }
    if let Some(selector) = child(spec, "selector")
        && let Some(labels) = child(selector, "matchLabels")
    {
        set_default(labels, "batch.kubernetes.io/controller-uid", uid);
    }
    if is_shared {
        let labels = at(job, "spec.template.metadata.labels").clone();
        if let Some(meta) = child(job, "metadata") {
            set(meta, "labels", labels);
        }
    }
}

/// The old and the new field for the source of a claim's data say the same. The old one takes only claims and snapshots.
fn claim_source(claim: &mut Value) {
    let Some(spec) = at_mut(claim, "spec") else { return };
    if !has(spec, "dataSourceRef") {
        let group = text(spec, "dataSource.apiGroup");
        let is_known = match text(spec, "dataSource.kind") {
            "PersistentVolumeClaim" => group.is_empty(),
            "VolumeSnapshot" => group == "snapshot.storage.k8s.io",
            _ => false,
        };
        if is_known {
            let source = at(spec, "dataSource").clone();
            set(spec, "dataSourceRef", source);
        } else {
            remove(spec, "dataSource");
        }
    } else if !has(spec, "dataSource") && text(spec, "dataSourceRef.namespace").is_empty() {
        let mut source = at(spec, "dataSourceRef").clone();
        remove(&mut source, "namespace");
        set(spec, "dataSource", source);
    }
}

/// Fields behind a gate that is off.
fn coordinated_election(lease: &mut Value) {
    if let Some(spec) = at_mut(lease, "spec") {
        remove(spec, "strategy");
        remove(spec, "preferredHolder");
    }
}

fn stored_version(crd: &mut Value) {
    let storage = list(crd, "spec.versions").iter().find(|version| flag(version, "storage"));
    let Some(name) = storage.map(|version| text(version, "name").to_owned()) else { return };
    let Some(status) = child(crd, "status") else { return };
    set_default(status, "storedVersions", json!([]));
    if let Some(stored) = at_mut(status, "storedVersions").and_then(Value::as_array_mut)
        && !stored.iter().any(|version| *version == name)
    {
        stored.push(json!(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KubeVersion, default, find};

    #[track_caller]
    fn created(group: &str, plural: &str, mut object: Value) -> Value {
        let kind = find(KubeVersion::V1_36, group, "v1", plural).unwrap();
        default(kind, &mut object);
        prepare_create(kind, &mut object);
        object
    }

    #[track_caller]
    fn updated(group: &str, plural: &str, old: &Value, mut new: Value) -> Value {
        let kind = find(KubeVersion::V1_36, group, "v1", plural).unwrap();
        default(kind, &mut new);
        prepare_update(kind, &mut new, old);
        new
    }

    #[test]
    fn status_and_generation_of_a_new_object() {
        let pod = created(
            "",
            "pods",
            json!({"spec": {"containers": [{"name": "a"}]}, "status": {"phase": "Running"}}),
        );
        assert_eq!(pod["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
        assert_eq!(pod["metadata"]["generation"], 1);
        let set = created("apps", "replicasets", json!({"status": {"replicas": 3}}));
        assert_eq!(set["status"], json!({"replicas": 0}));
        let node = created("", "nodes", json!({"status": {"phase": "Running"}}));
        assert_eq!(node["status"]["phase"], "Running");
        assert_eq!(node["metadata"].get("generation"), None);
        let claim = created("", "persistentvolumeclaims", json!({"status": {"phase": "Bound"}}));
        assert_eq!(claim["status"], json!({"phase": "Pending"}));
        let namespace = created("", "namespaces", json!({"metadata": {"name": "a"}}));
        assert_eq!(namespace["spec"], json!({"finalizers": ["kubernetes"]}));
        assert_eq!(namespace["status"], json!({"phase": "Active"}));
        assert_eq!(namespace["metadata"]["labels"], json!({"kubernetes.io/metadata.name": "a"}));
    }

    #[test]
    fn gated_pods_say_so() {
        let pod = created("", "pods", json!({"spec": {"schedulingGates": [{"name": "a/b"}]}}));
        assert_eq!(pod["status"]["conditions"][0]["reason"], "SchedulingGated");
    }

    #[test]
    fn label_keys_become_requirements() {
        let pod = created(
            "",
            "pods",
            json!({"metadata": {"labels": {"v": "1"}}, "spec": {"topologySpreadConstraints": [
                {"labelSelector": {}, "matchLabelKeys": ["v", "w"]}]}}),
        );
        assert_eq!(
            pod["spec"]["topologySpreadConstraints"][0]["labelSelector"],
            json!({"matchExpressions": [{"key": "v", "operator": "In", "values": ["1"]}]})
        );
    }

    #[test]
    fn job_selectors_are_generated() {
        let job = created(
            "batch",
            "jobs",
            json!({"metadata": {"name": "j", "uid": "u"}, "spec": {"template": {}}}),
        );
        assert_eq!(
            job["spec"]["selector"],
            json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}})
        );
        assert_eq!(
            job["spec"]["template"]["metadata"]["labels"],
            json!({"batch.kubernetes.io/controller-uid": "u", "controller-uid": "u",
                "batch.kubernetes.io/job-name": "j", "job-name": "j"})
        );
        let manual =
            created("batch", "jobs", json!({"metadata": {"uid": "u"}, "spec": {"manualSelector": true}}));
        assert_eq!(manual["spec"].get("selector"), None);
    }

    #[test]
    fn generation_follows_the_desired_state() {
        let old = created("apps", "deployments", json!({"metadata": {"name": "d"}}));
        assert_eq!(updated("apps", "deployments", &old, old.clone())["metadata"]["generation"], 1);
        let mut new = old.clone();
        new["spec"]["replicas"] = json!(3);
        new["status"] = json!({"replicas": 7});
        let new = updated("apps", "deployments", &old, new);
        assert_eq!((&new["metadata"]["generation"], &new["status"]), (&json!(2), &json!({})));
        let mut annotated = old.clone();
        annotated["metadata"]["annotations"] = json!({"a": "b"});
        assert_eq!(updated("apps", "deployments", &old, annotated)["metadata"]["generation"], 2);
        let old = created("apps", "daemonsets", json!({"metadata": {"name": "d"}}));
        assert_eq!(old["metadata"]["annotations"][TEMPLATE_GENERATION], "1");
        let mut new = old.clone();
        new["spec"]["template"]["spec"]["nodeName"] = json!("n");
        assert_eq!(
            updated("apps", "daemonsets", &old, new)["metadata"]["annotations"][TEMPLATE_GENERATION],
            "2"
        );
    }

    #[test]
    fn status_updates_change_only_status() {
        let kind = find(KubeVersion::V1_36, "", "v1", "pods").unwrap();
        let old = created("", "pods", json!({"metadata": {"name": "p"}, "spec": {"nodeName": "a"}}));
        let mut new = old.clone();
        new["spec"]["nodeName"] = json!("b");
        new["status"] = json!({"phase": "Running"});
        prepare_status_update(kind, &mut new, &old);
        assert_eq!(new["spec"]["nodeName"], "a");
        assert_eq!(new["status"], json!({"phase": "Running", "qosClass": "BestEffort"}));
    }

    #[test]
    fn services_keep_what_was_allocated() {
        let mut old = created("", "services", json!({"spec": {"ports": [{"port": 80}], "type": "NodePort"}}));
        assert_eq!(
            (&old["spec"]["ipFamilies"], &old["spec"]["ipFamilyPolicy"]),
            (&json!(["IPv4"]), &json!("SingleStack"))
        );
        old["spec"]["clusterIP"] = json!("10.0.0.1");
        old["spec"]["clusterIPs"] = json!(["10.0.0.1"]);
        old["spec"]["ports"][0]["nodePort"] = json!(30000);
        let new =
            updated("", "services", &old, json!({"spec": {"ports": [{"port": 81}], "type": "NodePort"}}));
        assert_eq!(new["spec"]["clusterIP"], "10.0.0.1");
        assert_eq!(new["spec"]["ports"][0]["nodePort"], 30000);
    }

    #[test]
    fn services_release_what_another_type_had() {
        let mut old = created("", "services", json!({"spec": {"ports": [{"port": 80}], "type": "NodePort"}}));
        merge_into(&mut old, "clusterIP", json!("10.0.0.1"));
        merge_into(&mut old, "clusterIPs", json!(["10.0.0.1"]));
        old["spec"]["ports"][0]["nodePort"] = json!(30000);
        let mut plain = old.clone();
        merge_into(&mut plain, "type", json!("ClusterIP"));
        let plain = updated("", "services", &old, plain);
        assert_eq!(
            (plain["spec"].get("externalTrafficPolicy"), plain["spec"]["ports"][0].get("nodePort")),
            (None, None)
        );
        let mut moved = old.clone();
        merge_into(&mut moved, "clusterIP", json!("10.0.0.2"));
        assert_eq!(updated("", "services", &old, moved)["spec"]["clusterIPs"], json!(["10.0.0.2"]));
        let mut external = old.clone();
        merge_into(&mut external, "type", json!("ExternalName"));
        assert_eq!(updated("", "services", &old, external)["spec"].get("clusterIP"), None);
    }

    fn merge_into(service: &mut Value, key: &str, value: Value) {
        service["spec"][key] = value;
    }

    #[track_caller]
    fn qos(resources: Value, expected: &str) {
        let pod =
            created("", "pods", json!({"spec": {"containers": [{"name": "a", "resources": resources}]}}));
        assert_eq!(pod["status"]["qosClass"], expected);
    }

    #[test]
    fn quality_of_service() {
        qos(json!({}), "BestEffort");
        qos(json!({"requests": {"example.com/gpu": 1}, "limits": {"example.com/gpu": 1}}), "BestEffort");
        qos(json!({"requests": {"cpu": 1}}), "Burstable");
        qos(json!({"limits": {"cpu": 1}}), "Burstable");
        qos(json!({"limits": {"cpu": 1, "memory": "1Gi"}}), "Guaranteed");
        qos(json!({"limits": {"cpu": 1, "memory": "1Gi"}, "requests": {"cpu": "500m"}}), "Burstable");
    }
}
