//! What is asked of admission.

use serde_json::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

impl Operation {
    pub fn read(text: &str) -> Option<Operation> {
        match text {
            "CREATE" => Some(Operation::Create),
            "UPDATE" => Some(Operation::Update),
            "DELETE" => Some(Operation::Delete),
            "CONNECT" => Some(Operation::Connect),
            _ => None,
        }
    }
}

/// One request. `object` is null on delete, `old` on create.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    pub operation: Operation,
    pub namespace: &'a str,
    pub name: &'a str,
    /// Tells this request from every other; names that must be new are made of it.
    pub uid: &'a str,
    pub object: &'a Value,
    pub old: &'a Value,
}

/// Who asks, and for what part of the object; rules that look at neither are not given it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Caller<'a> {
    pub user: &'a str,
    /// `scale`; empty for the object itself.
    pub subresource: &'a str,
}
