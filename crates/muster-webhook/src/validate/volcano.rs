//! Volcano's kinds: queues form trees that promise no more than they have, groups and jobs go to open queues, jobs make sense and mostly stay
//! as they are.
//!
//! In: a request and the queues there are. Out: a verdict. Must stay true: no tree of queues or tasks, however deep or circular, makes this
//! loop; what is not known is not complained about; an update is judged by what it changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_quantity::Quantity;
use serde_json::Value;

use crate::request::{Asked, Operation};
use crate::share::quantity;
use crate::spelling;
use crate::verdict::{Verdict, quote};
use crate::world::{Other, OtherKind, World};

const ROOT: &str = "root";
const DEFAULT: &str = "default";
/// Volcano's own bound on how deep queues may be.
const MOST_LEVELS: usize = 5;
const HIERARCHY: &str = "volcano.sh/hierarchy";
const HIERARCHY_WEIGHTS: &str = "volcano.sh/hierarchy-weights";
const MIN_AVAILABLE: &str = "volcano.sh/jdb-min-available";
const MAX_UNAVAILABLE: &str = "volcano.sh/jdb-max-unavailable";

const EVENTS: [&str; 8] =
    ["*", "PodFailed", "PodEvicted", "PodPending", "Unknown", "TaskCompleted", "TaskFailed", "JobUpdated"];
const ACTIONS: [&str; 8] = [
    "AbortJob",
    "RestartJob",
    "RestartTask",
    "RestartPod",
    "RestartPartition",
    "TerminateJob",
    "CompleteJob",
    "ResumeJob",
];
const PLUGINS: [&str; 8] = ["ssh", "env", "svc", "tensorflow", "mpi", "pytorch", "ray", "hcclrank"];

type Amounts = BTreeMap<String, Quantity>;

fn changed(asked: &Asked<'_>, judge: impl Fn(&Value) -> Verdict) -> Verdict {
    let going = !asked.object["metadata"]["deletionTimestamp"].is_null();
    match asked.operation {
        Operation::Create => judge(asked.object),
        Operation::Update if !going && asked.object["spec"] != asked.old["spec"] => {
            judge(asked.object).since(&judge(asked.old))
        }
        _ => Verdict::default(),
    }
}

pub fn queue(asked: &Asked<'_>, world: &dyn World) -> Verdict {
    let queues = world.others(OtherKind::VolcanoQueue);
    let queues = queues.as_deref().unwrap_or_default();
    if asked.operation == Operation::Delete {
        return queue_deletion(asked.name, queues);
    }
    let mut verdict = changed(asked, |queue| judge_queue(queue, asked.name, queues));
    if asked.operation == Operation::Update && asked.name == ROOT {
        for list in ["capability", "deserved", "guarantee"] {
            if asked.object["spec"][list] != asked.old["spec"][list] {
                verdict.refuse(format!("spec.{list}"), "the root queue's stays as it is");
            }
        }
    }
    verdict
}

fn amounts(list: &Value) -> Amounts {
    let list = list.as_object().into_iter().flatten();
    list.filter_map(|(name, value)| Some((name.clone(), quantity(value)?))).collect()
}

fn parent_of(queue: &Other) -> &str {
    queue.spec["parent"].as_str().filter(|name| !name.is_empty()).unwrap_or(ROOT)
}

fn judge_queue(queue: &Value, name: &str, queues: &[Arc<Other>]) -> Verdict {
    let mut verdict = Verdict::default();
    let spec = &queue["spec"];
    let lists = [
        ("capability", &spec["capability"]),
        ("deserved", &spec["deserved"]),
        ("guarantee.resource", &spec["guarantee"]["resource"]),
    ];
    for (field, list) in lists {
        for (resource, value) in list.as_object().into_iter().flatten() {
            let path = format!("spec.{field}[{resource}]");
            match quantity(value) {
                None => verdict.refuse(path, "is no quantity; write one like 2, 500m or 16Gi"),
                Some(amount) if amount < Quantity::ZERO => {
                    verdict.refuse(path, "is negative; write 0 or more")
                }
                Some(_) => {}
            }
        }
    }
    let [capability, deserved, guarantee] = lists.map(|(_, list)| amounts(list));
    for (resource, amount) in &guarantee {
        let field = format!("spec.guarantee.resource[{resource}]");
        match deserved.get(resource) {
            None => verdict.refuse(field, format!("needs spec.deserved[{resource}], at least as much")),
            Some(deserved) if amount > deserved => {
                verdict.refuse(field, format!("{amount} is more than the {deserved} that it deserves"));
            }
            Some(_) => {}
        }
    }
    for (resource, amount) in &deserved {
        if let Some(most) = capability.get(resource).filter(|most| amount > *most) {
            verdict.refuse(
                format!("spec.deserved[{resource}]"),
                format!("{amount} is more than its capability of {most}"),
            );
        }
    }
    if spec["weight"].as_i64().is_some_and(|weight| !(1..=65_535).contains(&weight)) {
        verdict.refuse("spec.weight", "must be from 1 to 65535");
    }
    let state = queue["status"]["state"].as_str().unwrap_or_default();
    if !matches!(state, "" | "Open" | "Closed" | "Closing" | "Unknown") {
        verdict.refuse("status.state", "must be Open or Closed");
    }
    annotations(queue, &mut verdict);
    if name != ROOT {
        let parent = spec["parent"].as_str().filter(|parent| !parent.is_empty()).unwrap_or(ROOT);
        place(name, parent, [&capability, &deserved, &guarantee], queues, &mut verdict);
    }
    // What is already below must still have what it was promised.
    let children: Vec<&Arc<Other>> = queues
        .iter()
        .filter(|child| {
            child.metadata.name != ROOT && parent_of(child) == name && child.metadata.name != name
        })
        .collect();
    if name != ROOT {
        for (field, own, of) in
            [("deserved", &deserved, "deserved"), ("guarantee.resource", &guarantee, "guarantee")]
        {
            for (resource, sum) in sums(children.iter().copied(), of) {
                let has = own.get(&resource).copied().unwrap_or(Quantity::ZERO);
                if sum > has {
                    verdict.refuse(
                        format!("spec.{field}[{resource}]"),
                        format!("{has} is less than the {sum} that the queues below have together"),
                    );
                }
            }
        }
    }
    verdict
}

fn listed(queue: &Other, list: &str) -> Amounts {
    match list {
        "guarantee" => amounts(&queue.spec["guarantee"]["resource"]),
        list => amounts(&queue.spec[list]),
    }
}

fn sums<'a>(queues: impl Iterator<Item = &'a Arc<Other>>, list: &str) -> Amounts {
    let mut sums = Amounts::new();
    for queue in queues {
        for (resource, amount) in listed(queue, list) {
            *sums.entry(resource).or_insert(Quantity::ZERO) += amount;
        }
    }
    sums
}

fn annotations(queue: &Value, verdict: &mut Verdict) {
    let text = |key: &str| queue["metadata"]["annotations"][key].as_str().unwrap_or_default();
    let (path, weights) = (text(HIERARCHY), text(HIERARCHY_WEIGHTS));
    if path.is_empty() && weights.is_empty() {
        return;
    }
    let field = format!("metadata.annotations[{HIERARCHY_WEIGHTS}]");
    if path.split('/').count() != weights.split('/').count() {
        verdict.refuse(&field, format!("must have as many parts as {HIERARCHY}, separated by /"));
    }
    let positive = |part: &str| part.parse::<f64>().is_ok_and(|weight| weight > 0.0 && weight.is_finite());
    if !weights.split('/').all(positive) {
        verdict.refuse(field, "each part must be a number above 0");
    }
}

/// Where a queue hangs: the parent exists, the way up ends at the root within some levels, and the parent can keep its promises.
fn place(
    name: &str,
    parent: &str,
    [capability, deserved, guarantee]: [&Amounts; 3],
    queues: &[Arc<Other>],
    verdict: &mut Verdict,
) {
    const FIELD: &str = "spec.parent";
    let find = |name: &str| queues.iter().find(|queue| queue.metadata.name == name);
    if parent == name {
        verdict.refuse(FIELD, "a queue cannot be its own parent");
        return;
    }
    let mut way = vec![name];
    let mut at = parent;
    while at != ROOT {
        if way.contains(&at) {
            verdict.refuse(FIELD, "would make a ring; choose a queue that is not below this one");
            return;
        }
        way.push(at);
        let Some(queue) = find(at) else {
            // Where queues are not known, there is nothing to compare with.
            if !queues.is_empty() && at == parent {
                verdict.refuse(FIELD, format!("there is no queue {}; create it first", quote(at)));
            }
            return;
        };
        at = parent_of(queue);
    }
    if way.len() > MOST_LEVELS {
        verdict
            .refuse(FIELD, format!("would be level {} below the root; {MOST_LEVELS} are allowed", way.len()));
    }
    for (resource, amount) in capability {
        let above = way
            .iter()
            .skip(1)
            .filter_map(|up| find(up))
            .find_map(|up| Some((up.metadata.name.as_str(), *listed(up, "capability").get(resource)?)));
        if let Some((up, most)) = above.filter(|(_, most)| amount > most) {
            verdict.refuse(
                format!("spec.capability[{resource}]"),
                format!("{amount} is more than the {most} of the queue {} above", quote(up)),
            );
        }
    }
    let Some(above) = find(parent).filter(|_| parent != ROOT) else { return };
    let siblings = || queues.iter().filter(|queue| parent_of(queue) == parent && queue.metadata.name != name);
    if siblings().next().is_none()
        && amounts(&above.status["allocated"]).values().any(|used| *used > Quantity::ZERO)
    {
        verdict.refuse(
            FIELD,
            format!(
                "the queue {} has pods of its own; queues below it would take their place",
                quote(parent)
            ),
        );
    }
    for (field, own, list) in
        [("deserved", deserved, "deserved"), ("guarantee.resource", guarantee, "guarantee")]
    {
        let (others, has) = (sums(siblings(), list), listed(above, list));
        for (resource, amount) in own {
            let sum = others.get(resource).copied().unwrap_or(Quantity::ZERO) + *amount;
            let has = has.get(resource).copied().unwrap_or(Quantity::ZERO);
            if sum > has {
                verdict.refuse(
                    format!("spec.{field}[{resource}]"),
                    format!(
                        "the queues below {} would have {sum} together, more than its {has}",
                        quote(parent)
                    ),
                );
            }
        }
    }
}

fn queue_deletion(name: &str, queues: &[Arc<Other>]) -> Verdict {
    let mut verdict = Verdict::default();
    if matches!(name, ROOT | DEFAULT) {
        verdict.refuse("metadata.name", format!("the queue {name} cannot be deleted"));
    }
    let below = queues.iter().filter(|queue| queue.metadata.name != ROOT && parent_of(queue) == name);
    let below: Vec<&str> = below.map(|queue| queue.metadata.name.as_str()).take(5).collect();
    if !below.is_empty() {
        verdict
            .refuse("metadata.name", format!("has queues below it; delete them first: {}", below.join(", ")));
    }
    let used = queues
        .iter()
        .find(|queue| queue.metadata.name == name)
        .map(|queue| amounts(&queue.status["allocated"]));
    if used.is_some_and(|used| used.get("pods").is_some_and(|pods| *pods > Quantity::ZERO)) {
        verdict.refuse("metadata.name", "has pods that run; wait for them, or delete them first");
    }
    verdict
}

/// The queue of a group or a job is there and open; of a job it is a leaf, too.
fn open_queue(field: &str, name: &str, leaf: bool, world: &dyn World, verdict: &mut Verdict) {
    let Some(queues) = world.others(OtherKind::VolcanoQueue) else { return };
    if leaf && name == ROOT {
        verdict.refuse(field, "the root queue takes no work; name a queue below it");
        return;
    }
    let Some(queue) = queues.iter().find(|queue| queue.metadata.name == name) else {
        // The scheduler makes this one itself.
        if name == DEFAULT {
            return;
        }
        let near = spelling::nearest(name, queues.iter().map(|queue| queue.metadata.name.as_str()));
        let hint = near
            .map_or_else(|| "create it first".to_owned(), |near| format!("did you mean {}?", quote(near)));
        verdict.refuse(field, format!("there is no queue {}; {hint}", quote(name)));
        return;
    };
    let state = queue.status["state"].as_str().unwrap_or_default();
    if !matches!(state, "" | "Open") {
        verdict.refuse(field, format!("the queue {} is {state}; name one that is open", quote(name)));
    }
    if leaf && queues.iter().any(|child| child.metadata.name != ROOT && parent_of(child) == name) {
        verdict.refuse(field, format!("{} has queues below it; name one of those", quote(name)));
    }
}

fn network(at: &Value, field: &str, verdict: &mut Verdict) {
    if !at["highestTierAllowed"].is_null()
        && at["highestTierName"].as_str().is_some_and(|name| !name.is_empty())
    {
        verdict.refuse(field, "has highestTierAllowed and highestTierName; write one of the two");
    }
}

pub fn pod_group(asked: &Asked<'_>, world: &dyn World) -> Verdict {
    changed(asked, |group| {
        let mut verdict = Verdict::default();
        let spec = &group["spec"];
        let queue = spec["queue"].as_str().filter(|name| !name.is_empty()).unwrap_or(DEFAULT);
        open_queue("spec.queue", queue, false, world, &mut verdict);
        network(&spec["networkTopology"], "spec.networkTopology", &mut verdict);
        for (i, policy) in spec["subGroupPolicy"].as_array().into_iter().flatten().enumerate() {
            network(
                &policy["networkTopology"],
                &format!("spec.subGroupPolicy[{i}].networkTopology"),
                &mut verdict,
            );
        }
        verdict
    })
}

pub fn pod(asked: &Asked<'_>) -> Verdict {
    let mut verdict = Verdict::default();
    if asked.operation != Operation::Create {
        return verdict;
    }
    let text = |key: &str| asked.object["metadata"]["annotations"][key].as_str();
    let (least, most) = (text(MIN_AVAILABLE), text(MAX_UNAVAILABLE));
    if least.is_some() && most.is_some() {
        verdict.refuse(
            format!("metadata.annotations[{MAX_UNAVAILABLE}]"),
            format!("stands beside {MIN_AVAILABLE}; write one of the two"),
        );
    }
    for (key, said) in [(MIN_AVAILABLE, least), (MAX_UNAVAILABLE, most)] {
        let Some(said) = said else { continue };
        let sound = match said.strip_suffix('%') {
            Some(percent) => percent.parse::<u32>().is_ok_and(|percent| (1..100).contains(&percent)),
            None => said.parse::<u32>().is_ok_and(|n| n > 0),
        };
        if !sound {
            verdict.refuse(
                format!("metadata.annotations[{key}]"),
                format!("{} is no number above 0, and no 1% to 99%", quote(said)),
            );
        }
    }
    verdict
}

pub fn hyper_node(asked: &Asked<'_>) -> Verdict {
    changed(asked, |node| {
        let mut verdict = Verdict::default();
        let members = node["spec"]["members"].as_array();
        if members.is_none_or(Vec::is_empty) {
            verdict.refuse("spec.members", "a hypernode has at least one member; name nodes or hypernodes");
        }
        for (i, member) in members.into_iter().flatten().enumerate() {
            let selector = &member["selector"];
            let said = ["exactMatch", "regexMatch", "labelMatch"]
                .iter()
                .filter(|key| !selector[**key].is_null())
                .count();
            if said != 1 {
                verdict.refuse(
                    format!("spec.members[{i}].selector"),
                    "must have exactly one of exactMatch, regexMatch and labelMatch",
                );
            }
            if let Some(pattern) = selector["regexMatch"]["pattern"].as_str()
                && !muster_translate::volcano::is_pattern(pattern)
            {
                verdict.refuse(
                    format!("spec.members[{i}].selector.regexMatch.pattern"),
                    format!("{} is no regular expression", quote(pattern)),
                );
            }
        }
        verdict
    })
}

pub fn job(asked: &Asked<'_>, world: &dyn World) -> Verdict {
    let mut verdict = changed(asked, |job| judge_job(job, world));
    if asked.operation == Operation::Update {
        frozen(asked.old, asked.object, &mut verdict);
    }
    verdict
}

/// What of a job may change: how many pods there are and are needed, and its priority.
fn frozen(old: &Value, new: &Value, verdict: &mut Verdict) {
    let stripped = |job: &Value| {
        let mut spec = job["spec"].clone();
        if let Some(spec) = spec.as_object_mut() {
            spec.remove("minAvailable");
            spec.remove("priorityClassName");
        }
        for list in ["tasks", "volumes"] {
            for item in spec[list].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
                // The controller writes the names of the claims that it makes.
                for field in ["replicas", "minAvailable", "volumeClaimName"] {
                    item.remove(field);
                }
            }
        }
        spec
    };
    if !old["spec"].is_object() || !new["spec"].is_object() {
        return;
    }
    let (before, after) = (stripped(old), stripped(new));
    let fields: BTreeSet<&String> =
        [&before, &after].into_iter().filter_map(Value::as_object).flat_map(serde_json::Map::keys).collect();
    for field in fields {
        if before[field.as_str()] != after[field.as_str()] {
            verdict.refuse(
                format!("spec.{field}"),
                "cannot change; of a job only minAvailable, the replicas and minAvailable of tasks, and priorityClassName can",
            );
        }
    }
}

fn judge_job(job: &Value, world: &dyn World) -> Verdict {
    let mut verdict = Verdict::default();
    let spec = &job["spec"];
    let number = |at: &Value, field: &str| at[field].as_i64();
    let tasks = spec["tasks"].as_array().map(Vec::as_slice).unwrap_or_default();
    if tasks.is_empty() {
        verdict.refuse("spec.tasks", "a job has at least one task; write one with replicas and a template");
        return verdict;
    }
    let queue = spec["queue"].as_str().filter(|name| !name.is_empty()).unwrap_or(DEFAULT);
    open_queue("spec.queue", queue, true, world, &mut verdict);
    for (field, least) in
        [("minAvailable", 0), ("maxRetry", 0), ("ttlSecondsAfterFinished", 0), ("minSuccess", 1)]
    {
        if number(spec, field).is_some_and(|n| n < least) {
            verdict.refuse(format!("spec.{field}"), format!("must be {least} or more"));
        }
    }
    network(&spec["networkTopology"], "spec.networkTopology", &mut verdict);
    policies(&spec["policies"], "spec.policies", &mut verdict);
    volumes(&spec["volumes"], &mut verdict);
    let mut names: BTreeSet<&str> = BTreeSet::new();
    let mut total = 0_i64;
    for (i, task) in tasks.iter().enumerate() {
        let path = format!("spec.tasks[{i}]");
        let name = task["name"].as_str().unwrap_or_default();
        if !name.is_empty() && !is_label(name) {
            verdict.refuse(
                format!("{path}.name"),
                "must be lower-case letters, digits and -, at most 63, and begin and end without -",
            );
        }
        if !name.is_empty() && !names.insert(name) {
            verdict.refuse(format!("{path}.name"), format!("another task is called {}, too", quote(name)));
        }
        let replicas = number(task, "replicas").unwrap_or(0);
        total = total.saturating_add(replicas.max(0));
        if replicas < 0 {
            verdict.refuse(format!("{path}.replicas"), "must be 0 or more");
        }
        match number(task, "minAvailable") {
            Some(min) if min < 0 => verdict.refuse(format!("{path}.minAvailable"), "must be 0 or more"),
            Some(min) if min > replicas => {
                verdict.refuse(
                    format!("{path}.minAvailable"),
                    format!("{min} is more than its {replicas} replicas"),
                );
            }
            _ => {}
        }
        partitions(task, replicas, &path, &mut verdict);
        policies(&task["policies"], &format!("{path}.policies"), &mut verdict);
        template(task, &path, &mut verdict);
    }
    if let Some(min) = number(spec, "minAvailable").filter(|min| *min > total) {
        verdict.refuse("spec.minAvailable", format!("{min} is more than the {total} replicas of all tasks"));
    }
    plugins(spec, &names, &mut verdict);
    dependencies(tasks, &mut verdict);
    verdict
}

fn is_label(name: &str) -> bool {
    let sound = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    name.len() <= 63 && name.bytes().all(sound) && !name.starts_with('-') && !name.ends_with('-')
}

fn partitions(task: &Value, replicas: i64, path: &str, verdict: &mut Verdict) {
    let policy = &task["partitionPolicy"];
    if policy.is_null() {
        return;
    }
    let number = |field: &str, otherwise: i64| policy[field].as_i64().unwrap_or(otherwise);
    let (total, size, min) =
        (number("totalPartitions", 0), number("partitionSize", 0), number("minPartitions", 0));
    let path = format!("{path}.partitionPolicy");
    if total < 1 || size < 1 || min < 0 {
        verdict.refuse(&path, "totalPartitions and partitionSize must be 1 or more, minPartitions 0 or more");
    } else if total.saturating_mul(size) != replicas {
        verdict.refuse(&path, format!("{total} partitions of {size} are not the {replicas} replicas"));
    } else if min > total {
        verdict.refuse(&path, format!("needs {min} of {total} partitions"));
    }
    network(&policy["networkTopology"], &format!("{path}.networkTopology"), verdict);
}

fn template(task: &Value, path: &str, verdict: &mut Verdict) {
    let containers = task["template"]["spec"]["containers"].as_array();
    if containers.is_none_or(Vec::is_empty) {
        verdict.refuse(format!("{path}.template.spec.containers"), "a pod has at least one container");
    }
    let policy = task["topologyPolicy"].as_str().unwrap_or_default();
    if matches!(policy, "" | "none") {
        return;
    }
    if !matches!(policy, "best-effort" | "restricted" | "single-numa-node") {
        verdict.refuse(
            format!("{path}.topologyPolicy"),
            "must be none, best-effort, restricted or single-numa-node",
        );
    }
    for (i, container) in containers.into_iter().flatten().enumerate() {
        let whole = quantity(&container["resources"]["requests"]["cpu"])
            .is_some_and(|cpu| cpu > Quantity::ZERO && cpu.nano() % 1_000_000_000 == 0);
        if !whole {
            verdict.refuse(
                format!("{path}.template.spec.containers[{i}].resources.requests[cpu]"),
                "must be whole cores, since the task has a topologyPolicy",
            );
        }
    }
}

fn policies(list: &Value, path: &str, verdict: &mut Verdict) {
    let mut events: BTreeSet<&str> = BTreeSet::new();
    let mut codes: BTreeSet<i64> = BTreeSet::new();
    for (i, policy) in list.as_array().into_iter().flatten().enumerate() {
        let path = format!("{path}[{i}]");
        let one = policy["event"].as_str().filter(|event| !event.is_empty());
        let several = policy["events"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let named: Vec<&str> = one.into_iter().chain(several).collect();
        match (named.is_empty(), policy["exitCode"].as_i64()) {
            (false, Some(_)) => verdict.refuse(&path, "has an event and an exitCode; write one of the two"),
            (true, None) => verdict.refuse(&path, "has no event and no exitCode; write one of the two"),
            (true, Some(0)) => verdict.refuse(format!("{path}.exitCode"), "0 is success; write another code"),
            (true, Some(code)) if !codes.insert(code) => {
                verdict.refuse(format!("{path}.exitCode"), format!("another policy is for {code}, too"));
            }
            _ => {}
        }
        for event in named {
            if !EVENTS.contains(&event) {
                verdict.refuse(
                    format!("{path}.event"),
                    format!("{} is no event; write one of {}", quote(event), EVENTS.join(", ")),
                );
            } else if !events.insert(event) {
                verdict.refuse(format!("{path}.event"), format!("another policy is for {event}, too"));
            }
        }
        let action = policy["action"].as_str().unwrap_or_default();
        if !ACTIONS.contains(&action) {
            verdict.refuse(
                format!("{path}.action"),
                format!("{} is no action; write one of {}", quote(action), ACTIONS.join(", ")),
            );
        }
    }
    if events.contains("*") && events.len() > 1 {
        verdict.refuse(path, "a policy for * leaves no event for another one");
    }
}

fn volumes(list: &Value, verdict: &mut Verdict) {
    let mut paths: BTreeSet<&str> = BTreeSet::new();
    for (i, volume) in list.as_array().into_iter().flatten().enumerate() {
        let field = format!("spec.volumes[{i}]");
        let at = volume["mountPath"].as_str().unwrap_or_default();
        if at.is_empty() || at.contains(':') {
            verdict.refuse(format!("{field}.mountPath"), "must be a path without a colon");
        } else if !paths.insert(at) {
            verdict.refuse(
                format!("{field}.mountPath"),
                format!("another volume is mounted at {}, too", quote(at)),
            );
        }
        let named = volume["volumeClaimName"].as_str().is_some_and(|name| !name.is_empty());
        if named == volume["volumeClaim"].is_object() {
            verdict.refuse(field, "must have exactly one of volumeClaimName and volumeClaim");
        }
    }
}

fn plugins(spec: &Value, tasks: &BTreeSet<&str>, verdict: &mut Verdict) {
    for (name, arguments) in spec["plugins"].as_object().into_iter().flatten() {
        if !PLUGINS.contains(&name.as_str()) {
            verdict.refuse(
                format!("spec.plugins[{name}]"),
                format!("there is no such plugin; there are {}", PLUGINS.join(", ")),
            );
        }
        if name == "mpi" {
            let said = arguments.as_array().into_iter().flatten().filter_map(Value::as_str);
            let master = said
                .filter_map(|argument| argument.trim_start_matches('-').strip_prefix("master="))
                .next()
                .unwrap_or("master");
            if !tasks.contains(master) {
                verdict.refuse(
                    "spec.plugins[mpi]",
                    format!(
                        "there is no task {}; name the one that starts the others with --master",
                        quote(master)
                    ),
                );
            }
        }
    }
}

/// Tasks that wait for each other never start.
fn dependencies(tasks: &[Value], verdict: &mut Verdict) {
    let waits: BTreeMap<&str, BTreeSet<&str>> = tasks
        .iter()
        .filter_map(|task| {
            let on = task["dependsOn"]["name"].as_array().into_iter().flatten().filter_map(Value::as_str);
            Some((task["name"].as_str()?, on.collect()))
        })
        .collect();
    for (i, task) in tasks.iter().enumerate() {
        let on = task["dependsOn"]["name"].as_array().into_iter().flatten().filter_map(Value::as_str);
        for name in on.filter(|name| !waits.contains_key(name)) {
            verdict.refuse(
                format!("spec.tasks[{i}].dependsOn.name"),
                format!("there is no task {}", quote(name)),
            );
        }
    }
    let mut left = waits;
    loop {
        let free: Vec<&str> = left
            .iter()
            .filter(|(_, on)| on.iter().all(|name| !left.contains_key(name)))
            .map(|(name, _)| *name)
            .collect();
        if free.is_empty() {
            break;
        }
        free.into_iter().for_each(|name| drop(left.remove(name)));
    }
    if !left.is_empty() {
        let names: Vec<&str> = left.into_keys().take(5).collect();
        verdict
            .refuse("spec.tasks", format!("these wait for each other and never start: {}", names.join(", ")));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::world::Given;

    fn world() -> Given {
        let queue = |name: &str, spec: Value, status: Value| {
            let value = json!({"metadata": {"name": name}, "spec": spec, "status": status});
            Arc::new(serde_json::from_value::<Other>(value).unwrap())
        };
        let ten = json!({"deserved": {"cpu": 10}, "capability": {"cpu": 20}, "guarantee": {"resource": {"cpu": 4}}});
        let queues = vec![
            queue(ROOT, json!({}), json!({})),
            queue(DEFAULT, json!({}), json!({})),
            queue("dept", ten, json!({"state": "Open"})),
            queue(
                "team",
                json!({"parent": "dept", "deserved": {"cpu": 6}, "guarantee": {"resource": {"cpu": 2}}}),
                json!({"state": "Open"}),
            ),
            queue("shut", json!({}), json!({"state": "Closed"})),
            queue("busy", json!({}), json!({"allocated": {"pods": "3", "cpu": "3"}})),
        ];
        Given { others: [(OtherKind::VolcanoQueue, queues)].into(), ..Given::default() }
    }

    fn first(verdict: &Verdict) -> Option<String> {
        verdict.errors.first().map(ToString::to_string)
    }

    #[track_caller]
    fn check_queue(spec: Value, expected: Option<&str>) {
        let object = json!({"metadata": {"name": "new"}, "spec": spec});
        let asked = Asked {
            operation: Operation::Create,
            namespace: "",
            name: "new",
            uid: "u",
            object: &object,
            old: &Value::Null,
        };
        assert_eq!(first(&queue(&asked, &world())).as_deref(), expected);
    }

    #[test]
    fn queues() {
        check_queue(json!({}), None);
        check_queue(
            json!({"deserved": {"cpu": "x"}}),
            Some("spec.deserved[cpu]: is no quantity; write one like 2, 500m or 16Gi"),
        );
        check_queue(
            json!({"guarantee": {"resource": {"cpu": 1}}}),
            Some("spec.guarantee.resource[cpu]: needs spec.deserved[cpu], at least as much"),
        );
        check_queue(
            json!({"guarantee": {"resource": {"cpu": 2}}, "deserved": {"cpu": 1}}),
            Some("spec.guarantee.resource[cpu]: 2 is more than the 1 that it deserves"),
        );
        check_queue(
            json!({"deserved": {"cpu": 2}, "capability": {"cpu": 1}}),
            Some("spec.deserved[cpu]: 2 is more than its capability of 1"),
        );
        check_queue(json!({"weight": 0}), Some("spec.weight: must be from 1 to 65535"));
        check_queue(json!({"parent": "new"}), Some("spec.parent: a queue cannot be its own parent"));
        check_queue(
            json!({"parent": "gone"}),
            Some("spec.parent: there is no queue \"gone\"; create it first"),
        );
        check_queue(json!({"parent": "dept", "deserved": {"cpu": 4}}), None);
        check_queue(
            json!({"parent": "dept", "deserved": {"cpu": 5}}),
            Some("spec.deserved[cpu]: the queues below \"dept\" would have 11 together, more than its 10"),
        );
        check_queue(
            json!({"parent": "dept", "deserved": {"cpu": 4}, "guarantee": {"resource": {"cpu": 3}}}),
            Some(
                "spec.guarantee.resource[cpu]: the queues below \"dept\" would have 5 together, more than its 4",
            ),
        );
        check_queue(
            json!({"parent": "team", "capability": {"cpu": 21}}),
            Some("spec.capability[cpu]: 21 is more than the 20 of the queue \"dept\" above"),
        );
        check_queue(
            json!({"parent": "busy"}),
            Some(
                "spec.parent: the queue \"busy\" has pods of its own; queues below it would take their place",
            ),
        );
    }

    #[track_caller]
    fn check_deletion(name: &str, expected: Option<&str>) {
        let asked = Asked {
            operation: Operation::Delete,
            namespace: "",
            name,
            uid: "u",
            object: &Value::Null,
            old: &Value::Null,
        };
        assert_eq!(queue(&asked, &world()).errors.first().map(|error| error.message.as_str()), expected);
    }

    #[test]
    fn deletions() {
        check_deletion("team", None);
        check_deletion("default", Some("the queue default cannot be deleted"));
        check_deletion("dept", Some("has queues below it; delete them first: team"));
        check_deletion("busy", Some("has pods that run; wait for them, or delete them first"));
    }

    #[track_caller]
    fn check_group(spec: Value, expected: Option<&str>) {
        let object = json!({"spec": spec});
        let asked = Asked {
            operation: Operation::Create,
            namespace: "n",
            name: "g",
            uid: "u",
            object: &object,
            old: &Value::Null,
        };
        assert_eq!(first(&pod_group(&asked, &world())).as_deref(), expected);
    }

    #[test]
    fn groups() {
        check_group(json!({}), None);
        check_group(json!({"queue": "dept"}), None);
        check_group(
            json!({"queue": "tem"}),
            Some("spec.queue: there is no queue \"tem\"; did you mean \"team\"?"),
        );
        check_group(
            json!({"queue": "shut"}),
            Some("spec.queue: the queue \"shut\" is Closed; name one that is open"),
        );
        let both = json!({"highestTierAllowed": 1, "highestTierName": "rack"});
        check_group(
            json!({"networkTopology": both}),
            Some("spec.networkTopology: has highestTierAllowed and highestTierName; write one of the two"),
        );
        check_group(
            json!({"subGroupPolicy": [{"networkTopology": both}]}),
            Some(
                "spec.subGroupPolicy[0].networkTopology: has highestTierAllowed and highestTierName; write one of the two",
            ),
        );
    }

    #[track_caller]
    fn check_pod(annotations: Value, n_errors: usize) {
        let object = json!({"metadata": {"annotations": annotations}});
        let asked = Asked {
            operation: Operation::Create,
            namespace: "n",
            name: "p",
            uid: "u",
            object: &object,
            old: &Value::Null,
        };
        assert_eq!(pod(&asked).errors.len(), n_errors);
    }

    #[test]
    fn budgets() {
        check_pod(json!({}), 0);
        check_pod(json!({MIN_AVAILABLE: "3"}), 0);
        check_pod(json!({MAX_UNAVAILABLE: "30%"}), 0);
        check_pod(json!({MIN_AVAILABLE: "0"}), 1);
        check_pod(json!({MIN_AVAILABLE: "100%"}), 1);
        check_pod(json!({MIN_AVAILABLE: "3", MAX_UNAVAILABLE: "1"}), 1);
    }

    fn task(name: &str, replicas: i64, more: Value) -> Value {
        let mut task = json!({"name": name, "replicas": replicas, "template": {"spec": {"containers": [{"name": "c"}]}}});
        for (key, value) in more.as_object().unwrap() {
            task[key] = value.clone();
        }
        task
    }

    #[track_caller]
    fn check_job(spec: Value, expected: Option<&str>) {
        let object = json!({"spec": spec});
        let asked = Asked {
            operation: Operation::Create,
            namespace: "n",
            name: "j",
            uid: "u",
            object: &object,
            old: &Value::Null,
        };
        assert_eq!(first(&job(&asked, &world())).as_deref(), expected);
    }

    #[test]
    fn jobs() {
        let none = || json!({});
        check_job(
            json!({}),
            Some("spec.tasks: a job has at least one task; write one with replicas and a template"),
        );
        check_job(json!({"minAvailable": 2, "tasks": [task("a", 2, none())]}), None);
        check_job(
            json!({"minAvailable": 3, "tasks": [task("a", 2, none())]}),
            Some("spec.minAvailable: 3 is more than the 2 replicas of all tasks"),
        );
        check_job(
            json!({"tasks": [task("a", 2, json!({"minAvailable": 3}))]}),
            Some("spec.tasks[0].minAvailable: 3 is more than its 2 replicas"),
        );
        check_job(
            json!({"tasks": [task("a", 1, none()), task("a", 1, none())]}),
            Some("spec.tasks[1].name: another task is called \"a\", too"),
        );
        check_job(
            json!({"queue": "dept", "tasks": [task("a", 1, none())]}),
            Some("spec.queue: \"dept\" has queues below it; name one of those"),
        );
        check_job(
            json!({"queue": "root", "tasks": [task("a", 1, none())]}),
            Some("spec.queue: the root queue takes no work; name a queue below it"),
        );
        let policy = |policy: Value| json!({"tasks": [task("a", 1, json!({}))], "policies": [policy]});
        check_job(policy(json!({"event": "PodEvicted", "action": "RestartJob"})), None);
        check_job(policy(json!({"exitCode": 3, "action": "AbortJob"})), None);
        check_job(
            policy(json!({"exitCode": 0, "action": "AbortJob"})),
            Some("spec.policies[0].exitCode: 0 is success; write another code"),
        );
        check_job(
            policy(json!({"event": "PodFailed", "exitCode": 3, "action": "AbortJob"})),
            Some("spec.policies[0]: has an event and an exitCode; write one of the two"),
        );
        let cycle = json!({"tasks": [task("a", 1, json!({"dependsOn": {"name": ["b"]}})), task("b", 1, json!({"dependsOn": {"name": ["a"]}}))]});
        check_job(cycle, Some("spec.tasks: these wait for each other and never start: a, b"));
        check_job(
            json!({"tasks": [task("a", 1, json!({"dependsOn": {"name": ["b"]}}))]}),
            Some("spec.tasks[0].dependsOn.name: there is no task \"b\""),
        );
        check_job(
            json!({"plugins": {"mpi": []}, "tasks": [task("a", 1, none())]}),
            Some(
                "spec.plugins[mpi]: there is no task \"master\"; name the one that starts the others with --master",
            ),
        );
        check_job(json!({"plugins": {"mpi": ["--master=a"]}, "tasks": [task("a", 1, none())]}), None);
        check_job(
            json!({"tasks": [task("a", 5, json!({"partitionPolicy": {"totalPartitions": 2, "partitionSize": 2}}))]}),
            Some("spec.tasks[0].partitionPolicy: 2 partitions of 2 are not the 5 replicas"),
        );
        check_job(
            json!({"volumes": [{"mountPath": "/a"}], "tasks": [task("a", 1, none())]}),
            Some("spec.volumes[0]: must have exactly one of volumeClaimName and volumeClaim"),
        );
        check_job(
            json!({"tasks": [task("a", 1, json!({"topologyPolicy": "restricted"}))]}),
            Some(
                "spec.tasks[0].template.spec.containers[0].resources.requests[cpu]: must be whole cores, since the task has a topologyPolicy",
            ),
        );
    }

    #[test]
    fn a_job_stays_as_it_is() {
        let old = json!({"spec": {"minAvailable": 1, "queue": "team", "tasks": [task("a", 2, json!({}))]}});
        let refused = |change: fn(&mut Value)| {
            let mut new = old.clone();
            change(&mut new);
            let asked = Asked {
                operation: Operation::Update,
                namespace: "n",
                name: "j",
                uid: "u",
                object: &new,
                old: &old,
            };
            job(&asked, &world()).errors.into_iter().map(|error| error.field).collect::<Vec<_>>()
        };
        assert_eq!(refused(|job| job["spec"]["tasks"][0]["replicas"] = json!(5)), Vec::<String>::new());
        assert_eq!(refused(|job| job["spec"]["minAvailable"] = json!(2)), Vec::<String>::new());
        assert_eq!(refused(|job| job["spec"]["queue"] = json!("default")), ["spec.queue"]);
        assert_eq!(
            refused(|job| job["spec"]["tasks"][0]["template"] = json!({"spec": {"containers": [{}]}})),
            ["spec.tasks"]
        );
        assert_eq!(refused(|job| job["metadata"] = json!({"labels": {}})), Vec::<String>::new());
    }

    #[test]
    fn hyper_nodes() {
        let judged = |spec: Value| {
            let object = json!({"spec": spec});
            let asked = Asked {
                operation: Operation::Create,
                namespace: "",
                name: "h",
                uid: "u",
                object: &object,
                old: &Value::Null,
            };
            first(&hyper_node(&asked))
        };
        assert_eq!(judged(json!({"members": [{"selector": {"exactMatch": {"name": "a"}}}]})), None);
        assert!(judged(json!({"members": []})).unwrap().starts_with("spec.members:"));
        assert!(
            judged(json!({"members": [{"selector": {}}]})).unwrap().starts_with("spec.members[0].selector:")
        );
        assert!(
            judged(json!({"members": [{"selector": {"regexMatch": {"pattern": "("}}}]}))
                .unwrap()
                .contains("is no regular expression")
        );
    }
}
