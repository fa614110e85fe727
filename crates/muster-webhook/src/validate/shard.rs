//! KAI's scheduling shards: names of arguments, plugins and actions that nothing reads.
//!
//! In: a SchedulingShard as JSON. Out: warnings only; KAI drops an unknown name without a word.

use muster_translate::kai;
use serde_json::Value;

use crate::request::{Asked, Operation};
use crate::settings::Settings;
use crate::spelling;
use crate::verdict::{Verdict, quote};
use crate::world::World;

pub fn validate(asked: &Asked<'_>, _settings: &Settings, _world: &dyn World) -> Verdict {
    match asked.operation {
        Operation::Create => judge(asked.object),
        Operation::Update => judge(asked.object).since(&judge(asked.old)),
        Operation::Delete | Operation::Connect => Verdict::default(),
    }
}

/// Arguments of the plugins that take any. One of KAI's names is misspelt, and both spellings are read here.
const PLUGIN_ARGUMENTS: &[(&str, &[&str])] = &[
    ("proportion", &["kValue", "relcaimerSaturationMultiplier", "reclaimerSaturationMultiplier"]),
    ("nodeplacement", &["gpu", "cpu"]),
    ("minruntime", &["defaultPreemptMinRuntime", "defaultReclaimMinRuntime", "reclaimResolveMethod"]),
    ("dynamicresources", &["maxCelCacheEntries"]),
    ("numa", &["ignoreList", "reconstructAvailable"]),
];

/// The scheduler's flags, as the command line spells them; files may write `maxConsolidationPreemptees` as well.
const ARGS: &[&str] = &[
    "scheduler-name",
    "namespace",
    "metrics-namespace",
    "resource-reservation-app-label",
    "restrict-node-scheduling",
    "nodepool-label-key",
    "partition-label-value",
    "queue-label-key",
    "scheduler-conf",
    "schedule-period",
    "leader-elect",
    "listen-address",
    "enable-profiler",
    "profiler-port",
    "v",
    "log-json",
    "max-consolidation-preemptees",
    "qps",
    "burst",
    "detailed-fit-errors",
    "update-pod-eviction-condition",
    "schedule-csi-storage",
    "use-scheduling-signatures",
    "full-hierarchy-fairness",
    "allow-consolidating-reclaim",
    "num-of-status-recording-workers",
    "default-staleness-grace-period",
    "stuck-in-releasing-threshold",
    "plugin-server-port",
    "cpu-worker-node-label-key",
    "gpu-worker-node-label-key",
    "mig-worker-node-label-key",
    "feature-gates",
];

fn judge(shard: &Value) -> Verdict {
    let mut verdict = Verdict::default();
    let spec = &shard["spec"];
    let squeeze =
        |text: &str| -> String { text.chars().filter(|c| *c != '-').flat_map(char::to_lowercase).collect() };
    for key in names(&spec["args"]) {
        let is_known =
            ARGS.iter().any(|known| squeeze(known) == squeeze(key)) || key.starts_with("pyroscope");
        if !is_known {
            unknown(&mut verdict, "spec.args", key, "argument", ARGS);
        }
    }
    let plugins = kai::plugin_names();
    for key in names(&spec["plugins"]) {
        if !plugins.contains(&key) {
            unknown(&mut verdict, "spec.plugins", key, "plugin", &plugins);
            continue;
        }
        let known =
            PLUGIN_ARGUMENTS.iter().find(|(plugin, _)| *plugin == key).map_or(&[][..], |(_, known)| known);
        for argument in names(&spec["plugins"][key]["arguments"]) {
            if !known.contains(&argument) {
                unknown(&mut verdict, &format!("spec.plugins[{key}].arguments"), argument, "argument", known);
            }
        }
    }
    for list in ["actions", "queueDepthPerAction"] {
        for key in names(&spec[list]) {
            if kai::action(key).is_none() {
                unknown(&mut verdict, &format!("spec.{list}"), key, "action", &kai::action_names());
            }
        }
    }
    let strategies = &spec["placementStrategy"];
    let spreads = ["gpu", "cpu"].iter().any(|resource| strategies[*resource] == "spread");
    if spreads && spec["actions"]["consolidation"]["enabled"] == true {
        verdict.warn("spec.actions[consolidation]", "has no effect beside a placementStrategy of spread");
    }
    verdict
}

fn names(map: &Value) -> impl Iterator<Item = &str> {
    map.as_object().into_iter().flat_map(|map| map.keys().map(String::as_str))
}

fn unknown(verdict: &mut Verdict, path: &str, key: &str, what: &str, known: &[&str]) {
    let hint = match spelling::nearest(key, known.iter().copied()) {
        Some(near) => format!("did you mean {near}?"),
        None if known.is_empty() => "this plugin has none".to_owned(),
        None if known.len() <= 6 => format!("there are {}", known.join(", ")),
        None => "it is ignored".to_owned(),
    };
    verdict.warn(format_args!("{path}[{}]", quote(key)), format_args!("no such {what}; {hint}"));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(spec: Value, expected: &[&str]) {
        let verdict = judge(&json!({"spec": spec}));
        assert!(verdict.allows());
        assert_eq!(verdict.warnings, expected);
    }

    #[test]
    fn unknown_names() {
        check(json!({}), &[]);
        check(
            json!({"args": {"max-consolidation-preemptees": "0", "fullHierarchyFairness": "false", "v": "4"}}),
            &[],
        );
        check(
            json!({"plugins": {"proportion": {"arguments": {"kValue": "1"}}, "numa": {"enabled": true}}}),
            &[],
        );
        check(
            json!({"queueDepthPerAction": {"reclaim": 5}, "actions": {"preempt": {"enabled": false}}}),
            &[],
        );
        check(
            json!({"args": {"schedule-periode": "1s", "colour": "red"}}),
            &[
                "spec.args[\"colour\"]: no such argument; it is ignored",
                "spec.args[\"schedule-periode\"]: no such argument; did you mean schedule-period?",
            ],
        );
        check(
            json!({"plugins": {"propotion": {}, "gpupack": {"arguments": {"x": "1"}}, "nodeplacement": {"arguments": {"disk": "1"}}}}),
            &[
                "spec.plugins[gpupack].arguments[\"x\"]: no such argument; this plugin has none",
                "spec.plugins[nodeplacement].arguments[\"disk\"]: no such argument; there are gpu, cpu",
                "spec.plugins[\"propotion\"]: no such plugin; did you mean proportion?",
            ],
        );
        check(
            json!({"actions": {"consolidate": {}}, "queueDepthPerAction": {"backfill": 1}}),
            &[
                "spec.actions[\"consolidate\"]: no such action; did you mean consolidation?",
                "spec.queueDepthPerAction[\"backfill\"]: no such action; there are allocate, consolidation, reclaim, \
                 preempt, stalegangeviction",
            ],
        );
        check(
            json!({"placementStrategy": {"gpu": "spread"}, "actions": {"consolidation": {"enabled": true}}}),
            &["spec.actions[consolidation]: has no effect beside a placementStrategy of spread"],
        );
        check(json!({"args": 5, "plugins": [1], "actions": "x"}), &[]);
    }
}
