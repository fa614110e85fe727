//! Watches to inputs: every kind that scheduling looks at is followed and handed on in the server's order, as text: what waits for the
//! engine's thread takes a quarter of the room so, and what is decoded there is freed there.
//!
//! In: an API server. Out: [`Input`]s in a channel. Must stay true: the inputs of one kind, in order, lead from nothing to
//! what the server has; a kind that is not served says so, and costs a request now and then.

use crate::hold::Hold;
use muster_runtime::follow::{Collection, Seen, follow};
use muster_runtime::object::Resource;
use muster_runtime::{Api, Key};
use muster_translate::Kind;
use serde_json::Value;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// What the scheduler is told.
#[derive(Debug)]
pub enum Input {
    Put(Kind, Value),
    /// The same as the server sent it.
    Text(Kind, Key, Box<str>),
    Gone(Kind, Key),
    /// Everything of the kind that there was has been told, or the kind is not served.
    Known(Kind),
    /// A place is to be held for pods to come, or no longer.
    Hold(Hold),
    GiveBack(muster_model::Key),
    /// Volcano's configuration, anew.
    Volcano(Value),
    /// What became of a placement that was decided.
    Outcome(Outcome),
}

/// What became of one decision about a pod.
#[derive(Debug)]
pub struct Outcome {
    pub pod: muster_model::Key,
    pub uid: String,
    pub result: Result<(), Failure>,
}

/// Why it could not be carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The pod is gone, or somebody else has decided about it: the watch will tell.
    Overtaken,
    /// Refused, or never answered.
    Refused,
}

/// Follows every kind until cancelled.
pub fn start(
    tasks: &mut JoinSet<()>,
    api: &Api,
    resync: Duration,
    cancel: &CancellationToken,
    inputs: &UnboundedSender<Input>,
) {
    for kind in Kind::ALL {
        let (api, cancel, inputs) = (api.clone(), cancel.clone(), inputs.clone());
        let sink = move |seen: Seen<'_>| {
            let input = match seen {
                Seen::Put { key, text } => Input::Text(kind, key.clone(), text.into()),
                Seen::Gone { key, .. } => Input::Gone(kind, key.clone()),
                Seen::Synced | Seen::Absent => Input::Known(kind),
            };
            // The receiver goes away only when everything ends.
            let _ = inputs.send(input);
        };
        tasks.spawn(follow(api, Collection::new(resource(kind).path("", "", "")), resync, cancel, sink));
    }
}

/// Where objects of a kind live in the API.
pub fn resource(kind: Kind) -> Resource {
    let (group, version, plural) = kind.resource();
    Resource { group, version, kind: kind.name(), plural }
}
