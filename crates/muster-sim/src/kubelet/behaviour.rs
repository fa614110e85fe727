//! What a simulated pod does, read from its annotations and commands.
//!
//! In: a pod. Out: a [`Behaviour`], and for each start of a container a [`Script`]: how long it runs and how it ends.
//! Must stay true: an annotation that cannot be read is reported and otherwise ignored; nothing a pod says can panic.
//!
//! | annotation | meaning |
//! |---|---|
//! | `sim.muster.dev/duration` | the containers end after this long (`30s`, `5m`, `1h30m`, `forever`) |
//! | `sim.muster.dev/exit-code` | how they end; 0 unless said |
//! | `sim.muster.dev/fail-attempts` | the first N attempts crash, then all is well |
//! | `sim.muster.dev/crash-after` | a crash comes after this long (1 s unless said); without `fail-attempts`, every time |
//! | `sim.muster.dev/start-delay` | time from binding to the start of the containers |
//! | `sim.muster.dev/init-duration` | how long each init container runs |
//! | `sim.muster.dev/ready-delay` | time from start to ready |
//! | `sim.muster.dev/never-ready` | `"true"`: runs, but is never ready |
//! | `sim.muster.dev/stop-delay` | time from deletion to the end of the containers; they are killed when the grace period is over |
//!
//! Without a duration: a container of a pod with restart policy `Always` runs for ever. In any other pod (a Job's,
//! for one) it does what its command says if that is plain enough to see (`sleep 5`, `sh -c "sleep 2; exit 3"`,
//! `false`), and else ends well after [`Rules::finite_duration`].

use std::time::Duration;

use crate::object::{Container, Pod};

pub const PREFIX: &str = "sim.muster.dev/";

/// What holds for pods that say nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// How long a container runs in a pod that is meant to end; `None`: for ever.
    pub finite_duration: Option<Duration>,
}

impl Default for Rules {
    fn default() -> Self {
        // Long enough to be seen running, short enough to be waited for.
        Rules { finite_duration: Some(Duration::from_secs(10)) }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Behaviour {
    duration: Option<Option<Duration>>,
    exit_code: i32,
    fail_attempts: Option<u32>,
    crash_after: Option<Duration>,
    pub start_delay: Duration,
    pub init_duration: Option<Duration>,
    pub ready_delay: Duration,
    pub never_ready: bool,
    pub stop_delay: Duration,
}

/// One run of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Script {
    /// `None`: until it is stopped.
    pub run_for: Option<Duration>,
    pub exit_code: i32,
}

impl Behaviour {
    /// Reads the annotations. Out: also what could not be read, for an event.
    pub fn of(pod: &Pod) -> (Self, Vec<String>) {
        let mut behaviour = Behaviour::default();
        let mut problems = Vec::new();
        let ours =
            pod.metadata.annotations.iter().filter_map(|(k, v)| Some((k.strip_prefix(PREFIX)?, v.as_str())));
        for (name, text) in ours {
            let good = match name {
                "duration" => set(&mut behaviour.duration, parse_limit(text).map(Some)),
                "exit-code" => {
                    set(&mut behaviour.exit_code, text.parse().ok().filter(|c| (0..=255).contains(c)))
                }
                "fail-attempts" => set(&mut behaviour.fail_attempts, text.parse().ok().map(Some)),
                "crash-after" => set(&mut behaviour.crash_after, parse_duration(text).map(Some)),
                "start-delay" => set(&mut behaviour.start_delay, parse_duration(text)),
                "init-duration" => set(&mut behaviour.init_duration, parse_duration(text).map(Some)),
                "ready-delay" => set(&mut behaviour.ready_delay, parse_duration(text)),
                "never-ready" => set(&mut behaviour.never_ready, text.parse().ok()),
                "stop-delay" => set(&mut behaviour.stop_delay, parse_duration(text)),
                // For the autoscaler.
                _ if name.starts_with("metric-") => true,
                _ => false,
            };
            if !good {
                problems.push(format!("annotation {PREFIX}{name}: {text:?} means nothing to the simulation"));
            }
        }
        (behaviour, problems)
    }

    /// What attempt number `attempt` (from 0) of a main container does.
    pub fn script(&self, pod: &Pod, container: &Container, attempt: u32, rules: &Rules) -> Script {
        let crashes = match (self.fail_attempts, self.crash_after) {
            (Some(n), _) => attempt < n,
            (None, Some(_)) => true,
            (None, None) => false,
        };
        if crashes {
            return Script {
                run_for: Some(self.crash_after.unwrap_or(Duration::from_secs(1))),
                exit_code: if self.exit_code == 0 { 1 } else { self.exit_code },
            };
        }
        // With attempts that fail, the exit code is theirs.
        let exit_code = if self.fail_attempts.is_some() { 0 } else { self.exit_code };
        if let Some(run_for) = self.duration {
            return Script { run_for, exit_code };
        }
        if pod.spec.restart_policy == "Always" || pod.spec.restart_policy.is_empty() {
            return Script { run_for: None, exit_code };
        }
        match command_script(container) {
            Some(script) if exit_code == 0 => script,
            Some(script) => Script { exit_code, ..script },
            None => Script { run_for: rules.finite_duration, exit_code },
        }
    }

    /// What an init container does.
    pub fn init_script(&self, container: &Container) -> Script {
        let command = command_script(container);
        Script {
            run_for: self.init_duration.or(command.map_or(Some(Duration::ZERO), |c| c.run_for)),
            exit_code: command.map_or(0, |c| c.exit_code),
        }
    }

    /// True when attempts of successor pods must be counted together.
    pub fn counts_attempts(&self) -> bool {
        self.fail_attempts.is_some()
    }
}

fn set<T>(field: &mut T, value: Option<T>) -> bool {
    match value {
        Some(value) => {
            *field = value;
            true
        }
        None => false,
    }
}

fn parse_limit(text: &str) -> Option<Option<Duration>> {
    if matches!(text, "forever" | "infinity") { Some(None) } else { parse_duration(text).map(Some) }
}

/// Reads `1h30m`, `45s`, `1.5s`, `200ms`; a bare number is seconds. At most ten years.
pub fn parse_duration(text: &str) -> Option<Duration> {
    const MOST: f64 = 10.0 * 365.0 * 86_400.0;
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let number: f64 = rest.get(..digits)?.parse().ok()?;
        rest = rest.get(digits..)?;
        let unit_len = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let unit = rest.get(..unit_len)?;
        rest = rest.get(unit_len..)?;
        seconds += number
            * match unit {
                "ms" => 0.001,
                "s" | "" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                "d" => 86_400.0,
                _ => return None,
            };
    }
    (seconds.is_finite() && seconds <= MOST).then(|| Duration::from_secs_f64(seconds))
}

/// What a command says plainly: its first sleep and its last exit.
fn command_script(container: &Container) -> Option<Script> {
    let words: Vec<&str> = container
        .command
        .iter()
        .chain(&container.args)
        .flat_map(|word| word.split(|c: char| c.is_whitespace() || matches!(c, ';' | '&' | '|' | '(' | ')')))
        .filter(|word| !word.is_empty())
        .collect();
    let mut run_for = None;
    let mut exit_code = None;
    for (i, word) in words.iter().enumerate() {
        let next = words.get(i + 1).copied().unwrap_or("");
        match word.rsplit('/').next().unwrap_or("") {
            "sleep" if run_for.is_none() => run_for = parse_limit(next),
            "exit" => exit_code = next.parse().ok().filter(|c| (0..=255).contains(c)).or(exit_code),
            "false" if i == 0 => exit_code = Some(1),
            "true" if i == 0 => exit_code = Some(0),
            _ => {}
        }
    }
    if run_for.is_none() && exit_code.is_none() {
        return None;
    }
    Some(Script { run_for: run_for.unwrap_or(Some(Duration::ZERO)), exit_code: exit_code.unwrap_or(0) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn script_of(annotations: serde_json::Value, policy: &str, command: &[&str], attempt: u32) -> String {
        let annotations: serde_json::Map<String, serde_json::Value> = annotations
            .as_object()
            .unwrap()
            .iter()
            .map(|(k, v)| (format!("{PREFIX}{k}"), v.clone()))
            .collect();
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"annotations": annotations},
            "spec": {"restartPolicy": policy, "containers": [{"command": command}]},
        }))
        .unwrap();
        let (behaviour, problems) = Behaviour::of(&pod);
        if !problems.is_empty() {
            return problems.join("; ");
        }
        let script = behaviour.script(&pod, &pod.spec.containers[0], attempt, &Rules::default());
        match script.run_for {
            Some(d) => format!("{d:?} -> {}", script.exit_code),
            None => "for ever".into(),
        }
    }

    #[track_caller]
    fn check(annotations: serde_json::Value, policy: &str, command: &[&str], attempt: u32, expected: &str) {
        assert_eq!(script_of(annotations, policy, command, attempt), expected);
    }

    #[test]
    fn what_pods_do() {
        check(json!({}), "Always", &[], 0, "for ever");
        check(json!({}), "Never", &[], 0, "10s -> 0");
        check(json!({}), "OnFailure", &["sh", "-c", "echo hi; sleep 3 && exit 4"], 0, "3s -> 4");
        check(json!({}), "Never", &["/bin/sleep", "infinity"], 0, "for ever");
        check(json!({}), "Never", &["false"], 0, "0ns -> 1");
        check(json!({}), "Always", &["sleep", "3"], 0, "for ever");
        check(json!({"duration": "30s"}), "Always", &[], 0, "30s -> 0");
        check(json!({"duration": "forever"}), "Never", &[], 0, "for ever");
        check(json!({"duration": "2m", "exit-code": "7"}), "Never", &[], 0, "120s -> 7");
        check(json!({"exit-code": "7"}), "Never", &["sleep", "1"], 0, "1s -> 7");
        check(json!({"fail-attempts": "2", "duration": "5s"}), "OnFailure", &[], 1, "1s -> 1");
        check(json!({"fail-attempts": "2", "duration": "5s"}), "OnFailure", &[], 2, "5s -> 0");
        check(json!({"crash-after": "3s"}), "Always", &[], 99, "3s -> 1");
        check(
            json!({"crash-after": "3s", "fail-attempts": "1", "exit-code": "9"}),
            "Never",
            &[],
            0,
            "3s -> 9",
        );
        check(
            json!({"durration": "3s"}),
            "Always",
            &[],
            0,
            "annotation sim.muster.dev/durration: \"3s\" means nothing to the simulation",
        );
        check(
            json!({"node": "n"}),
            "Always",
            &[],
            0,
            "annotation sim.muster.dev/node: \"n\" means nothing to the simulation",
        );
        check(
            json!({"exit-code": "300"}),
            "Always",
            &[],
            0,
            "annotation sim.muster.dev/exit-code: \"300\" means nothing to the simulation",
        );
    }

    #[track_caller]
    fn check_duration(text: &str, expected: Option<u64>) {
        assert_eq!(parse_duration(text).map(|d| d.as_millis() as u64), expected, "{text}");
    }

    #[test]
    fn durations() {
        check_duration("30s", Some(30_000));
        check_duration("1h30m", Some(5_400_000));
        check_duration("1.5s", Some(1500));
        check_duration("200ms", Some(200));
        check_duration("7", Some(7000));
        check_duration("", None);
        check_duration("-3s", None);
        check_duration("3x", None);
        check_duration("1..2s", None);
        check_duration("99999999999999d", None);
    }

    proptest! {
        #[test]
        fn hostile_text_never_panics(text in "\\PC{0,40}") {
            let _ = parse_duration(&text);
            let container = Container { command: vec![text.clone()], args: vec![text], ..Container::default() };
            let _ = command_script(&container);
        }
    }
}
