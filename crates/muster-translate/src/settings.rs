//! What translation itself can be told.

use crate::read::Object;
use muster_model::{Dialect, Name, Pool, Span, Time};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub now: Time,
    /// Pods of these schedulers are placed; the others only take room.
    pub scheduler_names: Vec<Name>,
    /// Those among them whose pods a pod grouper puts into groups: a pod of theirs without a group waits for one.
    pub grouped: Vec<Name>,
    /// Those among them that go by Volcano's objects: their pods name Volcano's PodGroups.
    pub volcano: Vec<Name>,
    /// Those among them that go by T9k's objects, and by Koordinator's.
    pub t9k: Vec<Name>,
    pub koordinator: Vec<Name>,
    /// The shard: which nodes, queues and gangs are looked after; without a value, those without the label. A gang goes by the label of
    /// its group, and a pod without a group by its own; a gang of another shard only takes room.
    pub pool: Pool,
    /// What the trees of queues have of the cluster: pods of a tree that has nodes of its own ask for these.
    pub trees: std::collections::BTreeMap<Dialect, muster_model::Reach>,
    /// The label of pools, unless `pool` names another.
    pub node_pool_label: Name,
    pub queue_label: Name,
    /// The queue of pods that name none.
    pub default_queue: Name,
    /// That queue is there without bounds even if nobody made it.
    pub implicit_default_queue: bool,
    /// Of gangs that name no priority class or a missing one, where no class is the global default.
    pub default_priority: i32,
    /// From this priority on, work cannot be preempted unless it says otherwise.
    pub non_preemptible_from: i32,
    /// A pod that was told to terminate longer ago than this may never go.
    pub stuck_after: Span,
}

impl Default for Settings {
    /// KAI's defaults, at the epoch.
    fn default() -> Self {
        Self {
            now: Time::default(),
            scheduler_names: vec!["kai-scheduler".into()],
            grouped: Vec::new(),
            volcano: Vec::new(),
            t9k: vec!["t9k-scheduler".into()],
            koordinator: vec!["koord-scheduler".into()],
            pool: Pool::default(),
            trees: std::collections::BTreeMap::new(),
            node_pool_label: "kai.scheduler/node-pool".into(),
            queue_label: "kai.scheduler/queue".into(),
            default_queue: "default-queue".into(),
            implicit_default_queue: false,
            default_priority: 50,
            non_preemptible_from: 100,
            stuck_after: Span::seconds(120),
        }
    }
}

impl Settings {
    /// Whose objects the pods of a scheduler name.
    pub fn dialect(&self, scheduler: &str) -> Dialect {
        let among = |names: &[Name]| names.iter().any(|name| &**name == scheduler);
        match () {
            () if among(&self.volcano) => Dialect::Volcano,
            () if among(&self.t9k) => Dialect::T9k,
            () if among(&self.koordinator) => Dialect::Koordinator,
            () => Dialect::Kai,
        }
    }

    pub(crate) fn pool_label(&self) -> &Name {
        self.pool.label.as_ref().unwrap_or(&self.node_pool_label)
    }

    pub(crate) fn in_pool(&self, object: &Object<'_>) -> bool {
        object.label(self.pool_label()) == self.pool.value.as_deref()
    }
}
