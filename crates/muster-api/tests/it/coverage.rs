//! Our CRDs against upstream's, and that the comparison sees what it should.

use crate::shared;
use muster_api::coverage::{compare, indent_quoted};
use muster_api::{System, crds};
use serde_json::{Value, json};

#[test]
fn upstream_is_covered() {
    let Some(folder) = shared::folder() else { return };
    let upstream: Vec<Value> =
        shared::yaml_files(&folder.join("crds")).iter().flat_map(|f| shared::documents(f).unwrap()).collect();
    assert!(upstream.len() > 40, "only {} CRDs read", upstream.len());
    let report = compare(&crds(None), &upstream);
    assert!(report.missing.is_empty() && report.differ.is_empty(), "{report}");
    assert!(
        report.to_string().ends_with(&format!("\n0 missing, 0 differ, {} allowed\n", report.allowed.len()))
    );
}

/// Kueue's CRDs have no deviation, so a change to a copy of them is all that the report has.
fn upstream() -> Vec<Value> {
    crds(Some(&[System::Kueue]))
}

#[track_caller]
fn check(pointer: &str, value: Option<Value>, expected: &str) {
    let mut changed = upstream();
    let (parent, last) = pointer.rsplit_once('/').unwrap();
    let parent = changed[0].pointer_mut(parent).unwrap_or_else(|| panic!("nothing at {pointer}"));
    match (parent, value) {
        (Value::Object(parent), Some(value)) => drop(parent.insert(last.to_owned(), value)),
        (Value::Object(parent), None) => drop(parent.remove(last).unwrap()),
        (Value::Array(parent), Some(value)) => parent[last.parse::<usize>().unwrap()] = value,
        (Value::Array(parent), None) => drop(parent.remove(last.parse().unwrap())),
        _ => panic!("nothing to change at {pointer}"),
    }
    assert_eq!(compare(&upstream(), &changed).to_string(), expected.trim_start());
}

const V2: &str = "/spec/versions/1/schema/openAPIV3Schema/properties/spec/properties";

#[test]
fn every_difference_is_seen() {
    assert_eq!(compare(&upstream(), &upstream()).to_string(), "0 missing, 0 differ, 0 allowed\n");
    let spec = |path: &str| format!("{V2}/{path}");
    check(
        "/spec/scope",
        Some(json!("Namespaced")),
        "
differs  clusterqueues.kueue.x-k8s.io: scope: upstream \"Namespaced\", ours \"Cluster\"
0 missing, 1 differ, 0 allowed
",
    );
    check(
        "/spec/names/shortNames/0",
        Some(json!("q")),
        "
differs  clusterqueues.kueue.x-k8s.io: shortNames: only upstream [\"q\"], only ours [\"cq\"]
0 missing, 1 differ, 0 allowed
",
    );
    check(
        "/spec/names/categories",
        Some(json!(["all"])),
        "
differs  clusterqueues.kueue.x-k8s.io: categories: only upstream [\"all\"]
0 missing, 1 differ, 0 allowed
",
    );
    check(
        "/spec/versions/1/storage",
        Some(json!(false)),
        "
differs  clusterqueues.kueue.x-k8s.io v1beta2: storage: upstream false, ours true
0 missing, 1 differ, 0 allowed
",
    );
    check(
        "/spec/versions/0/deprecated",
        None,
        "
differs  clusterqueues.kueue.x-k8s.io v1beta1: deprecated: upstream false, ours true
0 missing, 1 differ, 0 allowed
",
    );
    check("/spec/versions/1/subresources/scale", Some(json!({"specReplicasPath": ".spec.x"})), "
differs  clusterqueues.kueue.x-k8s.io v1beta2: scale: upstream {\"specReplicasPath\":\".spec.x\"}, ours nothing
0 missing, 1 differ, 0 allowed
");
    check(
        "/spec/versions/1/additionalPrinterColumns/0",
        None,
        "
differs  clusterqueues.kueue.x-k8s.io v1beta2 column Cohort: extra
0 missing, 1 differ, 0 allowed
",
    );
    check(
        "/spec/versions/1/additionalPrinterColumns/0/priority",
        Some(json!(1)),
        "
differs  clusterqueues.kueue.x-k8s.io v1beta2 column Cohort: priority: upstream 1, ours 0
0 missing, 1 differ, 0 allowed
",
    );
    check(
        &spec("new"),
        Some(json!({"type": "string"})),
        "
missing  clusterqueues.kueue.x-k8s.io v1beta2 spec.new: missing
1 missing, 0 differ, 0 allowed
",
    );
    check(
        &spec("stopPolicy"),
        None,
        "
differs  clusterqueues.kueue.x-k8s.io v1beta2 spec.stopPolicy: extra
0 missing, 1 differ, 0 allowed
",
    );
    check(
        &spec("stopPolicy/default"),
        None,
        "
differs  clusterqueues.kueue.x-k8s.io v1beta2 spec.stopPolicy: default: upstream nothing, ours \"None\"
0 missing, 1 differ, 0 allowed
",
    );
    check(
        &spec("stopPolicy/enum/0"),
        None,
        "
differs  clusterqueues.kueue.x-k8s.io v1beta2 spec.stopPolicy: enum: only ours [\"None\"]
0 missing, 1 differ, 0 allowed
",
    );
    check(
        &spec("cohortName/pattern"),
        Some(json!("x")),
        "
differs  clusterqueues.kueue.x-k8s.io v1beta2 spec.cohortName: pattern: upstream \"x\", ours \
\"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$\"
0 missing, 1 differ, 0 allowed
",
    );
    check(
        &spec("cohortName/nullable"),
        Some(json!(true)),
        "
differs  clusterqueues.kueue.x-k8s.io v1beta2 spec.cohortName: nullable: upstream true, ours nothing
0 missing, 1 differ, 0 allowed
",
    );
    check(&spec("resourceGroups/maxItems"), Some(json!(16.0)), "0 missing, 0 differ, 0 allowed\n");
    check(&spec("resourceGroups/x-kubernetes-list-type"), Some(json!("set")), "
differs  clusterqueues.kueue.x-k8s.io v1beta2 spec.resourceGroups: x-kubernetes-list-type: upstream \"set\", ours \"atomic\"
0 missing, 1 differ, 0 allowed
");
    check(&spec("resourceGroups/items/required/0"), None, "
differs  clusterqueues.kueue.x-k8s.io v1beta2 spec.resourceGroups[].coveredResources: required: only ours requires it
0 missing, 1 differ, 0 allowed
");
    check(&spec("resourceGroups/items/x-kubernetes-validations/0/rule"), Some(json!("true")), "
differs  clusterqueues.kueue.x-k8s.io v1beta2 spec.resourceGroups[]: x-kubernetes-validations: only upstream \
[{\"message\":\"flavors must have the same number of resources as the coveredResources\",\"rule\":\"true\"}], only ours \
[{\"message\":\"flavors must have the same number of resources as the coveredResources\",\"rule\":\"self.flavors.all(x, \
size(x.resources) == size(self.coveredResources))\"}]
0 missing, 1 differ, 0 allowed
");
    check(
        &spec("stopPolicy/x-new-keyword"),
        Some(json!(1)),
        "
differs  clusterqueues.kueue.x-k8s.io v1beta2 spec.stopPolicy: x-new-keyword: upstream 1, ours nothing
0 missing, 1 differ, 0 allowed
",
    );
    check(&spec("stopPolicy/description"), Some(json!("other words")), "0 missing, 0 differ, 0 allowed\n");
    check(
        "/metadata/name",
        Some(json!("others.kueue.x-k8s.io")),
        "
missing  others.kueue.x-k8s.io: missing
1 missing, 0 differ, 0 allowed
",
    );
}

/// One CRD with one field, of which one side is open.
fn with_field(schema: Value) -> Vec<Value> {
    let root = json!({"type": "object", "properties": {"field": schema}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": root}});
    vec![json!({"metadata": {"name": "xs.y"}, "spec": {"group": "y", "versions": [version]}})]
}

#[test]
fn an_open_object_covers_pods_and_affinity_alone() {
    #[track_caller]
    fn check(theirs: Value, covered: bool) {
        let open = with_field(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}));
        let report = compare(&open, &with_field(theirs));
        assert_eq!(report.missing.is_empty() && report.differ.is_empty(), covered, "{report}");
    }
    let text = json!({"type": "string"});
    let object = |properties: Value| json!({"type": "object", "properties": properties});
    let pod_spec = object(
        json!({"containers": text, "initContainers": text, "restartPolicy": text, "nodeSelector": text, "x": text}),
    );
    check(pod_spec.clone(), true);
    check(object(json!({"metadata": {"type": "object"}, "spec": pod_spec})), true);
    check(object(json!({"spec": pod_spec, "replicas": text})), false);
    check(object(json!({"nodeAffinity": text, "podAffinity": text, "podAntiAffinity": text})), true);
    // Volcano's queue affinity is something else.
    check(object(json!({"nodeGroupAffinity": text, "nodeGroupAntiAffinity": text})), false);
    check(object(json!({"spec": object(json!({"devices": object(json!({"requests": text}))}))})), true);
    check(object(json!({"containers": text})), false);
    check(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}), true);
}

#[test]
fn hostile_input_gives_a_report() {
    for wrong in
        [json!(null), json!(3), json!({}), json!({"metadata": {"name": "clusterqueues.kueue.x-k8s.io"}})]
    {
        let report = compare(&upstream(), std::slice::from_ref(&wrong));
        assert!(!report.missing.is_empty() || !report.differ.is_empty(), "{wrong}");
        compare(&[wrong], &upstream());
    }
}

#[test]
fn continuation_lines_are_indented() {
    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(indent_quoted(text), expected);
    }
    check("a: 'one\n  two'\nb: c\n", "a: 'one\n      two'\nb: c\n");
    check("a: 'it''s\ntwo'\nb: 1", "a: 'it''s\n    two'\nb: 1");
    check("a: \"x \\\" y\n\nz\"\nb: 1", "a: \"x \\\" y\n\n    z\"\nb: 1");
    for same in ["a: 'one'\n", "a: it's\nb: c\n", "# 'x\na: b\n", "- 'x'\n- y\n", ""] {
        check(same, same);
    }
}
