//! ValidatingAdmissionPolicy: rules in CEL about what may be written. In: policies, bindings, and a request under review. Out: a refusal,
//! warnings, remarks for the audit log.
//!
//! Policies are read once and again when one changes. A binding applies a policy to the requests that both match, with the parameters
//! that it names. Every failed rule is judged; the first that denies is the refusal.

use super::{Operation, Review};
use crate::meta;
use crate::registry::{Served, split_api_version};
use crate::selector::Labels;
use crate::server::ApiServer;
use crate::status::ApiError;
use crate::webhook::selects;
use k8s_schema::{Evaluation, Expression, FieldError, Wanted};
use serde_json::{Value, json};
use std::sync::Arc;

const POLICIES: &str = "validatingadmissionpolicies.admissionregistration.k8s.io";
const BINDINGS: &str = "validatingadmissionpolicybindings.admissionregistration.k8s.io";
/// What an expression may speak of.
const VARIABLES: [&str; 6] = ["object", "oldObject", "request", "params", "namespaceObject", "variables"];
/// Where remarks about failed rules go in the audit log.
const AUDIT_KEY: &str = "validation.policy.admission.k8s.io/validation_failure";
/// How many parameters a selector may find.
const MAX_PARAMS: usize = 1000;

/// A binding and its policy.
pub(crate) struct Bound {
    binding: Value,
    name: String,
    policy: Arc<Policy>,
}

struct Policy {
    name: String,
    spec: Value,
    fails: bool,
    conditions: Vec<(String, Result<Expression, String>)>,
    variables: Vec<(String, Expression)>,
    validations: Vec<Validation>,
    annotations: Vec<(String, Result<Expression, String>)>,
}

struct Validation {
    expression: Result<Expression, String>,
    source: String,
    message: String,
    message_expression: Option<Expression>,
    reason: String,
}

/// A rule that does not hold, or a policy that cannot be evaluated.
struct Failed {
    message: String,
    reason: String,
    index: usize,
}

fn expression(source: &str, wanted: Wanted) -> Result<Expression, String> {
    Expression::read(source, &VARIABLES, wanted)
}

fn items<'a>(owner: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    owner[field].as_array().into_iter().flatten()
}

fn text(owner: &Value, field: &str) -> String {
    owner[field].as_str().unwrap_or_default().to_string()
}

impl Policy {
    fn read(object: &Value) -> Policy {
        let spec = object["spec"].clone();
        let named = |field: &str,
                     name: &str,
                     source: &str,
                     wanted: Wanted|
         -> Vec<(String, Result<Expression, String>)> {
            items(&spec, field).map(|c| (text(c, name), expression(&text(c, source), wanted))).collect()
        };
        Policy {
            name: meta::name(object).into(),
            fails: spec["failurePolicy"] != "Ignore",
            conditions: named("matchConditions", "name", "expression", Wanted::Bool),
            // One that makes no sense is refused where it is written; then it is as if it were not there.
            variables: named("variables", "name", "expression", Wanted::Any)
                .into_iter()
                .filter_map(|(name, e)| e.ok().map(|e| (name, e)))
                .collect(),
            validations: items(&spec, "validations")
                .map(|v| Validation {
                    source: text(v, "expression").trim().to_string(),
                    expression: expression(&text(v, "expression"), Wanted::Bool),
                    message: text(v, "message"),
                    message_expression: v["messageExpression"]
                        .as_str()
                        .filter(|m| !m.is_empty())
                        .and_then(|m| expression(m, Wanted::Text).ok()),
                    reason: text(v, "reason"),
                })
                .collect(),
            annotations: named("auditAnnotations", "key", "valueExpression", Wanted::TextOrNull),
            spec,
        }
    }

    /// What fails for a request with one parameter. `Err` says why that cannot be said.
    fn judge(
        &self,
        values: &[(&str, &Value)],
        notes: &mut Vec<(String, String)>,
    ) -> Result<Vec<Failed>, String> {
        let mut evaluation = Evaluation::new(values, &self.variables);
        let mut problems = Vec::new();
        for (name, condition) in &self.conditions {
            match condition.as_ref().map_err(Clone::clone).and_then(|c| evaluation.boolean(c)) {
                Ok(true) => {}
                Ok(false) => return Ok(Vec::new()),
                Err(why) => problems.push(format!("{name}: {why}")),
            }
        }
        if !problems.is_empty() {
            return Err(format!("match conditions: {}", problems.join("; ")));
        }
        let mut failed = Vec::new();
        for (index, rule) in self.validations.iter().enumerate() {
            let outcome = rule.expression.as_ref().map_err(Clone::clone).and_then(|e| evaluation.boolean(e));
            let message = match outcome {
                Ok(true) => continue,
                Ok(false) => rule.explain(&mut evaluation),
                Err(_) if !self.fails => continue,
                Err(why) => format!("expression '{}' resulted in error: {why}", rule.source),
            };
            failed.push(Failed { message, reason: rule.reason.clone(), index });
        }
        for (key, expression) in &self.annotations {
            if let Ok(expression) = expression
                && let Ok(Some(value)) = evaluation.text(expression)
                && !value.trim().is_empty()
            {
                notes.push((format!("{}/{key}", self.name), value.chars().take(10 << 10).collect()));
            }
        }
        Ok(failed)
    }
}

impl Validation {
    /// Why it does not hold: by its expression for that, its text, or the rule itself.
    fn explain(&self, evaluation: &mut Evaluation<'_>) -> String {
        let said = self.message_expression.as_ref().and_then(|e| evaluation.text(e).ok().flatten());
        let said = said
            .map(|t| t.trim().to_string())
            .filter(|t| !t.is_empty() && !t.contains('\n') && t.len() <= 5 << 10);
        said.unwrap_or_else(|| {
            let message = self.message.trim();
            if message.is_empty() {
                format!("failed expression: {}", self.source)
            } else {
                message.to_string()
            }
        })
    }
}

/// What is wrong with a policy or a binding that somebody writes.
pub(super) fn problems(kind: &str, object: &Value) -> Vec<FieldError> {
    let spec = &object["spec"];
    let mut errors = Vec::new();
    if kind == "ValidatingAdmissionPolicyBinding" {
        if text(spec, "policyName").is_empty() {
            errors.push(FieldError::required("spec.policyName", ""));
        }
        if items(spec, "validationActions").next().is_none() {
            errors.push(FieldError::required("spec.validationActions", ""));
        }
        let known = ["Audit", "Deny", "Warn"];
        for (i, action) in items(spec, "validationActions").enumerate() {
            if !known.iter().any(|k| action == k) {
                let at = format!("spec.validationActions[{i}]");
                errors.push(FieldError::not_supported(at, action.clone(), known));
            }
        }
        let actions: Vec<&str> = items(spec, "validationActions").filter_map(Value::as_str).collect();
        if actions.contains(&"Deny") && actions.contains(&"Warn") {
            let shown = json!(actions);
            let why = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
            errors.push(FieldError::invalid("spec.validationActions", shown, why));
        }
        return errors;
    }
    match spec.get("matchConstraints").filter(|m| m.is_object()) {
        None => errors.push(FieldError::required("spec.matchConstraints", "")),
        Some(m) if items(m, "resourceRules").next().is_none() => {
            errors.push(FieldError::required("spec.matchConstraints.resourceRules", ""));
        }
        Some(_) => {}
    }
    let mut compile = |at: String, source: &str, wanted: Wanted| {
        if source.trim().is_empty() {
            errors.push(FieldError::required(at, "expression is not specified"));
        } else if let Err(why) = expression(source, wanted) {
            errors.push(FieldError::invalid(at, source, why));
        }
    };
    for (i, c) in items(spec, "matchConditions").enumerate() {
        compile(format!("spec.matchConditions[{i}].expression"), &text(c, "expression"), Wanted::Bool);
    }
    for (i, v) in items(spec, "variables").enumerate() {
        compile(format!("spec.variables[{i}].expression"), &text(v, "expression"), Wanted::Any);
    }
    for (i, v) in items(spec, "validations").enumerate() {
        compile(format!("spec.validations[{i}].expression"), &text(v, "expression"), Wanted::Bool);
        if let Some(message) = v["messageExpression"].as_str().filter(|m| !m.is_empty()) {
            compile(format!("spec.validations[{i}].messageExpression"), message, Wanted::Text);
        }
    }
    for (i, a) in items(spec, "auditAnnotations").enumerate() {
        compile(
            format!("spec.auditAnnotations[{i}].valueExpression"),
            &text(a, "valueExpression"),
            Wanted::TextOrNull,
        );
    }
    if items(spec, "validations").chain(items(spec, "auditAnnotations")).next().is_none() {
        for field in ["spec.validations", "spec.auditAnnotations"] {
            errors.push(FieldError::required(
                field,
                "validations or auditAnnotations must contain at least one item",
            ));
        }
    }
    errors
}

impl ApiServer {
    /// Whether any policy is bound.
    pub(crate) fn has_policies(&self) -> bool {
        self.store().len(BINDINGS) > 0
    }

    fn bound_policies(&self) -> Arc<Vec<Bound>> {
        self.inner.policies.get(self.store(), &[POLICIES, BINDINGS], || {
            let policies: Vec<Arc<Policy>> =
                self.all(POLICIES).iter().map(|p| Arc::new(Policy::read(p))).collect();
            let bound = self.all(BINDINGS).into_iter().filter_map(|binding| {
                let policy = policies.iter().find(|p| binding["spec"]["policyName"] == p.name.as_str())?;
                let name = meta::name(&binding).to_string();
                Some(Bound { name, policy: policy.clone(), binding })
            });
            bound.collect()
        })
    }

    /// Judges a request by all policies that are bound.
    pub(super) async fn check_policies(&self, review: &mut Review, object: &Value) -> Result<(), ApiError> {
        // A policy never judges policies, or a wrong one could not be mended.
        if !self.has_policies() || review.served.group == "admissionregistration.k8s.io" {
            return Ok(());
        }
        let bound = self.bound_policies();
        let namespace = if review.served.is("", "namespaces") {
            Some(if object.is_null() {
                review.old.as_deref().cloned().unwrap_or_default()
            } else {
                object.clone()
            })
        } else if review.namespace.is_empty() {
            None
        } else {
            self.one("namespaces", "", &review.namespace)
        };
        let applies = |constraints: &Value| self.matched(constraints, review, object, namespace.as_ref());
        let matching: Vec<(&Bound, Arc<Served>)> = bound
            .iter()
            .filter_map(|b| Some((b, applies(&b.policy.spec["matchConstraints"])?)))
            .filter(|(b, _)| b.binding["spec"].get("matchResources").is_none_or(|m| applies(m).is_some()))
            .collect();
        if matching.is_empty() {
            return Ok(());
        }
        let asked_old = review.old.as_deref().cloned().unwrap_or_default();
        let namespace =
            if review.served.is("", "namespaces") { Value::Null } else { namespace.unwrap_or_default() };
        let (mut denied, mut remarks, mut notes) = (None, Vec::new(), Vec::new());
        for (Bound { binding, name, policy }, kind) in matching {
            let object = &self.in_version(object, &review.served, &kind).await?;
            let old = self.in_version(&asked_old, &review.served, &kind).await?;
            let body = self.admission_review(review, &kind, object, &old);
            let mut failed = Vec::new();
            match self.params(policy, binding, review) {
                Ok(params) => {
                    for params in params {
                        let values = [
                            ("object", object),
                            ("oldObject", &old),
                            ("request", &body["request"]),
                            ("params", &params),
                            ("namespaceObject", &namespace),
                        ];
                        match policy.judge(&values, &mut notes) {
                            Ok(found) => failed.extend(found),
                            Err(why) => failed.extend(policy.broken(why)),
                        }
                    }
                }
                Err(why) => failed.extend(policy.broken(format!("failed to configure binding: {why}"))),
            }
            let actions = meta::strings(binding["spec"].get("validationActions"));
            for failure in failed {
                for action in &actions {
                    match action.as_str() {
                        "Deny" if denied.is_none() => {
                            denied = Some(refusal(review, &policy.name, name, &failure))
                        }
                        "Warn" => review.warnings.push(format!(
                            "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{name}': {}",
                            policy.name, failure.message
                        )),
                        "Audit" => remarks.push(json!({
                            "message": failure.message, "policy": policy.name, "binding": name,
                            "expressionIndex": failure.index, "validationActions": actions,
                        })),
                        _ => {}
                    }
                }
            }
        }
        if let Some(log) = &review.notes {
            if !remarks.is_empty() {
                log.add(AUDIT_KEY, Value::Array(remarks).to_string());
            }
            notes.into_iter().for_each(|(key, value)| log.add(&key, value));
        }
        match denied {
            None => Ok(()),
            Some(mut error) => {
                error.warnings.append(&mut review.warnings);
                Err(error)
            }
        }
    }

    /// The kind as which `matchConstraints` or `matchResources` are about a request, if they are.
    fn matched(
        &self,
        constraints: &Value,
        review: &Review,
        object: &Value,
        namespace: Option<&Value>,
    ) -> Option<Arc<Served>> {
        let policy = &constraints["matchPolicy"];
        if self.matched_as(&constraints["excludeResourceRules"], policy, review).is_some() {
            return None;
        }
        let rules = constraints.get("resourceRules").filter(|r| r.as_array().is_some_and(|r| !r.is_empty()));
        let kind = match rules {
            Some(rules) => self.matched_as(rules, policy, review)?,
            None => review.served.clone(),
        };
        let labels_of = |o: &Value| o["metadata"].get("labels").cloned();
        let by_namespace =
            namespace.is_none_or(|ns| selects(&constraints["namespaceSelector"], labels_of(ns).as_ref()));
        let shown = [(!object.is_null()).then_some(object), review.old.as_deref()];
        let by_object = shown
            .into_iter()
            .flatten()
            .any(|o| selects(&constraints["objectSelector"], labels_of(o).as_ref()));
        (by_namespace && by_object).then_some(kind)
    }

    /// The parameters that a binding names; one that is null where none are asked for.
    fn params(&self, policy: &Policy, binding: &Value, review: &Review) -> Result<Vec<Value>, String> {
        let (kind, reference) = (&policy.spec["paramKind"], &binding["spec"]["paramRef"]);
        if !kind.is_object() || !reference.is_object() {
            return Ok(vec![Value::Null]);
        }
        let (group, version) = split_api_version(kind["apiVersion"].as_str().unwrap_or_default());
        let registry = self.registry();
        let wanted = kind["kind"].as_str().unwrap_or_default();
        let served = registry.find_kind(group, version, wanted).ok_or_else(|| {
            format!("failed to find resource referenced by paramKind: '{group}/{version}, Kind={wanted}'")
        })?;
        let given = reference["namespace"].as_str().filter(|n| !n.is_empty());
        let namespace = match (served.namespaced, given) {
            (false, Some(_)) => {
                return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".into());
            }
            (false, None) => "",
            (true, Some(given)) => given,
            (true, None) if review.namespace.is_empty() => {
                return Err(
                    "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                        .into(),
                );
            }
            (true, None) => &review.namespace,
        };
        let found: Vec<Value> = match reference["name"].as_str().filter(|n| !n.is_empty()) {
            Some(name) => self.one(&served.table, namespace, name).into_iter().collect(),
            None => {
                let labels = Labels::from_object(&reference["selector"]).map_err(|e| e.to_string())?;
                let all = self.all_in(&served.table, served.namespaced.then_some(namespace));
                let chosen =
                    all.into_iter().filter(|o| labels.matches(|l| o["metadata"]["labels"][l].as_str()));
                chosen.take(MAX_PARAMS).collect()
            }
        };
        if found.is_empty() && reference["parameterNotFoundAction"] != "Allow" {
            return Err("no params found for policy binding with `Deny` parameterNotFoundAction".into());
        }
        Ok(found)
    }
}

impl Policy {
    /// What becomes of a policy that cannot be evaluated.
    fn broken(&self, message: String) -> Option<Failed> {
        if self.fails {
            return Some(Failed { message, reason: String::new(), index: 0 });
        }
        tracing::warn!(policy = self.name, why = message, "policy ignored");
        None
    }
}

fn refusal(review: &Review, policy: &str, binding: &str, failure: &Failed) -> ApiError {
    let text = format!(
        "ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {}",
        failure.message
    );
    let name =
        if review.name.is_empty() && review.operation == Operation::Create { "" } else { &review.name };
    let mut error = ApiError::forbidden(&review.served.group_resource(), name, &text);
    (error.code, error.reason) = match failure.reason.as_str() {
        "Forbidden" => (403, "Forbidden"),
        "Unauthorized" => (401, "Unauthorized"),
        "RequestEntityTooLarge" => (413, "RequestEntityTooLarge"),
        _ => (422, "Invalid"),
    };
    error.details.insert("causes".into(), json!([{"message": text}]));
    error
}
