//! Where objects live. In: puts and deletes with the revision they were based on. Out: objects, consistent lists, and the
//! ordered history of changes.
//!
//! Invariants: one revision counter for the whole store, raised by every write; a write either happens whole or not at all;
//! an object's text never changes in place, so readers and watchers share it without copying. The store knows keys and
//! bytes; what an object means is the caller's business.

mod memory;
mod objects;

pub mod disk;

pub use disk::{Durability, Durable};
pub use memory::Memory;

use std::borrow::Cow;
use std::sync::Arc;

/// Revision of the store; an object's `resourceVersion` is the revision of its last write.
pub type Revision = u64;

/// A table's name: `deployments.apps`, or just `pods` in the core group.
pub type Table = Arc<str>;

/// Where an object is within its table. Ordered by namespace, then name: the order of lists.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

impl Key {
    /// A key; the namespace is empty for cluster-scoped objects.
    pub fn new(namespace: &str, name: &str) -> Key {
        Key { namespace: namespace.into(), name: name.into() }
    }
}

/// Names and values, few of them and many times over: a sorted slice takes a fraction of a map's memory.
pub type Pairs = Box<[(Cow<'static, str>, Box<str>)]>;

/// What the server must know of an object without reading its text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// `metadata.labels`, for selectors.
    pub labels: Pairs,
    /// Values of the kind's selectable fields; one that is empty is left out.
    pub fields: Pairs,
    /// Uids of `metadata.ownerReferences`.
    pub owners: Vec<Arc<str>>,
    /// Whether `metadata.deletionTimestamp` is set.
    pub terminating: bool,
    /// Where the record of field managers begins and ends in the text, comma and all, counted from the end of the text. `None` where there is none, and
    /// in what was read from disk, where nobody noted it.
    pub record: Option<(u32, u32)>,
}

impl Facts {
    /// A label's value.
    pub fn label(&self, name: &str) -> Option<&str> {
        look_up(&self.labels, name)
    }

    /// A selectable field's value.
    pub fn field(&self, name: &str) -> Option<&str> {
        look_up(&self.fields, name)
    }
}

fn look_up<'a>(pairs: &'a Pairs, name: &str) -> Option<&'a str> {
    pairs.iter().find(|(n, _)| n == name).map(|(_, v)| &**v)
}

/// An object at rest: its text without `apiVersion` and `kind`, which the reader's version decides.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Its place.
    pub key: Key,
    /// Revision of the write that made it so.
    pub revision: Revision,
    /// JSON object text, `metadata.resourceVersion` included.
    pub text: Arc<str>,
    /// What selectors and garbage collection need.
    pub facts: Arc<Facts>,
}

/// What a writer hands over: an object whose revision the store is about to give.
#[derive(Clone, Debug)]
pub struct Draft {
    /// JSON object text without `apiVersion` and `kind`, up to where the revision goes.
    before: String,
    /// The rest of it.
    after: String,
    facts: Arc<Facts>,
}

impl Draft {
    /// A text with a gap for the revision.
    pub fn new(before: impl Into<String>, after: impl Into<String>, facts: impl Into<Arc<Facts>>) -> Draft {
        Draft { before: before.into(), after: after.into(), facts: facts.into() }
    }

    fn text_at(&self, revision: Revision) -> Arc<str> {
        [self.before.as_str(), &revision.to_string(), &self.after].concat().into()
    }
}

/// What must be true of the stored object for a write to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// There must be none.
    Absent,
    /// It must be at this revision.
    At(Revision),
}

/// Why a write did not happen.
#[derive(Clone, Debug)]
pub enum Clash {
    /// There is one already.
    Exists,
    /// It is gone.
    Absent,
    /// It has moved on.
    Moved,
}

/// The history no longer reaches back that far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("revision {asked} has been compacted, the oldest is {oldest}")]
pub struct Compacted {
    /// What was asked for.
    pub asked: Revision,
    /// The oldest that can still be had.
    pub oldest: Revision,
}

/// What happened to an object.
#[derive(Clone, Debug)]
pub struct Change {
    /// Revision of the change.
    pub revision: Revision,
    /// The object after it; for a delete the last state, at the revision of the delete.
    pub object: Stored,
    /// The object before it; none when it was created.
    pub previous: Option<Stored>,
    /// Whether the object is gone.
    pub deleted: bool,
}

/// A consistent page of a table.
#[derive(Clone, Debug)]
pub struct Page {
    /// Objects in key order.
    pub items: Vec<Stored>,
    /// The revision at which they were so.
    pub revision: Revision,
    /// The key to go on after, if more of the range follows, whether it passes the filter or not.
    pub next: Option<Key>,
    /// How many more there are after `next` (only known without selectors).
    pub remaining: usize,
}

/// Which part of a table to list.
#[derive(Clone, Debug, Default)]
pub struct Range<'a> {
    /// Only this namespace.
    pub namespace: Option<&'a str>,
    /// Only keys after this one.
    pub after: Option<Key>,
    /// At most so many; 0 for all.
    pub limit: usize,
    /// As it was at this revision.
    pub at: Option<Revision>,
    /// How many there are, where that is known from the page before.
    pub left: Option<usize>,
}

impl Range<'_> {
    fn has(&self, key: &Key) -> bool {
        self.namespace.is_none_or(|namespace| &*key.namespace == namespace)
    }
}

/// The store. Synchronous: every call is short, and none blocks on anything but a lock.
pub trait Store: Send + Sync + 'static {
    /// The newest revision.
    fn revision(&self) -> Revision;
    /// One object.
    fn get(&self, table: &str, key: &Key) -> Option<Stored>;
    /// A consistent page; `keep` filters while walking.
    fn list(
        &self,
        table: &str,
        range: &Range<'_>,
        keep: &mut dyn FnMut(&Stored) -> bool,
    ) -> Result<Page, Compacted>;
    /// Number of objects in a table.
    fn len(&self, table: &str) -> usize;
    /// Creates or replaces an object if `expect` holds.
    fn put(&self, table: &Table, key: &Key, expect: Expect, draft: Draft) -> Result<Stored, Clash>;
    /// Removes an object if it is at `expect`; `draft` is its last state.
    fn delete(&self, table: &str, key: &Key, expect: Revision, draft: Draft) -> Result<Stored, Clash>;
    /// Changes of a table after a revision, oldest first, and the revision up to which they are complete.
    fn changes(&self, table: &str, after: Revision) -> Result<(Vec<Change>, Revision), Compacted>;
    /// Wakes when the table changes.
    fn subscribe(&self, table: &Table) -> tokio::sync::watch::Receiver<Revision>;
    /// Names of all tables that hold or held objects.
    fn tables(&self) -> Vec<Table>;
    /// Wakes on any change, in any table.
    fn subscribe_all(&self) -> tokio::sync::watch::Receiver<Revision>;
    /// Ends all subscriptions to a table: its kind is no longer served.
    fn retire(&self, table: &str);
    /// What of it is on disk; none if it lives in memory only. With it, whoever tells what it saw of the store waits until that is
    /// kept; changes and subscriptions speak of nothing else.
    fn durability(&self) -> Option<&Durability> {
        None
    }
}
