//! The kinds built into Kubernetes as data, and their defaulting, preparation and validation as pure functions.
//!
//! In: the text files under `kinds/` (names, types, list keys, patch strategies) and, per call, one object as a
//! [`serde_json::Value`]. Out: [`Kind`]s with their [`k8s_schema::Schema`], changed objects, and
//! [`k8s_schema::FieldError`]s in the words of kube-apiserver.
//!
//! An object goes through these steps, in this order, on its way into a store:
//! 1. [`decode_error`]: is every value of the type that the field has? (else: bad request)
//! 2. [`to_storage`]: into the version that is stored ([`Kind::storage_group`], [`Kind::storage_version`]).
//! 3. [`default`]: the shape that a Go client would read back, with every default filled in.
//! 4. [`admit_create`] or [`admit_update`]: what the built-in admission plugins set without looking at other objects.
//! 5. [`prepare_create`], [`prepare_update`] or [`prepare_status_update`]: what a client may not set is put right. By now
//!    the server has set the name, `uid` and `creationTimestamp` of a new object.
//! 6. [`validate_create`], [`validate_update`] or [`validate_status_update`].
//! 7. [`warnings`]: what is accepted and better not done.
//!
//! What must stay true: no function here fails, panics or recurses without bound on any JSON value; nothing reads a
//! clock or another object, nor any file but the time zone database; time and memory grow with the size of the object; `default` applied twice equals `default` applied once.

mod admit;
mod convert;
mod data;
mod defaults;
mod fields;
mod json;
mod kind;
mod normal;
mod prepare;
mod schema;
mod validate;
mod warn;

pub use admit::{PriorityRefusal, admit_create, admit_update, apply_priority};
pub use convert::{event_to_core, event_to_events, from_storage, hpa_v1_to_v2, hpa_v2_to_v1, to_storage};
pub use defaults::{blank, default, default_members};
pub use fields::{FieldLabelError, field_label, field_value};
pub use kind::{Gvk, Kind, KubeVersion, Subresource, find, find_kind, kinds, schema_of};
pub use normal::{decode_error, metadata_error};
pub use prepare::{is_kept_apart, prepare_create, prepare_status_update, prepare_update, unowned_by_status};
pub use validate::{
    validate_binding, validate_bookkeeping, validate_create, validate_custom_meta, validate_ephemeral_update,
    validate_resize, validate_scale, validate_status_update, validate_update,
};
pub use warn::warnings;
