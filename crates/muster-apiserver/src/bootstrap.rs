//! The objects that every cluster starts with: system namespaces, priority classes and the API's own service.

use crate::meta;
use crate::server::ApiServer;
use crate::store::{Expect, Key};
use crate::strategy;
use serde_json::{Value, json};

/// Creates what is missing.
pub(crate) fn seed(server: &ApiServer) {
    for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
        put(server, "namespaces", json!({"metadata": {"name": name}}));
    }
    for (name, value, what) in [
        ("system-node-critical", 2_000_001_000_i64, "for pods that a node cannot do without"),
        ("system-cluster-critical", 2_000_000_000, "for pods that the cluster cannot do without"),
    ] {
        let class = json!({"metadata": {"name": name}, "value": value, "description": what});
        put(server, "priorityclasses.scheduling.k8s.io", class);
    }
    let labels = json!({"component": "apiserver", "provider": "kubernetes"});
    put(
        server,
        "services",
        json!({
            "metadata": {"name": "kubernetes", "namespace": "default", "labels": labels},
            "spec": {
                "type": "ClusterIP", "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"],
                "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}],
            },
        }),
    );
}

pub(crate) fn put(server: &ApiServer, table: &str, mut object: Value) {
    let Some(served) = server.kind_of_table(table) else { return };
    let key = Key::new(meta::namespace(&object), meta::name(&object));
    // An object that is there already stays as it is.
    if server.store().get(table, &key).is_some() {
        return;
    }
    object["apiVersion"] = served.storage_api_version.as_str().into();
    object["kind"] = served.kind.as_str().into();
    strategy::default(&served, &mut object);
    server.stamp_new(&mut object);
    let status = object.get("status").cloned();
    strategy::prepare_create(&served, &mut object);
    if let Some(status) = status {
        object["status"] = status;
    }
    let _ = server.commit(&served, &key, Expect::Absent, &object);
}

/// Keeps one APIService per served group and version, as the aggregation layer does for what the server itself serves.
pub(crate) fn list_api_services(server: &ApiServer) {
    let table = "apiservices.apiregistration.k8s.io";
    let Some(served) = server.kind_of_table(table) else { return };
    let registry = server.registry();
    let mut wanted = std::collections::BTreeSet::new();
    for (order, (group, versions)) in registry.groups.iter().enumerate() {
        let builtin = registry.is_builtin_group(group);
        for (rank, version) in versions.iter().enumerate() {
            let name = format!("{version}.{group}");
            let managed = if builtin { "onstart" } else { "true" };
            let priority = if builtin { 18000 - 100 * order } else { 1000 };
            let version_priority = if builtin { 15 - rank.min(14) } else { 100 };
            put(
                server,
                table,
                json!({
                    "metadata": {"name": name, "labels": {"kube-aggregator.kubernetes.io/automanaged": managed}},
                    "spec": {
                        "group": group, "version": version,
                        "groupPriorityMinimum": priority, "versionPriority": version_priority,
                    },
                    "status": {"conditions": [{
                        "type": "Available", "status": "True", "reason": "Local",
                        "message": "Local APIServices are always available",
                        "lastTransitionTime": server.clock().rfc3339(),
                    }]},
                }),
            );
            wanted.insert(name);
        }
    }
    for object in server.all(table) {
        let name = meta::name(&object);
        if !wanted.contains(name)
            && let Ok(revision) = meta::text(&object, "resourceVersion").parse()
        {
            let _ = server.erase(&served, &Key::new("", name), revision, &object);
        }
    }
}
