//! The ways to the API server, each with a gate that chaos can shut.
//!
//! In: requests of clients, of services and of the simulation, each by its gate. Out: what the server answers, or what the plan wants
//! them to get. Must stay true: without faults a gate changes nothing; a program that was killed never gets through again, and its
//! successor does.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tower::Layer;

use super::Caller;
use crate::faults::{FaultLayer, FaultService, Line, LineService};

/// One way; clones are the same gate.
#[derive(Debug, Clone)]
pub struct Gate {
    pub faults: FaultLayer,
    line: Arc<Mutex<Line>>,
}

impl Gate {
    fn new(seed: u64) -> Self {
        Gate { faults: FaultLayer::new(seed, Vec::new()), line: Arc::default() }
    }

    /// The line of whoever uses it now.
    pub fn line(&self) -> Line {
        self.line.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whoever uses it is gone; what is laid from now on is of a successor.
    pub fn kill(&self) {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let next = line.successor();
        std::mem::replace(&mut *line, next).sever();
    }
}

impl<S> Layer<S> for Gate {
    type Service = FaultService<LineService<S>>;

    fn layer(&self, inner: S) -> Self::Service {
        self.faults.layer(self.line().layer(inner))
    }
}

/// Whether Muster's services are to be alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Life {
    pub n_kills: u64,
    pub alive: bool,
}

/// All the ways.
#[derive(Debug, Clone)]
pub struct Gates {
    pub clients: Gate,
    pub services: Gate,
    pub simulation: Gate,
    pub(super) life: Arc<watch::Sender<Life>>,
}

impl Gates {
    pub fn new(seed: u64) -> Self {
        let gate = |n: u32| Gate::new(super::agenda::random(seed, "gates", n).next());
        let life = Arc::new(watch::Sender::new(Life { n_kills: 0, alive: true }));
        Gates { clients: gate(1), services: gate(2), simulation: gate(3), life }
    }

    /// Runs a program that dies and starts again as the plan wants it; `start` is told how often it died. Out: how it ended by itself, or
    /// nothing if it was cancelled while it was dead.
    pub async fn mortal<F: Future>(
        &self,
        cancel: &CancellationToken,
        mut start: impl FnMut(u64) -> F,
    ) -> Option<F::Output> {
        let mut life = self.life.subscribe();
        let mut n_kills = 0;
        loop {
            let killed = async {
                let killed = life.wait_for(|life| life.n_kills != n_kills).await.map(|life| life.n_kills);
                match killed {
                    Ok(n_kills) => n_kills,
                    // Nobody is left who could kill it.
                    Err(_) => std::future::pending().await,
                }
            };
            n_kills = tokio::select! {
                ended = start(n_kills) => return Some(ended),
                n_kills = killed => n_kills,
            };
            cancel.run_until_cancelled(life.wait_for(|life| life.alive)).await?.ok()?;
        }
    }

    pub(super) fn of(&self, from: Caller) -> &Gate {
        match from {
            Caller::Clients => &self.clients,
            Caller::Services => &self.services,
            Caller::Simulation => &self.simulation,
        }
    }

    pub(super) fn all(&self) -> [&Gate; 3] {
        [&self.clients, &self.services, &self.simulation]
    }
}
