//! The ways in which Kubernetes changes and merges objects, over [`serde_json::Value`]:
//!
//! * [`json_patch()`]: JSON patch, RFC 6902;
//! * [`merge_patch`]: JSON merge patch, RFC 7396;
//! * [`strategic_merge`]: strategic merge patch, with its directives and merged lists;
//! * [`apply`]: server-side apply, with field managers, conflicts and `metadata.managedFields`.
//!
//! In: objects, patches and configurations as JSON, and for the last two a [`Shape`], which says what merging has to know of
//! the type: which lists have keys, which objects are replaced as a whole. [`OpenApi`] reads it from a schema, [`Untyped`]
//! stands for having none, and any handle into a schema of your own can implement it. Out: the merged object, or a typed
//! refusal that prints as the API server prints it.
//!
//! Must stay true: results are those of Kubernetes 1.36, down to the order of lists and the text of messages (the tests replay
//! cases recorded from it); nothing panics, whatever the input; and no input takes more than about `n log n` time.
//!
//! ```
//! use k8s_merge::{OpenApi, apply::{self, FieldSet, Request}};
//! use serde_json::json;
//!
//! let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
//!     "replicas": {"type": "integer"},
//!     "containers": {
//!         "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
//!         "items": {"type": "object", "properties": {"name": {"type": "string"}, "image": {"type": "string"}}},
//!     },
//! }}}});
//! let request = |manager| Request {
//!     manager, api_version: "v1", subresource: None, now: "2026-01-01T00:00:00Z", force: false, ignored: FieldSet::EMPTY,
//! };
//!
//! // Two clients apply different parts of one object, and each may change its own.
//! let web = json!({"spec": {"containers": [{"name": "web", "image": "web:1"}]}});
//! let log = json!({"spec": {"containers": [{"name": "log", "image": "log:1"}]}});
//! let live = apply::apply(None, &web, OpenApi(&schema), &request("web-team"))?;
//! let live = apply::apply(Some(&live), &log, OpenApi(&schema), &request("log-team"))?;
//! assert_eq!(live["spec"]["containers"], json!([
//!     {"name": "web", "image": "web:1"}, {"name": "log", "image": "log:1"},
//! ]));
//!
//! // What a client stops applying goes away.
//! let live = apply::apply(Some(&live), &json!({}), OpenApi(&schema), &request("web-team"))?;
//! assert_eq!(live["spec"]["containers"], json!([{"name": "log", "image": "log:1"}]));
//!
//! // Changing what another client applied is a conflict.
//! let other = json!({"spec": {"containers": [{"name": "log", "image": "log:2"}]}});
//! let refused = apply::apply(Some(&live), &other, OpenApi(&schema), &request("web-team")).unwrap_err();
//! assert_eq!(
//!     refused.to_string(),
//!     r#"Apply failed with 1 conflict: conflict with "log-team": .spec.containers[name="log"].image"#
//! );
//! # Ok::<(), apply::ApplyError>(())
//! ```

// In reading order.
mod shape;

mod json_patch;
mod merge_patch;
mod strategic;

pub mod apply;

mod go_format;

pub use go_format::go_text;
pub use json_patch::{JsonPatchError, json_patch};
pub use merge_patch::merge_patch;
pub use shape::{Kind, ListMerge, OpenApi, Patch, Scalar, Shape, Untyped};
pub use strategic::{PatchError, strategic_merge, strategic_merged};

/// Objects nested deeper than this are refused. `serde_json` reads no more than 128 levels; the walks over objects built in
/// memory are recursive, and have to end before the stack does.
pub(crate) const MAX_DEPTH: usize = 512;

/// Whether a value is nested deeper than a recursive walk may go. Keeps its own stack.
pub(crate) fn too_deep(value: &serde_json::Value) -> bool {
    use serde_json::Value;
    let mut pending = vec![(value, 0)];
    while let Some((value, depth)) = pending.pop() {
        if depth > MAX_DEPTH {
            return true;
        }
        match value {
            Value::Array(items) => pending.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(members) => pending.extend(members.values().map(|member| (member, depth + 1))),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    false
}
