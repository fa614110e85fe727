//! Backends: how a gang is said to a scheduler.
//!
//! In: a PodGang, its set, and what is there already. Out: what pods must carry, the resources that the scheduler reads,
//! and what the scheduler says of them. A backend is pure; [`crate::gang::run`] reads and writes for all of them. Must stay
//! true: the same gang gives the same resources; every resource is owned by its PodGang; what a scheduler cannot hold is
//! said in [`Emission::losses`], never dropped in silence.
//!
//! To write a new one: a file with a type that implements [`Backend`], a name in [`crate::settings::BackendName`], and a
//! line in [`of`].

pub mod default;
pub mod kai;
pub mod koordinator;
pub mod muster;
pub mod t9k;
pub mod volcano;

use std::sync::Arc;

use muster_runtime::object::Resource;
use serde_json::{Value, json};

use crate::conditions::Wanted;
use crate::keys::{self, condition};
use crate::mirror::Kept;
use crate::object::{ClusterTopologyBinding, PodCliqueSet, PodGang};
use crate::settings::{BackendName, Options};

/// Which version of Kubernetes' own gang API a server has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GangApi {
    /// 1.36: Workload and PodGroup.
    V1Alpha2,
    /// 1.35: Workload alone.
    V1Alpha1,
    None,
}

/// What a backend may look at.
pub struct World<'a> {
    pub options: &'a Options,
    /// The set that owns the gang; `None` when it is gone or the gang was made by hand.
    pub set: Option<&'a PodCliqueSet>,
    pub topology: Option<&'a ClusterTopologyBinding>,
    pub gang_api: GangApi,
}

/// A resource that should be there.
#[derive(Debug, Clone, PartialEq)]
pub struct Desired {
    pub resource: Resource,
    pub name: String,
    /// The whole object, without `apiVersion`, `kind`, name, namespace and owner.
    pub body: Value,
    /// The server refuses changes: what differs is deleted and made anew.
    pub immutable: bool,
}

/// What a gang becomes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Emission {
    pub resources: Vec<Desired>,
    /// What the scheduler cannot be told.
    pub losses: Vec<String>,
    /// The scheduler cannot be told that all of it belongs together: the pods are held until all of them have room.
    pub hold: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EmitError {
    #[error(
        "queue {one:?} and queue {other:?} are both asked for; write one, as label {} of the set",
        keys::kai::QUEUE
    )]
    Queues { one: String, other: String },
    #[error("a constraint needs a topology; write topologyName, or the annotation {}", keys::kai::TOPOLOGY)]
    NoTopology,
    #[error("{0}")]
    Unsupported(String),
}

/// Why a scheduler keeps a gang waiting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    pub reason: &'static str,
    pub message: String,
}

/// What a backend made of a gang.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    pub backend: Option<BackendName>,
    /// Why the gang could not be handed over.
    pub error: Option<String>,
    pub losses: Vec<String>,
    pub waiting: Option<Waiting>,
    /// Why the pods are held.
    pub held: Option<String>,
    /// They were held and are not any more, and have no nodes yet.
    pub unplaced: bool,
}

/// Why a gang is not accepted whose pods are held until all of them have room.
pub const HELD: &str = "HeldUntilItFits";

impl Seen {
    /// The condition that says whether the scheduler knows of the gang.
    pub fn accepted(&self) -> Wanted {
        let backend = self.backend.map_or("none", BackendName::as_str);
        if let (None, Some(why)) = (&self.error, &self.held) {
            let message =
                format!("{backend} cannot be told of the whole, which is held until it has room: {why}");
            return Wanted::new(condition::ACCEPTED, false, HELD, message);
        }
        match &self.error {
            Some(error) => {
                Wanted::new(condition::ACCEPTED, false, "BackendFailed", format!("{backend}: {error}"))
            }
            None if self.losses.is_empty() => Wanted::new(condition::ACCEPTED, true, "Accepted", backend),
            None => {
                let message = format!("{backend} cannot hold: {}", self.losses.join("; "));
                Wanted::new(condition::ACCEPTED, true, "AcceptedInPart", message)
            }
        }
    }
}

/// The pod that is about to be made, and the gang it is of.
pub struct Place<'a> {
    pub gang: &'a PodGang,
    /// The full name of the pod's clique, which is the name of its group in the gang.
    pub clique: &'a str,
    /// The resources of the backend that the gang has already.
    pub there: &'a [Arc<Kept>],
    pub options: &'a Options,
    pub gang_api: GangApi,
}

pub trait Backend: Send + Sync {
    fn name(&self) -> BackendName;

    /// Whether the gang is one of its own.
    fn matches(&self, gang: &PodGang) -> bool {
        backend_of(gang) == Some(self.name())
    }

    /// The kinds that it writes.
    fn resources(&self, gang_api: GangApi) -> Vec<Resource>;

    /// Labels and annotations that a pod must carry from birth; they are also put right later.
    fn marks(&self, place: &Place<'_>) -> Marks;

    /// What else a pod needs in its spec from birth.
    fn prepare(&self, _place: &Place<'_>, _spec: &mut Value) {}

    fn emit(&self, gang: &PodGang, there: &[Arc<Kept>], world: &World<'_>) -> Result<Emission, EmitError>;

    /// Why the scheduler keeps the gang waiting, if it says.
    fn observe(&self, _there: &[Arc<Kept>]) -> Option<Waiting> {
        None
    }
}

/// Labels and annotations of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Marks {
    pub labels: Vec<(&'static str, String)>,
    pub annotations: Vec<(&'static str, String)>,
}

/// The backend of a name.
pub fn of(name: BackendName) -> Box<dyn Backend> {
    match name {
        BackendName::Kai => Box::new(kai::Kai),
        BackendName::Default => Box::new(default::Default),
        BackendName::Koordinator => Box::new(koordinator::Koordinator),
        BackendName::Volcano => Box::new(volcano::Volcano),
        BackendName::T9k => Box::new(t9k::T9k),
        BackendName::Muster => Box::new(muster::Muster),
    }
}

/// The backend that a gang's labels name: in the documents' words, or in today's.
pub fn backend_of(gang: &PodGang) -> Option<BackendName> {
    let labels = &gang.metadata.labels;
    match labels.get(keys::SCHEDULER_BACKEND) {
        Some(name) => BackendName::read(name),
        None => labels.get(keys::SCHEDULER_NAME).map(|name| Options::default().route(name)),
    }
}

/// The labels that a gang hands on to its resources.
fn handed_on(gang: &PodGang) -> Value {
    json!(gang.metadata.labels)
}

/// The owner reference that ties a resource to its gang: the documents' four fields, and that it is the controller.
pub fn owner(gang: &PodGang) -> Value {
    json!([{
        "apiVersion": "scheduler.grove.io/v1alpha1",
        "kind": "PodGang",
        "name": gang.metadata.name,
        "uid": gang.metadata.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    }])
}

/// The common value of a label or annotation of a set and its cliques; `Err` with two values that differ.
pub(crate) fn said_by_set(set: &PodCliqueSet, key: &str) -> Result<Option<String>, (String, String)> {
    let of_set = set.metadata.labels.get(key).or_else(|| set.metadata.annotations.get(key));
    let cliques = set.spec.template.cliques.iter();
    let of_cliques = cliques.filter_map(|c| c.labels.get(key).or_else(|| c.annotations.get(key)));
    let mut found: Option<&String> = None;
    for said in of_set.into_iter().chain(of_cliques).filter(|said| !said.trim().is_empty()) {
        match found {
            None => found = Some(said),
            Some(first) if first == said => {}
            Some(first) => return Err((first.clone(), said.clone())),
        }
    }
    Ok(found.map(|said| said.trim().to_owned()))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A gang in short: `name; group min [key]; ...`, with `{config key: group group}` for groups that are packed together,
    /// and `@key` for the whole. Keys are `required` or `/preferred`.
    pub(crate) fn gang(text: &str) -> PodGang {
        let constraint = |text: &str| {
            let (required, preferred) = text.split_once('/').unwrap_or((text, ""));
            json!({"packConstraint": {"required": required, "preferred": preferred}})
        };
        let mut parts = text.split(';').map(str::trim);
        let name = parts.next().unwrap();
        let mut spec = json!({"podgroups": []});
        for part in parts.filter(|part| !part.is_empty()) {
            if let Some(key) = part.strip_prefix('@') {
                spec["topologyConstraint"] = constraint(key);
            } else if let Some(config) = part.strip_prefix('{') {
                let (head, members) = config.trim_end_matches('}').split_once(':').unwrap();
                let (name, key) = head.split_once(' ').unwrap();
                let config = json!({
                    "name": name,
                    "podGroupNames": members.split_whitespace().collect::<Vec<_>>(),
                    "topologyConstraint": constraint(key),
                });
                match spec.get_mut("topologyConstraintGroupConfigs").and_then(Value::as_array_mut) {
                    Some(configs) => configs.push(config),
                    None => spec["topologyConstraintGroupConfigs"] = json!([config]),
                }
            } else {
                let mut words = part.split_whitespace();
                let mut group = json!({
                    "name": words.next().unwrap(),
                    "minReplicas": words.next().unwrap().parse::<i64>().unwrap(),
                    "podReferences": [],
                });
                if let Some(key) = words.next() {
                    group["topologyConstraint"] = constraint(key);
                }
                spec["podgroups"].as_array_mut().unwrap().push(group);
            }
        }
        serde_json::from_value(json!({
            "metadata": {
                "name": name, "namespace": "ns", "uid": "u-1",
                "labels": {"app.kubernetes.io/part-of": "set"},
                "annotations": {keys::TOPOLOGY_NAME: "dc"},
            },
            "spec": spec,
        }))
        .unwrap()
    }

    pub(crate) fn world<'a>(options: &'a Options, set: Option<&'a PodCliqueSet>) -> World<'a> {
        World { options, set, topology: None, gang_api: GangApi::V1Alpha2 }
    }

    #[test]
    fn labels_of_both_kinds_are_read() {
        let check = |labels: Value, expected: Option<&str>| {
            let gang: PodGang = serde_json::from_value(json!({"metadata": {"labels": labels}})).unwrap();
            assert_eq!(backend_of(&gang).map(BackendName::as_str), expected, "{labels}");
        };
        check(json!({"grove.io/scheduler-backend": "kai"}), Some("kai"));
        check(json!({"grove.io/scheduler-name": "volcano"}), Some("volcano"));
        check(
            json!({"grove.io/scheduler-backend": "default", "grove.io/scheduler-name": "volcano"}),
            Some("default"),
        );
        check(json!({"grove.io/scheduler-backend": "nobody"}), None);
        check(json!({}), None);
    }

    /// The groups and minima that a scheduler would read, `None` for a backend without resources.
    fn read_back(name: BackendName, gang_api: GangApi, emission: &Emission) -> Option<Vec<(String, i64)>> {
        let pairs = |value: &Value, list: &str, min: &str| -> Vec<(String, i64)> {
            crate::object::list(value, &[list])
                .iter()
                .filter(|item| item.get("minSubGroup").is_none())
                .map(|item| {
                    let min = item.pointer(min).and_then(Value::as_i64).unwrap_or(-1);
                    (crate::object::text(item, &["name"]).to_owned(), min)
                })
                .collect()
        };
        let spec = |index: usize| &emission.resources[index].body["spec"];
        Some(match (name, gang_api) {
            (BackendName::Kai, _) => pairs(spec(0), "subGroups", "/minMember"),
            (BackendName::Volcano, _) => pairs(spec(0), "subGroupPolicy", "/subGroupSize"),
            (BackendName::T9k, _) => pairs(spec(0), "roles", "/minMember"),
            (BackendName::Koordinator, _) => emission
                .resources
                .iter()
                .map(|r| (r.name.clone(), r.body["spec"]["minMember"].as_i64().unwrap_or(-1)))
                .collect(),
            (BackendName::Default, GangApi::V1Alpha2) => emission
                .resources
                .iter()
                .skip(1)
                .map(|r| {
                    let min = r.body.pointer("/spec/schedulingPolicy/gang/minCount");
                    (r.name.clone(), min.and_then(Value::as_i64).unwrap_or(-1))
                })
                .collect(),
            (BackendName::Default, GangApi::V1Alpha1) => pairs(spec(0), "podGroups", "/policy/gang/minCount"),
            (BackendName::Default, GangApi::None) | (BackendName::Muster, _) => return None,
        })
    }

    proptest::proptest! {
        /// There and back through every backend: groups and minima are as they were, or that they are not is said.
        #[test]
        fn what_is_not_kept_is_said(
            mins in proptest::collection::vec(1_i64..6, 1..11),
            whole in 0_u8..3, packed in 0_u8..3, config in proptest::bool::ANY,
        ) {
            let level = |kind: u8| match kind {
                1 => " rack",
                2 => " /rack",
                _ => "",
            };
            let mut text = "g".to_owned();
            if whole > 0 {
                text.push_str(&format!("; @{}", level(whole).trim()));
            }
            if config {
                text.push_str("; {c rack: g-0}");
            }
            for (index, min) in mins.iter().enumerate() {
                text.push_str(&format!("; g-{index} {min}{}", level(packed)));
            }
            let gang = gang(&text);
            let wanted: Vec<(String, i64)> =
                gang.spec.podgroups.iter().map(|group| (group.name.clone(), group.min_replicas)).collect();
            let is_packed = whole > 0 || packed > 0 || config;
            let options = Options::default();
            for name in BackendName::ALL {
                for gang_api in [GangApi::V1Alpha2, GangApi::V1Alpha1, GangApi::None] {
                    let world = World { gang_api, ..world(&options, None) };
                    let emission = of(name).emit(&gang, &[], &world).unwrap();
                    let again = of(name).emit(&gang, &[], &world).unwrap();
                    proptest::prop_assert_eq!(&emission, &again, "the same gang gives the same");
                    match read_back(name, gang_api, &emission) {
                        Some(back) => proptest::prop_assert!(back == wanted || !emission.losses.is_empty(), "{name}: {back:?}"),
                        None => proptest::prop_assert!(name == BackendName::Muster || !emission.losses.is_empty(), "{name}"),
                    }
                    // KAI and Muster hold every constraint; nobody else is told of a level that it has no word for here.
                    let tells_all = matches!(name, BackendName::Kai | BackendName::Muster)
                        || (name == BackendName::Default && gang_api == GangApi::V1Alpha2 && mins.len() == 1);
                    proptest::prop_assert!(!is_packed || tells_all || !emission.losses.is_empty(), "{name} {gang_api:?}: {text}");
                }
            }
        }
    }
}
