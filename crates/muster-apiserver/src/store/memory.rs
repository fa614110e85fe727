//! The store in memory: the objects of each table and a bounded ring of their changes.
//!
//! A list at an older revision is the present state with the newer changes undone, so a paged list stays consistent for
//! as long as the ring reaches back to its first page, costs nothing while nobody pages, and never more than the page and the ring.
//!
//! A store on disk is this one with a journal: changes are handed to it in order, watchers hear of them once it says that they
//! are [told](Memory::tell), and those that could not be kept are [undone](Memory::undo).

use super::objects::Objects;
use super::{Change, Clash, Compacted, Draft, Expect, Key, Page, Range, Revision, Store, Stored, Table};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard};
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
    /// How much text the history of a table may hold.
    history_bytes: usize,
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
    fn record(&mut self, change: Change, told: Revision, most: usize) {
        self.history_bytes += change.object.text.len();
        if change.revision <= told {
            self.changed.send_replace(change.revision);
        }
        self.history.push_back(change);
        while self.history_bytes > most
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

    /// What was different at `revision`: each object that has changed since as it was, or that it was not there.
    fn differences(&self, revision: Revision) -> Result<BTreeMap<&Key, Option<&Stored>>, Compacted> {
        if revision < self.compacted {
            return Err(Compacted { asked: revision, oldest: self.compacted });
        }
        // From the newest on, so that the oldest change of an object has the last word.
        let since = self.history.iter().rev().take_while(|c| c.revision > revision);
        Ok(since.map(|change| (&change.object.key, change.previous.as_ref())).collect())
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

    /// An empty store that remembers so many bytes of the past of each table, and a few changes whatever their size.
    pub fn remembering(history_bytes: usize) -> Memory {
        let memory = Memory::new();
        memory.lock().history_bytes = history_bytes;
        memory
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
        rows.record(Change { revision, object, previous, deleted }, revision, HISTORY_BYTES);
    }

    /// The store at a revision. The empty one is at 1, so that no list ever reports 0, which means "any" to clients.
    pub fn finish(self, revision: Revision, journal: Option<Journal>) -> Memory {
        let inner = Inner {
            revision,
            given: revision,
            told: revision,
            history_bytes: HISTORY_BYTES,
            tables: self.tables,
        };
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
            let n_before = rows.history.len();
            while let Some(change) = rows.history.pop_back_if(|change| change.revision > told) {
                rows.revert(change);
            }
            if rows.history.len() < n_before {
                // Whoever made something of what is gone makes it anew.
                rows.changed.send_replace(told);
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

/// The objects from a key on, in order, as they were before they became different.
fn before<'a>(
    objects: &'a Objects,
    differences: &'a BTreeMap<&'a Key, Option<&'a Stored>>,
    start: Bound<&'a Key>,
) -> impl Iterator<Item = &'a Stored> {
    let mut now = objects.from(start).peekable();
    let mut then = differences.range::<Key, _>((start, Bound::Unbounded)).peekable();
    let mut next = move || match (now.peek(), then.peek()) {
        (Some(is), Some((key, _))) if is.key < ***key => now.next().map(Some),
        (Some(_), None) => now.next().map(Some),
        (is, Some((key, _))) => {
            if is.is_some_and(|is| is.key == ***key) {
                now.next();
            }
            then.next().map(|(_, was)| *was)
        }
        (None, None) => None,
    };
    // What is new since then is passed over.
    std::iter::from_fn(move || Some(next())).map_while(|step| step).flatten()
}

/// A page of a walk from the start of the range. `count` counts what is in the range after a key, where that is not known yet.
fn page<'a>(
    walk: impl Iterator<Item = &'a Stored>,
    range: &Range<'_>,
    revision: Revision,
    keep: &mut dyn FnMut(&Stored) -> bool,
    count: impl FnOnce(&Key) -> usize,
) -> Page {
    let mut page = Page { items: Vec::new(), revision, next: None, remaining: 0 };
    let within = |object: &&Stored| range.has(&object.key);
    for (n, object) in walk.take_while(within).enumerate() {
        if !keep(object) {
            continue;
        }
        page.items.push(object.clone());
        if page.items.len() == range.limit {
            // More of the table, whether it passes or not: looking further would cost what a page is to save.
            page.remaining = match range.left {
                Some(left) => left.saturating_sub(n + 1),
                None => count(&object.key),
            };
            page.next = Some(object.key.clone()).filter(|_| page.remaining > 0);
            break;
        }
    }
    page
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
        let floor = Key::new(range.namespace.unwrap_or_default(), "");
        let start = range.after.as_ref().map_or(Bound::Included(&floor), Bound::Excluded);
        let objects = &rows.objects;
        match range.at.filter(|at| rows.history.back().is_some_and(|c| c.revision > *at)) {
            Some(at) => {
                let differences = rows.differences(at)?;
                let rest = |last: &Key| {
                    let rest = before(objects, &differences, Bound::Excluded(last));
                    rest.take_while(|object| range.has(&object.key)).count()
                };
                Ok(page(before(objects, &differences, start), range, at, keep, rest))
            }
            None => {
                let is_all = range.namespace.is_none() && range.after.is_none();
                let left = range.left.or_else(|| is_all.then(|| objects.len()));
                let range = &Range { left, ..range.clone() };
                let rest = |last: &Key| objects.keys_after(last).take_while(|key| range.has(key)).count();
                Ok(page(objects.from(start), range, revision, keep, rest))
            }
        }
    }

    fn len(&self, table: &str) -> usize {
        self.lock().tables.get(table).map_or(0, |r| r.objects.len())
    }

    fn put(&self, table: &Table, key: &Key, expect: Expect, draft: Draft) -> Result<Stored, Clash> {
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
        let object = Stored { key, revision, text: draft.text_at(revision), facts: draft.facts };
        let previous = rows.objects.insert(object.clone());
        let change = Change { revision, object: object.clone(), previous, deleted: false };
        (inner.revision, inner.given) = (revision, revision);
        match &self.journal {
            Some(journal) => journal(table, &change),
            None => inner.told = revision,
        }
        rows.record(change, inner.told, inner.history_bytes);
        self.unlock(guard);
        Ok(object)
    }

    fn delete(&self, table: &str, key: &Key, expect: Revision, draft: Draft) -> Result<Stored, Clash> {
        let mut guard = self.lock();
        let inner = &mut *guard;
        let revision = inner.given + 1;
        let rows = inner.tables.get_mut(table).ok_or(Clash::Absent)?;
        let previous = rows.objects.get(key).ok_or(Clash::Absent)?.clone();
        if previous.revision != expect {
            return Err(Clash::Moved);
        }
        let (text, key) = (draft.text_at(revision), previous.key.clone());
        let object = Stored { key: key.clone(), revision, text, facts: draft.facts };
        rows.objects.remove(&key);
        let change = Change { revision, object: object.clone(), previous: Some(previous), deleted: true };
        (inner.revision, inner.given) = (revision, revision);
        match &self.journal {
            Some(journal) => journal(&table.into(), &change),
            None => inner.told = revision,
        }
        rows.record(change, inner.told, inner.history_bytes);
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
            .put(&"t".into(), &Key::new("ns", name), expect, Draft::new("{\"r\":", "}", Facts::default()))
            .map(|s| s.revision)
    }

    fn remove(store: &Memory, name: &str, at: Revision) -> Result<Revision, Clash> {
        store
            .delete("t", &Key::new("ns", name), at, Draft::new("{\"r\":", "}", Facts::default()))
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
                prop_assert_eq!(names(&s, &Range { at: Some(revision), ..Range::default() }), then.clone());
                // Page by page, whether the page before is believed about how many are left or not.
                for believes in [false, true] {
                    let mut range = Range { at: Some(revision), limit: 2, ..Range::default() };
                    let mut seen = 0;
                    loop {
                        let page = s.list("t", &range, &mut |_| true).unwrap();
                        seen += page.items.len();
                        let paged: Vec<String> = page.items.iter().map(|o| format!("{}@{}", o.key.name, o.revision)).collect();
                        prop_assert_eq!(&paged, &then[seen - paged.len()..seen]);
                        prop_assert_eq!(page.remaining, then.len() - seen);
                        if page.next.is_none() {
                            break;
                        }
                        range.after = page.next;
                        range.left = believes.then_some(page.remaining);
                    }
                    prop_assert_eq!(seen, then.len());
                }
                let (changes, _) = s.changes("t", revision).unwrap();
                prop_assert!(changes.iter().all(|c| c.revision > revision));
            }
        }
    }
}
