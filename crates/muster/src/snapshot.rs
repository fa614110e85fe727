//! `muster snapshot`: everything that scheduling looks at, as one file.
//!
//! In: a live cluster. Out: documents that `muster simulate -f`, `muster explain -f` and the `files` of a scenario read back, the first of
//! which says when they were read and what the scheduler is set to. Must stay true: no Secrets, no values of environment variables, no
//! data of ConfigMaps.

use crate::Exit;
use crate::live::{self, Schedulers, Target};
use crate::up::runtime;
use anyhow::Context;
use clap::ValueEnum;
use std::io::Write;
use std::path::PathBuf;

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  muster snapshot --file now.yaml                      what the scheduler sees now\n  muster simulate -f now.yaml -f new-job.yaml          would the new job start?\n  muster explain -f now.yaml job/train                 why did it wait?\n  muster snapshot -o json | gzip > now.json.gz         for a report of a defect\n\nIt holds nodes, pods, queues, pod groups and whatever else scheduling looks at; no Secrets, no values of environment\nvariables, no data of ConfigMaps. In a scenario file, `files: [now.yaml]` takes the objects in."
)]
pub struct Args {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    schedulers: Schedulers,
    /// Where to write it [default: standard output]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Yaml)]
    output: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// One document per object
    Yaml,
    /// One JSON List
    Json,
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    let Args { target, schedulers, file, output } = args;
    let snapshot = runtime()?.block_on(async { live::snapshot(&target.link().await?, &schedulers).await })?;
    let documents = snapshot.documents();
    let text = match output {
        Format::Yaml => muster_install::yaml::documents(&documents),
        Format::Json => {
            let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": documents});
            serde_json::to_string_pretty(&list)? + "\n"
        }
    };
    match &file {
        Some(path) => {
            std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
            let counts: Vec<String> = snapshot
                .objects
                .iter()
                .filter(|(_, items)| !items.is_empty())
                .map(|(kind, items)| format!("{} {}", items.len(), kind.name()))
                .collect();
            eprintln!("{}: {}", path.display(), counts.join(", "));
            eprintln!("schedulers   {}", snapshot.setup.scheduler_names.join(", "));
            for (kind, why) in &snapshot.left_out {
                eprintln!("left out     {}: {why}", kind.name());
            }
        }
        None => {
            let mut out = std::io::stdout().lock();
            out.write_all(text.as_bytes())?;
            out.flush()?;
        }
    }
    Ok(Exit::Done)
}
