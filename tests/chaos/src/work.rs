//! What users submit.
//!
//! In: random numbers. Out: a [`Workload`]: the objects to create, in order, and what becomes of it if nobody interferes. Must stay
//! true: every workload fits into the whole cluster when it is empty and healthy, so that whatever should end does.

use serde_json::{Value, json};

use crate::random::Random;
use crate::world::RACK;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A gang that is there whole or not at all.
    Gang,
    /// A gang without GPUs.
    CpuGang,
    /// A gang that takes more than it needs when there is room.
    Elastic,
    /// A gang within a rack.
    Racked,
    /// Runs until somebody deletes it.
    Deployment,
    Pod,
    /// A pod with a part of a GPU.
    Fraction,
    /// A gang of parts of GPUs.
    FractionGang,
    /// A gang of pods that nobody makes again, with groups within.
    SubGroups,
    Volume,
    Claim,
}

const KINDS: [(u64, Kind); 11] = [
    (24, Kind::Gang),
    (8, Kind::CpuGang),
    (12, Kind::Elastic),
    (8, Kind::Racked),
    (8, Kind::Deployment),
    (10, Kind::Pod),
    (12, Kind::Fraction),
    (6, Kind::FractionGang),
    (6, Kind::SubGroups),
    (4, Kind::Volume),
    (4, Kind::Claim),
];

#[derive(Debug, Clone)]
pub struct Workload {
    pub name: String,
    pub kind: Kind,
    pub objects: Vec<Value>,
    /// It ends by itself, and whatever is lost of it is made again.
    pub completes: bool,
    /// Bare pods, by name; others are made by a controller.
    pub pods: Vec<String>,
    pub replicas: u64,
    /// So many of its pods run together, or none.
    pub min: u64,
}

impl Workload {
    /// Where the object is that stands for it.
    pub fn path(&self) -> String {
        let namespace = crate::world::NAMESPACE;
        match self.kind {
            Kind::Gang | Kind::CpuGang | Kind::Elastic | Kind::Racked | Kind::FractionGang => {
                format!("/apis/batch/v1/namespaces/{namespace}/jobs/{}", self.name)
            }
            Kind::Deployment => format!("/apis/apps/v1/namespaces/{namespace}/deployments/{}", self.name),
            Kind::SubGroups => {
                format!("/apis/scheduling.run.ai/v2alpha2/namespaces/{namespace}/podgroups/{}", self.name)
            }
            Kind::Pod | Kind::Fraction | Kind::Volume | Kind::Claim => pod_path(&self.name),
        }
    }

    /// The claim of its volume, to be deleted when its pod is gone.
    pub fn claim(&self) -> Option<String> {
        let path =
            || format!("/api/v1/namespaces/{}/persistentvolumeclaims/{}", crate::world::NAMESPACE, self.name);
        (self.kind == Kind::Volume).then(path)
    }

    /// Everything else that must be deleted for it to be gone.
    pub fn paths(&self) -> Vec<String> {
        let namespace = crate::world::NAMESPACE;
        let mut all: Vec<String> = self.pods.iter().map(|pod| pod_path(pod)).collect();
        match self.kind {
            Kind::Volume => {}
            Kind::Claim => all.push(format!(
                "/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{}",
                self.name
            )),
            Kind::Pod | Kind::Fraction => {}
            _ => all.push(self.path()),
        }
        all
    }
}

pub fn pod_path(name: &str) -> String {
    format!("/api/v1/namespaces/{}/pods/{name}", crate::world::NAMESPACE)
}

const QUEUE: &str = "kai.scheduler/queue";
const SUBGROUP: &str = "kai.scheduler/subgroup-name";

pub fn workload(random: &mut Random, number: u64) -> Workload {
    let name = format!("w{number}");
    let kind = random.weighted(&KINDS).unwrap_or(Kind::Pod);
    let queue =
        *random.of(&["red-a", "red-b", "blue-a", "blue-b", "blue-a", "default-queue"]).unwrap_or(&"red-a");
    let priority = random
        .weighted(&[(70, "train"), (10, "build-preemptible"), (14, "build"), (6, "inference")])
        .unwrap_or("train");
    let labels = json!({"app": name, QUEUE: queue, "priorityClassName": priority});
    let seconds = if random.chance(15) { random.between(60, 180) } else { random.between(2, 40) };
    let mut annotations = json!({"sim.muster.dev/duration": format!("{seconds}s")});
    if random.chance(20) {
        annotations["sim.muster.dev/start-delay"] = json!(format!("{}s", random.between(1, 8)));
    }
    if random.chance(20) {
        annotations["sim.muster.dev/stop-delay"] = json!(format!("{}s", random.between(1, 20)));
    }
    let share = |random: &mut Random, annotations: &mut Value| match random.between(0, 4) {
        0 => annotations["gpu-fraction"] = json!("0.25"),
        1 => annotations["gpu-fraction"] = json!("0.5"),
        2 => annotations["gpu-fraction"] = json!("0.6"),
        3 => annotations["gpu-memory"] = json!("20000"),
        _ => annotations["gpu-memory"] = json!("50000"),
    };
    let mut work = Workload {
        name: name.clone(),
        kind,
        objects: Vec::new(),
        completes: false,
        pods: Vec::new(),
        replicas: 0,
        min: 1,
    };
    match kind {
        Kind::Gang | Kind::CpuGang | Kind::Elastic | Kind::Racked | Kind::FractionGang => {
            let n = if kind == Kind::FractionGang { random.between(2, 4) } else { random.between(1, 8) };
            let min = if kind == Kind::Elastic { random.between(1, n) } else { n };
            let gpus = match kind {
                Kind::CpuGang | Kind::FractionGang => 0,
                _ if n <= 3 && random.chance(30) => random.between(2, 4),
                _ => 1,
            };
            if kind == Kind::FractionGang {
                share(random, &mut annotations);
            }
            let template = json!({"metadata": {"labels": labels, "annotations": annotations}, "spec": spec(random, gpus, "Never")});
            let mut job = json!({"apiVersion": "batch/v1", "kind": "Job",
                "metadata": {"name": name, "labels": labels, "annotations": {"kai.scheduler/batch-min-member": min.to_string()}},
                "spec": {"parallelism": n, "completions": n, "backoffLimit": 10_000, "template": template}});
            if kind == Kind::Racked {
                job["metadata"]["annotations"]["kai.scheduler/topology"] = json!("racks");
                job["metadata"]["annotations"]["kai.scheduler/topology-required-placement"] = json!(RACK);
            }
            work.objects.push(job);
            work.completes = true;
            work.replicas = n;
            work.min = min;
        }
        Kind::Deployment => {
            let n = random.between(1, 4);
            let template = json!({"metadata": {"labels": labels}, "spec": spec(random, 1, "Always")});
            work.objects.push(json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": labels},
                "spec": {"replicas": n, "selector": {"matchLabels": {"app": name}}, "template": template}}));
            work.replicas = n;
        }
        Kind::Pod | Kind::Fraction | Kind::Volume | Kind::Claim => {
            let gpus = if kind == Kind::Pod { random.between(0, 2) } else { 0 };
            if kind == Kind::Fraction {
                share(random, &mut annotations);
                if random.chance(30) {
                    annotations["sim.muster.dev/duration"] = json!("forever");
                }
            }
            let mut pod = pod(&name, &labels, &annotations, spec(random, gpus, "Never"));
            if kind == Kind::Volume {
                work.objects.push(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
                    "spec": {"storageClassName": "late", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}));
                pod["spec"]["volumes"] =
                    json!([{"name": "data", "persistentVolumeClaim": {"claimName": name}}]);
            }
            if kind == Kind::Claim {
                work.objects.push(json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
                    "spec": {"devices": {"requests": [{"name": "one", "exactly": {"deviceClassName": "chaos"}}]}}}));
                pod["spec"]["resourceClaims"] = json!([{"name": "one", "resourceClaimName": name}]);
                pod["spec"]["containers"][0]["resources"]["claims"] = json!([{"name": "one"}]);
            }
            if random.chance(10) && kind == Kind::Pod {
                // By the name that pods have who name none.
                pod["spec"]["schedulerName"] = json!("default-scheduler");
            }
            work.objects.push(pod);
            work.pods.push(name);
        }
        Kind::SubGroups => {
            let groups = [("lead", 1), ("work", random.between(1, 3))];
            let subs: Vec<Value> =
                groups.iter().map(|(name, min)| json!({"name": name, "minMember": min})).collect();
            work.objects.push(json!({"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": {"name": name},
                "spec": {"minMember": 1 + groups[1].1, "queue": queue, "priorityClassName": priority, "subGroups": subs}}));
            for (group, min) in groups {
                for i in 0..min {
                    let pod_name = format!("{name}-{group}-{i}");
                    let mut labels = labels.clone();
                    labels[SUBGROUP] = json!(group);
                    let mut annotations = annotations.clone();
                    annotations["pod-group-name"] = json!(name);
                    work.objects.push(pod(&pod_name, &labels, &annotations, spec(random, 1, "Never")));
                    work.pods.push(pod_name);
                }
            }
        }
    }
    // The pods of a gang come one by one, in any order; what they name comes first.
    let first = work.objects.iter().take_while(|o| o["kind"] != "Pod").count();
    if let Some(pods) = work.objects.get_mut(first..) {
        random.shuffle(pods);
    }
    work
}

fn pod(name: &str, labels: &Value, annotations: &Value, spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels, "annotations": annotations}, "spec": spec})
}

fn spec(random: &mut Random, gpus: u64, restart: &str) -> Value {
    let mut resources = json!({"requests": {"cpu": random.between(1, 4).to_string(), "memory": "1Gi"}});
    if gpus > 0 {
        resources["limits"] = json!({"nvidia.com/gpu": gpus.to_string()});
    }
    json!({
        "schedulerName": crate::process::SCHEDULER_NAMES[0],
        "restartPolicy": restart,
        "terminationGracePeriodSeconds": random.between(1, 30),
        "containers": [{"name": "main", "image": "app:1", "resources": resources}],
    })
}
