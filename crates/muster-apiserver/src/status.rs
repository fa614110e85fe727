//! Refusals as the Kubernetes API words them. In: what went wrong, with the object named. Out: a `Status` object and
//! its HTTP code.
//!
//! Invariant: every error response of this server is an [`ApiError`]; texts follow apimachinery's, since clients and
//! people match on them.

use k8s_schema::FieldError;
use serde_json::{Map, Value, json};

/// Names a resource in error texts: `pods` in the core group, `deployments.apps` elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupResource {
    /// API group, empty for core.
    pub group: String,
    /// Plural name.
    pub resource: String,
}

impl std::fmt::Display for GroupResource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.group.is_empty() {
            write!(f, "{}", self.resource)
        } else {
            write!(f, "{}.{}", self.resource, self.group)
        }
    }
}

/// A refused request.
#[derive(Clone, Debug)]
pub struct ApiError {
    /// HTTP status code.
    pub code: u16,
    /// Machine-readable reason.
    pub reason: &'static str,
    /// Text for people.
    pub message: String,
    /// The `details` of the Status, if any.
    pub details: Map<String, Value>,
    /// For an expired page: the token with which to go on regardless.
    pub continue_token: Option<String>,
    has_details: bool,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ApiError {}

impl ApiError {
    /// An error with no details.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> ApiError {
        ApiError {
            code,
            reason,
            message: message.into(),
            details: Map::new(),
            continue_token: None,
            has_details: false,
            warnings: Vec::new(),
        }
    }

    fn about(mut self, gr: &GroupResource, name: &str) -> ApiError {
        if !name.is_empty() {
            self.details.insert("name".into(), name.into());
        }
        if !gr.group.is_empty() {
            self.details.insert("group".into(), gr.group.as_str().into());
        }
        self.details.insert("kind".into(), gr.resource.as_str().into());
        self
    }

    /// Asks the client to come back after so many seconds.
    pub fn retry_after(mut self, seconds: u32) -> ApiError {
        self.details.insert("retryAfterSeconds".into(), seconds.into());
        self
    }

    fn causes(mut self, causes: Vec<Value>) -> ApiError {
        if !causes.is_empty() {
            self.details.insert("causes".into(), causes.into());
        }
        self
    }

    /// With warnings for the client that are not among its own, before these.
    pub fn warned(mut self, mut warnings: Vec<String>) -> ApiError {
        warnings.append(&mut self.warnings);
        self.warnings = warnings;
        self
    }

    /// The object does not exist.
    pub fn not_found(gr: &GroupResource, name: &str) -> ApiError {
        ApiError::new(404, "NotFound", format!("{gr} \"{name}\" not found")).about(gr, name)
    }

    /// The path names nothing that is served.
    pub fn no_such_path() -> ApiError {
        ApiError::new(404, "NotFound", "the server could not find the requested resource").with_details()
    }

    /// The whole group is unknown. The real server answers this one in plain text.
    pub fn no_such_group() -> ApiError {
        ApiError::new(404, "", "404 page not found\n")
    }

    /// Shows `details` even though there are none, as the generic responses of the real server do.
    pub(crate) fn with_details(mut self) -> ApiError {
        self.has_details = true;
        self
    }

    /// An error that the real server makes of a plain text: code 500, no reason.
    pub fn plain(message: impl Into<String>) -> ApiError {
        ApiError::new(500, "", message)
    }

    /// A patch that cannot be applied to the object.
    pub fn unprocessable() -> ApiError {
        let text = "the server rejected our request due to an error in our request";
        ApiError::new(422, "Invalid", text).with_details()
    }

    /// An object of that name is there already.
    pub fn already_exists(gr: &GroupResource, name: &str) -> ApiError {
        ApiError::new(409, "AlreadyExists", format!("{gr} \"{name}\" already exists")).about(gr, name)
    }

    /// The write was based on another state than the stored one.
    pub fn conflict(gr: &GroupResource, name: &str, why: &str) -> ApiError {
        ApiError::new(409, "Conflict", format!("Operation cannot be fulfilled on {gr} \"{name}\": {why}"))
            .about(gr, name)
    }

    /// The update carried an old resourceVersion.
    pub fn modified(gr: &GroupResource, name: &str) -> ApiError {
        ApiError::conflict(
            gr,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// Another field manager owns what this apply wants to change.
    pub fn apply_conflict(message: String, causes: Vec<Value>) -> ApiError {
        ApiError::new(409, "Conflict", message).causes(causes)
    }

    /// The object breaks rules of its kind.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> ApiError {
        let qualified = if group.is_empty() { kind.to_string() } else { format!("{kind}.{group}") };
        let text = k8s_schema::aggregate(errors).unwrap_or_default();
        let mut error = ApiError::new(422, "Invalid", format!("{qualified} \"{name}\" is invalid: {text}"));
        if !name.is_empty() {
            error.details.insert("name".into(), name.into());
        }
        if !group.is_empty() {
            error.details.insert("group".into(), group.into());
        }
        if !kind.is_empty() {
            error.details.insert("kind".into(), kind.into());
        }
        error.causes(errors.iter().map(FieldError::to_cause).collect())
    }

    /// The request itself makes no sense.
    pub fn bad_request(message: impl Into<String>) -> ApiError {
        ApiError::new(400, "BadRequest", message)
    }

    /// An admission rule forbids it.
    pub fn forbidden(gr: &GroupResource, name: &str, why: impl std::fmt::Display) -> ApiError {
        let message = if name.is_empty() {
            format!("{gr} is forbidden: {why}")
        } else {
            format!("{gr} \"{name}\" is forbidden: {why}")
        };
        ApiError::new(403, "Forbidden", message).about(gr, name)
    }

    /// No or wrong credentials.
    pub fn unauthorized() -> ApiError {
        ApiError::new(401, "Unauthorized", "Unauthorized")
    }

    /// The resource does not have this verb.
    pub fn method_not_allowed() -> ApiError {
        ApiError::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
        .with_details()
    }

    /// The body's content type cannot be read here.
    pub fn unsupported_media_type(message: impl Into<String>) -> ApiError {
        ApiError::new(415, "UnsupportedMediaType", message)
    }

    /// The patch type is none that exists.
    pub fn unsupported_patch_type() -> ApiError {
        ApiError::new(415, "UnsupportedMediaType", "415: Unsupported Media Type").with_details()
    }

    /// No content type that we write is acceptable to the client.
    pub fn not_acceptable() -> ApiError {
        let text = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf";
        ApiError::new(406, "NotAcceptable", text).with_details()
    }

    /// The requested resourceVersion is no longer in the history.
    pub fn expired(message: impl Into<String>) -> ApiError {
        ApiError::new(410, "Expired", message)
    }

    /// The requested resourceVersion lies in the future.
    pub fn too_large_revision(asked: u64, current: u64) -> ApiError {
        let mut error = ApiError::new(
            504,
            "Timeout",
            format!("Timeout: Too large resource version: {asked}, current: {current}"),
        )
        .retry_after(1);
        let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
        error.details.insert("causes".into(), json!([cause]));
        error
    }

    /// The request would break a disruption budget; the client should try again later.
    pub fn too_many_requests(message: impl Into<String>, causes: Vec<Value>) -> ApiError {
        ApiError::new(429, "TooManyRequests", message).causes(causes)
    }

    /// Something that must not happen did.
    pub fn internal(message: impl std::fmt::Display) -> ApiError {
        ApiError::new(500, "InternalError", format!("Internal error occurred: {message}"))
    }

    /// The `Status` object for the wire.
    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if self.has_details || !self.details.is_empty() {
            status["details"] = Value::Object(self.details.clone());
        }
        if let Some(token) = &self.continue_token {
            status["metadata"]["continue"] = token.as_str().into();
        }
        status
    }
}

/// The `Status` that answers a delete.
pub fn deleted(gr: &GroupResource, name: &str, uid: &str) -> Value {
    let mut details = Map::new();
    details.insert("name".into(), name.into());
    if !gr.group.is_empty() {
        details.insert("group".into(), gr.group.as_str().into());
    }
    details.insert("kind".into(), gr.resource.as_str().into());
    if !uid.is_empty() {
        details.insert("uid".into(), uid.into());
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

/// The `Status` that answers an action without a result of its own, such as a binding.
pub fn success(code: u16) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code})
}
