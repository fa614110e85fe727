//! `muster replay`: runs a recording of a scheduler again and says whether it decides the same.
//!
//! In: a file of JSON lines that `muster run --record` wrote. Out: what each cycle decided, and the first cycle that came out otherwise.
//! Must stay true: of a recording that was cut off, as by `kill -9`, all whole lines count and the rest of the last one is said to be
//! left out; any other line that cannot be read is an error.

use crate::Exit;
use crate::live::{self, Format};
use anyhow::Context;
use muster_scenario::words;
use muster_scheduler::record::{Cycle, Recording, RecordingError, Replayed, digest, replay};
use serde_json::{Value, json};
use std::cell::Cell;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  muster replay cycles.jsonl                    does it decide the same again?\n  muster replay cycles.jsonl --cycle 17         what was decided in cycle 17, and who waited why\n  muster replay cycles.jsonl -o json\n\nExit code: 0 if every cycle decided the same, 1 otherwise. If the scheduler was killed while it wrote, the last line ends in its\nmiddle: that cycle is left out, and said to be. A recording holds the objects that the scheduler saw."
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
    let mut cycles = Cycles::read(from).with_context(said)?;
    let names = cycles.recording.setup.scheduler_names.join(", ");
    let mut core = cycles.recording.setup.core();
    let mut tally = Tally::default();
    let mut told = Instant::now();
    while let Some(cycle) = cycles.next().with_context(said)? {
        let replayed = replay(&mut core, cycle);
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
    tally.cut_off = cycles.cut_off;
    if let Some(cut) = &tally.cut_off {
        eprintln!(
            "note: {}: the recording ends in the middle of a line, as when the scheduler was killed; that cycle is left out ({cut})",
            said()
        );
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

/// The cycles of a recording, up to where it was cut off.
struct Cycles<R> {
    recording: Recording<Watched<R>>,
    end: Rc<Cell<End>>,
    /// Why the last line is no cycle, if it has no end.
    cut_off: Option<String>,
}

/// How far a file was read.
#[derive(Clone, Copy, Default)]
struct End {
    /// There is no more.
    reached: bool,
    /// The last byte ended a line.
    after_line: bool,
}

/// A reader that notes how it ends.
struct Watched<R> {
    from: R,
    end: Rc<Cell<End>>,
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let n = self.from.read(into)?;
        note(&self.end, &into[..n]);
        Ok(n)
    }
}

impl<R: BufRead> BufRead for Watched<R> {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        let bytes = self.from.fill_buf()?;
        note(&self.end, bytes);
        Ok(bytes)
    }

    fn consume(&mut self, n: usize) {
        self.from.consume(n);
    }
}

fn note(end: &Cell<End>, bytes: &[u8]) {
    end.set(match bytes.last() {
        None => End { reached: true, ..end.get() },
        Some(last) => End { reached: false, after_line: *last == b'\n' },
    });
}

impl<R: BufRead> Cycles<R> {
    fn read(from: R) -> Result<Self, RecordingError> {
        let end = Rc::new(Cell::new(End::default()));
        let recording = Recording::read(Watched { from, end: end.clone() })?;
        Ok(Cycles { recording, end, cut_off: None })
    }

    fn next(&mut self) -> Result<Option<Cycle>, RecordingError> {
        match self.recording.next() {
            // Whoever writes a line ends it in the same breath: one without an end was not written to its end.
            Some(Err(error)) if self.end.get().reached && !self.end.get().after_line => {
                self.cut_off = Some(error.to_string());
                Ok(None)
            }
            next => next.transpose(),
        }
    }
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
    /// Why the last line was left out.
    cut_off: Option<String>,
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
            "cutOff": self.cut_off.is_some(),
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

    fn read(text: &[u8]) -> Result<Tally, RecordingError> {
        // In small pieces, so that lines and pieces end in different places.
        let mut cycles = Cycles::read(BufReader::with_capacity(7, text))?;
        let mut core = cycles.recording.setup.core();
        let mut tally = Tally::default();
        while let Some(cycle) = cycles.next()? {
            tally.add(&replay(&mut core, cycle));
        }
        tally.cut_off = cycles.cut_off;
        Ok(tally)
    }

    fn tally(text: &[u8]) -> Tally {
        read(text).unwrap()
    }

    /// The recording and a second cycle, in which nothing happens.
    fn two_cycles() -> Vec<u8> {
        let mut text = recorded();
        write_cycle(&mut text, begin_cycle(2, of_yaml(CLUSTER).now(), &[]), None).unwrap();
        text
    }

    /// Wherever a recording ends, all whole lines count, and the rest is said.
    #[test]
    fn a_recording_that_was_cut_off_is_judged_up_to_there() {
        let text = two_cycles();
        let ends: Vec<usize> =
            text.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(i, _)| i).collect();
        for cut in ends[1] + 1..=text.len() {
            let tally = tally(&text[..cut]);
            let (whole, ended) = (cut >= text.len() - 1, cut == ends[1] + 1);
            assert_eq!(
                (tally.cycles, tally.cut_off.is_some()),
                (1 + u64::from(whole), !whole && !ended),
                "{cut}"
            );
            assert_eq!(tally.json("kai")["cutOff"], !whole && !ended);
        }
        // In the middle of a letter, too.
        let mut half = text[..=ends[1]].to_vec();
        half.extend_from_slice(b"{\"cycle\": \"\xc3");
        assert_eq!(tally(&half).cut_off.as_deref(), Some("line 3 cannot be read"));
    }

    #[test]
    fn any_other_broken_line_is_an_error() {
        let text = String::from_utf8(two_cycles()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let broken = |lines: &[&str]| read((lines.join("\n") + "\n").as_bytes()).err().map(|e| e.to_string());
        assert_eq!(broken(&lines), None);
        let half = &lines[1][..lines[1].len() / 2];
        assert_eq!(broken(&[lines[0], half, lines[2]]).as_deref(), Some("line 2 is no JSON"));
        assert_eq!(
            broken(&[lines[0], lines[1], half]).as_deref(),
            Some("line 3 is no JSON"),
            "it has an end"
        );
        assert!(read(&lines[0].as_bytes()[..9]).is_err(), "without settings there is nothing to judge");
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
