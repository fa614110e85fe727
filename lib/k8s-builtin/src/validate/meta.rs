//! Metadata: names by kind, labels, annotations, owners and finalizers.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{check::Check, text};
use crate::{
    Kind,
    json::{at, entries, flag, has, list, text},
};

/// All annotations of an object together may have this many bytes.
const ANNOTATIONS_LIMIT: usize = 256 << 10;

/// What a name of this kind may look like.
pub(super) fn name_format(kind: &Kind) -> fn(&str) -> Vec<String> {
    match (kind.group, kind.kind) {
        ("", "Namespace" | "Service") | ("apps", "StatefulSet") => text::dns_label,
        ("rbac.authorization.k8s.io", _) => text::path_segment,
        _ => text::dns_subdomain,
    }
}

/// The metadata of a new object.
pub(super) fn create(check: &mut Check, kind: &Kind, object: &Value) {
    names(check, object, name_format(kind), kind.namespaced);
    common(check, object);
    finalizers(check, object, true);
}

/// The metadata of a custom resource, new or changed.
pub(super) fn custom(check: &mut Check, object: &Value, namespaced: bool) {
    names(check, object, text::dns_subdomain, namespaced);
    common(check, object);
    finalizers(check, object, false);
}

/// Conditions of the common form in a status.
pub(super) fn conditions(check: &mut Check, object: &Value) {
    let mut kinds: BTreeSet<&str> = BTreeSet::new();
    for (idx, condition) in list(object, "status.conditions").iter().enumerate() {
        let base = format!("status.conditions[{idx}]");
        let (kind, status, reason) =
            (text(condition, "type"), text(condition, "status"), text(condition, "reason"));
        if kinds.contains(&kind) {
            check.duplicate(format_args!("{base}.type"), kind);
        }
        kinds.insert(kind);
        check.format(format_args!("{base}.type"), kind, text::label_key(kind));
        if !["False", "True", "Unknown"].contains(&status) {
            check.unsupported(format_args!("{base}.status"), status, &["False", "True", "Unknown"]);
        }
        if let Some(generation) = at(condition, "observedGeneration").as_i64().filter(|number| *number < 0) {
            let detail = "must be greater than or equal to zero";
            check.invalid(format_args!("{base}.observedGeneration"), generation, detail);
        }
        if !has(condition, "lastTransitionTime") {
            check.required(format_args!("{base}.lastTransitionTime"), "");
        }
        if reason.is_empty() {
            check.required(format_args!("{base}.reason"), "");
        }
        if reason.len() > 1024 {
            check.too_long(format_args!("{base}.reason"), 1024);
        }
        if text(condition, "message").len() > 32 << 10 {
            check.too_long(format_args!("{base}.message"), 32 << 10);
        }
    }
}

fn names(check: &mut Check, object: &Value, format: fn(&str) -> Vec<String>, namespaced: bool) {
    let prefix = text(object, "metadata.generateName");
    if !prefix.is_empty() {
        check.format("metadata.generateName", prefix, format(&without_trailing_dash(prefix)));
    }
    let name = text(object, "metadata.name");
    if name.is_empty() {
        check.required("metadata.name", "name or generateName is required");
    } else {
        check.format("metadata.name", name, format(name));
    }
    let namespace = text(object, "metadata.namespace");
    if namespaced {
        if namespace.is_empty() {
            check.required("metadata.namespace", "");
        } else {
            check.format("metadata.namespace", namespace, text::dns_label(namespace));
        }
    } else if !namespace.is_empty() {
        check.forbidden("metadata.namespace", "not allowed on this type");
    }
    check.not_negative(at(object, "metadata"), "generation", "metadata");
}

/// The metadata of a changed object.
pub(super) fn update(check: &mut Check, new: &Value, old: &Value) {
    if has(old, "metadata.deletionTimestamp") {
        let known: BTreeSet<&str> =
            list(old, "metadata.finalizers").iter().filter_map(Value::as_str).collect();
        let mut added: Vec<&str> = list(new, "metadata.finalizers")
            .iter()
            .filter_map(Value::as_str)
            .filter(|name| !known.contains(name))
            .collect();
        added.sort_unstable();
        if !added.is_empty() {
            let names: Vec<String> = added.iter().map(|name| format!("{name:?}")).collect();
            check.forbidden(
                "metadata.finalizers",
                format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                    names.join(", ")
                ),
            );
        }
    }
    if text(new, "metadata.resourceVersion").is_empty() {
        check.invalid("metadata.resourceVersion", "", "must be specified for an update");
    }
    let generation = |object: &Value| at(object, "metadata.generation").as_i64().unwrap_or(0);
    if generation(new) < generation(old) {
        check.invalid("metadata.generation", generation(new), "must not be decremented");
    }
    for field in
        ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"]
    {
        check.immutable(new, old, &format!("metadata.{field}"));
    }
    common(check, new);
}

/// Labels and annotations of a template inside another object.
pub(super) fn template(check: &mut Check, template: &Value, path: &str) {
    check.labels(at(template, "metadata.labels"), &format!("{path}.labels"));
    annotations(check, at(template, "metadata.annotations"), &format!("{path}.annotations"));
}

fn common(check: &mut Check, object: &Value) {
    check.labels(at(object, "metadata.labels"), "metadata.labels");
    annotations(check, at(object, "metadata.annotations"), "metadata.annotations");
    owners(check, object);
    for (idx, entry) in list(object, "metadata.managedFields").iter().enumerate() {
        let base = format!("metadata.managedFields[{idx}]");
        let operation = text(entry, "operation");
        if !matches!(operation, "Apply" | "Update") {
            check.invalid(format_args!("{base}.operation"), operation, "must be `Apply` or `Update`");
        }
        let fields_type = text(entry, "fieldsType");
        if !matches!(fields_type, "" | "FieldsV1") {
            check.invalid(format_args!("{base}.fieldsType"), fields_type, "must be `FieldsV1`");
        }
        if text(entry, "manager").len() > 128 {
            check.too_long(format_args!("{base}.manager"), 128);
        }
    }
}

fn annotations(check: &mut Check, annotations: &Value, path: &str) {
    let mut size = 0_usize;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        check.format(path, key, text::label_key(&key.to_lowercase()));
        size = size.saturating_add(key.len()).saturating_add(value.as_str().map_or(0, str::len));
    }
    if size > ANNOTATIONS_LIMIT {
        check.too_long(path, 256 << 10);
    }
}

fn owners(check: &mut Check, object: &Value) {
    let path = "metadata.ownerReferences";
    let mut controller = String::new();
    for owner in list(object, path) {
        let version = text(owner, "apiVersion");
        if version.is_empty() || version.ends_with('/') {
            check.invalid(format_args!("{path}.apiVersion"), version, "version must not be empty");
        }
        for field in ["kind", "name", "uid"] {
            if text(owner, field).is_empty() {
                check.invalid(format_args!("{path}.{field}"), "", "must not be empty");
            }
        }
        if version == "v1" && text(owner, "kind") == "Event" {
            check.invalid(path, owner.clone(), "/v1, Kind=Event is disallowed from being an owner");
        }
        if flag(owner, "controller") {
            let this = format!("{}/{}", text(owner, "kind"), text(owner, "name"));
            if controller.is_empty() {
                controller = this;
            } else {
                let detail = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {controller} and \
                     {this}"
                );
                // The whole list is shown, so once is enough.
                check.invalid(path, at(object, path).clone(), detail);
                return;
            }
        }
    }
}

/// Built-in kinds refuse plain names that are not their own.
fn finalizers(check: &mut Check, object: &Value, is_strict: bool) {
    let names = list(object, "metadata.finalizers");
    for (idx, name) in names.iter().enumerate() {
        let name = name.as_str().unwrap_or_default();
        check.format("metadata.finalizers", name, text::label_key(name));
        if is_strict && !name.contains('/') && !matches!(name, "kubernetes" | "orphan" | "foregroundDeletion")
        {
            check.invalid(
                format_args!("metadata.finalizers[{idx}]"),
                name,
                "name is neither a standard finalizer name nor is it fully qualified",
            );
        }
    }
    let has_name = |wanted: &str| names.iter().any(|name| name == wanted);
    if has_name("orphan") && has_name("foregroundDeletion") {
        check.invalid(
            "metadata.finalizers",
            at(object, "metadata.finalizers").clone(),
            "finalizer orphan and foregroundDeletion cannot be both set",
        );
    }
}

/// A generated name gets more letters, so a dash at the end of its prefix is fine.
fn without_trailing_dash(prefix: &str) -> String {
    match prefix.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let mut chars = rest.chars();
            chars.next_back();
            format!("{}a", chars.as_str())
        }
        _ => prefix.to_owned(),
    }
}

/// Whether a mirror of a static pod.
pub(super) fn is_mirror(pod: &Value) -> bool {
    entries(pod, "metadata.annotations").any(|(key, _)| key == "kubernetes.io/config.mirror")
}
