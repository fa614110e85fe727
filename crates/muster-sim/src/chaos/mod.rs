//! Chaos by plan: what goes wrong in a cluster, when and for how long, from a file and a seed.
//!
//! In: a YAML file ([`Chaos::read`]), the gates that requests pass ([`Gates`]) and an [`Api`](crate::Api) of one's own. Out: nodes that
//! fail and come back, requests that suffer, connections that break, services that are killed, and a line about each
//! ([`run::run`], [`run::Told`]). `agenda` (pure) says what is due when, `words` says it to people; docs/chaos.md is the manual.
//! Must stay true: a seed and a file decide everything but what the cluster itself does: which nodes, which turns, which moments;
//! a fault's choices do not depend on the other faults of the file; what is broken is mended when its time is over, and when the
//! run ends.

pub mod agenda;
pub mod run;

mod file;
mod gate;
mod words;

use std::collections::BTreeMap;
use std::time::Duration;

pub use file::ChaosError;
pub use gate::{Gate, Gates};
pub use run::{Told, run};

use crate::faults::Fault;

/// What goes wrong, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chaos {
    /// Where random choices start; none said in the file.
    pub seed: Option<u64>,
    pub faults: Vec<Planned>,
}

/// A fault with its times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// What it is called, `faults[2]` unless the file says it.
    pub name: String,
    pub when: When,
    pub what: What,
}

/// The times of a fault, counted from when the cluster is ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct When {
    pub at: Duration,
    /// Each turn comes later by a random time of at most this.
    pub jitter: Duration,
    /// The time between the beginnings of two turns; once if absent.
    pub every: Option<Duration>,
    /// At most so many turns.
    pub times: Option<u32>,
    /// How long a turn lasts; until the end if absent.
    pub lasts: Option<Duration>,
    /// The chance in a thousand that a turn happens.
    pub chance: u16,
}

/// What goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    Nodes {
        which: Which,
        state: NodeState,
    },
    /// Requests that match suffer, so many in a thousand.
    Requests {
        from: Vec<Caller>,
        matching: Matching,
        share: u16,
        fault: Fault,
    },
    Server(ServerState),
    /// Muster's services die together, and start again when their time is over.
    ServicesKilled,
}

/// Which nodes a fault takes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Which {
    /// These; all if empty.
    pub names: Vec<String>,
    /// Of those, the ones with these labels.
    pub selector: BTreeMap<String, String>,
    /// Those that share the value of this label fail together.
    pub domain: Option<String>,
    /// Of those, so many (nodes, or domains), by chance; all if absent.
    pub count: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeState {
    /// The machine says nothing more.
    Silent,
    /// The kubelet says that it is not ready.
    NotReady,
    /// The Node object is deleted, and made again when the time is over.
    Deleted,
    /// Cordoned, and its pods are evicted.
    Drained,
    /// These GPUs cannot be had, as in `0,3`.
    UnhealthyGpus(String),
}

/// Whose requests suffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Caller {
    /// Whoever comes over the network: kubectl, controllers of your own.
    Clients,
    /// Muster's services in this process.
    Services,
    /// The kubelets and the controllers of Kubernetes.
    Simulation,
}

/// Which requests; an empty list is any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Matching {
    pub verbs: Vec<String>,
    pub resources: Vec<String>,
    pub names: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerState {
    /// Nobody listens.
    Down,
    /// Every connection breaks, once.
    DropsConnections,
    /// Every connection breaks, and no watch may go on from where it was.
    ForgetsVersions,
}

impl Chaos {
    /// What the file needs of the cluster that it might not have: a fault, and the part that it is about.
    pub fn needs_services(&self) -> Option<&str> {
        let needs = |planned: &&Planned| match &planned.what {
            What::ServicesKilled => true,
            What::Requests { from, .. } => from == &[Caller::Services],
            What::Nodes { .. } | What::Server(_) => false,
        };
        self.faults.iter().find(needs).map(|planned| planned.name.as_str())
    }

    /// The plan in words, a line for each fault.
    pub fn describe(&self) -> Vec<String> {
        self.faults.iter().map(words::plan).collect()
    }
}
