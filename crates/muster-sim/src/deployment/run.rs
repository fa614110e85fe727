//! Rolls Deployments.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Deployment;
use super::plan::{Action, REVISION, plan};
use super::status::{News, status};
use crate::api::{ApiError, Delete, Patch};
use crate::context::Context;
use crate::json::merge_patch;
use crate::object::{Key, Object, ReplicaSet};
use crate::podcontrol::{claim, wake_by_self};
use crate::queue::{Next, Queue, work};
use crate::store::Store;

pub fn start(cx: &Context) -> impl Future<Output = ()> + Send + use<> {
    let deployments = cx.store::<Deployment>();
    let sets = cx.store::<ReplicaSet>();
    let queue = Queue::new();
    wake_by_self(&deployments, &queue);
    {
        let (queue, deployments) = (queue.clone(), deployments.clone());
        sets.observe(move |change| {
            for set in change.sides() {
                match set.metadata.controller() {
                    Some(owner) if owner.kind == "Deployment" => {
                        queue.add(Key::new(set.metadata.namespace.clone(), owner.name.clone()));
                    }
                    Some(_) => {}
                    None => {
                        for d in deployments.in_namespace(&set.metadata.namespace) {
                            if !d.spec.selector.is_empty() && d.spec.selector.matches(&set.metadata.labels) {
                                queue.add(d.key());
                            }
                        }
                    }
                }
            }
        });
    }
    {
        // `Recreate` waits for the last old pod to be gone.
        let (queue, sets) = (queue.clone(), sets.clone());
        cx.pods.observe(move |change| {
            if change.new.is_none()
                && let Some(pod) = change.old
                && let Some(owner) = pod.metadata.controller().filter(|o| o.kind == "ReplicaSet")
                && let Some(set) = sets.get(&Key::new(pod.metadata.namespace.clone(), owner.name.clone()))
                && let Some(owner) = set.metadata.controller()
            {
                queue.add(Key::new(pod.metadata.namespace.clone(), owner.name.clone()));
            }
        });
    }
    let cx = cx.named("deployment-controller");
    async move {
        let ready = [cx.pods.synced()];
        if cx.synced(ready).await.is_none()
            || cx.synced([deployments.synced()]).await.is_none()
            || cx.synced([sets.synced()]).await.is_none()
        {
            return;
        }
        let look = |key: Key| look(&cx, &deployments, &sets, key);
        work("deployment", queue, 8, cx.cancel.clone(), look).await;
    }
}

async fn look(
    cx: &Context,
    deployments: &Store<Deployment>,
    sets: &Store<ReplicaSet>,
    key: Key,
) -> Result<Next, ApiError> {
    let Some(deployment) = deployments.get(&key) else { return Ok(Next::Idle) };
    let owned = claim(cx, sets, &*deployment, &deployment.spec.selector).await?;
    let new = super::plan::find_new(&deployment, &owned).map(|s| s.metadata.uid.clone());
    let old_pods_run = deployment.recreates()
        && owned
            .iter()
            .filter(|s| Some(&s.metadata.uid) != new.as_ref())
            .any(|s| cx.pods.owned_by(&s.metadata.uid).iter().any(|p| !p.finished()));
    let plan = plan(&deployment, &owned, old_pods_run);
    let mut news = News::default();
    let mut failed = None;
    for action in plan.actions {
        if let Err(error) = act(cx, sets, &deployment, action, &mut news).await {
            news.failure = Some(("FailedCreate".into(), error.message()));
            failed = Some(error);
            break;
        }
    }
    let deployment = deployments.get(&key).unwrap_or(deployment);
    let owned: Vec<Arc<ReplicaSet>> = sets.owned_by(&deployment.metadata.uid);
    let (new, wake) = status(&deployment, &owned, &news, cx.clock.now());
    write(cx, deployments, &deployment, &new, news.revision).await?;
    match failed {
        Some(error) => Err(error),
        None => Ok(wake.map_or(Next::Idle, Next::After)),
    }
}

/// Writes status and revision as one status update: that endpoint lets annotations through and leaves the generation
/// as it is.
async fn write(
    cx: &Context,
    deployments: &Store<Deployment>,
    deployment: &Deployment,
    status: &Value,
    revision: Option<String>,
) -> Result<(), ApiError> {
    let Some(revision) = revision else {
        return deployments.write_status(&cx.api, deployment, &deployment.status, status).await;
    };
    let mut patch = json!({"metadata": {"annotations": {REVISION: revision}}});
    if let Some(change) = merge_patch(&deployment.status, status) {
        patch["status"] = change;
    }
    deployments.send_status(&cx.api, deployment, patch).await
}

async fn act(
    cx: &Context,
    sets: &Store<ReplicaSet>,
    deployment: &Deployment,
    action: Action,
    news: &mut News,
) -> Result<(), ApiError> {
    match action {
        Action::Create(body) => {
            let name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            match cx.api.create::<ReplicaSet>(&deployment.metadata.namespace, &body).await {
                Ok(set) => {
                    let n = set.replicas();
                    sets.enter(set);
                    news.created = Some(name.clone());
                    let message = format!("Scaled up replica set {name} from 0 to {n}");
                    cx.events.normal(deployment, "ScalingReplicaSet", message);
                    Ok(())
                }
                // Another template has this hash, or an earlier create was heard too late.
                Err(error) if error.already_exists() => {
                    let there = cx
                        .api
                        .get::<ReplicaSet>(&Key::new(deployment.metadata.namespace.clone(), name))
                        .await?;
                    if there.metadata.controlled_by(&deployment.metadata.uid)
                        && super::plan::find_new(deployment, &[Arc::new(there.clone())]).is_some()
                    {
                        sets.enter(there);
                    } else {
                        news.collided = true;
                    }
                    Ok(())
                }
                Err(error) => Err(error),
            }
        }
        Action::Patch { set, patch, scaled } => {
            let answer: ReplicaSet = match cx.api.patch(&set, "", Patch::Merge, &patch).await {
                Err(error) if error.not_found() => return Ok(()),
                other => other?,
            };
            sets.enter(answer);
            if let Some((from, to)) = scaled {
                let way = if to > from { "up" } else { "down" };
                let message = format!("Scaled {way} replica set {} from {from} to {to}", set.name);
                cx.events.normal(deployment, "ScalingReplicaSet", message);
            }
            Ok(())
        }
        Action::Delete(set) => match cx.api.delete::<ReplicaSet>(&set, Delete::default()).await {
            Err(error) if !error.not_found() => Err(error),
            _ => Ok(()),
        },
        Action::Revision(revision) => {
            news.revision = Some(revision);
            Ok(())
        }
    }
}
