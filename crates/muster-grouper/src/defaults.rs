//! The administrator's defaults by kind of workload.
//!
//! In: the `types` of a ConfigMap, `[{"typeName": "Job", "group": "batch", "priorityName": "train", "preemptibility":
//! "preemptible"}]`. Out: the default of a kind, by kind and group first, then by kind alone.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::group::preemptibility_word;

/// The key of the ConfigMap.
pub const TYPES: &str = "types";

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Defaults {
    by_kind: BTreeMap<String, KindDefault>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct KindDefault {
    pub priority_class: Option<String>,
    pub preemptibility: Option<&'static str>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Entry {
    type_name: String,
    group: String,
    priority_name: String,
    preemptibility: String,
}

impl Defaults {
    pub fn read(types: &str) -> Result<Self, serde_json::Error> {
        let entries: Vec<Entry> = serde_json::from_str(types)?;
        let by_kind = entries.into_iter().map(|entry| {
            let default = KindDefault {
                priority_class: Some(entry.priority_name).filter(|class| !class.is_empty()),
                preemptibility: preemptibility_word(&entry.preemptibility.to_ascii_lowercase()),
            };
            (key(&entry.group, &entry.type_name), default)
        });
        Ok(Defaults { by_kind: by_kind.collect() })
    }

    pub fn of(&self, group: &str, kind: &str) -> Option<&KindDefault> {
        if self.by_kind.is_empty() {
            return None;
        }
        self.by_kind.get(&key(group, kind)).or_else(|| self.by_kind.get(kind))
    }
}

fn key(group: &str, kind: &str) -> String {
    if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_and_group_come_before_kind() {
        let types = r#"[{"typeName": "Job", "priorityName": "a"},
            {"typeName": "Job", "group": "batch", "priorityName": "b", "preemptibility": "Preemptible"}]"#;
        let defaults = Defaults::read(types).unwrap();
        let class = |group, kind| defaults.of(group, kind).and_then(|d| d.priority_class.as_deref());
        assert_eq!(
            (class("batch", "Job"), class("other", "Job"), class("", "Pod")),
            (Some("b"), Some("a"), None)
        );
        assert_eq!(defaults.of("batch", "Job").unwrap().preemptibility, Some("preemptible"));
        assert!(Defaults::read("{").is_err());
    }
}
