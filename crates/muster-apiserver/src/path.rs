//! The URL grammar of the Kubernetes API. In: a path. Out: what it names.
//!
//! Pure, and total: any bytes give an answer. Whether the named resource exists is the registry's business.

use percent_encoding::percent_decode_str;

/// What a request path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `/api`
    LegacyVersions,
    /// `/apis`
    Groups,
    /// `/apis/GROUP`
    Group(String),
    /// `/api/v1`, `/apis/GROUP/VERSION`
    GroupVersion { group: String, version: String },
    /// An object, a collection or a subresource.
    Resource(ResourcePath),
    /// `/version`, `/healthz`, `/openapi/v3/...` and whatever else is not under the API roots.
    Other(String),
}

/// The part of a resource path after group and version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourcePath {
    /// API group; empty for core.
    pub group: String,
    /// API version.
    pub version: String,
    /// Namespace, if the path has one.
    pub namespace: Option<String>,
    /// Plural resource name.
    pub resource: String,
    /// Object name; none for collections.
    pub name: Option<String>,
    /// Subresource, such as `status`.
    pub subresource: Option<String>,
    /// Whether the path itself asks for a watch, in the old form `/api/v1/watch/...`.
    pub watch: bool,
}

/// Reads a path.
pub fn parse(path: &str) -> Target {
    let segments: Vec<String> = path
        .split('/')
        .filter(|s| !s.is_empty())
        .map(|s| percent_decode_str(s).decode_utf8_lossy().into_owned())
        .collect();
    let rest: &[String];
    let (group, version) = match segments.first().map(String::as_str) {
        Some("api") => match segments.len() {
            1 => return Target::LegacyVersions,
            _ => {
                rest = &segments[2..];
                (String::new(), segments[1].clone())
            }
        },
        Some("apis") => match segments.len() {
            1 => return Target::Groups,
            2 => return Target::Group(segments[1].clone()),
            _ => {
                rest = &segments[3..];
                (segments[1].clone(), segments[2].clone())
            }
        },
        _ => return Target::Other(path.to_string()),
    };
    let watch = rest.first().is_some_and(|s| s == "watch") && rest.len() > 1;
    let rest = if watch { &rest[1..] } else { rest };
    if rest.is_empty() {
        return Target::GroupVersion { group, version };
    }
    let at = |i: usize| rest.get(i).cloned();
    let mut found = ResourcePath { group, version, watch, ..ResourcePath::default() };
    // `namespaces/x` is the namespace x itself and `namespaces/x/status` its status, but `namespaces/x/pods` is a
    // collection inside it.
    let scoped = rest[0] == "namespaces"
        && rest.len() > 2
        && !(found.group.is_empty() && matches!(rest[2].as_str(), "status" | "finalize"));
    let base = if scoped {
        found.namespace = at(1);
        2
    } else {
        0
    };
    if rest.len() > base + 3 {
        return Target::Other(path.to_string());
    }
    found.resource = rest[base].clone();
    found.name = at(base + 1);
    found.subresource = at(base + 2);
    Target::Resource(found)
}

/// The resource, object or subresource that a longer path lies below, as those of proxies do.
pub fn parse_deep(path: &str) -> Option<ResourcePath> {
    let mut rest = path;
    while let Some((shorter, _)) = rest.rsplit_once('/') {
        if let Target::Resource(found) = parse(shorter) {
            return Some(found);
        }
        rest = shorter;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(path: &str, expected: &str) {
        let text = match parse(path) {
            Target::LegacyVersions => "legacy".into(),
            Target::Groups => "groups".into(),
            Target::Group(g) => format!("group {g}"),
            Target::GroupVersion { group, version } => format!("gv {group}/{version}"),
            Target::Other(p) => format!("other {p}"),
            Target::Resource(r) => {
                let mut t = format!("{}/{} {}", r.group, r.version, r.resource);
                if let Some(ns) = r.namespace {
                    t = format!("{t} in {ns}");
                }
                if let Some(n) = r.name {
                    t = format!("{t} named {n}");
                }
                if let Some(s) = r.subresource {
                    t = format!("{t} sub {s}");
                }
                if r.watch {
                    t = format!("watch {t}");
                }
                t
            }
        };
        assert_eq!(text, expected, "{path}");
    }

    #[test]
    fn paths() {
        check("/api", "legacy");
        check("/api/", "legacy");
        check("/apis", "groups");
        check("/apis/apps", "group apps");
        check("/apis/apps/v1", "gv apps/v1");
        check("/api/v1", "gv /v1");
        check("/api/v1/pods", "/v1 pods");
        check("/api/v1/nodes/a", "/v1 nodes named a");
        check("/api/v1/nodes/a/status", "/v1 nodes named a sub status");
        check("/api/v1/namespaces", "/v1 namespaces");
        check("/api/v1/namespaces/x", "/v1 namespaces named x");
        check("/api/v1/namespaces/x/finalize", "/v1 namespaces named x sub finalize");
        check("/api/v1/namespaces/x/status", "/v1 namespaces named x sub status");
        check("/api/v1/namespaces/x/pods", "/v1 pods in x");
        check("/api/v1/namespaces/x/pods/p", "/v1 pods in x named p");
        check("/api/v1/namespaces/x/pods/p/binding", "/v1 pods in x named p sub binding");
        check("/apis/apps/v1/namespaces/x/deployments/d/scale", "apps/v1 deployments in x named d sub scale");
        check("/apis/g/v1/namespaces/x/status", "g/v1 status in x");
        check("/api/v1/namespaces/x/pods/p/proxy/a/b", "other /api/v1/namespaces/x/pods/p/proxy/a/b");
        check("/api/v1/watch/namespaces/x/pods/p", "watch /v1 pods in x named p");
        check("/apis/g/v1/watch/things", "watch g/v1 things");
        check("/version", "other /version");
        check("/", "other /");
        check("/api/v1/pods/a%2Fb", "/v1 pods named a/b");
    }

    proptest! {
        #[test]
        fn never_panics(path in "\\PC*") {
            let _ = parse(&path);
        }

        #[test]
        fn never_panics_on_path_like(path in "(/(api|apis|v1|namespaces|pods|status|%[0-9a-fA-F]{0,2}|[^/]{0,4})){0,9}") {
            let _ = parse(&path);
        }
    }
}
