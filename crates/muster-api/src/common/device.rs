//! Dynamic resource allocation: requests for devices and what was allocated, as KAI's BindRequest carries them.

use super::core::NodeSelector;
use super::{Open, ResourceList, Rest, Time};
use muster_api_derive::Api;

/// The devices that were given to a claim, and where they can be used.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct AllocationResult {
    pub allocation_timestamp: Option<Time>,
    pub devices: Option<DeviceAllocationResult>,
    pub node_selector: Option<NodeSelector>,
    pub rest: Rest,
}

/// The devices and their configuration.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct DeviceAllocationResult {
    #[api(list(atomic))]
    pub config: Option<Vec<DeviceAllocationConfiguration>>,
    #[api(list(atomic))]
    pub results: Option<Vec<DeviceRequestAllocationResult>>,
    pub rest: Rest,
}

/// Configuration for devices, and where it came from.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct DeviceAllocationConfiguration {
    pub opaque: Option<OpaqueDeviceConfiguration>,
    #[api(list(atomic))]
    pub requests: Option<Vec<String>>,
    pub source: String,
    pub rest: Rest,
}

/// Configuration that only the driver understands.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct OpaqueDeviceConfiguration {
    pub driver: String,
    pub parameters: Open,
    pub rest: Rest,
}

/// One device that was given to a request.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct DeviceRequestAllocationResult {
    pub admin_access: Option<bool>,
    #[api(list(atomic))]
    pub binding_conditions: Option<Vec<String>>,
    #[api(list(atomic))]
    pub binding_failure_conditions: Option<Vec<String>>,
    pub consumed_capacity: Option<ResourceList>,
    pub device: String,
    pub driver: String,
    pub pool: String,
    pub request: String,
    #[api(rename = "shareID")]
    pub share_id: Option<String>,
    #[api(list(atomic))]
    pub tolerations: Option<Vec<DeviceToleration>>,
    pub rest: Rest,
}

/// A device taint that the request puts up with.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct DeviceToleration {
    pub key: Option<String>,
    pub effect: Option<String>,
    #[api(default = "Equal")]
    pub operator: Option<String>,
    pub toleration_seconds: Option<i64>,
    pub value: Option<String>,
    pub rest: Rest,
}

/// A request for devices: either exactly these, or the first of several that can be met.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct DeviceRequest {
    pub name: String,
    pub exactly: Option<ExactDeviceRequest>,
    #[api(list(atomic))]
    pub first_available: Option<Vec<DeviceSubRequest>>,
    pub rest: Rest,
}

/// One kind of device, and how many.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct ExactDeviceRequest {
    pub admin_access: Option<bool>,
    pub allocation_mode: Option<String>,
    pub capacity: Option<CapacityRequirements>,
    pub count: Option<i64>,
    pub device_class_name: String,
    #[api(list(atomic))]
    pub selectors: Option<Vec<DeviceSelector>>,
    #[api(list(atomic))]
    pub tolerations: Option<Vec<DeviceToleration>>,
    pub rest: Rest,
}

/// How much of a shared device is asked for.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct CapacityRequirements {
    pub requests: Option<ResourceList>,
    pub rest: Rest,
}

/// A condition on a device.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct DeviceSelector {
    pub cel: Option<CelDeviceSelector>,
    pub rest: Rest,
}

/// A condition on a device, in CEL.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct CelDeviceSelector {
    pub expression: String,
    pub rest: Rest,
}

/// One of the alternatives of a request.
#[derive(Clone, Debug, Default, PartialEq, Api)]
pub struct DeviceSubRequest {
    pub name: String,
    pub allocation_mode: Option<String>,
    pub capacity: Option<CapacityRequirements>,
    pub count: Option<i64>,
    pub device_class_name: String,
    #[api(list(atomic))]
    pub selectors: Option<Vec<DeviceSelector>>,
    #[api(list(atomic))]
    pub tolerations: Option<Vec<DeviceToleration>>,
    pub rest: Rest,
}
