//! `muster simulate`: what the engine would do with the objects of some manifests, cycle by cycle.
//!
//! In: manifests of nodes, queues, pod groups, pods and workloads (which become the pods that their controllers would make, see `unfold`), a
//! snapshot, or the live cluster. Out: binds, evictions and promises of each cycle, and why the rest waits. Nothing is changed anywhere.

use crate::Exit;
use crate::live::{self, Format, Schedulers, Snapshot, Target};
use crate::system;
use crate::unfold::{Unfolded, unfold};
use crate::up::runtime;
use anyhow::{Context, bail};
use clap::ValueEnum;
use k8s_table::{Cell, Column, Render, Row, Table};
use muster_model::{Key, Time};
use muster_scenario::{
    Case, Outcome, Phase, PlayError, cycles_json, object_files, objects_of, play, read_text, words,
};
use muster_scheduler::record::Setup;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  muster simulate -f cluster.yaml -f new-job.yaml            would it start?\n  muster simulate -f cluster.yaml --cycles 3 --explain       what happens next, and why the rest waits\n  muster simulate --live -f new-job.yaml                     would it start on this cluster, now?\n  muster snapshot --file now.yaml; muster simulate -f now.yaml -f new-job.yaml\n  kubectl get nodes,pods,queues,podgroups -A -o json | muster simulate -f - -o json\n\nManifests: Nodes, Queues, PodGroups, Pods, and whatever else they refer to; several documents per file, lists and folders are\nfine. Of a Job, CronJob, Deployment, ReplicaSet, StatefulSet, JobSet, LeaderWorkerSet, RayCluster, Volcano Job or one of Kubeflow's\njobs, those pods take part that its controller would make, in the groups that the grouper would put them in; other kinds with pods\nare refused. Between cycles bound pods start to run, and evicted pods come back to wait."
)]
pub struct Args {
    #[command(flatten)]
    input: Input,
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    schedulers: Schedulers,
    /// Also the objects of the live cluster; so it is without -f
    #[arg(long)]
    live: bool,
    /// How many cycles to run
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    cycles: u32,
    /// Say in full why gangs wait and what would help
    #[arg(long)]
    explain: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// What is read, and how; shared with `muster explain`.
#[derive(clap::Args)]
pub struct Input {
    /// Manifests: a file, a folder, or - for standard input; may be repeated
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Scheduler settings: a SchedulingShard, KAI's configuration file, or what a scenario has under `policy`; the SchedulingShard among the
    /// manifests otherwise
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Whose rules apply
    #[arg(long, value_enum, default_value_t = Dialect::Kai)]
    dialect: Dialect,
    /// The time to decide at, such as 2026-01-01T12:00:00Z; the present otherwise
    #[arg(long, value_name = "TIME")]
    now: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Dialect {
    /// KAI: hierarchical GPU queues, reclaim, consolidation
    Kai,
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    let Args { input, target, schedulers, live, cycles, explain, output } = args;
    let cluster = if live || !input.is_given() {
        let read = async { live::snapshot(&target.link().await?, &schedulers).await };
        let snapshot = runtime()?.block_on(read)?;
        snapshot.say_left_out();
        snapshot.documents()
    } else {
        Vec::new()
    };
    let case = input.case_with(cluster, cycles)?;
    let outcome = played(&case, explain)?;
    say_notes(&case, &outcome);
    live::print(output, &as_json(&outcome), |wide| as_text(&case, &outcome, explain || wide))?;
    Ok(Exit::Done)
}

impl Input {
    /// Files were named.
    pub fn is_given(&self) -> bool {
        !self.files.is_empty()
    }

    pub fn objects(&self) -> anyhow::Result<Vec<Value>> {
        let mut objects = Vec::new();
        for file in &self.files {
            objects.extend(read_objects(file)?);
        }
        Ok(objects)
    }

    /// The time that is given, or that of the clock.
    pub fn now(&self) -> anyhow::Result<jiff::Timestamp> {
        self.now.as_deref().map_or_else(|| Ok(jiff::Timestamp::now()), read_time)
    }

    /// The files as a snapshot, if one of them is, with the time and the settings that are given beside it.
    pub fn snapshot(&self) -> anyhow::Result<Option<Snapshot>> {
        // Standard input can be read once; what comes from there is manifests.
        if self.files.iter().any(|file| file == Path::new("-")) {
            return Ok(None);
        }
        let objects = self.objects()?;
        let Some((setup, taken)) = Snapshot::head(&objects)? else { return Ok(None) };
        let objects = unfolded(objects, &setup, &setup.scheduler_names, taken)?;
        let Some(mut snapshot) = Snapshot::of_documents(&objects)? else { return Ok(None) };
        self.lay_over(&mut snapshot)?;
        Ok(Some(snapshot))
    }

    /// The time and the settings that are given beside a snapshot hold instead of its own.
    pub fn lay_over(&self, snapshot: &mut Snapshot) -> anyhow::Result<()> {
        if let Some(now) = &self.now {
            snapshot.taken = read_time(now)?;
        }
        if let Some(file) = &self.policy {
            snapshot.setup.config = Some(read_policy(file)?);
        }
        Ok(())
    }

    /// The manifests and settings as a case that expects nothing.
    pub fn case(&self, cycles: u32) -> anyhow::Result<Case> {
        self.case_with(Vec::new(), cycles)
    }

    /// The same with further objects in front.
    fn case_with(&self, mut objects: Vec<Value>, cycles: u32) -> anyhow::Result<Case> {
        objects.extend(self.objects()?);
        let head = Snapshot::head(&objects)?;
        let now = match (&self.now, &head) {
            (Some(text), _) => read_time(text)?,
            (None, Some((_, taken))) => *taken,
            (None, None) => jiff::Timestamp::now(),
        };
        let mut objects = match &head {
            Some((setup, _)) => unfolded(objects, setup, &setup.scheduler_names, now)?,
            None => unfolded(objects, &Setup::default(), &PLACED.map(String::from), now)?,
        };
        let setup = head.map(|(setup, _)| setup);
        if let Some(setup) = &setup {
            in_words_of_scenarios(&mut objects, setup);
        }
        let mut case = Case::of_objects("simulation", objects, Time(now.as_millisecond()), cycles);
        case.dialect = match self.dialect {
            Dialect::Kai => "kai".into(),
        };
        case.policy = match (&self.policy, &setup) {
            (Some(file), _) => read_policy(file)?,
            (None, Some(setup)) => setup_policy(setup),
            (None, None) => shard_of(&case.objects)?,
        };
        case.volcano_config = setup.and_then(|setup| setup.volcano_config).unwrap_or(Value::Null);
        check_kinds(&case.objects)?;
        Ok(case)
    }
}

/// The scheduler names whose pods scenarios place.
const PLACED: [&str; 5] =
    ["muster-scheduler", "kai-scheduler", "volcano", "t9k-scheduler", "koord-scheduler"];

/// With the pods of the workloads among them, and remarks on stderr.
fn unfolded(
    objects: Vec<Value>,
    setup: &Setup,
    ours: &[String],
    now: jiff::Timestamp,
) -> anyhow::Result<Vec<Value>> {
    let Unfolded { objects, notes } = unfold(objects, setup, ours, now)?;
    notes.iter().for_each(|note| eprintln!("note: {note}"));
    Ok(objects)
}

fn read_time(text: &str) -> anyhow::Result<jiff::Timestamp> {
    k8s_table::parse_time(text)
        .with_context(|| format!("{text:?} is no time\nhint: write one such as 2026-01-01T12:00:00Z"))
}

fn read_policy(file: &Path) -> anyhow::Result<Value> {
    let text = read_text(file)?;
    let mut documents =
        muster_scenario::manifests(&text).map_err(|error| anyhow::anyhow!("{}: {error}", file.display()))?;
    match (documents.pop(), documents.is_empty()) {
        (Some(policy), true) if policy.is_object() => Ok(policy),
        _ => bail!("{}: write one mapping of settings", file.display()),
    }
}

/// What scenarios call a scheduler; `None`: it is not ours here, though scenarios would take it for one of theirs.
fn in_scenarios(setup: &Setup, scheduler: &str) -> Option<&'static str> {
    if !setup.scheduler_names.iter().any(|ours| ours == scheduler) {
        return None;
    }
    Some(match system::dialect(setup, scheduler) {
        muster_model::Dialect::Kai | muster_model::Dialect::Kubernetes => "kai-scheduler",
        muster_model::Dialect::Volcano => "volcano",
        muster_model::Dialect::T9k => "t9k-scheduler",
        muster_model::Dialect::Koordinator => "koord-scheduler",
    })
}

/// The settings of a scheduler that goes by the names of scenarios.
pub fn setup_in_scenarios(setup: &Setup) -> Setup {
    let names: BTreeSet<&str> =
        setup.scheduler_names.iter().filter_map(|name| in_scenarios(setup, name)).collect();
    Setup {
        scheduler_names: names.into_iter().map(str::to_owned).collect(),
        grouped: Vec::new(),
        volcano: vec!["volcano".into()],
        ..setup.clone()
    }
}

/// Scenarios know one scheduler name of each system, and KAI's label and queues; a cluster whose scheduler goes by others is told in those
/// words. Who is not this scheduler's to place stays so.
pub fn in_words_of_scenarios(objects: &mut Vec<Value>, setup: &Setup) {
    let kai = muster_translate::Settings::default();
    let mut has_default_queue = false;
    for object in objects.iter_mut() {
        match object["kind"].as_str() {
            Some("Pod") => {
                let scheduler = object["spec"]["schedulerName"].as_str().unwrap_or("default-scheduler");
                match in_scenarios(setup, scheduler) {
                    Some(name) => object["spec"]["schedulerName"] = json!(name),
                    None if PLACED.contains(&scheduler) => {
                        object["spec"]["schedulerName"] = json!(format!("another-{scheduler}"));
                    }
                    None => {}
                }
                let queue = object["metadata"]["labels"].get(&setup.queue_label).cloned();
                if let Some(queue) = queue.filter(|_| *setup.queue_label != *kai.queue_label) {
                    object["metadata"]["labels"][&*kai.queue_label] = queue;
                }
            }
            Some("Queue") => {
                has_default_queue |= object["metadata"]["name"] == setup.default_queue.as_str();
            }
            _ => {}
        }
    }
    if !has_default_queue {
        let any = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
        objects.push(json!({
            "apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": setup.default_queue},
            "spec": {"resources": {"cpu": any, "memory": any, "gpu": any}},
        }));
    }
}

/// The settings of a snapshot in the form of a scenario's.
fn setup_policy(setup: &Setup) -> Value {
    match &setup.config {
        Some(config) => {
            let mut config = config.clone();
            let shard = config.get("kind").is_some_and(|kind| kind == "SchedulingShard");
            if let Some(pool) = &setup.pool {
                let at = if shard { &mut config["spec"] } else { &mut config };
                at["partitionLabelValue"] = json!(pool);
            }
            config
        }
        None => match &setup.pool {
            Some(pool) => json!({"nodePoolLabelKey": setup.node_pool_label, "partitionLabelValue": pool}),
            None => Value::Null,
        },
    }
}

/// The settings that a snapshot of a cluster brings along: its scheduling shard, if there is one.
fn shard_of(objects: &[Value]) -> anyhow::Result<Value> {
    let shards: Vec<&Value> = objects.iter().filter(|o| o["kind"] == "SchedulingShard").collect();
    match shards.as_slice() {
        [] => Ok(Value::Null),
        [only] => Ok((*only).clone()),
        several => {
            let names: Vec<&str> = several.iter().filter_map(|s| s["metadata"]["name"].as_str()).collect();
            bail!(
                "there are several SchedulingShards: {}\nhint: say which one decides with --policy FILE",
                names.join(", ")
            )
        }
    }
}

pub fn read_objects(path: &Path) -> anyhow::Result<Vec<Value>> {
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
        return objects_of(&text).map_err(|error| anyhow::anyhow!("standard input: {error}"));
    }
    let mut objects = Vec::new();
    for file in object_files(&[path.to_path_buf()])? {
        let text = read_text(&file.path)?;
        objects
            .extend(objects_of(&text).map_err(|error| anyhow::anyhow!("{}: {error}", file.path.display()))?);
    }
    Ok(objects)
}

/// Without these there is nothing to decide, and it is better to say which are missing than to place nothing in silence.
fn check_kinds(objects: &[Value]) -> anyhow::Result<()> {
    let kinds: BTreeSet<&str> = objects.iter().filter_map(|o| o["kind"].as_str()).collect();
    let needed = [
        ("Pod", "pods are what is placed; give some, or a Job or the like that makes them"),
        ("Node", "pods need nodes to be placed on"),
        ("Queue", "every gang belongs to a queue (scheduling.run.ai/v2)"),
    ];
    let missing: Vec<String> = needed
        .iter()
        .filter(|(kind, _)| !kinds.contains(kind))
        .map(|(kind, why)| format!("no {kind} among {} objects: {why}", objects.len()))
        .collect();
    if !missing.is_empty() {
        bail!(
            "{}\nhint: `muster snapshot --file now.yaml` writes all that is needed of a live cluster",
            missing.join("\n")
        );
    }
    Ok(())
}

pub fn played(case: &Case, explain: bool) -> anyhow::Result<Outcome> {
    match play(case, explain) {
        Ok(outcome) => Ok(outcome),
        Err(PlayError::Skipped(why)) => bail!(why),
    }
}

/// What is wrong with the manifests, on stderr.
pub fn say_notes(case: &Case, outcome: &Outcome) {
    for diagnostic in outcome.settings.iter().chain(&outcome.diagnostics) {
        eprintln!("note: {diagnostic}");
    }
    for group in groups_without_pods(case, outcome) {
        eprintln!("note: PodGroup {group} has no pods, so there is nothing to place for it");
    }
    for (i, cycle) in outcome.cycles.iter().enumerate() {
        for finding in &cycle.findings {
            eprintln!("warning: cycle {}: the auditor objects: {finding}", i + 1);
        }
    }
}

fn groups_without_pods(case: &Case, outcome: &Outcome) -> Vec<String> {
    let Some(moment) = outcome.moments.first() else { return Vec::new() };
    let peopled: BTreeSet<&Key> = moment.pods.values().filter_map(|p| p.gang.as_ref()).collect();
    let gang_of = |object: &Value| {
        let group = object["apiVersion"].as_str().unwrap_or_default().split_once('/').map_or("", |(g, _)| g);
        let kind = system::group_kinds().find(|k| object["kind"] == k.name() && k.resource().0 == group)?;
        // Several of Koordinator's make one gang together.
        if kind == muster_translate::Kind::KoordinatorPodGroup {
            return None;
        }
        let Key { namespace, name } = system::gang_of(kind, object);
        Some(Key::new(if namespace.is_empty() { "default".into() } else { namespace }, name))
    };
    case.objects
        .iter()
        .filter_map(gang_of)
        .filter(|gang| !peopled.contains(gang))
        .map(|gang| gang.to_string())
        .collect()
}

fn as_json(outcome: &Outcome) -> Value {
    let mut pods = Map::new();
    let mut waiting = Vec::new();
    if let Some(moment) = outcome.moments.first() {
        for (name, pod) in &moment.pods {
            let mut value = json!({"phase": pod.phase.name()});
            if let Some(node) = &pod.node {
                value["node"] = json!(&**node);
            }
            if pod.was_evicted && pod.phase != Phase::Evicted {
                value["wasEvicted"] = json!(true);
            }
            pods.insert(name.clone(), value);
        }
        waiting.extend(moment.refusals.values().map(words::refusal_json));
    }
    json!({"cycles": cycles_json(&outcome.cycles), "pods": pods, "waiting": waiting})
}

fn as_text(case: &Case, outcome: &Outcome, explain: bool) -> String {
    let mut table = Table::new(
        ["Cycle", "Action", "What", "Pod", "Node", "Remark"]
            .into_iter()
            .map(|name| Column { name: name.into(), ..Column::default() })
            .collect(),
    );
    let placed = case.objects.iter().filter(|o| o["kind"] == "Pod").filter_map(|pod| {
        let meta = &pod["metadata"];
        let key = Key::new(meta["namespace"].as_str().unwrap_or("default"), meta["name"].as_str()?);
        Some((key, pod["spec"]["nodeName"].as_str()?.to_string()))
    });
    let mut at: BTreeMap<Key, String> = placed.collect();
    for (i, cycle) in outcome.cycles.iter().enumerate() {
        let decisions = &cycle.decisions;
        let mut row = |action: &str, what: &str, pod: &Key, node: &str, remark: String| {
            let cells =
                [(i + 1).to_string(), action.into(), what.into(), pod.to_string(), node.into(), remark];
            table.rows.push(Row { cells: cells.into_iter().map(Cell::String).collect(), ..Row::default() });
        };
        for evict in &decisions.evictions {
            let node = at.get(&evict.pod).cloned().unwrap_or_default();
            let mut remark = evict.by.as_ref().map(|by| format!("for {by}")).unwrap_or_default();
            if evict.moved {
                remark.push_str(if remark.is_empty() { "moved" } else { ", moved" });
            }
            row(evict.action.name(), "evict", &evict.pod, &node, remark);
        }
        for bind in &decisions.binds {
            at.insert(bind.pod.clone(), bind.placement.node.to_string());
            row(bind.action.name(), "bind", &bind.pod, &bind.placement.node, String::new());
        }
        for promise in &decisions.pipelined {
            let remark = "once room is free".to_string();
            row(promise.action.name(), "promise", &promise.pod, &promise.placement.node, remark);
        }
    }
    let mut text = table.render(Render::default());
    if text.is_empty() {
        text.push_str("nothing is bound, evicted or promised\n");
    }
    let refusals = outcome.moments.first().map(|m| &m.refusals);
    for refusal in refusals.into_iter().flat_map(BTreeMap::values) {
        text.push_str(&format!("\n{}\n", words::headline(refusal)));
        let lines = words::lines(refusal);
        let shown = if explain { lines.len() } else { 1 };
        for line in lines.iter().take(shown) {
            text.push_str(&format!("  {line}\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_scenario::{cases_of, manifests};

    fn text(cluster: &str, cycles: u32) -> String {
        let text =
            format!("name: x\ncycles: {cycles}\nexpect: {{totals: {{evicted: 0}}}}\ncluster: {cluster}\n");
        let case = cases_of(&manifests(&text).unwrap()[0], "file").unwrap().remove(0);
        as_text(&case, &played(&case, false).unwrap(), false)
    }

    #[test]
    fn every_decision_is_a_row() {
        let cluster =
            "{nodes: [{name: a, gpu: 1}], queues: [{name: over, gpu: 0}, {name: own, gpu: 1}], gangs: [
            {name: guest, queue: over, gpu: 1, on: a}, {name: host, queue: own, gpu: 1}]}";
        let said = text(cluster, 2);
        let rows: Vec<Vec<&str>> = said.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["CYCLE", "ACTION", "WHAT", "POD", "NODE", "REMARK"]);
        assert_eq!(rows[1], ["1", "reclaim", "evict", "default/guest-0", "a", "for", "default/host"]);
        assert_eq!(rows[2][..5], ["1", "reclaim", "promise", "default/host-0", "a"]);
        assert_eq!(rows[3], ["2", "allocate", "bind", "default/host-0", "a"]);
    }

    #[test]
    fn what_is_missing_is_named() {
        let said = check_kinds(&[json!({"kind": "Pod"})]).unwrap_err().to_string();
        assert!(said.contains("no Node among 1 objects") && said.contains("no Queue"), "{said}");
        assert!(!said.contains("no Pod among"), "{said}");
    }

    #[test]
    fn the_shard_of_a_snapshot_decides() {
        let shard = |name: &str| json!({"kind": "SchedulingShard", "metadata": {"name": name}});
        assert_eq!(shard_of(&[]).unwrap(), Value::Null);
        assert_eq!(shard_of(&[shard("a")]).unwrap(), shard("a"));
        assert!(shard_of(&[shard("a"), shard("b")]).unwrap_err().to_string().contains("a, b"));
    }

    /// Pods of other systems than KAI's keep their system, and those that are not ours stay so.
    #[test]
    fn pods_stay_in_their_system() {
        let names = ["mine", "vc", "t9k-scheduler"].map(String::from).to_vec();
        let setup = Setup { scheduler_names: names, volcano: vec!["vc".into()], ..Setup::default() };
        let said = |scheduler: &str| {
            let mut objects = vec![json!({"kind": "Pod", "spec": {"schedulerName": scheduler}})];
            in_words_of_scenarios(&mut objects, &setup);
            objects[0]["spec"]["schedulerName"].as_str().unwrap().to_owned()
        };
        assert_eq!(said("mine"), "kai-scheduler");
        assert_eq!(said("vc"), "volcano");
        assert_eq!(said("t9k-scheduler"), "t9k-scheduler");
        assert_eq!(said("kai-scheduler"), "another-kai-scheduler");
        assert_eq!(said("volcano"), "another-volcano");
        assert_eq!(said("default-scheduler"), "default-scheduler");
        let told = setup_in_scenarios(&setup);
        assert_eq!(told.scheduler_names, ["kai-scheduler", "t9k-scheduler", "volcano"]);
    }

    /// `muster simulate -f now.yaml -f new-job.yaml`.
    #[test]
    fn a_new_job_is_simulated_on_a_snapshot() {
        let mut documents = crate::live::tests::of_yaml(crate::live::tests::CLUSTER).documents();
        documents[0]["settings"]["grouped"] = json!(["kai-scheduler"]);
        documents.push(json!({"apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "new", "namespace": "ml", "labels": {"kai.scheduler/queue": "team"}, "annotations": {"kai.scheduler/batch-min-member": "2"}},
            "spec": {"parallelism": 2, "completions": 2, "template": {"spec": {"schedulerName": "kai-scheduler",
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}}}));
        let input = Input { files: Vec::new(), policy: None, dialect: Dialect::Kai, now: None };
        let case = input.case_with(documents, 1).unwrap();
        let outcome = played(&case, false).unwrap();
        let moment = &outcome.moments[0];
        let group = moment.pods["ml/new-0"].gang.as_ref().unwrap();
        assert_eq!(&*group.name, "pg-new-simulated-job");
        assert!(
            moment.pods["ml/new-0"].placed() && moment.pods["ml/new-1"].placed(),
            "{:?}",
            moment.refusals
        );
        assert_eq!(moment.gangs[group].needed, 2);
        assert_eq!(&*moment.gangs[group].queue, "team");
    }

    #[test]
    fn a_volcano_job_is_simulated_in_volcanos_words() {
        let job = json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "v", "namespace": "ml"},
            "spec": {"tasks": [{"name": "w", "replicas": 2, "template": {"spec": {"containers": [{"name": "c"}]}}}]}});
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"},
            "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10"}, "conditions": [{"type": "Ready", "status": "True"}]}});
        let input = Input { files: Vec::new(), policy: None, dialect: Dialect::Kai, now: None };
        let case = input.case_with(vec![node, job], 1).unwrap();
        let outcome = played(&case, false).unwrap();
        let moment = &outcome.moments[0];
        assert!(
            moment.pods["ml/v-w-0"].placed() && moment.pods["ml/v-w-1"].placed(),
            "{:?}",
            moment.refusals
        );
        assert!(groups_without_pods(&case, &outcome).is_empty());
    }

    #[test]
    fn a_snapshot_is_simulated_with_its_own_settings() {
        let text = crate::live::tests::CLUSTER.replace("schedulerName: kai-scheduler", "schedulerName: mine");
        let mut snapshot = crate::live::tests::of_yaml(&text);
        snapshot.setup.scheduler_names = vec!["mine".into()];
        let input = Input { files: Vec::new(), policy: None, dialect: Dialect::Kai, now: None };
        let case = input.case_with(snapshot.documents(), 1).unwrap();
        assert_eq!(case.now, snapshot.now());
        let said = as_text(&case, &played(&case, false).unwrap(), false);
        assert!(said.contains("ml/wait in queue team waits: 0 pods placed, 2 waiting"), "{said}");
        assert!(
            case.objects.iter().any(|o| o["kind"] == "Queue" && o["metadata"]["name"] == "default-queue")
        );
    }
}
