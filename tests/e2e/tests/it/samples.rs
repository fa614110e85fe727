//! Every sample manifest is accepted on both servers, or refused by both alike, as `data/samples.yaml` says.

use std::collections::BTreeMap;

use anyhow::Result;
use muster_e2e::samples::{Expectations, Outcome, missing_kinds, samples_dir, try_all};
use muster_e2e::script::{Shell, has_kubectl};
use muster_e2e::{clusters, crds};
use muster_testkit::{Cluster, or_skip};

#[tokio::test]
async fn samples_real() -> Result<()> {
    let Some(real) = clusters::real().await? else { return Ok(()) };
    let Some(outcomes) = outcomes(real).await? else { return Ok(()) };
    check(&outcomes, real.name)
}

#[tokio::test]
async fn samples_real_and_embedded() -> Result<()> {
    let embedded = clusters::embedded().await?;
    let Some(ours) = outcomes(embedded).await? else { return Ok(()) };
    let Some(real) = clusters::real().await? else { return check(&ours, embedded.name) };
    let Some(theirs) = outcomes(real).await? else { return Ok(()) };
    let mut different = Vec::new();
    println!("{:<100} {:<10} embedded", "file", "real");
    for (file, their) in &theirs {
        let our = ours.get(file).expect("both were given the same files");
        println!("{file:<100} {:<10} {}", their.verdict, our.verdict);
        if our.verdict != their.verdict || our.text != their.text {
            different.push(format!("{file}\n  real:\n{}\n  embedded:\n{}", their.text, our.text));
        }
    }
    assert!(different.is_empty(), "{} samples differ:\n{}", different.len(), different.join("\n"));
    check(&ours, embedded.name)
}

/// Each cluster is asked once, whichever test comes first.
async fn outcomes(cluster: &'static Cluster) -> Result<Option<BTreeMap<String, Outcome>>> {
    use tokio::sync::OnceCell;
    static REAL: OnceCell<BTreeMap<String, Outcome>> = OnceCell::const_new();
    static EMBEDDED: OnceCell<BTreeMap<String, Outcome>> = OnceCell::const_new();
    let Some(dir) = or_skip(samples_dir())? else { return Ok(None) };
    if !has_kubectl().await? {
        return Ok(None);
    }
    let once = if cluster.name == "real" { &REAL } else { &EMBEDDED };
    let outcomes = once
        .get_or_try_init(async || {
            crds::install(cluster).await?;
            tokio::task::spawn_blocking(move || try_all(&Shell::new(cluster, "samples")?, &dir)).await?
        })
        .await?;
    Ok(Some(outcomes.clone()))
}

fn check(outcomes: &BTreeMap<String, Outcome>, name: &str) -> Result<()> {
    let expected = Expectations::read()?;
    let mut wrong = Vec::new();
    for file in expected.files() {
        if !outcomes.contains_key(&file) {
            wrong.push(format!("{file}: named in data/samples.yaml, but not there"));
        }
    }
    for (file, outcome) in outcomes {
        match expected.verdict(file) {
            None => wrong.push(format!("{file}: not in data/samples.yaml")),
            Some(verdict) if verdict != outcome.verdict => {
                wrong.push(format!("{file}: {} instead of {verdict}:\n{}", outcome.verdict, outcome.text));
            }
            Some(_) => {}
        }
        for (kind, version) in missing_kinds(&outcome.text) {
            if !expected.is_foreign(&kind, &version) {
                wrong.push(format!("{file}: {version} {kind} is not installed, and not another project's"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} samples are wrong on {name}:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}
