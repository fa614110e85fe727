//! Which certificates to make, and when to look again.
//!
//! In: the certificates that there are, the names to serve, the time. Out: steps. Must stay true: a certificate is signed
//! only by an authority that has been trusted for a while, unless there is no other.

use std::time::Duration;

use jiff::Timestamp;
use muster_runtime::clock::{later, until};
use serde::{Deserialize, Serialize};

const DAY: Duration = Duration::from_secs(86_400);
pub(super) const LEAF_LIFE: Duration = Duration::from_secs(90 * 86_400);
pub(super) const AUTHORITY_LIFE: Duration = Duration::from_secs(3650 * 86_400);
/// How long before the end of an authority its successor is made. Longer than any certificate lives.
const OVERLAP: Duration = Duration::from_secs(365 * 86_400);
/// How long a new authority is only trusted and does not sign: long enough for every registration to carry it.
const SETTLE: Duration = DAY;
/// What was made so far in the future was made by a clock that was wrong. Clocks of replicas differ by less.
const AHEAD: Duration = Duration::from_secs(3600);

/// Everything that is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chest {
    /// The form of this record.
    pub version: u32,
    /// Oldest first.
    pub authorities: Vec<Authority>,
    pub leaf: Option<Leaf>,
}

pub(super) const VERSION: u32 = 1;

/// A certificate authority. Its name is its common name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Authority {
    pub name: String,
    /// PEM, as everything here.
    pub certificate: String,
    pub key: String,
    pub made: Timestamp,
    pub expires: Timestamp,
}

/// The certificate that is shown to clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Leaf {
    pub certificate: String,
    pub key: String,
    pub names: Vec<String>,
    /// The name of the authority that signed it.
    pub issuer: String,
    pub made: Timestamp,
    pub expires: Timestamp,
}

impl Chest {
    /// The authorities to trust, as PEM, newest last.
    pub fn bundle(&self) -> String {
        self.authorities.iter().map(|authority| authority.certificate.as_str()).collect()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Forget { authority: String },
    MakeAuthority,
    MakeLeaf { issuer: String },
}

/// The next step, if anything is to do.
pub(super) fn plan(chest: &Chest, names: &[String], now: Timestamp) -> Option<Step> {
    let is_void = |authority: &&Authority| authority.expires <= now || is_ahead(authority.made, now);
    if let Some(void) = chest.authorities.iter().find(is_void) {
        return Some(Step::Forget { authority: void.name.clone() });
    }
    let Some(newest) = chest.authorities.last() else { return Some(Step::MakeAuthority) };
    if until(now, newest.expires) <= OVERLAP {
        return Some(Step::MakeAuthority);
    }
    let settled = chest.authorities.iter().rev().find(|authority| later(authority.made, SETTLE) <= now);
    let issuer = settled.or(chest.authorities.first()).map(|authority| authority.name.clone())?;
    let is_good = chest.leaf.as_ref().is_some_and(|leaf| {
        now < renewal(leaf)
            && !is_ahead(leaf.made, now)
            && leaf.names == names
            && chest.authorities.iter().any(|authority| authority.name == leaf.issuer)
    });
    (!is_good).then_some(Step::MakeLeaf { issuer })
}

/// Nobody takes it yet, and by its own dates it would be kept for long.
fn is_ahead(made: Timestamp, now: Timestamp) -> bool {
    made > later(now, AHEAD)
}

/// When two thirds of its life have passed.
fn renewal(leaf: &Leaf) -> Timestamp {
    later(leaf.made, until(leaf.made, leaf.expires) / 3 * 2)
}

/// How long nothing is to do.
pub(super) fn idle(chest: &Chest, now: Timestamp) -> Duration {
    let leaf = chest.leaf.iter().map(|leaf| until(now, renewal(leaf)));
    let newest = chest.authorities.last().map(|newest| until(now, newest.expires).saturating_sub(OVERLAP));
    let ends = chest.authorities.iter().map(|authority| until(now, authority.expires));
    leaf.chain(newest).chain(ends).min().unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(n: i64) -> Timestamp {
        Timestamp::from_second(n * 86_400).unwrap()
    }

    fn names() -> Vec<String> {
        vec!["a".to_owned()]
    }

    /// Plays steps, with empty certificates, until there is nothing to do; shows what was done.
    fn settle(chest: &mut Chest, now: Timestamp) -> String {
        let mut done = Vec::new();
        while let Some(step) = plan(chest, &names(), now) {
            assert!(done.len() < 10, "it never ends: {done:?}");
            match step {
                Step::Forget { authority } => {
                    chest.authorities.retain(|a| a.name != authority);
                    done.push(format!("-{authority}"));
                }
                Step::MakeAuthority => {
                    let name = format!("ca{}", now.as_second() / 86_400);
                    done.push(format!("+{name}"));
                    chest.authorities.push(Authority {
                        name,
                        certificate: String::new(),
                        key: String::new(),
                        made: now,
                        expires: later(now, AUTHORITY_LIFE),
                    });
                }
                Step::MakeLeaf { issuer } => {
                    done.push(format!("leaf by {issuer}"));
                    chest.leaf = Some(Leaf {
                        certificate: String::new(),
                        key: String::new(),
                        names: names(),
                        issuer,
                        made: now,
                        expires: later(now, LEAF_LIFE),
                    });
                }
            }
        }
        done.join(", ")
    }

    #[test]
    fn eleven_years() {
        let mut chest = Chest::default();
        let mut log = Vec::new();
        for today in 0..4100 {
            let done = settle(&mut chest, day(today));
            // What is served is always signed by somebody who was trusted before, and still is.
            let leaf = chest.leaf.clone().unwrap();
            let issuer = chest.authorities.iter().find(|a| a.name == leaf.issuer).unwrap();
            assert!(leaf.expires > day(today) && issuer.expires >= leaf.expires);
            if !done.is_empty() && done != format!("leaf by {}", leaf.issuer) {
                log.push(format!("{today}: {done}"));
            }
        }
        assert_eq!(log, ["0: +ca0, leaf by ca0", "3285: +ca3285", "3650: -ca0"]);
        assert_eq!(chest.leaf.unwrap().issuer, "ca3285");
    }

    #[test]
    fn a_new_authority_does_not_sign_at_once() {
        let mut chest = Chest::default();
        settle(&mut chest, day(0));
        let at = day(3240);
        settle(&mut chest, at);
        assert_eq!(settle(&mut chest, day(3300)), "+ca3300, leaf by ca0");
        assert_eq!(settle(&mut chest, day(3361)), "leaf by ca3300");
    }

    #[test]
    fn renewal_and_names() {
        let mut chest = Chest::default();
        settle(&mut chest, day(0));
        assert_eq!(settle(&mut chest, day(59)), "");
        assert_eq!(idle(&chest, day(59)), DAY);
        assert_eq!(settle(&mut chest, day(60)), "leaf by ca0");
        let other = vec!["b".to_owned()];
        assert_eq!(plan(&chest, &other, day(61)), Some(Step::MakeLeaf { issuer: "ca0".into() }));
    }

    #[test]
    fn made_by_a_clock_that_was_ahead() {
        let mut chest = Chest::default();
        settle(&mut chest, day(1000));
        // Clocks of replicas are never quite the same.
        let behind = day(1000).checked_sub(jiff::SignedDuration::from_mins(59)).unwrap();
        assert_eq!(settle(&mut chest, behind), "");
        assert_eq!(settle(&mut chest, day(10)), "-ca1000, +ca10, leaf by ca10");
        // Only what it shows, by an authority from before.
        let mut leaf = chest.leaf.clone().unwrap();
        leaf.made = day(50);
        leaf.expires = later(day(50), LEAF_LIFE);
        chest.leaf = Some(leaf);
        assert_eq!(settle(&mut chest, day(11)), "leaf by ca10");
    }

    #[test]
    fn asleep_for_twenty_years() {
        let mut chest = Chest::default();
        settle(&mut chest, day(0));
        assert_eq!(settle(&mut chest, day(7300)), "-ca0, +ca7300, leaf by ca7300");
    }
}
