//! The objects that are made for a set, as JSON.
//!
//! In: a set and its shape. Out: bodies that a server can take, without owner. Must stay true: what is made is a function of
//! the set alone, so that making it twice makes the same.

use serde_json::{Value, json};

use crate::claims;
use crate::keys::{self, component};
use crate::names;
use crate::object::{CliqueTemplate, GroupConfig, PodCliqueSet, Scaling, text};
use crate::settings::Options;
use crate::shape::{Clique, container_wants_gpu, owned};

fn metadata(set: &PodCliqueSet, component: &str, name: &str, replica: Option<i64>) -> Value {
    let mut labels = owned(&set.metadata.name, component, name);
    if let Some(replica) = replica {
        labels.insert(keys::SET_REPLICA.into(), replica.to_string());
    }
    json!({"name": name, "namespace": set.metadata.namespace, "labels": labels})
}

/// The service under which the pods of a replica find each other.
pub fn service(set: &PodCliqueSet, replica: i64) -> Value {
    let name = names::replica(&set.metadata.name, replica);
    let config = set.spec.template.headless_service_config.as_ref();
    json!({
        "metadata": metadata(set, component::SERVICE, &name, Some(replica)),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": config.and_then(|c| c.publish_not_ready_addresses).unwrap_or(true),
            "selector": {
                keys::MANAGED_BY: keys::OPERATOR,
                keys::PART_OF: set.metadata.name,
                keys::SET_REPLICA: replica.to_string(),
            },
        },
    })
}

pub fn service_account(set: &PodCliqueSet) -> Value {
    json!({
        "metadata": metadata(set, component::SERVICE_ACCOUNT, &set.metadata.name, None),
        "automountServiceAccountToken": true,
    })
}

pub fn role(set: &PodCliqueSet) -> Value {
    json!({
        "metadata": metadata(set, component::ROLE, &names::role(&set.metadata.name), None),
        "rules": [{"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": ["get", "list", "watch"]}],
    })
}

/// The role is the set's own account's, and that of every account that its pods run under.
pub fn role_binding(set: &PodCliqueSet) -> Value {
    let name = names::role(&set.metadata.name);
    let mut accounts = vec![set.metadata.name.as_str()];
    for clique in &set.spec.template.cliques {
        let account = text(&clique.spec.pod_spec, &["serviceAccountName"]);
        if !account.is_empty() && !accounts.contains(&account) {
            accounts.push(account);
        }
    }
    let subjects: Vec<Value> = accounts
        .iter()
        .map(
            |account| json!({"kind": "ServiceAccount", "name": account, "namespace": set.metadata.namespace}),
        )
        .collect();
    json!({
        "metadata": metadata(set, component::ROLE_BINDING, &name, None),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": subjects,
    })
}

fn autoscaler(
    set: &PodCliqueSet,
    replica: i64,
    kind: &str,
    name: &str,
    scaling: &Scaling,
    least: i64,
) -> Value {
    let mut spec = json!({
        "scaleTargetRef": {"apiVersion": "grove.io/v1alpha1", "kind": kind, "name": name},
        "minReplicas": scaling.min_replicas.unwrap_or(least),
        "maxReplicas": scaling.max_replicas,
    });
    if !scaling.metrics.is_empty() {
        spec["metrics"] = json!(scaling.metrics);
    }
    json!({"metadata": metadata(set, component::HPA, name, Some(replica)), "spec": spec})
}

/// The autoscalers of a replica.
pub fn autoscalers(set: &PodCliqueSet, replica: i64) -> Vec<Value> {
    let cliques = set.standalone(replica).filter_map(|clique| {
        let scaling = clique.template.spec.auto_scaling_config.as_ref()?;
        Some(autoscaler(set, replica, "PodClique", &clique.name(), scaling, clique.template.spec.replicas()))
    });
    let groups = set.spec.template.pod_clique_scaling_groups.iter().filter_map(|group| {
        let scaling = group.scale_config.as_ref()?;
        let name = names::group(&set.metadata.name, replica, &group.name);
        Some(autoscaler(set, replica, "PodCliqueScalingGroup", &name, scaling, group.replicas()))
    });
    cliques.chain(groups).collect()
}

/// The compute domains of a replica: one for each group that a clique with GPUs names.
pub fn compute_domains(set: &PodCliqueSet, replica: i64) -> Vec<Value> {
    let mut groups: Vec<&str> = set
        .spec
        .template
        .cliques
        .iter()
        .filter_map(|template| set.mnnvl_group(&Clique { set, template, replica, within: None }))
        .collect();
    groups.sort_unstable();
    groups.dedup();
    groups
        .into_iter()
        .map(|group| {
            let name = names::compute_domain(&set.metadata.name, replica, group);
            let mut metadata = metadata(set, component::COMPUTE_DOMAIN, &name, Some(replica));
            metadata["labels"][keys::MNNVL_GROUP] = json!(group);
            json!({
                "metadata": metadata,
                "spec": {"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": name}}},
            })
        })
        .collect()
}

pub fn group(set: &PodCliqueSet, replica: i64, config: &GroupConfig) -> Value {
    let name = names::group(&set.metadata.name, replica, &config.name);
    let mut metadata = metadata(set, component::GROUP, &name, Some(replica));
    if !config.annotations.is_empty() {
        metadata["annotations"] = json!(config.annotations);
    }
    json!({
        "metadata": metadata,
        "spec": {
            "replicas": config.replicas(),
            "minAvailable": config.min_available(),
            "cliqueNames": config.clique_names,
        },
    })
}

/// The PodClique of a clique. A clique that is there keeps its replicas: after its making they are the user's or the
/// autoscaler's.
pub fn clique(clique: &Clique<'_>, options: &Options) -> Value {
    let template = clique.template;
    let mut spec = json!({
        "roleName": role_name(template),
        "replicas": template.spec.replicas(),
        "minAvailable": template.spec.min_available(),
        "podSpec": pod_spec(clique, options),
    });
    let parents: Vec<String> = clique.starts_after().into_iter().map(|(name, _)| name).collect();
    if !parents.is_empty() {
        spec["startsAfter"] = json!(parents);
    }
    if let Some(scaling) = &template.spec.auto_scaling_config {
        spec["autoScalingConfig"] = json!({
            "minReplicas": scaling.min_replicas.unwrap_or_else(|| template.spec.replicas()),
            "maxReplicas": scaling.max_replicas,
            "metrics": scaling.metrics,
        });
    }
    let mut metadata = json!({
        "name": clique.name(),
        "namespace": clique.set.metadata.namespace,
        "labels": clique.labels(),
    });
    if !template.annotations.is_empty() {
        metadata["annotations"] = json!(template.annotations);
    }
    json!({"metadata": metadata, "spec": spec})
}

pub fn role_name(template: &CliqueTemplate) -> &str {
    if template.spec.role_name.is_empty() { &template.name } else { &template.spec.role_name }
}

/// What the pods of a clique run, with the claim of their compute domain.
fn pod_spec(clique: &Clique<'_>, options: &Options) -> Value {
    let mut spec = match &clique.template.spec.pod_spec {
        Value::Object(_) => clique.template.spec.pod_spec.clone(),
        _ => json!({}),
    };
    if options.mnnvl
        && let Some(group) = clique.set.mnnvl_group(clique)
    {
        let domain = names::compute_domain(&clique.set.metadata.name, clique.replica, group);
        let claim = ("mnnvl-claim".to_owned(), json!({"resourceClaimTemplateName": domain}));
        claims::put(&mut spec, &[claim], container_wants_gpu);
    }
    spec
}

/// The merge patch that brings a PodClique to the template that its set has now.
pub fn clique_update(object: &crate::object::PodClique, clique: &Clique<'_>, options: &Options) -> Value {
    let wanted = self::clique(clique, options);
    let mut patch = json!({"metadata": {"labels": wanted["metadata"]["labels"]}});
    if let Some(annotations) = wanted["metadata"].get("annotations") {
        patch["metadata"]["annotations"] = annotations.clone();
    }
    if object.metadata.annotations.contains_key(keys::ADOPTED_HASH) {
        patch["metadata"]["annotations"][keys::ADOPTED_HASH] = Value::Null;
    }
    if let Some(spec) = muster_runtime::json::merge_patch(&object.spec.pod_spec, &wanted["spec"]["podSpec"]) {
        patch["spec"] = json!({"podSpec": spec});
    }
    patch
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::tests::{WL2, set};

    #[test]
    fn cliques_of_sets_and_groups() {
        let mut set = set(WL2);
        set.spec.template.clique_startup_type = "CliqueStartupTypeInOrder".into();
        set.spec.template.cliques[2].spec.role_name.clear();
        let group = &set.spec.template.pod_clique_scaling_groups[0];
        let body = clique(&set.grouped(0, group, 0).nth(1).unwrap(), &Options::default());
        assert_eq!(body["metadata"]["name"], "wl-0-sg-x-0-pc-c");
        assert_eq!(
            body["spec"],
            json!({
                "roleName": "pc-c", "replicas": 3, "minAvailable": 1,
                "podSpec": {"containers": [{"name": "main", "image": "app:1"}]},
                "startsAfter": ["wl-0-sg-x-0-pc-b"],
            })
        );
    }

    #[test]
    fn services_find_their_pods() {
        let set = set(WL2);
        let service = service(&set, 0);
        let labels = set.standalone(0).next().unwrap().labels();
        for (key, value) in service["spec"]["selector"].as_object().unwrap() {
            assert_eq!(labels.get(key).map(String::as_str), value.as_str(), "{key}");
        }
        assert_eq!(service["spec"]["publishNotReadyAddresses"], true);
    }

    #[test]
    fn autoscalers_aim_at_what_exists() {
        let mut set = set(WL2);
        let scaling =
            || serde_json::from_value(json!({"maxReplicas": 5, "metrics": [{"type": "Resource"}]})).unwrap();
        set.spec.template.cliques[0].spec.auto_scaling_config = Some(scaling());
        set.spec.template.pod_clique_scaling_groups[0].scale_config = Some(scaling());
        let shown: Vec<String> = autoscalers(&set, 0)
            .iter()
            .map(|hpa| {
                let spec = &hpa["spec"];
                format!(
                    "{} {} {}..{}",
                    spec["scaleTargetRef"]["kind"],
                    hpa["metadata"]["name"],
                    spec["minReplicas"],
                    spec["maxReplicas"]
                )
            })
            .collect();
        assert_eq!(shown, [r#""PodClique" "wl-0-pc-a" 2..5"#, r#""PodCliqueScalingGroup" "wl-0-sg-x" 2..5"#]);
    }

    #[test]
    fn compute_domains_and_their_claims() {
        let mut set = set("p x1; a 1/1; b 1/1; c 1/1");
        set.metadata.annotations.insert(keys::MNNVL_GROUP.into(), "x".into());
        let gpu = json!({"containers": [{"name": "g", "resources": {"limits": {"nvidia.com/gpu": 1}}}, {"name": "side"}]});
        set.spec.template.cliques[0].spec.pod_spec = gpu.clone();
        set.spec.template.cliques[1].spec.pod_spec = gpu;
        set.spec.template.cliques[1].annotations.insert(keys::MNNVL_GROUP.into(), "y".into());
        let domains = compute_domains(&set, 0);
        let names: Vec<&str> = domains.iter().map(|d| text(d, &["metadata", "name"])).collect();
        assert_eq!(names, ["p-0-x", "p-0-y"]);
        let on = Options { mnnvl: true, ..Options::default() };
        let body = clique(&set.standalone(0).next().unwrap(), &on);
        let spec = &body["spec"]["podSpec"];
        assert_eq!(
            spec["resourceClaims"],
            json!([{"name": "mnnvl-claim", "resourceClaimTemplateName": "p-0-x"}])
        );
        assert_eq!(spec["containers"][0]["resources"]["claims"], json!([{"name": "mnnvl-claim"}]));
        assert!(spec["containers"][1].get("resources").is_none());
        let off = clique(&set.standalone(0).next().unwrap(), &Options::default());
        assert!(off["spec"]["podSpec"].get("resourceClaims").is_none());
    }

    #[test]
    fn updates_leave_replicas_alone() {
        let set = set("p x1; a 2/1");
        let shape = set.standalone(0).next().unwrap();
        let object = serde_json::from_value(json!({
            "metadata": {"annotations": {keys::ADOPTED_HASH: "a=b"}},
            "spec": {"replicas": 7, "podSpec": {"containers": [{"name": "main", "image": "app:0"}], "nodeName": "x"}},
        }))
        .unwrap();
        let patch = clique_update(&object, &shape, &Options::default());
        assert_eq!(
            patch["spec"],
            json!({"podSpec": {"containers": [{"name": "main", "image": "app:1"}], "nodeName": null}})
        );
        assert_eq!(patch["metadata"]["annotations"], json!({keys::ADOPTED_HASH: null}));
        assert_eq!(
            patch["metadata"]["labels"][keys::TEMPLATE_HASH],
            json!(crate::hash::template(shape.template))
        );
    }
}
