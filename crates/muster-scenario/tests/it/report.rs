//! Reports, and what happens to files that are no good.

use muster_scenario::{Options, Suite};
use serde_json::json;
use std::path::Path;

fn suite(files: &[(&str, &str)]) -> Suite {
    let mut suite = Suite::default();
    for (name, text) in files {
        suite.read_file(Path::new(name), text, true);
    }
    suite
}

fn run(files: &[(&str, &str)]) -> muster_scenario::Report {
    suite(files).run(&Options::default(), &mut |_, _, _| {})
}

const GOOD: &str = "
name: nothing moves
cluster:
  nodes: [{name: n, gpu: 1}]
  queues: [{name: q}]
  gangs: [{name: g, gpu: 1, on: n}]
expect: {gangs: {g: running}}
";

/// A single call of one of Volcano's functions, which is not looked at.
const PROBE: &str = "name: v\ndialect: volcano\nkind: probe\nexpect: {probes: [{call: NodeOrder}]}\n";

#[track_caller]
fn check_failure(text: &str, says: &str) {
    let report = run(&[("bad.yaml", text)]);
    assert!(!report.ok());
    let text = report.text(false);
    assert!(text.contains(says), "{says:?} is not in\n{text}");
}

#[test]
fn bad_files_are_failures_that_say_what_is_wrong() {
    check_failure("name: [", "bad.yaml");
    check_failure("apiVersion: v1\nkind: Pod\n", "there is no scenario in this file");
    check_failure("name: x\n", "neither a scenario");
    check_failure("name: x\nexpect: {}\n", "nothing is expected");
    check_failure("name: x\ndialect: volcano\nexpect: {}\n", "nothing is expected");
    check_failure("name: x\ndialect: kueue\nexpect: {}\n", "nothing is expected");
    check_failure("name: x\nfiles: nowhere.yaml\nexpect: {totals: {evicted: 0}}\n", "nowhere.yaml");
    check_failure("name: x\ncolour: red\nexpect: {totals: {evicted: 0}}\n", "colour: there is no such field");
}

#[test]
fn the_summary_is_the_last_line() {
    let bad = GOOD.replace("running", "bound");
    let report = run(&[("a.yaml", GOOD), ("b.yaml", &bad), ("c.yaml", PROBE)]);
    let text = report.text(false);
    assert_eq!(text.lines().last(), Some("1 passed, 1 failed, 1 skipped"));
    assert!(
        text.contains("FAILED  b/nothing moves\n    gang g: expected all bound, came 1 running\n"),
        "{text}"
    );
    assert!(text.contains("skipped 1: \"\" is no function that can be asked"), "{text}");
}

#[test]
fn json_says_what_passed_failed_and_was_not_looked_at() {
    let bad = GOOD.replace("running", "bound");
    let report = run(&[("a.yaml", GOOD), ("b.yaml", &bad), ("c.yaml", PROBE)]);
    assert_eq!(
        report.json(),
        json!({
            "passed": 1, "failed": 1, "skipped": 1,
            "cases": [
                {"id": "a/nothing moves", "file": "a.yaml", "ok": true},
                {
                    "id": "b/nothing moves", "file": "b.yaml", "ok": false,
                    "why": "gang g: expected all bound, came 1 running",
                },
                {
                    "id": "c/v", "file": "c.yaml", "ok": false, "skipped": true,
                    "why": report.json()["cases"][2]["why"],
                },
            ],
        })
    );
}

#[test]
fn actual_is_complete_and_in_the_form_of_an_expectation() {
    let options = Options { actual: true, ..Options::default() };
    let report = suite(&[("a.yaml", GOOD)]).run(&options, &mut |_, _, _| {});
    let actual = report.cases[0].actual.clone().unwrap();
    assert_eq!(
        actual["pods"]["default/g-0"],
        json!({"phase": "running", "node": "n", "numaZones": [], "gpusRequired": 1, "gpusAccepted": 1})
    );
    assert_eq!(actual["groups"]["g"]["running"], 1);
    assert_eq!(actual["groups"]["g"]["nodes"], json!(["n"]));
    assert_eq!(actual["nodes"]["n"], json!({"idleGPUs": 0, "releasingGPUs": 0}));
    assert_eq!(actual["cycles"], json!([{}]));
    assert_eq!(actual["totals"], json!({"evicted": 0}));
}

#[test]
fn junit_is_well_formed() {
    let bad = GOOD
        .replace("nothing moves", "<a> & \\\"b\\\"")
        .replace("name: <", "name: \"<")
        .replace("\\\"\n", "\\\"\"\n");
    let bad = bad.replace("running", "bound");
    let xml = run(&[("a.yaml", GOOD), ("b.yaml", &bad)]).junit();
    assert!(xml.contains("<testsuites tests=\"2\" failures=\"1\" skipped=\"0\">"), "{xml}");
    assert!(xml.contains("name=\"b/&lt;a&gt; &amp; &quot;b&quot;\""), "{xml}");
    assert!(xml.contains("<failure message=\"gang g: expected all bound, came 1 running\">"), "{xml}");
    assert_eq!(xml.matches("<testcase").count(), 2);
}

#[test]
fn a_filter_looks_at_ids_names_and_files() {
    let suite = suite(&[("a.yaml", GOOD), ("b.yaml", GOOD)]);
    for (filter, n) in [("b/", 1), ("moves", 2), ("a.yaml", 1), ("nobody", 0)] {
        let options = Options { filter: Some(filter.into()), ..Options::default() };
        assert_eq!(suite.run(&options, &mut |_, _, _| {}).cases.len(), n, "{filter}");
    }
}
