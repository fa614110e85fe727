//! Typed ids, id-indexed vectors and sets, an interner and an undo log.
//!
//! The building blocks of a model that is worked on as small whole numbers: names are interned once at the edge and
//! become ids `0, 1, 2, ..` of their own type; facts about them live in vectors indexed by that type; subsets are
//! bitsets; and a search that tries things out takes back its steps with an undo log. Everything is deterministic:
//! the same calls in the same order give the same ids and the same order of iteration, on every run and machine.
//!
//! ```
//! use dense::{IdSet, IdVec, Interner, UndoLog, define_id};
//!
//! define_id! {
//!     /// A node of the cluster.
//!     pub struct NodeId;
//! }
//!
//! // Names become ids, once.
//! let mut nodes: Interner<NodeId, String> = Interner::new();
//! let a = nodes.intern_ref("node-a");
//! let b = nodes.intern_ref("node-b");
//! assert_eq!(nodes.intern_ref("node-a"), a);
//! assert_eq!(nodes[b], "node-b");
//!
//! // Facts are indexed by id.
//! let mut free_gpus: IdVec<NodeId, i64> = nodes.ids().map(|_| 8).collect();
//! assert_eq!(free_gpus[a], 8);
//!
//! // Subsets are bitsets.
//! let ready: IdSet<NodeId> = [a, b].into_iter().collect();
//! assert_eq!(ready.first(), Some(a));
//!
//! // A trial step is recorded, and taken back.
//! let mut log: UndoLog<(NodeId, i64)> = UndoLog::new();
//! let before = log.mark();
//! log.record((a, free_gpus[a]));
//! free_gpus[a] -= 8;
//! log.roll_back_to(before, |(node, gpus)| free_gpus[node] = gpus);
//! assert_eq!(free_gpus[a], 8);
//! ```
//!
//! An id is only meaningful to the interner or vector that gave it out. The type keeps ids of different kinds
//! apart; it cannot tell two collections of the same kind apart, and an id used with the wrong one panics when it is
//! out of bounds, as an index into a `Vec` does.

mod id;
mod interner;
mod set;
mod undo;
mod vec;

pub use id::Id;
pub use interner::Interner;
pub use set::{IdSet, Iter as IdSetIter};
pub use undo::{Mark, UndoLog};
pub use vec::IdVec;
