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

fn put(server: &ApiServer, table: &str, mut object: Value) {
    let Some(served) = server.kind_of_table(table) else { return };
    object["apiVersion"] = served.storage_api_version.as_str().into();
    object["kind"] = served.kind.as_str().into();
    strategy::default(&served, &mut object);
    server.stamp_new(&mut object);
    strategy::prepare_create(&served, &mut object);
    let key = Key::new(meta::namespace(&object), meta::name(&object));
    // An object that is there already stays as it is.
    let _ = server.commit(&served, &key, Expect::Absent, &object);
}
