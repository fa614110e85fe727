//! What becomes of a shared GPU.
//!
//! In: its reservations, the pods that name it, who is about to use it, and the nodes. Out: what to delete.
//! Must stay true: a reservation that someone uses, or is about to use, stays; nothing runs on a GPU that nobody holds.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_runtime::common::{BindRequest, Pod};
use serde_json::Value;

use crate::service::plan::has_failed;
use crate::steps::mark;
use crate::steps::reserve::DEVICE;

/// A shared GPU, as it is seen.
#[derive(Debug, Default)]
pub struct Observed {
    pub group: String,
    /// The pods that hold it.
    pub reservations: Vec<Arc<Pod>>,
    /// The pods whose labels name it.
    pub users: Vec<Arc<Pod>>,
    /// Requests that name it and are not carried out yet.
    pub requests: Vec<Arc<BindRequest>>,
    /// What it was when it was last looked at.
    pub before: Option<Known>,
}

/// Which GPU is shared, and by whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    pub device: String,
    /// The uids of the pods on it.
    pub users: BTreeSet<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Nobody uses it, or it holds nothing.
    GiveUp { name: String, why: &'static str },
    /// It runs on a GPU that nobody holds.
    Evict { namespace: String, name: String },
    /// The same, and its group has come to be another GPU.
    EvictFrom { device: String, namespace: String, name: String },
}

/// Why a reservation goes whose GPU is still wanted.
pub const NODE_GONE: &str = "its node is gone";

/// `node_lives`: whether a node of this name is there.
pub fn plan(seen: &Observed, node_lives: impl Fn(&str) -> bool) -> Vec<Action> {
    let mut actions = Vec::new();
    let wanted =
        seen.users.iter().any(|pod| uses(pod, &seen.requests)) || seen.requests.iter().any(|r| is_live(r));
    let mut held = false;
    for pod in &seen.reservations {
        // Whatever happens to it, until it is gone it holds the GPU.
        if pod.metadata.deleting() {
            held = true;
            continue;
        }
        let why = if !node_lives(&pod.spec.node_name) {
            NODE_GONE
        } else if pod.is_over() {
            "it has stopped and holds nothing"
        } else if !wanted {
            "nobody uses its GPU"
        } else {
            held = true;
            continue;
        };
        actions.push(Action::GiveUp { name: pod.metadata.name.clone(), why });
    }
    if !held {
        let lost = seen.users.iter().filter(|pod| pod.status.phase == "Running" && !pod.metadata.deleting());
        actions.extend(lost.map(|pod| Action::Evict {
            namespace: pod.metadata.namespace.clone(),
            name: pod.metadata.name.clone(),
        }));
    } else if let (Some(now), Some(before)) = (device(&seen.reservations), &seen.before)
        && now != before.device
    {
        let stayed = seen.users.iter().filter(|pod| {
            before.users.contains(&pod.metadata.uid) && is_on_it(pod) && !pod.metadata.deleting()
        });
        actions.extend(stayed.map(|pod| Action::EvictFrom {
            device: before.device.clone(),
            namespace: pod.metadata.namespace.clone(),
            name: pod.metadata.name.clone(),
        }));
    }
    actions
}

/// What to remember of it until the next look. Who was there under another device stays unknown: it was told to go.
pub fn known(seen: &Observed) -> Option<Known> {
    let Some(device) = device(&seen.reservations) else {
        // It has not said its device yet, or vanished.
        return seen.before.clone().filter(|_| !seen.users.is_empty());
    };
    let moved = seen.before.as_ref().filter(|before| before.device != device);
    let users = seen.users.iter().filter(|pod| is_on_it(pod)).map(|pod| pod.metadata.uid.clone());
    let users = users.filter(|uid| moved.is_none_or(|before| !before.users.contains(uid))).collect();
    Some(Known { device: device.to_owned(), users })
}

/// The device that is held.
pub fn device(reservations: &[Arc<Pod>]) -> Option<&str> {
    let mut sound = reservations.iter().filter(|pod| !pod.metadata.deleting() && !pod.is_over());
    sound.find_map(|pod| pod.metadata.annotation(DEVICE).filter(|device| !device.is_empty()))
}

fn is_on_it(pod: &Pod) -> bool {
    pod.is_bound() && !pod.is_over()
}

/// Whether a pod whose labels name the GPU uses it: it is on a node and not over, or about to get there. A label alone
/// may be left over from an attempt that was given up; a failed request alone may never be tried again, but with the
/// label it may be tried just now, unless it failed for good.
pub fn uses(pod: &Pod, requests: &[Arc<BindRequest>]) -> bool {
    let asked = || requests.iter().any(|r| may_be_tried(r) && is_for(r, pod));
    !pod.is_over() && (pod.is_bound() || asked())
}

fn is_for(request: &BindRequest, pod: &Pod) -> bool {
    request.metadata.namespace == pod.metadata.namespace && pod_of(request) == pod.metadata.name
}

fn pod_of(request: &BindRequest) -> &str {
    request.spec.get("podName").and_then(Value::as_str).unwrap_or(&request.metadata.name)
}

/// Whether a request is not carried out yet.
pub fn is_open(request: &BindRequest) -> bool {
    let phase = request.status.get("phase").and_then(Value::as_str);
    !request.metadata.deleting() && phase != Some("Succeeded")
}

/// Whether a request is not carried out yet, and did not fail for good.
pub fn may_be_tried(request: &BindRequest) -> bool {
    is_open(request) && !has_failed(request)
}

/// Whether a request is certain to be tried.
pub fn is_live(request: &BindRequest) -> bool {
    if !is_open(request) {
        return false;
    }
    match request.status.get("phase").and_then(Value::as_str) {
        Some("Failed") => {
            let number = |map: &std::collections::BTreeMap<String, Value>, field: &str| {
                map.get(field).and_then(Value::as_i64)
            };
            let attempts = number(&request.status, "failedAttempts").unwrap_or(0);
            number(&request.spec, "backoffLimit").is_some_and(|limit| attempts < limit)
        }
        _ => true,
    }
}

/// The shared GPUs that a request names.
pub fn groups_of(request: &BindRequest) -> impl Iterator<Item = &str> {
    let groups = request.spec.get("selectedGPUGroups").and_then(Value::as_array);
    groups.into_iter().flatten().filter_map(Value::as_str)
}

/// The shared GPUs that a pod names: one that it holds, or those that it uses.
pub fn groups_of_pod(pod: &Pod) -> impl Iterator<Item = &str> {
    mark::groups(&pod.metadata.labels)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// `name@node phase`, with `!` behind the name for one that is being deleted.
    fn pod(text: &str) -> Arc<Pod> {
        let (place, phase) = text.split_once(' ').unwrap();
        let (name, node) = place.split_once('@').unwrap();
        let mut pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": name.trim_end_matches('!'), "namespace": "ns"},
            "spec": {"nodeName": node}, "status": {"phase": phase},
        }))
        .unwrap();
        if name.ends_with('!') {
            pod.metadata.deletion_timestamp = "2026-01-01T00:00:00Z".parse().ok();
        }
        Arc::new(pod)
    }

    fn request(pod: &str, spec: Value, status: Value) -> BindRequest {
        let mut request: BindRequest = serde_json::from_value(
            json!({"metadata": {"name": pod, "namespace": "ns"}, "spec": spec, "status": status}),
        )
        .unwrap();
        request.spec.insert("podName".into(), json!(pod));
        request
    }

    #[track_caller]
    fn check(reservations: &[&str], users: &[&str], requests: &[&str], expected: &str) {
        let asked = |text: &&str| match text.split_once(' ') {
            Some((pod, "Hopeless")) => {
                let status = json!({"phase": "Failed", "reason": "cannot be bound: no"});
                Arc::new(request(pod, json!({}), status))
            }
            Some((pod, phase)) => Arc::new(request(pod, json!({}), json!({"phase": phase}))),
            None => Arc::new(request(text, json!({}), json!({}))),
        };
        let seen = Observed {
            group: "g".into(),
            reservations: reservations.iter().map(|t| pod(t)).collect(),
            users: users.iter().map(|t| pod(t)).collect(),
            requests: requests.iter().map(asked).collect(),
            before: None,
        };
        let shown: Vec<String> = plan(&seen, |node| node != "gone")
            .iter()
            .map(|action| match action {
                Action::GiveUp { name, why } => format!("give up {name}: {why}"),
                Action::Evict { name, .. } => format!("evict {name}"),
                Action::EvictFrom { .. } => panic!("nothing is known of before"),
            })
            .collect();
        assert_eq!(shown.join(", "), expected);
    }

    #[test]
    fn table() {
        check(&["r@n Running"], &["p@n Running"], &[], "");
        check(&["r@n Running"], &["p@n Pending"], &[], "");
        check(&["r@n Running"], &["p!@n Running"], &[], "");
        check(&["r@n Running"], &[], &[], "give up r: nobody uses its GPU");
        check(&["r@n Running"], &["p@n Succeeded"], &[], "give up r: nobody uses its GPU");
        check(&["r!@n Running"], &[], &[], "");
        // A label without a node means nothing, unless someone is at it.
        check(&["r@n Running"], &["p@ Pending"], &[], "give up r: nobody uses its GPU");
        check(&["r@n Running"], &["p@ Pending"], &["p"], "");
        check(&["r@n Running"], &[], &["p"], "");
        check(&["r@n Running"], &[], &["p Failed"], "give up r: nobody uses its GPU");
        check(&["r@n Running"], &["p@ Pending"], &["p Failed"], "");
        check(&["r@n Running"], &["p@ Pending"], &["q Failed"], "give up r: nobody uses its GPU");
        check(&["r@n Running"], &["p@ Pending"], &["p Hopeless"], "give up r: nobody uses its GPU");
        // It vanished, it stopped, its node is gone.
        check(&[], &["p@n Running", "q@n Running", "s@n Pending", "t!@n Running"], &[], "evict p, evict q");
        check(&["r@n Failed"], &["p@n Running"], &[], "give up r: it has stopped and holds nothing, evict p");
        check(&["r!@n Running"], &["p@n Running"], &[], "");
        check(&["r@gone Running"], &["p@gone Pending"], &["q"], "give up r: its node is gone");
        check(
            &["r@n Running", "s@n Failed"],
            &["p@n Running"],
            &[],
            "give up s: it has stopped and holds nothing",
        );
        check(&[], &[], &[], "");
    }

    /// In: who was on GPU-1 when it was last looked at, which device is held now, and who is there. Out: who has to go, and
    /// who is known to be there after that.
    #[track_caller]
    fn check_moved(before: &[&str], now: &str, users: &[&str], expected: &str) {
        let with_uid = |text: &&str| {
            let mut pod = Arc::unwrap_or_clone(pod(text));
            pod.metadata.uid = format!("u-{}", pod.metadata.name);
            Arc::new(pod)
        };
        let mut reservation = Arc::unwrap_or_clone(pod("r@n Running"));
        reservation.metadata.annotations.insert(DEVICE.into(), now.into());
        let seen = Observed {
            group: "g".into(),
            reservations: vec![Arc::new(reservation)],
            users: users.iter().map(with_uid).collect(),
            requests: vec![],
            before: Some(Known {
                device: "GPU-1".into(),
                users: before.iter().map(|name| format!("u-{name}")).collect(),
            }),
        };
        let gone: Vec<String> = plan(&seen, |_| true)
            .iter()
            .map(|action| match action {
                Action::EvictFrom { device, name, .. } => format!("{name} from {device}"),
                other => format!("{other:?}"),
            })
            .collect();
        let known = known(&seen).unwrap();
        let left: Vec<&str> = known.users.iter().map(String::as_str).collect();
        assert_eq!(format!("[{}] {} {}", gone.join(", "), known.device, left.join("+")), expected);
    }

    #[test]
    fn a_group_that_becomes_another_gpu() {
        check_moved(&["a"], "GPU-1", &["a@n Running", "b@n Pending"], "[] GPU-1 u-a+u-b");
        check_moved(
            &["a", "c", "d"],
            "GPU-2",
            &["a@n Running", "b@n Running", "c@n Succeeded", "d!@n Running", "e@ Pending"],
            "[a from GPU-1] GPU-2 u-b",
        );
        check_moved(&["a"], "", &["a@n Running"], "[] GPU-1 u-a");
    }

    #[track_caller]
    fn check_live(spec: Value, status: Value, expected: bool) {
        assert_eq!(is_live(&request("p", spec, status)), expected);
    }

    #[test]
    fn live_requests() {
        check_live(json!({}), json!({}), true);
        check_live(json!({}), json!({"phase": "Pending"}), true);
        check_live(json!({}), json!({"phase": "Succeeded"}), false);
        check_live(json!({}), json!({"phase": "Failed", "failedAttempts": 1}), false);
        check_live(json!({"backoffLimit": 3}), json!({"phase": "Failed", "failedAttempts": 2}), true);
        check_live(json!({"backoffLimit": 3}), json!({"phase": "Failed", "failedAttempts": 3}), false);
    }
}
