//! Koordinator: gangs, elastic quotas, reservations, devices and migrations, one module for each API group.

pub mod config;
pub mod coscheduling;
pub mod quota;
pub mod scheduling;
pub mod topology;
