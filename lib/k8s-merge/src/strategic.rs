//! Strategic merge patch: JSON merge patch with directives, and with lists that are merged.
//!
//! In: an object, a patch, and the [`Shape`] that says which lists are merged and by which key. Out: the object, changed.
//! The patch may carry directives: `$patch`, `$retainKeys`, `$setElementOrder/<list>` and `$deleteFromPrimitiveList/<list>`.
//! Must stay true: no directive gets into the result, a refused patch changes nothing, and a list keeps the order of the
//! stored object except where the patch says otherwise.

use crate::apply::Literal;
use crate::go_format::{Plain, type_name};
use crate::{Patch, Shape, too_deep};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ORDER: &str = "$setElementOrder/";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";

/// Why a strategic merge patch is refused. Messages are those of the API server, where it has one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatchError {
    /// The object or the patch is something other than an object.
    #[error("expected a map[string]interface {{}}, but received a {0}")]
    NotAnObject(String),
    /// A list was expected.
    #[error("expected a []interface {{}}, but received a {0}")]
    NotAList(String),
    /// `$patch` has an unknown value.
    #[error("unknown patch type: {directive} in map: {map}")]
    Directive {
        /// The value.
        directive: String,
        /// Where it was.
        map: String,
    },
    /// An element asks for a merge of its list.
    #[error("merging lists cannot yet be specified in the patch")]
    MergeDirective,
    /// An element does not have the key that its list is merged by.
    #[error("map: {map} does not contain declared merge key: {key}")]
    NoMergeKey {
        /// The element.
        map: String,
        /// The key.
        key: String,
    },
    /// A list of objects is to be merged, but the type names no key.
    #[error("cannot merge lists without merge key for {0}")]
    NoKeyDeclared(String),
    /// The elements of a merged list differ in sort.
    #[error("list element types are not identical: {0}")]
    MixedList(String),
    /// An order is given for lists that are all empty.
    #[error("no elements in any of the given slices")]
    NoElements,
    /// The elements of a merged list are lists or null.
    #[error("lists of lists are not supported")]
    ListOfLists,
    /// `$retainKeys` is not a list, or the patch sets a member that is not in it.
    #[error("invalid patch format of retainKeys")]
    RetainKeys,
    /// `$setElementOrder` is not a list, or does not name a member.
    #[error("invalid patch format of setElementOrder list")]
    SetElementOrder,
    /// `$setElementOrder` contradicts the list it is about.
    #[error("The order in patch list:\n{list}\n doesn't match $setElementOrder list:\n{order}\n")]
    OrderMismatch {
        /// The list in the patch.
        list: String,
        /// The order.
        order: String,
    },
    /// `$deleteFromPrimitiveList` is about a list of objects, or does not name a member.
    #[error("invalid patch format of primitive list")]
    PrimitiveList,
    /// The object or the patch goes deeper than any object the server accepts.
    #[error("nested too deeply")]
    TooDeep,
}

/// Applies a strategic merge patch (`application/strategic-merge-patch+json`) to `target`.
///
/// Fields that `shape` does not declare are merged as if untyped: objects member by member, lists as a whole. An error leaves
/// `target` as it was.
///
/// ```
/// use k8s_merge::{OpenApi, strategic_merge};
/// use serde_json::json;
///
/// let schema = json!({"type": "object", "properties": {"containers": {
///     "type": "array", "items": {"type": "object"},
///     "x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": "name",
/// }}});
/// let mut pod = json!({"containers": [{"name": "web", "image": "web:1"}, {"name": "log", "image": "log:1"}]});
/// let patch = json!({"containers": [{"name": "web", "image": "web:2"}, {"name": "log", "$patch": "delete"}]});
/// strategic_merge(&mut pod, &patch, OpenApi(&schema))?;
/// assert_eq!(pod, json!({"containers": [{"name": "web", "image": "web:2"}]}));
/// # Ok::<(), k8s_merge::PatchError>(())
/// ```
pub fn strategic_merge<S: Shape>(target: &mut Value, patch: &Value, shape: S) -> Result<(), PatchError> {
    *target = strategic_merged(target.clone(), patch, shape)?;
    Ok(())
}

/// What becomes of `target` by a strategic merge patch.
pub fn strategic_merged<S: Shape>(target: Value, patch: &Value, shape: S) -> Result<Value, PatchError> {
    let changes = object(patch)?;
    if too_deep(&target) || too_deep(patch) {
        return Err(PatchError::TooDeep);
    }
    let original = match target {
        Value::Null => Map::new(),
        Value::Object(members) => members,
        other => return Err(PatchError::NotAnObject(type_name(&other).to_owned())),
    };
    merge_objects(original, changes, Some(shape)).map(Value::Object)
}

fn merge_objects<S: Shape>(
    mut original: Map<String, Value>,
    patch: &Map<String, Value>,
    shape: Option<S>,
) -> Result<Map<String, Value>, PatchError> {
    match patch.get(PATCH) {
        None => {}
        Some(Value::String(directive)) if directive == "replace" => return Ok(plain_members(patch)),
        Some(Value::String(directive)) if directive == "delete" => return Ok(Map::new()),
        Some(directive) => return Err(unknown_directive(directive, patch)),
    }
    retain_keys(&mut original, patch)?;
    let ordered = merge_ordered_lists(&mut original, patch, shape)?;

    for (name, change) in patch {
        if name == RETAIN_KEYS || name.starts_with("$setElementOrder") || ordered.contains(name.as_str()) {
            continue;
        }
        if let Some(list) = name.strip_prefix("$deleteFromPrimitiveList") {
            let list = list.strip_prefix('/').ok_or(PatchError::PrimitiveList)?;
            delete_from_list(&mut original, list, change)?;
            continue;
        }
        if change.is_null() {
            original.remove(name);
            continue;
        }
        let field = shape.and_then(|shape| shape.field(name));
        let strategy = field.map(Shape::patch).unwrap_or_default();
        let merged = match (original.remove(name), change) {
            (Some(Value::Object(_)), Value::Object(change)) if strategy == Patch::Replace => {
                Some(Value::Object(plain_members(change)))
            }
            (Some(Value::Object(old)), Value::Object(change)) => {
                Some(Value::Object(merge_objects(old, change, field)?))
            }
            (Some(Value::Array(old)), Value::Array(change)) => {
                Some(Value::Array(merge_lists(old, change, field, name)?))
            }
            _ => added(change),
        };
        if let Some(merged) = merged {
            original.insert(name.clone(), merged);
        }
    }
    Ok(original)
}

/// Drops the members that `$retainKeys` does not name.
fn retain_keys(original: &mut Map<String, Value>, patch: &Map<String, Value>) -> Result<(), PatchError> {
    let Some(keys) = patch.get(RETAIN_KEYS) else { return Ok(()) };
    let keys: BTreeSet<&str> =
        keys.as_array().ok_or(PatchError::RetainKeys)?.iter().filter_map(Value::as_str).collect();
    let exempt = |name: &str, change: &Value| {
        change.is_null()
            || name == RETAIN_KEYS
            || name.starts_with("$deleteFromPrimitiveList")
            || name.starts_with("$setElementOrder")
    };
    if patch.iter().any(|(name, change)| !exempt(name, change) && !keys.contains(name.as_str())) {
        return Err(PatchError::RetainKeys);
    }
    original.retain(|name, _| keys.contains(name.as_str()));
    Ok(())
}

/// Merges the lists that the patch orders, and puts them in that order. Answers the members that are thereby done.
fn merge_ordered_lists<'a, S: Shape>(
    original: &mut Map<String, Value>,
    patch: &'a Map<String, Value>,
    shape: Option<S>,
) -> Result<BTreeSet<&'a str>, PatchError> {
    let mut done = BTreeSet::new();
    for (directive, order) in patch {
        if !directive.starts_with("$setElementOrder") {
            continue;
        }
        let order = list(order)?;
        let name = directive.strip_prefix(SET_ORDER).ok_or(PatchError::SetElementOrder)?;
        let field = shape.and_then(|shape| shape.field(name));
        let strategy = field.map(Shape::patch).unwrap_or_default();
        let key = key_of(&strategy);
        let old = original.get(name).map(list).transpose()?.cloned();
        let change = patch.get(name).map(list).transpose()?;
        check_order(change.map_or(&[][..], Vec::as_slice), order, key)?;
        let merged = match (&old, change) {
            (None, None) => continue,
            (Some(old), None) => old.clone(),
            (None, Some(change)) => change.iter().filter_map(added).collect(),
            (Some(old), Some(change)) => merge_lists(old.clone(), change, field, name)?,
        };
        let (old, change) = (old.unwrap_or_default(), change.map_or(&[][..], Vec::as_slice));
        let sorts = Sorts::of(&[&old, change])?;
        let stored_order = order_after_deletes(old, change, key);
        let merged = arrange(merged, order, &stored_order, key, sorts)?;
        original.insert(name.to_owned(), Value::Array(merged));
        if let Some((name, _)) = patch.get_key_value(name) {
            done.insert(name.as_str());
        }
    }
    Ok(done)
}

/// The stored order, as far as it counts for a list that the patch orders. The API server deletes in place and adds new
/// elements in the room that this makes: so many of them count as stored last, and come after what the patch does not name.
fn order_after_deletes(mut stored: Vec<Value>, change: &[Value], key: Option<&str>) -> Vec<Value> {
    let Some(key) = key else { return stored };
    let is = |element: &Value, directive: &str| element.get(PATCH).is_some_and(|d| d == directive);
    let id = |element: &Value| element.get(key).cloned().map(Literal);
    let gone: BTreeSet<Literal> = change.iter().filter(|e| is(e, "delete")).filter_map(id).collect();
    let room = stored.len();
    stored.retain(|element| id(element).is_none_or(|id| !gone.contains(&id)));
    if !change.iter().any(|element| is(element, "replace")) {
        let mut known: BTreeSet<Literal> = stored.iter().filter_map(id).collect();
        let new =
            change.iter().filter(|e| e.get(PATCH).is_none() && id(e).is_some_and(|id| known.insert(id)));
        let new: Vec<Value> = new.take(room - stored.len()).cloned().collect();
        stored.extend(new);
    }
    stored
}

/// Refuses a patch list that is not in the given order, or that has elements the order does not name.
fn check_order(change: &[Value], order: &[Value], key: Option<&str>) -> Result<(), PatchError> {
    if change.is_empty() || order.is_empty() {
        return Ok(());
    }
    if key.is_some() {
        change.iter().try_for_each(|element| object(element).map(|_| ()))?;
    }
    let deletes = |element: &&Value| key.is_some() && element.get(PATCH).is_some_and(|d| d == "delete");
    let mut wanted = change.iter().filter(|element| !deletes(element)).peekable();
    for place in order {
        // Other directives have no place; only those after the last place count as out of order.
        while wanted.next_if(|element| element.get(PATCH).is_some()).is_some() {}
        let Some(next) = wanted.peek() else { break };
        if identity(next, key)? == identity(place, key)? {
            wanted.next();
        }
    }
    if wanted.peek().is_some() {
        let text = |items: &[Value]| Plain(&Value::Array(items.to_vec())).to_string();
        return Err(PatchError::OrderMismatch { list: text(change), order: text(order) });
    }
    Ok(())
}

fn delete_from_list(original: &mut Map<String, Value>, name: &str, gone: &Value) -> Result<(), PatchError> {
    if gone.is_null() {
        original.remove(name);
        return Ok(());
    }
    let (Some(Value::Array(items)), Value::Array(gone)) = (original.get_mut(name), gone) else {
        return Ok(());
    };
    if items.is_empty() && gone.is_empty() {
        return Ok(());
    }
    if Sorts::of(&[items, gone])? == Sorts::Objects {
        return Err(PatchError::PrimitiveList);
    }
    let gone: BTreeSet<Literal> = gone.iter().cloned().map(Literal).collect();
    items.retain(|item| !gone.contains(&Literal(item.clone())));
    Ok(())
}

/// What the elements of a merged list are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sorts {
    Scalars,
    Objects,
}

impl Sorts {
    /// The sort of all elements of all lists, of which at least one has to have an element.
    fn of(lists: &[&[Value]]) -> Result<Self, PatchError> {
        let mut all = lists.iter().copied().flatten();
        let Some(first) = all.next() else { return Err(PatchError::NoElements) };
        let sort = match first {
            Value::Object(_) => Self::Objects,
            Value::Array(_) | Value::Null => return Err(PatchError::ListOfLists),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => Self::Scalars,
        };
        if all.all(|other| std::mem::discriminant(other) == std::mem::discriminant(first)) {
            return Ok(sort);
        }
        let text: Vec<_> = lists.iter().map(|list| Plain(&Value::Array(list.to_vec())).to_string()).collect();
        Err(PatchError::MixedList(format!("[{}]", text.join(" "))))
    }
}

fn merge_lists<S: Shape>(
    original: Vec<Value>,
    patch: &[Value],
    shape: Option<S>,
    name: &str,
) -> Result<Vec<Value>, PatchError> {
    let strategy = shape.map(Shape::patch).unwrap_or_default();
    if strategy.merges().is_none() {
        return Ok(patch.iter().map(plain).collect());
    }
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    let sorts = Sorts::of(&[&original, patch])?;
    if sorts == Sorts::Scalars {
        let mut seen = BTreeSet::new();
        let both = original.iter().chain(patch);
        let merged = both.filter(|item| seen.insert(Literal((*item).clone()))).cloned().collect();
        return arrange(merged, patch, &original, None, sorts);
    }
    let Some(key) = key_of(&strategy) else { return Err(PatchError::NoKeyDeclared(name.to_owned())) };
    let (original, patch) = obey_directives(original, patch, key)?;
    let merged = merge_elements(original.clone(), &patch, key, shape.and_then(Shape::item))?;
    arrange(merged, &patch, &original, Some(key), sorts)
}

/// Takes the elements with directives out of the patch, and does what they say.
fn obey_directives(
    mut original: Vec<Value>,
    patch: &[Value],
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), PatchError> {
    let mut rest = Vec::new();
    let mut replace = false;
    let mut gone = BTreeSet::new();
    for element in patch {
        match element.get(PATCH) {
            None => rest.push(element.clone()),
            Some(Value::String(directive)) if directive == "delete" => {
                gone.insert(identity(element, Some(key))?);
            }
            Some(Value::String(directive)) if directive == "replace" => replace = true,
            Some(Value::String(directive)) if directive == "merge" => return Err(PatchError::MergeDirective),
            Some(directive) => return Err(unknown_directive(directive, object(element)?)),
        }
    }
    if replace {
        return Ok((rest.iter().map(|element| plain_element(element, key)).collect(), Vec::new()));
    }
    if !gone.is_empty() {
        original
            .retain(|element| element.get(key).is_none_or(|value| !gone.contains(&Literal(value.clone()))));
    }
    Ok((original, rest))
}

/// Merges each element of the patch into the first one with the same key, or adds it.
fn merge_elements<S: Shape>(
    mut merged: Vec<Value>,
    patch: &[Value],
    key: &str,
    shape: Option<S>,
) -> Result<Vec<Value>, PatchError> {
    let mut places: BTreeMap<Literal, usize> = BTreeMap::new();
    for (at, element) in merged.iter().enumerate() {
        if let Some(value) = element.get(key) {
            places.entry(Literal(value.clone())).or_insert(at);
        }
    }
    for change in patch {
        let id = identity(change, Some(key))?;
        match places.get(&id).and_then(|at| merged.get_mut(*at)) {
            Some(element) => {
                let old = object(element)?.clone();
                *element = Value::Object(merge_objects(old, object(change)?, shape)?);
            }
            None => {
                places.insert(id, merged.len());
                merged.push(plain_element(change, key));
            }
        }
    }
    Ok(merged)
}

/// Orders a merged list: what the patch names is in the order of the patch, what it does not name in the order of the stored
/// list, and where the two meet the stored order decides.
fn arrange(
    merged: Vec<Value>,
    patch_order: &[Value],
    stored_order: &[Value],
    key: Option<&str>,
    sorts: Sorts,
) -> Result<Vec<Value>, PatchError> {
    let key = key.filter(|_| sorts == Sorts::Objects);
    let places = |order: &[Value]| -> Result<BTreeMap<Literal, usize>, PatchError> {
        let mut places = BTreeMap::new();
        for (at, element) in order.iter().enumerate() {
            places.entry(identity(element, key)?).or_insert(at);
        }
        Ok(places)
    };
    let (by_patch, by_store) = (places(patch_order)?, places(stored_order)?);
    let mut named = Vec::new();
    let mut others = Vec::new();
    for element in merged {
        let id = identity(&element, key)?;
        let stored = by_store.get(&id).copied();
        match by_patch.get(&id) {
            Some(place) => named.push((*place, stored, element)),
            None => others.push((stored, element)),
        }
    }
    named.sort_by_key(|(place, ..)| *place);
    others.sort_by_key(|(stored, _)| *stored);

    let mut out = Vec::with_capacity(named.len() + others.len());
    let mut others = others.into_iter().peekable();
    for (_, place, element) in named {
        while let (Some((Some(other), _)), Some(place)) = (others.peek(), place)
            && *other < place
        {
            out.extend(others.next().map(|(_, element)| element));
        }
        out.push(element);
    }
    out.extend(others.map(|(_, element)| element));
    Ok(out)
}

/// What tells an element of a merged list apart: the value of its key, or the element itself.
fn identity(element: &Value, key: Option<&str>) -> Result<Literal, PatchError> {
    let Some(key) = key else { return Ok(Literal(element.clone())) };
    object(element)?
        .get(key)
        .cloned()
        .map(Literal)
        .ok_or_else(|| PatchError::NoMergeKey { map: Plain(element).to_string(), key: key.to_owned() })
}

fn key_of(strategy: &Patch) -> Option<&str> {
    strategy.merges().flatten()
}

/// What a patch adds where there was nothing: itself, without nulls, directives, and objects that are only a directive.
fn added(change: &Value) -> Option<Value> {
    match change {
        Value::Object(members) if members.contains_key(PATCH) => None,
        Value::Object(members) => Some(Value::Object(
            members
                .iter()
                .filter(|(name, member)| !member.is_null() && !is_directive(name))
                .filter_map(|(name, member)| Some((name.clone(), added(member)?)))
                .collect(),
        )),
        Value::Array(items) => Some(Value::Array(items.iter().filter_map(added).collect())),
        other => Some(other.clone()),
    }
}

/// What a patch puts in place of something: itself, without nulls and directives.
fn plain(change: &Value) -> Value {
    match change {
        Value::Object(members) => Value::Object(plain_members(members)),
        Value::Array(items) => Value::Array(items.iter().map(plain).collect()),
        other => other.clone(),
    }
}

/// The same for an element of a merged list, which keeps its key even if that is null.
fn plain_element(change: &Value, key: &str) -> Value {
    let mut element = plain(change);
    if let (Value::Object(members), Some(Value::Null)) = (&mut element, change.get(key)) {
        members.insert(key.to_owned(), Value::Null);
    }
    element
}

fn plain_members(members: &Map<String, Value>) -> Map<String, Value> {
    let kept = members.iter().filter(|(name, member)| !member.is_null() && !is_directive(name));
    kept.map(|(name, member)| (name.clone(), plain(member))).collect()
}

fn is_directive(name: &str) -> bool {
    name == PATCH || name == RETAIN_KEYS || name.starts_with(SET_ORDER) || name.starts_with(DELETE_FROM)
}

fn object(value: &Value) -> Result<&Map<String, Value>, PatchError> {
    value.as_object().ok_or_else(|| PatchError::NotAnObject(type_name(value).to_owned()))
}

fn list(value: &Value) -> Result<&Vec<Value>, PatchError> {
    value.as_array().ok_or_else(|| PatchError::NotAList(type_name(value).to_owned()))
}

fn unknown_directive(directive: &Value, map: &Map<String, Value>) -> PatchError {
    PatchError::Directive {
        directive: Plain(directive).to_string(),
        map: Plain(&Value::Object(map.clone())).to_string(),
    }
}
