//! Admission: what is let into the cluster, what is added to it, and what its sender is told.
//!
//! In: objects as they are written. Out: a [`Verdict`] on each: errors that name the field and the fix, warnings for what
//! would be ignored in silence, a patch. The rules are pure ([`validate`], [`mutate`]) and ask a [`World`] for the little
//! that they need of the cluster. Around them: [`review`] speaks AdmissionReview, [`serve`] is the HTTPS listener,
//! [`certs`] makes and renews its certificates, [`register`] tells the API server. [`start`] runs it all; a server in the
//! same process can ask a [`Reviewer`] directly.
//!
//! *Invariant:* no rule does I/O, reads a clock or draws a random number. *Invariant:* pods of other schedulers, the
//! cluster's own namespaces and Muster's are never refused, whether this runs or not. *Absent on purpose:* decisions about
//! scheduling; a pod that can never be placed is let in and explained later.

pub mod certs;
pub mod mutate;
pub mod register;
pub mod review;
pub mod serve;
pub mod validate;

mod defaults;
mod inside;
mod keys;
mod request;
mod settings;
mod share;
mod verdict;
mod world;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use muster_runtime::{Context, spelling};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use certs::Home;
pub use defaults::{NAMESPACE_QUEUE, NAMESPACE_SCHEDULER};
pub use inside::{Door, Passing};
pub use mutate::pod::{Grouper, Membership};
pub use register::{FailurePolicy, Reach, Registration};
pub use request::{Asked, Caller, Operation};
pub use review::{Hook, Reviewer};
pub use settings::{Grove, OWN_NAMESPACES, Others, SYSTEM_NAMESPACES, Settings};
pub use verdict::{FieldError, Verdict};
pub use world::{Given, Namespace, Other, OtherKind, RuntimeClass, Watched, World};

/// How admission runs.
#[derive(Clone)]
pub struct Options {
    pub settings: Settings,
    pub listen: SocketAddr,
    pub certificates: Home,
    pub registration: Registration,
    /// Says to which group a new pod belongs; none unless given.
    pub grouper: Option<Grouper>,
}

impl Options {
    /// Outside the cluster, or for the embedded one: a URL on this machine, certificates in memory. `match_conditions` says
    /// whether the server evaluates them; the embedded one does not.
    pub fn local(port: u16, match_conditions: bool) -> Self {
        let registration = registration(Reach::Url(None), match_conditions, OWN_NAMESPACE);
        Options {
            settings: Settings::default(),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            certificates: Home::Memory,
            registration,
            grouper: None,
        }
    }

    /// In a pod behind a Service of this namespace: certificates in a Secret there.
    pub fn in_cluster(namespace: &str) -> Self {
        let mut settings = Settings::default();
        if !settings.is_exempt(namespace) {
            settings.exempt_namespaces.push(namespace.into());
        }
        let reach = Reach::Service { namespace: namespace.into(), name: NAME.into(), port: 443 };
        Options {
            settings,
            listen: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 9443)),
            certificates: Home::Secret { namespace: namespace.into(), name: format!("{NAME}-certificates") },
            registration: registration(reach, true, namespace),
            grouper: None,
        }
    }
}

fn registration(reach: Reach, match_conditions: bool, own_namespace: &str) -> Registration {
    Registration {
        name: NAME.into(),
        reach,
        match_conditions,
        pods: None,
        pod_labels: BTreeMap::new(),
        namespace_labels: BTreeMap::new(),
        only_with_queue: false,
        own_namespace: own_namespace.into(),
    }
}

/// What the listener and the registration know of each other.
#[derive(Default)]
pub struct Standing {
    /// The API server has been told of us.
    pub is_registered: AtomicBool,
    /// It has asked us about something.
    pub is_heard: AtomicBool,
}

const NAME: &str = "muster-admission";
const OWN_NAMESPACE: &str = "muster-system";

/// Runs admission until cancelled: listener, certificates, registration, and the watches behind the rules.
pub fn start(cx: &Context, options: Options) -> impl Future<Output = ()> + Send + 'static + use<> {
    let cx = cx.named("muster-admission");
    let (world, filled) = Watched::with(&cx, &options.settings);
    async move {
        let Options { settings, listen, certificates, registration, grouper } = options;
        let settings = Arc::new(settings);
        let reviewer = Reviewer { settings: settings.clone(), world: world.clone(), grouper };
        let Some(listener) = bind(&cx, listen).await else { return };
        let base = base(&registration, &listener, listen);
        let names = names(&registration, &base);
        // Behind a Service requests come until every proxy knows that we are gone.
        let linger = match registration.reach {
            Reach::Service { .. } => Duration::from_secs(3),
            Reach::Url(_) => Duration::ZERO,
        };
        let holder = Arc::new(certs::Holder::default());
        let (bundle, bundles) = watch::channel(String::new());
        let standing = Arc::new(Standing::default());
        tracing::info!(%listen, base, "admission listens");
        let keep = certs::keep(cx.clone(), certificates, names, holder.clone(), bundle);
        let gone = CancellationToken::new();
        let register = {
            let (cx, gone, standing) = (cx.clone(), gone.clone(), standing.clone());
            async move {
                register::register(cx, registration, settings, base, bundles, standing, world).await;
                tokio::time::sleep(linger).await;
                gone.cancel();
            }
        };
        let serve = serve::serve(listener, holder, reviewer, standing, gone);
        let watch = cx.cancel.run_until_cancelled(filled);
        let ((), (), served, _) = futures::join!(keep, register, serve, watch);
        if let Err(error) = served {
            tracing::error!(%error, "admission cannot serve");
        }
    }
}

/// The listener, once the address is free; `None` when cancelled before.
async fn bind(cx: &Context, address: SocketAddr) -> Option<TcpListener> {
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return Some(listener),
            Err(error) => tracing::error!(%address, %error, "admission cannot listen; trying again"),
        }
        cx.cancel.run_until_cancelled(tokio::time::sleep(Duration::from_secs(2))).await?;
    }
}

/// The URL at which we are, without a path.
fn base(registration: &Registration, listener: &TcpListener, asked: SocketAddr) -> String {
    match &registration.reach {
        Reach::Url(Some(base)) => base.trim_end_matches('/').to_owned(),
        _ => {
            let mut address = listener.local_addr().unwrap_or(asked);
            if address.ip().is_unspecified() {
                address.set_ip(Ipv4Addr::LOCALHOST.into());
            }
            format!("https://{address}")
        }
    }
}

/// The names that a client may call us by.
fn names(registration: &Registration, base: &str) -> Vec<String> {
    match &registration.reach {
        Reach::Service { namespace, name, .. } => {
            let full = format!("{name}.{namespace}.svc");
            vec![
                full.clone(),
                format!("{full}.cluster.local"),
                "localhost".to_owned(),
                "127.0.0.1".to_owned(),
            ]
        }
        Reach::Url(_) => {
            let uri: Option<http::Uri> = base.parse().ok();
            let host = uri.as_ref().and_then(http::Uri::host).unwrap_or("127.0.0.1").trim_matches(['[', ']']);
            let mut names = vec![host.to_owned()];
            for name in ["localhost", "127.0.0.1"] {
                if host != name {
                    names.push(name.to_owned());
                }
            }
            names
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(reach: Reach, base: &str, expected: &[&str]) {
        let registration = Registration { reach, ..Options::local(0, false).registration };
        assert_eq!(names(&registration, base), expected);
    }

    #[test]
    fn names_on_the_certificate() {
        check(Reach::Url(None), "https://127.0.0.1:1234", &["127.0.0.1", "localhost"]);
        check(Reach::Url(None), "https://[::1]:1234", &["::1", "localhost", "127.0.0.1"]);
        check(
            Reach::Url(None),
            "https://admission.example:1",
            &["admission.example", "localhost", "127.0.0.1"],
        );
        check(
            Reach::Service { namespace: "ns".into(), name: "s".into(), port: 443 },
            "",
            &["s.ns.svc", "s.ns.svc.cluster.local", "localhost", "127.0.0.1"],
        );
    }
}
