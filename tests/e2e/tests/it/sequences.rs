//! Random sequences of requests on both servers: no answer differs.
//!
//! `MUSTER_SEQUENCES=10000 MUSTER_SEED=1 cargo test --release -p muster-e2e --test it random_sequences -- --nocapture` runs many of them. Those that
//! differ are put together by what differs first, and one of each sort is printed with its seed, as small as it can be made. The first of each sort is
//! named as soon as it is seen: of a long run one wants to know before its end. `MUSTER_SEEDS=3,14,15` runs these and no others.

use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use muster_e2e::sequences::{self, Act, compare, is_listed, run, sequence, shrink, told};
use muster_testkit::{
    Cluster, EmbeddedCluster, EmbeddedOptions, Http, RealCluster, RealOptions, Request, eventually, or_skip,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How many run at a time, unless `MUSTER_AT_A_TIME` says otherwise: most of a sequence's time is waiting for its watches to end.
const AT_A_TIME: u64 = 32;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[tokio::test(flavor = "multi_thread")]
async fn random_sequences_have_equal_answers() -> Result<()> {
    // Servers alone: controllers would write into the objects at their own pace. Sequences ask for old versions, and what is answered must not depend
    // on how long the servers have run.
    let options = RealOptions {
        with: Vec::new(),
        accounts_by_hand: true,
        keeps_history: true,
        ..RealOptions::default()
    };
    let Some(real) = or_skip(RealCluster::start(options).await)? else { return Ok(()) };
    let args = ["--no-crds", "--no-services", "--no-controllers"].map(str::to_owned).into();
    let embedded = EmbeddedCluster::start(EmbeddedOptions { args, ..EmbeddedOptions::default() }).await?;
    let (theirs, ours) = (prepare(&real).await?, prepare(&embedded).await?);

    let from = number("MUSTER_SEED", 0);
    let seeds = match std::env::var("MUSTER_SEEDS") {
        Ok(list) => list.split(',').map(str::parse).collect::<Result<Vec<u64>, _>>()?,
        Err(_) => (from..from + number("MUSTER_SEQUENCES", 150)).collect(),
    };
    let n = seeds.len();
    // Enough to see a pattern; the rest would be more of the same.
    let shown = number("MUSTER_SHOWN", 12) as usize;
    let at_a_time = number("MUSTER_AT_A_TIME", AT_A_TIME) as usize;
    let (marks, as_listed) = (AtomicU64::new(0), AtomicU64::new(0));
    let differ = async |acts: &[Act]| {
        let mark = format!("s{}x", marks.fetch_add(1, Ordering::Relaxed));
        tokio::try_join!(make_namespace(&theirs, &mark), make_namespace(&ours, &mark))?;
        let (l, r) = tokio::try_join!(run(acts, &theirs, &mark), run(acts, &ours, &mark))?;
        let found = compare(&l, &r);
        if is_listed(acts, &l, &found) {
            as_listed.fetch_add(1, Ordering::Relaxed);
            return Ok(Vec::new());
        }
        anyhow::Ok(found)
    };
    let differ = &differ;
    let mut all = futures::stream::iter(seeds)
        .map(async |seed| anyhow::Ok((seed, differ(&sequence(seed)).await?)))
        .buffer_unordered(at_a_time);
    let mut sorts: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut done = 0;
    while let Some(found) = all.next().await {
        let (seed, found) = found?;
        if let Some((act, lines)) = found.first() {
            let like_it = sorts.entry(sort(&lines[0])).or_default();
            if like_it.is_empty() {
                println!("seed {seed}, request {act}: {}", lines.join("\n  "));
            }
            like_it.push(seed);
        }
        done += 1;
        if done % 1000 == 0 {
            println!("{done} sequences, {} sorts of difference", sorts.len());
        }
    }
    drop(all);
    let differing: usize = sorts.values().map(Vec::len).sum();
    println!(
        "{n} sequences from seed {from}, {differing} differ, {} as docs/differences.md lists",
        as_listed.load(Ordering::Relaxed)
    );
    let report: Vec<String> = futures::stream::iter(sorts.iter().take(shown))
        .map(async |(sort_of, seeds)| {
            let seed = *seeds.iter().min().unwrap_or(&from);
            let same = |found: &[(usize, Vec<String>)]| {
                found.iter().any(|(_, lines)| lines.iter().any(|line| sort(line) == *sort_of))
            };
            let small = shrink(sequence(seed), async |acts: &[Act]| Ok(same(&differ(acts).await?))).await?;
            let mut text = format!("seed {seed}, {} like it:\n{}", seeds.len(), told(&small));
            for (n, lines) in differ(&small).await? {
                lines.iter().for_each(|line| text.push_str(&format!("    {n}: {line}\n")));
            }
            anyhow::Ok(text)
        })
        .buffer_unordered(at_a_time)
        .collect::<Vec<_>>()
        .await
        .into_iter()
        .collect::<Result<_>>()?;
    ensure!(
        differing == 0,
        "{differing} of {n} sequences differ in {} ways, real | embedded:\n{}",
        sorts.len(),
        report.join("")
    );
    Ok(())
}

/// What stays of a difference when the particular names, numbers and values are left out.
fn sort(line: &str) -> String {
    line.chars().filter(|c| !c.is_ascii_digit()).take(160).collect()
}

/// The custom resource of the sequences.
async fn prepare(cluster: &Cluster) -> Result<Http> {
    let http = cluster.http().await?;
    create(&http, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &sequences::crd()).await?;
    eventually("the custom resource is served", Duration::from_secs(30), async || {
        let answer = http.send(&Request::new("GET", "/apis/sequences.example.com/v1/widgets")).await?;
        ensure!(answer.status == 200, "{}", answer.status);
        Ok(())
    })
    .await?;
    Ok(http)
}

/// The namespace of a sequence, with the account that its pods need.
async fn make_namespace(http: &Http, name: &str) -> Result<()> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    create(http, "/api/v1/namespaces", &namespace).await?;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    create(http, &format!("/api/v1/namespaces/{name}/serviceaccounts"), &account).await
}

async fn create(http: &Http, path: &str, object: &Value) -> Result<()> {
    let answer = http.send(&Request::new("POST", path).json(object)).await.context(path.to_owned())?;
    // The embedded server makes the account of a namespace itself.
    ensure!(matches!(answer.status, 201 | 409), "{path}: {}", String::from_utf8_lossy(&answer.body));
    Ok(())
}
