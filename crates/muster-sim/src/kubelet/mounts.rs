//! Secrets that a pod mounts: no container starts before they are there.
//!
//! In: a pod's volumes. Out: the secrets that it cannot do without, and whether they are there. Must stay true: one that was found is
//! not asked for again, and one that is missing is asked for once in a while, however many pods wait for it.

use std::collections::HashMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use crate::api::{Api, ApiError};
use crate::object::{Key, Pod};

/// How long a kubelet waits before it looks again.
pub const AGAIN: Duration = Duration::from_secs(1);

/// A volume, as far as secrets go.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Volume {
    secret: Option<SecretVolume>,
    projected: Option<Projected>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SecretVolume {
    /// In a volume of its own.
    secret_name: String,
    /// In a projected volume.
    name: String,
    optional: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Projected {
    sources: Vec<Source>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Source {
    secret: Option<SecretVolume>,
}

/// The names of the secrets that must be there.
pub fn secrets(volumes: &[Volume]) -> impl Iterator<Item = &str> {
    let of = volumes.iter().flat_map(|volume| {
        let within = volume.projected.iter().flat_map(|projected| &projected.sources);
        volume.secret.iter().chain(within.filter_map(|source| source.secret.as_ref()))
    });
    of.filter(|secret| !secret.optional).map(|secret| {
        if secret.secret_name.is_empty() { secret.name.as_str() } else { secret.secret_name.as_str() }
    })
}

/// What is known of secrets.
#[derive(Debug, Default)]
pub struct Known(HashMap<Key, Found>);

#[derive(Debug, Clone, Copy)]
enum Found {
    There,
    Missing(Instant),
}

/// So many are remembered; a kubelet that forgot asks again.
const MOST: usize = 10_000;

impl Known {
    /// The first secret that a pod waits for and that must be asked for now, or `Err` with one that was missing a moment ago.
    pub fn to_ask(&self, pod: &Pod) -> Result<Option<Key>, Key> {
        for name in secrets(&pod.spec.volumes) {
            let key = Key::new(pod.metadata.namespace.clone(), name);
            match self.0.get(&key) {
                Some(Found::There) => {}
                Some(Found::Missing(at)) if at.elapsed() < AGAIN => return Err(key),
                _ => return Ok(Some(key)),
            }
        }
        Ok(None)
    }

    pub fn learn(&mut self, key: Key, is_there: bool) {
        if self.0.len() >= MOST {
            self.0.clear();
        }
        self.0.insert(key, if is_there { Found::There } else { Found::Missing(Instant::now()) });
    }
}

/// Whether a secret is there.
pub async fn is_there(api: &Api, key: &Key) -> Result<bool, ApiError> {
    let path = format!("/api/v1/namespaces/{}/secrets/{}", key.namespace, key.name);
    match api.get_path(&path).await {
        Ok(Value::Object(_)) => Ok(true),
        Ok(_) => Ok(false),
        Err(error) if error.not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn which_secrets_are_needed() {
        let volumes: Vec<Volume> = serde_json::from_value(json!([
            {"name": "a", "secret": {"secretName": "one"}},
            {"name": "b", "secret": {"secretName": "two", "optional": true}},
            {"name": "c", "projected": {"sources": [{"serviceAccountToken": {}}, {"secret": {"name": "three"}}]}},
            {"name": "d", "emptyDir": {}},
        ]))
        .unwrap();
        assert_eq!(secrets(&volumes).collect::<Vec<_>>(), ["one", "three"]);
    }

    #[tokio::test(start_paused = true)]
    async fn asks_once_in_a_while() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"namespace": "ns", "name": "p"}, "spec": {"volumes": [{"secret": {"secretName": "s"}}]},
        }))
        .unwrap();
        let key = Key::new("ns", "s");
        let mut known = Known::default();
        assert_eq!(known.to_ask(&pod), Ok(Some(key.clone())));
        known.learn(key.clone(), false);
        assert_eq!(known.to_ask(&pod), Err(key.clone()));
        tokio::time::advance(AGAIN).await;
        assert_eq!(known.to_ask(&pod), Ok(Some(key.clone())));
        known.learn(key, true);
        assert_eq!(known.to_ask(&pod), Ok(None));
    }
}
