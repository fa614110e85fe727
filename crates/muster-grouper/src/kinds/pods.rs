//! Bare pods, pods that each stand alone, and owners that are counted in odd ways.

use super::numbers::{at, count};
use crate::group::{Ask, Grouping, GroupingError, Min, Subject};

const SPARK_NAME: &str = "spark-app-name";
const SPARK_SELECTOR: &str = "spark-app-selector";

/// A pod that nobody owns is a group of one. The pods of a Spark application share one.
pub fn bare(ask: &Ask<'_>, grouping: &mut Grouping) -> Result<(), GroupingError> {
    let labels = &ask.pod.metadata.labels;
    if labels.contains_key(SPARK_NAME)
        && let Some(selector) = labels.get(SPARK_SELECTOR).filter(|selector| !selector.is_empty())
    {
        grouping.name = selector.clone();
    }
    Ok(())
}

/// Replicas that serve do not wait for each other: a group per pod, which goes with the pod.
pub fn each_alone(ask: &Ask<'_>, grouping: &mut Grouping) -> Result<(), GroupingError> {
    let pod = Subject::pod(ask.pod);
    grouping.name = format!("pg-{}-{}", pod.name, pod.uid);
    grouping.owner = pod.reference();
    Ok(())
}

/// As many pods as the node count says.
pub fn azure_ml(ask: &Ask<'_>, grouping: &mut Grouping) -> Result<(), GroupingError> {
    let path = ["job", "options", "envs", "AZUREML_NODE_COUNT"];
    let object = ask.subject.shown();
    // It is an environment variable, so it may be text.
    let written = at(ask.subject.spec, &path).as_str().and_then(|text| text.trim().parse::<i64>().ok());
    let n = match written.filter(|n| (0..=super::numbers::MOST).contains(n)) {
        Some(n) => n,
        None => count(&object, "spec", ask.subject.spec, &path)?.ok_or_else(|| GroupingError::NoField {
            object,
            field: format!("spec.{}", path.join(".")),
            fix: "set it to the number of pods".into(),
        })?,
    };
    grouping.min = Min::Members(n);
    Ok(())
}

/// One group for all pods whose names differ in the last part only.
pub fn runai_job(ask: &Ask<'_>, grouping: &mut Grouping) -> Result<(), GroupingError> {
    let pod = ask.pod.metadata.name.as_str();
    let uid = ask.subject.uid;
    if ask.world.options.search_legacy_pod_groups {
        let legacy = [format!("pg-{pod}-{uid}"), format!("pg-{}-{uid}", ask.subject.name)];
        if let Some(name) = legacy.into_iter().find(|name| (ask.world.has_group)(name)) {
            grouping.name = name;
            return Ok(());
        }
    }
    let stem = pod.rsplit_once('-').map_or(pod, |(stem, _)| stem);
    grouping.name = format!("pg-{stem}-{uid}");
    Ok(())
}
