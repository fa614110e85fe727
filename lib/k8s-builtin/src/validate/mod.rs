//! Validation: what is wrong with an object, in the words and with the paths of the reference server.
//!
//! In: an object after [`crate::default`] and preparation; for an update also the stored one. Out: every error found, in
//! the order in which the reference server finds them where that order is fixed. Objects of any shape are accepted as
//! input: a value of the wrong type counts as absent, because [`crate::decode_error`] has refused it before.
//!
//! Each file lists at its top what it leaves out.

mod check;
mod core;
mod cron;
mod gang;
mod meta;
mod others;
mod pod;
mod resources;
mod scheduling;
pub(crate) mod text;
mod workloads;

use check::Check;
use k8s_schema::FieldError;
use serde_json::Value;

use crate::{Kind, json::at};

/// What is wrong with an object that is about to be created.
#[must_use]
pub fn validate_create(kind: &Kind, object: &Value) -> Vec<FieldError> {
    let mut check = Check::default();
    if !is_stored(kind) {
        review(&mut check, kind, object);
        return check.errors;
    }
    meta::create(&mut check, kind, object);
    spec(&mut check, kind, object, None);
    check.errors
}

/// What is wrong with an object that is about to replace `old`. Both are in the form that [`crate::prepare_update`]
/// leaves.
#[must_use]
pub fn validate_update(kind: &Kind, new: &Value, old: &Value) -> Vec<FieldError> {
    let mut check = Check::default();
    meta::update(&mut check, new, old);
    spec(&mut check, kind, new, Some(old));
    match (kind.group, kind.kind) {
        ("", "ConfigMap") => core::data_update(&mut check, new, old),
        ("", "Secret") => {
            check.immutable(new, old, "type");
            core::data_update(&mut check, new, old);
        }
        ("", "PersistentVolumeClaim") => core::claim_update(&mut check, new, old),
        ("", "PersistentVolume") => core::volume_update(&mut check, new, old),
        ("", "ResourceQuota") => core::quota_update(&mut check, new, old),
        ("apps", "Deployment" | "ReplicaSet" | "DaemonSet") => check.immutable(new, old, "spec.selector"),
        ("apps", "StatefulSet") => workloads::stateful_set_update(&mut check, new, old),
        ("batch", "Job") => workloads::job_update(&mut check, new, old),
        ("scheduling.k8s.io", "PriorityClass") => gang::priority_class_update(&mut check, new, old),
        ("scheduling.k8s.io", "Workload") if kind.version == "v1alpha1" => {
            gang::workload_v1alpha1_update(&mut check, new, old);
        }
        ("scheduling.k8s.io", "Workload") => gang::workload_update(&mut check, new, old),
        ("scheduling.k8s.io", "PodGroup") => gang::pod_group_update(&mut check, new, old),
        _ => others::update(&mut check, kind, new, old),
    }
    check.errors
}

/// What is wrong with an object whose status is about to replace that of `old`.
#[must_use]
pub fn validate_status_update(kind: &Kind, new: &Value, old: &Value) -> Vec<FieldError> {
    let mut check = Check::default();
    meta::update(&mut check, new, old);
    match (kind.group, kind.kind) {
        ("", "Pod") => pod::status(&mut check, new, old),
        ("", "Node") => core::node(&mut check, new, Some(old)),
        ("", "Namespace") => core::namespace_status(&mut check, new),
        ("apps", _)
        | ("", "ReplicationController")
        | ("autoscaling", _)
        | ("policy", "PodDisruptionBudget") => {
            workloads::status(&mut check, kind.kind, new, old);
        }
        ("batch", "Job") => workloads::job_status(&mut check, new, old),
        ("scheduling.k8s.io", "PodGroup") => {
            meta::conditions(&mut check, new);
            gang::pod_group_status(&mut check, new);
        }
        ("", "ResourceQuota") => core::quota_status(&mut check, new),
        ("resource.k8s.io", "ResourceClaim") => others::claim_status(&mut check, new, old),
        _ => {}
    }
    check.errors
}

/// What is wrong with an object that differs from `old` in nothing but its metadata.
#[must_use]
pub fn validate_bookkeeping(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut check = Check::default();
    meta::update(&mut check, new, old);
    check.errors
}

/// What is wrong with a pod that is about to replace `old` at `pods/ephemeralcontainers`.
#[must_use]
pub fn validate_ephemeral_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut check = Check::default();
    meta::update(&mut check, new, old);
    pod::ephemeral_update(&mut check, new, old);
    check.errors
}

/// What is wrong with a pod that is about to replace `old` at `pods/resize`.
#[must_use]
pub fn validate_resize(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut check = Check::default();
    meta::update(&mut check, new, old);
    pod::resize(&mut check, new, old);
    check.errors
}

/// What is wrong with the body of `pods/binding` or `bindings`.
#[must_use]
pub fn validate_binding(binding: &Value) -> Vec<FieldError> {
    let mut check = Check::default();
    core::binding(&mut check, binding);
    check.errors
}

/// What is wrong with an `autoscaling/v1` Scale.
#[must_use]
pub fn validate_scale(scale: &Value) -> Vec<FieldError> {
    let mut check = Check::default();
    others::scale(&mut check, scale);
    check.errors
}

/// What is wrong with the metadata of a custom resource.
#[must_use]
pub fn validate_custom_meta(object: &Value, namespaced: bool) -> Vec<FieldError> {
    let mut check = Check::default();
    meta::custom(&mut check, object, namespaced);
    check.errors
}

/// Reviews and bindings are answered, not stored.
fn is_stored(kind: &Kind) -> bool {
    kind.verbs.contains(&"get")
}

fn spec(check: &mut Check, kind: &Kind, object: &Value, old: Option<&Value>) {
    match (kind.group, kind.kind) {
        ("", "Pod") => match old {
            None => pod::create(check, object),
            Some(old) => pod::update(check, object, old),
        },
        ("", "PodTemplate") => pod::template(check, at(object, "template"), "template"),
        ("", "ReplicationController") => workloads::replication_controller(check, object),
        ("", "Service") => core::service(check, object, old),
        ("", "Node") => core::node(check, object, old),
        ("", "ConfigMap") => core::config_map(check, object),
        ("", "Secret") => core::secret(check, object),
        ("", "ResourceQuota") => core::quota(check, object),
        ("", "LimitRange") => core::limit_range(check, object),
        ("", "PersistentVolumeClaim") => core::claim_spec(check, at(object, "spec"), "spec"),
        ("", "PersistentVolume") => core::volume(check, object),
        ("", "Endpoints") => core::endpoints(check, object),
        ("", "Event") => core::event(check, object),
        // Asked for in the newer version, whose rules are stricter; the object is in the stored form all the same.
        ("events.k8s.io", "Event") if old.is_none() => core::new_event(check, object),
        ("apps", "Deployment") => workloads::deployment(check, object),
        ("apps", "ReplicaSet") => workloads::replica_set(check, object),
        ("apps", "DaemonSet") => workloads::daemon_set(check, object),
        ("apps", "StatefulSet") => workloads::stateful_set(check, object, old.is_none()),
        ("batch", "Job") => workloads::job(check, object, old),
        ("batch", "CronJob") => workloads::cron_job(check, object, old),
        ("scheduling.k8s.io", "PriorityClass") if old.is_none() => gang::priority_class(check, object),
        ("scheduling.k8s.io", "Workload") if kind.version == "v1alpha1" => {
            gang::workload_v1alpha1(check, object)
        }
        ("scheduling.k8s.io", "Workload") => gang::workload(check, object),
        ("scheduling.k8s.io", "PodGroup") => gang::pod_group(check, object),
        _ => others::object(check, kind, object, old.is_none()),
    }
}

fn review(check: &mut Check, kind: &Kind, object: &Value) {
    match kind.kind {
        "Binding" => core::binding(check, object),
        "TokenReview" if crate::json::text(object, "spec.token").is_empty() => {
            check.required("spec.token", "")
        }
        "SelfSubjectAccessReview" | "SubjectAccessReview" | "LocalSubjectAccessReview" => {
            access_review(check, kind, object)
        }
        _ => {}
    }
}

fn access_review(check: &mut Check, kind: &Kind, object: &Value) {
    let spec = at(object, "spec");
    let has = |field: &str| crate::json::has(spec, field);
    match (has("resourceAttributes"), has("nonResourceAttributes")) {
        (true, true) => check.invalid(
            "spec.nonResourceAttributes",
            at(spec, "nonResourceAttributes").clone(),
            "cannot be specified in combination with resourceAttributes",
        ),
        (false, false) => check.invalid(
            "spec.resourceAttributes",
            Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ),
        _ => {}
    }
    let is_self = kind.kind == "SelfSubjectAccessReview";
    if !is_self && crate::json::text(spec, "user").is_empty() && crate::json::list(spec, "groups").is_empty()
    {
        check.invalid("spec.user", "", "at least one of user or group must be specified");
    }
}

#[cfg(test)]
mod tests;
