//! Jobs, deployments and the like: what will be said of their pods, said to the person who sends the workload.
//!
//! A pod made by a controller is refused or warned about where nobody looks. In: a workload as JSON. Out: warnings only:
//! whether the pods are let in is decided when they come.

use serde_json::Value;

use crate::defaults;
use crate::keys;
use crate::request::{Asked, Operation};
use crate::settings::Settings;
use crate::validate::pod;
use crate::verdict::Verdict;
use crate::world::World;

pub fn validate(asked: &Asked<'_>, settings: &Settings, world: &dyn World) -> Verdict {
    match asked.operation {
        Operation::Create => judge(asked.object, asked.namespace, settings, world),
        Operation::Update => {
            let before = judge(asked.old, asked.namespace, settings, world);
            judge(asked.object, asked.namespace, settings, world).since(&before)
        }
        Operation::Delete | Operation::Connect => Verdict::default(),
    }
}

fn judge(workload: &Value, namespace: &str, settings: &Settings, world: &dyn World) -> Verdict {
    let mut verdict = Verdict::default();
    let spec = &workload["spec"];
    let (path, template) = match spec.get("jobTemplate") {
        Some(job) => ("spec.jobTemplate.spec.template", &job["spec"]["template"]),
        None => ("spec.template", &spec["template"]),
    };
    if !settings.is_ours(defaults::scheduler(template, namespace, settings, world)) {
        return verdict;
    }
    let kind = workload["kind"].as_str().unwrap_or_default();
    let job = if kind == "CronJob" { &spec["jobTemplate"] } else { workload };
    for (path, owner) in [("", workload), ("spec.jobTemplate.", &spec["jobTemplate"])] {
        let mut of_owner = Verdict::default();
        keys::check(&owner["metadata"], "metadata", &settings.queue_label, &mut of_owner);
        pod::values(&owner["metadata"], &mut of_owner);
        pod::names(&owner["metadata"], settings, world, &mut of_owner);
        verdict.warnings.extend(of_owner.warnings.into_iter().map(|warning| format!("{path}{warning}")));
    }
    // What has an owner is grouped by that.
    if workload["metadata"]["ownerReferences"].as_array().is_none_or(Vec::is_empty) {
        let at = if kind == "CronJob" { "spec.jobTemplate.metadata" } else { "metadata" };
        if matches!(kind, "Job" | "CronJob") {
            unreachable_minimum(workload, job, &mut verdict);
        } else {
            pod::min_member_of_no_job(&workload["metadata"], "metadata", &mut verdict);
        }
        on_pods_only(kind, template, &[workload, job], (path, at), &mut verdict);
    }
    let of_pods = pod::judge(template, namespace, settings, world);
    for error in of_pods.errors {
        verdict.warn(
            format_args!("{path}.{}", error.field),
            format_args!("its pods will be refused: {}", error.message),
        );
    }
    for warning in of_pods.warnings {
        // Its own field is inside the template.
        verdict.warnings.push(format!("{path}.{warning}"));
    }
    verdict
}

/// Wishes of a gang, on its pods: they are read from what owns the pods. `owners` may say it too, and then nothing is lost.
fn on_pods_only(
    kind: &str,
    template: &Value,
    owners: &[&Value],
    (path, right_path): (&str, &str),
    verdict: &mut Verdict,
) {
    let is_job = matches!(kind, "Job" | "CronJob");
    for key in [keys::MIN_MEMBER, keys::TOPOLOGY, keys::TOPOLOGY_REQUIRED, keys::TOPOLOGY_PREFERRED] {
        let has = |object: &Value| !object["metadata"]["annotations"][key].is_null();
        if !has(template) || owners.iter().any(|owner| has(owner)) {
            continue;
        }
        if key == keys::MIN_MEMBER && !is_job {
            pod::min_member_of_no_job(&template["metadata"], &format!("{path}.metadata"), verdict);
            continue;
        }
        verdict.warn(
            format_args!("{path}.metadata.annotations[{key}]"),
            format_args!("has no effect on pods; write it to {right_path}.annotations"),
        );
    }
}

/// A minimum that a Job never has so many pods for.
fn unreachable_minimum(workload: &Value, job: &Value, verdict: &mut Verdict) {
    let of_job = if std::ptr::eq(workload, job) { "metadata" } else { "spec.jobTemplate.metadata" };
    let said = [(of_job, job), ("metadata", workload)].into_iter().find_map(|(path, object)| {
        let value = object["metadata"]["annotations"][keys::MIN_MEMBER].as_str()?;
        Some((path, value.trim().parse::<i64>().ok()?))
    });
    let Some((path, min)) = said else { return };
    let n_pods = job["spec"]["parallelism"].as_i64().unwrap_or(1);
    // When fewer are left to succeed, these are enough.
    let needed = job["spec"]["completions"].as_i64().map_or(min, |n| n.min(min));
    // A parallelism of 0 is a Job that is held.
    if n_pods > 0 && needed > n_pods {
        verdict.warn(
            format_args!("{path}.annotations[{}]", keys::MIN_MEMBER),
            format_args!(
                "the Job never has {needed} pods at once, because its parallelism is {n_pods}, and they wait for ever; write \
                 at most {n_pods}, or a higher parallelism"
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::world::Given;

    #[track_caller]
    fn check(workload: Value, expected: &[&str]) {
        let verdict = judge(&workload, "ns", &Settings::default(), &Given::default());
        assert!(verdict.allows());
        assert_eq!(verdict.warnings, expected);
    }

    fn template(annotations: Value, scheduler: &str) -> Value {
        json!({
            "metadata": {"annotations": annotations},
            "spec": {"schedulerName": scheduler, "containers": [{"name": "a"}]},
        })
    }

    /// A workload of a kind with annotations at the places that it has, and what its pods' ones are.
    fn of_kind(kind: &str, own: Value, pods: Value, spec: Value) -> Value {
        let mut job = json!({"spec": spec});
        job["spec"]["template"] = template(pods, "kai-scheduler");
        let mut workload = if kind == "CronJob" { json!({"spec": {"jobTemplate": job}}) } else { job };
        workload["kind"] = kind.into();
        workload["metadata"] = json!({"annotations": own});
        workload
    }

    #[test]
    fn wishes_of_a_gang_are_no_wishes_of_its_pods() {
        let min = json!({"kai.scheduler/batch-min-member": "1"});
        let place =
            json!({"kai.scheduler/topology": "t", "kai.scheduler/topology-required-placement": "rack"});
        let of_template = |key: &str, message: &str| {
            format!("spec.template.metadata.annotations[kai.scheduler/{key}]: {message}")
        };
        let to_owner = "has no effect on pods; write it to metadata.annotations";
        let job = |own: &Value, pods: &Value| of_kind("Job", own.clone(), pods.clone(), json!({}));
        check(job(&json!({}), &min), &[&of_template("batch-min-member", to_owner)]);
        check(
            job(&json!({}), &place),
            &[&of_template("topology", to_owner), &of_template("topology-required-placement", to_owner)],
        );
        check(job(&min, &min), &[]);
        let mut owned = job(&json!({}), &min);
        owned["metadata"]["ownerReferences"] = json!([{"kind": "JobSet", "name": "s"}]);
        check(owned, &[]);
        let none = "has no effect here; it is read from Jobs and JobSets";
        for kind in ["Deployment", "StatefulSet"] {
            check(
                of_kind(kind, min.clone(), place.clone(), json!({})),
                &[
                    &format!("metadata.annotations[kai.scheduler/batch-min-member]: {none}"),
                    &of_template("topology", to_owner),
                    &of_template("topology-required-placement", to_owner),
                ],
            );
            check(
                of_kind(kind, json!({}), min.clone(), json!({})),
                &[&of_template("batch-min-member", none)],
            );
        }
        check(
            of_kind("CronJob", json!({}), min.clone(), json!({})),
            &[
                "spec.jobTemplate.spec.template.metadata.annotations[kai.scheduler/batch-min-member]: has no effect on pods; \
               write it to spec.jobTemplate.metadata.annotations",
            ],
        );
        check(of_kind("CronJob", min.clone(), min, json!({})), &[]);
    }

    #[test]
    fn the_jobs_of_a_cron_job() {
        let mut cron = of_kind("CronJob", json!({}), json!({}), json!({"parallelism": 2}));
        cron["spec"]["jobTemplate"]["metadata"] = json!({
            "annotations": {"kai.scheduler/batch-min-member": "4"}, "labels": {"runai/queue": "q"},
        });
        check(
            cron,
            &[
                "spec.jobTemplate.metadata.labels[runai/queue]: no such key; write the label kai.scheduler/queue",
                "spec.jobTemplate.metadata.annotations[kai.scheduler/batch-min-member]: the Job never has 4 pods at once, \
                 because its parallelism is 2, and they wait for ever; write at most 2, or a higher parallelism",
            ],
        );
    }

    #[test]
    fn a_minimum_that_is_never_reached() {
        let is_warned = |min: &str, spec: Value| {
            let job = of_kind("Job", json!({"kai.scheduler/batch-min-member": min}), json!({}), spec);
            !judge(&job, "ns", &Settings::default(), &Given::default()).warnings.is_empty()
        };
        assert!(is_warned("2", json!({})), "one pod at a time, unless it says more");
        assert!(is_warned("5", json!({"parallelism": 4})));
        assert!(is_warned("5", json!({"parallelism": 4, "completions": 8})));
        for (min, spec) in [
            ("4", json!({"parallelism": 4})),
            ("0", json!({})),
            ("5", json!({"parallelism": 0})),
            ("5", json!({"parallelism": 4, "completions": 4})),
        ] {
            assert!(!is_warned(min, spec.clone()), "{min} {spec}");
        }
    }

    #[test]
    fn tells_whoever_sends_it() {
        let annotations = json!({"kai.scheduler/queue": "a", "gpu-fraction": "3"});
        check(
            json!({"metadata": {"labels": {"queue": "x"}},
                   "spec": {"template": template(annotations.clone(), "kai-scheduler")}}),
            &[
                "metadata.labels[queue]: no such key; write the label kai.scheduler/queue",
                "spec.template.metadata.annotations[gpu-fraction]: its pods will be refused: \"3\" is no number between 0 \
                 and 1; write for example \"0.5\", or remove it and ask for whole GPUs with the limit nvidia.com/gpu",
                "spec.template.metadata.annotations[kai.scheduler/queue]: has no effect here; it is read from labels",
            ],
        );
        let cron = json!({"spec": {"jobTemplate": {"spec": {"template": template(json!({"gpu-fraction": "3"}), "kai-scheduler")}}}});
        let field = "spec.jobTemplate.spec.template.metadata.annotations[gpu-fraction]";
        let found = judge(&cron, "ns", &Settings::default(), &Given::default()).warnings;
        assert!(found.len() == 1 && found[0].starts_with(field), "{found:?}");
        check(json!({"spec": {"template": template(annotations, "default-scheduler")}}), &[]);
        check(json!({"spec": 5}), &[]);
    }
}
