//! LeaderWorkerSets: one group per replica. A leader and its workers, which may be cut into segments.
//!
//! The size of a replica counts the leader. Where the workers alone divide into segments, the leader comes on top of the
//! first one; else it is the first pod of it.

use super::numbers::{MOST, at, count, text};
use super::segments::{Worker, size};
use crate::group::{Ask, Grouping, GroupingError, Min, Subgroup, Topology};
use crate::keys;

const GROUP_INDEX: &str = "leaderworkerset.sigs.k8s.io/group-index";
const WORKER_INDEX: &str = "leaderworkerset.sigs.k8s.io/worker-index";
/// On a pod (annotation): how many pods its replica was made with.
const SIZE: &str = "leaderworkerset.sigs.k8s.io/size";

/// Whether this is a leader, whose group grows once it is bound.
pub fn is_leader(pod: &muster_runtime::common::Pod) -> bool {
    pod.metadata.labels.get(WORKER_INDEX).is_some_and(|index| index == "0")
}

pub fn shape(ask: &Ask<'_>, grouping: &mut Grouping) -> Result<(), GroupingError> {
    let object = ask.subject.shown();
    let template = at(ask.subject.spec, &["leaderWorkerTemplate"]);
    // When the size is changed, replicas are made anew one by one; those that run keep the one that they have.
    let made_with = ask.pod.metadata.annotation(SIZE).and_then(|size| size.parse::<i64>().ok());
    let n = match made_with.filter(|n| (1..=MOST).contains(n)) {
        Some(n) => n,
        None => count(&object, "spec.leaderWorkerTemplate", template, &["size"])?.unwrap_or(1),
    };
    if n == 0 {
        return Err(GroupingError::BadField {
            object,
            field: "spec.leaderWorkerTemplate.size".into(),
            value: "0".into(),
            fix: "write at least 1, for the leader".into(),
        });
    }
    if let Some(index) = ask.pod.metadata.labels.get(GROUP_INDEX).and_then(|index| index.parse::<u32>().ok())
    {
        grouping.name = format!("{}-group-{index}", grouping.name);
    }
    let leader_first = match text(ask.subject.spec, &["startupPolicy"]) {
        None | Some("LeaderCreated") => false,
        Some("LeaderReady") => true,
        Some(other) => {
            grouping.note(format!(
                "spec.startupPolicy of {object} is {other:?}, which is not known: the pods are grouped as with LeaderCreated"
            ));
            false
        }
    };
    let leader = is_leader(ask.pod);
    // The workers come when the leader is ready: until then it waits for nobody.
    if leader && leader_first && !ask.pod.is_bound() {
        grouping.min = Min::Members(1);
        grouping.subgroups.push(leader_leaf(template));
        grouping.subgroup = Some("leader".into());
        return Ok(());
    }
    grouping.min = Min::Members(n);
    let worker = Worker { template: at(template, &["workerTemplate"]), is_pod: !leader };
    match segment(ask, grouping, &object, &worker, n) {
        None => {
            grouping.subgroups.push(leader_leaf(template));
            if n > 1 {
                let topology = of_template(template, "workerTemplate");
                grouping.subgroups.push(Subgroup { topology, ..Subgroup::leaf("workers", n - 1) });
            }
            grouping.subgroup = Some(if leader || n == 1 { "leader".into() } else { "workers".into() });
            Ok(())
        }
        Some(cut) => segmented(ask, grouping, &cut, worker.topology(ask)),
    }
}

fn leader_leaf(template: &serde_json::Value) -> Subgroup {
    Subgroup { topology: of_template(template, "leaderTemplate"), ..Subgroup::leaf("leader", 1) }
}

/// The wish of a role's template.
fn of_template(template: &serde_json::Value, role: &str) -> Topology {
    let found = Topology::of(|key| text(template, &[role, "metadata", "annotations", key]));
    if found.topology.is_empty() || found.has_no_level() { Topology::default() } else { found }
}

/// How a replica of `n` pods is cut.
struct Cut {
    n: i64,
    size: i64,
    /// The workers alone divide into segments.
    even: bool,
    /// The leader is in no segment.
    excluded: bool,
}

impl Cut {
    fn segment_of(&self, index: i64) -> i64 {
        if index == 0 {
            0
        } else if self.even {
            (index - 1) / self.size
        } else {
            index / self.size
        }
    }

    fn n_segments(&self) -> i64 {
        self.segment_of(self.n - 1) + 1
    }

    /// How many workers are in a segment.
    fn workers_in(&self, segment: i64) -> i64 {
        if self.even {
            self.size
        } else {
            (self.n - segment * self.size).min(self.size) - i64::from(segment == 0)
        }
    }
}

fn segment(ask: &Ask<'_>, grouping: &mut Grouping, object: &str, worker: &Worker<'_>, n: i64) -> Option<Cut> {
    let policy = at(ask.subject.spec, &["leaderWorkerTemplate", "subGroupPolicy"]);
    let in_policy = at(policy, &["subGroupSize"]);
    let written = match in_policy.is_null() {
        false => in_policy.to_string(),
        true => ask
            .subject
            .annotation(keys::SEGMENT_SIZE)
            .or_else(|| text(worker.template, &["metadata", "annotations", keys::SEGMENT_SIZE]))?
            .to_owned(),
    };
    let size = size(grouping, object, &written, 2, n, n)?;
    let even = (n - 1) % size == 0;
    let excluded = text(policy, &["subGroupPolicyType"]) == Some("LeaderExcluded");
    if excluded && !even {
        grouping.note(format!(
            "{object} keeps its leader out of its segments of {size}, and its {} workers do not divide by that: its pods are not cut into segments. Write a size that divides {}",
            n - 1,
            n - 1,
        ));
        return None;
    }
    Some(Cut { n, size, even, excluded })
}

fn segmented(
    ask: &Ask<'_>,
    grouping: &mut Grouping,
    cut: &Cut,
    topology: Topology,
) -> Result<(), GroupingError> {
    let label = ask.pod.metadata.labels.get(WORKER_INDEX).and_then(|index| index.parse::<i64>().ok());
    let Some(index) = label.filter(|index| (0..cut.n).contains(index)) else {
        return Err(GroupingError::NoLabel {
            object: crate::group::pod_name(ask.pod),
            label: WORKER_INDEX,
            fix: format!("segments need the index of each pod, from 0 to {}", cut.n - 1),
        });
    };
    if cut.excluded {
        grouping.subgroups.push(Subgroup::leaf("leader", 1));
    }
    for segment in 0..cut.n_segments() {
        let with_leader = segment == 0 && !cut.excluded;
        let min = if with_leader { Min::All } else { Min::Members(cut.workers_in(segment)) };
        let leaf = Subgroup::leaf(&format!("segment-{segment}"), 0);
        grouping.subgroups.push(Subgroup { min, topology: topology.clone(), ..leaf });
    }
    if !cut.excluded {
        let parent = Some("segment-0".to_owned());
        grouping.subgroups.push(Subgroup { parent: parent.clone(), ..Subgroup::leaf("leader", 1) });
        grouping.subgroups.push(Subgroup { parent, ..Subgroup::leaf("workers", cut.workers_in(0)) });
    }
    grouping.subgroup = Some(match (index, cut.segment_of(index)) {
        (0, _) => "leader".into(),
        (_, 0) if !cut.excluded => "workers".into(),
        (_, segment) => format!("segment-{segment}"),
    });
    Ok(())
}
