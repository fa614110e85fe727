//! The message tables: which field of which message is what.
//!
//! In: the text files of `messages/`, one for each API package. Out: [`Tables`], parsed once, with every type resolved.
//!
//! A file opens with `package <name>`. A line `kinds <apiVersion> <kind>...` says which messages are objects of an API
//! version (`*`: of every one). `message <name>` starts a message; each line after it is one of its fields:
//!
//! ```text
//! <number> <JSON name> [?][*|[]|{}]<type>
//! ```
//!
//! `?` leaves the field out of JSON when it is empty, `*` is a Go pointer, `[]` a list, `{}` a map with string keys. The
//! name `-` marks an embedded message whose fields belong to the parent. A type is a scalar or special type, see
//! [`Type`], or a message of the same package, or of another one (`meta/v1.ObjectMeta`). `union` starts a message whose
//! JSON form is the value of its first field that is not left out.

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Every table; the first call parses them, which takes milliseconds.
pub(crate) fn tables() -> &'static Tables {
    static TABLES: LazyLock<Tables> =
        LazyLock::new(|| parse(FILES).expect("the embedded tables parse: a test reads every one of them"));
    &TABLES
}

pub(crate) struct Tables {
    messages: Vec<Message>,
    kinds: BTreeMap<(&'static str, &'static str), MessageId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessageId(usize);

pub(crate) struct Message {
    pub(crate) name: &'static str,
    pub(crate) union: bool,
    pub(crate) fields: Vec<Field>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Field {
    pub(crate) number: u32,
    pub(crate) name: &'static str,
    pub(crate) omit_empty: bool,
    pub(crate) shape: Shape,
    pub(crate) of: Type,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Plain,
    Pointer,
    List,
    Map,
    /// An embedded message: its fields are the parent's.
    Inline,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    String,
    Bool,
    Int32,
    Int64,
    Double,
    Bytes,
    Time,
    MicroTime,
    Duration,
    Quantity,
    IntOrString,
    /// An object in any form: JSON or protobuf with an envelope of its own.
    Raw,
    /// A message around JSON text.
    Json,
    /// A message around a list of strings.
    Strings,
    Message(MessageId),
}

/// What is wrong with a table. Only a change to the tables can bring it about, so it names the line and no more.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{package}: bad table line \"{line}\"")]
pub(crate) struct TableError {
    package: &'static str,
    line: &'static str,
}

impl Tables {
    pub(crate) fn message(&self, id: MessageId) -> &Message {
        // Ids are handed out by `parse` alone, for places in this very list.
        &self.messages[id.0]
    }

    pub(crate) fn kind(&self, api_version: &str, kind: &str) -> Option<MessageId> {
        // Options such as DeleteOptions carry the API version of the object they are about, whichever that is.
        self.kinds.get(&(api_version, kind)).or_else(|| self.kinds.get(&("*", kind))).copied()
    }
}

fn parse(files: &[&'static str]) -> Result<Tables, TableError> {
    let mut ids = BTreeMap::new();
    each_line(files, |package, line, words| {
        if let ["message" | "union", name] = words {
            let id = MessageId(ids.len());
            if ids.insert((package, *name), id).is_some() {
                return Err(TableError { package, line });
            }
        }
        Ok(())
    })?;
    let mut tables = Tables { messages: Vec::with_capacity(ids.len()), kinds: BTreeMap::new() };
    each_line(files, |package, line, words| {
        let bad = TableError { package, line };
        match words {
            ["kinds", api_version, kinds @ ..] => {
                for kind in kinds {
                    let id = *ids.get(&(package, *kind)).ok_or(TableError { package, line })?;
                    if tables.kinds.insert((api_version, kind), id).is_some() {
                        return Err(bad);
                    }
                }
            }
            [start @ ("message" | "union"), name] => {
                tables.messages.push(Message { name, union: *start == "union", fields: Vec::new() });
            }
            [number, name, shape] => {
                let field = parse_field(number, name, shape, |of| {
                    let (package, name) = of.split_once('.').unwrap_or((package, of));
                    ids.get(&(package, name)).copied()
                });
                let message = tables.messages.last_mut().ok_or(TableError { package, line })?;
                message.fields.push(field.ok_or(bad)?);
            }
            _ => return Err(bad),
        }
        Ok(())
    })?;
    Ok(tables)
}

/// Calls `see` with the package, the line and its words, for every line but the `package` ones.
fn each_line(
    files: &[&'static str],
    mut see: impl FnMut(&'static str, &'static str, &[&'static str]) -> Result<(), TableError>,
) -> Result<(), TableError> {
    for file in files {
        let mut package = "";
        for line in file.lines() {
            let words: Vec<&'static str> = line.split(' ').collect();
            match words.as_slice() {
                ["package", name] => package = name,
                words => see(package, line, words)?,
            }
        }
    }
    Ok(())
}

fn parse_field(
    number: &str,
    name: &'static str,
    shape: &str,
    message: impl Fn(&str) -> Option<MessageId>,
) -> Option<Field> {
    let number = number.parse().ok()?;
    let (omit_empty, shape) = shape.strip_prefix('?').map_or((false, shape), |rest| (true, rest));
    let (shape, of) = if let Some(of) = shape.strip_prefix('*') {
        (Shape::Pointer, of)
    } else if let Some(of) = shape.strip_prefix("[]") {
        (Shape::List, of)
    } else if let Some(of) = shape.strip_prefix("{}") {
        (Shape::Map, of)
    } else if name == "-" {
        (Shape::Inline, shape)
    } else {
        (Shape::Plain, shape)
    };
    let of = match of {
        "string" => Type::String,
        "bool" => Type::Bool,
        "int32" => Type::Int32,
        "int64" => Type::Int64,
        "double" => Type::Double,
        "bytes" => Type::Bytes,
        "time" => Type::Time,
        "microtime" => Type::MicroTime,
        "duration" => Type::Duration,
        "quantity" => Type::Quantity,
        "intorstring" => Type::IntOrString,
        "raw" => Type::Raw,
        "json" => Type::Json,
        "strings" => Type::Strings,
        name => Type::Message(message(name)?),
    };
    if (name == "-") != (shape == Shape::Inline) || shape == Shape::Inline && !matches!(of, Type::Message(_))
    {
        return None;
    }
    Some(Field { number, name, omit_empty, shape, of })
}

const FILES: &[&str] = &[
    include_str!("../messages/admission-v1.txt"),
    include_str!("../messages/admissionregistration-v1.txt"),
    include_str!("../messages/admissionregistration-v1alpha1.txt"),
    include_str!("../messages/admissionregistration-v1beta1.txt"),
    include_str!("../messages/apiextensions-v1.txt"),
    include_str!("../messages/apiregistration-v1.txt"),
    include_str!("../messages/apiserverinternal-v1alpha1.txt"),
    include_str!("../messages/apps-v1.txt"),
    include_str!("../messages/authentication-v1.txt"),
    include_str!("../messages/authentication-v1alpha1.txt"),
    include_str!("../messages/authentication-v1beta1.txt"),
    include_str!("../messages/authorization-v1.txt"),
    include_str!("../messages/autoscaling-v1.txt"),
    include_str!("../messages/autoscaling-v2.txt"),
    include_str!("../messages/batch-v1.txt"),
    include_str!("../messages/certificates-v1.txt"),
    include_str!("../messages/certificates-v1alpha1.txt"),
    include_str!("../messages/certificates-v1beta1.txt"),
    include_str!("../messages/coordination-v1.txt"),
    include_str!("../messages/coordination-v1alpha2.txt"),
    include_str!("../messages/coordination-v1beta1.txt"),
    include_str!("../messages/core-v1.txt"),
    include_str!("../messages/discovery-v1.txt"),
    include_str!("../messages/events-v1.txt"),
    include_str!("../messages/flowcontrol-v1.txt"),
    include_str!("../messages/meta-v1.txt"),
    include_str!("../messages/networking-v1.txt"),
    include_str!("../messages/networking-v1beta1.txt"),
    include_str!("../messages/node-v1.txt"),
    include_str!("../messages/policy-v1.txt"),
    include_str!("../messages/policy-v1beta1.txt"),
    include_str!("../messages/rbac-v1.txt"),
    include_str!("../messages/resource-v1.txt"),
    include_str!("../messages/resource-v1alpha3.txt"),
    include_str!("../messages/resource-v1beta1.txt"),
    include_str!("../messages/resource-v1beta2.txt"),
    include_str!("../messages/scheduling-v1.txt"),
    include_str!("../messages/scheduling-v1alpha1.txt"),
    include_str!("../messages/scheduling-v1alpha2.txt"),
    include_str!("../messages/storage-v1.txt"),
    include_str!("../messages/storage-v1beta1.txt"),
    include_str!("../messages/storagemigration-v1beta1.txt"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_embedded_tables_parse() {
        let tables = parse(FILES).unwrap();
        assert!(tables.messages.len() > 800, "{}", tables.messages.len());
        for message in &tables.messages {
            let numbers: BTreeSet<_> = message.fields.iter().map(|field| field.number).collect();
            assert_eq!(numbers.len(), message.fields.len(), "a number of {} is there twice", message.name);
        }
    }

    /// A field of an embedded message must not hide one of the parent: both would be written under one name.
    #[test]
    fn no_name_is_there_twice() {
        fn names(tables: &Tables, message: &Message, into: &mut Vec<&'static str>) {
            for field in &message.fields {
                match (field.shape, field.of) {
                    (Shape::Inline, Type::Message(id)) => names(tables, tables.message(id), into),
                    _ => into.push(field.name),
                }
            }
        }
        let tables = tables();
        for message in &tables.messages {
            let mut all = Vec::new();
            names(tables, message, &mut all);
            let n_names = all.len();
            assert_eq!(all.into_iter().collect::<BTreeSet<_>>().len(), n_names, "{}", message.name);
        }
        for id in tables.kinds.values() {
            let message = tables.message(*id);
            assert!(
                message.fields.iter().all(|field| !["kind", "apiVersion"].contains(&field.name)),
                "{}",
                message.name
            );
        }
    }

    /// A plain message within itself would make the empty value endless.
    #[test]
    fn no_plain_message_holds_itself() {
        fn depth(tables: &Tables, id: MessageId, left: usize) -> bool {
            left > 0
                && tables.message(id).fields.iter().all(|field| match (field.shape, field.of) {
                    (Shape::Plain | Shape::Inline, Type::Message(id)) => depth(tables, id, left - 1),
                    _ => true,
                })
        }
        let tables = tables();
        for n in 0..tables.messages.len() {
            assert!(depth(tables, MessageId(n), 10), "{}", tables.messages[n].name);
        }
    }

    #[track_caller]
    fn check_kind(api_version: &str, kind: &str, expected: Option<&str>) {
        let tables = tables();
        let found = tables.kind(api_version, kind).map(|id| tables.message(id).name);
        assert_eq!(found, expected, "{api_version} {kind}");
    }

    #[test]
    fn kinds() {
        check_kind("v1", "Pod", Some("Pod"));
        check_kind("apps/v1", "Deployment", Some("Deployment"));
        check_kind("apps/v1", "Pod", None);
        check_kind("autoscaling/v1", "Scale", Some("Scale"));
        check_kind("autoscaling/v2", "HorizontalPodAutoscaler", Some("HorizontalPodAutoscaler"));
        check_kind("policy/v1", "Eviction", Some("Eviction"));
        check_kind("authorization.k8s.io/v1", "SelfSubjectAccessReview", Some("SelfSubjectAccessReview"));
        check_kind("scheduling.k8s.io/v1alpha1", "Workload", Some("Workload"));
        check_kind("scheduling.k8s.io/v1alpha2", "PodGroup", Some("PodGroup"));
        check_kind("apiextensions.k8s.io/v1", "CustomResourceDefinition", Some("CustomResourceDefinition"));
        check_kind("apiregistration.k8s.io/v1", "APIService", Some("APIService"));
        check_kind("v1", "Status", Some("Status"));
        check_kind("apps/v1", "Status", None);
        check_kind("apps/v1", "DeleteOptions", Some("DeleteOptions"));
        check_kind("example.org/v7", "DeleteOptions", Some("DeleteOptions"));
        check_kind("*", "Pod", None);
        check_kind("", "", None);
    }

    #[track_caller]
    fn check_refused(file: &'static str, line: &'static str) {
        assert_eq!(parse(&[file]).err().map(|error| error.line), Some(line));
    }

    #[test]
    fn bad_tables_are_refused() {
        check_refused("package p\n1 a string", "1 a string");
        check_refused("package p\nmessage M\n1 a strin", "1 a strin");
        check_refused("package p\nmessage M\nx a string", "x a string");
        check_refused("package p\nmessage M\n1 - string", "1 - string");
        check_refused("package p\nmessage M\n1 - []M", "1 - []M");
        check_refused("package p\nmessage M\nmessage M", "message M");
        check_refused("package p\nkinds v1 M", "kinds v1 M");
    }
}
