//! Objects seen through their type: checking, merging, comparing, and the fields they hold.
//!
//! In: JSON values and a [`Shape`]. Out: problems ([`check`]), the merge of two values ([`merge`]), what changed between two
//! values ([`compare`]), the fields a value holds ([`fields`]), and a value without some of its fields ([`remove`]).
//! Must stay true: everything but [`check`] is only given values that [`check`] passed, which bounds their depth and
//! promises that the elements of keyed lists have keys; what cannot be taken apart all the same is treated as one piece.

use super::fields::{FieldSet, Node};
use super::mark::Mark;
use super::path::{Path, PathElement, equal};
use crate::go_format::{Plain, Quoted, Syntax, type_name};
use crate::{Kind, ListMerge, Scalar, Shape, too_deep};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

/// A value that does not fit its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeError {
    /// Where it is.
    pub path: Path,
    /// What is wrong with it.
    pub message: String,
}

impl fmt::Display for TypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.0.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

/// The type of a node: given by the schema, or by what the value looks like.
#[derive(Clone, Copy)]
pub(crate) enum Type<S> {
    Known(S),
    /// Objects are taken apart, lists are not.
    Deduced,
    /// Nothing is taken apart.
    Opaque,
}

/// How a value is treated.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Scalar,
    List,
    Object,
    /// A null where anything may stand.
    Any,
}

/// How an object is taken apart: a member is declared by name, or one of many of the same type.
pub(super) struct Member<S> {
    pub(super) of: Type<S>,
    declared: bool,
}

impl<S: Shape> Type<S> {
    pub(super) fn form(self, value: &Value) -> Form {
        if let Self::Known(shape) = self {
            match shape.kind() {
                Kind::Scalar => return Form::Scalar,
                Kind::List => return Form::List,
                Kind::Struct | Kind::Map => return Form::Object,
                Kind::Unknown => {}
            }
        }
        match value {
            Value::Null => Form::Any,
            Value::Array(_) => Form::List,
            Value::Object(_) => Form::Object,
            Value::Bool(_) | Value::Number(_) | Value::String(_) => Form::Scalar,
        }
    }

    pub(super) fn member(self, name: &str) -> Member<S> {
        match self {
            Self::Known(shape) => match shape.kind() {
                Kind::Unknown if shape.atomic() => Member { of: Self::Opaque, declared: false },
                Kind::Unknown => Member { of: Self::Deduced, declared: false },
                kind => match shape.field(name) {
                    Some(of) => Member { of: Self::Known(of), declared: kind == Kind::Struct },
                    None => Member { of: Self::Deduced, declared: false },
                },
            },
            Self::Deduced => Member { of: Self::Deduced, declared: false },
            Self::Opaque => Member { of: Self::Opaque, declared: false },
        }
    }

    fn excludes(self, name: &str) -> bool {
        matches!(self, Self::Known(shape) if shape.closed() && shape.field(name).is_none())
    }

    pub(super) fn item(self) -> Self {
        match self {
            Self::Known(shape) if shape.kind() == Kind::List => {
                shape.item().map_or(Self::Opaque, Self::Known)
            }
            Self::Known(_) | Self::Deduced | Self::Opaque => Self::Opaque,
        }
    }

    pub(super) fn is_atomic_object(self) -> bool {
        match self {
            Self::Known(shape) => shape.atomic(),
            Self::Deduced => false,
            Self::Opaque => true,
        }
    }

    pub(super) fn is_atomic_list(self) -> bool {
        match self {
            Self::Known(shape) if shape.kind() == Kind::List => shape.list() == ListMerge::Atomic,
            Self::Known(_) | Self::Deduced | Self::Opaque => true,
        }
    }

    /// The key fields of the elements of a list; none for a set.
    pub(super) fn keys(self) -> Vec<String> {
        let mut keys = Vec::new();
        if let Self::Known(shape) = self
            && shape.list() == ListMerge::Map
        {
            shape.list_keys(&mut |key| keys.push(key.to_owned()));
        }
        keys
    }

    /// What tells `item` apart from the other elements of this list.
    pub(super) fn mark<'a>(self, keys: &'a [String], item: &'a Value) -> Result<Mark<'a>, String> {
        if keys.is_empty() {
            return match item {
                Value::Object(_) => {
                    Err("associative list without keys has an element that's a map type".to_owned())
                }
                Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
                Value::Null => {
                    Err("associative list without keys has an element that's an explicit null".to_owned())
                }
                scalar => Ok(Mark::Value(scalar)),
            };
        }
        let members = match item {
            Value::Object(members) => members,
            Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
            _ => return Err("associative list with keys may not have non-map elements".to_owned()),
        };
        let found = keys.iter().filter_map(|key| {
            let value = match (members.get(key), self.item()) {
                (Some(value), _) => Some(Cow::Borrowed(value)),
                (None, Self::Known(of)) => {
                    of.field(key).and_then(Shape::default).filter(|v| !v.is_null()).map(Cow::Owned)
                }
                (None, Self::Deduced | Self::Opaque) => None,
            };
            value.map(|value| (key.as_str(), value))
        });
        match Mark::key(found) {
            Mark::Key(fields) if fields.is_empty() => {
                let keys: Vec<_> = keys.iter().map(|key| Quoted(key).to_string()).collect();
                Err(format!(
                    "associative list with keys has an element that omits all key fields [{}] (and doesn't have \
                     default values for any key fields)",
                    keys.join(" ")
                ))
            }
            mark => Ok(mark),
        }
    }

    /// The identity of an element as the step of a path.
    fn identify(self, keys: &[String], item: &Value) -> Result<PathElement, String> {
        self.mark(keys, item).map(|mark| mark.element())
    }

    /// The identities of all elements, or `None` if the list has to be treated as one piece.
    fn identities(self, items: &[Value]) -> Option<Vec<PathElement>> {
        let keys = self.keys();
        items.iter().map(|item| self.identify(&keys, item).ok()).collect()
    }
}

/// Finds everything in `value` that does not fit its type. Two elements of a list with the same identity are an error unless
/// `duplicates` are allowed, as they are in stored objects.
pub(crate) fn check<S: Shape>(of: Type<S>, value: &Value, duplicates: bool) -> Result<(), Vec<TypeError>> {
    if too_deep(value) {
        return Err(vec![TypeError { path: Path::default(), message: "nested too deeply".to_owned() }]);
    }
    let mut checker = Checker { duplicates, trail: Vec::new(), errors: Vec::new() };
    checker.visit(of, value);
    if checker.errors.is_empty() { Ok(()) } else { Err(checker.errors) }
}

struct Checker<'a> {
    duplicates: bool,
    trail: Vec<Step<'a>>,
    errors: Vec<TypeError>,
}

enum Step<'a> {
    Field(&'a str),
    Index(usize),
}

impl<'a> Checker<'a> {
    fn visit<S: Shape>(&mut self, of: Type<S>, value: &'a Value) {
        match of.form(value) {
            Form::Scalar => self.visit_scalar(of, value),
            Form::List => match value {
                Value::Null => {}
                Value::Array(items) => self.visit_items(of, items),
                _ => self.report(format!("expected list, got &{{{}}}", Plain(value))),
            },
            Form::Object | Form::Any => match value {
                Value::Null => {}
                Value::Object(members) => {
                    // What is stored may be from before the type was what it is now. Nobody looks further than to what is not declared.
                    let undeclared = members.keys().find(|name| !self.duplicates && of.excludes(name));
                    if let Some(name) = undeclared {
                        self.trail.push(Step::Field(name));
                        self.report("field not declared in schema".to_owned());
                        self.trail.pop();
                        return;
                    }
                    for (name, member) in members {
                        self.trail.push(Step::Field(name));
                        self.visit(of.member(name).of, member);
                        self.trail.pop();
                    }
                }
                _ => self.report(format!("expected map, got &{{{}}}", Plain(value))),
            },
        }
    }

    fn visit_scalar<S: Shape>(&mut self, of: Type<S>, value: &Value) {
        let accepted = match of {
            Type::Known(shape) if shape.kind() == Kind::Scalar => shape.scalar(),
            Type::Known(_) | Type::Deduced | Type::Opaque => Scalar::Any,
        };
        match (accepted, value) {
            (_, Value::Null)
            | (Scalar::Number, Value::Number(_))
            | (Scalar::String, Value::String(_))
            | (Scalar::Boolean, Value::Bool(_))
            | (Scalar::Any, Value::Number(_) | Value::String(_) | Value::Bool(_)) => {}
            (Scalar::Number, _) => {
                self.report(format!("expected numeric (int or float), got {}", type_name(value)));
            }
            (Scalar::String, _) => {
                self.report(format!(
                    "expected string, got &value.valueUnstructured{{Value:{}}}",
                    Syntax(value)
                ));
            }
            (Scalar::Boolean, _) => self.report(format!("expected boolean, got &{{{}}}", Plain(value))),
            (Scalar::Any, _) => self.report(format!("expected any scalar, got &{{{}}}", Plain(value))),
        }
    }

    fn visit_items<S: Shape>(&mut self, of: Type<S>, items: &'a [Value]) {
        let atomic = of.is_atomic_list();
        let keys = if atomic { Vec::new() } else { of.keys() };
        let mut seen = BTreeSet::new();
        for (i, item) in items.iter().enumerate() {
            let mark = if atomic {
                None
            } else {
                match of.mark(&keys, item) {
                    Ok(mark) => Some(mark),
                    Err(problem) => return self.report(format!("element {i}: {problem}")),
                }
            };
            if let Some(mark) = mark.as_ref().filter(|_| !self.duplicates)
                && !seen.insert(mark.clone())
            {
                self.report(format!("duplicate entries for key {}", mark.element()));
            }
            // The path of an element is put together where something is wrong with it.
            let (depth, n_errors) = (self.trail.len(), self.errors.len());
            self.trail.push(Step::Index(i));
            self.visit(of.item(), item);
            self.trail.pop();
            if let Some(mark) = mark {
                for error in self.errors.iter_mut().skip(n_errors) {
                    if let Some(step) = error.path.0.get_mut(depth) {
                        *step = mark.element();
                    }
                }
            }
        }
    }

    fn report(&mut self, message: String) {
        let path = self.trail.iter().map(|step| match step {
            Step::Field(name) => PathElement::Field((*name).to_owned()),
            Step::Index(at) => PathElement::Index(i64::try_from(*at).unwrap_or(i64::MAX)),
        });
        self.errors.push(TypeError { path: path.collect(), message });
    }
}

/// `live` with what `config` says put over it.
pub(crate) fn merge<S: Shape>(of: Type<S>, live: &Value, config: &Value) -> Value {
    match of.form(config) {
        Form::Scalar => config.clone(),
        Form::List => {
            let (old, new) = (items(live), items(config));
            if of.is_atomic_list() || old.is_empty() && new.is_empty() {
                return config.clone();
            }
            merge_items(of, old, new).unwrap_or_else(|| config.clone())
        }
        Form::Object | Form::Any => {
            let empty = Map::new();
            let (old, new) = (members(live).unwrap_or(&empty), members(config).unwrap_or(&empty));
            if of.is_atomic_object() || old.is_empty() && new.is_empty() {
                return config.clone();
            }
            let kept = old.iter().map(|(name, live)| match new.get(name) {
                Some(change) => (name.clone(), merge(of.member(name).of, live, change)),
                None => (name.clone(), live.clone()),
            });
            let new = new.iter().filter(|(name, _)| !old.contains_key(*name));
            Value::Object(kept.chain(new.map(|(name, change)| (name.clone(), change.clone()))).collect())
        }
    }
}

/// Merges two lists element by element. Elements that both have follow the order of `new`; the others stay where their
/// neighbours are. `None` if some element has no identity.
fn merge_items<S: Shape>(of: Type<S>, old: &[Value], new: &[Value]) -> Option<Value> {
    let (old_ids, new_ids) = (of.identities(old)?, of.identities(new)?);
    // Where each element stands in the old list; an element that stands there twice is not merged with, but replaced.
    let mut place: BTreeMap<&PathElement, Option<usize>> = BTreeMap::new();
    for (at, id) in old_ids.iter().enumerate() {
        place.entry(id).and_modify(|place| *place = None).or_insert(Some(at));
    }
    let known: BTreeSet<&PathElement> = new_ids.iter().collect();
    let mut shared: VecDeque<&PathElement> = new_ids.iter().filter(|id| place.contains_key(id)).collect();
    let mut awaited = shared.pop_front();
    let mut taken: BTreeSet<&PathElement> = BTreeSet::new();
    let mut merged = Vec::with_capacity(old.len().max(new.len()));
    let both = |id: &PathElement, change: &Value| match place.get(id) {
        Some(Some(at)) => old.get(*at).map_or_else(|| change.clone(), |live| merge(of.item(), live, change)),
        Some(None) => merge(of.item(), &Value::Null, change),
        None => change.clone(),
    };

    let mut left = old_ids.iter().zip(old).peekable();
    let mut right = new_ids.iter().zip(new).peekable();
    loop {
        match (left.peek().copied(), right.peek().copied()) {
            (None, None) => break,
            (Some((id, _)), Some((new_id, change))) if id == new_id => {
                merged.push(both(id, change));
                taken.insert(id);
                left.next();
                right.next();
                awaited = shared.pop_front();
                continue;
            }
            // Both lists have it, but the new one wants another element here first.
            (Some((id, _)), Some(_)) if known.contains(id) && awaited.is_some_and(|next| next != id) => {
                left.next();
                continue;
            }
            _ => {}
        }
        if let Some((id, live)) = left.peek().copied() {
            if !known.contains(id) {
                merged.push(live.clone());
                left.next();
                continue;
            }
            if taken.contains(id) {
                left.next();
            }
        }
        if let Some((id, change)) = right.next() {
            merged.push(both(id, change));
            taken.insert(id);
            if awaited == Some(id) {
                awaited = shared.pop_front();
            }
        }
    }
    Some(Value::Array(merged))
}

/// What changed from one value to another.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub added: FieldSet,
    pub modified: FieldSet,
    pub removed: FieldSet,
}

impl Changes {
    /// Forgets changes to `ignored` fields and to anything below them.
    pub fn without(mut self, ignored: &FieldSet) -> Self {
        for changed in [&mut self.added, &mut self.modified, &mut self.removed] {
            changed.cut(ignored);
        }
        self
    }
}

/// What changed at one node.
#[derive(Default)]
struct Delta {
    added: Node,
    modified: Node,
    removed: Node,
}

impl Delta {
    fn is_empty(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    fn nest(&mut self, step: PathElement, inner: Self) {
        // Few changes are of more than one sort.
        if !inner.modified.is_empty() {
            self.modified.below.graft(step.clone(), inner.modified);
        }
        if !inner.removed.is_empty() {
            self.removed.below.graft(step.clone(), inner.removed);
        }
        self.added.below.graft(step, inner.added);
    }
}

/// What changed from `old` to `new`.
pub(crate) fn compare<S: Shape>(of: Type<S>, old: &Value, new: &Value) -> Changes {
    let delta = compare_node(of, Some(old), Some(new));
    Changes { added: delta.added.below, modified: delta.modified.below, removed: delta.removed.below }
}

fn compare_node<S: Shape>(of: Type<S>, old: Option<&Value>, new: Option<&Value>) -> Delta {
    let mut delta = Delta::default();
    let form = match (old, new) {
        (None, None) => return delta,
        (Some(one), None) | (None, Some(one)) => of.form(one),
        (Some(old), Some(new)) => {
            if old == new {
                return delta;
            }
            let (before, after) = (of.form(old), of.form(new));
            if before != after {
                // The value changes its sort: what it was is gone, and what it is now is new.
                compare_as(before, of, Some(old), Some(new), &mut delta);
            }
            after
        }
    };
    let whole = compare_as(form, of, old, new, &mut delta);
    if !whole {
        delta.added.member |= old.is_none();
        delta.removed.member |= new.is_none();
    }
    delta
}

/// Adds to `delta` what changed, taking both values to be of one form. Answers whether they were compared as one piece.
fn compare_as<S: Shape>(
    form: Form,
    of: Type<S>,
    old: Option<&Value>,
    new: Option<&Value>,
    delta: &mut Delta,
) -> bool {
    match form {
        Form::Scalar => {}
        Form::List => {
            let (before, after) = (old.map_or(&[][..], items), new.map_or(&[][..], items));
            if !(of.is_atomic_list() || before.is_empty() && after.is_empty())
                && let (Some(old_ids), Some(new_ids)) = (of.identities(before), of.identities(after))
            {
                compare_items(of, (old_ids, before), (new_ids, after), delta);
                return false;
            }
        }
        Form::Object | Form::Any => {
            let empty = Map::new();
            let before = old.and_then(members).unwrap_or(&empty);
            let after = new.and_then(members).unwrap_or(&empty);
            if !(of.is_atomic_object() || before.is_empty() && after.is_empty()) {
                let gone_or_kept = before.iter().map(|(name, old)| (name, Some(old), after.get(name)));
                let new = after.iter().filter(|(name, _)| !before.contains_key(*name));
                for (name, old, new) in gone_or_kept.chain(new.map(|(name, new)| (name, None, Some(new)))) {
                    let inner = compare_node(of.member(name).of, old, new);
                    if !inner.is_empty() {
                        delta.nest(PathElement::Field(name.clone()), inner);
                    }
                }
                return false;
            }
        }
    }
    match (old, new) {
        (None, _) => delta.added.member = true,
        (_, None) => delta.removed.member = true,
        (Some(old), Some(new)) => delta.modified.member |= !equal(old, new),
    }
    true
}

/// Compares lists whose elements have identities. Elements that share one are compared together, as one piece.
fn compare_items<S: Shape>(
    of: Type<S>,
    (old_ids, old): (Vec<PathElement>, &[Value]),
    (new_ids, new): (Vec<PathElement>, &[Value]),
    delta: &mut Delta,
) {
    let mut by_id: BTreeMap<PathElement, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
    old_ids.into_iter().zip(old).for_each(|(id, item)| by_id.entry(id).or_default().0.push(item));
    new_ids.into_iter().zip(new).for_each(|(id, item)| by_id.entry(id).or_default().1.push(item));
    for (id, (before, after)) in by_id {
        let mut inner = Delta::default();
        match (before.as_slice(), after.as_slice()) {
            ([] | [_], [] | [_]) => {
                inner = compare_node(of.item(), before.first().copied(), after.first().copied());
            }
            ([_, _, ..], [_, _, ..]) => {
                let same = before.len() == after.len() && before.iter().zip(&after).all(|(a, b)| equal(a, b));
                inner.modified.member = !same;
            }
            ([_, _, ..], rest) => {
                if let Some(new) = rest.first() {
                    inner = compare_node(of.item(), None, Some(new));
                }
                inner.removed.member = true;
            }
            (rest, [_, _, ..]) => {
                if let Some(old) = rest.first() {
                    inner = compare_node(of.item(), Some(old), None);
                }
                inner.added.member = true;
            }
        }
        delta.nest(id, inner);
    }
}

/// The fields that `value` holds: its leaves, its list elements, and the keys of its maps.
pub(crate) fn fields<S: Shape>(of: Type<S>, value: &Value) -> FieldSet {
    fields_node(of, value).below
}

fn fields_node<S: Shape>(of: Type<S>, value: &Value) -> Node {
    let mut node = Node::default();
    match of.form(value) {
        Form::Scalar => return Node::LEAF,
        Form::List if of.is_atomic_list() => return Node::LEAF,
        Form::List => {
            // Half-way through a prune an element may have lost its key; the others count all the same.
            let keys = of.keys();
            let mut by_id: BTreeMap<PathElement, Vec<&Value>> = BTreeMap::new();
            for item in items(value) {
                if let Ok(id) = of.identify(&keys, item) {
                    by_id.entry(id).or_default().push(item);
                }
            }
            for (id, items) in by_id {
                let below = match items.as_slice() {
                    [item] => fields_node(of.item(), item).below,
                    _ => FieldSet::new(),
                };
                node.below.graft(id, Node { member: true, below });
            }
        }
        Form::Object | Form::Any if of.is_atomic_object() => return Node::LEAF,
        Form::Object | Form::Any => {
            for (name, member) in members(value).into_iter().flatten() {
                let Member { of, declared } = of.member(name);
                let mut inner = fields_node(of, member);
                let empty = member.is_null() || member.as_object().is_some_and(Map::is_empty);
                inner.member |= empty || !declared;
                node.below.graft(PathElement::Field(name.clone()), inner);
            }
        }
    }
    node
}

/// `value` without `gone`. What is left of a list or object that loses everything is null.
pub(crate) fn remove<S: Shape>(of: Type<S>, value: Value, gone: &FieldSet) -> Value {
    match (of.form(&value), value) {
        (Form::Scalar, value) => value,
        (Form::List, Value::Array(items)) if !of.is_atomic_list() => {
            let keys = of.keys();
            let kept = items.into_iter().filter_map(|item| {
                let node = of.identify(&keys, &item).ok().and_then(|id| gone.get(&id));
                prune_one(of.item(), item, node)
            });
            let kept: Vec<Value> = kept.collect();
            if kept.is_empty() { Value::Null } else { Value::Array(kept) }
        }
        (Form::Object | Form::Any, Value::Object(members)) if !of.is_atomic_object() => {
            let kept = members.into_iter().filter_map(|(name, member)| {
                let inner = of.member(&name).of;
                let step = PathElement::Field(name);
                let member = prune_one(inner, member, gone.get(&step))?;
                let PathElement::Field(name) = step else { return None };
                Some((name, member))
            });
            let kept: Map<String, Value> = kept.collect();
            if kept.is_empty() { Value::Null } else { Value::Object(kept) }
        }
        _ => Value::Null,
    }
}

fn prune_one<S: Shape>(of: Type<S>, value: Value, gone: Option<&Node>) -> Option<Value> {
    match gone {
        Some(node) if node.member => None,
        Some(node) => Some(remove(of, value, &node.below)),
        None => Some(value),
    }
}

/// `set` with the declared members that lead to its fields added, so that removing a set also removes the structs it empties.
pub(crate) fn with_parents<S: Shape>(of: Option<Type<S>>, set: &FieldSet) -> FieldSet {
    let mut all = FieldSet::new();
    for (step, node) in set.steps() {
        let member = match (of, step) {
            (Some(of), PathElement::Field(name)) if of.may_be_object() => Some(of.member(name)),
            (Some(of), PathElement::Key(_)) if of.may_be_list() => {
                Some(Member { of: of.item(), declared: false })
            }
            _ => None,
        };
        let declared = member.as_ref().is_some_and(|member| member.declared) && !node.below.is_empty();
        let below = with_parents(member.map(|member| member.of), &node.below);
        all.graft(step.clone(), Node { member: node.member || declared, below });
    }
    all
}

/// Makes `set` what it would be had it been recorded under this type: what is now in one piece is owned in one piece.
pub(crate) fn reconcile<S: Shape>(of: Type<S>, set: &mut FieldSet) {
    for (step, node) in set.steps_mut().filter(|(_, node)| !node.below.is_empty()) {
        let inner = match (of, step) {
            (Type::Known(shape), PathElement::Field(name)) if shape.kind() != Kind::List => {
                of.member(name).of
            }
            (Type::Known(shape), _) if shape.kind() == Kind::List => of.item(),
            _ => Type::Deduced,
        };
        let one_piece = match inner {
            Type::Known(shape) => match shape.kind() {
                Kind::Scalar => false,
                Kind::List => shape.list() == ListMerge::Atomic,
                Kind::Struct | Kind::Map | Kind::Unknown => shape.atomic(),
            },
            Type::Deduced => continue,
            Type::Opaque => true,
        };
        if one_piece {
            *node = Node::LEAF;
        } else {
            reconcile(inner, &mut node.below);
        }
    }
}

impl<S: Shape> Type<S> {
    fn may_be_object(self) -> bool {
        match self {
            Self::Known(shape) => matches!(shape.kind(), Kind::Struct | Kind::Map | Kind::Unknown),
            Self::Deduced | Self::Opaque => true,
        }
    }

    fn may_be_list(self) -> bool {
        match self {
            Self::Known(shape) => matches!(shape.kind(), Kind::List | Kind::Unknown),
            Self::Deduced | Self::Opaque => true,
        }
    }
}

pub(super) fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub(super) fn members(value: &Value) -> Option<&Map<String, Value>> {
    value.as_object()
}
