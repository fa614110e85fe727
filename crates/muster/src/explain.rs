//! `muster explain`: why a gang is where it is, or why it waits and what would help; and what a queue holds.
//!
//! In: manifests, a snapshot, or the live cluster, and a name. Out: text or JSON. Nothing is changed anywhere.

use crate::Exit;
use crate::live::{self, Format, Schedulers, Seen, Snapshot, Target};
use crate::simulate::{Input, played, say_notes};
use crate::subject::{self, Owner};
use crate::system;
use crate::up::runtime;
use crate::view::{self, GangRow, QueueRow, RESOURCES};
use anyhow::bail;
use muster_kueue::explain::{Account, Scene};
use muster_model::{Bound, Key, PodState, Reason, Refusal};
use muster_scenario::{GangOutcome, Moment, Phase, PodOutcome, words};
use muster_translate::Kind;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  muster explain job/train -n ml                        on the live cluster: the gang of this Job\n  muster explain deploy/web                             also by way of others: a Deployment, a CronJob, a PodCliqueSet\n  muster explain pod/train-0                            the gang of this pod\n  muster explain queue/research                         what the queue holds, asks for and may have\n  muster explain clusterqueue/team-a                    Kueue's queues and workloads, in Kueue's words\n  muster explain workload/job-train-5f2c1 -n ml\n  muster explain -f snapshot.yaml train -o json         from a file: a snapshot, or manifests\n\nIt decides one cycle with the scheduler's own settings and says what came of the gang. Nothing is changed anywhere."
)]
pub struct Args {
    #[command(flatten)]
    input: Input,
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    schedulers: Schedulers,
    /// A gang, or KIND/NAME of a pod group, a pod, an owner of pods (job/train), a queue, or a workload, a clusterqueue or a localqueue of Kueue's
    #[arg(value_name = "KIND/NAME")]
    subject: String,
    /// Its namespace; all of them otherwise
    #[arg(short, long)]
    namespace: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

pub fn run(args: Args) -> anyhow::Result<Exit> {
    let Args { input, target, schedulers, subject, namespace, output } = args;
    let subject = subject::canonical(&subject);
    let runtime = runtime()?;
    let mut live_link = None;
    let snapshot = if input.is_given() {
        input.snapshot()?
    } else {
        let live = async {
            let link = target.link().await?;
            let mut snapshot = live::snapshot(&link, &schedulers).await?;
            live::add_kueue(&link, &mut snapshot).await?;
            snapshot.say_left_out();
            input.lay_over(&mut snapshot)?;
            anyhow::Ok((link, snapshot))
        };
        let (link, snapshot) = runtime.block_on(live)?;
        live_link = Some(link);
        Some(snapshot)
    };
    let Some(snapshot) = snapshot else {
        if kueue_kind(&subject).is_some() {
            let objects = input.objects()?;
            let mut scene = live::kueue_of(&objects, input.now()?);
            if let Some(accounts) = of_kueue(&mut scene, &subject, namespace.as_deref())? {
                print_accounts(output, &accounts)?;
                return Ok(Exit::Done);
            }
        }
        let case = input.case(1)?;
        let outcome = played(&case, true)?;
        say_notes(&case, &outcome);
        let Some(moment) = outcome.moments.first() else { bail!("nothing came of the cycle") };
        let objects: Vec<&Value> = case.objects.iter().collect();
        let gang = the_gang(&objects, moment, &subject, namespace.as_deref())?;
        live::print(output, &as_json(moment, &gang), |_| as_text(moment, &gang))?;
        return Ok(Exit::Done);
    };
    let mut scene = snapshot.kueue();
    let accounts = of_kueue(&mut scene, &subject, namespace.as_deref())?;
    // What is admitted is the scheduler's to place, and it knows more of that.
    let is_admitted = || {
        let meant = scene.workloads_meant(&subject, namespace.as_deref());
        kueue_kind(&subject).is_none() && meant.iter().all(|key| scene.is_admitted(key))
    };
    let admitted = match accounts {
        Some(accounts) if is_admitted() => Some(accounts),
        Some(accounts) => {
            print_accounts(output, &accounts)?;
            return Ok(Exit::Done);
        }
        None => None,
    };
    let mut seen = snapshot.decide();
    if let Some(name) = queue_named(&subject) {
        let gangs = view::gangs(&snapshot, &seen);
        let queues = view::queues(&seen, &gangs);
        let own = |q: &&QueueRow| system::of_name(&q.name).1 == name;
        let Some(queue) = queues.iter().find(|q| *q.name == *name).or_else(|| queues.iter().find(own)) else {
            let known: Vec<&str> = queues.iter().map(|q| &*q.name).collect();
            bail!("there is no queue {name}\nhint: the queues are {}", known.join(", "));
        };
        let notes = notes(&seen, &BTreeSet::from([format!("Queue {}", system::of_name(&queue.name).1)]));
        let mut value = queue.json();
        let own: Vec<&GangRow> = gangs.iter().filter(|g| g.queue == queue.name).collect();
        value["gangsHere"] = own.iter().map(|g| g.json()).collect();
        value["notes"] = json!(notes);
        live::print(output, &value, |_| queue_text(queue, &own, &notes))?;
        return Ok(Exit::Done);
    }
    let objects: Vec<&Value> = [Kind::Pod, Kind::PodGroup].iter().flat_map(|k| snapshot.of(*k)).collect();
    let mut moment = moment(&snapshot, &seen);
    if let Some(said) = outsider(&snapshot, &moment, &subject, namespace.as_deref()) {
        live::print(output, &json!({"gang": null, "message": said}), |_| format!("{said}\n"))?;
        return Ok(Exit::Done);
    }
    let gangs = match the_gangs(&objects, &moment, &subject, namespace.as_deref()) {
        Ok(gangs) => gangs,
        // Its pods are not here yet, or are somebody else's.
        Err(error) => match &admitted {
            Some(accounts) => {
                print_accounts(output, accounts)?;
                return Ok(Exit::Done);
            }
            None => {
                let found = match &live_link {
                    Some(link) => runtime.block_on(subject::find(link, &subject, namespace.as_deref()))?,
                    None => Owner::UnknownKind,
                };
                match by_owner(&snapshot, &moment, found) {
                    Some(Ok(gangs)) => gangs,
                    Some(Err(said)) => {
                        let value = json!({"gang": null, "message": said});
                        live::print(output, &value, |_| format!("{said}\n"))?;
                        return Ok(Exit::Done);
                    }
                    None => return Err(error),
                }
            }
        },
    };
    let mut about: BTreeSet<String> = BTreeSet::new();
    let mut held: BTreeMap<&Key, String> = BTreeMap::new();
    for gang in &gangs {
        if let Some(mut refusal) = seen.explain(gang) {
            held.extend(held_back(&snapshot, &seen, &mut refusal).map(|said| (gang, said)));
            moment.refusals.insert(gang.clone(), refusal);
        }
        about.extend(members(&moment, gang).iter().map(|(name, _)| format!("Pod {name}")));
        about.insert(format!("PodGroup {gang}"));
    }
    let mut notes = notes(&seen, &about);
    let heads = admitted.iter().flatten().filter_map(|account| account.text.lines().next());
    notes.extend(heads.map(str::to_owned));
    if !snapshot.unanswered.is_empty() {
        notes.push(format!(
            "nobody answers to {} at the moment, so nothing is bound: see `muster doctor`",
            snapshot.unanswered.join(", ")
        ));
    }
    let with_gates = |gang: &Key| {
        let mut value = as_json(&moment, gang);
        if let Some(said) = held.get(gang) {
            value["heldBack"] = json!(said);
        }
        value
    };
    let mut values: Vec<Value> = gangs.iter().map(with_gates).collect();
    values.iter_mut().for_each(|value| value["notes"] = json!(notes));
    let value = if values.len() == 1 { values.remove(0) } else { json!({"items": values}) };
    live::print(output, &value, |_| {
        let notes = notes.iter().map(|note| format!("Note: {note}\n"));
        let said = gangs.iter().map(|gang| {
            let held = held.get(gang).map(|held| format!("  {held}\n")).unwrap_or_default();
            as_text(&moment, gang) + &held
        });
        said.chain(notes).collect()
    })?;
    Ok(Exit::Done)
}

/// The gangs of an owner that was found in the cluster, or why it has none; `None`: it was not found.
fn by_owner(snapshot: &Snapshot, moment: &Moment, found: Owner) -> Option<Result<Vec<Key>, String>> {
    let Owner::There { title, uids, why } = found else { return None };
    let mut gangs: BTreeSet<Key> = BTreeSet::new();
    let mut others: Vec<&Value> = Vec::new();
    for pod in snapshot.of(Kind::Pod).filter(|pod| subject::is_owned_by(pod, &uids)) {
        let known = moment.pods.get(&view::key_of(pod).to_string()).and_then(|pod| pod.gang.clone());
        match known.filter(|gang| moment.gangs.contains_key(gang)) {
            Some(gang) => drop(gangs.insert(gang)),
            None => others.push(pod),
        }
    }
    for group in snapshot.of(Kind::PodGroup).filter(|group| subject::is_owned_by(group, &uids)) {
        gangs.extend(Some(view::key_of(group)).filter(|key| moment.gangs.contains_key(key)));
    }
    if !gangs.is_empty() {
        return Some(Ok(gangs.into_iter().take(MOST_NAMED).collect()));
    }
    Some(Err(match others.first() {
        Some(pod) => {
            format!(
                "{title} has {} pods, none of them in a gang:\n{}",
                others.len(),
                of_no_gang(snapshot, pod)
            )
        }
        None => format!("{title} exists, but has no pods: {why}"),
    }))
}

/// What to say of pods that scheduling gates hold back. That these are not there yet is no reason any more where they would be enough.
fn held_back(snapshot: &Snapshot, seen: &Seen, refusal: &mut Refusal) -> Option<String> {
    let gated: BTreeSet<&Key> = seen
        .cluster
        .pods
        .iter()
        .filter(|pod| pod.state == PodState::Gated && pod.gang.as_ref() == Some(&refusal.gang))
        .map(|pod| &pod.key)
        .collect();
    if gated.is_empty() {
        return None;
    }
    let mut gates: BTreeSet<&str> = BTreeSet::new();
    for pod in snapshot.of(Kind::Pod).filter(|pod| gated.contains(&view::key_of(pod))) {
        let own = pod["spec"]["schedulingGates"].as_array();
        gates.extend(own.into_iter().flatten().filter_map(|gate| gate["name"].as_str()));
    }
    let n = u32::try_from(gated.len()).unwrap_or(u32::MAX);
    refusal.reasons.retain(
        |reason| !matches!(reason, Reason::NotReady { have, need, .. } if have.saturating_add(n) >= *need),
    );
    let held = match n {
        1 => "1 of its pods is held back by scheduling gates".to_owned(),
        n => format!("{n} of its pods are held back by scheduling gates"),
    };
    let who: Vec<String> =
        gates.iter().map(|gate| format!("{gate} ({})", crate::doctor::lifter(gate).0)).collect();
    Some(if who.is_empty() { held } else { format!("{held}: {}", who.join(", ")) })
}

/// A kind of Kueue's that a subject names, and the name after it.
fn kueue_kind(subject: &str) -> Option<(OfKueue, &str)> {
    let (kind, name) = subject.split_once('/')?;
    Some(match kind.to_lowercase().as_str() {
        "workload" | "workloads" | "wl" | "kwl" => (OfKueue::Workload, name),
        "clusterqueue" | "clusterqueues" | "cq" => (OfKueue::ClusterQueue, name),
        "localqueue" | "localqueues" | "lq" => (OfKueue::LocalQueue, name),
        _ => return None,
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum OfKueue {
    Workload,
    ClusterQueue,
    LocalQueue,
}

/// What Kueue has to say of a subject; `None`: it is nothing of Kueue's.
fn of_kueue(
    scene: &mut Scene,
    subject: &str,
    namespace: Option<&str>,
) -> anyhow::Result<Option<Vec<Account>>> {
    match kueue_kind(subject) {
        Some((OfKueue::ClusterQueue, name)) => match scene.cluster_queue(name) {
            Some(account) => Ok(Some(vec![account])),
            None => bail!(
                "there is no ClusterQueue {name}\nhint: {}",
                known(&scene.cluster_queues(), "ClusterQueues")
            ),
        },
        Some((OfKueue::LocalQueue, name)) => {
            let meant = scene.local_queues_meant(name, namespace);
            if meant.is_empty() {
                let names: Vec<String> = scene.local_queues().iter().map(ToString::to_string).collect();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                bail!("there is no LocalQueue {name}\nhint: {}", known(&names, "LocalQueues"));
            }
            Ok(Some(meant.iter().filter_map(|key| scene.local_queue(key)).collect()))
        }
        _ => {
            let mut meant = scene.workloads_meant(subject, namespace);
            meant.truncate(MOST_NAMED);
            let accounts: Vec<Account> = meant.iter().filter_map(|key| scene.workload(key)).collect();
            Ok(Some(accounts).filter(|accounts| !accounts.is_empty()))
        }
    }
}

fn known(names: &[&str], what: &str) -> String {
    match names {
        [] => format!("there are no {what} at all"),
        some => {
            let named: Vec<&str> = some.iter().take(MOST_NAMED).copied().collect();
            format!("the {what} are {}", named.join(", "))
        }
    }
}

fn print_accounts(output: Format, accounts: &[Account]) -> anyhow::Result<()> {
    let value = match accounts {
        [one] => one.value.clone(),
        many => json!({"items": many.iter().map(|account| account.value.clone()).collect::<Vec<_>>()}),
    };
    live::print(output, &value, |_| accounts.iter().map(|account| account.text.as_str()).collect())
}

/// The gangs of one owner are all explained; names in several namespaces mean different things.
fn the_gangs(
    objects: &[&Value],
    moment: &Moment,
    subject: &str,
    namespace: Option<&str>,
) -> anyhow::Result<Vec<Key>> {
    let gangs = gangs_meant(objects, moment, subject, namespace);
    let spaces: BTreeSet<_> = gangs.iter().map(|key| &key.namespace).collect();
    if gangs.len() > 1 && gangs.len() <= MOST_NAMED && spaces.len() == 1 {
        return Ok(gangs);
    }
    Ok(vec![the_gang(objects, moment, subject, namespace)?])
}

/// The only gang that the name means.
fn the_gang(
    objects: &[&Value],
    moment: &Moment,
    subject: &str,
    namespace: Option<&str>,
) -> anyhow::Result<Key> {
    let gangs = gangs_meant(objects, moment, subject, namespace);
    match gangs.as_slice() {
        [gang] => Ok(gang.clone()),
        [] => {
            let mut known: Vec<String> = moment.gangs.keys().map(Key::to_string).collect();
            if known.is_empty() {
                bail!("no gang, pod or owner is called {subject}\nhint: there are no gangs at all");
            }
            if known.len() > MOST_NAMED {
                known.truncate(MOST_NAMED);
                known.push("and more: see `muster get gangs -A`".into());
            }
            bail!("no gang, pod or owner is called {subject}\nhint: the gangs are {}", known.join(", "));
        }
        several => {
            let names: Vec<String> = several.iter().map(Key::to_string).collect();
            let spaces: BTreeSet<_> = several.iter().map(|key| &key.namespace).collect();
            let how =
                if spaces.len() > 1 { "which namespace with -n" } else { "which one with podgroup/NAME" };
            bail!("{subject} may mean {}\nhint: say {how}", names.join(" or "));
        }
    }
}

/// Longer lists help nobody.
const MOST_NAMED: usize = 20;

fn queue_named(subject: &str) -> Option<&str> {
    let (kind, name) = subject.split_once('/')?;
    matches!(kind.to_lowercase().as_str(), "queue" | "queues" | "q").then_some(name)
}

/// What is wrong with objects, as far as it concerns some of them.
fn notes(seen: &Seen, about: &BTreeSet<String>) -> Vec<String> {
    seen.diagnostics.iter().filter(|d| about.contains(&d.object)).map(ToString::to_string).collect()
}

/// A pod that is in no gang: somebody else's, or not grouped yet.
fn outsider(snapshot: &Snapshot, moment: &Moment, subject: &str, namespace: Option<&str>) -> Option<String> {
    let name = match subject.split_once('/') {
        Some(("pod", name)) => name,
        Some(_) => return None,
        None if moment.gangs.keys().any(|gang| *gang.name == *subject) => return None,
        None => subject,
    };
    let mut pods = snapshot.of(Kind::Pod).filter(|pod| {
        let key = view::key_of(pod);
        *key.name == *name && namespace.is_none_or(|n| *key.namespace == *n)
    });
    let (pod, None) = (pods.next()?, pods.next()) else { return None };
    let key = view::key_of(pod);
    let known = moment.pods.get(&key.to_string());
    if known.is_some_and(|pod| pod.gang.as_ref().is_some_and(|gang| moment.gangs.contains_key(gang))) {
        return None;
    }
    Some(of_no_gang(snapshot, pod))
}

/// Why a pod is in no gang.
fn of_no_gang(snapshot: &Snapshot, pod: &Value) -> String {
    let key = view::key_of(pod);
    let phase = pod["status"]["phase"].as_str().unwrap_or("Pending");
    if matches!(phase, "Succeeded" | "Failed") {
        return format!("{key} is over: {phase}");
    }
    let scheduler = pod["spec"]["schedulerName"].as_str().unwrap_or("default-scheduler");
    if !snapshot.setup.scheduler_names.iter().any(|ours| ours == scheduler) {
        let at = match pod["spec"]["nodeName"].as_str() {
            Some(node) => format!("it is on {node}"),
            None => "it has no node".into(),
        };
        return format!(
            "{key} is left to the scheduler {scheduler}; {at}\n  Muster answers to {}: set spec.schedulerName to one of them in whatever makes the pod",
            snapshot.setup.scheduler_names.join(", ")
        );
    }
    if let Some(named) = system::group_of_pod(pod, system::dialect(&snapshot.setup, scheduler)) {
        return format!(
            "{key} waits: the {} {} that its {} names does not exist in {}, or is another node pool's\n  create it, or take the name away",
            named.kind, named.name, named.field, key.namespace
        );
    }
    format!(
        "{key} waits: it is in no pod group yet, and pods of {scheduler} are placed as groups\n  the grouper makes one within a moment; if not, see `muster doctor`: does the component grouper run?"
    )
}

/// The live cluster in the form that a played case has.
fn moment(snapshot: &Snapshot, seen: &Seen) -> Moment {
    let mut moment = Moment { refusals: seen.refusals.clone(), ..Moment::default() };
    let decisions = &seen.decisions;
    let bound: BTreeMap<&Key, _> = decisions.binds.iter().map(|b| (&b.pod, &b.placement.node)).collect();
    let promised: BTreeMap<&Key, _> =
        decisions.pipelined.iter().map(|p| (&p.pod, &p.placement.node)).collect();
    let evicted: BTreeSet<&Key> = decisions.evictions.iter().map(|e| &e.pod).collect();
    for pod in &seen.cluster.pods {
        let (phase, node) = if let Some(node) = promised.get(&pod.key) {
            (Phase::Pipelined, Some((*node).clone()))
        } else if evicted.contains(&pod.key) {
            (Phase::Evicted, pod.node.clone())
        } else if let Some(node) = bound.get(&pod.key) {
            (Phase::Bound, Some((*node).clone()))
        } else {
            let phase = match pod.state {
                PodState::Gated | PodState::Pending => Phase::Pending,
                PodState::Binding => Phase::Bound,
                PodState::Bound | PodState::Running => Phase::Running,
                PodState::Releasing | PodState::Stuck => Phase::Evicted,
                PodState::Succeeded => Phase::Succeeded,
                PodState::Failed => Phase::Failed,
            };
            (phase, pod.node.clone())
        };
        let outcome = PodOutcome {
            phase,
            node,
            was_evicted: false,
            already_terminating: false,
            gang: pod.gang.clone(),
            group: pod.group.clone(),
            gpu_groups: pod.gpu_groups.clone(),
            zones: pod.zones.clone(),
            gpus_required: 0,
            gpus_accepted: 0,
            shape: pod.shape.clone(),
            leaving: None,
            stuck: pod.state == PodState::Stuck,
        };
        moment.pods.insert(pod.key.to_string(), outcome);
    }
    for row in view::gangs(snapshot, seen) {
        moment.gangs.insert(row.key, GangOutcome { queue: row.queue, needed: row.needed });
    }
    moment
}

fn queue_text(queue: &QueueRow, gangs: &[&GangRow], notes: &[String]) -> String {
    let mut text = match (&queue.broken, &queue.parent) {
        (Some(why), _) => format!("queue {} takes no work: {why}\n", queue.name),
        (None, Some(parent)) => {
            format!("queue {}, below {parent}, priority {}\n", queue.name, queue.priority)
        }
        (None, None) => format!("queue {}, priority {}\n", queue.name, queue.priority),
    };
    for (r, resource) in RESOURCES.iter().enumerate().rev() {
        let share = &queue.shares[r];
        let bound = |bound: Bound| match bound {
            Bound::At(n) => words::amount(resource, n.into()),
            Bound::Unlimited => "unlimited".into(),
        };
        text.push_str(&format!(
            "  {}: {} in use, {} with what waits; quota {}, fair share {}, limit {}\n",
            resource,
            words::amount(resource, queue.allocated[r]),
            words::amount(resource, queue.requested[r]),
            bound(share.quota),
            words::amount(resource, queue.fair[r]),
            bound(share.limit),
        ));
    }
    text.push_str(&format!("  gangs: {}, of which {} wait\n", queue.gangs, queue.waiting));
    for gang in gangs.iter().filter(|g| g.waits()).take(MOST_NAMED) {
        let why = gang.reason.as_ref().map_or_else(|| format!("{:?}", gang.state), |(_, why)| why.clone());
        text.push_str(&format!("    {}: {why}\n", gang.key));
    }
    for note in notes {
        text.push_str(&format!("Note: {note}\n"));
    }
    text
}

/// The gangs that a name may mean.
fn gangs_meant(objects: &[&Value], moment: &Moment, subject: &str, namespace: Option<&str>) -> Vec<Key> {
    let (kind, name) = subject.split_once('/').unwrap_or(("", subject));
    let there = |key: &Key| namespace.is_none_or(|n| *key.namespace == *n);
    let mut found: Vec<Key> = Vec::new();
    if matches!(kind, "" | "gang" | "podgroup") {
        // Groups of other systems than KAI's are known by their system too.
        let bare = |key: &Key| *key.name == *name || key.name.rsplit('/').next() == Some(name);
        found.extend(moment.gangs.keys().filter(|k| bare(k) && there(k)).cloned());
    }
    if found.is_empty() {
        found.extend(moment.gangs.keys().filter(|k| *k.name == *subject && there(k)).cloned());
    }
    // As they are printed: namespace/name.
    if found.is_empty()
        && let Some(meant) = subject::as_key(subject)
    {
        let is_meant = |key: &Key| {
            key.namespace == meant.namespace
                && (key.name == meant.name || system::of_name(&key.name).1 == &*meant.name)
        };
        found.extend(moment.gangs.keys().filter(|k| is_meant(k) && there(k)).cloned());
        let pod = moment.pods.get(&meant.to_string()).and_then(|pod| pod.gang.clone());
        found.extend(pod.filter(|gang| found.is_empty() && there(gang)));
    }
    if found.is_empty() && matches!(kind, "" | "pod") {
        found.extend(
            objects.iter().filter(|o| o["kind"] == "Pod" && o["metadata"]["name"] == name).filter_map(
                |pod| {
                    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or("default");
                    let pod = moment.pods.get(&format!("{namespace}/{name}"))?;
                    pod.gang.clone().filter(there)
                },
            ),
        );
    }
    if found.is_empty() {
        let singular = kind.strip_suffix('s').unwrap_or(kind);
        let owns = |owner: &Value| {
            let own = owner["kind"].as_str().unwrap_or_default().to_lowercase();
            owner["name"] == name && (kind.is_empty() || own == kind || own == singular)
        };
        let is_owned = |object: &Value| {
            let owners = object["metadata"]["ownerReferences"].as_array();
            owners.is_some_and(|o| o.iter().any(owns)) || subject::is_made_by(object, kind, name)
        };
        for object in objects {
            let owned = is_owned(object);
            let meta = &object["metadata"];
            let namespace = meta["namespace"].as_str().unwrap_or("default");
            let (true, Some(own)) = (owned, meta["name"].as_str()) else { continue };
            let key = Key::new(namespace, own);
            let gang = match object["kind"].as_str() {
                Some("Pod") => moment.pods.get(&key.to_string()).and_then(|p| p.gang.clone()),
                Some("PodGroup") => moment.gangs.contains_key(&key).then_some(key),
                _ => None,
            };
            found.extend(gang.filter(there));
        }
    }
    found.sort();
    found.dedup();
    found
}

fn members<'a>(moment: &'a Moment, gang: &Key) -> Vec<(&'a String, &'a PodOutcome)> {
    moment.pods.iter().filter(|(_, pod)| pod.gang.as_ref() == Some(gang)).collect()
}

fn as_text(moment: &Moment, gang: &Key) -> String {
    let pods = members(moment, gang);
    let mut text = String::new();
    if let Some(refusal) = moment.refusals.get(gang) {
        text.push_str(&format!("{}\n", words::headline(refusal)));
        for reason in &refusal.reasons {
            text.push_str(&format!("  {}\n", words::reason(reason)));
        }
        if !refusal.remedies.is_empty() {
            text.push_str("What would help:\n");
            for remedy in &refusal.remedies {
                text.push_str(&format!("  {}\n", words::remedy(remedy)));
            }
        }
    } else if pods.is_empty() {
        text.push_str(&format!("{gang} has no pods, so there is nothing to place\n"));
    } else {
        text.push_str(&format!("{gang} is placed\n"));
    }
    for (phase, one, many) in [
        (Phase::Running, "runs on", "run on"),
        (Phase::Bound, "is to be bound to", "are to be bound to"),
        (
            Phase::Pipelined,
            "is promised room that is being freed on",
            "are promised room that is being freed on",
        ),
        (Phase::Evicted, "is leaving", "are leaving"),
    ] {
        let mut nodes: BTreeMap<&str, u32> = BTreeMap::new();
        for (_, pod) in pods.iter().filter(|(_, pod)| pod.phase == phase) {
            *nodes.entry(pod.node.as_deref().unwrap_or("an unknown node")).or_default() += 1;
        }
        for (node, n) in nodes {
            let said = if n == 1 { format!("1 pod {one}") } else { format!("{n} pods {many}") };
            text.push_str(&format!("  {said} {node}\n"));
        }
    }
    text
}

fn as_json(moment: &Moment, gang: &Key) -> Value {
    let placed: Vec<Value> = members(moment, gang)
        .into_iter()
        .map(|(name, pod)| json!({"pod": name, "phase": pod.phase.name(), "node": pod.node.as_deref()}))
        .collect();
    let mut value = match moment.refusals.get(gang) {
        Some(refusal) => words::refusal_json(refusal),
        None => json!({"gang": gang.to_string(), "reasons": [], "remedies": []}),
    };
    value["pods"] = json!(placed);
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::tests::{CLUSTER as LIVE, of_yaml};
    use muster_model::Time;
    use muster_scenario::{Case, DEFAULT_NOW, cases_of, manifests};

    /// A cluster in short hand, after one cycle.
    fn moment(cluster: &str) -> (Case, Moment) {
        let text = format!("name: x\nexpect: {{totals: {{evicted: 0}}}}\ncluster: {cluster}\n");
        let case = cases_of(&manifests(&text).unwrap()[0], "file").unwrap().remove(0);
        let Time(now) = case.now;
        assert_eq!(now, DEFAULT_NOW.0);
        let moment = played(&case, true).unwrap().moments.remove(0);
        (case, moment)
    }

    const CLUSTER: &str = "{nodes: [{name: a, gpu: 8}], queues: [{name: q}], gangs: [
        {name: here, pods: 2, gpu: 1, on: a}, {name: next, gpu: 1}, {name: next, namespace: other, gpu: 1}]}";

    #[test]
    fn a_placed_gang_says_where() {
        let (_, moment) = moment(CLUSTER);
        assert_eq!(
            as_text(&moment, &Key::new("default", "here")),
            "default/here is placed\n  2 pods run on a\n"
        );
        assert_eq!(
            as_text(&moment, &Key::new("default", "next")),
            "default/next is placed\n  1 pod is to be bound to a\n"
        );
    }

    #[test]
    fn a_name_may_mean_a_gang_a_pod_or_an_owner() {
        let (mut case, moment) = moment(CLUSTER);
        for pod in case.objects.iter_mut().filter(|o| o["metadata"]["name"] == "here-0") {
            pod["metadata"]["ownerReferences"] = json!([{"kind": "Job", "name": "big"}]);
        }
        let meant = |subject: &str, namespace: Option<&str>| -> Vec<String> {
            let objects: Vec<&Value> = case.objects.iter().collect();
            let subject = subject::canonical(subject);
            gangs_meant(&objects, &moment, &subject, namespace).iter().map(Key::to_string).collect()
        };
        assert_eq!(meant("default/here", None), ["default/here"]);
        assert_eq!(meant("default/here-1", None), ["default/here"]);
        assert_eq!(meant("podgroup.scheduling.run.ai/here", None), ["default/here"]);
        assert_eq!(meant("job.batch/big", None), ["default/here"]);
        assert_eq!(meant("po/here-1", None), ["default/here"]);
        assert_eq!(meant("here", None), ["default/here"]);
        assert_eq!(meant("podgroup/here", None), ["default/here"]);
        assert_eq!(meant("pod/here-1", None), ["default/here"]);
        assert_eq!(meant("jobs/big", None), ["default/here"]);
        assert_eq!(meant("next", None), ["default/next", "other/next"]);
        assert_eq!(meant("next", Some("other")), ["other/next"]);
        assert!(meant("job/here", None).is_empty());
    }

    #[test]
    fn a_live_gang_says_why_it_waits() {
        let snapshot = of_yaml(LIVE);
        let mut seen = snapshot.decide();
        let mut moment = super::moment(&snapshot, &seen);
        let objects: Vec<&Value> = snapshot.of(Kind::Pod).collect();
        let gang = the_gang(&objects, &moment, "job/big", None).unwrap();
        assert_eq!(gang, Key::new("ml", "wait"));
        moment.refusals.extend(seen.explain(&gang).map(|refusal| (gang.clone(), refusal)));
        let said = as_text(&moment, &gang);
        assert!(
            said.starts_with("ml/wait in queue team waits: 0 pods placed, 2 waiting, 2 needed"),
            "{said}"
        );
        assert!(said.contains("limit of 4 GPUs: 2 in use, 4 asked for"), "{said}");
        assert!(said.contains("What would help:"), "{said}");
        let placed = as_text(&moment, &Key::new("ml", "run"));
        assert_eq!(placed, "ml/run is placed\n  1 pod runs on a\n");
    }

    /// Kueue's objects in a snapshot: the queue, and a Job that waits in it.
    #[test]
    fn a_job_in_a_queue_of_kueues_says_why_it_waits() {
        let kueue = "apiVersion: kueue.x-k8s.io/v1beta2";
        let text = format!(
            "{LIVE}---\n{{apiVersion: v1, kind: Namespace, metadata: {{name: ml}}}}\n---\n{kueue}\nkind: ResourceFlavor\nmetadata: {{name: f}}\n\
             ---\n{kueue}\nkind: ClusterQueue\nmetadata: {{name: cq}}\nspec: {{namespaceSelector: {{}}, resourceGroups: [{{coveredResources: [cpu], \
             flavors: [{{name: f, resources: [{{name: cpu, nominalQuota: 1}}]}}]}}]}}\n---\n{kueue}\nkind: LocalQueue\n\
             metadata: {{name: lq, namespace: ml}}\nspec: {{clusterQueue: cq}}\n---\n{kueue}\nkind: Workload\n\
             metadata: {{name: job-x, namespace: ml, uid: u, ownerReferences: [{{kind: Job, name: x, uid: j}}]}}\nspec: {{queueName: lq, podSets: [{{name: main, count: 2, \
             template: {{spec: {{containers: [{{name: c, resources: {{requests: {{cpu: 1}}}}}}]}}}}}}]}}\n"
        );
        let snapshot = of_yaml(&text);
        let mut scene = snapshot.kueue();
        let mut said = |subject: &str| {
            let accounts = of_kueue(&mut scene, subject, None).unwrap();
            accounts.map(|accounts| accounts[0].text.clone())
        };
        for subject in ["job/x", "workload/job-x"] {
            let said = said(subject).unwrap();
            assert!(
                said.starts_with(
                    "Workload ml/job-x of Job x waits in LocalQueue ml/lq of ClusterQueue cq: number 1 of 1"
                ),
                "{said}"
            );
            assert!(said.contains("ExceedsMaxQuota: "), "{said}");
        }
        assert!(
            said("cq/cq").unwrap().starts_with("ClusterQueue cq, BestEffortFIFO: Can admit new workloads")
        );
        assert!(said("lq/lq").unwrap().starts_with("LocalQueue ml/lq of ClusterQueue cq"));
        assert_eq!(said("job/big"), None, "that is the scheduler's");
        let error = of_kueue(&mut scene, "cq/other", None).unwrap_err().to_string();
        assert_eq!(error, "there is no ClusterQueue other\nhint: the ClusterQueues are cq");
        // It is kept in a file.
        let again = Snapshot::of_documents(&snapshot.documents()).unwrap().unwrap();
        assert_eq!(again.kueue, snapshot.kueue);
    }

    #[test]
    fn a_queue_says_what_it_may_have() {
        let snapshot = of_yaml(LIVE);
        let seen = snapshot.decide();
        let gangs = view::gangs(&snapshot, &seen);
        let queues = view::queues(&seen, &gangs);
        let team = queues.iter().find(|q| &*q.name == "team").unwrap();
        let said = queue_text(team, &gangs.iter().filter(|g| &*g.queue == "team").collect::<Vec<_>>(), &[]);
        assert!(said.starts_with("queue team, below top, priority"), "{said}");
        assert!(
            said.contains(
                "gpu: 2 GPUs in use, 6 GPUs with what waits; quota 3 GPUs, fair share 4 GPUs, limit 4 GPUs"
            ),
            "{said}"
        );
        assert!(said.contains("    ml/wait: queue team would exceed its limit"), "{said}");
    }

    #[track_caller]
    fn check_outsider(pod: &str, expected: &str) {
        let snapshot = of_yaml(&format!("{LIVE}---\n{pod}"));
        let seen = snapshot.decide();
        let said = outsider(&snapshot, &super::moment(&snapshot, &seen), "pod/x", None).unwrap();
        assert!(said.contains(expected), "{said}");
    }

    #[test]
    fn a_pod_in_no_gang_says_whose_it_is() {
        let pod = |meta: &str, spec: &str, phase: &str| {
            format!(
                "{{apiVersion: v1, kind: Pod, metadata: {{name: x, namespace: d{meta}}}, spec: {{{spec}}}, status: {{phase: {phase}}}}}\n"
            )
        };
        check_outsider(
            &pod("", "nodeName: a", "Running"),
            "left to the scheduler default-scheduler; it is on a",
        );
        check_outsider(&pod("", "schedulerName: kai-scheduler", "Succeeded"), "d/x is over: Succeeded");
        let named = ", annotations: {pod-group-name: gone}";
        check_outsider(
            &pod(named, "schedulerName: kai-scheduler", "Pending"),
            "the PodGroup (scheduling.run.ai) gone that its pod-group-name names does not exist in d",
        );
    }

    #[test]
    fn a_pod_of_another_system_names_its_missing_group() {
        let mut snapshot = of_yaml(
            "{apiVersion: v1, kind: Pod, metadata: {name: x, namespace: d, annotations: {scheduling.k8s.io/group-name: gone}}, spec: {schedulerName: volcano}, status: {phase: Pending}}\n",
        );
        snapshot.setup.scheduler_names = vec!["volcano".into()];
        let seen = snapshot.decide();
        let said = outsider(&snapshot, &super::moment(&snapshot, &seen), "pod/x", None).unwrap();
        assert!(
            said.contains(
                "the PodGroup (scheduling.volcano.sh) gone that its scheduling.k8s.io/group-name names"
            ),
            "{said}"
        );
    }

    #[test]
    fn gates_are_named_and_no_pods_are_missed_that_they_hold() {
        let gated = LIVE.replace(
            "{schedulerName: kai-scheduler, containers: [{name: c, resources: {requests: {nvidia.com/gpu: '2'}, limits: {nvidia.com/gpu: '2'}}}]}",
            "{schedulerName: kai-scheduler, schedulingGates: [{name: kueue.x-k8s.io/admission}], containers: [{name: c}]}",
        );
        let snapshot = of_yaml(&gated);
        let mut seen = snapshot.decide();
        let mut refusal = seen.explain(&Key::new("ml", "wait")).unwrap();
        assert!(
            refusal.reasons.iter().any(|reason| matches!(reason, Reason::NotReady { .. })),
            "{refusal:?}"
        );
        let said = held_back(&snapshot, &seen, &mut refusal).unwrap();
        assert!(
            said.starts_with(
                "2 of its pods are held back by scheduling gates: kueue.x-k8s.io/admission (Kueue lifts it"
            ),
            "{said}"
        );
        assert!(
            !refusal.reasons.iter().any(|reason| matches!(reason, Reason::NotReady { .. })),
            "{refusal:?}"
        );
    }

    #[test]
    fn an_owner_without_pods_says_why() {
        let snapshot =
            of_yaml(&LIVE.replace("{kind: Job, name: big}", "{kind: ReplicaSet, name: web-1, uid: r}"));
        let seen = snapshot.decide();
        let moment = super::moment(&snapshot, &seen);
        let there = |uid: &str| Owner::There {
            title: "deployment ml/web".into(),
            uids: BTreeSet::from([uid.to_owned()]),
            why: "it is scaled to 0: spec.replicas".into(),
        };
        assert_eq!(by_owner(&snapshot, &moment, there("r")), Some(Ok(vec![Key::new("ml", "wait")])));
        let said = by_owner(&snapshot, &moment, there("x")).unwrap().unwrap_err();
        assert_eq!(said, "deployment ml/web exists, but has no pods: it is scaled to 0: spec.replicas");
        assert_eq!(by_owner(&snapshot, &moment, Owner::Absent), None);
    }
}
