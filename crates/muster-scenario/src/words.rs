//! Reasons and remedies in words and as JSON. Everything that tells somebody why a gang waits renders the same values through here.
//!
//! In: the model's typed reasons. Out: sentences without a full stop, with units that people use (GPUs as decimals, CPU in cores, memory in
//! binary units), and JSON in which amounts are numbers in those same base units: GPUs, cores, bytes.

use muster_model::{
    Action, Gang, Min, Name, NodeReason, Reason, Refusal, Remedy, Resource, Tally, Time, own_name,
};
use serde_json::{Map, Value, json};

/// Thousandths as a decimal number without needless zeros: 1500 is `1.5`.
pub fn thousandths(n: i128) -> String {
    let sign = if n < 0 { "-" } else { "" };
    let n = n.unsigned_abs();
    let (whole, part) = (n / 1000, n % 1000);
    if part == 0 {
        return format!("{sign}{whole}");
    }
    let digits = format!("{part:03}");
    format!("{sign}{whole}.{}", digits.trim_end_matches('0'))
}

/// Bytes in the largest binary unit that leaves at least one whole, with at most one decimal.
pub fn bytes(n: i128) -> String {
    let units = [("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)];
    let sign = if n < 0 { "-" } else { "" };
    let n = n.unsigned_abs();
    for (unit, shift) in units {
        let one = 1u128 << shift;
        if n >= one {
            let tenths = n.saturating_mul(10) / one;
            return if tenths.is_multiple_of(10) {
                format!("{sign}{}{unit}", tenths / 10)
            } else {
                format!("{sign}{}.{}{unit}", tenths / 10, tenths % 10)
            };
        }
    }
    format!("{sign}{n} bytes")
}

/// An amount with its unit: `8 GPUs`, `1 GPU`, `0.5 CPU`, `64Gi memory`, `110 pods`, `2 example.com/nic`.
pub fn amount(resource: &Resource, n: i128) -> String {
    match resource {
        Resource::Gpu => format!("{} {}", thousandths(n), if n == 1000 { "GPU" } else { "GPUs" }),
        Resource::Cpu => format!("{} CPU", thousandths(n)),
        Resource::Memory => format!("{} memory", bytes(n)),
        Resource::Pods => format!("{n} {}", if n == 1 { "pod" } else { "pods" }),
        Resource::Other(name) => format!("{n} {name}"),
    }
}

/// What a resource is called in a sentence.
fn called(resource: &Resource) -> String {
    match resource {
        Resource::Gpu => "GPUs".into(),
        Resource::Cpu => "CPU".into(),
        Resource::Memory => "memory".into(),
        Resource::Pods => "places for pods".into(),
        Resource::Other(name) => name.to_string(),
    }
}

/// The resource of a name as scenario files and JSON write it.
pub fn resource_named(name: &str) -> Resource {
    match name {
        "cpu" => Resource::Cpu,
        "memory" => Resource::Memory,
        "gpu" => Resource::Gpu,
        "pods" => Resource::Pods,
        other if other.ends_with("/gpu") => Resource::Gpu,
        other => Resource::Other(Name::from(other)),
    }
}

/// An amount as a JSON number in GPUs, cores, bytes or whole units.
pub fn amount_json(resource: &Resource, n: i128) -> Value {
    match resource {
        Resource::Gpu | Resource::Cpu if n % 1000 != 0 => json!(n as f64 / 1000.0),
        Resource::Gpu | Resource::Cpu => whole(n / 1000),
        _ => whole(n),
    }
}

fn whole(n: i128) -> Value {
    i64::try_from(n).map_or_else(|_| json!(n as f64), Value::from)
}

/// A time as RFC 3339 in UTC, to the second.
pub fn time(at: Time) -> String {
    match jiff::Timestamp::from_millisecond(at.0) {
        Ok(at) => format!("{}", at.strftime("%Y-%m-%dT%H:%M:%SZ")),
        Err(_) => "a time beyond all calendars".into(),
    }
}

fn n_of(n: impl Into<i128>, one: &str, many: &str) -> String {
    let n = n.into();
    format!("{n} {}", if n == 1 { one } else { many })
}

/// `group` as part of a sentence; the only group of a gang has no name worth saying.
fn of_group(group: &str) -> String {
    if group.is_empty() || group == "default" { String::new() } else { format!(" of group {group}") }
}

fn what_it_does(action: Action) -> &'static str {
    match action {
        Action::Allocate => "placing",
        Action::Consolidate => "moving others together",
        Action::Reclaim => "taking back from other queues",
        Action::Preempt => "preempting in its own queue",
        Action::EvictStaleGangs => "evicting stale gangs",
        Action::Enqueue => "letting it in",
        Action::Backfill => "filling gaps",
        Action::GangPreempt => "taking from gangs of lower priority",
        Action::GangReclaim => "taking back from gangs of other queues",
        Action::Shuffle => "moving pods out of the wrong place",
    }
}

/// Why a gang waits: one sentence.
pub fn reason(reason: &Reason) -> String {
    match reason {
        Reason::QueueMissing { queue } if queue.is_empty() => "it names no queue".into(),
        Reason::QueueMissing { queue } => {
            format!("queue {} does not exist, or hangs from a parent that does not", own_name(queue))
        }
        Reason::QueueNotLeaf { queue } => {
            format!("queue {} has queues below it, and only queues at the bottom hold work", own_name(queue))
        }
        Reason::QueueClosed { queue } => format!("queue {} is closed", own_name(queue)),
        Reason::NotLetIn { queue, plugin, resource, used, asked, most } => format!(
            "it is not let into queue {}: its minimum asks for {}, and {plugin} lets in {}, of which {} are taken",
            own_name(queue),
            amount(resource, *asked),
            amount(resource, *most),
            thousandths_or_plain(resource, *used)
        ),
        Reason::OverShare { queue, resource, used, asked, share } => format!(
            "queue {} has what it deserves, {}: {} in use, {} asked for",
            own_name(queue),
            amount(resource, *share),
            thousandths_or_plain(resource, *used),
            thousandths_or_plain(resource, *asked)
        ),
        Reason::NotReady { group, have, need } => {
            format!(
                "{} {} of the {need} pods{} that must start together",
                if *have == 0 {
                    "there are"
                } else if *have == 1 {
                    "there is only"
                } else {
                    "there are only"
                },
                have,
                of_group(group)
            )
        }
        Reason::OverLimit { queue, resource, used, asked, limit } => format!(
            "queue {} would exceed its limit of {}: {} in use, {} asked for",
            own_name(queue),
            amount(resource, *limit),
            thousandths_or_plain(resource, *used),
            thousandths_or_plain(resource, *asked)
        ),
        Reason::OverQuota { queue, resource, used, asked, quota } => format!(
            "it cannot be preempted, and such work must stay within the quota of queue {}, {}: {} in use, {} asked for",
            own_name(queue),
            amount(resource, *quota),
            thousandths_or_plain(resource, *used),
            thousandths_or_plain(resource, *asked)
        ),
        Reason::NoNode { group, placed, need, tally } => {
            let progress = if *need > 1 {
                // The numbers are of the gang, whichever of its groups the next pod is in.
                let next = match of_group(group) {
                    own if own.is_empty() => "the next".to_owned(),
                    own => format!("the next,{own},"),
                };
                format!("{placed} of {need} pods found a place, {next} fits no node")
            } else {
                format!("the pod{} fits no node", of_group(group))
            };
            let tally: Vec<String> = tally.iter().map(self::tally).collect();
            if tally.is_empty() { progress } else { format!("{progress}: {}", tally.join(", ")) }
        }
        Reason::NoDomain { group, topology, level, domains, best, best_fits, need } => {
            let best = match best {
                Some(best) => format!("; the best, {best}, has room for {best_fits} of {need} pods"),
                None => String::new(),
            };
            format!(
                "none of the {} of level {level} (topology {topology}) can take all pods{}{best}",
                n_of(*domains, "domain", "domains"),
                of_group(group)
            )
        }
        Reason::TopologyUnknown { topology, level: None } => format!("topology {topology} does not exist"),
        Reason::TopologyUnknown { topology, level: Some(level) } => {
            format!("topology {topology} has no level {level}")
        }
        Reason::Missing { what } => format!("its pods refer to {what}, which does not exist"),
        Reason::PreemptionDelay { until } => format!("it may not displace others before {}", time(*until)),
        Reason::NoVictims { action, candidates: 0, .. } => {
            format!("{}: nobody may be displaced for it", what_it_does(*action))
        }
        Reason::NoVictims { action, candidates, tried } => format!(
            "{}: displacing some of {} makes no room for it ({} tried)",
            what_it_does(*action),
            n_of(*candidates, "other gang", "other gangs"),
            n_of(*tried, "way", "ways")
        ),
        Reason::SearchEnded { action, tried } => format!(
            "{}: the search was given up after {}; there may be a way",
            what_it_does(*action),
            n_of(*tried, "try", "tries")
        ),
        Reason::BeyondQueueDepth { action, depth } => format!(
            "{}: only the first {depth} gangs of each queue are looked at in a cycle, and it comes later",
            what_it_does(*action)
        ),
        Reason::Pipelined { pods } => {
            format!("{} a place that is being freed", n_of(*pods, "pod waits for", "pods wait for"))
        }
    }
}

/// The second and later amounts of a sentence: the unit was said.
fn thousandths_or_plain(resource: &Resource, n: i128) -> String {
    match resource {
        Resource::Gpu | Resource::Cpu => thousandths(n),
        Resource::Memory => bytes(n),
        Resource::Pods | Resource::Other(_) => n.to_string(),
    }
}

fn tally(tally: &Tally) -> String {
    let nodes = n_of(tally.nodes, "node", "nodes");
    match (&tally.reason, &tally.example) {
        (NodeReason::Short { .. } | NodeReason::TooBig { .. }, Some(example)) => {
            format!("{nodes} {} (least on {example})", node_reason(&tally.reason, tally.nodes))
        }
        _ => format!("{nodes} {}", node_reason(&tally.reason, tally.nodes)),
    }
}

/// Why nodes refuse a pod, after "3 nodes".
fn node_reason(reason: &NodeReason, nodes: u32) -> String {
    let one = nodes == 1;
    let verb = |singular: &'static str, plural: &'static str| if one { singular } else { plural };
    match reason {
        NodeReason::NotUsable => format!("{} not ready or cordoned", verb("is", "are")),
        NodeReason::OtherPool => format!("{} to another node pool", verb("belongs", "belong")),
        NodeReason::NodeAffinity => {
            format!("{} not match its node selector or affinity", verb("does", "do"))
        }
        NodeReason::Taint { key } => format!("{} the taint {key}", verb("has", "have")),
        NodeReason::HostPort => format!("{} the host port in use", verb("has", "have")),
        NodeReason::PodAffinity => format!("{} pods that it must be near", verb("lacks", "lack")),
        NodeReason::PodAntiAffinity => format!("{} pods that it must not be near", verb("has", "have")),
        NodeReason::TopologySpread => "would break its topology spread".into(),
        NodeReason::Volume => format!("cannot reach {} volume", verb("its", "its")),
        NodeReason::AttachLimit => "cannot attach another volume".into(),
        NodeReason::Device => format!("{} the devices that it claims", verb("lacks", "lack")),
        NodeReason::Numa => "cannot align it to NUMA zones".into(),
        NodeReason::MigMode => format!("{} MIG set up differently", verb("has", "have")),
        NodeReason::GpuMemoryUnknown => format!("{} not say how much memory a GPU has", verb("does", "do")),
        NodeReason::Short { resource, missing } => {
            format!("{} short of {}", verb("is", "are"), short_amount(resource, *missing))
        }
        NodeReason::TooBig { resource, missing } => {
            format!(
                "{} too small even when empty, by {}",
                verb("is", "are"),
                short_amount(resource, *missing)
            )
        }
        NodeReason::GpuShare => format!("{} no GPU with such a share free", verb("has", "have")),
        NodeReason::Taken => format!("{} for other pods of its gang", verb("is needed", "are needed")),
    }
}

fn short_amount(resource: &Resource, n: i64) -> String {
    if n > 0 { amount(resource, n.into()) } else { called(resource) }
}

/// What would help: one sentence in the imperative.
pub fn remedy(remedy: &Remedy) -> String {
    match remedy {
        Remedy::RaiseLimit { queue, resource, by } => {
            format!("raise the limit of queue {} by {}", own_name(queue), amount(resource, *by))
        }
        Remedy::RaiseQuota { queue, resource, by } => {
            format!("raise the quota of queue {} by {}", own_name(queue), amount(resource, *by))
        }
        Remedy::MoreCapacity { resource, by, within: None } => {
            format!("add or free {}", amount(resource, (*by).into()))
        }
        Remedy::MoreCapacity { resource, by, within: Some(place) } => {
            format!("add or free {} within {place}", amount(resource, (*by).into()))
        }
        Remedy::Evict { gangs } => {
            let names: Vec<String> = gangs.iter().map(|gang| gang.own().to_string()).collect();
            format!("end {}", names.join(", "))
        }
        Remedy::Wait { until, gang } => format!("wait until {}, when {} ends", time(*until), gang.own()),
        Remedy::MorePods { group, by } => {
            format!("create {}{}", n_of(*by, "more pod", "more pods"), of_group(group))
        }
        Remedy::Create { what } => format!("create {what}"),
    }
}

/// The gang in one line: how far it is.
pub fn headline(refusal: &Refusal) -> String {
    let Refusal { gang, queue, placed, waiting, needed, .. } = refusal;
    let queue = if queue.is_empty() { String::new() } else { format!(" in queue {}", own_name(queue)) };
    format!(
        "{}{queue} waits: {} placed, {} waiting, {needed} needed to start",
        gang.own(),
        n_of(*placed, "pod", "pods"),
        waiting
    )
}

/// Reasons and remedies, a line each, the binding constraint first.
pub fn lines(refusal: &Refusal) -> Vec<String> {
    let remedies = refusal.remedies.iter().map(|r| format!("remedy: {}", remedy(r)));
    refusal.reasons.iter().map(reason).chain(remedies).collect()
}

/// A refusal as `muster explain -o json` prints it.
pub fn refusal_json(refusal: &Refusal) -> Value {
    json!({
        "gang": refusal.gang.own().to_string(),
        "queue": own_name(&refusal.queue),
        "placed": refusal.placed,
        "waiting": refusal.waiting,
        "needed": refusal.needed,
        "reasons": refusal.reasons.iter().map(reason_json).collect::<Vec<_>>(),
        "remedies": refusal.remedies.iter().map(remedy_json).collect::<Vec<_>>(),
    })
}

/// `{"reason": "OverLimit", "message": …}` and the reason's own fields.
pub fn reason_json(reason: &Reason) -> Value {
    let (name, own) = match reason {
        Reason::QueueMissing { queue } => ("QueueMissing", json!({"queue": own_name(queue)})),
        Reason::QueueNotLeaf { queue } => ("QueueNotLeaf", json!({"queue": own_name(queue)})),
        Reason::QueueClosed { queue } => ("QueueClosed", json!({"queue": own_name(queue)})),
        Reason::NotLetIn { queue, plugin, resource, used, asked, most } => (
            "NotLetIn",
            json!({
                "queue": own_name(queue), "plugin": &**plugin, "resource": resource.to_string(),
                "used": amount_json(resource, *used), "asked": amount_json(resource, *asked),
                "most": amount_json(resource, *most),
            }),
        ),
        Reason::OverShare { queue, resource, used, asked, share } => (
            "OverShare",
            json!({
                "queue": own_name(queue), "resource": resource.to_string(), "used": amount_json(resource, *used),
                "asked": amount_json(resource, *asked), "share": amount_json(resource, *share),
            }),
        ),
        Reason::NotReady { group, have, need } => {
            ("NotReady", json!({"group": &**group, "have": have, "need": need}))
        }
        Reason::OverLimit { queue, resource, used, asked, limit } => (
            "OverLimit",
            json!({
                "queue": own_name(queue), "resource": resource.to_string(), "used": amount_json(resource, *used),
                "asked": amount_json(resource, *asked), "limit": amount_json(resource, *limit),
            }),
        ),
        Reason::OverQuota { queue, resource, used, asked, quota } => (
            "OverQuota",
            json!({
                "queue": own_name(queue), "resource": resource.to_string(), "used": amount_json(resource, *used),
                "asked": amount_json(resource, *asked), "quota": amount_json(resource, *quota),
            }),
        ),
        Reason::NoNode { group, placed, need, tally } => (
            "NoNode",
            json!({
                "group": &**group, "placed": placed, "need": need,
                "nodes": tally.iter().map(tally_json).collect::<Vec<_>>(),
            }),
        ),
        Reason::NoDomain { group, topology, level, domains, best, best_fits, need } => (
            "NoDomain",
            json!({
                "group": &**group, "topology": &**topology, "level": &**level, "domains": domains,
                "best": best.as_deref(), "bestFits": best_fits, "need": need,
            }),
        ),
        Reason::TopologyUnknown { topology, level } => {
            ("TopologyUnknown", json!({"topology": &**topology, "level": level.as_deref()}))
        }
        Reason::Missing { what } => ("Missing", json!({"what": &**what})),
        Reason::PreemptionDelay { until } => ("PreemptionDelay", json!({"until": time(*until)})),
        Reason::NoVictims { action, candidates, tried } => {
            ("NoVictims", json!({"action": action.name(), "candidates": candidates, "tried": tried}))
        }
        Reason::SearchEnded { action, tried } => {
            ("SearchEnded", json!({"action": action.name(), "tried": tried}))
        }
        Reason::BeyondQueueDepth { action, depth } => {
            ("BeyondQueueDepth", json!({"action": action.name(), "depth": depth}))
        }
        Reason::Pipelined { pods } => ("Pipelined", json!({"pods": pods})),
    };
    named("reason", name, self::reason(reason), own)
}

fn tally_json(tally: &Tally) -> Value {
    let (name, own) = match &tally.reason {
        NodeReason::NotUsable => ("NotUsable", json!({})),
        NodeReason::OtherPool => ("OtherPool", json!({})),
        NodeReason::NodeAffinity => ("NodeAffinity", json!({})),
        NodeReason::Taint { key } => ("Taint", json!({"key": &**key})),
        NodeReason::HostPort => ("HostPort", json!({})),
        NodeReason::PodAffinity => ("PodAffinity", json!({})),
        NodeReason::PodAntiAffinity => ("PodAntiAffinity", json!({})),
        NodeReason::TopologySpread => ("TopologySpread", json!({})),
        NodeReason::Volume => ("Volume", json!({})),
        NodeReason::AttachLimit => ("AttachLimit", json!({})),
        NodeReason::Device => ("Device", json!({})),
        NodeReason::Numa => ("Numa", json!({})),
        NodeReason::MigMode => ("MigMode", json!({})),
        NodeReason::GpuMemoryUnknown => ("GpuMemoryUnknown", json!({})),
        NodeReason::Short { resource, missing } => (
            "Short",
            json!({"resource": resource.to_string(), "missing": amount_json(resource, (*missing).into())}),
        ),
        NodeReason::TooBig { resource, missing } => (
            "TooBig",
            json!({"resource": resource.to_string(), "missing": amount_json(resource, (*missing).into())}),
        ),
        NodeReason::GpuShare => ("GpuShare", json!({})),
        NodeReason::Taken => ("Taken", json!({})),
    };
    let mut value = named("reason", name, self::tally(tally), own);
    if let Value::Object(map) = &mut value {
        map.insert("nodes".into(), json!(tally.nodes));
        map.insert("example".into(), json!(tally.example.as_deref()));
    }
    value
}

/// `{"remedy": "RaiseLimit", "message": …}` and the remedy's own fields.
pub fn remedy_json(remedy: &Remedy) -> Value {
    let (name, own) = match remedy {
        Remedy::RaiseLimit { queue, resource, by } => (
            "RaiseLimit",
            json!({"queue": own_name(queue), "resource": resource.to_string(), "by": amount_json(resource, *by)}),
        ),
        Remedy::RaiseQuota { queue, resource, by } => (
            "RaiseQuota",
            json!({"queue": own_name(queue), "resource": resource.to_string(), "by": amount_json(resource, *by)}),
        ),
        Remedy::MoreCapacity { resource, by, within } => (
            "MoreCapacity",
            json!({
                "resource": resource.to_string(), "by": amount_json(resource, (*by).into()),
                "within": within.as_deref(),
            }),
        ),
        Remedy::Evict { gangs } => {
            ("Evict", json!({"gangs": gangs.iter().map(|gang| gang.own().to_string()).collect::<Vec<_>>()}))
        }
        Remedy::Wait { until, gang } => {
            ("Wait", json!({"until": time(*until), "gang": gang.own().to_string()}))
        }
        Remedy::MorePods { group, by } => ("MorePods", json!({"group": &**group, "by": by})),
        Remedy::Create { what } => ("Create", json!({"what": &**what})),
    };
    named("remedy", name, self::remedy(remedy), own)
}

fn named(key: &str, name: &str, message: String, own: Value) -> Value {
    let mut map = Map::new();
    map.insert(key.into(), json!(name));
    if let Value::Object(own) = own {
        map.extend(own);
    }
    map.insert("message".into(), json!(message));
    Value::Object(map)
}

/// How many pods a gang needs at least.
pub fn minimum(gang: &Gang) -> u32 {
    // Children come after their parents, so that from the end every child is known before its parent.
    let mut least: Vec<u64> = vec![0; gang.groups.len()];
    let mut children: Vec<Vec<u64>> = vec![Vec::new(); gang.groups.len()];
    for (i, group) in gang.groups.iter().enumerate().rev() {
        let own = match group.min {
            Min::Pods(n) => u64::from(n),
            Min::Children(needed) => {
                let mut of_children = children.get(i).cloned().unwrap_or_default();
                of_children.sort_unstable();
                let n = needed.map_or(of_children.len(), |n| n as usize);
                of_children.iter().take(n).sum()
            }
            Min::Whole { pods } => {
                children.get(i).map_or(0, |of_children| of_children.iter().sum::<u64>()).max(u64::from(pods))
            }
        };
        if let Some(slot) = least.get_mut(i) {
            *slot = own;
        }
        if let Some(above) = group.parent.and_then(|p| children.get_mut(p as usize)) {
            above.push(own);
        }
    }
    least.first().map_or(0, |n| u32::try_from(*n).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::{Group, Key, Preemptibility, Span};

    fn gpu(n: i128) -> String {
        amount(&Resource::Gpu, n)
    }

    #[test]
    fn amounts_have_units_that_people_use() {
        assert_eq!(
            [gpu(500), gpu(1000), gpu(8000), gpu(-1250)],
            ["0.5 GPUs", "1 GPU", "8 GPUs", "-1.25 GPUs"]
        );
        assert_eq!(amount(&Resource::Cpu, 2500), "2.5 CPU");
        assert_eq!(amount(&Resource::Memory, 64 << 30), "64Gi memory");
        assert_eq!(amount(&Resource::Memory, (3 << 29) + 1), "1.5Gi memory");
        assert_eq!(amount(&Resource::Memory, 1023), "1023 bytes memory");
        assert_eq!(amount(&Resource::Memory, i128::MAX), format!("{} memory", bytes(i128::MAX)));
        assert_eq!(amount(&Resource::Other("example.com/nic".into()), 2), "2 example.com/nic");
        assert_eq!(amount_json(&Resource::Gpu, 8000), json!(8));
        assert_eq!(amount_json(&Resource::Gpu, 250), json!(0.25));
        assert_eq!(amount_json(&Resource::Memory, 1 << 30), json!(1_073_741_824));
    }

    #[track_caller]
    fn check(value: Reason, says: &str) {
        assert_eq!(reason(&value), says);
        assert_eq!(reason_json(&value)["message"], says, "the JSON says the same");
    }

    #[test]
    fn reasons_are_sentences_with_numbers() {
        let queue = || Name::from("research");
        check(
            Reason::OverLimit {
                queue: queue(),
                resource: Resource::Gpu,
                used: 6000,
                asked: 4000,
                limit: 8000,
            },
            "queue research would exceed its limit of 8 GPUs: 6 in use, 4 asked for",
        );
        check(
            Reason::OverQuota {
                queue: queue(),
                resource: Resource::Memory,
                used: 1 << 30,
                asked: 3 << 30,
                quota: 2 << 30,
            },
            "it cannot be preempted, and such work must stay within the quota of queue research, 2Gi memory: 1Gi in use, 3Gi asked for",
        );
        check(
            Reason::NotReady { group: "default".into(), have: 1, need: 3 },
            "there is only 1 of the 3 pods that must start together",
        );
        check(
            Reason::NotReady { group: "workers".into(), have: 0, need: 3 },
            "there are 0 of the 3 pods of group workers that must start together",
        );
        let tally = vec![
            Tally { reason: NodeReason::NotUsable, nodes: 1, example: None },
            Tally {
                reason: NodeReason::Short { resource: Resource::Gpu, missing: 1000 },
                nodes: 3,
                example: Some("a".into()),
            },
        ];
        check(
            Reason::NoNode { group: "default".into(), placed: 2, need: 4, tally: tally.clone() },
            "2 of 4 pods found a place, the next fits no node: 1 node is not ready or cordoned, 3 nodes are short of 1 GPU (least on a)",
        );
        check(
            Reason::NoNode { group: "default".into(), placed: 0, need: 1, tally: Vec::new() },
            "the pod fits no node",
        );
        check(
            Reason::NoDomain {
                group: "default".into(),
                topology: "hall".into(),
                level: "rack".into(),
                domains: 2,
                best: Some("r1".into()),
                best_fits: 2,
                need: 3,
            },
            "none of the 2 domains of level rack (topology hall) can take all pods; the best, r1, has room for 2 of 3 pods",
        );
        check(
            Reason::PreemptionDelay { until: Time(1_767_268_800_000) },
            "it may not displace others before 2026-01-01T12:00:00Z",
        );
        check(
            Reason::NoVictims { action: Action::Reclaim, candidates: 0, tried: 0 },
            "taking back from other queues: nobody may be displaced for it",
        );
        check(Reason::Pipelined { pods: 1 }, "1 pod waits for a place that is being freed");
        check(
            Reason::Missing { what: "ConfigMap x".into() },
            "its pods refer to ConfigMap x, which does not exist",
        );
    }

    #[test]
    fn remedies_say_what_to_do() {
        let by_gpu = Remedy::RaiseLimit { queue: "q".into(), resource: Resource::Gpu, by: 2000 };
        assert_eq!(remedy(&by_gpu), "raise the limit of queue q by 2 GPUs");
        assert_eq!(
            remedy_json(&by_gpu),
            json!({
                "remedy": "RaiseLimit", "queue": "q", "resource": "gpu", "by": 2,
                "message": "raise the limit of queue q by 2 GPUs",
            })
        );
        assert_eq!(
            remedy(&Remedy::Evict { gangs: vec![Key::new("a", "b"), Key::new("c", "d")] }),
            "end a/b, c/d"
        );
        assert_eq!(remedy(&Remedy::MorePods { group: "w".into(), by: 1 }), "create 1 more pod of group w");
    }

    #[test]
    fn the_minimum_of_a_tree_is_that_of_its_smallest_children() {
        let group = |parent, min| Group { name: "g".into(), parent, min, topology: None };
        let gang = |groups| Gang {
            key: Key::new("a", "b"),
            uid: "u".into(),
            queue: "q".into(),
            priority: 0,
            preemptibility: Preemptibility::Preemptible,
            created: Time(0),
            groups,
            last_start: None,
            last_eviction: None,
            stale_since: None,
            preemption_delay: Span::ZERO,
            staleness_grace: None,
            declared_end: None,
            volcano: None,
        };
        assert_eq!(minimum(&gang(vec![group(None, Min::Pods(4))])), 4);
        let children = |n| {
            vec![group(None, Min::Children(n)), group(Some(0), Min::Pods(3)), group(Some(0), Min::Pods(2))]
        };
        assert_eq!(minimum(&gang(children(None))), 5);
        assert_eq!(minimum(&gang(children(Some(1)))), 2);
    }
}
