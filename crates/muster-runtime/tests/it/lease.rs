//! Who holds a lease, and when: contenders on one server, on one virtual clock.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http_body_util::{BodyExt, Full};
use muster_apiserver::ApiServer;
use muster_runtime::api::{Delete, Patch};
use muster_runtime::lease::{
    Claim, ClaimError, Claimed, Fence, HELD_FOR, Held, Lease, Lost, SCHEDULER_NAME, claim, other_holder,
};
use muster_runtime::{Api, Client, Clock, Key, Metrics};
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::Service;

/// What a bad day does to requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weather {
    Fine,
    /// The server says 500.
    Refused,
    /// No answer comes, and nothing is done.
    Silent,
    /// It is done, but the answer is lost.
    Deaf,
    /// It takes so many milliseconds before the server has it.
    Slow(u64),
    /// The server says 403 to lists.
    Forbidden,
}

/// A server and the way to it of one contender.
#[derive(Clone)]
struct Way {
    server: ApiServer,
    weather: Arc<Mutex<Weather>>,
    /// Of requests that were sent.
    log: Arc<Mutex<Vec<String>>>,
}

impl Service<http::Request<kube::client::Body>> for Way {
    type Response = http::Response<muster_apiserver::Body>;
    type Error = tower::BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<kube::client::Body>) -> Self::Future {
        let weather = *self.weather.lock().unwrap();
        let mut server = self.server.clone();
        let what = format!("{} {}", request.method(), request.uri().path());
        self.log.lock().unwrap().push(what.clone());
        async move {
            match weather {
                Weather::Slow(millis) => {
                    tokio::time::sleep(Duration::from_millis(millis)).await;
                    Ok(server.call(request).await?)
                }
                Weather::Forbidden
                    if what.starts_with("GET ") && (what.ends_with("/leases") || what.ends_with("/pods")) =>
                {
                    let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no",
                        "reason": "Forbidden", "code": 403});
                    let body = Full::new(Bytes::from(body.to_string())).boxed_unsync();
                    Ok(http::Response::builder().status(403).body(body)?)
                }
                Weather::Forbidden => Ok(server.call(request).await?),
                Weather::Fine => Ok(server.call(request).await?),
                Weather::Refused => Err("refused".into()),
                Weather::Silent => std::future::pending().await,
                Weather::Deaf => {
                    let _ = server.call(request).await?;
                    Err("the answer was lost".into())
                }
            }
        }
        .boxed()
    }
}

struct World {
    server: ApiServer,
    clock: Clock,
    start: Instant,
    log: Arc<Mutex<Vec<String>>>,
}

impl World {
    async fn new() -> World {
        let base = "2026-01-01T00:00:00Z".parse().unwrap();
        let server = ApiServer::new(muster_apiserver::Options {
            clock: muster_apiserver::Clock::starting_at(base),
            ..muster_apiserver::Options::default()
        });
        let clock = Clock::starting_at(base);
        let world = World { server, clock, start: Instant::now(), log: Arc::default() };
        for namespace in ["muster", "other", "kai-scheduler", "volcano-system"] {
            let body = json!({"metadata": {"name": namespace}});
            world.api().create_path("/api/v1/namespaces", &body).await.unwrap();
        }
        world
    }

    fn api(&self) -> Api {
        self.way().0
    }

    fn way(&self) -> (Api, Arc<Mutex<Weather>>) {
        let weather = Arc::new(Mutex::new(Weather::Fine));
        let way = Way { server: self.server.clone(), weather: weather.clone(), log: self.log.clone() };
        (Api::new(kube::Client::new(way, "default"), "test"), weather)
    }

    fn lease(&self, identity: &str) -> Lease {
        Lease::new(self.api(), self.clock, Key::new("muster", "work"), identity)
    }

    /// A contender whose way to the server can be disturbed.
    fn exposed(&self, identity: &str) -> (Lease, Arc<Mutex<Weather>>) {
        let (api, weather) = self.way();
        (Lease { api, ..self.lease(identity) }, weather)
    }

    async fn stored(&self, path: &str) -> Value {
        self.api().get_path(&format!("/apis/coordination.k8s.io/v1/namespaces/{path}")).await.unwrap()
    }

    async fn holder(&self) -> String {
        self.stored("muster/leases/work").await["spec"]["holderIdentity"].as_str().unwrap().to_owned()
    }

    /// Seconds since the start.
    fn now(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }
}

fn key() -> Key {
    Key::new("muster", "work")
}

async fn seconds(n: f64) {
    tokio::time::sleep(Duration::from_secs_f64(n)).await;
}

/// Whether `held` is lost by now.
fn lost(held: &Held) -> Option<Lost> {
    held.lost().now_or_never()
}

#[tokio::test(start_paused = true)]
async fn one_holds_and_the_other_waits() {
    let world = World::new().await;
    let a = world.lease("a").acquire(false).await;
    let waiting = tokio::spawn({
        let lease = world.lease("b");
        async move { lease.acquire(false).await }
    });
    seconds(300.0).await;
    assert!(a.is_held() && lost(&a).is_none());
    assert!(!waiting.is_finished());
    let lease = world.stored("muster/leases/work").await;
    assert_eq!(lease["spec"]["holderIdentity"], "a");
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 15);
    assert_eq!(lease["spec"]["leaseTransitions"], 0);
    assert!(lease["spec"]["acquireTime"].as_str().unwrap() < lease["spec"]["renewTime"].as_str().unwrap());
}

#[tokio::test(start_paused = true)]
async fn the_next_takes_over_after_a_release() {
    let world = World::new().await;
    let a = world.lease("a").acquire(false).await;
    let b = world.lease("b");
    let waiting = tokio::spawn(async move { b.acquire(false).await });
    seconds(20.0).await;
    a.release().await.unwrap();
    assert_eq!(world.holder().await, "");
    let released = world.now();
    let b = waiting.await.unwrap();
    assert!(world.now() - released <= 2.0, "{}", world.now() - released);
    assert!(b.is_held());
    assert_eq!(world.stored("muster/leases/work").await["spec"]["leaseTransitions"], 1);
}

#[tokio::test(start_paused = true)]
async fn who_leads_is_shown() {
    let world = World::new().await;
    let metrics = Metrics::default();
    let mut lease = world.lease("a");
    lease.api = lease.api.counted(metrics.clone());
    let leading = || metrics.process.leading.of([lease.key.name.as_str()]).get();
    assert_eq!(leading(), 0.0);
    let held = lease.acquire(false).await;
    seconds(1.0).await;
    assert_eq!(leading(), 1.0);
    held.release().await.unwrap();
    assert_eq!(leading(), 0.0);
    drop(lease.acquire(false).await);
    seconds(1.0).await;
    assert_eq!(leading(), 0.0, "a lease that is dropped");
}

#[tokio::test(start_paused = true)]
async fn a_dead_holder_is_waited_for() {
    let world = World::new().await;
    let a = world.lease("a").acquire(false).await;
    let b = world.lease("b");
    let waiting = tokio::spawn(async move { b.acquire(false).await });
    seconds(20.5).await;
    drop(a);
    let died = world.now();
    waiting.await.unwrap();
    // Since the last renewal that b saw, which is at most one round of a and one of b old.
    let waited = world.now() - died;
    assert!((11.0..=17.1).contains(&waited), "{waited}");
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_waits_in_full_whatever_the_clocks_say() {
    // Written by a holder whose clock is a day slow, or a day fast: only what is observed counts.
    for renewed in ["2025-12-31T00:00:00.000000Z", "2026-01-02T00:00:00.000000Z"] {
        let world = World::new().await;
        let body = json!({"metadata": {"name": "work"}, "spec": {
            "holderIdentity": "gone", "leaseDurationSeconds": 40, "renewTime": renewed, "acquireTime": renewed}});
        let path = "/apis/coordination.k8s.io/v1/namespaces/muster/leases";
        world.api().create_path(path, &body).await.unwrap();
        let begun = world.now();
        world.lease("b").acquire(false).await;
        let waited = world.now() - begun;
        assert!((40.0..40.1).contains(&waited), "{renewed}: {waited}");
    }
}

#[tokio::test(start_paused = true)]
async fn our_own_record_is_ours_at_once() {
    let world = World::new().await;
    drop(world.lease("pod-1").acquire(false).await);
    let begun = world.now();
    world.lease("pod-1").acquire(false).await;
    assert!(world.now() - begun < 0.1);
    assert_eq!(world.stored("muster/leases/work").await["spec"]["leaseTransitions"], 0);
}

/// A holder is cut off at 20 s; it says so before the other one may begin. Out: when it said so, when the other began.
async fn cut_off(weather: Weather) -> (f64, f64) {
    let world = World::new().await;
    let (lease, sky) = world.exposed("a");
    let a = lease.acquire(false).await;
    let b = world.lease("b");
    let waiting = tokio::spawn(async move {
        let held = b.acquire(false).await;
        (held, Instant::now())
    });
    seconds(20.3).await;
    *sky.lock().unwrap() = weather;
    let why = a.lost().await;
    let noticed = world.now();
    assert!(!a.is_held());
    assert!(matches!(why, Lost::NotRenewed { .. }), "{why}");
    let (b, began) = waiting.await.unwrap();
    assert!(b.is_held());
    (noticed, (began - world.start).as_secs_f64())
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_is_cut_off_stops_before_another_begins() {
    for weather in [Weather::Refused, Weather::Silent] {
        let (noticed, began) = cut_off(weather).await;
        // The last renewal was sent at 20 s.
        assert!((30.0..30.1).contains(&noticed), "{weather:?}: {noticed}");
        assert!((35.0..38.0).contains(&began), "{weather:?}: {began}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_under_a_lease_that_was_lost_while_the_process_stood_still() {
    let world = World::new().await;
    let (lease, sky) = world.exposed("a");
    let held = lease.acquire(false).await;
    let other = world.lease("a");
    let other = Lease { key: Key::new("muster", "other"), ..other }.acquire(false).await;
    let both = Fence::all([other.fence(), held.fence()]);
    let api = Api::new(Client::near(world.server.clone()).fenced(both), "test");
    let maps = "/api/v1/namespaces/muster/configmaps";
    let write = async |name: &str| {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        api.create_path(maps, &map).await.map(|_| ())
    };
    seconds(30.0).await;
    write("a").await.unwrap();
    // As after a SIGSTOP: what was decided before is written before anybody has noticed what time it is.
    *sky.lock().unwrap() = Weather::Silent;
    tokio::time::advance(Duration::from_secs(20)).await;
    let error = write("b").await.unwrap_err();
    assert!(error.fenced() && error.code() == 0, "{error}");
    assert!(error.to_string().contains("no longer held"), "{error}");
    let one = format!("{maps}/a");
    assert!(api.patch_path(&one, Patch::Merge, &json!({"data": {}})).await.unwrap_err().fenced());
    assert!(api.delete_path(&one, Delete::default()).await.unwrap_err().fenced());
    assert_eq!(api.get_path(maps).await.unwrap()["items"].as_array().unwrap().len(), 1, "whoever reads may");

    // Nor is it after a release, or when the holder has ended.
    let again = Lease { key: Key::new("muster", "again"), ..world.lease("a") };
    let released = again.acquire(false).await;
    let fence = released.fence();
    assert!(fence.is_open());
    released.release().await.unwrap();
    assert!(!fence.is_open());
    let fence = other.fence();
    assert!(fence.is_open());
    drop(other);
    seconds(0.1).await;
    assert!(!fence.is_open());
}

#[tokio::test(start_paused = true)]
async fn is_held_needs_no_task_to_run() {
    let world = World::new().await;
    let (lease, sky) = world.exposed("a");
    let a = lease.acquire(false).await;
    *sky.lock().unwrap() = Weather::Silent;
    // Time passes while nothing runs, as when a process is stopped.
    tokio::time::advance(Duration::from_secs(11)).await;
    assert!(!a.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_short_storm_is_survived() {
    for weather in [Weather::Refused, Weather::Silent, Weather::Deaf] {
        let world = World::new().await;
        let (lease, sky) = world.exposed("a");
        let a = lease.acquire(false).await;
        for _ in 0..20 {
            *sky.lock().unwrap() = weather;
            seconds(5.0).await;
            *sky.lock().unwrap() = Weather::Fine;
            seconds(8.0).await;
        }
        assert_eq!(lost(&a), None, "{weather:?}");
        assert!(a.is_held());
        assert_eq!(world.holder().await, "a");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_not_a_lost_lease() {
    let world = World::new().await;
    let (lease, sky) = world.exposed("a");
    let a = lease.acquire(false).await;
    // Every other renewal is carried out unheard; the version that a knows is then old.
    for _ in 0..10 {
        *sky.lock().unwrap() = Weather::Deaf;
        seconds(2.0).await;
        *sky.lock().unwrap() = Weather::Fine;
        seconds(2.0).await;
    }
    assert!(a.is_held());
    a.release().await.unwrap();
    assert_eq!(world.holder().await, "");
}

#[tokio::test(start_paused = true)]
async fn others_may_write_labels() {
    let world = World::new().await;
    let a = world.lease("a").acquire(false).await;
    let path = "/apis/coordination.k8s.io/v1/namespaces/muster/leases/work";
    for i in 0..10 {
        let label = json!({"metadata": {"labels": {"n": i.to_string()}}});
        world.api().patch_path(path, Patch::Merge, &label).await.unwrap();
        seconds(3.0).await;
    }
    assert!(a.is_held());
    assert_eq!(lost(&a), None);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_is_lost() {
    let world = World::new().await;
    let a = world.lease("a").acquire(false).await;
    let path = "/apis/coordination.k8s.io/v1/namespaces/muster/leases/work";
    world.api().delete_path(path, Default::default()).await.unwrap();
    assert_eq!(a.lost().await, Lost::Deleted { lease: key() });
    assert!(world.now() < 3.0);
}

#[tokio::test(start_paused = true)]
async fn a_live_holder_is_taken_over_and_stops_first() {
    let world = World::new().await;
    let a = world.lease("a").acquire(false).await;
    seconds(21.0).await;
    let b = world.lease("b");
    let taking = tokio::spawn(async move { b.acquire(true).await });
    assert_eq!(a.lost().await, Lost::TakenBy { lease: key(), by: "b".into() });
    let noticed = world.now() - 21.0;
    assert!(noticed <= 2.0, "{noticed}");
    assert!(!taking.is_finished(), "not before the old one must have noticed");
    let b = taking.await.unwrap();
    let began = world.now() - 21.0;
    assert!((15.0..15.1).contains(&began), "{began}");
    assert!(b.is_held());
    a.release().await.unwrap();
    assert_eq!(world.holder().await, "b", "what is lost is not released");
}

#[tokio::test(start_paused = true)]
async fn of_many_exactly_one_holds() {
    let world = World::new().await;
    let holders: Arc<Mutex<Vec<String>>> = Arc::default();
    let mut contenders = tokio::task::JoinSet::new();
    for i in 0..8 {
        let (lease, holders) = (world.lease(&format!("c{i}")), holders.clone());
        contenders.spawn(async move {
            for _ in 0..20 {
                let held = lease.acquire(false).await;
                holders.lock().unwrap().push(lease.identity.clone());
                assert_eq!(holders.lock().unwrap().join(" "), lease.identity, "two at once");
                seconds(3.0).await;
                assert!(held.is_held());
                holders.lock().unwrap().clear();
                // Some end well, some do not.
                if i % 2 == 0 {
                    held.release().await.unwrap();
                }
            }
        });
    }
    while let Some(ended) = contenders.join_next().await {
        ended.unwrap();
    }
    let transitions = world.stored("muster/leases/work").await["spec"]["leaseTransitions"].as_i64().unwrap();
    assert!(transitions >= 50, "{transitions}");
}

fn names(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

fn wants(text: &str, identity: &str, take_over: bool) -> Claim {
    Claim {
        namespace: "muster".into(),
        names: names(text),
        shard: "west".into(),
        identity: identity.into(),
        take_over,
    }
}

/// A scheduler of another make: it renews its lease and stops when that is taken.
fn other_make(world: &World, namespace: &str, name: &str) -> tokio::task::JoinHandle<Lost> {
    let (api, clock, key) = (world.api(), world.clock, Key::new(namespace, name));
    tokio::spawn(async move {
        let lease = Lease::new(api.clone(), clock, key.clone(), "their-pod_1");
        let held = lease.acquire(false).await;
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases/{}", key.namespace, key.name);
        // Others do not write our annotation.
        let bare = json!({"metadata": {"annotations": null}});
        api.patch_path(&path, Patch::Merge, &bare).await.unwrap();
        held.lost().await
    })
}

#[tokio::test(start_paused = true)]
async fn a_name_that_another_scheduler_has_is_refused() {
    let world = World::new().await;
    let _theirs = other_make(&world, "kai-scheduler", "kai-scheduler-west");
    seconds(1.0).await;
    let refused =
        claim(&world.api(), world.clock, &wants("muster-scheduler kai-scheduler", "m", false)).await;
    let why = refused.err().unwrap().to_string();
    assert_eq!(
        why,
        "pods for kai-scheduler are already placed by their-pod_1, which holds the lease \
         kai-scheduler/kai-scheduler-west; stop it, leave the name out, or pass --take-over"
    );
    assert!(world.now() < 8.0, "a live holder is seen at its next renewal");
    claim(&world.api(), world.clock, &wants("muster-scheduler", "m", false)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_name_is_taken_over_and_given_back() {
    let world = World::new().await;
    let theirs = other_make(&world, "kube-system", "kube-scheduler");
    seconds(1.0).await;
    let claimed = claim(&world.api(), world.clock, &wants("default-scheduler", "m", true)).await.unwrap();
    assert!(matches!(theirs.await.unwrap(), Lost::TakenBy { by, .. } if by == "m"));
    assert!(claimed.is_held());
    let lease = world.stored("kube-system/leases/kube-scheduler").await;
    assert_eq!(lease["metadata"]["annotations"][SCHEDULER_NAME], "default-scheduler");
    assert_eq!(world.stored("muster/leases/default-scheduler-west").await["spec"]["holderIdentity"], "m");
    claimed.release().await.unwrap();
    let back = world.now();
    let lease =
        Lease::new(world.api(), world.clock, Key::new("kube-system", "kube-scheduler"), "their-pod_2");
    lease.acquire(false).await;
    assert!(world.now() - back < 0.1);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_was_taken_over_stays_so_after_a_crash() {
    let world = World::new().await;
    let _theirs = other_make(&world, "kube-system", "kube-scheduler");
    seconds(1.0).await;
    drop(claim(&world.api(), world.clock, &wants("default-scheduler", "m", true)).await.unwrap());
    // Their next process waits for its turn meanwhile.
    let waiting = other_make(&world, "kube-system", "kube-scheduler");
    let again = claim(&world.api(), world.clock, &wants("default-scheduler", "n", true)).await.unwrap();
    seconds(60.0).await;
    assert!(again.is_held() && !waiting.is_finished());
    assert_eq!(world.stored("kube-system/leases/kube-scheduler").await["spec"]["holderIdentity"], "n");
}

#[tokio::test(start_paused = true)]
async fn a_dead_scheduler_is_no_obstacle() {
    let world = World::new().await;
    other_make(&world, "volcano-system", "volcano").abort();
    let theirs = other_make(&world, "volcano-system", "volcano");
    seconds(5.0).await;
    theirs.abort();
    let begun = world.now();
    let found = other_holder(&world.api(), &names("volcano"), "").await.unwrap();
    assert_eq!(found, None);
    assert!((15.0..17.0).contains(&(world.now() - begun)), "{}", world.now() - begun);
}

/// Neither a replica that waited all the while nor a newcomer waits for each of the names that the dead had.
#[tokio::test(start_paused = true)]
async fn who_dies_is_waited_for_once_however_many_names_it_had() {
    let all = "default-scheduler kai-scheduler koord-scheduler muster-scheduler t9k-scheduler volcano";
    for waits in [true, false] {
        let world = World::new().await;
        let first = claim(&world.api(), world.clock, &wants(all, "m", false)).await.unwrap();
        let next = |world: &World| {
            let (api, clock) = (world.api(), world.clock);
            tokio::spawn(async move { claim(&api, clock, &wants(all, "n", false)).await.unwrap() })
        };
        let replica = waits.then(|| next(&world));
        seconds(61.0).await;
        drop(first);
        let died = world.now();
        replica.unwrap_or_else(|| next(&world)).await.unwrap();
        let waited = world.now() - died;
        assert!((11.0..=21.0).contains(&waited), "{waited} {waits}");
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_there_costs_no_time() {
    let world = World::new().await;
    let claimed =
        claim(&world.api(), world.clock, &wants("default-scheduler volcano", "m", false)).await.unwrap();
    assert!(world.now() < 0.1, "{}", world.now());
    // The same names wait for us, even told in another order, and do not refuse: that is a replica.
    let api = world.api();
    let clock = world.clock;
    let second = tokio::spawn(async move {
        let claimed = claim(&api, clock, &wants("volcano default-scheduler", "n", false)).await.unwrap();
        claimed.is_held()
    });
    seconds(60.0).await;
    assert!(claimed.is_held() && !second.is_finished());
    claimed.release().await.unwrap();
    assert!(second.await.unwrap());
}

fn wants_in(namespace: &str, text: &str, identity: &str, take_over: bool) -> Claim {
    Claim { namespace: namespace.into(), ..wants(text, identity, take_over) }
}

impl World {
    async fn claim(&self, wanted: &Claim) -> Result<Claimed, ClaimError> {
        claim(&self.api(), self.clock, wanted).await
    }

    /// A claim that is under way.
    fn claiming(
        &self,
        wanted: Claim,
        weather: Weather,
    ) -> tokio::task::JoinHandle<Result<Claimed, ClaimError>> {
        let (api, sky) = self.way();
        let clock = self.clock;
        *sky.lock().unwrap() = weather;
        tokio::spawn(async move { claim(&api, clock, &wanted).await })
    }

    async fn holder_of(&self, lease: &str) -> String {
        let (namespace, name) = lease.split_once('/').unwrap();
        let lease = self.stored(&format!("{namespace}/leases/{name}")).await;
        lease["spec"]["holderIdentity"].as_str().unwrap().to_owned()
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_that_a_muster_in_another_namespace_has_is_refused() {
    let world = World::new().await;
    let first = world.claim(&wants("kai-scheduler muster-scheduler", "m", false)).await.unwrap();
    let begun = world.now();
    let refused = world.claim(&wants_in("other", "kai-scheduler", "n", false)).await;
    assert_eq!(
        refused.err().unwrap().to_string(),
        "pods for kai-scheduler are already placed by m, which holds the lease muster/kai-scheduler-west; \
         stop it, leave the name out, or pass --take-over"
    );
    assert!(world.now() - begun < 4.0, "a live holder is seen at its next renewal");
    let leases = world.api().get_path("/apis/coordination.k8s.io/v1/namespaces/other/leases").await.unwrap();
    assert_eq!(leases["items"], json!([]), "nothing was taken");
    // Another name, another shard (also one whose lease begins alike) and the same process are no conflict.
    let begun = world.now();
    world.claim(&wants_in("other", "volcano", "n", false)).await.unwrap();
    for shard in ["", "east", "west-2"] {
        let wanted = Claim { shard: shard.into(), ..wants_in("other", "kai-scheduler", "n", false) };
        world.claim(&wanted).await.unwrap();
    }
    world.claim(&wants_in("other", "kai-scheduler", "m", false)).await.unwrap();
    assert!(world.now() - begun < 0.1, "{}", world.now() - begun);
    assert!(first.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_says_less_is_judged_by_its_name() {
    let world = World::new().await;
    let _first = world.claim(&wants("kai-scheduler", "m", false)).await.unwrap();
    // As it was written before it said for whom it is held.
    let bare = json!({"metadata": {"annotations": {HELD_FOR: null}}});
    let path = "/apis/coordination.k8s.io/v1/namespaces/muster/leases/kai-scheduler-west";
    world.api().patch_path(path, Patch::Merge, &bare).await.unwrap();
    assert!(world.claim(&wants_in("other", "kai-scheduler", "n", false)).await.is_err());
    let east = Claim { shard: "east".into(), ..wants_in("other", "kai-scheduler", "n", false) };
    world.claim(&east).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn whoever_may_not_list_claims_as_before() {
    let world = World::new().await;
    let first = world.claim(&wants("kai-scheduler", "m", false)).await.unwrap();
    let second = world.claiming(wants_in("other", "kai-scheduler", "n", false), Weather::Forbidden);
    assert!(second.await.unwrap().unwrap().is_held() && first.is_held());
    // The leases that are known are looked at one by one.
    let _theirs = other_make(&world, "volcano-system", "volcano");
    let refused = world.claiming(wants_in("other", "volcano", "n", false), Weather::Forbidden).await.unwrap();
    assert!(refused.err().unwrap().to_string().contains("volcano-system/volcano"));
}

#[tokio::test(start_paused = true)]
async fn a_muster_that_died_elsewhere_is_waited_for_once() {
    let world = World::new().await;
    drop(world.claim(&wants("kai-scheduler volcano", "m", false)).await.unwrap());
    let begun = world.now();
    world.claim(&wants_in("other", "kai-scheduler volcano", "n", false)).await.unwrap();
    let waited = world.now() - begun;
    assert!((14.0..17.0).contains(&waited), "{waited}");
    world.claim(&wants("muster-scheduler", "n", false)).await.unwrap();
    assert!(world.now() - begun - waited < 0.1, "where there is none it costs nothing");
}

/// However the requests of the two interleave: never two, and never none.
#[tokio::test(start_paused = true)]
async fn of_two_that_begin_in_two_namespaces_one_wins() {
    // How long the requests of each take, and in which steps the start of the second moves.
    let mut gave_way = BTreeSet::new();
    for (a, b, step) in [(50, 50, 10), (400, 10, 40), (10, 400, 40), (400, 130, 70)] {
        for first_is_later in [false, true] {
            for n in 0..40 {
                let world = World::new().await;
                let mut namespaces = ["muster", "other"];
                if first_is_later {
                    namespaces.reverse();
                }
                let names = "kai-scheduler muster-scheduler";
                let one = world.claiming(wants_in(namespaces[0], names, "one", false), Weather::Slow(a));
                tokio::time::sleep(Duration::from_millis(n * step)).await;
                let two = world.claiming(wants_in(namespaces[1], names, "two", false), Weather::Slow(b));
                let (one, two) = (one.await.unwrap(), two.await.unwrap());
                let case = format!("{a} {b} {namespaces:?} {n}");
                let (won, lost, namespace) = match (one, two) {
                    (Ok(one), Err(two)) => (one, two, namespaces[1]),
                    (Err(one), Ok(two)) => (two, one, namespaces[0]),
                    (one, two) => panic!("{case}: {} {}", one.is_ok(), two.is_ok()),
                };
                assert!(matches!(lost, ClaimError::Answered(_)), "{case}: {lost}");
                assert!(won.is_held(), "{case}");
                let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
                let leases = world.api().get_path(&leases).await.unwrap();
                for lease in leases["items"].as_array().unwrap() {
                    assert_eq!(lease["spec"]["holderIdentity"], "", "{case}");
                }
                if n == 0 && a == b {
                    assert_eq!(namespace, "other", "of equals the later one in the alphabet gives way");
                }
                gave_way.insert(namespace);
            }
        }
    }
    assert_eq!(gave_way.len(), 2, "but never who was there before");
}

#[tokio::test(start_paused = true)]
async fn a_muster_elsewhere_is_taken_over_and_goes_on_afterwards() {
    let world = World::new().await;
    let first = world.claim(&wants("kai-scheduler", "m", false)).await.unwrap();
    let replica = world.claiming(wants("kai-scheduler", "m2", false), Weather::Fine);
    let taking = world.claiming(wants_in("other", "kai-scheduler", "n", true), Weather::Fine);
    assert!(matches!(first.lost().await, Lost::TakenBy { by, .. } if by == "n"));
    first.release().await.unwrap();
    assert!(!taking.is_finished(), "not before the old one must have noticed");
    // It stands in line again, like its replica, and is not refused.
    let again = world.claiming(wants("kai-scheduler", "m", false), Weather::Fine);
    let taken = taking.await.unwrap().unwrap();
    assert_eq!(world.holder_of("muster/kai-scheduler-west").await, "n");
    assert_eq!(world.holder_of("other/kai-scheduler-west").await, "n");
    let lease = world.stored("muster/leases/kai-scheduler-west").await;
    assert_eq!(lease["metadata"]["annotations"][HELD_FOR], "other/kai-scheduler-west");
    seconds(60.0).await;
    assert!(taken.is_held() && !again.is_finished() && !replica.is_finished());
    taken.release().await.unwrap();
    let back = world.now();
    let next = futures::future::select(again, replica).await.factor_first().0;
    assert!(next.unwrap().unwrap().is_held());
    assert!(world.now() - back < 5.0, "{}", world.now() - back);
    assert_eq!(world.holder_of("other/kai-scheduler-west").await, "");
}

/// What one of an installation took over is no obstacle to the others of it.
#[tokio::test(start_paused = true)]
async fn replicas_of_one_that_took_over_wait() {
    let world = World::new().await;
    let theirs = other_make(&world, "kai-scheduler", "kai-scheduler-west");
    seconds(1.0).await;
    let first = world.claim(&wants("kai-scheduler", "m", true)).await.unwrap();
    theirs.await.unwrap();
    let replica = world.claiming(wants("kai-scheduler", "n", false), Weather::Fine);
    seconds(60.0).await;
    assert!(first.is_held() && !replica.is_finished());
    // It dies, and all that it held runs out together.
    drop(first);
    let died = world.now();
    assert!(replica.await.unwrap().unwrap().is_held());
    assert!(world.now() - died < 19.0, "{}", world.now() - died);
}

/// A scheduler of another make that comes back while we wait for our turn.
#[tokio::test(start_paused = true)]
async fn who_came_while_we_waited_is_seen() {
    let world = World::new().await;
    let first = world.claim(&wants("volcano", "m", false)).await.unwrap();
    let second = world.claiming(wants("volcano", "n", false), Weather::Fine);
    seconds(60.0).await;
    let _theirs = other_make(&world, "volcano-system", "volcano");
    first.release().await.unwrap();
    let why = second.await.unwrap().err().unwrap().to_string();
    assert!(why.contains("their-pod_1") && why.contains("volcano-system/volcano"), "{why}");
    assert_eq!(world.holder_of("muster/volcano-west").await, "");
}

#[tokio::test(start_paused = true)]
async fn a_scheduler_of_kai_without_a_lease_is_refused() {
    let world = World::new().await;
    let account = json!({"metadata": {"name": "scheduler"}});
    let accounts = "/api/v1/namespaces/kai-scheduler/serviceaccounts";
    world.api().create_path(accounts, &account).await.unwrap();
    let pods = "/api/v1/namespaces/kai-scheduler/pods";
    let pod = json!({
        "metadata": {"name": "kai-scheduler-west-6f7-x", "labels": {"app": "kai-scheduler-west"}, "ownerReferences": [{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "kai-scheduler-west-6f7", "uid": "u", "controller": true}]},
        "spec": {"serviceAccountName": "scheduler", "automountServiceAccountToken": false, "containers": [{
            "name": "scheduler", "image": "ghcr.io/kai-scheduler/kai-scheduler/scheduler:v0.17.0",
            "args": ["--scheduler-conf=/config/config.yaml", "--scheduler-name=kai-scheduler", "--partition-label-value=west"]}]},
    });
    world.api().create_path(pods, &pod).await.unwrap();
    let status = format!("{pods}/kai-scheduler-west-6f7-x/status");
    let ready = |value: &str| json!({"status": {"conditions": [{"type": "Ready", "status": value}]}});
    world.api().patch_path(&status, Patch::Merge, &ready("True")).await.unwrap();
    let begun = world.now();
    for take_over in [false, true] {
        world.log.lock().unwrap().clear();
        let refused = world.claim(&wants("muster-scheduler kai-scheduler", "m", take_over)).await;
        assert_eq!(
            refused.err().unwrap().to_string(),
            "pods for kai-scheduler are already placed by the pod kai-scheduler/kai-scheduler-west-6f7-x, which holds no \
             lease that could be taken over; stop it (kubectl -n kai-scheduler scale deployment/kai-scheduler-west \
             --replicas=0) or leave the name out"
        );
        assert_eq!(world.log.lock().unwrap().join(" "), format!("GET {pods}"), "one request tells");
    }
    assert!(world.now() - begun < 0.1);
    let held = world.claiming(wants("kai-scheduler", "m", false), Weather::Forbidden).await.unwrap().unwrap();
    assert!(held.is_held(), "who may not list pods is not stopped by them");
    held.release().await.unwrap();
    world.claim(&wants("muster-scheduler", "m", false)).await.unwrap();
    world.api().patch_path(&status, Patch::Merge, &ready("False")).await.unwrap();
    world.log.lock().unwrap().clear();
    world.claim(&wants("kai-scheduler", "m", false)).await.unwrap();
    let asked = world.log.lock().unwrap().iter().filter(|what| what.ends_with("/pods")).count();
    assert_eq!(asked, 1);
}
