//! The two forms of a topology assignment.
//!
//! v1beta1 lists every domain: `domains: [{values: [r1, n1], count: 2}, {values: [r1, n2], count: 2}]`.
//! v1beta2 folds runs of domains into slices: `slices: [{domainCount: 2, valuesPerLevel: [{universal: r1},
//! {individual: {prefix: n, roots: ["1", "2"]}}], podCounts: {universal: 2}}]`.
//!
//! Both functions work in place and answer whether the other form can be written. They are exact where they
//! say yes, for every field that the form names; the caller keeps the rest.
//!
//! What must stay true: the output is in proportion to the input. A slice is unfolded only if it lists
//! something for each of its domains, and never beyond [`MAX_UNFOLDED`] bytes, so that a few numbers cannot
//! ask for gigabytes.

use serde_json::{Map, Value, json};

/// Domains in one slice; the schema allows no more.
const MAX_DOMAINS: usize = 100_000;
/// Bytes of domain values after unfolding. An object of this size fits no API server.
const MAX_UNFOLDED: usize = 16 << 20;

/// Folds `domains` into `slices`.
pub fn to_slices(assignment: &mut Value) -> bool {
    let Value::Object(assignment) = assignment else { return false };
    if assignment.contains_key("slices") {
        return false;
    }
    let n_levels = assignment.get("levels").and_then(Value::as_array).map_or(0, Vec::len);
    let Some(Value::Array(domains)) = assignment.get("domains") else { return false };
    let Some(domains) = domains.iter().map(|d| domain(d, n_levels)).collect::<Option<Vec<_>>>() else {
        return false;
    };
    let slices: Value = domains.chunks(MAX_DOMAINS).map(|chunk| slice(chunk, n_levels)).collect();
    assignment.remove("domains");
    assignment.insert("slices".to_owned(), slices);
    true
}

/// Values and pod count of a domain that has a value for each level.
fn domain(domain: &Value, n_levels: usize) -> Option<(Vec<&str>, &Value)> {
    let values = domain.get("values")?.as_array()?;
    let values = values.iter().map(Value::as_str).collect::<Option<Vec<_>>>()?;
    let count = domain.get("count").filter(|c| c.is_i64() || c.is_u64())?;
    (values.len() == n_levels && n_levels > 0).then_some((values, count))
}

fn slice(domains: &[(Vec<&str>, &Value)], n_levels: usize) -> Value {
    let levels: Value = (0..n_levels)
        .map(|level| {
            level_values(&domains.iter().filter_map(|(v, _)| v.get(level).copied()).collect::<Vec<_>>())
        })
        .collect();
    let counts: Vec<&Value> = domains.iter().map(|(_, count)| *count).collect();
    let pod_counts = match counts.as_slice() {
        [first, rest @ ..] if rest.iter().all(|c| c == first) => json!({"universal": first}),
        _ => json!({"individual": counts}),
    };
    json!({"domainCount": domains.len(), "valuesPerLevel": levels, "podCounts": pod_counts})
}

fn level_values(values: &[&str]) -> Value {
    let [first, rest @ ..] = values else { return json!({"individual": {"roots": []}}) };
    if rest.iter().all(|v| v == first) {
        return json!({"universal": first});
    }
    let prefix = rest.iter().fold(*first, |prefix, v| common_prefix(prefix, v));
    let tails: Vec<&str> = values.iter().map(|v| v.strip_prefix(prefix).unwrap_or(v)).collect();
    let suffix =
        tails.iter().skip(1).fold(tails.first().copied().unwrap_or(""), |suffix, t| common_suffix(suffix, t));
    let roots: Vec<&str> = tails.iter().map(|t| t.strip_suffix(suffix).unwrap_or(t)).collect();
    let mut individual = Map::new();
    if !prefix.is_empty() {
        individual.insert("prefix".to_owned(), json!(prefix));
    }
    individual.insert("roots".to_owned(), json!(roots));
    if !suffix.is_empty() {
        individual.insert("suffix".to_owned(), json!(suffix));
    }
    json!({"individual": individual})
}

fn common_prefix<'a>(a: &'a str, b: &str) -> &'a str {
    let same = a.chars().zip(b.chars()).take_while(|(x, y)| x == y).map(|(x, _)| x.len_utf8()).sum();
    a.get(..same).unwrap_or("")
}

fn common_suffix<'a>(a: &'a str, b: &str) -> &'a str {
    let same: usize =
        a.chars().rev().zip(b.chars().rev()).take_while(|(x, y)| x == y).map(|(x, _)| x.len_utf8()).sum();
    a.get(a.len() - same..).unwrap_or("")
}

/// Unfolds `slices` into `domains`.
pub fn to_domains(assignment: &mut Value) -> bool {
    let Value::Object(assignment) = assignment else { return false };
    if assignment.contains_key("domains") {
        return false;
    }
    let Some(Value::Array(slices)) = assignment.get("slices") else { return false };
    let (mut domains, mut n_bytes) = (Vec::new(), 0);
    for slice in slices {
        if unfold(slice, &mut domains, &mut n_bytes).is_none() {
            return false;
        }
    }
    assignment.remove("slices");
    assignment.insert("domains".to_owned(), Value::Array(domains));
    true
}

/// What a level or the pod counts of a slice say for each domain.
enum PerDomain<'a> {
    Universal(&'a Value),
    Individual { prefix: &'a str, items: &'a [Value], suffix: &'a str },
}

fn unfold(slice: &Value, domains: &mut Vec<Value>, n_bytes: &mut usize) -> Option<()> {
    let n_domains = usize::try_from(slice.get("domainCount")?.as_u64()?).ok()?;
    let levels =
        slice.get("valuesPerLevel")?.as_array()?.iter().map(values_of).collect::<Option<Vec<_>>>()?;
    let counts = counts_of(slice.get("podCounts")?)?;
    let mut listed = false;
    for part in levels.iter().chain([&counts]) {
        if let PerDomain::Individual { items, .. } = part {
            if items.len() != n_domains {
                return None;
            }
            listed = true;
        }
    }
    if !listed && n_domains != 1 {
        return None;
    }
    for idx in 0..n_domains {
        let mut values = Vec::with_capacity(levels.len());
        for level in &levels {
            let value = match level {
                PerDomain::Universal(value) => value.as_str()?.to_owned(),
                PerDomain::Individual { prefix, items, suffix } => {
                    let root = items.get(idx)?.as_str()?;
                    *n_bytes += prefix.len() + root.len() + suffix.len();
                    if *n_bytes > MAX_UNFOLDED {
                        return None;
                    }
                    format!("{prefix}{root}{suffix}")
                }
            };
            *n_bytes += value.len();
            if *n_bytes > MAX_UNFOLDED {
                return None;
            }
            values.push(Value::String(value));
        }
        let count = match &counts {
            PerDomain::Universal(count) => (*count).clone(),
            PerDomain::Individual { items, .. } => items.get(idx)?.clone(),
        };
        domains.push(json!({"values": values, "count": count}));
    }
    Some(())
}

fn values_of(level: &Value) -> Option<PerDomain<'_>> {
    if let Some(value) = level.get("universal") {
        return Some(PerDomain::Universal(value));
    }
    let individual = level.get("individual")?;
    let text = |field| individual.get(field).map_or(Some(""), Value::as_str);
    let items = individual.get("roots")?.as_array()?;
    Some(PerDomain::Individual { prefix: text("prefix")?, items, suffix: text("suffix")? })
}

fn counts_of(counts: &Value) -> Option<PerDomain<'_>> {
    if let Some(value) = counts.get("universal") {
        return Some(PerDomain::Universal(value));
    }
    let items = counts.get("individual")?.as_array()?;
    Some(PerDomain::Individual { prefix: "", items, suffix: "" })
}
