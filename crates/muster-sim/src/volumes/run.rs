//! Binds claims to volumes.

use super::plan::{abandoned, plan};
use super::{Action, Claim, Volume};
use crate::api::{ApiError, Delete, Patch};
use crate::context::Context;
use crate::object::{Key, Object};
use crate::podcontrol::wake_by_self;
use crate::queue::{Next, Queue, work};
use crate::store::Store;

pub fn start(cx: &Context) -> impl Future<Output = ()> + Send + use<> {
    let claims = cx.store::<Claim>();
    let volumes = cx.store::<Volume>();
    let queue = Queue::new();
    wake_by_self(&claims, &queue);
    {
        // A volume that appears may be what some claim waits for.
        let (queue, claims) = (queue.clone(), claims.clone());
        volumes.observe(move |change| {
            if change.old.is_none() {
                for claim in claims.all().iter().filter(|c| c.status.phase != "Bound") {
                    queue.add(claim.key());
                }
            }
        });
    }
    let cx = cx.clone();
    async move {
        if cx.synced([claims.synced()]).await.is_none() || cx.synced([volumes.synced()]).await.is_none() {
            return;
        }
        // One at a time, so that two claims never reach for the same volume.
        work("volumes", queue, 1, cx.cancel.clone(), |key| look(&cx, &claims, &volumes, key)).await;
    }
}

async fn look(
    cx: &Context,
    claims: &Store<Claim>,
    volumes: &Store<Volume>,
    key: Key,
) -> Result<Next, ApiError> {
    let Some(claim) = claims.get(&key) else {
        let lives = |namespace: &str, name: &str, uid: &str| {
            claims.get(&Key::new(namespace, name)).is_some_and(|c| c.metadata.uid == uid)
        };
        for volume in abandoned(&volumes.all(), lives) {
            match cx.api.delete::<Volume>(&volume.key(), Delete::default()).await {
                Err(error) if !error.not_found() => return Err(error),
                _ => volumes.remove(&volume.key(), &volume.metadata.uid),
            }
        }
        return Ok(Next::Idle);
    };
    for action in plan(&claim, &volumes.all()) {
        match action {
            Action::CreateVolume(body) => match cx.api.create::<Volume>("", &body).await {
                Ok(volume) => volumes.enter(volume),
                Err(error) if error.already_exists() => {}
                Err(error) => return Err(error),
            },
            Action::TakeVolume { volume, patch } => {
                volumes.enter(cx.api.patch(&Key::new("", volume), "", Patch::Merge, &patch).await?);
            }
            Action::VolumeStatus { volume, patch } => {
                volumes.enter(cx.api.patch(&Key::new("", volume), "status", Patch::Merge, &patch).await?);
            }
            Action::BindClaim(patch) => claims.enter(cx.api.patch(&key, "", Patch::Merge, &patch).await?),
            Action::ClaimStatus(patch) => {
                claims.enter(cx.api.patch(&key, "status", Patch::Merge, &patch).await?)
            }
        }
    }
    Ok(Next::Idle)
}
