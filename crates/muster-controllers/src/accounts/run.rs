//! Keeps the accounts while the cluster changes.
//!
//! Observers only note what must be counted again; a gang is counted after a short while, so that the changes of a burst are
//! counted together. Whoever writes statuses is woken with the names of what changed.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_runtime::common::{self, Node, Pod, PodGroup, PriorityClass};
use muster_runtime::object::Object;
use muster_runtime::queue::{self, Next, Queue};
use muster_runtime::store::Change;
use muster_runtime::{Context, Key, Store};
use serde_json::Value;
use tokio::time::Instant;

use super::plan::{self, GpuMemory, Tally};
use super::{Claim, Members, Sums, Tree, group_of};
use crate::amounts::Amounts;
use crate::optional::Optional;
use crate::pace::Pace;
use crate::request;

/// A gang is counted so long after a change, and a big one later, so that counting stays a small part of the work.
const COUNT_AFTER: Duration = Duration::from_millis(100);
const COUNT_AFTER_PER_POD: Duration = Duration::from_millis(1);
const COUNT_AFTER_AT_MOST: Duration = Duration::from_secs(1);

pub struct Accounts {
    pub groups: Arc<Store<PodGroup>>,
    pub queues: Arc<Store<common::Queue>>,
    pub claims: Arc<Optional<Claim>>,
    pub pace: Pace,
    pods: Arc<Store<Pod>>,
    nodes: Arc<Store<Node>>,
    classes: Arc<Store<PriorityClass>>,
    settle: Duration,
    to_count: Arc<Queue<Key>>,
    to_groups: Option<Arc<Queue<Key>>>,
    to_queues: Option<Arc<Queue<String>>>,
    books: Mutex<Books>,
    /// Before everything has been counted once, there is nothing to count again.
    counting: AtomicBool,
}

#[derive(Default)]
struct Books {
    members: Members,
    entries: HashMap<Key, Timed>,
    tree: Tree,
    memory: GpuMemory,
    /// Groups whose count depends on the memory of GPUs.
    by_memory: HashSet<Key>,
    /// Groups by claim.
    by_claim: HashMap<Key, HashSet<Key>>,
}

#[derive(Clone, PartialEq)]
pub struct Entry {
    pub tally: Arc<Tally>,
    pub preemptible: bool,
}

struct Timed {
    entry: Entry,
    changed_at: Instant,
    /// Since when the status does not say it.
    untold_since: Option<Instant>,
}

/// What there is to say about a queue.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QueueFacts {
    pub sums: Sums,
    pub children: Vec<String>,
    pub parent: String,
    pub parent_exists: bool,
    pub in_circle: bool,
}

impl Accounts {
    /// Puts observers on everything that is counted. `to_groups` and `to_queues` are woken after `settle`.
    pub fn observe(
        cx: &Context,
        to_groups: Option<Arc<Queue<Key>>>,
        to_queues: Option<Arc<Queue<String>>>,
        settle: Duration,
        pace: Pace,
    ) -> Arc<Self> {
        let accounts = Arc::new(Accounts {
            groups: cx.stores.of(),
            queues: cx.stores.of(),
            claims: Optional::new(cx),
            pace,
            pods: cx.stores.of(),
            nodes: cx.stores.of(),
            classes: cx.stores.of(),
            settle,
            to_count: Queue::new(),
            to_groups,
            to_queues,
            books: Mutex::default(),
            counting: AtomicBool::new(false),
        });
        let observer = accounts.clone();
        accounts.pods.observe(move |change| observer.pod_changed(change));
        let observer = accounts.clone();
        accounts.groups.observe(move |change| observer.group_changed(change));
        let observer = accounts.clone();
        accounts.queues.observe(move |change| observer.queue_changed(change));
        let observer = accounts.clone();
        accounts.nodes.observe(move |change| observer.node_changed(change));
        let observer = accounts.clone();
        accounts.classes.observe(move |_| observer.classes_changed());
        let observer = accounts.clone();
        accounts.claims.store.observe(move |change| observer.claim_changed(change));
        accounts
    }

    /// Waits for everything and counts it once; before that, a status would be written that is only half of the truth.
    pub async fn prepare(&self, cx: &Context) -> Option<()> {
        cx.synced([self.pods.synced()]).await?;
        cx.synced([self.groups.synced()]).await?;
        cx.synced([self.queues.synced()]).await?;
        cx.synced([self.nodes.synced()]).await?;
        cx.synced([self.classes.synced()]).await?;
        cx.synced([self.claims.settled()]).await?;
        self.counting.store(true, Ordering::Release);
        for key in self.groups.keys() {
            self.count(&key);
            tokio::task::yield_now().await;
        }
        Some(())
    }

    /// Counts what changes until cancelled.
    pub async fn work(&self, cx: &Context) {
        queue::work("accounts", self.to_count.clone(), 1, cx.cancel.clone(), |key| async move {
            self.count(&key);
            // Thousands of gangs at once must not keep a runtime from its other work.
            tokio::task::yield_now().await;
            Ok(Next::Idle)
        })
        .await;
    }

    pub fn group(&self, key: &Key) -> Option<Entry> {
        self.lock().entries.get(key).map(|timed| timed.entry.clone())
    }

    /// How long a group has been still, and how long its status has been untrue.
    pub fn waited(&self, key: &Key) -> (Duration, Duration) {
        let books = self.lock();
        let now = Instant::now();
        let since = |at: Instant| now.saturating_duration_since(at);
        books.entries.get(key).map_or((Duration::MAX, Duration::ZERO), |timed| {
            (since(timed.changed_at), timed.untold_since.map_or(Duration::ZERO, since))
        })
    }

    /// The status of a group says what is so.
    pub fn told(&self, key: &Key) {
        if let Some(timed) = self.lock().entries.get_mut(key) {
            timed.untold_since = None;
        }
    }

    pub fn queue(&self, name: &str) -> QueueFacts {
        let parent = self.queues.get(&Key::new("", name)).map(|q| parent_of(&q)).unwrap_or_default();
        let books = self.lock();
        QueueFacts {
            sums: books.tree.total(name),
            children: books.tree.children(name),
            parent_exists: books.tree.exists(&parent),
            in_circle: books.tree.in_circle(name),
            parent,
        }
    }

    fn count(&self, key: &Key) {
        let group = self.groups.get(key);
        let preemptible = group.as_ref().is_some_and(|group| self.preemptible(group));
        let mut books = self.lock();
        let pods = books.members.of(key, &self.pods);
        let Some(group) = group else {
            books.index(key, &Tally::default());
            books.entries.remove(key);
            let changed = books.tree.drop_group(key);
            drop(books);
            return self.wake_queues(changed);
        };
        let tally = plan::tally(&pods, &books.memory, |name| {
            self.claims.store.get(&Key::new(key.namespace.as_str(), name))
        });
        books.index(key, &tally);
        let sums = Sums {
            fixed: if preemptible { Amounts::new() } else { tally.allocated.clone() },
            requested: tally.requested.clone(),
            allocated: tally.allocated.clone(),
        };
        let queue = group.spec.get("queue").and_then(Value::as_str).unwrap_or("");
        let changed = books.tree.put_group(key, queue, sums);
        let entry = Entry { tally: Arc::new(tally), preemptible };
        let known = books.entries.get(key);
        let is_new = known.is_none_or(|timed| timed.entry != entry);
        if is_new {
            let now = Instant::now();
            let untold_since = known.and_then(|timed| timed.untold_since).or(Some(now));
            books.entries.insert(key.clone(), Timed { entry, changed_at: now, untold_since });
        }
        drop(books);
        if is_new && let Some(to_groups) = &self.to_groups {
            to_groups.add_after(key.clone(), self.settle);
        }
        self.wake_queues(changed);
    }

    fn preemptible(&self, group: &PodGroup) -> bool {
        let class = |name: &str| self.classes.get(&Key::new("", name)).map(|class| class.value);
        let default = || self.classes.all().iter().filter(|c| c.global_default).map(|c| c.value).max();
        plan::preemptible(group, class, default)
    }

    fn pod_changed(&self, change: &Change<'_, Pod>) {
        let is_news = match (change.old, change.new) {
            (Some(old), Some(new)) => plan::counts_differ(old, new) || group_of(old) != group_of(new),
            _ => true,
        };
        if !is_news {
            return;
        }
        self.pace.note();
        for pod in change.sides() {
            let noted = self.lock().members.note(pod);
            if let Some((key, n_members)) = noted {
                let more = COUNT_AFTER_PER_POD.saturating_mul(u32::try_from(n_members).unwrap_or(u32::MAX));
                self.count_later(key, COUNT_AFTER.saturating_add(more).min(COUNT_AFTER_AT_MOST));
            }
        }
    }

    fn count_later(&self, key: Key, wait: Duration) {
        if self.counting.load(Ordering::Acquire) {
            self.to_count.add_after(key, wait);
        }
    }

    fn group_changed(&self, change: &Change<'_, PodGroup>) {
        let Some(group) = change.latest() else { return };
        let same_wish = match (change.old, change.new) {
            (Some(old), Some(new)) => old.metadata.uid == new.metadata.uid && old.spec == new.spec,
            _ => false,
        };
        if !same_wish {
            self.count_later(group.key(), COUNT_AFTER);
        }
        // Also when only the status changed: whoever overwrote what we keep true is overruled. And when the group is new: one that was deleted
        // and made again has the same pods as before and no status.
        if change.new.is_some()
            && let Some(to_groups) = &self.to_groups
        {
            to_groups.add_after(group.key(), self.settle);
        }
    }

    fn queue_changed(&self, change: &Change<'_, common::Queue>) {
        let Some(queue) = change.latest() else { return };
        let name = &queue.metadata.name;
        // A queue that was deleted and made again may be told in any order; what the store has is so.
        let mut changed = match self.queues.get(&queue.key()) {
            Some(now) => self.lock().tree.put_queue(name, &parent_of(&now)),
            None => self.lock().tree.drop_queue(name),
        };
        if change.new.is_some() {
            changed.insert(name.clone());
        }
        self.wake_queues(changed);
    }

    fn node_changed(&self, change: &Change<'_, Node>) {
        let Some(node) = change.latest() else { return };
        let memory = self.nodes.get(&node.key()).and_then(|node| request::gpu_memory(&node));
        let groups: Vec<Key> = {
            let mut books = self.lock();
            if !books.memory.set(&node.metadata.name, memory) {
                return;
            }
            books.by_memory.iter().cloned().collect()
        };
        for key in groups {
            self.count_later(key, COUNT_AFTER_AT_MOST);
        }
    }

    /// Classes hardly ever change, and any may have been the default.
    fn classes_changed(&self) {
        for key in self.groups.keys() {
            self.count_later(key, COUNT_AFTER_AT_MOST);
        }
    }

    fn claim_changed(&self, change: &Change<'_, Claim>) {
        let same = match (change.old, change.new) {
            (Some(old), Some(new)) => old.spec == new.spec && old.status == new.status,
            _ => false,
        };
        let Some(claim) = change.latest().filter(|_| !same) else { return };
        let groups: Vec<Key> =
            self.lock().by_claim.get(&claim.key()).into_iter().flatten().cloned().collect();
        for key in groups {
            self.count_later(key, COUNT_AFTER);
        }
    }

    fn wake_queues(&self, names: BTreeSet<String>) {
        let Some(to_queues) = &self.to_queues else { return };
        for name in names {
            to_queues.add_after(name, self.settle);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    /// Remembers what a group's count depends on.
    fn index(&mut self, key: &Key, tally: &Tally) {
        if tally.by_memory {
            self.by_memory.insert(key.clone());
        } else {
            self.by_memory.remove(key);
        }
        let claim_key = |name: &String| Key::new(key.namespace.as_str(), name.as_str());
        let old = self.entries.get(key).map(|timed| timed.entry.tally.clone());
        for name in old.iter().flat_map(|old| &old.claims).filter(|name| !tally.claims.contains(*name)) {
            if let Some(groups) = self.by_claim.get_mut(&claim_key(name)) {
                groups.remove(key);
                if groups.is_empty() {
                    self.by_claim.remove(&claim_key(name));
                }
            }
        }
        for name in &tally.claims {
            let groups = self.by_claim.entry(claim_key(name)).or_default();
            if !groups.contains(key) {
                groups.insert(key.clone());
            }
        }
    }
}

fn parent_of(queue: &common::Queue) -> String {
    queue.spec.get("parentQueue").and_then(Value::as_str).unwrap_or("").to_owned()
}
