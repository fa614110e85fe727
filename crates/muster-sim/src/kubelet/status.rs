//! A pod's life as a pod status.
//!
//! In: the pod, its life, its node's address. Out: the status as a strategic merge patch, in which conditions merge by
//! type, so that those of the scheduler and of others stay.
//! Must stay true: equal lives give equal statuses.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::pod::{Exit, Life, Run, State};
use crate::clock::stamp;
use crate::object::{Container, Pod, condition};

/// The patch of the status subresource. `unhealthy`: identifiers of devices that are broken.
pub fn patch(pod: &Pod, life: &Life, host_ip: &str, unhealthy: &BTreeSet<String>) -> Value {
    let phase = match &life.end {
        Some(end) if end.succeeded => "Succeeded",
        Some(_) => "Failed",
        None if life.initialized.is_some() => "Running",
        None => "Pending",
    };
    let mut status = Map::new();
    status.insert("observedGeneration".into(), json!(pod.metadata.generation));
    status.insert("phase".into(), json!(phase));
    status.insert("startTime".into(), json!(stamp(life.seen)));
    status.insert("conditions".into(), conditions(pod, life));
    if let Some(end) = &life.end {
        if !end.reason.is_empty() {
            status.insert("reason".into(), json!(end.reason));
        }
        if !end.message.is_empty() {
            status.insert("message".into(), json!(end.message));
        }
    }
    // A pod that was refused never had containers.
    let refused = life.end.is_some() && life.runs_untouched();
    if !refused {
        if !host_ip.is_empty() {
            status.insert("hostIP".into(), json!(host_ip));
            status.insert("hostIPs".into(), json!([{"ip": host_ip}]));
        }
        let pod_ip = if pod.spec.host_network { host_ip } else { &life.ip };
        if !pod_ip.is_empty() {
            status.insert("podIP".into(), json!(pod_ip));
            status.insert("podIPs".into(), json!([{"ip": pod_ip}]));
        }
        let devices = &life.devices;
        status.insert(
            "containerStatuses".into(),
            containers(pod, &pod.spec.containers, &life.mains, devices, unhealthy),
        );
        if !life.inits.is_empty() {
            let inits = containers(pod, &pod.spec.init_containers, &life.inits, &[], unhealthy);
            status.insert("initContainerStatuses".into(), inits);
        }
    }
    json!({"metadata": {"uid": pod.metadata.uid}, "status": status})
}

fn conditions(pod: &Pod, life: &Life) -> Value {
    let over = life.end.is_some();
    let started = life.initialized;
    let sandbox = started.is_some() || life.inits.iter().any(|r| !matches!(r.state, State::Waiting { .. }));
    let done_reason = match &life.end {
        Some(end) if end.succeeded => Some("PodCompleted"),
        Some(_) => Some("PodFailed"),
        None => None,
    };
    let unready: Vec<&str> = pod
        .spec
        .containers
        .iter()
        .zip(&life.mains)
        .filter(|(_, run)| !matches!(run.state, State::Running { ready: true, .. }))
        .map(|(c, _)| c.name.as_str())
        .collect();
    let why_not = |for_pod: bool| match done_reason {
        Some(reason) => (reason, String::new()),
        None if unready.is_empty() && for_pod => ("ReadinessGatesNotReady", String::new()),
        None => ("ContainersNotReady", format!("containers with unready status: [{}]", unready.join(" "))),
    };
    let completed =
        |yes: bool| if over && yes { ("PodCompleted", String::new()) } else { ("", String::new()) };
    let bound = condition(&pod.status.conditions, "PodScheduled")
        .filter(|c| c.status == "True")
        .and_then(|c| c.last_transition_time)
        .unwrap_or(life.seen);
    let rows: [(&str, bool, Timestamp, (&str, String)); 5] = [
        ("PodScheduled", true, bound, ("", String::new())),
        ("PodReadyToStartContainers", sandbox && !over, life.ready.1.max(life.seen), ("", String::new())),
        ("Initialized", started.is_some(), started.unwrap_or(life.seen), {
            if started.is_some() { completed(true) } else { not_initialized(pod, life) }
        }),
        (
            "ContainersReady",
            life.containers_ready() && !over,
            life.ready.1,
            if life.containers_ready() && !over { ("", String::new()) } else { why_not(false) },
        ),
        ("Ready", life.ready.0, life.ready.1, if life.ready.0 { ("", String::new()) } else { why_not(true) }),
    ];
    let list: Vec<Value> = rows
        .into_iter()
        .map(|(kind, yes, since, (reason, message))| {
            let mut row = json!({
                "type": kind,
                "status": if yes { "True" } else { "False" },
                "lastProbeTime": null,
                "lastTransitionTime": stamp(since),
                "observedGeneration": pod.metadata.generation,
            });
            // Null takes away what an earlier write put there.
            row["reason"] = if reason.is_empty() { Value::Null } else { json!(reason) };
            row["message"] = if message.is_empty() { Value::Null } else { json!(message) };
            row
        })
        .collect();
    Value::Array(list)
}

fn not_initialized(pod: &Pod, life: &Life) -> (&'static str, String) {
    let waiting: Vec<&str> = pod
        .spec
        .init_containers
        .iter()
        .zip(&life.inits)
        .filter(|(_, run)| !matches!(run.state, State::Ended(Exit { code: 0, .. })))
        .map(|(c, _)| c.name.as_str())
        .collect();
    ("ContainersNotInitialized", format!("containers with incomplete status: [{}]", waiting.join(" ")))
}

fn containers(
    pod: &Pod,
    specs: &[Container],
    runs: &[Run],
    devices: &[(String, Vec<String>)],
    unhealthy: &BTreeSet<String>,
) -> Value {
    let mut devices: Vec<(String, Vec<String>)> = devices.to_vec();
    let rows = specs.iter().zip(runs).map(|(spec, run)| {
        let id = container_id(&pod.metadata.uid, &spec.name, run.restarts);
        let state = match &run.state {
            State::Waiting { reason, .. } => {
                let mut waiting = json!({"reason": reason});
                if *reason == "CrashLoopBackOff" {
                    waiting["message"] = json!(format!(
                        "back-off restarting failed container={} pod={}",
                        spec.name, pod.metadata.name
                    ));
                }
                json!({"waiting": waiting})
            }
            State::Running { since, .. } => json!({"running": {"startedAt": stamp(*since)}}),
            State::Ended(exit) => json!({"terminated": ended(exit, &id)}),
        };
        let running = matches!(run.state, State::Running { .. });
        let mut row = json!({
            "name": spec.name,
            "image": spec.image,
            "imageID": if matches!(run.state, State::Waiting { .. }) && run.last.is_none() {
                String::new()
            } else {
                format!("sim://{}", spec.image)
            },
            "ready": matches!(run.state, State::Running { ready: true, .. })
                || matches!(run.state, State::Ended(Exit { code: 0, .. })) && pod.spec.init_containers.iter().any(|c| c.name == spec.name),
            "started": running,
            "restartCount": run.restarts,
            "state": state,
            "lastState": run.last.map_or_else(|| json!({}), |exit| json!({"terminated": ended(&exit, &id)})),
        });
        if running || matches!(run.state, State::Ended(_)) {
            row["containerID"] = json!(id);
        }
        if running && !(spec.resources.requests.is_empty() && spec.resources.limits.is_empty()) {
            row["resources"] = json!({"requests": spec.resources.requests, "limits": spec.resources.limits});
            row["allocatedResources"] = json!(spec.resources.requests);
        }
        let own = take_devices(spec, &mut devices, unhealthy);
        if !own.is_empty() {
            row["allocatedResourcesStatus"] = Value::Array(own);
        }
        row
    });
    Value::Array(rows.collect())
}

/// The devices of one container: as many of the pod's as it asks for.
fn take_devices(
    spec: &Container,
    devices: &mut [(String, Vec<String>)],
    unhealthy: &BTreeSet<String>,
) -> Vec<Value> {
    let mut rows = Vec::new();
    for (resource, ids) in devices {
        let asked = spec.resources.limits.get(resource).or_else(|| spec.resources.requests.get(resource));
        let n = asked.and_then(|text| text.parse::<usize>().ok()).unwrap_or(0).min(ids.len());
        let health = |id: &String| if unhealthy.contains(id) { "Unhealthy" } else { "Healthy" };
        let own: Vec<Value> =
            ids.drain(..n).map(|id| json!({"resourceID": id, "health": health(&id)})).collect();
        if !own.is_empty() {
            rows.push(json!({"name": resource, "resources": own}));
        }
    }
    rows
}

fn ended(exit: &Exit, id: &str) -> Value {
    json!({
        "exitCode": exit.code,
        "reason": if exit.code == 0 { "Completed" } else { "Error" },
        "startedAt": stamp(exit.started),
        "finishedAt": stamp(exit.finished),
        "containerID": id,
    })
}

fn container_id(uid: &str, name: &str, restarts: u32) -> String {
    let a = crate::json::stable_u64(&format!("{uid}/{name}/{restarts}"));
    let b = crate::json::stable_u64(&format!("{restarts}/{name}/{uid}"));
    format!("sim://{a:016x}{b:016x}")
}

impl Life {
    fn runs_untouched(&self) -> bool {
        let untouched = |r: &Run| matches!(r.state, State::Waiting { .. }) && r.last.is_none();
        self.inits.iter().all(untouched) && self.mains.iter().all(untouched)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::behaviour::{Behaviour, Rules};

    fn t(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn pod(annotation: &str, value: &str, policy: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "uid": "u", "annotations": {annotation: value}},
            "spec": {"restartPolicy": policy, "containers": [
                {"name": "a", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}},
                {"name": "b", "image": "y", "resources": {"limits": {"nvidia.com/gpu": "2"}}},
            ]},
        }))
        .unwrap()
    }

    fn lived(pod: &Pod, until: i64) -> Life {
        let mut life = Life::begin(pod, "10.0.0.9".into(), t(0));
        life.devices = vec![("nvidia.com/gpu".into(), vec!["g0".into(), "g1".into(), "g2".into()])];
        life.advance(pod, &Behaviour::of(pod).0, &Rules::default(), t(until));
        life
    }

    #[track_caller]
    fn check(pod: &Pod, until: i64, expected: &[(&str, Value)]) {
        let broken = BTreeSet::from(["g2".to_owned()]);
        let patch = patch(pod, &lived(pod, until), "10.128.0.1", &broken);
        for (pointer, value) in expected {
            assert_eq!(patch.pointer(pointer).unwrap_or(&Value::Null), value, "{pointer} in {patch:#}");
        }
    }

    #[test]
    fn a_running_pod() {
        check(
            &pod("x", "y", "Always"),
            0,
            &[
                ("/status/phase", json!("Running")),
                ("/status/podIP", json!("10.0.0.9")),
                ("/status/hostIP", json!("10.128.0.1")),
                ("/status/conditions/4/type", json!("Ready")),
                ("/status/conditions/4/status", json!("True")),
                ("/status/conditions/4/reason", Value::Null),
                ("/status/containerStatuses/0/ready", json!(true)),
                (
                    "/status/containerStatuses/0/allocatedResourcesStatus/0/resources/0/resourceID",
                    json!("g0"),
                ),
                (
                    "/status/containerStatuses/1/allocatedResourcesStatus/0/resources/1/resourceID",
                    json!("g2"),
                ),
                (
                    "/status/containerStatuses/0/allocatedResourcesStatus/0/resources/0/health",
                    json!("Healthy"),
                ),
                (
                    "/status/containerStatuses/1/allocatedResourcesStatus/0/resources/1/health",
                    json!("Unhealthy"),
                ),
            ],
        );
    }

    #[test]
    fn an_ended_pod() {
        check(
            &pod("sim.muster.dev/duration", "5s", "Never"),
            5,
            &[
                ("/status/phase", json!("Succeeded")),
                ("/status/conditions/4/status", json!("False")),
                ("/status/conditions/4/reason", json!("PodCompleted")),
                ("/status/containerStatuses/0/state/terminated/exitCode", json!(0)),
                ("/status/containerStatuses/0/state/terminated/reason", json!("Completed")),
            ],
        );
    }

    #[test]
    fn a_pod_that_waits() {
        check(
            &pod("sim.muster.dev/start-delay", "5s", "Always"),
            2,
            &[
                ("/status/phase", json!("Pending")),
                ("/status/containerStatuses/0/state/waiting/reason", json!("ContainerCreating")),
                ("/status/conditions/4/message", json!("containers with unready status: [a b]")),
            ],
        );
    }

    #[test]
    fn a_pod_that_was_refused() {
        let pod = pod("x", "y", "Always");
        let mut life = Life::begin(&pod, String::new(), t(0));
        life.reject("OutOfcpu".into(), "too much".into());
        let patch = patch(&pod, &life, "10.128.0.1", &BTreeSet::new());
        assert_eq!(patch["status"]["phase"], "Failed");
        assert_eq!(patch["status"]["reason"], "OutOfcpu");
        assert!(patch["status"].get("containerStatuses").is_none());
    }

    /// What a server keeps of a patch.
    fn without_nulls(value: &Value) -> Value {
        match value {
            Value::Object(map) => Value::Object(
                map.iter()
                    .filter(|(_, v)| !v.is_null())
                    .map(|(k, v)| (k.clone(), without_nulls(v)))
                    .collect(),
            ),
            Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
            other => other.clone(),
        }
    }

    /// A life that is read back from its own status goes on as it was.
    #[test]
    fn resumes_from_its_own_status() {
        for (annotation, value, policy, until) in [
            ("x", "y", "Always", 7),
            ("sim.muster.dev/duration", "5s", "Never", 9),
            ("sim.muster.dev/crash-after", "1s", "Always", 2),
            ("sim.muster.dev/crash-after", "1s", "Always", 30),
        ] {
            let mut pod = pod(annotation, value, policy);
            let life = lived(&pod, until);
            let written = patch(&pod, &life, "h", &BTreeSet::new());
            pod.status = serde_json::from_value(without_nulls(&written["status"])).unwrap();
            let back = Life::resume(&pod, t(until)).unwrap();
            assert_eq!(patch(&pod, &back, "h", &BTreeSet::new()), written, "{annotation} {until}");
        }
    }
}
