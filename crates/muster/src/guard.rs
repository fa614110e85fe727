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
        let wanted = self.rbac && !crds.is_empty();
        if wanted { muster_install::groups::roles(&json!({})) } else { Vec::new() }
    }
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
