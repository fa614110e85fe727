//! `muster top`: who uses what, the biggest first, and how well the rest could be used.
//!
//! In: a live cluster, again and again. Out: a screen of text, or the same as JSON. Must stay true: what is free in pieces is counted by
//! whole GPUs, since a gang that wants a whole node cannot use them.

use crate::Exit;
use crate::get::{columns, plain, row};
use crate::live::{self, Format, Schedulers, Snapshot, Target};
use crate::up::{interrupted, runtime};
use crate::view::{self, GPUS, GangRow, NodeRow, QueueRow, RESOURCES, State};
use k8s_table::{Render, Table};
use muster_model::{Bound, Resource};
use muster_scenario::words;
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::time::Duration;

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  muster top                   queues and nodes by use, fragmentation, who waits; every two seconds\n  muster top --once            once, for a script or a report\n  muster top -o json           once, as JSON\n  muster top --interval 10 --rows 30"
)]
pub struct Args {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    schedulers: Schedulers,
    /// Print once and end
    #[arg(long)]
    once: bool,
    /// Seconds between looks
    #[arg(long, default_value_t = 2, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// Rows of each table
    #[arg(long, default_value_t = 10, value_name = "N")]
    rows: usize,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// Puts the cursor at the top of an empty screen.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

pub fn run(args: Args) -> anyhow::Result<Exit> {
    let once = args.once || matches!(args.output, Format::Json | Format::Yaml);
    let clears = !once && std::io::stdout().is_terminal();
    runtime()?.block_on(async {
        let link = args.target.link().await?;
        let look = async {
            loop {
                let screen = Screen::of(&live::snapshot(&link, &args.schedulers).await?);
                live::print(args.output, &screen.json(), |wide| {
                    let clear = if clears { CLEAR } else { "" };
                    let text = screen.text(args.rows, wide);
                    if clears || once { format!("{clear}{text}") } else { format!("{text}\n") }
                })?;
                if once {
                    return Ok(Exit::Done);
                }
                tokio::time::sleep(Duration::from_secs(args.interval)).await;
            }
        };
        tokio::select! { ended = look => ended, () = interrupted() => Ok(Exit::Done) }
    })
}

struct Screen {
    at: String,
    queues: Vec<QueueRow>,
    nodes: Vec<NodeRow>,
    /// The longest waiting first.
    waiting: Vec<(GangRow, String)>,
    gangs: usize,
    running: usize,
    free: Free,
}

/// GPUs that nobody holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Free {
    pub gpus: u32,
    /// On nodes of which nobody has any.
    pub whole_nodes: u32,
    pub on_whole_nodes: u32,
    /// In pieces smaller than a node.
    pub pieces: u32,
    pub in_pieces: u32,
    pub largest: u32,
}

impl Free {
    pub fn of(nodes: &[NodeRow]) -> Self {
        let mut free = Free::default();
        for node in nodes.iter().filter(|n| n.state == "Ready" && n.free() > 0) {
            free.gpus += node.free();
            free.largest = free.largest.max(node.free());
            if node.free() == node.gpus {
                free.whole_nodes += 1;
                free.on_whole_nodes += node.free();
            } else {
                free.pieces += 1;
                free.in_pieces += node.free();
            }
        }
        free
    }

    /// How much of what is free is in pieces, in hundredths.
    pub fn fragmented(&self) -> u32 {
        (self.in_pieces * 100).checked_div(self.gpus).unwrap_or(0)
    }
}

impl Screen {
    fn of(snapshot: &Snapshot) -> Self {
        let seen = snapshot.decide();
        let gangs = view::gangs(snapshot, &seen);
        let mut queues = view::queues(&seen, &gangs);
        queues.sort_by_key(|q| std::cmp::Reverse((q.allocated[GPUS], q.allocated[0])));
        let mut nodes = view::nodes(snapshot, &seen);
        nodes.sort_by_key(|n| std::cmp::Reverse((n.gpus_used, n.used[0])));
        let free = Free::of(&nodes);
        let running = gangs.iter().filter(|g| matches!(g.state, State::Running | State::Starting)).count();
        let n_gangs = gangs.len();
        let mut waiting: Vec<GangRow> = gangs.into_iter().filter(GangRow::waits).collect();
        waiting.sort_by_key(|g| g.created);
        let age = |gang: &GangRow| {
            let since =
                jiff::Timestamp::from_millisecond(gang.created.0).ok().filter(|_| gang.created.0 != 0);
            k8s_table::age(since, snapshot.taken)
        };
        Screen {
            at: snapshot.taken.strftime("%H:%M:%SZ").to_string(),
            waiting: waiting.into_iter().map(|gang| (gang.clone(), age(&gang))).collect(),
            queues,
            nodes,
            gangs: n_gangs,
            running,
            free,
        }
    }

    fn totals(&self) -> (i64, u32) {
        let used = self.nodes.iter().map(|n| n.gpus_used).fold(0, i64::saturating_add);
        (used, self.nodes.iter().map(|n| n.gpus).fold(0, u32::saturating_add))
    }

    fn json(&self) -> Value {
        let (used, all) = self.totals();
        let free = &self.free;
        json!({
            "gpus": {"used": words::amount_json(&Resource::Gpu, used.into()), "allocatable": all},
            "free": {
                "gpus": free.gpus, "wholeNodes": free.whole_nodes, "onWholeNodes": free.on_whole_nodes,
                "pieces": free.pieces, "inPieces": free.in_pieces, "largest": free.largest,
                "fragmentedPercent": free.fragmented(),
            },
            "gangs": {"all": self.gangs, "running": self.running, "waiting": self.waiting.len()},
            "queues": self.queues.iter().map(QueueRow::json).collect::<Vec<_>>(),
            "nodes": self.nodes.iter().map(NodeRow::json).collect::<Vec<_>>(),
            "waiting": self.waiting.iter().map(|(gang, _)| gang.json()).collect::<Vec<_>>(),
        })
    }

    fn text(&self, rows: usize, wide: bool) -> String {
        let (used, all) = self.totals();
        let ready = self.nodes.iter().filter(|n| n.state == "Ready").count();
        let percent = if all == 0 { 0 } else { used / 10 / i64::from(all) };
        let Free { gpus, whole_nodes, on_whole_nodes, pieces, in_pieces, largest } = self.free;
        let mut text = format!(
            "{}   nodes {ready}/{} ready   GPUs {}/{all} in use, {percent} %   gangs {}: {} run, {} wait\n",
            self.at,
            self.nodes.len(),
            words::thousandths(used.into()),
            self.gangs,
            self.running,
            self.waiting.len()
        );
        text.push_str(&format!(
            "free GPUs {gpus}: {on_whole_nodes} on {whole_nodes} empty nodes, {in_pieces} in pieces on {pieces} nodes ({} % fragmented), at most {largest} together\n\n",
            self.free.fragmented()
        ));
        let render = Render { wide, ..Render::default() };
        text.push_str(&self.queue_table(rows).render(render));
        text.push('\n');
        text.push_str(&self.node_table(rows).render(render));
        if !self.waiting.is_empty() {
            text.push('\n');
            text.push_str(&self.waiting_table(rows).render(render));
        }
        for (what, n) in [
            ("queues", self.queues.len()),
            ("nodes", self.nodes.len()),
            ("waiting gangs", self.waiting.len()),
        ] {
            if n > rows {
                text.push_str(&format!("{} more {what}: --rows {n}\n", n - rows));
            }
        }
        text
    }

    fn queue_table(&self, rows: usize) -> Table {
        let mut table =
            Table::new(columns(&["Queue", "GPU", "Fair", "Quota", "Requested", "CPU", "Memory", "Waiting"]));
        for queue in self.queues.iter().take(rows) {
            let quota = match queue.shares[GPUS].quota {
                Bound::At(n) => words::thousandths(n.into()),
                Bound::Unlimited => "-".into(),
            };
            table.rows.push(row(vec![
                queue.name.to_string(),
                plain(&Resource::Gpu, queue.allocated[GPUS]),
                plain(&Resource::Gpu, queue.fair[GPUS]),
                quota,
                plain(&Resource::Gpu, queue.requested[GPUS]),
                plain(&RESOURCES[0], queue.allocated[0]),
                plain(&RESOURCES[1], queue.allocated[1]),
                queue.waiting.to_string(),
            ]));
        }
        table
    }

    fn node_table(&self, rows: usize) -> Table {
        let mut table = Table::new(columns(&["Node", "GPU", "Use", "CPU", "Memory", "Pods", "State"]));
        for node in self.nodes.iter().take(rows) {
            let of = |r: usize| {
                format!(
                    "{}/{}",
                    plain(&RESOURCES[r], node.used[r].into()),
                    plain(&RESOURCES[r], node.allocatable[r].into())
                )
            };
            table.rows.push(row(vec![
                node.name.to_string(),
                format!("{}/{}", words::thousandths(node.gpus_used.into()), node.gpus),
                node.bar(),
                of(0),
                of(1),
                node.pods.to_string(),
                node.state.to_owned(),
            ]));
        }
        table
    }

    fn waiting_table(&self, rows: usize) -> Table {
        let mut table = Table::new(columns(&["Waiting", "Queue", "Pods", "GPUs", "Age", "Reason", "+Why"]));
        for (gang, age) in self.waiting.iter().take(rows) {
            let (reason, why) =
                gang.reason.clone().unwrap_or_else(|| (format!("{:?}", gang.state), String::new()));
            table.rows.push(row(vec![
                gang.key.to_string(),
                gang.queue.to_string(),
                format!("{}/{}", gang.placed, gang.needed),
                words::thousandths(gang.gpus),
                age.clone(),
                reason,
                why,
            ]));
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::tests::{CLUSTER, of_yaml};

    #[test]
    fn the_biggest_comes_first() {
        let screen = Screen::of(&of_yaml(CLUSTER));
        let text = screen.text(10, false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "12:00:00Z   nodes 2/2 ready   GPUs 2/4 in use, 50 %   gangs 3: 1 run, 2 wait");
        assert_eq!(
            lines[1],
            "free GPUs 2: 2 on 1 empty nodes, 0 in pieces on 0 nodes (0 % fragmented), at most 2 together"
        );
        let place = |name: &str| lines.iter().position(|l| l.starts_with(name)).unwrap();
        assert!(place("top") < place("default-queue"));
        assert!(place("a ") < place("b "));
        assert!(place("ml/wait") < place("other/lost"), "the longest waiting first");
        assert!(screen.text(1, false).contains("1 more nodes: --rows 2"));
        assert_eq!(screen.json()["gangs"], json!({"all": 3, "running": 1, "waiting": 2}));
    }

    #[track_caller]
    fn check_free(nodes: &[(u32, u32)], expected: Free) {
        let row = |(gpus, whole): &(u32, u32)| NodeRow {
            name: "n".into(),
            state: "Ready",
            pool: None,
            gpus_used: 0,
            gpus: *gpus,
            whole: *whole,
            shared: 0,
            used: [0; 2],
            allocatable: [0; 2],
            pods: 0,
            most_pods: 0,
            topology: Vec::new(),
        };
        assert_eq!(Free::of(&nodes.iter().map(row).collect::<Vec<_>>()), expected);
    }

    #[test]
    fn what_is_free_in_pieces() {
        check_free(&[], Free::default());
        check_free(&[(8, 8)], Free::default());
        let mixed = Free { gpus: 13, whole_nodes: 1, on_whole_nodes: 8, pieces: 2, in_pieces: 5, largest: 8 };
        assert_eq!(mixed.fragmented(), 38);
        check_free(&[(8, 0), (8, 4), (8, 7), (0, 0)], mixed);
    }
}
