//! The fleet: which nodes the simulation has.
//!
//! In: a short form (`nodes: 16, gpus: 8`) or a YAML file with groups of nodes. Out: Node objects, in order, ready to
//! be created; or an error that names the file, the field and the fix.
//! Must stay true: the same description always gives the same nodes; no description gives more than [`MAX_NODES`].
//!
//! A file looks like this; every field but `groups` and `count` may be left out:
//!
//! ```yaml
//! groups:
//!   - name: h100              # nodes are called h100-0, h100-1, ...
//!     count: 16
//!     cpu: "96"
//!     memory: 768Gi
//!     pods: 110
//!     gpus: 8
//!     gpu: {product: NVIDIA-H100-80GB-HBM3, memory: 80Gi, resource: nvidia.com/gpu}
//!     nvlinkGroups: "0-3,4-7" # GPUs that reach each other by NVLink
//!     numaZones: 2            # CPUs, memory and GPUs are divided evenly
//!     topology: {region: sim, zone: zone-a, nodesPerRack: 4, racksPerBlock: 4, blocksPerZone: 4}
//!     labels: {team: research}
//!     annotations: {}
//!     resources: {rdma/ib: "4"}
//!     taints: ["dedicated=gpu:NoSchedule"]
//!     pricePerHour: "12.50"
//!     spot: true
//! ```

#[cfg(test)]
mod messages;
mod node;

use std::collections::BTreeSet;
use std::path::Path;

use k8s_quantity::Quantity;
use serde::Deserialize;
use serde_saphyr::Spanned;

pub use node::{INSTANCE_TYPE, NUMA_ZONES, NVLINK_GROUPS, PRICE, gpu_labels, gpu_uuid, node_address};

use crate::object::{Strings, Taint};
pub use crate::yaml::Place;
use crate::yaml::{self, Format};

const FILE: Format = Format {
    list: "groups",
    example: "write a list of node groups, each with a count, like `groups: [{name: h100, count: 4, gpus: 8}]`",
    required: "`groups` and each group's `count` are required",
};

/// More nodes than any cluster has; what asks for more is a slip of the finger.
pub const MAX_NODES: usize = 100_000;
/// More than any machine holds.
pub const MAX_GPUS: u32 = 1024;
const MAX_PODS: u32 = 10_000;

/// A description that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    #[error("{file}: cannot be read; check the path and that the file is text")]
    Read { file: String, source: std::io::Error },
    #[error("{file}: {place}{problem}; {fix}")]
    Field { file: String, place: Place, problem: String, fix: String },
    #[error("{flag}: {problem}; {fix}")]
    Flag { flag: &'static str, problem: String, fix: String },
}

/// What every node has unless its group says otherwise, and what a node gets that someone creates without a status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    pub cpu: String,
    pub memory: String,
    pub pods: u32,
    pub gpus: u32,
    pub gpu: Gpu,
}

impl Default for Shape {
    fn default() -> Self {
        Shape { cpu: "96".into(), memory: "768Gi".into(), pods: 110, gpus: 0, gpu: Gpu::default() }
    }
}

impl Shape {
    pub fn with_gpus(gpus: u32) -> Self {
        Shape { gpus, ..Shape::default() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Gpu {
    /// As in the label `nvidia.com/gpu.product`.
    pub product: String,
    pub memory: String,
    /// The extended resource that counts them.
    pub resource: String,
}

impl Default for Gpu {
    fn default() -> Self {
        Gpu {
            product: "NVIDIA-H100-80GB-HBM3".into(),
            memory: "80Gi".into(),
            resource: "nvidia.com/gpu".into(),
        }
    }
}

/// Groups of nodes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fleet {
    pub groups: Vec<Group>,
}

/// Nodes of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    pub name: String,
    pub count: usize,
    pub shape: Shape,
    pub nvlink_groups: Option<String>,
    pub numa_zones: u32,
    pub topology: Topology,
    pub labels: Strings,
    pub annotations: Strings,
    pub resources: Strings,
    pub taints: Vec<Taint>,
    pub price_per_hour: Option<String>,
    pub spot: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub struct Topology {
    pub region: String,
    /// All nodes of the group are in this zone; without it zones are `zone-a`, `zone-b`, ... in turn.
    pub zone: Option<String>,
    pub nodes_per_rack: usize,
    pub racks_per_block: usize,
    pub blocks_per_zone: usize,
    pub block_label: String,
    pub rack_label: String,
}

impl Default for Topology {
    fn default() -> Self {
        Topology {
            region: "sim".into(),
            zone: None,
            nodes_per_rack: 4,
            racks_per_block: 4,
            blocks_per_zone: 4,
            block_label: "cloud.provider.com/topology-block".into(),
            rack_label: "cloud.provider.com/topology-rack".into(),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FleetFile {
    groups: Vec<Spanned<GroupFile>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct GroupFile {
    #[serde(default)]
    name: Option<String>,
    count: u64,
    #[serde(default)]
    cpu: Option<String>,
    #[serde(default)]
    memory: Option<String>,
    #[serde(default)]
    pods: Option<u32>,
    #[serde(default)]
    gpus: Option<u32>,
    #[serde(default)]
    gpu: Gpu,
    #[serde(default)]
    nvlink_groups: Option<String>,
    #[serde(default)]
    numa_zones: u32,
    #[serde(default)]
    topology: Topology,
    #[serde(default)]
    labels: Strings,
    #[serde(default)]
    annotations: Strings,
    #[serde(default)]
    resources: Strings,
    #[serde(default)]
    taints: Vec<String>,
    #[serde(default)]
    price_per_hour: Option<String>,
    #[serde(default)]
    spot: bool,
}

impl Fleet {
    /// The short form: so many equal nodes with so many GPUs each.
    pub fn simple(nodes: usize, gpus: u32) -> Result<Self, FleetError> {
        let group = Group {
            name: "node".into(),
            count: nodes,
            shape: Shape::with_gpus(gpus),
            nvlink_groups: None,
            numa_zones: 0,
            topology: Topology::default(),
            labels: Strings::new(),
            annotations: Strings::new(),
            resources: Strings::new(),
            taints: Vec::new(),
            price_per_hour: None,
            spot: false,
        };
        let fleet = Fleet { groups: vec![group] };
        // Nothing else of this fleet was chosen by anyone.
        fleet.check("").map_err(|error| match error {
            FleetError::Field { place, problem, fix, .. } => {
                let of_gpus = place.field.is_some_and(|field| field.ends_with(".gpus"));
                FleetError::Flag { flag: if of_gpus { "--gpus" } else { "--nodes" }, problem, fix }
            }
            other => other,
        })?;
        Ok(fleet)
    }

    /// Reads a YAML file; `default_gpus` is for groups that say nothing of GPUs.
    pub fn read(file: &Path, default_gpus: u32) -> Result<Self, FleetError> {
        let name = file.display().to_string();
        let text = std::fs::read_to_string(file)
            .map_err(|source| FleetError::Read { file: name.clone(), source })?;
        Fleet::parse(&name, &text, default_gpus)
    }

    /// Reads YAML text; `file` is the name for errors.
    pub fn parse(file: &str, text: &str, default_gpus: u32) -> Result<Self, FleetError> {
        let parsed: FleetFile = serde_saphyr::from_str(text).map_err(|error| {
            let yaml::Refusal { place, problem, fix } = yaml::explain(&FILE, text, &error);
            FleetError::Field { file: file.to_owned(), place, problem, fix }
        })?;
        let lines: Vec<u64> = parsed.groups.iter().map(|group| group.referenced.line()).collect();
        let groups: Result<Vec<Group>, FleetError> = parsed
            .groups
            .into_iter()
            .enumerate()
            .map(|(i, group)| checked_group(file, i, group.value, default_gpus))
            .collect();
        let checked = |groups| {
            let fleet = Fleet { groups };
            fleet.check(file).map(|()| fleet)
        };
        groups.and_then(checked).map_err(|error| match error {
            FleetError::Field { file, place, problem, fix } => {
                FleetError::Field { file, place: yaml::locate(&FILE, place, text, &lines), problem, fix }
            }
            other => other,
        })
    }

    pub fn n_nodes(&self) -> usize {
        self.groups.iter().fold(0, |sum, g| sum.saturating_add(g.count))
    }

    /// What holds for a fleet however it was described.
    fn check(&self, file: &str) -> Result<(), FleetError> {
        let refuse = |field: String, problem: String, fix: String| {
            Err(FleetError::Field { file: file.to_owned(), place: Place::field(field), problem, fix })
        };
        let mut names = BTreeSet::new();
        for (i, group) in self.groups.iter().enumerate() {
            let field = |name: &str| format!("groups[{i}].{name}");
            if !names.insert(&group.name) {
                return refuse(
                    field("name"),
                    format!("{:?} is used twice", group.name),
                    "name each group differently".into(),
                );
            }
            if !is_dns_label(&group.name) || group.name.len() > 50 {
                return refuse(
                    field("name"),
                    format!("{:?} cannot begin a node's name", group.name),
                    "use at most 50 lower-case letters, digits and dashes, beginning and ending with a letter or digit".into(),
                );
            }
            if group.shape.gpus > MAX_GPUS {
                return refuse(
                    field("gpus"),
                    format!("{} per node is absurd", group.shape.gpus),
                    format!("ask for at most {MAX_GPUS}"),
                );
            }
            if group.shape.pods == 0 || group.shape.pods > MAX_PODS {
                return refuse(
                    field("pods"),
                    format!("{} is absurd", group.shape.pods),
                    format!("ask for 1 to {MAX_PODS}"),
                );
            }
            for (name, text) in [
                ("cpu", &group.shape.cpu),
                ("memory", &group.shape.memory),
                ("gpu.memory", &group.shape.gpu.memory),
            ] {
                check_quantity(file, &field(name), text)?;
            }
            for (name, text) in &group.resources {
                check_quantity(file, &field(&format!("resources.{name}")), text)?;
            }
            check_names(file, i, group)?;
            if group.numa_zones > 64 {
                return refuse(
                    field("numaZones"),
                    format!("{} is absurd", group.numa_zones),
                    "ask for at most 64".into(),
                );
            }
            let topology = &group.topology;
            for (name, n) in [
                ("nodesPerRack", topology.nodes_per_rack),
                ("racksPerBlock", topology.racks_per_block),
                ("blocksPerZone", topology.blocks_per_zone),
            ] {
                if n == 0 {
                    return refuse(
                        field(&format!("topology.{name}")),
                        "0 leaves no place for a node".into(),
                        "write 1 or more".into(),
                    );
                }
            }
            if let Some(groups) = &group.nvlink_groups
                && let Err(problem) = node::parse_index_groups(groups, group.shape.gpus)
            {
                return refuse(
                    field("nvlinkGroups"),
                    problem,
                    "write GPU numbers and ranges, one list item per group, like \"0-3,4-7\"".into(),
                );
            }
        }
        if self.n_nodes() > MAX_NODES {
            let most = self.groups.iter().enumerate().max_by_key(|(_, g)| g.count).map_or(0, |(i, _)| i);
            return refuse(
                format!("groups[{most}].count"),
                format!("{} nodes are too many", self.n_nodes()),
                format!("ask for at most {MAX_NODES} in all"),
            );
        }
        Ok(())
    }
}

fn checked_group(file: &str, i: usize, group: GroupFile, default_gpus: u32) -> Result<Group, FleetError> {
    let mut taints = Vec::with_capacity(group.taints.len());
    for (j, text) in group.taints.iter().enumerate() {
        let taint = parse_taint(text).ok_or_else(|| FleetError::Field {
            file: file.to_owned(),
            place: Place::field(format!("groups[{i}].taints[{j}]")),
            problem: format!("{text:?} is not a taint"),
            fix:
                "write key=value:effect or key:effect, with effect NoSchedule, PreferNoSchedule or NoExecute"
                    .into(),
        })?;
        taints.push(taint);
    }
    let default = Shape::with_gpus(default_gpus);
    let shape = Shape {
        cpu: group.cpu.unwrap_or(default.cpu),
        memory: group.memory.unwrap_or(default.memory),
        pods: group.pods.unwrap_or(default.pods),
        gpus: group.gpus.unwrap_or(default.gpus),
        gpu: group.gpu,
    };
    Ok(Group {
        name: group.name.unwrap_or_else(|| if i == 0 { "node".into() } else { format!("node{i}") }),
        count: usize::try_from(group.count).unwrap_or(usize::MAX),
        shape,
        nvlink_groups: group.nvlink_groups,
        numa_zones: group.numa_zones,
        topology: group.topology,
        labels: group.labels,
        annotations: group.annotations,
        resources: group.resources,
        taints,
        price_per_hour: group.price_per_hour,
        spot: group.spot,
    })
}

/// What becomes a label, a resource name or a taint must be one, or the API server would refuse every node.
fn check_names(file: &str, i: usize, group: &Group) -> Result<(), FleetError> {
    const NAME: &str = "write letters, digits, dashes, dots and underscores, at most 63, after a domain and a slash if you like, such as example.com/team";
    const VALUE: &str = "write at most 63 letters, digits, dashes, dots and underscores, beginning and ending with a letter or digit";
    let topology = &group.topology;
    let resources = group.resources.keys().map(|name| (format!("resources.{name}"), name));
    let annotations = group.annotations.keys().map(|name| (format!("annotations.{name}"), name));
    let keys = [("topology.blockLabel", &topology.block_label), ("topology.rackLabel", &topology.rack_label)];
    let names = [("gpu.resource", &group.shape.gpu.resource)]
        .into_iter()
        .chain(keys.into_iter().filter(|(_, label)| !label.is_empty()))
        .map(|(field, name)| (field.to_owned(), name))
        .chain(resources)
        .chain(annotations)
        .chain(group.labels.keys().map(|name| (format!("labels.{name}"), name)))
        .chain(group.taints.iter().enumerate().map(|(j, t)| (format!("taints[{j}]"), &t.key)));
    let values = [("gpu.product", &group.shape.gpu.product), ("topology.region", &topology.region)]
        .into_iter()
        .chain(topology.zone.as_ref().map(|zone| ("topology.zone", zone)))
        .map(|(field, value)| (field.to_owned(), value))
        .chain(group.labels.iter().map(|(name, value)| (format!("labels.{name}"), value)))
        .chain(group.taints.iter().enumerate().map(|(j, t)| (format!("taints[{j}]"), &t.value)));
    let bad_name = names.filter(|(_, name)| !is_qualified_name(name)).map(|(f, n)| (f, n, "name", NAME));
    let bad_value = values.filter(|(_, v)| !is_label_value(v)).map(|(f, v)| (f, v, "label value", VALUE));
    match bad_name.chain(bad_value).next() {
        None => Ok(()),
        Some((field, text, what, fix)) => Err(FleetError::Field {
            file: file.to_owned(),
            place: Place::field(format!("groups[{i}].{field}")),
            problem: format!("{text:?} is not a {what}"),
            fix: fix.into(),
        }),
    }
}

/// `name` or `domain/name`.
fn is_qualified_name(text: &str) -> bool {
    let (domain, name) = match text.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, text),
    };
    let is_domain = |domain: &str| domain.len() <= 253 && domain.split('.').all(is_dns_label);
    domain.is_none_or(is_domain) && !name.is_empty() && is_label_value(name)
}

fn is_label_value(text: &str) -> bool {
    let bytes = text.as_bytes();
    let ends = |b: Option<&u8>| b.is_none_or(u8::is_ascii_alphanumeric);
    bytes.len() <= 63
        && ends(bytes.first())
        && ends(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

fn check_quantity(file: &str, field: &str, text: &str) -> Result<(), FleetError> {
    let refuse = |problem: String| FleetError::Field {
        file: file.to_owned(),
        place: Place::field(field),
        problem,
        fix: "write a quantity such as 96, 500m or 768Gi".into(),
    };
    match text.parse::<Quantity>() {
        Ok(quantity) if quantity.value() >= 0 => Ok(()),
        Ok(_) => Err(refuse(format!("{text:?} is less than nothing"))),
        Err(_) => Err(refuse(format!("{text:?} is not a quantity"))),
    }
}

fn parse_taint(text: &str) -> Option<Taint> {
    let (rest, effect) = text.rsplit_once(':')?;
    let (key, value) = rest.split_once('=').unwrap_or((rest, ""));
    let known = matches!(effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute");
    (known && !key.is_empty()).then(|| Taint {
        key: key.to_owned(),
        value: value.to_owned(),
        effect: effect.to_owned(),
        time_added: None,
    })
}

fn is_dns_label(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|b| plain(*b))
        && bytes.last().is_some_and(|b| plain(*b))
        && bytes.iter().all(|b| plain(*b) || *b == b'-')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check_error(text: &str, words: &[&str]) {
        let error = Fleet::parse("fleet.yaml", text, 0).expect_err("this must be refused").to_string();
        for word in ["fleet.yaml"].iter().chain(words) {
            assert!(error.contains(word), "{error:?} must mention {word:?}");
        }
    }

    #[test]
    fn refuses_with_file_field_and_fix() {
        check_error("groups: [{count: 1, gpuz: 8}]", &["gpuz", "gpus"]);
        check_error("groups: [{name: a}]", &["count"]);
        check_error("nodes: 4", &["nodes", "groups"]);
        check_error("groups: [{count: 1000000}]", &["count", "100000"]);
        check_error("groups: [{count: 18446744073709551615}, {count: 1, name: b}]", &["count", "100000"]);
        check_error("groups: [{count: 1, gpus: 5000}]", &["groups[0].gpus", "1024"]);
        check_error("groups: [{count: 1, pods: 0}]", &["groups[0].pods"]);
        check_error("groups: [{count: 1, memory: lots}]", &["groups[0].memory", "768Gi"]);
        check_error("groups: [{count: 1, cpu: '-4'}]", &["groups[0].cpu", "less than nothing"]);
        check_error("groups: [{count: 1, name: a}, {count: 1, name: a}]", &["groups[1].name", "twice"]);
        check_error("groups: [{count: 1, name: A_b}]", &["groups[0].name", "lower-case"]);
        check_error("groups: [{count: 1, taints: [x]}]", &["groups[0].taints[0]", "key=value:effect"]);
        check_error(
            "groups: [{count: 1, topology: {nodesPerRack: 0}}]",
            &["groups[0].topology.nodesPerRack"],
        );
        check_error(
            "groups: [{count: 1, gpus: 4, nvlinkGroups: '0-7'}]",
            &["groups[0].nvlinkGroups", "0-3,4-7"],
        );
        check_error("groups: [{count: 1, gpu: {model: x}}]", &["model", "product"]);
        check_error(": : :", &[]);
        check_error(
            "groups: [{count: 1, name: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}]",
            &["groups[0].name", "at most 50"],
        );
        check_error("groups: [{count: 1, name: größe}]", &["groups[0].name", "größe"]);
        check_error("groups: [{count: 1, labels: {a b: c}}]", &["groups[0].labels.a b", "not a name"]);
        check_error("groups: [{count: 1, labels: {a: ünï}}]", &["groups[0].labels.a", "ünï"]);
        check_error("groups: [{count: 1, gpu: {product: H 100}}]", &["groups[0].gpu.product", "H 100"]);
        check_error("groups: [{count: 1, gpu: {resource: ''}}]", &["groups[0].gpu.resource"]);
        check_error("groups: [{count: 1, resources: {Bad_/x: 1}}]", &["groups[0].resources.Bad_/x"]);
        check_error("groups: [{count: 1, taints: ['a b:NoSchedule']}]", &["groups[0].taints[0]"]);
        check_error("groups: [{count: 1, topology: {zone: '-'}}]", &["groups[0].topology.zone"]);
    }

    #[test]
    fn reads_what_is_described() {
        let fleet = Fleet::parse(
            "f",
            "groups:\n- {count: 3}\n- {name: big, count: 2, gpus: 4, cpu: 12, spot: true, taints: ['a=b:NoSchedule']}",
            8,
        )
        .unwrap();
        assert_eq!(fleet.n_nodes(), 5);
        assert_eq!(fleet.groups[0].shape, Shape::with_gpus(8));
        assert_eq!(fleet.groups[1].shape.cpu, "12");
        assert_eq!(fleet.groups[1].shape.gpus, 4);
        assert_eq!(fleet.groups[1].taints[0].value, "b");
        assert_eq!(Fleet::simple(16, 8).unwrap().nodes().len(), 16);
        assert!(Fleet::simple(usize::MAX, 8).is_err());
    }

    proptest! {
        #[test]
        fn hostile_text_never_panics(text in "[ -~\\n]{0,80}") {
            let _ = Fleet::parse("f", &text, 0);
            let _ = node::parse_index_groups(&text, 8);
        }
    }
}
