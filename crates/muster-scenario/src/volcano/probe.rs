//! Probes: single questions to Volcano's plugins, and what they must answer. They are advisory: upstream's own tests ask them, users do not.
//!
//! In: a case with `expect.probes`, a list of calls with their results. Out: how the answers differ. Scores may differ by a thousandth; texts of
//! errors are not compared, their codes are.

use muster_engine::{Answer, Engine, Question};
use muster_model::volcano::Load;
use muster_model::{Key, Name, Span, Time};
use serde_json::{Map, Value, json};

/// What a call asks; `Err`: it cannot be asked here.
fn question(probe: &Value, now: Time) -> Result<Question, String> {
    let text = |field: &str| probe.get(field).and_then(Value::as_str).unwrap_or("");
    let key = |text: &str| match text.split_once('/') {
        Some((namespace, name)) => Key::new(namespace, name),
        None => Key::new("default", text),
    };
    let gang = |text: &str| {
        let own = key(text);
        Key::new(own.namespace, format!("volcano/{}", own.name))
    };
    let list = |field: &str| -> Vec<&str> {
        let items = probe.get(field).and_then(Value::as_array).into_iter().flatten();
        items.filter_map(Value::as_str).collect()
    };
    let (pod, node) = (|| key(text("task")), || Name::from(text("node")));
    Ok(match text("fn") {
        "NodeOrder" => Question::Score { pod: pod(), node: node(), load: load(probe, now) },
        "BatchNodeOrder" => Question::Scores {
            pod: pod(),
            nodes: list("nodes").into_iter().map(Name::from).collect(),
            near: Some(text("job_allocated_hypernode")).filter(|name| !name.is_empty()).map(Name::from),
        },
        "HyperNodeOrder" => {
            let whole = gang(text("job"));
            let sub = text("subjob").strip_prefix(text("job")).unwrap_or("").trim_start_matches('/');
            let domains = probe.get("hypernodes").and_then(Value::as_object);
            let domains = domains.into_iter().flat_map(|all| all.keys()).map(|name| name.as_str().into());
            Question::Domains { gang: whole, sub: sub.into(), domains: domains.collect() }
        }
        "Predicate" => Question::Fits { pod: pod(), node: node(), load: load(probe, now) },
        "JobEnqueueable" => Question::MayEnter { gang: gang(text("job")) },
        "JobEnqueued" => Question::Enter { gang: gang(text("job")) },
        "Allocate" => Question::Place { pod: pod(), node: node() },
        "VictimTasks" => Question::Misplaced { pods: list("tasks").into_iter().map(key).collect() },
        "UnifiedEvictable" => Question::Evictable {
            gang: gang(text("job")),
            candidates: list("candidates").into_iter().map(key).collect(),
            reclaim: text("kind") == "GangReclaim",
        },
        other => return Err(format!("{other:?} is no function that can be asked")),
    })
}

/// The load that a call says the node has: percent of ten minutes, so many seconds ago.
fn load(probe: &Value, now: Time) -> Option<Load> {
    let usage = probe.get("node_usage")?;
    let percent = |resource: &str| {
        let value = usage.get(resource).and_then(|windows| windows.get("10m")).and_then(Value::as_f64);
        (value.unwrap_or(0.0) * 1000.0).round() as i64
    };
    let age = usage.get("age_seconds").and_then(Value::as_i64).unwrap_or(0);
    let at = Time(now.0.saturating_sub(Span::seconds(age.min(1 << 40)).0));
    Some(Load { cpu: percent("cpu"), memory: percent("memory"), at })
}

/// Pod groups that calls name and that no object makes: a gang of nobody, of the priority that the call says.
pub fn more_objects(probes: &[Value], queue: &str) -> Vec<Value> {
    let mut objects = Vec::new();
    for probe in probes {
        let (Some(name), Some(priority)) =
            (probe.get("job").and_then(Value::as_str), probe.get("job_priority").and_then(Value::as_i64))
        else {
            continue;
        };
        let class = format!("probe-{priority}");
        objects.push(json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": class}, "value": priority}));
        objects.push(json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
            "metadata": {"name": name, "namespace": "default"}, "spec": {"queue": queue, "priorityClassName": class},
            "status": {"phase": "Inqueue"}}));
    }
    objects
}

/// Asks everything and says how answers differ from results.
pub fn run(
    engine: &mut Engine,
    probes: &[Value],
    objects: &[Value],
    now: Time,
) -> Result<(Value, Vec<String>), String> {
    let questions: Result<Vec<Question>, String> = probes.iter().map(|probe| question(probe, now)).collect();
    let questions = questions?;
    let answers = engine.ask_volcano(&questions, now);
    let mut differences = Vec::new();
    let mut actual = Vec::new();
    for (i, ((probe, question), answer)) in probes.iter().zip(&questions).zip(&answers).enumerate() {
        let got = value(question, answer);
        if !agrees(probe, &got) && !alike(probe, &got, objects) {
            let name = probe.get("fn").and_then(Value::as_str).unwrap_or("");
            let want = probe.get("codes").or_else(|| probe.get("result")).unwrap_or(&Value::Null);
            differences.push(format!("probes[{i}] {name}: expected {want}, got {got}"));
        }
        actual.push(got);
    }
    Ok((json!({"probes": actual}), differences))
}

/// An answer in the form of a result, or of codes.
fn value(question: &Question, answer: &Answer) -> Value {
    let named = |names: &[Name], scores: &[f64]| -> Value {
        let map: Map<String, Value> =
            names.iter().zip(scores).map(|(name, score)| (name.to_string(), json!(score))).collect();
        Value::Object(map)
    };
    match (question, answer) {
        (_, Answer::Unknown) => json!("unknown"),
        (_, Answer::Done | Answer::Fits) => Value::Null,
        (_, Answer::Yes(yes)) => json!(yes),
        (Question::Scores { nodes, .. }, Answer::Scores(scores)) => named(nodes, scores),
        (Question::Domains { domains, .. }, Answer::Scores(scores)) => {
            json!({"network-topology-aware": named(domains, scores)})
        }
        (_, Answer::Scores(scores)) => json!(scores.first()),
        (_, Answer::Refused { for_now: true }) => json!(["Unschedulable"]),
        (_, Answer::Refused { for_now: false }) => json!(["UnschedulableAndUnresolvable"]),
        (_, Answer::Pods(pods)) => json!(pods.iter().map(ToString::to_string).collect::<Vec<_>>()),
    }
}

fn agrees(probe: &Value, got: &Value) -> bool {
    match probe.get("codes") {
        Some(codes) => codes == got,
        None => same(probe.get("result").unwrap_or(&Value::Null), got),
    }
}

/// Whether other pods are named, but pods that nothing but their names tells apart: which of these go is anybody's choice.
fn alike(probe: &Value, got: &Value, objects: &[Value]) -> bool {
    let looks = |pods: &Value| -> Option<Vec<String>> {
        let mut looks = Vec::new();
        for name in pods.as_array()? {
            let (namespace, name) = name.as_str()?.split_once('/')?;
            let is_it = |object: &&Value| {
                let metadata = &object["metadata"];
                object["kind"] == "Pod" && metadata["namespace"] == namespace && metadata["name"] == name
            };
            let mut pod = objects.iter().find(is_it)?.clone();
            let metadata = pod.get_mut("metadata")?.as_object_mut()?;
            metadata.remove("name");
            metadata.remove("uid");
            looks.push(pod.to_string());
        }
        looks.sort();
        Some(looks)
    };
    let is_victims = probe.get("fn").and_then(Value::as_str) == Some("VictimTasks");
    is_victims && probe.get("result").is_some_and(|want| looks(want).is_some() && looks(want) == looks(got))
}

/// Equal up to a thousandth; a plugin that has nothing to say about nodes says nothing, which is zero.
fn same(want: &Value, got: &Value) -> bool {
    match (want, got) {
        (Value::Number(a), Value::Number(b)) => match (a.as_f64(), b.as_f64()) {
            (Some(a), Some(b)) => (a - b).abs() <= 1e-3,
            _ => false,
        },
        (Value::Object(want), Value::Object(got)) => {
            let keys = want.keys().chain(got.keys());
            keys.into_iter().all(|key| {
                let zero = json!(0);
                same(want.get(key).unwrap_or(&zero), got.get(key).unwrap_or(&zero))
            })
        }
        (Value::Array(a), Value::Array(b)) => {
            let sorted = |list: &[Value]| {
                let mut texts: Vec<String> = list.iter().map(ToString::to_string).collect();
                texts.sort();
                texts
            };
            sorted(a) == sorted(b)
        }
        (want, got) => want == got,
    }
}
