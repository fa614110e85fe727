//! The settings of a binder.

use std::time::Duration;

use muster_runtime::common::BindRequest;
use serde_json::{Value, json};

#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    pub reservation: Reservation,
    /// How long a volume may take to be bound.
    pub volume_wait: Duration,
    /// How long a scheduler's own binds are tried again while the API has a bad moment: the steps of a pod, not counting
    /// what they wait for, and after them its Binding. The service tries steps once, since it writes every attempt down,
    /// and a Binding for a moment. Whether a pod is bound, and to take steps back, is tried for so long by both.
    pub patience: Duration,
    /// In whose name a scheduler binds by itself: its lease. Its BindRequests carry it; services of another name leave
    /// them alone for [`Options::courtesy`], and one of the same name takes over at once what it finds after a restart.
    pub owner: String,
    /// Longer than any bind of a scheduler takes, waits and patience in all.
    pub courtesy: Duration,
    /// How many BindRequests the service works on at a time.
    pub concurrency: usize,
    /// A pod with a part of a GPU learns its device from a ConfigMap that the admission webhook named. Without that
    /// name it would see every GPU of its node, so it is refused, unless this is off.
    pub require_config_map: bool,
    /// The label of the node pool. Pods that the service binds get it from their requests, with the Binding.
    pub pool_label: Option<String>,
    /// Allocated device claims get the finalizer that keeps them while they are in use, as kube-scheduler does. It
    /// needs the claim controller of kube-controller-manager, which takes it away again.
    pub protect_claims: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            reservation: Reservation::default(),
            volume_wait: Duration::from_secs(120),
            patience: Duration::from_secs(10),
            owner: "muster".into(),
            courtesy: Duration::from_secs(240),
            concurrency: 50,
            require_config_map: true,
            pool_label: None,
            protect_claims: true,
        }
    }
}

impl Options {
    /// The label of the node pool that a request has: key and value.
    pub(crate) fn pool_of(&self, request: &BindRequest) -> Option<(String, String)> {
        let key = self.pool_label.as_deref().filter(|key| !key.is_empty())?;
        let value = request.metadata.labels.get(key)?;
        Some((key.to_owned(), value.clone()))
    }
}

/// How the pods look that hold shared GPUs.
#[derive(Debug, Clone, PartialEq)]
pub struct Reservation {
    pub namespace: String,
    pub image: String,
    /// What the image is started with; nothing for one that is made for this alone.
    pub args: Vec<String>,
    pub service_account: String,
    /// The value of the label `app`.
    pub app_label: String,
    pub runtime_class: Option<String>,
    /// Requests and limits besides the GPU.
    pub resources: Value,
    /// How long a reservation pod may take to say which GPU it holds.
    pub wait: Duration,
    /// Devices are named as CDI names them.
    pub cdi: bool,
}

impl Default for Reservation {
    fn default() -> Self {
        Reservation {
            namespace: "kai-resource-reservation".into(),
            image: "muster-resource-reservation:latest".into(),
            args: Vec::new(),
            service_account: "kai-resource-reservation".into(),
            app_label: "kai-resource-reservation".into(),
            runtime_class: None,
            resources: json!({
                "requests": {"cpu": "1m", "memory": "10Mi"},
                "limits": {"cpu": "50m", "memory": "100Mi"},
            }),
            wait: Duration::from_secs(40),
            cdi: false,
        }
    }
}
