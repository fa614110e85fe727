//! Conversion of Kueue's objects between v1beta1 and v1beta2, without loss in either direction.
//!
//! In: an object of the group as JSON. Out: the same object in the other version. The embedded API server
//! calls this where a real one would call a conversion webhook, and the webhook calls it too.
//!
//! Each kind has a pair of steps that rename and reshape what both versions can say ([`to_v1beta2`] lists
//! them). What only one version can say is kept in an annotation of the converted object, which the way back
//! consumes:
//! - [`KEPT_FOR_V1BETA1`] on a v1beta2 object holds what v1beta1 said and v1beta2 cannot;
//! - [`KEPT_FOR_V1BETA2`] on a v1beta1 object holds what v1beta2 said and v1beta1 cannot.
//!
//! The annotation is a JSON list of places with two values: what the steps alone would give on the way back,
//! and what was there. A place is restored only if it still has the first value, so a change made in the
//! other version wins over what was kept. The two annotations are reserved: an object that brings one which
//! no conversion wrote may lose it.
//!
//! What must stay true: there and back is the identity, for every object; converting twice to the same
//! version changes nothing; the cost is in proportion to the object.

mod stash;
mod topology;

use serde_json::{Map, Value, json};

/// The API group whose objects are converted.
pub const GROUP: &str = "kueue.x-k8s.io";

/// On a v1beta2 object: what its v1beta1 form says beyond it.
pub const KEPT_FOR_V1BETA1: &str = "muster.dev/kueue-v1beta1";
/// On a v1beta1 object: what its v1beta2 form says beyond it.
pub const KEPT_FOR_V1BETA2: &str = "muster.dev/kueue-v1beta2";

/// The kinds of the group, all of which both versions have.
pub const KINDS: [&str; 11] = [
    "AdmissionCheck",
    "ClusterQueue",
    "Cohort",
    "LocalQueue",
    "MultiKueueCluster",
    "MultiKueueConfig",
    "ProvisioningRequestConfig",
    "ResourceFlavor",
    "Topology",
    "Workload",
    "WorkloadPriorityClass",
];

/// Why an object cannot be converted. The object is left as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    #[error("expected an object with apiVersion and kind")]
    NotAnObject,
    #[error("{0} is neither kueue.x-k8s.io/v1beta1 nor kueue.x-k8s.io/v1beta2")]
    OtherVersion(String),
    #[error("kueue.x-k8s.io has no kind {0}")]
    OtherKind(String),
}

/// Converts to the version of an `apiVersion`, such as `kueue.x-k8s.io/v1beta2`.
pub fn to_api_version(object: &mut Value, api_version: &str) -> Result<(), String> {
    let converted = match api_version.rsplit('/').next() {
        Some("v1beta1") => to_v1beta1(object),
        Some("v1beta2") => to_v1beta2(object),
        _ => return Err(format!("Kueue has no version {api_version}")),
    };
    converted.map_err(|e| e.to_string())
}

/// Answers a `ConversionReview` of `apiextensions.k8s.io/v1`: all objects, or the first that cannot be converted.
pub fn review(review: &Value) -> Value {
    let request = &review["request"];
    let to = request["desiredAPIVersion"].as_str().unwrap_or_default();
    let mut objects = request["objects"].as_array().cloned().unwrap_or_default();
    let failed = objects.iter_mut().find_map(|object| to_api_version(object, to).err());
    let response = match failed {
        None => json!({"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": objects}),
        Some(why) => {
            json!({"uid": request["uid"], "result": {"status": "Failure", "message": why}, "convertedObjects": []})
        }
    };
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response})
}

/// Converts an object to v1beta2; one that is v1beta2 already stays as it is.
///
/// | kind | v1beta1 | v1beta2 |
/// |---|---|---|
/// | ClusterQueue | `cohort` | `cohortName` |
/// | | `admissionChecks: [a]` | `admissionChecksStrategy.admissionChecks: [{name: a}]` |
/// | | `whenCanBorrow: Borrow`, `whenCanPreempt: Preempt` | `MayStopSearch` |
/// | | status `pendingWorkloadsStatus`, `fairSharing.admissionFairSharingStatus` | kept |
/// | | kept | `concurrentAdmissionPolicy` |
/// | LocalQueue | status `flavorUsage` | `flavorsUsage` |
/// | | status `flavors` | kept |
/// | Cohort | status `fairSharing.admissionFairSharingStatus` | kept |
/// | AdmissionCheck | `retryDelayMinutes` | kept |
/// | MultiKueueCluster | `kubeConfig` or `clusterProfileRef` | the same under `clusterSource` |
/// | MultiKueueConfig | kept | `quotaManagement` |
/// | Workload | `priorityClassName`, `priorityClassSource` | `priorityClassRef` |
/// | | status `accumulatedPastExexcutionTimeSeconds` | `accumulatedPastExecutionTimeSeconds` |
/// | | status `topologyAssignment.domains` | `topologyAssignment.slices` |
/// | | kept | `preemptionGates`, `podsetSliceRequiredTopologyConstraints` |
///
/// The other kinds are the same in both versions.
pub fn to_v1beta2(object: &mut Value) -> Result<(), ConvertError> {
    convert(object, Version::V1beta2)
}

/// Converts an object to v1beta1; one that is v1beta1 already stays as it is. See [`to_v1beta2`].
pub fn to_v1beta1(object: &mut Value) -> Result<(), ConvertError> {
    convert(object, Version::V1beta1)
}

#[derive(Clone, Copy, PartialEq)]
enum Version {
    V1beta1,
    V1beta2,
}

impl Version {
    fn api_version(self) -> &'static str {
        match self {
            Version::V1beta1 => "kueue.x-k8s.io/v1beta1",
            Version::V1beta2 => "kueue.x-k8s.io/v1beta2",
        }
    }

    fn other(self) -> Version {
        match self {
            Version::V1beta1 => Version::V1beta2,
            Version::V1beta2 => Version::V1beta1,
        }
    }

    /// The annotation that keeps what only this version can say.
    fn annotation(self) -> &'static str {
        match self {
            Version::V1beta1 => KEPT_FOR_V1BETA1,
            Version::V1beta2 => KEPT_FOR_V1BETA2,
        }
    }
}

fn convert(object: &mut Value, to: Version) -> Result<(), ConvertError> {
    let text = |key| object.get(key).and_then(Value::as_str);
    let (Some(api_version), Some(kind)) = (text("apiVersion"), text("kind")) else {
        return Err(ConvertError::NotAnObject);
    };
    let Some(kind) = KINDS.into_iter().find(|k| *k == kind) else {
        return Err(ConvertError::OtherKind(kind.to_owned()));
    };
    if api_version == to.api_version() {
        return Ok(());
    }
    let from = to.other();
    if api_version != from.api_version() {
        return Err(ConvertError::OtherVersion(api_version.to_owned()));
    }

    let kept = stash::take(object, to.annotation());
    // A leftover of the version that the object already has says nothing.
    stash::take(object, from.annotation());
    let original = object.clone();

    step(object, kind, to);
    stash::restore(object, &kept);

    let mut back = object.clone();
    step(&mut back, kind, from);
    stash::put(object, from.annotation(), stash::difference(&back, &original));
    Ok(())
}

/// Renames and reshapes what both versions can say, and takes out what only the old one can.
fn step(object: &mut Value, kind: &str, to: Version) {
    object["apiVersion"] = json!(to.api_version());
    let forward = to == Version::V1beta2;
    match kind {
        "ClusterQueue" => cluster_queue(object, forward),
        "LocalQueue" => local_queue(object, forward),
        "Cohort" if forward => remove(object, &["status", "fairSharing"], "admissionFairSharingStatus"),
        "AdmissionCheck" if forward => remove(object, &["spec"], "retryDelayMinutes"),
        "MultiKueueConfig" if !forward => remove(object, &["spec"], "quotaManagement"),
        "MultiKueueCluster" => multi_kueue_cluster(object, forward),
        "Workload" => workload(object, forward),
        _ => {}
    }
}

fn cluster_queue(object: &mut Value, forward: bool) {
    if !forward {
        rename(object, &["spec"], "cohortName", "cohort");
        remove(object, &["spec"], "concurrentAdmissionPolicy");
        return;
    }
    rename(object, &["spec"], "cohort", "cohortName");
    remove(object, &["status"], "pendingWorkloadsStatus");
    remove(object, &["status", "fairSharing"], "admissionFairSharingStatus");
    for (field, old) in [("whenCanBorrow", "Borrow"), ("whenCanPreempt", "Preempt")] {
        if let Some(value) = inside(object, &["spec", "flavorFungibility"]).and_then(|f| f.get_mut(field))
            && value == old
        {
            *value = json!("MayStopSearch");
        }
    }
    if let Some(spec) = inside(object, &["spec"]) {
        let names = spec.remove("admissionChecks");
        let strategy = spec.get("admissionChecksStrategy").and_then(|s| s.get("admissionChecks"));
        let n_rules = strategy.and_then(Value::as_array).map_or(0, Vec::len);
        let rules: Vec<Value> = match &names {
            Some(Value::Array(names)) => {
                names.iter().filter(|n| n.is_string()).map(|n| json!({"name": n})).collect()
            }
            _ => Vec::new(),
        };
        // v1beta1 refuses both at once, so the list counts only where there is no strategy. An empty strategy
        // means no checks, which v1beta2 says by leaving it out.
        if n_rules == 0 {
            if rules.is_empty() {
                spec.remove("admissionChecksStrategy");
            } else {
                spec.insert("admissionChecksStrategy".to_owned(), json!({"admissionChecks": rules}));
            }
        }
    }
}

fn local_queue(object: &mut Value, forward: bool) {
    if forward {
        rename(object, &["status"], "flavorUsage", "flavorsUsage");
        remove(object, &["status"], "flavors");
    } else {
        rename(object, &["status"], "flavorsUsage", "flavorUsage");
    }
}

fn multi_kueue_cluster(object: &mut Value, forward: bool) {
    let Some(spec) = inside(object, &["spec"]) else { return };
    if forward {
        let (config, profile) = (spec.remove("kubeConfig"), spec.remove("clusterProfileRef"));
        // v1beta2 takes exactly one source. v1beta1 always has a kubeConfig, empty where a profile is meant.
        let source = match (config, profile) {
            (_, Some(profile)) => json!({"clusterProfileRef": profile}),
            (Some(config), None) => json!({"kubeConfig": config}),
            (None, None) => return,
        };
        spec.entry("clusterSource").or_insert(source);
    } else {
        let Some(Value::Object(source)) = spec.remove("clusterSource") else { return };
        if let Some(config) = source.get("kubeConfig") {
            spec.entry("kubeConfig").or_insert_with(|| config.clone());
        }
        if let Some(profile) = source.get("clusterProfileRef") {
            spec.entry("clusterProfileRef").or_insert_with(|| profile.clone());
            spec.entry("kubeConfig").or_insert_with(|| json!({"location": "", "locationType": "Secret"}));
        }
    }
}

/// `priorityClassSource` of v1beta1 with the group and kind that v1beta2 says instead.
const PRIORITY_SOURCES: [(&str, &str, &str); 2] = [
    ("kueue.x-k8s.io/workloadpriorityclass", "kueue.x-k8s.io", "WorkloadPriorityClass"),
    ("scheduling.k8s.io/priorityclass", "scheduling.k8s.io", "PriorityClass"),
];

fn workload(object: &mut Value, forward: bool) {
    let (old, new) = ("accumulatedPastExexcutionTimeSeconds", "accumulatedPastExecutionTimeSeconds");
    if forward {
        rename(object, &["status"], old, new);
    } else {
        rename(object, &["status"], new, old);
        remove(object, &["spec"], "preemptionGates");
        remove(object, &["status"], "preemptionGates");
        for set in each(inside(object, &["spec"]), "podSets") {
            if let Some(Value::Object(request)) = set.get_mut("topologyRequest") {
                request.remove("podsetSliceRequiredTopologyConstraints");
            }
        }
    }
    if let Some(spec) = inside(object, &["spec"]) {
        if forward {
            priority_to_ref(spec);
        } else {
            priority_from_ref(spec);
        }
    }
    for assignment in each(inside(object, &["status", "admission"]), "podSetAssignments") {
        let Some(mut topology) = assignment.remove("topologyAssignment") else { continue };
        let converted =
            if forward { topology::to_slices(&mut topology) } else { topology::to_domains(&mut topology) };
        // An assignment that the other version cannot write down is left out there, and kept.
        if converted {
            assignment.insert("topologyAssignment".to_owned(), topology);
        }
    }
}

fn priority_to_ref(spec: &mut Map<String, Value>) {
    let (name, source) = (spec.remove("priorityClassName"), spec.remove("priorityClassSource"));
    let (Some(name), Some(source)) = (name, source) else { return };
    if let Some((_, group, kind)) = PRIORITY_SOURCES.iter().find(|(s, ..)| source == *s) {
        spec.entry("priorityClassRef").or_insert_with(|| json!({"group": group, "kind": kind, "name": name}));
    }
}

fn priority_from_ref(spec: &mut Map<String, Value>) {
    let Some(reference) = spec.remove("priorityClassRef") else { return };
    let known = PRIORITY_SOURCES
        .iter()
        .find(|(_, group, kind)| reference["group"] == *group && reference["kind"] == *kind);
    if let (Some((source, ..)), Some(name)) = (known, reference.get("name")) {
        spec.entry("priorityClassName").or_insert_with(|| name.clone());
        spec.entry("priorityClassSource").or_insert_with(|| json!(source));
    }
}

/// The object at a path of fields, if each of them is an object.
fn inside<'a>(object: &'a mut Value, path: &[&str]) -> Option<&'a mut Map<String, Value>> {
    let mut at = object;
    for field in path {
        at = at.get_mut(*field)?;
    }
    at.as_object_mut()
}

/// The objects of a list in a field.
fn each<'a>(
    parent: Option<&'a mut Map<String, Value>>,
    field: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    let list = parent.and_then(|p| p.get_mut(field)).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Moves a field to another name, unless the other name is taken.
fn rename(object: &mut Value, path: &[&str], from: &str, to: &str) {
    if let Some(parent) = inside(object, path)
        && !parent.contains_key(to)
        && let Some(value) = parent.remove(from)
    {
        parent.insert(to.to_owned(), value);
    }
}

fn remove(object: &mut Value, path: &[&str], field: &str) {
    if let Some(parent) = inside(object, path) {
        parent.remove(field);
    }
}
