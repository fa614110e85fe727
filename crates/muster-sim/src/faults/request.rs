//! What a request is about.
//!
//! In: method, path and query. Out: verb, resource and name. Must stay true: every path has an answer; what is no
//! resource path has an empty resource.

use http::Method;

/// The object of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub verb: String,
    /// `pods`, or `pods/status` for a subresource.
    pub resource: String,
    pub name: String,
}

impl Target {
    pub fn of(method: &Method, path: &str, query: &str) -> Self {
        let parts: Vec<&str> = path.split('/').filter(|p| !p.is_empty()).collect();
        let rest: &[&str] = match parts.as_slice() {
            ["api", _, rest @ ..] => rest,
            ["apis", _, _, rest @ ..] => rest,
            _ => &[],
        };
        let rest = match rest {
            // Subresources of namespaces themselves are not namespaced objects.
            ["namespaces", _, "status" | "finalize"] => rest,
            ["namespaces", _, inner @ ..] if !inner.is_empty() => inner,
            other => other,
        };
        let (resource, name) = match rest {
            [] => (String::new(), ""),
            [resource] => ((*resource).to_owned(), ""),
            [resource, name] => ((*resource).to_owned(), *name),
            [resource, name, sub, ..] => (format!("{resource}/{sub}"), *name),
        };
        let watches = query.split('&').any(|p| matches!(p, "watch=true" | "watch=1"));
        let verb = match *method {
            Method::GET if watches => "watch",
            Method::GET if name.is_empty() => "list",
            Method::GET => "get",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ => "other",
        };
        Target { verb: verb.to_owned(), resource, name: name.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: Method, uri: &str, expected: &str) {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let target = Target::of(&method, path, query);
        assert_eq!(format!("{} {} {}", target.verb, target.resource, target.name), expected);
    }

    #[test]
    fn requests() {
        check(Method::GET, "/api/v1/pods?watch=true&x=1", "watch pods ");
        check(Method::GET, "/api/v1/pods?limit=5", "list pods ");
        check(Method::GET, "/api/v1/namespaces/a/pods/b", "get pods b");
        check(Method::PATCH, "/api/v1/namespaces/a/pods/b/status", "patch pods/status b");
        check(Method::POST, "/apis/apps/v1/namespaces/a/deployments", "create deployments ");
        check(Method::DELETE, "/api/v1/namespaces/a", "delete namespaces a");
        check(Method::PUT, "/api/v1/namespaces/a/finalize", "update namespaces/finalize a");
        check(Method::GET, "/version", "list  ");
        check(Method::GET, "", "list  ");
    }
}
