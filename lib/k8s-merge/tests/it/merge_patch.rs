//! The examples of RFC 7396, appendix A.

use crate::json;
use k8s_merge::merge_patch;

#[track_caller]
fn check(target: &str, patch: &str, expected: &str) {
    let mut value = json(target);
    merge_patch(&mut value, &json(patch));
    assert_eq!(value, json(expected));
}

#[test]
fn rfc_7396() {
    check(r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#);
    check(r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#);
    check(r#"{"a":"b"}"#, r#"{"a":null}"#, "{}");
    check(r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#);
    check(r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#);
    check(r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#);
    check(r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#);
    check(r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#);
    check(r#"["a","b"]"#, r#"["c","d"]"#, r#"["c","d"]"#);
    check(r#"{"a":"b"}"#, r#"["c"]"#, r#"["c"]"#);
    check(r#"{"a":"foo"}"#, "null", "null");
    check(r#"{"a":"foo"}"#, r#""bar""#, r#""bar""#);
    check(r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#);
    check("[1,2]", r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#);
    check("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#);
}
