//! Keeps the pods that hold shared GPUs.
//!
//! A reservation goes when nobody uses its GPU any more, and when its node is gone. A pod that runs on a shared GPU whose
//! reservation vanished is deleted, because the GPU may be given to somebody else; so is one whose reservation was replaced
//! by one that holds another GPU. `plan` decides; `run` asks the API once more before it deletes anything, and deletes only
//! the version that it asked about.

pub mod plan;
pub mod run;

pub use run::start;
pub(crate) use run::{holds, lost, settle, users_of};
