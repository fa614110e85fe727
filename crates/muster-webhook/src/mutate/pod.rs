//! New pods: the defaults of their namespace, the wiring of shared GPUs, and their group.
//!
//! In: a pod as JSON. Out: a verdict with the pod as it is to be. Must stay true: the same request makes the same pod; a pod that is
//! already as it should be stays so; nothing that the user wrote is replaced but what would keep a shared GPU from
//! reaching its container.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::defaults::{self, VISIBLE_DEVICES};
use crate::keys;
use crate::request::{Asked, Operation};
use crate::settings::Settings;
use crate::share::{self, Share, Slot};
use crate::validate;
use crate::verdict::Verdict;
use crate::world::World;

/// Says to which group a new pod belongs, so that it need not be written to once more. `None`: not known at this moment.
pub type Grouper = Arc<dyn Fn(&Value) -> Option<Membership> + Send + Sync>;

/// What a grouper adds to a pod; keys that the pod has are left as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Membership {
    pub annotations: BTreeMap<String, String>,
    pub labels: BTreeMap<String, String>,
}

pub fn mutate(
    asked: &Asked<'_>,
    settings: &Settings,
    world: &dyn World,
    grouper: Option<&Grouper>,
) -> Verdict {
    let mut verdict = Verdict::default();
    let pod = asked.object;
    if asked.operation != Operation::Create || !pod["spec"].is_object() {
        return verdict;
    }
    let scheduler = defaults::scheduler(pod, asked.namespace, settings, world);
    if !settings.is_ours(scheduler) {
        return verdict;
    }
    // The API server's own refusal comes before validating webhooks and does not say what to write.
    validate::pod::part_of_a_gpu_as_quantity(pod, &mut verdict);
    if !verdict.allows() {
        return verdict;
    }
    let mut new = pod.clone();
    if pod["spec"]["schedulerName"].as_str().unwrap_or_default() != scheduler && !scheduler.is_empty() {
        new["spec"]["schedulerName"] = scheduler.into();
    }
    if let Some(queue) = defaults::queue(pod, asked.namespace, settings, world) {
        put(&mut new, "labels", &settings.queue_label, &queue);
    }
    wire_share(&mut new, asked, settings, world);
    if settings.device_access {
        hide_devices(&mut new);
    }
    if let Some(grouper) = grouper {
        group(&mut new, grouper);
    }
    verdict.make(pod, new);
    verdict
}

/// Puts a label or an annotation that is not there yet.
fn put(pod: &mut Value, place: &str, key: &str, value: &str) {
    if !pod["metadata"].is_object() {
        pod["metadata"] = json!({});
    }
    let map = &mut pod["metadata"][place];
    if !map.is_object() {
        *map = json!({});
    }
    if let Some(map) = map.as_object_mut() {
        map.entry(key).or_insert_with(|| value.into());
    }
}

/// A container that shares a GPU learns which one, and how much of it, from config maps that the binder fills once the
/// place is known.
fn wire_share(pod: &mut Value, asked: &Asked<'_>, settings: &Settings, world: &dyn World) {
    let share = Share::of(pod);
    if !share.is_asked() || !settings.gpu_sharing {
        return;
    }
    // Validation refuses a pod that names a container it does not have.
    let Some(slot) = Slot::of(pod, share.container) else { return };
    let prefix = match pod["metadata"]["annotations"][keys::CONFIG_MAP].as_str() {
        Some(prefix) => prefix.to_owned(),
        None => {
            let prefix = config_map_prefix(pod, asked.uid);
            put(pod, "annotations", keys::CONFIG_MAP, &prefix);
            prefix
        }
    };
    let values = share::config_map(&prefix, slot);
    let (list, index) = slot.path();
    if let Some(container) = pod["spec"][list].get_mut(index).and_then(Value::as_object_mut) {
        for name in [VISIBLE_DEVICES, "RUNAI_NUM_OF_GPUS", "GPU_PORTION"] {
            set_env(container, name, &json!({"configMapKeyRef": {"name": values, "key": name}}));
        }
        if settings.hami_core {
            let name = "CUDA_DEVICE_MEMORY_LIMIT";
            let source = json!({"configMapKeyRef": {"name": values, "key": name, "optional": true}});
            set_env(container, name, &source);
        }
        let all = json!({"configMapRef": {"name": share::env_config_map(&values), "optional": false}});
        push_new(container, "envFrom", all, |entry, new| {
            entry["configMapRef"]["name"] == new["configMapRef"]["name"]
        });
    }
    if let Some(spec) = pod["spec"].as_object_mut() {
        let volume = json!({"name": format!("{values}-vol"), "configMap": {"name": values}});
        push_new(spec, "volumes", volume, |entry, new| entry["name"] == new["name"]);
        let class = settings.fraction_runtime_class.as_str();
        let has_class =
            spec.get("runtimeClassName").and_then(Value::as_str).is_some_and(|name| !name.is_empty());
        // A pod that names a class which is not there is refused, so a cluster without it goes without.
        if !has_class && !class.is_empty() && world.has_runtime_class(class) == Some(true) {
            spec.insert("runtimeClassName".into(), class.into());
        }
    }
}

/// Whatever the variable said before would hide the GPU.
fn set_env(container: &mut Map<String, Value>, name: &str, source: &Value) {
    let env = container.entry("env").or_insert_with(|| json!([]));
    if !env.is_array() {
        *env = json!([]);
    }
    let Some(env) = env.as_array_mut() else { return };
    let wanted = json!({"name": name, "valueFrom": source});
    let mut is_there = false;
    env.retain_mut(|variable| {
        if variable["name"] != name {
            return true;
        }
        if is_there {
            return false;
        }
        is_there = true;
        if variable["valueFrom"] != *source {
            *variable = wanted.clone();
        }
        true
    });
    if !is_there {
        env.push(wanted);
    }
}

fn push_new(map: &mut Map<String, Value>, list: &str, new: Value, is_same: impl Fn(&Value, &Value) -> bool) {
    let entries = map.entry(list).or_insert_with(|| json!([]));
    if !entries.is_array() {
        *entries = json!([]);
    }
    if let Some(entries) = entries.as_array_mut()
        && !entries.iter().any(|entry| is_same(entry, &new))
    {
        entries.push(new);
    }
}

/// A new name for a pod's config maps: whose they are, letters that no other request gets, and what they are for. With the
/// endings `-i99999-evar` and `-i99999-vol` it is still a label, since volumes must be named by one.
fn config_map_prefix(pod: &Value, uid: &str) -> String {
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    const LONGEST: usize = 63 - "-1234567-shared-gpu".len() - "-i99999-evar".len();
    let meta = &pod["metadata"];
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let owner = text(&meta["ownerReferences"][0]["name"]);
    let base =
        owner.or_else(|| text(&meta["name"])).or_else(|| text(&meta["generateName"])).unwrap_or_default();
    let mut name: String = base
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
        .take(LONGEST)
        .collect();
    name = name.trim_matches('-').to_owned();
    if name.is_empty() {
        name.push_str("pod");
    }
    let mut number = muster_runtime::json::stable_u64(uid);
    let mut letters = String::new();
    for _ in 0..7 {
        let digit = usize::try_from(number % 27).unwrap_or(0);
        letters.push(char::from(LETTERS.get(digit).copied().unwrap_or(b'b')));
        number /= 27;
    }
    format!("{name}-{letters}-shared-gpu")
}

/// Containers that the device plugin gives no GPU see none, whatever their image says. Devices of claims do not come by this variable
/// (their drivers set it to `void` themselves), and a claim may be for anything.
fn hide_devices(pod: &mut Value) {
    let sharer = Share::of(pod).sharer(pod);
    let hidden: Vec<Slot> = share::containers(pod)
        .filter(|(slot, container)| Some(*slot) != sharer && !share::asks_gpu_device(container))
        .map(|(slot, _)| slot)
        .collect();
    for slot in hidden {
        let (list, index) = slot.path();
        let Some(container) = pod["spec"][list].get_mut(index).and_then(Value::as_object_mut) else {
            continue;
        };
        // A value of the user's is left for validation to judge.
        let void = json!({"name": VISIBLE_DEVICES, "value": "void"});
        push_new(container, "env", void, |entry, new| entry["name"] == new["name"]);
    }
}

fn group(pod: &mut Value, grouper: &Grouper) {
    let annotations = &pod["metadata"]["annotations"];
    if annotations.get(keys::POD_GROUP).is_some() || annotations[keys::SKIP_GROUPER] == "true" {
        return;
    }
    let Some(membership) = grouper(pod) else { return };
    for (key, value) in &membership.annotations {
        put(pod, "annotations", key, value);
    }
    for (key, value) in &membership.labels {
        put(pod, "labels", key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::Given;

    fn world(labels: Value) -> Given {
        let namespace = json!({"metadata": {"name": "ns", "labels": labels}});
        Given {
            namespaces: [("ns".to_owned(), Arc::new(serde_json::from_value(namespace).unwrap()))].into(),
            runtime_classes: Some(["nvidia".to_owned()].into()),
            ..Given::default()
        }
    }

    /// The pod as it is to be.
    #[track_caller]
    fn apply(pod: &Value, settings: &Settings, world: &dyn World, grouper: Option<&Grouper>) -> Value {
        let null = Value::Null;
        let create = |object| Asked {
            operation: Operation::Create,
            namespace: "ns",
            name: "p",
            uid: "0b67c0de",
            object,
            old: &null,
        };
        let verdict = mutate(&create(pod), settings, world, grouper);
        assert!(verdict.allows(), "{}", verdict.refusal());
        let new = verdict.made.unwrap_or_else(|| pod.clone());
        let again = mutate(&create(&new), settings, world, grouper);
        assert_eq!(again.made, None, "a second look changes nothing");
        new
    }

    #[track_caller]
    fn check(pod: Value, settings: &Settings, labels: Value, expected: Value) {
        assert_eq!(apply(&pod, settings, &world(labels), None), expected);
    }

    fn pod(annotations: Value, containers: Value) -> Value {
        json!({"metadata": {"name": "p", "annotations": annotations},
               "spec": {"schedulerName": "kai-scheduler", "containers": containers}})
    }

    #[test]
    fn others_are_left_alone() {
        let settings = Settings::default();
        for pod in [
            json!({"metadata": {"name": "p", "annotations": {"gpu-fraction": "0.5"}},
                   "spec": {"schedulerName": "default-scheduler", "containers": [{"name": "a"}]}}),
            pod(json!({}), json!([{"name": "a"}])),
            pod(json!({"gpu-fraction": "0.5"}), json!([])),
            pod(json!({"gpu-fraction": "0.5", "gpu-fraction-container-name": "x"}), json!([{"name": "a"}])),
            json!({"metadata": {}, "spec": null}),
            json!(null),
        ] {
            check(pod.clone(), &settings, json!({"muster.dev/other": "x"}), pod);
        }
    }

    #[test]
    fn wires_a_shared_gpu() {
        let from = |map: &str, name: &str| json!({"name": name, "valueFrom": {"configMapKeyRef": {"name": map, "key": name}}});
        let prefix = "p-lgjmgbk-shared-gpu";
        let made = apply(
            &pod(json!({"gpu-fraction": "0.5"}), json!([{"name": "a"}])),
            &Settings::default(),
            &world(json!({})),
            None,
        );
        let prefix = made["metadata"]["annotations"][keys::CONFIG_MAP].as_str().unwrap_or(prefix).to_owned();
        assert!(
            prefix.starts_with("p-") && prefix.ends_with("-shared-gpu") && prefix.len() == 20,
            "{prefix}"
        );
        let map = format!("{prefix}-0");
        assert_eq!(
            made,
            json!({
                "metadata": {"name": "p", "annotations": {"gpu-fraction": "0.5", "runai/shared-gpu-configmap": prefix}},
                "spec": {
                    "schedulerName": "kai-scheduler", "runtimeClassName": "nvidia",
                    "containers": [{
                        "name": "a",
                        "env": [
                            from(&map, "NVIDIA_VISIBLE_DEVICES"),
                            from(&map, "RUNAI_NUM_OF_GPUS"),
                            from(&map, "GPU_PORTION"),
                        ],
                        "envFrom": [{"configMapRef": {"name": format!("{map}-evar"), "optional": false}}],
                    }],
                    "volumes": [{"name": format!("{map}-vol"), "configMap": {"name": map}}],
                },
            })
        );
    }

    #[test]
    fn wires_the_named_container_and_replaces_what_hides_the_gpu() {
        let mut asked = pod(
            json!({"gpu-memory": "2000", "gpu-fraction-container-name": "init", "runai/shared-gpu-configmap": "mine"}),
            json!([{"name": "a"}]),
        );
        asked["spec"]["initContainers"] = json!([{"name": "x"}, {"name": "init", "env": [
            {"name": "A", "value": "1"}, {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "0"},
        ]}]);
        asked["spec"]["runtimeClassName"] = json!("own");
        let settings = Settings { hami_core: true, ..Settings::default() };
        let made = apply(&asked, &settings, &world(json!({})), None);
        assert_eq!(made["spec"]["containers"], json!([{"name": "a"}]));
        assert_eq!(made["spec"]["runtimeClassName"], "own");
        let env = made["spec"]["initContainers"][1]["env"].as_array().unwrap();
        let shown: Vec<String> = env
            .iter()
            .map(|v| format!("{}={}", v["name"].as_str().unwrap(), v["valueFrom"]["configMapKeyRef"]["name"]))
            .collect();
        assert_eq!(
            shown,
            [
                "A=null",
                "NVIDIA_VISIBLE_DEVICES=\"mine-i1\"",
                "RUNAI_NUM_OF_GPUS=\"mine-i1\"",
                "GPU_PORTION=\"mine-i1\"",
                "CUDA_DEVICE_MEMORY_LIMIT=\"mine-i1\"",
            ]
        );
    }

    #[test]
    fn sharing_can_be_switched_off_and_a_class_that_is_not_there_is_not_named() {
        let asked = pod(json!({"gpu-fraction": "0.5"}), json!([{"name": "a"}]));
        let off = Settings { gpu_sharing: false, ..Settings::default() };
        assert_eq!(apply(&asked, &off, &world(json!({})), None), asked);
        for runtime_classes in [None, Some(["other".to_owned()].into())] {
            let world = Given { runtime_classes, ..Given::default() };
            let made = apply(&asked, &Settings::default(), &world, None);
            assert_eq!(made["spec"]["runtimeClassName"], Value::Null);
        }
    }

    #[test]
    fn defaults_of_the_namespace() {
        let settings = Settings::default();
        let plain = |scheduler: &str, labels: Value| json!({"metadata": {"labels": labels}, "spec": {"schedulerName": scheduler, "containers": []}});
        let ours = json!({"muster.dev/scheduler": "kai-scheduler", "muster.dev/queue": "team"});
        let with_queue = json!({"kai.scheduler/queue": "team"});
        check(
            plain("default-scheduler", json!({})),
            &settings,
            ours.clone(),
            plain("kai-scheduler", with_queue.clone()),
        );
        check(plain("other", json!({})), &settings, ours.clone(), plain("other", json!({})));
        let own = json!({"kai.scheduler/queue": "own"});
        check(plain("kai-scheduler", own.clone()), &settings, ours.clone(), plain("kai-scheduler", own));
        let project = json!({"project": "x"});
        check(plain("kai-scheduler", project.clone()), &settings, ours, plain("kai-scheduler", project));
        let only_queue = json!({"muster.dev/queue": "team"});
        check(
            plain("default-scheduler", json!({})),
            &settings,
            only_queue.clone(),
            plain("default-scheduler", json!({})),
        );
        check(plain("kai-scheduler", json!({})), &settings, only_queue, plain("kai-scheduler", with_queue));
        let foreign = json!({"muster.dev/scheduler": "nobody"});
        check(
            plain("default-scheduler", json!({})),
            &settings,
            foreign,
            plain("default-scheduler", json!({})),
        );
    }

    #[test]
    fn a_part_of_a_gpu_as_a_quantity_is_refused_before_the_server_does() {
        let pod = pod(json!({}), json!([{"name": "a", "resources": {"limits": {"nvidia.com/gpu": "0.5"}}}]));
        let asked = Asked {
            operation: Operation::Create,
            namespace: "ns",
            name: "p",
            uid: "u",
            object: &pod,
            old: &Value::Null,
        };
        let verdict = mutate(&asked, &Settings::default(), &Given::default(), None);
        assert_eq!(
            verdict.refusal(),
            "spec.containers[0].resources.limits[nvidia.com/gpu]: GPUs are counted whole; remove this and use the \
             annotation gpu-fraction: \"0.5\""
        );
    }

    #[test]
    fn hides_devices() {
        let settings = Settings { device_access: true, ..Settings::default() };
        let asked = pod(
            json!({}),
            json!([
                {"name": "plain"},
                {"name": "gpu", "resources": {"limits": {"nvidia.com/gpu": 1}}},
                {"name": "mig", "resources": {"limits": {"nvidia.com/mig-1g.5gb": 1}}},
                {"name": "no-mig", "resources": {"limits": {"nvidia.com/mig-1g.5gb": 0}}},
                {"name": "no-gpu", "resources": {"limits": {"nvidia.com/gpu": "0"}}},
                {"name": "dra", "resources": {"claims": [{"name": "c"}]}},
                {"name": "own", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "none"}]},
            ]),
        );
        let made = apply(&asked, &settings, &world(json!({})), None);
        let shown: Vec<String> = made["spec"]["containers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| format!("{} {}", c["name"].as_str().unwrap(), c["env"][0]["value"]))
            .collect();
        assert_eq!(
            shown,
            [
                "plain \"void\"",
                "gpu null",
                "mig null",
                "no-mig \"void\"",
                "no-gpu \"void\"",
                "dra \"void\"",
                "own \"none\"",
            ]
        );
    }

    #[test]
    fn groups_at_creation() {
        let grouper: Grouper = Arc::new(|pod| {
            let name = pod["metadata"]["name"].as_str()?;
            Some(Membership {
                annotations: [(keys::POD_GROUP.to_owned(), format!("pg-{name}"))].into(),
                labels: [("kai.scheduler/subgroup-name".to_owned(), "s".to_owned())].into(),
            })
        });
        let settings = Settings::default();
        let asked = pod(json!({}), json!([]));
        let made = apply(&asked, &settings, &world(json!({})), Some(&grouper));
        assert_eq!(made["metadata"]["annotations"], json!({"pod-group-name": "pg-p"}));
        assert_eq!(made["metadata"]["labels"], json!({"kai.scheduler/subgroup-name": "s"}));
        for kept in [json!({"pod-group-name": "own"}), json!({"kai.scheduler/skip-podgrouper": "true"})] {
            let asked = pod(kept.clone(), json!([]));
            assert_eq!(apply(&asked, &settings, &world(json!({})), Some(&grouper)), asked);
        }
    }

    #[track_caller]
    fn check_prefix(metadata: Value, starts: &str) {
        let prefix = config_map_prefix(&json!({"metadata": metadata}), "uid");
        assert!(prefix.starts_with(&format!("{starts}-")), "{prefix}");
        let longest = share::env_config_map(&share::config_map(&prefix, Slot::Init(99_999)));
        assert!(longest.len() <= 63, "{longest}");
        assert!(
            prefix.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
            "{prefix}"
        );
    }

    #[test]
    fn names_of_config_maps() {
        check_prefix(json!({"name": "a.b"}), "a-b");
        check_prefix(json!({"name": "p", "ownerReferences": [{"name": "job"}]}), "job");
        check_prefix(json!({"generateName": "run-"}), "run");
        check_prefix(json!({}), "pod");
        check_prefix(json!({"name": "ü".repeat(100)}), "pod");
        check_prefix(json!({"name": "x".repeat(200)}), &"x".repeat(32));
        let of = |uid| config_map_prefix(&json!({"metadata": {"name": "p"}}), uid);
        assert_eq!(of("a"), of("a"));
        assert_ne!(of("a"), of("b"));
    }
}
