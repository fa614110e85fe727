//! The specification folder: `../shared` beside the workspace. Tests that need it are skipped where it is absent.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// A folder of it, or a message that the test is skipped.
pub fn folder(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared").join(name);
    if path.is_dir() {
        return Some(path);
    }
    println!("skipped: no ../shared/{name}");
    None
}

/// The documents of a YAML file.
pub fn documents(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    documents.into_iter().filter(|document| !document.is_null()).collect()
}
