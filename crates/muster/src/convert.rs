//! `muster convert`: a workload of one dialect as a workload of another.
//!
//! In: manifests. Out: manifests on stdout, and on stderr a warning for each thing that is lost. Nothing is asked of a cluster.

use crate::Exit;
use anyhow::Context;
use clap::ValueEnum;
use muster_convert::{Dialect, convert};
use serde_json::Value;
use std::io::Read;
use std::path::PathBuf;

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  muster convert -f job.yaml --to podcliqueset            a Volcano Job as a PodCliqueSet\n  muster convert -f set.yaml --to kai | kubectl apply -f -    a PodGroup and its pods\n  muster convert -f set.yaml --to jobset --strict         fails if anything is lost\n\nIt reads PodCliqueSets, Volcano Jobs, KAI's PodGroups with their pods, Kueue's Workloads, JobSets and LeaderWorkerSets; other objects\nare handed on as they are."
)]
pub struct Args {
    /// Files with manifests; `-` is stdin
    #[arg(short, long, required = true, value_name = "FILE")]
    file: Vec<PathBuf>,
    /// What to make of them
    #[arg(long, value_enum)]
    to: To,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = Format::Yaml)]
    output: Format,
    /// Fail, and print nothing, if anything is lost
    #[arg(long)]
    strict: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum To {
    Podcliqueset,
    VolcanoJob,
    /// A PodGroup and its pods
    Kai,
    /// A Workload, which makes no pods by itself
    Kueue,
    Jobset,
    Leaderworkerset,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Yaml,
    Json,
}

impl To {
    fn dialect(self) -> Dialect {
        match self {
            To::Podcliqueset => Dialect::PodCliqueSet,
            To::VolcanoJob => Dialect::VolcanoJob,
            To::Kai => Dialect::Kai,
            To::Kueue => Dialect::Kueue,
            To::Jobset => Dialect::JobSet,
            To::Leaderworkerset => Dialect::LeaderWorkerSet,
        }
    }
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    let mut objects: Vec<Value> = Vec::new();
    for file in &args.file {
        let said = || format!("file {}", file.display());
        let text = if file.as_os_str() == "-" {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).with_context(said)?;
            text
        } else {
            std::fs::read_to_string(file).with_context(said)?
        };
        let read: Vec<Value> = serde_saphyr::from_multiple(&text).with_context(said)?;
        objects.extend(read.into_iter().filter(|object| !object.is_null()).flat_map(items));
    }
    let made = convert(&objects, args.to.dialect())?;
    for warning in &made.warnings {
        eprintln!("warning: {warning}");
    }
    if args.strict && !made.warnings.is_empty() {
        anyhow::bail!(
            "{} things are lost\nhint: without --strict it is printed all the same",
            made.warnings.len()
        );
    }
    match args.output {
        Format::Json if made.objects.len() == 1 => {
            println!("{}", serde_json::to_string_pretty(&made.objects[0])?)
        }
        Format::Json => {
            let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": made.objects});
            println!("{}", serde_json::to_string_pretty(&list)?);
        }
        Format::Yaml => print!("{}", muster_install::yaml::documents(&made.objects)),
    }
    Ok(Exit::Done)
}

/// The objects of a List, or the object.
fn items(object: Value) -> Vec<Value> {
    match object.get("items").and_then(Value::as_array) {
        Some(items) if object["kind"] == "List" => items.clone(),
        _ => vec![object],
    }
}
