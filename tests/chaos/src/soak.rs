//! The same chaos on the wall clock, for as long as one likes, with an eye on memory.
//!
//! In: a seed and a time. Out: findings, and the memory of the process over time. Everything is in one process: the server, the
//! simulation, Muster and the auditor. The server remembers less of the past than it does elsewhere, so that memory must be flat after some minutes.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use muster_scheduler::BindMode;
use tokio_util::sync::CancellationToken;

use crate::audit::Auditor;
use crate::steps::Driver;
use crate::world::{NAMESPACE, World};

/// How often memory is told.
const TELL: Duration = Duration::from_secs(10);

/// Runs until the time is over or something is wrong.
pub fn run(seed: u64, mode: BindMode, lasts: Duration) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(course(seed, mode, lasts));
    runtime.shutdown_background();
    result
}

async fn course(seed: u64, mode: BindMode, lasts: Duration) -> Result<()> {
    let begun = Instant::now();
    let mut told = begun;
    let mut world = World::new(seed, mode, false).await?;
    let cancel = CancellationToken::new();
    let _ends_with_us = cancel.clone().drop_guard();
    let auditor = Auditor::start(&world.api, &world.journal, &cancel);
    world.start_muster();
    let mut driver = Driver::new(seed, auditor.clone());
    driver.haste = 2;
    let mut n_steps = 0_u64;
    println!("seconds  resident MiB  tasks  steps  pods bound  workloads  objects");
    while begun.elapsed() < lasts {
        let said = driver.step(&mut world).await?;
        n_steps += 1;
        world.check_processes()?;
        let mut findings = auditor.take_findings();
        findings.extend(world.journal.frenzy());
        for finding in &findings {
            println!("  * step {n_steps} ({said}): {finding}");
        }
        ensure!(findings.is_empty(), "seed {seed}, step {n_steps}: {} findings", findings.len());
        if told.elapsed() >= TELL {
            told = Instant::now();
            // A real server forgets events after an hour; the embedded one keeps them.
            for namespace in [NAMESPACE, "default", "kai-resource-reservation", "kai-scale-adjust"] {
                world.delete(&format!("/api/v1/namespaces/{namespace}/events"), true).await?;
            }
            let objects = count(&world).await?;
            println!(
                "{:7}  {:12.1}  {:5}  {n_steps:5}  {:10}  {:9}  {objects}",
                begun.elapsed().as_secs(),
                resident()?,
                tokio::runtime::Handle::current().metrics().num_alive_tasks(),
                auditor.counts().bound,
                driver.works.len(),
            );
        }
    }
    Ok(())
}

/// Memory of this process in MiB.
fn resident() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/self/statm")
        .context("this system does not say how much memory is in use")?;
    let pages: f64 = text.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0.0);
    Ok(pages * 4096.0 / 1_048_576.0)
}

/// Objects of the kinds that grow, if any do.
async fn count(world: &World) -> Result<String> {
    let mut all = Vec::new();
    for (kind, path) in [
        ("pods", "/api/v1/pods"),
        ("events", "/api/v1/events"),
        ("groups", "/apis/scheduling.run.ai/v2alpha2/podgroups"),
        ("requests", "/apis/scheduling.run.ai/v1alpha2/bindrequests"),
        ("configmaps", "/api/v1/configmaps"),
    ] {
        all.push(format!("{} {kind}", world.list(path).await?.len()));
    }
    Ok(all.join(", "))
}
