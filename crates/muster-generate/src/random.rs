//! A random cluster: nodes of a few kinds, a queue tree, and gangs in every state, now and then with something broken.

use crate::mixed::Trees;
use crate::room::Room;
use crate::{Rng, Sizes};
use muster_model::{
    AffinityTerm, Allocation, Amounts, Bound, Claim, ClaimUse, Cluster, Conditions, Device,
    DeviceAlternative, DeviceCount, DeviceName, DeviceReach, DeviceRequest, Expr, GPU, Gang, GpuShare, Gpus,
    Grace, Group, HostPort, Key, LabelSelector, Labels, Level, Links, MigStrategy, Min, Name, Node, NodeRule,
    NodeTerm, Numa, NumaPolicy, NumaScope, Op, Pod, PodRules, PodState, Preemptibility, Queue, Resource,
    Shape, Share, ShareSize, Span, SpreadRule, Taint, TaintEffect, Time, Toleration, Topology, TopologyRule,
    VolumeNeed, VolumeUse, Zone,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The cluster of this seed. What runs fits; what waits may or may not.
pub fn cluster(seed: u64, sizes: &Sizes) -> Cluster {
    let mut maker = Maker::new(sizes, Trees::new());
    maker.make(&Rng::new(seed), |_| {});
    maker.cluster
}

/// When every random cluster is looked at: some moment in 2026, in milliseconds.
pub(crate) const NOW: i64 = 1_767_225_600_000;

const NAMESPACE: &str = "default";
const HOST: &str = "kubernetes.io/hostname";
const TAINT: &str = "dedicated";
const CSI: &str = "csi.example.com";
const MIG_PROFILES: [&str; 2] = ["nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.20gb"];

/// A cluster in the making.
pub(crate) struct Maker<'a> {
    sizes: &'a Sizes,
    pub(crate) cluster: Cluster,
    /// Label keys from coarse to fine, of all topologies.
    levels: Vec<Name>,
    /// Queues that may hold gangs.
    pub(crate) leaves: Vec<Name>,
    /// What trees of queues have of the cluster.
    pub(crate) trees: Trees,
    /// Before the names of gangs, so that those that come later do not meet those that are there.
    prefix: String,
}

impl<'a> Maker<'a> {
    pub(crate) fn new(sizes: &'a Sizes, trees: Trees) -> Self {
        Self {
            sizes,
            cluster: Cluster { now: Time(NOW), ..Cluster::default() },
            levels: Vec::new(),
            leaves: Vec::new(),
            trees,
            prefix: String::new(),
        }
    }

    /// Makes everything; `more_queues` adds to KAI's.
    pub(crate) fn make(&mut self, rng: &Rng, more_queues: impl FnOnce(&mut Self)) {
        self.topologies(&mut rng.fork(1));
        self.nodes(&mut rng.fork(2));
        self.queues(&mut rng.fork(3));
        more_queues(self);
        self.devices(&mut rng.fork(4));
        self.gangs(&rng.fork(5));
        self.other_pods(&mut rng.fork(6));
        self.troubles(&mut rng.fork(7));
    }

    /// Goes on where another left off.
    pub(crate) fn resume(cluster: &Cluster, sizes: &'a Sizes, trees: Trees, prefix: String) -> Self {
        let parents: BTreeSet<&Name> =
            cluster.queues.iter().filter_map(|queue| queue.parent.as_ref()).collect();
        let leaves = cluster.queues.iter().map(|queue| &queue.name).filter(|name| !parents.contains(name));
        let levels =
            cluster.topologies.first().iter().flat_map(|t| &t.levels).map(|l| l.label.clone()).collect();
        let leaves = leaves.filter(|name| &***name != "volcano/root").cloned().collect();
        Self { sizes, leaves, levels, trees, prefix, cluster: cluster.clone() }
    }

    fn topologies(&mut self, rng: &mut Rng) {
        if !rng.percent(self.sizes.odds.topology) {
            return;
        }
        let coarse = ["zone", "block", "rack"];
        let first = rng.index(coarse.len());
        self.levels = coarse[first..].iter().map(|label| Name::from(*label)).collect();
        if rng.percent(50) {
            self.levels.push(HOST.into());
        }
        let topology = |name: &str, levels: &[Name]| {
            let levels = levels.iter().map(|label| Level { label: label.clone(), alias: None }).collect();
            Arc::new(Topology { name: name.into(), levels, domains: Vec::new() })
        };
        self.cluster.topologies.push(topology("full", &self.levels));
        if rng.percent(30) {
            self.cluster.topologies.push(topology("coarse", &self.levels[..1]));
        }
    }

    fn nodes(&mut self, rng: &mut Rng) {
        let n_kinds = rng.between((1, 3));
        let kinds: Vec<Node> = (0..n_kinds).map(|_| self.node_kind(rng)).collect();
        let n_nodes = rng.between(self.sizes.nodes);
        // Racks of one name in different blocks are different racks.
        let repeated = rng.percent(40);
        for i in 0..n_nodes {
            let mut node = rng.pick(&kinds).clone();
            node.name = format!("node-{i:03}").into();
            node.labels.insert(HOST.into(), node.name.clone());
            self.locate(rng, &mut node, repeated);
            self.cluster.nodes.push(Arc::new(node));
        }
    }

    /// The labels and taints that tell nodes of one kind apart.
    fn locate(&self, rng: &mut Rng, node: &mut Node, repeated: bool) {
        let odds = &self.sizes.odds;
        let mut path = String::new();
        let lost = rng.percent(odds.outside_topology).then(|| rng.index(self.levels.len().max(1)));
        for (depth, label) in self.levels.iter().enumerate().filter(|(_, label)| &***label != HOST) {
            let here = rng.below(if depth == 0 { 2 } else { 3 });
            path = if repeated { format!("{label}-{here}") } else { format!("{path}{label}-{here}") };
            if lost != Some(depth) {
                node.labels.insert(label.clone(), path.as_str().into());
            }
        }
        node.labels.insert("pool".into(), (*rng.pick(&["red", "blue"])).into());
        if rng.percent(odds.taint) {
            let effect =
                *rng.pick(&[TaintEffect::NoSchedule, TaintEffect::NoExecute, TaintEffect::PreferNoSchedule]);
            node.taints.push(Taint { key: TAINT.into(), value: "ml".into(), effect });
        }
    }

    fn node_kind(&self, rng: &mut Rng) -> Node {
        let odds = &self.sizes.odds;
        let n_gpus = *rng.pick(self.sizes.gpus);
        let cpu = *rng.pick(&[4_000, 16_000, 64_000]);
        let memory = *rng.pick(&[16, 64, 256]) << 30;
        let mut allocatable: Amounts =
            [(Resource::Cpu, cpu), (Resource::Memory, memory), (Resource::Pods, *rng.pick(&[8, 30, 110]))]
                .into_iter()
                .collect();
        let mut gpus = Gpus::default();
        if n_gpus > 0 {
            allocatable.set(Resource::Gpu, n_gpus * GPU);
            let known = !rng.percent(odds.unknown_gpu_memory);
            gpus.memory = known.then(|| *rng.pick(&[16_000, 40_000, 80_000]));
            if rng.percent(odds.mig) {
                gpus.mig = *rng.pick(&[MigStrategy::Single, MigStrategy::Mixed, MigStrategy::Mixed]);
            }
            if rng.percent(odds.links) {
                let count = n_gpus as u32;
                let half = (1_u64 << (count / 2)) - 1;
                let all = (1_u64 << count) - 1;
                let tiers = if count >= 4 && rng.percent(60) {
                    vec![vec![half, all & !half], vec![all]]
                } else {
                    vec![vec![all]]
                };
                gpus.links = Some(Links { gpus: count, tiers });
            }
        }
        if gpus.mig == MigStrategy::Mixed {
            allocatable.set(Resource::Gpu, 0);
            gpus.links = None;
            for profile in MIG_PROFILES {
                allocatable.set(Resource::Other(profile.into()), n_gpus * 2);
            }
        }
        let numa = rng.percent(odds.numa).then(|| {
            let half: Amounts =
                [(Resource::Cpu, cpu / 2), (Resource::Memory, memory / 2)].into_iter().collect();
            let zone =
                |name: &str| Zone { name: name.into(), allocatable: half.clone(), available: half.clone() };
            let policies =
                [NumaPolicy::None, NumaPolicy::BestEffort, NumaPolicy::Restricted, NumaPolicy::SingleNode];
            Numa {
                policy: *rng.pick(&policies),
                scope: *rng.pick(&[NumaScope::Container, NumaScope::Pod]),
                zones: vec![zone("node-0"), zone("node-1")],
            }
        });
        let attach_limits = if rng.percent(odds.volume) { [(CSI.into(), 2)].into() } else { BTreeMap::new() };
        Node {
            name: "".into(),
            labels: Labels::new(),
            taints: Vec::new(),
            conditions: Conditions::default(),
            allocatable,
            gpus,
            numa,
            attach_limits,
            images: BTreeMap::new(),
            load: None,
        }
    }

    fn queues(&mut self, rng: &mut Rng) {
        let odds = &self.sizes.odds;
        let depth = rng.between(self.sizes.queue_depth);
        let n_queues = rng.between(self.sizes.queues).max(depth);
        let mut tree: Vec<(Name, u32)> = Vec::new();
        for i in 0..n_queues {
            let name = Name::from(format!("queue-{i:02}"));
            // The first few make one line of the full depth, the rest hang anywhere.
            let parent = if i == 0 {
                None
            } else if i < depth {
                tree.last().cloned()
            } else {
                let inner: Vec<&(Name, u32)> = tree.iter().filter(|(_, level)| *level < depth).collect();
                if inner.is_empty() || rng.percent(20) { None } else { Some((*rng.pick(&inner)).clone()) }
            };
            let level = parent.as_ref().map_or(1, |(_, level)| level + 1);
            tree.push((name.clone(), level));
            let broken = rng.percent(odds.broken);
            let parent = if broken { Some("nobody".into()) } else { parent.map(|(name, _)| name) };
            let queue = self.queue(rng, name, parent);
            self.cluster.queues.push(Arc::new(queue));
        }
        if rng.percent(odds.broken) {
            for (name, parent) in [("circle-0", "circle-1"), ("circle-1", "circle-0")] {
                let queue = self.queue(rng, name.into(), Some(parent.into()));
                self.cluster.queues.push(Arc::new(queue));
            }
        }
        let parents: BTreeSet<&Name> =
            self.cluster.queues.iter().filter_map(|queue| queue.parent.as_ref()).collect();
        self.leaves =
            tree.iter().map(|(name, _)| name).filter(|name| !parents.contains(name)).cloned().collect();
    }

    pub(crate) fn queue(&self, rng: &mut Rng, name: Name, parent: Option<Name>) -> Queue {
        let odds = &self.sizes.odds;
        let mut shares = BTreeMap::new();
        for resource in [Resource::Cpu, Resource::Memory, Resource::Gpu] {
            let total: i64 = self.cluster.nodes.iter().map(|node| node.allocatable.get(&resource)).sum();
            let unit = if resource == Resource::Gpu { GPU } else { 1 };
            let whole = |amount: i64| Bound::At(amount / unit * unit);
            let gpu = resource == Resource::Gpu;
            let quotas = [
                Bound::At(0),
                whole(total / 8),
                whole(total / 4),
                whole(total / 2),
                whole(total),
                Bound::Unlimited,
            ];
            let quota = if gpu || rng.percent(30) { *rng.pick(&quotas) } else { Bound::Unlimited };
            let limits =
                [Bound::At(0), whole(total / 8), whole(total / 4), whole(total / 2), Bound::At(total / 3)];
            let bounded = rng.percent(if gpu { odds.limit } else { odds.limit / 4 });
            let limit = if bounded { *rng.pick(&limits) } else { Bound::Unlimited };
            let weight = *rng.pick(&[0, 1000, 1000, 2000, 500, 7000]);
            shares.insert(resource, Share { quota, limit, weight, ..Share::default() });
        }
        let runtime =
            |rng: &mut Rng| rng.percent(odds.min_runtime).then(|| Span::seconds(*rng.pick(&[0, 60, 600])));
        Queue {
            uid: format!("uid-{name}").into(),
            name,
            display: None,
            parent,
            priority: *rng.pick(&[100, 100, 100, 50, 200]),
            created: Time(NOW - 1_000_000_000 + rng.below(50) as i64 * 1000),
            shares,
            preempt_min_runtime: runtime(rng),
            reclaim_min_runtime: runtime(rng),
            reclaim: muster_model::Reclaim::default(),
            usage: BTreeMap::new(),
            tree: muster_model::Dialect::Kai,
            volcano: None,
        }
    }

    fn devices(&mut self, rng: &mut Rng) {
        if self.sizes.odds.claim == 0 || !rng.percent(40) {
            return;
        }
        for node in self.cluster.nodes.clone() {
            for i in 0..rng.between((0, 4)) {
                let model = *rng.pick(&["fast", "slow"]);
                self.cluster.devices.push(Arc::new(Device {
                    name: DeviceName {
                        driver: "dev.example.com".into(),
                        pool: node.name.clone(),
                        device: format!("dev-{i}").into(),
                    },
                    reach: DeviceReach::Node(node.name.clone()),
                    attributes: [("model".into(), model.into())].into(),
                    counters: Vec::new(),
                    counter_totals: Vec::new(),
                    gpu: false,
                    no_schedule: rng.percent(5),
                }));
            }
        }
        // Some are taken already, by somebody whom nobody knows.
        for (i, device) in self.cluster.devices.clone().into_iter().enumerate() {
            if rng.percent(20) {
                let name = Name::from(format!("taken-{i}"));
                let mut claim = self.new_claim(name.clone(), 1);
                let devices = vec![("r".into(), device.name.clone())];
                let names =
                    vec![Expr { key: "metadata.name".into(), op: Op::In(vec![device.name.pool.clone()]) }];
                let nodes = vec![NodeTerm { labels: Vec::new(), names }];
                claim.allocation = Some(Allocation { devices, nodes });
                claim.reserved_for = vec![format!("uid-of-{name}").into()];
                self.cluster.claims.push(Arc::new(claim));
            }
        }
    }

    fn new_claim(&self, name: Name, count: u32) -> Claim {
        let mut candidates: Vec<DeviceName> =
            self.cluster.devices.iter().map(|device| device.name.clone()).collect();
        candidates.sort();
        let alternative = DeviceAlternative {
            name: "".into(),
            candidates: candidates.into(),
            count: DeviceCount::Exactly(count),
            admin: false,
            gpu: false,
        };
        Claim {
            key: Key::new(NAMESPACE, name),
            requests: vec![DeviceRequest { name: "r".into(), alternatives: vec![alternative] }],
            same: if count > 1 { vec![(Vec::new(), "model".into())] } else { Vec::new() },
            allocation: None,
            reserved_for: Vec::new(),
            of_pod: None,
            queue: None,
            defect: None,
        }
    }

    fn gangs(&mut self, rng: &Rng) {
        let n_gangs = rng.clone().between(self.sizes.gangs);
        let mut room = Room::of(&self.cluster.nodes);
        for i in 0..n_gangs {
            self.gang(&mut rng.fork(u64::from(i)), i, &mut room);
        }
    }

    /// One gang with its pods, seated as far as it runs.
    pub(crate) fn gang(&mut self, rng: &mut Rng, number: u32, room: &mut Room) {
        let odds = &self.sizes.odds;
        let name = format!("{}gang-{number:03}", self.prefix);
        let n_pods = rng.between(self.sizes.pods_per_gang);
        let (groups, pods_of) = self.groups(rng, n_pods);
        let broken_queue = rng.percent(odds.broken);
        let queue = if broken_queue || self.leaves.is_empty() {
            let parent = self.cluster.queues.iter().find_map(|queue| queue.parent.clone());
            parent.filter(|_| rng.percent(50)).unwrap_or_else(|| "no-such-queue".into())
        } else {
            rng.pick(&self.leaves).clone()
        };
        let fixed = rng.percent(odds.non_preemptible);
        let mut gang = Gang {
            key: Key::new(NAMESPACE, name.as_str()),
            uid: format!("uid-{name}").into(),
            queue,
            priority: if fixed { *rng.pick(&[100, 125]) } else { *rng.pick(&[50, 50, 75, 0]) },
            preemptibility: if fixed { Preemptibility::NonPreemptible } else { Preemptibility::Preemptible },
            // Some are of one age, so that only the uid tells them apart.
            created: Time(NOW - 3_600_000 + rng.below(40) as i64 * 60_000),
            groups,
            last_start: None,
            last_eviction: None,
            stale_since: None,
            preemption_delay: if rng.percent(odds.delay) { Span::seconds(7200) } else { Span::ZERO },
            staleness_grace: rng.percent(5).then(|| *rng.pick(&[Grace::Forever, Grace::For(Span::ZERO)])),
            declared_end: rng.percent(10).then(|| Time(NOW + 1000 * rng.below(100_000) as i64)),
            volcano: None,
        };
        let mut pods = self.pods(rng, &gang, &pods_of);
        self.adopt(rng, &mut gang, &mut pods);
        self.set_going(rng, &mut gang, &mut pods, room);
        self.cluster.gangs.push(Arc::new(gang));
        self.cluster.pods.extend(pods.into_iter().map(Arc::new));
    }

    /// The tree of groups and, by leaf, how many pods it has.
    fn groups(&self, rng: &mut Rng, n_pods: u32) -> (Vec<Group>, Vec<(usize, u32)>) {
        let odds = &self.sizes.odds;
        let leaf_min = |rng: &mut Rng, n: u32| {
            if rng.percent(odds.broken) {
                Min::Pods(n + 1)
            } else if rng.percent(odds.elastic) {
                Min::Pods(rng.between((0, n)))
            } else {
                Min::Pods(n)
            }
        };
        let mut groups = Vec::new();
        let mut pods_of = Vec::new();
        if n_pods < 2 || !rng.percent(odds.nested) {
            let min = leaf_min(rng, n_pods);
            groups.push(Group { name: "default".into(), parent: None, min, topology: self.rule(rng) });
            pods_of.push((0, n_pods));
            return (groups, pods_of);
        }
        groups.push(Group {
            name: "root".into(),
            parent: None,
            min: Min::Children(None),
            topology: self.rule(rng),
        });
        let n_leaves = rng.between((2, n_pods.min(4)));
        let mut parents: Vec<u32> = vec![0];
        if n_leaves > 2 && rng.percent(40) {
            groups.push(Group {
                name: "inner".into(),
                parent: Some(0),
                min: Min::Children(None),
                topology: self.rule(rng),
            });
            parents.push(1);
        }
        for i in 0..n_leaves {
            // The rest goes to the last; an inner group gets one leaf at least.
            let n = n_pods / n_leaves + if i + 1 == n_leaves { n_pods % n_leaves } else { 0 };
            let parent = if i == 0 { parents.last().copied() } else { Some(*rng.pick(&parents)) };
            pods_of.push((groups.len(), n));
            let min = leaf_min(rng, n);
            groups.push(Group { name: format!("leaf-{i}").into(), parent, min, topology: self.rule(rng) });
        }
        for parent in 0..groups.len() {
            let n_children = groups.iter().filter(|group| group.parent == Some(parent as u32)).count() as u32;
            if matches!(groups[parent].min, Min::Children(_)) && rng.percent(30) {
                let beyond = u32::from(rng.percent(odds.broken));
                groups[parent].min = Min::Children(Some(rng.between((1, n_children.max(1))) + beyond));
            }
        }
        // Some need so many pods in all besides; drawn from what is there, so that the rest of a seed's cluster stays as it was.
        if groups[0].min == Min::Children(None) && n_pods.is_multiple_of(3) {
            groups[0].min = Min::Whole { pods: n_pods - n_pods / 6 };
        }
        (groups, pods_of)
    }

    fn rule(&self, rng: &mut Rng) -> Option<TopologyRule> {
        let odds = &self.sizes.odds;
        if rng.percent(odds.broken) {
            return Some(TopologyRule {
                topology: (*rng.pick(&["full", "no-such-topology"])).into(),
                required: Some("no-such-level".into()),
                preferred: None,
            });
        }
        let topology = self.cluster.topologies.first()?;
        let required = rng.percent(odds.rule_required).then(|| rng.pick(&topology.levels).label.clone());
        let preferred = rng.percent(odds.rule_preferred).then(|| rng.pick(&topology.levels).label.clone());
        let rule = TopologyRule { topology: topology.name.clone(), required, preferred };
        (rule.required.is_some() || rule.preferred.is_some()).then_some(rule)
    }

    fn pods(&mut self, rng: &mut Rng, gang: &Gang, pods_of: &[(usize, u32)]) -> Vec<Pod> {
        let odds = &self.sizes.odds;
        let name = &gang.key.name;
        let labels: Arc<Labels> =
            Arc::new([("app".into(), name.clone()), ("team".into(), (*rng.pick(&["a", "b"])).into())].into());
        let mut pods: Vec<Pod> = Vec::new();
        let common = self.shape(rng, &labels);
        for (group, n) in pods_of {
            let own = rng.percent(odds.mixed_shapes).then(|| self.shape(rng, &labels));
            let shapes = [Arc::new(common.clone()), Arc::new(own.unwrap_or_else(|| common.clone()))];
            let leader = rng.percent(odds.mixed_shapes);
            for i in 0..*n {
                // A leader that asks for something else than its workers.
                let shape = &shapes[usize::from(!(leader && i == 0))];
                let number = pods.len();
                let pod = Name::from(format!("{name}-{number}"));
                let stray = rng.percent(odds.broken / 3);
                let group = if stray { Some("no-such-group".into()) } else { self.group_name(gang, *group) };
                pods.push(Pod {
                    key: Key::new(NAMESPACE, pod.clone()),
                    uid: format!("uid-{pod}").into(),
                    gang: Some(gang.key.clone()),
                    group,
                    created: gang.created + Span::seconds(i64::from(i)),
                    state: PodState::Pending,
                    node: None,
                    shape: shape.clone(),
                    labels: labels.clone(),
                    rank: u8::from(!(leader && i == 0)),
                    task_priority: rng.percent(5).then(|| rng.below(3) as i64),
                    gpu_groups: Vec::new(),
                    gpus: Vec::new(),
                    zones: Vec::new(),
                    nominated: None,
                    volcano: None,
                });
            }
        }
        if !self.cluster.devices.is_empty() && rng.percent(odds.claim) {
            let count = rng.between((1, 2));
            for pod in &mut pods {
                let mut claim = self.new_claim(format!("claim-{}", pod.key.name).into(), count);
                claim.of_pod = Some(pod.uid.clone());
                let uses = ClaimUse { name: "dev".into(), claim: claim.key.clone() };
                Arc::make_mut(&mut pod.shape).claims.push(uses);
                self.cluster.claims.push(Arc::new(claim));
            }
        }
        pods
    }

    fn group_name(&self, gang: &Gang, group: usize) -> Option<Name> {
        (gang.groups.len() > 1).then(|| gang.groups[group].name.clone())
    }

    fn shape(&self, rng: &mut Rng, labels: &Labels) -> Shape {
        let odds = &self.sizes.odds;
        let cpu = *rng.pick(&[100, 500, 1000, 2000]);
        let memory = *rng.pick(&[1, 2, 4]) << 30;
        let requests =
            [(Resource::Cpu, cpu), (Resource::Memory, memory), (Resource::Pods, 1)].into_iter().collect();
        let mut shape = Shape { requests, ..Shape::default() };
        let draw = rng.below(100) as u32;
        let (no_gpu, share) = (odds.no_gpu, odds.no_gpu + odds.share);
        let memory_share = share + odds.memory_share;
        let mig = memory_share + odds.mig_profile;
        if draw < no_gpu {
            if rng.percent(odds.pinned) {
                shape.requests.set(Resource::Cpu, *rng.pick(&[1000, 2000]));
                shape.pinned = true;
            }
        } else if draw < share {
            let size = ShareSize::Portion(*rng.pick(&[100, 250, 300, 500, 700, 990]));
            shape.gpu_share = Some(GpuShare { size, devices: *rng.pick(&[1, 1, 1, 2]) });
        } else if draw < memory_share {
            let size = ShareSize::Memory(*rng.pick(&[1000, 5000, 10_000, 30_000]));
            shape.gpu_share = Some(GpuShare { size, devices: 1 });
        } else if draw < mig {
            let profile = rng.index(MIG_PROFILES.len());
            shape.requests.set(Resource::Other(MIG_PROFILES[profile].into()), 1);
            shape.extra_gpu_charge = [1, 3][profile] * GPU;
        } else {
            let most = self.sizes.gpus.last().copied().unwrap_or(1).max(1);
            shape.requests.set(Resource::Gpu, GPU * (*rng.pick(&[1, 1, 1, 2, 4, 8])).min(most));
        }
        if rng.percent(odds.selector) {
            shape.node = self.node_rule(rng);
        }
        if rng.percent(odds.toleration) {
            let effect = rng.percent(30).then_some(TaintEffect::NoSchedule);
            shape.tolerations.push(Toleration { key: Some(TAINT.into()), value: None, effect });
        }
        if rng.percent(odds.port) {
            let port = *rng.pick(&[8080, 9090]);
            shape.ports.push(HostPort { address: "0.0.0.0".into(), protocol: "TCP".into(), port });
        }
        shape.pods = self.pod_rules(rng, labels);
        if rng.percent(odds.volume) {
            shape.volumes.push(self.volume(rng));
        }
        if rng.percent(odds.broken) {
            match rng.below(4) {
                0 => shape.requests.set(Resource::Cpu, i64::MAX),
                1 => shape.requests.set(Resource::Gpu, 1_000_000 * GPU),
                2 => shape.missing.push("ConfigMap default/absent".into()),
                _ => shape.requests.set(Resource::Other("example.com/nothing".into()), 1),
            }
        }
        shape
    }

    fn node_rule(&self, rng: &mut Rng) -> NodeRule {
        let colour = Name::from(*rng.pick(&["red", "blue"]));
        let expr = match rng.below(4) {
            0 => Expr { key: "pool".into(), op: Op::NotIn(vec![colour]) },
            1 => Expr { key: "pool".into(), op: Op::Exists },
            _ => Expr { key: "pool".into(), op: Op::In(vec![colour]) },
        };
        if rng.percent(50) {
            return NodeRule { all: vec![expr], ..NodeRule::default() };
        }
        let terms = vec![NodeTerm { labels: vec![expr.clone()], names: Vec::new() }];
        let preferred = vec![(10, NodeTerm { labels: vec![expr], names: Vec::new() })];
        if rng.percent(70) {
            NodeRule { any: Some(terms), ..NodeRule::default() }
        } else {
            NodeRule { preferred, ..NodeRule::default() }
        }
    }

    fn place_key(&self, rng: &mut Rng) -> Name {
        let coarse = self.levels.first().cloned();
        coarse.filter(|_| rng.percent(50)).unwrap_or_else(|| HOST.into())
    }

    fn pod_rules(&self, rng: &mut Rng, labels: &Labels) -> PodRules {
        let odds = &self.sizes.odds;
        let mut rules = PodRules::default();
        let own = |key: &str| {
            let value = labels.get(key).cloned().unwrap_or_else(|| "a".into());
            LabelSelector { all: vec![Expr { key: key.into(), op: Op::In(vec![value]) }] }
        };
        let term = |rng: &mut Rng, key: &str| AffinityTerm {
            namespaces: rng.percent(80).then(|| vec![NAMESPACE.into()]),
            selector: own(key),
            topology_key: self.place_key(rng),
        };
        if rng.percent(odds.affinity) {
            let key = *rng.pick(&["app", "team"]);
            rules.affinity.push(term(rng, key));
        }
        if rng.percent(odds.anti_affinity) {
            let key = *rng.pick(&["app", "app", "team"]);
            rules.anti_affinity.push(term(rng, key));
        }
        if rng.percent(odds.affinity) {
            let weight = *rng.pick(&[50, -50]);
            rules.preferred.push((weight, term(rng, "team")));
        }
        if rng.percent(odds.spread) {
            rules.spread.push(SpreadRule {
                topology_key: self.place_key(rng),
                max_skew: *rng.pick(&[1, 2]),
                required: rng.percent(70),
                selector: own("app"),
                namespace: NAMESPACE.into(),
                min_domains: None,
                honour_node_rules: true,
                honour_taints: rng.percent(50),
            });
        }
        rules
    }

    fn volume(&self, rng: &mut Rng) -> VolumeUse {
        let labels = vec![Expr { key: "pool".into(), op: Op::In(vec!["red".into()]) }];
        let terms = vec![NodeTerm { labels, names: Vec::new() }];
        let need = match rng.below(5) {
            0 => VolumeNeed::Bound { reachable: Vec::new() },
            1 => VolumeNeed::Bound { reachable: terms },
            2 => VolumeNeed::WaitsForPod { provisioned: Some(terms), free: Vec::new() },
            3 => VolumeNeed::WaitsForPod { provisioned: None, free: vec![terms] },
            _ => VolumeNeed::Unbound,
        };
        let claim = Key::new(NAMESPACE, format!("volume-{}", rng.below(20)));
        VolumeUse { claim, need, driver: rng.percent(50).then(|| CSI.into()), one_pod: false }
    }

    /// Lets the gang run, leave, or wait.
    fn set_going(&self, rng: &mut Rng, gang: &mut Gang, pods: &mut [Pod], room: &mut Room) {
        let odds = &self.sizes.odds;
        let must_wait = pods.iter().any(|pod| {
            let shape = &pod.shape;
            !shape.pods.affinity.is_empty()
                || !shape.pods.spread.is_empty()
                || !shape.claims.is_empty()
                || !shape.volumes.is_empty()
        });
        if must_wait || !rng.percent(odds.running) {
            for pod in pods.iter_mut() {
                if rng.percent(odds.gated) {
                    pod.state = PodState::Gated;
                }
            }
            return;
        }
        let kept = room.clone();
        let n_wanted = if rng.percent(40) { minimum(gang) } else { pods.len() };
        let n_seated = self.seat(rng, gang, pods, n_wanted, room);
        let stale = rng.percent(odds.stale);
        if n_seated < n_wanted && !stale {
            *room = kept;
            for pod in pods.iter_mut() {
                pod.state = PodState::Pending;
                pod.node = None;
                pod.gpu_groups.clear();
                pod.gpus.clear();
                pod.zones.clear();
            }
            return;
        }
        let age = Span::seconds(rng.below(1000) as i64);
        gang.last_start = (n_seated > 0).then_some(Time(NOW - age.0));
        if rng.percent(odds.releasing) {
            let part = rng.percent(50);
            for pod in pods.iter_mut().filter(|pod| pod.state.stays()) {
                if !part || rng.percent(50) {
                    pod.state = if rng.percent(15) { PodState::Stuck } else { PodState::Releasing };
                }
            }
        } else if rng.percent(odds.succeeded) {
            // Whoever has finished has left its room; the ledger may think otherwise, which only leaves more of it.
            for pod in pods.iter_mut().filter(|pod| pod.state.stays()) {
                if rng.percent(40) {
                    pod.state = *rng.pick(&[PodState::Succeeded, PodState::Succeeded, PodState::Failed]);
                }
            }
        }
        if stale && rng.percent(70) {
            gang.stale_since = Some(Time(NOW - 1000 * rng.below(120) as i64));
        }
    }

    /// Seats up to so many pods where nodes, topology rules and company allow.
    fn seat(&self, rng: &mut Rng, gang: &Gang, pods: &mut [Pod], n_wanted: usize, room: &mut Room) -> usize {
        let mut domains: BTreeMap<usize, Vec<Name>> = BTreeMap::new();
        let mut order: Vec<usize> = (0..room.n_nodes()).collect();
        rng.shuffle(&mut order);
        let mut seated: Vec<Pod> = Vec::new();
        for pod in pods.iter_mut() {
            if seated.len() >= n_wanted {
                break;
            }
            let leaf = gang.groups.iter().position(|group| {
                matches!(group.min, Min::Pods(_)) && pod.group.as_ref().is_none_or(|name| *name == group.name)
            });
            let Some(leaf) = leaf else { continue };
            let above: Vec<usize> =
                std::iter::successors(Some(leaf), |group| gang.groups[*group].parent.map(|p| p as usize))
                    .collect();
            for node in &order {
                let mut here = Vec::new();
                let near = above.iter().all(|group| {
                    let Some(rule) = &gang.groups[*group].topology else { return true };
                    let Some(level) = &rule.required else { return true };
                    let domain = self.domain(room.node(*node), &rule.topology, level);
                    let same = domain.is_some()
                        && domains.get(group).is_none_or(|there| Some(there) == domain.as_ref());
                    here.extend(domain.map(|domain| (*group, domain)));
                    same
                });
                if near && room.fits(*node, pod) && self.bears(room.node(*node), pod, &seated) {
                    room.seat(*node, pod);
                    pod.state = *rng.pick(&[
                        PodState::Running,
                        PodState::Running,
                        PodState::Bound,
                        PodState::Binding,
                    ]);
                    domains.extend(here);
                    seated.push(pod.clone());
                    break;
                }
            }
        }
        seated.len()
    }

    fn domain(&self, node: &Node, topology: &str, level: &str) -> Option<Vec<Name>> {
        let topology = self.cluster.topologies.iter().find(|t| &*t.name == topology)?;
        let depth = topology.levels.iter().position(|l| &*l.label == level)?;
        let labels: Option<Vec<Name>> =
            topology.levels.iter().map(|l| node.labels.get(&l.label).cloned()).collect();
        labels.map(|labels| labels[..=depth].to_vec())
    }

    /// Whether nobody near the node objects to the pod, nor the pod to anybody.
    fn bears(&self, node: &Node, pod: &Pod, seated: &[Pod]) -> bool {
        let near = |other: &Pod, key: &Name| {
            let here = node.labels.get(key);
            let there = other.node.as_ref().and_then(|name| self.node_named(name));
            here.is_some() && here == there.and_then(|node| node.labels.get(key))
        };
        let mut others = self.cluster.pods.iter().map(|other| &**other).chain(seated);
        others.all(|other| {
            let (ours, theirs) = (&pod.shape.pods.anti_affinity, &other.shape.pods.anti_affinity);
            let we_object =
                ours.iter().any(|t| t.selector.matches(&other.labels) && near(other, &t.topology_key));
            let they_object =
                theirs.iter().any(|t| t.selector.matches(&pod.labels) && near(other, &t.topology_key));
            !other.state.holds_room() || !(we_object || they_object)
        })
    }

    fn node_named(&self, name: &Name) -> Option<&Node> {
        let at = self.cluster.nodes.binary_search_by(|node| node.name.cmp(name)).ok()?;
        Some(&self.cluster.nodes[at])
    }

    /// Pods of other schedulers, which only take room.
    fn other_pods(&mut self, rng: &mut Rng) {
        if !rng.percent(self.sizes.odds.other_pods) {
            return;
        }
        let mut room = Room::beside(&self.cluster);
        for node in 0..self.cluster.nodes.len() {
            let requests =
                [(Resource::Cpu, *rng.pick(&[100, 1000])), (Resource::Memory, 1 << 28), (Resource::Pods, 1)];
            let name = Name::from(format!("agent-{node:03}"));
            let mut pod = Pod {
                key: Key::new("kube-system", name.clone()),
                uid: format!("uid-{name}").into(),
                gang: None,
                group: None,
                created: Time(NOW - 10_000_000),
                state: PodState::Running,
                node: None,
                shape: Arc::new(Shape { requests: requests.into_iter().collect(), ..Shape::default() }),
                labels: Arc::new(Labels::new()),
                rank: 0,
                task_priority: None,
                gpu_groups: Vec::new(),
                gpus: Vec::new(),
                zones: Vec::new(),
                nominated: None,
                volcano: None,
            };
            if room.seat(node, &mut pod) {
                self.cluster.pods.push(Arc::new(pod));
            }
        }
    }

    /// What befalls nodes when pods are on them already, and what their zones report.
    fn troubles(&mut self, rng: &mut Rng) {
        let mut zones: BTreeMap<(Name, u32), Amounts> = BTreeMap::new();
        for pod in self.cluster.pods.iter().filter(|pod| pod.state.holds_room()) {
            for (node, zone) in
                pod.node.iter().flat_map(|node| pod.zones.iter().map(move |zone| (node, zone)))
            {
                zones.entry((node.clone(), zone.zone)).or_default().add_all(&zone.amounts);
            }
        }
        for node in &mut self.cluster.nodes {
            let trouble = rng.percent(self.sizes.odds.unusable);
            let which = rng.below(3);
            if !trouble && node.numa.is_none() {
                continue;
            }
            let node = Arc::make_mut(node);
            if trouble {
                match which {
                    0 => node.conditions.ready = false,
                    1 => node.conditions.pressure = true,
                    _ => node.conditions.unschedulable = true,
                }
            }
            for (i, zone) in node.numa.iter_mut().flat_map(|numa| &mut numa.zones).enumerate() {
                let held = zones.get(&(node.name.clone(), i as u32));
                for (resource, amount) in held.iter().flat_map(|held| held.iter()) {
                    zone.available.add(resource.clone(), -amount);
                }
            }
        }
    }
}

/// How many pods the leaves ask for in all.
fn minimum(gang: &Gang) -> usize {
    let of = |group: &Group| match group.min {
        Min::Pods(n) => n as usize,
        Min::Children(_) | Min::Whole { .. } => 0,
    };
    gang.groups.iter().map(of).sum()
}
