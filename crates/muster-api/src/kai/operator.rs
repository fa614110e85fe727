//! KAI's installation and topology objects, `kai.scheduler`: Config (v1), SchedulingShard (v1), Topology
//! (v1alpha1).

use crate::common::core::{PodSecurityContext, ResourceRequirements, SecurityContext, Toleration};
use crate::common::meta::Condition;
use crate::common::{
    Affinity, Duration, Labels, Number, ObjectMeta, Quantity, ResourceList, Rest, Time, string_enum,
};
use crate::schema::LONG_DURATION;
use muster_api_derive::Api;
use std::collections::BTreeMap;

/// The levels of the cluster's topology, from the widest to the narrowest.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(group = "kai.scheduler", version = "v1alpha1", plural = "topologies", cluster)]
pub struct Topology {
    pub metadata: ObjectMeta,
    pub spec: TopologySpec,
    pub rest: Rest,
}

/// The levels.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct TopologySpec {
    /// From the widest to the narrowest; cannot change.
    #[api(len(1..=16), list(atomic))]
    #[api(rule(
        "self.map(l, l.nodeLabel) == oldSelf.map(l, l.nodeLabel)",
        "nodeLabel structure is immutable; only aliases may be edited",
    ))]
    #[api(rule(
        "size(self.filter(i, size(self.filter(j, j.nodeLabel == i.nodeLabel)) > 1)) == 0",
        "nodeLabel must be unique",
    ))]
    #[api(rule(
        "size(self.filter(i, i.nodeLabel == 'kubernetes.io/hostname')) == 0 || self[size(self) - \
            1].nodeLabel == 'kubernetes.io/hostname'",
        "the kubernetes.io/hostname label can only be used at the lowest level of topology",
    ))]
    pub levels: Vec<TopologyLevel>,
    pub rest: Rest,
}

/// A level: the node label that tells its domains apart, and a name for it.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct TopologyLevel {
    #[api(label_key, len(1..))]
    pub alias: Option<String>,
    #[api(label_key, len(1..))]
    pub node_label: String,
    pub rest: Rest,
}

/// Which services of KAI are installed, and how.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(group = "kai.scheduler", version = "v1", plural = "configs", cluster, status)]
pub struct Config {
    pub metadata: ObjectMeta,
    pub spec: Option<ConfigSpec>,
    pub status: Option<ConfigStatus>,
    pub rest: Rest,
}

/// Settings for each service, and for all.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ConfigSpec {
    pub namespace: Option<String>,
    pub admission: Option<Admission>,
    pub binder: Option<Binder>,
    pub global: Option<GlobalConfig>,
    pub node_scale_adjuster: Option<NodeScaleAdjuster>,
    pub numa_placement_exporter: Option<NumaPlacementExporter>,
    pub pod_group_controller: Option<PodGroupController>,
    pub pod_grouper: Option<PodGrouper>,
    pub prometheus: Option<Prometheus>,
    pub queue_controller: Option<QueueController>,
    pub scheduler: Option<Scheduler>,
    pub rest: Rest,
}

/// The admission webhook.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct Admission {
    pub replicas: Option<i32>,
    pub block_nvidia_visible_devices: Option<bool>,
    pub gpu_fraction_runtime_class_name: Option<String>,
    pub gpu_pod_runtime_class_name: Option<String>,
    pub gpu_sharing: Option<bool>,
    pub mutating_webhook_configuration_name: Option<String>,
    pub queue_label_selector: Option<bool>,
    pub service: Option<Service>,
    pub validating_webhook_configuration_name: Option<String>,
    pub vpa: Option<VpaConfig>,
    pub webhook: Option<AdmissionWebhook>,
    pub rest: Rest,
}

/// How a service is deployed.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct Service {
    pub affinity: Option<Affinity>,
    pub enabled: Option<bool>,
    pub image: Option<Image>,
    pub k8s_client_config: Option<K8sClientConfig>,
    pub pod_disruption_budget: Option<PodDisruptionBudgetConfig>,
    pub resources: Option<ResourceRequirements>,
    pub rest: Rest,
}

/// A container image.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct Image {
    pub name: Option<String>,
    pub pull_policy: Option<String>,
    pub repository: Option<String>,
    pub tag: Option<String>,
    pub rest: Rest,
}

/// How hard a service may press the API server.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct K8sClientConfig {
    #[api(unformatted)]
    pub burst: Option<i64>,
    #[api(unformatted)]
    pub qps: Option<i64>,
    pub rest: Rest,
}

/// How many of a service's pods may be down at once.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodDisruptionBudgetConfig {
    pub enabled: Option<bool>,
    pub max_unavailable: Option<i32>,
    pub rest: Rest,
}

/// Whether a vertical autoscaler sizes a service's pods.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct VpaConfig {
    pub enabled: Option<bool>,
    pub resource_policy: Option<PodResourcePolicy>,
    pub update_policy: Option<PodUpdatePolicy>,
    pub rest: Rest,
}

/// How far the vertical autoscaler may go.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodResourcePolicy {
    pub container_policies: Option<Vec<ContainerResourcePolicy>>,
    pub rest: Rest,
}

/// How far it may go for one container.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ContainerResourcePolicy {
    pub container_name: Option<String>,
    pub controlled_resources: Option<Vec<String>>,
    pub controlled_values: Option<ContainerControlledValues>,
    pub max_allowed: Option<ResourceList>,
    pub min_allowed: Option<ResourceList>,
    pub mode: Option<ContainerScalingMode>,
    pub rest: Rest,
}

string_enum! {
    /// Whether it sets limits too.
    pub enum ContainerControlledValues { RequestsAndLimits, RequestsOnly }
}

string_enum! {
    /// Whether it scales the container.
    pub enum ContainerScalingMode { Auto, Off }
}

/// When it may replace pods.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodUpdatePolicy {
    pub min_replicas: Option<i32>,
    pub eviction_requirements: Option<Vec<EvictionRequirement>>,
    pub update_mode: Option<UpdateMode>,
    pub rest: Rest,
}

/// What must hold before a pod is evicted.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct EvictionRequirement {
    pub change_requirement: EvictionChangeRequirement,
    pub resources: Vec<String>,
    pub rest: Rest,
}

string_enum! {
    /// In which direction the change must go.
    pub enum EvictionChangeRequirement { TargetHigherThanRequests, TargetLowerThanRequests }
}

string_enum! {
    /// How changes reach running pods.
    pub enum UpdateMode { Off, Initial, Recreate, InPlaceOrRecreate, Auto }
}

/// Ports of the webhook.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct AdmissionWebhook {
    #[api(unformatted)]
    pub metrics_port: Option<i64>,
    #[api(unformatted)]
    pub port: Option<i64>,
    #[api(unformatted)]
    pub probe_port: Option<i64>,
    #[api(unformatted)]
    pub target_port: Option<i64>,
    pub rest: Rest,
}

/// The binder, which carries out bind requests.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct Binder {
    pub replicas: Option<i32>,
    pub cdi_enabled: Option<bool>,
    #[api(unformatted)]
    pub max_concurrent_reconciles: Option<i64>,
    #[api(unformatted)]
    pub metrics_port: Option<i64>,
    pub plugins: Option<BTreeMap<String, PluginConfig>>,
    #[api(unformatted)]
    pub probe_port: Option<i64>,
    pub resource_reservation: Option<ResourceReservation>,
    pub service: Option<Service>,
    #[api(unformatted)]
    pub volume_binding_timeout_seconds: Option<i64>,
    pub vpa: Option<VpaConfig>,
    pub rest: Rest,
}

/// Whether a plugin runs, in which place, and with which arguments.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PluginConfig {
    pub arguments: Option<Labels>,
    pub enabled: Option<bool>,
    #[api(unformatted)]
    pub priority: Option<i64>,
    pub rest: Rest,
}

/// The pods that hold shared GPUs.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ResourceReservation {
    pub namespace: Option<String>,
    #[api(unformatted)]
    pub allocation_timeout: Option<i64>,
    pub app_label: Option<String>,
    pub image: Option<Image>,
    pub pod_resources: Option<ResourceRequirements>,
    pub reservation_container_security_context: Option<SecurityContext>,
    pub reservation_pod_security_context: Option<PodSecurityContext>,
    pub runtime_class_name: Option<String>,
    pub service_account_name: Option<String>,
    pub rest: Rest,
}

/// What holds for all services.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct GlobalConfig {
    pub additional_image_pull_secrets: Option<Vec<String>>,
    pub affinity: Option<Affinity>,
    pub daemonsets_tolerations: Option<Vec<Toleration>>,
    pub images_pull_secret: Option<String>,
    pub json_log: Option<bool>,
    pub namespace_label_selector: Option<Labels>,
    pub node_pool_label_key: Option<String>,
    pub node_selector: Option<Labels>,
    pub openshift: Option<bool>,
    pub pod_label_selector: Option<Labels>,
    pub priority_class_name: Option<String>,
    pub queue_label_key: Option<String>,
    pub replica_count: Option<i32>,
    pub require_default_pod_anti_affinity_term: Option<bool>,
    pub scheduler_name: Option<String>,
    pub security_context: Option<SecurityContext>,
    pub tolerations: Option<Vec<Toleration>>,
    pub vpa: Option<VpaConfig>,
    pub rest: Rest,
}

/// The service that asks for nodes on behalf of pods which share GPUs.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct NodeScaleAdjuster {
    pub args: Option<NodeScaleAdjusterArgs>,
    pub service: Option<Service>,
    pub vpa: Option<VpaConfig>,
    pub rest: Rest,
}

/// Its arguments.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct NodeScaleAdjusterArgs {
    pub gpu_memory_to_fraction_ratio: Option<Number>,
    pub node_scale_namespace: Option<String>,
    pub node_scale_service_account: Option<String>,
    pub scaling_pod_image: Option<Image>,
    pub rest: Rest,
}

/// The service that reports which NUMA zones pods landed on.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct NumaPlacementExporter {
    pub drift_resync_interval: Option<Duration>,
    pub node_selector: Option<Labels>,
    pub pod_resources_host_path: Option<String>,
    pub pod_resources_socket: Option<String>,
    pub poll_interval: Option<Duration>,
    pub service: Option<Service>,
    pub sysfs_host_path: Option<String>,
    pub tolerations: Option<Vec<Toleration>>,
    pub rest: Rest,
}

/// The service that keeps the status of pod groups.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodGroupController {
    pub replicas: Option<i32>,
    pub controller_service: Option<PodGroupControllerService>,
    #[api(unformatted)]
    pub max_concurrent_reconciles: Option<i64>,
    pub service: Option<Service>,
    pub vpa: Option<VpaConfig>,
    pub webhooks: Option<ControllerWebhooks>,
    pub rest: Rest,
}

/// Its ports.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodGroupControllerService {
    pub webhook: Option<ServicePort>,
    pub rest: Rest,
}

/// A port of a service.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ServicePort {
    pub name: Option<String>,
    #[api(unformatted)]
    pub port: Option<i64>,
    #[api(unformatted)]
    pub target_port: Option<i64>,
    pub rest: Rest,
}

/// Validation by a controller.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ControllerWebhooks {
    pub enable_validation: Option<bool>,
    pub webhook_configuration_name_prefix: Option<String>,
    pub rest: Rest,
}

/// The service that makes pod groups for workloads.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodGrouper {
    pub replicas: Option<i32>,
    pub args: Option<PodGrouperArgs>,
    pub k8s_client_config: Option<K8sClientConfig>,
    #[api(unformatted)]
    pub max_concurrent_reconciles: Option<i64>,
    pub service: Option<Service>,
    pub vpa: Option<VpaConfig>,
    pub rest: Rest,
}

/// Its arguments.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PodGrouperArgs {
    pub default_priorities_config_map_name: Option<String>,
    pub default_priorities_config_map_namespace: Option<String>,
    pub gang_schedule_knative: Option<bool>,
    pub generic_karta_fallback: Option<bool>,
    pub rest: Rest,
}

/// The Prometheus that records usage over time.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct Prometheus {
    pub accounting_label_key: Option<String>,
    pub accounting_label_value: Option<String>,
    pub enable_persistent_storage: Option<bool>,
    pub enabled: Option<bool>,
    pub external_prometheus_health_probe: Option<PrometheusHealthProbe>,
    pub external_prometheus_url: Option<String>,
    pub instance_name: Option<String>,
    pub retention_period: Option<String>,
    pub sample_interval: Option<String>,
    pub service_monitor: Option<ServiceMonitor>,
    pub storage_class_name: Option<String>,
    pub storage_size: Option<String>,
    pub rest: Rest,
}

/// How an external Prometheus is probed.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PrometheusHealthProbe {
    #[api(unformatted)]
    pub interval: Option<i64>,
    #[api(unformatted)]
    pub max_retries: Option<i64>,
    #[api(unformatted)]
    pub timeout: Option<i64>,
    pub rest: Rest,
}

/// How metrics are scraped.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ServiceMonitor {
    pub bearer_token_file: Option<String>,
    pub enabled: Option<bool>,
    pub interval: Option<String>,
    pub scrape_timeout: Option<String>,
    pub rest: Rest,
}

/// The service that keeps the status of queues.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct QueueController {
    pub replicas: Option<i32>,
    pub controller_service: Option<QueueControllerService>,
    pub metrics_namespace: Option<String>,
    pub queue_label_to_default_metric_value: Option<String>,
    pub queue_label_to_metric_label: Option<String>,
    pub service: Option<Service>,
    pub vpa: Option<VpaConfig>,
    pub webhooks: Option<ControllerWebhooks>,
    pub rest: Rest,
}

/// Its ports.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct QueueControllerService {
    pub metrics: Option<ServicePort>,
    pub webhook: Option<ServicePort>,
    pub rest: Rest,
}

/// The scheduler.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct Scheduler {
    pub replicas: Option<i32>,
    #[api(rename = "GOGC", unformatted)]
    pub gogc: Option<i64>,
    pub scheduler_service: Option<SchedulerService>,
    pub service: Option<Service>,
    pub vpa: Option<VpaConfig>,
    pub rest: Rest,
}

/// Its port.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct SchedulerService {
    pub r#type: Option<String>,
    #[api(unformatted)]
    pub port: Option<i64>,
    #[api(unformatted)]
    pub target_port: Option<i64>,
    pub rest: Rest,
}

/// Whether what was asked for is running.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ConfigStatus {
    pub conditions: Option<Vec<Condition>>,
    pub rest: Rest,
}

/// A scheduler for the nodes with one value of the partition label.
#[derive(Clone, Debug, Default, PartialEq, Api)]
#[kind(group = "kai.scheduler", version = "v1", plural = "schedulingshards", cluster, status)]
pub struct SchedulingShard {
    pub metadata: ObjectMeta,
    pub spec: Option<SchedulingShardSpec>,
    pub status: Option<SchedulingShardStatus>,
    pub rest: Rest,
}

/// Which nodes the shard has, and how it schedules.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct SchedulingShardSpec {
    /// Actions to turn on or off, or to reorder, by name.
    pub actions: Option<BTreeMap<String, ActionConfig>>,
    pub args: Option<Labels>,
    pub go_mem_limit: Option<Quantity>,
    #[api(above(0), range(..=1))]
    pub go_mem_limit_ratio: Option<Number>,
    /// How strongly past usage lowers a queue's share.
    pub k_value: Option<Number>,
    /// How long gangs run before they may be taken from.
    pub min_runtime: Option<MinRuntime>,
    /// The value of the node pool label; absent means nodes without the label.
    pub partition_label_value: Option<String>,
    /// Whether pods are packed onto few nodes or spread over many.
    pub placement_strategy: Option<PlacementStrategy>,
    /// Plugins to turn on or off, or to configure, by name.
    pub plugins: Option<BTreeMap<String, PluginConfig>>,
    /// How many gangs of each queue an action looks at.
    #[api(items(unformatted))]
    pub queue_depth_per_action: Option<BTreeMap<String, i64>>,
    /// How long the search for victims may take.
    pub scenario_search_budgets: Option<ScenarioSearchBudgets>,
    /// Where past usage is read from.
    #[api(rename = "usageDBConfig")]
    pub usage_db_config: Option<UsageDbConfig>,
    pub rest: Rest,
}

/// Whether an action runs, and in which place.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ActionConfig {
    pub enabled: Option<bool>,
    #[api(unformatted)]
    pub priority: Option<i64>,
    pub rest: Rest,
}

/// How long gangs run before they may be preempted and reclaimed.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct MinRuntime {
    pub preempt_min_runtime: Option<Duration>,
    pub reclaim_min_runtime: Option<Duration>,
    pub rest: Rest,
}

/// `binpack` or `spread`, for work with and without GPUs.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct PlacementStrategy {
    pub cpu: Option<String>,
    pub gpu: Option<String>,
    pub rest: Rest,
}

/// How long the search for victims may take; `0s` means without bound.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ScenarioSearchBudgets {
    pub max_action_search_duration: Option<BTreeMap<String, Duration>>,
    pub max_generator_search_duration: Option<BTreeMap<String, Duration>>,
    pub max_job_search_duration: Option<Duration>,
    pub min_job_search_duration: Option<Duration>,
    pub rest: Rest,
}

/// Where past usage is read from.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct UsageDbConfig {
    pub client_type: String,
    pub connection_string: Option<String>,
    pub connection_string_env_var: Option<String>,
    pub usage_params: Option<UsageParams>,
    pub rest: Rest,
}

/// Over which window past usage counts, and how it fades.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct UsageParams {
    pub cron_string: Option<String>,
    pub extra_params: Option<Labels>,
    pub fetch_interval: Option<Duration>,
    pub half_life_period: Option<Duration>,
    pub staleness_period: Option<Duration>,
    pub tumbling_window_start_time: Option<Time>,
    pub wait_timeout: Option<Duration>,
    #[api(pattern = LONG_DURATION)]
    pub window_size: Option<String>,
    pub window_type: Option<String>,
    pub rest: Rest,
}

/// Whether the shard's scheduler is running.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct SchedulingShardStatus {
    pub conditions: Option<Vec<Condition>>,
    pub rest: Rest,
}
