//! Kubernetes Jobs: one group per Job. Its parallelism is no minimum: only the annotation says how many pods it needs at
//! once.

use super::numbers::{annotated, count};
use crate::group::{Ask, Grouping, GroupingError, Min};
use crate::keys;

pub fn shape(ask: &Ask<'_>, grouping: &mut Grouping) -> Result<(), GroupingError> {
    // Older versions made a group per pod; pods of such a Job stay where they are.
    let per_pod = format!("pg-{}-{}", ask.pod.metadata.name, ask.subject.uid);
    if ask.world.options.search_legacy_pod_groups
        && per_pod != grouping.name
        && (ask.world.has_group)(&per_pod)
    {
        grouping.name = per_pod;
        return Ok(());
    }
    let value = ask.subject.annotation(keys::MIN_MEMBER);
    let min = annotated(grouping, &ask.subject.shown(), keys::MIN_MEMBER, value, 0, 1);
    grouping.min = Min::Members(min);
    // No API server takes a count that is none.
    if let Some(n) = count("", "spec", ask.subject.spec, &["completions"]).ok().flatten() {
        grouping.ends_after(n);
    }
    Ok(())
}
