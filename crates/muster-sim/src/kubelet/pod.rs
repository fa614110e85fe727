//! The life of one pod on a simulated node, as a state machine over time.
//!
//! In: the pod's spec, its behaviour, the time. Out: the next state, whether anything changed, and when to look again.
//! Must stay true: the same pod at the same times lives the same life, whether it was watched closely or looked at
//! once at the end; and a life that was read back from a pod's status goes on where it was.

use std::time::Duration;

use jiff::Timestamp;

use super::behaviour::{Behaviour, Rules, Script};
use crate::clock::later;
use crate::object::{ContainerStatus, Pod, is_true};

/// What the kubelet remembers of a pod.
#[derive(Debug, Clone, PartialEq)]
pub struct Life {
    /// When the kubelet took it on.
    pub seen: Timestamp,
    /// Up to when this life has been lived.
    looked: Timestamp,
    pub ip: String,
    pub inits: Vec<Run>,
    pub mains: Vec<Run>,
    pub end: Option<End>,
    /// When the deletion was noticed.
    pub stopping: Option<Timestamp>,
    /// When the pod last became ready or stopped being so.
    pub ready: (bool, Timestamp),
    pub initialized: Option<Timestamp>,
    /// Attempts of earlier pods in this one's place.
    pub earlier_attempts: u32,
    /// Device identifiers by resource name.
    pub devices: Vec<(String, Vec<String>)>,
}

/// One container.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    pub state: State,
    pub restarts: u32,
    /// Crashes in a row, which the wait before the next start grows with.
    pub crashes: u32,
    pub last: Option<Exit>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum State {
    /// Not started; `until` is `None` while it waits for its turn.
    Waiting {
        reason: &'static str,
        until: Option<Timestamp>,
    },
    Running {
        since: Timestamp,
        ready: bool,
    },
    Ended(Exit),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit {
    pub code: i32,
    pub started: Timestamp,
    pub finished: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    pub succeeded: bool,
    pub reason: String,
    pub message: String,
}

/// What a look at a pod found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    pub changed: bool,
    /// Look again then.
    pub wake: Option<Timestamp>,
    /// Nothing runs any more and the pod is being deleted: take it away.
    pub remove: bool,
    /// Containers that started during this look.
    pub started: Vec<String>,
    /// Containers that wait before their next start, for an event.
    pub backing_off: Vec<String>,
}

/// More steps than one look needs unless a pod crashes without pause; the rest is left for the next look.
const MAX_STEPS: usize = 64;
const CREATING: &str = "ContainerCreating";
const INITIALIZING: &str = "PodInitializing";
const BACK_OFF: &str = "CrashLoopBackOff";

impl Life {
    /// The life of a pod that nothing has happened to yet.
    pub fn begin(pod: &Pod, ip: String, now: Timestamp) -> Self {
        let first = if pod.spec.init_containers.is_empty() { CREATING } else { INITIALIZING };
        let fresh = || Run {
            state: State::Waiting { reason: first, until: None },
            restarts: 0,
            crashes: 0,
            last: None,
        };
        Life {
            seen: now,
            looked: now,
            ip,
            inits: pod.spec.init_containers.iter().map(|_| fresh()).collect(),
            mains: pod.spec.containers.iter().map(|_| fresh()).collect(),
            end: None,
            stopping: None,
            ready: (false, now),
            initialized: None,
            earlier_attempts: 0,
            devices: Vec::new(),
        }
    }

    /// The life that a status tells of, or `None` when the kubelet has not begun with this pod.
    pub fn resume(pod: &Pod, now: Timestamp) -> Option<Self> {
        let status = &pod.status;
        if status.container_statuses.is_empty() && !pod.finished() {
            return None;
        }
        let seen = status.start_time.unwrap_or(now);
        let mut life = Life::begin(pod, status.pod_ip.clone(), seen);
        let runs = life.inits.iter_mut().zip(&pod.spec.init_containers);
        for (run, container) in runs {
            if let Some(found) = status.init_container_statuses.iter().find(|s| s.name == container.name) {
                *run = resume_run(found, seen);
            }
        }
        for (run, container) in life.mains.iter_mut().zip(&pod.spec.containers) {
            if let Some(found) = status.container_statuses.iter().find(|s| s.name == container.name) {
                *run = resume_run(found, seen);
            }
        }
        if pod.finished() {
            life.end = Some(End {
                succeeded: status.phase == "Succeeded",
                reason: status.reason.clone(),
                message: String::new(),
            });
        }
        let condition = |kind: &str| crate::object::condition(&status.conditions, kind);
        life.ready = (
            is_true(&status.conditions, "Ready"),
            condition("Ready").and_then(|c| c.last_transition_time).unwrap_or(seen),
        );
        life.initialized =
            condition("Initialized").filter(|c| c.status == "True").and_then(|c| c.last_transition_time);
        // Containers list their own devices; the pod's books are by resource.
        for device in status.container_statuses.iter().flat_map(|c| &c.allocated_resources_status) {
            let ids = device.resources.iter().map(|r| r.id.clone());
            match life.devices.iter_mut().find(|(name, _)| *name == device.name) {
                Some((_, known)) => known.extend(ids),
                None => life.devices.push((device.name.clone(), ids.collect())),
            }
        }
        Some(life)
    }

    /// Nothing was due until then.
    pub fn skip_to(&mut self, now: Timestamp) {
        self.looked = now;
    }

    /// The node refuses the pod.
    pub fn reject(&mut self, reason: String, message: String) {
        self.end = Some(End { succeeded: false, reason, message });
    }

    /// Lives on until `now`, through every moment on the way at which something is due.
    pub fn advance(&mut self, pod: &Pod, behaviour: &Behaviour, rules: &Rules, now: Timestamp) -> Progress {
        let mut progress = Progress {
            changed: false,
            wake: None,
            remove: false,
            started: Vec::new(),
            backing_off: Vec::new(),
        };
        let mut at = self.looked.min(now);
        for _ in 0..MAX_STEPS {
            match self.step(pod, behaviour, rules, at, &mut progress) {
                Step::Changed => progress.changed = true,
                Step::WaitUntil(next) => {
                    self.refresh_ready(pod, at, &mut progress);
                    self.looked = at;
                    match next {
                        Some(next) if next <= now => at = next,
                        // The deletion is noticed now, after all that was due before it.
                        _ if pod.metadata.deleting() && self.stopping.is_none() => {
                            self.stopping = Some(now);
                            at = now;
                        }
                        _ => {
                            self.looked = now;
                            progress.wake = next;
                            progress.remove = self.stopping.is_some() && self.at_rest();
                            return progress;
                        }
                    }
                }
            }
        }
        progress.wake = Some(now);
        progress
    }

    /// No container runs or will run again.
    pub fn at_rest(&self) -> bool {
        self.end.is_some()
    }

    /// One change at the earliest time it is due, or when the next is due.
    fn step(
        &mut self,
        pod: &Pod,
        behaviour: &Behaviour,
        rules: &Rules,
        now: Timestamp,
        progress: &mut Progress,
    ) -> Step {
        if self.end.is_some() {
            return Step::WaitUntil(None);
        }
        let mut due = Due { now, next: None };

        if let Some(since) = self.stopping {
            let grace = grace_period(pod);
            let at = later(since, behaviour.stop_delay.min(grace));
            let never_ran = self.runs().all(|r| !matches!(r.state, State::Running { .. }));
            if never_ran || due.reached(at) {
                // What stops when it is asked to ends by SIGTERM, what does not by SIGKILL.
                let code = if behaviour.stop_delay > grace { 137 } else { 143 };
                self.stop_all(if never_ran { now } else { at }, code);
                self.finish();
                return Step::Changed;
            }
        }
        if let Some(limit) = pod.spec.active_deadline_seconds {
            let at = later(self.seen, Duration::from_secs(u64::try_from(limit).unwrap_or(0)));
            if due.reached(at) {
                self.stop_all(at, 143);
                self.end = Some(End {
                    succeeded: false,
                    reason: "DeadlineExceeded".into(),
                    message: "Pod was active on the node longer than the specified deadline".into(),
                });
                return Step::Changed;
            }
        }
        if !due.reached(later(self.seen, behaviour.start_delay)) {
            return Step::WaitUntil(due.next);
        }

        if self.initialized.is_none() {
            match self.step_init(pod, behaviour, &mut due, progress) {
                Some(true) => return Step::Changed,
                Some(false) => return Step::WaitUntil(due.next),
                None => {
                    self.initialized = Some(self.init_end(behaviour));
                    let at = self.initialized.unwrap_or(now);
                    for run in &mut self.mains {
                        run.state = State::Waiting { reason: CREATING, until: Some(at) };
                    }
                    return Step::Changed;
                }
            }
        }

        // A sidecar that ended (it never does by itself) or a main container, whichever is due.
        let restart = Restart::of(&pod.spec.restart_policy);
        let mut changed = false;
        for (i, (run, container)) in self.mains.iter_mut().zip(&pod.spec.containers).enumerate() {
            let attempt = self.earlier_attempts.saturating_add(run.restarts);
            let script = behaviour.script(pod, container, attempt, rules);
            let ready_at = |since| (!behaviour.never_ready).then(|| later(since, behaviour.ready_delay));
            if step_run(run, script, restart, ready_at, &mut due) {
                changed = true;
                note(run, &pod.spec.containers[i].name, progress);
            }
        }
        if changed {
            return Step::Changed;
        }
        if self.mains.iter().all(|r| matches!(r.state, State::Ended(_))) {
            let at = self.mains.iter().filter_map(Run::finished).max().unwrap_or(now);
            self.stop_all(at, 0);
            self.finish();
            return Step::Changed;
        }
        Step::WaitUntil(due.next)
    }

    /// One step of the init containers: `Some(changed)` while there is something to wait for, `None` when all is done.
    fn step_init(
        &mut self,
        pod: &Pod,
        behaviour: &Behaviour,
        due: &mut Due,
        progress: &mut Progress,
    ) -> Option<bool> {
        let mut turn = later(self.seen, behaviour.start_delay);
        let restart = if pod.spec.restart_policy == "Never" { Restart::Never } else { Restart::OnFailure };
        for (run, container) in self.inits.iter_mut().zip(&pod.spec.init_containers) {
            let sidecar = container.restart_policy == "Always";
            if let State::Waiting { until, .. } = &mut run.state
                && until.is_none()
            {
                *until = Some(turn);
            }
            let script = if sidecar {
                Script { run_for: None, exit_code: 0 }
            } else {
                behaviour.init_script(container)
            };
            if step_run(run, script, if sidecar { Restart::Always } else { restart }, Some, due) {
                note(run, &container.name, progress);
                return Some(true);
            }
            match &run.state {
                State::Running { since, .. } if sidecar => turn = turn.max(*since),
                State::Ended(exit) if exit.code == 0 => turn = turn.max(exit.finished),
                State::Ended(_) => {
                    let at = run.finished().unwrap_or(due.now);
                    self.stop_all(at, 143);
                    self.end = Some(End { succeeded: false, reason: String::new(), message: String::new() });
                    return Some(true);
                }
                _ => return Some(false),
            }
        }
        None
    }

    fn init_end(&self, behaviour: &Behaviour) -> Timestamp {
        let start = later(self.seen, behaviour.start_delay);
        self.inits.iter().filter_map(|r| r.finished().or(r.since())).fold(start, Timestamp::max)
    }

    fn runs(&self) -> impl Iterator<Item = &Run> {
        self.inits.iter().chain(&self.mains)
    }

    /// Ends everything that runs. What never started has no exit and stays as it is.
    fn stop_all(&mut self, at: Timestamp, code: i32) {
        for run in self.inits.iter_mut().chain(&mut self.mains) {
            match run.state {
                State::Running { since, .. } => {
                    run.state = State::Ended(Exit { code, started: since, finished: at.max(since) });
                }
                State::Waiting { .. } => {
                    if let Some(last) = run.last {
                        run.state = State::Ended(last);
                    }
                }
                State::Ended(_) => {}
            }
        }
    }

    /// The pod is over; it went well when every main container did.
    fn finish(&mut self) {
        let well = self.mains.iter().all(|r| matches!(&r.state, State::Ended(exit) if exit.code == 0));
        self.end = Some(End { succeeded: well, reason: String::new(), message: String::new() });
    }

    /// Readiness depends on conditions that others set, so it is looked at every time.
    fn refresh_ready(&mut self, pod: &Pod, now: Timestamp, progress: &mut Progress) {
        let gates =
            pod.spec.readiness_gates.iter().all(|g| is_true(&pod.status.conditions, &g.condition_type));
        let ready = self.end.is_none() && self.containers_ready() && gates;
        if ready != self.ready.0 {
            self.ready = (ready, now);
            progress.changed = true;
        }
    }

    pub fn containers_ready(&self) -> bool {
        self.initialized.is_some()
            && self.mains.iter().all(|r| matches!(r.state, State::Running { ready: true, .. }))
    }
}

/// How long a pod that is being deleted may take to end.
fn grace_period(pod: &Pod) -> Duration {
    let seconds = pod.metadata.deletion_grace_period_seconds.unwrap_or(30);
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

enum Step {
    Changed,
    WaitUntil(Option<Timestamp>),
}

/// What is due by now, and the earliest that is not.
struct Due {
    now: Timestamp,
    next: Option<Timestamp>,
}

impl Due {
    fn reached(&mut self, at: Timestamp) -> bool {
        if at <= self.now {
            return true;
        }
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
        false
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Restart {
    Always,
    OnFailure,
    Never,
}

impl Restart {
    fn of(policy: &str) -> Self {
        match policy {
            "Never" => Restart::Never,
            "OnFailure" => Restart::OnFailure,
            _ => Restart::Always,
        }
    }

    fn after(self, code: i32) -> bool {
        match self {
            Restart::Always => true,
            Restart::OnFailure => code != 0,
            Restart::Never => false,
        }
    }
}

impl Run {
    fn finished(&self) -> Option<Timestamp> {
        match &self.state {
            State::Ended(exit) => Some(exit.finished),
            _ => None,
        }
    }

    fn since(&self) -> Option<Timestamp> {
        match &self.state {
            State::Running { since, .. } => Some(*since),
            _ => None,
        }
    }
}

/// Moves one container by one step if one is due.
fn step_run(
    run: &mut Run,
    script: Script,
    restart: Restart,
    ready_at: impl Fn(Timestamp) -> Option<Timestamp>,
    due: &mut Due,
) -> bool {
    match run.state.clone() {
        State::Waiting { until: Some(at), .. } if due.reached(at) => {
            if run.last.is_some() {
                run.restarts = run.restarts.saturating_add(1);
            }
            let ready = ready_at(at).is_some_and(|ready| ready <= at);
            run.state = State::Running { since: at, ready };
            true
        }
        State::Waiting { .. } => false,
        State::Running { since, ready } => {
            if let Some(run_for) = script.run_for {
                let at = later(since, run_for);
                if due.reached(at) {
                    let exit = Exit { code: script.exit_code, started: since, finished: at };
                    end_run(run, exit, restart);
                    return true;
                }
            }
            if !ready && ready_at(since).is_some_and(|at| due.reached(at)) {
                run.state = State::Running { since, ready: true };
                return true;
            }
            false
        }
        State::Ended(_) => false,
    }
}

fn end_run(run: &mut Run, exit: Exit, restart: Restart) {
    if !restart.after(exit.code) {
        run.state = State::Ended(exit);
        return;
    }
    // Ten good minutes and the past is forgotten.
    if exit.finished.duration_since(exit.started).as_secs() >= 600 {
        run.crashes = 0;
    }
    run.crashes = run.crashes.saturating_add(1);
    run.last = Some(exit);
    run.state = State::Waiting { reason: BACK_OFF, until: Some(later(exit.finished, back_off(run.crashes))) };
}

/// The first restart comes at once, the next after 10 s, 20 s, ... 5 min.
pub fn back_off(crashes: u32) -> Duration {
    match crashes {
        0 | 1 => Duration::ZERO,
        n => Duration::from_secs(10 * 2_u64.pow((n - 2).min(6))).min(Duration::from_secs(300)),
    }
}

fn note(run: &Run, name: &str, progress: &mut Progress) {
    let new = |names: &[String]| !names.iter().any(|n| n == name);
    match &run.state {
        State::Running { .. } if new(&progress.started) => progress.started.push(name.to_owned()),
        State::Waiting { reason: BACK_OFF, .. } if run.crashes > 1 => {
            progress.backing_off.push(name.to_owned())
        }
        _ => {}
    }
}

fn resume_run(status: &ContainerStatus, seen: Timestamp) -> Run {
    let exit = |t: &crate::object::Terminated| Exit {
        code: t.exit_code,
        started: t.started_at.unwrap_or(seen),
        finished: t.finished_at.unwrap_or(seen),
    };
    let last = status.last_state.terminated.as_ref().map(exit);
    let mut crashes = status.restart_count;
    let state = match &status.state {
        s if s.running.is_some() => State::Running {
            since: s.running.as_ref().and_then(|r| r.started_at).unwrap_or(seen),
            ready: status.ready,
        },
        s if s.terminated.is_some() => {
            State::Ended(s.terminated.as_ref().map_or(Exit { code: 0, started: seen, finished: seen }, exit))
        }
        _ => match last {
            Some(last) => {
                crashes = crashes.saturating_add(1);
                State::Waiting { reason: BACK_OFF, until: Some(later(last.finished, back_off(crashes))) }
            }
            None => State::Waiting { reason: CREATING, until: None },
        },
    };
    Run { state, restarts: status.restart_count, crashes, last }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn t(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn pod(policy: &str, annotations: Value, extra: Value) -> Pod {
        let annotations: serde_json::Map<String, Value> = annotations
            .as_object()
            .unwrap()
            .iter()
            .map(|(k, v)| (format!("sim.muster.dev/{k}"), v.clone()))
            .collect();
        let mut spec = json!({"restartPolicy": policy, "containers": [{"name": "main"}]});
        for (k, v) in extra.as_object().unwrap() {
            spec[k] = v.clone();
        }
        serde_json::from_value(json!({"metadata": {"name": "p", "annotations": annotations}, "spec": spec}))
            .unwrap()
    }

    fn show(life: &Life) -> String {
        let run = |r: &Run| match &r.state {
            State::Waiting { reason, .. } => format!("{reason}({})", r.restarts),
            State::Running { ready, .. } => {
                format!("{}({})", if *ready { "Ready" } else { "Running" }, r.restarts)
            }
            State::Ended(exit) => format!("Exit{}({})", exit.code, r.restarts),
        };
        let mut parts: Vec<String> = life.inits.iter().map(|r| format!("i:{}", run(r))).collect();
        parts.extend(life.mains.iter().map(run));
        match &life.end {
            Some(end) if end.succeeded => parts.push("Succeeded".into()),
            Some(end) => parts.push(format!("Failed{}", end.reason)),
            None => parts.push(if life.ready.0 { "+".into() } else { "-".into() }),
        }
        parts.join(" ")
    }

    /// Lives until each time in turn and shows what is seen; then the same pod is looked at once at the end, which
    /// must give the same.
    #[track_caller]
    fn check(pod: &Pod, looks: &[(i64, &str)]) {
        let (behaviour, problems) = Behaviour::of(pod);
        assert!(problems.is_empty(), "{problems:?}");
        let rules = Rules::default();
        let mut life = Life::begin(pod, "10.0.0.1".into(), t(0));
        let mut wake = life.advance(pod, &behaviour, &rules, t(0)).wake;
        for (at, expected) in looks {
            // Follow every appointment on the way, as the kubelet does.
            while let Some(due) = wake.filter(|w| *w <= t(*at)) {
                wake = life.advance(pod, &behaviour, &rules, due).wake;
            }
            wake = life.advance(pod, &behaviour, &rules, t(*at)).wake;
            assert_eq!(show(&life), *expected, "at {at} s");
        }
        let (end, expected) = looks.last().unwrap();
        let mut once = Life::begin(pod, "10.0.0.1".into(), t(0));
        while once.advance(pod, &behaviour, &rules, t(*end)).wake == Some(t(*end)) {}
        assert_eq!(show(&once), *expected, "looked at once");
    }

    #[test]
    fn plain_pods() {
        check(&pod("Always", json!({}), json!({})), &[(0, "Ready(0) +"), (99_999, "Ready(0) +")]);
        check(
            &pod("Never", json!({}), json!({})),
            &[(0, "Ready(0) +"), (9, "Ready(0) +"), (10, "Exit0(0) Succeeded")],
        );
        check(
            &pod("Never", json!({"duration": "3s", "exit-code": "2"}), json!({})),
            &[(3, "Exit2(0) Failed")],
        );
        check(
            &pod("Always", json!({"start-delay": "5s", "ready-delay": "2s"}), json!({})),
            &[(4, "ContainerCreating(0) -"), (5, "Running(0) -"), (7, "Ready(0) +")],
        );
        check(&pod("Always", json!({"never-ready": "true"}), json!({})), &[(500, "Running(0) -")]);
        check(
            &pod("Always", json!({}), json!({"activeDeadlineSeconds": 30})),
            &[(29, "Ready(0) +"), (30, "Exit143(0) FailedDeadlineExceeded")],
        );
    }

    #[test]
    fn crashing_pods() {
        check(
            &pod("OnFailure", json!({"fail-attempts": "2", "duration": "4s"}), json!({})),
            &[
                (0, "Ready(0) +"),
                (1, "Ready(1) +"),
                (2, "CrashLoopBackOff(1) -"),
                (11, "CrashLoopBackOff(1) -"),
                (12, "Ready(2) +"),
                (16, "Exit0(2) Succeeded"),
            ],
        );
        check(
            &pod("Always", json!({"crash-after": "1s"}), json!({})),
            &[
                (1, "Ready(1) +"),
                (2, "CrashLoopBackOff(1) -"),
                (13, "CrashLoopBackOff(2) -"),
                (33, "Ready(3) +"),
            ],
        );
        check(&pod("Never", json!({"crash-after": "1s"}), json!({})), &[(1, "Exit1(0) Failed")]);
    }

    #[test]
    fn init_containers_and_sidecars() {
        let inits = json!({"initContainers": [{"name": "a"}, {"name": "s", "restartPolicy": "Always"}, {"name": "b"}]});
        check(
            &pod("Never", json!({"init-duration": "2s", "duration": "5s"}), inits),
            &[
                (0, "i:Ready(0) i:PodInitializing(0) i:PodInitializing(0) PodInitializing(0) -"),
                (2, "i:Exit0(0) i:Ready(0) i:Ready(0) PodInitializing(0) -"),
                (4, "i:Exit0(0) i:Ready(0) i:Exit0(0) Ready(0) +"),
                (9, "i:Exit0(0) i:Exit0(0) i:Exit0(0) Exit0(0) Succeeded"),
            ],
        );
        let bad = json!({"initContainers": [{"name": "a", "command": ["false"]}]});
        check(&pod("Never", json!({}), bad.clone()), &[(0, "i:Exit1(0) PodInitializing(0) Failed")]);
        check(
            &pod("Always", json!({}), bad),
            &[
                (0, "i:CrashLoopBackOff(1) PodInitializing(0) -"),
                (10, "i:CrashLoopBackOff(2) PodInitializing(0) -"),
            ],
        );
    }

    #[test]
    fn deletion() {
        let mut pod = pod("Always", json!({"stop-delay": "3s"}), json!({}));
        let (behaviour, _) = Behaviour::of(&pod);
        let rules = Rules::default();
        let mut life = Life::begin(&pod, String::new(), t(0));
        assert!(!life.advance(&pod, &behaviour, &rules, t(0)).remove);
        pod.metadata.deletion_timestamp = Some(t(40));
        let progress = life.advance(&pod, &behaviour, &rules, t(10));
        assert_eq!((progress.remove, progress.wake), (false, Some(t(13))));
        let progress = life.advance(&pod, &behaviour, &rules, t(13));
        assert!(progress.remove && progress.changed);
        assert_eq!(show(&life), "Exit143(0) Failed");
    }

    #[test]
    fn readiness_gates_hold_a_pod_back() {
        let mut pod = pod("Always", json!({}), json!({"readinessGates": [{"conditionType": "lb"}]}));
        let (behaviour, _) = Behaviour::of(&pod);
        let mut life = Life::begin(&pod, String::new(), t(0));
        life.advance(&pod, &behaviour, &Rules::default(), t(0));
        assert_eq!(show(&life), "Ready(0) -");
        pod.status.conditions = vec![crate::object::PodCondition {
            kind: "lb".into(),
            status: "True".into(),
            ..Default::default()
        }];
        assert!(life.advance(&pod, &behaviour, &Rules::default(), t(1)).changed);
        assert_eq!(show(&life), "Ready(0) +");
    }

    #[test]
    fn waits_double_to_five_minutes() {
        let waits: Vec<u64> = (0..10).map(|n| back_off(n).as_secs()).collect();
        assert_eq!(waits, [0, 0, 10, 20, 40, 80, 160, 300, 300, 300]);
        assert_eq!(back_off(u32::MAX).as_secs(), 300);
    }

    #[test]
    fn a_busy_loop_is_bounded() {
        let pod = pod("Always", json!({"duration": "0s"}), json!({}));
        let (behaviour, _) = Behaviour::of(&pod);
        let mut life = Life::begin(&pod, String::new(), t(0));
        let progress = life.advance(&pod, &behaviour, &Rules::default(), t(1_000_000));
        assert!(progress.wake.is_some());
    }
}
