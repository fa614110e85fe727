//! The rules, one file per kind. In: what is asked, the settings, the world. Out: a verdict. No I/O, no clock.

pub mod grove;
pub mod koordinator;
pub mod kueue;
pub mod pod;
pub mod podgroup;
pub mod queue;
pub mod shard;
pub mod t9k;
pub mod topology;
pub mod volcano;
pub mod workload;
