//! What the pods of each group and queue ask for and hold.
//!
//! In: pods as they come, change and go. Out: the totals of whatever they belong to ([`Subject`]), kept by adding and taking away. Must stay
//! true: a total is what counting all pods anew would give; nothing is kept of what has no pods.

use std::collections::{BTreeMap, HashMap};

use muster_runtime::Key;
use muster_runtime::common::Pod;
use serde_json::Value;

use crate::accounts::plan::Counts;
use crate::amounts::Amounts;
use crate::request;

/// What pods are counted for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    T9kGroup(Key),
    /// Of pods without a group.
    T9kQueue(String),
    KoordinatorGroup(Key),
    /// Pods of a namespace that name one quota, or none: which quota that is depends on the quotas there are.
    Quota {
        namespace: String,
        named: Option<String>,
    },
    VolcanoGroup(Key),
    KubernetesGroup(Key),
}

/// The names of the schedulers whose pods are counted.
#[derive(Debug, Clone, Default)]
pub struct Schedulers {
    pub t9k: Vec<String>,
    pub koordinator: Vec<String>,
    pub volcano: Vec<String>,
    /// Those whose pods may be in groups of Kubernetes' own.
    pub others: Vec<String>,
}

impl Schedulers {
    /// By the names that Muster answers to.
    pub fn among(names: &[String]) -> Self {
        let (mut all, mut rest) = (Schedulers::default(), Vec::new());
        for name in names {
            match name.as_str() {
                "t9k-scheduler" => all.t9k.push(name.clone()),
                "koord-scheduler" => all.koordinator.push(name.clone()),
                "volcano" => all.volcano.push(name.clone()),
                _ => rest.push(name.clone()),
            }
        }
        all.others = rest;
        all
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    /// By role; those without one are under the empty name.
    pub roles: BTreeMap<String, Counts>,
    pub requested: Amounts,
    pub allocated: Amounts,
    /// Pods whose node has gone silent; they are among the running ones.
    pub unknown: usize,
    /// Owners of the pods (`namespace/name`), with how many each has.
    pub owners: BTreeMap<String, usize>,
}

impl Totals {
    pub fn all(&self) -> Counts {
        let mut all = Counts::default();
        self.roles.values().for_each(|counts| all.add(counts));
        all
    }

    pub fn add(&mut self, other: &Totals) {
        for (role, counts) in &other.roles {
            self.roles.entry(role.clone()).or_default().add(counts);
        }
        self.requested.add_all(&other.requested);
        self.allocated.add_all(&other.allocated);
        self.unknown += other.unknown;
        for (owner, n) in &other.owners {
            *self.owners.entry(owner.clone()).or_default() += n;
        }
    }

    fn take(&mut self, other: &Totals) {
        for (role, counts) in &other.roles {
            if let Some(known) = self.roles.get_mut(role) {
                known.take(counts);
                if known.all() == 0 {
                    self.roles.remove(role);
                }
            }
        }
        self.requested.take_all(&other.requested);
        self.allocated.take_all(&other.allocated);
        self.unknown = self.unknown.saturating_sub(other.unknown);
        for (owner, n) in &other.owners {
            if let Some(known) = self.owners.get_mut(owner) {
                *known = known.saturating_sub(*n);
                if *known == 0 {
                    self.owners.remove(owner);
                }
            }
        }
    }
}

#[derive(Debug, Default)]
pub struct Books {
    pods: HashMap<Key, (Vec<Subject>, Totals)>,
    totals: HashMap<Subject, Totals>,
}

impl Books {
    /// Counts a pod as it is now; `None`: it is gone. Out: whatever has another total now.
    pub fn note(&mut self, key: &Key, pod: Option<&Pod>, schedulers: &Schedulers) -> Vec<Subject> {
        let now = pod.and_then(|pod| {
            let (subjects, role) = subjects_of(pod, schedulers);
            (!subjects.is_empty()).then(|| (subjects, own_totals(pod, role)))
        });
        let known = self.pods.get(key);
        if known == now.as_ref() {
            return Vec::new();
        }
        let mut touched = Vec::new();
        if let Some((subjects, own)) = self.pods.remove(key) {
            for subject in subjects {
                if let Some(total) = self.totals.get_mut(&subject) {
                    total.take(&own);
                    if total.roles.is_empty() {
                        self.totals.remove(&subject);
                    }
                }
                touched.push(subject);
            }
        }
        if let Some((subjects, own)) = now {
            for subject in &subjects {
                self.totals.entry(subject.clone()).or_default().add(&own);
                if !touched.contains(subject) {
                    touched.push(subject.clone());
                }
            }
            self.pods.insert(key.clone(), (subjects, own));
        }
        touched
    }

    pub fn of(&self, subject: &Subject) -> Totals {
        self.totals.get(subject).cloned().unwrap_or_default()
    }

    /// What pods that belong to quotas ask for and hold, by where they say they belong.
    pub fn quotas(&self) -> impl Iterator<Item = (&str, Option<&str>, &Totals)> {
        self.totals.iter().filter_map(|(subject, totals)| match subject {
            Subject::Quota { namespace, named } => Some((namespace.as_str(), named.as_deref(), totals)),
            _ => None,
        })
    }
}

/// What a pod is counted for, and in which role.
fn subjects_of<'a>(pod: &'a Pod, schedulers: &Schedulers) -> (Vec<Subject>, &'a str) {
    let scheduler = pod.spec.scheduler_name.as_str();
    let is_of = |names: &[String]| names.iter().any(|name| name == scheduler);
    let label = |key: &str| pod.metadata.labels.get(key).map(String::as_str).filter(|text| !text.is_empty());
    let annotation = |key: &str| pod.metadata.annotation(key).filter(|text| !text.is_empty());
    let named = |name: &str| Key::new(pod.metadata.namespace.as_str(), name);
    if is_of(&schedulers.t9k) {
        let role = label("scheduler.tensorstack.dev/role").unwrap_or("");
        let subject = match label("scheduler.tensorstack.dev/group-name") {
            Some(group) => Subject::T9kGroup(named(group)),
            None => {
                Subject::T9kQueue(label("scheduler.tensorstack.dev/queue").unwrap_or("default").to_owned())
            }
        };
        return (vec![subject], role);
    }
    if is_of(&schedulers.koordinator) {
        let group = label("pod-group.scheduling.sigs.k8s.io")
            .or_else(|| label("pod-group.scheduling.sigs.k8s.io/name"))
            .or_else(|| annotation("gang.scheduling.koordinator.sh/name"));
        let quota = label(muster_translate::koordinator::QUOTA).map(str::to_owned);
        let quota = Subject::Quota { namespace: pod.metadata.namespace.clone(), named: quota };
        let group = group.map(|group| Subject::KoordinatorGroup(named(group)));
        return (group.into_iter().chain([quota]).collect(), "");
    }
    if is_of(&schedulers.volcano) {
        let group = annotation("scheduling.k8s.io/group-name")
            .or_else(|| annotation("scheduling.volcano.sh/group-name"));
        return (group.map(|group| Subject::VolcanoGroup(named(group))).into_iter().collect(), "");
    }
    if is_of(&schedulers.others) {
        let group = pod.spec.scheduling_group.as_ref().and_then(|group| group.get("podGroupName"));
        let group = group.and_then(Value::as_str).filter(|name| !name.is_empty());
        return (group.map(|group| Subject::KubernetesGroup(named(group))).into_iter().collect(), "");
    }
    (Vec::new(), "")
}

/// What one pod adds to a total.
fn own_totals(pod: &Pod, role: &str) -> Totals {
    let mut counts = Counts::default();
    let (over, bound, leaving) = (pod.is_over(), pod.is_bound(), pod.metadata.deleting());
    match pod.status.phase.as_str() {
        "Succeeded" => counts.succeeded = 1,
        "Failed" => counts.failed = 1,
        _ if leaving => counts.leaving = 1,
        _ if !bound => counts.waiting = 1,
        "Running" | "Unknown" => counts.running = 1,
        _ => counts.starting = 1,
    }
    let mut totals = Totals {
        roles: [(role.to_owned(), counts)].into(),
        unknown: usize::from(pod.status.phase == "Unknown" && bound && !leaving),
        ..Totals::default()
    };
    // What leaves before it came to a node asks for nothing any more.
    if !over && (!leaving || bound) {
        totals.requested = request::ask(pod).amounts;
        if bound {
            totals.allocated = totals.requested.clone();
        }
    }
    let owners = pod.metadata.owner_references.iter();
    totals.owners = owners.map(|owner| (format!("{}/{}", pod.metadata.namespace, owner.name), 1)).collect();
    totals
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(scheduler: &str, labels: Value, node: &str, phase: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "n", "labels": labels, "annotations": {"scheduling.k8s.io/group-name": "v"}},
            "spec": {"schedulerName": scheduler, "nodeName": node, "containers": [{"resources": {"requests": {"cpu": "1"}}}]},
            "status": {"phase": phase},
        }))
        .unwrap()
    }

    fn schedulers() -> Schedulers {
        Schedulers::among(
            &["t9k-scheduler", "koord-scheduler", "volcano", "muster-scheduler"].map(str::to_owned),
        )
    }

    #[track_caller]
    fn check(pod: &Pod, expected: &[Subject]) {
        assert_eq!(subjects_of(pod, &schedulers()).0, expected);
    }

    #[test]
    fn who_a_pod_is_counted_for() {
        let group =
            json!({"scheduler.tensorstack.dev/group-name": "g", "pod-group.scheduling.sigs.k8s.io": "k"});
        let key = |name: &str| Key::new("n", name);
        let quota =
            |named: Option<&str>| Subject::Quota { namespace: "n".into(), named: named.map(str::to_owned) };
        check(&pod("t9k-scheduler", group.clone(), "", ""), &[Subject::T9kGroup(key("g"))]);
        check(&pod("t9k-scheduler", json!({}), "", ""), &[Subject::T9kQueue("default".into())]);
        let queue = json!({"scheduler.tensorstack.dev/queue": "q"});
        check(&pod("t9k-scheduler", queue, "", ""), &[Subject::T9kQueue("q".into())]);
        check(
            &pod("koord-scheduler", group.clone(), "", ""),
            &[Subject::KoordinatorGroup(key("k")), quota(None)],
        );
        let named = json!({"quota.scheduling.koordinator.sh/name": "q"});
        check(&pod("koord-scheduler", named, "", ""), &[quota(Some("q"))]);
        check(&pod("volcano", json!({}), "", ""), &[Subject::VolcanoGroup(key("v"))]);
        check(&pod("elsewhere", group, "", ""), &[]);
        let mut native = pod("muster-scheduler", json!({}), "", "");
        check(&native, &[]);
        native.spec.scheduling_group = Some(json!({"podGroupName": "g"}));
        check(&native, &[Subject::KubernetesGroup(key("g"))]);
    }

    #[test]
    fn totals_follow_pods() {
        let mut books = Books::default();
        let queue = Subject::T9kQueue("default".into());
        let key = Key::new("n", "p");
        let mut note = |pod: Option<Pod>| {
            let touched = books.note(&key, pod.as_ref(), &schedulers()).len();
            let all = books.of(&queue);
            (touched, all.all(), all.requested.to_json(), all.allocated.to_json())
        };
        let waiting = || pod("t9k-scheduler", json!({}), "", "Pending");
        let counts = |set: fn(&mut Counts)| {
            let mut counts = Counts::default();
            set(&mut counts);
            counts
        };
        let one = json!({"cpu": "1"});
        assert_eq!(note(Some(waiting())), (1, counts(|c| c.waiting = 1), one.clone(), json!({})));
        assert_eq!(note(Some(waiting())).0, 0);
        let running = pod("t9k-scheduler", json!({}), "node", "Running");
        assert_eq!(note(Some(running)), (1, counts(|c| c.running = 1), one.clone(), one.clone()));
        let done = pod("t9k-scheduler", json!({}), "node", "Succeeded");
        assert_eq!(note(Some(done)), (1, counts(|c| c.succeeded = 1), json!({}), json!({})));
        assert_eq!(note(Some(pod("elsewhere", json!({}), "", ""))).1, Counts::default());
        assert_eq!(note(Some(waiting())).0, 1);
        assert_eq!(note(None), (1, Counts::default(), json!({}), json!({})));
        assert!(books.totals.is_empty() && books.pods.is_empty());
    }
}
