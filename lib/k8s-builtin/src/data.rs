//! The types of the built-in kinds, read from the text files under `kinds/`.
//!
//! In: one file per API group and version. A line `type NAME [atomic]` opens a type; each indented line below it is a
//! field: `NAME TYPE FLAG...`.
//!
//! - TYPE is `string`, `bytes`, `bool`, `int32`, `int64`, `double`, `quantity`, `intorstr`, `time`, `microtime`,
//!   `object` (open), `any` (open), `[TYPE]`, `{TYPE}` (a map from strings), a type of the same file, or
//!   `FILE.NAME`.
//! - Flags: `!` required; `~` written out even when it is zero or absent; `?` a zero value is kept, because the field
//!   tells unset from zero (a pointer in the reference server); `?~` both; `=JSON` a fixed default; `map=KEYS`, `set`,
//!   `atomic`, `granular`; `patch=STRATEGY`, `key=MERGE_KEY`; `enum=A|B`; `@VERSION` only that Kubernetes version
//!   has the field.
//!
//! Out: [`Types`], a table of type definitions that name each other by index. A field with neither `~` nor `?` is
//! left out of an object when its value is zero or empty.
//!
//! What must stay true: every reference resolves, and fields are sorted by name. A unit test reads every file.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::KubeVersion;
use crate::defaults::Computed;

/// All types of one Kubernetes version.
#[derive(Debug, Default)]
pub(crate) struct Types {
    list: Vec<TypeDef>,
    by_name: BTreeMap<String, TypeId>,
}

/// The place of a type in [`Types`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TypeId(usize);

/// One object type.
#[derive(Debug)]
pub(crate) struct TypeDef {
    /// Name with its file: `core.v1.PodSpec`.
    pub(crate) name: String,
    /// Whether the object is owned as one value.
    pub(crate) atomic: bool,
    /// Sorted by name.
    pub(crate) fields: Vec<Field>,
    /// How their names start ([`start`]): a number is compared sooner than a text, and every member of every object is looked up.
    starts: Vec<u64>,
    /// Which of them need not be there for defaulting to write something; a look at each of all fields would cost most of a write.
    pub(crate) unasked: Vec<usize>,
    /// The defaults that are computed.
    pub(crate) computed: Computed,
}

/// One field of an object type.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) ty: Ty,
    pub(crate) required: bool,
    pub(crate) always: bool,
    pub(crate) keep_zero: bool,
    pub(crate) default: Option<Value>,
    pub(crate) list: Option<List>,
    pub(crate) map_atomic: Option<bool>,
    pub(crate) patch_strategy: Option<&'static str>,
    pub(crate) patch_key: Option<&'static str>,
    pub(crate) enums: Vec<&'static str>,
    /// Whether defaulting may change a value of it.
    pub(crate) filled: bool,
}

/// How the items of a list are told apart.
#[derive(Debug)]
pub(crate) enum List {
    Atomic,
    Set,
    Map(Vec<&'static str>),
}

/// The type of a value.
#[derive(Debug, Clone)]
pub(crate) enum Ty {
    String,
    Bytes,
    Bool,
    Int32,
    Int64,
    Double,
    Quantity,
    IntOrString,
    Time,
    MicroTime,
    /// An object whose fields are not described.
    Object,
    /// A value that is not described.
    Any,
    List(Box<Ty>),
    Map(Box<Ty>),
    Ref(TypeId),
}

/// Why a data file cannot be read. Only a unit test can meet one, because the files are part of the program.
#[derive(Debug, thiserror::Error)]
#[error("{file}:{line}: {reason}")]
pub(crate) struct DataError {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) reason: String,
}

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../kinds/", $name, ".txt")))),*]
    };
}

/// Name and text of every file of types.
pub(crate) const FILES: &[(&str, &str)] = files![
    "meta.v1",
    "core.v1",
    "admissionregistration.v1",
    "apiextensions.v1",
    "apiregistration.v1",
    "apps.v1",
    "authentication.v1",
    "authorization.v1",
    "autoscaling.v1",
    "autoscaling.v2",
    "batch.v1",
    "certificates.v1",
    "coordination.v1",
    "discovery.v1",
    "events.v1",
    "flowcontrol.v1",
    "networking.v1",
    "node.v1",
    "policy.v1",
    "rbac.v1",
    "resource.v1",
    "scheduling.v1",
    "scheduling.v1alpha1",
    "scheduling.v1alpha2",
    "storage.v1",
];

/// The resources in discovery order.
pub(crate) const RESOURCES: &str = include_str!("../kinds/resources.txt");

/// Short texts for `kubectl explain`: `TYPE: text` or `TYPE.field: text`.
pub(crate) const DESCRIPTIONS: &str = include_str!("../kinds/descriptions.txt");

impl Types {
    /// Reads the files for one Kubernetes version.
    pub(crate) fn read(
        files: &[(&'static str, &'static str)],
        version: KubeVersion,
    ) -> Result<Self, DataError> {
        let mut types = Self::default();
        for (file, text) in files {
            for name in text.lines().filter_map(|line| line.strip_prefix("type ")) {
                let name = name.split_whitespace().next().unwrap_or_default();
                let full = format!("{file}.{name}");
                types.by_name.insert(full.clone(), TypeId(types.list.len()));
                let computed = Computed::of(&full);
                types.list.push(TypeDef {
                    name: full,
                    atomic: false,
                    fields: Vec::new(),
                    starts: Vec::new(),
                    unasked: Vec::new(),
                    computed,
                });
            }
        }
        let mut at = 0;
        for (file, text) in files {
            let mut open: Option<usize> = None;
            for (line_idx, line) in text.lines().enumerate() {
                let error =
                    |reason: String| DataError { file: (*file).to_owned(), line: line_idx + 1, reason };
                if line.trim().is_empty() || line.starts_with('#') {
                    continue;
                }
                if let Some(head) = line.strip_prefix("type ") {
                    let atomic = match head.split_whitespace().collect::<Vec<_>>().as_slice() {
                        [_] => false,
                        [_, "atomic"] => true,
                        _ => return Err(error(format!("cannot read type {head:?}"))),
                    };
                    if let Some(def) = types.list.get_mut(at) {
                        def.atomic = atomic;
                    }
                    open = Some(at);
                    at += 1;
                    continue;
                }
                let Some(open) = open else { return Err(error("a field before the first type".to_owned())) };
                if let Some(field) = types.field(file, line, version).map_err(error)?
                    && let Some(def) = types.list.get_mut(open)
                {
                    def.fields.push(field);
                }
            }
        }
        for def in &mut types.list {
            def.fields.sort_by_key(|field| field.name);
            def.starts = def.fields.iter().map(|field| start(field.name)).collect();
            let unasked = def.fields.iter().enumerate();
            def.unasked = unasked.filter(|(_, field)| field.is_unasked()).map(|(idx, _)| idx).collect();
        }
        types.find_filled();
        Ok(types)
    }

    /// Finds out below which fields there is anything to default. Types may hold themselves, so this is done until nothing is new.
    fn find_filled(&mut self) {
        let mut filled: Vec<bool> =
            self.list.iter().map(|def| !def.computed.is_nothing() || !def.unasked.is_empty()).collect();
        loop {
            let mut is_new = false;
            for (idx, def) in self.list.iter_mut().enumerate() {
                for field in def.fields.iter_mut().filter(|field| !field.filled) {
                    if is_filled(&field.ty, &filled) {
                        field.filled = true;
                        is_new = true;
                        if let Some(whole) = filled.get_mut(idx) {
                            *whole = true;
                        }
                    }
                }
            }
            if !is_new {
                return;
            }
        }
    }

    /// The type of that full name.
    pub(crate) fn by_name(&self, name: &str) -> Option<TypeId> {
        self.by_name.get(name).copied()
    }

    /// The definition behind a reference.
    pub(crate) fn get(&self, id: TypeId) -> &TypeDef {
        self.list.get(id.0).expect("a TypeId is only made for a place in the list")
    }

    fn field(&self, file: &str, line: &'static str, version: KubeVersion) -> Result<Option<Field>, String> {
        let mut words = line.split_whitespace();
        let (Some(name), Some(ty)) = (words.next(), words.next()) else {
            return Err("a field needs a name and a type".to_owned());
        };
        let mut field = Field {
            name,
            ty: self.ty(file, ty)?,
            required: false,
            always: false,
            keep_zero: false,
            default: None,
            list: None,
            map_atomic: None,
            patch_strategy: None,
            patch_key: None,
            enums: Vec::new(),
            filled: false,
        };
        for word in words {
            if let Some(only) = word.strip_prefix('@') {
                if only != version.minor() {
                    return Ok(None);
                }
                continue;
            }
            match (word, word.split_once('=')) {
                ("!", _) => field.required = true,
                ("~", _) => field.always = true,
                ("?", _) => field.keep_zero = true,
                ("?~", _) => (field.keep_zero, field.always) = (true, true),
                ("set", _) => field.list = Some(List::Set),
                ("atomic", _) if matches!(field.ty, Ty::List(_)) => field.list = Some(List::Atomic),
                ("atomic", _) => field.map_atomic = Some(true),
                ("granular", _) => field.map_atomic = Some(false),
                (_, Some(("", json))) => {
                    field.default =
                        Some(serde_json::from_str(json).map_err(|e| format!("default {json}: {e}"))?);
                }
                (_, Some(("map", keys))) => field.list = Some(List::Map(keys.split(',').collect())),
                (_, Some(("patch", strategy))) => field.patch_strategy = Some(strategy),
                (_, Some(("key", key))) => field.patch_key = Some(key),
                (_, Some(("enum", names))) => {
                    field.enums =
                        names.split('|').map(|name| if name == "\"\"" { "" } else { name }).collect();
                }
                _ => return Err(format!("unknown flag {word:?}")),
            }
        }
        Ok(Some(field))
    }

    fn ty(&self, file: &str, word: &str) -> Result<Ty, String> {
        if let Some(inner) = word.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            return Ok(Ty::List(Box::new(self.ty(file, inner)?)));
        }
        if let Some(inner) = word.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
            return Ok(Ty::Map(Box::new(self.ty(file, inner)?)));
        }
        Ok(match word {
            "string" => Ty::String,
            "bytes" => Ty::Bytes,
            "bool" => Ty::Bool,
            "int32" => Ty::Int32,
            "int64" => Ty::Int64,
            "double" => Ty::Double,
            "quantity" => Ty::Quantity,
            "intorstr" => Ty::IntOrString,
            "time" => Ty::Time,
            "microtime" => Ty::MicroTime,
            "object" => Ty::Object,
            "any" => Ty::Any,
            _ => {
                let id = if word.contains('.') {
                    self.by_name(word)
                } else {
                    self.by_name(&format!("{file}.{word}"))
                };
                Ty::Ref(id.ok_or_else(|| format!("no type {word:?}"))?)
            }
        })
    }
}

/// Whether defaulting may change a value of this type.
fn is_filled(ty: &Ty, filled: &[bool]) -> bool {
    match ty {
        Ty::Ref(id) => filled.get(id.0).copied().unwrap_or(false),
        // Amounts in lists of resources are rounded.
        Ty::Map(item) => matches!(**item, Ty::Quantity) || is_filled(item, filled),
        Ty::List(item) => is_filled(item, filled),
        _ => false,
    }
}

/// The first eight bytes of a name as a number, which sorts as names do: none of them has a zero in it.
fn start(name: &str) -> u64 {
    let mut bytes = [0; 8];
    bytes.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
    u64::from_be_bytes(bytes)
}

impl Field {
    fn is_unasked(&self) -> bool {
        self.always || self.default.is_some()
    }
}

impl TypeDef {
    /// The fields that defaulting may write where they are absent.
    pub(crate) fn unasked(&self) -> impl Iterator<Item = &Field> {
        self.unasked.iter().filter_map(|idx| self.fields.get(*idx))
    }

    /// The field of that name.
    pub(crate) fn field(&self, name: &str) -> Option<&Field> {
        let wanted = start(name);
        let first = self.starts.partition_point(|start| *start < wanted);
        let like_it =
            self.starts.iter().zip(&self.fields).skip(first).take_while(|(start, _)| **start == wanted);
        like_it.map(|(_, field)| field).find(|field| field.name == name)
    }

    /// The name without its file.
    pub(crate) fn short_name(&self) -> &str {
        self.name.rsplit('.').next().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_parses_and_every_reference_resolves() {
        for version in [KubeVersion::V1_35, KubeVersion::V1_36] {
            let types = Types::read(FILES, version).unwrap();
            assert!(types.list.len() > 500, "{}", types.list.len());
            for def in &types.list {
                let mut names: Vec<_> = def.fields.iter().map(|field| field.name).collect();
                names.dedup();
                assert_eq!(names.len(), def.fields.len(), "{}", def.name);
                for field in &def.fields {
                    assert!(
                        std::ptr::eq(def.field(field.name).unwrap(), field),
                        "{}.{}",
                        def.name,
                        field.name
                    );
                    if let Some(List::Map(keys)) = &field.list {
                        let Ty::List(item) = &field.ty else { panic!("{}.{}", def.name, field.name) };
                        let Ty::Ref(item) = **item else { panic!("{}.{}", def.name, field.name) };
                        for key in keys {
                            assert!(
                                types.get(item).field(key).is_some(),
                                "{}.{} {key}",
                                def.name,
                                field.name
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn fields_of_one_version_only() {
        let has = |version, field: &str| {
            let types = Types::read(FILES, version).unwrap();
            types.get(types.by_name("core.v1.PodSpec").unwrap()).field(field).is_some()
        };
        assert!(has(KubeVersion::V1_36, "schedulingGroup") && !has(KubeVersion::V1_35, "schedulingGroup"));
        assert!(has(KubeVersion::V1_35, "workloadRef") && !has(KubeVersion::V1_36, "workloadRef"));
    }

    #[track_caller]
    fn refused(text: &'static str, expected: &str) {
        assert_eq!(Types::read(&[("f", text)], KubeVersion::V1_36).unwrap_err().to_string(), expected);
    }

    #[test]
    fn bad_data_is_named() {
        refused("  a string", "f:1: a field before the first type");
        refused("type A\n  a B", "f:2: no type \"B\"");
        refused("type A\n  a string what", "f:2: unknown flag \"what\"");
        refused("type A\n  a", "f:2: a field needs a name and a type");
    }
}
