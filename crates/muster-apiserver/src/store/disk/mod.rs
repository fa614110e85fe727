//! The store on disk: the store in memory, behind it a log of all changes, and from time to time a snapshot in place of the log.
//!
//! In: a folder. Out: a [`Store`] that goes on where it was left. Reads never touch the disk. A write happens in memory and is handed
//! to the committer, a thread that writes what has gathered since its last commit as one batch and waits until the disk has it. So
//! writers that come at the same time share one wait. Whoever answers a request first waits for what it saw ([`Durability::settle`]),
//! and watchers hear of a change once it is on disk: nobody outside ever learns of anything that a crash could take back.
//!
//! When the disk refuses, everything that it does not have is undone in memory and whoever wrote it is told; reads go on, writes are
//! refused at the door, and the committer tries again every second, in a new file.
//!
//! A log of our own and not a database: all objects are in memory anyway, so the disk is only ever read from beginning to end, and
//! what is needed of it is one append and one wait for each commit. Measured beside redb 4.4, which keeps 20,000 objects of 3,000 bytes
//! and, in a second tree, the changes from which watches resume; for each write, in batches of 1, 8 and 64, on one disk:
//!
//! | | 1 | 8 | 64 |
//! |---|---|---|---|
//! | log: CPU, bytes to disk | 150 us, 7.1 kB | 25 us, 3.5 kB | 5 us, 3.0 kB |
//! | redb: CPU, bytes to disk | 525 us, 47.9 kB | 122 us, 19.5 kB | 52 us, 13.3 kB |
//! | redb's rate, of the log's | 58% | 45% | 23% |
//!
//! Must stay true: a revision is told to nobody before it is on disk; one that was undone is never given again; the log is never
//! longer than the live data and its history, and a constant.

mod folder;
pub mod format;

pub use folder::{OpenError, write_whole};

use super::memory::{Journal, Memory};
use super::{Clash, Compacted, Draft, Expect, Key, Page, Range, Revision, Store, Stored, Table};
use folder::{Disk, Folder, Sink, System};
use format::What;
use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::watch;

/// When to begin new files.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// A log is closed when it is this long. It is read in one piece.
    pub log_bytes: u64,
    /// A snapshot is made when the logs are this much longer than the last one.
    pub slack_bytes: u64,
    /// And when there are this many logs: each start begins one.
    pub n_logs: usize,
    /// A batch takes no more when it is this long.
    pub batch_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { log_bytes: 64 << 20, slack_bytes: 64 << 20, n_logs: 16, batch_bytes: 4 << 20 }
    }
}

/// How often a disk that refused is asked again.
const RETRY: Duration = Duration::from_secs(1);
/// How many failures are remembered one by one, so that a request that was slow to look learns what became of its write.
const REMEMBERED: usize = 64;

const CLOSED: &str = "the data folder was given free";

tokio::task_local! {
    /// The first and the last revision that the request of this task has written; 0 for none.
    static WROTE: Cell<(Revision, Revision)>;
}

/// What of a store is on disk.
pub struct Durability {
    progress: watch::Sender<Progress>,
}

struct Progress {
    /// Everything up to here is on disk.
    durable: Revision,
    /// How often changes were undone.
    n_undone: u64,
    /// The revisions that were, those after the first and up to the second, newest last.
    undone: VecDeque<(Revision, Revision)>,
    /// Why writes are refused now.
    fault: Option<Arc<str>>,
    /// Whether nothing is committed any more.
    closed: bool,
}

impl Progress {
    /// What became of the revisions from the first to the last; none while that is open.
    fn became(&self, first: Revision, last: Revision) -> Option<Settled> {
        if self.undone.iter().any(|(from, to)| first <= *to && last > *from) {
            Some(Settled::Lost(self.reason()))
        } else if self.durable >= last {
            Some(Settled::Kept)
        } else {
            self.closed.then(|| Settled::Lost(self.reason()))
        }
    }

    fn reason(&self) -> Arc<str> {
        self.fault.clone().unwrap_or_else(|| UNWRITABLE.into())
    }
}

/// Why nothing was stored; what the system said may follow.
pub(crate) const UNWRITABLE: &str = "the data folder cannot be written to";

/// What became of what a request saw or wrote.
#[derive(Debug, PartialEq, Eq)]
pub enum Settled {
    /// It is on disk.
    Kept,
    /// Something that it may have seen is gone, and it wrote nothing: it can be asked again.
    Again,
    /// What it wrote is not stored.
    Lost(Arc<str>),
}

impl Durability {
    /// Runs a request and waits until the disk has all that it saw.
    pub async fn settle<T>(&self, store: &dyn Store, request: impl Future<Output = T>) -> (T, Settled) {
        let since = self.n_undone();
        let run = async {
            let outcome = request.await;
            (outcome, WROTE.with(Cell::get))
        };
        let (outcome, (first, last)) = WROTE.scope(Cell::new((0, 0)), run).await;
        // What a writer saw was there before it wrote, so its own write is all it waits for.
        let upto = if last > 0 { last } else { store.revision() };
        let mut changes = self.progress.subscribe();
        let judged = match changes.wait_for(|p| p.durable >= upto || p.n_undone != since || p.closed).await {
            Err(_) => Some(Settled::Lost(CLOSED.into())),
            Ok(p) if p.n_undone == since => p.became(upto, upto),
            Ok(_) if last == 0 => Some(Settled::Again),
            Ok(p) if p.n_undone - since > p.undone.len() as u64 => Some(Settled::Lost(p.reason())),
            Ok(p) => p.became(first, last),
        };
        let settled = match judged {
            Some(settled) => settled,
            // It was written after the disk refused something else.
            None => match changes.wait_for(|p| p.became(first, last).is_some()).await {
                Ok(p) => p.became(first, last).unwrap_or(Settled::Kept),
                Err(_) => Settled::Lost(CLOSED.into()),
            },
        };
        (outcome, settled)
    }

    /// How often changes were undone: when this grows, what was read before may be gone.
    pub fn n_undone(&self) -> u64 {
        self.progress.borrow().n_undone
    }

    /// Why writes are refused, if they are.
    pub fn fault(&self) -> Option<Arc<str>> {
        self.progress.borrow().fault.clone()
    }
}

/// What a folder held when it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumed {
    /// The revision; 1 is the empty store.
    pub revision: Revision,
    /// How many bytes of an unfinished write were dropped.
    pub torn_bytes: u64,
}

/// A store in a folder.
pub struct Durable {
    memory: Arc<Memory>,
    shared: Arc<Shared>,
    resumed: Resumed,
    committer: Mutex<Option<JoinHandle<()>>>,
}

/// What the committer shares with everybody else.
struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
    durability: Durability,
}

#[derive(Default)]
struct Queue {
    pending: VecDeque<Pending>,
    closing: bool,
}

struct Pending {
    table: Table,
    what: What,
    object: Stored,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Durable {
    /// Opens a folder, which is made if it is not there. `kubernetes` is the version that its objects are of.
    pub fn open(path: &Path, kubernetes: &str, limits: Limits) -> Result<Durable, OpenError> {
        Durable::open_on(Box::new(System), path, kubernetes, limits)
    }

    fn open_on(
        disk: Box<dyn Disk>,
        path: &Path,
        kubernetes: &str,
        limits: Limits,
    ) -> Result<Durable, OpenError> {
        let folder = Arc::new(Folder::open(path, kubernetes, disk)?);
        let found = folder.read()?;
        if found.torn > 0 {
            tracing::warn!(folder = %path.display(), bytes = found.torn, "an unfinished write was dropped");
        }
        let resumed = Resumed { revision: found.revision, torn_bytes: found.torn };
        let progress = Progress {
            durable: found.revision,
            n_undone: 0,
            undone: VecDeque::new(),
            fault: None,
            closed: false,
        };
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            wake: Condvar::new(),
            durability: Durability { progress: watch::channel(progress).0 },
        });
        let memory = Arc::new(found.restore.finish(found.revision, Some(journal(&shared))));
        let mut log = Log {
            folder,
            limits,
            number: found.logs.last().map_or(0, |(number, _)| *number),
            file: None,
            buffer: Vec::new(),
            logs: found.logs.into(),
            snapshot_bytes: found.snapshot_bytes,
            try_again_at: 0,
        };
        // A folder that cannot be written to is refused now, not at the first write.
        log.begin(found.revision).map_err(|source| OpenError::Io {
            file: path.into(),
            what: "written to",
            source,
        })?;
        let committer = Committer {
            memory: memory.clone(),
            shared: shared.clone(),
            log,
            durable: found.revision,
            compaction: None,
        };
        let thread = std::thread::Builder::new().name("commit".into()).spawn(|| committer.run()).map_err(
            |source| OpenError::Io { file: path.into(), what: "written to by a thread of its own", source },
        )?;
        Ok(Durable { memory, shared, resumed, committer: Mutex::new(Some(thread)) })
    }

    /// What was there.
    pub fn resumed(&self) -> Resumed {
        self.resumed
    }

    /// Commits what is left, gives the folder free and returns. Nothing is kept of what is written later.
    pub fn close(&self) {
        self.shared.queue().closing = true;
        self.shared.wake.notify_all();
        let thread = self.committer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

impl Drop for Durable {
    fn drop(&mut self) {
        self.close();
    }
}

fn journal(shared: &Arc<Shared>) -> Journal {
    let shared = shared.clone();
    Box::new(move |table, change| {
        let what = if change.deleted { What::Gone } else { What::Put };
        let mut queue = shared.queue();
        let was_empty = queue.pending.is_empty();
        queue.pending.push_back(Pending { table: table.clone(), what, object: change.object.clone() });
        drop(queue);
        if was_empty {
            shared.wake.notify_all();
        }
        let _ = WROTE.try_with(|wrote| {
            let first = Some(wrote.get().0).filter(|first| *first > 0).unwrap_or(change.revision);
            wrote.set((first, change.revision));
        });
    })
}

impl Store for Durable {
    fn revision(&self) -> Revision {
        self.memory.revision()
    }

    fn get(&self, table: &str, key: &Key) -> Option<Stored> {
        self.memory.get(table, key)
    }

    fn list(
        &self,
        table: &str,
        range: &Range<'_>,
        keep: &mut dyn FnMut(&Stored) -> bool,
    ) -> Result<Page, Compacted> {
        self.memory.list(table, range, keep)
    }

    fn len(&self, table: &str) -> usize {
        self.memory.len(table)
    }

    fn put(&self, table: &Table, key: &Key, expect: Expect, draft: Draft) -> Result<Stored, Clash> {
        self.memory.put(table, key, expect, draft)
    }

    fn delete(&self, table: &str, key: &Key, expect: Revision, draft: Draft) -> Result<Stored, Clash> {
        self.memory.delete(table, key, expect, draft)
    }

    fn changes(&self, table: &str, after: Revision) -> Result<(Vec<super::Change>, Revision), Compacted> {
        self.memory.changes(table, after)
    }

    fn subscribe(&self, table: &Table) -> watch::Receiver<Revision> {
        self.memory.subscribe(table)
    }

    fn tables(&self) -> Vec<Table> {
        self.memory.tables()
    }

    fn subscribe_all(&self) -> watch::Receiver<Revision> {
        self.memory.subscribe_all()
    }

    fn retire(&self, table: &str) {
        self.memory.retire(table);
    }

    fn durability(&self) -> Option<&Durability> {
        Some(&self.shared.durability)
    }
}

/// The thread that writes.
struct Committer {
    memory: Arc<Memory>,
    shared: Arc<Shared>,
    log: Log,
    durable: Revision,
    compaction: Option<Compaction>,
}

struct Compaction {
    thread: JoinHandle<io::Result<u64>>,
    stop: Arc<AtomicBool>,
    number: u64,
}

/// Whatever ends the thread: nobody waits for it any longer.
impl Drop for Committer {
    fn drop(&mut self) {
        self.shared.durability.progress.send_modify(|p| {
            p.fault.get_or_insert_with(|| CLOSED.into());
            p.closed = true;
        });
    }
}

impl Committer {
    fn run(mut self) {
        while let Some(batch) = self.gather() {
            self.finish_compaction(false);
            if batch.is_empty() {
                self.try_again();
                continue;
            }
            match self.log.append(self.durable, &batch) {
                Ok(()) => {
                    self.keep(&batch);
                    self.compact_if_due();
                }
                Err(error) => self.undo(&error),
            }
        }
        self.finish_compaction(true);
        self.log.end(self.durable);
    }

    /// What there is to commit; nothing if it is time to ask a disk that refused, none when the store is closed.
    fn gather(&self) -> Option<Vec<Pending>> {
        let refused = self.shared.durability.fault().is_some();
        let mut queue = self.shared.queue();
        while queue.pending.is_empty() {
            if queue.closing {
                return None;
            }
            if refused {
                let (again, waited) =
                    self.shared.wake.wait_timeout(queue, RETRY).unwrap_or_else(PoisonError::into_inner);
                queue = again;
                if waited.timed_out() && queue.pending.is_empty() {
                    return Some(Vec::new());
                }
            } else {
                queue = self.shared.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
        }
        let mut bytes = 0;
        let mut n_taken = 0;
        for pending in &queue.pending {
            bytes += pending.object.text.len();
            if n_taken > 0 && bytes > self.log.limits.batch_bytes {
                break;
            }
            n_taken += 1;
        }
        Some(queue.pending.drain(..n_taken).collect())
    }

    fn keep(&mut self, batch: &[Pending]) {
        let Some(last) = batch.last() else { return };
        self.durable = last.object.revision;
        let tables: BTreeSet<&Table> = batch.iter().map(|p| &p.table).collect();
        self.memory.tell(self.durable, tables.into_iter());
        self.shared.durability.progress.send_modify(|p| {
            p.durable = self.durable;
            p.fault = None;
        });
    }

    fn undo(&self, error: &io::Error) {
        let why: Arc<str> = format!("{UNWRITABLE}: {error}").into();
        tracing::error!(%error, revision = self.durable, "not written; what is not on disk is undone and writes are refused");
        let (queue, progress) = (&self.shared.queue, &self.shared.durability.progress);
        self.memory.undo(|told, given| {
            queue.lock().unwrap_or_else(PoisonError::into_inner).pending.clear();
            progress.send_modify(|p| {
                p.n_undone += 1;
                p.undone.push_back((told, given));
                if p.undone.len() > REMEMBERED {
                    p.undone.pop_front();
                }
                p.fault = Some(why);
            });
        });
    }

    /// Asks a disk that refused whether it takes a new file.
    fn try_again(&mut self) {
        if self.log.begin(self.durable).is_ok() {
            tracing::info!("the data folder can be written to again");
            self.shared.durability.progress.send_modify(|p| p.fault = None);
        }
    }

    fn compact_if_due(&mut self) {
        if self.compaction.is_some() || !self.log.is_compaction_due() || self.log.begin(self.durable).is_err()
        {
            return;
        }
        let (number, stop) = (self.log.number, Arc::new(AtomicBool::new(false)));
        let (memory, folder, is_stopped) = (self.memory.clone(), self.log.folder.clone(), stop.clone());
        let limit = self.log.limits.batch_bytes;
        let work = move || snapshot(&memory, &folder, number, limit, &is_stopped);
        match std::thread::Builder::new().name("compact".into()).spawn(work) {
            Ok(thread) => self.compaction = Some(Compaction { thread, stop, number }),
            Err(error) => tracing::warn!(%error, "no snapshot made"),
        }
    }

    fn finish_compaction(&mut self, stop: bool) {
        let Some(compaction) = self.compaction.take_if(|c| stop || c.thread.is_finished()) else { return };
        compaction.stop.store(stop, Ordering::Relaxed);
        match compaction.thread.join() {
            Ok(Ok(bytes)) => self.log.compacted(compaction.number, bytes),
            Ok(Err(error)) if !stop => {
                tracing::warn!(%error, "no snapshot made; the log grows until the next attempt");
                self.log.put_off();
            }
            _ => {}
        }
    }
}

/// The log, as the committer writes it.
struct Log {
    folder: Arc<Folder>,
    limits: Limits,
    /// Number of the newest file.
    number: u64,
    /// The file that is written to; none after a failure, since nobody can say what is in it then.
    file: Option<Box<dyn Sink>>,
    buffer: Vec<u8>,
    /// Number and length of each log since the snapshot.
    logs: VecDeque<(u64, u64)>,
    snapshot_bytes: u64,
    /// After a snapshot failed: the length of the logs at which to try again.
    try_again_at: u64,
}

impl Log {
    /// Begins a new file. What the files before it hold after `after` does not count.
    fn begin(&mut self, after: Revision) -> io::Result<()> {
        self.file = None;
        let path = self.folder.log(self.number + 1);
        let make = || {
            let mut file = self.folder.create(&path)?;
            let mut head = Vec::new();
            format::add_head(&mut head, after);
            file.write(&head)?;
            file.sync()?;
            self.folder.sync()?;
            Ok((file, head.len() as u64))
        };
        match make() {
            Ok((file, length)) => {
                self.number += 1;
                self.logs.push_back((self.number, length));
                self.file = Some(file);
                Ok(())
            }
            Err(error) => {
                let _ = std::fs::remove_file(&path);
                Err(error)
            }
        }
    }

    /// Writes a batch and returns when it is on disk.
    fn append(&mut self, after: Revision, batch: &[Pending]) -> io::Result<()> {
        let length = self.logs.back().map_or(0, |(_, length)| *length);
        if self.file.is_none() || length > self.limits.log_bytes {
            self.begin(after)?;
        }
        self.buffer.clear();
        format::add_batch(&mut self.buffer, after, batch.iter().map(|p| (&p.table, p.what, &p.object)));
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        let (Some(mut file), Some((_, length))) = (self.file.take(), self.logs.back_mut()) else {
            return Err(io::Error::other("there is no file to write to"));
        };
        if let Err(error) = file.write(&self.buffer).and_then(|()| file.sync()) {
            // The next file says that this does not count. Should there never be one, it is better gone.
            file.cut(*length);
            return Err(error);
        }
        *length += self.buffer.len() as u64;
        // A large batch is rare; its room is not kept.
        self.buffer.shrink_to(1 << 20);
        self.file = Some(file);
        Ok(())
    }

    /// Says that all went well. Damage to the last batch can then be told from an unfinished one.
    fn end(&mut self, revision: Revision) {
        if self.file.is_some() {
            self.buffer.clear();
            format::add_end(&mut self.buffer, revision);
            if let Err(error) = self.flush() {
                tracing::warn!(%error, "the log was not closed");
            }
        }
    }

    fn bytes(&self) -> u64 {
        self.logs.iter().map(|(_, length)| length).sum()
    }

    fn is_compaction_due(&self) -> bool {
        let bytes = self.bytes();
        bytes >= self.try_again_at
            && (bytes > self.snapshot_bytes + self.limits.slack_bytes || self.logs.len() > self.limits.n_logs)
    }

    fn compacted(&mut self, number: u64, bytes: u64) {
        self.logs.retain(|(n, _)| *n >= number);
        (self.snapshot_bytes, self.try_again_at) = (bytes, 0);
    }

    fn put_off(&mut self) {
        self.try_again_at = self.bytes() + self.limits.slack_bytes / 4;
    }
}

/// Writes a snapshot that stands for all logs before `number`, and removes these. Out: its length.
fn snapshot(
    memory: &Memory,
    folder: &Folder,
    number: u64,
    limit: usize,
    stop: &AtomicBool,
) -> io::Result<u64> {
    let path = folder.snapshot(number);
    let draft = path.with_extension("tmp");
    let written = write_snapshot(memory, folder, &draft, limit, stop);
    let done = written.and_then(|bytes| {
        std::fs::rename(&draft, &path)?;
        folder.sync()?;
        Ok(bytes)
    });
    match done {
        Ok(bytes) => {
            folder.remove_before(number);
            Ok(bytes)
        }
        Err(error) => {
            let _ = std::fs::remove_file(&draft);
            Err(error)
        }
    }
}

fn write_snapshot(
    memory: &Memory,
    folder: &Folder,
    path: &Path,
    limit: usize,
    stop: &AtomicBool,
) -> io::Result<u64> {
    let mut out = Pages { file: folder.create(path)?, buffer: Vec::new(), written: 0 };
    format::add_head(&mut out.buffer, 0);
    for table in memory.tables() {
        if stop.load(Ordering::Relaxed) {
            return Err(io::Error::other(CLOSED));
        }
        // Each table is of its own moment: the logs that are read after it have what happened to the others since.
        let Some(view) = memory.view(&table) else { continue };
        format::add_table(&mut out.buffer, &table, view.compacted, view.upto);
        let objects = view.objects.iter().map(|object| (What::Was, object));
        let changes = view
            .history
            .iter()
            .map(|change| (if change.deleted { What::Gone } else { What::Put }, &change.object));
        let mut some: Vec<(&Table, What, &Stored)> = Vec::new();
        let mut bytes = 0;
        for (what, object) in objects.chain(changes) {
            some.push((&table, what, object));
            bytes += object.text.len();
            if bytes > limit {
                format::add_batch(&mut out.buffer, 0, some.drain(..));
                out.flush()?;
                bytes = 0;
            }
        }
        if !some.is_empty() {
            format::add_batch(&mut out.buffer, 0, some.drain(..));
        }
        out.flush()?;
    }
    format::add_end(&mut out.buffer, memory.revision());
    out.flush()?;
    out.file.sync()?;
    Ok(out.written)
}

struct Pages {
    file: Box<dyn Sink>,
    buffer: Vec<u8>,
    written: u64,
}

impl Pages {
    fn flush(&mut self) -> io::Result<()> {
        self.file.write(&self.buffer)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
