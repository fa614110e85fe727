//! What the built-in admission plugins of the reference server set.
//!
//! In: an object after [`crate::prepare_create`] or before it; nothing here depends on that order. Out: the object
//! changed. [`admit_create`] looks at no other object. What does need other objects has its own function, and the
//! server does the look-up: [`apply_priority`] takes the priority class that the pod names.
//!
//! Left to the server: refusing a pod whose service account does not exist, the projected token volume of a service
//! account, limit ranges, quotas, the default storage and ingress class, and webhooks.

use serde_json::{Value, json};

use crate::{
    Kind,
    json::{at_mut, child, has, int, list, set, set_default, set_default_text, text},
};

/// Sets what the plugins ServiceAccount, DefaultTolerationSeconds, StorageObjectInUseProtection and PodGroupProtection
/// set when an object is created. The namespace of a pod decides nothing, so any namespace is alike.
pub fn admit_create(kind: &Kind, object: &mut Value) {
    match (kind.group, kind.kind) {
        ("", "Pod") => {
            let is_mirror = has(object, "metadata.annotations")
                && object.pointer("/metadata/annotations/kubernetes.io~1config.mirror").is_some();
            if !is_mirror && let Some(spec) = child(object, "spec") {
                service_account(spec);
            }
            if let Some(spec) = child(object, "spec") {
                tolerate_lost_nodes(spec);
            }
        }
        ("", "PersistentVolumeClaim") => add_finalizer(object, "kubernetes.io/pvc-protection"),
        ("", "PersistentVolume") => add_finalizer(object, "kubernetes.io/pv-protection"),
        ("scheduling.k8s.io", "PodGroup") => add_finalizer(object, "scheduling.k8s.io/podgroup-protection"),
        _ => {}
    }
}

/// Sets what the same plugins set when an object is changed: pods keep the tolerations that they were given.
pub fn admit_update(kind: &Kind, object: &mut Value) {
    if (kind.group, kind.kind) == ("", "Pod")
        && let Some(spec) = child(object, "spec")
    {
        tolerate_lost_nodes(spec);
    }
}

/// Why the Priority plugin forbids a pod. The server says `pods "NAME" is forbidden: ` before it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PriorityRefusal {
    /// The class that the pod names does not exist.
    #[error("no PriorityClass with name {0} was found")]
    NoClass(String),
    /// The pod says a priority that is not that of its class.
    #[error(
        "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
         computed {computed} from the given PriorityClass name"
    )]
    Priority {
        /// In the pod.
        given: i64,
        /// From the class.
        computed: i64,
    },
    /// The pod says a preemption policy that is not that of its class.
    #[error(
        "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission \
         controller computed {computed} from the given PriorityClass name"
    )]
    Policy {
        /// In the pod.
        given: String,
        /// From the class.
        computed: String,
    },
}

/// Sets a pod's priority and preemption policy from its priority class.
///
/// `class` is the object that `spec.priorityClassName` names, or the class marked `globalDefault` if it names none, or
/// nothing.
pub fn apply_priority(pod: &mut Value, class: Option<&Value>) -> Result<(), PriorityRefusal> {
    let Some(spec) = child(pod, "spec") else { return Ok(()) };
    let name = text(spec, "priorityClassName").to_owned();
    let (value, policy) = match class {
        Some(class) => {
            if name.is_empty() {
                set(spec, "priorityClassName", text(class, "metadata.name"));
            }
            (int(class, "value").unwrap_or(0), text(class, "preemptionPolicy").to_owned())
        }
        None if name.is_empty() => (0, String::new()),
        None => return Err(PriorityRefusal::NoClass(name)),
    };
    let policy = if policy.is_empty() { "PreemptLowerPriority".to_owned() } else { policy };
    if let Some(given) = int(spec, "priority").filter(|given| *given != value) {
        return Err(PriorityRefusal::Priority { given, computed: value });
    }
    let given = text(spec, "preemptionPolicy").to_owned();
    if !given.is_empty() && given != policy {
        return Err(PriorityRefusal::Policy { given, computed: policy });
    }
    set(spec, "priority", value);
    set(spec, "preemptionPolicy", policy);
    Ok(())
}

fn service_account(spec: &mut Value) {
    set_default_text(spec, "serviceAccountName", "default");
    let name = text(spec, "serviceAccountName").to_owned();
    set(spec, "serviceAccount", name);
}

/// A pod stays for five minutes on a node that is not ready or cannot be reached.
fn tolerate_lost_nodes(spec: &mut Value) {
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let is_tolerated = list(spec, "tolerations").iter().any(|toleration| {
            let its_key = text(toleration, "key");
            (its_key == key || its_key.is_empty()) && matches!(text(toleration, "effect"), "NoExecute" | "")
        });
        if is_tolerated {
            continue;
        }
        set_default(spec, "tolerations", json!([]));
        if let Some(tolerations) = at_mut(spec, "tolerations").and_then(Value::as_array_mut) {
            let toleration =
                json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
            tolerations.push(toleration);
        }
    }
}

fn add_finalizer(object: &mut Value, name: &str) {
    let Some(meta) = child(object, "metadata") else { return };
    set_default(meta, "finalizers", json!([]));
    if let Some(finalizers) = at_mut(meta, "finalizers").and_then(Value::as_array_mut)
        && !finalizers.iter().any(|finalizer| finalizer == name)
    {
        finalizers.push(json!(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KubeVersion, find};

    #[test]
    fn pods_get_an_account_and_tolerations() {
        let kind = find(KubeVersion::V1_36, "", "v1", "pods").unwrap();
        let mut pod = json!({"spec": {"tolerations": [
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}]}});
        admit_create(kind, &mut pod);
        assert_eq!(pod["spec"]["serviceAccountName"], "default");
        assert_eq!(pod["spec"]["serviceAccount"], "default");
        let keys: Vec<_> = list(&pod, "spec.tolerations").iter().map(|t| text(t, "key")).collect();
        assert_eq!(keys, ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]);
        let once = pod.clone();
        admit_create(kind, &mut pod);
        assert_eq!(pod, once);
    }

    #[track_caller]
    fn priority(spec: Value, class: Option<Value>, expected: Result<Value, &str>) {
        let mut pod = json!({ "spec": spec });
        let result = apply_priority(&mut pod, class.as_ref()).map_err(|error| error.to_string());
        assert_eq!(result.map(|()| pod["spec"].clone()), expected.map_err(str::to_owned));
    }

    #[test]
    fn priorities() {
        priority(json!({}), None, Ok(json!({"priority": 0, "preemptionPolicy": "PreemptLowerPriority"})));
        let class = json!({"metadata": {"name": "high"}, "value": 9, "preemptionPolicy": "Never"});
        priority(
            json!({"priorityClassName": "high"}),
            Some(class.clone()),
            Ok(json!({"priorityClassName": "high", "priority": 9, "preemptionPolicy": "Never"})),
        );
        priority(json!({"priorityClassName": "x"}), None, Err("no PriorityClass with name x was found"));
        priority(
            json!({"priority": 3, "priorityClassName": "high"}),
            Some(class),
            Err("the integer value of priority (3) must not be provided in pod spec; \
                 priority admission controller computed 9 from the given PriorityClass name"),
        );
    }
}
