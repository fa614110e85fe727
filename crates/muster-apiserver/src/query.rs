//! Query parameters of API requests, parsed once. In: the query string. Out: typed options, or a refusal that names the
//! parameter.

use crate::selector::{self, Fields, Labels};
use crate::status::ApiError;
use percent_encoding::percent_decode_str;

/// How unknown and duplicate fields are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Drop them in silence.
    Ignore,
    /// Drop them and say so in a warning header.
    #[default]
    Warn,
    /// Refuse the request.
    Strict,
}

/// The parameters of a request, all of them optional.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// `labelSelector`
    pub labels: Labels,
    /// `fieldSelector`
    pub fields: Fields,
    /// `watch`
    pub watch: bool,
    /// `allowWatchBookmarks`
    pub bookmarks: bool,
    /// `sendInitialEvents`
    pub send_initial_events: Option<bool>,
    /// `resourceVersion`; empty means "most recent"
    pub resource_version: String,
    /// `resourceVersionMatch`
    pub resource_version_match: String,
    /// `limit`
    pub limit: usize,
    /// `continue`
    pub continue_token: String,
    /// `timeoutSeconds`
    pub timeout_seconds: Option<u64>,
    /// `dryRun=All`
    pub dry_run: bool,
    /// `fieldManager`
    pub field_manager: String,
    /// `fieldValidation`
    pub field_validation: FieldValidation,
    /// `force`
    pub force: Option<bool>,
    /// `propagationPolicy`
    pub propagation_policy: Option<String>,
    /// `gracePeriodSeconds`
    pub grace_period_seconds: Option<i64>,
    /// `orphanDependents`
    pub orphan_dependents: Option<bool>,
    /// `includeObject` of tables
    pub include_object: String,
}

/// Splits and decodes a query string.
pub fn pairs(query: &str) -> impl Iterator<Item = (String, String)> + '_ {
    query.split('&').filter(|p| !p.is_empty()).map(|p| {
        let (k, v) = p.split_once('=').unwrap_or((p, ""));
        let decode = |s: &str| percent_decode_str(&s.replace('+', " ")).decode_utf8_lossy().into_owned();
        (decode(k), decode(v))
    })
}

/// Whether a parameter means yes.
pub fn boolean(v: &str) -> bool {
    // Go's conversion for query parameters: present and not plainly false means true.
    !matches!(v, "false" | "0" | "False" | "FALSE" | "f" | "F")
}

impl Query {
    /// Reads the query string; `options` is the kind that refusals name, such as `CreateOptions`.
    pub fn parse(query: &str, options: &str) -> Result<Query, ApiError> {
        let mut q = Query::default();
        for (k, v) in pairs(query) {
            let number = |v: &str| {
                v.parse::<i64>().map_err(|_| {
                    ApiError::bad_request(format!("strconv.ParseInt: parsing \"{v}\": invalid syntax"))
                })
            };
            match k.as_str() {
                "labelSelector" => {
                    q.labels = selector::parse_labels(&v).map_err(ApiError::bad_request)?;
                }
                "fieldSelector" => {
                    q.fields = selector::parse_fields(&v).map_err(ApiError::bad_request)?;
                }
                "watch" => q.watch = boolean(&v),
                "allowWatchBookmarks" => q.bookmarks = boolean(&v),
                "sendInitialEvents" => q.send_initial_events = Some(boolean(&v)),
                "resourceVersion" => q.resource_version = v,
                "resourceVersionMatch" => q.resource_version_match = v,
                "limit" => q.limit = usize::try_from(number(&v)?).unwrap_or(0),
                "continue" => q.continue_token = v,
                "timeoutSeconds" => q.timeout_seconds = u64::try_from(number(&v)?).ok(),
                "dryRun" => {
                    if v != "All" {
                        let error = k8s_schema::FieldError::not_supported("dryRun", vec![v.clone()], ["All"]);
                        return Err(ApiError::invalid("meta.k8s.io", options, "", &[error]));
                    }
                    q.dry_run = true;
                }
                "fieldManager" => q.field_manager = v,
                "fieldValidation" => {
                    q.field_validation = match v.as_str() {
                        "Ignore" => FieldValidation::Ignore,
                        "Strict" => FieldValidation::Strict,
                        "" | "Warn" => FieldValidation::Warn,
                        _ => {
                            let allowed = ["", "Ignore", "Strict", "Warn"];
                            let error =
                                k8s_schema::FieldError::not_supported("fieldValidation", v.clone(), allowed);
                            return Err(ApiError::invalid("meta.k8s.io", options, "", &[error]));
                        }
                    }
                }
                "force" => q.force = Some(boolean(&v)),
                "propagationPolicy" => q.propagation_policy = Some(v),
                "gracePeriodSeconds" => q.grace_period_seconds = Some(number(&v)?),
                "orphanDependents" => q.orphan_dependents = Some(boolean(&v)),
                "includeObject" => q.include_object = v,
                // `pretty`, `timeout` and parameters of subresources are read where they matter.
                _ => {}
            }
        }
        Ok(q)
    }
}
