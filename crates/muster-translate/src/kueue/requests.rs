//! What pods of a workload ask for: as they stand, and as quota counts it.

use super::{Context, amount, amounts};
use crate::read::{At, Object};
use crate::request::is_sidecar;
use muster_model::Name;
use serde_json::Value;
use std::collections::BTreeMap;

type Requests = BTreeMap<Name, i64>;

/// A resource that is counted as others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transformation {
    pub input: Name,
    /// The input itself is no longer counted.
    pub replace: bool,
    /// For one unit of the input, in thousandths of each output's unit.
    pub outputs: BTreeMap<Name, i64>,
    /// Outputs are multiplied by how much of this is asked for.
    pub multiply_by: Option<Name>,
}

/// The limits of a namespace, of all its LimitRanges together.
#[derive(Clone, Debug, Default)]
pub struct LimitRanges {
    by_namespace: BTreeMap<String, Limits>,
}

#[derive(Clone, Debug, Default)]
struct Limits {
    default: Requests,
    default_request: Requests,
    container: Bounds,
    pod: Bounds,
}

#[derive(Clone, Debug, Default)]
struct Bounds {
    max: Requests,
    min: Requests,
}

impl LimitRanges {
    /// Takes in a LimitRange; other kinds are ignored.
    pub fn put(&mut self, value: &Value) {
        if value.get("kind").and_then(Value::as_str) != Some("LimitRange") {
            return;
        }
        let object = Object::new("LimitRange", value);
        let namespace = object.get("metadata").get("namespace").str().unwrap_or("").to_owned();
        let limits = self.by_namespace.entry(namespace).or_default();
        for item in object.get("spec").get("limits").list() {
            let bounds = match item.get("type").str() {
                Some("Container") => &mut limits.container,
                Some("Pod") => &mut limits.pod,
                _ => continue,
            };
            for (resource, most) in amounts(item.get("max")) {
                bounds.max.entry(resource).and_modify(|m| *m = (*m).min(most)).or_insert(most);
            }
            for (resource, least) in amounts(item.get("min")) {
                bounds.min.entry(resource).and_modify(|m| *m = (*m).max(least)).or_insert(least);
            }
            if item.get("type").str() == Some("Container") {
                limits.default.extend(amounts(item.get("default")));
                limits.default_request.extend(amounts(item.get("defaultRequest")));
            }
        }
    }
}

/// What one pod asks for, with requests that are only limited, before defaults of a namespace.
pub(crate) fn raw(spec: At<'_>) -> Requests {
    combined(spec, &Limits::default())
}

fn add(sum: &mut Requests, more: &Requests) {
    for (resource, amount) in more {
        let sum = sum.entry(resource.clone()).or_default();
        *sum = sum.saturating_add(*amount);
    }
}

fn raise(most: &mut Requests, to: &Requests) {
    for (resource, amount) in to {
        let most = most.entry(resource.clone()).or_default();
        *most = (*most).max(*amount);
    }
}

fn container(at: At<'_>, limits: &Limits) -> Requests {
    let resources = at.get("resources");
    let mut limited = amounts(resources.get("limits"));
    for (resource, amount) in &limits.default {
        limited.entry(resource.clone()).or_insert(*amount);
    }
    let mut requests = amounts(resources.get("requests"));
    for (resource, amount) in limits.default_request.iter().chain(&limited) {
        requests.entry(resource.clone()).or_insert(*amount);
    }
    requests
}

fn combined(spec: At<'_>, limits: &Limits) -> Requests {
    let mut running = Requests::new();
    for at in spec.get("containers").list() {
        add(&mut running, &container(at, limits));
    }
    let mut sidecars = Requests::new();
    let mut peak = Requests::new();
    for at in spec.get("initContainers").list() {
        let mut asked = container(at, limits);
        if is_sidecar(at) {
            add(&mut running, &asked);
            add(&mut sidecars, &asked);
            raise(&mut peak, &sidecars);
        } else {
            add(&mut asked, &sidecars);
            raise(&mut peak, &asked);
        }
    }
    raise(&mut running, &peak);
    // Pod-level requests stand for all containers together.
    running.extend(amounts(spec.get("resources").get("requests")));
    add(&mut running, &amounts(spec.get("overhead")));
    running
}

/// What one pod takes on a node, what quota counts for it, and what is wrong with it in a namespace.
pub(super) fn of_template(
    spec: At<'_>,
    at: &str,
    namespace: &str,
    context: &Context,
) -> (Requests, Requests, Option<String>) {
    let none = Limits::default();
    let limits = context.limits.by_namespace.get(namespace).unwrap_or(&none);
    let raw = combined(spec, limits);
    let wrong = violation(spec, at, limits, &raw);
    let mut counted: Requests = raw
        .iter()
        .filter(|(name, _)| !context.excluded.iter().any(|prefix| name.starts_with(&**prefix)))
        .map(|(name, amount)| (name.clone(), *amount))
        .collect();
    if !context.transformations.is_empty() {
        counted = transformed(&counted, &context.transformations);
    }
    (raw, counted, wrong)
}

fn transformed(requests: &Requests, transformations: &[Transformation]) -> Requests {
    let mut sum = Requests::new();
    for (resource, &asked) in requests {
        let rule = transformations.iter().find(|t| t.input == *resource);
        let Some(rule) = rule else {
            add(&mut sum, &[(resource.clone(), asked)].into());
            continue;
        };
        if !rule.replace {
            add(&mut sum, &[(resource.clone(), asked)].into());
        }
        let unit = |name: &str| if name == "cpu" { 1000_i128 } else { 1 };
        let factor = match &rule.multiply_by {
            None => (1, 1),
            Some(by) => (i128::from(requests.get(by).copied().unwrap_or(0)), unit(by)),
        };
        for (output, &per_unit) in &rule.outputs {
            // asked / unit(input) × perUnit / 1000 × unit(output) × factor, rounded up.
            let above = i128::from(asked)
                .saturating_mul(i128::from(per_unit))
                .saturating_mul(unit(output))
                .saturating_mul(factor.0);
            let below = unit(resource) * 1000 * factor.1;
            let amount = above.div_euclid(below) + i128::from(above.rem_euclid(below) != 0);
            let amount = i64::try_from(amount).unwrap_or(i64::MAX);
            add(&mut sum, &[(output.clone(), amount)].into());
        }
    }
    sum
}

/// In Kueue's words, for they end up in a condition.
fn violation(spec: At<'_>, at: &str, limits: &Limits, pod: &Requests) -> Option<String> {
    let quoted = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|n| format!("{n:?}")).collect();
        format!("[{}]", names.join(","))
    };
    let above = |asked: &Requests, max: &Requests| -> Vec<String> {
        max.iter()
            .filter(|(name, most)| asked.get(*name).is_some_and(|a| a > *most))
            .map(|(name, _)| name.to_string())
            .collect()
    };
    let below = |asked: &Requests, min: &Requests| -> Vec<String> {
        min.iter()
            .filter(|(name, least)| asked.get(*name).is_some_and(|a| a < *least))
            .map(|(name, _)| name.to_string())
            .collect()
    };
    for (kind, list) in
        [("initContainers", spec.get("initContainers")), ("containers", spec.get("containers"))]
    {
        for (i, one) in list.list().enumerate() {
            let asked = container(one, limits);
            let limited = amounts(one.get("resources").get("limits"));
            let place = format!("{at}.template.spec.{kind}[{i}]");
            let over = above(&asked, &limited);
            if !over.is_empty() {
                let names: Vec<&str> = over.iter().map(String::as_str).collect();
                return Some(format!(
                    "resources validation failed: {place}: Invalid value: {}: requests must not exceed its limits",
                    quoted(&names)
                ));
            }
            let checks = [
                (above(&asked, &limits.container.max), "requests must not be above the limitRange max"),
                (below(&asked, &limits.container.min), "requests must not be below the limitRange min"),
            ];
            for (names, text) in checks {
                if !names.is_empty() {
                    let names: Vec<&str> = names.iter().map(String::as_str).collect();
                    return Some(format!(
                        "resources didn't satisfy LimitRange constraints: {place}: Invalid value: {}: {text}",
                        quoted(&names)
                    ));
                }
            }
        }
    }
    let checks = [
        (above(pod, &limits.pod.max), "requests must not be above the limitRange max"),
        (below(pod, &limits.pod.min), "requests must not be below the limitRange min"),
    ];
    for (names, text) in checks {
        if !names.is_empty() {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            return Some(format!(
                "resources didn't satisfy LimitRange constraints: {at}.template: Invalid value: {}: {text}",
                quoted(&names)
            ));
        }
    }
    None
}

/// Transformations as they are written in a configuration.
pub(super) fn transformations(list: At<'_>) -> Vec<Transformation> {
    list.list()
        .filter_map(|at| {
            Some(Transformation {
                input: at.get("input").name()?,
                replace: at.get("strategy").str() == Some("Replace"),
                outputs: at
                    .get("outputs")
                    .entries()
                    .filter_map(|(name, at)| {
                        let quantity = at.quantity()?;
                        Some((name.into(), amount("cpu", quantity)))
                    })
                    .collect(),
                multiply_by: at.get("multiplyBy").name(),
            })
        })
        .collect()
}
