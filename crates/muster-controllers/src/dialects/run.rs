//! Keeps the count, and writes what is not so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_runtime::api::{ApiError, Patch};
use muster_runtime::common::{Node, Pod};
use muster_runtime::object::Object;
use muster_runtime::queue::{self, Next, Queue};
use muster_runtime::{Context, Key, Store};
use muster_translate::koordinator::Quotas;
use serde_json::{Value, json};

use super::books::{Books, Schedulers, Subject};
use super::{
    ElasticQuota, KoordinatorGroup, KubernetesGroup, T9kGroup, T9kQueue, VolcanoGroup, VolcanoQueue,
    koordinator, kubernetes, t9k, volcano,
};
use crate::amounts::Amounts;
use crate::optional::Optional;
use crate::pace::{Pace, Rates};

/// Where T9k keeps the queues that count.
const T9K_HOME: &str = "t9k-system";

#[derive(Debug, Clone)]
pub struct Options {
    /// The schedulers that Muster answers to; only what their pods belong to is written.
    pub scheduler_names: Vec<String>,
    /// Which statuses are written: those of groups, those of queues and quotas. So two processes can share the work.
    pub groups: bool,
    pub queues: bool,
    /// How long after a change a status is written; also the least time between two writes of one status.
    pub settle: Duration,
    pub rates: Rates,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            scheduler_names: Vec::new(),
            groups: true,
            queues: true,
            settle: Duration::from_secs(1),
            rates: Rates::default(),
        }
    }
}

/// Something with a status that may have to be written.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Target {
    T9kGroup(Key),
    /// By name.
    T9kQueue(String),
    KoordinatorGroup(Key),
    /// All of them: what one may use depends on what the others ask for.
    Quotas,
    VolcanoQueue(String),
    KubernetesGroup(Key),
}

struct Desk {
    schedulers: Schedulers,
    groups: bool,
    queues: bool,
    settle: Duration,
    pace: Pace,
    pods: Arc<Store<Pod>>,
    nodes: Arc<Store<Node>>,
    t9k_groups: Arc<Optional<T9kGroup>>,
    t9k_queues: Arc<Optional<T9kQueue>>,
    koordinator_groups: Arc<Optional<KoordinatorGroup>>,
    quotas: Arc<Optional<ElasticQuota>>,
    volcano_groups: Arc<Optional<VolcanoGroup>>,
    volcano_queues: Arc<Optional<VolcanoQueue>>,
    kubernetes_groups: Arc<Optional<KubernetesGroup>>,
    books: Mutex<Books>,
    to_write: Arc<Queue<Target>>,
}

/// Starts to keep the statuses of those systems whose schedulers Muster answers to.
pub fn start(cx: &Context, options: Options) -> impl Future<Output = ()> + Send + use<> {
    let cx = cx.named("muster-status");
    let desk = Desk::observe(&cx, options);
    async move {
        let work = async {
            if cx.synced([desk.pods.synced()]).await.is_none() {
                return;
            }
            if cx.synced([desk.nodes.synced()]).await.is_none() {
                return;
            }
            let look = |target| desk.look(&cx, target);
            queue::work("statuses of other systems", desk.to_write.clone(), 2, cx.cancel.clone(), look).await;
        };
        let Schedulers { t9k, koordinator, volcano, others } = &desk.schedulers;
        let (groups, queues) = (desk.groups, desk.queues);
        // Queues count their groups; nothing is written of a kind that is not watched.
        let watch = futures::future::join_all([
            desk.watched(&cx, !t9k.is_empty() && (groups || queues), &desk.t9k_groups),
            desk.watched(&cx, !t9k.is_empty() && queues, &desk.t9k_queues),
            desk.watched(&cx, !koordinator.is_empty() && groups, &desk.koordinator_groups),
            desk.watched(&cx, !koordinator.is_empty() && queues, &desk.quotas),
            desk.watched(&cx, !volcano.is_empty() && queues, &desk.volcano_groups),
            desk.watched(&cx, !volcano.is_empty() && queues, &desk.volcano_queues),
            desk.watched(&cx, !others.is_empty() && groups, &desk.kubernetes_groups),
        ]);
        futures::join!(watch, work);
    }
}

impl Desk {
    fn observe(cx: &Context, options: Options) -> Arc<Self> {
        let desk = Arc::new(Desk {
            schedulers: Schedulers::among(&options.scheduler_names),
            groups: options.groups,
            queues: options.queues,
            settle: options.settle,
            pace: Pace::new(options.rates),
            pods: cx.stores.of(),
            nodes: cx.stores.of(),
            t9k_groups: Optional::new(cx),
            t9k_queues: Optional::new(cx),
            koordinator_groups: Optional::new(cx),
            quotas: Optional::new(cx),
            volcano_groups: Optional::new(cx),
            volcano_queues: Optional::new(cx),
            kubernetes_groups: Optional::new(cx),
            books: Mutex::default(),
            to_write: Queue::new(),
        });
        let seen = desk.clone();
        desk.pods.observe(move |change| {
            let Some(key) = change.latest().map(|pod| pod.key()) else { return };
            // A pod that was deleted and made again may be told in any order; what the store has is so.
            let now = seen.pods.get(&key);
            let touched = seen.lock().note(&key, now.as_deref(), &seen.schedulers);
            if !touched.is_empty() {
                seen.pace.note();
            }
            for subject in touched {
                seen.wake(&subject);
            }
        });
        let seen = desk.clone();
        desk.nodes.observe(move |change| {
            let allocatable = |node: &Arc<Node>| node.status.allocatable.clone();
            if change.old.map(allocatable) != change.new.map(allocatable) && seen.quotas.is_served() {
                seen.write_soon(Target::Quotas);
            }
        });
        desk.on_change(&desk.t9k_groups, |desk, group: &T9kGroup| {
            desk.write_soon(Target::T9kGroup(group.key()));
            desk.write_soon(Target::T9kQueue(t9k::queue_of(group).to_owned()));
        });
        desk.on_change(&desk.t9k_queues, |desk, queue: &T9kQueue| {
            desk.write_soon(Target::T9kQueue(queue.metadata.name.clone()));
        });
        desk.on_change(&desk.koordinator_groups, |desk, group: &KoordinatorGroup| {
            desk.write_soon(Target::KoordinatorGroup(group.key()));
        });
        desk.on_change(&desk.quotas, |desk, _: &ElasticQuota| desk.write_soon(Target::Quotas));
        desk.on_change(&desk.volcano_groups, |desk, group: &VolcanoGroup| {
            desk.wake_volcano(volcano::queue_of(group));
        });
        desk.on_change(&desk.volcano_queues, |desk, queue: &VolcanoQueue| {
            desk.wake_volcano(&queue.metadata.name);
        });
        desk.on_change(&desk.kubernetes_groups, |desk, group: &KubernetesGroup| {
            desk.write_soon(Target::KubernetesGroup(group.key()));
        });
        desk
    }

    /// Calls back for both sides of every change to a kind.
    fn on_change<T: Object>(
        self: &Arc<Self>,
        kind: &Optional<T>,
        tell: impl Fn(&Self, &T) + Send + Sync + 'static,
    ) {
        let desk = self.clone();
        kind.store.observe(move |change| change.sides().for_each(|object| tell(&desk, object)));
    }

    fn watched<T: Object>(
        &self,
        cx: &Context,
        wanted: bool,
        kind: &Arc<Optional<T>>,
    ) -> futures::future::BoxFuture<'static, ()> {
        let (cx, kind) = (cx.clone(), kind.clone());
        Box::pin(async move {
            if wanted {
                kind.run(cx).await;
            }
        })
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_soon(&self, target: Target) {
        self.to_write.add_after(target, self.settle);
    }

    /// Whatever shows a total that has changed.
    fn wake(&self, subject: &Subject) {
        match subject {
            Subject::T9kGroup(key) => {
                self.write_soon(Target::T9kGroup(key.clone()));
                if let Some(group) = self.t9k_groups.store.get(key) {
                    self.write_soon(Target::T9kQueue(t9k::queue_of(&group).to_owned()));
                }
            }
            Subject::T9kQueue(name) => self.write_soon(Target::T9kQueue(name.clone())),
            Subject::KoordinatorGroup(key) => self.write_soon(Target::KoordinatorGroup(key.clone())),
            Subject::Quota { .. } => self.write_soon(Target::Quotas),
            Subject::VolcanoGroup(key) => {
                if let Some(group) = self.volcano_groups.store.get(key) {
                    self.wake_volcano(volcano::queue_of(&group));
                }
            }
            Subject::KubernetesGroup(key) => self.write_soon(Target::KubernetesGroup(key.clone())),
        }
    }

    /// A queue and those above it.
    fn wake_volcano(&self, queue: &str) {
        for name in volcano::upwards(&self.volcano_tree(), queue) {
            self.write_soon(Target::VolcanoQueue(name.to_owned()));
        }
    }

    fn volcano_tree(&self) -> BTreeMap<String, String> {
        let queues = self.volcano_queues.store.all();
        let parent = |queue: &Arc<VolcanoQueue>| {
            Some((queue.metadata.name.clone(), volcano::parent_of(queue)?.to_owned()))
        };
        queues.iter().filter_map(parent).collect()
    }

    async fn look(&self, cx: &Context, target: Target) -> Result<Next, ApiError> {
        if self.plan(cx, &target).is_empty() {
            return Ok(Next::Idle);
        }
        self.pace.turn().await;
        // Much may have happened while others had their turns; what is written is what is so now.
        for (key, body) in self.plan(cx, &target) {
            let done = match &target {
                Target::T9kGroup(_) => self.write(cx, &self.t9k_groups, &key, "status", &body).await,
                Target::T9kQueue(_) => self.write(cx, &self.t9k_queues, &key, "status", &body).await,
                Target::KoordinatorGroup(_) => {
                    self.write(cx, &self.koordinator_groups, &key, "", &body).await
                }
                Target::Quotas => self.write(cx, &self.quotas, &key, "", &body).await,
                Target::VolcanoQueue(_) => self.write(cx, &self.volcano_queues, &key, "status", &body).await,
                Target::KubernetesGroup(_) => {
                    self.write(cx, &self.kubernetes_groups, &key, "status", &body).await
                }
            };
            done?;
        }
        Ok(Next::Idle)
    }

    async fn write<T: Object>(
        &self,
        cx: &Context,
        kind: &Optional<T>,
        key: &Key,
        sub: &str,
        body: &Value,
    ) -> Result<(), ApiError> {
        match cx.api.patch::<T>(key, sub, Patch::Merge, body).await {
            Ok(object) => kind.store.enter(object),
            Err(error) if error.not_found() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The objects of a target whose status is not what is so, each with the patch that makes it so.
    fn plan(&self, cx: &Context, target: &Target) -> Vec<(Key, Value)> {
        let now = cx.clock.now();
        let one =
            |key: &Key, patch: Option<Value>| patch.map(|patch| (key.clone(), patch)).into_iter().collect();
        match target {
            Target::T9kGroup(_) if !self.groups => Vec::new(),
            Target::T9kGroup(key) => {
                let Some(group) = self.t9k_groups.store.get(key) else { return Vec::new() };
                let totals = self.lock().of(&Subject::T9kGroup(key.clone()));
                one(key, t9k::group_patch(&group, &totals, now))
            }
            Target::T9kQueue(name) => {
                let named = self.t9k_queues.store.all().into_iter().filter(|q| q.metadata.name == *name);
                let queue = named.min_by_key(|queue| {
                    (queue.metadata.namespace != T9K_HOME, queue.metadata.namespace.clone())
                });
                let Some(queue) = queue else { return Vec::new() };
                let groups = self.t9k_groups.store.all();
                let groups: Vec<_> = groups.iter().filter(|group| t9k::queue_of(group) == name).collect();
                let books = self.lock();
                let mut totals = books.of(&Subject::T9kQueue(name.clone()));
                let n_groups = groups.len() + totals.all().all();
                groups.iter().for_each(|group| totals.add(&books.of(&Subject::T9kGroup(group.key()))));
                drop(books);
                one(&queue.key(), t9k::queue_patch(&queue, &totals, n_groups, now))
            }
            Target::KoordinatorGroup(key) => {
                let Some(group) = self.koordinator_groups.store.get(key) else { return Vec::new() };
                let totals = self.lock().of(&Subject::KoordinatorGroup(key.clone()));
                one(key, koordinator::group_patch(&group, &totals, now))
            }
            Target::Quotas => self.quota_patches(),
            Target::VolcanoQueue(name) => {
                let key = Key::new("", name.as_str());
                let Some(queue) = self.volcano_queues.store.get(&key) else { return Vec::new() };
                let tree = self.volcano_tree();
                let groups = self.volcano_groups.store.all();
                let own = groups.iter().filter(|group| volcano::queue_of(group) == name);
                let phases = volcano::Phases::count(own.map(|group| &**group));
                let mut allocated = Amounts::new();
                let mut below: BTreeMap<&str, bool> = BTreeMap::new();
                let books = self.lock();
                for group in &groups {
                    let of = volcano::queue_of(group);
                    let counts = below
                        .entry(of)
                        .or_insert_with(|| volcano::upwards(&tree, of).contains(name.as_str()));
                    if *counts {
                        allocated.add_all(&books.of(&Subject::VolcanoGroup(group.key())).allocated);
                    }
                }
                drop(books);
                one(&key, volcano::queue_patch(&queue, &phases, &allocated))
            }
            Target::KubernetesGroup(key) => {
                let Some(group) = self.kubernetes_groups.store.get(key) else { return Vec::new() };
                let totals = self.lock().of(&Subject::KubernetesGroup(key.clone()));
                one(key, kubernetes::group_patch(&group, &totals, now))
            }
        }
    }

    fn quota_patches(&self) -> Vec<(Key, Value)> {
        let quotas = self.quotas.store.all();
        let objects: Vec<Value> = quotas.iter().map(|quota| object_of(quota)).collect();
        let mut cluster = Amounts::new();
        for node in self.nodes.all() {
            cluster.add_all(&Amounts::read(&node.status.allocatable));
        }
        let read = Quotas::read(&objects);
        let shares = koordinator::shares(&read, self.lock().quotas(), &cluster);
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let none = koordinator::Share::default();
        quotas
            .iter()
            .filter(|quota| seen.insert(&quota.metadata.name))
            .filter_map(|quota| {
                let share = shares.get(&quota.metadata.name).unwrap_or(&none);
                Some((quota.key(), koordinator::quota_patch(quota, share)?))
            })
            .collect()
    }
}

/// What the division looks at of a quota.
fn object_of(quota: &ElasticQuota) -> Value {
    let meta = &quota.metadata;
    json!({
        "metadata": {
            "name": meta.name, "namespace": meta.namespace, "uid": meta.uid,
            "labels": meta.labels, "annotations": meta.annotations,
        },
        "spec": quota.spec,
    })
}
