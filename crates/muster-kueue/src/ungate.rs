//! Which domain each pod of a placed workload gets.
//!
//! In: the places of a pod set, and its pods. Out: for each pod that waits for its domain the labels of nodes that it must go to. Pods that know their
//! number go to the domains in that order, so that neighbours in number are neighbours in the topology; others fill what is free. Must stay true: no
//! domain gets more pods than it was assigned.

use std::collections::BTreeMap;

use muster_admit::place::TopologyAssignment;
use muster_runtime::object::Meta;
use serde_json::Value;

use crate::keys;
use crate::object::{PlacedPod, at, int, list, text};

/// Labels of nodes, by label.
pub type Domain = BTreeMap<String, String>;

/// A pod as far as its domain is concerned.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    pub metadata: Meta,
    pub gated: bool,
    /// It runs or will; one that is over leaves its place.
    pub counts: bool,
    pub selector: BTreeMap<String, String>,
}

impl Member {
    pub fn of(pod: &PlacedPod) -> Self {
        let over = matches!(text(pod.status(), &["phase"]), "Succeeded" | "Failed");
        let selector = at(pod.spec(), &["nodeSelector"]).as_object().into_iter().flatten();
        Member {
            metadata: pod.metadata.clone(),
            gated: list(pod.spec(), &["schedulingGates"])
                .iter()
                .any(|g| text(g, &["name"]) == keys::TOPOLOGY_GATE),
            counts: !over && !pod.metadata.deleting(),
            selector: selector.filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned()))).collect(),
        }
    }
}

/// The domains of pods that wait, by the name of the pod. `request`: the topology request of the set.
pub fn domains(places: &TopologyAssignment, request: &Value, members: &[Member]) -> Vec<(String, Domain)> {
    let domain = |values: &[muster_model::Name]| -> Domain {
        places
            .levels
            .iter()
            .zip(values)
            .map(|(level, value)| (level.to_string(), value.to_string()))
            .collect()
    };
    let waiting = || members.iter().filter(|m| m.counts && m.gated);
    let n: usize = places.domains.iter().map(|(_, n)| usize::try_from(*n).unwrap_or(0)).sum();
    if let Some(ranks) = ranks(request, members, n) {
        // The places one by one, in order.
        let each = places
            .domains
            .iter()
            .flat_map(|(values, n)| std::iter::repeat_n(values, usize::try_from(*n).unwrap_or(0)));
        let by_rank: Vec<&Vec<muster_model::Name>> = each.collect();
        return waiting()
            .filter_map(|m| {
                let rank = *ranks.get(&m.metadata.name)?;
                Some((m.metadata.name.clone(), domain(by_rank.get(rank)?)))
            })
            .collect();
    }
    let mut left: Vec<(Domain, usize)> =
        places.domains.iter().map(|(values, n)| (domain(values), usize::try_from(*n).unwrap_or(0))).collect();
    for taken in members.iter().filter(|m| m.counts && !m.gated) {
        let is = |place: &Domain| place.iter().all(|(label, value)| taken.selector.get(label) == Some(value));
        if let Some((_, n)) = left.iter_mut().find(|(place, n)| *n > 0 && is(place)) {
            *n -= 1;
        }
    }
    let mut waiting: Vec<&Member> = waiting().collect();
    waiting.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    let mut out = Vec::new();
    for member in waiting {
        let Some((place, n)) = left.iter_mut().find(|(_, n)| *n > 0) else { break };
        *n -= 1;
        out.push((member.metadata.name.clone(), place.clone()));
    }
    out
}

/// The number of every pod, if all have one, and none twice.
fn ranks(request: &Value, members: &[Member], n: usize) -> Option<BTreeMap<String, usize>> {
    let label = text(request, &["podIndexLabel"]);
    if label.is_empty() {
        return None;
    }
    let group_label = text(request, &["subGroupIndexLabel"]);
    let groups = usize::try_from(int(request, &["subGroupCount"]).unwrap_or(1).max(1)).ok()?;
    let size = (n / groups).max(1);
    let mut seen = std::collections::BTreeSet::new();
    let mut out = BTreeMap::new();
    for member in members.iter().filter(|m| m.counts) {
        let number = |label: &str| -> Option<usize> {
            let meta = &member.metadata;
            meta.labels.get(label).or_else(|| meta.annotations.get(label))?.parse().ok()
        };
        let offset = member
            .metadata
            .annotations
            .get(keys::INDEX_OFFSET)
            .and_then(|text| text.parse().ok())
            .unwrap_or(0);
        let index = number(label)?.checked_sub(offset)?;
        let rank = if group_label.is_empty() {
            index
        } else {
            if index >= size {
                return None;
            }
            number(group_label)?.checked_mul(size)?.checked_add(index)?
        };
        if rank >= n || !seen.insert(rank) {
            return None;
        }
        out.insert(member.metadata.name.clone(), rank);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn member(name: &str, labels: &[(&str, &str)], on: Option<&str>) -> Member {
        let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Member {
            metadata: Meta { name: name.into(), labels, ..Meta::default() },
            gated: on.is_none(),
            counts: true,
            selector: on.map(|host| ("host".to_owned(), host.to_owned())).into_iter().collect(),
        }
    }

    fn places(domains: &[(&str, i32)]) -> TopologyAssignment {
        TopologyAssignment {
            levels: vec!["host".into()],
            domains: domains.iter().map(|(name, n)| (vec![(*name).into()], *n)).collect(),
        }
    }

    #[track_caller]
    fn check(domains_of: &[(&str, i32)], request: Value, members: &[Member], expected: &str) {
        let mut out: Vec<String> = domains(&places(domains_of), &request, members)
            .into_iter()
            .map(|(pod, domain)| format!("{pod}:{}", domain["host"]))
            .collect();
        out.sort();
        assert_eq!(out.join(" "), expected);
    }

    #[test]
    fn numbers_decide() {
        let request = json!({"podIndexLabel": "i"});
        let two = [("a", 2), ("b", 1)];
        let pods = [
            member("x", &[("i", "2")], None),
            member("y", &[("i", "0")], None),
            member("z", &[("i", "1")], None),
        ];
        check(&two, request.clone(), &pods, "x:b y:a z:a");
        // A number twice, or out of range, or none: whoever comes.
        let twice = [member("x", &[("i", "0")], None), member("y", &[("i", "0")], None)];
        check(&two, request.clone(), &twice, "x:a y:a");
        check(&two, request.clone(), &[member("x", &[("i", "7")], None)], "x:a");
        check(&two, request, &[member("x", &[], None)], "x:a");
    }

    #[test]
    fn groups_of_numbers() {
        let request = json!({"podIndexLabel": "i", "subGroupIndexLabel": "g", "subGroupCount": 2});
        let pods: Vec<Member> = ["00", "01", "10", "11"]
            .iter()
            .map(|n| member(n, &[("g", &n[..1]), ("i", &n[1..])], None))
            .collect();
        check(&[("a", 1), ("b", 2), ("c", 1)], request, &pods, "00:a 01:b 10:b 11:c");
    }

    #[test]
    fn what_is_taken_is_taken() {
        let pods = [
            member("x", &[], Some("a")),
            member("y", &[], None),
            member("z", &[], None),
            member("zz", &[], None),
        ];
        check(&[("a", 1), ("b", 2)], json!({}), &pods, "y:b z:b");
        let over = Member { counts: false, ..member("x", &[], Some("a")) };
        check(&[("a", 1)], json!({}), &[over, member("y", &[], None)], "y:a");
    }
}
