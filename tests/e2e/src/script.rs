//! The kubectl script (`data/kubectl.yaml`) and what runs it.
//!
//! In: a cluster. Out: the steps that did not do what the script says. One list for both servers: a step that needs to be
//! different on one of them is a difference between them.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use muster_testkit::{Cluster, find_kubectl, or_skip};
use regex::RegexBuilder;
use serde::Deserialize;

const PATIENCE: Duration = Duration::from_secs(60);

/// One step of the script. The head of the file says what the fields mean.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    run: String,
    #[serde(default)]
    r#in: String,
    #[serde(default)]
    exit: Exit,
    #[serde(default)]
    out: Vec<String>,
    #[serde(default)]
    not: Vec<String>,
    #[serde(default)]
    err: Vec<String>,
    #[serde(default)]
    until: bool,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged)]
enum Exit {
    Code(i32),
    Any(AnyExit),
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum AnyExit {
    Any,
}

impl Default for Exit {
    fn default() -> Exit {
        Exit::Code(0)
    }
}

/// What a command said.
#[derive(Clone, Debug)]
pub struct Said {
    /// The exit code; -1 when a signal ended it.
    pub exit: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

/// A shell with kubectl, a kubeconfig of its own and an empty folder.
#[derive(Debug)]
pub struct Shell {
    dir: PathBuf,
    path: std::ffi::OsString,
}

/// Whether there is a kubectl to test with. If not, it has been said why the test is skipped.
///
/// # Errors
/// With `CI=true`, when there is none.
pub async fn has_kubectl() -> Result<bool> {
    Ok(or_skip(tokio::task::spawn_blocking(find_kubectl).await?)?.is_some())
}

/// The script.
///
/// # Errors
/// When the file is not what its head says, or a pattern is not a regular expression.
pub fn script() -> Result<Vec<Step>> {
    let steps: Vec<Step> =
        serde_saphyr::from_str(include_str!("../data/kubectl.yaml")).context("data/kubectl.yaml")?;
    for step in &steps {
        for text in step.out.iter().chain(&step.not).chain(&step.err) {
            pattern(text).with_context(|| format!("{}: {text}", step.run))?;
        }
    }
    Ok(steps)
}

/// Runs every step and returns what went wrong, one text per step.
///
/// # Errors
/// When a command cannot be started.
pub fn run(steps: &[Step], shell: &Shell) -> Result<Vec<String>> {
    let mut failures = Vec::new();
    for (n, step) in steps.iter().enumerate() {
        let start = Instant::now();
        loop {
            let said = shell.run(&step.run, &step.r#in)?;
            let wrong = step.wrong(&said)?;
            if wrong.is_empty() {
                break;
            }
            if !step.until || start.elapsed() > PATIENCE {
                let indented =
                    |text: &str| text.lines().map(|line| format!("      {line}\n")).collect::<String>();
                failures.push(format!(
                    "step {n}: {}\n    {}\n    exit {}, standard output:\n{}    standard error:\n{}",
                    step.run.trim_end(),
                    wrong.join("\n    "),
                    said.exit,
                    indented(&said.out),
                    indented(&said.err)
                ));
                break;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    Ok(failures)
}

impl Step {
    fn wrong(&self, said: &Said) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        if let Exit::Code(code) = self.exit
            && said.exit != code
        {
            wrong.push(format!("exit code {} instead of {code}", said.exit));
        }
        for (patterns, text, expected, stream) in [
            (&self.out, &said.out, true, "standard output"),
            (&self.not, &said.out, false, "standard output"),
            (&self.err, &said.err, true, "standard error"),
        ] {
            for text_of_pattern in patterns {
                if pattern(text_of_pattern)?.is_match(text) != expected {
                    let matches = if expected { "does not match" } else { "matches" };
                    wrong.push(format!("{stream} {matches} {text_of_pattern}"));
                }
            }
        }
        Ok(wrong)
    }
}

impl Shell {
    /// A shell that speaks to `cluster`. `name` tells its folder from those of other tests.
    ///
    /// # Errors
    /// When there is no kubectl, or no folder can be made.
    pub fn new(cluster: &Cluster, name: &str) -> Result<Shell> {
        let kubectl = find_kubectl()?;
        let dir = std::env::temp_dir().join(format!("muster-{name}-{}-{}", cluster.name, std::process::id()));
        std::fs::create_dir_all(dir.join("work")).with_context(|| dir.display().to_string())?;
        std::fs::copy(&cluster.kubeconfig, dir.join("kubeconfig")).context("copy the kubeconfig")?;
        let first = kubectl.parent().map(Path::to_owned).unwrap_or_default();
        let old = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(std::iter::once(first).chain(std::env::split_paths(&old)))?;
        Ok(Shell { dir, path })
    }

    /// The folder that commands see as `$W`.
    pub fn work(&self) -> PathBuf {
        self.dir.join("work")
    }

    /// Runs one command of the shell language.
    ///
    /// # Errors
    /// When the shell cannot be started.
    pub fn run(&self, command: &str, input: &str) -> Result<Said> {
        let mut child = Command::new("sh")
            .args(["-c", command])
            .env("PATH", &self.path)
            .env("KUBECONFIG", self.dir.join("kubeconfig"))
            .env("KUBECACHEDIR", self.dir.join("cache"))
            .env("HOME", &self.dir)
            .env("W", self.work())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("start sh")?;
        let mut stdin = child.stdin.take().context("standard input is piped")?;
        let input = input.to_owned();
        // Written beside the reading: a long manifest must not fill one pipe while another is full. Commands that do not
        // read close the pipe early, and that is their right.
        let writer = std::thread::spawn(move || {
            let _ = stdin.write_all(input.as_bytes());
        });
        let output = child.wait_with_output()?;
        let _ = writer.join();
        Ok(Said {
            exit: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn pattern(text: &str) -> Result<regex::Regex> {
    Ok(RegexBuilder::new(text).multi_line(true).build()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(step: &str, said: (i32, &str, &str), expected: &[&str]) {
        let step: Step = serde_saphyr::from_str(step).unwrap();
        let said = Said { exit: said.0, out: said.1.to_owned(), err: said.2.to_owned() };
        assert_eq!(step.wrong(&said).unwrap(), expected);
    }

    #[test]
    fn a_step_says_what_is_wrong() {
        check("{run: x, out: ['^b$']}", (0, "a\nb\n", ""), &[]);
        check("{run: x, out: ['^c$']}", (0, "a\nb\n", ""), &["standard output does not match ^c$"]);
        check("{run: x, not: [a]}", (0, "a\n", ""), &["standard output matches a"]);
        check(
            "{run: x, exit: 1, err: [bad]}",
            (0, "", ""),
            &["exit code 0 instead of 1", "standard error does not match bad"],
        );
        check("{run: x, exit: any}", (7, "", ""), &[]);
    }

    #[test]
    fn the_script_is_well_formed() {
        assert!(script().unwrap().len() > 150);
    }
}
