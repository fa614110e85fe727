//! What a Job needs.
//!
//! In: the Job, its pods, the time. Out: pods to create and to delete, pods whose end is counted and may go, the
//! status. Must stay true: every end of a pod is counted exactly once, because a pod's uid is written down before its
//! finalizer goes and struck out after; a Job ends only when its pods have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::indexes::{self, Indexes};
use super::policy::{Verdict, judge, satisfied};
use super::{FINALIZER, INDEX, INDEX_FAILURES, Job, JobStatus, Uncounted};
use crate::clock::{later, until, whole};
use crate::object::{Condition, Pod};
use crate::replicaset::plan::least_missed;

/// No more than this many pods are created, or counted, in one go.
pub const BURST: usize = 500;

#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// One entry per pod; the index and its earlier failures, for an indexed Job.
    pub create: Vec<Option<(i64, i64)>>,
    /// Pods that end with the Job; they are counted as they go.
    pub delete: Vec<Arc<Pod>>,
    /// Pods that are not wanted now; they go uncounted, so they are let go of before they are deleted.
    pub drop: Vec<Arc<Pod>>,
    /// Pods that are counted once the status is written.
    pub release: Vec<Arc<Pod>>,
    pub status: Value,
    pub wake: Option<Duration>,
    /// The Job is over and its time to live has passed.
    pub expired: bool,
    /// A condition that is new: kind, reason, message.
    pub news: Vec<(String, String, String)>,
}

struct Counts {
    succeeded: i64,
    failed: i64,
    /// Failures that count against the limit but not yet in the status.
    completed: Indexes,
    failed_indexes: Indexes,
}

/// A condition that is on its way to end the Job.
struct Ending {
    success: bool,
    reason: String,
    message: String,
}

pub fn plan(job: &Job, pods: &[Arc<Pod>], now: Timestamp) -> Plan {
    let now = whole(now);
    let mut plan = Plan {
        create: Vec::new(),
        delete: Vec::new(),
        drop: Vec::new(),
        release: Vec::new(),
        status: Value::Null,
        wake: None,
        expired: false,
        news: Vec::new(),
    };
    let tracked = |p: &&Arc<Pod>| p.metadata.finalizers.iter().any(|f| f == FINALIZER);

    if job.ended().is_some() || job.metadata.deleting() {
        plan.release = pods.iter().filter(tracked).cloned().collect();
        plan.status = Value::Null;
        if let (Some(ended), Some(ttl)) = (job.ended(), job.spec.ttl_seconds_after_finished) {
            let since = ended.last_transition_time.unwrap_or(now);
            let at = later(since, seconds(ttl));
            plan.expired = at <= now && !job.metadata.deleting();
            plan.wake = (at > now).then(|| until(now, at));
        }
        return plan;
    }

    let limit = if job.indexed() { job.spec.completions.unwrap_or(0).max(0) } else { 0 };
    let Uncounted { succeeded: mut uncounted_succeeded, failed: mut uncounted_failed } =
        job.status.uncounted_terminated_pods.clone().unwrap_or_default();
    let mut counts = Counts {
        succeeded: job.status.succeeded,
        failed: job.status.failed,
        completed: indexes::parse(&job.status.completed_indexes, limit),
        failed_indexes: indexes::parse(job.status.failed_indexes.as_deref().unwrap_or(""), limit),
    };

    // What was written down and has since lost its finalizer is counted now.
    let still_held: BTreeSet<&str> = pods.iter().filter(tracked).map(|p| p.metadata.uid.as_str()).collect();
    for (list, count) in
        [(&mut uncounted_succeeded, &mut counts.succeeded), (&mut uncounted_failed, &mut counts.failed)]
    {
        list.retain(|uid| {
            let held = still_held.contains(uid.as_str());
            *count += i64::from(!held);
            held
        });
    }

    // What ended since: written down now, released once that is safe.
    let mut fail_job: Option<String> = None;
    let mut n_new = uncounted_succeeded.len() + uncounted_failed.len();
    let ended: Vec<&Arc<Pod>> =
        pods.iter().filter(tracked).filter(|p| succeeded(p) || failed(job, p)).collect();
    for pod in &ended {
        if n_new >= BURST {
            plan.wake = Some(Duration::ZERO);
            break;
        }
        let uid = &pod.metadata.uid;
        let index = index_of(pod).filter(|i| *i < limit);
        if succeeded(pod) {
            if job.indexed() {
                counts.completed.extend(index);
            } else if uncounted_succeeded.insert(uid.clone()) {
                n_new += 1;
            }
            plan.release.push((*pod).clone());
            continue;
        }
        let verdict = if pod.status.phase == "Failed" {
            judge(job.spec.pod_failure_policy.as_ref(), pod)
        } else {
            Verdict::Count
        };
        match &verdict {
            Verdict::FailJob(why) => fail_job = fail_job.or_else(|| Some(why.clone())),
            Verdict::FailIndex => counts.failed_indexes.extend(index),
            _ => {}
        }
        if let (Some(per_index), Some(index)) = (job.spec.backoff_limit_per_index, index)
            && verdict != Verdict::Ignore
            && failures_of(pod) >= per_index
        {
            counts.failed_indexes.insert(index);
        }
        if verdict != Verdict::Ignore && uncounted_failed.insert(uid.clone()) {
            n_new += 1;
        }
        // The last failure of an index carries its number of failures on to the next pod, so it stays until then.
        let needed = job.spec.backoff_limit_per_index.is_some()
            && index.is_some_and(|i| {
                !counts.failed_indexes.contains(&i)
                    && !counts.completed.contains(&i)
                    && !succeeded_by_other(pods, pod, i)
            });
        if !needed {
            plan.release.push((*pod).clone());
        }
    }
    if job.indexed() {
        // Failed and completed exclude each other; a success comes first.
        counts.failed_indexes.retain(|i| !counts.completed.contains(i));
        counts.succeeded = i64::try_from(counts.completed.len()).unwrap_or(i64::MAX);
        uncounted_succeeded.clear();
    }
    let n = |list: &BTreeSet<String>| i64::try_from(list.len()).unwrap_or(i64::MAX);
    let n_succeeded = counts.succeeded + n(&uncounted_succeeded);
    let n_failed = counts.failed + n(&uncounted_failed);

    let active: Vec<Arc<Pod>> = pods.iter().filter(|p| p.active()).cloned().collect();
    let terminating: Vec<&Arc<Pod>> =
        pods.iter().filter(|p| p.metadata.deleting() && !p.finished()).collect();

    let start_time = if job.spec.suspend { None } else { Some(job.status.start_time.unwrap_or(now)) };
    let mut conditions = job.status.conditions.clone();
    let mut ending = ending_so_far(job);
    if ending.is_none() {
        ending =
            decide(job, &counts, n_succeeded, n_failed, fail_job, &active, &terminating, start_time, now);
    }

    let mut n_active = active.len();
    if let Some(ending) = &ending {
        plan.delete = active.clone();
        n_active = 0;
        let (interim, last) =
            if ending.success { ("SuccessCriteriaMet", "Complete") } else { ("FailureTarget", "Failed") };
        add_condition(&mut conditions, interim, "True", &ending.reason, &ending.message, now, &mut plan.news);
        let all_counted = uncounted_succeeded.is_empty() && uncounted_failed.is_empty();
        let all_released = ended.is_empty();
        if active.is_empty() && terminating.is_empty() && all_counted && all_released {
            add_condition(
                &mut conditions,
                last,
                "True",
                &ending.reason,
                &ending.message,
                now,
                &mut plan.news,
            );
        }
        plan.release.extend(pods.iter().filter(tracked).filter(|p| p.finished()).cloned());
        plan.release.sort_by_key(|p| p.metadata.uid.clone());
        plan.release.dedup_by_key(|p| p.metadata.uid.clone());
    } else if job.spec.suspend {
        plan.drop = active.clone();
        n_active = 0;
        add_condition(
            &mut conditions,
            "Suspended",
            "True",
            "JobSuspended",
            "Job suspended",
            now,
            &mut plan.news,
        );
    } else {
        if job.condition("Suspended").is_some() {
            add_condition(
                &mut conditions,
                "Suspended",
                "False",
                "JobResumed",
                "Job resumed",
                now,
                &mut plan.news,
            );
        }
        populate(job, pods, &active, &terminating, &counts, n_succeeded, now, &mut plan);
        n_active = (n_active + plan.create.len()).saturating_sub(plan.drop.len());
        if let (Some(deadline), Some(start)) = (job.spec.active_deadline_seconds, start_time) {
            wake_at(&mut plan, now, later(start, seconds(deadline)));
        }
    }

    let finished =
        crate::object::is_true(&conditions, "Complete") || crate::object::is_true(&conditions, "Failed");
    // What is on its way out is no longer ready.
    let going: BTreeSet<&str> =
        plan.delete.iter().chain(&plan.drop).map(|p| p.metadata.uid.as_str()).collect();
    let n_ready = active.iter().filter(|p| p.ready() && !going.contains(p.metadata.uid.as_str())).count();
    let n_terminating = if finished { 0 } else { terminating.len() + plan.delete.len() + plan.drop.len() };
    let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    let status = JobStatus {
        active: if finished { 0 } else { count(n_active) },
        ready: Some(count(n_ready)),
        terminating: Some(count(n_terminating)),
        succeeded: counts.succeeded,
        failed: counts.failed,
        completed_indexes: if job.indexed() { indexes::print(&counts.completed) } else { String::new() },
        failed_indexes: (job.indexed() && job.spec.backoff_limit_per_index.is_some())
            .then(|| indexes::print(&counts.failed_indexes)),
        start_time,
        completion_time: crate::object::is_true(&conditions, "Complete").then_some(now),
        conditions,
        uncounted_terminated_pods: Some(Uncounted {
            succeeded: uncounted_succeeded,
            failed: uncounted_failed,
        }),
    };
    plan.status = status.to_value();
    plan
}

fn seconds(n: i64) -> Duration {
    Duration::from_secs(u64::try_from(n).unwrap_or(0))
}

fn wake_at(plan: &mut Plan, now: Timestamp, at: Timestamp) {
    let wait = until(now, at) + Duration::from_millis(10);
    plan.wake = Some(plan.wake.map_or(wait, |w| w.min(wait)));
}

fn succeeded(pod: &Pod) -> bool {
    pod.status.phase == "Succeeded"
}

/// A pod that is being deleted counts as failed at once, unless the Job replaces only what has failed for good.
fn failed(job: &Job, pod: &Pod) -> bool {
    pod.status.phase == "Failed"
        || (!job.replaces_failed_only() && pod.metadata.deleting() && pod.status.phase != "Succeeded")
}

pub fn index_of(pod: &Pod) -> Option<i64> {
    pod.metadata.annotation(INDEX)?.parse().ok().filter(|i| *i >= 0)
}

fn failures_of(pod: &Pod) -> i64 {
    pod.metadata.annotation(INDEX_FAILURES).and_then(|t| t.parse().ok()).unwrap_or(0)
}

fn succeeded_by_other(pods: &[Arc<Pod>], pod: &Pod, index: i64) -> bool {
    pods.iter().any(|p| index_of(p) == Some(index) && failures_of(p) > failures_of(pod))
}

/// An ending that was decided on at an earlier look.
fn ending_so_far(job: &Job) -> Option<Ending> {
    let met = job.condition("SuccessCriteriaMet").map(|c| (true, c));
    let (success, condition) = met.or_else(|| job.condition("FailureTarget").map(|c| (false, c)))?;
    Some(Ending { success, reason: condition.reason.clone(), message: condition.message.clone() })
}

#[expect(clippy::too_many_arguments, reason = "each is a plain fact that the decision rests on")]
fn decide(
    job: &Job,
    counts: &Counts,
    n_succeeded: i64,
    n_failed: i64,
    fail_job: Option<String>,
    active: &[Arc<Pod>],
    terminating: &[&Arc<Pod>],
    start: Option<Timestamp>,
    now: Timestamp,
) -> Option<Ending> {
    let fail =
        |reason: &str, message: String| Some(Ending { success: false, reason: reason.into(), message });
    if let Some(why) = fail_job {
        return fail("PodFailurePolicy", why);
    }
    let backoff_limit = job.spec.backoff_limit.unwrap_or(if job.spec.backoff_limit_per_index.is_some() {
        i64::MAX
    } else {
        6
    });
    let on_failure =
        job.spec.template.pointer("/spec/restartPolicy").and_then(Value::as_str) == Some("OnFailure");
    let restarts: i64 = if on_failure { active.iter().map(|p| i64::from(p.restarts())).sum() } else { 0 };
    let too_many_restarts = if backoff_limit == 0 { restarts > 0 } else { restarts >= backoff_limit };
    if n_failed > backoff_limit || (on_failure && too_many_restarts) {
        return fail("BackoffLimitExceeded", "Job has reached the specified backoff limit".into());
    }
    if let (Some(deadline), Some(start)) = (job.spec.active_deadline_seconds, start)
        && now.duration_since(start).as_secs() >= deadline
    {
        return fail("DeadlineExceeded", "Job was active longer than specified deadline".into());
    }
    if job.indexed() {
        let completions = job.spec.completions.unwrap_or(0).max(0);
        if let Some(rule) = satisfied(job.spec.success_policy.as_ref(), &counts.completed, completions) {
            let message = format!("Matched rules at index {rule}");
            return Some(Ending { success: true, reason: "SuccessPolicy".into(), message });
        }
        let n_failed_indexes = i64::try_from(counts.failed_indexes.len()).unwrap_or(i64::MAX);
        if job.spec.max_failed_indexes.is_some_and(|most| n_failed_indexes > most) {
            return fail(
                "MaxFailedIndexesExceeded",
                "Job has exceeded the specified maximal number of failed indexes".into(),
            );
        }
        if n_failed_indexes > 0 && n_failed_indexes + n_succeeded >= completions {
            return fail("FailedIndexes", "Job has failed indexes".into());
        }
    }
    if job.spec.suspend {
        return None;
    }
    let reached = match job.spec.completions {
        Some(completions) => n_succeeded >= completions,
        None => n_succeeded > 0 && active.is_empty() && terminating.is_empty(),
    };
    reached.then(|| Ending {
        success: true,
        reason: "CompletionsReached".into(),
        message: "Reached expected number of succeeded pods".into(),
    })
}

/// Brings the number of active pods to what it should be.
#[expect(clippy::too_many_arguments, reason = "each is a plain fact that the decision rests on")]
fn populate(
    job: &Job,
    pods: &[Arc<Pod>],
    active: &[Arc<Pod>],
    terminating: &[&Arc<Pod>],
    counts: &Counts,
    n_succeeded: i64,
    now: Timestamp,
    plan: &mut Plan,
) {
    let mut keep: Vec<Arc<Pod>> = active.to_vec();
    if job.indexed() {
        // Two pods of one index, or a pod of an index that is done: the surplus goes.
        let limit = job.spec.completions.unwrap_or(0);
        let mut seen = BTreeSet::new();
        let mut by_index = active.to_vec();
        by_index.sort_by_key(|p| (p.metadata.created(), p.metadata.uid.clone()));
        keep.clear();
        for pod in by_index {
            match index_of(&pod) {
                Some(i)
                    if i < limit
                        && !counts.completed.contains(&i)
                        && !counts.failed_indexes.contains(&i)
                        && seen.insert(i) =>
                {
                    keep.push(pod);
                }
                _ => plan.drop.push(pod),
            }
        }
    }
    let n_keep = i64::try_from(keep.len()).unwrap_or(i64::MAX);
    let want = match job.spec.completions {
        Some(completions) => {
            let done = n_succeeded + i64::try_from(counts.failed_indexes.len()).unwrap_or(0);
            (completions - done).clamp(0, job.parallelism())
        }
        None if n_succeeded > 0 => n_keep.min(job.parallelism()),
        None => job.parallelism(),
    };
    if n_keep > want {
        let surplus = usize::try_from(n_keep - want).unwrap_or(0);
        plan.drop.extend(least_missed(keep, &[], now).into_iter().take(surplus));
        return;
    }
    let n_terminating =
        if job.replaces_failed_only() { i64::try_from(terminating.len()).unwrap_or(0) } else { 0 };
    let missing = usize::try_from(want - n_keep - n_terminating).unwrap_or(0).min(BURST);
    if missing == 0 {
        return;
    }
    if !job.indexed() {
        match back_off(pods.iter(), now) {
            Some(at) => wake_at(plan, now, at),
            None => plan.create = vec![None; missing],
        }
        return;
    }
    let busy: BTreeSet<i64> = keep
        .iter()
        .chain(if job.replaces_failed_only() { terminating } else { &[] }.iter().copied())
        .filter_map(|p| index_of(p))
        .collect();
    let mut by_index: BTreeMap<i64, Vec<&Arc<Pod>>> = BTreeMap::new();
    for pod in pods {
        if let Some(i) = index_of(pod) {
            by_index.entry(i).or_default().push(pod);
        }
    }
    let per_index = job.spec.backoff_limit_per_index.is_some();
    let whole_job = if per_index { None } else { back_off(pods.iter(), now) };
    if let Some(at) = whole_job {
        wake_at(plan, now, at);
        return;
    }
    let completions = job.spec.completions.unwrap_or(0).max(0);
    let mut index = 0;
    while plan.create.len() < missing && index < completions {
        let i = index;
        index += 1;
        if busy.contains(&i) || counts.completed.contains(&i) || counts.failed_indexes.contains(&i) {
            continue;
        }
        let earlier: &[&Arc<Pod>] = by_index.get(&i).map_or(&[], Vec::as_slice);
        if per_index && let Some(at) = back_off(earlier.iter().copied(), now) {
            wake_at(plan, now, at);
            continue;
        }
        let failures = earlier
            .iter()
            .map(|p| {
                let ignored = judge(job.spec.pod_failure_policy.as_ref(), p) == Verdict::Ignore;
                failures_of(p) + i64::from(!ignored)
            })
            .max()
            .unwrap_or(0);
        plan.create.push(Some((i, failures)));
    }
}

/// Until when the next pod must wait: 10 s after the first failure in a row, then 20 s, ... 10 min.
fn back_off<'a>(pods: impl Iterator<Item = &'a Arc<Pod>>, now: Timestamp) -> Option<Timestamp> {
    let mut failures: Vec<Timestamp> = Vec::new();
    let mut last_success = Timestamp::MIN;
    for pod in pods {
        match pod.status.phase.as_str() {
            "Failed" => failures.push(finish_time(pod)),
            "Succeeded" => last_success = last_success.max(finish_time(pod)),
            _ => {}
        }
    }
    failures.retain(|at| *at > last_success);
    let last = *failures.iter().max()?;
    let doubled = u32::try_from(failures.len().saturating_sub(1)).unwrap_or(u32::MAX).min(6);
    let wait = Duration::from_secs(10 * 2_u64.pow(doubled)).min(Duration::from_secs(600));
    let at = later(last, wait);
    (at > now).then_some(at)
}

fn finish_time(pod: &Pod) -> Timestamp {
    let ends = pod.status.container_statuses.iter().filter_map(|c| c.state.terminated.as_ref()?.finished_at);
    ends.max().or(pod.metadata.deletion_timestamp).unwrap_or_else(|| pod.metadata.created())
}

fn add_condition(
    conditions: &mut Vec<Condition>,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
    news: &mut Vec<(String, String, String)>,
) {
    if conditions.iter().any(|c| c.kind == kind && c.status == status) {
        return;
    }
    conditions.retain(|c| c.kind != kind);
    conditions.push(Condition {
        kind: kind.into(),
        status: status.into(),
        reason: reason.into(),
        message: message.into(),
        last_probe_time: Some(now),
        last_transition_time: Some(now),
        ..Condition::default()
    });
    news.push((kind.into(), reason.into(), message.into()));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn job(spec: Value, status: Value) -> Job {
        serde_json::from_value(
            json!({"metadata": {"name": "j", "namespace": "ns"}, "spec": spec, "status": status}),
        )
        .unwrap()
    }

    /// `uid:state[:index[:failures]]`; state: run, ok, bad, bad42, going; a trailing `!` means no finalizer any more.
    /// Failed pods failed at second 0.
    fn pod(text: &str) -> Arc<Pod> {
        let released = text.ends_with('!');
        let parts: Vec<&str> = text.trim_end_matches('!').split(':').collect();
        let (phase, code) = match parts[1] {
            "ok" => ("Succeeded", 0),
            "bad" => ("Failed", 1),
            "bad42" => ("Failed", 42),
            _ => ("Running", 0),
        };
        let mut pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": parts[0], "uid": parts[0], "namespace": "ns"},
            "status": {"phase": phase},
        }))
        .unwrap();
        if phase != "Running" {
            pod.status.container_statuses = serde_json::from_value(json!([
                {"name": "main", "state": {"terminated": {"exitCode": code, "finishedAt": at(0).to_string()}}}
            ]))
            .unwrap();
        }
        if let Some(index) = parts.get(2) {
            pod.metadata.annotations.insert(INDEX.into(), (*index).into());
        }
        if let Some(failures) = parts.get(3) {
            pod.metadata.annotations.insert(INDEX_FAILURES.into(), (*failures).into());
        }
        if parts[1] == "going" {
            pod.metadata.deletion_timestamp = Some(at(0));
        }
        if !released {
            pod.metadata.finalizers = vec![FINALIZER.into()];
        }
        Arc::new(pod)
    }

    fn show(plan: &Plan) -> String {
        let mut parts: Vec<String> = Vec::new();
        if !plan.create.is_empty() {
            let indexes: Vec<String> = plan
                .create
                .iter()
                .flatten()
                .map(|(i, f)| if *f == 0 { i.to_string() } else { format!("{i}({f})") })
                .collect();
            parts.push(if indexes.is_empty() {
                format!("+{}", plan.create.len())
            } else {
                format!("+[{}]", indexes.join(" "))
            });
        }
        let names =
            |pods: &[Arc<Pod>]| pods.iter().map(|p| p.metadata.name.clone()).collect::<Vec<_>>().join(" ");
        if !plan.delete.is_empty() {
            parts.push(format!("-[{}]", names(&plan.delete)));
        }
        if !plan.drop.is_empty() {
            parts.push(format!("drop[{}]", names(&plan.drop)));
        }
        if !plan.release.is_empty() {
            parts.push(format!("release[{}]", names(&plan.release)));
        }
        for (kind, reason, _) in &plan.news {
            parts.push(format!("{kind}({reason})"));
        }
        if let Some(wake) = plan.wake {
            parts.push(format!("wake {}", wake.as_secs()));
        }
        if plan.expired {
            parts.push("expired".into());
        }
        parts.join(" ")
    }

    #[track_caller]
    fn check(job: &Job, pods: &str, seconds: i64, expected: &str) -> Value {
        let pods: Vec<Arc<Pod>> = pods.split_whitespace().map(pod).collect();
        let plan = plan(job, &pods, at(seconds));
        assert_eq!(show(&plan), expected, "{:#}", plan.status);
        plan.status
    }

    #[test]
    fn runs_to_completion() {
        let j = job(json!({"parallelism": 2, "completions": 3}), json!({}));
        let status = check(&j, "", 0, "+2");
        assert_eq!(status["active"], 2);
        assert!(status["startTime"].is_string());
        check(&j, "a:run b:run", 0, "");
        let status = check(&j, "a:ok b:run", 0, "+1 release[a]");
        assert_eq!(status["uncountedTerminatedPods"]["succeeded"], json!(["a"]));
        assert_eq!(status["succeeded"], Value::Null, "zero is not written");
        let j = job(
            json!({"parallelism": 2, "completions": 3}),
            json!({"uncountedTerminatedPods": {"succeeded": ["a"]}}),
        );
        let status = check(&j, "a:ok! b:run c:run", 0, "");
        assert_eq!(status["succeeded"], 1);
        assert_eq!(status["uncountedTerminatedPods"], json!({}));
        let j = job(json!({"parallelism": 2, "completions": 3}), json!({"succeeded": 1}));
        check(&j, "b:ok c:ok", 0, "release[b c] SuccessCriteriaMet(CompletionsReached)");
        let j = job(
            json!({"parallelism": 2, "completions": 3}),
            json!({
                "succeeded": 1,
                "uncountedTerminatedPods": {"succeeded": ["b", "c"]},
                "conditions": [{"type": "SuccessCriteriaMet", "status": "True", "reason": "CompletionsReached"}],
            }),
        );
        let status = check(&j, "b:ok! c:ok!", 0, "Complete(CompletionsReached)");
        assert_eq!(status["succeeded"], 3);
        assert!(status["completionTime"].is_string());
    }

    #[test]
    fn counts_a_pod_once_even_if_it_vanishes() {
        let j = job(
            json!({"completions": 3}),
            json!({"uncountedTerminatedPods": {"succeeded": ["a"], "failed": ["f"]}}),
        );
        let status = check(&j, "", 0, "+1");
        assert_eq!((&status["succeeded"], &status["failed"]), (&json!(1), &json!(1)));
    }

    #[test]
    fn failures_back_off_and_end_it() {
        let j = job(json!({"completions": 1, "backoffLimit": 2}), json!({}));
        check(&j, "a:bad", 0, "release[a] wake 10");
        check(&j, "a:bad!", 9, "wake 1");
        check(&j, "a:bad!", 10, "+1");
        let j = job(json!({"completions": 1, "backoffLimit": 2}), json!({"failed": 2}));
        check(&j, "a:bad! b:bad! c:run", 30, "");
        check(&j, "a:bad! b:bad! c:bad d:run", 30, "-[d] release[c] FailureTarget(BackoffLimitExceeded)");
        let j = job(
            json!({"completions": 1}),
            json!({"failed": 3, "conditions": [{"type": "FailureTarget", "status": "True", "reason": "BackoffLimitExceeded"}]}),
        );
        check(&j, "d:going", 30, "release[d]");
        check(&j, "", 30, "Failed(BackoffLimitExceeded)");
    }

    #[test]
    fn work_queues() {
        let j = job(json!({"parallelism": 3}), json!({}));
        check(&j, "", 0, "+3");
        check(&j, "a:ok b:run c:run", 0, "release[a]");
        check(&j, "a:ok b:ok c:ok", 0, "release[a b c] SuccessCriteriaMet(CompletionsReached)");
    }

    #[test]
    fn parallelism_goes_down() {
        let j = job(json!({"parallelism": 1, "completions": 5}), json!({}));
        check(&j, "a:run b:run", 0, "drop[a]");
        let j = job(json!({"parallelism": 0, "completions": 5}), json!({}));
        check(&j, "", 0, "");
    }

    #[test]
    fn a_suspended_job_says_what_kubernetes_says() {
        let j = job(json!({"suspend": true}), json!({}));
        let mut status = check(&j, "", 0, "Suspended(JobSuspended)");
        assert_eq!(status["conditions"].as_array_mut().unwrap().len(), 1);
        status.as_object_mut().unwrap().remove("conditions");
        assert_eq!(status, json!({"ready": 0, "terminating": 0, "uncountedTerminatedPods": {}}));
    }

    #[test]
    fn suspends_and_resumes() {
        let j = job(
            json!({"completions": 2, "parallelism": 2, "suspend": true}),
            json!({"startTime": at(0).to_string()}),
        );
        let status = check(&j, "a:run", 0, "drop[a] Suspended(JobSuspended)");
        assert!(status.get("startTime").is_none());
        let j = job(
            json!({"completions": 2, "parallelism": 2}),
            json!({"conditions": [{"type": "Suspended", "status": "True"}]}),
        );
        check(&j, "", 0, "+2 Suspended(JobResumed)");
    }

    #[test]
    fn deadline() {
        let j = job(
            json!({"completions": 1, "activeDeadlineSeconds": 30}),
            json!({"startTime": at(0).to_string()}),
        );
        check(&j, "a:run", 10, "wake 20");
        check(&j, "a:run", 30, "-[a] FailureTarget(DeadlineExceeded)");
    }

    #[test]
    fn indexed() {
        let j = job(json!({"completionMode": "Indexed", "parallelism": 3, "completions": 4}), json!({}));
        check(&j, "", 0, "+[0 1 2]");
        let status = check(&j, "a:ok:0 b:run:1 c:run:2", 0, "+[3] release[a]");
        assert_eq!(status["completedIndexes"], "0");
        assert_eq!(status["succeeded"], 1);
        check(&j, "a:run:0 b:run:0 c:run:1", 0, "+[2] drop[b]");
        check(&j, "a:run:9", 0, "+[0 1 2] drop[a]");
        let j = job(
            json!({"completionMode": "Indexed", "parallelism": 3, "completions": 4}),
            json!({"completedIndexes": "0-2", "succeeded": 3}),
        );
        let status = check(&j, "a:ok:3", 0, "release[a] SuccessCriteriaMet(CompletionsReached)");
        assert_eq!(status["completedIndexes"], "0-3");
    }

    #[test]
    fn limits_per_index() {
        let spec = json!({"completionMode": "Indexed", "parallelism": 2, "completions": 2, "backoffLimitPerIndex": 1});
        let j = job(spec.clone(), json!({}));
        check(&j, "a:bad:0 b:run:1", 0, "wake 10");
        check(&j, "a:bad:0 b:run:1", 10, "+[0(1)]");
        check(&j, "a:bad:0 b:run:1 c:run:0:1", 10, "release[a]");
        let status = check(&j, "b:run:1 c:bad:0:1", 10, "release[c]");
        assert_eq!(status["failedIndexes"], "0");
        let j = job(spec, json!({"failedIndexes": "0"}));
        check(&j, "b:ok:1", 10, "release[b] FailureTarget(FailedIndexes)");
    }

    #[test]
    fn failure_policy() {
        let spec = json!({"completions": 1, "podFailurePolicy": {"rules": [
            {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
            {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [1]}},
        ]}});
        let j = job(spec, json!({}));
        check(&j, "a:bad42", 0, "release[a] FailureTarget(PodFailurePolicy)");
        let status = check(&j, "a:bad", 0, "release[a] wake 10");
        assert_eq!(status["uncountedTerminatedPods"], json!({}));
    }

    #[test]
    fn success_policy() {
        let j = job(
            json!({"completionMode": "Indexed", "parallelism": 3, "completions": 3,
                "successPolicy": {"rules": [{"succeededIndexes": "0"}]}}),
            json!({}),
        );
        check(&j, "a:ok:0 b:run:1 c:run:2", 0, "-[b c] release[a] SuccessCriteriaMet(SuccessPolicy)");
    }

    #[test]
    fn replacement_policy() {
        let j = job(json!({"completions": 1}), json!({}));
        check(&j, "a:going", 0, "+1 release[a]");
        let j = job(json!({"completions": 1, "podReplacementPolicy": "Failed"}), json!({}));
        check(&j, "a:going", 0, "");
    }

    #[test]
    fn after_the_end() {
        let j = job(
            json!({"completions": 1, "ttlSecondsAfterFinished": 60}),
            json!({"conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": at(0).to_string()}]}),
        );
        check(&j, "a:ok", 10, "release[a] wake 50");
        check(&j, "", 60, "expired");
    }
}
