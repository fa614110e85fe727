//! Selectors: over labels, and over nodes.
//!
//! What Kubernetes would refuse (an unknown operator, `In` without values) can hold nowhere: it becomes [`Op::Never`] and is reported.

use crate::read::At;
use muster_model::{Expr, LabelSelector, Name, NodeTerm, Op};

/// A label selector. Absent selects nothing, empty selects everything.
pub(crate) fn labels(at: At<'_>) -> LabelSelector {
    if !at.exists() {
        return nothing();
    }
    let mut all: Vec<Expr> = at
        .get("matchLabels")
        .entries()
        .filter_map(|(key, value)| Some(Expr { key: key.into(), op: Op::In(vec![value.str()?.into()]) }))
        .collect();
    all.extend(at.get("matchExpressions").list().map(|e| expr(e, false)));
    all.sort();
    all.dedup();
    LabelSelector { all }
}

pub(crate) fn nothing() -> LabelSelector {
    LabelSelector { all: vec![Expr { key: "".into(), op: Op::Never }] }
}

/// Adds `key in (value)` for every key that the pod has, or `key not in (value)`.
pub(crate) fn with_own_labels(
    selector: &mut LabelSelector,
    keys: At<'_>,
    mismatch: bool,
    own: &muster_model::Labels,
) {
    for key in keys.names() {
        if let Some(value) = own.get(&key) {
            let values = vec![value.clone()];
            selector.all.push(Expr { key, op: if mismatch { Op::NotIn(values) } else { Op::In(values) } });
        }
    }
    selector.all.sort();
    selector.all.dedup();
}

/// The terms of a node selector: one must hold.
pub(crate) fn node_terms(selector: At<'_>) -> Vec<NodeTerm> {
    selector.get("nodeSelectorTerms").list().map(node_term).collect()
}

pub(crate) fn node_term(at: At<'_>) -> NodeTerm {
    let labels = at.get("matchExpressions").list().map(|e| expr(e, true)).collect();
    let names = at
        .get("matchFields")
        .list()
        .map(|field| {
            let mut expr = expr(field, true);
            if &*expr.key != "metadata.name" {
                field.report("only metadata.name can be matched as a field; this holds on no node");
                expr.op = Op::Never;
            }
            expr
        })
        .collect();
    NodeTerm { labels, names }
}

/// One expression. Only those over nodes may compare numbers.
fn expr(at: At<'_>, over_nodes: bool) -> Expr {
    let key: Name = at.get("key").str().unwrap_or("").into();
    let values = at.get("values").names();
    let never = |problem: &str| {
        at.report(format!("{problem}; this holds nowhere"));
        Op::Never
    };
    let number = || match &*values {
        [value] => value.parse::<i64>().ok(),
        _ => None,
    };
    let op = match at.get("operator").str().unwrap_or("") {
        "In" | "NotIn" if values.is_empty() => never("In and NotIn need values"),
        "In" => Op::In(sorted(values)),
        "NotIn" => Op::NotIn(sorted(values)),
        "Exists" => Op::Exists,
        "DoesNotExist" => Op::Absent,
        "Gt" if over_nodes => {
            number().map_or_else(|| never("Gt needs one whole number as its value"), Op::Above)
        }
        "Lt" if over_nodes => {
            number().map_or_else(|| never("Lt needs one whole number as its value"), Op::Below)
        }
        _ => never("the operator must be In, NotIn, Exists or DoesNotExist (for nodes also Gt, Lt)"),
    };
    Expr { key, op }
}

fn sorted(mut names: Vec<Name>) -> Vec<Name> {
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::Object;
    use muster_model::Labels;
    use serde_json::{Value, json};

    fn own() -> Labels {
        [("app", "db"), ("tier", "3")].iter().map(|(k, v)| ((*k).into(), (*v).into())).collect()
    }

    #[track_caller]
    fn check(selector: Value, expected: bool, n_diagnostics: usize) {
        let value = json!({"s": selector});
        let object = Object::new("Pod", &value);
        assert_eq!(labels(object.get("s")).matches(&own()), expected, "{value}");
        assert_eq!(object.into_diagnostics().len(), n_diagnostics, "{value}");
    }

    #[test]
    fn label_selectors() {
        check(json!(null), false, 0);
        check(json!({}), true, 0);
        check(json!({"matchLabels": {"app": "db"}}), true, 0);
        check(json!({"matchLabels": {"app": "web"}}), false, 0);
        check(
            json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["x", "db"]}]}),
            true,
            0,
        );
        check(json!({"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["x"]}]}), true, 0);
        check(json!({"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]}), true, 0);
        check(json!({"matchExpressions": [{"key": "zone", "operator": "Exists"}]}), false, 0);
        check(json!({"matchExpressions": [{"key": "app", "operator": "In"}]}), false, 1);
        check(json!({"matchExpressions": [{"key": "tier", "operator": "Gt", "values": ["1"]}]}), false, 1);
        check(json!({"matchExpressions": [{"key": "app", "operator": 5}]}), false, 2);
    }

    #[track_caller]
    fn check_term(term: Value, expected: bool, n_diagnostics: usize) {
        let value = json!({"t": term});
        let object = Object::new("Pod", &value);
        assert_eq!(node_term(object.get("t")).holds("n1", &own()), expected, "{value}");
        assert_eq!(object.into_diagnostics().len(), n_diagnostics, "{value}");
    }

    #[test]
    fn node_terms_compare_numbers_and_names() {
        let over = |field: &str, e: Value| json!({field: [e]});
        check_term(json!({}), false, 0);
        check_term(
            over("matchExpressions", json!({"key": "tier", "operator": "Gt", "values": ["2"]})),
            true,
            0,
        );
        check_term(
            over("matchExpressions", json!({"key": "tier", "operator": "Lt", "values": ["2"]})),
            false,
            0,
        );
        check_term(
            over("matchExpressions", json!({"key": "tier", "operator": "Lt", "values": ["x"]})),
            false,
            1,
        );
        check_term(
            over("matchFields", json!({"key": "metadata.name", "operator": "In", "values": ["n1"]})),
            true,
            0,
        );
        check_term(
            over("matchFields", json!({"key": "metadata.uid", "operator": "NotIn", "values": ["n1"]})),
            false,
            1,
        );
    }

    #[test]
    fn own_labels_are_added() {
        let value = json!({"keys": ["app", "absent"]});
        let object = Object::new("Pod", &value);
        let mut selector = LabelSelector::default();
        with_own_labels(&mut selector, object.get("keys"), false, &own());
        assert!(selector.matches(&own()));
        assert!(!selector.matches(&Labels::new()));
        with_own_labels(&mut selector, object.get("keys"), true, &own());
        assert!(!selector.matches(&own()));
    }
}
