//! The status of one pod group.
//!
//! In: the group as it is, the count of its pods. Out: the patch that makes its status true, or nothing.
//! Must stay true: `schedulingConditions` are the scheduler's and never touched; conditions that others wrote stay; a status
//! that says the same in another spelling is left alone; a group that nobody ever filled gets no status.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use muster_runtime::common::PodGroup;
use serde_json::{Map, Value, json};

use crate::accounts::plan::{Counts, Tally};
use crate::amounts::Amounts;
use crate::conditions::{self, Wanted};

pub const SCHEDULED: &str = "Scheduled";
pub const RUNNING: &str = "Running";
pub const COMPLETED: &str = "Completed";

pub fn patch(group: &PodGroup, tally: &Tally, preemptible: bool, now: Timestamp) -> Option<Value> {
    let mut status = Map::new();
    let none = Amounts::new();
    let fixed = if preemptible { &none } else { &tally.allocated };
    let lists = [
        ("requested", &tally.requested),
        ("allocated", &tally.allocated),
        ("allocatedNonPreemptible", fixed),
    ];
    if let Some(resources) = changed_lists(group.status.get("resourcesStatus"), &lists) {
        status.insert("resourcesStatus".to_owned(), resources);
    }
    let old = group.status.get("conditions");
    if let Some(list) = conditions::merged(old, &wanted(group, tally), now) {
        status.insert("conditions".to_owned(), list);
    }
    if status.is_empty() {
        return None;
    }
    let mut patch = json!({"status": status});
    if patch["status"].get("conditions").is_some()
        && conditions::has_others(old, &[SCHEDULED, RUNNING, COMPLETED])
    {
        // The list is written whole, so it must not be older than what somebody else wrote into it.
        patch["metadata"] = json!({"resourceVersion": group.metadata.resource_version});
    }
    Some(patch)
}

/// The merge patch of those lists that say something else than these amounts.
pub(crate) fn changed_lists(old: Option<&Value>, lists: &[(&str, &Amounts)]) -> Option<Value> {
    let mut patch = Map::new();
    for (name, amounts) in lists {
        let said = old.and_then(|o| o.get(*name));
        if amounts.same_as(said) {
            continue;
        }
        let new = amounts.to_json();
        let change = match said {
            Some(said @ Value::Object(_)) => muster_runtime::json::merge_patch(said, &new).unwrap_or(new),
            _ => new,
        };
        patch.insert((*name).to_owned(), change);
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

fn wanted(group: &PodGroup, tally: &Tally) -> Vec<Wanted> {
    let old = group.status.get("conditions");
    let total = tally.total();
    if total.all() == 0 {
        // Nobody came yet, or all have come, ended and been cleaned away.
        let untold = conditions::find(old, SCHEDULED).is_none();
        if untold || conditions::holds(old, COMPLETED) {
            return Vec::new();
        }
    }
    let gang = Gang::read(group);
    let active = total.waiting + total.starting + total.running + total.leaving;
    let completed = active == 0 && total.all() > 0;
    let placed = |c: &Counts| c.placed() + if completed { c.failed } else { 0 };
    let n_placed = placed(&total);
    let scheduled = n_placed > 0 && gang.is_met(tally, placed);
    let running = total.running > 0 && gang.is_met(tally, |c| c.running + c.succeeded);
    let complete = gang.is_met(tally, |c| c.placed() + c.waiting);

    let scheduled_reason = match (scheduled, total.all(), complete) {
        (true, _, _) => "Scheduled",
        (false, 0, _) => "NoPods",
        (false, _, false) => "Incomplete",
        (false, _, true) => "Waiting",
    };
    let running_reason = if running {
        "Running"
    } else if completed {
        "Completed"
    } else if scheduled {
        "Starting"
    } else if total.running > 0 {
        "BelowMinimum"
    } else {
        "Pending"
    };
    let completed_reason = match (completed, total.failed) {
        (false, _) => "InProgress",
        (true, 0) => "Succeeded",
        (true, _) => "Failed",
    };
    let condition = |kind, holds, reason, message| Wanted { kind, holds, reason, message };
    let placed_message = format!("{n_placed} of {} pods placed, {} needed", total.all(), gang.needed());
    vec![
        condition(SCHEDULED, scheduled, scheduled_reason, placed_message),
        condition(RUNNING, running, running_reason, in_words(&total, running)),
        condition(COMPLETED, completed, completed_reason, String::new()),
    ]
}

/// How many pods there are of each sort. While a gang starts, its pods begin to run one by one; how many do is said only once the
/// minimum does, so that a start is not a write per second.
fn in_words(counts: &Counts, runs: bool) -> String {
    let placed = counts.running + counts.starting;
    let parts = [
        (if runs { counts.running } else { 0 }, "running"),
        (if runs { counts.starting } else { 0 }, "starting"),
        (if runs { 0 } else { placed }, "placed"),
        (counts.waiting, "waiting"),
        (counts.leaving, "leaving"),
        (counts.succeeded, "succeeded"),
        (counts.failed, "failed"),
    ];
    let said: Vec<String> =
        parts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    if said.is_empty() { "no pods".to_owned() } else { said.join(", ") }
}

/// The minimum of a gang: a number of pods, or a tree of subgroups.
pub struct Gang {
    min_member: Option<i64>,
    min_subgroup: Option<i64>,
    parts: Vec<Part>,
    /// Parts whose way up ends at the gang, each after the one around it.
    order: Vec<usize>,
    top: Vec<usize>,
}

struct Part {
    name: String,
    min_member: i64,
    min_subgroup: Option<i64>,
    children: Vec<usize>,
}

impl Gang {
    pub fn read(group: &PodGroup) -> Gang {
        let number = |value: Option<&Value>| value.and_then(Value::as_i64);
        let list: Vec<&Value> =
            group.spec.get("subGroups").and_then(Value::as_array).into_iter().flatten().collect();
        let text =
            |value: &Value, field: &str| value.get(field).and_then(Value::as_str).unwrap_or("").to_owned();
        let mut parts: Vec<Part> = list
            .iter()
            .map(|part| Part {
                name: text(part, "name"),
                min_member: number(part.get("minMember")).unwrap_or(0),
                min_subgroup: number(part.get("minSubGroup")),
                children: Vec::new(),
            })
            .collect();
        let by_name: HashMap<String, usize> =
            parts.iter().enumerate().map(|(at, part)| (part.name.clone(), at)).collect();
        let mut top = Vec::new();
        for (at, part) in list.iter().enumerate() {
            match by_name.get(&text(part, "parent")).copied().filter(|_| part.get("parent").is_some()) {
                Some(parent) => {
                    if let Some(parent) = parts.get_mut(parent) {
                        parent.children.push(at);
                    }
                }
                None => top.push(at),
            }
        }
        // Each part has one parent, so nothing is met twice; parts in a circle are never met.
        let mut order = top.clone();
        let mut next = 0;
        while let Some(part) = order.get(next).and_then(|at| parts.get(*at)) {
            next += 1;
            order.extend(part.children.iter().copied());
        }
        Gang {
            min_member: number(group.spec.get("minMember")),
            min_subgroup: number(group.spec.get("minSubGroup")),
            parts,
            order,
            top,
        }
    }

    /// Whether enough pods are there, by a way to count them.
    pub fn is_met(&self, tally: &Tally, count: impl Fn(&Counts) -> usize) -> bool {
        let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let total = number(tally.counts.values().map(&count).sum());
        if self.parts.is_empty() {
            return total >= self.min_member.unwrap_or(1);
        }
        let mut met: BTreeMap<usize, bool> = BTreeMap::new();
        let n_met = |met: &BTreeMap<usize, bool>, parts: &[usize]| {
            number(parts.iter().filter(|at| met.get(at) == Some(&true)).count())
        };
        for at in self.order.iter().rev() {
            let Some(part) = self.parts.get(*at) else { continue };
            let enough = if part.children.is_empty() {
                number(tally.counts.get(&part.name).map_or(0, &count)) >= part.min_member
            } else {
                n_met(&met, &part.children) >= part.min_subgroup.unwrap_or(number(part.children.len()))
            };
            met.insert(*at, enough);
        }
        let parts_needed = self.min_subgroup.unwrap_or(number(self.top.len()));
        n_met(&met, &self.top) >= parts_needed && total >= self.min_member.unwrap_or(0)
    }

    /// How many pods are needed at least, for people to read.
    pub fn needed(&self) -> i64 {
        if self.parts.is_empty() {
            return self.min_member.unwrap_or(1);
        }
        let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let mut needed: BTreeMap<usize, i64> = BTreeMap::new();
        // The cheapest children are enough.
        let cheapest = |needed: &BTreeMap<usize, i64>, parts: &[usize], n: i64| {
            let mut each: Vec<i64> = parts.iter().filter_map(|at| needed.get(at).copied()).collect();
            each.sort_unstable();
            let n = usize::try_from(n).unwrap_or(0);
            each.into_iter().take(n).fold(0_i64, i64::saturating_add)
        };
        for at in self.order.iter().rev() {
            let Some(part) = self.parts.get(*at) else { continue };
            let n = if part.children.is_empty() {
                part.min_member.max(0)
            } else {
                let children = part.min_subgroup.unwrap_or(number(part.children.len()));
                cheapest(&needed, &part.children, children)
            };
            needed.insert(*at, n);
        }
        let top = cheapest(&needed, &self.top, self.min_subgroup.unwrap_or(number(self.top.len())));
        top.max(self.min_member.unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use muster_runtime::object::Strings;

    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn group(spec: Value, status: Value) -> PodGroup {
        serde_json::from_value(json!({"metadata": {"resourceVersion": "7"}, "spec": spec, "status": status}))
            .unwrap()
    }

    /// Counts as `subgroup:4r 1w`; letters are those of the words.
    fn counts(text: &str) -> BTreeMap<String, Counts> {
        let mut all = BTreeMap::new();
        for part in text.split(';').filter(|p| !p.is_empty()) {
            let (name, rest) = part.split_once(':').unwrap_or(("", part));
            let counts: &mut Counts = all.entry(name.trim().to_owned()).or_default();
            for word in rest.split_whitespace() {
                let (n, what) = word.split_at(word.len() - 1);
                let n: usize = n.parse().unwrap();
                match what {
                    "w" => counts.waiting += n,
                    "s" => counts.starting += n,
                    "r" => counts.running += n,
                    "l" => counts.leaving += n,
                    "d" => counts.succeeded += n,
                    "f" => counts.failed += n,
                    _ => panic!("{word}"),
                }
            }
        }
        all
    }

    fn tally(text: &str, cpu: &str) -> Tally {
        let list: Strings = [("cpu".to_owned(), cpu.to_owned())].into();
        let amounts = Amounts::read(&list);
        Tally { requested: amounts.clone(), allocated: amounts, counts: counts(text), ..Tally::default() }
    }

    /// Expected: the conditions that hold, then the reasons, then the message about placing.
    #[track_caller]
    fn check(spec: Value, pods: &str, expected: &str) {
        let wanted = wanted(&group(spec, json!({})), &tally(pods, "0"));
        let on: Vec<&str> = wanted.iter().filter(|c| c.holds).map(|c| c.kind).collect();
        let reasons: Vec<&str> = wanted.iter().map(|c| c.reason).collect();
        let message = wanted.first().map_or("", |c| &c.message);
        assert_eq!(format!("{} | {} | {message}", on.join(" "), reasons.join(" ")), expected);
    }

    #[test]
    fn how_far_a_gang_is() {
        let four = || json!({"minMember": 4});
        check(four(), "", " |  | ");
        check(four(), "2w", " | Incomplete Pending InProgress | 0 of 2 pods placed, 4 needed");
        check(four(), "4w", " | Waiting Pending InProgress | 0 of 4 pods placed, 4 needed");
        check(four(), "4s 1w", "Scheduled | Scheduled Starting InProgress | 4 of 5 pods placed, 4 needed");
        check(four(), "3r 1s", "Scheduled | Scheduled Starting InProgress | 4 of 4 pods placed, 4 needed");
        check(
            four(),
            "4r",
            "Scheduled Running | Scheduled Running InProgress | 4 of 4 pods placed, 4 needed",
        );
        check(four(), "3r 1w", " | Waiting BelowMinimum InProgress | 3 of 4 pods placed, 4 needed");
        check(four(), "3r 1l", " | Incomplete BelowMinimum InProgress | 3 of 4 pods placed, 4 needed");
        check(
            four(),
            "3r 1d",
            "Scheduled Running | Scheduled Running InProgress | 4 of 4 pods placed, 4 needed",
        );
        check(
            four(),
            "4d",
            "Scheduled Completed | Scheduled Completed Succeeded | 4 of 4 pods placed, 4 needed",
        );
        check(
            four(),
            "3d 1f",
            "Scheduled Completed | Scheduled Completed Failed | 4 of 4 pods placed, 4 needed",
        );
        check(
            json!({}),
            "1r",
            "Scheduled Running | Scheduled Running InProgress | 1 of 1 pods placed, 1 needed",
        );
        check(json!({"minMember": 0}), "1w", " | Waiting Pending InProgress | 0 of 1 pods placed, 0 needed");
    }

    #[test]
    fn a_start_is_not_told_pod_by_pod() {
        let said = |pods: &str| {
            let wanted = wanted(&group(json!({"minMember": 3}), json!({})), &tally(pods, "0"));
            wanted.into_iter().map(|c| c.message).collect::<Vec<_>>().join(" | ")
        };
        assert_eq!(said("1r 2s 1w"), said("3s 1w"));
        assert_eq!(said("1r 2s 1w"), "3 of 4 pods placed, 3 needed | 3 placed, 1 waiting | ");
        assert_eq!(said("3r 1s"), "4 of 4 pods placed, 3 needed | 3 running, 1 starting | ");
    }

    #[test]
    fn subgroups() {
        let flat = json!({"minMember": 4, "subGroups": [{"name": "m", "minMember": 1}, {"name": "w", "minMember": 3}]});
        check(
            flat.clone(),
            "m:1s;w:3s",
            "Scheduled | Scheduled Starting InProgress | 4 of 4 pods placed, 4 needed",
        );
        check(flat.clone(), "w:4s", " | Incomplete Pending InProgress | 4 of 4 pods placed, 4 needed");
        check(flat, "m:1w;w:3s", " | Waiting Pending InProgress | 3 of 4 pods placed, 4 needed");
        let any = json!({"minSubGroup": 1, "subGroups": [
            {"name": "a", "minSubGroup": 2}, {"name": "b", "minMember": 3},
            {"name": "a1", "parent": "a", "minMember": 1}, {"name": "a2", "parent": "a", "minMember": 1}]});
        check(
            any.clone(),
            "a1:1r;a2:1r",
            "Scheduled Running | Scheduled Running InProgress | 2 of 2 pods placed, 2 needed",
        );
        check(any.clone(), "a1:2r", " | Incomplete BelowMinimum InProgress | 2 of 2 pods placed, 2 needed");
        check(any, "b:3r", "Scheduled Running | Scheduled Running InProgress | 3 of 3 pods placed, 2 needed");
    }

    #[test]
    fn hostile_trees_end() {
        let circle = json!({"subGroups": [
            {"name": "a", "parent": "b", "minMember": 1}, {"name": "b", "parent": "a"}, {"name": "c", "parent": "c"}, 5]});
        let _ = Gang::read(&group(circle, json!({}))).needed();
        let deep: Vec<Value> = (0..100_000)
            .map(|i| json!({"name": format!("s{i}"), "parent": format!("s{}", i + 1), "minMember": 1}))
            .collect();
        let gang = Gang::read(&group(json!({"subGroups": deep}), json!({})));
        assert!(gang.is_met(&tally("s0:1r", "0"), |c| c.running));
        assert_eq!(gang.needed(), 1);
    }

    #[track_caller]
    fn check_patch(status: Value, tally: &Tally, preemptible: bool, expected: Value) {
        let patch = patch(&group(json!({"minMember": 1}), status), tally, preemptible, now());
        let resources = patch.as_ref().and_then(|p| p.pointer("/status/resourcesStatus").cloned());
        assert_eq!(resources.unwrap_or_default(), expected);
    }

    #[test]
    fn resources() {
        let held = tally("1r", "2");
        let all = json!({"requested": {"cpu": "2"}, "allocated": {"cpu": "2"}, "allocatedNonPreemptible": {"cpu": "2"}});
        check_patch(json!({}), &held, false, all.clone());
        check_patch(json!({"resourcesStatus": all}), &held, false, json!(null));
        check_patch(
            json!({"resourcesStatus": all}),
            &held,
            true,
            json!({"allocatedNonPreemptible": {"cpu": null}}),
        );
        let spelt = json!({"requested": {"cpu": "2000m"}, "allocated": {"cpu": 2, "memory": "0"}});
        check_patch(json!({"resourcesStatus": spelt}), &held, true, json!(null));
        check_patch(json!({"resourcesStatus": "junk"}), &Tally::default(), true, json!(null));
        check_patch(
            json!({"resourcesStatus": "junk"}),
            &held,
            true,
            json!({"requested": {"cpu": "2"}, "allocated": {"cpu": "2"}}),
        );
    }

    fn apply(group: &mut PodGroup, patch: &Value) {
        for (field, value) in patch["status"].as_object().unwrap() {
            group.status.insert(field.clone(), value.clone());
        }
    }

    #[test]
    fn what_is_true_is_not_written_again() {
        let mut group = group(json!({"minMember": 1}), json!({}));
        assert_eq!(patch(&group, &Tally::default(), true, now()), None, "nobody came yet");
        let done = tally("1d", "0");
        let first = patch(&group, &done, true, now()).unwrap();
        assert!(first.get("metadata").is_none());
        apply(&mut group, &first);
        assert_eq!(patch(&group, &done, true, now()), None);
        assert_eq!(patch(&group, &Tally::default(), true, now()), None, "what has ended may be cleaned away");
    }

    #[test]
    fn others_conditions_are_not_overwritten_blindly() {
        let others =
            json!({"conditions": [{"type": "Other", "status": "True"}], "schedulingConditions": [{"x": 1}]});
        let patch = patch(&group(json!({}), others), &tally("1r", "1"), true, now()).unwrap();
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        assert_eq!(patch["status"]["conditions"][0]["type"], "Other");
        assert!(patch["status"].get("schedulingConditions").is_none());
    }
}
