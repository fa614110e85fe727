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
    keys::check(&workload["metadata"], "metadata", &settings.queue_label, &mut verdict);
    pod::values(&workload["metadata"], &mut verdict);
    pod::names(&workload["metadata"], settings, world, &mut verdict);
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
