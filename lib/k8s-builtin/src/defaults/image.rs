//! Image names: the tag that decides how an image is pulled.

/// `Always` for the tag `latest`, said or implied, else `IfNotPresent`; a malformed name has no tag.
pub(super) fn pull_policy(image: &str) -> &'static str {
    if tag(image) == Some("latest") { "Always" } else { "IfNotPresent" }
}

fn tag(image: &str) -> Option<&str> {
    let (named, digest) = match image.split_once('@') {
        Some((named, digest)) => (named, Some(digest)),
        None => (image, None),
    };
    let last_slash = named.rfind('/').map_or(0, |idx| idx + 1);
    let (_, last) = named.split_at(last_slash);
    let (name, tag) = match last.split_once(':') {
        Some((_, tag)) => {
            (named.strip_suffix(tag).and_then(|n| n.strip_suffix(':')).unwrap_or(named), Some(tag))
        }
        None => (named, None),
    };
    if !is_name(name) || tag.is_some_and(|tag| !is_tag(tag)) {
        return None;
    }
    match (tag, digest) {
        (Some(tag), _) => Some(tag),
        (None, Some(_)) => None,
        (None, None) => Some("latest"),
    }
}

/// Path components are lower case; a first component with a dot, a colon or upper case is a host.
fn is_name(name: &str) -> bool {
    let path = match name.split_once('/') {
        Some((host, rest))
            if host == "localhost"
                || host.contains(['.', ':'])
                || host.bytes().any(|b| b.is_ascii_uppercase()) =>
        {
            rest
        }
        _ => name,
    };
    !path.is_empty()
        && path.split('/').all(|part| {
            part.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
                && part.ends_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
                && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b))
        })
}

fn is_tag(tag: &str) -> bool {
    tag.len() <= 128
        && tag.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && tag.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies() {
        for (image, expected) in [
            ("nginx", "Always"),
            ("nginx:latest", "Always"),
            ("nginx:1.25", "IfNotPresent"),
            ("registry.example:5000/a/b", "Always"),
            ("registry.example:5000/a/b:v1", "IfNotPresent"),
            ("nginx@sha256:abc", "IfNotPresent"),
            ("nginx:latest@sha256:abc", "Always"),
            ("", "IfNotPresent"),
            ("Nginx", "IfNotPresent"),
            ("a b", "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(image), expected, "{image}");
        }
    }
}
