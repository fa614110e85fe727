//! When a CronJob's next Job is due, and which old ones go.
//!
//! In: the CronJob, its Jobs, the time. Out: a Job to create, Jobs to delete, the status, when to look again.
//! Must stay true: a tick is served at most once; however long we slept, only the latest missed tick is made up for.

use std::sync::Arc;
use std::time::Duration;

use cronexpr::{Crontab, MakeTimestamp};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::CronJob;
use crate::clock::{stamp, until};
use crate::job::Job;
use crate::object::Object;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// The tick to serve.
    pub create: Option<Timestamp>,
    pub delete: Vec<Arc<Job>>,
    pub status: Value,
    pub wake: Option<Duration>,
    /// What to tell the user: warning or not, reason, message.
    pub news: Vec<(bool, &'static str, String)>,
}

/// The schedule with its zone, or what is wrong with it.
pub fn schedule(job: &CronJob) -> Result<Crontab, String> {
    let text = match job.spec.schedule.trim() {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        other => other,
    };
    let zone = job.spec.time_zone.as_deref().unwrap_or("UTC");
    cronexpr::parse_crontab(&format!("{text} {zone}")).map_err(|error| error.to_string())
}

pub fn plan(job: &CronJob, jobs: &[Arc<Job>], now: Timestamp) -> Plan {
    let active: Vec<&Arc<Job>> = jobs.iter().filter(|j| j.ended().is_none()).collect();
    let mut plan = Plan { delete: history(job, jobs), ..Plan::default() };
    let mut last_schedule = job.last_schedule();
    if !job.spec.suspend && !job.metadata.deleting() {
        match schedule(job) {
            Err(problem) => {
                plan.news.push((
                    true,
                    "UnparseableSchedule",
                    format!("unparseable schedule {:?}: {problem}", job.spec.schedule),
                ));
            }
            Ok(crontab) => {
                let mut earliest = last_schedule.unwrap_or_else(|| job.metadata.created());
                if let Some(deadline) = job.spec.starting_deadline_seconds {
                    let limit = now
                        .checked_sub(jiff::SignedDuration::from_secs(deadline.max(0)))
                        .unwrap_or(Timestamp::MIN);
                    earliest = earliest.max(limit);
                }
                if let Some(tick) = latest_tick(&crontab, earliest, now) {
                    match job.spec.concurrency_policy.as_str() {
                        "Forbid" if !active.is_empty() => {
                            let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
                            plan.news.push((false, "JobAlreadyActive", message.into()));
                        }
                        policy => {
                            if policy == "Replace" {
                                plan.delete.extend(active.iter().map(|j| (*j).clone()));
                            }
                            plan.create = Some(tick);
                            last_schedule = Some(tick);
                        }
                    }
                }
                plan.wake = next_tick(&crontab, now).map(|next| until(now, next) + Duration::from_millis(10));
            }
        }
    }
    let last_success = jobs
        .iter()
        .filter(|j| j.condition("Complete").is_some())
        .filter_map(|j| j.status.completion_time)
        .max()
        .map(stamp)
        .or_else(|| job.status.get("lastSuccessfulTime").and_then(Value::as_str).map(str::to_owned));
    let gone: Vec<&str> = plan.delete.iter().map(|j| j.metadata.uid.as_str()).collect();
    let references: Vec<Value> = active
        .iter()
        .filter(|j| !gone.contains(&j.metadata.uid.as_str()))
        .map(|j| {
            json!({
                "apiVersion": "batch/v1", "kind": "Job", "namespace": j.metadata.namespace,
                "name": j.metadata.name, "uid": j.metadata.uid, "resourceVersion": j.metadata.resource_version,
            })
        })
        .collect();
    let mut status = Map::new();
    if !references.is_empty() {
        status.insert("active".into(), Value::Array(references));
    }
    if let Some(at) = last_schedule {
        status.insert("lastScheduleTime".into(), json!(stamp(at)));
    }
    if let Some(at) = last_success {
        status.insert("lastSuccessfulTime".into(), json!(at));
    }
    plan.status = Value::Object(status);
    plan
}

fn next_tick(crontab: &Crontab, after: Timestamp) -> Option<Timestamp> {
    crontab.find_next(MakeTimestamp(after)).ok().map(|zoned| zoned.timestamp())
}

/// The last tick after `earliest` and not after `now`. Windows that grow keep this short after a long sleep.
fn latest_tick(crontab: &Crontab, earliest: Timestamp, now: Timestamp) -> Option<Timestamp> {
    const HOURS: [u64; 5] = [1, 24, 32 * 24, 366 * 24, 9 * 366 * 24];
    for hours in HOURS {
        let back = jiff::SignedDuration::from_secs(i64::try_from(hours * 3600).unwrap_or(i64::MAX));
        let from = now.checked_sub(back).unwrap_or(Timestamp::MIN).max(earliest);
        let mut found = None;
        let mut at = from;
        // A window has at most a tick a minute; those that are wider are only reached when narrower ones had none.
        for _ in 0..100_000 {
            match next_tick(crontab, at) {
                Some(tick) if tick <= now => {
                    found = Some(tick);
                    at = tick;
                }
                _ => break,
            }
        }
        if found.is_some() || from == earliest {
            return found;
        }
    }
    None
}

/// Finished Jobs beyond the history limits, oldest first.
fn history(job: &CronJob, jobs: &[Arc<Job>]) -> Vec<Arc<Job>> {
    let mut gone = Vec::new();
    for (kind, limit) in [
        ("Complete", job.spec.successful_jobs_history_limit.unwrap_or(3)),
        ("Failed", job.spec.failed_jobs_history_limit.unwrap_or(1)),
    ] {
        let mut ended: Vec<&Arc<Job>> =
            jobs.iter().filter(|j| j.condition(kind).is_some() && !j.metadata.deleting()).collect();
        ended.sort_by_key(|j| (j.status.start_time, j.metadata.name.clone()));
        let n_extra = ended.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        gone.extend(ended.into_iter().take(n_extra).cloned());
    }
    gone
}

/// The Job of a tick. Its name says which tick, so that a tick served twice is refused by the server.
pub fn job_of(cron: &CronJob, tick: Timestamp) -> Value {
    let template = &cron.spec.job_template;
    let mut metadata = Map::new();
    metadata.insert("name".into(), json!(format!("{}-{}", cron.metadata.name, tick.as_second() / 60)));
    metadata.insert("namespace".into(), json!(cron.metadata.namespace));
    metadata
        .insert("labels".into(), template.pointer("/metadata/labels").cloned().unwrap_or_else(|| json!({})));
    let mut annotations = template.pointer("/metadata/annotations").cloned().unwrap_or_else(|| json!({}));
    annotations["batch.kubernetes.io/cronjob-scheduled-timestamp"] = json!(stamp(tick));
    metadata.insert("annotations".into(), annotations);
    metadata.insert("ownerReferences".into(), json!([crate::object::controller_ref(cron)]));
    json!({
        "apiVersion": "batch/v1",
        "kind": Job::RESOURCE.kind,
        "metadata": metadata,
        "spec": template.get("spec").cloned().unwrap_or_else(|| json!({})),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cron(spec: Value, created: &str, last: Option<&str>) -> CronJob {
        serde_json::from_value(json!({
            "metadata": {"name": "c", "namespace": "ns", "creationTimestamp": created},
            "spec": spec,
            "status": {"lastScheduleTime": last},
        }))
        .unwrap()
    }

    fn ended(name: &str, kind: &str, start: &str) -> Arc<Job> {
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {"name": name, "uid": name},
                "status": {"startTime": start, "conditions": if kind.is_empty() { json!([]) } else { json!([{"type": kind, "status": "True"}]) }},
            }))
            .unwrap(),
        )
    }

    #[track_caller]
    fn check(cron: &CronJob, jobs: &[Arc<Job>], now: &str, expected: &str) -> Plan {
        let plan = plan(cron, jobs, now.parse().unwrap());
        let mut shown: Vec<String> = plan.create.iter().map(|t| format!("+{}", stamp(*t))).collect();
        shown.extend(plan.delete.iter().map(|j| format!("-{}", j.metadata.name)));
        shown.extend(plan.news.iter().map(|(_, reason, _)| (*reason).to_owned()));
        shown.extend(plan.wake.map(|w| format!("wake {}", w.as_secs())));
        assert_eq!(shown.join(" "), expected);
        plan
    }

    const CREATED: &str = "2026-03-01T00:00:30Z";

    #[test]
    fn ticks() {
        let every = json!({"schedule": "*/5 * * * *"});
        check(&cron(every.clone(), CREATED, None), &[], "2026-03-01T00:04:00Z", "wake 60");
        check(
            &cron(every.clone(), CREATED, None),
            &[],
            "2026-03-01T00:05:00Z",
            "+2026-03-01T00:05:00Z wake 300",
        );
        check(
            &cron(every.clone(), CREATED, Some("2026-03-01T00:05:00Z")),
            &[],
            "2026-03-01T00:05:01Z",
            "wake 299",
        );
        check(&cron(every, CREATED, None), &[], "2027-03-01T00:01:00Z", "+2027-03-01T00:00:00Z wake 240");
        check(
            &cron(json!({"schedule": "@hourly"}), CREATED, None),
            &[],
            "2026-03-01T01:00:10Z",
            "+2026-03-01T01:00:00Z wake 3590",
        );
        let late = json!({"schedule": "0 * * * *", "startingDeadlineSeconds": 60});
        check(
            &cron(late.clone(), CREATED, None),
            &[],
            "2026-03-01T01:00:30Z",
            "+2026-03-01T01:00:00Z wake 3570",
        );
        check(&cron(late, CREATED, None), &[], "2026-03-01T01:02:00Z", "wake 3480");
        check(
            &cron(json!({"schedule": "nonsense"}), CREATED, None),
            &[],
            "2026-03-01T01:02:00Z",
            "UnparseableSchedule",
        );
        check(
            &cron(json!({"schedule": "* * * * *", "suspend": true}), CREATED, None),
            &[],
            "2026-03-01T01:02:00Z",
            "",
        );
    }

    #[test]
    fn zones() {
        let spec = json!({"schedule": "0 9 * * *", "timeZone": "Asia/Shanghai"});
        check(&cron(spec, CREATED, None), &[], "2026-03-01T01:00:00Z", "+2026-03-01T01:00:00Z wake 86400");
        let spec = json!({"schedule": "0 9 * * *", "timeZone": "Nowhere/Land"});
        check(&cron(spec, CREATED, None), &[], "2026-03-01T01:00:00Z", "UnparseableSchedule");
    }

    #[test]
    fn concurrency() {
        let running = [ended("r", "", CREATED)];
        let spec = |policy: &str| json!({"schedule": "* * * * *", "concurrencyPolicy": policy});
        let now = "2026-03-01T00:01:00Z";
        check(&cron(spec("Allow"), CREATED, None), &running, now, "+2026-03-01T00:01:00Z wake 60");
        check(&cron(spec("Forbid"), CREATED, None), &running, now, "JobAlreadyActive wake 60");
        let plan =
            check(&cron(spec("Replace"), CREATED, None), &running, now, "+2026-03-01T00:01:00Z -r wake 60");
        assert_eq!(plan.status.get("active"), None);
    }

    #[test]
    fn history_is_limited() {
        let jobs: Vec<Arc<Job>> = (0..5)
            .map(|i| ended(&format!("s{i}"), "Complete", &format!("2026-03-01T00:00:0{i}Z")))
            .chain([ended("f0", "Failed", CREATED), ended("f1", "Failed", "2026-03-01T00:00:50Z")])
            .collect();
        check(
            &cron(json!({"schedule": "0 0 1 1 *", "suspend": true}), CREATED, None),
            &jobs,
            "2026-03-01T01:00:00Z",
            "-s0 -s1 -f0",
        );
    }

    #[test]
    fn names_say_the_tick() {
        let job = job_of(
            &cron(json!({"jobTemplate": {"spec": {"x": 1}}}), CREATED, None),
            "2026-03-01T00:05:00Z".parse().unwrap(),
        );
        assert_eq!(job["metadata"]["name"], "c-29538725");
        assert_eq!(job["spec"]["x"], 1);
    }
}
