//! The front door of the API server: who asked for what, and what became of it.
//!
//! In: requests of one process. Out: the server's answers, and a journal of everything that was asked. Pods that are to be named by the
//! server get names from a counter, so that a run can be repeated.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use muster_apiserver::ApiServer;
use muster_sim::faults::Target;
use serde_json::Value;
use tower::{BoxError, Service};

use crate::random::Random;

/// Users and the auditor.
pub const USER: &str = "user";

/// How what concerns pods that ask autoscalers is marked.
pub const SCALING: &str = " for scaling";

/// One write.
#[derive(Debug, Clone)]
pub struct Entry {
    pub at: Duration,
    pub who: &'static str,
    pub what: String,
    pub status: u16,
    /// What was sent, where it is short enough to read.
    pub body: String,
}

#[derive(Debug, Default)]
struct Pages {
    writes: VecDeque<Entry>,
    /// How often each process asked for each verb and resource.
    counts: BTreeMap<(&'static str, String), u64>,
    n_named: u64,
    /// The ten seconds of the last request, and what was asked in them.
    moment: u64,
    in_it: BTreeMap<(&'static str, String), u64>,
    n_in_it: u64,
    frenzy: Option<String>,
}

/// More requests than this in ten seconds: somebody asks again and again without waiting.
const FRENZY: u64 = 20_000;

/// How long the server takes for an answer, where no turns take time. Without it, two programs that answer each other could keep virtual
/// time from going on.
const READ: Duration = Duration::from_millis(1);
const WRITE: Duration = Duration::from_millis(2);

/// What was asked so far; clones are the same journal.
#[derive(Debug, Clone)]
pub struct Journal {
    pages: Arc<Mutex<Pages>>,
    begun: tokio::time::Instant,
    /// How many writes are remembered.
    remembered: usize,
}

impl Journal {
    pub fn new(remembered: usize) -> Self {
        Journal { pages: Arc::default(), begun: tokio::time::Instant::now(), remembered }
    }

    pub fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    fn with<R>(&self, look: impl FnOnce(&mut Pages) -> R) -> R {
        look(&mut self.pages.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Somebody asked again and again without waiting.
    pub fn frenzy(&self) -> Option<String> {
        self.with(|pages| pages.frenzy.clone())
    }

    /// Counts a request.
    fn count(&self, who: &'static str, target: &Target, path: &str) {
        let now = self.now().as_secs() / 10;
        self.with(|pages| {
            if pages.moment != now {
                pages.moment = now;
                pages.in_it.clear();
                pages.n_in_it = 0;
            }
            pages.n_in_it += 1;
            if pages.n_in_it > FRENZY / 2 {
                *pages.in_it.entry((who, format!("{} {path}", target.verb))).or_default() += 1;
            }
            if pages.n_in_it == FRENZY {
                let mut most: Vec<(u64, String)> =
                    pages.in_it.iter().map(|((who, what), n)| (*n, format!("{who} {what} x {n}"))).collect();
                most.sort();
                let most: Vec<String> = most.into_iter().rev().take(6).map(|(_, text)| text).collect();
                pages.frenzy = Some(format!("{FRENZY} requests in ten seconds: {}", most.join(", ")));
            }
        });
    }

    /// How often each process asked for each verb and resource, and starts counting again.
    pub fn take_counts(&self) -> BTreeMap<(&'static str, String), u64> {
        self.with(|pages| std::mem::take(&mut pages.counts))
    }

    /// The last writes that have to do with something of this name.
    pub fn about(&self, name: &str, most: usize) -> Vec<String> {
        self.with(|pages| {
            let about = pages
                .writes
                .iter()
                .rev()
                .filter(|entry| entry.what.contains(name) || entry.body.contains(name));
            let mut lines: Vec<String> = about.take(most).map(Entry::line).collect();
            lines.reverse();
            lines
        })
    }

    /// A number that stands for everything that was written, in its order.
    pub fn digest(&self) -> u64 {
        self.with(|pages| {
            let lines = pages.writes.iter().map(Entry::course);
            lines.fold(0xcbf2_9ce4_8422_2325, |hash, line| {
                line.bytes().fold(hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
            })
        })
    }

    /// Everything that is remembered, for comparing two runs.
    pub fn lines(&self) -> Vec<String> {
        self.with(|pages| pages.writes.iter().map(Entry::course).collect())
    }

    /// The next name that begins with this.
    fn name(&self, base: &str) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let n = self.with(|pages| {
            pages.n_named += 1;
            pages.n_named
        });
        let mut rest = Random::new(n).number();
        let suffix: String = (0..5)
            .map(|_| {
                let letter = LETTERS[(rest % LETTERS.len() as u64) as usize];
                rest /= LETTERS.len() as u64;
                char::from(letter)
            })
            .collect();
        format!("{base}{suffix}")
    }

    fn write(&self, who: &'static str, target: &Target, what: String, status: u16, body: String) {
        let at = self.now();
        self.with(|pages| {
            // Pods that ask autoscalers for a GPU come and go for as long as somebody waits.
            let scaling = if what.contains("/kai-scale-adjust/") { SCALING } else { "" };
            *pages
                .counts
                .entry((who, format!("{} {}{scaling}", target.verb, target.resource)))
                .or_default() += 1;
            let heartbeat = target.resource == "leases";
            if matches!(target.verb.as_str(), "get" | "list" | "watch") || heartbeat {
                return;
            }
            pages.writes.push_back(Entry { at, who, what, status, body });
            if pages.writes.len() > self.remembered {
                pages.writes.pop_front();
            }
        });
    }
}

impl Entry {
    /// What must be the same in every run of a seed: the server's uids are not.
    fn course(&self) -> String {
        let Entry { at, who, what, status, .. } = self;
        let mut course = format!("{:.3} {who} {status} ", at.as_secs_f64());
        let mut rest = what.as_str();
        while let Some(dash) = rest.find('-') {
            let from = dash.saturating_sub(8);
            match rest.get(from..from + 36).filter(|text| is_uid(text)) {
                Some(_) => {
                    course.push_str(rest.get(..from).unwrap_or_default());
                    course.push_str("<uid>");
                    rest = rest.get(from + 36..).unwrap_or_default();
                }
                None => {
                    course.push_str(rest.get(..=dash).unwrap_or_default());
                    rest = rest.get(dash + 1..).unwrap_or_default();
                }
            }
        }
        course.push_str(rest);
        course
    }

    fn line(&self) -> String {
        let Entry { at, who, what, status, body } = self;
        format!("{:9.3} {who:11} {status} {what} {body}", at.as_secs_f64())
    }
}

/// The server as one process sees it.
#[derive(Clone)]
pub struct Front {
    pub server: ApiServer,
    pub journal: Journal,
    pub who: &'static str,
    /// Answers take a while.
    pub slow: bool,
}

impl Service<Request<Body>> for Front {
    type Response = Response<muster_apiserver::Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Service::<Request<Body>>::poll_ready(&mut self.server, cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Front { mut server, journal, who, slow } = self.clone();
        Box::pin(async move {
            let uri = request.uri().clone();
            let target = Target::of(request.method(), uri.path(), uri.query().unwrap_or(""));
            journal.count(who, &target, uri.path());
            let reads = request.method() == Method::GET;
            if slow {
                tokio::time::sleep(if reads { READ } else { WRITE }).await;
            }
            let what = if reads { String::new() } else { format!("{} {}", request.method(), uri.path()) };
            let (request, said) = if reads {
                (request, String::new())
            } else {
                let (parts, body) = request.into_parts();
                let mut bytes = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
                if target.verb == "create" && target.resource == "pods" {
                    bytes = named(&journal, bytes);
                }
                let said = if bytes.len() <= 600 {
                    String::from_utf8_lossy(&bytes).into_owned()
                } else {
                    short(&bytes)
                };
                (Request::from_parts(parts, Body::from(bytes.to_vec())), said)
            };
            let answer = Service::<Request<Body>>::call(&mut server, request).await;
            let status = answer.as_ref().map_or(0, |answer| answer.status().as_u16());
            journal.write(who, &target, what, status, said);
            answer.map_err(Into::into)
        })
    }
}

fn is_uid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// The name of an object that is too long to be read.
fn short(bytes: &Bytes) -> String {
    let value: Value = serde_json::from_slice(bytes).unwrap_or_default();
    value["metadata"]["name"].as_str().unwrap_or("...").to_owned()
}

/// A pod that is to be named by the server, named.
fn named(journal: &Journal, bytes: Bytes) -> Bytes {
    let Ok(mut pod) = serde_json::from_slice::<Value>(&bytes) else { return bytes };
    let metadata = &mut pod["metadata"];
    let Some(base) = metadata["generateName"].as_str().filter(|_| metadata["name"].is_null()) else {
        return bytes;
    };
    metadata["name"] = journal.name(base).into();
    Bytes::from(pod.to_string())
}
