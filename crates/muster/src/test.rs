//! `muster test`: runs scenario files and says what differs.

use crate::Exit;
use clap::ValueEnum;
use muster_scenario::{Options, Suite};
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  muster test scenarios/                     every scenario of a folder, as CI would\n  muster test quota.yaml --explain           and why gangs wait\n  muster test scenarios/ -o junit > out.xml\n\nA scenario is a cluster, a number of cycles and what must come out; docs/scenarios.md has the format, with examples.\nExit code: 0 if nothing failed, 1 otherwise."
)]
pub struct Args {
    /// Scenario files (*.yaml, *.yml, *.json, *.jsonl) and folders of them
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Only cases whose id, name or file contains this
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Also say why gangs wait
    #[arg(long)]
    explain: bool,
    /// With -o json: add what came out of every case, in the form of an expectation
    #[arg(long)]
    actual: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A paragraph per failure, and a summary
    Text,
    /// One JSON object
    Json,
    /// JUnit XML, for CI
    Junit,
}

/// A run that takes longer says how far it is, this often.
const TALK_EVERY: Duration = Duration::from_secs(1);

pub fn run(args: Args) -> anyhow::Result<Exit> {
    let Args { paths, filter, explain, actual, output } = args;
    let suite = Suite::read(&paths)?;
    if suite.is_empty() {
        anyhow::bail!(
            "no scenarios found\nhint: a scenario is a YAML file with `expect`; see docs/scenarios.md"
        );
    }
    let options = Options { filter, explain, actual };
    let mut said = Instant::now();
    let report = suite.run(&options, &mut |done, all, id| {
        if said.elapsed() >= TALK_EVERY {
            said = Instant::now();
            eprintln!("{done} of {all}: {id}");
        }
    });
    if report.cases.is_empty() {
        anyhow::bail!("none of {} cases matches the filter", suite.len());
    }
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    match output {
        Format::Text => write!(out, "{}", report.text(false))?,
        Format::Junit => write!(out, "{}", report.junit())?,
        Format::Json => {
            serde_json::to_writer_pretty(&mut out, &report.json())?;
            writeln!(out)?;
        }
    }
    out.flush()?;
    Ok(if report.ok() { Exit::Done } else { Exit::Failed })
}
