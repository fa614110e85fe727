//! What admission is told to do.
//!
//! In: the choices of whoever runs it. Out: a [`Settings`] that the rules read. Names and defaults are KAI's unless a
//! field says otherwise.

/// The rules' settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Pods of these schedulers are ours; all others pass unseen.
    pub scheduler_names: Vec<String>,
    /// The label that names a pod's queue.
    pub queue_label: String,
    /// Whether pods may ask for a part of a GPU. On, unlike in KAI, where it must be switched on.
    pub gpu_sharing: bool,
    /// The runtime class of pods that share a GPU and name none, if the cluster has it; empty for none.
    pub fraction_runtime_class: String,
    /// Whether pods are kept from choosing devices by themselves through `NVIDIA_VISIBLE_DEVICES`.
    pub device_access: bool,
    /// Whether pods that share a GPU are told their memory limit in the way that HAMi-core reads it.
    pub hami_core: bool,
    /// Whether a queue that promises more than its parent has is warned about.
    pub quota_validation: bool,
    /// Whether jobs, deployments and the like are looked at when they are created, so that the person who sends one sees
    /// the warnings that otherwise only a controller would.
    pub workload_warnings: bool,
    /// Nothing in these namespaces is ever looked at.
    pub exempt_namespaces: Vec<String>,
    pub grove: Grove,
    pub others: Others,
    /// What of Kueue's is looked after; `None`: its kinds, and jobs that wait in its queues, are left to others.
    pub kueue: Option<muster_kueue::Managed>,
}

/// The schedulers of other systems whose pods and objects are judged by those systems' rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Others {
    pub t9k: Vec<String>,
    pub koordinator: Vec<String>,
    pub volcano: Vec<String>,
}

impl Default for Others {
    fn default() -> Self {
        let one = |name: &str| vec![name.to_owned()];
        Others { t9k: one("t9k-scheduler"), koordinator: one("koord-scheduler"), volcano: one("volcano") }
    }
}

impl Others {
    /// All of their names.
    pub fn names(&self) -> Vec<&str> {
        let all = [&self.t9k, &self.koordinator, &self.volcano];
        all.into_iter().flatten().map(String::as_str).collect()
    }

    /// The name that Volcano's jobs are given.
    pub fn of_volcano(&self) -> &str {
        self.volcano.first().map_or("volcano", String::as_str)
    }
}

/// What is asked about Grove's kinds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Grove {
    pub options: muster_grove::Options,
    /// Whether what belongs to a set is kept from everybody but the users below.
    pub protect: bool,
    /// Users that may change it, and beginnings of users' names that end in `*`.
    pub users: Vec<String>,
}

impl Grove {
    /// Who changes what belongs to sets without being asked: the cluster itself and Muster.
    pub fn is_exempt(&self, user: &str) -> bool {
        const CLUSTER: [&str; 4] =
            ["system:serviceaccount:kube-system:", "system:node:", "system:kube-", "system:apiserver"];
        let listed = |entry: &String| match entry.strip_suffix('*') {
            Some(beginning) => user.starts_with(beginning),
            None => user == entry,
        };
        CLUSTER.iter().any(|beginning| user.starts_with(beginning)) || self.users.iter().any(listed)
    }
}

/// Where the cluster's own pods live.
pub const SYSTEM_NAMESPACES: [&str; 3] = ["kube-system", "kube-node-lease", "kube-public"];

/// Where Muster's own pods live: its services, the pods that hold shared GPUs, and those that ask for nodes.
pub const OWN_NAMESPACES: [&str; 3] = ["muster-system", "kai-resource-reservation", "kai-scale-adjust"];

impl Default for Settings {
    fn default() -> Self {
        Settings {
            scheduler_names: vec!["muster-scheduler".into(), "kai-scheduler".into()],
            queue_label: "kai.scheduler/queue".into(),
            gpu_sharing: true,
            fraction_runtime_class: "nvidia".into(),
            device_access: false,
            hami_core: false,
            quota_validation: false,
            workload_warnings: true,
            exempt_namespaces: [SYSTEM_NAMESPACES, OWN_NAMESPACES]
                .concat()
                .into_iter()
                .map(str::to_owned)
                .collect(),
            grove: Grove::default(),
            others: Others::default(),
            kueue: None,
        }
    }
}

impl Settings {
    pub fn is_ours(&self, scheduler_name: &str) -> bool {
        // The API server fills the field in before admission; an absent one means the default scheduler.
        let name = if scheduler_name.is_empty() { DEFAULT_SCHEDULER } else { scheduler_name };
        self.scheduler_names.iter().any(|ours| ours == name)
    }

    pub fn is_exempt(&self, namespace: &str) -> bool {
        self.exempt_namespaces.iter().any(|exempt| exempt == namespace)
    }
}

/// What the API server writes into a pod that names no scheduler.
pub(crate) const DEFAULT_SCHEDULER: &str = "default-scheduler";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_change_what_belongs_to_a_set() {
        let users = vec!["system:serviceaccount:muster-system:*".to_owned(), "ann".to_owned()];
        let grove = Grove { protect: true, users, ..Grove::default() };
        for (user, expected) in [
            ("system:serviceaccount:muster-system:muster-grove", true),
            ("system:serviceaccount:kube-system:generic-garbage-collector", true),
            ("system:node:a", true),
            ("ann", true),
            ("anna", false),
            ("system:serviceaccount:default:x", false),
        ] {
            assert_eq!(grove.is_exempt(user), expected, "{user}");
        }
    }
}
