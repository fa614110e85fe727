//! The shape of an object as the reference server would write it back.
//!
//! The reference server decodes JSON into typed values and encodes those again. That round trip is visible to clients:
//! `null` and empty values vanish, `0.5` processors become `500m`, times lose their fractions. Here it is done on JSON,
//! so that two objects that mean the same are equal as values.
//!
//! In: an object and its type. Out: the object in normal form ([`normalize`], part of [`crate::default`]), or why it
//! cannot be decoded ([`decode_error`]). What must stay true: normalising twice equals normalising once, and values of
//! the wrong type are left as they are.

use k8s_quantity::Quantity;
use serde_json::{Map, Value};
use std::borrow::Cow;

use crate::{
    Kind,
    data::{Field, Ty, Types},
};

/// Why the server answers "bad request" to an object of this kind: a value that is not of its field's type.
///
/// Unknown fields are no error here; `k8s_schema::prune` finds those.
#[must_use]
pub fn decode_error(kind: &Kind, object: &Value) -> Option<String> {
    let types = kind.types();
    let place = Place { owner: kind.kind, field: "", parent: None };
    check(types, &Ty::Ref(kind.type_id), object, &place).map(|reason| {
        format!("{} in version {:?} cannot be handled as a {}: {reason}", kind.kind, kind.version, kind.kind)
    })
}

/// Why the metadata of a custom object cannot be read, in the words of Go's JSON decoder.
#[must_use]
pub fn metadata_error(metadata: &Value) -> Option<String> {
    let types = crate::kind::types(crate::KubeVersion::V1_36);
    let id = types.by_name("meta.v1.ObjectMeta")?;
    check(types, &Ty::Ref(id), metadata, &Place { owner: "ObjectMeta", field: "", parent: None })
}

/// Puts a value of type `ty` into normal form.
pub(crate) fn normalize(types: &Types, ty: &Ty, value: &mut Value) {
    match ty {
        Ty::Ref(id) => {
            let Some(map) = value.as_object_mut() else { return };
            let def = types.get(*id);
            map.retain(|name, entry| {
                let Some(field) = def.field(name) else { return true };
                if !entry.is_null() {
                    normalize(types, &field.ty, entry);
                }
                !entry.is_null() && !is_dropped(field, entry)
            });
        }
        Ty::List(item) => {
            for entry in value.as_array_mut().into_iter().flatten() {
                normalize_entry(types, item, entry);
            }
        }
        Ty::Map(item) => {
            for (_, entry) in value.as_object_mut().into_iter().flatten() {
                normalize_entry(types, item, entry);
            }
        }
        Ty::Quantity => {
            if let Some(text) = quantity_text(value).and_then(|text| k8s_quantity::stored_text(&text).ok()) {
                *value = Value::String(text);
            }
        }
        Ty::Time => {
            if !value.as_str().is_some_and(is_normal_time)
                && let Some(time) = timestamp(value)
            {
                *value = Value::String(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
            }
        }
        Ty::MicroTime => {
            if let Some(time) = timestamp(value) {
                *value = Value::String(time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string());
            }
        }
        Ty::String
        | Ty::Bytes
        | Ty::Bool
        | Ty::Int32
        | Ty::Int64
        | Ty::Double
        | Ty::IntOrString
        | Ty::Object
        | Ty::Any => {}
    }
}

/// The quantity that a JSON string or number says.
pub(crate) fn quantity(value: &Value) -> Option<Quantity> {
    quantity_text(value).and_then(|text| text.trim().parse().ok())
}

fn quantity_text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Number(number) => Some(Cow::Owned(number.to_string())),
        _ => None,
    }
}

/// What the reference server writes for a field that is always written and has no value.
pub(crate) fn zero(field: &Field) -> Value {
    if field.keep_zero { Value::Null } else { zero_of(&field.ty) }
}

fn zero_of(ty: &Ty) -> Value {
    match ty {
        Ty::String => Value::String(String::new()),
        Ty::Bool => Value::Bool(false),
        Ty::Int32 | Ty::Int64 | Ty::Double | Ty::IntOrString => Value::from(0),
        Ty::Quantity => Value::from("0"),
        Ty::Ref(_) => Value::Object(Map::new()),
        Ty::Bytes | Ty::Time | Ty::MicroTime | Ty::Object | Ty::Any | Ty::List(_) | Ty::Map(_) => Value::Null,
    }
}

fn normalize_entry(types: &Types, ty: &Ty, entry: &mut Value) {
    if entry.is_null() {
        *entry = zero_of(ty);
    }
    normalize(types, ty, entry);
}

fn is_dropped(field: &Field, value: &Value) -> bool {
    if field.always || field.keep_zero {
        return false;
    }
    match value {
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Bool(flag) => !flag,
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty() && matches!(field.ty, Ty::Map(_)),
        Value::Null => true,
    }
}

/// Whether a text is a time as it is written back: whole seconds of universal time, none of them the sixty-first of its minute. Nearly all are, and there are a
/// dozen in the status of a pod. One that only looks like a time stays as it is, here as anywhere.
fn is_normal_time(text: &str) -> bool {
    const FORM: &[u8] = b"dddd-dd-ddTdd:dd:ddZ";
    let fits = |(byte, form): (&u8, &u8)| if *form == b'd' { byte.is_ascii_digit() } else { byte == form };
    text.len() == FORM.len() && text.as_bytes().iter().zip(FORM).all(fits) && text.get(17..19) != Some("60")
}

fn timestamp(value: &Value) -> Option<jiff::Timestamp> {
    value.as_str().filter(|text| is_rfc3339(text)).and_then(|text| text.parse().ok())
}

/// Such a time has exactly six digits after the seconds.
fn micro_time_error(text: &str) -> Option<String> {
    const LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";
    let is_time = timestamp(&Value::from(text)).is_some();
    let rest = text.get(19..).unwrap_or_default();
    let digits = rest.strip_prefix('.').map(|rest| rest.bytes().take_while(u8::is_ascii_digit).count());
    match (is_time, digits) {
        (true, Some(6)) => None,
        (true, _) => {
            Some(format!("parsing time {text:?} as {LAYOUT:?}: cannot parse {rest:?} as \".000000\""))
        }
        (false, _) => Some(format!("parsing time {text:?} as {LAYOUT:?}: cannot parse {text:?} as \"2006\"")),
    }
}

/// The clock library reads more forms than the API does.
fn is_rfc3339(text: &str) -> bool {
    let bytes = text.as_bytes();
    let separator = |idx, expected: &[u8]| bytes.get(idx).is_some_and(|byte| expected.contains(byte));
    separator(4, b"-")
        && separator(7, b"-")
        && separator(10, b"T")
        && separator(13, b":")
        && separator(16, b":")
        && bytes.iter().all(|byte| byte.is_ascii_digit() || b"-+:.TZ".contains(byte))
}

struct Place<'a> {
    /// The type whose field is looked at.
    owner: &'a str,
    /// The name of that field; empty for the object itself.
    field: &'a str,
    /// Where that type stands.
    parent: Option<&'a Place<'a>>,
}

impl Place<'_> {
    /// The names of the fields on the way.
    fn path(&self) -> String {
        match self.parent.map(Place::path) {
            Some(before) if !before.is_empty() => format!("{before}.{}", self.field),
            _ => self.field.to_owned(),
        }
    }
}

fn check(types: &Types, ty: &Ty, value: &Value, place: &Place<'_>) -> Option<String> {
    let mismatch = || {
        Some(format!(
            "json: cannot unmarshal {} into Go struct field {}.{} of type {}",
            json_name(value),
            place.owner,
            place.path(),
            go_name(types, ty)
        ))
    };
    match (ty, value) {
        (_, Value::Null) | (Ty::Any, _) | (Ty::Object, Value::Object(_)) => None,
        (Ty::Ref(id), Value::Object(map)) => {
            let def = types.get(*id);
            let owner = def.short_name();
            map.iter().find_map(|(name, entry)| {
                let field = def.field(name)?;
                let below = Place { owner, field: name, parent: Some(place) };
                check(types, &field.ty, entry, &below)
            })
        }
        (Ty::List(item), Value::Array(items)) => {
            items.iter().find_map(|entry| check(types, item, entry, place))
        }
        (Ty::Map(item), Value::Object(map)) => {
            map.values().find_map(|entry| check(types, item, entry, place))
        }
        (Ty::String, Value::String(_)) | (Ty::Bool, Value::Bool(_)) | (Ty::Double, Value::Number(_)) => None,
        (Ty::Bytes, Value::String(text)) => {
            base64_error(text).map(|at| format!("illegal base64 data at input byte {at}"))
        }
        (Ty::Int64, Value::Number(number)) if number.is_i64() => None,
        (Ty::Int32 | Ty::IntOrString, Value::Number(number))
            if number.as_i64().is_some_and(|n| i32::try_from(n).is_ok()) =>
        {
            None
        }
        (Ty::IntOrString, Value::String(_)) => None,
        (Ty::Quantity, _) => {
            let text = quantity_text(value).unwrap_or_default();
            k8s_quantity::stored_text(&text).err().map(|error| error.to_string())
        }
        (Ty::Time, Value::String(text)) => timestamp(value).is_none().then(|| {
            format!(
                "parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text:?} as \"2006\""
            )
        }),
        (Ty::MicroTime, Value::String(text)) => micro_time_error(text),
        _ => mismatch(),
    }
}

/// The first byte that standard base64 with padding cannot have there.
fn base64_error(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let skip = |at: &mut usize| {
        while bytes.get(*at).is_some_and(|byte| b"\r\n".contains(byte)) {
            *at += 1;
        }
    };
    let (mut at, mut n_read) = (0, 0);
    loop {
        skip(&mut at);
        let Some(byte) = bytes.get(at) else { return (n_read > 0).then_some(at - n_read) };
        at += 1;
        match byte {
            b'=' if n_read < 2 => return Some(at - 1),
            b'=' => {
                skip(&mut at);
                if n_read == 2 {
                    match bytes.get(at) {
                        None => return Some(at),
                        Some(b'=') => at += 1,
                        Some(_) => return Some(at - 1),
                    }
                    skip(&mut at);
                }
                return (at < bytes.len()).then_some(at);
            }
            b'+' | b'/' => n_read = (n_read + 1) % 4,
            byte if byte.is_ascii_alphanumeric() => n_read = (n_read + 1) % 4,
            _ => return Some(at - 1),
        }
    }
}

fn json_name(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Number(number) if number.is_i64() && i32::try_from(number.as_i64().unwrap_or(0)).is_ok() => {
            "number".to_owned()
        }
        Value::Number(number) => format!("number {number}"),
        Value::String(_) => "string".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) => "object".to_owned(),
    }
}

fn go_name(types: &Types, ty: &Ty) -> String {
    match ty {
        Ty::String => "string".to_owned(),
        Ty::Bytes => "[]uint8".to_owned(),
        Ty::Bool => "bool".to_owned(),
        Ty::Int32 => "int32".to_owned(),
        Ty::Int64 => "int64".to_owned(),
        Ty::Double => "float64".to_owned(),
        Ty::Quantity => "resource.Quantity".to_owned(),
        Ty::IntOrString => "int32".to_owned(),
        Ty::Time => "v1.Time".to_owned(),
        Ty::MicroTime => "v1.MicroTime".to_owned(),
        Ty::Object => "map[string]interface {}".to_owned(),
        Ty::Any => "interface {}".to_owned(),
        Ty::List(item) => format!("[]{}", go_name(types, item)),
        Ty::Map(item) => format!("map[string]{}", go_name(types, item)),
        Ty::Ref(id) => {
            let mut parts = types.get(*id).name.rsplit('.');
            let (name, version) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            format!("{version}.{name}")
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{KubeVersion, find};

    #[track_caller]
    fn check_normal(plural: &str, mut object: Value, expected: Value) {
        let kind = find(KubeVersion::V1_36, "", "v1", plural).unwrap();
        normalize(kind.types(), &Ty::Ref(kind.type_id), &mut object);
        assert_eq!(object, expected);
    }

    proptest::proptest! {
        /// What is left alone unread would have been written back as it is.
        #[test]
        fn a_normal_time_is_written_back_as_it_is(text in "[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-6][0-9]:[0-6][0-9]Z") {
            if let Some(time) = timestamp(&Value::from(text.as_str())).filter(|_| is_normal_time(&text)) {
                proptest::prop_assert_eq!(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(), text);
            }
        }
    }

    #[test]
    fn what_a_round_trip_drops_or_respells() {
        check_normal(
            "pods",
            json!({"metadata": {"labels": {}, "name": "a"}}),
            json!({"metadata": {"name": "a"}}),
        );
        check_normal(
            "pods",
            json!({"metadata": {"labels": {"a": null}}}),
            json!({"metadata": {"labels": {"a": ""}}}),
        );
        check_normal("pods", json!({"spec": {"hostNetwork": false, "nodeName": ""}}), json!({"spec": {}}));
        check_normal("pods", json!({"spec": {"hostUsers": false}}), json!({"spec": {"hostUsers": false}}));
        check_normal("pods", json!({"spec": {"affinity": {}}}), json!({"spec": {"affinity": {}}}));
        check_normal("pods", json!({"spec": {"affinity": null, "tolerations": []}}), json!({"spec": {}}));
        check_normal(
            "pods",
            json!({"spec": {"containers": [{"resources": {"limits": {"cpu": 0.5, "memory": "1024Mi", "x/y": 2}}}]}}),
            json!({"spec": {"containers": [{"resources": {"limits": {"cpu": "500m", "memory": "1Gi", "x/y": "2"}}}]}}),
        );
        check_normal(
            "pods",
            json!({"metadata": {"creationTimestamp": "2026-01-02T03:04:05.678+01:00"}}),
            json!({"metadata": {"creationTimestamp": "2026-01-02T02:04:05Z"}}),
        );
        check_normal(
            "events",
            json!({"eventTime": "2026-01-02T03:04:05.5Z"}),
            json!({"eventTime": "2026-01-02T03:04:05.500000Z"}),
        );
        check_normal("pods", json!({"unknown": null, "spec": 7}), json!({"unknown": null, "spec": 7}));
    }

    #[track_caller]
    fn check_decode(group: &str, plural: &str, object: Value, expected: Option<&str>) {
        let kind = find(KubeVersion::V1_36, group, "v1", plural).unwrap();
        assert_eq!(decode_error(kind, &object).as_deref(), expected);
    }

    #[test]
    fn values_of_the_wrong_type() {
        check_decode("", "pods", json!({"spec": {"containers": [{"name": "a", "ports": null}]}}), None);
        check_decode("", "pods", json!({"unknown": 1}), None);
        check_decode(
            "apps",
            "deployments",
            json!({"spec": {"replicas": "3"}}),
            Some(
                "Deployment in version \"v1\" cannot be handled as a Deployment: json: cannot unmarshal string into Go \
                 struct field DeploymentSpec.spec.replicas of type int32",
            ),
        );
        check_decode(
            "",
            "pods",
            json!({"spec": {"containers": {}}}),
            Some(
                "Pod in version \"v1\" cannot be handled as a Pod: json: cannot unmarshal object into Go struct field \
                 PodSpec.spec.containers of type []v1.Container",
            ),
        );
        check_decode(
            "",
            "pods",
            json!({"spec": {"overhead": {"cpu": "abc"}}}),
            Some(
                "Pod in version \"v1\" cannot be handled as a Pod: quantities must match the regular expression \
                 '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            ),
        );
        check_decode("", "secrets", json!({"data": {"a": "aGk="}}), None);
        check_decode(
            "",
            "secrets",
            json!({"data": {"a": "a-b"}}),
            Some(
                "Secret in version \"v1\" cannot be handled as a Secret: illegal base64 data at input byte 1",
            ),
        );
    }
}
