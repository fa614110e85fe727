//! From a group to Node objects.
//!
//! In: a checked fleet. Out: Nodes in JSON, with the labels of the GPU feature discovery, the topology, and what has
//! no field in a Node as annotations.
//! Must stay true: node `i` of a fleet has the same name, labels and address on every run.

use std::collections::BTreeSet;

use k8s_quantity::Quantity;
use serde_json::{Map, Value, json};

use super::{Fleet, Group};
use crate::json::stable_u64;
use crate::object::Strings;

/// Which GPUs reach each other by NVLink: index ranges, one list item per group, `0-3,4-7`.
pub const NVLINK_GROUPS: &str = "muster.dev/nvlink-groups";
/// NUMA zones: a JSON list of `{"id": 0, "cpu": "48", "memory": "384Gi", "gpus": "0-3"}`.
pub const NUMA_ZONES: &str = "muster.dev/numa-zones";
/// What the node costs per hour, as a decimal number in text.
pub const PRICE: &str = "muster.dev/price-per-hour";
pub const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";

impl Fleet {
    /// Every node of the fleet as an object to create.
    pub fn nodes(&self) -> Vec<Value> {
        let mut nodes = Vec::with_capacity(self.n_nodes());
        let mut first_block = 0;
        for group in &self.groups {
            for i in 0..group.count {
                let index = nodes.len();
                nodes.push(node(group, i, index, first_block));
            }
            // Blocks are numbered through the fleet, so that two groups never share a rack by accident.
            let per_block =
                group.topology.nodes_per_rack.saturating_mul(group.topology.racks_per_block).max(1);
            first_block += group.count.div_ceil(per_block);
        }
        nodes
    }
}

fn node(group: &Group, i: usize, index: usize, first_block: usize) -> Value {
    let name = format!("{}-{i}", group.name);
    let topology = &group.topology;
    let rack = i / topology.nodes_per_rack.max(1);
    let block = first_block + rack / topology.racks_per_block.max(1);
    let zone = topology.zone.clone().unwrap_or_else(|| zone_name(block / topology.blocks_per_zone.max(1)));

    let mut labels: Strings = [
        ("kubernetes.io/hostname", name.clone()),
        ("kubernetes.io/os", "linux".into()),
        ("kubernetes.io/arch", "amd64".into()),
        (INSTANCE_TYPE, group.name.clone()),
        ("topology.kubernetes.io/region", topology.region.clone()),
        ("topology.kubernetes.io/zone", zone),
        (topology.block_label.as_str(), format!("block-{block}")),
        (
            topology.rack_label.as_str(),
            format!("block-{block}-rack-{}", rack % topology.racks_per_block.max(1)),
        ),
    ]
    .into_iter()
    .filter(|(label, _)| !label.is_empty())
    .map(|(label, value)| (label.to_owned(), value))
    .collect();
    if group.spot {
        labels.insert("karpenter.sh/capacity-type".into(), "spot".into());
    }
    labels.extend(gpu_labels(group.shape.gpus, &group.shape.gpu.product, &group.shape.gpu.memory));
    labels.extend(group.labels.clone());

    let mut annotations = Strings::new();
    if let Some(groups) = &group.nvlink_groups {
        annotations.insert(NVLINK_GROUPS.into(), groups.clone());
    }
    if group.numa_zones > 0 {
        annotations.insert(NUMA_ZONES.into(), numa_zones(group).to_string());
    }
    if let Some(price) = &group.price_per_hour {
        annotations.insert(PRICE.into(), price.clone());
    }
    annotations.extend(group.annotations.clone());

    let mut capacity = Map::new();
    capacity.insert("cpu".into(), json!(group.shape.cpu));
    capacity.insert("memory".into(), json!(group.shape.memory));
    capacity.insert("pods".into(), json!(group.shape.pods.to_string()));
    capacity.insert("ephemeral-storage".into(), json!("1Ti"));
    if group.shape.gpus > 0 {
        capacity.insert(group.shape.gpu.resource.clone(), json!(group.shape.gpus.to_string()));
    }
    for (resource, quantity) in &group.resources {
        capacity.insert(resource.clone(), json!(quantity));
    }

    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": {"taints": group.taints, "providerID": format!("sim://{name}")},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "addresses": [
                {"type": "InternalIP", "address": node_address(index)},
                {"type": "Hostname", "address": name},
            ],
        },
    })
}

/// The labels that NVIDIA's feature discovery puts on a node with GPUs; memory is in MiB.
pub fn gpu_labels(gpus: u32, product: &str, memory: &str) -> Strings {
    if gpus == 0 {
        return Strings::new();
    }
    let bytes = memory.parse::<Quantity>().map_or(0, Quantity::value);
    [
        ("nvidia.com/gpu.present", "true".to_owned()),
        ("nvidia.com/gpu.count", gpus.to_string()),
        ("nvidia.com/gpu.product", product.to_owned()),
        ("nvidia.com/gpu.memory", (bytes / (1024 * 1024)).to_string()),
    ]
    .into_iter()
    .map(|(label, value)| (label.to_owned(), value))
    .collect()
}

/// Zones are called a to z, then by number.
fn zone_name(i: usize) -> String {
    match u8::try_from(i) {
        Ok(letter) if letter < 26 => format!("zone-{}", char::from(b'a' + letter)),
        _ => format!("zone-{i}"),
    }
}

/// The address of node `index`: 10.128.0.1 and on; pods have the lower half of 10.0.0.0/8.
pub fn node_address(index: usize) -> String {
    let n = (index % 0x7f_ffff) + 1;
    format!("10.{}.{}.{}", 128 + (n >> 16), (n >> 8) & 255, n & 255)
}

/// The made-up identifier of a device; the same for the same node and slot on every run.
pub fn gpu_uuid(node: &str, slot: u32) -> String {
    let a = stable_u64(&format!("{node}/{slot}"));
    let b = stable_u64(&format!("{slot}/{node}/gpu"));
    format!(
        "GPU-{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        a >> 32,
        (a >> 16) & 0xffff,
        a & 0xffff,
        b >> 48,
        b & 0xffff_ffff_ffff
    )
}

/// The NUMA zones of a node, with everything divided evenly and the first zones one richer where it does not go up.
fn numa_zones(group: &Group) -> Value {
    let n = i64::from(group.numa_zones);
    let cpu = group.shape.cpu.parse::<Quantity>().map_or(0, Quantity::milli_value);
    let memory = group.shape.memory.parse::<Quantity>().map_or(0, Quantity::value);
    let gpus = i64::from(group.shape.gpus);
    let mut next_gpu = 0;
    let zones: Vec<Value> = (0..n)
        .map(|zone| {
            let share = |total: i64| total / n + i64::from(zone < total % n);
            let n_gpus = share(gpus);
            let slots = match n_gpus {
                0 => String::new(),
                1 => next_gpu.to_string(),
                _ => format!("{next_gpu}-{}", next_gpu + n_gpus - 1),
            };
            next_gpu += n_gpus;
            json!({
                "id": zone,
                "cpu": format!("{}m", share(cpu)),
                "memory": share(memory).to_string(),
                "gpus": slots,
            })
        })
        .collect();
    Value::Array(zones)
}

/// Reads `0-3,4-7` into groups of indexes below `limit`; no index may be in two groups.
pub fn parse_index_groups(text: &str, limit: u32) -> Result<Vec<Vec<u32>>, String> {
    let mut seen = BTreeSet::new();
    let mut groups = Vec::new();
    for part in text.split(',') {
        let part = part.trim();
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (Ok(from), Ok(to)) = (from.trim().parse::<u32>(), to.trim().parse::<u32>()) else {
            return Err(format!("{part:?} is neither a number nor a range"));
        };
        if from > to {
            return Err(format!("{part:?} runs backwards"));
        }
        if to >= limit {
            return Err(format!("{part:?} names GPU {to}, but the node has {limit}, numbered from 0"));
        }
        let group: Vec<u32> = (from..=to).collect();
        if let Some(twice) = group.iter().find(|i| !seen.insert(**i)) {
            return Err(format!("GPU {twice} is in two groups"));
        }
        groups.push(group);
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_names_topology_and_devices() {
        let fleet = Fleet::parse(
            "f",
            "groups:\n- {name: a, count: 5, gpus: 2, topology: {nodesPerRack: 2, racksPerBlock: 2, blocksPerZone: 1}}\n- {name: b, count: 1, numaZones: 2, nvlinkGroups: '0-1,2', gpus: 3}",
            0,
        )
        .unwrap();
        let nodes = fleet.nodes();
        let rack =
            |i: usize| nodes[i]["metadata"]["labels"]["cloud.provider.com/topology-rack"].as_str().unwrap();
        let racks: Vec<&str> = (0..6).map(rack).collect();
        assert_eq!(
            racks,
            [
                "block-0-rack-0",
                "block-0-rack-0",
                "block-0-rack-1",
                "block-0-rack-1",
                "block-1-rack-0",
                "block-2-rack-0"
            ]
        );
        assert_eq!(nodes[4]["metadata"]["labels"]["topology.kubernetes.io/zone"], "zone-b");
        assert_eq!(nodes[0]["metadata"]["labels"]["nvidia.com/gpu.memory"], "81920");
        assert_eq!(nodes[0]["metadata"]["labels"]["nvidia.com/gpu.count"], "2");
        assert_eq!(nodes[5]["status"]["capacity"]["nvidia.com/gpu"], "3");
        assert_eq!(nodes[5]["metadata"]["annotations"][NVLINK_GROUPS], "0-1,2");
        let zones: Value =
            serde_json::from_str(nodes[5]["metadata"]["annotations"][NUMA_ZONES].as_str().unwrap()).unwrap();
        assert_eq!(zones[0]["gpus"], "0-1");
        assert_eq!(zones[1]["gpus"], "2");
        assert_eq!(zones[1]["cpu"], "48000m");
    }

    #[track_caller]
    fn check_groups(text: &str, limit: u32, expected: Result<&[&[u32]], &str>) {
        match (parse_index_groups(text, limit), expected) {
            (Ok(got), Ok(want)) => assert_eq!(got, want.iter().map(|g| g.to_vec()).collect::<Vec<_>>()),
            (Err(got), Err(want)) => assert!(got.contains(want), "{got}"),
            (got, want) => panic!("{text}: {got:?} instead of {want:?}"),
        }
    }

    #[test]
    fn index_groups() {
        check_groups("0-3,4-7", 8, Ok(&[&[0, 1, 2, 3], &[4, 5, 6, 7]]));
        check_groups("0, 2 - 3", 4, Ok(&[&[0], &[2, 3]]));
        check_groups("0-8", 8, Err("numbered from 0"));
        check_groups("3-1", 8, Err("backwards"));
        check_groups("0-1,1", 8, Err("two groups"));
        check_groups("", 8, Err("neither"));
        check_groups("0-4294967295", 8, Err("GPU 4294967295"));
    }

    #[test]
    fn addresses_and_uuids() {
        assert_eq!(node_address(0), "10.128.0.1");
        assert_eq!(node_address(70_000), "10.129.17.113");
        assert!(node_address(usize::MAX).starts_with("10."));
        assert_eq!(gpu_uuid("n", 0), gpu_uuid("n", 0));
        assert_ne!(gpu_uuid("n", 0), gpu_uuid("n", 1));
        assert_eq!(gpu_uuid("n", 0).len(), 40);
    }
}
