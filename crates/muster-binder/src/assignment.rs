//! An assignment: which pod goes to which node, and what it gets there.
//!
//! In and out: the JSON of a BindRequest (`scheduling.run.ai/v1alpha2`), field for field, so that KAI's binder can carry
//! out our requests and we can carry out KAI's. Must stay true: what is read back from what was written is the same
//! assignment; names from a request are names, never pieces of a path.

use muster_runtime::common::BindRequest;
use muster_runtime::{Key, Object};
use serde_json::{Map, Value, json};

/// The label of a BindRequest that names its node.
const SELECTED_NODE: &str = "selected-node";
/// The annotation of a BindRequest that a scheduler carries out by itself: which one.
pub(crate) const INLINE: &str = "muster.dev/bound-by";

/// What kind of GPU a pod gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Received {
    /// Whole GPUs, or none.
    #[default]
    Regular,
    /// A part of each of its GPUs.
    Fraction,
    MigInstance,
}

impl Received {
    pub fn name(self) -> &'static str {
        match self {
            Received::Regular => "Regular",
            Received::Fraction => "Fraction",
            Received::MigInstance => "MigInstance",
        }
    }
}

/// Where one pod goes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Assignment {
    pub pod: Key,
    /// The binding is for this very pod, not for a later one of the same name; empty means whichever has the name.
    pub pod_uid: String,
    pub node: String,
    pub kind: Received,
    pub gpu_count: u32,
    /// How much of each GPU, in thousandths.
    pub gpu_portion_milli: Option<i64>,
    /// The shared GPUs that the pod joins, one per device.
    pub gpu_groups: Vec<String>,
    /// What each device claim gets, by the claim's name in the pod's spec: an `AllocationResult`.
    pub claims: Vec<(String, Value)>,
    /// Devices behind an extended resource: `extendedResourceClaimAllocation` as it stands in a BindRequest.
    pub extended: Option<Value>,
    /// What the pod is expected to take from NUMA zones: a list of `{zone, amount}`.
    pub zones: Option<Value>,
    /// The pod has volumes that may wait for their first consumer.
    pub volumes: bool,
    /// The label of the node pool, which the BindRequest gets, and the pod with its Binding: key and value.
    pub pool: Option<(String, String)>,
    /// How often the service tries.
    pub backoff_limit: Option<i32>,
}

/// A BindRequest that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("spec.selectedNode is missing")]
    NoNode,
    #[error("spec.{field} is {text:?}, which is no name")]
    NoName { field: &'static str, text: String },
    #[error("spec.receivedResourceType is Fraction, but spec.selectedGPUGroups is empty")]
    NoGroups,
    #[error("spec.receivedResourceType is {0:?}; it must be Regular, Fraction or MigInstance")]
    UnknownKind(String),
    #[error("spec.resourceClaimAllocations: claim {0:?} has no allocation")]
    NoAllocation(String),
}

impl Assignment {
    /// Whether something must be prepared before the Binding. If not, one request is all.
    pub fn needs_steps(&self) -> bool {
        self.kind == Received::Fraction
            || !self.gpu_groups.is_empty()
            || !self.claims.is_empty()
            || self.extended.is_some()
            || self.volumes
    }

    /// The annotations that the pod gets together with its node.
    pub(crate) fn annotations(&self) -> Vec<(&'static str, String)> {
        let mut all = Vec::new();
        // A pod without the annotation counts as regular.
        if self.kind != Received::Regular {
            all.push(("received-resource-type", self.kind.name().to_owned()));
        }
        if let Some(zones) = &self.zones {
            all.push(("kai.scheduler/numa-placement-predicted", zones.to_string()));
        }
        all
    }

    /// How much of each GPU, as KAI writes it: two decimals, three where two would lose something.
    pub fn portion(&self) -> String {
        let milli = match self.gpu_portion_milli {
            Some(milli) => milli.max(0),
            None if self.gpu_count > 0 => 1000,
            None => 0,
        };
        let (whole, rest) = (milli / 1000, milli % 1000);
        if rest % 10 == 0 { format!("{whole}.{:02}", rest / 10) } else { format!("{whole}.{rest:03}") }
    }

    /// The BindRequest that says the same. It goes when its pod goes.
    pub fn to_bind_request(&self) -> Value {
        let mut spec = Map::new();
        spec.insert("podName".into(), json!(self.pod.name));
        spec.insert("selectedNode".into(), json!(self.node));
        spec.insert("receivedResourceType".into(), json!(self.kind.name()));
        spec.insert("receivedGPU".into(), json!({"count": self.gpu_count, "portion": self.portion()}));
        if !self.gpu_groups.is_empty() {
            spec.insert("selectedGPUGroups".into(), json!(self.gpu_groups));
        }
        if !self.claims.is_empty() {
            let claims = self.claims.iter().map(|(name, a)| json!({"name": name, "allocation": a}));
            spec.insert("resourceClaimAllocations".into(), claims.collect());
        }
        if let Some(extended) = &self.extended {
            spec.insert("extendedResourceClaimAllocation".into(), extended.clone());
        }
        if let Some(zones) = &self.zones {
            spec.insert("predictedNUMAZones".into(), zones.clone());
        }
        if let Some(limit) = self.backoff_limit {
            spec.insert("backoffLimit".into(), json!(limit));
        }
        let mut labels = Map::new();
        // A label value ends at 63 characters, a node's name does not.
        if self.node.len() <= 63 {
            labels.insert(SELECTED_NODE.into(), json!(self.node));
        }
        if let Some((key, value)) = &self.pool {
            labels.insert(key.clone(), json!(value));
        }
        let mut metadata =
            json!({"name": self.pod.name, "namespace": self.pod.namespace, "labels": Value::Object(labels)});
        if !self.pod_uid.is_empty() {
            metadata["ownerReferences"] =
                json!([{"apiVersion": "v1", "kind": "Pod", "name": self.pod.name, "uid": self.pod_uid}]);
        }
        json!({
            "apiVersion": BindRequest::RESOURCE.api_version(),
            "kind": BindRequest::RESOURCE.kind,
            "metadata": metadata,
            "spec": spec,
        })
    }

    pub fn from_bind_request(request: &BindRequest) -> Result<Self, Malformed> {
        let text = |field: &str| request.spec.get(field).and_then(Value::as_str).unwrap_or_default();
        let list = |field: &str| request.spec.get(field).and_then(Value::as_array).into_iter().flatten();
        let pod = match text("podName") {
            "" => request.metadata.name.clone(),
            name => checked("podName", name)?,
        };
        if text("selectedNode").is_empty() {
            return Err(Malformed::NoNode);
        }
        let kind = match text("receivedResourceType") {
            "" | "Regular" => Received::Regular,
            "Fraction" => Received::Fraction,
            "MigInstance" => Received::MigInstance,
            other => return Err(Malformed::UnknownKind(other.to_owned())),
        };
        let groups = list("selectedGPUGroups").filter_map(Value::as_str);
        let gpu_groups: Vec<String> =
            groups.map(|g| checked("selectedGPUGroups", g)).collect::<Result<_, _>>()?;
        if kind == Received::Fraction && gpu_groups.is_empty() {
            return Err(Malformed::NoGroups);
        }
        let mut claims = Vec::new();
        for claim in list("resourceClaimAllocations") {
            let name = claim["name"].as_str().unwrap_or_default();
            match claim.get("allocation") {
                Some(allocation) if allocation.is_object() => {
                    claims.push((name.to_owned(), allocation.clone()))
                }
                _ => return Err(Malformed::NoAllocation(name.to_owned())),
            }
        }
        let gpu = request.spec.get("receivedGPU");
        let some = |field: &str| request.spec.get(field).filter(|v| !v.is_null()).cloned();
        let owner = request.metadata.owner_references.iter().find(|o| o.kind == "Pod" && o.name == pod);
        Ok(Assignment {
            pod_uid: owner.map(|o| o.uid.clone()).unwrap_or_default(),
            pod: Key::new(request.metadata.namespace.clone(), pod),
            node: checked("selectedNode", text("selectedNode"))?,
            kind,
            gpu_count: gpu.and_then(|g| g["count"].as_u64()).and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
            gpu_portion_milli: gpu
                .and_then(|g| g["portion"].as_str())
                .and_then(milli)
                .filter(|_| kind == Received::Fraction),
            gpu_groups,
            claims,
            extended: some("extendedResourceClaimAllocation"),
            zones: some("predictedNUMAZones"),
            // A request does not say; the pod itself does.
            volumes: true,
            // Which of its labels that is, the service is told by its options.
            pool: None,
            backoff_limit: request
                .spec
                .get("backoffLimit")
                .and_then(Value::as_i64)
                .and_then(|n| i32::try_from(n).ok()),
        })
    }
}

/// A name that can stand in a path: of an object, or of a shared GPU.
fn checked(field: &'static str, text: &str) -> Result<String, Malformed> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    let ends = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    if text.len() <= 253 && bytes.iter().copied().all(plain) && ends(bytes.first()) && ends(bytes.last()) {
        Ok(text.to_owned())
    } else {
        Err(Malformed::NoName { field, text: text.chars().take(80).collect() })
    }
}

/// `0.50` is 500, `1` is 1000. What is finer than a thousandth is cut off.
fn milli(text: &str) -> Option<i64> {
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    let digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(rest) || (whole.is_empty() && rest.is_empty()) {
        return None;
    }
    let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let rest: i64 = rest.bytes().chain(*b"000").take(3).fold(0, |n, b| n * 10 + i64::from(b - b'0'));
    whole.checked_mul(1000)?.checked_add(rest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(body: Value) -> Result<Assignment, Malformed> {
        Assignment::from_bind_request(&serde_json::from_value(body).unwrap())
    }

    fn request(spec: Value) -> Value {
        json!({"metadata": {"name": "p", "namespace": "ns"}, "spec": spec})
    }

    #[track_caller]
    fn check_malformed(spec: Value, expected: &str) {
        assert_eq!(read(request(spec)).unwrap_err().to_string(), expected);
    }

    #[test]
    fn nonsense_is_refused() {
        check_malformed(json!({}), "spec.selectedNode is missing");
        check_malformed(
            json!({"selectedNode": "a/../b"}),
            "spec.selectedNode is \"a/../b\", which is no name",
        );
        check_malformed(
            json!({"selectedNode": "a", "podName": "../x"}),
            "spec.podName is \"../x\", which is no name",
        );
        check_malformed(
            json!({"selectedNode": "a", "receivedResourceType": "Fraction"}),
            "spec.receivedResourceType is Fraction, but spec.selectedGPUGroups is empty",
        );
        check_malformed(
            json!({"selectedNode": "a", "receivedResourceType": "Half"}),
            "spec.receivedResourceType is \"Half\"; it must be Regular, Fraction or MigInstance",
        );
        check_malformed(
            json!({"selectedNode": "a", "selectedGPUGroups": ["g=1"]}),
            "spec.selectedGPUGroups is \"g=1\", which is no name",
        );
        check_malformed(
            json!({"selectedNode": "a", "resourceClaimAllocations": [{"name": "c"}]}),
            "spec.resourceClaimAllocations: claim \"c\" has no allocation",
        );
    }

    #[test]
    fn a_request_of_kai_is_read() {
        let read = read(json!({
            "metadata": {
                "name": "p", "namespace": "ns", "labels": {"selected-node": "n1"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u1"}],
            },
            "spec": {
                "podName": "p", "selectedNode": "n1", "receivedResourceType": "Fraction",
                "receivedGPU": {"count": 1, "portion": "0.50"}, "selectedGPUGroups": ["7c1f"],
            },
        }))
        .unwrap();
        let expected = Assignment {
            pod: Key::new("ns", "p"),
            pod_uid: "u1".into(),
            node: "n1".into(),
            kind: Received::Fraction,
            gpu_count: 1,
            gpu_portion_milli: Some(500),
            gpu_groups: vec!["7c1f".into()],
            volumes: true,
            ..Assignment::default()
        };
        assert_eq!(read, expected);
    }

    #[track_caller]
    fn check_portion(milli: Option<i64>, gpus: u32, expected: &str) {
        let assignment = Assignment { gpu_portion_milli: milli, gpu_count: gpus, ..Assignment::default() };
        assert_eq!(assignment.portion(), expected);
    }

    #[test]
    fn portions() {
        check_portion(Some(500), 1, "0.50");
        check_portion(Some(10), 1, "0.01");
        check_portion(Some(125), 1, "0.125");
        check_portion(Some(1000), 1, "1.00");
        check_portion(Some(-5), 1, "0.00");
        check_portion(None, 8, "1.00");
        check_portion(None, 0, "0.00");
        assert_eq!(milli("0.5"), Some(500));
        assert_eq!(milli("2"), Some(2000));
        assert_eq!(milli(".25"), Some(250));
        assert_eq!(milli("1e3"), None);
        assert_eq!(milli("-1"), None);
        assert_eq!(milli("99999999999999999999"), None);
    }

    #[test]
    fn which_need_steps() {
        let plain = Assignment { gpu_count: 8, ..Assignment::default() };
        assert!(!plain.needs_steps());
        assert!(!Assignment { zones: Some(json!([])), ..plain.clone() }.needs_steps());
        assert!(Assignment { volumes: true, ..plain.clone() }.needs_steps());
        assert!(Assignment { gpu_groups: vec!["g".into()], ..plain.clone() }.needs_steps());
        assert!(Assignment { claims: vec![("c".into(), json!({}))], ..plain }.needs_steps());
    }

    fn assignments() -> impl Strategy<Value = Assignment> {
        let name = "[a-z][a-z0-9]{0,6}";
        (
            (name, name, name, "[0-9a-f]{0,8}"),
            prop_oneof![Just(Received::Regular), Just(Received::Fraction), Just(Received::MigInstance)],
            (0u32..9, 1i64..1000),
            prop::collection::vec(name, 1..3),
            prop::collection::vec((name, Just(json!({"devices": {}}))), 0..3),
            prop::option::of(Just(json!([{"zone": "z", "amount": {"cpu": "1"}}]))),
            prop::option::of(0i32..9),
        )
            .prop_map(
                |((namespace, pod, node, uid), kind, (count, milli), groups, claims, zones, limit)| {
                    let fraction = kind == Received::Fraction;
                    Assignment {
                        pod: Key::new(namespace, pod),
                        pod_uid: uid,
                        node,
                        kind,
                        gpu_count: count,
                        gpu_portion_milli: fraction.then_some(milli),
                        gpu_groups: if fraction { groups } else { Vec::new() },
                        claims,
                        zones,
                        volumes: true,
                        backoff_limit: limit,
                        ..Assignment::default()
                    }
                },
            )
    }

    proptest! {
        #[test]
        fn written_and_read_back(assignment in assignments()) {
            prop_assert_eq!(read(assignment.to_bind_request()).unwrap(), assignment);
        }

        #[test]
        fn any_spec_is_read_or_refused(text in ".{0,40}", n in any::<i64>()) {
            let _ = read(request(json!({
                "podName": text, "selectedNode": text, "receivedGPU": {"count": n, "portion": text},
                "selectedGPUGroups": [text, n], "resourceClaimAllocations": [n], "backoffLimit": n,
            })));
        }
    }
}
