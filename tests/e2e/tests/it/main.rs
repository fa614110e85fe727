//! End-to-end tests over the real API server and the embedded one.
//!
//! The real one is built from Go modules on first use (`cargo xtask kube build`); the embedded one is `muster up`,
//! of `$MUSTER_BIN` or built by cargo. What is missing is skipped with a message, or fails with `CI=true`.

mod conversion;
mod differential;
mod kwok;
mod names;
mod samples;
mod script;
mod sequences;
