//! The founding walk-through: a PodCliqueSet is applied, becomes gangs, its scheduler is told, its pods are freed and run; it is
//! scaled, and it goes. Every step is a scenario, held against the manifests of the founding documents field by field; where they are
//! not beside the workspace, a scenario says so and passes.

use std::path::{Path, PathBuf};

use crate::room::{Room, items, list_of};
use anyhow::{Context, Result, ensure};
use muster_testkit::Request;
use serde_json::{Value, json};

const SETS: &str = "/apis/grove.io/v1alpha1/namespaces/$NS/podcliquesets";
const GANGS: &str = "/apis/scheduler.grove.io/v1alpha1/namespaces/$NS/podgangs";
const CLIQUES: &str = "/apis/grove.io/v1alpha1/namespaces/$NS/podcliques";

/// A manifest of the founding documents in the room's namespace; `None` after saying why the scenario is skipped.
fn seed(room: &Room, name: &str) -> Result<Option<Value>> {
    let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/samples/seeds");
    let file = folder.join(format!("{name}.yaml"));
    let Ok(text) = std::fs::read_to_string(&file) else {
        println!("skipped: no ../shared/samples/seeds/{name}.yaml");
        return Ok(None);
    };
    let mut object: Value = serde_saphyr::from_str(&text).with_context(|| name.to_owned())?;
    put_into(&mut object, &room.ns);
    Ok(Some(object))
}

/// Names the namespace wherever a manifest names one.
fn put_into(value: &mut Value, namespace: &str) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                if key == "namespace" {
                    *value = json!(namespace);
                } else {
                    put_into(value, namespace);
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|value| put_into(value, namespace)),
        _ => {}
    }
}

/// Says where something that is written is not so. What is there besides does not matter.
fn differs(found: &Value, written: &Value, at: &str) -> Option<String> {
    match (found, written) {
        (_, Value::Null) => None,
        (Value::Object(found), Value::Object(written)) => written.iter().find_map(|(key, value)| {
            differs(found.get(key).unwrap_or(&Value::Null), value, &format!("{at}.{key}"))
        }),
        (Value::Array(found), Value::Array(written)) if found.len() == written.len() => {
            let mut pairs = found.iter().zip(written).enumerate();
            pairs.find_map(|(i, (found, written))| differs(found, written, &format!("{at}[{i}]")))
        }
        (found, written) if found == written => None,
        (found, written) => Some(format!("{at} is {found} and not {written}")),
    }
}

#[track_caller]
fn is_as_written(found: &Value, written: &Value) -> Result<()> {
    let difference = differs(found, written, "");
    ensure!(difference.is_none(), "{}\n{found}", difference.unwrap_or_default());
    Ok(())
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn condition<'a>(object: &'a Value, kind: &str) -> &'a str {
    let found = list_of(object, "/status/conditions").find(|c| c["type"] == kind);
    found.and_then(|c| c["status"].as_str()).unwrap_or_default()
}

/// Applies the first founding manifest where there is room for three replicas of it. Out: the set.
async fn training(room: &Room) -> Result<Option<Value>> {
    let Some(set) = seed(room, "000-00-podcliqueset-ml-training")? else { return Ok(None) };
    room.nodes(&[8, 8, 8, 8], |_| json!({})).await?;
    let class = "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high-priority}, value: 1000}";
    let answer = room.try_apply(class).await?;
    ensure!(matches!(answer.status, 201 | 409), "{}", String::from_utf8_lossy(&answer.body));
    let made = room.apply(&set.to_string()).await?;
    Ok(made.into_iter().next())
}

async fn until_running(room: &Room, pods: usize) -> Result<()> {
    room.until(&format!("{pods} pods run"), async || {
        let all = room.pods("app.kubernetes.io/part-of=ml-training").await?;
        let run = all.iter().filter(|pod| !pod.over && pod.phase == "Running").count();
        ensure!(run == pods && all.len() == pods, "{run} of {}", all.len());
        Ok(())
    })
    .await
}

/// Step 1: the set is taken as it is written, and each of its replicas is a PodGang as it is written.
pub async fn founding_set_becomes_gangs(room: &Room) -> Result<()> {
    let Some(set) = training(room).await? else { return Ok(()) };
    let Some(mut written) = seed(room, "000-01-podgang-ml-training-0")? else { return Ok(()) };
    written["metadata"]["ownerReferences"][0]["uid"] = set["metadata"]["uid"].clone();
    let gang = room
        .until("the gang names its pods", async || {
            let gang = room.get(&format!("{GANGS}/ml-training-0")).await?;
            let named: Vec<usize> =
                list_of(&gang, "/spec/podgroups").map(|g| list_of(g, "/podReferences").count()).collect();
            ensure!(named == [1, 4], "{named:?}");
            Ok(gang)
        })
        .await?;
    // The last part of a pod's name is the server's; the rest is as written.
    let mut found = gang.clone();
    for (group, plan) in found["spec"]["podgroups"]
        .as_array_mut()
        .into_iter()
        .flatten()
        .zip(written["spec"]["podgroups"].as_array().cloned().into_iter().flatten())
    {
        let name = group["name"].as_str().unwrap_or_default().to_owned();
        let references = group["podReferences"].as_array_mut().into_iter().flatten();
        for (reference, planned) in references.zip(list_of(&plan, "/podReferences")) {
            let pod = text(reference, "/name").to_owned();
            ensure!(pod.starts_with(&format!("{name}-")), "{pod} is no pod of {name}");
            reference["name"] = planned["name"].clone();
        }
    }
    is_as_written(&found, &written)?;
    room.until("both gangs run", async || {
        let list = room.get(GANGS).await?;
        let shown: Vec<String> = items(&list)
            .map(|g| format!("{} {}", text(g, "/metadata/name"), text(g, "/status/phase")))
            .collect();
        ensure!(shown == ["ml-training-0 Running", "ml-training-1 Running"], "{shown:?}");
        for gang in items(&list) {
            for kind in ["Initialized", "Scheduled", "Ready"] {
                ensure!(condition(gang, kind) == "True", "{kind}: {}", gang["status"]);
            }
        }
        Ok(())
    })
    .await
}

/// Step 2: KAI's PodGroup of each gang is as it is written, owned by the gang, and nobody else makes another.
pub async fn founding_gang_becomes_a_pod_group(room: &Room) -> Result<()> {
    if training(room).await?.is_none() {
        return Ok(());
    }
    let Some(mut written) = seed(room, "000-02-podgroup-pg-ml-training-0-abc-123-def")? else {
        return Ok(());
    };
    until_running(room, 10).await?;
    let gang = room.get(&format!("{GANGS}/ml-training-0")).await?;
    let uid = text(&gang, "/metadata/uid").to_owned();
    let in_full = written.to_string().replace("abc-123-def", &uid);
    written = serde_json::from_str(&in_full)?;
    // KAI has no such condition there; what it means is checked below.
    written["status"] = Value::Null;
    let groups = room.groups().await?;
    ensure!(groups.len() == 2, "a grouper made groups of its own: {:?}", groups.keys());
    let group =
        groups.get(&format!("pg-ml-training-0-{uid}")).with_context(|| format!("{:?}", groups.keys()))?;
    is_as_written(group, &written)?;
    for pod in room.pods("grove.io/podgang=ml-training-0").await? {
        let meta = &pod.all["metadata"];
        ensure!(meta["annotations"]["pod-group-name"] == group["metadata"]["name"], "{meta}");
        ensure!(
            meta["labels"]["kai.scheduler/subgroup-name"] == meta["labels"]["grove.io/podclique"],
            "{meta}"
        );
    }
    room.until("the group is scheduled", async || {
        let groups = room.groups().await?;
        for group in groups.values() {
            ensure!(condition(group, "Scheduled") == "True", "{}", group["status"]);
        }
        Ok(())
    })
    .await?;
    // Whoever fought over it would have written its spec again and again.
    let after = room.groups().await?;
    ensure!(after.len() == 2);
    for group in after.values() {
        ensure!(group["metadata"]["generation"].as_i64().unwrap_or(1) <= 2, "{}", group["metadata"]);
    }
    Ok(())
}

/// Step 3: pods are born with the gate, are freed of it, run, and the set says so in its columns.
pub async fn founding_pods_are_gated_and_then_run(room: &Room) -> Result<()> {
    let before = room.get("/api/v1/namespaces/$NS/pods").await?;
    let from = text(&before, "/metadata/resourceVersion").to_owned();
    if training(room).await?.is_none() {
        return Ok(());
    }
    until_running(room, 10).await?;
    // What has happened since, as the server remembers it.
    let http = room.site.cluster.http().await?;
    let url =
        format!("/api/v1/namespaces/{}/pods?watch=true&resourceVersion={from}&timeoutSeconds=2", room.ns);
    let answer = http.send(&Request::new("GET", &url)).await?;
    let said = String::from_utf8_lossy(&answer.body).into_owned();
    let events: Vec<Value> = said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let born: Vec<&Value> = events.iter().filter(|e| e["type"] == "ADDED").map(|e| &e["object"]).collect();
    ensure!(born.len() == 10, "{} pods were born", born.len());
    for pod in born {
        ensure!(pod["spec"]["schedulingGates"] == json!([{"name": "grove.io/podgang"}]), "{}", pod["spec"]);
        ensure!(pod["spec"].get("nodeName").is_none());
    }
    for pod in room.pods("").await? {
        ensure!(list_of(&pod.all, "/spec/schedulingGates").count() == 0, "{}", pod.name);
        ensure!(pod.all["spec"]["schedulerName"] == "kai-scheduler");
        ensure!(pod.all["spec"]["priorityClassName"] == "high-priority");
    }
    room.until("the set is ready", async || {
        let set = room.get(&format!("{SETS}/ml-training")).await?;
        ensure!(set["status"]["availableReplicas"] == 2, "{}", set["status"]);
        ensure!(set["status"]["ready"] == "2/2", "{}", set["status"]);
        let gangs: Vec<&str> = list_of(&set, "/status/podGangStatuses").map(|g| text(g, "/phase")).collect();
        ensure!(gangs == ["Running", "Running"], "{}", set["status"]);
        Ok(())
    })
    .await?;
    let Some(said) = room.shell("kubectl get pcs -n $NS", "").await? else { return Ok(()) };
    let lines: Vec<Vec<&str>> = said.out.lines().map(|line| line.split_whitespace().collect()).collect();
    let column = lines.first().and_then(|head| head.iter().position(|name| *name == "READY"));
    ensure!(column.and_then(|at| lines.get(1)?.get(at).copied()) == Some("2/2"), "{said:?}");
    Ok(())
}

/// Step 4: from two replicas to three.
pub async fn founding_set_is_scaled(room: &Room) -> Result<()> {
    if training(room).await?.is_none() {
        return Ok(());
    }
    until_running(room, 10).await?;
    let before: Vec<String> = room.pods("").await?.into_iter().map(|pod| pod.uid).collect();
    match room.shell("kubectl scale pcs ml-training -n $NS --replicas=3", "").await? {
        Some(said) => ensure!(said.exit == 0, "{said:?}"),
        None => drop(room.patch(&format!("{SETS}/ml-training"), &json!({"spec": {"replicas": 3}})).await?),
    }
    until_running(room, 15).await?;
    let after: Vec<String> = room.pods("").await?.into_iter().map(|pod| pod.uid).collect();
    ensure!(before.iter().all(|uid| after.contains(uid)), "pods were made anew");
    ensure!(room.groups().await?.len() == 3);
    room.until("three of three are ready", async || {
        let set = room.get(&format!("{SETS}/ml-training")).await?;
        ensure!(set["status"]["ready"] == "3/3", "{}", set["status"]);
        let gangs = room.get(GANGS).await?;
        let names: Vec<&str> = items(&gangs).map(|g| text(g, "/metadata/name")).collect();
        ensure!(names == ["ml-training-0", "ml-training-1", "ml-training-2"], "{names:?}");
        Ok(())
    })
    .await
}

/// Step 5: deleted, and everything that belonged to it is gone.
pub async fn founding_set_goes_with_everything(room: &Room) -> Result<()> {
    if training(room).await?.is_none() {
        return Ok(());
    }
    until_running(room, 10).await?;
    room.delete(&format!("{SETS}/ml-training")).await?;
    room.until("everything is gone", async || {
        for path in [
            SETS,
            CLIQUES,
            GANGS,
            "/apis/grove.io/v1alpha1/namespaces/$NS/podcliquescalinggroups",
            "/apis/scheduling.run.ai/v2alpha2/namespaces/$NS/podgroups",
            "/api/v1/namespaces/$NS/pods",
            "/api/v1/namespaces/$NS/services",
            "/api/v1/namespaces/$NS/secrets",
            "/apis/rbac.authorization.k8s.io/v1/namespaces/$NS/roles",
            "/apis/rbac.authorization.k8s.io/v1/namespaces/$NS/rolebindings",
            "/apis/autoscaling/v2/namespaces/$NS/horizontalpodautoscalers",
        ] {
            let list = room.get(path).await?;
            let left: Vec<&str> = items(&list).map(|object| text(object, "/metadata/name")).collect();
            ensure!(left.is_empty(), "{path}: {left:?}");
        }
        let accounts = room.get("/api/v1/namespaces/$NS/serviceaccounts").await?;
        ensure!(items(&accounts).all(|account| text(account, "/metadata/name") == "default"));
        Ok(())
    })
    .await
}

/// The variant for Kubernetes' own scheduler: a Workload by the gang API of the server, and pods that name their group. On the real
/// cluster it is kube-scheduler that places them.
pub async fn founding_inference_on_the_default_scheduler(room: &Room) -> Result<()> {
    let Some(set) = seed(room, "000-03-podcliqueset-inference-service")? else { return Ok(()) };
    let Some(mut written) = seed(room, "000-04-workload-inference-service-0")? else { return Ok(()) };
    room.nodes(&[0, 0], |_| json!({})).await?;
    room.apply(&set.to_string()).await?;
    room.until("three servers run", async || {
        let pods = room.pods("").await?;
        let run = pods.iter().filter(|pod| pod.phase == "Running").count();
        ensure!(run == 3 && pods.len() == 3, "{run} of {}", pods.len());
        Ok(())
    })
    .await?;
    let gang = room.get(&format!("{GANGS}/inference-service-0")).await?;
    ensure!(gang["metadata"]["labels"]["grove.io/scheduler-backend"] == "default", "{}", gang["metadata"]);
    let workload =
        room.get("/apis/scheduling.k8s.io/v1alpha2/namespaces/$NS/workloads/inference-service-0").await?;
    // The documents have the group's first version; this server has its second.
    written["apiVersion"] = json!("scheduling.k8s.io/v1alpha2");
    written["metadata"]["ownerReferences"][0]["uid"] = gang["metadata"]["uid"].clone();
    is_as_written(&workload, &written)?;
    ensure!(
        workload["spec"]["podGroupTemplates"][0]["schedulingPolicy"]["gang"]["minCount"] == 3,
        "{}",
        workload["spec"]
    );
    for pod in room.pods("").await? {
        ensure!(pod.all["spec"]["schedulerName"] == "default-scheduler");
        ensure!(
            pod.all["spec"]["schedulingGroup"]["podGroupName"] == "inference-service-0-servers",
            "{}",
            pod.all["spec"]
        );
    }
    Ok(())
}

/// The second founding document's set: two workers, both needed.
pub async fn founding_smallest_set(room: &Room) -> Result<()> {
    let Some(set) = seed(room, "001-05-podcliqueset-test")? else { return Ok(()) };
    room.nodes(&[1], |_| json!({})).await?;
    room.apply(&set.to_string()).await?;
    room.until_placed("grove.io/podclique=test-0-workers", 2, 2).await?;
    let gang = room.get(&format!("{GANGS}/test-0")).await?;
    let groups = room.groups().await?;
    ensure!(
        groups.keys().eq([&format!("pg-test-0-{}", text(&gang, "/metadata/uid"))]),
        "{:?}",
        groups.keys()
    );
    Ok(())
}

/// Mistakes are named when a set is written, on either cluster; scaling stops at what the gang needs.
pub async fn sets_are_judged_as_they_come(room: &Room) -> Result<()> {
    let set = |name: &str, replicas: i64, min: i64| {
        format!(
            "{{apiVersion: grove.io/v1alpha1, kind: PodCliqueSet, metadata: {{name: {name}}}, spec: {{replicas: 1, template: {{cliques: \
             [{{name: w, spec: {{replicas: {replicas}, minAvailable: {min}, podSpec: {{schedulerName: kai-scheduler, containers: \
             [{{name: c, image: i}}]}}}}}}]}}}}}}"
        )
    };
    room.nodes(&[0], |_| json!({})).await?;
    room.until("mistakes are refused", async || {
        let answer = room.try_apply(&set("wrong", 1, 2)).await?;
        if answer.status == 201 {
            room.delete(&format!("{SETS}/wrong")).await?;
        }
        let said = String::from_utf8_lossy(&answer.body).into_owned();
        ensure!(
            answer.status == 422 && said.contains("cliques[0].spec.minAvailable"),
            "{} {said}",
            answer.status
        );
        Ok(())
    })
    .await?;
    let made = room.apply(&set("right", 3, 2)).await?;
    let clique = made
        .first()
        .and_then(|set| set.pointer("/spec/template/cliques/0/spec"))
        .cloned()
        .unwrap_or_default();
    ensure!(
        clique["roleName"] == "w" && clique["podSpec"]["restartPolicy"] == "Always",
        "defaults: {clique}"
    );
    room.until_placed("grove.io/podclique=right-0-w", 3, 3).await?;
    let path = format!("{CLIQUES}/right-0-w/scale");
    room.until("a scale below the minimum is refused", async || {
        let refused = room.patch(&path, &json!({"spec": {"replicas": 1}})).await;
        let said = refused.err().map(|error| error.to_string()).unwrap_or_default();
        ensure!(said.contains("the gang needs 2"), "{said}");
        Ok(())
    })
    .await?;
    room.patch(&path, &json!({"spec": {"replicas": 2}})).await?;
    room.until_placed("grove.io/podclique=right-0-w", 2, 2).await
}

/// Muster's own scheduler reads the PodGang itself: whole or not at all, and no other resource stands for it.
pub async fn gangs_without_a_pod_group(room: &Room) -> Result<()> {
    room.nodes(&[2], |_| json!({})).await?;
    let clique = |name: &str, replicas: i64| {
        format!(
            "{{name: {name}, spec: {{replicas: {replicas}, podSpec: {{schedulerName: muster-scheduler, terminationGracePeriodSeconds: 1, \
             containers: [{{name: c, image: i, resources: {{limits: {{nvidia.com/gpu: 1}}}}}}]}}}}}}"
        )
    };
    let set = |name: &str, cliques: String| {
        format!(
            "{{apiVersion: grove.io/v1alpha1, kind: PodCliqueSet, metadata: {{name: {name}}}, spec: {{replicas: 1, template: \
             {{cliques: [{cliques}]}}}}}}"
        )
    };
    room.apply(&set("big", format!("{}, {}", clique("a", 1), clique("b", 2)))).await?;
    room.apply(&set("small", format!("{}, {}", clique("a", 1), clique("b", 1)))).await?;
    room.until_placed("app.kubernetes.io/part-of=small", 2, 2).await?;
    ensure!(room.placed("app.kubernetes.io/part-of=big").await? == (0, 3));
    ensure!(room.groups().await?.is_empty(), "a PodGroup was made");
    room.until("the gang that runs says so, and the other waits", async || {
        let phase = async |name: &str| {
            let gang = room.get(&format!("{GANGS}/{name}")).await?;
            anyhow::Ok((text(&gang, "/status/phase").to_owned(), condition(&gang, "Scheduled").to_owned()))
        };
        let (small, big) = (phase("small-0").await?, phase("big-0").await?);
        ensure!(
            small == ("Running".into(), "True".into()) && big == ("Pending".into(), "False".into()),
            "{small:?} {big:?}"
        );
        Ok(())
    })
    .await?;
    room.delete(&format!("{SETS}/small")).await?;
    room.patch(
        "/api/v1/nodes/$NS-0/status",
        &json!({"status": {"capacity": {"nvidia.com/gpu": "3"}, "allocatable": {"nvidia.com/gpu": "3"}}}),
    )
    .await?;
    room.until_placed("app.kubernetes.io/part-of=big", 3, 3).await
}
