//! Volcano's cases: our own scenarios for its traps, the cases restated from its tests where they are at hand, and cases that make no sense.

use muster_scenario::{Options, Report, Suite, Verdict};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Where we differ on purpose: disruption budgets are honoured.
const DIFFERENT: [&str; 2] = ["volcano/oracle-pdb/1", "volcano/oracle-pdb/7"];

fn run(folder: &Path) -> Report {
    let suite = Suite::read(&[PathBuf::from(folder)]).unwrap();
    suite.run(&Options::default(), &mut |_, _, _| {})
}

#[test]
fn our_own_scenarios_pass() {
    let report = run(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scenarios/volcano"));
    assert!(report.cases.len() >= 30, "only {} scenarios were found", report.cases.len());
    assert!(report.ok(), "{}", report.text(false));
}

#[test]
fn the_restated_cases_pass() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/scenarios/volcano");
    if !folder.exists() {
        println!("skipped: no ../shared");
        return;
    }
    let report = run(&folder);
    let failed: Vec<&str> = report
        .cases
        .iter()
        .filter(|c| matches!(c.verdict, Verdict::Failed(_)))
        .map(|c| c.id.as_str())
        .filter(|id| !DIFFERENT.contains(id))
        .collect();
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn a_case_that_makes_no_sense_is_told_so() {
    let unknown = json!({"actions": [], "tiers": [], "objects": [], "expect": {"bound": {}}});
    let outcome = muster_scenario::volcano::run(&unknown).unwrap();
    assert!(outcome.differences[0].starts_with("bound: nothing of this name"), "{:?}", outcome.differences);
    let node = json!({"cluster": {"nodes": [{"cpu": 1}]}, "expect": {"bind": {}}});
    assert!(muster_scenario::volcano::run(&node).unwrap_err().contains("has no name"));
    let probe = json!({"kind": "probe", "expect": {}});
    assert!(muster_scenario::volcano::run(&probe).unwrap_err().contains("advisory"));
}

#[test]
fn what_is_expected_and_does_not_come_is_told() {
    let case = json!({
        "config": {"actions": "allocate", "tiers": [{"plugins": [{"name": "gang"}]}]},
        "cluster": {"nodes": [{"name": "n", "cpu": 1}], "queues": [{"name": "q"}], "jobs": [{"name": "j", "cpu": 1}]},
        "expect": {"bind": {}, "task_status": {"ns/j": {"Pending": 1}}},
    });
    let outcome = muster_scenario::volcano::run(&case).unwrap();
    assert_eq!(outcome.differences.len(), 2, "{:?}", outcome.differences);
    assert_eq!(outcome.actual["bind"], json!({"ns/j-0": "n"}));
}
