//! One case: the cluster, the settings and course of the run, and what must come out.
//!
//! In: a document of a scenario file. Out: its cases. The lines of JSON that upstream's tests were restated in and the form that people
//! write are one format; the latter only uses more of its short hands (`cluster`, `cases`, `bound on node-0`).

use crate::expect::{Expect, read_sets};
use crate::fields::{Fields, Read, kind, problem};
use crate::manifest::flatten;
use crate::shorthand;
use muster_model::{Action, Time};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Noon of 2026-01-01 in UTC: the clock of a case that does not say otherwise.
pub const DEFAULT_NOW: Time = Time(1_767_268_800_000);

/// More cycles than this is a slip of the finger.
const MOST_CYCLES: u32 = 1000;

#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    pub id: String,
    pub name: String,
    /// Whose rules apply: `kai`. A case of another dialect is read this far and no further; see [`Case::skip`].
    pub dialect: String,
    /// Why it cannot be run here, if so.
    pub skip: Option<String>,
    pub now: Time,
    /// Settings of the scheduler, in the form of the dialect.
    pub policy: Value,
    /// What each cycle runs; `None`: what the policy says.
    pub actions: Option<Vec<Action>>,
    pub objects: Vec<Value>,
    /// Manifests that belong to it, relative to the scenario's own file; whoever reads files adds them to `objects`.
    pub files: Vec<String>,
    pub cycles: u32,
    /// Further cycles, after each of which everything must still hold.
    pub stable_cycles: u32,
    pub evicted: Evicted,
    pub expect: Expect,
    pub symmetry: Symmetry,
    /// A case of Kueue's as it was written: its fields have other meanings. See [`crate::kueue::run`].
    pub kueue: Option<Box<Value>>,
    /// A case of Volcano's as it was written. See [`crate::volcano::run`].
    pub volcano: Option<Box<Value>>,
    /// The configuration by which gangs of Volcano's are treated beside others; nothing: Volcano's own default.
    pub volcano_config: Value,
}

/// What becomes of evicted pods between cycles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evicted {
    /// `false`: one cycle is compared as it ended, with nothing applied yet.
    pub recreate: bool,
    /// Gangs (by name) whose pods stay on their node, terminating, for good.
    pub stay: BTreeSet<String>,
}

/// Sets of pods and of nodes that only their names tell apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symmetry {
    pub pods: Vec<Vec<String>>,
    pub nodes: Vec<Vec<String>>,
}

impl Case {
    /// A case that expects nothing: these objects, so many cycles.
    pub fn of_objects(name: &str, objects: Vec<Value>, now: Time, cycles: u32) -> Self {
        Self {
            id: name.to_string(),
            name: name.to_string(),
            dialect: "kai".to_string(),
            skip: None,
            now,
            policy: Value::Null,
            actions: None,
            objects,
            files: Vec::new(),
            cycles: cycles.clamp(1, MOST_CYCLES),
            stable_cycles: 0,
            evicted: Evicted { recreate: cycles > 1, stay: BTreeSet::new() },
            expect: Expect::default(),
            symmetry: Symmetry::default(),
            kueue: None,
            volcano: None,
            volcano_config: Value::Null,
        }
    }
}

/// Whether a document is meant as a scenario, and not as a manifest that lies in the same folder.
pub fn is_scenario(document: &Value) -> bool {
    document.get("expect").is_some() || document.get("cases").is_some()
}

/// The cases of one document. `stem` names the file; ids are made from it where the document gives none.
///
/// A document with `cases` holds several; what stands beside `cases` is shared by all of them: lists are put in front of the case's own,
/// mappings are merged, and anything else is a default.
pub fn cases_of(document: &Value, stem: &str) -> Read<Vec<Case>> {
    if let Value::Array(items) = document {
        let nested: Read<Vec<Vec<Case>>> = items.iter().map(|item| cases_of(item, stem)).collect();
        return Ok(nested?.into_iter().flatten().collect());
    }
    let Value::Object(map) = document else {
        return problem("", format!("a scenario is a mapping with `expect`; this is {}", kind(document)));
    };
    let Some(cases) = map.get("cases") else { return Ok(vec![read_case(document, stem, "")?]) };
    let Value::Array(cases) = cases else {
        return problem("cases", format!("this is {}; write a list of cases", kind(cases)));
    };
    let mut shared = map.clone();
    shared.remove("cases");
    cases
        .iter()
        .enumerate()
        .map(|(i, case)| {
            let path = format!("cases[{i}]");
            let Value::Object(own) = case else {
                return problem(&path, format!("this is {}; write a mapping with `expect`", kind(case)));
            };
            if own.contains_key("cases") {
                return problem(&path, "a case cannot hold cases");
            }
            read_case(&Value::Object(laid_over(&shared, own, 0)), stem, &path)
        })
        .collect()
}

/// `own` over `shared`: lists are joined, mappings merged, the rest replaced.
fn laid_over(shared: &Map<String, Value>, own: &Map<String, Value>, depth: usize) -> Map<String, Value> {
    let mut merged = shared.clone();
    for (key, value) in own {
        let value = match (merged.remove(key), value) {
            (Some(Value::Array(mut before)), Value::Array(after)) => {
                before.extend(after.iter().cloned());
                Value::Array(before)
            }
            // Only the outer levels: deeper down are manifests and expectations, which are the case's own.
            (Some(Value::Object(before)), Value::Object(after)) if depth < 2 => {
                Value::Object(laid_over(&before, after, depth + 1))
            }
            (_, value) => value.clone(),
        };
        merged.insert(key.clone(), value);
    }
    merged
}

fn read_case(value: &Value, stem: &str, at: &str) -> Read<Case> {
    read_fields(value, stem).map_err(|mut problem| {
        let name = value.get("name").or_else(|| value.get("id")).and_then(Value::as_str);
        let whole = match (at, name) {
            ("", None) => String::new(),
            ("", Some(name)) => format!("{name:?}"),
            (at, None) => at.to_string(),
            (at, Some(name)) => format!("{at} ({name:?})"),
        };
        if !whole.is_empty() {
            problem.path = if problem.path.is_empty() { whole } else { format!("{whole}: {}", problem.path) };
        }
        problem
    })
}

fn read_fields(value: &Value, stem: &str) -> Read<Case> {
    let mut fields = Fields::of(value, "")?;
    let id = fields.text("id")?;
    let name = fields.text("name")?;
    let (id, name) = match (id, name) {
        (Some(id), Some(name)) => (id, name),
        (Some(id), None) => (id.clone(), id),
        (None, Some(name)) => (format!("{stem}/{name}"), name),
        (None, None) => return problem("name", "say in a few words what the case is about"),
    };
    let dialect = fields.text("dialect")?.unwrap_or_else(|| "kai".to_string());
    let mut case = Case { id, dialect, ..Case::of_objects(&name, Vec::new(), DEFAULT_NOW, 1) };
    match case.dialect.as_str() {
        "kai" => {}
        // Their fields have other meanings, so nothing more is read.
        "kueue" | "volcano"
            if !["expect", "expect_any"].iter().any(|name| says_something(value.get(name))) =>
        {
            return problem("expect", "nothing is expected, so nothing can fail");
        }
        "kueue" => {
            case.kueue = Some(Box::new(value.clone()));
            return Ok(case);
        }
        "volcano" => {
            case.volcano = Some(Box::new(value.clone()));
            return Ok(case);
        }
        other => {
            return problem(
                "dialect",
                format!("{other:?} is no dialect; the dialects are kai, volcano, kueue"),
            );
        }
    }
    if let Some(text) = fields.text("now")? {
        case.now = time(&text, "now")?;
    }
    // KAI's cases say config; people say policy.
    let config = fields.get("config");
    let policy = fields.get("policy");
    if config.is_some() && policy.is_some() {
        return problem("policy", "`config` is the same thing; write one of them");
    }
    if let Some(policy) = policy.or(config) {
        if !policy.is_object() {
            return problem("policy", format!("this is {}; write a mapping of settings", kind(policy)));
        }
        if config.is_none() {
            check_settings(policy)?;
        }
        case.policy = policy.clone();
    }
    if let Some(config) = fields.get("volcanoConfig") {
        case.volcano_config = config.clone();
    }
    if let Some(names) = fields.texts("actions")? {
        case.actions = Some(names.iter().map(|n| action(n)).collect::<Read<_>>()?);
    }
    case.files = fields.texts("files")?.unwrap_or_default();
    if let Some(cluster) = fields.get("cluster") {
        case.objects.extend(shorthand::expand(cluster, case.now)?);
    }
    for (i, object) in fields.list("objects")?.iter().enumerate() {
        if !object.is_object() {
            return problem(&format!("objects[{i}]"), format!("this is {}; write a manifest", kind(object)));
        }
        flatten(object.clone(), &mut case.objects);
    }
    case.cycles = fields.count("cycles", MOST_CYCLES)?.unwrap_or(1).max(1);
    case.stable_cycles = fields.count("stableCycles", MOST_CYCLES)?.unwrap_or(0);
    case.evicted = evicted(&mut fields, case.cycles + case.stable_cycles > 1)?;
    case.expect = match fields.get("expect") {
        Some(expect) => Expect::read(expect)?,
        None => return problem("expect", "say what must come out: expect: {gangs: {name: bound}}"),
    };
    if case.expect.is_empty() {
        return problem(
            "expect",
            "nothing is expected, so nothing can fail; name pods, gangs, queues, nodes or totals",
        );
    }
    if let Some(value) = fields.get("symmetry") {
        let mut sets = Fields::of(value, "symmetry")?;
        case.symmetry =
            Symmetry { pods: read_sets(&mut sets, "pods")?, nodes: read_sets(&mut sets, "nodes")? };
        sets.finish()?;
    }
    // Where a case comes from and what upstream did: nothing to run.
    for remark in ["features", "source", "observed", "cycleDelaySeconds", "notes", "description"] {
        fields.get(remark);
    }
    fields.finish()?;
    Ok(case)
}

/// A setting that is misspelt would otherwise do nothing, and nobody would know. Manifests and configuration files have fields of their own.
fn check_settings(policy: &Value) -> Read<()> {
    if policy.get("kind").is_some() || policy.get("tiers").is_some() {
        return Ok(());
    }
    let mut fields = Fields::of(policy, "policy")?;
    for setting in [
        "nodePlacement",
        "gpuPlacement",
        "maxConsolidationPreemptees",
        "allowConsolidatingReclaim",
        "defaultStalenessGracePeriod",
        "fullHierarchyFairness",
        "nodePoolLabelKey",
        "partitionLabelValue",
        "plugins",
        "trees",
    ] {
        fields.get(setting);
    }
    fields.finish()
}

fn evicted(fields: &mut Fields<'_>, several_cycles: bool) -> Read<Evicted> {
    let mut evicted = Evicted { recreate: several_cycles, stay: BTreeSet::new() };
    let Some(value) = fields.get("evicted") else { return Ok(evicted) };
    let mut own = Fields::of(value, "evicted")?;
    match own.text("default")?.as_deref() {
        None => {}
        Some("recreate") => evicted.recreate = true,
        Some("n/a") if several_cycles => {
            return problem("evicted.default", "with several cycles, write `recreate`");
        }
        Some("n/a") => evicted.recreate = false,
        Some(other) => {
            return problem("evicted.default", format!("{other:?} is not known; write `recreate`"));
        }
    }
    evicted.stay = own.texts("stayTerminating")?.unwrap_or_default().into_iter().collect();
    own.finish()?;
    Ok(evicted)
}

fn action(name: &str) -> Read<Action> {
    let all =
        [Action::Allocate, Action::Consolidate, Action::Reclaim, Action::Preempt, Action::EvictStaleGangs];
    match all.into_iter().find(|a| a.name() == name) {
        Some(action) => Ok(action),
        None => {
            let names: Vec<&str> = all.iter().map(|a| a.name()).collect();
            problem("actions", format!("{name:?} is no action; the actions are {}", names.join(", ")))
        }
    }
}

pub fn time(text: &str, path: &str) -> Read<Time> {
    match text.parse::<jiff::Timestamp>() {
        Ok(at) => Ok(Time(at.as_millisecond())),
        Err(_) => problem(path, format!("{text:?} is no time; write one such as 2026-01-01T12:00:00Z")),
    }
}
fn says_something(expected: Option<&Value>) -> bool {
    match expected {
        Some(Value::Object(members)) => !members.is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        _ => false,
    }
}
