//! Simulated kubelets: one task for all nodes.
//!
//! A pod that is bound to a live node becomes Running and Ready, ends as its annotations say, and goes when it is
//! deleted. A node gets a status, heartbeats and a lease, and falls silent when its annotations say so.
//!
//! - [`behaviour`]: what annotations and commands say about a pod.
//! - [`pod`]: the life of one pod, as a state machine over time.
//! - [`status`]: that life as a pod status.
//! - [`node`]: what a node's status must be.
//! - [`mounts`]: secrets that containers wait for.
//! - [`devices`]: which pod holds which GPU, and whether a pod fits at all.
//! - [`run`]: watches in, patches out.

pub mod behaviour;
pub mod devices;
pub mod mounts;
pub mod node;
pub mod pod;
pub mod run;
pub mod status;
