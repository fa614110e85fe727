//! An admission as it stands in a workload's status.
//!
//! In: what a workload was given. Out: `status.admission` as JSON, with places in their short form: values that all domains share are written once,
//! and of others what they have in common at their ends.

use muster_admit::place::TopologyAssignment;
use muster_admit::spec::{Delayed, Reservation};
use muster_translate::kueue::words;
use serde_json::{Map, Value, json};

pub fn admission(reservation: &Reservation) -> Value {
    let sets: Vec<Value> = reservation
        .pod_sets
        .iter()
        .map(|set| {
            let flavors: Map<String, Value> = set
                .flavors
                .iter()
                .map(|(resource, flavor)| (resource.to_string(), json!(&**flavor)))
                .collect();
            let usage: Map<String, Value> = set
                .usage
                .iter()
                .map(|(resource, amount)| (resource.to_string(), json!(words::quantity(resource, *amount))))
                .collect();
            let mut value = json!({
                "name": &*set.name,
                "flavors": flavors,
                "resourceUsage": usage,
                "count": set.count,
            });
            if let Some(places) = set.topology.as_ref().filter(|p| !p.domains.is_empty()) {
                value["topologyAssignment"] = topology(places);
            }
            match set.delayed {
                Some(Delayed::Pending) => value["delayedTopologyRequest"] = json!("Pending"),
                Some(Delayed::Ready) => value["delayedTopologyRequest"] = json!("Ready"),
                None => {}
            }
            value
        })
        .collect();
    json!({"clusterQueue": &*reservation.cluster_queue, "podSetAssignments": sets})
}

/// Places in their short form, as one slice.
pub fn topology(places: &TopologyAssignment) -> Value {
    let columns: Vec<Value> = (0..places.levels.len())
        .map(|i| {
            let values: Vec<&str> =
                places.domains.iter().map(|(values, _)| values.get(i).map_or("", |v| &**v)).collect();
            column(&values)
        })
        .collect();
    let counts: Vec<i32> = places.domains.iter().map(|(_, n)| *n).collect();
    let counts = match counts.split_first() {
        Some((first, rest)) if rest.iter().all(|n| n == first) => json!({"universal": first}),
        _ => json!({"individual": counts}),
    };
    let levels: Vec<&str> = places.levels.iter().map(|level| &**level).collect();
    json!({
        "levels": levels,
        "slices": [{"domainCount": places.domains.len(), "valuesPerLevel": columns, "podCounts": counts}],
    })
}

fn column(values: &[&str]) -> Value {
    let Some((first, rest)) = values.split_first() else { return json!({"individual": {"roots": []}}) };
    if rest.iter().all(|value| value == first) {
        return json!({"universal": first});
    }
    // Of the shortest value something must be left, so that no root is empty.
    let shortest = values.iter().map(|v| v.chars().count()).min().unwrap_or(0);
    let common = |same: &dyn Fn(usize) -> bool, most: usize| (0..most).take_while(|i| same(*i)).count();
    let chars: Vec<Vec<char>> = values.iter().map(|v| v.chars().collect()).collect();
    let head = chars.first().map_or(&[][..], Vec::as_slice);
    let prefix = common(&|i| chars.iter().all(|c| c.get(i) == head.get(i)), shortest.saturating_sub(1));
    let from_end = |c: &[char], i: usize| c.len().checked_sub(i + 1).and_then(|at| c.get(at).copied());
    let suffix = common(
        &|i| chars.iter().all(|c| from_end(c, i) == from_end(head, i)),
        shortest.saturating_sub(1).saturating_sub(prefix),
    );
    let part =
        |c: &[char], from: usize, to: usize| c.get(from..to).unwrap_or_default().iter().collect::<String>();
    let roots: Vec<String> = chars.iter().map(|c| part(c, prefix, c.len() - suffix)).collect();
    let mut individual = json!({"roots": roots});
    if prefix > 0 {
        individual["prefix"] = json!(part(head, 0, prefix));
    }
    if suffix > 0 {
        individual["suffix"] = json!(part(head, head.len() - suffix, head.len()));
    }
    json!({"individual": individual})
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn places(domains: &[(&[&str], i32)]) -> TopologyAssignment {
        let n = domains.first().map_or(0, |(values, _)| values.len());
        TopologyAssignment {
            levels: (0..n).map(|i| format!("level-{i}").into()).collect(),
            domains: domains.iter().map(|(v, n)| (v.iter().map(|v| (*v).into()).collect(), *n)).collect(),
        }
    }

    #[test]
    fn what_is_shared_is_written_once() {
        let value = topology(&places(&[(&["rack", "node-1-x"], 2), (&["rack", "node-22-x"], 2)]));
        assert_eq!(
            value,
            json!({"levels": ["level-0", "level-1"], "slices": [{
                "domainCount": 2,
                "valuesPerLevel": [
                    {"universal": "rack"},
                    {"individual": {"prefix": "node-", "suffix": "-x", "roots": ["1", "22"]}},
                ],
                "podCounts": {"universal": 2},
            }]})
        );
    }

    proptest! {
        #[test]
        fn reads_back(domains in proptest::collection::vec((proptest::collection::vec("[a-c1é]{1,4}", 2), 1..5_i32), 1..6)) {
            let wanted = TopologyAssignment {
                levels: vec!["a".into(), "b".into()],
                domains: domains.into_iter().map(|(v, n)| (v.into_iter().map(Into::into).collect(), n)).collect(),
            };
            let written = topology(&wanted);
            prop_assert_eq!(muster_translate::kueue::assignment(&written), wanted);
        }
    }
}
