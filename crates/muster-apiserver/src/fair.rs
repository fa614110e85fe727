//! Fair queues: one noisy client does not starve the rest. In: requests as they come, each of a flow (its user). Out: who runs now, who
//! waits, who is turned away.
//!
//! [`Desk`] is pure: seats, a queue for each flow, and whose turn it is, round robin over the flows that wait. [`Fair`] is around it:
//! it makes requests wait and lets a seat go when its request ends, however it ends. Long answers (watches) take a seat only until they
//! begin, and are counted apart.
//!
//! Invariants: no more run than there are seats; a flow never holds so many that none is left for others; a seat is free only while
//! nobody waits who may have it; what is turned away leaves no trace.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// How much of everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests that run at the same time.
    pub seats: usize,
    /// Requests of one flow that wait.
    pub queue: usize,
    /// Requests that wait, of all flows.
    pub waiting: usize,
    /// Long answers of one flow.
    pub long: usize,
    /// How long a request waits before it is turned away.
    pub patience: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { seats: 64, queue: 128, waiting: 4096, long: 2048, patience: Duration::from_secs(15) }
    }
}

/// What becomes of a request that comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It runs.
    Runs,
    /// It waits under this number.
    Waits(u64),
    /// There is no room to wait.
    TurnedAway,
}

#[derive(Debug, Default)]
struct Flow {
    running: usize,
    queue: VecDeque<u64>,
}

/// Who runs and who waits.
#[derive(Debug)]
pub struct Desk {
    limits: Limits,
    running: usize,
    waiting: usize,
    flows: HashMap<Arc<str>, Flow>,
    /// Flows that wait, the next one first; each once.
    turns: VecDeque<Arc<str>>,
    next: u64,
}

impl Desk {
    /// With all seats free.
    pub fn new(limits: Limits) -> Desk {
        Desk { limits, running: 0, waiting: 0, flows: HashMap::new(), turns: VecDeque::new(), next: 0 }
    }

    /// What one flow may hold while others may come: not the last quarter of the seats.
    fn share(&self) -> usize {
        (self.limits.seats - self.limits.seats / 4).max(1)
    }

    /// A request comes.
    pub fn arrive(&mut self, flow: &Arc<str>) -> Arrival {
        let share = self.share();
        let state = self.flows.entry(flow.clone()).or_default();
        if self.running < self.limits.seats && state.running < share && state.queue.is_empty() {
            state.running += 1;
            self.running += 1;
            return Arrival::Runs;
        }
        if state.queue.len() >= self.limits.queue || self.waiting >= self.limits.waiting {
            return Arrival::TurnedAway;
        }
        let number = self.next;
        self.next += 1;
        if state.queue.is_empty() {
            self.turns.push_back(flow.clone());
        }
        state.queue.push_back(number);
        self.waiting += 1;
        Arrival::Waits(number)
    }

    /// A request ends; the numbers of those that run now.
    pub fn leave(&mut self, flow: &Arc<str>) -> Vec<u64> {
        if let Some(state) = self.flows.get_mut(flow) {
            state.running = state.running.saturating_sub(1);
            self.running = self.running.saturating_sub(1);
        }
        self.forget(flow);
        self.promote()
    }

    /// A request that waited gives up; false if it runs already.
    pub fn give_up(&mut self, flow: &Arc<str>, number: u64) -> bool {
        let Some(state) = self.flows.get_mut(flow) else { return false };
        let Some(at) = state.queue.iter().position(|n| *n == number) else { return false };
        state.queue.remove(at);
        self.waiting -= 1;
        if state.queue.is_empty() {
            self.turns.retain(|f| f != flow);
        }
        self.forget(flow);
        true
    }

    /// Gives free seats to those who wait, a flow at a time.
    fn promote(&mut self) -> Vec<u64> {
        let mut promoted = Vec::new();
        let share = self.share();
        let mut passed = 0;
        while self.running < self.limits.seats && passed < self.turns.len() {
            let Some(flow) = self.turns.pop_front() else { break };
            let Some(state) = self.flows.get_mut(&flow) else { continue };
            if state.running >= share {
                passed += 1;
                self.turns.push_back(flow);
                continue;
            }
            if let Some(number) = state.queue.pop_front() {
                state.running += 1;
                self.running += 1;
                self.waiting -= 1;
                promoted.push(number);
            }
            if !state.queue.is_empty() {
                self.turns.push_back(flow);
            }
        }
        promoted
    }

    fn forget(&mut self, flow: &Arc<str>) {
        if self.flows.get(flow).is_some_and(|s| s.running == 0 && s.queue.is_empty()) {
            self.flows.remove(flow);
        }
    }
}

/// Makes requests wait for their turn.
pub struct Fair {
    limits: Limits,
    inner: Mutex<Inner>,
}

struct Inner {
    desk: Desk,
    waiting: HashMap<u64, oneshot::Sender<()>>,
    long: HashMap<Arc<str>, usize>,
}

/// No room, not even to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl Fair {
    /// With all seats free.
    pub fn new(limits: Limits) -> Arc<Fair> {
        let inner = Inner { desk: Desk::new(limits), waiting: HashMap::new(), long: HashMap::new() };
        Arc::new(Fair { limits, inner: Mutex::new(inner) })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a seat; it is free again when what is returned is dropped.
    pub async fn enter(self: &Arc<Fair>, flow: &str) -> Result<Seat, Full> {
        let flow: Arc<str> = flow.into();
        let (number, turn) = {
            let mut inner = self.lock();
            match inner.desk.arrive(&flow) {
                Arrival::Runs => return Ok(Seat { fair: self.clone(), flow }),
                Arrival::TurnedAway => return Err(Full),
                Arrival::Waits(number) => {
                    let (sender, receiver) = oneshot::channel();
                    inner.waiting.insert(number, sender);
                    (number, receiver)
                }
            }
        };
        // Dropped before its turn, when the client is gone or patience is over, it takes itself out of the queue.
        let mut place = Place { fair: self.clone(), flow: flow.clone(), number: Some(number) };
        match tokio::time::timeout(self.limits.patience, turn).await {
            Ok(Ok(())) => {
                place.number = None;
                Ok(Seat { fair: self.clone(), flow })
            }
            _ => Err(Full),
        }
    }

    /// Counts a long answer.
    pub fn begin_long(self: &Arc<Fair>, flow: &str) -> Result<Long, Full> {
        let flow: Arc<str> = flow.into();
        let mut inner = self.lock();
        let count = inner.long.entry(flow.clone()).or_default();
        if *count >= self.limits.long {
            return Err(Full);
        }
        *count += 1;
        drop(inner);
        Ok(Long { fair: self.clone(), flow })
    }

    fn leave(&self, flow: &Arc<str>) {
        let mut inner = self.lock();
        let mut promoted: VecDeque<u64> = inner.desk.leave(flow).into();
        while let Some(number) = promoted.pop_front() {
            // Whoever waits under the number takes itself out under this same lock, so somebody is there to be told.
            if let Some(sender) = inner.waiting.remove(&number) {
                let _ = sender.send(());
            }
        }
    }
}

/// A request's place among those that run.
pub struct Seat {
    fair: Arc<Fair>,
    flow: Arc<str>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.fair.leave(&self.flow);
    }
}

/// A request's place among those that wait.
struct Place {
    fair: Arc<Fair>,
    flow: Arc<str>,
    /// None once its turn has come.
    number: Option<u64>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mut inner = self.fair.lock();
        inner.waiting.remove(&number);
        let waited = inner.desk.give_up(&self.flow, number);
        drop(inner);
        if !waited {
            // Its turn came in this very moment: the seat goes to the next.
            self.fair.leave(&self.flow);
        }
    }
}

/// A long answer that goes on.
pub struct Long {
    fair: Arc<Fair>,
    flow: Arc<str>,
}

impl Drop for Long {
    fn drop(&mut self) {
        let mut inner = self.fair.lock();
        if let Some(count) = inner.long.get_mut(&self.flow) {
            *count -= 1;
            if *count == 0 {
                inner.long.remove(&self.flow);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn limits(seats: usize, queue: usize) -> Limits {
        Limits { seats, queue, ..Limits::default() }
    }

    /// Letters come; `-x` says that one of x ends. Out: for each step who runs, `(n)` waits, `!` is turned away.
    #[track_caller]
    fn check(limits: Limits, steps: &str, expected: &str) {
        let mut desk = Desk::new(limits);
        let mut out = Vec::new();
        for step in steps.split(' ') {
            out.push(match step.strip_prefix('-') {
                Some(flow) => format!("{:?}", desk.leave(&flow.into())),
                None => match desk.arrive(&step.into()) {
                    Arrival::Runs => step.to_string(),
                    Arrival::Waits(n) => format!("({n})"),
                    Arrival::TurnedAway => "!".into(),
                },
            });
        }
        assert_eq!(out.join(" "), expected, "{steps}");
    }

    #[test]
    fn turns_go_round() {
        check(limits(4, 9), "a a a a b", "a a a (0) b");
        // One flow's many do not come before another's one.
        check(limits(1, 9), "a a a a b -a -a -b", "a (0) (1) (2) (3) [0] [3] [1]");
        check(limits(1, 2), "a a a a b", "a (0) (1) ! (2)");
        // A flow that has its share waits though seats are free, until it has less.
        check(limits(4, 9), "a a a a -a -a", "a a a (0) [0] []");
        check(limits(4, 9), "a a a a b c -b", "a a a (0) b (1) [1]");
    }

    #[test]
    fn giving_up_leaves_no_trace() {
        let mut desk = Desk::new(limits(1, 9));
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        desk.arrive(&a);
        assert_eq!(desk.arrive(&b), Arrival::Waits(0));
        assert!(desk.give_up(&b, 0));
        assert!(!desk.give_up(&b, 0));
        assert_eq!(desk.leave(&a), Vec::<u64>::new());
        assert!(desk.flows.is_empty() && desk.turns.is_empty() && desk.waiting == 0 && desk.running == 0);
    }

    proptest! {
        #[test]
        fn seats_and_queues_add_up(steps in prop::collection::vec((0..4u8, 0..3u8), 0..120), seats in 1usize..6) {
            let mut desk = Desk::new(limits(seats, 5));
            let mut running: Vec<Arc<str>> = Vec::new();
            let mut waiting: HashMap<u64, Arc<str>> = HashMap::new();
            for (flow, what) in steps {
                let flow: Arc<str> = flow.to_string().into();
                if what < 2 {
                    match desk.arrive(&flow) {
                        Arrival::Runs => running.push(flow),
                        Arrival::Waits(n) => { waiting.insert(n, flow); }
                        Arrival::TurnedAway => {}
                    }
                } else if let Some(at) = running.iter().position(|f| *f == flow) {
                    running.remove(at);
                    for n in desk.leave(&flow) {
                        running.push(waiting.remove(&n).unwrap());
                    }
                }
                prop_assert!(running.len() <= seats);
                prop_assert_eq!((desk.running, desk.waiting), (running.len(), waiting.len()));
                // A seat is free only while nobody waits who may have it.
                let held = |f: &Arc<str>| running.iter().filter(|r| *r == f).count();
                prop_assert!(running.len() == seats || waiting.values().all(|f| held(f) >= desk.share()));
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_gives_up_frees_its_place() {
        let fair = Fair::new(Limits { seats: 1, patience: Duration::from_secs(1), ..Limits::default() });
        let seat = fair.enter("a").await.unwrap();
        assert!(fair.enter("b").await.is_err());
        let waiting = tokio::spawn({
            let fair = fair.clone();
            async move { fair.enter("c").await.map(|_| ()) }
        });
        tokio::task::yield_now().await;
        waiting.abort();
        let _ = waiting.await;
        drop(seat);
        assert!(fair.enter("d").await.is_ok());
        let inner = fair.lock();
        assert!(inner.waiting.is_empty() && inner.desk.flows.is_empty());
    }
}
