//! Kueue's cases: whole cycles, or one step of admission by itself.
//!
//! In: a document with `dialect: kueue`; `op` says what to run. Out: what came out, in the form of the document's `expect`, and how that differs
//! from it. What the document does not name is free; `conditions` and `events` are words, and compared only where they are asked for.

mod diff;
mod ops;
mod schedule;

use muster_admit::State;
use muster_admit::spec::Workload;
use muster_model::Time;
pub use muster_translate::kueue::words;
use muster_translate::kueue::{Context, Item, LimitRanges, object, settings};
use serde_json::{Map, Value};

/// What came out of a case.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// In the form of `expect`.
    pub actual: Value,
    /// How it differs from what is expected.
    pub differences: Vec<String>,
    /// How the words of conditions differ, where the document has any.
    pub words: Vec<String>,
    /// What made no sense in the objects.
    pub notes: Vec<String>,
}

/// Runs a case. `Err`: it cannot be run, and why.
pub fn run(case: &Value) -> Result<Outcome, String> {
    let op = case.get("op").and_then(Value::as_str).unwrap_or("schedule");
    let mut world = World::read(case)?;
    let actual = match op {
        "schedule" => schedule::run(&mut world, case)?,
        "preempt" => ops::preempt(&mut world)?,
        "assignFlavors" => ops::assign_flavors(&mut world)?,
        "tasAssign" => ops::tas_assign(&mut world)?,
        "available" => ops::available(&mut world)?,
        "quotaTree" => ops::quota_tree(&mut world)?,
        "dominantResourceShare" => ops::shares(&mut world)?,
        "isBorrowingOn" => ops::is_borrowing_on(&mut world)?,
        "resourcesToReserve" => ops::to_reserve(&mut world)?,
        "entryOrder" => ops::entry_order(&mut world)?,
        "candidateOrder" => ops::candidate_order(&mut world)?,
        "partialAdmissionSearch" => ops::partial_search(&world)?,
        other => return Err(format!("{other:?} is no operation of Kueue's cases")),
    };
    let expected = case.get("expect").cloned().unwrap_or(Value::Object(Map::new()));
    let differences = diff::differences(op, &expected, &actual);
    let words = diff::conditions(&expected, &actual);
    Ok(Outcome { actual, differences, words, notes: world.notes })
}

/// The objects of a case, read and put in.
struct World {
    state: State,
    given: Value,
    context: Context,
    now: Time,
    notes: Vec<String>,
    /// Workloads as they were read, for steps that need them again.
    workloads: Vec<Workload>,
}

impl World {
    fn read(case: &Value) -> Result<Self, String> {
        let config = case.get("config").cloned().unwrap_or(Value::Object(Map::new()));
        let now = match config.get("now").and_then(Value::as_str) {
            Some(text) => crate::case::time(text, "config.now").map_err(|p| p.to_string())?,
            None => crate::case::DEFAULT_NOW,
        };
        let (mut settings, mut context, diagnostics) = settings(&config);
        let given = case.get("given").cloned().unwrap_or(Value::Null);
        // Victims are chosen by creation where nothing else is said.
        if case.get("op").and_then(Value::as_str) == Some("preempt") {
            settings.by_eviction_time = false;
        }
        if let Some(timestamp) = given.get("podsReadyRequeuingTimestamp").and_then(Value::as_str) {
            settings.by_eviction_time = timestamp == "Eviction";
        }
        let mut notes: Vec<String> = diagnostics.iter().map(ToString::to_string).collect();
        let objects = match case.get("objects") {
            None => Vec::new(),
            Some(Value::Array(objects)) => objects.clone(),
            Some(_) => return Err("objects: write a list of manifests".into()),
        };
        let mut limits = LimitRanges::default();
        objects.iter().for_each(|o| limits.put(o));
        context.limits = limits;
        let mut world = Self {
            state: State::new(settings),
            given,
            context,
            now,
            notes: Vec::new(),
            workloads: Vec::new(),
        };
        for value in &objects {
            let (item, diagnostics) = object(value, &world.context);
            notes.extend(diagnostics.iter().map(ToString::to_string));
            if let Some(item) = item {
                world.put(item);
            }
        }
        world.notes = notes;
        world.state.touch();
        world.state.settle(world.now);
        for workload in world.workloads.clone() {
            world.state.put_workload(workload, world.now);
        }
        Ok(world)
    }

    fn put(&mut self, item: Item) {
        let state = &mut self.state;
        match item {
            Item::ClusterQueue(q) => drop(state.queue_specs.insert(q.name.clone(), *q)),
            Item::Cohort(c) => drop(state.cohort_specs.insert(c.name.clone(), c)),
            Item::LocalQueue(q) => drop(state.local_queues.insert(q.key.clone(), q)),
            Item::Flavor(f) => drop(state.flavor_specs.insert(f.name.clone(), f)),
            Item::Topology(t) => drop(state.topologies.insert(t.name.clone(), t)),
            Item::Check(c) => drop(state.checks.insert(c.name.clone(), c)),
            Item::Node(n) => drop(state.nodes.insert(n.name.clone(), n)),
            Item::Pod(p) => drop(state.pods.insert(p.key.clone(), p)),
            Item::Namespace(name, labels) => drop(state.namespaces.insert(name, labels)),
            Item::Workload(w) => self.workloads.push(*w),
        }
    }

    /// A workload that is given beside the objects.
    fn workload(&mut self, value: &Value) -> Result<Workload, String> {
        let mut value = value.clone();
        if let Value::Object(map) = &mut value {
            map.entry("kind").or_insert_with(|| "Workload".into());
        }
        let (item, diagnostics) = object(&value, &self.context);
        self.notes.extend(diagnostics.iter().map(ToString::to_string));
        match item {
            Some(Item::Workload(workload)) => Ok(*workload),
            _ => Err("given: this is no workload".into()),
        }
    }
}

/// The names of the dialect's operations, for those who read cases.
pub const OPS: &[&str] = &[
    "schedule",
    "preempt",
    "assignFlavors",
    "tasAssign",
    "available",
    "quotaTree",
    "dominantResourceShare",
    "isBorrowingOn",
    "resourcesToReserve",
    "entryOrder",
    "candidateOrder",
    "partialAdmissionSearch",
];
