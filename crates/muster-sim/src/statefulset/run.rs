//! Keeps StatefulSets: revisions, claims, pods one by one.

use std::time::Duration;

use serde_json::{Value, json};

use super::StatefulSet;
use super::plan::{Action, plan};
use crate::api::ApiError;
use crate::context::Context;
use crate::object::{ControllerRevision, Key, Object, controller_ref};
use crate::podcontrol::{
    claim, create_pod, delete_pods, is_there, pod_from_template, set_label, wake_by_pods, wake_by_self,
};
use crate::queue::{Next, Queue, work};
use crate::revisions::{REVISION_LABEL, ensure, template_of, trim};
use crate::store::Store;
use crate::volumes::Claim;

pub fn start(cx: &Context) -> impl Future<Output = ()> + Send + use<> {
    let sets = cx.store::<StatefulSet>();
    // Watched from the start, so that claims are found and not made twice.
    let _claims = cx.store::<Claim>();
    let revisions = cx.store::<ControllerRevision>();
    let queue = Queue::new();
    wake_by_self(&sets, &queue);
    wake_by_pods(cx, &sets, &queue, Duration::ZERO, |set, pod| {
        !set.spec.selector.is_empty()
            && set.spec.selector.matches(&pod.metadata.labels)
            && super::plan::ordinal_of(&set.metadata.name, &pod.metadata.name).is_some()
    });
    let cx = cx.named("statefulset-controller");
    async move {
        if cx.synced([cx.pods.synced()]).await.is_none()
            || cx.synced([sets.synced()]).await.is_none()
            || cx.synced([revisions.synced()]).await.is_none()
        {
            return;
        }
        work("statefulset", queue, 8, cx.cancel.clone(), |key| look(&cx, &sets, &revisions, key)).await;
    }
}

async fn look(
    cx: &Context,
    sets: &Store<StatefulSet>,
    revisions: &Store<ControllerRevision>,
    key: Key,
) -> Result<Next, ApiError> {
    let Some(set) = sets.get(&key) else { return Ok(Next::Idle) };
    let pods = claim(cx, &cx.pods, &*set, &set.spec.selector).await?;
    let newest = ensure(cx, revisions, &*set, &set.spec.template, set.number("collisionCount")).await?;
    let current = revisions
        .owned_by(&set.metadata.uid)
        .into_iter()
        .find(|r| r.metadata.name == set.text("currentRevision"))
        .unwrap_or_else(|| newest.clone());
    let plan = plan(&set, &pods, &current.metadata.name, &newest.metadata.name, cx.clock.now());
    if plan.actions.iter().any(|action| matches!(action, Action::Create { .. }))
        && !is_there(cx, &*set).await?
    {
        return Ok(Next::Idle);
    }
    for action in &plan.actions {
        match action {
            Action::Create { ordinal, newest: from_newest } => {
                let revision = if *from_newest { &newest } else { &current };
                for (name, claim) in claims(&set, *ordinal) {
                    ensure_claim(cx, &set, &name, &claim).await?;
                }
                let pod = pod_of(&set, *ordinal, revision);
                match create_pod(cx, &*set, &pod).await {
                    // The old pod of this name is still going; its end will wake us.
                    Err(error) if error.already_exists() => {}
                    other => {
                        other?;
                    }
                }
            }
            Action::Delete(pod) => delete_pods(cx, &*set, std::slice::from_ref(pod)).await?,
        }
    }
    sets.write_status(&cx.api, &*set, &set.status, &plan.status).await?;
    let mut in_use: Vec<&str> = vec![&current.metadata.name, &newest.metadata.name];
    in_use.extend(pods.iter().filter_map(|p| p.metadata.labels.get(REVISION_LABEL)).map(String::as_str));
    trim(cx, revisions, &*set, &in_use, set.spec.revision_history_limit.unwrap_or(10)).await?;
    if set.spec.persistent_volume_claim_retention_policy.when_scaled == "Delete"
        && !set.spec.volume_claim_templates.is_empty()
    {
        cx.events.warning(
            &*set,
            "NotSimulated",
            "whenScaled: Delete is not simulated; the claims of removed pods stay",
        );
    }
    Ok(plan.wake.map_or(Next::Idle, Next::After))
}

fn pod_of(set: &StatefulSet, ordinal: i64, revision: &ControllerRevision) -> Value {
    let name = format!("{}-{ordinal}", set.metadata.name);
    let mut pod = pod_from_template(set, &template_of(revision));
    if let Some(metadata) = pod["metadata"].as_object_mut() {
        metadata.remove("generateName");
        metadata.insert("name".into(), json!(name));
    }
    set_label(&mut pod, "statefulset.kubernetes.io/pod-name", &name);
    set_label(&mut pod, "apps.kubernetes.io/pod-index", &ordinal.to_string());
    set_label(&mut pod, REVISION_LABEL, &revision.metadata.name);
    pod["spec"]["hostname"] = json!(name);
    if !set.spec.service_name.is_empty() {
        pod["spec"]["subdomain"] = json!(set.spec.service_name);
    }
    let mut volumes: Vec<Value> = pod["spec"]["volumes"].as_array().cloned().unwrap_or_default();
    for template in &set.spec.volume_claim_templates {
        let volume = template.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        volumes.retain(|v| v["name"] != volume);
        volumes.push(json!({
            "name": volume,
            "persistentVolumeClaim": {"claimName": format!("{volume}-{name}")},
        }));
    }
    if !volumes.is_empty() {
        pod["spec"]["volumes"] = Value::Array(volumes);
    }
    pod
}

/// The claims of one ordinal, by name.
fn claims(set: &StatefulSet, ordinal: i64) -> Vec<(String, Value)> {
    set.spec
        .volume_claim_templates
        .iter()
        .filter_map(|template| {
            let volume = template.pointer("/metadata/name")?.as_str()?;
            let name = format!("{volume}-{}-{ordinal}", set.metadata.name);
            let mut labels = template.pointer("/metadata/labels").cloned().unwrap_or_else(|| json!({}));
            for (k, v) in &set.spec.selector.match_labels {
                labels[k] = json!(v);
            }
            let mut claim = json!({
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": name, "namespace": set.metadata.namespace, "labels": labels},
                "spec": template.get("spec").cloned().unwrap_or_else(|| json!({})),
            });
            if let Some(annotations) = template.pointer("/metadata/annotations") {
                claim["metadata"]["annotations"] = annotations.clone();
            }
            if set.spec.persistent_volume_claim_retention_policy.when_deleted == "Delete" {
                claim["metadata"]["ownerReferences"] = json!([controller_ref(set)]);
            }
            Some((name, claim))
        })
        .collect()
}

async fn ensure_claim(cx: &Context, set: &StatefulSet, name: &str, claim: &Value) -> Result<(), ApiError> {
    let claims = cx.store::<Claim>();
    if claims.get(&Key::new(set.metadata.namespace.clone(), name)).is_some() {
        return Ok(());
    }
    match cx.api.create::<Claim>(&set.metadata.namespace, claim).await {
        Ok(made) => {
            let message = format!(
                "create Claim {name} Pod {} in StatefulSet {} success",
                made.key().name,
                set.metadata.name
            );
            cx.events.normal(set, "SuccessfulCreate", message);
            claims.enter(made);
            Ok(())
        }
        Err(error) if error.already_exists() => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_have_identity_and_claims() {
        let set: StatefulSet = serde_json::from_value(json!({
            "metadata": {"name": "db", "namespace": "ns"},
            "spec": {
                "serviceName": "svc",
                "selector": {"matchLabels": {"app": "db"}},
                "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"storageClassName": "x"}}],
            },
        }))
        .unwrap();
        let mut revision = ControllerRevision {
            data: json!({"spec": {"template": {"$patch": "replace", "spec": {}}}}),
            ..Default::default()
        };
        revision.metadata.name = "db-abc".into();
        let pod = pod_of(&set, 2, &revision);
        assert_eq!(pod["metadata"]["name"], "db-2");
        assert_eq!(pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"], "2");
        assert_eq!(pod["metadata"]["labels"][REVISION_LABEL], "db-abc");
        assert_eq!(pod["spec"]["subdomain"], "svc");
        assert_eq!(pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"], "data-db-2");
        let claims = claims(&set, 2);
        assert_eq!(claims[0].0, "data-db-2");
        assert_eq!(claims[0].1["metadata"]["labels"]["app"], "db");
    }
}
