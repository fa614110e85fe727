//! Turns the type table into [`k8s_schema::Schema`]s.
//!
//! In: [`Types`] and the descriptions file. Out: one `Arc<Schema>` per type, shared by every field that refers to it.
//! What must stay true: types do not contain themselves (the one recursive upstream type, the schema of a custom
//! resource, is an open object here), so building ends; a unit test builds all of them.

use std::{collections::BTreeMap, sync::Arc};

use k8s_schema::{Additional, ListType, MapType, Schema, Type};
use serde_json::Value;

use crate::data::{DESCRIPTIONS, Field, List, Ty, TypeId, Types};

/// Builds schemas and keeps what is built.
pub(crate) struct Schemas<'a> {
    types: &'a Types,
    texts: BTreeMap<&'static str, &'static str>,
    built: BTreeMap<TypeId, Arc<Schema>>,
}

impl<'a> Schemas<'a> {
    pub(crate) fn new(types: &'a Types) -> Self {
        let texts = DESCRIPTIONS.lines().filter_map(|line| line.split_once(": ")).collect();
        Self { types, texts, built: BTreeMap::new() }
    }

    /// The schema of a type.
    pub(crate) fn get(&mut self, id: TypeId) -> Arc<Schema> {
        if let Some(schema) = self.built.get(&id) {
            return Arc::clone(schema);
        }
        let types = self.types;
        let def = types.get(id);
        let mut schema = Schema::of(Type::Object);
        schema.map_type = def.atomic.then_some(MapType::Atomic);
        // Named, so that an OpenAPI document can refer to the type instead of repeating it.
        schema.title = Some(def.name.clone());
        schema.description = self.text(&def.name);
        for field in &def.fields {
            let property = self.field(&def.name, field);
            schema.properties.insert(field.name.to_owned(), property);
            if field.required {
                schema.required.push(field.name.to_owned());
            }
        }
        let schema = Arc::new(schema);
        self.built.insert(id, Arc::clone(&schema));
        schema
    }

    fn field(&mut self, owner: &str, field: &Field) -> Arc<Schema> {
        let base = self.ty(&field.ty);
        let description = self.text(&format!("{owner}.{}", field.name));
        let is_plain = field.list.is_none()
            && field.map_atomic.is_none()
            && field.default.is_none()
            && field.enums.is_empty()
            && field.patch_strategy.is_none()
            && field.patch_key.is_none()
            && description.is_none()
            && !nullable(field);
        if is_plain {
            return base;
        }
        let mut schema = Schema::clone(&base);
        if description.is_some() {
            schema.description = description;
        }
        schema.nullable = nullable(field);
        schema.default = field.default.clone();
        let enums = field.enums.iter().map(|name| Value::from(*name)).collect();
        match (&mut schema.items, &field.ty) {
            (Some(items), Ty::List(_)) if !field.enums.is_empty() => Arc::make_mut(items).enums = enums,
            _ => schema.enums = enums,
        }
        match &field.list {
            Some(List::Atomic) => schema.list_type = Some(ListType::Atomic),
            Some(List::Set) => schema.list_type = Some(ListType::Set),
            Some(List::Map(keys)) => {
                schema.list_type = Some(ListType::Map);
                schema.list_map_keys = keys.iter().map(|key| (*key).to_owned()).collect();
            }
            None => {}
        }
        match field.map_atomic {
            Some(true) => schema.map_type = Some(MapType::Atomic),
            Some(false) => schema.map_type = Some(MapType::Granular),
            None => {}
        }
        schema.patch_strategy = field.patch_strategy.map(str::to_owned);
        schema.patch_merge_key = field.patch_key.map(str::to_owned);
        Arc::new(schema)
    }

    fn ty(&mut self, ty: &Ty) -> Arc<Schema> {
        let formatted = |ty, format: &str| Schema { format: Some(format.to_owned()), ..Schema::of(ty) };
        Arc::new(match ty {
            Ty::String => Schema::of(Type::String),
            Ty::Bytes => formatted(Type::String, "byte"),
            Ty::Bool => Schema::of(Type::Boolean),
            Ty::Int32 => formatted(Type::Integer, "int32"),
            Ty::Int64 => formatted(Type::Integer, "int64"),
            Ty::Double => formatted(Type::Number, "double"),
            Ty::Time | Ty::MicroTime => formatted(Type::String, "date-time"),
            Ty::Quantity => Schema {
                one_of: vec![Arc::new(Schema::of(Type::String)), Arc::new(Schema::of(Type::Number))],
                ..Schema::default()
            },
            Ty::IntOrString => {
                Schema { int_or_string: true, format: Some("int-or-string".to_owned()), ..Schema::default() }
            }
            Ty::Object => Schema { preserve_unknown: true, ..Schema::of(Type::Object) },
            Ty::Any => Schema { preserve_unknown: true, ..Schema::default() },
            Ty::List(item) => Schema { items: Some(self.ty(item)), ..Schema::of(Type::Array) },
            Ty::Map(value) => {
                Schema { additional: Some(Additional::Schema(self.ty(value))), ..Schema::of(Type::Object) }
            }
            Ty::Ref(id) => return self.get(*id),
        })
    }

    fn text(&self, name: &str) -> Option<String> {
        self.texts.get(name).map(|text| (*text).to_owned())
    }
}

/// Whether the reference server writes `null` for the field when it is absent.
fn nullable(field: &Field) -> bool {
    field.always
        && (field.keep_zero
            || matches!(field.ty, Ty::Time | Ty::MicroTime | Ty::List(_) | Ty::Map(_) | Ty::Bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        KubeVersion,
        data::{FILES, Types},
        kinds,
    };

    #[test]
    fn every_description_names_something() {
        for line in DESCRIPTIONS.lines() {
            let (name, text) = line.split_once(": ").unwrap();
            assert!(text.ends_with('.'), "{line}");
            let is_known = [KubeVersion::V1_35, KubeVersion::V1_36].into_iter().any(|version| {
                let types = Types::read(FILES, version).unwrap();
                let field = name.rsplit_once('.').and_then(|(owner, field)| {
                    types.by_name(owner).and_then(|id| types.get(id).field(field).map(|_| ()))
                });
                types.by_name(name).is_some() || field.is_some()
            });
            assert!(is_known, "{name}");
        }
    }

    #[test]
    fn types_are_shared() {
        let template = |plural: &str| {
            let kind = kinds(KubeVersion::V1_36).iter().find(|kind| kind.plural == plural).unwrap();
            Arc::clone(&kind.schema.properties["spec"].properties["template"].properties["spec"])
        };
        assert_eq!(template("deployments").properties.len(), template("daemonsets").properties.len());
        let containers = |plural| Arc::clone(&template(plural).properties["containers"]);
        assert!(Arc::ptr_eq(&containers("deployments"), &containers("daemonsets")));
    }
}
