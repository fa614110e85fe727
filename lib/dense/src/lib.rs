//! Typed ids, id-indexed vectors and sets, an interner and an undo log
