//! Subresources other than status: scale, binding, eviction, finalize, token, log; and kinds that are only posted.
//!
//! In: the parent object and a body. Out: the parent changed, or an answer of the subresource's own kind.

use crate::apart::{Apart, Reach};
use crate::meta;
use crate::query::Query;
use crate::registry::{Served, Source};
use crate::reply::Reply;
use crate::selector::Labels;
use crate::server::ApiServer;
use crate::status::{ApiError, success};
use crate::store::{Key, Stored};
use crate::strategy::Part;
use crate::write::{Context, Proposal, parse_body};
use serde_json::{Value, json};

/// Where replicas and selector of a scalable kind are.
struct ScaleView {
    spec: String,
    status: String,
    selector: Selector,
}

enum Selector {
    /// A `metav1.LabelSelector` or, for replication controllers, a plain map at this path.
    Object(&'static str),
    /// A string at this path.
    Text(Option<String>),
}

fn scale_view(served: &Served) -> Option<ScaleView> {
    match &served.source {
        Source::Builtin(_) => Some(ScaleView {
            spec: "spec.replicas".into(),
            status: "status.replicas".into(),
            selector: Selector::Object("spec.selector"),
        }),
        Source::Custom(custom) => {
            let scale = custom.version(&served.version)?.scale.as_ref()?;
            Some(ScaleView {
                spec: scale.spec.clone(),
                status: scale.status.clone(),
                selector: Selector::Text(scale.selector.clone()),
            })
        }
    }
}

/// A label selector as one line of text.
fn selector_text(selector: &Value) -> String {
    let plain = selector
        .as_object()
        .filter(|m| !m.contains_key("matchLabels") && !m.contains_key("matchExpressions"));
    let mut parts: Vec<String> = Vec::new();
    for (k, v) in plain.or_else(|| selector["matchLabels"].as_object()).into_iter().flatten() {
        parts.push(format!("{k}={}", v.as_str().unwrap_or_default()));
    }
    for e in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = e["key"].as_str().unwrap_or_default();
        let values = meta::strings(e.get("values")).join(",");
        parts.push(match e["operator"].as_str().unwrap_or_default() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_string(),
        });
    }
    parts.join(",")
}

/// What a patch of a scale finds where a custom object has no replicas. Whoever leaves it there has not said how many there should be.
const NO_REPLICAS: i64 = i32::MIN as i64;

/// A custom object without replicas has no scale.
fn check_scalable(served: &Served, view: &ScaleView, object: &Value) -> Result<(), ApiError> {
    if matches!(served.source, Source::Builtin(_)) || meta::at(object, &view.spec).is_some() {
        return Ok(());
    }
    let why = format!("the spec replicas field \".{}\" does not exist", view.spec);
    let mut error = ApiError::internal(&why);
    error.details.insert("causes".into(), json!([{"message": why}]));
    Err(error)
}

fn scale_of(view: &ScaleView, object: &Value) -> Value {
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(v) = object["metadata"].get(field) {
            metadata[field] = v.clone();
        }
    }
    let selector = match &view.selector {
        Selector::Object(path) => meta::at(object, path).map(selector_text).unwrap_or_default(),
        Selector::Text(path) => {
            path.as_deref().map(|p| meta::text_at(object, p).to_string()).unwrap_or_default()
        }
    };
    let wanted = meta::at(object, &view.spec).and_then(Value::as_i64);
    let mut spec = json!({});
    if let Some(n) = wanted.filter(|n| *n != 0) {
        spec["replicas"] = n.into();
    }
    let mut status = json!({"replicas": meta::at(object, &view.status).and_then(Value::as_i64).unwrap_or(0)});
    if !selector.is_empty() {
        status["selector"] = selector.into();
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status})
}

impl ApiServer {
    /// GET, PUT and PATCH of `/scale`.
    pub(crate) async fn scale(
        &self,
        cx: &Context,
        name: &str,
        method: &str,
        body: &[u8],
    ) -> Result<Reply, ApiError> {
        let view = scale_view(&cx.served).ok_or_else(ApiError::no_such_path)?;
        let key = Key::new(cx.namespace.as_deref().unwrap_or_default(), name);
        if method == "GET" {
            let stored = self.must_find(&cx.served, &key)?;
            let object = self.read(&stored, &cx.served).await?;
            check_scalable(&cx.served, &view, &object)?;
            return Ok(Reply::json(200, scale_of(&view, &object)));
        }
        let media = cx.content_type.split(';').next().unwrap_or_default().trim().to_string();
        let sent = parse_scale(&media, method, body)?;
        let propose = |live: &Value| -> Result<Proposal, ApiError> {
            let mut scale = scale_of(&view, live);
            let is_custom = matches!(cx.served.source, Source::Custom(_));
            if is_custom && meta::at(live, &view.spec).is_none() {
                scale["spec"]["replicas"] = NO_REPLICAS.into();
            }
            match &sent {
                ScaleBody::Whole(value) => scale = value.clone(),
                ScaleBody::Merge(patch) => k8s_merge::merge_patch(&mut scale, patch),
                ScaleBody::Json(patch) => {
                    k8s_merge::json_patch(&mut scale, patch).map_err(|_| ApiError::unprocessable())?
                }
            }
            let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
            if is_custom && replicas == NO_REPLICAS {
                let why = format!("the spec replicas field \".{}\" cannot be empty", view.spec);
                return Err(ApiError::bad_request(why));
            }
            let errors = k8s_builtin::validate_scale(&scale);
            // The scale of a custom object is judged by what it makes of the object.
            if !errors.is_empty() && !is_custom {
                return Err(ApiError::invalid("autoscaling", "Scale", name, &errors));
            }
            let mut object = live.clone();
            let before = meta::at(live, &view.spec).and_then(Value::as_i64).unwrap_or(0);
            meta::set_at(&mut object, &view.spec, replicas.into());
            self.manage_scale(cx, &mut object, &view.spec, before);
            for field in ["resourceVersion", "uid"] {
                let given = meta::text(&scale, field);
                if !given.is_empty() {
                    meta::edit(&mut object).insert(field.into(), given.into());
                }
            }
            Ok(Proposal { object, warnings: Vec::new(), managed: true })
        };
        let written = self.update_object(cx, name, Part::Scale, None, &propose).await?;
        let scaled = scale_of(&view, &self.outcome(&cx.served, &written));
        Ok(Reply::json(200, scaled).warn(written.warnings))
    }

    /// POST of `pods/NAME/binding` and of `bindings`.
    pub(crate) async fn bind(
        &self,
        cx: &Context,
        name: Option<&str>,
        body: &[u8],
    ) -> Result<Reply, ApiError> {
        let binding = parse_body(&cx.content_type, body, "Binding")?;
        let pods = self.kind_of_table("pods").ok_or_else(ApiError::no_such_path)?;
        let given = meta::name(&binding).to_string();
        let name = match name {
            Some(name) => {
                if given != name {
                    return Err(ApiError::bad_request("name in URL does not match name in Binding object"));
                }
                name.to_string()
            }
            None => given,
        };
        let target = &binding["target"];
        let node = target["name"].as_str().unwrap_or_default();
        let errors = k8s_builtin::validate_binding(&binding);
        if let Some(text) = k8s_schema::aggregate(&errors) {
            return Err(ApiError::plain(text));
        }
        let gr = pods.group_resource();
        let binding_gr =
            crate::status::GroupResource { group: String::new(), resource: "pods/binding".into() };
        let now = self.clock().rfc3339();
        let key = Key::new(cx.namespace.as_deref().unwrap_or_default(), &name);
        // A binding's annotations and labels become the pod's.
        let brings_more = BROUGHT.iter().any(|part| binding["metadata"][part].is_object());
        let reach = if brings_more { Reach::Both } else { Reach::Status };
        loop {
            let stored = self.must_find(&pods, &key)?;
            let mut apart = self
                .take_apart(&stored, &pods, reach)
                .ok_or_else(|| ApiError::internal(format!("the stored pod {name} cannot be read")))?;
            bind_pod(&mut apart, &binding, node, &now)
                .map_err(|why| ApiError::conflict(&binding_gr, &name, &why))?;
            if cx.query.dry_run {
                break;
            }
            let draft = apart.draft(&pods, Some(node));
            match self.store().put(&pods.table, &key, crate::store::Expect::At(stored.revision), draft) {
                Ok(_) => break,
                Err(crate::store::Clash::Absent) => return Err(ApiError::not_found(&gr, &name)),
                Err(_) => {}
            }
        }
        Ok(Reply::json(201, success(201)))
    }

    /// POST of `pods/NAME/eviction`.
    pub(crate) async fn evict(&self, cx: &Context, name: &str, body: &[u8]) -> Result<Reply, ApiError> {
        let eviction = parse_body(&cx.content_type, body, "Eviction")?;
        let given = meta::name(&eviction);
        if given != name {
            return Err(ApiError::bad_request("name in URL does not match name in Eviction object"));
        }
        let pods = self.kind_of_table("pods").ok_or_else(ApiError::no_such_path)?;
        let options = &eviction["deleteOptions"];
        let delete = crate::delete::DeleteOptions {
            grace_seconds: options["gracePeriodSeconds"].as_i64(),
            uid: options["preconditions"]["uid"].as_str().map(str::to_string),
            resource_version: options["preconditions"]["resourceVersion"].as_str().map(str::to_string),
            propagation: None,
            dry_run: cx.query.dry_run || options["dryRun"].as_array().is_some_and(|d| !d.is_empty()),
        };
        let key = Key::new(cx.namespace.as_deref().unwrap_or_default(), name);
        // One eviction at a time: each sees the budget that the one before it left.
        let _turn = self.inner.evictions.lock().await;
        let stored = self.must_find(&pods, &key)?;
        let pod = self.parse_stored(&stored, &pods)?;
        if !is_evictable_at_once(&pod) {
            self.spend_budget(&pod, &stored, delete.dry_run)?;
        }
        if !delete.dry_run {
            self.mark_disrupted(&pods, &key)?;
        }
        self.delete_object(&pods, &key, &delete)?;
        Ok(Reply::json(201, success(201)))
    }

    fn mark_disrupted(&self, pods: &std::sync::Arc<Served>, key: &Key) -> Result<(), ApiError> {
        let gr = pods.group_resource();
        let now = self.clock().rfc3339();
        loop {
            let stored = self.must_find(pods, key)?;
            let mut pod = self.parse_stored(&stored, pods)?;
            let conditions = meta::at(&pod, "status.conditions").and_then(Value::as_array);
            let is_marked = |c: &Value| {
                c["type"] == "DisruptionTarget"
                    && c["status"] == "True"
                    && c["reason"] == "EvictionByEvictionAPI"
            };
            if conditions.into_iter().flatten().any(is_marked) {
                return Ok(());
            }
            set_condition(
                &mut pod,
                json!({
                    "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
                    "message": "Eviction API: evicting", "lastProbeTime": null, "lastTransitionTime": now,
                }),
            );
            match self.commit(pods, key, crate::store::Expect::At(stored.revision), &pod) {
                Ok(_) => return Ok(()),
                Err(crate::store::Clash::Absent) => return Err(ApiError::not_found(&gr, &key.name)),
                Err(_) => {}
            }
        }
    }

    /// Takes one disruption from the pod's budget, or refuses with 429 and the budget's numbers.
    fn spend_budget(&self, pod: &Value, stored: &Stored, dry_run: bool) -> Result<(), ApiError> {
        let table = "poddisruptionbudgets.policy";
        let namespace = &*stored.key.namespace;
        let budgets: Vec<Value> = self
            .all_in(table, Some(namespace))
            .into_iter()
            .filter(|b| {
                b["spec"].get("selector").is_some_and(|s| {
                    Labels::from_object(s).is_ok_and(|s| s.matches(|l| stored.facts.label(l)))
                })
            })
            .collect();
        let Some(mut budget) = budgets.first().cloned() else { return Ok(()) };
        if budgets.len() > 1 {
            return Err(ApiError::new(
                500,
                "InternalError",
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            ));
        }
        let healthy = is_ready(pod);
        let status = &budget["status"];
        let number = |f: &str| status[f].as_i64().unwrap_or(0);
        if !healthy {
            let always = budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow";
            if always
                || (number("currentHealthy") >= number("desiredHealthy") && number("desiredHealthy") > 0)
            {
                return Ok(());
            }
        }
        let name = meta::name(&budget).to_string();
        let cause = |message: String| json!({"reason": "DisruptionBudget", "message": message});
        let refuse = "Cannot evict pod as it would violate the pod's disruption budget.";
        if number("observedGeneration") < budget["metadata"]["generation"].as_i64().unwrap_or(0) {
            let text = format!("The disruption budget {name} is still being processed by the server.");
            return Err(ApiError::too_many_requests(refuse, vec![cause(text)]).retry_after(10));
        }
        if number("disruptionsAllowed") <= 0 {
            let text = format!(
                "The disruption budget {name} needs {} healthy pods and has {} currently",
                number("desiredHealthy"),
                number("currentHealthy")
            );
            return Err(ApiError::too_many_requests(refuse, vec![cause(text)]));
        }
        if dry_run {
            return Ok(());
        }
        let left = number("disruptionsAllowed") - 1;
        let now = self.clock().rfc3339();
        meta::set_at(&mut budget, "status.disruptionsAllowed", left.into());
        let status = meta::member(&mut budget, "status");
        let disrupted = status.entry("disruptedPods").or_insert_with(|| json!({}));
        if let Some(map) = disrupted.as_object_mut() {
            map.insert(meta::name(pod).to_string(), now.into());
        }
        let served = self.kind_of_table(table).ok_or_else(ApiError::no_such_path)?;
        let revision = meta::text(&budget, "resourceVersion").parse().unwrap_or(0);
        let key = Key::new(namespace, &name);
        match self.commit(&served, &key, crate::store::Expect::At(revision), &budget) {
            Ok(_) => Ok(()),
            Err(_) => Err(ApiError::too_many_requests(
                refuse,
                vec![cause(format!("The disruption budget {name} changed meanwhile"))],
            )
            .retry_after(1)),
        }
    }

    /// PUT of `namespaces/NAME/finalize`.
    pub(crate) async fn finalize(&self, cx: &Context, name: &str, body: &[u8]) -> Result<Reply, ApiError> {
        let sent = parse_body(&cx.content_type, body, "Namespace")?;
        let key = Key::new("", name);
        let gr = cx.served.group_resource();
        loop {
            let stored = self.must_find(&cx.served, &key)?;
            let mut object = self.parse_stored(&stored, &cx.served)?;
            let finalizers = meta::strings(sent["spec"].get("finalizers"));
            if finalizers.is_empty() {
                meta::member(&mut object, "spec").remove("finalizers");
            } else {
                meta::set_at(&mut object, "spec.finalizers", json!(finalizers));
            }
            let done =
                meta::terminating(&object) && finalizers.is_empty() && meta::finalizers(&object).is_empty();
            let result = if done {
                self.erase(&cx.served, &key, stored.revision, &object)
            } else {
                self.commit(&cx.served, &key, crate::store::Expect::At(stored.revision), &object)
            };
            match result {
                Ok(now) => return Ok(Reply::json(200, self.parse_stored(&now, &cx.served)?)),
                Err(crate::store::Clash::Absent) => return Err(ApiError::not_found(&gr, name)),
                Err(_) => {}
            }
        }
    }

    /// POST of `serviceaccounts/NAME/token`.
    pub(crate) fn token(&self, cx: &Context, name: &str, body: &[u8]) -> Result<Reply, ApiError> {
        let mut request = parse_body(&cx.content_type, body, "TokenRequest")?;
        let key = Key::new(cx.namespace.as_deref().unwrap_or_default(), name);
        let stored = self.must_find(&cx.served, &key)?;
        let seconds = request["spec"]["expirationSeconds"].as_i64().unwrap_or(3600);
        if seconds < 600 {
            let error = k8s_schema::FieldError::invalid(
                "spec.expirationSeconds",
                seconds,
                "may not specify a duration less than 10 minutes",
            );
            return Err(ApiError::invalid("authentication.k8s.io", "TokenRequest", "", &[error]));
        }
        let now = self.clock().now();
        // As long as Kubernetes lets a token live: 2^32 seconds.
        let end = now.checked_add(jiff::SignedDuration::from_secs(seconds.min(1 << 32))).unwrap_or(now);
        let expires = crate::clock::seconds(end);
        request["kind"] = "TokenRequest".into();
        request["apiVersion"] = "authentication.k8s.io/v1".into();
        let token = match &self.inner.access {
            Some(access) => {
                let account = self.parse_stored(&stored, &cx.served)?;
                self.sign_token(access, &account, &request, (now.as_second(), end.as_second()))?
            }
            // Opaque: without RBAC nothing checks tokens of service accounts.
            None => uuid::Uuid::new_v4().to_string(),
        };
        request["status"] = json!({"token": token, "expirationTimestamp": expires});
        Ok(Reply::json(201, request))
    }

    /// GET of `pods/NAME/log`.
    pub(crate) fn log(&self, cx: &Context, name: &str, _query: &Query) -> Result<Reply, ApiError> {
        let key = Key::new(cx.namespace.as_deref().unwrap_or_default(), name);
        let stored = self.must_find(&cx.served, &key)?;
        let pod = self.parse_stored(&stored, &cx.served)?;
        let container =
            meta::at(&pod, "spec.containers").and_then(Value::as_array).and_then(|c| c.first()).cloned();
        let image = container.as_ref().and_then(|c| c["image"].as_str()).unwrap_or_default();
        Ok(Reply::plain(200, format!("simulated: {image} writes no log here\n")))
    }

    /// Kinds that are only posted: access reviews and the like. Where RBAC is not enforced, access is always granted.
    pub(crate) fn review(&self, cx: &Context, body: &[u8]) -> Result<Reply, ApiError> {
        let mut review = parse_body(&cx.content_type, body, &cx.served.kind)?;
        review["kind"] = cx.served.kind.as_str().into();
        review["apiVersion"] = cx.served.api_version().into();
        if review.get("metadata").is_none() {
            review["metadata"] = json!({});
        }
        let user = json!({
            "username": self.inner.options.user, "uid": "",
            "groups": ["system:masters", "system:authenticated"],
        });
        let mut review = self.manage_as(
            &cx.manager(),
            &cx.served,
            crate::strategy::blank(&cx.served).as_ref(),
            review,
            Part::Main,
        );
        if let Some(access) = &self.inner.access {
            review["status"] = self.review_access(access, cx, &review)?;
            return Ok(Reply::json(201, review));
        }
        review["status"] = match cx.served.kind.as_str() {
            "SelfSubjectReview" => json!({"userInfo": user}),
            "TokenReview" => {
                json!({"authenticated": false, "error": "tokens are not checked in the embedded cluster"})
            }
            "SelfSubjectRulesReview" => json!({
                "incomplete": false,
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            }),
            // RBAC is not enforced here, so everything is allowed.
            _ => json!({"allowed": true}),
        };
        Ok(Reply::json(201, review))
    }
}

enum ScaleBody {
    Whole(Value),
    Merge(Value),
    Json(Vec<serde_json::Map<String, Value>>),
}

fn parse_scale(media: &str, method: &str, body: &[u8]) -> Result<ScaleBody, ApiError> {
    let json = |body: &[u8]| serde_json::from_slice(body).map_err(|e| ApiError::bad_request(e.to_string()));
    if method == "PUT" {
        let value = parse_body(media, body, "Scale")?;
        if !matches!(value["kind"].as_str(), None | Some("" | "Scale")) {
            return Err(ApiError::bad_request(format!("the body must be a Scale, not a {}", value["kind"])));
        }
        return Ok(ScaleBody::Whole(value));
    }
    match media {
        "application/merge-patch+json" | "application/strategic-merge-patch+json" => {
            Ok(ScaleBody::Merge(json(body)?))
        }
        "application/apply-patch+yaml" => Ok(ScaleBody::Merge(parse_body(media, body, "Scale")?)),
        "application/json-patch+json" => serde_json::from_slice(body)
            .map(ScaleBody::Json)
            .map_err(|e| ApiError::bad_request(format!("error decoding patch: {e}"))),
        _ => Err(ApiError::unsupported_media_type(
            "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
        )),
    }
}

/// What of a binding's metadata is copied over the pod's. Kubernetes does so with labels since 1.35 (feature `PodTopologyLabelsAdmission`).
const BROUGHT: [&str; 2] = ["annotations", "labels"];

/// Binds a pod, or says why it cannot be.
fn bind_pod(apart: &mut Apart, binding: &Value, node: &str, now: &str) -> Result<(), String> {
    let pod = &apart.members;
    let name = meta::name(pod);
    let uid = meta::uid(binding);
    if !uid.is_empty() && uid != meta::uid(pod) {
        return Err(format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            meta::uid(pod)
        ));
    }
    if meta::terminating(pod) {
        return Err(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    let mut spec = apart.read("spec").unwrap_or_default();
    let current = spec["nodeName"].as_str().unwrap_or_default();
    if !current.is_empty() {
        return Err(format!("pod {name} is already assigned to node \"{current}\""));
    }
    if spec["schedulingGates"].as_array().is_some_and(|g| !g.is_empty()) {
        return Err(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    spec["nodeName"] = node.into();
    apart.write("spec", &spec);
    let pod = &mut apart.members;
    for part in BROUGHT {
        let Some(brought) = binding["metadata"][part].as_object() else { continue };
        let slot = meta::edit(pod).entry(part).or_insert_with(|| json!({}));
        if let Some(slot) = slot.as_object_mut() {
            slot.extend(brought.clone());
        }
    }
    set_condition(
        pod,
        json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now}),
    );
    Ok(())
}

fn set_condition(pod: &mut Value, condition: Value) {
    let status = meta::member(pod, "status");
    let slot = status.entry("conditions").or_insert_with(|| json!([]));
    if let Some(list) = slot.as_array_mut() {
        list.retain(|c| c["type"] != condition["type"]);
        list.push(condition);
    }
}

fn is_ready(pod: &Value) -> bool {
    meta::at(pod, "status.conditions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .any(|c| c["type"] == "Ready" && c["status"] == "True")
}

/// Pods that no budget protects: finished, not started, or already going.
fn is_evictable_at_once(pod: &Value) -> bool {
    matches!(meta::text_at(pod, "status.phase"), "Succeeded" | "Failed" | "Pending") || meta::terminating(pod)
}
