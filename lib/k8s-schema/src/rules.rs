//! Validation rules: `x-kubernetes-validations` compiled once and evaluated over objects.
//!
//! In: a value, the value it replaces if there is one, and its schema. Out: one field error per rule that does not hold. Rules that
//! mention `oldSelf` run only where the old value can be told: fields by name, items of lists of type map by key. The
//! work of one call is bounded by a budget, and parts of a schema without rules are not visited.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use crate::{
    Additional, FieldError, Rule, Schema, Type,
    cel::{
        check::{self, Ty},
        eval::{Eval, Failure, Scope},
        parse::{self, Expr},
        value::{Typed, Val},
    },
    correlate::{OldItems, old_field},
    path::Path,
};

/// What one evaluation of one rule may cost.
const RULE_BUDGET: u64 = 1_000_000;
/// What all rules of one object may cost together.
const OBJECT_BUDGET: u64 = 10_000_000;
/// Longest message that a message expression may make.
const MAX_MESSAGE: usize = 5 * 1024;

/// A rule whose expressions were read and checked.
#[derive(Debug)]
pub(crate) struct Compiled {
    /// The rule, or why it cannot run.
    pub rule: Result<Expr, String>,
    /// The message expression, or why it cannot run.
    pub message: Option<Result<Expr, String>>,
    pub uses_old_self: bool,
    /// The field to blame, relative to the rule's place, as field errors print it.
    pub field_path: Option<String>,
}

/// What is known about a schema node after one look at everything below it.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub defaulted: Vec<String>,
    pub has_rules: bool,
}

impl Plan {
    pub(crate) fn new(schema: &Schema) -> Self {
        let below = |child: &Schema| child.memo.has_rules(child);
        let additional = match &schema.additional {
            Some(Additional::Schema(child)) => below(child),
            _ => false,
        };
        Self {
            defaulted: schema
                .properties
                .iter()
                .filter(|(_, p)| p.default.is_some())
                .map(|(n, _)| n.clone())
                .collect(),
            has_rules: !schema.rules.is_empty()
                || additional
                || schema.items.as_deref().is_some_and(below)
                || schema.properties.values().any(|child| below(child)),
        }
    }
}

/// Evaluates the CEL rules of a schema.
///
/// `old` is the object before the update; without it, rules about transitions do not run unless they say that `oldSelf` is
/// optional. A rule that fails on a part of the object that did not change is not reported.
///
/// ```
/// use k8s_schema::{Schema, validate_rules};
/// use serde_json::json;
///
/// let schema = Schema::from_crd(&json!({"type": "object", "properties": {"spec": {
///     "type": "object",
///     "properties": {"min": {"type": "integer"}, "max": {"type": "integer"}},
///     "x-kubernetes-validations": [{"rule": "self.min <= self.max", "message": "min must not exceed max"}],
/// }}})).unwrap();
/// let errors = validate_rules(&json!({"spec": {"min": 3, "max": 2}}), None, &schema);
/// assert_eq!(errors[0].to_string(), "spec: Invalid value: min must not exceed max");
/// ```
#[must_use]
pub fn validate_rules(value: &Value, old: Option<&Value>, schema: &Schema) -> Vec<FieldError> {
    rules_below(value, old, schema, &Path::Root, true)
}

/// Evaluates the rules of a part of an object; `root` says whether it is a whole object.
pub(crate) fn rules_below(
    value: &Value,
    old: Option<&Value>,
    schema: &Schema,
    path: &Path<'_>,
    root: bool,
) -> Vec<FieldError> {
    let mut run = Run { budget: OBJECT_BUDGET, stopped: false, errors: Vec::new() };
    run.node(value, old, Typed::new(schema, root), path, old.is_some_and(|old| old == value));
    run.errors
}

struct Run {
    budget: u64,
    stopped: bool,
    errors: Vec<FieldError>,
}

impl Run {
    /// `same` says that the nearest part with a known old value did not change.
    fn node(&mut self, value: &Value, old: Option<&Value>, typed: Typed<'_>, path: &Path<'_>, same: bool) {
        let schema = typed.schema;
        if value.is_null() || self.stopped || !schema.memo.has_rules(schema) {
            return;
        }
        if !schema.rules.is_empty() {
            self.here(value, old.filter(|old| !old.is_null()), typed, path, same);
        }
        // Whether the part below is unchanged: by its own old value, or else as the part above.
        let same_below = |old: Option<&Value>, new: &Value| old.map_or(same, |old| old == new);
        match value {
            Value::Object(map) => {
                for (key, item) in map {
                    if self.stopped {
                        return;
                    }
                    let old_item = old_field(old, key);
                    let same = same_below(old_item, item);
                    if let Some(child) = schema.properties.get(key) {
                        self.node(item, old_item, Typed::new(child, false), &path.child(key), same);
                    } else if let Some(Additional::Schema(child)) = &schema.additional {
                        self.node(item, old_item, Typed::new(child, false), &path.key(key), same);
                    }
                }
            }
            Value::Array(items) => {
                let Some(child) = schema.items.as_deref().filter(|s| s.memo.has_rules(s)) else { return };
                let old_items = OldItems::new(old, schema);
                for (i, item) in items.iter().enumerate() {
                    if self.stopped {
                        return;
                    }
                    let old_item = old_items.of(item);
                    self.node(
                        item,
                        old_item,
                        Typed::new(child, false),
                        &path.index(i),
                        same_below(old_item, item),
                    );
                }
            }
            _ => {}
        }
    }

    /// The rules of this very node.
    fn here(&mut self, value: &Value, old: Option<&Value>, typed: Typed<'_>, path: &Path<'_>, same: bool) {
        let schema = typed.schema;
        let type_name = schema.ty.name();
        for rule in &schema.rules {
            if rule.rule.trim().is_empty() {
                continue;
            }
            let compiled = rule.compile(typed);
            let optional = rule.optional_old_self == Some(true);
            if compiled.uses_old_self && old.is_none() && !optional {
                continue;
            }
            if self.budget == 0 {
                self.stop(path, type_name, "validation failed due to running out of cost budget, no further validation rules will be run");
                return;
            }
            let expr = match &compiled.rule {
                Ok(expr) => expr,
                Err(why) => {
                    let detail = format!("rule compile error: {why}");
                    self.errors.push(FieldError::invalid(path.field(), type_name, detail));
                    continue;
                }
            };
            match self.run(expr, value, old, typed, optional) {
                Ok(Val::Cel(kube_cel::cel::Value::Bool(true))) => {}
                Ok(_) => {
                    let message = self.message(rule, &compiled, value, old, typed, optional);
                    // What was wrong before and did not change stays accepted.
                    if compiled.uses_old_self || !same {
                        self.errors.push(violation(rule, &compiled, value, schema, path, message));
                    }
                }
                Err(Failure::Budget) => {
                    let detail = format!(
                        "'{}': no further validation rules will be run due to call cost exceeds limit for rule: {}",
                        Failure::Budget,
                        summary(rule)
                    );
                    self.stop(path, type_name, &detail);
                    return;
                }
                Err(Failure::NoSuchOverload) => {
                    let detail = format!(
                        "'no such overload': call arguments did not match a supported operator, function or macro \
                         signature for rule: {}",
                        summary(rule)
                    );
                    self.errors.push(FieldError::invalid(path.field(), type_name, detail));
                }
                Err(failure) => {
                    let detail = format!("{failure} evaluating rule: {}", summary(rule));
                    self.errors.push(FieldError::invalid(path.field(), type_name, detail));
                }
            }
        }
    }

    fn stop(&mut self, path: &Path<'_>, type_name: &str, detail: &str) {
        self.errors.push(FieldError::invalid(path.field(), type_name, detail));
        self.stopped = true;
    }

    fn run<'a>(
        &mut self,
        expr: &Expr,
        value: &'a Value,
        old: Option<&'a Value>,
        typed: Typed<'a>,
        optional: bool,
    ) -> Result<Val<'a>, Failure> {
        let this = Scope { name: "self", value: Val::read(value, typed)?, parent: None };
        let limit = self.budget.min(RULE_BUDGET);
        let mut eval = Eval::new(limit);
        let old_value = old.map(|old| Val::read(old, typed)).transpose()?;
        let made = match (old_value, optional) {
            (None, false) => eval.eval(expr, &this),
            (old_value, true) => {
                let value = Val::Optional(old_value.map(Arc::new));
                eval.eval(expr, &Scope { name: "oldSelf", value, parent: Some(&this) })
            }
            (Some(value), false) => eval.eval(expr, &Scope { name: "oldSelf", value, parent: Some(&this) }),
        };
        self.budget -= limit - eval.budget;
        made
    }

    /// What to say about a rule that does not hold.
    fn message(
        &mut self,
        rule: &Rule,
        compiled: &Compiled,
        value: &Value,
        old: Option<&Value>,
        typed: Typed<'_>,
        optional: bool,
    ) -> String {
        if let Some(Ok(expr)) = &compiled.message
            && let Ok(Val::Cel(kube_cel::cel::Value::String(text))) =
                self.run(expr, value, old, typed, optional)
        {
            let text = text.trim();
            if !text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n') {
                return text.to_owned();
            }
        }
        match rule.message.as_deref().filter(|m| !m.is_empty()) {
            Some(message) => message.trim().to_owned(),
            None => format!("failed rule: {}", summary(rule)),
        }
    }
}

fn violation(
    rule: &Rule,
    compiled: &Compiled,
    value: &Value,
    schema: &Schema,
    path: &Path<'_>,
    message: String,
) -> FieldError {
    let field = match (&compiled.field_path, path) {
        (None, _) => path.field(),
        (Some(below), Path::Root) => below.clone(),
        (Some(below), _) => format!("{}.{below}", path.field()),
    };
    let mut error = match rule.reason.as_deref() {
        Some("FieldValueForbidden") => FieldError::forbidden(field, message),
        Some("FieldValueRequired") => FieldError::required(field, message),
        Some("FieldValueDuplicate") => FieldError::duplicate(field, value.clone()),
        _ => FieldError::invalid(field, value.clone(), message),
    };
    if matches!(schema.ty, Type::Object | Type::Array) {
        error.value = None;
    }
    error
}

/// How messages refer to a rule.
fn summary(rule: &Rule) -> &str {
    match rule.message.as_deref() {
        Some(message) if !message.is_empty() => message.trim(),
        _ => rule.rule.trim(),
    }
}

impl Rule {
    /// Reads and checks the rule, once.
    pub(crate) fn compile(&self, typed: Typed<'_>) -> Arc<Compiled> {
        self.memo.compiled.get_or_init(|| Arc::new(compile(self, typed))).clone()
    }
}

fn compile(rule: &Rule, typed: Typed<'_>) -> Compiled {
    let this = check::declared(typed).unwrap_or(Ty::Dyn);
    let old = match rule.optional_old_self {
        Some(true) => Ty::Optional(std::rc::Rc::new(this.clone())),
        _ => this.clone(),
    };
    let variables = [("self", this), ("oldSelf", old)];
    let read = |source: &str| -> Result<(Expr, Ty<'_>), String> {
        let expr = parse::parse(source).map_err(|issue| parse::render(source, &[issue]))?;
        let (ty, issues) = check::check(&expr, &variables);
        if issues.is_empty() { Ok((expr, ty)) } else { Err(parse::render(source, &issues)) }
    };
    let compiled = match read(&rule.rule) {
        Ok((expr, Ty::Bool | Ty::Dyn)) => Ok(expr),
        Ok(_) => Err("cel expression must evaluate to a bool".to_owned()),
        Err(issues) => Err(format!("compilation failed: {issues}")),
    };
    let message =
        rule.message_expression.as_deref().filter(|m| !m.is_empty()).map(|source| match read(source) {
            Ok((expr, Ty::String | Ty::Dyn)) => Ok(expr),
            Ok(_) => Err("messageExpression must evaluate to a string".to_owned()),
            Err(issues) => Err(format!("messageExpression compilation failed: {issues}")),
        });
    let field_path = rule.field_path.as_deref().filter(|p| !p.is_empty());
    Compiled {
        uses_old_self: compiled.as_ref().is_ok_and(|expr| expr.mentions("oldSelf")),
        rule: compiled,
        message,
        field_path: field_path.and_then(|text| resolve_field_path(text, typed.schema)),
    }
}

/// A relative JSON path such as `.a['b.c'].d`, checked against the schema and printed as a field; `None` if it leads
/// nowhere.
pub(crate) fn resolve_field_path(text: &str, schema: &Schema) -> Option<String> {
    let mut out = String::new();
    let mut at = schema;
    let mut rest = text;
    while !rest.is_empty() {
        let name;
        if let Some(tail) = rest.strip_prefix('.') {
            let end = tail.find(['.', '[', ']']).unwrap_or(tail.len());
            name = tail[..end].to_owned();
            if name.is_empty() {
                return None;
            }
            rest = &tail[end..];
        } else {
            let tail = rest.strip_prefix("['")?;
            let (quoted, after) = split_quoted(tail)?;
            name = quoted;
            rest = after.strip_prefix(']')?;
        }
        at = if at.properties.is_empty() {
            out.push_str(&format!("[{name}]"));
            match &at.additional {
                Some(Additional::Schema(child)) => child,
                _ => return None,
            }
        } else {
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(&name);
            at.properties.get(&name)?
        };
    }
    Some(out)
}

/// The text up to the closing quote, and what follows it.
fn split_quoted(text: &str) -> Option<(String, &str)> {
    let mut out = String::new();
    let mut chars = text.char_indices();
    while let Some((i, c)) = chars.next() {
        match c {
            '\'' => return Some((out, &text[i + 1..])),
            '\\' => out.push(match chars.next()?.1 {
                'a' => '\u{7}',
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'v' => '\u{b}',
                c @ ('\'' | '\\') => c,
                _ => return None,
            }),
            c => out.push(c),
        }
    }
    None
}

/// The schema of metadata as rules see it.
pub(crate) fn meta_schema() -> Schema {
    let text = Arc::new(Schema::of(Type::String));
    let properties = BTreeMap::from([("name".to_owned(), text.clone()), ("generateName".to_owned(), text)]);
    Schema { ty: Type::Object, properties, ..Schema::default() }
}
