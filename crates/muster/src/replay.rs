//! `muster replay`: runs a recording of a scheduler again and says whether it decides the same.
//!
//! In: a file of JSON lines that `muster run --record` wrote. Out: what each cycle decided, and the first cycle that came out otherwise.

use crate::Exit;
use crate::live::{self, Format};
use anyhow::Context;
use muster_scenario::words;
use muster_scheduler::record::{Recording, Replayed, digest, replay};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::time::{Duration, Instant};

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  muster replay cycles.jsonl                    does it decide the same again?\n  muster replay cycles.jsonl --cycle 17         what was decided in cycle 17, and who waited why\n  muster replay cycles.jsonl -o json\n\nExit code: 0 if every cycle decided the same, 1 otherwise. A recording holds the objects that the scheduler saw."
)]
pub struct Args {
    /// The recording; - for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Show this cycle in full, and end there
    #[arg(long, value_name = "N")]
    cycle: Option<u64>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// A run that takes longer says how far it is, this often.
const TALK_EVERY: Duration = Duration::from_secs(1);

pub fn run(args: Args) -> anyhow::Result<Exit> {
    let from: Box<dyn BufRead> = if args.file.as_os_str() == "-" {
        Box::new(std::io::stdin().lock())
    } else {
        let file = std::fs::File::open(&args.file)
            .with_context(|| format!("cannot read {}", args.file.display()))?;
        Box::new(BufReader::new(file))
    };
    let said = || args.file.display().to_string();
    let recording = Recording::read(from).with_context(said)?;
    let names = recording.setup.scheduler_names.join(", ");
    let mut core = recording.setup.core();
    let mut tally = Tally::default();
    let mut told = Instant::now();
    for cycle in recording {
        let replayed = replay(&mut core, cycle.with_context(said)?);
        if told.elapsed() >= TALK_EVERY {
            told = Instant::now();
            eprintln!("cycle {}", replayed.cycle);
        }
        if args.cycle == Some(replayed.cycle) {
            live::print(args.output, &cycle_json(&replayed), |_| cycle_text(&replayed))?;
            return Ok(if replayed.is_same() { Exit::Done } else { Exit::Failed });
        }
        tally.add(&replayed);
    }
    if let Some(cycle) = args.cycle {
        anyhow::bail!(
            "{} has no cycle {cycle}\nhint: it has {} cycles, the last is {}",
            said(),
            tally.cycles,
            tally.last
        );
    }
    live::print(args.output, &tally.json(&names), |_| tally.text(&names))?;
    Ok(if tally.different.is_empty() { Exit::Done } else { Exit::Failed })
}

#[derive(Default)]
struct Tally {
    cycles: u64,
    last: u64,
    decided: u64,
    binds: usize,
    evictions: usize,
    /// Cycle, digest then, digest now.
    different: Vec<(u64, String, String)>,
}

fn now_digest(replayed: &Replayed) -> String {
    replayed.output.as_ref().map_or_else(|| "none".into(), |output| digest(&output.decisions))
}

impl Tally {
    fn add(&mut self, replayed: &Replayed) {
        self.cycles += 1;
        self.last = replayed.cycle;
        if let Some(output) = &replayed.output {
            self.decided += 1;
            self.binds += output.decisions.binds.len();
            self.evictions += output.decisions.evictions.len();
        }
        if !replayed.is_same() {
            let then = replayed.recorded.clone().unwrap_or_else(|| "none".into());
            self.different.push((replayed.cycle, then, now_digest(replayed)));
        }
    }

    fn json(&self, names: &str) -> Value {
        let different: Vec<Value> = self
            .different
            .iter()
            .map(|(cycle, then, now)| json!({"cycle": cycle, "recorded": then, "replayed": now}))
            .collect();
        json!({
            "schedulers": names, "cycles": self.cycles, "decided": self.decided, "binds": self.binds,
            "evictions": self.evictions, "same": different.is_empty(), "different": different,
        })
    }

    fn text(&self, names: &str) -> String {
        let mut text = format!(
            "{} cycles of {names}, {} of them with decisions: {} binds, {} evictions\n",
            self.cycles, self.decided, self.binds, self.evictions
        );
        match self.different.first() {
            None => text.push_str("every cycle decided the same\n"),
            Some((cycle, then, now)) => text.push_str(&format!(
                "{} cycles decided otherwise, first cycle {cycle}: {then} then, {now} now\nhint: `--cycle {cycle}` shows it; a recording of another version may differ, one of this version must not\n",
                self.different.len()
            )),
        }
        text
    }
}

fn cycle_json(replayed: &Replayed) -> Value {
    let mut value = json!({
        "cycle": replayed.cycle, "now": words::time(replayed.now), "same": replayed.is_same(),
        "recorded": replayed.recorded, "replayed": now_digest(replayed),
    });
    if let Some(output) = &replayed.output {
        let decisions = &output.decisions;
        let bind = |pod: &muster_model::Key, node: &str, action: &str| json!({"pod": pod.to_string(), "node": node, "action": action});
        value["binds"] =
            decisions.binds.iter().map(|b| bind(&b.pod, &b.placement.node, b.action.name())).collect();
        value["promises"] =
            decisions.pipelined.iter().map(|p| bind(&p.pod, &p.placement.node, p.action.name())).collect();
        value["evictions"] = decisions
            .evictions
            .iter()
            .map(|e| json!({"pod": e.pod.to_string(), "action": e.action.name(), "by": e.by.as_ref().map(ToString::to_string)}))
            .collect();
        value["waiting"] = decisions.refusals.iter().map(words::refusal_json).collect();
    }
    value
}

fn cycle_text(replayed: &Replayed) -> String {
    let same = if replayed.is_same() { "the same as recorded" } else { "not as recorded" };
    let mut text = format!("cycle {} at {}: {same}\n", replayed.cycle, words::time(replayed.now));
    let Some(output) = &replayed.output else {
        text.push_str("nothing came to pass that could lead to a decision\n");
        return text;
    };
    let decisions = &output.decisions;
    for evict in &decisions.evictions {
        let by = evict.by.as_ref().map(|by| format!(" for {by}")).unwrap_or_default();
        text.push_str(&format!("  {} evicts {}{by}\n", evict.action.name(), evict.pod));
    }
    for bind in &decisions.binds {
        text.push_str(&format!("  {} binds {} to {}\n", bind.action.name(), bind.pod, bind.placement.node));
    }
    for promise in &decisions.pipelined {
        text.push_str(&format!(
            "  {} promises {} {}\n",
            promise.action.name(),
            promise.pod,
            promise.placement.node
        ));
    }
    for refusal in &decisions.refusals {
        text.push_str(&format!("  {}\n", words::headline(refusal)));
        for line in words::lines(refusal).iter().take(2) {
            text.push_str(&format!("    {line}\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::tests::{CLUSTER, of_yaml};
    use muster_scheduler::ingest::Input;
    use muster_scheduler::record::{advance, begin_cycle, write_cycle, write_setup};
    use muster_translate::Kind;

    fn recorded() -> Vec<u8> {
        let snapshot = of_yaml(CLUSTER);
        let mut out = Vec::new();
        write_setup(&mut out, &snapshot.setup).unwrap();
        let mut core = snapshot.setup.core();
        let puts = snapshot.objects.iter().flat_map(|(k, all)| all.iter().map(|o| Input::Put(*k, o.clone())));
        let inputs: Vec<Input> = puts.chain(Kind::ALL.into_iter().map(Input::Known)).collect();
        let begun = begin_cycle(1, snapshot.now(), &inputs);
        let output = advance(&mut core, inputs, snapshot.now());
        write_cycle(&mut out, begun, output.as_ref()).unwrap();
        out
    }

    fn tally(text: &[u8]) -> Tally {
        let recording = Recording::read(text).unwrap();
        let mut core = recording.setup.core();
        let mut tally = Tally::default();
        for cycle in recording {
            tally.add(&replay(&mut core, cycle.unwrap()));
        }
        tally
    }

    #[test]
    fn says_whether_it_is_the_same() {
        let text = recorded();
        let same = tally(&text);
        assert!(same.text("kai").ends_with("every cycle decided the same\n"), "{}", same.text("kai"));
        let changed = String::from_utf8(text).unwrap().replace("\"limit\":4", "\"limit\":8");
        let different = tally(changed.as_bytes());
        assert!(
            different.text("kai").contains("1 cycles decided otherwise, first cycle 1"),
            "{}",
            different.text("kai")
        );
        assert_eq!(different.json("kai")["same"], false);
    }
}
