//! The sample manifests and the verdict each must get (`data/samples.yaml`).
//!
//! In: a cluster with Muster's CRDs and the folder of samples. Out: for each file what `kubectl create` came to. The
//! samples of other projects are tried as a dry run, since they share names; the founding manifests are really created.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::script::{Said, Shell};

/// What became of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Every object was taken.
    Accepted,
    /// The server refused at least one object.
    Refused,
    /// At least one kind is not installed, and nothing else is wrong.
    NoKind,
    /// kubectl could not read the file.
    Unreadable,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Verdict::Accepted => "accepted",
            Verdict::Refused => "refused",
            Verdict::NoKind => "no-kind",
            Verdict::Unreadable => "unreadable",
        })
    }
}

/// The data file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Expectations {
    foreign: Vec<Foreign>,
    samples: Vec<Sample>,
    webhook_samples: Vec<WebhookSample>,
    seeds: Vec<Seed>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Foreign {
    kind: String,
    version: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sample {
    file: String,
    verdict: Verdict,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WebhookSample {
    file: String,
    why: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Seed {
    file: String,
    readme: Readme,
    verdict: Verdict,
    #[serde(default)]
    webhook: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Readme {
    Works,
    Output,
    Later,
    Refused,
    Warned,
}

/// What one file got.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The verdict.
    pub verdict: Verdict,
    /// What kubectl said, without what differs between two runs.
    pub text: String,
}

impl Expectations {
    /// Reads the data file.
    ///
    /// # Errors
    /// When it is not what its head says, or contradicts itself.
    pub fn read() -> Result<Expectations> {
        let read: Expectations =
            serde_saphyr::from_str(include_str!("../data/samples.yaml")).context("data/samples.yaml")?;
        for seed in &read.seeds {
            let agrees = match (seed.readme, &seed.webhook) {
                (Readme::Refused, Some(_)) => seed.verdict == Verdict::Accepted,
                (Readme::Refused, None) => matches!(seed.verdict, Verdict::Refused | Verdict::NoKind),
                (Readme::Works | Readme::Warned, None) => seed.verdict == Verdict::Accepted,
                // Shortened in its document: `...` is not YAML.
                (Readme::Later, None) => matches!(seed.verdict, Verdict::Accepted | Verdict::Unreadable),
                (Readme::Output, None) => true,
                (_, Some(_)) => false,
            };
            anyhow::ensure!(
                agrees,
                "seeds/{}: {:?} does not go with {}",
                seed.file,
                seed.readme,
                seed.verdict
            );
        }
        anyhow::ensure!(
            read.webhook_samples.iter().all(|sample| !sample.why.is_empty()),
            "a reason is missing"
        );
        Ok(read)
    }

    /// The verdict that `file` (`folder/name`) must get.
    pub fn verdict(&self, file: &str) -> Option<Verdict> {
        if let Some(seed) = file.strip_prefix("seeds/") {
            return self.seeds.iter().find(|s| s.file == seed).map(|s| s.verdict);
        }
        let named = self.samples.iter().find(|s| s.file == file).map(|s| s.verdict);
        Some(named.unwrap_or(Verdict::Accepted))
    }

    /// The files that this data names.
    pub fn files(&self) -> Vec<String> {
        let samples = self.samples.iter().map(|s| s.file.clone());
        let webhook = self.webhook_samples.iter().map(|s| s.file.clone());
        samples.chain(webhook).chain(self.seeds.iter().map(|s| format!("seeds/{}", s.file))).collect()
    }

    /// Whether a missing kind is one of another project.
    pub fn is_foreign(&self, kind: &str, version: &str) -> bool {
        self.foreign.iter().any(|f| f.kind == kind && f.version == version)
    }
}

/// The folder of samples beside the workspace.
///
/// # Errors
/// When it is not there.
pub fn samples_dir() -> Result<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/samples");
    anyhow::ensure!(dir.is_dir(), "no ../shared/samples beside the workspace");
    Ok(dir)
}

/// Tries every manifest, in the order of their names, the founding ones last.
///
/// # Errors
/// When the folder cannot be read or kubectl cannot be started.
pub fn try_all(shell: &Shell, dir: &Path) -> Result<BTreeMap<String, Outcome>> {
    let mut outcomes = BTreeMap::new();
    let setup = |command: &str| -> Result<()> {
        let said = shell.run(command, "")?;
        anyhow::ensure!(said.exit == 0, "{command}: {}{}", said.out, said.err);
        Ok(())
    };
    setup("kubectl create namespace samples && kubectl config set-context --current --namespace=samples")?;
    setup("until kubectl get serviceaccount default; do sleep 0.2; done")?;
    let quoted = |file: &Path| format!("'{}'", file.display());
    let mut try_file = |folder: &str, name: &str, flags: &str| -> Result<()> {
        let said =
            shell.run(&format!("kubectl create {flags} -f {}", quoted(&dir.join(folder).join(name))), "")?;
        outcomes.insert(format!("{folder}/{name}"), judge(&said, dir));
        Ok(())
    };
    for folder in ["grove", "kai", "koordinator", "kueue", "volcano"] {
        for name in manifests(&dir.join(folder))? {
            try_file(folder, &name, "--dry-run=server")?;
        }
    }
    // Namespaces, priority classes and queues that the rest names.
    setup(&format!("kubectl create -f {}", quoted(&dir.join("seeds/prerequisites.yaml"))))?;
    for name in manifests(&dir.join("t9k"))? {
        try_file("t9k", &name, "--dry-run=server")?;
    }
    for name in manifests(&dir.join("seeds"))? {
        if name != "prerequisites.yaml" {
            try_file("seeds", &name, "")?;
        }
    }
    Ok(outcomes)
}

/// What kubectl's words come to.
fn judge(said: &Said, dir: &Path) -> Outcome {
    let errors: Vec<&str> = said
        .err
        .lines()
        .filter(|line| !line.starts_with("Warning:") && !line.starts_with("ensure CRDs are installed"))
        .filter(|line| !line.trim().is_empty())
        .collect();
    let no_kind = |line: &&str| line.contains("no matches for kind ");
    let unreadable = |line: &&str| {
        ["error parsing ", "unable to decode ", "error converting YAML"]
            .iter()
            .any(|words| line.contains(words))
    };
    let verdict = if said.exit == 0 {
        Verdict::Accepted
    } else if errors.iter().all(no_kind) {
        Verdict::NoKind
    } else if errors.iter().any(unreadable) {
        Verdict::Unreadable
    } else {
        Verdict::Refused
    };
    let text = format!("{}{}", said.out, said.err).replace(&dir.display().to_string(), "");
    Outcome { verdict, text: without_suffixes(&text) }
}

/// `sample-job-x7k2p created` has a random end. The lines of one answer come in the order of the file, causes in any.
fn without_suffixes(text: &str) -> String {
    let mut lines: Vec<String> = text
        .lines()
        .map(|line| match line.split_once(" created") {
            Some((name, rest)) if name.len() > 5 => {
                let made =
                    name.char_indices().rev().nth(4).map_or(name, |(at, _)| name.get(..at).unwrap_or(name));
                format!("{made}* created{rest}")
            }
            _ => line.to_owned(),
        })
        .collect();
    lines.sort();
    lines.join("\n")
}

/// The kinds that were missing, with their versions.
pub fn missing_kinds(text: &str) -> Vec<(String, String)> {
    text.lines()
        .filter_map(|line| {
            let (_, rest) = line.split_once("no matches for kind \"")?;
            let (kind, rest) = rest.split_once("\" in version \"")?;
            Some((kind.to_owned(), rest.split('"').next()?.to_owned()))
        })
        .collect()
}

fn manifests(dir: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".yaml") || name.ends_with(".yml") || name.ends_with(".json") {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(exit: i32, err: &str, expected: Verdict) {
        let said = Said { exit, out: String::new(), err: err.to_owned() };
        assert_eq!(judge(&said, Path::new("/samples")).verdict, expected, "{err}");
    }

    #[test]
    fn judges_by_what_kubectl_says() {
        let no_kind = "error: resource mapping not found for name: \"a\" namespace: \"\" from \"f\": no matches for kind \"K\" in version \"g/v1\"\nensure CRDs are installed first\n";
        check(0, "Warning: This version is deprecated.\n", Verdict::Accepted);
        check(1, no_kind, Verdict::NoKind);
        check(
            1,
            &format!("The Pod \"\" is invalid: \n* metadata.name: Required value\n{no_kind}"),
            Verdict::Refused,
        );
        check(
            1,
            "error: error parsing f: error converting YAML to JSON: yaml: line 14\n",
            Verdict::Unreadable,
        );
        assert_eq!(missing_kinds(no_kind), [("K".to_owned(), "g/v1".to_owned())]);
    }

    #[test]
    fn the_data_does_not_contradict_itself() {
        Expectations::read().unwrap();
    }
}
