//! CustomResourceDefinitions, generated from the types.
//!
//! In: which systems or API groups. Out: `apiextensions.k8s.io/v1` objects as JSON values, always in the same
//! order, without a keyword that says nothing. They are what upstream's CRDs are, save for the list in
//! [`crate::deviation`]; pod specs, pod templates, resource claim templates and affinities are open objects.
//!
//! # Kueue's two versions
//!
//! Kueue serves v1beta1 and stores v1beta2, and the two differ in more than their name, so whoever serves
//! both must convert ([`crate::kueue::convert`]).
//! - [`crds`] writes no conversion stanza, which means strategy `None`. The embedded API server knows the
//!   group and calls the conversion in process, so there it is complete. On a real API server `None` only
//!   renames the version: an object written as v1beta1 is stored with the fields of v1beta1, and these are
//!   pruned when it is read as v1beta2. Install this form on a real cluster only if its users write v1beta2.
//! - [`crds_with_conversion`] adds the webhook stanza to every CRD with more than one version that differ,
//!   with the client configuration it is given. A real cluster that serves both versions needs this form, and
//!   the webhook that answers it.
//!
//! NodeResourceTopology also has two versions. Its v1alpha1 is v1alpha2 without `attributes`; upstream serves
//! both with strategy `None`, and so do we.

use crate::schema::{Kind, KindInfo, structural};
use crate::{grove, kai, koordinator, kueue, podgang, t9k, volcano, workload};
use serde_json::{Map, Value, json};
use std::fmt;
use std::str::FromStr;

/// A system whose API Muster speaks; the unit of `muster crds --groups`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum System {
    Grove,
    Kai,
    Kueue,
    Volcano,
    Koordinator,
    T9k,
}

impl System {
    pub const ALL: [System; 6] =
        [System::Grove, System::Kai, System::Kueue, System::Volcano, System::Koordinator, System::T9k];

    pub fn name(self) -> &'static str {
        match self {
            System::Grove => "grove",
            System::Kai => "kai",
            System::Kueue => "kueue",
            System::Volcano => "volcano",
            System::Koordinator => "koordinator",
            System::T9k => "t9k",
        }
    }

    /// The system that an API group belongs to.
    pub fn of_group(group: &str) -> Option<System> {
        System::ALL.into_iter().find(|s| s.kinds().iter().any(|k| k.group == group))
    }

    /// Every served version of every kind of this system, the stored version of a kind last.
    pub fn kinds(self) -> &'static [&'static KindInfo] {
        match self {
            System::Grove => GROVE,
            System::Kai => KAI,
            System::Kueue => KUEUE,
            System::Volcano => VOLCANO,
            System::Koordinator => KOORDINATOR,
            System::T9k => T9K,
        }
    }
}

/// What is known of a kind, by the `apiVersion` and `kind` that its objects carry: every kind with a CRD, and Kubernetes'
/// own gang API, which has none.
pub fn kind_info(api_version: &str, kind: &str) -> Option<&'static KindInfo> {
    let (group, version) = api_version.split_once('/')?;
    let mut all = System::ALL.iter().flat_map(|s| s.kinds()).chain(BUILT_IN).copied();
    all.find(|k| k.group == group && k.version == version && k.kind == kind)
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is none of the systems'.
#[derive(Debug, thiserror::Error)]
#[error("no system is called {0:?}: expected grove, kai, kueue, volcano, koordinator or t9k")]
pub struct UnknownSystem(String);

impl FromStr for System {
    type Err = UnknownSystem;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        System::ALL.into_iter().find(|s| s.name() == name).ok_or_else(|| UnknownSystem(name.to_owned()))
    }
}

/// The CRDs of these systems, or of all. Without a conversion stanza: see the module's text on Kueue.
pub fn crds(systems: Option<&[System]>) -> Vec<Value> {
    let systems = systems.unwrap_or(&System::ALL);
    System::ALL.iter().filter(|s| systems.contains(s)).flat_map(|s| assemble(s.kinds(), None)).collect()
}

/// The CRDs of one API group, `kueue.x-k8s.io` for example; none for a group that Muster does not speak.
pub fn crds_of_group(group: &str) -> Vec<Value> {
    let kinds: Vec<_> =
        System::ALL.iter().flat_map(|s| s.kinds()).copied().filter(|k| k.group == group).collect();
    assemble(&kinds, None)
}

/// As [`crds`], with a conversion webhook on Kueue's CRDs. `client_config` is the webhook's
/// `apiextensions.k8s.io/v1` client configuration: `{"service": {..}, "caBundle": ".."}` or `{"url": "..",
/// ..}`.
pub fn crds_with_conversion(systems: Option<&[System]>, client_config: &Value) -> Vec<Value> {
    let systems = systems.unwrap_or(&System::ALL);
    let chosen = System::ALL.iter().filter(|s| systems.contains(s));
    chosen.flat_map(|s| assemble(s.kinds(), (*s == System::Kueue).then_some(client_config))).collect()
}

/// Every API group that [`crds`] covers, in the order of its output.
pub fn groups() -> Vec<&'static str> {
    let mut out: Vec<&'static str> = Vec::new();
    for kind in System::ALL.iter().flat_map(|s| s.kinds()) {
        if !out.contains(&kind.group) {
            out.push(kind.group);
        }
    }
    out
}

/// One CRD for each run of versions of the same kind.
fn assemble(kinds: &[&KindInfo], conversion: Option<&Value>) -> Vec<Value> {
    kinds
        .chunk_by(|a, b| a.group == b.group && a.plural == b.plural)
        .map(|versions| crd(versions, conversion))
        .collect()
}

fn crd(versions: &[&KindInfo], conversion: Option<&Value>) -> Value {
    let [first, ..] = versions else { return Value::Null };
    let mut names = Map::new();
    names.insert("kind".to_owned(), json!(first.kind));
    names.insert("listKind".to_owned(), json!(format!("{}List", first.kind)));
    names.insert("plural".to_owned(), json!(first.plural));
    names.insert("singular".to_owned(), json!(first.singular));
    put_list(&mut names, "shortNames", first.short_names);
    put_list(&mut names, "categories", first.categories);

    let mut spec = Map::new();
    spec.insert("group".to_owned(), json!(first.group));
    spec.insert("names".to_owned(), Value::Object(names));
    spec.insert("scope".to_owned(), json!(if first.namespaced { "Namespaced" } else { "Cluster" }));
    spec.insert("versions".to_owned(), versions.iter().map(|v| version(v)).collect());
    if let Some(client_config) = conversion.filter(|_| versions.len() > 1) {
        let webhook = json!({"clientConfig": client_config, "conversionReviewVersions": ["v1"]});
        spec.insert("conversion".to_owned(), json!({"strategy": "Webhook", "webhook": webhook}));
    }

    let mut metadata = Map::new();
    metadata.insert("name".to_owned(), json!(format!("{}.{}", first.plural, first.group)));
    if let Some(approved) = first.approved {
        metadata.insert("annotations".to_owned(), json!({"api-approved.kubernetes.io": approved}));
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": spec,
    })
}

fn version(info: &KindInfo) -> Value {
    let mut schema = structural(info.shape);
    // Every kind has these two; the API server validates them itself.
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.insert("apiVersion".to_owned(), json!({"type": "string"}));
        properties.insert("kind".to_owned(), json!({"type": "string"}));
    }
    let mut out = Map::new();
    out.insert("name".to_owned(), json!(info.version));
    out.insert("served".to_owned(), json!(true));
    out.insert("storage".to_owned(), json!(info.storage));
    if let Some(warning) = info.deprecated {
        out.insert("deprecated".to_owned(), json!(true));
        out.insert("deprecationWarning".to_owned(), json!(warning));
    }
    out.insert("schema".to_owned(), json!({"openAPIV3Schema": schema}));
    let mut subresources = Map::new();
    if info.status {
        subresources.insert("status".to_owned(), json!({}));
    }
    if let Some(scale) = &info.scale {
        let paths = json!({
            "specReplicasPath": scale.spec,
            "statusReplicasPath": scale.status,
            "labelSelectorPath": scale.selector,
        });
        subresources.insert("scale".to_owned(), paths);
    }
    if !subresources.is_empty() {
        out.insert("subresources".to_owned(), Value::Object(subresources));
    }
    if !info.selectable.is_empty() {
        let fields: Value = info.selectable.iter().map(|path| json!({"jsonPath": path})).collect();
        out.insert("selectableFields".to_owned(), fields);
    }
    if !info.columns.is_empty() {
        let columns: Value = info
            .columns
            .iter()
            .map(|c| {
                let mut column = json!({"name": c.name, "type": c.kind, "jsonPath": c.path});
                if let (true, Value::Object(column)) = (c.wide, &mut column) {
                    column.insert("priority".to_owned(), json!(1));
                }
                column
            })
            .collect();
        out.insert("additionalPrinterColumns".to_owned(), columns);
    }
    Value::Object(out)
}

fn put_list(out: &mut Map<String, Value>, key: &str, values: &[&str]) {
    if !values.is_empty() {
        out.insert(key.to_owned(), json!(values));
    }
}

macro_rules! kinds {
    ($($name:ident = [$($kind:path),* $(,)?];)*) => { $(
        const $name: &[&KindInfo] = &[$(&<$kind as Kind>::INFO),*];
    )* };
}

kinds! {
    BUILT_IN = [workload::v1alpha1::Workload, workload::v1alpha2::Workload, workload::v1alpha2::PodGroup];
    GROVE = [
        grove::PodCliqueSet,
        grove::PodClique,
        grove::PodCliqueScalingGroup,
        grove::ClusterTopologyBinding,
        podgang::PodGang,
    ];
    KAI = [
        kai::scheduling::PodGroup,
        kai::scheduling::Queue,
        kai::scheduling::BindRequest,
        kai::operator::Topology,
        kai::operator::SchedulingShard,
        kai::operator::Config,
    ];
    KUEUE = [
        kueue::v1beta1::ClusterQueue,
        kueue::v1beta2::ClusterQueue,
        kueue::v1beta1::LocalQueue,
        kueue::v1beta2::LocalQueue,
        kueue::v1beta1::Cohort,
        kueue::v1beta2::Cohort,
        kueue::v1beta1::ResourceFlavor,
        kueue::v1beta2::ResourceFlavor,
        kueue::v1beta1::Workload,
        kueue::v1beta2::Workload,
        kueue::v1beta1::WorkloadPriorityClass,
        kueue::v1beta2::WorkloadPriorityClass,
        kueue::v1beta1::AdmissionCheck,
        kueue::v1beta2::AdmissionCheck,
        kueue::v1beta1::Topology,
        kueue::v1beta2::Topology,
        kueue::v1beta1::MultiKueueConfig,
        kueue::v1beta2::MultiKueueConfig,
        kueue::v1beta1::MultiKueueCluster,
        kueue::v1beta2::MultiKueueCluster,
        kueue::v1beta1::ProvisioningRequestConfig,
        kueue::v1beta2::ProvisioningRequestConfig,
    ];
    VOLCANO = [
        volcano::batch::Job,
        volcano::batch::CronJob,
        volcano::scheduling::PodGroup,
        volcano::scheduling::Queue,
        volcano::flow::JobFlow,
        volcano::flow::JobTemplate,
        volcano::bus::Command,
        volcano::topology::HyperNode,
        volcano::nodeinfo::Numatopology,
        volcano::config::ColocationConfiguration,
        volcano::shard::NodeShard,
    ];
    KOORDINATOR = [
        koordinator::coscheduling::PodGroup,
        koordinator::coscheduling::ElasticQuota,
        koordinator::scheduling::Reservation,
        koordinator::scheduling::Device,
        koordinator::scheduling::PodMigrationJob,
        koordinator::scheduling::ClusterNetworkTopology,
        koordinator::scheduling::ScheduleExplanation,
        koordinator::quota::ElasticQuotaProfile,
        koordinator::config::ClusterColocationProfile,
        koordinator::topology::NodeResourceTopologyV1alpha1,
        koordinator::topology::NodeResourceTopology,
    ];
    T9K = [
        t9k::scheduler::PodGroup,
        t9k::scheduler::Queue,
        t9k::batch::GenericJob,
        t9k::batch::PyTorchTrainingJob,
        t9k::batch::TensorFlowTrainingJob,
        t9k::batch::XGBoostTrainingJob,
        t9k::batch::MPIJob,
        t9k::batch::ColossalAIJob,
        t9k::batch::DeepSpeedJob,
        t9k::batch::BeamJob,
    ];
}
