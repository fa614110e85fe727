//! What of a request the audit log tells. In: an `audit.k8s.io/v1` Policy and a request. Out: a level and the stages to leave out. Pure.

use crate::access::{Attributes, User};
use crate::meta;
use serde_json::Value;

/// How much is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are Kubernetes' own")]
pub enum Level {
    None,
    Metadata,
    Request,
    RequestResponse,
}

impl Level {
    /// As a policy spells it.
    pub fn name(self) -> &'static str {
        match self {
            Level::None => "None",
            Level::Metadata => "Metadata",
            Level::Request => "Request",
            Level::RequestResponse => "RequestResponse",
        }
    }
}

/// How far a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are Kubernetes' own")]
pub enum Stage {
    RequestReceived,
    ResponseStarted,
    ResponseComplete,
}

impl Stage {
    /// As an event spells it.
    pub fn name(self) -> &'static str {
        match self {
            Stage::RequestReceived => "RequestReceived",
            Stage::ResponseStarted => "ResponseStarted",
            Stage::ResponseComplete => "ResponseComplete",
        }
    }
}

/// What is wrong with a policy.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// It is no YAML.
    #[error("not YAML: {0}")]
    Yaml(String),
    /// It is something else.
    #[error("must be a Policy of audit.k8s.io/v1, found {0}")]
    Kind(String),
    /// It has no rules.
    #[error("rules: at least one rule is needed")]
    NoRules,
    /// A word that is none of the known ones.
    #[error("{field}: {found:?} is none of {known}")]
    Word {
        /// Where.
        field: String,
        /// What stands there.
        found: String,
        /// What may stand there.
        known: &'static str,
    },
}

#[derive(Clone, Debug, Default)]
struct Rule {
    level: Option<Level>,
    users: Vec<String>,
    groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<Resources>,
    namespaces: Vec<String>,
    urls: Vec<String>,
    omit_stages: Vec<Stage>,
    omit_managed_fields: bool,
}

#[derive(Clone, Debug)]
struct Resources {
    group: String,
    resources: Vec<String>,
    names: Vec<String>,
}

/// Rules, of which the first that matches decides.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    rules: Vec<Rule>,
    is_default: bool,
}

/// What a policy says about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// How much is told.
    pub level: Level,
    /// At which stages nothing is told.
    pub omit_stages: Vec<Stage>,
    /// Whether field managers are left out of objects.
    pub omit_managed_fields: bool,
}

impl Policy {
    /// Without a file: who, what and when of every request, once it is answered; of watches also when they begin.
    pub fn metadata() -> Policy {
        Policy { rules: vec![Rule { level: Some(Level::Metadata), ..Rule::default() }], is_default: true }
    }

    /// Reads a policy in YAML or JSON.
    pub fn parse(text: &str) -> Result<Policy, PolicyError> {
        let policy: Value = serde_saphyr::from_str(text).map_err(|e| PolicyError::Yaml(e.to_string()))?;
        let kind = |f: &str| policy[f].as_str().unwrap_or_default();
        if kind("kind") != "Policy" || kind("apiVersion") != "audit.k8s.io/v1" {
            return Err(PolicyError::Kind(format!("{} of {}", kind("kind"), kind("apiVersion"))));
        }
        let everywhere = stages(&policy, "omitStages")?;
        let plain = policy["omitManagedFields"] == true;
        let mut rules = Vec::new();
        for (i, rule) in policy["rules"].as_array().into_iter().flatten().enumerate() {
            rules.push(read(rule, &format!("rules[{i}]"), &everywhere, plain)?);
        }
        if rules.is_empty() {
            return Err(PolicyError::NoRules);
        }
        Ok(Policy { rules, is_default: false })
    }

    /// What it says about a request; `user` is whoever sent it, if that is known.
    pub fn decide(&self, asked: &Attributes, user: Option<&User>) -> Decided {
        match self.rules.iter().find(|rule| rule.matches(asked, user)) {
            None => Decided { level: Level::None, omit_stages: Vec::new(), omit_managed_fields: false },
            Some(rule) => {
                let mut omit_stages = rule.omit_stages.clone();
                if self.is_default {
                    omit_stages.push(Stage::ResponseStarted);
                    if !asked.is_long_running() {
                        omit_stages.push(Stage::RequestReceived);
                    }
                }
                Decided {
                    level: rule.level.unwrap_or(Level::None),
                    omit_stages,
                    omit_managed_fields: rule.omit_managed_fields,
                }
            }
        }
    }
}

impl Rule {
    fn matches(&self, asked: &Attributes, user: Option<&User>) -> bool {
        let fits = |list: &[String], value: &str| list.is_empty() || list.iter().any(|v| v == value);
        let name = user.map(|u| u.name.as_str()).unwrap_or_default();
        let in_group =
            self.groups.is_empty() || user.is_some_and(|u| u.groups.iter().any(|g| self.groups.contains(g)));
        if !fits(&self.users, name) || !in_group || !fits(&self.verbs, &asked.verb) {
            return false;
        }
        let about_resources = !self.resources.is_empty() || !self.namespaces.is_empty();
        if asked.is_resource() {
            if !self.urls.is_empty() && !about_resources {
                return false;
            }
            fits(&self.namespaces, &asked.namespace)
                && (self.resources.is_empty() || self.resources.iter().any(|r| r.matches(asked)))
        } else {
            if about_resources && self.urls.is_empty() {
                return false;
            }
            self.urls.is_empty()
                || self.urls.iter().any(|url| match url.strip_suffix('*') {
                    Some(start) => asked.path.starts_with(start),
                    None => *url == asked.path,
                })
        }
    }
}

impl Resources {
    fn matches(&self, asked: &Attributes) -> bool {
        let combined = asked.combined();
        self.group == asked.group
            && (self.names.is_empty() || self.names.contains(&asked.name))
            && (self.resources.is_empty()
                || self.resources.iter().any(|r| {
                    *r == combined
                        || (r == "*")
                        || (!asked.subresource.is_empty()
                            && (r.strip_prefix("*/") == Some(&asked.subresource)
                                || r.strip_suffix("/*") == Some(&asked.resource)))
                }))
    }
}

fn read(rule: &Value, field: &str, everywhere: &[Stage], plain: bool) -> Result<Rule, PolicyError> {
    let list = |name: &str| meta::strings(rule.get(name));
    let level = match rule["level"].as_str().unwrap_or_default() {
        "None" => Level::None,
        "Metadata" => Level::Metadata,
        "Request" => Level::Request,
        "RequestResponse" => Level::RequestResponse,
        other => {
            return Err(PolicyError::Word {
                field: format!("{field}.level"),
                found: other.into(),
                known: "None, Metadata, Request, RequestResponse",
            });
        }
    };
    let mut omit_stages = stages(rule, &format!("{field}.omitStages"))?;
    omit_stages.extend_from_slice(everywhere);
    Ok(Rule {
        level: Some(level),
        users: list("users"),
        groups: list("userGroups"),
        verbs: list("verbs"),
        resources: rule["resources"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|r| Resources {
                group: r["group"].as_str().unwrap_or_default().into(),
                resources: meta::strings(r.get("resources")),
                names: meta::strings(r.get("resourceNames")),
            })
            .collect(),
        namespaces: list("namespaces"),
        urls: list("nonResourceURLs"),
        omit_stages,
        omit_managed_fields: rule["omitManagedFields"].as_bool().unwrap_or(plain),
    })
}

fn stages(owner: &Value, field: &str) -> Result<Vec<Stage>, PolicyError> {
    let mut found = Vec::new();
    for name in meta::strings(owner.get("omitStages")) {
        found.push(match name.as_str() {
            "RequestReceived" => Stage::RequestReceived,
            "ResponseStarted" => Stage::ResponseStarted,
            "ResponseComplete" => Stage::ResponseComplete,
            // Nothing panics on purpose here, so there is nothing to leave out.
            "Panic" => continue,
            other => {
                return Err(PolicyError::Word {
                    field: field.into(),
                    found: other.into(),
                    known: "RequestReceived, ResponseStarted, ResponseComplete, Panic",
                });
            }
        });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, users: ["system:kube-proxy"], verbs: [watch], resources: [{group: "", resources: [endpoints, services]}]}
- {level: None, nonResourceURLs: ["/healthz*", /version]}
- {level: Request, resources: [{group: "", resources: [configmaps], resourceNames: [lock]}], namespaces: [kube-system]}
- {level: Metadata, resources: [{group: "", resources: [secrets, "pods/*", "*/scale"]}]}
- {level: RequestResponse, userGroups: [team], resources: [{group: apps}], omitStages: [ResponseStarted]}
- {level: Metadata, verbs: [delete]}
"#;

    #[track_caller]
    fn check(user: &str, group: &str, line: &str, expected: Level) {
        let (method, uri) = line.split_once(' ').unwrap();
        let asked = Attributes::of(&method.parse().unwrap(), &uri.parse().unwrap());
        let user = User::known(user, [group.to_string()]);
        let decided = Policy::parse(POLICY).unwrap().decide(&asked, Some(&user));
        assert_eq!(decided.level, expected, "{line}");
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        check("system:kube-proxy", "", "GET /api/v1/services?watch=1", Level::None);
        check("alice", "", "GET /healthz/etcd", Level::None);
        check("alice", "", "GET /version", Level::None);
        check("alice", "", "PUT /api/v1/namespaces/kube-system/configmaps/lock", Level::Request);
        check("alice", "", "PUT /api/v1/namespaces/default/configmaps/lock", Level::None);
        check("alice", "", "GET /api/v1/namespaces/a/secrets/s", Level::Metadata);
        check("alice", "", "GET /api/v1/namespaces/a/pods/p/log", Level::Metadata);
        check("alice", "", "GET /api/v1/namespaces/a/pods/p", Level::None);
        check("alice", "team", "GET /apis/apps/v1/namespaces/a/deployments", Level::RequestResponse);
        check("alice", "", "DELETE /apis/apps/v1/namespaces/a/deployments/d", Level::Metadata);
        check("alice", "", "DELETE /x", Level::Metadata);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let refused = |text: &str| Policy::parse(text).unwrap_err().to_string();
        let head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n";
        assert_eq!(refused("kind: Policy"), "must be a Policy of audit.k8s.io/v1, found Policy of ");
        assert_eq!(refused(head), "rules: at least one rule is needed");
        assert_eq!(
            refused(&format!("{head}rules: [{{level: Everything}}]")),
            "rules[0].level: \"Everything\" is none of None, Metadata, Request, RequestResponse"
        );
    }
}
