//! The engine on the worked cases: all of them come out as written down, with the auditor looking on. Skipped where the specification
//! folder (`../shared`) is absent.

use crate::replay::worked_cases;
use muster_scenario::{compare, play};

#[test]
fn the_worked_cases_come_out_as_written() {
    let mut wrong = Vec::new();
    for (case, _) in worked_cases() {
        let outcome = play(&case, false).unwrap_or_else(|e| panic!("{}: {e}", case.id));
        let mismatches = compare(&case, &outcome);
        if !mismatches.is_empty() {
            wrong.push(format!("{}: {}", case.id, mismatches[0]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
