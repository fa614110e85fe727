//! Muster's scheduler on nodes that KWOK plays: the one test that shows that nothing leans on the simulated kubelets.

use anyhow::{Context, Result, ensure};
use muster_e2e::script::{Shell, has_kubectl};
use muster_e2e::{clusters, crds};
use muster_testkit::{Request, Services, eventually};
use std::time::Duration;

const JOB: &str = r#"
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: kwok}
spec: {resources: {gpu: {quota: -1, limit: -1}, cpu: {quota: -1, limit: -1}, memory: {quota: -1, limit: -1}}}
---
apiVersion: v1
kind: Namespace
metadata: {name: kwok}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: gang
  namespace: kwok
  annotations: {kai.scheduler/batch-min-member: "4"}
spec:
  parallelism: 4
  completions: 4
  template:
    metadata: {labels: {kai.scheduler/queue: kwok}}
    spec:
      schedulerName: kai-scheduler
      restartPolicy: Never
      containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 2}}}]
"#;

#[tokio::test]
async fn a_gang_runs_on_nodes_of_kwok() -> Result<()> {
    let Some(real) = clusters::real().await? else { return Ok(()) };
    if !has_kubectl().await? {
        return Ok(());
    }
    crds::install(real).await?;
    let args =
        ["--components", "scheduler,grouper", "--scheduler-name", "kai-scheduler", "--default-queue", "kwok"];
    let mut services = Services::start(real, &args).await?;
    let said =
        tokio::task::spawn_blocking(|| Shell::new(real, "kwok")?.run("kubectl apply -f -", JOB)).await??;
    ensure!(said.exit == 0, "{}", said.err);
    let http = real.http().await?;
    // KWOK ends the pods of a job as soon as they run.
    eventually("the job is complete", Duration::from_secs(60), async || {
        let job = http.send(&Request::new("GET", "/apis/batch/v1/namespaces/kwok/jobs/gang")).await?;
        let job = job.json().context("an answer is JSON")?;
        ensure!(job["status"]["succeeded"] == 4, "{}", job["status"]);
        anyhow::Ok(())
    })
    .await
    .with_context(|| services.log())?;
    services.check()
}
