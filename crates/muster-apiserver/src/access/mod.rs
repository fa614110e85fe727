//! Who may do what: users, the questions that are asked about them, and the answers of RBAC.
//!
//! `rule` is one rule and what it covers, `index` all roles and bindings, kept so that a question costs what applies to its user
//! and not what exists; `roles` are those that every cluster starts with; `token` and `certificate` say who somebody is. These
//! five are pure: values in, values out. `live` is around them: it follows the stored roles, asks on behalf of requests, and
//! judges writes of roles and bindings. `review` answers whoever asks about access.
//!
//! Invariants: nothing is allowed that no rule allows; a refusal says nothing of whether the object exists, since it is made
//! before anything is looked up. Requests of this process itself (the simulation, Muster's services) are the administrator's and
//! are not asked about.

pub mod certificate;
pub mod index;
mod live;
mod review;
pub mod roles;
pub mod rule;
pub mod token;

pub(crate) use live::{Access, Caller, info};

use crate::path::{self, ResourcePath, Target};
use crate::query;
use crate::selector;
use crate::status::{ApiError, GroupResource};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The group whose members may do everything.
pub const MASTERS: &str = "system:masters";
/// The group of everybody who is known.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of everybody who is not.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The name of somebody who showed nothing.
pub const ANONYMOUS: &str = "system:anonymous";

/// Somebody who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// Name.
    pub name: String,
    /// A name that is never given to another; may be empty.
    pub uid: String,
    /// Groups, `system:authenticated` among them.
    pub groups: Vec<String>,
    /// What else is known.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Somebody who is known by name.
    pub fn known(name: impl Into<String>, groups: impl IntoIterator<Item = String>) -> User {
        let mut groups: Vec<String> = groups.into_iter().collect();
        if !groups.iter().any(|g| g == AUTHENTICATED) {
            groups.push(AUTHENTICATED.into());
        }
        User { name: name.into(), groups, ..User::default() }
    }

    /// The administrator.
    pub fn master(name: &str) -> User {
        User::known(name, [MASTERS.to_string()])
    }

    /// Somebody who showed nothing.
    pub fn anonymous() -> User {
        User { name: ANONYMOUS.into(), groups: vec![UNAUTHENTICATED.into()], ..User::default() }
    }

    /// A service account.
    pub fn service_account(namespace: &str, name: &str) -> User {
        let groups = ["system:serviceaccounts".to_string(), format!("system:serviceaccounts:{namespace}")];
        User::known(format!("system:serviceaccount:{namespace}:{name}"), groups)
    }

    /// Whether they may do everything.
    pub fn is_master(&self) -> bool {
        self.groups.iter().any(|g| g == MASTERS)
    }

    /// As `UserInfo` of the authentication API.
    pub fn to_info(&self) -> Value {
        let mut info = json!({"username": self.name});
        if !self.uid.is_empty() {
            info["uid"] = self.uid.as_str().into();
        }
        if !self.groups.is_empty() {
            info["groups"] = json!(self.groups);
        }
        if !self.extra.is_empty() {
            info["extra"] = json!(self.extra);
        }
        info
    }
}

/// Namespace and name of a service account, from the name of its user.
pub fn service_account(user: &str) -> Option<(&str, &str)> {
    user.strip_prefix("system:serviceaccount:")?
        .split_once(':')
        .filter(|(ns, n)| !ns.is_empty() && !n.is_empty())
}

/// Put among a request's extensions by whoever takes requests from outside this process: what the connection itself says of its
/// other end. A request without it is this process's own.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// By the certificate that was shown, if one was.
    pub user: Option<Arc<User>>,
    /// Where it comes from.
    pub address: Option<std::net::IpAddr>,
}

/// How access is enforced.
#[derive(Clone, Default)]
pub struct Config {
    /// The administrator's token; empty for none.
    pub admin_token: String,
    /// Users by their tokens.
    pub tokens: token::Tokens,
    /// What tokens of service accounts are signed with; one is drawn if it is empty, and they end with the server.
    pub signing_key: String,
}

/// What is asked: may somebody do this?
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// `get`, `list`, ...; the method in small letters for a path.
    pub verb: String,
    /// API group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Plural name; empty for a path.
    pub resource: String,
    /// Subresource, or empty.
    pub subresource: String,
    /// Namespace, or empty.
    pub namespace: String,
    /// Name of the object, or empty.
    pub name: String,
    /// The path, where no resource is asked for.
    pub path: String,
}

impl Attributes {
    /// What a request asks for.
    pub fn of(method: &http::Method, uri: &http::Uri) -> Attributes {
        match path::parse(uri.path()) {
            Target::Resource(found) => {
                Attributes::of_resource(method, found, uri.query().unwrap_or_default())
            }
            // A path below a subresource belongs to it, as those of proxies do.
            Target::Other(path) => match path::parse_deep(&path) {
                Some(found) => Attributes::of_resource(method, found, ""),
                None => Attributes::of_path(method, uri.path()),
            },
            _ => Attributes::of_path(method, uri.path()),
        }
    }

    fn of_path(method: &http::Method, path: &str) -> Attributes {
        Attributes { verb: method.as_str().to_lowercase(), path: path.into(), ..Attributes::default() }
    }

    fn of_resource(method: &http::Method, found: ResourcePath, query: &str) -> Attributes {
        let named = found.name.is_some();
        let mut name = found.name.unwrap_or_default();
        let mut watch = false;
        if matches!(method.as_str(), "GET" | "HEAD" | "DELETE") {
            // Of parameters that are given twice the last one counts, here as where the request is answered.
            for (key, value) in query::pairs(query) {
                match key.as_str() {
                    "watch" => watch = query::boolean(&value),
                    // A selector of one name asks about that object only, so a rule that names it is enough.
                    "fieldSelector" if !named => name = one_name(&value).unwrap_or_default(),
                    _ => {}
                }
            }
        }
        watch |= found.watch;
        let verb = match (method.as_str(), named) {
            ("POST", _) => "create",
            ("GET" | "HEAD", _) if watch => "watch",
            ("GET" | "HEAD", true) => "get",
            ("GET" | "HEAD", false) => "list",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            ("DELETE", true) => "delete",
            ("DELETE", false) => "deletecollection",
            _ => "",
        };
        // A namespace is asked about within itself, so that a role in it can grant it.
        let namespace = match found.namespace {
            Some(namespace) => namespace,
            None if found.group.is_empty() && found.resource == "namespaces" && named => name.clone(),
            None => String::new(),
        };
        Attributes {
            verb: verb.into(),
            group: found.group,
            version: found.version,
            resource: found.resource,
            subresource: found.subresource.unwrap_or_default(),
            namespace,
            name,
            path: String::new(),
        }
    }

    /// Whether it is about a resource, and not about a path.
    pub fn is_resource(&self) -> bool {
        self.path.is_empty()
    }

    /// Whether its answer goes on for as long as the client likes.
    pub fn is_long_running(&self) -> bool {
        self.verb == "watch"
            || matches!(self.subresource.as_str(), "exec" | "attach" | "portforward" | "proxy")
    }

    /// `pods/log`.
    pub fn combined(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.clone()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }

    /// The refusal, in Kubernetes' words.
    pub fn refusal(&self, user: &str, why: &str) -> ApiError {
        let mut text = if self.is_resource() {
            let place = if self.namespace.is_empty() {
                "at the cluster scope".to_string()
            } else {
                format!("in the namespace {}", quoted(&self.namespace))
            };
            format!(
                "User {} cannot {} resource {} in API group {} {place}",
                quoted(user),
                self.verb,
                quoted(&self.combined()),
                quoted(&self.group)
            )
        } else {
            format!("User {} cannot {} path {}", quoted(user), self.verb, quoted(&self.path))
        };
        if !why.is_empty() {
            text = format!("{text}: {why}");
        }
        if !self.is_resource() {
            return ApiError::new(403, "Forbidden", format!("forbidden: {text}")).with_details();
        }
        let gr = GroupResource { group: self.group.clone(), resource: self.resource.clone() };
        ApiError::forbidden(&gr, &self.name, text)
    }
}

/// The name that a field selector leaves no choice about.
fn one_name(selector: &str) -> Option<String> {
    let fields = selector::parse_fields(selector).ok()?;
    let name = fields.0.iter().find(|f| f.field == "metadata.name" && f.equal)?;
    // What cannot be part of a path is no name.
    (!name.value.contains(['/', '%']) && name.value != "." && name.value != "..").then(|| name.value.clone())
}

/// Text in quotes, as Go writes it.
pub(crate) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// An answer to [`Attributes`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether it is allowed.
    pub allowed: bool,
    /// What allows it, or what stands in the way of a better answer; may be empty.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: &str) {
        let (method, uri) = line.split_once(' ').unwrap();
        let a = Attributes::of(&method.parse().unwrap(), &uri.parse().unwrap());
        let error = a.refusal("alice", "");
        assert_eq!(error.message, expected, "{line}");
        assert_eq!(error.code, 403);
    }

    /// Recorded from kube-apiserver 1.36.3.
    #[test]
    fn refusals_are_worded_as_kubernetes_words_them() {
        check(
            "GET /api/v1/namespaces/team-b/pods/x",
            r#"pods "x" is forbidden: User "alice" cannot get resource "pods" in API group "" in the namespace "team-b""#,
        );
        check(
            "GET /api/v1/pods",
            r#"pods is forbidden: User "alice" cannot list resource "pods" in API group "" at the cluster scope"#,
        );
        check(
            "GET /api/v1/pods?fieldSelector=metadata.namespace=team-a",
            r#"pods is forbidden: User "alice" cannot list resource "pods" in API group "" at the cluster scope"#,
        );
        check(
            "GET /api/v1/namespaces/team-b/pods?fieldSelector=metadata.name=q",
            r#"pods "q" is forbidden: User "alice" cannot list resource "pods" in API group "" in the namespace "team-b""#,
        );
        check(
            "GET /api/v1/namespaces/team-b",
            r#"namespaces "team-b" is forbidden: User "alice" cannot get resource "namespaces" in API group "" in the namespace "team-b""#,
        );
        check(
            "GET /api/v1/namespaces",
            r#"namespaces is forbidden: User "alice" cannot list resource "namespaces" in API group "" at the cluster scope"#,
        );
        check(
            "GET /api/v1/namespaces/team-b/pods/x/log",
            r#"pods "x" is forbidden: User "alice" cannot get resource "pods/log" in API group "" in the namespace "team-b""#,
        );
        check(
            "GET /api/v1/namespaces/team-b/pods?watch=1",
            r#"pods is forbidden: User "alice" cannot watch resource "pods" in API group "" in the namespace "team-b""#,
        );
        check(
            "GET /api/v1/watch/namespaces/team-b/pods/x",
            r#"pods "x" is forbidden: User "alice" cannot watch resource "pods" in API group "" in the namespace "team-b""#,
        );
        check(
            "DELETE /api/v1/namespaces/team-b/pods",
            r#"pods is forbidden: User "alice" cannot deletecollection resource "pods" in API group "" in the namespace "team-b""#,
        );
        check(
            "POST /api/v1/namespaces/team-b/pods/x/binding",
            r#"pods "x" is forbidden: User "alice" cannot create resource "pods/binding" in API group "" in the namespace "team-b""#,
        );
        check(
            "PATCH /apis/apps/v1/namespaces/team-b/deployments/d",
            r#"deployments.apps "d" is forbidden: User "alice" cannot patch resource "deployments" in API group "apps" in the namespace "team-b""#,
        );
        check("GET /metrics", r#"forbidden: User "alice" cannot get path "/metrics""#);
        check("GET /", r#"forbidden: User "alice" cannot get path "/""#);
        check(
            "GET /apis/nope.example.com/v1/things",
            r#"things.nope.example.com is forbidden: User "alice" cannot list resource "things" in API group "nope.example.com" at the cluster scope"#,
        );
        check(
            "OPTIONS /api/v1/nodes",
            r#"nodes is forbidden: User "alice" cannot  resource "nodes" in API group "" at the cluster scope"#,
        );
        check(
            "GET /api/v1/namespaces/team-b/pods/x/proxy/a/b",
            r#"pods "x" is forbidden: User "alice" cannot get resource "pods/proxy" in API group "" in the namespace "team-b""#,
        );
        check(
            "PUT /api/v1/namespaces/team-b/finalize",
            r#"namespaces "team-b" is forbidden: User "alice" cannot update resource "namespaces/finalize" in API group "" in the namespace "team-b""#,
        );
    }

    #[test]
    fn service_accounts_are_users_by_name() {
        assert_eq!(service_account("system:serviceaccount:a:b"), Some(("a", "b")));
        assert_eq!(service_account("system:serviceaccount::b"), None);
        assert_eq!(service_account("alice"), None);
        let user = User::service_account("a", "b");
        assert_eq!(
            user.groups,
            ["system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"]
        );
    }
}
