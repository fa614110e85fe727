//! Kueue: jobs wait in queues and start when there is quota for all of their pods.
//!
//! In: ClusterQueues, LocalQueues, Cohorts, ResourceFlavors, AdmissionChecks, Topologies; jobs and pods that name a queue. Out: a Workload for each,
//! admitted, preempted and requeued by `muster-admit`'s decisions, with Kueue's conditions, and the statuses of the queues; jobs suspended and
//! started, pods gated and let go. [`start`] is the service; [`defaults`](mod@defaults) and [`validate`](mod@validate) are what admission asks.
//!
//! | module | what it does |
//! |---|---|
//! | `object`, `keys`, `names`, `settings` | the kinds, and what things are called; Kueue's own configuration file |
//! | `brain` | objects in, decisions and facts out; no I/O |
//! | `status`, `admission`, `podset` | a workload's status, an admission, and pod templates, as values |
//! | `workload`, `queues`, `jobs`, `pods` | what each of these needs, as pure plans |
//! | `ungate` | which domain each pod of a placed workload gets |
//! | `jobs::Job` | all that a kind of job has to say of itself: a file each |
//! | `room` | whether a workload would have a place, for those who want to know before it is admitted |
//! | `desk`, `run` | watches, turns, writes |
//! | `explain` | why something waits, for people |
//! | `measure` | the metrics, under Kueue's names |
//!
//! *Invariant:* a job runs only while its workload is admitted; quota is given back only when nothing of it runs. *Invariant:* decisions are made in
//! turns, and each is written down, or taken back, before the next turn. *Invariant:* state lives in the cluster only. *Absent on purpose:* rules of
//! quota and order (`muster-admit` has them), places on nodes (the scheduler has them).

pub mod admission;
pub mod brain;
pub mod defaults;
pub mod explain;
pub mod jobs;
pub mod keys;
pub mod names;
pub mod object;
pub mod pods;
pub mod podset;
pub mod queues;
pub mod room;
pub mod settings;
pub mod status;
pub mod ungate;
pub mod validate;
pub mod workload;

mod desk;
mod measure;
mod run;

pub use room::{NoRoom, Room};
pub use run::{FRAMEWORKS, KIND_LIST, kept_by_others, start};
pub use settings::{Managed, Settings};
