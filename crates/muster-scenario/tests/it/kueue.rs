//! Kueue's cases: our own scenarios for its traps, the cases restated from its tests where they are at hand, and cases that make no sense.

use muster_scenario::{Options, Suite};
use serde_json::json;
use std::path::{Path, PathBuf};

fn run(folder: &Path) -> (usize, String) {
    let suite = Suite::read(&[PathBuf::from(folder)]).unwrap();
    let report = suite.run(&Options::default(), &mut |_, _, _| {});
    let failures: String = report.cases.iter().map(|c| c.text(false)).collect();
    (report.cases.len(), failures)
}

#[test]
fn our_own_scenarios_pass() {
    let (n, failures) = run(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scenarios/kueue"));
    assert!(n >= 30, "only {n} scenarios were found");
    assert!(failures.is_empty(), "{failures}");
}

#[test]
fn the_restated_cases_pass() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/scenarios/kueue");
    if !folder.exists() {
        println!("skipped: the restated cases are not at hand");
        return;
    }
    let (_, failures) = run(&folder);
    assert!(failures.is_empty(), "{failures}");
}

#[test]
fn what_is_expected_and_does_not_come_is_told() {
    let case =
        json!({"dialect": "kueue", "objects": [], "expect": {"admitted": {"ns/w": {}}, "pending": ["ns/v"]}});
    let outcome = muster_scenario::kueue::run(&case).unwrap();
    assert_eq!(
        outcome.differences,
        ["admitted.ns/w: expected {}, got nothing", "pending: expected [\"ns/v\"], got []"]
    );
}

#[test]
fn a_case_that_makes_no_sense_is_refused() {
    for (case, told) in [
        (json!({"op": "dance"}), "\"dance\" is no operation"),
        (json!({"objects": 3}), "objects: write a list"),
        (json!({"steps": [{"op": "jump"}]}), "\"jump\" is no step"),
        (json!({"op": "preempt", "given": {"clusterQueue": "q"}}), "there is no q"),
        (json!({"op": "tasAssign", "given": {"flavor": "f"}}), "it has no topology"),
    ] {
        let why = muster_scenario::kueue::run(&case).unwrap_err();
        assert!(why.contains(told), "{why}");
    }
}
