//! The Common Expression Language, as far as validation rules use it.
//!
//! A rule goes through four steps: [`parse`] makes a tree with places for error messages, [`check`] finds unknown fields and
//! wrong types by the schema, and [`eval`] walks the tree over JSON values without copying them. Functions of the
//! Kubernetes libraries are those of the `kube-cel` crate, called by [`library`]. Depth and work are bounded everywhere:
//! the trees by [`parse::MAX_DEPTH`], evaluation by a budget.

pub(crate) mod check;
pub(crate) mod eval;
pub(crate) mod library;
pub(crate) mod names;
pub(crate) mod parse;
pub(crate) mod text;
pub(crate) mod time;
pub(crate) mod value;
