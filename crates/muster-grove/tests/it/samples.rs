//! Upstream's samples, and what each is made into.

use muster_grove::Options;
use muster_grove::object::{PodClique, PodGang};
use serde_json::json;

use crate::cluster::{bare, counts};
use crate::shared::{documents, folder};

/// Sample, cliques, groups, pods, gangs, minimum of one base gang.
pub const SAMPLES: &[(&str, &str, i64)] = &[
    ("simple__simple1", "4 1 9 1", 9),
    ("simple__simple2-explicit-startup-order", "4 0 9 1", 9),
    ("simple__simple3-explicit-startup-order", "11 1 23 2", 17),
    ("user-guide__01_core-concepts__single-node-aggregated", "1 0 2 1", 2),
    ("user-guide__01_core-concepts__single-node-disaggregated", "2 0 5 1", 5),
    ("user-guide__01_core-concepts__multi-node-aggregated", "4 1 8 2", 4),
    ("user-guide__01_core-concepts__multi-node-disaggregated", "6 2 13 2", 8),
    ("user-guide__01_core-concepts__complete-inference-pipeline", "6 2 11 1", 11),
    (
        "user-guide__02_pod-and-resource-naming-conventions__multinode-disaggregated-with-frontend",
        "7 2 13 2",
        9,
    ),
    ("user-guide__03_environment-variables-for-pod-discovery__pcsg-env-vars", "4 1 8 2", 4),
    ("user-guide__03_environment-variables-for-pod-discovery__standalone-env-vars", "1 0 2 1", 2),
];

#[tokio::test(start_paused = true)]
async fn every_sample_becomes_what_it_says() {
    let Some(folder) = folder("samples/grove") else { return };
    for (name, expected, min) in SAMPLES {
        let cluster = bare(1).await;
        cluster.start(Options::default());
        for mut document in documents(&folder.join(format!("{name}.yaml"))) {
            assert_eq!(document["kind"], "PodCliqueSet", "{name}");
            document["metadata"]["namespace"] = json!("default");
            cluster.apply(document).await;
        }
        cluster.until(expected, counts).await;
        cluster.rest().await;
        assert_eq!(counts(&cluster).await, *expected, "{name}");
        let gangs: Vec<PodGang> = cluster.list().await;
        let base =
            gangs.iter().find(|gang| !gang.metadata.labels.contains_key("grove.io/base-podgang")).unwrap();
        assert_eq!(base.min_total(), *min, "{name}");
        let cliques: Vec<PodClique> = cluster.list().await;
        for clique in &cliques {
            assert!(clique.status.get("lastErrors").is_none(), "{name}: {}", clique.status);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_founding_manifests_as_written() {
    let Some(folder) = folder("samples/seeds") else { return };
    for (name, expected) in [
        ("000-00-podcliqueset-ml-training", "4 0 10 2"),
        ("000-03-podcliqueset-inference-service", "1 0 3 1"),
        ("001-05-podcliqueset-test", "1 0 2 1"),
    ] {
        let cluster = bare(1).await;
        cluster.start(Options::default());
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml-workspace"}});
        cluster.create("/api/v1/namespaces", namespace).await;
        for document in documents(&folder.join(format!("{name}.yaml"))) {
            cluster.apply(document).await;
        }
        cluster.until(expected, counts).await;
    }
}
