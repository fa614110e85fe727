//! T9k's job kinds, `batch.tensorstack.dev/v1beta1`.
//!
//! A job names its queue and priority under `spec.scheduler.t9kScheduler`; its pods become one gang. The
//! kinds share their run modes and their status; they differ in how replicas are listed and in what starts
//! the program.

use crate::common::core::ResourceRequirements;
use crate::common::{Labels, ObjectMeta, Open, PodTemplate, Rest, Time, string_enum};
use muster_api_derive::Api;
use std::collections::BTreeMap;

/// Which scheduler places the pods; absent means the cluster's default scheduler.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct SchedulePolicy {
    pub t9k_scheduler: Option<T9kScheduler>,
    pub rest: Rest,
}

/// The queue and the place in it.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct T9kScheduler {
    /// The queue that pays for the pods.
    pub queue: Option<String>,
    /// Priority of the gang inside the queue.
    #[api(default = 0, range(0..=100))]
    pub priority: Option<i32>,
    pub rest: Rest,
}

/// How the job runs: at once, in debug mode or paused.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct RunMode {
    /// Pods run, but idle instead of the program, so that one can look around in them.
    pub debug: Option<DebugMode>,
    /// Pods are deleted and the job waits.
    pub pause: Option<PauseMode>,
    pub rest: Rest,
}

/// Debug mode.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct DebugMode {
    pub enabled: Option<bool>,
    /// What each type of replica runs instead.
    pub replica_specs: Option<Vec<ReplicaDebugSet>>,
    pub rest: Rest,
}

/// What one type of replica runs in debug mode.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ReplicaDebugSet {
    pub r#type: Option<String>,
    pub skip_init_container: Option<bool>,
    /// Defaults to sleeping forever.
    pub command: Option<Vec<String>>,
    pub rest: Rest,
}

/// Pause mode.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PauseMode {
    /// Whether the job is paused now; may change at any time.
    pub enabled: Option<bool>,
    /// What each type of replica runs when the job resumes; cannot change.
    #[api(rule("self == oldSelf", "resumeSpecs is immutable"))]
    pub resume_specs: Option<Vec<ResumeSpec>>,
    pub rest: Rest,
}

/// What one type of replica runs when the job resumes.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ResumeSpec {
    pub r#type: Option<String>,
    pub skip_init_container: Option<bool>,
    pub command: Option<Vec<String>>,
    pub args: Option<Vec<String>>,
    pub rest: Rest,
}

string_enum! {
    /// Which pods are deleted when the job has finished.
    pub enum CleanUpPolicy { None, Unfinished, All }
}

string_enum! {
    /// When a finished pod is replaced. `ExitCode` replaces it for 130, 137, 138 and 143 alone.
    pub enum RestartPolicyType { Always, OnFailure, Never, ExitCode }
}

/// When a finished pod is replaced, and how often.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct RestartPolicy {
    pub policy: Option<RestartPolicyType>,
    /// The most restarts.
    pub limit: Option<i32>,
    pub rest: Rest,
}

/// When the job ends, and what it leaves behind.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct RunPolicy {
    /// Seconds from its start after which the job is ended.
    #[api(range(1..))]
    pub active_deadline_seconds: Option<i64>,
    /// Restarts, counted over all replicas, before the job has failed.
    pub backoff_limit: Option<i32>,
    pub clean_up_policy: Option<CleanUpPolicy>,
    pub rest: Rest,
}

/// How far an elastic job may shrink and grow.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ElasticConfig {
    pub enabled: Option<bool>,
    /// The fewest replicas, which is the minimum of the gang; cannot change.
    #[api(range(0..), rule("self == oldSelf", "minReplicas is immutable"))]
    pub min_replicas: Option<i32>,
    /// The most replicas; cannot change.
    #[api(range(0..), rule("self == oldSelf", "maxReplicas is immutable"))]
    pub max_replicas: Option<i32>,
    /// The replicas that are wanted now; change it to scale the job.
    #[api(range(0..))]
    pub expected_replicas: Option<i32>,
    pub rest: Rest,
}

string_enum! {
    /// Where a job is in its life.
    pub open enum JobPhase { Pending, Running, Paused, Resuming, Succeeded, Failed, Unknown }
}

/// What became of a job.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct JobStatus {
    pub phase: Option<JobPhase>,
    /// `Initialized`, `Running`, `ReplicaFailure`, `Completed`, `Failed`, `Paused`.
    pub conditions: Option<Vec<JobCondition>>,
    /// The pods of each type of replica.
    pub tasks: Option<Vec<Task>>,
    /// How many pods are in each phase.
    pub aggregate: Option<Aggregate>,
    /// Restarts so far.
    pub backoff_count: Option<i32>,
    /// State of the TensorBoard that belongs to the job.
    pub tensorboard: Option<Open>,
    /// Where the cluster of a BeamJob shows the job.
    #[api(rename = "jobURL")]
    pub job_url: Option<String>,
    pub rest: Rest,
}

/// A condition of a job.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct JobCondition {
    pub r#type: Option<String>,
    pub status: Option<String>,
    pub last_transition_time: Option<Time>,
    pub reason: Option<String>,
    pub message: Option<String>,
    pub rest: Rest,
}

/// The pods of one type of replica.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct Task {
    pub r#type: Option<String>,
    pub restart_count: Option<i32>,
    pub replicas: Option<Vec<ReplicaStatus>>,
    pub rest: Rest,
}

/// One pod of a job.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ReplicaStatus {
    pub name: Option<String>,
    pub uid: Option<String>,
    pub phase: Option<String>,
    pub containers: Option<Vec<Open>>,
    pub rest: Rest,
}

/// How many pods are in each phase.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct Aggregate {
    /// Made, but not placed.
    pub creating: Option<i32>,
    pub pending: Option<i32>,
    pub running: Option<i32>,
    pub succeeded: Option<i32>,
    pub failed: Option<i32>,
    pub unknown: Option<i32>,
    pub deleted: Option<i32>,
    pub rest: Rest,
}

/// Replicas of any types, with rules that say when the job has succeeded or failed.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "batch.tensorstack.dev",
    version = "v1beta1",
    plural = "genericjobs",
    status,
    column("Phase", ".status.phase" as string),
    column("Queue", ".spec.scheduler.t9kScheduler.queue" as string),
    column("Age", ".metadata.creationTimestamp" as date)
)]
pub struct GenericJob {
    pub metadata: ObjectMeta,
    pub spec: Option<GenericJobSpec>,
    pub status: Option<JobStatus>,
    pub rest: Rest,
}

/// What a GenericJob runs.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct GenericJobSpec {
    pub scheduler: Option<SchedulePolicy>,
    pub run_mode: Option<RunMode>,
    /// The replicas, by type.
    pub replica_specs: Option<Vec<GenericReplicaSpec>>,
    /// The job has succeeded when, for any rule, all the replicas that it names have: `[{worker: [0, 1]}]`.
    pub success_rules: Option<Vec<BTreeMap<String, Vec<i32>>>>,
    /// The job has failed when, for any rule, all the replicas that it names have.
    pub failure_rules: Option<Vec<BTreeMap<String, Vec<i32>>>>,
    #[api(default = "None")]
    pub clean_up_policy: Option<CleanUpPolicy>,
    /// The ports under which replicas find each other.
    pub service: Option<ServiceOption>,
    pub rest: Rest,
}

/// One type of replica, with a restart policy of its own.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct GenericReplicaSpec {
    pub r#type: String,
    #[api(default = 1, range(0..))]
    pub replicas: Option<i32>,
    pub restart_policy: Option<RestartPolicy>,
    pub template: Option<PodTemplate>,
    pub rest: Rest,
}

/// The service in front of the replicas.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ServiceOption {
    /// Ports of a Kubernetes service.
    pub ports: Option<Vec<Open>>,
    pub rest: Rest,
}

/// Distributed training with PyTorch, optionally elastic.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "batch.tensorstack.dev",
    version = "v1beta1",
    plural = "pytorchtrainingjobs",
    status,
    column("Phase", ".status.phase" as string),
    column("Queue", ".spec.scheduler.t9kScheduler.queue" as string),
    column("Age", ".metadata.creationTimestamp" as date)
)]
pub struct PyTorchTrainingJob {
    pub metadata: ObjectMeta,
    pub spec: Option<PyTorchTrainingJobSpec>,
    pub status: Option<JobStatus>,
    pub rest: Rest,
}

/// What a PyTorchTrainingJob runs.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PyTorchTrainingJobSpec {
    pub scheduler: Option<SchedulePolicy>,
    pub run_mode: Option<RunMode>,
    pub run_policy: Option<RunPolicy>,
    pub replica_specs: Option<Vec<TrainingReplicaSpec>>,
    /// How far the job may shrink and grow; takes effect with torchrun alone.
    pub elastic: Option<ElasticConfig>,
    pub torchrun_config: Option<TorchrunConfig>,
    pub tensorboard_spec: Option<Open>,
    pub rest: Rest,
}

/// One type of replica of a training job.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct TrainingReplicaSpec {
    pub r#type: String,
    #[api(default = 1, range(0..))]
    pub replicas: Option<i32>,
    /// Share of this type when an elastic job scales.
    pub scaling_weight: Option<i32>,
    pub restart_policy: Option<RestartPolicyType>,
    pub template: Option<PodTemplate>,
    pub rest: Rest,
}

/// Whether and how torchrun starts the program.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct TorchrunConfig {
    pub enabled: Option<bool>,
    pub max_restarts: Option<i32>,
    /// Processes for each replica: a number, `auto`, `gpu` or `cpu`.
    pub proc_per_node: Option<String>,
    /// How the replicas find each other; `c10d` unless given.
    pub rdzv_backend: Option<String>,
    pub extra_options: Option<Vec<String>>,
    pub rest: Rest,
}

/// Distributed training with TensorFlow: chief, workers, parameter servers and evaluators.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "batch.tensorstack.dev",
    version = "v1beta1",
    plural = "tensorflowtrainingjobs",
    status,
    column("Phase", ".status.phase" as string),
    column("Queue", ".spec.scheduler.t9kScheduler.queue" as string),
    column("Age", ".metadata.creationTimestamp" as date)
)]
pub struct TensorFlowTrainingJob {
    pub metadata: ObjectMeta,
    pub spec: Option<TensorFlowTrainingJobSpec>,
    pub status: Option<JobStatus>,
    pub rest: Rest,
}

/// What a TensorFlowTrainingJob runs.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct TensorFlowTrainingJobSpec {
    pub scheduler: Option<SchedulePolicy>,
    pub run_mode: Option<RunMode>,
    pub run_policy: Option<RunPolicy>,
    /// Of type `chief`, `worker`, `ps` or `evaluator`. The chief, or else the first worker, decides how the
    /// job ended.
    pub replica_specs: Option<Vec<TrainingReplicaSpec>>,
    pub tensorboard_spec: Option<Open>,
    pub rest: Rest,
}

/// Distributed training with XGBoost: one master and its workers.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "batch.tensorstack.dev",
    version = "v1beta1",
    plural = "xgboosttrainingjobs",
    status,
    column("Phase", ".status.phase" as string),
    column("Queue", ".spec.scheduler.t9kScheduler.queue" as string),
    column("Age", ".metadata.creationTimestamp" as date)
)]
pub struct XGBoostTrainingJob {
    pub metadata: ObjectMeta,
    pub spec: Option<XGBoostTrainingJobSpec>,
    pub status: Option<JobStatus>,
    pub rest: Rest,
}

/// What an XGBoostTrainingJob runs.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct XGBoostTrainingJobSpec {
    pub scheduler: Option<SchedulePolicy>,
    pub run_mode: Option<RunMode>,
    pub run_policy: Option<RunPolicy>,
    /// Of type `master`, which must be there and decides how the job ended, and `worker`.
    pub replica_specs: Option<Vec<TrainingReplicaSpec>>,
    pub rest: Rest,
}

/// An MPI program: workers, and a launcher that starts the program on them.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "batch.tensorstack.dev",
    version = "v1beta1",
    plural = "mpijobs",
    status,
    column("Phase", ".status.phase" as string),
    column("Queue", ".spec.scheduler.t9kScheduler.queue" as string),
    column("Age", ".metadata.creationTimestamp" as date)
)]
pub struct MPIJob {
    pub metadata: ObjectMeta,
    pub spec: Option<MPIJobSpec>,
    pub status: Option<JobStatus>,
    pub rest: Rest,
}

/// What an MPIJob runs.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct MPIJobSpec {
    pub scheduler: Option<SchedulePolicy>,
    pub run_mode: Option<RunMode>,
    pub run_policy: Option<WorkersRunPolicy>,
    /// The workers; newer jobs list them under `replicaSpecs`.
    pub worker: Option<MPIWorker>,
    pub replica_specs: Option<Vec<GenericReplicaSpec>>,
    /// How mpirun is called; older jobs say it in `mca`, `mpiHome` and `worker`.
    pub mpi_config: Option<MPIConfig>,
    /// Parameters of Open MPI's components.
    pub mca: Option<Labels>,
    /// Where Open MPI is installed.
    pub mpi_home: Option<String>,
    pub ssh: Option<SSHConfig>,
    pub rest: Rest,
}

/// The workers of an MPIJob.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct MPIWorker {
    #[api(default = 1, range(0..))]
    pub replicas: Option<i32>,
    #[api(rename = "extraMPIArgs")]
    pub extra_mpi_args: Option<Vec<String>>,
    /// The program that mpirun starts.
    pub cmd: Option<Vec<String>>,
    pub template: Option<PodTemplate>,
    pub rest: Rest,
}

/// How mpirun is called.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct MPIConfig {
    pub mca: Option<Labels>,
    pub home: Option<String>,
    pub extra_args: Option<Vec<String>>,
    pub script: Option<Vec<String>>,
    pub rest: Rest,
}

/// What an MPIJob or a ColossalAIJob leaves behind.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct WorkersRunPolicy {
    /// Whether workers are deleted when the job has finished.
    #[api(default = false)]
    pub clean_up_workers: Option<bool>,
    pub rest: Rest,
}

/// How the launcher reaches the workers.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct SSHConfig {
    pub auth_mount_path: Option<String>,
    pub ssh_auth_mount_path: Option<String>,
    pub sshd_path: Option<String>,
    pub rest: Rest,
}

/// Training with Colossal-AI: workers, and a launcher that starts them.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "batch.tensorstack.dev",
    version = "v1beta1",
    plural = "colossalaijobs",
    status,
    column("Phase", ".status.phase" as string),
    column("Queue", ".spec.scheduler.t9kScheduler.queue" as string),
    column("Age", ".metadata.creationTimestamp" as date)
)]
pub struct ColossalAIJob {
    pub metadata: ObjectMeta,
    pub spec: Option<ColossalAIJobSpec>,
    pub status: Option<JobStatus>,
    pub rest: Rest,
}

/// What a ColossalAIJob runs.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ColossalAIJobSpec {
    pub scheduler: Option<SchedulePolicy>,
    pub run_mode: Option<RunMode>,
    pub run_policy: Option<WorkersRunPolicy>,
    pub launcher: Option<Launcher>,
    /// The workers; newer jobs list them under `replicaSpecs`.
    pub worker: Option<ColossalAIWorker>,
    pub replica_specs: Option<Vec<GenericReplicaSpec>>,
    pub torch_config: Option<TorchConfig>,
    pub ssh: Option<SSHConfig>,
    pub rest: Rest,
}

/// The pod that starts the workers.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct Launcher {
    pub image: Option<String>,
    pub working_dir: Option<String>,
    /// Environment variables of a container.
    pub env: Option<Vec<Open>>,
    pub resources: Option<ResourceRequirements>,
    pub rest: Rest,
}

/// The workers of a ColossalAIJob.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ColossalAIWorker {
    #[api(default = 1, range(0..))]
    pub replicas: Option<i32>,
    /// Processes on each worker.
    #[api(default = 1, range(0..))]
    pub proc_per_worker: Option<i32>,
    pub command: Option<Vec<String>>,
    pub torch_args: Option<Vec<String>>,
    pub template: Option<PodTemplate>,
    pub rest: Rest,
}

/// How torchrun is called.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct TorchConfig {
    #[api(default = 1, range(0..))]
    pub proc_per_worker: Option<i32>,
    pub script: Option<Vec<String>>,
    pub extra_args: Option<Vec<String>>,
    pub rest: Rest,
}

/// Training with DeepSpeed, started by the first worker.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "batch.tensorstack.dev",
    version = "v1beta1",
    plural = "deepspeedjobs",
    status,
    column("Phase", ".status.phase" as string),
    column("Queue", ".spec.scheduler.t9kScheduler.queue" as string),
    column("Age", ".metadata.creationTimestamp" as date)
)]
pub struct DeepSpeedJob {
    pub metadata: ObjectMeta,
    pub spec: Option<DeepSpeedJobSpec>,
    pub status: Option<JobStatus>,
    pub rest: Rest,
}

/// What a DeepSpeedJob runs.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct DeepSpeedJobSpec {
    pub scheduler: Option<SchedulePolicy>,
    pub run_mode: Option<RunMode>,
    pub run_policy: Option<RunPolicy>,
    pub worker: Option<DeepSpeedWorker>,
    pub elastic: Option<ElasticConfig>,
    pub config: Option<DeepSpeedConfig>,
    /// Whether the job's environment variables stay with the container instead of going to every process.
    pub disable_custom_env: Option<bool>,
    pub rest: Rest,
}

/// The workers of a DeepSpeedJob.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct DeepSpeedWorker {
    #[api(default = 1, range(0..))]
    pub replicas: Option<i32>,
    pub restart_policy: Option<RestartPolicyType>,
    pub template: Option<PodTemplate>,
    pub rest: Rest,
}

/// How DeepSpeed is called.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct DeepSpeedConfig {
    /// Replaces everything here but `slotsPerWorker`.
    pub custom_command: Option<String>,
    /// Slots on each worker, as a rule its GPUs.
    pub slots_per_worker: Option<i32>,
    /// Whether programs get the parameter `local_rank`.
    pub local_rank: Option<bool>,
    pub autotune: Option<String>,
    pub run: Option<RunType>,
    pub other_args: Option<Vec<String>>,
    pub rest: Rest,
}

/// What is started: exactly one of a script, a module and a program, with its arguments.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct RunType {
    pub python: Option<Vec<String>>,
    pub module: Option<Vec<String>>,
    pub exec: Option<Vec<String>>,
    pub rest: Rest,
}

/// A Beam pipeline on a Flink cluster of its own.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "batch.tensorstack.dev",
    version = "v1beta1",
    plural = "beamjobs",
    status,
    column("Phase", ".status.phase" as string),
    column("Queue", ".spec.scheduler.t9kScheduler.queue" as string),
    column("Age", ".metadata.creationTimestamp" as date)
)]
pub struct BeamJob {
    pub metadata: ObjectMeta,
    pub spec: Option<BeamJobSpec>,
    pub status: Option<JobStatus>,
    pub rest: Rest,
}

/// What a BeamJob runs.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct BeamJobSpec {
    pub scheduler: Option<SchedulePolicy>,
    pub run_mode: Option<RunMode>,
    pub run_policy: Option<ClusterRunPolicy>,
    /// Metadata and spec of the Flink cluster to make.
    pub flink_cluster_template: Option<Open>,
    /// Metadata and spec of the Kubernetes Job that submits the pipeline.
    pub job_template: Option<Open>,
    pub rest: Rest,
}

/// What a BeamJob leaves behind.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ClusterRunPolicy {
    /// Whether the Flink cluster is deleted when the job has finished.
    #[api(default = false)]
    pub clean_up_cluster: Option<bool>,
    pub rest: Rest,
}
