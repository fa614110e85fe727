//! Custom resource schemas: from the JSON in a CRD to a [`Schema`], or to the API server's reasons for refusing it.
//!
//! In: the value of `openAPIV3Schema`. Out: a schema that is structural, whose defaults fit, and whose rules compile. The
//! checks come in the order of the API server: [`read`] the JSON, [`structural`] form, [`defaults`], and then what each
//! [`node`] says, rules last.

mod defaults;
mod node;
mod read;
mod structural;

use serde_json::Value;

use crate::{FieldError, Schema};

impl Schema {
    /// Reads a CRD's `openAPIV3Schema` and checks all that the API server checks.
    ///
    /// The fields of errors start with `spec.validation.openAPIV3Schema`, which is where the API server reports them for CRDs
    /// whose versions all have the same schema; see [`Schema::from_crd_at`] for others.
    ///
    /// ```
    /// use k8s_schema::Schema;
    /// use serde_json::json;
    ///
    /// let errors = Schema::from_crd(&json!({"type": "object", "properties": {"spec": {}}})).unwrap_err();
    /// assert_eq!(
    ///     errors[0].to_string(),
    ///     "spec.validation.openAPIV3Schema.properties[spec].type: Required value: \
    ///      must not be empty for specified object fields",
    /// );
    /// ```
    pub fn from_crd(openapi_v3_schema: &Value) -> Result<Schema, Vec<FieldError>> {
        Self::from_crd_at("spec.validation.openAPIV3Schema", openapi_v3_schema)
    }

    /// As [`Schema::from_crd`], with the place of the schema in its CRD, such as
    /// `spec.versions[0].schema.openAPIV3Schema`.
    pub fn from_crd_at(place: &str, openapi_v3_schema: &Value) -> Result<Schema, Vec<FieldError>> {
        let (schema, unsupported) = read::schema(openapi_v3_schema, place)?;
        let mut errors = Vec::new();
        if schema.nullable {
            errors.push(FieldError::forbidden(
                format!("{place}.nullable"),
                "nullable cannot be true at the root",
            ));
        }
        // Keywords that are refused one by one make it pointless to judge the rest.
        let mut broken = if unsupported { Vec::new() } else { structural::errors(&schema, place) };
        if broken.is_empty() && !unsupported {
            broken = defaults::errors(&schema, place);
        }
        let with_rules = broken.is_empty() && !unsupported;
        errors.extend(broken);
        errors.extend(node::errors(openapi_v3_schema, &schema, place, with_rules));
        if errors.is_empty() { Ok(schema) } else { Err(errors) }
    }

    /// Reads an OpenAPI v3 schema without judging whether it is structural, for schemas that are known to be good.
    pub fn from_openapi(openapi_v3_schema: &Value) -> Result<Schema, Vec<FieldError>> {
        read::schema(openapi_v3_schema, "schema").map(|(schema, _)| schema)
    }
}
