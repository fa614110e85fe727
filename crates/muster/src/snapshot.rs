//! `muster snapshot`: everything that scheduling looks at, as one file.
//!
//! In: a live cluster. Out: documents that `muster simulate -f`, `muster explain -f` and the `files` of a scenario read back, the first of
//! which says when they were read and what the scheduler is set to. Must stay true: no Secrets, no values of environment variables, no
//! data of ConfigMaps.

use crate::Exit;
use crate::live::{self, Schedulers, Snapshot, Target};
use crate::simulate::{in_words_of_scenarios, setup_in_scenarios};
use crate::up::runtime;
use anyhow::Context;
use clap::ValueEnum;
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  muster snapshot --file now.yaml                      what the scheduler sees now\n  muster simulate -f now.yaml -f new-job.yaml          would the new job start?\n  muster explain -f now.yaml job/train                 why did it wait?\n  muster snapshot -o json | gzip > now.json.gz         for a report of a defect\n\nIt holds nodes, pods, queues, pod groups and whatever else scheduling looks at; no Secrets, no values of environment\nvariables, no data of ConfigMaps. In a scenario file, `files: [now.yaml]` takes in what --scenario wrote."
)]
pub struct Args {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    schedulers: Schedulers,
    /// In the words of scenarios, which know one scheduler name of each system: for `files` of a scenario that `muster test` runs
    #[arg(long)]
    scenario: bool,
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
    let Args { target, schedulers, scenario, file, output } = args;
    let snapshot = runtime()?.block_on(async {
        let link = target.link().await?;
        let mut snapshot = live::snapshot(&link, &schedulers).await?;
        live::add_kueue(&link, &mut snapshot).await?;
        anyhow::Ok(snapshot)
    })?;
    let documents = if scenario { in_scenario(&snapshot) } else { snapshot.documents() };
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
                eprintln!("left out     {}: {why}", kind.id());
            }
            for (name, why) in &snapshot.kueue_left_out {
                eprintln!("left out     {name}: {why}");
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

/// The same objects, with pods of our scheduler names under those that scenarios know.
fn in_scenario(snapshot: &Snapshot) -> Vec<Value> {
    let mut documents = snapshot.documents();
    in_words_of_scenarios(&mut documents, &snapshot.setup);
    if let Some(head) = documents.first_mut() {
        head["settings"] = json!(setup_in_scenarios(&snapshot.setup));
    }
    documents
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::tests::{CLUSTER, of_yaml};
    use muster_scenario::{cases_of, manifests, objects_of, play};

    #[test]
    fn a_scenario_takes_a_snapshot_in() {
        let mut snapshot = of_yaml(&CLUSTER.replace("schedulerName: kai-scheduler", "schedulerName: mine"));
        snapshot.setup.scheduler_names = vec!["mine".into()];
        let text = muster_install::yaml::documents(&in_scenario(&snapshot));
        let scenario =
            manifests("name: x\nnow: 2026-01-01T12:00:00Z\nexpect: {pods: {wait-0: pending}}\n").unwrap();
        let mut case = cases_of(&scenario[0], "file").unwrap().remove(0);
        case.objects = objects_of(&text).unwrap();
        let outcome = play(&case, false).unwrap();
        assert!(outcome.moments[0].refusals.contains_key(&muster_model::Key::new("ml", "wait")));
    }
}
