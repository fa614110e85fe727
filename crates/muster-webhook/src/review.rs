//! AdmissionReview in, AdmissionReview out.
//!
//! In: the path that was called and the review as JSON. Out: the answer as JSON. Must stay true: the answer carries the uid
//! of the question; what is exempt is allowed without a look; no input panics.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::mutate;
use crate::mutate::pod::Grouper;
use crate::request::{Asked, Caller, Operation};
use crate::settings::Settings;
use crate::validate;
use crate::verdict::Verdict;
use crate::world::World;

/// Every question that can be asked, each under a path of its own; those that KAI and Grove have are at their paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    MutatePod,
    ValidatePod,
    ValidateTopology,
    ValidateQueue,
    ValidatePodGroup,
    WarnWorkload,
    WarnShard,
    DefaultSet,
    ValidateSet,
    ValidateClique,
    ValidateScalingGroup,
    ValidateTopologyBinding,
    ProtectManaged,
    /// Pods of T9k's, Koordinator's and Volcano's schedulers, each by the rules of its system.
    ValidateOthersPod,
    ValidateT9kPodGroup,
    ValidateT9kQueue,
    ValidateElasticQuota,
    DefaultVolcanoQueue,
    ValidateVolcanoQueue,
    DefaultVolcanoPodGroup,
    ValidateVolcanoPodGroup,
    DefaultVolcanoJob,
    ValidateVolcanoJob,
    ValidateHyperNode,
    /// Jobs and pods that name a queue of Kueue's, and its kinds.
    DefaultKueueJob,
    ValidateKueueJob,
    DefaultKueuePod,
    ValidateKueuePod,
    DefaultClusterQueue,
    ValidateClusterQueue,
    DefaultFlavor,
    ValidateFlavor,
    ValidateLocalQueue,
    ValidateCohort,
    ValidateAdmissionCheck,
    ValidateKueueWorkload,
}

impl Hook {
    pub const ALL: [Hook; 36] = [
        Hook::MutatePod,
        Hook::ValidatePod,
        Hook::ValidateTopology,
        Hook::ValidateQueue,
        Hook::ValidatePodGroup,
        Hook::WarnWorkload,
        Hook::WarnShard,
        Hook::DefaultSet,
        Hook::ValidateSet,
        Hook::ValidateClique,
        Hook::ValidateScalingGroup,
        Hook::ValidateTopologyBinding,
        Hook::ProtectManaged,
        Hook::ValidateOthersPod,
        Hook::ValidateT9kPodGroup,
        Hook::ValidateT9kQueue,
        Hook::ValidateElasticQuota,
        Hook::DefaultVolcanoQueue,
        Hook::ValidateVolcanoQueue,
        Hook::DefaultVolcanoPodGroup,
        Hook::ValidateVolcanoPodGroup,
        Hook::DefaultVolcanoJob,
        Hook::ValidateVolcanoJob,
        Hook::ValidateHyperNode,
        Hook::DefaultKueueJob,
        Hook::ValidateKueueJob,
        Hook::DefaultKueuePod,
        Hook::ValidateKueuePod,
        Hook::DefaultClusterQueue,
        Hook::ValidateClusterQueue,
        Hook::DefaultFlavor,
        Hook::ValidateFlavor,
        Hook::ValidateLocalQueue,
        Hook::ValidateCohort,
        Hook::ValidateAdmissionCheck,
        Hook::ValidateKueueWorkload,
    ];

    /// Whether it changes objects, rather than judging them.
    pub fn mutates(self) -> bool {
        self == Hook::DefaultSet || self.completes_what_is_new()
    }

    /// Whether it changes objects as they are created, and never again.
    fn completes_what_is_new(self) -> bool {
        matches!(
            self,
            Hook::MutatePod
                | Hook::DefaultVolcanoQueue
                | Hook::DefaultVolcanoPodGroup
                | Hook::DefaultVolcanoJob
                | Hook::DefaultKueueJob
                | Hook::DefaultKueuePod
                | Hook::DefaultClusterQueue
                | Hook::DefaultFlavor
        )
    }

    /// Whether it is asked about updates too.
    pub fn sees_updates(self) -> bool {
        !self.completes_what_is_new()
    }

    /// The hooks that a request passes in a server that asks in its own process, where no registration sorts out who is asked. Of the parts of
    /// objects only a new number of replicas is looked at, as the object would be with it.
    pub fn passed(
        group: &str,
        plural: &str,
        part: Option<&str>,
        operation: Operation,
        mutating: bool,
    ) -> impl Iterator<Item = Hook> + use<> {
        let hooks = if part.is_none_or(|part| part == "scale") { Hook::of(group, plural) } else { &[] };
        hooks.iter().copied().filter(move |hook| {
            let is_seen = match operation {
                Operation::Update => hook.sees_updates(),
                Operation::Delete => !mutating,
                _ => true,
            };
            hook.mutates() == mutating && is_seen
        })
    }

    pub fn path(self) -> &'static str {
        match self {
            Hook::MutatePod => "/mutate--v1-pod",
            Hook::ValidatePod => "/validate--v1-pod",
            Hook::ValidateTopology => "/validate-kai-scheduler-v1alpha1-topology",
            Hook::ValidateQueue => "/validate-scheduling-run-ai-v2-queue",
            Hook::ValidatePodGroup => "/validate-scheduling-run-ai-v2alpha2-podgroup",
            Hook::WarnWorkload => "/warn-workload",
            Hook::WarnShard => "/warn-kai-scheduler-v1-schedulingshard",
            Hook::DefaultSet => "/webhooks/default-podcliqueset",
            Hook::ValidateSet => "/webhooks/validate-podcliqueset",
            Hook::ValidateClique => "/validate-grove-io-v1alpha1-podclique",
            Hook::ValidateScalingGroup => "/validate-grove-io-v1alpha1-podcliquescalinggroup",
            Hook::ValidateTopologyBinding => "/webhooks/validate-clustertopology",
            Hook::ProtectManaged => "/webhooks/authorizer-webhook",
            Hook::ValidateOthersPod => "/pods/validate",
            Hook::ValidateT9kPodGroup => "/validate-scheduler-tensorstack-dev-v1beta1-podgroup",
            Hook::ValidateT9kQueue => "/validate-scheduler-tensorstack-dev-v1beta1-queue",
            Hook::ValidateElasticQuota => "/validate-scheduling-sigs-k8s-io-v1alpha1-elasticquota",
            Hook::DefaultVolcanoQueue => "/queues/mutate",
            Hook::ValidateVolcanoQueue => "/queues/validate",
            Hook::DefaultVolcanoPodGroup => "/podgroups/mutate",
            Hook::ValidateVolcanoPodGroup => "/podgroups/validate",
            Hook::DefaultVolcanoJob => "/jobs/mutate",
            Hook::ValidateVolcanoJob => "/jobs/validate",
            Hook::ValidateHyperNode => "/hypernodes/validate",
            Hook::DefaultKueueJob => "/mutate-batch-v1-job",
            Hook::ValidateKueueJob => "/validate-batch-v1-job",
            // Kueue's path is KAI's.
            Hook::DefaultKueuePod => "/kueue/mutate--v1-pod",
            Hook::ValidateKueuePod => "/kueue/validate--v1-pod",
            Hook::DefaultClusterQueue => "/mutate-kueue-x-k8s-io-v1beta2-clusterqueue",
            Hook::ValidateClusterQueue => "/validate-kueue-x-k8s-io-v1beta2-clusterqueue",
            Hook::DefaultFlavor => "/mutate-kueue-x-k8s-io-v1beta2-resourceflavor",
            Hook::ValidateFlavor => "/validate-kueue-x-k8s-io-v1beta2-resourceflavor",
            Hook::ValidateLocalQueue => "/validate-kueue-x-k8s-io-v1beta2-localqueue",
            Hook::ValidateCohort => "/validate-kueue-x-k8s-io-v1beta2-cohort",
            Hook::ValidateAdmissionCheck => "/validate-kueue-x-k8s-io-v1beta2-admissioncheck",
            Hook::ValidateKueueWorkload => "/validate-kueue-x-k8s-io-v1beta2-workload",
        }
    }

    pub fn at(path: &str) -> Option<Hook> {
        Hook::ALL.into_iter().find(|hook| hook.path() == path)
    }

    /// The hooks that look at an object of this kind, in the order in which they are called; for a server that asks in its
    /// own process.
    pub fn of(group: &str, plural: &str) -> &'static [Hook] {
        match (group, plural) {
            ("", "pods") => &[
                Hook::MutatePod,
                Hook::DefaultKueuePod,
                Hook::ValidatePod,
                Hook::ValidateOthersPod,
                Hook::ValidateKueuePod,
            ],
            ("batch", "jobs") => &[Hook::DefaultKueueJob, Hook::WarnWorkload, Hook::ValidateKueueJob],
            ("kueue.x-k8s.io", "clusterqueues") => &[Hook::DefaultClusterQueue, Hook::ValidateClusterQueue],
            ("kueue.x-k8s.io", "resourceflavors") => &[Hook::DefaultFlavor, Hook::ValidateFlavor],
            ("kueue.x-k8s.io", "localqueues") => &[Hook::ValidateLocalQueue],
            ("kueue.x-k8s.io", "cohorts") => &[Hook::ValidateCohort],
            ("kueue.x-k8s.io", "admissionchecks") => &[Hook::ValidateAdmissionCheck],
            ("kueue.x-k8s.io", "workloads") => &[Hook::ValidateKueueWorkload],
            ("scheduler.tensorstack.dev", "podgroups") => &[Hook::ValidateT9kPodGroup],
            ("scheduler.tensorstack.dev", "queues") => &[Hook::ValidateT9kQueue],
            ("scheduling.sigs.k8s.io", "elasticquotas") => &[Hook::ValidateElasticQuota],
            ("scheduling.volcano.sh", "queues") => &[Hook::DefaultVolcanoQueue, Hook::ValidateVolcanoQueue],
            ("scheduling.volcano.sh", "podgroups") => {
                &[Hook::DefaultVolcanoPodGroup, Hook::ValidateVolcanoPodGroup]
            }
            ("batch.volcano.sh", "jobs") => &[Hook::DefaultVolcanoJob, Hook::ValidateVolcanoJob],
            ("topology.volcano.sh", "hypernodes") => &[Hook::ValidateHyperNode],
            ("kai.scheduler", "topologies") => &[Hook::ValidateTopology],
            ("kai.scheduler", "schedulingshards") => &[Hook::WarnShard],
            ("scheduling.run.ai", "queues") => &[Hook::ValidateQueue],
            ("scheduling.run.ai", "podgroups") => &[Hook::ValidatePodGroup],
            ("batch", "cronjobs") | ("apps", "deployments" | "statefulsets") => &[Hook::WarnWorkload],
            ("grove.io", "podcliquesets") => &[Hook::DefaultSet, Hook::ValidateSet],
            ("grove.io", "podcliques") => &[Hook::ValidateClique],
            ("grove.io", "podcliquescalinggroups") => &[Hook::ValidateScalingGroup],
            ("grove.io", "clustertopologybindings") => &[Hook::ValidateTopologyBinding],
            _ => &[],
        }
    }
}

/// A review that cannot be answered.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    #[error("the body is no AdmissionReview")]
    Body(#[from] serde_json::Error),
    #[error("the review is {kind} of {api_version} and not AdmissionReview of admission.k8s.io/v1")]
    Kind { kind: String, api_version: String },
    #[error("the review has no request")]
    NoRequest,
    #[error("the operation {0:?} is not known")]
    Operation(String),
}

/// Everything that answers need.
#[derive(Clone)]
pub struct Reviewer {
    pub settings: Arc<Settings>,
    pub world: Arc<dyn World>,
    pub grouper: Option<Grouper>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    api_version: String,
    request: Option<Request>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    uid: String,
    operation: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    object: Value,
    #[serde(default)]
    old_object: Value,
    #[serde(default)]
    sub_resource: String,
    #[serde(default)]
    user_info: UserInfo,
}

#[derive(Deserialize, Default)]
struct UserInfo {
    #[serde(default)]
    username: String,
}

impl Reviewer {
    /// The answer to the body of a webhook call.
    pub fn answer(&self, hook: Hook, body: &[u8]) -> Result<Value, ReviewError> {
        let review: Review = serde_json::from_slice(body)?;
        if review.kind != "AdmissionReview" || review.api_version != "admission.k8s.io/v1" {
            return Err(ReviewError::Kind { kind: review.kind, api_version: review.api_version });
        }
        let request = review.request.ok_or(ReviewError::NoRequest)?;
        let operation =
            Operation::read(&request.operation).ok_or(ReviewError::Operation(request.operation.clone()))?;
        let name = match request.name.as_str() {
            "" => request.object["metadata"]["name"].as_str().unwrap_or_default(),
            name => name,
        };
        let verdict = self.judge_for(
            hook,
            &Asked {
                operation,
                namespace: &request.namespace,
                name,
                uid: &request.uid,
                object: &request.object,
                old: &request.old_object,
            },
            &Caller { user: &request.user_info.username, subresource: &request.sub_resource },
        );
        if !verdict.allows() {
            let Request { namespace, .. } = &request;
            tracing::info!(path = hook.path(), namespace, name, refusal = verdict.refusal(), "refused");
        }
        Ok(json!({
            "kind": "AdmissionReview",
            "apiVersion": "admission.k8s.io/v1",
            "response": response(&request.uid, &request.object, &verdict),
        }))
    }

    /// The verdict on a request for a whole object, by nobody in particular.
    pub fn judge(&self, hook: Hook, asked: &Asked<'_>) -> Verdict {
        self.judge_for(hook, asked, &Caller::default())
    }

    /// The verdict on one request.
    pub fn judge_for(&self, hook: Hook, asked: &Asked<'_>, caller: &Caller<'_>) -> Verdict {
        let (settings, world) = (&*self.settings, &*self.world);
        if settings.is_exempt(asked.namespace) {
            return Verdict::default();
        }
        match hook {
            Hook::MutatePod => mutate::pod::mutate(asked, settings, world, self.grouper.as_ref()),
            Hook::ValidatePod => validate::pod::validate(asked, settings, world),
            Hook::ValidateTopology => validate::topology::validate(asked, settings, world),
            Hook::ValidateQueue => validate::queue::validate(asked, settings, world),
            Hook::ValidatePodGroup => validate::podgroup::validate(asked, settings, world),
            Hook::WarnWorkload => validate::workload::validate(asked, settings, world),
            Hook::WarnShard => validate::shard::validate(asked, settings, world),
            Hook::DefaultSet => mutate::set::mutate(asked, caller),
            Hook::ValidateSet => validate::grove::set(asked, caller, settings, world),
            Hook::ValidateClique => validate::grove::clique(asked, world),
            Hook::ValidateScalingGroup => validate::grove::group(asked, world),
            Hook::ValidateTopologyBinding => validate::grove::binding(asked, settings, world),
            Hook::ProtectManaged => validate::grove::protect(asked, caller, settings, world),
            Hook::ValidateOthersPod => self.pod_of_another(asked),
            Hook::ValidateT9kPodGroup => validate::t9k::group(asked, world),
            Hook::ValidateT9kQueue => validate::t9k::queue(asked),
            Hook::ValidateElasticQuota => validate::koordinator::quota(asked, world),
            Hook::DefaultVolcanoQueue => mutate::volcano::queue(asked),
            Hook::ValidateVolcanoQueue => validate::volcano::queue(asked, world),
            Hook::DefaultVolcanoPodGroup => mutate::volcano::pod_group(asked, world),
            Hook::ValidateVolcanoPodGroup => validate::volcano::pod_group(asked, world),
            Hook::DefaultVolcanoJob => mutate::volcano::job(asked, settings.others.of_volcano()),
            Hook::ValidateVolcanoJob => validate::volcano::job(asked, world),
            Hook::ValidateHyperNode => validate::volcano::hyper_node(asked),
            _ => self.of_kueue(hook, asked),
        }
    }

    /// What concerns Kueue, where it is looked after and nobody else does so.
    fn of_kueue(&self, hook: Hook, asked: &Asked<'_>) -> Verdict {
        let Some(managed) = &self.settings.kueue else { return Verdict::default() };
        let world = &*self.world;
        if !world.keeps_kueue() {
            return Verdict::default();
        }
        match hook {
            Hook::DefaultKueueJob => mutate::kueue::job(asked, managed, world),
            Hook::DefaultKueuePod => mutate::kueue::pod(asked, managed, world),
            Hook::DefaultClusterQueue => mutate::kueue::cluster_queue(asked),
            Hook::DefaultFlavor => mutate::kueue::flavor(asked),
            Hook::ValidateKueueJob => validate::kueue::job(asked, managed, world),
            Hook::ValidateKueuePod => validate::kueue::pod(asked, managed, world),
            Hook::ValidateClusterQueue => validate::kueue::cluster_queue(asked),
            Hook::ValidateFlavor => validate::kueue::flavor(asked),
            Hook::ValidateLocalQueue => validate::kueue::local_queue(asked),
            Hook::ValidateCohort => validate::kueue::cohort(asked),
            Hook::ValidateAdmissionCheck => validate::kueue::check(asked),
            Hook::ValidateKueueWorkload => validate::kueue::workload(asked),
            _ => Verdict::default(),
        }
    }

    /// A pod by the rules of the system whose scheduler it names.
    fn pod_of_another(&self, asked: &Asked<'_>) -> Verdict {
        let pod = if asked.operation == Operation::Delete { asked.old } else { asked.object };
        let scheduler = pod["spec"]["schedulerName"].as_str().unwrap_or_default();
        let others = &self.settings.others;
        let is_of = |names: &[String]| names.iter().any(|name| name == scheduler);
        if is_of(&others.t9k) {
            validate::t9k::pod(asked, &*self.world)
        } else if is_of(&others.koordinator) {
            validate::koordinator::pod(asked, &*self.world)
        } else if is_of(&others.volcano) {
            validate::volcano::pod(asked)
        } else {
            Verdict::default()
        }
    }
}

fn response(uid: &str, object: &Value, verdict: &Verdict) -> Value {
    let mut response = json!({"uid": uid, "allowed": verdict.allows()});
    if !verdict.warnings.is_empty() {
        response["warnings"] = json!(verdict.warnings);
    }
    if !verdict.allows() {
        let causes: Vec<Value> = verdict
            .errors
            .iter()
            .map(|error| json!({"reason": "FieldValueInvalid", "field": error.field, "message": error.message}))
            .collect();
        response["status"] = json!({
            "status": "Failure", "code": 422, "reason": "Invalid",
            "message": verdict.refusal(), "details": {"causes": causes},
        });
    } else if verdict.made.is_some() {
        // A patch is operations on JSON, so it is JSON.
        let patch = serde_json::to_vec(&verdict.patch_of(object)).unwrap_or_default();
        response["patchType"] = "JSONPatch".into();
        response["patch"] = STANDARD.encode(patch).into();
    }
    response
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::world::Given;

    fn reviewer() -> Reviewer {
        let settings = Settings {
            device_access: true,
            hami_core: true,
            quota_validation: true,
            kueue: Some(Default::default()),
            ..Settings::default()
        };
        let queue = |name: &str, parent: &str| {
            let queue = json!({"metadata": {"name": name}, "spec": {"parentQueue": parent}});
            (name.to_owned(), Arc::new(serde_json::from_value(queue).unwrap()))
        };
        let namespace = json!({"metadata": {"labels": {"muster.dev/scheduler": "kai-scheduler", "muster.dev/queue": "q"}}});
        let world = Given {
            queues: Some([queue("a", "b"), queue("b", "a"), queue("q", "")].into()),
            namespaces: [("".to_owned(), Arc::new(serde_json::from_value(namespace).unwrap()))].into(),
            priority_classes: Some(Default::default()),
            runtime_classes: Some(["nvidia".to_owned()].into()),
            local_queues: Some([("".to_owned(), "default".to_owned())].into()),
            ..Given::default()
        };
        let grouper: Grouper = Arc::new(|_| Some(Default::default()));
        Reviewer { settings: Arc::new(settings), world: Arc::new(world), grouper: Some(grouper) }
    }

    fn review(operation: &str, namespace: &str, object: Value) -> Vec<u8> {
        let request = json!({"uid": "u1", "operation": operation, "namespace": namespace, "object": object});
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request})
            .to_string()
            .into_bytes()
    }

    fn bad_pod() -> Value {
        json!({"metadata": {"annotations": {"gpu-fraction": "2"}, "labels": {"queue": "x"}},
               "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "a"}]}})
    }

    #[test]
    fn answers() {
        let answer = reviewer().answer(Hook::ValidatePod, &review("CREATE", "ns", bad_pod())).unwrap();
        let message = "\"2\" is no number between 0 and 1; write for example \"0.5\", or remove it and ask for whole GPUs \
                       with the limit nvidia.com/gpu";
        let field = "metadata.annotations[gpu-fraction]";
        assert_eq!(
            answer,
            json!({
                "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
                "response": {
                    "uid": "u1", "allowed": false,
                    "warnings": ["metadata.labels[queue]: no such key; write the label kai.scheduler/queue"],
                    "status": {
                        "status": "Failure", "code": 422, "reason": "Invalid", "message": format!("{field}: {message}"),
                        "details": {"causes": [{"reason": "FieldValueInvalid", "field": field, "message": message}]},
                    },
                },
            })
        );
        let answer =
            reviewer().answer(Hook::ValidatePod, &review("CREATE", "kube-system", bad_pod())).unwrap();
        assert_eq!(answer["response"], json!({"uid": "u1", "allowed": true}));
        let answer = reviewer().answer(Hook::MutatePod, &review("CREATE", "ns", bad_pod())).unwrap();
        let patch = STANDARD.decode(answer["response"]["patch"].as_str().unwrap()).unwrap();
        let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
        assert!(!patch.is_empty());
        assert_eq!(answer["response"]["patchType"], "JSONPatch");
    }

    #[track_caller]
    fn check_error(body: &str, expected: &str) {
        let error = reviewer().answer(Hook::ValidatePod, body.as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn what_is_no_review() {
        check_error("nonsense", "the body is no AdmissionReview");
        check_error("{}", "the review is  of  and not AdmissionReview of admission.k8s.io/v1");
        let head = r#""kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1""#;
        check_error(&format!("{{{head}}}"), "the review has no request");
        check_error(
            &format!(r#"{{{head}, "request": {{"uid": "u", "operation": "EAT"}}}}"#),
            "the operation \"EAT\" is not known",
        );
    }

    #[test]
    fn paths() {
        for hook in Hook::ALL {
            assert_eq!(Hook::at(hook.path()), Some(hook));
        }
        assert_eq!(Hook::at("/"), None);
    }

    /// Objects made of the words that rules look for, in places where they expect other things.
    fn objects() -> impl Strategy<Value = Value> {
        let words = prop::sample::select(vec![
            "kai-scheduler",
            "a",
            "b",
            "q",
            "0.5",
            "2",
            "-1",
            "1e999",
            "",
            "true",
            "nvidia.com/gpu",
            "void",
            "ü",
        ]);
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            words.prop_map(Value::from),
        ];
        leaf.prop_recursive(6, 64, 6, |inner| {
            let keys = prop::sample::select(vec![
                "metadata",
                "spec",
                "name",
                "labels",
                "annotations",
                "containers",
                "initContainers",
                "resources",
                "limits",
                "requests",
                "nvidia.com/gpu",
                "env",
                "envFrom",
                "volumes",
                "valueFrom",
                "schedulerName",
                "gpu-fraction",
                "gpu-memory",
                "gpu-fraction-container-name",
                "runai/shared-gpu-configmap",
                "kai.scheduler/queue",
                "kai.scheduler/que",
                "subGroups",
                "parent",
                "minMember",
                "minSubGroup",
                "levels",
                "alias",
                "nodeLabel",
                "parentQueue",
                "quota",
                "limit",
                "gpu",
                "cpu",
                "template",
                "jobTemplate",
                "status",
                "childQueues",
                "ownerReferences",
                "deletionTimestamp",
                "NVIDIA_VISIBLE_DEVICES",
                "kueue.x-k8s.io/queue-name",
                "kueue.x-k8s.io/managed",
                "kueue.x-k8s.io/pod-group-name",
                "kueue.x-k8s.io/pod-group-total-count",
                "kueue.x-k8s.io/job-min-parallelism",
                "kueue.x-k8s.io/podset-required-topology",
                "kueue.x-k8s.io/podset-slice-size",
                "parallelism",
                "suspend",
                "schedulingGates",
                "finalizers",
                "podSets",
                "minCount",
                "resourceGroups",
                "flavors",
                "coveredResources",
            ]);
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((keys, inner), 0..8)
                    .prop_map(|m| Value::Object(m.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())),
            ]
        })
    }

    /// A pod-like frame around random parts, so that rules get past their first look.
    fn pods() -> impl Strategy<Value = Value> {
        (objects(), objects(), objects(), objects()).prop_map(|(annotations, labels, containers, rest)| {
            json!({
                "metadata": {"name": rest, "annotations": annotations, "labels": labels, "ownerReferences": rest},
                "spec": {"schedulerName": "kai-scheduler", "containers": containers, "initContainers": rest,
                         "volumes": rest, "resources": labels, "subGroups": containers, "levels": containers},
            })
        })
    }

    proptest! {
        #[test]
        fn no_object_panics(object in prop_oneof![objects(), pods()], old in prop_oneof![objects(), pods()]) {
            let reviewer = reviewer();
            for hook in Hook::ALL {
                for operation in [Operation::Create, Operation::Update, Operation::Delete, Operation::Connect] {
                    let asked = Asked { operation, namespace: "", name: "q", uid: "u", object: &object, old: &old };
                    let verdict = reviewer.judge(hook, &asked);
                    if hook.mutates() && verdict.allows() {
                        // What a server is told over the wire comes to the same.
                        let mut made = object.clone();
                        json_patch::patch(&mut made, &verdict.patch_of(&object)).unwrap();
                        prop_assert_eq!(&made, verdict.made.as_ref().unwrap_or(&object));
                        let again = reviewer.judge(hook, &Asked { object: &made, ..asked });
                        prop_assert_eq!(again.made, None);
                    }
                    if operation == Operation::Update && object == old {
                        prop_assert!(verdict.allows());
                    }
                }
            }
        }

        #[test]
        fn no_body_panics(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = reviewer().answer(Hook::ValidatePod, &body);
        }
    }
}
