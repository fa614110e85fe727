//! Conditions over whole objects, such as the `matchConditions` of a webhook.
//!
//! In: an expression and the values of its variables, untyped. Out: whether it holds, or why that cannot be said. Must stay true: no expression
//! costs more than its budget.

use crate::cel::{
    eval::{Eval, Scope},
    parse::{parse, render},
    value::Val,
};
use serde_json::Value;

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
