//! What watches Muster: a ServiceMonitor, alerts and a dashboard.
//!
//! In: settings. Out: objects. Must stay true: every metric that a rule or a panel reads is in [`METRICS`], which the table of
//! metrics is tested against. KAI's names are kept where KAI has one, so that its dashboards go on working.

use serde_json::{Value, json};

use crate::settings::Settings;
use crate::workload::labels;

/// Every metric that rules and panels read.
pub const METRICS: &[&str] = &[
    "kai_e2e_scheduling_latency_milliseconds",
    "kai_task_scheduling_latency_milliseconds",
    "kai_queue_allocated_gpus",
    "kai_queue_deserved_gpus",
    "kai_queue_fair_share_gpu",
    "muster_cycle_seconds",
    "muster_binds_total",
    "muster_evictions_total",
    "muster_pending_gangs",
    "muster_queue_pending_gangs",
    "muster_queue_oldest_pending_seconds",
    "muster_gpu_capacity",
    "muster_gpu_allocated",
    "muster_gpu_fragmentation_ratio",
];

pub fn objects(settings: &Settings) -> Vec<Value> {
    vec![service_monitor(settings), rules(settings), dashboard(settings)]
}

fn service_monitor(settings: &Settings) -> Value {
    json!({
        "apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor",
        "metadata": {"name": "muster", "namespace": settings.namespace, "labels": labels("monitoring")},
        "spec": {
            "selector": {"matchLabels": {"app.kubernetes.io/name": "muster"}},
            "namespaceSelector": {"matchNames": [settings.namespace]},
            "endpoints": [{
                "port": "metrics", "interval": settings.scrape_interval, "scrapeTimeout": settings.scrape_timeout,
            }],
        },
    })
}

/// An alert: name, condition, for how long, how bad, what it says, what to do.
type Alert = (&'static str, &'static str, &'static str, &'static str, &'static str, &'static str);

const ALERTS: &[Alert] = &[
    (
        "MusterSchedulingSlow",
        "histogram_quantile(0.99, sum by (le) (rate(muster_cycle_seconds_bucket[10m]))) > 2",
        "15m",
        "warning",
        "One cycle in a hundred takes {{ $value | humanizeDuration }}.",
        "See docs/tuning.md; `muster snapshot` and `muster replay` show which action takes the time.",
    ),
    (
        "MusterNoScheduler",
        // Every process has every histogram and counter, at 0: only what nobody but a working scheduler says can be absent.
        "absent(muster_pending_gangs)",
        "5m",
        "critical",
        "No scheduler reports anything.",
        "`muster doctor`, then the logs of the scheduler's pods.",
    ),
    (
        "MusterPodsWaitLong",
        "histogram_quantile(0.5, sum by (le) (rate(kai_task_scheduling_latency_milliseconds_bucket[30m]))) > 600000",
        "30m",
        "info",
        "Half of the pods that were placed waited for more than ten minutes.",
        "`muster get gangs` and `muster explain` say what is short.",
    ),
    (
        "MusterGpuUseLow",
        "sum(muster_gpu_allocated) / sum(muster_gpu_capacity) < 0.5 and sum(muster_pending_gangs) > 0",
        "30m",
        "warning",
        "{{ $value | humanizePercentage }} of the GPUs are given out while gangs wait.",
        "Quotas, limits, topology or fragmentation keep them apart: `muster explain` on a waiting gang.",
    ),
    (
        "MusterGpusFragmented",
        "max(muster_gpu_fragmentation_ratio) > 0.4 and sum(muster_pending_gangs) > 0",
        "30m",
        "warning",
        "{{ $value | humanizePercentage }} of the free GPUs are on nodes that are partly used, and gangs wait.",
        "Allow consolidation, or pack instead of spread.",
    ),
    (
        "MusterQueueStarves",
        "kai_queue_allocated_gpus < 0.5 * (kai_queue_deserved_gpus > 0) and on (queue_name) max by (queue_name) (muster_queue_oldest_pending_seconds) > 1800",
        "15m",
        "warning",
        "Queue {{ $labels.queue_name }} has less than half of what it deserves, and a gang in it has waited for half an hour.",
        "`muster explain` on that gang; check who holds the GPUs with `muster get queues`.",
    ),
    (
        "MusterBindsFail",
        "sum(rate(muster_binds_total{result=~\"failed|rolled-back\"}[10m])) > 0.05 * sum(rate(muster_binds_total[10m])) and sum(increase(muster_binds_total{result=~\"failed|rolled-back\"}[10m])) > 5",
        "10m",
        "warning",
        "More than one bind in twenty fails.",
        "The events of the pods say why; `muster doctor` finds leftovers.",
    ),
];

fn rules(settings: &Settings) -> Value {
    let rules: Vec<Value> = ALERTS
        .iter()
        .map(|(name, condition, lasting, severity, summary, remedy)| {
            json!({
                "alert": name, "expr": condition, "for": lasting,
                "labels": {"severity": severity},
                "annotations": {"summary": summary, "description": remedy},
            })
        })
        .collect();
    json!({
        "apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule",
        "metadata": {"name": "muster", "namespace": settings.namespace, "labels": labels("monitoring")},
        "spec": {"groups": [{"name": "muster", "rules": rules}]},
    })
}

/// A panel: title, unit, and what it draws, each with its legend.
type Panel = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const PANELS: &[Panel] = &[
    ("Pods bound per second", "ops", &[("sum by (result) (rate(muster_binds_total[1m]))", "{{result}}")]),
    ("Gangs waiting", "short", &[("sum by (queue_name) (muster_queue_pending_gangs)", "{{queue_name}}")]),
    (
        "Time of a cycle",
        "s",
        &[
            ("histogram_quantile(0.5, sum by (le) (rate(muster_cycle_seconds_bucket[5m])))", "median"),
            ("histogram_quantile(0.99, sum by (le) (rate(muster_cycle_seconds_bucket[5m])))", "99 %"),
            ("kai_e2e_scheduling_latency_milliseconds / 1000", "last"),
        ],
    ),
    (
        "From a pod's creation to its place",
        "ms",
        &[
            (
                "histogram_quantile(0.5, sum by (le) (rate(kai_task_scheduling_latency_milliseconds_bucket[5m])))",
                "median",
            ),
            (
                "histogram_quantile(0.99, sum by (le) (rate(kai_task_scheduling_latency_milliseconds_bucket[5m])))",
                "99 %",
            ),
        ],
    ),
    ("GPU use", "percentunit", &[("sum(muster_gpu_allocated) / sum(muster_gpu_capacity)", "given out")]),
    (
        "Fragmentation of free GPUs",
        "percentunit",
        &[("muster_gpu_fragmentation_ratio", "on partly used nodes")],
    ),
    (
        "Shares of GPUs",
        "short",
        &[
            ("kai_queue_allocated_gpus", "{{queue_name}} has"),
            ("kai_queue_fair_share_gpu", "{{queue_metadata_name}} fair share"),
            ("kai_queue_deserved_gpus", "{{queue_name}} quota"),
        ],
    ),
    ("Longest wait", "s", &[("max by (queue_name) (muster_queue_oldest_pending_seconds)", "{{queue_name}}")]),
    ("Evictions", "ops", &[("sum by (action) (rate(muster_evictions_total[5m]))", "{{action}}")]),
];

fn dashboard(settings: &Settings) -> Value {
    const WIDTH: usize = 12;
    const HEIGHT: usize = 8;
    let panels: Vec<Value> = PANELS
        .iter()
        .enumerate()
        .map(|(i, (title, unit, lines))| {
            let targets: Vec<Value> = lines
                .iter()
                .zip("ABCDEF".chars())
                .map(|((expr, legend), id)| json!({"refId": id.to_string(), "expr": expr, "legendFormat": legend}))
                .collect();
            json!({
                "id": i + 1, "type": "timeseries", "title": title,
                "datasource": {"type": "prometheus", "uid": "${datasource}"},
                "gridPos": {"x": (i % 2) * WIDTH, "y": (i / 2) * HEIGHT, "w": WIDTH, "h": HEIGHT},
                "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
                "targets": targets,
            })
        })
        .collect();
    let dashboard = json!({
        "uid": "muster", "title": "Muster", "schemaVersion": 39, "version": 1, "editable": true,
        "refresh": "30s", "time": {"from": "now-3h", "to": "now"}, "tags": ["muster"],
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]},
        "panels": panels,
    });
    let mut labels = labels("monitoring");
    // Grafana's sidecar looks for this label.
    labels["grafana_dashboard"] = json!("1");
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "muster-dashboard", "namespace": settings.namespace, "labels": labels},
        "data": {"muster.json": format!("{dashboard:#}\n")},
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The metrics that an expression names, without the endings that histograms add.
    fn metrics_of(expr: &str) -> impl Iterator<Item = &str> {
        expr.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .filter(|word| word.starts_with("kai_") || word.starts_with("muster_"))
            .map(|word| {
                ["_bucket", "_count", "_sum"].iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word)
            })
    }

    #[test]
    fn the_list_of_metrics_is_what_is_read() {
        let expressions =
            ALERTS.iter().map(|a| a.1).chain(PANELS.iter().flat_map(|p| p.2.iter().map(|(expr, _)| *expr)));
        let read: BTreeSet<&str> = expressions.flat_map(metrics_of).collect();
        assert_eq!(read, METRICS.iter().copied().collect::<BTreeSet<&str>>());
    }

    /// Every metric that is read is one that a component has.
    #[test]
    fn the_metrics_are_there() {
        let table = muster_runtime::metrics::table();
        for name in METRICS {
            assert!(table.contains(&format!("| `{name}` |")), "{name} is in no table of metrics");
        }
    }

    /// A quantile is never above the highest bound of its histogram: an alert on more than that never comes.
    #[test]
    fn thresholds_lie_within_the_histograms() {
        let text = muster_runtime::Metrics::default().text();
        let mut n_quantiles = 0;
        for (name, expr, ..) in ALERTS {
            let Some((before, after)) = expr.split_once("_bucket[") else { continue };
            let family = before.rsplit('(').next().unwrap();
            let threshold: f64 = after.rsplit("> ").next().unwrap().parse().unwrap();
            let bounds = text.lines().filter_map(|line| {
                let bound = line.strip_prefix(family)?.strip_prefix("_bucket{le=\"")?.split('"').next()?;
                bound.parse::<f64>().ok().filter(|bound| bound.is_finite())
            });
            let highest = bounds.fold(0.0, f64::max);
            assert!(highest > threshold, "{name}: {family} ends at {highest}");
            n_quantiles += 1;
        }
        assert_eq!(n_quantiles, 2);
    }

    /// What is absent while nobody schedules: a process that waits for its turn has histograms and counters too, at 0.
    #[test]
    fn a_scheduler_in_waiting_is_no_scheduler() {
        let absent = |expr: &'static str| expr.strip_prefix("absent(")?.strip_suffix(')');
        let names: Vec<&str> = ALERTS.iter().filter_map(|alert| absent(alert.1)).collect();
        assert_eq!(names, ["muster_pending_gangs"]);
        let process = muster_runtime::Metrics::default();
        let shown = || process.text().contains("muster_pending_gangs");
        assert!(!shown());
        let term = process.for_term();
        term.scheduler.pending_gangs.set(0.0);
        assert!(shown());
        term.end_term();
        assert!(!shown());
    }

    #[test]
    fn parentheses_close() {
        for (name, expr, ..) in ALERTS {
            assert_eq!(expr.matches('(').count(), expr.matches(')').count(), "{name}");
        }
    }
}
