//! Paths and templates. What is found, and what is refused, was compared with the client library of Kubernetes.

use k8s_table::{JsonPath, JsonPathError, Template};
use serde_json::{Value, json};

fn object() -> Value {
    json!({
        "metadata": {"name": "web", "labels": {"app.io/name": "shop", "plain": "x"}},
        "spec": {"replicas": 3, "ratio": 0.5, "paused": false, "nothing": null, "big": 1234567.5},
        "items": ["a", "b", "c", "d"],
        "nested": [[1, 2], [3]],
        "status": {"conditions": [
            {"type": "Synced", "status": "False", "weight": 1},
            {"type": "Ready", "status": "True", "weight": 2, "reason": "a)b"},
            {"type": "Old", "status": "True", "weight": 3, "ready": true},
        ]},
        "html": {"b": "<&>", "a": [1, "x"]},
    })
}

#[test]
fn finds() {
    #[track_caller]
    fn check(path: &str, expected: Value) {
        let found = JsonPath::parse(path).unwrap();
        assert_eq!(json!(found.find(&object()).unwrap()), expected, "{path}");
    }
    check(".metadata.name", json!(["web"]));
    check("$.metadata.name", json!(["web"]));
    check("@.metadata.name", json!(["web"]));
    check("['metadata']['name']", json!(["web"]));
    check("[\"metadata\"].name", json!(["web"]));
    check(".metadata.labels['app\\.io/name']", json!(["shop"]));
    check(".metadata.labels.app\\.io/name", json!(["shop"]));
    // An unescaped dot starts another field, quoted or not.
    check(".metadata.labels['app.io/name']", json!([]));
    check("['metadata.name']", json!(["web"]));
    check(".missing.further", json!([]));
    check(".spec.nothing", json!([null]));
    check(".spec.nothing.further", json!([]));
    check(".metadata.name.further", json!([]));
    check("", json!([object()]));
    check("@", json!([object()]));

    check(".items[0]", json!(["a"]));
    check(".items[]", json!(["a"]));
    check(".items[-1]", json!(["d"]));
    check(".items[-2]", json!(["c"]));
    check(".items[*]", json!(["a", "b", "c", "d"]));
    check(".items[:]", json!(["a", "b", "c", "d"]));
    check(".items[1:3]", json!(["b", "c"]));
    check(".items[-2:]", json!(["c", "d"]));
    check(".items[:-1]", json!(["a", "b", "c"]));
    check(".items[::2]", json!(["a", "c"]));
    check(".items[::9223372036854775807]", json!(["a"]));
    check(".items[1:1]", json!([]));
    check(".items[0,-1]", json!(["a", "d"]));
    check(".nested[*][0]", json!([1, 3]));
    check(".missing[0]", json!([]));
    check(".spec.nothing[0]", json!([]));

    check(".metadata['name','labels']", json!(["web", {"app.io/name": "shop", "plain": "x"}]));
    check(".metadata.labels.*", json!(["shop", "x"]));
    check(".metadata.name.*", json!([]));
    check("..type", json!(["Synced", "Ready", "Old"]));
    check(".nested..[0]", json!([[1, 2], 1, 3]));

    check(".status.conditions[?(@.type==\"Ready\")].status", json!(["True"]));
    check(".status.conditions[?(@.type=='Ready')].status", json!(["True"]));
    check(".status.conditions[?( @.type == 'Ready' )].status", json!(["True"]));
    check(".status.conditions[?(.type==\"Ready\")].status", json!(["True"]));
    check(".status.conditions[?(@.type!=\"Ready\")].type", json!(["Synced", "Old"]));
    check(".status.conditions[?(@.weight>1)].type", json!(["Ready", "Old"]));
    check(".status.conditions[?(@.weight>=2)].type", json!(["Ready", "Old"]));
    check(".status.conditions[?(@.weight<2)].type", json!(["Synced"]));
    check(".status.conditions[?(@.weight<=2)].type", json!(["Synced", "Ready"]));
    check(".status.conditions[?(@.type<\"P\")].type", json!(["Old"]));
    check(".status.conditions[?(@.ready==true)].type", json!(["Old"]));
    check(".status.conditions[?(@.ready)].type", json!(["Old"]));
    check(".status.conditions[?(@.reason==\"a)b\")].type", json!(["Ready"]));
    check(".status.conditions[?(@.reason)].type", json!(["Ready"]));
    check(".status.conditions[?(@.missing==\"x\")].type", json!([]));
    check(".items[?(@==\"b\")]", json!(["b"]));
    check("\"text\"", json!(["text"]));
    check("5", json!([5]));
    check("-1.5", json!([-1.5]));
}

#[test]
fn refuses_to_read() {
    #[track_caller]
    fn check(path: &str, problem: &str) {
        let error = JsonPath::parse(path).unwrap_err().to_string();
        assert!(error.ends_with(problem), "{path}: {error}");
    }
    check(".a[0", "unterminated array");
    check(".a[x]", "invalid array index");
    check(".a[+1]", "invalid array index");
    check(".a[1:2:3:4]", "invalid array index");
    check(".a[99999999999999999999]", "invalid array index");
    check(".a[?(@.b", "unterminated filter");
    check(".a[?(@.b==\"x)]", "unterminated filter");
    check(".a[?(@.b)", "unclosed array expect ]");
    check(".a[?(@.b==)]", "nothing to compare with");
    check("....a", "invalid multiple recursive descent");
    check(".a\n", "unclosed action");
    check(".a\\", "unclosed action");
    check(".a}", "unexpected '}'");
    check("\"a", "unterminated quoted string");
    check("\"\\q\"", "invalid escape in quoted string");
    check("~", "unrecognized character in action");
    check("1.2.3", "cannot parse number");
    let long = ".a".repeat(40_000);
    assert_eq!(JsonPath::parse(&long), Err(JsonPathError::TooLong { limit: 65_536 }));
}

#[test]
fn refuses_to_follow() {
    #[track_caller]
    fn check(path: &str, expected: JsonPathError) {
        let path = JsonPath::parse(path).unwrap();
        assert_eq!(path.find(&object()), Err(expected));
    }
    check(".items[4]", JsonPathError::OutOfBounds { index: 4, length: 4 });
    check(".items[-5]", JsonPathError::OutOfBounds { index: -1, length: 4 });
    check(".items[0:5]", JsonPathError::OutOfBounds { index: 4, length: 4 });
    check(".items[3:1]", JsonPathError::BadSlice { from: 3, to: 1, step: 1 });
    check(".items[::0]", JsonPathError::BadSlice { from: 0, to: 4, step: 0 });
    check(".items[::-1]", JsonPathError::BadSlice { from: 0, to: 4, step: -1 });
    check(".metadata[0]", JsonPathError::NotAList);
    check(".metadata[?(@.a)]", JsonPathError::NotAList);
    check(".status.conditions[?(@.weight==\"1\")]", JsonPathError::Incomparable);
    check(".status.conditions[?(@.weight>0.5)]", JsonPathError::Incomparable);
    check(".status.conditions[?(@.ready<true)]", JsonPathError::Incomparable);
    check(".status.conditions[?(@==1)]", JsonPathError::Incomparable);
    check(".status.conditions[?(@.weight=1)]", JsonPathError::UnknownOperator("=".into()));
    check(".status.conditions[?(@['type','status']==1)]", JsonPathError::ManyValues);
    check("name", JsonPathError::UnknownIdentifier("name".into()));
}

#[test]
fn work_is_bounded() {
    let mut object = json!({"a": 1});
    for _ in 0..100 {
        object = json!({ "a": object });
    }
    // Each descent starts from all that the one before it found.
    let path = JsonPath::parse(&"..a".repeat(6)).unwrap();
    assert_eq!(path.find(&object), Err(JsonPathError::TooLarge));
    // Each part of a union does too.
    let list = json!([[[[[[[[[[[[0]]]]]]]]]]]]);
    let union = JsonPath::parse(&"[0,0,0,0]".repeat(12)).unwrap();
    assert_eq!(union.find(&list), Err(JsonPathError::TooLarge));
    let items = json!({"items": vec![json!({"items": vec![json!({"items": vec![0; 200]}); 200]}); 200]});
    let ranges = Template::parse(&"{range .items[*]}".repeat(3)).unwrap();
    assert_eq!(ranges.render(&items), Err(JsonPathError::TooLarge));
}

#[test]
fn templates() {
    #[track_caller]
    fn check(template: &str, expected: &str) {
        assert_eq!(Template::parse(template).unwrap().render(&object()).unwrap(), expected);
    }
    check("", "");
    check("plain text", "plain text");
    check("{.metadata.name}", "web");
    check("<{.items[*]}>", "<a b c d>");
    check(
        "{.spec.replicas} {.spec.ratio} {.spec.paused} {.spec.nothing} {.spec.big}",
        "3 0.5 false null 1.2345675e+06",
    );
    check("{.missing}!", "!");
    check("{.nested}", "[[1,2],[3]]");
    check("{.html}", r#"{"a":[1,"x"],"b":"\u003c\u0026\u003e"}"#);
    check(
        r#"{range .status.conditions[*]}{.type}={.status}{"\n"}{end}"#,
        "Synced=False\nReady=True\nOld=True\n",
    );
    check("{range .nested[*]}{range @[*]}<{@}>{end};{end}.", "<1><2>;<3>;.");
    check("{range .missing[*]}x{end}y", "y");
    check("{range .items[*]}{@}", "abcd");
    check(r#"{"tab\there \x41\u00e9\101 \"q\""}"#, "tab\there AéA \"q\"");
    check(r"{'it\'s'}", "it's");
}

#[test]
fn templates_refused() {
    #[track_caller]
    fn check(template: &str, expected: &str) {
        assert_eq!(Template::parse(template).unwrap_err().to_string(), expected);
    }
    check("ab{.a", "invalid jsonpath at byte 5: unclosed action");
    check("{end}", "invalid jsonpath at byte 0: not in range, nothing to end");
    check(&"{range .a}".repeat(40), "invalid jsonpath at byte 320: ranges are nested too deep");
    let large = json!({"items": vec!["x".repeat(1 << 20); 40]});
    assert_eq!(Template::parse("{.items}").unwrap().render(&large), Err(JsonPathError::TooLarge));
}

#[test]
fn relaxed_paths() {
    #[track_caller]
    fn check(text: &str) {
        assert_eq!(JsonPath::parse_relaxed(text), JsonPath::parse(".metadata.name"));
    }
    check(".metadata.name");
    check("metadata.name");
    check("{.metadata.name}");
    check("{metadata.name}");
    check(" {.metadata.name} ");
}
