//! Furnishes namespaces.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;

use super::plan::{Action, ROOT_CERTIFICATE, plan};
use crate::api::ApiError;
use crate::context::Context;
use crate::kubelet::run::LEASE_NAMESPACE;
use crate::object::{Key, Meta, Namespace, Object, kinds};
use crate::podcontrol::wake_by_self;
use crate::queue::{Next, Queue, work};
use crate::store::Store;

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ServiceAccount {
    pub metadata: Meta,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ConfigMap {
    pub metadata: Meta,
}

kinds! {
    ServiceAccount = "" "v1" "ServiceAccount" "serviceaccounts";
    ConfigMap = "" "v1" "ConfigMap" "configmaps";
}

pub fn start(cx: &Context) -> impl Future<Output = ()> + Send + use<> {
    let namespaces = cx.store::<Namespace>();
    let accounts = cx.store::<ServiceAccount>();
    let maps = cx.store::<ConfigMap>();
    let queue = Queue::new();
    wake_by_self(&namespaces, &queue);
    wake_namespace(&accounts, &queue, "default");
    wake_namespace(&maps, &queue, ROOT_CERTIFICATE);
    let cx = cx.clone();
    async move {
        if cx.synced([namespaces.synced()]).await.is_none()
            || cx.synced([accounts.synced()]).await.is_none()
            || cx.synced([maps.synced()]).await.is_none()
        {
            return;
        }
        // Node leases need their namespace; a server that makes it itself says that it is there.
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LEASE_NAMESPACE}});
        if namespaces.get(&Key::new("", LEASE_NAMESPACE)).is_none()
            && let Err(error) = cx.api.create::<Namespace>("", &body).await
            && !error.already_exists()
        {
            tracing::warn!(%error, "the namespace of node leases could not be made");
        }
        work("namespaces", queue, 4, cx.cancel.clone(), |key| look(&cx, &namespaces, &accounts, &maps, key))
            .await;
    }
}

/// What was taken out of a namespace is put back.
fn wake_namespace<T: Object>(store: &Arc<Store<T>>, queue: &Arc<Queue<Key>>, name: &'static str) {
    let queue = queue.clone();
    store.observe(move |change| {
        if change.new.is_none()
            && let Some(old) = change.old
            && old.meta().name == name
        {
            queue.add(Key::new("", old.meta().namespace.clone()));
        }
    });
}

async fn look(
    cx: &Context,
    namespaces: &Store<Namespace>,
    accounts: &Store<ServiceAccount>,
    maps: &Store<ConfigMap>,
    key: Key,
) -> Result<Next, ApiError> {
    let Some(namespace) = namespaces.get(&key) else { return Ok(Next::Idle) };
    let has_account = accounts.get(&Key::new(key.name.clone(), "default")).is_some();
    let has_certificate = maps.get(&Key::new(key.name.clone(), ROOT_CERTIFICATE)).is_some();
    for action in plan(&namespace, has_account, has_certificate, &cx.options.root_certificate) {
        let result = match action {
            Action::ServiceAccount(body) => {
                cx.api.create(&key.name, &body).await.map(|made| accounts.enter(made))
            }
            Action::RootCertificate(body) => {
                cx.api.create(&key.name, &body).await.map(|made| maps.enter(made))
            }
        };
        match result {
            Err(error) if error.already_exists() => {}
            // The namespace is on its way out.
            Err(error) if matches!(error.code(), 403 | 404) => return Ok(Next::Idle),
            other => other?,
        }
    }
    Ok(Next::Idle)
}
