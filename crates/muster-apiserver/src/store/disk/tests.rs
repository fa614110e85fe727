//! The folder as a whole: what is read back, after ends of every kind.

use super::folder::System;
use super::*;
use crate::store::{Change, Facts};
use proptest::prelude::*;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;

/// A folder that goes away with the test.
struct Temp(PathBuf);

impl Temp {
    fn new() -> Temp {
        static N: AtomicU64 = AtomicU64::new(0);
        let name = format!("muster-disk-{}-{}", std::process::id(), N.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        Temp(path)
    }

    fn open(&self) -> Durable {
        self.try_open().unwrap()
    }

    fn try_open(&self) -> Result<Durable, OpenError> {
        self.open_with(SMALL)
    }

    fn open_with(&self, limits: Limits) -> Result<Durable, OpenError> {
        Durable::open_on(Box::new(Quick), &self.0, "1.36", limits)
    }

    /// The folder as a crash would leave it; no snapshot may be under way.
    fn copy(&self) -> Temp {
        let copy = Temp::new();
        std::fs::create_dir_all(&copy.0).unwrap();
        for entry in std::fs::read_dir(&self.0).unwrap().flatten() {
            // A file that could not be made may be gone again.
            if let Err(error) = std::fs::copy(entry.path(), copy.0.join(entry.file_name())) {
                assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
            }
        }
        copy
    }

    fn files(&self, prefix: &str) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> =
            std::fs::read_dir(&self.0).unwrap().flatten().map(|e| e.path()).collect();
        files.retain(|f| f.file_name().unwrap().to_string_lossy().starts_with(prefix));
        files.sort();
        files
    }

    fn bytes(&self) -> u64 {
        self.files("").iter().map(|f| f.metadata().unwrap().len()).sum()
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The system's disk without the waiting: a process that ends leaves behind what it wrote, synced or not.
struct Quick;

struct QuickFile(Box<dyn Sink>);

impl Disk for Quick {
    fn create(&self, path: &Path) -> io::Result<Box<dyn Sink>> {
        Ok(Box::new(QuickFile(System.create(path)?)))
    }

    fn sync_names(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
}

impl Sink for QuickFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn cut(&mut self, length: u64) {
        self.0.cut(length);
    }
}

/// Everything small, so that a few writes go through all that happens to files.
const SMALL: Limits = Limits { log_bytes: 1 << 10, slack_bytes: 4 << 10, n_logs: 6, batch_bytes: 1 << 10 };
/// One log for all.
const LARGE: Limits = Limits { log_bytes: 1 << 30, slack_bytes: 1 << 30, n_logs: 1000, batch_bytes: 4 << 20 };

fn draft() -> Draft {
    Draft::new("{\"r\":", "}", Facts { uid: "u".into(), ..Facts::default() })
}

fn write(store: &dyn Store, table: &str, name: &str) -> Revision {
    let key = Key::new("ns", name);
    let expect = store.get(table, &key).map_or(Expect::Absent, |o| Expect::At(o.revision));
    store.put(&table.into(), &key, expect, draft()).unwrap().revision
}

fn remove(store: &dyn Store, table: &str, name: &str) -> Option<Revision> {
    let key = Key::new("ns", name);
    let at = store.get(table, &key)?.revision;
    Some(store.delete(table, &key, at, draft()).unwrap().revision)
}

/// Waits until the disk has everything.
fn settle(store: &Durable) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (_, settled) = runtime.block_on(store.shared.durability.settle(store, async {}));
    assert_eq!(settled, Settled::Kept);
}

fn objects(store: &dyn Store) -> Vec<String> {
    let mut all = Vec::new();
    for table in store.tables() {
        let page = store.list(&table, &Range::default(), &mut |_| true).unwrap();
        all.extend(
            page.items
                .iter()
                .map(|o| format!("{table}/{}@{} {} {:?}", o.key.name, o.revision, o.text, o.facts)),
        );
    }
    all
}

fn changes(store: &dyn Store, after: Revision) -> Vec<String> {
    let shown = |c: &Change| {
        let previous = c.previous.as_ref().map(|p| p.revision);
        format!("{} {} {} was {previous:?}", c.revision, c.object.key.name, c.deleted)
    };
    let tables = store.tables();
    tables.iter().flat_map(|t| store.changes(t, after).unwrap().0).map(|c| shown(&c)).collect()
}

#[test]
fn a_folder_goes_on_where_it_was_left() {
    let temp = Temp::new();
    let store = temp.open();
    assert_eq!(store.resumed(), Resumed { revision: 1, torn_bytes: 0 });
    write(&store, "pods", "a");
    let b = write(&store, "pods", "b");
    write(&store, "maps", "a");
    write(&store, "pods", "a");
    remove(&store, "pods", "b");
    settle(&store);
    let (objects_before, changes_before) = (objects(&store), changes(&store, b));
    drop(store);
    let store = temp.open();
    assert_eq!(store.resumed(), Resumed { revision: 6, torn_bytes: 0 });
    assert_eq!((objects(&store), changes(&store, b)), (objects_before, changes_before));
    assert_eq!(write(&store, "pods", "c"), 7);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// A store that is closed and opened, with snapshots made all the time, is the store in memory.
    #[test]
    fn it_is_the_store_in_memory(ops in proptest::collection::vec((0usize..3, 0usize..6, 0u8..8), 1..120)) {
        let temp = Temp::new();
        let (mut store, model) = (temp.open(), Memory::new());
        for (table, name, op) in ops {
            let (table, name) = (["pods", "maps", "x.y.z"][table], ["a", "b", "c", "d", "e", "f"][name]);
            match op {
                0 => {
                    drop(store);
                    store = temp.open();
                }
                1 => settle(&store),
                2 => prop_assert_eq!(remove(&store, table, name), remove(&model, table, name)),
                _ => prop_assert_eq!(write(&store, table, name), write(&model, table, name)),
            }
        }
        settle(&store);
        for again in [false, true] {
            if again {
                drop(store);
                store = temp.open();
            }
            prop_assert_eq!(store.revision(), model.revision());
            prop_assert_eq!(objects(&store), objects(&model));
            prop_assert_eq!(changes(&store, 1), changes(&model, 1));
        }
    }
}

/// A folder with one log, a commit for each write; and the state after each.
fn one_log(n_writes: usize) -> (Temp, Vec<Vec<String>>) {
    let temp = Temp::new();
    let store = temp.open_with(LARGE).unwrap();
    let mut states = vec![objects(&store)];
    for i in 0..n_writes {
        if i % 5 == 4 {
            remove(&store, "pods", "p1");
        } else {
            write(&store, "pods", &format!("p{}", i % 4));
        }
        settle(&store);
        states.push(objects(&store));
    }
    drop(store);
    (temp, states)
}

#[test]
fn any_prefix_of_a_log_is_a_prefix_of_the_writes() {
    let (temp, states) = one_log(12);
    let log = temp.files("log-").pop().unwrap();
    let bytes = std::fs::read(&log).unwrap();
    let mut seen = BTreeSet::new();
    for cut in 0..=bytes.len() {
        let copy = temp.copy();
        std::fs::write(copy.files("log-").pop().unwrap(), &bytes[..cut]).unwrap();
        let store = copy.open_with(LARGE).unwrap();
        let found = states.iter().position(|state| *state == objects(&store)).unwrap();
        assert!(seen.last().is_none_or(|last| *last <= found), "a longer prefix holds no less");
        seen.insert(found);
        if cut % 16 == 0 {
            // What is written next counts, and the torn end does not come back.
            let revision = write(&store, "maps", "next");
            let now = objects(&store);
            drop(store);
            let store = copy.open_with(LARGE).unwrap();
            assert_eq!((store.resumed().revision, objects(&store)), (revision, now));
        }
    }
    assert_eq!(seen.len(), states.len(), "every state was seen");
}

#[test]
fn a_flipped_byte_is_found_or_was_of_the_last_write() {
    let (temp, states) = one_log(8);
    let bytes = std::fs::read(temp.files("log-").pop().unwrap()).unwrap();
    for at in 0..bytes.len() {
        let copy = temp.copy();
        let log = copy.files("log-").pop().unwrap();
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        std::fs::write(&log, &flipped).unwrap();
        match copy.open_with(LARGE) {
            // The log was closed, so even the last write is known to have been whole: only the end itself can be taken for unfinished.
            Ok(store) => assert_eq!(Some(&objects(&store)), states.last(), "byte {at}"),
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains(log.to_str().unwrap()) && text.contains("damaged at byte"), "{text}");
            }
        }
    }
}

#[test]
fn damage_to_a_snapshot_or_an_older_log_is_an_error() {
    let temp = Temp::new();
    for _ in 0..3 {
        let store = temp.open();
        for i in 0..60 {
            write(&store, "pods", &format!("p{}", i % 7));
            settle(&store);
        }
    }
    // As if the process had been killed: the last write is not followed by anything.
    let last = temp.files("log-").pop().unwrap();
    for file in temp.files("log-").into_iter().chain(temp.files("snapshot-")).filter(|f| *f != last) {
        let bytes = std::fs::read(&file).unwrap();
        let name = file.file_name().unwrap();
        for at in (0..bytes.len()).step_by(bytes.len() / 40 + 1) {
            let copy = temp.copy();
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x40;
            std::fs::write(copy.0.join(name), flipped).unwrap();
            let text = match copy.try_open() {
                Err(error) => error.to_string(),
                // The end of a log that another one follows says nothing that the other does not.
                Ok(store) => {
                    assert_eq!(objects(&store), objects(&temp.copy().open()));
                    continue;
                }
            };
            assert!(text.contains(name.to_str().unwrap()), "{text}");
        }
        let copy = temp.copy();
        std::fs::remove_file(copy.0.join(name)).unwrap();
        assert!(copy.try_open().is_err(), "{} is missing", file.display());
    }
}

#[test]
fn the_log_is_bounded_by_what_lives() {
    let temp = Temp::new();
    let limits = Limits { log_bytes: 4 << 20, slack_bytes: 4 << 20, n_logs: 100, batch_bytes: 1 << 20 };
    let store = temp.open_with(limits).unwrap();
    let text = "x".repeat(16 << 10);
    // 96 MiB of writes to ten objects; the history keeps 32 MiB of them.
    for i in 0..6000 {
        let key = Key::new("ns", &format!("o{}", i % 10));
        let expect = store.get("pods", &key).map_or(Expect::Absent, |o| Expect::At(o.revision));
        let draft = Draft::new("{\"r\":", text.clone(), Facts::default());
        store.put(&"pods".into(), &key, expect, draft).unwrap();
        if i % 64 == 0 {
            settle(&store);
        }
    }
    drop(store);
    let (n_logs, n_snapshots) = (temp.files("log-").len(), temp.files("snapshot-").len());
    assert_eq!(n_snapshots, 1);
    assert!(temp.bytes() < 80 << 20, "{} bytes in {n_logs} logs", temp.bytes());
    let store = temp.open();
    assert_eq!(store.resumed().revision, 6001);
    assert_eq!(store.len("pods"), 10);
    assert!(store.changes("pods", 5000).is_ok());
    assert!(store.changes("pods", 2).is_err(), "too old, and said so");
}

#[track_caller]
fn refused(temp: &Temp, expected: &str) {
    let Err(error) = temp.try_open() else { panic!("{expected}: it was opened") };
    let text = error.to_string();
    assert!(text.contains(expected) && text.contains(temp.0.to_str().unwrap()), "{text}");
}

#[test]
fn a_folder_has_one_process_and_one_format() {
    let temp = Temp::new();
    let store = temp.open();
    refused(&temp, &format!("in use by process {}", std::process::id()));
    drop(store);
    drop(temp.open());
    let about = temp.0.join("about.json");
    let text = std::fs::read_to_string(&about).unwrap();
    for (from, to, expected) in [
        ("\"format\": 1", "\"format\": 2", "written in format 2, and this program knows formats up to 1"),
        ("1.36", "1.35", "holds a cluster of Kubernetes 1.35, and 1.36 was asked for"),
        ("{", "", "about.json"),
    ] {
        std::fs::write(&about, text.replace(from, to)).unwrap();
        refused(&temp, expected);
    }
    std::fs::remove_file(&about).unwrap();
    refused(&temp, "not a data folder");
}

#[test]
fn format_0_is_brought_up_to_the_present_one() {
    let temp = Temp::new();
    std::fs::create_dir_all(&temp.0).unwrap();
    std::fs::write(temp.0.join("about.json"), r#"{"format": 0, "kubernetes": "1.36"}"#).unwrap();
    let lines = [
        r#"{"table": "pods", "namespace": "ns", "name": "a", "revision": 7, "fields": {"spec.nodeName": "n"}, "object": {"metadata": {"name": "a", "uid": "u", "labels": {"app": "x"}}}}"#,
        "",
        r#"{"table": "namespaces", "name": "ns", "revision": 4, "object": {"metadata": {"name": "ns", "uid": "v"}}}"#,
    ];
    std::fs::write(temp.0.join("objects.jsonl"), lines.join("\n")).unwrap();
    for _ in 0..2 {
        let store = temp.open();
        assert_eq!(store.revision(), 7);
        let pod = store.get("pods", &Key::new("ns", "a")).unwrap();
        assert_eq!((&*pod.facts.uid, pod.facts.label("app")), ("u", Some("x")));
        assert_eq!(pod.facts.field("spec.nodeName"), Some("n"));
        assert_eq!(store.len("namespaces"), 1);
        assert!(store.changes("pods", 6).is_err(), "what happened before is not known");
        assert!(std::fs::read_to_string(temp.0.join("about.json")).unwrap().contains("\"format\": 1"));
    }
    std::fs::write(temp.0.join("about.json"), r#"{"format": 0, "kubernetes": "1.36"}"#).unwrap();
    std::fs::write(temp.0.join("objects.jsonl"), "{}").unwrap();
    refused(&temp, "objects.jsonl: line 1: missing field");
}

/// A disk that fails on demand.
#[derive(Default)]
struct Faults {
    create: AtomicBool,
    write: AtomicBool,
    sync: AtomicBool,
    cut: AtomicBool,
}

struct FaultyDisk(Arc<Faults>);

struct FaultyFile(Box<dyn Sink>, Arc<Faults>);

fn fail_if(flag: &AtomicBool) -> io::Result<()> {
    if flag.load(Ordering::Relaxed) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
}

impl Disk for FaultyDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn Sink>> {
        fail_if(&self.0.create)?;
        Ok(Box::new(FaultyFile(System.create(path)?, self.0.clone())))
    }

    fn sync_names(&self, folder: &Path) -> io::Result<()> {
        fail_if(&self.0.sync)?;
        System.sync_names(folder)
    }
}

impl Sink for FaultyFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = fail_if(&self.1.write) {
            // As much as there was room for.
            self.0.write(&bytes[..bytes.len() / 2])?;
            return Err(error);
        }
        self.0.write(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        fail_if(&self.1.sync)?;
        self.0.sync()
    }

    fn cut(&mut self, length: u64) {
        if !self.1.cut.load(Ordering::Relaxed) {
            self.0.cut(length);
        }
    }
}

/// One write as a request makes it, and what became of it.
async fn request(store: &Durable, name: &str) -> (Revision, Settled) {
    store.shared.durability.settle(store, async { write(store, "pods", name) }).await
}

async fn fails_and_recovers(pick: fn(&Faults) -> Vec<&AtomicBool>, gone_after_a_crash: bool) {
    let (temp, faults) = (Temp::new(), Arc::new(Faults::default()));
    let store = Durable::open_on(Box::new(FaultyDisk(faults.clone())), &temp.0, "1.36", LARGE).unwrap();
    let durability = store.durability().unwrap();
    assert_eq!(request(&store, "a").await, (2, Settled::Kept));
    assert_eq!(request(&store, "b").await, (3, Settled::Kept));
    let before = objects(&store);
    for flag in pick(&faults) {
        flag.store(true, Ordering::Relaxed);
    }
    // Updates, creations and what was built upon them: all is undone.
    let (first, second) = tokio::join!(request(&store, "a"), request(&store, "c"));
    for (_, settled) in [&first, &second] {
        assert!(matches!(settled, Settled::Lost(why) if why.contains("no storage space")), "{settled:?}");
    }
    assert!(durability.fault().is_some());
    assert_eq!((store.revision(), objects(&store)), (3, before.clone()));
    let (told, upto) = store.changes("pods", 3).unwrap();
    assert_eq!((told.len(), upto), (0, 3), "watchers never heard of it");
    let (_, read) = durability.settle(&store, async {}).await;
    assert_eq!(read, Settled::Kept, "reads go on");
    // Should the process die now, nothing that was acknowledged is lost.
    let crashed = temp.copy().open();
    let kept: Vec<String> = objects(&crashed);
    if gone_after_a_crash {
        assert_eq!(kept, before);
    } else {
        assert!(kept.iter().any(|o| o.starts_with("pods/b@3")), "{kept:?}");
    }
    for flag in pick(&faults) {
        flag.store(false, Ordering::Relaxed);
    }
    for _ in 0..100 {
        if durability.fault().is_none() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(durability.fault(), None, "the disk is asked again");
    let (revision, settled) = request(&store, "d").await;
    assert_eq!(settled, Settled::Kept);
    assert!(revision > first.0.max(second.0), "no revision is given twice");
    let after = objects(&store);
    drop(store);
    let store = temp.open();
    assert_eq!((store.revision(), objects(&store)), (revision, after));
    assert_eq!(changes(&store, 3).len(), 1, "what was undone does not come back");
}

#[tokio::test]
async fn a_full_disk_undoes_what_it_does_not_take() {
    fails_and_recovers(|f| vec![&f.write], true).await;
}

#[tokio::test]
async fn a_failed_sync_undoes_what_may_be_on_disk_or_not() {
    fails_and_recovers(|f| vec![&f.sync], true).await;
}

#[tokio::test]
async fn a_disk_that_takes_nothing_back_is_not_trusted() {
    fails_and_recovers(|f| vec![&f.sync, &f.cut, &f.create], false).await;
}

#[tokio::test]
async fn a_snapshot_that_fails_costs_nothing() {
    let (temp, faults) = (Temp::new(), Arc::new(Faults::default()));
    let limits = Limits { n_logs: 1000, ..SMALL };
    let store = Durable::open_on(Box::new(FaultyDisk(faults.clone())), &temp.0, "1.36", limits).unwrap();
    for round in 0..4 {
        for i in 0..40 {
            // Folders are what cannot be replaced by a file: the draft of a snapshot cannot be made.
            let next = temp.0.join(format!("snapshot-{:010}.tmp", temp.files("log-").len() + 1));
            if round < 2 {
                let _ = std::fs::create_dir(next);
            }
            assert_eq!(request(&store, &format!("p{}", i % 9)).await.1, Settled::Kept);
        }
    }
    let before = objects(&store);
    drop(store);
    for leftover in temp.files("snapshot-").into_iter().filter(|f| f.is_dir()) {
        std::fs::remove_dir(leftover).unwrap();
    }
    assert_eq!(objects(&temp.open()), before);
}

#[tokio::test]
async fn writers_that_come_together_share_a_commit() {
    let temp = Temp::new();
    let store = Durable::open(&temp.0, "1.36", LARGE).unwrap();
    let names: Vec<String> = (0..200).map(|i| format!("p{i}")).collect();
    let all = futures::future::join_all(names.iter().map(|name| request(&store, name))).await;
    assert!(all.iter().all(|(_, settled)| *settled == Settled::Kept));
    drop(store);
    let bytes = std::fs::read(temp.files("log-").pop().unwrap()).unwrap();
    let decoded = format::decode(&bytes).unwrap();
    let n_commits = decoded.frames.iter().filter(|(_, f)| matches!(f, format::Frame::Batch { .. })).count();
    assert!(n_commits < 100, "{n_commits} commits for 200 writes");
}

#[tokio::test]
async fn nobody_waits_for_a_store_that_is_closed() {
    let temp = Temp::new();
    let store = temp.open();
    assert_eq!(request(&store, "a").await.1, Settled::Kept);
    store.close();
    assert!(matches!(request(&store, "a").await.1, Settled::Lost(why) if &*why == CLOSED));
    assert_eq!(temp.open().revision(), 2, "the folder is free, and has what was acknowledged");
}

#[tokio::test]
async fn watchers_hear_of_a_write_before_its_answer_and_never_before_the_disk_has_it() {
    let (temp, faults) = (Temp::new(), Arc::new(Faults::default()));
    let store = Durable::open_on(Box::new(FaultyDisk(faults.clone())), &temp.0, "1.36", LARGE).unwrap();
    let mut changed = store.subscribe(&"pods".into());
    changed.mark_unchanged();
    let (revision, _) = request(&store, "a").await;
    assert!(changed.has_changed().unwrap());
    assert_eq!(*changed.borrow_and_update(), revision);
    faults.sync.store(true, Ordering::Relaxed);
    request(&store, "b").await;
    // They are woken, for whoever made something of the table as it was in between; but they hear of nothing.
    assert_eq!(*changed.borrow_and_update(), revision);
    assert!(store.changes("pods", revision).unwrap().0.is_empty());
}
