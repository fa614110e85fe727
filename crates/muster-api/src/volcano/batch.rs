//! Volcano's jobs, `batch.volcano.sh/v1alpha1`: Job and CronJob.

use crate::common::core::PersistentVolumeClaimSpec;
use crate::common::meta::{EmbeddedMetadata, ObjectReference};
use crate::common::{Duration, Labels, ObjectMeta, PodTemplate, Rest, Time, string_enum};
use crate::volcano::scheduling::NetworkTopologySpec;
use muster_api_derive::Api;
use std::collections::BTreeMap;

/// A batch job of one or more tasks, scheduled as a gang.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "batch.volcano.sh",
    version = "v1alpha1",
    plural = "jobs",
    short("vcjob", "vj"),
    status,
    column("STATUS", ".status.state.phase" as string),
    column("minAvailable", ".status.minAvailable" as integer),
    column("RUNNINGS", ".status.running" as integer),
    column("AGE", ".metadata.creationTimestamp" as date),
    column("QUEUE", ".spec.queue" as string, wide)
)]
pub struct Job {
    pub metadata: ObjectMeta,
    pub spec: Option<JobSpec>,
    pub status: Option<JobStatus>,
    pub rest: Rest,
}

/// The tasks, how many pods the gang needs, and what happens when something fails.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct JobSpec {
    /// How many pods must be placed together; the sum over the tasks unless given.
    #[api(range(0..))]
    pub min_available: Option<i32>,
    /// How often the job is restarted before it has failed.
    #[api(default = 3, range(0..))]
    pub max_retry: Option<i32>,
    /// How many pods must succeed for the job to be complete.
    #[api(range(1..))]
    pub min_success: Option<i32>,
    /// How close together the pods must be placed.
    pub network_topology: Option<NetworkTopologySpec>,
    /// Helpers for the pods, by name with their arguments: `ssh`, `svc`, `env`, `pytorch`, `mpi`.
    pub plugins: Option<BTreeMap<String, Vec<String>>>,
    /// What happens on which event; a task's own policies come first.
    pub policies: Option<Vec<LifecyclePolicy>>,
    #[api(dns_subdomain)]
    pub priority_class_name: Option<String>,
    /// The queue that pays for the pods.
    #[api(default = "default", dns_subdomain)]
    pub queue: Option<String>,
    /// How long the user thinks the job will run.
    pub running_estimate: Option<Duration>,
    /// The scheduler for all pods.
    #[api(len(..=63))]
    pub scheduler_name: Option<String>,
    /// The tasks; each is a number of equal pods.
    #[api(len(1..))]
    pub tasks: Option<Vec<TaskSpec>>,
    /// When a finished job is deleted.
    #[api(range(0..))]
    pub ttl_seconds_after_finished: Option<i32>,
    /// Volumes that every pod mounts.
    pub volumes: Option<Vec<VolumeSpec>>,
    pub rest: Rest,
}

/// An action on an event or exit code.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct LifecyclePolicy {
    /// What to do.
    pub action: Option<Action>,
    /// The event.
    pub event: Option<Event>,
    /// Several events with the same action.
    pub events: Option<Vec<Event>>,
    /// An exit code of a container, instead of an event; not 0.
    pub exit_code: Option<i32>,
    /// How long to wait before the action; the event may pass in the meantime.
    pub timeout: Option<Duration>,
    pub rest: Rest,
}

string_enum! {
    /// What can be done about it.
    pub open enum Action {
        AbortJob,
        RestartJob,
        RestartTask,
        RestartPod,
        RestartPartition,
        TerminateJob,
        CompleteJob,
        ResumeJob,
        SyncJob,
        EnqueueJob,
        SyncQueue,
        OpenQueue,
        CloseQueue,
        MigrateTask,
        KillAndRestart,
    }
}

string_enum! {
    /// What can happen to a job.
    pub enum Event {
        Any = "*",
        PodPending,
        PodRunning,
        PodFailed,
        PodEvicted,
        Unknown,
        TaskCompleted,
        OutOfSync,
        CommandIssued,
        JobUpdated,
        TaskFailed,
        NodeFailed,
        TaskStuck,
    }
}

/// A number of equal pods.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct TaskSpec {
    #[api(dns_label)]
    pub name: Option<String>,
    /// How many pods.
    #[api(range(0..))]
    pub replicas: Option<i32>,
    /// How many of them the gang needs; all unless given.
    #[api(range(0..))]
    pub min_available: Option<i32>,
    /// Tasks that must have started first.
    pub depends_on: Option<DependsOn>,
    #[api(range(0..))]
    pub max_retry: Option<i32>,
    /// Pods in partitions that are placed together.
    pub partition_policy: Option<PartitionPolicySpec>,
    pub policies: Option<Vec<LifecyclePolicy>>,
    /// What the pods are.
    pub template: Option<PodTemplate>,
    /// How the pods are laid out over NUMA zones.
    pub topology_policy: Option<NumaPolicy>,
    pub rest: Rest,
}

/// Tasks that must have started first.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct DependsOn {
    pub name: Option<Vec<String>>,
    /// Whether `any` or `all` of them.
    pub iteration: Option<String>,
    pub rest: Rest,
}

/// Pods in partitions, each placed together.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PartitionPolicySpec {
    #[api(default = 0, range(0..))]
    pub min_partitions: Option<i32>,
    pub network_topology: Option<NetworkTopologySpec>,
    #[api(range(1..))]
    pub partition_size: i32,
    #[api(range(1..))]
    pub total_partitions: i32,
    pub rest: Rest,
}

string_enum! {
    /// How pods are laid out over NUMA zones.
    pub enum NumaPolicy {
        None = "none",
        BestEffort = "best-effort",
        Restricted = "restricted",
        SingleNumaNode = "single-numa-node",
    }
}

/// A volume that every pod mounts.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct VolumeSpec {
    #[api(pattern = "^[^:]+$", len(1..))]
    pub mount_path: String,
    /// The claim to make, unless an existing one is named.
    pub volume_claim: Option<PersistentVolumeClaimSpec>,
    #[api(len(..=253))]
    pub volume_claim_name: Option<String>,
    pub rest: Rest,
}

/// What became of the pods.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct JobStatus {
    #[api(range(0..))]
    pub min_available: Option<i32>,
    pub conditions: Option<Vec<JobCondition>>,
    pub controlled_resources: Option<Labels>,
    #[api(range(0..))]
    pub failed: Option<i32>,
    #[api(range(0..))]
    pub pending: Option<i32>,
    #[api(range(0..))]
    pub retry_count: Option<i32>,
    #[api(range(0..))]
    pub running: Option<i32>,
    pub running_duration: Option<Duration>,
    pub state: Option<JobState>,
    #[api(range(0..))]
    pub succeeded: Option<i32>,
    pub task_status_count: Option<BTreeMap<String, TaskState>>,
    #[api(range(0..))]
    pub terminating: Option<i32>,
    #[api(range(0..))]
    pub unknown: Option<i32>,
    #[api(range(0..))]
    pub version: Option<i32>,
    pub rest: Rest,
}

/// A phase that the job was in, and since when.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct JobCondition {
    pub last_transition_time: Option<Time>,
    pub status: String,
    pub rest: Rest,
}

/// The phase that the job is in.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct JobState {
    pub last_transition_time: Option<Time>,
    pub message: Option<String>,
    pub phase: Option<JobPhase>,
    pub reason: Option<String>,
    pub rest: Rest,
}

string_enum! {
    /// Where a job is in its life.
    pub enum JobPhase {
        Pending,
        Aborting,
        Aborted,
        Running,
        Restarting,
        Completing,
        Completed,
        Terminating,
        Terminated,
        Failed,
    }
}

/// How many pods of a task are in each phase.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct TaskState {
    pub phase: Option<BTreeMap<String, i32>>,
    pub rest: Rest,
}

/// Jobs that are made at set times.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "batch.volcano.sh",
    version = "v1alpha1",
    plural = "cronjobs",
    short("cronvcjob", "cronvj"),
    status
)]
pub struct CronJob {
    pub metadata: ObjectMeta,
    pub spec: Option<CronJobSpec>,
    pub status: Option<CronJobStatus>,
    pub rest: Rest,
}

/// When, and what.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct CronJobSpec {
    /// What happens if the last job still runs.
    #[api(default = "Allow")]
    pub concurrency_policy: Option<ConcurrencyPolicy>,
    #[api(default = 1, range(0..))]
    pub failed_jobs_history_limit: Option<i32>,
    pub job_template: JobTemplateSpec,
    /// The times, in cron's form.
    pub schedule: String,
    #[api(range(0..))]
    pub starting_deadline_seconds: Option<i64>,
    #[api(default = 3, range(0..))]
    pub successful_jobs_history_limit: Option<i32>,
    #[api(default = false)]
    pub suspend: Option<bool>,
    /// The zone that the times are in; that of the controller unless given.
    pub time_zone: Option<String>,
    pub rest: Rest,
}

string_enum! {
    /// Run beside the last job, skip, or replace it.
    pub enum ConcurrencyPolicy { Allow, Forbid, Replace }
}

/// What each job is.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct JobTemplateSpec {
    pub metadata: Option<EmbeddedMetadata>,
    pub spec: Option<JobSpec>,
    pub rest: Rest,
}

/// The jobs that run, and when the last was made.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct CronJobStatus {
    #[api(list(atomic))]
    pub active: Option<Vec<ObjectReference>>,
    pub last_schedule_time: Option<Time>,
    pub last_successful_time: Option<Time>,
    pub rest: Rest,
}
