//! What tells one template from another.
//!
//! In: a template. Out: a short name that is a label. Must stay true: the order of keys, absent and empty fields, and
//! defaults that a webhook fills in make no difference; counts, minima, order of start, scaling and topology are not part of
//! it, since no pod has to be made anew for them.

use muster_runtime::json::stable_u64_of;
use muster_runtime::object::Meta;
use serde_json::{Map, Value, json};

use crate::keys;
use crate::object::{CliqueTemplate, PodCliqueSet};

/// The hash of the pods that a clique's template makes.
pub fn template(clique: &CliqueTemplate) -> String {
    let mut spec = stripped(&clique.spec.pod_spec).unwrap_or_else(|| json!({}));
    if let Some(spec) = spec.as_object_mut() {
        for (field, default) in
            [("restartPolicy", json!("Always")), ("terminationGracePeriodSeconds", json!(30))]
        {
            if spec.get(field) == Some(&default) {
                spec.remove(field);
            }
        }
    }
    let value = json!({
        "labels": clique.labels,
        "annotations": clique.annotations,
        "podSpec": spec,
    });
    short(&value)
}

/// The hash of all cliques of a set, in their order.
pub fn generation(set: &PodCliqueSet) -> String {
    let all: Vec<String> = set.spec.template.cliques.iter().map(template).collect();
    short(&json!(all))
}

/// Whether a hash is one of ours. Those of other programs cannot be compared with ours.
pub fn is_ours(hash: &str) -> bool {
    hash.len() == 1 + DIGITS && hash.starts_with(MARK) && hash.bytes().skip(1).all(|b| LETTERS.contains(&b))
}

/// Whether a pod is of the template with this hash. A clique that another program made says which of that program's
/// hashes means which of ours.
pub fn is_current(pod: &Meta, clique: &Meta, wanted: &str) -> bool {
    let have = pod.labels.get(keys::TEMPLATE_HASH).map_or("", String::as_str);
    have == wanted
        || clique
            .annotation(keys::ADOPTED_HASH)
            .and_then(|said| said.split_once('='))
            .is_some_and(|(theirs, ours)| theirs == have && ours == wanted)
}

const MARK: char = 'm';
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// Enough letters of 27 for 64 bits.
const DIGITS: usize = 14;

fn short(value: &Value) -> String {
    let mut left = stable_u64_of(value);
    let mut out = String::with_capacity(1 + DIGITS);
    out.push(MARK);
    for _ in 0..DIGITS {
        out.push(char::from(LETTERS[(left % 27) as usize]));
        left /= 27;
    }
    out
}

/// Without what is absent as good as empty.
fn stripped(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::String(text) if text.is_empty() => None,
        Value::Array(items) if items.is_empty() => None,
        Value::Array(items) => {
            Some(Value::Array(items.iter().map(|item| stripped(item).unwrap_or(Value::Null)).collect()))
        }
        Value::Object(map) => {
            let kept: Map<String, Value> =
                map.iter().filter_map(|(key, value)| Some((key.clone(), stripped(value)?))).collect();
            // An empty object can mean something: `emptyDir: {}`.
            Some(Value::Object(kept))
        }
        other => Some(other.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clique(value: Value) -> CliqueTemplate {
        serde_json::from_value(value).unwrap()
    }

    #[track_caller]
    fn check(a: Value, b: Value, same: bool) {
        assert_eq!(template(&clique(a.clone())) == template(&clique(b.clone())), same, "{a} {b}");
    }

    #[test]
    fn what_makes_pods_anew() {
        let spec = |pod: Value| json!({"name": "a", "spec": {"replicas": 1, "podSpec": pod}});
        check(
            spec(json!({"containers": [{"image": "a"}]})),
            spec(json!({"containers": [{"image": "b"}]})),
            false,
        );
        check(spec(json!({"a": 1, "b": 2})), spec(json!({"b": 2, "a": 1})), true);
        check(
            spec(json!({})),
            spec(json!({"restartPolicy": "Always", "terminationGracePeriodSeconds": 30})),
            true,
        );
        check(spec(json!({})), spec(json!({"restartPolicy": "Never"})), false);
        check(spec(json!({})), spec(json!({"tolerations": [], "nodeName": ""})), true);
        check(spec(json!({"volumes": [{"emptyDir": {}}]})), spec(json!({"volumes": [{}]})), false);
        check(spec(json!({"priorityClassName": "a"})), spec(json!({"priorityClassName": "b"})), false);
        check(
            json!({"name": "a", "spec": {"replicas": 1, "minAvailable": 1}}),
            json!({"name": "a", "spec": {"replicas": 5, "startsAfter": ["b"]}, "topologyConstraint": {"packDomain": "rack"}}),
            true,
        );
        check(json!({"labels": {"a": "1"}}), json!({"labels": {"a": "2"}}), false);
        check(json!({"labels": {"a": "1"}}), json!({"annotations": {"a": "1"}}), false);
    }

    #[test]
    fn ours_and_theirs() {
        let ours = template(&clique(json!({})));
        assert!(is_ours(&ours), "{ours}");
        assert!(!is_ours("6d8f9c7b5") && !is_ours("") && !is_ours("maaaaaaaaaaaaaa"));
        let meta = |label: &str, annotation: &str| {
            let mut meta = Meta::default();
            meta.labels.insert(keys::TEMPLATE_HASH.into(), label.into());
            if !annotation.is_empty() {
                meta.annotations.insert(keys::ADOPTED_HASH.into(), annotation.into());
            }
            meta
        };
        let is = |pod: &str, clique: &str| is_current(&meta(pod, ""), &meta("", clique), "m1");
        assert!(is("m1", ""));
        assert!(is("x", "x=m1"));
        assert!(!is("x", "x=m2") && !is("y", "x=m1") && !is("x", "") && !is("x", "junk"));
    }
}
