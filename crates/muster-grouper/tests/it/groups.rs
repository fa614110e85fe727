//! Pods come with their owners, and groups come with the pods.

use muster_grouper::Options;
use muster_runtime::api::{Delete, Patch};
use muster_runtime::common::{Pod, PodGroup};
use muster_sim::faults::{Fault, FaultLayer, Rule};
use serde_json::{Value, json};

use crate::cluster::{Cluster, cluster, cluster_without_collector, job, template};

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn bare(name: &str, metadata: Value) -> Value {
    let mut pod = template(json!({}));
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"] = metadata;
    pod["metadata"]["name"] = json!(name);
    pod
}

async fn warnings(cluster: &Cluster) -> String {
    let events = cluster.api.get_path("/api/v1/events").await.unwrap();
    let events = events["items"].as_array().unwrap().iter().filter(|e| e["reason"] == "PodGrouperWarning");
    let mut shown: Vec<String> = events.map(|e| e["message"].as_str().unwrap().to_owned()).collect();
    shown.sort();
    shown.join("\n")
}

#[tokio::test(start_paused = true)]
async fn two_hundred_pods_of_a_job_are_one_group() {
    let cluster = cluster().await;
    cluster.group(Options::default());
    cluster.create(JOBS, job("train", 200, json!({"kai.scheduler/batch-min-member": "200"}))).await;
    cluster.until_groups("pg-train 200 ×200").await;
    cluster.rest().await;
    assert_eq!(cluster.take_asked(), "PATCH pods ×200, POST podgroups ×1");
    assert_eq!(warnings(&cluster).await, "");
}

#[tokio::test(start_paused = true)]
async fn each_kind_of_owner() {
    let cluster = cluster().await;
    cluster.group(Options::default());
    cluster.create(PODS, bare("alone", json!({}))).await;
    cluster.create(PODS, bare("by-hand", json!({"annotations": {"pod-group-name": "mine"}}))).await;
    cluster
        .create(PODS, bare("skip", json!({"annotations": {"kai.scheduler/skip-podgrouper": "true"}})))
        .await;
    let mut other = bare("other", json!({}));
    other["spec"]["schedulerName"] = json!("somebody-else");
    cluster.create(PODS, other).await;
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "a"}}, "template": template(json!({}))},
    });
    cluster.create("/apis/apps/v1/namespaces/default/deployments", deployment).await;
    let set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db", "namespace": "default"},
        "spec": {
            "replicas": 3, "podManagementPolicy": "Parallel", "serviceName": "db",
            "selector": {"matchLabels": {"app": "a"}}, "template": template(json!({})),
        },
    });
    cluster.create("/apis/apps/v1/namespaces/default/statefulsets", set).await;
    let cron = json!({
        "apiVersion": "batch/v1", "kind": "CronJob",
        "metadata": {"name": "nightly", "namespace": "default", "labels": {"kai.scheduler/queue": "night"}},
        "spec": {
            "schedule": "* * * * *", "concurrencyPolicy": "Forbid",
            "jobTemplate": {"spec": {"parallelism": 2, "template": template(json!({"restartPolicy": "Never"}))}},
        },
    });
    cluster.create("/apis/batch/v1/namespaces/default/cronjobs", cron).await;
    cluster
        .until("alone×1 db×3 nightly×2 web×1 web×1 none×2 mine×1", async |cluster: &Cluster| {
            let pods: Vec<Pod> = cluster.list().await;
            let groups: Vec<PodGroup> = cluster.list().await;
            let mut shown: Vec<String> = groups
                .iter()
                .map(|group| {
                    let stem =
                        group.metadata.name.trim_start_matches("pg-").split('-').next().unwrap().to_owned();
                    let name = Some(group.metadata.name.as_str());
                    let members = pods.iter().filter(|p| p.metadata.annotation("pod-group-name") == name);
                    format!("{stem}×{}", members.count())
                })
                .collect();
            shown.sort();
            let with = |name: Option<&str>| {
                pods.iter().filter(|p| p.metadata.annotation("pod-group-name") == name).count()
            };
            format!("{} none×{} mine×{}", shown.join(" "), with(None), with(Some("mine")))
        })
        .await;
    let groups: Vec<PodGroup> = cluster.list().await;
    let of = |stem: &str| groups.iter().find(|g| g.metadata.name.starts_with(stem)).unwrap();
    assert_eq!(of("pg-web").spec["priorityClassName"], "inference");
    assert_eq!(of("pg-web").metadata.owner_references[0].kind, "Pod");
    assert_eq!(of("pg-db").spec["priorityClassName"], "train");
    assert_eq!(of("pg-nightly").spec["queue"], "night");
    assert_eq!(of("pg-nightly").metadata.owner_references[0].kind, "Job");
}

fn crd(group: &str, plural: &str, kind: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    })
}

fn widgets() -> Value {
    crd("example.com", "widgets", "Widget")
}

fn owned(name: &str, owner: &Value) -> Value {
    bare(
        name,
        json!({"ownerReferences": [{
            "apiVersion": owner["apiVersion"], "kind": owner["kind"],
            "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"], "controller": true,
        }]}),
    )
}

#[tokio::test(start_paused = true)]
async fn kinds_are_found_at_run_time() {
    let cluster = cluster().await;
    cluster.group(Options::default());
    cluster.server.install_crds(vec![widgets()]).unwrap();
    let widget = json!({
        "apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": "w", "namespace": "default", "labels": {"kai.scheduler/queue": "q", "colour": "red"}},
    });
    let widget = cluster.create("/apis/example.com/v1/namespaces/default/widgets", widget).await;
    for i in 0..8 {
        cluster.create(PODS, owned(&format!("w-{i}"), &widget)).await;
    }
    cluster.until_groups("pg-w 1 ×8").await;
    assert_eq!(cluster.take_asked(), "PATCH pods ×8, POST podgroups ×1");

    // What the owner says now is what the group says; the queue is not asked about again.
    let change = json!({"metadata": {"labels": {"kai.scheduler/queue": "new", "colour": "blue"}, "annotations": {"kai.scheduler/topology": "t"}}});
    cluster
        .api
        .patch_path("/apis/example.com/v1/namespaces/default/widgets/w", Patch::Merge, &change)
        .await
        .unwrap();
    cluster
        .until("blue q t", async |cluster: &Cluster| {
            let groups: Vec<PodGroup> = cluster.list().await;
            let group = &groups[0];
            let topology = &group.spec.get("topologyConstraint").unwrap_or(&Value::Null)["topology"];
            format!(
                "{} {} {}",
                group.metadata.labels["colour"],
                group.spec["queue"].as_str().unwrap(),
                topology.as_str().unwrap_or("-")
            )
        })
        .await;
    cluster.rest().await;
    assert_eq!(cluster.take_asked(), "PATCH podgroups ×1", "eight pods, one patch");
}

#[tokio::test(start_paused = true)]
async fn a_restart_writes_nothing() {
    let cluster = cluster().await;
    let first = cluster.group(Options::default());
    cluster.create(JOBS, job("train", 20, json!({}))).await;
    cluster.create(PODS, bare("alone", json!({}))).await;
    cluster.until_groups("pg-alone 1 ×1, pg-train 1 ×20").await;
    cluster.rest().await;
    first.cancel();
    cluster.rest().await;
    cluster.take_asked();

    let second = cluster.group(Options::default());
    cluster.rest().await;
    assert_eq!(cluster.take_asked(), "");
    second.cancel();
    cluster.rest().await;

    // While it is away, one Job changes its mind and another comes.
    let change = json!({"metadata": {"annotations": {"kai.scheduler/batch-min-member": "20"}}});
    cluster.api.patch_path(&format!("{JOBS}/train"), Patch::Merge, &change).await.unwrap();
    cluster.create(JOBS, job("more", 2, json!({}))).await;
    cluster.rest().await;
    cluster.group(Options::default());
    cluster.until_groups("pg-alone 1 ×1, pg-more 1 ×2, pg-train 20 ×20").await;
    cluster.rest().await;
    assert_eq!(cluster.take_asked(), "PATCH podgroups ×1, PATCH pods ×2, POST podgroups ×1");
}

#[tokio::test(start_paused = true)]
async fn a_group_that_was_deleted_comes_back() {
    let cluster = cluster().await;
    cluster.group(Options::default());
    cluster.create(JOBS, job("train", 4, json!({}))).await;
    cluster.until_groups("pg-train 1 ×4").await;
    cluster.take_asked();
    let groups: Vec<PodGroup> = cluster.list().await;
    let path =
        format!("/apis/scheduling.run.ai/v2alpha2/namespaces/default/podgroups/{}", groups[0].metadata.name);
    cluster.api.delete_path(&path, Delete::default()).await.unwrap();
    cluster.rest().await;
    cluster.until_groups("pg-train 1 ×4").await;
    assert_eq!(cluster.take_asked(), "POST podgroups ×1");

    // With its Job, everything goes for good.
    let delete = Delete { propagation: Some("Background"), ..Delete::default() };
    cluster.api.delete_path(&format!("{JOBS}/train"), delete).await.unwrap();
    cluster.until_groups("").await;
    cluster.rest().await;
    assert_eq!(cluster.groups().await, "");
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_is_said_once() {
    let cluster = cluster().await;
    cluster.group(Options::default());
    cluster.server.install_crds(vec![widgets()]).unwrap();
    cluster.create(JOBS, job("train", 6, json!({"kai.scheduler/batch-min-member": "many"}))).await;
    let mut owners = Vec::new();
    let mut widget = Value::Null;
    for name in ["x", "y", "w"] {
        widget = json!({
            "apiVersion": "example.com/v1", "kind": "Widget",
            "metadata": {"name": name, "namespace": "default", "ownerReferences": if name == "w" { &owners[..] } else { &[] }},
        });
        widget = cluster.create("/apis/example.com/v1/namespaces/default/widgets", widget).await;
        let uid = &widget["metadata"]["uid"];
        owners.push(json!({"apiVersion": "example.com/v1", "kind": "Widget", "name": name, "uid": uid}));
    }
    for i in 0..5 {
        cluster.create(PODS, owned(&format!("w-{i}"), &widget)).await;
    }
    cluster.until_groups("pg-train 1 ×6, none ×5").await;
    cluster.rest().await;
    assert_eq!(
        warnings(&cluster).await,
        "Widget default/w has 2 owners (Widget x, Widget y): a pod is grouped by one chain of owners. Remove all but one of its metadata.ownerReferences, or annotate the pods with kai.scheduler/skip-podgrouper: \"true\"\n\
         annotation kai.scheduler/batch-min-member of Job default/train is \"many\", which is no whole number from 0 to 2147483647: 1 is used. Write for example kai.scheduler/batch-min-member: \"8\"",
    );
}

#[tokio::test(start_paused = true)]
async fn owners_that_cannot_be_read() {
    let cluster = cluster_without_collector().await;
    cluster.group(Options::default());
    // A kind that nobody serves, a name that nobody can have: the pod is on its own.
    let unserved = json!({"apiVersion": "nowhere.example.com/v1", "kind": "Ghost", "metadata": {"name": "g", "uid": "1"}});
    cluster.create(PODS, owned("a", &unserved)).await;
    let gone = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "gone", "uid": "3"}});
    cluster.create(PODS, owned("c", &gone)).await;
    let odd = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "../pods", "uid": "2"}});
    cluster.create(PODS, owned("b", &odd)).await;
    cluster
        .until("pg-a 1, pg-b 1, pg-c 1", async |cluster: &Cluster| {
            let groups: Vec<PodGroup> = cluster.list().await;
            let shown: Vec<String> = groups
                .iter()
                .map(|g| {
                    let uid = &g.metadata.owner_references[0].uid;
                    format!("{} {}", g.metadata.name.replace(&format!("-{uid}"), ""), g.spec["minMember"])
                })
                .collect();
            shown.join(", ")
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn the_uid_of_another_owner_does_no_harm() {
    let cluster = cluster_without_collector().await;
    cluster.group(Options::default());
    cluster.server.install_crds(vec![widgets()]).unwrap();
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "default"}});
    let widget = cluster.create("/apis/example.com/v1/namespaces/default/widgets", widget).await;
    cluster.create(PODS, owned("w-0", &widget)).await;
    cluster.until_groups("pg-w 1 ×1").await;
    let mut spoof = widget.clone();
    spoof["metadata"]["name"] = json!("nope");
    cluster.create(PODS, owned("spoof", &spoof)).await;
    cluster.until_groups("pg-spoof 1 ×1, pg-w 1 ×1").await;
    cluster.create(PODS, owned("w-1", &widget)).await;
    cluster.until_groups("pg-spoof 1 ×1, pg-w 1 ×2").await;
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_podgang() {
    let cluster = cluster().await;
    cluster.group(Options::default());
    for (name, clique) in [("g-a-0", "g-a"), ("g-b-0", "g-b"), ("g-b-1", "g-b")] {
        cluster
            .create(
                PODS,
                bare(name, json!({"labels": {"grove.io/podgang": "g", "grove.io/podclique": clique}})),
            )
            .await;
    }
    cluster.rest().await;
    assert_eq!(cluster.groups().await, "none ×3", "without its gang a pod is left to Grove");
    let gang = json!({
        "apiVersion": "scheduler.grove.io/v1alpha1", "kind": "PodGang", "metadata": {"name": "g", "namespace": "default"},
        "spec": {"podgroups": [
            {"name": "g-a", "minReplicas": 1, "podReferences": [{"namespace": "default", "name": "g-a-0"}]},
            {"name": "g-b", "minReplicas": 2, "podReferences": []},
        ]},
    });
    cluster.create("/apis/scheduler.grove.io/v1alpha1/namespaces/default/podgangs", gang).await;
    cluster.until_groups("pg-g 3 ×3").await;
    let pods: Vec<Pod> = cluster.list().await;
    let of: Vec<&str> =
        pods.iter().map(|p| p.metadata.labels["kai.scheduler/subgroup-name"].as_str()).collect();
    assert_eq!(of, ["g-a", "g-b", "g-b"]);
    assert_eq!(cluster.take_asked(), "PATCH pods ×3, POST podgroups ×1");
}

#[tokio::test(start_paused = true)]
async fn defaults_of_the_administrator() {
    let cluster = cluster().await;
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "defaults", "namespace": "default"},
        "data": {"types": r#"[{"typeName": "Job", "group": "batch", "priorityName": "build", "preemptibility": "preemptible"}]"#},
    });
    cluster.create("/api/v1/namespaces/default/configmaps", map).await;
    let default_priorities = Some(("default".into(), "defaults".into()));
    cluster.group(Options { default_priorities, ..Options::default() });
    cluster.create(JOBS, job("train", 1, json!({}))).await;
    cluster.until_groups("pg-train 1 ×1").await;
    let groups: Vec<PodGroup> = cluster.list().await;
    assert_eq!(
        (&groups[0].spec["priorityClassName"], &groups[0].spec["preemptibility"]),
        (&json!("build"), &json!("preemptible"))
    );
}

#[tokio::test(start_paused = true)]
async fn only_some_namespaces_and_pods() {
    let cluster = cluster().await;
    let labels = |text: &str| [(text.to_owned(), "yes".to_owned())].into_iter().collect();
    cluster.group(Options {
        namespace_labels: labels("team"),
        pod_labels: labels("gang"),
        ..Options::default()
    });
    cluster.create(PODS, bare("a", json!({"labels": {"gang": "yes"}}))).await;
    cluster.rest().await;
    assert_eq!(cluster.groups().await, "none ×1");
    cluster
        .api
        .patch_path(
            "/api/v1/namespaces/default",
            Patch::Merge,
            &json!({"metadata": {"labels": {"team": "yes"}}}),
        )
        .await
        .unwrap();
    cluster.rest().await;
    cluster.create(PODS, bare("b", json!({"labels": {"gang": "yes"}}))).await;
    cluster.create(PODS, bare("c", json!({"labels": {"gang": "no"}}))).await;
    // What was there before is as good as new.
    cluster.until_groups("pg-a 1 ×1, pg-b 1 ×1, none ×1").await;
}

#[tokio::test(start_paused = true)]
async fn a_priority_class_that_comes_later() {
    let cluster = cluster().await;
    cluster.group(Options::default());
    let mut late = job("train", 3, json!({}));
    late["metadata"]["labels"] = json!({"priorityClassName": "late"});
    cluster.create(JOBS, late).await;
    let classes = async |cluster: &Cluster| {
        let groups: Vec<PodGroup> = cluster.list().await;
        groups.iter().map(|group| group.spec["priorityClassName"].as_str().unwrap().to_owned()).collect()
    };
    cluster.until_groups("pg-train 1 ×3").await;
    cluster.until("train", classes).await;
    cluster.rest().await;
    assert!(warnings(&cluster).await.contains("\"late\", which does not exist"));
    cluster.take_asked();
    let class = |name: &str| {
        json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 70,
        })
    };
    for name in ["other", "late"] {
        cluster.create("/apis/scheduling.k8s.io/v1/priorityclasses", class(name)).await;
    }
    cluster.until("late", classes).await;
    cluster.rest().await;
    assert_eq!(cluster.take_asked(), "PATCH podgroups ×1");
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_is_skipped_is_said() {
    let cluster = cluster().await;
    cluster.group(Options::default());
    cluster.create(JOBS, job("train", 3, json!({"kai.scheduler/skip-podgrouper": "true"}))).await;
    cluster.until_groups("none ×3").await;
    cluster.rest().await;
    assert_eq!(
        warnings(&cluster).await,
        "Job default/train has the annotation kai.scheduler/skip-podgrouper: \"true\", so its pods are put into no PodGroup and wait until somebody names one in their annotation pod-group-name. Take the annotation away, or write it on the pods themselves if each may start alone",
    );
    let change = json!({"metadata": {"annotations": {"kai.scheduler/skip-podgrouper": null}}});
    cluster.api.patch_path(&format!("{JOBS}/train"), Patch::Merge, &change).await.unwrap();
    cluster.until_groups("pg-train 1 ×3").await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_goes_first() {
    let cluster = cluster().await;
    cluster.group(Options::default());
    cluster
        .server
        .install_crds(vec![crd("leaderworkerset.x-k8s.io", "leaderworkersets", "LeaderWorkerSet")])
        .unwrap();
    let set = json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
        "metadata": {"name": "l", "namespace": "default"},
        "spec": {"startupPolicy": "LeaderReady", "leaderWorkerTemplate": {"size": 3}},
    });
    let path = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/default/leaderworkersets";
    let set = cluster.create(path, set).await;
    let member = |name: &str, index: &str| {
        let mut pod = owned(name, &set);
        pod["metadata"]["labels"] = json!({
            "leaderworkerset.sigs.k8s.io/group-index": "0", "leaderworkerset.sigs.k8s.io/worker-index": index,
        });
        pod
    };
    cluster.create(PODS, member("l-0", "0")).await;
    cluster.until_groups("pg-l-group-0 1 ×1").await;
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "l-0"}, "target": {"kind": "Node", "name": "node-0"}});
    cluster.api.create_path(&format!("{PODS}/l-0/binding"), &binding).await.unwrap();
    cluster.until_groups("pg-l-group-0 3 ×1").await;
    cluster.create(PODS, member("l-0-1", "1")).await;
    cluster.create(PODS, member("l-0-2", "2")).await;
    cluster.until_groups("pg-l-group-0 3 ×3").await;
    assert_eq!(cluster.take_asked(), "PATCH podgroups ×1, PATCH pods ×3, POST podgroups ×1");
}

#[tokio::test(start_paused = true)]
async fn owners_that_may_not_be_read() {
    let cluster = cluster().await;
    let forbidden = FaultLayer::new(1, vec![Rule::on("", "widgets").fault(Fault::Status(403))]);
    cluster.group_through(Options::default(), forbidden);
    cluster.server.install_crds(vec![widgets()]).unwrap();
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "default"}});
    let widget = cluster.create("/apis/example.com/v1/namespaces/default/widgets", widget).await;
    for name in ["a", "b"] {
        cluster.create(PODS, owned(name, &widget)).await;
    }
    cluster.until_groups("pg-a 1 ×1, pg-b 1 ×1").await;
}

#[tokio::test(start_paused = true)]
async fn owners_that_may_not_be_read_any_more() {
    let cluster = cluster().await;
    let first = cluster.group(Options::default());
    cluster.server.install_crds(vec![widgets()]).unwrap();
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "default"}});
    let widget = cluster.create("/apis/example.com/v1/namespaces/default/widgets", widget).await;
    for name in ["a", "b"] {
        cluster.create(PODS, owned(name, &widget)).await;
    }
    cluster.until_groups("pg-w 1 ×2").await;
    first.cancel();
    cluster.rest().await;
    cluster.take_asked();
    let forbidden = FaultLayer::new(1, vec![Rule::on("", "widgets").fault(Fault::Status(403))]);
    cluster.group_through(Options::default(), forbidden);
    cluster.rest().await;
    assert_eq!((cluster.groups().await.as_str(), cluster.take_asked().as_str()), ("pg-w 1 ×2", ""));
}

#[tokio::test(start_paused = true)]
async fn a_group_with_many_sub_groups() {
    let cluster = cluster().await;
    cluster.group(Options::default());
    let mut jobsets = crd("jobset.x-k8s.io", "jobsets", "JobSet");
    jobsets["spec"]["versions"][0]["name"] = json!("v1alpha2");
    cluster.server.install_crds(vec![jobsets]).unwrap();
    let path = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets";
    let set = json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "s", "namespace": "default"},
        "spec": {"replicatedJobs": [{"name": "w", "replicas": 20, "template": {"spec": {"parallelism": 1}}}]},
    });
    let set = cluster.create(path, set).await;
    for i in 0..20 {
        let mut pod = owned(&format!("s-{i}"), &set);
        pod["metadata"]["labels"] = json!({"jobset.sigs.k8s.io/replicatedjob-name": "w", "jobset.sigs.k8s.io/job-index": i.to_string()});
        cluster.create(PODS, pod).await;
    }
    cluster.until_groups("pg-s /1 ×20").await;
    assert_eq!(cluster.take_asked(), "PATCH pods ×20, POST podgroups ×1");
    for min in [1, 2] {
        let jobs = json!([{"name": "w", "replicas": 20 + min, "template": {"spec": {"parallelism": min}}}]);
        let change = json!({"spec": {"replicatedJobs": jobs}});
        cluster.api.patch_path(&format!("{path}/s"), Patch::Merge, &change).await.unwrap();
        cluster.rest().await;
        assert_eq!(cluster.take_asked(), "PATCH podgroups ×1");
        let groups: Vec<PodGroup> = cluster.list().await;
        let leaves =
            groups[0].spec["subGroups"].as_array().unwrap().iter().filter(|g| g["minMember"] == min).count();
        assert_eq!(leaves, 20 + min);
    }
}

/// A bad day: refusals, lost answers, watches that break. In the end all pods are in their group.
async fn bad_day(seed: u64) {
    let cluster = cluster().await;
    let rules = vec![
        Rule::on("create", "podgroups").chance(300).fault(Fault::LostAnswer),
        Rule::on("create", "podgroups").chance(300).fault(Fault::Status(500)),
        Rule::on("patch", "").chance(100).fault(Fault::Status(409)),
        Rule::on("patch", "").chance(100).fault(Fault::LostAnswer),
        Rule::on("", "").chance(50).fault(Fault::Status(429)),
        Rule::on("get", "").chance(200).fault(Fault::Status(503)),
        Rule::on("list", "").chance(200).fault(Fault::Status(500)),
        Rule::on("watch", "").chance(300).fault(Fault::CutWatch { after: 7 }),
        Rule::on("watch", "").chance(100).fault(Fault::ExpireWatch { after: 5 }),
        Rule::on("watch", "").chance(200).fault(Fault::RepeatEvents(300)),
    ];
    let faults = FaultLayer::new(seed, rules);
    let first = cluster.group_through(Options::default(), faults.clone());
    for i in 0..6 {
        cluster.create(JOBS, job(&format!("j{i}"), 5, json!({"kai.scheduler/batch-min-member": "5"}))).await;
    }
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    // It dies in the middle of it.
    first.cancel();
    cluster.group_through(Options::default(), faults.clone());
    let expected: Vec<String> = (0..6).map(|i| format!("pg-j{i} 5 ×5")).collect();
    cluster.until_groups(&expected.join(", ")).await;
    assert!(faults.n_faults() > 0, "a test of faults needs faults");
    faults.calm();
    cluster.rest().await;
    assert_eq!(cluster.groups().await, expected.join(", "));
}

#[tokio::test(start_paused = true)]
async fn bad_days() {
    for seed in 0..6 {
        bad_day(seed).await;
    }
}
