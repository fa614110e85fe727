//! Keeps scaling groups.

use muster_runtime::queue::Next;
use muster_runtime::{ApiError, Key};

use super::plan::{Seen, place, plan};
use crate::desk::Desk;
use crate::object::made;

impl Desk {
    pub(crate) async fn look_group(&self, key: Key) -> Result<Next, ApiError> {
        let Some(group) = self.groups.get(&key) else { return Ok(Next::Idle) };
        if group.metadata.deleting() {
            self.release(&self.groups, &*group).await?;
            return Ok(Next::Idle);
        }
        let Some(set) = self.set_of(&group.metadata) else { return Ok(Next::Idle) };
        let Some((replica, config)) = place(&set, &group) else { return Ok(Next::Idle) };
        let claims = match config.resource_sharing.is_empty() {
            true => Vec::new(),
            false => {
                let mirror = self.mirror(made::CLAIM).await;
                mirror.map(|mirror| mirror.owned_by(&group.metadata.uid)).unwrap_or_default()
            }
        };
        let cliques = self.cliques.owned_by(&group.metadata.uid);
        let plan = plan(&Seen {
            set: &set,
            config,
            replica,
            group: &group,
            cliques: &cliques,
            claims: &claims,
            options: &self.options,
            now: self.cx.clock.now(),
        });
        for replica in &plan.terminated {
            let message = format!("replica {replica} was below its minimum for too long and is made anew");
            self.cx.events.warning(&*group, "ReplicaTerminated", message);
        }
        let next = match self.act(&*group, plan.actions).await {
            Ok(next) => next,
            Err(error) => {
                self.note_error(
                    &self.groups,
                    &*group,
                    &group.status,
                    "ERR_SYNC_PODCLIQUESCALINGGROUP",
                    &error,
                )
                .await;
                return Err(error);
            }
        };
        self.groups.write_status(&self.cx.api, &*group, &group.status, &plan.status).await?;
        Ok(plan.wake.map_or(next, |wake| next.or(Next::After(wake))))
    }
}
