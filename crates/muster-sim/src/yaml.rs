//! What is wrong with a file that does not read as a list of things, in one sentence.
//!
//! In: the text and the parser's error. Out: the line, the field and what to write instead.
//! Must stay true: the message is one line, whatever the file holds.

use muster_runtime::spelling;
use serde_saphyr::{Error, RenderOptions, SnippetMode};

/// A kind of file.
pub struct Format {
    /// The field that has the list.
    pub list: &'static str,
    /// What to write, for somebody who has no idea.
    pub example: &'static str,
    /// Which fields there must be.
    pub required: &'static str,
}

/// What is wrong, where, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub place: Place,
    pub problem: String,
    pub fix: String,
}

/// Where in a file something is: the line and, if it can be told, the field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    pub line: Option<u64>,
    pub field: Option<String>,
}

impl Place {
    pub fn field(name: impl Into<String>) -> Self {
        Place { line: None, field: Some(name.into()) }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        match &self.field {
            Some(field) => write!(f, "{field}: "),
            None => Ok(()),
        }
    }
}

/// What is shown of a message that quotes the file at length.
const LONGEST: usize = 300;

pub fn explain(format: &Format, text: &str, error: &Error) -> Refusal {
    let blank = text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
    if blank {
        let fix = format.example.to_owned();
        return Refusal { place: Place::default(), problem: "the file is empty".into(), fix };
    }
    let mut options = RenderOptions::default();
    options.snippets = SnippetMode::Off;
    let whole = error.without_snippet().render_with_options(options);
    let (problem, line) = split_location(&whole);
    let location = error.location().filter(|l| l.line() > 0);
    let line = location.map(|l| l.line()).or(line);
    let column = location.map_or(0, |l| l.column());
    let field = line.and_then(|line| field_before(text, line, column));
    let (problem, fix) = reword(format, &problem, field.as_deref());
    Refusal { place: Place { line, field }, problem, fix }
}

/// Adds the line to a place that names a field of an item of the list: where the field stands, or else where the item begins.
/// `begins`: the line of each item.
pub fn locate(format: &Format, mut place: Place, text: &str, begins: &[u64]) -> Place {
    if let Some((i, name)) = place.field.as_deref().and_then(|field| split_field(format.list, field))
        && let Some(begin) = begins.get(i).copied().filter(|line| *line > 0)
    {
        let end = begins.get(i + 1).copied().filter(|end| *end > begin).unwrap_or(u64::MAX);
        let key = format!("{name}:");
        let lines = (1_u64..).zip(text.lines()).skip_while(|(n, _)| *n < begin);
        let found = lines.take_while(|(n, _)| *n < end).find(|(_, line)| line.contains(&key));
        place.line = Some(found.map_or(begin, |(n, _)| n));
    }
    place
}

/// The number of the item and the last name of `groups[3].topology.zone`.
fn split_field<'a>(list: &str, field: &'a str) -> Option<(usize, &'a str)> {
    let (i, rest) = field.strip_prefix(list)?.strip_prefix('[')?.split_once("].")?;
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
fn reword(format: &Format, problem: &str, field: Option<&str>) -> (String, String) {
    let same = || problem.to_owned();
    let (problem, fix) = match problem {
        "invalid u64" | "invalid u32" | "invalid usize" => {
            ("this is not a number from 0 up, or too large a one".into(), "write a number such as 8")
        }
        "invalid boolean" => ("this is neither true nor false".into(), "write true or false"),
        "expected mapping start" if field.is_some() => {
            ("this is not a mapping".into(), "write `key: value` pairs, like `{team: research}`")
        }
        "expected mapping start" => ("this is not a mapping".into(), format.example),
        "expected sequence start" if field != Some(format.list) => {
            ("this is not a list".into(), "write a list, like `[a, b]`")
        }
        "expected sequence start" => ("this is not a list".into(), format.example),
        _ if problem.starts_with("unknown field") => {
            return match meant(problem) {
                Some(name) => (same(), format!("did you mean `{name}`?")),
                None => (same(), "take it out, or correct its name".into()),
            };
        }
        _ if problem.starts_with("missing field") => (same(), format.required),
        _ if problem.starts_with("duplicate mapping key") => {
            let key = problem.split([':', ',']).nth(1).unwrap_or_default().trim();
            (format!("`{key}` is there twice"), "keep one of them")
        }
        "invalid floating point value" => ("this is not a number".into(), "write a number such as 0.5"),
        _ => (format!("this is not YAML: {problem}"), format.example),
    };
    (problem, fix.to_owned())
}

/// The field that somebody had in mind, by "unknown field `cout`, expected one of name, count".
fn meant(problem: &str) -> Option<&str> {
    let (unknown, known) = problem.strip_prefix("unknown field `")?.split_once("`, expected one of ")?;
    spelling::nearest(unknown, known.split(", "))
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
