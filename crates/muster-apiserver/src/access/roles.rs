//! The roles and bindings that every cluster with RBAC starts with, as `roles.txt` tells them. In: that text. Out: objects.
//!
//! A line at the margin is a ClusterRole: its name, `> X` if it is gathered into the role X, `=` if it gathers others. Below it its rules:
//! groups, resources, perhaps names, and after the colon the verbs; or paths and verbs. `core` is the group without a name. The roles
//! of single controllers of Kubernetes are left out: in this cluster controllers act as the administrator.

use serde_json::{Value, json};

const ROLES: &str = include_str!("roles.txt");

/// Binding and role of the same name, and the groups or users that have it.
const BINDINGS: &[(&str, &[(&str, &str)])] = &[
    ("cluster-admin", &[("Group", "system:masters")]),
    ("system:basic-user", &[("Group", "system:authenticated")]),
    ("system:discovery", &[("Group", "system:authenticated")]),
    ("system:kube-controller-manager", &[("User", "system:kube-controller-manager")]),
    ("system:kube-scheduler", &[("User", "system:kube-scheduler")]),
    ("system:monitoring", &[("Group", "system:monitoring")]),
    ("system:public-info-viewer", &[("Group", "system:authenticated"), ("Group", "system:unauthenticated")]),
    ("system:service-account-issuer-discovery", &[("Group", "system:serviceaccounts")]),
    ("system:volume-scheduler", &[("User", "system:kube-scheduler")]),
];

const GROUP: &str = "rbac.authorization.k8s.io";

/// ClusterRoles, without `apiVersion` and `kind`.
pub fn roles() -> Vec<Value> {
    let mut roles: Vec<Value> = Vec::new();
    for line in ROLES.lines().filter(|l| !l.trim().is_empty()) {
        match line.strip_prefix("  ") {
            None => roles.push(role(line)),
            Some(text) => {
                let rules = roles.last_mut().and_then(|r| r["rules"].as_array_mut());
                if let (Some(rules), Some(rule)) = (rules, rule(text)) {
                    rules.push(rule);
                }
            }
        }
    }
    roles
}

/// ClusterRoleBindings, without `apiVersion` and `kind`.
pub fn bindings() -> Vec<Value> {
    BINDINGS
        .iter()
        .map(|(name, subjects)| {
            let subjects: Vec<Value> = subjects
                .iter()
                .map(|(kind, name)| json!({"apiGroup": GROUP, "kind": kind, "name": name}))
                .collect();
            json!({
                "metadata": metadata(name),
                "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name}, "subjects": subjects,
            })
        })
        .collect()
}

fn metadata(name: &str) -> Value {
    json!({
        "name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    })
}

fn role(line: &str) -> Value {
    let (head, gathers) = match line.strip_suffix(" =") {
        Some(head) => (head, true),
        None => (line, false),
    };
    let (name, into) = head.split_once(" > ").map_or((head, None), |(name, into)| (name, Some(into)));
    let mut role = json!({"metadata": metadata(name), "rules": []});
    if let Some(into) = into {
        role["metadata"]["labels"][format!("{GROUP}/aggregate-to-{into}")] = "true".into();
    }
    if gathers {
        let labels = json!({format!("{GROUP}/aggregate-to-{name}"): "true"});
        role["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": labels}]});
    }
    role
}

fn rule(text: &str) -> Option<Value> {
    let (what, verbs) = text.split_once(" : ")?;
    let verbs = match verbs {
        "READ" => "get,list,watch",
        "WRITE" => "create,delete,deletecollection,patch,update",
        "ALL" => "create,delete,deletecollection,get,list,patch,update,watch",
        other => other,
    };
    let list = |text: &str| -> Vec<String> {
        text.split(',').map(|s| if s == "core" { String::new() } else { s.to_string() }).collect()
    };
    let parts: Vec<&str> = what.split(' ').collect();
    Some(match &parts[..] {
        [urls] => json!({"verbs": list(verbs), "nonResourceURLs": list(urls)}),
        [groups, resources] => {
            json!({"verbs": list(verbs), "apiGroups": list(groups), "resources": list(resources)})
        }
        [groups, resources, names] => json!({
            "verbs": list(verbs), "apiGroups": list(groups), "resources": list(resources), "resourceNames": list(names),
        }),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::index::aggregated;
    use super::super::rule::Rule;
    use super::super::{Attributes, index::Index};
    use super::*;
    use crate::access::User;

    #[test]
    fn every_line_is_a_rule_of_a_role() {
        let n_rules: usize = roles().iter().map(|r| r["rules"].as_array().unwrap().len()).sum();
        assert_eq!(n_rules, ROLES.lines().filter(|l| l.starts_with("  ")).count());
        let known: Vec<String> =
            roles().iter().map(|r| r["metadata"]["name"].as_str().unwrap().into()).collect();
        assert!(BINDINGS.iter().all(|(name, _)| known.iter().any(|k| k == name)));
    }

    /// The index of a new cluster where `user` has `role` in the namespace `a`.
    fn with(role: &str, user: &str) -> Index {
        let mut all = roles();
        for _ in 0..3 {
            for i in 0..all.len() {
                if let Some(rules) = aggregated(&all[i], &all) {
                    all[i]["rules"] = rules.into();
                }
            }
        }
        let mut index = Index::default();
        all.iter().for_each(|r| index.put_role(r));
        bindings().iter().for_each(|b| index.put_binding(b));
        index.put_binding(&json!({
            "metadata": {"namespace": "a", "name": "b"}, "roleRef": {"kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "User", "name": user}],
        }));
        assert!(!Rule::read_all(all.iter().find(|r| r["metadata"]["name"] == role).unwrap()).is_empty());
        index
    }

    #[track_caller]
    fn check(role: &str, line: &str, allowed: bool) {
        let (method, uri) = line.split_once(' ').unwrap();
        let asked = Attributes::of(&method.parse().unwrap(), &uri.parse().unwrap());
        let decision = with(role, "alice").decide(&User::known("alice", []), &asked);
        assert_eq!(decision.allowed, allowed, "{role} {line}: {}", decision.reason);
    }

    #[test]
    fn what_the_roles_for_people_allow() {
        let ns = "/api/v1/namespaces/a";
        check("view", &format!("GET {ns}/pods"), true);
        check("view", &format!("GET {ns}/pods/p/log"), true);
        check("view", &format!("GET {ns}"), true);
        check("view", &format!("GET {ns}/secrets"), false);
        check("view", &format!("POST {ns}/pods"), false);
        check("view", "GET /api/v1/namespaces/b/pods", false);
        check("view", "GET /api/v1/namespaces", false);
        check("edit", &format!("POST {ns}/pods"), true);
        check("edit", &format!("GET {ns}/secrets/s"), true);
        check("edit", &format!("GET {ns}/pods?watch=1"), true);
        check("edit", "PUT /apis/apps/v1/namespaces/a/deployments/d/scale", true);
        check("edit", "POST /apis/rbac.authorization.k8s.io/v1/namespaces/a/roles", false);
        check("edit", &format!("PUT {ns}/pods/p/status"), false);
        check("edit", &format!("POST {ns}/resourcequotas"), false);
        check("admin", "POST /apis/rbac.authorization.k8s.io/v1/namespaces/a/roles", true);
        check("admin", &format!("GET {ns}/pods"), true);
        check("admin", &format!("DELETE {ns}"), false);
        check("admin", &format!("POST {ns}/pods/p/binding"), false);
        check("cluster-admin", &format!("POST {ns}/pods/p/binding"), true);
        check("cluster-admin", "GET /api/v1/nodes", false);
        // Whoever is known may look at what there is and at themselves.
        check("view", "GET /apis", true);
        check("view", "GET /openapi/v3/apis/apps/v1", true);
        check("view", "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", true);
        check("view", "POST /apis/authorization.k8s.io/v1/subjectaccessreviews", false);
        check("view", "POST /muster/shutdown", false);
        let unknown = User::anonymous();
        let ask = |uri: &str| {
            let asked = Attributes::of(&http::Method::GET, &uri.parse().unwrap());
            with("view", "alice").decide(&unknown, &asked).allowed
        };
        assert!(ask("/version") && ask("/healthz") && !ask("/api") && !ask("/api/v1/namespaces/a/pods"));
    }
}
