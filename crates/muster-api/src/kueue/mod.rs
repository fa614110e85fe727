//! Kueue: quota for jobs, in two served versions, and the conversion between them.
//!
//! v1beta2 is stored. An API server that serves both must convert: see [`convert`].

pub mod convert;
pub mod v1beta1;
pub mod v1beta2;
