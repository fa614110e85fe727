//! The kinds built into Kubernetes as data: names, verbs, schemas, defaults and validation
