//! The `muster` command as a person runs it: what it prints, where, and how it ends.

#![expect(clippy::unwrap_used, clippy::panic, reason = "that is how a test fails")]

mod chaos;
mod convert;
mod live;
mod scenarios;

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// A home directory of the test's own, removed with it.
struct Home(PathBuf);

impl Home {
    fn new(name: &str) -> Home {
        let folder = std::env::temp_dir().join(format!("muster-test-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Home(folder)
    }

    fn muster(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
        command.args(args).env("MUSTER_HOME", &self.0);
        command
    }

    fn run(&self, args: &[&str]) -> (i32, String, String) {
        let Output { status, stdout, stderr } = self.muster(args).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (status.code().unwrap_or(-1), text(stdout), text(stderr))
    }

    /// Starts `muster up` and waits for the line of JSON that says it is ready.
    fn up(&self, args: &[&str]) -> Up {
        let mut child = self.muster(&["up", "-o", "json"]).args(args).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line:?}"));
        Up { child, said }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Up {
    child: Child,
    said: Value,
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn crds_are_printed_as_documents_or_a_list() {
    let home = Home::new("crds");
    let (code, yaml, _) = home.run(&["crds", "--group", "kueue.x-k8s.io"]);
    assert_eq!(code, 0);
    let documents: Vec<Value> = serde_saphyr::from_multiple(&yaml).unwrap();
    assert!(documents.iter().all(|d| d["spec"]["group"] == "kueue.x-k8s.io"));
    assert_eq!(documents.len(), 11);
    let (_, json, _) = home.run(&["crds", "--group", "kueue", "-o", "json"]);
    let list: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(list["items"].as_array().unwrap(), &documents, "both formats say the same");
    let (_, all, _) = home.run(&["crds", "-o", "json"]);
    let all: Value = serde_json::from_str(&all).unwrap();
    let groups: Vec<&str> =
        all["items"].as_array().unwrap().iter().filter_map(|c| c["spec"]["group"].as_str()).collect();
    assert!(!groups.contains(&"scheduling.k8s.io"), "the gang API of Kubernetes is built in");
}

#[test]
fn an_unknown_group_is_refused_with_the_known_ones() {
    let (code, out, err) = Home::new("group").run(&["crds", "--group", "nowhere.example.com"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.contains("no CRDs in group \"nowhere.example.com\"") && err.contains("hint:"), "{err}");
}

#[test]
fn a_bad_node_file_is_refused_with_its_name() {
    let home = Home::new("file");
    let file = home.0.join("nodes.yaml");
    std::fs::write(&file, "groups:\n- count: 1\n  colour: red\n").unwrap();
    let (code, _, err) = home.run(&["up", "--port", "0", "--file", file.to_str().unwrap()]);
    assert_eq!(code, 1);
    assert!(err.contains("nodes.yaml") && err.contains("colour"), "{err}");
    let (code, _, err) = home.run(&["up", "--port", "0", "--file", "/nowhere/nodes.yaml"]);
    assert_eq!(code, 1);
    assert!(err.contains("/nowhere/nodes.yaml"), "{err}");
}

#[cfg(unix)]
fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[cfg(unix)]
#[test]
fn up_says_where_it_is_and_down_ends_it() {
    let home = Home::new("up");
    let mut first = home.up(&["--port", "0", "--nodes", "3"]);
    let port = first.said["port"].as_u64().unwrap().to_string();
    assert_eq!(first.said["nodes"], 3);
    let kubeconfig = PathBuf::from(first.said["kubeconfig"].as_str().unwrap());
    assert_eq!(mode(&kubeconfig), 0o600, "it holds a token");

    let (code, _, err) = home.run(&["up", "--port", &port]);
    assert_eq!(code, 3);
    assert!(err.contains(&format!("already running on port {port}")) && err.contains("muster down"), "{err}");

    let (code, out, err) = home.run(&["down", "--port", &port]);
    assert_eq!((code, out), (0, format!("stopped the cluster on port {port}\n")), "{err}");
    assert!(first.child.wait().unwrap().success());
    let (code, _, err) = home.run(&["down", "--port", &port]);
    assert_eq!(code, 3);
    assert!(err.contains("nothing"), "{err}");
}

#[test]
fn a_port_of_somebody_else_is_named_as_such() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let (code, _, err) = Home::new("taken").run(&["up", "--port", &port]);
    assert_eq!(code, 1);
    assert!(err.contains("port is taken by another program") && err.contains("--port 0"), "{err}");
}

#[test]
fn a_cluster_that_was_killed_leaves_nothing_in_the_way() {
    let home = Home::new("killed");
    let mut first = home.up(&["--port", "0", "--nodes", "1"]);
    let port = first.said["port"].as_u64().unwrap().to_string();
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    let second = home.up(&["--port", &port, "--nodes", "1", "--no-crds"]);
    assert_eq!(second.said["crds"], 0);
}

#[test]
fn a_cluster_in_a_folder_goes_on_after_a_kill() {
    let home = Home::new("data");
    let folder = home.0.join("lab");
    let folder = folder.to_str().unwrap();
    let mut first = home.up(&["--port", "0", "--nodes", "3", "--data-dir", folder]);
    let port = first.said["port"].as_u64().unwrap();
    let kubeconfig = std::fs::read_to_string(first.said["kubeconfig"].as_str().unwrap()).unwrap();
    let (code, _, err) = home.run(&["up", "--port", "0", "--data-dir", folder]);
    assert_eq!(code, 1);
    assert!(
        err.contains(&format!("in use by process {}", first.child.id())) && err.contains("hint:"),
        "{err}"
    );
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    let (code, _, err) = home.run(&["up", "--data-dir", folder, "--kube-version", "1.35"]);
    assert_eq!(code, 1);
    assert!(err.contains("holds a cluster of Kubernetes 1.36"), "{err}");

    let second = home.up(&["--data-dir", folder]);
    assert_eq!((second.said["port"].as_u64(), second.said["nodes"].as_u64()), (Some(port), Some(3)));
    let again = std::fs::read_to_string(second.said["kubeconfig"].as_str().unwrap()).unwrap();
    assert_eq!(again, kubeconfig, "it stays valid");
    drop(second);
    let third = home.up(&["--data-dir", folder, "--nodes", "5"]);
    assert_eq!(third.said["nodes"], 5, "those that are missing are added");
}

#[test]
fn only_the_asked_for_systems_are_installed() {
    let home = Home::new("groups");
    let up = home.up(&["--port", "0", "--nodes", "0", "--groups", "grove,kueue.x-k8s.io"]);
    assert_eq!(up.said["crds"], 16, "five of Grove, eleven of Kueue");
}

#[test]
fn every_command_shows_an_example() {
    let home = Home::new("help");
    let commands = [
        "up",
        "down",
        "demo",
        "crds",
        "run",
        "install",
        "uninstall",
        "test",
        "simulate",
        "explain",
        "get",
        "top",
        "doctor",
        "snapshot",
        "replay",
    ];
    let all = commands.iter().map(|command| vec![*command, "--help"]).chain([vec!["--help"]]);
    for args in all {
        let (code, out, _) = home.run(&args);
        assert_eq!(code, 0, "{args:?}");
        assert!(["Example", "Start here:"].iter().any(|w| out.contains(w)), "{args:?}: {out}");
    }
}
