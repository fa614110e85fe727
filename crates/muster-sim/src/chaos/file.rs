//! Reading a plan of chaos.
//!
//! In: YAML. Out: a [`Chaos`], or an error that names the file, the line, the field and what to write. Must stay true: what is not
//! understood is refused; what is read can be carried out.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use muster_runtime::spelling;
use serde::Deserialize;
use serde_saphyr::Spanned;

use super::{Caller, Chaos, Matching, NodeState, Planned, ServerState, What, When, Which};
use crate::faults::Fault;
use crate::kubelet::behaviour::parse_duration;
use crate::yaml::{self, Format, Place, Refusal};

const FILE: Format = Format {
    list: "faults",
    example: "write a list of faults, each with a time and what fails, like `faults: [{at: 30s, for: 2m, node: {state: silent}}]`",
    required: "each fault has one of `node`, `api`, `watch`, `server` and `services`",
};
const VERBS: [&str; 7] = ["get", "list", "watch", "create", "update", "patch", "delete"];
/// More than anybody rehearses; what asks for more is a slip of the finger.
const MOST_FAULTS: usize = 1000;
const SHORTEST: Duration = Duration::from_millis(100);
const SPAN: &str = "write a time such as 200ms, 30s, 5m or 1h30m";
const SHARE: &str = "write a number from 0.001 to 1, such as 0.2 for one in five";

/// A plan that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ChaosError {
    #[error("{file}: cannot be read; check the path and that the file is text")]
    Read { file: String, source: std::io::Error },
    #[error("{file}: {place}{problem}; {fix}")]
    Field { file: String, place: Place, problem: String, fix: String },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChaosFile {
    #[serde(default)]
    seed: Option<u64>,
    faults: Vec<Spanned<FaultFile>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FaultFile {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    at: Option<String>,
    #[serde(default)]
    jitter: Option<String>,
    #[serde(default)]
    every: Option<String>,
    #[serde(default)]
    times: Option<u32>,
    #[serde(default, rename = "for")]
    lasts: Option<String>,
    #[serde(default)]
    probability: Option<f64>,
    #[serde(default)]
    node: Option<NodeFile>,
    #[serde(default)]
    api: Option<ApiFile>,
    #[serde(default)]
    watch: Option<WatchFile>,
    #[serde(default)]
    server: Option<String>,
    #[serde(default)]
    services: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeFile {
    state: String,
    #[serde(default)]
    names: Vec<String>,
    #[serde(default)]
    selector: BTreeMap<String, String>,
    #[serde(default)]
    domain: Option<String>,
    #[serde(default)]
    count: Option<u32>,
    #[serde(default)]
    gpus: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ApiFile {
    #[serde(default)]
    from: Vec<String>,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    names: Vec<String>,
    #[serde(default)]
    share: Option<f64>,
    #[serde(default)]
    status: Option<u32>,
    #[serde(default)]
    delay: Option<String>,
    #[serde(default)]
    answer: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct WatchFile {
    #[serde(default)]
    from: Vec<String>,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    share: Option<f64>,
    #[serde(default)]
    cut_after: Option<u32>,
    #[serde(default)]
    expire_after: Option<u32>,
    #[serde(default)]
    stall_after: Option<u32>,
    #[serde(default)]
    repeat: Option<f64>,
}

impl Chaos {
    pub fn read(file: &Path) -> Result<Self, ChaosError> {
        let name = file.display().to_string();
        let text = std::fs::read_to_string(file)
            .map_err(|source| ChaosError::Read { file: name.clone(), source })?;
        Chaos::parse(&name, &text)
    }

    /// Reads YAML text; `file` is the name for errors.
    pub fn parse(file: &str, text: &str) -> Result<Self, ChaosError> {
        let refuse = |refusal: Refusal| {
            let Refusal { place, problem, fix } = refusal;
            ChaosError::Field { file: file.to_owned(), place, problem, fix }
        };
        let parsed: ChaosFile =
            serde_saphyr::from_str(text).map_err(|error| refuse(yaml::explain(&FILE, text, &error)))?;
        let lines: Vec<u64> = parsed.faults.iter().map(|fault| fault.referenced.line()).collect();
        let faults = checked(parsed.faults).map_err(|mut refusal| {
            refusal.place = yaml::locate(&FILE, refusal.place, text, &lines);
            refuse(refusal)
        })?;
        Ok(Chaos { seed: parsed.seed, faults })
    }
}

fn checked(faults: Vec<Spanned<FaultFile>>) -> Result<Vec<Planned>, Refusal> {
    if faults.is_empty() || faults.len() > MOST_FAULTS {
        let problem = format!("{} faults", faults.len());
        return Err(Refusal {
            place: Place::field("faults"),
            problem,
            fix: format!("plan 1 to {MOST_FAULTS}"),
        });
    }
    let mut all: Vec<Planned> = Vec::new();
    for (i, fault) in faults.into_iter().enumerate() {
        let planned = fault_of(&At(format!("faults[{i}]")), fault.value)?;
        if all.iter().any(|other| other.name == planned.name) {
            let at = At(format!("faults[{i}]"));
            return at.refuse(
                "name",
                format!("{:?} is there twice", planned.name),
                "name each fault differently",
            );
        }
        all.push(planned);
    }
    Ok(all)
}

/// The part of the file that is read.
struct At(String);

impl At {
    fn inside(&self, field: &str) -> At {
        At(format!("{}.{field}", self.0))
    }

    fn refuse<T>(&self, field: &str, problem: String, fix: impl Into<String>) -> Result<T, Refusal> {
        let field = if field.is_empty() { self.0.clone() } else { format!("{}.{field}", self.0) };
        Err(Refusal { place: Place::field(field), problem, fix: fix.into() })
    }

    fn span(&self, field: &str, text: &Option<String>) -> Result<Option<Duration>, Refusal> {
        let Some(text) = text else { return Ok(None) };
        match parse_duration(text) {
            Some(span) => Ok(Some(span)),
            None => self.refuse(field, format!("{text:?} is not a time"), SPAN),
        }
    }

    /// So many in a thousand.
    fn share(&self, field: &str, share: Option<f64>) -> Result<u16, Refusal> {
        let Some(share) = share else { return Ok(1000) };
        if !(0.001..=1.0).contains(&share) {
            return self.refuse(field, format!("{share} is no share"), SHARE);
        }
        // The nearest thousandth.
        Ok((1..=1000_u16).rev().find(|n| f64::from(*n) - 0.5 <= share * 1000.0).unwrap_or(1))
    }

    /// One of a few words.
    fn word<T: Copy>(&self, field: &str, text: &str, words: &[(&str, T)]) -> Result<T, Refusal> {
        if let Some((_, meaning)) = words.iter().find(|(word, _)| *word == text) {
            return Ok(*meaning);
        }
        let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let fix = match spelling::nearest(text, all.iter().copied()) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("write {}", either(&all)),
        };
        self.refuse(field, format!("{text:?} means nothing here"), fix)
    }
}

/// `a, b or c`.
fn either(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}

fn fault_of(at: &At, fault: FaultFile) -> Result<Planned, Refusal> {
    let name = fault.name.clone().unwrap_or_else(|| at.0.clone());
    if name.is_empty() || name.len() > 100 || name.chars().any(char::is_control) {
        return at.refuse("name", "this cannot be a name".into(), "write 1 to 100 characters");
    }
    let when = when(at, &fault)?;
    let kinds = [
        ("node", fault.node.is_some()),
        ("api", fault.api.is_some()),
        ("watch", fault.watch.is_some()),
        ("server", fault.server.is_some()),
        ("services", fault.services.is_some()),
    ];
    let said: Vec<&str> = kinds.iter().filter(|(_, said)| *said).map(|(kind, _)| *kind).collect();
    if said.len() != 1 {
        let all: Vec<&str> = kinds.iter().map(|(kind, _)| *kind).collect();
        let problem = match said.as_slice() {
            [] => "nothing fails".to_owned(),
            several => format!("{} are said together", several.join(" and ")),
        };
        return at.refuse("", problem, format!("say one of {} in each fault", either(&all)));
    }
    let what = if let Some(node) = fault.node {
        node_fault(&at.inside("node"), node)?
    } else if let Some(api) = fault.api {
        api_fault(&at.inside("api"), api)?
    } else if let Some(watch) = fault.watch {
        watch_fault(&at.inside("watch"), watch)?
    } else if let Some(server) = fault.server {
        let states = [
            ("down", ServerState::Down),
            ("dropsConnections", ServerState::DropsConnections),
            ("forgetsVersions", ServerState::ForgetsVersions),
        ];
        What::Server(at.word("server", &server, &states)?)
    } else {
        at.word("services", &fault.services.unwrap_or_default(), &[("killed", ())])?;
        What::ServicesKilled
    };
    fits(at, &when, &what)?;
    Ok(Planned { name, when, what })
}

fn when(at: &At, fault: &FaultFile) -> Result<When, Refusal> {
    let every = at.span("every", &fault.every)?;
    let lasts = at.span("for", &fault.lasts)?;
    let jitter = at.span("jitter", &fault.jitter)?.unwrap_or_default();
    for (field, span) in [("every", every), ("for", lasts)] {
        if span.is_some_and(|span| span < SHORTEST) {
            return at.refuse(field, "this is too short to be noticed".into(), "write 100ms or more");
        }
    }
    if every.is_some_and(|every| jitter > every) {
        return at.refuse(
            "jitter",
            "turns would overtake each other".into(),
            "write at most what `every` says",
        );
    }
    if fault.times == Some(0) {
        return at.refuse("times", "0 leaves nothing to do".into(), "write 1 or more, or leave it out");
    }
    if fault.times.is_some_and(|times| times > 1) && every.is_none() {
        return at.refuse(
            "times",
            "nothing says when it comes again".into(),
            "say `every`, such as `every: 5m`",
        );
    }
    Ok(When {
        at: at.span("at", &fault.at)?.unwrap_or_default(),
        jitter,
        every,
        times: fault.times,
        lasts,
        chance: at.share("probability", fault.probability)?,
    })
}

/// Whether the times make sense for what happens.
fn fits(at: &At, when: &When, what: &What) -> Result<(), Refusal> {
    let momentary = match what {
        What::Server(ServerState::DropsConnections | ServerState::ForgetsVersions) => true,
        What::Nodes { .. }
        | What::Requests { .. }
        | What::Server(ServerState::Down)
        | What::ServicesKilled => false,
    };
    if momentary && when.lasts.is_some() {
        return at.refuse("for", "this happens in a moment".into(), "leave `for` out");
    }
    if matches!(what, What::Server(ServerState::Down)) && when.lasts.is_none() {
        let problem = "a server that stays down shows nothing";
        return at.refuse("server", problem.into(), "say how long, such as `for: 20s`");
    }
    // Several nodes may be down at a time; of everything else there is one.
    let overlaps = match (when.every, when.lasts) {
        (Some(every), Some(lasts)) => lasts + when.jitter > every,
        (Some(_), None) => !momentary && *what != What::ServicesKilled,
        (None, _) => false,
    };
    if overlaps && !matches!(what, What::Nodes { .. }) {
        let problem = "a turn would begin before the one before it is over";
        return at.refuse("every", problem.into(), "make `every` longer than `for` and `jitter` together");
    }
    Ok(())
}

fn node_fault(at: &At, node: NodeFile) -> Result<What, Refusal> {
    let states = [("silent", 0), ("notReady", 1), ("deleted", 2), ("drained", 3), ("unhealthyGpus", 4)];
    let state = at.word("state", &node.state, &states)?;
    let state = match (state, node.gpus) {
        (4, None) => {
            return at.refuse("gpus", "nothing says which".into(), "write GPU numbers, such as gpus: '0,3'");
        }
        (4, Some(gpus)) => {
            if gpus.split(',').any(|n| n.trim().parse::<u32>().is_err()) {
                let problem = format!("{gpus:?} are not numbers of GPUs");
                return at.refuse("gpus", problem, "write numbers from 0 up, such as gpus: '0,3'");
            }
            NodeState::UnhealthyGpus(gpus)
        }
        (_, Some(_)) => {
            let fix = "leave it out, or say `state: unhealthyGpus`";
            return at.refuse("gpus", format!("{} takes the whole node", node.state), fix);
        }
        (0, None) => NodeState::Silent,
        (1, None) => NodeState::NotReady,
        (2, None) => NodeState::Deleted,
        (_, None) => NodeState::Drained,
    };
    if node.count == Some(0) {
        return at.refuse("count", "0 leaves nothing to do".into(), "write 1 or more, or leave it out");
    }
    let narrowed = !node.names.is_empty() || !node.selector.is_empty();
    let which = Which {
        names: node.names,
        selector: node.selector,
        domain: node.domain.filter(|key| !key.is_empty()),
        // A whole cluster is nobody's wish; whoever has it says so by a label that all have.
        count: node.count.or((!narrowed).then_some(1)),
    };
    Ok(What::Nodes { which, state })
}

fn callers(at: &At, from: &[String]) -> Result<Vec<Caller>, Refusal> {
    let words =
        [("clients", Caller::Clients), ("services", Caller::Services), ("simulation", Caller::Simulation)];
    let mut all = Vec::new();
    for (i, text) in from.iter().enumerate() {
        all.push(at.word(&format!("from[{i}]"), text, &words)?);
    }
    all.sort();
    all.dedup();
    // The simulation is the ground that workloads stand on; it suffers only if asked to.
    Ok(if all.is_empty() { vec![Caller::Clients, Caller::Services] } else { all })
}

fn resources(at: &At, resources: &[String]) -> Result<(), Refusal> {
    for (i, text) in resources.iter().enumerate() {
        let good = !text.is_empty()
            && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "/-".contains(c));
        if !good {
            let fix =
                "write the plural in lower case without its group, such as pods, pods/binding or podgroups";
            return at.refuse(&format!("resources[{i}]"), format!("{text:?} is not a resource"), fix);
        }
    }
    Ok(())
}

fn api_fault(at: &At, api: ApiFile) -> Result<What, Refusal> {
    let from = callers(at, &api.from)?;
    for (i, verb) in api.verbs.iter().enumerate() {
        at.word(&format!("verbs[{i}]"), verb, &VERBS.map(|verb| (verb, ())))?;
    }
    resources(at, &api.resources)?;
    let said = [api.status.is_some(), api.delay.is_some(), api.answer.is_some()];
    if said.into_iter().filter(|said| *said).count() != 1 {
        let fix = "say one of `status: 503`, `delay: 2s`, `answer: lost` and `answer: never`";
        return at.refuse("", "it must be plain what becomes of requests".into(), fix);
    }
    let fault = if let Some(status) = api.status {
        match u16::try_from(status) {
            Ok(code) if (400..=599).contains(&code) => Fault::Status(code),
            _ => {
                let fix = "write a status from 400 to 599, such as 409, 429, 500 or 503";
                return at.refuse("status", format!("{status} is not an error"), fix);
            }
        }
    } else if let Some(delay) = at.span("delay", &api.delay)? {
        Fault::Delay(delay)
    } else {
        let words = [("lost", true), ("never", false)];
        match at.word("answer", api.answer.as_deref().unwrap_or_default(), &words)? {
            true => Fault::LostAnswer,
            false => Fault::Silence,
        }
    };
    let share = at.share("share", api.share)?;
    let matching = Matching { verbs: api.verbs, resources: api.resources, names: api.names };
    Ok(What::Requests { from, matching, share, fault })
}

fn watch_fault(at: &At, watch: WatchFile) -> Result<What, Refusal> {
    let from = callers(at, &watch.from)?;
    resources(at, &watch.resources)?;
    let repeat = match watch.repeat {
        Some(_) => Some(Fault::RepeatEvents(at.share("repeat", watch.repeat)?)),
        None => None,
    };
    let said = [
        watch.cut_after.map(|after| Fault::CutWatch { after }),
        watch.expire_after.map(|after| Fault::ExpireWatch { after }),
        watch.stall_after.map(|after| Fault::StallWatch { after }),
        repeat,
    ];
    let mut said = said.into_iter().flatten();
    let (Some(fault), None) = (said.next(), said.next()) else {
        let fix = "say one of `cutAfter: 10`, `expireAfter: 10`, `stallAfter: 10` (events) and `repeat: 0.1`";
        return at.refuse("", "it must be plain what becomes of watches".into(), fix);
    };
    let share = at.share("share", watch.share)?;
    let matching = Matching { verbs: vec!["watch".into()], resources: watch.resources, names: Vec::new() };
    Ok(What::Requests { from, matching, share, fault })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let error = Chaos::parse("c.yaml", text).expect_err("this must be refused").to_string();
        let error = error.replace(FILE.example, "EXAMPLE");
        assert_eq!(error, format!("c.yaml: {expected}"));
    }

    #[track_caller]
    fn check_fault(fault: &str, expected: &str) {
        check(&format!("faults:\n- {fault}\n"), &format!("line 2: faults[0]{expected}"));
    }

    #[test]
    fn one_sentence_with_line_field_and_fix() {
        check("", "the file is empty; EXAMPLE");
        check("faults: []", "faults: 0 faults; plan 1 to 1000");
        check(
            "fault: []",
            "line 1: unknown field `fault`, expected one of seed, faults; did you mean `faults`?",
        );
        check(
            "seed: x\nfaults: []",
            "line 1: seed: this is not a number from 0 up, or too large a one; write a number such as 8",
        );
        check(
            "faults:\n- at: 30s\n  node: {stat: silent}\n",
            "line 3: unknown field `stat`, expected one of state, names, selector, domain, count, gpus; did you mean `state`?",
        );
        check(
            "faults:\n- at: soon\n  server: dropsConnections\n",
            "line 2: faults[0].at: \"soon\" is not a time; write a time such as 200ms, 30s, 5m or 1h30m",
        );
        check(
            "faults:\n- {name: a, server: dropsConnections}\n- {name: a, server: dropsConnections}\n",
            "line 3: faults[1].name: \"a\" is there twice; name each fault differently",
        );
    }

    #[test]
    fn every_field_is_checked() {
        check(
            "faults:\n- at: 1s\n",
            "faults[0]: nothing fails; say one of node, api, watch, server or services in each fault",
        );
        check(
            "faults:\n- {services: killed, server: down}\n",
            "faults[0]: server and services are said together; say one of node, api, watch, server or services in each fault",
        );
        check_fault(
            "{node: {state: Silent}}",
            ".node.state: \"Silent\" means nothing here; did you mean silent?",
        );
        check_fault(
            "{node: {state: broken}}",
            ".node.state: \"broken\" means nothing here; write silent, notReady, deleted, drained or unhealthyGpus",
        );
        check_fault(
            "{node: {state: silent, count: 0}}",
            ".node.count: 0 leaves nothing to do; write 1 or more, or leave it out",
        );
        check_fault(
            "{node: {state: silent, gpus: '0'}}",
            ".node.gpus: silent takes the whole node; leave it out, or say `state: unhealthyGpus`",
        );
        check_fault(
            "{node: {state: unhealthyGpus, gpus: all}}",
            ".node.gpus: \"all\" are not numbers of GPUs; write numbers from 0 up, such as gpus: '0,3'",
        );
        check_fault(
            "{server: down}",
            ".server: a server that stays down shows nothing; say how long, such as `for: 20s`",
        );
        check_fault("{server: dropsConnections, for: 1s}", ".for: this happens in a moment; leave `for` out");
        check_fault("{services: stopped}", ".services: \"stopped\" means nothing here; write killed");
        check_fault(
            "{every: 1m, for: 2m, server: down}",
            ".every: a turn would begin before the one before it is over; make `every` longer than `for` and `jitter` together",
        );
        check_fault(
            "{times: 2, server: dropsConnections}",
            ".times: nothing says when it comes again; say `every`, such as `every: 5m`",
        );
        check_fault(
            "{probability: 2, server: dropsConnections}",
            ".probability: 2 is no share; write a number from 0.001 to 1, such as 0.2 for one in five",
        );
        check_fault(
            "{api: {status: 200}}",
            ".api.status: 200 is not an error; write a status from 400 to 599, such as 409, 429, 500 or 503",
        );
        check_fault(
            "{api: {status: 500, verbs: [post]}}",
            ".api.verbs[0]: \"post\" means nothing here; write get, list, watch, create, update, patch or delete",
        );
        check_fault(
            "{api: {status: 500, resources: [Pod]}}",
            ".api.resources[0]: \"Pod\" is not a resource; write the plural in lower case without its group, such as pods, pods/binding or podgroups",
        );
        check_fault(
            "{api: {status: 500, from: [client]}}",
            ".api.from[0]: \"client\" means nothing here; did you mean clients?",
        );
        check_fault("{api: {answer: late}}", ".api.answer: \"late\" means nothing here; write lost or never");
        let plain = "faults[0].api: it must be plain what becomes of requests; say one of `status: 503`, `delay: 2s`, `answer: lost` and `answer: never`";
        check("faults:\n- {api: {}}\n", &format!("line 2: {plain}"));
        check("faults:\n- {api: {status: 500, delay: 1s}}\n", &format!("line 2: {plain}"));
        check(
            "faults:\n- {watch: {resources: [pods]}}\n",
            "line 2: faults[0].watch: it must be plain what becomes of watches; say one of `cutAfter: 10`, `expireAfter: 10`, `stallAfter: 10` (events) and `repeat: 0.1`",
        );
    }

    #[test]
    fn hostile_files_get_one_short_line() {
        for text in [
            "\u{0}\u{1}",
            "faults:\n\t- at: 1",
            &"[".repeat(5000),
            &"a".repeat(100_000),
            "faults: [{at: 1e400s}]",
        ] {
            let error = Chaos::parse("c.yaml", text).expect_err("this must be refused").to_string();
            assert!(!error.contains('\n') && error.len() < 1000, "{error}");
        }
    }
}
