//! The types of every API group that Muster speaks, and the CRDs generated from them.
//!
//! In: objects as JSON. Out: typed values with every field kept, known or not, and the
//! CustomResourceDefinitions that describe them ([`crds`]). One module for each API group; what they share is
//! in [`common`]. There is no logic here but Kueue's conversion between its two versions.
//!
//! What must stay true:
//! - an object read into its type and written back loses nothing ([`common`] says how);
//! - the CRDs say what upstream's say ([`coverage`] compares them), save for [`deviation::DEVIATIONS`];
//! - doc comments on types and fields are what `kubectl explain` prints, so they are written for users;
//! - this crate never builds a client: of `kube` it uses `kube::core` alone.

pub mod schema;

pub mod common;

pub mod grove;
pub mod podgang;

pub mod kai;
pub mod koordinator;
pub mod kueue;
pub mod t9k;
pub mod volcano;
pub mod workload;

pub mod coverage;
pub mod crd;
pub mod deviation;

pub use crd::{System, crds, crds_of_group, crds_with_conversion, groups, kind_info};
pub use deviation::{DEVIATIONS, Deviation};
pub use schema::{Kind, KindInfo};
