//! `muster crds`: the CustomResourceDefinitions of every API group that Muster speaks, generated from its own types.

use crate::Exit;
use anyhow::{Context, bail};
use clap::ValueEnum;
use muster_api::crd;
use std::io::Write;

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  muster crds | kubectl apply --server-side -f -\n  muster crds --group kueue.x-k8s.io -o json\n  muster crds --group volcano      all groups of one system\n\nThe Kubernetes Workload API (scheduling.k8s.io) is built into the API server and never printed here."
)]
pub struct Args {
    /// Only this API group (kueue.x-k8s.io) or system (grove, kai, kueue, volcano, koordinator, t9k); may be repeated
    #[arg(long = "group", value_name = "G", env = "MUSTER_GROUPS", value_delimiter = ',')]
    groups: Vec<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Yaml)]
    output: Format,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// One YAML document per CRD
    Yaml,
    /// One JSON List
    Json,
}

/// The CRDs of some groups or systems; all of them when none is named.
pub fn select(groups: &[String]) -> anyhow::Result<Vec<serde_json::Value>> {
    if groups.is_empty() {
        return Ok(crd::crds(None));
    }
    let mut found = Vec::new();
    for name in groups {
        let some = match name.parse::<crd::System>() {
            Ok(system) => crd::crds(Some(&[system])),
            Err(_) => crd::crds_of_group(name),
        };
        if some.is_empty() {
            let systems: Vec<&str> = crd::System::ALL.iter().map(|s| s.name()).collect();
            bail!(
                "no CRDs in group {name:?}\nhint: systems are {}; groups are {}",
                systems.join(", "),
                crd::groups().join(", ")
            );
        }
        for one in some {
            if !found.contains(&one) {
                found.push(one);
            }
        }
    }
    Ok(found)
}

pub fn print(args: Args) -> anyhow::Result<Exit> {
    let crds = select(&args.groups)?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    match args.output {
        Format::Json => {
            let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": crds});
            serde_json::to_writer_pretty(&mut out, &list)?;
            writeln!(out)?;
        }
        Format::Yaml => {
            for crd in &crds {
                let text = serde_saphyr::to_string(crd).context("cannot write a CRD as YAML")?;
                writeln!(out, "---\n{}", text.trim_end())?;
            }
        }
    }
    out.flush()?;
    Ok(Exit::Done)
}
