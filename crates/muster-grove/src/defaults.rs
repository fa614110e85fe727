//! What a set means when it does not say.
//!
//! In: a PodCliqueSet as JSON. Out: the same with the defaults written in, as a mutating webhook does it. Must stay true: what
//! is said stays; defaulting twice changes nothing; a minimum is taken from the number of pods after that is put right.

use serde_json::{Map, Value, json};

/// Writes the defaults of a PodCliqueSet.
pub fn set(object: &mut Value) {
    let Some(template) =
        object.get_mut("spec").and_then(|spec| spec.get_mut("template")).and_then(Value::as_object_mut)
    else {
        return;
    };
    or(template, "cliqueStartupType", || json!("CliqueStartupTypeAnyOrder"));
    or(template, "terminationDelay", || json!("4h"));
    or(template, "headlessServiceConfig", || json!({"publishNotReadyAddresses": true}));
    for clique in each(template, "cliques") {
        let name = clique.get("name").cloned().unwrap_or(Value::Null);
        let Some(spec) = clique.get_mut("spec").and_then(Value::as_object_mut) else { continue };
        if spec.get("roleName").is_none_or(|role| role.is_null() || role == "") && name.is_string() {
            spec.insert("roleName".into(), name);
        }
        if matches!(spec.get("replicas").and_then(Value::as_i64), None | Some(0)) {
            spec.insert("replicas".into(), json!(1));
        }
        let replicas = spec.get("replicas").cloned().unwrap_or(json!(1));
        or(spec, "minAvailable", || replicas.clone());
        if let Some(scaling) = spec.get_mut("autoScalingConfig").and_then(Value::as_object_mut) {
            or(scaling, "minReplicas", || replicas);
        }
        if let Some(pod) = spec.get_mut("podSpec").and_then(Value::as_object_mut) {
            or(pod, "restartPolicy", || json!("Always"));
            or(pod, "terminationGracePeriodSeconds", || json!(30));
        }
    }
    for group in each(template, "podCliqueScalingGroups") {
        or(group, "replicas", || json!(1));
        or(group, "minAvailable", || json!(1));
        let replicas = group.get("replicas").cloned().unwrap_or(json!(1));
        if let Some(scaling) = group.get_mut("scaleConfig").and_then(Value::as_object_mut) {
            or(scaling, "minReplicas", || replicas);
        }
    }
}

fn or(map: &mut Map<String, Value>, field: &str, value: impl FnOnce() -> Value) {
    if map.get(field).is_none_or(Value::is_null) {
        map.insert(field.to_owned(), value());
    }
}

fn each<'a>(
    map: &'a mut Map<String, Value>,
    field: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    map.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn defaulted(mut value: Value) -> Value {
        set(&mut value);
        value
    }

    #[test]
    fn the_documents_set() {
        let out = defaulted(json!({"spec": {"replicas": 1, "template": {
            "cliques": [{"name": "servers", "spec": {"replicas": 3, "podSpec": {"schedulerName": ""}}}],
            "podCliqueScalingGroups": [{"name": "g", "cliqueNames": ["servers"], "scaleConfig": {"maxReplicas": 4}}],
        }}}));
        assert_eq!(
            out["spec"]["template"],
            json!({
                "cliqueStartupType": "CliqueStartupTypeAnyOrder",
                "terminationDelay": "4h",
                "headlessServiceConfig": {"publishNotReadyAddresses": true},
                "cliques": [{"name": "servers", "spec": {
                    "roleName": "servers", "replicas": 3, "minAvailable": 3,
                    "podSpec": {"schedulerName": "", "restartPolicy": "Always", "terminationGracePeriodSeconds": 30},
                }}],
                "podCliqueScalingGroups": [{"name": "g", "cliqueNames": ["servers"], "replicas": 1, "minAvailable": 1,
                                            "scaleConfig": {"maxReplicas": 4, "minReplicas": 1}}],
            })
        );
    }

    #[track_caller]
    fn check(clique: Value, expected: Value) {
        let out = defaulted(json!({"spec": {"template": {"cliques": [{"name": "a", "spec": clique}]}}}));
        assert_eq!(out["spec"]["template"]["cliques"][0]["spec"], expected);
    }

    #[test]
    fn counts() {
        check(json!({"replicas": 0}), json!({"roleName": "a", "replicas": 1, "minAvailable": 1}));
        check(json!({}), json!({"roleName": "a", "replicas": 1, "minAvailable": 1}));
        check(
            json!({"replicas": 4, "minAvailable": 2}),
            json!({"roleName": "a", "replicas": 4, "minAvailable": 2}),
        );
        check(json!({"replicas": -1}), json!({"roleName": "a", "replicas": -1, "minAvailable": -1}));
        check(
            json!({"replicas": 2, "autoScalingConfig": {"maxReplicas": 5}, "roleName": "r"}),
            json!({"roleName": "r", "replicas": 2, "minAvailable": 2, "autoScalingConfig": {"maxReplicas": 5, "minReplicas": 2}}),
        );
        check(
            json!({"replicas": 1, "podSpec": {"restartPolicy": "Never"}}),
            json!({"roleName": "a", "replicas": 1, "minAvailable": 1,
                   "podSpec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 30}}),
        );
    }

    fn odd() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i32>().prop_map(Value::from),
            "[a-z]{0,3}".prop_map(Value::from)
        ];
        let keys = prop_oneof![
            Just("spec"),
            Just("template"),
            Just("cliques"),
            Just("podSpec"),
            Just("podCliqueScalingGroups"),
            Just("replicas"),
            Just("autoScalingConfig"),
            Just("name"),
            Just("scaleConfig")
        ];
        leaf.prop_recursive(6, 40, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map(keys.clone().prop_map(str::to_owned), inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn twice_is_once(value in odd()) {
            let once = defaulted(value);
            prop_assert_eq!(defaulted(once.clone()), once);
        }
    }
}
