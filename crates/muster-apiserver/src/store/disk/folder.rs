//! The data folder: its files, who may use it, and what is read back from it. In: a path. Out: a store as it was left.
//!
//! | file | what it is |
//! |---|---|
//! | `about.json` | the format's version, and which Kubernetes the objects are of |
//! | `lock` | held by the process that uses the folder |
//! | `log-N` | batches of changes in the order of commits; `N` counts up |
//! | `snapshot-N` | every table as it was some time after `log-N` was begun: it stands for all logs before |
//!
//! Must stay true: a file is written once and never changed; the head of a log says up to where the logs before it count. So what a
//! failed or interrupted commit left behind is told from what was acknowledged, and damage is never taken for an unfinished write.

use super::super::memory::Restore;
use super::super::{Facts, Key, Pairs, Revision, Stored, Table};
use super::format::{self, Damage, FORMAT, Flaw, Frame, PREFIX, Scan, What};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a data folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("{}: in use by {by}; a data folder belongs to one process at a time", folder.display())]
    InUse {
        /// The folder.
        folder: PathBuf,
        /// Which process that is, as far as it said so.
        by: String,
    },
    /// It holds something else.
    #[error("{}: not empty and not a data folder (it has no about.json); name another one", folder.display())]
    NotOurs {
        /// The folder.
        folder: PathBuf,
    },
    /// A newer program has written it.
    #[error("{}: written in format {format}, and this program knows formats up to {FORMAT}; use a newer one", folder.display())]
    Newer {
        /// The folder.
        folder: PathBuf,
        /// Its format.
        format: u32,
    },
    /// Its objects are of another Kubernetes.
    #[error("{}: holds a cluster of Kubernetes {made}, and {asked} was asked for", folder.display())]
    Kubernetes {
        /// The folder.
        folder: PathBuf,
        /// What it was made with.
        made: String,
        /// What was asked for.
        asked: String,
    },
    /// Something that was acknowledged cannot be read.
    #[error("{}: {damage}; what was stored there is lost, so nothing is served from this folder", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Where and how.
        damage: Damage,
    },
    /// A file that others build upon is gone.
    #[error("{}: missing, and later files build upon it", file.display())]
    Missing {
        /// The file.
        file: PathBuf,
    },
    /// A file of ours that is not as we write it.
    #[error("{}: {why}", file.display())]
    Content {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The system refuses.
    #[error("{}: cannot be {what}: {source}", file.display())]
    Io {
        /// The file or folder.
        file: PathBuf,
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
}

/// How files are written: the system's way, or one that fails on purpose.
pub trait Disk: Send + Sync {
    /// Makes a new file to write to.
    fn create(&self, path: &Path) -> io::Result<Box<dyn Sink>>;
    /// Returns when the names of a folder's files are on disk.
    fn sync_names(&self, folder: &Path) -> io::Result<()>;
}

/// A file that is being written.
pub trait Sink: Send {
    /// Adds bytes at the end.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Returns when everything is on disk.
    fn sync(&mut self) -> io::Result<()>;
    /// Takes away what comes after so many bytes, if that works.
    fn cut(&mut self, length: u64);
}

/// The system's disk.
pub struct System;

impl Disk for System {
    fn create(&self, path: &Path) -> io::Result<Box<dyn Sink>> {
        Ok(Box::new(private().write(true).create(true).truncate(true).open(path)?))
    }

    fn sync_names(&self, folder: &Path) -> io::Result<()> {
        sync_folder(folder)
    }
}

impl Sink for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn cut(&mut self, length: u64) {
        let _ = self.set_len(length);
    }
}

/// How our files are opened: Secrets are in them, so they are their owner's only.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options
}

/// A data folder, ours for as long as this lives.
pub struct Folder {
    path: PathBuf,
    disk: Box<dyn Disk>,
    _lock: File,
}

#[derive(Serialize, Deserialize)]
struct About {
    format: u32,
    kubernetes: String,
}

/// What a folder holds.
pub struct Found {
    /// The store.
    pub restore: Restore,
    /// Its revision.
    pub revision: Revision,
    /// Numbers and sizes of the logs.
    pub logs: Vec<(u64, u64)>,
    /// Size of the snapshot, if there is one.
    pub snapshot_bytes: u64,
    /// Bytes of an unfinished write that were dropped.
    pub torn: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Log(u64),
    Snapshot(u64),
    Draft,
}

impl Kind {
    fn log(self) -> Option<u64> {
        if let Kind::Log(number) = self { Some(number) } else { None }
    }

    fn snapshot(self) -> Option<u64> {
        if let Kind::Snapshot(number) = self { Some(number) } else { None }
    }
}

/// A new folder's first revision: the empty store.
const EMPTY: Revision = 1;

impl Folder {
    /// Makes the folder if need be, takes it, and brings it up to the present format.
    pub fn open(path: &Path, kubernetes: &str, disk: Box<dyn Disk>) -> Result<Folder, OpenError> {
        let fail = |what| move |source| OpenError::Io { file: path.into(), what, source };
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::DirBuilderExt;
            builder.mode(0o700);
        }
        builder.create(path).map_err(fail("created"))?;
        let is_blank = |name: &Path| name == "lock" || name.extension().is_some_and(|e| e == "tmp");
        let mut entries = fs::read_dir(path).map_err(fail("read"))?.flatten();
        let is_new = entries.all(|entry| is_blank(Path::new(&entry.file_name())));
        let about = path.join("about.json");
        if !is_new && !about.exists() {
            return Err(OpenError::NotOurs { folder: path.into() });
        }
        let lock = take(path)?;
        let folder = Folder { path: path.into(), disk, _lock: lock };
        if is_new {
            folder.describe(FORMAT, kubernetes)?;
            return Ok(folder);
        }
        let text = fs::read_to_string(&about).map_err(|source| folder.io("about.json", "read", source))?;
        let known: About = serde_json::from_str(&text)
            .map_err(|error| OpenError::Content { file: about, why: error.to_string() })?;
        if known.format > FORMAT {
            return Err(OpenError::Newer { folder: path.into(), format: known.format });
        }
        if known.kubernetes != kubernetes {
            let (made, asked) = (known.kubernetes, kubernetes.into());
            return Err(OpenError::Kubernetes { folder: path.into(), made, asked });
        }
        for format in known.format..FORMAT {
            if let Some(step) = MIGRATIONS.get(format as usize) {
                step(&folder)?;
            }
            folder.describe(format + 1, kubernetes)?;
            tracing::info!(folder = %path.display(), from = format, to = format + 1, "data folder migrated");
        }
        Ok(folder)
    }

    /// Path of a log.
    pub fn log(&self, number: u64) -> PathBuf {
        self.path.join(format!("log-{number:010}"))
    }

    /// Path of a snapshot.
    pub fn snapshot(&self, number: u64) -> PathBuf {
        self.path.join(format!("snapshot-{number:010}"))
    }

    /// Makes a new file.
    pub fn create(&self, path: &Path) -> io::Result<Box<dyn Sink>> {
        self.disk.create(path)
    }

    /// Returns when the names of all files are on disk.
    pub fn sync(&self) -> io::Result<()> {
        self.disk.sync_names(&self.path)
    }

    /// Reads everything back.
    pub fn read(&self) -> Result<Found, OpenError> {
        let files = self.files().map_err(|source| self.io("", "read", source))?;
        for (kind, path) in &files {
            if *kind == Kind::Draft {
                // Whoever began it did not come to its end.
                let _ = fs::remove_file(path);
            }
        }
        let snapshot = files.iter().filter_map(|(kind, _)| kind.snapshot()).max();
        let mut logs: Vec<u64> = files.iter().filter_map(|(kind, _)| kind.log()).collect();
        logs.sort_unstable();
        let first = snapshot.unwrap_or(1);
        self.remove_before(first);
        logs.retain(|number| *number >= first);

        let mut reading = Reading { restore: Restore::default(), upto: HashMap::new(), at: EMPTY };
        let mut snapshot_bytes = 0;
        if let Some(number) = snapshot {
            snapshot_bytes = self.read_snapshot(&self.snapshot(number), &mut reading)?;
        }
        let mut heads = Vec::new();
        for (number, expected) in logs.iter().zip(first..) {
            if *number != expected {
                return Err(OpenError::Missing { file: self.log(expected) });
            }
            if let Some(after) = self.read_head(*number, logs.last() == Some(number))? {
                heads.push((*number, after));
            }
        }
        if snapshot.is_some() && heads.is_empty() {
            return Err(OpenError::Missing { file: self.log(first) });
        }
        let mut torn = 0;
        let mut sizes = Vec::new();
        let limits: Vec<Option<Revision>> =
            heads.iter().skip(1).map(|(_, after)| Some(*after)).chain([None]).collect();
        for ((number, after), limit) in heads.into_iter().zip(limits) {
            let file = self.log(number);
            if sizes.is_empty() {
                reading.at = after;
            } else if after != reading.at {
                return Err(damaged(&file, 0, Flaw::Content));
            }
            let bytes = fs::read(&file).map_err(|source| io_error(&file, "read", source))?;
            torn = reading.log(&bytes, limit).map_err(|damage| OpenError::Damaged { file, damage })?;
            sizes.push((number, bytes.len() as u64));
        }
        let revision = reading.upto.values().copied().fold(reading.at, Revision::max);
        Ok(Found { restore: reading.restore, revision, logs: sizes, snapshot_bytes, torn })
    }

    /// The revision after which a log begins; none if the process ended while it made the file, so that nothing is in it.
    fn read_head(&self, number: u64, is_last: bool) -> Result<Option<Revision>, OpenError> {
        let file = self.log(number);
        let read_error = |source| io_error(&file, "read", source);
        let mut bytes = Vec::new();
        // A head takes less than half of this.
        File::open(&file).map_err(read_error)?.take(64).read_to_end(&mut bytes).map_err(read_error)?;
        match Scan::new(&bytes).next() {
            Some(Ok((_, Frame::Head { format, after }))) if format == FORMAT => Ok(Some(after)),
            Some(Ok((_, Frame::Head { format, .. }))) => {
                Err(OpenError::Newer { folder: self.path.clone(), format })
            }
            Some(Ok(_)) => Err(damaged(&file, 0, Flaw::Content)),
            flawed => {
                let flaw = flawed.and_then(Result::err).map_or(Flaw::Cut, |(_, flaw)| flaw);
                let bytes = fs::read(&file).map_err(read_error)?;
                if !is_last || format::is_followed(bytes.get(1..).unwrap_or_default()) {
                    return Err(damaged(&file, 0, flaw));
                }
                fs::remove_file(&file).map_err(|source| io_error(&file, "removed", source))?;
                Ok(None)
            }
        }
    }

    fn read_snapshot(&self, path: &Path, reading: &mut Reading) -> Result<u64, OpenError> {
        let file = File::open(path).map_err(|source| io_error(path, "read", source))?;
        let size = file.metadata().map_err(|source| io_error(path, "read", source))?.len();
        let mut input = BufReader::with_capacity(1 << 20, file);
        let (mut offset, mut frame) = (0u64, Vec::new());
        let mut is_first = true;
        loop {
            let flawed = |flaw| damaged(path, offset, flaw);
            frame.resize(PREFIX, 0);
            // It got its name when it was complete, so whatever is missing was there.
            input.read_exact(&mut frame).map_err(|_| flawed(Flaw::Cut))?;
            let prefix = frame.first_chunk().ok_or(flawed(Flaw::Cut))?;
            let length = format::announced(prefix).map_err(flawed)?;
            if length as u64 > size - offset {
                return Err(flawed(Flaw::Cut));
            }
            frame.resize(PREFIX + length, 0);
            input.read_exact(&mut frame[PREFIX..]).map_err(|_| flawed(Flaw::Cut))?;
            let (payload, used) = format::payload(&frame).map_err(flawed)?;
            match format::parse(payload).ok_or(flawed(Flaw::Content))? {
                Frame::Head { format, .. } if is_first && format == FORMAT => is_first = false,
                Frame::Head { format, .. } if is_first => {
                    return Err(OpenError::Newer { folder: self.path.clone(), format });
                }
                Frame::Table { table, compacted, upto } if !is_first => {
                    reading.restore.table(&table, compacted);
                    reading.upto.insert(table, upto);
                }
                Frame::Batch { entries, .. } if !is_first => {
                    for entry in entries {
                        match entry.what {
                            What::Was => reading.restore.object(&entry.table, entry.object),
                            What::Put | What::Gone => {
                                let gone = entry.what == What::Gone;
                                reading.restore.change(&entry.table, entry.object, gone);
                            }
                        }
                    }
                }
                Frame::End { .. } if !is_first => return Ok(size),
                _ => return Err(flawed(Flaw::Content)),
            }
            offset += used as u64;
        }
    }

    /// Removes what a snapshot stands for. What cannot be removed now is when the folder is next read.
    pub fn remove_before(&self, number: u64) {
        for (kind, path) in self.files().unwrap_or_default() {
            if kind.log().or(kind.snapshot()).is_some_and(|n| n < number) {
                let _ = fs::remove_file(path);
            }
        }
    }

    fn files(&self) -> io::Result<Vec<(Kind, PathBuf)>> {
        let number = |name: &str, prefix| name.strip_prefix(prefix).and_then(|n| n.parse::<u64>().ok());
        let kind = |name: &str| match (number(name, "log-"), number(name, "snapshot-")) {
            (Some(n), _) => Some(Kind::Log(n)),
            (_, Some(n)) => Some(Kind::Snapshot(n)),
            _ => name.ends_with(".tmp").then_some(Kind::Draft),
        };
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            files.extend(kind(&entry.file_name().to_string_lossy()).map(|kind| (kind, entry.path())));
        }
        Ok(files)
    }

    fn describe(&self, format: u32, kubernetes: &str) -> Result<(), OpenError> {
        let about = About { format, kubernetes: kubernetes.into() };
        let text = serde_json::to_string_pretty(&about).unwrap_or_default() + "\n";
        write_whole(&self.path.join("about.json"), text.as_bytes())
            .map_err(|source| self.io("about.json", "written", source))
    }

    fn io(&self, name: &str, what: &'static str, source: io::Error) -> OpenError {
        io_error(&self.path.join(name), what, source)
    }
}

fn io_error(file: &Path, what: &'static str, source: io::Error) -> OpenError {
    OpenError::Io { file: file.into(), what, source }
}

fn damaged(file: &Path, offset: u64, flaw: Flaw) -> OpenError {
    OpenError::Damaged { file: file.into(), damage: Damage { offset, flaw } }
}

/// Writes a file of its owner's, whole or not at all, and returns when it is on disk.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let draft = path.with_extension("tmp");
    let mut file = private().write(true).create(true).truncate(true).open(&draft)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    path.parent().map_or(Ok(()), sync_folder)
}

fn sync_folder(path: &Path) -> io::Result<()> {
    // Elsewhere a folder cannot be opened as a file, and names are kept without being asked.
    if cfg!(unix) { File::open(path)?.sync_all() } else { Ok(()) }
}

fn take(folder: &Path) -> Result<File, OpenError> {
    let path = folder.join("lock");
    let mut lock = private()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(|source| io_error(&path, "opened", source))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => {
            let mut pid = String::new();
            let _ = lock.read_to_string(&mut pid);
            let pid: String = pid.chars().filter(char::is_ascii_digit).collect();
            let by = if pid.is_empty() { "another process".into() } else { format!("process {pid}") };
            return Err(OpenError::InUse { folder: folder.into(), by });
        }
        Err(fs::TryLockError::Error(source)) => return Err(io_error(&path, "locked", source)),
    }
    // Only for people to read: the lock itself is the system's and goes with the process.
    let _ = lock.set_len(0);
    let _ = lock.write_all(std::process::id().to_string().as_bytes());
    Ok(lock)
}

/// What was read so far.
struct Reading {
    restore: Restore,
    /// What the snapshot has of each table already.
    upto: HashMap<Table, Revision>,
    /// The revision that the logs have come to.
    at: Revision,
}

impl Reading {
    /// Takes in a log up to `limit`, or if there is none, for as far as it goes. Out: how many bytes were an unfinished write.
    fn log(&mut self, bytes: &[u8], limit: Option<Revision>) -> Result<u64, Damage> {
        let mut scan = Scan::new(bytes);
        let damage = |offset: usize, flaw| Damage { offset: offset as u64, flaw };
        while limit.is_none_or(|limit| self.at < limit) {
            match scan.next() {
                None if limit.is_some() => return Err(damage(bytes.len(), Flaw::Cut)),
                None => return Ok(0),
                Some(Ok((_, Frame::Head { .. } | Frame::End { .. }))) => {}
                Some(Ok((offset, Frame::Table { .. }))) => return Err(damage(offset, Flaw::Content)),
                Some(Ok((offset, Frame::Batch { after, entries }))) => self
                    .batch(after, entries, limit.unwrap_or(Revision::MAX))
                    .ok_or(damage(offset, Flaw::Content))?,
                Some(Err((offset, flaw))) => {
                    let rest = bytes.get(offset + 1..).unwrap_or_default();
                    if limit.is_some() || flaw == Flaw::Content || format::is_followed(rest) {
                        return Err(damage(offset, flaw));
                    }
                    return Ok((bytes.len() - offset) as u64);
                }
            }
        }
        Ok(0)
    }

    /// Takes in a batch; none if it does not follow from what came before.
    fn batch(&mut self, after: Revision, entries: Vec<format::Entry>, limit: Revision) -> Option<()> {
        if after != self.at {
            return None;
        }
        for entry in entries {
            let revision = entry.object.revision;
            if revision <= self.at || revision > limit || entry.what == What::Was {
                return None;
            }
            self.at = revision;
            if self.upto.get(&entry.table).is_none_or(|upto| revision > *upto) {
                self.restore.change(&entry.table, entry.object, entry.what == What::Gone);
            }
        }
        Some(())
    }
}

/// Brings a folder one format further.
type Migration = fn(&Folder) -> Result<(), OpenError>;

/// By the format that they start from.
const MIGRATIONS: [Migration; FORMAT as usize] = [from_lines];

/// Format 0 is text for people and scripts: `objects.jsonl`, an object a line, with no history.
#[derive(Deserialize)]
struct Line {
    table: Table,
    #[serde(default)]
    namespace: String,
    name: String,
    revision: Revision,
    /// Values of the kind's selectable fields.
    #[serde(default)]
    fields: std::collections::BTreeMap<String, String>,
    object: serde_json::Value,
}

fn from_lines(folder: &Folder) -> Result<(), OpenError> {
    let path = folder.path.join("objects.jsonl");
    let text = fs::read_to_string(&path).map_err(|source| io_error(&path, "read", source))?;
    let mut tables: std::collections::BTreeMap<Table, Vec<Stored>> = std::collections::BTreeMap::new();
    let mut newest = EMPTY;
    for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let bad = |error| OpenError::Content { file: path.clone(), why: format!("line {}: {error}", i + 1) };
        let line: Line = serde_json::from_str(line).map_err(bad)?;
        let fields: Pairs = line.fields.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
        let facts = Facts { fields, ..crate::server::facts_of_metadata(&line.object) };
        newest = newest.max(line.revision);
        tables.entry(line.table).or_default().push(Stored {
            key: Key::new(&line.namespace, &line.name),
            revision: line.revision,
            text: line.object.to_string().into(),
            facts: Arc::new(facts),
        });
    }
    let mut bytes = Vec::new();
    format::add_head(&mut bytes, newest);
    for (table, objects) in &tables {
        // What happened before is not known, so a watch from there must list anew.
        format::add_table(&mut bytes, table, newest, newest);
        for some in objects.chunks(256) {
            format::add_batch(&mut bytes, newest, some.iter().map(|o| (table, What::Was, o)));
        }
    }
    format::add_end(&mut bytes, newest);
    let mut head = Vec::new();
    format::add_head(&mut head, newest);
    for (path, bytes) in [(folder.log(1), head), (folder.snapshot(1), bytes)] {
        write_whole(&path, &bytes).map_err(|source| io_error(&path, "written", source))?;
    }
    // The lines stay until the folder says that it is of the next format; then nobody reads them.
    Ok(())
}
