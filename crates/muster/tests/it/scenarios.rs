//! Decisions from files, as a user runs them: `test`, `simulate` and `explain`.

use std::path::Path;
use std::process::{Command, Output};

fn muster(args: &[&str]) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    Command::new(env!("CARGO_BIN_EXE_muster")).args(args).current_dir(root).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A queue with room for two GPUs, one node with four, and a gang of three.
const SHORT: &str = r#"
apiVersion: v1
kind: Node
metadata: {name: a}
status: {allocatable: {cpu: "8", memory: 32Gi, pods: "110", nvidia.com/gpu: "4"}, conditions: [{type: Ready, status: "True"}]}
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: team}
spec:
  resources:
    cpu: {quota: -1, limit: -1, overQuotaWeight: 1}
    memory: {quota: -1, limit: -1, overQuotaWeight: 1}
    gpu: {quota: 2, limit: 2, overQuotaWeight: 1}
---
apiVersion: scheduling.run.ai/v2alpha2
kind: PodGroup
metadata: {name: train, namespace: default}
spec: {queue: team, minMember: 3}
"#;

fn manifest() -> tempdir::Dir {
    let mut all = SHORT.to_string();
    for i in 0..3 {
        all.push_str(&format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: train-{i}, namespace: default, annotations: {{pod-group-name: train}}}}\nspec: {{schedulerName: kai-scheduler, containers: [{{name: c, image: i, resources: {{limits: {{nvidia.com/gpu: '1'}}}}}}]}}\n"
        ));
    }
    tempdir::Dir::with("short.yaml", &all)
}

/// A folder that is gone when the test is over.
mod tempdir {
    use std::path::{Path, PathBuf};

    pub struct Dir(PathBuf);

    impl Dir {
        pub fn with(name: &str, content: &str) -> Self {
            static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
            let n = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let dir = std::env::temp_dir().join(format!("muster-it-{}-{n}", std::process::id()));
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join(name), content).unwrap();
            Self(dir)
        }

        pub fn file(&self, name: &str) -> String {
            Path::new(&self.0).join(name).to_str().unwrap().to_string()
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

#[test]
fn the_examples_pass_and_the_last_line_counts() {
    let output = muster(&["test", "tests/scenarios"]);
    let out = text(&output.stdout);
    let last = out.lines().last().unwrap_or_default();
    assert!(output.status.success(), "{out}\n{}", text(&output.stderr));
    assert!(last.ends_with(" passed, 0 failed, 0 skipped"), "{last}");
}

#[test]
fn a_wrong_expectation_fails_with_a_difference() {
    let case = "name: wrong\ncluster:\n  nodes: [{name: a, gpu: 1}]\n  queues: [{name: q}]\n  gangs: [{name: g, gpu: 2}]\nexpect:\n  gangs: {g: bound}\n";
    let dir = tempdir::Dir::with("wrong.yaml", case);
    let output = muster(&["test", &dir.file("wrong.yaml"), "-o", "json"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["passed"], &report["failed"]), (&0.into(), &1.into()));
    assert_eq!(report["cases"][0]["ok"], false);
    assert!(report["cases"][0]["why"].to_string().contains('g'), "{report}");
}

#[test]
fn what_is_simulated_can_be_explained() {
    let dir = manifest();
    let file = dir.file("short.yaml");
    let output = muster(&["simulate", "-f", &file, "-o", "json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(
        !report.to_string().contains("\"train-0\":\"a\""),
        "a gang over its queue's limit is not bound: {report}"
    );
    let output = muster(&["explain", "-f", &file, "podgroup/train"]);
    let out = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(out.contains("limit") && out.contains("team"), "{out}");
}
