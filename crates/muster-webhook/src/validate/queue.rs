//! KAI's queues: they must say what they have, form a tree, and not be deleted from under their children.
//!
//! In: a queue as JSON and the queues that exist. Out: a verdict. Must stay true: no chain of parents, however long or
//! circular, makes this loop. Two writes at the same moment can still close a ring that neither saw; the scheduler copes
//! with that.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::request::{Asked, Operation};
use crate::settings::Settings;
use crate::share::quantity;
use crate::spelling;
use crate::validate::pod::is_duration;
use crate::verdict::{Verdict, quote};
use crate::world::{World, parent_of};

pub fn validate(asked: &Asked<'_>, settings: &Settings, world: &dyn World) -> Verdict {
    let (queue, old) = (asked.object, asked.old);
    match asked.operation {
        Operation::Create => judge(queue, asked.name, settings, world),
        Operation::Update => {
            if queue["spec"] == old["spec"] || !queue["metadata"]["deletionTimestamp"].is_null() {
                return Verdict::default();
            }
            judge(queue, asked.name, settings, world).since(&judge(old, asked.name, settings, world))
        }
        Operation::Delete => deletion(old, asked.name, world),
        Operation::Connect => Verdict::default(),
    }
}

const RESOURCES: [&str; 3] = ["gpu", "cpu", "memory"];

fn judge(queue: &Value, name: &str, settings: &Settings, world: &dyn World) -> Verdict {
    let mut verdict = Verdict::default();
    let spec = &queue["spec"];
    if !spec["resources"].is_object() {
        verdict.refuse(
            "spec.resources",
            "is missing; write quota, limit and overQuotaWeight for gpu, cpu (in thousandths of a core) and memory (in \
             millions of bytes), with limit: -1 for no limit",
        );
    } else {
        amounts(&spec["resources"], &mut verdict);
    }
    for key in ["preemptMinRuntime", "reclaimMinRuntime"] {
        if let Some(text) = spec[key].as_str().filter(|text| !text.is_empty() && !is_duration(text)) {
            verdict.warn(
                format_args!("spec.{key}"),
                format_args!("{} is ignored; write a duration such as 90s or 1h30m", quote(text)),
            );
        }
    }
    let parent = spec["parentQueue"].as_str().unwrap_or_default();
    if !parent.is_empty() {
        ancestors(name, parent, world, &mut verdict);
    }
    if settings.quota_validation {
        promises(spec, name, parent, world, &mut verdict);
    }
    verdict
}

/// What a number means is easy to get wrong: an omitted limit is none at all, and units differ.
fn amounts(resources: &Value, verdict: &mut Verdict) {
    let unlimited: Vec<&str> =
        RESOURCES.iter().copied().filter(|resource| resources[*resource]["limit"].is_null()).collect();
    if !unlimited.is_empty() {
        verdict.warn(
            "spec.resources",
            format_args!(
                "{} without a limit means 0: what asks for it never runs here; write limit: -1 for no limit",
                unlimited.join(", ")
            ),
        );
    }
    for resource in RESOURCES {
        for field in ["quota", "limit"] {
            let Some(amount) = amount(resources, resource, field) else { continue };
            let path = format!("spec.resources.{resource}.{field}");
            let value = &resources[resource][field];
            match amount {
                Amount::Unlimited | Amount::Of(0) => {}
                Amount::Of(nano) if nano < 0 => {
                    verdict.warn(
                        path,
                        format_args!("{value} is no amount; write -1 for no limit, or 0 or more"),
                    );
                }
                Amount::Of(nano) if resource == "cpu" && nano < 100 * UNIT => {
                    verdict.warn(path, format_args!("{value} means thousandths of a core; 1 core is 1000"));
                }
                Amount::Of(nano) if resource == "memory" && nano < 1000 * UNIT => {
                    verdict.warn(path, format_args!("{value} means millions of bytes; 1 GB is 1000"));
                }
                Amount::Of(nano) if resource == "memory" && nano >= 1_000_000_000 * UNIT => {
                    verdict.warn(
                        path,
                        format_args!("{value} means millions of bytes, more than a petabyte; 1 GB is 1000"),
                    );
                }
                Amount::Of(_) => {}
            }
        }
        if let (Some(quota), Some(limit)) =
            (amount(resources, resource, "quota"), amount(resources, resource, "limit"))
            && quota.exceeds(limit)
        {
            verdict.warn(
                format_args!("spec.resources.{resource}.quota"),
                "is above the limit, so a part of it can never be used",
            );
        }
    }
}

/// Amounts in billionths of the resource's unit.
const UNIT: i128 = 1_000_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Amount {
    Unlimited,
    Of(i128),
}

impl Amount {
    fn exceeds(self, other: Amount) -> bool {
        match (self, other) {
            (_, Amount::Unlimited) => false,
            (Amount::Unlimited, Amount::Of(_)) => true,
            (Amount::Of(a), Amount::Of(b)) => a > b,
        }
    }

    fn plus(self, other: Amount) -> Amount {
        match (self, other) {
            (Amount::Of(a), Amount::Of(b)) => Amount::Of(a.saturating_add(b)),
            _ => Amount::Unlimited,
        }
    }
}

impl std::fmt::Display for Amount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Amount::Unlimited => f.write_str("unlimited"),
            Amount::Of(nano) if nano % UNIT == 0 => write!(f, "{}", nano / UNIT),
            Amount::Of(nano) => {
                let digits = format!("{:09}", (nano % UNIT).abs());
                write!(f, "{}.{}", nano / UNIT, digits.trim_end_matches('0'))
            }
        }
    }
}

fn amount(resources: &Value, resource: &str, field: &str) -> Option<Amount> {
    let nano = quantity(&resources[resource][field])?.nano();
    Some(if nano == -UNIT { Amount::Unlimited } else { Amount::Of(nano) })
}

fn ancestors(name: &str, parent: &str, world: &dyn World, verdict: &mut Verdict) {
    const FIELD: &str = "spec.parentQueue";
    let mut path = vec![name.to_owned()];
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let mut at = parent.to_owned();
    loop {
        path.push(at.clone());
        if at == name {
            verdict.refuse(
                FIELD,
                format!("would make a ring: {}; choose a queue that is not below this one", ring(&path)),
            );
            return;
        }
        match world.queue(&at) {
            Some(Some(queue)) => {
                let above = parent_of(&queue).to_owned();
                // A ring further up is not ours to refuse here.
                if above.is_empty() || !seen.insert(at) {
                    return;
                }
                at = above;
            }
            Some(None) if at == parent => {
                let names = world.queue_names();
                let near = spelling::nearest(
                    parent,
                    names.iter().map(String::as_str).filter(|other| *other != name),
                );
                let hint = match near {
                    Some(name) => format!("did you mean {}?", quote(name)),
                    None => "nothing in this queue runs until there is one".to_owned(),
                };
                verdict.warn(FIELD, format_args!("there is no queue {}; {hint}", quote(parent)));
                return;
            }
            _ => return,
        }
    }
}

/// The names of a ring, shortened in the middle.
fn ring(path: &[String]) -> String {
    const MOST: usize = 6;
    match path {
        [first @ .., last] if path.len() > MOST => {
            let shown: Vec<&str> = first.iter().take(MOST - 2).map(String::as_str).collect();
            format!("{} -> … -> {last}", shown.join(" -> "))
        }
        _ => path.join(" -> "),
    }
}

/// What is promised to children may not be there.
fn promises(spec: &Value, name: &str, parent: &str, world: &dyn World, verdict: &mut Verdict) {
    let quota =
        |resources: &Value, resource: &str| amount(resources, resource, "quota").unwrap_or(Amount::Of(0));
    let none = Value::Null;
    let sum = |queues: &[std::sync::Arc<muster_runtime::common::Queue>], resource: &str| {
        queues
            .iter()
            .map(|queue| quota(queue.spec.get("resources").unwrap_or(&none), resource))
            .fold(Amount::Of(0), Amount::plus)
    };
    for resource in RESOURCES {
        let own = quota(&spec["resources"], resource);
        let field = format!("spec.resources.{resource}.quota");
        if let Some(Some(above)) = world.queue(parent).filter(|_| !parent.is_empty()) {
            let of_parent = quota(above.spec.get("resources").unwrap_or(&none), resource);
            let mut siblings = world.children(parent).unwrap_or_default();
            siblings.retain(|queue| queue.metadata.name != name);
            let together = sum(&siblings, resource).plus(own);
            if own.exceeds(of_parent) {
                verdict.warn(
                    &field,
                    format_args!("{own} is more than the {of_parent} of its parent {}", quote(parent)),
                );
            } else if together.exceeds(of_parent) {
                verdict.warn(
                    &field,
                    format_args!(
                        "the queues of {} have {together} together, more than its {of_parent}",
                        quote(parent)
                    ),
                );
            }
        }
        let of_children = sum(&world.children(name).unwrap_or_default(), resource);
        if of_children.exceeds(own) {
            verdict.warn(
                field,
                format_args!("{own} is less than the {of_children} that its children have together"),
            );
        }
    }
}

fn deletion(old: &Value, name: &str, world: &dyn World) -> Verdict {
    let mut verdict = Verdict::default();
    let children: Vec<String> = match world.children(name) {
        Some(children) => children.iter().map(|queue| queue.metadata.name.clone()).collect(),
        // The status lags behind, but it is better than nothing.
        None => {
            let listed = old["status"]["childQueues"].as_array().map(Vec::as_slice).unwrap_or_default();
            listed.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        }
    };
    if !children.is_empty() {
        let shown: Vec<String> = children.iter().take(5).map(|name| quote(name)).collect();
        let more = if children.len() > shown.len() { ", …" } else { "" };
        verdict.refuse(
            "metadata.name",
            format!(
                "queue {} still has {} below it ({}{more}); delete them first, or give them another spec.parentQueue",
                quote(name),
                if children.len() == 1 { "a queue".to_owned() } else { format!("{} queues", children.len()) },
                shown.join(", ")
            ),
        );
    }
    verdict
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::world::Given;

    /// Queues as `name[<parent][=gpu quota]`.
    fn world(text: &str) -> Given {
        let queues = text.split_whitespace().map(|word| {
            let (head, quota) = word.split_once('=').unwrap_or((word, "-1"));
            let (name, parent) = head.split_once('<').unwrap_or((head, ""));
            let quota: f64 = quota.parse().unwrap();
            let queue = json!({"metadata": {"name": name}, "spec": spec(parent, json!(quota))});
            (name.to_owned(), Arc::new(serde_json::from_value(queue).unwrap()))
        });
        Given { queues: Some(queues.collect()), ..Given::default() }
    }

    fn spec(parent: &str, gpu_quota: Value) -> Value {
        let open = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
        let gpu = json!({"quota": gpu_quota, "limit": -1, "overQuotaWeight": 1});
        let mut spec = json!({"resources": {"gpu": gpu, "cpu": open, "memory": open}});
        if !parent.is_empty() {
            spec["parentQueue"] = json!(parent);
        }
        spec
    }

    #[track_caller]
    fn check(spec: Value, known: &str, settings: &Settings, expected: &[&str]) {
        let verdict = judge(&json!({"spec": spec}), "q", settings, &world(known));
        let errors = verdict.errors.iter().map(|error| format!("E {error}"));
        let shown: Vec<String> =
            errors.chain(verdict.warnings.iter().map(|text| format!("W {text}"))).collect();
        assert_eq!(shown, expected);
    }

    #[test]
    fn resources() {
        let settings = Settings::default();
        check(spec("", json!(4)), "", &settings, &[]);
        check(
            json!({}),
            "",
            &settings,
            &[
                "E spec.resources: is missing; write quota, limit and overQuotaWeight for gpu, cpu (in thousandths of a \
               core) and memory (in millions of bytes), with limit: -1 for no limit",
            ],
        );
        check(
            json!({"resources": {"gpu": {"quota": 4, "limit": -1}}}),
            "",
            &settings,
            &[
                "W spec.resources: cpu, memory without a limit means 0: what asks for it never runs here; write limit: -1 \
               for no limit",
            ],
        );
        let mut odd = spec("", json!(4));
        odd["resources"]["gpu"]["limit"] = json!(2);
        odd["resources"]["cpu"]["quota"] = json!(8);
        odd["resources"]["memory"] = json!({"quota": 64, "limit": 64_000_000_000_i64});
        odd["preemptMinRuntime"] = json!("5 minutes");
        check(
            odd,
            "",
            &settings,
            &[
                "W spec.resources.gpu.quota: is above the limit, so a part of it can never be used",
                "W spec.resources.cpu.quota: 8 means thousandths of a core; 1 core is 1000",
                "W spec.resources.memory.quota: 64 means millions of bytes; 1 GB is 1000",
                "W spec.resources.memory.limit: 64000000000 means millions of bytes, more than a petabyte; 1 GB is 1000",
                "W spec.preemptMinRuntime: \"5 minutes\" is ignored; write a duration such as 90s or 1h30m",
            ],
        );
        let mut negative = spec("", json!(-5));
        negative["resources"]["cpu"]["limit"] = json!(1e300);
        check(
            negative,
            "",
            &settings,
            &[
                "W spec.resources.gpu.quota: -5 is no amount; write -1 for no limit, or 0 or more",
                "W spec.resources.cpu.quota: is above the limit, so a part of it can never be used",
            ],
        );
    }

    #[test]
    fn parents() {
        let settings = Settings::default();
        check(spec("p", json!(1)), "p", &settings, &[]);
        check(
            spec("p", json!(1)),
            "parent",
            &settings,
            &["W spec.parentQueue: there is no queue \"p\"; nothing in this queue runs until there is one"],
        );
        check(
            spec("default-praent", json!(1)),
            "default-parent",
            &settings,
            &["W spec.parentQueue: there is no queue \"default-praent\"; did you mean \"default-parent\"?"],
        );
        let fix = "choose a queue that is not below this one";
        check(
            spec("q", json!(1)),
            "",
            &settings,
            &[&format!("E spec.parentQueue: would make a ring: q -> q; {fix}")],
        );
        check(
            spec("a", json!(1)),
            "a<b b<q q",
            &settings,
            &[&format!("E spec.parentQueue: would make a ring: q -> a -> b -> q; {fix}")],
        );
        check(
            spec("a", json!(1)),
            "a<b b<c c<d d<e e<f f<q q",
            &settings,
            &[&format!("E spec.parentQueue: would make a ring: q -> a -> b -> c -> … -> q; {fix}")],
        );
        check(spec("a", json!(1)), "a<b b<a", &settings, &[]);
        check(spec("a", json!(1)), "a<lost", &settings, &[]);
    }

    #[test]
    fn promised_more_than_there_is() {
        let settings = Settings { quota_validation: true, ..Settings::default() };
        check(spec("p", json!(2)), "p=4 x<p=2", &settings, &[]);
        check(spec("p", json!(2)), "p=-1 x<p=200", &settings, &[]);
        check(
            spec("p", json!(5)),
            "p=4",
            &settings,
            &["W spec.resources.gpu.quota: 5 is more than the 4 of its parent \"p\""],
        );
        check(
            spec("p", json!(-1)),
            "p=4",
            &settings,
            &["W spec.resources.gpu.quota: unlimited is more than the 4 of its parent \"p\""],
        );
        check(
            spec("p", json!(2.5)),
            "p=4 x<p=2 q<p=1",
            &settings,
            &["W spec.resources.gpu.quota: the queues of \"p\" have 4.5 together, more than its 4"],
        );
        check(
            spec("", json!(3)),
            "a<q=2 b<q=2",
            &settings,
            &["W spec.resources.gpu.quota: 3 is less than the 4 that its children have together"],
        );
        check(spec("p", json!(5)), "p=4", &Settings::default(), &[]);
    }

    #[test]
    fn deletions() {
        #[track_caller]
        fn check(world: &Given, status: Value, expected: &str) {
            let verdict = deletion(&json!({"status": status}), "q", world);
            assert_eq!(verdict.refusal(), if expected.is_empty() { "[]" } else { expected });
        }
        let fix = "delete them first, or give them another spec.parentQueue";
        check(&world("q a b<a"), json!({}), "");
        check(&world("q"), json!({"childQueues": ["gone"]}), "");
        check(
            &world("q a<q"),
            json!({}),
            &format!("metadata.name: queue \"q\" still has a queue below it (\"a\"); {fix}"),
        );
        check(
            &world("q a<q b<q c<q d<q e<q f<q"),
            json!({}),
            &format!(
                "metadata.name: queue \"q\" still has 6 queues below it (\"a\", \"b\", \"c\", \"d\", \"e\", …); {fix}"
            ),
        );
        check(
            &Given::default(),
            json!({"childQueues": ["a"]}),
            &format!("metadata.name: queue \"q\" still has a queue below it (\"a\"); {fix}"),
        );
    }
}
