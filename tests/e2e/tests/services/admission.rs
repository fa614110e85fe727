//! What is wrong is said when it is written, with the field and the fix.

use crate::manifests::pod;
use crate::room::Room;
use anyhow::{Result, bail, ensure};
use serde_json::json;

pub async fn mistakes_are_named_with_their_fix(room: &Room) -> Result<()> {
    let queue = "kai.scheduler/queue: default-queue";
    room.until("the webhooks are there", async || {
        let answer = room.try_apply(&pod("probe", 0, queue, "gpu-fraction: \"7\"", "")).await?;
        if answer.status == 201 {
            room.delete("/api/v1/namespaces/$NS/pods/probe").await?;
        }
        ensure!(answer.status != 201, "it was taken");
        Ok(())
    })
    .await?;
    // What, GPUs, labels, annotations; then words of the refusal: the field and the fix.
    let refused = [
        (
            "more than a GPU",
            0,
            queue,
            "gpu-fraction: \"1.5\"",
            ["annotations[gpu-fraction]", "write for example \"0.5\""],
        ),
        (
            "no number",
            0,
            queue,
            "gpu-fraction: half",
            ["annotations[gpu-fraction]", "write for example \"0.5\""],
        ),
        ("no memory", 0, queue, "gpu-memory: 4Gi", ["annotations[gpu-memory]", "whole number of MiB"]),
        (
            "both",
            0,
            queue,
            "gpu-fraction: \"0.5\", gpu-memory: \"4000\"",
            ["annotations[gpu-memory]", "keep one of the two"],
        ),
        (
            "whole and part",
            1,
            queue,
            "gpu-fraction: \"0.5\"",
            ["spec.containers[0].resources", "remove the GPUs here"],
        ),
    ];
    for (what, gpus, labels, annotations, words) in refused {
        let answer = room.try_apply(&pod("wrong", gpus, labels, annotations, "")).await?;
        let said = String::from_utf8_lossy(&answer.body).replace("\\\"", "\"");
        ensure!((400..500).contains(&answer.status), "{what}: {} {said}", answer.status);
        for word in words {
            ensure!(said.contains(word), "{what}: no {word:?} in {said}");
        }
    }
    // Kubernetes refuses half a GPU by itself; what to write instead is said as well.
    let half = pod("half", 1, queue, "", "").replace("nvidia.com/gpu: 1", "nvidia.com/gpu: \"0.5\"");
    let answer = room.try_apply(&half).await?;
    let said = format!("{} {}", answer.header("warning").join(" "), String::from_utf8_lossy(&answer.body));
    ensure!(
        (400..500).contains(&answer.status) && said.contains("gpu-fraction"),
        "half: {} {said}",
        answer.status
    );
    let warned = [
        ("queue as annotation", "", "kai.scheduler/queue: default-queue", "label"),
        ("queue misspelt", "kai.scheduler/qeue: default-queue", "", "kai.scheduler/queue"),
        ("group of another system", queue, "scheduling.k8s.io/group-name: g", "pod-group-name"),
        ("minimum on a pod", queue, "kai.scheduler/batch-min-member: \"2\"", "Jobs and JobSets"),
    ];
    for (n, (what, labels, annotations, word)) in warned.into_iter().enumerate() {
        let answer = room.try_apply(&pod(&format!("taken-{n}"), 0, labels, annotations, "")).await?;
        ensure!(answer.status == 201, "{what}: {}", String::from_utf8_lossy(&answer.body));
        let warnings = answer.header("warning").join("\n");
        ensure!(warnings.contains(word), "{what}: no {word:?} in {warnings:?}");
    }
    // What the containers of a pod refer to is not exchanged under them.
    room.apply(&pod("shares", 0, queue, "gpu-fraction: \"0.5\"", "")).await?;
    let theirs = json!({"metadata": {"annotations": {"runai/shared-gpu-configmap": "theirs"}}});
    match room.patch("/api/v1/namespaces/$NS/pods/shares", &theirs).await {
        Ok(_) => bail!("the config map of a share was exchanged"),
        Err(error) => ensure!(error.to_string().contains("cannot be changed"), "{error}"),
    }
    Ok(())
}
