//! Admission and conversion webhooks. In: the registered configurations and a review. Out: the object changed, a
//! refusal, or the failure that the configuration's policy makes of an unreachable webhook.
//!
//! The embedded cluster has no service network, so a webhook is reached by `clientConfig.url` only; one that names a
//! service fails like one that is down.

use crate::admission::{Operation, Review};
use crate::meta;
use crate::registry::{Served, Source};
use crate::selector::Labels;
use crate::server::ApiServer;
use crate::status::ApiError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Reasons that a webhook may give.
const REASONS: [&str; 13] = [
    "BadRequest",
    "Conflict",
    "Expired",
    "Forbidden",
    "Gone",
    "InternalError",
    "Invalid",
    "NotAcceptable",
    "NotFound",
    "RequestEntityTooLarge",
    "ServiceUnavailable",
    "TooManyRequests",
    "Unauthorized",
];

/// What a webhook may answer at most.
const MAX_ANSWER: usize = 16 << 20;

/// Calls webhooks.
pub(crate) struct Caller {}

impl Caller {
    pub fn new() -> Caller {
        Caller {}
    }

    /// Posts a review and returns the answer.
    async fn post(&self, config: &Value, body: &Value, timeout: Duration) -> Result<Value, String> {
        let url = config["url"].as_str().ok_or_else(|| {
            let service = &config["service"];
            format!(
                "service {}/{} cannot be reached: the embedded cluster has no service network, set clientConfig.url",
                service["namespace"].as_str().unwrap_or_default(),
                service["name"].as_str().unwrap_or_default()
            )
        })?;
        match tokio::time::timeout(timeout, post(url, config["caBundle"].as_str(), body)).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("Post \"{url}\": context deadline exceeded")),
        }
    }

    /// Converts an object by a CRD's conversion webhook.
    pub async fn convert(&self, config: &Value, object: Value, to: &str) -> Result<Value, ApiError> {
        let uid = uuid::Uuid::new_v4().to_string();
        let gvk = format!(
            "{}, Kind={}",
            object["apiVersion"].as_str().unwrap_or_default(),
            object["kind"].as_str().unwrap_or_default()
        );
        let review = json!({
            "kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
            "request": {"uid": uid, "desiredAPIVersion": to, "objects": [object]},
        });
        let fail = |why: String| ApiError::internal(format!("conversion webhook for {gvk} failed: {why}"));
        let answer = self.post(config, &review, Duration::from_secs(30)).await.map_err(fail)?;
        let response = &answer["response"];
        if response["result"]["status"] != "Success" {
            return Err(fail(
                response["result"]["message"].as_str().unwrap_or("no reason given").to_string(),
            ));
        }
        match response["convertedObjects"].as_array().and_then(|o| o.first()) {
            Some(converted) if converted["apiVersion"] == to => Ok(converted.clone()),
            _ => Err(fail("it returned no object of that version".into())),
        }
    }
}

async fn post(url: &str, ca_bundle: Option<&str>, body: &Value) -> Result<Value, String> {
    let text = |e: &dyn std::fmt::Display| format!("Post \"{url}\": {e}");
    let uri: http::Uri = url.parse().map_err(|e| text(&e))?;
    let host = uri.host().ok_or_else(|| text(&"no host"))?.to_string();
    if uri.scheme_str() != Some("https") {
        return Err(text(&"webhooks must be called over https"));
    }
    let port = uri.port_u16().unwrap_or(443);
    let stream =
        tokio::net::TcpStream::connect((host.trim_matches(['[', ']']), port)).await.map_err(|e| text(&e))?;
    let mut roots = rustls::RootCertStore::empty();
    let bundle = STANDARD.decode(ca_bundle.unwrap_or_default()).map_err(|e| text(&e))?;
    for certificate in CertificateDer::pem_slice_iter(&bundle) {
        let certificate = certificate.map_err(|e| text(&e))?;
        roots.add(certificate).map_err(|e| text(&e))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| text(&e))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(host.trim_matches(['[', ']']).to_string()).map_err(|e| text(&e))?;
    let tls = tokio_rustls::TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .map_err(|e| text(&e))?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(tls)).await.map_err(|e| text(&e))?;
    let driver = tokio::spawn(connection);
    let path = uri.path_and_query().map_or("/", |p| p.as_str());
    let request = http::Request::post(path)
        .header("host", uri.authority().map_or(host.as_str(), |a| a.as_str()))
        .header("content-type", "application/json")
        .header("accept", "application/json")
        .body(Full::new(Bytes::from(body.to_string())))
        .map_err(|e| text(&e))?;
    let response = sender.send_request(request).await.map_err(|e| text(&e))?;
    let status = response.status();
    let answer = http_body_util::Limited::new(response.into_body(), MAX_ANSWER).collect().await;
    driver.abort();
    let bytes = answer.map_err(|e| text(&e))?.to_bytes();
    if !status.is_success() {
        return Err(format!(
            "an error on the server ({}) has prevented the request from succeeding",
            String::from_utf8_lossy(&bytes)
        ));
    }
    serde_json::from_slice(&bytes).map_err(|e| text(&e))
}

fn is_any(list: &Value, wanted: &str) -> bool {
    list.as_array().into_iter().flatten().any(|v| v == "*" || v == wanted)
}

fn resource_matches(rule: &str, plural: &str, sub: Option<&str>) -> bool {
    let (rule_plural, rule_sub) = match rule.split_once('/') {
        Some((p, s)) => (p, Some(s)),
        None => (rule, None),
    };
    if rule == "*/*" {
        return true;
    }
    (rule_plural == "*" || rule_plural == plural)
        && match (rule_sub, sub) {
            (None, None) => true,
            (Some("*"), _) => true,
            (Some(a), Some(b)) => a == b,
            _ => false,
        }
}

/// Whether any of some rules is about a request, taken as one for a kind that has the same objects.
fn rules_match(rules: &Value, review: &Review, served: &Served) -> bool {
    rules.as_array().into_iter().flatten().any(|rule| {
        is_any(&rule["operations"], review.operation.name())
            && is_any(&rule["apiGroups"], &served.group)
            && is_any(&rule["apiVersions"], &served.version)
            && rule["resources"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .any(|r| resource_matches(r, &served.plural, review.subresource.as_deref()))
            && names_match(&rule["resourceNames"], &review.name)
            && match rule["scope"].as_str() {
                Some("Cluster") => !served.namespaced,
                Some("Namespaced") => served.namespaced,
                _ => true,
            }
    })
}

fn names_match(names: &Value, name: &str) -> bool {
    names.as_array().is_none_or(|names| names.is_empty() || names.iter().any(|n| n == name))
}

/// Whether all `matchConditions` hold. One that does not hold decides, even where another makes no sense.
fn meets_conditions(webhook: &Value, request: &Value) -> Result<bool, String> {
    let variables =
        [("object", &request["object"]), ("oldObject", &request["oldObject"]), ("request", request)];
    let mut problems = Vec::new();
    for condition in webhook["matchConditions"].as_array().into_iter().flatten() {
        let text = |field: &str| condition[field].as_str().unwrap_or_default();
        match k8s_schema::condition(text("expression"), &variables) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(why) => problems.push(format!("{}: {why}", text("name"))),
        }
    }
    if problems.is_empty() { Ok(true) } else { Err(format!("match conditions: {}", problems.join("; "))) }
}

/// Whether a label selector, which may be absent, is about an object with these labels.
pub(crate) fn selects(selector: &Value, labels: Option<&Value>) -> bool {
    let value = |label: &str| labels.and_then(|l| l.get(label)).and_then(Value::as_str);
    Labels::from_object(selector).is_ok_and(|s| s.matches(value))
}

const MUTATING: &str = "mutatingwebhookconfigurations.admissionregistration.k8s.io";
const VALIDATING: &str = "validatingwebhookconfigurations.admissionregistration.k8s.io";

impl ApiServer {
    /// Whether any admission webhook is registered.
    pub(crate) fn has_webhooks(&self) -> bool {
        [MUTATING, VALIDATING].iter().any(|table| self.store().len(table) > 0)
    }

    /// The kind as which rules are about a request: its own or, unless the policy is `Exact`, another version of it.
    pub(crate) fn matched_as(&self, rules: &Value, policy: &Value, review: &Review) -> Option<Arc<Served>> {
        if rules_match(rules, review, &review.served) {
            return Some(review.served.clone());
        }
        if policy == "Exact" {
            return None;
        }
        let registry = self.registry();
        let mut same = registry.kinds.iter().filter(|k| k.table == review.served.table && k.is_stored());
        same.find(|k| rules_match(rules, review, k)).cloned()
    }

    /// An object of a kind in another version of it. What is not of the kind, such as the body of a subresource, stays as it is.
    pub(crate) async fn in_version(
        &self,
        object: &Value,
        of: &Served,
        wanted: &Served,
    ) -> Result<Value, ApiError> {
        let to = wanted.api_version();
        if object["apiVersion"] == to || object["kind"] != wanted.kind {
            return Ok(object.clone());
        }
        let object = match of.source {
            Source::Custom(_) => object.clone(),
            Source::Builtin(_) => self.convert(object.clone(), of, &of.storage_api_version).await?,
        };
        self.convert(object, wanted, &to).await
    }

    /// The webhooks that a request concerns, and the kind as which it concerns them.
    fn webhooks(&self, table: &str, review: &Review, object: &Value) -> Vec<(Value, Arc<Served>)> {
        // The registry's own objects are never reviewed, or a broken webhook could never be mended.
        if self.store().len(table) == 0 || review.served.group == "admissionregistration.k8s.io" {
            return Vec::new();
        }
        let namespace = if review.served.is("", "namespaces") {
            Some(object.clone())
        } else if review.namespace.is_empty() {
            None
        } else {
            self.one("namespaces", "", &review.namespace)
        };
        let labels_of = |o: &Value| o["metadata"].get("labels").cloned();
        self.all(table)
            .into_iter()
            .flat_map(|c| c["webhooks"].as_array().cloned().unwrap_or_default())
            .filter_map(|w| {
                let kind = self.matched_as(&w["rules"], &w["matchPolicy"], review)?;
                Some((w, kind))
            })
            .filter(|(w, _)| {
                let by_namespace = match &namespace {
                    Some(ns) => selects(&w["namespaceSelector"], labels_of(ns).as_ref()),
                    None => true,
                };
                let by_object = [Some(object), review.old.as_deref()]
                    .into_iter()
                    .flatten()
                    .any(|o| selects(&w["objectSelector"], labels_of(o).as_ref()));
                by_namespace && by_object
            })
            .collect()
    }

    /// What a webhook or a policy is shown; both objects are of the kind as which the request concerns it.
    pub(crate) fn admission_review(
        &self,
        review: &Review,
        served: &Served,
        object: &Value,
        old: &Value,
    ) -> Value {
        let kind = |k: &Served| json!({"group": k.group, "version": k.version, "kind": k.kind});
        let resource = |k: &Served| json!({"group": k.group, "version": k.version, "resource": k.plural});
        let asked = &review.served;
        let mut request = json!({
            "uid": uuid::Uuid::new_v4().to_string(),
            "kind": kind(served), "resource": resource(served),
            "requestKind": kind(asked), "requestResource": resource(asked),
            "operation": review.operation.name(),
            "userInfo": crate::access::info(review.user.as_ref(), &self.inner.options.user),
            "object": object, "oldObject": old,
            "dryRun": review.dry_run,
            "options": {"kind": match review.operation {
                Operation::Create => "CreateOptions",
                Operation::Update => "UpdateOptions",
                Operation::Delete => "DeleteOptions",
            }, "apiVersion": "meta.k8s.io/v1"},
        });
        for (field, value) in [
            ("name", Some(review.name.as_str())),
            ("namespace", Some(review.namespace.as_str())),
            ("subResource", review.subresource.as_deref()),
        ] {
            if let Some(value) = value.filter(|v| !v.is_empty()) {
                request[field] = value.into();
            }
        }
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request})
    }

    /// Calls one webhook; `None` when it failed and its policy is to ignore that. `object` is of the kind as which it is called.
    async fn call(
        &self,
        webhook: &Value,
        kind: &Served,
        review: &mut Review,
        object: &Value,
    ) -> Result<Option<Value>, ApiError> {
        let name = webhook["name"].as_str().unwrap_or_default();
        let timeout = Duration::from_secs(webhook["timeoutSeconds"].as_u64().unwrap_or(10).clamp(1, 30));
        let old = match review.old.clone() {
            Some(old) => self.in_version(&old, &review.served, kind).await?,
            None => Value::Null,
        };
        let body = self.admission_review(review, kind, object, &old);
        let result = match meets_conditions(webhook, &body["request"]) {
            Ok(false) => return Ok(None),
            Ok(true) => self.inner.webhooks.post(&webhook["clientConfig"], &body, timeout).await,
            Err(why) => Err(why),
        };
        let answer = match result {
            Ok(answer) if answer["response"]["uid"] == body["request"]["uid"] => answer,
            other => {
                let why =
                    other.err().unwrap_or_else(|| "expected response.uid to be that of the request".into());
                if webhook["failurePolicy"] == "Ignore" {
                    tracing::warn!(webhook = name, why, "failed open");
                    return Ok(None);
                }
                return Err(ApiError::internal(format!(
                    "failed calling webhook \"{name}\": failed to call webhook: {why}"
                )));
            }
        };
        let response = answer["response"].clone();
        review.warnings.extend(meta::strings(response.get("warnings")));
        if response["allowed"] == true {
            return Ok(Some(response));
        }
        let status = &response["status"];
        let reason = status["reason"].as_str().filter(|r| !r.is_empty());
        let said = status["message"].as_str().filter(|m| !m.is_empty()).or(reason);
        let message = match said {
            Some(text) => format!("admission webhook \"{name}\" denied the request: {text}"),
            None => format!("admission webhook \"{name}\" denied the request without explanation"),
        };
        let code =
            status["code"].as_u64().and_then(|c| u16::try_from(c).ok()).filter(|c| *c >= 400).unwrap_or(400);
        // The webhook's own, or none.
        let known = REASONS.into_iter().find(|known| reason == Some(known));
        Err(ApiError::new(code, known.unwrap_or_default(), message))
    }

    pub(crate) async fn call_mutating_webhooks(
        &self,
        review: &mut Review,
        object: &mut Value,
    ) -> Result<(), ApiError> {
        for (webhook, kind) in self.webhooks(MUTATING, review, object) {
            let mut shown = self.in_version(object, &review.served, &kind).await?;
            let Some(response) = self.call(&webhook, &kind, review, &shown).await? else { continue };
            let Some(patch) = response["patch"].as_str() else { continue };
            let name = webhook["name"].as_str().unwrap_or_default();
            let fail =
                |why: String| ApiError::internal(format!("webhook \"{name}\" sent an unusable patch: {why}"));
            let bytes = STANDARD.decode(patch).map_err(|e| fail(e.to_string()))?;
            let patch: Vec<Map<String, Value>> =
                serde_json::from_slice(&bytes).map_err(|e| fail(e.to_string()))?;
            k8s_merge::json_patch(&mut shown, &patch).map_err(|e| fail(e.to_string()))?;
            if !shown.is_object() {
                return Err(fail("it leaves no object".into()));
            }
            *object = self.in_version(&shown, &kind, &review.served).await?;
            crate::strategy::default(&review.served, object);
        }
        Ok(())
    }

    pub(crate) async fn call_validating_webhooks(
        &self,
        review: &mut Review,
        object: &Value,
    ) -> Result<(), ApiError> {
        for (webhook, kind) in self.webhooks(VALIDATING, review, object) {
            let shown = self.in_version(object, &review.served, &kind).await?;
            self.call(&webhook, &kind, review, &shown).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_decide_whether_a_webhook_is_asked() {
        let request =
            json!({"object": {"spec": {"schedulerName": "a"}}, "oldObject": null, "operation": "CREATE"});
        let check = |expressions: &[&str], expected: Result<bool, &str>| {
            let conditions: Vec<Value> =
                expressions.iter().map(|e| json!({"name": "c", "expression": e})).collect();
            let answer = meets_conditions(&json!({"matchConditions": conditions}), &request);
            assert_eq!(answer.as_ref().map_err(String::as_str).copied(), expected, "{expressions:?}");
        };
        check(&[], Ok(true));
        check(&["object.spec.schedulerName in ['a', 'b']", "request.operation == 'CREATE'"], Ok(true));
        check(&["true", "object.spec.schedulerName == 'b'"], Ok(false));
        check(&["object.spec.none == 'b'", "false"], Ok(false));
        check(&["object.spec.none == 'b'", "true"], Err("match conditions: c: no such key: none"));
    }

    #[test]
    fn rules_name_resources() {
        for (rule, plural, sub, expected) in [
            ("pods", "pods", None, true),
            ("pods", "pods", Some("status"), false),
            ("pods/*", "pods", Some("status"), true),
            ("pods/status", "pods", Some("status"), true),
            ("pods/status", "pods", None, false),
            ("*", "pods", None, true),
            ("*", "pods", Some("status"), false),
            ("*/*", "pods", Some("status"), true),
            ("*/scale", "deployments", Some("scale"), true),
            ("jobs", "pods", None, false),
        ] {
            assert_eq!(resource_matches(rule, plural, sub), expected, "{rule} on {plural} {sub:?}");
        }
    }
}
