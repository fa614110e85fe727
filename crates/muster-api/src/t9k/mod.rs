//! T9k: pod groups with roles, queues, and the job kinds of TensorStack.
//!
//! T9k publishes tables of fields rather than CRDs, so these schemas are reconstructed: field names, types,
//! defaults and ranges are as documented; what the tables leave open (the specs of other products that a job
//! embeds) is an open object here; and nothing is required that a documented example leaves out. Where two
//! revisions of the documents put a field in different places, both places are accepted.

pub mod batch;
pub mod scheduler;
