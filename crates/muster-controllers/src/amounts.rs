//! Amounts by the name of a resource, exact.
//!
//! In: resource lists as Kubernetes writes them. Out: sums and the same lists again. Must stay true: no zero is kept; the same
//! amounts print alike in whatever order they were added; adding and taking away again leaves nothing behind.

use std::collections::BTreeMap;

use k8s_quantity::{Format, Quantity};
use muster_runtime::object::Strings;
use serde_json::{Map, Value};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Amounts(BTreeMap<String, Quantity>);

/// No machine has more of anything. Sums of a billion such amounts stay within what a quantity holds, so that what was
/// added can be taken away exactly.
const MOST: i64 = i64::MAX;

impl Amounts {
    pub fn new() -> Self {
        Amounts::default()
    }

    /// Reads a resource list. What is no quantity counts as none: the server refuses it, so it is never a real wish.
    pub fn read(list: &Strings) -> Self {
        let mut amounts = Amounts::new();
        for (name, text) in list {
            if let Ok(quantity) = text.parse::<Quantity>() {
                amounts
                    .add(name, quantity.clamp(Quantity::ZERO, Quantity::from_i64(MOST, Format::DecimalSi)));
            }
        }
        amounts
    }

    pub fn get(&self, name: &str) -> Quantity {
        self.0.get(name).copied().unwrap_or_default()
    }

    pub fn set(&mut self, name: &str, quantity: Quantity) {
        if quantity.is_zero() {
            self.0.remove(name);
        } else {
            self.0.insert(name.to_owned(), quantity);
        }
    }

    pub fn add(&mut self, name: &str, quantity: Quantity) {
        if quantity.is_zero() {
            return;
        }
        match self.0.get_mut(name) {
            Some(sum) => {
                *sum += quantity;
                if sum.is_zero() {
                    self.0.remove(name);
                }
            }
            None => {
                self.0.insert(name.to_owned(), quantity);
            }
        }
    }

    pub fn add_all(&mut self, other: &Amounts) {
        for (name, quantity) in &other.0 {
            self.add(name, *quantity);
        }
    }

    pub fn take_all(&mut self, other: &Amounts) {
        for (name, quantity) in &other.0 {
            self.add(name, -*quantity);
        }
    }

    /// Raises each amount to the other's where that is more.
    pub fn raise_to(&mut self, other: &Amounts) {
        for (name, quantity) in &other.0 {
            if self.get(name) < *quantity {
                self.set(name, *quantity);
            }
        }
    }

    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.0.retain(|name, _| keep(name));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, Quantity)> {
        self.0.iter().map(|(name, quantity)| (name.as_str(), *quantity))
    }

    /// A resource list. How amounts are printed goes by the resource and not by who was added first.
    pub fn to_json(&self) -> Value {
        let list: Map<String, Value> = self
            .0
            .iter()
            .map(|(name, quantity)| (name.clone(), quantity.with_format(format(name)).to_string().into()))
            .collect();
        Value::Object(list)
    }

    /// Whether a resource list says these amounts, in whatever spelling. Nothing is the same as zero.
    pub fn same_as(&self, list: Option<&Value>) -> bool {
        let mut left = self.0.len();
        for (name, value) in list.and_then(Value::as_object).into_iter().flatten() {
            let said = match value {
                Value::String(text) => text.parse::<Quantity>(),
                other => other.to_string().parse::<Quantity>(),
            };
            let Ok(said) = said else { return false };
            match self.0.get(name) {
                Some(known) if *known == said => left -= 1,
                None if said.is_zero() => {}
                _ => return false,
            }
        }
        left == 0
    }

    /// Devices in all: whatever ends in `gpu`, MIG slices by their compute parts, and DRA devices, whose class has no slash.
    pub fn gpus(&self) -> Quantity {
        let mut sum = Quantity::ZERO;
        for (name, quantity) in &self.0 {
            if let Some(parts) = muster_model::Resource::Other(name.as_str().into()).mig_parts() {
                sum += *quantity * parts;
            } else if name.ends_with("gpu") || (name.contains("gpu") && !name.contains('/')) {
                sum += *quantity;
            }
        }
        sum
    }
}

fn format(name: &str) -> Format {
    let in_bytes = matches!(name, "memory" | "ephemeral-storage" | crate::request::GPU_MEMORY_RESOURCE)
        || name.starts_with("hugepages-");
    if in_bytes { Format::BinarySi } else { Format::DecimalSi }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Amounts {
        let list =
            text.split_terminator(' ').filter_map(|p| p.split_once('=')).map(|(k, v)| (k.into(), v.into()));
        Amounts::read(&list.collect())
    }

    #[track_caller]
    fn check_sum(a: &str, b: &str, expected: Value) {
        let (mut left, mut right) = (read(a), read(b));
        left.add_all(&read(b));
        right.add_all(&read(a));
        assert_eq!(left.to_json(), expected);
        assert_eq!(right.to_json(), expected, "in the other order");
        left.take_all(&read(b));
        assert_eq!(left, read(a));
    }

    #[test]
    fn sums() {
        check_sum("cpu=1", "cpu=500m memory=1Gi", json!({"cpu": "1500m", "memory": "1Gi"}));
        check_sum("memory=1000Ki", "memory=1M", json!({"memory": "2024000"}));
        check_sum("cpu=0", "", json!({}));
        check_sum("cpu=-5 memory=junk", "cpu=1", json!({"cpu": "1"}));
        check_sum("cpu=1e40", "cpu=1e40", json!({"cpu": "18446744073709551614"}));
    }

    #[track_caller]
    fn check_same(amounts: &str, list: Value, expected: bool) {
        assert_eq!(read(amounts).same_as(Some(&list)), expected, "{amounts} and {list}");
    }

    #[test]
    fn comparison_is_by_value() {
        check_same("cpu=1", json!({"cpu": "1000m"}), true);
        check_same("cpu=1", json!({"cpu": 1, "memory": "0"}), true);
        check_same("cpu=1", json!({}), false);
        check_same("", json!({"cpu": "1"}), false);
        check_same("cpu=1", json!({"cpu": "x"}), false);
        check_same("cpu=1", json!([1]), false);
        assert!(read("").same_as(None));
        assert!(!read("cpu=1").same_as(None));
    }

    #[test]
    fn gpus_of_every_kind() {
        let held = read(
            "nvidia.com/gpu=2500m amd.com/gpu=1 nvidia.com/mig-3g.20gb=2 gpu.nvidia.com=4 run.ai/gpu.memory=4Gi cpu=7",
        );
        assert_eq!(held.gpus().to_string(), "13500m");
    }
}
