//! CronJobs: a Job at every tick of a schedule.

pub mod plan;
pub mod run;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::object::{Meta, kinds};

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct CronJob {
    pub metadata: Meta,
    pub spec: CronJobSpec,
    pub status: Value,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CronJobSpec {
    pub schedule: String,
    pub time_zone: Option<String>,
    pub starting_deadline_seconds: Option<i64>,
    pub concurrency_policy: String,
    pub suspend: bool,
    pub job_template: Value,
    pub successful_jobs_history_limit: Option<i64>,
    pub failed_jobs_history_limit: Option<i64>,
}

kinds! {
    CronJob = "batch" "v1" "CronJob" "cronjobs";
}

impl CronJob {
    pub fn last_schedule(&self) -> Option<Timestamp> {
        self.status.get("lastScheduleTime")?.as_str()?.parse().ok()
    }
}
