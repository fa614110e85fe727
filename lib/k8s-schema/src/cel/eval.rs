//! Tree and values to a result.
//!
//! In: an expression, the values of its variables, a budget. Out: a value or a failure in the words of cel-go. Every step costs at
//! least one unit of the budget, and work on strings and lists costs by their size, so that neither time nor memory can run
//! away.

use std::{cmp::Ordering, collections::BTreeMap, sync::Arc};

use kube_cel::cel::{Value as Cel, objects::Key};

use super::{
    library::{self, Callee},
    parse::{Access, Expr, Kind, Loop, Make, Op},
    text, time,
    value::Val,
};
use crate::{ListType, gofmt, pattern};

/// Why an expression has no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    NoSuchKey(String),
    NoSuchOverload,
    /// The budget is spent. No operator recovers from this.
    Budget,
    Other(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoSuchKey(key) => write!(f, "no such key: {key}"),
            Self::NoSuchOverload => f.write_str("no such overload"),
            Self::Budget => f.write_str("operation cancelled: actual cost limit exceeded"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

type Result<T> = std::result::Result<T, Failure>;

/// The variables in scope, innermost first.
pub(crate) struct Scope<'s, 'a> {
    pub name: &'s str,
    pub value: Val<'a>,
    pub parent: Option<&'s Scope<'s, 'a>>,
}

impl<'a> Scope<'_, 'a> {
    fn get(&self, name: &str) -> Option<Val<'a>> {
        let mut scope = self;
        loop {
            if scope.name == name {
                return Some(scope.value.clone());
            }
            scope = scope.parent?;
        }
    }
}

/// One evaluation.
pub(crate) struct Eval {
    /// What may still be spent.
    pub budget: u64,
    /// Patterns that were paid for.
    patterns: BTreeMap<Arc<String>, regex::Regex>,
}

impl Eval {
    pub(crate) fn new(budget: u64) -> Self {
        Self { budget, patterns: BTreeMap::new() }
    }

    /// Compiling a pattern costs far more than matching it; each one is paid for once.
    fn pattern(&mut self, source: &Arc<String>) -> Result<regex::Regex> {
        if let Some(regex) = self.patterns.get(source) {
            return Ok(regex.clone());
        }
        self.spend(1_000 + 10 * source.len())?;
        let regex = pattern::cached(source).map_err(Failure::Other)?;
        self.patterns.insert(source.clone(), regex.clone());
        Ok(regex)
    }

    fn spend(&mut self, units: usize) -> Result<()> {
        let units = u64::try_from(units).unwrap_or(u64::MAX);
        match self.budget.checked_sub(units) {
            Some(rest) => {
                self.budget = rest;
                Ok(())
            }
            None => {
                self.budget = 0;
                Err(Failure::Budget)
            }
        }
    }

    /// Evaluates an expression.
    pub(crate) fn eval<'a>(&mut self, expr: &Expr, scope: &Scope<'_, 'a>) -> Result<Val<'a>> {
        self.spend(1)?;
        match &expr.kind {
            Kind::Null => Ok(Val::Cel(Cel::Null)),
            Kind::Bool(b) => Ok(Val::bool(*b)),
            Kind::Int(i) => Ok(Val::int(*i)),
            Kind::UInt(u) => Ok(Val::Cel(Cel::UInt(*u))),
            Kind::Double(d) => Ok(Val::Cel(Cel::Float(*d))),
            Kind::String(s) => {
                self.spend(s.len() / 10)?;
                Ok(Val::string(s.as_str()))
            }
            Kind::Bytes(b) => {
                self.spend(b.len() / 10)?;
                Ok(Val::Cel(Cel::Bytes(Arc::new(b.clone()))))
            }
            Kind::Ident(name) => match scope.get(name) {
                Some(value) => Ok(value),
                None if is_type_name(name) => Ok(Val::Type(name.clone())),
                None => Err(Failure::Other(format!("no such attribute(s): {name}"))),
            },
            Kind::Select { operand, field, access } => {
                let found = self.select(operand, field, *access, scope)?;
                self.spend(found.weight())?;
                Ok(found)
            }
            Kind::Index { operand, index, optional } => {
                let operand = self.eval(operand, scope)?;
                let index = self.eval(index, scope)?;
                let found = index_value(operand, &index, *optional)?;
                self.spend(found.weight())?;
                Ok(found)
            }
            Kind::Call { target, name, args } => self.call(target.as_deref(), name, args, scope),
            Kind::Not(x) => Ok(Val::bool(!self.boolean(x, scope)?)),
            Kind::Negate(x) => match self.eval(x, scope)? {
                Val::Cel(Cel::Int(i)) => i.checked_neg().map(Val::int).ok_or_else(overflow),
                Val::Cel(Cel::Float(d)) => Ok(Val::Cel(Cel::Float(-d))),
                _ => Err(Failure::NoSuchOverload),
            },
            Kind::Binary { op, left, right } => {
                let left = self.eval(left, scope)?;
                let right = self.eval(right, scope)?;
                self.binary(*op, left, right)
            }
            Kind::And(terms) => self.logic(terms.iter(), false, scope, |e, term, s| e.boolean(term, s)),
            Kind::Or(terms) => self.logic(terms.iter(), true, scope, |e, term, s| e.boolean(term, s)),
            Kind::Conditional(parts) => {
                let [condition, yes, no] = parts.as_ref();
                let branch = if self.boolean(condition, scope)? { yes } else { no };
                self.eval(branch, scope)
            }
            Kind::List(items) => {
                let mut list = Vec::new();
                for (optional, item) in items {
                    let value = self.eval(item, scope)?;
                    match (optional, value) {
                        (true, Val::Optional(inner)) => list.extend(inner.map(|v| v.as_ref().clone())),
                        (true, _) => return Err(Failure::NoSuchOverload),
                        (false, value) => list.push(value),
                    }
                }
                Ok(Val::List(Arc::new(list)))
            }
            Kind::Map(entries) => {
                let mut map = BTreeMap::new();
                for (optional, key, value) in entries {
                    let key = key_of(&self.eval(key, scope)?).ok_or(Failure::NoSuchOverload)?;
                    let value = match (optional, self.eval(value, scope)?) {
                        (true, Val::Optional(None)) => continue,
                        (true, Val::Optional(Some(inner))) => inner.as_ref().clone(),
                        (true, _) => return Err(Failure::NoSuchOverload),
                        (false, value) => value,
                    };
                    map.insert(key, value);
                }
                Ok(Val::Map(Arc::new(map)))
            }
            Kind::Loop(x) => self.loop_over(x, scope),
            Kind::OptMap { target, name, body, flat } => match self.eval(target, scope)? {
                Val::Optional(None) => Ok(Val::Optional(None)),
                Val::Optional(Some(inner)) => {
                    let value = inner.as_ref().clone();
                    let made = self.eval(body, &Scope { name, value, parent: Some(scope) })?;
                    match (flat, made) {
                        (true, made @ Val::Optional(_)) => Ok(made),
                        (true, _) => Err(Failure::NoSuchOverload),
                        (false, made) => Ok(Val::Optional(Some(Arc::new(made)))),
                    }
                }
                _ => Err(Failure::NoSuchOverload),
            },
        }
    }

    /// Evaluates to a boolean.
    pub(crate) fn boolean(&mut self, expr: &Expr, scope: &Scope<'_, '_>) -> Result<bool> {
        match self.eval(expr, scope)? {
            Val::Cel(Cel::Bool(b)) => Ok(b),
            _ => Err(Failure::NoSuchOverload),
        }
    }

    /// `&&`, `||`, `all` and `exists`: one deciding term wins over failures of the others.
    fn logic<'a, T>(
        &mut self,
        terms: impl Iterator<Item = T>,
        deciding: bool,
        scope: &Scope<'_, 'a>,
        mut evaluate: impl FnMut(&mut Self, T, &Scope<'_, 'a>) -> Result<bool>,
    ) -> Result<Val<'a>> {
        let mut failure = None;
        for term in terms {
            match evaluate(self, term, scope) {
                Ok(b) if b == deciding => return Ok(Val::bool(deciding)),
                Ok(_) => {}
                Err(Failure::Budget) => return Err(Failure::Budget),
                Err(e) => failure = failure.or(Some(e)),
            }
        }
        failure.map_or(Ok(Val::bool(!deciding)), Err)
    }

    fn select<'a>(
        &mut self,
        operand: &Expr,
        field: &str,
        access: Access,
        scope: &Scope<'_, 'a>,
    ) -> Result<Val<'a>> {
        let (operand, optional) = match self.eval(operand, scope)? {
            Val::Optional(None) => {
                return Ok(if access == Access::Test { Val::bool(false) } else { Val::Optional(None) });
            }
            Val::Optional(Some(inner)) => (inner.as_ref().clone(), true),
            value => (value, false),
        };
        let found = operand.lookup(&Key::from(field)).ok_or(Failure::NoSuchOverload)?;
        match access {
            Access::Test => Ok(Val::bool(found.is_some())),
            _ if optional || access == Access::Optional => {
                Ok(Val::Optional(found.transpose()?.map(Arc::new)))
            }
            _ => found.unwrap_or_else(|| Err(Failure::NoSuchKey(field.to_owned()))),
        }
    }

    fn binary<'a>(&mut self, op: Op, left: Val<'a>, right: Val<'a>) -> Result<Val<'a>> {
        match op {
            Op::Equal => Ok(Val::bool(self.equal(&left, &right)?)),
            Op::NotEqual => Ok(Val::bool(!self.equal(&left, &right)?)),
            Op::In => self.contains(&left, &right).map(Val::bool),
            Op::Less | Op::LessEqual | Op::Greater | Op::GreaterEqual => {
                let order = self.compare(&left, &right)?;
                // Nothing compares with NaN.
                let holds = order.is_some_and(|order| match op {
                    Op::Less => order.is_lt(),
                    Op::LessEqual => order.is_le(),
                    Op::Greater => order.is_gt(),
                    _ => order.is_ge(),
                });
                Ok(Val::bool(holds))
            }
            Op::Add | Op::Subtract | Op::Multiply | Op::Divide | Op::Modulo => {
                self.arithmetic(op, left, right)
            }
        }
    }

    fn arithmetic<'a>(&mut self, op: Op, left: Val<'a>, right: Val<'a>) -> Result<Val<'a>> {
        match (&left, &right) {
            (Val::Cel(Cel::Int(a)), Val::Cel(Cel::Int(b))) => {
                let (a, b) = (*a, *b);
                let made = match op {
                    Op::Add => a.checked_add(b),
                    Op::Subtract => a.checked_sub(b),
                    Op::Multiply => a.checked_mul(b),
                    Op::Divide if b == 0 => return Err(Failure::Other("division by zero".to_owned())),
                    Op::Divide => a.checked_div(b),
                    _ if b == 0 => return Err(Failure::Other("modulus by zero".to_owned())),
                    _ => a.checked_rem(b),
                };
                made.map(Val::int).ok_or_else(overflow)
            }
            (Val::Cel(Cel::UInt(a)), Val::Cel(Cel::UInt(b))) => {
                let (a, b) = (*a, *b);
                let made = match op {
                    Op::Add => a.checked_add(b),
                    Op::Subtract => a.checked_sub(b),
                    Op::Multiply => a.checked_mul(b),
                    Op::Divide if b == 0 => return Err(Failure::Other("division by zero".to_owned())),
                    Op::Divide => a.checked_div(b),
                    _ if b == 0 => return Err(Failure::Other("modulus by zero".to_owned())),
                    _ => a.checked_rem(b),
                };
                made.map(|u| Val::Cel(Cel::UInt(u)))
                    .ok_or_else(|| Failure::Other("unsigned integer overflow".to_owned()))
            }
            (Val::Cel(Cel::Float(a)), Val::Cel(Cel::Float(b))) => {
                let made = match op {
                    Op::Add => a + b,
                    Op::Subtract => a - b,
                    Op::Multiply => a * b,
                    Op::Divide => a / b,
                    _ => return Err(Failure::NoSuchOverload),
                };
                Ok(Val::Cel(Cel::Float(made)))
            }
            (Val::Cel(Cel::String(a)), Val::Cel(Cel::String(b))) if op == Op::Add => {
                self.spend((a.len() + b.len()) / 10)?;
                Ok(Val::string(format!("{a}{b}")))
            }
            (Val::Cel(Cel::Bytes(a)), Val::Cel(Cel::Bytes(b))) if op == Op::Add => {
                self.spend((a.len() + b.len()) / 10)?;
                Ok(Val::Cel(Cel::Bytes(Arc::new([a.as_slice(), b.as_slice()].concat()))))
            }
            _ if op == Op::Add && left.is_list() && right.is_list() => self.concat(&left, &right),
            (Val::Cel(a), Val::Cel(b)) if is_time(a) && is_time(b) => {
                let made = library::call(Callee::Global, op.function(), vec![a.clone(), b.clone()]);
                made.map(Val::Cel).map_err(|failure| match (failure, a, b) {
                    (Failure::NoSuchOverload, ..) => Failure::NoSuchOverload,
                    (_, Cel::Duration(_), Cel::Duration(_)) => Failure::Other("duration overflow".to_owned()),
                    _ => Failure::Other("timestamp overflow".to_owned()),
                })
            }
            _ => Err(Failure::NoSuchOverload),
        }
    }

    /// Lists of type set and map stay sets and maps when something is added.
    fn concat<'a>(&mut self, left: &Val<'a>, right: &Val<'a>) -> Result<Val<'a>> {
        self.spend(left.len().unwrap_or(0) + right.len().unwrap_or(0))?;
        let mut items = left.items().ok_or(Failure::NoSuchOverload)??;
        let more = right.items().ok_or(Failure::NoSuchOverload)??;
        match left.list_type() {
            Some((ListType::Set, _)) => {
                for item in more {
                    let mut known = false;
                    for own in &items {
                        known = known || self.equal(own, &item)?;
                    }
                    if !known {
                        items.push(item);
                    }
                }
            }
            Some((ListType::Map, keys)) => {
                for item in more {
                    let mut place = None;
                    for (i, own) in items.iter().enumerate() {
                        if place.is_none() && self.same_keys(own, &item, keys)? {
                            place = Some(i);
                        }
                    }
                    match place.and_then(|i| items.get_mut(i)) {
                        Some(own) => *own = item,
                        None => items.push(item),
                    }
                }
            }
            _ => items.extend(more),
        }
        match left.list_type() {
            Some((list_type @ (ListType::Set | ListType::Map), keys)) => {
                Ok(Val::Keyed(Arc::new(items), list_type, keys))
            }
            _ => Ok(Val::List(Arc::new(items))),
        }
    }

    fn same_keys(&mut self, a: &Val<'_>, b: &Val<'_>, keys: &[String]) -> Result<bool> {
        for key in keys {
            let key = Key::from(super::names::escape(key).unwrap_or_default());
            let same = match (a.lookup(&key).flatten(), b.lookup(&key).flatten()) {
                (Some(a), Some(b)) => self.equal(&a?, &b?)?,
                (None, None) => true,
                _ => false,
            };
            if !same {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn contains<'a>(&mut self, item: &Val<'a>, container: &Val<'a>) -> Result<bool> {
        if let Some(items) = container.items() {
            let items = items?;
            self.spend(items.iter().map(|item| 1 + item.weight()).sum())?;
            for other in items {
                if self.equal(item, &other)? {
                    return Ok(true);
                }
            }
            return Ok(false);
        }
        let Some(key) = key_of(item) else {
            return if container.len().is_some() { Ok(false) } else { Err(Failure::NoSuchOverload) };
        };
        container.lookup(&key).map(|found| found.is_some()).ok_or(Failure::NoSuchOverload)
    }

    /// Equality of any two values; values of different types are not equal, except for numbers.
    fn equal(&mut self, a: &Val<'_>, b: &Val<'_>) -> Result<bool> {
        self.spend(1)?;
        if let (Val::Cel(a), Val::Cel(b)) = (a, b)
            && !matches!((a, b), (Cel::List(_), _) | (_, Cel::List(_)) | (Cel::Map(_), _) | (_, Cel::Map(_)))
        {
            if let (Cel::String(a), Cel::String(b)) = (a, b) {
                self.spend(a.len().min(b.len()) / 10)?;
            }
            return Ok(a == b);
        }
        match (a, b) {
            (Val::Type(a), Val::Type(b)) => return Ok(a == b),
            (Val::Optional(a), Val::Optional(b)) => {
                return match (a, b) {
                    (Some(a), Some(b)) => self.equal(a, b),
                    (None, None) => Ok(true),
                    _ => Ok(false),
                };
            }
            (Val::Json(a, ta), Val::Json(b, tb))
                if ta.schema.ty == crate::Type::Any || tb.schema.ty == crate::Type::Any =>
            {
                return Ok(a == b);
            }
            _ => {}
        }
        if a.len() != b.len() {
            return Ok(false);
        }
        self.spend(a.len().unwrap_or(0))?;
        match (a.items(), b.items()) {
            (Some(left), Some(right)) => {
                let (left, right) = (left?, right?);
                return match a.list_type().or_else(|| b.list_type()) {
                    Some((ListType::Set, _)) => self.same_set(&left, &right),
                    Some((ListType::Map, keys)) => self.same_map_list(&left, &right, keys),
                    _ => {
                        for (a, b) in left.iter().zip(&right) {
                            if !self.equal(a, b)? {
                                return Ok(false);
                            }
                        }
                        Ok(true)
                    }
                };
            }
            (None, None) => {}
            _ => return Ok(false),
        }
        if !a.same_unknown(b) {
            return Ok(false);
        }
        let (Some(left), Some(_)) = (a.entries(), b.entries()) else { return Ok(false) };
        for (key, value) in left {
            let Some(Some(other)) = b.lookup(&key) else { return Ok(false) };
            if !self.equal(&value?, &other?)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn same_set(&mut self, left: &[Val<'_>], right: &[Val<'_>]) -> Result<bool> {
        for a in left {
            let mut found = false;
            for b in right {
                found = found || self.equal(a, b)?;
            }
            if !found {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn same_map_list(&mut self, left: &[Val<'_>], right: &[Val<'_>], keys: &[String]) -> Result<bool> {
        for a in left {
            let mut found = false;
            for b in right {
                found = found || (self.same_keys(a, b, keys)? && self.equal(a, b)?);
            }
            if !found {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn compare(&mut self, a: &Val<'_>, b: &Val<'_>) -> Result<Option<Ordering>> {
        let (Val::Cel(a), Val::Cel(b)) = (a, b) else { return Err(Failure::NoSuchOverload) };
        match (a, b) {
            (Cel::Int(_) | Cel::UInt(_) | Cel::Float(_), Cel::Int(_) | Cel::UInt(_) | Cel::Float(_))
            | (Cel::Bool(_), Cel::Bool(_))
            | (Cel::Duration(_), Cel::Duration(_))
            | (Cel::Timestamp(_), Cel::Timestamp(_)) => Ok(a.partial_cmp(b)),
            (Cel::String(a), Cel::String(b)) => {
                self.spend(a.len().min(b.len()) / 10)?;
                Ok(Some(a.cmp(b)))
            }
            (Cel::Bytes(a), Cel::Bytes(b)) => Ok(Some(a.cmp(b))),
            _ => Err(Failure::NoSuchOverload),
        }
    }

    fn loop_over<'a>(&mut self, x: &Loop, scope: &Scope<'_, 'a>) -> Result<Val<'a>> {
        let range = self.eval(&x.range, scope)?;
        let entries: Vec<(Val<'a>, Option<Val<'a>>)> = if let Some(items) = range.items() {
            let items = items?;
            match x.name2 {
                None => items.into_iter().map(|item| (item, None)).collect(),
                Some(_) => {
                    items.into_iter().enumerate().map(|(i, item)| (Val::size_int(i), Some(item))).collect()
                }
            }
        } else {
            let entries = range.entries().ok_or(Failure::NoSuchOverload)?;
            let mut list = Vec::with_capacity(entries.len());
            for (key, value) in entries {
                let second = if x.name2.is_some() { Some(value?) } else { None };
                list.push((Val::Cel(Cel::from(key)), second));
            }
            list
        };
        self.spend(entries.iter().map(|(a, b)| 1 + a.weight() + b.as_ref().map_or(0, Val::weight)).sum())?;
        match x.make {
            Make::All | Make::Exists => {
                let deciding = x.make == Make::Exists;
                self.logic(entries.into_iter(), deciding, scope, |e, entry, s| {
                    match e.in_loop(x, &x.body, &entry, s)? {
                        Val::Cel(Cel::Bool(b)) => Ok(b),
                        _ => Err(Failure::NoSuchOverload),
                    }
                })
            }
            Make::ExistsOne => {
                let mut n = 0_usize;
                for entry in &entries {
                    n += usize::from(self.loop_bool(x, &x.body, entry, scope)?);
                }
                Ok(Val::bool(n == 1))
            }
            Make::Map | Make::Filter => {
                let mut list = Vec::new();
                for entry in &entries {
                    if x.make == Make::Filter {
                        if self.loop_bool(x, &x.body, entry, scope)? {
                            list.push(entry.0.clone());
                        }
                    } else if self.passes(x, entry, scope)? {
                        list.push(self.in_loop(x, &x.body, entry, scope)?);
                    }
                }
                Ok(Val::List(Arc::new(list)))
            }
            Make::SortBy => {
                let mut keyed = Vec::with_capacity(entries.len());
                for entry in entries {
                    let key = self.in_loop(x, &x.body, &entry, scope)?;
                    keyed.push((key, entry.0));
                }
                let mut failure = None;
                keyed.sort_by(|(a, _), (b, _)| {
                    self.compare(a, b).map(|order| order.unwrap_or(Ordering::Equal)).unwrap_or_else(|e| {
                        failure.get_or_insert(e);
                        Ordering::Equal
                    })
                });
                match failure {
                    Some(failure) => Err(failure),
                    None => Ok(Val::List(Arc::new(keyed.into_iter().map(|(_, item)| item).collect()))),
                }
            }
            Make::TransformMap | Make::TransformMapEntry => {
                let mut map = BTreeMap::new();
                for entry in &entries {
                    if !self.passes(x, entry, scope)? {
                        continue;
                    }
                    let made = self.in_loop(x, &x.body, entry, scope)?;
                    let pairs = if x.make == Make::TransformMap {
                        vec![(key_of(&entry.0).ok_or(Failure::NoSuchOverload)?, Ok(made))]
                    } else {
                        made.entries().ok_or(Failure::NoSuchOverload)?
                    };
                    for (key, value) in pairs {
                        if map.insert(key.clone(), value?).is_some() {
                            let text = format!("insert failed: key {} already exists", key_text(&key));
                            return Err(Failure::Other(text));
                        }
                    }
                }
                Ok(Val::Map(Arc::new(map)))
            }
        }
    }

    fn passes<'a>(
        &mut self,
        x: &Loop,
        entry: &(Val<'a>, Option<Val<'a>>),
        scope: &Scope<'_, 'a>,
    ) -> Result<bool> {
        x.filter.as_ref().map_or(Ok(true), |filter| self.loop_bool(x, filter, entry, scope))
    }

    fn loop_bool<'a>(
        &mut self,
        x: &Loop,
        body: &Expr,
        entry: &(Val<'a>, Option<Val<'a>>),
        scope: &Scope<'_, 'a>,
    ) -> Result<bool> {
        match self.in_loop(x, body, entry, scope)? {
            Val::Cel(Cel::Bool(b)) => Ok(b),
            _ => Err(Failure::NoSuchOverload),
        }
    }

    fn in_loop<'a>(
        &mut self,
        x: &Loop,
        body: &Expr,
        (first, second): &(Val<'a>, Option<Val<'a>>),
        scope: &Scope<'_, 'a>,
    ) -> Result<Val<'a>> {
        self.spend(1)?;
        let outer = Scope { name: &x.name, value: first.clone(), parent: Some(scope) };
        match (&x.name2, second) {
            (Some(name), Some(value)) => {
                self.eval(body, &Scope { name, value: value.clone(), parent: Some(&outer) })
            }
            _ => self.eval(body, &outer),
        }
    }

    fn call<'a>(
        &mut self,
        target: Option<&Expr>,
        name: &str,
        args: &[Expr],
        scope: &Scope<'_, 'a>,
    ) -> Result<Val<'a>> {
        let space = match target.map(|t| &t.kind) {
            Some(Kind::Ident(space)) if scope.get(space).is_none() => Some(space.as_str()),
            _ => None,
        };
        let this = match target {
            Some(target) if space.is_none() => Some(self.eval(target, scope)?),
            _ => None,
        };
        let mut values = Vec::with_capacity(args.len());
        for arg in args {
            values.push(self.eval(arg, scope)?);
        }
        if space.is_none()
            && let Some(made) = self.core(this.as_ref(), name, &values)?
        {
            return Ok(made);
        }
        if let (Some("optional"), [value]) = (space, values.as_slice()) {
            return match name {
                "of" => Ok(Val::Optional(Some(Arc::new(value.clone())))),
                "ofNonZeroValue" => Ok(Val::Optional((!is_zero(value)).then(|| Arc::new(value.clone())))),
                _ => Err(Failure::NoSuchOverload),
            };
        }
        if let (Some("optional"), "none", []) = (space, name, values.as_slice()) {
            return Ok(Val::Optional(None));
        }
        self.library(space, this, name, values)
    }

    /// Functions on core types; `None` leaves the call to the libraries.
    fn core<'a>(&mut self, this: Option<&Val<'a>>, name: &str, args: &[Val<'a>]) -> Result<Option<Val<'a>>> {
        let operands: Vec<&Val<'a>> = this.into_iter().chain(args).collect();
        let made = match (name, operands.as_slice()) {
            ("size", [value]) => match value {
                Val::Cel(Cel::String(s)) => {
                    self.spend(s.len() / 10)?;
                    Val::size_int(s.chars().count())
                }
                Val::Cel(Cel::Bytes(b)) => Val::size_int(b.len()),
                value => Val::size_int(value.len().ok_or(Failure::NoSuchOverload)?),
            },
            (
                "contains" | "startsWith" | "endsWith" | "matches",
                [Val::Cel(Cel::String(a)), Val::Cel(Cel::String(b))],
            ) => {
                self.spend(a.len() / 10 + b.len() / 10)?;
                Val::bool(match name {
                    "contains" => a.contains(b.as_str()),
                    "startsWith" => a.starts_with(b.as_str()),
                    "endsWith" => a.ends_with(b.as_str()),
                    _ => self.pattern(b)?.is_match(a),
                })
            }
            ("dyn", [value]) if this.is_none() => (*value).clone(),
            ("type", [value]) if this.is_none() => Val::Type(value.type_name()),
            ("int" | "uint" | "double" | "string" | "bool", [value]) if this.is_none() => {
                return convert(name, value).transpose();
            }
            ("sum" | "min" | "max", [list]) if list.is_list() => self.fold(name, list)?,
            (_, [Val::Cel(value @ (Cel::Timestamp(_) | Cel::Duration(_))), zone @ ..])
                if name.starts_with("get") =>
            {
                let zone = match zone {
                    [] => None,
                    [Val::Cel(Cel::String(zone))] => Some(zone.as_str()),
                    _ => return Err(Failure::NoSuchOverload),
                };
                return time::part(name, value, zone).map(|i| Some(Val::int(i)));
            }
            ("charAt" | "substring" | "split" | "replace", [Val::Cel(Cel::String(text)), rest @ ..]) => {
                let rest: Option<Vec<&Cel>> =
                    rest.iter().map(|v| if let Val::Cel(v) = v { Some(v) } else { None }).collect();
                let sizes = rest.iter().flatten().fold(1_usize, |n, v| n.saturating_mul(size_of(v)));
                self.spend((text.len() + 1).saturating_mul(sizes) / 10)?;
                return text::call(name, text, &rest.ok_or(Failure::NoSuchOverload)?).map(Some);
            }
            ("hasValue", [Val::Optional(inner)]) => Val::bool(inner.is_some()),
            ("value", [Val::Optional(inner)]) => match inner {
                Some(inner) => inner.as_ref().clone(),
                None => return Err(Failure::Other("optional.none() dereference".to_owned())),
            },
            ("or", [a @ Val::Optional(inner), b @ Val::Optional(_)]) => {
                if inner.is_some() {
                    (*a).clone()
                } else {
                    (*b).clone()
                }
            }
            ("orValue", [Val::Optional(inner), other]) => match inner {
                Some(inner) => inner.as_ref().clone(),
                None => (*other).clone(),
            },
            _ => return Ok(None),
        };
        Ok(Some(made))
    }

    /// `sum`, `min` and `max` of a list.
    fn fold<'a>(&mut self, name: &str, list: &Val<'a>) -> Result<Val<'a>> {
        let mut items = list.items().ok_or(Failure::NoSuchOverload)??.into_iter();
        self.spend(items.len())?;
        let Some(mut made) = items.next() else {
            return match name {
                "sum" => Ok(Val::int(0)),
                _ => Err(Failure::Other(format!("{name} called on empty list"))),
            };
        };
        for item in items {
            made = match name {
                "sum" => self.arithmetic(Op::Add, made, item)?,
                _ => {
                    let order = self.compare(&item, &made)?;
                    let better = if name == "min" { Ordering::Less } else { Ordering::Greater };
                    if order == Some(better) { item } else { made }
                }
            };
        }
        Ok(made)
    }

    fn library<'a>(
        &mut self,
        space: Option<&str>,
        this: Option<Val<'a>>,
        name: &str,
        values: Vec<Val<'a>>,
    ) -> Result<Val<'a>> {
        let mut sizes = Vec::new();
        let mut args = Vec::with_capacity(values.len());
        let target = match this {
            Some(this) => {
                let value = this.to_cel(&mut |n| self.spend(n))?;
                sizes.push(size_of(&value));
                Some(value)
            }
            None => None,
        };
        for value in values {
            let value = value.to_cel(&mut |n| self.spend(n))?;
            sizes.push(size_of(&value));
            args.push(value);
        }
        self.spend(library_cost(space, name, target.as_ref(), &args, &sizes))?;
        let words = match (name, args.as_slice(), &target) {
            ("slice", [Cel::Int(from), Cel::Int(to)], Some(Cel::List(items))) => {
                Some(format!("cannot slice({from}, {to}), list is length {}", items.len()))
            }
            ("asInteger", ..) => Some("cannot convert value to integer".to_owned()),
            _ => None,
        };
        if let (Some("format"), "named", [Cel::String(name)]) = (space, name, args.as_slice()) {
            return Ok(named_format(name));
        }
        // The sign of a quantity is a function here and a method there.
        let (target, args) = match (name, target, args) {
            ("sign", None, mut args) => (args.pop(), args),
            (_, target, args) => (target, args),
        };
        let callee = match (space, target) {
            (Some(space), _) => Callee::Namespace(space),
            (None, Some(value)) => Callee::Method(value),
            (None, None) => Callee::Global,
        };
        let made = library::call(callee, name, args).map_err(|failure| match (failure, words) {
            (Failure::Other(_), Some(words)) => Failure::Other(words),
            (failure, _) => failure,
        })?;
        self.spend(size_of(&made) / 10)?;
        Ok(Val::from_cel(made))
    }
}

/// The format of that name, if there is one.
fn named_format<'a>(name: &str) -> Val<'a> {
    let made = library::call(Callee::Namespace("format"), name, Vec::new());
    Val::Optional(made.ok().filter(|_| name != "named").map(|format| Arc::new(Val::from_cel(format))))
}

/// An upper bound of what a library function may do, made before it does it.
fn library_cost(
    space: Option<&str>,
    name: &str,
    target: Option<&Cel>,
    args: &[Cel],
    sizes: &[usize],
) -> usize {
    let sum: usize = sizes.iter().fold(0, |a, b| a.saturating_add(*b));
    let product = sizes.iter().fold(1_usize, |a, b| a.saturating_mul(b.saturating_add(1)));
    match (space, name) {
        (Some("lists"), "range") => match args {
            [Cel::Int(n)] => usize::try_from(*n).unwrap_or(0),
            _ => 0,
        },
        (Some("sets"), _) | (None, "join" | "distinct") => product,
        (None, "format") => match target {
            // A precision is a count of digits to print.
            Some(Cel::String(text)) => longest_number(text).saturating_add(sum),
            _ => sum,
        },
        // These compile a pattern at each call.
        (None, "find" | "findAll") => sum.saturating_add(1_000),
        _ => 5 + sum / 10,
    }
}

fn longest_number(text: &str) -> usize {
    let numbers = text.split(|c: char| !c.is_ascii_digit()).filter(|n| !n.is_empty());
    numbers.map(|n| n.parse().unwrap_or(usize::MAX)).max().unwrap_or(0)
}

fn size_of(value: &Cel) -> usize {
    match value {
        Cel::String(s) => s.len(),
        Cel::Bytes(b) => b.len(),
        Cel::List(items) => items.iter().map(|item| size_of(item).saturating_add(1)).sum(),
        Cel::Map(map) => map.map.values().map(|item| size_of(item).saturating_add(1)).sum(),
        _ => 1,
    }
}

fn overflow() -> Failure {
    Failure::Other("integer overflow".to_owned())
}

fn is_time(value: &Cel) -> bool {
    matches!(value, Cel::Duration(_) | Cel::Timestamp(_))
}

fn is_zero(value: &Val<'_>) -> bool {
    match value {
        Val::Cel(value) => value.is_zero(),
        Val::Optional(inner) => inner.is_none(),
        value => value.len() == Some(0),
    }
}

/// Names that stand for types.
pub(crate) fn is_type_name(name: &str) -> bool {
    matches!(
        name,
        "bool"
            | "int"
            | "uint"
            | "double"
            | "string"
            | "bytes"
            | "list"
            | "map"
            | "null_type"
            | "type"
            | "optional_type"
    )
}

fn key_of(value: &Val<'_>) -> Option<Key> {
    match value {
        Val::Cel(Cel::Int(i)) => Some(Key::Int(*i)),
        Val::Cel(Cel::UInt(u)) => Some(Key::Uint(*u)),
        Val::Cel(Cel::Bool(b)) => Some(Key::Bool(*b)),
        Val::Cel(Cel::String(s)) => Some(Key::String(s.clone())),
        // A whole double finds the integer key.
        #[expect(clippy::cast_possible_truncation, reason = "the fraction and the range are checked")]
        Val::Cel(Cel::Float(d)) if d.fract() == 0.0 && d.abs() < 9e15 => Some(Key::Int(*d as i64)),
        _ => None,
    }
}

fn key_text(key: &Key) -> String {
    match key {
        Key::Int(i) => i.to_string(),
        Key::Uint(u) => u.to_string(),
        Key::Bool(b) => b.to_string(),
        Key::String(s) => s.to_string(),
    }
}

fn index_value<'a>(operand: Val<'a>, index: &Val<'a>, optional: bool) -> Result<Val<'a>> {
    let (operand, optional) = match operand {
        Val::Optional(None) => return Ok(Val::Optional(None)),
        Val::Optional(Some(inner)) => (inner.as_ref().clone(), true),
        value => (value, optional),
    };
    let int = match key_of(index) {
        Some(Key::Int(i)) => Some(i),
        Some(Key::Uint(u)) => Some(i64::try_from(u).unwrap_or(i64::MAX)),
        _ => None,
    };
    let found = match (operand.nth(int.unwrap_or(-1)), int) {
        (Some(_), None) => return Err(Failure::NoSuchOverload),
        (Some(None), Some(i)) if !optional => {
            return Err(Failure::Other(format!("index out of bounds: {i}")));
        }
        (Some(item), _) => item,
        (None, _) => {
            let key = key_of(index).ok_or(Failure::NoSuchOverload)?;
            match (operand.lookup(&key).ok_or(Failure::NoSuchOverload)?, optional) {
                (None, false) => return Err(Failure::NoSuchKey(key_text(&key))),
                (found, _) => found,
            }
        }
    };
    match (found, optional) {
        (found, true) => Ok(Val::Optional(found.transpose()?.map(Arc::new))),
        (Some(found), false) => found,
        (None, false) => Err(Failure::NoSuchOverload),
    }
}

/// Conversion functions; `None` leaves the value to the libraries.
fn convert<'a>(name: &str, value: &Val<'_>) -> Option<Result<Val<'a>>> {
    let Val::Cel(value) = value else {
        return Some(Err(Failure::NoSuchOverload));
    };
    let range = || {
        Failure::Other(format!(
            "{} out of range",
            if name == "uint" { "unsigned integer" } else { "integer" }
        ))
    };
    let syntax = || Failure::Other(format!("type conversion error from 'string' to '{name}'"));
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "ranges are checked before"
    )]
    Some(match (name, value) {
        ("int", Cel::Int(i)) => Ok(Val::int(*i)),
        ("int", Cel::UInt(u)) => i64::try_from(*u).map(Val::int).map_err(|_| range()),
        ("int", Cel::Float(d)) if d.is_finite() && d.abs() < 9.223_372_036_854_775e18 => {
            Ok(Val::int(*d as i64))
        }
        ("int", Cel::Float(_)) => Err(range()),
        ("int", Cel::String(s)) => s.parse().map(Val::int).map_err(|_| syntax()),
        ("uint", Cel::UInt(u)) => Ok(Val::Cel(Cel::UInt(*u))),
        ("uint", Cel::Int(i)) => u64::try_from(*i).map(|u| Val::Cel(Cel::UInt(u))).map_err(|_| range()),
        ("uint", Cel::Float(d)) if *d >= 0.0 && *d < 1.844_674_407_370_955e19 => {
            Ok(Val::Cel(Cel::UInt(*d as u64)))
        }
        ("uint", Cel::Float(_)) => Err(range()),
        ("uint", Cel::String(s)) => s.parse().map(|u| Val::Cel(Cel::UInt(u))).map_err(|_| syntax()),
        ("double", Cel::Float(d)) => Ok(Val::Cel(Cel::Float(*d))),
        ("double", Cel::Int(i)) => Ok(Val::Cel(Cel::Float(*i as f64))),
        ("double", Cel::UInt(u)) => Ok(Val::Cel(Cel::Float(*u as f64))),
        ("double", Cel::String(s)) => s.parse().map(|d| Val::Cel(Cel::Float(d))).map_err(|_| syntax()),
        ("string", Cel::String(_)) => Ok(Val::Cel(value.clone())),
        ("string", Cel::Bool(b)) => Ok(Val::string(b.to_string())),
        ("string", Cel::Int(i)) => Ok(Val::string(i.to_string())),
        ("string", Cel::UInt(u)) => Ok(Val::string(u.to_string())),
        ("string", Cel::Float(d)) => Ok(Val::string(gofmt::float(*d))),
        ("string", Cel::Bytes(b)) => match String::from_utf8(b.as_ref().clone()) {
            Ok(text) => Ok(Val::string(text)),
            Err(_) => Err(Failure::Other("invalid UTF-8 in bytes, cannot convert to string".to_owned())),
        },
        ("bool", Cel::Bool(b)) => Ok(Val::bool(*b)),
        ("bool", Cel::String(s)) => match s.as_str() {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Val::bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Val::bool(false)),
            _ => Err(syntax()),
        },
        ("int", Cel::Timestamp(_)) => time::instant(value).map(|t| Val::int(t.as_second())),
        ("string", Cel::Timestamp(_)) => time::instant(value).map(|t| Val::string(t.to_string())),
        ("string", Cel::Duration(_)) => time::seconds(value).map(Val::string),
        ("string", Cel::Opaque(_)) => return None,
        _ => Err(Failure::NoSuchOverload),
    })
}
