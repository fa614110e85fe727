//! KAI's topologies: another name for a level must mean one level. The rest is in the CRD's own rules.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::request::{Asked, Operation};
use crate::settings::Settings;
use crate::verdict::{Verdict, quote};
use crate::world::World;

pub fn validate(asked: &Asked<'_>, _settings: &Settings, _world: &dyn World) -> Verdict {
    match asked.operation {
        Operation::Create => judge(asked.object),
        Operation::Update if asked.object["metadata"]["deletionTimestamp"].is_null() => {
            judge(asked.object).since(&judge(asked.old))
        }
        _ => Verdict::default(),
    }
}

fn judge(topology: &Value) -> Verdict {
    let mut verdict = Verdict::default();
    let levels = topology["spec"]["levels"].as_array().map(Vec::as_slice).unwrap_or_default();
    let label = |level: &Value| level["nodeLabel"].as_str().unwrap_or_default().to_owned();
    let labels: BTreeMap<String, usize> =
        levels.iter().enumerate().map(|(index, level)| (label(level), index)).collect();
    let mut aliases: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, level) in levels.iter().enumerate() {
        let Some(alias) = level["alias"].as_str().filter(|alias| !alias.is_empty()) else { continue };
        let field = format!("spec.levels[{index}].alias");
        if let Some(other) = labels.get(alias) {
            verdict.refuse(
                &field,
                format!("{} is the nodeLabel of spec.levels[{other}]; choose another alias", quote(alias)),
            );
        }
        if let Some(first) = aliases.insert(alias, index) {
            verdict.refuse(
                field,
                format!("{} is the alias of spec.levels[{first}] too; give each level its own", quote(alias)),
            );
        }
    }
    verdict
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Levels as `label` or `label=alias`.
    #[track_caller]
    fn check(levels: &str, expected: &[&str]) {
        let levels: Vec<Value> = levels
            .split_whitespace()
            .map(|level| match level.split_once('=') {
                Some((label, alias)) => json!({"nodeLabel": label, "alias": alias}),
                None => json!({"nodeLabel": level}),
            })
            .collect();
        let verdict = judge(&json!({"spec": {"levels": levels}}));
        let shown: Vec<String> = verdict.errors.iter().map(ToString::to_string).collect();
        assert_eq!(shown, expected);
    }

    #[test]
    fn aliases() {
        check("zone rack=r host=h", &[]);
        check(
            "zone=r rack=r",
            &["spec.levels[1].alias: \"r\" is the alias of spec.levels[0] too; give each level its own"],
        );
        check(
            "zone=rack rack",
            &["spec.levels[0].alias: \"rack\" is the nodeLabel of spec.levels[1]; choose another alias"],
        );
        check(
            "zone=zone",
            &["spec.levels[0].alias: \"zone\" is the nodeLabel of spec.levels[0]; choose another alias"],
        );
    }
}
