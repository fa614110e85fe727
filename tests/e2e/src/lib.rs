//! What the end-to-end tests are made of: tables of steps, the code that runs them on a cluster, and the code that makes
//! the answers of two clusters comparable. The tests themselves are in `tests/it`.
//!
//! In: a [`muster_testkit::Cluster`], real or embedded. Out: what each step saw. Nothing here knows which server it
//! speaks to, so a difference that a test finds is a difference of the servers.

pub mod clusters;
pub mod crds;
pub mod normal;
pub mod requests;
pub mod samples;
pub mod script;
pub mod sequences;
