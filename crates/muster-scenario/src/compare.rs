//! Holding an outcome against what a case expects, up to the symmetries that the case declares.
//!
//! In: a case and its outcome. Out: what differs, in words; nothing if all is as expected. Pods of one symmetric set may swap roles, and so
//! may nodes: a renaming is searched under which everything holds. Searching is bounded; a renaming that is not found in time counts as
//! none, and the first differences under the plain names are reported.

use crate::case::{Case, Symmetry};
use crate::expect::{Counts, Expect, GroupExpect, NodeExpect, Phase, PodExpect, QueueExpect, WhyExpect};
use crate::play::{Moment, NodeOutcome, Outcome, PodOutcome};
use crate::words;
use muster_model::{Key, Name, Resource};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// What it is about: `default/a-0`, `gang train`, `cycle 2`.
    pub what: String,
    pub expected: String,
    pub came: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: expected {}, came {}", self.what, self.expected, self.came)
    }
}

/// Renamings that are tried before a search is given up.
const MOST_TRIALS: u32 = 2_000;

/// The search goes one call deeper for every pod that another may stand in for; no case needs more of them than this.
const MOST_NAMED: usize = 2_000;

/// Everything in which the outcome differs from what the case expects.
pub fn compare(case: &Case, outcome: &Outcome) -> Vec<Mismatch> {
    // An outcome under other settings than the case's says nothing about the case.
    let mut differences: Vec<Mismatch> = outcome
        .settings
        .iter()
        .map(|d| Mismatch {
            what: "policy".into(),
            expected: "settings that can be read".into(),
            came: d.to_string(),
        })
        .collect();
    let cycles = case.cycles.max(1) as usize;
    for (i, moment) in outcome.moments.iter().enumerate() {
        let mut found = compare_moment(&case.expect, &case.symmetry, moment);
        if i > 0 {
            for difference in &mut found {
                difference.what = format!("{}, in stable cycle {i}", difference.what);
            }
        }
        differences.extend(found);
        if i > 0 && !differences.is_empty() {
            // What moves in one stable cycle moves in the next: once is enough to read.
            break;
        }
    }
    for (i, cycle) in outcome.cycles.iter().enumerate() {
        let limits = &case.expect.limits;
        let decisions = &cycle.decisions;
        let happened = [
            ("binds", limits.binds, decisions.binds.len()),
            ("evictions", limits.evictions, decisions.evictions.len()),
            ("promises", limits.pipelined, decisions.pipelined.len()),
        ];
        for (word, most, n) in happened {
            if let Some(most) = most.filter(|most| n > *most as usize) {
                let stable = if i >= cycles { " (stable)" } else { "" };
                differences.push(Mismatch {
                    what: format!("cycle {}{stable}", i + 1),
                    expected: format!("at most {most} {word}"),
                    came: n.to_string(),
                });
            }
        }
        for finding in &cycle.findings {
            differences.push(Mismatch {
                what: format!("cycle {}, auditor", i + 1),
                expected: "sound decisions".into(),
                came: finding.clone(),
            });
        }
    }
    let count = |f: fn(&muster_model::Decisions) -> usize| {
        outcome.cycles.iter().map(|c| f(&c.decisions)).sum::<usize>()
    };
    let totals = [
        ("binds", case.expect.total_binds, count(|d| d.binds.len())),
        ("evictions", case.expect.total_evicted, count(|d| d.evictions.len())),
        ("promises", case.expect.total_pipelined, count(|d| d.pipelined.len())),
    ];
    for (word, expected, n) in totals {
        if let Some(expected) = expected.filter(|e| *e as usize != n) {
            differences.push(Mismatch {
                what: "all cycles".into(),
                expected: format!("{expected} {word}"),
                came: n.to_string(),
            });
        }
    }
    differences
}

/// Which name stands for which: what the case calls one thing may have happened to another.
#[derive(Clone, Debug, Default)]
struct Renaming {
    pods: BTreeMap<String, String>,
    nodes: BTreeMap<String, String>,
}

impl Renaming {
    fn pod<'a>(&'a self, name: &'a str) -> &'a str {
        self.pods.get(name).map_or(name, String::as_str)
    }

    fn node<'a>(&'a self, name: &'a str) -> &'a str {
        self.nodes.get(name).map_or(name, String::as_str)
    }
}

fn compare_moment(expect: &Expect, symmetry: &Symmetry, moment: &Moment) -> Vec<Mismatch> {
    let plain = differences(expect, moment, &Renaming::default());
    if plain.is_empty() || (symmetry.pods.is_empty() && symmetry.nodes.is_empty()) {
        return plain;
    }
    let mut search = Search::new(expect, symmetry, moment);
    if search.named.len() <= MOST_NAMED && search.pods(0) {
        return Vec::new();
    }
    let near = search.nearest();
    // The renaming with the fewer differences tells more.
    if near.len() < plain.len() { near } else { plain }
}

struct Search<'a> {
    expect: &'a Expect,
    moment: &'a Moment,
    pod_sets: Vec<BTreeSet<&'a str>>,
    node_sets: Vec<BTreeSet<&'a str>>,
    /// Expected pods that others may stand in for, in the order in which they are assigned.
    named: Vec<(&'a String, &'a PodExpect)>,
    renaming: Renaming,
    pods_taken: BTreeSet<String>,
    nodes_taken: BTreeSet<String>,
    /// Expected nodes of symmetric sets that only groups or node expectations name.
    loose_nodes: Vec<&'a str>,
    trials: u32,
}

impl<'a> Search<'a> {
    fn new(expect: &'a Expect, symmetry: &'a Symmetry, moment: &'a Moment) -> Self {
        let sets =
            |sets: &'a [Vec<String>]| sets.iter().map(|s| s.iter().map(String::as_str).collect()).collect();
        let node_sets: Vec<BTreeSet<&str>> = sets(&symmetry.nodes);
        let of_groups = expect.groups.values().flat_map(|g| {
            g.nodes.iter().flatten().chain(g.sub_groups.values().flat_map(|s| s.nodes.iter().flatten()))
        });
        let mut loose_nodes: Vec<&str> = of_groups
            .chain(expect.nodes.keys())
            .map(String::as_str)
            .filter(|n| node_sets.iter().any(|s| s.contains(n)))
            .collect();
        loose_nodes.sort_unstable();
        loose_nodes.dedup();
        let pod_sets: Vec<BTreeSet<&str>> = sets(&symmetry.pods);
        let (named, alone): (Vec<_>, Vec<_>) =
            expect.pods.iter().partition(|(name, _)| pod_sets.iter().any(|s| s.contains(name.as_str())));
        let mut search = Self {
            expect,
            moment,
            pod_sets,
            node_sets,
            named,
            renaming: Renaming::default(),
            pods_taken: BTreeSet::new(),
            nodes_taken: BTreeSet::new(),
            loose_nodes,
            trials: 0,
        };
        // A pod that nobody can stand in for settles its node once and for all.
        for (name, want) in alone {
            search.unify_nodes(name, want);
        }
        search
    }

    /// Finds somebody for the expected pod `i` and all after it. Whether a renaming was found under which everything holds.
    fn pods(&mut self, i: usize) -> bool {
        let Some((name, want)) = self.named.get(i).copied() else { return self.loose(0) };
        let mut seen: Vec<&PodOutcome> = Vec::new();
        for candidate in self.candidates(name) {
            let Some(got) = self.moment.pods.get(candidate) else { continue };
            // Of pods to which the same happened, one is tried.
            if self.trials >= MOST_TRIALS || seen.iter().any(|other| self.same_to(name, other, got)) {
                continue;
            }
            seen.push(got);
            let undo = self.unify_nodes(candidate, want);
            let found = pod_difference(name, candidate, want, got, &self.renaming).is_none() && {
                self.take(name, candidate);
                let found = self.pods(i + 1);
                self.give_back(name, candidate);
                found
            };
            self.undo(undo);
            if found {
                return true;
            }
        }
        false
    }

    /// Whether it makes no difference which of two pods stands for an expected one. Where they are only matters to those of whom a place
    /// is expected: what is expected of gangs and nodes holds or fails whoever of a set is who.
    fn same_to(&self, name: &str, a: &PodOutcome, b: &PodOutcome) -> bool {
        let set = self.pod_sets.iter().find(|s| s.contains(name));
        let of_set = || self.named.iter().filter(|(n, _)| set.is_some_and(|s| s.contains(n.as_str())));
        let places = of_set().any(|(_, want)| want.node.is_some() || want.gpu_hint.is_some());
        let zones = of_set().any(|(_, want)| want.zones.is_some());
        let hints = of_set().any(|(_, want)| want.gpu_hint.is_some());
        a.phase == b.phase
            && a.was_evicted == b.was_evicted
            && a.already_terminating == b.already_terminating
            && a.gpus_required == b.gpus_required
            && a.gpus_accepted == b.gpus_accepted
            && (!places || a.node == b.node)
            && (!zones || a.zone_numbers() == b.zone_numbers())
            && (!hints || a.gpu_groups == b.gpu_groups)
    }

    /// Who may stand for an expected pod and does not stand for another yet; itself first.
    fn candidates(&self, name: &str) -> Vec<&'a str> {
        let Some(set) = self.pod_sets.iter().find(|s| s.contains(name)) else { return Vec::new() };
        let mut free: Vec<&str> = set.iter().copied().filter(|c| !self.pods_taken.contains(*c)).collect();
        free.sort_by_key(|c| *c != name);
        free
    }

    fn take(&mut self, name: &str, candidate: &str) {
        self.pods_taken.insert(candidate.to_string());
        self.renaming.pods.insert(name.to_string(), candidate.to_string());
    }

    fn give_back(&mut self, name: &str, candidate: &str) {
        self.renaming.pods.remove(name);
        self.pods_taken.remove(candidate);
    }

    /// A renaming for reports, when none is perfect: whoever finds a pod like the one expected takes it, the others take what is left.
    fn nearest(mut self) -> Vec<Mismatch> {
        let mut left = Vec::new();
        for (name, want) in self.named.clone() {
            let fits = self.candidates(name).into_iter().find(|candidate| {
                let undo = self.unify_nodes(candidate, want);
                let same =
                    self.moment.pods.get(*candidate).is_some_and(|got| {
                        pod_difference(name, candidate, want, got, &self.renaming).is_none()
                    });
                if !same {
                    self.undo(undo);
                }
                same
            });
            match fits {
                Some(candidate) => self.take(name, candidate),
                None => left.push(name),
            }
        }
        for name in left {
            if let Some(candidate) = self.candidates(name).first().copied() {
                self.take(name, candidate);
            }
        }
        differences(self.expect, self.moment, &self.renaming)
    }

    /// If the pod was expected on a node that another may stand for, lets that other stand for it. What to undo, if anything.
    fn unify_nodes(&mut self, pod: &str, want: &PodExpect) -> Option<(String, String)> {
        let wanted = want.node.as_deref()?;
        let got = self.moment.pods.get(pod)?.node.as_deref()?;
        self.bind_node(wanted, got)
    }

    fn bind_node(&mut self, wanted: &str, got: &str) -> Option<(String, String)> {
        let set = self.node_sets.iter().find(|s| s.contains(wanted))?;
        if !set.contains(got) || self.renaming.nodes.contains_key(wanted) || self.nodes_taken.contains(got) {
            return None;
        }
        self.renaming.nodes.insert(wanted.to_string(), got.to_string());
        self.nodes_taken.insert(got.to_string());
        Some((wanted.to_string(), got.to_string()))
    }

    fn undo(&mut self, undo: Option<(String, String)>) {
        if let Some((wanted, got)) = undo {
            self.renaming.nodes.remove(&wanted);
            self.nodes_taken.remove(&got);
        }
    }

    /// Gives the nodes that no pod's expectation has settled a stand-in, and holds the whole against the outcome.
    fn loose(&mut self, i: usize) -> bool {
        let Some(wanted) = self.loose_nodes.get(i).copied() else { return self.holds() };
        if self.renaming.nodes.contains_key(wanted) {
            return self.loose(i + 1);
        }
        let Some(set) = self.node_sets.iter().find(|s| s.contains(wanted)).cloned() else {
            return self.loose(i + 1);
        };
        for got in set {
            if self.trials >= MOST_TRIALS {
                return false;
            }
            if let Some(undo) = self.bind_node(wanted, got) {
                let found = self.loose(i + 1);
                self.undo(Some(undo));
                if found {
                    return true;
                }
            }
        }
        false
    }

    fn holds(&mut self) -> bool {
        self.trials += 1;
        differences(self.expect, self.moment, &self.renaming).is_empty()
    }
}

/// What differs under a renaming.
fn differences(expect: &Expect, moment: &Moment, names: &Renaming) -> Vec<Mismatch> {
    let mut found = Vec::new();
    for (name, want) in &expect.pods {
        let actual = names.pod(name);
        match moment.pods.get(actual) {
            Some(got) => found.extend(pod_difference(name, actual, want, got, names)),
            None => found.push(Mismatch {
                what: name.clone(),
                expected: said_of_pod(want),
                came: "no such pod".into(),
            }),
        }
    }
    found.extend(hint_differences(expect, moment, names));
    for (name, want) in &expect.groups {
        group_differences(name, want, moment, names, &mut found);
    }
    for (name, want) in &expect.queues {
        queue_differences(name, want, moment, &mut found);
    }
    for (name, want) in &expect.nodes {
        match moment.nodes.get(names.node(name)) {
            Some(got) => node_differences(name, want, got, &mut found),
            None => found.push(Mismatch {
                what: format!("node {name}"),
                expected: "a node".into(),
                came: "no such node".into(),
            }),
        }
    }
    found
}

fn pod_difference(
    name: &str,
    actual: &str,
    want: &PodExpect,
    got: &PodOutcome,
    names: &Renaming,
) -> Option<Mismatch> {
    let node = want.node.as_deref().map(|n| names.node(n));
    let zones = want.zones.as_ref().map(|z| z.iter().copied().collect::<BTreeSet<u32>>());
    let same = want.phase.is_none_or(|p| p == got.phase)
        && node.is_none_or(|n| got.node.as_deref() == Some(n))
        && want.was_evicted.is_none_or(|w| w == got.was_evicted)
        && want.already_terminating.is_none_or(|a| a == got.already_terminating)
        && zones.is_none_or(|z| z == got.zone_numbers())
        && want.gpus_required.is_none_or(|g| g == got.gpus_required)
        && want.gpus_accepted.is_none_or(|g| g == got.gpus_accepted);
    if same {
        return None;
    }
    let what = if name == actual { name.to_string() } else { format!("{name} (here {actual})") };
    let renamed = match (want.node.as_deref(), node) {
        (Some(wanted), Some(stands)) if wanted != stands => format!(" (here {stands})"),
        _ => String::new(),
    };
    // What is as expected and is not the point need not be said.
    let mut said = want.clone();
    said.gpus_required = said.gpus_required.filter(|g| *g != got.gpus_required);
    said.gpus_accepted = said.gpus_accepted.filter(|g| *g != got.gpus_accepted);
    if said.zones.as_ref().is_some_and(|z| z.iter().copied().collect::<BTreeSet<u32>>() == got.zone_numbers())
    {
        said.zones = None;
    }
    Some(Mismatch {
        what,
        expected: format!("{}{renamed}", said_of_pod(&said)),
        came: came_of_pod(&said, got),
    })
}

fn said_of_pod(want: &PodExpect) -> String {
    let mut said = vec![want.phase.map_or("anything", Phase::name).to_string()];
    if let Some(node) = &want.node {
        said.push(format!("on {node}"));
    }
    match want.was_evicted {
        Some(true) => said.push("after an eviction".into()),
        Some(false) => said.push("never evicted".into()),
        None => {}
    }
    match want.already_terminating {
        Some(true) => said.push("terminating from the start".into()),
        Some(false) => said.push("not terminating at the start".into()),
        None => {}
    }
    if let Some(zones) = &want.zones {
        said.push(format!("in NUMA zones {zones:?}"));
    }
    if let Some(gpus) = want.gpus_required {
        said.push(format!("asking for {} GPUs", words::thousandths(gpus.into())));
    }
    if let Some(gpus) = want.gpus_accepted {
        said.push(format!("charged {} GPUs", words::thousandths(gpus.into())));
    }
    said.join(" ")
}

/// The outcome in the same words, as far as the expectation goes into it.
fn came_of_pod(want: &PodExpect, got: &PodOutcome) -> String {
    let zones: Vec<u32> = got.zone_numbers().into_iter().collect();
    said_of_pod(&PodExpect {
        phase: Some(got.phase),
        node: got.node.as_ref().map(|n| n.to_string()),
        was_evicted: (want.was_evicted.is_some() || got.was_evicted).then_some(got.was_evicted),
        already_terminating: (want.already_terminating.is_some() || got.already_terminating)
            .then_some(got.already_terminating),
        gpu_hint: None,
        zones: want.zones.as_ref().map(|_| zones),
        gpus_required: want.gpus_required.map(|_| got.gpus_required),
        gpus_accepted: want.gpus_accepted.map(|_| got.gpus_accepted),
    })
}

/// Hints say who shares a GPU with whom; their values say nothing. So pods of one node must share as many as their hints do.
fn hint_differences(expect: &Expect, moment: &Moment, names: &Renaming) -> Vec<Mismatch> {
    let hinted: Vec<(&String, &Vec<String>, &PodOutcome)> = expect
        .pods
        .iter()
        .filter_map(|(name, want)| Some((name, want.gpu_hint.as_ref()?, moment.pods.get(names.pod(name))?)))
        .filter(|(_, _, got)| got.node.is_some() && !got.gpu_groups.is_empty())
        .collect();
    let mut found = Vec::new();
    for (i, (name, hints, got)) in hinted.iter().enumerate() {
        for (other, other_hints, other_got) in hinted.iter().take(i) {
            if got.node != other_got.node {
                continue;
            }
            let hints: BTreeSet<&String> = hints.iter().collect();
            let groups: BTreeSet<&Name> = got.gpu_groups.iter().collect();
            let hinted = other_hints.iter().collect::<BTreeSet<_>>().intersection(&hints).count();
            let shared = other_got.gpu_groups.iter().collect::<BTreeSet<_>>().intersection(&groups).count();
            if hinted != shared {
                let say = |n: usize| match n {
                    0 => "GPUs of their own".to_string(),
                    1 => "one GPU together".to_string(),
                    n => format!("{n} GPUs together"),
                };
                found.push(Mismatch {
                    what: format!("{other} and {name}"),
                    expected: say(hinted),
                    came: say(shared),
                });
            }
        }
    }
    found
}

/// The gang of a name: `namespace/name`, or a name alone.
fn gang_named<'a>(moment: &'a Moment, name: &str) -> Option<&'a Key> {
    moment
        .gangs
        .keys()
        .find(|key| key.to_string() == name)
        .or_else(|| moment.gangs.keys().find(|key| *key.name == *name))
}

fn group_differences(
    name: &str,
    want: &GroupExpect,
    moment: &Moment,
    names: &Renaming,
    found: &mut Vec<Mismatch>,
) {
    let gang = gang_named(moment, name);
    let of_gang = |pod: &&PodOutcome| match (gang, &pod.gang) {
        (Some(gang), Some(own)) => gang == own,
        // A gang whose pods have all finished may be unknown to the model.
        (None, Some(own)) => *own.name == *name || own.to_string() == name,
        (_, None) => false,
    };
    let pods: Vec<&PodOutcome> = moment.pods.values().filter(of_gang).collect();
    if pods.is_empty() && gang.is_none() {
        let known: Vec<String> = moment.gangs.keys().map(Key::to_string).collect();
        let known = if known.is_empty() {
            "there are none".into()
        } else {
            format!("there are {}", known.join(", "))
        };
        found.push(Mismatch {
            what: format!("gang {name}"),
            expected: "a gang".into(),
            came: format!("no such gang; {known}"),
        });
        return;
    }
    members_differences(&format!("gang {name}"), want, &pods, names, found);
    for (sub, want) in &want.sub_groups {
        let members: Vec<&PodOutcome> =
            pods.iter().copied().filter(|p| p.group.as_deref() == Some(sub.as_str())).collect();
        members_differences(&format!("gang {name}, group {sub}"), want, &members, names, found);
    }
    if !want.why.is_empty() {
        let refusal = gang.and_then(|g| moment.refusals.get(g));
        let lines = refusal.map(words::lines).unwrap_or_default();
        let reasons: Vec<Value> =
            refusal.map(|r| r.reasons.iter().map(words::reason_json).collect()).unwrap_or_default();
        for why in &want.why {
            let holds = match why {
                WhyExpect::Says(text) => {
                    let text = text.to_lowercase();
                    lines.iter().any(|line| line.to_lowercase().contains(&text))
                }
                WhyExpect::Has(fields) => reasons
                    .iter()
                    .any(|r| fields.iter().all(|(k, v)| r.get(k).is_some_and(|own| alike(own, v)))),
            };
            if !holds {
                let expected = match why {
                    WhyExpect::Says(text) => format!("a reason that says {text:?}"),
                    WhyExpect::Has(fields) => format!("the reason {}", Value::Object(fields.clone())),
                };
                let came = if lines.is_empty() { "no reason to wait".into() } else { lines.join("; ") };
                found.push(Mismatch { what: format!("gang {name}"), expected, came });
            }
        }
    }
}

/// Numbers are compared as numbers (4 is 4.0), everything else as it is.
fn alike(own: &Value, wanted: &Value) -> bool {
    own == wanted || own.as_f64().zip(wanted.as_f64()).is_some_and(|(a, b)| (a - b).abs() < 1e-9)
}

fn members_differences(
    what: &str,
    want: &GroupExpect,
    pods: &[&PodOutcome],
    names: &Renaming,
    found: &mut Vec<Mismatch>,
) {
    if let Some(all) = want.all
        && (pods.is_empty() || pods.iter().any(|p| p.phase != all))
    {
        found.push(Mismatch {
            what: what.into(),
            expected: format!("all {all}"),
            came: tally(pods.iter().copied()),
        });
    }
    count_differences(what, &want.counts, pods, found);
    if let Some(nodes) = &want.nodes {
        let wanted: BTreeSet<&str> = nodes.iter().map(|n| names.node(n)).collect();
        let got: BTreeSet<&str> = pods
            .iter()
            .filter(|p| matches!(p.phase, Phase::Bound | Phase::Running | Phase::Pipelined | Phase::Evicted))
            .filter_map(|p| p.node.as_deref())
            .collect();
        if wanted != got {
            let list = |set: BTreeSet<&str>| match set.len() {
                0 => "no nodes".to_string(),
                _ => format!("nodes {}", set.into_iter().collect::<Vec<_>>().join(", ")),
            };
            found.push(Mismatch { what: what.into(), expected: list(wanted), came: list(got) });
        }
    }
    let sum = |f: fn(&PodOutcome) -> i64| pods.iter().map(|p| i128::from(f(p))).sum::<i128>();
    let sums = [
        ("GPUs asked for", want.gpus_required, sum(|p| p.gpus_required)),
        ("GPUs charged", want.gpus_accepted, sum(|p| p.gpus_accepted)),
        (
            "CPU asked for, in thousandths",
            want.milli_cpu_required,
            sum(|p| p.shape.requests.get(&Resource::Cpu)),
        ),
        ("bytes of memory asked for", want.memory_required, sum(|p| p.shape.requests.get(&Resource::Memory))),
    ];
    for (word, wanted, got) in sums {
        if let Some(wanted) = wanted.filter(|w| i128::from(*w) != got) {
            let say = |n: i128| if word.starts_with("GPUs") { words::thousandths(n) } else { n.to_string() };
            found.push(Mismatch {
                what: what.into(),
                expected: format!("{} {word}", say(wanted.into())),
                came: say(got),
            });
        }
    }
}

fn count_differences(what: &str, want: &Counts, pods: &[&PodOutcome], found: &mut Vec<Mismatch>) {
    let n = |phase: Phase| pods.iter().filter(|p| p.phase == phase).count();
    let wrong = want.phases.iter().any(|(phase, count)| n(*phase) != *count as usize);
    let moved = pods.iter().filter(|p| p.was_evicted && p.phase != Phase::Evicted).count();
    let evicted_wrong = want.was_evicted.is_some_and(|w| w as usize != moved);
    if !wrong && !evicted_wrong {
        return;
    }
    let mut expected: Vec<String> = want
        .phases
        .iter()
        .filter(|(phase, count)| **count > 0 || n(**phase) > 0)
        .map(|(phase, count)| format!("{count} {phase}"))
        .collect();
    if let Some(w) = want.was_evicted {
        expected.push(format!("{w} evicted on the way"));
    }
    let mut came = tally(pods.iter().copied());
    if want.was_evicted.is_some() {
        came = format!("{came}, {moved} evicted on the way");
    }
    found.push(Mismatch { what: what.into(), expected: expected.join(", "), came });
}

/// `2 bound, 1 pending`.
fn tally<'a>(pods: impl Iterator<Item = &'a PodOutcome>) -> String {
    let mut counts: BTreeMap<Phase, usize> = BTreeMap::new();
    for pod in pods {
        *counts.entry(pod.phase).or_default() += 1;
    }
    if counts.is_empty() {
        return "no pods".into();
    }
    counts.iter().map(|(phase, n)| format!("{n} {phase}")).collect::<Vec<_>>().join(", ")
}

fn queue_differences(name: &str, want: &QueueExpect, moment: &Moment, found: &mut Vec<Mismatch>) {
    let what = format!("queue {name}");
    if !moment.queues.contains_key(name) {
        let known: Vec<&str> = moment.queues.keys().map(String::as_str).collect();
        found.push(Mismatch {
            what,
            expected: "a queue".into(),
            came: format!("no such queue; there are {}", known.join(", ")),
        });
        return;
    }
    let pods: Vec<&PodOutcome> = moment
        .pods
        .values()
        .filter(|pod| {
            let queue = pod.gang.as_ref().and_then(|g| moment.gangs.get(g)).map(|g| &*g.queue);
            queue.is_some_and(|q| is_within(moment, q, name))
        })
        .collect();
    count_differences(&what, &want.counts, &pods, found);
    for (resource, wanted) in &want.used {
        let amount = |pod: &&PodOutcome| match resource.as_str() {
            "gpu" => i128::from(pod.gpus_accepted) + i128::from(pod.shape.extra_gpu_charge),
            "cpu" => i128::from(pod.shape.requests.get(&Resource::Cpu)),
            "memory" => i128::from(pod.shape.requests.get(&Resource::Memory)),
            "pods" => i128::from(pod.shape.requests.get(&Resource::Pods)),
            other => i128::from(pod.shape.requests.get(&Resource::Other(Name::from(other)))),
        };
        let got: i128 = pods.iter().filter(|p| p.placed()).map(amount).sum();
        if got != i128::from(*wanted) {
            let resource = words::resource_named(resource);
            found.push(Mismatch {
                what: what.clone(),
                expected: format!("{} in use", words::amount(&resource, (*wanted).into())),
                came: words::amount(&resource, got),
            });
        }
    }
}

/// Whether a queue is another, or hangs below it. A circle of parents has an end here: the depth of the walk is bounded.
fn is_within(moment: &Moment, queue: &str, above: &str) -> bool {
    let mut at = Some(queue);
    for _ in 0..=moment.queues.len() {
        match at {
            Some(name) if name == above => return true,
            Some(name) => at = moment.queues.get(name).and_then(|p| p.as_deref()),
            None => return false,
        }
    }
    false
}

fn node_differences(name: &str, want: &NodeExpect, got: &NodeOutcome, found: &mut Vec<Mismatch>) {
    let what = format!("node {name}");
    let gpus = [
        ("idle", want.idle_gpus, got.idle_gpus),
        ("being released", want.releasing_gpus, got.releasing_gpus),
    ];
    for (word, wanted, came) in gpus {
        if let Some(wanted) = wanted.filter(|w| *w != came) {
            found.push(Mismatch {
                what: what.clone(),
                expected: format!("{} GPUs {word}", words::thousandths(wanted.into())),
                came: words::thousandths(came.into()),
            });
        }
    }
    if let Some(wanted) = want.pods.filter(|w| *w != got.pods) {
        found.push(Mismatch {
            what: what.clone(),
            expected: format!("{wanted} pods"),
            came: got.pods.to_string(),
        });
    }
    for (zone, wanted) in &want.zones {
        for (resource, amount) in wanted {
            let resource = words::resource_named(resource);
            let left = got.zones.get(*zone as usize).map(|z| z.get(&resource).copied().unwrap_or(0));
            if left != Some(*amount) {
                found.push(Mismatch {
                    what: format!("{what}, NUMA zone {zone}"),
                    expected: format!("{} left", words::amount(&resource, (*amount).into())),
                    came: left.map_or("no such zone".into(), |l| words::amount(&resource, l.into())),
                });
            }
        }
    }
}
