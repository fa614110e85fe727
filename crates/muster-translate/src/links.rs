//! How the GPUs of a node are joined: from the annotation that simulated nodes carry, and from the ConfigMap `gpu-topology`.

use muster_model::{Links, Name};
use serde_json::Value;
use std::collections::BTreeMap;

/// Device sets are words of 64 bits.
const MOST_GPUS: i64 = 64;

/// `0-3,4-7`: one list item per NVLink group. No links for nodes that are too large; an error says what to write instead.
pub(crate) fn of_annotation(text: &str, n_gpus: i64) -> Result<Option<Links>, String> {
    if n_gpus <= 0 || n_gpus > MOST_GPUS {
        return Ok(None);
    }
    let fix = "write GPU numbers and ranges, one list item per group, like 0-3,4-7";
    let mut taken = 0_u64;
    let mut groups = Vec::new();
    for item in text.split(',').map(str::trim) {
        let (from, to) = item.split_once('-').unwrap_or((item, item));
        let number = |text: &str| text.trim().parse::<u32>().ok().filter(|n| i64::from(*n) < n_gpus);
        let (Some(from), Some(to)) = (number(from), number(to)) else {
            return Err(format!("{} does not name GPUs below {n_gpus}; {fix}", crate::read::quote(item)));
        };
        let group = (from..=to).fold(0_u64, |set, gpu| set | 1 << gpu);
        if group == 0 || group & taken != 0 {
            return Err(format!("{} is empty or names a GPU twice; {fix}", crate::read::quote(item)));
        }
        taken |= group;
        groups.push(group);
    }
    groups.sort_unstable();
    Ok(Some(Links { gpus: u32::try_from(n_gpus).unwrap_or(0), tiers: vec![groups] }))
}

/// The nodes of a ConfigMap `gpu-topology`: every value of `data` is a document with `nodes`. Errors name the key of `data`.
pub(crate) fn of_config_map(config_map: &Value) -> (BTreeMap<Name, Links>, Vec<(String, String)>) {
    let mut nodes = BTreeMap::new();
    let mut problems = Vec::new();
    for (key, text) in config_map.get("data").and_then(Value::as_object).into_iter().flatten() {
        let Some(text) = text.as_str() else { continue };
        let document: Value = match serde_saphyr::from_str(text) {
            Ok(document) => document,
            Err(error) => {
                let line = error.to_string().lines().next().unwrap_or_default().to_owned();
                problems.push((format!("data[{key}]"), format!("cannot be read as YAML: {line}")));
                continue;
            }
        };
        for (name, node) in document.get("nodes").and_then(Value::as_object).into_iter().flatten() {
            match of_node(node) {
                Ok(links) => {
                    nodes.insert(name.as_str().into(), links);
                }
                Err(problem) => problems.push((format!("data[{key}]: nodes.{name}"), problem)),
            }
        }
    }
    (nodes, problems)
}

/// GPUs that reach each other over NVLinks, however many in between, are one group; PCIe switches are the next tier.
fn of_node(node: &Value) -> Result<Links, String> {
    let number = |value: &Value| {
        let number = value.as_u64().filter(|n| *n < MOST_GPUS as u64);
        number
            .and_then(|n| u32::try_from(n).ok())
            .ok_or_else(|| format!("{value} is no GPU number; write one from 0 to 63"))
    };
    let list = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();

    let mut groups: Vec<u64> = Vec::new();
    let mut all = 0_u64;
    for gpu in list(node.get("gpus")) {
        let id = number(gpu.get("id").unwrap_or(&Value::Null))?;
        let mut set = 1_u64 << id;
        for peer in list(gpu.get("nvlinks")) {
            set |= 1 << number(&peer)?;
        }
        all |= set;
        // Join with every group that it touches.
        groups.retain(|group| {
            let touches = group & set != 0;
            if touches {
                set |= group;
            }
            !touches
        });
        groups.push(set);
    }
    let mut switches: Vec<u64> = Vec::new();
    for switch in list(node.get("pcie_switches")) {
        let mut set = 0_u64;
        for gpu in list(switch.get("gpus")) {
            set |= 1 << number(&gpu)?;
        }
        if switches.iter().any(|other| other & set != 0) {
            return Err("a GPU is on two PCIe switches; name each GPU once".to_owned());
        }
        all |= set;
        if set != 0 {
            switches.push(set);
        }
    }
    groups.retain(|group| group.count_ones() > 1);
    groups.sort_unstable();
    switches.sort_unstable();
    let tiers = [groups, switches].into_iter().filter(|tier| !tier.is_empty()).collect();
    Ok(Links { gpus: 64 - all.leading_zeros(), tiers })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(text: &str, n_gpus: i64, expected: Option<&[u64]>) {
        let links = of_annotation(text, n_gpus);
        match expected {
            Some(groups) => assert_eq!(links.unwrap().unwrap().tiers, [groups.to_vec()], "{text}"),
            None => assert!(links.is_err(), "{text}: {links:?}"),
        }
    }

    #[test]
    fn annotation() {
        check("0-3,4-7", 8, Some(&[0x0f, 0xf0]));
        check("0-1,2", 3, Some(&[0b11, 0b100]));
        check(" 2 , 0-1 ", 3, Some(&[0b11, 0b100]));
        check("0-63", 64, Some(&[u64::MAX]));
        check("0-8", 8, None);
        check("3-0", 8, None);
        check("0-3,3-7", 8, None);
        check("", 8, None);
        check("a", 8, None);
        assert_eq!(of_annotation("0-3", 65), Ok(None));
        assert_eq!(of_annotation("0-3", 0), Ok(None));
    }

    #[test]
    fn config_map() {
        let yaml = "nodes:\n  n1:\n    gpus:\n    - {id: 0, nvlinks: [1]}\n    - {id: 1, nvlinks: [0]}\n    - {id: 2, nvlinks: [3]}\n    - {id: 3}\n    pcie_switches:\n    - {gpus: [0, 2], bandwidth: 32GB/s}\n    - {gpus: [1, 3]}\n  bad: {gpus: [{id: 99}]}\n";
        let (nodes, problems) = of_config_map(&json!({"data": {"topology.yaml": yaml, "x": "a: [", "n": 5}}));
        assert_eq!(nodes["n1"], Links { gpus: 4, tiers: vec![vec![0b11, 0b1100], vec![0b101, 0b1010]] });
        assert_eq!(nodes.len(), 1);
        assert_eq!(problems.len(), 2, "{problems:?}");
    }

    #[test]
    fn hostile_documents_are_refused() {
        let bomb: String = (0..40).map(|i| format!("a{i}: &a{i} [*a{0}, *a{0}]\n", i - 1)).collect();
        let bomb = format!("a-1: &a-1 [x]\n{bomb}");
        for text in ["[".repeat(100_000), "{a: ".repeat(100_000), "- ".repeat(50_000), bomb] {
            let (nodes, problems) = of_config_map(&json!({"data": {"t": text}}));
            assert!(nodes.is_empty());
            assert_eq!(problems.len(), 1);
        }
    }
}
