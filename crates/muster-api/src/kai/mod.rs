//! KAI: gangs, hierarchical queues and bind requests, and the objects that configure KAI itself.

pub mod operator;
pub mod scheduling;

pub use operator::{Config, SchedulingShard, Topology};
pub use scheduling::{BindRequest, PodGroup, Queue};
