//! A queue of keys to look at again.
//!
//! In: keys, now or after a while. Out: each key once, however often it was added; never the same key to two workers.
//! Must stay true: a key added while it is worked on is handed out again afterwards; a failure comes back after a
//! wait that doubles. What was begun goes before what is new, so that ten thousand new keys do not lie half done, but
//! never so that the new ones wait for ever. A request that the server refuses is said in the log, and not at every retry.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::ApiError;

pub struct Queue<K> {
    state: Mutex<State<K>>,
    wake: Notify,
}

/// So many keys that were begun are handed out for each new one that waits.
const BEGUN_PER_NEW: u8 = 4;

struct State<K> {
    /// Keys that were just added.
    new: VecDeque<K>,
    /// Keys whose appointment has come, or that changed while they were worked on.
    begun: VecDeque<K>,
    /// How many of `begun` were handed out since the last of `new`.
    in_a_row: u8,
    /// Keys in `new` and `begun`, and keys that changed while they were worked on; with whether it is in `begun`. One that went from `new`
    /// to `begun` leaves its old place behind, which means nothing any more.
    wanted: HashMap<K, bool>,
    working: HashSet<K>,
    delayed: BTreeMap<(Instant, u64), K>,
    delayed_until: HashMap<K, (Instant, u64)>,
    next_seq: u64,
    failures: HashMap<K, u32>,
}

/// What a look at a key ended with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Nothing to do until something changes.
    Idle,
    /// Look again then, even if nothing changes.
    After(Duration),
}

impl Next {
    /// The sooner of two.
    pub fn or(self, other: Next) -> Next {
        match (self, other) {
            (Next::After(a), Next::After(b)) => Next::After(a.min(b)),
            (Next::Idle, next) | (next, Next::Idle) => next,
        }
    }
}

impl<K: Clone + Eq + Hash> Queue<K> {
    pub fn new() -> Arc<Self> {
        Arc::new(Queue {
            state: Mutex::new(State {
                new: VecDeque::new(),
                begun: VecDeque::new(),
                in_a_row: 0,
                wanted: HashMap::new(),
                working: HashSet::new(),
                delayed: BTreeMap::new(),
                delayed_until: HashMap::new(),
                next_seq: 0,
                failures: HashMap::new(),
            }),
            wake: Notify::new(),
        })
    }

    pub fn add(&self, key: K) {
        self.lock().add(key);
        self.wake.notify_one();
    }

    /// Adds the key after a while; an earlier appointment of the same key stands.
    pub fn add_after(&self, key: K, wait: Duration) {
        if wait.is_zero() {
            return self.add(key);
        }
        // A far future that tokio's clock cannot say is as good as a day.
        let at =
            Instant::now().checked_add(wait).unwrap_or_else(|| Instant::now() + Duration::from_secs(86_400));
        {
            let mut state = self.lock();
            if let Some(known) = state.delayed_until.get(&key).copied() {
                if known.0 <= at {
                    return;
                }
                state.delayed.remove(&known);
            }
            let slot = (at, state.next_seq);
            state.next_seq += 1;
            state.delayed.insert(slot, key.clone());
            state.delayed_until.insert(key, slot);
        }
        self.wake.notify_one();
    }

    /// The next key; it must be given back with `done`.
    pub async fn next(&self) -> K {
        loop {
            let until = {
                let mut state = self.lock();
                state.promote(Instant::now());
                if let Some(key) = state.pop() {
                    state.wanted.remove(&key);
                    state.working.insert(key.clone());
                    return key;
                }
                state.delayed.keys().next().map(|(at, _)| *at)
            };
            match until {
                Some(at) => {
                    // Whichever comes first; either way the state is looked at again.
                    let _ = tokio::time::timeout_at(at, self.wake.notified()).await;
                }
                None => self.wake.notified().await,
            }
        }
    }

    /// Ends the work on a key. `retry`: it failed and must come back after its own wait, or the given one.
    pub fn done(&self, key: &K, retry: Option<Option<Duration>>) {
        let wait = {
            let mut state = self.lock();
            state.working.remove(key);
            if let Some(begun) = state.wanted.get_mut(key) {
                *begun = true;
                state.begun.push_back(key.clone());
            }
            match retry {
                None => {
                    state.failures.remove(key);
                    None
                }
                Some(asked) => {
                    let failures = state.failures.entry(key.clone()).or_insert(0);
                    *failures = failures.saturating_add(1);
                    Some(asked.unwrap_or_else(|| failure_wait(*failures)))
                }
            }
        };
        match wait {
            Some(wait) => self.add_after(key.clone(), wait),
            None => self.wake.notify_one(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + Eq + Hash> State<K> {
    fn add(&mut self, key: K) {
        if !self.wanted.contains_key(&key) {
            self.wanted.insert(key.clone(), false);
            if !self.working.contains(&key) {
                self.new.push_back(key);
            }
        }
    }

    fn pop(&mut self) -> Option<K> {
        if self.in_a_row < BEGUN_PER_NEW || self.new.is_empty() {
            let key = self.begun.pop_front();
            if key.is_some() {
                self.in_a_row = self.in_a_row.saturating_add(1);
                return key;
            }
        }
        self.in_a_row = 0;
        while let Some(key) = self.new.pop_front() {
            if self.wanted.get(&key) == Some(&false) && !self.working.contains(&key) {
                return Some(key);
            }
        }
        self.begun.pop_front()
    }

    fn promote(&mut self, now: Instant) {
        while let Some(entry) = self.delayed.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let key = entry.remove();
            self.delayed_until.remove(&key);
            if self.working.contains(&key) {
                self.wanted.entry(key).or_insert(false);
            } else if self.wanted.insert(key.clone(), true) != Some(true) {
                self.begun.push_back(key);
            }
        }
    }
}

/// 10 ms, 20 ms, ... 30 s.
fn failure_wait(failures: u32) -> Duration {
    let wait = Duration::from_millis(10) * 2_u32.pow(failures.saturating_sub(1).min(12));
    wait.min(Duration::from_secs(30))
}

/// A refusal is said again when it still comes after so long.
const SAY_AGAIN: Duration = Duration::from_secs(600);
/// So many refusals are said in that time; ten thousand objects that are all refused need not be ten thousand lines.
const MOST_SAID: usize = 20;

/// What was said of refused requests lately.
#[derive(Default)]
struct Said {
    messages: HashMap<String, Instant>,
    /// When more came than are said.
    too_many: Option<Instant>,
}

#[derive(Debug, PartialEq, Eq)]
enum Say {
    Nothing,
    Message,
    /// That there are more, which are not said.
    More,
}

impl Said {
    fn hear(&mut self, message: &str, now: Instant) -> Say {
        let fresh = |since: Instant| now < since + SAY_AGAIN;
        if self.messages.get(message).copied().is_some_and(fresh) {
            return Say::Nothing;
        }
        self.messages.retain(|_, since| fresh(*since));
        if self.messages.len() < MOST_SAID {
            self.messages.insert(message.to_owned(), now);
            return Say::Message;
        }
        if self.too_many.is_some_and(fresh) {
            return Say::Nothing;
        }
        self.too_many = Some(now);
        Say::More
    }
}

/// Whether the server will go on saying no until somebody changes something. What another writer, a full server or an object that is
/// gone leads to passes by itself.
fn is_refused(error: &ApiError) -> bool {
    (400..500).contains(&error.code()) && !matches!(error.code(), 404 | 408..=410 | 429)
}

/// Works on the keys of a queue until cancelled, on `n_workers` keys at a time.
pub async fn work<K, F, Fut>(
    name: &'static str,
    queue: Arc<Queue<K>>,
    n_workers: usize,
    cancel: CancellationToken,
    look: F,
) where
    K: Clone + Eq + Hash + std::fmt::Debug,
    F: Fn(K) -> Fut,
    Fut: Future<Output = Result<Next, ApiError>>,
{
    let said = &Mutex::new(Said::default());
    let mut running = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            Some(()) = running.next(), if !running.is_empty() => {}
            key = queue.next(), if running.len() < n_workers => {
                let queue = queue.clone();
                let attempt = look(key.clone());
                running.push(async move {
                    match attempt.await {
                        Ok(Next::Idle) => queue.done(&key, None),
                        Ok(Next::After(wait)) => {
                            queue.done(&key, None);
                            queue.add_after(key, wait);
                        }
                        Err(error) => {
                            tell(name, &key, &error, said);
                            queue.done(&key, Some(error.retry_after()));
                        }
                    }
                });
            }
        }
    }
}

fn tell<K: std::fmt::Debug>(controller: &str, key: &K, error: &ApiError, said: &Mutex<Said>) {
    tracing::debug!(controller, ?key, %error, "will try again");
    if !is_refused(error) {
        return;
    }
    let reason = error.message();
    match said.lock().unwrap_or_else(PoisonError::into_inner).hear(&reason, Instant::now()) {
        Say::Nothing => {}
        Say::Message => tracing::warn!(controller, ?key, %error, reason, "was refused; will try again"),
        Say::More => tracing::warn!(controller, "more requests were refused than are said here"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn drain(queue: &Queue<&'static str>) -> Vec<&'static str> {
        let mut out = Vec::new();
        while let Ok(key) = tokio::time::timeout(Duration::from_nanos(1), queue.next()).await {
            out.push(key);
        }
        out
    }

    #[tokio::test(start_paused = true)]
    async fn hands_each_key_out_once() {
        let queue = Queue::new();
        queue.add("a");
        queue.add("b");
        queue.add("a");
        assert_eq!(drain(&queue).await, ["a", "b"]);
        queue.add("a");
        assert!(drain(&queue).await.is_empty(), "a is being worked on");
        queue.done(&"a", None);
        assert_eq!(drain(&queue).await, ["a"]);
        queue.done(&"a", None);
        assert!(drain(&queue).await.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn keeps_the_earliest_appointment() {
        let queue = Queue::new();
        queue.add_after("a", Duration::from_secs(10));
        queue.add_after("a", Duration::from_secs(5));
        queue.add_after("a", Duration::from_secs(20));
        let start = Instant::now();
        assert_eq!(queue.next().await, "a");
        assert_eq!(start.elapsed(), Duration::from_secs(5));
        queue.done(&"a", None);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(drain(&queue).await.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_begun_goes_first_and_what_is_new_is_not_forgotten() {
        let queue = Queue::new();
        for key in ["a", "b", "c", "d", "e", "f"] {
            queue.add_after(key, Duration::from_secs(1));
        }
        queue.add("x");
        queue.add("y");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(drain(&queue).await, ["a", "b", "c", "d", "x", "e", "f", "y"]);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_wait_longer_and_longer() {
        let queue = Queue::new();
        queue.add("a");
        let mut waits = Vec::new();
        let mut last = Instant::now();
        for _ in 0..4 {
            let key = queue.next().await;
            waits.push(last.elapsed().as_millis());
            last = Instant::now();
            queue.done(&key, Some(None));
        }
        assert_eq!(waits, [0, 10, 20, 40]);
    }

    #[test]
    fn the_longest_wait() {
        assert_eq!(failure_wait(u32::MAX), Duration::from_secs(30));
    }

    #[test]
    fn refusals_are_said_once_in_a_while() {
        let mut said = Said::default();
        let start = Instant::now();
        assert_eq!(said.hear("a is forbidden", start), Say::Message);
        assert_eq!(said.hear("a is forbidden", start + Duration::from_secs(1)), Say::Nothing);
        assert_eq!(said.hear("b is forbidden", start + Duration::from_secs(1)), Say::Message);
        assert_eq!(said.hear("a is forbidden", start + SAY_AGAIN), Say::Message);
        assert_eq!(said.hear("a is forbidden", start + SAY_AGAIN), Say::Nothing);
        assert_eq!(said.hear("b is forbidden", start + SAY_AGAIN), Say::Nothing);

        let mut said = Said::default();
        let flood = (0..1000).map(|i| said.hear(&format!("{i} is forbidden"), start)).collect::<Vec<_>>();
        assert_eq!(flood.iter().filter(|say| **say == Say::Message).count(), MOST_SAID);
        assert_eq!(flood.iter().filter(|say| **say == Say::More).count(), 1);
        assert_eq!(said.hear("1000 is forbidden", start + SAY_AGAIN), Say::Message);
    }

    fn answer(code: u16, reason: &str) -> ApiError {
        let status =
            kube::core::Status::failure(r#"pods "a" is forbidden: nobody may"#, reason).with_code(code);
        let source = Box::new(kube::Error::Api(Box::new(status)));
        ApiError::Request { verb: "patch", what: "Pod ns/a".to_owned(), source }
    }

    #[test]
    fn what_is_a_refusal() {
        for (code, reason, expected) in [
            (403, "Forbidden", true),
            (401, "Unauthorized", true),
            (422, "Invalid", true),
            (404, "NotFound", false),
            (409, "Conflict", false),
            (409, "AlreadyExists", false),
            (410, "Gone", false),
            (429, "TooManyRequests", false),
            (500, "InternalError", false),
        ] {
            assert_eq!(is_refused(&answer(code, reason)), expected, "{code}");
        }
        assert!(!is_refused(&ApiError::TimedOut { verb: "patch", what: "Pod ns/a".to_owned() }));
    }

    /// What is logged goes here.
    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_is_refused_is_in_the_log_once() {
        let paper = Paper::default();
        let writer = paper.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::WARN)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        let _logged = tracing::subscriber::set_default(subscriber);
        let queue = Queue::new();
        queue.add("a");
        queue.add("b");
        let cancel = CancellationToken::new();
        let n_tries = &std::cell::Cell::new(0);
        let refused = work("test", queue, 1, cancel.clone(), |key| async move {
            n_tries.set(n_tries.get() + 1);
            Err(if key == "a" { answer(403, "Forbidden") } else { answer(409, "Conflict") })
        });
        let _ = tokio::time::timeout(Duration::from_secs(60), refused).await;
        assert!(n_tries.get() > 10, "{}", n_tries.get());
        let log = String::from_utf8(paper.0.lock().unwrap().clone()).unwrap();
        assert_eq!(log.lines().count(), 1, "{log}");
        for word in ["WARN", "test", "nobody may", "\"a\""] {
            assert!(log.contains(word), "{log}");
        }
    }
}
