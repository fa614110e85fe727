//! What must be so when the faults are over and time has gone by.
//!
//! In: a world at rest. Out: findings: gangs that are neither whole nor waiting for good reason, things that nobody needs any more,
//! statuses that do not tell the truth, programs that are busy with nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::Result;
use muster_model::Time;
use muster_scheduler::ingest::{Input, resource};
use muster_translate::Kind;
use serde_json::Value;

use crate::audit::{Auditor, Pod, quantity};
use crate::front::SCALING;
use crate::world::{NAMESPACE, World};

/// The longest that a cluster may need to come to rest.
const PATIENCE: Duration = Duration::from_secs(3600);
/// So long without a write is rest. Longer than the longest backoff of a promise or a retry, and than any pod runs that ends.
const STILL: Duration = Duration::from_secs(200);

/// Lets time go by until nobody writes any more. Out: what was still written if it never ends.
pub async fn wait(world: &World) -> Result<Vec<String>> {
    let begun = world.journal.now();
    let mut still = Duration::ZERO;
    let mut last: Vec<String> = Vec::new();
    world.journal.take_counts();
    loop {
        let slice = Duration::from_secs(5);
        tokio::time::sleep(slice).await;
        world.check_processes()?;
        let busy = writes(&world.journal.take_counts());
        if busy.is_empty() {
            still += slice;
        } else {
            still = Duration::ZERO;
            last.push(format!("{}: {}", world.journal.now().as_secs(), busy.join(", ")));
        }
        if still >= STILL {
            return Ok(Vec::new());
        }
        if world.journal.now().saturating_sub(begun) > PATIENCE {
            let last = &last[last.len().saturating_sub(8)..];
            return Ok(vec![format!("no rest after {} s: {}", PATIENCE.as_secs(), last.join("; "))]);
        }
    }
}

/// Writes other than signs of life.
fn writes(counts: &BTreeMap<(&'static str, String), u64>) -> Vec<String> {
    let sign = |who: &str, what: &str| {
        what.ends_with(" leases")
            || what.ends_with(SCALING)
            || (who == "sim" && what == "patch nodes/status")
            || what == "create namespaces"
    };
    let is_read = |what: &str| ["get ", "list ", "watch "].iter().any(|verb| what.starts_with(verb));
    counts
        .iter()
        .filter(|((who, what), _)| !is_read(what) && !sign(who, what))
        .map(|((who, what), n)| format!("{who} {what} x {n}"))
        .collect()
}

/// How much is asked of the server in five minutes of rest.
pub async fn rate(world: &World) -> Vec<String> {
    world.journal.take_counts();
    tokio::time::sleep(Duration::from_secs(300)).await;
    let counts = world.journal.take_counts();
    let mut findings = Vec::new();
    for role in ["scheduler", "binder", "grouper", "controllers"] {
        // Leases are looked at and renewed every two seconds; collections are listed and watched anew every five minutes.
        let other = counts.iter().filter(|((who, what), _)| *who == role && !what.ends_with(" leases"));
        let n: u64 = other.clone().map(|(_, n)| *n).sum();
        if n > 150 {
            let all: Vec<String> = other.map(|((_, what), n)| format!("{what} x {n}")).collect();
            findings.push(format!("{role} asked {n} times in five minutes of rest: {}", all.join(", ")));
        }
    }
    findings
}

/// Everything that must hold at rest.
pub async fn check(world: &World, auditor: &Auditor) -> Result<Vec<String>> {
    let mut findings = auditor.partial_for(Duration::ZERO);
    let pods = auditor.pods();
    let by_uid: BTreeMap<&str, &Pod> = pods.iter().map(|pod| (pod.uid.as_str(), pod)).collect();
    for pod in &pods {
        if pod.namespace == "kai-scale-adjust" {
            continue;
        }
        if pod.holds() && pod.phase != "Running" {
            findings.push(format!("pod {} has been given {} and is {}", pod.name, pod.node, pod.phase));
        }
        if pod.deleting {
            findings.push(format!("pod {} is being deleted and does not go", pod.name));
        }
    }
    findings.extend(decisions(world).await?);
    shares(&pods, &mut findings);

    let path = format!("/apis/scheduling.run.ai/v1alpha2/namespaces/{NAMESPACE}/bindrequests");
    for request in world.list(&path).await? {
        let name = request["metadata"]["name"].as_str().unwrap_or_default();
        let owner = request["metadata"]["ownerReferences"][0]["uid"].as_str().unwrap_or_default();
        let phase = request["status"]["phase"].as_str().unwrap_or_default();
        match by_uid.get(owner) {
            None => findings.push(format!("bind request {name} ({phase}) is for a pod that is gone")),
            Some(pod) if pod.node.is_empty() && phase != "Failed" => {
                findings.push(format!("bind request {name} is {phase:?} and its pod has no node"));
            }
            Some(_) => {}
        }
    }
    devices(world, &mut findings).await?;
    statuses(world, auditor, &pods, &mut findings).await?;
    Ok(findings)
}

/// A scheduler that has just been started and knows nothing but what is in the cluster finds nothing to do.
async fn decisions(world: &World) -> Result<Vec<String>> {
    let mut core = crate::process::setup().core();
    let mut inputs = Vec::new();
    for kind in Kind::ALL {
        let objects = world.list(&resource(kind).path("", "", "")).await?;
        inputs.extend(objects.into_iter().map(|object| Input::Put(kind, object)));
        inputs.push(Input::Known(kind));
    }
    let now = Time(world.clock.now().as_millisecond());
    let mut findings = Vec::new();
    if let Some(output) = muster_scheduler::record::advance(&mut core, inputs, now) {
        for gang in &output.placements {
            let pods: Vec<String> =
                gang.pods.iter().map(|pod| format!("{} on {}", pod.pod.name, pod.placement.node)).collect();
            findings.push(format!(
                "gang {} could be placed and is not: {}",
                gang.gang.key.name,
                pods.join(", ")
            ));
        }
        for eviction in &output.evictions {
            findings.push(format!(
                "pod {} should be evicted ({}) and is not",
                eviction.pod.name,
                eviction.action.name()
            ));
        }
    }
    Ok(findings)
}

/// Shared GPUs: each is held by one reservation, and each reservation is for somebody.
fn shares(pods: &[Pod], findings: &mut Vec<String>) {
    let mut held: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| pod.reserves()) {
        for group in &pod.shared {
            held.entry(group).or_default().push(pod);
        }
    }
    let mut used: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !pod.reserves() && pod.holds() && pod.part > 0) {
        if pod.shared.is_empty() {
            findings.push(format!("pod {} runs on a part of a GPU and does not say which", pod.name));
        }
        for group in &pod.shared {
            used.entry(group).or_default().push(pod);
        }
    }
    for (group, users) in &used {
        let holders = held.get(group).map_or(&[][..], |all| all);
        let names: Vec<&str> = users.iter().map(|pod| pod.name.as_str()).collect();
        match holders {
            [one] if users.iter().all(|user| user.node == one.node) => {}
            [] => findings.push(format!("nobody holds the shared GPU {group} of {}", names.join(", "))),
            all => {
                let holders: Vec<String> =
                    all.iter().map(|pod| format!("{} on {}", pod.name, pod.node)).collect();
                findings.push(format!(
                    "the shared GPU {group} of {} is held by {}",
                    names.join(", "),
                    holders.join(", ")
                ));
            }
        }
    }
    for (group, holders) in held.iter().filter(|(group, _)| !used.contains_key(*group)) {
        let names: Vec<&str> = holders.iter().map(|pod| pod.name.as_str()).collect();
        findings.push(format!("{} hold the shared GPU {group}, which nobody uses", names.join(", ")));
    }
}

/// Devices by claim: none is given twice.
async fn devices(world: &World, findings: &mut Vec<String>) -> Result<()> {
    let mut given: BTreeMap<String, String> = BTreeMap::new();
    for claim in world.list("/apis/resource.k8s.io/v1/resourceclaims").await? {
        let name = claim["metadata"]["name"].as_str().unwrap_or_default();
        let results = claim.pointer("/status/allocation/devices/results").and_then(Value::as_array);
        for result in results.into_iter().flatten() {
            let device = format!("{}/{}", result["pool"], result["device"]);
            if let Some(other) = given.insert(device.clone(), name.to_owned()) {
                findings.push(format!("device {device} is given to {other} and to {name}"));
            }
        }
    }
    Ok(())
}

/// Statuses say what is so.
async fn statuses(world: &World, auditor: &Auditor, pods: &[Pod], findings: &mut Vec<String>) -> Result<()> {
    let close = |a: i64, b: i64| (a - b).abs() <= 10;
    let charged = auditor.charged();
    for queue in world.list("/apis/scheduling.run.ai/v2/queues").await? {
        let name = queue["metadata"]["name"].as_str().unwrap_or_default();
        let said = quantity(&queue["status"]["allocated"]["nvidia.com/gpu"]);
        let fixed = quantity(&queue["status"]["allocatedNonPreemptible"]["nvidia.com/gpu"]);
        let (is, is_fixed) = charged.get(name).copied().unwrap_or_default();
        if !close(said, is) || !close(fixed, is_fixed) {
            findings.push(format!(
                "queue {name} says {said} and {fixed} (not preemptible) in use, it is {is} and {is_fixed}"
            ));
        }
    }
    let path = format!("/apis/scheduling.run.ai/v2alpha2/namespaces/{NAMESPACE}/podgroups");
    let mut known = BTreeSet::new();
    for group in world.list(&path).await? {
        let name = group["metadata"]["name"].as_str().unwrap_or_default();
        let members = pods.iter().filter(|pod| pod.group == name && pod.holds());
        let is: i64 = members.map(Pod::charged).sum();
        let said = quantity(&group["status"]["resourcesStatus"]["allocated"]["nvidia.com/gpu"]);
        if !close(said, is) {
            findings.push(format!("pod group {name} says {said} in use, it is {is}"));
        }
        known.insert(name.to_owned());
    }
    for pod in pods.iter().filter(|pod| !pod.is_over() && pod.scheduler == crate::process::SCHEDULER_NAMES[0])
    {
        if !known.contains(&pod.group) && !pod.reserves() && pod.namespace == NAMESPACE {
            findings.push(format!("pod {} is in group {:?}, which is not there", pod.name, pod.group));
        }
    }
    Ok(())
}
