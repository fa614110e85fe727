//! JobSets: one group. A sub-group per replicated job, and below it one per replica, which needs all its pods. All replicated jobs start
//! together but where the JobSet says that some come after others (`startupPolicy`, `dependsOn`).

use serde_json::Value;

use super::numbers::{annotated, at, count, text};
use crate::group::{Ask, Grouping, GroupingError, MOST_GROUPS, Min, Subgroup, Topology, pod_name};
use crate::keys;

const REPLICATED_JOB: &str = "jobset.sigs.k8s.io/replicatedjob-name";
const JOB_INDEX: &str = "jobset.sigs.k8s.io/job-index";

pub fn shape(ask: &Ask<'_>, grouping: &mut Grouping) -> Result<(), GroupingError> {
    let object = ask.subject.shown();
    let jobs = at(ask.subject.spec, &["replicatedJobs"]).as_array().map_or(&[][..], Vec::as_slice);
    if jobs.is_empty() {
        return Err(GroupingError::NoField {
            object,
            field: "spec.replicatedJobs".into(),
            fix: "add at least one".into(),
        });
    }
    let mut n_groups = 0_i64;
    let mut all = 0_i64;
    let mut start = Start::default();
    for (i, job) in jobs.iter().enumerate() {
        let prefix = format!("spec.replicatedJobs[{i}]");
        let Some(name) = text(job, &["name"]) else {
            return Err(GroupingError::NoField {
                object,
                field: format!("{prefix}.name"),
                fix: "name it".into(),
            });
        };
        let replicas = count(&object, &prefix, job, &["replicas"])?.unwrap_or(1);
        // A job without replicas has no pods to wait for.
        if replicas == 0 {
            continue;
        }
        all += 1;
        start.see(job);
        n_groups += replicas + 1;
        if n_groups > MOST_GROUPS as i64 {
            return Err(GroupingError::TooManyGroups {
                object,
                field: format!("{prefix}.replicas"),
                n: n_groups,
            });
        }
        let parallelism = count(&object, &prefix, job, &["template", "spec", "parallelism"])?.unwrap_or(1);
        // The Job controller makes no more pods than are to succeed.
        let completions = count(&object, &prefix, job, &["template", "spec", "completions"])?;
        let at_once = completions.map_or(parallelism, |n| n.min(parallelism));
        let members = annotated(
            grouping,
            &format!("{prefix}.template of {object}"),
            keys::MIN_MEMBER,
            annotation(job, keys::MIN_MEMBER),
            1,
            at_once,
        );
        let mut topology = Topology::of(|key| annotation(job, key));
        if topology.topology.is_empty() || topology.has_no_level() {
            topology = Topology::default();
        }
        grouping.subgroups.push(Subgroup {
            name: name.to_owned(),
            parent: None,
            min: Min::Subgroups(replicas),
            topology: Topology::default(),
        });
        grouping.subgroups.extend((0..replicas).map(|replica| Subgroup {
            name: format!("{name}-replica-{replica}"),
            parent: Some(name.to_owned()),
            min: Min::Members(members),
            topology: topology.clone(),
        }));
    }
    start.in_order = text(ask.subject.spec, &["startupPolicy", "startupPolicyOrder"]) == Some("InOrder");
    let value = ask.subject.annotation(keys::MIN_MEMBER);
    let min = annotated(grouping, &object, keys::MIN_MEMBER, value, 1, start.at_once());
    grouping.min = Min::Subgroups(min.min(all));
    grouping.subgroup = Some(leaf_of(ask, grouping)?);
    Ok(())
}

/// In which order the controller makes the replicated jobs. Those that come later must not be waited for by the ones that they wait for:
/// that would be waiting for ever.
#[derive(Default)]
struct Start {
    in_order: bool,
    /// Those that wait for no other.
    n_first: i64,
    /// One begins when another has ended, and then the ended one does not count any more.
    in_turns: bool,
}

impl Start {
    fn see(&mut self, job: &Value) {
        let others = at(job, &["dependsOn"]).as_array().map_or(&[][..], Vec::as_slice);
        self.n_first += i64::from(others.is_empty());
        self.in_turns |= others.iter().any(|other| text(other, &["status"]) == Some("Complete"));
    }

    /// How many replicated jobs there surely are at one time.
    fn at_once(&self) -> i64 {
        if self.in_order || self.in_turns { 1 } else { self.n_first.max(1) }
    }
}

fn annotation<'a>(job: &'a Value, key: &str) -> Option<&'a str> {
    text(job, &["template", "metadata", "annotations", key])
}

fn leaf_of(ask: &Ask<'_>, grouping: &Grouping) -> Result<String, GroupingError> {
    let label = |label: &'static str| {
        let found = ask.pod.metadata.labels.get(label).filter(|value| !value.is_empty());
        found.ok_or_else(|| GroupingError::NoLabel {
            object: pod_name(ask.pod),
            label,
            fix: "let the JobSet controller create the pod, or restore the label".into(),
        })
    };
    let leaf = format!("{}-replica-{}", label(REPLICATED_JOB)?, label(JOB_INDEX)?);
    if grouping.subgroups.iter().any(|group| group.name == leaf && group.parent.is_some()) {
        return Ok(leaf);
    }
    Err(GroupingError::NotReady {
        object: pod_name(ask.pod),
        why: format!(
            "its labels {REPLICATED_JOB} and {JOB_INDEX} say {leaf}, which {} does not have",
            ask.subject.shown()
        ),
    })
}
