//! Writes that are not an apply: create, replace, and the other patches.
//!
//! In: the object before and after. Out: the object after, with the changed fields recorded as the writer's. Must stay true:
//! a write that changes nothing leaves the record alone, a field has no more than one updater, and there are never more than
//! ten updaters ([`MAX_UPDATERS`]).

use super::Request;
use super::fields::FieldSet;
use super::managers::{Identity, Manager, Operation, read_managers, remove_managers, write_managers};
use super::path::Path;
use super::typed::{Changes, Type, check, compare, reconcile};
use crate::Shape;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// When there are more updaters than this, the oldest are merged into one.
pub(super) const MAX_UPDATERS: usize = 10;

/// The name under which the oldest updaters are merged.
const ANCIENT: &str = "ancient-changes";

/// Records a write that is not an apply, and answers `new` with `metadata.managedFields` brought up to date.
///
/// Without `live`, or with one that has no `uid`, the object is being created. The record of `new` itself counts where the client sent one: that is how
/// clients edit it, and an empty one resets it; through a subresource only the record of `live` counts. An object that exists
/// (it has a `uid`) and is not tracked stays untracked until it is first applied to. When an object does not fit `shape` its
/// record cannot be kept and is dropped, as the API server does.
///
/// ```
/// use k8s_merge::{Untyped, apply::{self, FieldSet, Request}};
/// use serde_json::json;
///
/// let request = Request {
///     manager: "curl", api_version: "v1", subresource: None, now: "2026-01-01T00:00:00Z", force: false,
///     ignored: FieldSet::EMPTY,
/// };
/// let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "paint"}, "data": {"color": "red"}});
/// let stored = apply::update(None, map, Untyped, &request);
/// assert_eq!(stored["metadata"]["managedFields"], json!([{
///     "manager": "curl", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
///     "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {".": {}, "f:color": {}}},
/// }]));
/// ```
pub fn update<S: Shape>(live: Option<&Value>, mut new: Value, shape: S, request: &Request<'_>) -> Value {
    let mut managers = recorded(live, &new, request.subresource.is_some());
    remove_managers(&mut new);
    if managers.is_empty() && live.is_some_and(has_uid) {
        return new;
    }
    let of = Type::Known(shape);
    if live.is_some_and(|live| check(of, live, true).is_err()) || check(of, &new, true).is_err() {
        return new;
    }
    match live {
        // It still has its record, which differs from the one of `new`; but nobody owns that.
        Some(live) => record_update(of, live, &new, &mut managers, request),
        None => record_update(of, &empty_object(&new), &new, &mut managers, request),
    }
    write_managers(&mut new, &managers);
    new
}

/// Gives the entries of `metadata.managedFields` in `new` their times in `live` back, if the objects are otherwise the same.
///
/// To be called with the object about to be stored, after defaults and admission: a write that in the end changes nothing
/// must not make a new version of the object only because it was made at another time.
pub fn keep_times(live: &Value, new: &mut Value) {
    fn times(object: &Value) -> Option<Vec<Option<Value>>> {
        let entries = object.get("metadata")?.get("managedFields")?.as_array()?;
        Some(entries.iter().map(|entry| entry.get("time").cloned()).collect())
    }
    fn set(object: &mut Value, times: &[Option<Value>]) -> Option<()> {
        let entries = object.get_mut("metadata")?.get_mut("managedFields")?.as_array_mut()?;
        for (entry, time) in entries.iter_mut().zip(times) {
            let entry = entry.as_object_mut()?;
            match time {
                Some(time) => entry.insert("time".to_owned(), time.clone()),
                None => entry.remove("time"),
            };
        }
        Some(())
    }
    let (Some(old), Some(current)) = (times(live), times(new)) else { return };
    if old.len() != current.len() || old == current {
        return;
    }
    set(new, &old);
    if *new != *live {
        set(new, &current);
    }
}

/// The managers to start from.
fn recorded(live: Option<&Value>, new: &Value, subresource: bool) -> Vec<Manager> {
    let of_live = || live.and_then(|live| read_managers(live).ok()).unwrap_or_default();
    if subresource {
        return of_live();
    }
    let sent = new.get("metadata").and_then(|metadata| metadata.get("managedFields"));
    let reset = match sent {
        Some(Value::Array(entries)) => match entries.as_slice() {
            [] => true,
            [Value::Object(entry)] => says_nothing(entry),
            _ => false,
        },
        _ => false,
    };
    if reset {
        return Vec::new();
    }
    match read_managers(new) {
        Ok(managers) if !managers.is_empty() => managers,
        _ => of_live(),
    }
}

/// Whether an entry of the record is blank; members that entries do not have do not count.
fn says_nothing(entry: &Map<String, Value>) -> bool {
    const MEMBERS: [&str; 7] =
        ["manager", "operation", "apiVersion", "time", "fieldsType", "fieldsV1", "subresource"];
    MEMBERS.iter().all(|name| entry.get(*name).is_none_or(|value| value.is_null() || value == ""))
}

pub(super) fn has_uid(object: &Value) -> bool {
    let uid = object.get("metadata").and_then(|metadata| metadata.get("uid")).and_then(Value::as_str);
    uid.is_some_and(|uid| !uid.is_empty())
}

/// The object before the write. One that does not exist yet has a type but nothing else.
pub(super) fn live_without_record(live: Option<&Value>, new: &Value) -> Value {
    match live {
        Some(live) => {
            let mut live = live.clone();
            remove_managers(&mut live);
            live
        }
        None => empty_object(new),
    }
}

/// An object of the type of `like`, without content.
pub(super) fn empty_object(like: &Value) -> Value {
    let kept = ["apiVersion", "kind"].into_iter().filter_map(|name| {
        let value = like.get(name).filter(|value| value.is_string())?;
        Some((name.to_owned(), value.clone()))
    });
    Value::Object(kept.collect::<Map<String, Value>>())
}

/// Records that `request.manager` changed `live` into `new`.
pub(super) fn record_update<S: Shape>(
    of: Type<S>,
    live: &Value,
    new: &Value,
    managers: &mut Vec<Manager>,
    request: &Request<'_>,
) {
    let changes = compare(of, live, new).without(request.ignored);
    for manager in managers.iter_mut() {
        reconcile(of, &mut manager.fields);
    }
    hand_over(changes, managers, request);
}

/// What changed is the writer's from now on, and nobody else's.
pub(super) fn hand_over(changes: Changes, managers: &mut Vec<Manager>, request: &Request<'_>) {
    for manager in managers.iter_mut() {
        forget_changes(&mut manager.fields, &changes);
    }
    // An entry that is emptied here and filled again below is the same entry.
    let mut written = changes.modified;
    written.absorb(changes.added);
    written.subtract(&NOT_OWNED);
    let who = writer(request, Operation::Update);
    if !written.is_empty() {
        let manager = match managers.iter_mut().position(|manager| manager.identity() == who) {
            Some(at) => managers.get_mut(at),
            None => {
                managers.push(Manager {
                    name: who.name,
                    operation: Operation::Update,
                    api_version: request.api_version.to_owned(),
                    subresource: who.subresource,
                    time: None,
                    fields: FieldSet::new(),
                });
                managers.last_mut()
            }
        };
        if let Some(manager) = manager {
            manager.fields.absorb(written);
            manager.time = Some(request.now.to_owned());
        }
    }
    managers.retain(|manager| !manager.fields.is_empty());
    cap(managers);
}

/// Takes out of a manager's fields what someone else changed.
pub(super) fn forget_changes(fields: &mut FieldSet, changes: &Changes) {
    fields.subtract(&changes.modified);
    fields.subtract(&changes.added);
    fields.subtract(&changes.removed);
}

/// Who makes this request.
pub(super) fn writer(request: &Request<'_>, operation: Operation) -> Identity {
    Identity {
        name: if request.manager.is_empty() { "unknown" } else { request.manager }.to_owned(),
        operation,
        api_version: match operation {
            Operation::Apply => String::new(),
            Operation::Update => request.api_version.to_owned(),
        },
        subresource: request.subresource.filter(|name| !name.is_empty()).map(str::to_owned),
    }
}

/// Fields that nobody owns, because clients may not choose them or may not change them.
pub(super) static NOT_OWNED: LazyLock<FieldSet> = LazyLock::new(|| {
    const METADATA: [&str; 9] = [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ];
    let top = ["apiVersion", "kind", "metadata"].map(|name| Path::fields([name]));
    top.into_iter().chain(METADATA.map(|name| Path::fields(["metadata", name]))).collect()
});

/// Merges the oldest updaters, version by version, until there are no more than [`MAX_UPDATERS`].
fn cap(managers: &mut Vec<Manager>) {
    let is_updater = |manager: &&Manager| manager.operation == Operation::Update;
    let mut excess = managers.iter().filter(is_updater).count().saturating_sub(MAX_UPDATERS);
    if excess == 0 {
        return;
    }
    let mut oldest: Vec<(i64, String, usize)> = managers
        .iter()
        .enumerate()
        .filter(|(_, manager)| is_updater(manager))
        .map(|(at, manager)| (manager.seconds(), manager.identity().sort_key(), at))
        .collect();
    oldest.sort_unstable();

    // The entry of each version that takes the others in: one from an earlier time, or else the oldest.
    let mut buckets: BTreeMap<String, usize> = BTreeMap::new();
    for (at, manager) in managers.iter().enumerate().filter(|(_, manager)| is_updater(manager)) {
        if manager.name == ANCIENT && manager.subresource.is_none() {
            buckets.insert(manager.api_version.clone(), at);
        }
    }
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for (_, _, at) in oldest {
        if excess == 0 {
            break;
        }
        let Some(manager) = managers.get(at) else { continue };
        let bucket = *buckets.entry(manager.api_version.clone()).or_insert(at);
        if seen.insert(manager.api_version.clone()) || bucket == at {
            continue;
        }
        let (fields, time) = (manager.fields.clone(), manager.time.clone());
        if let Some(bucket) = managers.get_mut(bucket) {
            bucket.fields.add(&fields);
            bucket.time = time;
            ANCIENT.clone_into(&mut bucket.name);
            bucket.subresource = None;
        }
        if let Some(manager) = managers.get_mut(at) {
            manager.fields = FieldSet::new();
        }
        excess -= 1;
    }
    managers.retain(|manager| !manager.fields.is_empty());
}
