//! A pod's wish for a part of a GPU: the annotations that say it, the container that gets it, and the names of the config
//! maps through which the container is told.
//!
//! In: a pod as JSON. Out: a [`Share`]. The names follow KAI: the binder fills the config maps under the same names before
//! it binds the pod.

use serde_json::Value;

use crate::keys;

/// What the annotations say, not yet judged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Share<'a> {
    pub fraction: Option<&'a str>,
    pub memory: Option<&'a str>,
    pub devices: Option<&'a str>,
    pub container: Option<&'a str>,
    pub mps: bool,
}

impl<'a> Share<'a> {
    pub fn of(pod: &'a Value) -> Self {
        let annotations = &pod["metadata"]["annotations"];
        let text = |key: &str| annotations.get(key).and_then(Value::as_str);
        Share {
            fraction: text(keys::FRACTION),
            memory: text(keys::MEMORY),
            devices: text(keys::DEVICES),
            container: text(keys::CONTAINER),
            mps: text(keys::MPS) == Some("true"),
        }
    }

    pub fn is_asked(&self) -> bool {
        self.fraction.is_some() || self.memory.is_some()
    }

    /// The container that gets the share, if one is asked for.
    pub fn sharer(&self, pod: &Value) -> Option<Slot> {
        if self.is_asked() { Slot::of(pod, self.container) } else { None }
    }
}

/// A container of a pod by its place in the lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    Container(usize),
    Init(usize),
}

impl Slot {
    /// The container that gets the share: the named one, or the first.
    pub fn of(pod: &Value, name: Option<&str>) -> Option<Slot> {
        let place = |list: &str| {
            let containers = pod["spec"][list].as_array()?;
            match name {
                Some(name) => containers.iter().position(|container| container["name"] == name),
                None => (!containers.is_empty()).then_some(0),
            }
        };
        let regular = place("containers").map(Slot::Container);
        if name.is_none() { regular } else { regular.or_else(|| place("initContainers").map(Slot::Init)) }
    }

    pub fn path(self) -> (&'static str, usize) {
        match self {
            Slot::Container(index) => ("containers", index),
            Slot::Init(index) => ("initContainers", index),
        }
    }
}

/// The config map with the values that environment variables refer to, by the pod's annotation and the container.
pub(crate) fn config_map(prefix: &str, slot: Slot) -> String {
    match slot {
        Slot::Container(index) => format!("{prefix}-{index}"),
        Slot::Init(index) => format!("{prefix}-i{index}"),
    }
}

/// The config map whose every entry is an environment variable.
pub(crate) fn env_config_map(config_map: &str) -> String {
    format!("{config_map}-evar")
}

/// Containers of both lists with the path of each.
pub(crate) fn containers(pod: &Value) -> impl Iterator<Item = (Slot, &Value)> {
    let list = |name: &str| pod["spec"][name].as_array().map(Vec::as_slice).unwrap_or_default();
    let regular = list("containers").iter().enumerate().map(|(index, c)| (Slot::Container(index), c));
    regular.chain(list("initContainers").iter().enumerate().map(|(index, c)| (Slot::Init(index), c)))
}

/// Whether a resource counts whole GPUs.
pub(crate) fn is_gpu(resource: &str) -> bool {
    matches!(resource, "nvidia.com/gpu" | "amd.com/gpu")
}

/// A quantity as a manifest may write it.
pub(crate) fn quantity(value: &Value) -> Option<k8s_quantity::Quantity> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    }
}

/// Whether a container asks for whole GPUs.
pub(crate) fn asks_whole_gpu(container: &Value) -> bool {
    ["limits", "requests"].iter().any(|list| {
        let amounts = container["resources"][*list].as_object();
        amounts.into_iter().flatten().any(|(resource, amount)| {
            is_gpu(resource) && quantity(amount).is_some_and(|amount| !amount.is_zero())
        })
    })
}

/// Whether a container asks for a device that the device plugin puts into its environment.
pub(crate) fn asks_gpu_device(container: &Value) -> bool {
    let limits = container["resources"]["limits"].as_object();
    let has_slice = limits.into_iter().flatten().any(|(resource, amount)| {
        resource.starts_with("nvidia.com/mig-") && quantity(amount).is_some_and(|amount| !amount.is_zero())
    });
    has_slice || asks_whole_gpu(container)
}
