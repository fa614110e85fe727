//! The configurations that make an API server ask us.
//!
//! In: how we are reached and what is asked. Out: one ValidatingWebhookConfiguration and one
//! MutatingWebhookConfiguration, kept as they should be. Must stay true: no webhook is ever called for the cluster's own
//! namespaces or for Muster's, so that neither can be blocked by a webhook that is down; writes happen only on change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use muster_kueue::keys;
use muster_runtime::api::Delete;
use muster_runtime::{Api, ApiError, Context};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::Standing;
use crate::defaults::NAMESPACE_SCHEDULER;
use crate::review::Hook;
use crate::settings::{DEFAULT_SCHEDULER, Settings};
use crate::world::{Watched, World};

/// How the API server reaches us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// Through a Service in the cluster.
    Service { namespace: String, name: String, port: u16 },
    /// Under a URL such as `https://127.0.0.1:9443`; `None` for the address that is listened on.
    Url(Option<String>),
}

/// What becomes of a request when we do not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailurePolicy {
    Fail,
    Ignore,
}

impl FailurePolicy {
    fn word(self) -> &'static str {
        match self {
            FailurePolicy::Fail => "Fail",
            FailurePolicy::Ignore => "Ignore",
        }
    }
}

/// What the configurations say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// The name of both configurations.
    pub name: String,
    pub reach: Reach,
    /// Whether the server evaluates match conditions. The embedded one does not; there every pod is sent, and those that
    /// are not ours are allowed here.
    pub match_conditions: bool,
    /// For pods; `None`: Fail where match conditions keep other schedulers' pods out of it, else Ignore.
    pub pods: Option<FailurePolicy>,
    /// Only pods with these labels are sent.
    pub pod_labels: BTreeMap<String, String>,
    /// Only objects of namespaces with these labels are sent.
    pub namespace_labels: BTreeMap<String, String>,
    /// Only pods that name a queue by label are sent.
    pub only_with_queue: bool,
    /// Writes of this namespace's service accounts are not reviewed: Muster need not check itself.
    pub own_namespace: String,
}

impl Registration {
    fn pod_policy(&self) -> FailurePolicy {
        self.pods.unwrap_or(if self.match_conditions { FailurePolicy::Fail } else { FailurePolicy::Ignore })
    }
}

/// What of Kueue is in the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OfKueue {
    /// Plurals of its kinds; none while Kueue itself keeps them.
    pub kinds: BTreeSet<String>,
    /// Namespaces with a queue for jobs that name none, in order.
    pub with_default_queue: Vec<String>,
}

const VALIDATING: &str = "ValidatingWebhookConfiguration";
const MUTATING: &str = "MutatingWebhookConfiguration";

/// The two configurations. `base` is the URL for [`Reach::Url`]; the bundle is PEM.
pub fn configurations(
    registration: &Registration,
    settings: &Settings,
    base: &str,
    bundle: &str,
    kueue: &OfKueue,
) -> [Value; 2] {
    let writer = Writer { registration, settings, base, ca: STANDARD.encode(bundle) };
    let pods = registration.pod_policy();
    let rule = |group: &str, version: &str, plural: &str, operations: &[&str], scope: &str| {
        json!({"apiGroups": [group], "apiVersions": [version], "resources": [plural],
               "operations": operations, "scope": scope})
    };
    let new_pods = rule("", "v1", "pods", &["CREATE"], "Namespaced");
    let default_expression = json!({"key": NAMESPACE_SCHEDULER, "operator": "Exists"});
    let no_default_expression = json!({"key": NAMESPACE_SCHEDULER, "operator": "DoesNotExist"});
    let mut here: Vec<&str> = settings.scheduler_names.iter().map(String::as_str).collect();
    if !here.contains(&DEFAULT_SCHEDULER) {
        here.push(DEFAULT_SCHEDULER);
    }
    let mut mutating = vec![
        writer.webhook(
            "pods",
            Hook::MutatePod,
            pods,
            json!([new_pods]),
            &[no_default_expression],
            vec![writer.scheduler_is("object.spec", &settings.scheduler_names)],
        ),
        // Where the namespace names a scheduler, pods that name none are ours too.
        writer.webhook(
            "defaults",
            Hook::MutatePod,
            pods,
            json!([new_pods]),
            &[default_expression],
            vec![writer.scheduler_is("object.spec", &here)],
        ),
        writer.webhook(
            "podcliquesets",
            Hook::DefaultSet,
            FailurePolicy::Fail,
            json!([rule("grove.io", "v1alpha1", "podcliquesets", &["CREATE", "UPDATE"], "Namespaced")]),
            &[],
            vec![],
        ),
    ];

    let mut validating = vec![
        writer.webhook(
            "pods",
            Hook::ValidatePod,
            pods,
            json!([rule("", "v1", "pods", &["CREATE", "UPDATE"], "Namespaced")]),
            &[],
            vec![
                writer.scheduler_is("object.spec", &settings.scheduler_names),
                json!({"name": "says-something-new", "expression": SAYS_SOMETHING_NEW}),
                writer.not_our_own(),
            ],
        ),
        writer.webhook(
            "queues",
            Hook::ValidateQueue,
            FailurePolicy::Fail,
            json!([rule("scheduling.run.ai", "v2", "queues", &["CREATE", "UPDATE", "DELETE"], "Cluster")]),
            &[],
            vec![],
        ),
        writer.webhook(
            "podgroups",
            Hook::ValidatePodGroup,
            FailurePolicy::Fail,
            json!([rule("scheduling.run.ai", "v2alpha2", "podgroups", &["CREATE", "UPDATE"], "Namespaced")]),
            &[],
            vec![writer.not_our_own()],
        ),
        writer.webhook(
            "topologies",
            Hook::ValidateTopology,
            FailurePolicy::Fail,
            json!([rule("kai.scheduler", "v1alpha1", "topologies", &["CREATE", "UPDATE"], "Cluster")]),
            &[],
            vec![],
        ),
    ];
    validating.push(writer.webhook(
        "shards",
        Hook::WarnShard,
        FailurePolicy::Ignore,
        json!([rule("kai.scheduler", "v1", "schedulingshards", &["CREATE", "UPDATE"], "Cluster")]),
        &[],
        vec![],
    ));
    if settings.workload_warnings {
        let workloads = |group: &str, plurals: &[&str]| {
            json!({"apiGroups": [group], "apiVersions": ["v1"], "resources": plurals,
                   "operations": ["CREATE", "UPDATE"], "scope": "Namespaced"})
        };
        validating.push(writer.webhook(
            "workloads",
            Hook::WarnWorkload,
            FailurePolicy::Ignore,
            json!([
                workloads("batch", &["jobs", "cronjobs"]),
                workloads("apps", &["deployments", "statefulsets"])
            ]),
            &[],
            vec![writer.scheduler_is(TEMPLATE_SPEC, &settings.scheduler_names)],
        ));
    }
    validating.extend(writer.grove());
    let (filled_in, judged) = writer.others();
    mutating.extend(filled_in);
    validating.extend(judged);
    let (filled_in, judged) = writer.kueue(kueue);
    mutating.extend(filled_in);
    validating.extend(judged);
    let head = |kind: &str, webhooks: Vec<Value>| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"name": registration.name, "labels": {"app.kubernetes.io/managed-by": "muster"}},
            "webhooks": webhooks,
        })
    };
    [head(MUTATING, mutating), head(VALIDATING, validating)]
}

/// Most updates of pods change neither labels nor annotations.
const SAYS_SOMETHING_NEW: &str = "request.operation != 'UPDATE' || \
    (has(object.metadata.annotations) ? object.metadata.annotations : {}) != \
    (has(oldObject.metadata.annotations) ? oldObject.metadata.annotations : {}) || \
    (has(object.metadata.labels) ? object.metadata.labels : {}) != \
    (has(oldObject.metadata.labels) ? oldObject.metadata.labels : {})";

/// Where a workload's pods are described.
const TEMPLATE_SPEC: &str =
    "(has(object.spec.jobTemplate) ? object.spec.jobTemplate.spec.template.spec : object.spec.template.spec)";

struct Writer<'a> {
    registration: &'a Registration,
    settings: &'a Settings,
    base: &'a str,
    ca: String,
}

impl Writer<'_> {
    /// Grove's kinds, and where it is asked for, everything that belongs to a set.
    fn grove(&self) -> Vec<Value> {
        let rule = |group: &str, version: &str, plurals: &[&str], operations: &[&str], scope: &str| {
            json!({"apiGroups": [group], "apiVersions": [version], "resources": plurals,
                   "operations": operations, "scope": scope})
        };
        let written = &["CREATE", "UPDATE"];
        let of =
            |plurals: &[&str], scope: &str| json!([rule("grove.io", "v1alpha1", plurals, written, scope)]);
        let fail = FailurePolicy::Fail;
        let mut all = vec![
            self.webhook(
                "podcliquesets",
                Hook::ValidateSet,
                fail,
                of(&["podcliquesets"], "Namespaced"),
                &[],
                vec![],
            ),
            // Muster need not check what it makes itself; scaling is what others do.
            self.webhook(
                "podcliques",
                Hook::ValidateClique,
                fail,
                of(&["podcliques", "podcliques/scale"], "Namespaced"),
                &[],
                vec![self.not_our_own()],
            ),
            self.webhook(
                "podcliquescalinggroups",
                Hook::ValidateScalingGroup,
                fail,
                of(&["podcliquescalinggroups", "podcliquescalinggroups/scale"], "Namespaced"),
                &[],
                vec![self.not_our_own()],
            ),
            self.webhook(
                "clustertopologybindings",
                Hook::ValidateTopologyBinding,
                fail,
                of(&["clustertopologybindings"], "Cluster"),
                &[],
                vec![],
            ),
        ];
        if self.settings.grove.protect {
            let any = &["CREATE", "UPDATE", "DELETE"];
            let within = |group, version, plurals: &[&str]| rule(group, version, plurals, any, "Namespaced");
            let mut webhook = self.webhook(
                "managed",
                Hook::ProtectManaged,
                fail,
                json!([
                    // Binders and groupers mark pods, and anybody may delete one.
                    rule("", "v1", &["pods"], &["CREATE"], "Namespaced"),
                    within("", "v1", &["services", "serviceaccounts", "secrets"]),
                    within("grove.io", "v1alpha1", &["podcliques", "podcliquescalinggroups"]),
                    within("scheduler.grove.io", "v1alpha1", &["podgangs"]),
                    within("rbac.authorization.k8s.io", "v1", &["roles", "rolebindings"]),
                    within("autoscaling", "v2", &["horizontalpodautoscalers"]),
                    within("resource.k8s.io", "v1", &["resourceclaims"]),
                ]),
                &[],
                vec![self.not_our_own()],
            );
            webhook["objectSelector"] =
                json!({"matchLabels": {"app.kubernetes.io/managed-by": "grove-operator"}});
            all.push(webhook);
        }
        all
    }

    /// The kinds of T9k, Koordinator and Volcano, and pods of their schedulers: what is filled in, and what is judged.
    fn others(&self) -> (Vec<Value>, Vec<Value>) {
        let one = |name: &str, hook: Hook, group: &str, version: &str, plural: &str, scope: &str| {
            let operations: &[&str] = match hook {
                hook if !hook.sees_updates() => &["CREATE"],
                Hook::ValidateVolcanoQueue | Hook::ValidateElasticQuota => &["CREATE", "UPDATE", "DELETE"],
                _ => &["CREATE", "UPDATE"],
            };
            let rules = json!([{"apiGroups": [group], "apiVersions": [version], "resources": [plural],
                                "operations": operations, "scope": scope}]);
            // Their own admission may be there too, and work must not stop where nobody asked for ours.
            self.webhook(name, hook, FailurePolicy::Ignore, rules, &[], vec![])
        };
        let (t9k, volcano) = ("scheduler.tensorstack.dev", "scheduling.volcano.sh");
        let (of, here) = ("Namespaced", "Cluster");
        let filled_in = vec![
            one("volcano-queues", Hook::DefaultVolcanoQueue, volcano, "v1beta1", "queues", here),
            one("volcano-podgroups", Hook::DefaultVolcanoPodGroup, volcano, "v1beta1", "podgroups", of),
            one("volcano-jobs", Hook::DefaultVolcanoJob, "batch.volcano.sh", "v1alpha1", "jobs", of),
        ];
        let pods = json!([{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
                           "operations": ["CREATE", "UPDATE"], "scope": of}]);
        let conditions = vec![
            self.scheduler_is("object.spec", &self.settings.others.names()),
            json!({"name": "says-something-new", "expression": SAYS_SOMETHING_NEW}),
            self.not_our_own(),
        ];
        let quotas = "scheduling.sigs.k8s.io";
        let mut judged = vec![
            one("t9k-podgroups", Hook::ValidateT9kPodGroup, t9k, "v1beta1", "podgroups", of),
            one("t9k-queues", Hook::ValidateT9kQueue, t9k, "v1beta1", "queues", of),
            one("elasticquotas", Hook::ValidateElasticQuota, quotas, "v1alpha1", "elasticquotas", of),
            one("volcano-queues", Hook::ValidateVolcanoQueue, volcano, "v1beta1", "queues", here),
            one("volcano-podgroups", Hook::ValidateVolcanoPodGroup, volcano, "v1beta1", "podgroups", of),
            one("volcano-jobs", Hook::ValidateVolcanoJob, "batch.volcano.sh", "v1alpha1", "jobs", of),
            one("hypernodes", Hook::ValidateHyperNode, "topology.volcano.sh", "v1alpha1", "hypernodes", here),
        ];
        // Without conditions every pod of the cluster would be sent for the few that are meant.
        if self.registration.match_conditions {
            let ignore = FailurePolicy::Ignore;
            judged.push(self.webhook("others-pods", Hook::ValidateOthersPod, ignore, pods, &[], conditions));
        }
        (filled_in, judged)
    }

    /// Jobs and pods that name a queue of Kueue's, and those of its kinds that are there: what is filled in, and what is judged. Whatever names no
    /// queue is not sent, unless its namespace has one for it or everything is to wait.
    fn kueue(&self, there: &OfKueue) -> (Vec<Value>, Vec<Value>) {
        let Some(managed) = self.settings.kueue.as_ref().filter(|_| there.kinds.contains("localqueues"))
        else {
            return (Vec::new(), Vec::new());
        };
        let (fail, ignore) = (FailurePolicy::Fail, FailurePolicy::Ignore);
        let (of, here) = ("Namespaced", "Cluster");
        let rules = |group: &str, version: &str, plural: &str, operations: &[&str], scope: &str| {
            json!([{"apiGroups": [group], "apiVersions": [version], "resources": [plural],
                    "operations": operations, "scope": scope}])
        };
        let (new, written) = (&["CREATE"][..], &["CREATE", "UPDATE"][..]);
        let (jobs, pods) =
            (|ops| rules("batch", "v1", "jobs", ops, of), |ops| rules("", "v1", "pods", ops, of));
        let labelled =
            |key: &str, operator: &str| json!({"matchExpressions": [{"key": key, "operator": operator}]});
        let mut spaces: Vec<Value> = managed
            .namespaces
            .match_labels
            .iter()
            .map(|(key, value)| json!({"key": key, "operator": "In", "values": [value]}))
            .collect();
        spaces.extend(managed.namespaces.match_expressions.iter().map(|expression| json!(expression)));
        let of_jobs = |name, hook, policy, rules, spaces: &[Value], selector: Value, conditions| {
            let mut webhook = self.webhook(name, hook, policy, rules, spaces, conditions);
            webhook["objectSelector"] = selector;
            webhook
        };

        let mut filled_in = Vec::new();
        let mut judged = Vec::new();
        if managed.has("batch/job") {
            let hook = Hook::DefaultKueueJob;
            let named = labelled(keys::QUEUE, "Exists");
            let unnamed = labelled(keys::QUEUE, "DoesNotExist");
            filled_in.push(of_jobs("kueue-jobs", hook, fail, jobs(new), &spaces, named.clone(), vec![]));
            // A job that slips through is suspended a moment later, and work must not stop where no queue was named.
            if managed.without_queue {
                filled_in.push(of_jobs("kueue-all-jobs", hook, ignore, jobs(new), &spaces, unnamed, vec![]));
            } else if !there.with_default_queue.is_empty() {
                let mut spaces = spaces.clone();
                if there.with_default_queue.len() <= MOST_NAMESPACES {
                    spaces.push(json!({
                        "key": "kubernetes.io/metadata.name", "operator": "In", "values": there.with_default_queue,
                    }));
                }
                filled_in.push(of_jobs(
                    "kueue-default-jobs",
                    hook,
                    ignore,
                    jobs(new),
                    &spaces,
                    unnamed,
                    vec![],
                ));
            }
            let conditions = vec![self.not_our_own()];
            let hook = Hook::ValidateKueueJob;
            judged.push(of_jobs("kueue-jobs", hook, fail, jobs(written), &spaces, named, conditions));
        }
        if managed.has("pod") {
            let hook = Hook::DefaultKueuePod;
            let named = labelled(keys::QUEUE, "Exists");
            filled_in.push(of_jobs("kueue-pods", hook, fail, pods(new), &spaces, named, vec![]));
            if managed.without_queue {
                let unnamed = labelled(keys::QUEUE, "DoesNotExist");
                filled_in.push(of_jobs("kueue-all-pods", hook, ignore, pods(new), &spaces, unnamed, vec![]));
            }
            let conditions = vec![
                json!({"name": "says-something-new", "expression": SAYS_SOMETHING_NEW}),
                self.not_our_own(),
            ];
            let (hook, kept) = (Hook::ValidateKueuePod, labelled(keys::MANAGED, "Exists"));
            judged.push(of_jobs("kueue-pods", hook, fail, pods(written), &spaces, kept, conditions));
        }
        let kind = |list: &mut Vec<Value>, plural: &str, hook: Hook, policy, scope, conditions| {
            if there.kinds.contains(plural) {
                let operations = if hook.sees_updates() { written } else { new };
                let rules = rules("kueue.x-k8s.io", "v1beta2", plural, operations, scope);
                list.push(self.webhook(&format!("kueue-{plural}"), hook, policy, rules, &[], conditions));
            }
        };
        kind(&mut filled_in, "clusterqueues", Hook::DefaultClusterQueue, ignore, here, vec![]);
        kind(&mut filled_in, "resourceflavors", Hook::DefaultFlavor, ignore, here, vec![]);
        kind(&mut judged, "clusterqueues", Hook::ValidateClusterQueue, fail, here, vec![]);
        kind(&mut judged, "localqueues", Hook::ValidateLocalQueue, fail, of, vec![]);
        kind(&mut judged, "cohorts", Hook::ValidateCohort, fail, here, vec![]);
        kind(&mut judged, "resourceflavors", Hook::ValidateFlavor, fail, here, vec![]);
        kind(&mut judged, "admissionchecks", Hook::ValidateAdmissionCheck, ignore, here, vec![]);
        // Muster's own have owners, and nobody but their owners' keeper changes their specs.
        let conditions = vec![
            json!({"name": "says-something-new", "expression": "request.operation != 'UPDATE' || object.spec != oldObject.spec"}),
            self.not_our_own(),
        ];
        kind(&mut judged, "workloads", Hook::ValidateKueueWorkload, ignore, of, conditions);
        (filled_in, judged)
    }

    fn webhook(
        &self,
        name: &str,
        hook: Hook,
        policy: FailurePolicy,
        rules: Value,
        spaces: &[Value],
        conditions: Vec<Value>,
    ) -> Value {
        let path = hook.path();
        let mut client = match &self.registration.reach {
            Reach::Service { namespace, name, port } => {
                json!({"service": {"namespace": namespace, "name": name, "port": port, "path": path}})
            }
            Reach::Url(_) => json!({"url": format!("{}{path}", self.base)}),
        };
        client["caBundle"] = self.ca.as_str().into();
        let mut spaces = spaces.to_vec();
        // The label that every namespace has; whoever may change it may do worse.
        spaces.push(json!({
            "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": self.settings.exempt_namespaces,
        }));
        let mut webhook = json!({
            "name": format!("{name}.admission.muster.dev"),
            "clientConfig": client,
            "rules": rules,
            "failurePolicy": policy.word(),
            "matchPolicy": "Equivalent",
            "namespaceSelector": {"matchExpressions": spaces},
            "objectSelector": {},
            "sideEffects": "None",
            "timeoutSeconds": if policy == FailurePolicy::Fail { 5 } else { 2 },
            "admissionReviewVersions": ["v1"],
        });
        if !self.registration.namespace_labels.is_empty() {
            webhook["namespaceSelector"]["matchLabels"] = json!(self.registration.namespace_labels);
        }
        if matches!(hook, Hook::MutatePod | Hook::ValidatePod) {
            if !self.registration.pod_labels.is_empty() {
                webhook["objectSelector"]["matchLabels"] = json!(self.registration.pod_labels);
            }
            if self.registration.only_with_queue {
                let expression = json!({"key": self.settings.queue_label, "operator": "Exists"});
                webhook["objectSelector"]["matchExpressions"] = json!([expression]);
            }
        }
        if self.registration.match_conditions && !conditions.is_empty() {
            webhook["matchConditions"] = conditions.into();
        }
        webhook
    }

    fn scheduler_is(&self, spec: &str, names: &[impl AsRef<str>]) -> Value {
        let names: Vec<String> = names.iter().map(|name| cel_text(name.as_ref())).collect();
        let expression =
            format!("has({spec}.schedulerName) && {spec}.schedulerName in [{}]", names.join(", "));
        // A macro takes a field of a name, not of a choice.
        let expression = match spec {
            TEMPLATE_SPEC => format!("{spec}.schedulerName in [{}]", names.join(", ")),
            _ => expression,
        };
        json!({"name": "scheduler", "expression": expression})
    }

    fn not_our_own(&self) -> Value {
        let prefix = format!("system:serviceaccount:{}:", self.registration.own_namespace);
        let expression = format!("!request.userInfo.username.startsWith({})", cel_text(&prefix));
        json!({"name": "not-our-own", "expression": expression})
    }
}

/// A text in CEL.
fn cel_text(text: &str) -> String {
    let mut out = String::from("'");
    for c in text.chars() {
        match c {
            '\'' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out.push('\'');
    out
}

/// Whether everything that `wanted` says is so in `found`; what the server added does not count.
fn is_as(wanted: &Value, found: &Value) -> bool {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => {
            wanted.iter().all(|(key, value)| found.get(key).is_some_and(|other| is_as(value, other)))
        }
        (Value::Array(wanted), Value::Array(found)) => {
            wanted.len() == found.len() && wanted.iter().zip(found).all(|(a, b)| is_as(a, b))
        }
        (wanted, found) => wanted == found,
    }
}

/// How often somebody's change is looked for and undone.
const LOOK: Duration = Duration::from_secs(60);
const SHORTEST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How often, and how quickly, the server is asked whether it reaches us before that is doubted.
const TRIES: usize = 10;
const BETWEEN_TRIES: Duration = Duration::from_millis(500);
/// How long a last request may take.
const FAREWELL: Duration = Duration::from_secs(3);

/// More namespaces are not named one by one.
const MOST_NAMESPACES: usize = 200;

/// What of Kueue there is to be asked about.
async fn of_kueue(cx: &Context, settings: &Settings, world: &Watched) -> Result<OfKueue, ApiError> {
    if settings.kueue.is_none() || !world.keeps_kueue() {
        return Ok(OfKueue::default());
    }
    let found = match cx.api.get_path(muster_kueue::KIND_LIST).await {
        Ok(found) => found,
        Err(error) if error.not_found() => return Ok(OfKueue::default()),
        Err(error) => return Err(error),
    };
    let names = found["resources"].as_array().into_iter().flatten().filter_map(|kind| kind["name"].as_str());
    Ok(OfKueue { kinds: names.map(str::to_owned).collect(), with_default_queue: world.with_default_queue() })
}

/// Keeps both configurations as they should be until cancelled; with a URL, which nobody else can answer, it takes them
/// away at the end.
pub async fn register(
    cx: Context,
    registration: Registration,
    settings: Arc<Settings>,
    base: String,
    mut bundle: watch::Receiver<String>,
    standing: Arc<Standing>,
    world: Arc<Watched>,
) {
    let mut pause = SHORTEST_PAUSE;
    // A Service leads to us wherever the server is; an address of this machine may mean another one there.
    let mut is_reached = matches!(registration.reach, Reach::Service { .. });
    let mut has_warned = false;
    loop {
        let pem = bundle.borrow_and_update().clone();
        let wait = if pem.is_empty() {
            LOOK
        } else {
            let write = async {
                let kueue = of_kueue(&cx, &settings, &world).await?;
                let mut wanted = configurations(&registration, &settings, &base, &pem, &kueue);
                if !is_reached {
                    wanted.iter_mut().for_each(stop_nothing);
                }
                write(&cx.api, &wanted).await
            };
            match cx.cancel.run_until_cancelled(write).await {
                None => break,
                Some(Ok(n_written)) => {
                    if n_written > 0 {
                        tracing::info!(name = registration.name, n_written, "webhooks registered");
                    }
                    standing.is_registered.store(true, Ordering::Release);
                    pause = SHORTEST_PAUSE;
                    if is_reached {
                        LOOK
                    } else {
                        let ask = is_heard(&cx.api, &registration, &settings, &standing);
                        is_reached = cx.cancel.run_until_cancelled(ask).await.unwrap_or(false);
                        if is_reached {
                            continue;
                        }
                        if !has_warned {
                            tracing::warn!(
                                base,
                                "the API server does not reach admission, so nothing is refused and nothing filled in; \
                                 --webhook-address and --webhook-url say where it does"
                            );
                            has_warned = true;
                        }
                        LONGEST_PAUSE
                    }
                }
                Some(Err(error)) => {
                    tracing::warn!(%error, message = error.message(), "webhooks not registered; trying again");
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    pause
                }
            }
        };
        let news = async {
            // The sender lives in the keeper of certificates; when that ends, so do we.
            if bundle.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let next = async {
            tokio::select! {
                () = news => {}
                () = world.kueue_news() => {}
                () = tokio::time::sleep(wait) => {}
            }
        };
        if cx.cancel.run_until_cancelled(next).await.is_none() {
            break;
        }
    }
    standing.is_registered.store(false, Ordering::Release);
    if matches!(registration.reach, Reach::Url(_)) {
        let leave = async {
            for kind in [MUTATING, VALIDATING] {
                let _ = cx.api.delete_path(&path_of(kind, &registration.name), Delete::default()).await;
            }
        };
        let _ = tokio::time::timeout(FAREWELL, leave).await;
    }
}

/// Webhooks that nobody hears must not stop anybody's work.
fn stop_nothing(configuration: &mut Value) {
    for webhook in configuration["webhooks"].as_array_mut().into_iter().flatten() {
        webhook["failurePolicy"] = FailurePolicy::Ignore.word().into();
    }
}

/// Whether the API server reaches us: a pod of ours is created for show, which it has to ask us about. Servers take a moment to learn of a webhook.
async fn is_heard(api: &Api, registration: &Registration, settings: &Settings, standing: &Standing) -> bool {
    let mut labels = registration.pod_labels.clone();
    labels.insert(settings.queue_label.clone(), "default-queue".to_owned());
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "muster-asks-", "labels": labels},
        "spec": {"schedulerName": settings.scheduler_names.first(), "containers": [{"name": "none", "image": "none"}]}});
    for _ in 0..TRIES {
        // Whatever becomes of it: what counts is that we are asked.
        let _ = api.create_path("/api/v1/namespaces/default/pods?dryRun=All", &pod).await;
        if standing.is_heard.load(Ordering::Acquire) {
            return true;
        }
        tokio::time::sleep(BETWEEN_TRIES).await;
    }
    false
}

fn path_of(kind: &str, name: &str) -> String {
    let plural =
        if kind == MUTATING { "mutatingwebhookconfigurations" } else { "validatingwebhookconfigurations" };
    format!("/apis/admissionregistration.k8s.io/v1/{plural}/{name}")
}

/// Writes what is not as it should be. Out: how many were written.
async fn write(api: &Api, wanted: &[Value; 2]) -> Result<usize, ApiError> {
    let mut n_written = 0;
    for configuration in wanted {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let path = path_of(&text(&configuration["kind"]), &text(&configuration["metadata"]["name"]));
        let is_good = match api.get_path(&path).await {
            Ok(found) => is_as(configuration, &found),
            Err(error) if error.not_found() => false,
            Err(error) => return Err(error),
        };
        if !is_good {
            api.apply_path(&path, configuration).await?;
            n_written += 1;
        }
    }
    Ok(n_written)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registration(reach: Reach, match_conditions: bool) -> Registration {
        Registration {
            name: "muster-admission".into(),
            reach,
            match_conditions,
            pods: None,
            pod_labels: BTreeMap::new(),
            namespace_labels: BTreeMap::new(),
            only_with_queue: false,
            own_namespace: "muster-system".into(),
        }
    }

    #[test]
    fn selectors() {
        let registration = Registration {
            pod_labels: [("a".to_owned(), "b".to_owned())].into(),
            namespace_labels: [("c".to_owned(), "d".to_owned())].into(),
            only_with_queue: true,
            ..registration(service(), true)
        };
        let [mutating, validating] =
            configurations(&registration, &Settings::default(), "", "ca", &OfKueue::default());
        let queue = json!([{"key": "kai.scheduler/queue", "operator": "Exists"}]);
        for configuration in [&mutating, &validating] {
            let pods = &configuration["webhooks"][0];
            assert_eq!(pods["objectSelector"], json!({"matchLabels": {"a": "b"}, "matchExpressions": queue}));
            assert_eq!(pods["namespaceSelector"]["matchLabels"], json!({"c": "d"}));
        }
        assert_eq!(validating["webhooks"][1]["objectSelector"], json!({}));
    }

    fn everything() -> OfKueue {
        let kinds = [
            "clusterqueues",
            "localqueues",
            "cohorts",
            "resourceflavors",
            "topologies",
            "admissionchecks",
            "workloads",
            "workloadpriorityclasses",
        ];
        OfKueue { kinds: kinds.map(str::to_owned).into(), with_default_queue: vec!["team".into()] }
    }

    /// Name, path, policy and number of conditions of each webhook for Kueue.
    fn of_kueue(managed: Option<muster_kueue::Managed>, there: &OfKueue) -> Vec<String> {
        let settings = Settings { kueue: managed, ..Settings::default() };
        shown(&configurations(&registration(service(), true), &settings, "", "ca", there))
            .into_iter()
            .filter(|line| line.contains("kueue"))
            .collect()
    }

    #[test]
    fn kueue_is_asked_about_where_it_is() {
        let managed = muster_kueue::Managed::default;
        assert_eq!(of_kueue(None, &everything()), Vec::<String>::new());
        assert_eq!(of_kueue(Some(managed()), &OfKueue::default()), Vec::<String>::new());
        assert_eq!(
            of_kueue(Some(managed()), &everything()),
            [
                "kueue-jobs /mutate-batch-v1-job Fail 0",
                "kueue-default-jobs /mutate-batch-v1-job Ignore 0",
                "kueue-pods /kueue/mutate--v1-pod Fail 0",
                "kueue-clusterqueues /mutate-kueue-x-k8s-io-v1beta2-clusterqueue Ignore 0",
                "kueue-resourceflavors /mutate-kueue-x-k8s-io-v1beta2-resourceflavor Ignore 0",
                "kueue-jobs /validate-batch-v1-job Fail 1",
                "kueue-pods /kueue/validate--v1-pod Fail 2",
                "kueue-clusterqueues /validate-kueue-x-k8s-io-v1beta2-clusterqueue Fail 0",
                "kueue-localqueues /validate-kueue-x-k8s-io-v1beta2-localqueue Fail 0",
                "kueue-cohorts /validate-kueue-x-k8s-io-v1beta2-cohort Fail 0",
                "kueue-resourceflavors /validate-kueue-x-k8s-io-v1beta2-resourceflavor Fail 0",
                "kueue-admissionchecks /validate-kueue-x-k8s-io-v1beta2-admissioncheck Ignore 0",
                "kueue-workloads /validate-kueue-x-k8s-io-v1beta2-workload Ignore 2",
            ]
        );
        let only = OfKueue { kinds: ["localqueues".to_owned()].into(), with_default_queue: vec![] };
        assert_eq!(
            of_kueue(Some(muster_kueue::Managed { frameworks: vec!["pod".into()], ..managed() }), &only),
            [
                "kueue-pods /kueue/mutate--v1-pod Fail 0",
                "kueue-pods /kueue/validate--v1-pod Fail 2",
                "kueue-localqueues /validate-kueue-x-k8s-io-v1beta2-localqueue Fail 0",
            ]
        );
        let all =
            muster_kueue::Managed { without_queue: true, frameworks: vec!["batch/job".into()], ..managed() };
        assert_eq!(of_kueue(Some(all), &only)[1], "kueue-all-jobs /mutate-batch-v1-job Ignore 0");
    }

    /// What names no queue is not even sent.
    #[test]
    fn only_jobs_and_pods_with_a_queue_are_sent() {
        let settings = Settings { kueue: Some(Default::default()), ..Settings::default() };
        let [mutating, _] =
            configurations(&registration(service(), true), &settings, "", "ca", &everything());
        let find = |name: &str| {
            let webhooks = mutating["webhooks"].as_array().unwrap();
            webhooks.iter().find(|w| w["name"] == format!("{name}.admission.muster.dev")).unwrap()
        };
        for name in ["kueue-jobs", "kueue-pods"] {
            assert_eq!(
                find(name)["objectSelector"]["matchExpressions"],
                json!([{"key": "kueue.x-k8s.io/queue-name", "operator": "Exists"}])
            );
        }
        let spaces = find("kueue-default-jobs")["namespaceSelector"]["matchExpressions"].as_array().unwrap();
        let wanted = json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["team"]});
        assert!(spaces.contains(&wanted), "{spaces:?}");
    }

    fn service() -> Reach {
        Reach::Service { namespace: "muster-system".into(), name: "muster-admission".into(), port: 443 }
    }

    #[test]
    fn no_webhook_reaches_the_system_or_ourselves() {
        for (reach, conditions) in [(service(), true), (Reach::Url(None), false)] {
            for configuration in configurations(
                &registration(reach, conditions),
                &Settings { kueue: Some(Default::default()), ..Settings::default() },
                "https://127.0.0.1:1",
                "ca",
                &everything(),
            ) {
                for webhook in configuration["webhooks"].as_array().unwrap() {
                    let spaces = webhook["namespaceSelector"]["matchExpressions"].as_array().unwrap();
                    let exempt = json!({
                        "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [
                            "kube-system",
                            "kube-node-lease",
                            "kube-public",
                            "muster-system",
                            "kai-resource-reservation",
                            "kai-scale-adjust"
                        ],
                    });
                    assert!(spaces.contains(&exempt), "{spaces:?}");
                    assert!(webhook["timeoutSeconds"].as_u64().unwrap() <= 5);
                    assert!(conditions || webhook.get("matchConditions").is_none());
                }
            }
        }
    }

    #[track_caller]
    fn check(match_conditions: bool, expected: &[&str]) {
        let registration = registration(service(), match_conditions);
        let none = OfKueue::default();
        assert_eq!(shown(&configurations(&registration, &Settings::default(), "", "ca", &none)), expected);
    }

    fn shown(configurations: &[Value]) -> Vec<String> {
        configurations
            .iter()
            .flat_map(|configuration| configuration["webhooks"].as_array().unwrap().clone())
            .map(|webhook| {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                format!(
                    "{} {} {} {}",
                    text(&webhook["name"]).split('.').next().unwrap_or_default(),
                    text(&webhook["clientConfig"]["service"]["path"]),
                    text(&webhook["failurePolicy"]),
                    webhook["matchConditions"].as_array().map_or(0, Vec::len),
                )
            })
            .collect()
    }

    #[test]
    fn policies() {
        check(
            true,
            &[
                "pods /mutate--v1-pod Fail 1",
                "defaults /mutate--v1-pod Fail 1",
                "podcliquesets /webhooks/default-podcliqueset Fail 0",
                "volcano-queues /queues/mutate Ignore 0",
                "volcano-podgroups /podgroups/mutate Ignore 0",
                "volcano-jobs /jobs/mutate Ignore 0",
                "pods /validate--v1-pod Fail 3",
                "queues /validate-scheduling-run-ai-v2-queue Fail 0",
                "podgroups /validate-scheduling-run-ai-v2alpha2-podgroup Fail 1",
                "topologies /validate-kai-scheduler-v1alpha1-topology Fail 0",
                "shards /warn-kai-scheduler-v1-schedulingshard Ignore 0",
                "workloads /warn-workload Ignore 1",
                "podcliquesets /webhooks/validate-podcliqueset Fail 0",
                "podcliques /validate-grove-io-v1alpha1-podclique Fail 1",
                "podcliquescalinggroups /validate-grove-io-v1alpha1-podcliquescalinggroup Fail 1",
                "clustertopologybindings /webhooks/validate-clustertopology Fail 0",
                "t9k-podgroups /validate-scheduler-tensorstack-dev-v1beta1-podgroup Ignore 0",
                "t9k-queues /validate-scheduler-tensorstack-dev-v1beta1-queue Ignore 0",
                "elasticquotas /validate-scheduling-sigs-k8s-io-v1alpha1-elasticquota Ignore 0",
                "volcano-queues /queues/validate Ignore 0",
                "volcano-podgroups /podgroups/validate Ignore 0",
                "volcano-jobs /jobs/validate Ignore 0",
                "hypernodes /hypernodes/validate Ignore 0",
                "others-pods /pods/validate Ignore 3",
            ],
        );
        check(
            false,
            &[
                "pods /mutate--v1-pod Ignore 0",
                "defaults /mutate--v1-pod Ignore 0",
                "podcliquesets /webhooks/default-podcliqueset Fail 0",
                "volcano-queues /queues/mutate Ignore 0",
                "volcano-podgroups /podgroups/mutate Ignore 0",
                "volcano-jobs /jobs/mutate Ignore 0",
                "pods /validate--v1-pod Ignore 0",
                "queues /validate-scheduling-run-ai-v2-queue Fail 0",
                "podgroups /validate-scheduling-run-ai-v2alpha2-podgroup Fail 0",
                "topologies /validate-kai-scheduler-v1alpha1-topology Fail 0",
                "shards /warn-kai-scheduler-v1-schedulingshard Ignore 0",
                "workloads /warn-workload Ignore 0",
                "podcliquesets /webhooks/validate-podcliqueset Fail 0",
                "podcliques /validate-grove-io-v1alpha1-podclique Fail 0",
                "podcliquescalinggroups /validate-grove-io-v1alpha1-podcliquescalinggroup Fail 0",
                "clustertopologybindings /webhooks/validate-clustertopology Fail 0",
                "t9k-podgroups /validate-scheduler-tensorstack-dev-v1beta1-podgroup Ignore 0",
                "t9k-queues /validate-scheduler-tensorstack-dev-v1beta1-queue Ignore 0",
                "elasticquotas /validate-scheduling-sigs-k8s-io-v1alpha1-elasticquota Ignore 0",
                "volcano-queues /queues/validate Ignore 0",
                "volcano-podgroups /podgroups/validate Ignore 0",
                "volcano-jobs /jobs/validate Ignore 0",
                "hypernodes /hypernodes/validate Ignore 0",
            ],
        );
    }

    #[test]
    fn conditions_name_our_schedulers() {
        let registration = registration(service(), true);
        let [mutating, _] =
            configurations(&registration, &Settings::default(), "", "ca", &OfKueue::default());
        let expression = |n: usize| mutating["webhooks"][n]["matchConditions"][0]["expression"].clone();
        assert_eq!(
            expression(0),
            "has(object.spec.schedulerName) && object.spec.schedulerName in ['muster-scheduler', 'kai-scheduler']"
        );
        assert_eq!(
            expression(1),
            "has(object.spec.schedulerName) && object.spec.schedulerName in ['muster-scheduler', 'kai-scheduler', \
             'default-scheduler']"
        );
        assert_eq!(cel_text("it's \\ \n"), "'it\\'s \\\\ '");
    }

    #[test]
    fn compares_what_it_wrote() {
        let wanted = json!({"a": [{"b": 1}], "c": {}});
        assert!(is_as(&wanted, &json!({"a": [{"b": 1, "more": 2}], "c": {"d": 1}, "e": 0})));
        assert!(!is_as(&wanted, &json!({"a": [{"b": 1}, {}], "c": {}})));
        assert!(!is_as(&wanted, &json!({"a": [{"b": 2}], "c": {}})));
        assert!(!is_as(&wanted, &json!({"a": [{"b": 1}]})));
    }
}
