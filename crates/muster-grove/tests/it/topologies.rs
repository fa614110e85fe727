//! Topology bindings, shared claims, autoscalers, schedulers that change.

use muster_grove::Options;
use muster_grove::object::{ClusterTopologyBinding, PodCliqueSet, PodGang, condition_status};
use muster_runtime::common::PodGroup;
use serde_json::{Value, json};

use crate::cluster::{Cluster, SETS, bare, cluster, set};

const BINDINGS: &str = "/apis/grove.io/v1alpha1/clustertopologybindings";
const TOPOLOGIES: &str = "/apis/kai.scheduler/v1alpha1/topologies";

fn binding(levels: &[&str]) -> Value {
    let levels: Vec<Value> =
        levels.iter().map(|l| json!({"domain": l, "key": format!("example.com/{l}")})).collect();
    json!({
        "apiVersion": "grove.io/v1alpha1", "kind": "ClusterTopologyBinding",
        "metadata": {"name": "dc"}, "spec": {"levels": levels},
    })
}

async fn topology(cluster: &Cluster) -> String {
    let topology = cluster.get(&format!("{TOPOLOGIES}/dc")).await;
    let levels = topology["spec"]["levels"].as_array().cloned().unwrap_or_default();
    levels.iter().map(|l| l["nodeLabel"].as_str().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
}

async fn unavailable(cluster: &Cluster) -> String {
    let sets: Vec<PodCliqueSet> = cluster.list().await;
    condition_status(&sets[0].status, "TopologyLevelsUnavailable").to_owned()
}

#[tokio::test(start_paused = true)]
async fn constraints_reach_the_group_and_leave_it() {
    let cluster = cluster(4).await;
    cluster.create(BINDINGS, binding(&["block", "rack"])).await;
    cluster.until("example.com/block example.com/rack", topology).await;
    let bindings: Vec<ClusterTopologyBinding> = cluster.list().await;
    cluster.rest().await;
    assert_eq!(bindings.len(), 1);

    let mut object = set("p x1; a 1/1; b 1/1; sg x2/1: b");
    let template = &mut object["spec"]["template"];
    template["topologyConstraint"] = json!({"topologyName": "dc", "pack": {"required": "block"}});
    template["podCliqueScalingGroups"][0]["topologyConstraint"] = json!({"pack": {"preferred": "rack"}});
    cluster.apply(object).await;
    let shown = async |cluster: &Cluster| {
        let groups: Vec<PodGroup> = cluster.list().await;
        let one = |group: &PodGroup| {
            let subs: Vec<String> = group.spec["subGroups"]
                .as_array()
                .unwrap()
                .iter()
                .map(|s| format!("{}<{}", s["name"].as_str().unwrap(), s["parent"].as_str().unwrap_or("-")))
                .collect();
            let level = &group.spec["topologyConstraint"];
            let level = level["requiredTopologyLevel"].as_str().or(level["preferredTopologyLevel"].as_str());
            format!("{}[{}]", level.unwrap_or("-"), subs.join(" "))
        };
        groups.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    cluster
        .until(
            "example.com/block[p-0-sg-0<- p-0-a<- p-0-sg-0-b<p-0-sg-0], example.com/rack[p-0-sg-1-b<-]",
            shown,
        )
        .await;
    cluster.until("False", unavailable).await;
    // Without the binding, pods run on and constraints go.
    cluster.delete(&format!("{BINDINGS}/dc")).await;
    cluster.until("-[p-0-a<- p-0-sg-0-b<-], -[p-0-sg-1-b<-]", shown).await;
    cluster.until("Unknown", unavailable).await;
    cluster.create(BINDINGS, binding(&["block", "rack"])).await;
    cluster.until("False", unavailable).await;
    // Another level makes another topology.
    let levels = binding(&["zone", "block", "rack"])["spec"].clone();
    cluster.patch(&format!("{BINDINGS}/dc"), json!({"spec": levels})).await;
    cluster.until("example.com/zone example.com/block example.com/rack", topology).await;
}

#[tokio::test(start_paused = true)]
async fn a_gang_whose_scheduler_changes_moves() {
    let cluster = bare(2).await;
    cluster.start(Options::default());
    cluster.apply(set("p x1; a 2/2")).await;
    cluster.until_pods("ready×2").await;
    let path = format!("{SETS}/p");
    let mut object = cluster.get(&path).await;
    object["spec"]["template"]["cliques"][0]["spec"]["podSpec"]["schedulerName"] = json!("volcano");
    let cliques = object["spec"]["template"]["cliques"].clone();
    cluster.patch(&path, json!({"spec": {"template": {"cliques": cliques}}})).await;
    let shown = async |cluster: &Cluster| {
        let kai: Vec<PodGroup> = cluster.list().await;
        let volcano = cluster.items("/apis/scheduling.volcano.sh/v1beta1/podgroups").await;
        let gangs: Vec<PodGang> = cluster.list().await;
        format!("{} {} {}", gangs[0].metadata.labels["grove.io/scheduler-backend"], kai.len(), volcano.len())
    };
    cluster.until("volcano 0 1", shown).await;
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_nobody_runs_is_said_to_be_missing() {
    let cluster = bare(2).await;
    let backends = vec![muster_grove::BackendName::Default];
    cluster.start(Options { backends: backends.clone(), enabled: backends, ..Options::default() });
    cluster.apply(set("p x1; a 2/2")).await;
    cluster
        .until("kai: backend kai is not enabled", async |cluster: &Cluster| {
            let gangs: Vec<PodGang> = cluster.list().await;
            let Some(gang) = gangs.first() else { return String::new() };
            muster_grove::object::condition(&gang.status, "BackendAccepted")
                .map(|c| c.message)
                .unwrap_or_default()
        })
        .await;
    cluster.until_pods("gated×2").await;
}

/// Front and backend in processes of their own.
#[tokio::test(start_paused = true)]
async fn front_and_backend_apart() {
    let cluster = bare(2).await;
    let front = Options { backends: Vec::new(), ..Options::default() };
    cluster.start(front);
    cluster.apply(set("p x1; a 2/2")).await;
    cluster.until_pods("gated×2").await;
    cluster.rest().await;
    assert_eq!(crate::cluster::pods(&cluster).await, "gated×2");
    let kai = Options { front: false, backends: vec![muster_grove::BackendName::Kai], ..Options::default() };
    cluster.start(kai);
    cluster.until_pods("ready×2").await;
    cluster.until("p 1/1", crate::cluster::ready).await;
}

#[tokio::test(start_paused = true)]
async fn claims_are_shared_and_follow_the_replicas() {
    let cluster = cluster(8).await;
    let mut object = set("p x1; a 1/1; b 1/1; sg x2/1: b");
    let template = &mut object["spec"]["template"];
    let request = json!({"name": "r", "exactly": {"deviceClassName": "gpu"}});
    template["resourceClaimTemplates"] =
        json!([{"name": "t", "templateSpec": {"spec": {"devices": {"requests": [request]}}}}]);
    let share = |scope: &str| json!([{"name": "t", "scope": scope}]);
    template["resourceSharing"] = share("AllReplicas");
    template["cliques"][0]["resourceSharing"] = share("PerReplica");
    template["podCliqueScalingGroups"][0]["resourceSharing"] = share("PerReplica");
    cluster.apply(object).await;
    let claims = async |cluster: &Cluster| {
        let claims = cluster.items("/apis/resource.k8s.io/v1/resourceclaims").await;
        let mut names: Vec<String> =
            claims.iter().map(|c| c["metadata"]["name"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names.join(" ")
    };
    cluster.until("p-0-a-0-t p-0-sg-0-t p-0-sg-1-t p-all-t", claims).await;
    let pods = cluster.items("/api/v1/pods?labelSelector=grove.io/podclique%3Dp-0-sg-1-b").await;
    assert_eq!(
        pods[0]["spec"]["resourceClaims"],
        json!([{"name": "pcs-all-t", "resourceClaimName": "p-all-t"}, {"name": "pcsg-own-t", "resourceClaimName": "p-0-sg-1-t"}])
    );
    let group = "/apis/grove.io/v1alpha1/namespaces/default/podcliquescalinggroups/p-0-sg";
    cluster.patch(group, json!({"spec": {"replicas": 1}})).await;
    cluster.until("p-0-a-0-t p-0-sg-0-t p-all-t", claims).await;
    let clique = "/apis/grove.io/v1alpha1/namespaces/default/podcliques/p-0-a";
    cluster.patch(clique, json!({"spec": {"replicas": 2}})).await;
    cluster.until("p-0-a-0-t p-0-a-1-t p-0-sg-0-t p-all-t", claims).await;
}

#[tokio::test(start_paused = true)]
async fn autoscalers_come_and_go() {
    let cluster = cluster(6).await;
    let mut object = set("p x1; a 1/1; b 1/1; sg x1/1: b");
    let template = &mut object["spec"]["template"];
    let metrics = json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]);
    template["cliques"][0]["spec"]["autoScalingConfig"] = json!({"maxReplicas": 3, "metrics": metrics});
    template["podCliqueScalingGroups"][0]["scaleConfig"] = json!({"maxReplicas": 3, "metrics": metrics});
    cluster.apply(object.clone()).await;
    let shown = async |cluster: &Cluster| {
        let all = cluster.items("/apis/autoscaling/v2/horizontalpodautoscalers").await;
        let one =
            |h: &Value| format!("{} {}", h["metadata"]["name"].as_str().unwrap(), h["spec"]["maxReplicas"]);
        all.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    cluster.until("p-0-a 3, p-0-sg 3", shown).await;
    cluster.rest().await;
    let mut cliques = cluster.get(&format!("{SETS}/p")).await["spec"]["template"]["cliques"].clone();
    cliques[0]["spec"]["autoScalingConfig"]["maxReplicas"] = json!(5);
    cluster.patch(&format!("{SETS}/p"), json!({"spec": {"template": {"cliques": cliques}}})).await;
    cluster.until("p-0-a 5, p-0-sg 3", shown).await;
    let mut cliques = cluster.get(&format!("{SETS}/p")).await["spec"]["template"]["cliques"].clone();
    cliques[0]["spec"].as_object_mut().unwrap().remove("autoScalingConfig");
    cluster.patch(&format!("{SETS}/p"), json!({"spec": {"template": {"cliques": cliques}}})).await;
    cluster.until("p-0-sg 3", shown).await;
}

/// What is written has no field that the types do not know: a server would drop it in silence.
#[tokio::test(start_paused = true)]
async fn nothing_is_written_that_nobody_reads() {
    let cluster = cluster(6).await;
    cluster.create(BINDINGS, binding(&["block", "rack"])).await;
    let mut object = set("p x1; a 2/1; b 1/1; sg x2/1: b");
    object["spec"]["template"]["topologyConstraint"] =
        json!({"topologyName": "dc", "pack": {"preferred": "block"}});
    cluster.apply(object).await;
    // No node has such a label, so nothing is placed; what is written is all there.
    cluster.until_pods("gated×1 pending×3").await;
    cluster.until("p 0/1", crate::cluster::ready).await;
    cluster.rest().await;
    let mut n_read = 0;
    for gang in cluster.items("/apis/scheduler.grove.io/v1alpha1/podgangs").await {
        let typed: muster_api::podgang::PodGang = serde_json::from_value(gang).unwrap();
        let status = typed.status.unwrap();
        assert!(typed.spec.rest.is_empty() && status.rest.is_empty());
        n_read += 1;
    }
    for clique in cluster.items("/apis/grove.io/v1alpha1/podcliques").await {
        let typed: muster_api::grove::PodClique = serde_json::from_value(clique).unwrap();
        assert!(typed.spec.rest.is_empty() && typed.status.unwrap().rest.is_empty());
        n_read += 1;
    }
    for group in cluster.items("/apis/grove.io/v1alpha1/podcliquescalinggroups").await {
        let typed: muster_api::grove::PodCliqueScalingGroup = serde_json::from_value(group).unwrap();
        assert!(typed.spec.rest.is_empty() && typed.status.unwrap().rest.is_empty());
        n_read += 1;
    }
    for set in cluster.items("/apis/grove.io/v1alpha1/podcliquesets").await {
        let typed: muster_api::grove::PodCliqueSet = serde_json::from_value(set).unwrap();
        assert!(typed.status.unwrap().rest.is_empty());
        n_read += 1;
    }
    assert_eq!(n_read, 2 + 3 + 1 + 1);
}
