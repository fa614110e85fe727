//! `v1` Pod: what it says itself, and what else has to be known before it is a pod of the model.

use crate::dialects::Member;
use crate::gang::{GangFacts, gang_of_one};
use crate::intern::Interner;
use crate::numa::{self, ZoneRecord};
use crate::read::{At, Object};
use crate::request::{is_sidecar, request};
use crate::{Settings, podgang, select, volcano};
use muster_model::{
    AffinityTerm, Dialect, Expr, HostPort, Key, LabelSelector, Labels, Name, NodeRule, Op, PodRules,
    PodState, Reach, Shape, SpreadRule, TaintEffect, Time, Toleration,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::ops::Bound;
use std::sync::Arc;

const GROUP: &str = "pod-group-name";
const SKIP_GROUPER: &str = "kai.scheduler/skip-podgrouper";
const SUBGROUP: &str = "kai.scheduler/subgroup-name";
const TASK_PRIORITY: &str = "kai.scheduler/task-priority";
const GPU_GROUP: &str = "runai-gpu-group";
const GPU_GROUP_OF: &str = "runai-gpu-group/";
const NUMA_OBSERVED: &str = "kai.scheduler/numa-placement-observed";
const NUMA_PREDICTED: &str = "kai.scheduler/numa-placement-predicted";
const SHARED_GPU_CONFIG: &str = "runai/shared-gpu-configmap";

/// What the Pod object itself says.
#[derive(Clone, Debug)]
pub(crate) struct PodFacts {
    pub(crate) key: Key,
    pub(crate) uid: Name,
    pub(crate) created: Time,
    /// Of a scheduler that this is for.
    pub(crate) ours: bool,
    /// By its own label it is of this shard. Where it names a group that is there, it goes by the group's.
    pub(crate) in_pool: bool,
    /// It names no group, and its scheduler's pods are given one before they are looked at.
    pub(crate) awaits_group: bool,
    /// The PodGroup that it names.
    pub(crate) group: Option<Key>,
    pub(crate) subgroup: Option<Name>,
    /// What it is by itself, for one of this shard that names no group.
    pub(crate) alone: Option<Box<GangFacts>>,
    pub(crate) phase: Phase,
    pub(crate) deleted: Option<Time>,
    /// Of one of ours that runs and is to stay: when it was given its node, in seconds since 1970. Small, as there are many pods.
    pub(crate) started: Option<NonZeroU32>,
    pub(crate) gated: bool,
    pub(crate) node: Option<Name>,
    pub(crate) nominated: Option<Name>,
    /// Without what depends on other objects.
    pub(crate) shape: Arc<Shape>,
    pub(crate) labels: Arc<Labels>,
    pub(crate) rank: u8,
    pub(crate) task_priority: Option<i64>,
    pub(crate) gpu_groups: Vec<Name>,
    /// The GPUs that it holds for those who share them, in thousandths.
    pub(crate) reserved: i64,
    pub(crate) zones_observed: Option<ZoneRecord>,
    pub(crate) zones_predicted: Option<ZoneRecord>,
    pub(crate) refs: Option<Box<Refs>>,
    /// What it says to Volcano, if it is Volcano's.
    pub(crate) volcano: Option<Arc<muster_model::volcano::Task>>,
    /// The pod group that it is in though it names none, while nobody has made it.
    pub(crate) made_group: Option<Box<volcano::GroupFacts>>,
    /// What it says to T9k, Koordinator or Kubernetes' own gangs, if it is theirs.
    pub(crate) member: Option<Arc<Member>>,
}

/// What a pod refers to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Refs {
    pub(crate) volumes: Vec<VolumeRef>,
    pub(crate) claims: Vec<(Name, ClaimRef)>,
    /// ConfigMaps of its namespace that must exist.
    pub(crate) config_maps: Vec<Name>,
    /// Terms over the namespaces with certain labels, by their place in the shape.
    pub(crate) namespaces: Vec<(TermPlace, LabelSelector)>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct VolumeRef {
    /// A PersistentVolumeClaim of its namespace.
    pub(crate) claim: Name,
    /// Made for this pod, and no use if another's.
    pub(crate) ephemeral: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ClaimRef {
    /// A ResourceClaim of its namespace; `of_template`: it must be this pod's own.
    Named { claim: Name, of_template: bool },
    /// To be made from a template, and not made yet.
    NotMade,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TermPlace {
    Affinity(usize),
    AntiAffinity(usize),
    Preferred(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
}

impl PodFacts {
    /// It has run, and will not run again.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }

    /// When it was given its node, if it is one of ours that runs and is to stay.
    pub(crate) fn start(&self) -> Option<Time> {
        self.started.map(|seconds| Time(i64::from(seconds.get()) * 1000))
    }

    /// It has no node, and may get one.
    pub(crate) fn waits(&self) -> bool {
        self.node.is_none() && !self.is_over()
    }

    /// What the pod calls a claim of its namespace.
    pub(crate) fn name_of_claim(&self, claim: &Key) -> Option<&Name> {
        self.refs.iter().flat_map(|refs| &refs.claims).find_map(|(name, wanted)| match wanted {
            ClaimRef::Named { claim: wanted, .. } if *wanted == claim.name => Some(name),
            _ => None,
        })
    }

    /// Where it is in its life, given whether a bind request speaks for it.
    pub(crate) fn state(&self, requested: bool, settings: &Settings) -> PodState {
        match (self.phase, self.deleted) {
            (Phase::Succeeded, _) => PodState::Succeeded,
            (Phase::Failed, _) => PodState::Failed,
            (Phase::Running, Some(since)) if settings.now - since > settings.stuck_after => PodState::Stuck,
            (_, Some(_)) => PodState::Releasing,
            (Phase::Running, None) => PodState::Running,
            (Phase::Pending, None) if self.node.is_some() => PodState::Bound,
            (Phase::Pending, None) if requested => PodState::Binding,
            (Phase::Pending, None) if self.gated => PodState::Gated,
            (Phase::Pending, None) => PodState::Pending,
        }
    }
}

/// Shapes and label sets that are the same are shared.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) shapes: Interner<Shape>,
    pub(crate) labels: Interner<Labels>,
}

pub(crate) fn pod(object: &Object<'_>, settings: &Settings, shared: &mut Shared) -> PodFacts {
    let metadata = object.get("metadata");
    let spec = object.get("spec");
    let status = object.get("status");
    let key = object.key();
    let uid = object.uid(|| key.to_string());
    let created = object.created();
    let labels = metadata.get("labels").labels();
    let mut refs = Refs::default();

    let request = request(object, spec);
    let affinity = spec.get("affinity");
    let mut shape = Shape {
        requests: request.amounts,
        gpu_share: request.share,
        extra_gpu_charge: request.mig_charge,
        containers: request.containers,
        pinned: request.pinned,
        legacy_mig: metadata
            .get("annotations")
            .entries()
            .any(|(key, _)| key.starts_with(muster_model::Resource::MIG_PREFIX)),
        node: node_rule(spec, affinity.get("nodeAffinity")),
        tolerations: tolerations(spec.get("tolerations")),
        ports: host_ports(spec),
        pods: PodRules::default(),
        volumes: Vec::new(),
        claims: Vec::new(),
        missing: request.defects,
        only_node: None,
    };
    pod_affinity(affinity, &key, &labels, &mut shape.pods, &mut refs);
    shape.pods.spread =
        spec.get("topologySpreadConstraints").list().map(|at| spread_rule(at, &key, &labels)).collect();
    volumes(spec.get("volumes"), object.name(), &mut refs);
    resource_claims(spec.get("resourceClaims"), status.get("resourceClaimStatuses"), &mut refs);
    config_maps(spec, object.annotation(SHARED_GPU_CONFIG), &mut refs);

    let scheduler = spec.get("schedulerName").str().unwrap_or("default-scheduler");
    let ours = settings.scheduler_names.iter().any(|name| &**name == scheduler);
    let group = object.annotation(GROUP).map(|name| Key::new(key.namespace.clone(), name));
    let of_grove = if group.is_none() { podgang::of_pod(object) } else { None };
    let (group, leaf) = of_grove.map_or((group, None), |(gang, leaf)| (Some(gang), Some(leaf)));
    let dialect = settings.dialect(scheduler);
    let is_volcano = dialect == Dialect::Volcano;
    let (group, leaf) = if is_volcano { (volcano::group_of(object), None) } else { (group, leaf) };
    let member = if ours { Member::of_pod(object, dialect, &settings.queue_label) } else { None };
    let (group, leaf, member) = match member {
        Some((group, member)) => (group, None, Some(Arc::new(member))),
        None => (group, leaf, None),
    };
    let awaits_group = ours
        && member.is_none()
        && group.is_none()
        && settings.grouped.iter().any(|name| &**name == scheduler)
        && object.annotation(SKIP_GROUPER) != Some("true");
    let made_group = (is_volcano && ours && group.is_none() && !awaits_group)
        .then(|| volcano::made_group(object, &shape.requests));
    let (group, made_group) = match made_group {
        Some((key, facts)) => (Some(key), Some(Box::new(facts))),
        None => (group, None),
    };
    let in_pool = settings.in_pool(object);
    let alone = (ours && in_pool && group.is_none() && !awaits_group)
        .then(|| Box::new(gang_of_one(object, key.clone(), uid.clone(), created, settings)));
    if ours {
        let tree = member.as_ref().map_or(dialect, |member| member.dialect());
        shape.node.all.extend(nodes_of_tree(settings, tree));
    }
    let task_priority = metadata.get("labels").get(TASK_PRIORITY);
    let said = status.get("phase");
    let phase = match said.str().unwrap_or("") {
        "" | "Pending" => Phase::Pending,
        "Succeeded" => Phase::Succeeded,
        "Failed" => Phase::Failed,
        "Running" => Phase::Running,
        // The node has gone silent; the pod may well be running there.
        "Unknown" => Phase::Running,
        _ => {
            said.report("must be Pending, Running, Succeeded or Failed; Pending is assumed");
            Phase::Pending
        }
    };
    let deleted = metadata.get("deletionTimestamp").time();
    let node = spec.get("nodeName").name();
    let stays = node.is_some() && deleted.is_none() && matches!(phase, Phase::Pending | Phase::Running);
    PodFacts {
        ours,
        in_pool,
        awaits_group,
        group,
        subgroup: leaf.or_else(|| object.label(SUBGROUP).filter(|name| !name.is_empty()).map(Name::from)),
        alone,
        phase,
        deleted,
        started: if ours && stays { started(status) } else { None },
        gated: spec.get("schedulingGates").list().next().is_some(),
        node,
        nominated: status.get("nominatedNodeName").name(),
        rank: rank(object),
        task_priority: task_priority.word().and_then(|text| {
            let number = text.parse().ok();
            if number.is_none() {
                task_priority.report("must be a whole number; it is ignored");
            }
            number
        }),
        gpu_groups: gpu_groups(&labels),
        reserved: request.reserved,
        zones_observed: zone_record(object, NUMA_OBSERVED),
        zones_predicted: zone_record(object, NUMA_PREDICTED),
        shape: shared.shapes.intern(shape),
        labels: shared.labels.intern(labels),
        refs: (refs != Refs::default()).then(|| Box::new(refs)),
        volcano: (is_volcano && ours).then(|| Arc::new(volcano::task(object))),
        made_group,
        member,
        key,
        uid,
        created,
    }
}

/// What a tree's pods ask of nodes: to be of the tree's own pool, or of nobody's.
fn nodes_of_tree(settings: &Settings, tree: Dialect) -> Vec<Expr> {
    let pool = |reach: &Reach| match reach {
        Reach::Nodes { label, values } => Some((label.clone(), values.clone())),
        Reach::Under(_) => None,
    };
    match settings.trees.get(&tree).and_then(pool) {
        Some((key, values)) => vec![Expr { key, op: Op::In(values) }],
        None => {
            let pools = settings.trees.values().filter_map(pool);
            pools.map(|(key, values)| Expr { key, op: Op::NotIn(values) }).collect()
        }
    }
}

/// When a pod was given its node, or else when the kubelet first saw it.
fn started(status: At<'_>) -> Option<NonZeroU32> {
    let mut conditions = status.get("conditions").list();
    let bound = conditions
        .find(|at| at.get("type").str() == Some("PodScheduled") && at.get("status").str() == Some("True"));
    let bound = bound.and_then(|at| at.get("lastTransitionTime").time());
    let at = bound.or_else(|| status.get("startTime").time())?;
    u32::try_from(at.0 / 1000).ok().and_then(NonZeroU32::new)
}

/// Leaders first: masters and launchers of Kubeflow jobs, then heads of Ray clusters.
fn rank(object: &Object<'_>) -> u8 {
    let is = |label: &str, words: &[&str]| {
        object.label(label).is_some_and(|value| words.iter().any(|word| value.eq_ignore_ascii_case(word)))
    };
    if is("training.kubeflow.org/job-role", &["master", "launcher"])
        || is("training.kubeflow.org/replica-type", &["master", "launcher"])
    {
        0
    } else if is("ray.io/node-type", &["head"]) {
        1
    } else {
        2
    }
}

/// Pods with one device have the plain label, those with several have one label each.
fn gpu_groups(labels: &Labels) -> Vec<Name> {
    let several: Vec<Name> = labels
        .range::<str, _>((Bound::Included(GPU_GROUP_OF), Bound::Unbounded))
        .take_while(|(key, _)| key.starts_with(GPU_GROUP_OF))
        .map(|(_, value)| value.clone())
        .filter(|value| !value.is_empty())
        .collect();
    if several.is_empty() {
        labels.get(GPU_GROUP).filter(|g| !g.is_empty()).cloned().into_iter().collect()
    } else {
        several
    }
}

fn zone_record(object: &Object<'_>, annotation: &str) -> Option<ZoneRecord> {
    let text = object.annotation(annotation)?;
    let field = format!("metadata.annotations[{annotation}]");
    let value: Value = match serde_json::from_str(text) {
        Ok(value) => value,
        Err(_) => {
            object.report(&field, "is no JSON list of {\"zone\", \"amount\"}; it is ignored");
            return None;
        }
    };
    let inner = Object::new("", &value);
    let record = numa::record(inner.root());
    for problem in inner.into_diagnostics() {
        object.report(&format!("{field}{}", problem.field), problem.message);
    }
    Some(record)
}

pub(crate) fn node_rule(spec: At<'_>, affinity: At<'_>) -> NodeRule {
    let all = spec
        .get("nodeSelector")
        .entries()
        .filter_map(|(key, value)| Some(Expr { key: key.into(), op: Op::In(vec![value.str()?.into()]) }))
        .collect();
    let required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution");
    let any = required.exists().then(|| select::node_terms(required));
    let preferred = affinity
        .get("preferredDuringSchedulingIgnoredDuringExecution")
        .list()
        .map(|at| (weight(at), select::node_term(at.get("preference"))))
        .filter(|(weight, term)| *weight != 0 && !(term.labels.is_empty() && term.names.is_empty()))
        .collect();
    NodeRule { all, any, preferred }
}

fn weight(at: At<'_>) -> i32 {
    let weight = at.get("weight");
    match weight.int() {
        Some(number @ 1..=100) => i32::try_from(number).unwrap_or(0),
        Some(0) | None => 0,
        Some(_) => {
            weight.report("must be from 1 to 100; the preference is ignored");
            0
        }
    }
}

pub(crate) fn tolerations(list: At<'_>) -> Vec<Toleration> {
    let mut tolerations: Vec<Toleration> = list.list().filter_map(toleration).collect();
    tolerations.sort();
    tolerations.dedup();
    tolerations
}

fn toleration(at: At<'_>) -> Option<Toleration> {
    let value = match at.get("operator").str().unwrap_or("") {
        "" | "Equal" => Some(at.get("value").str().unwrap_or("").into()),
        "Exists" => None,
        _ => {
            at.report("the operator must be Equal or Exists; the toleration is ignored");
            return None;
        }
    };
    let effect = match at.get("effect").str().unwrap_or("") {
        "" => None,
        "NoSchedule" => Some(TaintEffect::NoSchedule),
        "PreferNoSchedule" => Some(TaintEffect::PreferNoSchedule),
        "NoExecute" => Some(TaintEffect::NoExecute),
        _ => {
            at.report(
                "the effect must be NoSchedule, PreferNoSchedule or NoExecute; the toleration is ignored",
            );
            return None;
        }
    };
    Some(Toleration { key: at.get("key").name(), value, effect })
}

fn host_ports(spec: At<'_>) -> Vec<HostPort> {
    let host_network = spec.get("hostNetwork").bool().unwrap_or(false);
    let sidecars = spec.get("initContainers").list().filter(|at| is_sidecar(*at));
    let mut ports: Vec<HostPort> = spec
        .get("containers")
        .list()
        .chain(sidecars)
        .flat_map(|container| container.get("ports").list().collect::<Vec<_>>())
        .filter_map(|at| {
            let of_host = at.get("hostPort").int().filter(|port| *port != 0);
            let port = of_host.or_else(|| if host_network { at.get("containerPort").int() } else { None })?;
            let Some(port) = u16::try_from(port).ok().filter(|port| *port != 0) else {
                at.report("the port must be from 1 to 65535; it is ignored");
                return None;
            };
            Some(HostPort {
                address: at.get("hostIP").word().unwrap_or("0.0.0.0").into(),
                protocol: at.get("protocol").word().unwrap_or("TCP").into(),
                port,
            })
        })
        .collect();
    ports.sort();
    ports.dedup();
    ports
}

fn pod_affinity(affinity: At<'_>, pod: &Key, labels: &Labels, rules: &mut PodRules, refs: &mut Refs) {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    let (near, far) = (affinity.get("podAffinity"), affinity.get("podAntiAffinity"));
    let mut note = |place: TermPlace, among: Option<LabelSelector>| {
        if let Some(selector) = among {
            refs.namespaces.push((place, selector));
        }
    };
    for at in near.get(required).list() {
        let (term, among) = affinity_term(at, pod, labels);
        note(TermPlace::Affinity(rules.affinity.len()), among);
        rules.affinity.push(term);
    }
    for at in far.get(required).list() {
        let (term, among) = affinity_term(at, pod, labels);
        note(TermPlace::AntiAffinity(rules.anti_affinity.len()), among);
        rules.anti_affinity.push(term);
    }
    for (side, sign) in [(near, 1), (far, -1)] {
        for at in side.get(preferred).list() {
            let weight = weight(at) * sign;
            if weight != 0 {
                let (term, among) = affinity_term(at.get("podAffinityTerm"), pod, labels);
                note(TermPlace::Preferred(rules.preferred.len()), among);
                rules.preferred.push((weight, term));
            }
        }
    }
}

/// The term among the namespaces that it names, and the selector of those that it names by labels.
fn affinity_term(at: At<'_>, pod: &Key, labels: &Labels) -> (AffinityTerm, Option<LabelSelector>) {
    let mut selector = select::labels(at.get("labelSelector"));
    select::with_own_labels(&mut selector, at.get("matchLabelKeys"), false, labels);
    select::with_own_labels(&mut selector, at.get("mismatchLabelKeys"), true, labels);
    let topology_key = at.get("topologyKey").str().unwrap_or("");
    if topology_key.is_empty() {
        at.report("names no topologyKey; no two nodes are near each other then");
    }
    let mut namespaces = at.get("namespaces").names();
    let by_labels = at.get("namespaceSelector").exists().then(|| select::labels(at.get("namespaceSelector")));
    if namespaces.is_empty() && by_labels.is_none() {
        namespaces.push(pod.namespace.clone());
    }
    namespaces.sort();
    namespaces.dedup();
    // An empty selector is every namespace; nothing has to be looked up.
    let everywhere = by_labels.as_ref().is_some_and(|selector| selector.all.is_empty());
    let term = AffinityTerm {
        namespaces: (!everywhere).then_some(namespaces),
        selector,
        topology_key: topology_key.into(),
    };
    (term, by_labels.filter(|selector| !selector.all.is_empty()))
}

fn spread_rule(at: At<'_>, pod: &Key, labels: &Labels) -> SpreadRule {
    let mut selector = select::labels(at.get("labelSelector"));
    select::with_own_labels(&mut selector, at.get("matchLabelKeys"), false, labels);
    let positive = |field: &str| {
        let at = at.get(field);
        match at.int() {
            Some(number) if number >= 1 => Some(i32::try_from(number).unwrap_or(i32::MAX)),
            Some(_) => {
                at.report("must be 1 or more; 1 is used");
                Some(1)
            }
            None => None,
        }
    };
    let policy = |field: &str, default: bool| match at.get(field).str() {
        Some("Honor") => true,
        Some("Ignore") => false,
        Some(_) => {
            at.get(field).report("must be Honor or Ignore; the default is used");
            default
        }
        None => default,
    };
    let when = at.get("whenUnsatisfiable");
    let required = match when.str() {
        Some("ScheduleAnyway") => false,
        Some("DoNotSchedule") | None => true,
        Some(_) => {
            when.report("must be DoNotSchedule or ScheduleAnyway; DoNotSchedule is used");
            true
        }
    };
    SpreadRule {
        topology_key: at.get("topologyKey").str().unwrap_or("").into(),
        max_skew: positive("maxSkew").unwrap_or(1),
        required,
        selector,
        namespace: pod.namespace.clone(),
        min_domains: positive("minDomains"),
        honour_node_rules: policy("nodeAffinityPolicy", true),
        honour_taints: policy("nodeTaintsPolicy", false),
    }
}

fn volumes(list: At<'_>, pod: &str, refs: &mut Refs) {
    for at in list.list() {
        let claim = at.get("persistentVolumeClaim");
        if claim.exists() {
            let name = claim.get("claimName").str().unwrap_or("").into();
            refs.volumes.push(VolumeRef { claim: name, ephemeral: false });
        } else if at.get("ephemeral").exists() {
            let name = at.get("name").str().unwrap_or("");
            refs.volumes.push(VolumeRef { claim: format!("{pod}-{name}").into(), ephemeral: true });
        }
    }
    refs.volumes.sort_by(|a, b| a.claim.cmp(&b.claim));
    refs.volumes.dedup();
}

fn resource_claims(claims: At<'_>, made: At<'_>, refs: &mut Refs) {
    let made: BTreeMap<&str, At<'_>> = made
        .list()
        .filter_map(|status| Some((status.get("name").str()?, status.get("resourceClaimName"))))
        .collect();
    for at in claims.list() {
        let name: Name = at.get("name").str().unwrap_or("").into();
        // Before 1.31 the two names were below `source`.
        let at = if at.get("source").exists() { at.get("source") } else { at };
        let claim = match at.get("resourceClaimName").name() {
            Some(claim) => ClaimRef::Named { claim, of_template: false },
            None => match made.get(&*name) {
                // Made without a claim: nothing to wait for.
                Some(claim) if !claim.exists() => continue,
                claim => claim
                    .and_then(|claim| claim.name())
                    .map_or(ClaimRef::NotMade, |claim| ClaimRef::Named { claim, of_template: true }),
            },
        };
        refs.claims.push((name, claim));
    }
}

/// ConfigMaps without which a container cannot start. Those for sharing GPUs are made when the pod is bound.
fn config_maps(spec: At<'_>, shared_gpu: Option<&str>, refs: &mut Refs) {
    let mut need = |source: At<'_>| {
        let optional = source.get("optional").bool().unwrap_or(false);
        if let Some(name) = source.get("name").word()
            && !optional
            && !shared_gpu.is_some_and(|prefix| name.starts_with(prefix))
        {
            refs.config_maps.push(name.into());
        }
    };
    for volume in spec.get("volumes").list() {
        need(volume.get("configMap"));
        for source in volume.get("projected").get("sources").list() {
            need(source.get("configMap"));
        }
    }
    for container in spec.get("containers").list().chain(spec.get("initContainers").list()) {
        for variable in container.get("env").list() {
            need(variable.get("valueFrom").get("configMapKeyRef"));
        }
        for source in container.get("envFrom").list() {
            need(source.get("configMapRef"));
        }
    }
    refs.config_maps.sort();
    refs.config_maps.dedup();
}
