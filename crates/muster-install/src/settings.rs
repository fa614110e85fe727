//! What an installation can be told.
//!
//! In: nothing. Out: [`Settings`], with defaults for all of it. Must stay true: everything that the manifests, the chart and
//! the operator may differ in is a field here, so that one function makes the objects of all three.

use serde_json::{Value, json};

use crate::component::Component;

/// Where the metrics are served.
pub const METRICS_PORT: u16 = 8080;
/// Where `/healthz` and `/readyz` are served.
pub const HEALTH_PORT: u16 = 8081;
/// Where the admission webhooks are served.
pub const WEBHOOK_PORT: u16 = 9443;
/// Whom the image is made for.
pub const USER: u32 = 65532;
/// The folder of the scheduler's configuration file in its container.
pub const CONF_DIR: &str = "/etc/muster";
/// The file in it.
pub const CONF_FILE: &str = "scheduler.yaml";
/// The folder of Kueue's configuration in a container that reads it.
pub const KUEUE_DIR: &str = "/etc/muster-kueue";
/// The file in it.
pub const KUEUE_FILE: &str = "kueue.yaml";
/// The Deployment of Kueue, and the ConfigMap with its configuration.
pub const KUEUE: &str = "muster-kueue";
/// The name of both webhook configurations, which the admission component makes once it serves.
pub const WEBHOOKS: &str = "muster-admission";
/// The Secret in which the admission component keeps its certificates.
pub const CERTIFICATES: &str = "muster-admission-certificates";

#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub namespace: String,
    pub image: String,
    pub pull_policy: String,
    /// Names of Secrets, as `[{"name": ..}]`.
    pub pull_secrets: Value,
    /// The scheduler names of pods that Muster places.
    pub scheduler_names: Vec<String>,
    pub queue_label: String,
    pub node_pool_label: String,
    /// One scheduler each.
    pub shards: Vec<Shard>,
    /// The Deployments besides the schedulers'.
    pub sets: Vec<Set>,
    /// How each scheduler runs; its name and components are not used.
    pub scheduler: Set,
    /// Where the pods that hold shared GPUs live.
    pub reservation_namespace: String,
    /// Their account.
    pub reservation_account: String,
    /// Their image; `None` is that of everything else.
    pub reservation_image: Option<String>,
    /// Where the pods that ask for nodes live.
    pub scale_namespace: String,
    /// Take the scheduler names from whoever answers to them now; it gets them back when Muster goes.
    pub take_over: bool,
    /// What a `Configuration` of `config.kueue.x-k8s.io` says; empty is Kueue's own defaults.
    pub kueue_config: Value,
    /// What the default queues deserve, in every resource; -1 is unlimited.
    pub default_quota: i64,
    /// ServiceMonitor, PrometheusRule and a dashboard. The first two need the kinds of the Prometheus operator.
    pub monitoring: bool,
    /// NetworkPolicies that deny what Muster's pods do not need.
    pub network_policies: bool,
    /// Install only the operator, a Config and its shards, and leave the rest to the operator.
    pub operator: bool,
    pub node_selector: Value,
    pub tolerations: Value,
    /// Replaces the default affinity (no two replicas on one host where that is possible) unless null.
    pub affinity: Value,
    /// Never two replicas on one host, even if one then stays pending.
    pub strict_anti_affinity: bool,
    /// Empty: none.
    pub priority_class: String,
    /// The user, and its group, that the pods run as; `None`: whom the cluster chooses, as OpenShift does.
    pub run_as: Option<u32>,
    /// The address of its own at which a pod serves metrics, probes and webhooks.
    pub listen: String,
    /// The ports of the API server, as the pods see them: ports of a NetworkPolicy.
    pub api_ports: Value,
    /// How often Prometheus collects, and how long it waits.
    pub scrape_interval: String,
    pub scrape_timeout: String,
    /// Replaces that of the containers unless null.
    pub security_context: Value,
    pub json_logs: bool,
}

/// A scheduler for the nodes of one pool.
#[derive(Debug, Clone, PartialEq)]
pub struct Shard {
    /// The name of its objects.
    pub name: String,
    /// The value of the node pool label; empty means nodes without the label.
    pub partition: String,
    /// The spec of a SchedulingShard.
    pub spec: Value,
    /// Flags for this scheduler only.
    pub args: Vec<String>,
}

/// Components that share a process: one Deployment.
#[derive(Debug, Clone, PartialEq)]
pub struct Set {
    /// The name of its objects.
    pub name: String,
    pub components: Vec<Component>,
    pub replicas: u32,
    pub resources: Value,
    /// Flags besides those that every process gets.
    pub args: Vec<String>,
    /// What this Deployment has instead of the settings for all.
    pub image: Option<String>,
    pub pull_policy: Option<String>,
    pub affinity: Value,
    /// `None`: no PodDisruptionBudget.
    pub max_unavailable: Option<u32>,
}

impl Set {
    pub fn new(name: &str, components: &[Component], replicas: u32, resources: Value) -> Self {
        Set {
            name: name.to_owned(),
            components: components.to_vec(),
            replicas,
            resources,
            args: Vec::new(),
            image: None,
            pull_policy: None,
            affinity: Value::Null,
            max_unavailable: Some(1),
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            namespace: "muster-system".into(),
            image: concat!("muster:", env!("CARGO_PKG_VERSION")).into(),
            pull_policy: "IfNotPresent".into(),
            pull_secrets: json!([]),
            scheduler_names: vec!["muster-scheduler".into(), "kai-scheduler".into()],
            queue_label: "kai.scheduler/queue".into(),
            node_pool_label: "kai.scheduler/node-pool".into(),
            shards: vec![Shard {
                name: "muster-scheduler".into(),
                partition: String::new(),
                spec: json!({}),
                args: Vec::new(),
            }],
            sets: vec![
                Set::new(
                    "muster-controllers",
                    &[Component::Grouper, Component::Podgroups, Component::Queues, Component::ScaleAdjuster],
                    2,
                    resources("100m", "128Mi", "1Gi"),
                ),
                Set::new("muster-admission", &[Component::Admission], 2, resources("50m", "64Mi", "256Mi")),
                Set::new("muster-grove", &Component::GROVE, 2, resources("100m", "128Mi", "1Gi")),
                Set::new(KUEUE, &[Component::Kueue], 2, resources("100m", "128Mi", "1Gi")),
            ],
            scheduler: Set::new(
                "muster-scheduler",
                &[Component::Scheduler, Component::Binder],
                2,
                resources("500m", "256Mi", "4Gi"),
            ),
            reservation_namespace: "kai-resource-reservation".into(),
            reservation_account: "kai-resource-reservation".into(),
            reservation_image: None,
            scale_namespace: "kai-scale-adjust".into(),
            take_over: false,
            kueue_config: json!({}),
            default_quota: -1,
            monitoring: false,
            network_policies: true,
            operator: false,
            node_selector: json!({}),
            tolerations: json!([]),
            affinity: Value::Null,
            strict_anti_affinity: false,
            priority_class: "system-cluster-critical".into(),
            run_as: Some(USER),
            listen: "0.0.0.0".into(),
            api_ports: ports(&[443, 6443]),
            scrape_interval: "30s".into(),
            scrape_timeout: "10s".into(),
            security_context: Value::Null,
            json_logs: true,
        }
    }
}

impl Settings {
    /// Whether Kueue's workloads are kept here.
    pub fn has_kueue(&self) -> bool {
        self.sets.iter().any(|set| set.components.contains(&Component::Kueue))
    }

    /// The same number of replicas for every Deployment.
    pub fn with_replicas(mut self, replicas: u32) -> Self {
        self.scheduler.replicas = replicas;
        for set in &mut self.sets {
            set.replicas = replicas;
        }
        self
    }
}

/// TCP ports as a NetworkPolicy has them.
pub fn ports(ports: &[u16]) -> Value {
    ports.iter().map(|port| json!({"port": port, "protocol": "TCP"})).collect()
}

/// Requests, and a limit on memory only: a limit on CPU would slow a cycle down for no gain.
pub fn resources(cpu: &str, memory: &str, memory_limit: &str) -> Value {
    json!({"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": memory_limit}})
}
