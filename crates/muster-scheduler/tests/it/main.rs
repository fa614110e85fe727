//! The scheduler against the embedded server and simulated nodes, in one process on virtual time.

mod cluster;
mod gangs;
