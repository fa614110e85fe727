//! Reads the protobuf form of built-in Kubernetes objects into JSON.
//!
//! In: the body of a request whose content type [`is_protobuf`]. Out: the JSON object that the same client would have
//! sent as JSON, with `apiVersion` and `kind` set, so that nothing behind this crate need know of protobuf.
//!
//! The value equals what Go's `encoding/json` prints for the object: a plain field that JSON leaves out when empty is
//! left out here though protobuf carries it, and a plain field that JSON always prints is printed though protobuf left
//! it out.
//!
//! Invariants: there is no input that panics, recurses deeper than [`MAX_DEPTH`] messages or builds a value out of
//! proportion to the body. The crate knows messages only by the tables in `messages/`; no kind is named in the code.

mod decode;
mod special;
mod table;
mod wire;

use serde_json::Value;

/// How many messages may lie within one another. The deepest real objects are the schemas of custom resource
/// definitions, whose JSON form may itself be at most 128 levels deep: about this many messages.
pub const MAX_DEPTH: usize = 64;

/// Reads one object: the four magic bytes, the envelope and the message within.
pub fn decode(body: &[u8]) -> Result<Value, ProtoError> {
    decode::Decoder::new(table::tables(), body.len()).envelope(body, MAX_DEPTH)
}

/// Whether a `Content-Type` (or one entry of an `Accept`) names the protobuf form; parameters are passed over.
pub fn is_protobuf(content_type: &str) -> bool {
    content_type.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(decode::MEDIA_TYPE)
}

/// Why a body was refused. Every one is the client's fault: an API server answers 400.
#[derive(Debug, thiserror::Error)]
pub enum ProtoError {
    #[error("the body is not kubernetes protobuf: it does not start with the bytes \"k8s\\0\"")]
    NotProtobuf,
    #[error("the protobuf envelope names no kind")]
    NoKind,
    #[error("no protobuf message is known for kind \"{kind}\" in version \"{api_version}\"")]
    UnknownKind { api_version: String, kind: String },
    #[error("the protobuf envelope holds content encoding \"{0}\", which is not supported")]
    ContentEncoding(String),
    #[error("the protobuf envelope holds content type \"{0}\", which is not supported")]
    ContentType(String),
    #[error("the protobuf body ends within a field")]
    Truncated,
    #[error("the protobuf body holds a number of more than ten bytes")]
    LongNumber,
    #[error("the protobuf body holds the illegal field tag {0}")]
    BadTag(u64),
    #[error("{message}.{field}: the wire type does not suit the field")]
    WireType { message: &'static str, field: &'static str },
    #[error("{message}.{field}: the string is not UTF-8")]
    BadUtf8 { message: &'static str, field: &'static str },
    #[error("{message}.{field}: the embedded value is not JSON")]
    BadJson {
        message: &'static str,
        field: &'static str,
        #[source]
        source: serde_json::Error,
    },
    #[error("{message}.{field}: the value has no JSON form: {why}")]
    NoJson { message: &'static str, field: &'static str, why: &'static str },
    #[error("the protobuf body nests deeper than {MAX_DEPTH} messages")]
    TooDeep,
    #[error("the protobuf body would grow out of proportion to its {bytes} bytes")]
    TooLarge { bytes: usize },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_type(content_type: &str, expected: bool) {
        assert_eq!(is_protobuf(content_type), expected, "{content_type}");
    }

    #[test]
    fn content_types() {
        check_type("application/vnd.kubernetes.protobuf", true);
        check_type("Application/Vnd.Kubernetes.Protobuf", true);
        check_type(" application/vnd.kubernetes.protobuf ; charset=utf-8", true);
        check_type("application/vnd.kubernetes.protobuf;stream=watch", true);
        check_type("application/json", false);
        check_type("application/vnd.kubernetes.protobufs", false);
        check_type("application/json;as=application/vnd.kubernetes.protobuf", false);
        check_type("", false);
    }
}
