//! How merging sees a schema.

use k8s_merge::{Kind, ListMerge, Patch, Scalar, Shape};
use serde_json::Value;

use crate::{Additional, ListType, MapType, Schema, Type};

impl Shape for &Schema {
    fn kind(self) -> Kind {
        if self.int_or_string {
            return Kind::Scalar;
        }
        match self.ty {
            Type::String | Type::Integer | Type::Number | Type::Boolean => Kind::Scalar,
            Type::Array => Kind::List,
            _ if !self.properties.is_empty() => Kind::Struct,
            Type::Object => Kind::Map,
            Type::Any => Kind::Unknown,
        }
    }

    fn field(self, name: &str) -> Option<Self> {
        if !self.properties.is_empty() {
            return self.properties.get(name).map(AsRef::as_ref);
        }
        match &self.additional {
            Some(Additional::Schema(child)) => Some(child),
            _ => None,
        }
    }

    fn item(self) -> Option<Self> {
        self.items.as_deref()
    }

    fn list(self) -> ListMerge {
        match self.list_type {
            Some(ListType::Map) => ListMerge::Map,
            Some(ListType::Set) => ListMerge::Set,
            Some(ListType::Atomic) | None => ListMerge::Atomic,
        }
    }

    fn list_keys(self, visit: &mut dyn FnMut(&str)) {
        self.list_map_keys.iter().for_each(|key| visit(key));
    }

    fn atomic(self) -> bool {
        self.map_type == Some(MapType::Atomic)
    }

    fn default(self) -> Option<Value> {
        self.default.clone()
    }

    fn patch(self) -> Patch {
        Patch::new(self.patch_strategy.as_deref(), self.patch_merge_key.as_deref())
    }

    fn closed(self) -> bool {
        !self.properties.is_empty()
            && !self.preserve_unknown
            && !self.embedded_resource
            && self.additional.is_none()
    }

    fn scalar(self) -> Scalar {
        if self.int_or_string {
            return Scalar::Any;
        }
        match self.ty {
            Type::String => Scalar::String,
            Type::Integer | Type::Number => Scalar::Number,
            Type::Boolean => Scalar::Boolean,
            Type::Any | Type::Object | Type::Array => Scalar::Any,
        }
    }
}
