//! The function libraries of Kubernetes CEL, from the `kube-cel` crate.
//!
//! That crate hangs its functions on an evaluation context; a call is made by evaluating a one-call expression whose
//! arguments are variables. A function that panics on strange input is reported as failed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use kube_cel::{
    KubeCelExt,
    cel::{
        Context, ExecutionError, IdedExpr, Value,
        common::ast::{CallExpr, Expr},
    },
};

use super::eval::Failure;

thread_local! {
    static FUNCTIONS: Context<'static> = Context::default().with_all();
}

/// Where a function is looked up.
#[derive(Debug, Clone)]
pub(crate) enum Callee<'a> {
    /// `name(args)`
    Global,
    /// `namespace.name(args)`
    Namespace(&'a str),
    /// `target.name(args)`
    Method(Value),
}

/// Calls a library function or operator.
pub(crate) fn call(callee: Callee<'_>, name: &str, args: Vec<Value>) -> Result<Value, Failure> {
    let ident = |name: String| IdedExpr { id: 0, expr: Expr::Ident(name) };
    FUNCTIONS.with(|functions| {
        let mut scope = functions.new_inner_scope();
        let target = match callee {
            Callee::Global => None,
            Callee::Namespace(space) => Some(Box::new(ident(space.to_owned()))),
            Callee::Method(value) => {
                check_bindable(&value)?;
                scope.add_variable_from_value("target", value);
                Some(Box::new(ident("target".to_owned())))
            }
        };
        let mut idents = Vec::with_capacity(args.len());
        for (i, arg) in args.into_iter().enumerate() {
            check_bindable(&arg)?;
            let name = format!("a{i}");
            scope.add_variable_from_value(name.clone(), arg);
            idents.push(ident(name));
        }
        let call = CallExpr { func_name: name.to_owned(), target, args: idents };
        let expr = IdedExpr { id: 0, expr: Expr::Call(call) };
        match catch_unwind(AssertUnwindSafe(|| scope.resolve(&expr))) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(failure(name, error)),
            Err(_) => Err(Failure::Other(format!("function {name} failed"))),
        }
    })
}

/// Function values cannot be bound to a name.
fn check_bindable(value: &Value) -> Result<(), Failure> {
    match value {
        Value::Function(..) => Err(Failure::NoSuchOverload),
        _ => Ok(()),
    }
}

fn failure(name: &str, error: ExecutionError) -> Failure {
    match error {
        ExecutionError::NoSuchKey(key) => Failure::NoSuchKey(key.to_string()),
        ExecutionError::FunctionError { .. } if name == "quantity" => Failure::Other(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
                .to_owned(),
        ),
        ExecutionError::FunctionError { message, .. } => Failure::Other(message),
        ExecutionError::DivisionByZero(_) => Failure::Other("division by zero".to_owned()),
        ExecutionError::RemainderByZero(_) => Failure::Other("modulus by zero".to_owned()),
        ExecutionError::Overflow(..) => Failure::Other("integer overflow".to_owned()),
        ExecutionError::UndeclaredReference(_) => Failure::Other(format!("no such function: {name}")),
        _ => Failure::NoSuchOverload,
    }
}
