//! When a gang started: as its group says, or else as the first of its pods that run.

use crate::settings;
use muster_model::{Change, Key, Time};
use muster_translate::Translator;
use serde_json::{Value, json};

const NINE: &str = "2025-12-31T09:00:00Z";
const TEN: &str = "2025-12-31T10:00:00Z";
const ELEVEN: &str = "2025-12-31T11:00:00Z";

fn group(annotations: Value) -> Value {
    json!({"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
        "metadata": {"namespace": "n", "name": "g", "annotations": annotations}, "spec": {"minMember": 1}})
}

fn pod(name: &str, status: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "n", "name": name, "annotations": {"pod-group-name": "g"}},
        "spec": {"schedulerName": "kai-scheduler", "nodeName": "a"}, "status": status})
}

fn running(name: &str, started: &str) -> Value {
    pod(name, json!({"phase": "Running", "startTime": started}))
}

fn bound(at: &str) -> Value {
    json!([{"type": "Ready", "status": "True", "lastTransitionTime": NINE},
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": at}])
}

fn time(text: &str) -> Time {
    Time(text.parse::<jiff::Timestamp>().expect("a time").as_millisecond())
}

#[track_caller]
fn check(objects: &[Value], gang: &str, expected: Option<&str>) {
    let mut translator = Translator::new(settings());
    objects.iter().for_each(|object| translator.put(object));
    translator.drain();
    let gang = translator.made_gang(&Key::new("n", gang)).expect("the gang is there");
    assert_eq!(gang.last_start, expected.map(time));
}

#[test]
fn a_gang_that_does_not_say_so_started_with_the_first_of_its_pods_that_run() {
    let nothing = group(json!({}));
    check(std::slice::from_ref(&nothing), "g", None);
    check(&[nothing.clone(), running("a", ELEVEN), running("b", TEN)], "g", Some(TEN));
    // When it was given its node says more than when the kubelet saw it.
    let both = pod("a", json!({"phase": "Running", "startTime": TEN, "conditions": bound(NINE)}));
    check(&[nothing.clone(), both], "g", Some(NINE));
    let on_its_way = pod("a", json!({"phase": "Pending", "conditions": bound(TEN)}));
    check(&[nothing.clone(), on_its_way], "g", Some(TEN));
    check(&[nothing.clone(), pod("a", json!({"phase": "Running"}))], "g", None);
    // What is over, is about to go or has no node does not run.
    let over = pod("a", json!({"phase": "Succeeded", "startTime": NINE}));
    let mut leaves = running("b", NINE);
    leaves["metadata"]["deletionTimestamp"] = json!(TEN);
    let waits =
        json!({"conditions": [{"type": "PodScheduled", "status": "False", "lastTransitionTime": NINE}]});
    let mut waits = pod("c", waits);
    waits["spec"]["nodeName"] = json!(null);
    check(&[nothing.clone(), over, leaves, waits, running("d", ELEVEN)], "g", Some(ELEVEN));
    // Other schedulers' pods are none of its pods.
    let mut theirs = running("a", NINE);
    theirs["spec"]["schedulerName"] = json!("other");
    check(&[nothing, theirs, running("b", TEN)], "g", Some(TEN));
}

#[test]
fn what_the_group_says_holds() {
    let says = group(json!({"kai.scheduler/last-start-timestamp": ELEVEN}));
    check(&[says.clone(), running("a", TEN)], "g", Some(ELEVEN));
    check(&[says], "g", Some(ELEVEN));
}

#[test]
fn gangs_of_all_systems_start() {
    let of = |scheduler: &str, labels: Value, spec: Value| {
        let mut pod = running("p", TEN);
        pod["metadata"]["annotations"] = json!(null);
        pod["metadata"]["labels"] = labels;
        pod["spec"].as_object_mut().expect("an object").extend(spec.as_object().cloned().unwrap_or_default());
        pod["spec"]["schedulerName"] = json!(scheduler);
        pod
    };
    let group = |api: &str, spec: Value| json!({"apiVersion": api, "kind": "PodGroup", "metadata": {"namespace": "n", "name": "g"}, "spec": spec});
    for scheduler in ["kai-scheduler", "t9k-scheduler", "koord-scheduler"] {
        check(&[of(scheduler, json!({}), json!({}))], "p", Some(TEN));
    }
    let one = json!({"minMember": 1});
    let label = json!({"scheduler.tensorstack.dev/group-name": "g"});
    check(
        &[group("scheduler.tensorstack.dev/v1beta1", one.clone()), of("t9k-scheduler", label, json!({}))],
        "t9k/g",
        Some(TEN),
    );
    let label = json!({"pod-group.scheduling.sigs.k8s.io": "g"});
    check(
        &[group("scheduling.sigs.k8s.io/v1alpha1", one), of("koord-scheduler", label, json!({}))],
        "koordinator/g",
        Some(TEN),
    );
    let basic = json!({"schedulingPolicy": {"basic": {}}});
    let names = json!({"schedulingGroup": {"podGroupName": "g"}});
    check(
        &[group("scheduling.k8s.io/v1alpha2", basic), of("kai-scheduler", json!({}), names)],
        "kubernetes/g",
        Some(TEN),
    );
}

/// What is new of the gang, and whether all that is new is too little for a new decision.
fn drained(translator: &mut Translator) -> (Vec<Option<Time>>, bool) {
    let starts = translator.drain().0.into_iter().filter_map(|change| match change {
        Change::PutGang(gang) => Some(gang.last_start),
        _ => None,
    });
    (starts.collect(), translator.is_quiet())
}

#[test]
fn a_gang_changes_only_when_the_first_of_its_pods_does() {
    let mut translator = Translator::new(settings());
    translator.put(&group(json!({})));
    let mut assigned = pod("a", json!({"phase": "Pending"}));
    translator.put(&assigned);
    assert_eq!(drained(&mut translator).0, [None]);
    // It starts: nobody may take more than before.
    assigned["status"] = json!({"phase": "Pending", "conditions": bound(TEN)});
    translator.put(&assigned);
    assert_eq!(drained(&mut translator), (vec![Some(time(TEN))], true));
    // Whoever starts later changes nothing, and neither does how far the first is.
    translator.put(&running("b", ELEVEN));
    assert_eq!(drained(&mut translator), (vec![], false));
    translator.put(&running("a", TEN));
    assert_eq!(drained(&mut translator), (vec![], true));
    translator.put(&running("c", NINE));
    assert_eq!(drained(&mut translator), (vec![Some(time(NINE))], false));
    // The first goes, in whichever way.
    translator.put(&pod("c", json!({"phase": "Failed", "startTime": NINE})));
    assert_eq!(drained(&mut translator), (vec![Some(time(TEN))], false));
    translator.delete(&running("a", TEN));
    assert_eq!(drained(&mut translator), (vec![Some(time(ELEVEN))], false));
    translator.delete(&running("b", ELEVEN));
    assert_eq!(drained(&mut translator), (vec![None], false));
}
