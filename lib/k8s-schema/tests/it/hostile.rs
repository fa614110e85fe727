//! Input that means harm: it may be refused, it may not hang, overflow or panic.

use std::time::Instant;

use k8s_schema::{Schema, default, prune, validate_all, validate_rules};
use serde_json::{Value, json};

fn nested(depth: usize, wrap: impl Fn(Value) -> Value) -> Value {
    (0..depth).fold(json!({"type": "string"}), |inner, _| wrap(inner))
}

#[test]
fn deep_schemas_are_refused() {
    let wraps: [fn(Value) -> Value; 4] = [
        |inner| json!({"type": "object", "properties": {"a": inner}}),
        |inner| json!({"type": "array", "items": inner}),
        |inner| json!({"type": "object", "additionalProperties": inner}),
        |inner| json!({"type": "object", "not": inner}),
    ];
    for wrap in wraps {
        let errors = Schema::from_crd(&nested(2_000, wrap)).unwrap_err();
        assert!(errors[0].to_string().contains("must not be nested deeper than 128"), "{}", errors[0]);
    }
    assert!(Schema::from_crd(&nested(100, wraps[0])).is_ok());
}

#[test]
fn malformed_schemas_are_refused() {
    for bad in [
        json!(null),
        json!([]),
        json!({"type": 5}),
        json!({"type": "object", "properties": []}),
        json!({"type": "object", "properties": {"a": 1}}),
        json!({"type": "object", "required": "a"}),
        json!({"type": "object", "minProperties": "x"}),
        json!({"type": "object", "x-kubernetes-validations": [1]}),
        json!({"type": "object", "x-kubernetes-validations": {"rule": 1}}),
        json!({"type": "object", "nullable": "yes"}),
    ] {
        assert!(Schema::from_crd(&bad).is_err(), "{bad}");
    }
}

/// Runs one rule on a list of numbers and gives back the message.
#[track_caller]
fn run(rule: &str, n_items: usize) -> String {
    let schema = Schema::from_crd(&json!({"type": "object", "properties": {
        "l": {"type": "array", "items": {"type": "integer"}, "x-kubernetes-validations": [{"rule": rule}]},
    }}))
    .unwrap_or_else(|e| panic!("{e:?}"));
    let list: Vec<usize> = (0..n_items).collect();
    let start = Instant::now();
    let errors = validate_rules(&json!({"l": list}), None, &schema);
    assert!(start.elapsed().as_secs() < 20, "{rule} took {:?}", start.elapsed());
    errors.first().map(ToString::to_string).unwrap_or_default()
}

#[test]
fn expensive_rules_are_stopped() {
    for rule in [
        "self.all(a, self.all(b, self.all(c, a + b + c >= 0)))",
        "self.all(a, self == self)",
        "self.all(a, self.map(b, b).size() > 0)",
        "self.all(a, (self + self + self + self).size() > 0)",
        "self.all(a, self.all(b, a in self))",
        "lists.range(1000000000).size() > 0",
        "self.all(a, self.map(b, string(b)).join('xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx').size() > 0)",
        "self.all(a, self.sum() >= 0)",
        "self.all(a, self.isSorted())",
        "self.all(a, sets.contains(self, self))",
        "self.all(a, self.all(b, string(a).matches('(a|b|c){1,50}' + string(b)) || true))",
        "'%.1000000000f'.format([1.0]) == ''",
        "self.sortBy(a, self.sum() - a).size() > 0",
    ] {
        let text = run(rule, 3_000);
        assert!(text.contains("cost"), "{rule}: {text:?}");
    }
}

#[test]
fn growing_texts_are_stopped() {
    let doubled = (0..30).fold("'aaaaaaaaaa'".to_owned(), |inner, _| format!("[{inner}].map(x, x + x)[0]"));
    let text = run(&format!("{doubled} == ''"), 1);
    assert!(text.contains("cost"), "{text:?}");
    let text = run(
        "self.map(x, 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa').join('').replace('a', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa') == ''",
        3_000,
    );
    assert!(text.contains("cost"), "{text:?}");
}

#[test]
fn cheap_rules_run_on_large_lists() {
    assert_eq!(run("self.all(x, x >= 0) && self.size() == 20000 && self.sum() > 0", 20_000), "");
}

#[test]
fn hostile_patterns_are_harmless() {
    for pattern in [
        "(a+)+$",
        "(a|a)*$",
        "(x*)*y",
        "((a{0,100}){0,100}){0,10}$",
        "[[:alpha:",
        "\\",
        "(?i",
        "a{2,1}",
        "\\p{Foo}",
    ] {
        let json = json!({"type": "object", "properties": {"s": {"type": "string", "pattern": pattern}}});
        let Ok(schema) = Schema::from_crd(&json) else { continue };
        let start = Instant::now();
        let _ = validate_all(&json!({"s": format!("{}!", "a".repeat(50_000))}), None, &schema);
        assert!(start.elapsed().as_secs() < 10, "{pattern}");
    }
}

#[test]
fn many_errors_are_not_a_problem() {
    let schema = Schema::from_crd(&json!({"type": "object", "properties": {
        "l": {"type": "array", "items": {"type": "string", "maxLength": 1}, "x-kubernetes-list-type": "set"},
    }}))
    .unwrap();
    let mut object = json!({"l": vec![1; 100_000]});
    let start = Instant::now();
    prune(&mut object, &schema);
    default(&mut object, &schema);
    let errors = validate_all(&object, None, &schema);
    assert_eq!(errors.len(), 100_001);
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}
