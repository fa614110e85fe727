//! What every namespace has: the `default` service account and the root certificate.

pub mod plan;
pub mod run;
