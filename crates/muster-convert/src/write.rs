//! [`Work`] to manifests, one function for each kind.
//!
//! In: the work. Out: objects, and a warning for each thing that the kind cannot say. Must stay true: what is needed at least is never
//! less than it was; `Err` only where the kind could not mean anything like it.

use crate::read::{BACKOFF, GROUP, SUBGROUP};
use crate::{ConvertError, Dialect, Group, MOST_PODS, Pack, Role, Warnings, Work, text};
use serde_json::{Map, Value, json};

pub fn write(work: &Work, to: Dialect, warnings: &mut Warnings) -> Result<Vec<Value>, ConvertError> {
    let objects = match to {
        Dialect::PodCliqueSet => vec![pod_clique_set(work, warnings)],
        Dialect::LeaderWorkerSet => vec![leader_worker_set(work, warnings)?],
        Dialect::VolcanoJob => copies(work, to)?.iter().map(|one| volcano_job(one, warnings)).collect(),
        Dialect::Kueue => {
            let of = |one: &Work| kueue(one, warnings);
            copies(work, to)?.iter().map(of).collect::<Result<_, _>>()?
        }
        Dialect::JobSet => copies(work, to)?.iter().map(|one| job_set(one, warnings)).collect(),
        Dialect::Kai => copies(work, to)?.iter().flat_map(|one| kai(one, warnings)).collect(),
    };
    Ok(objects)
}

fn senseless(work: &Work, to: Dialect, why: impl Into<String>) -> ConvertError {
    ConvertError::Senseless { object: work.name.clone(), to, why: why.into() }
}

/// One for each copy of the whole, for kinds that know no copies.
fn copies(work: &Work, to: Dialect) -> Result<Vec<Work>, ConvertError> {
    let pods = work.roles.iter().map(|role| role.pods.saturating_mul(work.times(&role.name).0));
    let each = pods.fold(0, i64::saturating_add).max(1);
    if work.copies.saturating_mul(if to == Dialect::Kai { each } else { 1 }) > MOST_PODS {
        return Err(senseless(work, to, format!("that would be more than {MOST_PODS} objects")));
    }
    if work.copies <= 1 {
        return Ok(vec![work.clone()]);
    }
    Ok((0..work.copies)
        .map(|copy| Work { name: format!("{}-{copy}", work.name), copies: 1, ..work.clone() })
        .collect())
}

fn metadata(work: &Work, queue_label: Option<&str>) -> Value {
    let mut labels = work.labels.clone();
    if let Some(key) = queue_label
        && !work.queue.is_empty()
    {
        labels.insert(key.to_owned(), json!(work.queue));
    }
    let mut metadata = Map::from_iter([("name".to_owned(), json!(work.name))]);
    if !work.namespace.is_empty() {
        metadata.insert("namespace".into(), json!(work.namespace));
    }
    if !labels.is_empty() {
        metadata.insert("labels".into(), Value::Object(labels));
    }
    if !work.annotations.is_empty() {
        metadata.insert("annotations".into(), Value::Object(work.annotations.clone()));
    }
    Value::Object(metadata)
}

/// What kinds without the idea lose.
fn lose(work: &Work, warnings: &mut Warnings, order: bool, minima: bool, packs: bool) {
    for role in &work.roles {
        if role.scaling.is_some() {
            warnings.say(&format!("role {}", role.name), "is no longer scaled by itself");
        }
        if !order && !role.after.is_empty() {
            warnings.say(
                &format!("role {}", role.name),
                format_args!("no longer starts after {}", role.after.join(", ")),
            );
        }
        if !minima && role.min < role.pods {
            warnings.say(
                &format!("role {}", role.name),
                format_args!("needs all {} pods, and not {} of them", role.pods, role.min),
            );
        }
        if !packs && role.pack.is_some() {
            warnings.say(&format!("role {}", role.name), "is no longer packed together");
        }
    }
    if !packs && work.pack.is_some() {
        warnings.say("topology", "the whole is no longer packed together");
    }
    if work.suspended {
        warnings.say("suspend", "is lost: it starts at once");
    }
}

/// Roles with groups multiplied out, for kinds that know no groups.
fn flat(work: &Work, warnings: &mut Warnings) -> Vec<Role> {
    for group in &work.groups {
        warnings.say(
            &format!("group {}", group.name),
            format_args!(
                "{} copies of {} are no longer a unit each",
                group.copies,
                group.roles.join(" and ")
            ),
        );
        if group.scaling.is_some() {
            warnings.say(&format!("group {}", group.name), "is no longer scaled by itself");
        }
        if group.pack.is_some() {
            warnings.say(&format!("group {}", group.name), "is no longer packed together");
        }
    }
    let role = |role: &Role| {
        let (most, least) = work.times(&role.name);
        Role { pods: role.pods.saturating_mul(most), min: role.min.saturating_mul(least), ..role.clone() }
    };
    work.roles.iter().map(role).collect()
}

/// A template whose pods name a scheduler.
fn scheduled_by(template: &Value, scheduler: &str) -> Value {
    let mut template = if template.is_object() { template.clone() } else { json!({}) };
    if !template.get("spec").is_some_and(Value::is_object) {
        template["spec"] = json!({});
    }
    template["spec"]["schedulerName"] = json!(scheduler);
    template
}

fn pod_clique_set(work: &Work, warnings: &mut Warnings) -> Value {
    if let Some(min) = work.min_pods {
        let total = work.min_total();
        if total < min {
            warnings.say(
                "minimum",
                format_args!(
                    "{min} pods of any role are needed; here each role needs its own, {total} together"
                ),
            );
        } else {
            warnings.say(
                "minimum",
                format_args!("{min} pods in all were enough; here every role needs its own minimum"),
            );
        }
    }
    if work.seconds_kept_when_over.is_some() {
        warnings.say("ttlSecondsAfterFinished", "is lost: a set that is over stays until it is deleted");
    }
    if work.suspended {
        warnings.say("suspend", "is lost: write replicas 0 to hold it back");
    }
    let ordered = work.roles.iter().any(|role| !role.after.is_empty());
    let topology = work
        .pack
        .iter()
        .chain(work.roles.iter().filter_map(|r| r.pack.as_ref()))
        .map(|p| &p.topology)
        .find(|t| !t.is_empty());
    let constraint = |pack: &Option<Pack>, warnings: &mut Warnings| -> Option<Value> {
        let pack = pack.as_ref()?;
        let mut levels = Map::new();
        for (field, level) in [("required", &pack.required), ("preferred", &pack.preferred)] {
            if !level.is_empty() {
                levels.insert(field.to_owned(), json!(level));
            }
        }
        if pack.topology.is_empty() && topology.is_none() {
            warnings.say(
                "topology",
                "names no ClusterTopologyBinding; write topologyName, and its domains for the levels",
            );
        } else if pack.required.contains('/') || pack.preferred.contains('/') {
            warnings
                .say("topology", "levels are node labels; write the domains of the ClusterTopologyBinding");
        }
        let mut constraint = json!({"pack": levels});
        if !pack.topology.is_empty() {
            constraint["topologyName"] = json!(pack.topology);
        }
        Some(constraint)
    };
    let mut cliques: Vec<Value> = Vec::new();
    for role in &work.roles {
        let mut spec = json!({
            "roleName": role.name,
            "replicas": role.pods.max(1),
            "minAvailable": role.min.clamp(1, role.pods.max(1)),
            "podSpec": role.template.get("spec").cloned().unwrap_or(json!({})),
        });
        if !role.after.is_empty() {
            spec["startsAfter"] = json!(role.after);
        }
        if let Some(scaling) = &role.scaling {
            spec["autoScalingConfig"] = scaling.clone();
        }
        let mut clique = json!({"name": role.name, "spec": spec});
        for field in ["labels", "annotations"] {
            if let Some(map) =
                role.template.pointer(&format!("/metadata/{field}")).filter(|map| map.is_object())
            {
                clique[field] = map.clone();
            }
        }
        if let Some(limit) = work.max_restarts {
            clique["annotations"][BACKOFF] = json!(limit.to_string());
        }
        if let Some(constraint) = constraint(&role.pack, warnings) {
            clique["topologyConstraint"] = constraint;
        }
        cliques.push(clique);
    }
    let mut template = json!({"cliques": cliques});
    if ordered {
        template["cliqueStartupType"] = json!("CliqueStartupTypeExplicit");
    }
    if !work.priority_class.is_empty() {
        template["priorityClassName"] = json!(work.priority_class);
    }
    if let Some(constraint) = constraint(&work.pack, warnings) {
        template["topologyConstraint"] = constraint;
    }
    let groups: Vec<Value> =
        work.groups.iter().map(|group| scaling_group(group, constraint(&group.pack, warnings))).collect();
    if !groups.is_empty() {
        template["podCliqueScalingGroups"] = json!(groups);
    }
    json!({
        "apiVersion": "grove.io/v1alpha1",
        "kind": "PodCliqueSet",
        "metadata": metadata(work, Some("kai.scheduler/queue")),
        "spec": {"replicas": work.copies, "template": template},
    })
}

fn scaling_group(group: &Group, constraint: Option<Value>) -> Value {
    let mut out = json!({
        "name": group.name, "cliqueNames": group.roles, "replicas": group.copies, "minAvailable": group.min,
    });
    if let Some(scaling) = &group.scaling {
        out["scaleConfig"] = scaling.clone();
    }
    if let Some(constraint) = constraint {
        out["topologyConstraint"] = constraint;
    }
    out
}

fn volcano_job(work: &Work, warnings: &mut Warnings) -> Value {
    lose(work, warnings, true, true, false);
    let roles = flat(work, warnings);
    let tasks: Vec<Value> = roles
        .iter()
        .map(|role| {
            let mut task = json!({
                "name": role.name, "replicas": role.pods, "minAvailable": role.min,
                "template": scheduled_by(&role.template, "volcano"),
            });
            if !role.after.is_empty() {
                task["dependsOn"] = json!({"name": role.after});
                warnings.say(
                    &format!("role {}", role.name),
                    "its pods are made when those before it are ready, and so are no part of the first gang",
                );
            }
            task
        })
        .collect();
    let total: i64 = roles.iter().map(|role| role.min).fold(0, i64::saturating_add);
    let mut spec =
        json!({"schedulerName": "volcano", "minAvailable": work.min_pods.unwrap_or(total), "tasks": tasks});
    for (field, value) in [("queue", &work.queue), ("priorityClassName", &work.priority_class)] {
        if !value.is_empty() {
            spec[field] = json!(value);
        }
    }
    for (field, value) in
        [("maxRetry", work.max_restarts), ("ttlSecondsAfterFinished", work.seconds_kept_when_over)]
    {
        if let Some(value) = value {
            spec[field] = json!(value);
        }
    }
    json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": metadata(work, None), "spec": spec})
}

fn kai(work: &Work, warnings: &mut Warnings) -> Vec<Value> {
    lose(work, warnings, false, true, true);
    if work.max_restarts.is_some() || work.seconds_kept_when_over.is_some() {
        warnings
            .say("retries", "are lost: nobody makes pods anew, and nobody deletes them when they are over");
    }
    let rule = |pack: &Option<Pack>| {
        pack.as_ref().map(|pack| {
            let mut rule = json!({"topology": pack.topology});
            for (field, level) in
                [("requiredTopologyLevel", &pack.required), ("preferredTopologyLevel", &pack.preferred)]
            {
                if !level.is_empty() {
                    rule[field] = json!(level);
                }
            }
            rule
        })
    };
    let roles = flat(work, warnings);
    let subgroups: Vec<Value> = roles
        .iter()
        .map(|role| {
            let mut group = json!({"name": role.name, "minMember": role.min});
            if let Some(rule) = rule(&role.pack) {
                group["topologyConstraint"] = rule;
            }
            group
        })
        .collect();
    let total: i64 = roles.iter().map(|role| role.min).fold(0, i64::saturating_add);
    if let Some(min) = work.min_pods.filter(|min| *min != total) {
        warnings.say(
            "minimum",
            format_args!(
                "{min} pods in all are needed; here every role needs its own minimum, {total} together"
            ),
        );
    }
    let mut spec = json!({"minMember": total, "subGroups": subgroups});
    spec["queue"] = json!(if work.queue.is_empty() { "default-queue" } else { &work.queue });
    if !work.priority_class.is_empty() {
        spec["priorityClassName"] = json!(work.priority_class);
    }
    if let Some(rule) = rule(&work.pack) {
        spec["topologyConstraint"] = rule;
    }
    let group = json!({
        "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": metadata(work, None), "spec": spec,
    });
    let mut objects = vec![group];
    for role in &roles {
        for index in 0..role.pods {
            let template = scheduled_by(&role.template, "kai-scheduler");
            let mut pod = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": template.get("metadata").filter(|m| m.is_object()).cloned().unwrap_or(json!({})),
                "spec": template["spec"],
            });
            pod["metadata"]["name"] = json!(format!("{}-{}-{index}", work.name, role.name));
            if !work.namespace.is_empty() {
                pod["metadata"]["namespace"] = json!(work.namespace);
            }
            pod["metadata"]["annotations"][GROUP] = json!(work.name);
            pod["metadata"]["annotations"]["kai.scheduler/skip-podgrouper"] = json!("true");
            pod["metadata"]["labels"][SUBGROUP] = json!(role.name);
            pod["metadata"]["labels"]["kai.scheduler/queue"] =
                objects.first().map_or(Value::Null, |g| g["spec"]["queue"].clone());
            objects.push(pod);
        }
    }
    objects
}

/// Kueue counts no more sets of pods than this.
const MOST_POD_SETS: usize = 8;

fn kueue(work: &Work, warnings: &mut Warnings) -> Result<Value, ConvertError> {
    lose(work, warnings, false, true, true);
    warnings.say(
        "pods",
        "a Workload makes none; convert to jobset for a kind that makes pods and is queued by Kueue",
    );
    if work.max_restarts.is_some() || work.seconds_kept_when_over.is_some() {
        warnings.say("retries", "are lost");
    }
    if let Some(pack) = &work.pack {
        let levels = [pack.required.as_str(), pack.preferred.as_str()].concat();
        warnings.say(
            "topology",
            format_args!("{levels} holds for each role by itself, and no longer for the whole"),
        );
    }
    let roles = flat(work, warnings);
    if roles.len() > MOST_POD_SETS {
        return Err(senseless(
            work,
            Dialect::Kueue,
            format!("it has {} roles, and Kueue knows {MOST_POD_SETS}", roles.len()),
        ));
    }
    let elastic: Vec<&str> =
        roles.iter().filter(|role| role.min < role.pods).map(|role| role.name.as_str()).collect();
    if elastic.len() > 1 {
        warnings.say(
            "minimum",
            format_args!(
                "only one role may have fewer pods than it wants: {} need all but the first",
                elastic.join(", ")
            ),
        );
    }
    let mut had_elastic = false;
    let sets: Vec<Value> = roles
        .iter()
        .map(|role| {
            let mut set = json!({"name": role.name, "count": role.pods, "template": role.template});
            if role.min < role.pods && !had_elastic {
                had_elastic = true;
                set["minCount"] = json!(role.min);
            }
            if let Some(pack) = role.pack.as_ref().or(work.pack.as_ref()) {
                set["topologyRequest"] = match pack.required.as_str() {
                    "" => json!({"preferred": pack.preferred}),
                    required => json!({"required": required}),
                };
                if !pack.required.is_empty() && !pack.preferred.is_empty() {
                    warnings
                        .say(&format!("role {}", role.name), "preferred level is lost beside a required one");
                }
            }
            set
        })
        .collect();
    let mut spec = json!({"podSets": sets, "active": !work.suspended});
    if !work.queue.is_empty() {
        spec["queueName"] = json!(work.queue);
    }
    if !work.priority_class.is_empty() {
        spec["priorityClassRef"] =
            json!({"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": work.priority_class});
    }
    Ok(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": metadata(work, None), "spec": spec,
    }))
}

fn job_set(work: &Work, warnings: &mut Warnings) -> Value {
    lose(&Work { suspended: false, ..work.clone() }, warnings, true, false, false);
    for group in work.groups.iter().filter(|group| group.roles.len() > 1) {
        warnings.say(
            &format!("group {}", group.name),
            format_args!("{} are no longer a unit together", group.roles.join(" and ")),
        );
    }
    for group in work.groups.iter().filter(|group| group.min < group.copies || group.scaling.is_some()) {
        warnings.say(
            &format!("group {}", group.name),
            format_args!("needs all {} copies, and is no longer scaled by itself", group.copies),
        );
    }
    let jobs: Vec<Value> = work
        .roles
        .iter()
        .map(|role| {
            let mut template = if role.template.is_object() { role.template.clone() } else { json!({}) };
            let policy = text(&template, "/spec/restartPolicy");
            if !matches!(policy.as_str(), "Never" | "OnFailure") {
                if !template.get("spec").is_some_and(Value::is_object) {
                    template["spec"] = json!({});
                }
                template["spec"]["restartPolicy"] = json!("OnFailure");
                warnings.say(&format!("role {}", role.name), "ends when its containers end: jobs know no restartPolicy Always");
            }
            let mut job = json!({
                "name": role.name, "replicas": work.times(&role.name).0,
                "template": {"spec": {
                    "parallelism": role.pods, "completions": role.pods, "completionMode": "Indexed", "backoffLimit": 0,
                    "template": template,
                }},
            });
            if !role.after.is_empty() {
                let on = |name: &String| json!({"name": name, "status": "Ready"});
                job["dependsOn"] = role.after.iter().map(on).collect();
            }
            job
        })
        .collect();
    let mut spec = json!({"replicatedJobs": jobs});
    if work.suspended {
        spec["suspend"] = json!(true);
    }
    if let Some(most) = work.max_restarts {
        spec["failurePolicy"] = json!({"maxRestarts": most});
    }
    if let Some(seconds) = work.seconds_kept_when_over {
        spec["ttlSecondsAfterFinished"] = json!(seconds);
    }
    json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": metadata(work, Some("kueue.x-k8s.io/queue-name")), "spec": spec,
    })
}

fn leader_worker_set(work: &Work, warnings: &mut Warnings) -> Result<Value, ConvertError> {
    let to = Dialect::LeaderWorkerSet;
    let (leader, worker) = match work.roles.as_slice() {
        [leader] => (None, leader),
        [leader, worker] if leader.pods == 1 && work.times(&leader.name).0 == 1 => (Some(leader), worker),
        [worker, leader] if leader.pods == 1 && work.times(&leader.name).0 == 1 => (Some(leader), worker),
        roles => {
            return Err(senseless(
                work,
                to,
                format!(
                    "it takes one role, or two of which one is a single leader; there are {}",
                    roles.len()
                ),
            ));
        }
    };
    if let Some(leader) = leader
        && !leader.after.is_empty()
    {
        return Err(senseless(work, to, "the leader starts after the workers"));
    }
    lose(work, warnings, true, false, false);
    let workers =
        flat(work, warnings).into_iter().find(|role| role.name == worker.name).map_or(0, |role| role.pods);
    let mut template =
        json!({"size": workers + i64::from(leader.is_some()), "workerTemplate": worker.template});
    if let Some(leader) = leader {
        template["leaderTemplate"] = leader.template.clone();
    }
    let mut spec = json!({"replicas": work.copies, "leaderWorkerTemplate": template});
    if !worker.after.is_empty() {
        spec["startupPolicy"] = json!("LeaderReady");
    }
    for role in &work.roles {
        if matches!(text(&role.template, "/spec/restartPolicy").as_str(), "Never" | "OnFailure") {
            warnings.say(
                &format!("role {}", role.name),
                "is started again when it ends: a LeaderWorkerSet is for servers",
            );
        }
    }
    if work.max_restarts.is_some() || work.seconds_kept_when_over.is_some() {
        warnings.say("retries", "are lost");
    }
    Ok(json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
        "metadata": metadata(work, Some("kueue.x-k8s.io/queue-name")), "spec": spec,
    }))
}
