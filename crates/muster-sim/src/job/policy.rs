//! What a failed pod means for its Job, and which successes suffice.
//!
//! In: the policies of a Job and a pod or a set of succeeded indexes. Out: a verdict with the words for the condition.
//! Must stay true: the first rule that matches decides; without a match a failure counts.

use serde::Deserialize;

use super::indexes::{Indexes, parse};
use crate::object::Pod;

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct FailurePolicy {
    pub rules: Vec<FailureRule>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FailureRule {
    pub action: String,
    pub on_exit_codes: Option<OnExitCodes>,
    pub on_pod_conditions: Vec<OnPodCondition>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OnExitCodes {
    pub container_name: Option<String>,
    pub operator: String,
    pub values: Vec<i32>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct OnPodCondition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct SuccessPolicy {
    pub rules: Vec<SuccessRule>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SuccessRule {
    pub succeeded_indexes: Option<String>,
    pub succeeded_count: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Count,
    Ignore,
    FailIndex,
    FailJob(String),
}

pub fn judge(policy: Option<&FailurePolicy>, pod: &Pod) -> Verdict {
    for (i, rule) in policy.into_iter().flat_map(|p| &p.rules).enumerate() {
        let why = match &rule.on_exit_codes {
            Some(codes) => matching_exit(codes, pod).map(|(container, code)| {
                format!(
                    "Container {container} for pod {}/{} failed with exit code {code} matching {} rule at index {i}",
                    pod.metadata.namespace, pod.metadata.name, rule.action
                )
            }),
            None => matching_condition(&rule.on_pod_conditions, pod).map(|kind| {
                format!(
                    "Pod {}/{} has condition {kind} matching {} rule at index {i}",
                    pod.metadata.namespace, pod.metadata.name, rule.action
                )
            }),
        };
        if let Some(why) = why {
            return match rule.action.as_str() {
                "FailJob" => Verdict::FailJob(why),
                "FailIndex" => Verdict::FailIndex,
                "Ignore" => Verdict::Ignore,
                _ => Verdict::Count,
            };
        }
    }
    Verdict::Count
}

fn matching_exit<'a>(codes: &OnExitCodes, pod: &'a Pod) -> Option<(&'a str, i32)> {
    let statuses = pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses);
    statuses
        .filter(|s| codes.container_name.as_ref().is_none_or(|name| *name == s.name))
        .filter_map(|s| Some((s.name.as_str(), s.state.terminated.as_ref()?.exit_code)))
        .filter(|(_, code)| *code != 0)
        .find(|(_, code)| match codes.operator.as_str() {
            "In" => codes.values.contains(code),
            "NotIn" => !codes.values.contains(code),
            _ => false,
        })
}

fn matching_condition<'a>(wanted: &[OnPodCondition], pod: &'a Pod) -> Option<&'a str> {
    pod.status
        .conditions
        .iter()
        .find(|c| {
            wanted.iter().any(|w| {
                w.kind == c.kind && (w.status == c.status || w.status.is_empty() && c.status == "True")
            })
        })
        .map(|c| c.kind.as_str())
}

/// The first rule that the succeeded indexes satisfy.
pub fn satisfied(policy: Option<&SuccessPolicy>, succeeded: &Indexes, completions: i64) -> Option<usize> {
    policy?.rules.iter().position(|rule| {
        let of_rule: Indexes = match &rule.succeeded_indexes {
            Some(text) => parse(text, completions),
            None => (0..completions.clamp(0, 100_000)).collect(),
        };
        let n = i64::try_from(of_rule.intersection(succeeded).count()).unwrap_or(i64::MAX);
        match rule.succeeded_count {
            Some(count) => n >= count,
            None => rule.succeeded_indexes.is_some() && of_rule.is_subset(succeeded),
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[track_caller]
    fn check(rules: Value, exit: i32, condition: &str, expected: Verdict) {
        let policy: FailurePolicy = serde_json::from_value(json!({"rules": rules})).unwrap();
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"namespace": "ns", "name": "p"},
            "status": {
                "phase": "Failed",
                "conditions": [{"type": condition, "status": "True"}],
                "containerStatuses": [{"name": "main", "state": {"terminated": {"exitCode": exit}}}],
            },
        }))
        .unwrap();
        assert_eq!(judge(Some(&policy), &pod), expected);
    }

    #[test]
    fn verdicts() {
        let fail = json!({"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}});
        let ignore = json!({"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]});
        let rules = json!([fail, ignore]);
        check(
            rules.clone(),
            42,
            "x",
            Verdict::FailJob(
                "Container main for pod ns/p failed with exit code 42 matching FailJob rule at index 0"
                    .into(),
            ),
        );
        check(rules.clone(), 1, "DisruptionTarget", Verdict::Ignore);
        check(rules.clone(), 1, "x", Verdict::Count);
        check(rules, 0, "x", Verdict::Count);
        check(
            json!([{"action": "FailIndex", "onExitCodes": {"operator": "NotIn", "values": [1, 2]}}]),
            3,
            "x",
            Verdict::FailIndex,
        );
        check(
            json!([{"action": "FailJob", "onExitCodes": {"containerName": "other", "operator": "In", "values": [3]}}]),
            3,
            "x",
            Verdict::Count,
        );
    }

    #[track_caller]
    fn check_success(rules: Value, succeeded: &[i64], expected: Option<usize>) {
        let policy: SuccessPolicy = serde_json::from_value(json!({"rules": rules})).unwrap();
        assert_eq!(satisfied(Some(&policy), &succeeded.iter().copied().collect(), 10), expected);
    }

    #[test]
    fn success_rules() {
        check_success(json!([{"succeededIndexes": "0,2-3"}]), &[0, 2, 3, 7], Some(0));
        check_success(json!([{"succeededIndexes": "0,2-3"}]), &[0, 2], None);
        check_success(json!([{"succeededIndexes": "0-4", "succeededCount": 2}]), &[1, 4], Some(0));
        check_success(json!([{"succeededIndexes": "0"}, {"succeededCount": 3}]), &[1, 4, 5], Some(1));
        check_success(json!([{}]), &[1], None);
    }
}
