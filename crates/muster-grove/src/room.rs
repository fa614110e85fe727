//! Whether a gang could be placed as a whole now.
//!
//! In: nodes with what is free on them, and groups of equal pods with what they ask for and where they must be together. Out: the
//! domain that each group is to be in, or what it falls short of. It is for schedulers that cannot be told that groups belong together:
//! their pods are held until all of them have room, and the scheduler then places them by its own rules. Must stay true: what is said
//! to fit does fit if nobody else comes in between; what has rules that are not looked at here (pods near or apart from each other,
//! volumes) may be held for less than it needs, never for more. No input panics, and work is bounded.

use std::collections::{BTreeMap, BTreeSet};

use k8s_quantity::Quantity;
use muster_runtime::object::Strings;
use serde::Deserialize;
use serde_json::Value;

use crate::object::{list, text};

/// Amounts by resource, in thousandths.
pub type Amounts = BTreeMap<String, i128>;

/// A node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Site {
    pub name: String,
    pub labels: Strings,
    pub taints: Vec<Taint>,
    /// What is left; `pods` counts pods.
    pub free: Amounts,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Taint {
    pub key: String,
    pub value: String,
    pub effect: String,
}

/// Pods that ask for the same.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Group {
    pub name: String,
    pub n_pods: i64,
    pub asks: Amounts,
    /// `spec` of the pods, for what it says of nodes.
    pub spec: Value,
}

/// Groups that must be in one domain of a node label.
#[derive(Debug, Clone, PartialEq)]
pub struct Pack {
    pub key: String,
    pub groups: BTreeSet<String>,
}

/// The node labels that the pods of each group are to be bound to.
pub type Domains = BTreeMap<String, Strings>;

/// The most combinations of domains that are tried.
const MOST_TRIES: usize = 2000;

/// Finds room for all groups. Packs come from the widest to the narrowest.
pub fn fits(sites: &[Site], groups: &[Group], packs: &[Pack]) -> Result<Domains, String> {
    let mut tries = 0;
    let mut free: Vec<Site> = sites.to_vec();
    let mut order: Vec<&Group> = groups.iter().filter(|group| group.n_pods > 0).collect();
    // Those that ask for much first: they have the fewest places.
    order.sort_by(|a, b| weight(&b.asks).cmp(&weight(&a.asks)).then_with(|| a.name.cmp(&b.name)));
    let mut domains = Domains::new();
    choose(&mut free, &order, packs, &mut domains, &mut tries)
}

/// Devices weigh most, then everything else as it comes.
fn weight(asks: &Amounts) -> (i128, i128) {
    let (devices, rest): (Vec<_>, Vec<_>) = asks.iter().partition(|(name, _)| name.contains('/'));
    (devices.into_iter().map(|(_, n)| *n).sum(), rest.into_iter().map(|(_, n)| *n / 1_000_000 + 1).sum())
}

fn choose(
    free: &mut [Site],
    groups: &[&Group],
    packs: &[Pack],
    domains: &mut Domains,
    tries: &mut usize,
) -> Result<Domains, String> {
    let Some((pack, rest)) = packs.split_first() else {
        *tries += 1;
        place(free, groups, domains)?;
        return Ok(domains.clone());
    };
    // A domain that a wider pack chose limits those of this one.
    let within = |site: &Site| {
        pack.groups
            .iter()
            .filter_map(|group| domains.get(group))
            .all(|chosen| holds_all(&site.labels, chosen))
    };
    let values: BTreeSet<String> = free
        .iter()
        .filter(|site| within(site))
        .filter_map(|site| site.labels.get(&pack.key).cloned())
        .collect();
    let mut last = format!("no node has the label {}", pack.key);
    for value in values {
        if *tries >= MOST_TRIES {
            return Err(format!("no room was found in {MOST_TRIES} tries"));
        }
        let before = domains.clone();
        for group in &pack.groups {
            domains.entry(group.clone()).or_default().insert(pack.key.clone(), value.clone());
        }
        let mut trial = free.to_vec();
        match choose(&mut trial, groups, rest, domains, tries) {
            Ok(found) => return Ok(found),
            Err(why) => last = format!("{why} in {}={value}", pack.key),
        }
        *domains = before;
    }
    Err(last)
}

/// Puts every group where it fits first; what is taken is taken from `free`.
fn place(free: &mut [Site], groups: &[&Group], domains: &Domains) -> Result<(), String> {
    let nothing = Strings::new();
    for group in groups {
        let chosen = domains.get(&group.name).unwrap_or(&nothing);
        let mut left = group.n_pods;
        for site in free.iter_mut() {
            if left == 0 {
                break;
            }
            if !holds_all(&site.labels, chosen) || !lets_in(site, &group.spec) {
                continue;
            }
            let n = how_many(&site.free, &group.asks).min(left);
            if n > 0 {
                for (name, amount) in &group.asks {
                    *site.free.entry(name.clone()).or_default() -= amount * i128::from(n);
                }
                left -= n;
            }
        }
        if left > 0 {
            return Err(format!("{} lacks room for {left} of {} pods", group.name, group.n_pods));
        }
    }
    Ok(())
}

fn how_many(free: &Amounts, asks: &Amounts) -> i64 {
    let each = asks.iter().filter(|(_, amount)| **amount > 0).map(|(name, amount)| {
        let free = free.get(name).copied().unwrap_or(0).max(0);
        i64::try_from(free / amount).unwrap_or(i64::MAX)
    });
    each.min().unwrap_or(i64::MAX)
}

fn holds_all(labels: &Strings, wanted: &Strings) -> bool {
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

/// Whether a node takes pods of this spec, as far as labels and taints go.
fn lets_in(site: &Site, spec: &Value) -> bool {
    let selector = spec.get("nodeSelector").and_then(Value::as_object);
    let selected = selector
        .into_iter()
        .flatten()
        .all(|(key, value)| site.labels.get(key).map(String::as_str) == value.as_str());
    let path =
        ["affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"];
    let terms = list(spec, &path);
    let matches = terms.is_empty() || terms.iter().any(|term| term_matches(term, site));
    let tolerations = list(spec, &["tolerations"]);
    let hard = site.taints.iter().filter(|taint| taint.effect != "PreferNoSchedule");
    selected && matches && hard.into_iter().all(|taint| tolerations.iter().any(|t| tolerates(t, taint)))
}

fn term_matches(term: &Value, site: &Site) -> bool {
    let by_label = list(term, &["matchExpressions"]);
    let by_name = list(term, &["matchFields"]);
    if by_label.is_empty() && by_name.is_empty() {
        return false;
    }
    let name = Strings::from([("metadata.name".to_owned(), site.name.clone())]);
    by_label.iter().all(|e| expression_matches(e, &site.labels))
        && by_name.iter().all(|e| expression_matches(e, &name))
}

fn expression_matches(expression: &Value, labels: &Strings) -> bool {
    let found = labels.get(text(expression, &["key"]));
    let values: Vec<&str> = list(expression, &["values"]).iter().filter_map(Value::as_str).collect();
    let number = |text: &str| text.parse::<i64>().ok();
    let compare = |than: fn(i64, i64) -> bool| {
        let wanted = values.first().and_then(|value| number(value));
        found.and_then(|found| number(found)).zip(wanted).is_some_and(|(found, wanted)| than(found, wanted))
    };
    match text(expression, &["operator"]) {
        "In" => found.is_some_and(|found| values.contains(&found.as_str())),
        "NotIn" => found.is_none_or(|found| !values.contains(&found.as_str())),
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        "Gt" => compare(|a, b| a > b),
        "Lt" => compare(|a, b| a < b),
        _ => false,
    }
}

fn tolerates(toleration: &Value, taint: &Taint) -> bool {
    let (key, effect) = (text(toleration, &["key"]), text(toleration, &["effect"]));
    let of_effect = effect.is_empty() || effect == taint.effect;
    let of_key = key == taint.key || (key.is_empty() && text(toleration, &["operator"]) == "Exists");
    let of_value = text(toleration, &["operator"]) == "Exists" || text(toleration, &["value"]) == taint.value;
    of_effect && of_key && of_value
}

/// What one pod asks for, by the rules of Kubernetes: containers together, or the largest step before them, and one place.
pub fn asks(spec: &Value) -> Amounts {
    let requests = |container: &Value| -> Amounts {
        let of = |field: &str| {
            container
                .get("resources")
                .and_then(|r| r.get(field))
                .and_then(Value::as_object)
                .cloned()
                .unwrap_or_default()
        };
        let mut all = of("limits");
        all.extend(of("requests"));
        all.iter().map(|(name, amount)| (name.clone(), read(amount))).collect()
    };
    let add = |into: &mut Amounts, from: &Amounts| {
        for (name, amount) in from {
            let sum = into.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*amount);
        }
    };
    let mut running = Amounts::new();
    let mut most = Amounts::new();
    for container in list(spec, &["initContainers"]) {
        let mut step = requests(container);
        if text(container, &["restartPolicy"]) == "Always" {
            add(&mut running, &step);
            step = running.clone();
        } else {
            add(&mut step, &running);
        }
        raise(&mut most, &step);
    }
    for container in list(spec, &["containers"]) {
        add(&mut running, &requests(container));
    }
    raise(&mut most, &running);
    if let Some(overhead) = spec.get("overhead").and_then(Value::as_object) {
        add(&mut most, &overhead.iter().map(|(name, amount)| (name.clone(), read(amount))).collect());
    }
    most.insert("pods".to_owned(), 1000);
    most.retain(|_, amount| *amount > 0);
    most
}

fn raise(into: &mut Amounts, to: &Amounts) {
    for (name, amount) in to {
        let most = into.entry(name.clone()).or_default();
        *most = (*most).max(*amount);
    }
}

/// A quantity in thousandths; what is none counts as nothing.
pub fn read(value: &Value) -> i128 {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return 0,
    };
    text.parse::<Quantity>().map_or(0, |quantity| i128::from(quantity.milli_value()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// Nodes as `name gpus [key=value ...]`, with `!key` for a taint.
    fn sites(text: &str) -> Vec<Site> {
        let site = |text: &str| {
            let mut words = text.split_whitespace();
            let name = words.next().unwrap().to_owned();
            let gpus: i128 = words.next().unwrap().parse().unwrap();
            let mut site = Site {
                name,
                free: Amounts::from([("nvidia.com/gpu".into(), gpus * 1000), ("pods".into(), 110_000)]),
                ..Site::default()
            };
            for word in words {
                match word.strip_prefix('!') {
                    Some(key) => site.taints.push(Taint {
                        key: key.into(),
                        effect: "NoSchedule".into(),
                        ..Taint::default()
                    }),
                    None => {
                        let (key, value) = word.split_once('=').unwrap();
                        site.labels.insert(key.into(), value.into());
                    }
                }
            }
            site
        };
        text.split(';').map(str::trim).filter(|t| !t.is_empty()).map(site).collect()
    }

    /// Groups as `name nxgpus`, packs as `key: group group`.
    #[track_caller]
    fn check(nodes: &str, groups: &str, packs: &str, expected: &str) {
        let groups: Vec<Group> = groups
            .split(';')
            .map(|text| {
                let (name, size) = text.trim().split_once(' ').unwrap();
                let (n, gpus) = size.split_once('x').unwrap();
                let spec = json!({"containers": [{"resources": {"limits": {"nvidia.com/gpu": gpus}}}]});
                Group { name: name.into(), n_pods: n.parse().unwrap(), asks: asks(&spec), spec }
            })
            .collect();
        let packs: Vec<Pack> = packs
            .split(';')
            .map(str::trim)
            .filter(|text| !text.is_empty())
            .map(|text| {
                let (key, members) = text.split_once(':').unwrap();
                Pack { key: key.into(), groups: members.split_whitespace().map(str::to_owned).collect() }
            })
            .collect();
        let shown = match fits(&sites(nodes), &groups, &packs) {
            Ok(domains) => domains
                .iter()
                .map(|(group, at)| {
                    let at: Vec<String> = at.iter().map(|(key, value)| format!("{key}={value}")).collect();
                    format!("{group}:{}", at.join(","))
                })
                .collect::<Vec<_>>()
                .join(" "),
            Err(why) => why,
        };
        assert_eq!(shown, expected, "{nodes} | {groups:?}");
    }

    #[test]
    fn all_or_what_is_short() {
        check("n 4", "a 2x1; b 2x1", "", "");
        check("n 3", "a 2x1; b 2x1", "", "b lacks room for 1 of 2 pods");
        check("n 2; m 2", "a 1x2; b 2x1", "", "");
        check("n 2; m 2", "a 1x3", "", "a lacks room for 1 of 1 pods");
        check("n 4 !t", "a 1x1", "", "a lacks room for 1 of 1 pods");
        check("", "a 0x1", "", "");
    }

    #[test]
    fn domains_are_chosen_that_hold_all() {
        let racks = "n0 2 zone=a rack=1; n1 2 zone=a rack=2; n2 2 zone=b rack=3; n3 4 zone=b rack=4";
        check(racks, "a 2x1; b 2x1", "rack: a b", "a:rack=4 b:rack=4");
        check(racks, "a 2x1; b 2x1", "zone: a b", "a:zone=a b:zone=a");
        check(racks, "a 2x1; b 2x1", "zone: a b; rack: a", "a:rack=1,zone=a b:zone=a");
        check(racks, "a 4x1; b 2x1", "zone: a b; rack: a", "a:rack=4,zone=b b:zone=b");
        check(racks, "a 5x1", "rack: a", "a lacks room for 1 of 5 pods in rack=4");
        check("n 9", "a 1x1", "rack: a", "no node has the label rack");
    }

    #[test]
    fn what_a_pod_asks_for() {
        let spec = json!({
            "initContainers": [
                {"resources": {"requests": {"cpu": "3"}}},
                {"restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}},
            ],
            "containers": [{"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "4", "nvidia.com/gpu": "1"}}}],
            "overhead": {"cpu": "100m"},
        });
        let expected = [("cpu", 3100), ("nvidia.com/gpu", 1000), ("pods", 1000)];
        assert_eq!(asks(&spec), expected.map(|(name, n)| (name.to_owned(), n)).into());
    }

    #[test]
    fn nodes_that_a_spec_wants() {
        let site = Site {
            name: "n".into(),
            labels: Strings::from([("zone".into(), "a".into()), ("gen".into(), "4".into())]),
            taints: vec![Taint { key: "gpu".into(), value: "yes".into(), effect: "NoSchedule".into() }],
            ..Site::default()
        };
        let tolerant = json!([{"key": "gpu", "operator": "Exists"}]);
        let affinity = |expression: Value| {
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [expression]}]}}})
        };
        for (spec, expected) in [
            (json!({"tolerations": tolerant}), true),
            (json!({}), false),
            (json!({"tolerations": [{"key": "gpu", "value": "yes"}]}), true),
            (json!({"tolerations": [{"key": "gpu", "value": "no"}]}), false),
            (json!({"tolerations": [{"operator": "Exists"}], "nodeSelector": {"zone": "a"}}), true),
            (json!({"tolerations": tolerant, "nodeSelector": {"zone": "b"}}), false),
            (
                json!({"tolerations": tolerant, "affinity": affinity(json!({"key": "zone", "operator": "In", "values": ["a"]}))}),
                true,
            ),
            (
                json!({"tolerations": tolerant, "affinity": affinity(json!({"key": "gen", "operator": "Gt", "values": ["4"]}))}),
                false,
            ),
            (
                json!({"tolerations": tolerant, "affinity": affinity(json!({"key": "no", "operator": "DoesNotExist"}))}),
                true,
            ),
        ] {
            assert_eq!(lets_in(&site, &spec), expected, "{spec}");
        }
    }

    proptest! {
        /// What is said to fit can be put on the nodes one by one.
        #[test]
        fn what_fits_fits(sizes in prop::collection::vec(0_i64..5, 1..6), wants in prop::collection::vec((1_i64..4, 1_i64..4), 1..4)) {
            let nodes: Vec<String> = sizes.iter().enumerate().map(|(i, n)| format!("n{i} {n}")).collect();
            let groups: Vec<Group> = wants
                .iter()
                .enumerate()
                .map(|(i, (n, gpus))| {
                    let spec = json!({"containers": [{"resources": {"limits": {"nvidia.com/gpu": gpus.to_string()}}}]});
                    Group { name: format!("g{i}"), n_pods: *n, asks: asks(&spec), spec }
                })
                .collect();
            let total: i64 = wants.iter().map(|(n, gpus)| n * gpus).sum();
            let room: i64 = sizes.iter().sum();
            if fits(&sites(&nodes.join(";")), &groups, &[]).is_ok() {
                prop_assert!(total <= room);
            }
            if wants.len() == 1 && wants[0].1 == 1 {
                prop_assert_eq!(fits(&sites(&nodes.join(";")), &groups, &[]).is_ok(), total <= room);
            }
        }
    }
}
