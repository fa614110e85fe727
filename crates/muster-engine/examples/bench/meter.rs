//! What something costs: time on the CPU, time on the wall, memory.
//!
//! CPU time is what the kernel has accounted to this thread, user and system together. It is brought up to date by yielding first; without
//! that it is late by up to a timer tick. What reading it costs (some microseconds) is in every figure.

use std::time::Instant;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost {
    /// Nanoseconds.
    pub cpu: u64,
    pub wall: u64,
}

impl std::ops::Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { cpu: self.cpu + other.cpu, wall: self.wall + other.wall }
    }
}

/// Runs something and says what it cost. Never inlined: instruction counters are switched on by its name.
#[inline(never)]
#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock; the engine does not")]
pub fn measured<T>(what: impl FnOnce() -> T) -> (T, Cost) {
    let (cpu, wall) = (thread_cpu(), Instant::now());
    let value = what();
    let cost = Cost { cpu: thread_cpu().saturating_sub(cpu), wall: wall.elapsed().as_nanos() as u64 };
    (value, cost)
}

/// Nanoseconds that this thread has been on a CPU; 0 where the kernel does not say.
fn thread_cpu() -> u64 {
    std::thread::yield_now();
    let text = read("/proc/thread-self/schedstat");
    text.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// The most memory that this process ever had resident, in KiB; 0 where the kernel does not say.
pub fn peak_kib() -> u64 {
    let text = read("/proc/self/status");
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[expect(clippy::disallowed_methods, reason = "the kernel's counters are files")]
fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The value below which so many of a hundred are. `costs` must not be empty.
pub fn percentile(costs: &[Cost], percent: usize) -> Cost {
    let pick = |of: fn(&Cost) -> u64| {
        let mut sorted: Vec<u64> = costs.iter().map(of).collect();
        sorted.sort_unstable();
        sorted[(sorted.len() * percent).div_ceil(100).clamp(1, sorted.len()) - 1]
    };
    Cost { cpu: pick(|c| c.cpu), wall: pick(|c| c.wall) }
}
