//! Jobs that wait in queues.

use serde_json::Value;

use super::{Findings, changed, invalid, is_label_key, is_subdomain};
use crate::keys;
use crate::object::{at, int, text};

/// A Job of `batch/v1`.
pub fn job(object: &Value, old: &Value) -> Findings {
    let mut out = changed(object, old, |object, out| {
        names(object, out);
        topology(at(object, &["spec", "template"]), "spec.template.metadata.annotations", out);
        partial(object, out);
    });
    if old.is_object() {
        fixed(object, old, out_of(object, old), &mut out);
    }
    out
}

/// Whether a job runs before and after a change: what it has quota for must not change then.
fn out_of(object: &Value, old: &Value) -> bool {
    let runs = |object: &Value| at(object, &["spec", "suspend"]) != true;
    runs(object) && runs(old)
}

fn names(object: &Value, out: &mut Findings) {
    let label = |key: &str| at(object, &["metadata", "labels", key]);
    let queue = label(keys::QUEUE);
    if queue.as_str().is_some_and(|name| !name.is_empty() && !is_subdomain(name)) {
        invalid(out, format!("metadata.labels[{}]", keys::QUEUE), queue, "is no name of a LocalQueue");
    }
    let seconds = label(keys::MAX_EXEC_TIME);
    if seconds
        .as_str()
        .is_some_and(|text| text.parse::<i32>().is_ok_and(|n| n <= 0) || text.parse::<i32>().is_err())
    {
        invalid(
            out,
            format!("metadata.labels[{}]", keys::MAX_EXEC_TIME),
            seconds,
            "should be greater than 0",
        );
    }
    // A frequent mistake: the queue is a label.
    let annotation = at(object, &["metadata", "annotations", keys::QUEUE]);
    if annotation.is_string() && queue.is_null() {
        out.warnings
            .push(format!("metadata.annotations[{}]: has no effect; write it as a label", keys::QUEUE));
    }
}

/// What the annotations of a template ask for.
pub(super) fn topology(template: &Value, field: &str, out: &mut Findings) {
    let annotation = |key: &str| at(template, &["metadata", "annotations", key]);
    let asked: Vec<&str> = [keys::REQUIRED_TOPOLOGY, keys::PREFERRED_TOPOLOGY, keys::UNCONSTRAINED_TOPOLOGY]
        .into_iter()
        .filter(|key| annotation(key).is_string())
        .collect();
    if asked.len() > 1 {
        out.refuse(
            field,
            format!(
                "Invalid value: must not contain more than one topology annotation: {}",
                asked.join(", ")
            ),
        );
    }
    for key in [keys::REQUIRED_TOPOLOGY, keys::PREFERRED_TOPOLOGY, keys::SLICE_TOPOLOGY] {
        if annotation(key).as_str().is_some_and(|level| !is_label_key(level)) {
            invalid(out, format!("{field}[{key}]"), annotation(key), "is no key of a label");
        }
    }
    let slices = annotation(keys::SLICE_TOPOLOGY).is_string();
    let size = annotation(keys::SLICE_SIZE);
    if size
        .as_str()
        .is_some_and(|size| size.parse::<i32>().is_ok_and(|n| n < 1) || size.parse::<i32>().is_err())
    {
        invalid(out, format!("{field}[{}]", keys::SLICE_SIZE), size, "must be a whole number of at least 1");
    }
    if slices && size.is_null() {
        let message = format!("Required value: must be set when {} is specified", keys::SLICE_TOPOLOGY);
        out.refuse(format!("{field}[{}]", keys::SLICE_SIZE), message);
    }
    if !slices && size.is_string() {
        let message = format!("Forbidden: may not be set when {} is not specified", keys::SLICE_TOPOLOGY);
        out.refuse(format!("{field}[{}]", keys::SLICE_SIZE), message);
    }
}

fn partial(object: &Value, out: &mut Findings) {
    let least = at(object, &["metadata", "annotations", keys::MIN_PARALLELISM]);
    let Some(words) = least.as_str() else { return };
    let field = format!("metadata.annotations[{}]", keys::MIN_PARALLELISM);
    let most = int(object, &["spec", "parallelism"]).unwrap_or(1);
    match words.parse::<i64>() {
        Err(_) => invalid(out, field, least, "must be a whole number"),
        Ok(n) if n <= 0 || n >= most => {
            invalid(out, field, least, format!("should be between 0 and {}", most - 1));
        }
        Ok(_) => {}
    }
    let follow = text(object, &["metadata", "annotations", keys::COMPLETIONS_FOLLOW]) == "true";
    let completions = int(object, &["spec", "completions"]);
    if follow && (text(object, &["spec", "completionMode"]) != "Indexed" || completions != Some(most)) {
        invalid(
            out,
            format!("metadata.annotations[{}]", keys::COMPLETIONS_FOLLOW),
            at(object, &["metadata", "annotations", keys::COMPLETIONS_FOLLOW]),
            "completions can only follow in an Indexed job whose completions equal its parallelism",
        );
    }
}

/// What must stay as it is while a job runs.
fn fixed(object: &Value, old: &Value, runs: bool, out: &mut Findings) {
    if !runs {
        return;
    }
    for key in [keys::QUEUE, keys::PREBUILT] {
        let value = |object: &Value| text(object, &["metadata", "labels", key]).to_owned();
        if value(object) != value(old) {
            invalid(
                out,
                format!("metadata.labels[{key}]"),
                at(object, &["metadata", "labels", key]),
                "field is immutable",
            );
        }
    }
    let key = keys::MIN_PARALLELISM;
    let value = |object: &Value| text(object, &["metadata", "annotations", key]).to_owned();
    if value(object) != value(old) {
        out.refuse(format!("metadata.annotations[{key}]"), "Forbidden: cannot change when not suspended");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn job_with(labels: Value, annotations: Value, spec: Value) -> Value {
        json!({"metadata": {"labels": labels, "annotations": annotations}, "spec": spec})
    }

    #[track_caller]
    fn check(object: Value, old: Value, expected: &str) {
        let texts: Vec<String> = job(&object, &old).errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts.join("; "), expected);
    }

    #[test]
    fn a_new_job() {
        check(job_with(json!({keys::QUEUE: "q"}), json!({}), json!({})), Value::Null, "");
        check(
            job_with(json!({keys::QUEUE: "My Queue"}), json!({}), json!({})),
            Value::Null,
            "metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value: \"My Queue\": is no name of a LocalQueue",
        );
        check(
            job_with(json!({}), json!({keys::MIN_PARALLELISM: "5"}), json!({"parallelism": 5})),
            Value::Null,
            "metadata.annotations[kueue.x-k8s.io/job-min-parallelism]: Invalid value: \"5\": should be between 0 and 4",
        );
        let template = json!({"template": {"metadata": {"annotations": {keys::REQUIRED_TOPOLOGY: "a", keys::PREFERRED_TOPOLOGY: "b", keys::SLICE_TOPOLOGY: "c"}}}});
        check(
            job_with(json!({}), json!({}), template),
            Value::Null,
            "spec.template.metadata.annotations: Invalid value: must not contain more than one topology annotation: \
             kueue.x-k8s.io/podset-required-topology, kueue.x-k8s.io/podset-preferred-topology; \
             spec.template.metadata.annotations[kueue.x-k8s.io/podset-slice-size]: Required value: must be set when \
             kueue.x-k8s.io/podset-slice-required-topology is specified",
        );
        let found = job(&job_with(json!({}), json!({keys::QUEUE: "q"}), json!({})), &Value::Null);
        assert_eq!(
            found.warnings,
            ["metadata.annotations[kueue.x-k8s.io/queue-name]: has no effect; write it as a label"]
        );
    }

    #[test]
    fn the_queue_of_a_job_that_runs() {
        let with = |queue: &str, suspend: bool| {
            job_with(json!({keys::QUEUE: queue}), json!({}), json!({"suspend": suspend}))
        };
        check(with("b", true), with("a", true), "");
        check(with("b", true), with("a", false), "");
        check(
            with("b", false),
            with("a", false),
            "metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value: \"b\": field is immutable",
        );
        // Taking the queue away would be a way around quota.
        check(
            job_with(json!({}), json!({}), json!({"suspend": false})),
            with("a", false),
            "metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value: null: field is immutable",
        );
    }
}
