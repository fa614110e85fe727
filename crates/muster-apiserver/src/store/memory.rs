//! The store in memory: the objects of each table and a bounded ring of their changes.
//!
//! A list at an older revision is the present state with the newer changes undone, so a paged list stays consistent for
//! as long as the ring reaches back to its first page, and costs nothing while nobody pages.
//!
//! A store on disk is this one with a journal: changes are handed to it in order, watchers hear of them once it says that they
//! are [told](Memory::tell), and those that could not be kept are [undone](Memory::undo).

use super::objects::Objects;
use super::{Change, Clash, Compacted, Draft, Expect, Key, Page, Range, Revision, Store, Stored, Table};
use std::collections::{HashMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::watch;

/// Bytes of object text that a table's history may hold. Changes share their text with the objects, so this bounds
/// only what is no longer current: enough for about 10,000 pod updates, which is minutes of a busy small cluster.
const HISTORY_BYTES: usize = 32 << 20;
/// A history never shrinks below this, however large the objects are.
const HISTORY_MIN: usize = 256;

/// Takes each change as it happens, in order. Called under the store's lock, so it only takes note.
pub(super) type Journal = Box<dyn Fn(&Table, &Change) + Send + Sync>;

/// Objects in memory. Without a journal nothing survives the process.
pub struct Memory {
    inner: Mutex<Inner>,
    any: watch::Sender<Revision>,
    journal: Option<Journal>,
}

struct Inner {
    /// Revision of the newest change that is there.
    revision: Revision,
    /// The newest revision that was ever given out; one that was undone is not given again.
    given: Revision,
    /// Watchers know of everything up to here. Without a journal that is all there is.
    told: Revision,
    tables: HashMap<Table, Rows>,
}

/// A table as it is kept on disk.
pub(super) struct View {
    /// Revision of the newest change that the history has dropped.
    pub compacted: Revision,
    /// It is whole up to here.
    pub upto: Revision,
    /// The objects as they were then, without the history.
    pub objects: Objects,
    /// What happened since.
    pub history: Vec<Change>,
}

struct Rows {
    objects: Objects,
    history: VecDeque<Change>,
    history_bytes: usize,
    /// Revision of the newest change that the history has dropped.
    compacted: Revision,
    changed: watch::Sender<Revision>,
}

impl Rows {
    fn new() -> Rows {
        Rows {
            objects: Objects::default(),
            history: VecDeque::new(),
            history_bytes: 0,
            compacted: 0,
            changed: watch::channel(0).0,
        }
    }

    /// Notes a change. What watchers were not told of yet stays, whatever its size; what they may know, they learn now.
    fn record(&mut self, change: Change, told: Revision) {
        self.history_bytes += change.object.text.len();
        if change.revision <= told {
            self.changed.send_replace(change.revision);
        }
        self.history.push_back(change);
        while self.history_bytes > HISTORY_BYTES
            && self.history.len() > HISTORY_MIN
            && let Some(old) = self.history.pop_front_if(|old| old.revision <= told)
        {
            self.history_bytes -= old.object.text.len();
            self.compacted = old.revision;
        }
    }

    /// Takes the newest change back.
    fn revert(&mut self, change: Change) {
        self.history_bytes -= change.object.text.len();
        match change.previous {
            Some(previous) => self.objects.insert(previous),
            None => self.objects.remove(&change.object.key),
        };
    }

    /// The objects as they were at `revision`.
    fn at(&self, revision: Revision) -> Result<Objects, Compacted> {
        if revision < self.compacted {
            return Err(Compacted { asked: revision, oldest: self.compacted });
        }
        let mut objects = self.objects.clone();
        for change in self.history.iter().rev().take_while(|c| c.revision > revision) {
            match &change.previous {
                Some(previous) => objects.insert(previous.clone()),
                None => objects.remove(&change.object.key),
            };
        }
        Ok(objects)
    }
}

impl Default for Memory {
    fn default() -> Memory {
        Memory::new()
    }
}

impl Memory {
    /// An empty store.
    pub fn new() -> Memory {
        Restore::default().finish(1, None)
    }

    /// Ends a write: without a journal, watchers learn of it at once.
    fn unlock(&self, inner: MutexGuard<'_, Inner>) {
        let told = inner.told;
        drop(inner);
        if self.journal.is_none() {
            self.any.send_replace(told);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic while the lock was held is contained to its request; the maps are never left half-written, since every
        // write is one insert or remove after all fallible work.
        self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A store that is being read from disk.
#[derive(Default)]
pub(super) struct Restore {
    tables: HashMap<Table, Rows>,
}

impl Restore {
    /// Begins a table whose history begins after a revision.
    pub fn table(&mut self, table: &Table, compacted: Revision) {
        self.tables.entry(table.clone()).or_insert_with(Rows::new).compacted = compacted;
    }

    /// An object as it was when the history of its table begins.
    pub fn object(&mut self, table: &Table, object: Stored) {
        let rows = self.tables.entry(table.clone()).or_insert_with(Rows::new);
        rows.objects.insert(object);
    }

    /// What happened next.
    pub fn change(&mut self, table: &Table, object: Stored, deleted: bool) {
        let rows = self.tables.entry(table.clone()).or_insert_with(Rows::new);
        let previous =
            if deleted { rows.objects.remove(&object.key) } else { rows.objects.insert(object.clone()) };
        let revision = object.revision;
        rows.record(Change { revision, object, previous, deleted }, revision);
    }

    /// The store at a revision. The empty one is at 1, so that no list ever reports 0, which means "any" to clients.
    pub fn finish(self, revision: Revision, journal: Option<Journal>) -> Memory {
        let inner = Inner { revision, given: revision, told: revision, tables: self.tables };
        Memory { inner: Mutex::new(inner), any: watch::channel(revision).0, journal }
    }
}

impl Memory {
    /// The journal has everything up to a revision; these tables changed since it last said so.
    pub(super) fn tell<'a>(&self, upto: Revision, tables: impl Iterator<Item = &'a Table>) {
        let mut inner = self.lock();
        inner.told = upto;
        for table in tables {
            if let Some(rows) = inner.tables.get(table) {
                rows.changed.send_replace(upto);
            }
        }
        drop(inner);
        self.any.send_replace(upto);
    }

    /// Takes back everything that watchers were not told of, since the journal could not keep it. `forget` is called before
    /// anything else can happen, with the revisions after which and up to which they are gone.
    pub(super) fn undo(&self, forget: impl FnOnce(Revision, Revision)) {
        let mut inner = self.lock();
        let told = inner.told;
        for rows in inner.tables.values_mut() {
            while let Some(change) = rows.history.pop_back_if(|change| change.revision > told) {
                rows.revert(change);
            }
        }
        inner.revision = told;
        forget(told, inner.given);
        drop(inner);
        self.any.send_replace(told);
    }

    /// A table as watchers know it.
    pub(super) fn view(&self, table: &str) -> Option<View> {
        let inner = self.lock();
        let upto = inner.told;
        let rows = inner.tables.get(table)?;
        let (mut objects, compacted) = (rows.objects.clone(), rows.compacted);
        let mut history: Vec<Change> = rows.history.iter().cloned().collect();
        drop(inner);
        for change in history.iter().rev() {
            match &change.previous {
                Some(previous) => objects.insert(previous.clone()),
                None => objects.remove(&change.object.key),
            };
        }
        history.retain(|change| change.revision <= upto);
        Some(View { compacted, upto, objects, history })
    }
}

fn page(
    objects: &Objects,
    range: &Range<'_>,
    revision: Revision,
    keep: &mut dyn FnMut(&Stored) -> bool,
) -> Page {
    let floor: Key;
    let start = match (&range.after, range.namespace) {
        (Some(after), _) => Bound::Excluded(after),
        (None, Some(ns)) => {
            floor = Key::new(ns, "");
            Bound::Included(&floor)
        }
        (None, None) => Bound::Unbounded,
    };
    let within = |k: &Key| range.namespace.is_none_or(|ns| &*k.namespace == ns);
    let mut walk = objects.from(start).take_while(|object| within(&object.key));
    let mut items: Vec<Stored> = Vec::new();
    let mut next = None;
    let mut remaining = 0;
    for object in walk.by_ref() {
        if !keep(object) {
            continue;
        }
        items.push(object.clone());
        if items.len() == range.limit {
            // More of the table, whether it passes or not: looking further would cost what a page is to save.
            remaining = walk.count();
            next = items.last().filter(|_| remaining > 0).map(|o| o.key.clone());
            break;
        }
    }
    Page { items, revision, next, remaining }
}

impl Store for Memory {
    fn revision(&self) -> Revision {
        self.lock().revision
    }

    fn get(&self, table: &str, key: &Key) -> Option<Stored> {
        self.lock().tables.get(table)?.objects.get(key).cloned()
    }

    fn list(
        &self,
        table: &str,
        range: &Range<'_>,
        keep: &mut dyn FnMut(&Stored) -> bool,
    ) -> Result<Page, Compacted> {
        let inner = self.lock();
        let revision = range.at.unwrap_or(inner.revision);
        let Some(rows) = inner.tables.get(table) else {
            return Ok(Page { items: Vec::new(), revision, next: None, remaining: 0 });
        };
        match range.at {
            Some(at) if rows.history.back().is_some_and(|c| c.revision > at) => {
                Ok(page(&rows.at(at)?, range, at, keep))
            }
            _ => Ok(page(&rows.objects, range, revision, keep)),
        }
    }

    fn len(&self, table: &str) -> usize {
        self.lock().tables.get(table).map_or(0, |r| r.objects.len())
    }

    fn put(
        &self,
        table: &Table,
        key: &Key,
        expect: Expect,
        draft: &mut dyn FnMut(Revision) -> Draft,
    ) -> Result<Stored, Clash> {
        let mut guard = self.lock();
        let inner = &mut *guard;
        let revision = inner.given + 1;
        let rows = inner.tables.entry(table.clone()).or_insert_with(Rows::new);
        // All versions of an object share their key.
        let key = match (expect, rows.objects.get(key)) {
            (Expect::Absent, Some(_)) => return Err(Clash::Exists),
            (Expect::At(_), None) => return Err(Clash::Absent),
            (Expect::At(at), Some(p)) if p.revision != at => return Err(Clash::Moved),
            (Expect::At(_), Some(p)) => p.key.clone(),
            (Expect::Absent, None) => key.clone(),
        };
        let Draft { text, facts } = draft(revision);
        let object = Stored { key, revision, text: text.into(), facts: Arc::new(facts) };
        let previous = rows.objects.insert(object.clone());
        let change = Change { revision, object: object.clone(), previous, deleted: false };
        (inner.revision, inner.given) = (revision, revision);
        match &self.journal {
            Some(journal) => journal(table, &change),
            None => inner.told = revision,
        }
        rows.record(change, inner.told);
        self.unlock(guard);
        Ok(object)
    }

    fn delete(
        &self,
        table: &str,
        key: &Key,
        expect: Revision,
        draft: &mut dyn FnMut(Revision) -> Draft,
    ) -> Result<Stored, Clash> {
        let mut guard = self.lock();
        let inner = &mut *guard;
        let revision = inner.given + 1;
        let rows = inner.tables.get_mut(table).ok_or(Clash::Absent)?;
        let previous = rows.objects.get(key).ok_or(Clash::Absent)?.clone();
        if previous.revision != expect {
            return Err(Clash::Moved);
        }
        let Draft { text, facts } = draft(revision);
        let object =
            Stored { key: previous.key.clone(), revision, text: text.into(), facts: Arc::new(facts) };
        rows.objects.remove(key);
        let change = Change { revision, object: object.clone(), previous: Some(previous), deleted: true };
        (inner.revision, inner.given) = (revision, revision);
        match &self.journal {
            Some(journal) => journal(&table.into(), &change),
            None => inner.told = revision,
        }
        rows.record(change, inner.told);
        self.unlock(guard);
        Ok(object)
    }

    fn changes(&self, table: &str, after: Revision) -> Result<(Vec<Change>, Revision), Compacted> {
        let inner = self.lock();
        let Some(rows) = inner.tables.get(table) else { return Ok((Vec::new(), inner.told)) };
        if after < rows.compacted {
            return Err(Compacted { asked: after, oldest: rows.compacted });
        }
        let from = rows.history.partition_point(|c| c.revision <= after);
        let known = rows.history.range(from..).take_while(|c| c.revision <= inner.told);
        Ok((known.cloned().collect(), inner.told))
    }

    fn subscribe(&self, table: &Table) -> watch::Receiver<Revision> {
        self.lock().tables.entry(table.clone()).or_insert_with(Rows::new).changed.subscribe()
    }

    fn tables(&self) -> Vec<Table> {
        let mut names: Vec<Table> = self.lock().tables.keys().cloned().collect();
        names.sort();
        names
    }

    fn subscribe_all(&self) -> watch::Receiver<Revision> {
        self.any.subscribe()
    }

    fn retire(&self, table: &str) {
        if let Some(rows) = self.lock().tables.get_mut(table) {
            // Watchers see the old sender go, read the last changes and end. The history stays for them to read.
            rows.changed = watch::channel(0).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Facts;
    use proptest::prelude::*;

    fn write(store: &Memory, name: &str, expect: Expect) -> Result<Revision, Clash> {
        store
            .put(&"t".into(), &Key::new("ns", name), expect, &mut |r| Draft {
                text: format!("{{\"r\":{r}}}"),
                facts: Facts::default(),
            })
            .map(|s| s.revision)
    }

    fn remove(store: &Memory, name: &str, at: Revision) -> Result<Revision, Clash> {
        store
            .delete("t", &Key::new("ns", name), at, &mut |_| Draft {
                text: "{}".into(),
                facts: Facts::default(),
            })
            .map(|s| s.revision)
    }

    fn names(store: &Memory, range: &Range<'_>) -> Vec<String> {
        let page = store.list("t", range, &mut |_| true).unwrap();
        page.items.iter().map(|o| format!("{}@{}", o.key.name, o.revision)).collect()
    }

    #[test]
    fn writes_check_what_they_expect() {
        let s = Memory::new();
        let r = write(&s, "a", Expect::Absent).unwrap();
        assert!(matches!(write(&s, "a", Expect::Absent), Err(Clash::Exists)));
        assert!(matches!(write(&s, "b", Expect::At(r)), Err(Clash::Absent)));
        let r2 = write(&s, "a", Expect::At(r)).unwrap();
        assert!(matches!(write(&s, "a", Expect::At(r)), Err(Clash::Moved)));
        assert!(matches!(remove(&s, "a", r), Err(Clash::Moved)));
        remove(&s, "a", r2).unwrap();
        assert!(matches!(remove(&s, "a", r2), Err(Clash::Absent)));
    }

    #[test]
    fn a_later_page_is_of_the_first_pages_revision() {
        let s = Memory::new();
        for n in ["a", "b", "c", "d"] {
            write(&s, n, Expect::Absent).unwrap();
        }
        let first = s.list("t", &Range { limit: 2, ..Range::default() }, &mut |_| true).unwrap();
        assert_eq!(first.remaining, 2);
        remove(&s, "c", 4).unwrap();
        write(&s, "e", Expect::Absent).unwrap();
        let rest = Range { after: first.next, at: Some(first.revision), ..Range::default() };
        assert_eq!(names(&s, &rest), ["c@4", "d@5"]);
        assert_eq!(names(&s, &Range::default()), ["a@2", "b@3", "d@5", "e@7"]);
    }

    proptest! {
        /// Any past state can be rebuilt from the present and the history, and the changes after it lead back.
        #[test]
        fn history_is_complete(ops in proptest::collection::vec((0usize..4, 0u8..3), 1..60)) {
            let s = Memory::new();
            let mut past: Vec<(Revision, Vec<String>)> = vec![(1, vec![])];
            for (n, op) in ops {
                let name = ["a", "b", "c", "d"][n];
                let at = s.get("t", &Key::new("ns", name)).map(|o| o.revision);
                let _ = match (op, at) {
                    (0, Some(r)) => remove(&s, name, r),
                    (_, Some(r)) => write(&s, name, Expect::At(r)),
                    (_, None) => write(&s, name, Expect::Absent),
                };
                past.push((s.revision(), names(&s, &Range::default())));
            }
            for (revision, then) in past {
                prop_assert_eq!(names(&s, &Range { at: Some(revision), ..Range::default() }), then);
                let (changes, _) = s.changes("t", revision).unwrap();
                prop_assert!(changes.iter().all(|c| c.revision > revision));
            }
        }
    }
}
