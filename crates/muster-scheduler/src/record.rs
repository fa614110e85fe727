//! Recordings: what the scheduler was told and what it decided, cycle by cycle, as lines of JSON that can be replayed.
//!
//! In: the settings, and the inputs, time and decisions of each cycle. Out: one line for the [`Setup`], then one per cycle; read back
//! by [`Recording`], and run again by [`replay`]. Must stay true: the engine is a function of its inputs, so a replay decides the same
//! to the byte; a line that cannot be read is an error that names it, never a cycle left out.

use crate::core::{Core, Output};
use crate::hold::{Hold, HoldSet};
use crate::ingest::{Done, Failure, Input, Outcome};
use crate::slim;
use muster_model::{Decisions, Diagnostic, Key, Name, Policy, Span, Time};
use muster_translate::{Kind, Settings};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::io::{self, BufRead, Write};
use std::sync::Arc;

/// The format that is written.
const VERSION: u32 = 1;

/// What a scheduler was told when it was started: the first line of a recording, and the settings in a snapshot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Setup {
    pub version: u32,
    /// Pods that name one of these are placed.
    pub scheduler_names: Vec<String>,
    /// Those of them whose pods wait until they are in a group.
    pub grouped: Vec<String>,
    pub queue_label: String,
    pub node_pool_label: String,
    /// Only this pool; nodes without the label if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    pub default_queue: String,
    /// Those of the scheduler's names that go by Volcano's objects.
    pub volcano: Vec<String>,
    /// Volcano's configuration file; absent: Volcano's own default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volcano_config: Option<Value>,
    /// KAI's configuration file, or a SchedulingShard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<Value>,
    /// How long a decision is taken for granted without being confirmed, in milliseconds.
    pub expiry: i64,
}

impl Default for Setup {
    fn default() -> Self {
        let names = ["muster-scheduler", "kai-scheduler"].map(String::from).to_vec();
        Setup {
            version: VERSION,
            scheduler_names: names.clone(),
            grouped: names,
            queue_label: "kai.scheduler/queue".into(),
            node_pool_label: "kai.scheduler/node-pool".into(),
            pool: None,
            default_queue: "default-queue".into(),
            volcano: vec!["volcano".into()],
            volcano_config: None,
            config: None,
            expiry: 30_000,
        }
    }
}

impl Setup {
    /// What the scheduler makes of it, and what in the configuration makes no sense.
    pub fn read(&self) -> (Settings, Policy, Vec<Diagnostic>) {
        let names = |names: &[String]| -> Vec<Name> { names.iter().map(|n| n.as_str().into()).collect() };
        let (mut policy, mut diagnostics) = match &self.config {
            Some(config) => muster_translate::kai::policy(config),
            None => (Policy::default(), Vec::new()),
        };
        if self.scheduler_names.iter().any(|name| self.volcano.contains(name)) {
            let config = self.volcano_config.clone().unwrap_or_else(|| json!({}));
            let (conf, found) = muster_translate::volcano::conf::read(&config);
            policy.volcano = Some(Arc::new(conf));
            diagnostics.extend(found);
        }
        policy.pool.label = Some(self.node_pool_label.as_str().into());
        policy.pool.value = self.pool.as_deref().map(Into::into);
        let settings = Settings {
            scheduler_names: names(&self.scheduler_names),
            // A pod of Volcano's that names no group is given one, as by Volcano's own controller.
            grouped: names(&self.grouped).into_iter().chain(names(&self.volcano)).collect(),
            volcano: names(&self.volcano),
            queue_label: self.queue_label.as_str().into(),
            node_pool_label: self.node_pool_label.as_str().into(),
            default_queue: self.default_queue.as_str().into(),
            implicit_default_queue: true,
            pool: policy.pool.clone(),
            trees: policy.trees.clone(),
            ..Settings::default()
        };
        (settings, policy, diagnostics)
    }

    /// A scheduler's core that was told this and nothing else.
    pub fn core(&self) -> Core {
        let (settings, policy, _) = self.read();
        Core::new(settings, policy, Span(self.expiry))
    }
}

/// Takes inputs, and decides once everything that exists has been told: what the service does in a cycle, and a replay again.
pub fn advance(core: &mut Core, inputs: Vec<Input>, now: Time) -> Option<Output> {
    if core.is_ready() {
        return core.step(inputs, now);
    }
    core.take(inputs, now);
    if core.is_ready() { core.step(Vec::new(), now) } else { None }
}

/// Begins a recording.
pub fn write_setup(out: &mut impl Write, setup: &Setup) -> io::Result<()> {
    line(out, &serde_json::to_value(setup)?)
}

/// A cycle whose inputs are written down and whose outcome is not known yet: the engine is handed the inputs in between.
#[derive(Debug)]
pub struct Begun(Value);

/// Writes down what a cycle is told, before it is told.
pub fn begin_cycle(cycle: u64, now: Time, inputs: &[Input]) -> Begun {
    let inputs: Vec<Value> = inputs.iter().map(input_json).collect();
    Begun(json!({"cycle": cycle, "now": now.0, "inputs": inputs}))
}

/// Writes a cycle with what came of it; `None` if nothing came to pass that could lead to a decision.
pub fn write_cycle(out: &mut impl Write, begun: Begun, output: Option<&Output>) -> io::Result<()> {
    let Begun(mut cycle) = begun;
    if let Some(output) = output {
        cycle["digest"] = json!(digest(&output.decisions));
    }
    line(out, &cycle)
}

fn line(out: &mut impl Write, value: &Value) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

/// Writes down what a scheduler is told and decides while it does its work. What cannot be written ends the recording, never the work.
pub struct Recorder<W> {
    out: Option<W>,
    cycle: u64,
}

impl<W: Write> Recorder<W> {
    pub fn new(mut out: W, setup: &Setup) -> io::Result<Self> {
        write_setup(&mut out, setup)?;
        out.flush()?;
        Ok(Recorder { out: Some(out), cycle: 0 })
    }

    /// [`advance`], on the record.
    pub fn advance(&mut self, core: &mut Core, inputs: Vec<Input>, now: Time) -> Option<Output> {
        let Some(out) = &mut self.out else { return advance(core, inputs, now) };
        self.cycle += 1;
        let begun = begin_cycle(self.cycle, now, &inputs);
        let output = advance(core, inputs, now);
        let written = write_cycle(out, begun, output.as_ref()).and_then(|()| out.flush());
        if let Err(error) = written {
            tracing::error!(%error, cycle = self.cycle, "the recording ends here");
            self.out = None;
        }
        output
    }
}

/// Decisions as sixteen digits: FNV-1a over their text, in which every field of every decision is written out.
pub fn digest(decisions: &Decisions) -> String {
    struct Fnv(u64);
    impl std::fmt::Write for Fnv {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            for byte in text.bytes() {
                self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
            Ok(())
        }
    }
    let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
    // Writing into a number cannot fail.
    let _ = std::fmt::Write::write_fmt(&mut hash, format_args!("{decisions:?}"));
    format!("{:016x}", hash.0)
}

fn input_json(input: &Input) -> Value {
    match input {
        Input::Put(kind, object) => json!({"put": kind.id(), "object": object}),
        Input::Text(kind, key, text) => match slim::decode(*kind, text) {
            Some(object) => json!({"put": kind.id(), "object": object}),
            None => json!({"gone": kind.id(), "namespace": key.namespace, "name": key.name}),
        },
        Input::Gone(kind, key) => {
            json!({"gone": kind.id(), "namespace": key.namespace, "name": key.name})
        }
        Input::Known(kind) => json!({"known": kind.id()}),
        Input::Volcano(config) => json!({"volcano": config}),
        Input::Hold(hold) => {
            let sets = hold.sets.iter().map(|set| json!({"count": set.count, "template": set.template}));
            let sets: Vec<Value> = sets.collect();
            json!({"hold": &*hold.name.name, "namespace": &*hold.name.namespace, "uid": hold.uid, "sets": sets})
        }
        Input::GiveBack(workload) => json!({"giveBack": &*workload.name, "namespace": &*workload.namespace}),
        Input::Outcome(Outcome { pod, uid, result }) => {
            let result = match result {
                Ok(Done::Bound) => "done",
                Ok(Done::Asked) => "asked",
                Err(Failure::Overtaken) => "overtaken",
                Err(Failure::Refused) => "refused",
                Err(Failure::Unanswered) => "unanswered",
            };
            json!({"outcome": result, "namespace": &*pod.namespace, "name": &*pod.name, "uid": uid})
        }
        Input::Unsaid(gang) => json!({"unsaid": &*gang.name, "namespace": &*gang.namespace}),
    }
}

/// One cycle of a recording.
#[derive(Debug)]
pub struct Cycle {
    pub cycle: u64,
    pub now: Time,
    pub inputs: Vec<Input>,
    /// Of what was decided; `None`: nothing was looked at.
    pub digest: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    #[error("line {line} cannot be read")]
    Read { line: usize, source: io::Error },
    #[error("line {line} is no JSON")]
    Json { line: usize, source: serde_json::Error },
    #[error("line {line}: {what}")]
    Malformed { line: usize, what: String },
    #[error("there is no first line with the scheduler's settings: this is no recording")]
    Empty,
    #[error("the recording has format {found}, and formats up to {VERSION} are known: take a newer muster")]
    Version { found: u32 },
}

/// A recording, read line by line: one may be larger than the memory.
pub struct Recording<R> {
    pub setup: Setup,
    lines: io::Lines<R>,
    line: usize,
}

impl<R: BufRead> Recording<R> {
    pub fn read(from: R) -> Result<Self, RecordingError> {
        let mut lines = from.lines();
        let first = lines.next().ok_or(RecordingError::Empty)?;
        let first = first.map_err(|source| RecordingError::Read { line: 1, source })?;
        let value: Value =
            serde_json::from_str(&first).map_err(|source| RecordingError::Json { line: 1, source })?;
        if value.get("schedulerNames").is_none() {
            return Err(RecordingError::Empty);
        }
        let setup: Setup =
            serde_json::from_value(value).map_err(|source| RecordingError::Json { line: 1, source })?;
        if setup.version > VERSION {
            return Err(RecordingError::Version { found: setup.version });
        }
        Ok(Recording { setup, lines, line: 1 })
    }

    fn read_cycle(&self, text: &str) -> Result<Cycle, RecordingError> {
        let line = self.line;
        let value: Value =
            serde_json::from_str(text).map_err(|source| RecordingError::Json { line, source })?;
        cycle_of(value).map_err(|what| RecordingError::Malformed { line, what })
    }
}

impl<R: BufRead> Iterator for Recording<R> {
    type Item = Result<Cycle, RecordingError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let text = self.lines.next()?;
            self.line += 1;
            match text {
                Ok(text) if text.trim().is_empty() => {}
                Ok(text) => return Some(self.read_cycle(&text)),
                Err(source) => return Some(Err(RecordingError::Read { line: self.line, source })),
            }
        }
    }
}

fn cycle_of(mut value: Value) -> Result<Cycle, String> {
    let number = value.get("cycle").and_then(Value::as_u64).ok_or("there is no number `cycle`")?;
    let now = value.get("now").and_then(Value::as_i64).ok_or("there is no time `now`, in milliseconds")?;
    let digest = value.get("digest").and_then(Value::as_str).map(str::to_owned);
    let inputs = match value.get_mut("inputs").map(Value::take) {
        Some(Value::Array(inputs)) => inputs,
        _ => return Err("there is no list `inputs`".into()),
    };
    let read = |(i, input)| input_of(input).map_err(|what| format!("inputs[{i}]: {what}"));
    let inputs = inputs.into_iter().enumerate().map(read).collect::<Result<_, _>>()?;
    Ok(Cycle { cycle: number, now: Time(now), inputs, digest })
}

fn input_of(mut input: Value) -> Result<Input, String> {
    if let Some(config) = input.get_mut("volcano") {
        return Ok(Input::Volcano(config.take()));
    }
    let workload = |field: &str| Some(Key::new(input["namespace"].as_str()?, input[field].as_str()?));
    if let Some(name) = workload("hold") {
        let sets = input["sets"].as_array().into_iter().flatten().map(|set| HoldSet {
            count: set["count"].as_u64().and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
            template: set["template"].clone(),
        });
        let uid = input["uid"].as_str().unwrap_or("").to_owned();
        return Ok(Input::Hold(Hold { name, uid, sets: sets.collect() }));
    }
    if let Some(name) = workload("unsaid") {
        return Ok(Input::Unsaid(name));
    }
    if let Some(name) = workload("giveBack") {
        return Ok(Input::GiveBack(name));
    }
    let text = |field: &str| input.get(field).and_then(Value::as_str).unwrap_or("").to_owned();
    let kind = |field: &str| -> Option<Result<Kind, String>> {
        let name = input.get(field)?.as_str()?;
        let kind = Kind::ALL.into_iter().find(|kind| kind.id() == name);
        Some(kind.ok_or_else(|| format!("{name:?} is no kind that scheduling looks at")))
    };
    if let Some(kind) = kind("put") {
        let kind = kind?;
        let object = input.get_mut("object").map(Value::take).ok_or("there is no `object`")?;
        return Ok(Input::Put(kind, object));
    }
    if let Some(kind) = kind("gone") {
        return Ok(Input::Gone(kind?, muster_runtime::Key::new(text("namespace"), text("name"))));
    }
    if let Some(kind) = kind("known") {
        return Ok(Input::Known(kind?));
    }
    let result = match input.get("outcome").and_then(Value::as_str) {
        Some("done") => Ok(Done::Bound),
        Some("asked") => Ok(Done::Asked),
        Some("overtaken") => Err(Failure::Overtaken),
        Some("refused") => Err(Failure::Refused),
        Some("unanswered") => Err(Failure::Unanswered),
        Some(other) => {
            return Err(format!(
                "{other:?} is no outcome; outcomes are done, asked, overtaken, refused, unanswered"
            ));
        }
        None => return Err("write put, gone, known, outcome, unsaid, hold, giveBack or volcano".into()),
    };
    Ok(Input::Outcome(Outcome { pod: Key::new(text("namespace"), text("name")), uid: text("uid"), result }))
}

/// A cycle as it was recorded and as it came out again.
#[derive(Debug)]
pub struct Replayed {
    pub cycle: u64,
    pub now: Time,
    pub recorded: Option<String>,
    pub output: Option<Output>,
}

impl Replayed {
    /// It decided the same.
    pub fn is_same(&self) -> bool {
        self.recorded == self.output.as_ref().map(|output| digest(&output.decisions))
    }
}

/// Runs a recorded cycle again.
pub fn replay(core: &mut Core, cycle: Cycle) -> Replayed {
    let Cycle { cycle, now, inputs, digest } = cycle;
    Replayed { cycle, now, recorded: digest, output: advance(core, inputs, now) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(kind: Kind, value: Value) -> Input {
        Input::Put(kind, value)
    }

    fn pod(name: &str) -> Input {
        let resources = json!({"requests": {"cpu": "1"}});
        put(
            Kind::Pod,
            json!({"metadata": {"namespace": "ns", "name": name, "uid": format!("u-{name}"),
                "annotations": {"kai.scheduler/skip-podgrouper": "true"}},
                "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "c", "resources": resources}]},
                "status": {"phase": "Pending"}}),
        )
    }

    fn node() -> Input {
        let allocatable = json!({"cpu": "2", "memory": "8Gi", "pods": "110"});
        let conditions = json!([{"type": "Ready", "status": "True"}]);
        put(
            Kind::Node,
            json!({"metadata": {"name": "a"}, "status": {"allocatable": allocatable, "conditions": conditions}}),
        )
    }

    /// Records a scheduler at work: three pods for two places, one of which is given back.
    fn recorded() -> Vec<u8> {
        let setup = Setup::default();
        let mut core = setup.core();
        let mut out = Vec::new();
        write_setup(&mut out, &setup).unwrap();
        let outcome = |name: &str, result| {
            let pod = Key::new("ns", name);
            Input::Outcome(Outcome { pod, uid: format!("u-{name}"), result })
        };
        let cycles = vec![
            vec![node(), pod("p0")],
            Kind::ALL.into_iter().map(Input::Known).collect(),
            vec![pod("p1")],
            vec![outcome("p0", Ok(Done::Bound))],
            vec![outcome("p1", Err(Failure::Overtaken))],
            vec![pod("p2")],
            vec![Input::Gone(Kind::Pod, muster_runtime::Key::new("ns", "p0"))],
        ];
        for (n, inputs) in cycles.into_iter().enumerate() {
            let now = Time(1_000 * n as i64);
            let begun = begin_cycle(n as u64, now, &inputs);
            let output = advance(&mut core, inputs, now);
            write_cycle(&mut out, begun, output.as_ref()).unwrap();
        }
        out
    }

    fn replayed(text: &[u8]) -> Vec<Replayed> {
        let recording = Recording::read(text).unwrap();
        let mut core = recording.setup.core();
        recording.map(|cycle| replay(&mut core, cycle.unwrap())).collect()
    }

    #[test]
    fn a_replay_decides_the_same() {
        let text = recorded();
        let cycles = replayed(&text);
        assert!(cycles.iter().all(Replayed::is_same), "{cycles:#?}");
        let binds: Vec<usize> =
            cycles.iter().map(|c| c.output.as_ref().map_or(0, |o| o.decisions.binds.len())).collect();
        assert_eq!(binds, [0, 1, 1, 0, 1, 0, 1], "what was given back is decided again");
        assert_eq!(cycles[0].recorded, None, "nothing is decided before everything is known");
    }

    /// A disk that is full after so many bytes.
    struct Small(usize);

    impl Write for Small {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn work_goes_on_when_the_disk_is_full() {
        let setup = Setup::default();
        let known = || -> Vec<Input> { Kind::ALL.into_iter().map(Input::Known).collect() };
        let mut out = Vec::new();
        let mut recorder = Recorder::new(&mut out, &setup).unwrap();
        let binds = |output: Option<Output>| output.map_or(0, |output| output.decisions.binds.len());
        let mut core = setup.core();
        assert_eq!(binds(recorder.advance(&mut core, vec![node(), pod("p0")], Time(0))), 0);
        assert_eq!(binds(recorder.advance(&mut core, known(), Time(1))), 1);
        assert_eq!(replayed(&out).iter().filter(|cycle| cycle.is_same()).count(), 2);

        let mut recorder = Recorder::new(Small(400), &setup).unwrap();
        let mut core = setup.core();
        recorder.advance(&mut core, vec![node(), pod("p0")], Time(0));
        assert!(recorder.out.is_none());
        assert_eq!(binds(recorder.advance(&mut core, known(), Time(1))), 1);
    }

    #[test]
    fn another_input_is_noticed() {
        let text = String::from_utf8(recorded()).unwrap().replace("\"cpu\":\"2\"", "\"cpu\":\"1\"");
        assert!(!replayed(text.as_bytes()).iter().all(Replayed::is_same));
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let said = match Recording::read(text.as_bytes()) {
            Err(error) => error.to_string(),
            Ok(recording) => match recording.collect::<Result<Vec<_>, _>>() {
                Err(error) => error.to_string(),
                Ok(cycles) => format!("{} cycles", cycles.len()),
            },
        };
        assert_eq!(said, expected);
    }

    #[test]
    fn says_what_is_wrong() {
        let head = r#"{"schedulerNames": ["a"]}"#;
        let with = |line: &str| format!("{head}\n{line}\n");
        check("", "there is no first line with the scheduler's settings: this is no recording");
        check("{}", "there is no first line with the scheduler's settings: this is no recording");
        check("nonsense", "line 1 is no JSON");
        check(head, "0 cycles");
        let later = r#"{"schedulerNames": [], "version": 9}"#;
        check(later, "the recording has format 9, and formats up to 1 are known: take a newer muster");
        check(&with("\n{"), "line 3 is no JSON");
        check(&with("{}"), "line 2: there is no number `cycle`");
        check(&with(r#"{"cycle": 1, "now": 0}"#), "line 2: there is no list `inputs`");
        let inputs = |inputs: &str| with(&format!(r#"{{"cycle": 1, "now": 0, "inputs": [{inputs}]}}"#));
        check(&inputs(""), "1 cycles");
        check(
            &inputs("{}"),
            "line 2: inputs[0]: write put, gone, known, outcome, unsaid, hold, giveBack or volcano",
        );
        check(
            &inputs(r#"{"put": "Cat", "object": {}}"#),
            "line 2: inputs[0]: \"Cat\" is no kind that scheduling looks at",
        );
        check(&inputs(r#"{"put": "Pod"}"#), "line 2: inputs[0]: there is no `object`");
        check(
            &inputs(r#"{"outcome": "lost"}"#),
            "line 2: inputs[0]: \"lost\" is no outcome; outcomes are done, asked, overtaken, refused, unanswered",
        );
    }
}
