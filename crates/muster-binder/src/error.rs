//! How a bind ends.
//!
//! In: what the API answered. Out: [`Bound`], or a [`BindError`] that says whether the same placement may be tried
//! again or must be decided anew. Must stay true: only [`BindError::Retry`] is worth the same attempt again.

use std::time::Duration;

use muster_runtime::{ApiError, Key};

/// The pod is on its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// It already was: an earlier attempt had succeeded whose answer never came.
    pub already: bool,
}

/// The pod is not on its node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// The API had a bad moment, or something needs longer than it was given.
    #[error("{text}")]
    Retry { text: String, after: Option<Duration> },
    /// The pod is deleted, or being deleted, or another one has its name.
    #[error("the pod is gone")]
    Gone,
    /// Somebody bound it to another node.
    #[error("the pod is already bound to node {node}")]
    Elsewhere { node: String },
    /// This placement cannot be carried out, however often it is tried.
    #[error("{text}")]
    Refused { text: String },
    /// Another pod of the gang failed, so what had been prepared for this one was undone.
    #[error("rolled back, because {by} of the same gang was not bound: {text}")]
    RolledBack { by: Key, text: String },
}

impl BindError {
    pub fn retry(text: impl Into<String>) -> Self {
        BindError::Retry { text: text.into(), after: None }
    }

    pub fn refused(text: impl Into<String>) -> Self {
        BindError::Refused { text: text.into() }
    }

    /// Whether a text is that of a [`BindError::RolledBack`].
    pub(crate) fn tells_of_roll_back(text: &str) -> bool {
        text.starts_with("rolled back, because ")
    }

    /// Whether the same assignment may be tried again.
    pub fn retryable(&self) -> bool {
        matches!(self, BindError::Retry { .. })
    }

    /// How long the server asked us to wait.
    pub fn after(&self) -> Option<Duration> {
        match self {
            BindError::Retry { after, .. } => *after,
            _ => None,
        }
    }
}

/// What a failed request means when nothing more is known about its object. 404 and 409 mean something else for every
/// request, so callers look at these first; left over, they are a race that another attempt wins.
impl From<ApiError> for BindError {
    fn from(error: ApiError) -> Self {
        let text = text_of(&error);
        match error.code() {
            // Invalid, forbidden, no such method: the same request gets the same answer.
            400 | 402 | 403 | 405 | 406 | 413 | 415 | 422 => BindError::Refused { text },
            _ => BindError::Retry { text, after: error.retry_after() },
        }
    }
}

/// What failed, and the server's own words.
pub(crate) fn text_of(error: &ApiError) -> String {
    match error {
        ApiError::Request { .. } => format!("{error}: {}", error.message()),
        other => other.to_string(),
    }
}
