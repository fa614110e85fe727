//! Keeps certificates good for as long as the process lives.
//!
//! In: where they are kept, and the names to serve. Out: the [`Holder`] has a certificate that is good now, and the bundle
//! of authorities to trust is told. Must stay true: what is in the Secret wins: a replica that loses a race takes over what
//! the other wrote.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use muster_runtime::Context;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::make::{CertError, renew};
use super::plan::{Chest, Leaf, VERSION, idle};

/// Where certificates are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Home {
    /// In this process alone: every start makes new ones.
    Memory,
    /// In a Secret that replicas share and restarts find again.
    Secret { namespace: String, name: String },
}

/// The certificate that the listener shows; it can be replaced while connections come in.
#[derive(Debug, Default)]
pub struct Holder(RwLock<Option<Arc<CertifiedKey>>>);

impl Holder {
    fn put(&self, leaf: &Leaf) -> Result<(), CertError> {
        let chain =
            CertificateDer::pem_slice_iter(leaf.certificate.as_bytes()).collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(leaf.key.as_bytes())?;
        let key = rustls::crypto::ring::sign::any_supported_type(&key)?;
        let certified = Arc::new(CertifiedKey::new(chain, key));
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(certified);
        Ok(())
    }
}

impl ResolvesServerCert for Holder {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// How often the Secret is read: another replica may have renewed it. Lives overlap by weeks, so this is soon enough.
const LOOK: Duration = Duration::from_secs(60);
const SHORTEST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Keeps certificates good until cancelled. The bundle is PEM.
pub async fn keep(
    cx: Context,
    home: Home,
    names: Vec<String>,
    holder: Arc<Holder>,
    bundle: watch::Sender<String>,
) {
    let mut in_memory = Chest::default();
    let mut served: Option<Leaf> = None;
    let mut pause = SHORTEST_PAUSE;
    loop {
        let look = look(&cx, &home, &names, &mut in_memory);
        let wait = match cx.cancel.run_until_cancelled(look).await {
            None => return,
            Some(Ok(Some(chest))) => {
                if served != chest.leaf
                    && let Some(leaf) = &chest.leaf
                {
                    match holder.put(leaf) {
                        Ok(()) => {
                            tracing::info!(expires = %leaf.expires, issuer = leaf.issuer, "certificate in use");
                            served = chest.leaf.clone();
                        }
                        Err(error) => tracing::error!(error = describe(&error), "certificate not usable"),
                    }
                }
                bundle.send_if_modified(|old| {
                    let new = chest.bundle();
                    let is_news = *old != new;
                    *old = new;
                    is_news
                });
                pause = SHORTEST_PAUSE;
                idle(&chest, cx.clock.now()).clamp(Duration::from_secs(1), LOOK)
            }
            // Another replica was first: read what it wrote.
            Some(Ok(None)) => SHORTEST_PAUSE,
            Some(Err(error)) => {
                tracing::warn!(error = describe(&error), ?home, "certificates not kept; trying again");
                pause = (pause * 2).min(LONGEST_PAUSE);
                pause
            }
        };
        if cx.cancel.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
            return;
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum KeepError {
    #[error(transparent)]
    Api(#[from] muster_runtime::ApiError),
    #[error(transparent)]
    Cert(#[from] CertError),
}

/// An error with what is behind it.
fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

/// The chest as it is kept, renewed if need be; `None` when somebody else wrote at the same time.
async fn look(
    cx: &Context,
    home: &Home,
    names: &[String],
    in_memory: &mut Chest,
) -> Result<Option<Chest>, KeepError> {
    let now = cx.clock.now();
    let Home::Secret { namespace, name } = home else {
        if let Some(new) = renew(in_memory, names, now)? {
            *in_memory = new;
        }
        return Ok(Some(in_memory.clone()));
    };
    let all = format!("/api/v1/namespaces/{namespace}/secrets");
    let path = format!("{all}/{name}");
    let found = match cx.api.get_path(&path).await {
        Ok(secret) => Some(secret),
        Err(error) if error.not_found() => None,
        Err(error) => return Err(error.into()),
    };
    let chest = found.as_ref().and_then(open).unwrap_or_default();
    let Some(new) = renew(&chest, names, now)? else { return Ok(Some(chest)) };
    let mut secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/managed-by": "muster"}},
        "data": {DATA: STANDARD.encode(serde_json::to_vec(&new).unwrap_or_default())},
    });
    let written = match &found {
        None => cx.api.create_path(&all, &secret).await,
        Some(old) => {
            secret["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
            cx.api.put_path(&path, &secret).await
        }
    };
    match written {
        Ok(_) => Ok(Some(new)),
        Err(error) if error.conflict() || error.already_exists() || error.not_found() && found.is_some() => {
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

const DATA: &str = "certificates.json";

fn open(secret: &Value) -> Option<Chest> {
    let chest = secret["data"][DATA].as_str().and_then(|text| {
        let bytes = STANDARD.decode(text).ok()?;
        serde_json::from_slice::<Chest>(&bytes).ok()
    });
    match chest {
        Some(chest) if chest.version == VERSION => Some(chest),
        _ => {
            tracing::warn!("the Secret holds no certificates that can be read; new ones replace it");
            None
        }
    }
}
