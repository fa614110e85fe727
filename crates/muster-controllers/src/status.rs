//! The service that keeps the statuses of pod groups and of queues: one count of pods, two writers, one pace.

use std::sync::Arc;
use std::time::Duration;

use muster_runtime::Context;
use muster_runtime::queue::Queue;

use crate::accounts::Accounts;
use crate::pace::{Pace, Rates};
use crate::{podgroups, queues};

#[derive(Debug, Clone)]
pub struct Options {
    /// Whether to write the statuses of pod groups.
    pub podgroups: bool,
    /// Whether to write the statuses of queues.
    pub queues: bool,
    /// How long after a change a status is written; also the least time between two writes of one status.
    pub settle: Duration,
    pub rates: Rates,
    /// While pods change often, the status of a gang waits until the gang itself has been still for so long.
    pub still: Duration,
    /// But never longer than this.
    pub longest: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            podgroups: true,
            queues: true,
            settle: Duration::from_secs(1),
            rates: Rates::default(),
            still: Duration::from_secs(3),
            longest: Duration::from_secs(30),
        }
    }
}

/// Starts the controllers of pod groups and queues.
pub fn start(cx: &Context, options: Options) -> impl Future<Output = ()> + Send + use<> {
    open(cx, options).1
}

/// The same, and the accounts themselves, for whoever shows them in another way. There are none if nothing is to be written.
pub fn open(
    cx: &Context,
    options: Options,
) -> (Option<Arc<Accounts>>, impl Future<Output = ()> + Send + use<>) {
    let cx = cx.named("muster-status");
    let groups = options.podgroups.then(Queue::new);
    let tree = options.queues.then(Queue::new);
    let accounts = (options.podgroups || options.queues).then(|| {
        Accounts::observe(&cx, groups.clone(), tree.clone(), options.settle, Pace::new(options.rates))
    });
    let shown = accounts.clone();
    let run = async move {
        let Some(accounts) = accounts else { return cx.cancel.cancelled().await };
        let work = async {
            if accounts.prepare(&cx).await.is_none() {
                return;
            }
            futures::join!(
                accounts.work(&cx),
                async {
                    if let Some(queue) = groups {
                        podgroups::run::work(&cx, &accounts, queue, options.still, options.longest).await;
                    }
                },
                async {
                    if let Some(queue) = tree {
                        queues::run::work(&cx, &accounts, queue).await;
                    }
                },
            );
        };
        futures::join!(accounts.claims.clone().run(cx.clone()), work);
    };
    (shown, run)
}
