//! A gang as the service sees it: BindRequests that belong together.
//!
//! In: the annotations of a request. Out: which *round* it belongs to (one decision about one gang), how many requests
//! that round has, and how many of them make the gang whole. Must stay true: every decision is a round of its own, even one
//! that says the same as an earlier one: what became of that one says nothing of this.

use std::time::Duration;

use muster_runtime::common::BindRequest;
use muster_runtime::object::Meta;
use serde_json::{Value, json};

use crate::assignment::Assignment;

const ROUND: &str = "muster.dev/gang-round";
const SIZE: &str = "muster.dev/gang-size";
const NEEDED: &str = "muster.dev/gang-needed";

/// How long the requests of a round may take to come.
pub const GATHERING: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Round {
    pub id: String,
    pub size: usize,
    pub needed: usize,
}

/// What to do with those that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gathered {
    Wait(Duration),
    /// Bind them.
    Go,
    /// They are too few, and no more will come.
    TooFew,
}

impl Round {
    /// `decision`: a name for this decision and no other.
    pub fn new(gang: &[Assignment], needed: usize, decision: &str) -> Self {
        let mut text: Vec<String> =
            gang.iter().map(|a| format!("{} {} {}\n", a.pod, a.pod_uid, a.node)).collect();
        text.push(decision.to_owned());
        text.sort();
        let digest = ring::digest::digest(&ring::digest::SHA256, text.concat().as_bytes());
        let id = digest.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Round { id, size: gang.len(), needed: needed.min(gang.len()) }
    }

    /// The round that a request says it belongs to; `None` if it stands for itself.
    pub fn of(request: &BindRequest) -> Option<Self> {
        let text = |name: &str| request.metadata.annotation(name);
        let size: usize = text(SIZE)?.parse().ok()?;
        let needed = text(NEEDED).and_then(|n| n.parse().ok()).unwrap_or(size).min(size);
        Some(Round { id: text(ROUND).filter(|id| !id.is_empty())?.to_owned(), size, needed })
    }

    /// Which round an object says it belongs to.
    pub fn id_of(meta: &Meta) -> Option<&str> {
        meta.annotation(ROUND)
    }

    /// Which round a request that is to be written says it belongs to.
    pub fn id_in(body: &Value) -> Option<&str> {
        body["metadata"]["annotations"][ROUND].as_str()
    }

    pub fn annotations(&self) -> Value {
        json!({ROUND: self.id, SIZE: self.size.to_string(), NEEDED: self.needed.to_string()})
    }

    /// So many of its pods were refused that the rest of them is of no use.
    pub fn is_lost(&self, n_refused: usize) -> bool {
        self.size.saturating_sub(n_refused) < self.needed
    }

    /// In: how many of the round are there, and how old the oldest is. Those that are missing after a while were never
    /// written, or their pods are gone.
    pub fn gathered(&self, n_there: usize, age: Duration) -> Gathered {
        if n_there < self.size && age < GATHERING {
            Gathered::Wait(GATHERING - age)
        } else if n_there < self.needed {
            Gathered::TooFew
        } else {
            Gathered::Go
        }
    }
}

#[cfg(test)]
mod tests {
    use muster_runtime::Key;

    use super::*;

    fn gang(n: usize) -> Vec<Assignment> {
        let one = |i| Assignment {
            pod: Key::new("ns", format!("p{i}")),
            node: "n".into(),
            ..Assignment::default()
        };
        (0..n).map(one).collect()
    }

    #[test]
    fn every_decision_is_a_round_of_its_own() {
        let all = gang(3);
        let mut turned = all.clone();
        turned.reverse();
        let first = Round::new(&all, 3, "first");
        assert_eq!(first, Round::new(&turned, 3, "first"));
        assert_ne!(first.id, Round::new(&all, 3, "second").id);
        let mut moved = all.clone();
        moved[1].node = "m".into();
        assert_ne!(first.id, Round::new(&moved, 3, "first").id);
        let body = json!({"metadata": {"annotations": first.annotations()}});
        assert_eq!(Round::id_in(&body), Some(&*first.id));
    }

    #[test]
    fn annotations_are_read_back() {
        let round = Round::new(&gang(4), 2, "x");
        let read = |annotations: Value| {
            Round::of(&serde_json::from_value(json!({"metadata": {"annotations": annotations}})).unwrap())
        };
        assert_eq!(read(round.annotations()), Some(round));
        assert_eq!(read(json!({})), None);
        assert_eq!(read(json!({ROUND: "x", SIZE: "many"})), None);
        assert_eq!(
            read(json!({ROUND: "x", SIZE: "3", NEEDED: "9"})),
            Some(Round { id: "x".into(), size: 3, needed: 3 })
        );
    }

    #[track_caller]
    fn check(n_there: usize, age: u64, expected: Gathered) {
        let round = Round { id: "x".into(), size: 4, needed: 3 };
        assert_eq!(round.gathered(n_there, Duration::from_secs(age)), expected);
    }

    #[test]
    fn when_to_begin() {
        check(4, 0, Gathered::Go);
        check(3, 0, Gathered::Wait(Duration::from_secs(10)));
        check(3, 9, Gathered::Wait(Duration::from_secs(1)));
        check(3, 10, Gathered::Go);
        check(2, 10, Gathered::TooFew);
        check(9, 0, Gathered::Go);
    }
}
