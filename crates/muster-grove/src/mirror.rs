//! Copies of the objects that we make, of kinds that a cluster may not have.
//!
//! In: a kind. Out: those of its objects that carry our label, by name and by owner, kept true by a watch; and a call for
//! each change. Must stay true: nothing is watched before somebody asks; a kind that is not served is known to be absent and
//! found when it comes; our own writes are entered at once and never undone by what the watch says late.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_runtime::follow::{Collection, Seen, follow};
use muster_runtime::object::{Meta, Resource};
use muster_runtime::{Context, Key, RESYNC};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::watch;

/// An object that we made.
#[derive(Debug, Clone, PartialEq)]
pub struct Kept {
    pub resource: Resource,
    pub metadata: Meta,
    pub spec: Value,
    pub status: Value,
    /// What stands beside `spec`: rules, subjects, data.
    pub raw: Value,
}

#[derive(Deserialize)]
struct Parts {
    metadata: Meta,
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    status: Value,
}

/// Called for the owner of an object that came, changed or went.
pub type Wake = Arc<dyn Fn(&Meta) + Send + Sync>;

pub struct Mirror {
    pub resource: Resource,
    state: Mutex<State>,
    served: watch::Sender<Option<bool>>,
    begun: AtomicBool,
    wake: Wake,
}

#[derive(Default)]
struct State {
    objects: HashMap<Key, Arc<Kept>>,
    owned: HashMap<String, BTreeSet<Key>>,
    gone: HashSet<String>,
    gone_order: VecDeque<String>,
}

/// More deletions than happen while one request is under way.
const TOMBSTONES: usize = 4096;

impl Mirror {
    pub fn new(resource: Resource, wake: Wake) -> Arc<Self> {
        Arc::new(Mirror {
            resource,
            state: Mutex::default(),
            served: watch::Sender::new(None),
            begun: AtomicBool::new(false),
            wake,
        })
    }

    /// Waits until all is here, or until it is known that the kind is not served; out: whether it is. The first to ask
    /// starts the watch.
    pub async fn ready(self: &Arc<Self>, cx: &Context, query: &str) -> bool {
        if !self.begun.swap(true, Ordering::SeqCst) {
            let (mirror, cx, query) = (self.clone(), cx.clone(), query.to_owned());
            tokio::spawn(async move { mirror.run(&cx, query).await });
        }
        let mut served = self.served.subscribe();
        // The sender lives as long as `self`, so waiting cannot fail.
        served.wait_for(Option::is_some).await.is_ok_and(|served| *served == Some(true))
    }

    async fn run(self: Arc<Self>, cx: &Context, query: String) {
        let mut collection = Collection::new(self.resource.path("", "", ""));
        collection.query = query;
        let sink = |seen: Seen<'_>| match seen {
            Seen::Put { text, .. } => {
                if let Ok(value) = serde_json::from_str::<Value>(text) {
                    self.enter(value);
                }
            }
            Seen::Gone { key, uid } => self.remove(key, uid),
            Seen::Synced => {
                self.served.send_replace(Some(true));
            }
            Seen::Absent => {
                self.served.send_replace(Some(false));
            }
        };
        follow(cx.api.clone(), collection, RESYNC, cx.cancel.clone(), sink).await;
    }

    pub fn get(&self, key: &Key) -> Option<Arc<Kept>> {
        self.lock().objects.get(key).cloned()
    }

    /// The objects that name this uid as an owner, in order of name.
    pub fn owned_by(&self, uid: &str) -> Vec<Arc<Kept>> {
        let state = self.lock();
        let keys = state.owned.get(uid).into_iter().flatten();
        keys.filter_map(|key| state.objects.get(key).cloned()).collect()
    }

    /// Enters an object as the server said it, unless something newer is here.
    pub fn enter(&self, mut value: Value) {
        let Ok(parts) = Parts::deserialize(&value) else { return };
        if let Some(map) = value.as_object_mut() {
            for known in ["metadata", "spec", "status", "apiVersion", "kind"] {
                map.remove(known);
            }
        }
        let Parts { metadata, spec, status } = parts;
        let key = Key::new(metadata.namespace.clone(), metadata.name.clone());
        let kept = Arc::new(Kept { resource: self.resource, metadata, spec, status, raw: value });
        {
            let mut state = self.lock();
            if state.gone.contains(&kept.metadata.uid) {
                return;
            }
            if let Some(old) = state.objects.get(&key).cloned() {
                let newer = kept.metadata.version() > old.metadata.version();
                if !newer {
                    return;
                }
                state.unlink(&key, &old);
            }
            for owner in &kept.metadata.owner_references {
                state.owned.entry(owner.uid.clone()).or_default().insert(key.clone());
            }
            state.objects.insert(key, kept.clone());
        }
        (self.wake)(&kept.metadata);
    }

    /// Enters that an object is gone.
    pub fn remove(&self, key: &Key, uid: &str) {
        let old = {
            let mut state = self.lock();
            if state.gone.insert(uid.to_owned()) {
                state.gone_order.push_back(uid.to_owned());
                if state.gone_order.len() > TOMBSTONES
                    && let Some(oldest) = state.gone_order.pop_front()
                {
                    state.gone.remove(&oldest);
                }
            }
            match state.objects.get(key) {
                Some(old) if old.metadata.uid == uid => {
                    let old = old.clone();
                    state.unlink(key, &old);
                    state.objects.remove(key);
                    Some(old)
                }
                _ => None,
            }
        };
        if let Some(old) = old {
            (self.wake)(&old.metadata);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn unlink(&mut self, key: &Key, old: &Kept) {
        for owner in &old.metadata.owner_references {
            if let Some(keys) = self.owned.get_mut(&owner.uid) {
                keys.remove(key);
                if keys.is_empty() {
                    self.owned.remove(&owner.uid);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object::made;

    fn object(name: &str, uid: &str, version: u64, owner: &str) -> Value {
        json!({
            "metadata": {
                "name": name, "namespace": "ns", "uid": uid, "resourceVersion": version.to_string(),
                "ownerReferences": [{"uid": owner}],
            },
            "spec": {"n": version},
            "data": {"a": "b"},
        })
    }

    #[test]
    fn never_goes_back() {
        let mirror = Mirror::new(made::SERVICE, Arc::new(|_| {}));
        let names = |uid: &str| {
            let all = mirror.owned_by(uid);
            all.iter().map(|k| format!("{}@{}", k.metadata.name, k.spec["n"])).collect::<Vec<_>>().join(" ")
        };
        mirror.enter(object("a", "1", 5, "o"));
        mirror.enter(object("a", "1", 4, "o"));
        mirror.enter(object("b", "2", 6, "o"));
        assert_eq!(names("o"), "a@5 b@6");
        mirror.enter(object("a", "1", 7, "p"));
        assert_eq!((names("o").as_str(), names("p").as_str()), ("b@6", "a@7"));
        mirror.remove(&Key::new("ns", "b"), "2");
        mirror.enter(object("b", "2", 9, "o"));
        assert_eq!(names("o"), "", "a late answer brings nothing back");
        mirror.enter(object("b", "3", 10, "o"));
        mirror.remove(&Key::new("ns", "b"), "2");
        assert_eq!(names("o"), "b@10", "the successor is another object");
        assert_eq!(mirror.get(&Key::new("ns", "b")).unwrap().raw, json!({"data": {"a": "b"}}));
    }
}
