//! Knative services: a group per revision, whose minimum is its `min-scale`; or a group per pod, where the administrator
//! wants it so or the pods of the revision already are.

use std::collections::BTreeSet;

use super::numbers::annotated;
use super::pods::each_alone;
use crate::chain::{Owner, Reference};
use crate::group::{Ask, Grouping, GroupingError, Min, Subject, Want, plain, pod_name};
use crate::keys;

const REVISION: &str = "serving.knative.dev/revision";
const MIN_SCALE: &str = "autoscaling.knative.dev/min-scale";

pub fn shape(ask: &Ask<'_>, grouping: &mut Grouping) -> Result<(), GroupingError> {
    let revision = revision(ask)?;
    let rule = super::rule("serving.knative.dev", "Service");
    let of_revision = Ask { pod: ask.pod, chain: &[], subject: Subject::owner(&revision), world: ask.world };
    *grouping = plain(&of_revision, &rule);
    if !ask.world.options.knative_gang || are_alone(ask, &grouping.name)? {
        return each_alone(ask, grouping);
    }
    let value = of_revision.subject.annotation(MIN_SCALE);
    grouping.min = Min::Members(annotated(grouping, &of_revision.subject.shown(), MIN_SCALE, value, 0, 1));
    Ok(())
}

fn revision(ask: &Ask<'_>) -> Result<std::sync::Arc<Owner>, GroupingError> {
    let in_chain =
        |owner: &&std::sync::Arc<Owner>| owner.kind == "Revision" && owner.group() == "serving.knative.dev";
    if let Some(found) = ask.chain.iter().find(in_chain) {
        return Ok(found.clone());
    }
    let Some(name) = ask.pod.metadata.labels.get(REVISION) else {
        return Err(GroupingError::NoLabel {
            object: pod_name(ask.pod),
            label: REVISION,
            fix: "let Knative create the pod, or restore the label".into(),
        });
    };
    let wanted = Reference {
        api_version: ask.subject.api_version.to_owned(),
        kind: "Revision".into(),
        name: name.clone(),
        uid: String::new(),
    };
    match ask.world.also.iter().find(|(reference, _)| *reference == wanted) {
        None => Err(GroupingError::Missing(Want::Object(wanted))),
        Some((_, Some(found))) => Ok(found.clone()),
        Some((_, None)) => Err(GroupingError::NotReady {
            object: pod_name(ask.pod),
            why: format!("its revision {name} is not there"),
        }),
    }
}

/// Whether the pods of the revision have a group each already; then they keep to it.
fn are_alone(ask: &Ask<'_>, shared: &str) -> Result<bool, GroupingError> {
    let peers = ask.world.peers.ok_or(GroupingError::Missing(Want::Peers))?;
    let own = ask.pod.metadata.labels.get(REVISION);
    let of_revision = peers.iter().filter(|pod| pod.metadata.labels.get(REVISION) == own);
    let groups: BTreeSet<&str> = of_revision.filter_map(|pod| pod.metadata.annotation(keys::GROUP)).collect();
    Ok(!groups.is_empty() && !groups.contains(shared))
}
