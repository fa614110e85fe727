//! Writes what is generated from this crate and checked in: charts/muster, and the table of privileges in docs/install.md.
//!
//!     cargo run -p muster-install --example generate

use std::error::Error;
use std::path::Path;

use muster_api::System;
use muster_install::{access, helm};

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    helm::write_chart(&root.join("charts/muster"), &muster_api::crds(Some(&[System::Kai, System::Grove])))?;
    let path = root.join("docs/install.md");
    let text = std::fs::read_to_string(&path)?;
    let (first, last) = ("<!-- privileges -->\n", "<!-- end of privileges -->");
    let (before, rest) = text.split_once(first).ok_or("docs/install.md lacks its first mark")?;
    let (_, after) = rest.split_once(last).ok_or("docs/install.md lacks its second mark")?;
    std::fs::write(&path, format!("{before}{first}{}{last}{after}", access::table()))?;
    Ok(())
}
