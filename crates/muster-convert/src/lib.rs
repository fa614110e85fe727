//! A workload of one dialect as a workload of another.
//!
//! In: manifests as JSON of a PodCliqueSet, a Volcano Job, KAI's PodGroup with its pods, a Kueue Workload, a JobSet or a LeaderWorkerSet.
//! Out: the manifests of another of these, and a warning for each thing that the other cannot say. [`convert`] does both ways: [`read`]
//! makes [`Work`] of a manifest, [`write`] makes manifests of it.
//!
//! ```
//! use muster_convert::{Dialect, convert};
//! use serde_json::json;
//!
//! let job = json!({
//!     "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "mnist"},
//!     "spec": {"minAvailable": 3, "queue": "team", "tasks": [
//!         {"name": "ps", "replicas": 1, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
//!         {"name": "worker", "replicas": 2, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
//!     ]},
//! });
//! let made = convert(&[job], Dialect::PodCliqueSet).unwrap();
//! assert_eq!(made.objects[0]["spec"]["template"]["cliques"][1]["spec"]["replicas"], 2);
//! assert!(made.warnings.is_empty());
//! ```
//!
//! *Invariant:* no I/O, no clock. *Invariant:* a field of a spec that is neither converted nor warned about is a fault. *Invariant:* no
//! input panics, and what comes out is in proportion to what goes in.

pub mod read;
pub mod write;

use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;

/// The forms that a workload can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dialect {
    PodCliqueSet,
    VolcanoJob,
    Kai,
    Kueue,
    JobSet,
    LeaderWorkerSet,
}

impl Dialect {
    pub const ALL: [Dialect; 6] = [
        Dialect::PodCliqueSet,
        Dialect::VolcanoJob,
        Dialect::Kai,
        Dialect::Kueue,
        Dialect::JobSet,
        Dialect::LeaderWorkerSet,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Dialect::PodCliqueSet => "podcliqueset",
            Dialect::VolcanoJob => "volcano-job",
            Dialect::Kai => "kai",
            Dialect::Kueue => "kueue",
            Dialect::JobSet => "jobset",
            Dialect::LeaderWorkerSet => "leaderworkerset",
        }
    }

    pub fn read(text: &str) -> Option<Dialect> {
        Self::ALL.into_iter().find(|dialect| dialect.as_str() == text)
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A workload in no dialect.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Work {
    pub name: String,
    pub namespace: String,
    pub labels: Map<String, Value>,
    pub annotations: Map<String, Value>,
    /// So many times the whole.
    pub copies: i64,
    pub queue: String,
    pub priority_class: String,
    /// The least of all pods together, where that is not the sum of the roles' minima.
    pub min_pods: Option<i64>,
    pub roles: Vec<Role>,
    /// Roles that come several times together.
    pub groups: Vec<Group>,
    pub pack: Option<Pack>,
    pub seconds_kept_when_over: Option<i64>,
    pub max_restarts: Option<i64>,
    pub suspended: bool,
}

/// Pods of one template.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Role {
    pub name: String,
    pub pods: i64,
    pub min: i64,
    /// A pod template: metadata and spec.
    pub template: Value,
    /// Roles that must be ready before its containers start.
    pub after: Vec<String>,
    pub pack: Option<Pack>,
    /// How it is scaled, as Grove says it.
    pub scaling: Option<Value>,
}

/// Roles that are scaled as a unit.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Group {
    pub name: String,
    pub copies: i64,
    pub min: i64,
    pub roles: Vec<String>,
    pub pack: Option<Pack>,
    pub scaling: Option<Value>,
}

/// Pods that are to be near each other. Levels are the words of the dialect that they came from.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Pack {
    pub topology: String,
    pub required: String,
    pub preferred: String,
}

/// What came of a conversion.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Converted {
    pub objects: Vec<Value>,
    /// `Kind name: field: what is lost`.
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    #[error(
        "{0} is no workload that can be converted; there are PodCliqueSet, Volcano Job, PodGroup with pods, Workload, JobSet and LeaderWorkerSet"
    )]
    Unknown(String),
    #[error("{object}: {field}: {message}")]
    Unreadable { object: String, field: String, message: String },
    #[error("{object} cannot be a {to}: {why}")]
    Senseless { object: String, to: Dialect, why: String },
}

/// The most pods that are written out one by one.
pub const MOST_PODS: i64 = 10_000;

/// Converts every workload among the objects. Others, such as Services and ConfigMaps, are handed on as they are.
pub fn convert(objects: &[Value], to: Dialect) -> Result<Converted, ConvertError> {
    let mut out = Converted::default();
    // The pods of a PodGroup are a part of it, wherever they stand.
    let mut pods: BTreeMap<(String, String), Vec<&Value>> = BTreeMap::new();
    for object in objects.iter().filter(|object| is(object, "", "Pod")) {
        if let Some(group) = read::group_of(object) {
            pods.entry((text(object, "/metadata/namespace"), group)).or_default().push(object);
        }
    }
    let mut taken: Vec<(String, String)> = Vec::new();
    let mut found = false;
    for object in objects {
        let group = text(object, "/apiVersion");
        let group = group.split_once('/').map_or("", |(group, _)| group);
        let kind = text(object, "/kind");
        let mut warnings = Warnings::about(object);
        let work = match (group, kind.as_str()) {
            ("grove.io", "PodCliqueSet") => read::pod_clique_set(object, &mut warnings)?,
            ("batch.volcano.sh", "Job") => read::volcano_job(object, &mut warnings)?,
            ("kueue.x-k8s.io", "Workload") => read::kueue(object, &mut warnings)?,
            ("jobset.x-k8s.io", "JobSet") => read::job_set(object, &mut warnings)?,
            ("leaderworkerset.x-k8s.io", "LeaderWorkerSet") => {
                read::leader_worker_set(object, &mut warnings)?
            }
            ("scheduling.run.ai", "PodGroup") => {
                let key = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
                let of = pods.get(&key).map_or(&[][..], Vec::as_slice);
                taken.push(key);
                read::kai(object, of, &mut warnings)?
            }
            _ => {
                let key = (text(object, "/metadata/namespace"), read::group_of(object).unwrap_or_default());
                let is_member = kind == "Pod" && group.is_empty() && pods.contains_key(&key);
                if !is_member {
                    out.objects.push(object.clone());
                }
                continue;
            }
        };
        found = true;
        out.objects.extend(write::write(&work, to, &mut warnings)?);
        out.warnings.extend(warnings.said);
    }
    if let Some((namespace, group)) = pods.keys().find(|key| !taken.contains(key)) {
        return Err(ConvertError::Unreadable {
            object: format!("PodGroup {namespace}/{group}"),
            field: "metadata.annotations[pod-group-name]".to_owned(),
            message: "pods name it, and it is not here; add its manifest".to_owned(),
        });
    }
    if !found {
        let kinds: Vec<String> = objects.iter().map(|object| text(object, "/kind")).collect();
        return Err(ConvertError::Unknown(kinds.join(", ")));
    }
    Ok(out)
}

/// Things that are lost, each said once.
#[derive(Debug, Default)]
pub struct Warnings {
    object: String,
    said: Vec<String>,
}

impl Warnings {
    pub fn about(object: &Value) -> Self {
        Warnings {
            object: format!("{} {}", text(object, "/kind"), text(object, "/metadata/name")),
            said: Vec::new(),
        }
    }

    pub(crate) fn say(&mut self, field: &str, message: impl fmt::Display) {
        let said = format!("{}: {field}: {message}", self.object);
        if !self.said.contains(&said) {
            self.said.push(said);
        }
    }

    /// Fields of a mapping that nobody knows.
    pub(crate) fn rest(&mut self, at: &str, value: &Value, known: &[&str]) {
        for key in
            value.as_object().into_iter().flat_map(Map::keys).filter(|key| !known.contains(&key.as_str()))
        {
            self.say(&format!("{at}.{key}"), "is not converted");
        }
    }
}

fn is(object: &Value, group: &str, kind: &str) -> bool {
    let version = text(object, "/apiVersion");
    version.split_once('/').map_or("", |(group, _)| group) == group && text(object, "/kind") == kind
}

pub(crate) fn text(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

impl Work {
    /// The sum of the roles' minima, groups counted as often as they must come.
    pub fn min_total(&self) -> i64 {
        self.roles
            .iter()
            .map(|role| role.min.saturating_mul(self.times(&role.name).1))
            .fold(0, i64::saturating_add)
    }

    /// How often a role comes within one copy, and how often at least.
    pub fn times(&self, role: &str) -> (i64, i64) {
        let group = self.groups.iter().find(|group| group.roles.iter().any(|name| name == role));
        group.map_or((1, 1), |group| (group.copies, group.min))
    }
}
