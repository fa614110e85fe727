//! Child processes that never outlive their owner.
//!
//! In: commands. Out: running processes, each in its own process group (so that Ctrl-C in a terminal reaches the test and
//! not the database under it), with its output in a log file. They end when the value is dropped. Should the owner be
//! killed, or a static never be dropped, a small shell beside them notices that its standard input has closed, or that
//! the time is over, and ends them.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::measured::{cpu_of, peak_of};

/// The guard reads process ids, one a line, and with a dash before it that of a process that is gone. `done` means that the owner
/// has ended them itself. The end of the input, or of the time, means that the owner is gone or stuck: end them and remove the
/// folder.
const GUARD: &str = r#"
dir=$1; ttl=$2; pids=""
end() { for p in $pids; do kill -9 "$p" 2>/dev/null; done; rm -rf "$dir"; }
( trap 'kill $s; exit' TERM; sleep "$ttl" & s=$!; wait $s; kill -ALRM $$ ) >/dev/null 2>&1 & sleeper=$!
trap 'end; exit 0' ALRM
while read -r line; do
  case "$line" in
    done) kill "$sleeper" 2>/dev/null; exit 0;;
    -*) left=""; for p in $pids; do [ "-$p" = "$line" ] || left="$left $p"; done; pids=$left;;
    *) pids="$pids $line";;
  esac
done
kill "$sleeper" 2>/dev/null
end
"#;

/// The processes of one cluster and the folder that holds their data.
#[derive(Debug)]
pub(crate) struct Processes {
    dir: PathBuf,
    running: Vec<(String, Child)>,
    /// How each was started.
    recipes: BTreeMap<String, Recipe>,
    guard: Child,
    to_guard: ChildStdin,
}

/// All that is needed to start a program once more.
#[derive(Clone, Debug)]
struct Recipe {
    program: OsString,
    args: Vec<OsString>,
    envs: Vec<(OsString, Option<OsString>)>,
}

impl Recipe {
    fn of(command: &Command) -> Self {
        let envs = command.get_envs();
        Recipe {
            program: command.get_program().to_owned(),
            args: command.get_args().map(OsStr::to_owned).collect(),
            envs: envs.map(|(name, value)| (name.to_owned(), value.map(OsStr::to_owned))).collect(),
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args);
        for (name, value) in &self.envs {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }
}

impl Processes {
    /// Makes a fresh folder, readable by its owner only, and the guard over what will run in it for at most `ttl`.
    pub(crate) fn new(what: &str, ttl: Duration) -> Result<Processes> {
        let dir = fresh_dir(what)?;
        let mut guard = Command::new("sh")
            .args(["-c", GUARD, "guard"])
            .arg(&dir)
            .arg(ttl.as_secs().max(1).to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("start sh, which guards the test processes")?;
        let to_guard = guard.stdin.take().context("the guard has a piped standard input")?;
        Ok(Processes { dir, running: Vec::new(), recipes: BTreeMap::new(), guard, to_guard })
    }

    /// The folder of their data and logs.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Starts one more, its output in `<name>.log`.
    pub(crate) fn start(&mut self, name: &str, command: &mut Command) -> Result<()> {
        self.recipes.insert(name.to_owned(), Recipe::of(command));
        let log = File::options().create(true).append(true).open(self.log_of(name));
        let log = log.context("open a log file")?;
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .with_context(|| format!("start {name}"))?;
        // The guard must know the process before anything else can fail.
        let told = writeln!(self.to_guard, "{}", child.id());
        self.running.push((name.to_owned(), child));
        told.context("tell the guard")
    }

    /// Ends one of them, as `kill -9` does.
    pub(crate) fn kill(&mut self, name: &str) -> Result<()> {
        let at = self.running.iter().position(|(of, _)| of == name);
        let (_, mut child) = self.running.remove(at.with_context(|| format!("{name} does not run"))?);
        child.kill().with_context(|| format!("kill {name}"))?;
        child.wait().with_context(|| format!("wait for the end of {name}"))?;
        // Its number may soon be another's, which the guard must not end.
        writeln!(self.to_guard, "-{}", child.id()).context("tell the guard")
    }

    /// Starts one that was killed, just as it was started before.
    pub(crate) fn restart(&mut self, name: &str) -> Result<()> {
        let runs = self.running.iter().any(|(of, _)| of == name);
        anyhow::ensure!(!runs, "{name} runs already");
        let recipe = self.recipes.get(name).with_context(|| format!("{name} has never run"))?;
        let mut command = recipe.command();
        self.start(name, &mut command)
    }

    /// Fails if one of them has ended, with the end of its log.
    pub(crate) fn check(&mut self) -> Result<()> {
        for (name, child) in &mut self.running {
            if let Some(status) = child.try_wait()? {
                let log = std::fs::read_to_string(self.dir.join(format!("{name}.log"))).unwrap_or_default();
                let tail: Vec<&str> = log.lines().rev().take(12).collect();
                let tail: Vec<&str> = tail.into_iter().rev().collect();
                anyhow::bail!("{name} ended with {status}:\n{}", tail.join("\n"));
            }
        }
        Ok(())
    }

    /// Asks all of them to end and waits for it.
    pub(crate) fn terminate(&mut self, patience: Duration) -> Result<()> {
        for (name, child) in &mut self.running {
            let status = Command::new("kill").args(["-TERM", &child.id().to_string()]).status()?;
            anyhow::ensure!(status.success(), "{name} cannot be told to end: {status}");
            let deadline = Instant::now() + patience;
            while child.try_wait()?.is_none() {
                anyhow::ensure!(Instant::now() < deadline, "{name} does not end");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(())
    }

    /// CPU seconds of all of them so far, and the most memory that they had, in bytes.
    pub(crate) fn cost(&self) -> Result<(f64, f64)> {
        let mut sum = (0.0, 0.0);
        for (_, child) in &self.running {
            sum = (sum.0 + cpu_of(&child.id().to_string())?, sum.1 + peak_of(child.id())?);
        }
        Ok(sum)
    }

    /// Where the output of `name` goes.
    pub(crate) fn log_of(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.log"))
    }

    fn end(&mut self) {
        // Backwards: what was started last leans on what was started first.
        for (_, child) in self.running.iter_mut().rev() {
            // Nothing here is worth a graceful end: the data goes with them.
            let _ = child.kill();
            let _ = child.wait();
        }
        self.running.clear();
        let _ = std::fs::remove_dir_all(&self.dir);
        let _ = writeln!(self.to_guard, "done");
        let deadline = Instant::now() + Duration::from_secs(2);
        while Instant::now() < deadline && matches!(self.guard.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.end();
    }
}

/// Ports of the loopback that are free now. They are all held until the last is chosen, so they differ.
pub(crate) fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut held = Vec::with_capacity(N);
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).context("bind a loopback port")?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}

fn fresh_dir(what: &str) -> Result<PathBuf> {
    static MADE: AtomicU32 = AtomicU32::new(0);
    use std::os::unix::fs::DirBuilderExt;
    let base = std::env::temp_dir();
    for _ in 0..1000 {
        // Never the same name twice in one process: what still clears up after the first would clear away the second.
        let n = MADE.fetch_add(1, Ordering::Relaxed);
        let dir = base.join(format!("muster-{what}-{}-{n}", std::process::id()));
        match std::fs::DirBuilder::new().mode(0o700).create(&dir) {
            Ok(()) => return Ok(dir),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).with_context(|| format!("create {}", dir.display())),
        }
    }
    anyhow::bail!("no free folder name under {}", base.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a process is there and is not a zombie; `ps` answers alike on Linux and macOS.
    fn alive(pid: u32) -> bool {
        let out = Command::new("ps").args(["-o", "stat=", "-p", &pid.to_string()]).output().unwrap();
        let stat = String::from_utf8_lossy(&out.stdout).trim().to_owned();
        !stat.is_empty() && !stat.starts_with('Z')
    }

    fn wait_gone(pid: u32) {
        let deadline = Instant::now() + Duration::from_secs(5);
        while alive(pid) {
            assert!(Instant::now() < deadline, "process {pid} is still there");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn one_sleeper(ttl: Duration) -> (Processes, u32) {
        let mut processes = Processes::new("guard-test", ttl).unwrap();
        processes.start("sleeper", Command::new("sleep").arg("600")).unwrap();
        let pid = processes.running[0].1.id();
        assert!(alive(pid));
        (processes, pid)
    }

    #[test]
    fn a_drop_ends_them_and_removes_the_folder() {
        let (processes, pid) = one_sleeper(Duration::from_secs(60));
        let (dir, guard) = (processes.dir.clone(), processes.guard.id());
        drop(processes);
        wait_gone(pid);
        wait_gone(guard);
        assert!(!dir.exists());
    }

    #[test]
    fn an_owner_that_never_drops_them_is_replaced_by_the_guard() {
        let (processes, pid) = one_sleeper(Duration::from_secs(60));
        let dir = processes.dir.clone();
        // As when the owner is killed: the pipe closes and nothing else happens. The child is kept for reaping.
        let mut processes = std::mem::ManuallyDrop::new(processes);
        let (_, null) = std::io::pipe().unwrap();
        let pipe = std::mem::replace(&mut processes.to_guard, std::os::fd::OwnedFd::from(null).into());
        drop(pipe);
        processes.running[0].1.wait().unwrap();
        wait_gone(pid);
        processes.guard.wait().unwrap();
        assert!(!dir.exists());
    }

    #[test]
    fn the_time_over_ends_them() {
        let (mut processes, _) = one_sleeper(Duration::from_secs(1));
        processes.running[0].1.wait().unwrap();
        assert!(processes.check().unwrap_err().to_string().starts_with("sleeper ended with"));
    }

    #[test]
    fn one_is_killed_and_started_again_as_it_was() {
        let mut processes = Processes::new("guard-test", Duration::from_secs(60)).unwrap();
        let says = "echo $WORD; exec sleep 600";
        processes.start("talker", Command::new("sh").args(["-c", says]).env("WORD", "here")).unwrap();
        let said = |times: usize, processes: &Processes| {
            let deadline = Instant::now() + Duration::from_secs(5);
            while std::fs::read_to_string(processes.log_of("talker")).unwrap() != "here\n".repeat(times) {
                assert!(Instant::now() < deadline, "it has not spoken");
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        said(1, &processes);
        let first = processes.running[0].1.id();
        assert!(processes.restart("talker").is_err(), "it runs");
        processes.kill("talker").unwrap();
        assert!(!alive(first));
        assert!(processes.kill("talker").is_err(), "it is gone");
        processes.check().unwrap();
        processes.restart("talker").unwrap();
        said(2, &processes);
        let (guard, second) = (processes.guard.id(), processes.running[0].1.id());
        drop(processes);
        wait_gone(second);
        wait_gone(guard);
    }

    #[test]
    fn free_ports_differ() {
        let [a, b, c] = free_ports().unwrap();
        assert!(a != b && b != c && a != c);
    }
}
