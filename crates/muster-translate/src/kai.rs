//! KAI's settings to the model's policy.
//!
//! Three forms are read: the `config` of a scenario file, the scheduler's own configuration file (`actions`, `tiers`), and a
//! `kai.scheduler/v1` SchedulingShard. Plugins are what KAI calls its parts; those that the model always has are known by name and change nothing.

use crate::read::{At, Object};
use crate::text::{self, MOST};
use muster_model::{
    Action, Diagnostic, Dialect, GpuOrder, Grace, MinRuntimeRule, Policy, Pool, Reach, Span, Strategy,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What the settings mean. What cannot be read keeps KAI's default and is named.
pub fn policy(config: &Value) -> (Policy, Vec<Diagnostic>) {
    let is_shard = config.get("kind").and_then(Value::as_str) == Some("SchedulingShard");
    if is_shard {
        let object = Object::new("SchedulingShard", config);
        let mut policy = shard(object.get("spec"));
        policy.trees = trees(object.get("spec").get("trees"));
        return (policy, object.into_diagnostics());
    }
    let object = Object::new("scheduler configuration", config);
    let mut policy =
        if config.get("tiers").is_some() { configuration(object.root()) } else { scenario(object.root()) };
    policy.trees = trees(object.get("trees"));
    let mut diagnostics = object.into_diagnostics();
    for diagnostic in &mut diagnostics {
        diagnostic.object = "scheduler configuration".to_owned();
    }
    (policy, diagnostics)
}

const ACTIONS: [Action; 5] =
    [Action::Allocate, Action::Consolidate, Action::Reclaim, Action::Preempt, Action::EvictStaleGangs];

/// An action by KAI's name for it.
pub fn action(name: &str) -> Option<Action> {
    ACTIONS.into_iter().find(|action| action.name() == name)
}

/// KAI's names for all actions.
pub fn action_names() -> Vec<&'static str> {
    ACTIONS.into_iter().map(Action::name).collect()
}

/// The names of all plugins that KAI has.
pub fn plugin_names() -> Vec<&'static str> {
    DEFAULT_PLUGINS.into_iter().chain(OTHER_PLUGINS).collect()
}

/// The `config` of a scenario: a flat object, with KAI's plugins unless it lists others.
fn scenario(at: At<'_>) -> Policy {
    let mut policy = Policy { numa: true, ..Policy::default() };
    let placement = at.get("nodePlacement");
    if at.raw().is_some_and(|raw| raw.get("nodePlacement").is_some()) {
        policy.gpu_strategy = strategy(placement.get("gpu"));
        policy.cpu_strategy = strategy(placement.get("cpu"));
    }
    if at.raw().is_some_and(|raw| raw.get("gpuPlacement").is_some()) {
        policy.gpu_order = gpu_order(at.get("gpuPlacement"));
    }
    options(at, &mut policy);
    if at.get("plugins").exists() {
        let plugins = Plugins::of_list(at.get("plugins").list());
        plugins.apply(&mut policy);
    }
    policy
}

/// The scheduler's configuration file.
fn configuration(at: At<'_>) -> Policy {
    let mut policy = Policy::default();
    if let Some(names) = at.get("actions").str() {
        policy.actions = names
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .filter_map(|name| {
                let action = action(name);
                if action.is_none() {
                    at.get("actions")
                        .report(format!("{} is no action; it is left out", crate::read::quote(name)));
                }
                action
            })
            .collect();
    }
    queue_depth(at.get("queueDepthPerAction"), &mut policy);
    options(at, &mut policy);
    let lists: Vec<At<'_>> =
        at.get("tiers").list().flat_map(|tier| tier.get("plugins").list().collect::<Vec<_>>()).collect();
    Plugins::of_list(lists.into_iter()).apply(&mut policy);
    policy
}

/// A SchedulingShard, whose plugins and actions are changes to KAI's defaults.
fn shard(spec: At<'_>) -> Policy {
    let mut policy = Policy::default();
    let placement = spec.get("placementStrategy");
    let or_binpack = |at: At<'_>| {
        if at.exists() { strategy(at).or(Some(Strategy::Binpack)) } else { Some(Strategy::Binpack) }
    };
    let gpu = or_binpack(placement.get("gpu"));
    let cpu = or_binpack(placement.get("cpu"));
    let spread = Some(Strategy::Spread);

    let mut enabled: BTreeSet<&str> = DEFAULT_PLUGINS.iter().copied().collect();
    if gpu == spread {
        enabled.remove("gpupack");
        enabled.remove("gpusharingorder");
        enabled.insert("gpuspread");
    }
    policy.gpu_strategy = gpu;
    policy.cpu_strategy = cpu;
    policy.usage_weight = 1000;
    let mut plugins = Plugins::default();
    for (name, at) in spec.get("plugins").entries() {
        if !is_known_plugin(name) {
            at.report("is no plugin of KAI; it is ignored");
        }
        match at.get("enabled").bool() {
            Some(true) => drop(enabled.insert(name)),
            Some(false) => drop(enabled.remove(name)),
            None => {}
        }
        plugins.arguments.insert(name, at.get("arguments"));
    }
    plugins.names = enabled;
    let k = spec.get("kValue");
    if k.exists() {
        policy.usage_weight = number(k).unwrap_or(1000).max(0);
    }
    let runtime = spec.get("minRuntime");
    if let Some(span) = runtime.get("preemptMinRuntime").duration() {
        policy.preempt_min_runtime = span;
    }
    if let Some(span) = runtime.get("reclaimMinRuntime").duration() {
        policy.reclaim_min_runtime = span;
    }
    queue_depth(spec.get("queueDepthPerAction"), &mut policy);
    plugins.apply(&mut policy);

    // Moving pods together would undo what spreading did.
    let consolidates = gpu != spread && cpu != spread;
    let mut actions: BTreeMap<Action, (bool, i64)> = BTreeMap::new();
    for (action, priority) in policy.actions.iter().zip([500, 400, 300, 200, 100]) {
        actions.insert(*action, (*action != Action::Consolidate || consolidates, priority));
    }
    for (name, at) in spec.get("actions").entries() {
        let Some(entry) = action(name).and_then(|action| actions.get_mut(&action)) else {
            at.report("is no action; it is ignored");
            continue;
        };
        entry.0 = at.get("enabled").bool().unwrap_or(entry.0);
        entry.1 = at.get("priority").int().unwrap_or(entry.1);
    }
    let mut order: Vec<(Action, i64)> = actions
        .into_iter()
        .filter(|(_, (on, _))| *on)
        .map(|(action, (_, priority))| (action, priority))
        .collect();
    order.sort_by_key(|(_, priority)| std::cmp::Reverse(*priority));
    policy.actions = order.into_iter().map(|(action, _)| action).collect();

    options(spec.get("args"), &mut policy);
    policy.pool = Pool {
        label: policy.pool.label.take(),
        value: spec.get("partitionLabelValue").name().or(policy.pool.value.take()),
    };
    policy
}

/// Flags, in the spelling of the command line (`max-consolidation-preemptees`) or of files (`maxConsolidationPreemptees`).
fn options(at: At<'_>, policy: &mut Policy) {
    // What else a configuration file has. The arguments of a shard are judged by whoever makes flags of them.
    const BESIDE: [&str; 7] =
        ["actions", "tiers", "queuedepthperaction", "trees", "apiversion", "kind", "metadata"];
    let is_file = at.get("tiers").exists();
    for (key, value) in at.entries() {
        let key: String = key.chars().filter(|c| *c != '-').flat_map(char::to_lowercase).collect();
        match &*key {
            "maxconsolidationpreemptees" => match number(value).map(|n| n / 1000) {
                Some(n) if n < 0 => policy.max_consolidation_victims = None,
                Some(n) => policy.max_consolidation_victims = Some(u32::try_from(n).unwrap_or(u32::MAX)),
                None => {}
            },
            "allowconsolidatingreclaim" => {
                policy.consolidating_reclaim = flag(value).unwrap_or(policy.consolidating_reclaim)
            }
            "fullhierarchyfairness" => policy.full_hierarchy = flag(value).unwrap_or(policy.full_hierarchy),
            "defaultstalenessgraceperiod" => {
                if let Some(span) = value.duration() {
                    policy.staleness_grace =
                        if span < Span::ZERO { Grace::Forever } else { Grace::For(span) };
                }
            }
            "nodepoollabelkey" => policy.pool.label = value.name(),
            "partitionlabelvalue" => policy.pool.value = value.name(),
            "actions" | "queuedepthperaction" if !is_file => {
                value.report(
                    "is read only in a configuration file, which has tiers too; write tiers: [] beside it",
                );
            }
            "usagedbconfig" => value.report("has no effect: past usage is not read"),
            "scenariosearchbudgets" => {
                value.report("has no effect: searches are bounded by their own budgets")
            }
            key if is_file && !BESIDE.contains(&key) => value.report("is not known here; it is ignored"),
            _ => {}
        }
    }
}

/// What systems' trees of queues have of the cluster, by system: `{volcano: {under: research}, t9k: {nodes: {pool: [blue]}}}`.
fn trees(at: At<'_>) -> BTreeMap<Dialect, Reach> {
    let mut trees = BTreeMap::new();
    for (name, at) in at.entries() {
        let tree = match name {
            "kai" => Dialect::Kai,
            "volcano" => Dialect::Volcano,
            "t9k" => Dialect::T9k,
            "koordinator" => Dialect::Koordinator,
            "kubernetes" => Dialect::Kubernetes,
            _ => {
                at.report("is no tree of queues; these are kai, volcano, t9k, koordinator and kubernetes");
                continue;
            }
        };
        if at.raw().and_then(Value::as_str) == Some("share") {
            continue;
        }
        let (under, nodes) = (at.get("under"), at.get("nodes"));
        for (field, unknown) in at.entries().filter(|(field, _)| !["under", "nodes"].contains(field)) {
            unknown.report(format!("{} is not known here; write under or nodes", crate::read::quote(field)));
        }
        let reach = match (under.name(), nodes.entries().next()) {
            (Some(_), Some(_)) => {
                at.report("a tree is under a queue or has nodes of its own; write one of the two");
                continue;
            }
            (Some(_), None) if tree == Dialect::Kai => {
                under.report("the other trees may be under a queue of KAI's, KAI's own is under none");
                continue;
            }
            (Some(queue), None) => Reach::Under(queue),
            (None, Some((label, values))) => {
                if nodes.entries().count() > 1 {
                    nodes.report("has several labels; the first by name is used");
                }
                let listed = values.raw().is_some_and(Value::is_array);
                let values = if listed { values.names() } else { values.name().into_iter().collect() };
                if values.is_empty() {
                    nodes.report("names no value, so there would be no nodes; it is ignored");
                    continue;
                }
                Reach::Nodes { label: label.into(), values }
            }
            (None, None) => {
                at.report("must be share, {under: QUEUE} or {nodes: {LABEL: VALUE}}; share is used");
                continue;
            }
        };
        trees.insert(tree, reach);
    }
    trees
}

fn queue_depth(at: At<'_>, policy: &mut Policy) {
    for (name, depth) in at.entries() {
        match (action(name), depth.count()) {
            (Some(action), Some(depth)) => drop(policy.queue_depth.insert(action, depth as usize)),
            (None, _) => depth.report("is for no action; it is ignored"),
            (_, None) => {}
        }
    }
}

const DEFAULT_PLUGINS: [&str; 21] = [
    "predicates",
    "proportion",
    "priority",
    "nodeavailability",
    "resourcetype",
    "podaffinity",
    "elastic",
    "kubeflow",
    "ray",
    "subgrouporder",
    "taskorder",
    "nominatednode",
    "dynamicresources",
    "minruntime",
    "topology",
    "snapshot",
    "sg-nodelocalgreedy",
    "sg-multinodegang",
    "gpupack",
    "nodeplacement",
    "gpusharingorder",
];
/// Those that run only when asked for.
const OTHER_PLUGINS: [&str; 3] = ["gpuspread", "numa", "reflectjoborder"];

fn is_known_plugin(name: &str) -> bool {
    DEFAULT_PLUGINS.contains(&name) || OTHER_PLUGINS.contains(&name)
}

/// The plugins that run, and what they were told.
#[derive(Default)]
struct Plugins<'a> {
    names: BTreeSet<&'a str>,
    arguments: BTreeMap<&'a str, At<'a>>,
}

impl<'a> Plugins<'a> {
    fn of_list(list: impl Iterator<Item = At<'a>>) -> Self {
        let mut plugins = Self::default();
        for at in list {
            let name = at.get("name").str().unwrap_or("");
            if !is_known_plugin(name) {
                at.report("is no plugin of KAI; it is ignored");
            }
            plugins.names.insert(name);
            plugins.arguments.insert(name, at.get("arguments"));
        }
        plugins
    }

    fn apply(&self, policy: &mut Policy) {
        let has = |name: &str| self.names.contains(name);
        policy.quotas = has("proportion");
        policy.prefer_shared_gpus = has("gpusharingorder");
        policy.numa = has("numa");
        policy.gpu_order = match (has("gpupack"), has("gpuspread")) {
            (true, _) => Some(GpuOrder::Pack),
            (false, true) => Some(GpuOrder::Spread),
            (false, false) => None,
        };
        if !has("nodeplacement") {
            policy.gpu_strategy = None;
            policy.cpu_strategy = None;
        }
        if !has("minruntime") {
            policy.preempt_min_runtime = Span::ZERO;
            policy.reclaim_min_runtime = Span::ZERO;
        }
        for (name, at) in &self.arguments {
            if has(name) {
                argue(name, *at, policy);
            }
        }
    }
}

fn argue(plugin: &str, at: At<'_>, policy: &mut Policy) {
    match plugin {
        "nodeplacement" if at.exists() => {
            policy.gpu_strategy = strategy(at.get("gpu")).or(policy.gpu_strategy);
            policy.cpu_strategy = strategy(at.get("cpu")).or(policy.cpu_strategy);
        }
        "proportion" => {
            if at.get("kValue").exists() {
                policy.usage_weight = number(at.get("kValue")).unwrap_or(policy.usage_weight).max(0);
            }
            // The first spelling is KAI's own.
            for key in ["relcaimerSaturationMultiplier", "reclaimerSaturationMultiplier"] {
                if let Some(factor) = number(at.get(key)) {
                    if factor < 1000 {
                        at.get(key).report("must be 1 or more; 1 is used");
                    }
                    policy.saturation_multiplier = factor.max(1000);
                }
            }
        }
        "minruntime" => {
            if let Some(span) = at.get("defaultPreemptMinRuntime").duration() {
                policy.preempt_min_runtime = span;
            }
            if let Some(span) = at.get("defaultReclaimMinRuntime").duration() {
                policy.reclaim_min_runtime = span;
            }
            let method = at.get("reclaimResolveMethod");
            match method.word() {
                Some("queue") => policy.min_runtime_rule = MinRuntimeRule::Queue,
                Some("lca") => policy.min_runtime_rule = MinRuntimeRule::BelowCommonAncestor,
                Some(_) => method.report("must be lca or queue; lca is used"),
                None => {}
            }
        }
        "numa" => {
            if let Some(rebuilt) = flag(at.get("reconstructAvailable")) {
                policy.trust_reported_zones = !rebuilt;
            }
        }
        _ => {}
    }
}

fn strategy(at: At<'_>) -> Option<Strategy> {
    match at.word()? {
        "binpack" => Some(Strategy::Binpack),
        "spread" => Some(Strategy::Spread),
        _ => {
            at.report("must be binpack or spread; it is ignored");
            None
        }
    }
}

fn gpu_order(at: At<'_>) -> Option<GpuOrder> {
    match at.word()? {
        "pack" | "binpack" => Some(GpuOrder::Pack),
        "spread" => Some(GpuOrder::Spread),
        _ => {
            at.report("must be pack or spread; it is ignored");
            None
        }
    }
}

/// Arguments may be written as text.
fn flag(at: At<'_>) -> Option<bool> {
    match at.raw()? {
        Value::String(text) => match &**text {
            "true" => Some(true),
            "false" => Some(false),
            _ => {
                at.report("must be true or false; it is ignored");
                None
            }
        },
        _ => at.bool(),
    }
}

/// In thousandths. Arguments may be written as text.
fn number(at: At<'_>) -> Option<i64> {
    let value = match at.raw()? {
        Value::Number(number) => text::thousandths(&number.to_string()),
        Value::String(text) => text::thousandths(text),
        _ => None,
    };
    if value.is_none() {
        at.report("must be a number; it is ignored");
    }
    value.map(|n| n.clamp(-MOST, MOST))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(config: Value, expected: Policy, n_diagnostics: usize) {
        let (policy, found) = policy(&config);
        assert_eq!(policy, expected, "{config}");
        assert_eq!(found.len(), n_diagnostics, "{found:?}");
    }

    fn in_scenario(change: impl FnOnce(&mut Policy)) -> Policy {
        let mut policy = Policy { numa: true, ..Policy::default() };
        change(&mut policy);
        policy
    }

    fn in_shard(change: impl FnOnce(&mut Policy)) -> Policy {
        let mut policy = Policy { usage_weight: 1000, ..Policy::default() };
        change(&mut policy);
        policy
    }

    #[test]
    fn what_a_configuration_file_does_not_have_is_named() {
        let said = |config: Value| -> Vec<String> {
            policy(&config).1.iter().map(|d| format!("{}: {}", d.field, d.message)).collect()
        };
        assert_eq!(
            said(json!({"tiers": [], "actions": "allocate", "maxConsolidationPremptees": 3})),
            ["maxConsolidationPremptees: is not known here; it is ignored"]
        );
        assert_eq!(
            said(json!({"tiers": [], "usageDBConfig": {"clientType": "prometheus"}})),
            ["usageDBConfig: has no effect: past usage is not read"]
        );
        let without_tiers = said(json!({"tires": [], "actions": "allocate"}));
        assert!(
            without_tiers[0].starts_with("actions: is read only in a configuration file"),
            "{without_tiers:?}"
        );
        let all = json!({"apiVersion": "v1", "kind": "x", "tiers": [], "actions": "allocate", "trees": {},
            "queueDepthPerAction": {}, "full-hierarchy-fairness": true, "nodePoolLabelKey": "k"});
        assert_eq!(said(all), Vec::<String>::new());
    }

    #[test]
    fn scenario_configs() {
        check(json!({}), in_scenario(|_| {}), 0);
        check(
            json!({"allowConsolidatingReclaim": false, "defaultStalenessGracePeriod": "0s", "gpuPlacement": "spread",
                "maxConsolidationPreemptees": -1, "nodePlacement": {"cpu": "spread", "gpu": "binpack"}}),
            in_scenario(|p| {
                p.consolidating_reclaim = false;
                p.staleness_grace = Grace::For(Span::ZERO);
                p.gpu_order = Some(GpuOrder::Spread);
                p.max_consolidation_victims = None;
                p.cpu_strategy = Some(Strategy::Spread);
            }),
            0,
        );
        check(
            json!({"maxConsolidationPreemptees": 3, "defaultStalenessGracePeriod": "-1s"}),
            in_scenario(|p| {
                p.max_consolidation_victims = Some(3);
                p.staleness_grace = Grace::Forever;
            }),
            0,
        );
        check(
            json!({"nodePlacement": null, "gpuPlacement": null}),
            in_scenario(|p| {
                p.gpu_strategy = None;
                p.cpu_strategy = None;
                p.gpu_order = None;
            }),
            0,
        );
        check(
            json!({"gpuPlacement": "sideways", "maxConsolidationPreemptees": {}}),
            in_scenario(|p| p.gpu_order = None),
            2,
        );
    }

    #[test]
    fn exactly_the_plugins_that_are_listed() {
        let none = |p: &mut Policy| {
            p.quotas = false;
            p.prefer_shared_gpus = false;
            p.gpu_strategy = None;
            p.cpu_strategy = None;
            p.gpu_order = None;
            p.numa = false;
        };
        check(json!({"plugins": []}), in_scenario(none), 0);
        check(
            json!({"gpuPlacement": "pack", "nodePlacement": null, "plugins": [{"name": "gpupack"}]}),
            in_scenario(|p| {
                none(p);
                p.gpu_order = Some(GpuOrder::Pack);
            }),
            0,
        );
        check(
            json!({"plugins": [{"name": "gpuspread"}, {"name": "nodeplacement", "arguments": {"cpu": "spread", "gpu": "binpack"}}, {"name": "proportion"}]}),
            in_scenario(|p| {
                none(p);
                p.quotas = true;
                p.gpu_order = Some(GpuOrder::Spread);
                p.gpu_strategy = Some(Strategy::Binpack);
                p.cpu_strategy = Some(Strategy::Spread);
            }),
            0,
        );
        check(json!({"plugins": [{"name": "mystery"}]}), in_scenario(none), 1);
    }

    #[test]
    fn scheduler_configuration() {
        let all: Vec<Value> = DEFAULT_PLUGINS.iter().map(|name| json!({"name": name})).collect();
        check(
            json!({"actions": "allocate, reclaim", "tiers": [{"plugins": all}], "queueDepthPerAction": {"reclaim": 5}}),
            Policy {
                actions: vec![Action::Allocate, Action::Reclaim],
                queue_depth: [(Action::Reclaim, 5)].into(),
                ..Policy::default()
            },
            0,
        );
        let mut told = all;
        told.push(json!({"name": "minruntime", "arguments": {"defaultPreemptMinRuntime": "1m", "defaultReclaimMinRuntime": "2m", "reclaimResolveMethod": "queue"}}));
        told.push(json!({"name": "proportion", "arguments": {"kValue": "0.5", "relcaimerSaturationMultiplier": "1.25"}}));
        told.push(json!({"name": "numa", "arguments": {"reconstructAvailable": "false"}}));
        check(
            json!({"tiers": [{"plugins": told}]}),
            Policy {
                preempt_min_runtime: Span::seconds(60),
                reclaim_min_runtime: Span::seconds(120),
                min_runtime_rule: MinRuntimeRule::Queue,
                usage_weight: 500,
                saturation_multiplier: 1250,
                numa: true,
                trust_reported_zones: true,
                ..Policy::default()
            },
            0,
        );
        let (policy, found) = policy(&json!({"actions": "allocate, dance", "tiers": []}));
        assert_eq!(policy.actions, [Action::Allocate]);
        assert_eq!(
            found[0].to_string(),
            "scheduler configuration: actions: \"dance\" is no action; it is left out"
        );
    }

    fn of_shard(spec: Value) -> Value {
        json!({"kind": "SchedulingShard", "metadata": {"name": "s"}, "spec": spec})
    }

    #[test]
    fn trees_have_what_they_are_given() {
        let nodes = |values: &[&str]| Reach::Nodes {
            label: "pool".into(),
            values: values.iter().map(|value| (*value).into()).collect(),
        };
        #[track_caller]
        fn check(trees: Value, expected: &[(Dialect, Reach)], n_diagnostics: usize) {
            let (policy, found) = policy(&json!({"trees": trees}));
            assert_eq!(policy.trees, expected.iter().cloned().collect::<BTreeMap<_, _>>());
            assert_eq!(found.len(), n_diagnostics, "{found:?}");
        }
        let under = || Reach::Under("shared".into());
        check(json!({}), &[], 0);
        check(json!({"volcano": "share"}), &[], 0);
        check(json!({"volcano": {"under": "shared"}}), &[(Dialect::Volcano, under())], 0);
        let both = json!({"t9k": {"nodes": {"pool": "blue"}}, "kai": {"nodes": {"pool": ["red", "green"]}}});
        check(both, &[(Dialect::T9k, nodes(&["blue"])), (Dialect::Kai, nodes(&["red", "green"]))], 0);
        check(json!({"kai": {"under": "shared"}}), &[], 1);
        check(json!({"slurm": {"under": "shared"}}), &[], 1);
        check(json!({"t9k": {"under": "a", "nodes": {"pool": "b"}}}), &[], 1);
        check(json!({"t9k": {"below": "a"}}), &[], 2);
        check(json!({"t9k": {"nodes": {"pool": []}}}), &[], 1);
    }

    #[test]
    fn shards() {
        check(of_shard(json!({})), in_shard(|_| {}), 0);
        let without_consolidation = |p: &mut Policy| p.actions.retain(|a| *a != Action::Consolidate);
        check(
            of_shard(json!({"placementStrategy": {"gpu": "spread"}})),
            in_shard(|p| {
                without_consolidation(p);
                p.gpu_strategy = Some(Strategy::Spread);
                p.gpu_order = Some(GpuOrder::Spread);
                p.prefer_shared_gpus = false;
            }),
            0,
        );
        check(
            of_shard(json!({"placementStrategy": {"cpu": "spread"}})),
            in_shard(|p| {
                without_consolidation(p);
                p.cpu_strategy = Some(Strategy::Spread);
            }),
            0,
        );
        check(
            of_shard(json!({
                "partitionLabelValue": "a", "kValue": 0.5, "minRuntime": {"preemptMinRuntime": "1m"},
                "actions": {"preempt": {"priority": 450}, "stalegangeviction": {"enabled": false}},
                "plugins": {"proportion": {"enabled": false}, "numa": {"enabled": true}},
                "args": {"max-consolidation-preemptees": "0", "fullHierarchyFairness": "false"},
            })),
            in_shard(|p| {
                p.pool.value = Some("a".into());
                p.usage_weight = 500;
                p.preempt_min_runtime = Span::seconds(60);
                p.actions = vec![Action::Allocate, Action::Preempt, Action::Consolidate, Action::Reclaim];
                p.quotas = false;
                p.numa = true;
                p.max_consolidation_victims = Some(0);
                p.full_hierarchy = false;
            }),
            0,
        );
        check(of_shard(json!({"plugins": {"x": {}}, "actions": {"y": {}}})), in_shard(|_| {}), 2);
    }
}
