//! The kinds that make pods: deployments and their like, jobs and cron jobs.
//!
//! Left out, and so accepted: the lists of indexes in a job's status, and the rules of a success policy.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    check::{Check, selector_matches},
    core, cron, pod, text,
};
use crate::json::{at, at_mut, copy_field, entries, flag, has, int, list, list_mut, remove, set, text};

/// A deployment.
pub(super) fn deployment(check: &mut Check, object: &Value) {
    let spec = at(object, "spec");
    check.not_negative(spec, "replicas", "spec");
    selector_and_template(check, spec, "deployment", "ReplicaSet");
    match text(spec, "strategy.type") {
        "Recreate" => {
            if has(spec, "strategy.rollingUpdate") {
                let detail = "may not be specified when strategy `type` is 'Recreate'";
                check.forbidden("spec.strategy.rollingUpdate", detail);
            }
        }
        "RollingUpdate" => {
            let update = at(spec, "strategy.rollingUpdate");
            let path = "spec.strategy.rollingUpdate";
            for field in ["maxUnavailable", "maxSurge"] {
                int_or_percent(check, at(update, field), &format!("{path}.{field}"));
            }
            if amount(at(update, "maxUnavailable")) == 0 && amount(at(update, "maxSurge")) == 0 {
                check.invalid(
                    format_args!("{path}.maxUnavailable"),
                    at(update, "maxUnavailable").clone(),
                    "may not be 0 when `maxSurge` is 0",
                );
            }
            at_most_all(check, at(update, "maxUnavailable"), &format!("{path}.maxUnavailable"));
        }
        _ => check.unsupported("spec.strategy", at(spec, "strategy").clone(), &["Recreate", "RollingUpdate"]),
    }
    for field in ["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"] {
        check.not_negative(spec, field, "spec");
    }
    if let Some(deadline) = int(spec, "progressDeadlineSeconds")
        && deadline <= int(spec, "minReadySeconds").unwrap_or(0)
    {
        check.invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds");
    }
}

/// A replica set.
pub(super) fn replica_set(check: &mut Check, object: &Value) {
    let spec = at(object, "spec");
    for field in ["replicas", "minReadySeconds"] {
        check.not_negative(spec, field, "spec");
    }
    selector_and_template(check, spec, "deployment", "ReplicaSet");
}

/// A replication controller.
pub(super) fn replication_controller(check: &mut Check, object: &Value) {
    let spec = at(object, "spec");
    for field in ["minReadySeconds", "replicas"] {
        check.not_negative(spec, field, "spec");
    }
    let selector = at(spec, "selector");
    if entries(spec, "selector").next().is_none() {
        check.required("spec.selector", "");
    }
    let template = at(spec, "template");
    if template.is_null() {
        check.required("spec.template", "");
        return;
    }
    let labels = at(template, "metadata.labels");
    if !entries(spec, "selector").all(|(key, value)| labels.get(key) == Some(value)) && selector.is_object() {
        let detail = "`selector` does not match template `labels`";
        check.invalid("spec.template.metadata.labels", labels.clone(), detail);
    }
    always_template(check, template, "ReplicationController");
}

/// A daemon set.
pub(super) fn daemon_set(check: &mut Check, object: &Value) {
    let spec = at(object, "spec");
    let selector = at(spec, "selector");
    check.selector(selector, "spec.selector");
    let labels = at(spec, "template.metadata.labels");
    if selector_matches(selector, labels) == Some(false) {
        let detail = "`selector` does not match template `labels`";
        check.invalid("spec.template.metadata.labels", labels.clone(), detail);
    }
    if is_empty_selector(selector) {
        check.invalid("spec.selector", selector.clone(), "empty selector is invalid for daemonset");
    }
    always_template(check, at(spec, "template"), "DaemonSet");
    check.not_negative(spec, "minReadySeconds", "spec");
    match text(spec, "updateStrategy.type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let update = at(spec, "updateStrategy.rollingUpdate");
            let path = "spec.updateStrategy.rollingUpdate";
            if update.is_null() {
                check.required(path, "");
                return;
            }
            for field in ["maxUnavailable", "maxSurge"] {
                int_or_percent(check, at(update, field), &format!("{path}.{field}"));
                at_most_all(check, at(update, field), &format!("{path}.{field}"));
            }
            match (amount(at(update, "maxUnavailable")) != 0, amount(at(update, "maxSurge")) != 0) {
                (true, true) => check.invalid(
                    format_args!("{path}.maxSurge"),
                    at(update, "maxSurge").clone(),
                    "may not be set when maxUnavailable is non-zero",
                ),
                (false, false) => {
                    check.required(format_args!("{path}.maxUnavailable"), "cannot be 0 when maxSurge is 0");
                }
                _ => {}
            }
        }
        _ => check.unsupported(
            "spec.updateStrategy",
            at(spec, "updateStrategy").clone(),
            &["RollingUpdate", "OnDelete"],
        ),
    }
    check.not_negative(spec, "revisionHistoryLimit", "spec");
}

/// A stateful set.
pub(super) fn stateful_set(check: &mut Check, object: &Value, is_new: bool) {
    let spec = at(object, "spec");
    match text(spec, "podManagementPolicy") {
        "" => check.required("spec.podManagementPolicy", ""),
        "OrderedReady" | "Parallel" => {}
        other => check.invalid("spec.podManagementPolicy", other, "must be 'OrderedReady' or 'Parallel'"),
    }
    let update = at(spec, "updateStrategy.rollingUpdate");
    match text(spec, "updateStrategy.type") {
        "" => check.required("spec.updateStrategy", ""),
        "OnDelete" => {
            if !update.is_null() {
                check.invalid(
                    "spec.updateStrategy.rollingUpdate",
                    update.clone(),
                    "only allowed for updateStrategy 'RollingUpdate'",
                );
            }
        }
        "RollingUpdate" => {
            check.not_negative(update, "partition", "spec.updateStrategy.rollingUpdate");
            if has(update, "maxUnavailable") {
                let path = "spec.updateStrategy.rollingUpdate.maxUnavailable";
                int_or_percent(check, at(update, "maxUnavailable"), path);
                if amount(at(update, "maxUnavailable")) == 0 {
                    check.invalid(path, at(update, "maxUnavailable").clone(), "cannot be 0");
                }
                at_most_all(check, at(update, "maxUnavailable"), path);
            }
        }
        _ => {
            let detail = "must be 'RollingUpdate' or 'OnDelete'";
            check.invalid("spec.updateStrategy", at(spec, "updateStrategy").clone(), detail);
        }
    }
    for field in ["whenDeleted", "whenScaled"] {
        let policy = text(at(spec, "persistentVolumeClaimRetentionPolicy"), field);
        let path = format!("spec.persistentVolumeClaimRetentionPolicy.{field}");
        if has(spec, "persistentVolumeClaimRetentionPolicy") && !["Retain", "Delete"].contains(&policy) {
            check.unsupported(&path, policy, &["Retain", "Delete"]);
        }
    }
    if is_new {
        for (idx, claim) in list(spec, "volumeClaimTemplates").iter().enumerate() {
            core::claim_spec(check, at(claim, "spec"), &format!("spec.volumeClaimTemplates[{idx}].spec"));
        }
    }
    for field in ["replicas", "minReadySeconds"] {
        check.not_negative(spec, field, "spec");
    }
    check.not_negative(at(spec, "ordinals"), "start", "spec.ordinals");
    let service = text(spec, "serviceName");
    if is_new && !service.is_empty() {
        check.format("spec.serviceName", service, text::dns_label(service));
    }
    let selector = at(spec, "selector");
    required_selector(check, selector, "statefulset");
    let template = template_with_claims(spec);
    let labels = at(&template, "metadata.labels");
    match selector_matches(selector, labels) {
        None => check.invalid("spec.selector", selector.clone(), ""),
        Some(is_match) => {
            if !is_match && !is_empty_selector(selector) {
                let detail = "`selector` does not match template `labels`";
                check.invalid("spec.template.metadata.labels", labels.clone(), detail);
            }
            pod::template(check, &template, "spec.template");
        }
    }
    always_running(check, &template, "StatefulSet");
}

/// What may not change in a stateful set.
pub(super) fn stateful_set_update(check: &mut Check, new: &Value, old: &Value) {
    let mut masked = at(new, "spec").clone();
    let old_spec = at(old, "spec");
    for field in [
        "replicas",
        "template",
        "updateStrategy",
        "minReadySeconds",
        "ordinals",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
    ] {
        copy_field(&mut masked, old_spec, field);
    }
    if masked != *old_spec {
        check.forbidden(
            "spec",
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', \
             'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        );
    }
}

/// Counters in the status of any of these kinds.
pub(super) fn status(check: &mut Check, kind: &str, new: &Value, old: &Value) {
    let status = at(new, "status");
    for (field, value) in status.as_object().into_iter().flatten() {
        if value.is_number() {
            check.not_negative(status, field, "status");
        }
    }
    if !matches!(kind, "Deployment" | "ReplicaSet" | "ReplicationController" | "StatefulSet") {
        return;
    }
    let count = |field: &str| int(status, field).unwrap_or(0);
    let parts: &[&str] = match kind {
        "Deployment" => &["updatedReplicas", "readyReplicas", "availableReplicas"],
        "StatefulSet" => &["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"],
        _ => &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
    };
    for field in parts {
        if count(field) > count("replicas") {
            check.invalid(
                format_args!("status.{field}"),
                count(field),
                "cannot be greater than status.replicas",
            );
        }
    }
    if count("availableReplicas") > count("readyReplicas") {
        let detail = if kind == "StatefulSet" {
            "cannot be greater than status.readyReplicas"
        } else {
            "cannot be greater than readyReplicas"
        };
        check.invalid("status.availableReplicas", count("availableReplicas"), detail);
    }
    if count("collisionCount") < int(old, "status.collisionCount").unwrap_or(0) {
        check.invalid("status.collisionCount", count("collisionCount"), "cannot be decremented");
    }
}

/// A job, new or in the place of `old`: a changed uid or name no longer fits the labels that were made of it.
pub(super) fn job(check: &mut Check, job: &Value, old: Option<&Value>) {
    generated_selector(check, job, old);
    whole_job_spec(check, job);
    let spec = at(job, "spec");
    if text(spec, "completionMode") == "Indexed"
        && let Some(completions) = int(spec, "completions").filter(|n| *n > 0)
    {
        let name = text(job, "metadata.name");
        let last = format!("{name}-{}", completions - 1);
        if !text::dns_label(&last).is_empty() {
            let detail = format!("will not able to create pod with invalid DNS label: {last}");
            check.invalid("metadata.name", name, detail);
        }
    }
}

/// The spec of a job with its selector.
fn whole_job_spec(check: &mut Check, job: &Value) {
    let spec = at(job, "spec");
    job_spec(check, spec, "spec");
    let selector = at(spec, "selector");
    if selector.is_null() {
        check.required("spec.selector", "");
    } else {
        check.selector(selector, "spec.selector");
    }
    let labels = at(spec, "template.metadata.labels");
    if selector_matches(selector, labels) == Some(false) {
        let detail = "`selector` does not match template `labels`";
        check.invalid("spec.template.metadata.labels", labels.clone(), detail);
    }
}

/// What may not change in a job.
pub(super) fn job_update(check: &mut Check, new: &Value, old: &Value) {
    let is_indexed = text(new, "spec.completionMode") == "Indexed";
    if at(new, "spec.completions") != at(old, "spec.completions") {
        if !is_indexed {
            check.immutable(new, old, "spec.completions");
        } else if has(new, "spec.completions") && at(new, "spec.completions") != at(new, "spec.parallelism") {
            check.invalid(
                "spec.completions",
                at(new, "spec.completions").clone(),
                "can only be modified in tandem with spec.parallelism",
            );
        }
    }
    check.immutable(new, old, "spec.selector");
    job_template_update(check, new, old);
    for field in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"]
    {
        check.immutable(new, old, &format!("spec.{field}"));
    }
}

/// The counters of a finished or running job.
pub(super) fn job_status(check: &mut Check, new: &Value, old: &Value) {
    let status = at(new, "status");
    for field in ["active", "succeeded", "failed", "ready", "terminating"] {
        check.not_negative(status, field, "status");
    }
    let is_true = |job: &Value, kind: &str| {
        list(job, "status.conditions").iter().any(|c| text(c, "type") == kind && text(c, "status") == "True")
    };
    let changed = |path: &str| at(new, path) != at(old, path);
    let turned = |kind: &str| is_true(new, kind) != is_true(old, kind);
    let is_finished = |job: &Value| is_true(job, "Complete") || is_true(job, "Failed");
    let finish_changed = is_finished(new) != is_finished(old);
    let mut refuse = |detail: &str| {
        let error = k8s_schema::FieldError::invalid("status.conditions", Value::Null, detail);
        check.push(k8s_schema::FieldError { value: None, ..error });
    };
    if is_true(new, "Complete") && is_true(new, "Failed") && (turned("Complete") || turned("Failed")) {
        refuse("cannot set Complete=True and Failed=true conditions");
    }
    if is_true(new, "Complete")
        && is_true(new, "FailureTarget")
        && (turned("Complete") || turned("FailureTarget"))
    {
        refuse("cannot set Complete=True and FailureTarget=true conditions");
    }
    if is_true(new, "Failed") && !is_true(new, "FailureTarget") && turned("Failed") {
        refuse("cannot set Failed=True condition without the FailureTarget=true condition");
    }
    if is_true(new, "Complete")
        && !is_true(new, "SuccessCriteriaMet")
        && (turned("Complete") || turned("SuccessCriteriaMet"))
    {
        refuse("cannot set Complete=True condition without the SuccessCriteriaMet=true condition");
    }
    for kind in ["Complete", "Failed", "FailureTarget"] {
        if is_true(old, kind) && !is_true(new, kind) {
            refuse(&format!("cannot disable the terminal {kind}=True condition"));
        }
    }
    if is_true(old, "SuccessCriteriaMet") && !is_true(new, "SuccessCriteriaMet") {
        refuse("cannot disable the SuccessCriteriaMet=True condition");
    }
    let completion_changed = turned("Complete") || changed("status.completionTime");
    if completion_changed && !has(new, "status.completionTime") && is_true(new, "Complete") {
        check.required("status.completionTime", "completionTime is required for Complete jobs");
    }
    if completion_changed && has(new, "status.completionTime") && !is_true(new, "Complete") {
        check.invalid(
            "status.completionTime",
            at(status, "completionTime").clone(),
            "cannot set completionTime when there is no Complete=True condition",
        );
    }
    let count = |job: &Value, field: &str| int(at(job, "status"), field).unwrap_or(0);
    if is_finished(new) && (finish_changed || changed("status.active")) && count(new, "active") > 0 {
        check.invalid("status.active", count(new, "active"), "active>0 is invalid for finished job");
    }
    if is_finished(new) && (finish_changed || changed("status.startTime")) && !has(new, "status.startTime") {
        check.required("status.startTime", "startTime is required for finished job");
    }
    if count(new, "ready") > count(new, "active") && (changed("status.ready") || changed("status.active")) {
        check.invalid("status.ready", count(new, "ready"), "cannot set more ready pods than active");
    }
    let is_indexed = text(new, "spec.completionMode") == "Indexed";
    if changed("status.completedIndexes") && has(new, "status.completedIndexes") && !is_indexed {
        check.invalid(
            "status.completedIndexes",
            at(status, "completedIndexes").clone(),
            "cannot set non-empty completedIndexes when non-indexed completion mode",
        );
    }
    if count(new, "failed") < count(old, "failed") {
        check.invalid("status.failed", count(new, "failed"), "cannot decrease the failed counter");
    }
    let is_elastic = is_indexed && at(new, "spec.completions") == at(new, "spec.parallelism");
    if count(new, "succeeded") < count(old, "succeeded") && !is_elastic {
        check.invalid("status.succeeded", count(new, "succeeded"), "cannot decrease the succeeded counter");
    }
    if has(new, "status.completionTime") && has(old, "status.completionTime") {
        check.immutable(new, old, "status.completionTime");
    }
    if has(old, "status.startTime")
        && changed("status.startTime")
        && !flag(new, "spec.suspend")
        && !flag(old, "spec.suspend")
    {
        check.invalid(
            "status.startTime",
            at(status, "startTime").clone(),
            "field is immutable for unsuspended job once set",
        );
    }
}

/// A cron job; `old` on an update.
pub(super) fn cron_job(check: &mut Check, object: &Value, old: Option<&Value>) {
    let spec = at(object, "spec");
    let schedule = text(spec, "schedule");
    let zone = at(spec, "timeZone");
    if schedule.is_empty() {
        check.required("spec.schedule", "");
    } else {
        if let Some(problem) = cron::problem(schedule) {
            check.invalid("spec.schedule", schedule, problem);
        }
        if schedule.contains("TZ") && old.is_none() {
            check.invalid(
                "spec.schedule",
                schedule,
                "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
            );
        }
    }
    check.not_negative(spec, "startingDeadlineSeconds", "spec");
    if old.is_none_or(|old| at(old, "spec.timeZone") != zone)
        && let Some(name) = zone.as_str()
    {
        let is_odd = |part: &str| {
            part == "."
                || part == ".."
                || part.starts_with('-')
                || !part.bytes().all(|b| b.is_ascii_alphanumeric() || b"_+-".contains(&b))
                || part.is_empty()
        };
        if name.is_empty() {
            check.invalid("spec.timeZone", name, "timeZone must be nil or non-empty string");
        } else if name.split('/').any(is_odd) {
            check.invalid("spec.timeZone", name, format!("unknown time zone {name}"));
        } else if name.eq_ignore_ascii_case("Local") {
            let detail =
                "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
            check.invalid("spec.timeZone", name, detail);
        } else if jiff::tz::TimeZone::get(name).is_err() {
            check.invalid("spec.timeZone", name, format!("unknown time zone {name}"));
        }
    }
    check.one_of("spec.concurrencyPolicy", text(spec, "concurrencyPolicy"), &["Allow", "Forbid", "Replace"]);
    for field in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        check.not_negative(spec, field, "spec");
    }
    let template = at(spec, "jobTemplate.spec");
    job_spec(check, template, "spec.jobTemplate.spec");
    if has(template, "selector") {
        let detail = "`selector` will be auto-generated";
        check.invalid("spec.jobTemplate.spec.selector", at(template, "selector").clone(), detail);
    }
    if flag(template, "manualSelector") {
        check.unsupported("spec.jobTemplate.spec.manualSelector", true, &["nil", "false"]);
    }
    let name = text(object, "metadata.name");
    if old.is_none() && name.len() > 52 {
        check.invalid("metadata.name", name, "must be no more than 52 characters");
    }
}

fn job_spec(check: &mut Check, spec: &Value, path: &str) {
    let child = |name: &str| format!("{path}.{name}");
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        check.not_negative(spec, field, path);
    }
    if has(spec, "maxFailedIndexes") && !has(spec, "backoffLimitPerIndex") {
        check.required(child("backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
    if let Some(manager) = at(spec, "managedBy").as_str() {
        match manager.split_once('/') {
            Some((host, rest)) if !host.is_empty() && !rest.is_empty() => {
                check.format(child("managedBy"), host, text::dns_subdomain(host));
            }
            _ => {
                let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
                check.invalid(child("managedBy"), manager, detail);
            }
        }
        if manager.len() > 63 {
            check.too_long(child("managedBy"), 63);
        }
    }
    indexed(check, spec, path);
    failure_policy(check, spec, &child("podFailurePolicy"));
    if has(spec, "successPolicy") && text(spec, "completionMode") != "Indexed" {
        let policy = at(spec, "successPolicy").clone();
        check.invalid(child("successPolicy"), policy, "requires indexed completion mode");
    } else if has(spec, "successPolicy") && list(spec, "successPolicy.rules").is_empty() {
        check.required(
            child("successPolicy.rules"),
            "at least one rules must be specified when the successPolicy is specified",
        );
    }
    let replacement = text(spec, "podReplacementPolicy");
    let known: &[&str] =
        if has(spec, "podFailurePolicy") { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
    check.one_of_or_empty(child("podReplacementPolicy"), replacement, known);
    pod::template(check, at(spec, "template"), &child("template"));
    let at_policy = child("template.spec.restartPolicy");
    match text(spec, "template.spec.restartPolicy") {
        "Always" | "" => check.required(&at_policy, "valid values: \"OnFailure\", \"Never\""),
        "OnFailure" if has(spec, "podFailurePolicy") => check.invalid(
            &at_policy,
            "OnFailure",
            "only \"Never\" is supported when podFailurePolicy is specified",
        ),
        "OnFailure" | "Never" => {}
        other => check.unsupported(&at_policy, other, &["OnFailure", "Never"]),
    }
}

fn indexed(check: &mut Check, spec: &Value, path: &str) {
    let child = |name: &str| format!("{path}.{name}");
    let mode = text(spec, "completionMode");
    check.one_of_or_empty(child("completionMode"), mode, &["NonIndexed", "Indexed"]);
    if matches!(mode, "" | "NonIndexed") {
        for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if let Some(value) = int(spec, field) {
                check.invalid(child(field), value, "requires indexed completion mode");
            }
        }
    }
    if mode != "Indexed" {
        return;
    }
    let completions = int(spec, "completions");
    if completions.is_none() {
        check.required(child("completions"), "when completion mode is Indexed");
    }
    let parallelism = int(spec, "parallelism").unwrap_or(0);
    if parallelism > 100_000 {
        let detail = "must be less than or equal to 100000 when completion mode is Indexed";
        check.invalid(child("parallelism"), parallelism, detail);
    }
    if let Some(failed) = int(spec, "maxFailedIndexes") {
        if completions.is_some_and(|completions| failed > completions) {
            check.invalid(child("maxFailedIndexes"), failed, "must be less than or equal to completions");
        }
        if failed > 100_000 {
            check.invalid(child("maxFailedIndexes"), failed, "must be less than or equal to 100000");
        }
    }
    if completions.is_some_and(|n| n > 100_000)
        && has(spec, "backoffLimitPerIndex")
        && !has(spec, "maxFailedIndexes")
    {
        check.required(child("maxFailedIndexes"), "must be specified when completions is above 100000");
    }
}

fn failure_policy(check: &mut Check, spec: &Value, path: &str) {
    let rules = list(spec, "podFailurePolicy.rules");
    if rules.len() > 20 {
        check.too_many(format_args!("{path}.rules"), rules.len(), 20);
    }
    for (idx, rule) in rules.iter().enumerate() {
        let base = format!("{path}.rules[{idx}]");
        let action = text(rule, "action");
        let actions = ["Count", "FailIndex", "FailJob", "Ignore"];
        if action.is_empty() {
            let detail = "valid values: [\"Count\" \"FailIndex\" \"FailJob\" \"Ignore\"]";
            check.required(format_args!("{base}.action"), detail);
        } else if action == "FailIndex" && !has(spec, "backoffLimitPerIndex") {
            let detail = "requires the backoffLimitPerIndex to be set";
            check.invalid(format_args!("{base}.action"), action, detail);
        } else {
            check.one_of_or_empty(format_args!("{base}.action"), action, &actions);
        }
        let codes = at(rule, "onExitCodes");
        if !codes.is_null() {
            let operator = text(codes, "operator");
            if !["In", "NotIn"].contains(&operator) {
                check.unsupported(format_args!("{base}.onExitCodes.operator"), operator, &["In", "NotIn"]);
            }
            if list(codes, "values").is_empty() {
                let detail = "at least one value is required";
                check.invalid(format_args!("{base}.onExitCodes.values"), Value::Array(Vec::new()), detail);
            }
        }
        let conditions = list(rule, "onPodConditions");
        for (pattern_idx, pattern) in conditions.iter().enumerate() {
            let at_pattern = format!("{base}.onPodConditions[{pattern_idx}]");
            let kind = text(pattern, "type");
            check.format(format_args!("{at_pattern}.type"), kind, text::label_key(kind));
            check.one_of_or_empty(
                format_args!("{at_pattern}.status"),
                text(pattern, "status"),
                &["False", "True", "Unknown"],
            );
        }
        let detail = match (codes.is_null(), conditions.is_empty()) {
            (false, false) => "specifying both OnExitCodes and OnPodConditions is not supported",
            (true, true) => "specifying one of OnExitCodes and OnPodConditions is required",
            _ => continue,
        };
        check.push(k8s_schema::FieldError {
            value: None,
            ..k8s_schema::FieldError::invalid(base, Value::Null, detail)
        });
    }
}

fn generated_selector(check: &mut Check, job: &Value, old: Option<&Value>) {
    if flag(job, "spec.manualSelector") || !has(job, "spec.selector") {
        return;
    }
    let (uid, name) = (text(job, "metadata.uid"), text(job, "metadata.name"));
    if uid.is_empty() {
        check.required("metadata.uid", "");
    }
    let labels = at(job, "spec.template.metadata.labels");
    let plain = [("controller-uid", uid), ("job-name", name)];
    let prefixed = [("batch.kubernetes.io/controller-uid", uid), ("batch.kubernetes.io/job-name", name)];
    // Jobs that are older than the prefixed labels go on without them.
    let had_prefixed = old.is_none_or(|old| {
        let labels = at(old, "spec.template.metadata.labels");
        prefixed.iter().all(|(label, _)| labels.get(label).is_some())
    });
    let mut own = Value::Object(serde_json::Map::new());
    for (label, value) in plain.into_iter().chain(prefixed.into_iter().filter(|_| had_prefixed)) {
        set(&mut own, label, value);
        let path = format!("spec.template.metadata.labels[{label}]");
        match labels.get(label).and_then(Value::as_str) {
            None => check.required(&path, format!("must be '{value}'")),
            Some(actual) if actual != value => {
                check.invalid(&path, labels.clone(), format!("must be '{value}'"))
            }
            Some(_) => {}
        }
    }
    let selector = at(job, "spec.selector");
    if selector_matches(selector, &own) == Some(false) {
        check.invalid("spec.selector", selector.clone(), "`selector` not auto-generated");
    }
}

fn job_template_update(check: &mut Check, new: &Value, old: &Value) {
    let template = at(new, "spec.template");
    let mut masked = at(old, "spec.template").clone();
    let is_suspended_condition = list(old, "status.conditions")
        .iter()
        .any(|condition| text(condition, "type") == "Suspended" && text(condition, "status") == "True");
    let is_idle = int(old, "status.active").unwrap_or(0) == 0;
    let may_change =
        flag(old, "spec.suspend") && (!has(old, "status.startTime") || is_suspended_condition) && is_idle;
    if may_change {
        for path in ["labels", "annotations"] {
            if let Some(meta) = at_mut(&mut masked, "metadata") {
                copy_field(meta, at(template, "metadata"), path);
            }
        }
        if let Some(spec) = at_mut(&mut masked, "spec") {
            for field in ["nodeSelector", "tolerations", "schedulingGates", "resources"] {
                copy_field(spec, at(template, "spec"), field);
            }
            for part in ["containers", "initContainers"] {
                for (container, new) in list_mut(spec, part).zip(list(at(template, "spec"), part)) {
                    if text(container, "name") == text(new, "name") {
                        copy_field(container, new, "resources");
                    }
                }
            }
            let new_affinity = at(template, "spec.affinity");
            let node = new_affinity.get("nodeAffinity").cloned();
            if new_affinity.is_null()
                && !has(spec, "affinity.podAffinity")
                && !has(spec, "affinity.podAntiAffinity")
            {
                remove(spec, "affinity");
            } else if !new_affinity.is_null()
                && let Some(affinity) = crate::json::child(spec, "affinity")
            {
                match node {
                    Some(node) => set(affinity, "nodeAffinity", node),
                    None => {
                        remove(affinity, "nodeAffinity");
                    }
                }
            }
        }
    }
    if *template != masked {
        let path = if may_change { "spec.template.spec" } else { "spec.template" };
        check.invalid(path, at(new, path).clone(), "field is immutable");
    }
}

fn selector_and_template(check: &mut Check, spec: &Value, noun: &str, template_noun: &str) {
    let selector = at(spec, "selector");
    required_selector(check, selector, noun);
    let template = at(spec, "template");
    let labels = at(template, "metadata.labels");
    match selector_matches(selector, labels) {
        None => check.invalid("spec.selector", selector.clone(), "invalid label selector"),
        Some(is_match) => {
            if !is_match && !is_empty_selector(selector) {
                let detail = "`selector` does not match template `labels`";
                check.invalid("spec.template.metadata.labels", labels.clone(), detail);
            }
            always_template(check, template, template_noun);
        }
    }
}

fn required_selector(check: &mut Check, selector: &Value, noun: &str) {
    if selector.is_null() {
        check.required("spec.selector", "");
        return;
    }
    check.selector(selector, "spec.selector");
    if is_empty_selector(selector) {
        check.invalid("spec.selector", selector.clone(), format!("empty selector is invalid for {noun}"));
    }
}

fn is_empty_selector(selector: &Value) -> bool {
    selector.is_object()
        && entries(selector, "matchLabels").next().is_none()
        && list(selector, "matchExpressions").is_empty()
}

/// The template of a kind that keeps its pods running.
fn always_template(check: &mut Check, template: &Value, noun: &str) {
    pod::template(check, template, "spec.template");
    always_running(check, template, noun);
}

fn always_running(check: &mut Check, template: &Value, noun: &str) {
    let policy = text(template, "spec.restartPolicy");
    if policy != "Always" {
        check.unsupported("spec.template.spec.restartPolicy", policy, &["Always"]);
    }
    if has(template, "spec.activeDeadlineSeconds") {
        check.forbidden(
            "spec.template.spec.activeDeadlineSeconds",
            format!("activeDeadlineSeconds in {noun} is not Supported"),
        );
    }
}

/// The template of a stateful set, with the volumes that its claims will become.
fn template_with_claims(spec: &Value) -> Value {
    let mut template = at(spec, "template").clone();
    if let Some(pod) = at_mut(&mut template, "spec") {
        for field in ["subdomain", "hostname"] {
            remove(pod, field);
        }
        let claims: BTreeSet<&str> =
            list(spec, "volumeClaimTemplates").iter().map(|claim| text(claim, "metadata.name")).collect();
        if !claims.is_empty() {
            let own =
                list(pod, "volumes").iter().filter(|volume| !claims.contains(&text(volume, "name"))).cloned();
            let made = claims
                .iter()
                .map(|name| serde_json::json!({"name": name, "persistentVolumeClaim": {"claimName": name}}));
            let volumes: Vec<Value> = made.chain(own).collect();
            set(pod, "volumes", volumes);
        }
    }
    template
}

/// A number that is not negative, or a percentage.
pub(super) fn int_or_percent(check: &mut Check, value: &Value, path: &str) {
    match value {
        Value::String(percent) => {
            for message in text::percent(percent) {
                check.invalid(path, percent.as_str(), message);
            }
        }
        Value::Number(_) => {
            if let Some(number) = value.as_i64().filter(|number| *number < 0) {
                check.invalid(path, number, "must be greater than or equal to 0");
            }
        }
        _ => {}
    }
}

/// No more than all of them.
pub(super) fn at_most_all(check: &mut Check, value: &Value, path: &str) {
    if value.is_string() && amount(value) > 100 {
        check.invalid(path, value.clone(), "must not be greater than 100%");
    }
}

fn amount(value: &Value) -> i64 {
    match value {
        Value::String(percent) => percent.strip_suffix('%').and_then(|n| n.parse().ok()).unwrap_or(0),
        _ => value.as_i64().unwrap_or(0),
    }
}
