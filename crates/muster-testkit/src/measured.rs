//! A process that a benchmark starts, and what it costs. In: a command. Out: its CPU seconds and its peak of memory, from `/proc`.
//! Must stay true: it ends with the benchmark.

use anyhow::{Context, Result};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// A process that a benchmark started.
#[derive(Debug)]
pub struct Measured(Child);

impl Measured {
    pub fn start(command: &mut Command) -> Result<Self> {
        Ok(Measured(command.spawn().with_context(|| format!("start {command:?}"))?))
    }

    /// The first line of its output, which says that it is ready; what comes after it is read and dropped.
    pub fn first_line(&mut self) -> Result<String> {
        let mut lines = BufReader::new(self.0.stdout.take().context("its output was piped")?);
        let mut line = String::new();
        lines.read_line(&mut line)?;
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        Ok(line)
    }

    /// CPU seconds so far.
    pub fn cpu(&self) -> Result<f64> {
        cpu_of(&self.0.id().to_string())
    }

    /// The most memory that it had, in bytes.
    pub fn memory(&self) -> Result<f64> {
        peak_of(self.0.id())
    }

    /// Asks it to end, and ends it if it does not: what counts its own steps writes them down at its end.
    pub fn stop(&mut self) {
        if !matches!(self.0.try_wait(), Ok(None)) {
            return;
        }
        let _ = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status();
        let patience = Instant::now() + Duration::from_secs(10);
        while matches!(self.0.try_wait(), Ok(None)) && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        self.stop();
    }
}

/// CPU seconds of this process so far.
pub fn own_cpu() -> Result<f64> {
    cpu_of("self")
}

/// What the processors of this machine did since it started. A virtual machine is not told when its host lends them to somebody else, only afterwards, and
/// a rate says nothing without it.
#[derive(Debug, Clone, Copy)]
pub struct Processors {
    all: f64,
    idle: f64,
    stolen: f64,
}

impl Processors {
    pub fn now() -> Result<Self> {
        let stat = std::fs::read_to_string("/proc/stat")?;
        let line = stat.lines().next().context("/proc/stat is empty")?;
        // user nice system idle iowait irq softirq steal; what guests used is in user already.
        let ticks: Vec<f64> =
            line.split_whitespace().skip(1).take(8).filter_map(|n| n.parse().ok()).collect();
        let at = |i: usize| ticks.get(i).copied().unwrap_or(0.0);
        Ok(Processors { all: ticks.iter().sum(), idle: at(3) + at(4), stolen: at(7) })
    }

    /// Which parts of the time since then they had nothing to do, and were taken away by the host.
    pub fn since(self, then: Self) -> (f64, f64) {
        let all = (self.all - then.all).max(1.0);
        ((self.idle - then.idle) / all, (self.stolen - then.stolen) / all)
    }
}

/// Resident memory of a process in KiB, now and at the most.
pub fn memory_of(pid: u32) -> Result<(u64, u64)> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = |name: &str| -> Result<u64> {
        let line = status.lines().find(|l| l.starts_with(name)).with_context(|| format!("no {name}"))?;
        Ok(line.split_whitespace().nth(1).context("no number")?.parse()?)
    };
    Ok((field("VmRSS:")?, field("VmHWM:")?))
}

/// The most memory that a process had, in bytes.
pub(crate) fn peak_of(pid: u32) -> Result<f64> {
    Ok(memory_of(pid)?.1 as f64 * 1024.0)
}

pub(crate) fn cpu_of(pid: &str) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
    Ok((ticks(11) + ticks(12)) / 100.0)
}
