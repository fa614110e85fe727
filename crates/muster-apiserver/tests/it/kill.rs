//! kill -9 while many clients write to a server in a folder: what was acknowledged is there, nothing is half applied, versions only
//! grow, watches resume. `MUSTER_KILLS` says how often (10), `MUSTER_KILL_SEED` with which course.
//!
//! The server is this test program, started again as its own child. Must stay true: a child ends with its parent.

use crate::durable::Temp;
use bytes::Bytes;
use futures::StreamExt;
use http_body_util::BodyExt;
use muster_apiserver::http::listen_as;
use muster_apiserver::identity::Identity;
use muster_apiserver::store::Durable;
use muster_apiserver::store::disk::Limits;
use muster_apiserver::{ApiServer, Options};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const FOLDER: &str = "MUSTER_KILL_FOLDER";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const N_WRITERS: usize = 12;
const N_OBJECTS: u64 = 6;

/// Not a test unless it is started by one: the server that is killed.
#[tokio::test(flavor = "multi_thread")]
async fn server_that_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let folder = Path::new(&folder);
    // Small, so that kills also fall into new logs and snapshots.
    let limits = Limits { log_bytes: 64 << 10, slack_bytes: 256 << 10, n_logs: 8, batch_bytes: 64 << 10 };
    let store = Arc::new(Durable::open(folder, "1.36", limits).unwrap());
    let identity = Identity::of(folder).unwrap();
    let server = ApiServer::with_store(Options::default(), store);
    let listener = listen_as(identity.port.unwrap_or(0), identity.clone(), None).await.unwrap();
    let port = listener.endpoint.address.port();
    identity.on(port).keep(folder).unwrap();
    println!("\nready {}", listener.endpoint.kubeconfig().escape_debug());
    let cancel = tokio_util::sync::CancellationToken::new();
    tokio::spawn(listener.serve(server.clone(), cancel));
    tokio::spawn(async move { server.run().await });
    // Whoever started this has the other end; when it is gone, so are we.
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await.unwrap().unwrap();
    std::process::exit(0);
}

/// A source of numbers that depends on nothing but its seed.
#[derive(Clone)]
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

struct Server {
    child: Child,
    client: kube::Client,
    kubeconfig: String,
}

impl Server {
    async fn start(folder: &Path) -> Server {
        Server::start_by(Command::new(std::env::current_exe().unwrap()), folder).await
    }

    /// Starts one that the system lets write no file longer than some ten kilobytes.
    async fn start_limited(folder: &Path) -> Server {
        let mut shell = Command::new("sh");
        // 25 is the signal that comes with it, which would end the process.
        shell
            .args(["-c", "trap '' 25; ulimit -f 64; exec \"$0\" \"$@\""])
            .arg(std::env::current_exe().unwrap());
        Server::start_by(shell, folder).await
    }

    async fn start_by(mut command: Command, folder: &Path) -> Server {
        let mut child = command
            .args(["--exact", "kill::server_that_is_killed", "--nocapture", "--test-threads=1"])
            .env(FOLDER, folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut said = Vec::new();
        for line in lines.map_while(Result::ok) {
            if let Some(text) = line.strip_prefix("ready ") {
                let kubeconfig = text.replace("\\n", "\n");
                let parsed = kube::config::Kubeconfig::from_yaml(&kubeconfig).unwrap();
                let mut config =
                    kube::Config::from_custom_kubeconfig(parsed, &Default::default()).await.unwrap();
                // What the server answers is what counts here, refusals included.
                config.default_retry = false;
                return Server { child, client: kube::Client::try_from(config).unwrap(), kubeconfig };
            }
            said.push(line);
        }
        let ended = child.wait();
        panic!("the server did not start: {ended:?} {said:#?}");
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Sends a request; none if the server went away meanwhile, so that nobody knows what became of it.
async fn send(client: &kube::Client, method: &str, path: &str, body: Value) -> Option<(u16, Value)> {
    let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .body(kube::client::Body::from(bytes))
        .unwrap();
    let response = client.send(request).await.ok()?;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.ok()?.to_bytes();
    Some((code, serde_json::from_slice(&bytes).ok()?))
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// An object's content is one number, many times over, so that a half applied write shows.
fn body(name: &str, number: u64) -> Value {
    let data: BTreeMap<String, String> = (0..8).map(|i| (format!("k{i}"), number.to_string())).collect();
    let filler = "x".repeat((number % 7) as usize * 300);
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"n": number.to_string()}, "annotations": {"filler": filler}}, "data": data,
    })
}

fn number(object: &Value) -> u64 {
    let number = object["metadata"]["labels"]["n"].as_str().unwrap();
    let data = object["data"].as_object().unwrap();
    assert!(data.len() == 8 && data.values().all(|v| v == number), "half applied: {object}");
    let filler = object["metadata"]["annotations"]["filler"].as_str().unwrap_or_default();
    let number: u64 = number.parse().unwrap();
    assert_eq!(filler.len(), (number % 7) as usize * 300, "half applied: {object}");
    number
}

/// What is known of an object: the number that it must have, if it is there, and what it may have instead.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    acknowledged: Option<u64>,
    /// Sent and not answered.
    open: Option<Option<u64>>,
    /// The newest version that a client was told of.
    version: u64,
}

type Book = BTreeMap<String, Known>;

/// One client: writes objects of its own, one request at a time, until the server is gone. Out: how many of them were acknowledged, and
/// how many refused because the disk did not take them.
async fn write(client: kube::Client, writer: usize, mut dice: Dice, book: Arc<Mutex<Book>>) -> (u64, u64) {
    let (mut n_acknowledged, mut n_refused) = (0, 0);
    loop {
        let name = format!("w{writer}-{}", dice.roll(N_OBJECTS));
        let known = book.lock().unwrap().get(&name).copied().unwrap_or_default();
        let next = dice.roll(1 << 30);
        let wanted = if known.acknowledged.is_some() && dice.roll(4) == 0 { None } else { Some(next) };
        let (method, path) = match (known.acknowledged, wanted) {
            (None, _) => ("POST", MAPS.to_string()),
            (Some(_), Some(_)) => ("PUT", format!("{MAPS}/{name}")),
            (Some(_), None) => ("DELETE", format!("{MAPS}/{name}")),
        };
        book.lock().unwrap().insert(name.clone(), Known { open: Some(wanted), ..known });
        let content = wanted.map_or(Value::Null, |n| body(&name, n));
        let Some((code, answer)) = send(&client, method, &path, content).await else {
            return (n_acknowledged, n_refused);
        };
        if code == 503 {
            let message = answer["message"].as_str().unwrap();
            assert!(message.contains("the data folder cannot be written to"), "{answer}");
            // It must not be there, neither now nor after a kill.
            book.lock().unwrap().insert(name.clone(), known);
            let there = send(&client, "GET", &format!("{MAPS}/{name}"), Value::Null).await;
            if let Some((code, object)) = there {
                let there = (code == 200).then(|| number(&object));
                assert_eq!(there, known.acknowledged, "{name}: {code}");
            }
            n_refused += 1;
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        }
        assert!(code == 200 || code == 201, "{method} {path}: {code} {answer}");
        let version = if wanted.is_some() { version(&answer) } else { known.version };
        assert!(wanted.is_none() || version > known.version, "{name}: {version} after {}", known.version);
        book.lock().unwrap().insert(name, Known { acknowledged: wanted, open: None, version });
        n_acknowledged += 1;
    }
}

/// A client that watches: what it has seen, and up to where.
#[derive(Clone, Default)]
struct Seen {
    objects: BTreeMap<String, Value>,
    version: u64,
    n_events: u64,
    n_expired: u64,
}

fn is_ours(name: &str) -> bool {
    name.starts_with('w')
}

async fn list(client: &kube::Client) -> (BTreeMap<String, Value>, u64) {
    let (code, list) = send(client, "GET", MAPS, Value::Null).await.unwrap();
    assert_eq!(code, 200, "{list}");
    let items = list["items"].as_array().unwrap().iter();
    let named = items.map(|o| (o["metadata"]["name"].as_str().unwrap().to_string(), o.clone()));
    (named.filter(|(name, _)| is_ours(name)).collect(), version(&list))
}

/// Watches until the server is gone, or until everything up to a version was seen.
async fn watch(client: kube::Client, mut seen: Seen, upto: Option<u64>) -> Seen {
    let path = format!("{MAPS}?watch=1&allowWatchBookmarks=true&resourceVersion={}", seen.version);
    let request = http::Request::get(path).body(kube::client::Body::empty()).unwrap();
    let Ok(response) = client.send(request).await else { return seen };
    let mut stream = response.into_body().into_data_stream();
    let mut text: Vec<u8> = Vec::new();
    while upto.is_none_or(|upto| seen.version < upto) {
        let Some(Ok(chunk)) = stream.next().await else { return seen };
        let chunk: Bytes = chunk;
        text.extend_from_slice(&chunk);
        while let Some(end) = text.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = text.drain(..=end).collect();
            let event: Value = serde_json::from_slice(&line).unwrap();
            let object = &event["object"];
            if event["type"] == "ERROR" {
                assert_eq!(object["code"], 410, "{event}");
                (seen.objects, seen.version) = list(&client).await;
                seen.n_expired += 1;
                return seen;
            }
            let at = version(object);
            assert!(at > seen.version || event["type"] == "BOOKMARK", "versions only grow: {event}");
            seen.version = at;
            seen.n_events += 1;
            let name = object["metadata"]["name"].as_str().unwrap_or_default().to_string();
            match event["type"].as_str().unwrap() {
                "ADDED" | "MODIFIED" if is_ours(&name) => drop(seen.objects.insert(name, object.clone())),
                "DELETED" => drop(seen.objects.remove(&name)),
                _ => {}
            }
        }
    }
    seen
}

fn in_short(objects: &BTreeMap<String, Value>) -> Vec<String> {
    objects.iter().map(|(name, object)| format!("{name} {} @{}", number(object), version(object))).collect()
}

/// Compares what is there with what clients know, and takes note of what became of open requests.
fn check(found: &BTreeMap<String, Value>, book: &mut Book) {
    for (name, known) in book.iter_mut() {
        let there = found.get(name).map(number);
        let fits = there == known.acknowledged || known.open == Some(there);
        assert!(fits, "{name} is {there:?} and should be {known:?}");
        if let Some(object) = found.get(name) {
            assert!(version(object) >= known.version || there != known.acknowledged, "{name}: {known:?}");
            known.version = known.version.max(version(object));
        }
        (known.acknowledged, known.open) = (there, None);
    }
    assert!(found.keys().all(|name| book.contains_key(name)), "nothing came from nowhere");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_survives_kills() {
    let number_of = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let n_kills = number_of("MUSTER_KILLS").unwrap_or(10);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let seed = number_of("MUSTER_KILL_SEED").unwrap_or(now.as_nanos() as u64);
    println!("MUSTER_KILL_SEED={seed}");
    let mut dice = Dice(seed);
    let temp = Temp::new();
    let book = Arc::new(Mutex::new(Book::new()));
    let (mut seen, mut kubeconfig) = (Seen::default(), String::new());
    let (mut newest, mut n_acknowledged) = (0, 0);
    for round in 0..=n_kills {
        let server = Server::start(&temp.0).await;
        let client = server.client.clone();
        if round > 0 {
            assert_eq!(server.kubeconfig, kubeconfig, "the kubeconfig stays valid");
        }
        kubeconfig.clone_from(&server.kubeconfig);
        let (found, at) = list(&client).await;
        assert!(at >= newest, "round {round}: version {at} after {newest}");
        check(&found, &mut book.lock().unwrap());
        if round == 0 {
            seen.version = at;
        } else {
            // What a watcher was told before the kill is so; what it was not, it is told now.
            assert!(
                seen.version <= at,
                "round {round}: a watcher was at {} and the server is at {at}",
                seen.version
            );
            let marker = body(&format!("marker-{round}"), round);
            let (_, marker) = send(&client, "POST", MAPS, marker).await.unwrap();
            assert!(version(&marker) > at, "round {round}: {marker}");
            let watched = watch(client.clone(), seen, Some(version(&marker)));
            seen = tokio::time::timeout(Duration::from_secs(60), watched).await.unwrap();
            assert_eq!(in_short(&seen.objects), in_short(&found), "round {round}");
        }
        if round == n_kills {
            server.kill();
            break;
        }
        let watcher = tokio::spawn(watch(client.clone(), seen.clone(), None));
        let writers: Vec<_> = (0..N_WRITERS)
            .map(|w| tokio::spawn(write(client.clone(), w, Dice(dice.roll(u64::MAX)), book.clone())))
            .collect();
        tokio::time::sleep(Duration::from_millis(20 + dice.roll(400))).await;
        server.kill();
        for writer in writers {
            n_acknowledged += writer.await.unwrap().0;
        }
        seen = watcher.await.unwrap();
        let book = book.lock().unwrap();
        newest = book.values().map(|known| known.version).fold(seen.version, u64::max);
    }
    let (n_events, n_expired) = (seen.n_events, seen.n_expired);
    println!(
        "{n_kills} kills, {n_acknowledged} acknowledged writes, {n_events} events, {n_expired} expired watches"
    );
    assert!(n_acknowledged > n_kills, "the server was given time to work");
}

/// The system refuses every now and then, and the server is killed: what was refused is not there, what was acknowledged is.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn what_the_disk_refuses_is_not_acknowledged() {
    let temp = Temp::new();
    let book = Arc::new(Mutex::new(Book::new()));
    let (mut n_acknowledged, mut n_refused) = (0, 0);
    for round in 0..3 {
        let server = Server::start_limited(&temp.0).await;
        check(&list(&server.client).await.0, &mut book.lock().unwrap());
        let writers: Vec<_> = (0..N_WRITERS)
            .map(|w| {
                tokio::spawn(write(server.client.clone(), w, Dice(round * 100 + w as u64), book.clone()))
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(2500)).await;
        server.kill();
        for writer in writers {
            let (acknowledged, refused) = writer.await.unwrap();
            (n_acknowledged, n_refused) = (n_acknowledged + acknowledged, n_refused + refused);
        }
    }
    let server = Server::start(&temp.0).await;
    check(&list(&server.client).await.0, &mut book.lock().unwrap());
    server.kill();
    println!("{n_acknowledged} acknowledged, {n_refused} refused");
    assert!(n_acknowledged > 0 && n_refused > 0, "{n_acknowledged} acknowledged, {n_refused} refused");
}
