//! Makes sure that a pod holds the shared GPU, and learns which GPU it is.
//!
//! A *reservation* is a pod that asks for one whole GPU and does nothing but say, by annotation, which one it got. Its
//! name follows from node and group, so two binders that want the same GPU make one pod between them. Must stay true:
//! a reservation is joined by a write to it, and given up only in the version in which nobody used it: of the two, one
//! loses and looks again. A reservation that vanished under running pods is not made anew before these are gone: the new
//! one may get another GPU, and theirs may be given to others.

use muster_runtime::api::{Delete, Patch};
use muster_runtime::common::{Node, Pod as AnyPod};
use muster_runtime::{ApiError, Key, Object};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Work;
use super::mark::GPU_GROUP;
use crate::error::{BindError, text_of};
use crate::evict::evict;
use crate::options::Reservation;
use crate::reservations;

/// The annotation by which a reservation says which GPU it holds.
pub const DEVICE: &str = "run.ai/reserve_for_gpu_index";
/// Who joined last; written so that the reservation has a new version.
const JOINED: &str = "muster.dev/joined-by";
/// How Karpenter is told to leave a pod alone.
const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
const GPU: &str = "nvidia.com/gpu";
/// How the names of reservations begin, here and with KAI.
pub const PREFIX: &str = "gpu-reservation";

/// The reservation's name: the same for the same node and group, and a valid host name.
pub fn name(node: &str, group: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, format!("{node}/{group}").as_bytes());
    let hash: String = digest.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let stem: String = node.chars().take(30).map(|c| if c == '.' { '-' } else { c }).collect();
    format!("{PREFIX}-{}-{hash}", stem.trim_matches('-'))
}

/// The body of a reservation. `tolerations` are those of the pod for whose sake it is made.
pub fn manifest(options: &Reservation, node: &str, group: &str, tolerations: &[Value]) -> Value {
    let mut resources = options.resources.clone();
    if !resources.is_object() {
        resources = json!({});
    }
    for side in ["requests", "limits"] {
        if !resources[side].is_object() {
            resources[side] = json!({});
        }
        resources[side][GPU] = json!("1");
    }
    let field =
        |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let mut tolerations = tolerations.to_vec();
    let gpu = json!({"key": GPU, "operator": "Exists"});
    if !tolerations.contains(&gpu) {
        tolerations.push(gpu);
    }
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name(node, group),
            "namespace": options.namespace,
            "labels": {"app": options.app_label, GPU_GROUP: group},
            "annotations": {DO_NOT_DISRUPT: "true"},
        },
        "spec": {
            "nodeName": node,
            "serviceAccountName": options.service_account,
            "tolerations": tolerations,
            "containers": [{
                "name": "resource-reservation",
                "image": options.image,
                "imagePullPolicy": "IfNotPresent",
                "resources": resources,
                "env": [field("POD_NAME", "metadata.name"), field("POD_NAMESPACE", "metadata.namespace")],
            }],
        },
    });
    if !options.args.is_empty() {
        pod["spec"]["containers"][0]["args"] = json!(options.args);
    }
    if let Some(class) = options.runtime_class.as_deref().filter(|c| !c.is_empty()) {
        pod["spec"]["runtimeClassName"] = json!(class);
    }
    pod
}

/// A reservation as it is found.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Held {
    pub metadata: muster_runtime::object::Meta,
    pub spec: HeldSpec,
    pub status: HeldStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HeldSpec {
    pub node_name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct HeldStatus {
    pub phase: String,
    pub reason: String,
    pub message: String,
}

impl Held {
    /// It holds its GPU, or is about to.
    fn is_sound(&self) -> bool {
        !self.metadata.deleting() && !self.is_over()
    }

    fn is_over(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    fn device(&self) -> Option<&str> {
        self.metadata.annotation(DEVICE).filter(|d| !d.is_empty())
    }
}

/// What to do next about a group's reservation.
#[derive(Debug, PartialEq)]
enum Next {
    /// It is there and says its device.
    Join {
        name: String,
        device: String,
    },
    Wait {
        why: String,
    },
    /// It stopped by itself and holds nothing.
    Remove {
        name: String,
        uid: String,
        why: String,
    },
    Create,
    OtherNode {
        name: String,
        node: String,
    },
}

/// In: the group's reservations. Out: what to do next.
fn next(node: &str, held: &[Held]) -> Next {
    let name = |pod: &Held| pod.metadata.name.clone();
    if let Some(pod) = held.iter().find(|pod| pod.is_sound()) {
        return if pod.spec.node_name != node {
            Next::OtherNode { name: name(pod), node: pod.spec.node_name.clone() }
        } else if let Some(device) = pod.device() {
            Next::Join { name: name(pod), device: device.to_owned() }
        } else {
            Next::Wait { why: format!("pod {} has not said yet which GPU it holds", name(pod)) }
        };
    }
    match held.iter().find(|pod| pod.spec.node_name == node) {
        None => Next::Create,
        Some(pod) if pod.metadata.deleting() => Next::Wait { why: format!("pod {} is going", name(pod)) },
        Some(pod) => Next::Remove {
            name: name(pod),
            uid: pod.metadata.uid.clone(),
            why: format!("{}: {} {}", name(pod), pod.status.reason, pod.status.message).trim_end().to_owned(),
        },
    }
}

/// Out: the device.
pub(crate) async fn perform(work: &Work<'_>, group: &str) -> Result<String, BindError> {
    let options = &work.options.reservation;
    let node = &work.assignment.node;
    // One at a time per shared GPU; a waiting pod waits for the same reservation.
    let _turn = work.turn(group).await;
    let start = Instant::now();
    let mut created = false;
    let mut settled = false;
    loop {
        let held = find(work, group).await?;
        let why = match next(node, &held) {
            Next::Join { name, device } => {
                if created || join(work, &name).await? {
                    return Ok(device);
                }
                continue;
            }
            Next::OtherNode { name, node: other } => {
                return Err(BindError::refused(format!(
                    "GPU group {group} is held on node {other} by pod {name}, not on node {node}"
                )));
            }
            Next::Remove { name, uid, why } => {
                remove(work, &name, &uid).await?;
                if created && settled {
                    return Err(BindError::refused(format!(
                        "node {node} gave no GPU to its reservation pod {why}"
                    )));
                }
                if created {
                    // Perhaps a GPU is held that nobody shares any more.
                    reservations::settle(work.api, work.options, node).await?;
                    (created, settled) = (false, true);
                }
                why
            }
            // Its node refused it, and its keeper in another process was quicker to take it away.
            Next::Create if created && settled => {
                return Err(BindError::retry(format!(
                    "reservation pod {} on node {node} vanishes as soon as it is created",
                    name(node, group)
                )));
            }
            Next::Create if !created && !make_room(work, group).await? => {
                format!("pods whose reservation of group {group} is gone are going")
            }
            Next::Create => {
                if created {
                    reservations::settle(work.api, work.options, node).await?;
                    settled = true;
                }
                created |= create(work, group).await?;
                format!("pod {} is being created", name(node, group))
            }
            Next::Wait { why } => why,
        };
        if !work.pause(start, options.wait).await {
            if created {
                // It would hold a GPU that nobody uses; and perhaps it is what is broken.
                if let Some(mine) = find(work, group).await?.iter().find(|pod| pod.device().is_none()) {
                    remove(work, &mine.metadata.name, &mine.metadata.uid).await?;
                }
            }
            return Err(BindError::retry(format!(
                "no GPU was reserved on node {node} for group {group} within {} s: {why}",
                options.wait.as_secs()
            )));
        }
    }
}

/// Pods that run on a GPU which nobody holds any more are told to go. Out: whether there are none.
async fn make_room(work: &Work<'_>, group: &str) -> Result<bool, BindError> {
    let users = reservations::users_of(work.api, group).await?;
    let ours = &work.options.reservation.namespace;
    let (holders, users): (Vec<_>, Vec<_>) =
        users.iter().filter(|pod| pod.metadata.namespace != *ours).partition(|pod| reservations::holds(pod));
    if let Some(holder) = holders.iter().find(|pod| !pod.is_over()) {
        return Err(BindError::refused(format!(
            "GPU group {group} is held by pod {}, which is not in namespace {ours}",
            holder.key()
        )));
    }
    let mut none = true;
    for pod in users.iter().filter(|pod| pod.is_bound() && !pod.is_over()) {
        none = false;
        if pod.metadata.deleting() {
            continue;
        }
        let message = reservations::lost(group, &pod.spec.node_name);
        tracing::warn!(pod = %pod.key(), group, "a pod makes way: the reservation of its shared GPU is gone");
        match evict(work.api, &pod.key(), &pod.metadata.uid, &message, work.clock.now(), None).await {
            Err(error) if !error.not_found() && !error.conflict() => return Err(error.into()),
            _ => {}
        }
    }
    Ok(none)
}

async fn find(work: &Work<'_>, group: &str) -> Result<Vec<Held>, BindError> {
    let namespace = &work.options.reservation.namespace;
    let path = AnyPod::RESOURCE.path(namespace, "", "");
    let page = work.api.list_raw(&format!("{path}?labelSelector={GPU_GROUP}%3D{group}"), None).await?;
    let mut held: Vec<Held> =
        page.items.iter().filter_map(|item| serde_json::from_str(item.get()).ok()).collect();
    held.sort_by_key(|pod| (pod.metadata.created(), pod.metadata.name.clone()));
    Ok(held)
}

/// Out: `false` if it went meanwhile.
async fn join(work: &Work<'_>, name: &str) -> Result<bool, BindError> {
    let key = Key::new(work.options.reservation.namespace.clone(), name);
    let uid = &work.pod.metadata.uid;
    let patch = json!({"metadata": {"annotations": {JOINED: uid}}});
    match work.api.patch::<AnyPod>(&key, "", Patch::Merge, &patch).await {
        Ok(pod) => Ok(!pod.metadata.deleting() && !pod.is_over()),
        Err(error) if error.not_found() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

async fn remove(work: &Work<'_>, name: &str, uid: &str) -> Result<(), BindError> {
    let key = Key::new(work.options.reservation.namespace.clone(), name);
    let delete = Delete { uid, grace_seconds: Some(0), propagation: None };
    match work.api.delete::<AnyPod>(&key, delete).await {
        Ok(_) => Ok(()),
        // Gone, or another one has the name by now.
        Err(error) if error.not_found() || error.conflict() => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Out: whether it was created. If not, it is worth another look.
async fn create(work: &Work<'_>, group: &str) -> Result<bool, BindError> {
    let options = &work.options.reservation;
    let node = &work.assignment.node;
    // The API would take a pod for a node that is no more.
    match work.api.get::<Node>(&Key::new("", node)).await {
        Ok(found) if found.metadata.deleting() => {
            return Err(BindError::refused(format!("node {node} is going")));
        }
        Ok(_) => {}
        Err(error) if error.not_found() => {
            return Err(BindError::refused(format!("node {node} is gone")));
        }
        Err(error) => return Err(error.into()),
    }
    let body = manifest(options, node, group, &work.pod.spec.tolerations);
    match work.api.create::<AnyPod>(&options.namespace, &body).await {
        Ok(_) => Ok(true),
        // Somebody else was first, or the last one is still going.
        Err(error) if error.already_exists() => Ok(false),
        Err(error) if error.not_found() => {
            supply(work, &error, "Namespace", "/api/v1/namespaces", &options.namespace).await.map(|()| false)
        }
        Err(error) if lacks_account(&error) => {
            let path = format!("/api/v1/namespaces/{}/serviceaccounts", options.namespace);
            supply(work, &error, "ServiceAccount", &path, &options.service_account).await.map(|()| false)
        }
        Err(error) => Err(error.into()),
    }
}

/// Pods are forbidden whose service account does not exist.
fn lacks_account(error: &ApiError) -> bool {
    error.code() == 403 && error.message().contains("error looking up service account")
}

/// Creates what a reservation was refused for the lack of, as an installation does; another look goes on. What the account may do is left to the
/// installation.
async fn supply(
    work: &Work<'_>,
    lack: &ApiError,
    kind: &str,
    path: &str,
    name: &str,
) -> Result<(), BindError> {
    let body = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
    match work.api.create_path(path, &body).await {
        Ok(_) => Ok(()),
        Err(error) if error.already_exists() => Ok(()),
        Err(error) if error.code() == 403 => Err(BindError::refused(format!(
            "{}; create {kind} {name}, which this service may not: {}",
            text_of(lack),
            text_of(&error)
        ))),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let one = name("node-1", "7c1f");
        assert_eq!(one, name("node-1", "7c1f"));
        assert_ne!(one, name("node-2", "7c1f"));
        assert_ne!(name("a", "b-c"), name("a-b", "c"));
        assert!(one.starts_with("gpu-reservation-node-1-"), "{one}");
        let long = name(&"n.".repeat(120), "g");
        assert!(long.len() <= 63 && !long.contains('.') && !long.contains("--"), "{long}");
    }

    #[test]
    fn manifests() {
        let toleration = json!({"key": "team", "operator": "Exists"});
        let options = Reservation { runtime_class: Some("nvidia".into()), ..Reservation::default() };
        let pod = manifest(&options, "n", "g", std::slice::from_ref(&toleration));
        assert_eq!(
            pod["metadata"]["labels"],
            json!({"app": "kai-resource-reservation", "runai-gpu-group": "g"})
        );
        assert_eq!(pod["spec"]["nodeName"], json!("n"));
        assert_eq!(pod["spec"]["runtimeClassName"], json!("nvidia"));
        assert_eq!(
            pod["spec"]["tolerations"],
            json!([toleration, {"key": "nvidia.com/gpu", "operator": "Exists"}])
        );
        let resources = &pod["spec"]["containers"][0]["resources"];
        assert_eq!(resources["requests"], json!({"cpu": "1m", "memory": "10Mi", "nvidia.com/gpu": "1"}));
        assert_eq!(resources["limits"]["nvidia.com/gpu"], json!("1"));
        let bare = Reservation { resources: Value::Null, ..Reservation::default() };
        let pod = manifest(&bare, "n", "g", &[]);
        assert_eq!(pod["spec"]["containers"][0]["resources"]["limits"], json!({"nvidia.com/gpu": "1"}));
    }

    fn held(name: &str, node: &str, phase: &str, device: &str, going: bool) -> Held {
        let mut pod = Held::default();
        pod.metadata.name = name.into();
        pod.metadata.uid = format!("u-{name}");
        pod.spec.node_name = node.into();
        pod.status.phase = phase.into();
        if !device.is_empty() {
            pod.metadata.annotations.insert(DEVICE.into(), device.into());
        }
        if going {
            pod.metadata.deletion_timestamp = "2026-01-01T00:00:00Z".parse().ok();
        }
        pod
    }

    #[track_caller]
    fn check(found: &[Held], expected: &str) {
        let shown = match next("n", found) {
            Next::Join { name, device } => format!("join {name} for {device}"),
            Next::Wait { .. } => "wait".into(),
            Next::Remove { name, .. } => format!("remove {name}"),
            Next::Create => "create".into(),
            Next::OtherNode { node, .. } => format!("on {node}"),
        };
        assert_eq!(shown, expected);
    }

    #[test]
    fn what_to_do_next() {
        check(&[], "create");
        check(&[held("a", "n", "Running", "GPU-1", false)], "join a for GPU-1");
        check(&[held("a", "n", "Pending", "", false)], "wait");
        check(&[held("a", "n", "Running", "GPU-1", true)], "wait");
        check(&[held("a", "n", "Failed", "", false)], "remove a");
        check(&[held("a", "m", "Running", "GPU-1", false)], "on m");
        check(&[held("a", "m", "Failed", "GPU-1", false)], "create");
        check(
            &[held("a", "n", "Running", "GPU-1", true), held("b", "n", "Running", "GPU-2", false)],
            "join b for GPU-2",
        );
    }
}
