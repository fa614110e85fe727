//! Whole GPUs for fractions that wait.
//!
//! In: the pods that wait for a fraction, the scaling pods that are there. Out: scaling pods to make, mark and delete.
//! Must stay true: scaling pods never ask for more GPUs than the fractions need together, save that one pod's GPUs must be on
//! one node; a scaling pod goes when its pod no longer waits, or when it has served.

use std::sync::Arc;

use k8s_quantity::Quantity;
use muster_runtime::Key;
use muster_runtime::common::Pod;
use muster_runtime::object::{Object, condition};
use serde_json::{Map, Value, json};

use super::{Options, unschedulable, waits};
use crate::request::{self, GPU, Share, Size};

const POD_NAME: &str = "shared-gpu-pod-name";
const POD_NAMESPACE: &str = "shared-gpu-pod-namespace";
const APP: &str = "scaling-pod";
/// The longest name that an object may have.
const LONGEST_NAME: usize = 253;
const LONGEST_LABEL: usize = 63;

#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    Create(Value),
    /// Says what is so: nobody has a node for it yet. Autoscalers look at pods with this mark only.
    Mark(Key),
    /// By key and uid.
    Delete(Key, String),
}

/// Whether a pod waits for a fraction of a GPU and was given up on.
pub fn is_stuck(pod: &Pod, options: &Options) -> bool {
    may_be_stuck(pod, options) && unschedulable(pod).is_some()
}

/// Whether it may come to that.
pub fn may_be_stuck(pod: &Pod, options: &Options) -> bool {
    waits(pod)
        && pod.spec.scheduler_name.is_in(&options.scheduler_names)
        && request::share(&pod.metadata.annotations).is_some()
}

/// `stuck`: the pods that wait, in order of name. `scaling`: all pods of the scaling namespace. `target`: a pod by its key, if nodes would help
/// it. `cooling`: nothing new now.
pub fn plan(
    stuck: &[Arc<Pod>],
    scaling: &[Arc<Pod>],
    target: impl Fn(&Key) -> Option<Arc<Pod>>,
    cooling: bool,
    options: &Options,
) -> Vec<Action> {
    let mut actions = Vec::new();
    let mut left: Vec<&Arc<Pod>> = Vec::new();
    for pod in scaling.iter().filter(|pod| target_of(pod).is_some()) {
        let serves = target_of(pod).and_then(|key| target(&key)).is_some_and(|pod| is_stuck(&pod, options));
        if pod.metadata.deleting() {
            continue;
        }
        // Once it has a node the node is there, whatever becomes of the pod: its GPU is for whom it was fetched.
        if pod.is_over() || pod.is_bound() || !serves {
            actions.push(Action::Delete(pod.key(), pod.metadata.uid.clone()));
        } else {
            if condition(&pod.status.conditions, "PodScheduled").is_none() {
                actions.push(Action::Mark(pod.key()));
            }
            left.push(pod);
        }
    }
    let served = actions.iter().any(|action| matches!(action, Action::Delete(..)));
    if cooling || served {
        return actions;
    }

    let mut needed = Quantity::ZERO;
    for pod in stuck {
        if let Some(share) = request::share(&pod.metadata.annotations) {
            needed += counted(share, options).gpus(None);
        }
    }
    // Whole GPUs: any part of one is one.
    let needed = needed.value();
    let devices = |pod: &Pod| pod.spec.containers.iter().map(|c| gpus_of(&c.resources.requests)).sum::<i64>();
    let mut asked: i64 = left.iter().map(|pod| devices(pod)).sum();
    let mut widest: i64 = left.iter().map(|pod| devices(pod)).max().unwrap_or(0);
    for pod in stuck {
        let Some(share) = request::share(&pod.metadata.annotations) else { continue };
        let own = i64::from(share.devices);
        let has_one = scaling.iter().any(|scaling| target_of(scaling) == Some(pod.key()));
        if has_one || (asked >= needed && own <= widest) {
            continue;
        }
        asked += own;
        widest = widest.max(own);
        actions.push(Action::Create(scaling_pod(pod, own, options)));
    }
    actions
}

fn counted(share: Share, options: &Options) -> Share {
    let size = match share.size {
        Size::Portion(portion) => Size::Portion(portion),
        Size::Memory(_) => Size::Portion(options.memory_share),
    };
    Share { size, ..share }
}

fn gpus_of(list: &muster_runtime::object::Strings) -> i64 {
    list.get(GPU).and_then(|text| text.parse::<Quantity>().ok()).map_or(0, Quantity::value)
}

/// The pod that a scaling pod was made for. Names too long for a label are in annotations only.
pub fn target_of(scaling: &Pod) -> Option<Key> {
    let said = |key: &str| scaling.metadata.annotations.get(key).or_else(|| scaling.metadata.labels.get(key));
    Some(Key::new(said(POD_NAMESPACE)?.as_str(), said(POD_NAME)?.as_str()))
}

fn scaling_pod(pod: &Pod, devices: i64, options: &Options) -> Value {
    let asked = request::ask(pod).amounts;
    let mut requests = Map::new();
    for name in ["cpu", "memory"] {
        let amount = asked.get(name);
        if !amount.is_zero() {
            requests.insert(name.to_owned(), amount.to_string().into());
        }
    }
    let gpus: Value = devices.to_string().into();
    requests.insert(GPU.to_owned(), gpus.clone());
    let (name, namespace) = (&pod.metadata.name, &pod.metadata.namespace);
    let mut labels = json!({"app": APP});
    for (key, value) in [(POD_NAME, name), (POD_NAMESPACE, namespace)] {
        if value.len() <= LONGEST_LABEL {
            labels[key] = value.as_str().into();
        }
    }
    let mut spec = json!({
        "restartPolicy": "OnFailure",
        "serviceAccountName": options.service_account,
        "nodeSelector": pod.spec.node_selector,
        "containers": [{
            "name": APP,
            "image": options.image,
            "imagePullPolicy": "IfNotPresent",
            "resources": {"requests": requests, "limits": {GPU: gpus}},
        }],
    });
    if !options.command.is_empty() {
        spec["containers"][0]["command"] = json!(options.command);
    }
    for (field, rule) in [("affinity", &pod.spec.affinity), ("tolerations", &pod.spec.tolerations)] {
        if let Some(rule) = rule {
            spec[field] = json!(rule);
        }
    }
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name_for(namespace, name),
            "namespace": options.namespace,
            "labels": labels,
            "annotations": {POD_NAME: name, POD_NAMESPACE: namespace},
        },
        "spec": spec,
    })
}

/// One name per pod: the hash keeps `a-b/c` and `a/b-c` apart, and names within their length.
fn name_for(namespace: &str, name: &str) -> String {
    let hash = muster_runtime::json::short_hash(&json!([namespace, name]), 0);
    let mut text = format!("{namespace}-{name}");
    let mut end = text.len().min(LONGEST_NAME - hash.len() - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    format!("{}-{hash}", text.trim_end_matches(['-', '.']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options::default()
    }

    fn pod(text: Value) -> Arc<Pod> {
        Arc::new(serde_json::from_value(text).unwrap())
    }

    fn stuck(name: &str, annotations: Value) -> Arc<Pod> {
        pod(json!({
            "metadata": {"name": name, "namespace": "ns", "annotations": annotations},
            "spec": {"schedulerName": "kai-scheduler", "nodeSelector": {"pool": "gpu"}, "tolerations": [{"operator": "Exists"}],
                "containers": [{"resources": {"requests": {"cpu": "1"}}}, {"resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}]},
            "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
        }))
    }

    fn half(name: &str) -> Arc<Pod> {
        stuck(name, json!({"gpu-fraction": "0.5"}))
    }

    fn made(action: &Action) -> Arc<Pod> {
        match action {
            Action::Create(body) => {
                let mut body = body.clone();
                body["metadata"]["uid"] = json!("u");
                body["status"]["conditions"] = json!([{"type": "PodScheduled", "status": "False"}]);
                pod(body)
            }
            other => panic!("{other:?}"),
        }
    }

    fn shown(actions: &[Action]) -> String {
        let said = actions.iter().map(|action| match action {
            Action::Create(body) => {
                let requests = &body["spec"]["containers"][0]["resources"]["requests"];
                format!("+{} {}", body["metadata"]["annotations"][POD_NAME], requests[GPU]).replace('"', "")
            }
            Action::Mark(key) => format!("!{}", key.name),
            Action::Delete(key, _) => format!("-{}", key.name.split('-').nth(1).unwrap()),
        });
        said.collect::<Vec<_>>().join(", ")
    }

    #[track_caller]
    fn check(stuck: &[Arc<Pod>], scaling: &[Arc<Pod>], cooling: bool, expected: &str) -> Vec<Action> {
        let target = |key: &Key| stuck.iter().find(|p| p.key() == *key).cloned();
        let actions = plan(stuck, scaling, target, cooling, &options());
        assert_eq!(shown(&actions), expected);
        actions
    }

    #[test]
    fn as_many_gpus_as_the_fractions_need() {
        check(&[], &[], false, "");
        check(&[half("a")], &[], false, "+a 1");
        check(&[half("a"), half("b")], &[], false, "+a 1");
        check(&[half("a"), half("b"), half("c")], &[], false, "+a 1, +b 1");
        check(&[half("a")], &[], true, "");
        let wide = stuck("w", json!({"gpu-fraction": "0.1", "gpu-fraction-num-devices": "3"}));
        check(&[half("a"), wide], &[], false, "+a 1, +w 3");
        let memory: Vec<Arc<Pod>> =
            (0..11).map(|i| stuck(&format!("m{i:02}"), json!({"gpu-memory": "4000"}))).collect();
        check(&memory, &[], false, "+m00 1, +m01 1");
    }

    #[test]
    fn what_is_there_counts_and_what_has_served_goes() {
        let all = [half("a"), half("b"), half("c")];
        let first = made(&check(&all[..1], &[], false, "+a 1")[0]);
        check(&all, std::slice::from_ref(&first), false, "+b 1");
        check(&all[..1], std::slice::from_ref(&first), false, "");
        check(&all[1..], std::slice::from_ref(&first), false, "-a");
        let mut served = Pod::clone(&first);
        served.status.phase = "Succeeded".into();
        check(&all, &[Arc::new(served)], false, "-a");
        // It has a node, and hangs there with an image that cannot be pulled.
        let mut bound = Pod::clone(&first);
        bound.spec.node_name = "new".into();
        check(&all, &[Arc::new(bound)], false, "-a");
        let mut unmarked = Pod::clone(&first);
        unmarked.status.conditions.clear();
        let name = unmarked.metadata.name.clone();
        check(&all[..1], &[Arc::new(unmarked)], false, &format!("!{name}"));
        let mut going = Pod::clone(&first);
        going.metadata.deletion_timestamp = Some(jiff::Timestamp::UNIX_EPOCH);
        check(&all[..1], &[Arc::new(going)], false, "");
        let stranger = pod(json!({"metadata": {"name": "x", "namespace": "kai-scale-adjust"}}));
        check(&[], &[stranger], false, "");
    }

    #[test]
    fn who_is_stuck() {
        let yes = half("a");
        assert!(is_stuck(&yes, &options()));
        let with = |change: fn(&mut Pod)| {
            let mut pod = Pod::clone(&yes);
            change(&mut pod);
            is_stuck(&pod, &options())
        };
        assert!(!with(|p| p.spec.node_name = "n".into()));
        assert!(!with(|p| p.spec.scheduler_name = "other".into()));
        assert!(!with(|p| p.status.conditions.clear()));
        assert!(!with(|p| p.status.phase = "Failed".into()));
        assert!(!with(|p| p.metadata.annotations.clear()));
    }

    #[test]
    fn a_scaling_pod() {
        let body = scaling_pod(&half("a"), 2, &options());
        assert_eq!(
            body["spec"]["containers"][0]["resources"]["requests"],
            json!({"cpu": "3", "memory": "1Gi", GPU: "2"})
        );
        assert_eq!(body["spec"]["nodeSelector"], json!({"pool": "gpu"}));
        assert_eq!(body["metadata"]["labels"][POD_NAME], "a");
        let long = scaling_pod(&half(&"x".repeat(250)), 1, &options());
        assert!(long["metadata"]["labels"].get(POD_NAME).is_none());
        assert!(long["metadata"]["name"].as_str().unwrap().len() <= LONGEST_NAME);
        assert_ne!(name_for("a-b", "c"), name_for("a", "b-c"));
    }
}
