//! How a suite went: as text for people, as JSON for scripts, as JUnit XML for CI.

use crate::suite::FileCount;
use serde_json::{Map, Value, json};
use std::fmt::Write;

#[derive(Clone, Debug, Default)]
pub struct Report {
    pub cases: Vec<Written>,
}

/// What is written about one case.
#[derive(Clone, Debug)]
pub struct Written {
    pub id: String,
    pub name: String,
    pub file: String,
    pub verdict: Verdict,
    /// Why gangs wait, and what is wrong with the input.
    pub explanation: Vec<String>,
    pub actual: Option<Value>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Passed,
    /// What differs, a line each.
    Failed(Vec<String>),
    Skipped(String),
}

impl Report {
    /// Passed, failed, skipped.
    pub fn counts(&self) -> (usize, usize, usize) {
        let n = |f: fn(&Verdict) -> bool| self.cases.iter().filter(|c| f(&c.verdict)).count();
        (
            n(|v| *v == Verdict::Passed),
            n(|v| matches!(v, Verdict::Failed(_))),
            n(|v| matches!(v, Verdict::Skipped(_))),
        )
    }

    pub fn ok(&self) -> bool {
        self.counts().1 == 0
    }

    /// `3 passed, 1 failed, 0 skipped`.
    pub fn summary(&self) -> String {
        let (passed, failed, skipped) = self.counts();
        format!("{passed} passed, {failed} failed, {skipped} skipped")
    }

    /// How each file went, in order.
    pub fn by_file(&self) -> Vec<FileCount> {
        let mut files: Vec<FileCount> = Vec::new();
        for case in &self.cases {
            if files.last().is_none_or(|f| f.file != case.file) {
                files.push(FileCount { file: case.file.clone(), passed: 0, failed: 0, skipped: 0 });
            }
            let Some(count) = files.last_mut() else { continue };
            match case.verdict {
                Verdict::Passed => count.passed += 1,
                Verdict::Failed(_) => count.failed += 1,
                Verdict::Skipped(_) => count.skipped += 1,
            }
        }
        files
    }

    /// A paragraph per failure, what was skipped in short, and the summary as the last line. With `verbose`, a line per case.
    pub fn text(&self, verbose: bool) -> String {
        let mut text = String::new();
        for case in &self.cases {
            text.push_str(&case.text(verbose));
        }
        let mut skipped: Vec<(&str, usize)> = Vec::new();
        for case in &self.cases {
            if let Verdict::Skipped(why) = &case.verdict {
                match skipped.iter_mut().find(|(w, _)| w == why) {
                    Some((_, n)) => *n += 1,
                    None => skipped.push((why, 1)),
                }
            }
        }
        for (why, n) in skipped {
            let _ = writeln!(text, "skipped {n}: {why}");
        }
        let _ = writeln!(text, "{}", self.summary());
        text
    }

    pub fn json(&self) -> Value {
        let (passed, failed, skipped) = self.counts();
        let cases: Vec<Value> = self.cases.iter().map(Written::json).collect();
        json!({"passed": passed, "failed": failed, "skipped": skipped, "cases": cases})
    }

    pub fn junit(&self) -> String {
        let (_, failed, skipped) = self.counts();
        let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        let all = self.cases.len();
        let _ = writeln!(text, "<testsuites tests=\"{all}\" failures=\"{failed}\" skipped=\"{skipped}\">");
        for file in self.by_file() {
            let tests = file.passed + file.failed + file.skipped;
            let _ = writeln!(
                text,
                "  <testsuite name=\"{}\" tests=\"{tests}\" failures=\"{}\" skipped=\"{}\">",
                xml(&file.file),
                file.failed,
                file.skipped
            );
            for case in self.cases.iter().filter(|c| c.file == file.file) {
                let _ = write!(
                    text,
                    "    <testcase classname=\"{}\" name=\"{}\"",
                    xml(&file.file),
                    xml(&case.id)
                );
                match &case.verdict {
                    Verdict::Passed => text.push_str("/>\n"),
                    Verdict::Failed(why) => {
                        let first = why.first().map(String::as_str).unwrap_or_default();
                        let body: Vec<&str> =
                            why.iter().chain(&case.explanation).map(String::as_str).collect();
                        let _ = writeln!(
                            text,
                            ">\n      <failure message=\"{}\">{}</failure>\n    </testcase>",
                            xml(first),
                            xml(&body.join("\n"))
                        );
                    }
                    Verdict::Skipped(why) => {
                        let _ =
                            writeln!(text, ">\n      <skipped message=\"{}\"/>\n    </testcase>", xml(why));
                    }
                }
            }
            text.push_str("  </testsuite>\n");
        }
        text.push_str("</testsuites>\n");
        text
    }
}

impl Written {
    /// What there is to read about the case; nothing for one that passed, unless `verbose` or explained.
    pub fn text(&self, verbose: bool) -> String {
        let mut text = String::new();
        let name = if self.name.is_empty() || self.id.ends_with(&self.name) {
            String::new()
        } else {
            format!("  {}", self.name)
        };
        match &self.verdict {
            Verdict::Failed(why) => {
                let _ = writeln!(text, "FAILED  {}{name}", self.id);
                for line in why {
                    let _ = writeln!(text, "    {line}");
                }
            }
            Verdict::Passed if verbose || !self.explanation.is_empty() => {
                let _ = writeln!(text, "passed  {}{name}", self.id);
            }
            Verdict::Skipped(why) if verbose => {
                let _ = writeln!(text, "skipped {}: {why}", self.id);
            }
            Verdict::Passed | Verdict::Skipped(_) => return text,
        }
        for line in &self.explanation {
            let _ = writeln!(text, "      {line}");
        }
        text
    }

    fn json(&self) -> Value {
        let mut map = Map::new();
        map.insert("id".into(), json!(self.id));
        map.insert("file".into(), json!(self.file));
        map.insert("ok".into(), json!(self.verdict == Verdict::Passed));
        match &self.verdict {
            Verdict::Passed => {}
            Verdict::Failed(why) => {
                map.insert("why".into(), json!(why.join("\n")));
            }
            Verdict::Skipped(why) => {
                // Not looked at is not the same as good.
                map.insert("skipped".into(), json!(true));
                map.insert("why".into(), json!(why));
            }
        }
        if !self.explanation.is_empty() {
            map.insert("explanation".into(), json!(self.explanation));
        }
        if let Some(actual) = &self.actual {
            map.insert("actual".into(), actual.clone());
        }
        Value::Object(map)
    }
}

/// Text inside XML. Control characters have no form there at all.
fn xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push_str("&#10;"),
            c if c.is_control() && c != '\t' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
