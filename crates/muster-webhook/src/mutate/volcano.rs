//! What Volcano's kinds mean when they do not say, written into them.

use serde_json::{Value, json};

use crate::request::{Asked, Operation};
use crate::verdict::Verdict;
use crate::world::World;

const HIERARCHY: &str = "volcano.sh/hierarchy";
const HIERARCHY_WEIGHTS: &str = "volcano.sh/hierarchy-weights";
const NAMESPACE_QUEUE: &str = "scheduling.volcano.sh/queue-name";
const DEFAULT_RETRIES: i64 = 3;
/// Plugins whose pods find each other by a service.
const NEED_SERVICE: [&str; 4] = ["tensorflow", "mpi", "pytorch", "ray"];

fn on_create(asked: &Asked<'_>, fill: impl FnOnce(&mut Value)) -> Verdict {
    let mut verdict = Verdict::default();
    if asked.operation == Operation::Create && asked.object.is_object() {
        let mut made = asked.object.clone();
        fill(&mut made);
        verdict.make(asked.object, made);
    }
    verdict
}

/// The spec as a map, made if there is none; `None`: it is something else.
fn spec(object: &mut Value) -> Option<&mut Value> {
    let map = object.as_object_mut()?;
    let spec = map.entry("spec").or_insert_with(|| json!({}));
    spec.is_object().then_some(spec)
}

pub fn queue(asked: &Asked<'_>) -> Verdict {
    on_create(asked, |queue| {
        let annotations = queue.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
        if let Some(annotations) = annotations
            && annotations.contains_key(HIERARCHY)
        {
            for (key, root) in [(HIERARCHY, "root"), (HIERARCHY_WEIGHTS, "1")] {
                let prefix = format!("{root}/");
                if let Some(Value::String(text)) = annotations.get_mut(key)
                    && text != root
                    && !text.starts_with(&prefix)
                {
                    text.insert_str(0, &prefix);
                }
            }
        }
        let Some(spec) = spec(queue) else { return };
        if spec["reclaimable"].is_null() {
            spec["reclaimable"] = json!(true);
        }
        if spec["weight"].as_i64().unwrap_or(0) == 0 && (spec["weight"].is_null() || spec["weight"].is_i64())
        {
            spec["weight"] = json!(1);
        }
    })
}

pub fn pod_group(asked: &Asked<'_>, world: &dyn World) -> Verdict {
    on_create(asked, |group| {
        let Some(namespace) = world.namespace(asked.namespace) else { return };
        let Some(queue) = namespace.metadata.annotation(NAMESPACE_QUEUE).filter(|name| !name.is_empty())
        else {
            return;
        };
        let Some(spec) = spec(group) else { return };
        if spec["queue"].is_null() || spec["queue"] == "" || spec["queue"] == "default" {
            spec["queue"] = json!(queue);
        }
    })
}

pub fn job(asked: &Asked<'_>, scheduler: &str) -> Verdict {
    on_create(asked, |job| {
        let Some(spec) = spec(job) else { return };
        for (field, value) in [("queue", "default"), ("schedulerName", scheduler)] {
            if spec[field].is_null() || spec[field] == "" {
                spec[field] = json!(value);
            }
        }
        if spec["maxRetry"].is_null() || spec["maxRetry"] == 0 {
            spec["maxRetry"] = json!(DEFAULT_RETRIES);
        }
        let mut needed = 0_i64;
        for (i, task) in spec["tasks"].as_array_mut().into_iter().flatten().enumerate() {
            if !task.is_object() {
                continue;
            }
            if task["name"].is_null() || task["name"] == "" {
                task["name"] = json!(format!("default{i}"));
            }
            if task["maxRetry"].is_null() {
                task["maxRetry"] = json!(DEFAULT_RETRIES);
            }
            if task["minAvailable"].is_null() {
                let part = |field: &str| task["partitionPolicy"][field].as_i64().unwrap_or(0);
                let (partitions, size) = (part("minPartitions"), part("partitionSize"));
                let replicas = task["replicas"].as_i64().unwrap_or(0);
                let min = if partitions > 0 { partitions.saturating_mul(size) } else { replicas };
                task["minAvailable"] = json!(min);
            }
            needed = needed.saturating_add(task["minAvailable"].as_i64().unwrap_or(0));
        }
        if spec["minAvailable"].is_null() || spec["minAvailable"] == 0 {
            spec["minAvailable"] = json!(needed);
        }
        if let Some(plugins) = spec["plugins"].as_object_mut() {
            let named = |name: &str| plugins.contains_key(name);
            let (service, mpi) = (NEED_SERVICE.iter().any(|name| named(name)), named("mpi"));
            if service {
                plugins.entry("svc").or_insert_with(|| json!([]));
            }
            if mpi {
                plugins.entry("ssh").or_insert_with(|| json!([]));
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::world::Given;

    fn made(object: Value, mutate: impl Fn(&Asked<'_>) -> Verdict) -> Value {
        let asked = Asked {
            operation: Operation::Create,
            namespace: "n",
            name: "x",
            uid: "u",
            object: &object,
            old: &Value::Null,
        };
        let made = mutate(&asked).made;
        made.unwrap_or_else(|| object.clone())
    }

    #[test]
    fn queues() {
        assert_eq!(made(json!({}), queue), json!({"spec": {"reclaimable": true, "weight": 1}}));
        let annotated = json!({"metadata": {"annotations": {HIERARCHY: "a/b", HIERARCHY_WEIGHTS: "2/3"}}, "spec": {"reclaimable": false, "weight": 4}});
        assert_eq!(
            made(annotated, queue),
            json!({"metadata": {"annotations": {HIERARCHY: "root/a/b", HIERARCHY_WEIGHTS: "1/2/3"}}, "spec": {"reclaimable": false, "weight": 4}})
        );
        assert_eq!(made(json!({"spec": 5}), queue), json!({"spec": 5}));
    }

    #[test]
    fn groups_go_to_the_queue_of_their_namespace() {
        let namespace = json!({"metadata": {"name": "n", "annotations": {NAMESPACE_QUEUE: "team"}}});
        let world = Given {
            namespaces: [("n".to_owned(), Arc::new(serde_json::from_value(namespace).unwrap()))].into(),
            ..Given::default()
        };
        let group = |object: Value| made(object, |asked| pod_group(asked, &world));
        assert_eq!(group(json!({})), json!({"spec": {"queue": "team"}}));
        assert_eq!(group(json!({"spec": {"queue": "default"}})), json!({"spec": {"queue": "team"}}));
        assert_eq!(group(json!({"spec": {"queue": "other"}})), json!({"spec": {"queue": "other"}}));
    }

    #[test]
    fn jobs() {
        let job = |object: Value| made(object, |asked| job(asked, "volcano"));
        let filled = job(json!({"spec": {"plugins": {"mpi": []}, "tasks": [
            {"replicas": 2}, {"name": "w", "replicas": 4, "minAvailable": 1, "maxRetry": 1},
            {"name": "p", "replicas": 8, "partitionPolicy": {"totalPartitions": 4, "partitionSize": 2, "minPartitions": 3}},
        ]}}));
        assert_eq!(
            filled,
            json!({"spec": {
                "queue": "default", "schedulerName": "volcano", "maxRetry": 3, "minAvailable": 9,
                "plugins": {"mpi": [], "svc": [], "ssh": []},
                "tasks": [
                    {"name": "default0", "replicas": 2, "minAvailable": 2, "maxRetry": 3},
                    {"name": "w", "replicas": 4, "minAvailable": 1, "maxRetry": 1},
                    {"name": "p", "replicas": 8, "minAvailable": 6, "maxRetry": 3,
                     "partitionPolicy": {"totalPartitions": 4, "partitionSize": 2, "minPartitions": 3}},
                ],
            }})
        );
        assert_eq!(job(filled.clone()), filled);
    }
}
