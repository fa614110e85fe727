//! The founding manifests against our schemas: what is accepted, and what is refused for which reason.
//!
//! The schema is asked as the API server asks it: prune, default, validate. A pruned field is what `kubectl
//! apply` refuses as unknown, since it asks for strict field validation; other clients get a warning.

use crate::generate::schemas;
use crate::shared;
use k8s_schema::Schema;
use muster_api::kueue::convert::{to_v1beta1, to_v1beta2};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

static SCHEMAS: LazyLock<BTreeMap<(String, String), Schema>> = LazyLock::new(|| {
    let all = schemas(&muster_api::crds(None)).into_iter();
    all.map(|(version, kind, schema)| ((version, kind), Schema::from_crd(&schema).unwrap())).collect()
});

/// What the schemas say to the objects of a file: unknown fields and errors, one per line. Objects of kinds
/// that are not ours are left out; `None` if there is no other.
fn verdict(file: &Path) -> Option<String> {
    let mut out = None;
    for document in shared::documents(file).unwrap_or_else(|e| panic!("{}: {e}", file.display())) {
        let text = |key| document[key].as_str().unwrap_or_default().to_owned();
        let Some(schema) = SCHEMAS.get(&(text("apiVersion"), text("kind"))) else { continue };
        let out: &mut String = out.get_or_insert_default();
        let mut object: Value = document.clone();
        for field in k8s_schema::prune(&mut object, schema) {
            out.push_str(&format!("unknown field {field}\n"));
        }
        k8s_schema::default(&mut object, schema);
        for error in k8s_schema::validate_all(&object, None, schema) {
            out.push_str(&format!("{error}\n"));
        }
    }
    out
}

/// Files that the schemas refuse, and what they say. Every other file is accepted as it is.
const REFUSED: [(&str, &str); 4] = [
    ("004-16", "unknown field spec.podSets[0].replicas"),
    ("004-23", "unknown field spec.admissionChecks"),
    ("004-30", "flavors must have the same number of resources as the coveredResources"),
    ("004-40", "spec.preemption.borrowWithinCohort.policy: Unsupported value"),
];

/// Files with a mistake that no schema can see: the admission webhooks refuse them.
const FOR_THE_WEBHOOKS: [&str; 3] = [
    "004-22", // one resource in two resource groups
    "004-34", // half a GPU, inside a pod template
    "004-36", // a lending limit without a cohort
];

#[test]
fn founding_manifests() {
    let Some(folder) = shared::folder() else { return };
    let (mut n_accepted, mut n_refused, mut n_later) = (0, 0, 0);
    for file in shared::yaml_files(&folder.join("samples/seeds")) {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        if shared::cut_short(&file) {
            continue;
        }
        let Some(verdict) = verdict(&file) else { continue };
        match REFUSED.iter().find(|(prefix, _)| name.starts_with(prefix)) {
            Some((_, reason)) => {
                assert!(verdict.contains(reason), "{name}: {verdict}");
                n_refused += 1;
            }
            None => {
                assert_eq!(verdict, "", "{name}");
                n_accepted += 1;
                n_later += usize::from(FOR_THE_WEBHOOKS.iter().any(|prefix| name.starts_with(prefix)));
            }
        }
    }
    assert_eq!((n_refused, n_later), (REFUSED.len(), FOR_THE_WEBHOOKS.len()));
    assert!(n_accepted > 20, "only {n_accepted} files with kinds of ours");
}

/// The other samples are upstream's own, so each is accepted, also those that upstream's webhooks would deny.
#[test]
fn samples() {
    let Some(folder) = shared::folder() else { return };
    let mut n_files = 0;
    for system in ["grove", "kai", "koordinator", "kueue", "t9k", "volcano"] {
        for file in shared::yaml_files(&folder.join("samples").join(system)) {
            if let Some(verdict) = verdict(&file) {
                assert_eq!(verdict, "", "{}", file.display());
                n_files += 1;
            }
        }
    }
    assert!(n_files > 30, "only {n_files} files with kinds of ours");
}

/// What is valid in one version of Kueue's API is valid in the other.
#[test]
fn kueue_objects_are_valid_in_both_versions() {
    let Some(folder) = shared::folder() else { return };
    let mut n_objects = 0;
    let seeds = shared::yaml_files(&folder.join("samples/seeds")).into_iter();
    let seeds = seeds.filter(|f| !shared::cut_short(f) && verdict(f).is_some_and(|v| v.is_empty()));
    for file in seeds.chain(shared::yaml_files(&folder.join("samples/kueue"))) {
        for mut object in shared::documents(&file).unwrap() {
            let convert = match object["apiVersion"].as_str().unwrap_or_default() {
                "kueue.x-k8s.io/v1beta1" => to_v1beta2,
                "kueue.x-k8s.io/v1beta2" => to_v1beta1,
                _ => continue,
            };
            convert(&mut object).unwrap();
            let text = |key: &str| object[key].as_str().unwrap().to_owned();
            let schema = &SCHEMAS[&(text("apiVersion"), text("kind"))];
            assert_eq!(k8s_schema::prune(&mut object, schema), Vec::<String>::new(), "{}", file.display());
            k8s_schema::default(&mut object, schema);
            let errors = k8s_schema::validate_all(&object, None, schema);
            assert!(errors.is_empty(), "{}: {errors:?}", file.display());
            n_objects += 1;
        }
    }
    assert!(n_objects > 20, "only {n_objects} objects of Kueue");
}
