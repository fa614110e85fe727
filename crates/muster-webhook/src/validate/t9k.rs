//! T9k: pods keep the group, the role and the queue that they came with; who may use a queue, and how much is left of it.
//!
//! In: a request and what is known of the queues. Out: a verdict. The rules on queues hold in namespaces that are T9k projects only
//! (label `project.tensorstack.dev: "true"`), as T9k's own do. Must stay true: what is not known is not complained about.

use k8s_quantity::Quantity;
use muster_runtime::object::Selector;
use serde_json::Value;

use crate::request::{Asked, Operation};
use crate::share::quantity;
use crate::spelling;
use crate::verdict::{Verdict, quote};
use crate::world::{Other, OtherKind, World};

pub(crate) const GROUP: &str = "scheduler.tensorstack.dev/group-name";
pub(crate) const ROLE: &str = "scheduler.tensorstack.dev/role";
pub(crate) const QUEUE: &str = "scheduler.tensorstack.dev/queue";
const PROJECT: &str = "project.tensorstack.dev";
const SHARED_GPU: &str = "nvidia.com/gpu.shared";
/// Where T9k keeps the queues that count.
const HOME: &str = "t9k-system";

pub fn pod(asked: &Asked<'_>, world: &dyn World) -> Verdict {
    let mut verdict = Verdict::default();
    let label =
        |pod: &Value, key: &str| pod["metadata"]["labels"][key].as_str().unwrap_or_default().to_owned();
    match asked.operation {
        Operation::Update => {
            for (key, what) in [(GROUP, "group"), (ROLE, "role"), (QUEUE, "queue")] {
                if label(asked.old, key) != label(asked.object, key) {
                    verdict.refuse(
                        format!("metadata.labels[{key}]"),
                        format!("a pod keeps the {what} that it came with; delete it and create it with the other one"),
                    );
                }
            }
        }
        Operation::Create => {
            for (place, container) in containers(asked.object) {
                let shared = quantity(&container["resources"]["limits"][SHARED_GPU])
                    .or_else(|| quantity(&container["resources"]["requests"][SHARED_GPU]));
                if shared.is_some_and(|n| n > Quantity::from_i64(1, k8s_quantity::Format::DecimalSi)) {
                    verdict.refuse(
                        format!("{place}.resources.limits[{SHARED_GPU}]"),
                        "a container can have one share; write 1, or ask for whole GPUs with nvidia.com/gpu",
                    );
                }
            }
            // The queue of a pod with a group is the group's.
            if label(asked.object, GROUP).is_empty() {
                let field = format!("metadata.labels[{QUEUE}]");
                let named = label(asked.object, QUEUE);
                let name = if named.is_empty() { "default" } else { &named };
                if let Some(queue) = usable(&field, name, asked.namespace, world, &mut verdict) {
                    room(asked.object, &queue, &mut verdict);
                }
            }
        }
        Operation::Delete | Operation::Connect => {}
    }
    verdict
}

pub fn group(asked: &Asked<'_>, world: &dyn World) -> Verdict {
    let judged = |group: &Value| {
        let mut verdict = Verdict::default();
        let spec = &group["spec"];
        let min = spec["minMember"].as_i64().unwrap_or(0);
        let roles = spec["roles"].as_array().into_iter().flatten();
        let of_roles: i64 = roles.filter_map(|role| role["minMember"].as_i64()).fold(0, i64::saturating_add);
        if of_roles > min && !spec["minMember"].is_null() {
            verdict.warn(
                "spec.minMember",
                format_args!("{min} is less than the {of_roles} that the roles need together, which are needed all the same"),
            );
        }
        if spec["topologyPolicy"].as_str().is_some_and(|text| !text.is_empty()) {
            verdict.warn("spec.topologyPolicy", "has no effect; its values are not documented");
        }
        let name = spec["queue"].as_str().filter(|name| !name.is_empty()).unwrap_or("default");
        usable("spec.queue", name, asked.namespace, world, &mut verdict);
        verdict
    };
    match asked.operation {
        Operation::Create => judged(asked.object),
        Operation::Update if asked.object["spec"] != asked.old["spec"] => {
            judged(asked.object).since(&judged(asked.old))
        }
        _ => Verdict::default(),
    }
}

pub fn queue(asked: &Asked<'_>) -> Verdict {
    let judged = |queue: &Value| {
        let mut verdict = Verdict::default();
        let spec = &queue["spec"];
        let quota = spec["quota"]["requests"].as_object();
        for (name, value) in quota.into_iter().flatten() {
            let field = format!("spec.quota.requests[{name}]");
            match quantity(value) {
                None => verdict.refuse(field, "is no quantity; write one like 2, 500m or 16Gi"),
                Some(amount) if amount < Quantity::ZERO => {
                    verdict.refuse(field, "is negative; write 0 or more, or leave it out for no bound");
                }
                Some(_) if !is_counted(name) => {
                    verdict.warn(field, "is not held against anyone: quotas are for cpu, memory and GPUs");
                }
                Some(_) => {}
            }
        }
        if !spec["requests"].is_null() {
            verdict
                .warn("spec.requests", "is of an older version and has no effect; write spec.quota.requests");
        }
        let selects = &spec["namespaceSelector"];
        if selects.as_object().is_none_or(|selector| selector.values().all(is_empty)) {
            verdict.warn(
                "spec.namespaceSelector",
                "selects no namespace, so that only users who were granted the queue can use it; name labels of namespaces",
            );
        }
        verdict
    };
    match asked.operation {
        Operation::Create => judged(asked.object),
        Operation::Update if asked.object["spec"] != asked.old["spec"] => {
            judged(asked.object).since(&judged(asked.old))
        }
        _ => Verdict::default(),
    }
}

fn is_counted(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.ends_with("gpu")
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

/// The queue, if it is there and the namespace is a project that may use it. Elsewhere nobody is asked.
fn usable(
    field: &str,
    name: &str,
    namespace: &str,
    world: &dyn World,
    verdict: &mut Verdict,
) -> Option<std::sync::Arc<Other>> {
    let queues = world.others(OtherKind::T9kQueue)?;
    let named = queues.iter().filter(|queue| queue.metadata.name == name);
    let found =
        named.min_by_key(|queue| (queue.metadata.namespace != HOME, queue.metadata.namespace.clone()));
    let Some(queue) = found else {
        if name != "default" {
            let near = spelling::nearest(name, queues.iter().map(|queue| queue.metadata.name.as_str()));
            let hint = match near {
                Some(near) => format!("did you mean {}?", quote(near)),
                None => "nothing in it runs until there is one".to_owned(),
            };
            verdict.warn(field, format_args!("there is no queue {}; {hint}", quote(name)));
        }
        return None;
    };
    let labels = &world.namespace(namespace)?.metadata.labels.clone();
    if labels.get(PROJECT).map(String::as_str) != Some("true") {
        return None;
    }
    if queue.spec["closed"] == true {
        verdict.refuse(field, format!("the queue {} is closed; use another one", quote(name)));
        return None;
    }
    let selector = &queue.spec["namespaceSelector"];
    // An empty selector selects nothing, other than elsewhere.
    let selects = serde_json::from_value::<Selector>(selector.clone())
        .is_ok_and(|selector| !selector.is_empty() && selector.matches(labels));
    if !selects {
        verdict.refuse(
            field,
            format!(
                "the namespace {} may not use the queue {}; use another one, or have its namespaceSelector select the namespace",
                quote(namespace),
                quote(name)
            ),
        );
        return None;
    }
    Some(queue.clone())
}

/// Whether a pod fits into what is left of a queue's quota.
fn room(pod: &Value, queue: &Other, verdict: &mut Verdict) {
    let quota = queue.spec["quota"]["requests"].as_object();
    for (name, value) in quota.into_iter().flatten() {
        let Some(most) = quantity(value) else { continue };
        let mut asked = Quantity::ZERO;
        for (place, container) in containers(pod) {
            match quantity(&container["resources"]["requests"][name]) {
                Some(amount) => asked += amount,
                None if matches!(name.as_str(), "cpu" | "memory") => verdict.refuse(
                    format!("{place}.resources.requests[{name}]"),
                    format!("is missing; the queue {} has a quota on it", quote(&queue.metadata.name)),
                ),
                None => {}
            }
        }
        let used = quantity(&queue.status["allocated"][name]).unwrap_or(Quantity::ZERO);
        if asked > Quantity::ZERO && used + asked > most {
            verdict.refuse(
                format!("spec.containers[*].resources.requests[{name}]"),
                format!(
                    "{asked} besides the {used} in use is more than the {most} of the queue {}",
                    quote(&queue.metadata.name)
                ),
            );
        }
    }
}

fn containers(pod: &Value) -> impl Iterator<Item = (String, &Value)> {
    let list = pod["spec"]["containers"].as_array().into_iter().flatten();
    list.enumerate().map(|(i, container)| (format!("spec.containers[{i}]"), container))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::world::Given;

    fn world() -> Given {
        let queue = |name: &str, spec: Value, used: &str| {
            let value = json!({"metadata": {"name": name, "namespace": HOME}, "spec": spec, "status": {"allocated": {"cpu": used}}});
            Arc::new(serde_json::from_value::<Other>(value).unwrap())
        };
        let team = json!({"namespaceSelector": {"matchLabels": {"team": "a"}}, "quota": {"requests": {"cpu": "40"}}});
        let queues = vec![
            queue("team", team, "38"),
            queue("nobody", json!({"namespaceSelector": {}}), "0"),
            queue(
                "closed",
                json!({"closed": true, "namespaceSelector": {"matchLabels": {"team": "a"}}}),
                "0",
            ),
        ];
        let namespace = json!({"metadata": {"name": "p", "labels": {PROJECT: "true", "team": "a"}}});
        Given {
            others: [(OtherKind::T9kQueue, queues)].into(),
            namespaces: [("p".to_owned(), Arc::new(serde_json::from_value(namespace).unwrap()))].into(),
            ..Given::default()
        }
    }

    fn asked<'a>(operation: Operation, namespace: &'a str, object: &'a Value, old: &'a Value) -> Asked<'a> {
        Asked { operation, namespace, name: "x", uid: "u", object, old }
    }

    #[track_caller]
    fn check_update(old: Value, new: Value, expected: &[&str]) {
        let pod = |labels: Value| json!({"metadata": {"labels": labels}});
        let (old, new) = (pod(old), pod(new));
        let verdict = pod_verdict(&asked(Operation::Update, "n", &new, &old));
        let fields: Vec<&str> = verdict.errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields, expected);
    }

    fn pod_verdict(asked: &Asked<'_>) -> Verdict {
        pod(asked, &world())
    }

    #[test]
    fn a_pod_keeps_its_group() {
        check_update(json!({GROUP: "a"}), json!({GROUP: "a", "x": "y"}), &[]);
        check_update(
            json!({GROUP: "a"}),
            json!({GROUP: "b"}),
            &["metadata.labels[scheduler.tensorstack.dev/group-name]"],
        );
        check_update(
            json!({}),
            json!({GROUP: "b"}),
            &["metadata.labels[scheduler.tensorstack.dev/group-name]"],
        );
        check_update(json!({ROLE: "a"}), json!({}), &["metadata.labels[scheduler.tensorstack.dev/role]"]);
        check_update(
            json!({QUEUE: "a"}),
            json!({QUEUE: "b"}),
            &["metadata.labels[scheduler.tensorstack.dev/queue]"],
        );
    }

    #[track_caller]
    fn check_pod(namespace: &str, queue: &str, requests: Value, expected: Option<&str>) {
        let pod = json!({"metadata": {"labels": {QUEUE: queue}}, "spec": {"containers": [{"resources": {"requests": requests}}]}});
        let verdict = pod_verdict(&asked(Operation::Create, namespace, &pod, &Value::Null));
        assert_eq!(verdict.errors.first().map(|error| error.message.as_str()), expected);
    }

    #[test]
    fn queues_are_for_some_and_for_so_much() {
        check_pod("p", "team", json!({"cpu": "2"}), None);
        check_pod(
            "p",
            "team",
            json!({"cpu": "4"}),
            Some("4 besides the 38 in use is more than the 40 of the queue \"team\""),
        );
        check_pod("p", "team", json!({}), Some("is missing; the queue \"team\" has a quota on it"));
        check_pod(
            "p",
            "nobody",
            json!({}),
            Some(
                "the namespace \"p\" may not use the queue \"nobody\"; use another one, or have its namespaceSelector select the namespace",
            ),
        );
        check_pod("p", "closed", json!({}), Some("the queue \"closed\" is closed; use another one"));
        // Not a project.
        check_pod("n", "team", json!({"cpu": "400"}), None);
        check_pod(
            "n",
            "team",
            json!({SHARED_GPU: "2"}),
            Some("a container can have one share; write 1, or ask for whole GPUs with nvidia.com/gpu"),
        );
    }

    #[test]
    fn groups_and_queues() {
        let group_of = |spec: Value| {
            let value = json!({"spec": spec});
            group(&asked(Operation::Create, "n", &value, &Value::Null), &world())
        };
        assert_eq!(group_of(json!({"minMember": 2, "queue": "team"})), Verdict::default());
        assert_eq!(
            group_of(json!({"minMember": 1, "roles": [{"name": "a", "minMember": 2}]})).warnings.len(),
            1
        );
        assert_eq!(
            group_of(json!({"queue": "tem"})).warnings,
            ["spec.queue: there is no queue \"tem\"; did you mean \"team\"?"]
        );
        let queue_of = |spec: Value| {
            let value = json!({"spec": spec});
            queue(&asked(Operation::Create, "n", &value, &Value::Null))
        };
        let named = json!({"matchLabels": {"a": "b"}});
        assert_eq!(
            queue_of(json!({"namespaceSelector": named, "quota": {"requests": {"cpu": "1"}}})),
            Verdict::default()
        );
        assert_eq!(queue_of(json!({"namespaceSelector": {}})).warnings.len(), 1);
        assert_eq!(queue_of(json!({"quota": {"requests": {"cpu": "many", "memory": "-1"}}})).errors.len(), 2);
    }
}
