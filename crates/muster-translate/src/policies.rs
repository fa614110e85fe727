//! What a queue of any system may say about lending and giving back, in annotations: how much it may borrow, and how others get back what it
//! borrowed.
//!
//! | annotation | value | meaning |
//! |---|---|---|
//! | `muster.dev/borrowing-factor` | a decimal of 1 or more | it never holds more than so many times what it deserves |
//! | `muster.dev/reclaim-delay` | a length of time | only who has waited this long may reclaim from it |
//! | `muster.dev/reclaim-policy` | `Graceful` or `Forced` | whether reclaimed pods have their own time to end, or none |
//!
//! What a queue says about giving back holds for the queues below it that say nothing themselves.

use crate::read::{Object, quote};
use crate::text::{self, thousandths};
use muster_model::{Bound, Queue, Reclaim, Span};

const FACTOR: &str = "muster.dev/borrowing-factor";
const DELAY: &str = "muster.dev/reclaim-delay";
const POLICY: &str = "muster.dev/reclaim-policy";

/// What the annotations of a queue say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Policies {
    /// In thousandths.
    factor: Option<i64>,
    reclaim: Reclaim,
}

pub(crate) fn read(object: &Object<'_>) -> Policies {
    let said = |key: &str| object.annotation(key).filter(|text| !text.is_empty());
    let report = |key: &str, text: &str, message: &str| {
        object.report(&format!("metadata.annotations[{key}]"), format!("{} {message}", quote(text)));
    };
    let factor = said(FACTOR).and_then(|text| {
        let factor = thousandths(text).filter(|factor| *factor >= 1000);
        if factor.is_none() {
            report(FACTOR, text, "is no factor; write a decimal of 1 or more such as \"1.5\"; it is ignored");
        }
        factor
    });
    let after = said(DELAY).and_then(|text| {
        let span = text::duration(text).filter(|span| *span >= Span::ZERO);
        if span.is_none() {
            report(DELAY, text, "is no length of time; write one like 90s or 1h30m; it is ignored");
        }
        span
    });
    let forced = said(POLICY).and_then(|text| match text {
        "Forced" | "forced" => Some(true),
        "Graceful" | "graceful" => Some(false),
        _ => {
            report(POLICY, text, "must be Graceful or Forced; it is ignored");
            None
        }
    });
    Policies { factor, reclaim: Reclaim { after, forced } }
}

impl Policies {
    /// So many times what is deserved.
    pub(crate) fn times(&self, deserved: i64) -> Option<i64> {
        let amount = i128::from(deserved.max(0)) * i128::from(self.factor?) / 1000;
        Some(i64::try_from(amount).unwrap_or(i64::MAX))
    }

    /// Puts into a queue what is said of it.
    pub(crate) fn apply(&self, queue: &mut Queue) {
        queue.reclaim = self.reclaim;
        for share in queue.shares.values_mut() {
            if let Bound::At(quota) = share.quota
                && let Some(most) = self.times(quota)
            {
                share.borrowing = Bound::At(most - quota.max(0));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::Resource;
    use serde_json::{Value, json};

    #[track_caller]
    fn check(annotations: Value, expected: Policies, n_diagnostics: usize) {
        let value = json!({"metadata": {"name": "q", "annotations": annotations}});
        let object = Object::new("Queue", &value);
        assert_eq!(read(&object), expected);
        assert_eq!(object.into_diagnostics().len(), n_diagnostics);
    }

    #[test]
    fn annotations_are_read() {
        check(json!({}), Policies::default(), 0);
        let all = json!({FACTOR: "1.5", DELAY: "5m", POLICY: "Forced"});
        let reclaim = Reclaim { after: Some(Span::seconds(300)), forced: Some(true) };
        check(all, Policies { factor: Some(1500), reclaim }, 0);
        let graceful = Reclaim { forced: Some(false), ..Reclaim::default() };
        check(json!({POLICY: "graceful"}), Policies { factor: None, reclaim: graceful }, 0);
        check(json!({FACTOR: "0.5", DELAY: "soon", POLICY: "Gently"}), Policies::default(), 3);
        check(json!({FACTOR: "", DELAY: "-1s"}), Policies::default(), 1);
    }

    #[test]
    fn a_factor_is_of_what_is_deserved() {
        let mut queue = crate::queue::unlimited(&"q".into());
        queue.shares.entry(Resource::Gpu).or_default().quota = Bound::At(4000);
        Policies { factor: Some(1250), ..Policies::default() }.apply(&mut queue);
        assert_eq!(queue.shares[&Resource::Gpu].most(), Bound::At(5000));
        assert_eq!(queue.shares[&Resource::Cpu].most(), Bound::Unlimited);
    }
}
