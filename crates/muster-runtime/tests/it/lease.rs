//! Who holds a lease, and when: contenders on one server, on one virtual clock.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use muster_apiserver::ApiServer;
use muster_runtime::api::Patch;
use muster_runtime::lease::{Claim, Held, Lease, Lost, SCHEDULER_NAME, claim, other_holder};
use muster_runtime::{Api, Clock, Key, Metrics};
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
}

/// A server and the way to it of one contender.
#[derive(Clone)]
struct Way {
    server: ApiServer,
    weather: Arc<Mutex<Weather>>,
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
        async move {
            match weather {
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
}

impl World {
    async fn new() -> World {
        let base = "2026-01-01T00:00:00Z".parse().unwrap();
        let server = ApiServer::new(muster_apiserver::Options {
            clock: muster_apiserver::Clock::starting_at(base),
            ..muster_apiserver::Options::default()
        });
        let world = World { server, clock: Clock::starting_at(base), start: Instant::now() };
        for namespace in ["muster", "kai-scheduler", "volcano-system"] {
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
        let way = Way { server: self.server.clone(), weather: weather.clone() };
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
