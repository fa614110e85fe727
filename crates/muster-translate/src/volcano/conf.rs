//! Volcano's scheduler configuration: actions, tiers of plugins with their arguments and switches, and arguments of actions.
//!
//! Upstream ignores an argument that does not exist; here it is named, with what it was probably meant to be.

use crate::read::{At, Object};
use crate::text::{self, Rounding};
use muster_model::volcano::{
    CapacityConf, Conf, DeviceConf, Filters, FitType, Hook, Hooks, Packing, Plugin, PluginKind,
    ReschedulingConf, Shadow, StrategyConf, TdmConf, TopologyConf, UsageConf, Weights,
};
use muster_model::{Action, Amounts, Diagnostic, Name, Policy, Resource, Span};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

const ACTIONS: [Action; 8] = [
    Action::Enqueue,
    Action::Allocate,
    Action::Backfill,
    Action::Preempt,
    Action::Reclaim,
    Action::GangPreempt,
    Action::GangReclaim,
    Action::Shuffle,
];

/// Weights and counts beyond this are a slip, and sums of them stay exact below it.
const MOST: i64 = 1_000_000_000;

/// Every switch: its key in the configuration file, and its name in scenarios.
const HOOKS: [(Hook, &str, &str); 25] = [
    (Hook::JobOrder, "enableJobOrder", "job_order"),
    (Hook::SubJobOrder, "enabledSubJobOrder", "sub_job_order"),
    (Hook::TaskOrder, "enableTaskOrder", "task_order"),
    (Hook::QueueOrder, "enableQueueOrder", "queue_order"),
    (Hook::JobReady, "enableJobReady", "job_ready"),
    (Hook::SubJobReady, "enabledSubJobReady", "sub_job_ready"),
    (Hook::JobPipelined, "enableJobPipelined", "job_pipelined"),
    (Hook::SubJobPipelined, "enabledSubJobPipelined", "sub_job_pipelined"),
    (Hook::JobStarving, "enableJobStarving", "job_starving"),
    (Hook::JobEnqueued, "enableJobEnqueued", "job_enqueued"),
    (Hook::Overused, "enabledOverused", "overused"),
    (Hook::Allocatable, "enabledAllocatable", "allocatable"),
    (Hook::Preemptive, "enablePreemptive", "preemptive"),
    (Hook::Preemptable, "enablePreemptable", "preemptable"),
    (Hook::Reclaimable, "enableReclaimable", "reclaimable"),
    (Hook::Predicate, "enablePredicate", "predicate"),
    (Hook::NodeOrder, "enableNodeOrder", "node_order"),
    (Hook::BestNode, "enableBestNode", "best_node"),
    (Hook::Victim, "enabledVictim", "victim"),
    (Hook::HyperNodeOrder, "enabledHyperNodeOrder", "hyper_node_order"),
    (Hook::HyperNodeGradient, "enabledHyperNodeGradient", "hyper_node_gradient"),
    (Hook::Hierarchy, "enableHierarchy", "hierarchy"),
    (Hook::TargetJob, "enableTargetJob", "target_job"),
    (Hook::ReservedNodes, "enableReservedNodes", "reserved_nodes"),
    (Hook::ClusterOrder, "enabledClusterOrder", "cluster_order"),
];

/// A policy for Volcano's gangs alone, by the scheduler's configuration.
pub fn policy(config: &Value) -> (Policy, Vec<Diagnostic>) {
    let (conf, diagnostics) = read(config);
    (alone(conf), diagnostics)
}

/// What the scheduler's configuration means. Without tiers, Volcano's own default applies.
pub fn read(config: &Value) -> (Conf, Vec<Diagnostic>) {
    let object = Object::new("scheduler configuration", config);
    let root = object.root();
    for (key, at) in root.entries() {
        if !["actions", "tiers", "configurations", "metrics"].contains(&key) {
            at.report(
                "is no field of the configuration; the fields are actions, tiers, configurations, metrics",
            );
        }
    }
    let mut actions = Vec::new();
    let given = root.get("actions");
    for name in given.str().unwrap_or("enqueue, allocate, backfill").split(',').map(str::trim) {
        match action(name) {
            Some(action) => actions.push(action),
            None if name.is_empty() => {}
            None => given.report(format!("{name:?} is no action{}", meant(name, ACTIONS.map(Action::name)))),
        }
    }
    let mut conf = Conf { actions, ..Conf::default() };
    for tier in root.get("tiers").list() {
        let plugins = tier.get("plugins").list().filter_map(|at| {
            let mut enabled: Hooks = HOOKS.iter().map(|(hook, ..)| *hook).collect();
            enabled = enabled.without(Hook::Hierarchy).without(Hook::ClusterOrder);
            for (key, value) in at.entries() {
                if ["name", "arguments"].contains(&key) {
                    continue;
                }
                match HOOKS.iter().find(|(_, name, _)| *name == key) {
                    Some((hook, ..)) => match value.bool() {
                        Some(true) => enabled = enabled.with(*hook),
                        Some(false) => enabled = enabled.without(*hook),
                        None => {}
                    },
                    None => {
                        value.report(format!("is no switch{}", meant(key, HOOKS.map(|(_, name, _)| name))))
                    }
                }
            }
            plugin(at.get("name"), at.get("arguments"), enabled)
        });
        conf.tiers.push(plugins.collect());
    }
    if conf.tiers.is_empty() {
        conf.tiers = default_tiers();
    }
    for at in root.get("configurations").list() {
        action_arguments(at.get("name"), at.get("arguments"), &mut conf);
    }
    (conf, diagnostics(object))
}

/// The `actions`, `tiers`, `action_args` and `env` of a scenario. A function that is not listed is off.
pub fn tiers(case: &Value) -> (Policy, Vec<Diagnostic>) {
    let object = Object::new("scheduler configuration", case);
    let root = object.root();
    let mut actions = Vec::new();
    for name in root.get("actions").names() {
        match action(&name) {
            Some(action) => actions.push(action),
            None => root.get("actions").report(format!("{name:?} is no action")),
        }
    }
    let mut conf = Conf { actions, ..Conf::default() };
    if let Some(Value::Array(all)) = root.get("tiers").raw() {
        for (i, _) in all.iter().enumerate() {
            let Some(tier) = root.get("tiers").list().nth(i) else { continue };
            let plugins = tier.list().filter_map(|at| {
                let names = at.get("enabled").names();
                let on = HOOKS.iter().filter(|(_, _, name)| names.iter().any(|n| &**n == *name));
                let enabled: Hooks = on.map(|(hook, ..)| *hook).collect();
                plugin(at.get("plugin"), at.get("args"), enabled)
            });
            conf.tiers.push(plugins.collect());
        }
    }
    for (name, arguments) in root.get("action_args").entries() {
        arguments_of(name, arguments, &mut conf);
    }
    let env = root.get("env");
    if let Some(mode) = env.get("sharding_mode").word() {
        let nodes = env.get("nodes_in_shard").names().into_iter().collect();
        conf.shard = Some(muster_model::volcano::Shard { hard: mode == "hard", nodes });
    }
    (alone(conf), diagnostics(object))
}

/// A policy for Volcano's gangs alone: what else there is only takes room.
fn alone(conf: Conf) -> Policy {
    Policy { actions: Vec::new(), quotas: false, volcano: Some(Arc::new(conf)), ..Policy::default() }
}

fn diagnostics(object: Object<'_>) -> Vec<Diagnostic> {
    let mut diagnostics = object.into_diagnostics();
    for diagnostic in &mut diagnostics {
        diagnostic.object = "scheduler configuration".to_owned();
    }
    diagnostics
}

fn action(name: &str) -> Option<Action> {
    ACTIONS.into_iter().find(|action| action.name() == name)
}

/// What Volcano runs when nobody says otherwise.
fn default_tiers() -> Vec<Vec<Plugin>> {
    let all: Hooks = HOOKS.iter().map(|(hook, ..)| *hook).collect();
    let enabled = all.without(Hook::Hierarchy).without(Hook::ClusterOrder);
    let on = |kind: PluginKind| Plugin { kind, enabled };
    vec![
        vec![on(PluginKind::Priority), on(PluginKind::Gang), on(PluginKind::Conformance)],
        vec![
            on(PluginKind::Overcommit { factor: 1200 }),
            on(PluginKind::Drf),
            on(PluginKind::Predicates(Filters::default())),
            on(PluginKind::Proportion),
            on(PluginKind::NodeOrder(Weights::default())),
        ],
    ]
}

/// The nearest of some names, as the end of a sentence.
fn meant<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let nearest = known.iter().min_by_key(|k| distance(name, k));
    match nearest {
        Some(nearest) if distance(name, nearest) <= 3 => format!("; {nearest:?} was probably meant"),
        _ if known.is_empty() => String::new(),
        _ => format!("; there are {}", known.join(", ")),
    }
}

/// How many letters have to be changed.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(64).enumerate() {
        let mut before = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let kept = before + usize::from(x != *y);
            before = row[j + 1];
            row[j + 1] = kept.min(row[j] + 1).min(before + 1);
        }
    }
    row.last().copied().unwrap_or(0)
}

/// Arguments by name. What is asked for is known; what is left over does not exist.
struct Arguments<'a> {
    at: At<'a>,
    known: std::cell::RefCell<Vec<String>>,
}

impl<'a> Arguments<'a> {
    fn get(&self, key: &str) -> At<'a> {
        self.known.borrow_mut().push(key.to_owned());
        self.at.get(key)
    }

    /// A whole number, or text that is one.
    fn int(&self, key: &str) -> Option<i64> {
        let at = self.get(key);
        match at.raw()? {
            Value::String(text) => match text.trim().parse::<i64>() {
                Ok(number) => Some(number.clamp(-MOST, MOST)),
                Err(_) => {
                    at.report("must be a whole number; it is ignored");
                    None
                }
            },
            _ => at.int().map(|number| number.clamp(-MOST, MOST)),
        }
    }

    /// A decimal in thousandths.
    fn decimal(&self, key: &str) -> Option<i64> {
        let at = self.get(key);
        let milli = match at.raw()? {
            Value::String(text) => text::thousandths(text.trim()),
            Value::Number(number) => text::thousandths(&number.to_string()),
            _ => None,
        };
        if milli.is_none() {
            at.report("must be a number; it is ignored");
        }
        milli
    }

    fn bool(&self, key: &str) -> Option<bool> {
        let at = self.get(key);
        match at.raw()? {
            Value::String(text) if text == "true" => Some(true),
            Value::String(text) if text == "false" => Some(false),
            _ => at.bool(),
        }
    }

    fn span(&self, key: &str) -> Option<Span> {
        self.get(key).duration()
    }

    /// All arguments that begin with this.
    fn prefixed(&self, prefix: &str) -> Vec<(&'a str, At<'a>)> {
        let found: Vec<(&str, At<'_>)> =
            self.at.entries().filter_map(|(key, at)| Some((key.strip_prefix(prefix)?, at))).collect();
        self.known.borrow_mut().extend(found.iter().map(|(key, _)| format!("{prefix}{key}")));
        found
    }

    /// Names what nobody asked for.
    fn finish(self, whose: &str) {
        let known = self.known.into_inner();
        for (key, at) in self.at.entries() {
            if !known.iter().any(|k| k == key) {
                let hint = meant(key, known.iter().map(String::as_str));
                at.report(format!("{key:?} is no argument of {whose} and does nothing{hint}"));
            }
        }
    }
}

fn plugin(name: At<'_>, at: At<'_>, enabled: Hooks) -> Option<Plugin> {
    let word = name.word()?;
    let args = Arguments { at, known: std::cell::RefCell::new(Vec::new()) };
    let kind = match word {
        "gang" => PluginKind::Gang,
        "priority" => PluginKind::Priority,
        "conformance" => PluginKind::Conformance,
        "drf" => PluginKind::Drf,
        "proportion" => PluginKind::Proportion,
        "capacity" => PluginKind::Capacity(CapacityConf {
            ancestor_reclaim_level: args.int("ancestorReclaimLevel").unwrap_or(0).clamp(0, 64) as u32,
            count_claims: args.bool("capacity.DynamicResourceAllocationEnable").unwrap_or(false)
                | args.bool("capacity.DRAConsumableCapacityEnable").unwrap_or(false),
        }),
        "overcommit" => PluginKind::Overcommit {
            factor: args.decimal("overcommit-factor").filter(|f| *f >= 1000).unwrap_or(1200),
        },
        "predicates" => PluginKind::Predicates(filters(&args)),
        "nodeorder" => PluginKind::NodeOrder(weights(&args)),
        "binpack" => PluginKind::Binpack(packing(&args, "binpack.", true)),
        "resource-strategy-fit" => PluginKind::ResourceStrategyFit(Box::new(strategy(&args))),
        "nodegroup" => PluginKind::NodeGroup {
            strict: args.bool("strict").unwrap_or(true),
            preferred_order: args.bool("enablePreferredOrder").unwrap_or(false),
        },
        "tdm" => PluginKind::Tdm(Box::new(tdm(&args))),
        "sla" => PluginKind::Sla { waiting: args.span("sla-waiting-time") },
        "usage" => PluginKind::Usage(usage(&args)),
        "rescheduling" => PluginKind::Rescheduling(Box::new(rescheduling(&args))),
        "pdb" => PluginKind::Pdb,
        "cdp" => PluginKind::Cdp,
        "resourcequota" => PluginKind::ResourceQuota,
        "task-topology" => PluginKind::TaskTopology { weight: args.int("task-topology.weight").unwrap_or(1) },
        "numa-aware" => PluginKind::NumaAware { weight: args.int("weight").unwrap_or(1) },
        "network-topology-aware" => PluginKind::NetworkTopology(Box::new(network(&args))),
        "deviceshare" => PluginKind::DeviceShare(devices(&args)),
        "extender" => PluginKind::Extender,
        _ => {
            name.report(format!("{word:?} is no plugin{}", meant(word, PLUGINS)));
            return None;
        }
    };
    match kind {
        PluginKind::Extender => name.report("calls to an extender are not made; the plugin does nothing"),
        PluginKind::NumaAware { .. } => name.report(
            "Numatopology objects are not read; nodes report zones by NodeResourceTopology, and the plugin does nothing",
        ),
        PluginKind::DeviceShare(_) => {
            name.report("parts of devices are not placed by this plugin yet; it does nothing")
        }
        _ => args.finish(word),
    }
    Some(Plugin { kind, enabled })
}

const PLUGINS: [&str; 24] = [
    "gang",
    "priority",
    "conformance",
    "drf",
    "proportion",
    "capacity",
    "overcommit",
    "predicates",
    "nodeorder",
    "binpack",
    "resource-strategy-fit",
    "nodegroup",
    "tdm",
    "sla",
    "usage",
    "rescheduling",
    "pdb",
    "cdp",
    "resourcequota",
    "task-topology",
    "numa-aware",
    "network-topology-aware",
    "deviceshare",
    "extender",
];

fn filters(args: &Arguments<'_>) -> Filters {
    let on = |name: &str| args.bool(&format!("predicate.{name}Enable")).unwrap_or(true);
    for known in [
        "predicate.CacheEnable",
        "predicate.DynamicResourceAllocationEnable",
        "predicate.NodeVolumeLimitsEnable",
    ] {
        args.get(known);
    }
    args.prefixed("volumebinding.");
    args.prefixed("dynamicresources.");
    Filters {
        node_affinity: on("NodeAffinity"),
        node_ports: on("NodePorts"),
        taints: on("TaintToleration"),
        pod_affinity: on("PodAffinity"),
        volumes: on("VolumeBinding") & on("VolumeZone"),
        spread: on("PodTopologySpread"),
    }
}

fn weights(args: &Arguments<'_>) -> Weights {
    let default = Weights::default();
    let weight = |name: &str, default: i64| args.int(&format!("{name}.weight")).unwrap_or(default);
    Weights {
        least_requested: weight("leastrequested", default.least_requested),
        most_requested: weight("mostrequested", default.most_requested),
        node_affinity: weight("nodeaffinity", default.node_affinity),
        pod_affinity: weight("podaffinity", default.pod_affinity),
        balanced: weight("balancedresource", default.balanced),
        taint_toleration: weight("tainttoleration", default.taint_toleration),
        image_locality: weight("imagelocality", default.image_locality),
        spread: weight("podtopologyspread", default.spread),
    }
}

fn packing(args: &Arguments<'_>, prefix: &str, own_weight: bool) -> Packing {
    let positive = |n: i64| if n < 0 { 1 } else { n };
    let weight = |key: &str| args.int(&format!("{prefix}{key}")).map_or(1, positive);
    let list = args.get(&format!("{prefix}resources"));
    let names: Vec<&str> =
        list.str().unwrap_or("").split(',').map(str::trim).filter(|n| !n.is_empty()).collect();
    Packing {
        weight: if own_weight { args.int(&format!("{prefix}weight")).unwrap_or(1) } else { 1 },
        cpu: weight("cpu"),
        memory: weight("memory"),
        others: names.into_iter().map(|name| (name.into(), weight(&format!("resources.{name}")))).collect(),
    }
}

fn strategy(args: &Arguments<'_>) -> StrategyConf {
    let mut resources: BTreeMap<Name, (FitType, i64)> = BTreeMap::new();
    for (name, at) in args.get("resources").entries() {
        let fit = match at.get("type").str().unwrap_or("") {
            "MostAllocated" => FitType::MostAllocated,
            "LeastAllocated" => FitType::LeastAllocated,
            _ => {
                at.report("the type must be MostAllocated or LeastAllocated; LeastAllocated is used");
                FitType::LeastAllocated
            }
        };
        resources.insert(name.into(), (fit, at.get("weight").int().unwrap_or(1).clamp(-MOST, MOST)));
    }
    if resources.is_empty() {
        resources.extend(["cpu", "memory"].map(|name| (name.into(), (FitType::LeastAllocated, 1))));
    }
    let sra = args.get("sra");
    let scarce = sra.get("enable").bool().unwrap_or(false).then(|| {
        let weights = sra.get("resourceWeight");
        let names =
            sra.get("resources").str().unwrap_or("").split(',').map(str::trim).filter(|n| !n.is_empty());
        let weight = |name: &str| weights.get(name).int().unwrap_or(1).clamp(0, MOST);
        let all = names.map(|name| (name.into(), weight(name))).collect();
        (sra.get("weight").int().unwrap_or(10).clamp(0, MOST), all)
    });
    let proportional = args.get("proportional");
    let mut reserved: BTreeMap<Name, Amounts> = BTreeMap::new();
    if proportional.get("enable").bool().unwrap_or(false) {
        for (key, at) in proportional.get("resourceProportion").entries() {
            let Some((scarce, resource)) = key.rsplit_once('.') else { continue };
            let Some(nano) = at.nano() else { continue };
            let amount = match resource {
                "cpu" => (Resource::Cpu, nano / 1_000_000),
                // In gibibytes.
                "memory" => (Resource::Memory, nano.saturating_mul(1 << 30) / 1_000_000_000),
                _ => continue,
            };
            let whole = i64::try_from(amount.1).unwrap_or(i64::MAX);
            reserved.entry(scarce.into()).or_default().set(amount.0, whole);
        }
    }
    StrategyConf { weight: args.int("resourceStrategyFitWeight").unwrap_or(10), resources, scarce, reserved }
}

fn tdm(args: &Arguments<'_>) -> TdmConf {
    let clock = |text: &str| {
        let (hour, minute) = text.trim().split_once(':')?;
        let (hour, minute): (i64, i64) = (hour.parse().ok()?, minute.parse().ok()?);
        ((0..24).contains(&hour) && (0..60).contains(&minute)).then_some((hour * 60 + minute) * 60_000)
    };
    let mut zones = BTreeMap::new();
    for (zone, at) in args.prefixed("tdm.revocable-zone.") {
        let hours = at.str().and_then(|text| text.split_once('-'));
        match hours.and_then(|(from, to)| Some((clock(from)?, clock(to)?))) {
            Some(hours) => drop(zones.insert(zone.into(), hours)),
            None => at.report("must be hours such as 10:00-21:00; the zone is never active"),
        }
    }
    TdmConf { zones, evict_period: args.span("tdm.evict.period").unwrap_or(Span::seconds(60)) }
}

fn usage(args: &Arguments<'_>) -> UsageConf {
    let thresholds = args.get("thresholds");
    let percent = |name: &str| thresholds.get(name).int().map(|n| n.saturating_mul(1000));
    let default = UsageConf::default();
    // What limits allow beyond requests is not known here, and by default it counts nothing.
    args.get("burst_ratio");
    let quantity = |key: &str, resource: Resource, default: i64| {
        let quantity = args.get(key).quantity();
        quantity.and_then(|q| text::amount(&resource, q, Rounding::Up).ok()).unwrap_or(default)
    };
    let ratio = |key: &str, default: i64| args.decimal(key).filter(|n| *n >= 0).unwrap_or(default).min(MOST);
    let shadow = Shadow {
        ratio: ratio("request_ratio", default.shadow.ratio),
        risk_threshold: ratio("risk_threshold", default.shadow.risk_threshold),
        risk_factor: ratio("risk_factor", default.shadow.risk_factor),
        modest_cpu: quantity("be_cpu", Resource::Cpu, default.shadow.modest_cpu),
        modest_memory: quantity("be_mem", Resource::Memory, default.shadow.modest_memory),
    };
    UsageConf {
        weight: args.int("usage.weight").unwrap_or(default.weight),
        cpu_weight: args.int("cpu.weight").unwrap_or(default.cpu_weight),
        memory_weight: args.int("memory.weight").unwrap_or(default.memory_weight),
        cpu_threshold: if thresholds.exists() { percent("cpu") } else { default.cpu_threshold },
        memory_threshold: if thresholds.exists() { percent("mem") } else { default.memory_threshold },
        shadow,
    }
}

fn rescheduling(args: &Arguments<'_>) -> ReschedulingConf {
    let mut conf = ReschedulingConf {
        interval: args.span("interval").unwrap_or(Span::seconds(300)),
        ..Default::default()
    };
    args.get("metricsPeriod");
    args.get("queueSelector");
    args.get("labelSelector");
    for strategy in args.get("strategies").list() {
        if strategy.get("name").str() != Some("lowNodeUtilization") {
            strategy.get("name").report("is no strategy; there is lowNodeUtilization");
            continue;
        }
        let read = |at: At<'_>| {
            at.entries()
                .filter_map(|(name, at)| Some((name.into(), at.int()?.saturating_mul(1000))))
                .collect()
        };
        let params = strategy.get("params");
        conf.thresholds = read(params.get("thresholds"));
        conf.target_thresholds = read(params.get("targetThresholds"));
    }
    conf
}

fn network(args: &Arguments<'_>) -> TopologyConf {
    let fading = args.decimal("hypernode.binpack.normal-pod.fading").filter(|f| *f >= 0).unwrap_or(800);
    let normal = args.bool("hypernode.binpack.normal-pod.enable").unwrap_or(true);
    let most = args.int("hypernode.gradient.evict.max-hypernodes").filter(|n| *n > 0).unwrap_or(8);
    TopologyConf {
        weight: args.int("weight").filter(|w| *w >= 0).unwrap_or(1),
        packing: packing(args, "hypernode.binpack.", false),
        normal_pods: normal.then_some(fading),
        most_domains: usize::try_from(most).unwrap_or(8),
    }
}

fn devices(args: &Arguments<'_>) -> DeviceConf {
    let on = |name: &str| args.bool(&format!("deviceshare.{name}")).unwrap_or(false);
    DeviceConf {
        vgpu: on("VGPUEnable"),
        gpu_sharing: on("GPUSharingEnable"),
        gpu_number: on("GPUNumberEnable"),
        spread: args.get("deviceshare.SchedulePolicy").str() == Some("spread"),
        weight: args.int("deviceshare.ScheduleWeight").unwrap_or(0),
    }
}

fn action_arguments(name: At<'_>, arguments: At<'_>, conf: &mut Conf) {
    match name.word() {
        Some(word) if action(word).is_some() => arguments_of(word, arguments, conf),
        Some(word) => name.report(format!("{word:?} is no action{}", meant(word, ACTIONS.map(Action::name)))),
        None => {}
    }
}

fn arguments_of(action: &str, at: At<'_>, conf: &mut Conf) {
    let args = Arguments { at, known: std::cell::RefCell::new(Vec::new()) };
    let count =
        |key: &str, default: u32| args.int(key).map_or(default, |n| n.clamp(0, i64::from(u32::MAX)) as u32);
    args.get("predicateErrorCacheEnable");
    match action {
        "preempt" => {
            let default = conf.preempt;
            conf.preempt.topology_aware = args.bool("enableTopologyAwarePreemption").unwrap_or(false);
            args.get("topologyAwarePreemptWorkerNum");
            conf.preempt.min_candidates_percentage =
                count("minCandidateNodesPercentage", default.min_candidates_percentage);
            conf.preempt.min_candidates = count("minCandidateNodesAbsolute", default.min_candidates);
            conf.preempt.max_candidates = count("maxCandidateNodesAbsolute", default.max_candidates);
        }
        "gangpreempt" | "gangreclaim" => {
            let gang = if action == "gangpreempt" { &mut conf.gang_preempt } else { &mut conf.gang_reclaim };
            gang.max_domains =
                args.int("maxDomains").and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0).unwrap_or(8);
            gang.allow_whole = args.bool("allowWholeBundle").unwrap_or(true);
        }
        _ => {}
    }
    args.finish(action);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(config: Value, expected: &[&str]) -> Policy {
        let (policy, found) = policy(&config);
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found} does not say {expected}");
        }
        policy
    }

    #[test]
    fn switches_are_on_unless_said_otherwise() {
        let policy = check(
            json!({"actions": "enqueue, allocate", "tiers": [{"plugins": [
                {"name": "gang", "enablePreemptable": false}, {"name": "capacity", "enableHierarchy": true}]}]}),
            &[],
        );
        assert_eq!(policy.volcano.as_ref().unwrap().actions, [Action::Enqueue, Action::Allocate]);
        let conf = policy.volcano.unwrap();
        assert!(!conf.tiers[0][0].enabled.has(Hook::Preemptable));
        assert!(conf.tiers[0][0].enabled.has(Hook::Reclaimable));
        assert!(!conf.tiers[0][0].enabled.has(Hook::Hierarchy));
        assert!(conf.tiers[0][1].enabled.has(Hook::Hierarchy));
    }

    #[test]
    fn what_does_not_exist_is_named_with_what_was_meant() {
        check(json!({"actions": "allocat"}), &["\"allocate\" was probably meant"]);
        check(json!({"tiers": [{"plugins": [{"name": "binpak"}]}]}), &["\"binpack\" was probably meant"]);
        check(
            json!({"tiers": [{"plugins": [{"name": "binpack", "arguments": {"binpack.wieght": 2}}]}]}),
            &["\"binpack.weight\" was probably meant"],
        );
        check(
            json!({"tiers": [{"plugins": [{"name": "priority", "arguments": {"preempt-level": 2}}]}]}),
            &["\"preempt-level\" is no argument of priority and does nothing"],
        );
        check(
            json!({"tiers": [{"plugins": [{"name": "gang", "enabledPreemptable": false}]}]}),
            &["\"enablePreemptable\" was probably meant"],
        );
        check(
            json!({"configurations": [{"name": "preempt", "arguments": {"enableTopologyAwarePreemptio": true}}]}),
            &["\"enableTopologyAwarePreemption\" was probably meant"],
        );
    }

    #[test]
    fn without_tiers_the_default_applies() {
        let policy = check(json!({}), &[]);
        assert_eq!(
            policy.volcano.as_ref().unwrap().actions,
            [Action::Enqueue, Action::Allocate, Action::Backfill]
        );
        let names: Vec<&str> =
            policy.volcano.unwrap().tiers.iter().flatten().map(|p| p.kind.name()).collect();
        assert_eq!(
            names,
            ["priority", "gang", "conformance", "overcommit", "drf", "predicates", "proportion", "nodeorder"]
        );
    }
}
