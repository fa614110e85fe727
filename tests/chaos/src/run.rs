//! A run: a seed, so many steps with the auditor looking on, then rest.
//!
//! In: a [`Plan`]. Out: what happened, or a [`Failure`] with the seed, the step, and everything that was written about what is wrong.

use std::collections::VecDeque;
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use muster_scheduler::BindMode;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::audit::{Auditor, Counts};
use crate::rest;
use crate::steps::{Driver, LULL};
use crate::world::{NAMESPACE, World};

#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub steps: u64,
    pub mode: BindMode,
    /// Tell how far it is, every few seconds.
    pub talk: bool,
    /// Where everything that was written goes, for comparing two runs of a seed.
    pub trace: Option<PathBuf>,
}

/// What happened in a run.
#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    pub steps: u64,
    pub counts: Counts,
    pub submitted: usize,
    /// Of virtual time.
    pub lasted: Duration,
    pub took: Duration,
    /// The same for every run that took the same course.
    pub digest: u64,
}

#[derive(Debug)]
pub struct Failure {
    pub plan: Plan,
    pub step: u64,
    pub findings: Vec<String>,
    /// The last steps.
    pub history: Vec<String>,
    /// The last writes about what the findings name.
    pub journal: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { seed, steps, mode, .. } = &self.plan;
        let mode = *mode;
        let bind = mode_name(mode);
        writeln!(f, "seed {seed}, step {} of {steps}, bindings {bind}:", self.step)?;
        for finding in &self.findings {
            writeln!(f, "  * {finding}")?;
        }
        writeln!(f, "the last steps:")?;
        for line in &self.history {
            writeln!(f, "  {line}")?;
        }
        writeln!(f, "what was written about it:")?;
        for line in &self.journal {
            writeln!(f, "  {line}")?;
        }
        write!(f, "again: cargo run -p muster-chaos -- --seed {seed} --steps {steps} --bind {bind}")
    }
}

impl std::error::Error for Failure {}

pub fn mode_name(mode: BindMode) -> &'static str {
    match mode {
        BindMode::Inline => "inline",
        BindMode::Service => "service",
    }
}

/// Runs a plan on virtual time, in a runtime of its own.
pub fn run(plan: Plan) -> Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
    let outcome = runtime.block_on(course(plan));
    // What still runs is of no interest.
    runtime.shutdown_background();
    outcome
}

/// How often the journal is asked about something that a finding names.
const ABOUT: usize = 60;

async fn course(plan: Plan) -> Result<Outcome> {
    let begun = Instant::now();
    let mut told = begun;
    let mut world = World::new(plan.seed, plan.mode, true).await?;
    let cancel = CancellationToken::new();
    let _ends_with_us = cancel.clone().drop_guard();
    let auditor = Auditor::start(&world.api, &world.journal, &cancel);
    world.start_muster();
    let mut driver = Driver::new(plan.seed, auditor.clone());
    let mut history: VecDeque<String> = VecDeque::new();
    let fail = |world: &World, step: u64, findings: Vec<String>, history: &VecDeque<String>| {
        let mut journal: Vec<String> = findings
            .iter()
            .take(4)
            .flat_map(|finding| subjects(finding))
            .flat_map(|name| world.journal.about(&name, ABOUT))
            .collect();
        journal.sort();
        journal.dedup();
        Failure { plan: plan.clone(), step, findings, history: history.iter().cloned().collect(), journal }
    };
    for step in 0..plan.steps {
        let said = driver.step(&mut world).await?;
        history.push_back(format!("{:9.3} {step}: {said}", world.journal.now().as_secs_f64()));
        if history.len() > 40 {
            history.pop_front();
        }
        world.check_processes()?;
        let mut findings = auditor.take_findings();
        findings.extend(world.journal.frenzy());
        if said.starts_with("a lull") {
            findings.extend(auditor.partial_for(LULL));
        }
        if !findings.is_empty() {
            return Err(fail(&world, step, findings, &history).into());
        }
        if plan.talk && told.elapsed() > Duration::from_secs(5) {
            told = Instant::now();
            let counts = auditor.counts();
            eprintln!(
                "seed {} step {step} of {}, {:.0} s of virtual time, {} pods bound, {} workloads",
                plan.seed,
                plan.steps,
                world.journal.now().as_secs_f64(),
                counts.bound,
                driver.works.len()
            );
        }
    }

    driver.heal(&mut world).await?;
    let mut say = |text: &str, world: &World| {
        history.push_back(format!("{:9.3} {text}", world.journal.now().as_secs_f64()));
        if plan.talk {
            eprintln!(
                "seed {} {text} after {:.0} s of virtual time",
                plan.seed,
                world.journal.now().as_secs_f64()
            );
        }
    };
    say("all is mended", &world);
    if plan.talk {
        let counts = world.journal.take_counts();
        let mut most: Vec<_> =
            counts.iter().map(|((who, what), n)| (*n, format!("{who} {what} x {n}"))).collect();
        most.sort();
        let most: Vec<String> = most.into_iter().rev().take(12).map(|(_, text)| text).collect();
        eprintln!("seed {} asked most: {}", plan.seed, most.join(", "));
    }
    let mut findings = rest::wait(&world).await?;
    say("rest", &world);
    findings.extend(auditor.take_findings());
    findings.extend(world.journal.frenzy());
    findings.extend(rest::check(&world, &auditor).await?);
    if findings.is_empty() {
        findings.extend(rest::rate(&world).await);
    }
    // Those that run for ever make way; then everybody else has room.
    if findings.is_empty() {
        let eternal = driver.works.values().filter(|work| !work.completes);
        for path in eternal.flat_map(|work| work.paths()) {
            world.delete(&path, false).await?;
        }
        driver.lift_quotas(&world).await?;
        say("those that run for ever have gone", &world);
        findings.extend(rest::wait(&world).await?);
        findings.extend(auditor.take_findings());
        findings.extend(rest::check(&world, &auditor).await?);
        findings.extend(incomplete(&world).await?);
        say("everything is done", &world);
    }
    if findings.is_empty() {
        for path in driver.works.values().flat_map(|work| work.paths()) {
            world.delete(&path, false).await?;
        }
        findings.extend(rest::wait(&world).await?);
        findings.extend(auditor.take_findings());
        findings.extend(left_over(&world).await?);
        findings.extend(world.journal.frenzy());
        say("everything is gone", &world);
    }
    if let Some(file) = &plan.trace {
        std::fs::write(file, world.journal.lines().join("\n"))?;
    }
    if !findings.is_empty() {
        return Err(fail(&world, plan.steps, findings, &history).into());
    }
    Ok(Outcome {
        steps: plan.steps,
        counts: auditor.counts(),
        submitted: driver.works.len(),
        lasted: world.journal.now(),
        took: begun.elapsed(),
        digest: world.journal.digest(),
    })
}

/// The names in a finding that are worth looking up.
fn subjects(finding: &str) -> Vec<String> {
    let words = finding.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    let like = |word: &&str| {
        word.len() > 2 && word.starts_with('w') && word[1..].starts_with(|c: char| c.is_ascii_digit())
    };
    let mut names: Vec<String> = words.filter(like).map(str::to_owned).collect();
    names.dedup();
    names.truncate(3);
    names
}

/// Jobs that are not complete.
///
/// What is left of a gang is enough once others of it have succeeded, which the scheduler sees by their pods. Where these are gone (with
/// their node, say), what is left waits for ever, as with KAI; that is no finding.
async fn incomplete(world: &World) -> Result<Vec<String>> {
    let jobs = world.list(&format!("/apis/batch/v1/namespaces/{NAMESPACE}/jobs")).await?;
    let pods = world.list(&format!("/api/v1/namespaces/{NAMESPACE}/pods")).await?;
    let is_complete = |job: &Value| {
        let conditions = job["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|c| c["type"] == "Complete" && c["status"] == "True")
    };
    let can_be_seen = |job: &Value| {
        let of_job = |pod: &&Value| pod["metadata"]["labels"]["app"] == job["metadata"]["name"];
        let succeeded = pods.iter().filter(of_job).filter(|pod| pod["status"]["phase"] == "Succeeded");
        succeeded.count() as u64 >= job["status"]["succeeded"].as_u64().unwrap_or(0)
    };
    let open = jobs.iter().filter(|job| !is_complete(job) && can_be_seen(job));
    Ok(open
        .map(|job| format!("job {} is not complete: {}", job["metadata"]["name"], job["status"]))
        .collect())
}

/// What is there although nobody is.
async fn left_over(world: &World) -> Result<Vec<String>> {
    let mut left = Vec::new();
    let kinds = [
        "/api/v1/pods",
        "/apis/scheduling.run.ai/v2alpha2/podgroups",
        "/apis/scheduling.run.ai/v1alpha2/bindrequests",
        "/apis/resource.k8s.io/v1/resourceclaims",
    ];
    for path in kinds {
        for object in world.list(path).await? {
            left.push(format!("{path} {} is left over", object["metadata"]["name"]));
        }
    }
    Ok(left)
}
