//! One module per family of owners: how many pods each needs at once, and in which sub-groups they are.
//!
//! | top of the chain | a group per | minimum |
//! |---|---|---|
//! | none, Pod | pod; Spark application | 1 |
//! | Deployment | pod | 1 |
//! | Job, or CronJob above it | Job | annotation `kai.scheduler/batch-min-member`, else 1 |
//! | JobSet, or TrainJob above it | JobSet | all replicated jobs that start together, each with all replicas |
//! | PyTorchJob, TFJob, XGBoostJob, JAXJob, MPIJob | job | `minAvailable`, else all replicas |
//! | RayCluster, RayJob, RayService | owner | the head and the least workers of each group |
//! | LeaderWorkerSet | replica of it | the size that it was made with |
//! | Knative Service | revision, or pod | `min-scale` |
//! | AmlJob | owner | its node count |
//! | PodGang (by label) | PodGang | the sum of its groups |
//! | Argo Workflow, run.ai workloads, DynamoGraphDeployment | as whatever is below them | |
//! | all others | owner | 1 |
//!
//! In: the owner and a pod of it. Out: the shape of the group. *Absent:* KAI's Karta descriptions of further kinds; such
//! kinds are grouped by their owner. Must stay true: a wish that makes no sense is noted and a default holds instead; only a workload whose
//! size cannot be known is refused.

pub mod grove;
pub mod job;
pub mod jobset;
pub mod knative;
pub mod kubeflow;
pub mod lws;
pub mod pods;
pub mod ray;

mod numbers;
mod segments;
#[cfg(test)]
pub mod tests;

use crate::chain::Keep;
use crate::group::{Ask, Grouping, GroupingError, Rule};
use crate::keys::{BUILD, INFERENCE, TRAIN};

type Shape = fn(&Ask<'_>, &mut Grouping) -> Result<(), GroupingError>;

/// The rule for a kind.
pub fn rule(group: &str, kind: &str) -> Rule {
    let of = |class, shape: Shape| Rule { class, whole_chain: false, shape };
    match (group, kind) {
        ("", "Pod") => of(TRAIN, pods::bare),
        ("apps", "Deployment") => of(INFERENCE, pods::each_alone),
        ("batch", "Job") => of(TRAIN, job::shape),
        ("jobset.x-k8s.io", "JobSet") => of(TRAIN, jobset::shape),
        ("kubeflow.org", "PyTorchJob") => of(TRAIN, kubeflow::pytorch),
        ("kubeflow.org", "TFJob") => of(TRAIN, kubeflow::tensorflow),
        ("kubeflow.org", "XGBoostJob") => of(TRAIN, kubeflow::xgboost),
        ("kubeflow.org", "JAXJob") => of(TRAIN, kubeflow::jax),
        ("kubeflow.org", "MPIJob") => of(TRAIN, kubeflow::mpi),
        ("kubeflow.org", "Notebook") => of(BUILD, one),
        ("ray.io", "RayCluster" | "RayJob" | "RayService") => of(TRAIN, ray::shape),
        ("leaderworkerset.x-k8s.io", "LeaderWorkerSet") => of(TRAIN, lws::shape),
        ("serving.knative.dev", "Service") => of(INFERENCE, knative::shape),
        ("amlarc.azureml.com", "AmlJob") => of(TRAIN, pods::azure_ml),
        ("run.ai", "RunaiJob") => of(TRAIN, pods::runai_job),
        ("egx.nvidia.io", "SPOTRequest") => of(INFERENCE, one),
        ("grove.io", "PodGangSet" | "PodCliqueSet") => of(TRAIN, grove::without_label),
        _ => Rule { class: TRAIN, whole_chain: true, shape: one },
    }
}

/// Kinds that only stand above the workload: the owner below them is the workload, and what it lacks it gets from them.
pub fn is_skipped(group: &str, kind: &str) -> bool {
    matches!(
        (group, kind),
        ("batch", "CronJob")
            | ("argoproj.io", "Workflow")
            | ("trainer.kubeflow.org", "TrainJob")
            | ("nvidia.com", "DynamoGraphDeployment")
            | (
                "run.ai",
                "TrainingWorkload"
                    | "InteractiveWorkload"
                    | "DistributedWorkload"
                    | "InferenceWorkload"
                    | "DistributedInferenceWorkload"
            )
    )
}

/// Which parts of an owner its rule looks at.
pub fn keep(group: &str, kind: &str) -> Keep {
    let spec = matches!(
        (group, kind),
        ("jobset.x-k8s.io", "JobSet")
            | ("kubeflow.org", "PyTorchJob" | "TFJob" | "XGBoostJob" | "JAXJob" | "MPIJob")
            | ("ray.io", "RayCluster")
            | ("leaderworkerset.x-k8s.io", "LeaderWorkerSet")
            | ("amlarc.azureml.com", "AmlJob")
            | ("scheduler.grove.io", "PodGang")
    );
    let completions = (group, kind) == ("batch", "Job");
    Keep { spec, completions, status: matches!((group, kind), ("ray.io", "RayJob" | "RayService")) }
}

/// One pod is enough.
fn one(_: &Ask<'_>, _: &mut Grouping) -> Result<(), GroupingError> {
    Ok(())
}
