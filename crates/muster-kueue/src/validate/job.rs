//! Jobs that wait in queues.

use serde_json::Value;

use super::{Findings, changed, invalid, is_label_key, is_subdomain};
use crate::keys;
use crate::object::{at, int, text};

/// A Job of `batch/v1`.
pub fn job(object: &Value, old: &Value) -> Findings {
    let mut out = changed(object, old, |object, out| {
        names(object, out);
        let template = at(object, &["spec", "template"]);
        topology(template, "spec.template.metadata.annotations", Some(n_pods(object)), out);
        partial(object, out);
        elastic(object, out);
    });
    if old.is_object() {
        fixed(object, old, out_of(object, old), &mut out);
    }
    out
}

/// How many pods a job has at a time.
fn n_pods(object: &Value) -> i64 {
    let most = int(object, &["spec", "parallelism"]).unwrap_or(1);
    int(object, &["spec", "completions"]).map_or(most, |completions| completions.min(most))
}

/// Jobs that grow and shrink while they run.
fn elastic(object: &Value, out: &mut Findings) {
    let annotation = at(object, &["metadata", "annotations", keys::ELASTIC]);
    if annotation != "true" {
        return;
    }
    if at(object, &["metadata", "annotations", keys::MIN_PARALLELISM]).is_string() {
        let message = format!("Forbidden: cannot be used with the annotation {}", keys::ELASTIC);
        out.refuse(format!("metadata.annotations[{}]", keys::MIN_PARALLELISM), message);
    }
    for key in [keys::REQUIRED_TOPOLOGY, keys::PREFERRED_TOPOLOGY, keys::SLICE_TOPOLOGY] {
        if at(object, &["spec", "template", "metadata", "annotations", key]).is_string() {
            let message = format!(
                "Forbidden: a job with the annotation {} can only ask for {}",
                keys::ELASTIC,
                keys::UNCONSTRAINED_TOPOLOGY
            );
            out.refuse(format!("spec.template.metadata.annotations[{key}]"), message);
        }
    }
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
    for (key, what) in [(keys::PRIORITY_CLASS, "WorkloadPriorityClass"), (keys::PREBUILT, "Workload")] {
        if label(key).as_str().is_some_and(|name| !name.is_empty() && !is_subdomain(name)) {
            invalid(out, format!("metadata.labels[{key}]"), label(key), format!("is no name of a {what}"));
        }
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

/// What the annotations of a template ask for, for so many pods.
pub(super) fn topology(template: &Value, field: &str, n_pods: Option<i64>, out: &mut Findings) {
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
    if let (Some(most), Some(n)) = (n_pods, size.as_str().and_then(|size| size.parse::<i64>().ok()))
        && n > most
    {
        let why = format!("must not be greater than pod set count {most}");
        invalid(out, format!("{field}[{}]", keys::SLICE_SIZE), size, why);
    }
    layers(annotation(keys::SLICE_LAYERS), slices, &format!("{field}[{}]", keys::SLICE_LAYERS), out);
    if slices && size.is_null() {
        let message = format!("Required value: must be set when {} is specified", keys::SLICE_TOPOLOGY);
        out.refuse(format!("{field}[{}]", keys::SLICE_SIZE), message);
    }
    if !slices && size.is_string() {
        let message = format!("Forbidden: may not be set when {} is not specified", keys::SLICE_TOPOLOGY);
        out.refuse(format!("{field}[{}]", keys::SLICE_SIZE), message);
    }
}

/// Slices within slices, as JSON: the outermost first.
fn layers(annotation: &Value, slices: bool, field: &str, out: &mut Findings) {
    const MOST: usize = 3;
    let Some(words) = annotation.as_str() else { return };
    if slices {
        let message = format!("Forbidden: may not be set when {} is specified", keys::SLICE_TOPOLOGY);
        out.refuse(field, message);
    }
    let read: Result<Vec<Value>, _> = serde_json::from_str(words);
    let Ok(layers) = read else {
        let why = "is no JSON list; write for example [{\"topology\": \"rack\", \"size\": 4}]";
        invalid(out, field, annotation, why);
        return;
    };
    if layers.is_empty() || layers.len() > MOST {
        invalid(out, field, annotation, format!("must have 1 to {MOST} entries"));
    }
    let mut outer = i64::MAX;
    for layer in &layers {
        let size = int(layer, &["size"]).unwrap_or(0);
        if !is_label_key(text(layer, &["topology"])) || size < 1 {
            invalid(
                out,
                field,
                layer,
                "needs a topology, which is the key of a label, and a size of at least 1",
            );
        } else if size > outer || outer % size != 0 && outer != i64::MAX {
            invalid(out, field, layer, format!("its size must divide the {outer} of the entry before"));
        }
        outer = size.max(1);
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
    for key in [keys::QUEUE, keys::PREBUILT, keys::MAX_EXEC_TIME] {
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
        check(
            job_with(json!({keys::QUEUE: "q", keys::PRIORITY_CLASS: "Very High"}), json!({}), json!({})),
            Value::Null,
            "metadata.labels[kueue.x-k8s.io/priority-class]: Invalid value: \"Very High\": is no name of a WorkloadPriorityClass",
        );
        let sliced = |annotations: Value| {
            job_with(
                json!({}),
                json!({}),
                json!({"parallelism": 4, "template": {"metadata": {"annotations": annotations}}}),
            )
        };
        check(sliced(json!({keys::SLICE_TOPOLOGY: "rack", keys::SLICE_SIZE: "4"})), Value::Null, "");
        check(
            sliced(json!({keys::SLICE_TOPOLOGY: "rack", keys::SLICE_SIZE: "5"})),
            Value::Null,
            "spec.template.metadata.annotations[kueue.x-k8s.io/podset-slice-size]: Invalid value: \"5\": must not be greater than pod set count 4",
        );
        let layers = |text: &str| sliced(json!({keys::SLICE_LAYERS: text}));
        check(
            layers(r#"[{"topology": "rack", "size": 4}, {"topology": "host", "size": 2}]"#),
            Value::Null,
            "",
        );
        check(
            layers(r#"[{"topology": "rack", "size": 4}, {"topology": "host", "size": 3}]"#),
            Value::Null,
            "spec.template.metadata.annotations[kueue.x-k8s.io/podset-slice-required-topology-constraints]: Invalid value: \
             {\"size\":3,\"topology\":\"host\"}: its size must divide the 4 of the entry before",
        );
        check(
            layers("rack"),
            Value::Null,
            "spec.template.metadata.annotations[kueue.x-k8s.io/podset-slice-required-topology-constraints]: Invalid value: \
             \"rack\": is no JSON list; write for example [{\"topology\": \"rack\", \"size\": 4}]",
        );
        check(
            job_with(
                json!({}),
                json!({keys::ELASTIC: "true", keys::MIN_PARALLELISM: "2"}),
                json!({"parallelism": 4}),
            ),
            Value::Null,
            "metadata.annotations[kueue.x-k8s.io/job-min-parallelism]: Forbidden: cannot be used with the annotation kueue.x-k8s.io/elastic-job",
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
