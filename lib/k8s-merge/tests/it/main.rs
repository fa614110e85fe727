//! Tests of the public interface: tables of cases, cases recorded from the reference implementation, and laws.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod apply;
mod golden;
mod laws;
mod merge_patch;
mod strategic;

use k8s_merge::apply::{FieldSet, Request};
use serde_json::Value;
use std::sync::LazyLock;

/// OpenAPI schemas by kind. `Thing` has one field of each sort; the others are cut from Kubernetes 1.36.
static SCHEMAS: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("golden/schemas.json")).expect("the schemas are JSON")
});

fn schema(kind: &str) -> &'static Value {
    &SCHEMAS[kind]
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

fn request<'a>(manager: &'a str, now: &'a str) -> Request<'a> {
    Request {
        manager,
        api_version: "x.io/v1",
        subresource: None,
        now,
        force: false,
        ignored: FieldSet::EMPTY,
    }
}
