//! Starts the controllers: who wakes whom, and a queue for each kind.
//!
//! Must stay true: a change of a status wakes only those who read it; many pods of one clique are looked at together.

use std::sync::Arc;

use muster_runtime::common::Pod;
use muster_runtime::object::{Meta, Object};
use muster_runtime::queue::work;
use muster_runtime::store::Change;
use muster_runtime::{Context, Key};
use serde_json::Value;

use crate::backend::backend_of;
use crate::desk::Desk;
use crate::keys::{self, condition};
use crate::object::{
    PodClique, PodCliqueScalingGroup, PodCliqueSet, PodGang, condition_status, holds, index, text,
};
use crate::settings::Options;

/// Starts Grove's controllers and backends.
pub fn start(cx: &Context, options: Options) -> impl Future<Output = ()> + Send + 'static + use<> {
    for backend in &options.backends {
        cx.metrics.grove.gangs.of([backend.as_str()]).set(0.0);
    }
    let desk = Desk::new(cx.named("grove-operator"), options);
    observe(&desk);
    async move { serve(desk).await }
}

async fn serve(desk: Arc<Desk>) {
    let cx = desk.cx.clone();
    // A cluster may not have the kinds yet; they are waited for.
    let synced = cx.synced([desk.sets.synced()]).await.is_some()
        && cx.synced([desk.gangs.synced()]).await.is_some()
        && cx.synced([desk.bindings.synced()]).await.is_some();
    let synced = synced
        && (!desk.options.front
            || (cx.synced([desk.groups.synced()]).await.is_some()
                && cx.synced([desk.cliques.synced()]).await.is_some()
                && cx.synced([desk.pods.synced()]).await.is_some()
                && cx.synced([desk.nodes.synced()]).await.is_some()));
    if !synced {
        return;
    }
    let n = desk.options.workers.max(1);
    let queues = desk.queues.clone();
    let cancel = || cx.cancel.clone();
    let gangs = work("grove-gangs", queues.gangs, n, cancel(), |key| desk.look_gang(key));
    if !desk.options.front {
        gangs.await;
        return;
    }
    let sets = work("grove-sets", queues.sets, n, cancel(), |key| desk.look_set(key));
    let groups = work("grove-groups", queues.groups, n, cancel(), |key| desk.look_group(key));
    let cliques = work("grove-cliques", queues.cliques, n, cancel(), |key| desk.look_clique(key));
    let bindings = work("grove-topologies", queues.bindings, 1, cancel(), |key| desk.look_binding(key));
    tokio::join!(gangs, sets, groups, cliques, bindings);
}

fn observe(desk: &Arc<Desk>) {
    // The desk keeps the stores, so the observers must not keep the desk.
    let on = |desk: &Arc<Desk>| Arc::downgrade(desk);
    let weak = on(desk);
    desk.sets.observe(move |change| {
        if let Some(desk) = weak.upgrade() {
            set_changed(&desk, change);
        }
    });
    let weak = on(desk);
    desk.groups.observe(move |change| {
        if let Some(desk) = weak.upgrade() {
            group_changed(&desk, change);
        }
    });
    let weak = on(desk);
    desk.cliques.observe(move |change| {
        if let Some(desk) = weak.upgrade() {
            clique_changed(&desk, change);
        }
    });
    let weak = on(desk);
    desk.gangs.observe(move |change| {
        if let Some(desk) = weak.upgrade() {
            gang_changed(&desk, change);
        }
    });
    let weak = on(desk);
    desk.pods.observe(move |change| {
        if let Some(desk) = weak.upgrade() {
            pod_changed(&desk, change);
        }
    });
    let weak = on(desk);
    desk.bindings.observe(move |change| {
        let Some(desk) = weak.upgrade() else { return };
        let Some(binding) = change.latest() else { return };
        desk.queues.bindings.add(binding.key());
        let is_same = |old: &Arc<_>| change.new.is_some_and(|new| old_spec(old) == &new.spec);
        if change.old.is_some_and(is_same) {
            return;
        }
        for set in desk.sets.all() {
            if set.topology_name() == binding.metadata.name {
                desk.wake_set(set.key());
                for gang in desk.gangs.owned_by(&set.metadata.uid) {
                    desk.queues.gangs.add(gang.key());
                }
            }
        }
    });
}

fn old_spec(binding: &Arc<crate::object::ClusterTopologyBinding>) -> &crate::object::BindingSpec {
    &binding.spec
}

fn set_changed(desk: &Desk, change: &Change<'_, PodCliqueSet>) {
    let Some(set) = change.latest() else { return };
    let key = set.key();
    let Some(new) = change.new else { return };
    let is_new = change.old.is_none_or(|old| is_news(&old.metadata, &new.metadata));
    if is_new {
        desk.queues.sets.add(key.clone());
    }
    let moved = |field: &str| change.old.is_none_or(|old| old.status.get(field) != new.status.get(field));
    if is_new || moved("updateProgress") || moved("currentGenerationHash") {
        desk.wake_set(key);
        for group in desk.groups.owned_by(&new.metadata.uid) {
            desk.queues.groups.add(group.key());
        }
        for clique in desk.cliques.owned_by(&new.metadata.uid) {
            desk.queues.cliques.add(clique.key());
        }
    }
    if is_new {
        for gang in desk.gangs.owned_by(&new.metadata.uid) {
            desk.queues.gangs.add(gang.key());
        }
    }
}

/// Whether an object is new, or another than it was as far as its writers other than us go. What we write into a status
/// must not wake us by itself: a status that cannot come to rest would be written without end.
fn is_news(old: &Meta, new: &Meta) -> bool {
    old.uid != new.uid
        || old.generation != new.generation
        || old.labels != new.labels
        || old.annotations != new.annotations
        || old.deletion_timestamp != new.deletion_timestamp
}

/// Whether its owner must look at an object again: it is news, it is gone, or a roll-out goes on.
fn matters<T: Object>(change: &Change<'_, T>, status: impl Fn(&T) -> &Value) -> bool {
    match (change.old, change.new) {
        (Some(old), Some(new)) => {
            is_news(old.meta(), new.meta())
                || status(old).get("updateProgress") != status(new).get("updateProgress")
        }
        _ => true,
    }
}

fn group_changed(desk: &Desk, change: &Change<'_, PodCliqueScalingGroup>) {
    let Some(group) = change.latest() else { return };
    if matters(change, |group| &group.status) {
        desk.queues.groups.add(group.key());
    }
    wake_part_of(desk, &group.metadata);
}

fn wake_part_of(desk: &Desk, meta: &Meta) {
    if let Some(set) = meta.labels.get(keys::PART_OF) {
        desk.wake_set(Key::new(meta.namespace.clone(), set.clone()));
    }
}

fn clique_changed(desk: &Desk, change: &Change<'_, PodClique>) {
    let Some(clique) = change.latest() else { return };
    let meta = &clique.metadata;
    if matters(change, |clique| &clique.status) {
        desk.queues.cliques.add(clique.key());
    }
    match meta.controller() {
        Some(owner) if owner.kind == "PodCliqueScalingGroup" => {
            let key = Key::new(meta.namespace.clone(), owner.name.clone());
            desk.queues.groups.add_after(key, Desk::pace(0));
        }
        _ => {}
    }
    // The set sums up what its cliques say; those of groups it knows through the groups, save in a roll-out.
    wake_part_of(desk, meta);
    if let Some(gang) = meta.labels.get(keys::PODGANG) {
        let key = Key::new(meta.namespace.clone(), gang.clone());
        // Those who start after this one.
        let said = |clique: &PodClique, kind: &str| condition_status(&clique.status, kind).to_owned();
        let flipped =
            |kind: &str| change.old.map(|old| said(old, kind)) != change.new.map(|new| said(new, kind));
        let ready = |clique: &PodClique| crate::object::number(&clique.status, "readyReplicas");
        let moved = change.old.map(|old| ready(old)) != change.new.map(|new| ready(new));
        if (moved || flipped(condition::COMPLETED))
            && let Some(set) = desk.set_of(meta)
            && !matches!(set.spec.template.clique_startup_type.as_str(), "" | "CliqueStartupTypeAnyOrder")
            && let Some(gang) = desk.gangs.get(&key)
        {
            for group in &gang.spec.podgroups {
                desk.queues
                    .cliques
                    .add_after(Key::new(meta.namespace.clone(), group.name.clone()), Desk::pace(0));
            }
        }
        desk.queues.gangs.add_after(key, Desk::pace(0));
    }
}

fn gang_changed(desk: &Desk, change: &Change<'_, PodGang>) {
    let Some(gang) = change.latest() else { return };
    let meta = &gang.metadata;
    let of = |gang: &Arc<PodGang>| backend_of(gang);
    if change.old.map(of) != change.new.map(of) {
        let count = |gang: &Arc<PodGang>, step: f64| {
            if let Some(name) = backend_of(gang).filter(|name| desk.options.backends.contains(name)) {
                let gauge = desk.cx.metrics.grove.gangs.of([name.as_str()]);
                gauge.set((gauge.get() + step).max(0.0));
            }
        };
        change.old.inspect(|old| count(old, -1.0));
        change.new.inspect(|new| count(new, 1.0));
    }
    if matters(change, |gang| &gang.status) {
        desk.queues.gangs.add_after(gang.key(), Desk::pace(0));
    }
    let said = |gang: &PodGang, kind: &str| holds(&gang.status, kind);
    let flipped = |kind: &str| {
        change.old.is_some_and(|old| said(old, kind)) != change.new.is_some_and(|new| said(new, kind))
    };
    let is_other = change.old.map(|old| (&old.metadata.uid, &old.spec.podgroups, &old.metadata.labels))
        != change.new.map(|new| (&new.metadata.uid, &new.spec.podgroups, &new.metadata.labels));
    if is_other || flipped(condition::INITIALIZED) || flipped(condition::ACCEPTED) {
        for group in &gang.spec.podgroups {
            desk.queues.cliques.add(Key::new(meta.namespace.clone(), group.name.clone()));
        }
    }
    let phase = |gang: &PodGang| text(&gang.status, &["phase"]).to_owned();
    if change.old.map(|old| phase(old)) != change.new.map(|new| phase(new)) || change.new.is_none() {
        wake_part_of(desk, meta);
    }
    if flipped(condition::SCHEDULED)
        && !meta.labels.contains_key(keys::BASE_PODGANG)
        && let Some(set) = desk.set_of(meta)
    {
        // Those whose turn comes when the base has its nodes.
        for group in desk.groups.owned_by(&set.metadata.uid) {
            if index(&group.metadata, keys::SET_REPLICA) != index(meta, keys::SET_REPLICA) {
                continue;
            }
            for clique in desk.cliques.owned_by(&group.metadata.uid) {
                if clique.metadata.labels.contains_key(keys::BASE_PODGANG) {
                    desk.queues.cliques.add(clique.key());
                }
            }
        }
    }
}

fn pod_changed(desk: &Desk, change: &Change<'_, Pod>) {
    let Some(pod) = change.latest() else { return };
    let meta = &pod.metadata;
    let Some(owner) = meta.controller().filter(|owner| owner.kind == PodClique::RESOURCE.kind) else {
        return;
    };
    let key = Key::new(meta.namespace.clone(), owner.name.clone());
    let n_pods = desk.cliques.get(&key).map_or(0, |clique| clique.wanted());
    desk.queues.cliques.add_after(key, Desk::pace(n_pods));
    if let Some(gang) = meta.labels.get(keys::PODGANG) {
        desk.queues.gangs.add_after(Key::new(meta.namespace.clone(), gang.clone()), Desk::pace(n_pods));
    }
}
