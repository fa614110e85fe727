//! Admission: what stands between a well-formed request and the store.
//!
//! In: a [`Review`] and the object. Out: the object changed, or a refusal. Order, as in Kubernetes: namespace lifecycle,
//! built-in mutation (limit ranges, service account, tolerations, priority, gang protection), in-process hooks, mutating
//! webhooks; then, after the kind's own validation: rights handed out, in-process hooks, policies, validating webhooks, quota.

mod limits;
mod policy;
mod quota;

pub(crate) use policy::Bound;
pub(crate) use quota::status as quota_status;

use crate::access::User;
use crate::audit::Notes;
use crate::meta;
use crate::registry::{Served, Source};
use crate::server::ApiServer;
use crate::status::{ApiError, GroupResource};
use crate::store::Key;
use crate::write::Context;
use k8s_quantity::Quantity;
use serde_json::{Value, json};
use std::sync::Arc;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Operation {
    Create,
    Update,
    Delete,
}

impl Operation {
    /// As AdmissionReview spells it.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
        }
    }
}

/// A request under review.
pub struct Review {
    /// What it does.
    pub operation: Operation,
    /// The kind, in the request's version.
    pub served: Arc<Served>,
    /// Namespace; empty for cluster-scoped kinds.
    pub namespace: String,
    /// Name; may be empty on create.
    pub name: String,
    /// Subresource, if any.
    pub subresource: Option<String>,
    /// The object before, in the request's version.
    pub old: Option<Arc<Value>>,
    /// Whether nothing will be stored.
    pub dry_run: bool,
    /// Who asks, where that is enforced or written down; this process itself otherwise.
    pub user: Option<Arc<User>>,
    /// Where remarks for the audit log go, if there is one.
    pub(crate) notes: Option<Notes>,
    /// Texts for the client.
    pub warnings: Vec<String>,
}

impl Review {
    pub(crate) fn new(
        operation: Operation,
        cx: &Context,
        subresource: Option<&str>,
        old: Option<Arc<Value>>,
    ) -> Review {
        Review {
            operation,
            served: cx.served.clone(),
            namespace: cx.namespace.clone().unwrap_or_default(),
            name: old.as_ref().map(|o| meta::name(o).to_string()).unwrap_or_default(),
            subresource: subresource.map(str::to_string),
            old,
            dry_run: cx.query.dry_run,
            user: cx.user.clone(),
            notes: cx.notes.clone(),
            warnings: Vec::new(),
        }
    }

    fn gr(&self) -> GroupResource {
        self.served.group_resource()
    }

    fn creates(&self, group: &str, plural: &str) -> bool {
        self.operation == Operation::Create && self.subresource.is_none() && self.served.is(group, plural)
    }
}

/// A write that can change nothing but a part of an object that the rest of it does not depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bookkeeping {
    /// The status.
    Status,
    /// Finalizers and owners.
    Owners,
    /// Labels and annotations, finalizers and owners.
    Labels,
}

/// Admission in the server's own process.
pub trait Hook: Send + Sync {
    /// Whether it has to see writes of this sort. Where nobody does they cost much less.
    fn sees(&self, what: Bookkeeping) -> bool {
        let _ = what;
        true
    }

    /// May change the object or refuse the request.
    fn mutate(&self, review: &mut Review, object: &mut Value) -> Result<(), ApiError> {
        let _ = (review, object);
        Ok(())
    }

    /// May refuse the request; on delete the object is null and the old one is in the review.
    fn validate(&self, review: &mut Review, object: &Value) -> Result<(), ApiError> {
        let _ = (review, object);
        Ok(())
    }
}

impl ApiServer {
    /// Whether anybody has to see such writes.
    pub(crate) fn is_reviewed(&self, what: Bookkeeping) -> bool {
        self.inner.options.hooks.iter().any(|hook| hook.sees(what))
            || self.has_webhooks()
            || self.has_policies()
    }

    /// The mutating half.
    pub(crate) async fn mutate(&self, review: &mut Review, object: &mut Value) -> Result<(), ApiError> {
        if review.operation == Operation::Create {
            review.name = meta::name(object).to_string();
            self.check_namespace(review)?;
        }
        if review.operation == Operation::Create
            && review.subresource.is_none()
            && let Source::Builtin(kind) = &review.served.source
        {
            k8s_builtin::admit_create(kind, object);
        }
        if review.operation == Operation::Update
            && review.subresource.is_none()
            && let Source::Builtin(kind) = &review.served.source
        {
            k8s_builtin::admit_update(kind, object);
        }
        if review.creates("", "pods") {
            limits::default(&self.all_in("limitranges", Some(&review.namespace)), object);
            self.prioritise(review, object)?;
            self.give_token(review, object)?;
        }
        if review.creates("scheduling.k8s.io", "podgroups") {
            self.check_podgroup(review, object)?;
            self.prioritise_podgroup(review, object)?;
        }
        if review.creates("", "nodes") {
            taint_unready(object);
        }
        if review.operation == Operation::Create
            && review.served.group == "admissionregistration.k8s.io"
            && review.served.kind.starts_with("MutatingAdmissionPolicy")
        {
            review
                .warnings
                .push(format!("{} is stored but not evaluated by the embedded server", review.served.kind));
        }
        for hook in &self.inner.options.hooks {
            hook.mutate(review, object)?;
            crate::strategy::default(&review.served, object);
        }
        self.call_mutating_webhooks(review, object).await
    }

    /// The judging half. The guard must be held until the object is stored.
    pub(crate) async fn validate(
        &self,
        review: &mut Review,
        object: &Value,
    ) -> Result<Option<tokio::sync::MutexGuard<'_, ()>>, ApiError> {
        self.check_escalation(review, object)?;
        if review.operation == Operation::Delete && review.served.is("", "namespaces") {
            let name = review.name.as_str();
            if matches!(name, "default" | "kube-system" | "kube-public") {
                return Err(ApiError::forbidden(&review.gr(), name, "this namespace may not be deleted"));
            }
        }
        if review.served.is("", "pods") && review.operation == Operation::Create {
            let ranges = self.all_in("limitranges", Some(&review.namespace));
            let problems = limits::violations(&ranges, object);
            if !problems.is_empty() {
                let text = if problems.len() == 1 {
                    problems[0].clone()
                } else {
                    format!("[{}]", problems.join(", "))
                };
                return Err(ApiError::forbidden(&review.gr(), &review.name, text));
            }
        }
        if review.operation != Operation::Delete
            && review.subresource.is_none()
            && review.served.group == "admissionregistration.k8s.io"
            && review.served.kind.starts_with("ValidatingAdmissionPolicy")
        {
            let problems = policy::problems(&review.served.kind, object);
            if !problems.is_empty() {
                let served = &review.served;
                return Err(ApiError::invalid(&served.group, &served.kind, meta::name(object), &problems));
            }
        }
        for hook in &self.inner.options.hooks {
            hook.validate(review, object)?;
        }
        self.check_policies(review, object).await?;
        self.call_validating_webhooks(review, object).await?;
        self.check_quota(review, object).await
    }

    fn check_namespace(&self, review: &Review) -> Result<(), ApiError> {
        if !review.served.namespaced {
            return Ok(());
        }
        let namespaces = GroupResource { group: String::new(), resource: "namespaces".into() };
        let Some(stored) = self.store().get("namespaces", &crate::store::Key::new("", &review.namespace))
        else {
            return Err(ApiError::not_found(&namespaces, &review.namespace));
        };
        if stored.facts.terminating {
            let why = format!(
                "unable to create new content in namespace {} because it is being terminated",
                review.namespace
            );
            let mut error = ApiError::forbidden(&review.gr(), &review.name, why);
            let cause = json!({
                "reason": "NamespaceTerminating", "field": "metadata.namespace",
                "message": format!("namespace {} is being terminated", review.namespace),
            });
            error.details.insert("causes".into(), json!([cause]));
            return Err(error);
        }
        Ok(())
    }

    /// The priority class of that name, or the global default when none is named.
    fn priority_class(&self, wanted: &str) -> Option<Value> {
        let table = "priorityclasses.scheduling.k8s.io";
        let classes = self.inner.priority_classes.get(self.store(), &[table], || self.all(table));
        let class = if wanted.is_empty() {
            // Among several global defaults the lowest wins, as in Kubernetes.
            let defaults = classes.iter().filter(|c| c["globalDefault"] == true);
            defaults.min_by_key(|c| c["value"].as_i64().unwrap_or(0))
        } else {
            classes.iter().find(|c| meta::name(c) == wanted)
        };
        class.cloned()
    }

    /// Resolves a pod group's priority class, which has the same rules as a pod's.
    fn prioritise_podgroup(&self, review: &Review, group: &mut Value) -> Result<(), ApiError> {
        let wanted = meta::text_at(group, "spec.priorityClassName").to_string();
        let class = self.priority_class(&wanted);
        let refuse = |why: String| Err(ApiError::forbidden(&review.gr(), &review.name, why));
        if class.is_none() && !wanted.is_empty() {
            return refuse(format!("no PriorityClass with name {wanted} was found"));
        }
        let value = class.as_ref().and_then(|c| c["value"].as_i64()).unwrap_or(0);
        if let Some(given) = group["spec"]["priority"].as_i64().filter(|g| *g != value) {
            return refuse(format!(
                "the integer value of priority ({given}) must not be provided in pod group spec; priority admission controller computed {value} from the given PriorityClass name"
            ));
        }
        if let Some(class) = class.filter(|_| wanted.is_empty()) {
            meta::set_at(group, "spec.priorityClassName", meta::name(&class).into());
        }
        meta::set_at(group, "spec.priority", value.into());
        Ok(())
    }

    /// Resolves a pod's priority class.
    fn prioritise(&self, review: &Review, pod: &mut Value) -> Result<(), ApiError> {
        let class = self.priority_class(meta::text_at(pod, "spec.priorityClassName"));
        k8s_builtin::apply_priority(pod, class.as_ref())
            .map_err(|why| ApiError::forbidden(&review.gr(), &review.name, why))
    }

    /// Checks a pod's service account and gives the pod the volume with its token.
    fn give_token(&self, review: &Review, pod: &mut Value) -> Result<(), ApiError> {
        let account_name = meta::text_at(pod, "spec.serviceAccountName").to_string();
        let account = self.store().get("serviceaccounts", &Key::new(&review.namespace, &account_name));
        // Every namespace gets a `default` account, though maybe a moment later than its first pod.
        if account.is_none() && account_name != "default" {
            let why = format!(
                "error looking up service account {}/{account_name}: serviceaccount \"{account_name}\" not found",
                review.namespace
            );
            return Err(ApiError::forbidden(&review.gr(), &review.name, why));
        }
        const WISH: &str = "automountServiceAccountToken";
        // Hardly any account says so, and every pod asks.
        let of_account = || {
            let says = account.filter(|account| account.text.contains(WISH))?;
            serde_json::from_str::<Value>(&says.text).ok()?.get(WISH)?.as_bool()
        };
        let mount = pod["spec"].get(WISH).and_then(Value::as_bool).or_else(of_account).unwrap_or(true);
        if !mount {
            return Ok(());
        }
        const PLACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
        let volume = crate::write::generated_name("kube-api-access-", self.new_uid());
        let mut used = false;
        for list in ["initContainers", "containers"] {
            let containers = pod.get_mut("spec").and_then(|s| s.get_mut(list)).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten() {
                let Some(container) = container.as_object_mut() else { continue };
                let mounts = container.entry("volumeMounts").or_insert_with(|| json!([]));
                let Some(mounts) = mounts.as_array_mut() else { continue };
                if mounts.iter().all(|m| m["mountPath"] != PLACE) {
                    mounts.push(json!({"name": volume, "readOnly": true, "mountPath": PLACE}));
                    used = true;
                }
            }
        }
        if !used {
            return Ok(());
        }
        let field = json!({"apiVersion": "v1", "fieldPath": "metadata.namespace"});
        let projected = json!({"name": volume, "projected": {"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": field}]}},
        ]}});
        let volumes = meta::member(pod, "spec").entry("volumes").or_insert_with(|| json!([]));
        if let Some(volumes) = volumes.as_array_mut() {
            volumes.push(projected);
        }
        Ok(())
    }

    /// A PodGroup may only name a template that exists.
    fn check_podgroup(&self, review: &Review, group: &Value) -> Result<(), ApiError> {
        let Some(reference) = meta::at(group, "spec.podGroupTemplateRef.workload").cloned() else {
            return Ok(());
        };
        let workload = reference["workloadName"].as_str().unwrap_or_default();
        let template = reference["podGroupTemplateName"].as_str().unwrap_or_default();
        let refuse = |why: String| Err(ApiError::forbidden(&review.gr(), &review.name, why));
        let Some(found) = self.one("workloads.scheduling.k8s.io", &review.namespace, workload) else {
            return refuse(format!("PodGroup rejected: Workload \"{workload}\" not found"));
        };
        if meta::terminating(&found) {
            return refuse(format!("PodGroup rejected: Workload \"{workload}\" is being deleted"));
        }
        let templates = meta::at(&found, "spec.podGroupTemplates").and_then(Value::as_array);
        if !templates.into_iter().flatten().any(|t| t["name"] == template) {
            return refuse(format!(
                "PodGroup rejected: PodGroupTemplate \"{template}\" not found in Workload \"{workload}\""
            ));
        }
        Ok(())
    }
}

/// The quantity that a JSON string or number says.
fn quantity(v: &Value) -> Option<Quantity> {
    match v {
        Value::String(s) => s.parse().ok(),
        Value::Number(n) => n.to_string().parse().ok(),
        _ => None,
    }
}

/// A new node takes no pods before its kubelet has reported.
fn taint_unready(node: &mut Value) {
    const KEY: &str = "node.kubernetes.io/not-ready";
    let taints = meta::member(node, "spec").entry("taints").or_insert_with(|| json!([]));
    if let Some(taints) = taints.as_array_mut()
        && taints.iter().all(|t| t["key"] != KEY || t["effect"] != "NoSchedule")
    {
        taints.push(json!({"key": KEY, "effect": "NoSchedule"}));
    }
}
