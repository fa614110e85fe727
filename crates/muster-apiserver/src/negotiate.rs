//! Content negotiation. In: the `Accept` header. Out: the form in which to answer.

use crate::status::ApiError;

/// The form of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// The object as it is.
    #[default]
    Object,
    /// The same without the record of its field managers, for programs in the server's own process, which never look at it. Nobody can ask for
    /// it from outside: a record may be there nevertheless.
    Lean,
    /// A `meta.k8s.io/v1` Table.
    Table,
    /// Only the metadata of objects.
    Metadata,
    /// An aggregated discovery document of this version (`v2`, `v2beta1`).
    Discovery(&'static str),
}

impl Form {
    /// Whether it is objects that are asked for, with or without their record.
    pub fn is_object(self) -> bool {
        matches!(self, Form::Object | Form::Lean)
    }
}

/// Encoding of an object: JSON, or YAML for the curious.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// `application/json`
    #[default]
    Json,
    /// `application/yaml`
    Yaml,
}

/// Picks the first media type that we can write. An empty header accepts anything.
pub fn accept(header: &str, discovery: bool) -> Result<(Form, Encoding), ApiError> {
    if header.trim().is_empty() {
        return Ok((Form::Object, Encoding::Json));
    }
    for option in header.split(',') {
        let mut parts = option.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let encoding = match media {
            "application/json" | "*/*" | "application/*" | "application/json;stream=watch" => Encoding::Json,
            "application/yaml" | "application/x-yaml" => Encoding::Yaml,
            _ => continue,
        };
        let (mut kind, mut group, mut version) = ("", "", "");
        for p in parts {
            match p.split_once('=') {
                Some(("as", v)) => kind = v,
                Some(("g", v)) => group = v,
                Some(("v", v)) => version = v,
                _ => {}
            }
        }
        let form = match (kind, group, version) {
            ("", _, _) => Form::Object,
            ("Table", "meta.k8s.io", "v1" | "v1beta1") if !discovery => Form::Table,
            ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", _) if !discovery => {
                Form::Metadata
            }
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") if discovery => Form::Discovery("v2"),
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2beta1") if discovery => {
                Form::Discovery("v2beta1")
            }
            _ => continue,
        };
        return Ok((form, encoding));
    }
    Err(ApiError::not_acceptable())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        let protobuf = "application/vnd.kubernetes.protobuf,application/json";
        let discovery =
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
        for (header, disco, expected) in [
            ("", false, Some(Form::Object)),
            ("*/*", false, Some(Form::Object)),
            (table, false, Some(Form::Table)),
            (protobuf, false, Some(Form::Object)),
            (discovery, true, Some(Form::Discovery("v2"))),
            ("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", false, Some(Form::Metadata)),
            ("application/vnd.kubernetes.protobuf", false, None),
            ("text/html", false, None),
        ] {
            assert_eq!(accept(header, disco).ok().map(|a| a.0), expected, "{header}");
        }
    }
}
