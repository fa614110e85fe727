//! Strategic merge patch, feature by feature. Objects are parts of pods and deployments.

use crate::{json, schema};
use k8s_merge::{OpenApi, Shape, Untyped, strategic_merge};

/// Patches the pod spec `target`.
#[track_caller]
fn check(target: &str, patch: &str, expected: &str) {
    let shape = OpenApi(schema("Pod")).field("spec").expect("pods have a spec");
    let mut value = json(target);
    strategic_merge(&mut value, &json(patch), shape).expect("the patch is fine");
    assert_eq!(value, json(expected), "got {value}");
}

#[track_caller]
fn check_meta(target: &str, patch: &str, expected: &str) {
    let shape = OpenApi(schema("Pod")).field("metadata").expect("pods have metadata");
    let mut value = json(target);
    strategic_merge(&mut value, &json(patch), shape).expect("the patch is fine");
    assert_eq!(value, json(expected), "got {value}");
}

#[track_caller]
fn check_refused(target: &str, patch: &str, message: &str) {
    let shape = OpenApi(schema("Pod")).field("spec").expect("pods have a spec");
    let before = json(target);
    let mut value = before.clone();
    let error = strategic_merge(&mut value, &json(patch), shape).expect_err("the patch is wrong");
    assert_eq!(error.to_string(), message);
    assert_eq!(value, before, "a refused patch changes nothing");
}

#[test]
fn objects_are_merged_and_nulls_delete() {
    check(
        r#"{"nodeSelector":{"a":"1","b":"2"},"serviceAccountName":"x"}"#,
        r#"{"nodeSelector":{"b":null,"c":"3"},"serviceAccountName":null}"#,
        r#"{"nodeSelector":{"a":"1","c":"3"}}"#,
    );
    check("{}", r#"{"nodeSelector":{"a":"1","b":null}}"#, r#"{"nodeSelector":{"a":"1"}}"#);
    check("null", r#"{"serviceAccountName":"x"}"#, r#"{"serviceAccountName":"x"}"#);
}

#[test]
fn keyed_lists_are_merged() {
    check(
        r#"{"containers":[{"name":"a","image":"1"},{"name":"b","image":"1"}]}"#,
        r#"{"containers":[{"name":"b","image":"2"},{"name":"c","image":"1"}]}"#,
        r#"{"containers":[{"name":"a","image":"1"},{"name":"b","image":"2"},{"name":"c","image":"1"}]}"#,
    );
    // Elements that the patch names take the order of the patch.
    check(
        r#"{"containers":[{"name":"a"},{"name":"b"},{"name":"c"}]}"#,
        r#"{"containers":[{"name":"c"},{"name":"a"}]}"#,
        r#"{"containers":[{"name":"b"},{"name":"c"},{"name":"a"}]}"#,
    );
    check(
        r#"{"containers":[{"name":"a","env":[{"name":"X","value":"1"},{"name":"Y","value":"1"}]}]}"#,
        r#"{"containers":[{"name":"a","env":[{"name":"Y","value":"2"}]}]}"#,
        r#"{"containers":[{"name":"a","env":[{"name":"X","value":"1"},{"name":"Y","value":"2"}]}]}"#,
    );
}

#[test]
fn other_lists_are_replaced() {
    check(
        r#"{"tolerations":[{"key":"a"},{"key":"b"}]}"#,
        r#"{"tolerations":[{"key":"c"}]}"#,
        r#"{"tolerations":[{"key":"c"}]}"#,
    );
}

#[test]
fn directives_delete_and_replace() {
    check(
        r#"{"containers":[{"name":"a"},{"name":"b"}]}"#,
        r#"{"containers":[{"name":"a","$patch":"delete"}]}"#,
        r#"{"containers":[{"name":"b"}]}"#,
    );
    check(
        r#"{"containers":[{"name":"a"},{"name":"b"}]}"#,
        r#"{"containers":[{"name":"c"},{"$patch":"replace"}]}"#,
        r#"{"containers":[{"name":"c"}]}"#,
    );
    check(
        r#"{"nodeSelector":{"a":"1"}}"#,
        r#"{"nodeSelector":{"$patch":"replace","b":"2"}}"#,
        r#"{"nodeSelector":{"b":"2"}}"#,
    );
    check(
        r#"{"nodeSelector":{"a":"1"}}"#,
        r#"{"nodeSelector":{"$patch":"delete"}}"#,
        r#"{"nodeSelector":{}}"#,
    );
    // Where there is nothing, there is nothing to delete, and the directive must not be stored.
    check("{}", r#"{"nodeSelector":{"$patch":"delete"}}"#, "{}");
    check(
        "{}",
        r#"{"containers":[{"name":"a","$patch":"delete"},{"name":"b"}]}"#,
        r#"{"containers":[{"name":"b"}]}"#,
    );
}

#[test]
fn lists_of_scalars_are_merged_as_sets() {
    check_meta(
        r#"{"finalizers":["a","b"]}"#,
        r#"{"finalizers":["c","b"]}"#,
        r#"{"finalizers":["c","a","b"]}"#,
    );
    check_meta(
        r#"{"finalizers":["a","b"]}"#,
        r#"{"$deleteFromPrimitiveList/finalizers":["a"]}"#,
        r#"{"finalizers":["b"]}"#,
    );
    check_meta("{}", r#"{"$deleteFromPrimitiveList/finalizers":["a"]}"#, "{}");
}

#[test]
fn set_element_order() {
    check_meta(
        r#"{"finalizers":["a","b","c"]}"#,
        r#"{"$setElementOrder/finalizers":["c","a"]}"#,
        r#"{"finalizers":["b","c","a"]}"#,
    );
    check(
        r#"{"containers":[{"name":"a"},{"name":"b"}]}"#,
        r#"{"$setElementOrder/containers":[{"name":"c"},{"name":"b"},{"name":"a"}],"containers":[{"name":"c","image":"1"}]}"#,
        r#"{"containers":[{"name":"c","image":"1"},{"name":"b"},{"name":"a"}]}"#,
    );
    // The new element counts as stored in the room of the deleted one, hence after the one the patch does not name.
    check(
        r#"{"containers":[{"name":"b"},{"name":"a"},{"name":"d"}]}"#,
        r#"{"$setElementOrder/containers":[{"name":"e"},{"name":"d"}],"containers":[{"name":"b","$patch":"delete"},{"name":"e"}]}"#,
        r#"{"containers":[{"name":"a"},{"name":"e"},{"name":"d"}]}"#,
    );
}

#[test]
fn retain_keys() {
    check(
        r#"{"volumes":[{"name":"v","emptyDir":{}}]}"#,
        r#"{"volumes":[{"name":"v","$retainKeys":["name","configMap"],"configMap":{"name":"c"}}]}"#,
        r#"{"volumes":[{"name":"v","configMap":{"name":"c"}}]}"#,
    );
    check_refused(
        "{}",
        r#"{"$retainKeys":["volumes"],"containers":[]}"#,
        "invalid patch format of retainKeys",
    );
    check_refused("{}", r#"{"$retainKeys":"volumes"}"#, "invalid patch format of retainKeys");
}

#[test]
fn wrong_patches_are_refused() {
    let pod = r#"{"containers":[{"name":"a"}]}"#;
    check_refused(pod, "[]", "expected a map[string]interface {}, but received a []interface {}");
    check_refused(
        pod,
        r#"{"containers":[{"image":"x"}]}"#,
        "map: map[image:x] does not contain declared merge key: name",
    );
    check_refused(
        pod,
        r#"{"containers":["a"]}"#,
        "list element types are not identical: [[map[name:a]] [a]]",
    );
    check_refused(
        pod,
        r#"{"containers":[["a"]]}"#,
        "list element types are not identical: [[map[name:a]] [[a]]]",
    );
    check_refused(r#"{"containers":[]}"#, r#"{"containers":[["a"]]}"#, "lists of lists are not supported");
    check_refused(pod, r#"{"$patch":"merge"}"#, "unknown patch type: merge in map: map[$patch:merge]");
    check_refused(
        pod,
        r#"{"containers":[{"$patch":"merge"}]}"#,
        "merging lists cannot yet be specified in the patch",
    );
    check_refused(
        pod,
        r#"{"$setElementOrder/containers":[{"name":"a"}],"containers":[{"name":"b"}]}"#,
        "The order in patch list:\n[map[name:b]]\n doesn't match $setElementOrder list:\n[map[name:a]]\n",
    );
    check_refused(pod, r#"{"$setElementOrder":[]}"#, "invalid patch format of setElementOrder list");
    check_refused(pod, r#"{"$deleteFromPrimitiveList":[]}"#, "invalid patch format of primitive list");
    check_refused(
        pod,
        r#"{"$deleteFromPrimitiveList/containers":[{"name":"a"}]}"#,
        "invalid patch format of primitive list",
    );
}

#[test]
fn without_a_schema_lists_are_replaced() {
    let mut value = json(r#"{"a":{"b":1},"l":[1]}"#);
    strategic_merge(&mut value, &json(r#"{"a":{"c":2},"l":[2]}"#), Untyped).expect("the patch is fine");
    assert_eq!(value, json(r#"{"a":{"b":1,"c":2},"l":[2]}"#));
}
