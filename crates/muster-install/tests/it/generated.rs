//! What is generated and checked in is up to date.

use std::path::{Path, PathBuf};

use muster_api::System;
use muster_install::access::table;
use muster_install::helm::chart;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_chart_is_up_to_date() {
    let dir = root().join("charts/muster");
    let files = chart(&muster_api::crds(Some(&[System::Kai, System::Grove])));
    for (path, text) in &files {
        let found = std::fs::read_to_string(dir.join(path)).unwrap_or_default();
        assert!(
            found == *text,
            "charts/muster/{path} is stale: run `cargo run -p muster-install --example generate`"
        );
    }
    for sub in ["", "templates", "crds"] {
        for entry in std::fs::read_dir(dir.join(sub)).unwrap() {
            let entry = entry.unwrap();
            let path = Path::new(sub).join(entry.file_name());
            let known = files.iter().any(|(p, _)| Path::new(p) == path);
            assert!(known || entry.path().is_dir(), "charts/muster/{} is left over", path.display());
        }
    }
}

/// The table between the two marks of docs/install.md.
#[test]
fn the_table_of_privileges_is_up_to_date() {
    let text = std::fs::read_to_string(root().join("docs/install.md")).unwrap();
    let (_, rest) = text.split_once("<!-- privileges -->\n").expect("docs/install.md has the first mark");
    let (found, _) =
        rest.split_once("<!-- end of privileges -->").expect("docs/install.md has the second mark");
    assert!(
        found == table(),
        "docs/install.md is stale: run `cargo run -p muster-install --example generate`"
    );
}
