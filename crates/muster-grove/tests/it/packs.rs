//! Pods that are to be near each other, devices that they share, and schedulers that cannot be told.

use muster_grove::Options;
use muster_grove::object::{ClusterTopologyBinding, PodGang, condition, condition_status};
use muster_runtime::common::{Node, Pod, PodGroup};
use serde_json::{Value, json};
use std::collections::BTreeSet;

use crate::cluster::{Cluster, SETS, bare, cluster, counts, set};

pub const BINDINGS: &str = "/apis/grove.io/v1alpha1/clustertopologybindings";

/// Nodes by index: four to a rack, eight to a block.
async fn labelled(n_nodes: usize) -> Cluster {
    let cluster = cluster(n_nodes).await;
    cluster
        .until(&n_nodes.to_string(), async |cluster: &Cluster| cluster.list::<Node>().await.len().to_string())
        .await;
    for (index, node) in cluster.list::<Node>().await.iter().enumerate() {
        let labels = json!({"example.com/block": format!("b{}", index / 8), "example.com/rack": format!("r{}", index / 4),
                            "example.com/host": node.metadata.name});
        cluster
            .patch(&format!("/api/v1/nodes/{}", node.metadata.name), json!({"metadata": {"labels": labels}}))
            .await;
    }
    cluster.create(BINDINGS, binding("dc", &["block", "rack", "host"])).await;
    cluster
        .until("3", async |cluster: &Cluster| {
            let topology = cluster.get("/apis/kai.scheduler/v1alpha1/topologies/dc").await;
            topology["spec"]["levels"].as_array().map_or(0, Vec::len).to_string()
        })
        .await;
    cluster
}

pub fn binding(name: &str, levels: &[&str]) -> Value {
    let levels: Vec<Value> =
        levels.iter().map(|l| json!({"domain": l, "key": format!("example.com/{l}")})).collect();
    json!({"apiVersion": "grove.io/v1alpha1", "kind": "ClusterTopologyBinding", "metadata": {"name": name}, "spec": {"levels": levels}})
}

/// A set in short with constraints: `set=rack` for the whole, `clique=/host` or `group=rack` for parts; what follows `/` is preferred.
pub fn packed(text: &str, packs: &str) -> Value {
    let mut object = set(text);
    let template = &mut object["spec"]["template"];
    for pack in packs.split_whitespace() {
        let (who, levels) = pack.split_once('=').unwrap();
        let (required, preferred) = levels.split_once('/').unwrap_or((levels, ""));
        let mut constraint = json!({"topologyName": "dc", "pack": {}});
        for (field, level) in [("required", required), ("preferred", preferred)] {
            if !level.is_empty() {
                constraint["pack"][field] = json!(level);
            }
        }
        if who == "set" {
            template["topologyConstraint"] = constraint;
            continue;
        }
        for list in ["cliques", "podCliqueScalingGroups"] {
            for part in template.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                if part["name"] == who {
                    part["topologyConstraint"] = constraint.clone();
                }
            }
        }
    }
    object
}

/// KAI's groups as `gang[level] group<parent[level]min ...`.
async fn trees(cluster: &Cluster) -> String {
    let level = |at: &Value| {
        let key =
            |field: &str| at["topologyConstraint"][field].as_str().unwrap_or("").replace("example.com/", "");
        match (key("requiredTopologyLevel"), key("preferredTopologyLevel")) {
            (required, preferred) if required.is_empty() && preferred.is_empty() => String::new(),
            (required, preferred) if preferred.is_empty() => format!("[{required}]"),
            (required, preferred) => format!("[{required}/{preferred}]"),
        }
    };
    let groups: Vec<PodGroup> = cluster.list().await;
    let mut shown: Vec<String> = groups
        .iter()
        .map(|group| {
            let gang = &group.metadata.owner_references[0].name;
            let subs: Vec<String> = group.spec["subGroups"]
                .as_array()
                .unwrap()
                .iter()
                .map(|sub| {
                    let parent = sub["parent"].as_str().map(|p| format!("<{p}")).unwrap_or_default();
                    let min = sub["minMember"].as_i64().or(sub["minSubGroup"].as_i64()).unwrap();
                    format!("{}{parent}{}{min}", sub["name"].as_str().unwrap(), level(sub))
                })
                .collect();
            format!("{gang}{} {}", level(&json!(group.spec)), subs.join(" "))
        })
        .collect();
    shown.sort();
    shown.join("; ")
}

/// In how many domains of a level the ready pods with a label value are, and how many pods that are.
async fn spread(cluster: &Cluster, label: &str, value: &str, level: &str) -> String {
    let nodes: Vec<Node> = cluster.list().await;
    let pods: Vec<Pod> = cluster.list().await;
    let of: Vec<&Pod> = pods
        .iter()
        .filter(|pod| pod.metadata.labels.get(label).is_some_and(|v| v == value) && pod.is_bound())
        .collect();
    let at = |pod: &&Pod| {
        let node = nodes.iter().find(|node| node.metadata.name == pod.spec.node_name)?;
        node.metadata.labels.get(&format!("example.com/{level}")).cloned()
    };
    let domains: BTreeSet<String> = of.iter().filter_map(at).collect();
    format!("{} in {}", of.len(), domains.len())
}

async fn check(text: &str, packs: &str, expected: &str) {
    let cluster = labelled(1).await;
    cluster.apply(packed(text, packs)).await;
    cluster.until(expected, trees).await;
}

macro_rules! shapes {
    ($($name:ident: $set:expr, $packs:expr, $expected:expr;)*) => {$(
        #[tokio::test(start_paused = true)]
        async fn $name() {
            check($set, $packs, $expected).await;
        }
    )*};
}

shapes! {
    cliques_with_levels_of_their_own: "p x1; a 3/3; b 4/4", "a=rack b=block",
        "p-0 p-0-a[rack]3 p-0-b[block]4";
    a_set_and_a_clique_below_it: "p x1; a 2/2", "set=block a=rack", "p-0[block] p-0-a[rack]2";
    a_clique_on_one_host: "p x1; a 2/2", "a=host", "p-0 p-0-a[host]2";
    only_the_set: "p x1; r 2/2; w 1/1; sg x2/2: w", "set=rack", "p-0[rack] p-0-r2 p-0-sg-0-w1 p-0-sg-1-w1";
    only_the_group: "p x1; r 2/2; w 1/1; sg x2/2: w", "sg=rack",
        "p-0 p-0-sg-0[rack]1 p-0-sg-1[rack]1 p-0-r2 p-0-sg-0-w<p-0-sg-01 p-0-sg-1-w<p-0-sg-11";
    a_group_and_its_clique: "p x1; w 2/2; sg x2/2: w", "sg=rack w=host",
        "p-0 p-0-sg-0[rack]1 p-0-sg-1[rack]1 p-0-sg-0-w<p-0-sg-0[host]2 p-0-sg-1-w<p-0-sg-1[host]2";
    no_constraint_at_all: "p x1; w 2/2; sg x2/2: w", "", "p-0 p-0-sg-0-w2 p-0-sg-1-w2";
    three_levels: "p x1; pre 2/2; dec 2/2; sg x2/2: pre dec", "set=block sg=rack pre=host dec=host",
        "p-0[block] p-0-sg-0[rack]2 p-0-sg-1[rack]2 p-0-sg-0-pre<p-0-sg-0[host]2 p-0-sg-0-dec<p-0-sg-0[host]2 \
         p-0-sg-1-pre<p-0-sg-1[host]2 p-0-sg-1-dec<p-0-sg-1[host]2";
    scaled_gangs_have_their_groups_level: "p x1; w 2/2; sg x3/1: w", "set=block sg=rack",
        "p-0-sg-0[rack] p-0-sg-1-w2; p-0-sg-1[rack] p-0-sg-2-w2; p-0[block] p-0-sg-0[rack]1 p-0-sg-0-w<p-0-sg-02";
    scaled_gangs_fall_back_to_the_sets_level: "p x1; w 2/2; sg x5/3: w", "set=block w=host",
        "p-0-sg-0[block] p-0-sg-3-w[host]2; p-0-sg-1[block] p-0-sg-4-w[host]2; \
         p-0[block] p-0-sg-0-w[host]2 p-0-sg-1-w[host]2 p-0-sg-2-w[host]2";
    replicas_are_constrained_each_by_itself: "p x2; a 2/2", "set=rack", "p-0[rack] p-0-a2; p-1[rack] p-1-a2";
    what_is_preferred_reaches_every_level: "p x1; r 1/1; w 1/1; sg x2/1: w", "set=block/rack r=/host sg=/host",
        "p-0-sg-0[/host] p-0-sg-1-w1; p-0[block/rack] p-0-sg-0[/host]1 p-0-r[/host]1 p-0-sg-0-w<p-0-sg-01";
    two_groups_and_a_router: "p x1; r 2/2; dl 1/1; dw 1/1; pl 1/1; pw 1/1; d x2/1: dl dw; q x2/1: pl pw", "set=block",
        "p-0-d-0[block] p-0-d-1-dl1 p-0-d-1-dw1; p-0-q-0[block] p-0-q-1-pl1 p-0-q-1-pw1; \
         p-0[block] p-0-r2 p-0-d-0-dl1 p-0-d-0-dw1 p-0-q-0-pl1 p-0-q-0-pw1";
}

#[tokio::test(start_paused = true)]
async fn pods_land_together() {
    let cluster = labelled(16).await;
    cluster.apply(packed("p x2; a 3/3; b 1/1; sg x2/2: b", "set=block a=rack")).await;
    cluster.until_pods("ready×10").await;
    for replica in ["p-0", "p-1"] {
        assert_eq!(spread(&cluster, "grove.io/podgang", replica, "block").await, "5 in 1");
        assert_eq!(spread(&cluster, "grove.io/podclique", &format!("{replica}-a"), "rack").await, "3 in 1");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rack_that_is_too_small_holds_nothing() {
    let cluster = labelled(8).await;
    cluster.apply(packed("p x1; a 5/5", "a=rack")).await;
    cluster.until_pods("pending×5").await;
    cluster.until("p-0 p-0-a[rack]5", trees).await;
    cluster.rest().await;
    assert_eq!(crate::cluster::pods(&cluster).await, "pending×5");
    let gangs: Vec<PodGang> = cluster.list().await;
    let waits = condition(&gangs[0].status, "Scheduled").unwrap();
    assert_eq!((waits.status.as_str(), waits.reason.as_str()), ("False", "Unschedulable"), "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn two_topologies_with_words_in_common() {
    let cluster = labelled(8).await;
    let mut other = binding("other", &["rack"]);
    other["spec"]["levels"][0]["key"] = json!("example.com/block");
    cluster.create(BINDINGS, other).await;
    for (name, topology) in [("x", "dc"), ("y", "other")] {
        let mut object = packed(&format!("{name} x1; a 2/2"), "set=rack");
        object["spec"]["template"]["topologyConstraint"]["topologyName"] = json!(topology);
        cluster.apply(object).await;
    }
    cluster.until("x-0[rack] x-0-a2; y-0[block] y-0-a2", trees).await;
    cluster.until_pods("ready×4").await;
}

#[tokio::test(start_paused = true)]
async fn a_binding_to_a_topology_that_is_not_there_drifts() {
    let cluster = bare(1).await;
    cluster.start(Options::default());
    let mut object = binding("dc", &["rack"]);
    object["spec"]["schedulerTopologyBindings"] =
        json!([{"schedulerName": "kai-scheduler", "topologyReference": "elsewhere"}]);
    cluster.create(BINDINGS, object).await;
    let drift = async |cluster: &Cluster| {
        let bindings: Vec<ClusterTopologyBinding> = cluster.list().await;
        let status = &bindings[0].status;
        format!(
            "{} {}",
            condition_status(status, "SchedulerTopologyDrift"),
            status["schedulerTopologyStatuses"][0]["inSync"]
        )
    };
    cluster.until("True false", drift).await;
    let topology = json!({"apiVersion": "kai.scheduler/v1alpha1", "kind": "Topology", "metadata": {"name": "elsewhere"},
                          "spec": {"levels": [{"nodeLabel": "example.com/rack"}]}});
    cluster.create("/apis/kai.scheduler/v1alpha1/topologies", topology).await;
    cluster.until("False true", drift).await;
}

#[tokio::test(start_paused = true)]
async fn a_level_that_the_topology_lost_is_let_go() {
    let cluster = labelled(4).await;
    cluster.apply(packed("p x1; a 2/2", "set=block a=rack")).await;
    cluster.until_pods("ready×2").await;
    let levels = binding("dc", &["block"])["spec"].clone();
    cluster.patch(&format!("{BINDINGS}/dc"), json!({"spec": levels})).await;
    cluster.until("p-0[block] p-0-a2", trees).await;
    cluster
        .until("True", async |cluster: &Cluster| {
            let sets: Vec<muster_grove::object::PodCliqueSet> = cluster.list().await;
            condition_status(&sets[0].status, "TopologyLevelsUnavailable").to_owned()
        })
        .await;
    assert_eq!(crate::cluster::pods(&cluster).await, "ready×2", "pods run on");
}

/// Claims of all three levels in both scopes: how many there are as things grow and shrink.
#[tokio::test(start_paused = true)]
async fn shared_claims_are_counted() {
    let cluster = cluster(20).await;
    let mut object = set("p x1; a 1/1; b 1/1; sg x2/1: b");
    let template = &mut object["spec"]["template"];
    let request = json!({"name": "r", "exactly": {"deviceClassName": "gpu"}});
    let of =
        |name: &str| json!({"name": name, "templateSpec": {"spec": {"devices": {"requests": [request]}}}});
    template["resourceClaimTemplates"] = json!([of("all"), of("own")]);
    let both = json!([{"name": "all", "scope": "AllReplicas"}, {"name": "own", "scope": "PerReplica"}]);
    template["resourceSharing"] = both.clone();
    template["cliques"][0]["resourceSharing"] = both.clone();
    template["cliques"][1]["resourceSharing"] = both.clone();
    template["podCliqueScalingGroups"][0]["resourceSharing"] = both;
    cluster.apply(object).await;
    let claims = async |cluster: &Cluster| {
        cluster.items("/apis/resource.k8s.io/v1/resourceclaims").await.len().to_string()
    };
    // The set: 1 and 1. The clique: 1 and 1. The group: 1 and 2. Its two cliques: 1 and 1 each.
    cluster.until("11", claims).await;
    let group = "/apis/grove.io/v1alpha1/namespaces/default/podcliquescalinggroups/p-0-sg";
    cluster.patch(group, json!({"spec": {"replicas": 1}})).await;
    cluster.until("8", claims).await;
    cluster.patch(group, json!({"spec": {"replicas": 3}})).await;
    cluster.until("14", claims).await;
    let clique = "/apis/grove.io/v1alpha1/namespaces/default/podcliques/p-0-a";
    cluster.patch(clique, json!({"spec": {"replicas": 2}})).await;
    cluster.until("15", claims).await;
    cluster.patch(&format!("{SETS}/p"), json!({"spec": {"replicas": 2}})).await;
    // A second replica at the template's size, and no second claim for all of the set.
    cluster.until("25", claims).await;
}

const DOMAINS: &str = "/apis/resource.nvidia.com/v1beta1/computedomains";

/// Cliques with GPUs in groups of their own, their set's, or none.
#[tokio::test(start_paused = true)]
async fn compute_domains_follow_groups_and_replicas() {
    let cluster = bare(1).await;
    let kind = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "computedomains.resource.nvidia.com"},
        "spec": {"group": "resource.nvidia.com", "scope": "Namespaced",
                 "names": {"kind": "ComputeDomain", "plural": "computedomains", "singular": "computedomain"},
                 "versions": [{"name": "v1beta1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                     "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
    });
    cluster.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", kind).await;
    cluster.start(Options { mnnvl: true, ..Options::default() });
    let mut object = set("p x1; a 1/1; b 1/1; c 1/1; d 1/1; e 1/1; sg x1/1: c d");
    object["metadata"]["annotations"] = json!({"grove.io/mnnvl-group": "whole"});
    let template = &mut object["spec"]["template"];
    template["cliques"][1]["annotations"] = json!({"grove.io/mnnvl-group": "own"});
    template["cliques"][3]["annotations"] = json!({"grove.io/mnnvl-group": "none"});
    template["podCliqueScalingGroups"][0]["annotations"] = json!({"grove.io/mnnvl-group": "of-group"});
    // Without a GPU there is nothing to join.
    template["cliques"][4]["spec"]["podSpec"]["containers"][0]["resources"] = json!({});
    let options = Options { mnnvl: true, ..Options::default() };
    let world = muster_grove::validate::World {
        options: &options,
        binding: &|_| muster_grove::validate::Known::Unknown,
    };
    muster_grove::defaults::set(&mut object);
    assert!(muster_grove::validate::set::create(&object, &world).allows());
    cluster.create(SETS, object).await;
    let domains = async |cluster: &Cluster| {
        let all = cluster.items(DOMAINS).await;
        let mut names: Vec<&str> = all.iter().filter_map(|d| d["metadata"]["name"].as_str()).collect();
        names.sort_unstable();
        names.join(" ")
    };
    cluster.until("p-0-of-group p-0-own p-0-whole", domains).await;
    cluster.until("5 1 5 1", counts).await;
    let claims = async |clique: &str| {
        let pods = cluster.items(&format!("/api/v1/pods?labelSelector=grove.io/podclique%3D{clique}")).await;
        pods[0]["spec"]["resourceClaims"][0]["resourceClaimTemplateName"].as_str().unwrap_or("-").to_owned()
    };
    assert_eq!(claims("p-0-a").await, "p-0-whole");
    assert_eq!(claims("p-0-b").await, "p-0-own");
    assert_eq!(claims("p-0-sg-0-c").await, "p-0-of-group");
    assert_eq!(claims("p-0-sg-0-d").await, "-");
    assert_eq!(claims("p-0-e").await, "-");
    cluster.patch(&format!("{SETS}/p"), json!({"spec": {"replicas": 4}})).await;
    let n_domains = async |cluster: &Cluster| cluster.items(DOMAINS).await.len().to_string();
    cluster.until("12", n_domains).await;
    cluster.patch(&format!("{SETS}/p"), json!({"spec": {"replicas": 2}})).await;
    cluster.until("6", n_domains).await;
    // One that somebody deleted comes back.
    cluster.delete("/apis/resource.nvidia.com/v1beta1/namespaces/default/computedomains/p-0-own").await;
    cluster.until("6", n_domains).await;
    cluster.delete(&format!("{SETS}/p")).await;
    cluster.until("0", n_domains).await;
}

/// A set for a scheduler.
fn for_scheduler(text: &str, scheduler: &str) -> Value {
    let mut object = set(text);
    for clique in object["spec"]["template"]["cliques"].as_array_mut().unwrap() {
        clique["spec"]["podSpec"]["schedulerName"] = json!(scheduler);
    }
    object
}

async fn accepted(cluster: &Cluster) -> String {
    let gangs: Vec<PodGang> = cluster.list().await;
    let shown = gangs.iter().map(|gang| {
        let said = condition(&gang.status, "BackendAccepted");
        format!("{} {}", gang.metadata.name, said.map(|c| c.reason).unwrap_or_default())
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// Kubernetes' own scheduler knows no gang of several groups: the pods are held until all of them have room.
#[tokio::test(start_paused = true)]
async fn a_gang_of_two_groups_is_held_until_it_has_room() {
    let cluster = cluster(4).await;
    cluster.cordon(0, 2, true).await;
    cluster.apply(for_scheduler("p x1; a 1/1; b 2/2", "default-scheduler")).await;
    cluster.until("p-0 HeldUntilItFits", accepted).await;
    cluster.rest().await;
    assert_eq!(crate::cluster::pods(&cluster).await, "gated×3");
    let gangs: Vec<PodGang> = cluster.list().await;
    let said = condition(&gangs[0].status, "BackendAccepted").unwrap().message;
    assert!(said.contains("p-0-b lacks room for 1 of 2 pods"), "{said}");
    cluster.cordon(0, 1, false).await;
    cluster.until_pods("ready×3").await;
    cluster.until("p-0 AcceptedInPart", accepted).await;
    // A second one sees what the first took.
    cluster.apply(for_scheduler("q x1; a 1/1; b 1/1", "default-scheduler")).await;
    cluster.until_pods("gated×2 ready×3").await;
    cluster.rest().await;
    assert_eq!(crate::cluster::pods(&cluster).await, "gated×2 ready×3");
    cluster.delete(&format!("{SETS}/p")).await;
    cluster.until_pods("ready×2").await;
}

/// Let go once, and then without a node and without room: it is held as it was at first, and let go again.
#[tokio::test(start_paused = true)]
async fn a_gang_whose_room_is_gone_is_held_again() {
    let cluster = cluster(4).await;
    let mut object = for_scheduler("p x1; a 1/1; b 2/2", "default-scheduler");
    object["spec"]["template"]["terminationDelay"] = json!("1h");
    cluster.apply(object).await;
    cluster.until_pods("ready×3").await;
    cluster.rest().await;
    cluster.rest().await;
    cluster.cordon(0, 4, true).await;
    for pod in cluster.list::<Pod>().await {
        cluster.delete(&format!("/api/v1/namespaces/default/pods/{}", pod.metadata.name)).await;
    }
    cluster.until("p-0 HeldUntilItFits", accepted).await;
    cluster.until_pods("gated×3").await;
    cluster.rest().await;
    assert_eq!(crate::cluster::pods(&cluster).await, "gated×3");
    // Two nodes are not enough, and nothing of it is placed on them.
    cluster.cordon(0, 2, false).await;
    cluster.rest().await;
    assert_eq!(crate::cluster::pods(&cluster).await, "gated×3");
    cluster.cordon(2, 1, false).await;
    cluster.until_pods("ready×3").await;
}

/// And they are bound to the domain that was found for them.
#[tokio::test(start_paused = true)]
async fn a_gang_is_packed_where_its_scheduler_cannot() {
    let cluster = labelled(8).await;
    // One rack has a node less than is needed.
    cluster.cordon(0, 2, true).await;
    let mut object = packed("p x1; a 1/1; b 2/2", "set=rack");
    for clique in object["spec"]["template"]["cliques"].as_array_mut().unwrap() {
        clique["spec"]["podSpec"]["schedulerName"] = json!("");
    }
    cluster.apply(object).await;
    cluster.until_pods("ready×3").await;
    assert_eq!(spread(&cluster, "grove.io/podgang", "p-0", "rack").await, "3 in 1");
    let pods = cluster.items("/api/v1/pods").await;
    assert_eq!(pods[0]["spec"]["nodeSelector"]["example.com/rack"], "r1");
}

/// One group is a gang that Kubernetes can be told of, and is not held here.
#[tokio::test(start_paused = true)]
async fn a_gang_of_one_group_is_handed_over_at_once() {
    let cluster = cluster(1).await;
    cluster.apply(for_scheduler("p x1; a 3/3", "default-scheduler")).await;
    cluster.until("p-0 Accepted", accepted).await;
    cluster
        .until("0", async |cluster: &Cluster| {
            let pods = cluster.items("/api/v1/pods").await;
            pods.iter().filter(|pod| pod["spec"]["schedulingGates"].is_array()).count().to_string()
        })
        .await;
}

/// Muster's own scheduler reads the gang itself.
#[tokio::test(start_paused = true)]
async fn the_engine_reads_the_gang_itself() {
    let cluster = cluster(4).await;
    cluster.cordon(0, 2, true).await;
    cluster.apply(for_scheduler("p x1; a 1/1; b 2/2", "muster-scheduler")).await;
    cluster.until_pods("pending×3").await;
    cluster.rest().await;
    assert_eq!(crate::cluster::pods(&cluster).await, "pending×3");
    let gangs: Vec<PodGang> = cluster.list().await;
    let waits = condition(&gangs[0].status, "Scheduled").unwrap();
    assert_eq!(waits.reason, "Unschedulable", "{waits:?}");
    assert_eq!(cluster.list::<PodGroup>().await.len(), 0);
    cluster.cordon(0, 1, false).await;
    cluster.until_pods("ready×3").await;
    cluster.until("p-0 Running", crate::cluster::gangs).await;
}

#[tokio::test(start_paused = true)]
async fn the_engine_packs_the_gang_it_reads() {
    let cluster = labelled(8).await;
    cluster.cordon(0, 2, true).await;
    let mut object = packed("p x1; a 1/1; b 2/2", "set=rack");
    for clique in object["spec"]["template"]["cliques"].as_array_mut().unwrap() {
        clique["spec"]["podSpec"]["schedulerName"] = json!("muster-scheduler");
    }
    cluster.apply(object).await;
    cluster.until_pods("ready×3").await;
    assert_eq!(spread(&cluster, "grove.io/podgang", "p-0", "rack").await, "3 in 1");
}

/// The shapes of upstream's end-to-end manifests: cliques, groups, pods, gangs, minimum of a base gang.
#[tokio::test(start_paused = true)]
async fn the_shapes_of_upstreams_tests() {
    for (text, expected, min) in [
        ("w x1; pc-a 2/2; pc-b 1/1; pc-c 3/3; sg-x x2/2: pc-b pc-c", "5 1 10 1", 10),
        ("w x1; pc-a 2/1; pc-b 1/1; pc-c 3/1; sg-x x2/1: pc-b pc-c", "5 1 10 2", 3),
        ("w x1; pc-a 2/1; pc-b 1/1; pc-c 3/3; sg-x x2/1: pc-b pc-c", "5 1 10 2", 5),
        ("w x1; pc-a 2/1; pc-b 1/1; pc-c 3/3; sg-x x2/2: pc-b pc-c", "5 1 10 1", 9),
        ("w x1; a 1/1; b 1/1; sg x2/2: b", "3 1 3 1", 3),
        ("w x1; a 2/2; b 2/2; sg x2/2: a b", "4 1 8 1", 8),
        ("w x1; a 2/2", "1 0 2 1", 2),
        ("w x1; a 3/3; b 4/4", "2 0 7 1", 7),
        ("w x1; a 10/10", "1 0 10 1", 10),
        ("w x1; a 2/2; sg x10/3: a", "10 1 20 8", 6),
        ("w x2; a 2/2", "2 0 4 2", 2),
        ("w x1; a 2/2; sg x2/2: a", "2 1 4 1", 4),
        ("w x1; r 2/2; dl 1/1; dw 1/1; pl 1/1; pw 1/1; d x2/1: dl dw; q x2/1: pl pw", "9 2 10 3", 6),
        ("w x2; r 2/2; dl 1/1; dw 1/1; pl 1/1; pw 1/1; d x2/1: dl dw; q x2/1: pl pw", "18 4 20 6", 6),
        ("w x1; a 2/2; sg x3/1: a", "3 1 6 3", 2),
        ("w x1; r 1/1; a 1/1; sg x2/1: a", "3 1 3 2", 2),
        ("w x1; r 2/2; a 1/1; sg x2/2: a", "3 1 4 1", 4),
        ("w x1; a 4/4", "1 0 4 1", 4),
        ("w x0; a 4/4", "0 0 0 0", 0),
        ("w x25; a 2/2", "25 0 50 25", 2),
        ("w x1; a 1/1; b 1/1", "2 0 2 1", 2),
    ] {
        let cluster = bare(1).await;
        cluster.start(Options::default());
        cluster.apply(set(text)).await;
        cluster.until(expected, counts).await;
        let gangs: Vec<PodGang> = cluster.list().await;
        let base = gangs.iter().find(|gang| !gang.metadata.labels.contains_key("grove.io/base-podgang"));
        assert_eq!(base.map_or(0, PodGang::min_total), min, "{text}");
    }
}
