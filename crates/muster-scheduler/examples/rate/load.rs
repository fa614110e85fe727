//! The load: nodes, gangs of pods, and when each pod is seen to have a node.
//!
//! In: an API server, how much of everything, and whose pods these are. Out: objects on the server; the moments of bindings. Must stay true: the
//! pods of all systems ask for the same.

use anyhow::{Context, Result, ensure};
use futures::{AsyncBufReadExt, StreamExt};
use http::{Request, header};
use kube::Client;
use muster_api::crd::{self, crds};
use muster_runtime::Api;
use muster_runtime::api::{Delete, Patch};
use muster_testkit::Release;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

pub const IN_FLIGHT: usize = 64;
pub const LIMIT: Duration = Duration::from_secs(600);
const N_GPUS: usize = 8;

/// How much of everything.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub nodes: usize,
    pub gangs: usize,
    pub size: usize,
}

impl Load {
    pub fn pods(self) -> usize {
        self.gangs * self.size
    }
}

/// Whose pods these are: who is to place them, and what says that they belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// Placed by nobody, and in no group.
    Nobody,
    /// Groups of KAI.
    Muster,
    /// Pods by themselves.
    KubeScheduler,
    /// Groups of Kubernetes' own gang API.
    KubeSchedulerGangs,
    /// Groups of Volcano.
    Volcano,
}

impl System {
    pub fn name(self) -> &'static str {
        match self {
            System::Nobody => "nobody",
            System::Muster => "muster",
            System::KubeScheduler => "kube-scheduler",
            System::KubeSchedulerGangs => "kube-scheduler, gangs",
            System::Volcano => "volcano",
        }
    }

    fn scheduler(self) -> &'static str {
        match self {
            System::Nobody => "nobody",
            System::Muster => "kai-scheduler",
            System::KubeScheduler | System::KubeSchedulerGangs => "default-scheduler",
            System::Volcano => "volcano",
        }
    }

    /// Where the group of a gang is created, and the group.
    fn group(self, namespace: &str, gang: &str, size: usize) -> Option<(String, Value)> {
        let (version, spec) = match self {
            System::Nobody | System::KubeScheduler => return None,
            System::Muster => {
                ("scheduling.run.ai/v2alpha2".to_owned(), json!({"minMember": size, "queue": "team"}))
            }
            System::KubeSchedulerGangs => (
                format!("scheduling.k8s.io/{}", Release::default().gang_api()),
                json!({"schedulingPolicy": {"gang": {"minCount": size}}}),
            ),
            System::Volcano => {
                ("scheduling.volcano.sh/v1beta1".to_owned(), json!({"minMember": size, "queue": "default"}))
            }
        };
        let path = format!("/apis/{version}/namespaces/{namespace}/podgroups");
        let group =
            json!({"apiVersion": version, "kind": "PodGroup", "metadata": {"name": gang}, "spec": spec});
        Some((path, group))
    }

    fn pod(self, gang: &str, i: usize) -> Value {
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("{gang}-{i}"), "labels": {"app": gang}},
            "spec": {"schedulerName": self.scheduler(), "containers": [{"name": "main", "image": "busybox",
                "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": "1"}}}]}});
        match self {
            System::Nobody | System::KubeScheduler => {}
            System::Muster => pod["metadata"]["annotations"] = json!({"pod-group-name": gang}),
            System::KubeSchedulerGangs => pod["spec"]["schedulingGroup"] = json!({"podGroupName": gang}),
            System::Volcano => pod["metadata"]["annotations"] = json!({"scheduling.k8s.io/group-name": gang}),
        }
        pod
    }

    /// What has to be there before its gangs: the kinds of its groups, and a queue that bounds nothing.
    pub async fn prepare(self, api: &Api) -> Result<()> {
        let (system, path, queue) = match self {
            System::Nobody | System::KubeScheduler | System::KubeSchedulerGangs => return Ok(()),
            System::Muster => {
                let any = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
                let queue = json!({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "team"},
                    "spec": {"resources": {"gpu": any, "cpu": any, "memory": any}}});
                (crd::System::Kai, "/apis/scheduling.run.ai/v2/queues", queue)
            }
            System::Volcano => {
                let queue = json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue",
                    "metadata": {"name": "default"}, "spec": {"weight": 1, "reclaimable": true}});
                (crd::System::Volcano, "/apis/scheduling.volcano.sh/v1beta1/queues", queue)
            }
        };
        for crd in crds(Some(&[system])) {
            api.create_path("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd).await?;
        }
        let mut tries = 0;
        while let Err(error) = api.create_path(path, &queue).await {
            tries += 1;
            ensure!(tries < 100, "queues are not served: {error}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        if self == System::Volcano {
            // Nothing is placed from a queue that is not open, and the controller that opens queues is not here.
            let open = json!({"status": {"state": "Open"}});
            api.patch_path(&format!("{path}/default/status"), Patch::Merge, &open).await?;
        }
        Ok(())
    }
}

pub async fn create_nodes(api: &Api, nodes: usize) -> Result<()> {
    let sizes = json!({"cpu": "32", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": N_GPUS.to_string()});
    let all = futures::stream::iter(0..nodes).map(|n| {
        let sizes = sizes.clone();
        async move {
            let name = format!("node-{n}");
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
                "status": {"capacity": sizes, "allocatable": sizes, "conditions": [{"type": "Ready", "status": "True"}]}});
            api.create_path("/api/v1/nodes", &node).await?;
            // The server taints every new node; who reports it ready takes the taint away.
            let patch = json!({"spec": {"taints": null}});
            api.patch_path(&format!("/api/v1/nodes/{name}"), Patch::Merge, &patch).await
        }
    });
    let results: Vec<_> = all.buffer_unordered(IN_FLIGHT).collect().await;
    results.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(())
}

pub async fn create_namespace(api: &Api, name: &str) -> Result<()> {
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    api.create_path("/api/v1/namespaces", &body).await?;
    Ok(())
}

pub async fn create_gang(api: &Api, namespace: &str, system: System, gang: &str, size: usize) -> Result<()> {
    if let Some((path, group)) = system.group(namespace, gang, size) {
        api.create_path(&path, &group).await?;
    }
    for i in 0..size {
        api.create_path(&format!("/api/v1/namespaces/{namespace}/pods"), &system.pod(gang, i)).await?;
    }
    Ok(())
}

pub async fn create_gangs(api: &Api, namespace: &str, system: System, load: Load) -> Result<()> {
    let all = futures::stream::iter(0..load.gangs)
        .map(|g| async move { create_gang(api, namespace, system, &format!("gang-{g}"), load.size).await });
    let results: Vec<_> = all.buffer_unordered(IN_FLIGHT / 2).collect().await;
    results.into_iter().collect()
}

/// The moments at which pods of a namespace are seen to have a node. A pod that has one leaves the selection, which is told without what the
/// pod holds: to be counted costs the server as little as can be.
pub async fn watch_binds(client: &Client, namespace: &str) -> Result<mpsc::UnboundedReceiver<Instant>> {
    let url = format!("/api/v1/namespaces/{namespace}/pods?fieldSelector=spec.nodeName%3D");
    let (sender, receiver) = mpsc::unbounded_channel();
    let mut version =
        Api::new(client.clone(), "count").list_raw(&format!("{url}&"), None).await?.resource_version;
    let client = client.clone();
    tokio::spawn(async move {
        // A watch that the server ends goes on from the last version.
        loop {
            let path =
                format!("{url}&watch=true&timeoutSeconds={}&resourceVersion={version}", LIMIT.as_secs());
            let request = Request::get(path)
                .header(header::ACCEPT, "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
                .body(Vec::new())?;
            let mut lines = client.request_stream(request).await?.lines();
            while let Some(Ok(line)) = lines.next().await {
                if line.starts_with(r#"{"type":"DELETED""#) && sender.send(Instant::now()).is_err() {
                    return anyhow::Ok(());
                }
                if let Some(at) = line.find(r#""resourceVersion":""#) {
                    version = line[at + 19..].chars().take_while(char::is_ascii_digit).collect();
                }
            }
        }
    });
    Ok(receiver)
}

/// Watches all pods, as every scheduler does, and makes nothing of them.
pub async fn watch_idly(api: &Api) -> Result<AbortOnDrop> {
    const URL: &str = "/api/v1/pods?";
    let version = api.list_raw(URL, None).await?.resource_version;
    let mut lines = api.watch_raw(URL, &version, LIMIT).await?;
    let reads = tokio::spawn(async move { while let Ok(Some(_)) = lines.next().await {} });
    Ok(AbortOnDrop(reads.abort_handle()))
}

/// What was spawned ends with it.
pub struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Waits for so many bindings.
pub async fn wait_for(seen: &mut mpsc::UnboundedReceiver<Instant>, pods: usize) -> Result<Vec<Instant>> {
    let mut times = Vec::with_capacity(pods);
    while times.len() < pods {
        let next = tokio::time::timeout(LIMIT, seen.recv())
            .await
            .with_context(|| format!("binds stopped coming after {}", times.len()))?;
        times.push(next.context("the watch ended")?);
    }
    Ok(times)
}

/// Pods per second from the first binding to the last.
pub fn rate_of(times: &[Instant]) -> Result<f64> {
    let (first, last) = (times.first().context("no pods")?, times.last().context("no pods")?);
    Ok((times.len() - 1) as f64 / last.duration_since(*first).as_secs_f64())
}

/// Every pod has a node, and no node has more of them than GPUs.
pub async fn check_spread(api: &Api, namespace: &str, nodes: usize) -> Result<()> {
    let mut held = vec![0; nodes];
    let mut next = None;
    loop {
        let page = api.list_raw(&format!("/api/v1/namespaces/{namespace}/pods?"), next.as_deref()).await?;
        for item in &page.items {
            let pod: Value = serde_json::from_str(item.get())?;
            let node = pod["spec"]["nodeName"].as_str().context("a pod without a node")?;
            let n: usize = node.trim_start_matches("node-").parse()?;
            *held.get_mut(n).context("a node that nobody made")? += 1;
        }
        next = page.next;
        if next.is_none() {
            break;
        }
    }
    ensure!(held.iter().all(|n| *n <= N_GPUS), "a node has more pods than GPUs");
    Ok(())
}

pub fn at_once() -> Delete<'static> {
    Delete { grace_seconds: Some(0), ..Delete::default() }
}
