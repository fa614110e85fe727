//! Templates: text with paths in braces, as `kubectl -o jsonpath=..` takes them. In: a template and any JSON. Out:
//! text. Several values of one path are joined by blanks; `{range ..}` repeats what follows up to `{end}`.

use serde_json::Value;

use super::eval::Evaluator;
use super::{JsonPathError, Step, parse, print};

/// A parsed template.
///
/// ```
/// use k8s_table::Template;
/// use serde_json::json;
///
/// let list = json!({"items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]});
/// let names = Template::parse("{.items[*].metadata.name}")?;
/// assert_eq!(names.render(&list)?, "a b");
/// let lines = Template::parse(r#"{range .items[*]}{.metadata.name}{"\n"}{end}"#)?;
/// assert_eq!(lines.render(&list)?, "a\nb\n");
/// # Ok::<(), k8s_table::JsonPathError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Text(String),
    Path(Vec<Step>),
    Range(Vec<Step>, Vec<Part>),
}

/// How deep ranges may nest.
const MAX_DEPTH: usize = 32;

impl Template {
    /// Reads a template. A range that is not ended goes on to the end of the text.
    pub fn parse(text: &str) -> Result<Self, JsonPathError> {
        if text.len() > parse::MAX_LENGTH {
            return Err(JsonPathError::TooLong { limit: parse::MAX_LENGTH });
        }
        // The innermost open range is last; the first one is the template itself.
        let mut open: Vec<(Vec<Step>, Vec<Part>)> = vec![(Vec::new(), Vec::new())];
        let mut at = 0;
        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
            let n_text = rest.find('{').unwrap_or(rest.len());
            if n_text > 0 {
                push(&mut open, Part::Text(rest[..n_text].to_owned()));
                at += n_text;
                continue;
            }
            let shifted = |error| match error {
                JsonPathError::Syntax { at: inner, problem } => {
                    JsonPathError::Syntax { at: at + 1 + inner, problem }
                }
                other => other,
            };
            let (mut steps, n_path) = parse::path_in_braces(&rest[1..]).map_err(shifted)?;
            match steps.first() {
                Some(Step::Identifier(word)) if word == "range" => {
                    if open.len() > MAX_DEPTH {
                        return Err(JsonPathError::Syntax { at, problem: "ranges are nested too deep" });
                    }
                    steps.remove(0);
                    open.push((steps, Vec::new()));
                }
                Some(Step::Identifier(word)) if word == "end" => {
                    if open.len() < 2 {
                        return Err(JsonPathError::Syntax { at, problem: "not in range, nothing to end" });
                    }
                    close(&mut open);
                }
                _ => push(&mut open, Part::Path(steps)),
            }
            at += 1 + n_path;
        }
        while open.len() > 1 {
            close(&mut open);
        }
        Ok(Template { parts: open.pop().map(|(_, parts)| parts).unwrap_or_default() })
    }

    /// The text for an object.
    pub fn render(&self, object: &Value) -> Result<String, JsonPathError> {
        let mut text = String::new();
        render(&self.parts, object, &mut Evaluator::new(), &mut text)?;
        Ok(text)
    }
}

fn push(open: &mut [(Vec<Step>, Vec<Part>)], part: Part) {
    if let Some((_, parts)) = open.last_mut() {
        parts.push(part);
    }
}

fn close(open: &mut Vec<(Vec<Step>, Vec<Part>)>) {
    if let Some((steps, parts)) = open.pop() {
        push(open, Part::Range(steps, parts));
    }
}

fn render(
    parts: &[Part],
    object: &Value,
    evaluator: &mut Evaluator,
    text: &mut String,
) -> Result<(), JsonPathError> {
    for part in parts {
        match part {
            Part::Text(plain) => text.push_str(plain),
            Part::Path(steps) => {
                for (place, value) in evaluator.follow(steps, vec![object])?.into_iter().enumerate() {
                    if place > 0 {
                        text.push(' ');
                    }
                    text.push_str(&print::text_of(value)?);
                    if text.len() > print::MAX_TEXT {
                        return Err(JsonPathError::TooLarge);
                    }
                }
            }
            Part::Range(steps, body) => {
                for value in evaluator.follow(steps, vec![object])? {
                    // An empty body costs a visit too, so that nested ranges end.
                    evaluator.follow(&[], vec![value])?;
                    render(body, value, evaluator, text)?;
                }
            }
        }
        if text.len() > print::MAX_TEXT {
            return Err(JsonPathError::TooLarge);
        }
    }
    Ok(())
}
