//! Followers of servers that refuse, do not know, or break off: what is said, and how often they ask. On paused time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use muster_runtime::api::Scope;
use muster_runtime::follow::{Collection, Seen, follow, follow_optional};
use muster_runtime::object::Meta;
use muster_runtime::{Api, Client, Store};
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How a server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// A list with one object in it, and watches on which nothing happens.
    One,
    /// The same list, and watches that say at once that the list is too old.
    Expired,
    /// The same list, and watches that are refused as too old.
    Gone,
    Refuses(u16),
}

type Requests = Arc<Mutex<Vec<Instant>>>;

/// A client of a server that answers as `now` says, and when lists were asked for.
fn client(now: Arc<Mutex<Answer>>) -> (Client, Requests) {
    let lists = Requests::default();
    let server = {
        let lists = lists.clone();
        tower::service_fn(move |request: http::Request<Full<Bytes>>| {
            let answer = *now.lock().unwrap();
            let is_watch = request.uri().query().unwrap_or_default().contains("watch=true");
            if !is_watch {
                lists.lock().unwrap().push(Instant::now());
            }
            async move {
                let status = |code: u16| json!({"kind": "Status", "status": "Failure", "message": "no", "reason": "No", "code": code});
                let (code, body) = match (answer, is_watch) {
                    (Answer::Refuses(code), _) => (code, status(code)),
                    (Answer::Gone, true) => (410, status(410)),
                    (Answer::Expired, true) => (200, json!({"type": "ERROR", "object": status(410)})),
                    (Answer::One, true) => {
                        // Longer than any test asks.
                        tokio::time::sleep(Duration::from_secs(20)).await;
                        (200, json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "2"}}}))
                    }
                    (_, false) => {
                        let meta =
                            json!({"namespace": "ns", "name": "a", "uid": "1", "resourceVersion": "1"});
                        (200, json!({"metadata": {"resourceVersion": "1"}, "items": [{"metadata": meta}]}))
                    }
                };
                let body = Full::new(Bytes::from(body.to_string() + "\n"));
                http::Response::builder().status(code).body(body)
            }
        })
    };
    (Client::near(server), lists)
}

/// A follower, the answers of its server, and the second at which it said what.
struct Following {
    answer: Arc<Mutex<Answer>>,
    lists: Requests,
    said: Arc<Mutex<Vec<String>>>,
    _ends: tokio_util::sync::DropGuard,
}

fn following(first: Answer, is_optional: bool) -> Following {
    let answer = Arc::new(Mutex::new(first));
    let (client, lists) = client(answer.clone());
    let said: Arc<Mutex<Vec<String>>> = Arc::default();
    let (begun, cancel) = (Instant::now(), CancellationToken::new());
    let sink = {
        let said = said.clone();
        move |seen: Seen<'_>| {
            let what = match seen {
                Seen::Put { .. } => "put",
                Seen::Gone { .. } => "gone",
                Seen::Synced => "synced",
                Seen::Absent => "absent",
            };
            said.lock().unwrap().push(format!("{what}@{}", begun.elapsed().as_secs()));
        }
    };
    let (api, collection) = (Api::new(client, "test"), Collection::new("/apis/g/v1/things"));
    let (resync, ends) = (Duration::from_secs(60), cancel.clone());
    if is_optional {
        tokio::spawn(follow_optional(api, collection, resync, ends, sink));
    } else {
        tokio::spawn(follow(api, collection, resync, ends, sink));
    }
    Following { answer, lists, said, _ends: cancel.drop_guard() }
}

impl Following {
    async fn pass(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    fn answers(&self, answer: Answer) {
        *self.answer.lock().unwrap() = answer;
    }

    fn said(&self) -> String {
        std::mem::take(&mut *self.said.lock().unwrap()).join(" ")
    }

    fn n_lists(&self) -> usize {
        std::mem::take(&mut *self.lists.lock().unwrap()).len()
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_installed_later_is_noticed_within_two_minutes() {
    let world = following(Answer::Refuses(404), false);
    world.pass(601).await;
    assert_eq!(world.said(), "absent@0", "said once");
    // At 0, 10, 30, 70, 150 s and every two minutes from then on.
    assert_eq!(world.n_lists(), 8);
    world.answers(Answer::One);
    world.pass(30).await;
    assert_eq!(world.said(), "put@630 synced@630");
}

#[tokio::test(start_paused = true)]
async fn that_everything_is_gone_is_believed_when_it_is_said_twice() {
    let world = following(Answer::One, false);
    world.pass(1).await;
    assert_eq!(world.said(), "put@0 synced@0");
    // A server that has just begun does not know the kind for a moment: the watch ends at 20 s, and the list is refused.
    world.answers(Answer::Refuses(404));
    world.pass(24).await;
    assert_eq!(world.said(), "");
    world.answers(Answer::One);
    world.pass(10).await;
    assert_eq!(world.said(), "synced@30", "nothing was told as gone");
    world.answers(Answer::Refuses(404));
    world.pass(24).await;
    assert_eq!(world.said(), "");
    world.pass(10).await;
    assert_eq!(world.said(), "gone@60 absent@60");
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_one_can_do_without_may_be_refused() {
    let needed = following(Answer::Refuses(403), false);
    let optional = following(Answer::Refuses(403), true);
    needed.pass(300).await;
    assert_eq!(needed.said(), "", "whoever needs it waits");
    assert_eq!(optional.said(), "absent@0");
    assert!(optional.n_lists() <= 8, "it asks less and less often");
    optional.answers(Answer::One);
    optional.pass(120).await;
    assert!(optional.said().starts_with("put@"), "and goes on asking");
    // What is known is not gone because nobody may look at it any more.
    optional.answers(Answer::Refuses(403));
    optional.pass(300).await;
    assert_eq!(optional.said(), "");
}

#[derive(Deserialize, Default)]
struct Thing {
    metadata: Meta,
}

muster_runtime::kinds! {
    Thing = "g" "v1" "Thing" "things";
}

#[tokio::test(start_paused = true)]
async fn lists_do_not_follow_each_other_without_end_where_watches_break_off() {
    for answer in [Answer::Expired, Answer::Gone] {
        let world = following(answer, false);
        world.pass(100).await;
        let n = world.n_lists();
        assert!((5..25).contains(&n), "{answer:?}: {n} lists in 100 s");

        let (client, lists) = client(Arc::new(Mutex::new(answer)));
        let store = Store::<Thing>::new(Api::new(client, "test"), Scope::default());
        let cancel = CancellationToken::new();
        tokio::spawn(store.clone().run(Duration::from_secs(60), cancel.clone()));
        world.pass(100).await;
        assert_eq!(store.len(), 1);
        let n = lists.lock().unwrap().len();
        assert!((5..25).contains(&n), "{answer:?}: {n} lists of a store in 100 s");
        cancel.cancel();
    }
}
