//! The parts of Muster that run in a cluster.
//!
//! In: nothing. Out: each part's name, as `muster run --components` spells it, and what it is for. Must stay true: the
//! names are those of the command line.

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Component {
    Scheduler,
    Binder,
    Grouper,
    Podgroups,
    Queues,
    ScaleAdjuster,
    Admission,
    Operator,
    Kueue,
    Grove,
    BackendKai,
    BackendDefault,
    BackendKoordinator,
    BackendVolcano,
    BackendT9k,
    BackendMuster,
}

impl Component {
    pub const ALL: [Component; 16] = [
        Component::Scheduler,
        Component::Binder,
        Component::Grouper,
        Component::Podgroups,
        Component::Queues,
        Component::ScaleAdjuster,
        Component::Admission,
        Component::Operator,
        Component::Kueue,
        Component::Grove,
        Component::BackendKai,
        Component::BackendDefault,
        Component::BackendKoordinator,
        Component::BackendVolcano,
        Component::BackendT9k,
        Component::BackendMuster,
    ];

    /// Grove and its backends.
    pub const GROVE: [Component; 7] = [
        Component::Grove,
        Component::BackendKai,
        Component::BackendDefault,
        Component::BackendKoordinator,
        Component::BackendVolcano,
        Component::BackendT9k,
        Component::BackendMuster,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Component::Scheduler => "scheduler",
            Component::Binder => "binder",
            Component::Grouper => "grouper",
            Component::Podgroups => "podgroups",
            Component::Queues => "queues",
            Component::ScaleAdjuster => "scale-adjuster",
            Component::Admission => "admission",
            Component::Operator => "operator",
            Component::Kueue => "kueue",
            Component::Grove => "grove",
            Component::BackendKai => "backend-kai",
            Component::BackendDefault => "backend-default",
            Component::BackendKoordinator => "backend-koordinator",
            Component::BackendVolcano => "backend-volcano",
            Component::BackendT9k => "backend-t9k",
            Component::BackendMuster => "backend-muster",
        }
    }

    /// One sentence for the documentation.
    pub fn purpose(self) -> &'static str {
        match self {
            Component::Scheduler => {
                "decides where gangs run, binds simple pods itself, evicts, says why pods wait"
            }
            Component::Binder => "binds pods whose binding takes steps: shared GPUs, volumes, device claims",
            Component::Grouper => "makes a PodGroup of each workload that pods belong to",
            Component::Podgroups => "keeps the status of PodGroups",
            Component::Queues => "keeps the status of Queues",
            Component::ScaleAdjuster => "asks node autoscalers for what waits",
            Component::Admission => {
                "checks and completes pods, queues, pod groups and topologies as they are created"
            }
            Component::Operator => "turns a Config and its SchedulingShards into all of the above",
            Component::Kueue => {
                "admits Kueue's workloads, and keeps the jobs and pods that wait in its queues"
            }
            Component::Grove => "keeps PodCliqueSets: cliques, gangs, pods and what stands around them",
            Component::BackendKai => "tells KAI's scheduler of Grove's gangs",
            Component::BackendDefault => "tells Kubernetes' own scheduler of Grove's gangs",
            Component::BackendKoordinator => "tells Koordinator's scheduler of Grove's gangs",
            Component::BackendVolcano => "tells Volcano's scheduler of Grove's gangs",
            Component::BackendT9k => "tells T9k's scheduler of Grove's gangs",
            Component::BackendMuster => "lets Muster's scheduler read Grove's gangs",
        }
    }
}

impl std::fmt::Display for Component {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
