//! KAI's own samples, applied as they are, each in a namespace of its own.

use crate::manifests::foreign_kind;
use crate::room::{Room, items};
use anyhow::{Context, Result, ensure};
use muster_e2e::samples::samples_dir;
use muster_testkit::or_skip;

/// Samples by how many pods of theirs are placed. Nobody makes the pods of PyTorchJobs here.
const PLACED: [(&str, usize); 13] = [
    ("batch__batch-job-min-member.yaml", 6),
    ("batch__batch-job.yaml", 2),
    ("batch__pytorch-job.yaml", 0),
    ("elastic__pytorch-elastic.yaml", 0),
    ("gpu-sharing__gpu-memory.yaml", 1),
    ("gpu-sharing__gpu-sharing-init-container.yaml", 1),
    ("gpu-sharing__gpu-sharing-non-default-container.yaml", 1),
    ("gpu-sharing__gpu-sharing.yaml", 1),
    ("gpu-sharing__mps__gpu-sharing-with-mps.yaml", 1),
    ("priority__example__build-priority-pod.yaml", 1),
    ("priority__example__train-priority-pod.yaml", 1),
    ("quickstart__pods__cpu-only-pod.yaml", 1),
    ("quickstart__pods__gpu-pod.yaml", 1),
];

pub async fn kai_samples(room: &Room) -> Result<()> {
    let Some(dir) = or_skip(samples_dir())? else { return Ok(()) };
    let dir = dir.join("kai");
    room.apply(&foreign_kind("kubeflow.org", "v1", "PyTorchJob")).await?;
    let ns = |n: usize| format!("{}-{n}", room.ns);
    let mut commands = String::from(
        "set -e\nkubectl wait --for=condition=Established crd/pytorchjobs.kubeflow.org --timeout=60s\n",
    );
    for (n, (file, _)) in PLACED.iter().enumerate() {
        let (ns, file) = (ns(n), dir.join(file));
        commands.push_str(&format!("kubectl create namespace {ns}\n"));
        // On a real cluster pods are refused until the namespace has its service account.
        commands
            .push_str(&format!("kubectl wait --for=create serviceaccount/default -n {ns} --timeout=60s\n"));
        commands.push_str(&format!("kubectl apply -n {ns} -f '{}'\n", file.display()));
    }
    let Some(said) = room.shell(&commands, "").await? else { return Ok(()) };
    ensure!(said.exit == 0, "{}{}", said.out, said.err);
    for (n, (file, placed)) in PLACED.iter().enumerate() {
        room.until(&format!("{placed} pods of {file} are placed"), async || {
            let pods = room.get(&format!("/api/v1/namespaces/{}/pods", ns(n))).await?;
            let all = items(&pods).count();
            let seen = items(&pods).filter(|pod| pod["spec"]["nodeName"].is_string()).count();
            ensure!(seen == *placed, "{seen} of {all}");
            Ok(())
        })
        .await
        .with_context(|| ns(n))?;
    }
    for n in 0..PLACED.len() {
        room.delete(&format!("/api/v1/namespaces/{}", ns(n))).await?;
    }
    Ok(())
}
