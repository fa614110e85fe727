//! What can be measured, as Prometheus reads it.
//!
//! In: numbers from the services, by typed handles such as `metrics.scheduler.cycle.took(..)`. Out: the text of `/metrics`, and
//! the table of `docs/metrics.md`. Must stay true: every family is declared once, below, with its help; the number of series
//! is bounded whatever the cluster holds; names that KAI has are the same here but for their prefix, so that dashboards go on
//! working. Where KAI shows only the last value of a time, there is a histogram under a name of ours beside it. How things are
//! (a [`Gauge`]) is said by whoever's turn it is, and by nobody once the turn is over; what happened (a counter, a histogram) stays.

use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use prometheus_client::encoding::{
    EncodeLabel, EncodeLabelSet, EncodeMetric, LabelSetEncoder, MetricEncoder,
};
use prometheus_client::metrics::{MetricType, counter, histogram};
use prometheus_client::registry::Registry;

/// The prefix of KAI's names when nothing else is asked for.
pub const PREFIX: &str = "kai";

/// Beyond so many combinations of labels in a family, all others are counted together as [`OTHER`].
pub const MOST_SERIES: usize = 5000;
pub const OTHER: &str = "other";

/// The names that Muster chose itself take no prefix, and Kueue's have their own.
const FIXED: [&str; 3] = ["muster_", "process_", "kueue_"];

/// Declares the families of the services: a struct of handles each, and the rows of the table.
macro_rules! families {
    ($($service:ident: $type:ident, $title:literal {
        $($field:ident: $kind:ty, $name:literal, [$($label:literal),*], $help:literal;)*
    })*) => {
        $(
            #[doc = $title]
            #[derive(Clone, Debug)]
            pub struct $type {
                $(#[doc = $help] pub $field: $kind,)*
            }

            impl $type {
                fn new() -> Self {
                    $type { $($field: <$kind as Measure>::make(&[$($label),*]),)* }
                }

                fn in_term(&self, term: &Term) -> Self {
                    $type { $($field: self.$field.in_term(term),)* }
                }

                fn register(&self, registry: &mut Registry, prefix: &str) {
                    $(registry.register(
                        <$kind as Measure>::registered(&full_name(prefix, $name)),
                        $help,
                        self.$field.clone(),
                    );)*
                }
            }
        )*

        /// All handles. Clones share their numbers.
        #[derive(Debug)]
        pub struct Families {
            $(pub $service: $type,)*
        }

        impl Families {
            fn new() -> Self {
                Families { $($service: $type::new(),)* }
            }

            fn in_term(&self, term: &Term) -> Self {
                Families { $($service: self.$service.in_term(term),)* }
            }

            fn register(&self, services: &[Service], registry: &mut Registry, prefix: &str) {
                $(if services.contains(&Service::$type) {
                    self.$service.register(registry, prefix);
                })*
            }
        }

        /// Whose families a process shows.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Service {
            $($type,)*
        }

        impl Service {
            pub const ALL: &[Service] = &[$(Service::$type,)*];
        }

        const TABLE: &[(&str, &[Row])] = &[$(($title, &[$(Row {
            name: $name,
            kind: <$kind as Measure>::KIND,
            n_labels: <$kind as Measure>::N_LABELS,
            labels: &[$($label),*],
            help: $help,
        },)*]),)*];
    };
}

families! {
    process: Process, "Every process" {
        build_info: By<1, Gauge>, "muster_build_info", ["version"], "always 1; the version is the label";
        api_requests: By<2, Counter>, "muster_api_requests_total", ["verb", "code"], "requests to the API server by their answer; code 0 means that there was none";
        watch_restarts: By<1, Counter>, "muster_watch_restarts_total", ["kind"], "lists that were read again because a watch broke off or fell behind";
        leading: By<1, Gauge>, "muster_leading", ["lease"], "1 while this process holds the lease";
        cpu_seconds: Counter, "process_cpu_seconds_total", [], "CPU time of the process, in user and system mode";
        resident_memory: Gauge, "process_resident_memory_bytes", [], "memory of the process that is in RAM";
        open_files: Gauge, "process_open_fds", [], "files and sockets that the process has open";
    }
    scheduler: Scheduler, "Scheduler" {
        cycle: Seconds, "muster_cycle_seconds", [], "one scheduling cycle, from the first change that it takes in to its last decision";
        gang_wait: Waits, "muster_gang_wait_seconds", [], "from the creation of the last pod that a gang needs to the decision to bind it";
        pending_gangs: Gauge, "muster_pending_gangs", [], "gangs that wait for a place";
        pending_pods: Gauge, "muster_pending_pods", [], "pods that wait for a place";
        evictions: By<1, Counter>, "muster_evictions_total", ["action"], "pods that were evicted, by the action that decided so";
        assumed_expired: Counter, "muster_assumed_expired_total", [], "promises that were given back because the API server never confirmed them";
        gpu_allocated: Gauge, "muster_gpu_allocated", [], "GPUs that pods hold, parts of GPUs as parts";
        gpu_capacity: Gauge, "muster_gpu_capacity", [], "GPUs of all nodes that can take pods";
        gpu_fragmentation: Gauge, "muster_gpu_fragmentation_ratio", [], "of the free GPUs, the part that is on nodes which are not wholly free";
        queue_pending_gangs: By<1, Gauge>, "muster_queue_pending_gangs", ["queue_name"], "gangs of a queue that wait for a place";
        queue_oldest_pending: By<1, Gauge>, "muster_queue_oldest_pending_seconds", ["queue_name"], "how long the gang has waited that has waited longest";
        e2e_latency: Gauge, "e2e_scheduling_latency_milliseconds", [], "the last cycle; see muster_cycle_seconds";
        task_scheduling_latency: Milliseconds, "task_scheduling_latency_milliseconds", [], "from the creation of a pod to the decision to bind it";
        gangs_scheduled: By<1, Tally>, "podgroups_scheduled_by_action", ["action"], "pod groups that an action found places for";
        gangs_tried: By<1, Tally>, "podgroups_acted_on_by_action", ["action"], "gangs that an action looked for places for, or for victims, with success or without";
        preemption_attempts: Tally, "total_preemption_attempts", [], "gangs for which victims were looked for in their own queue, found or not";
        evicted_pods: By<5, Counter>, "pod_group_evicted_pods_total", ["podgroup", "namespace", "uid", "nodepool", "action"], "pods that were evicted, by pod group";
        queue_fair_share_cpu: By<3, Gauge>, "queue_fair_share_cpu_cores", ["queue_name", "queue_metadata_name", "queue_display_name"], "the fair share of a queue in cores";
        queue_fair_share_memory: By<3, Gauge>, "queue_fair_share_memory_gb", ["queue_name", "queue_metadata_name", "queue_display_name"], "the fair share of a queue in gigabytes of memory";
        queue_fair_share_gpu: By<3, Gauge>, "queue_fair_share_gpu", ["queue_name", "queue_metadata_name", "queue_display_name"], "the fair share of a queue in GPUs";
        queue_usage_cpu: By<3, Gauge>, "queue_cpu_usage", ["queue_name", "queue_metadata_name", "queue_display_name"], "the part of the cluster's cores that a queue has used, where its annotations say so";
        queue_usage_memory: By<3, Gauge>, "queue_memory_usage", ["queue_name", "queue_metadata_name", "queue_display_name"], "the part of the cluster's memory that a queue has used, where its annotations say so";
        queue_usage_gpu: By<3, Gauge>, "queue_gpu_usage", ["queue_name", "queue_metadata_name", "queue_display_name"], "the part of the cluster's GPUs that a queue has used, where its annotations say so";
    }
    binder: Binder, "Binder" {
        bind: Seconds, "muster_bind_seconds", [], "the binding of one pod, with all its steps";
        task_bind_latency: Milliseconds, "task_bind_latency_milliseconds", [], "the same in milliseconds; in KAI only the creation of a bind request";
        binds: By<1, Counter>, "muster_binds_total", ["result"], "bindings by how they ended: bound, failed, gone or rolled-back";
        in_flight: Gauge, "muster_binds_in_flight", [], "bindings that are under way";
    }
    queues: Queues, "Queue controller" {
        info: By<1, Gauge>, "queue_info", ["queue_name"], "always 1 for every queue that there is";
        deserved_gpus: By<1, Gauge>, "queue_deserved_gpus", ["queue_name"], "the GPU quota of a queue; -1 means without limit";
        quota_cpu: By<1, Gauge>, "queue_quota_cpu_cores", ["queue_name"], "the CPU quota of a queue in cores; -1 means without limit";
        quota_memory: By<1, Gauge>, "queue_quota_memory_bytes", ["queue_name"], "the memory quota of a queue; -1 means without limit";
        allocated_gpus: By<1, Gauge>, "queue_allocated_gpus", ["queue_name"], "GPUs that the pods of a queue hold";
        allocated_cpu: By<1, Gauge>, "queue_allocated_cpu_cores", ["queue_name"], "cores that the pods of a queue hold";
        allocated_memory: By<1, Gauge>, "queue_allocated_memory_bytes", ["queue_name"], "memory that the pods of a queue hold";
    }
    grove: Grove, "Grove" {
        gangs: By<1, Gauge>, "muster_grove_gangs", ["backend"], "PodGangs that a backend of this process keeps";
        hand_over: By<1, Seconds>, "muster_grove_hand_over_seconds", ["backend"], "one time that a backend told its scheduler of a gang, requests included";
        ready_after: By<1, Waits>, "muster_grove_accepted_after_seconds", ["backend"], "from the creation of a PodGang until its scheduler knew of it";
        errors: By<1, Counter>, "muster_grove_errors_total", ["backend"], "times that a backend could not tell its scheduler of a gang";
        losses: By<1, Counter>, "muster_grove_losses_total", ["backend"], "PodGangs of which a scheduler could not be told everything";
    }
    kueue: Kueue, "Kueue" {
        attempts: By<1, Counter>, "kueue_admission_attempts_total", ["result"], "turns of admission: success where somebody was admitted, else inadmissible";
        attempt: By<1, Seconds>, "kueue_admission_attempt_duration_seconds", ["result"], "one turn of admission, without the writes";
        pending: By<2, Gauge>, "kueue_pending_workloads", ["cluster_queue", "status"], "workloads that wait: active in line, inadmissible until something changes";
        reserving_active: By<1, Gauge>, "kueue_reserving_active_workloads", ["cluster_queue"], "workloads that hold quota";
        admitted_active: By<1, Gauge>, "kueue_admitted_active_workloads", ["cluster_queue"], "workloads that are admitted and not finished";
        quota_reserved: By<1, Counter>, "kueue_quota_reserved_workloads_total", ["cluster_queue"], "workloads that were given quota";
        quota_reserved_wait: By<1, Waits>, "kueue_quota_reserved_wait_time_seconds", ["cluster_queue"], "from when a workload queued up until it had quota";
        admitted: By<1, Counter>, "kueue_admitted_workloads_total", ["cluster_queue"], "workloads that were admitted";
        admission_wait: By<1, Waits>, "kueue_admission_wait_time_seconds", ["cluster_queue"], "from when a workload queued up until it was admitted";
        checks_wait: By<1, Waits>, "kueue_admission_checks_wait_time_seconds", ["cluster_queue"], "from quota to admission, of workloads with admission checks";
        ready_wait: By<1, Waits>, "kueue_ready_wait_time_seconds", ["cluster_queue"], "from when a workload queued up until its pods were ready";
        admitted_until_ready: By<1, Waits>, "kueue_admitted_until_ready_wait_time_seconds", ["cluster_queue"], "from admission until all pods were ready";
        execution: By<1, Waits>, "kueue_execution_time_seconds", ["cluster_queue"], "from the last admission of a workload to its end";
        finished: By<1, Counter>, "kueue_finished_workloads_total", ["cluster_queue"], "workloads that finished";
        evicted: By<2, Counter>, "kueue_evicted_workloads_total", ["cluster_queue", "reason"], "workloads that had to go, by reason";
        preempted: By<2, Counter>, "kueue_preempted_workloads_total", ["preempting_cluster_queue", "reason"], "workloads that had to go for another, by the queue of that and the rule";
        cluster_queue_status: By<2, Gauge>, "kueue_cluster_queue_status", ["cluster_queue", "status"], "1 for what a queue is: pending, active or terminating";
        cluster_queue_share: By<1, Gauge>, "kueue_cluster_queue_weighted_share", ["cluster_queue"], "what a queue borrows of its cohort in per mille, by its weight, where shares count";
        cohort_share: By<1, Gauge>, "kueue_cohort_weighted_share", ["cohort"], "what a cohort borrows of its parent in per mille, by its weight, where shares count";
        resource_reservation: By<4, Gauge>, "kueue_cluster_queue_resource_reservation", ["cohort", "cluster_queue", "flavor", "resource"], "quota that workloads hold";
        resource_usage: By<4, Gauge>, "kueue_cluster_queue_resource_usage", ["cohort", "cluster_queue", "flavor", "resource"], "quota that admitted workloads hold";
        nominal_quota: By<4, Gauge>, "kueue_cluster_queue_nominal_quota", ["cohort", "cluster_queue", "flavor", "resource"], "the quota of a queue";
        borrowing_limit: By<4, Gauge>, "kueue_cluster_queue_borrowing_limit", ["cohort", "cluster_queue", "flavor", "resource"], "what a queue may borrow; absent where that is not limited";
        lending_limit: By<4, Gauge>, "kueue_cluster_queue_lending_limit", ["cohort", "cluster_queue", "flavor", "resource"], "what a queue lends; absent where it lends all";
        local_pending: By<3, Gauge>, "kueue_local_queue_pending_workloads", ["name", "namespace", "status"], "workloads of a local queue that wait";
        local_reserving: By<2, Gauge>, "kueue_local_queue_reserving_active_workloads", ["name", "namespace"], "workloads of a local queue that hold quota";
        local_admitted: By<2, Gauge>, "kueue_local_queue_admitted_active_workloads", ["name", "namespace"], "workloads of a local queue that are admitted and not finished";
    }
}

/// The metrics of a process; clones are the same.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    families: Families,
    registry: Arc<Registry>,
    term: Term,
}

/// For how long what somebody says of the state of things counts.
#[derive(Clone, Debug, Default)]
pub struct Term {
    over: Arc<AtomicBool>,
}

impl Term {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}

impl std::ops::Deref for Metrics {
    type Target = Families;

    fn deref(&self) -> &Families {
        &self.0.families
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics::new(PREFIX, Service::ALL)
    }
}

impl Metrics {
    /// Shows the families of these services, KAI's under this prefix. An empty prefix is allowed.
    pub fn new(prefix: &str, services: &[Service]) -> Self {
        let mut families = Families::new();
        families.binder.bind.also = Some(families.binder.task_bind_latency.clone());
        let mut registry = Registry::default();
        families.register(services, &mut registry, prefix);
        families.process.build_info.of([env!("CARGO_PKG_VERSION")]).set(1.0);
        Metrics(Arc::new(Inner { families, registry: Arc::new(registry), term: Term::default() }))
    }

    /// The same numbers for those who work while this process has a lease.
    #[must_use]
    pub fn for_term(&self) -> Metrics {
        let term = Term::default();
        let families = self.0.families.in_term(&term);
        Metrics(Arc::new(Inner { families, registry: self.0.registry.clone(), term }))
    }

    /// From now on nothing is shown of how things are by the word of those who were given this one or a clone of it: somebody else
    /// knows better.
    pub fn end_term(&self) {
        self.0.term.over.store(true, Ordering::Release);
    }

    /// The text of `/metrics`, of the type [`CONTENT_TYPE`].
    pub fn text(&self) -> String {
        self.0.families.process.read();
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.0.registry);
        text
    }
}

pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

impl Process {
    /// Counts the answer to a request; `code` as HTTP has it, 0 for none.
    pub fn answered(&self, verb: &str, code: u16) {
        self.api_requests.of([verb, &code.to_string()]).inc();
    }

    /// Reads what the operating system knows; where it does not say, the values stay as they are.
    fn read(&self) {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // The name of the program, in parentheses, may have spaces in it.
        let fields: Vec<f64> = stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .map(|field| field.parse().unwrap_or(0.0))
            .collect();
        if let [.., user, system, _, _, _, _, _, _, _, _, pages] = fields.get(..22).unwrap_or_default() {
            // Linux counts in hundredths of a second and in pages of 4 KiB on every platform we build for.
            let now = (user + system) / 100.0;
            self.cpu_seconds.add((now - self.cpu_seconds.get()).max(0.0));
            self.resident_memory.set(pages * 4096.0);
        }
        if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
            self.open_files.set(files.count() as f64);
        }
    }
}

impl Scheduler {
    pub fn cycle_took(&self, time: Duration) {
        self.cycle.took(time);
        self.e2e_latency.set(milliseconds(time));
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// A page for people: every family with its type, labels and meaning.
pub fn table() -> String {
    let mut page = format!(
        "# Metrics\n\n\
         Generated from `crates/muster-runtime/src/metrics.rs`; `MUSTER_UPDATE=1 cargo test -p muster-runtime` writes it anew.\n\n\
         A process serves the families of the components that it runs, and those of every process, under `/metrics`, in the OpenMetrics\n\
         format. A family without a value is not shown. Names that KAI has too start with `{PREFIX}_` here, or with whatever prefix is\n\
         set instead. KAI's counters whose names do not end in `_total` keep their names and are of type `unknown`, since the format\n\
         allows no other; `rate()` works on them all the same.\n\
         A family has at most {MOST_SERIES} series; what goes beyond is counted together with `{OTHER}` for every label.\n\
         A gauge is shown from when there is something to say. What a process says of the cluster while it holds a lease is shown no longer\n\
         once it has lost the lease, so a sum over all processes counts everything once; counters and histograms stay.\n"
    );
    for (title, rows) in TABLE {
        // Writing to a string cannot fail, here and below.
        let _ = write!(page, "\n## {title}\n\n| name | type | labels | meaning |\n|---|---|---|---|\n");
        for row in *rows {
            let labels: Vec<String> = row.labels.iter().map(|label| format!("`{label}`")).collect();
            let name = full_name(PREFIX, row.name);
            let _ = writeln!(page, "| `{name}` | {} | {} | {} |", row.kind, labels.join(", "), row.help);
        }
    }
    page.push_str(
        "\n## What KAI has besides\n\nThese families of KAI's have no counterpart, on purpose; what to read instead is said beside them.\n\n",
    );
    for (names, why, instead) in WITHOUT {
        let names: Vec<String> = names.iter().map(|name| format!("`{}`", full_name(PREFIX, name))).collect();
        let _ = writeln!(page, "- {}: {why}. Instead: {instead}.", names.join(", "));
    }
    page
}

/// Families of KAI's that are not here, why, and what to read instead.
const WITHOUT: &[(&[&str], &str, &str)] = &[
    (
        &["open_session_latency_milliseconds", "close_session_latency_milliseconds"],
        "there are no sessions: what is known is kept from cycle to cycle, and a cycle takes in what has changed",
        "`muster_cycle_seconds`, which has it in it",
    ),
    (
        &["action_scheduling_latency_milliseconds"],
        "a cycle is decided without a clock, so that it can be repeated to the byte; it takes milliseconds and is measured whole",
        "`muster_cycle_seconds`, `kai_podgroups_acted_on_by_action`",
    ),
    (&["plugin_scheduling_latency_milliseconds"], "there are no plugins", "`muster_cycle_seconds`"),
    (
        &["usage_query_latency_milliseconds"],
        "past usage is not read from a database; whoever keeps it writes it to the annotations `muster.dev/usage-gpu`, `-cpu` and `-memory` of the queue",
        "nothing; what was read is in `kai_queue_gpu_usage` and the like",
    ),
    (
        &["scenarios_simulation_by_action", "scenarios_filtered_by_action"],
        "victims are not found by going through scenarios",
        "how many trials a search made is in the reason why a gang waits: `muster explain`",
    ),
    (
        &[
            "scenario_search_jobs_total",
            "scenario_search_scenarios_total",
            "scenario_search_duration_seconds",
            "scenario_search_action_budget_exhausted_total",
            "scenario_search_action_budget_configured_seconds",
            "scenario_search_job_budget_configured_seconds",
            "scenario_search_generator_budget_configured_seconds",
        ],
        "a search is bounded by trials and not by seconds, and has no generators",
        "the same",
    ),
];

struct Row {
    name: &'static str,
    kind: &'static str,
    #[cfg_attr(not(test), expect(dead_code, reason = "only a test compares it with the labels"))]
    n_labels: usize,
    labels: &'static [&'static str],
    help: &'static str,
}

fn full_name(prefix: &str, name: &str) -> String {
    if prefix.is_empty() || FIXED.iter().any(|fixed| name.starts_with(fixed)) {
        name.to_owned()
    } else {
        format!("{prefix}_{name}")
    }
}

/// A kind of number that can be shown.
pub trait Measure: EncodeMetric + Clone + std::fmt::Debug + Send + Sync + 'static {
    const KIND: &'static str;
    const N_LABELS: usize = 0;
    fn make(labels: &'static [&'static str]) -> Self;

    /// The same number, for somebody whose word counts for a term.
    #[must_use]
    fn in_term(&self, _: &Term) -> Self {
        self.clone()
    }

    /// Whether there is a number to show.
    fn is_known(&self) -> bool {
        true
    }

    /// The name to register so that `name` is what is shown.
    fn registered(name: &str) -> String {
        name.to_owned()
    }
}

/// A number that only grows. Its name ends in `_total`.
#[derive(Clone, Debug, Default)]
pub struct Counter(counter::Counter<f64>);

impl Counter {
    pub fn inc(&self) {
        self.0.inc();
    }

    pub fn add(&self, n: f64) {
        self.0.inc_by(n);
    }

    pub fn get(&self) -> f64 {
        self.0.get()
    }
}

impl Measure for Counter {
    const KIND: &'static str = "counter";

    fn make(_: &'static [&'static str]) -> Self {
        Counter::default()
    }

    /// The encoder adds the ending by itself.
    fn registered(name: &str) -> String {
        name.strip_suffix("_total").unwrap_or(name).to_owned()
    }
}

impl EncodeMetric for Counter {
    fn encode(&self, encoder: MetricEncoder<'_>) -> std::fmt::Result {
        self.0.encode(encoder)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Counter
    }
}

/// A number that only grows and whose name, which is KAI's, does not end in `_total`.
#[derive(Clone, Debug, Default)]
pub struct Tally(counter::Counter);

impl Tally {
    pub fn inc(&self) {
        self.0.inc();
    }

    pub fn add(&self, n: u64) {
        self.0.inc_by(n);
    }

    pub fn get(&self) -> u64 {
        self.0.get()
    }
}

impl Measure for Tally {
    const KIND: &'static str = "counter (unknown)";

    fn make(_: &'static [&'static str]) -> Self {
        Tally::default()
    }
}

impl EncodeMetric for Tally {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> std::fmt::Result {
        encoder.encode_gauge(&self.0.get())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Unknown
    }
}

/// A number as it is now. It is shown from when somebody says it until their term is over.
#[derive(Clone, Debug, Default)]
pub struct Gauge {
    said: Arc<Mutex<Option<(f64, Term)>>>,
    term: Term,
}

impl Gauge {
    pub fn set(&self, value: f64) {
        self.change(|_| value);
    }

    pub fn inc(&self) {
        self.add(1.0);
    }

    pub fn dec(&self) {
        self.add(-1.0);
    }

    pub fn add(&self, n: f64) {
        self.change(|value| value + n);
    }

    /// Zero where nobody has said anything.
    pub fn get(&self) -> f64 {
        self.known().unwrap_or(0.0)
    }

    fn known(&self) -> Option<f64> {
        self.said().as_ref().filter(|(_, term)| !term.is_over()).map(|(value, _)| *value)
    }

    /// Whoever is late says nothing.
    fn change(&self, change: impl FnOnce(f64) -> f64) {
        if self.term.is_over() {
            return;
        }
        let mut said = self.said();
        let old = said.as_ref().filter(|(_, term)| !term.is_over()).map_or(0.0, |(value, _)| *value);
        *said = Some((change(old), self.term.clone()));
    }

    fn said(&self) -> MutexGuard<'_, Option<(f64, Term)>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Measure for Gauge {
    const KIND: &'static str = "gauge";

    fn make(_: &'static [&'static str]) -> Self {
        Gauge::default()
    }

    fn in_term(&self, term: &Term) -> Self {
        Gauge { said: self.said.clone(), term: term.clone() }
    }

    fn is_known(&self) -> bool {
        self.known().is_some()
    }
}

impl EncodeMetric for Gauge {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> std::fmt::Result {
        match self.known() {
            Some(value) => encoder.encode_gauge(&value),
            None => Ok(()),
        }
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }

    fn is_empty(&self) -> bool {
        !self.is_known()
    }
}

/// A histogram of times in seconds, from half a millisecond to a minute.
#[derive(Clone, Debug)]
pub struct Seconds {
    seen: histogram::Histogram,
    /// The same under KAI's name.
    also: Option<Milliseconds>,
}

impl Seconds {
    pub fn took(&self, time: Duration) {
        self.seen.observe(time.as_secs_f64());
        if let Some(also) = &self.also {
            also.took(time);
        }
    }
}

impl Measure for Seconds {
    const KIND: &'static str = "histogram";

    fn make(_: &'static [&'static str]) -> Self {
        let seen = histogram::Histogram::new(histogram::exponential_buckets(0.0005, 2.0, 18));
        Seconds { seen, also: None }
    }
}

impl EncodeMetric for Seconds {
    fn encode(&self, encoder: MetricEncoder<'_>) -> std::fmt::Result {
        self.seen.encode(encoder)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// A histogram of how long somebody waited or worked, in seconds: from a few milliseconds to half a day. Alerts ask for whole minutes, so these are bounds.
#[derive(Clone, Debug)]
pub struct Waits(histogram::Histogram);

const WAITS: [f64; 20] = [
    0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0, 300.0, 600.0, 1800.0,
    3600.0, 10_800.0, 43_200.0,
];

impl Waits {
    pub fn took(&self, time: Duration) {
        self.0.observe(time.as_secs_f64());
    }
}

impl Measure for Waits {
    const KIND: &'static str = "histogram";

    fn make(_: &'static [&'static str]) -> Self {
        Waits(histogram::Histogram::new(WAITS))
    }
}

impl EncodeMetric for Waits {
    fn encode(&self, encoder: MetricEncoder<'_>) -> std::fmt::Result {
        self.0.encode(encoder)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// A histogram of times in milliseconds with KAI's buckets and, up to three hours, some beyond.
#[derive(Clone, Debug)]
pub struct Milliseconds(histogram::Histogram);

impl Milliseconds {
    pub fn took(&self, time: Duration) {
        self.0.observe(milliseconds(time));
    }
}

impl Measure for Milliseconds {
    const KIND: &'static str = "histogram";

    fn make(_: &'static [&'static str]) -> Self {
        let beyond = [300_000.0, 600_000.0, 1_800_000.0, 3_600_000.0, 10_800_000.0];
        let buckets = histogram::exponential_buckets(5.0, 2.0, 15).chain(beyond);
        Milliseconds(histogram::Histogram::new(buckets))
    }
}

impl EncodeMetric for Milliseconds {
    fn encode(&self, encoder: MetricEncoder<'_>) -> std::fmt::Result {
        self.0.encode(encoder)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// One number for each combination of labels, at most [`MOST_SERIES`] of them.
#[derive(Clone, Debug)]
pub struct By<const N: usize, M> {
    labels: &'static [&'static str],
    /// In the order of their labels.
    series: Arc<RwLock<Vec<(Values<N>, M)>>>,
    term: Term,
}

type Values<const N: usize> = [Arc<str>; N];

impl<const N: usize, M: Measure> By<N, M> {
    /// The number for these labels. Whoever needs it often keeps it.
    pub fn of(&self, values: [&str; N]) -> M {
        if let Some(known) = self.get(values) {
            return known;
        }
        let mut series = self.series.write().unwrap_or_else(PoisonError::into_inner);
        if series.len() >= MOST_SERIES {
            // Some may be left of a term that is over.
            series.retain(|(_, measure)| measure.is_known());
        }
        let full = series.len() >= MOST_SERIES;
        let values = if full && find(&series, values).is_err() { [OTHER; N] } else { values };
        let at = match find(&series, values) {
            Ok(at) => at,
            Err(at) => {
                series.insert(at, (values.map(Arc::from), M::make(&[])));
                at
            }
        };
        series[at].1.in_term(&self.term)
    }

    /// The number for these labels, if there is one yet.
    pub fn get(&self, values: [&str; N]) -> Option<M> {
        let series = self.series.read().unwrap_or_else(PoisonError::into_inner);
        let at = find(&series, values).ok()?;
        series.get(at).map(|(_, measure)| measure.in_term(&self.term))
    }

    /// Forgets the series of what is no longer there.
    pub fn retain(&self, mut keep: impl FnMut(&[Arc<str>; N]) -> bool) {
        self.series.write().unwrap_or_else(PoisonError::into_inner).retain(|(values, _)| keep(values));
    }

    /// How many are shown.
    pub fn len(&self) -> usize {
        let series = self.series.read().unwrap_or_else(PoisonError::into_inner);
        series.iter().filter(|(_, measure)| measure.is_known()).count()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Where the series is, or where it would be.
fn find<const N: usize, M>(series: &[(Values<N>, M)], values: [&str; N]) -> Result<usize, usize> {
    series.binary_search_by(|(have, _)| have.iter().map(|value| &**value).cmp(values))
}

impl<const N: usize, M: Measure> Measure for By<N, M> {
    const KIND: &'static str = M::KIND;
    const N_LABELS: usize = N;

    fn make(labels: &'static [&'static str]) -> Self {
        By { labels, series: Arc::default(), term: Term::default() }
    }

    fn in_term(&self, term: &Term) -> Self {
        By { term: term.clone(), ..self.clone() }
    }

    fn registered(name: &str) -> String {
        M::registered(name)
    }
}

impl<const N: usize, M: Measure> EncodeMetric for By<N, M> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> std::fmt::Result {
        let series = self.series.read().unwrap_or_else(PoisonError::into_inner);
        for (values, measure) in series.iter().filter(|(_, measure)| measure.is_known()) {
            measure.encode(encoder.encode_family(&Labels { names: self.labels, values })?)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        M::make(&[]).metric_type()
    }

    fn is_empty(&self) -> bool {
        By::is_empty(self)
    }
}

struct Labels<'a> {
    names: &'static [&'static str],
    values: &'a [Arc<str>],
}

impl EncodeLabelSet for Labels<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> std::fmt::Result {
        for (name, value) in self.names.iter().zip(self.values) {
            (*name, &**value).encode(encoder.encode_label())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_what_the_code_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
        if std::env::var_os("MUSTER_UPDATE").is_some() {
            std::fs::write(path, table()).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(written == table(), "docs/metrics.md is old: MUSTER_UPDATE=1 cargo test -p muster-runtime");
    }

    #[test]
    fn the_table_is_sound() {
        let mut names = std::collections::BTreeSet::new();
        for row in TABLE.iter().flat_map(|(_, rows)| rows.iter()) {
            assert!(names.insert(row.name), "{} is there twice", row.name);
            assert_eq!(row.n_labels, row.labels.len(), "{}", row.name);
            assert_eq!(row.kind == "counter", row.name.ends_with("_total"), "{}", row.name);
            assert!(!row.help.is_empty() && !row.help.ends_with('.'), "{}", row.help);
            assert!(
                row.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'),
                "{}",
                row.name
            );
        }
        assert!(names.len() > 30);
        for name in WITHOUT.iter().flat_map(|(absent, ..)| absent.iter()) {
            assert!(names.insert(name), "{name} is said to be absent, and is there");
        }
    }

    /// The lines of a family that say something.
    #[track_caller]
    fn check(metrics: &Metrics, family: &str, expected: &[&str]) {
        let text = metrics.text();
        let lines: Vec<&str> =
            text.lines().filter(|l| l.contains(family) && !l.starts_with("# HELP")).collect();
        assert_eq!(lines, expected);
    }

    #[test]
    fn shows_what_was_measured() {
        let metrics = Metrics::default();
        metrics.binder.binds.of(["failed"]).inc();
        metrics.binder.binds.of(["bound"]).add(2.0);
        check(
            &metrics,
            "muster_binds",
            &[
                "# TYPE muster_binds counter",
                r#"muster_binds_total{result="bound"} 2.0"#,
                r#"muster_binds_total{result="failed"} 1.0"#,
            ],
        );
        metrics.scheduler.gangs_scheduled.of(["allocate"]).add(3);
        check(
            &metrics,
            "podgroups_scheduled",
            &[
                "# TYPE kai_podgroups_scheduled_by_action unknown",
                r#"kai_podgroups_scheduled_by_action{action="allocate"} 3"#,
            ],
        );
        metrics.scheduler.cycle_took(Duration::from_millis(3));
        check(
            &metrics,
            "e2e_",
            &[
                "# TYPE kai_e2e_scheduling_latency_milliseconds gauge",
                "kai_e2e_scheduling_latency_milliseconds 3.0",
            ],
        );
        assert!(metrics.text().contains("muster_cycle_seconds_bucket{le=\"0.004\"} 1"));
        check(&metrics, "queue_info", &[]);
        check(
            &metrics,
            "build_info",
            &[
                "# TYPE muster_build_info gauge",
                concat!("muster_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1.0"),
            ],
        );
        assert!(metrics.text().ends_with("# EOF\n"));
        assert!(metrics.process.resident_memory.get() > 1e6);
    }

    #[test]
    fn how_things_are_is_said_by_whose_turn_it_is() {
        let process = Metrics::default();
        let first = process.for_term();
        let other = process.for_term();
        process.process.leading.of(["muster-a"]).set(1.0);
        first.scheduler.pending_gangs.set(2.0);
        first.scheduler.queue_oldest_pending.of(["team"]).set(103.0);
        first.scheduler.gangs_scheduled.of(["allocate"]).inc();
        first.scheduler.cycle_took(Duration::from_millis(3));
        let kept = first.binder.in_flight.clone();
        kept.add(3.0);
        other.queues.allocated_gpus.of(["team"]).set(2.0);
        let pending: &[&str] = &["# TYPE muster_pending_gangs gauge", "muster_pending_gangs 2.0"];
        check(&process, "muster_pending_gangs", pending);
        assert!(process.text().contains(r#"muster_queue_oldest_pending_seconds{queue_name="team"} 103.0"#));

        process.process.leading.of(["muster-a"]).set(0.0);
        first.end_term();
        for gone in ["pending_gangs", "oldest_pending", "in_flight", "e2e_scheduling_latency_milliseconds "] {
            check(&process, gone, &[]);
        }
        let text = process.text();
        for stays in [
            r#"muster_leading{lease="muster-a"} 0.0"#,
            r#"kai_podgroups_scheduled_by_action{action="allocate"} 1"#,
            "muster_cycle_seconds_count 1",
            r#"kai_queue_allocated_gpus{queue_name="team"} 2.0"#,
            "process_open_fds ",
        ] {
            assert!(text.contains(stays), "{stays} is not in\n{text}");
        }

        // Who comes late is not heard, and the next term begins anew.
        kept.dec();
        first.scheduler.pending_gangs.set(2.0);
        check(&process, "in_flight", &[]);
        check(&process, "muster_pending_gangs", &[]);
        let second = process.for_term();
        second.scheduler.pending_gangs.inc();
        check(
            &process,
            "muster_pending_gangs",
            &["# TYPE muster_pending_gangs gauge", "muster_pending_gangs 1.0"],
        );
        first.scheduler.pending_gangs.set(2.0);
        assert_eq!(process.scheduler.pending_gangs.get(), 1.0);
        check(&process, "oldest_pending", &[]);
    }

    #[test]
    fn what_a_term_leaves_behind_takes_no_room() {
        let process = Metrics::default();
        let fill = |metrics: &Metrics, prefix: &str| {
            for i in 0..MOST_SERIES {
                metrics.queues.info.of([&format!("{prefix}{i}")]).set(1.0);
            }
        };
        let first = process.for_term();
        fill(&first, "a");
        first.end_term();
        assert!(process.queues.info.is_empty());
        fill(&process.for_term(), "b");
        assert_eq!(process.queues.info.len(), MOST_SERIES);
        assert_eq!(process.queues.info.of([OTHER]).get(), 0.0);
    }

    #[test]
    fn a_binding_is_timed_under_both_names() {
        let metrics = Metrics::default();
        metrics.for_term().binder.bind.took(Duration::from_millis(7));
        let text = metrics.text();
        for line in ["muster_bind_seconds_sum 0.007", "kai_task_bind_latency_milliseconds_sum 7.0"] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn waits_of_hours_are_told_from_waits_of_minutes() {
        let metrics = Metrics::default();
        let hours = Duration::from_secs(9000);
        metrics.scheduler.gang_wait.took(hours);
        metrics.scheduler.task_scheduling_latency.took(hours);
        metrics.kueue.execution.of(["q"]).took(hours);
        let text = metrics.text();
        let check = |family: &str, bound: &str, n: &str| {
            let line = text.lines().find(|l| l.starts_with(family) && l.contains(&format!("le=\"{bound}\"")));
            assert!(line.is_some_and(|line| line.ends_with(n)), "{family} {bound}: {line:?}");
        };
        for family in ["muster_gang_wait_seconds_bucket", "kueue_execution_time_seconds_bucket"] {
            for (bound, n) in [("600.0", " 0"), ("3600.0", " 0"), ("10800.0", " 1"), ("43200.0", " 1")] {
                check(family, bound, n);
            }
        }
        let latency = "kai_task_scheduling_latency_milliseconds_bucket";
        for (bound, n) in [("5.0", " 0"), ("81920.0", " 0"), ("600000.0", " 0"), ("10800000.0", " 1")] {
            check(latency, bound, n);
        }
        let n_buckets = |family: &str| text.lines().filter(|line| line.starts_with(family)).count();
        assert!(n_buckets("muster_gang_wait_seconds_bucket") <= 21 && n_buckets(latency) <= 21);
    }

    #[test]
    fn names_are_prefixed_and_strange_values_escaped() {
        let metrics = Metrics::new("", &[Service::Queues]);
        metrics.queues.info.of(["a \"b\"\\\n"]).set(1.0);
        check(
            &metrics,
            "queue_info",
            &["# TYPE queue_info gauge", r#"queue_info{queue_name="a \"b\"\\\n"} 1.0"#],
        );
        assert!(!metrics.text().contains("muster_pending_gangs"), "the scheduler is not here");
    }

    #[test]
    fn series_are_bounded() {
        let metrics = Metrics::default();
        for i in 0..MOST_SERIES + 100 {
            metrics.scheduler.evicted_pods.of(["g", "ns", &i.to_string(), "", "reclaim"]).inc();
        }
        assert_eq!(metrics.scheduler.evicted_pods.len(), MOST_SERIES + 1);
        assert_eq!(metrics.scheduler.evicted_pods.of([OTHER; 5]).get(), 100.0);
        assert_eq!(metrics.scheduler.evicted_pods.of(["g", "ns", "7", "", "reclaim"]).get(), 1.0);
        metrics.scheduler.evicted_pods.retain(|[_, _, uid, _, _]| &**uid == "7");
        assert_eq!(metrics.scheduler.evicted_pods.len(), 1);
    }
}
