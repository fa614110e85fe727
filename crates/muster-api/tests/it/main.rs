//! Tests of the types against the specification folder beside the workspace, where it is present, and against
//! themselves.
//!
//! `cfg(test)` on each module tells clippy that its helper functions may unwrap, too.

#[cfg(test)]
mod convert;
#[cfg(test)]
mod coverage;
#[cfg(test)]
mod crds;
#[cfg(test)]
mod generate;
#[cfg(test)]
mod roundtrip;
#[cfg(test)]
mod seeds;
#[cfg(test)]
mod shared;
