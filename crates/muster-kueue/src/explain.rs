//! Why a workload waits, or what it has, and what stands in a queue: for people, in Kueue's words.
//!
//! In: the objects of a cluster, or of a file, and the time. Out: an [`Account`] of a workload, a cluster queue or a local queue, as text and as JSON.
//! Nothing is changed anywhere: decisions are made from the objects alone, as the service would make them. Must stay true: numbers are those that
//! the decision was made with; no input panics.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use muster_runtime::Key;
use muster_translate::kueue::words;
use serde_json::{Value, json};

use crate::brain::{Brain, Decision, Kind, QueueFacts, time};
use crate::keys::condition as kind;
use crate::object::{ClusterQueue, at, condition, holds, int, list, text, time as time_at};
use crate::queues;
use crate::settings::Settings;

/// What there is to say of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Account {
    pub text: String,
    pub value: Value,
}

/// A cluster at one moment, and what would be decided in it.
pub struct Scene {
    brain: Brain,
    now: Timestamp,
    workloads: BTreeMap<Key, Value>,
    locals: BTreeMap<Key, Value>,
    queues: BTreeMap<String, Value>,
    /// Who would be admitted now.
    admitted: BTreeSet<Key>,
    /// Who would have to go now, and why.
    going: Vec<(Key, String)>,
}

/// Longer lists help nobody.
const MOST_NAMED: usize = 20;

fn key_of(object: &Value) -> Key {
    let meta = |field: &str| text(object, &["metadata", field]).to_owned();
    Key::new(meta("namespace"), meta("name"))
}

/// What an object is to decisions; other systems have kinds of the same names.
fn kind_of(object: &Value) -> Option<Kind> {
    let group = text(object, &["apiVersion"]).split_once('/').map_or("", |(group, _)| group);
    Some(match (group, text(object, &["kind"])) {
        ("", "Namespace") => Kind::Namespace,
        ("", "LimitRange") => Kind::LimitRange,
        ("", "Node") => Kind::Node,
        ("", "Pod") => Kind::Pod,
        ("kueue.x-k8s.io", "Topology") => Kind::Topology,
        ("kueue.x-k8s.io", "ResourceFlavor") => Kind::Flavor,
        ("kueue.x-k8s.io", "AdmissionCheck") => Kind::Check,
        ("kueue.x-k8s.io", "Cohort") => Kind::Cohort,
        ("kueue.x-k8s.io", "ClusterQueue") => Kind::ClusterQueue,
        ("kueue.x-k8s.io", "LocalQueue") => Kind::LocalQueue,
        ("kueue.x-k8s.io", "Workload") => Kind::Workload,
        _ => return None,
    })
}

impl Scene {
    pub fn new<'a>(
        objects: impl IntoIterator<Item = &'a Value>,
        settings: &Settings,
        now: Timestamp,
    ) -> Self {
        let mut known: Vec<(Kind, &Value)> =
            objects.into_iter().filter_map(|object| Some((kind_of(object)?, object))).collect();
        // What others refer to comes first.
        known.sort_by_key(|(kind, _)| *kind);
        let mut scene = Scene {
            brain: Brain::new(settings),
            now,
            workloads: BTreeMap::new(),
            locals: BTreeMap::new(),
            queues: BTreeMap::new(),
            admitted: BTreeSet::new(),
            going: Vec::new(),
        };
        let has_topology = known.iter().any(|(kind, _)| *kind == Kind::Topology);
        for (kind, object) in known {
            // Pods count only where places do.
            if kind == Kind::Pod && !has_topology {
                continue;
            }
            scene.brain.put(kind, object, time(now));
            match kind {
                Kind::Workload => drop(scene.workloads.insert(key_of(object), object.clone())),
                Kind::LocalQueue => drop(scene.locals.insert(key_of(object), object.clone())),
                Kind::ClusterQueue => drop(scene.queues.insert(key_of(object).name, object.clone())),
                _ => {}
            }
        }
        for decision in scene.brain.decide(time(now)) {
            match decision {
                Decision::Admit { key, again: false, .. } => drop(scene.admitted.insert(key)),
                Decision::Preempt { key, message, .. } | Decision::Evict { key, message, .. } => {
                    scene.going.push((key, message));
                }
                Decision::Admit { .. } | Decision::Replaced { .. } => {}
            }
        }
        scene
    }

    /// Whether there is anything of Kueue's.
    pub fn is_empty(&self) -> bool {
        self.workloads.is_empty() && self.queues.is_empty() && self.locals.is_empty()
    }

    /// The workloads that a name may mean: their own, or that of whoever they belong to.
    pub fn workloads_meant(&self, subject: &str, namespace: Option<&str>) -> Vec<Key> {
        let (what, name) = subject.split_once('/').unwrap_or(("", subject));
        let what = what.to_lowercase();
        let is_own = matches!(what.as_str(), "" | "workload" | "workloads" | "wl" | "kwl");
        let singular = what.strip_suffix('s').unwrap_or(&what);
        let owns = |owner: &Value| {
            let own = text(owner, &["kind"]).to_lowercase();
            text(owner, &["name"]) == name && (what.is_empty() || own == what || own == singular)
        };
        let is_meant = |(key, workload): &(&Key, &Value)| {
            namespace.is_none_or(|namespace| namespace == key.namespace)
                && (is_own && key.name == name
                    || list(workload, &["metadata", "ownerReferences"]).iter().any(owns))
        };
        self.workloads.iter().filter(is_meant).map(|(key, _)| key.clone()).collect()
    }

    /// Local queues of this name.
    pub fn local_queues_meant(&self, name: &str, namespace: Option<&str>) -> Vec<Key> {
        let is_meant =
            |key: &&Key| key.name == name && namespace.is_none_or(|namespace| namespace == key.namespace);
        self.locals.keys().filter(is_meant).cloned().collect()
    }

    pub fn cluster_queues(&self) -> Vec<&str> {
        self.queues.keys().map(String::as_str).collect()
    }

    pub fn local_queues(&self) -> Vec<&Key> {
        self.locals.keys().collect()
    }

    pub fn is_admitted(&self, key: &Key) -> bool {
        self.workloads.get(key).is_some_and(|w| holds(at(w, &["status"]), kind::ADMITTED))
    }

    pub fn workload(&mut self, key: &Key) -> Option<Account> {
        let workload = self.workloads.get(key)?.clone();
        let status = at(&workload, &["status"]);
        let owner = list(&workload, &["metadata", "ownerReferences"]).first();
        let title = match owner {
            Some(owner) => format!("Workload {key} of {} {}", text(owner, &["kind"]), text(owner, &["name"])),
            None => format!("Workload {key}"),
        };
        let said = |what: &str| condition(status, what).map_or("", |found| text(found, &["message"]));
        let mut value = json!({"kind": "Workload", "name": key.to_string(), "queue": text(&workload, &["spec", "queueName"])});
        let queue = text(status, &["admission", "clusterQueue"]);
        let mut out = String::new();
        let (state, rest) = if holds(status, kind::FINISHED) {
            ("Finished", format!("{title} is finished: {}\n", said(kind::FINISHED)))
        } else if at(&workload, &["spec", "active"]) == false {
            let why = Some(said(kind::EVICTED)).filter(|why| !why.is_empty());
            let why = why.map_or_else(String::new, |why| format!(": {why}"));
            (
                "Deactivated",
                format!("{title} is deactivated{why}\n  set spec.active to true to queue it again\n"),
            )
        } else if holds(status, kind::EVICTED) && holds(status, kind::QUOTA_RESERVED) {
            (
                "Evicted",
                format!(
                    "{title} has to go: {}\n  it keeps its quota until its pods are gone\n",
                    said(kind::EVICTED)
                ),
            )
        } else if holds(status, kind::ADMITTED) {
            ("Admitted", format!("{title} is admitted by ClusterQueue {queue}\n{}", given(status)))
        } else if holds(status, kind::QUOTA_RESERVED) {
            let text =
                format!("{title} holds quota of ClusterQueue {queue}, and waits for its admission checks\n");
            ("QuotaReserved", format!("{text}{}{}", checks(status), given(status)))
        } else {
            ("Pending", self.waiting(key, &workload, &title, &mut value))
        };
        out.push_str(&rest);
        if state == "Admitted" && !holds(status, kind::PODS_READY) && !said(kind::PODS_READY).is_empty() {
            out.push_str(&format!("  {}\n", said(kind::PODS_READY)));
        }
        if let Some((_, why)) = self.going.iter().find(|(going, _)| going == key) {
            out.push_str(&format!("  it would have to go now: {why}\n"));
        }
        value["state"] = json!(state);
        if !queue.is_empty() {
            value["clusterQueue"] = json!(queue);
        }
        value["message"] = json!(out.trim_end());
        Some(Account { text: out, value })
    }

    /// Why a workload has no quota, and how far it is from having some.
    fn waiting(&mut self, key: &Key, workload: &Value, title: &str, value: &mut Value) -> String {
        let status = at(workload, &["status"]);
        let local = Key::new(key.namespace.clone(), text(workload, &["spec", "queueName"]));
        if local.name.is_empty() {
            value["reason"] = json!("NoQueue");
            return format!(
                "{title} waits: it names no queue\n  give its job the label {} with the name of a LocalQueue\n",
                crate::keys::QUEUE
            );
        }
        let Some(found) = self.locals.get(&local) else {
            let here = self.locals.keys().filter(|other| other.namespace == key.namespace);
            let here: Vec<&str> = here.map(|other| other.name.as_str()).collect();
            let hint = match here.as_slice() {
                [] => "the namespace has none: create it".to_owned(),
                some => format!("create it, or name one that is there: {}", some.join(", ")),
            };
            value["reason"] = json!("Misconfigured");
            return format!("{title} waits: there is no LocalQueue {local}\n  {hint}\n");
        };
        let cluster = text(found, &["spec", "clusterQueue"]).to_owned();
        value["clusterQueue"] = json!(cluster);
        if matches!(text(found, &["spec", "stopPolicy"]), "Hold" | "HoldAndDrain") {
            value["reason"] = json!("Suspended");
            return format!(
                "{title} waits: LocalQueue {local} is stopped\n  set its spec.stopPolicy to None\n"
            );
        }
        let line = self.brain.line(&cluster, time(self.now));
        let place = line.iter().position(|other| other == key);
        let told = self.brain.told(key).map(|told| (told.reason.to_owned(), told.message.clone()));
        let condition =
            condition(status, kind::QUOTA_RESERVED).filter(|found| text(found, &["status"]) == "False");
        let written = condition.map(|c| (text(c, &["reason"]).to_owned(), text(c, &["message"]).to_owned()));
        // Whether there is a place is known to the service alone, and written where everybody can read it.
        let no_room = written.clone().filter(|(reason, _)| reason == "NoRoom");
        let is_next = self.admitted.contains(key) && no_room.is_none();
        let mut out = match place {
            Some(place) => {
                let of = self.local_line(&line, &local);
                let n = of.iter().position(|other| *other == key).map_or(0, |n| n + 1);
                value["position"] = json!({"clusterQueue": place + 1, "of": line.len(), "localQueue": n, "ofLocal": of.len()});
                format!(
                    "{title} waits in LocalQueue {local} of ClusterQueue {cluster}: number {} of {} in line, {n} of {} of its LocalQueue\n",
                    place + 1,
                    line.len(),
                    of.len()
                )
            }
            None => format!("{title} waits in LocalQueue {local} of ClusterQueue {cluster}\n"),
        };
        let again = time_at(status, &["requeueState", "requeueAt"]).filter(|at| *at > self.now);
        if let Some(again) = again {
            let n = int(status, &["requeueState", "count"]).unwrap_or(0);
            out.push_str(&format!("  it was tried {n} times and is tried again at {again}\n"));
        }
        let last = Some(("Pending".to_owned(), "it was not looked at yet".to_owned()));
        if is_next {
            value["reason"] = json!("Admissible");
            out.push_str("  there is quota for it: it is admitted with the next turn\n");
        } else if let Some((reason, why)) = no_room.or(told).or(written).or(last) {
            out.push_str(&format!("  {reason}: {why}\n"));
            value["reason"] = json!(reason);
            value["why"] = json!(why);
        }
        if holds(status, kind::EVICTED) {
            let before = self::condition(status, kind::EVICTED).map_or("", |found| text(found, &["message"]));
            out.push_str(&format!("  before that: {before}\n"));
        }
        let ahead: Vec<String> = line.iter().take(place.unwrap_or(0)).map(Key::to_string).collect();
        if !ahead.is_empty() {
            let more = ahead.len().saturating_sub(MOST_NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let named: Vec<&str> = ahead.iter().take(MOST_NAMED).map(String::as_str).collect();
            out.push_str(&format!("  ahead of it: {}{more}\n", named.join(", ")));
        }
        if let Some(facts) = self.brain.cluster_queue(&cluster, time(self.now)) {
            let requests = self.brain.requests(key).unwrap_or_default();
            let asks = |resource: &str| {
                let sets = requests.as_array().into_iter().flatten();
                sets.into_iter().any(|set| set["resources"].get(resource).is_some())
            };
            out.push_str(&self.quota(&cluster, &facts, &asks));
        }
        out
    }

    fn local_line<'a>(&self, line: &'a [Key], local: &Key) -> Vec<&'a Key> {
        let is_of = |key: &&Key| {
            let workload = self.workloads.get(*key);
            key.namespace == local.namespace
                && workload.is_some_and(|w| text(w, &["spec", "queueName"]) == local.name)
        };
        line.iter().filter(is_of).collect()
    }

    /// What a queue has of the resources that are asked for.
    fn quota(&self, queue: &str, facts: &QueueFacts, asks: &dyn Fn(&str) -> bool) -> String {
        let spec = self.queues.get(queue).map_or(&Value::Null, |queue| at(queue, &["spec"]));
        let flavors = list(spec, &["resourceGroups"]).iter().flat_map(|group| list(group, &["flavors"]));
        let limits = |flavor: &str, resource: &str| {
            flavors
                .clone()
                .filter(|f| text(f, &["name"]) == flavor)
                .flat_map(|f| list(f, &["resources"]))
                .find(|r| text(r, &["name"]) == resource)
                .unwrap_or(&Value::Null)
        };
        let shown = |value: &Value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        let mut out = String::new();
        for (reserved, used) in facts.reservation.iter().zip(&facts.usage) {
            for ((resource, held, borrowed), (_, admitted, _)) in
                reserved.resources.iter().zip(&used.resources)
            {
                if !asks(resource) {
                    continue;
                }
                let limit = limits(&reserved.name, resource);
                let nominal = shown(at(limit, &["nominalQuota"])).unwrap_or_else(|| "0".into());
                let amount = |n: i64| words::quantity(resource, n);
                out.push_str(&format!(
                    "  {resource} in flavor {}: {} of {nominal} held, {} by admitted workloads",
                    reserved.name,
                    amount(*held),
                    amount(*admitted)
                ));
                if *borrowed > 0 {
                    out.push_str(&format!(", {} borrowed", amount(*borrowed)));
                }
                if !text(spec, &["cohortName"]).is_empty() {
                    let most = shown(at(limit, &["borrowingLimit"]));
                    let most =
                        most.map_or_else(|| "may borrow what there is".into(), |n| format!("may borrow {n}"));
                    out.push_str(&format!("; {most}"));
                    if let Some(most) = shown(at(limit, &["lendingLimit"])) {
                        out.push_str(&format!(", lends {most}"));
                    }
                }
                out.push('\n');
            }
        }
        out
    }

    pub fn cluster_queue(&mut self, name: &str) -> Option<Account> {
        let object = self.queues.get(name)?.clone();
        let facts = self.brain.cluster_queue(name, time(self.now)).unwrap_or_default();
        let read: ClusterQueue = serde_json::from_value(object.clone()).ok()?;
        let status = queues::cluster_queue(&read, &facts, self.brain.inactive(name), self.now);
        let active = condition(&status, kind::ACTIVE)?;
        let spec = at(&object, &["spec"]);
        let strategy =
            Some(text(spec, &["queueingStrategy"])).filter(|s| !s.is_empty()).unwrap_or("BestEffortFIFO");
        let cohort = match text(spec, &["cohortName"]) {
            "" => String::new(),
            cohort => format!(" in cohort {cohort}"),
        };
        let mut out = format!("ClusterQueue {name}{cohort}, {strategy}: {}\n", text(active, &["message"]));
        if let Some(share) = facts.share {
            out.push_str(&format!("  weighted share {share}\n"));
        }
        out.push_str(&self.quota(name, &facts, &|_| true));
        let line = self.brain.line(name, time(self.now));
        out.push_str(&counts(&facts, line.len()));
        let waiting = self.in_line(&line.iter().collect::<Vec<_>>(), &mut out);
        let value = json!({
            "kind": "ClusterQueue", "name": name, "cohort": text(spec, &["cohortName"]), "strategy": strategy,
            "active": text(active, &["status"]) == "True", "reason": text(active, &["reason"]),
            "message": text(active, &["message"]), "status": status, "line": waiting,
        });
        Some(Account { text: out, value })
    }

    pub fn local_queue(&mut self, key: &Key) -> Option<Account> {
        let object = self.locals.get(key)?.clone();
        let cluster = text(&object, &["spec", "clusterQueue"]).to_owned();
        let facts = self.brain.local_queue(key, time(self.now)).unwrap_or_default();
        let state = match text(&object, &["spec", "stopPolicy"]) {
            "" | "None" if !self.queues.contains_key(&cluster) => {
                format!("there is no ClusterQueue {cluster}: create it; this queue cannot name another")
            }
            "" | "None" if self.brain.inactive(&cluster).is_some() => {
                format!(
                    "ClusterQueue {cluster} takes nothing in: see `muster explain clusterqueue/{cluster}`"
                )
            }
            "" | "None" => "takes workloads".into(),
            stopped => format!("is stopped (spec.stopPolicy {stopped})"),
        };
        let mut out = format!("LocalQueue {key} of ClusterQueue {cluster}: {state}\n");
        let whole = self.brain.line(&cluster, time(self.now));
        let line = self.local_line(&whole, key);
        out.push_str(&counts(&facts, line.len()));
        let waiting = self.in_line(&line, &mut out);
        let value = json!({
            "kind": "LocalQueue", "name": key.to_string(), "clusterQueue": cluster, "message": state,
            "pending": line.len(), "reserving": facts.reserving, "admitted": facts.admitted, "line": waiting,
        });
        Some(Account { text: out, value })
    }

    /// Those who wait, in order, each with the reason.
    fn in_line(&self, line: &[&Key], out: &mut String) -> Vec<Value> {
        let mut waiting = Vec::new();
        for (i, key) in line.iter().enumerate() {
            let told = self.brain.told(key);
            let (reason, message) = told.map_or(("Pending", ""), |told| (told.reason, told.message.as_str()));
            waiting.push(json!({"workload": key.to_string(), "reason": reason, "message": message}));
            if i < MOST_NAMED {
                let words =
                    if message.is_empty() { reason.to_owned() } else { format!("{reason}: {message}") };
                out.push_str(&format!("    {}. {key}: {words}\n", i + 1));
            }
        }
        if line.len() > MOST_NAMED {
            out.push_str(&format!("    and {} more\n", line.len() - MOST_NAMED));
        }
        waiting
    }
}

fn counts(facts: &QueueFacts, n_waiting: usize) -> String {
    let end = if n_waiting == 0 { "" } else { ":" };
    format!("  {} admitted, {} with quota, {n_waiting} waiting{end}\n", facts.admitted, facts.reserving)
}

/// What a workload was given, set by set.
fn given(status: &Value) -> String {
    let mut out = String::new();
    for set in list(status, &["admission", "podSetAssignments"]) {
        let amounts = at(set, &["resourceUsage"]);
        let of = at(set, &["flavors"]).as_object().into_iter().flatten().map(|(resource, flavor)| {
            let amount = text(amounts, &[resource]);
            format!("{amount} {resource} of flavor {}", flavor.as_str().unwrap_or_default())
        });
        let of: Vec<String> = of.collect();
        let n = int(set, &["count"]).unwrap_or(1);
        out.push_str(&format!("  {}: {n} pods, {}\n", crate::podset::set_name(set), of.join(", ")));
    }
    out
}

fn checks(status: &Value) -> String {
    let mut out = String::new();
    for check in list(status, &["admissionChecks"]) {
        let (name, state) = (text(check, &["name"]), text(check, &["state"]));
        let message = match text(check, &["message"]) {
            "" => String::new(),
            message => format!(": {message}"),
        };
        out.push_str(&format!("  check {name} is {state}{message}\n"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const KUEUE: &str = "kueue.x-k8s.io/v1beta2";

    fn object(kind: &str, namespace: &str, name: &str, rest: Value) -> Value {
        let version = if kind == "Namespace" { "v1" } else { KUEUE };
        let mut out = json!({"apiVersion": version, "kind": kind,
            "metadata": {"name": name, "namespace": namespace, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"}});
        for (key, value) in rest.as_object().unwrap() {
            out[key] = value.clone();
        }
        out
    }

    fn workload(name: &str, queue: &str, cpu: i64, status: Value) -> Value {
        let mut out = object(
            "Workload",
            "ml",
            name,
            json!({"status": status, "spec": {"queueName": queue, "podSets": [{"name": "main", "count": 1,
                "template": {"spec": {"containers": [{"resources": {"requests": {"cpu": cpu}}}]}}}]}}),
        );
        out["metadata"]["ownerReferences"] = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": format!("job-{name}"), "uid": "u", "controller": true}]);
        out
    }

    fn has(kinds: &[&str]) -> Value {
        let conditions: Vec<Value> = kinds
            .iter()
            .map(|kind| json!({"type": kind, "status": "True", "reason": kind, "message": format!("{kind} it is")}))
            .collect();
        json!({"conditions": conditions, "admission": {"clusterQueue": "team", "podSetAssignments": [
            {"name": "main", "count": 1, "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "3"}}]}})
    }

    fn scene(more: Vec<Value>) -> Scene {
        let mut all = vec![
            object("Namespace", "", "ml", json!({})),
            object("ResourceFlavor", "", "default", json!({})),
            object(
                "ClusterQueue",
                "",
                "team",
                json!({"spec": {"cohortName": "all", "namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"],
                    "flavors": [{"name": "default", "resources": [{"name": "cpu", "nominalQuota": "4", "borrowingLimit": "1"}]}]}]}}),
            ),
            object("LocalQueue", "ml", "user", json!({"spec": {"clusterQueue": "team"}})),
            // Somebody else's.
            json!({"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "Workload", "metadata": {"name": "x", "namespace": "ml"}}),
        ];
        all.extend(more);
        let settings = Settings::default();
        Scene::new(&all, &settings, "2026-01-01T01:00:00Z".parse().unwrap())
    }

    #[track_caller]
    fn check(more: Vec<Value>, name: &str, expected: &[&str]) {
        let mut scene = scene(more);
        let key = Key::new("ml", name);
        let account = scene.workload(&key).unwrap();
        assert_eq!(account.text.lines().collect::<Vec<_>>(), expected);
        assert_eq!(account.value["message"], account.text.trim_end());
    }

    #[test]
    fn why_a_workload_waits() {
        check(
            vec![
                workload("a", "user", 3, has(&["QuotaReserved", "Admitted"])),
                workload("b", "user", 3, json!({})),
                workload("c", "user", 2, json!({})),
            ],
            "c",
            &[
                "Workload ml/c of Job job-c waits in LocalQueue ml/user of ClusterQueue team: number 2 of 2 in line, 2 of 2 of its LocalQueue",
                "  WaitingForQuota: couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 1 more needed",
                "  ahead of it: ml/b",
                "  cpu in flavor default: 3 of 4 held, 3 by admitted workloads; may borrow 1",
            ],
        );
        check(
            vec![workload("a", "user", 9, json!({}))],
            "a",
            &[
                "Workload ml/a of Job job-a waits in LocalQueue ml/user of ClusterQueue team: number 1 of 1 in line, 1 of 1 of its LocalQueue",
                "  ExceedsMaxQuota: couldn't assign flavors to pod set main: insufficient quota for cpu in flavor default, \
                 previously considered podsets requests (0) + current podset request (9) > maximum capacity (4)",
                "  cpu in flavor default: 0 of 4 held, 0 by admitted workloads; may borrow 1",
            ],
        );
    }

    #[test]
    fn what_is_not_there() {
        check(
            vec![workload("a", "typo", 1, json!({}))],
            "a",
            &[
                "Workload ml/a of Job job-a waits: there is no LocalQueue ml/typo",
                "  create it, or name one that is there: user",
            ],
        );
        let lost = object("LocalQueue", "ml", "lost", json!({"spec": {"clusterQueue": "gone"}}));
        let mut scene = scene(vec![lost, workload("a", "lost", 1, json!({}))]);
        let said = scene.local_queue(&Key::new("ml", "lost")).unwrap().text;
        assert!(
            said.starts_with("LocalQueue ml/lost of ClusterQueue gone: there is no ClusterQueue gone"),
            "{said}"
        );
        assert_eq!(scene.workload(&Key::new("ml", "nobody")), None);
        assert_eq!(scene.cluster_queue("nobody"), None);
    }

    #[test]
    fn what_a_workload_has() {
        check(
            vec![workload("a", "user", 3, has(&["QuotaReserved", "Admitted"]))],
            "a",
            &[
                "Workload ml/a of Job job-a is admitted by ClusterQueue team",
                "  main: 1 pods, 3 cpu of flavor default",
            ],
        );
        let mut held = has(&["QuotaReserved"]);
        held["admissionChecks"] = json!([{"name": "budget", "state": "Pending", "message": "asked"}]);
        check(
            vec![workload("a", "user", 3, held)],
            "a",
            &[
                "Workload ml/a of Job job-a holds quota of ClusterQueue team, and waits for its admission checks",
                "  check budget is Pending: asked",
                "  main: 1 pods, 3 cpu of flavor default",
            ],
        );
        check(
            vec![workload("a", "user", 3, has(&["Finished"]))],
            "a",
            &["Workload ml/a of Job job-a is finished: Finished it is"],
        );
        check(
            vec![workload("a", "user", 3, json!({}))],
            "a",
            &[
                "Workload ml/a of Job job-a waits in LocalQueue ml/user of ClusterQueue team",
                "  there is quota for it: it is admitted with the next turn",
                "  cpu in flavor default: 3 of 4 held, 3 by admitted workloads; may borrow 1",
            ],
        );
        let refused = json!({"conditions": [{"type": "QuotaReserved", "status": "False", "reason": "NoRoom",
            "message": "There is quota, but no place for the pods: no node has 3 cpu"}]});
        let mut scene = scene(vec![workload("a", "user", 3, refused)]);
        let account = scene.workload(&Key::new("ml", "a")).unwrap();
        assert_eq!(account.value["reason"], "NoRoom");
        assert!(account.text.contains("  NoRoom: There is quota, but no place"), "{}", account.text);
    }

    #[test]
    fn a_name_may_mean_a_workload_or_its_owner() {
        let scene = scene(vec![workload("a", "user", 3, json!({}))]);
        let meant = |subject: &str, namespace: Option<&str>| scene.workloads_meant(subject, namespace).len();
        for subject in ["a", "workload/a", "kwl/a", "job/job-a", "Jobs/job-a", "job-a"] {
            assert_eq!(meant(subject, None), 1, "{subject}");
        }
        for subject in ["job/a", "pod/job-a", "b"] {
            assert_eq!(meant(subject, None), 0, "{subject}");
        }
        assert_eq!((meant("a", Some("ml")), meant("a", Some("other"))), (1, 0));
    }

    #[test]
    fn what_stands_in_a_queue() {
        let mut scene = scene(vec![
            workload("a", "user", 3, has(&["QuotaReserved", "Admitted"])),
            workload("b", "user", 3, json!({})),
        ]);
        let account = scene.cluster_queue("team").unwrap();
        assert_eq!(
            account.text.lines().collect::<Vec<_>>(),
            [
                "ClusterQueue team in cohort all, BestEffortFIFO: Can admit new workloads",
                "  cpu in flavor default: 3 of 4 held, 3 by admitted workloads; may borrow 1",
                "  1 admitted, 1 with quota, 1 waiting:",
                "    1. ml/b: WaitingForQuota: couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 2 more needed",
            ]
        );
        assert_eq!(account.value["line"][0]["workload"], "ml/b");
        let account = scene.local_queue(&Key::new("ml", "user")).unwrap();
        assert!(
            account
                .text
                .starts_with("LocalQueue ml/user of ClusterQueue team: takes workloads\n  1 admitted"),
            "{}",
            account.text
        );
    }
}
