//! What the crate promises to others: recorded answers of a real API server, real schemas, hostile input, and laws.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "helpers of tests fail by panicking, read the shared folder and watch the clock"
)]

mod api;
mod crds;
mod golden;
mod hostile;
mod laws;
