//! From a pod upward: its owner, the owner's owner, and so on.
//!
//! In: a pod, and whatever is known of owners. Out: the chain from the pod's first owner to the top, or the owner that
//! must be read next. Must stay true: no walk is longer than [`MOST_OWNERS`], whatever owners say of each other; an owner
//! that cannot be read ends the chain below it.

use std::sync::Arc;

use muster_runtime::common::Pod;
use muster_runtime::object::{Meta, OwnerRef, Strings};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::group::GroupingError;
use crate::keys;

/// More than any real chain has: the longest is a worker of a LeaderWorkerSet, with four.
pub const MOST_OWNERS: usize = 16;

/// One object that owns pods, or that owns an owner: what grouping looks at, and nothing else.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Owner {
    pub api_version: String,
    pub kind: String,
    /// Empty for a kind that is not in namespaces.
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub labels: Strings,
    pub annotations: Strings,
    pub owners: Vec<OwnerRef>,
    /// Null unless its kind is one whose spec matters; of Jobs, of which there may be very many, only `completions`.
    pub spec: Value,
    /// Null unless its kind is one whose status matters; then only the fields that do, as the rest changes all the time.
    pub status: Value,
}

/// Which parts of an owner are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Keep {
    pub spec: bool,
    /// Of the spec, only how many pods must succeed.
    pub completions: bool,
    pub status: bool,
}

impl Owner {
    /// Reads the JSON of an object; `None` if it is none.
    pub fn read(api_version: &str, kind: &str, text: &str, keep: Keep) -> Option<Owner> {
        let raw: Raw<'_> = serde_json::from_str(text).ok()?;
        let part = |wanted: bool, raw: Option<&RawValue>| -> Option<Value> {
            match raw {
                Some(raw) if wanted => serde_json::from_str(raw.get()).ok(),
                _ => Some(Value::Null),
            }
        };
        let mut annotations = raw.metadata.annotations;
        annotations.remove(keys::LAST_APPLIED);
        Some(Owner {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: raw.metadata.namespace,
            name: raw.metadata.name,
            uid: raw.metadata.uid,
            labels: raw.metadata.labels,
            annotations,
            owners: raw.metadata.owner_references,
            spec: match raw.spec.filter(|_| keep.completions) {
                None => part(keep.spec, raw.spec)?,
                Some(raw) => {
                    let read = serde_json::from_str::<Completions>(raw.get()).ok();
                    let n = read.and_then(|spec| spec.completions);
                    n.map_or(Value::Null, |n| serde_json::json!({"completions": n}))
                }
            },
            status: match part(keep.status, raw.status)? {
                Value::Null => Value::Null,
                status => crate::kinds::ray::names_only(&status),
            },
        })
    }

    /// A pod that owns others, such as the driver of a Spark application.
    pub fn of_pod(pod: &Meta) -> Owner {
        Owner {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            labels: pod.labels.clone(),
            annotations: pod.annotations.clone(),
            owners: pod.owner_references.clone(),
            spec: Value::Null,
            status: Value::Null,
        }
    }

    pub fn group(&self) -> &str {
        group_of(&self.api_version)
    }
}

/// The API group of an `apiVersion`; empty for the core group.
pub fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// The version of an `apiVersion`.
pub fn version_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or(api_version, |(_, version)| version)
}

#[derive(Deserialize)]
struct Raw<'a> {
    #[serde(default)]
    metadata: RawMeta,
    #[serde(borrow, default)]
    spec: Option<&'a RawValue>,
    #[serde(borrow, default)]
    status: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Completions {
    completions: Option<Value>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawMeta {
    name: String,
    namespace: String,
    uid: String,
    labels: Strings,
    annotations: Strings,
    owner_references: Vec<OwnerRef>,
}

/// An object by name; an empty `uid` means whichever has the name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Reference {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
}

impl From<&OwnerRef> for Reference {
    fn from(owner: &OwnerRef) -> Self {
        Reference {
            api_version: owner.api_version.clone(),
            kind: owner.kind.clone(),
            name: owner.name.clone(),
            uid: owner.uid.clone(),
        }
    }
}

/// What is known of one object.
#[derive(Debug, Clone, PartialEq)]
pub enum Found {
    Known(Arc<Owner>),
    /// There is no such object any more.
    Gone,
    /// It may not be read, or its kind is not served.
    Closed,
}

/// Why a chain ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The last one has no owner.
    Top,
    /// The owner of the last one is gone, so all of this is about to go.
    Gone,
    /// The owner of the last one cannot be read.
    Closed,
}

/// How far a walk came.
#[derive(Debug, PartialEq)]
pub enum Walk {
    Chain(Vec<Arc<Owner>>, End),
    /// This owner must be read first.
    Unread(Reference),
}

/// Walks from a pod to the top of what owns it. `find` says what is known; `None` is nothing yet.
pub fn walk(pod: &Pod, mut find: impl FnMut(&Reference) -> Option<Found>) -> Result<Walk, GroupingError> {
    let mut chain: Vec<Arc<Owner>> = Vec::new();
    // Of several owners of a pod, the first counts; above the pod there may be one only.
    let mut next = pod.metadata.owner_references.first().map(Reference::from);
    while let Some(reference) = next {
        let owner = match find(&reference) {
            None => return Ok(Walk::Unread(reference)),
            Some(Found::Gone) => return Ok(Walk::Chain(chain, End::Gone)),
            Some(Found::Closed) => return Ok(Walk::Chain(chain, End::Closed)),
            Some(Found::Known(owner)) => owner,
        };
        if chain.len() >= MOST_OWNERS || chain.iter().any(|o| o.uid == owner.uid) {
            return Err(GroupingError::Circle {
                object: format!("{} {}", owner.kind, owner.name),
                most: MOST_OWNERS,
            });
        }
        if owner.owners.len() > 1 {
            return Err(GroupingError::ManyOwners {
                object: object_name(&owner.kind, &pod.metadata.namespace, &owner.name),
                owners: owner.owners.iter().map(|o| format!("{} {}", o.kind, o.name)).collect(),
            });
        }
        next = owner.owners.first().map(Reference::from);
        chain.push(owner);
    }
    Ok(Walk::Chain(chain, End::Top))
}

/// `Job team/train`, as messages name objects.
pub fn object_name(kind: &str, namespace: &str, name: &str) -> String {
    if namespace.is_empty() { format!("{kind} {name}") } else { format!("{kind} {namespace}/{name}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn owner_ref(name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "K", "name": name, "uid": name})
    }

    /// Owners as `name<owner,owner`, `-name` for one that is gone, `?name` for one not read yet, `!name` for a closed one.
    #[track_caller]
    fn check(pod_owners: &[&str], known: &str, expected: &str) {
        let refs: Vec<Value> = pod_owners.iter().map(|n| owner_ref(n)).collect();
        let pod: Pod = serde_json::from_value(
            json!({"metadata": {"name": "p", "namespace": "ns", "ownerReferences": refs}}),
        )
        .unwrap();
        let find = |reference: &Reference| {
            let name = reference.name.as_str();
            for word in known.split_whitespace() {
                match word.as_bytes()[0] {
                    b'-' if &word[1..] == name => return Some(Found::Gone),
                    b'!' if &word[1..] == name => return Some(Found::Closed),
                    _ => {}
                }
                let (own, above) = word.split_once('<').unwrap_or((word, ""));
                if own == name {
                    let refs: Vec<Value> = above.split_terminator(',').map(owner_ref).collect();
                    let text = json!({"metadata": {"name": name, "uid": name, "ownerReferences": refs}});
                    let owner = Owner::read("v1", "K", &text.to_string(), Keep::default()).unwrap();
                    return Some(Found::Known(Arc::new(owner)));
                }
            }
            None
        };
        let shown = match walk(&pod, find) {
            Ok(Walk::Chain(chain, end)) => {
                let names: Vec<&str> = chain.iter().map(|o| o.name.as_str()).collect();
                format!("{} {end:?}", names.join("<")).trim().to_owned()
            }
            Ok(Walk::Unread(reference)) => format!("read {}", reference.name),
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected);
    }

    #[test]
    fn walks() {
        check(&[], "", "Top");
        check(&["a"], "a", "a Top");
        check(&["a", "b"], "a b", "a Top");
        check(&["a"], "a<b b<c c", "a<b<c Top");
        check(&["a"], "", "read a");
        check(&["a"], "a<b", "read b");
        check(&["a"], "-a", "Gone");
        check(&["a"], "a<b -b", "a Gone");
        check(&["a"], "a<b !b", "a Closed");
        check(
            &["a"],
            "a<b,c b c",
            "K ns/a has 2 owners (K b, K c): a pod is grouped by one chain of owners. Remove all but one of its metadata.ownerReferences, or annotate the pods with kai.scheduler/skip-podgrouper: \"true\"",
        );
        check(
            &["a"],
            "a<b b<a",
            "the owners of K a form a circle, or are more than 16: remove one of their metadata.ownerReferences",
        );
    }

    #[test]
    fn keeps_what_matters() {
        let text = json!({
            "metadata": {"name": "n", "annotations": {"a": "1", keys::LAST_APPLIED: "{}"}},
            "spec": {"x": 1}, "status": {"rayClusterName": "c", "y": 2},
        });
        let read = |keep| Owner::read("g/v1", "K", &text.to_string(), keep).unwrap();
        assert_eq!(read(Keep::default()).spec, Value::Null);
        assert_eq!(read(Keep { spec: true, ..Keep::default() }).spec, json!({"x": 1}));
        let completions = Keep { completions: true, ..Keep::default() };
        let job = json!({"spec": {"completions": 3, "template": {}}}).to_string();
        assert_eq!(Owner::read("g/v1", "K", &job, completions).unwrap().spec, json!({"completions": 3}));
        assert_eq!(read(completions).spec, Value::Null);
        assert_eq!(Owner::read("g/v1", "K", r#"{"spec": 5}"#, completions).unwrap().spec, Value::Null);
        assert_eq!(read(Keep { status: true, ..Keep::default() }).status, json!({"rayClusterName": "c"}));
        assert_eq!(read(Keep::default()).annotations.len(), 1);
        assert_eq!(Owner::read("v1", "K", "5", Keep::default()), None);
        assert_eq!(
            (group_of("g/v1"), version_of("g/v1"), group_of("v1"), version_of("v1")),
            ("g", "v1", "", "v1")
        );
    }
}
