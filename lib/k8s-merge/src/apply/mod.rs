//! Server-side apply: who owns which field, and what a write changes about it.
//!
//! In: the stored object, what a client sends, the [`Shape`] of the type, and who asks ([`Request`]). Out: the
//! object to store, with `metadata.managedFields` brought up to date, or the reason why an apply is refused.
//!
//! * [`apply`] merges a configuration into an object. Fields that the client applied before and no longer applies go away,
//!   unless someone else owns them too. Changing a field that another manager owns is a [`Conflict`], unless forced.
//! * [`update`] records any other write: changed fields now belong to the writer, and to nobody else.
//!
//! Must stay true: applying the same configuration twice changes nothing the second time, not even times; and a write that
//! changes nothing leaves the record as it was.
//!
//! Fields recorded under another `apiVersion` are taken to have the same names and types as in the shape at hand. An API
//! server that converts between versions converts before it compares; where versions differ in the names of fields, a
//! manager that used the other version keeps what it owns under the old names until it writes again.
//!
//! ```
//! use k8s_merge::{Untyped, apply::{self, FieldSet, Request}};
//! use serde_json::json;
//!
//! let request = |manager| Request {
//!     manager, api_version: "v1", subresource: None, now: "2026-01-01T00:00:00Z", force: false, ignored: FieldSet::EMPTY,
//! };
//! let config = |color| json!({
//!     "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "paint"}, "data": {"color": color},
//! });
//!
//! let live = apply::apply(None, &config("red"), Untyped, &request("alice"))?;
//! assert_eq!(live["metadata"]["managedFields"][0]["fieldsV1"], json!({"f:data": {".": {}, "f:color": {}}}));
//!
//! let refused = apply::apply(Some(&live), &config("blue"), Untyped, &request("bob")).unwrap_err();
//! assert_eq!(refused.to_string(), r#"Apply failed with 1 conflict: conflict with "alice": .data.color"#);
//! # Ok::<(), apply::ApplyError>(())
//! ```

use crate::{Shape, too_deep};
use serde_json::Value;

// In reading order.
mod path;

mod fields;

mod mark;

mod managers;

mod typed;

mod update;

mod creation;

mod record;

mod merge;

mod scale;

pub use fields::{FieldSet, FieldsError};
pub use managers::{Manager, Operation, ReadError, read_managers, write_managers};
pub use merge::{ApplyError, Conflict, apply};
pub use path::{Literal, Path, PathElement, PathError};
pub use record::Record;
pub use scale::scaled;
pub use typed::TypeError;
pub use update::{keep_times, update};

/// All fields of `object`, as an apply of it would own them: leaves, elements of lists, and keys of maps.
///
/// ```
/// use k8s_merge::{Untyped, apply::fields_of};
///
/// let object = serde_json::json!({"data": {"a": 1}});
/// assert_eq!(fields_of(&object, Untyped).to_string(), r#"{"f:data":{".":{},"f:a":{}}}"#);
/// ```
#[must_use]
pub fn fields_of<S: Shape>(object: &Value, shape: S) -> FieldSet {
    if too_deep(object) { FieldSet::new() } else { typed::fields(typed::Type::Known(shape), object) }
}

/// Who writes, and where.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The name of the field manager. Empty stands for `unknown`.
    pub manager: &'a str,
    /// The `apiVersion` of the endpoint.
    pub api_version: &'a str,
    /// The subresource written, such as `status`.
    pub subresource: Option<&'a str>,
    /// The time, in RFC 3339 to the second, in UTC.
    pub now: &'a str,
    /// Whether an apply takes fields over that are in conflict.
    pub force: bool,
    /// Fields that cannot be changed through this endpoint, and that writing through it must not own: `status` on the main
    /// endpoint of a type that has the subresource, `spec` on the endpoint of `status`. A field stands for all below it.
    pub ignored: &'a FieldSet,
}
