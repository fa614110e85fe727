//! Dense ids of everything that the engine counts.

use dense::define_id;

define_id! {
    /// A node.
    pub struct NodeId;
}
define_id! {
    /// A pod.
    pub struct PodId;
}
define_id! {
    /// A gang.
    pub struct GangId;
}
define_id! {
    /// A queue.
    pub struct QueueId;
}
define_id! {
    /// A resource dimension: a column of the node table.
    pub struct DimId;
}
define_id! {
    /// Pods that ask for the same thing.
    pub struct ClassId;
}
define_id! {
    /// A device of dynamic resource allocation.
    pub struct DeviceId;
}
define_id! {
    /// A claim on devices.
    pub struct ClaimId;
}
