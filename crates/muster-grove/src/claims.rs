//! Resource claims that pods share.
//!
//! In: a set and its sharing rules. Out: the claims that should be there at each level, and those that a pod uses. Must
//! stay true: a pod never names a claim that is not made; claims are made once and never changed.

use muster_runtime::Key;
use serde_json::{Value, json};

use crate::keys::{self, component};
use crate::names;
use crate::object::{CliqueTemplate, GroupConfig, PodCliqueSet, Sharing};
use crate::shape::{Clique, owned};

/// A claim that should be there.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim<'a> {
    pub name: String,
    pub source: Source<'a>,
    /// The replica of its owner that it is for.
    pub index: Option<(&'static str, i64)>,
}

/// Where its spec comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum Source<'a> {
    /// A template of the set itself.
    Set(&'a Value),
    /// A ResourceClaimTemplate.
    Object(Key),
}

impl Claim<'_> {
    /// The claim with a spec, without its owner.
    pub fn body(&self, set: &PodCliqueSet, spec: &Value) -> Value {
        let mut labels = owned(&set.metadata.name, component::CLAIM, &self.name);
        if let Some((label, index)) = self.index {
            labels.insert(label.to_owned(), index.to_string());
        }
        json!({
            "metadata": {"name": self.name, "namespace": set.metadata.namespace, "labels": labels},
            "spec": spec,
        })
    }
}

fn is_per_replica(sharing: &Sharing) -> bool {
    sharing.scope == "PerReplica"
}

/// The claims of an owner with so many replicas.
fn at_level<'a>(
    set: &'a PodCliqueSet,
    sharing: &'a [Sharing],
    owner: &str,
    n_replicas: i64,
    label: &'static str,
) -> Vec<Claim<'a>> {
    let mut claims = Vec::new();
    for entry in sharing {
        let source = || {
            let mut own = set.spec.template.resource_claim_templates.iter();
            match own.find(|template| template.name == entry.name) {
                Some(template) => Source::Set(template.template_spec.get("spec").unwrap_or(&Value::Null)),
                None => {
                    let namespace = match entry.namespace.as_str() {
                        "" => &set.metadata.namespace,
                        other => other,
                    };
                    Source::Object(Key::new(namespace, entry.name.clone()))
                }
            }
        };
        if is_per_replica(entry) {
            claims.extend((0..n_replicas).map(|index| Claim {
                name: names::claim_of_replica(owner, index, &entry.name),
                source: source(),
                index: Some((label, index)),
            }));
        } else {
            claims.push(Claim {
                name: names::claim_of_all(owner, &entry.name),
                source: source(),
                index: None,
            });
        }
    }
    claims
}

pub fn of_set(set: &PodCliqueSet) -> Vec<Claim<'_>> {
    let sharing = &set.spec.template.resource_sharing;
    at_level(set, sharing, &set.metadata.name, set.replicas(), keys::SET_REPLICA)
}

/// `group` is the full name of the group.
pub fn of_group<'a>(
    set: &'a PodCliqueSet,
    config: &'a GroupConfig,
    group: &str,
    n_replicas: i64,
) -> Vec<Claim<'a>> {
    at_level(set, &config.resource_sharing, group, n_replicas, keys::GROUP_REPLICA)
}

/// `clique` is the full name of the clique.
pub fn of_clique<'a>(
    set: &'a PodCliqueSet,
    template: &'a CliqueTemplate,
    clique: &str,
    n_pods: i64,
) -> Vec<Claim<'a>> {
    at_level(set, &template.resource_sharing, clique, n_pods, keys::POD_INDEX)
}

/// Whether a pod of the clique has a claim for its own index.
pub fn is_tied_to_index(clique: &Clique<'_>) -> bool {
    clique.template.resource_sharing.iter().any(is_per_replica)
}

/// The claims that a pod uses: what it calls them, and what they are.
pub fn of_pod(clique: &Clique<'_>, pod_index: i64) -> Vec<(String, String)> {
    let set = clique.set;
    let mut out: Vec<(String, String)> = Vec::new();
    let mut add = |level: &str, owner: &str, index: i64, entry: &Sharing| {
        if is_per_replica(entry) {
            out.push((
                format!("{level}-own-{}", entry.name),
                names::claim_of_replica(owner, index, &entry.name),
            ));
        } else {
            out.push((format!("{level}-all-{}", entry.name), names::claim_of_all(owner, &entry.name)));
        }
    };
    let group_name = clique.within.map_or("", |(group, _)| group.name.as_str());
    for entry in &set.spec.template.resource_sharing {
        let is_meant = entry.filter.as_ref().is_none_or(|filter| {
            filter.child_clique_names.contains(&clique.template.name)
                || filter.child_scaling_group_names.iter().any(|name| name == group_name)
        });
        if is_meant {
            add("pcs", &set.metadata.name, clique.replica, entry);
        }
    }
    if let (Some((group, index)), Some(name)) = (clique.within, clique.group_name()) {
        for entry in &group.resource_sharing {
            let is_meant = entry
                .filter
                .as_ref()
                .is_none_or(|filter| filter.child_clique_names.contains(&clique.template.name));
            if is_meant {
                add("pcsg", &name, index, entry);
            }
        }
    }
    let name = clique.name();
    for entry in &clique.template.resource_sharing {
        add("pclq", &name, pod_index, entry);
    }
    out
}

/// Puts claims into a pod's spec: at the pod, and on the containers that `meant` picks.
pub fn put(spec: &mut Value, claims: &[(String, Value)], meant: impl Fn(&Value) -> bool) {
    if claims.is_empty() || !spec.is_object() {
        return;
    }
    let push = |object: &mut Value, field: &str, item: Value| match object.get_mut(field) {
        Some(Value::Array(items)) => items.push(item),
        _ => object[field] = json!([item]),
    };
    for (name, reference) in claims {
        let mut claim = reference.clone();
        claim["name"] = json!(name);
        push(spec, "resourceClaims", claim);
    }
    for kind in ["containers", "initContainers"] {
        for container in spec.get_mut(kind).and_then(Value::as_array_mut).into_iter().flatten() {
            if !container.is_object() || !meant(container) {
                continue;
            }
            if !container.get("resources").is_some_and(Value::is_object) {
                container["resources"] = json!({});
            }
            for (name, _) in claims {
                push(&mut container["resources"], "claims", json!({"name": name}));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::tests::set;

    fn sharing(text: &str) -> Vec<Sharing> {
        text.split_whitespace()
            .map(|word| {
                let (name, rest) = word.split_once(':').unwrap();
                let (scope, filter) = rest.split_once('@').unwrap_or((rest, ""));
                let scope = if scope == "each" { "PerReplica" } else { "AllReplicas" };
                let mut value = json!({"name": name, "scope": scope});
                if !filter.is_empty() {
                    value["filter"] =
                        json!({"childCliqueNames": [filter], "childScalingGroupNames": [filter]});
                }
                serde_json::from_value(value).unwrap()
            })
            .collect()
    }

    fn example() -> PodCliqueSet {
        let mut set = set("p x2; a 2/2; b 1/1; sg x2/1: b");
        set.spec.template.resource_claim_templates = vec![
            serde_json::from_value(json!({"name": "in", "templateSpec": {"spec": {"devices": 1}}})).unwrap(),
        ];
        set.spec.template.resource_sharing = sharing("in:all ex:each@sg");
        set.spec.template.cliques[0].resource_sharing = sharing("in:each");
        set.spec.template.pod_clique_scaling_groups[0].resource_sharing = sharing("in:each ex:all");
        set
    }

    #[test]
    fn names_and_sources() {
        let set = example();
        let show = |claims: Vec<Claim<'_>>| {
            let one = |c: &Claim<'_>| {
                let from = match &c.source {
                    Source::Set(_) => "set".to_owned(),
                    Source::Object(key) => key.to_string(),
                };
                format!("{}<{from}", c.name)
            };
            claims.iter().map(one).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(show(of_set(&set)), "p-all-in<set p-0-ex<ns/ex p-1-ex<ns/ex");
        let group = &set.spec.template.pod_clique_scaling_groups[0];
        assert_eq!(
            show(of_group(&set, group, "p-0-sg", 2)),
            "p-0-sg-0-in<set p-0-sg-1-in<set p-0-sg-all-ex<ns/ex"
        );
        assert_eq!(
            show(of_clique(&set, &set.spec.template.cliques[0], "p-0-a", 2)),
            "p-0-a-0-in<set p-0-a-1-in<set"
        );
    }

    #[test]
    fn what_a_pod_uses_is_made() {
        let set = example();
        let show = |clique: &Clique<'_>, index| {
            of_pod(clique, index).iter().map(|(n, c)| format!("{n}={c}")).collect::<Vec<_>>().join(" ")
        };
        let a = set.standalone(1).next().unwrap();
        assert_eq!(show(&a, 1), "pcs-all-in=p-all-in pclq-own-in=p-1-a-1-in");
        let group = &set.spec.template.pod_clique_scaling_groups[0];
        let b = set.grouped(0, group, 1).next().unwrap();
        assert_eq!(
            show(&b, 0),
            "pcs-all-in=p-all-in pcs-own-ex=p-0-ex pcsg-own-in=p-0-sg-1-in pcsg-all-ex=p-0-sg-all-ex"
        );
    }

    #[test]
    fn put_into_pods() {
        let mut spec =
            json!({"containers": [{"name": "a"}, {"name": "b", "resources": {"claims": [{"name": "own"}]}}]});
        put(&mut spec, &[("x".to_owned(), json!({"resourceClaimName": "c"}))], |c| c["name"] == "b");
        assert_eq!(
            spec,
            json!({
                "resourceClaims": [{"name": "x", "resourceClaimName": "c"}],
                "containers": [{"name": "a"}, {"name": "b", "resources": {"claims": [{"name": "own"}, {"name": "x"}]}}],
            })
        );
        let mut odd = json!("no object");
        put(&mut odd, &[("x".to_owned(), json!({}))], |_| true);
        assert_eq!(odd, json!("no object"));
    }
}
