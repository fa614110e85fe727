//! Every kind of owner at once, as a table: what there is above some pods, and the groups that these come in.
//!
//! In: the rows of `every.yaml`. The definitions of other projects' kinds are made here, and take whatever is written into them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use super::object;
use crate::room::{Pod, Room, list_of};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    row: String,
    groups: String,
    #[serde(default)]
    objects: Vec<Value>,
    #[serde(default)]
    pods: Vec<Member>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Member {
    name: String,
    under: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

pub async fn every_kind(room: &Room) -> Result<()> {
    room.nodes(&[0], |_| json!({})).await?;
    let rows: Vec<Row> = serde_saphyr::from_str(include_str!("every.yaml"))?;
    for definition in definitions(&rows) {
        room.apply(&definition.to_string()).await?;
    }
    for row in &rows {
        row.make(room).await.with_context(|| row.row.clone())?;
    }
    room.until("the pods of every kind are in their groups and on nodes", async || {
        let groups = room.groups().await?;
        let pods = room.pods("").await?;
        let wrong: Vec<String> = rows
            .iter()
            .map(|row| (row, shown(&row.row, &pods, &groups)))
            .filter(|(row, shown)| row.groups != *shown)
            .map(|(row, shown)| format!("{}: {shown:?} instead of {:?}", row.row, row.groups))
            .collect();
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        let named: BTreeSet<&str> = pods.iter().filter_map(group_of).collect();
        let idle: Vec<&String> = groups.keys().filter(|name| !named.contains(name.as_str())).collect();
        ensure!(idle.is_empty(), "groups without pods: {idle:?}");
        Ok(())
    })
    .await
}

/// The definitions of all kinds that the API server does not come with, each with every version that is asked for.
fn definitions(rows: &[Row]) -> Vec<Value> {
    let mut kinds: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for object in rows.iter().flat_map(|row| &row.objects) {
        let version = object["apiVersion"].as_str().unwrap_or_default();
        if let Some((group, version)) = version.split_once('/').filter(|(group, _)| group.contains('.')) {
            let kind = object["kind"].as_str().unwrap_or_default();
            kinds.entry((group.into(), kind.into())).or_default().insert(version.into());
        }
    }
    let definition = |((group, kind), versions): ((String, String), BTreeSet<String>)| {
        let singular = kind.to_lowercase();
        let schema =
            json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        let versions: Vec<Value> = versions
            .iter()
            .enumerate()
            .map(|(n, name)| json!({"name": name, "served": true, "storage": n == 0, "schema": schema}))
            .collect();
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {
                "name": format!("{singular}s.{group}"),
                // Groups that end in k8s.io are guarded by it.
                "annotations": {"api-approved.kubernetes.io": "unapproved"},
            },
            "spec": {
                "group": group, "scope": "Namespaced", "versions": versions,
                "names": {"kind": kind, "plural": format!("{singular}s"), "singular": singular},
            },
        })
    };
    kinds.into_iter().map(definition).collect()
}

impl Row {
    /// Makes the objects and then the pods, each under its owner.
    async fn make(&self, room: &Room) -> Result<()> {
        // By name, and by kind and name where one name is not enough.
        let mut owners: BTreeMap<String, Value> = BTreeMap::new();
        let members = self.pods.iter().map(|pod| self.pod(pod));
        for mut one in self.objects.iter().cloned().chain(members) {
            let under = one.as_object_mut().and_then(|object| object.remove("under"));
            if let Some(under) = under.as_ref().and_then(Value::as_str) {
                let owner = owners.get(under).with_context(|| format!("there is no {under} yet"))?;
                one["metadata"]["ownerReferences"] = json!([owner]);
            }
            self.fill_templates(&mut one);
            let uid = object(room, &one.to_string()).await?;
            let (kind, name) = (&one["kind"], &one["metadata"]["name"]);
            let owner = json!({
                "apiVersion": one["apiVersion"], "kind": kind, "name": name, "uid": uid, "controller": true,
            });
            let (kind, name) = (kind.as_str().unwrap_or_default(), name.as_str().unwrap_or_default());
            owners.insert(format!("{kind}/{name}"), owner.clone());
            owners.insert(name.to_owned(), owner);
        }
        Ok(())
    }

    fn pod(&self, member: &Member) -> Value {
        let mut pod = self.template("Always", json!(member.labels));
        pod["apiVersion"] = "v1".into();
        pod["kind"] = "Pod".into();
        pod["metadata"]["name"] = member.name.as_str().into();
        for (key, value) in &member.annotations {
            pod["metadata"]["annotations"][key] = value.as_str().into();
        }
        if let Some(under) = &member.under {
            pod["under"] = under.as_str().into();
        }
        pod
    }

    fn template(&self, restart: &str, mut labels: Value) -> Value {
        if !labels.is_object() {
            labels = json!({});
        }
        labels["row"] = self.row.as_str().into();
        labels["kai.scheduler/queue"] = "default-queue".into();
        json!({
            "metadata": {"labels": labels, "annotations": {"sim.muster.dev/duration": "forever"}},
            "spec": {
                "schedulerName": "kai-scheduler", "restartPolicy": restart, "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "c", "image": "i"}],
            },
        })
    }

    fn fill_templates(&self, value: &mut Value) {
        match value {
            Value::Object(object) => match object.get("$pod").and_then(Value::as_str) {
                Some(restart) => {
                    let labels = object.get("labels").cloned().unwrap_or_default();
                    *value = self.template(restart, labels);
                }
                None => object.values_mut().for_each(|value| self.fill_templates(value)),
            },
            Value::Array(list) => list.iter_mut().for_each(|value| self.fill_templates(value)),
            _ => {}
        }
    }
}

fn group_of(pod: &Pod) -> Option<&str> {
    pod.all.pointer("/metadata/annotations/pod-group-name").and_then(Value::as_str)
}

/// The groups of a row's pods.
fn shown(row: &str, pods: &[Pod], groups: &BTreeMap<String, Value>) -> String {
    let mut placed: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| pod.all["metadata"]["labels"]["row"] == row && !pod.over) {
        *placed.entry(group_of(pod).unwrap_or("none")).or_default() += usize::from(pod.node.is_some());
    }
    let min = |of: &Value| match (of["minMember"].as_u64(), of["minSubGroup"].as_u64()) {
        (Some(n), _) => n.to_string(),
        (None, Some(n)) => format!("/{n}"),
        (None, None) => "all".to_owned(),
    };
    let mut lines: Vec<String> = placed
        .into_iter()
        .map(|(name, placed)| {
            let Some(group) = groups.get(name) else { return format!("{name} is not there ×{placed}") };
            let owner = group["metadata"]["ownerReferences"][0]["uid"].as_str().unwrap_or("?");
            let short = name.replace(&format!("-{owner}"), "");
            let subgroups: Vec<String> = list_of(group, "/spec/subGroups")
                .map(|of| {
                    let min = min(of);
                    let colon = if min.starts_with('/') { "" } else { ":" };
                    format!("{}{colon}{min}", of["name"].as_str().unwrap_or("?"))
                })
                .collect();
            let subgroups =
                if subgroups.is_empty() { String::new() } else { format!(" ({})", subgroups.join(" ")) };
            format!("{short} {}{subgroups} ×{placed}", min(&group["spec"]))
        })
        .collect();
    lines.sort();
    lines.join(", ")
}
