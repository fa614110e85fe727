//! The cycle: inputs are gathered for a moment, the engine decides off the runtime's threads, the publisher takes what follows.
//!
//! Must stay true: cycles never overlap; nothing is decided before everything that exists has been listed; a lone event is looked at
//! at once, a flood is taken in gulps.

use crate::config;
use crate::core::{Core, Output};
use crate::hold::Holds;
use crate::ingest::{self, Input};
use crate::measure;
use crate::publish::{BindMode, Limits, Publisher};
use crate::record::{self, Recorder, Setup};
use muster_binder::Binder;
use muster_model::{Decisions, Policy, Span, Time};
use muster_runtime::{Clock, Context};
use muster_translate::Settings;
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::Instant;

#[derive(Debug, Clone)]
pub struct Options {
    pub settings: Settings,
    pub policy: Policy,
    pub mode: BindMode,
    pub limits: Limits,
    pub binder: muster_binder::Options,
    /// After an input, how long to wait for more.
    pub window: Duration,
    /// How long a decision is taken for granted without being confirmed.
    pub expiry: Duration,
    /// With more than this on its way to the API server, the next cycle waits.
    pub most_in_flight: usize,
    pub resync: Duration,
    /// The engine decides on the runtime's own thread, and how long it takes changes nothing: for runs that must take the same course
    /// twice.
    pub same_thread: bool,
    /// Who asks for places before pods are there.
    pub holds: Option<Holds>,
    /// Volcano's configuration file: read when scheduling begins, and again whenever its text changes.
    pub volcano_config: Option<PathBuf>,
    /// Where to write every cycle down, and from what it starts.
    pub record: Option<(PathBuf, Setup)>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            settings: Settings::default(),
            policy: Policy::default(),
            mode: BindMode::Inline,
            limits: Limits::default(),
            binder: muster_binder::Options::default(),
            window: Duration::from_millis(2),
            expiry: Duration::from_secs(30),
            most_in_flight: 10_000,
            resync: muster_runtime::RESYNC,
            same_thread: false,
            holds: None,
            volcano_config: None,
            record: None,
        }
    }
}

/// A flood is cut off here, so that those who came first are served; or after twice the time that a cycle takes, so that under load the
/// cycles leave the machine to those who carry out what was decided.
const LONGEST_GULP: Duration = Duration::from_millis(50);
const LONGEST_REST: Duration = Duration::from_millis(250);
/// An engine that takes longer for a cycle will not come back, and the process is to be started anew.
const LONGEST_CYCLE: Duration = Duration::from_secs(300);

/// Schedules until cancelled.
pub fn start(cx: &Context, options: Options) -> impl Future<Output = ()> + Send + 'static {
    let binder = Binder::new(cx.named("muster-scheduler").api, options.binder.clone());
    start_with(cx, options, binder)
}

/// The same with a binder that others in this process share.
pub fn start_with(
    cx: &Context,
    options: Options,
    binder: Binder,
) -> impl Future<Output = ()> + Send + 'static + use<> {
    let cx = cx.named("muster-scheduler");
    async move {
        let mut tasks = JoinSet::new();
        let (sender, inputs) = unbounded_channel();
        if let Some(file) = options.volcano_config.clone() {
            let mut config = config::File::new(file);
            config.look(&cx.events, &sender);
            tasks.spawn(config.watch(cx.events.clone(), sender.clone()));
        }
        if let Some(holds) = &options.holds {
            holds.attach(sender.clone());
        }
        ingest::start(&mut tasks, &cx.api, options.resync, &cx.cancel, &sender);
        let pool = &options.settings.pool;
        let label = pool.label.as_ref().unwrap_or(&options.settings.node_pool_label);
        let pool = pool.value.as_ref().map(|value| (label.to_string(), value.to_string()));
        let publisher = Publisher::start(&mut tasks, &cx, binder, options.mode, pool, options.limits, sender);
        let cancel = cx.cancel.clone();
        cancel.run_until_cancelled(run(inputs, publisher, &cx, options)).await;
    }
}

async fn run(mut inputs: UnboundedReceiver<Input>, publisher: Publisher, cx: &Context, options: Options) {
    let clock = cx.clock;
    let listed = cx.health.check("scheduler has listed the cluster");
    listed.failing("lists are still coming in");
    let expiry = Span(i64::try_from(options.expiry.as_millis()).unwrap_or(i64::MAX));
    let shard = options.settings.pool.value.as_ref().map_or_else(String::new, ToString::to_string);
    let mut core = Core::new(options.settings, options.policy, expiry);
    let mut recorder = options.record.as_ref().and_then(|(file, setup)| {
        let begun = File::create(file).and_then(|out| Recorder::new(BufWriter::new(out), setup));
        begun.inspect_err(|error| tracing::error!(%error, file = %file.display(), "nothing is recorded")).ok()
    });
    let mut batch = Vec::new();
    let mut wake: Option<Time> = None;
    let mut last_step = Duration::ZERO;
    let mut n_cycles = 0_u64;
    let mut shown: Option<Instant> = None;
    // What was decided last, if the figures do not show it yet.
    let mut unshown: Option<Decisions> = None;
    loop {
        // Wait for something to happen, or for the time to look again.
        let until = wake.map(|at| Instant::now() + measure::duration(at - now(&clock)));
        let woken = async {
            match until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        let due = shown.filter(|_| unshown.is_some()).map(|shown| shown + measure::PERIOD);
        let show = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            n = inputs.recv_many(&mut batch, usize::MAX) => if n == 0 { return },
            () = woken => {}
            () = show => {
                // Nothing may happen for long after the last cycle of a burst.
                if let Some(decisions) = unshown.take() {
                    measure::show(&cx.metrics.scheduler, &core.figures(&decisions), now(&clock));
                    shown = Some(Instant::now());
                }
                continue;
            }
        }
        let longest = LONGEST_GULP.max((last_step * 2).min(LONGEST_REST));
        gather(&mut inputs, &mut batch, options.window.max(last_step), longest).await;
        while publisher.busy() > options.most_in_flight {
            tokio::time::sleep(options.window).await;
        }
        let taken = ingest::newest(std::mem::take(&mut batch));
        let at = now(&clock);
        n_cycles += 1;
        let span = tracing::info_span!("cycle", n = n_cycles, inputs = taken.len());
        let step = move || {
            let _within = span.entered();
            let begun = std::time::Instant::now();
            let output = match &mut recorder {
                Some(recorder) => recorder.advance(&mut core, taken, at),
                None => record::advance(&mut core, taken, at),
            };
            (core, recorder, output, begun.elapsed())
        };
        // Between cycles there is nothing to be late with, however long nothing happens.
        let working = cx.health.pulse("scheduler: cycle", LONGEST_CYCLE);
        let step = if options.same_thread { Ok(step()) } else { tokio::task::spawn_blocking(step).await };
        drop(working);
        let Ok((back, tape, output, took)) = step else {
            tracing::error!("the engine broke down; scheduling has ended");
            return;
        };
        (core, recorder) = (back, tape);
        last_step = if options.same_thread { Duration::ZERO } else { took };
        wake = core.wake();
        if let Some(mut output) = output {
            listed.passing();
            tell(&output, took);
            measure::count(&cx.metrics.scheduler, &output, &shard, took, at);
            if shown.is_none_or(|shown| shown.elapsed() >= measure::PERIOD) {
                measure::show(&cx.metrics.scheduler, &core.figures(&output.decisions), at);
                (shown, unshown) = (Some(Instant::now()), None);
            } else {
                unshown = Some(std::mem::take(&mut output.decisions));
            }
            if let Some(holds) = &options.holds {
                holds.answer(std::mem::take(&mut output.held), output.counts.changes > 0);
            }
            publisher.publish(&mut output);
        } else if !core.is_ready() {
            let kinds: Vec<String> =
                core.unknown().map(|kind| ingest::resource(kind).path("", "", "")).collect();
            listed.failing(format!("lists of {} are still to come", kinds.join(", ")));
        }
    }
}

/// Takes what else comes within the window; a flood is taken as long as it lasts, to a limit.
async fn gather(
    inputs: &mut UnboundedReceiver<Input>,
    batch: &mut Vec<Input>,
    window: Duration,
    longest: Duration,
) {
    let begun = Instant::now();
    loop {
        let before = batch.len();
        tokio::time::sleep(window.min(longest)).await;
        while let Ok(input) = inputs.try_recv() {
            batch.push(input);
        }
        if batch.len() == before || begun.elapsed() >= longest {
            return;
        }
    }
}

fn tell(output: &Output, took: Duration) {
    for diagnostic in &output.diagnostics {
        tracing::debug!("{diagnostic}");
    }
    let decisions = &output.decisions;
    tracing::debug!(
        inputs = output.counts.inputs,
        changes = output.counts.changes,
        binds = decisions.binds.len(),
        evictions = decisions.evictions.len(),
        waiting = decisions.refusals.len(),
        in_flight = output.counts.in_flight,
        ?took,
        "cycle"
    );
}

fn now(clock: &Clock) -> Time {
    Time(clock.now().as_millisecond())
}
