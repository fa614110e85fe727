//! Manifests to [`Work`], one function for each kind.
//!
//! In: an object. Out: the work, and a warning for each field that no other dialect has. Must stay true: every field of a spec is either
//! read, or known to be another's business, or warned about.

use crate::{ConvertError, Group, Pack, Role, Warnings, Work, text};
use serde_json::{Map, Value, json};

const QUEUE: &str = "kai.scheduler/queue";
const KUEUE_QUEUE: &str = "kueue.x-k8s.io/queue-name";
pub(crate) const GROUP: &str = "pod-group-name";
pub(crate) const SUBGROUP: &str = "kai.scheduler/subgroup-name";
pub(crate) const BACKOFF: &str = "grove.io/backoff-limit";

/// The PodGroup that a pod names.
pub fn group_of(pod: &Value) -> Option<String> {
    pod.pointer("/metadata/annotations")?.get(GROUP)?.as_str().map(str::to_owned)
}

fn unreadable(object: &Value, field: &str, message: &str) -> ConvertError {
    let name = format!("{} {}", text(object, "/kind"), text(object, "/metadata/name"));
    ConvertError::Unreadable { object: name, field: field.to_owned(), message: message.to_owned() }
}

fn list(value: &Value, pointer: &str) -> Vec<Value> {
    value.pointer(pointer).and_then(Value::as_array).cloned().unwrap_or_default()
}

fn number(value: &Value, pointer: &str) -> Option<i64> {
    value.pointer(pointer).and_then(Value::as_i64)
}

fn map(value: &Value, pointer: &str) -> Map<String, Value> {
    value.pointer(pointer).and_then(Value::as_object).cloned().unwrap_or_default()
}

/// Name, labels and annotations; a queue among them is taken out.
fn begin(object: &Value) -> Work {
    let (mut labels, mut annotations) =
        (map(object, "/metadata/labels"), map(object, "/metadata/annotations"));
    annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    let mut queue = String::new();
    for key in [QUEUE, KUEUE_QUEUE] {
        if let Some(Value::String(found)) = labels.remove(key)
            && queue.is_empty()
        {
            queue = found;
        }
    }
    if let Some(Value::String(found)) = annotations.remove(QUEUE)
        && queue.is_empty()
    {
        queue = found;
    }
    Work {
        name: text(object, "/metadata/name"),
        namespace: text(object, "/metadata/namespace"),
        labels,
        annotations,
        copies: 1,
        queue,
        ..Work::default()
    }
}

/// The class that all templates name, or none.
fn common_class(roles: &[Role]) -> String {
    let mut classes = roles.iter().map(|role| text(&role.template, "/spec/priorityClassName"));
    let first = classes.next().unwrap_or_default();
    if classes.all(|class| class == first) { first } else { String::new() }
}

fn pack(at: &Value, pointer: &str, inherited: &str) -> Option<Pack> {
    let constraint = at.pointer(pointer)?;
    let named = text(constraint, "/topologyName");
    let required = text(constraint, "/pack/required");
    let pack = Pack {
        topology: if named.is_empty() { inherited.to_owned() } else { named },
        required: if required.is_empty() { text(constraint, "/packDomain") } else { required },
        preferred: text(constraint, "/pack/preferred"),
    };
    (!pack.required.is_empty() || !pack.preferred.is_empty()).then_some(pack)
}

pub fn pod_clique_set(object: &Value, warnings: &mut Warnings) -> Result<Work, ConvertError> {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    let template = spec.get("template").unwrap_or(&Value::Null);
    let mut work = begin(object);
    work.copies = number(spec, "/replicas").unwrap_or(0);
    warnings.rest("spec", spec, &["replicas", "template", "updateStrategy"]);
    warnings.rest(
        "spec.template",
        template,
        &[
            "cliques",
            "cliqueStartupType",
            "priorityClassName",
            "podCliqueScalingGroups",
            "topologyConstraint",
            "terminationDelay",
            "headlessServiceConfig",
        ],
    );
    // What webhooks write into every set is no wish of anybody's.
    if !matches!(text(template, "/terminationDelay").as_str(), "" | "4h" | "4h0m0s") {
        warnings.say(
            "spec.template.terminationDelay",
            "is lost: a gang below its minimum is not made anew after a while",
        );
    }
    if template.pointer("/headlessServiceConfig/publishNotReadyAddresses") == Some(&json!(false)) {
        warnings.say("spec.template.headlessServiceConfig", "is lost: no Service is made");
    }
    if !matches!(text(spec, "/updateStrategy/type").as_str(), "" | "RollingRecreate") {
        warnings.say("spec.updateStrategy", "is lost");
    }
    work.pack = pack(template, "/topologyConstraint", "");
    let topology = work.pack.as_ref().map(|pack| pack.topology.clone()).unwrap_or_default();
    let order = text(template, "/cliqueStartupType");
    let cliques = list(template, "/cliques");
    if cliques.is_empty() {
        return Err(unreadable(object, "spec.template.cliques", "is empty"));
    }
    let mut before: Option<String> = None;
    for (index, clique) in cliques.iter().enumerate() {
        let at = format!("spec.template.cliques[{index}]");
        warnings.rest(&at, clique, &["name", "labels", "annotations", "spec", "topologyConstraint"]);
        let of = clique.get("spec").unwrap_or(&Value::Null);
        let known = ["roleName", "podSpec", "replicas", "minAvailable", "startsAfter", "autoScalingConfig"];
        warnings.rest(&format!("{at}.spec"), of, &known);
        let name = text(clique, "/name");
        let pods = number(of, "/replicas").unwrap_or(1).max(1);
        let mut annotations = map(clique, "/annotations");
        if let Some(limit) = annotations.remove(BACKOFF).and_then(|limit| limit.as_str()?.parse().ok()) {
            work.max_restarts = Some(limit);
        }
        let mut labels = map(clique, "/labels");
        match labels.remove(QUEUE) {
            Some(Value::String(said)) if work.queue.is_empty() => work.queue = said,
            Some(Value::String(said)) if said != work.queue => {
                warnings
                    .say(&format!("{at}.labels[{QUEUE}]"), "differs from the others'; the first one counts");
            }
            _ => {}
        }
        let after = match order.as_str() {
            "CliqueStartupTypeInOrder" => before.iter().cloned().collect(),
            "CliqueStartupTypeExplicit" => {
                list(of, "/startsAfter").iter().filter_map(|name| name.as_str().map(str::to_owned)).collect()
            }
            _ => Vec::new(),
        };
        before = Some(name.clone());
        work.roles.push(Role {
            name,
            pods,
            min: number(of, "/minAvailable").unwrap_or(pods),
            template: template_of(labels, annotations, of.get("podSpec").cloned().unwrap_or(json!({}))),
            after,
            pack: pack(clique, "/topologyConstraint", &topology),
            scaling: of.get("autoScalingConfig").cloned(),
        });
    }
    for (index, group) in list(template, "/podCliqueScalingGroups").iter().enumerate() {
        let known = ["name", "cliqueNames", "replicas", "minAvailable", "scaleConfig", "topologyConstraint"];
        warnings.rest(&format!("spec.template.podCliqueScalingGroups[{index}]"), group, &known);
        work.groups.push(Group {
            name: text(group, "/name"),
            copies: number(group, "/replicas").unwrap_or(1).max(1),
            min: number(group, "/minAvailable").unwrap_or(1).max(1),
            roles: list(group, "/cliqueNames").iter().filter_map(|n| n.as_str().map(str::to_owned)).collect(),
            pack: pack(group, "/topologyConstraint", &topology),
            scaling: group.get("scaleConfig").cloned(),
        });
    }
    work.priority_class = match text(template, "/priorityClassName") {
        class if class.is_empty() => common_class(&work.roles),
        class => class,
    };
    Ok(work)
}

fn template_of(labels: Map<String, Value>, annotations: Map<String, Value>, spec: Value) -> Value {
    let mut metadata = Map::new();
    if !labels.is_empty() {
        metadata.insert("labels".into(), Value::Object(labels));
    }
    if !annotations.is_empty() {
        metadata.insert("annotations".into(), Value::Object(annotations));
    }
    if metadata.is_empty() { json!({"spec": spec}) } else { json!({"metadata": metadata, "spec": spec}) }
}

pub fn volcano_job(object: &Value, warnings: &mut Warnings) -> Result<Work, ConvertError> {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    let mut work = begin(object);
    let known = [
        "schedulerName",
        "minAvailable",
        "tasks",
        "queue",
        "priorityClassName",
        "maxRetry",
        "ttlSecondsAfterFinished",
        "plugins",
        "policies",
    ];
    warnings.rest("spec", spec, &known);
    for plugin in map(spec, "/plugins").keys() {
        warnings.say(
            &format!("spec.plugins.{plugin}"),
            "is lost: what it puts into pods must come from elsewhere",
        );
    }
    if !list(spec, "/policies").is_empty() {
        warnings.say("spec.policies", "is lost: what happens when pods fail is up to the other kind");
    }
    if work.queue.is_empty() {
        work.queue = text(spec, "/queue");
    }
    work.max_restarts = number(spec, "/maxRetry");
    work.seconds_kept_when_over = number(spec, "/ttlSecondsAfterFinished");
    let tasks = list(spec, "/tasks");
    if tasks.is_empty() {
        return Err(unreadable(object, "spec.tasks", "is empty"));
    }
    for (index, task) in tasks.iter().enumerate() {
        let at = format!("spec.tasks[{index}]");
        warnings.rest(&at, task, &["name", "replicas", "minAvailable", "template", "policies", "dependsOn"]);
        if !list(task, "/policies").is_empty() {
            warnings.say(
                &format!("{at}.policies"),
                "is lost: what happens when pods fail is up to the other kind",
            );
        }
        let pods = number(task, "/replicas").unwrap_or(1).max(0);
        let after: Vec<String> =
            list(task, "/dependsOn/name").iter().filter_map(|n| n.as_str().map(str::to_owned)).collect();
        if after.len() > 1 && text(task, "/dependsOn/iteration") == "any" {
            warnings.say(
                &format!("{at}.dependsOn.iteration"),
                "becomes all: any one of several is not known elsewhere",
            );
        }
        let name = text(task, "/name");
        work.roles.push(Role {
            name: if name.is_empty() { format!("default{index}") } else { name },
            pods,
            min: number(task, "/minAvailable").unwrap_or(pods),
            template: task.get("template").cloned().unwrap_or(json!({})),
            after,
            ..Role::default()
        });
    }
    work.min_pods = number(spec, "/minAvailable").filter(|min| *min != work.min_total());
    work.priority_class = match text(spec, "/priorityClassName") {
        class if class.is_empty() => common_class(&work.roles),
        class => class,
    };
    Ok(work)
}

/// Name, minimum, pods and constraint of a sub-group.
type Leaf<'a> = (String, Option<i64>, Vec<&'a Value>, Option<Pack>);

pub fn kai(object: &Value, pods: &[&Value], warnings: &mut Warnings) -> Result<Work, ConvertError> {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    let mut work = begin(object);
    let known = ["minMember", "minSubGroup", "queue", "priorityClassName", "subGroups", "topologyConstraint"];
    warnings.rest("spec", spec, &known);
    if pods.is_empty() {
        return Err(unreadable(object, "spec", "has no pods here; add the manifests of those that name it"));
    }
    work.queue = text(spec, "/queue");
    work.priority_class = text(spec, "/priorityClassName");
    let rule = |at: &Value| {
        let pack = Pack {
            topology: text(at, "/topologyConstraint/topology"),
            required: text(at, "/topologyConstraint/requiredTopologyLevel"),
            preferred: text(at, "/topologyConstraint/preferredTopologyLevel"),
        };
        (!pack.required.is_empty() || !pack.preferred.is_empty()).then_some(pack)
    };
    work.pack = rule(spec);
    let groups = list(spec, "/subGroups");
    let is_parent = |name: &str| groups.iter().any(|group| text(group, "/parent") == name);
    let leaves: Vec<&Value> = groups.iter().filter(|group| !is_parent(&text(group, "/name"))).collect();
    for parent in groups.iter().filter(|group| is_parent(&text(group, "/name"))) {
        let name = text(parent, "/name");
        warnings.say(&format!("spec.subGroups[{name}]"), "is lost: groups of groups become single roles");
    }
    let members = |leaf: &str| -> Vec<&Value> {
        pods.iter().filter(|pod| label(pod, SUBGROUP) == leaf).copied().collect()
    };
    let mut roles: Vec<Leaf<'_>> = leaves
        .iter()
        .map(|leaf| {
            let name = text(leaf, "/name");
            (name.clone(), number(leaf, "/minMember"), members(&name), rule(leaf))
        })
        .collect();
    if leaves.is_empty() {
        // Without sub-groups, pods of one template are a role.
        for pod in pods {
            let template = template_of_pod(pod);
            match roles
                .iter_mut()
                .find(|(_, _, of, _)| of.first().is_some_and(|p| template_of_pod(p) == template))
            {
                Some((_, _, of, _)) => of.push(pod),
                None => roles.push((String::new(), None, vec![pod], None)),
            }
        }
        let n_roles = roles.len();
        for (index, role) in roles.iter_mut().enumerate() {
            role.0 = if n_roles == 1 { "workers".to_owned() } else { format!("role-{index}") };
            // What is needed is said of the whole alone.
            role.1 = if n_roles == 1 { number(spec, "/minMember").or(Some(1)) } else { None };
        }
        if n_roles > 1 {
            work.min_pods = Some(number(spec, "/minMember").unwrap_or(1));
        }
    }
    for (name, min, of, pack) in roles {
        let Some(first) = of.first() else {
            warnings.say(&format!("spec.subGroups[{name}]"), "has no pods here and is left out");
            continue;
        };
        let template = template_of_pod(first);
        if of.iter().any(|pod| template_of_pod(pod) != template) {
            warnings.say(
                &format!("spec.subGroups[{name}]"),
                "has pods of several kinds; the first one's is taken for all",
            );
        }
        let pods = of.len() as i64;
        work.roles.push(Role {
            name: short(&name, &work.name),
            pods,
            min: min.unwrap_or(if leaves.is_empty() { 0 } else { pods }).min(pods),
            template,
            pack,
            ..Role::default()
        });
    }
    if let Some(min) = number(spec, "/minSubGroup").filter(|min| *min != work.roles.len() as i64) {
        warnings.say(
            "spec.minSubGroup",
            format_args!("{min} of {} groups is lost: all are needed", work.roles.len()),
        );
    }
    let total = number(spec, "/minMember").filter(|_| !leaves.is_empty());
    work.min_pods = work.min_pods.or(total.filter(|min| *min != work.min_total()));
    Ok(work)
}

/// A role's own part of a name that begins with its gang's.
fn short(name: &str, gang: &str) -> String {
    let rest =
        name.strip_prefix(gang).map(|rest| rest.trim_start_matches('-')).filter(|rest| !rest.is_empty());
    rest.unwrap_or(name).to_owned()
}

fn label(pod: &Value, key: &str) -> String {
    pod.pointer("/metadata/labels")
        .and_then(|l| l.get(key))
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

/// What pods of one role have in common.
fn template_of_pod(pod: &Value) -> Value {
    let (mut labels, mut annotations) = (map(pod, "/metadata/labels"), map(pod, "/metadata/annotations"));
    labels.remove(SUBGROUP);
    labels.remove(QUEUE);
    annotations.remove(GROUP);
    annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    let mut spec = pod.get("spec").cloned().unwrap_or(json!({}));
    if let Some(spec) = spec.as_object_mut() {
        for own in ["nodeName", "hostname", "schedulingGates", "priority", "preemptionPolicy"] {
            spec.remove(own);
        }
    }
    template_of(labels, annotations, spec)
}

pub fn kueue(object: &Value, warnings: &mut Warnings) -> Result<Work, ConvertError> {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    let mut work = begin(object);
    let known = [
        "podSets",
        "queueName",
        "priority",
        "priorityClassName",
        "priorityClassSource",
        "priorityClassRef",
        "active",
    ];
    warnings.rest("spec", spec, &known);
    work.queue = text(spec, "/queueName");
    work.suspended = spec.get("active") == Some(&json!(false));
    let of_pods = text(spec, "/priorityClassSource").contains("scheduling.k8s.io")
        || text(spec, "/priorityClassRef/group") == "scheduling.k8s.io";
    let class = [text(spec, "/priorityClassName"), text(spec, "/priorityClassRef/name")].concat();
    if of_pods {
        work.priority_class = class;
    } else if !class.is_empty() {
        warnings.say(
            "spec.priorityClassName",
            format_args!("{class} is lost: only Kueue has WorkloadPriorityClasses"),
        );
    }
    let sets = list(spec, "/podSets");
    if sets.is_empty() {
        return Err(unreadable(object, "spec.podSets", "is empty"));
    }
    for (index, set) in sets.iter().enumerate() {
        let at = format!("spec.podSets[{index}]");
        warnings.rest(&at, set, &["name", "count", "minCount", "template", "topologyRequest"]);
        let request = set.get("topologyRequest").unwrap_or(&Value::Null);
        warnings.rest(&format!("{at}.topologyRequest"), request, &["required", "preferred", "podIndexLabel"]);
        let pods = number(set, "/count").unwrap_or(1);
        let pack = Pack {
            topology: String::new(),
            required: text(request, "/required"),
            preferred: text(request, "/preferred"),
        };
        let name = text(set, "/name");
        work.roles.push(Role {
            name: if name.is_empty() { "main".to_owned() } else { name },
            pods,
            min: number(set, "/minCount").unwrap_or(pods),
            template: set.get("template").cloned().unwrap_or(json!({})),
            pack: (!pack.required.is_empty() || !pack.preferred.is_empty()).then_some(pack),
            ..Role::default()
        });
    }
    if work.priority_class.is_empty() {
        work.priority_class = common_class(&work.roles);
    }
    Ok(work)
}

pub fn job_set(object: &Value, warnings: &mut Warnings) -> Result<Work, ConvertError> {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    let mut work = begin(object);
    let known =
        ["replicatedJobs", "failurePolicy", "startupPolicy", "suspend", "ttlSecondsAfterFinished", "network"];
    warnings.rest("spec", spec, &known);
    warnings.rest("spec.failurePolicy", spec.get("failurePolicy").unwrap_or(&Value::Null), &["maxRestarts"]);
    if spec.get("network").is_some_and(|network| !network.is_null()) {
        warnings.say("spec.network", "is lost: names of pods are the other kind's own");
    }
    work.suspended = spec.get("suspend") == Some(&json!(true));
    work.max_restarts = number(spec, "/failurePolicy/maxRestarts");
    work.seconds_kept_when_over = number(spec, "/ttlSecondsAfterFinished");
    let in_order = text(spec, "/startupPolicy/startupPolicyOrder") == "InOrder";
    let jobs = list(spec, "/replicatedJobs");
    if jobs.is_empty() {
        return Err(unreadable(object, "spec.replicatedJobs", "is empty"));
    }
    let mut before: Option<String> = None;
    for (index, job) in jobs.iter().enumerate() {
        let at = format!("spec.replicatedJobs[{index}]");
        warnings.rest(&at, job, &["name", "replicas", "template", "dependsOn"]);
        let of = job.pointer("/template/spec").unwrap_or(&Value::Null);
        let known = ["parallelism", "completions", "backoffLimit", "completionMode", "template"];
        warnings.rest(&format!("{at}.template.spec"), of, &known);
        let name = text(job, "/name");
        let pods = number(of, "/parallelism").unwrap_or(1);
        if let Some(all) = number(of, "/completions").filter(|all| *all != pods) {
            warnings.say(
                &format!("{at}.template.spec.completions"),
                format_args!("{all} by {pods} at a time is lost: all run at once"),
            );
        }
        let mut after: Vec<String> = list(job, "/dependsOn").iter().map(|on| text(on, "/name")).collect();
        for on in list(job, "/dependsOn").iter().filter(|on| text(on, "/status") == "Complete") {
            warnings.say(
                &format!("{at}.dependsOn"),
                format_args!("waits for {} to be ready, and no longer for its end", text(on, "/name")),
            );
        }
        if in_order {
            after.extend(before.clone());
        }
        before = Some(name.clone());
        work.roles.push(Role {
            name: name.clone(),
            pods,
            min: pods,
            template: of.get("template").cloned().unwrap_or(json!({})),
            after,
            ..Role::default()
        });
        let copies = number(job, "/replicas").unwrap_or(1);
        if copies != 1 {
            // Each job is a unit of its own, and all of them are needed.
            work.groups.push(Group {
                name: format!("{name}-jobs"),
                copies,
                min: copies,
                roles: vec![name],
                ..Group::default()
            });
        }
    }
    work.priority_class = common_class(&work.roles);
    Ok(work)
}

pub fn leader_worker_set(object: &Value, warnings: &mut Warnings) -> Result<Work, ConvertError> {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    let of = spec.get("leaderWorkerTemplate").unwrap_or(&Value::Null);
    let mut work = begin(object);
    warnings.rest(
        "spec",
        spec,
        &["replicas", "leaderWorkerTemplate", "startupPolicy", "rolloutStrategy", "networkConfig"],
    );
    warnings.rest(
        "spec.leaderWorkerTemplate",
        of,
        &["leaderTemplate", "workerTemplate", "size", "restartPolicy"],
    );
    if spec.get("rolloutStrategy").is_some_and(|strategy| !strategy.is_null()) {
        warnings.say("spec.rolloutStrategy", "is lost");
    }
    work.copies = number(spec, "/replicas").unwrap_or(1);
    let size = number(of, "/size").unwrap_or(1).max(1);
    let Some(worker) = of.get("workerTemplate") else {
        return Err(unreadable(object, "spec.leaderWorkerTemplate.workerTemplate", "is missing"));
    };
    let leader = of.get("leaderTemplate").filter(|template| !template.is_null()).unwrap_or(worker);
    if text(of, "/restartPolicy") == "None" {
        warnings.say(
            "spec.leaderWorkerTemplate.restartPolicy",
            "None is lost: a group below its minimum may be made anew",
        );
    }
    work.roles.push(Role {
        name: "leader".into(),
        pods: 1,
        min: 1,
        template: leader.clone(),
        ..Role::default()
    });
    if size > 1 {
        let after = if text(spec, "/startupPolicy") == "LeaderReady" {
            vec!["leader".to_owned()]
        } else {
            Vec::new()
        };
        let role = Role {
            name: "worker".into(),
            pods: size - 1,
            min: size - 1,
            template: worker.clone(),
            after,
            ..Role::default()
        };
        work.roles.push(role);
    }
    work.priority_class = common_class(&work.roles);
    Ok(work)
}
