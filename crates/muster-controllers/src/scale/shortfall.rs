//! What a gang is short of to have its minimum.
//!
//! In: a group, the count of its pods. Out: how many of the pods that wait it needs, by subgroup.
//! Must stay true: where some of several subgroups are enough, those are meant that need the fewest pods more, the first of
//! equals; a subgroup that has too few pods is never meant.

use std::collections::{BTreeMap, HashMap};

use muster_runtime::common::PodGroup;
use serde_json::Value;

use crate::accounts::plan::Tally;

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Shortfall {
    /// Pods that are needed of these subgroups.
    pub of: BTreeMap<String, i64>,
    /// Pods that are needed besides, of whatever subgroup.
    pub of_any: i64,
}

/// A subgroup.
struct Part {
    name: String,
    children: Vec<usize>,
    /// Of a subgroup with others in it, how many of these are enough.
    enough: Option<i64>,
    min_member: i64,
    /// How many pods it needs more, if there are as many.
    short: Option<i64>,
}

impl Shortfall {
    pub fn read(group: &PodGroup, tally: &Tally) -> Shortfall {
        let number = |field: &str| group.spec.get(field).and_then(Value::as_i64);
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let placed = count(tally.total().placed());
        let (mut parts, top) = tree(group);
        if parts.is_empty() {
            let minimum = number("minMember").unwrap_or(1);
            return Shortfall { of_any: minimum.saturating_sub(placed).max(0), ..Shortfall::default() };
        }
        // Each part has one parent, so nothing is met twice; parts in a circle are never met.
        let mut order = top.clone();
        let mut next = 0;
        while let Some(part) = order.get(next).and_then(|at| parts.get(*at)) {
            next += 1;
            order.extend(part.children.iter().copied());
        }
        for at in order.into_iter().rev() {
            let Some(part) = parts.get(at) else { continue };
            let short = if part.children.is_empty() {
                let counts = tally.counts.get(&part.name).copied().unwrap_or_default();
                let short = part.min_member.saturating_sub(count(counts.placed())).max(0);
                (short <= count(counts.waiting)).then_some(short)
            } else {
                cheapest(&parts, &part.children, part.enough)
                    .map(|all| all.iter().filter_map(|at| parts.get(*at)?.short).fold(0, i64::saturating_add))
            };
            if let Some(part) = parts.get_mut(at) {
                part.short = short;
            }
        }
        let mut found = Shortfall::default();
        let mut meant = cheapest(&parts, &top, number("minSubGroup")).unwrap_or_default();
        while let Some(part) = meant.pop().and_then(|at| parts.get(at)) {
            if !part.children.is_empty() {
                meant.extend(cheapest(&parts, &part.children, part.enough).unwrap_or_default());
            } else if let Some(short) = part.short.filter(|short| *short > 0) {
                found.of.insert(part.name.clone(), short);
            }
        }
        let taken = found.of.values().copied().fold(placed, i64::saturating_add);
        found.of_any = number("minMember").unwrap_or(0).saturating_sub(taken).max(0);
        found
    }

    /// Whether one more pod of a subgroup is needed; if so it counts from now on.
    pub fn take(&mut self, subgroup: &str) -> bool {
        let Some(left) = self.of.get_mut(subgroup).filter(|left| **left > 0) else { return false };
        *left -= 1;
        true
    }
}

/// The subgroups, and which of them are in no other.
fn tree(group: &PodGroup) -> (Vec<Part>, Vec<usize>) {
    let list: Vec<&Value> =
        group.spec.get("subGroups").and_then(Value::as_array).into_iter().flatten().collect();
    let text = |part: &Value, field: &str| part.get(field).and_then(Value::as_str).map(str::to_owned);
    let number = |part: &Value, field: &str| part.get(field).and_then(Value::as_i64);
    let mut parts: Vec<Part> = list
        .iter()
        .map(|part| Part {
            name: text(part, "name").unwrap_or_default(),
            children: Vec::new(),
            enough: number(part, "minSubGroup"),
            min_member: number(part, "minMember").unwrap_or(0),
            short: None,
        })
        .collect();
    let by_name: HashMap<String, usize> =
        parts.iter().enumerate().map(|(at, part)| (part.name.clone(), at)).collect();
    let mut top = Vec::new();
    for (at, part) in list.iter().enumerate() {
        let parent = text(part, "parent").and_then(|name| by_name.get(&name).copied());
        match parent.and_then(|parent| parts.get_mut(parent)) {
            Some(parent) => parent.children.push(at),
            None => top.push(at),
        }
    }
    (parts, top)
}

/// As many as are enough of these, all where nothing is said: those that need the fewest pods. `None` where too few can have theirs.
fn cheapest(parts: &[Part], among: &[usize], enough: Option<i64>) -> Option<Vec<usize>> {
    let n = enough.map_or(among.len(), |n| usize::try_from(n).unwrap_or(0));
    let mut able: Vec<(i64, usize)> =
        among.iter().filter_map(|at| Some((parts.get(*at)?.short?, *at))).collect();
    able.sort_unstable();
    (able.len() >= n).then(|| able.into_iter().take(n).map(|(_, at)| at).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::plan::Counts;
    use serde_json::json;

    /// Pods as `subgroup:placed+waiting`. Expected: `subgroup:needed`, and `*` for any.
    #[track_caller]
    fn check(spec: Value, pods: &str, expected: &str) {
        let group: PodGroup = serde_json::from_value(json!({"spec": spec})).unwrap();
        let mut tally = Tally::default();
        for word in pods.split_whitespace() {
            let (name, counts) = word.split_once(':').unwrap();
            let (running, waiting) = counts.split_once('+').unwrap();
            let (running, waiting) = (running.parse().unwrap(), waiting.parse().unwrap());
            tally.counts.insert(name.to_owned(), Counts { running, waiting, ..Counts::default() });
        }
        let found = Shortfall::read(&group, &tally);
        let mut said: Vec<String> = found.of.iter().map(|(name, n)| format!("{name}:{n}")).collect();
        said.extend((found.of_any > 0).then(|| format!("*:{}", found.of_any)));
        assert_eq!(said.join(" "), expected, "{spec} {pods}");
    }

    #[test]
    fn a_flat_gang() {
        check(json!({"minMember": 3}), ":1+4", "*:2");
        check(json!({}), ":0+4", "*:1");
        check(json!({"minMember": 3}), ":4+1", "");
        check(json!({"minMember": i64::MIN}), ":4+1", "");
    }

    #[test]
    fn some_of_its_subgroups_are_enough() {
        let three = |enough: Value| {
            let leaf = |name: &str, min: i64| json!({"name": name, "minMember": min});
            json!({"minSubGroup": enough, "subGroups": [leaf("a", 2), leaf("b", 1), leaf("c", 1)]})
        };
        check(three(json!(1)), "a:0+2 b:0+1 c:0+1", "b:1");
        check(three(json!(2)), "a:0+2 b:0+1 c:0+1", "b:1 c:1");
        check(three(json!(null)), "a:0+2 b:0+1 c:0+1", "a:2 b:1 c:1");
        // What has begun is cheaper to end, and who lacks pods cannot be helped by nodes.
        check(three(json!(2)), "a:1+1 b:0+0 c:0+1", "a:1 c:1");
        check(three(json!(1)), "a:2+0 b:0+1", "");
        check(three(json!(-1)), "a:0+2", "");
    }

    #[test]
    fn the_cheapest_way_through_several_levels() {
        let spec = |more: Value| {
            let mut spec = json!({"minSubGroup": 1, "subGroups": [
                {"name": "left"},
                {"name": "l1", "parent": "left", "minMember": 3}, {"name": "l2", "parent": "left", "minMember": 3},
                {"name": "right", "minSubGroup": 1},
                {"name": "r1", "parent": "right", "minMember": 5}, {"name": "r2", "parent": "right", "minMember": 4},
            ]});
            if let (Some(spec), Some(more)) = (spec.as_object_mut(), more.as_object()) {
                spec.extend(more.clone());
            }
            spec
        };
        check(spec(json!({})), "l1:0+3 l2:0+3 r1:0+5 r2:0+4", "r2:4");
        check(spec(json!({})), "l1:0+3 l2:0+3 r1:0+5 r2:0+3", "r1:5");
        check(spec(json!({})), "l1:3+0 l2:0+3 r1:0+5 r2:0+4", "l2:3");
        check(spec(json!({"minMember": 6})), "l1:0+3 l2:0+3 r1:0+5 r2:0+4", "r2:4 *:2");
    }

    #[test]
    fn nonsense_asks_for_nothing() {
        let circle = json!({"subGroups": [{"name": "a", "parent": "b", "minMember": 1}, {"name": "b", "parent": "a"}]});
        check(circle, "a:0+1", "");
        check(json!({"subGroups": [5, "x", {"minSubGroup": 7}]}), "a:0+1", "");
        check(json!({"subGroups": [{"name": "a", "parent": "nobody", "minMember": 1}]}), "a:0+1", "a:1");
    }
}
