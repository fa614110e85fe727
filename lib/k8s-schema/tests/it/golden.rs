//! What a real API server (release 1.36) answers: about a thousand recorded cases, one JSON object per line.
//!
//! A case has a `schema`, perhaps a `value` and an `old` value, and the answers: `crd` (why the schema is refused), `unknown` and
//! `pruned`, `defaulted`, `errors` (without rules) and `rules`. The first line is a large schema and a value of it; cases with only a
//! `rule` put that rule on it. Lists of errors are compared without order. Differences that we know of are named in
//! [`comparable`].

use k8s_schema::{FieldError, Schema, default, prune, validate, validate_rules, validate_update};
use serde_json::{Value, json};

struct Case {
    schema: Value,
    value: Option<Value>,
    old: Option<Value>,
    answers: Value,
}

fn cases() -> Vec<Case> {
    let mut lines =
        include_str!("golden.jsonl").lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let rich = lines.next().unwrap();
    let take = |answers: Value| match answers.get("rule") {
        None => Case {
            schema: answers["schema"].clone(),
            value: answers.get("value").cloned(),
            old: answers.get("old").cloned(),
            answers,
        },
        Some(rule) => {
            let mut spec = rich["rich"].clone();
            spec["x-kubernetes-validations"] = json!([rule]);
            Case {
                schema: json!({"type": "object", "properties": {"spec": spec}}),
                value: Some(json!({"spec": rich["value"]})),
                old: None,
                answers,
            }
        }
    };
    lines.map(take).collect()
}

fn texts(errors: &[FieldError]) -> Vec<String> {
    let mut texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    texts.sort();
    texts
}

fn expected(answers: &Value, name: &str) -> Vec<String> {
    let mut texts: Vec<String> = answers
        .get(name)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|t| t.as_str().unwrap().to_owned())
        .collect();
    texts.sort();
    texts
}

/// Makes messages comparable where they depend on a parser of another language or on names made up at run time; `None` for
/// messages that only the API server has: it also refuses rules by their estimated cost, and folds constants.
fn comparable(text: &str) -> Option<String> {
    let only_theirs = [
        "exceeds budget",
        "contributed to estimated rule cost",
        "program instantiation failed",
        "formatting clause",
        "error during formatting",
        "ERROR: <input>:1:15: index 1 out of range",
    ];
    if only_theirs.iter().any(|words| text.contains(words)) {
        return None;
    }
    let mut text = text.to_owned();
    if let Some(at) = text.find("Syntax error:") {
        text.truncate(at);
    }
    while let Some(at) = text.find("selfType") {
        let end = text[at..].find([',', ')', '(', '\'']).map_or(text.len(), |n| at + n);
        let dot = if text[..end].ends_with('.') { "." } else { "" };
        text.replace_range(at..end, &format!("object{dot}"));
    }
    Some(text)
}

/// Numbers are compared by value: Go prints `1.0` as `1`.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(k, v)| b.get(k).is_some_and(|other| same(v, other)))
        }
        (a, b) => a == b,
    }
}

#[test]
fn answers_are_those_of_the_api_server() {
    let mut n_wrong = 0;
    let mut n_checks = 0;
    let mut check = |what: &str,
                     case: &Case,
                     ours: &dyn std::fmt::Debug,
                     theirs: &dyn std::fmt::Debug,
                     same: bool| {
        n_checks += 1;
        if !same {
            n_wrong += 1;
            let shown = case.answers.get("rule").unwrap_or(&case.schema);
            println!(
                "{what}: {shown} {:?} {:?}\n   ours: {ours:?}\n theirs: {theirs:?}",
                case.value.as_ref().filter(|_| case.answers.get("rule").is_none()).map(ToString::to_string),
                case.old.as_ref().map(ToString::to_string)
            );
        }
    };
    for case in cases() {
        let theirs: Vec<String> =
            expected(&case.answers, "crd").iter().filter_map(|t| comparable(t)).collect();
        let (schema, ours) = match Schema::from_crd(&case.schema) {
            Ok(schema) => (Some(schema), Vec::new()),
            Err(errors) => (None, texts(&errors).iter().filter_map(|t| comparable(t)).collect()),
        };
        check("crd", &case, &ours, &theirs, ours == theirs);
        let (Some(schema), Some(value)) = (schema, &case.value) else { continue };
        if !expected(&case.answers, "crd").is_empty() {
            continue;
        }
        if case.answers.get("pruned").is_some() {
            let mut ours = value.clone();
            let unknown = prune(&mut ours, &schema);
            check("pruned", &case, &ours, &case.answers["pruned"], same(&ours, &case.answers["pruned"]));
            let theirs = expected(&case.answers, "unknown");
            check("unknown", &case, &unknown, &theirs, unknown == theirs);
            default(&mut ours, &schema);
            check(
                "defaulted",
                &case,
                &ours,
                &case.answers["defaulted"],
                same(&ours, &case.answers["defaulted"]),
            );
        }
        if case.answers.get("rule").is_none() {
            let ours = match &case.old {
                None => validate(value, &schema),
                Some(old) => validate_update(value, old, &schema),
            };
            let (ours, theirs) = (texts(&ours), expected(&case.answers, "errors"));
            check("errors", &case, &ours, &theirs, ours == theirs);
        }
        let ours = texts(&validate_rules(value, case.old.as_ref(), &schema));
        let theirs = expected(&case.answers, "rules");
        check("rules", &case, &ours, &theirs, ours == theirs);
    }
    println!("{n_checks} checks");
    assert_eq!(n_wrong, 0, "answers differ; see above");
}
