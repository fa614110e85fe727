//! What all slim kinds have in common: where they live, their metadata, conditions, selectors.
//!
//! In: the JSON of an object. Out: a struct with the fields that somebody looks at; the rest is skipped while decoding,
//! so that ten thousand objects stay small. Each room declares the kinds that it reads with [`kinds!`](crate::kinds).
//! Must stay true: decoding never fails on a field that is absent, and slim objects are never written back whole.

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use crate::strings::{Strings, quantities};
pub use crate::word::Word;

/// Where a kind lives in the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resource {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
}

impl Resource {
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The URL path of a collection (empty `name`), an object or a subresource (`sub`).
    pub fn path(&self, namespace: &str, name: &str, sub: &str) -> String {
        let mut path = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        if !namespace.is_empty() {
            path.push_str("/namespaces/");
            path.push_str(namespace);
        }
        path.push('/');
        path.push_str(self.plural);
        for part in [name, sub] {
            if !part.is_empty() {
                path.push('/');
                path.push_str(part);
            }
        }
        path
    }
}

/// A kind that somebody watches.
pub trait Object: DeserializeOwned + Send + Sync + 'static {
    const RESOURCE: Resource;
    fn meta(&self) -> &Meta;

    fn key(&self) -> Key {
        Key { namespace: self.meta().namespace.clone(), name: self.meta().name.clone() }
    }
}

/// Namespace and name; the namespace is empty for cluster-wide kinds.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Key {
    pub namespace: String,
    pub name: String,
}

impl Key {
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Key { namespace: namespace.into(), name: name.into() }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub resource_version: String,
    pub generation: i64,
    pub labels: Strings,
    pub annotations: Strings,
    #[serde(deserialize_with = "tight")]
    pub owner_references: Vec<OwnerRef>,
    #[serde(deserialize_with = "tight")]
    pub finalizers: Vec<String>,
    pub creation_timestamp: Option<Timestamp>,
    pub deletion_timestamp: Option<Timestamp>,
    pub deletion_grace_period_seconds: Option<i64>,
}

impl Meta {
    /// The owner that controls this object, if it has one.
    pub fn controller(&self) -> Option<&OwnerRef> {
        self.owner_references.iter().find(|o| o.controller)
    }

    pub fn controlled_by(&self, uid: &str) -> bool {
        self.controller().is_some_and(|o| o.uid == uid)
    }

    pub fn deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// It was deleted, and neither a finalizer nor time to end holds it: whoever gets this as an answer has seen the last of it.
    pub fn is_last(&self) -> bool {
        self.deleting()
            && self.finalizers.is_empty()
            && self.deletion_grace_period_seconds.unwrap_or_default() == 0
    }

    pub fn created(&self) -> Timestamp {
        self.creation_timestamp.unwrap_or(Timestamp::MIN)
    }

    /// Resource versions compare as numbers; one that is no number counts as the oldest.
    pub fn version(&self) -> u64 {
        self.resource_version.parse().unwrap_or(0)
    }

    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.annotations.get(name).map(String::as_str)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerRef {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
    pub controller: bool,
}

/// The owner reference that makes `owner` the controller of a new object.
pub fn controller_ref<T: Object>(owner: &T) -> Value {
    json!({
        "apiVersion": T::RESOURCE.api_version(),
        "kind": T::RESOURCE.kind,
        "name": owner.meta().name,
        "uid": owner.meta().uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Selector {
    #[serde(skip_serializing_if = "Strings::is_empty")]
    pub match_labels: Strings,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<Requirement>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Requirement {
    pub key: String,
    pub operator: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

impl Selector {
    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }

    /// An empty selector matches everything; a requirement with an unknown operator matches nothing.
    pub fn matches(&self, labels: &Strings) -> bool {
        self.match_labels.iter().all(|(k, v)| labels.get(k) == Some(v))
            && self.match_expressions.iter().all(|r| r.matches(labels))
    }

    /// The query-string form, as the scale subresource shows it.
    pub fn to_query(&self) -> String {
        let mut parts: Vec<String> = self.match_labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
        for r in &self.match_expressions {
            parts.push(match r.operator.as_str() {
                "In" => format!("{} in ({})", r.key, r.values.join(",")),
                "NotIn" => format!("{} notin ({})", r.key, r.values.join(",")),
                "DoesNotExist" => format!("!{}", r.key),
                _ => r.key.clone(),
            });
        }
        parts.join(",")
    }
}

impl Requirement {
    /// The rules of label selectors; `Gt` and `Lt` are those of node affinity.
    pub fn matches(&self, labels: &Strings) -> bool {
        let found = labels.get(&self.key);
        match self.operator.as_str() {
            "In" => found.is_some_and(|v| self.values.contains(v)),
            "NotIn" => found.is_none_or(|v| !self.values.contains(v)),
            "Exists" => found.is_some(),
            "DoesNotExist" => found.is_none(),
            "Gt" | "Lt" => {
                let number = |s: &String| s.parse::<i64>().ok();
                match (found.and_then(number), self.values.first().and_then(number)) {
                    (Some(have), Some(want)) if self.operator == "Gt" => have > want,
                    (Some(have), Some(want)) => have < want,
                    _ => false,
                }
            }
            _ => false,
        }
    }
}

/// A whole number or a percentage, as in `maxSurge`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum IntOrPercent {
    Int(i64),
    Text(String),
}

impl IntOrPercent {
    /// The number meant for a total; percentages round up or down. What cannot be read counts as zero.
    pub fn of(&self, total: i64, round_up: bool) -> i64 {
        match self {
            IntOrPercent::Int(n) => *n,
            IntOrPercent::Text(text) => match text.strip_suffix('%').map(str::parse::<i64>) {
                Some(Ok(percent)) => {
                    let scaled = i128::from(percent) * i128::from(total);
                    let whole = scaled.div_euclid(100) + i128::from(round_up && scaled.rem_euclid(100) != 0);
                    i64::try_from(whole).unwrap_or(i64::MAX)
                }
                _ => text.parse().unwrap_or(0),
            },
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: Word,
    pub status: Word,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_probe_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_time: Option<Timestamp>,
}

/// What every form of a condition says: what about, and whether it holds.
pub trait Says {
    fn kind(&self) -> &str;
    fn status(&self) -> &str;
}

impl Says for Condition {
    fn kind(&self) -> &str {
        &self.kind
    }

    fn status(&self) -> &str {
        &self.status
    }
}

pub fn condition<'a, C: Says>(conditions: &'a [C], kind: &str) -> Option<&'a C> {
    conditions.iter().find(|c| c.kind() == kind)
}

pub fn is_true(conditions: &[impl Says], kind: &str) -> bool {
    condition(conditions, kind).is_some_and(|c| c.status() == "True")
}

/// A list without spare room: a decoder grows a list to four or eight places for one element, and ten thousand pods
/// have many lists of one element.
pub fn tight<'de, D, T>(from: D) -> Result<Vec<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    let mut list: Vec<T> = Deserialize::deserialize(from)?;
    list.shrink_to_fit();
    Ok(list)
}

/// JSON that is only handed on, kept as the text that came: a tree of it would take ten times the memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unread(Box<str>);

impl<'de> Deserialize<'de> for Unread {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = <Box<serde_json::value::RawValue>>::deserialize(from)?;
        Ok(Unread(text.into()))
    }
}

impl Serialize for Unread {
    fn serialize<S: serde::Serializer>(&self, into: S) -> Result<S::Ok, S::Error> {
        let text = serde_json::from_str::<&serde_json::value::RawValue>(&self.0);
        text.map_err(serde::ser::Error::custom)?.serialize(into)
    }
}

/// Declares a slim kind: where it lives, and how its metadata is reached.
#[macro_export]
macro_rules! kinds {
    ($($type:ident = $group:literal $version:literal $kind:literal $plural:literal;)*) => {$(
        impl $crate::object::Object for $type {
            const RESOURCE: $crate::object::Resource =
                $crate::object::Resource { group: $group, version: $version, kind: $kind, plural: $plural };
            fn meta(&self) -> &$crate::object::Meta {
                &self.metadata
            }
        }
    )*};
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_not_read_is_handed_on_as_it_came() {
        for text in ["[]", r#"[{"key":"a","operator":"Exists"}]"#, "null", r#""word""#] {
            let unread: Unread = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&unread).unwrap(), text);
            let tree: Value = serde_json::from_str(text).unwrap();
            assert_eq!(json!(unread), tree);
            assert_eq!(serde_json::from_value::<Unread>(tree).unwrap(), unread);
        }
    }

    use super::*;

    #[test]
    fn the_last_of_an_object() {
        let check = |meta: Value, expected: bool| {
            assert_eq!(serde_json::from_value::<Meta>(meta.clone()).unwrap().is_last(), expected, "{meta}");
        };
        let at = "2026-01-01T00:00:00Z";
        check(json!({}), false);
        check(json!({"deletionTimestamp": at}), true);
        check(json!({"deletionTimestamp": at, "deletionGracePeriodSeconds": 0}), true);
        check(json!({"deletionTimestamp": at, "deletionGracePeriodSeconds": 30}), false);
        check(json!({"deletionTimestamp": at, "finalizers": ["a/b"]}), false);
    }

    fn labels(text: &str) -> Strings {
        text.split_terminator(',')
            .filter_map(|p| p.split_once('='))
            .map(|(k, v)| (k.into(), v.into()))
            .collect()
    }

    #[track_caller]
    fn check_requirement(operator: &str, values: &[&str], have: &str, expected: bool) {
        let requirement = Requirement {
            key: "k".into(),
            operator: operator.into(),
            values: values.iter().map(|v| (*v).to_owned()).collect(),
        };
        assert_eq!(requirement.matches(&labels(have)), expected, "{operator} {values:?} on {have}");
    }

    #[test]
    fn requirements() {
        check_requirement("In", &["a", "b"], "k=b", true);
        check_requirement("In", &["a", "b"], "k=c", false);
        check_requirement("In", &["a"], "", false);
        check_requirement("NotIn", &["a"], "", true);
        check_requirement("NotIn", &["a"], "k=a", false);
        check_requirement("Exists", &[], "k=", true);
        check_requirement("DoesNotExist", &[], "j=1", true);
        check_requirement("Gt", &["5"], "k=6", true);
        check_requirement("Gt", &["5"], "k=5", false);
        check_requirement("Lt", &["5"], "k=x", false);
        check_requirement("Sideways", &["5"], "k=5", false);
    }

    #[track_caller]
    fn check_percent(text: &str, total: i64, round_up: bool, expected: i64) {
        assert_eq!(IntOrPercent::Text(text.into()).of(total, round_up), expected, "{text} of {total}");
    }

    #[test]
    fn percentages() {
        check_percent("25%", 10, true, 3);
        check_percent("25%", 10, false, 2);
        check_percent("100%", 7, false, 7);
        check_percent("0%", 7, true, 0);
        check_percent("9223372036854775807%", i64::MAX, true, i64::MAX);
        check_percent("junk", 7, true, 0);
        assert_eq!(IntOrPercent::Int(4).of(100, true), 4);
    }

    #[test]
    fn paths() {
        let pods = Resource { group: "", version: "v1", kind: "Pod", plural: "pods" };
        let sets = Resource { group: "apps", version: "v1", kind: "ReplicaSet", plural: "replicasets" };
        assert_eq!(pods.path("a", "b", "status"), "/api/v1/namespaces/a/pods/b/status");
        assert_eq!(pods.path("", "n", ""), "/api/v1/pods/n");
        assert_eq!(sets.path("", "", ""), "/apis/apps/v1/replicasets");
    }
}
