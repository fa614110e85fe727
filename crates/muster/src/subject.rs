//! What people type after `explain`, and which objects of a live cluster it means.
//!
//! In: `job/train`, `deploy/web`, `podgroup.scheduling.run.ai/g`, `default/big`. Out: a kind in one spelling and a name; and, for kinds that own
//! pods by way of others (a Deployment by its ReplicaSets), the identities of all between. Must stay true: nothing is changed; a name that is there
//! and has no pods is told from one that is not there.

use crate::live::{Link, Unread, list};
use crate::view::key_of;
use muster_model::Key;
use serde_json::Value;
use std::collections::BTreeSet;

/// Kinds by other words than their own: short names, and the words for parts of them.
const WORDS: [(&str, &str); 18] = [
    ("po", "pod"),
    ("pg", "podgroup"),
    ("deploy", "deployment"),
    ("rs", "replicaset"),
    ("sts", "statefulset"),
    ("ds", "daemonset"),
    ("rc", "replicationcontroller"),
    ("cj", "cronjob"),
    ("vcjob", "job"),
    ("vj", "job"),
    ("pcs", "podcliqueset"),
    ("pclq", "podclique"),
    ("pcsg", "podcliquescalinggroup"),
    ("lws", "leaderworkerset"),
    ("js", "jobset"),
    ("wf", "workflow"),
    ("q", "queue"),
    ("eq", "elasticquota"),
];

/// The kinds that own pods, themselves or by way of others: the group, the version, the plural, and the kinds below.
const OWNERS: [(&str, &str, &str, &str, &[&str]); 23] = [
    ("deployment", "apps", "v1", "deployments", &["replicaset"]),
    ("replicaset", "apps", "v1", "replicasets", &[]),
    ("statefulset", "apps", "v1", "statefulsets", &[]),
    ("daemonset", "apps", "v1", "daemonsets", &[]),
    ("job", "batch", "v1", "jobs", &[]),
    ("cronjob", "batch", "v1", "cronjobs", &["job"]),
    ("jobset", "jobset.x-k8s.io", "v1alpha2", "jobsets", &["job"]),
    ("trainjob", "trainer.kubeflow.org", "v1alpha1", "trainjobs", &["jobset", "job"]),
    ("pytorchjob", "kubeflow.org", "v1", "pytorchjobs", &[]),
    ("tfjob", "kubeflow.org", "v1", "tfjobs", &[]),
    ("xgboostjob", "kubeflow.org", "v1", "xgboostjobs", &[]),
    ("jaxjob", "kubeflow.org", "v1", "jaxjobs", &[]),
    ("mpijob", "kubeflow.org", "v2beta1", "mpijobs", &["job"]),
    ("mpijob", "kubeflow.org", "v1", "mpijobs", &[]),
    ("rayservice", "ray.io", "v1", "rayservices", &["raycluster"]),
    ("rayjob", "ray.io", "v1", "rayjobs", &["raycluster", "job"]),
    ("raycluster", "ray.io", "v1", "rayclusters", &[]),
    ("leaderworkerset", "leaderworkerset.x-k8s.io", "v1", "leaderworkersets", &["statefulset"]),
    ("podcliqueset", "grove.io", "v1alpha1", "podcliquesets", &["podcliquescalinggroup", "podclique"]),
    ("podcliquescalinggroup", "grove.io", "v1alpha1", "podcliquescalinggroups", &["podclique"]),
    ("podclique", "grove.io", "v1alpha1", "podcliques", &[]),
    ("workflow", "argoproj.io", "v1alpha1", "workflows", &[]),
    ("job", "batch.volcano.sh", "v1alpha1", "jobs", &[]),
];

/// Systems by the groups of their pod groups and queues, and what their names begin with in the model.
const SYSTEMS: [(&str, &str); 4] = [
    ("scheduling.volcano.sh", "volcano/"),
    ("scheduler.tensorstack.dev", "t9k/"),
    ("scheduling.sigs.k8s.io", "koordinator/"),
    ("scheduling.k8s.io", "kubernetes/"),
];

/// A subject in one spelling: `kind/name` with the kind in the singular and without its group, or a name alone.
pub fn canonical(text: &str) -> String {
    let Some((written, name)) = text.split_once('/') else { return text.to_owned() };
    let (kind, group) = written.split_once('.').unwrap_or((written, ""));
    let kind = kind_of(kind);
    let has_prefix = matches!(&*kind, "podgroup" | "queue" | "elasticquota");
    let prefix = SYSTEMS.iter().find(|(own, _)| has_prefix && *own == group).map_or("", |(_, prefix)| prefix);
    match &*kind {
        "elasticquota" => format!("queue/koordinator/{name}"),
        "podgang" => format!("podgroup/podgang/{name}"),
        _ => format!("{kind}/{prefix}{name}"),
    }
}

/// The kind that a word means; words that mean none stay, as they may be namespaces.
fn kind_of(word: &str) -> String {
    let lower = word.to_lowercase();
    let known = |kind: &str| {
        OWNERS.iter().any(|(own, ..)| *own == kind)
            || WORDS.iter().any(|(_, own)| *own == kind)
            || matches!(kind, "gang" | "podgang" | "workload" | "clusterqueue" | "localqueue" | "notebook")
    };
    if let Some((_, kind)) = WORDS.iter().find(|(short, _)| *short == lower) {
        return (*kind).to_owned();
    }
    for singular in [Some(&*lower), lower.strip_suffix('s')].into_iter().flatten() {
        if known(singular) {
            return singular.to_owned();
        }
    }
    word.to_owned()
}

/// What there is of a name in a live cluster.
#[derive(Debug, PartialEq, Eq)]
pub enum Owner {
    /// No kind that is known here is called so.
    UnknownKind,
    /// There is no such object.
    Absent,
    There {
        /// `cronjob ml/nightly`
        title: String,
        /// Its own identity and those of everything that it owns by way of others.
        uids: BTreeSet<String>,
        /// Why it may have no pods.
        why: String,
    },
}

/// Looks for an owner by its name, and for what is between it and its pods.
pub async fn find(link: &Link, subject: &str, namespace: Option<&str>) -> anyhow::Result<Owner> {
    let Some((kind, name)) = subject.split_once('/') else { return Ok(Owner::UnknownKind) };
    let rows: Vec<_> = OWNERS.iter().filter(|(own, ..)| *own == kind).collect();
    if rows.is_empty() {
        return Ok(Owner::UnknownKind);
    }
    for (_, group, version, plural, below) in rows {
        let found = listed(link, group, version, plural, namespace).await?;
        let mut roots = found.into_iter().filter(|object| *key_of(object).name == *name);
        let Some(root) = roots.next() else { continue };
        let key = key_of(&root);
        let mut uids: BTreeSet<String> = uid_of(&root).into_iter().collect();
        for kind in *below {
            for (_, group, version, plural, _) in OWNERS.iter().filter(|(own, ..)| own == kind) {
                let inner = listed(link, group, version, plural, Some(&*key.namespace)).await?;
                uids.extend(owned(&inner, &uids));
            }
        }
        return Ok(Owner::There { title: format!("{kind} {key}"), uids, why: why_empty(&root) });
    }
    Ok(Owner::Absent)
}

/// A list; empty where the kind is not served.
async fn listed(
    link: &Link,
    group: &str,
    version: &str,
    plural: &str,
    namespace: Option<&str>,
) -> anyhow::Result<Vec<Value>> {
    let path = match namespace {
        Some(namespace) => format!("/apis/{group}/{version}/namespaces/{namespace}/{plural}"),
        None => format!("/apis/{group}/{version}/{plural}"),
    };
    match list(&link.api, &path).await {
        Ok(items) => Ok(items),
        Err(error) if error.not_found() => Ok(Vec::new()),
        // Whoever may not see owners is not told what they own, which is no reason to say nothing.
        Err(error) if error.code() == 403 => {
            eprintln!("note: without {plural}.{group}, which may not be read: {}", error.message());
            Ok(Vec::new())
        }
        Err(error) => Err(Unread::new(&error).with("muster-cluster-view")),
    }
}

fn uid_of(object: &Value) -> Option<String> {
    object["metadata"]["uid"].as_str().filter(|uid| !uid.is_empty()).map(str::to_owned)
}

/// The identities of those that one of the owners has.
fn owned(objects: &[Value], owners: &BTreeSet<String>) -> BTreeSet<String> {
    let is_owned = |object: &&Value| {
        let refs = object["metadata"]["ownerReferences"].as_array();
        refs.into_iter().flatten().any(|owner| owner["uid"].as_str().is_some_and(|uid| owners.contains(uid)))
    };
    objects.iter().filter(is_owned).filter_map(uid_of).collect()
}

/// Why something that makes pods has none.
fn why_empty(object: &Value) -> String {
    let yes = |pointer: &str| object.pointer(pointer) == Some(&Value::Bool(true));
    if yes("/spec/suspend") || yes("/spec/runPolicy/suspend") {
        let queue = object["metadata"]["labels"]["kueue.x-k8s.io/queue-name"].as_str();
        return match queue {
            Some(queue) => format!("it is suspended; Kueue starts it when its queue {queue} admits it"),
            None => "it is suspended: set spec.suspend to false".into(),
        };
    }
    if object.pointer("/spec/replicas") == Some(&Value::from(0)) {
        return "it is scaled to 0: spec.replicas".into();
    }
    let over = object["status"]["conditions"].as_array().into_iter().flatten().find(|c| {
        c["status"] == "True"
            && matches!(c["type"].as_str(), Some("Complete" | "Failed" | "Succeeded" | "Completed"))
    });
    if let Some(over) = over {
        return format!("it is over: {}", over["type"].as_str().unwrap_or_default());
    }
    if object["kind"] == "CronJob" || object.pointer("/spec/schedule").is_some() {
        return "none of its jobs runs at the moment".into();
    }
    "its controller has made none: does that run, and has the namespace quota left? kubectl describe says more".into()
}

/// The gangs whose pods or groups have one of these owners.
pub fn is_owned_by(object: &Value, uids: &BTreeSet<String>) -> bool {
    !owned_refs(object).is_disjoint(uids)
}

fn owned_refs(object: &Value) -> BTreeSet<String> {
    let refs = object["metadata"]["ownerReferences"].as_array();
    refs.into_iter().flatten().filter_map(|owner| owner["uid"].as_str().map(str::to_owned)).collect()
}

/// Whether somebody of this kind and name made a group, by what its grouper wrote down; names between are guessed by their form.
pub fn is_made_by(object: &Value, kind: &str, name: &str) -> bool {
    let mark = object["metadata"]["annotations"][muster_grouper::keys::TOP_OWNER].as_str();
    let said = mark.and_then(|text| serde_saphyr::from_str::<Value>(text).ok());
    if said.is_some_and(|top| {
        top["name"] == name && top["kind"].as_str().is_some_and(|own| own.to_lowercase() == kind)
    }) {
        return true;
    }
    let owner = &object["metadata"]["ownerReferences"][0];
    let (Some(own), Some(between)) = (owner["kind"].as_str(), owner["name"].as_str()) else { return false };
    let rest = between.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
    let is_plain = rest.is_some_and(|rest| !rest.is_empty() && !rest.contains('-'));
    let is_number = rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()));
    match (kind, own) {
        ("deployment", "ReplicaSet") => is_plain,
        ("cronjob", "Job") => is_number,
        _ => false,
    }
}

/// Whether `kind/name` is a namespace and a name instead.
pub fn as_key(subject: &str) -> Option<Key> {
    let (namespace, name) = subject.split_once('/')?;
    Some(Key::new(namespace, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn subjects_in_one_spelling() {
        for (written, expected) in [
            ("train", "train"),
            ("job/train", "job/train"),
            ("jobs/train", "job/train"),
            ("Job/train", "job/train"),
            ("job.batch/train", "job/train"),
            ("job.v1.batch/train", "job/train"),
            ("deploy/web", "deployment/web"),
            ("deployment.apps/web", "deployment/web"),
            ("sts/db", "statefulset/db"),
            ("pcs/inference", "podcliqueset/inference"),
            ("vcjob/x", "job/x"),
            ("cj/nightly", "cronjob/nightly"),
            ("podgroup.scheduling.run.ai/g", "podgroup/g"),
            ("podgroup.scheduling.volcano.sh/g", "podgroup/volcano/g"),
            ("podgang.scheduler.grove.io/g", "podgroup/podgang/g"),
            ("queue.scheduling.volcano.sh/q", "queue/volcano/q"),
            ("q/team", "queue/team"),
            ("gang/volcano/train", "gang/volcano/train"),
            ("default/big", "default/big"),
            ("ml/x", "ml/x"),
        ] {
            assert_eq!(canonical(written), expected, "{written}");
        }
    }

    #[test]
    fn groups_say_who_made_them() {
        let by =
            |kind: &str, name: &str| json!({"metadata": {"ownerReferences": [{"kind": kind, "name": name}]}});
        assert!(is_made_by(&by("ReplicaSet", "web-5d8f9"), "deployment", "web"));
        assert!(!is_made_by(&by("ReplicaSet", "web-api-5d8f9"), "deployment", "web"));
        assert!(is_made_by(&by("Job", "nightly-29012345"), "cronjob", "nightly"));
        assert!(!is_made_by(&by("Job", "nightly-next"), "cronjob", "nightly"));
        let marked = json!({"metadata": {"annotations": {"kai.scheduler/top-owner-metadata": "name: web\nkind: Deployment\n"}}});
        assert!(is_made_by(&marked, "deployment", "web"));
        assert!(!is_made_by(&marked, "job", "web"));
    }

    #[test]
    fn why_there_are_no_pods() {
        for (object, expected) in [
            (json!({"spec": {"suspend": true}}), "it is suspended: set"),
            (
                json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "lq"}}, "spec": {"suspend": true}}),
                "it is suspended; Kueue starts it when its queue lq",
            ),
            (json!({"spec": {"replicas": 0}}), "it is scaled to 0"),
            (
                json!({"status": {"conditions": [{"type": "Complete", "status": "True"}]}}),
                "it is over: Complete",
            ),
            (json!({"spec": {"schedule": "@daily"}}), "none of its jobs runs"),
            (json!({}), "its controller has made none"),
        ] {
            assert!(why_empty(&object).starts_with(expected), "{object}");
        }
    }

    /// A CronJob with a Job, on a server that has nothing else.
    #[tokio::test]
    async fn owners_are_found_by_way_of_others() {
        let answer = tower::service_fn(|request: http::Request<kube::client::Body>| async move {
            let meta = |name: &str, uid: &str, owner: &str| {
                json!({"metadata": {"name": name, "namespace": "ml", "uid": uid, "ownerReferences": [{"uid": owner}]},
                    "spec": {"schedule": "@daily"}})
            };
            let items = match request.uri().path() {
                "/apis/batch/v1/cronjobs" => vec![meta("nightly", "c", "")],
                "/apis/batch/v1/namespaces/ml/jobs" => {
                    vec![meta("nightly-1", "j", "c"), meta("other", "k", "x")]
                }
                _ => Vec::new(),
            };
            let body =
                kube::client::Body::from(json!({"kind": "List", "items": items}).to_string().into_bytes());
            Ok::<_, std::io::Error>(http::Response::builder().status(200).body(body).unwrap())
        });
        let api = muster_runtime::Api::new(kube::Client::new(answer, "default"), "test");
        let link = Link { api, namespace: "default".into() };
        let found = find(&link, "cronjob/nightly", None).await.unwrap();
        let uids = BTreeSet::from(["c".to_owned(), "j".to_owned()]);
        let why = "none of its jobs runs at the moment".to_owned();
        assert_eq!(found, Owner::There { title: "cronjob ml/nightly".into(), uids, why });
        assert_eq!(find(&link, "cronjob/misspelt", None).await.unwrap(), Owner::Absent);
        assert_eq!(find(&link, "frobnicator/x", None).await.unwrap(), Owner::UnknownKind);
    }
}
