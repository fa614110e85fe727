//! Work that comes, is placed and ends: a job, gangs, elastic gangs, and the groups that owners make.

use crate::manifests::gang;
use crate::room::{Room, list_of};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

/// What a newcomer types: a job that names a queue, applied with kubectl, runs and ends, and its group tells how far it is.
pub async fn quickstart(room: &Room) -> Result<()> {
    let job = r#"
apiVersion: batch/v1
kind: Job
metadata: {name: hello}
spec:
  template:
    metadata: {labels: {kai.scheduler/queue: default-queue}}
    spec:
      schedulerName: kai-scheduler
      restartPolicy: Never
      containers:
      - {name: main, image: busybox, command: [sleep, "1"], resources: {limits: {nvidia.com/gpu: 1}}}
"#;
    let Some(said) = room.shell("kubectl apply -n $NS -f -", job).await? else { return Ok(()) };
    ensure!(said.exit == 0 && said.out.contains("job.batch/hello created"), "{said:?}");
    room.until("the job is complete", async || {
        let job = room.get("/apis/batch/v1/namespaces/$NS/jobs/hello").await?;
        let complete =
            list_of(&job, "/status/conditions").any(|c| c["type"] == "Complete" && c["status"] == "True");
        ensure!(complete, "{}", job["status"]);
        Ok(())
    })
    .await?;
    let uid = room.get("/apis/batch/v1/namespaces/$NS/jobs/hello").await?;
    let uid = uid["metadata"]["uid"].as_str().context("a job has a uid")?.to_owned();
    room.until("the group tells that all is over", async || {
        let groups = room.groups().await?;
        ensure!(groups.len() == 1, "{:?}", groups.keys());
        let group = groups.get(&format!("pg-hello-{uid}")).context("no group of the job")?;
        ensure!(group["spec"]["queue"] == "default-queue", "{}", group["spec"]);
        ensure!(group["spec"]["minMember"] == 1, "{}", group["spec"]);
        ensure!(condition(group, "Completed") == "True", "{}", group["status"]);
        Ok(())
    })
    .await?;
    let said = room.shell("kubectl get pods -n $NS -o jsonpath='{.items[*].status.phase}'", "").await?;
    ensure!(said.is_some_and(|said| said.out == "Succeeded"));
    Ok(())
}

/// Six GPUs, gangs of four: the first runs whole, the second not at all, until the first is gone.
pub async fn gang_whole_or_nothing(room: &Room) -> Result<()> {
    room.nodes(&[3, 3], |_| json!({})).await?;
    room.apply(&gang("first", 4, 4)).await?;
    room.until_placed("app=first", 4, 4).await?;
    room.apply(&gang("second", 4, 4)).await?;
    let why = room.until_refused("app=second").await?;
    ensure!(why.contains("4"), "the reason has no numbers: {why}");
    ensure!(room.placed("app=second").await? == (0, 4));
    room.until_group_waits("pg-second").await?;
    room.until("the group is not scheduled", async || {
        let groups = room.groups().await?;
        let waits = groups.iter().find(|(name, _)| name.starts_with("pg-second")).context("no group")?.1;
        ensure!(condition(waits, "Scheduled") == "False", "{}", waits["status"]);
        Ok(())
    })
    .await?;
    ensure!(room.placed("app=second").await? == (0, 4));
    room.delete("/apis/batch/v1/namespaces/$NS/jobs/first").await?;
    room.until_placed("app=second", 4, 4).await?;
    room.until("the second group is scheduled", async || {
        let groups = room.groups().await?;
        let runs = groups.iter().find(|(name, _)| name.starts_with("pg-second")).context("no group")?.1;
        ensure!(condition(runs, "Running") == "True", "{}", runs["status"]);
        Ok(())
    })
    .await
}

/// Six pods of which two are enough: as many run as there are GPUs, and the rest follow when there are more.
pub async fn elastic_beyond_its_minimum(room: &Room) -> Result<()> {
    room.nodes(&[4], |_| json!({})).await?;
    room.apply(&gang("elastic", 6, 2)).await?;
    room.until_placed("app=elastic", 4, 6).await?;
    room.patch(
        "/api/v1/nodes/$NS-0/status",
        &json!({"status": {
        "capacity": {"nvidia.com/gpu": "6"}, "allocatable": {"nvidia.com/gpu": "6"}}}),
    )
    .await?;
    room.until_placed("app=elastic", 6, 6).await
}

/// Each owner makes the groups that KAI's users know: a job one, a deployment one per pod, a stateful set one.
pub async fn owners_make_groups(room: &Room) -> Result<()> {
    room.nodes(&[3], |_| json!({})).await?;
    let template = "{metadata: {labels: {app: NAME, kai.scheduler/queue: default-queue}}, spec: {schedulerName: kai-scheduler, \
                    containers: [{name: c, image: i}]}}";
    let set = |kind: &str, name: &str, replicas: u32, more: &str| {
        format!(
            "{{apiVersion: apps/v1, kind: {kind}, metadata: {{name: {name}}}, spec: {{replicas: {replicas}, {more} \
             selector: {{matchLabels: {{app: {name}}}}}, template: {}}}}}",
            template.replace("NAME", name)
        )
    };
    room.apply(&set("Deployment", "web", 2, "")).await?;
    room.apply(&set("ReplicaSet", "rs", 2, "")).await?;
    room.apply(&set("StatefulSet", "db", 2, "serviceName: db, podManagementPolicy: Parallel,")).await?;
    room.apply(&gang("batch", 3, 2)).await?;
    for (app, count) in [("web", 2), ("rs", 2), ("db", 2), ("batch", 3)] {
        room.until_placed(&format!("app={app}"), count, count).await?;
    }
    room.until("there are the groups of each owner", async || {
        let said = room.group_minimums().await?;
        let of =
            |prefix: &str| said.iter().filter(|group| group.starts_with(prefix)).cloned().collect::<Vec<_>>();
        ensure!(of("pg-batch") == ["pg-batch 2"], "{said:?}");
        ensure!(of("pg-rs") == ["pg-rs 1"], "{said:?}");
        ensure!(of("pg-db") == ["pg-db 1"], "{said:?}");
        ensure!(of("pg-web").len() == 2 && said.len() == 5, "{said:?}");
        Ok(())
    })
    .await
}

/// The status of a condition, or nothing.
fn condition<'a>(object: &'a Value, kind: &str) -> &'a str {
    let found = list_of(object, "/status/conditions").find(|c| c["type"] == kind);
    found.and_then(|c| c["status"].as_str()).unwrap_or_default()
}
