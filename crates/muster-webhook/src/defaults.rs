//! What a namespace says for its pods: which scheduler, which queue.
//!
//! In: a pod and the namespace's labels. Out: the scheduler and the queue that the pod will have. Must stay true: a pod
//! that names a queue, or a scheduler other than the default one, keeps it.

use serde_json::Value;

use crate::keys;
use crate::settings::{DEFAULT_SCHEDULER, Settings};
use crate::world::World;

/// Namespace label: pods here without a scheduler of their own get this one.
pub const NAMESPACE_SCHEDULER: &str = "muster.dev/scheduler";
/// Namespace label, or annotation: pods here without a queue get this one.
pub const NAMESPACE_QUEUE: &str = "muster.dev/queue";

pub(crate) const VISIBLE_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";

/// The scheduler of a pod once the namespace's default is applied. Since the API server writes `default-scheduler` into
/// every pod that names none, that name counts as none where the namespace has a default.
pub(crate) fn scheduler<'a>(
    pod: &'a Value,
    namespace: &str,
    settings: &'a Settings,
    world: &dyn World,
) -> &'a str {
    let named = pod["spec"]["schedulerName"].as_str().unwrap_or_default();
    if !named.is_empty() && named != DEFAULT_SCHEDULER {
        return named;
    }
    let Some(space) = world.namespace(namespace) else { return named };
    let Some(wanted) = space.metadata.labels.get(NAMESPACE_SCHEDULER) else { return named };
    // A name that we do not answer to would leave the pod waiting for nobody.
    settings.scheduler_names.iter().find(|ours| *ours == wanted).map_or(named, String::as_str)
}

/// The queue that the namespace gives to a pod of ours, if the pod needs one.
pub(crate) fn queue(pod: &Value, namespace: &str, settings: &Settings, world: &dyn World) -> Option<String> {
    let labels = &pod["metadata"]["labels"];
    // A project stands for a queue of its name.
    if labels.get(&settings.queue_label).is_some() || labels.get(keys::PROJECT).is_some() {
        return None;
    }
    let space = world.namespace(namespace)?;
    let meta = &space.metadata;
    let name = meta.labels.get(NAMESPACE_QUEUE).or_else(|| meta.annotations.get(NAMESPACE_QUEUE))?;
    Some(name.clone()).filter(|name| !name.is_empty())
}
