//! Built-in kinds.
//!
//! `rows.jsonl` holds objects with the cells that the printers of Kubernetes v1.36.3 gave for them, and
//! `columns.tsv` the columns: `:` and the type when it is not text, `/` and the format, `+` for wide ones.

use std::collections::BTreeSet;

use k8s_table::{Cell, Column, Render, Row, Table, builtin};
use serde_json::{Value, json};

use crate::now;

fn group_of(object: &Value) -> &str {
    object["apiVersion"].as_str().unwrap_or_default().split_once('/').map_or("", |(group, _)| group)
}

#[test]
fn rows_are_those_of_the_server() {
    let mut n_rows = 0;
    let mut kinds = BTreeSet::new();
    for line in include_str!("rows.jsonl").lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let object = &case["object"];
        let kind = object["kind"].as_str().unwrap();
        let cells = builtin::row(group_of(object), kind, object, now()).unwrap();
        let json: Vec<Value> = cells.iter().map(Cell::to_json).collect();
        assert_eq!(Value::from(json), case["cells"], "{object}");
        kinds.insert((group_of(object).to_owned(), kind.to_owned()));
        n_rows += 1;
    }
    assert!(n_rows > 150 && kinds.len() > 50, "{n_rows} rows of {} kinds", kinds.len());
}

#[test]
fn columns_are_those_of_the_server() {
    let text = |column: Column| {
        let type_ = if column.type_ == "string" { String::new() } else { format!(":{}", column.type_) };
        let format = if column.format.is_empty() { String::new() } else { format!("/{}", column.format) };
        format!("{}{type_}{format}{}", column.name, if column.priority == 0 { "" } else { "+" })
    };
    for line in include_str!("columns.tsv").lines() {
        let mut parts = line.split('\t');
        let (group, kind) = (parts.next().unwrap(), parts.next().unwrap());
        let columns: Vec<_> = builtin::columns(group, kind).into_iter().map(text).collect();
        assert_eq!(columns.join(", "), parts.next().unwrap(), "{group} {kind}");
        assert!(builtin::is_known(group, kind));
    }
}

#[test]
fn every_kind_has_one_cell_for_each_column() {
    let mut seen = BTreeSet::new();
    for (group, kind) in builtin::known_kinds() {
        let cells = builtin::row(group, kind, &json!({}), now()).unwrap();
        assert_eq!(cells.len(), builtin::columns(group, kind).len(), "{group} {kind}");
        assert!(seen.insert((group, kind)), "{group} {kind} is there twice");
        assert_eq!(builtin::row(group, kind, &json!("text"), now()), None);
    }
    assert!(seen.len() >= 60);
}

/// The row of an object, all columns, with bars in between.
#[track_caller]
fn check(group: &str, kind: &str, object: Value, expected: &str) {
    let cells = builtin::row(group, kind, &object, now()).expect("the case is an object");
    let cells: Vec<String> = cells.iter().map(ToString::to_string).collect();
    assert_eq!(cells.join(" | "), expected);
}

const CREATED: &str = "2026-11-12T05:30:00Z";

#[test]
fn pods() {
    /// A pod with one container; the status goes on top.
    #[track_caller]
    fn check(status: Value, expected: &str) {
        let mut pod = json!({
            "metadata": {"name": "web", "creationTimestamp": CREATED},
            "spec": {"containers": [{"name": "main"}], "initContainers": [{"name": "one"}, {"name": "two"}]},
            "status": status,
        });
        if let Some(spec) = pod["status"].as_object_mut().and_then(|status| status.remove("spec")) {
            pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        }
        if let Some(deleted) = pod["status"].as_object_mut().and_then(|status| status.remove("deleted")) {
            pod["metadata"]["deletionTimestamp"] = deleted;
        }
        let cells = builtin::row("", "Pod", &pod, now()).unwrap();
        let cells: Vec<String> = cells[1..4].iter().map(ToString::to_string).collect();
        assert_eq!(cells.join(" | "), expected);
    }
    let running = json!({"name": "main", "ready": true, "state": {"running": {}}});
    check(json!({"phase": "Pending"}), "0/1 | Pending | 0");
    check(
        json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}),
        "0/1 | SchedulingGated | 0",
    );
    check(json!({"phase": "Running", "containerStatuses": [running]}), "1/1 | Running | 0");
    check(json!({"phase": "Failed", "reason": "Evicted"}), "0/1 | Evicted | 0");
    check(
        json!({"phase": "Running", "containerStatuses": [{
            "name": "main", "restartCount": 7,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"finishedAt": "2026-11-15T09:55:00Z"}},
        }]}),
        "0/1 | CrashLoopBackOff | 7 (5m ago)",
    );
    check(
        json!({"phase": "Succeeded", "containerStatuses": [
            {"name": "main", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
        ]}),
        "0/1 | Completed | 0",
    );
    check(
        json!({"phase": "Failed", "containerStatuses": [{"name": "main", "state": {"terminated": {"exitCode": 3}}}]}),
        "0/1 | ExitCode:3 | 0",
    );
    check(
        json!({"phase": "Failed", "containerStatuses": [
            {"name": "main", "state": {"terminated": {"exitCode": 137, "signal": 9}}},
        ]}),
        "0/1 | Signal:9 | 0",
    );
    check(json!({"phase": "Running", "deleted": "2026-11-15T09:59:00Z"}), "0/1 | Terminating | 0");
    check(json!({"phase": "Succeeded", "deleted": "2026-11-15T09:59:00Z"}), "0/1 | Succeeded | 0");
    check(
        json!({"phase": "Running", "reason": "NodeLost", "deleted": "2026-11-15T09:59:00Z"}),
        "0/1 | Unknown | 0",
    );
    check(
        json!({"phase": "Pending", "initContainerStatuses": [
            {"name": "one", "restartCount": 2, "state": {"terminated": {"exitCode": 0}}},
            {"name": "two", "state": {"running": {}}},
        ]}),
        "0/1 | Init:1/2 | 2",
    );
    check(
        json!({"phase": "Pending", "initContainerStatuses": [
            {"name": "one", "state": {"waiting": {"reason": "ImagePullBackOff"}}},
        ]}),
        "0/1 | Init:ImagePullBackOff | 0",
    );
    check(
        json!({"phase": "Pending", "initContainerStatuses": [
            {"name": "one", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}},
        ]}),
        "0/1 | Init:Error | 0",
    );
    // A sidecar counts as a container.
    check(
        json!({
            "phase": "Running",
            "spec": {"initContainers": [{"name": "side", "restartPolicy": "Always"}]},
            "initContainerStatuses": [
                {"name": "side", "started": true, "ready": true, "restartCount": 1, "state": {"running": {}}},
            ],
            "containerStatuses": [running],
        }),
        "2/2 | Running | 1",
    );
    check(
        json!({
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [
                {"name": "a", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
                running,
            ],
        }),
        "1/1 | Running | 0",
    );
    check(
        json!({
            "phase": "Running",
            "containerStatuses": [
                {"name": "a", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
                running,
            ],
        }),
        "1/1 | NotReady | 0",
    );
}

#[test]
fn a_few_rows_by_hand() {
    let named = |rest: Value| {
        let mut object = json!({"metadata": {"name": "x", "creationTimestamp": CREATED}});
        object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        object
    };
    check("", "ConfigMap", named(json!({"data": {"a": "1"}})), "x | 1 | 3d4h");
    check("", "Secret", named(json!({})), "x | Opaque | 0 | 3d4h");
    check("", "LimitRange", named(json!({})), "x | 2026-11-12T05:30:00Z");
    check("apiextensions.k8s.io", "CustomResourceDefinition", named(json!({})), "x | 2026-11-12T05:30:00Z");
    check("rbac.authorization.k8s.io", "ClusterRole", json!({}), " | 0001-01-01T00:00:00Z");
    check("muster.io", "Gang", named(json!({})), "x | 3d4h");
    check(
        "apps",
        "Deployment",
        named(json!({"spec": {"replicas": 3, "selector": {"matchLabels": {"b": "2", "a": "1"}}},
            "status": {"readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 1}})),
        "x | 2/3 | 3 | 1 | 3d4h |  |  | a=1,b=2",
    );
    check(
        "apps",
        "Deployment",
        named(json!({"spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}})),
        "x | 0/1 | 0 | 0 | 3d4h |  |  | <invalid>",
    );
    check(
        "",
        "ResourceQuota",
        named(json!({"status": {"hard": {"limits.cpu": "4", "cpu": "0.5"}, "used": {"cpu": "1"}}})),
        "x | cpu: 1/500m | limits.cpu: 0/4 | 3d4h",
    );
    check(
        "scheduling.k8s.io",
        "PodGroup",
        named(json!({"spec": {"schedulingPolicy": {"gang": {"minCount": 4}}},
            "status": {"conditions": [{"type": "PodGroupScheduled", "status": "True"}]}})),
        "x | Gang | <none> | Scheduled | 3d4h",
    );
    check(
        "events.k8s.io",
        "Event",
        named(
            json!({"regarding": {"kind": "Pod", "name": "p"}, "note": " done ", "type": "Normal", "reason": "R",
            "eventTime": "2026-11-15T09:58:59.5Z", "reportingController": "c"}),
        ),
        "60s | Normal | R | pod/p |  | c | done | 60s | 1 | x",
    );
}

#[test]
fn a_whole_table() {
    let node = |name: &str, ready: &str| {
        json!({
            "metadata": {
                "name": name,
                "creationTimestamp": CREATED,
                "labels": {"node-role.kubernetes.io/control-plane": ""},
            },
            "status": {
                "conditions": [{"type": "Ready", "status": ready}],
                "nodeInfo": {"kubeletVersion": "v1.36.3"},
            },
        })
    };
    let mut table = Table::new(builtin::columns("", "Node"));
    for object in [node("node-a", "True"), node("b", "Unknown")] {
        table.rows.extend(builtin::table_row("", "Node", &object, now()));
    }
    assert_eq!(
        table.render(Render::default()),
        "NAME     STATUS     ROLES           AGE    VERSION\n\
         node-a   Ready      control-plane   3d4h   v1.36.3\n\
         b        NotReady   control-plane   3d4h   v1.36.3\n",
    );
    assert_eq!(table.to_meta_table()["rows"][1]["object"]["metadata"]["name"], "b");
    assert_eq!(table.rows[0], Row { conditions: vec![], ..table.rows[0].clone() });
}

#[test]
fn finished_pods_are_marked() {
    #[track_caller]
    fn check(kind: &str, phase: &str, expected: Option<&str>) {
        let object = json!({"status": {"phase": phase}});
        let conditions = builtin::row_conditions("", kind, &object);
        assert_eq!(conditions.first().map(|condition| condition.reason.as_str()), expected);
        assert_eq!(builtin::table_row("", kind, &object, now()).unwrap().conditions, conditions);
    }
    check("Pod", "Succeeded", Some("Succeeded"));
    check("Pod", "Failed", Some("Failed"));
    check("Pod", "Running", None);
    check("PersistentVolume", "Failed", None);
}
