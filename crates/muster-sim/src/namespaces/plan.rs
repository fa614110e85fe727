//! What a namespace lacks.
//!
//! In: a namespace and what is in it. Out: objects to create. Must stay true: nothing is put into a namespace that is
//! going away.

use serde_json::{Value, json};

use crate::object::Namespace;

pub const ROOT_CERTIFICATE: &str = "kube-root-ca.crt";

#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    ServiceAccount(Value),
    RootCertificate(Value),
}

pub fn plan(
    namespace: &Namespace,
    has_account: bool,
    has_certificate: bool,
    certificate: &str,
) -> Vec<Action> {
    let name = &namespace.metadata.name;
    if namespace.metadata.deleting() || namespace.status.phase == "Terminating" {
        return Vec::new();
    }
    let mut actions = Vec::new();
    if !has_account {
        actions.push(Action::ServiceAccount(json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": name},
        })));
    }
    if !has_certificate {
        actions.push(Action::RootCertificate(json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": ROOT_CERTIFICATE,
                "namespace": name,
                "annotations": {
                    "kubernetes.io/description":
                        "The certificates by which a pod knows the API server.",
                },
            },
            "data": {"ca.crt": certificate},
        })));
    }
    actions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(phase: &str, account: bool, certificate: bool, expected: usize) {
        let namespace: Namespace =
            serde_json::from_value(json!({"metadata": {"name": "n"}, "status": {"phase": phase}})).unwrap();
        assert_eq!(plan(&namespace, account, certificate, "pem").len(), expected);
    }

    #[test]
    fn what_is_missing() {
        check("Active", false, false, 2);
        check("Active", true, false, 1);
        check("Active", true, true, 0);
        check("Terminating", false, false, 0);
    }
}
