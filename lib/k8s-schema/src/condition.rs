//! Conditions over whole objects, such as the `matchConditions` of a webhook, and the expressions of admission policies.
//!
//! In: an expression and the values of its variables, untyped. Out: whether it holds, or why that cannot be said. Must stay true: no expression
//! costs more than its budget.

use crate::cel::{
    check::{self, Ty},
    eval::{Eval, Failure, Scope},
    parse::{Expr, parse, render},
    value::Val,
};
use kube_cel::cel::{Value as Cel, objects::Key};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What one evaluation may cost.
const BUDGET: u64 = 1_000_000;

/// Whether a condition holds.
///
/// ```
/// use k8s_schema::condition;
/// use serde_json::{Value, json};
///
/// let pod = json!({"spec": {"schedulerName": "muster-scheduler"}});
/// let holds = |expression: &str| condition(expression, &[("object", &pod), ("oldObject", &Value::Null)]);
/// assert_eq!(holds("has(object.spec.schedulerName) && object.spec.schedulerName in ['muster-scheduler']"), Ok(true));
/// assert_eq!(holds("has(object.spec.nodeName) || oldObject != null"), Ok(false));
/// assert_eq!(holds("object.spec.nodeName == 'n'"), Err("no such key: nodeName".to_owned()));
/// ```
pub fn condition(expression: &str, variables: &[(&str, &Value)]) -> Result<bool, String> {
    let expr = parse(expression).map_err(|issue| render(expression, &[issue]))?;
    within(variables, None, &mut |scope| {
        Eval::new(BUDGET).boolean(&expr, scope).map_err(|failure| failure.to_string())
    })
}

/// Puts the variables into scope one by one, and evaluates in the innermost.
fn within(
    variables: &[(&str, &Value)],
    outer: Option<&Scope<'_, '_>>,
    evaluate: &mut dyn FnMut(&Scope<'_, '_>) -> Result<bool, String>,
) -> Result<bool, String> {
    match (variables.split_first(), outer) {
        (Some(((name, value), rest)), parent) => {
            let scope = Scope { name, value: Val::untyped(value), parent };
            within(rest, Some(&scope), evaluate)
        }
        (None, Some(scope)) => evaluate(scope),
        (None, None) => Err("there are no variables".to_owned()),
    }
}

/// What an expression should come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// A boolean.
    Bool,
    /// A string.
    Text,
    /// A string or null.
    TextOrNull,
    /// Anything.
    Any,
}

/// An expression that makes sense.
#[derive(Debug, Clone)]
pub struct Expression {
    source: String,
    expr: Expr,
}

impl Expression {
    /// Reads an expression that may use the variables of these names, all untyped. Refusals are worded as the API server's.
    ///
    /// ```
    /// use k8s_schema::{Expression, Wanted};
    ///
    /// assert!(Expression::read("object.spec.replicas <= 5", &["object"], Wanted::Bool).is_ok());
    /// assert_eq!(Expression::read("1 + 1", &["object"], Wanted::Bool).unwrap_err(), "must evaluate to bool but got int");
    /// ```
    pub fn read(source: &str, variables: &[&str], wanted: Wanted) -> Result<Expression, String> {
        let failed = |issues: String| format!("compilation failed: {issues}");
        let expr = parse(source).map_err(|issue| failed(render(source, &[issue])))?;
        let variables: Vec<(&str, Ty<'_>)> = variables.iter().map(|name| (*name, Ty::Dyn)).collect();
        let (ty, issues) = check::check(&expr, &variables);
        if !issues.is_empty() {
            return Err(failed(render(source, &issues)));
        }
        let fits = match wanted {
            Wanted::Any => true,
            Wanted::Bool => matches!(ty, Ty::Bool | Ty::Dyn),
            Wanted::Text => matches!(ty, Ty::String | Ty::Dyn),
            Wanted::TextOrNull => matches!(ty, Ty::String | Ty::Null | Ty::Dyn),
        };
        if fits {
            return Ok(Expression { source: source.to_owned(), expr });
        }
        let name = match wanted {
            Wanted::Bool => "bool",
            Wanted::TextOrNull => "string or null_type",
            _ => "string",
        };
        Err(format!("must evaluate to {name} but got {}", ty.name()))
    }

    /// As it was written.
    pub fn source(&self) -> &str {
        &self.source
    }
}

/// The values that several expressions are evaluated over, and named expressions that they may use as `variables.NAME`; each of these is
/// evaluated when it is first needed, and once.
pub struct Evaluation<'e> {
    values: Vec<(&'e str, Val<'static>)>,
    named: &'e [(String, Expression)],
    known: BTreeMap<&'e str, Result<Val<'static>, String>>,
    eval: Eval,
}

impl<'e> Evaluation<'e> {
    /// Over these values. `named` may use those before them.
    ///
    /// ```
    /// use k8s_schema::{Evaluation, Expression, Wanted};
    /// use serde_json::json;
    ///
    /// let names = ["object", "variables"];
    /// let read = |source: &str| Expression::read(source, &names, Wanted::Any).unwrap();
    /// let named = [("n".to_owned(), read("size(object.items)")), ("bad".to_owned(), read("object.nope"))];
    /// let object = json!({"items": [1, 2]});
    /// let mut evaluation = Evaluation::new(&[("object", &object)], &named);
    /// assert_eq!(evaluation.boolean(&read("variables.n < 3 || variables.bad == 1")), Ok(true));
    /// assert_eq!(evaluation.boolean(&read("variables.bad == 1")), Err("composited variable \"bad\" fails to evaluate: no such key: nope".to_owned()));
    /// assert_eq!(evaluation.text(&read("'has ' + string(variables.n)")), Ok(Some("has 2".to_owned())));
    /// ```
    pub fn new(values: &[(&'e str, &Value)], named: &'e [(String, Expression)]) -> Evaluation<'e> {
        let values = values.iter().map(|(name, value)| (*name, Val::untyped(value))).collect();
        Evaluation { values, named, known: BTreeMap::new(), eval: Eval::new(10 * BUDGET) }
    }

    /// Whether a condition holds.
    pub fn boolean(&mut self, expression: &Expression) -> Result<bool, String> {
        match self.value(expression)? {
            Val::Cel(Cel::Bool(b)) => Ok(b),
            _ => Err(Failure::NoSuchOverload.to_string()),
        }
    }

    /// The text that an expression comes to, or none if it is null.
    pub fn text(&mut self, expression: &Expression) -> Result<Option<String>, String> {
        match self.value(expression)? {
            Val::Cel(Cel::String(text)) => Ok(Some(text.to_string())),
            Val::Cel(Cel::Null) => Ok(None),
            _ => Err(Failure::NoSuchOverload.to_string()),
        }
    }

    fn value(&mut self, expression: &Expression) -> Result<Val<'static>, String> {
        self.need(&expression.source, self.named.len());
        let found =
            self.known.iter().filter_map(|(name, v)| v.as_ref().ok().map(|v| (Key::from(*name), v.clone())));
        let mut values = self.values.clone();
        values.push(("variables", Val::Map(Arc::new(found.collect()))));
        let outcome = nested(&values, None, &mut self.eval, &expression.expr);
        outcome.map_err(|failure| match &failure {
            // It is missing because it has no value, which is the reason that matters.
            Failure::NoSuchKey(name) => match self.known.get(name.as_str()) {
                Some(Err(why)) => format!("composited variable \"{name}\" fails to evaluate: {why}"),
                _ => failure.to_string(),
            },
            _ => failure.to_string(),
        })
    }

    /// Evaluates the named expressions among the first `n` that a text speaks of.
    fn need(&mut self, source: &str, n: usize) {
        const PREFIX: &str = "variables.";
        for (at, _) in source.match_indices(PREFIX) {
            let rest = &source[at + PREFIX.len()..];
            let end = rest.find(|c: char| c != '_' && !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
            let name = &rest[..end];
            let Some(i) = self.named[..n].iter().position(|(known, _)| known == name) else { continue };
            let (name, expression) = &self.named[i];
            if !self.known.contains_key(name.as_str()) {
                self.need(&expression.source, i);
                let value = self.value_before(expression, i);
                self.known.insert(name, value);
            }
        }
    }

    fn value_before(&mut self, expression: &'e Expression, n: usize) -> Result<Val<'static>, String> {
        let earlier: Vec<&str> = self.named[..n].iter().map(|(name, _)| name.as_str()).collect();
        let known = self.known.iter().filter(|(name, _)| earlier.contains(*name));
        let found = known.filter_map(|(name, v)| v.as_ref().ok().map(|v| (Key::from(*name), v.clone())));
        let mut values = self.values.clone();
        values.push(("variables", Val::Map(Arc::new(found.collect()))));
        nested(&values, None, &mut self.eval, &expression.expr).map_err(|failure| failure.to_string())
    }
}

/// Puts the values into scope one by one, and evaluates in the innermost.
fn nested(
    values: &[(&str, Val<'static>)],
    outer: Option<&Scope<'_, 'static>>,
    eval: &mut Eval,
    expr: &Expr,
) -> Result<Val<'static>, Failure> {
    match (values.split_first(), outer) {
        (Some(((name, value), rest)), parent) => {
            let scope = Scope { name, value: value.clone(), parent };
            nested(rest, Some(&scope), eval, expr)
        }
        (None, Some(scope)) => eval.eval(expr, scope),
        (None, None) => Err(Failure::Other("there are no variables".to_owned())),
    }
}
