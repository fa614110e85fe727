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
    let read = |text: &str| {
        let options = serde_saphyr::options! { budget: None };
        serde_saphyr::from_multiple_with_options::<Value>(text, options)
    };
    let documents = read(&text)
        .or_else(|_| read(&indent_quoted(&text)))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    documents.into_iter().filter(|document| !document.is_null()).collect()
}

/// Some generators do not indent the further lines of a quoted text, which strict YAML readers refuse.
fn indent_quoted(text: &str) -> String {
    let mut out = String::new();
    let mut open = false;
    for line in text.lines() {
        out.push_str(if open { "  " } else { "" });
        out.push_str(line);
        out.push('\n');
        let starts = line.contains(": '") || line.trim_start().starts_with("- '");
        if (open || starts) && line.matches('\'').count() % 2 == 1 {
            open = !open;
        }
    }
    out
}
