//! Marks the pod with the shared GPUs that it uses.
//!
//! One device: the label `runai-gpu-group`. Several: one label `runai-gpu-group/<id>` each. Must stay true: after the
//! step the pod has the labels of this assignment and of no other.

use std::collections::BTreeMap;

use muster_runtime::api::Patch;
use muster_runtime::object::Strings;
use serde_json::{Value, json};

use super::{Pod, Work};
use crate::assignment::Assignment;
use crate::error::BindError;

pub const GPU_GROUP: &str = "runai-gpu-group";
pub const GPU_GROUP_OF: &str = "runai-gpu-group/";

/// The labels for these groups.
pub fn labels(groups: &[String]) -> Strings {
    match groups {
        [one] => [(GPU_GROUP.to_owned(), one.clone())].into(),
        many => many.iter().map(|group| (format!("{GPU_GROUP_OF}{group}"), group.clone())).collect(),
    }
}

/// The groups that a pod's labels name.
pub fn groups(labels: &Strings) -> impl Iterator<Item = &str> {
    // Nearly no pod has any, and every pod is asked.
    labels
        .starting_at(GPU_GROUP)
        .take_while(|(key, _)| key.starts_with(GPU_GROUP))
        .filter(|(key, _)| is_ours(key))
        .map(|(_, value)| value.as_str())
        .filter(|g| !g.is_empty())
}

fn is_ours(key: &str) -> bool {
    key == GPU_GROUP || key.starts_with(GPU_GROUP_OF)
}

pub(crate) fn is_done(assignment: &Assignment, pod: &Pod) -> bool {
    change(&assignment.gpu_groups, &pod.metadata.labels).is_empty()
}

/// Labels to set, and labels (null) to take away.
fn change(groups: &[String], have: &Strings) -> BTreeMap<String, Value> {
    let wanted = labels(groups);
    let stale = have.keys().filter(|key| is_ours(key) && !wanted.contains_key(key));
    let mut change: BTreeMap<String, Value> = stale.map(|key| (key.clone(), Value::Null)).collect();
    change.extend(
        wanted
            .iter()
            .filter(|(key, value)| have.get(key) != Some(*value))
            .map(|(key, value)| (key.clone(), json!(value))),
    );
    change
}

pub(crate) async fn perform(work: &Work<'_>) -> Result<(), BindError> {
    patch(work, change(&work.assignment.gpu_groups, &work.pod.metadata.labels)).await
}

/// Takes away the labels that this assignment brought; those of another one stay.
pub(crate) async fn undo(work: &Work<'_>) -> Result<(), BindError> {
    let mut operations = vec![json!({"op": "test", "path": "/metadata/uid", "value": work.pod.metadata.uid})];
    for (key, value) in labels(&work.assignment.gpu_groups) {
        let path = format!("/metadata/labels/{}", key.replace('/', "~1"));
        operations.push(json!({"op": "test", "path": path, "value": value}));
        operations.push(json!({"op": "remove", "path": path}));
    }
    if operations.len() == 1 {
        return Ok(());
    }
    match work.api.patch::<Pod>(&work.assignment.pod, "", Patch::Json, &json!(operations)).await {
        Ok(_) => Ok(()),
        // Gone, or not as this assignment left it.
        Err(error) if error.not_found() || matches!(error.code(), 400 | 422) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn patch(work: &Work<'_>, labels: BTreeMap<String, Value>) -> Result<(), BindError> {
    if labels.is_empty() {
        return Ok(());
    }
    let body = json!({"metadata": {"uid": work.pod.metadata.uid, "labels": labels}});
    match work.api.patch::<Pod>(&work.assignment.pod, "", Patch::Merge, &body).await {
        Ok(_) => Ok(()),
        Err(error) if error.not_found() => Err(BindError::Gone),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(groups: &[&str], have: Value, expected: Value) {
        let groups: Vec<String> = groups.iter().map(|g| (*g).to_owned()).collect();
        let have: Strings = serde_json::from_value(have).unwrap();
        assert_eq!(json!(change(&groups, &have)), expected);
    }

    #[test]
    fn changes() {
        check(&[], json!({"app": "x"}), json!({}));
        check(&["g"], json!({"app": "x"}), json!({"runai-gpu-group": "g"}));
        check(&["g"], json!({"runai-gpu-group": "g"}), json!({}));
        check(&["g"], json!({"runai-gpu-group": "old"}), json!({"runai-gpu-group": "g"}));
        check(
            &["g", "h"],
            json!({"runai-gpu-group": "old", "runai-gpu-group/h": "h"}),
            json!({"runai-gpu-group": null, "runai-gpu-group/g": "g"}),
        );
        check(&[], json!({"runai-gpu-group/h": "h"}), json!({"runai-gpu-group/h": null}));
    }

    #[test]
    fn groups_of_labels() {
        let labels: Strings =
            [("runai-gpu-group/a", "a"), ("runai-gpu-group", "b"), ("x", "c"), ("runai-gpu-group/d", "")]
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .into();
        assert_eq!(groups(&labels).collect::<Vec<_>>(), ["b", "a"]);
    }
}
