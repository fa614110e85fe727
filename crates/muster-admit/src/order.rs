//! Orders: when a workload queued up, who is preempted first, and whose turn it is in a cycle.

use crate::settings::Settings;
use crate::spec::Workload;
use muster_model::{Name, Span, Time};
use std::cmp::{Ordering, Reverse};

/// The priority that counts.
pub fn priority(workload: &Workload, settings: &Settings) -> i64 {
    let boost = if settings.gates.priority_boost { workload.boost } else { 0 };
    i64::from(workload.priority) + i64::from(boost)
}

/// Since when it queues: its creation, or what sent it back to the end of the line.
pub fn queued_since(workload: &Workload, settings: &Settings) -> Time {
    if let Some(evicted) = &workload.evicted {
        let sent_back = match &*evicted.reason {
            "PodsReadyTimeout" => settings.by_eviction_time,
            "AdmissionCheck" => true,
            _ => false,
        };
        if sent_back {
            return evicted.at;
        }
    }
    if !settings.gates.priority_sorting
        && let Some(preempted) = &workload.preempted
        && &*preempted.reason == "InCohortReclaimWhileBorrowing"
    {
        // Behind whoever came at the same moment.
        return preempted.at + Span(1);
    }
    workload.created
}

/// A workload that may be preempted, as far as its turn is concerned. Whoever comes first goes first.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub evicted: bool,
    pub own_queue: bool,
    /// What its local queue used, where local queues take turns.
    pub usage: Option<(Name, f64)>,
    pub priority: i64,
    /// Since when it holds quota.
    pub since: Time,
    pub uid: Name,
}

pub fn compare_candidates(a: &Candidate, b: &Candidate) -> Ordering {
    let used = match (&a.usage, &b.usage) {
        (Some((one, x)), Some((other, y))) if a.own_queue && b.own_queue && one != other => y.total_cmp(x),
        _ => Ordering::Equal,
    };
    b.evicted
        .cmp(&a.evicted)
        .then(a.own_queue.cmp(&b.own_queue))
        .then(used)
        .then(a.priority.cmp(&b.priority))
        .then(Reverse(a.since).cmp(&Reverse(b.since)))
        .then_with(|| a.uid.cmp(&b.uid))
}

/// Whose turn it is among the heads of a cycle, where shares do not decide. The least is first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn {
    /// Those that hold quota already and are here for a second pass come first.
    pub fresh: bool,
    pub not_preempting: bool,
    pub borrows: u32,
    pub priority: Reverse<i64>,
    pub since: Time,
}

impl Turn {
    pub fn new(workload: &Workload, borrows: u32, preempting: bool, settings: &Settings) -> Self {
        let by_priority = settings.gates.priority_sorting;
        Self {
            fresh: workload.reservation.is_none(),
            not_preempting: settings.gates.preemptors_first && !preempting,
            borrows,
            priority: Reverse(if by_priority { priority(workload, settings) } else { 0 }),
            since: queued_since(workload, settings),
        }
    }
}
