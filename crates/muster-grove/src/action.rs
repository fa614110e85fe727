//! What a plan wants done.

use muster_runtime::Key;
use muster_runtime::object::{Meta, Resource};
use serde_json::Value;

#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Make an object; the body lacks `apiVersion`, `kind` and owner.
    Create {
        resource: Resource,
        body: Value,
    },
    /// Make a claim whose spec must be read first.
    CreateClaim {
        body: Value,
        template: Key,
    },
    /// A merge patch.
    Patch {
        resource: Resource,
        key: Key,
        body: Value,
    },
    /// A merge patch of the status, for the version that was looked at.
    PatchStatus {
        resource: Resource,
        key: Key,
        version: String,
        body: Value,
    },
    Delete {
        resource: Resource,
        key: Key,
        uid: String,
    },
}

impl Action {
    pub fn delete(resource: Resource, meta: &Meta) -> Action {
        Action::Delete {
            resource,
            key: Key::new(meta.namespace.clone(), meta.name.clone()),
            uid: meta.uid.clone(),
        }
    }

    /// In short, for tests and logs: `+Kind name`, `~Kind name`, `-Kind name`.
    pub fn short(&self) -> String {
        match self {
            Action::Create { resource, body } => {
                format!("+{} {}", resource.kind, crate::object::text(body, &["metadata", "name"]))
            }
            Action::CreateClaim { body, .. } => {
                format!("+ResourceClaim {}", crate::object::text(body, &["metadata", "name"]))
            }
            Action::Patch { resource, key, .. } => format!("~{} {}", resource.kind, key.name),
            Action::PatchStatus { resource, key, .. } => format!("~{}/status {}", resource.kind, key.name),
            Action::Delete { resource, key, .. } => format!("-{} {}", resource.kind, key.name),
        }
    }
}
