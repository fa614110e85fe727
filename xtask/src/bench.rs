//! `cargo xtask bench`: what decisions cost, measured.
//!
//! `engine` builds the engine's benchmarks (`crates/muster-engine/examples/bench`) with optimisation and runs every one in a process of its
//! own, so that peaks of memory are its own. Out: tables, or JSON. Times never fail the command; a benchmark whose decisions are
//! wrong does, for then its times mean nothing.

use crate::command::{cargo, done};
use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand, ValueEnum};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Measure what decisions cost
#[derive(Parser)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// The engine alone: no API server, no network, one thread
    Engine(Engine),
    /// The scheduler as a process on a real API server, beside a bare loop that posts the same bindings
    Services(Services),
    /// Jobs through the whole pipeline of the embedded cluster, over HTTPS and on the wall clock
    Jobs(Jobs),
    /// Requests to the embedded server, beside kube-apiserver and etcd under the same load
    Apiserver(Apiserver),
    /// Grove's operator on a real API server: 500 replicas of two pods, one set of 10,000 pods, and killed while it works
    Grove(Grove),
}

#[derive(Parser)]
#[command(after_help = "\
Examples:
  cargo xtask bench apiserver                      creates, binds, patches, lists and watches of 4,000 pods
  cargo xtask bench apiserver --pods 500")]
struct Apiserver {
    #[arg(long, default_value_t = 4000)]
    pods: usize,
}

#[derive(Parser)]
#[command(after_help = "\
Examples:
  cargo xtask bench grove                          everything; the machine should have nothing else to do
  cargo xtask bench grove --only five_hundred      or one_set, or killed")]
struct Grove {
    /// Only those whose names contain this
    #[arg(long, default_value = "")]
    only: String,
}

#[derive(Parser)]
#[command(after_help = "\
Examples:
  cargo xtask bench jobs                           1,000 nodes, 10,000 Jobs of 8 pods of one second each
  cargo xtask bench jobs --jobs 50000              many at once
  cargo xtask bench jobs --apart                   the services as a process of their own, over HTTPS too")]
struct Jobs {
    #[arg(long, default_value_t = 1000)]
    nodes: usize,
    #[arg(long, default_value_t = 10_000)]
    jobs: usize,
    /// Pods of each Job
    #[arg(long, default_value_t = 8)]
    size: usize,
    /// Run Muster's services as a process of their own
    #[arg(long)]
    apart: bool,
}

#[derive(Parser)]
#[command(after_help = "\
Examples:
  cargo xtask bench services                       500 nodes, 500 gangs of 8
  cargo xtask bench services --nodes 100 --gangs 50
  cargo xtask bench services --peers 2             instead: Muster, kube-scheduler with and without gangs, and Volcano, in turns, twice")]
struct Services {
    #[arg(long, default_value_t = 500)]
    nodes: usize,
    #[arg(long, default_value_t = 500)]
    gangs: usize,
    /// Pods of each gang
    #[arg(long, default_value_t = 8)]
    size: usize,
    /// The same load on other schedulers too, so many times each
    #[arg(long, value_name = "ROUNDS", default_value_t = 0)]
    peers: usize,
}

#[derive(Parser)]
#[command(after_help = "\
Examples:
  cargo xtask bench engine                 everything, with instruction counts where valgrind is at hand
  cargo xtask bench engine --quick         fewer repetitions, no instruction counts
  cargo xtask bench engine --only reclaim  the benchmarks whose names contain a word
  cargo xtask bench engine -o json")]
struct Engine {
    /// Fewer repetitions, no instruction counts
    #[arg(long)]
    quick: bool,
    /// Only benchmarks whose names contain this
    #[arg(long, default_value = "")]
    only: String,
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
}

/// After this a benchmark is ended and counts as wrong.
const TOO_LONG: Duration = Duration::from_secs(180);

pub fn run(args: Args) -> Result<()> {
    match args.what {
        What::Engine(args) => engine(args),
        What::Services(args) => {
            let numbers = [args.nodes, args.gangs, args.size, args.peers];
            live("muster-scheduler", "rate", &numbers.map(|n| n.to_string()))
        }
        What::Jobs(args) => {
            let place = if args.apart { "apart" } else { "together" };
            let [nodes, jobs, size] = [args.nodes, args.jobs, args.size].map(|n| n.to_string());
            live("muster-scheduler", "jobs", &[nodes, jobs, size, place.to_owned()])
        }
        What::Apiserver(args) => live("muster-e2e", "servers", &[args.pods.to_string()]),
        What::Grove(args) => grove(&args),
    }
}

/// The tests that hold Grove to its figures also print them; here they run with optimisation, and so does the operator.
fn grove(args: &Grove) -> Result<()> {
    let mut command =
        cargo(&["test", "--release", "--quiet", "--package", "muster-e2e", "--test", "grove", "--"]);
    done(command.args(["--nocapture", "--test-threads=1", "--skip", "volcano", &args.only]))
}

/// Builds a benchmark of live services and runs it; it builds `muster` and prints what it measured.
fn live(package: &str, example: &str, args: &[String]) -> Result<()> {
    // As it is shipped.
    let how = ["run", "--profile", "dist", "--package", package, "--example", example, "--"];
    done(cargo(&how).args(args)).context("the benchmark failed")
}

fn engine(args: Engine) -> Result<()> {
    let program = build()?;
    let names = list(&program)?;
    let mut benches = Vec::new();
    for (name, about) in names.into_iter().filter(|(name, _)| name.contains(&args.only)) {
        eprintln!("==> {name}: {about}");
        benches.push(Bench::run(&program, name, about, args.quick)?);
    }
    match args.output {
        Format::Json => println!("{:#}", json(&benches)),
        Format::Table => print!("{}", tables(&benches)),
    }
    let wrong: Vec<&str> = benches.iter().filter(|b| !b.wrong.is_empty()).map(|b| &*b.name).collect();
    if !wrong.is_empty() {
        bail!("decisions are wrong, so times mean nothing: {}", wrong.join(", "));
    }
    Ok(())
}

/// Builds the benchmarks; cargo says where.
fn build() -> Result<PathBuf> {
    let mut command = cargo(&["build", "--release", "--package", "muster-engine", "--example", "bench"]);
    command.args(["--message-format", "json-render-diagnostics"]).stderr(Stdio::inherit());
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        bail!("the benchmarks do not build");
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let built =
        text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).find_map(|message| {
            let is_bench = message["target"]["name"] == "bench" && message["target"]["kind"][0] == "example";
            message["executable"].as_str().filter(|_| is_bench).map(PathBuf::from)
        });
    built.context("cargo did not say where it put the benchmarks")
}

fn list(program: &Path) -> Result<Vec<(String, String)>> {
    let (status, output) = bounded(Command::new(program).arg("list"))?;
    if !status {
        bail!("{} list: failed", program.display());
    }
    let line = |line: &str| {
        let (name, about) = line.split_once('\t').unwrap_or((line, ""));
        (name.to_owned(), about.to_owned())
    };
    Ok(output.lines().map(line).collect())
}

/// Whether it ended well and in time, and what it printed.
fn bounded(command: &mut Command) -> Result<(bool, String)> {
    command.stdout(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot run {command:?}"))?;
    let mut pipe = child.stdout.take().context("its output was piped")?;
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        // What is not text is no figure.
        let _ = pipe.read_to_string(&mut text);
        text
    });
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status.success();
        }
        if begin.elapsed() > TOO_LONG {
            child.kill()?;
            child.wait()?;
            break false;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    Ok((status, reader.join().unwrap_or_default()))
}

struct Bench {
    name: String,
    about: String,
    figures: Vec<Figure>,
    facts: Vec<String>,
    wrong: Vec<String>,
    peak_kib: u64,
    /// At a twentieth of the size.
    instructions: Option<u64>,
}

#[derive(Clone, Debug, PartialEq)]
struct Figure {
    label: String,
    cpu_ms: f64,
    wall_ms: f64,
    target_ms: Option<f64>,
    /// What another system published, end to end.
    theirs_ms: Option<f64>,
    pods: Option<f64>,
}

impl Figure {
    fn pods_per_second(&self) -> Option<f64> {
        self.pods.map(|pods| pods * 1000.0 / self.cpu_ms.max(0.001))
    }
}

impl Bench {
    fn run(program: &Path, name: String, about: String, quick: bool) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(["run", &name]);
        if quick {
            command.arg("--quick");
        }
        let (ended, text) = bounded(&mut command)?;
        let mut bench = Self::read(name, about, &text);
        if !ended {
            bench.wrong.push(format!("it failed or took longer than {} s", TOO_LONG.as_secs()));
        }
        if !quick && !bench.name.starts_with("growth/") && bench.wrong.is_empty() {
            bench.instructions = instructions(program, &bench.name);
        }
        Ok(bench)
    }

    /// Reads what a benchmark printed.
    fn read(name: String, about: String, text: &str) -> Self {
        let mut bench = Self {
            name,
            about,
            figures: Vec::new(),
            facts: Vec::new(),
            wrong: Vec::new(),
            peak_kib: 0,
            instructions: None,
        };
        for line in text.lines() {
            let fields: Vec<&str> = line.split('\t').collect();
            let number = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
            let word = |at: usize| fields.get(at).map_or_else(String::new, |field| (*field).to_owned());
            match fields[0] {
                "figure" => bench.figures.push(Figure {
                    label: word(1),
                    cpu_ms: number(2).unwrap_or(0.0) / 1e6,
                    wall_ms: number(3).unwrap_or(0.0) / 1e6,
                    target_ms: number(4).map(|ns| ns / 1e6),
                    theirs_ms: number(5),
                    pods: number(6),
                }),
                "fact" => bench.facts.push(word(1)),
                "wrong" => bench.wrong.push(word(1)),
                "peak" => bench.peak_kib = number(1).unwrap_or(0.0) as u64,
                _ => {}
            }
        }
        if bench.figures.is_empty() {
            bench.wrong.push("it printed no figures".to_owned());
        }
        bench
    }
}

/// How many instructions the measured parts take at a twentieth of the size; valgrind counts them.
fn instructions(program: &Path, name: &str) -> Option<u64> {
    let log = std::env::temp_dir().join(format!("muster-bench-{}.log", std::process::id()));
    let mut command = Command::new("valgrind");
    command.args([
        "--tool=callgrind",
        "--callgrind-out-file=/dev/null",
        "--toggle-collect=*meter::measured*",
    ]);
    command.arg(format!("--log-file={}", log.display()));
    command.arg(program).args(["run", name, "--small"]).stderr(Stdio::null());
    let ended = bounded(&mut command).is_ok_and(|(ended, _)| ended);
    let text = std::fs::read_to_string(&log).unwrap_or_default();
    // The file is this command's own; that it may be absent is no error.
    let _ = std::fs::remove_file(&log);
    let line = text.lines().find_map(|line| line.split_once("Collected :"));
    line.filter(|_| ended).and_then(|(_, n)| n.trim().parse().ok())
}

fn json(benches: &[Bench]) -> Value {
    let figure = |f: &Figure| {
        json!({
            "label": f.label,
            "cpuMs": f.cpu_ms,
            "wallMs": f.wall_ms,
            "targetMs": f.target_ms,
            "ofTarget": f.target_ms.map(|target| f.cpu_ms / target),
            "kaiMs": f.theirs_ms,
            "podsPerSecond": f.pods_per_second(),
        })
    };
    let bench = |b: &Bench| {
        json!({
            "name": b.name,
            "about": b.about,
            "figures": b.figures.iter().map(figure).collect::<Vec<_>>(),
            "facts": b.facts,
            "wrong": b.wrong,
            "peakKiB": b.peak_kib,
            "instructionsAtATwentieth": b.instructions,
        })
    };
    let growth: Vec<Value> = growths(benches)
        .into_iter()
        .map(|g| json!({ "name": g.name, "cpuMsByNodes": g.points, "exponent": g.exponent }))
        .collect();
    json!({ "benchmarks": benches.iter().map(bench).collect::<Vec<_>>(), "growth": growth })
}

fn tables(benches: &[Bench]) -> String {
    let mut text = String::new();
    let or_dash = |n: Option<String>| n.unwrap_or_else(|| "-".to_owned());
    let mut rows = vec![row([
        "BENCHMARK",
        "FIGURE",
        "CPU ms",
        "WALL ms",
        "TARGET ms",
        "OF TARGET",
        "PODS/s",
        "PEAK MiB",
    ])];
    let plain: Vec<&Bench> = benches.iter().filter(|b| !b.name.starts_with("growth/")).collect();
    for bench in &plain {
        for (i, figure) in bench.figures.iter().enumerate() {
            rows.push(vec![
                if i == 0 { bench.name.clone() } else { String::new() },
                figure.label.clone(),
                milliseconds(figure.cpu_ms),
                milliseconds(figure.wall_ms),
                or_dash(figure.target_ms.map(milliseconds)),
                or_dash(figure.target_ms.map(|target| format!("{:.2}", figure.cpu_ms / target))),
                or_dash(figure.pods_per_second().map(|n| format!("{n:.0}"))),
                if i == 0 { format!("{:.0}", bench.peak_kib as f64 / 1024.0) } else { String::new() },
            ]);
        }
    }
    if !plain.is_empty() {
        text += &columns(&rows);
    }

    let mut rows = vec![row(["SHAPE OF KAI'S SCALE TESTS", "CPU ms", "KAI, END TO END, s", "RATIO"])];
    for (bench, figure) in plain.iter().flat_map(|b| b.figures.iter().map(move |f| (b, f))) {
        if let Some(theirs) = figure.theirs_ms {
            rows.push(vec![
                format!("{}: {}", bench.name, bench.about),
                milliseconds(figure.cpu_ms),
                format!("{:.1}", theirs / 1000.0),
                format!("{:.0}", theirs / figure.cpu_ms.max(0.001)),
            ]);
        }
    }
    if rows.len() > 1 {
        text += "\nKAI's figures are end to end, with an API server and binding; ours are decisions only.\n";
        text += &columns(&rows);
    }

    let growths = growths(benches);
    if let Some(first) = growths.first() {
        let mut head = vec!["GROWTH, CPU ms".to_owned()];
        head.extend(first.points.keys().map(|nodes| format!("{nodes} nodes")));
        head.push("EXPONENT".to_owned());
        let mut rows = vec![head];
        for growth in &growths {
            let mut row = vec![growth.name.clone()];
            row.extend(growth.points.values().copied().map(milliseconds));
            row.push(or_dash(growth.exponent.map(|n| format!("{n:.2}"))));
            rows.push(row);
        }
        text += "\n";
        text += &columns(&rows);
    }

    let mut rows = vec![row(["INSTRUCTIONS, A TWENTIETH OF THE SIZE", "MILLIONS"])];
    for bench in &plain {
        let millions = bench.instructions.map(|n| format!("{:.2}", n as f64 / 1e6));
        rows.push(vec![bench.name.clone(), millions.unwrap_or_else(|| "not available".to_owned())]);
    }
    if !plain.is_empty() {
        text += "\n";
        text += &columns(&rows);
    }

    for bench in benches {
        for fact in bench.facts.iter().filter(|_| !bench.name.starts_with("growth/")) {
            text += &format!("\n{}: {fact}", bench.name);
        }
    }
    text += "\n";
    for bench in benches {
        for wrong in &bench.wrong {
            text += &format!("WRONG {}: {wrong}\n", bench.name);
        }
    }
    text
}

struct Growth {
    name: String,
    /// CPU time by number of nodes.
    points: BTreeMap<u64, f64>,
    exponent: Option<f64>,
}

/// `growth/<name>/<nodes>`: the figure that counts is the cycle, or the median.
fn growths(benches: &[Bench]) -> Vec<Growth> {
    let mut growths: Vec<Growth> = Vec::new();
    for bench in benches {
        let Some((name, nodes)) = bench.name.strip_prefix("growth/").and_then(|rest| rest.rsplit_once('/'))
        else {
            continue;
        };
        let Ok(nodes) = nodes.parse() else { continue };
        for figure in
            bench.figures.iter().filter(|f| !f.label.contains("followed") && !f.label.contains("p99"))
        {
            let name = format!("{name}, {}", figure.label);
            let at = growths.iter().position(|g| g.name == name).unwrap_or_else(|| {
                growths.push(Growth { name, points: BTreeMap::new(), exponent: None });
                growths.len() - 1
            });
            growths[at].points.insert(nodes, figure.cpu_ms);
        }
    }
    for growth in &mut growths {
        growth.exponent = exponent(&growth.points);
    }
    growths
}

/// The power of the size with which the time grows: the slope of the line through the logarithms, by least squares.
fn exponent(points: &BTreeMap<u64, f64>) -> Option<f64> {
    let logs: Vec<(f64, f64)> =
        points.iter().filter(|(_, ms)| **ms > 0.0).map(|(n, ms)| ((*n as f64).ln(), ms.ln())).collect();
    let n = logs.len() as f64;
    let (mean_x, mean_y) =
        (logs.iter().map(|(x, _)| x).sum::<f64>() / n, logs.iter().map(|(_, y)| y).sum::<f64>() / n);
    let over: f64 = logs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let under: f64 = logs.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    (logs.len() > 1 && under > 0.0).then_some(over / under)
}

fn milliseconds(ms: f64) -> String {
    match ms {
        _ if ms >= 100.0 => format!("{ms:.0}"),
        _ if ms >= 10.0 => format!("{ms:.1}"),
        _ => format!("{ms:.2}"),
    }
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

/// Lines of cells, each column as wide as its widest cell. What starts like a number is set to the right.
fn columns(rows: &[Vec<String>]) -> String {
    let n_columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..n_columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| match cell.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            })
            .collect();
        text += cells.join("  ").trim_end();
        text += "\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_exponent(points: &[(u64, f64)], expected: Option<f64>) {
        let found = exponent(&points.iter().copied().collect());
        match (found, expected) {
            (Some(found), Some(expected)) => assert!((found - expected).abs() < 1e-9, "{found}"),
            _ => assert_eq!(found, expected),
        }
    }

    #[test]
    fn growth_is_the_slope_of_the_logarithms() {
        check_exponent(&[(100, 2.0), (1000, 20.0), (10_000, 200.0)], Some(1.0));
        check_exponent(&[(100, 1.0), (1000, 100.0)], Some(2.0));
        check_exponent(&[(100, 3.0), (1000, 3.0)], Some(0.0));
        check_exponent(&[(100, 3.0)], None);
        check_exponent(&[], None);
    }

    #[test]
    fn what_a_benchmark_prints_is_read() {
        let text = "figure\tcycle\t2000000\t4000000\t5000000\t-\t100\nfact\tfew\npeak\t2048\n";
        let bench = Bench::read("a".into(), "b".into(), text);
        let expected = Figure {
            label: "cycle".into(),
            cpu_ms: 2.0,
            wall_ms: 4.0,
            target_ms: Some(5.0),
            theirs_ms: None,
            pods: Some(100.0),
        };
        assert_eq!(bench.figures, [expected]);
        assert_eq!(bench.figures[0].pods_per_second(), Some(50_000.0));
        assert_eq!((bench.facts.len(), bench.wrong.len(), bench.peak_kib), (1, 0, 2048));
        assert_eq!(Bench::read("a".into(), "b".into(), "").wrong.len(), 1, "no figures is wrong");
    }

    #[test]
    fn columns_line_up() {
        let rows = [row(["A", "LONG"]), row(["name", "1.5"])];
        assert_eq!(columns(&rows), "A     LONG\nname   1.5\n");
    }
}
