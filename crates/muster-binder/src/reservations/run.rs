//! Keeps shared GPUs in order: looks at one whenever something about it changes.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_runtime::api::{Delete, Scope};
use muster_runtime::common::{BindRequest, Node, Pod};
use muster_runtime::queue::{Next, Queue, work};
use muster_runtime::store::Store;
use muster_runtime::{Api, ApiError, Context, Key, Object, RESYNC};

use super::plan::{
    Action, Known, NODE_GONE, Observed, device, groups_of, groups_of_pod, known, may_be_tried, plan, uses,
};
use crate::binder::Binder;
use crate::error::BindError;
use crate::options::Options;
use crate::steps::mark::{GPU_GROUP, GPU_GROUP_OF};
use crate::steps::reserve::{DEVICE, PREFIX};

/// Who has to do with a shared GPU.
#[derive(Default)]
struct Entry {
    reservations: BTreeSet<Key>,
    users: BTreeSet<Key>,
    requests: BTreeSet<Key>,
}

impl Entry {
    fn is_empty(&self) -> bool {
        self.reservations.is_empty() && self.users.is_empty() && self.requests.is_empty()
    }
}

/// Shared GPUs by name, so that an event costs nothing in proportion to the cluster.
#[derive(Default)]
struct Index(Mutex<HashMap<String, Entry>>);

impl Index {
    fn change(&self, group: &str, change: impl FnOnce(&mut Entry)) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = all.entry(group.to_owned()).or_default();
        change(entry);
        if entry.is_empty() {
            all.remove(group);
        }
    }

    fn read<R>(&self, read: impl FnOnce(&HashMap<String, Entry>) -> R) -> R {
        read(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct Keeper {
    cx: Context,
    binder: Binder,
    pods: Arc<Store<Pod>>,
    nodes: Arc<Store<Node>>,
    requests: Arc<Store<BindRequest>>,
    index: Arc<Index>,
    /// Shared GPUs as they were when they were last looked at.
    known: Mutex<HashMap<String, Known>>,
}

/// Runs until cancelled. `binder` is the one that binds in this process: it learns which nodes have shared GPUs.
pub fn start(cx: &Context, binder: &Binder) -> impl Future<Output = ()> + Send + use<> {
    let cx = cx.named("muster-binder");
    // Few pods share a GPU, and only those are of interest: each has a label that is, or begins with, this.
    let pods = Store::<Pod>::new(cx.api.clone(), Scope { mentions: GPU_GROUP, ..Scope::default() });
    let nodes = cx.stores.of::<Node>();
    let requests = cx.stores.of::<BindRequest>();
    let queue: Arc<Queue<String>> = Queue::new();
    let index = Arc::new(Index::default());
    {
        let (queue, index, binder) = (queue.clone(), index.clone(), binder.clone());
        pods.observe(move |change| {
            let reserves = |pod: &Pod| pod.metadata.namespace == binder.options().reservation.namespace;
            // Adding before taking away keeps the count of a node from touching zero in between.
            for (pod, up) in change.new.map(|p| (p, true)).into_iter().chain(change.old.map(|p| (p, false))) {
                // What is new is added even if an old state had it too; only what is no more is taken away.
                for group in groups_of_pod(pod) {
                    let stays = !up && change.new.is_some_and(|new| groups_of_pod(new).any(|g| g == group));
                    if !stays {
                        index.change(group, |entry| {
                            let set = if reserves(pod) { &mut entry.reservations } else { &mut entry.users };
                            if up {
                                set.insert(pod.key())
                            } else {
                                set.remove(&pod.key())
                            };
                        });
                    }
                    queue.add(group.to_owned());
                }
                if reserves(pod) && pod.is_bound() {
                    binder.count_shared(&pod.spec.node_name, up);
                }
            }
        });
    }
    {
        let (queue, index) = (queue.clone(), index.clone());
        requests.observe(move |change| {
            for (request, up) in
                change.old.map(|r| (r, false)).into_iter().chain(change.new.map(|r| (r, true)))
            {
                for group in groups_of(request) {
                    index.change(group, |entry| {
                        if up {
                            entry.requests.insert(request.key())
                        } else {
                            entry.requests.remove(&request.key())
                        };
                    });
                    queue.add(group.to_owned());
                }
            }
        });
    }
    {
        let (queue, index, pods) = (queue.clone(), index.clone(), pods.clone());
        nodes.observe(move |change| {
            let (Some(old), None) = (change.old, change.new) else { return };
            let here = |key: &Key| pods.get(key).is_some_and(|p| p.spec.node_name == old.metadata.name);
            let all: Vec<(String, Vec<Key>)> = index.read(|groups| {
                groups.iter().map(|(g, e)| (g.clone(), e.reservations.iter().cloned().collect())).collect()
            });
            for (group, _) in all.into_iter().filter(|(_, held)| held.iter().any(here)) {
                queue.add(group);
            }
        });
    }
    let watch = pods.clone().run(RESYNC, cx.cancel.clone());
    let keeper = Keeper { cx, binder: binder.clone(), pods, nodes, requests, index, known: Mutex::default() };
    let work = async move {
        let cx = &keeper.cx;
        let synced = async {
            keeper.pods.synced().await;
            keeper.nodes.synced().await;
            keeper.requests.synced().await;
        };
        if cx.synced([synced]).await.is_none() {
            return;
        }
        work("reservations", queue, 16, cx.cancel.clone(), |group| keeper.look(group)).await;
    };
    async move {
        tokio::join!(watch, work);
    }
}

impl Keeper {
    fn observed(&self, group: &str) -> Observed {
        let (reservations, users, requests) = self.index.read(|all| match all.get(group) {
            Some(entry) => (entry.reservations.clone(), entry.users.clone(), entry.requests.clone()),
            None => Default::default(),
        });
        Observed {
            group: group.to_owned(),
            reservations: reservations.iter().filter_map(|key| self.pods.get(key)).collect(),
            users: users.iter().filter_map(|key| self.pods.get(key)).collect(),
            requests: requests.iter().filter_map(|key| self.requests.get(key)).collect(),
            before: self.known().get(group).cloned(),
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, seen: &Observed) {
        match known(seen) {
            Some(known) => self.known().insert(seen.group.clone(), known),
            None => self.known().remove(&seen.group),
        };
    }

    async fn look(&self, group: String) -> Result<Next, ApiError> {
        let seen = self.observed(&group);
        let lives = |name: &str| self.nodes.get(&Key::new("", name)).is_some();
        let actions = plan(&seen, lives);
        if actions.is_empty() {
            self.remember(&seen);
            return Ok(Next::Idle);
        }
        // A bind of this process that is at it wants to see for itself why a reservation stopped.
        let _turn = self.binder.locks().turn(&group).await;
        let namespace = &self.binder.options().reservation.namespace;
        for action in actions {
            match action {
                Action::GiveUp { name, why } => {
                    let key = Key::new(namespace.clone(), name);
                    let (api, options) = (&self.cx.api, self.binder.options());
                    let given_up = if why == NODE_GONE {
                        give_up_on_lost_node(api, &key).await?
                    } else {
                        give_up(api, options, &key, &group).await?
                    };
                    if given_up {
                        tracing::info!(reservation = %key, group, why, "a shared GPU is given up");
                    }
                }
                Action::Evict { namespace, name } => {
                    if let Some(pod) = self.pods.get(&Key::new(namespace, name))
                        && !self.is_held(&group, None).await?
                    {
                        self.evict(&pod, &group).await?;
                    }
                }
                Action::EvictFrom { device, namespace, name } => {
                    if let Some(pod) = self.pods.get(&Key::new(namespace, name))
                        && !self.is_held(&group, Some(&device)).await?
                    {
                        self.evict(&pod, &group).await?;
                    }
                }
            }
        }
        self.remember(&seen);
        Ok(Next::Idle)
    }

    /// Whether the API knows a pod that holds the GPU, or that very one. In whatever namespace: when this keeper is told the
    /// wrong one, the reservations of the right one still count.
    async fn is_held(&self, group: &str, wanted: Option<&str>) -> Result<bool, ApiError> {
        let ours = &self.binder.options().reservation.namespace;
        let mut pods = labelled(&self.cx.api, &format!("{GPU_GROUP}%3D{group}")).await?;
        pods.retain(|pod| {
            (pod.metadata.namespace == *ours || holds(pod)) && (!pod.is_over() || pod.metadata.deleting())
        });
        let pods: Vec<Arc<Pod>> = pods.into_iter().map(Arc::new).collect();
        // One that does not say its device yet may hold any.
        Ok(match (wanted, device(&pods)) {
            (Some(wanted), Some(held)) => wanted == held,
            _ => !pods.is_empty(),
        })
    }

    /// Deletes a pod that runs on a GPU which nobody holds.
    async fn evict(&self, pod: &Pod, group: &str) -> Result<(), ApiError> {
        let message = format!("Deleting the pod: {}", lost(group, &pod.spec.node_name));
        self.cx.events.warning(pod, "GpuReservationLost", message);
        let delete = Delete { uid: &pod.metadata.uid, ..Delete::default() };
        match self.cx.api.delete::<Pod>(&pod.key(), delete).await {
            Ok(_) => Ok(()),
            Err(error) if error.not_found() || error.conflict() => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Tidies up a node: reservations that nobody uses go.
pub(crate) async fn settle(api: &Api, options: &Options, node: &str) -> Result<(), BindError> {
    let path = Pod::RESOURCE.path(&options.reservation.namespace, "", "");
    let page = api.list_raw(&format!("{path}?fieldSelector=spec.nodeName%3D{node}"), None).await?;
    let held: Vec<Pod> = page.items.iter().filter_map(|item| serde_json::from_str(item.get()).ok()).collect();
    for pod in held.iter().filter(|pod| !pod.metadata.deleting()) {
        for group in groups_of_pod(pod) {
            give_up(api, options, &pod.key(), group).await?;
        }
    }
    Ok(())
}

/// Deletes a reservation that nobody uses, in the version in which nobody did. Out: whether it was deleted.
async fn give_up(api: &Api, options: &Options, key: &Key, group: &str) -> Result<bool, ApiError> {
    // The order matters: who joins after this has written to it, and the delete fails.
    let reservation: Pod = match api.get(key).await {
        Ok(pod) => pod,
        Err(error) if error.not_found() => return Ok(false),
        Err(error) => return Err(error),
    };
    if reservation.metadata.deleting() {
        return Ok(false);
    }
    if !reservation.is_over() && is_used(api, options, group).await? {
        return Ok(false);
    }
    delete_version(api, &reservation).await
}

/// Deletes a reservation whose node the API does not have either.
async fn give_up_on_lost_node(api: &Api, key: &Key) -> Result<bool, ApiError> {
    let reservation: Pod = match api.get(key).await {
        Ok(pod) => pod,
        Err(error) if error.not_found() => return Ok(false),
        Err(error) => return Err(error),
    };
    match api.get::<Node>(&Key::new("", reservation.spec.node_name.clone())).await {
        Ok(_) => Ok(false),
        Err(error) if error.not_found() => delete_version(api, &reservation).await,
        Err(error) => Err(error),
    }
}

async fn delete_version(api: &Api, pod: &Pod) -> Result<bool, ApiError> {
    let meta = &pod.metadata;
    let path = Pod::RESOURCE.path(&meta.namespace, &meta.name, "");
    match api.delete_version(&path, &meta.uid, &meta.resource_version).await {
        Ok(done) => Ok(done),
        // Somebody wrote to it: it is looked at again when that is seen.
        Err(error) if error.conflict() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Why a pod goes whose reservation is no more.
pub(crate) fn lost(group: &str, node: &str) -> String {
    format!(
        "the reservation of its shared GPU (group {group} on node {node}) is gone, so the GPU may be given to others"
    )
}

/// Whether a pod, in whatever namespace, looks like one that holds a shared GPU.
pub(crate) fn holds(pod: &Pod) -> bool {
    pod.metadata.annotation(DEVICE).is_some() || pod.metadata.name.starts_with(PREFIX)
}

/// All pods that the API knows whose labels name the GPU; its reservations are among them.
pub(crate) async fn users_of(api: &Api, group: &str) -> Result<Vec<Pod>, ApiError> {
    let one = format!("{GPU_GROUP}%3D{group}");
    let of_several = format!("{GPU_GROUP_OF}{group}%3D{group}").replace('/', "%2F");
    let mut pods = labelled(api, &one).await?;
    pods.extend(labelled(api, &of_several).await?);
    Ok(pods)
}

/// Whether the API knows a pod that uses the GPU.
async fn is_used(api: &Api, options: &Options, group: &str) -> Result<bool, ApiError> {
    for pod in users_of(api, group).await? {
        if pod.metadata.namespace == options.reservation.namespace {
            continue;
        }
        if uses(&pod, &[]) {
            return Ok(true);
        }
        // Its label may be left over, or someone may be binding it: its request tells.
        if !pod.is_over() && !pod.is_bound() {
            match api.get::<BindRequest>(&pod.key()).await {
                Ok(request) if may_be_tried(&request) && groups_of(&request).any(|g| g == group) => {
                    return Ok(true);
                }
                Ok(_) => {}
                Err(error) if error.not_found() => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(false)
}

/// All pods of all namespaces with a label.
async fn labelled(api: &Api, selector: &str) -> Result<Vec<Pod>, ApiError> {
    let url = format!("{}?labelSelector={selector}", Pod::RESOURCE.path("", "", ""));
    let mut pods = Vec::new();
    let mut next: Option<String> = None;
    loop {
        let page = api.list_raw(&url, next.as_deref()).await?;
        pods.extend(page.items.iter().filter_map(|item| serde_json::from_str::<Pod>(item.get()).ok()));
        next = page.next;
        if next.is_none() {
            return Ok(pods);
        }
    }
}
