//! An object read into its type and written back is the same object.

use crate::generate::{Dice, damage, object, schemas};
use crate::shared;
use muster_api::common::{Duration, IntOrString, Quantity, Time};
use muster_api::{KindInfo, kind_info};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::LazyLock;

/// Schemas of every type, those without a CRD included.
static SCHEMAS: LazyLock<Vec<(String, String, Value)>> = LazyLock::new(|| {
    let mut out = schemas(&muster_api::crds(None));
    for (version, kind) in [("v1alpha1", "Workload"), ("v1alpha2", "Workload"), ("v1alpha2", "PodGroup")] {
        let api_version = format!("scheduling.k8s.io/{version}");
        let schema = muster_api::schema::structural(kind_info(&api_version, kind).unwrap().shape);
        out.push((api_version, kind.to_owned(), schema));
    }
    out
});

fn kind_of(object: &Value) -> Option<&'static KindInfo> {
    kind_info(object["apiVersion"].as_str()?, object["kind"].as_str()?)
}

#[track_caller]
fn check_same(object: &Value) {
    let kind = kind_of(object).unwrap_or_else(|| panic!("no type for {object}"));
    let back = (kind.reread)(object.clone()).unwrap_or_else(|e| panic!("{e}: {object}"));
    assert_eq!(&back, object);
}

#[test]
fn every_kind_has_a_type() {
    for (api_version, kind, _) in SCHEMAS.iter() {
        let info = kind_info(api_version, kind).unwrap();
        assert_eq!(
            (muster_api::schema::api_version(info).as_str(), info.kind),
            (api_version.as_str(), kind.as_str())
        );
    }
    assert_eq!(SCHEMAS.len(), 5 + 6 + 22 + 11 + 11 + 10 + 3);
    assert!(kind_info("grove.io/v1", "PodCliqueSet").is_none());
    assert!(kind_info("v1", "Pod").is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn generated_objects_stay_the_same(seed in any::<u64>()) {
        let mut dice = Dice::new(seed);
        for (api_version, kind, schema) in SCHEMAS.iter() {
            check_same(&object(&mut dice, api_version, kind, schema));
        }
    }

    #[test]
    fn damaged_objects_are_read_or_refused(seed in any::<u64>()) {
        let mut dice = Dice::new(seed);
        for (api_version, kind, schema) in SCHEMAS.iter() {
            let mut object = object(&mut dice, api_version, kind, schema);
            damage(&mut dice, &mut object);
            if let Ok(once) = (kind_of(&object).unwrap().reread)(object) {
                check_same(&once);
            }
        }
    }
}

#[test]
fn samples_stay_the_same() {
    let Some(folder) = shared::folder() else { return };
    let mut n_read = 0;
    for file in shared::yaml_files(&folder.join("samples")) {
        if shared::cut_short(&file) {
            continue;
        }
        for document in shared::documents(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display())) {
            if let Some(kind) = kind_of(&document) {
                let back =
                    (kind.reread)(document.clone()).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
                assert_same_but_for_nothing(&file.display().to_string(), &back, &document);
                n_read += 1;
            }
        }
    }
    assert!(n_read > 80, "only {n_read} objects of our kinds in the samples");
}

/// A required field that a sample leaves out or empty (`spec:`) reads as its default; all else is the same.
#[track_caller]
fn assert_same_but_for_nothing(context: &str, back: &Value, original: &Value) {
    match (back, original) {
        (Value::Object(back), Value::Object(original)) => {
            for (key, value) in original {
                let back = back.get(key).unwrap_or(&Value::Null);
                assert_same_but_for_nothing(&format!("{context} {key}"), back, value);
            }
        }
        (Value::Array(back), Value::Array(original)) => {
            assert_eq!(back.len(), original.len(), "{context}");
            for (back, original) in back.iter().zip(original) {
                assert_same_but_for_nothing(context, back, original);
            }
        }
        (_, Value::Null) => {}
        _ => assert_eq!(back, original, "{context}"),
    }
}

#[test]
fn an_object_of_another_kind_is_refused() {
    let refused = |object: Value| {
        serde_json::from_value::<muster_api::kueue::v1beta2::Workload>(object).unwrap_err().to_string()
    };
    assert_eq!(
        refused(json!({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload"})),
        "apiVersion is kueue.x-k8s.io/v1beta1, expected kueue.x-k8s.io/v1beta2"
    );
    assert_eq!(
        refused(json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort"})),
        "kind is Cohort, expected Workload"
    );
}

#[test]
fn a_malformed_object_reads_like_in_go() {
    let group: muster_api::podgang::PodGang =
        serde_json::from_value(json!({"spec": {"podgroups": [{"name": "a"}, {"minReplicas": null}]}}))
            .unwrap();
    assert_eq!(group.spec.podgroups.len(), 2);
    assert_eq!(group.spec.podgroups[0].min_replicas, 0);
    assert_eq!(group.spec.podgroups[1].name, "");
}

#[test]
fn absent_and_empty_stay_apart() {
    for spec in [json!({}), json!({"resourceGroups": []}), json!({"namespaceSelector": {}})] {
        check_same(
            &json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {}, "spec": spec}),
        );
    }
    check_same(&json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {}}));
}

#[test]
fn values_keep_their_form() {
    for text in ["1", "\"1\"", "\"0.5\"", "2.5", "\"not a quantity\""] {
        let quantity: Quantity = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&quantity).unwrap(), text);
    }
    for text in ["80", "\"http\"", "\"25%\""] {
        let port: IntOrString = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&port).unwrap(), text);
    }
    assert!(serde_json::from_str::<Quantity>("true").is_err());
    assert!(serde_json::from_str::<IntOrString>("1.5").is_err());
    assert_eq!(
        Quantity::from("1500m").parse().unwrap(),
        Quantity::from(15).parse().unwrap() - "13.5".parse().unwrap()
    );
    assert!(Quantity::from("much").parse().is_err());
}

#[test]
fn times_are_read_on_request() {
    let time = Time("2025-12-04T10:30:00.5+01:00".to_owned());
    assert_eq!(Time::from(time.instant().unwrap()).0, "2025-12-04T09:30:00Z");
    assert_eq!(Time("soon".to_owned()).instant(), None);
}

#[test]
fn durations_are_go_durations() {
    #[track_caller]
    fn check(text: &str, millis: Option<u64>) {
        let parsed = Duration(text.to_owned()).parse();
        assert_eq!(parsed, millis.map(std::time::Duration::from_millis), "{text}");
    }
    check("0", Some(0));
    check("30s", Some(30_000));
    check("1h2m3.5s", Some(3_723_500));
    check("250ms", Some(250));
    check("+1m", Some(60_000));
    check(".5s", Some(500));
    check("1.000000000000000000000000000001s", Some(1_000));
    for wrong in ["", "5", "-1s", "1d", "s", ".s", "1s2", "99999999999999999999999h", "１s"] {
        check(wrong, None);
    }
}

proptest! {
    #[test]
    fn a_duration_reads_as_it_was_written(nanos in any::<u64>()) {
        let length = std::time::Duration::from_nanos(nanos);
        prop_assert_eq!(Duration::from(length).parse(), Some(length));
    }

    #[test]
    fn any_text_is_a_duration_or_not(text in "[0-9.+a-zµ-]{0,12}") {
        let _ = Duration(text).parse();
    }
}

#[test]
fn a_pod_template_is_typed_on_request() {
    let template = muster_api::common::PodTemplate(
        json!({"spec": {"containers": [{"name": "main", "image": "x"}], "newField": 1}})
            .as_object()
            .unwrap()
            .clone(),
    );
    assert_eq!(template.typed().unwrap().spec.unwrap().containers[0].name, "main");
    let wrong =
        muster_api::common::PodTemplate(json!({"spec": {"containers": 3}}).as_object().unwrap().clone());
    assert!(wrong.typed().is_err());
}
