//! Watches the Config and its shards, applies the plan, writes what came of it.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_runtime::api::{Api, ApiError, Delete, Patch};
use muster_runtime::object::{Key, Object};
use muster_runtime::queue::{Next, Queue, work};
use muster_runtime::{Context, Store};
use serde_json::{Value, json};

use super::plan::{self, Plan, Surroundings};
use super::{CONFIG, Config, MANAGED_BY, SchedulingShard};
use crate::objects::{APPLIED, is_shared, marked, path};

/// What the operator is told.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The operator's own image, from which everything runs unless the Config says otherwise.
    pub image: String,
    /// The namespace that the operator runs in.
    pub namespace: String,
}

/// While something is on its way, it is looked at again this soon.
const SOON: Duration = Duration::from_secs(2);
/// And this often when all is well, since nobody watches what others do to the operator's objects.
const CHECK: Duration = Duration::from_secs(60);

/// The kinds that the operator makes, and so the kinds among which it looks for what it made.
const MADE: &[&str] = &[
    "ServiceAccount",
    "ConfigMap",
    "ResourceQuota",
    "Service",
    "Deployment",
    "PodDisruptionBudget",
    "NetworkPolicy",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "ServiceMonitor",
    "PrometheusRule",
];

pub fn start(cx: &Context, options: Options) -> impl Future<Output = ()> + Send + 'static + use<> {
    let cx = cx.named("muster-operator");
    let configs = cx.stores.of::<Config>();
    let shards = cx.stores.of::<SchedulingShard>();
    let queue: std::sync::Arc<Queue<String>> = Queue::new();
    {
        let queue = queue.clone();
        configs.observe(move |change| {
            // Its own status writes come back too; the look that they cause finds nothing to do.
            if let Some(config) = change.latest() {
                queue.add(config.metadata.name.clone());
            }
        });
    }
    {
        let queue = queue.clone();
        shards.observe(move |_| queue.add(CONFIG.to_owned()));
    }
    async move {
        if cx.synced([configs.synced()]).await.is_none() || cx.synced([shards.synced()]).await.is_none() {
            return;
        }
        let cancel = cx.cancel.clone();
        work("operator", queue, 1, cancel, |name| look(&cx, &configs, &shards, &options, name)).await;
    }
}

async fn look(
    cx: &Context,
    configs: &Store<Config>,
    shards: &Store<SchedulingShard>,
    options: &Options,
    name: String,
) -> Result<Next, ApiError> {
    let Some(config) = configs.get(&Key::new("", name)) else { return Ok(Next::Idle) };
    if config.metadata.deleting() {
        // What is owned goes with its owner.
        return Ok(Next::Idle);
    }
    if config.metadata.name != CONFIG {
        write_conditions(cx, &*config, &config.status, &plan::not_this_one()).await?;
        return Ok(Next::Idle);
    }
    let all = shards.all();
    let live: Vec<&SchedulingShard> =
        all.iter().map(AsRef::as_ref).filter(|s| !s.metadata.deleting()).collect();
    let (mut there, monitoring) = made(&cx.api).await?;
    let around =
        Surroundings { image: options.image.clone(), namespace: options.namespace.clone(), monitoring };
    let plan = plan::plan(&config, &live, &around);
    let failed = apply(cx, &config, &plan, &mut there).await;
    let (failures, first) = match failed {
        Some((failures, error)) => (failures, Some(error)),
        None => (Vec::new(), None),
    };

    let conditions = plan::config_conditions(&plan, &there, &failures);
    let ready = conditions.iter().any(|c| c.0 == "Ready" && c.1);
    write_conditions(cx, &*config, &config.status, &conditions).await?;
    for shard in live {
        let wanted = plan::shard_conditions(&shard.metadata.name, &plan, &there, &failures);
        write_conditions(cx, shard, &shard.status, &wanted).await?;
    }
    match first {
        Some(error) => Err(error),
        None if ready => Ok(Next::After(CHECK)),
        None => Ok(Next::After(SOON)),
    }
}

/// Applies what differs and deletes what is not wanted. One failure does not keep the rest from being applied. Out: what
/// failed, in words, and the first error.
async fn apply(
    cx: &Context,
    config: &Config,
    plan: &Plan,
    there: &mut BTreeMap<String, Value>,
) -> Option<(Vec<String>, ApiError)> {
    let mut failures = Vec::new();
    let mut first = None;
    let mut fail = |path: &str, error: ApiError| {
        tracing::warn!(path, error = error.message(), "cannot apply");
        failures.push(format!("{path}: {}", error.message()));
        first.get_or_insert(error);
    };
    for namespace in &plan.namespaces {
        let Some(path) = path(namespace) else { continue };
        match cx.api.get_path(&path).await {
            // A namespace that is there belongs to whoever made it.
            Ok(_) => {}
            Err(error) if error.not_found() => {
                let collection = path.rsplit_once('/').map_or("", |(collection, _)| collection);
                match cx.api.create_path(collection, &marked(namespace)).await {
                    Err(error) if !error.already_exists() => fail(&path, error),
                    _ => {}
                }
            }
            Err(error) => fail(&path, error),
        }
    }
    for object in &plan.objects {
        let Some(path) = path(object) else { continue };
        if there.get(&path).is_some_and(|found| plan::covers(found, object)) {
            continue;
        }
        // Somebody else may have made it, and would miss it once it goes with the Config: it serves as it is.
        if is_shared(object) && !there.contains_key(&path) {
            match cx.api.get_path(&path).await {
                Ok(found) => {
                    there.insert(path, found);
                    continue;
                }
                Err(error) if error.not_found() => {}
                Err(error) => {
                    fail(&path, error);
                    continue;
                }
            }
        }
        match cx.api.apply_path(&path, object).await {
            Ok(applied) => {
                tracing::info!(path, "applied");
                there.insert(path, applied);
            }
            Err(error) => fail(&path, error),
        }
    }
    for (path, uid) in plan::unwanted(&config.metadata, plan, there) {
        let delete = Delete { uid, propagation: Some("Background"), ..Delete::default() };
        match cx.api.delete_path(path, delete).await {
            Ok(_) => tracing::info!(path, "deleted"),
            // Another object has the name by now, and it is not ours.
            Err(error) if error.conflict() => {}
            Err(error) => fail(path, error),
        }
    }
    first.map(|error| (failures, error))
}

/// Everything that the operator made, by its path; and whether the kinds of the Prometheus operator are served.
pub async fn made(api: &Api) -> Result<(BTreeMap<String, Value>, bool), ApiError> {
    let mut there = BTreeMap::new();
    let mut monitoring = false;
    for (version, kind, plural, _) in APPLIED.iter().filter(|(_, kind, ..)| MADE.contains(kind)) {
        let found = list(api, version, kind, plural, &mut there).await?;
        monitoring |= *kind == "ServiceMonitor" && found;
    }
    Ok((there, monitoring))
}

/// Reads what the operator made of one kind. Out: whether the kind is served at all.
async fn list(
    api: &Api,
    version: &str,
    kind: &str,
    plural: &str,
    there: &mut BTreeMap<String, Value>,
) -> Result<bool, ApiError> {
    let root = if version.contains('/') { "/apis" } else { "/api" };
    let url = format!(
        "{root}/{version}/{plural}?labelSelector={}%3D{}",
        MANAGED_BY.0.replace('/', "%2F"),
        MANAGED_BY.1
    );
    let mut next: Option<String> = None;
    loop {
        let page = match api.list_raw(&url, next.as_deref()).await {
            Ok(page) => page,
            Err(error) if error.not_found() => return Ok(false),
            Err(error) => return Err(error),
        };
        for item in &page.items {
            let Ok(mut object) = serde_json::from_str::<Value>(item.get()) else { continue };
            if !object.is_object() {
                continue;
            }
            // Items of lists do not say what they are.
            object["apiVersion"] = json!(version);
            object["kind"] = json!(kind);
            if let Some(path) = path(&object) {
                there.insert(path, object);
            }
        }
        next = page.next;
        if next.is_none() {
            return Ok(true);
        }
    }
}

async fn write_conditions<T: Object>(
    cx: &Context,
    object: &T,
    status: &Value,
    wanted: &[(&'static str, bool, &'static str, String)],
) -> Result<(), ApiError> {
    let Some(conditions) = plan::merged(status, wanted, object.meta().generation, cx.clock.now()) else {
        return Ok(());
    };
    let path = T::RESOURCE.path("", &object.meta().name, "status");
    let body = json!({"metadata": {"uid": object.meta().uid}, "status": {"conditions": conditions}});
    match cx.api.patch_path(&path, Patch::Merge, &body).await {
        Ok(_) => Ok(()),
        // It is gone, or another of the same name is there: nothing to say about it any more.
        Err(error) if error.not_found() || error.conflict() => Ok(()),
        Err(error) => Err(error),
    }
}
