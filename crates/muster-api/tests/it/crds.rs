//! The CRDs as the API server wants them, and the ways to choose among them.

use muster_api::schema::{Mark, Shape};
use muster_api::{System, crds, crds_of_group, crds_with_conversion};
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn names(crds: &[Value]) -> Vec<String> {
    crds.iter().map(|crd| crd["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn all_of_them_once_and_always_in_the_same_order() {
    let all = crds(None);
    assert_eq!(all.len(), 5 + 6 + 11 + 11 + 10 + 10);
    assert_eq!(names(&all).iter().collect::<BTreeSet<_>>().len(), all.len());
    assert_eq!(
        all,
        crds(Some(&[
            System::T9k,
            System::Koordinator,
            System::Volcano,
            System::Kueue,
            System::Kai,
            System::Grove
        ]))
    );
    assert_eq!(serde_json::to_string(&all).unwrap(), serde_json::to_string(&crds(None)).unwrap());
}

#[test]
fn by_system_and_by_group() {
    assert_eq!(names(&crds(Some(&[System::Grove]))).last().unwrap(), "podgangs.scheduler.grove.io");
    assert_eq!(crds_of_group("kueue.x-k8s.io"), crds(Some(&[System::Kueue])));
    assert_eq!(names(&crds_of_group("bus.volcano.sh")), ["commands.bus.volcano.sh"]);
    assert!(crds_of_group("scheduling.k8s.io").is_empty(), "built in, never a CRD");
    assert!(crds(Some(&[])).is_empty());
    assert_eq!(System::of_group("topology.node.k8s.io"), Some(System::Koordinator));
    assert_eq!(System::of_group("apps"), None);
    let of_groups: Vec<Value> = muster_api::groups().into_iter().flat_map(crds_of_group).collect();
    assert_eq!(names(&of_groups), names(&crds(None)));
    for system in System::ALL {
        assert_eq!(system.name().parse::<System>().unwrap(), system);
    }
    assert_eq!(
        "slurm".parse::<System>().unwrap_err().to_string(),
        "no system is called \"slurm\": expected grove, kai, kueue, volcano, koordinator or t9k"
    );
}

#[test]
fn conversion_only_when_asked_and_only_for_kueue() {
    assert!(crds(None).iter().all(|crd| crd["spec"].get("conversion").is_none()));
    let config = json!({"service": {"namespace": "muster", "name": "webhook", "path": "/convert"}});
    for crd in crds_with_conversion(None, &config) {
        if crd["spec"]["group"] == "kueue.x-k8s.io" {
            let webhook = json!({"clientConfig": config, "conversionReviewVersions": ["v1"]});
            assert_eq!(crd["spec"]["conversion"], json!({"strategy": "Webhook", "webhook": webhook}));
        } else {
            assert!(crd["spec"].get("conversion").is_none());
        }
    }
}

/// What `kubectl get pcs` shows.
#[test]
fn a_pod_clique_set_has_a_ready_column() {
    let crd = &crds(Some(&[System::Grove]))[0];
    let version = &crd["spec"]["versions"][0];
    assert_eq!(crd["spec"]["names"]["shortNames"], json!(["pcs"]));
    assert_eq!(
        version["additionalPrinterColumns"][0],
        json!({"name": "Ready", "type": "string", "jsonPath": ".status.ready"})
    );
    assert_eq!(
        version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["ready"]["type"],
        "string"
    );
}

/// The rules for structural schemas that an API server checks before it accepts a CRD, as far as we could
/// break them.
#[test]
fn schemas_are_structural() {
    for crd in crds(None) {
        let name = crd["metadata"]["name"].as_str().unwrap();
        let versions = crd["spec"]["versions"].as_array().unwrap();
        assert_eq!(versions.iter().filter(|v| v["storage"] == true).count(), 1, "{name}");
        for version in versions {
            let schema = &version["schema"]["openAPIV3Schema"];
            assert_eq!(schema["properties"]["metadata"], json!({"type": "object"}), "{name}");
            check_schema(&format!("{name} {}", version["name"]), schema);
        }
    }
}

#[track_caller]
fn check_schema(at: &str, schema: &Value) {
    let map = schema.as_object().unwrap();
    let typed = schema.get("type").is_some();
    let free = schema["x-kubernetes-int-or-string"] == true
        || schema["x-kubernetes-preserve-unknown-fields"] == true;
    assert!(typed || free, "{at}: no type");
    for (keyword, value) in map {
        let empty = value.as_array().is_some_and(Vec::is_empty) || value.as_str().is_some_and(str::is_empty);
        assert!(!empty || keyword == "default", "{at}: {keyword} is empty");
    }
    if let Some(default) = schema.get("default") {
        assert!(!default.is_null(), "{at}: a default that is null");
    }
    for name in schema["required"].as_array().into_iter().flatten() {
        assert!(
            schema["properties"].get(name.as_str().unwrap()).is_some(),
            "{at}: requires an unknown {name}"
        );
    }
    if schema["x-kubernetes-list-type"] == "map" {
        let items = &schema["items"];
        for key in schema["x-kubernetes-list-map-keys"].as_array().unwrap() {
            let property = &items["properties"][key.as_str().unwrap()];
            assert!(property["type"].is_string(), "{at}: the key {key} is no scalar field");
            let required = items["required"].as_array().is_some_and(|r| r.contains(key));
            assert!(required || property.get("default").is_some(), "{at}: the key {key} may be absent");
        }
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        check_schema(&format!("{at}.{name}"), property);
    }
    for keyword in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get(keyword) {
            check_schema(&format!("{at}.{keyword}"), inner);
        }
    }
    assert!(!(schema.get("properties").is_some() && schema.get("additionalProperties").is_some()), "{at}");
}

/// `kubectl explain` has something to say about every kind and its spec.
#[test]
fn kinds_are_described() {
    for crd in crds(None) {
        for version in crd["spec"]["versions"].as_array().unwrap() {
            let schema = &version["schema"]["openAPIV3Schema"];
            assert!(schema["description"].is_string(), "{} {}", crd["metadata"]["name"], version["name"]);
            for part in ["spec", "status"] {
                if let Some(part) = schema["properties"].get(part) {
                    assert!(part["description"].is_string(), "{} {part}", crd["metadata"]["name"]);
                }
            }
        }
    }
}

/// Every default is JSON: a text that is not would be left out of the schema.
#[test]
fn defaults_are_json() {
    fn walk(shape: &Shape, n_defaults: &mut usize) {
        match shape {
            Shape::List(inner) | Shape::Map(inner) => walk(inner, n_defaults),
            Shape::Object { properties, .. } => {
                for property in *properties {
                    for mark in property.marks {
                        if let Mark::Default(text) = mark {
                            assert!(serde_json::from_str::<Value>(text).is_ok(), "{}: {text}", property.name);
                            *n_defaults += 1;
                        }
                    }
                    walk(property.shape, n_defaults);
                }
            }
            _ => {}
        }
    }
    let mut n_defaults = 0;
    for kind in System::ALL.iter().flat_map(|s| s.kinds()) {
        walk(kind.shape, &mut n_defaults);
    }
    assert!(n_defaults > 100, "only {n_defaults} defaults");
}

/// What `kube::Api` asks of a type.
#[test]
fn kinds_are_kube_resources() {
    fn check<K>(url: &str)
    where
        K: kube::Resource<DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned
            + serde::Serialize,
    {
        assert_eq!(K::url_path(&(), Some("ns").filter(|_| url.contains("namespaces"))), url);
    }
    check::<muster_api::grove::PodCliqueSet>("/apis/grove.io/v1alpha1/namespaces/ns/podcliquesets");
    check::<muster_api::kai::Queue>("/apis/scheduling.run.ai/v2/queues");
    check::<muster_api::kueue::v1beta1::WorkloadPriorityClass>(
        "/apis/kueue.x-k8s.io/v1beta1/workloadpriorityclasses",
    );
    check::<muster_api::koordinator::topology::NodeResourceTopologyV1alpha1>(
        "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies",
    );
    check::<muster_api::workload::v1alpha2::PodGroup>(
        "/apis/scheduling.k8s.io/v1alpha2/namespaces/ns/podgroups",
    );
}

/// A spec that the schema does not require can still be read without asking first.
#[test]
fn an_absent_spec_reads_as_an_empty_one() {
    let queue = muster_api::kai::Queue::default();
    assert_eq!(queue.spec().parent_queue, None);
    assert_eq!(queue.status().child_queues, None);
}
