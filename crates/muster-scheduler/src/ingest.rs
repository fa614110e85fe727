//! Watches to inputs: every kind that scheduling looks at is followed and handed on in the server's order, as text: what waits for the
//! engine's thread takes a quarter of the room so, and what is decoded there is freed there.
//!
//! In: an API server. Out: [`Input`]s in a channel. Must stay true: the inputs of one kind, in order, lead from nothing to
//! what the server has; a kind that is not served says so, and costs a request now and then.

use crate::hold::Hold;
use muster_runtime::follow::{Collection, Seen, follow, follow_optional};
use muster_runtime::object::Resource;
use muster_runtime::{Api, Key};
use muster_translate::Kind;
use serde_json::Value;
use std::collections::HashSet;
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
    /// Why this gang waits could not be written down, and is to be told again.
    Unsaid(muster_model::Key),
}

/// What became of one decision about a pod.
#[derive(Debug)]
pub struct Outcome {
    pub pod: muster_model::Key,
    pub uid: String,
    pub result: Result<Done, Failure>,
}

/// How it was carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// The server says that the pod is bound.
    Bound,
    /// It was asked for: a bind request is written, or the pod is told to go. The watch has to confirm it.
    Asked,
}

/// Why it could not be carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The pod is gone, or somebody else has decided about it: the watch will tell.
    Overtaken,
    /// The server said no, so nothing has come of it.
    Refused,
    /// Nobody knows whether anything has come of it: what was promised stays promised until the watch has had time to tell.
    Unanswered,
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
        let collection = Collection::new(resource(kind).path("", "", ""));
        match is_needed(kind) {
            true => tasks.spawn(follow(api, collection, resync, cancel, sink)),
            false => tasks.spawn(follow_optional(api, collection, resync, cancel, sink)),
        };
    }
}

/// Whether nothing may be decided before it is known what there is of a kind. A server says that a kind may not be read before it says that there is
/// none, so what other systems have counts as not there where our rights do not speak of it.
fn is_needed(kind: Kind) -> bool {
    let (group, _, _) = kind.resource();
    kind == Kind::PriorityClass
        || matches!(
            group,
            "" | "policy" | "storage.k8s.io" | "resource.k8s.io" | "scheduling.run.ai" | "kai.scheduler"
        )
}

/// Where objects of a kind live in the API.
pub fn resource(kind: Kind) -> Resource {
    let (group, version, plural) = kind.resource();
    Resource { group, version, kind: kind.name(), plural }
}

/// The inputs without those that a later one makes superfluous: states that an object has left by now. Under load a pod is bound, started and perhaps over
/// within the inputs of one cycle, and only its last state is worth reading.
pub fn newest(inputs: Vec<Input>) -> Vec<Input> {
    let mut later: HashSet<(Kind, &Key)> = HashSet::new();
    let mut keep: Vec<bool> = Vec::with_capacity(inputs.len());
    for input in inputs.iter().rev() {
        keep.push(match input {
            Input::Text(kind, key, _) => later.insert((*kind, key)),
            Input::Gone(kind, key) => {
                // What came before is another object of the same name.
                later.remove(&(*kind, key));
                true
            }
            _ => true,
        });
    }
    inputs.into_iter().zip(keep.into_iter().rev()).filter_map(|(input, keep)| keep.then_some(input)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_states_that_an_object_has_left_are_passed_over() {
        let shown = |input: &Input| match input {
            Input::Text(kind, key, text) => format!("{} {key} {text}", kind.name()),
            Input::Gone(kind, key) => format!("{} {key} gone", kind.name()),
            other => format!("{other:?}"),
        };
        let text = |kind, name: &str, text: &str| Input::Text(kind, Key::new("ns", name), text.into());
        let inputs = vec![
            text(Kind::Pod, "a", "1"),
            text(Kind::Pod, "b", "1"),
            text(Kind::PodGroup, "a", "1"),
            text(Kind::Pod, "a", "2"),
            Input::Gone(Kind::Pod, Key::new("ns", "a")),
            text(Kind::Pod, "a", "3"),
            Input::Known(Kind::Pod),
            text(Kind::Pod, "a", "4"),
        ];
        let got: Vec<String> = newest(inputs).iter().map(shown).collect();
        let expected =
            ["Pod ns/b 1", "PodGroup ns/a 1", "Pod ns/a 2", "Pod ns/a gone", "Known(Pod)", "Pod ns/a 4"];
        assert_eq!(got, expected);
    }
}
