//! KAI's pod groups: the tree of sub-groups must be a tree, and its minimums must be on the right nodes of it.
//!
//! In: a pod group as JSON. Out: a verdict. Must stay true: what KAI accepts is accepted; cost is linear in the number of
//! sub-groups.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::request::{Asked, Operation};
use crate::settings::Settings;
use crate::verdict::{Verdict, quote};
use crate::world::World;

pub fn validate(asked: &Asked<'_>, _settings: &Settings, world: &dyn World) -> Verdict {
    let (group, old) = (asked.object, asked.old);
    match asked.operation {
        Operation::Create => judge(group, true, world),
        Operation::Update => {
            if group["spec"] == old["spec"] || !group["metadata"]["deletionTimestamp"].is_null() {
                return Verdict::default();
            }
            judge(group, false, world).since(&judge(old, false, world))
        }
        Operation::Delete | Operation::Connect => Verdict::default(),
    }
}

struct Node<'a> {
    name: &'a str,
    parent: Option<&'a str>,
    /// Place in the list.
    index: usize,
    has_member: bool,
    min_sub_group: Option<i64>,
}

fn judge(group: &Value, is_new: bool, world: &dyn World) -> Verdict {
    let mut verdict = Verdict::default();
    let spec = &group["spec"];
    let nodes: Vec<Node<'_>> = spec["subGroups"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
        .iter()
        .enumerate()
        .map(|(index, node)| Node {
            name: node["name"].as_str().unwrap_or_default(),
            parent: node["parent"].as_str().filter(|parent| !parent.is_empty()),
            index,
            has_member: !node["minMember"].is_null(),
            min_sub_group: node["minSubGroup"].as_i64(),
        })
        .collect();
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for node in &nodes {
        if let Some(first) = places.get(node.name) {
            verdict.refuse(
                format!("spec.subGroups[{}].name", node.index),
                format!("{} is the name of spec.subGroups[{first}] too; give each its own", quote(node.name)),
            );
        } else {
            places.insert(node.name, node.index);
        }
    }
    let mut n_children: BTreeMap<&str, i64> = BTreeMap::new();
    let mut n_roots = 0_i64;
    for node in &nodes {
        match node.parent {
            None => n_roots += 1,
            Some(parent) => {
                *n_children.entry(parent).or_default() += 1;
                if !places.contains_key(parent) {
                    verdict.refuse(
                        format!("spec.subGroups[{}].parent", node.index),
                        format!(
                            "there is no sub-group {}; name one of this list, or leave it out",
                            quote(parent)
                        ),
                    );
                }
            }
        }
    }
    cycles(&nodes, &places, &mut verdict);

    const BOTH: &str =
        "cannot stand beside minMember; a group counts its pods or its sub-groups, keep one of the two";
    let root_min = spec["minSubGroup"].as_i64();
    if !spec["minSubGroup"].is_null() && !spec["minMember"].is_null() {
        verdict.refuse("spec.minSubGroup", BOTH);
    }
    too_many("spec.minSubGroup", root_min, n_roots, &mut verdict);
    for node in &nodes {
        let field = |name: &str| format!("spec.subGroups[{}].{name}", node.index);
        let n_children = n_children.get(node.name).copied().unwrap_or(0);
        match (n_children > 0, node.has_member, node.min_sub_group.is_some()) {
            (_, true, true) => verdict.refuse(field("minSubGroup"), BOTH),
            (false, _, true) => verdict.refuse(
                field("minSubGroup"),
                "this sub-group has no sub-groups of its own; write minMember, the number of pods",
            ),
            (false, false, false) => verdict.refuse(
                field("minMember"),
                "is missing; write how many pods of this sub-group must run together, 0 for no minimum",
            ),
            (true, true, false) => {
                let message = "this sub-group has sub-groups of its own, so it has no pods to count; remove it, or write \
                               minSubGroup";
                // Groups from before the rule must stay updatable.
                if is_new {
                    verdict.refuse(field("minMember"), message);
                } else {
                    verdict.warn(field("minMember"), message);
                }
            }
            _ => {}
        }
        if n_children > 0 {
            too_many(&field("minSubGroup"), node.min_sub_group, n_children, &mut verdict);
        }
    }

    if let Some(queue) = spec["queue"].as_str().filter(|queue| !queue.is_empty())
        && matches!(world.queue(queue), Some(None))
    {
        verdict.warn(
            "spec.queue",
            format_args!("there is no queue {}; the group waits until there is one", quote(queue)),
        );
    }
    if let Some(class) = spec["priorityClassName"].as_str().filter(|class| !class.is_empty())
        && world.has_priority_class(class) == Some(false)
    {
        verdict.warn(
            "spec.priorityClassName",
            format_args!("there is no PriorityClass {}; the default priority is taken", quote(class)),
        );
    }
    verdict
}

fn too_many(field: &str, min: Option<i64>, n_children: i64, verdict: &mut Verdict) {
    if let Some(min) = min
        && min > n_children
    {
        verdict.warn(
            field,
            format_args!(
                "is {min}, and there are {n_children} sub-groups: the group waits until there are more"
            ),
        );
    }
}

/// Refuses each ring of parents once, at its first member.
fn cycles(nodes: &[Node<'_>], places: &BTreeMap<&str, usize>, verdict: &mut Verdict) {
    let next = |index: usize| nodes.get(index)?.parent.and_then(|parent| places.get(parent).copied());
    // By which walk each was seen first, so that every node is walked over once.
    let mut seen: Vec<Option<usize>> = vec![None; nodes.len()];
    for start in 0..nodes.len() {
        let mut at = Some(start);
        while let Some(index) = at {
            match seen.get(index).copied().flatten() {
                None => {}
                Some(walk) if walk == start => {
                    let name = nodes.get(index).map(|node| node.name).unwrap_or_default();
                    verdict.refuse(
                        format!("spec.subGroups[{index}].parent"),
                        format!("{} is its own ancestor; leave the parent of one of them out", quote(name)),
                    );
                    break;
                }
                Some(_) => break,
            }
            if let Some(seen) = seen.get_mut(index) {
                *seen = Some(start);
            }
            at = next(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::world::Given;

    /// A group in short: `root m2` or `root s1`, then sub-groups `name[<parent] [mN] [sN]`, parted by `;`.
    fn group(text: &str) -> Value {
        let mut spec = json!({});
        let mut subs = Vec::new();
        for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            let mut words = part.split(' ');
            let (name, parent) = match words.next().unwrap().split_once('<') {
                Some((name, parent)) => (name, Some(parent)),
                None => (part.split(' ').next().unwrap(), None),
            };
            let mut node = json!({"name": name});
            if let Some(parent) = parent {
                node["parent"] = json!(parent);
            }
            for word in words {
                let n: i64 = word[1..].parse().unwrap();
                node[if word.starts_with('m') { "minMember" } else { "minSubGroup" }] = json!(n);
            }
            if name == "root" {
                node.as_object_mut().unwrap().remove("name");
                spec = node;
            } else {
                subs.push(node);
            }
        }
        if !subs.is_empty() {
            spec["subGroups"] = json!(subs);
        }
        json!({"spec": spec})
    }

    fn show(verdict: &Verdict) -> String {
        let field =
            |text: &str| text.split(": ").next().unwrap().replace("spec.", "").replace("subGroups", "");
        let errors = verdict.errors.iter().map(|error| format!("E {}", field(&error.field)));
        errors
            .chain(verdict.warnings.iter().map(|text| format!("W {}", field(text))))
            .collect::<Vec<_>>()
            .join(", ")
    }

    #[track_caller]
    fn check(text: &str, on_create: &str, on_update: &str) {
        let group = group(text);
        let world = Given::default();
        assert_eq!(show(&judge(&group, true, &world)), on_create, "create {text}");
        assert_eq!(show(&judge(&group, false, &world)), on_update, "update {text}");
    }

    #[test]
    fn trees() {
        check("", "", "");
        check("root m4", "", "");
        check("root m4; a m1; b m3", "", "");
        check("root s1; a m1; b m3", "", "");
        check("root m1 s1; a m1", "E minSubGroup", "E minSubGroup");
        check("root s3; a m1; b m3", "W minSubGroup", "W minSubGroup");
        check("root s1", "W minSubGroup", "W minSubGroup");
        check("a m1; a m2", "E [1].name", "E [1].name");
        check("a<x m1", "E [0].parent", "E [0].parent");
        check("a; b<a m1", "", "");
        check("a s1; b<a m1", "", "");
        check("a s2; b<a m1", "W [0].minSubGroup", "W [0].minSubGroup");
        check("a m1; b<a m1", "E [0].minMember", "W [0].minMember");
        check("a m1 s1; b<a m1", "E [0].minSubGroup", "E [0].minSubGroup");
        check("a s1", "E [0].minSubGroup", "E [0].minSubGroup");
        check("a", "E [0].minMember", "E [0].minMember");
        check("a m0", "", "");
        check("a<a", "E [0].parent", "E [0].parent");
        check("a<b; b<a; c<a m1", "E [0].parent", "E [0].parent");
        check("c<a m1; a<b; b<c", "E [0].parent, E [0].minMember", "E [0].parent, W [0].minMember");
        check("a<b; b<a; c<d; d<c", "E [0].parent, E [2].parent", "E [0].parent, E [2].parent");
    }

    #[test]
    fn updates_are_judged_by_what_they_change() {
        let (bad, worse) = (group("a"), group("a; b"));
        let world = Given::default();
        let asked = |object, old| Asked {
            operation: Operation::Update,
            namespace: "ns",
            name: "g",
            uid: "u",
            object,
            old,
        };
        let settings = Settings::default();
        assert_eq!(show(&validate(&asked(&bad, &bad), &settings, &world)), "");
        assert_eq!(show(&validate(&asked(&worse, &bad), &settings, &world)), "E [1].minMember");
        let mut going = worse.clone();
        going["metadata"] = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert_eq!(show(&validate(&asked(&going, &bad), &settings, &world)), "");
    }

    #[test]
    fn names_of_nothing() {
        let world = Given {
            queues: Some(BTreeMap::new()),
            priority_classes: Some(["train".to_owned()].into()),
            ..Given::default()
        };
        let group = json!({"spec": {"queue": "q", "priorityClassName": "p"}});
        assert_eq!(show(&judge(&group, true, &world)), "W queue, W priorityClassName");
        assert_eq!(show(&judge(&json!({"spec": {"priorityClassName": "train"}}), true, &world)), "");
        assert_eq!(show(&judge(&group, true, &Given::default())), "", "what is not known is not doubted");
    }
}
