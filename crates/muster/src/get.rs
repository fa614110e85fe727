//! `muster get gangs|queues|nodes`: what there is, in a row each.
//!
//! In: a live cluster, or a file. Out: a table, or the same as JSON or YAML.

use crate::Exit;
use crate::live::{self, Format, Namespaces, Schedulers, Seen, Snapshot, Target};
use crate::simulate::read_objects;
use crate::up::{interrupted, runtime};
use crate::view::{self, GPUS, GangRow, NodeRow, QueueRow, RESOURCES};
use anyhow::Context;
use clap::ValueEnum;
use jiff::Timestamp;
use k8s_table::{Cell, Column, Render, Row, Table};
use muster_model::{Bound, Resource, Time};
use muster_scenario::words;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  muster get gangs -A                  every gang: placed/needed/all pods, its state and why it waits\n  muster get queues                    the tree of queues: in use, requested, quota, fair share, limit\n  muster get nodes -o wide             GPUs in use ([##+.]: two whole, one shared, one free), CPU, memory, topology\n  muster get gangs -n ml --watch\n  muster get gangs -f now.yaml -A      of a snapshot\n\n`muster explain gang/NAME` says more about one gang."
)]
pub struct Args {
    /// What to show
    #[arg(value_enum)]
    what: What,
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    schedulers: Schedulers,
    #[command(flatten)]
    namespaces: Namespaces,
    /// A snapshot instead of the live cluster
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    file: Option<PathBuf>,
    /// Look again every two seconds, until Ctrl-C
    #[arg(short, long, conflicts_with = "file")]
    watch: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    #[value(alias = "gang", alias = "podgroups", alias = "podgroup", alias = "pg")]
    Gangs,
    #[value(alias = "queue", alias = "q")]
    Queues,
    #[value(alias = "node", alias = "no")]
    Nodes,
}

/// How often `--watch` looks.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

pub fn run(args: Args) -> anyhow::Result<Exit> {
    if let Some(file) = &args.file {
        let snapshot = Snapshot::of_documents(&read_objects(file)?)?.with_context(|| {
            format!("{} is no snapshot\nhint: `muster snapshot --file {0}` writes one", file.display())
        })?;
        let only = args.namespaces.namespace.clone();
        show(&args, &snapshot, only.as_deref())?;
        return Ok(Exit::Done);
    }
    runtime()?.block_on(async {
        let link = args.target.link().await?;
        let look = async {
            for n_look in 0_u64.. {
                let snapshot = live::snapshot(&link, &args.schedulers).await?;
                if n_look == 0 {
                    snapshot.say_left_out();
                }
                show(&args, &snapshot, args.namespaces.only(&link).as_deref())?;
                if !args.watch {
                    return Ok(Exit::Done);
                }
                tokio::time::sleep(LOOK_AGAIN).await;
                println!();
            }
            Ok(Exit::Done)
        };
        tokio::select! { ended = look => ended, () = interrupted() => Ok(Exit::Done) }
    })
}

fn show(args: &Args, snapshot: &Snapshot, only: Option<&str>) -> anyhow::Result<()> {
    let seen = snapshot.decide();
    match args.what {
        What::Gangs => {
            let (rows, elsewhere) = gangs_in(snapshot, &seen, only);
            if rows.is_empty() {
                match only {
                    Some(only) if elsewhere > 0 => {
                        eprintln!("no gangs in namespace {only}; {elsewhere} elsewhere: add -A to see them");
                    }
                    _ => eprintln!("no gangs"),
                }
            }
            let value: Value = rows.iter().map(GangRow::json).collect();
            live::print(args.output, &listed(value), |wide| {
                gang_table(&rows, snapshot.taken, only.is_none()).render(Render { wide, ..Render::default() })
            })
        }
        What::Queues => {
            let rows = view::queues(&seen, &view::gangs(snapshot, &seen));
            let value: Value = rows.iter().map(QueueRow::json).collect();
            live::print(args.output, &listed(value), |wide| {
                queue_table(&rows).render(Render { wide, ..Render::default() })
            })
        }
        What::Nodes => {
            let rows = view::nodes(snapshot, &seen);
            let value: Value = rows.iter().map(NodeRow::json).collect();
            live::print(args.output, &listed(value), |wide| {
                node_table(&rows).render(Render { wide, ..Render::default() })
            })
        }
    }
}

fn listed(items: Value) -> Value {
    json!({"items": items})
}

/// The gangs of a namespace, and how many are elsewhere.
fn gangs_in(snapshot: &Snapshot, seen: &Seen, only: Option<&str>) -> (Vec<GangRow>, usize) {
    let all = view::gangs(snapshot, seen);
    let n_all = all.len();
    let rows: Vec<GangRow> =
        all.into_iter().filter(|row| only.is_none_or(|only| *row.key.namespace == *only)).collect();
    let elsewhere = n_all - rows.len();
    (rows, elsewhere)
}

/// Columns by name; those that begin with a plus show in wide output only.
pub fn columns(names: &[&str]) -> Vec<Column> {
    names
        .iter()
        .map(|name| Column {
            name: name.trim_start_matches('+').into(),
            priority: i32::from(name.starts_with('+')),
            ..Column::default()
        })
        .collect()
}

pub fn row(cells: Vec<String>) -> Row {
    Row { cells: cells.into_iter().map(Cell::String).collect(), ..Row::default() }
}

fn age(created: Time, now: Timestamp) -> String {
    let since = Timestamp::from_millisecond(created.0).ok().filter(|_| created != Time::default());
    k8s_table::age(since, now)
}

fn gang_table(rows: &[GangRow], now: Timestamp, with_namespace: bool) -> Table {
    let mut names = vec![
        "Name",
        "Queue",
        "Priority",
        "Pods",
        "GPUs",
        "State",
        "Age",
        "Reason",
        "+Owner",
        "+Dialect",
        "+Preemptible",
        "+Why",
    ];
    if with_namespace {
        names.insert(0, "Namespace");
    }
    let mut table = Table::new(columns(&names));
    for gang in rows {
        let (reason, why) = gang.reason.clone().unwrap_or_default();
        let mut cells = vec![
            gang.key.name.to_string(),
            gang.queue.to_string(),
            gang.priority.to_string(),
            format!("{}/{}/{}", gang.placed, gang.needed, gang.total),
            words::thousandths(gang.gpus),
            format!("{:?}", gang.state),
            age(gang.created, now),
            reason,
            gang.owner.clone().unwrap_or_default(),
            gang.dialect.to_owned(),
            gang.preemptible.to_string(),
            why,
        ];
        if with_namespace {
            cells.insert(0, gang.key.namespace.to_string());
        }
        table.rows.push(row(cells));
    }
    table
}

/// An amount without its unit, which the column says.
pub fn plain(resource: &Resource, n: i128) -> String {
    match resource {
        Resource::Memory if n == 0 => "0".into(),
        Resource::Memory => words::bytes(n),
        _ => words::thousandths(n),
    }
}

fn bound(resource: &Resource, bound: Bound) -> String {
    match bound {
        Bound::At(n) => plain(resource, n.into()),
        Bound::Unlimited => "-".into(),
    }
}

fn queue_table(rows: &[QueueRow]) -> Table {
    let mut table = Table::new(columns(&[
        "Queue",
        "Gangs",
        "Waiting",
        "GPU",
        "Requested",
        "Quota",
        "Fair",
        "Limit",
        "CPU",
        "+Requested",
        "+Quota",
        "+Fair",
        "+Limit",
        "Memory",
        "+Requested",
        "+Quota",
        "+Fair",
        "+Limit",
        "+Priority",
        "Remark",
    ]));
    for queue in rows {
        let mut cells = vec![
            format!("{}{}", "  ".repeat(queue.depth), queue.name),
            queue.gangs.to_string(),
            queue.waiting.to_string(),
        ];
        for r in [GPUS, 0, 1] {
            let resource = &RESOURCES[r];
            cells.extend([
                plain(resource, queue.allocated[r]),
                plain(resource, queue.requested[r]),
                bound(resource, queue.shares[r].quota),
                plain(resource, queue.fair[r]),
                bound(resource, queue.shares[r].limit),
            ]);
        }
        cells.push(queue.priority.to_string());
        let over_quota = match queue.shares[GPUS].quota {
            Bound::At(quota) => queue.allocated[GPUS] > i128::from(quota),
            Bound::Unlimited => false,
        };
        cells.push(match &queue.broken {
            Some(why) => why.clone(),
            None if over_quota => "over quota".into(),
            None => String::new(),
        });
        table.rows.push(row(cells));
    }
    table
}

fn node_table(rows: &[NodeRow]) -> Table {
    let mut table = Table::new(columns(&[
        "Name",
        "State",
        "GPU",
        "Use",
        "CPU",
        "Memory",
        "Pods",
        "Pool",
        "+Free",
        "+Shared",
        "+Topology",
    ]));
    for node in rows {
        let used = |resource: &Resource, i: usize| {
            format!(
                "{}/{}",
                plain(resource, node.used[i].into()),
                plain(resource, node.allocatable[i].into())
            )
        };
        let topology: Vec<String> =
            node.topology.iter().map(|(level, domain)| format!("{level}={domain}")).collect();
        table.rows.push(row(vec![
            node.name.to_string(),
            node.state.to_owned(),
            format!("{}/{}", words::thousandths(node.gpus_used.into()), node.gpus),
            node.bar(),
            used(&Resource::Cpu, 0),
            used(&Resource::Memory, 1),
            format!("{}/{}", node.pods, node.most_pods),
            node.pool.clone().unwrap_or_default(),
            node.free().to_string(),
            node.shared.to_string(),
            topology.join(","),
        ]));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::tests::{CLUSTER, of_yaml};

    #[track_caller]
    fn check(table: &Table, wide: bool, expected: &[&str]) {
        let text = table.render(Render { wide, ..Render::default() });
        let lines: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(lines, expected, "{text}");
    }

    #[test]
    fn gangs() {
        let snapshot = of_yaml(CLUSTER);
        let seen = snapshot.decide();
        let (rows, elsewhere) = gangs_in(&snapshot, &seen, Some("ml"));
        assert_eq!(elsewhere, 1);
        check(
            &gang_table(&rows, snapshot.taken, false),
            false,
            &[
                "NAME QUEUE PRIORITY PODS GPUS STATE AGE REASON",
                "run team 50 1/1/1 2 Running 60m",
                "wait team 50 0/2/2 4 Waiting 2m OverLimit",
            ],
        );
        let (rows, _) = gangs_in(&snapshot, &seen, None);
        let text = gang_table(&rows, snapshot.taken, true).render(Render { wide: true, ..Render::default() });
        assert!(text.contains("other       lost   nowhere"), "{text}");
        assert!(text.contains("queue nowhere does not exist"), "{text}");
    }

    #[test]
    fn queues_are_a_tree() {
        let snapshot = of_yaml(CLUSTER);
        let seen = snapshot.decide();
        let rows = view::queues(&seen, &view::gangs(&snapshot, &seen));
        let text = queue_table(&rows).render(Render::default());
        assert!(text.lines().any(|l| l.starts_with("  team ")), "{text}");
        check(
            &queue_table(&rows),
            false,
            &[
                "QUEUE GANGS WAITING GPU REQUESTED QUOTA FAIR LIMIT CPU MEMORY REMARK",
                "default-queue 0 0 0 0 - 0 - 0 0",
                "top 2 1 2 6 4 4 - 1 1Gi",
                "team 2 1 2 6 3 4 4 1 1Gi",
            ],
        );
    }

    #[test]
    fn nodes_show_their_gpus() {
        let snapshot = of_yaml(CLUSTER);
        let rows = view::nodes(&snapshot, &snapshot.decide());
        check(
            &node_table(&rows),
            false,
            &[
                "NAME STATE GPU USE CPU MEMORY PODS POOL",
                "a Ready 2/2 [##] 1/8 1Gi/16Gi 1/110",
                "b Ready 0/2 [..] 0/8 0/16Gi 0/110",
            ],
        );
    }
}
