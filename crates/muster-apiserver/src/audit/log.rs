//! Lines into a file, never at a request's cost. In: events. Out: a growing file, and a count of what was lost.
//!
//! Requests put lines into a bounded buffer; one thread writes them. Where the disk cannot keep up, lines are dropped and counted, and the
//! next line that is written says how many in the annotation `muster.dev/audit-lost`. A file that grows past its limit becomes `FILE.1`,
//! in place of the one before.

use super::Policy;
use serde_json::{Map, Value};
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

/// Lines that wait for the disk.
const BUFFERED: usize = 8192;

/// The file cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the audit log {path}")]
pub struct OpenError {
    path: PathBuf,
    #[source]
    source: std::io::Error,
}

/// An open audit log.
pub struct Log {
    /// What is told.
    pub policy: Policy,
    lines: SyncSender<String>,
    lost: Arc<AtomicU64>,
    /// What was lost and has not been told.
    untold: AtomicU64,
}

impl Log {
    /// Opens a file, at whose end lines are added; it is put aside when it has so many bytes.
    pub fn open(path: &Path, policy: Policy, max_bytes: u64) -> Result<Log, OpenError> {
        let fail = |source| OpenError { path: path.into(), source };
        let file = append(path).map_err(fail)?;
        let size = file.metadata().map_err(fail)?.len();
        let (lines, queue) = sync_channel(BUFFERED);
        let lost = Arc::new(AtomicU64::new(0));
        let writer =
            Writer { path: path.into(), file: BufWriter::new(file), size, max_bytes, lost: lost.clone() };
        std::thread::Builder::new().name("audit".into()).spawn(move || writer.run(&queue)).map_err(fail)?;
        Ok(Log { policy, lines, lost, untold: AtomicU64::new(0) })
    }

    /// Adds an event, or counts it as lost.
    pub(crate) fn write(&self, event: &Map<String, Value>) {
        let untold = self.untold.swap(0, Ordering::Relaxed);
        let line = if untold == 0 {
            serde_json::to_string(event)
        } else {
            let mut event = event.clone();
            let notes = event.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
            notes["muster.dev/audit-lost"] = untold.to_string().into();
            serde_json::to_string(&event)
        };
        let Ok(line) = line else { return };
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = self.lines.try_send(line) {
            self.untold.fetch_add(untold + 1, Ordering::Relaxed);
            let before = self.lost.fetch_add(1, Ordering::Relaxed);
            if before.is_power_of_two() || before == 0 {
                tracing::warn!(lost = before + 1, "the audit log cannot keep up");
            }
        }
    }

    /// How many events were lost so far.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

fn append(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options.open(path)
}

struct Writer {
    path: PathBuf,
    file: BufWriter<File>,
    size: u64,
    max_bytes: u64,
    lost: Arc<AtomicU64>,
}

impl Writer {
    fn run(mut self, lines: &Receiver<String>) {
        while let Ok(line) = lines.recv() {
            let mut next = Some(line);
            // What has gathered goes out together.
            while let Some(line) = next {
                if let Err(error) = self.add(&line) {
                    let lost = self.lost.fetch_add(1, Ordering::Relaxed);
                    if lost.is_power_of_two() || lost == 0 {
                        tracing::warn!(%error, path = %self.path.display(), lost = lost + 1, "audit log not written");
                    }
                }
                next = lines.try_recv().ok();
            }
            let _ = self.file.flush();
        }
    }

    fn add(&mut self, line: &str) -> std::io::Result<()> {
        let bytes = u64::try_from(line.len()).unwrap_or(u64::MAX).saturating_add(1);
        if self.size > 0 && self.size.saturating_add(bytes) > self.max_bytes {
            self.file.flush()?;
            let mut aside = self.path.clone().into_os_string();
            aside.push(".1");
            std::fs::rename(&self.path, PathBuf::from(aside))?;
            self.file = BufWriter::new(append(&self.path)?);
            self.size = 0;
        }
        self.file.write_all(line.as_bytes())?;
        self.file.write_all(b"\n")?;
        self.size += bytes;
        Ok(())
    }
}
