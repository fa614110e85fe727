//! Laws of admission, on generated worlds.

#![expect(clippy::unwrap_used, reason = "that is how a test fails")]

mod laws;
mod topology;
mod world;
