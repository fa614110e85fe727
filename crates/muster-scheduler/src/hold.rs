//! Places held for pods to come: an admission layer asks whether a workload would fit before it lets it start.
//!
//! In: pods as they will be started. Out: a yes, and the place is held by a gang that stands in for them; or a no, and why. When the real pods are
//! there ([`WORKLOAD`] says whose they are), the stand-ins make way and the pods are told to go where these were. Must stay true: nobody is evicted or moved for
//! a stand-in, and no stand-in for anybody; what is neither taken nor given back stays held. No stand-in is ever written to the cluster: after a restart
//! the admission layer asks again.

use crate::ingest::Input;
use muster_model::{Key, Name};
use muster_translate::Settings;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{oneshot, watch};

/// The annotation of a pod that names the workload whose place it takes.
pub const WORKLOAD: &str = "kueue.x-k8s.io/workload";
/// What names of stand-ins begin with; no object has such a name.
pub const PREFIX: &str = "hold/";
/// Longer than anybody waits: stand-ins never cause evictions.
const NEVER: &str = "876000h";

/// Pods to come.
#[derive(Debug, Clone, PartialEq)]
pub struct Hold {
    /// The workload.
    pub name: Key,
    pub uid: String,
    pub sets: Vec<HoldSet>,
}

/// Pods of one template.
#[derive(Debug, Clone, PartialEq)]
pub struct HoldSet {
    pub count: u32,
    /// As they will be started: labels, annotations and spec of a pod.
    pub template: Value,
}

/// No more pods than this are stood in for: an answer must not cost more than the question is worth.
const MOST_PODS: usize = 100_000;

/// What is asked: the ends that an admission layer and a scheduler hold.
///
/// A scheduler works for terms: it is asked while its end of the channel is open. Must stay true: whoever asks is answered, also when no scheduler works,
/// when its term ends, and when it says nothing.
#[derive(Clone, Default)]
pub struct Holds(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// The scheduler that works now, or that worked last.
    inputs: watch::Sender<Option<UnboundedSender<Input>>>,
    asking: Mutex<BTreeMap<Key, oneshot::Sender<Result<(), String>>>>,
    cycles: watch::Sender<u64>,
}

/// Longer than a cycle of a scheduler that is well; one that has the cluster yet to list may take longer, and is asked again.
const PATIENCE: Duration = Duration::from_secs(30);

impl std::fmt::Debug for Holds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Holds")
    }
}

impl Holds {
    /// Asks for a place, which is held if there is one. Asked again for the same workload, the answer replaces the one before. Whoever stops waiting
    /// has not asked.
    pub async fn hold(&self, hold: Hold) -> Result<(), String> {
        const NOBODY: &str = "no scheduler works here that could be asked for a place";
        let Some(inputs) = self.at_work() else { return Err(NOBODY.into()) };
        let (answer, answered) = oneshot::channel();
        let mut question = Question { holds: self, workload: hold.name.clone(), answered };
        lock(&self.0.asking).insert(hold.name.clone(), answer);
        if inputs.send(Input::Hold(hold)).is_err() {
            return Err(NOBODY.into());
        }
        tokio::select! {
            // What was answered counts, whatever happened since.
            biased;
            answer = &mut question.answered => {
                answer.unwrap_or_else(|_| Err("no longer wanted, or the scheduler was asked again".into()))
            }
            () = inputs.closed() => Err("the scheduler stopped before it answered".into()),
            () = tokio::time::sleep(PATIENCE) => {
                Err(format!("the scheduler has not said within {} s whether there is room", PATIENCE.as_secs()))
            }
        }
    }

    /// The place is no longer wanted. Nothing happens if none is held.
    pub fn give_back(&self, workload: &Key) {
        lock(&self.0.asking).remove(workload);
        if let Some(inputs) = self.at_work() {
            // Whoever stopped a moment ago holds nothing any more.
            let _ = inputs.send(Input::GiveBack(workload.clone()));
        }
    }

    /// Waits until there may be more room than before.
    pub async fn changed(&self) {
        let mut cycles = self.0.cycles.subscribe();
        // The sender lives as long as this does.
        let _ = cycles.changed().await;
    }

    /// Waits until a scheduler works that can be asked.
    pub async fn working(&self) {
        self.worker().await;
    }

    /// Waits until the scheduler that works, or the next one that does, has stopped.
    pub async fn stopped(&self) {
        self.worker().await.closed().await;
    }

    async fn worker(&self) -> UnboundedSender<Input> {
        let mut inputs = self.0.inputs.subscribe();
        let open = |inputs: &Option<UnboundedSender<Input>>| inputs.as_ref().is_some_and(|i| !i.is_closed());
        let found = inputs.wait_for(open).await.ok().and_then(|inputs| inputs.clone());
        match found {
            Some(inputs) => inputs,
            // The sender lives as long as this does.
            None => std::future::pending().await,
        }
    }

    fn at_work(&self) -> Option<UnboundedSender<Input>> {
        self.0.inputs.borrow().clone().filter(|inputs| !inputs.is_closed())
    }

    /// A scheduler answers from now on. It knows nothing of what was asked before.
    pub(crate) fn attach(&self, inputs: UnboundedSender<Input>) {
        lock(&self.0.asking).clear();
        self.0.inputs.send_replace(Some(inputs));
        // Whoever was told that nobody could be asked asks again.
        self.0.cycles.send_modify(|n| *n = n.wrapping_add(1));
    }

    /// A cycle is over: these were answered.
    pub(crate) fn answer(&self, answers: Vec<(Key, Result<(), String>)>, changed: bool) {
        for (workload, answer) in answers {
            if let Some(asked) = lock(&self.0.asking).remove(&workload) {
                // Whoever asked may have given up, and has said so.
                let _ = asked.send(answer);
            }
        }
        if changed {
            self.0.cycles.send_modify(|n| *n = n.wrapping_add(1));
        }
    }
}

/// Somebody waits for an answer. What is granted to whoever no longer waits is given back.
struct Question<'a> {
    holds: &'a Holds,
    workload: Key,
    answered: oneshot::Receiver<Result<(), String>>,
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        self.answered.close();
        // An answer that was taken is not found here again.
        let was_granted = matches!(self.answered.try_recv(), Ok(Ok(())));
        // Another question about the same workload still has its receiver.
        let is_open = lock(&self.holds.0.asking).get(&self.workload).is_some_and(oneshot::Sender::is_closed);
        if was_granted || is_open {
            self.holds.give_back(&self.workload);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The gang that stands in for a workload's pods.
pub fn gang_of(workload: &Key) -> Key {
    Key::new(workload.namespace.clone(), format!("{PREFIX}{}", workload.name))
}

pub fn is_stand_in(gang: &Key) -> bool {
    gang.name.starts_with(PREFIX)
}

/// The queues that stand-ins are in: beside all others, without bounds.
pub fn queues(settings: &Settings) -> [Value; 2] {
    let unlimited = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
    let resources = json!({"gpu": unlimited, "cpu": unlimited, "memory": unlimited});
    let mut queues = [
        json!({"metadata": {"name": format!("{PREFIX}root")}, "spec": {"resources": resources}}),
        json!({"metadata": {"name": format!("{PREFIX}queue")},
            "spec": {"parentQueue": format!("{PREFIX}root"), "resources": resources}}),
    ];
    for queue in &mut queues {
        pool(queue, settings);
    }
    queues
}

/// The group and the pods that stand in for a workload.
pub fn objects(hold: &Hold, settings: &Settings) -> (Value, Vec<Value>) {
    let Key { namespace, name } = &gang_of(&hold.name);
    let scheduler: Name = settings
        .scheduler_names
        .iter()
        .find(|name| settings.dialect(name) == muster_model::Dialect::Kai)
        .cloned()
        .unwrap_or_else(|| "kai-scheduler".into());
    let mut pods = Vec::new();
    for set in &hold.sets {
        for _ in 0..(set.count as usize).min(MOST_PODS.saturating_sub(pods.len())) {
            let n = pods.len();
            let mut pod = json!({
                "metadata": {"namespace": &**namespace, "name": format!("{name}/{n}"), "uid": format!("{PREFIX}{}/{n}", hold.uid)},
                "spec": set.template["spec"],
                "status": {"phase": "Pending"},
            });
            for part in ["labels", "annotations"] {
                if set.template["metadata"][part].is_object() {
                    pod["metadata"][part] = set.template["metadata"][part].clone();
                }
            }
            pod["metadata"]["annotations"]["pod-group-name"] = json!(&**name);
            pod["spec"]["schedulerName"] = json!(&*scheduler);
            // What holds pods back before they are admitted does not matter here.
            if let Some(spec) = pod["spec"].as_object_mut() {
                spec.remove("schedulingGates");
                spec.remove("nodeName");
            }
            pods.push(pod);
        }
    }
    let mut group = json!({
        "metadata": {"namespace": &**namespace, "name": &**name, "uid": format!("{PREFIX}{}", hold.uid)},
        "spec": {
            "minMember": pods.len(),
            "queue": format!("{PREFIX}queue"),
            "preemptibility": "non-preemptible",
            "preemptionDelay": NEVER,
        },
    });
    pool(&mut group, settings);
    (group, pods)
}

/// Says that an object is of the pool that this scheduler looks after.
fn pool(object: &mut Value, settings: &Settings) {
    if let Some(value) = &settings.pool.value {
        let label = settings.pool.label.as_ref().unwrap_or(&settings.node_pool_label);
        object["metadata"]["labels"][&**label] = json!(&**value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    fn key() -> Key {
        Key::new("ns", "w")
    }

    fn hold() -> Hold {
        Hold { name: key(), uid: "u".into(), sets: Vec::new() }
    }

    fn attached(holds: &Holds) -> UnboundedReceiver<Input> {
        let (sender, inputs) = unbounded_channel();
        holds.attach(sender);
        inputs
    }

    /// What a scheduler was told since the last time.
    fn told(inputs: &mut UnboundedReceiver<Input>) -> Vec<&'static str> {
        std::iter::from_fn(|| inputs.try_recv().ok())
            .map(|input| match input {
                Input::Hold(_) => "hold",
                Input::GiveBack(_) => "give back",
                _ => "other",
            })
            .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_asks_is_answered_whatever_becomes_of_the_scheduler() {
        let holds = Holds::default();
        assert!(holds.hold(hold()).await.unwrap_err().contains("no scheduler works"));

        let mut inputs = attached(&holds);
        let (answer, ()) =
            tokio::join!(holds.hold(hold()), async { holds.answer(vec![(key(), Ok(()))], false) });
        assert_eq!((answer, told(&mut inputs)), (Ok(()), vec!["hold"]));

        // It says nothing: the question is taken back.
        assert!(holds.hold(hold()).await.unwrap_err().contains("within 30 s"));
        assert_eq!(told(&mut inputs), ["hold", "give back"]);

        // Its term ends before it answers, and while nobody asks.
        let (answer, ()) = tokio::join!(holds.hold(hold()), async { drop(inputs) });
        assert!(answer.unwrap_err().contains("stopped"));
        assert!(holds.hold(hold()).await.unwrap_err().contains("no scheduler works"));
        assert!(lock(&holds.0.asking).is_empty());

        // The next term knows nothing of what the one before was asked.
        let _first = attached(&holds);
        let second = async { attached(&holds) };
        let (answer, mut second) = tokio::join!(holds.hold(hold()), second);
        assert!(answer.unwrap_err().contains("asked again"));
        assert_eq!(told(&mut second), [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_waits_for_is_given_back() {
        let holds = Holds::default();
        let mut inputs = attached(&holds);
        let ask = || Box::pin(holds.hold(hold()));
        {
            let mut asked = ask();
            assert!(futures::poll!(&mut asked).is_pending());
        }
        assert_eq!(told(&mut inputs), ["hold", "give back"]);

        // It was granted, and nobody was there any more to hear it.
        {
            let mut asked = ask();
            assert!(futures::poll!(&mut asked).is_pending());
            holds.answer(vec![(key(), Ok(()))], false);
        }
        assert_eq!(told(&mut inputs), ["hold", "give back"]);

        // Who asks again takes the question over.
        let mut first = ask();
        assert!(futures::poll!(&mut first).is_pending());
        let mut second = ask();
        assert!(futures::poll!(&mut second).is_pending());
        assert!(first.await.unwrap_err().contains("asked again"));
        assert_eq!(told(&mut inputs), ["hold", "hold"]);
        holds.answer(vec![(key(), Ok(()))], false);
        assert_eq!(second.await, Ok(()));
        assert_eq!(told(&mut inputs), [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn says_when_a_scheduler_works_and_when_it_has_stopped() {
        let holds = Holds::default();
        let (mut working, mut stopped) = (Box::pin(holds.working()), Box::pin(holds.stopped()));
        assert!(futures::poll!(&mut working).is_pending() && futures::poll!(&mut stopped).is_pending());
        let inputs = attached(&holds);
        working.await;
        assert!(futures::poll!(&mut stopped).is_pending());
        drop(inputs);
        stopped.await;
        assert!(futures::poll!(Box::pin(holds.working())).is_pending());
    }
}
