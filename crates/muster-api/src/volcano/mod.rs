//! Volcano: jobs, gangs, queues, job flows and the topology objects, one module for each API group.

pub mod batch;
pub mod bus;
pub mod config;
pub mod flow;
pub mod nodeinfo;
pub mod scheduling;
pub mod shard;
pub mod topology;
