//! Grove at scale on the real API server: 500 replicas of two pods, one set of ten thousand pods, and an operator that is killed while
//! it works. What does not depend on the machine is asserted: how much is written, how much memory it takes, and what is there in the
//! end. How long it takes is printed; `cargo xtask bench grove` prints it for optimised programs. Without optimisation the one set
//! has a fifth of its pods.
//!
//! A binary of its own, so that it has the machine to itself: cargo runs test binaries one after the other.

mod release_before;
mod volcano;

use anyhow::{Context, Result, ensure};
use muster_e2e::crds;
use muster_testkit::{Component, Http, RealCluster, RealOptions, Request, Services, eventually, or_skip};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::time::{Duration, Instant};

/// One after the other: time and memory are measured best on a quiet machine.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
const SETS: &str = "/apis/grove.io/v1alpha1/namespaces/default/podcliquesets";
const GANGS: &str = "/apis/scheduler.grove.io/v1alpha1/namespaces/default/podgangs";
const CLIQUES: &str = "/apis/grove.io/v1alpha1/namespaces/default/podcliques";
const PODS: &str = "/api/v1/namespaces/default/pods";
/// A busy machine takes longer than what is promised, which is printed beside what it took.
const PATIENCE: Duration = Duration::from_secs(300);
const MOST_MIB: f64 = 200.0;

struct Site {
    cluster: RealCluster,
    http: Http,
    /// Always there but while it is killed and started again.
    services: Option<Services>,
    metrics: String,
}

async fn start() -> Result<Option<Site>> {
    let with = vec![Component::ControllerManager];
    let Some(cluster) = or_skip(RealCluster::start(RealOptions { with, ..RealOptions::default() }).await)?
    else {
        return Ok(None);
    };
    crds::apply(&cluster, &["--group", "kai"]).await?;
    crds::apply(&cluster, &["--group", "grove"]).await?;
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let address = format!("127.0.0.1:{port}");
    let services = Some(operator(&cluster, &address).await?);
    let http = cluster.http().await?;
    let account = "/api/v1/namespaces/default/serviceaccounts/default";
    eventually("the service account is there", Duration::from_secs(60), async || {
        let answer = http.send(&Request::new("GET", account)).await?;
        ensure!(answer.status == 200, "{}", answer.status);
        Ok::<_, anyhow::Error>(())
    })
    .await?;
    let site = Site { cluster, http, services, metrics: address };
    // Nothing is measured before the operator has its lease.
    site.apply("warm", 1, &[("w", 1)]).await?;
    site.until_pods(1, Duration::from_secs(90)).await?;
    site.http.send(&Request::new("DELETE", &format!("{SETS}/warm"))).await?;
    site.until_pods(0, Duration::from_secs(60)).await?;
    Ok(Some(site))
}

async fn operator(cluster: &RealCluster, metrics: &str) -> Result<Services> {
    let args = ["--components", "grove,backend-kai", "--grove-backends", "kai", "--metrics-address", metrics];
    Services::start(cluster, &args).await
}

impl Site {
    /// As `kill -9` does it, and another one after it.
    async fn kill(&mut self) -> Result<()> {
        if let Some(services) = self.services.take() {
            services.kill();
        }
        self.services = Some(operator(&self.cluster, &self.metrics).await?);
        Ok(())
    }

    async fn apply(&self, name: &str, replicas: usize, cliques: &[(&str, usize)]) -> Result<()> {
        let clique = |(name, pods): &(&str, usize)| {
            json!({"name": name, "spec": {"roleName": name, "replicas": pods, "minAvailable": pods, "podSpec": {
                "schedulerName": "kai-scheduler", "containers": [{"name": "c", "image": "i"}]}}})
        };
        let set = json!({
            "apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet", "metadata": {"name": name},
            "spec": {"replicas": replicas, "template": {"cliques": cliques.iter().map(clique).collect::<Vec<_>>()}},
        });
        let answer = self.http.send(&Request::new("POST", SETS).json(&set)).await?;
        ensure!(answer.status == 201, "{} {}", answer.status, String::from_utf8_lossy(&answer.body));
        Ok(())
    }

    /// How many there are, without reading them all.
    async fn count(&self, path: &str) -> Result<usize> {
        let list = self.get(&format!("{path}?limit=1")).await?;
        let rest = list["metadata"]["remainingItemCount"].as_u64().unwrap_or(0);
        Ok(list["items"].as_array().map_or(0, Vec::len) + usize::try_from(rest)?)
    }

    async fn get(&self, path: &str) -> Result<Value> {
        let answer = self.http.send(&Request::new("GET", path)).await?;
        ensure!(answer.status == 200, "GET {path}: {}", answer.status);
        answer.json().context("an answer is JSON")
    }

    async fn all(&self, path: &str) -> Result<Vec<Value>> {
        let mut all = Vec::new();
        let mut next = String::new();
        loop {
            let page = self.get(&format!("{path}?limit=2000&continue={next}")).await?;
            all.extend(page["items"].as_array().cloned().unwrap_or_default());
            next = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
            if next.is_empty() {
                return Ok(all);
            }
        }
    }

    async fn until_pods(&self, wanted: usize, patience: Duration) -> Result<()> {
        eventually(&format!("there are {wanted} pods"), patience, async || {
            let n = self.count(PODS).await?;
            ensure!(n == wanted, "{n}");
            Ok::<_, anyhow::Error>(())
        })
        .await
    }

    /// Writes so far, as the operator itself counts them.
    async fn writes(&self) -> Result<f64> {
        let address = self.metrics.clone();
        let text = tokio::task::spawn_blocking(move || -> Result<String> {
            use std::io::{Read, Write};
            let mut stream = std::net::TcpStream::connect(address)?;
            stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            Ok(text)
        })
        .await??;
        let is_write = |line: &&str| {
            line.starts_with("muster_api_requests_total{")
                && ["create", "patch", "update", "put", "post", "delete"]
                    .iter()
                    .any(|verb| line.contains(&format!("verb=\"{verb}\"")))
        };
        Ok(text.lines().filter(is_write).map(value).sum())
    }

    /// What the API server was asked to write so far, by verb and kind, whoever asked.
    async fn asked(&self) -> Result<BTreeMap<String, f64>> {
        let answer = self.http.send(&Request::new("GET", "/metrics")).await?;
        ensure!(answer.status == 200, "/metrics: {}", answer.status);
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        let mut sums = BTreeMap::new();
        for line in text.lines().filter(|line| line.starts_with("apiserver_request_total{")) {
            let label = |name: &str| {
                let rest = line.split_once(&format!("{name}=\""))?.1;
                rest.split_once('"').map(|(value, _)| value)
            };
            let (verb, kind) = (label(",verb").unwrap_or_default(), label(",resource").unwrap_or_default());
            if matches!(verb, "GET" | "LIST" | "WATCH") || matches!(kind, "leases" | "") {
                continue;
            }
            let part = label("subresource").filter(|part| !part.is_empty());
            let what = format!("{verb} {kind}{}", part.map(|part| format!("/{part}")).unwrap_or_default());
            *sums.entry(what).or_default() += value(line);
        }
        Ok(sums)
    }

    /// Waits until nothing is written for a while.
    async fn rest(&self) -> Result<f64> {
        let mut last = self.writes().await?;
        for _ in 0..60 {
            tokio::time::sleep(Duration::from_secs(3)).await;
            let now = self.writes().await?;
            // A lease is renewed every two seconds.
            if now - last <= 6.0 {
                return Ok(now);
            }
            last = now;
        }
        anyhow::bail!("it writes without end: {last:?}")
    }

    /// Every pod is freed, named by its gang, and has an index of its own in its clique.
    async fn check(&self, gangs: usize, pods: usize) -> Result<()> {
        let all = self.all(PODS).await?;
        ensure!(all.len() == pods, "{} pods", all.len());
        let mut indexes: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for pod in &all {
            let labels = &pod["metadata"]["labels"];
            let text = |key: &str| labels[key].as_str().unwrap_or_default().to_owned();
            ensure!(
                pod["spec"].get("schedulingGates").is_none(),
                "a pod is gated: {}",
                pod["metadata"]["name"]
            );
            let fresh = indexes
                .entry(text("grove.io/podclique"))
                .or_default()
                .insert(text("grove.io/podclique-pod-index"));
            ensure!(fresh, "two pods of one index: {labels}");
        }
        for clique in self.all(CLIQUES).await? {
            let name = clique["metadata"]["name"].as_str().unwrap_or_default();
            let wanted: BTreeSet<String> = (0..clique["spec"]["replicas"].as_u64().unwrap_or(0))
                .map(|index| index.to_string())
                .collect();
            ensure!(indexes.remove(name).as_ref() == Some(&wanted), "{name} has not all of its pods");
        }
        ensure!(indexes.is_empty(), "pods of cliques that are gone: {:?}", indexes.keys());
        let found = self.all(GANGS).await?;
        ensure!(found.len() == gangs, "{} gangs", found.len());
        let named: usize = found
            .iter()
            .flat_map(|gang| gang["spec"]["podgroups"].as_array().cloned().unwrap_or_default())
            .map(|group| group["podReferences"].as_array().map_or(0, Vec::len))
            .sum();
        ensure!(named == pods, "gangs name {named} pods");
        let groups = self.count("/apis/scheduling.run.ai/v2alpha2/namespaces/default/podgroups").await?;
        ensure!(groups == gangs, "{groups} PodGroups");
        Ok(())
    }
}

/// The number at the end of a line of metrics.
fn value(line: &str) -> f64 {
    line.rsplit(' ').next().and_then(|v| v.parse::<f64>().ok()).unwrap_or(0.0)
}

/// What is promised of a set.
struct Promise {
    seconds: u32,
    writes_per_pod: f64,
}

async fn measure(name: &str, replicas: usize, cliques: &[(&str, usize)], promise: Promise) -> Result<()> {
    let _alone = ALONE.lock().await;
    let Some(site) = start().await? else { return Ok(()) };
    let pods = replicas * cliques.iter().map(|(_, n)| n).sum::<usize>();
    let services = site.services.as_ref().context("it runs")?;
    let before = site.rest().await?;
    let (asked_before, (cpu_before, _)) = (site.asked().await?, services.cost()?);
    let begun = Instant::now();
    site.apply(name, replicas, cliques).await?;
    site.until_pods(pods, PATIENCE).await?;
    let created = begun.elapsed();
    eventually("every pod is freed", PATIENCE, async || site.check(replicas, pods).await).await?;
    let freed = begun.elapsed();
    let after = site.rest().await?;
    let (cpu, peak) = services.cost()?;
    let (each, memory) = ((after - before) / pods as f64, peak / f64::from(1 << 20));
    let shape = format!("{replicas} x {}", pods / replicas);
    println!(
        "SET         CREATED s  OF AT MOST  FREED s  WRITES/POD  OF AT MOST  PEAK MiB  OF AT MOST  CPU ms/POD"
    );
    println!(
        "{shape:<10}  {:>9.1}  {:>10}  {:>7.1}  {each:>10.2}  {:>10.1}  {memory:>8.0}  {MOST_MIB:>10.0}  {:>10.2}",
        created.as_secs_f64(),
        promise.seconds,
        freed.as_secs_f64(),
        promise.writes_per_pod,
        (cpu - cpu_before) * 1000.0 / pods as f64,
    );
    for (what, n) in site.asked().await? {
        let more = n - asked_before.get(&what).copied().unwrap_or(0.0);
        if more > 0.0 {
            println!("  {more:>7} {what}");
        }
    }
    // The generation counts what was written of a gang but its status: that is, its references.
    let most = 2 + freed.as_secs();
    for gang in site.all(GANGS).await? {
        let written = gang["metadata"]["generation"].as_u64().unwrap_or(0).saturating_sub(1);
        ensure!(written <= most, "{} was written {written} times", gang["metadata"]["name"]);
    }
    ensure!(each <= promise.writes_per_pod, "{each:.2} writes a pod");
    ensure!(memory < MOST_MIB, "{memory:.0} MiB");
    Ok(())
}

#[tokio::test]
async fn five_hundred_replicas_of_two_pods() -> Result<()> {
    measure("many", 500, &[("a", 2)], Promise { seconds: 10, writes_per_pod: 8.0 }).await
}

#[tokio::test]
async fn one_set_of_ten_thousand_pods() -> Result<()> {
    let each = if cfg!(debug_assertions) { 500 } else { 2_500 };
    let cliques = ["a", "b", "c", "d"].map(|name| (name, each));
    measure("large", 1, &cliques, Promise { seconds: 30, writes_per_pod: 2.5 }).await
}

/// Killed at odd moments while 500 gangs are made, scaled and taken away again: what is there in the end is the same.
#[tokio::test]
async fn killed_while_it_works() -> Result<()> {
    let _alone = ALONE.lock().await;
    let Some(mut site) = start().await? else { return Ok(()) };
    site.apply("many", 500, &[("a", 2)]).await?;
    for after in [40_u64, 700, 1500, 300] {
        tokio::time::sleep(Duration::from_millis(after)).await;
        site.kill().await?;
        // It waits for the lease of the one that was killed, and goes on.
        let had = site.count(PODS).await?;
        let _ = eventually("it goes on", Duration::from_secs(25), async || {
            let n = site.count(PODS).await?;
            ensure!(n > had || n == 1000, "{n}");
            Ok::<_, anyhow::Error>(())
        })
        .await;
    }
    site.until_pods(1000, Duration::from_secs(120)).await?;
    eventually("all is as it should be", Duration::from_secs(120), async || site.check(500, 1000).await)
        .await?;
    let patch = Request::new("PATCH", &format!("{SETS}/many"))
        .header("content-type", "application/merge-patch+json")
        .json(&json!({"spec": {"replicas": 200}}));
    site.http.send(&patch).await?;
    tokio::time::sleep(Duration::from_millis(200)).await;
    site.kill().await?;
    eventually("there is less of it", Duration::from_secs(120), async || site.check(200, 400).await).await?;
    site.services.as_mut().context("it runs")?.check()
}
