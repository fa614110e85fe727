//! What the backends make is taken by upstream's own CRDs: nothing is refused, and nothing that was said is pruned away. The cluster has
//! the CRDs of Grove, KAI, Koordinator and Volcano as those publish them, and none of Muster's.

use std::collections::BTreeMap;
use std::path::Path;

use muster_apiserver::KubeVersion;
use muster_grove::backend::{self, GangApi, World};
use muster_grove::object::{ClusterTopologyBinding, PodCliqueSet, PodGang, condition, holds};
use muster_grove::{BackendName, Options, keys};
use serde_json::{Value, json};

use crate::cluster::{Cluster, bare_with, set};
use crate::packs::{BINDINGS, binding, packed};
use crate::samples::SAMPLES;
use crate::shared::{documents, folder};

/// The CRDs of a system as it publishes them.
fn crds(folder: &Path) -> Vec<Value> {
    let mut all = Vec::new();
    for system in ["grove", "kai", "koordinator", "volcano"] {
        let mut files: Vec<_> =
            std::fs::read_dir(folder.join(system)).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        all.extend(files.iter().flat_map(|file| documents(file)));
    }
    all
}

/// Every sample, and sets that say what no sample says, each for a scheduler and in a namespace of its own.
fn sets(scheduler: &str) -> Option<Vec<Value>> {
    let samples = folder("samples/grove")?;
    let mut sets: Vec<Value> =
        SAMPLES.iter().flat_map(|(name, ..)| documents(&samples.join(format!("{name}.yaml")))).collect();
    sets.push(packed("packed x1; a 2/2; b 2/1; c 1/1; g x2/1: b c", "set=block g=rack a=/host b=host"));
    sets.push(packed("near x2; a 2/2", "set=rack/host"));
    let mut ranked = set("ranked x1; a 1/1; b 3/2");
    ranked["spec"]["template"]["priorityClassName"] = json!("high-priority");
    ranked["metadata"]["labels"] =
        json!({"kai.scheduler/queue": "team", "quota.scheduling.koordinator.sh/name": "team"});
    sets.push(ranked);
    for (index, set) in sets.iter_mut().enumerate() {
        set["metadata"]["namespace"] = json!(format!("n{index}"));
        for clique in set["spec"]["template"]["cliques"].as_array_mut().unwrap() {
            clique["spec"]["podSpec"]["schedulerName"] = json!(scheduler);
        }
    }
    Some(sets)
}

/// Gangs that their backend has accepted, and all of them.
async fn accepted(cluster: &Cluster) -> String {
    let gangs: Vec<PodGang> = cluster.list().await;
    let told = gangs.iter().filter(|gang| holds(&gang.status, keys::condition::ACCEPTED)).count();
    format!("{told} of {}", gangs.len())
}

/// Where something that was said is not there any more.
fn lost(kept: &Value, said: &Value, at: &str) -> Option<String> {
    match (kept, said) {
        (Value::Object(kept), Value::Object(said)) => said.iter().find_map(|(key, value)| {
            lost(kept.get(key).unwrap_or(&Value::Null), value, &format!("{at}.{key}"))
        }),
        (Value::Array(kept), Value::Array(said)) if kept.len() == said.len() => {
            let mut pairs = kept.iter().zip(said).enumerate();
            pairs.find_map(|(i, (kept, said))| lost(kept, said, &format!("{at}[{i}]")))
        }
        (kept, said) if kept == said => None,
        // A constraint without anything in it says nothing.
        (Value::Null, Value::Object(said)) if said.is_empty() => None,
        _ => Some(format!("{at} is {kept} and not {said}")),
    }
}

async fn check(scheduler: &str, name: BackendName, resources: &str, n_gangs: usize, n_resources: usize) {
    let Some(folder) = folder("crds") else { return };
    let Some(sets) = sets(scheduler) else { return };
    let cluster = bare_with(1, KubeVersion::V1_36, crds(&folder)).await;
    cluster.create(BINDINGS, binding("dc", &["block", "rack", "host"])).await;
    let options = Options::default();
    cluster.start(options.clone());
    for set in sets {
        let namespace = set["metadata"]["namespace"].clone();
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        cluster.create("/api/v1/namespaces", body).await;
        cluster.apply(set).await;
    }
    cluster.until(&format!("{n_gangs} of {n_gangs}"), accepted).await;
    cluster.rest().await;

    let stored = cluster.items(resources).await;
    assert_eq!(stored.len(), n_resources, "{scheduler}");
    let id = |object: &Value| format!("{}/{}", object["metadata"]["namespace"], object["metadata"]["name"]);
    let stored: BTreeMap<String, &Value> = stored.iter().map(|object| (id(object), object)).collect();
    let sets: Vec<PodCliqueSet> = cluster.list().await;
    let bindings: Vec<ClusterTopologyBinding> = cluster.list().await;
    let mut n_said = 0;
    for gang in cluster.list::<PodGang>().await {
        let meta = &gang.metadata;
        let of_gang = |set: &&PodCliqueSet| meta.controlled_by(&set.metadata.uid);
        let set = sets.iter().find(of_gang).unwrap();
        let topology = bindings.iter().find(|binding| binding.metadata.name == set.topology_name());
        let world = World { options: &options, set: Some(set), topology, gang_api: GangApi::V1Alpha2 };
        for said in backend::of(name).emit(&gang, &[], &world).unwrap().resources {
            let key = format!("{}/{}", json!(meta.namespace), json!(said.name));
            let kept = stored.get(&key).unwrap_or_else(|| panic!("no {key} in {:?}", stored.keys()));
            assert_eq!(lost(kept, &said.body, ""), None, "{scheduler} {key}\n{kept}");
            n_said += 1;
        }
        // Gangs themselves are by Grove's CRD, too: what they say of themselves is kept.
        assert!(condition(&gang.status, keys::condition::INITIALIZED).is_some(), "{}", gang.status);
    }
    assert_eq!(n_said, n_resources, "{scheduler}");
}

#[tokio::test(start_paused = true)]
async fn kai_takes_them() {
    check("kai-scheduler", BackendName::Kai, "/apis/scheduling.run.ai/v2alpha2/podgroups", 21, 21).await;
}

#[tokio::test(start_paused = true)]
async fn volcano_takes_them() {
    check("volcano", BackendName::Volcano, "/apis/scheduling.volcano.sh/v1beta1/podgroups", 21, 21).await;
}

#[tokio::test(start_paused = true)]
async fn koordinator_takes_them() {
    let path = "/apis/scheduling.sigs.k8s.io/v1alpha1/podgroups";
    check("koord-scheduler", BackendName::Koordinator, path, 21, 59).await;
}

/// KAI's Topology is made from Grove's binding.
#[tokio::test(start_paused = true)]
async fn topologies_are_taken() {
    let Some(folder) = folder("crds") else { return };
    let cluster = bare_with(1, KubeVersion::V1_36, crds(&folder)).await;
    cluster.start(Options::default());
    cluster.create(BINDINGS, binding("dc", &["block", "rack", "host"])).await;
    let levels = async |cluster: &Cluster| {
        let topology = cluster.get("/apis/kai.scheduler/v1alpha1/topologies/dc").await;
        topology["spec"]["levels"].to_string()
    };
    let expected = r#"[{"nodeLabel":"example.com/block"},{"nodeLabel":"example.com/rack"},{"nodeLabel":"example.com/host"}]"#;
    cluster.until(expected, levels).await;
}
