//! Kubernetes structural schemas over [`serde_json::Value`]: what an API server does with an object between reading and
//! storing it.
//!
//! One [`Schema`] type serves custom resources, read and judged by [`Schema::from_crd`], and built-in kinds, whose schemas are
//! built in code. With a schema, an object is
//!
//! - pruned: [`prune`] removes fields that are not declared, and names them for strict field validation, as
//!   [`duplicate_keys`] does for fields that are there twice;
//! - defaulted: [`default`] fills in what is absent;
//! - validated: [`validate`] checks all but the CEL rules, [`validate_rules`] the rules, and [`validate_all`] both in the
//!   API server's order; updates are judged together with the object they replace;
//! - published: [`Schema::to_openapi`] writes the OpenAPI v3 form;
//! - merged: `&Schema` is a [`k8s_merge::Shape`].
//!
//! Errors are [`FieldError`] values whose text is the API server's, because clients and people match on it. The tests compare
//! about a thousand recorded answers of release 1.36.
//!
//! ```
//! use k8s_schema::{Schema, aggregate, default, prune, validate_all};
//! use serde_json::json;
//!
//! let schema = Schema::from_crd(&json!({
//!     "type": "object",
//!     "properties": {"spec": {
//!         "type": "object",
//!         "properties": {
//!             "replicas": {"type": "integer", "minimum": 0, "default": 1},
//!             "mode": {"type": "string", "enum": ["Fast", "Safe"]},
//!         },
//!         "x-kubernetes-validations": [{
//!             "rule": "!has(self.mode) || self.mode != 'Safe' || self.replicas >= 3",
//!             "message": "safe mode needs three replicas",
//!         }],
//!     }},
//! })).unwrap();
//!
//! let mut object = json!({"spec": {"mode": "Safe", "colour": "red"}});
//! assert_eq!(prune(&mut object, &schema), ["spec.colour"]);
//! default(&mut object, &schema);
//! assert_eq!(object, json!({"spec": {"mode": "Safe", "replicas": 1}}));
//! let errors = validate_all(&object, None, &schema);
//! assert_eq!(aggregate(&errors).unwrap(), "spec: Invalid value: safe mode needs three replicas");
//! ```
//!
//! # Bounds
//!
//! Nothing here panics on what users send. Schemas may be 128 levels deep, which is what JSON readers accept; values are walked
//! by recursion and come from such a reader. Expressions may be 120 levels deep; a rule may spend a million steps and
//! all rules of an object ten million. Patterns run in linear time and their compiled size is limited. The
//! work on an object grows with the object, not with its schema.
//!
//! # What differs from the API server
//!
//! - Rules are not refused for their estimated cost, only stopped when they run too long, and the units are not those of cel-go.
//! - The type checker knows less: it refuses what is surely wrong and lets pass what it cannot tell. Syntax errors point to the
//!   right place but are not always worded alike, and constants are not folded.
//! - Library functions are those of the `kube-cel` crate: `url` does not take apart plain paths, `format` writes durations and
//!   exponents in another way, and some of their errors are worded differently.
//! - Metadata is not looked into, except for its type; the names and labels of embedded objects are not checked.

mod cel;
mod condition;
mod correlate;
mod crd;
mod default;
mod duplicates;
mod error;
mod format;
mod gofmt;
mod openapi;
mod path;
mod pattern;
mod prune;
mod rules;
mod schema;
mod shape;
mod validate;

pub use condition::{Evaluation, Expression, Wanted, condition};
pub use default::default;
pub use duplicates::{MalformedJson, duplicate_keys, is_each_field_once};
pub use error::{ErrorKind, FieldError, aggregate};
pub use prune::prune;
pub use rules::validate_rules;
pub use schema::{Additional, ListType, MapType, Memo, Pattern, Rule, RuleMemo, Schema, Type};
pub use validate::{validate, validate_after, validate_all, validate_beyond, validate_update};
