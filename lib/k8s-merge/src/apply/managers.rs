//! The managers of an object, as `metadata.managedFields` records them.
//!
//! In: objects. Out: [`Manager`]s and objects with their record rewritten. Must stay true: writing what was read changes
//! nothing but the order, the order is the API server's, and there is one entry per [`Identity`].

use super::fields::{FieldSet, FieldsError};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;

/// One entry of `metadata.managedFields`: who owns which fields, and how it came to own them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manager {
    /// Name of the client.
    pub name: String,
    /// Whether it applied its fields or wrote them.
    pub operation: Operation,
    /// The version of the type in which the fields are named.
    pub api_version: String,
    /// The subresource it wrote through.
    pub subresource: Option<String>,
    /// When it last changed something, in RFC 3339.
    pub time: Option<String>,
    /// What it owns.
    pub fields: FieldSet,
}

/// How a manager came to own its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// It applied them: fields it no longer applies go away.
    Apply,
    /// It wrote them by any other request.
    Update,
}

/// Why `metadata.managedFields` cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The record or one of its entries has the wrong sort.
    #[error("managed fields must be a list of objects")]
    Malformed,
    /// The operation is missing or unknown.
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    /// There is no version.
    #[error("apiVersion must not be empty")]
    ApiVersion,
    /// There is no format.
    #[error("missing fieldsType in managed fields entry {0}")]
    NoFieldsType(usize),
    /// The format is not `FieldsV1`.
    #[error("invalid fieldsType {kind:?} in managed fields entry {entry}")]
    FieldsType {
        /// What was given.
        kind: String,
        /// Position of the entry.
        entry: usize,
    },
    /// The set of fields is malformed.
    #[error("error decoding set in managed fields entry {entry}: {error}")]
    Fields {
        /// Position of the entry.
        entry: usize,
        /// What is wrong with it.
        error: FieldsError,
    },
}

impl Operation {
    /// `Apply` or `Update`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What makes two entries the same manager. Appliers are the same whatever version they apply in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity {
    pub name: String,
    pub operation: Operation,
    /// Empty for appliers.
    pub api_version: String,
    pub subresource: Option<String>,
}

impl Identity {
    /// The key by which the API server sorts managers.
    pub fn sort_key(&self) -> String {
        let mut text = String::from("{");
        let members = [
            ("manager", self.name.as_str()),
            ("operation", self.operation.as_str()),
            ("apiVersion", self.api_version.as_str()),
            ("subresource", self.subresource.as_deref().unwrap_or_default()),
        ];
        for (name, value) in members.into_iter().filter(|(_, value)| !value.is_empty()) {
            if text.len() > 1 {
                text.push(',');
            }
            crate::go_format::json_string(name, true, &mut text);
            text.push(':');
            crate::go_format::json_string(value, true, &mut text);
        }
        text.push('}');
        text
    }
}

impl Manager {
    pub(crate) fn identity(&self) -> Identity {
        Identity {
            name: self.name.clone(),
            operation: self.operation,
            api_version: match self.operation {
                Operation::Apply => String::new(),
                Operation::Update => self.api_version.clone(),
            },
            subresource: self.subresource.clone(),
        }
    }

    /// What the API server sorts managers by: appliers first, then by time, name, version and subresource.
    pub(crate) fn place(&self) -> (Operation, i64, &str, &str, Option<&str>) {
        (self.operation, self.seconds(), &self.name, &self.api_version, self.subresource.as_deref())
    }

    /// Seconds since 1970, for sorting; 0 without a time.
    pub(crate) fn seconds(&self) -> i64 {
        self.time.as_deref().and_then(unix_seconds).unwrap_or(0)
    }
}

/// Reads `metadata.managedFields`. An object without it has no managers.
///
/// ```
/// use k8s_merge::apply::{Operation, read_managers};
/// use serde_json::json;
///
/// let object = json!({"metadata": {"managedFields": [{
///     "manager": "kubectl", "operation": "Apply", "apiVersion": "v1",
///     "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:color": {}}},
/// }]}});
/// let managers = read_managers(&object)?;
/// assert_eq!(managers[0].operation, Operation::Apply);
/// assert_eq!(managers[0].fields.to_string(), r#"{"f:data":{"f:color":{}}}"#);
/// # Ok::<(), k8s_merge::apply::ReadError>(())
/// ```
pub fn read_managers(object: &Value) -> Result<Vec<Manager>, ReadError> {
    let entries = match object.get("metadata").and_then(|metadata| metadata.get("managedFields")) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(entries)) => entries,
        Some(_) => return Err(ReadError::Malformed),
    };
    let mut managers: Vec<Manager> = Vec::with_capacity(entries.len());
    let mut places: BTreeMap<Identity, usize> = BTreeMap::new();
    for (at, entry) in entries.iter().enumerate() {
        let manager = read_manager(entry, at)?;
        // Of two entries of one manager the later counts.
        let place = *places.entry(manager.identity()).or_insert(managers.len());
        match managers.get_mut(place) {
            Some(known) => *known = manager,
            None => managers.push(manager),
        }
    }
    Ok(managers)
}

fn read_manager(entry: &Value, at: usize) -> Result<Manager, ReadError> {
    let entry = entry.as_object().ok_or(ReadError::Malformed)?;
    let text = |name: &str| match entry.get(name) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text.as_str()),
        Some(_) => Err(ReadError::Malformed),
    };
    let operation = match text("operation")? {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return Err(ReadError::Operation),
    };
    let api_version = match text("apiVersion")? {
        "" => return Err(ReadError::ApiVersion),
        version => version.to_owned(),
    };
    match text("fieldsType")? {
        "FieldsV1" => {}
        "" => return Err(ReadError::NoFieldsType(at)),
        kind => return Err(ReadError::FieldsType { kind: kind.to_owned(), entry: at }),
    }
    let fields = match entry.get("fieldsV1") {
        None => FieldSet::new(),
        Some(fields) => FieldSet::parse(fields).map_err(|error| ReadError::Fields { entry: at, error })?,
    };
    let optional = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    Ok(Manager {
        name: text("manager")?.to_owned(),
        operation,
        api_version,
        subresource: optional(text("subresource")?),
        time: optional(text("time")?),
        fields,
    })
}

/// Writes `metadata.managedFields`, sorted as the API server sorts it: appliers first, then by time, name, version and
/// subresource. Without managers the field is removed.
pub fn write_managers(object: &mut Value, managers: &[Manager]) {
    let Value::Object(members) = object else { return };
    if managers.is_empty() {
        remove_managers(object);
        return;
    }
    let mut sorted: Vec<&Manager> = managers.iter().collect();
    sorted.sort_by(|a, b| a.place().cmp(&b.place()));
    let entries = sorted.into_iter().map(write_manager).collect();
    let metadata = members.entry("metadata").or_insert(Value::Null);
    if !metadata.is_object() {
        *metadata = Value::Object(Map::new());
    }
    if let Value::Object(metadata) = metadata {
        metadata.insert("managedFields".to_owned(), Value::Array(entries));
    }
}

fn write_manager(manager: &Manager) -> Value {
    let mut entry = Map::new();
    let texts = [
        ("manager", manager.name.as_str()),
        ("operation", manager.operation.as_str()),
        ("apiVersion", manager.api_version.as_str()),
        ("time", manager.time.as_deref().unwrap_or_default()),
        ("fieldsType", "FieldsV1"),
    ];
    for (name, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        entry.insert(name.to_owned(), Value::from(text));
    }
    entry.insert("fieldsV1".to_owned(), manager.fields.to_value());
    if let Some(subresource) = &manager.subresource {
        entry.insert("subresource".to_owned(), Value::from(subresource.as_str()));
    }
    Value::Object(entry)
}

/// Drops `metadata.managedFields`, and answers what it was.
pub(crate) fn remove_managers(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

/// Seconds since 1970 of an RFC 3339 time; the fraction is dropped.
fn unix_seconds(text: &str) -> Option<i64> {
    let number = |range: std::ops::Range<usize>| -> Option<i64> {
        let digits = text.get(range)?;
        digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let separators = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if !separators.iter().all(|&(at, byte)| text.as_bytes().get(at) == Some(&byte)) {
        return None;
    }
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let zone = text.get(19..)?.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    let east = match zone {
        "Z" | "z" => 0,
        _ => {
            let (hours, minutes) = zone.get(1..)?.split_once(':')?;
            let offset = hours.parse::<i64>().ok()?.checked_mul(3600)?
                + minutes.parse::<i64>().ok()?.checked_mul(60)?;
            match zone.get(..1)? {
                "+" => offset,
                "-" => -offset,
                _ => return None,
            }
        }
    };
    // Years are counted from March, so that the leap day is the last of its year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year.div_euclid(4) - year.div_euclid(100)
        + year.div_euclid(400)
        + (153 * month + 2) / 5
        + day
        - 1
        - 719_468;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second - east)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn times_become_seconds() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2000-02-29T12:00:01Z", Some(951_825_601)),
            ("2026-11-15T09:00:00+01:00", Some(1_794_729_600)),
            ("2026-11-15T08:00:00.5Z", Some(1_794_729_600)),
            ("2026-13-15T08:00:00Z", None),
            ("yesterday", None),
            ("", None),
        ] {
            assert_eq!(unix_seconds(text), seconds, "{text}");
        }
    }

    #[track_caller]
    fn check_refused(entry: Value, message: &str) {
        let object = json!({"metadata": {"managedFields": [entry]}});
        assert_eq!(read_managers(&object).unwrap_err().to_string(), message);
    }

    #[test]
    fn malformed_entries_are_refused() {
        check_refused(json!(1), "managed fields must be a list of objects");
        check_refused(json!({}), "operation must be `Apply` or `Update`");
        check_refused(json!({"operation": "Apply"}), "apiVersion must not be empty");
        let mut entry = json!({"operation": "Apply", "apiVersion": "v1"});
        check_refused(entry.clone(), "missing fieldsType in managed fields entry 0");
        entry["fieldsType"] = json!("FieldsV2");
        check_refused(entry.clone(), "invalid fieldsType \"FieldsV2\" in managed fields entry 0");
        entry["fieldsType"] = json!("FieldsV1");
        entry["fieldsV1"] = json!({"spec": {}});
        check_refused(
            entry,
            "error decoding set in managed fields entry 0: parsing key as path element: missing colon: spec",
        );
    }

    #[test]
    fn managers_are_sorted_and_round_trip() {
        let manager = |name: &str, operation, time: &str| Manager {
            name: name.into(),
            operation,
            api_version: "v1".into(),
            subresource: (name == "c").then(|| "status".to_owned()),
            time: (!time.is_empty()).then(|| time.to_owned()),
            fields: FieldSet::parse(&json!({"f:a": {}})).unwrap(),
        };
        let managers = [
            manager("a", Operation::Update, "2026-01-02T00:00:00Z"),
            manager("b", Operation::Update, "2026-01-01T00:00:00Z"),
            manager("c", Operation::Update, "2026-01-01T00:00:00Z"),
            manager("d", Operation::Update, ""),
            manager("e", Operation::Apply, "2026-01-03T00:00:00Z"),
        ];
        let mut object = json!({"kind": "Pod"});
        write_managers(&mut object, &managers);
        let read = read_managers(&object).unwrap();
        let names: Vec<_> = read.iter().map(|manager| manager.name.as_str()).collect();
        assert_eq!(names, ["e", "d", "b", "c", "a"]);
        assert!(managers.iter().all(|manager| read.contains(manager)));
        write_managers(&mut object, &[]);
        assert_eq!(object, json!({"kind": "Pod", "metadata": {}}));
    }
}
