//! What keeps pods running: the kinds of apps, batch, autoscaling and policy, and replication controllers.

use super::read::{Object, count, labels, quantity, selector, selector_cell};
use super::{AGE, Known, NAME, boolean, integer, text, wide};
use crate::{Cell, human_duration};

pub(super) const KINDS: &[Known] = &[
    Known {
        group: "",
        kind: "ReplicationController",
        columns: &[
            NAME,
            integer("Desired"),
            integer("Current"),
            integer("Ready"),
            AGE,
            wide("Containers"),
            wide("Images"),
            wide("Selector"),
        ],
        cells: replication_controller,
    },
    Known {
        group: "apps",
        kind: "Deployment",
        columns: &[
            NAME,
            text("Ready"),
            text("Up-to-date"),
            text("Available"),
            AGE,
            wide("Containers"),
            wide("Images"),
            wide("Selector"),
        ],
        cells: deployment,
    },
    Known {
        group: "apps",
        kind: "ReplicaSet",
        columns: &[
            NAME,
            integer("Desired"),
            integer("Current"),
            integer("Ready"),
            AGE,
            wide("Containers"),
            wide("Images"),
            wide("Selector"),
        ],
        cells: replica_set,
    },
    Known {
        group: "apps",
        kind: "StatefulSet",
        columns: &[NAME, text("Ready"), AGE, wide("Containers"), wide("Images")],
        cells: stateful_set,
    },
    Known {
        group: "apps",
        kind: "DaemonSet",
        columns: &[
            NAME,
            integer("Desired"),
            integer("Current"),
            integer("Ready"),
            integer("Up-to-date"),
            integer("Available"),
            text("Node Selector"),
            AGE,
            wide("Containers"),
            wide("Images"),
            wide("Selector"),
        ],
        cells: daemon_set,
    },
    Known {
        group: "apps",
        kind: "ControllerRevision",
        columns: &[NAME, text("Controller"), text("Revision"), AGE],
        cells: controller_revision,
    },
    Known {
        group: "batch",
        kind: "Job",
        columns: &[
            NAME,
            text("Status"),
            text("Completions"),
            text("Duration"),
            AGE,
            wide("Containers"),
            wide("Images"),
            wide("Selector"),
        ],
        cells: job,
    },
    Known {
        group: "batch",
        kind: "CronJob",
        columns: &[
            NAME,
            text("Schedule"),
            text("Timezone"),
            boolean("Suspend"),
            integer("Active"),
            text("Last Schedule"),
            AGE,
            wide("Containers"),
            wide("Images"),
            wide("Selector"),
        ],
        cells: cron_job,
    },
    Known {
        group: "autoscaling",
        kind: "HorizontalPodAutoscaler",
        columns: &[
            NAME,
            text("Reference"),
            text("Targets"),
            text("MinPods"),
            text("MaxPods"),
            text("Replicas"),
            AGE,
        ],
        cells: horizontal_pod_autoscaler,
    },
    Known {
        group: "policy",
        kind: "PodDisruptionBudget",
        columns: &[NAME, text("Min Available"), text("Max Unavailable"), integer("Allowed Disruptions"), AGE],
        cells: pod_disruption_budget,
    },
];

fn desired_replicas(object: Object<'_>) -> i64 {
    object.integer_if_set("spec.replicas").unwrap_or(1)
}

fn replication_controller(object: Object<'_>) -> Vec<Cell> {
    let [names, images] = object.containers("spec.template.spec.containers");
    let selected = object.map("spec.selector").filter(|selector| !selector.is_empty());
    vec![
        object.name(),
        desired_replicas(object).into(),
        object.integer_cell("status.replicas"),
        object.integer_cell("status.readyReplicas"),
        object.age(),
        names,
        images,
        labels(selected.or_else(|| object.map("spec.template.metadata.labels"))).into(),
    ]
}

fn deployment(object: Object<'_>) -> Vec<Cell> {
    let [names, images] = object.containers("spec.template.spec.containers");
    let part = object.get("spec.selector").map(|value| Object { value, now: object.now });
    vec![
        object.name(),
        format!("{}/{}", object.integer("status.readyReplicas"), desired_replicas(object)).into(),
        object.integer_cell("status.updatedReplicas"),
        object.integer_cell("status.availableReplicas"),
        object.age(),
        names,
        images,
        selector(part).unwrap_or_else(|| "<invalid>".into()).into(),
    ]
}

fn replica_set(object: Object<'_>) -> Vec<Cell> {
    let [names, images] = object.containers("spec.template.spec.containers");
    vec![
        object.name(),
        desired_replicas(object).into(),
        object.integer_cell("status.replicas"),
        object.integer_cell("status.readyReplicas"),
        object.age(),
        names,
        images,
        selector_cell(object, "spec.selector"),
    ]
}

fn stateful_set(object: Object<'_>) -> Vec<Cell> {
    let [names, images] = object.containers("spec.template.spec.containers");
    vec![
        object.name(),
        format!("{}/{}", object.integer("status.readyReplicas"), desired_replicas(object)).into(),
        object.age(),
        names,
        images,
    ]
}

fn daemon_set(object: Object<'_>) -> Vec<Cell> {
    let [names, images] = object.containers("spec.template.spec.containers");
    vec![
        object.name(),
        object.integer_cell("status.desiredNumberScheduled"),
        object.integer_cell("status.currentNumberScheduled"),
        object.integer_cell("status.numberReady"),
        object.integer_cell("status.updatedNumberScheduled"),
        object.integer_cell("status.numberAvailable"),
        labels(object.map("spec.template.spec.nodeSelector")).into(),
        object.age(),
        names,
        images,
        selector_cell(object, "spec.selector"),
    ]
}

fn controller_revision(object: Object<'_>) -> Vec<Cell> {
    let owner = object.list("metadata.ownerReferences").find(|owner| owner.flag("controller"));
    let controller = owner.map_or_else(
        || "<none>".to_owned(),
        |owner| {
            let group = owner.text("apiVersion").split_once('/').map_or("", |(group, _)| group);
            let dot = if group.is_empty() { "" } else { "." };
            format!("{}/{}", format!("{}{dot}{group}", owner.text("kind")).to_lowercase(), owner.text("name"))
        },
    );
    vec![object.name(), controller.into(), object.integer_cell("revision"), object.age()]
}

fn job(object: Object<'_>) -> Vec<Cell> {
    let n_succeeded = object.integer("status.succeeded");
    let parallelism = object.integer_if_set("spec.parallelism");
    let completions = match (object.integer_if_set("spec.completions"), parallelism) {
        (Some(wanted), _) => format!("{n_succeeded}/{wanted}"),
        (None, Some(parallelism @ 2..)) => format!("{n_succeeded}/1 of {parallelism}"),
        (None, _) => format!("{n_succeeded}/1"),
    };
    let duration = object.time("status.startTime").map_or_else(String::new, |start| {
        human_duration(object.time("status.completionTime").unwrap_or(object.now).duration_since(start))
    });
    // The first condition of a type decides.
    let holds = |type_: &str| {
        let condition = object.list("status.conditions").find(|condition| condition.text("type") == type_);
        condition.is_some_and(|condition| condition.text("status") == "True")
    };
    let status = match () {
        () if holds("Complete") => "Complete",
        () if holds("Failed") => "Failed",
        () if object.is_deleted() => "Terminating",
        () if holds("Suspended") => "Suspended",
        () if holds("FailureTarget") => "FailureTarget",
        () if holds("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    };
    let [names, images] = object.containers("spec.template.spec.containers");
    vec![
        object.name(),
        status.into(),
        completions.into(),
        duration.into(),
        object.age(),
        names,
        images,
        selector_cell(object, "spec.selector"),
    ]
}

fn cron_job(object: Object<'_>) -> Vec<Cell> {
    let last = match object.get("status.lastScheduleTime") {
        Some(_) => object.age_at("status.lastScheduleTime"),
        None => "<none>".into(),
    };
    let [names, images] = object.containers("spec.jobTemplate.spec.template.spec.containers");
    vec![
        object.name(),
        object.cell("spec.schedule"),
        object.cell_or("spec.timeZone", "<none>"),
        if object.flag("spec.suspend") { "True" } else { "False" }.into(),
        count(object.list("status.active").len()),
        last.into(),
        object.age(),
        names,
        images,
        selector_cell(object, "spec.jobTemplate.spec.selector"),
    ]
}

fn horizontal_pod_autoscaler(object: Object<'_>) -> Vec<Cell> {
    vec![
        object.name(),
        format!("{}/{}", object.text("spec.scaleTargetRef.kind"), object.text("spec.scaleTargetRef.name"))
            .into(),
        targets(object).into(),
        object.integer_if_set("spec.minReplicas").unwrap_or(1).to_string().into(),
        object.integer_cell("spec.maxReplicas"),
        object.integer_cell("status.currentReplicas"),
        object.age(),
    ]
}

/// What an autoscaler aims at, as `current/target` for the first two metrics.
fn targets(object: Object<'_>) -> String {
    const N_SHOWN: usize = 2;
    let specs = object.list("spec.metrics");
    let n_specs = specs.len();
    if n_specs == 0 {
        // The old version knows one metric, and the new one falls back to it.
        let percent = |path: &str| object.integer_if_set(path).map(|n| format!("{n}%"));
        let current = percent("status.currentCPUUtilizationPercentage").unwrap_or_else(|| "<unknown>".into());
        let target = percent("spec.targetCPUUtilizationPercentage").unwrap_or_else(|| "80%".into());
        return format!("cpu: {current}/{target}");
    }
    let mut statuses = object.list("status.currentMetrics");
    let metrics: Vec<String> = specs.take(N_SHOWN).map(|spec| metric(spec, statuses.next())).collect();
    let text = metrics.join(", ");
    if n_specs > N_SHOWN { format!("{text} + {} more...", n_specs - N_SHOWN) } else { text }
}

fn metric(spec: Object<'_>, status: Option<Object<'_>>) -> String {
    let (source, name) = match spec.text("type") {
        "External" => ("external", None),
        "Pods" => ("pods", None),
        "Object" => ("object", None),
        "Resource" => ("resource", Some(spec.text("resource.name"))),
        "ContainerResource" => ("containerResource", Some(spec.text("containerResource.name"))),
        _ => return "<unknown type>".into(),
    };
    let status = status.filter(|status| status.has(source));
    let target = |field: &str| spec.get(&format!("{source}.target.{field}"));
    let current = |field: &str| status.and_then(|status| status.get(&format!("{source}.current.{field}")));
    let unknown = || "<unknown>".to_owned();
    // A number that a present status leaves out; the server prints its missing quantity so.
    let nothing = || "<nil>".to_owned();
    let percent = |value: &serde_json::Value| format!("{value}%");
    let is_average = target("averageValue").is_some();
    let (now, wanted) = match (source, is_average) {
        ("external" | "object", true) => (
            current("averageValue").map_or_else(unknown, quantity),
            target("averageValue").map_or_else(nothing, quantity),
        ),
        ("external" | "object", false) => (
            current("value").map(quantity).unwrap_or_else(|| status.map_or_else(unknown, |_| nothing())),
            target("value").map_or_else(nothing, quantity),
        ),
        ("pods", _) | (_, true) => (
            current("averageValue")
                .map(quantity)
                .unwrap_or_else(|| status.map_or_else(unknown, |_| nothing())),
            target("averageValue").map_or_else(nothing, quantity),
        ),
        (_, false) => (
            current("averageUtilization").map_or_else(unknown, percent),
            target("averageUtilization").map_or_else(|| "<auto>".to_owned(), percent),
        ),
    };
    match name {
        Some(name) => format!("{name}: {now}/{wanted}"),
        None if is_average && source != "pods" => format!("{now}/{wanted} (avg)"),
        None => format!("{now}/{wanted}"),
    }
}

fn pod_disruption_budget(object: Object<'_>) -> Vec<Cell> {
    let number_or_percent = |path: &str| match object.get(path) {
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(number) => number.to_string(),
        None => "N/A".to_owned(),
    };
    vec![
        object.name(),
        number_or_percent("spec.minAvailable").into(),
        number_or_percent("spec.maxUnavailable").into(),
        object.integer_cell("status.disruptionsAllowed"),
        object.age(),
    ]
}
