//! The rules of ClusterTopologyBindings.

use std::collections::BTreeMap;

use serde_json::Value;

use super::words::{is_key, is_label};
use super::{Findings, World, quote};
use crate::object::ClusterTopologyBinding;
use crate::settings::BackendName;

/// Judges a binding; `old` is null when it is new.
pub fn binding(object: &Value, old: &Value, world: &World<'_>) -> Findings {
    let is_going = object
        .get("metadata")
        .is_some_and(|meta| meta.get("deletionTimestamp").is_some_and(|t| !t.is_null()));
    if is_going || object.get("spec") == old.get("spec") {
        return Findings::default();
    }
    let read = |value: &Value| serde_json::from_value::<ClusterTopologyBinding>(value.clone()).ok();
    let Some(new) = read(object) else {
        let mut findings = Findings::default();
        findings.refuse("spec", "cannot be read");
        return findings;
    };
    let before = read(old).filter(|_| !old.is_null()).map(|old| judge(&old, world)).unwrap_or_default();
    judge(&new, world).since(&before)
}

fn judge(binding: &ClusterTopologyBinding, world: &World<'_>) -> Findings {
    let mut findings = Findings::default();
    if binding.spec.levels.is_empty() {
        findings.refuse("spec.levels", "is empty; write the levels from the widest to the narrowest");
    }
    let (mut domains, mut keys) = (BTreeMap::new(), BTreeMap::new());
    for (index, level) in binding.spec.levels.iter().enumerate() {
        let field = |name: &str| format!("spec.levels[{index}].{name}");
        let is_domain = is_label(&level.domain) && level.domain.starts_with(|c: char| c.is_ascii_lowercase());
        if !is_domain {
            let message = format!(
                "{} is no domain; write small letters, digits and -, a letter first",
                quote(&level.domain)
            );
            findings.refuse(field("domain"), message);
        }
        if !is_key(&level.key) || level.key.len() > 63 {
            let message =
                format!("{} is no node label; write a label key of at most 63 letters", quote(&level.key));
            findings.refuse(field("key"), message);
        }
        if let Some(first) = domains.insert(level.domain.as_str(), index) {
            let message = format!(
                "{} is the domain of spec.levels[{first}] too; give each its own",
                quote(&level.domain)
            );
            findings.refuse(field("domain"), message);
        }
        if let Some(first) = keys.insert(level.key.as_str(), index) {
            let message =
                format!("{} is the key of spec.levels[{first}] too; give each its own", quote(&level.key));
            findings.refuse(field("key"), message);
        }
    }
    let mut schedulers = BTreeMap::new();
    for (index, entry) in binding.spec.scheduler_topology_bindings.iter().enumerate() {
        let field = |name: &str| format!("spec.schedulerTopologyBindings[{index}].{name}");
        if entry.topology_reference.is_empty() {
            findings
                .refuse(field("topologyReference"), "is missing; write the name of the scheduler's topology");
        }
        if let Some(first) = schedulers.insert(entry.scheduler_name.as_str(), index) {
            let message = format!(
                "{} stands at {first} too; one entry for each scheduler",
                quote(&entry.scheduler_name)
            );
            findings.refuse(field("schedulerName"), message);
        }
        let backend = world.options.route(&entry.scheduler_name);
        // A name that nobody knows is taken for KAI's when pods say it; here it is a mistake.
        let is_known = matches!(entry.scheduler_name.as_str(), "kai-scheduler" | "grove-scheduler")
            || world.options.routes.contains_key(&entry.scheduler_name)
            || backend != BackendName::Kai;
        if !is_known {
            let message = format!("{} is no scheduler that is known here", quote(&entry.scheduler_name));
            findings.refuse(field("schedulerName"), message);
        } else if !world.options.enabled.contains(&backend) {
            findings.refuse(field("schedulerName"), format!("needs backend {backend}, which is not enabled"));
        } else if backend != BackendName::Kai {
            let message = format!("backend {backend} has no topologies of its own; remove the entry");
            findings.refuse(field("schedulerName"), message);
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Known;
    use super::*;
    use crate::settings::Options;

    /// Levels as `domain=key`, schedulers by name.
    #[track_caller]
    fn check(levels: &str, schedulers: &str, expected: &str) {
        let levels: Vec<Value> = levels
            .split_whitespace()
            .map(|level| {
                let (domain, key) = level.split_once('=').unwrap();
                json!({"domain": domain, "key": key})
            })
            .collect();
        let bindings: Vec<Value> = schedulers
            .split_whitespace()
            .map(|name| json!({"schedulerName": name, "topologyReference": "t"}))
            .collect();
        let object = json!({"spec": {"levels": levels, "schedulerTopologyBindings": bindings}});
        let options = Options::default();
        let world = World { options: &options, binding: &|_| Known::Unknown };
        let findings = binding(&object, &Value::Null, &world);
        let shown: Vec<String> = findings
            .errors
            .iter()
            .map(|e| e.field.replace("spec.", "").replace("schedulerTopologyBindings", "s"))
            .collect();
        assert_eq!(shown.join(" "), expected, "{findings:?}");
        assert!(super::binding(&object, &object, &world).allows(), "what is there is not judged again");
    }

    #[test]
    fn levels_and_schedulers() {
        check("zone=z rack=r", "", "");
        check("", "", "levels");
        check("zone=z zone=y", "", "levels[1].domain");
        check("zone=z rack=z", "", "levels[1].key");
        check("Zone=z", "", "levels[0].domain");
        check("zone=a/b/c", "", "levels[0].key");
        check("zone=z", "kai-scheduler", "");
        check("zone=z", "kai-scheduler kai-scheduler", "s[1].schedulerName");
        check("zone=z", "volcano", "s[0].schedulerName");
        check("zone=z", "somebody", "s[0].schedulerName");
    }
}
