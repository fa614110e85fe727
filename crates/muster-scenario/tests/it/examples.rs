//! The examples of `docs/scenarios.md`: each is a file of `tests/scenarios/` to the letter, and every file passes.

use muster_scenario::{Options, Suite, words};
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> String {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    String::from_utf8(bytes).unwrap()
}

/// The fenced YAML of the documentation.
fn fences(text: &str) -> Vec<String> {
    let mut fences = Vec::new();
    let mut open: Option<String> = None;
    for line in text.lines() {
        match (&mut open, line) {
            (None, "```yaml") => open = Some(String::new()),
            (Some(_), "```") => fences.extend(open.take()),
            (Some(fence), line) => {
                fence.push_str(line);
                fence.push('\n');
            }
            (None, _) => {}
        }
    }
    fences
}

/// The examples themselves; folders below `tests/scenarios` hold the scenarios of single rules.
fn examples() -> Vec<PathBuf> {
    let folder = root().join("tests/scenarios");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "yaml"));
    files.sort();
    files
}

#[track_caller]
fn check_passes(paths: &[PathBuf]) -> usize {
    let suite = Suite::read(paths).unwrap();
    let report = suite.run(&Options { explain: true, ..Options::default() }, &mut |_, _, _| {});
    assert!(report.ok(), "{}", report.text(true));
    report.cases.len()
}

#[test]
fn the_examples_pass() {
    assert!(check_passes(&examples()) >= 15);
}

#[test]
fn the_scenarios_of_single_rules_pass() {
    let rules = root().join("tests/scenarios/rules");
    if rules.is_dir() {
        check_passes(&[rules]);
    }
}

#[test]
fn the_documentation_shows_the_files_as_they_are() {
    let fences = fences(&read(&root().join("docs/scenarios.md")));
    let mut shown = Vec::new();
    for fence in &fences {
        let (first, rest) = fence.split_once('\n').unwrap();
        match first.strip_prefix("# ") {
            Some(path) if path.starts_with("tests/") => {
                assert_eq!(rest, read(&root().join(path)), "{path}");
                shown.push(path.to_string());
            }
            Some(name) if name.starts_with("runs: ") => {
                let mut suite = Suite::default();
                suite.read_file(Path::new("docs/scenarios.yaml"), rest, true);
                let report = suite.run(&Options::default(), &mut |_, _, _| {});
                assert!(report.ok() && !report.cases.is_empty(), "{}", report.text(true));
            }
            _ => panic!("an example that nothing checks:\n{fence}"),
        }
    }
    shown.sort();
    let name = |path: PathBuf| format!("tests/scenarios/{}", path.file_name().unwrap().to_str().unwrap());
    let files: Vec<String> = examples().into_iter().map(name).collect();
    assert_eq!(shown, files);
}

/// Expectations of reasons are only as good as the words for them.
#[test]
fn the_documentation_names_every_reason() {
    use muster_model::{Action, Name, Reason, Resource, Time};
    let text = read(&root().join("docs/scenarios.md"));
    let name: Name = "x".into();
    let reasons = [
        Reason::QueueMissing { queue: name.clone() },
        Reason::QueueNotLeaf { queue: name.clone() },
        Reason::NotReady { group: name.clone(), have: 0, need: 1 },
        Reason::OverLimit { queue: name.clone(), resource: Resource::Gpu, used: 0, asked: 0, limit: 0 },
        Reason::OverQuota { queue: name.clone(), resource: Resource::Gpu, used: 0, asked: 0, quota: 0 },
        Reason::NoNode { group: name.clone(), placed: 0, need: 1, tally: Vec::new() },
        Reason::NoDomain {
            group: name.clone(),
            topology: name.clone(),
            level: name.clone(),
            domains: 0,
            best: None,
            best_fits: 0,
            need: 0,
        },
        Reason::TopologyUnknown { topology: name.clone(), level: None },
        Reason::Missing { what: name },
        Reason::PreemptionDelay { until: Time(0) },
        Reason::NoVictims { action: Action::Reclaim, candidates: 0, tried: 0 },
        Reason::SearchEnded { action: Action::Reclaim, tried: 0 },
        Reason::BeyondQueueDepth { action: Action::Reclaim, depth: 0 },
        Reason::Pipelined { pods: 1 },
    ];
    for reason in reasons {
        let json = words::reason_json(&reason);
        let name = json["reason"].as_str().unwrap();
        assert!(text.contains(&format!("`{name}`")), "{name} is not in the documentation");
    }
}
