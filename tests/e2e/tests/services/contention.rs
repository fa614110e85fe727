//! More work than room: queues take back what is theirs, priority goes first, work moves together, and a gang that lost a
//! member gives its places back.

use crate::manifests::{pod, queue, replicas};
use crate::room::Room;
use anyhow::{Result, ensure};
use serde_json::{Value, json};

/// Two queues of a department with two GPUs each. One borrows the other's until the other asks.
pub async fn queues_take_back_what_is_theirs(room: &Room) -> Result<()> {
    room.nodes(&[4], |_| json!({})).await?;
    room.apply(&queue("$NS", "", 4)).await?;
    room.apply(&queue("$NS-a", "$NS", 2)).await?;
    room.apply(&queue("$NS-b", "$NS", 2)).await?;
    room.apply(&replicas("a", 4, 1, "$NS-a")).await?;
    room.until_placed("app=a", 4, 4).await?;
    room.apply(&replicas("b", 2, 1, "$NS-b")).await?;
    room.until_placed("app=b", 2, 2).await?;
    room.until_placed("app=a", 2, 4).await?;
    for (name, gpus) in [("$NS-a", 2), ("$NS-b", 2), ("$NS", 4)] {
        room.until(&format!("queue {name} counts {gpus} GPUs"), async || {
            let queue = room.get(&format!("/apis/scheduling.run.ai/v2/queues/{name}")).await?;
            ensure!(gpus_of(&queue["status"]["allocated"]) == gpus, "{}", queue["status"]);
            Ok(())
        })
        .await?;
    }
    // Nobody takes anything back from a queue that has no more than its own.
    room.until_refused("app=a").await?;
    ensure!(room.placed("app=b").await? == (2, 2));
    Ok(())
}

/// In one queue, work that must not wait goes before work that may.
pub async fn priority_goes_first(room: &Room) -> Result<()> {
    room.nodes(&[2], |_| json!({})).await?;
    room.apply(&queue("$NS", "", 2)).await?;
    room.apply(&queue("$NS-a", "$NS", 2)).await?;
    let labelled = |class: &str, app: &str| {
        format!("role: {app}, kai.scheduler/queue: $NS-a, priorityClassName: {class}")
    };
    room.apply(&pod("train-1", 1, &labelled("train", "train"), "", "")).await?;
    room.apply(&pod("train-2", 1, &labelled("train", "train"), "", "")).await?;
    room.until_placed("role=train", 2, 2).await?;
    room.apply(&pod("build", 1, &labelled("build", "build"), "", "")).await?;
    room.until_placed("role=build", 1, 1).await?;
    // Nobody made these pods but the user, so the one that had to go is gone.
    room.until_placed("role=train", 1, 1).await?;
    // Work of the same priority takes nobody's place.
    room.apply(&pod("build-2", 1, &labelled("build", "late"), "", "")).await?;
    room.until_placed("role=late", 1, 1).await?;
    room.apply(&pod("build-3", 1, &labelled("build", "later"), "", "")).await?;
    room.until_refused("role=later").await?;
    ensure!(room.placed("role=build").await? == (1, 1) && room.placed("role=late").await? == (1, 1));
    Ok(())
}

/// Two half-full nodes and a pod that needs a whole one: the halves are put together.
pub async fn halves_are_put_together(room: &Room) -> Result<()> {
    room.nodes(&[4, 4], |_| json!({})).await?;
    let names = ["a", "b", "c", "d"];
    for name in names {
        room.apply(&replicas(name, 1, 2, "default-queue")).await?;
    }
    for name in names {
        room.until_placed(&format!("app={name}"), 1, 1).await?;
    }
    // One of each node goes.
    let mut left = Vec::new();
    let mut halved = std::collections::BTreeSet::new();
    for name in names {
        let node = room.nodes_of(&format!("app={name}")).await?;
        if halved.insert(node) {
            room.delete(&format!("/apis/apps/v1/namespaces/$NS/replicasets/{name}")).await?;
            room.until_placed(&format!("app={name}"), 0, 0).await?;
        } else {
            left.push(name);
        }
    }
    ensure!(left.len() == 2, "four halves on two nodes, left are {left:?}");
    room.apply(&pod("whole", 4, "kai.scheduler/queue: default-queue", "", "")).await?;
    room.until_placed("app=whole", 1, 1).await?;
    for name in &left {
        room.until_placed(&format!("app={name}"), 1, 1).await?;
    }
    let (one, other) = (
        room.nodes_of(&format!("app={}", left[0])).await?,
        room.nodes_of(&format!("app={}", left[1])).await?,
    );
    ensure!(one == other && one != room.nodes_of("app=whole").await?, "{one:?} {other:?}");
    Ok(())
}

/// A gang that runs below its minimum gives its places back after its grace.
pub async fn a_gang_that_lost_a_member_goes(room: &Room) -> Result<()> {
    room.nodes(&[3], |_| json!({})).await?;
    let group = |name: &str, grace: &str| {
        format!(
            "{{apiVersion: scheduling.run.ai/v2alpha2, kind: PodGroup, metadata: {{name: {name}}}, spec: {{minMember: 3, queue: \
             default-queue, priorityClassName: train, stalenessGracePeriod: {grace}}}}}"
        )
    };
    room.apply(&group("frail", "2s")).await?;
    for n in 0..3 {
        room.apply(&pod(&format!("frail-{n}"), 1, "gang: frail", "pod-group-name: frail", "")).await?;
    }
    room.until_placed("gang=frail", 3, 3).await?;
    room.delete("/api/v1/namespaces/$NS/pods/frail-1").await?;
    room.until("the others are gone", async || {
        let left = room.pods("gang=frail").await?;
        ensure!(left.is_empty(), "{:?}", left.iter().map(|pod| &pod.name).collect::<Vec<_>>());
        Ok(())
    })
    .await
}

fn gpus_of(amounts: &Value) -> i64 {
    match &amounts["nvidia.com/gpu"] {
        Value::String(text) => text.parse().unwrap_or(-1),
        other => other.as_i64().unwrap_or(-1),
    }
}
