//! Decoding only what scheduling needs.
//!
//! In: the JSON of an object as the server sent it. Out: the same without the fields that take most of its room and that
//! no decision looks at (who wrote which field, images, probes, container statuses). Must stay true: a field that is not
//! on a list here is kept, so that a reader of a new field finds it; text that is no JSON gives `None`.

use muster_translate::Kind;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

/// What to leave out of an object, by field. A list is treated item by item.
enum Cut {
    Whole,
    Within(&'static [(&'static str, Cut)]),
}

use Cut::{Whole, Within};

const ANNOTATIONS: Cut = Within(&[("kubectl.kubernetes.io/last-applied-configuration", Whole)]);

/// Owners are kept: claims that are made for one pod say so there.
const METADATA: Cut = Within(&[
    ("managedFields", Whole),
    ("finalizers", Whole),
    ("generateName", Whole),
    ("annotations", ANNOTATIONS),
]);

const POD_METADATA: Cut = Within(&[
    ("managedFields", Whole),
    ("ownerReferences", Whole),
    ("finalizers", Whole),
    ("generateName", Whole),
    ("annotations", ANNOTATIONS),
]);

const CONTAINER: Cut = Within(&[
    ("image", Whole),
    ("command", Whole),
    ("args", Whole),
    ("livenessProbe", Whole),
    ("readinessProbe", Whole),
    ("startupProbe", Whole),
    ("lifecycle", Whole),
    ("securityContext", Whole),
    ("terminationMessagePath", Whole),
    ("terminationMessagePolicy", Whole),
    ("imagePullPolicy", Whole),
    ("volumeMounts", Whole),
]);

const POD: Cut = Within(&[
    ("metadata", POD_METADATA),
    (
        "spec",
        Within(&[
            ("containers", CONTAINER),
            ("initContainers", CONTAINER),
            ("ephemeralContainers", Whole),
            ("securityContext", Whole),
            ("dnsPolicy", Whole),
            ("dnsConfig", Whole),
            ("serviceAccount", Whole),
            ("serviceAccountName", Whole),
            ("imagePullSecrets", Whole),
            ("hostAliases", Whole),
        ]),
    ),
    (
        "status",
        Within(&[
            ("containerStatuses", Whole),
            ("initContainerStatuses", Whole),
            ("ephemeralContainerStatuses", Whole),
            ("podIPs", Whole),
            ("hostIPs", Whole),
        ]),
    ),
]);

const NODE: Cut = Within(&[
    ("metadata", METADATA),
    (
        "status",
        Within(&[("images", Whole), ("nodeInfo", Whole), ("volumesInUse", Whole), ("addresses", Whole)]),
    ),
]);

const OTHER: Cut = Within(&[("metadata", METADATA)]);

/// Decodes one object of a kind.
pub fn decode(kind: Kind, text: &str) -> Option<Value> {
    let cut = match kind {
        Kind::Pod => &POD,
        Kind::Node => &NODE,
        _ => &OTHER,
    };
    let mut from = serde_json::Deserializer::from_str(text);
    let value = Slim(cut).deserialize(&mut from).ok()?;
    from.end().ok()?;
    Some(value)
}

/// Reads a value without what the cut names.
#[derive(Clone, Copy)]
struct Slim(&'static Cut);

impl<'de> DeserializeSeed<'de> for Slim {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        match self.0 {
            Whole => from.deserialize_ignored_any(IgnoredAny).map(|_| Value::Null),
            Within(_) => from.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Slim {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(self)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let cuts: &[(&str, Cut)] = match self.0 {
            Within(cuts) => cuts,
            Whole => &[],
        };
        let mut fields = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            match cuts.iter().find(|(name, _)| *name == key) {
                Some((_, Whole)) => drop(map.next_value::<IgnoredAny>()?),
                Some((_, cut)) => drop(fields.insert(key, map.next_value_seed(Slim(cut))?)),
                None => drop(fields.insert(key, map.next_value()?)),
            }
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(kind: Kind, given: Value, expected: Value) {
        assert_eq!(decode(kind, &given.to_string()), Some(expected));
    }

    #[test]
    fn leaves_out_what_nobody_reads() {
        check(
            Kind::Pod,
            json!({"metadata": {"name": "a", "managedFields": [{"manager": "x"}], "annotations": {"k": "v"}},
                "spec": {"containers": [{"image": "i", "resources": {"requests": {"cpu": 1}}}], "nodeName": null},
                "status": {"phase": "Pending", "containerStatuses": [{}]}, "new": 1.5}),
            json!({"metadata": {"name": "a", "annotations": {"k": "v"}},
                "spec": {"containers": [{"resources": {"requests": {"cpu": 1}}}], "nodeName": null},
                "status": {"phase": "Pending"}, "new": 1.5}),
        );
        check(
            Kind::Node,
            json!({"status": {"images": [1], "allocatable": {}}}),
            json!({"status": {"allocatable": {}}}),
        );
        check(Kind::Queue, json!({"spec": {"images": [1]}}), json!({"spec": {"images": [1]}}));
        let claim = json!({"metadata": {"name": "c", "ownerReferences": [{"kind": "Pod", "uid": "u"}]}});
        check(Kind::ResourceClaim, claim.clone(), claim);
    }

    #[test]
    fn takes_what_has_another_type() {
        check(Kind::Pod, json!({"spec": [1, "a"], "metadata": 5}), json!({"spec": [1, "a"], "metadata": 5}));
        assert_eq!(decode(Kind::Pod, "{\"a\": 1} x"), None);
        assert_eq!(decode(Kind::Pod, &"[".repeat(100_000)), None);
    }
}
