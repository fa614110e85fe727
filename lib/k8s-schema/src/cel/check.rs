//! Types by the schema: what an expression may ask for, and what it comes to.
//!
//! In: an expression and the schema of `self`. Out: the type of the result, and issues: unknown variables, functions and
//! fields, and operators on types that do not go together. Where a type cannot be known it is [`Ty::Dyn`], which fits
//! everywhere, so a rule is refused only for what is surely wrong.

use std::{rc::Rc, sync::Arc};

use kube_cel::cel::Value as Cel;

use super::{
    eval::is_type_name,
    library::{self, Callee},
    parse::{Access, Expr, Issue, Kind, Loop, Make, Op},
    value::Typed,
};
use crate::{Additional, Schema, Type, format, pattern};

/// The type of an expression.
#[derive(Debug, Clone)]
pub(crate) enum Ty<'a> {
    Dyn,
    Null,
    Bool,
    Int,
    UInt,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    Type,
    List(Rc<Ty<'a>>),
    /// Keys and values.
    Map(Rc<Ty<'a>>, Rc<Ty<'a>>),
    Object(Typed<'a>),
    Optional(Rc<Ty<'a>>),
    /// A type of a function library.
    Opaque(&'static str),
}

/// The type of the values that a schema describes; `None` if expressions cannot see them.
pub(crate) fn declared<'a>(typed: Typed<'a>) -> Option<Ty<'a>> {
    let schema: &'a Schema = typed.schema;
    if schema.int_or_string {
        return Some(Ty::Dyn);
    }
    match schema.ty {
        Type::Any => None,
        Type::Array => Some(Ty::List(Rc::new(declared(Typed::new(schema.items.as_deref()?, false))?))),
        Type::Object => match &schema.additional {
            Some(Additional::Schema(child)) if !typed.is_struct() => {
                Some(Ty::Map(Rc::new(Ty::String), Rc::new(declared(Typed::new(child, false))?)))
            }
            _ => Some(Ty::Object(typed)),
        },
        Type::String => Some(match schema.format.as_deref() {
            Some("byte") => Ty::Bytes,
            Some("duration") => Ty::Duration,
            Some("date" | "date-time") => Ty::Timestamp,
            _ => Ty::String,
        }),
        Type::Boolean => Some(Ty::Bool),
        Type::Number => Some(Ty::Double),
        Type::Integer => Some(Ty::Int),
    }
}

/// The type of the expression, and what is wrong with it.
pub(crate) fn check<'a>(expr: &Expr, variables: &[(&str, Ty<'a>)]) -> (Ty<'a>, Vec<Issue>) {
    let mut checker = Checker { scope: Vec::new(), issues: Vec::new(), mixed: Vec::new() };
    checker.scope.extend(variables.iter().map(|(name, ty)| ((*name).to_owned(), ty.clone())));
    let ty = checker.expr(expr);
    // Mixed literals are looked for only in expressions that are otherwise good.
    let mut issues = if checker.issues.is_empty() { checker.mixed } else { checker.issues };
    issues.sort_by_key(|issue| issue.at);
    (ty, issues)
}

struct Checker<'a> {
    scope: Vec<(String, Ty<'a>)>,
    issues: Vec<Issue>,
    /// Literal lists and maps whose entries are of different types.
    mixed: Vec<Issue>,
}

impl<'a> Checker<'a> {
    fn issue(&mut self, at: usize, text: String) -> Ty<'a> {
        self.issues.push(Issue { at, text });
        Ty::Dyn
    }

    fn variable(&self, name: &str) -> Option<Ty<'a>> {
        self.scope.iter().rev().find(|(own, _)| own == name).map(|(_, ty)| ty.clone())
    }

    fn no_overload(&mut self, at: usize, function: &str, args: &[&Ty<'a>]) -> Ty<'a> {
        let names: Vec<String> = args.iter().map(|ty| ty.name()).collect();
        self.issue(
            at,
            format!("found no matching overload for '{function}' applied to '({})'", names.join(", ")),
        )
    }

    fn expr(&mut self, expr: &Expr) -> Ty<'a> {
        let at = expr.at;
        match &expr.kind {
            Kind::Null => Ty::Null,
            Kind::Bool(_) => Ty::Bool,
            Kind::Int(_) => Ty::Int,
            Kind::UInt(_) => Ty::UInt,
            Kind::Double(_) => Ty::Double,
            Kind::String(_) => Ty::String,
            Kind::Bytes(_) => Ty::Bytes,
            Kind::Ident(name) => match self.variable(name) {
                Some(ty) => ty,
                None if is_type_name(name) => Ty::Type,
                None => self.issue(at, format!("undeclared reference to '{name}' (in container '')")),
            },
            Kind::Select { operand, field, access } => {
                let operand = self.expr(operand);
                let found = self.field(at, &operand, field);
                match access {
                    Access::Test => Ty::Bool,
                    Access::Optional => found.optional(),
                    Access::Plain => found,
                }
            }
            Kind::Index { operand, index, optional } => {
                let operand = self.expr(operand);
                let index = self.expr(index);
                let found = self.index(at, &operand, &index);
                if *optional { found.optional() } else { found }
            }
            Kind::Call { target, name, args } => self.call(at, target.as_deref(), name, args),
            Kind::Not(x) => match self.expr(x) {
                Ty::Bool | Ty::Dyn => Ty::Bool,
                other => self.no_overload(at, "!_", &[&other]),
            },
            Kind::Negate(x) => match self.expr(x) {
                ty @ (Ty::Int | Ty::Double | Ty::Dyn) => ty,
                other => self.no_overload(at, "-_", &[&other]),
            },
            Kind::Binary { op, left, right } => {
                let left = self.expr(left);
                let right = self.expr(right);
                match binary(*op, &left, &right) {
                    Some(ty) => ty,
                    None => self.no_overload(at, op.function(), &[&left, &right]),
                }
            }
            Kind::And(terms) | Kind::Or(terms) => {
                for term in terms {
                    let ty = self.expr(term);
                    self.must_be_bool(term.at, &ty);
                }
                Ty::Bool
            }
            Kind::Conditional(parts) => {
                let [condition, yes, no] = parts.as_ref();
                let condition = self.expr(condition);
                let (yes, no) = (self.expr(yes), self.expr(no));
                if !matches!(condition, Ty::Bool | Ty::Dyn) || !yes.comparable(&no) {
                    return self.no_overload(at, "_?_:_", &[&condition, &yes, &no]);
                }
                yes.join(no)
            }
            Kind::List(items) => {
                let mut element = None;
                for (optional, item) in items {
                    self.literal_entry(item, *optional, &mut element);
                }
                Ty::List(Rc::new(element.map_or(Ty::Dyn, |(_, ty)| ty)))
            }
            Kind::Map(entries) => {
                let (mut keys, mut values) = (None, None);
                for (optional, key, value) in entries {
                    self.literal_entry(key, false, &mut keys);
                    self.literal_entry(value, *optional, &mut values);
                }
                let whole = |types: Option<(Ty<'a>, Ty<'a>)>| Rc::new(types.map_or(Ty::Dyn, |(_, ty)| ty));
                Ty::Map(whole(keys), whole(values))
            }
            Kind::Loop(x) => self.loop_over(at, x),
            Kind::OptMap { target, name, body, flat } => {
                let inner = self.expr(target).inner();
                let made = self.with(name, inner, |c| c.expr(body));
                if *flat { made } else { Ty::Optional(Rc::new(made)) }
            }
        }
    }

    fn with<T>(&mut self, name: &str, ty: Ty<'a>, work: impl FnOnce(&mut Self) -> T) -> T {
        self.scope.push((name.to_owned(), ty));
        let made = work(self);
        self.scope.pop();
        made
    }

    fn must_be_bool(&mut self, at: usize, ty: &Ty<'a>) {
        if !matches!(ty, Ty::Bool | Ty::Dyn) {
            self.issue(at, format!("expected type 'bool' but found '{}'", ty.name()));
        }
    }

    fn field(&mut self, at: usize, operand: &Ty<'a>, field: &str) -> Ty<'a> {
        match operand {
            Ty::Dyn => Ty::Dyn,
            Ty::Map(_, value) => value.as_ref().clone(),
            Ty::Optional(inner) => self.field(at, inner, field).optional(),
            Ty::Object(typed) => {
                let found = typed.field(field).and_then(|(_, child)| declared(child));
                match found {
                    Some(ty) => ty,
                    None => self.issue(at, format!("undefined field '{field}'")),
                }
            }
            other => self.issue(at, format!("type '{}' does not support field selection", other.name())),
        }
    }

    fn index(&mut self, at: usize, operand: &Ty<'a>, index: &Ty<'a>) -> Ty<'a> {
        match (operand, index) {
            (Ty::Dyn, _) => Ty::Dyn,
            (Ty::List(item), Ty::Int | Ty::Dyn) => item.as_ref().clone(),
            (Ty::Map(key, value), index) if key.comparable(index) => value.as_ref().clone(),
            (Ty::Optional(inner), _) => self.index(at, inner, index).optional(),
            _ => self.no_overload(at, "_[_]", &[operand, index]),
        }
    }

    /// One more entry of a literal list or map; `all` is the type of the first entry and that of all together.
    fn literal_entry(&mut self, expr: &Expr, optional: bool, all: &mut Option<(Ty<'a>, Ty<'a>)>) {
        let ty = self.expr(expr);
        let ty = if optional { ty.inner() } else { ty };
        *all = Some(match all.take() {
            None => (ty.clone(), ty),
            Some((first, joined)) => {
                let (wanted, found) = (first.name(), ty.name());
                // A type that we could not tell is not held against the rule.
                if wanted != found && !wanted.contains("dyn") && !found.contains("dyn") {
                    let text = format!("expected type '{wanted}' but found '{found}'");
                    self.mixed.push(Issue { at: expr.at, text });
                }
                (first, joined.join(ty))
            }
        });
    }

    fn loop_over(&mut self, at: usize, x: &Loop) -> Ty<'a> {
        let range = self.expr(&x.range);
        let (first, second) = match (&range, x.name2.is_some()) {
            (Ty::List(item), false) => (item.as_ref().clone(), Ty::Dyn),
            (Ty::List(item), true) => (Ty::Int, item.as_ref().clone()),
            (Ty::Map(key, value), _) => (key.as_ref().clone(), value.as_ref().clone()),
            (Ty::Dyn, _) => (Ty::Dyn, Ty::Dyn),
            (other, _) => {
                let text = format!(
                    "expression of type '{}' cannot be range of a comprehension (must be list, map, or dynamic)",
                    other.name()
                );
                self.issue(x.range.at, text);
                (Ty::Dyn, Ty::Dyn)
            }
        };
        let entry = first.clone();
        let second_name = x.name2.clone().unwrap_or_default();
        let body = self.with(&x.name, first, |c| {
            c.with(&second_name, second, |c| {
                if let Some(filter) = &x.filter {
                    c.expr(filter);
                }
                c.expr(&x.body)
            })
        });
        match x.make {
            Make::All | Make::Exists => self.must_be_bool(x.body.at, &body),
            Make::ExistsOne if !matches!(body, Ty::Bool | Ty::Dyn) => {
                self.no_overload(at, "_?_:_", &[&body, &Ty::Int, &Ty::Int]);
            }
            Make::Filter if !matches!(body, Ty::Bool | Ty::Dyn) => {
                let list = Ty::List(Rc::new(entry.clone()));
                self.no_overload(at, "_?_:_", &[&body, &list, &list]);
            }
            _ => {}
        }
        match x.make {
            Make::All | Make::Exists | Make::ExistsOne => Ty::Bool,
            Make::Map => Ty::List(Rc::new(body)),
            Make::Filter | Make::SortBy => Ty::List(Rc::new(entry)),
            Make::TransformMap => Ty::Map(Rc::new(entry), Rc::new(body)),
            Make::TransformMapEntry => match body {
                Ty::Map(..) => body,
                _ => Ty::Dyn,
            },
        }
    }

    fn literal_argument(&mut self, name: &str, is_method: bool, args: &[Expr]) {
        let place = match (name, is_method) {
            ("duration" | "timestamp", false) | ("matches", true) => 0,
            ("matches", false) => 1,
            _ => return,
        };
        if let Some(Expr { at, kind: Kind::String(text), .. }) = args.get(place)
            && !literal_ok(name, text)
        {
            self.issue(*at, format!("invalid {name} argument"));
        }
    }

    fn call(&mut self, at: usize, target: Option<&Expr>, name: &str, args: &[Expr]) -> Ty<'a> {
        let space = match target.map(|t| &t.kind) {
            Some(Kind::Ident(space)) if self.variable(space).is_none() => Some(space.as_str()),
            _ => None,
        };
        let this = match target {
            Some(target) if space.is_none() => Some(self.expr(target)),
            _ => None,
        };
        self.literal_argument(name, target.is_some(), args);
        let n_mixed = self.mixed.len();
        let args: Vec<Ty<'a>> = args.iter().map(|arg| self.expr(arg)).collect();
        if name == "format" {
            self.mixed.truncate(n_mixed);
        }
        let found = match (space, &this) {
            (Some(space), _) => namespaced(space, name, &args),
            (None, None) => global(name, &args),
            (None, Some(this)) => method(name, this, &args),
        };
        match found {
            Found::Returns(ty) => ty,
            Found::Unknown => {
                if let (Some(space), Some(target)) = (space, target) {
                    self.issue(target.at, format!("undeclared reference to '{space}' (in container '')"));
                }
                self.issue(at, format!("undeclared reference to '{name}' (in container '')"))
            }
            Found::Mismatch => {
                let names: Vec<String> = args.iter().map(Ty::name).collect();
                let applied = match &this {
                    Some(this) => format!("{}.({})", this.name(), names.join(", ")),
                    None => format!("({})", names.join(", ")),
                };
                self.issue(at, format!("found no matching overload for '{name}' applied to '{applied}'"))
            }
        }
    }
}

/// Whether a text is a duration, a timestamp or a pattern is known before the rule runs, if it is a literal.
fn literal_ok(name: &str, text: &str) -> bool {
    match name {
        "duration" => format::go_duration(text).is_some(),
        "timestamp" => {
            library::call(Callee::Global, name, vec![Cel::String(Arc::new(text.to_owned()))]).is_ok()
        }
        "matches" => pattern::compile(text).is_ok(),
        _ => true,
    }
}

enum Found<'a> {
    Returns(Ty<'a>),
    Mismatch,
    Unknown,
}

fn global<'a>(name: &str, args: &[Ty<'a>]) -> Found<'a> {
    let (n_args, ty) = match name {
        "size" => {
            let sized =
                matches!(args.first(), Some(Ty::Dyn | Ty::String | Ty::Bytes | Ty::List(_) | Ty::Map(..)));
            return if sized && args.len() == 1 { Found::Returns(Ty::Int) } else { Found::Mismatch };
        }
        "int" => (1, Ty::Int),
        "uint" => (1, Ty::UInt),
        "double" => (1, Ty::Double),
        "string" => (1, Ty::String),
        "bool" => (1, Ty::Bool),
        "bytes" => (1, Ty::Bytes),
        "dyn" => (1, Ty::Dyn),
        "type" => (1, Ty::Type),
        "duration" => (1, Ty::Duration),
        "timestamp" => (1, Ty::Timestamp),
        "matches" => (2, Ty::Bool),
        "isURL" | "isIP" | "isCIDR" | "isQuantity" => (1, Ty::Bool),
        "isSemver" | "semver" if args.len() == 2 => {
            (2, if name == "semver" { Ty::Opaque("Semver") } else { Ty::Bool })
        }
        "isSemver" => (1, Ty::Bool),
        "url" => (1, Ty::Opaque("URL")),
        "ip" => (1, Ty::Opaque("IP")),
        "cidr" => (1, Ty::Opaque("CIDR")),
        "quantity" => (1, Ty::Opaque("Quantity")),
        "sign" => match args {
            [Ty::Opaque("Quantity") | Ty::Dyn] => (1, Ty::Int),
            _ => return Found::Mismatch,
        },
        "semver" => (1, Ty::Opaque("Semver")),
        _ => return Found::Unknown,
    };
    if args.len() == n_args { Found::Returns(ty) } else { Found::Mismatch }
}

fn namespaced<'a>(space: &str, name: &str, args: &[Ty<'a>]) -> Found<'a> {
    Found::Returns(match (space, name) {
        ("optional", "none") => Ty::Optional(Rc::new(Ty::Dyn)),
        ("optional", "of" | "ofNonZeroValue") => match args {
            [ty] => Ty::Optional(Rc::new(ty.clone())),
            _ => return Found::Mismatch,
        },
        ("sets", "contains" | "equivalent" | "intersects") | ("ip", "isCanonical") => Ty::Bool,
        ("strings", "quote") => Ty::String,
        ("lists", "range") => Ty::List(Rc::new(Ty::Int)),
        ("format", "named") => Ty::Optional(Rc::new(Ty::Opaque("NamedFormat"))),
        (
            "format",
            "byte"
            | "date"
            | "datetime"
            | "dns1035Label"
            | "dns1035LabelPrefix"
            | "dns1123Label"
            | "dns1123LabelPrefix"
            | "dns1123Subdomain"
            | "dns1123SubdomainPrefix"
            | "labelValue"
            | "qualifiedName"
            | "uri"
            | "uuid",
        ) => Ty::Opaque("NamedFormat"),
        _ => return Found::Unknown,
    })
}

fn method<'a>(name: &str, this: &Ty<'a>, args: &[Ty<'a>]) -> Found<'a> {
    use Found::{Mismatch, Returns, Unknown};
    let is = |wanted: fn(&Ty<'a>) -> bool, ty: Ty<'a>| {
        if matches!(this, Ty::Dyn) || wanted(this) { Returns(ty) } else { Mismatch }
    };
    let text: fn(&Ty<'a>) -> bool = |ty| matches!(ty, Ty::String);
    let list: fn(&Ty<'a>) -> bool = |ty| matches!(ty, Ty::List(_));
    let time: fn(&Ty<'a>) -> bool = |ty| matches!(ty, Ty::Timestamp | Ty::Duration);
    let optional: fn(&Ty<'a>) -> bool = |ty| matches!(ty, Ty::Optional(_));
    let opaque: fn(&Ty<'a>) -> bool = |ty| matches!(ty, Ty::Opaque(_));
    match name {
        "startsWith" | "endsWith" | "contains" | "matches" => match args {
            [Ty::String | Ty::Dyn] => is(text, Ty::Bool),
            _ => Mismatch,
        },
        "charAt" | "lowerAscii" | "upperAscii" | "replace" | "substring" | "trim" | "find" | "format" => {
            is(text, Ty::String)
        }
        "split" | "findAll" => is(text, Ty::List(Rc::new(Ty::String))),
        "join" => is(|ty| matches!(ty, Ty::List(item) if matches!(**item, Ty::String | Ty::Dyn)), Ty::String),
        "size" => is(|ty| matches!(ty, Ty::String | Ty::Bytes | Ty::List(_) | Ty::Map(..)), Ty::Int),
        "indexOf" | "lastIndexOf" => is(|ty| matches!(ty, Ty::String | Ty::List(_)), Ty::Int),
        "reverse" => is(list, this.clone()),
        "isSorted" => is(list, Ty::Bool),
        "sum" | "min" | "max" => is(list, this.element()),
        "distinct" | "slice" | "sort" => is(list, this.clone()),
        "flatten" => is(list, Ty::List(Rc::new(Ty::Dyn))),
        "first" | "last" => is(list, Ty::Optional(Rc::new(this.element()))),
        "hasValue" => is(optional, Ty::Bool),
        "value" => is(optional, this.clone().inner()),
        "or" => is(optional, this.clone()),
        "orValue" => is(optional, this.clone().inner().join(args.first().cloned().unwrap_or(Ty::Dyn))),
        "getFullYear" | "getMonth" | "getDate" | "getDayOfMonth" | "getDayOfWeek" | "getDayOfYear" => {
            is(|ty| matches!(ty, Ty::Timestamp), Ty::Int)
        }
        "getHours" | "getMinutes" | "getSeconds" | "getMilliseconds" => is(time, Ty::Int),
        "getScheme" | "getHost" | "getHostname" | "getPort" | "getEscapedPath" => is(opaque, Ty::String),
        "getQuery" => is(opaque, Ty::Map(Rc::new(Ty::String), Rc::new(Ty::List(Rc::new(Ty::String))))),
        "isGreaterThan"
        | "isLessThan"
        | "isInteger"
        | "containsIP"
        | "containsCIDR"
        | "isUnspecified"
        | "isLoopback"
        | "isLinkLocalMulticast"
        | "isLinkLocalUnicast"
        | "isGlobalUnicast" => is(opaque, Ty::Bool),
        "sign" => Mismatch,
        "asInteger" | "compareTo" | "family" | "prefixLength" | "major" | "minor" | "patch" => {
            is(opaque, Ty::Int)
        }
        "asApproximateFloat" => is(opaque, Ty::Double),
        "add" | "sub" | "masked" => is(opaque, this.clone()),
        "ip" => is(opaque, Ty::Opaque("IP")),
        "string" => is(opaque, Ty::String),
        "validate" => is(opaque, Ty::Optional(Rc::new(Ty::List(Rc::new(Ty::String))))),
        _ => Unknown,
    }
}

/// The type of an operator's result; `None` if the operands do not go together.
fn binary<'a>(op: Op, left: &Ty<'a>, right: &Ty<'a>) -> Option<Ty<'a>> {
    let either_dyn = matches!(left, Ty::Dyn) || matches!(right, Ty::Dyn);
    match op {
        Op::Equal | Op::NotEqual => left.comparable(right).then_some(Ty::Bool),
        Op::Less | Op::LessEqual | Op::Greater | Op::GreaterEqual => {
            let ordered = matches!(
                (left, right),
                (Ty::Int | Ty::UInt | Ty::Double, Ty::Int | Ty::UInt | Ty::Double)
                    | (Ty::String, Ty::String)
                    | (Ty::Bytes, Ty::Bytes)
                    | (Ty::Bool, Ty::Bool)
                    | (Ty::Duration, Ty::Duration)
                    | (Ty::Timestamp, Ty::Timestamp)
            );
            (either_dyn || ordered).then_some(Ty::Bool)
        }
        Op::In => match right {
            Ty::Dyn => Some(Ty::Bool),
            Ty::Map(key, _) => left.comparable(key).then_some(Ty::Bool),
            Ty::List(item) => left.comparable(item).then_some(Ty::Bool),
            _ => None,
        },
        _ if either_dyn => Some(Ty::Dyn),
        _ => match (op, left, right) {
            (_, Ty::Int, Ty::Int) => Some(Ty::Int),
            (_, Ty::UInt, Ty::UInt) => Some(Ty::UInt),
            (Op::Add | Op::Subtract | Op::Multiply | Op::Divide, Ty::Double, Ty::Double) => Some(Ty::Double),
            (Op::Add, Ty::String, Ty::String) => Some(Ty::String),
            (Op::Add, Ty::Bytes, Ty::Bytes) => Some(Ty::Bytes),
            (Op::Add, Ty::List(a), Ty::List(b)) if a.comparable(b) => {
                Some(Ty::List(Rc::new(a.as_ref().clone().join(b.as_ref().clone()))))
            }
            (Op::Add | Op::Subtract, Ty::Duration, Ty::Duration) => Some(Ty::Duration),
            (Op::Add | Op::Subtract, Ty::Timestamp, Ty::Duration)
            | (Op::Add, Ty::Duration, Ty::Timestamp) => Some(Ty::Timestamp),
            (Op::Subtract, Ty::Timestamp, Ty::Timestamp) => Some(Ty::Duration),
            _ => None,
        },
    }
}

impl<'a> Ty<'a> {
    /// Whether `==` may be asked of the two.
    fn comparable(&self, other: &Ty<'a>) -> bool {
        match (self, other) {
            (Ty::Dyn, _) | (_, Ty::Dyn) => true,
            (Ty::List(a), Ty::List(b)) | (Ty::Optional(a), Ty::Optional(b)) => a.comparable(b),
            (Ty::Map(ka, a), Ty::Map(kb, b)) => ka.comparable(kb) && a.comparable(b),
            (Ty::Null, Ty::Object(_) | Ty::Duration | Ty::Timestamp | Ty::Opaque(_) | Ty::Optional(_))
            | (Ty::Object(_) | Ty::Duration | Ty::Timestamp | Ty::Opaque(_) | Ty::Optional(_), Ty::Null) => {
                true
            }
            (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
        }
    }

    /// The type of a choice between the two.
    fn join(self, other: Ty<'a>) -> Ty<'a> {
        match (&self, &other) {
            (Ty::List(a), Ty::List(b)) => Ty::List(Rc::new(a.as_ref().clone().join(b.as_ref().clone()))),
            (Ty::Object(a), Ty::Object(b)) if !std::ptr::eq(a.schema, b.schema) => Ty::Dyn,
            (Ty::Map(ka, a), Ty::Map(kb, b)) => Ty::Map(
                Rc::new(ka.as_ref().clone().join(kb.as_ref().clone())),
                Rc::new(a.as_ref().clone().join(b.as_ref().clone())),
            ),
            (Ty::Optional(a), Ty::Optional(b)) => {
                Ty::Optional(Rc::new(a.as_ref().clone().join(b.as_ref().clone())))
            }
            (a, b) if std::mem::discriminant(a) == std::mem::discriminant(b) => self,
            _ => Ty::Dyn,
        }
    }

    fn optional(self) -> Ty<'a> {
        match self {
            Ty::Optional(_) => self,
            other => Ty::Optional(Rc::new(other)),
        }
    }

    fn inner(self) -> Ty<'a> {
        match self {
            Ty::Optional(inner) => inner.as_ref().clone(),
            _ => Ty::Dyn,
        }
    }

    fn element(&self) -> Ty<'a> {
        match self {
            Ty::List(item) => item.as_ref().clone(),
            _ => Ty::Dyn,
        }
    }

    /// As error messages name it.
    pub(crate) fn name(&self) -> String {
        match self {
            Ty::Dyn => "dyn".to_owned(),
            Ty::Null => "null".to_owned(),
            Ty::Bool => "bool".to_owned(),
            Ty::Int => "int".to_owned(),
            Ty::UInt => "uint".to_owned(),
            Ty::Double => "double".to_owned(),
            Ty::String => "string".to_owned(),
            Ty::Bytes => "bytes".to_owned(),
            Ty::Duration => "duration".to_owned(),
            Ty::Timestamp => "timestamp".to_owned(),
            Ty::Type => "type".to_owned(),
            Ty::List(item) => format!("list({})", item.name()),
            Ty::Map(key, value) => format!("map({}, {})", key.name(), value.name()),
            Ty::Object(_) => "object".to_owned(),
            Ty::Optional(inner) => format!("optional_type({})", inner.name()),
            Ty::Opaque(name) => format!("kubernetes.{name}"),
        }
    }
}
