//! Keeps topologies.

use std::time::Duration;

use muster_runtime::api::Delete;
use muster_runtime::object::controller_ref;
use muster_runtime::queue::Next;
use muster_runtime::{ApiError, Key};
use serde_json::json;

use super::plan::{Found, TOPOLOGY, plan, reference};
use crate::desk::Desk;

/// Topologies are few and not watched; somebody else's change is found in this time.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

impl Desk {
    pub(crate) async fn look_binding(&self, key: Key) -> Result<Next, ApiError> {
        let Some(binding) = self.bindings.get(&key) else { return Ok(Next::Idle) };
        if binding.metadata.deleting() {
            return Ok(Next::Idle);
        }
        let (_, name, _) = reference(&binding, &self.options);
        let path = TOPOLOGY.path("", name, "");
        let found = match self.cx.api.get_path(&path).await {
            Ok(topology) => Found::There(topology),
            Err(error) if error.not_found() => {
                match self.cx.api.get_path("/apis/kai.scheduler/v1alpha1").await {
                    Ok(_) => Found::Missing,
                    Err(error) if error.not_found() => Found::Unserved,
                    Err(error) => return Err(error),
                }
            }
            Err(error) => return Err(error),
        };
        let plan = plan(&binding, &found, &self.options, self.cx.clock.now());
        if let Some(uid) = &plan.delete {
            self.cx.api.delete_path(&path, Delete { uid, ..Delete::default() }).await?;
        }
        if let Some(mut body) = plan.create {
            body["apiVersion"] = json!(TOPOLOGY.api_version());
            body["kind"] = json!(TOPOLOGY.kind);
            body["metadata"]["ownerReferences"] = json!([controller_ref(&*binding)]);
            match self.cx.api.create_path(&TOPOLOGY.path("", "", ""), &body).await {
                Ok(_) => {}
                // Finalizers may hold the one before.
                Err(error) if error.already_exists() => return Ok(Next::After(Duration::from_secs(1))),
                Err(error) => return Err(error),
            }
        }
        self.bindings.write_status(&self.cx.api, &*binding, &binding.status, &plan.status).await?;
        Ok(Next::After(LOOK_AGAIN))
    }
}
