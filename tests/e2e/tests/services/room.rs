//! What one scenario has to itself on a cluster: a namespace, nodes that only its pods may use, and words to ask with.
//!
//! In: a site and a name. Out: objects created and looked at over the API, as any client would. Nodes of a room are tainted
//! and labelled, and every pod spec that is applied after them is made to want and tolerate them, so that scenarios share a
//! cluster and not its capacity. In manifests `$NS` is the namespace; other names of cluster-wide objects begin with it too.

use crate::site::Site;
use anyhow::{Context, Result, ensure};
use muster_e2e::script::{Said, Shell, has_kubectl};
use muster_testkit::{Http, Request, Response, eventually};
use serde_json::{Value, json};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The label and the taint of a room's nodes.
const ROOM: &str = "e2e.example.com/room";
/// How long a state may take on a busy machine. A scenario that works never waits so long.
const PATIENCE: Duration = Duration::from_secs(90);

const CLUSTER_WIDE: [&str; 14] = [
    "Node",
    "Namespace",
    "Queue",
    "Topology",
    "PriorityClass",
    "StorageClass",
    "PersistentVolume",
    "DeviceClass",
    "ResourceSlice",
    "CustomResourceDefinition",
    "ClusterQueue",
    "Cohort",
    "ResourceFlavor",
    "WorkloadPriorityClass",
];
/// Of the kinds called Queue, these live in namespaces.
const NAMESPACED_QUEUES: &str = "scheduler.tensorstack.dev/";

pub struct Room {
    pub site: Site,
    pub ns: String,
    http: Http,
    has_nodes: Cell<bool>,
}

/// A pod as scenarios look at it.
#[derive(Debug, Clone)]
pub struct Pod {
    pub name: String,
    pub uid: String,
    pub node: Option<String>,
    pub phase: String,
    /// It is going, or has ended.
    pub over: bool,
    pub all: Value,
}

/// Runs one scenario in a room of its own; `None` is a cluster that is not there.
pub async fn in_a_room(
    site: Option<Site>,
    name: &str,
    scenario: impl AsyncFnOnce(&Room) -> Result<()>,
) -> Result<()> {
    let Some(site) = site else { return Ok(()) };
    let room = Room::new(site, &name.replace('_', "-")).await?;
    match scenario(&room).await {
        Ok(()) => {
            // Nobody waits for it: it only keeps what is left for the others small.
            room.http.send(&Request::new("DELETE", &format!("/api/v1/namespaces/{}", room.ns))).await?;
            Ok(())
        }
        Err(error) => Err(error.context(format!("on {}\n{}", site.cluster.name, room.report().await))),
    }
}

impl Room {
    async fn new(site: Site, name: &str) -> Result<Room> {
        let http = site.cluster.http().await?;
        let room = Room { site, ns: name.to_owned(), http, has_nodes: Cell::new(false) };
        room.apply("{apiVersion: v1, kind: Namespace, metadata: {name: $NS}}").await?;
        // Pods are refused until the namespace's service account is there.
        let account = format!("/api/v1/namespaces/{name}/serviceaccounts/default");
        eventually("the service account is there", PATIENCE, async || room.get(&account).await).await?;
        Ok(room)
    }

    /// Makes nodes `<room>-<index>` with so many GPUs each, and waits until they are ready. The labels are given by index.
    pub async fn nodes(&self, gpus: &[u32], labels: impl Fn(usize) -> Value) -> Result<()> {
        self.has_nodes.set(true);
        for (index, gpus) in gpus.iter().enumerate() {
            let name = format!("{}-{index}", self.ns);
            let mut all =
                json!({ROOM: self.ns, "kubernetes.io/hostname": name, "nvidia.com/gpu.memory": "81920"});
            for (key, value) in labels(index).as_object().into_iter().flatten() {
                all[key] = value.clone();
            }
            let mut sizes =
                json!({"cpu": "32", "memory": "256Gi", "pods": "110", "ephemeral-storage": "1Ti"});
            if *gpus > 0 {
                sizes["nvidia.com/gpu"] = gpus.to_string().into();
                all["nvidia.com/gpu.count"] = gpus.to_string().into();
            }
            let node = json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": all},
                "spec": {"taints": [{"key": ROOM, "value": self.ns, "effect": "NoSchedule"}]},
                "status": {"capacity": sizes, "allocatable": sizes},
            });
            self.create(&node).await?;
        }
        let wanted = gpus.len();
        self.until(&format!("{wanted} nodes are ready"), async || {
            let list = self.get(&format!("/api/v1/nodes?labelSelector={ROOM}={}", self.ns)).await?;
            let ready = items(&list).filter(|node| {
                let conditions = node.pointer("/status/conditions").and_then(Value::as_array);
                let is = |c: &Value| c["type"] == "Ready" && c["status"] == "True";
                let untainted = list_of(node, "/spec/taints").all(|t| t["key"] == ROOM);
                untainted && conditions.into_iter().flatten().any(is)
            });
            let ready = ready.count();
            ensure!(ready == wanted, "{ready} ready");
            Ok(())
        })
        .await
    }

    /// Creates every object of the manifest; each must be taken.
    pub async fn apply(&self, manifest: &str) -> Result<Vec<Value>> {
        let mut made = Vec::new();
        for object in self.read(manifest)? {
            made.push(self.create(&object).await?);
        }
        Ok(made)
    }

    /// Creates one object and returns what became of it.
    pub async fn try_apply(&self, manifest: &str) -> Result<Response> {
        let object = self.read(manifest)?.into_iter().next().context("a manifest has an object")?;
        self.post(&object).await
    }

    async fn create(&self, object: &Value) -> Result<Value> {
        let answer = self.post(object).await?;
        // Rooms share some cluster-wide objects, such as the CRDs of others.
        let shared = answer.status == 409 && object["kind"] == "CustomResourceDefinition";
        let said = || String::from_utf8_lossy(&answer.body).into_owned();
        ensure!(
            answer.status == 201 || shared,
            "{} {}: {}",
            object["kind"],
            object["metadata"]["name"],
            said()
        );
        answer.json().context("an object is JSON")
    }

    async fn post(&self, object: &Value) -> Result<Response> {
        let collection = self.collection(object)?;
        self.http.send(&Request::new("POST", &collection).json(object)).await
    }

    fn collection(&self, object: &Value) -> Result<String> {
        let (version, kind) = (object["apiVersion"].as_str(), object["kind"].as_str());
        let (version, kind) = (version.context("no apiVersion")?, kind.context("no kind")?);
        let root = if version.contains('/') { "apis" } else { "api" };
        let mut plural = kind.to_lowercase();
        match plural.strip_suffix('y') {
            Some(stem) => plural = format!("{stem}ies"),
            None if plural.ends_with('s') => plural.push_str("es"),
            None => plural.push('s'),
        }
        if CLUSTER_WIDE.contains(&kind) && !(kind == "Queue" && version.starts_with(NAMESPACED_QUEUES)) {
            return Ok(format!("/{root}/{version}/{plural}"));
        }
        let ns = object.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or(&self.ns);
        Ok(format!("/{root}/{version}/namespaces/{ns}/{plural}"))
    }

    fn read(&self, manifest: &str) -> Result<Vec<Value>> {
        let manifest = manifest.replace("$NS", &self.ns);
        let mut objects: Vec<Value> = serde_saphyr::from_multiple(&manifest).context(manifest)?;
        if self.has_nodes.get() {
            objects.iter_mut().for_each(|object| self.pin(object));
        }
        Ok(objects)
    }

    /// Makes every pod spec in a value want the room's nodes.
    fn pin(&self, value: &mut Value) {
        match value {
            Value::Object(object) => {
                if object.get("containers").is_some_and(Value::is_array) {
                    let selector = object.entry("nodeSelector").or_insert_with(|| json!({}));
                    selector[ROOM] = self.ns.as_str().into();
                    let tolerations = object.entry("tolerations").or_insert_with(|| json!([]));
                    if let Some(tolerations) = tolerations.as_array_mut() {
                        tolerations.push(json!({"key": ROOM, "operator": "Equal", "value": self.ns}));
                    }
                    return;
                }
                object.values_mut().for_each(|value| self.pin(value));
            }
            Value::Array(list) => list.iter_mut().for_each(|value| self.pin(value)),
            _ => {}
        }
    }

    /// What is at a path; an error when nothing is.
    pub async fn get(&self, path: &str) -> Result<Value> {
        let path = path.replace("$NS", &self.ns);
        let answer = self.http.send(&Request::new("GET", &path)).await?;
        ensure!(
            answer.status == 200,
            "GET {path}: {} {}",
            answer.status,
            String::from_utf8_lossy(&answer.body)
        );
        answer.json().context("an answer is JSON")
    }

    pub async fn delete(&self, path: &str) -> Result<()> {
        let path = path.replace("$NS", &self.ns);
        let request = Request::new("DELETE", &path)
            .json(&json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}));
        let answer = self.http.send(&request).await?;
        let said = || String::from_utf8_lossy(&answer.body).into_owned();
        ensure!(matches!(answer.status, 200 | 202), "DELETE {path}: {} {}", answer.status, said());
        Ok(())
    }

    /// Writes a merge patch.
    pub async fn patch(&self, path: &str, body: &Value) -> Result<Value> {
        let path = path.replace("$NS", &self.ns);
        let request =
            Request::new("PATCH", &path).header("content-type", "application/merge-patch+json").json(body);
        let answer = self.http.send(&request).await?;
        ensure!(
            answer.status == 200,
            "PATCH {path}: {} {}",
            answer.status,
            String::from_utf8_lossy(&answer.body)
        );
        answer.json().context("an answer is JSON")
    }

    /// Waits for a state.
    pub async fn until<T>(&self, what: &str, probe: impl AsyncFn() -> Result<T>) -> Result<T> {
        eventually(what, PATIENCE, async || probe().await).await
    }

    /// The room's pods with a label, `app=a`, or all; those that are going or have ended too.
    pub async fn pods(&self, selector: &str) -> Result<Vec<Pod>> {
        let list = self.get(&format!("/api/v1/namespaces/$NS/pods?labelSelector={selector}")).await?;
        Ok(items(&list).map(Pod::read).collect())
    }

    /// How many of such pods are on nodes and have not ended, and how many there are that have not ended.
    pub async fn placed(&self, selector: &str) -> Result<(usize, usize)> {
        let pods = self.pods(selector).await?;
        let there: Vec<&Pod> = pods.iter().filter(|pod| !pod.over).collect();
        Ok((there.iter().filter(|pod| pod.node.is_some()).count(), there.len()))
    }

    /// Waits until exactly so many of so many pods are on nodes.
    pub async fn until_placed(&self, selector: &str, placed: usize, of: usize) -> Result<()> {
        self.until(&format!("{placed} of {of} pods with {selector} are placed"), async || {
            let seen = self.placed(selector).await?;
            ensure!(seen == (placed, of), "{} of {}", seen.0, seen.1);
            Ok(())
        })
        .await
    }

    /// Waits until the scheduler has said of some pod of a selector that it waits, and returns its message.
    pub async fn until_refused(&self, selector: &str) -> Result<String> {
        self.until(&format!("a pod with {selector} is told why it waits"), async || {
            let pods = self.pods(selector).await?;
            let told = pods.iter().filter(|pod| !pod.over).find_map(|pod| {
                let mut conditions = list_of(&pod.all, "/status/conditions");
                let waits = conditions.find(|c| c["type"] == "PodScheduled" && c["status"] == "False")?;
                Some(waits["message"].as_str().unwrap_or_default().to_owned())
            });
            told.context("no word yet")
        })
        .await
    }

    /// Waits until the group whose name begins so is told why it waits, and returns the message.
    pub async fn until_group_waits(&self, prefix: &str) -> Result<String> {
        self.until(&format!("group {prefix} is told why it waits"), async || {
            let groups = self.groups().await?;
            let (_, group) =
                groups.iter().find(|(name, _)| name.starts_with(prefix)).context("no group yet")?;
            let told = list_of(group, "/status/schedulingConditions")
                .find(|c| c["type"] == "UnschedulableOnNodePool");
            Ok(told.context("no word yet")?["message"].as_str().unwrap_or_default().to_owned())
        })
        .await
    }

    /// The nodes that such pods are on.
    pub async fn nodes_of(&self, selector: &str) -> Result<BTreeSet<String>> {
        let pods = self.pods(selector).await?;
        Ok(pods.into_iter().filter(|pod| !pod.over).filter_map(|pod| pod.node).collect())
    }

    /// The room's pod groups by name.
    pub async fn groups(&self) -> Result<BTreeMap<String, Value>> {
        let list = self.get("/apis/scheduling.run.ai/v2alpha2/namespaces/$NS/podgroups").await?;
        let named = |group: &Value| {
            (group["metadata"]["name"].as_str().unwrap_or_default().to_owned(), group.clone())
        };
        Ok(items(&list).map(named).collect())
    }

    /// The pod groups as `name minimum`, without the uids in their names.
    pub async fn group_minimums(&self) -> Result<Vec<String>> {
        let groups = self.groups().await?;
        let uid = regex::Regex::new("-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")?;
        let mut said: Vec<String> = groups
            .iter()
            .map(|(name, group)| format!("{} {}", uid.replace(name, ""), group["spec"]["minMember"]))
            .collect();
        said.sort();
        Ok(said)
    }

    /// Runs a command of the shell with `kubectl` in the room's namespace; `None` without kubectl.
    pub async fn shell(&self, command: &str, input: &str) -> Result<Option<Said>> {
        if !has_kubectl().await? {
            return Ok(None);
        }
        let (cluster, name) = (self.site.cluster, self.ns.clone());
        let command = command.replace("$NS", &self.ns);
        let input = input.replace("$NS", &self.ns);
        let said =
            tokio::task::spawn_blocking(move || Shell::new(cluster, &name)?.run(&command, &input)).await??;
        Ok(Some(said))
    }

    /// What there is, for whoever has to find out why a scenario failed.
    async fn report(&self) -> String {
        let mut said = String::new();
        for pod in self.pods("").await.unwrap_or_default() {
            let why = list_of(&pod.all, "/status/conditions")
                .find(|c| c["status"] == "False")
                .map_or(String::new(), |c| format!("{}: {}", c["reason"], c["message"]));
            let node = pod.node.as_deref().unwrap_or("-");
            let group = &pod.all["metadata"]["annotations"]["pod-group-name"];
            said.push_str(&format!(
                "  pod {} {} on {node} over={} group={group} {why}\n",
                pod.name, pod.phase, pod.over
            ));
        }
        for (name, group) in self.groups().await.unwrap_or_default() {
            said.push_str(&format!("  group {name} {} {}\n", group["spec"], group["status"]));
        }
        let requests = self.get("/apis/scheduling.run.ai/v1alpha2/namespaces/$NS/bindrequests").await;
        for request in items(&requests.unwrap_or_default()) {
            said.push_str(&format!("  bindrequest {} {}\n", request["spec"], request["status"]));
        }
        let events = self.get("/api/v1/namespaces/$NS/events").await.unwrap_or_default();
        for event in items(&events).filter(|event| event["type"] == "Warning") {
            let about = &event["involvedObject"];
            said.push_str(&format!(
                "  event {} {}: {} {}\n",
                about["kind"], about["name"], event["reason"], event["message"]
            ));
        }
        let log = self.site.log();
        let tail: Vec<&str> = log.lines().rev().take(15).collect();
        tail.iter().rev().for_each(|line| said.push_str(&format!("  log {line}\n")));
        said
    }
}

impl Pod {
    fn read(pod: &Value) -> Pod {
        let text = |pointer| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let phase = text("/status/phase");
        let over = matches!(phase.as_str(), "Succeeded" | "Failed")
            || pod["metadata"].get("deletionTimestamp").is_some();
        Pod {
            name: text("/metadata/name"),
            uid: text("/metadata/uid"),
            node: Some(text("/spec/nodeName")).filter(|node| !node.is_empty()),
            phase,
            over,
            all: pod.clone(),
        }
    }
}

/// The items of a list.
pub fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list["items"].as_array().into_iter().flatten()
}

/// The elements of the list at a pointer, if there is one.
pub fn list_of<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}
