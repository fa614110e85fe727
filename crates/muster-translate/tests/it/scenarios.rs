//! Every case of the specification's scenarios can be read without a complaint.

use muster_model::{Cluster, Resource, ShareSize, Time};
use muster_translate::{Settings, cluster, kai};
use serde_json::Value;
use std::path::Path;

/// What pods ask for in whole and shared GPUs, in thousandths; by memory, MIG and claims they ask for none.
fn gpus_asked(cluster: &Cluster, of_group: Option<&str>, pod: Option<&str>) -> i64 {
    let chosen = cluster.pods.iter().filter(|p| match (of_group, pod) {
        (Some(group), _) => p.gang.as_ref().is_some_and(|gang| &*gang.name == group),
        (_, Some(pod)) => p.key.to_string() == pod,
        _ => false,
    });
    chosen
        .map(|p| {
            let shape = &p.shape;
            let shared = match shape.gpu_share {
                Some(share) => match share.size {
                    ShareSize::Portion(portion) => portion * i64::from(share.devices),
                    ShareSize::Memory(_) => 0,
                },
                None => 0,
            };
            shape.requests.get(&Resource::Gpu) + shared
        })
        .sum()
}

#[test]
fn every_case_is_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/scenarios/kai");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        println!("skipped: no scenarios beside the workspace");
        return;
    };
    let mut files: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "jsonl"));
    files.sort();
    let (mut n_cases, mut n_checked) = (0, 0);
    for file in files {
        let text = String::from_utf8(std::fs::read(&file).unwrap()).unwrap();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let case: Value = serde_json::from_str(line).unwrap();
            let id = case["id"].as_str().unwrap();
            let now: jiff::Timestamp = case["now"].as_str().unwrap().parse().unwrap();
            let settings = Settings { now: Time(now.as_millisecond()), ..Settings::default() };
            let objects = case["objects"].as_array().unwrap();
            let (cluster, diagnostics) = cluster(objects, &settings);
            assert_eq!(diagnostics, [], "{id}");
            let (_, diagnostics) = kai::policy(&case["config"]);
            assert_eq!(diagnostics, [], "{id}");

            let of = |kind: &str| objects.iter().filter(|o| o["kind"] == kind).count();
            assert_eq!(cluster.nodes.len(), of("Node"), "{id}");
            assert_eq!(cluster.pods.len(), of("Pod"), "{id}");
            assert_eq!(cluster.gangs.len(), of("PodGroup"), "{id}");
            assert_eq!(cluster.queues.len(), of("Queue"), "{id}");
            assert_eq!(cluster.topologies.len(), of("Topology"), "{id}");
            assert_eq!(cluster.claims.len(), of("ResourceClaim"), "{id}");
            for pod in &cluster.pods {
                assert!(
                    cluster.gangs.iter().any(|gang| Some(&gang.key) == pod.gang.as_ref()),
                    "{id} {}",
                    pod.key
                );
                // Shared GPUs are held by pods that run.
                if pod.shape.gpu_share.is_some() && pod.state.stays() {
                    assert!(!pod.gpu_groups.is_empty(), "{id} {}", pod.key);
                }
            }
            let expected =
                |at: &Value| at["gpusRequired"].as_f64().map(|gpus| (gpus * 1000.0).round() as i64);
            for (name, group) in case["expect"]["groups"].as_object().into_iter().flatten() {
                if let Some(gpus) = expected(group) {
                    assert_eq!(gpus_asked(&cluster, Some(name), None), gpus, "{id} {name}");
                    n_checked += 1;
                }
            }
            for (name, pod) in case["expect"]["pods"].as_object().into_iter().flatten() {
                if let Some(gpus) = expected(pod) {
                    assert_eq!(gpus_asked(&cluster, None, Some(name)), gpus, "{id} {name}");
                    n_checked += 1;
                }
            }
            n_cases += 1;
        }
    }
    println!("{n_cases} cases, {n_checked} sums of GPUs");
    assert!(n_cases > 0 && n_checked > 0);
}
