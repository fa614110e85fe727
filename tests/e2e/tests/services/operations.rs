//! Schedulers that come and go: shards side by side, one that is killed in a burst, one that takes a name over.

use crate::manifests::{gang, pod};
use crate::room::{Room, items};
use anyhow::{Context, Result, ensure};
use muster_testkit::Services;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Two schedulers, each for the nodes of its pool.
pub async fn shards_keep_to_their_pools(room: &Room) -> Result<()> {
    let pools = ["a", "b"].map(|pool| format!("{}-{pool}", room.ns));
    room.nodes(&[2, 2], |n| json!({"kai.scheduler/node-pool": pools[n]})).await?;
    let mut shards = Vec::new();
    for pool in &pools {
        let args = [
            "--components",
            "scheduler",
            "--scheduler-name",
            "kai-scheduler",
            "--partition-label-value",
            pool,
        ];
        shards.push(Services::start(room.site.cluster, &args).await?);
    }
    for (n, pool) in pools.iter().enumerate() {
        let labels =
            format!("pool: p{n}, kai.scheduler/queue: default-queue, kai.scheduler/node-pool: {pool}");
        for i in 0..3 {
            room.apply(&pod(&format!("p{n}-{i}"), 1, &labels, "", "")).await?;
        }
    }
    for (n, pool) in pools.iter().enumerate() {
        // Two of three: the room in the other pool is not theirs.
        room.until_placed(&format!("pool=p{n}"), 2, 3).await?;
        let nodes = room.nodes_of(&format!("pool=p{n}")).await?;
        ensure!(nodes == BTreeSet::from([format!("{}-{n}", room.ns)]), "{nodes:?}");
        room.get(&format!(
            "/apis/coordination.k8s.io/v1/namespaces/muster-system/leases/kai-scheduler-{pool}"
        ))
        .await?;
    }
    for shard in &mut shards {
        shard.check()?;
    }
    Ok(())
}

/// A scheduler that is killed while it binds, and started again: every gang ends up whole, and no pod is lost or made twice.
pub async fn killed_in_a_burst(room: &Room) -> Result<()> {
    const GANGS: usize = 30;
    const PODS: usize = 4;
    room.nodes(&[0, 0], |_| json!({})).await?;
    let args = ["--components", "scheduler", "--scheduler-name", &room.ns];
    let first = Services::start(room.site.cluster, &args).await?;
    let submit = async {
        let mut uids = BTreeSet::new();
        for gang in 0..GANGS {
            room.apply(&format!(
                "{{apiVersion: scheduling.run.ai/v2alpha2, kind: PodGroup, metadata: {{name: gang-{gang}}}, spec: {{minMember: \
                 {PODS}, queue: default-queue, priorityClassName: train}}}}"
            ))
            .await?;
            for n in 0..PODS {
                let labels = format!("burst: one, gang: gang-{gang}");
                let manifest =
                    pod(&format!("gang-{gang}-{n}"), 0, &labels, &format!("pod-group-name: gang-{gang}"), "");
                let made = room.apply(&manifest.replace("kai-scheduler", "$NS")).await?;
                uids.extend(made.iter().filter_map(|pod| pod["metadata"]["uid"].as_str().map(str::to_owned)));
            }
        }
        anyhow::Ok(uids)
    };
    let kill = async {
        room.until("some are bound", async || {
            let (placed, _) = room.placed("burst=one").await?;
            ensure!(placed >= PODS, "{placed}");
            Ok(())
        })
        .await?;
        first.kill();
        anyhow::Ok(())
    };
    let (uids, ()) = tokio::try_join!(submit, kill)?;
    let mut second = Services::start(room.site.cluster, &args).await?;
    let all = GANGS * PODS;
    room.until_placed("burst=one", all, all).await?;
    let left: BTreeSet<String> = room.pods("burst=one").await?.into_iter().map(|pod| pod.uid).collect();
    ensure!(
        left == uids,
        "{} pods were created, {} of them are there",
        uids.len(),
        left.intersection(&uids).count()
    );
    second.check()
}

/// Two of the same name: one works, and when it ends the other goes on at once.
pub async fn handed_over(room: &Room) -> Result<()> {
    room.nodes(&[0], |_| json!({})).await?;
    let args = ["--components", "scheduler,grouper", "--scheduler-name", &room.ns];
    let mine = |name: &str| {
        pod(name, 0, "kai.scheduler/queue: default-queue", "", "").replace("kai-scheduler", "$NS")
    };
    let lease = "/apis/coordination.k8s.io/v1/namespaces/muster-system/leases/$NS";
    let holder = async || -> Result<String> {
        let lease = room.get(lease).await?;
        let holder = lease["spec"]["holderIdentity"].as_str().filter(|holder| !holder.is_empty());
        Ok(holder.context("nobody holds the lease")?.to_owned())
    };
    let first = Services::start(room.site.cluster, &args).await?;
    room.apply(&mine("before")).await?;
    room.until_placed("app=before", 1, 1).await?;
    let one = holder().await?;
    let mut second = Services::start(room.site.cluster, &args).await?;
    first.stop()?;
    let other = room.until("the second holds the lease", async || {
        let now = holder().await?;
        ensure!(now != one, "{now} holds it");
        Ok(now)
    });
    let other = other.await?;
    room.apply(&mine("after")).await?;
    room.until_placed("app=after", 1, 1).await?;
    ensure!(holder().await? == other);
    second.check()
}

/// Bindings by way of bind requests: the scheduler writes them, and the binder of another process carries them out.
pub async fn bound_by_a_service(room: &Room) -> Result<()> {
    room.nodes(&[4], |_| json!({})).await?;
    let args = ["--components", "scheduler,grouper", "--scheduler-name", &room.ns, "--bind", "service"];
    let mut scheduler = Services::start(room.site.cluster, &args).await?;
    room.apply(&gang("served", 4, 4).replace("kai-scheduler", "$NS")).await?;
    room.until_placed("app=served", 4, 4).await?;
    room.until("each pod has a bind request that was carried out", async || {
        let requests = room.get("/apis/scheduling.run.ai/v1alpha2/namespaces/$NS/bindrequests").await?;
        let done = items(&requests).filter(|request| request["status"]["phase"] == "Succeeded").count();
        ensure!(done == 4, "{done}");
        Ok(())
    })
    .await?;
    scheduler.check()
}

/// A name that another scheduler answers to is refused; told to take it over, Muster does, and gives it back at its end.
pub async fn a_name_is_taken_over(room: &Room) -> Result<()> {
    room.nodes(&[0], |_| json!({})).await?;
    // Where KAI's own schedulers keep their leases.
    let namespace =
        room.try_apply("{apiVersion: v1, kind: Namespace, metadata: {name: kai-scheduler}}").await?;
    ensure!(matches!(namespace.status, 201 | 409), "{}", String::from_utf8_lossy(&namespace.body));
    room.apply(
        "{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: $NS, namespace: kai-scheduler}, spec: \
         {holderIdentity: somebody, leaseDurationSeconds: 15, renewTime: \"2026-01-01T00:00:00.000000Z\"}}",
    )
    .await?;
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kai-scheduler/leases/$NS";
    let holder = |lease: &Value| lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned();
    let renew = async |n: u32| -> Result<()> {
        let time = format!("2026-01-01T00:{:02}:{:02}.000000Z", n / 60 % 60, n % 60);
        room.patch(lease, &json!({"spec": {"renewTime": time}})).await.map(|_| ())
    };
    let mut args = vec!["--components", "scheduler,grouper", "--scheduler-name", &room.ns];
    let mut refused = Services::start(room.site.cluster, &args).await?;
    let mut n = 0;
    let why = loop {
        n += 1;
        ensure!(n < 60, "it goes on beside a live holder");
        renew(n).await?;
        if let Err(ended) = refused.check() {
            break ended.to_string();
        }
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    };
    ensure!(why.contains("--take-over") && why.contains("somebody"), "{why}");

    room.apply(&pod("mine", 0, "kai.scheduler/queue: default-queue", "", "").replace("kai-scheduler", "$NS"))
        .await?;
    args.push("--take-over");
    let taken = Services::start(room.site.cluster, &args).await?;
    room.until_placed("app=mine", 1, 1).await?;
    let now = holder(&room.get(lease).await?);
    ensure!(now != "somebody" && !now.is_empty(), "held by {now:?}");
    taken.stop().context("stop")?;
    room.until("the lease is free", async || {
        let now = holder(&room.get(lease).await?);
        ensure!(now.is_empty(), "held by {now}");
        Ok(())
    })
    .await
}
