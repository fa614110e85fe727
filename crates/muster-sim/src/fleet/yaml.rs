//! What is wrong with a file that does not read as a fleet, in one sentence.
//!
//! In: the text and the parser's error. Out: an error with the line, the field and what to write instead.
//! Must stay true: the message is one line, whatever the file holds.

use serde_saphyr::{Error, RenderOptions, SnippetMode};

use super::{FleetError, Place};

const EXAMPLE: &str =
    "write a list of node groups, each with a count, like `groups: [{name: h100, count: 4, gpus: 8}]`";
/// What is shown of a message that quotes the file at length.
const LONGEST: usize = 300;

pub fn explain(file: &str, text: &str, error: &Error) -> FleetError {
    let yaml = |place, problem: String, fix: &str| FleetError::Field {
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
    let (problem, fix) = reword(&problem, field.as_deref());
    yaml(Place { line, field }, problem, fix)
}

/// Adds the line to an error that names a field of a group: where the field stands, or else where the group begins.
/// `begins`: the line of each group.
pub fn locate(error: FleetError, text: &str, begins: &[u64]) -> FleetError {
    let FleetError::Field { file, mut place, problem, fix } = error else { return error };
    if let Some((i, name)) = place.field.as_deref().and_then(split_field)
        && let Some(begin) = begins.get(i).copied().filter(|line| *line > 0)
    {
        let end = begins.get(i + 1).copied().filter(|end| *end > begin).unwrap_or(u64::MAX);
        let key = format!("{name}:");
        let lines = (1_u64..).zip(text.lines()).skip_while(|(n, _)| *n < begin);
        let found = lines.take_while(|(n, _)| *n < end).find(|(_, line)| line.contains(&key));
        place.line = Some(found.map_or(begin, |(n, _)| n));
    }
    FleetError::Field { file, place, problem, fix }
}

/// The number of the group and the last name of `groups[3].topology.zone`.
fn split_field(field: &str) -> Option<(usize, &str)> {
    let (i, rest) = field.strip_prefix("groups[")?.split_once("].")?;
    let name = rest.split('[').next()?;
    // A label's own name may have dots.
    let name = match name.split_once('.') {
        Some(("labels" | "annotations" | "resources", key)) => key,
        Some((_, name)) => name,
        None => name,
    };
    Some((i.parse().ok()?, name))
}

/// The parser's words in those of the file's author, and what to do.
fn reword(problem: &str, field: Option<&str>) -> (String, &'static str) {
    let same = || problem.to_owned();
    match problem {
        "invalid u64" | "invalid u32" | "invalid usize" => {
            ("this is not a number from 0 up, or too large a one".into(), "write a number such as 8")
        }
        "invalid boolean" => ("this is neither true nor false".into(), "write true or false"),
        "expected mapping start" if field.is_some() => {
            ("this is not a mapping".into(), "write `key: value` pairs, like `{team: research}`")
        }
        "expected mapping start" => ("this is not a mapping".into(), EXAMPLE),
        "expected sequence start" if field != Some("groups") => {
            ("this is not a list".into(), "write a list, like `[a, b]`")
        }
        "expected sequence start" => ("this is not a list".into(), EXAMPLE),
        _ if problem.starts_with("unknown field") => (same(), "take it out, or correct its name"),
        _ if problem.starts_with("missing field") => {
            (same(), "`groups` and each group's `count` are required")
        }
        _ if problem.starts_with("duplicate mapping key") => {
            let key = problem.split([':', ',']).nth(1).unwrap_or_default().trim();
            (format!("`{key}` is there twice"), "keep one of them")
        }
        _ => (format!("this is not YAML: {problem}"), EXAMPLE),
    }
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
        let error = error.replace(super::EXAMPLE, "EXAMPLE");
        assert_eq!(error, format!("f.yaml: {expected}"));
    }

    #[test]
    fn one_sentence_with_line_field_and_fix() {
        check("", "the file is empty; EXAMPLE");
        check("# only words\n\n", "the file is empty; EXAMPLE");
        check(
            "nodes: 4",
            "line 1: unknown field `nodes`, expected one of groups; take it out, or correct its name",
        );
        check(
            "groups: [{count: 1, gpu: {model: x}}]",
            "line 1: unknown field `model`, expected one of product, memory, resource; take it out, or correct its name",
        );
        let required = "line 2: missing field `count`; `groups` and each group's `count` are required";
        check("groups:\n- name: a\n", required);
        let number = "this is not a number from 0 up, or too large a one; write a number such as 8";
        check("groups:\n- name: a\n  count: many\n", &format!("line 3: count: {number}"));
        check("groups:\n- count: -1\n", &format!("line 2: count: {number}"));
        check("groups:\n- count: 1\n  gpus: 99999999999\n", &format!("line 3: gpus: {number}"));
        check("groups: 4", "line 1: groups: this is not a list; EXAMPLE");
        check("groups: [1]", "line 1: this is not a mapping; EXAMPLE");
        check(
            "groups:\n- count: 1\n  labels: [a]\n",
            "line 3: labels: this is not a mapping; write `key: value` pairs, like `{team: research}`",
        );
        check("groups:\n- count: 1\n  count: 2\n", "line 3: `count` is there twice; keep one of them");
        check("just words", "line 1: this is not a mapping; EXAMPLE");
        check("groups: [", "line 1: groups: this is not YAML: unclosed bracket '['; EXAMPLE");
        check(
            "groups:\n- count: 1\n  spot: perhaps\n",
            "line 3: spot: this is neither true nor false; write true or false",
        );
    }

    #[test]
    fn checks_name_the_line_too() {
        let two = "groups:\n- name: a\n  count: 1\n- name: b\n  count: 1\n";
        let with = |more: &str| format!("{two}  {more}\n");
        check(&with("gpus: 5000"), "line 6: groups[1].gpus: 5000 per node is absurd; ask for at most 1024");
        check(
            &with("topology:\n    zone: a\n    nodesPerRack: 0"),
            "line 8: groups[1].topology.nodesPerRack: 0 leaves no place for a node; write 1 or more",
        );
        check(
            &two.replace("name: b", "name: a"),
            "line 4: groups[1].name: \"a\" is used twice; name each group differently",
        );
        check(
            &with("cpu: lots"),
            "line 6: groups[1].cpu: \"lots\" is not a quantity; write a quantity such as 96, 500m or 768Gi",
        );
        let many = Fleet::simple(usize::MAX, 0).unwrap_err().to_string();
        assert_eq!(
            many,
            format!("--nodes: {} nodes are too many; ask for at most 100000 in all", usize::MAX)
        );
        let gpus = Fleet::simple(1, 9999).unwrap_err().to_string();
        assert_eq!(gpus, "--gpus: 9999 per node is absurd; ask for at most 1024");
    }

    #[test]
    fn hostile_files_get_one_short_line() {
        for text in [
            "\u{0}\u{1}",
            "groups:\n\t- count: 1",
            "groups: [{count: 1, ünï: 2}]",
            &"[".repeat(5000),
            &"a".repeat(100_000),
        ] {
            let error = Fleet::parse("f.yaml", text, 0).expect_err("this must be refused").to_string();
            assert!(!error.contains('\n') && error.len() < 1000, "{error}");
        }
    }
}
