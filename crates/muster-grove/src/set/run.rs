//! Keeps sets: reads what belongs to one, plans, does it, says how it is.

use std::collections::HashMap;
use std::sync::Arc;

use muster_runtime::object::{Object, Resource};
use muster_runtime::queue::Next;
use muster_runtime::{ApiError, Key};

use super::plan::{Seen, plan};
use super::terminate::replica_name;
use crate::desk::Desk;
use crate::levels::Topology;
use crate::mirror::Kept;
use crate::object::made;

impl Desk {
    pub(crate) async fn look_set(&self, key: Key) -> Result<Next, ApiError> {
        let Some(set) = self.sets.get(&key) else { return Ok(Next::Idle) };
        let uid = &set.metadata.uid;
        if set.metadata.deleting() {
            self.release(&self.sets, &*set).await?;
            return Ok(Next::Idle);
        }
        let mut kinds = vec![
            made::SERVICE_ACCOUNT,
            made::ROLE,
            made::ROLE_BINDING,
            made::SERVICE,
            made::HPA,
            made::CLAIM,
        ];
        if self.options.mnnvl {
            kinds.push(made::COMPUTE_DOMAIN);
        }
        let mut made: HashMap<&'static str, Vec<Arc<Kept>>> = HashMap::new();
        for kind in kinds {
            if let Some(mirror) = self.mirror(kind).await {
                made.insert(kind.kind, mirror.owned_by(uid));
            }
        }
        let cliques = self.cliques.owned_by(uid);
        let groups = self.groups.owned_by(uid);
        let gangs = self.gangs.owned_by(uid);
        let binding = self.bindings.get(&Key::new("", set.topology_name()));
        let topology = Topology::of(&set, &self.options, |_| binding.as_deref());
        let plan = plan(&Seen {
            set: &set,
            cliques: &cliques,
            groups: &groups,
            group_cliques: &|uid| self.cliques.owned_by(uid),
            gangs: &gangs,
            made: &|resource: Resource| made.get(resource.kind).cloned().unwrap_or_default(),
            topology: &topology,
            options: &self.options,
            now: self.cx.clock.now(),
        });
        for replica in &plan.terminated {
            let message = format!(
                "{} was below its minimum for too long and is made anew",
                replica_name(&set, *replica)
            );
            self.cx.events.warning(&*set, "GangTerminated", message);
        }
        let next = match self.act(&*set, plan.actions).await {
            Ok(next) => next,
            Err(error) => {
                self.note_error(&self.sets, &*set, &set.status, "ERR_SYNC_PODCLIQUESET", &error).await;
                return Err(error);
            }
        };
        self.sets.write_status(&self.cx.api, &*set, &set.status, &plan.status).await?;
        debug_assert_eq!(set.key(), key);
        Ok(plan.wake.map_or(next, |wake| next.or(Next::After(wake))))
    }
}
