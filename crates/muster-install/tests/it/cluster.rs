//! An API server in this process, with every kind that an installation has.

use muster_apiserver::ApiServer;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

pub struct Cluster {
    pub client: kube::Client,
    pub cancel: CancellationToken,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

pub fn base() -> jiff::Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

/// `monitoring`: as if the Prometheus operator were installed.
pub fn cluster(monitoring: bool) -> Cluster {
    let server = ApiServer::new(muster_apiserver::Options {
        clock: muster_apiserver::Clock::starting_at(base()),
        ..muster_apiserver::Options::default()
    });
    let mut crds = muster_api::crds(None);
    if monitoring {
        crds.extend(prometheus_crds());
    }
    server.install_crds(crds).unwrap();
    let cancel = CancellationToken::new();
    let background = server.clone();
    tokio::spawn(cancel.clone().run_until_cancelled_owned(async move { background.run().await }));
    Cluster { client: kube::Client::new(server, "default"), cancel }
}

impl Cluster {
    pub async fn ask(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let content = match (method, path.contains("force=true")) {
            ("PATCH", true) => "application/apply-patch+yaml",
            ("PATCH", false) => "application/merge-patch+json",
            _ => "application/json",
        };
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content)
            .body(body)
            .unwrap();
        self.client.request::<Value>(request).await.map_err(|e| format!("{method} {path}: {e}"))
    }

    pub async fn get(&self, path: &str) -> Option<Value> {
        self.ask("GET", path, &Value::Null).await.ok()
    }

    /// Server-side apply, refusing any field that the kind does not have.
    pub async fn apply(&self, object: &Value, dry_run: bool) -> Result<Value, String> {
        let path = muster_install::path(object).ok_or_else(|| format!("no path for {object}"))?;
        let dry = if dry_run { "&dryRun=All" } else { "" };
        self.ask("PATCH", &format!("{path}?fieldManager=test&force=true&fieldValidation=Strict{dry}"), object)
            .await
    }
}

/// The parts of the Prometheus operator's kinds that the manifests use: a field that is not here is refused.
fn prometheus_crds() -> Vec<Value> {
    let text = json!({"type": "string"});
    let texts = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let crd = |kind: &str, plural: &str, spec: Value| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.monitoring.coreos.com")},
            "spec": {
                "group": "monitoring.coreos.com", "scope": "Namespaced",
                "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
                }],
            },
        })
    };
    vec![
        crd(
            "ServiceMonitor",
            "servicemonitors",
            json!({
                "type": "object", "required": ["endpoints", "selector"],
                "properties": {
                    "selector": {"type": "object", "properties": {"matchLabels": texts}},
                    "namespaceSelector": {
                        "type": "object", "properties": {"matchNames": {"type": "array", "items": text}},
                    },
                    "endpoints": {"type": "array", "items": {"type": "object", "properties": {
                        "port": text,
                        "interval": {"type": "string", "pattern": "^[0-9]+(ms|s|m|h)$"},
                        "scrapeTimeout": {"type": "string", "pattern": "^[0-9]+(ms|s|m|h)$"},
                    }}},
                },
            }),
        ),
        crd(
            "PrometheusRule",
            "prometheusrules",
            json!({
                "type": "object",
                "properties": {"groups": {"type": "array", "items": {
                    "type": "object", "required": ["name"],
                    "properties": {
                        "name": {"type": "string", "minLength": 1},
                        "rules": {"type": "array", "items": {
                            "type": "object", "required": ["expr"],
                            "properties": {
                                "alert": text, "expr": text,
                                "for": {"type": "string", "pattern": "^[0-9]+(ms|s|m|h)$"},
                                "labels": texts, "annotations": texts,
                            },
                        }},
                    },
                }}},
            }),
        ),
    ]
}
