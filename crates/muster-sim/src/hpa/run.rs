//! Scales targets.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use super::plan::{Desired, Memory, desired};
use super::{Autoscaler, METRIC};
use crate::api::{ApiError, Patch};
use crate::clock::stamp;
use crate::context::Context;
use crate::object::{Condition, Key};
use crate::podcontrol::wake_by_self;
use crate::queue::{Next, Queue, work};
use crate::store::Store;

const PERIOD: Duration = Duration::from_secs(15);

pub fn start(cx: &Context) -> impl Future<Output = ()> + Send + use<> {
    let hpas = cx.store::<Autoscaler>();
    let queue = Queue::new();
    wake_by_self(&hpas, &queue);
    let cx = cx.named("horizontal-pod-autoscaler");
    async move {
        if cx.synced([hpas.synced()]).await.is_none() {
            return;
        }
        let memories: Mutex<HashMap<Key, Memory>> = Mutex::default();
        work("hpa", queue, 4, cx.cancel.clone(), |key| look(&cx, &hpas, &memories, key)).await;
    }
}

async fn look(
    cx: &Context,
    hpas: &Store<Autoscaler>,
    memories: &Mutex<HashMap<Key, Memory>>,
    key: Key,
) -> Result<Next, ApiError> {
    let Some(hpa) = hpas.get(&key) else {
        memories.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        return Ok(Next::Idle);
    };
    let now = cx.clock.now();
    let target = &hpa.spec.scale_target_ref;
    let path = target_path(&target.api_version, &target.kind, &key.namespace, &target.name);
    let scale = match cx.api.get_path(&format!("{path}/scale")).await {
        Ok(scale) => scale,
        Err(error) if matches!(error.code(), 404 | 405) => {
            let message = format!(
                "the HPA controller was unable to get the target's current scale: {}",
                error.message()
            );
            cx.events.warning(&*hpa, "FailedGetScale", message.clone());
            let status = conditions_only(&hpa, "AbleToScale", "False", "FailedGetScale", &message, cx);
            hpas.write_status(&cx.api, &*hpa, &hpa.status, &status).await?;
            return Ok(Next::After(PERIOD));
        }
        Err(error) => return Err(error),
    };
    let current = scale.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
    let observed = scale.pointer("/status/replicas").and_then(Value::as_i64).unwrap_or(0);
    let on_target = cx.api.get_path(&path).await.ok();
    let value_of = |name: &str| {
        let wanted = format!("{METRIC}{name}");
        let own = hpa.metadata.annotation(&wanted).map(str::to_owned);
        own.or_else(|| {
            let annotations = on_target.as_ref()?.pointer("/metadata/annotations")?;
            annotations.get(&wanted)?.as_str().map(str::to_owned)
        })
    };
    let mut memory = memories.lock().unwrap_or_else(PoisonError::into_inner).remove(&key).unwrap_or_default();
    let wanted = desired(&hpa, current, value_of, &mut memory, now);
    let mut scaled = false;
    let result = if wanted.replicas == current {
        Ok(())
    } else {
        let patch = json!({"spec": {"replicas": wanted.replicas}});
        cx.api.patch_path(&format!("{path}/scale"), Patch::Merge, &patch).await.map(|_| {
            memory.changed.push((now, wanted.replicas - current));
            scaled = true;
            let message = format!("New size: {}; reason: metrics {}", wanted.replicas, shown(&wanted));
            cx.events.normal(&*hpa, "SuccessfulRescale", message);
        })
    };
    memory.changed.retain(|(at, _)| now.duration_since(*at).as_secs() < 1800);
    memories.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), memory);
    result?;
    let status = status(&hpa, observed, &wanted, scaled, cx);
    hpas.write_status(&cx.api, &*hpa, &hpa.status, &status).await?;
    Ok(Next::After(PERIOD))
}

fn shown(wanted: &Desired) -> String {
    wanted.metrics.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(", ")
}

fn old_conditions(hpa: &Autoscaler) -> Vec<Condition> {
    hpa.status.get("conditions").and_then(|c| serde_json::from_value(c.clone()).ok()).unwrap_or_default()
}

fn conditions_only(
    hpa: &Autoscaler,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    cx: &Context,
) -> Value {
    let mut new = if hpa.status.is_object() { hpa.status.clone() } else { json!({}) };
    let row = (kind.to_owned(), status.to_owned(), reason.to_owned(), message.to_owned());
    new["conditions"] = json!(stamped(vec![row], &old_conditions(hpa), cx));
    new["desiredReplicas"] = new.get("desiredReplicas").cloned().unwrap_or(json!(0));
    new
}

fn stamped(rows: Vec<(String, String, String, String)>, old: &[Condition], cx: &Context) -> Vec<Condition> {
    let now = crate::clock::whole(cx.clock.now());
    rows.into_iter()
        .map(|(kind, status, reason, message)| {
            let since = crate::object::condition(old, &kind)
                .filter(|c| c.status == status)
                .and_then(|c| c.last_transition_time)
                .unwrap_or(now);
            Condition {
                kind: kind.into(),
                status: status.into(),
                reason,
                message,
                last_transition_time: Some(since),
                ..Condition::default()
            }
        })
        .collect()
}

fn status(hpa: &Autoscaler, observed: i64, wanted: &Desired, scaled: bool, cx: &Context) -> Value {
    let row = |k: &str, s: &str, r: &str, m: &str| (k.to_owned(), s.to_owned(), r.to_owned(), m.to_owned());
    let active = if wanted.metrics.is_empty() {
        let names = wanted.unknown.join(", ");
        let message =
            format!("no value for {names}: annotate the autoscaler or its target with {METRIC}NAME");
        row("ScalingActive", "False", "FailedGetResourceMetric", &message)
    } else {
        row(
            "ScalingActive",
            "True",
            "ValidMetricFound",
            "the HPA was able to successfully calculate a replica count",
        )
    };
    let limited = match wanted.limited {
        Some((reason, message)) => row("ScalingLimited", "True", reason, message),
        None => row(
            "ScalingLimited",
            "False",
            "DesiredWithinRange",
            "the desired count is within the acceptable range",
        ),
    };
    let able = if scaled {
        let message =
            format!("the HPA controller was able to update the target scale to {}", wanted.replicas);
        row("AbleToScale", "True", "SucceededRescale", &message)
    } else {
        row("AbleToScale", "True", "ReadyForNewScale", "recommended size matches current size")
    };
    let metrics: Vec<Value> = hpa
        .spec
        .metrics
        .iter()
        .filter_map(|metric| {
            let (name, target) = super::plan::parts(metric)?;
            let (_, value) = wanted.metrics.iter().find(|(n, _)| n == name)?;
            let current = if target.average_utilization.is_some() {
                json!({"averageUtilization": value.parse::<i64>().unwrap_or(0), "averageValue": "0"})
            } else if target.average_value.is_some() {
                json!({"averageValue": value})
            } else {
                json!({"value": value})
            };
            match metric.kind.as_str() {
                "Resource" => {
                    Some(json!({"type": "Resource", "resource": {"name": name, "current": current}}))
                }
                "Pods" => {
                    Some(json!({"type": "Pods", "pods": {"metric": {"name": name}, "current": current}}))
                }
                "External" => Some(
                    json!({"type": "External", "external": {"metric": {"name": name}, "current": current}}),
                ),
                _ => None,
            }
        })
        .collect();
    let mut status = json!({
        "observedGeneration": hpa.metadata.generation,
        "currentReplicas": observed,
        "desiredReplicas": wanted.replicas,
        "conditions": stamped(vec![able, active, limited], &old_conditions(hpa), cx),
    });
    if !metrics.is_empty() {
        status["currentMetrics"] = Value::Array(metrics);
    }
    if scaled {
        status["lastScaleTime"] = json!(stamp(cx.clock.now()));
    } else if let Some(last) = hpa.status.get("lastScaleTime") {
        status["lastScaleTime"] = last.clone();
    }
    status
}

/// Where a target lives. Kinds are pluralised by the usual rules of English, which all kinds that scale follow.
fn target_path(api_version: &str, kind: &str, namespace: &str, name: &str) -> String {
    let root = if api_version.contains('/') { "apis" } else { "api" };
    let lower = kind.to_ascii_lowercase();
    let plural =
        if let Some(stem) = lower.strip_suffix('y').filter(|s| !s.ends_with(['a', 'e', 'i', 'o', 'u'])) {
            format!("{stem}ies")
        } else if lower.ends_with(['s', 'x']) || lower.ends_with("ch") || lower.ends_with("sh") {
            format!("{lower}es")
        } else {
            format!("{lower}s")
        };
    format!("/{root}/{api_version}/namespaces/{namespace}/{plural}/{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        assert_eq!(
            target_path("apps/v1", "Deployment", "ns", "d"),
            "/apis/apps/v1/namespaces/ns/deployments/d"
        );
        assert_eq!(
            target_path("grove.io/v1alpha1", "PodClique", "ns", "d"),
            "/apis/grove.io/v1alpha1/namespaces/ns/podcliques/d"
        );
        assert_eq!(target_path("v1", "Proxy", "ns", "d"), "/api/v1/namespaces/ns/proxies/d");
    }
}
