//! The labels and annotations that scheduling reads, and what is said of those that only look like them.
//!
//! In: the labels and annotations of a pod or of a workload. Out: warnings for keys that are in the wrong place or
//! misspelt, which KAI passes over in silence. Must stay true: a warning names the right key and the right place; keys of
//! other programs are left alone.

use serde_json::{Map, Value};

use crate::spelling;
use crate::verdict::{Verdict, quote};

pub(crate) const FRACTION: &str = "gpu-fraction";
pub(crate) const MEMORY: &str = "gpu-memory";
pub(crate) const DEVICES: &str = "gpu-fraction-num-devices";
pub(crate) const CONTAINER: &str = "gpu-fraction-container-name";
pub(crate) const MPS: &str = "mps";
pub(crate) const CONFIG_MAP: &str = "runai/shared-gpu-configmap";
pub(crate) const POD_GROUP: &str = "pod-group-name";
pub(crate) const SKIP_GROUPER: &str = "kai.scheduler/skip-podgrouper";
pub(crate) const PROJECT: &str = "project";
pub(crate) const PRIORITY_CLASS: &str = "priorityClassName";
pub(crate) const PREEMPTIBILITY: &str = "kai.scheduler/preemptibility";
pub(crate) const TASK_PRIORITY: &str = "kai.scheduler/task-priority";
pub(crate) const PREEMPTION_DELAY: &str = "kai.scheduler/preemption-delay";
pub(crate) const STALENESS_GRACE: &str = "kai.scheduler/staleness-grace-period";
pub(crate) const MIN_MEMBER: &str = "kai.scheduler/batch-min-member";
pub(crate) const SEGMENT_SIZE: &str = "kai.scheduler/segment-size";
pub(crate) const TOPOLOGY: &str = "kai.scheduler/topology";
pub(crate) const TOPOLOGY_REQUIRED: &str = "kai.scheduler/topology-required-placement";
pub(crate) const TOPOLOGY_PREFERRED: &str = "kai.scheduler/topology-preferred-placement";

/// The prefix of KAI's keys.
const PREFIX: &str = "kai.scheduler";

const LABELS: &[&str] = &[
    "kai.scheduler/queue",
    "kai.scheduler/node-pool",
    PREEMPTIBILITY,
    "kai.scheduler/subgroup-name",
    TASK_PRIORITY,
    PRIORITY_CLASS,
];

const ANNOTATIONS: &[&str] = &[
    PREEMPTION_DELAY,
    STALENESS_GRACE,
    MIN_MEMBER,
    TOPOLOGY,
    TOPOLOGY_REQUIRED,
    TOPOLOGY_PREFERRED,
    SEGMENT_SIZE,
    "kai.scheduler/segment-topology-required-placement",
    "kai.scheduler/segment-topology-preferred-placement",
    SKIP_GROUPER,
    "kai.scheduler/top-owner-metadata",
    "kai.scheduler/stale-podgroup-timestamp",
    "kai.scheduler/last-start-timestamp",
    "kai.scheduler/last-eviction-timestamp",
    "kai.scheduler/numa-placement-predicted",
    "kai.scheduler/numa-placement-observed",
    POD_GROUP,
    FRACTION,
    MEMORY,
    DEVICES,
    CONTAINER,
];

/// By which pods join groups of systems that come with a scheduler of their own: ours does not look at them.
const OF_OTHERS: &[(&str, Place, &str)] = &[
    ("scheduling.k8s.io/group-name", Place::Annotation, "Volcano's scheduler"),
    ("scheduling.volcano.sh/group-name", Place::Annotation, "Volcano's scheduler"),
    ("gang.scheduling.koordinator.sh/name", Place::Annotation, "Koordinator's scheduler"),
    ("pod-group.scheduling.sigs.k8s.io", Place::Label, "the coscheduling plugin"),
    ("pod-group.scheduling.sigs.k8s.io/name", Place::Label, "the coscheduling plugin"),
    ("scheduler.tensorstack.dev/group-name", Place::Label, "T9k's scheduler"),
];

/// Keys without a prefix that people misspell and that nothing else would mean.
const BARE: &[&str] = &[FRACTION, MEMORY, DEVICES, CONTAINER, POD_GROUP];

/// Prefixes with which such keys are written by mistake.
const BARE_PREFIXES: &[&str] = &["", "nvidia.com", "runai", "run.ai", "muster.dev", "kai-scheduler"];

/// Prefixes under which people look for a queue.
const QUEUE_PREFIXES: &[&str] =
    &["", "kai.scheduler", "kai-scheduler", "kai", "scheduling.run.ai", "run.ai", "runai", "muster.dev"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Label,
    Annotation,
}

impl Place {
    fn field(self) -> &'static str {
        match self {
            Place::Label => "labels",
            Place::Annotation => "annotations",
        }
    }

    fn noun(self) -> &'static str {
        match self {
            Place::Label => "label",
            Place::Annotation => "annotation",
        }
    }
}

/// Warns about keys of an object's metadata that look like ours and do nothing. `path` is where the metadata is.
pub(crate) fn check(metadata: &Value, path: &str, queue_label: &str, verdict: &mut Verdict) {
    let empty = Map::new();
    let map = |place: Place| metadata[place.field()].as_object().unwrap_or(&empty);
    for place in [Place::Label, Place::Annotation] {
        for key in map(place).keys() {
            let message = match meant(key, place, queue_label) {
                Meant::Itself => continue,
                Meant::Nothing => "no such key; it has no effect".to_owned(),
                Meant::OfOthers(_) if map(Place::Annotation).contains_key(POD_GROUP) => continue,
                Meant::OfOthers(reader) => format!(
                    "is read by {reader} only; with this scheduler pods are grouped by their owner, or by the annotation \
                     {POD_GROUP}"
                ),
                // Whoever has the right key too knows what they do.
                Meant::Other(right, in_place) if map(in_place).contains_key(right) => continue,
                Meant::Other(right, in_place) if right == key => {
                    format!("has no effect here; it is read from {}", in_place.field())
                }
                Meant::Other(right, in_place) => {
                    format!("no such key; write the {} {right}", in_place.noun())
                }
            };
            verdict.warn(format_args!("{path}.{}[{}]", place.field(), plain(key)), message);
        }
    }
}

/// A key in a message: as it is when it is printable and short.
fn plain(key: &str) -> String {
    if key.len() <= 80 && key.bytes().all(|b| b.is_ascii_graphic()) { key.to_owned() } else { quote(key) }
}

#[derive(Debug, PartialEq, Eq)]
enum Meant<'a> {
    /// A key that is read here, or somebody else's.
    Itself,
    /// One of ours, in its right place.
    Other(&'a str, Place),
    /// One that this other scheduler reads.
    OfOthers(&'static str),
    /// It has our prefix, and there is nothing like it.
    Nothing,
}

fn meant<'a>(key: &str, place: Place, queue_label: &'a str) -> Meant<'a> {
    let known = |keys: &'static [&'static str]| keys.iter().find(|known| **known == key).copied();
    let is_label = if key == queue_label { Some(queue_label) } else { known(LABELS) };
    let is_annotation = known(ANNOTATIONS);
    match (place, is_label, is_annotation) {
        (Place::Label, Some(_), _) | (Place::Annotation, _, Some(_)) => return Meant::Itself,
        (Place::Annotation, Some(label), _) => return Meant::Other(label, Place::Label),
        (Place::Label, _, Some(annotation)) => return Meant::Other(annotation, Place::Annotation),
        _ => {}
    }
    if let Some((.., reader)) = OF_OTHERS.iter().find(|(other, at, _)| *other == key && *at == place) {
        return Meant::OfOthers(reader);
    }
    let (prefix, name) = key.split_once('/').unwrap_or(("", key));
    let folded = spelling::fold(name);
    if matches!(folded.as_str(), "queue" | "queue-name" | "queuename")
        && (QUEUE_PREFIXES.contains(&prefix) || spelling::distance(prefix, "kai.scheduler", 3).is_some())
    {
        return Meant::Other(queue_label, Place::Label);
    }
    if prefix == PREFIX {
        return similar(&folded, queue_label);
    }
    if BARE_PREFIXES.contains(&prefix)
        && let Some(bare) = BARE.iter().find(|bare| spelling::distance(&folded, bare, 2).is_some())
    {
        return Meant::Other(bare, Place::Annotation);
    }
    Meant::Itself
}

/// The key that is most like a name which has our prefix.
fn similar<'a>(name: &str, queue_label: &'a str) -> Meant<'a> {
    let all = || {
        let labels = LABELS.iter().map(|key| (short(key), *key, Place::Label));
        labels.chain(ANNOTATIONS.iter().map(|key| (short(key), *key, Place::Annotation)))
    };
    let near = spelling::nearest(name, all().map(|(short, ..)| short));
    // `topology-required` is no slip of the finger, and it is plain what was meant.
    let longer = || all().map(|(short, ..)| short).find(|short| name.len() > 5 && short.starts_with(name));
    let Some(found) = near.or_else(longer) else { return Meant::Nothing };
    match all().find(|(short, ..)| *short == found) {
        Some(("queue", ..)) => Meant::Other(queue_label, Place::Label),
        Some((_, key, place)) => Meant::Other(key, place),
        None => Meant::Nothing,
    }
}

/// A key without our prefix.
fn short(key: &'static str) -> &'static str {
    key.strip_prefix(PREFIX).and_then(|rest| rest.strip_prefix('/')).unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check_keys(metadata: Value, expected: &[&str]) {
        let mut verdict = Verdict::default();
        check(&metadata, "metadata", "kai.scheduler/queue", &mut verdict);
        assert_eq!(verdict.warnings, expected, "{metadata}");
    }

    #[test]
    fn right_keys_are_silent() {
        check_keys(json!(null), &[]);
        check_keys(json!({"labels": [], "annotations": 5}), &[]);
        let labels: Map<String, Value> = LABELS.iter().map(|key| ((*key).to_owned(), json!("x"))).collect();
        let annotations: Map<String, Value> =
            ANNOTATIONS.iter().map(|key| ((*key).to_owned(), json!("x"))).collect();
        check_keys(json!({"labels": labels, "annotations": annotations}), &[]);
        check_keys(json!({"labels": {"app": "a", "kueue.x-k8s.io/queue-name": "q", "team": "t"}}), &[]);
        check_keys(
            json!({"annotations": {"volcano.sh/queue-name": "q", "prometheus.io/scrape": "true"}}),
            &[],
        );
    }

    #[test]
    fn groups_of_other_systems() {
        let grouped =
            "with this scheduler pods are grouped by their owner, or by the annotation pod-group-name";
        for (key, place, reader) in OF_OTHERS {
            let field = place.field();
            check_keys(
                json!({field: {*key: "g"}}),
                &[&format!("metadata.{field}[{key}]: is read by {reader} only; {grouped}")],
            );
        }
        check_keys(json!({"annotations": {"scheduling.k8s.io/group-name": "g", "pod-group-name": "g"}}), &[]);
        check_keys(json!({"labels": {"scheduling.k8s.io/group-name": "g"}}), &[]);
    }

    #[test]
    fn queue_in_the_wrong_place() {
        let to_label = "no such key; write the label kai.scheduler/queue";
        check_keys(
            json!({"annotations": {"kai.scheduler/queue": "a"}}),
            &["metadata.annotations[kai.scheduler/queue]: has no effect here; it is read from labels"],
        );
        check_keys(
            json!({"annotations": {"kai.scheduler/queue": "a"}, "labels": {"kai.scheduler/queue": "a"}}),
            &[],
        );
        for key in [
            "kai.scheduler/queue-name",
            "kai.scheduler/qeue",
            "kai.schedule/queue",
            "kai-scheduler/queue",
            "runai/queue",
            "scheduling.run.ai/queue",
            "muster.dev/queue",
            "queue",
            "queueName",
        ] {
            check_keys(json!({"labels": {key: "a"}}), &[&format!("metadata.labels[{key}]: {to_label}")]);
        }
    }

    #[test]
    fn misspelt() {
        #[track_caller]
        fn check_one(key: &str, expected: &str) {
            check_keys(
                json!({"annotations": {key: "1"}}),
                &[&format!("metadata.annotations[{key}]: {expected}")],
            );
        }
        check_one("kai.scheduler/toplogy", "no such key; write the annotation kai.scheduler/topology");
        check_one(
            "kai.scheduler/topology-required",
            "no such key; write the annotation kai.scheduler/topology-required-placement",
        );
        check_one(
            "kai.scheduler/batchMinMember",
            "no such key; write the annotation kai.scheduler/batch-min-member",
        );
        check_one("kai.scheduler/gpu-fraction", "no such key; write the annotation gpu-fraction");
        check_one("kai.scheduler/preemptibilty", "no such key; write the label kai.scheduler/preemptibility");
        check_one("kai.scheduler/banana", "no such key; it has no effect");
        check_one("gpu_fraction", "no such key; write the annotation gpu-fraction");
        check_one("gpu-fractions", "no such key; write the annotation gpu-fraction");
        check_one("nvidia.com/gpu-fraction", "no such key; write the annotation gpu-fraction");
        check_one("priorityClassName", "has no effect here; it is read from labels");
        check_keys(
            json!({"labels": {"gpu-memory": "1"}}),
            &["metadata.labels[gpu-memory]: has no effect here; it is read from annotations"],
        );
    }
}
