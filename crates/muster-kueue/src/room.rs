//! Whether the pods of a workload would have a place: the question that quota alone does not answer.
//!
//! In: pods to come, by sets, with everything that an admission adds to them. Out: a yes that holds the place until it is taken or given back, or a no
//! with its reason. Whoever knows the nodes answers: Muster's scheduler does, by a gang that stands in for the pods. [`NoRoom`] is for when nobody is
//! asked. Must stay true: what was granted and neither taken nor given back stays held.

use futures::future::BoxFuture;
use muster_runtime::Key;
use serde_json::Value;

/// Pods to come.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    /// The workload.
    pub workload: Key,
    pub uid: String,
    pub priority: i64,
    pub sets: Vec<AskSet>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct AskSet {
    pub name: String,
    pub count: i64,
    /// The template of its pods, as they will be started.
    pub template: Value,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// All of them have a place, and it is held.
    Held,
    /// Why not.
    Refused(String),
}

/// Who knows whether there is room.
pub trait Room: Send + Sync + 'static {
    /// May these pods be placed? If so, their place is held. Asked again for the same workload, the answer replaces the one before.
    fn hold(&self, ask: Ask) -> BoxFuture<'_, Answer>;

    /// The place is no longer wanted: the workload was not admitted after all, or is gone. Nothing happens if none was held.
    fn give_back(&self, workload: &Key);

    /// Waits until there may be more room than before.
    fn changed(&self) -> BoxFuture<'_, ()>;
}

/// Nobody is asked: quota alone decides.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoRoom;

impl Room for NoRoom {
    fn hold(&self, _: Ask) -> BoxFuture<'_, Answer> {
        Box::pin(std::future::ready(Answer::Held))
    }

    fn give_back(&self, _: &Key) {}

    fn changed(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}
