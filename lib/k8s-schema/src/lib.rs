//! Structural schemas: prune, default, validate, CEL, and OpenAPI documents
