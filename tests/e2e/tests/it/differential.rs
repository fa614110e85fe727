//! The same requests, sent to both servers: equal status codes, equal headers, equal bodies.

use anyhow::{Context, Result};
use muster_e2e::requests::{Outcome, Step, dump, run, table};
use muster_e2e::{clusters, normal};
use muster_testkit::Cluster;

/// The real server against itself: the table says what it answers, and the comparison hides all that it must.
#[tokio::test]
async fn requests_twice_real() -> Result<()> {
    let Some(real) = clusters::real().await? else { return Ok(()) };
    let steps = table()?;
    let (first, second) = tokio::try_join!(answers(real, &steps, "diff-a"), answers(real, &steps, "diff-b"))?;
    let unexpected: Vec<String> = (steps.iter().zip(&first))
        .filter(|(step, outcome)| step.want != outcome.status)
        .map(|(step, outcome)| {
            format!("{}: want {}, got {} {}", step.what, step.want, outcome.status, outcome.body)
        })
        .collect();
    assert!(unexpected.is_empty(), "the table is wrong about the real server:\n{}", unexpected.join("\n"));
    assert_equal(&steps, ("real diff-a", &first, "diff-a"), ("real diff-b", &second, "diff-b"));
    Ok(())
}

/// Wherever there is no Go, the embedded server must at least answer the recorded status codes.
#[tokio::test]
async fn request_statuses_embedded() -> Result<()> {
    let embedded = clusters::embedded().await?;
    let steps = table()?;
    let outcomes = answers(embedded, &steps, "diff-e").await?;
    let unexpected: Vec<String> = (steps.iter().zip(&outcomes))
        .filter(|(step, outcome)| step.want != outcome.status)
        .map(|(step, outcome)| {
            format!("{}: want {}, got {} {}", step.what, step.want, outcome.status, outcome.body)
        })
        .collect();
    assert!(unexpected.is_empty(), "{} differ:\n{}", unexpected.len(), unexpected.join("\n"));
    Ok(())
}

#[tokio::test]
async fn requests_real_and_embedded() -> Result<()> {
    let Some(real) = clusters::real().await? else { return Ok(()) };
    let embedded = clusters::embedded().await?;
    let steps = table()?;
    let (theirs, ours) =
        tokio::try_join!(answers(real, &steps, "diff-r"), answers(embedded, &steps, "diff-o"))?;
    assert_equal(&steps, ("real", &theirs, "diff-r"), ("embedded", &ours, "diff-o"));
    Ok(())
}

/// With `$MUSTER_DUMP_RESPONSES`, the raw answers are written there too, in a folder per run.
async fn answers(cluster: &Cluster, steps: &[Step], name: &str) -> Result<Vec<Outcome>> {
    let outcomes = run(steps, &cluster.http().await?, name).await;
    if let Some(dir) = std::env::var_os("MUSTER_DUMP_RESPONSES") {
        dump(&std::path::Path::new(&dir).join(name), steps, &outcomes).context("MUSTER_DUMP_RESPONSES")?;
    }
    Ok(outcomes)
}

#[track_caller]
fn assert_equal(steps: &[Step], left: (&str, &[Outcome], &str), right: (&str, &[Outcome], &str)) {
    let mut report = String::new();
    let mut differing = 0;
    for ((step, l), r) in steps.iter().zip(left.1).zip(right.1) {
        let found = normal::differences(&step.comparable(l, left.2), &step.comparable(r, right.2));
        if !found.is_empty() {
            differing += 1;
            report.push_str(&format!("{} ({})\n", step.what, step.send));
            for line in found {
                report.push_str(&format!("    {line}\n"));
            }
        }
    }
    assert!(
        differing == 0,
        "{differing} of {} requests differ, {} | {}:\n{report}",
        steps.len(),
        left.0,
        right.0
    );
}
