//! Workloads as the pods that their controllers would make of them, in the groups that the grouper would put them in.
//!
//! In: manifests and what is there already, what the scheduler is set to, the time. Out: the same objects with the pods, their PodGroups and
//! their claims besides, and remarks. Must stay true: pure, the same objects give the same pods; a workload whose pods are there already makes
//! no others; a kind with a pod template that is not known here is refused, never passed over; never more than [`MOST_PODS`].

use crate::view::key_of;
use anyhow::bail;
use jiff::Timestamp;
use muster_grouper::kinds::keep;
use muster_grouper::{Defaults, GroupingError, Options, Owner, World, chain, plan};
use muster_model::Key;
use muster_runtime::common::Pod;
use muster_scheduler::record::Setup;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What all workloads together may make.
pub const MOST_PODS: usize = 100_000;

/// The objects, with all that workloads among them make, and what there is to say about it.
pub struct Unfolded {
    pub objects: Vec<Value>,
    pub notes: Vec<String>,
}

/// `ours`: the scheduler names whose pods are placed.
pub fn unfold(
    mut objects: Vec<Value>,
    setup: &Setup,
    ours: &[String],
    now: Timestamp,
) -> anyhow::Result<Unfolded> {
    let here = Here::of(&objects);
    let mut desk = Desk::new(setup, ours, &objects, now);
    for object in &objects {
        if !makes_pods(object) {
            continue;
        }
        let workload = named(object);
        if let Some(n) = here.pods_of(&workload) {
            desk.note(format!("{} has {n} pods already; they are taken as they are", title(&workload)));
            continue;
        }
        desk.workload(workload)?;
    }
    let Desk { made, notes, classes, .. } = desk;
    // Groups name the classes of every installation, which manifests seldom have.
    if classes.is_empty() && made.iter().any(|object| group_of(object) == "scheduling.run.ai") {
        objects.extend(muster_install::priority_classes());
    }
    objects.extend(made);
    Ok(Unfolded { objects, notes })
}

/// Kinds that have pods and that nobody here has to be told of: objects that scheduling looks at itself.
fn makes_pods(object: &Value) -> bool {
    let group = group_of(object);
    let is_known = matches!(
        (group, kind_of(object)),
        ("apps", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet")
            | ("batch", "Job" | "CronJob")
            | ("", "ReplicationController")
    );
    let is_plain = group.is_empty()
        || ["kueue.x-k8s.io", "scheduling.k8s.io", "scheduling.run.ai", "muster.dev"].contains(&group);
    is_known || (!is_plain && has_template(&object["spec"], 0))
}

/// Whether there are containers somewhere in it.
fn has_template(value: &Value, depth: usize) -> bool {
    const DEEPEST: usize = 12;
    if depth > DEEPEST {
        return false;
    }
    match value {
        Value::Object(fields) => {
            let own = fields.get("containers").and_then(Value::as_array);
            own.is_some_and(|list| list.first().is_some_and(Value::is_object))
                || fields.values().any(|inner| has_template(inner, depth + 1))
        }
        Value::Array(items) => items.iter().any(|inner| has_template(inner, depth + 1)),
        _ => false,
    }
}

fn kind_of(object: &Value) -> &str {
    object["kind"].as_str().unwrap_or_default()
}

fn group_of(object: &Value) -> &str {
    chain::group_of(object["apiVersion"].as_str().unwrap_or_default())
}

/// `Job ml/train`
fn title(object: &Value) -> String {
    format!("{} {}", kind_of(object), key_of(object))
}

/// With a namespace and an identity, as the API server would have it.
fn named(object: &Value) -> Value {
    let mut object = object.clone();
    if key_of(&object).namespace.is_empty() {
        object["metadata"]["namespace"] = json!("default");
    }
    if object["metadata"]["uid"].as_str().is_none_or(str::is_empty) {
        object["metadata"]["uid"] = json!(format!("simulated-{}", kind_of(&object).to_lowercase()));
    }
    object
}

/// Who owns the pods that are there.
#[derive(Default)]
struct Here {
    by_uid: BTreeMap<String, usize>,
    /// Kind, namespace and name.
    by_name: BTreeMap<(String, Key), usize>,
}

impl Here {
    fn of(objects: &[Value]) -> Self {
        let mut here = Here::default();
        for pod in objects.iter().filter(|o| kind_of(o) == "Pod" && group_of(o).is_empty()) {
            for owner in pod["metadata"]["ownerReferences"].as_array().into_iter().flatten() {
                let text = |field: &str| owner[field].as_str().unwrap_or_default();
                *here.by_uid.entry(text("uid").to_owned()).or_default() += 1;
                let key = Key::new(key_of(pod).namespace, text("name"));
                *here.by_name.entry((text("kind").to_owned(), key)).or_default() += 1;
            }
        }
        here
    }

    /// How many pods a workload has, if any.
    fn pods_of(&self, workload: &Value) -> Option<usize> {
        let uid = workload["metadata"]["uid"].as_str().unwrap_or_default();
        if let Some(n) = self.by_uid.get(uid) {
            return Some(*n);
        }
        let key = key_of(workload);
        if let Some(n) = self.by_name.get(&(kind_of(workload).to_owned(), key.clone())) {
            return Some(*n);
        }
        // Those between a workload and its pods are named after it.
        let between = match kind_of(workload) {
            "Deployment" => "ReplicaSet",
            "JobSet" => "Job",
            "LeaderWorkerSet" => "StatefulSet",
            _ => return None,
        };
        let is_below = |name: &str| match name.strip_prefix(&*key.name) {
            Some("") => between == "StatefulSet",
            Some(rest) if between == "ReplicaSet" => {
                rest.strip_prefix('-').is_some_and(|hash| !hash.is_empty() && !hash.contains('-'))
            }
            Some(rest) => rest.starts_with('-'),
            None => false,
        };
        let below = self.by_name.iter().filter(|((kind, own), _)| {
            kind == between && own.namespace == key.namespace && is_below(&own.name)
        });
        let n: usize = below.map(|(_, n)| n).sum();
        (n > 0).then_some(n)
    }
}

/// Pods of one owner, with the owners above, nearest first.
struct Batch {
    owners: Vec<Value>,
    pods: Vec<Value>,
}

struct Desk<'a> {
    setup: &'a Setup,
    ours: &'a [String],
    options: Options,
    classes: BTreeSet<String>,
    /// PodGroups that are there.
    groups: BTreeSet<Key>,
    /// Volcano's default queue is there, as it is wherever Volcano is.
    has_default_queue: bool,
    now: String,
    n_pods: usize,
    made: Vec<Value>,
    notes: Vec<String>,
}

impl<'a> Desk<'a> {
    fn new(setup: &'a Setup, ours: &'a [String], objects: &[Value], now: Timestamp) -> Self {
        let named = |group: &str, kind: &str| -> BTreeSet<Key> {
            objects.iter().filter(|o| kind_of(o) == kind && group_of(o) == group).map(key_of).collect()
        };
        let classes = named("scheduling.k8s.io", "PriorityClass");
        Desk {
            setup,
            ours,
            options: Options {
                scheduler_names: setup.grouped.clone(),
                queue_label: setup.queue_label.clone(),
                node_pool_label: setup.node_pool_label.clone(),
                default_queue: setup.default_queue.clone(),
                ..Options::default()
            },
            classes: classes.into_iter().map(|key| key.name.to_string()).collect(),
            groups: named("scheduling.run.ai", "PodGroup"),
            has_default_queue: named("scheduling.volcano.sh", "Queue")
                .iter()
                .any(|key| *key.name == *"default"),
            now: now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            n_pods: 0,
            made: Vec::new(),
            notes: Vec::new(),
        }
    }

    fn note(&mut self, text: String) {
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    /// Takes on so many pods of a workload.
    fn take_on(&mut self, workload: &Value, field: &str, n: i64) -> anyhow::Result<usize> {
        let wanted = usize::try_from(n).unwrap_or(usize::MAX);
        if self.n_pods.saturating_add(wanted) > MOST_PODS {
            bail!(
                "{} makes {n} pods by {field}, and no more than {MOST_PODS} in all are simulated\nhint: lower {field}",
                title(workload)
            );
        }
        self.n_pods += wanted;
        Ok(wanted)
    }

    fn workload(&mut self, workload: Value) -> anyhow::Result<()> {
        let suspended = workload.pointer("/spec/suspend") == Some(&json!(true))
            || workload.pointer("/spec/runPolicy/suspend") == Some(&json!(true));
        if suspended {
            // Kueue lifts it, and says when: `muster explain workload/NAME`.
            self.note(format!("{} is suspended, so it makes no pods", title(&workload)));
            return Ok(());
        }
        if let Some(queue) = workload["metadata"]["labels"]["kueue.x-k8s.io/queue-name"].as_str() {
            let text =
                format!("{} waits for Kueue's queue {queue} first; here it is admitted", title(&workload));
            self.note(text);
        }
        let batches = match (group_of(&workload), kind_of(&workload)) {
            ("apps", "ReplicaSet") | ("", "ReplicationController") => self.replicas(&workload)?,
            ("apps", "Deployment") => self.deployment(&workload)?,
            ("apps", "StatefulSet") => self.stateful_set(&workload)?,
            ("batch", "Job") => vec![self.job(&workload, Vec::new())?],
            ("batch", "CronJob") => {
                let job = json!({"apiVersion": "batch/v1", "kind": "Job",
                    "metadata": child(&workload, &workload["spec"]["jobTemplate"]["metadata"], "next"),
                    "spec": workload["spec"]["jobTemplate"]["spec"]});
                self.note(format!("{} is taken as one run of it", title(&workload)));
                vec![self.job(&job, vec![workload.clone()])?]
            }
            ("jobset.x-k8s.io", "JobSet") => self.job_set(&workload)?,
            ("kubeflow.org", kind) if role_field(kind).is_some() => self.kubeflow(&workload)?,
            ("ray.io", "RayCluster") => self.ray_cluster(&workload)?,
            ("leaderworkerset.x-k8s.io", "LeaderWorkerSet") => self.leader_worker_set(&workload)?,
            ("batch.volcano.sh", "Job") => self.volcano_job(&workload)?,
            _ => bail!(
                "{} makes no pods here: give its pods, or a PodGroup with them\nhint: apply it to a cluster, such as `muster up`, and take a `muster snapshot` there",
                title(&workload)
            ),
        };
        self.settle(&workload, batches)
    }

    /// Puts pods into their groups, and both among the objects.
    fn settle(&mut self, workload: &Value, mut batches: Vec<Batch>) -> anyhow::Result<()> {
        let mut elsewhere: BTreeSet<String> = BTreeSet::new();
        let mut grouped: Vec<(usize, usize)> = Vec::new();
        for (b, batch) in batches.iter_mut().enumerate() {
            for (p, pod) in batch.pods.iter_mut().enumerate() {
                let scheduler = pod["spec"]["schedulerName"].as_str().unwrap_or("default-scheduler");
                if !self.ours.iter().any(|ours| ours == scheduler) {
                    elsewhere.insert(scheduler.to_owned());
                } else if self.setup.grouped.iter().any(|name| name == scheduler) {
                    grouped.push((b, p));
                }
                if pod["metadata"]["creationTimestamp"].is_null() {
                    pod["metadata"]["creationTimestamp"] = json!(self.now);
                }
            }
        }
        for scheduler in elsewhere {
            self.note(format!(
                "the pods of {} are left to the scheduler {scheduler} and take no part: set schedulerName in its pod template to one of {}",
                title(workload),
                self.ours.join(", ")
            ));
        }
        self.group(&mut batches, &grouped)?;
        self.made.extend(batches.into_iter().flat_map(|batch| batch.pods));
        Ok(())
    }

    fn group(&mut self, batches: &mut [Batch], which: &[(usize, usize)]) -> anyhow::Result<()> {
        let mut slim: Vec<Arc<Pod>> = Vec::with_capacity(which.len());
        for (b, p) in which {
            let pod = &batches[*b].pods[*p];
            match serde_json::from_value::<Pod>(pod.clone()) {
                Ok(pod) => slim.push(Arc::new(pod)),
                Err(error) => bail!("{}: {error}", title(pod)),
            }
        }
        let chains: Vec<Vec<Arc<Owner>>> =
            batches.iter().map(|batch| batch.owners.iter().filter_map(owner).collect()).collect();
        let mut members: Vec<(usize, usize, Value)> = Vec::new();
        let defaults = Defaults::default();
        let mut notes: Vec<String> = Vec::new();
        for ((b, p), pod) in which.iter().zip(&slim) {
            let grouping = muster_grouper::group(
                pod,
                &chains[*b],
                &World {
                    options: &self.options,
                    defaults: &defaults,
                    // Where no class is known, those of every installation are.
                    has_class: &|name| {
                        self.classes.contains(name)
                            || (self.classes.is_empty()
                                && muster_install::priority_classes()
                                    .iter()
                                    .any(|class| class["metadata"]["name"] == name))
                    },
                    has_group: &|_| false,
                    also: &[],
                    peers: Some(&slim),
                },
            );
            let grouping = match grouping {
                Ok(grouping) => grouping,
                // Another system's group, or somebody's own.
                Err(GroupingError::LeftAlone(_)) => continue,
                Err(error) => bail!("{error}"),
            };
            let key = Key::new(grouping.namespace.as_str(), grouping.name.as_str());
            if self.groups.insert(key.clone()) {
                let mut manifest = grouping.manifest();
                manifest["metadata"]["uid"] = json!(format!("simulated-{key}"));
                manifest["metadata"]["creationTimestamp"] = json!(self.now);
                self.made.push(manifest);
            }
            members.extend(plan::membership(pod, &grouping).map(|patch| (*b, *p, patch)));
            notes.extend(grouping.notes);
        }
        notes.into_iter().for_each(|note| self.note(note));
        for (b, p, patch) in members {
            let meta = &mut batches[b].pods[p]["metadata"];
            for field in ["labels", "annotations"] {
                for (key, value) in patch["metadata"][field].as_object().into_iter().flatten() {
                    match value {
                        Value::Null => drop(meta[field].as_object_mut().and_then(|map| map.remove(key))),
                        value => meta[field][key] = value.clone(),
                    }
                }
            }
        }
        Ok(())
    }

    fn replicas(&mut self, set: &Value) -> anyhow::Result<Vec<Batch>> {
        let n = count(set, "/spec/replicas", 1)?;
        let n = self.take_on(set, "spec.replicas", n)?;
        let pods = (0..n).map(|i| pod(set, &set["spec"]["template"], &i.to_string(), &[], &[])).collect();
        Ok(vec![Batch { owners: vec![set.clone()], pods }])
    }

    fn deployment(&mut self, deployment: &Value) -> anyhow::Result<Vec<Batch>> {
        let n = count(deployment, "/spec/replicas", 1)?;
        let n = self.take_on(deployment, "spec.replicas", n)?;
        let template = &deployment["spec"]["template"];
        let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": child(deployment, &template["metadata"], "new")});
        let hash = [("pod-template-hash", "new".to_owned())];
        let pods = (0..n).map(|i| pod(&set, template, &i.to_string(), &hash, &[])).collect();
        Ok(vec![Batch { owners: vec![set, deployment.clone()], pods }])
    }

    fn stateful_set(&mut self, set: &Value) -> anyhow::Result<Vec<Batch>> {
        let n = count(set, "/spec/replicas", 1)?;
        let start = count(set, "/spec/ordinals/start", 0)?;
        let n = self.take_on(set, "spec.replicas", n)?;
        let mut pods = Vec::with_capacity(n);
        for i in (start..).take(n) {
            let index = i.to_string();
            let name = format!("{}-{i}", key_of(set).name);
            let labels = [
                ("statefulset.kubernetes.io/pod-name", name.clone()),
                ("apps.kubernetes.io/pod-index", index.clone()),
            ];
            let mut pod = pod(set, &set["spec"]["template"], &index, &labels, &[]);
            for template in set["spec"]["volumeClaimTemplates"].as_array().into_iter().flatten() {
                let volume = template["metadata"]["name"].as_str().unwrap_or_default();
                let claim = format!("{volume}-{name}");
                let mount = json!({"name": volume, "persistentVolumeClaim": {"claimName": claim}});
                match pod["spec"]["volumes"].as_array_mut() {
                    Some(volumes) => volumes.push(mount),
                    None => pod["spec"]["volumes"] = json!([mount]),
                }
                self.made.push(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                    "metadata": {"name": claim, "namespace": key_of(set).namespace.to_string(), "creationTimestamp": self.now},
                    "spec": template["spec"], "status": {"phase": "Pending"}}));
            }
            pods.push(pod);
        }
        Ok(vec![Batch { owners: vec![set.clone()], pods }])
    }

    /// A Job's pods that run at a time. `above`: its owners.
    fn job(&mut self, job: &Value, above: Vec<Value>) -> anyhow::Result<Batch> {
        let parallelism = count(job, "/spec/parallelism", 1)?;
        let done = count(job, "/status/succeeded", 0)?;
        let indexed = job["spec"]["completionMode"] == "Indexed";
        let n = match job.pointer("/spec/completions") {
            Some(Value::Number(_)) => parallelism.min(count(job, "/spec/completions", 1)? - done).max(0),
            _ => parallelism,
        };
        let n = self.take_on(job, "spec.parallelism", n)?;
        let name = key_of(job).name.to_string();
        let uid = job["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let mut labels = vec![
            ("batch.kubernetes.io/job-name", name.clone()),
            ("job-name", name),
            ("batch.kubernetes.io/controller-uid", uid.clone()),
            ("controller-uid", uid),
        ];
        let n_common = labels.len();
        let mut pods = Vec::with_capacity(n);
        for i in 0..n {
            let index = i.to_string();
            labels.truncate(n_common);
            let mut annotations = Vec::new();
            if indexed {
                labels.push(("batch.kubernetes.io/job-completion-index", index.clone()));
                annotations.push(("batch.kubernetes.io/job-completion-index", index.clone()));
            }
            pods.push(pod(job, &job["spec"]["template"], &index, &labels, &annotations));
        }
        Ok(Batch { owners: std::iter::once(job.clone()).chain(above).collect(), pods })
    }

    fn job_set(&mut self, set: &Value) -> anyhow::Result<Vec<Batch>> {
        let name = key_of(set).name;
        let mut batches = Vec::new();
        let mut number = 0;
        for (i, replicated) in list(&set["spec"]["replicatedJobs"]).iter().enumerate() {
            let role = replicated["name"].as_str().unwrap_or_default();
            let at = format!("/spec/replicatedJobs/{i}/replicas");
            let replicas = count(set, &at, 1)?;
            // Jobs without pods are made too, and cost as much.
            if usize::try_from(replicas).unwrap_or(usize::MAX) > MOST_PODS {
                self.take_on(set, &shown(&at), replicas)?;
            }
            for index in 0..replicas {
                let template = &replicated["template"];
                let mut job = json!({"apiVersion": "batch/v1", "kind": "Job",
                    "metadata": child(set, &template["metadata"], &format!("{role}-{index}")),
                    "spec": template["spec"]});
                if job["spec"]["completionMode"].is_null() {
                    job["spec"]["completionMode"] = json!("Indexed");
                }
                let labels = [
                    ("jobset-name", name.to_string()),
                    ("replicatedjob-name", role.to_owned()),
                    ("replicatedjob-replicas", replicas.to_string()),
                    ("job-index", index.to_string()),
                    ("job-global-index", number.to_string()),
                    ("job-key", format!("{name}-{role}-{index}")),
                ];
                number += 1;
                for (key, value) in labels {
                    let key = format!("jobset.sigs.k8s.io/{key}");
                    job["metadata"]["labels"][&key] = json!(value);
                    for field in ["labels", "annotations"] {
                        job["spec"]["template"]["metadata"][field][&key] = json!(value);
                    }
                }
                batches.push(self.job(&job, vec![set.clone()])?);
            }
        }
        Ok(batches)
    }

    fn kubeflow(&mut self, job: &Value) -> anyhow::Result<Vec<Batch>> {
        let kind = kind_of(job);
        let field = role_field(kind).unwrap_or_default();
        let name = key_of(job).name;
        let roles = job["spec"][field].as_object();
        let mut pods = Vec::new();
        for (role, spec) in roles.into_iter().flatten() {
            let at = format!("/spec/{field}/{role}/replicas");
            let n = count(job, &at, 1)?;
            let role = role.to_lowercase();
            if kind == "MPIJob"
                && role == "launcher"
                && job["spec"]["launcherCreationPolicy"] == "WaitForWorkersReady"
            {
                self.note(format!(
                    "the launcher of {} comes once its workers are ready; it is left out",
                    title(job)
                ));
                continue;
            }
            let n = self.take_on(job, &shown(&at), n)?;
            for i in 0..n {
                let mut labels = vec![
                    ("training.kubeflow.org/job-name", name.to_string()),
                    ("training.kubeflow.org/operator-name", format!("{}-controller", kind.to_lowercase())),
                    ("training.kubeflow.org/replica-type", role.clone()),
                    ("training.kubeflow.org/replica-index", i.to_string()),
                ];
                if kind == "MPIJob" || matches!(role.as_str(), "master" | "chief") {
                    let said = if kind == "MPIJob" { role.as_str() } else { "master" };
                    labels.push(("training.kubeflow.org/job-role", said.to_owned()));
                }
                let number =
                    if kind == "MPIJob" && role == "launcher" { role.clone() } else { format!("{role}-{i}") };
                pods.push(pod(job, &spec["template"], &number, &labels, &[]));
            }
        }
        Ok(vec![Batch { owners: vec![job.clone()], pods }])
    }

    fn ray_cluster(&mut self, cluster: &Value) -> anyhow::Result<Vec<Batch>> {
        let name = key_of(cluster).name;
        let labels = |kind: &str, group: &str| {
            [
                ("ray.io/cluster", name.to_string()),
                ("ray.io/is-ray-node", "yes".to_owned()),
                ("ray.io/node-type", kind.to_owned()),
                ("ray.io/group", group.to_owned()),
            ]
        };
        self.take_on(cluster, "spec.headGroupSpec", 1)?;
        let head = &cluster["spec"]["headGroupSpec"]["template"];
        let mut pods = vec![pod(cluster, head, "head", &labels("head", "headgroup"), &[])];
        for (i, group) in list(&cluster["spec"]["workerGroupSpecs"]).iter().enumerate() {
            if group["suspend"] == true || group["suspended"] == true {
                continue;
            }
            let at = format!("/spec/workerGroupSpecs/{i}/replicas");
            let hosts = count(cluster, &format!("/spec/workerGroupSpecs/{i}/numOfHosts"), 1)?;
            let n = count(cluster, &at, 0)?.saturating_mul(hosts);
            let own = group["groupName"].as_str().map_or_else(|| format!("worker-group-{i}"), str::to_owned);
            for i in 0..self.take_on(cluster, &shown(&at), n)? {
                let number = format!("{own}-worker-{i}");
                pods.push(pod(cluster, &group["template"], &number, &labels("worker", &own), &[]));
            }
        }
        Ok(vec![Batch { owners: vec![cluster.clone()], pods }])
    }

    fn leader_worker_set(&mut self, set: &Value) -> anyhow::Result<Vec<Batch>> {
        let name = key_of(set).name;
        let template = &set["spec"]["leaderWorkerTemplate"];
        let replicas = count(set, "/spec/replicas", 1)?;
        let size = count(set, "/spec/leaderWorkerTemplate/size", 1)?;
        self.take_on(set, "spec.replicas", replicas.saturating_mul(size))?;
        let workers_later = set["spec"]["startupPolicy"] == "LeaderReady" && size > 1;
        if workers_later {
            self.note(format!(
                "the workers of {} come once their leaders are ready; they are left out",
                title(set)
            ));
        }
        let of_leaders = json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": {"name": &*name, "namespace": &*key_of(set).namespace, "uid": format!("simulated-leaders-{name}"),
                "ownerReferences": [reference(set)]}});
        let labels = |group: i64, worker: i64| {
            [
                ("leaderworkerset.sigs.k8s.io/name", name.to_string()),
                ("leaderworkerset.sigs.k8s.io/group-index", group.to_string()),
                ("leaderworkerset.sigs.k8s.io/worker-index", worker.to_string()),
                ("leaderworkerset.sigs.k8s.io/group-key", format!("{name}-{group}")),
            ]
        };
        let sized = [("leaderworkerset.sigs.k8s.io/size", size.to_string())];
        let own = if template["leaderTemplate"].is_object() { "leaderTemplate" } else { "workerTemplate" };
        let mut leaders = Batch { owners: vec![of_leaders.clone(), set.clone()], pods: Vec::new() };
        let mut batches = Vec::new();
        for group in 0..replicas {
            let leader = pod(&of_leaders, &template[own], &group.to_string(), &labels(group, 0), &sized);
            let of_workers = json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
                "metadata": {"name": &*key_of(&leader).name, "namespace": &*key_of(set).namespace,
                    "uid": format!("simulated-workers-{name}-{group}"), "ownerReferences": [reference(&leader)]}});
            let workers = if workers_later { 1..1 } else { 1..size };
            let pods = workers
                .map(|i| {
                    pod(&of_workers, &template["workerTemplate"], &i.to_string(), &labels(group, i), &sized)
                })
                .collect();
            let owners = vec![of_workers, leader.clone(), of_leaders.clone(), set.clone()];
            leaders.pods.push(leader);
            batches.push(Batch { owners, pods });
        }
        batches.insert(0, leaders);
        Ok(batches)
    }

    /// Volcano's own Job: its controller makes the PodGroup too.
    fn volcano_job(&mut self, job: &Value) -> anyhow::Result<Vec<Batch>> {
        let key = key_of(job);
        let uid = job["metadata"]["uid"].as_str().unwrap_or_default();
        let group = format!("{}-{uid}", key.name);
        let queue = job["spec"]["queue"].as_str().filter(|queue| !queue.is_empty()).unwrap_or("default");
        let scheduler =
            job["spec"]["schedulerName"].as_str().filter(|name| !name.is_empty()).unwrap_or("volcano");
        let mut pods = Vec::new();
        let mut least: Map<String, Value> = Map::new();
        let mut sum = 0_i64;
        for (i, task) in list(&job["spec"]["tasks"]).iter().enumerate() {
            let role = task["name"]
                .as_str()
                .filter(|name| !name.is_empty())
                .map_or_else(|| format!("default{i}"), str::to_owned);
            let at = format!("/spec/tasks/{i}/replicas");
            let n = count(job, &at, 1)?;
            let own = count(job, &format!("/spec/tasks/{i}/minAvailable"), n)?;
            sum = sum.saturating_add(own);
            least.insert(role.clone(), json!(own));
            if task["dependsOn"].is_object() {
                self.note(format!("task {role} of {} comes after others; here all come at once", title(job)));
            }
            for index in 0..self.take_on(job, &shown(&at), n)? {
                let marks = [
                    ("volcano.sh/job-name", key.name.to_string()),
                    ("volcano.sh/queue-name", queue.to_owned()),
                    ("volcano.sh/task-spec", role.clone()),
                    ("volcano.sh/task-index", index.to_string()),
                ];
                let mut annotations = vec![("scheduling.k8s.io/group-name", group.clone())];
                annotations.extend(marks.iter().cloned());
                let mut made = pod(job, &task["template"], &format!("{role}-{index}"), &marks, &annotations);
                for (word, value) in job["metadata"]["annotations"].as_object().into_iter().flatten() {
                    let passed_on = word == "volcano.sh/preemptable" || word == "volcano.sh/revocable-zone";
                    if passed_on && made["metadata"]["annotations"][word].is_null() {
                        made["metadata"]["annotations"][word] = value.clone();
                    }
                }
                if made["spec"]["schedulerName"].as_str().is_none_or(str::is_empty) {
                    made["spec"]["schedulerName"] = json!(scheduler);
                }
                pods.push(made);
            }
        }
        let min = match count(job, "/spec/minAvailable", 0)? {
            0 => sum,
            n => n,
        };
        let mut spec = json!({"minMember": min, "minTaskMember": least, "queue": queue,
            "minResources": together(pods.iter().take(usize::try_from(min).unwrap_or(usize::MAX)))});
        for field in ["priorityClassName", "networkTopology"] {
            if !job["spec"][field].is_null() {
                spec[field] = job["spec"][field].clone();
            }
        }
        if queue == "default" && !std::mem::replace(&mut self.has_default_queue, true) {
            self.made.push(json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue",
                "metadata": {"name": queue}, "spec": {"weight": 1, "reclaimable": true}, "status": {"state": "Open"}}));
        }
        let mut meta = child(job, &job["metadata"], "group");
        meta["name"] = json!(group);
        meta["creationTimestamp"] = json!(self.now);
        self.made.push(
            json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": meta,
            "spec": spec, "status": {"phase": "Pending"}}),
        );
        Ok(vec![Batch { owners: vec![job.clone()], pods }])
    }
}

/// What pods ask for together, as Volcano's controller sums it up.
fn together<'a>(pods: impl Iterator<Item = &'a Value>) -> Value {
    let mut sums: BTreeMap<String, i128> = BTreeMap::new();
    for pod in pods {
        let asked = muster_translate::volcano::request_of(pod);
        for (resource, amount) in asked.as_object().into_iter().flatten() {
            let text = amount.as_str().unwrap_or_default();
            let n: i128 = text.trim_end_matches('m').parse().unwrap_or(0);
            let sum = sums.entry(resource.clone()).or_default();
            *sum = sum.saturating_add(n);
        }
    }
    // CPU is said in thousandths.
    let written = sums.into_iter().map(|(resource, n)| {
        let unit = if resource == "cpu" { "m" } else { "" };
        (resource, json!(format!("{n}{unit}")))
    });
    Value::Object(written.collect())
}

/// Where Kubeflow's kinds have their roles.
fn role_field(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "PyTorchJob" => "pytorchReplicaSpecs",
        "TFJob" => "tfReplicaSpecs",
        "XGBoostJob" => "xgbReplicaSpecs",
        "JAXJob" => "jaxReplicaSpecs",
        "PaddleJob" => "paddleReplicaSpecs",
        "MPIJob" => "mpiReplicaSpecs",
        _ => return None,
    })
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// `/spec/tasks/0/replicas` as people write it.
fn shown(pointer: &str) -> String {
    let mut text = String::new();
    for part in pointer.split('/').skip(1) {
        match part.parse::<usize>() {
            Ok(i) => text.push_str(&format!("[{i}]")),
            Err(_) if text.is_empty() => text.push_str(part),
            Err(_) => text.push_str(&format!(".{part}")),
        }
    }
    text
}

/// A count; whatever is none is refused as the API server would.
fn count(object: &Value, pointer: &str, default: i64) -> anyhow::Result<i64> {
    match object.pointer(pointer) {
        None | Some(Value::Null) => Ok(default),
        Some(value) => match value.as_i64().filter(|n| *n >= 0) {
            Some(n) => Ok(n),
            None => bail!("{}: {}: {value} is no count; write 0 or more", title(object), shown(pointer)),
        },
    }
}

fn reference(owner: &Value) -> Value {
    json!({"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "controller": true})
}

/// The metadata of what an owner makes by a template: labels and annotations of the template, a name and a uid of its own.
fn child(owner: &Value, template: &Value, suffix: &str) -> Value {
    let Key { namespace, name } = key_of(owner);
    let texts = |field: &str| template[field].as_object().cloned().unwrap_or_default();
    let name = format!("{name}-{suffix}");
    json!({"name": name, "namespace": &*namespace, "uid": format!("simulated-{}-{name}", kind_of(owner).to_lowercase()),
        "labels": texts("labels"), "annotations": texts("annotations"), "ownerReferences": [reference(owner)]})
}

/// A pod of a template, as a controller makes it.
fn pod(
    owner: &Value,
    template: &Value,
    suffix: &str,
    labels: &[(&str, String)],
    annotations: &[(&str, String)],
) -> Value {
    let mut meta = child(owner, &template["metadata"], suffix);
    for (field, more) in [("labels", labels), ("annotations", annotations)] {
        for (key, value) in more {
            meta[field][*key] = json!(value);
        }
    }
    // Others may name pods of the same names; the namespace tells them apart.
    meta["uid"] = json!(format!("{}-{}", meta["uid"].as_str().unwrap_or_default(), key_of(owner).namespace));
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"], "status": {"phase": "Pending"}})
}

/// An owner as the grouper sees it.
fn owner(object: &Value) -> Option<Arc<Owner>> {
    let api_version = object["apiVersion"].as_str()?;
    let keep = keep(group_of(object), kind_of(object));
    Owner::read(api_version, kind_of(object), &object.to_string(), keep).map(Arc::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_grouper::keys;

    fn try_unfold(yaml: &str) -> anyhow::Result<Unfolded> {
        let objects = muster_scenario::objects_of(yaml).unwrap();
        let ours = ["kai-scheduler", "volcano"].map(String::from);
        unfold(objects, &Setup::default(), &ours, "2026-01-01T12:00:00Z".parse().unwrap())
    }

    /// The pods that come of some manifests, each with its group and its sub-group; then the groups with their least.
    #[track_caller]
    fn check(yaml: &str, pods: &[&str], groups: &[&str]) {
        let made = try_unfold(yaml).unwrap().objects;
        let said: Vec<String> = made
            .iter()
            .filter(|o| o["kind"] == "Pod")
            .map(|pod| {
                let meta = &pod["metadata"];
                let named = ["pod-group-name", "scheduling.k8s.io/group-name"]
                    .iter()
                    .find_map(|key| meta["annotations"][key].as_str());
                let subgroup = meta["labels"][keys::SUBGROUP].as_str();
                let words =
                    [Some(key_of(pod).to_string()), named.map(str::to_owned), subgroup.map(str::to_owned)];
                words.into_iter().flatten().collect::<Vec<_>>().join(" ")
            })
            .collect();
        assert_eq!(said, pods);
        let least: Vec<String> = made
            .iter()
            .filter(|o| o["kind"] == "PodGroup")
            .map(|g| {
                let spec = &g["spec"];
                let min = if spec["minMember"].is_null() { &spec["minSubGroup"] } else { &spec["minMember"] };
                format!("{} {min} in {}", key_of(g), spec["queue"].as_str().unwrap_or("-"))
            })
            .collect();
        assert_eq!(least, groups);
    }

    const TEMPLATE: &str = "template: {metadata: {labels: {app: x}}, spec: {schedulerName: kai-scheduler, containers: [{name: c, resources: {requests: {cpu: '1'}}}]}}";

    fn object(api_version: &str, kind: &str, meta: &str, spec: &str) -> String {
        format!(
            "{{apiVersion: {api_version}, kind: {kind}, metadata: {{name: x{meta}}}, spec: {{{spec}}}}}\n---\n"
        )
    }

    fn job(meta: &str, spec: &str) -> String {
        object("batch/v1", "Job", meta, &format!("{spec}{TEMPLATE}"))
    }

    #[test]
    fn jobs() {
        check(
            &job("", ""),
            &["default/x-0 pg-x-simulated-job"],
            &["default/pg-x-simulated-job 1 in default-queue"],
        );
        let min = ", namespace: ml, labels: {kai.scheduler/queue: team}, annotations: {kai.scheduler/batch-min-member: '2'}";
        check(
            &job(min, "parallelism: 3, completions: 2, "),
            &["ml/x-0 pg-x-simulated-job", "ml/x-1 pg-x-simulated-job"],
            &["ml/pg-x-simulated-job 2 in team"],
        );
        check(&job("", "parallelism: 0, "), &[], &[]);
        check(&job("", "suspend: true, "), &[], &[]);
        let cron = object("batch/v1", "CronJob", "", &format!("jobTemplate: {{spec: {{{TEMPLATE}}}}}"));
        check(
            &cron,
            &["default/x-next-0 pg-x-next-simulated-cronjob-x-next"],
            &["default/pg-x-next-simulated-cronjob-x-next 1 in default-queue"],
        );
    }

    #[test]
    fn the_newest_is_last_in_line() {
        let made = try_unfold(&job("", "")).unwrap().objects;
        for object in made.iter().filter(|o| o["kind"] == "Pod" || o["kind"] == "PodGroup") {
            assert_eq!(object["metadata"]["creationTimestamp"], "2026-01-01T12:00:00Z");
        }
        assert!(made.iter().any(|o| o["kind"] == "PriorityClass" && o["metadata"]["name"] == "train"));
    }

    #[test]
    fn replicas() {
        let two = format!("replicas: 2, {TEMPLATE}");
        check(
            &object("apps/v1", "Deployment", "", &two),
            &[
                "default/x-new-0 pg-x-new-0-simulated-replicaset-x-new-0-default",
                "default/x-new-1 pg-x-new-1-simulated-replicaset-x-new-1-default",
            ],
            &[
                "default/pg-x-new-0-simulated-replicaset-x-new-0-default 1 in default-queue",
                "default/pg-x-new-1-simulated-replicaset-x-new-1-default 1 in default-queue",
            ],
        );
        let group = "default/pg-x-simulated-replicaset 1 in default-queue";
        check(
            &object("apps/v1", "ReplicaSet", "", &two),
            &["default/x-0 pg-x-simulated-replicaset", "default/x-1 pg-x-simulated-replicaset"],
            &[group],
        );
        let claims = format!(
            "replicas: 1, ordinals: {{start: 4}}, volumeClaimTemplates: [{{metadata: {{name: data}}, spec: {{}}}}], {TEMPLATE}"
        );
        let yaml = object("apps/v1", "StatefulSet", "", &claims);
        check(
            &yaml,
            &["default/x-4 pg-x-simulated-statefulset"],
            &["default/pg-x-simulated-statefulset 1 in default-queue"],
        );
        let made = try_unfold(&yaml).unwrap().objects;
        let claim = made.iter().find(|o| o["kind"] == "PersistentVolumeClaim").unwrap();
        assert_eq!(claim["metadata"]["name"], "data-x-4");
        let pod = made.iter().find(|o| o["kind"] == "Pod").unwrap();
        assert_eq!(pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"], "data-x-4");
    }

    #[test]
    fn sets_of_jobs_and_of_pods() {
        let spec = format!(
            "replicatedJobs: [{{name: a, replicas: 2, template: {{spec: {{{TEMPLATE}}}}}}}, {{name: b, template: {{spec: {{parallelism: 2, {TEMPLATE}}}}}}}]"
        );
        check(
            &object("jobset.x-k8s.io/v1alpha2", "JobSet", "", &spec),
            &[
                "default/x-a-0-0 pg-x-simulated-jobset a-replica-0",
                "default/x-a-1-0 pg-x-simulated-jobset a-replica-1",
                "default/x-b-0-0 pg-x-simulated-jobset b-replica-0",
                "default/x-b-0-1 pg-x-simulated-jobset b-replica-0",
            ],
            &["default/pg-x-simulated-jobset 2 in default-queue"],
        );
        let worker = TEMPLATE.replacen("template:", "workerTemplate:", 1);
        let spec = format!("replicas: 1, leaderWorkerTemplate: {{size: 3, {worker}}}");
        check(
            &object("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "", &spec),
            &[
                "default/x-0 pg-x-simulated-leaderworkerset-group-0 leader",
                "default/x-0-1 pg-x-simulated-leaderworkerset-group-0 workers",
                "default/x-0-2 pg-x-simulated-leaderworkerset-group-0 workers",
            ],
            &["default/pg-x-simulated-leaderworkerset-group-0 3 in default-queue"],
        );
    }

    #[test]
    fn training() {
        let spec = format!(
            "pytorchReplicaSpecs: {{Master: {{replicas: 1, {TEMPLATE}}}, Worker: {{replicas: 2, {TEMPLATE}}}}}"
        );
        check(
            &object("kubeflow.org/v1", "PyTorchJob", "", &spec),
            &[
                "default/x-master-0 pg-x-simulated-pytorchjob master",
                "default/x-worker-0 pg-x-simulated-pytorchjob worker",
                "default/x-worker-1 pg-x-simulated-pytorchjob worker",
            ],
            &["default/pg-x-simulated-pytorchjob 3 in default-queue"],
        );
        let spec = format!(
            "launcherCreationPolicy: WaitForWorkersReady, mpiReplicaSpecs: {{Launcher: {{{TEMPLATE}}}, Worker: {{replicas: 2, {TEMPLATE}}}}}"
        );
        check(
            &object("kubeflow.org/v2beta1", "MPIJob", "", &spec),
            &["default/x-worker-0 pg-x-simulated-mpijob", "default/x-worker-1 pg-x-simulated-mpijob"],
            &["default/pg-x-simulated-mpijob 2 in default-queue"],
        );
        let spec = format!(
            "headGroupSpec: {{{TEMPLATE}}}, workerGroupSpecs: [{{groupName: w, replicas: 1, {TEMPLATE}}}]"
        );
        check(
            &object("ray.io/v1", "RayCluster", "", &spec),
            &[
                "default/x-head pg-x-simulated-raycluster headgroup",
                "default/x-w-worker-0 pg-x-simulated-raycluster w",
            ],
            &["default/pg-x-simulated-raycluster 2 in default-queue"],
        );
    }

    #[test]
    fn volcano_makes_the_group_itself() {
        let template = TEMPLATE.replace("schedulerName: kai-scheduler, ", "");
        let spec = format!(
            "queue: q, tasks: [{{name: ps, replicas: 1, {template}}}, {{replicas: 2, minAvailable: 1, {template}}}]"
        );
        let yaml = object("batch.volcano.sh/v1alpha1", "Job", "", &spec);
        check(
            &yaml,
            &[
                "default/x-ps-0 x-simulated-job",
                "default/x-default1-0 x-simulated-job",
                "default/x-default1-1 x-simulated-job",
            ],
            &["default/x-simulated-job 2 in q"],
        );
        let made = try_unfold(&yaml).unwrap().objects;
        let group = made.iter().find(|o| o["kind"] == "PodGroup").unwrap();
        assert_eq!(group["spec"]["minTaskMember"], json!({"ps": 1, "default1": 1}));
        assert_eq!(group["spec"]["minResources"], json!({"cpu": "2000m"}));
        assert!(!made.iter().any(|o| o["kind"] == "Queue"));
        let by_default = try_unfold(&yaml.replace("queue: q, ", "")).unwrap().objects;
        assert!(by_default.iter().any(|o| o["kind"] == "Queue" && o["metadata"]["name"] == "default"));
        assert!(
            made.iter().filter(|o| o["kind"] == "Pod").all(|pod| pod["spec"]["schedulerName"] == "volcano")
        );
    }

    /// A pod of an owner that is among the manifests too.
    fn pod_of(kind: &str, name: &str) -> String {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: p, namespace: default, ownerReferences: [{{kind: {kind}, name: {name}, uid: u}}]}}, spec: {{schedulerName: kai-scheduler}}}}\n---\n"
        )
    }

    #[test]
    fn whoever_has_pods_makes_no_others() {
        check(&[job("", ""), pod_of("Job", "x")].concat(), &["default/p"], &[]);
        check(&[job(", uid: u", ""), pod_of("Job", "other")].concat(), &["default/p"], &[]);
        let deployment = object("apps/v1", "Deployment", "", TEMPLATE);
        check(&[deployment.clone(), pod_of("ReplicaSet", "x-5d8f")].concat(), &["default/p"], &[]);
        let notes = try_unfold(&[deployment, pod_of("ReplicaSet", "x-5d8f")].concat()).unwrap().notes;
        assert_eq!(notes, ["Deployment default/x has 1 pods already; they are taken as they are"]);
    }

    #[track_caller]
    fn check_refused(yaml: &str, says: &str) {
        let error = try_unfold(yaml).err().unwrap().to_string();
        assert!(error.starts_with(says), "{error}");
    }

    #[test]
    fn what_cannot_be_unfolded_is_refused() {
        let set = "template: {cliques: [{spec: {podSpec: {containers: [{name: c}]}}}]}";
        check_refused(
            &object("grove.io/v1alpha1", "PodCliqueSet", "", set),
            "PodCliqueSet default/x makes no pods here: give its pods",
        );
        check_refused(
            &object("apps/v1", "DaemonSet", "", TEMPLATE),
            "DaemonSet default/x makes no pods here",
        );
        let many = format!("replicas: 1000000, {TEMPLATE}");
        check_refused(
            &object("apps/v1", "Deployment", "", &many),
            "Deployment default/x makes 1000000 pods by spec.replicas, and no more than 100000 in all are simulated",
        );
        let many = format!("tasks: [{{replicas: 9000000000000, {TEMPLATE}}}]");
        check_refused(
            &object("batch.volcano.sh/v1alpha1", "Job", "", &many),
            "Job default/x makes 9000000000000 pods by spec.tasks[0].replicas",
        );
        check_refused(&job("", "parallelism: -1, "), "Job default/x: spec.parallelism: -1 is no count");
        let none = "pytorchReplicaSpecs: {}";
        check(&object("kubeflow.org/v1", "PyTorchJob", "", none), &[], &[]);
    }

    #[test]
    fn other_objects_are_left_alone() {
        let service = object("v1", "Service", "", "selector: {app: x}");
        let workload = object(
            "kueue.x-k8s.io/v1beta2",
            "Workload",
            "",
            &format!("podSets: [{{name: main, {TEMPLATE}}}]"),
        );
        check(&[service, workload].concat(), &[], &[]);
    }

    #[test]
    fn pods_that_are_somebody_elses_are_said() {
        let template = TEMPLATE.replace("schedulerName: kai-scheduler, ", "");
        let yaml = object("batch/v1", "Job", "", &template);
        check(&yaml, &["default/x-0"], &[]);
        let notes = try_unfold(&yaml).unwrap().notes;
        assert_eq!(
            notes,
            [
                "the pods of Job default/x are left to the scheduler default-scheduler and take no part: set schedulerName in its pod template to one of kai-scheduler, volcano"
            ]
        );
    }
}
