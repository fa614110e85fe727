//! Settings: what can be chosen about the whole, and the switches of features that are not settled yet.

use muster_model::{Name, Span};
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
pub struct Settings {
    /// Queues of a cohort share what they borrow by weight.
    pub fair_sharing: Option<FairSharing>,
    /// Local queues of a cluster queue take turns by what they used.
    pub usage_sharing: Option<UsageSharing>,
    /// A workload that was evicted because its pods were not ready queues up by the time of that, and not of its creation.
    pub by_eviction_time: bool,
    /// Resources that a queue has no quota for are not counted, instead of keeping a workload out.
    pub ignore_undeclared: bool,
    /// Nothing is admitted while pods of something that was are not ready.
    pub block_until_ready: bool,
    pub gates: Gates,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            fair_sharing: None,
            usage_sharing: None,
            by_eviction_time: true,
            ignore_undeclared: false,
            block_until_ready: false,
            gates: Gates::default(),
        }
    }
}

/// When a queue may take from another that borrows more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FairStrategy {
    /// Its share with the workload is at most what the other's is without the victim.
    AtMostFinal,
    /// Its share with the workload is less than the other's is now.
    LessThanInitial,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FairSharing {
    /// The second is tried with what the first left; never empty.
    pub strategies: Vec<FairStrategy>,
}

impl Default for FairSharing {
    fn default() -> Self {
        Self { strategies: vec![FairStrategy::AtMostFinal, FairStrategy::LessThanInitial] }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageSharing {
    /// After this long half of what was used is forgotten.
    pub half_life: Span,
    pub sampling: Span,
    /// In thousandths; one for resources that are not named.
    pub weights: BTreeMap<Name, i64>,
}

/// Switches, with upstream's defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own, named as its feature")]
pub struct Gates {
    pub topology: bool,
    pub partial_admission: bool,
    pub priority_sorting: bool,
    pub preemptors_first: bool,
    pub reclaimable_pods: bool,
    pub priority_boost: bool,
    pub flavor_fungibility: bool,
    pub elastic: bool,
    pub elastic_topology: bool,
    pub concurrent_admission: bool,
    pub orchestrated_preemption: bool,
    pub preempt_within_nominal: bool,
    pub non_borrowing_first: bool,
    pub recompute_overlap: bool,
    pub recompute_topology: bool,
    pub balanced_placement: bool,
    pub mixed_profile: bool,
    pub multi_layer: bool,
    pub node_affinity_preferred: bool,
    pub overlapping_flavors: bool,
    pub replace_nodes: bool,
    pub replace_fail_fast: bool,
    pub keep_pod_owned: bool,
    pub equivalence: bool,
}

impl Default for Gates {
    fn default() -> Self {
        Self {
            topology: true,
            partial_admission: true,
            priority_sorting: true,
            preemptors_first: false,
            reclaimable_pods: true,
            priority_boost: false,
            flavor_fungibility: true,
            elastic: true,
            elastic_topology: false,
            concurrent_admission: false,
            orchestrated_preemption: false,
            preempt_within_nominal: true,
            non_borrowing_first: true,
            recompute_overlap: true,
            recompute_topology: true,
            balanced_placement: false,
            mixed_profile: true,
            multi_layer: true,
            node_affinity_preferred: false,
            overlapping_flavors: true,
            replace_nodes: true,
            replace_fail_fast: true,
            keep_pod_owned: true,
            equivalence: true,
        }
    }
}

impl Gates {
    /// Sets a switch by the name that Kueue gives it. `false`: there is no such switch here.
    pub fn set(&mut self, name: &str, on: bool) -> bool {
        let switch = match name {
            "TopologyAwareScheduling" => &mut self.topology,
            "PartialAdmission" => &mut self.partial_admission,
            "PrioritySortingWithinCohort" => &mut self.priority_sorting,
            "PrioritizePreemptorWorkloads" => &mut self.preemptors_first,
            "ReclaimablePods" => &mut self.reclaimable_pods,
            "PriorityBoost" => &mut self.priority_boost,
            "FlavorFungibility" => &mut self.flavor_fungibility,
            "ElasticJobsViaWorkloadSlices" => &mut self.elastic,
            "ElasticJobsViaWorkloadSlicesWithTAS" => &mut self.elastic_topology,
            "ConcurrentAdmission" => &mut self.concurrent_admission,
            "MultiKueueOrchestratedPreemption" => &mut self.orchestrated_preemption,
            "FairSharingPreemptWithinNominal" => &mut self.preempt_within_nominal,
            "FairSharingPrioritizeNonBorrowing" => &mut self.non_borrowing_first,
            "RecomputeAssignmentUponPreemptionTargetsOverlap" => &mut self.recompute_overlap,
            "TASRecomputeAssignmentWithinSchedulingCycle" => &mut self.recompute_topology,
            "TASBalancedPlacement" => &mut self.balanced_placement,
            "TASProfileMixed" => &mut self.mixed_profile,
            "TASMultiLayerTopology" => &mut self.multi_layer,
            "TASRespectNodeAffinityPreferred" => &mut self.node_affinity_preferred,
            "TASHandleOverlappingFlavors" => &mut self.overlapping_flavors,
            "TASFailedNodeReplacement" => &mut self.replace_nodes,
            "TASFailedNodeReplacementFailFast" => &mut self.replace_fail_fast,
            "SkipReassignmentForPodOwnedWorkloads" => &mut self.keep_pod_owned,
            "SchedulingEquivalenceHashing" => &mut self.equivalence,
            _ => return false,
        };
        *switch = on;
        true
    }
}
