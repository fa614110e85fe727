//! The words of Kueue for reasons of the admission layer, as they stand in conditions and events.

use k8s_quantity::{Format, Quantity};
use muster_admit::place::{Excluded, NoPlace};
use muster_admit::reason::{Cause, Eviction, Fault, Missing, Reason, Waits};
use muster_admit::{Preempted, Waiting};
use muster_model::{Name, TaintEffect};

/// An amount of a resource as Kubernetes writes it.
pub fn quantity(resource: &str, amount: i64) -> String {
    let binary =
        resource == "memory" || resource == "ephemeral-storage" || resource.starts_with("hugepages-");
    let (unit, format) = match resource {
        "cpu" => (1_000_000, Format::DecimalSi),
        _ if binary => (1_000_000_000, Format::BinarySi),
        _ => (1_000_000_000, Format::DecimalSi),
    };
    Quantity::from_nano(i128::from(amount) * unit, format).to_string()
}

pub fn reason(reason: &Reason) -> String {
    match reason {
        Reason::NotCovered { resource } => format!("resource {resource} unavailable in ClusterQueue"),
        Reason::NoSuchFlavor { flavor } => format!("flavor {flavor} not found"),
        Reason::NotNominated { flavor, resource } => format!(
            "skipping flavor {flavor} as it is not found in the nomination mapping for resource {resource}"
        ),
        Reason::NotAllowed { flavor } => {
            format!("skipping flavor {flavor} due to WorkloadAllowedResourceFlavorAnnotation annotation")
        }
        Reason::Untolerated { flavor, taint } => {
            let effect = match taint.effect {
                TaintEffect::NoSchedule => "NoSchedule",
                TaintEffect::PreferNoSchedule => "PreferNoSchedule",
                TaintEffect::NoExecute => "NoExecute",
            };
            format!("untolerated taint {{{} {} {effect} <nil>}} in flavor {flavor}", taint.key, taint.value)
        }
        Reason::NodeRule { flavor } => format!("flavor {flavor} doesn't match node affinity"),
        Reason::NoTopology { flavor } => {
            format!("Flavor {flavor:?} does not support TopologyAwareScheduling")
        }
        Reason::UnknownTopology { flavor } => format!("Flavor {flavor:?} information missing in TAS cache"),
        Reason::NoLevel { flavor } => format!("Flavor {flavor:?} does not contain the requested level"),
        Reason::OnlyTopology { flavor } => {
            format!("Flavor {flavor:?} supports only TopologyAwareScheduling")
        }
        Reason::GrowsElsewhere { flavor, has } => {
            format!("could not assign {flavor} flavor since the original workload is assigned: {has}")
        }
        Reason::ExceedsMax { resource, flavor, before, asked, most } => format!(
            "insufficient quota for {resource} in flavor {flavor}, previously considered podsets requests ({}) + current podset request ({}) > maximum capacity ({})",
            quantity(resource, *before),
            quantity(resource, *asked),
            quantity(resource, *most)
        ),
        Reason::Short { resource, flavor, by } => format!(
            "insufficient unused quota for {resource} in flavor {flavor}, {} more needed",
            quantity(resource, *by)
        ),
        Reason::NoPlace(why) => no_place(why),
    }
}

pub fn no_place(why: &NoPlace) -> String {
    match why {
        NoPlace::LevelNotNamed => "topology level not specified".into(),
        NoPlace::NoSuchLevel(level) => format!("no requested topology level: {level}"),
        NoPlace::NoSuchSliceLevel(level) => format!("no requested topology level for slices: {level}"),
        NoPlace::NoSuchLayer(level) => {
            format!("no requested topology level for additional slice layer: {level}")
        }
        NoPlace::SlicesAbove(slices, whole) => {
            format!("podset slice topology {slices} is above the podset topology {whole}")
        }
        NoPlace::LayerNotBelow(layer, above) => {
            format!("additional slice layer topology {layer} must be at a lower level than {above}")
        }
        NoPlace::LayerDoesNotDivide(size, parent) => {
            format!("additional slice layer size {size} must evenly divide parent layer size {parent}")
        }
        NoPlace::NoSliceSize => "slice topology requested, but slice size not provided".into(),
        NoPlace::NoDomains(level) => format!("no topology domains at level: {level}"),
        NoPlace::TooFew { topology, fit, asked, slices, excluded: left_out } => {
            let unit = if *slices { "slice" } else { "pod" };
            let head = if *fit <= 0 {
                format!("topology {topology:?} doesn't allow to fit any of {asked} {unit}(s)")
            } else {
                format!("topology {topology:?} allows to fit only {fit} out of {asked} {unit}(s)")
            };
            head + &excluded(left_out)
        }
        NoPlace::TooFewLayers { topology, layers, excluded: left_out } => {
            let mut text = format!("topology {topology:?} doesn't allow to fit");
            for (level, fit, asked) in layers {
                text += &format!("; {fit}/{asked} slice(s) fit on level {level}");
            }
            text + &excluded(left_out)
        }
        NoPlace::Stale(domain) => format!(
            "Cannot replace the node, because the existing topologyAssignment is invalid, as it contains the stale domain {domain}"
        ),
        NoPlace::NoReplacement(node) => {
            format!("cannot find replacement assignment for unhealthy node: {node}")
        }
    }
}

fn excluded(excluded: &Excluded) -> String {
    if excluded.is_empty() {
        return String::new();
    }
    let mut parts: Vec<String> = Vec::new();
    let plain = [
        ("nodeSelector", excluded.selector),
        ("affinity", excluded.affinity),
        ("topologyDomain", excluded.domain),
    ];
    parts.extend(plain.iter().filter(|(_, n)| *n > 0).map(|(what, n)| format!("{what}: {n}")));
    parts.extend(excluded.taints.iter().map(|(taint, n)| format!("taint {taint:?}: {n}")));
    parts.extend(excluded.resources.iter().map(|(resource, n)| format!("resource {resource:?}: {n}")));
    parts.sort();
    format!(". Total nodes: {}; excluded: {}", excluded.nodes, parts.join(", "))
}

pub fn fault(fault: &Fault) -> String {
    match fault {
        Fault::NoTopologies => "workload requires Topology, but there is no TAS cache information".into(),
        Fault::NoTopologyFlavor => "no TAS flavor assigned".into(),
        Fault::SeveralTopologyFlavors(flavors) => {
            format!("more than one TAS flavor assigned: {}", flavors.join(", "))
        }
        Fault::ElasticRequired => "required topology is not supported for elastic workloads".into(),
    }
}

pub fn missing(missing: Missing) -> &'static str {
    match missing {
        Missing::Place => "TopologyPlacementFailed",
        Missing::Quota => "WaitingForQuota",
        Missing::MaxQuota => "ExceedsMaxQuota",
        Missing::Flavor => "NoMatchingFlavor",
    }
}

pub fn cause(cause: Cause) -> &'static str {
    match cause {
        Cause::InQueue => "InClusterQueue",
        Cause::Reclaim => "InCohortReclamation",
        Cause::ReclaimWhileBorrowing => "InCohortReclaimWhileBorrowing",
        Cause::FairSharing => "InCohortFairSharing",
    }
}

pub fn eviction(eviction: &Eviction) -> &'static str {
    match eviction {
        Eviction::NodeFailures(_) => "NodeFailures",
        Eviction::FlavorMigration => "FlavorMigration",
    }
}

/// What stands in the condition of a workload that was evicted.
pub fn eviction_message(eviction: &Eviction, by_uid: &str) -> String {
    match eviction {
        Eviction::NodeFailures(nodes) => {
            format!(
                "Workload was evicted as there was no replacement for unhealthy node(s): {}",
                nodes.join(",")
            )
        }
        Eviction::FlavorMigration => format!(
            "Evicted to accommodate a workload (UID: {by_uid}) due to migration to more favorable resource flavor"
        ),
    }
}

/// What stands in the condition of a workload that was preempted.
pub fn preemption_message(preempted: &Preempted, uid: &str, job_uid: &str) -> String {
    let known = |text: &str| if text.is_empty() { "UNKNOWN".to_owned() } else { text.to_owned() };
    let due = match preempted.cause {
        Cause::InQueue => "prioritization in the ClusterQueue",
        Cause::Reclaim => "reclamation within the cohort",
        Cause::FairSharing => "Fair Sharing within the cohort",
        Cause::ReclaimWhileBorrowing => "reclamation within the cohort while borrowing",
    };
    format!(
        "Preempted to accommodate a workload (UID: {}, JobUID: {}) due to {due}; preemptor path: {}; preemptee path: {}",
        known(uid),
        known(job_uid),
        preempted.paths.0,
        preempted.paths.1
    )
}

/// The reason of a condition: why there is no reservation.
pub fn waits(why: &Waits) -> &'static str {
    match why {
        Waits::NoFit(kind) => missing(*kind),
        Waits::NoVictims | Waits::Overlap | Waits::NoLongerFits => "WaitingForQuota",
        Waits::Preempting(_) | Waits::Deferred | Waits::Migrating => "WaitingForPreemptedWorkloads",
        Waits::Gated => "AdmissionGated",
        Waits::BetterVariant | Waits::NotAcceptable | Waits::FailedChecks | Waits::SecondPass => {
            "PendingEvaluation"
        }
        Waits::Inactive(_) => "Suspended",
        Waits::NoQueue(_) | Waits::NoNamespace | Waits::Namespace | Waits::Invalid(_) => "Misconfigured",
        Waits::PodsReady => "WaitingForPodsReady",
        Waits::NoRoom(_) => "NoRoom",
        Waits::NotWritten(_) => "PendingEvaluation",
    }
}

/// What the assignment has to say, set by set.
pub fn sets(sets: &[(Name, Vec<Reason>, Option<Fault>)]) -> String {
    let mut parts = Vec::new();
    for (name, reasons, wrong) in sets {
        if let Some(wrong) = wrong {
            return format!("failed to assign flavors to pod set {name}: {}", fault(wrong));
        }
        if reasons.is_empty() {
            continue;
        }
        let mut texts: Vec<String> = reasons.iter().map(reason).collect();
        texts.sort();
        parts.push(format!("couldn't assign flavors to pod set {name}: {}", texts.join(", ")));
    }
    parts.join("; ")
}

/// The message of a condition: why there is no reservation.
pub fn message(waiting: &Waiting) -> String {
    let assigned = || sets(&waiting.sets);
    match &waiting.why {
        Waits::NoFit(_) | Waits::NoVictims | Waits::SecondPass => assigned(),
        Waits::Preempting(n) => format!("{}. Pending the preemption of {n} workload(s)", assigned()),
        Waits::Migrating => format!("{}. Pending the migration of 1 workload(s)", assigned()),
        Waits::Deferred => "Workload has overlapping preemption targets with another workload, but will fit after these preemptions complete".into(),
        Waits::Overlap => "Workload has overlapping preemption targets with another workload".into(),
        Waits::NoLongerFits => "Workload no longer fits after processing another workload".into(),
        Waits::Gated => "Workload requires preemption, but it's gated".into(),
        Waits::BetterVariant => "A more favorable variant is already admitted".into(),
        Waits::NotAcceptable => "Target flavor is below LastAcceptableFlavorName".into(),
        Waits::FailedChecks => "The workload has failed admission checks".into(),
        Waits::Inactive(queue) => format!("ClusterQueue {queue} is inactive"),
        Waits::NoQueue(queue) => format!("ClusterQueue {queue} not found"),
        Waits::NoNamespace => "Could not obtain workload namespace".into(),
        Waits::Namespace => "Workload namespace doesn't match ClusterQueue selector".into(),
        Waits::Invalid(why) => why.to_string(),
        Waits::PodsReady => "waiting for all admitted workloads to be in PodsReady condition".into(),
        Waits::NoRoom(why) => format!("There is quota, but no place for the pods: {why}"),
        Waits::NotWritten(why) => format!("Failed to admit workload: {why}"),
    }
}
