//! A store of a kind that a cluster may not have.
//!
//! In: a kind. Out: its store, empty until the kind is served, and the future that fills it. Must stay true: a kind that is not
//! installed costs one small request a minute; once it is installed, it is found without a restart.

use std::sync::Arc;
use std::time::Duration;

use muster_runtime::object::Object;
use muster_runtime::{Context, RESYNC, Store};
use serde_json::Value;
use tokio::sync::watch;

const ASK_AGAIN: Duration = Duration::from_secs(60);
const RETRY: Duration = Duration::from_secs(1);

pub struct Optional<T> {
    pub store: Arc<Store<T>>,
    served: watch::Sender<Option<bool>>,
}

impl<T: Object> Optional<T> {
    pub fn new(cx: &Context) -> Arc<Self> {
        let store = Store::new(cx.api.clone(), muster_runtime::api::Scope::default());
        Arc::new(Optional { store, served: watch::Sender::new(None) })
    }

    pub fn is_served(&self) -> bool {
        *self.served.borrow() == Some(true)
    }

    /// Waits until it is known that the kind is not served, or until all of it is here.
    pub async fn settled(&self) {
        let mut served = self.served.subscribe();
        // The sender lives as long as `self`, so waiting cannot fail.
        let said = served.wait_for(Option::is_some).await.map(|said| *said);
        if matches!(said, Ok(Some(true))) {
            self.store.synced().await;
        }
    }

    /// Waits until the kind is served and all of it is here.
    pub async fn arrived(&self) {
        let mut served = self.served.subscribe();
        let _ = served.wait_for(|served| *served == Some(true)).await;
        self.store.synced().await;
    }

    /// Asks until the kind is served, then watches it, until cancelled.
    pub async fn run(self: Arc<Self>, cx: Context) {
        let ask = async {
            loop {
                match served::<T>(&cx).await {
                    Some(true) => return,
                    Some(false) => {
                        self.served.send_replace(Some(false));
                        tokio::time::sleep(ASK_AGAIN).await;
                    }
                    None => tokio::time::sleep(RETRY).await,
                }
            }
        };
        if cx.cancel.run_until_cancelled(ask).await.is_some() {
            self.served.send_replace(Some(true));
            self.store.clone().run(RESYNC, cx.cancel.clone()).await;
        }
    }
}

/// Whether the server has the kind; `None` when it could not be asked.
async fn served<T: Object>(cx: &Context) -> Option<bool> {
    let path = format!("/apis/{}/{}", T::RESOURCE.group, T::RESOURCE.version);
    match cx.api.get_path(&path).await {
        Ok(list) => {
            let kinds = list.get("resources").and_then(Value::as_array).into_iter().flatten();
            let mut names = kinds.filter_map(|kind| kind.get("name")?.as_str());
            Some(names.any(|name| name == T::RESOURCE.plural))
        }
        // 403: whoever may not see it does without it.
        Err(error) if matches!(error.code(), 403 | 404) => Some(false),
        Err(error) => {
            tracing::debug!(kind = T::RESOURCE.kind, %error, "cannot ask whether it is served");
            None
        }
    }
}
