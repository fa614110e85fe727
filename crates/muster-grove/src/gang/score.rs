//! How well a gang is placed.
//!
//! In: the gang, the nodes of its pods, the labels of nodes. Out: a number from 0 to 1: of each constraint, the share of
//! pods that are in its fullest domain; the average over all constraints, 1 when there is none. Must stay true: 1 means that
//! every wish is fulfilled.

use std::collections::BTreeMap;

use crate::object::{GangConstraint, PodGang};

/// `nodes` gives the nodes of a group's placed pods, `label` a label of a node.
pub fn score(
    gang: &PodGang,
    nodes: &dyn Fn(&str) -> Vec<String>,
    label: &dyn Fn(&str, &str) -> Option<String>,
) -> Option<f64> {
    let spec = &gang.spec;
    let groups = |names: &[&str]| -> Vec<String> { names.iter().flat_map(|name| nodes(name)).collect() };
    let all: Vec<&str> = spec.podgroups.iter().map(|group| group.name.as_str()).collect();
    if groups(&all).is_empty() {
        return None;
    }
    let mut shares = Vec::new();
    let mut judge = |constraint: Option<&GangConstraint>, names: &[&str]| {
        let Some(constraint) = constraint else { return };
        let (required, preferred) = constraint.levels();
        // What must be is; what is wished for tells placements apart.
        let key = if preferred.is_empty() { required } else { preferred };
        let nodes = groups(names);
        if key.is_empty() || nodes.is_empty() {
            return;
        }
        let mut domains: BTreeMap<Option<String>, usize> = BTreeMap::new();
        for node in &nodes {
            *domains.entry(label(node, key)).or_default() += 1;
        }
        let best = domains.iter().filter(|(domain, _)| domain.is_some()).map(|(_, n)| *n).max().unwrap_or(0);
        shares.push(best as f64 / nodes.len() as f64);
    };
    judge(gang.spec.topology_constraint.as_ref(), &all);
    for config in &gang.spec.topology_constraint_group_configs {
        let names: Vec<&str> = config.pod_group_names.iter().map(String::as_str).collect();
        judge(config.topology_constraint.as_ref(), &names);
    }
    for group in &gang.spec.podgroups {
        judge(group.topology_constraint.as_ref(), &[&group.name]);
    }
    if shares.is_empty() {
        return Some(1.0);
    }
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    Some((mean * 1000.0).round() / 1000.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Nodes `r1a` are in rack `r1`, in zone `z`. Groups `a` and `b` have pods on the nodes given.
    #[track_caller]
    fn check(gang: serde_json::Value, a: &str, b: &str, expected: Option<f64>) {
        let gang: PodGang = serde_json::from_value(json!({"spec": gang})).unwrap();
        let nodes = |name: &str| {
            let text = if name == "a" { a } else { b };
            text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        let label = |node: &str, key: &str| match key {
            "rack" => node.get(..2).map(str::to_owned),
            "zone" => Some("z".to_owned()),
            _ => None,
        };
        assert_eq!(score(&gang, &nodes, &label), expected);
    }

    #[test]
    fn shares_of_the_fullest_domain() {
        let pack = |required: &str, preferred: &str| json!({"packConstraint": {"required": required, "preferred": preferred}});
        let groups = json!([{"name": "a"}, {"name": "b"}]);
        check(json!({"podgroups": groups}), "", "", None);
        check(json!({"podgroups": groups}), "r1a", "r2a", Some(1.0));
        check(json!({"podgroups": groups, "topologyConstraint": pack("zone", "")}), "r1a", "r2a", Some(1.0));
        check(
            json!({"podgroups": groups, "topologyConstraint": pack("zone", "rack")}),
            "r1a r1b r1c",
            "r2a",
            Some(0.75),
        );
        check(json!({"podgroups": groups, "topologyConstraint": pack("nothing", "")}), "r1a", "", Some(0.0));
        let both = json!([{"name": "a", "topologyConstraint": pack("rack", "")}, {"name": "b", "topologyConstraint": pack("", "rack")}]);
        check(json!({"podgroups": both}), "r1a r1b", "r1a r2a", Some(0.75));
        let config =
            json!([{"name": "x", "podGroupNames": ["a", "b"], "topologyConstraint": pack("rack", "")}]);
        check(
            json!({"podgroups": groups, "topologyConstraintGroupConfigs": config}),
            "r1a",
            "r1b",
            Some(1.0),
        );
    }
}
