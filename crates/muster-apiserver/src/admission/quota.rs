//! ResourceQuotas. In: the quotas of a namespace and what it holds. Out: usage, and the refusal of what would exceed it.
//!
//! Usage is always computed from the objects themselves, under a lock that is held until the new object is stored; the
//! quota's status is a report of it, never the source. So usage cannot drift.

use super::{Operation, Review, quantity};
use crate::meta;
use crate::server::ApiServer;
use crate::status::ApiError;
use k8s_quantity::{Format, Quantity};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

type Usage = BTreeMap<String, Quantity>;

fn hard(quota: &Value) -> Usage {
    meta::at(quota, "spec.hard")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(k, v)| Some((k.clone(), quantity(v)?)))
        .collect()
}

fn add(into: &mut Usage, name: &str, amount: &Quantity) {
    *into.entry(name.to_string()).or_default() += *amount;
}

/// The sum over a pod's containers, and at least what any init container needs.
fn pod_amounts(pod: &Value, part: &str) -> Usage {
    let mut total = Usage::new();
    let containers = |list: &str| pod["spec"][list].as_array().cloned().unwrap_or_default();
    let amounts = |c: &Value| -> Vec<(String, Quantity)> {
        c["resources"][part]
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(k, v)| Some((k.clone(), quantity(v)?)))
            .collect()
    };
    for c in containers("containers") {
        for (k, v) in amounts(&c) {
            add(&mut total, &k, &v);
        }
    }
    // Sidecars keep running and so add up; plain init containers only set a floor.
    let mut sidecars = Usage::new();
    let mut floor = Usage::new();
    for c in containers("initContainers") {
        let sidecar = c["restartPolicy"] == "Always";
        for (k, v) in amounts(&c) {
            if sidecar {
                add(&mut sidecars, &k, &v);
            } else {
                let need = sidecars.get(&k).map_or(v, |s| *s + v);
                if floor.get(&k).is_none_or(|f| *f < need) {
                    floor.insert(k, need);
                }
            }
        }
    }
    for (k, v) in &sidecars {
        add(&mut total, k, v);
    }
    for (k, v) in floor {
        if total.get(&k).is_none_or(|t| *t < v) {
            total.insert(k, v);
        }
    }
    if part == "requests" || part == "limits" {
        for (k, v) in pod["spec"]["overhead"].as_object().into_iter().flatten() {
            if let Some(v) = quantity(v) {
                add(&mut total, k, &v);
            }
        }
    }
    total
}

fn is_pod_done(pod: &Value) -> bool {
    matches!(meta::text_at(pod, "status.phase"), "Succeeded" | "Failed")
}

fn is_best_effort(pod: &Value) -> bool {
    pod_amounts(pod, "requests").is_empty() && pod_amounts(pod, "limits").is_empty()
}

fn scopes_match(quota: &Value, pod: &Value) -> bool {
    let simple = meta::strings(meta::at(quota, "spec.scopes"));
    let selected = meta::at(quota, "spec.scopeSelector.matchExpressions").and_then(Value::as_array);
    simple.iter().all(|s| scope_holds(s, "Exists", &[], pod))
        && selected.into_iter().flatten().all(|e| {
            let scope = e["scopeName"].as_str().unwrap_or_default();
            let operator = e["operator"].as_str().unwrap_or_default();
            scope_holds(scope, operator, &meta::strings(e.get("values")), pod)
        })
}

fn scope_holds(scope: &str, operator: &str, values: &[String], pod: &Value) -> bool {
    let terminating = pod["spec"]["activeDeadlineSeconds"].as_i64().is_some();
    match scope {
        "Terminating" => terminating,
        "NotTerminating" => !terminating,
        "BestEffort" => is_best_effort(pod),
        "NotBestEffort" => !is_best_effort(pod),
        "PriorityClass" => {
            let class = meta::text_at(pod, "spec.priorityClassName").to_string();
            match operator {
                "In" => values.contains(&class),
                "NotIn" => !values.contains(&class),
                "DoesNotExist" => class.is_empty(),
                _ => !class.is_empty(),
            }
        }
        "CrossNamespacePodAffinity" => ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
            let text = pod["spec"]["affinity"][kind].to_string();
            text.contains("\"namespaces\"") || text.contains("\"namespaceSelector\"")
        }),
        _ => false,
    }
}

/// What one pod counts for.
fn pod_usage(pod: &Value) -> Usage {
    let mut usage = Usage::new();
    let one = Quantity::from_i64(1, Format::DecimalSi);
    add(&mut usage, "count/pods", &one);
    if is_pod_done(pod) {
        return usage;
    }
    add(&mut usage, "pods", &one);
    for (name, amount) in pod_amounts(pod, "requests") {
        add(&mut usage, &format!("requests.{name}"), &amount);
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
            add(&mut usage, &name, &amount);
        }
    }
    for (name, amount) in pod_amounts(pod, "limits") {
        add(&mut usage, &format!("limits.{name}"), &amount);
    }
    usage
}

/// What one object of another kind counts for.
fn object_usage(table: &str, object: &Value) -> Usage {
    let mut usage = Usage::new();
    let one = Quantity::from_i64(1, Format::DecimalSi);
    add(&mut usage, &format!("count/{table}"), &one);
    if matches!(
        table,
        "services"
            | "secrets"
            | "configmaps"
            | "replicationcontrollers"
            | "resourcequotas"
            | "persistentvolumeclaims"
    ) {
        add(&mut usage, table, &one);
    }
    if table == "services" {
        match meta::text_at(object, "spec.type") {
            "LoadBalancer" => add(&mut usage, "services.loadbalancers", &one),
            "NodePort" => add(&mut usage, "services.nodeports", &one),
            _ => {}
        }
    }
    if table == "persistentvolumeclaims"
        && let Some(size) = meta::at(object, "spec.resources.requests.storage").and_then(quantity)
    {
        add(&mut usage, "requests.storage", &size);
        let class = meta::text_at(object, "spec.storageClassName");
        if !class.is_empty() {
            let prefix = format!("{class}.storageclass.storage.k8s.io");
            add(&mut usage, &format!("{prefix}/requests.storage"), &size);
            add(&mut usage, &format!("{prefix}/persistentvolumeclaims"), &one);
        }
    }
    usage
}

fn is_scoped(quota: &Value) -> bool {
    !meta::strings(meta::at(quota, "spec.scopes")).is_empty()
        || meta::at(quota, "spec.scopeSelector").is_some()
}

fn counts(quota: &Value, table: &str, object: &Value) -> Usage {
    if table == "pods" {
        if scopes_match(quota, object) { pod_usage(object) } else { Usage::new() }
    } else if is_scoped(quota) {
        // Scopes are about pods; a scoped quota counts nothing else.
        Usage::new()
    } else {
        object_usage(table, object)
    }
}

/// Tables whose objects a quota's limits are about.
fn tables(hard: &Usage) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for name in hard.keys() {
        let table = if let Some(t) = name.strip_prefix("count/") {
            t
        } else if name == "requests.storage"
            || name.ends_with("persistentvolumeclaims")
            || name.contains(".storageclass.")
        {
            "persistentvolumeclaims"
        } else if name.starts_with("services") {
            "services"
        } else if matches!(
            name.as_str(),
            "secrets" | "configmaps" | "replicationcontrollers" | "resourcequotas"
        ) {
            name
        } else {
            "pods"
        };
        if !found.iter().any(|f| f == table) {
            found.push(table.to_string());
        }
    }
    found
}

fn used(server: &ApiServer, quota: &Value, hard: &Usage, namespace: &str) -> Usage {
    let mut sum = Usage::new();
    for table in tables(hard) {
        for object in server.all_in(&table, Some(namespace)) {
            for (name, amount) in counts(quota, &table, &object) {
                if hard.contains_key(&name) {
                    add(&mut sum, &name, &amount);
                }
            }
        }
    }
    for name in hard.keys() {
        sum.entry(name.clone()).or_default();
    }
    sum
}

fn print(usage: &Usage, names: &[&String]) -> String {
    names
        .iter()
        .map(|n| format!("{n}={}", usage.get(*n).copied().unwrap_or_default()))
        .collect::<Vec<_>>()
        .join(",")
}

/// The status that a quota should have now.
pub(crate) fn status(server: &ApiServer, quota: &Value) -> Value {
    let hard = hard(quota);
    let used = used(server, quota, &hard, meta::namespace(quota));
    let map = |u: &Usage| -> Map<String, Value> {
        u.iter().map(|(k, v)| (k.clone(), v.to_string().into())).collect()
    };
    json!({"hard": map(&hard), "used": map(&used)})
}

impl ApiServer {
    /// Refuses what would exceed a quota.
    pub(super) async fn check_quota(
        &self,
        review: &Review,
        object: &Value,
    ) -> Result<Option<tokio::sync::MutexGuard<'_, ()>>, ApiError> {
        let relevant =
            review.operation == Operation::Create && review.subresource.is_none() && review.served.namespaced;
        if !relevant || review.served.is("", "resourcequotas") || self.store().len("resourcequotas") == 0 {
            return Ok(None);
        }
        let guard = self.inner.quota.lock().await;
        let table: &str = &review.served.table;
        for quota in self.all_in("resourcequotas", Some(&review.namespace)) {
            let hard = hard(&quota);
            let quota_name = meta::name(&quota);
            if table == "pods" && scopes_match(&quota, object) {
                let missing = unspecified(&hard, object);
                if !missing.is_empty() {
                    let why = format!("failed quota: {quota_name}: must specify {missing}");
                    return Err(ApiError::forbidden(&review.gr(), meta::name(object), why));
                }
            }
            let asked: Usage =
                counts(&quota, table, object).into_iter().filter(|(k, _)| hard.contains_key(k)).collect();
            if asked.is_empty() {
                continue;
            }
            let used = used(self, &quota, &hard, &review.namespace);
            let over: Vec<&String> = asked
                .iter()
                .filter(|(name, amount)| {
                    let now = used.get(*name).copied().unwrap_or_default();
                    hard.get(*name).is_some_and(|max| now + **amount > *max)
                })
                .map(|(name, _)| name)
                .collect();
            if !over.is_empty() {
                let why = format!(
                    "exceeded quota: {quota_name}, requested: {}, used: {}, limited: {}",
                    print(&asked, &over),
                    print(&used, &over),
                    print(&hard, &over)
                );
                return Err(ApiError::forbidden(&review.gr(), meta::name(object), why));
            }
        }
        Ok(Some(guard))
    }
}

/// Compute resources that a quota limits and a container does not name: `cpu for: a,b; memory for: a`.
fn unspecified(hard: &Usage, pod: &Value) -> String {
    let mut found: Vec<String> = Vec::new();
    for name in hard.keys() {
        let (part, resource) = match name.as_str() {
            "cpu" | "memory" => ("requests", name.as_str()),
            other => match other.split_once('.') {
                Some((part @ ("requests" | "limits"), r @ ("cpu" | "memory"))) => (part, r),
                _ => continue,
            },
        };
        let without: Vec<&str> = ["containers", "initContainers"]
            .into_iter()
            .filter_map(|l| pod["spec"][l].as_array())
            .flatten()
            .filter(|c| c["resources"][part].get(resource).is_none())
            .filter_map(|c| c["name"].as_str())
            .collect();
        if !without.is_empty() {
            found.push(format!("{name} for: {}", without.join(",")));
        }
    }
    found.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(class: &str, cpu: &str) -> Value {
        json!({"spec": {"priorityClassName": class, "containers": [
            {"name": "c", "resources": {"requests": {"cpu": cpu, "nvidia.com/gpu": "2"}}}]}})
    }

    #[test]
    fn pods_count_by_request_and_scope() {
        let usage = pod_usage(&pod("", "500m"));
        let text: Vec<String> = usage.iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(
            text,
            ["count/pods=1", "cpu=500m", "pods=1", "requests.cpu=500m", "requests.nvidia.com/gpu=2"]
        );
        let scoped = json!({"spec": {"scopeSelector": {"matchExpressions": [
            {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}}});
        assert!(scopes_match(&scoped, &pod("high", "1")));
        assert!(!scopes_match(&scoped, &pod("low", "1")));
        let mut done = pod("", "1");
        done["status"] = json!({"phase": "Succeeded"});
        assert_eq!(pod_usage(&done).keys().collect::<Vec<_>>(), ["count/pods"]);
    }

    #[test]
    fn init_containers_set_a_floor() {
        let pod = json!({"spec": {
            "initContainers": [
                {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
                {"name": "i", "resources": {"requests": {"cpu": "4"}}}],
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}});
        assert_eq!(pod_amounts(&pod, "requests")["cpu"].to_string(), "5");
    }
}
