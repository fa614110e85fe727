//! Server-side apply, feature by feature.

use crate::{json, request, schema};
use k8s_merge::apply::{
    ApplyError, FieldSet, Operation, Path, Request, apply, keep_times, read_managers, update,
};
use k8s_merge::{OpenApi, Untyped};
use serde_json::{Value, json};

/// A `Thing` with this `spec`.
fn thing(spec: &str) -> Value {
    json!({"apiVersion": "x.io/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": json(spec)})
}

/// Plays writes in turn. Each is a manager and what it does (`apply`, `force` or `update`), and a spec.
#[track_caller]
fn play(story: &[(&str, &str)]) -> Result<Value, ApplyError> {
    let shape = OpenApi(schema("Thing"));
    let mut live: Option<Value> = None;
    for (i, (who, spec)) in story.iter().enumerate() {
        let (manager, verb) = who.split_once(' ').expect("a manager and a verb");
        let now = format!("2026-01-01T00:00:{i:02}Z");
        let request = Request { force: verb == "force", ..request(manager, &now) };
        live = Some(match verb {
            "apply" | "force" => apply(live.as_ref(), &thing(spec), shape, &request)?,
            "update" => update(live.as_ref(), thing(spec), shape, &request),
            _ => panic!("{verb} is no verb"),
        });
    }
    Ok(live.expect("a story has a write"))
}

/// Who owns what: `alice: .spec.text; bob*: .spec.replicas`, where updaters have a star.
fn owners(object: &Value) -> String {
    let mut managers = read_managers(object).expect("we wrote it");
    managers.sort_by(|a, b| a.name.cmp(&b.name));
    let one = |manager: &k8s_merge::apply::Manager| {
        let star = if manager.operation == Operation::Update { "*" } else { "" };
        let paths: Vec<_> = manager.fields.paths().iter().map(Path::to_string).collect();
        format!("{}{star}: {}", manager.name, paths.join(" ").replace(".spec.", ""))
    };
    managers.iter().map(one).collect::<Vec<_>>().join("; ")
}

#[track_caller]
fn check(story: &[(&str, &str)], spec: &str, who: &str) {
    let object = play(story).expect("nothing is refused");
    let got = object.get("spec").unwrap_or(&Value::Null);
    assert_eq!(got, &json(spec), "got {got}");
    assert_eq!(owners(&object), who);
}

#[track_caller]
fn check_refused(story: &[(&str, &str)], message: &str) {
    assert_eq!(play(story).expect_err("the last write is refused").to_string(), message);
}

#[test]
fn an_applied_field_that_is_no_longer_applied_goes_away() {
    check(
        &[("alice apply", r#"{"replicas":1,"text":"a"}"#), ("alice apply", r#"{"text":"a"}"#)],
        r#"{"text":"a"}"#,
        "alice: text",
    );
    // What loses everything below it but is itself applied remains as null.
    check(&[("alice apply", r#"{"text":"a"}"#), ("alice apply", "{}")], "null", "alice: .spec");
    // A field that somebody else also owns stays.
    check(
        &[
            ("alice apply", r#"{"text":"a"}"#),
            ("bob apply", r#"{"text":"a"}"#),
            ("alice apply", r#"{"paused":true}"#),
        ],
        r#"{"paused":true,"text":"a"}"#,
        "alice: paused; bob: text",
    );
    // So does one that an update set, though the manager has the same name.
    check(
        &[
            ("alice update", r#"{"text":"a"}"#),
            ("alice apply", r#"{"replicas":1}"#),
            ("alice apply", r#"{"paused":true}"#),
        ],
        r#"{"paused":true,"text":"a"}"#,
        "alice: paused; alice*: .spec text",
    );
}

#[test]
fn equal_values_are_shared_and_others_are_conflicts() {
    check(
        &[("alice apply", r#"{"replicas":1}"#), ("bob apply", r#"{"replicas":1}"#)],
        r#"{"replicas":1}"#,
        "alice: replicas; bob: replicas",
    );
    check(
        &[("alice apply", r#"{"replicas":1}"#), ("bob apply", r#"{"replicas":1.0}"#)],
        r#"{"replicas":1.0}"#,
        "alice: replicas; bob: replicas",
    );
    check_refused(
        &[("alice apply", r#"{"replicas":1}"#), ("bob apply", r#"{"replicas":2}"#)],
        r#"Apply failed with 1 conflict: conflict with "alice": .spec.replicas"#,
    );
    check_refused(
        &[("carol update", r#"{"replicas":1}"#), ("bob apply", r#"{"replicas":2}"#)],
        r#"Apply failed with 1 conflict: conflict with "carol" using x.io/v1: .spec.replicas"#,
    );
    check_refused(
        &[
            ("alice apply", r#"{"replicas":1,"conts":[{"name":"c","image":"1"}]}"#),
            ("carol update", r#"{"replicas":1,"text":"x","conts":[{"name":"c","image":"1"}]}"#),
            ("bob apply", r#"{"replicas":2,"text":"y","conts":[{"name":"c","image":"2"}]}"#),
        ],
        "Apply failed with 3 conflicts: conflicts with \"alice\":\n- .spec.replicas\n- .spec.conts[name=\"c\"].image\n\
         conflicts with \"carol\" using x.io/v1:\n- .spec.text",
    );
}

#[test]
fn conflicts_carry_what_a_status_needs() {
    let shape = OpenApi(schema("Thing"));
    let first = Request { subresource: Some("status"), ..request("carol", "2026-01-01T00:00:00Z") };
    let live = update(None, thing(r#"{"replicas":1}"#), shape, &first);
    let error =
        apply(Some(&live), &thing(r#"{"replicas":2}"#), shape, &request("bob", "2026-01-01T00:00:01Z"));
    let Err(ApplyError::Conflicts(conflicts)) = error else { panic!("a conflict, not {error:?}") };
    let [conflict] = conflicts.as_slice() else { panic!("one conflict, not {conflicts:?}") };
    assert_eq!(conflict.message(), r#"conflict with "carol" with subresource "status" using x.io/v1"#);
    assert_eq!(conflict.field.to_string(), ".spec.replicas");
}

#[test]
fn force_takes_fields_over() {
    check(
        &[("alice apply", r#"{"replicas":1,"text":"a"}"#), ("bob force", r#"{"replicas":2}"#)],
        r#"{"replicas":2,"text":"a"}"#,
        "alice: text; bob: replicas",
    );
    // The loser does not take the field away with it.
    check(
        &[
            ("alice apply", r#"{"replicas":1,"text":"a"}"#),
            ("bob force", r#"{"replicas":2}"#),
            ("alice apply", r#"{"text":"a"}"#),
        ],
        r#"{"replicas":2,"text":"a"}"#,
        "alice: text; bob: replicas",
    );
}

#[test]
fn updates_take_fields_without_asking() {
    check(
        &[("alice apply", r#"{"replicas":1,"text":"a"}"#), ("carol update", r#"{"replicas":5,"text":"a"}"#)],
        r#"{"replicas":5,"text":"a"}"#,
        "alice: text; carol*: replicas",
    );
    check(
        &[
            ("carol update", r#"{"replicas":1}"#),
            ("dave update", r#"{"replicas":2}"#),
            ("carol update", r#"{"replicas":2,"text":"a"}"#),
        ],
        r#"{"replicas":2,"text":"a"}"#,
        "carol*: .spec text; dave*: replicas",
    );
    // Removing a field removes it from everybody's record.
    check(
        &[("alice apply", r#"{"replicas":1,"text":"a"}"#), ("carol update", r#"{"text":"a"}"#)],
        r#"{"text":"a"}"#,
        "alice: text",
    );
}

#[test]
fn keyed_lists_are_merged_by_key() {
    check(
        &[
            ("alice apply", r#"{"conts":[{"name":"a","image":"1"},{"name":"b","image":"1"}]}"#),
            ("bob apply", r#"{"conts":[{"name":"b","args":["x"]},{"name":"c"}]}"#),
            ("alice apply", r#"{"conts":[{"name":"b","image":"2"}]}"#),
        ],
        r#"{"conts":[{"name":"b","image":"2","args":["x"]},{"name":"c"}]}"#,
        r#"alice: conts[name="b"] conts[name="b"].image conts[name="b"].name; bob: conts[name="b"] conts[name="c"] conts[name="b"].args conts[name="b"].name conts[name="c"].name"#,
    );
    // A missing part of the key has its default.
    check(
        &[
            ("alice apply", r#"{"conts":[{"name":"a","ports":[{"port":80,"name":"x"}]}]}"#),
            (
                "bob force",
                r#"{"conts":[{"name":"a","ports":[{"port":80,"protocol":"TCP","name":"y"},{"port":80,"protocol":"UDP"}]}]}"#,
            ),
        ],
        r#"{"conts":[{"name":"a","ports":[{"port":80,"protocol":"TCP","name":"y"},{"port":80,"protocol":"UDP"}]}]}"#,
        r#"alice: conts[name="a"] conts[name="a"].name conts[name="a"].ports[port=80,protocol="TCP"] conts[name="a"].ports[port=80,protocol="TCP"].port; bob: conts[name="a"] conts[name="a"].name conts[name="a"].ports[port=80,protocol="TCP"] conts[name="a"].ports[port=80,protocol="UDP"] conts[name="a"].ports[port=80,protocol="TCP"].name conts[name="a"].ports[port=80,protocol="TCP"].port conts[name="a"].ports[port=80,protocol="TCP"].protocol conts[name="a"].ports[port=80,protocol="UDP"].port conts[name="a"].ports[port=80,protocol="UDP"].protocol"#,
    );
}

#[test]
fn the_order_of_a_merged_list() {
    let merged = |live: &str, config: &str, expected: &str| {
        let list = |items: &str| {
            let items: Vec<_> = items.chars().map(|c| c.to_string()).collect();
            json!({"set": items}).to_string()
        };
        let object =
            play(&[("alice update", &list(live)), ("bob apply", &list(config))]).expect("no conflict");
        let got: String =
            object["spec"]["set"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert_eq!(got, expected, "{live} with {config}");
    };
    merged("abc", "", "abc");
    merged("", "abc", "abc");
    merged("abc", "abc", "abc");
    merged("abc", "cba", "cba");
    merged("abc", "x", "abcx");
    merged("abc", "xb", "axbc");
    merged("abc", "cx", "abcx");
    merged("abcd", "db", "acdb");
    merged("abcde", "edx", "abcedx");
}

#[test]
fn sets_atomic_and_free_form_fields() {
    check(
        &[
            ("alice apply", r#"{"set":["a","b"]}"#),
            ("bob apply", r#"{"set":["b","c"]}"#),
            ("alice apply", r#"{"set":["a"]}"#),
        ],
        r#"{"set":["a","b","c"]}"#,
        r#"alice: set[="a"]; bob: set[="b"] set[="c"]"#,
    );
    check_refused(
        &[("alice apply", r#"{"atommap":{"a":"1"}}"#), ("bob apply", r#"{"atommap":{"b":"1"}}"#)],
        r#"Apply failed with 1 conflict: conflict with "alice": .spec.atommap"#,
    );
    check(
        &[
            ("alice apply", r#"{"atom":[{"k":"a"}],"sel":{"a":"x"}}"#),
            ("alice apply", r#"{"atom":[{"k":"b"}],"sel":{"b":1}}"#),
        ],
        r#"{"atom":[{"k":"b"}],"sel":{"b":1}}"#,
        "alice: atom sel",
    );
    check(
        &[("alice apply", r#"{"free":{"u":{"v":1},"w":[1]}}"#), ("bob apply", r#"{"free":{"u":{"x":1}}}"#)],
        r#"{"free":{"u":{"v":1,"x":1},"w":[1]}}"#,
        "alice: free.u free.w free.u.v; bob: free.u free.u.x",
    );
    check(
        &[
            ("alice apply", r#"{"labels":{"a":"1"}}"#),
            ("bob apply", r#"{"labels":{"b":"1"}}"#),
            ("alice apply", r#"{"labels":{}}"#),
        ],
        r#"{"labels":{"b":"1"}}"#,
        "alice: labels; bob: labels.b",
    );
}

#[test]
fn duplicates_are_tolerated_in_stored_objects_only() {
    check(
        &[("carol update", r#"{"set":["a","a"]}"#), ("carol update", r#"{"set":["a","a","b"]}"#)],
        r#"{"set":["a","a","b"]}"#,
        r#"carol*: .spec set set[="a"] set[="b"]"#,
    );
    check_refused(
        &[("alice apply", r#"{"conts":[{"name":"a"},{"name":"a"}]}"#)],
        r#"failed to create typed patch object (/t; x.io/v1, Kind=Thing): .spec.conts: duplicate entries for key [name="a"]"#,
    );
}

#[test]
fn values_of_the_wrong_type_are_refused() {
    let refused = |spec: &str, problem: &str| {
        let error = play(&[("alice apply", spec)]).expect_err("it does not fit");
        assert_eq!(
            error.to_string(),
            format!("failed to create typed patch object (/t; x.io/v1, Kind=Thing): {problem}")
        );
    };
    refused(r#"{"replicas":"3"}"#, ".spec.replicas: expected numeric (int or float), got string");
    refused(r#"{"text":3}"#, ".spec.text: expected string, got &value.valueUnstructured{Value:3}");
    refused(r#"{"paused":"yes"}"#, ".spec.paused: expected boolean, got &{yes}");
    refused(r#"{"conts":{"a":1}}"#, ".spec.conts: expected list, got &{map[a:1]}");
    refused(r#"{"labels":[]}"#, ".spec.labels: expected map, got &{[]}");
    refused(
        r#"{"conts":[{"name":"a","ports":[{"port":1,"target":{}}]}]}"#,
        r#".spec.conts[name="a"].ports[port=1,protocol="TCP"].target: expected any scalar, got &{map[]}"#,
    );
    refused(
        r#"{"conts":[{"image":"a"}]}"#,
        ".spec.conts: element 0: associative list with keys has an element that omits all key fields [\"name\"] (and \
         doesn't have default values for any key fields)",
    );
    refused(r#"{"atom":[{"v":"x"}]}"#, ".spec.atom[0].v: expected numeric (int or float), got string");
    refused(
        r#"{"paused":1,"text":true}"#,
        "errors:\n  .spec.paused: expected boolean, got &{1}\n  .spec.text: expected string, got \
         &value.valueUnstructured{Value:true}",
    );
    // Null stands for absent, whatever the type.
    check(&[("alice apply", r#"{"text":null}"#)], r#"{"text":null}"#, "alice: text");
}

#[test]
fn an_untracked_object_is_tracked_from_its_first_apply() {
    let shape = OpenApi(schema("Thing"));
    let mut live = thing(r#"{"replicas":1}"#);
    live["metadata"]["uid"] = json!("u");
    let now = request("carol", "2026-01-01T00:00:00Z");
    let mut changed = live.clone();
    changed["spec"]["text"] = json!("a");
    let live = update(Some(&live), changed, shape, &now);
    assert_eq!(owners(&live), "");

    let config = thing(r#"{"paused":true}"#);
    let applied = apply(Some(&live), &config, shape, &now).expect("no conflict");
    assert_eq!(owners(&applied), "before-first-apply*: .spec replicas text; carol: paused");
    let error = apply(Some(&live), &thing(r#"{"replicas":2}"#), shape, &now).expect_err("a conflict");
    assert_eq!(
        error.to_string(),
        r#"Apply failed with 1 conflict: conflict with "before-first-apply" using x.io/v1: .spec.replicas"#
    );
}

#[test]
fn what_nobody_owns() {
    let shape = OpenApi(schema("Thing"));
    let mut config = thing("{}");
    config["metadata"] = json!({
        "name": "t", "namespace": "n", "uid": "u", "generation": 1, "resourceVersion": "1", "labels": {"a": "b"},
    });
    let object = apply(None, &config, shape, &request("alice", "2026-01-01T00:00:00Z")).expect("no conflict");
    assert_eq!(owners(&object), "alice: .spec .metadata.labels.a");
}

#[test]
fn fields_that_the_endpoint_ignores_are_not_owned() {
    let shape = OpenApi(schema("Thing"));
    let status = FieldSet::from_iter([Path::fields(["status"])]);
    let main = Request { ignored: &status, ..request("alice", "2026-01-01T00:00:00Z") };
    let mut config = thing(r#"{"text":"a"}"#);
    config["status"] = json!({"phase": "b"});
    assert_eq!(owners(&apply(None, &config, shape, &main).expect("no conflict")), "alice: text");
    assert_eq!(owners(&update(None, config, shape, &main)), "alice*: .spec text");
}

#[test]
fn times_change_only_with_the_object() {
    let times = |story: &[(&str, &str)]| {
        let object = play(story).expect("nothing is refused");
        let times = read_managers(&object).unwrap().into_iter().map(|m| (m.name, m.time));
        times
            .map(|(name, time)| format!("{name} {}", time.map_or("-".into(), |t| t[17..19].to_owned())))
            .collect::<Vec<_>>()
    };
    let same = r#"{"replicas":1}"#;
    assert_eq!(times(&[("alice apply", same), ("alice apply", same)]), ["alice 00"]);
    assert_eq!(times(&[("alice update", same), ("alice update", same)]), ["alice 00"]);
    // Someone who joins without changing the object has no time yet.
    assert_eq!(times(&[("alice apply", same), ("bob apply", same)]), ["bob -", "alice 00"]);
    assert_eq!(times(&[("alice apply", same), ("alice apply", r#"{"replicas":2}"#)]), ["alice 01"]);
    assert_eq!(times(&[("alice update", same), ("bob update", r#"{"replicas":2}"#)]), ["alice 00", "bob 01"]);
}

#[test]
fn no_more_than_ten_updaters() {
    let mut story: Vec<(String, String)> = Vec::new();
    let mut labels = serde_json::Map::new();
    for i in 0..13 {
        labels.insert(format!("l{i:02}"), json!("x"));
        story.push((format!("m{i:02} update"), json!({"labels": labels}).to_string()));
    }
    let story: Vec<_> = story.iter().map(|(who, spec)| (who.as_str(), spec.as_str())).collect();
    let object = play(&story).expect("nothing is refused");
    let managers = read_managers(&object).unwrap();
    assert_eq!(managers.len(), 10);
    assert_eq!(managers[0].name, "ancient-changes");
    assert_eq!(managers[0].time.as_deref(), Some("2026-01-01T00:00:03Z"));
    assert_eq!(managers[0].fields.len(), 6, "the spec, its labels, and four of them");
}

#[test]
fn clients_may_edit_and_reset_the_record() {
    let shape = OpenApi(schema("Thing"));
    let now = request("carol", "2026-01-01T00:00:05Z");
    let live = play(&[("alice apply", r#"{"replicas":1}"#)]).unwrap();
    for reset in [json!([]), json!([{}])] {
        let mut new = live.clone();
        new["metadata"]["managedFields"] = reset;
        let mut tracked = live.clone();
        tracked["metadata"]["uid"] = json!("u");
        assert_eq!(owners(&update(Some(&tracked), new, shape, &now)), "");
    }
    // A record that cannot be read does not count, and neither does one sent through a subresource.
    for sent in [json!([{"operation": "Delete"}]), json!("x"), json!(null)] {
        let mut new = live.clone();
        new["metadata"]["managedFields"] = sent;
        assert_eq!(update(Some(&live), new, shape, &now), live);
    }
    let mut new = live.clone();
    new["metadata"]["managedFields"] = json!([]);
    assert_eq!(update(Some(&live), new, shape, &Request { subresource: Some("status"), ..now }), live);
    // An apply may not carry one at all.
    let error = apply(Some(&live), &live, shape, &now).expect_err("it carries managed fields");
    assert_eq!(error, ApplyError::ManagedFields);
    let mut broken = live.clone();
    broken["metadata"]["managedFields"] = json!([{}]);
    let error = apply(Some(&broken), &thing("{}"), shape, &now).expect_err("the record is broken");
    assert_eq!(error.to_string(), "failed to decode managed fields: operation must be `Apply` or `Update`");
}

#[test]
fn an_update_that_does_not_fit_the_type_loses_the_record() {
    let shape = OpenApi(schema("Thing"));
    let live = play(&[("alice apply", r#"{"replicas":1}"#)]).unwrap();
    let mut new = live.clone();
    new["spec"]["replicas"] = json!("many");
    let stored = update(Some(&live), new, shape, &request("carol", "2026-01-01T00:00:05Z"));
    assert_eq!(stored, thing(r#"{"replicas":"many"}"#));
}

#[test]
fn a_field_that_became_atomic_is_owned_as_one() {
    let now = request("alice", "2026-01-01T00:00:00Z");
    let granular = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "m": {"type": "object", "additionalProperties": {"type": "string"}},
    }}}});
    let mut atomic = granular.clone();
    atomic["properties"]["spec"]["properties"]["m"]["x-kubernetes-map-type"] = json!("atomic");
    let live =
        apply(None, &thing(r#"{"m":{"a":"1","b":"2"}}"#), OpenApi(&granular), &now).expect("no conflict");
    assert_eq!(owners(&live), "alice: m.a m.b");
    let later = request("bob", "2026-01-01T00:00:01Z");
    let live = apply(Some(&live), &thing(r#"{"m":{"a":"1","b":"2"}}"#), OpenApi(&atomic), &later)
        .expect("no conflict");
    assert_eq!(owners(&live), "alice: m; bob: m");
}

#[test]
fn a_record_at_odds_with_the_object_breaks_nothing() {
    let shape = OpenApi(schema("Thing"));
    let mut live = thing(r#"{"conts":[{"name":"a","image":"i"}]}"#);
    let entry = |manager: &str, field: &str| {
        json!({
            "manager": manager, "operation": "Apply", "apiVersion": "x.io/v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:conts": {"k:{\"name\":\"a\"}": {field: {}}}}},
        })
    };
    live["metadata"]["managedFields"] = json!([entry("alice", "f:name"), entry("bob", "f:image")]);
    let error =
        apply(Some(&live), &thing(r#"{"text":"x"}"#), shape, &request("alice", "2026-01-01T00:00:01Z"));
    assert_eq!(
        error.expect_err("the key would go, and the element stay").to_string(),
        "failed to compare objects: .spec.conts: element 0: associative list with keys has an element that omits all \
         key fields [\"name\"] (and doesn't have default values for any key fields)"
    );
}

#[test]
fn times_are_kept_when_nothing_else_changes() {
    let live = play(&[("alice apply", r#"{"replicas":1}"#)]).unwrap();
    let mut new = live.clone();
    new["metadata"]["managedFields"][0]["time"] = json!("2027-01-01T00:00:00Z");
    let mut same = new.clone();
    keep_times(&live, &mut same);
    assert_eq!(same, live);
    new["spec"]["replicas"] = json!(2);
    let mut changed = new.clone();
    keep_times(&live, &mut changed);
    assert_eq!(changed, new);
}

#[test]
fn the_annotation_of_client_side_apply() {
    const LAST: &str = "kubectl.kubernetes.io/last-applied-configuration";
    let now = request("kubectl", "2026-01-01T00:00:01Z");
    let applied = json!({"apiVersion": "x.io/v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1", "b": "1"}});
    let mut live = applied.clone();
    live["metadata"]["annotations"] = json!({LAST: applied.to_string()});
    let live = update(None, live, Untyped, &request("kubectl-client-side-apply", "2026-01-01T00:00:00Z"));

    // What client-side apply set may be changed without force, by kubectl alone.
    let mut config = applied.clone();
    config["data"]["a"] = json!("2");
    let merged = apply(Some(&live), &config, Untyped, &now).expect("the conflict is its own");
    assert_eq!(merged["data"], json!({"a": "2", "b": "1"}));
    assert_eq!(json(merged["metadata"]["annotations"][LAST].as_str().unwrap()), config);
    assert!(apply(Some(&live), &config, Untyped, &request("other", "2026-01-01T00:00:01Z")).is_err());

    // What somebody changed since may not.
    let mut edited = live.clone();
    edited["data"]["a"] = json!("9");
    let edited = update(Some(&live), edited, Untyped, &request("editor", "2026-01-01T00:00:01Z"));
    let error = apply(Some(&edited), &config, Untyped, &now).expect_err("the editor owns it now");
    assert_eq!(
        error.to_string(),
        r#"Apply failed with 1 conflict: conflict with "editor" using x.io/v1: .data.a"#
    );
}
