//! Sums of what containers ask for, and the quality-of-service class that follows.

use std::collections::BTreeMap;

use k8s_quantity::Quantity;
use serde_json::Value;

use crate::{
    json::{entries, has, list, text},
    normal,
};

/// Amounts by resource name.
pub(crate) type Amounts = BTreeMap<String, Quantity>;

/// The amounts in the map at a path; what is no quantity is left out.
pub(crate) fn amounts(value: &Value, path: &str) -> Amounts {
    entries(value, path)
        .filter_map(|(name, amount)| Some((name.clone(), normal::quantity(amount)?)))
        .collect()
}

/// What the containers of a pod need together, for `requests` or `limits`: the sum of those that run side by side, or
/// what the start-up steps need at most, whichever is larger.
pub(crate) fn of_containers(pod: &Value, what: &str) -> Amounts {
    let path = format!("resources.{what}");
    let mut total = Amounts::new();
    for container in list(pod, "spec.containers") {
        add(&mut total, &amounts(container, &path));
    }
    let mut sidecars = Amounts::new();
    let mut start = Amounts::new();
    for container in list(pod, "spec.initContainers") {
        let own = amounts(container, &path);
        if text(container, "restartPolicy") == "Always" {
            add(&mut total, &own);
            add(&mut sidecars, &own);
            raise(&mut start, &sidecars);
        } else {
            let mut step = own;
            add(&mut step, &sidecars);
            raise(&mut start, &step);
        }
    }
    raise(&mut total, &start);
    total
}

/// `Guaranteed`, `Burstable` or `BestEffort`.
pub(crate) fn qos_class(pod: &Value) -> &'static str {
    let mut requests = Amounts::new();
    let mut limits = Amounts::new();
    let mut is_guaranteed = true;
    let mut count = |holder: &Value, requests_path: &str, limits_path: &str, must_limit: bool| {
        add(&mut requests, &positive(amounts(holder, requests_path)));
        let own = positive(amounts(holder, limits_path));
        is_guaranteed &= !must_limit || own.len() == 2;
        add(&mut limits, &own);
    };
    if has(pod, "spec.resources") {
        let is_limited = entries(pod, "spec.resources.limits").next().is_some();
        count(pod, "spec.resources.requests", "spec.resources.limits", is_limited);
    } else {
        for container in list(pod, "spec.containers").iter().chain(list(pod, "spec.initContainers")) {
            count(container, "resources.requests", "resources.limits", true);
        }
    }
    if requests.is_empty() && limits.is_empty() {
        "BestEffort"
    } else if is_guaranteed && requests == limits {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

fn positive(amounts: Amounts) -> Amounts {
    amounts
        .into_iter()
        .filter(|(name, amount)| (name == "cpu" || name == "memory") && *amount > Quantity::ZERO)
        .collect()
}

fn add(total: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let sum = total.entry(name.clone()).or_insert(Quantity::ZERO);
        *sum = sum.saturating_add(*amount);
    }
}

fn raise(total: &mut Amounts, floor: &Amounts) {
    for (name, amount) in floor {
        let most = total.entry(name.clone()).or_insert(*amount);
        if *most < *amount {
            *most = *amount;
        }
    }
}
