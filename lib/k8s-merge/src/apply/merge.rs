//! Applying a configuration.
//!
//! In: the stored object, a configuration, and who applies it. Out: the merged object, or a refusal. Must stay true: the
//! manager owns exactly what it applied, nothing it did not apply before or now changes, and without force no field that
//! another manager owns gets another value.

use super::Request;
use super::fields::FieldSet;
use super::managers::{Identity, Manager, Operation, ReadError, read_managers, write_managers};
use super::path::{Path, equal};
use super::typed::{Type, TypeError, check, compare, fields, merge, reconcile, remove, with_parents};
use super::update::{NOT_OWNED, empty_object, forget_changes, live_without_record, record_update, writer};
use crate::Shape;
use crate::go_format::Quoted;
use serde_json::{Map, Value};

/// Why an apply is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// Other managers own some of the fields at other values. A `409`.
    #[error("{}", conflict_message(.0))]
    Conflicts(Vec<Conflict>),
    /// The configuration does not fit the type.
    #[error("failed to create typed patch object ({object}): {}", type_message(.errors))]
    Type {
        /// Namespace, name and kind of the configuration.
        object: String,
        /// What does not fit, and where.
        errors: Vec<TypeError>,
    },
    /// The stored object does not fit the type.
    #[error("failed to create typed live object ({object}): {}", type_message(.errors))]
    Live {
        /// Namespace, name and kind of the object.
        object: String,
        /// What does not fit, and where.
        errors: Vec<TypeError>,
    },
    /// The merged object does not fit the type: an element of a list lost its key, because the record of who owns what is
    /// at odds with the object.
    #[error("failed to compare objects: {}", type_message(.errors))]
    Merged {
        /// What does not fit, and where.
        errors: Vec<TypeError>,
    },
    /// The configuration carries `metadata.managedFields`. A `400`.
    #[error("metadata.managedFields must be nil")]
    ManagedFields,
    /// The record of the stored object cannot be read.
    #[error("failed to decode managed fields: {0}")]
    Managers(ReadError),
}

/// A field that another manager owns at another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The name of its manager.
    pub manager: String,
    /// How it came to own the field.
    pub operation: Operation,
    /// The version it wrote in.
    pub api_version: String,
    /// The subresource it wrote through.
    pub subresource: Option<String>,
    /// The field.
    pub field: Path,
}

impl Conflict {
    /// The message of the cause in a `Status`, whose reason is `FieldManagerConflict` and whose field is
    /// [`field`](Self::field): `conflict with "kubectl" using apps/v1`.
    #[must_use]
    pub fn message(&self) -> String {
        format!("conflict with {}", self.whom())
    }

    /// Updaters are named with their version, because that is part of who they are.
    fn whom(&self) -> String {
        let mut text = Quoted(&self.manager).to_string();
        if let Some(subresource) = &self.subresource {
            text = format!("{text} with subresource {}", Quoted(subresource));
        }
        match self.operation {
            Operation::Apply => text,
            Operation::Update => format!("{text} using {}", self.api_version),
        }
    }

    fn identity(&self) -> Identity {
        Identity {
            name: self.manager.clone(),
            operation: self.operation,
            api_version: match self.operation {
                Operation::Apply => String::new(),
                Operation::Update => self.api_version.clone(),
            },
            subresource: self.subresource.clone(),
        }
    }
}

/// Applies `config` on behalf of `request.manager`, and answers the object to store.
///
/// Without `live` the object is created. A server that knows members to be there always, if only empty, passes an object that
/// has those and no `uid` instead; then nobody comes to own them by creating the object. An object that is not tracked yet has its present fields recorded as those of
/// `before-first-apply` first. `config` may leave out whatever the client does not care about; its undeclared fields are
/// merged as if untyped, so a server that wants them refused looks for them before. A list or object that is itself applied,
/// and loses everything in it, is null in the result; Kubernetes leaves it to the decoder to drop that.
///
/// The manager `kubectl` is treated as the API server treats it: its conflicts over fields that still have the value that
/// `kubectl apply` recorded in the annotation `kubectl.kubernetes.io/last-applied-configuration` are forced, and where that
/// annotation exists it is brought up to date.
pub fn apply<S: Shape>(
    live: Option<&Value>,
    config: &Value,
    shape: S,
    request: &Request<'_>,
) -> Result<Value, ApplyError> {
    let of = Type::Known(shape);
    let mut managers = live.map_or(Ok(Vec::new()), read_managers).map_err(ApplyError::Managers)?;
    let sent = config.get("metadata").and_then(|metadata| metadata.get("managedFields"));
    if sent.is_some_and(|sent| !sent.is_null()) {
        return Err(ApplyError::ManagedFields);
    }
    check(of, config, false).map_err(|errors| ApplyError::Type { object: describe(config), errors })?;
    if let Some(live) = live {
        check(of, live, true).map_err(|errors| ApplyError::Live { object: describe(live), errors })?;
    }
    let base = live_without_record(live, config);
    if managers.is_empty() {
        let earlier = Request { manager: "before-first-apply", ..*request };
        record_update(of, &empty_object(config), &base, &mut managers, &earlier);
    }

    let merged = match apply_as(of, &base, config, managers.clone(), request) {
        Err(ApplyError::Conflicts(conflicts)) if request.manager == "kubectl" => {
            let Some(allowed) = client_side_fields(of, &base, request) else {
                return Err(ApplyError::Conflicts(conflicts));
            };
            let left: Vec<_> =
                conflicts.into_iter().filter(|conflict| !allowed.contains(&conflict.field)).collect();
            if !left.is_empty() {
                return Err(ApplyError::Conflicts(left));
            }
            apply_as(of, &base, config, managers, &Request { force: true, ..*request })
        }
        result => result,
    };
    let mut merged = merged?;
    if request.manager == "kubectl" {
        refresh_last_applied(&mut merged, config);
    }
    Ok(merged)
}

fn apply_as<S: Shape>(
    of: Type<S>,
    live: &Value,
    config: &Value,
    mut managers: Vec<Manager>,
    request: &Request<'_>,
) -> Result<Value, ApplyError> {
    for manager in &mut managers {
        reconcile(of, &mut manager.fields);
    }
    let who = writer(request, Operation::Apply);
    let earlier = managers.iter().position(|manager| manager.identity() == who).map(|at| managers.remove(at));
    let mut applier = Manager {
        name: who.name,
        operation: Operation::Apply,
        api_version: request.api_version.to_owned(),
        subresource: who.subresource,
        time: earlier.as_ref().and_then(|earlier| earlier.time.clone()),
        fields: fields(of, config).difference_below(request.ignored),
    };

    let mut merged = merge(of, live, config);
    // Nothing goes away where everything is still applied: a configuration holds the parents of all its fields.
    if let Some(earlier) = earlier.filter(|earlier| !earlier.fields.is_subset(&applier.fields)) {
        let mut owned = applier.fields.clone();
        managers.iter().for_each(|manager| owned.add(&manager.fields));
        merged = prune(of, merged, &earlier.fields, &owned);
        check(of, &merged, true).map_err(|errors| ApplyError::Merged { errors })?;
    }
    if !merged.is_object() {
        merged = Value::Object(Map::new());
    }

    let changes = compare(of, live, &merged).without(request.ignored);
    let set = changes.modified.union(&changes.added);
    if !request.force {
        let conflicts = conflicts(&managers, &set);
        if !conflicts.is_empty() {
            return Err(ApplyError::Conflicts(conflicts));
        }
    }
    for manager in &mut managers {
        forget_changes(&mut manager.fields, &changes);
    }
    if !equal(live, &merged) {
        applier.time = Some(request.now.to_owned());
    }
    applier.fields.subtract(&NOT_OWNED);
    managers.push(applier);
    managers.retain(|manager| !manager.fields.is_empty());
    write_managers(&mut merged, &managers);
    Ok(merged)
}

/// `merged` without the fields that the manager applied `earlier` and that nobody owns now.
///
/// Three steps, since a field goes with what is below it: drop everything applied earlier; put back what is owned, which
/// brings the structure above it back; and put back what was dropped along though the manager never applied it.
fn prune<S: Shape>(of: Type<S>, merged: Value, earlier: &FieldSet, owned: &FieldSet) -> Value {
    let earlier = with_parents(Some(of), earlier);
    let all = with_parents(Some(of), &fields(of, &merged));
    let held = |value: &Value| with_parents(Some(of), &fields(of, value));

    let bare = remove(of, merged.clone(), &earlier);
    let kept = held(&bare).union(&with_parents(Some(of), owned));
    let pruned = remove(of, merged.clone(), &all.difference(&kept));
    remove(of, merged, &all.difference(&held(&pruned)).intersection(&earlier))
}

/// The fields of other managers among the fields that are `set` to another value.
fn conflicts(managers: &[Manager], set: &FieldSet) -> Vec<Conflict> {
    let mut sorted: Vec<&Manager> = managers.iter().collect();
    sorted.sort_by_cached_key(|manager| manager.identity().sort_key());
    let mut all = Vec::new();
    for manager in sorted {
        all.extend(manager.fields.intersection(set).paths().into_iter().map(|field| Conflict {
            manager: manager.name.clone(),
            operation: manager.operation,
            api_version: manager.api_version.clone(),
            subresource: manager.subresource.clone(),
            field,
        }));
    }
    all
}

fn conflict_message(conflicts: &[Conflict]) -> String {
    if let [conflict] = conflicts {
        return format!("Apply failed with 1 conflict: {}: {}", conflict.message(), conflict.field);
    }
    let mut text = format!("Apply failed with {} conflicts: ", conflicts.len());
    let mut sorted: Vec<&Conflict> = conflicts.iter().collect();
    sorted.sort_by_cached_key(|conflict| conflict.identity().sort_key());
    for (i, group) in sorted.chunk_by(|a, b| a.identity() == b.identity()).enumerate() {
        let whom = group.first().map(|conflict| conflict.whom()).unwrap_or_default();
        text.push_str(if i > 0 { "\n" } else { "" });
        text.push_str(&format!("conflicts with {whom}:"));
        for conflict in group {
            text.push_str(&format!("\n- {}", conflict.field));
        }
    }
    text
}

fn type_message(errors: &[TypeError]) -> String {
    if let [error] = errors {
        return error.to_string();
    }
    errors.iter().fold("errors:".to_owned(), |text, error| format!("{text}\n  {error}"))
}

/// Names an object the way the API server does: `default/web; apps/v1, Kind=Deployment`.
fn describe(object: &Value) -> String {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let metadata = object.get("metadata");
    let of_metadata = |name: &str| text(metadata.and_then(|metadata| metadata.get(name)));
    let version = text(object.get("apiVersion"));
    let version = if version.contains('/') { version } else { format!("/{version}") };
    format!(
        "{}/{}; {version}, Kind={}",
        of_metadata("namespace"),
        of_metadata("name"),
        text(object.get("kind"))
    )
}

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// More annotations than this are refused by the API server.
const MAX_ANNOTATIONS: usize = 256 * 1024;

fn last_applied(object: &Value) -> Option<&str> {
    let text = object.get("metadata")?.get("annotations")?.get(LAST_APPLIED)?.as_str()?;
    Some(text).filter(|text| !text.is_empty())
}

/// The fields that client-side apply set and nobody changed since. `None` if the object was not applied that way.
fn client_side_fields<S: Shape>(of: Type<S>, live: &Value, request: &Request<'_>) -> Option<FieldSet> {
    let applied: Value = serde_json::from_str(last_applied(live)?).ok()?;
    if applied.get("apiVersion").and_then(Value::as_str) != Some(request.api_version) {
        return None;
    }
    check(of, &applied, false).ok()?;
    check(of, live, false).ok()?;
    let mut unchanged = fields(of, &applied);
    forget_changes(&mut unchanged, &compare(of, &applied, live));
    Some(unchanged)
}

/// Keeps the annotation of client-side apply in step, so that a client may go back to it.
fn refresh_last_applied(object: &mut Value, config: &Value) {
    if last_applied(object).is_none() {
        return;
    }
    let mut config = config.clone();
    if let Some(Value::Object(annotations)) =
        config.get_mut("metadata").and_then(|metadata| metadata.get_mut("annotations"))
    {
        annotations.remove(LAST_APPLIED);
    }
    // The API server's encoder ends the document with a new line.
    let text = format!("{config}\n");
    let Some(Value::Object(annotations)) =
        object.get_mut("metadata").and_then(|metadata| metadata.get_mut("annotations"))
    else {
        return;
    };
    annotations.insert(LAST_APPLIED.to_owned(), Value::from(text));
    let size = |(name, value): (&String, &Value)| name.len() + value.as_str().map_or(0, str::len);
    if annotations.iter().map(size).sum::<usize>() > MAX_ANNOTATIONS {
        annotations.remove(LAST_APPLIED);
    }
}
