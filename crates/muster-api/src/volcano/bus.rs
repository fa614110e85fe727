//! Volcano's commands to jobs and queues, `bus.volcano.sh/v1alpha1`.

use crate::common::meta::OwnerReference;
use crate::common::{ObjectMeta, Rest};
use crate::volcano::batch::Action;
use muster_api_derive::Api;

/// A command to a job or a queue. It is deleted when it is carried out.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(group = "bus.volcano.sh", version = "v1alpha1", plural = "commands")]
pub struct Command {
    pub metadata: ObjectMeta,
    /// What to do.
    pub action: Option<Action>,
    pub message: Option<String>,
    pub reason: Option<String>,
    /// The job or queue.
    pub target: Option<OwnerReference>,
    pub rest: Rest,
}
