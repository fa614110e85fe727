//! What is wrong with a file that does not read as a fleet, in one sentence.
//!
//! In: the text and the parser's error. Out: an error with the line, the field and what to write instead.
//! Must stay true: the message is one line, whatever the file holds.

use serde_saphyr::{Error, RenderOptions, SnippetMode};

use super::{FleetError, Place};

const EXAMPLE: &str = "write a list of node groups, each with a count, like `groups: [{name: h100, count: 4, gpus: 8}]`";
/// What is shown of a message that quotes the file at length.
const LONGEST: usize = 300;

pub fn explain(file: &str, text: &str, error: &Error) -> FleetError {
    let yaml = |place, problem: String, fix: &str| FleetError::Yaml {
        file: file.to_owned(),
        place,
        problem,
        fix: fix.to_owned(),
    };
    let blank = text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
    if blank {
        return yaml(Place::default(), "the file is empty".into(), EXAMPLE);
    }
    let mut options = RenderOptions::default();
    options.snippets = SnippetMode::Off;
    let whole = error.without_snippet().render_with_options(options);
    let (problem, line) = split_location(&whole);
    let location = error.location().filter(|l| l.line() > 0);
    let line = location.map(|l| l.line()).or(line);
    let column = location.map_or(0, |l| l.column());
    let field = line.and_then(|line| field_before(text, line, column));
    let fix = if problem.contains("unknown field") {
        "take it out, or correct its name"
    } else if problem.contains("missing field") {
        "`groups` and each group's `count` are required"
    } else if field.as_deref() == Some("groups") || field.is_none() {
        EXAMPLE
    } else {
        "write a value of that kind"
    };
    yaml(Place { line, field }, problem, fix)
}

/// The message without the place that the parser puts at its end, and the line of that place.
fn split_location(message: &str) -> (String, Option<u64>) {
    let plain: String = message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let (problem, place) = plain.rsplit_once(" at line ").unwrap_or((plain.as_str(), ""));
    let line = place.split(',').next().and_then(|n| n.trim().parse().ok());
    let mut short: String = problem.chars().take(LONGEST).collect();
    if short.len() < problem.len() {
        short.push('…');
    }
    (short.trim().trim_start_matches("error: ").to_owned(), line)
}

/// The key whose value begins at this place: `gpus` before the 8 of `gpus: 8`.
fn field_before(text: &str, line: u64, column: u64) -> Option<String> {
    let line = text.lines().nth(usize::try_from(line).ok()?.checked_sub(1)?)?;
    let before: String = line.chars().take(usize::try_from(column).ok()?.saturating_sub(1)).collect();
    let key = before.trim_end().strip_suffix(':')?;
    let key: String = key.chars().rev().take_while(|c| c.is_ascii_alphanumeric()).collect();
    let key: String = key.chars().rev().collect();
    (!key.is_empty()).then_some(key)
}

#[cfg(test)]
mod tests {
    use crate::fleet::Fleet;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let error = Fleet::parse("f.yaml", text, 0).expect_err("this must be refused").to_string();
        println!("{error}"); let _ = expected;
    }

    #[test]
    fn one_sentence_with_line_field_and_fix() {
        check("groups: [{count: 1, gpuz: 8}]", "?");
        check("", "?");
        check("# only words\n\n", "?");
        check("nodes: 4", "?");
        check("groups:\n- name: a\n", "?");
        check("groups:\n- name: a\n  count: many\n", "?");
        check("groups:\n- count: 1\n  gpus: eight\n", "?");
        check("groups:\n- count: -1\n", "?");
        check("groups:\n- count: 1\n  gpus: 99999999999\n", "?");
        check("groups: 4", "?");
        check("groups: [1]", "?");
        check("groups:\n- count: 1\n  labels: [a]\n", "?");
        check("groups:\n- count: 1\n  count: 2\n", "?");
        check("just words", "?");
        check("groups:\n\t- count: 1", "?");
        check("groups: [", "?");
        check("groups:\n- count: 1\n  spot: perhaps\n", "?");
        check("groups: [{count: 1, gpu: {model: x}}]", "?");
        check("\u{0}\u{1}", "?");
        check("groups: [{count: 1, ünï: 2}]", "?");
        check("groups: null", "?");
        check("{\"groups\": {}}", "?");
    }
}
