//! Random sequences of requests: the same from one seed, for two servers.
//!
//! In: a seed. Out: some twenty requests about a few objects of two kinds, most of them sensible and some not: every verb and kind of patch, stale and
//! fresh versions, several field managers, finalizers, dry runs, selectors, pages, tables, bad names, bad types and unknown fields; at the end a watch
//! tells the whole story again. [`run`] sends them, [`compare`] says where two servers' answers differ, [`shrink`] finds the smallest part of a
//! sequence that still shows a difference.
//!
//! Must stay true: a sequence speaks only of a namespace of its own, so that thousands share two servers; and it is plain data, so that leaving a
//! request out leaves the others as they are.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use muster_generate::Rng;
use muster_testkit::{Http, Request, eventually};
use serde_json::{Value, json};

use crate::normal::{differences, normal};
use crate::requests::{Outcome, outcome};

/// The group of the custom resource of all sequences.
const GROUP: &str = "sequences.example.com";

/// One request. `$S` stands for the mark of the sequence, which is the name of its namespace, `${rv}` for the newest version of the object in the path that was seen, `${old}` for the
/// first, `${start}` for the version of the first list.
#[derive(Clone, Debug)]
pub struct Act {
    pub method: &'static str,
    pub path: String,
    pub content_type: &'static str,
    pub accept: &'static str,
    pub body: Option<Value>,
    /// A watch that is read to its end.
    pub watch: bool,
}

impl Act {
    /// Whether the real server begins with its own copy, which is some moments behind what is stored. A list that is content with an old version is
    /// answered from it; a write is tried on it first, and what that try was warned of is said even if it is tried again on what is stored.
    fn may_be_stale(&self) -> bool {
        match self.method {
            "GET" => !self.watch && self.path.contains("resourceVersion="),
            "PUT" | "PATCH" => true,
            _ => false,
        }
    }

    /// Whether it brings a custom object its scale.
    fn scales_a_widget(&self) -> bool {
        matches!(self.method, "PUT" | "PATCH")
            && self.path.contains("/widgets/")
            && self.path.contains("/scale")
            && !self.path.contains("dryRun")
    }
}

/// A kind that sequences are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    ConfigMap,
    Secret,
    Pod,
    Service,
    Deployment,
    Job,
    Lease,
    Widget,
}

impl Kind {
    const ALL: [Kind; 8] = [
        Kind::ConfigMap,
        Kind::Secret,
        Kind::Pod,
        Kind::Service,
        Kind::Deployment,
        Kind::Job,
        Kind::Lease,
        Kind::Widget,
    ];

    fn api_version(self) -> &'static str {
        match self {
            Kind::ConfigMap | Kind::Secret | Kind::Pod | Kind::Service => "v1",
            Kind::Deployment => "apps/v1",
            Kind::Job => "batch/v1",
            Kind::Lease => "coordination.k8s.io/v1",
            Kind::Widget => "sequences.example.com/v1",
        }
    }

    fn plural(self) -> &'static str {
        match self {
            Kind::ConfigMap => "configmaps",
            Kind::Secret => "secrets",
            Kind::Pod => "pods",
            Kind::Service => "services",
            Kind::Deployment => "deployments",
            Kind::Job => "jobs",
            Kind::Lease => "leases",
            Kind::Widget => "widgets",
        }
    }

    fn collection(self) -> String {
        let root = if self.api_version() == "v1" { "api" } else { "apis" };
        format!("/{root}/{}/namespaces/$S/{}", self.api_version(), self.plural())
    }

    fn has_status(self) -> bool {
        !matches!(self, Kind::ConfigMap | Kind::Secret | Kind::Lease)
    }

    fn has_scale(self) -> bool {
        matches!(self, Kind::Deployment | Kind::Widget)
    }
}

/// The custom resource that sequences use: defaults, rules, lists by key, and both subresources.
pub fn crd() -> Value {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "required": ["size"], "properties": {
            "size": {"type": "integer", "minimum": 0, "maximum": 9},
            "colour": {"type": "string", "enum": ["red", "green"], "default": "red"},
            "note": {"type": "string", "nullable": true, "maxLength": 8, "pattern": "^[a-z]*$"},
            "amount": {"x-kubernetes-int-or-string": true},
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}, "maxItems": 4},
            "parts": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": {
                "type": "object", "required": ["name"], "properties": {
                    "name": {"type": "string"}, "count": {"type": "integer", "default": 1}}}},
            "fixed": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
            "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }, "x-kubernetes-validations": [
            {"rule": "!has(self.parts) || self.parts.size() <= self.size + 2", "message": "too many parts"},
            {"rule": "self.size >= oldSelf.size - 3", "message": "it shrinks too fast"},
        ]},
        "status": {"type": "object", "properties": {
            "size": {"type": "integer"}, "phase": {"type": "string"}, "selector": {"type": "string"}}},
    }});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("widgets.{GROUP}")},
        "spec": {"group": GROUP, "scope": "Namespaced",
            "names": {"kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size", "labelSelectorPath": ".status.selector"}},
                "additionalPrinterColumns": [
                    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                    {"name": "Colour", "type": "string", "jsonPath": ".spec.colour", "priority": 1}]}]},
    })
}

/// The requests of a seed.
pub fn sequence(seed: u64) -> Vec<Act> {
    let mut maker = Maker { rng: Rng::new(seed) };
    let kinds = [*maker.rng.pick(&Kind::ALL), *maker.rng.pick(&Kind::ALL)];
    let mut acts = vec![list(kinds[0], "")];
    // Something is there to begin with.
    for kind in kinds {
        acts.push(maker.create(kind, "a", false));
    }
    for _ in 0..maker.rng.between((8, 20)) {
        let kind = *maker.rng.pick(&kinds);
        acts.push(maker.act(kind));
    }
    for kind in kinds {
        acts.push(list(kind, ""));
        let mut watch = list(kind, "&watch=true&resourceVersion=${start}&timeoutSeconds=1");
        watch.watch = true;
        acts.push(watch);
    }
    acts
}

const JSON: &str = "application/json";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json";
const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json";

fn get(path: String) -> Act {
    Act { method: "GET", path, content_type: JSON, accept: JSON, body: None, watch: false }
}

fn list(kind: Kind, query: &str) -> Act {
    get(format!("{}?labelSelector=sequence%3D$S{query}", kind.collection()))
}

struct Maker {
    rng: Rng,
}

impl Maker {
    fn object_path(&mut self, kind: Kind) -> String {
        let name = *self.rng.pick(&["a", "a", "a", "b"]);
        format!("{}/$S-{name}", kind.collection())
    }

    fn act(&mut self, kind: Kind) -> Act {
        match self.rng.below(100) {
            0..12 => {
                let name = *self.rng.pick(&["a", "b", "b", "c"]);
                self.create(kind, name, true)
            }
            12..18 => {
                let path = self.object_path(kind);
                let mut act = get(path);
                act.accept = *self.rng.pick(&[JSON, JSON, TABLE, METADATA]);
                act
            }
            18..26 => self.list(kind),
            26..40 => self.update(kind),
            40..80 => self.patch(kind),
            80..87 => self.subresource(kind),
            87..97 => self.delete(kind),
            _ => {
                let mut act = list(kind, "");
                act.method = "DELETE";
                act
            }
        }
    }

    fn write_query(&mut self) -> String {
        let mut query = Vec::new();
        if self.rng.percent(8) {
            query.push("dryRun=All".to_owned());
        }
        if self.rng.percent(40) {
            let mode = self.rng.pick(&["Strict", "Warn", "Ignore", "Strict", "strict"]);
            query.push(format!("fieldValidation={mode}"));
        }
        if self.rng.percent(50) {
            query.push(format!("fieldManager={}", self.rng.pick(&["alice", "bob"])));
        }
        if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) }
    }

    fn create(&mut self, kind: Kind, name: &str, wild: bool) -> Act {
        let query = if wild { self.write_query() } else { String::new() };
        let mut body = self.object(kind, name);
        if wild && self.rng.percent(35) {
            self.spoil(kind, &mut body);
        }
        Act {
            method: "POST",
            path: format!("{}{query}", kind.collection()),
            content_type: JSON,
            accept: JSON,
            body: Some(body),
            watch: false,
        }
    }

    fn update(&mut self, kind: Kind) -> Act {
        let path = self.object_path(kind);
        let name = path.rsplit_once("$S-").map_or("a", |(_, name)| name).to_owned();
        let mut body = self.object(kind, &name);
        match self.rng.below(10) {
            0..5 => body["metadata"]["resourceVersion"] = json!("${rv}"),
            5..7 => body["metadata"]["resourceVersion"] = json!("${old}"),
            _ => {}
        }
        if self.rng.percent(25) {
            self.spoil(kind, &mut body);
        }
        let query = self.write_query();
        let status = if kind.has_status() && self.rng.percent(20) { "/status" } else { "" };
        // Kubernetes makes a service without an address of a status that belongs to none.
        let status = if kind == Kind::Service { "" } else { status };
        Act {
            method: "PUT",
            path: format!("{path}{status}{query}"),
            content_type: JSON,
            accept: JSON,
            body: Some(body),
            watch: false,
        }
    }

    fn list(&mut self, kind: Kind) -> Act {
        let more = match self.rng.below(9) {
            0 => "&limit=1",
            1 => "&fieldSelector=metadata.name%3D$S-a",
            2 => "&fieldSelector=metadata.name!%3D$S-a,metadata.namespace%3D$S",
            3 => "&resourceVersion=0",
            4 => "&resourceVersion=${rv}&resourceVersionMatch=NotOlderThan",
            5 => "&resourceVersion=${rv}&resourceVersionMatch=Exact",
            6 => "&fieldSelector=spec.nodeName%3Dn",
            7 => "&resourceVersionMatch=Exact",
            _ => "",
        };
        let mut act = list(kind, more);
        if self.rng.percent(30) {
            act.path = format!(
                "{}?labelSelector={}",
                kind.collection(),
                self.rng.pick(&[
                    "sequence%3D$S,app%3Dx",
                    "sequence%20in%20($S,no),app",
                    "sequence%3D$S,!app",
                    "sequence%3D$S,app%20notin%20(x)",
                    "sequence%3D%3D$S,app!%3Dy",
                    "sequence%3D$S,size%3E1",
                    "sequence%3D$S,a%20b",
                ])
            );
        }
        act.accept = *self.rng.pick(&[JSON, JSON, TABLE, METADATA_LIST]);
        act
    }

    fn patch(&mut self, kind: Kind) -> Act {
        let path = self.object_path(kind);
        let status = if kind.has_status() && self.rng.percent(15) { "/status" } else { "" };
        let (content_type, body) = match self.rng.below(10) {
            0..3 => ("application/merge-patch+json", self.merge_patch(kind)),
            3..5 => ("application/json-patch+json", self.json_patch(kind)),
            5..7 => ("application/strategic-merge-patch+json", self.strategic_patch(kind)),
            _ => {
                let name = path.rsplit_once("$S-").map_or("a", |(_, name)| name).to_owned();
                return self.apply(kind, &path, &name, status);
            }
        };
        let query = self.write_query();
        Act {
            method: "PATCH",
            path: format!("{path}{status}{query}"),
            content_type,
            accept: JSON,
            body: Some(body),
            watch: false,
        }
    }

    fn apply(&mut self, kind: Kind, path: &str, name: &str, status: &str) -> Act {
        let status = if kind == Kind::Service { "" } else { status };
        let mut body = self.object(kind, name);
        // An applied configuration says less than an object does.
        if self.rng.percent(60) {
            let keep = self.metadata_only(kind, name);
            if self.rng.percent(50) {
                body = keep;
            }
        }
        if let Some(metadata) = body["metadata"].as_object_mut() {
            metadata.remove("finalizers");
        }
        if self.rng.percent(15) {
            self.spoil(kind, &mut body);
        }
        let manager = self.rng.pick(&["alice", "bob", "carol"]);
        let force = if self.rng.percent(40) { "&force=true" } else { "" };
        let dry = if self.rng.percent(8) { "&dryRun=All" } else { "" };
        Act {
            method: "PATCH",
            path: format!("{path}{status}?fieldManager={manager}{force}{dry}"),
            content_type: "application/apply-patch+yaml",
            accept: JSON,
            body: Some(body),
            watch: false,
        }
    }

    fn subresource(&mut self, kind: Kind) -> Act {
        let path = self.object_path(kind);
        if kind.has_scale() && self.rng.percent(70) {
            let replicas = self.rng.below(12) as i64 - 1;
            return match self.rng.below(3) {
                0 => get(format!("{path}/scale")),
                1 => Act {
                    method: "PATCH",
                    path: format!("{path}/scale"),
                    content_type: "application/merge-patch+json",
                    accept: JSON,
                    body: Some(json!({"spec": {"replicas": replicas}})),
                    watch: false,
                },
                _ => Act {
                    method: "PUT",
                    path: format!("{path}/scale"),
                    content_type: JSON,
                    accept: JSON,
                    body: Some(json!({"apiVersion": "autoscaling/v1", "kind": "Scale",
                        "metadata": {"name": path.rsplit('/').next(), "namespace": "$S"},
                        "spec": {"replicas": replicas}})),
                    watch: false,
                },
            };
        }
        if kind == Kind::Pod {
            let target = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": path.rsplit('/').next()},
                "target": {"apiVersion": "v1", "kind": "Node", "name": "n"}});
            let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": path.rsplit('/').next()}});
            let (sub, body) = if self.rng.percent(60) { ("binding", target) } else { ("eviction", eviction) };
            return Act {
                method: "POST",
                path: format!("{path}/{sub}"),
                content_type: JSON,
                accept: JSON,
                body: Some(body),
                watch: false,
            };
        }
        let sub = self.rng.pick(&["status", "scale", "nothing"]);
        get(format!("{path}/{sub}"))
    }

    fn delete(&mut self, kind: Kind) -> Act {
        let path = self.object_path(kind);
        let body = match self.rng.below(7) {
            0 => Some(
                json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"resourceVersion": "${rv}"}}),
            ),
            1 => Some(json!({"preconditions": {"resourceVersion": "${old}"}})),
            2 => Some(json!({"preconditions": {"uid": "00000000-0000-4000-8000-000000000000"}})),
            3 => Some(
                json!({"propagationPolicy": self.rng.pick(&["Foreground", "Orphan", "Background", "Sideways"])}),
            ),
            4 => Some(json!({"gracePeriodSeconds": *self.rng.pick(&[0, 5, -1])})),
            5 => Some(json!({"dryRun": ["All"]})),
            _ => None,
        };
        Act { method: "DELETE", path, content_type: JSON, accept: JSON, body, watch: false }
    }

    fn metadata_only(&mut self, kind: Kind, name: &str) -> Value {
        let mut labels = json!({"sequence": "$S"});
        if self.rng.percent(50) {
            labels["app"] = json!(self.rng.pick(&["x", "y"]));
        }
        let mut metadata = json!({"name": format!("$S-{name}"), "labels": labels});
        if self.rng.percent(25) {
            metadata["annotations"] = json!({"note": self.rng.pick(&["one", "two"])});
        }
        if self.rng.percent(12) {
            metadata["finalizers"] =
                json!([self.rng.pick(&["example.com/hold", "example.com/keep", "foregroundDeletion"])]);
        }
        if self.rng.percent(5) {
            metadata["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner",
                "uid": "00000000-0000-4000-8000-000000000001", "controller": self.rng.percent(50)}]);
        }
        json!({"apiVersion": kind.api_version(), "kind": format!("{kind:?}"), "metadata": metadata})
    }

    fn pod_spec(&mut self) -> Value {
        let mut container = json!({"name": "c", "image": self.rng.pick(&["i:1", "i:2", "i"])});
        if self.rng.percent(40) {
            container["resources"] = json!({"requests": {"cpu": self.rng.pick(&["1", "0.5", "100m", "1500m"])},
                "limits": {"cpu": self.rng.pick(&["1", "2"]), "memory": "1Gi"}});
        }
        if self.rng.percent(30) {
            container["env"] =
                json!([{"name": "A", "value": "1"}, {"name": self.rng.pick(&["B", "A"]), "value": "2"}]);
        }
        if self.rng.percent(30) {
            container["ports"] = json!([{"containerPort": 80}, {"containerPort": self.rng.pick(&[80, 81]), "protocol": "UDP"}]);
        }
        let mut spec = json!({"containers": [container]});
        if self.rng.percent(30) {
            let first = spec["containers"][0].take();
            spec["containers"] = json!([first, {"name": "d", "image": "j"}]);
        }
        if self.rng.percent(25) {
            spec["tolerations"] = json!([{"key": "k", "operator": "Exists", "effect": "NoSchedule"}]);
        }
        if self.rng.percent(20) {
            spec["nodeSelector"] = json!({"zone": self.rng.pick(&["a", "b"])});
        }
        if self.rng.percent(20) {
            spec["terminationGracePeriodSeconds"] = json!(self.rng.pick(&[0, 1, 30]));
        }
        if self.rng.percent(15) {
            spec["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
        }
        spec
    }

    /// A valid object, with the sequence's mark.
    fn object(&mut self, kind: Kind, name: &str) -> Value {
        let mut object = self.metadata_only(kind, name);
        match kind {
            Kind::ConfigMap => {
                object["data"] = json!({"k": self.rng.pick(&["1", "2", "3"]), "other": "x"});
                if self.rng.percent(10) {
                    object["immutable"] = json!(true);
                }
                if self.rng.percent(15) {
                    object["binaryData"] = json!({"b": "aGk="});
                }
            }
            Kind::Secret => {
                object["data"] = json!({"k": self.rng.pick(&["aGk=", "aG8="])});
                if self.rng.percent(30) {
                    object["stringData"] = json!({"s": "text"});
                }
                if self.rng.percent(20) {
                    object["type"] =
                        json!(self.rng.pick(&["Opaque", "example.com/custom", "kubernetes.io/tls"]));
                }
            }
            Kind::Pod => {
                object["spec"] = self.pod_spec();
                if self.rng.percent(20) {
                    object["spec"]["nodeName"] = json!("n");
                }
            }
            Kind::Service => {
                object["spec"] = json!({"selector": {"app": self.rng.pick(&["x", "y"])},
                    "ports": [{"name": "http", "port": self.rng.pick(&[80, 81]), "targetPort": self.rng.pick(&[json!(80), json!("web")])}]});
                if self.rng.percent(30) {
                    object["spec"]["clusterIP"] = json!("None");
                }
                if self.rng.percent(20) {
                    object["spec"]["sessionAffinity"] = json!("ClientIP");
                }
            }
            Kind::Deployment => {
                object["spec"] = json!({"replicas": self.rng.below(4), "selector": {"matchLabels": {"d": "$S"}},
                    "template": {"metadata": {"labels": {"d": "$S"}}, "spec": self.pod_spec()}});
                if self.rng.percent(30) {
                    object["spec"]["strategy"] = match self.rng.below(3) {
                        0 => json!({"type": "Recreate"}),
                        1 => {
                            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "50%", "maxUnavailable": 1}})
                        }
                        _ => json!({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}),
                    };
                }
            }
            Kind::Job => {
                let mut template = json!({"spec": self.pod_spec()});
                template["spec"]["restartPolicy"] = json!(self.rng.pick(&["Never", "OnFailure"]));
                object["spec"] = json!({"parallelism": self.rng.below(4), "suspend": self.rng.percent(50), "template": template});
                if self.rng.percent(40) {
                    object["spec"]["completions"] = json!(self.rng.below(4));
                }
                if self.rng.percent(20) {
                    object["spec"]["completionMode"] = json!("Indexed");
                }
            }
            Kind::Lease => {
                object["spec"] = json!({"holderIdentity": self.rng.pick(&["me", "you"]), "leaseDurationSeconds": self.rng.pick(&[15, 30]),
                    "renewTime": "2026-01-01T00:00:00.123456Z"});
            }
            Kind::Widget => {
                object["spec"] = json!({"size": self.rng.below(10)});
                if self.rng.percent(40) {
                    object["spec"]["parts"] = json!([{"name": "p", "count": self.rng.below(4)}, {"name": self.rng.pick(&["q", "p"])}]);
                }
                if self.rng.percent(30) {
                    object["spec"]["tags"] = json!(["t", self.rng.pick(&["u", "t"])]);
                }
                if self.rng.percent(30) {
                    object["spec"]["colour"] = json!(self.rng.pick(&["red", "green", "blue"]));
                }
                if self.rng.percent(20) {
                    object["spec"]["amount"] = self.rng.pick(&[json!(1), json!("1"), json!(true)]).clone();
                }
                if self.rng.percent(20) {
                    object["spec"]["open"] = json!({"any": {"thing": [1]}});
                }
                if self.rng.percent(20) {
                    object["spec"]["fixed"] = json!({self.rng.pick(&["a", "b"]).to_string(): "v"});
                }
                if self.rng.percent(15) {
                    object["spec"]["note"] =
                        self.rng.pick(&[Value::Null, json!("fine"), json!("NOT")]).clone();
                }
            }
        }
        if kind.has_status() && self.rng.percent(25) {
            object["status"] = self.status(kind);
        }
        object
    }

    fn status(&mut self, kind: Kind) -> Value {
        match kind {
            Kind::Pod => {
                json!({"phase": self.rng.pick(&["Running", "Pending"]), "podIP": "10.1.2.3", "conditions": [
                {"type": "Ready", "status": self.rng.pick(&["True", "False"]), "lastTransitionTime": null}]})
            }
            Kind::Service => json!({"loadBalancer": {}}),
            Kind::Deployment => json!({"replicas": 1, "observedGeneration": 1}),
            Kind::Job => json!({"active": 1}),
            _ => json!({"size": self.rng.below(5), "phase": self.rng.pick(&["Up", "Down"])}),
        }
    }

    /// Does one thing wrong.
    fn spoil(&mut self, kind: Kind, body: &mut Value) {
        let inner = if body["spec"].is_object() { "spec" } else { "data" };
        match self.rng.below(14) {
            0 => body["unknown"] = json!(1),
            1 => body[inner]["unknownField"] = json!("x"),
            2 => body["metadata"]["name"] = json!("$S-Upper"),
            3 => body["metadata"]["namespace"] = json!("other"),
            4 => body["metadata"]["labels"]["bad label"] = json!("x"),
            5 => body["metadata"]["labels"]["app"] = json!("no blanks please"),
            6 => body["metadata"]["resourceVersion"] = json!("1"),
            7 => body["metadata"]["uid"] = json!("00000000-0000-4000-8000-000000000002"),
            8 => body["kind"] = json!("Other"),
            9 => body["apiVersion"] = json!("v9"),
            10 => body["metadata"]["labels"] = json!(["list"]),
            11 => body[inner] = json!("text"),
            12 => body["metadata"]["annotations"] = json!({"n": 5}),
            _ => match kind {
                Kind::ConfigMap => body["data"] = json!({"bad key!": "x"}),
                Kind::Secret => body["data"] = json!({"k": "not base64 !"}),
                Kind::Pod => body["spec"]["containers"] = json!([]),
                Kind::Service => body["spec"]["ports"] = json!([{"port": 0}]),
                Kind::Deployment => body["spec"]["template"]["metadata"]["labels"] = json!({"d": "other"}),
                Kind::Job => body["spec"]["template"]["spec"]["restartPolicy"] = json!("Always"),
                Kind::Lease => body["spec"]["leaseDurationSeconds"] = json!(0),
                Kind::Widget => body["spec"]["size"] = json!("large"),
            },
        }
    }

    fn merge_patch(&mut self, kind: Kind) -> Value {
        match self.rng.below(9) {
            0 => json!({"metadata": {"labels": {"app": "y"}}}),
            1 => json!({"metadata": {"labels": {"app": null}, "annotations": {"m": "1"}}}),
            2 => {
                json!({"metadata": {"finalizers": self.rng.pick(&[json!(null), json!(["example.com/hold"]), json!([])])}})
            }
            3 => {
                json!({"metadata": {"resourceVersion": self.rng.pick(&["${rv}", "${old}"]), "annotations": {"m": "2"}}})
            }
            4 => json!({}),
            5 => json!({"metadata": {"name": "$S-renamed"}}),
            6 => json!({"unknown": {"x": 1}, "metadata": {"annotations": {"m": "3"}}}),
            7 => json!({"metadata": null}),
            _ => self.change(kind),
        }
    }

    /// A part of an object of the kind, as a merge patch changes it.
    fn change(&mut self, kind: Kind) -> Value {
        match kind {
            Kind::ConfigMap => self
                .rng
                .pick(&[
                    json!({"data": {"k": "9"}}),
                    json!({"data": {"k": null}}),
                    json!({"data": null}),
                    json!({"immutable": true}),
                ])
                .clone(),
            Kind::Secret => self
                .rng
                .pick(&[
                    json!({"stringData": {"k": "9"}}),
                    json!({"type": "other"}),
                    json!({"data": {"k": null}}),
                ])
                .clone(),
            Kind::Pod => self
                .rng
                .pick(&[
                    json!({"spec": {"containers": [{"name": "c", "image": "i:9"}]}}),
                    json!({"spec": {"nodeName": "m"}}),
                    json!({"spec": {"tolerations": [{"key": "z", "operator": "Exists"}]}}),
                    json!({"spec": {"activeDeadlineSeconds": 5}}),
                    json!({"status": {"phase": "Succeeded"}}),
                ])
                .clone(),
            Kind::Service => self
                .rng
                .pick(&[
                    json!({"spec": {"ports": [{"port": 90}]}}),
                    json!({"spec": {"clusterIP": "None"}}),
                    json!({"spec": {"selector": null}}),
                ])
                .clone(),
            Kind::Deployment => self
                .rng
                .pick(&[
                    json!({"spec": {"replicas": 7}}),
                    json!({"spec": {"replicas": null}}),
                    json!({"spec": {"selector": {"matchLabels": {"d": "z"}}}}),
                    json!({"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 3}}}}),
                    json!({"spec": {"strategy": {"type": "Recreate"}}}),
                ])
                .clone(),
            Kind::Job => self
                .rng
                .pick(&[
                    json!({"spec": {"suspend": false}}),
                    json!({"spec": {"parallelism": 2}}),
                    json!({"spec": {"completions": 9}}),
                    json!({"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}}),
                    json!({"spec": {"backoffLimit": -1}}),
                ])
                .clone(),
            Kind::Lease => self
                .rng
                .pick(&[
                    json!({"spec": {"holderIdentity": null}}),
                    json!({"spec": {"leaseTransitions": 2}}),
                    json!({"spec": {"renewTime": "soon"}}),
                ])
                .clone(),
            Kind::Widget => self
                .rng
                .pick(&[
                    json!({"spec": {"size": 5}}),
                    json!({"spec": {"size": 0}}),
                    json!({"spec": {"colour": null}}),
                    json!({"spec": {"parts": [{"name": "r"}]}}),
                    json!({"spec": {"note": "abc"}}),
                    json!({"spec": {"nothing": 1}}),
                    json!({"status": {"phase": "Up"}}),
                ])
                .clone(),
        }
    }

    fn json_patch(&mut self, kind: Kind) -> Value {
        let inner = match kind {
            Kind::ConfigMap | Kind::Secret => "data",
            _ => "spec",
        };
        self.rng
            .pick(&[
                json!([{"op": "add", "path": "/metadata/labels/added", "value": "1"}]),
                json!([{"op": "remove", "path": "/metadata/labels/app"}]),
                json!([{"op": "replace", "path": "/metadata/labels/sequence", "value": "$S"}]),
                json!([{"op": "test", "path": "/metadata/name", "value": "$S-b"}, {"op": "add", "path": "/metadata/annotations", "value": {"t": "1"}}]),
                json!([{"op": "copy", "from": "/metadata/labels", "path": "/metadata/annotations"}]),
                json!([{"op": "move", "from": "/metadata/labels/app", "path": "/metadata/labels/moved"}]),
                json!([{"op": "replace", "path": format!("/{inner}/nowhere/deep"), "value": 1}]),
                json!([{"op": "add", "path": format!("/{inner}/extra"), "value": "x"}]),
                json!([{"op": "remove", "path": "/metadata/finalizers"}]),
                json!([{"op": "add", "path": "/metadata/finalizers", "value": ["example.com/keep"]}]),
                json!([{"op": "replace", "path": format!("/{inner}"), "value": {}}]),
                json!([{"op": "nothing", "path": "/x"}]),
                json!([]),
            ])
            .clone()
    }

    fn strategic_patch(&mut self, kind: Kind) -> Value {
        let pods = |spec: Value| match kind {
            Kind::Pod => json!({"spec": spec}),
            Kind::Deployment | Kind::Job => json!({"spec": {"template": {"spec": spec}}}),
            _ => json!({"metadata": {"annotations": {"s": "1"}}}),
        };
        match self.rng.below(9) {
            0 => pods(json!({"containers": [{"name": "c", "image": "i:7"}]})),
            1 => {
                pods(json!({"containers": [{"name": "c", "$patch": "delete"}, {"name": "e", "image": "k"}]}))
            }
            2 => pods(
                json!({"containers": [{"name": "c", "env": [{"name": "A", "value": "7"}]}], "$setElementOrder/containers": [{"name": "c"}]}),
            ),
            3 => pods(json!({"tolerations": [{"key": "k", "effect": "NoExecute", "operator": "Exists"}]})),
            4 => pods(json!({"nodeSelector": {"$patch": "replace", "only": "this"}})),
            5 => json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/hold"]}}),
            6 => json!({"metadata": {"labels": {"$patch": "merge", "app": "z"}}}),
            7 if kind == Kind::Deployment => {
                json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}})
            }
            7 if kind == Kind::Service => {
                json!({"spec": {"ports": [{"port": 80, "name": "again"}, {"port": 99, "name": "new"}]}})
            }
            _ => self.merge_patch(kind),
        }
    }
}

/// What one server answers to a sequence. `mark` sets its objects apart from those of all others.
///
/// # Errors
/// When the connection fails.
pub async fn run(acts: &[Act], http: &Http, mark: &str) -> Result<Vec<Value>> {
    let mut versions: BTreeMap<String, (String, String)> = BTreeMap::new();
    let mut start = "0".to_owned();
    let mut answers = Vec::with_capacity(acts.len());
    for (n, act) in acts.iter().enumerate() {
        let object = object_of(&act.path).replace("$S", mark);
        let (newest, oldest) = versions.get(&object).cloned().unwrap_or_else(|| ("1".into(), "1".into()));
        let fill = |text: &str| {
            text.replace("$S", mark)
                .replace("${rv}", &newest)
                .replace("${old}", &oldest)
                .replace("${start}", &start)
        };
        if act.may_be_stale() {
            catch_up(http, &collection_of(&object, mark)).await?;
        }
        let mut request = Request::new(act.method, &fill(&act.path))
            .header("accept", act.accept)
            .header("user-agent", "muster-e2e");
        if let Some(body) = &act.body {
            request = request.header("content-type", act.content_type);
            request.body = fill(&body.to_string()).into_bytes();
        }
        let answer: Outcome = if act.watch {
            let (response, events, _) = http.watch(&request, usize::MAX, QUIET).await?;
            let mut answer = outcome(&request, &response);
            if response.status == 200 {
                answer.body = Value::Array(events);
            }
            answer
        } else {
            outcome(&request, &http.send(&request).await?)
        };
        let version = answer.body["metadata"]["resourceVersion"].as_str().filter(|v| !v.is_empty());
        if let Some(version) = version {
            if n == 0 {
                start = version.to_owned();
            }
            let named = answer.body["metadata"]["name"].as_str().map(|name| match act.method {
                "POST" => format!("{object}/{name}"),
                _ => object.clone(),
            });
            if let Some(named) = named {
                let first =
                    versions.get(&named).map_or_else(|| version.to_owned(), |(_, first)| first.clone());
                versions.insert(named, (version.to_owned(), first));
            }
        }
        answers.push(normal(
            &json!({"status": answer.status, "headers": answer.headers, "body": answer.body}),
            mark,
        ));
    }
    Ok(answers)
}

/// Waits until the server's own copy of a collection has everything that was written so far.
async fn catch_up(http: &Http, collection: &str) -> Result<()> {
    eventually("the copy has caught up", Duration::from_secs(60), async || {
        let newest = http.send(&Request::new("GET", collection)).await?;
        let newest = newest.json().unwrap_or_default();
        let version = newest["metadata"]["resourceVersion"].as_str().unwrap_or("0");
        let path = format!("{collection}?resourceVersion={version}&resourceVersionMatch=NotOlderThan");
        let answer = http.send(&Request::new("GET", &path)).await?;
        ensure!(answer.status == 200, "{}", answer.status);
        anyhow::Ok(())
    })
    .await
}

/// How long a watch may be silent; longer than its own time.
const QUIET: Duration = Duration::from_secs(10);

/// The path without its query and subresource.
fn object_of(path: &str) -> String {
    let path = path.split('?').next().unwrap_or(path);
    match path.find("/$S-") {
        Some(at) => {
            let end = path[at + 1..].find('/').map_or(path.len(), |end| at + 1 + end);
            path[..end].to_owned()
        }
        None => path.to_owned(),
    }
}

/// The collection of an object, or the collection itself.
fn collection_of(object: &str, mark: &str) -> String {
    match object.rsplit_once('/') {
        Some((collection, name)) if name.starts_with(&format!("{mark}-")) => collection.to_owned(),
        _ => object.to_owned(),
    }
}

/// Whether what `compare` found is the difference that `docs/differences.md` lists: the first `spec` of a custom object came with its scale. The real
/// server stores that without the defaults beside it, and stores them with the next write, so that one that changes nothing makes one more event.
pub fn is_listed(acts: &[Act], theirs: &[Value], found: &[(usize, Vec<String>)]) -> bool {
    let mut without_spec: BTreeMap<String, bool> = BTreeMap::new();
    let mut is_scaled = false;
    for (act, answer) in acts.iter().zip(theirs) {
        let body = &answer["body"];
        let object = object_of(&act.path);
        if act.scales_a_widget() {
            is_scaled |= answer["status"] == 200 && without_spec.get(&object) == Some(&true);
        } else if body["kind"] == "Widget" {
            let object = match act.method {
                "POST" => format!(
                    "{object}/{}",
                    body["metadata"]["name"].as_str().unwrap_or_default().replace("<run>", "$S")
                ),
                _ => object,
            };
            without_spec.insert(object, body.get("spec").is_none());
        }
    }
    is_scaled && !found.is_empty() && found.iter().all(|(n, _)| acts[*n].watch)
}

/// Where two servers' answers to one sequence differ: the number of the request, and what differs.
pub fn compare(left: &[Value], right: &[Value]) -> Vec<(usize, Vec<String>)> {
    let pairs = left.iter().zip(right).enumerate();
    pairs.map(|(n, (l, r))| (n, differences(l, r))).filter(|(_, found)| !found.is_empty()).collect()
}

/// The smallest part of a sequence that still fails, as far as leaving out requests and parts of bodies gets. `fails` runs a sequence afresh.
pub async fn shrink(acts: Vec<Act>, fails: impl AsyncFn(&[Act]) -> Result<bool>) -> Result<Vec<Act>> {
    let mut best = acts;
    let mut smaller = true;
    while std::mem::take(&mut smaller) {
        // From the end: what comes after the difference goes first.
        for n in (0..best.len()).rev() {
            let mut trial = best.clone();
            trial.remove(n);
            if fails(&trial).await? {
                best = trial;
                smaller = true;
            }
        }
    }
    for n in 0..best.len() {
        // What is left out takes only itself and what is inside it off the list, and both stand further on.
        let mut kept = 0;
        while let Some(body) = best[n].body.clone() {
            let Some(pointer) = members(&body).into_iter().nth(kept) else { break };
            let mut trial = best.clone();
            trial[n].body.as_mut().into_iter().for_each(|body| leave_out(body, &pointer));
            if fails(&trial).await? {
                best = trial;
            } else {
                kept += 1;
            }
        }
    }
    Ok(best)
}

/// The pointers of all members of objects, outermost first.
fn members(value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut level = vec![(String::new(), value)];
    while !level.is_empty() {
        let mut next = Vec::new();
        for (at, value) in level {
            match value {
                Value::Object(object) => {
                    for (key, value) in object {
                        let at = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
                        found.push(at.clone());
                        next.push((at, value));
                    }
                }
                Value::Array(items) => {
                    next.extend(items.iter().enumerate().map(|(n, item)| (format!("{at}/{n}"), item)));
                }
                _ => {}
            }
        }
        level = next;
    }
    found
}

fn leave_out(value: &mut Value, pointer: &str) {
    let Some((parent, key)) = pointer.rsplit_once('/') else { return };
    if let Some(Value::Object(object)) = value.pointer_mut(parent) {
        object.remove(&key.replace("~1", "/").replace("~0", "~"));
    }
}

/// A sequence in words, one request a line.
pub fn told(acts: &[Act]) -> String {
    let line = |act: &Act| {
        let body = act.body.as_ref().map_or_else(String::new, |body| format!(" {body}"));
        let kind = if act.body.is_some() && act.content_type != JSON {
            format!(" ({})", act.content_type)
        } else {
            String::new()
        };
        let accept = if act.accept == JSON { String::new() } else { format!(" [{}]", act.accept) };
        format!("  {} {}{kind}{accept}{body}\n", act.method, act.path)
    };
    acts.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_sequence() {
        for seed in 0..50 {
            let (one, two) = (sequence(seed), sequence(seed));
            assert_eq!(told(&one), told(&two));
            assert!(one.len() >= 14, "{seed}");
        }
        assert_ne!(told(&sequence(1)), told(&sequence(2)));
    }

    #[test]
    fn the_object_of_a_path() {
        let check = |path: &str, object: &str| assert_eq!(object_of(path), object);
        check("/api/v1/namespaces/n/pods/$S-a/status?x=/y", "/api/v1/namespaces/n/pods/$S-a");
        check("/api/v1/namespaces/n/pods/$S-a", "/api/v1/namespaces/n/pods/$S-a");
        check("/api/v1/namespaces/n/pods?labelSelector=a%3D$S", "/api/v1/namespaces/n/pods");
    }

    #[tokio::test]
    async fn shrinking_leaves_what_matters() {
        let fails = async |acts: &[Act]| {
            let bad = |act: &Act| {
                act.body.as_ref().is_some_and(|body| body.pointer("/metadata/labels/sequence").is_some())
            };
            Ok(acts.iter().any(bad))
        };
        let small = shrink(sequence(3), fails).await.unwrap();
        assert_eq!(small.len(), 1, "{}", told(&small));
        assert_eq!(small[0].body, Some(json!({"metadata": {"labels": {"sequence": "$S"}}})));
    }
}
