//! Makes sure that each claim of a pod has a volume that the node can reach.
//!
//! Only claims whose class waits for the first consumer are given anything here: a volume that someone made by hand and
//! that the node can reach; else the claim is told its node, and the provisioner makes a volume there. All claims are told
//! before any is waited for. Either way the step waits until they are bound, and looks whether the node can reach what they
//! got: several pods may share a claim, and one of them chose its node. Must stay true: a volume is never given to two
//! claims (it is taken in the version in which it was free); a claim that is bound is left alone.

use k8s_quantity::Quantity;
use muster_runtime::api::Patch;
use muster_runtime::common::Node;
use muster_runtime::object::{Meta, Requirement, Selector, Strings, quantities};
use muster_runtime::{Key, Object};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Pod, Work};
use crate::error::BindError;

const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const BOUND_BY: &str = "pv.kubernetes.io/bound-by-controller";
/// The provisioner of classes whose volumes are all made by hand.
const BY_HAND: &str = "kubernetes.io/no-provisioner";

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Claim {
    metadata: Meta,
    spec: ClaimSpec,
    status: Phase,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClaimSpec {
    volume_name: String,
    storage_class_name: Option<String>,
    access_modes: Vec<String>,
    volume_mode: Option<String>,
    resources: ClaimResources,
    selector: Option<Selector>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct ClaimResources {
    #[serde(deserialize_with = "quantities")]
    requests: Strings,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Phase {
    phase: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Volume {
    metadata: Meta,
    spec: VolumeSpec,
    status: Phase,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct VolumeSpec {
    claim_ref: Option<ClaimRef>,
    #[serde(deserialize_with = "quantities")]
    capacity: Strings,
    access_modes: Vec<String>,
    storage_class_name: String,
    volume_mode: Option<String>,
    node_affinity: Option<VolumeAffinity>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct ClaimRef {
    namespace: String,
    name: String,
    uid: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct VolumeAffinity {
    required: Option<Terms>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Terms {
    node_selector_terms: Vec<Term>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Term {
    match_expressions: Vec<Requirement>,
    match_fields: Vec<Requirement>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Class {
    metadata: Meta,
    provisioner: String,
    volume_binding_mode: String,
}

muster_runtime::kinds! {
    Claim = "" "v1" "PersistentVolumeClaim" "persistentvolumeclaims";
    Volume = "" "v1" "PersistentVolume" "persistentvolumes";
    Class = "storage.k8s.io" "v1" "StorageClass" "storageclasses";
}

/// The claims that a pod's volumes name, each once.
pub(crate) fn claims_of(pod: &Pod) -> impl Iterator<Item = String> + use<> {
    let mut names: Vec<String> = Vec::new();
    for volume in &pod.spec.volumes {
        let name = if let Some(name) = volume["persistentVolumeClaim"]["claimName"].as_str() {
            name.to_owned()
        } else if volume.get("ephemeral").is_some_and(Value::is_object) {
            format!("{}-{}", pod.metadata.name, volume["name"].as_str().unwrap_or_default())
        } else {
            continue;
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.into_iter()
}

impl Claim {
    fn is_bound(&self) -> bool {
        self.status.phase == "Bound" && !self.spec.volume_name.is_empty()
    }

    fn is_same(&self, reference: &ClaimRef) -> bool {
        reference.namespace == self.metadata.namespace
            && reference.name == self.metadata.name
            && (reference.uid.is_empty() || reference.uid == self.metadata.uid)
    }
}

/// The volume that says that it is the claim's.
fn meant_for<'a>(claim: &Claim, volumes: &'a [Volume]) -> Option<&'a Volume> {
    volumes.iter().find(|v| v.spec.claim_ref.as_ref().is_some_and(|r| claim.is_same(r)))
}

/// The volume for a claim on a node: one that is already meant for it, else the smallest that fits and is free.
fn choose<'a>(claim: &Claim, volumes: &'a [Volume], node: &str, labels: &Strings) -> Option<&'a Volume> {
    if let Some(meant) = meant_for(claim, volumes) {
        return reaches(meant, node, labels).then_some(meant);
    }
    let size = |amounts: &Strings| {
        amounts.get("storage").and_then(|t| t.parse::<Quantity>().ok()).map_or(0, Quantity::value)
    };
    let mode = |mode: &Option<String>| mode.clone().filter(|m| !m.is_empty()).unwrap_or("Filesystem".into());
    let asked = size(&claim.spec.resources.requests);
    let class = claim.spec.storage_class_name.as_deref().unwrap_or("");
    volumes
        .iter()
        .filter(|v| v.spec.claim_ref.is_none() && !v.metadata.deleting())
        .filter(|v| matches!(v.status.phase.as_str(), "" | "Pending" | "Available"))
        .filter(|v| v.spec.storage_class_name == class && size(&v.spec.capacity) >= asked)
        .filter(|v| mode(&v.spec.volume_mode) == mode(&claim.spec.volume_mode))
        .filter(|v| claim.spec.access_modes.iter().all(|m| v.spec.access_modes.contains(m)))
        .filter(|v| claim.spec.selector.as_ref().is_none_or(|s| s.matches(&v.metadata.labels)))
        .filter(|v| reaches(v, node, labels))
        .min_by_key(|v| (size(&v.spec.capacity), v.metadata.name.clone()))
}

/// Whether a node may use a volume: any of the terms, and in it every requirement. A term that says nothing matches
/// nothing.
fn reaches(volume: &Volume, node: &str, labels: &Strings) -> bool {
    let Some(required) = volume.spec.node_affinity.as_ref().and_then(|a| a.required.as_ref()) else {
        return true;
    };
    let fields: Strings = [("metadata.name".to_owned(), node.to_owned())].into();
    required.node_selector_terms.iter().any(|term| {
        let says_something = !term.match_expressions.is_empty() || !term.match_fields.is_empty();
        says_something
            && term.match_expressions.iter().all(|r| r.matches(labels))
            && term.match_fields.iter().all(|r| r.matches(&fields))
    })
}

/// How far a claim is that has no volume yet.
#[derive(Debug, PartialEq)]
enum Stage {
    /// It was not given anything yet.
    Open,
    /// It knows its node, and its provisioner makes a volume there.
    Told,
    /// This volume was given to it.
    Given(String),
    /// Others see to it.
    Others,
}

pub(crate) async fn perform(work: &Work<'_>, names: &[String]) -> Result<(), BindError> {
    let start = Instant::now();
    let mut waiting: Vec<(&str, Stage)> = names.iter().map(|name| (name.as_str(), Stage::Open)).collect();
    loop {
        let mut why: Option<String> = None;
        let mut still = Vec::new();
        for (name, mut stage) in waiting {
            if let Some(lack) = look(work, name, &mut stage).await? {
                why.get_or_insert(lack);
                still.push((name, stage));
            }
        }
        waiting = still;
        let Some(why) = why else { return Ok(()) };
        if !work.pause(start, work.options.volume_wait).await {
            return Err(BindError::retry(format!("{why} after {} s", start.elapsed().as_secs())));
        }
    }
}

/// Out: what is lacking; `None` when the claim has a volume that the node can reach.
async fn look(work: &Work<'_>, name: &str, stage: &mut Stage) -> Result<Option<String>, BindError> {
    let node = &work.assignment.node;
    let key = Key::new(work.assignment.pod.namespace.clone(), name);
    // One made for the pod may be a moment late.
    let Some(claim) = find(work, &key).await? else {
        return Ok(Some(format!("volume claim {name} does not exist")));
    };
    if claim.is_bound() {
        return check_reach(work, &claim).await;
    }
    let selected = claim.metadata.annotation(SELECTED_NODE);
    if *stage == Stage::Told && selected.is_none() {
        return Err(BindError::refused(format!(
            "the provisioner made no volume for claim {name} on node {node} and asks for another node"
        )));
    }
    if let Stage::Given(volume) = stage {
        // Who was to share it may have given up and taken it back.
        match work.api.get::<Volume>(&Key::new("", volume.as_str())).await {
            Ok(volume) if volume.spec.claim_ref.as_ref().is_some_and(|r| claim.is_same(r)) => {}
            Ok(_) => *stage = Stage::Open,
            Err(error) if error.not_found() => *stage = Stage::Open,
            Err(error) => return Err(error.into()),
        }
    }
    if *stage == Stage::Open {
        // Another pod's node: what is made there may do for this one too, which shows when it is there.
        if let Some(other) = selected.filter(|other| other != node) {
            return Ok(Some(format!("volume claim {name} still waits for a volume on node {other}")));
        }
        *stage = if selected.is_some() { Stage::Told } else { give(work, &claim).await? };
    }
    Ok(Some(format!("volume claim {name} is not bound")))
}

/// Whether the node can reach the volume that a claim is bound to. Out: what is lacking.
async fn check_reach(work: &Work<'_>, claim: &Claim) -> Result<Option<String>, BindError> {
    let (name, node) = (&claim.spec.volume_name, &work.assignment.node);
    let volume: Volume = match work.api.get(&Key::new("", name)).await {
        Ok(volume) => volume,
        Err(error) if error.not_found() => {
            return Ok(Some(format!("volume {name} of claim {} does not exist", claim.metadata.name)));
        }
        Err(error) => return Err(error.into()),
    };
    if volume.spec.node_affinity.is_some() && !reaches(&volume, node, &labels_of_node(work).await?) {
        return Err(out_of_reach(claim, &volume, node));
    }
    Ok(None)
}

fn out_of_reach(claim: &Claim, volume: &Volume, node: &str) -> BindError {
    BindError::refused(format!(
        "node {node} cannot reach volume {} of claim {}",
        volume.metadata.name, claim.metadata.name
    ))
}

async fn labels_of_node(work: &Work<'_>) -> Result<Strings, BindError> {
    let node = &work.assignment.node;
    match work.api.get::<Node>(&Key::new("", node)).await {
        Ok(found) => Ok(found.metadata.labels),
        Err(error) if error.not_found() => Err(BindError::refused(format!("node {node} is gone"))),
        Err(error) => Err(error.into()),
    }
}

/// Gives the claim a volume, or tells it its node. Out: how far that went.
async fn give(work: &Work<'_>, claim: &Claim) -> Result<Stage, BindError> {
    let node = &work.assignment.node;
    let class = claim.spec.storage_class_name.as_deref().unwrap_or("");
    // Bound, or about to be, by others.
    if class.is_empty() || !claim.spec.volume_name.is_empty() {
        return Ok(Stage::Others);
    }
    let class: Class = match work.api.get(&Key::new("", class)).await {
        Ok(class) => class,
        Err(error) if error.not_found() => {
            return Err(BindError::refused(format!("storage class {class} does not exist")));
        }
        Err(error) => return Err(error.into()),
    };
    if class.volume_binding_mode != "WaitForFirstConsumer" {
        return Ok(Stage::Others);
    }
    let labels = labels_of_node(work).await?;
    let volumes = all_volumes(work).await?;
    if let Some(meant) = meant_for(claim, &volumes).filter(|meant| !reaches(meant, node, &labels)) {
        return Err(out_of_reach(claim, meant, node));
    }
    if let Some(volume) = choose(claim, &volumes, node, &labels) {
        let is_given = volume.spec.claim_ref.is_some() || take(work, claim, volume).await?;
        return Ok(if is_given { Stage::Given(volume.metadata.name.clone()) } else { Stage::Open });
    }
    if class.provisioner == BY_HAND {
        return Err(BindError::refused(format!(
            "no volume of class {} that node {node} can reach fits claim {}",
            class.metadata.name, claim.metadata.name
        )));
    }
    let patch = json!({"metadata": {
        "resourceVersion": claim.metadata.resource_version,
        "annotations": {SELECTED_NODE: node},
    }});
    match work.api.patch::<Claim>(&claim.key(), "", Patch::Merge, &patch).await {
        Ok(_) => Ok(Stage::Told),
        Err(error) if error.conflict() => Ok(Stage::Open),
        Err(error) => Err(error.into()),
    }
}

/// Out: whether it was there to be taken. If not, somebody else took it, and the next look chooses another.
async fn take(work: &Work<'_>, claim: &Claim, volume: &Volume) -> Result<bool, BindError> {
    let patch = json!({
        "metadata": {"resourceVersion": volume.metadata.resource_version, "annotations": {BOUND_BY: "yes"}},
        "spec": {"claimRef": {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": claim.metadata.namespace,
            "name": claim.metadata.name,
            "uid": claim.metadata.uid,
            "resourceVersion": claim.metadata.resource_version,
        }},
    });
    match work.api.patch::<Volume>(&volume.key(), "", Patch::Merge, &patch).await {
        Ok(_) => Ok(true),
        Err(error) if error.conflict() || error.not_found() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Takes back what the claims were told or given, unless they are bound by now.
pub(crate) async fn undo(work: &Work<'_>, names: &[String]) -> Result<(), BindError> {
    let mut end = Ok(());
    for name in names {
        end = undo_one(work, name).await.and(end);
    }
    end
}

async fn undo_one(work: &Work<'_>, name: &str) -> Result<(), BindError> {
    let key = Key::new(work.assignment.pod.namespace.clone(), name);
    let Some(claim) = find(work, &key).await? else { return Ok(()) };
    if claim.is_bound() || !claim.spec.volume_name.is_empty() {
        return Ok(());
    }
    if claim.metadata.annotation(SELECTED_NODE) == Some(&work.assignment.node) {
        let patch = json!({"metadata": {
            "resourceVersion": claim.metadata.resource_version,
            "annotations": {SELECTED_NODE: null},
        }});
        return ignore_clash(work.api.patch::<Claim>(&key, "", Patch::Merge, &patch).await);
    }
    for volume in all_volumes(work).await? {
        let ours = volume.spec.claim_ref.as_ref().is_some_and(|r| r.uid == claim.metadata.uid);
        if ours && volume.status.phase != "Bound" && volume.metadata.annotation(BOUND_BY).is_some() {
            let patch = json!({
                "metadata": {"resourceVersion": volume.metadata.resource_version, "annotations": {BOUND_BY: null}},
                "spec": {"claimRef": null},
            });
            ignore_clash(work.api.patch::<Volume>(&volume.key(), "", Patch::Merge, &patch).await)?;
        }
    }
    Ok(())
}

/// Whoever wrote since has gone further; what was to be taken back is theirs.
fn ignore_clash<T>(answer: Result<T, muster_runtime::ApiError>) -> Result<(), BindError> {
    match answer {
        Ok(_) => Ok(()),
        Err(error) if error.conflict() || error.not_found() => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn find(work: &Work<'_>, key: &Key) -> Result<Option<Claim>, BindError> {
    match work.api.get(key).await {
        Ok(claim) => Ok(Some(claim)),
        Err(error) if error.not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn all_volumes(work: &Work<'_>) -> Result<Vec<Volume>, BindError> {
    let mut all = Vec::new();
    let mut next: Option<String> = None;
    loop {
        let page = work.api.list::<Volume>(&Default::default(), next.as_deref()).await?;
        all.extend(page.items);
        next = page.next;
        if next.is_none() {
            return Ok(all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(name: &str, spec: Value) -> Volume {
        serde_json::from_value(json!({"metadata": {"name": name, "labels": {"disk": name}}, "spec": spec}))
            .unwrap()
    }

    #[track_caller]
    fn check(claim: Value, volumes: &[Volume], expected: &str) {
        let claim: Claim = serde_json::from_value(
            json!({"metadata": {"name": "c", "namespace": "ns", "uid": "u"}, "spec": claim}),
        )
        .unwrap();
        let labels: Strings = [("zone".to_owned(), "a".to_owned())].into();
        let found = choose(&claim, volumes, "n", &labels);
        assert_eq!(found.map_or("none", |v| &v.metadata.name), expected);
    }

    #[test]
    fn the_smallest_that_fits() {
        let of = |size: &str| json!({"capacity": {"storage": size}, "storageClassName": "local", "accessModes": ["ReadWriteOnce"]});
        let with = |mut spec: Value, field: &str, value: Value| {
            spec[field] = value;
            spec
        };
        let zone = |zone: &str| json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}]}});
        let ask = json!({"storageClassName": "local", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}});
        check(ask.clone(), &[], "none");
        check(
            ask.clone(),
            &[volume("big", of("9Gi")), volume("fit", of("5Gi")), volume("small", of("1Gi"))],
            "fit",
        );
        check(ask.clone(), &[volume("other", with(of("5Gi"), "storageClassName", json!("x")))], "none");
        check(ask.clone(), &[volume("block", with(of("5Gi"), "volumeMode", json!("Block")))], "none");
        check(
            ask.clone(),
            &[volume("taken", with(of("5Gi"), "claimRef", json!({"namespace": "ns", "name": "d"})))],
            "none",
        );
        check(
            ask.clone(),
            &[
                volume("fit", of("5Gi")),
                volume(
                    "mine",
                    with(of("50Gi"), "claimRef", json!({"namespace": "ns", "name": "c", "uid": "u"})),
                ),
            ],
            "mine",
        );
        check(
            ask.clone(),
            &[volume(
                "earlier",
                with(of("5Gi"), "claimRef", json!({"namespace": "ns", "name": "c", "uid": "old"})),
            )],
            "none",
        );
        check(ask.clone(), &[volume("b", with(of("5Gi"), "nodeAffinity", zone("b")))], "none");
        check(ask.clone(), &[volume("a", with(of("5Gi"), "nodeAffinity", zone("a")))], "a");
        let here = json!({"required": {"nodeSelectorTerms": [{}, {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}});
        check(ask.clone(), &[volume("here", with(of("5Gi"), "nodeAffinity", here))], "here");
        let empty = json!({"required": {"nodeSelectorTerms": [{}]}});
        check(ask.clone(), &[volume("nowhere", with(of("5Gi"), "nodeAffinity", empty))], "none");
        check(
            with(ask.clone(), "accessModes", json!(["ReadWriteMany"])),
            &[volume("fit", of("5Gi"))],
            "none",
        );
        check(
            with(ask, "selector", json!({"matchLabels": {"disk": "y"}})),
            &[volume("x", of("5Gi")), volume("y", of("7Gi"))],
            "y",
        );
    }
}
