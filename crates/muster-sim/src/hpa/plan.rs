//! How many replicas the metrics ask for.
//!
//! In: the autoscaler, the current number, metric values, what was recommended and done before, the time. Out: the
//! number, and why. Must stay true: the number is within the limits; within a tenth of the target nothing moves; a
//! window's highest recommendation holds a shrink back.

use jiff::Timestamp;
use k8s_quantity::Quantity;

use super::{Autoscaler, Metric, MetricTarget, ScalingPolicy, ScalingRules};

/// What an autoscaler remembers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Memory {
    /// Earlier recommendations, with their time.
    pub recommended: Vec<(Timestamp, i64)>,
    /// Earlier changes, with their time.
    pub changed: Vec<(Timestamp, i64)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Desired {
    pub replicas: i64,
    /// Name and current value of each metric, for the status.
    pub metrics: Vec<(String, String)>,
    /// No metric could be read.
    pub unknown: Vec<String>,
    pub limited: Option<(&'static str, &'static str)>,
}

const DEFAULT_DOWN_WINDOW: i64 = 300;

pub fn desired(
    hpa: &Autoscaler,
    current: i64,
    value_of: impl Fn(&str) -> Option<String>,
    memory: &mut Memory,
    now: Timestamp,
) -> Desired {
    let least = hpa.spec.min_replicas.unwrap_or(1).max(0);
    let most = hpa.spec.max_replicas.max(least);
    let mut out = Desired { replicas: current, metrics: Vec::new(), unknown: Vec::new(), limited: None };
    // Zero replicas means that autoscaling is switched off.
    if current == 0 && least != 0 {
        return out;
    }
    let mut asked: Option<i64> = None;
    for metric in &hpa.spec.metrics {
        let Some((name, target)) = parts(metric) else { continue };
        match value_of(name).and_then(|value| Some((proposal(metric, target, current, &value)?, value))) {
            Some((proposal, value)) => {
                asked = Some(asked.map_or(proposal, |a: i64| a.max(proposal)));
                out.metrics.push((name.to_owned(), value));
            }
            None => out.unknown.push(name.to_owned()),
        }
    }
    let Some(mut asked) = asked else {
        out.replicas = current.clamp(least, most);
        return out;
    };
    // What cannot be read never shrinks anything.
    if !out.unknown.is_empty() {
        asked = asked.max(current);
    }
    let asked = stabilize(hpa, current, asked, memory, now);
    let allowed = within_rates(hpa, current, asked, memory, now);
    out.replicas = allowed.clamp(least, most);
    out.limited = if allowed > most {
        Some(("TooManyReplicas", "the desired replica count is more than the maximum replica count"))
    } else if allowed < least {
        Some(("TooFewReplicas", "the desired replica count is less than the minimum replica count"))
    } else {
        None
    };
    out
}

/// The name and target of a metric.
pub fn parts(metric: &Metric) -> Option<(&str, &MetricTarget)> {
    if let Some(r) = metric.resource.as_ref().or(metric.container_resource.as_ref()) {
        return Some((&r.name, &r.target));
    }
    let named = metric.pods.as_ref().or(metric.object.as_ref()).or(metric.external.as_ref())?;
    Some((&named.metric.name, &named.target))
}

fn proposal(metric: &Metric, target: &MetricTarget, current: i64, value: &str) -> Option<i64> {
    let milli = |text: &str| text.parse::<Quantity>().ok().map(Quantity::milli_value);
    let have = milli(value)?;
    if let Some(percent) = target.average_utilization {
        return Some(by_ratio(current, have, percent.saturating_mul(1000)));
    }
    if let Some(average) = &target.average_value {
        let want = milli(average)?;
        // External and object metrics are totals, the others are averages over the pods.
        return if metric.external.is_some() || metric.object.is_some() {
            Some(ceil_div(i128::from(have), i128::from(want)))
        } else {
            Some(by_ratio(current, have, want))
        };
    }
    Some(by_ratio(current, have, milli(target.value.as_ref()?)?))
}

/// `ceil(current * have / want)`, or `current` when the two are within a tenth of each other.
fn by_ratio(current: i64, have: i64, want: i64) -> i64 {
    if want <= 0 {
        return current;
    }
    let (have, want) = (i128::from(have.max(0)), i128::from(want));
    if (have - want).abs() * 10 <= want {
        return current;
    }
    ceil_div(i128::from(current.max(1)) * have, want)
}

fn ceil_div(a: i128, b: i128) -> i64 {
    if b <= 0 {
        return 0;
    }
    i64::try_from((a + b - 1).div_euclid(b)).unwrap_or(i64::MAX)
}

/// Shrinks to no less than the window's highest recommendation, grows to no more than its lowest.
fn stabilize(hpa: &Autoscaler, current: i64, asked: i64, memory: &mut Memory, now: Timestamp) -> i64 {
    let window = |rules: &Option<ScalingRules>, default: i64| {
        rules.as_ref().and_then(|r| r.stabilization_window_seconds).unwrap_or(default)
    };
    let down = window(&hpa.spec.behavior.scale_down, DEFAULT_DOWN_WINDOW);
    let up = window(&hpa.spec.behavior.scale_up, 0);
    memory.recommended.push((now, asked));
    let longest = down.max(up);
    memory.recommended.retain(|(at, _)| now.duration_since(*at).as_secs() <= longest);
    let within = |seconds: i64| {
        memory
            .recommended
            .iter()
            .filter(move |(at, _)| now.duration_since(*at).as_secs() < seconds.max(1))
            .map(|(_, n)| *n)
    };
    let floor = within(down).max().unwrap_or(asked);
    let ceiling = within(up).min().unwrap_or(asked);
    let mut out = current;
    if out < ceiling {
        out = ceiling;
    }
    if out > floor {
        out = floor;
    }
    out
}

/// Holds a change to what the policies allow per period.
fn within_rates(hpa: &Autoscaler, current: i64, asked: i64, memory: &Memory, now: Timestamp) -> i64 {
    let grow = asked > current;
    let rules = if grow { &hpa.spec.behavior.scale_up } else { &hpa.spec.behavior.scale_down };
    let defaults =
        if grow { vec![policy("Pods", 4), policy("Percent", 100)] } else { vec![policy("Percent", 100)] };
    let select = rules.as_ref().and_then(|r| r.select_policy.as_deref()).unwrap_or("Max");
    if select == "Disabled" {
        return current;
    }
    let policies = rules.as_ref().map(|r| r.policies.clone()).filter(|p| !p.is_empty()).unwrap_or(defaults);
    let limits = policies.iter().map(|p| {
        let recent =
            memory.changed.iter().filter(|(at, _)| now.duration_since(*at).as_secs() < p.period_seconds);
        let moved: i64 = recent.map(|(_, by)| *by).filter(|by| (*by > 0) == grow).sum();
        let before = current - moved;
        let step = match p.kind.as_str() {
            "Percent" => {
                let part = i128::from(before) * i128::from(p.value);
                i64::try_from(if grow { (part + 99).div_euclid(100) } else { part.div_euclid(100) })
                    .unwrap_or(i64::MAX)
            }
            _ => p.value,
        };
        if grow { before.saturating_add(step) } else { before.saturating_sub(step) }
    });
    if grow {
        let limit = if select == "Min" { limits.min() } else { limits.max() };
        asked.min(limit.unwrap_or(asked)).max(current)
    } else {
        let limit = if select == "Min" { limits.max() } else { limits.min() };
        asked.max(limit.unwrap_or(asked)).min(current)
    }
}

fn policy(kind: &str, value: i64) -> ScalingPolicy {
    ScalingPolicy { kind: kind.into(), value, period_seconds: 15 }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn hpa(spec: Value) -> Autoscaler {
        serde_json::from_value(json!({"spec": spec})).unwrap()
    }

    fn cpu(target: i64) -> Value {
        json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": target}}}])
    }

    #[track_caller]
    fn check(hpa: &Autoscaler, current: i64, value: &str, expected: i64) {
        let got = desired(hpa, current, |_| Some(value.to_owned()), &mut Memory::default(), at(0));
        assert_eq!(got.replicas, expected, "{current} at {value}");
    }

    #[test]
    fn the_formula() {
        let h = hpa(json!({"minReplicas": 2, "maxReplicas": 10, "metrics": cpu(50)}));
        check(&h, 4, "100", 8);
        check(&h, 4, "54", 4);
        check(&h, 4, "56", 5);
        check(&h, 4, "25", 2);
        check(&h, 4, "1", 2);
        check(&h, 4, "900", 8);
        check(&h, 8, "900", 10);
        check(&h, 0, "900", 0);
        check(&h, 4, "junk", 4);
        check(&h, 20, "junk", 10);
    }

    #[test]
    fn other_metrics() {
        let pods =
            json!([{"type": "Pods", "pods": {"metric": {"name": "q"}, "target": {"averageValue": "10"}}}]);
        check(&hpa(json!({"maxReplicas": 20, "metrics": pods})), 4, "20", 8);
        let external = json!([{"type": "External", "external": {"metric": {"name": "q"}, "target": {"averageValue": "10"}}}]);
        check(&hpa(json!({"maxReplicas": 20, "metrics": external})), 4, "71", 8);
        let value =
            json!([{"type": "Object", "object": {"metric": {"name": "q"}, "target": {"value": "2k"}}}]);
        check(&hpa(json!({"maxReplicas": 20, "metrics": value})), 4, "4k", 8);
    }

    #[test]
    fn a_shrink_waits_for_the_window() {
        let h = hpa(json!({"maxReplicas": 10, "metrics": cpu(50)}));
        let mut memory = Memory::default();
        let mut look = |seconds: i64, value: &str| {
            desired(&h, 8, |_| Some(value.to_owned()), &mut memory, at(seconds)).replicas
        };
        assert_eq!(look(0, "50"), 8);
        assert_eq!(look(60, "10"), 8, "the recommendation of a minute ago holds");
        assert_eq!(look(310, "10"), 2);
    }

    #[test]
    fn rates_are_limited() {
        let h = hpa(json!({"maxReplicas": 100, "metrics": cpu(50),
            "behavior": {"scaleUp": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}]}}}));
        check(&h, 4, "500", 6);
        let mut memory = Memory { changed: vec![(at(-10), 2)], ..Memory::default() };
        let got = desired(&h, 6, |_| Some("500".into()), &mut memory, at(0));
        assert_eq!(got.replicas, 6, "two were added within the minute");
        let h = hpa(
            json!({"maxReplicas": 100, "metrics": cpu(50), "behavior": {"scaleUp": {"selectPolicy": "Disabled"}}}),
        );
        check(&h, 4, "500", 4);
    }
}
