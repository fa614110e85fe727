//! Whole objects in, the model out.

mod order;
mod pods;
mod scenarios;
mod shards;
mod starts;
mod world;

use muster_model::{Cluster, Diagnostic, Pod};
use muster_translate::{Settings, cluster};
use serde_json::Value;
use std::sync::Arc;

/// The clock of these tests: 2026-01-01T00:00:00Z.
const NOW: i64 = 1_767_225_600_000;

fn settings() -> Settings {
    let names = ["kai-scheduler", "t9k-scheduler", "koord-scheduler", "volcano"];
    Settings {
        now: muster_model::Time(NOW),
        scheduler_names: names.map(Into::into).into(),
        volcano: vec!["volcano".into()],
        ..Settings::default()
    }
}

fn translate(objects: &[Value]) -> (Cluster, Vec<Diagnostic>) {
    cluster(objects, &settings())
}

/// The pod of this name in namespace `n`.
#[track_caller]
fn pod_of(cluster: &Cluster, name: &str) -> Arc<Pod> {
    let found = cluster.pods.iter().find(|pod| &*pod.key.namespace == "n" && &*pod.key.name == name);
    Arc::clone(found.expect("the pod is there"))
}
