//! Workloads: what they ask for, and what they were given.

use super::{Context, amounts, condition, key, requests};
use crate::pod;
use crate::read::{At, Object};
use muster_admit::place::TopologyAssignment;
use muster_admit::spec::{
    CheckState, Delayed, Marked, PodSet, PodSetReservation, PodSetUpdate, Reservation, SliceLayer,
    TopologyRequest, Workload, WorkloadCheck,
};
use muster_model::{Key, Name};

const PREFIX: &str = "kueue.x-k8s.io";

pub(super) fn workload(object: &Object<'_>, context: &Context) -> Workload {
    let spec = object.get("spec");
    let status = object.get("status");
    let mut workload = Workload::new(key(object));
    let annotation = |name: &str| object.annotation(&format!("{PREFIX}/{name}"));
    workload.uid = object.get("metadata").get("uid").name().unwrap_or_default();
    workload.queue = spec.get("queueName").name().unwrap_or_default();
    workload.priority = spec.get("priority").int().map_or(0, clamped);
    workload.boost = annotation("priority-boost").and_then(|text| text.parse().ok()).unwrap_or(0);
    if let Some(created) = object.get("metadata").get("creationTimestamp").time() {
        workload.created = created;
    }
    workload.active = spec.get("active").bool().unwrap_or(true);
    workload.elastic = annotation("elastic-job") == Some("true");
    workload.replaces = annotation("workload-slice-replacement-for").map(|text| match text.split_once('/') {
        Some((namespace, name)) => Key::new(namespace, name),
        None => Key { namespace: workload.key.namespace.clone(), name: text.into() },
    });
    workload.allowed_flavors = annotation("workload-allowed-resource-flavors")
        .map(|text| text.split(',').map(|name| name.trim().into()).collect());
    workload.gated = annotation("admission-gated-by").is_some();
    workload.is_parent = object.label(&format!("{PREFIX}/concurrent-admission-parent")).is_some();
    workload.job_uid = object.label(&format!("{PREFIX}/job-uid")).unwrap_or("").into();
    owners(object, &mut workload);
    gates(spec, status, &mut workload);

    for (i, set) in spec.get("podSets").list().enumerate() {
        let template = set.get("template").get("spec");
        let (raw, counted, wrong) =
            requests::of_template(template, &format!("spec.podSets[{i}]"), &workload.key.namespace, context);
        if workload.invalid.is_none() {
            workload.invalid = wrong.map(Into::into);
        }
        workload.pod_sets.push(PodSet {
            name: set.get("name").name().unwrap_or_else(|| "main".into()),
            count: set.get("count").int().map_or(1, clamped).max(0),
            min_count: set.get("minCount").int().map(clamped),
            requests: counted,
            raw,
            rule: pod::node_rule(template, template.get("affinity").get("nodeAffinity")),
            tolerations: pod::tolerations(template.get("tolerations")),
            topology: topology_request(set.get("topologyRequest")),
        });
    }
    state(status, &mut workload);
    workload
}

fn clamped(number: i64) -> i32 {
    i32::try_from(number).unwrap_or(if number < 0 { i32::MIN } else { i32::MAX })
}

/// Who it belongs to: another workload that it is a variant of, or a single pod.
fn owners(object: &Object<'_>, workload: &mut Workload) {
    let owners: Vec<At<'_>> = object.get("metadata").get("ownerReferences").list().collect();
    let kind = |at: &At<'_>| at.get("kind").str() == Some("Workload");
    workload.variant_of = owners.iter().find(|at| kind(at)).and_then(|at| at.get("uid").name());
    workload.pod_owned = match &*owners {
        [one] => one.get("kind").str() == Some("Pod") && one.get("apiVersion").str() == Some("v1"),
        _ => false,
    };
}

/// Preemption gates are closed until somebody opens them.
fn gates(spec: At<'_>, status: At<'_>, workload: &mut Workload) {
    let open = |name: &str| {
        status
            .get("preemptionGates")
            .list()
            .any(|at| at.get("name").str() == Some(name) && at.get("position").str() == Some("Open"))
    };
    workload.preemption_gated =
        spec.get("preemptionGates").list().any(|at| !open(at.get("name").str().unwrap_or("")));
}

pub(super) fn topology_request(at: At<'_>) -> Option<TopologyRequest> {
    at.exists().then(|| {
        let layers = at.get("podsetSliceRequiredTopologyConstraints");
        let mut slices: Vec<SliceLayer> = layers
            .list()
            .filter_map(|at| {
                Some(SliceLayer {
                    level: at.get("topology").name()?,
                    size: at.get("size").int().map(clamped),
                })
            })
            .collect();
        let layered = !slices.is_empty();
        if let (Some(level), false) = (at.get("podSetSliceRequiredTopology").name(), layered) {
            slices.push(SliceLayer { level, size: at.get("podSetSliceSize").int().map(clamped) });
        }
        TopologyRequest {
            required: at.get("required").name(),
            preferred: at.get("preferred").name(),
            unconstrained: at.get("unconstrained").bool().unwrap_or(false),
            slices,
            layered,
            group: at.get("podSetGroupName").name(),
        }
    })
}

fn state(status: At<'_>, workload: &mut Workload) {
    let conditions = status.get("conditions");
    let is = |kind: &str, wanted: &str| {
        condition(conditions, kind).filter(|at| at.get("status").str() == Some(wanted))
    };
    let marked = |kind: &str| {
        is(kind, "True").map(|at| Marked {
            reason: at.get("reason").str().unwrap_or("").into(),
            at: at.get("lastTransitionTime").time().unwrap_or_default(),
        })
    };
    workload.evicted = marked("Evicted");
    workload.preempted = marked("Preempted");
    workload.finished = is("Finished", "True").is_some();
    workload.pods_ready = is("PodsReady", "True").is_some();
    let on_hold = is("QuotaReserved", "False").is_some_and(|at| at.get("reason").str() == Some("OnHold"));
    workload.held_back =
        is("Requeued", "False").is_some() || on_hold || is("WaitingForReplacementPods", "True").is_some();
    workload.requeue_at = status.get("requeueState").get("requeueAt").time();
    for at in status.get("reclaimablePods").list() {
        if let (Some(name), Some(count)) = (at.get("name").name(), at.get("count").int()) {
            workload.reclaimable.insert(name, clamped(count));
        }
    }
    workload.unhealthy = status.get("unhealthyNodes").list().filter_map(|at| at.get("name").name()).collect();
    workload.checks = status.get("admissionChecks").list().map(check).collect();
    let admission = status.get("admission");
    if let Some(reserved) = is("QuotaReserved", "True")
        && admission.exists()
    {
        workload.reservation = Some(Reservation {
            cluster_queue: admission.get("clusterQueue").name().unwrap_or_default(),
            pod_sets: admission
                .get("podSetAssignments")
                .list()
                .map(|at| reserved_set(at, &workload.pod_sets))
                .collect(),
            since: reserved.get("lastTransitionTime").time(),
            admitted: is("Admitted", "True").is_some(),
        });
    }
}

fn check(at: At<'_>) -> WorkloadCheck {
    let update = |at: At<'_>| PodSetUpdate {
        pod_set: at.get("name").name().unwrap_or_default(),
        node_selector: at.get("nodeSelector").labels(),
        tolerations: pod::tolerations(at.get("tolerations")),
    };
    WorkloadCheck {
        name: at.get("name").name().unwrap_or_default(),
        state: match at.get("state").str() {
            Some("Ready") => CheckState::Ready,
            Some("Retry") => CheckState::Retry,
            Some("Rejected") => CheckState::Rejected,
            _ => CheckState::Pending,
        },
        updates: at.get("podSetUpdates").list().map(update).collect(),
    }
}

fn reserved_set(at: At<'_>, sets: &[PodSet]) -> PodSetReservation {
    let name = at.get("name").name().unwrap_or_else(|| "main".into());
    let asked = sets.iter().find(|s| s.name == name).map_or(1, |s| s.count);
    PodSetReservation {
        count: at.get("count").int().map_or(asked, clamped),
        flavors: at.get("flavors").labels(),
        usage: amounts(at.get("resourceUsage")),
        topology: Some(at.get("topologyAssignment")).filter(|at| at.exists()).map(assignment_at),
        delayed: match at.get("delayedTopologyRequest").str() {
            Some("Pending") => Some(Delayed::Pending),
            Some("Ready") => Some(Delayed::Ready),
            _ => None,
        },
        name,
    }
}

/// A topology assignment by itself, in either of its forms.
pub fn assignment(value: &serde_json::Value) -> TopologyAssignment {
    let object = Object::new("TopologyAssignment", value);
    assignment_at(object.root())
}

/// More domains than this in one assignment would be more than any cluster has.
const MOST_DOMAINS: i64 = 200_000;

fn assignment_at(at: At<'_>) -> TopologyAssignment {
    let levels = at.get("levels").names();
    let mut domains: Vec<(Vec<Name>, i32)> = at
        .get("domains")
        .list()
        .map(|at| (at.get("values").names(), at.get("count").int().map_or(0, clamped)))
        .collect();
    for slice in at.get("slices").list() {
        let n = slice.get("domainCount").int().unwrap_or(0).clamp(0, MOST_DOMAINS);
        let n = usize::try_from(n).unwrap_or(0);
        let columns: Vec<Vec<Name>> = slice
            .get("valuesPerLevel")
            .list()
            .map(|level| {
                if let Some(all) = level.get("universal").name() {
                    return vec![all; n];
                }
                let one = level.get("individual");
                let (prefix, suffix) =
                    (one.get("prefix").str().unwrap_or(""), one.get("suffix").str().unwrap_or(""));
                one.get("roots").names().iter().map(|root| format!("{prefix}{root}{suffix}").into()).collect()
            })
            .collect();
        let counts = slice.get("podCounts");
        let every = counts.get("universal").int();
        let each: Vec<Option<i64>> = counts.get("individual").list().map(At::int).collect();
        for i in 0..n {
            let values: Option<Vec<Name>> = columns.iter().map(|c| c.get(i).cloned()).collect();
            let count = every.or_else(|| each.get(i).copied().flatten());
            if let (Some(values), Some(count)) = (values, count) {
                domains.push((values, clamped(count)));
            }
        }
    }
    TopologyAssignment { levels, domains }
}
