//! What may be written: the rules of sets, cliques, groups and topology bindings, on create and on update.
//!
//! In: an object, the object before, and what is known of the cluster. Out: [`Findings`], errors with the field and what to
//! write instead, and warnings. Must stay true: an update is judged by what it changes, so that an object from before a rule
//! can always be updated and deleted; an object that is going is not judged at all; no input panics.

pub mod binding;
pub mod constraint;
pub mod part;
pub mod protect;
pub mod set;
pub mod sharing;
pub mod words;

pub use muster_runtime::findings::{FieldError, Findings};

use crate::object::ClusterTopologyBinding;
use crate::settings::Options;

/// What is known of a topology binding.
pub enum Known<T> {
    /// Nobody looked.
    Unknown,
    Missing,
    There(T),
}

/// What rules may ask of the cluster.
pub struct World<'a> {
    pub options: &'a Options,
    pub binding: &'a dyn Fn(&str) -> Known<ClusterTopologyBinding>,
}

/// A text of the user's inside a message: quoted, escaped, and not longer than one can read.
pub(crate) fn quote(text: &str) -> String {
    const MOST: usize = 60;
    let short: String = text.chars().take(MOST).collect();
    if short.len() < text.len() { format!("{short:?}…") } else { format!("{short:?}") }
}
