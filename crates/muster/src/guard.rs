//! Flags of `muster up` that say who may do what: RBAC, tokens, client certificates, the audit log.
//!
//! In: flags and the files that they name. Out: the server's options, and ClusterRoles that let the holders of `edit` and `view` use the
//! kinds of the installed CRDs.

use anyhow::Context;
use k8s_openapi::api::rbac::v1::ClusterRole;
use muster_apiserver::Options;
use muster_apiserver::access::{Config, token::Tokens};
use muster_apiserver::audit::{Log, Policy};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

#[derive(clap::Args)]
#[group(id = "guard")]
pub struct Args {
    /// Enforce RBAC: whoever comes with another token than the kubeconfig's may do what roles and bindings say
    #[arg(long, env = "MUSTER_RBAC")]
    rbac: bool,
    /// Users by their tokens, one a line: token,user,uid,"group1,group2"
    #[arg(long, value_name = "FILE", requires = "rbac", env = "MUSTER_TOKEN_AUTH_FILE")]
    token_auth_file: Option<PathBuf>,
    /// Take client certificates of this authority (PEM): the common name is the user, organizations are the groups
    #[arg(long, value_name = "FILE", requires = "rbac", env = "MUSTER_CLIENT_CA_FILE")]
    client_ca_file: Option<PathBuf>,
    /// Write down who asked for what, as lines of JSON (audit.k8s.io/v1)
    #[arg(long, value_name = "FILE", env = "MUSTER_AUDIT_LOG")]
    audit_log: Option<PathBuf>,
    /// What to write down: a Policy of audit.k8s.io/v1 [default: who, what and when of every request]
    #[arg(long, value_name = "FILE", requires = "audit_log", env = "MUSTER_AUDIT_POLICY")]
    audit_policy: Option<PathBuf>,
    /// Put the audit log aside as FILE.1 when it has so many MiB
    #[arg(
        long,
        value_name = "MIB",
        default_value_t = 100,
        requires = "audit_log",
        env = "MUSTER_AUDIT_LOG_MAX_SIZE"
    )]
    audit_log_max_size: u64,
}

fn read(path: &PathBuf) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

impl Args {
    /// The authority of client certificates.
    pub fn client_ca(&self) -> anyhow::Result<Option<String>> {
        self.client_ca_file.as_ref().map(read).transpose()
    }

    /// Sets what the flags ask for; `token` is the kubeconfig's, `signing_key` that of the tokens of service accounts.
    pub fn put_into(&self, options: &mut Options, token: &str, signing_key: &str) -> anyhow::Result<()> {
        if self.rbac {
            let tokens = match &self.token_auth_file {
                Some(path) => Tokens::parse(&read(path)?).with_context(|| format!("{}", path.display()))?,
                None => Tokens::default(),
            };
            let signing_key = signing_key.into();
            options.access = Some(Config { admin_token: token.into(), tokens, signing_key });
        }
        if let Some(path) = &self.audit_log {
            let policy = match &self.audit_policy {
                Some(path) => Policy::parse(&read(path)?).with_context(|| format!("{}", path.display()))?,
                None => Policy::metadata(),
            };
            options.audit = Some(Arc::new(Log::open(path, policy, self.audit_log_max_size.max(1) << 20)?));
        }
        Ok(())
    }

    /// Roles for the kinds of CRDs, gathered into those that people are bound to.
    pub fn roles(&self, crds: &[Value]) -> Vec<Value> {
        if self.rbac { roles(crds) } else { Vec::new() }
    }
}

const READ: [&str; 3] = ["get", "list", "watch"];
const WRITE: [&str; 5] = ["create", "delete", "deletecollection", "patch", "update"];

/// What lives in namespaces may be read by `view` and written by `edit`. What is of the whole cluster, queues and topologies for the most
/// part, is read by whoever is bound to `muster-cluster-view`.
fn roles(crds: &[Value]) -> Vec<Value> {
    let mut local: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut shared: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for crd in crds {
        let text = |at: &str| crd.pointer(at).and_then(Value::as_str).unwrap_or_default().to_string();
        let of = if text("/spec/scope") == "Namespaced" { &mut local } else { &mut shared };
        let plural = text("/spec/names/plural");
        let resources = of.entry(text("/spec/group")).or_default();
        resources.push(plural.clone());
        let versions = crd.pointer("/spec/versions").and_then(Value::as_array);
        let scales = |v: &Value| v.pointer("/subresources/scale").is_some();
        if versions.is_some_and(|v| v.iter().any(scales)) {
            resources.push(format!("{plural}/scale"));
        }
    }
    let role = |name: &str, into: Option<&str>, kinds: &BTreeMap<String, Vec<String>>, verbs: &[&str]| {
        let rules: Vec<Value> = kinds
            .iter()
            .map(|(group, resources)| json!({"apiGroups": [group], "resources": resources, "verbs": verbs}))
            .collect();
        let labels = into.map(|i| (format!("rbac.authorization.k8s.io/aggregate-to-{i}"), json!("true")));
        let labels: serde_json::Map<String, Value> = labels.into_iter().collect();
        json!({"metadata": {"name": name, "labels": labels}, "rules": rules})
    };
    if crds.is_empty() {
        return Vec::new();
    }
    vec![
        role("muster-view", Some("view"), &local, &READ),
        role("muster-edit", Some("edit"), &local, &WRITE),
        role("muster-cluster-view", None, &shared, &READ),
    ]
}

/// Creates the roles that are not there yet.
pub async fn create_roles(client: &kube::Client, roles: Vec<Value>) -> anyhow::Result<()> {
    let api: kube::Api<ClusterRole> = kube::Api::all(client.clone());
    for role in roles {
        let role: ClusterRole = serde_json::from_value(role)?;
        match api.create(&kube::api::PostParams::default(), &role).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(anyhow::Error::new(error).context("cannot create Muster's roles")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_crds_join_the_roles_for_people() {
        let crd = |plural: &str, scope: &str, scale: bool| {
            let subresources = if scale { json!({"scale": {}}) } else { json!({}) };
            json!({"spec": {"group": "g.io", "scope": scope, "names": {"plural": plural}, "versions": [{"subresources": subresources}]}})
        };
        let made = roles(&[crd("sets", "Namespaced", true), crd("queues", "Cluster", false)]);
        let shown: Vec<String> = made
            .iter()
            .map(|r| {
                format!("{} {} {}", r["metadata"]["name"], r["rules"][0]["resources"], r["rules"][0]["verbs"])
            })
            .collect();
        assert_eq!(
            shown,
            [
                r#""muster-view" ["sets","sets/scale"] ["get","list","watch"]"#,
                r#""muster-edit" ["sets","sets/scale"] ["create","delete","deletecollection","patch","update"]"#,
                r#""muster-cluster-view" ["queues"] ["get","list","watch"]"#,
            ]
        );
        assert_eq!(made[0]["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"], "true");
        assert!(roles(&[]).is_empty());
    }
}
