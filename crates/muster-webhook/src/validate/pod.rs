//! Pods of our schedulers: GPU sharing, devices, and keys that would be ignored.
//!
//! In: a pod as JSON. Out: a verdict. Must stay true: pods of other schedulers pass unseen; an update is refused only for
//! what it makes worse, and never while the pod is being deleted.

use serde_json::Value;

use crate::defaults;
use crate::keys;
use crate::request::{Asked, Operation};
use crate::settings::Settings;
use crate::share::{self, Share, Slot};
use crate::spelling;
use crate::verdict::{Verdict, quote};
use crate::world::World;

pub fn validate(asked: &Asked<'_>, settings: &Settings, world: &dyn World) -> Verdict {
    let (pod, old) = (asked.object, asked.old);
    match asked.operation {
        Operation::Create => {
            let mut verdict = judge(pod, asked.namespace, settings, world);
            let is_ours = settings.is_ours(defaults::scheduler(pod, asked.namespace, settings, world));
            if is_ours && pod["metadata"]["ownerReferences"].as_array().is_none_or(Vec::is_empty) {
                min_member_of_no_job(&pod["metadata"], "metadata", &mut verdict);
            }
            verdict
        }
        Operation::Update => {
            let is_same = |field: &str| pod["metadata"][field] == old["metadata"][field];
            // Binding, status and most of what controllers write changes neither.
            if (is_same("annotations") && is_same("labels"))
                || !pod["metadata"]["deletionTimestamp"].is_null()
            {
                return Verdict::default();
            }
            let before = judge(old, asked.namespace, settings, world);
            let mut verdict = judge(pod, asked.namespace, settings, world).since(&before);
            if settings.is_ours(defaults::scheduler(old, asked.namespace, settings, world)) {
                kept_share(pod, old, &mut verdict);
            }
            verdict
        }
        Operation::Delete | Operation::Connect => Verdict::default(),
    }
}

/// All that is to say of a pod, or of a pod template, as it stands.
pub(crate) fn judge(pod: &Value, namespace: &str, settings: &Settings, world: &dyn World) -> Verdict {
    let mut verdict = Verdict::default();
    if !settings.is_ours(defaults::scheduler(pod, namespace, settings, world)) {
        return verdict;
    }
    part_of_a_gpu_as_quantity(pod, &mut verdict);
    gpu_share(pod, settings, &mut verdict);
    if settings.device_access {
        visible_devices(pod, &mut verdict);
    }
    keys::check(&pod["metadata"], "metadata", &settings.queue_label, &mut verdict);
    values(&pod["metadata"], &mut verdict);
    names(&pod["metadata"], settings, world, &mut verdict);
    verdict
}

/// Extended resources are whole. The API server says so too, but not what to write instead.
pub(crate) fn part_of_a_gpu_as_quantity(pod: &Value, verdict: &mut Verdict) {
    for (slot, container) in share::containers(pod) {
        for list in ["limits", "requests"] {
            let amounts = container["resources"][list].as_object();
            for (resource, amount) in amounts.into_iter().flatten().filter(|(name, _)| share::is_gpu(name)) {
                let Some(quantity) = share::quantity(amount) else { continue };
                if quantity.as_i64().is_some() {
                    continue;
                }
                let (name, index) = slot.path();
                let field = format!("spec.{name}[{index}].resources.{list}[{resource}]");
                let whole = 1_000_000_000;
                let message = match quantity.nano() {
                    nano if nano > 0 && nano < whole => {
                        let fraction = decimal(nano);
                        format!(
                            "GPUs are counted whole; remove this and use the annotation gpu-fraction: \"{fraction}\""
                        )
                    }
                    _ => format!(
                        "{quantity} is no whole number of GPUs; for a part of each of several GPUs use the annotations \
                         gpu-fraction: \"0.5\" and gpu-fraction-num-devices: \"2\""
                    ),
                };
                // Said once: limits and requests must be equal anyway.
                if verdict.errors.iter().all(|error| error.message != message) {
                    verdict.refuse(field, message);
                }
            }
        }
    }
}

/// Billionths as a decimal without trailing zeros.
fn decimal(nano: i128) -> String {
    let digits = format!("{nano:09}");
    format!("0.{}", digits.trim_end_matches('0'))
}

fn annotation(key: &str) -> String {
    format!("metadata.annotations[{key}]")
}

fn gpu_share(pod: &Value, settings: &Settings, verdict: &mut Verdict) {
    let share = Share::of(pod);
    if let Some(devices) = share.devices {
        if !share.is_asked() {
            verdict.refuse(
                annotation(keys::DEVICES),
                "counts the GPUs of which a part is asked for; add gpu-fraction or gpu-memory, or remove it",
            );
        } else if !devices.parse::<u32>().is_ok_and(|n| n > 0) {
            verdict.refuse(
                annotation(keys::DEVICES),
                format!(
                    "{} is no count of GPUs; write a whole number from 1 on, such as \"2\"",
                    quote(devices)
                ),
            );
        }
    }
    if !share.is_asked() {
        if share.mps {
            verdict
                .refuse(annotation(keys::MPS), "only works with a part of a GPU; add gpu-fraction: \"0.5\"");
        }
        if share.container.is_some() {
            verdict.warn(annotation(keys::CONTAINER), "has no effect without gpu-fraction or gpu-memory");
        }
        return;
    }
    let asked_by = if share.fraction.is_some() { keys::FRACTION } else { keys::MEMORY };
    if !settings.gpu_sharing {
        verdict.refuse(
            annotation(asked_by),
            "GPU sharing is switched off in this cluster; ask for a whole GPU with the limit nvidia.com/gpu: 1, or have \
             it switched on (gpuSharing)",
        );
        return;
    }
    if share.fraction.is_some() && share.memory.is_some() {
        verdict.refuse(annotation(keys::MEMORY), "cannot stand beside gpu-fraction; keep one of the two");
    }
    if let Some(fraction) = share.fraction.filter(|text| !is_fraction(text)) {
        verdict.refuse(
            annotation(keys::FRACTION),
            format!(
                "{} is no number between 0 and 1; write for example \"0.5\", or remove it and ask for whole GPUs with \
                 the limit nvidia.com/gpu",
                quote(fraction)
            ),
        );
    }
    if let Some(memory) = share.memory.filter(|text| !text.parse::<i64>().is_ok_and(|mib| mib > 0)) {
        verdict.refuse(
            annotation(keys::MEMORY),
            format!(
                "{} is no amount of memory; write a whole number of MiB, such as \"4000\"",
                quote(memory)
            ),
        );
    }
    for (slot, container) in share::containers(pod) {
        if share::asks_whole_gpu(container) {
            let (list, index) = slot.path();
            verdict.refuse(
                format!("spec.{list}[{index}].resources"),
                format!("asks for whole GPUs beside {asked_by}; remove the GPUs here or the annotation"),
            );
            break;
        }
    }
    if let Some(name) = share.container
        && Slot::of(pod, Some(name)).is_none()
    {
        let names: Vec<String> = share::containers(pod)
            .filter_map(|(_, container)| container["name"].as_str())
            .take(10)
            .map(quote)
            .collect();
        verdict.refuse(
            annotation(keys::CONTAINER),
            format!("the pod has no container {}; write one of {}", quote(name), names.join(", ")),
        );
    }
}

/// What a pod holds is reckoned by its annotations: once it has a node, they stay as they are.
fn kept_share(pod: &Value, old: &Value, verdict: &mut Verdict) {
    let has_node = old["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    let differs = |key: &str| {
        let at = |pod: &Value| pod["metadata"]["annotations"][key].clone();
        at(pod) != at(old)
    };
    for key in [keys::FRACTION, keys::MEMORY, keys::DEVICES, keys::CONTAINER, keys::MPS] {
        if has_node && differs(key) {
            verdict.refuse(
                annotation(key),
                "cannot be changed once the pod has a node, because its part of the GPU is taken already; make a new pod",
            );
        }
    }
    let was_wired = !old["metadata"]["annotations"][keys::CONFIG_MAP].is_null();
    if (was_wired || has_node) && differs(keys::CONFIG_MAP) {
        verdict.refuse(
            annotation(keys::CONFIG_MAP),
            "cannot be changed, because the pod's containers refer to the config map of this name; leave it as it was",
        );
    }
}

/// The minimum of a gang, where nobody looks for it.
pub(crate) fn min_member_of_no_job(metadata: &Value, path: &str, verdict: &mut Verdict) {
    if !metadata["annotations"][keys::MIN_MEMBER].is_null() {
        verdict.warn(
            format_args!("{path}.annotations[{}]", keys::MIN_MEMBER),
            "has no effect here; it is read from Jobs and JobSets",
        );
    }
}

/// A plain decimal strictly between 0 and 1.
fn is_fraction(text: &str) -> bool {
    // A quantity may end in a suffix, a float may be infinite: it must be good as both.
    text.parse::<f64>().is_ok()
        && text.parse::<k8s_quantity::Quantity>().is_ok_and(|q| q.nano() > 0 && q.nano() < 1_000_000_000)
}

/// Devices are handed out, not chosen: a container may not name the ones that it sees.
fn visible_devices(pod: &Value, verdict: &mut Verdict) {
    let prefix = pod["metadata"]["annotations"][keys::CONFIG_MAP].as_str();
    let sharer = Share::of(pod).sharer(pod);
    for (slot, container) in share::containers(pod) {
        let env = container["env"].as_array().map(Vec::as_slice).unwrap_or_default();
        for (n, variable) in env.iter().enumerate() {
            if variable["name"] != defaults::VISIBLE_DEVICES {
                continue;
            }
            let source = &variable["valueFrom"]["configMapKeyRef"];
            // The binder fills this map for a pod that shares a GPU, and for no other: anybody could make one of that name.
            let is_ours = sharer == Some(slot)
                && source["key"] == defaults::VISIBLE_DEVICES
                && prefix.is_some_and(|prefix| source["name"] == share::config_map(prefix, slot).as_str());
            let is_nothing = variable["valueFrom"].is_null()
                && matches!(variable["value"].as_str(), None | Some("" | "void" | "none"));
            if !is_ours && !is_nothing {
                let (list, index) = slot.path();
                verdict.refuse(
                    format!("spec.{list}[{index}].env[{n}]"),
                    "NVIDIA_VISIBLE_DEVICES may not choose devices here; remove it and ask for GPUs with the limit \
                     nvidia.com/gpu or the annotation gpu-fraction",
                );
            }
        }
    }
}

/// Values that upstream replaces by a default without a word.
pub(crate) fn values(metadata: &Value, verdict: &mut Verdict) {
    let at = |place: &str, key: &str| metadata[place].get(key).and_then(Value::as_str).map(str::to_owned);
    if let Some(value) = at("labels", keys::PREEMPTIBILITY)
        && !matches!(value.as_str(), "preemptible" | "non-preemptible")
    {
        verdict.warn(
            format_args!("metadata.labels[{}]", keys::PREEMPTIBILITY),
            format_args!("{} is ignored; write preemptible or non-preemptible", quote(&value)),
        );
    }
    if let Some(value) = at("labels", keys::TASK_PRIORITY)
        && value.parse::<i64>().is_err()
    {
        verdict.warn(
            format_args!("metadata.labels[{}]", keys::TASK_PRIORITY),
            format_args!("{} is ignored; write a whole number", quote(&value)),
        );
    }
    // A minimum of 0 is no gang, and a segment of 0 pods is none.
    for (key, least) in [(keys::MIN_MEMBER, 0), (keys::SEGMENT_SIZE, 1)] {
        if let Some(value) = at("annotations", key)
            && !value.trim().parse::<i32>().is_ok_and(|n| n >= least)
        {
            verdict.warn(
                format_args!("metadata.annotations[{key}]"),
                format_args!("{} is ignored; write a whole number from {least} on", quote(&value)),
            );
        }
    }
    for key in [keys::PREEMPTION_DELAY, keys::STALENESS_GRACE] {
        if let Some(value) = at("annotations", key)
            && !is_duration(&value)
        {
            verdict.warn(
                format_args!("metadata.annotations[{key}]"),
                format_args!("{} is ignored; write a duration such as 90s or 1h30m", quote(&value)),
            );
        }
    }
    if at("annotations", keys::TOPOLOGY).is_none() {
        for key in [keys::TOPOLOGY_REQUIRED, keys::TOPOLOGY_PREFERRED] {
            if at("annotations", key).is_some() {
                verdict.warn(
                    format_args!("metadata.annotations[{key}]"),
                    format_args!("has no effect without the annotation {}", keys::TOPOLOGY),
                );
            }
        }
    }
}

/// Names of things that do not exist. They may come later, so these are warnings.
pub(crate) fn names(metadata: &Value, settings: &Settings, world: &dyn World, verdict: &mut Verdict) {
    let label = |key: &str| metadata["labels"].get(key).and_then(Value::as_str);
    if let Some(queue) = label(&settings.queue_label)
        && matches!(world.queue(queue), Some(None))
    {
        let names = world.queue_names();
        let near = spelling::nearest(queue, names.iter().map(String::as_str));
        let hint = match near {
            Some(name) => format!("did you mean {}?", quote(name)),
            None => "it waits until there is one".to_owned(),
        };
        verdict.warn(
            format_args!("metadata.labels[{}]", settings.queue_label),
            format_args!("there is no queue {}; {hint}", quote(queue)),
        );
    }
    if let Some(class) = label(keys::PRIORITY_CLASS)
        && world.has_priority_class(class) == Some(false)
    {
        verdict.warn(
            format_args!("metadata.labels[{}]", keys::PRIORITY_CLASS),
            format_args!("there is no PriorityClass {}; the default priority is taken", quote(class)),
        );
    }
}

/// A duration as Go writes it: numbers with units, `0` alone without.
pub(crate) fn is_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let number = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
        let (digits, after) = rest.split_at(number);
        let n_points = digits.bytes().filter(|b| *b == b'.').count();
        if n_points > 1 || digits.len() == n_points {
            return false;
        }
        // Longer units first: `m` is also how `ms` begins.
        let unit =
            ["ns", "us", "µs", "μs", "ms", "s", "m", "h"].iter().find_map(|unit| after.strip_prefix(unit));
        match unit {
            Some(after) => rest = after,
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::world::Given;

    fn pod(annotations: Value, labels: Value, containers: Value) -> Value {
        json!({
            "metadata": {"name": "p", "annotations": annotations, "labels": labels},
            "spec": {"schedulerName": "kai-scheduler", "containers": containers, "initContainers": [{"name": "init"}]},
        })
    }

    fn show(verdict: &Verdict) -> Vec<String> {
        let errors = verdict.errors.iter().map(|error| format!("E {error}"));
        errors.chain(verdict.warnings.iter().map(|text| format!("W {text}"))).collect()
    }

    #[track_caller]
    fn check_with(settings: &Settings, world: &Given, pod: Value, expected: &[&str]) {
        let asked = Asked {
            operation: Operation::Create,
            namespace: "ns",
            name: "p",
            uid: "u",
            object: &pod,
            old: &Value::Null,
        };
        assert_eq!(show(&validate(&asked, settings, world)), expected, "{pod}");
    }

    /// Annotations of a pod with one container.
    #[track_caller]
    fn check(annotations: Value, expected: &[&str]) {
        let pod = pod(annotations, json!({}), json!([{"name": "a"}]));
        check_with(&Settings::default(), &Given::default(), pod, expected);
    }

    fn gpu(amount: Value) -> Value {
        json!([{"name": "a", "resources": {"limits": {"nvidia.com/gpu": amount}, "requests": {"nvidia.com/gpu": amount}}}])
    }

    #[test]
    fn shares() {
        for fraction in ["0.5", ".5", "0.001", "0.999", "5e-1"] {
            check(json!({"gpu-fraction": fraction}), &[]);
        }
        let fix = "is no number between 0 and 1; write for example \"0.5\", or remove it and ask for whole GPUs with the \
                   limit nvidia.com/gpu";
        for fraction in ["0", "1", "1.0", "2", "-0.5", "half", "", "500m", "inf", "NaN", "0.5 ", "1e999"] {
            check(
                json!({"gpu-fraction": fraction}),
                &[&format!("E metadata.annotations[gpu-fraction]: {fraction:?} {fix}")],
            );
        }
        check(json!({"gpu-memory": "4000"}), &[]);
        let fix = "is no amount of memory; write a whole number of MiB, such as \"4000\"";
        for memory in ["0", "-1", "4Gi", "1.5", "", "99999999999999999999"] {
            check(
                json!({"gpu-memory": memory}),
                &[&format!("E metadata.annotations[gpu-memory]: {memory:?} {fix}")],
            );
        }
        check(
            json!({"gpu-fraction": "0.5", "gpu-memory": "1"}),
            &["E metadata.annotations[gpu-memory]: cannot stand beside gpu-fraction; keep one of the two"],
        );
        check(json!({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}), &[]);
        check(json!({"gpu-memory": "100", "gpu-fraction-num-devices": "1"}), &[]);
        check(
            json!({"gpu-fraction-num-devices": "2"}),
            &[
                "E metadata.annotations[gpu-fraction-num-devices]: counts the GPUs of which a part is asked for; add \
               gpu-fraction or gpu-memory, or remove it",
            ],
        );
        for devices in ["0", "-1", "two", "1.5"] {
            check(
                json!({"gpu-fraction": "0.5", "gpu-fraction-num-devices": devices}),
                &[&format!(
                    "E metadata.annotations[gpu-fraction-num-devices]: {devices:?} is no count of GPUs; write a whole \
                     number from 1 on, such as \"2\""
                )],
            );
        }
        check(json!({"gpu-fraction": "0.5", "mps": "true"}), &[]);
        check(json!({"mps": "false"}), &[]);
        check(
            json!({"mps": "true"}),
            &["E metadata.annotations[mps]: only works with a part of a GPU; add gpu-fraction: \"0.5\""],
        );
    }

    #[test]
    fn the_container_of_the_share() {
        check(json!({"gpu-fraction": "0.5", "gpu-fraction-container-name": "a"}), &[]);
        check(json!({"gpu-fraction": "0.5", "gpu-fraction-container-name": "init"}), &[]);
        check(
            json!({"gpu-fraction": "0.5", "gpu-fraction-container-name": "b"}),
            &[
                "E metadata.annotations[gpu-fraction-container-name]: the pod has no container \"b\"; write one of \"a\", \
               \"init\"",
            ],
        );
        check(
            json!({"gpu-fraction-container-name": "a"}),
            &[
                "W metadata.annotations[gpu-fraction-container-name]: has no effect without gpu-fraction or gpu-memory",
            ],
        );
    }

    #[test]
    fn shares_beside_whole_gpus() {
        let settings = Settings::default();
        let world = Given::default();
        for (annotation, amount) in [("gpu-fraction", json!("1")), ("gpu-memory", json!(2))] {
            let value = if annotation == "gpu-fraction" { "0.5" } else { "100" };
            check_with(
                &settings,
                &world,
                pod(json!({annotation: value}), json!({}), gpu(amount)),
                &[&format!(
                    "E spec.containers[0].resources: asks for whole GPUs beside {annotation}; remove the GPUs here or the \
                     annotation"
                )],
            );
        }
        check_with(&settings, &world, pod(json!({"gpu-fraction": "0.5"}), json!({}), gpu(json!(0))), &[]);
        check_with(&settings, &world, pod(json!({}), json!({}), gpu(json!(8))), &[]);
    }

    #[test]
    fn parts_as_quantities() {
        #[track_caller]
        fn check_gpu(amount: Value, expected: &str) {
            let expected = format!("E spec.containers[0].resources.limits[nvidia.com/gpu]: {expected}");
            let pod = pod(json!({}), json!({}), gpu(amount));
            check_with(&Settings::default(), &Given::default(), pod, &[&expected]);
        }
        check_gpu(
            json!("0.5"),
            "GPUs are counted whole; remove this and use the annotation gpu-fraction: \"0.5\"",
        );
        check_gpu(
            json!("250m"),
            "GPUs are counted whole; remove this and use the annotation gpu-fraction: \"0.25\"",
        );
        check_gpu(
            json!(0.1),
            "GPUs are counted whole; remove this and use the annotation gpu-fraction: \"0.1\"",
        );
        check_gpu(
            json!("1.5"),
            "1500m is no whole number of GPUs; for a part of each of several GPUs use the annotations gpu-fraction: \
             \"0.5\" and gpu-fraction-num-devices: \"2\"",
        );
        let init = json!({
            "metadata": {},
            "spec": {"schedulerName": "kai-scheduler", "containers": [],
                     "initContainers": [{"resources": {"requests": {"amd.com/gpu": "0.5"}}}]},
        });
        check_with(
            &Settings::default(),
            &Given::default(),
            init,
            &[
                "E spec.initContainers[0].resources.requests[amd.com/gpu]: GPUs are counted whole; remove this and use the \
               annotation gpu-fraction: \"0.5\"",
            ],
        );
    }

    #[test]
    fn sharing_switched_off() {
        let settings = Settings { gpu_sharing: false, ..Settings::default() };
        for annotation in ["gpu-fraction", "gpu-memory"] {
            check_with(
                &settings,
                &Given::default(),
                pod(json!({annotation: "nonsense"}), json!({}), json!([{"name": "a"}])),
                &[&format!(
                    "E metadata.annotations[{annotation}]: GPU sharing is switched off in this cluster; ask for a whole GPU \
                     with the limit nvidia.com/gpu: 1, or have it switched on (gpuSharing)"
                )],
            );
        }
    }

    #[test]
    fn devices_are_not_chosen() {
        let settings = Settings { device_access: true, ..Settings::default() };
        let variable = |rest: Value| {
            let mut variable = json!({"name": "NVIDIA_VISIBLE_DEVICES"});
            for (key, value) in rest.as_object().unwrap() {
                variable[key] = value.clone();
            }
            json!([{"name": "a", "env": [{"name": "X"}, variable]}])
        };
        let refused = "E spec.containers[0].env[1]: NVIDIA_VISIBLE_DEVICES may not choose devices here; remove it and ask \
                       for GPUs with the limit nvidia.com/gpu or the annotation gpu-fraction";
        let from = |name: &str| json!({"valueFrom": {"configMapKeyRef": {"name": name, "key": "NVIDIA_VISIBLE_DEVICES"}}});
        let annotations = json!({"runai/shared-gpu-configmap": "mine", "gpu-fraction": "0.5"});
        for (env, expected) in [
            (json!({"value": "all"}), &[refused][..]),
            (json!({"value": "0,1"}), &[refused]),
            (json!({"value": "void"}), &[]),
            (json!({"value": "none"}), &[]),
            (json!({}), &[]),
            (from("mine-0"), &[]),
            (from("mine-1"), &[refused]),
            (from("theirs"), &[refused]),
        ] {
            check_with(
                &settings,
                &Given::default(),
                pod(annotations.clone(), json!({}), variable(env)),
                expected,
            );
        }
        // Without a share nobody fills the map but the user.
        let unshared = json!({"runai/shared-gpu-configmap": "mine"});
        let world = Given::default();
        check_with(&settings, &world, pod(unshared, json!({}), variable(from("mine-0"))), &[refused]);
        let of_another = json!({
            "runai/shared-gpu-configmap": "mine", "gpu-fraction": "0.5", "gpu-fraction-container-name": "init",
        });
        check_with(&settings, &world, pod(of_another, json!({}), variable(from("mine-0"))), &[refused]);
        let odd = json!({"valueFrom": {"configMapKeyRef": {"name": "mine-0", "key": "ALL"}}});
        check_with(&settings, &world, pod(annotations, json!({}), variable(odd)), &[refused]);
        let all = pod(json!({}), json!({}), variable(json!({"value": "all"})));
        check_with(&Settings::default(), &Given::default(), all, &[]);
    }

    #[test]
    fn others_pass_unseen() {
        let mut other =
            pod(json!({"gpu-fraction": "9", "kai.scheduler/queue": "x"}), json!({}), gpu(json!("0.5")));
        for scheduler in [json!("default-scheduler"), json!(""), json!(null), json!(5)] {
            other["spec"]["schedulerName"] = scheduler;
            check_with(&Settings::default(), &Given::default(), other.clone(), &[]);
        }
        let everything =
            Settings { scheduler_names: vec!["default-scheduler".into()], ..Settings::default() };
        let verdict = judge(&other, "ns", &everything, &Given::default());
        assert!(!verdict.allows(), "an absent name means the default scheduler");
    }

    #[test]
    fn names_and_values() {
        let queue = json!({"metadata": {"name": "team-a"}});
        let world = Given {
            queues: Some(BTreeMap::from([(
                "team-a".to_owned(),
                std::sync::Arc::new(serde_json::from_value(queue).unwrap()),
            )])),
            priority_classes: Some(["train".to_owned()].into()),
            ..Given::default()
        };
        let check_labels = |labels: Value, expected: &[&str]| {
            check_with(&Settings::default(), &world, pod(json!({}), labels, json!([])), expected);
        };
        check_labels(json!({"kai.scheduler/queue": "team-a", "priorityClassName": "train"}), &[]);
        check_labels(
            json!({"kai.scheduler/queue": "teama"}),
            &[
                "W metadata.labels[kai.scheduler/queue]: there is no queue \"teama\"; did you mean \"team-a\"?",
            ],
        );
        check_labels(
            json!({"kai.scheduler/queue": "elsewhere"}),
            &[
                "W metadata.labels[kai.scheduler/queue]: there is no queue \"elsewhere\"; it waits until there is one",
            ],
        );
        check_labels(
            json!({"priorityClassName": "trian"}),
            &[
                "W metadata.labels[priorityClassName]: there is no PriorityClass \"trian\"; the default priority is taken",
            ],
        );
        check_labels(
            json!({"kai.scheduler/preemptibility": "yes", "kai.scheduler/task-priority": "high"}),
            &[
                "W metadata.labels[kai.scheduler/preemptibility]: \"yes\" is ignored; write preemptible or non-preemptible",
                "W metadata.labels[kai.scheduler/task-priority]: \"high\" is ignored; write a whole number",
            ],
        );
        check(
            json!({
                "kai.scheduler/batch-min-member": "0", "kai.scheduler/preemption-delay": "5 minutes",
                "kai.scheduler/topology-required-placement": "rack", "pod-group-name": "not-there-yet",
            }),
            &[
                "W metadata.annotations[kai.scheduler/preemption-delay]: \"5 minutes\" is ignored; write a duration such \
                 as 90s or 1h30m",
                "W metadata.annotations[kai.scheduler/topology-required-placement]: has no effect without the annotation \
                 kai.scheduler/topology",
                "W metadata.annotations[kai.scheduler/batch-min-member]: has no effect here; it is read from Jobs and JobSets",
            ],
        );
        let mut of_job = pod(
            json!({"kai.scheduler/batch-min-member": "-1", "kai.scheduler/segment-size": "0"}),
            json!({}),
            json!([]),
        );
        of_job["metadata"]["ownerReferences"] = json!([{"kind": "Job", "name": "j"}]);
        check_with(
            &Settings::default(),
            &world,
            of_job,
            &[
                "W metadata.annotations[kai.scheduler/batch-min-member]: \"-1\" is ignored; write a whole number from 0 on",
                "W metadata.annotations[kai.scheduler/segment-size]: \"0\" is ignored; write a whole number from 1 on",
            ],
        );
    }

    #[test]
    fn updates_are_judged_by_what_they_change() {
        #[track_caller]
        fn check_update(old: &Value, new: &Value, expected: &[&str]) {
            let asked = Asked {
                operation: Operation::Update,
                namespace: "ns",
                name: "p",
                uid: "u",
                object: new,
                old,
            };
            assert_eq!(show(&validate(&asked, &Settings::default(), &Given::default())), expected);
        }
        let bad = pod(json!({"gpu-fraction": "7"}), json!({}), json!([{"name": "a"}]));
        let mut touched = bad.clone();
        touched["metadata"]["labels"] = json!({"a": "b"});
        check_update(&bad, &touched, &[]);
        let good = pod(json!({"gpu-fraction": "0.5"}), json!({}), json!([{"name": "a"}]));
        check_update(&bad, &good, &[]);
        let mut going = bad.clone();
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        check_update(&good, &going, &[]);
        let asked = Asked {
            operation: Operation::Update,
            namespace: "ns",
            name: "p",
            uid: "u",
            object: &bad,
            old: &good,
        };
        assert!(!validate(&asked, &Settings::default(), &Given::default()).allows());
    }

    #[test]
    fn the_share_of_a_running_pod_stays() {
        #[track_caller]
        fn check_update(node: &str, change: (&str, Option<&str>), expected: Option<&str>) {
            let annotations = json!({"gpu-fraction": "0.5", "runai/shared-gpu-configmap": "mine", "x": "y"});
            let mut old = pod(annotations, json!({}), json!([{"name": "a"}]));
            old["spec"]["nodeName"] = json!(node);
            let mut new = old.clone();
            new["metadata"]["annotations"][change.0] = json!(change.1);
            if change.1.is_none() {
                new["metadata"]["annotations"].as_object_mut().unwrap().remove(change.0);
            }
            let asked = Asked {
                operation: Operation::Update,
                namespace: "ns",
                name: "p",
                uid: "u",
                object: &new,
                old: &old,
            };
            let refused = validate(&asked, &Settings::default(), &Given::default()).errors;
            let fields: Vec<&str> = refused.iter().map(|error| error.field.as_str()).collect();
            assert_eq!(fields, expected.into_iter().collect::<Vec<_>>(), "{change:?}");
        }
        let fraction = Some("metadata.annotations[gpu-fraction]");
        check_update("n", ("gpu-fraction", Some("0.1")), fraction);
        check_update("n", ("gpu-fraction", None), fraction);
        check_update("", ("gpu-fraction", Some("0.1")), None);
        let devices = "gpu-fraction-num-devices";
        check_update("n", (devices, Some("2")), Some("metadata.annotations[gpu-fraction-num-devices]"));
        check_update("n", ("mps", Some("true")), Some("metadata.annotations[mps]"));
        let map = Some("metadata.annotations[runai/shared-gpu-configmap]");
        check_update("n", ("runai/shared-gpu-configmap", Some("theirs")), map);
        check_update("", ("runai/shared-gpu-configmap", Some("theirs")), map);
        check_update("", ("runai/shared-gpu-configmap", None), map);
        // What the binder, the grouper and users write besides.
        for key in ["received-resource-type", "pod-group-name", "kai.scheduler/numa-placement-predicted", "x"]
        {
            check_update("n", (key, Some("1")), None);
        }
    }

    #[test]
    fn durations() {
        for good in ["0", "90s", "1h30m", "1.5s", ".5s", "-1s", "+2m", "250ms", "3µs"] {
            assert!(is_duration(good), "{good}");
        }
        for bad in ["", "-", "5", "s", "5 s", "1d", "1.2.3s", ".s", "1h30", "ü"] {
            assert!(!is_duration(bad), "{bad}");
        }
    }
}
