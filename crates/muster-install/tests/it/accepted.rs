//! Every object is accepted as it is, changes nothing when it is applied again, and goes.

use std::collections::BTreeSet;

use muster_install::{Settings, Shard, helm, objects, objects_to_delete, path};
use serde_json::{Value, json};

use crate::cluster::cluster;

fn many() -> Vec<Settings> {
    let mut shards = Settings::default().with_replicas(1);
    shards.shards.push(Shard {
        name: "muster-scheduler-a".into(),
        partition: "a".into(),
        spec: json!({"placementStrategy": {"gpu": "spread"}}),
        args: vec!["--scheduler-name=x".into()],
    });
    shards.strict_anti_affinity = true;
    shards.pull_secrets = json!([{"name": "pull"}]);
    shards.tolerations = json!([{"key": "a", "operator": "Exists", "effect": "NoSchedule"}]);
    vec![
        Settings { monitoring: true, ..Settings::default() },
        Settings { operator: true, namespace: "elsewhere".into(), ..Settings::default() },
        shards,
    ]
}

#[tokio::test]
async fn every_object_is_accepted() {
    for settings in many() {
        let cluster = cluster(true);
        for object in objects(&settings) {
            if object["kind"] == "Namespace" {
                // The rest can be tried only where its namespace is.
                cluster.apply(&object, false).await.unwrap();
            }
            cluster.apply(&object, true).await.unwrap();
        }
        for object in objects(&settings) {
            cluster.apply(&object, false).await.unwrap();
        }
        let mut left = BTreeSet::new();
        for object in objects(&settings) {
            let path = path(&object).unwrap();
            // Not the answer to the first time: the server counts in the statuses of quotas by itself.
            let version = cluster.get(&path).await.unwrap()["metadata"]["resourceVersion"].clone();
            let again = cluster.apply(&object, false).await.unwrap();
            assert_eq!(again["metadata"]["resourceVersion"], version, "{path} changes when applied again");
            left.insert(path);
        }
        // The namespace alone says what to delete.
        let told = Settings { namespace: settings.namespace, ..Settings::default() };
        for object in objects_to_delete(&told) {
            let path = path(&object).unwrap();
            let deleted = cluster.ask("DELETE", &path, &Value::Null).await;
            assert_eq!(deleted.is_ok(), left.remove(&path), "{path}: {deleted:?}");
        }
        // Shards in the plain are chosen in the chart only.
        left.retain(|path| !path.contains("muster-scheduler-a"));
        assert_eq!(left, BTreeSet::new());
    }
}

/// What the chart has besides.
#[tokio::test]
async fn the_last_act_of_the_chart_is_accepted() {
    let cluster = cluster(false);
    let settings = Settings::default();
    cluster.apply(&objects(&settings)[0], false).await.unwrap();
    for object in helm::last_act(&settings) {
        cluster.apply(&object, false).await.unwrap();
    }
}

/// The pods that the Deployments make would be accepted too, and by the restricted pod security standard.
#[tokio::test]
async fn the_pods_are_restricted() {
    let cluster = cluster(false);
    let settings = Settings::default();
    for object in objects(&settings).into_iter().chain(helm::last_act(&settings)) {
        if matches!(object["kind"].as_str(), Some("Namespace" | "ServiceAccount")) {
            cluster.apply(&object, false).await.unwrap();
        }
        let Some(template) = object.pointer("/spec/template") else { continue };
        let mut pod = template.clone();
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        pod["metadata"]["name"] = object["metadata"]["name"].clone();
        let url = format!("/api/v1/namespaces/{}/pods?dryRun=All&fieldValidation=Strict", settings.namespace);
        let made = cluster.ask("POST", &url, &pod).await.unwrap();
        let spec = &made["spec"];
        assert_eq!(spec["securityContext"]["runAsNonRoot"], true);
        for field in ["hostNetwork", "hostPID", "hostIPC"] {
            assert!(spec.get(field).is_none_or(|v| v == false), "{field}");
        }
        for volume in spec["volumes"].as_array().unwrap() {
            let kinds: Vec<&String> = volume.as_object().unwrap().keys().filter(|k| *k != "name").collect();
            let allowed = ["configMap", "emptyDir", "projected", "secret", "downwardAPI"];
            assert!(kinds.iter().all(|k| allowed.contains(&k.as_str())), "{volume}");
        }
        for container in spec["containers"].as_array().unwrap() {
            let security = &container["securityContext"];
            assert_eq!(security["allowPrivilegeEscalation"], false);
            assert_eq!(security["readOnlyRootFilesystem"], true);
            assert_eq!(security["capabilities"]["drop"], json!(["ALL"]));
            assert_eq!(security["seccompProfile"]["type"], "RuntimeDefault");
        }
    }
}
