//! Koordinator's scheduling objects, `scheduling.koordinator.sh/v1alpha1`: reservations, devices, migrations,
//! topology.

use crate::common::core::Taint;
use crate::common::meta::{Condition, LabelSelector, ObjectReference};
use crate::common::{Duration, Labels, ObjectMeta, Open, PodTemplate, ResourceList, Rest, Time, string_enum};
use muster_api_derive::Api;

/// The layers of the cluster's network.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "scheduling.koordinator.sh",
    version = "v1alpha1",
    plural = "clusternetworktopologies",
    cluster,
    status
)]
pub struct ClusterNetworkTopology {
    pub metadata: ObjectMeta,
    pub spec: Option<ClusterNetworkTopologySpec>,
    pub status: Option<ClusterNetworkTopologyStatus>,
    pub rest: Rest,
}

/// The layers.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ClusterNetworkTopologySpec {
    pub network_topology_spec: Vec<NetworkTopologyLayer>,
    pub rest: Rest,
}

/// A layer, the layer above, and the node labels that tell its domains apart.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct NetworkTopologyLayer {
    pub label_key: Option<Vec<String>>,
    pub parent_topology_layer: Option<String>,
    pub topology_layer: String,
    pub rest: Rest,
}

/// The tree that was found.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ClusterNetworkTopologyStatus {
    pub detail_status: Option<Vec<NetworkTopologyStatus>>,
    pub rest: Rest,
}

/// One domain of the tree.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct NetworkTopologyStatus {
    pub child_topology_layer: Option<String>,
    pub child_topology_names: Option<Vec<String>>,
    pub node_num: i32,
    pub parent_topology_info: Option<TopologyInfo>,
    pub topology_info: TopologyInfo,
    pub rest: Rest,
}

/// A domain, and its layer.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct TopologyInfo {
    pub topology_layer: String,
    pub topology_name: String,
    pub rest: Rest,
}

/// The devices of the node with the same name.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(group = "scheduling.koordinator.sh", version = "v1alpha1", plural = "devices", cluster)]
pub struct Device {
    pub metadata: ObjectMeta,
    pub spec: Option<DeviceSpec>,
    pub status: Option<DeviceStatus>,
    pub rest: Rest,
}

/// The devices.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct DeviceSpec {
    pub devices: Option<Vec<DeviceInfo>>,
    pub rest: Rest,
}

/// A device, where it is, and what it offers.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct DeviceInfo {
    /// `gpu`, `rdma` or `fpga`.
    pub r#type: Option<String>,
    pub conditions: Option<Vec<Condition>>,
    /// Whether it can be used.
    #[api(default = false)]
    pub health: bool,
    pub id: Option<String>,
    pub labels: Option<Labels>,
    pub minor: Option<i32>,
    #[api(rename = "moduleID")]
    pub module_id: Option<i32>,
    pub resources: Option<ResourceList>,
    pub topology: Option<DeviceTopology>,
    pub vf_groups: Option<Vec<VirtualFunctionGroup>>,
    pub rest: Rest,
}

/// Where a device is: socket, NUMA node, PCIe root and bus.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct DeviceTopology {
    #[api(rename = "busID")]
    pub bus_id: Option<String>,
    #[api(rename = "nodeID")]
    pub node_id: i32,
    #[api(rename = "pcieID")]
    pub pcie_id: String,
    #[api(rename = "socketID")]
    pub socket_id: i32,
    pub rest: Rest,
}

/// Virtual functions of a device.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct VirtualFunctionGroup {
    pub labels: Option<Labels>,
    pub vfs: Option<Vec<VirtualFunction>>,
    pub rest: Rest,
}

/// A virtual function of a device.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct VirtualFunction {
    #[api(rename = "busID")]
    pub bus_id: Option<String>,
    pub minor: i32,
    pub rest: Rest,
}

/// Who holds what.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct DeviceStatus {
    pub allocations: Option<Vec<DeviceAllocation>>,
    pub rest: Rest,
}

/// Who holds devices of one type.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct DeviceAllocation {
    pub r#type: Option<String>,
    pub entries: Option<Vec<DeviceAllocationItem>>,
    pub rest: Rest,
}

/// The devices that a pod holds.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct DeviceAllocationItem {
    pub name: Option<String>,
    pub namespace: Option<String>,
    pub minors: Option<Vec<i32>>,
    pub uuid: Option<String>,
    pub rest: Rest,
}

/// Moving a pod: a place is found first, then the pod is evicted.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "scheduling.koordinator.sh",
    version = "v1alpha1",
    plural = "podmigrationjobs",
    short("pmj"),
    cluster,
    status,
    column("Phase", ".status.phase" as string),
    column("Status", ".status.status" as string),
    column("Age", ".metadata.creationTimestamp" as date),
    column("Node", ".status.nodeName" as string),
    column("Reservation", ".spec.reservationOptions.reservationRef.name" as string),
    column("PodNamespace", ".spec.podRef.namespace" as string),
    column("Pod", ".spec.podRef.name" as string),
    column("NewPod", ".status.podRef.name" as string),
    column("TTL", ".spec.ttl" as string)
)]
pub struct PodMigrationJob {
    pub metadata: ObjectMeta,
    pub spec: Option<PodMigrationJobSpec>,
    pub status: Option<PodMigrationJobStatus>,
    pub rest: Rest,
}

/// Which pod, and how.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodMigrationJobSpec {
    pub delete_options: Option<DeleteOptions>,
    pub mode: Option<String>,
    pub paused: Option<bool>,
    pub pod_ref: ObjectReference,
    pub reservation_options: Option<MigrateReservationOptions>,
    pub ttl: Option<Duration>,
    pub rest: Rest,
}

/// How the pod is deleted.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct DeleteOptions {
    pub api_version: Option<String>,
    #[api(list(atomic))]
    pub dry_run: Option<Vec<String>>,
    pub grace_period_seconds: Option<i64>,
    pub ignore_store_read_error_with_cluster_breaking_potential: Option<bool>,
    pub kind: Option<String>,
    pub orphan_dependents: Option<bool>,
    pub preconditions: Option<Preconditions>,
    pub propagation_policy: Option<String>,
    pub rest: Rest,
}

/// What must hold of the pod for it to be deleted.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct Preconditions {
    pub resource_version: Option<String>,
    pub uid: Option<String>,
    pub rest: Rest,
}

/// The place that is reserved for the new pod.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct MigrateReservationOptions {
    pub preemption_options: Option<MigratePreemptionOptions>,
    pub reservation_ref: Option<ObjectReference>,
    #[api(untyped)]
    pub template: Option<Open>,
    pub rest: Rest,
}

/// Whether others may be preempted for it.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct MigratePreemptionOptions {
    pub rest: Rest,
}

/// How far the migration is.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodMigrationJobStatus {
    pub conditions: Option<Vec<PodMigrationJobCondition>>,
    pub message: Option<String>,
    pub node_name: Option<String>,
    pub phase: Option<PodMigrationJobPhase>,
    pub pod_ref: Option<ObjectReference>,
    pub preempted_pods_ref: Option<Vec<ObjectReference>>,
    pub preempted_pods_reservation: Option<Vec<PreemptedReservation>>,
    pub reason: Option<String>,
    pub status: Option<String>,
    pub rest: Rest,
}

/// One aspect of its state.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodMigrationJobCondition {
    pub r#type: String,
    #[api(nullable)]
    pub last_probe_time: Option<Option<Time>>,
    #[api(nullable)]
    pub last_transition_time: Option<Option<Time>>,
    pub message: Option<String>,
    pub reason: Option<String>,
    pub status: String,
    pub rest: Rest,
}

string_enum! {
    /// Where a migration is in its life.
    pub open enum PodMigrationJobPhase { Pending, Running, Succeeded, Failed, Aborted }
}

/// A place for a pod that was preempted on the way.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PreemptedReservation {
    pub name: Option<String>,
    pub namespace: Option<String>,
    pub node_name: Option<String>,
    pub phase: Option<String>,
    pub pods_ref: Option<Vec<ObjectReference>>,
    pub preempted_pod_ref: Option<ObjectReference>,
    pub rest: Rest,
}

/// A place that is kept for pods to come.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "scheduling.koordinator.sh",
    version = "v1alpha1",
    plural = "reservations",
    cluster,
    status,
    column("Phase", ".status.phase" as string),
    column("Age", ".metadata.creationTimestamp" as date),
    column("Node", ".status.nodeName" as string),
    column("TTL", ".spec.ttl" as string),
    column("Expires", ".spec.expires" as string)
)]
pub struct Reservation {
    pub metadata: ObjectMeta,
    pub spec: Option<ReservationSpec>,
    pub status: Option<ReservationStatus>,
    pub rest: Rest,
}

/// What is kept, for whom, and for how long.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ReservationSpec {
    /// Whether it ends with the first pod that uses it.
    #[api(default = true)]
    pub allocate_once: Option<bool>,
    pub allocate_policy: Option<ReservationAllocatePolicy>,
    /// Until when it is kept, instead of `ttl`.
    pub expires: Option<Time>,
    /// Who may use it: any of these.
    #[api(len(1..))]
    pub owners: Vec<ReservationOwner>,
    pub pre_allocation: Option<bool>,
    pub pre_allocation_policy: Option<PreAllocationPolicy>,
    pub taints: Option<Vec<Taint>>,
    /// What is kept, as if a pod with this template ran there.
    #[api(untyped)]
    pub template: PodTemplate,
    /// How long it is kept; 24 hours unless given, `0s` means for ever.
    #[api(default = "24h")]
    pub ttl: Option<Duration>,
    pub unschedulable: Option<bool>,
    pub rest: Rest,
}

string_enum! {
    /// Whether pods may use more than is reserved.
    pub enum ReservationAllocatePolicy { Aligned, Restricted }
}

/// Pods that may use a reservation; all parts must hold.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[api(len(1..))]
pub struct ReservationOwner {
    pub controller: Option<ReservationControllerReference>,
    pub label_selector: Option<LabelSelector>,
    pub object: Option<ObjectReference>,
    pub rest: Rest,
}

/// Pods by their controller.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[api(map(atomic))]
pub struct ReservationControllerReference {
    pub name: String,
    pub namespace: Option<String>,
    pub api_version: String,
    pub block_owner_deletion: Option<bool>,
    pub controller: Option<bool>,
    pub kind: String,
    pub uid: String,
    pub rest: Rest,
}

/// Whether pods that run already may be counted in.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PreAllocationPolicy {
    #[api(default = false)]
    pub enable_multiple: Option<bool>,
    #[api(default = "Default")]
    pub mode: Option<PreAllocationMode>,
    pub rest: Rest,
}

string_enum! {
    /// Which pods may be counted in.
    pub enum PreAllocationMode { Default, Cluster }
}

/// Where the place is, and who uses it.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ReservationStatus {
    pub allocatable: Option<ResourceList>,
    pub allocated: Option<ResourceList>,
    pub conditions: Option<Vec<ReservationCondition>>,
    pub current_owners: Option<Vec<ObjectReference>>,
    pub node_name: Option<String>,
    #[api(default = "Pending")]
    pub phase: Option<ReservationPhase>,
    pub rest: Rest,
}

/// One aspect of a reservation's state.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ReservationCondition {
    pub r#type: Option<String>,
    pub last_probe_time: Option<Time>,
    pub last_transition_time: Option<Time>,
    pub message: Option<String>,
    pub reason: Option<String>,
    pub status: Option<String>,
    pub rest: Rest,
}

string_enum! {
    /// Where a reservation is in its life.
    pub open enum ReservationPhase { Pending, Available, Succeeded, Waiting, Failed }
}

/// A question to the scheduler, why a pod does not fit, and its answer.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(
    group = "scheduling.koordinator.sh",
    version = "v1alpha1",
    plural = "scheduleexplanations",
    short("sched-exp"),
    status
)]
pub struct ScheduleExplanation {
    pub metadata: ObjectMeta,
    pub spec: Option<ScheduleExplanationSpec>,
    pub status: Option<ScheduleExplanationStatus>,
    pub rest: Rest,
}

/// The pod that is asked about.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ScheduleExplanationSpec {
    pub question_object_key: Option<String>,
    #[api(untyped)]
    pub question_object_template: Option<PodTemplate>,
    #[api(default = "24h")]
    pub ttl: Option<Duration>,
    pub rest: Rest,
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ScheduleExplanationStatus {
    pub detailed_explanation: Option<Vec<DetailedExplanation>>,
    pub failed_message: Option<String>,
    pub last_update_time: Option<Time>,
    pub schedulable: Option<bool>,
    pub schedulable_after_preemption: Option<bool>,
    pub rest: Rest,
}

/// The answer for one topology domain.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct DetailedExplanation {
    pub failed_message: Option<String>,
    pub node_possible_victims: Option<Vec<NodePossibleVictims>>,
    pub preempt_explanation: Option<SchedulingExplanation>,
    pub schedulable: Option<bool>,
    pub schedulable_after_preemption: Option<bool>,
    pub schedule_explanation: Option<SchedulingExplanation>,
    pub topology_domain: Option<String>,
    pub rest: Rest,
}

/// Pods that could be preempted on one node.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct NodePossibleVictims {
    pub node_name: Option<String>,
    pub possible_victims: Option<Vec<PossibleVictim>>,
    pub rest: Rest,
}

/// A pod that could be preempted.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PossibleVictim {
    pub name: Option<String>,
    pub namespace: Option<String>,
    pub is_nominated_pod: Option<bool>,
    pub uid: Option<String>,
    pub rest: Rest,
}

/// What fits, and what stands in the way.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct SchedulingExplanation {
    pub failed_message: Option<String>,
    pub feasible_scheduling_result: Option<Vec<PodPlacement>>,
    pub node_failed_details: Option<Vec<NodeFailedDetail>>,
    pub schedulable: Option<bool>,
    pub rest: Rest,
}

/// Where a pod would go.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodPlacement {
    pub name: Option<String>,
    pub namespace: Option<String>,
    pub node_name: Option<String>,
    pub uid: Option<String>,
    pub rest: Rest,
}

/// Why some nodes do not fit.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct NodeFailedDetail {
    pub failed_nodes: Option<Vec<String>>,
    pub failed_plugin: Option<String>,
    pub preempt_might_help: Option<bool>,
    pub reason: Option<String>,
    pub rest: Rest,
}
