//! What holds for any input.

use crate::{request, schema};
use k8s_merge::apply::{
    FieldSet, Literal, Operation, Path, PathElement, Record, Request, apply, fields_of, read_managers,
    update, write_managers,
};
use k8s_merge::{OpenApi, Untyped, merge_patch, strategic_merge};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        (-2i64..4).prop_map(Value::from),
        prop::sample::select(vec![1.0, 0.5, 1e30]).prop_map(Value::from),
        "[a-c]{0,2}".prop_map(Value::from),
    ]
}

/// Any JSON, with names that mean something to a merge.
fn any_json() -> impl Strategy<Value = Value> {
    let name = prop::sample::select(vec![
        "a",
        "b",
        "name",
        "type",
        "port",
        "spec",
        "metadata",
        "status",
        "conts",
        "set",
        "atom",
        "free",
        "labels",
        "managedFields",
        "uid",
        "annotations",
        "operation",
        "fieldsV1",
        "f:spec",
        "k:{\"name\":\"a\"}",
        ".",
        "$patch",
        "$retainKeys",
        "$setElementOrder/conts",
        "$deleteFromPrimitiveList/set",
        "$setElementOrder",
        "finalizers",
        "containers",
        "volumes",
    ]);
    let text =
        prop::sample::select(vec!["delete", "replace", "merge", "Apply", "Update", "FieldsV1", "a", ""]);
    let leaf = prop_oneof![scalar(), text.prop_map(Value::from)];
    leaf.prop_recursive(6, 48, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name.clone(), inner, 0..5).prop_map(|members| {
                members
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), value))
                    .collect::<Map<_, _>>()
                    .into()
            }),
        ]
    })
}

/// A value that fits the schema, without empty or null parts, and without two elements of the same key.
fn fitting(schema: &'static Value) -> BoxedStrategy<Value> {
    if schema["x-kubernetes-preserve-unknown-fields"] == true && schema.get("properties").is_none() {
        return prop_oneof![
            Just(json!({"u": 1})),
            Just(json!({"u": {"v": [1]}, "w": "s"})),
            Just(json!({"u": {"x": true}})),
        ]
        .boxed();
    }
    match schema["type"].as_str() {
        Some("integer") => (1i64..4).prop_map(Value::from).boxed(),
        Some("boolean") => any::<bool>().prop_map(Value::from).boxed(),
        Some("array") => {
            let keys: Vec<&str> = schema["x-kubernetes-list-map-keys"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect();
            let atomic = schema["x-kubernetes-list-type"] == "atomic";
            let items = prop::collection::vec(fitting(&schema["items"]), 1..4);
            items
                .prop_map(move |mut items| {
                    let mut seen = BTreeSet::new();
                    for item in &mut items {
                        for key in &keys {
                            let members = item.as_object_mut().expect("elements with keys are objects");
                            let default = schema["items"]["properties"][key].get("default").cloned();
                            members.entry(*key).or_insert(default.unwrap_or_else(|| json!("a")));
                            if schema["items"]["properties"][key]["type"] == "integer"
                                && !members[*key].is_number()
                            {
                                members.insert((*key).to_owned(), json!(1));
                            }
                        }
                    }
                    items.retain(|item| {
                        let id = if keys.is_empty() {
                            item.clone()
                        } else {
                            keys.iter().map(|key| item[*key].clone()).collect()
                        };
                        atomic || seen.insert(id.to_string())
                    });
                    Value::from(items)
                })
                .boxed()
        }
        Some("object") => match schema.get("properties") {
            Some(Value::Object(declared)) => {
                let members: Vec<_> = declared
                    .iter()
                    .map(|(name, schema)| (Just(name.clone()), prop::option::weighted(0.3, fitting(schema))))
                    .collect();
                members
                    .prop_map(|members| {
                        let mut all: Map<_, _> =
                            members.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
                        all.retain(|_, value| !value.as_object().is_some_and(Map::is_empty));
                        all.into()
                    })
                    .boxed()
            }
            _ => prop::collection::btree_map("[a-c]", fitting(&schema["additionalProperties"]), 1..3)
                .prop_map(|members| members.into_iter().collect::<Map<_, _>>().into())
                .boxed(),
        },
        _ => "[a-c]".prop_map(Value::from).boxed(),
    }
}

/// A `Thing` as a client would send it.
fn config() -> impl Strategy<Value = Value> {
    let spec = fitting(&schema("Thing")["properties"]["spec"]);
    (spec, prop::collection::btree_map("[a-c]", "[a-c]", 0..3)).prop_map(|(spec, labels)| {
        let mut thing = json!({"apiVersion": "x.io/v1", "kind": "Thing", "metadata": {"name": "t"}});
        if !labels.is_empty() {
            thing["metadata"]["labels"] = json!(labels);
        }
        if spec.as_object().is_some_and(|spec| !spec.is_empty()) {
            thing["spec"] = spec;
        }
        thing
    })
}

fn empty() -> Value {
    json!({"apiVersion": "x.io/v1", "kind": "Thing", "metadata": {"name": "t"}})
}

fn shape() -> OpenApi<'static> {
    OpenApi(schema("Thing"))
}

/// An object after a few writes by `alice` and `bob`. What lost everything in it is null until a decoder drops it, and who
/// owns that is a matter of the decoder: such histories are left out.
fn history() -> impl Strategy<Value = Value> {
    let live = prop::collection::vec((any::<bool>(), any::<bool>(), config()), 1..4).prop_map(|writes| {
        let mut live = None;
        for (i, (is_alice, is_apply, config)) in writes.into_iter().enumerate() {
            let now = format!("2026-01-01T00:00:{i:02}Z");
            let request = Request { force: true, ..request(if is_alice { "alice" } else { "bob" }, &now) };
            live = Some(if is_apply {
                apply(live.as_ref(), &config, shape(), &request).expect("forced and of the right type")
            } else {
                update(live.as_ref(), config, shape(), &request)
            });
        }
        live.expect("there is a write")
    });
    live.prop_filter("something is null", |live| !has_null(live))
}

fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(members) => members.values().any(has_null),
        Value::Array(items) => items.iter().any(has_null),
        _ => false,
    }
}

fn element() -> impl Strategy<Value = PathElement> {
    prop_oneof![
        "[a-c]".prop_map(PathElement::Field),
        scalar().prop_map(|value| PathElement::Value(Literal(value))),
        (0i64..3).prop_map(PathElement::Index),
        prop::collection::btree_map("[ab]", scalar(), 1..3)
            .prop_map(|key| PathElement::key(key.into_iter().map(|(name, value)| (name, Literal(value))))),
    ]
}

fn paths() -> impl Strategy<Value = BTreeSet<Path>> {
    prop::collection::btree_set(prop::collection::vec(element(), 1..4).prop_map(Path), 0..12)
}

fn starts_with(path: &Path, prefix: &Path) -> bool {
    path.0.starts_with(&prefix.0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn field_sets_are_sets_of_paths(a in paths(), b in paths()) {
        let set = |paths: &BTreeSet<Path>| paths.iter().cloned().collect::<FieldSet>();
        let model = |set: FieldSet| set.paths().into_iter().collect::<BTreeSet<Path>>();
        let (x, y) = (set(&a), set(&b));
        prop_assert_eq!(x.len(), a.len());
        prop_assert_eq!(model(x.clone()), a.clone());
        prop_assert_eq!(model(x.union(&y)), &a | &b);
        prop_assert_eq!(model(x.intersection(&y)), &a & &b);
        prop_assert_eq!(model(x.difference(&y)), &a - &b);
        let outside = a.iter().filter(|p| !b.iter().any(|q| starts_with(p, q))).cloned().collect();
        prop_assert_eq!(model(x.difference_below(&y)), outside);
        let leaves = a.iter().filter(|p| !a.iter().any(|q| q != *p && starts_with(q, p))).cloned().collect();
        prop_assert_eq!(model(x.leaves()), leaves);
        prop_assert!(a.iter().all(|path| x.contains(path)));
        prop_assert_eq!(x.is_subset(&y), a.is_subset(&b));
        prop_assert!(x.intersection(&y).is_subset(&x) && x.is_subset(&x.union(&y)));
        prop_assert!(b.iter().all(|path| x.contains(path) == a.contains(path)));
        // Equal sets are equal however they came about.
        prop_assert_eq!(x.difference(&y).union(&x.intersection(&y)), x);
    }

    #[test]
    fn field_sets_round_trip(a in paths()) {
        let set: FieldSet = a.into_iter().collect();
        prop_assert_eq!(FieldSet::parse(&set.to_value()), Ok(set.clone()));
        let text = set.to_string();
        prop_assert_eq!(&serde_json::to_string(&set).unwrap(), &text);
        prop_assert_eq!(serde_json::from_str::<FieldSet>(&text).unwrap(), set);
    }

    #[test]
    fn managers_round_trip(live in history()) {
        let mut again = live.clone();
        let managers = read_managers(&live).unwrap();
        write_managers(&mut again, &managers);
        prop_assert_eq!(&again, &live);
    }

    /// A write of some members is attributed alike, whether the whole objects are looked at or these members alone.
    #[test]
    fn a_part_is_attributed_like_the_whole(live in history(), new in config(), by_bob in any::<bool>()) {
        let later = request(if by_bob { "bob" } else { "carol" }, "2026-01-01T00:01:00Z");
        let (mut live, mut new) = (live, new);
        new["metadata"] = live["metadata"].clone();
        // What the part does not have stays as it is.
        live["status"] = json!({"left": "alone"});
        new["status"] = live["status"].clone();
        let whole = update(Some(&live), new.clone(), shape(), &later);
        let part = |object: &Value| {
            let mut part = object.clone();
            part.as_object_mut().unwrap().remove("status");
            part["metadata"].as_object_mut().unwrap().remove("managedFields");
            part
        };
        let mut record = match live["metadata"].get("managedFields") {
            Some(entries) => Record::read(&entries.to_string()).unwrap(),
            None => Record::default(),
        };
        record.attribute(&["f:spec"], &part(&live), &part(&new), shape(), &later);
        let mut text = String::new();
        record.print(&mut text);
        let printed: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(printed, whole["metadata"].get("managedFields").cloned().unwrap_or_else(|| json!([])));
    }

    /// The record of a new object is the same, whether it is written down at once or by way of what changed.
    #[test]
    fn a_new_object_is_recorded_like_a_write(
        new in prop_oneof![config(), any_json().prop_map(|spec| json!({"spec": spec})), any_json(), Just(Value::Null)],
        blank in prop::option::of(prop_oneof![config(), any_json()]),
        ignored in prop::sample::select(vec![json!({}), json!({"f:spec": {"f:conts": {}}}), json!({"f:status": {}, "f:a": {".": {}}})]),
    ) {
        let ignored = FieldSet::parse(&ignored).unwrap();
        let request = Request { ignored: &ignored, ..request("carol", "2026-01-01T00:01:00Z") };
        let expected = update(blank.as_ref(), new.clone(), shape(), &request);
        if let Some(record) = Record::of_new(blank.as_ref(), &new, shape(), &request) {
            let mut text = String::new();
            record.print(&mut text);
            let printed: Value = serde_json::from_str(&text).unwrap();
            let expected = expected.get("metadata").and_then(|metadata| metadata.get("managedFields"));
            prop_assert_eq!(printed, expected.cloned().unwrap_or_else(|| json!([])), "{} {:?}", new, blank);
        }
    }

    #[test]
    fn applying_twice_is_applying_once(live in history(), config in config()) {
        let first = Request { force: true, ..request("carol", "2026-01-01T00:01:00Z") };
        let second = Request { force: false, now: "2026-01-01T00:02:00Z", ..first };
        let once = apply(Some(&live), &config, shape(), &first).unwrap();
        prop_assert_eq!(apply(Some(&once), &config, shape(), &second), Ok(once));
    }

    #[test]
    fn applying_nothing_leaves_nothing(config in config()) {
        let now = request("carol", "2026-01-01T00:01:00Z");
        let once = apply(None, &config, shape(), &now).unwrap();
        prop_assert_eq!(apply(Some(&once), &empty(), shape(), &now), Ok(empty()));
    }

    #[test]
    fn a_guest_leaves_no_trace(live in history(), config in config()) {
        // Carol takes nothing from anybody, so that when she goes the object is what it was.
        let now = request("carol", "2026-01-01T00:01:00Z");
        let before = fields_of(&live, shape());
        if let Ok(together) = apply(Some(&live), &config, shape(), &now) {
            let after = apply(Some(&together), &empty(), shape(), &now).unwrap();
            prop_assert_eq!(read_managers(&after).unwrap(), read_managers(&live).unwrap());
            prop_assert_eq!(fields_of(&after, shape()), before);
        }
    }

    #[test]
    fn without_force_nobody_loses_a_field(live in history(), config in config()) {
        let now = request("carol", "2026-01-01T00:01:00Z");
        if let Ok(merged) = apply(Some(&live), &config, shape(), &now) {
            let after = read_managers(&merged).unwrap();
            for manager in read_managers(&live).unwrap() {
                prop_assert!(after.contains(&manager), "{} lost something", manager.name);
            }
        }
    }

    #[test]
    fn what_is_applied_is_there(live in history(), config in config()) {
        let now = Request { force: true, ..request("carol", "2026-01-01T00:01:00Z") };
        let merged = apply(Some(&live), &config, shape(), &now).unwrap();
        let again = apply(Some(&merged), &config, shape(), &request("dave", "2026-01-01T00:02:00Z"));
        prop_assert!(again.is_ok(), "dave sees no conflict: {again:?}");
        let missing = fields_of(&config, shape()).difference(&fields_of(&merged, shape()));
        prop_assert!(missing.is_empty(), "missing {missing}");
    }

    #[test]
    fn an_update_that_changes_nothing_changes_nothing(live in history()) {
        let later = request("carol", "2026-01-01T00:01:00Z");
        prop_assert_eq!(update(Some(&live), live.clone(), shape(), &later), live);
    }

    #[test]
    fn a_field_has_one_updater(live in history(), new in config()) {
        let stored = update(Some(&live), new, shape(), &request("carol", "2026-01-01T00:01:00Z"));
        let updaters: Vec<_> = read_managers(&stored).unwrap().into_iter()
            .filter(|manager| manager.operation == Operation::Update).collect();
        for (i, a) in updaters.iter().enumerate() {
            for b in &updaters[i + 1..] {
                prop_assert!(a.fields.intersection(&b.fields).is_empty(), "{} and {}", a.name, b.name);
            }
        }
        // Nobody owns a field that does not exist. Parents count as long as something is below them.
        let there = fields_of(&stored, shape());
        for manager in read_managers(&stored).unwrap() {
            let gone = manager.fields.leaves().difference(&there).leaves();
            for path in gone.paths() {
                prop_assert!(there.paths().iter().any(|p| starts_with(p, &path)), "{} owns {path}", manager.name);
            }
        }
    }

    #[test]
    fn merge_patch_says_what_becomes_of_what_it_names(target in any_json(), patch in any_json()) {
        let mut once = target.clone();
        merge_patch(&mut once, &patch);
        let mut twice = once.clone();
        merge_patch(&mut twice, &patch);
        prop_assert_eq!(&twice, &once);
        match (&patch, &once) {
            (Value::Object(changes), Value::Object(members)) => {
                for (name, change) in changes {
                    prop_assert_eq!(change.is_null(), !members.contains_key(name));
                }
                for (name, value) in target.as_object().into_iter().flatten() {
                    if !changes.contains_key(name) {
                        prop_assert_eq!(&members[name], value);
                    }
                }
            }
            _ => prop_assert_eq!(&once, &patch),
        }
    }

    #[test]
    fn an_untyped_strategic_patch_is_a_merge_patch(target in plain_object(), patch in plain_object()) {
        let (mut strategic, mut merged) = (target.clone(), target);
        strategic_merge(&mut strategic, &patch, Untyped).unwrap();
        merge_patch(&mut merged, &patch);
        prop_assert_eq!(strategic, merged);
    }

    #[test]
    fn anything_goes_without_a_panic(live in any_json(), sent in any_json(), fields in any_json()) {
        let ignored = FieldSet::parse(&fields).unwrap_or_default();
        let now = Request { ignored: &ignored, ..request("kubectl", "2026-01-01T00:01:00Z") };
        for live in [None, Some(&live)] {
            let _ = apply(live, &sent, shape(), &now);
            let _ = apply(live, &sent, Untyped, &Request { force: true, ..now });
            let _ = update(live, sent.clone(), shape(), &now);
            let _ = update(live, sent.clone(), Untyped, &now);
        }
        let _ = read_managers(&live);
        for kind in ["Thing", "Pod"] {
            let before = live.clone();
            let mut target = live.clone();
            if strategic_merge(&mut target, &sent, OpenApi(schema(kind))).is_err() {
                prop_assert_eq!(target, before);
            }
        }
        let _ = strategic_merge(&mut live.clone(), &sent, Untyped);
    }

    #[test]
    fn damaged_configurations_do_no_harm(live in history(), config in config(), junk in any_json(), at in 0usize..8) {
        // Put junk in place of one field of an otherwise good configuration.
        let mut config = config;
        if let Some(spec) = config.get_mut("spec").and_then(Value::as_object_mut) {
            let n = spec.len().max(1);
            if let Some(value) = spec.values_mut().nth(at % n) {
                *value = junk;
            }
        }
        let now = Request { force: true, ..request("carol", "2026-01-01T00:01:00Z") };
        if let Ok(once) = apply(Some(&live), &config, shape(), &now) {
            prop_assert!(apply(Some(&once), &config, shape(), &now).is_ok());
        }
        let stored = update(Some(&live), config, shape(), &now);
        prop_assert!(read_managers(&stored).is_ok());
    }
}

/// An object of objects and scalars; lists hold scalars.
fn plain_object() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        scalar(),
        prop::collection::vec((0i64..3).prop_map(Value::from), 0..3).prop_map(Value::from)
    ];
    let object = |inner: BoxedStrategy<Value>| {
        prop::collection::btree_map("[a-c]", inner, 0..4)
            .prop_map(|members| Value::from(members.into_iter().collect::<Map<_, _>>()))
    };
    let inner = leaf.prop_recursive(3, 16, 4, move |inner| object(inner.boxed()));
    object(inner.boxed())
}

fn nested(depth: usize) -> Value {
    (0..depth).fold(json!(1), |inner, _| json!({"spec": inner}))
}

#[test]
fn depth_is_bounded() {
    let now = request("carol", "2026-01-01T00:01:00Z");
    let (fine, deep) = (nested(500), nested(4000));
    let stored = apply(None, &fine, Untyped, &now).expect("deep, but not too deep");
    assert_eq!(update(Some(&stored), stored.clone(), Untyped, &now), stored);
    let error = apply(None, &deep, Untyped, &now).expect_err("too deep");
    assert_eq!(error.to_string(), "failed to create typed patch object (/; /, Kind=): nested too deeply");
    assert!(apply(Some(&deep), &fine, Untyped, &now).is_err());
    let _ = update(Some(&deep), deep.clone(), Untyped, &now);
    let mut target = json!({});
    merge_patch(&mut target, &deep);
    assert_eq!(target, deep);
    strategic_merge(&mut target, &deep, Untyped).expect_err("too deep");
    let mut target = json!({});
    strategic_merge(&mut target, &fine, Untyped).expect("deep, but not too deep");
    let fields = (0..4000).fold(json!({}), |inner, _| json!({"f:a": inner}));
    FieldSet::parse(&fields).expect_err("too deep");
}

#[test]
fn long_lists_take_no_longer_than_they_must() {
    let n = 20_000;
    let names: Vec<_> = (0..n).map(|i| format!("n{i}")).collect();
    let reversed: Vec<_> = names.iter().rev().cloned().collect();
    let now = Request { force: true, ..request("carol", "2026-01-01T00:01:00Z") };
    let thing = |set: &[String]| {
        let mut thing = empty();
        thing["spec"] = json!({"set": set});
        thing
    };
    let live = apply(None, &thing(&names), shape(), &now).unwrap();
    let merged = apply(Some(&live), &thing(&reversed), shape(), &now).unwrap();
    assert_eq!(merged["spec"]["set"], json!(reversed));
    let mut pod = json!({"metadata": {"finalizers": names}});
    let patch = json!({"metadata": {"finalizers": reversed, "$setElementOrder/finalizers": reversed}});
    strategic_merge(&mut pod, &patch, OpenApi(schema("Pod"))).unwrap();
    assert_eq!(pod["metadata"]["finalizers"], json!(reversed));

    let entry = |i: usize| {
        json!({"manager": format!("m{i}"), "operation": "Update", "apiVersion": "v1",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}})
    };
    let mut crowded = empty();
    crowded["metadata"]["managedFields"] = (0..n).map(entry).collect();
    let mut changed = crowded.clone();
    changed["status"] = json!({"phase": "x"});
    let stored = update(Some(&crowded), changed, shape(), &now);
    assert_eq!(read_managers(&stored).unwrap().len(), 10);
}
