//! What admission knows of the cluster besides the object before it.
//!
//! In: watched stores ([`Watched`]) or plain values ([`Given`]). Out: answers to the few questions that rules ask. Must
//! stay true: what is not known yet is `None`, and no rule complains about what is not known.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use muster_grove::object::{ClusterTopologyBinding, PodCliqueSet};
use muster_kueue::keys::DEFAULT_QUEUE;
use muster_runtime::common::{PriorityClass, Queue};
use muster_runtime::object::{Meta, Object};
use muster_runtime::{Context, Key, Store};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Notify;

use crate::settings::Settings;

muster_runtime::kinds! {
    Namespace = "" "v1" "Namespace" "namespaces";
    RuntimeClass = "node.k8s.io" "v1" "RuntimeClass" "runtimeclasses";
    CliqueMinimum = "grove.io" "v1alpha1" "PodClique" "podcliques";
    GroupMinimum = "grove.io" "v1alpha1" "PodCliqueScalingGroup" "podcliquescalinggroups";
    T9kQueue = "scheduler.tensorstack.dev" "v1beta1" "Queue" "queues";
    VolcanoQueue = "scheduling.volcano.sh" "v1beta1" "Queue" "queues";
    ElasticQuota = "scheduling.sigs.k8s.io" "v1alpha1" "ElasticQuota" "elasticquotas";
    LocalQueue = "kueue.x-k8s.io" "v1beta2" "LocalQueue" "localqueues";
}

/// How many pods a PodClique cannot do without.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct CliqueMinimum {
    pub metadata: Meta,
    spec: Minimum,
}

/// How many replicas a PodCliqueScalingGroup cannot do without.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct GroupMinimum {
    pub metadata: Meta,
    spec: Minimum,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Minimum {
    min_available: Option<i64>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Namespace {
    pub metadata: Meta,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct RuntimeClass {
    pub metadata: Meta,
}

/// A queue of Kueue's in a namespace: that it is there.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct LocalQueue {
    pub metadata: Meta,
}

/// What other systems have as queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OtherKind {
    T9kQueue,
    VolcanoQueue,
    ElasticQuota,
}

/// An object of another system; its rules read the JSON.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Other {
    pub metadata: Meta,
    pub spec: Value,
    pub status: Value,
}

macro_rules! others {
    ($($name:ident),*) => {$(
        #[derive(Debug, Clone, Default, PartialEq, Deserialize)]
        #[serde(default)]
        pub struct $name {
            pub metadata: Meta,
            spec: Value,
            status: Value,
        }

        impl $name {
            fn shown(&self) -> Arc<Other> {
                let Self { metadata, spec, status } = self.clone();
                Arc::new(Other { metadata, spec, status })
            }
        }
    )*};
}

others!(T9kQueue, VolcanoQueue, ElasticQuota);

/// The questions.
pub trait World: Send + Sync {
    /// `None`: not known; `Some(None)`: there is no such queue.
    fn queue(&self, name: &str) -> Option<Option<Arc<Queue>>>;

    /// The queues whose parent this is, in order of name.
    fn children(&self, name: &str) -> Option<Vec<Arc<Queue>>>;

    /// Names that a misspelt queue may have meant.
    fn queue_names(&self) -> Vec<String>;

    fn namespace(&self, name: &str) -> Option<Arc<Namespace>>;

    fn has_priority_class(&self, name: &str) -> Option<bool>;

    fn has_runtime_class(&self, name: &str) -> Option<bool>;

    /// A ClusterTopologyBinding; `None`: not known, `Some(None)`: there is none.
    fn topology_binding(&self, name: &str) -> Option<Option<Arc<ClusterTopologyBinding>>>;

    /// A PodCliqueSet, in the same way.
    fn clique_set(&self, namespace: &str, name: &str) -> Option<Option<Arc<PodCliqueSet>>>;

    /// How many pods a PodClique cannot do without, if that is known.
    fn clique_minimum(&self, namespace: &str, name: &str) -> Option<i64>;

    /// How many replicas a PodCliqueScalingGroup cannot do without, if that is known.
    fn group_minimum(&self, namespace: &str, name: &str) -> Option<i64>;

    /// All queues of another system; `None`: not known.
    fn others(&self, kind: OtherKind) -> Option<Vec<Arc<Other>>>;

    /// Whether the cluster has Kueue's queues, and Kueue itself does not run there.
    fn keeps_kueue(&self) -> bool;

    /// Whether a namespace has this LocalQueue, if that is known.
    fn has_local_queue(&self, namespace: &str, name: &str) -> Option<bool>;
}

/// The parent that a queue names; empty for a root.
pub(crate) fn parent_of(queue: &Queue) -> &str {
    queue.spec.get("parentQueue").and_then(serde_json::Value::as_str).unwrap_or_default()
}

/// A world of plain values: `None` for what is not known.
#[derive(Debug, Clone, Default)]
pub struct Given {
    pub queues: Option<BTreeMap<String, Arc<Queue>>>,
    pub namespaces: BTreeMap<String, Arc<Namespace>>,
    pub priority_classes: Option<BTreeSet<String>>,
    pub runtime_classes: Option<BTreeSet<String>>,
    pub bindings: Option<BTreeMap<String, Arc<ClusterTopologyBinding>>>,
    /// By namespace and name.
    pub sets: Option<BTreeMap<(String, String), Arc<PodCliqueSet>>>,
    /// By kind, namespace and name.
    pub minima: BTreeMap<(&'static str, String, String), i64>,
    pub others: BTreeMap<OtherKind, Vec<Arc<Other>>>,
    /// By namespace and name.
    pub local_queues: Option<BTreeSet<(String, String)>>,
}

impl Given {
    fn minimum(&self, kind: &'static str, namespace: &str, name: &str) -> Option<i64> {
        self.minima.get(&(kind, namespace.to_owned(), name.to_owned())).copied()
    }
}

impl World for Given {
    fn queue(&self, name: &str) -> Option<Option<Arc<Queue>>> {
        self.queues.as_ref().map(|queues| queues.get(name).cloned())
    }

    fn children(&self, name: &str) -> Option<Vec<Arc<Queue>>> {
        let queues = self.queues.as_ref()?;
        Some(queues.values().filter(|queue| parent_of(queue) == name).cloned().collect())
    }

    fn queue_names(&self) -> Vec<String> {
        self.queues.iter().flat_map(BTreeMap::keys).cloned().collect()
    }

    fn namespace(&self, name: &str) -> Option<Arc<Namespace>> {
        self.namespaces.get(name).cloned()
    }

    fn has_priority_class(&self, name: &str) -> Option<bool> {
        self.priority_classes.as_ref().map(|classes| classes.contains(name))
    }

    fn has_runtime_class(&self, name: &str) -> Option<bool> {
        self.runtime_classes.as_ref().map(|classes| classes.contains(name))
    }

    fn topology_binding(&self, name: &str) -> Option<Option<Arc<ClusterTopologyBinding>>> {
        self.bindings.as_ref().map(|bindings| bindings.get(name).cloned())
    }

    fn clique_set(&self, namespace: &str, name: &str) -> Option<Option<Arc<PodCliqueSet>>> {
        let key = (namespace.to_owned(), name.to_owned());
        self.sets.as_ref().map(|sets| sets.get(&key).cloned())
    }

    fn clique_minimum(&self, namespace: &str, name: &str) -> Option<i64> {
        self.minimum("PodClique", namespace, name)
    }

    fn group_minimum(&self, namespace: &str, name: &str) -> Option<i64> {
        self.minimum("PodCliqueScalingGroup", namespace, name)
    }

    fn others(&self, kind: OtherKind) -> Option<Vec<Arc<Other>>> {
        self.others.get(&kind).cloned()
    }

    fn keeps_kueue(&self) -> bool {
        self.local_queues.is_some()
    }

    fn has_local_queue(&self, namespace: &str, name: &str) -> Option<bool> {
        let queues = self.local_queues.as_ref()?;
        Some(queues.contains(&(namespace.to_owned(), name.to_owned())))
    }
}

const MOST_NAMES: usize = 500;

/// The world as the stores of this process have it.
pub struct Watched {
    queues: Arc<Seen<Queue>>,
    namespaces: Arc<Seen<Namespace>>,
    priority_classes: Arc<Seen<PriorityClass>>,
    runtime_classes: Arc<Seen<RuntimeClass>>,
    bindings: Arc<Seen<ClusterTopologyBinding>>,
    cliques: Arc<Seen<CliqueMinimum>>,
    groups: Arc<Seen<GroupMinimum>>,
    /// Only where what belongs to sets is kept from others.
    sets: Option<Arc<Seen<PodCliqueSet>>>,
    t9k_queues: Arc<Seen<T9kQueue>>,
    volcano_queues: Arc<Seen<VolcanoQueue>>,
    quotas: Arc<Seen<ElasticQuota>>,
    /// Only where Kueue's queues are looked after.
    kueue: Option<Arc<KueueSeen>>,
}

/// What is known of Kueue's queues.
struct KueueSeen {
    queues: Arc<Seen<LocalQueue>>,
    is_kept_by_others: AtomicBool,
    /// Something changed that registrations depend on.
    news: Notify,
}

impl KueueSeen {
    fn new(cx: &Context) -> Arc<Self> {
        let seen = Arc::new(KueueSeen {
            queues: Seen::new(cx),
            is_kept_by_others: AtomicBool::new(false),
            news: Notify::new(),
        });
        let weak = Arc::downgrade(&seen);
        seen.queues.store.observe(move |change| {
            let is_news = change.old.is_none() || change.new.is_none();
            if is_news
                && change.latest().is_some_and(|queue| queue.metadata.name == DEFAULT_QUEUE)
                && let Some(seen) = weak.upgrade()
            {
                seen.news.notify_one();
            }
        });
        seen
    }

    /// Notes when the queues are known, and from then on whether Kueue itself runs.
    async fn follow(self: Arc<Self>, cx: Context) {
        self.queues.store.synced().await;
        loop {
            let is_kept = muster_kueue::kept_by_others(&cx.api, cx.clock).await;
            let was_kept = self.is_kept_by_others.swap(is_kept, Ordering::AcqRel);
            // Whether it is ours is known before the queues are.
            let was_known = self.queues.is_synced.swap(true, Ordering::AcqRel);
            if is_kept != was_kept || !was_known {
                self.news.notify_one();
            }
            tokio::time::sleep(LOOK_FOR_OTHERS).await;
        }
    }
}

/// How often it is looked whether Kueue itself runs.
const LOOK_FOR_OTHERS: Duration = Duration::from_secs(10);

/// A store, and whether its first list is in. A store whose kind is not installed never gets there, and nobody waits.
struct Seen<T> {
    store: Arc<Store<T>>,
    is_synced: AtomicBool,
}

impl<T: Object> Seen<T> {
    fn new(cx: &Context) -> Arc<Self> {
        Arc::new(Seen { store: cx.stores.of(), is_synced: AtomicBool::new(false) })
    }

    async fn follow(self: Arc<Self>) {
        self.store.synced().await;
        self.is_synced.store(true, Ordering::Release);
    }

    fn store(&self) -> Option<&Store<T>> {
        self.is_synced.load(Ordering::Acquire).then_some(&*self.store)
    }

    fn has(&self, name: &str) -> Option<bool> {
        self.store().map(|store| store.get(&Key::new("", name)).is_some())
    }
}

impl Watched {
    /// Asks for the stores; the future notes when each is filled.
    pub fn new(cx: &Context) -> (Arc<Self>, impl Future<Output = ()> + Send + 'static + use<>) {
        Self::with(cx, &Settings::default())
    }

    /// The same, with what these settings need to know besides.
    pub fn with(
        cx: &Context,
        settings: &Settings,
    ) -> (Arc<Self>, impl Future<Output = ()> + Send + 'static + use<>) {
        let world = Arc::new(Watched {
            queues: Seen::new(cx),
            namespaces: Seen::new(cx),
            priority_classes: Seen::new(cx),
            runtime_classes: Seen::new(cx),
            bindings: Seen::new(cx),
            cliques: Seen::new(cx),
            groups: Seen::new(cx),
            sets: settings.grove.protect.then(|| Seen::new(cx)),
            t9k_queues: Seen::new(cx),
            volcano_queues: Seen::new(cx),
            quotas: Seen::new(cx),
            kueue: settings.kueue.as_ref().map(|_| KueueSeen::new(cx)),
        });
        let (kueue, cx) = (world.kueue.clone(), cx.clone());
        let kueue = async move {
            if let Some(kueue) = kueue {
                let cancel = cx.cancel.clone();
                cancel.run_until_cancelled(kueue.follow(cx)).await;
            }
        };
        let (queues, namespaces) = (world.queues.clone().follow(), world.namespaces.clone().follow());
        let priorities = world.priority_classes.clone().follow();
        let runtimes = world.runtime_classes.clone().follow();
        let (cliques, groups) = (world.cliques.clone().follow(), world.groups.clone().follow());
        let (bindings, sets) = (world.bindings.clone().follow(), world.sets.clone());
        let sets = async move {
            if let Some(sets) = sets {
                sets.follow().await;
            }
        };
        let (t9k, volcano) = (world.t9k_queues.clone().follow(), world.volcano_queues.clone().follow());
        let quotas = world.quotas.clone().follow();
        let others = async { futures::join!(t9k, volcano, quotas) };
        (world, async move {
            let known = async {
                futures::join!(queues, namespaces, priorities, runtimes, bindings, cliques, groups, sets)
            };
            futures::join!(known, others, kueue);
        })
    }

    /// Namespaces with a queue of Kueue's for jobs that name none, in order.
    pub fn with_default_queue(&self) -> Vec<String> {
        let store = self.kueue.as_ref().and_then(|kueue| kueue.queues.store());
        let keys = store.map(Store::keys).unwrap_or_default();
        let mut spaces: Vec<String> =
            keys.into_iter().filter(|key| key.name == DEFAULT_QUEUE).map(|key| key.namespace).collect();
        spaces.sort();
        spaces
    }

    /// Waits for something new that registrations of Kueue's hooks depend on.
    pub async fn kueue_news(&self) {
        match &self.kueue {
            Some(kueue) => kueue.news.notified().await,
            None => std::future::pending().await,
        }
    }
}

impl World for Watched {
    fn queue(&self, name: &str) -> Option<Option<Arc<Queue>>> {
        self.queues.store().map(|store| store.get(&Key::new("", name)))
    }

    fn children(&self, name: &str) -> Option<Vec<Arc<Queue>>> {
        let mut queues = self.queues.store()?.all();
        queues.retain(|queue| parent_of(queue) == name);
        Some(queues)
    }

    fn queue_names(&self) -> Vec<String> {
        // A hint is not worth a walk over thousands of names for every pod of a big workload.
        let store = self.queues.store().filter(|store| store.len() <= MOST_NAMES);
        store.map(Store::keys).unwrap_or_default().into_iter().map(|key| key.name).collect()
    }

    fn namespace(&self, name: &str) -> Option<Arc<Namespace>> {
        // An unfinished list may still have it, and a namespace is needed more than it is doubted.
        self.namespaces.store.get(&Key::new("", name))
    }

    fn has_priority_class(&self, name: &str) -> Option<bool> {
        self.priority_classes.has(name)
    }

    fn has_runtime_class(&self, name: &str) -> Option<bool> {
        self.runtime_classes.has(name)
    }

    fn topology_binding(&self, name: &str) -> Option<Option<Arc<ClusterTopologyBinding>>> {
        self.bindings.store().map(|store| store.get(&Key::new("", name)))
    }

    fn clique_set(&self, namespace: &str, name: &str) -> Option<Option<Arc<PodCliqueSet>>> {
        self.sets.as_ref()?.store().map(|store| store.get(&Key::new(namespace, name)))
    }

    fn clique_minimum(&self, namespace: &str, name: &str) -> Option<i64> {
        let clique = self.cliques.store()?.get(&Key::new(namespace, name))?;
        Some(clique.spec.min_available.unwrap_or(1))
    }

    fn group_minimum(&self, namespace: &str, name: &str) -> Option<i64> {
        let group = self.groups.store()?.get(&Key::new(namespace, name))?;
        Some(group.spec.min_available.unwrap_or(1))
    }

    fn others(&self, kind: OtherKind) -> Option<Vec<Arc<Other>>> {
        Some(match kind {
            OtherKind::T9kQueue => self.t9k_queues.store()?.all().iter().map(|queue| queue.shown()).collect(),
            OtherKind::VolcanoQueue => {
                self.volcano_queues.store()?.all().iter().map(|queue| queue.shown()).collect()
            }
            OtherKind::ElasticQuota => self.quotas.store()?.all().iter().map(|quota| quota.shown()).collect(),
        })
    }

    fn keeps_kueue(&self) -> bool {
        self.kueue.as_ref().is_some_and(|kueue| {
            kueue.queues.store().is_some() && !kueue.is_kept_by_others.load(Ordering::Acquire)
        })
    }

    fn has_local_queue(&self, namespace: &str, name: &str) -> Option<bool> {
        let store = self.kueue.as_ref()?.queues.store()?;
        // Every job of the cluster passes here.
        Some(!store.is_empty() && store.get(&Key::new(namespace, name)).is_some())
    }
}
