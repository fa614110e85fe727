//! Defaulting: what a field is when nobody says so.
//!
//! In: an object as a client sent it. Out: the object in normal form, with fixed defaults (`=` in the data files),
//! computed defaults (the functions here, one per type) and the zero values that the reference server always writes.
//! What must stay true: defaulting twice equals defaulting once.
//!
//! Defaults that need a clock (the time a device taint was added) or other objects (addresses of a service, priority)
//! are the server's.

mod apps;
mod image;
mod pod;
pub(crate) mod resources;

use k8s_schema::Type;
use serde_json::{Map, Value, json};

use crate::{
    Kind,
    data::{Ty, TypeId, Types},
    json::{
        at, at_mut, child, entries, flag, has, int, list, list_mut, remove, set, set_default,
        set_default_text, text,
    },
    normal,
    prepare::{TEMPLATE_GENERATION, set_template_generation},
};

/// Puts an object of this kind into normal form and fills in every default.
pub fn default(kind: &Kind, object: &mut Value) {
    let types = kind.types();
    debug_assert_eq!(kind.schema.ty, Type::Object, "every kind is an object");
    normal::normalize(types, &Ty::Ref(kind.type_id), object);
    convert_before(kind, object);
    fill(types, kind.type_id, object);
    // The reference server keeps this number apart and writes it into every DaemonSet it encodes.
    if (kind.group, kind.kind) == ("apps", "DaemonSet")
        && !at(object, "metadata.annotations")
            .as_object()
            .is_some_and(|a| a.contains_key(TEMPLATE_GENERATION))
    {
        set_template_generation(object, 0);
    }
}

/// The same for an object of which only some members are at hand, such as its metadata and its status: what the others have stays with them.
/// Only for objects of kinds that say so ([`crate::is_kept_apart`]): others have defaults that depend on several members.
pub fn default_members(kind: &Kind, object: &mut Value) {
    let types = kind.types();
    normal::normalize(types, &Ty::Ref(kind.type_id), object);
    convert_before(kind, object);
    let Some(members) = object.as_object_mut() else { return };
    let def = types.get(kind.type_id);
    for (name, entry) in members.iter_mut() {
        if let Some(field) = def.field(name).filter(|field| field.filled) {
            fill_entry(types, &field.ty, entry);
        }
    }
}

/// The empty object of this kind: no defaults, only the fields that are always written.
///
/// Field managers start from it, so that nobody owns a field that nobody set.
#[must_use]
pub fn blank(kind: &Kind) -> Value {
    let mut object = Value::Object(Map::new());
    write_zeros(kind.types(), kind.type_id, &mut object);
    object
}

fn write_zeros(types: &Types, id: TypeId, object: &mut Value) {
    for field in types.get(id).unasked().filter(|field| field.always) {
        let mut zero = normal::zero(field);
        if let (Ty::Ref(id), true) = (&field.ty, zero.is_object()) {
            write_zeros(types, *id, &mut zero);
        }
        set(object, field.name, zero);
    }
}

/// Fills the defaults below a value of type `id` that is in normal form.
pub(crate) fn fill(types: &Types, id: TypeId, value: &mut Value) {
    let def = types.get(id);
    let Some(map) = value.as_object_mut() else { return };
    for field in def.unasked() {
        if field.always && !field.keep_zero && matches!(field.ty, Ty::Ref(_)) && absent(map, field.name) {
            map.insert(field.name.to_owned(), Value::Object(Map::new()));
        }
    }
    if let Some(compute) = def.computed.before {
        compute(value);
    }
    let Some(map) = value.as_object_mut() else { return };
    for field in def.unasked() {
        if let Some(default) = &field.default
            && absent(map, field.name)
        {
            map.insert(field.name.to_owned(), default.clone());
        }
    }
    for (name, entry) in map.iter_mut() {
        if let Some(field) = def.field(name).filter(|field| field.filled) {
            fill_entry(types, &field.ty, entry);
        }
    }
    if let Some(compute) = def.computed.after {
        compute(value);
    }
    let Some(map) = value.as_object_mut() else { return };
    for field in def.unasked() {
        if field.always && absent(map, field.name) {
            map.insert(field.name.to_owned(), normal::zero(field));
        }
    }
}

fn fill_entry(types: &Types, ty: &Ty, value: &mut Value) {
    match ty {
        Ty::Ref(id) => fill(types, *id, value),
        Ty::List(item) => {
            value.as_array_mut().into_iter().flatten().for_each(|entry| fill_entry(types, item, entry))
        }
        Ty::Map(item) if matches!(**item, Ty::Quantity) => {
            // Resource lists hold no more than thousandths.
            for (_, entry) in value.as_object_mut().into_iter().flatten() {
                if let Some(quantity) = normal::quantity(entry)
                    && quantity.round_up(-3) != quantity
                {
                    *entry = Value::String(quantity.round_up(-3).to_string());
                }
            }
        }
        Ty::Map(item) => {
            value.as_object_mut().into_iter().flatten().for_each(|(_, entry)| fill_entry(types, item, entry));
        }
        _ => {}
    }
}

fn absent(map: &Map<String, Value>, key: &str) -> bool {
    map.get(key).is_none_or(Value::is_null)
}

/// What the reference server changes while it reads an object.
fn convert_before(kind: &Kind, object: &mut Value) {
    match kind.kind {
        "Secret" => merge_string_data(object),
        "Pod" => {
            pod::mirror(object, "status.podIPs", "podIP");
            pod::mirror(object, "status.hostIPs", "hostIP");
        }
        "Node" => mirror_cidrs(object),
        _ => {}
    }
}

/// The computed defaults of a type.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Computed {
    /// Before its children get theirs.
    before: Option<fn(&mut Value)>,
    /// Those that look at what its children got.
    after: Option<fn(&mut Value)>,
}

impl Computed {
    pub(crate) fn of(type_name: &str) -> Self {
        let before: fn(&mut Value) = match type_name {
            "core.v1.Pod" => return Computed { before: Some(pod::pod), after: Some(pod::pod_level) },
            "core.v1.PodSpec" => pod::spec,
            "core.v1.Container" | "core.v1.EphemeralContainer" => pod::container,
            "core.v1.Volume" => pod::volume,
            "core.v1.Service" => service,
            "core.v1.ReplicationController" => |value| apps::labels_from_template(value, true),
            "core.v1.Namespace" => namespace,
            "core.v1.NodeStatus" => node_status,
            "core.v1.LimitRangeItem" => limit_range_item,
            "apps.v1.DeploymentStrategy" | "apps.v1.DaemonSetUpdateStrategy" => apps::rolling_update,
            "apps.v1.StatefulSetUpdateStrategy" => apps::stateful_set_update,
            "apps.v1.StatefulSetSpec" => apps::claim_templates,
            "batch.v1.Job" => apps::job,
            "autoscaling.v2.HorizontalPodAutoscaler" => apps::autoscaler,
            "networking.v1.NetworkPolicySpec" => network_policy,
            "rbac.v1.Subject" => subject,
            "resource.v1.ExactDeviceRequest" | "resource.v1.DeviceSubRequest" => device_request,
            "apiextensions.v1.CustomResourceDefinition" => custom_resource_definition,
            _ => return Computed::default(),
        };
        Computed { before: Some(before), after: None }
    }

    pub(crate) fn is_nothing(self) -> bool {
        self.before.is_none() && self.after.is_none()
    }
}

fn merge_string_data(secret: &mut Value) {
    let Some(Value::Object(texts)) = remove(secret, "stringData") else { return };
    let Some(data) = child(secret, "data") else { return };
    for (key, value) in texts {
        if let Value::String(plain) = value {
            set(data, &key, base64(plain.as_bytes()));
        }
    }
}

/// Standard base64 with padding.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word =
            chunk.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for idx in 0..4_usize {
            let sextet = (word >> (18 - 6 * idx)) & 63;
            let letter = ALPHABET.get(sextet as usize).copied().unwrap_or(b'=');
            out.push(if idx <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    out
}

fn mirror_cidrs(node: &mut Value) {
    let first = list(node, "spec.podCIDRs").first().cloned();
    let single = at(node, "spec.podCIDR").clone();
    let Some(spec) = at_mut(node, "spec") else { return };
    match (first, single) {
        // The older field wins where they differ, for clients that know only that one.
        (first, single @ Value::String(_)) if first.as_ref() != Some(&single) => {
            set(spec, "podCIDRs", json!([single]));
        }
        (Some(first), Value::Null) => set(spec, "podCIDR", first),
        _ => {}
    }
}

fn namespace(namespace: &mut Value) {
    let name = text(namespace, "metadata.name").to_owned();
    if !name.is_empty()
        && let Some(meta) = at_mut(namespace, "metadata")
        && let Some(labels) = child(meta, "labels")
    {
        set(labels, "kubernetes.io/metadata.name", name);
    }
}

fn node_status(status: &mut Value) {
    if !has(status, "allocatable") && has(status, "capacity") {
        let capacity = at(status, "capacity").clone();
        set(status, "allocatable", capacity);
    }
}

fn limit_range_item(item: &mut Value) {
    if text(item, "type") != "Container" {
        return;
    }
    for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
        let source: Vec<_> = entries(item, from).map(|(name, value)| (name.clone(), value.clone())).collect();
        if source.is_empty() {
            continue;
        }
        if let Some(target) = child(item, to) {
            for (name, value) in source {
                set_default(target, &name, value);
            }
        }
    }
}

fn service(service: &mut Value) {
    let is_load_balancer = text(service, "spec.type") == "LoadBalancer";
    if is_load_balancer {
        for ingress in list_mut(service, "status.loadBalancer.ingress") {
            if !text(ingress, "ip").is_empty() {
                set_default(ingress, "ipMode", "VIP");
            }
        }
    }
    let Some(spec) = at_mut(service, "spec") else { return };
    set_default_text(spec, "sessionAffinity", "None");
    set_default_text(spec, "type", "ClusterIP");
    match text(spec, "sessionAffinity") {
        "None" => {
            remove(spec, "sessionAffinityConfig");
        }
        "ClientIP" if !has(spec, "sessionAffinityConfig.clientIP.timeoutSeconds") => {
            set(spec, "sessionAffinityConfig", json!({"clientIP": {"timeoutSeconds": 10800}}));
        }
        _ => {}
    }
    for port in list_mut(spec, "ports") {
        let target = at(port, "targetPort");
        if target.is_null() || target.as_i64() == Some(0) || target.as_str() == Some("") {
            let number = at(port, "port").clone();
            if number.is_number() {
                set(port, "targetPort", number);
            }
        }
    }
    let kind = text(spec, "type").to_owned();
    let is_reachable = kind == "NodePort"
        || kind == "LoadBalancer"
        || kind == "ClusterIP" && !list(spec, "externalIPs").is_empty();
    if is_reachable {
        set_default_text(spec, "externalTrafficPolicy", "Cluster");
    }
    if ["NodePort", "LoadBalancer", "ClusterIP"].contains(&kind.as_str()) {
        set_default(spec, "internalTrafficPolicy", "Cluster");
    }
    if is_load_balancer {
        set_default(spec, "allocateLoadBalancerNodePorts", true);
    }
}

fn network_policy(spec: &mut Value) {
    if list(spec, "policyTypes").is_empty() {
        let types =
            if list(spec, "egress").is_empty() { json!(["Ingress"]) } else { json!(["Ingress", "Egress"]) };
        set(spec, "policyTypes", types);
    }
}

fn subject(subject: &mut Value) {
    if matches!(text(subject, "kind"), "User" | "Group") {
        set_default_text(subject, "apiGroup", "rbac.authorization.k8s.io");
    }
}

fn device_request(request: &mut Value) {
    set_default_text(request, "allocationMode", "ExactCount");
    if text(request, "allocationMode") == "ExactCount" && int(request, "count").unwrap_or(0) == 0 {
        set_default(request, "count", 1);
    }
}

fn custom_resource_definition(crd: &mut Value) {
    let kind = text(crd, "spec.names.kind").to_owned();
    if let Some(names) = at_mut(crd, "spec.names") {
        set_default_text(names, "singular", &kind.to_lowercase());
        if !kind.is_empty() {
            set_default_text(names, "listKind", &format!("{kind}List"));
        }
    }
    let stored = list(crd, "spec.versions")
        .iter()
        .find(|version| flag(version, "storage"))
        .map(|v| at(v, "name").clone());
    if list(crd, "status.storedVersions").is_empty()
        && let (Some(name), Some(status)) = (stored, at_mut(crd, "status"))
    {
        set(status, "storedVersions", json!([name]));
    }
}

#[cfg(test)]
mod tests;
