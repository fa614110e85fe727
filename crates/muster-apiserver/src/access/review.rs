//! Answers to whoever asks about access: who they are, what somebody may do, whose token it is.
//!
//! In: a review as it was sent. Out: its status. Only where access is enforced; elsewhere `sub` answers yes to everything.

use super::live::Access;
use super::{Attributes, User};
use crate::meta;
use crate::server::ApiServer;
use crate::status::ApiError;
use crate::write::Context;
use k8s_schema::FieldError;
use serde_json::{Value, json};
use std::sync::Arc;

impl ApiServer {
    /// The status of a review of any kind.
    pub(crate) fn review_access(
        &self,
        access: &Access,
        cx: &Context,
        review: &Value,
    ) -> Result<Value, ApiError> {
        // What comes from this process itself is the administrator's.
        let admin = || Arc::new(User::master(&self.inner.options.user));
        let asker = cx.user.clone().unwrap_or_else(admin);
        let spec = &review["spec"];
        Ok(match cx.served.kind.as_str() {
            "SelfSubjectReview" => json!({"userInfo": asker.to_info()}),
            "TokenReview" => self.review_token(access, spec),
            "SelfSubjectRulesReview" => {
                let namespace = spec["namespace"].as_str().unwrap_or_default();
                if namespace.is_empty() {
                    return Err(ApiError::bad_request("no namespace on request"));
                }
                let (rules, problem) = access.ask(self.store(), |index| index.rules(&asker, namespace));
                let (paths, resources): (Vec<_>, Vec<_>) = rules.iter().partition(|r| !r.urls.is_empty());
                let show =
                    |rules: Vec<&super::rule::Rule>| rules.iter().map(|r| r.to_review()).collect::<Vec<_>>();
                let mut status = json!({
                    "resourceRules": show(resources), "nonResourceRules": show(paths), "incomplete": false,
                });
                if let Some(problem) = problem {
                    status["evaluationError"] = problem.into();
                }
                status
            }
            "SelfSubjectAccessReview" => self.answer_review(access, &asker, spec)?,
            kind => {
                let user = subject(spec)?;
                if kind == "LocalSubjectAccessReview" {
                    let (own, asked) =
                        (cx.namespace.as_deref().unwrap_or_default(), &spec["resourceAttributes"]);
                    let asked = asked["namespace"].as_str().unwrap_or_default();
                    if asked != own {
                        let field = "spec.resourceAttributes.namespace";
                        return Err(refuse(FieldError::invalid(
                            field,
                            asked,
                            "must match metadata.namespace",
                        )));
                    }
                }
                self.answer_review(access, &user, spec)?
            }
        })
    }

    fn answer_review(&self, access: &Access, user: &User, spec: &Value) -> Result<Value, ApiError> {
        let asked = attributes(spec)?;
        let decision = self.decide(access, user, &asked);
        let mut status = json!({"allowed": decision.allowed});
        if !decision.reason.is_empty() {
            status["reason"] = decision.reason.into();
        }
        Ok(status)
    }

    fn review_token(&self, access: &Access, spec: &Value) -> Value {
        let unknown = || json!({"user": {}, "error": "invalid bearer token"});
        let token = spec["token"].as_str().unwrap_or_default();
        let wanted = meta::strings(spec.get("audiences"));
        let Some((user, audiences)) = self.whose(access, token) else { return unknown() };
        let shared: Vec<&String> =
            audiences.iter().filter(|a| wanted.is_empty() || wanted.contains(a)).collect();
        if shared.is_empty() {
            return unknown();
        }
        json!({"authenticated": true, "user": user.to_info(), "audiences": shared})
    }
}

fn refuse(error: FieldError) -> ApiError {
    ApiError::invalid("authorization.k8s.io", "", "", &[error])
}

fn subject(spec: &Value) -> Result<User, ApiError> {
    let name = spec["user"].as_str().unwrap_or_default();
    let groups = meta::strings(spec.get("groups"));
    if name.is_empty() && groups.is_empty() {
        return Err(refuse(FieldError::invalid(
            "spec.user",
            "",
            "at least one of user or group must be specified",
        )));
    }
    Ok(User { name: name.into(), groups, ..User::default() })
}

fn attributes(spec: &Value) -> Result<Attributes, ApiError> {
    let given = |field: &str| spec.get(field).filter(|v| v.is_object());
    match (given("resourceAttributes"), given("nonResourceAttributes")) {
        (Some(asked), None) => {
            let text = |field: &str| asked[field].as_str().unwrap_or_default().to_string();
            Ok(Attributes {
                verb: text("verb"),
                group: text("group"),
                version: text("version"),
                resource: text("resource"),
                subresource: text("subresource"),
                namespace: text("namespace"),
                name: text("name"),
                path: String::new(),
            })
        }
        (None, Some(asked)) => {
            let text = |field: &str| asked[field].as_str().unwrap_or_default().to_string();
            // An empty path would read as a resource.
            let path = Some(text("path")).filter(|p| !p.is_empty()).unwrap_or_else(|| "/".into());
            Ok(Attributes { verb: text("verb"), path, ..Attributes::default() })
        }
        (both, _) => {
            let detail = if both.is_some() {
                "cannot be specified in combination with resourceAttributes"
            } else {
                "exactly one of nonResourceAttributes or resourceAttributes must be specified"
            };
            let field = if both.is_some() { "spec.nonResourceAttributes" } else { "spec.resourceAttributes" };
            Err(refuse(FieldError::invalid(field, Value::Null, detail)))
        }
    }
}
