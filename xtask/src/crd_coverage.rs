//! `cargo xtask crd-coverage DIR`: our generated CRDs against a folder of upstream's.

use anyhow::{Context, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
#[command(after_help = "Example:\n  cargo xtask crd-coverage ../shared/crds")]
pub struct Args {
    /// Folder with upstream's CRDs as YAML files, at any depth
    dir: PathBuf,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    let mut files = Vec::new();
    collect(&args.dir, &mut files).with_context(|| format!("cannot read {}", args.dir.display()))?;
    files.sort();
    if files.is_empty() {
        bail!("no YAML files below {}", args.dir.display());
    }
    let mut upstream: Vec<Value> = Vec::new();
    for file in &files {
        let text =
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let text = muster_api::coverage::indent_quoted(&text);
        // Upstream's largest CRD is far beyond what an untrusted document may cost.
        let options = serde_saphyr::options! { budget: None };
        let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(&text, options)
            .with_context(|| format!("{} is not YAML", file.display()))?;
        upstream.extend(documents.into_iter().filter(|d| d["kind"] == "CustomResourceDefinition"));
    }
    let report = muster_api::coverage::compare(&muster_api::crds(None), &upstream);
    println!("{report}");
    if !report.missing.is_empty() || !report.differ.is_empty() {
        bail!("the generated CRDs do not cover {}", args.dir.display());
    }
    Ok(())
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "yaml" || e == "yml") {
            files.push(path);
        }
    }
    Ok(())
}
