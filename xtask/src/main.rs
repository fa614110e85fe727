//! Chores of the Muster workspace.
fn main() {}
