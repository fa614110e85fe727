//! What can be chosen.
//!
//! In: configuration. Out: [`Options`], whose defaults are the founding documents' words, and routes from scheduler names
//! to backends. Must stay true: every scheduler name has exactly one backend.

use std::collections::BTreeMap;

/// The schedulers that a gang can be handed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BackendName {
    Kai,
    Default,
    Koordinator,
    Volcano,
    T9k,
    Muster,
}

impl BackendName {
    pub const ALL: [BackendName; 6] = [
        BackendName::Kai,
        BackendName::Default,
        BackendName::Koordinator,
        BackendName::Volcano,
        BackendName::T9k,
        BackendName::Muster,
    ];

    /// As the label [`crate::keys::SCHEDULER_BACKEND`] says it.
    pub fn as_str(self) -> &'static str {
        match self {
            BackendName::Kai => "kai",
            BackendName::Default => "default",
            BackendName::Koordinator => "koordinator",
            BackendName::Volcano => "volcano",
            BackendName::T9k => "t9k",
            BackendName::Muster => "muster",
        }
    }

    pub fn read(text: &str) -> Option<BackendName> {
        Self::ALL.into_iter().find(|name| name.as_str() == text)
    }
}

impl std::fmt::Display for BackendName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How a KAI PodGroup is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupNames {
    /// `pg-<gang>-<uid>`: the documents.
    WithUid,
    /// `<gang>`: today's Grove.
    LikeGang,
}

/// How the containers of a clique wait for other cliques.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartStep {
    /// The pods mount a secret that appears when those before them are ready; a kubelet starts no container before. Needs no
    /// image. A secret and not a config map, since KAI places no pod whose config maps are missing.
    Secret,
    /// An init container of this image asks for itself, as with today's Grove.
    Image(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Sets, groups, cliques and gangs are kept by this process.
    pub front: bool,
    /// The backends that this process runs.
    pub backends: Vec<BackendName>,
    /// The backends that some process runs; a set that asks for another is refused.
    pub enabled: Vec<BackendName>,
    /// Scheduler names beside those that everybody knows.
    pub routes: BTreeMap<String, BackendName>,
    /// The scheduler of sets that name none; empty for Kubernetes' own.
    pub default_scheduler: String,
    /// The gate that pods are born with; that of the documents and that of today's Grove are both lifted.
    pub gate: String,
    pub kai_group_names: GroupNames,
    /// The queue of gangs that name none.
    pub kai_default_queue: String,
    pub volcano_default_queue: String,
    /// How long a Koordinator gang waits for its members.
    pub koordinator_waiting_seconds: i64,
    pub start_step: StartStep,
    /// Topology constraints mean something.
    pub topology: bool,
    /// Compute domains are made for cliques that ask for one.
    pub mnnvl: bool,
    /// How many objects of each kind are worked on at a time.
    pub workers: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            front: true,
            backends: BackendName::ALL.to_vec(),
            enabled: BackendName::ALL.to_vec(),
            routes: BTreeMap::new(),
            default_scheduler: String::new(),
            gate: crate::keys::GATE.to_owned(),
            kai_group_names: GroupNames::WithUid,
            kai_default_queue: "default-queue".to_owned(),
            volcano_default_queue: "default".to_owned(),
            koordinator_waiting_seconds: 600,
            start_step: StartStep::Secret,
            topology: true,
            mnnvl: false,
            workers: 16,
        }
    }
}

impl Options {
    /// The backend of a scheduler name. What nobody knows is taken for a KAI under another name, as the documents say.
    pub fn route(&self, scheduler: &str) -> BackendName {
        let scheduler = if scheduler.is_empty() { self.default_scheduler.as_str() } else { scheduler };
        if let Some(backend) = self.routes.get(scheduler) {
            return *backend;
        }
        match scheduler {
            "" | "default-scheduler" => BackendName::Default,
            "koord-scheduler" => BackendName::Koordinator,
            "volcano" => BackendName::Volcano,
            "t9k-scheduler" => BackendName::T9k,
            "muster-scheduler" => BackendName::Muster,
            _ => BackendName::Kai,
        }
    }

    /// Whether a scheduler name says by itself whose it is.
    pub fn knows(&self, scheduler: &str) -> bool {
        self.routes.contains_key(scheduler)
            || matches!(scheduler, "kai-scheduler" | "grove-scheduler")
            || self.route(scheduler) != BackendName::Kai
    }

    /// The scheduler name that pods carry. `grove-scheduler` is a name for KAI that no scheduler answers to.
    pub fn pod_scheduler<'a>(&'a self, scheduler: &'a str) -> &'a str {
        match scheduler {
            "" if self.default_scheduler.is_empty() => "default-scheduler",
            "" => self.default_scheduler.as_str(),
            "grove-scheduler" if !self.routes.contains_key(scheduler) => "kai-scheduler",
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(scheduler: &str, backend: &str) {
        let routes = BTreeMap::from([("mine".to_owned(), BackendName::Volcano)]);
        let options = Options { routes, ..Options::default() };
        assert_eq!(options.route(scheduler).as_str(), backend, "{scheduler}");
    }

    #[test]
    fn routes() {
        check("", "default");
        check("default-scheduler", "default");
        check("kai-scheduler", "kai");
        check("grove-scheduler", "kai");
        check("whoever", "kai");
        check("koord-scheduler", "koordinator");
        check("volcano", "volcano");
        check("t9k-scheduler", "t9k");
        check("muster-scheduler", "muster");
        check("mine", "volcano");
    }

    #[test]
    fn names_read_back() {
        for name in BackendName::ALL {
            assert_eq!(BackendName::read(name.as_str()), Some(name));
        }
        assert_eq!(BackendName::read("lpx"), None);
    }
}
