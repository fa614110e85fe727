//! Volcano's job flows, `flow.volcano.sh/v1alpha1`: jobs that start when others have reached a state.

use crate::common::{Duration, ObjectMeta, Rest, Time, string_enum};
use crate::volcano::batch::{JobSpec, TaskState};
use muster_api_derive::Api;
use std::collections::BTreeMap;

/// Jobs that start when others have reached a state.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "flow.volcano.sh",
    version = "v1alpha1",
    plural = "jobflows",
    short("jf"),
    status,
    column("Status", ".status.state.phase" as string),
    column("Age", ".metadata.creationTimestamp" as date)
)]
pub struct JobFlow {
    pub metadata: ObjectMeta,
    pub spec: Option<JobFlowSpec>,
    pub status: Option<JobFlowStatus>,
    pub rest: Rest,
}

/// The jobs and what they wait for.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct JobFlowSpec {
    pub flows: Option<Vec<Flow>>,
    /// Whether the jobs stay when the flow has succeeded.
    pub job_retain_policy: Option<JobRetainPolicy>,
    pub rest: Rest,
}

/// One job.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct Flow {
    /// The JobTemplate that the job is made from.
    #[api(len(1..))]
    pub name: String,
    /// What it waits for.
    pub depends_on: Option<DependsOn>,
    /// Changes to the template.
    pub patch: Option<Patch>,
    pub rest: Rest,
}

/// What a job waits for.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct DependsOn {
    pub probe: Option<Probe>,
    /// Jobs of the flow that must be complete.
    pub targets: Option<Vec<String>>,
    pub rest: Rest,
}

/// Further conditions.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct Probe {
    pub http_get_list: Option<Vec<HttpGet>>,
    pub task_status_list: Option<Vec<TaskStatus>>,
    pub tcp_socket_list: Option<Vec<TcpSocket>>,
    pub rest: Rest,
}

/// A page that must answer.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct HttpGet {
    pub http_header: Option<HttpHeader>,
    pub path: Option<String>,
    #[api(range(0..=65535), unformatted)]
    pub port: Option<i64>,
    #[api(len(..=253))]
    pub task_name: Option<String>,
    pub rest: Rest,
}

/// A header of the request.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct HttpHeader {
    pub name: String,
    pub value: String,
    pub rest: Rest,
}

/// A phase that a task must have reached.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct TaskStatus {
    #[api(len(..=63))]
    pub phase: Option<String>,
    #[api(len(..=253))]
    pub task_name: Option<String>,
    pub rest: Rest,
}

/// A port that must answer.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct TcpSocket {
    #[api(range(0..=65535), unformatted)]
    pub port: i64,
    #[api(len(..=253))]
    pub task_name: Option<String>,
    pub rest: Rest,
}

/// Changes to a template.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct Patch {
    pub job_spec: Option<JobSpec>,
    pub rest: Rest,
}

string_enum! {
    /// Whether jobs stay when their flow has succeeded.
    pub enum JobRetainPolicy { Retain = "retain", Delete = "delete" }
}

/// What became of the jobs.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct JobFlowStatus {
    pub completed_jobs: Option<Vec<String>>,
    pub conditions: Option<BTreeMap<String, JobFlowJobCondition>>,
    pub failed_jobs: Option<Vec<String>>,
    pub job_status_list: Option<Vec<JobFlowJobStatus>>,
    pub pending_jobs: Option<Vec<String>>,
    pub running_jobs: Option<Vec<String>>,
    pub state: Option<JobFlowState>,
    pub terminated_jobs: Option<Vec<String>>,
    pub un_know_jobs: Option<Vec<String>>,
    pub rest: Rest,
}

/// State of one job.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct JobFlowJobCondition {
    pub create_time: Option<Time>,
    pub phase: Option<String>,
    pub running_duration: Option<Duration>,
    pub task_status_count: Option<BTreeMap<String, TaskState>>,
    pub rest: Rest,
}

/// History of one job.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct JobFlowJobStatus {
    pub name: Option<String>,
    pub end_timestamp: Option<Time>,
    #[api(range(0..))]
    pub restart_count: Option<i32>,
    pub running_histories: Option<Vec<JobRunningHistory>>,
    pub start_timestamp: Option<Time>,
    pub state: Option<String>,
    pub rest: Rest,
}

/// One state that a job was in.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct JobRunningHistory {
    pub end_timestamp: Option<Time>,
    pub start_timestamp: Option<Time>,
    pub state: Option<String>,
    pub rest: Rest,
}

/// The phase of the flow.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct JobFlowState {
    pub phase: Option<JobFlowPhase>,
    pub rest: Rest,
}

string_enum! {
    /// Where a flow is in its life.
    pub enum JobFlowPhase { Succeed, Terminating, Failed, Running, Pending }
}

/// A job to be made by flows.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(group = "flow.volcano.sh", version = "v1alpha1", plural = "jobtemplates", short("jt"), status)]
pub struct JobTemplate {
    pub metadata: ObjectMeta,
    pub spec: Option<JobSpec>,
    pub status: Option<JobTemplateStatus>,
    pub rest: Rest,
}

/// Jobs that were made from the template.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct JobTemplateStatus {
    pub job_depends_on_list: Option<Vec<String>>,
    pub rest: Rest,
}
