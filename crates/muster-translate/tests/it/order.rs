//! The law of the translator: one by one is the same as all at once.

use crate::settings;
use crate::world::any_object;
use muster_model::{Cluster, Time};
use muster_translate::{Settings, Translator, apply, cluster};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What names an object.
fn identity(object: &Value) -> String {
    let text = |at: &Value| at.as_str().unwrap_or("default").to_owned();
    let metadata = &object["metadata"];
    format!(
        "{} {} {} {}",
        text(&object["apiVersion"]),
        text(&object["kind"]),
        text(&metadata["namespace"]),
        text(&metadata["name"])
    )
}

#[derive(Clone, Debug)]
enum Event {
    Put(Value),
    Delete(Value),
    Drain,
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => any_object().prop_map(Event::Put),
        2 => any_object().prop_map(Event::Delete),
        1 => Just(Event::Drain),
    ]
}

/// Any shard has to live by the laws.
fn any_settings() -> impl Strategy<Value = Settings> {
    prop::sample::select(vec![None, Some("x")]).prop_map(shard)
}

fn shard(pool: Option<&str>) -> Settings {
    let mut settings = settings();
    settings.pool.value = pool.map(Into::into);
    settings
}

#[track_caller]
fn check(settings: Settings, events: impl IntoIterator<Item = Event>) {
    let mut translator = Translator::new(settings.clone());
    let mut stepwise = Cluster { now: settings.now, ..Cluster::default() };
    let mut there: BTreeMap<String, Value> = BTreeMap::new();
    for event in events {
        match event {
            Event::Put(object) => {
                translator.put(&object);
                there.insert(identity(&object), object);
            }
            Event::Delete(object) => {
                // Only kind and name are there when an object is gone.
                let bare = json!({"apiVersion": object["apiVersion"], "kind": object["kind"],
                    "metadata": {"name": object["metadata"]["name"], "namespace": object["metadata"]["namespace"]}});
                translator.delete(&bare);
                there.remove(&identity(&object));
            }
            Event::Drain => apply(&mut stepwise, translator.drain().0),
        }
    }
    apply(&mut stepwise, translator.drain().0);
    let (whole, _) = cluster(&there.into_values().collect::<Vec<_>>(), &settings);
    assert_eq!(stepwise, whole);
    assert_eq!(translator.drain().0, vec![], "nothing is left to say");
}

#[test]
fn a_default_priority_reaches_the_gangs_of_a_workload() {
    let workload = json!({"apiVersion": "scheduling.k8s.io/v1alpha1", "kind": "Workload",
        "metadata": {"name": "a", "namespace": "n"},
        "spec": {"podGroups": [{"name": "g", "policy": {"gang": {"minCount": 2}}}]}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "n"},
        "spec": {"schedulerName": "kai-scheduler", "workloadRef": {"name": "a", "podGroup": "g"}}});
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": "a"}, "globalDefault": true, "value": 1});
    check(settings(), [Event::Put(workload), Event::Put(pod), Event::Drain, Event::Put(class)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn one_by_one_is_all_at_once(settings in any_settings(), events in prop::collection::vec(any_event(), 0..60)) {
        check(settings, events);
    }

    /// Of two shards that see everything, each pod that is for either is for one of them, and a gang for one as a whole.
    #[test]
    fn shards_share_no_pod_and_split_no_gang(objects in prop::collection::vec(any_object(), 0..40)) {
        let unique: BTreeMap<String, Value> = objects.into_iter().map(|o| (identity(&o), o)).collect();
        let objects: Vec<Value> = unique.into_values().collect();
        let [(ours, _), (theirs, _)] = [None, Some("x")].map(|pool| cluster(&objects, &shard(pool)));
        prop_assert_eq!(ours.pods.len(), theirs.pods.len());
        for (a, b) in ours.pods.iter().zip(&theirs.pods) {
            let scheduler = |object: &&Value| object["kind"] == "Pod"
                && object["metadata"]["name"] == *a.key.name && object["metadata"]["namespace"] == *a.key.namespace;
            let scheduler = objects.iter().find(scheduler).map(|pod| pod["spec"]["schedulerName"].as_str());
            let n = usize::from(a.gang.is_some()) + usize::from(b.gang.is_some());
            prop_assert_eq!(n, usize::from(scheduler != Some(Some("other"))), "{}", &a.key);
        }
        let gangs = |cluster: &Cluster| cluster.gangs.iter().map(|gang| gang.key.clone()).collect::<Vec<_>>();
        let (of_a, of_b) = (gangs(&ours), gangs(&theirs));
        for (mine, other) in [(&of_a, &theirs), (&of_b, &ours)] {
            for pod in &other.pods {
                prop_assert!(pod.gang.as_ref().is_none_or(|gang| !mine.contains(gang)), "{}", &pod.key);
            }
        }
    }

    #[test]
    fn order_does_not_matter(
        settings in any_settings(),
        objects in prop::collection::vec(any_object(), 0..40),
        seed in any::<u64>(),
    ) {
        let unique: BTreeMap<String, Value> = objects.into_iter().map(|o| (identity(&o), o)).collect();
        let mut objects: Vec<Value> = unique.into_values().collect();
        let (straight, problems) = cluster(&objects, &settings);
        // A shuffle of its own, so that a failure can be repeated.
        let mut state = seed;
        for i in (1..objects.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            objects.swap(i, (state >> 33) as usize % (i + 1));
        }
        let (shuffled, other_problems) = cluster(&objects, &settings);
        prop_assert_eq!(straight, shuffled);
        prop_assert_eq!(problems, other_problems);
    }

    #[test]
    fn time_alone_changes_what_it_should(objects in prop::collection::vec(any_object(), 0..30), later in 0..600_000_i64) {
        let mut translator = Translator::new(settings());
        let mut stepwise = Cluster::default();
        for object in &objects {
            translator.put(object);
        }
        apply(&mut stepwise, translator.drain().0);
        let now = Time(settings().now.0 + later);
        translator.set_now(now);
        apply(&mut stepwise, translator.drain().0);
        stepwise.now = now;
        let mut settings = settings();
        settings.now = now;
        let unique: BTreeMap<String, Value> = objects.into_iter().map(|o| (identity(&o), o)).collect();
        let (whole, _) = cluster(&unique.into_values().collect::<Vec<_>>(), &settings);
        prop_assert_eq!(stepwise, whole);
    }

    /// Any JSON under any kind: no panic, and diagnostics in proportion.
    #[test]
    fn nonsense_is_survived(kind in any_object(), nonsense in any_json(), place in 0..4_usize) {
        let mut object = kind;
        match place {
            0 => object["spec"] = nonsense,
            1 => object["status"] = nonsense,
            2 => object["metadata"]["annotations"] = nonsense,
            _ => {
                if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
                    for value in spec.values_mut() {
                        *value = nonsense.clone();
                    }
                }
            }
        }
        let (_, found) = crate::translate(&[object]);
        prop_assert!(found.len() < 60);
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(|b| json!(b)),
        any::<i64>().prop_map(|n| json!(n)),
        any::<f64>().prop_map(|n| json!(n)),
        ".{0,12}".prop_map(|s| json!(s)),
    ];
    let key = prop_oneof![
        Just("name".to_owned()),
        Just("requests".to_owned()),
        Just("containers".to_owned()),
        Just("gpu-fraction".to_owned()),
        Just("devices".to_owned()),
        ".{0,6}",
    ];
    leaf.prop_recursive(4, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(|items| json!(items)),
            prop::collection::vec((key.clone(), inner), 0..5)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}
