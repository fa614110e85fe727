//! Random clusters from a seed, clusters of known shape for benchmarks, and a slow, plainly correct placer to compare with.
//!
//! [`cluster`] makes a cluster, [`mixed`] one in which several systems live, [`changes`] makes it change; both are functions of the seed. [`apply`] applies changes and
//! [`consequences`] says what decisions change. [`bench`] has clusters without chance in
//! them. [`oracle`] says by trying everything what can be placed in a tiny cluster.
//!
//! *Invariant:* what runs in a generated cluster fits: no node, GPU, zone or device holds more than it has, and whoever runs is where
//! its own node rules and tolerations let it be.

mod rng;
mod sizes;

mod random;
mod room;

mod mixed;

mod churn;
mod replay;

pub mod bench;
pub mod oracle;

pub use churn::{changes, changes_among};
pub use mixed::{Trees, mixed, trees};
pub use random::cluster;
pub use replay::{apply, consequences};
pub use rng::Rng;
pub use sizes::{Odds, Sizes};
