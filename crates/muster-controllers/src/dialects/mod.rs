//! The statuses of other systems' groups and queues, as those systems write them: T9k's, Koordinator's, Volcano's and Kubernetes' own.
//!
//! | kind | what its status says |
//! |---|---|
//! | T9k PodGroup | pods by phase, what they hold, whether enough have come and whether enough are placed |
//! | T9k Queue | pods and groups, what they hold, whether it is closed or nearly full |
//! | Koordinator PodGroup | its phase, pods placed, running, done, and who owns them |
//! | Koordinator ElasticQuota | what is used; in annotations what is asked for and what may be used now |
//! | Volcano Queue | its state, groups by phase, what is held by it and below it |
//! | Kubernetes PodGroup | whether enough pods are placed |
//!
//! One count of pods ([`books`]) serves all of them, each kind has one small pure file, and [`run`] writes. Must stay true: a kind
//! that is not installed costs next to nothing, a status that says the same is not written again, and only pods of schedulers that Muster
//! answers to are counted: where another system's own controllers run, they write.

pub mod books;

pub mod koordinator;
pub mod kubernetes;
pub mod t9k;
pub mod volcano;

pub mod run;

use std::collections::BTreeMap;

use muster_runtime::object::Meta;
use serde::Deserialize;
use serde_json::Value;

pub use run::{Options, start};

macro_rules! objects {
    ($($name:ident),*) => {$(
        /// Spec and status stay JSON: the file of the kind reads its own part.
        #[derive(Debug, Clone, Default, PartialEq, Deserialize)]
        #[serde(default)]
        pub struct $name {
            pub metadata: Meta,
            pub spec: BTreeMap<String, Value>,
            pub status: BTreeMap<String, Value>,
        }

        impl Parts for $name {
            fn spec(&self) -> &BTreeMap<String, Value> {
                &self.spec
            }
        }
    )*};
}

/// What all these kinds have.
pub(crate) trait Parts {
    fn spec(&self) -> &BTreeMap<String, Value>;

    /// A text of the spec; empty counts as absent.
    fn word(&self, field: &str) -> Option<&str> {
        self.spec().get(field).and_then(Value::as_str).filter(|text| !text.is_empty())
    }

    /// A count of the spec; below zero is none.
    fn count(&self, field: &str) -> Option<usize> {
        usize::try_from(self.spec().get(field)?.as_i64()?.max(0)).ok()
    }
}

objects!(T9kGroup, T9kQueue, KoordinatorGroup, ElasticQuota, VolcanoGroup, VolcanoQueue, KubernetesGroup);

muster_runtime::kinds! {
    T9kGroup = "scheduler.tensorstack.dev" "v1beta1" "PodGroup" "podgroups";
    T9kQueue = "scheduler.tensorstack.dev" "v1beta1" "Queue" "queues";
    KoordinatorGroup = "scheduling.sigs.k8s.io" "v1alpha1" "PodGroup" "podgroups";
    ElasticQuota = "scheduling.sigs.k8s.io" "v1alpha1" "ElasticQuota" "elasticquotas";
    VolcanoGroup = "scheduling.volcano.sh" "v1beta1" "PodGroup" "podgroups";
    VolcanoQueue = "scheduling.volcano.sh" "v1beta1" "Queue" "queues";
    KubernetesGroup = "scheduling.k8s.io" "v1alpha2" "PodGroup" "podgroups";
}

/// The merge patch of those numbers that an object's status does not say yet. Zero is the same as nothing.
pub(crate) fn changed_counts(
    status: &BTreeMap<String, Value>,
    counts: &[(&str, usize)],
) -> serde_json::Map<String, Value> {
    let said = |name: &str| status.get(name).and_then(Value::as_u64).unwrap_or(0);
    counts
        .iter()
        .filter(|(name, n)| said(name) != *n as u64)
        .map(|(name, n)| ((*name).to_owned(), Value::from(*n)))
        .collect()
}
