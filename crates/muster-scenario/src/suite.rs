//! Many cases from files and folders: read them, run them, report.
//!
//! In: paths. Out: a [`Report`]. A file or a line that cannot be read is a failed case of its own, and so is a case in which anything
//! panics: one bad case never hides the others.

use crate::case::{Case, cases_of, is_scenario};
use crate::compare::compare;
use crate::files::{FileError, Found, object_files, read_text, scenario_files};
use crate::manifest::{manifests, objects_of};
use crate::play::{PlayError, play};
use crate::report::{Report, Verdict, Written};
use crate::{actual, words};
use serde_json::Value;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// Cases, in the order of their files.
#[derive(Debug, Default)]
pub struct Suite {
    items: Vec<Item>,
}

#[derive(Debug)]
struct Item {
    file: PathBuf,
    id: String,
    case: Result<Case, String>,
}

/// How to run a suite.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Only cases whose id, name or file contains this.
    pub filter: Option<String>,
    /// Say why gangs wait.
    pub explain: bool,
    /// Keep what came out of every case.
    pub actual: bool,
}

/// How the cases of one file went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileCount {
    pub file: String,
    pub passed: usize,
    pub failed: usize,
    pub skipped: usize,
}

impl Suite {
    /// Reads every scenario of files and folders.
    pub fn read(paths: &[PathBuf]) -> Result<Self, FileError> {
        let mut suite = Self::default();
        for Found { path, named } in scenario_files(paths)? {
            let text = read_text(&path)?;
            suite.read_file(&path, &text, named);
        }
        Ok(suite)
    }

    /// Adds the scenarios of one text, as if it had been read from `path`.
    pub fn read_file(&mut self, path: &Path, text: &str, named: bool) {
        let stem = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        let file = path.display().to_string();
        if path.extension().is_some_and(|e| e == "jsonl") {
            for (i, line) in text.lines().enumerate() {
                let at = format!("{file}:{}", i + 1);
                if line.trim().is_empty() {
                    continue;
                }
                match serde_json::from_str::<Value>(line) {
                    Ok(document) => self.add(path, &at, &document, &stem),
                    Err(error) => self.fail(path, at, format!("this is not JSON: {error}")),
                }
            }
            return;
        }
        let documents = match manifests(text) {
            Ok(documents) => documents,
            // Templates and the like lie in the same folders; only what was named must be readable.
            Err(_) if !named && !text.contains("expect:") => return,
            Err(error) => return self.fail(path, file, error),
        };
        let mut any = false;
        for (i, document) in documents.iter().enumerate() {
            let scenario = match document {
                Value::Array(items) => items.iter().any(is_scenario),
                one => is_scenario(one),
            };
            if scenario {
                any = true;
                let at =
                    if documents.len() == 1 { file.clone() } else { format!("{file}, document {}", i + 1) };
                self.add(path, &at, document, &stem);
            } else if document.get("kind").is_none() && (named || any) {
                any = true;
                let at = format!("{file}, document {}", i + 1);
                self.fail(path, at, "this is neither a scenario (it has no `expect`) nor a manifest".into());
            }
        }
        if !any && named {
            self.fail(
                path,
                file,
                "there is no scenario in this file; a scenario has `expect` or `cases`".into(),
            );
        }
    }

    fn add(&mut self, path: &Path, at: &str, document: &Value, stem: &str) {
        match cases_of(document, stem) {
            Ok(cases) => {
                for case in cases {
                    let id = case.id.clone();
                    let case = with_files(case, path.parent().unwrap_or(Path::new("")));
                    self.items.push(Item { file: path.to_path_buf(), id, case });
                }
            }
            Err(problem) => {
                let id =
                    document.get("id").and_then(Value::as_str).map_or_else(|| at.to_string(), str::to_string);
                let why = if id == at { problem.to_string() } else { format!("{at}: {problem}") };
                self.fail(path, id, why);
            }
        }
    }

    fn fail(&mut self, path: &Path, id: String, why: String) {
        self.items.push(Item { file: path.to_path_buf(), id, case: Err(why) });
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Every case that could be read.
    pub fn cases(&self) -> impl Iterator<Item = &Case> {
        self.items.iter().filter_map(|item| item.case.as_ref().ok())
    }

    /// Runs the cases. `progress` hears of every case before it runs: how many are done, how many there are, and its id.
    pub fn run(&self, options: &Options, progress: &mut dyn FnMut(usize, usize, &str)) -> Report {
        let chosen: Vec<&Item> =
            self.items.iter().filter(|item| item.matches(options.filter.as_deref())).collect();
        let mut report = Report::default();
        for (i, item) in chosen.iter().enumerate() {
            progress(i, chosen.len(), &item.id);
            report.cases.push(item.run(options));
        }
        report
    }
}

impl Item {
    fn matches(&self, filter: Option<&str>) -> bool {
        let Some(filter) = filter else { return true };
        self.id.contains(filter)
            || self.file.to_string_lossy().contains(filter)
            || self.case.as_ref().is_ok_and(|case| case.name.contains(filter))
    }

    fn run(&self, options: &Options) -> Written {
        let mut written = Written {
            id: self.id.clone(),
            name: String::new(),
            file: self.file.display().to_string(),
            verdict: Verdict::Passed,
            explanation: Vec::new(),
            actual: None,
        };
        let case = match &self.case {
            Ok(case) => case,
            Err(why) => {
                written.verdict = Verdict::Failed(vec![why.clone()]);
                return written;
            }
        };
        written.name.clone_from(&case.name);
        let Ran { verdict, explanation, actual } = guarded(|| run_case(case, options));
        Written { verdict, explanation, actual, ..written }
    }
}

/// One case that panics is one case that failed.
fn guarded(run: impl FnOnce() -> Ran) -> Ran {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|payload| {
        let said = payload
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| payload.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        Ran {
            verdict: Verdict::Failed(vec![format!("it panicked: {said}")]),
            explanation: Vec::new(),
            actual: None,
        }
    })
}

struct Ran {
    verdict: Verdict,
    explanation: Vec<String>,
    actual: Option<Value>,
}

fn run_case(case: &Case, options: &Options) -> Ran {
    if let Some(document) = &case.kueue {
        return run_kueue(document, options);
    }
    if let Some(document) = &case.volcano {
        return run_volcano(document, options);
    }
    let outcome = match play(case, options.explain) {
        Ok(outcome) => outcome,
        Err(PlayError::Skipped(why)) => {
            return Ran { verdict: Verdict::Skipped(why), explanation: Vec::new(), actual: None };
        }
    };
    let differences: Vec<String> = compare(case, &outcome).iter().map(ToString::to_string).collect();
    let mut explanation = Vec::new();
    if options.explain {
        explanation.extend(outcome.diagnostics.iter().map(|d| format!("note: {d}")));
        if let Some(moment) = outcome.moments.first() {
            for refusal in moment.refusals.values() {
                explanation.push(words::headline(refusal));
                explanation.extend(words::lines(refusal).into_iter().map(|line| format!("  {line}")));
            }
        }
    } else if !differences.is_empty() {
        // What is wrong with the input is mostly why the outcome is.
        explanation.extend(outcome.diagnostics.iter().map(|d| format!("note: {d}")));
    }
    let verdict = if differences.is_empty() { Verdict::Passed } else { Verdict::Failed(differences) };
    Ran { verdict, explanation, actual: options.actual.then(|| actual(&outcome)) }
}

fn run_kueue(document: &Value, options: &Options) -> Ran {
    let outcome = match crate::kueue::run(document) {
        Ok(outcome) => outcome,
        Err(why) => {
            return Ran { verdict: Verdict::Failed(vec![why]), explanation: Vec::new(), actual: None };
        }
    };
    let mut explanation = Vec::new();
    if options.explain || !outcome.differences.is_empty() {
        explanation.extend(outcome.notes.iter().map(|note| format!("note: {note}")));
        explanation.extend(outcome.words.iter().map(|word| format!("note: in words, {word}")));
    }
    let verdict =
        if outcome.differences.is_empty() { Verdict::Passed } else { Verdict::Failed(outcome.differences) };
    Ran { verdict, explanation, actual: options.actual.then_some(outcome.actual) }
}

fn run_volcano(document: &Value, options: &Options) -> Ran {
    let outcome = match crate::volcano::run(document) {
        Ok(outcome) => outcome,
        Err(why) => return Ran { verdict: Verdict::Skipped(why), explanation: Vec::new(), actual: None },
    };
    let mut explanation = Vec::new();
    if options.explain || !outcome.differences.is_empty() {
        explanation.extend(outcome.notes.iter().map(|note| format!("note: {note}")));
    }
    let verdict =
        if outcome.differences.is_empty() { Verdict::Passed } else { Verdict::Failed(outcome.differences) };
    Ran { verdict, explanation, actual: options.actual.then_some(outcome.actual) }
}

/// Adds the manifests that a case names.
fn with_files(mut case: Case, folder: &Path) -> Result<Case, String> {
    for name in std::mem::take(&mut case.files) {
        let path = folder.join(&name);
        for file in object_files(&[path]).map_err(|e| format!("files: {}", e.in_full()))? {
            let text = read_text(&file.path).map_err(|e| format!("files: {}", e.in_full()))?;
            let shown = file.path.display();
            let objects = objects_of(&text).map_err(|e| format!("files: {shown}: {e}"))?;
            // A folder of manifests may hold this very scenario.
            case.objects.extend(objects.into_iter().filter(|o| file.named || !is_scenario(o)));
        }
    }
    Ok(case)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_failure_with_its_message() {
        let verdict = guarded(|| panic!("node {} is on fire", 7)).verdict;
        assert_eq!(verdict, Verdict::Failed(vec!["it panicked: node 7 is on fire".into()]));
    }
}
