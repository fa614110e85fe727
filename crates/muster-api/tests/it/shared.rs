//! The specification folder: `../shared` beside the workspace. Tests that need it are skipped where it is
//! absent.

use serde_json::Value;
use std::path::{Path, PathBuf};

/// The folder, or a message that the test is skipped.
pub fn folder() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    if path.join("crds").is_dir() {
        return Some(path);
    }
    println!("skipped: no ../shared");
    None
}

/// Every YAML file below a folder, in order.
pub fn yaml_files(folder: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            out.extend(yaml_files(&path));
        } else if path.extension().is_some_and(|e| e == "yaml") {
            out.push(path);
        }
    }
    out.sort();
    out
}

/// The documents of a YAML file, or why it is none.
pub fn documents(path: &Path) -> Result<Vec<Value>, String> {
    let text = muster_api::coverage::indent_quoted(&read(path));
    // Upstream's CRDs are larger than the reader's default allowance.
    let options = serde_saphyr::options! { budget: None };
    let docs: Vec<Value> =
        serde_saphyr::from_multiple_with_options(&text, options).map_err(|e| e.to_string())?;
    Ok(docs.into_iter().filter(|d| !d.is_null()).collect())
}

/// Whether a manifest of the founding documents is cut short: `...` stands for the rest of it.
pub fn cut_short(path: &Path) -> bool {
    read(path).lines().any(|line| line.trim().trim_end_matches(']').ends_with("..."))
}

#[expect(
    clippy::disallowed_methods,
    reason = "tests read the specification; the crate itself reads no files"
)]
fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}
