//! Whatever is sent, there is an answer, and the server goes on.

use crate::api::{Api, MAPS, map};
use proptest::prelude::*;
use serde_json::{Value, json};

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|f| json!(f)),
        "\\PC{0,12}".prop_map(Value::from),
    ];
    let key = prop_oneof![
        Just("metadata".to_string()),
        Just("spec".into()),
        Just("status".into()),
        Just("containers".into()),
        Just("name".into()),
        Just("namespace".into()),
        Just("labels".into()),
        Just("ownerReferences".into()),
        Just("finalizers".into()),
        Just("template".into()),
        Just("selector".into()),
        Just("managedFields".into()),
        "[a-z]{1,6}",
    ];
    leaf.prop_recursive(4, 48, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key.clone(), inner, 0..6)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

fn line() -> impl Strategy<Value = String> {
    let method = prop_oneof!["GET", "POST", "PUT", "PATCH", "DELETE"];
    let paths = prop_oneof![
        Just("/api/v1/namespaces/default/pods".to_string()),
        Just("/api/v1/namespaces/default/pods/a".into()),
        Just("/api/v1/namespaces/default/pods/a/status".into()),
        Just("/api/v1/namespaces/default/pods/a/binding".into()),
        Just("/api/v1/namespaces/default/pods/a/eviction".into()),
        Just("/api/v1/nodes".into()),
        Just("/apis/apps/v1/namespaces/default/deployments".into()),
        Just("/apis/apps/v1/namespaces/default/deployments/a/scale".into()),
        Just("/apis/batch/v1/namespaces/default/jobs".into()),
        Just("/apis/apiextensions.k8s.io/v1/customresourcedefinitions".into()),
        Just("/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups".into()),
        Just("/api/v1/namespaces".into()),
    ];
    (method, paths).prop_map(|(m, p)| format!("{m} {p}"))
}

/// One server for all cases, so that what one request leaves behind meets the next.
fn with_server<T>(run: impl AsyncFnOnce(&Api) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let api = Api::new();
        api.ok(&format!("POST {MAPS}"), map("a")).await;
        run(&api).await
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn any_json_gets_an_answer(requests in prop::collection::vec((line(), value()), 1..12)) {
        with_server(async |api| {
            for (line, body) in &requests {
                for kind in ["application/json", "application/merge-patch+json", "application/apply-patch+yaml",
                             "application/strategic-merge-patch+json", "application/json-patch+json"] {
                    let line = if line.starts_with("PATCH") { format!("{line}?fieldManager=x") } else { line.clone() };
                    let (code, answer) = api.send_as(&line, kind, body.to_string().as_bytes()).await;
                    assert!(code != 500 || answer.get("reason").is_none(), "{line} {body}: {answer}");
                }
            }
            // It still works.
            api.ok(&format!("GET {MAPS}/a"), Value::Null).await;
        });
    }

    #[test]
    fn any_bytes_get_an_answer(line in line(), body in prop::collection::vec(any::<u8>(), 0..200), kind in "\\PC{0,20}") {
        with_server(async |api| {
            for kind in ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "application/apply-patch+yaml"]
                .iter().map(|k| k.to_string()).chain(http::HeaderValue::from_str(&kind).ok().map(|_| kind.clone()))
            {
                let _ = api.send_as(&line, &kind, &body).await;
            }
        });
    }

    #[test]
    fn any_query_gets_an_answer(query in "[ -~]{0,60}") {
        let uri = format!("{MAPS}?{query}").replace(['#', ' ', '"', '<', '>', '\\', '^', '`', '{', '|', '}'], "%20");
        prop_assume!(uri.parse::<http::Uri>().is_ok() && !uri.contains("watch"));
        with_server(async |api| {
            let (code, _) = api.send(&format!("GET {uri}"), Value::Null).await;
            assert!(code < 500 || code == 504 || code == 500, "{uri}: {code}");
        });
    }
}
