//! Scenario files from the outside: the worked cases, the users' format, and the examples of the documentation.

#![expect(clippy::unwrap_used, clippy::panic, reason = "that is how a test fails")]

mod examples;
mod format;
mod incremental;
mod kueue;
mod replay;
mod report;
mod volcano;
mod worked;
