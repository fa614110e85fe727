//! Pods, whose status column sums up the state of all containers in one word, and what carries pod templates.

use super::read::{Object, labels};
use super::{AGE, Known, NAME, text, wide};
use crate::{Cell, age};

pub(super) const KINDS: &[Known] = &[
    Known {
        group: "",
        kind: "Pod",
        columns: &[
            NAME,
            text("Ready"),
            text("Status"),
            text("Restarts"),
            AGE,
            wide("IP"),
            wide("Node"),
            wide("Nominated Node"),
            wide("Readiness Gates"),
        ],
        cells: pod,
    },
    Known {
        group: "",
        kind: "PodTemplate",
        columns: &[NAME, text("Containers"), text("Images"), text("Pod Labels")],
        cells: pod_template,
    },
];

fn pod(pod: Object<'_>) -> Vec<Cell> {
    let summary = Summary::of(pod);
    let restarts = match summary.last_restart {
        Some(last) if summary.n_restarts != 0 => {
            format!("{} ({} ago)", summary.n_restarts, age(Some(last), pod.now))
        }
        _ => summary.n_restarts.to_string(),
    };
    // Both fields hold the first address; the single one wins when they differ.
    let ip = pod.text_or("status.podIP", pod.list("status.podIPs").next().map_or("", |ip| ip.text("ip")));
    vec![
        pod.name(),
        format!("{}/{}", summary.n_ready, summary.n_containers).into(),
        summary.status.into(),
        restarts.into(),
        pod.age(),
        if ip.is_empty() { "<none>" } else { ip }.into(),
        pod.text_or("spec.nodeName", "<none>").into(),
        pod.text_or("status.nominatedNodeName", "<none>").into(),
        readiness_gates(pod).into(),
    ]
}

struct Summary {
    status: String,
    n_ready: usize,
    n_containers: usize,
    n_restarts: i64,
    last_restart: Option<jiff::Timestamp>,
}

impl Summary {
    fn of(pod: Object<'_>) -> Self {
        let phase = pod.text("status.phase");
        let mut status = pod.text_or("status.reason", phase).to_owned();
        let is_gated = |condition: Object<'_>| {
            condition.text("type") == "PodScheduled" && condition.text("reason") == "SchedulingGated"
        };
        if pod.list("status.conditions").any(is_gated) {
            status = "SchedulingGated".into();
        }

        let sidecars: Vec<&str> = pod
            .list("spec.initContainers")
            .filter(|container| container.text("restartPolicy") == "Always")
            .map(|container| container.text("name"))
            .collect();
        let mut summary = Summary {
            status,
            n_ready: 0,
            n_containers: pod.list("spec.containers").len() + sidecars.len(),
            n_restarts: 0,
            last_restart: None,
        };
        // Sidecars count along with the main containers; init containers only while they are at work.
        let mut sidecar_restarts = (0_i64, None);
        let mut is_initializing = false;
        for (place, container) in pod.list("status.initContainerStatuses").enumerate() {
            let is_sidecar = sidecars.contains(&container.text("name"));
            summary.count_restarts(container);
            if is_sidecar {
                sidecar_restarts.0 = container.integer("restartCount").saturating_add(sidecar_restarts.0);
                sidecar_restarts.1 =
                    sidecar_restarts.1.max(container.time("lastState.terminated.finishedAt"));
            }
            let has_ended = container.has("state.terminated");
            if has_ended && container.integer("state.terminated.exitCode") == 0 {
                continue;
            }
            if is_sidecar && container.flag("started") {
                summary.n_ready += usize::from(container.flag("ready"));
                continue;
            }
            let waits_for = container.text("state.waiting.reason");
            summary.status = if has_ended {
                format!("Init:{}", how_it_ended(container))
            } else if !waits_for.is_empty() && waits_for != "PodInitializing" {
                format!("Init:{waits_for}")
            } else {
                format!("Init:{place}/{}", pod.list("spec.initContainers").len())
            };
            is_initializing = true;
            break;
        }

        let initialized = pod.list("status.conditions").find(|c| c.text("type") == "Initialized");
        if !is_initializing || initialized.is_some_and(|condition| condition.text("status") == "True") {
            (summary.n_restarts, summary.last_restart) = sidecar_restarts;
            summary.count_containers(pod);
        }

        if pod.is_deleted() && pod.text("status.reason") == "NodeLost" {
            summary.status = "Unknown".into();
        } else if pod.is_deleted() && !matches!(phase, "Succeeded" | "Failed") {
            summary.status = "Terminating".into();
        }
        summary
    }

    /// Goes over the main containers from last to first, so that the first one that has something to say wins.
    fn count_containers(&mut self, pod: Object<'_>) {
        let mut has_running = false;
        let mut failure = None;
        for container in pod.list("status.containerStatuses").rev() {
            self.count_restarts(container);
            let waits_for = container.text("state.waiting.reason");
            if !waits_for.is_empty() {
                self.status = waits_for.to_owned();
            } else if container.has("state.terminated") {
                self.status = how_it_ended(container);
                if container.integer("state.terminated.exitCode") != 0 {
                    failure = Some(self.status.clone());
                }
            } else if container.flag("ready") && container.has("state.running") {
                has_running = true;
                self.n_ready += 1;
            }
        }
        if self.status != "Completed" {
            return;
        }
        let is_ready = |c: Object<'_>| c.text("type") == "Ready" && c.text("status") == "True";
        if has_running && pod.list("status.conditions").any(is_ready) {
            self.status = "Running".into();
        } else if let Some(failure) = failure {
            self.status = failure;
        } else if has_running {
            self.status = "NotReady".into();
        }
    }

    fn count_restarts(&mut self, container: Object<'_>) {
        self.n_restarts = self.n_restarts.saturating_add(container.integer("restartCount"));
        self.last_restart = self.last_restart.max(container.time("lastState.terminated.finishedAt"));
    }
}

fn how_it_ended(container: Object<'_>) -> String {
    let reason = container.text("state.terminated.reason");
    let signal = container.integer("state.terminated.signal");
    if !reason.is_empty() {
        reason.to_owned()
    } else if signal != 0 {
        format!("Signal:{signal}")
    } else {
        format!("ExitCode:{}", container.integer("state.terminated.exitCode"))
    }
}

fn readiness_gates(pod: Object<'_>) -> String {
    let gates = pod.list("spec.readinessGates");
    let n_gates = gates.len();
    if n_gates == 0 {
        return "<none>".into();
    }
    let holds = |gate: &Object<'_>| {
        let type_ = gate.text("conditionType");
        let condition = pod.list("status.conditions").find(|condition| condition.text("type") == type_);
        condition.is_some_and(|condition| condition.text("status") == "True")
    };
    format!("{}/{n_gates}", gates.filter(holds).count())
}

fn pod_template(template: Object<'_>) -> Vec<Cell> {
    let [names, images] = template.containers("template.spec.containers");
    vec![template.name(), names, images, labels(template.map("template.metadata.labels")).into()]
}
