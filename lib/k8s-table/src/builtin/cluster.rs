//! What a cluster consists of: nodes, namespaces, events, quotas, leases, and the kinds that scheduling works with.

use std::collections::BTreeSet;

use serde_json::Value;

use super::read::{Object, count, quantity};
use super::{
    AGE, CREATED_AT, Known, NAME, Spec, boolean, integer, name_and_age, name_and_creation, text, wide,
};
use crate::Cell;

const EVENT_COLUMNS: &[Spec] = &[
    text("Last Seen"),
    text("Type"),
    text("Reason"),
    text("Object"),
    wide("Subobject"),
    wide("Source"),
    text("Message"),
    wide("First Seen"),
    wide("Count"),
    Spec { name: "Name", type_: "string", format: "name", priority: 1 },
];

pub(super) const KINDS: &[Known] = &[
    Known {
        group: "",
        kind: "Node",
        columns: &[
            NAME,
            text("Status"),
            text("Roles"),
            AGE,
            text("Version"),
            wide("Internal-IP"),
            wide("External-IP"),
            wide("OS-Image"),
            wide("Kernel-Version"),
            wide("Container-Runtime"),
        ],
        cells: node,
    },
    Known { group: "", kind: "Namespace", columns: &[NAME, text("Status"), AGE], cells: namespace },
    Known { group: "", kind: "ConfigMap", columns: &[NAME, text("Data"), AGE], cells: config_map },
    Known { group: "", kind: "Secret", columns: &[NAME, text("Type"), text("Data"), AGE], cells: secret },
    Known { group: "", kind: "ServiceAccount", columns: &[NAME, AGE], cells: name_and_age },
    Known { group: "", kind: "Event", columns: EVENT_COLUMNS, cells: event },
    Known { group: "events.k8s.io", kind: "Event", columns: EVENT_COLUMNS, cells: event },
    Known {
        group: "",
        kind: "ResourceQuota",
        columns: &[NAME, text("Request"), text("Limit"), AGE],
        cells: resource_quota,
    },
    Known { group: "", kind: "LimitRange", columns: &[NAME, CREATED_AT], cells: name_and_creation },
    Known {
        group: "",
        kind: "ComponentStatus",
        columns: &[NAME, text("Status"), text("Message"), text("Error")],
        cells: component_status,
    },
    Known {
        group: "apiregistration.k8s.io",
        kind: "APIService",
        columns: &[NAME, text("Service"), text("Available"), AGE],
        cells: api_service,
    },
    Known {
        group: "coordination.k8s.io",
        kind: "Lease",
        columns: &[NAME, text("Holder"), AGE],
        cells: lease,
    },
    Known {
        group: "coordination.k8s.io",
        kind: "LeaseCandidate",
        columns: &[NAME, text("LeaseName"), text("BinaryVersion"), text("EmulationVersion"), AGE],
        cells: lease_candidate,
    },
    Known {
        group: "node.k8s.io",
        kind: "RuntimeClass",
        columns: &[NAME, text("Handler"), AGE],
        cells: runtime_class,
    },
    Known {
        group: "scheduling.k8s.io",
        kind: "PriorityClass",
        columns: &[NAME, integer("Value"), boolean("Global-Default"), AGE, text("PreemptionPolicy")],
        cells: priority_class,
    },
    Known { group: "scheduling.k8s.io", kind: "Workload", columns: &[NAME, AGE], cells: name_and_age },
    Known {
        group: "scheduling.k8s.io",
        kind: "PodGroup",
        columns: &[NAME, text("Policy"), text("Workload"), text("Status"), AGE],
        cells: pod_group,
    },
    Known { group: "resource.k8s.io", kind: "DeviceClass", columns: &[NAME, AGE], cells: name_and_age },
    Known {
        group: "resource.k8s.io",
        kind: "ResourceClaim",
        columns: &[NAME, text("State"), AGE],
        cells: resource_claim,
    },
    Known {
        group: "resource.k8s.io",
        kind: "ResourceClaimTemplate",
        columns: &[NAME, AGE],
        cells: name_and_age,
    },
    Known {
        group: "resource.k8s.io",
        kind: "ResourceSlice",
        columns: &[NAME, text("Node"), text("Driver"), text("Pool"), AGE],
        cells: resource_slice,
    },
    Known {
        group: "resource.k8s.io",
        kind: "DeviceTaintRule",
        columns: &[NAME, text("Key"), text("Value"), text("Effect"), text("TimeAdded"), AGE],
        cells: device_taint_rule,
    },
];

fn node(object: Object<'_>) -> Vec<Cell> {
    let ready = object.condition("Ready").map(|condition| condition.text("status") == "True");
    let mut status = match ready {
        Some(true) => "Ready",
        Some(false) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if object.flag("spec.unschedulable") {
        status.push_str(",SchedulingDisabled");
    }
    let role = |(label, value): (&String, &Value)| {
        let role = match label.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => role.to_owned(),
            None if label == "kubernetes.io/role" => value.as_str().unwrap_or_default().to_owned(),
            None => String::new(),
        };
        Some(role).filter(|role| !role.is_empty())
    };
    let roles: BTreeSet<String> =
        object.map("metadata.labels").into_iter().flatten().filter_map(role).collect();
    let roles = if roles.is_empty() { "<none>".into() } else { Vec::from_iter(roles).join(",") };
    let address = |type_: &str| {
        let found = object.list("status.addresses").find(|address| address.text("type") == type_);
        Cell::from(found.map_or("<none>", |address| address.text("address")))
    };
    let mut kernel = object.text_or("status.nodeInfo.kernelVersion", "<unknown>").to_owned();
    let architecture = object.text("status.nodeInfo.architecture");
    if !architecture.is_empty() {
        kernel.push_str(&format!(" ({architecture})"));
    }
    vec![
        object.name(),
        status.into(),
        roles.into(),
        object.age(),
        object.cell("status.nodeInfo.kubeletVersion"),
        address("InternalIP"),
        address("ExternalIP"),
        object.text_or("status.nodeInfo.osImage", "<unknown>").into(),
        kernel.into(),
        object.text_or("status.nodeInfo.containerRuntimeVersion", "<unknown>").into(),
    ]
}

fn namespace(object: Object<'_>) -> Vec<Cell> {
    vec![object.name(), object.text_or("status.phase", "Active").into(), object.age()]
}

fn config_map(object: Object<'_>) -> Vec<Cell> {
    vec![object.name(), count(object.map_len("data") + object.map_len("binaryData")), object.age()]
}

fn secret(object: Object<'_>) -> Vec<Cell> {
    vec![object.name(), object.text_or("type", "Opaque").into(), count(object.map_len("data")), object.age()]
}

/// An event of either group; they name the same things differently.
fn event(object: Object<'_>) -> Vec<Cell> {
    let either = |core: &'static str, events: &'static str| if object.has(core) { core } else { events };
    let text = |core: &'static str, events: &'static str| object.text(either(core, events));

    let first_path = either("firstTimestamp", "deprecatedFirstTimestamp");
    let first = object.age_at(if object.time(first_path).is_some() { first_path } else { "eventTime" });
    let last_path = either("lastTimestamp", "deprecatedLastTimestamp");
    let mut last = if object.time(last_path).is_some() { object.age_at(last_path) } else { first.clone() };
    // An event that stands alone has no count in the newer group.
    let mut n_times = match object.integer(either("count", "deprecatedCount")) {
        0 => 1,
        n_times => n_times,
    };
    if object.has("series") {
        last = object.age_at("series.lastObservedTime");
        n_times = object.integer("series.count");
    }

    let kind = text("involvedObject.kind", "regarding.kind").to_lowercase();
    let name = text("involvedObject.name", "regarding.name");
    let target = if name.is_empty() { kind } else { format!("{kind}/{name}") };

    let first_filled = |paths: [&'static str; 4]| {
        paths.into_iter().map(|path| object.text(path)).find(|text| !text.is_empty()).unwrap_or_default()
    };
    let component = first_filled([
        "source.component",
        "deprecatedSource.component",
        "reportingComponent",
        "reportingController",
    ]);
    let host =
        first_filled(["source.host", "deprecatedSource.host", "reportingInstance", "reportingInstance"]);
    let source = if host.is_empty() { component.to_owned() } else { format!("{component}, {host}") };
    vec![
        last.into(),
        object.cell("type"),
        object.cell("reason"),
        target.into(),
        text("involvedObject.fieldPath", "regarding.fieldPath").into(),
        source.into(),
        text("message", "note").trim().into(),
        first.into(),
        n_times.into(),
        object.name(),
    ]
}

fn resource_quota(object: Object<'_>) -> Vec<Cell> {
    let used = object.map("status.used");
    let mut hard: Vec<(&String, &Value)> = object.map("status.hard").into_iter().flatten().collect();
    hard.sort_unstable_by_key(|(resource, _)| resource.as_str());
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (resource, hard) in hard {
        let used = used.and_then(|used| used.get(resource)).map_or_else(|| "0".to_owned(), quantity);
        let text = format!("{resource}: {used}/{}", quantity(hard));
        if resource.starts_with("limits.") { &mut limits } else { &mut requests }.push(text);
    }
    vec![object.name(), requests.join(", ").into(), limits.join(", ").into(), object.age()]
}

fn component_status(object: Object<'_>) -> Vec<Cell> {
    let healthy = object.list("conditions").find(|condition| condition.text("type") == "Healthy");
    let [status, message, error] = healthy.map_or(["Unknown", "", ""], |condition| {
        let is_healthy = condition.text("status") == "True";
        [if is_healthy { "Healthy" } else { "Unhealthy" }, condition.text("message"), condition.text("error")]
    });
    vec![object.name(), status.into(), message.into(), error.into()]
}

/// A service without one of its own is served by the API server itself.
fn api_service(object: Object<'_>) -> Vec<Cell> {
    let service = match (object.text("spec.service.namespace"), object.text("spec.service.name")) {
        (_, "") => "Local".to_string(),
        (namespace, name) => format!("{namespace}/{name}"),
    };
    let mut conditions = object.list("status.conditions");
    let available = conditions.find(|c| c.text("type") == "Available").map(|c| match c.text("status") {
        "True" => "True".to_string(),
        status => format!("{status} ({})", c.text("reason")),
    });
    vec![object.name(), service.into(), available.unwrap_or_else(|| "Unknown".into()).into(), object.age()]
}

fn lease(object: Object<'_>) -> Vec<Cell> {
    vec![object.name(), object.cell("spec.holderIdentity"), object.age()]
}

fn lease_candidate(object: Object<'_>) -> Vec<Cell> {
    vec![
        object.name(),
        object.cell("spec.leaseName"),
        object.cell("spec.binaryVersion"),
        object.cell("spec.emulationVersion"),
        object.age(),
    ]
}

fn runtime_class(object: Object<'_>) -> Vec<Cell> {
    vec![object.name(), object.cell("handler"), object.age()]
}

fn priority_class(object: Object<'_>) -> Vec<Cell> {
    vec![
        object.name(),
        object.integer_cell("value"),
        object.flag("globalDefault").into(),
        object.age(),
        object.cell_or("preemptionPolicy", "PreemptLowerPriority"),
    ]
}

fn pod_group(object: Object<'_>) -> Vec<Cell> {
    let policy = if object.has("spec.schedulingPolicy.gang") { "Gang" } else { "Basic" };
    let workload = match object.get("spec.podGroupTemplateRef") {
        Some(_) => object.text("spec.podGroupTemplateRef.workload.workloadName"),
        None => "<none>",
    };
    let scheduled = object.condition("PodGroupScheduled").map(|condition| condition.text("status") == "True");
    let mut status = match scheduled {
        Some(true) => "Scheduled",
        Some(false) => "Unschedulable",
        None => "Pending",
    };
    if let Some(disruption) = object.condition("DisruptionTarget") {
        status = disruption.text("reason");
    }
    vec![object.name(), policy.into(), workload.into(), status.into(), object.age()]
}

fn resource_claim(object: Object<'_>) -> Vec<Cell> {
    let mut states = Vec::new();
    if object.is_deleted() {
        states.push("deleted");
    }
    if object.has("status.allocation") {
        states.push("allocated");
        if object.list("status.reservedFor").len() > 0 {
            states.push("reserved");
        }
    } else if !object.is_deleted() {
        states.push("pending");
    }
    vec![object.name(), states.join(",").into(), object.age()]
}

fn resource_slice(object: Object<'_>) -> Vec<Cell> {
    vec![
        object.name(),
        object.cell("spec.nodeName"),
        object.cell("spec.driver"),
        object.cell("spec.pool.name"),
        object.age(),
    ]
}

fn device_taint_rule(object: Object<'_>) -> Vec<Cell> {
    let added = object.get("spec.taint.timeAdded").map(|_| object.age_at("spec.taint.timeAdded"));
    vec![
        object.name(),
        object.cell("spec.taint.key"),
        object.cell("spec.taint.value"),
        object.cell("spec.taint.effect"),
        added.unwrap_or_default().into(),
        object.age(),
    ]
}
