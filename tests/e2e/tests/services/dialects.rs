//! Workloads of T9k, Volcano, Koordinator and Kueue as their users write them, each alone and all at once beside KAI's queues.

use crate::room::{Room, items, list_of};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The text of a founding manifest; `None` after saying why the scenario is skipped.
fn seed(name: &str) -> Option<String> {
    let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/samples/seeds");
    let text = std::fs::read_to_string(folder.join(format!("{name}.yaml"))).ok();
    if text.is_none() {
        println!("skipped: no ../shared/samples/seeds/{name}.yaml");
    }
    text
}

/// A pod of some scheduler that asks for so many GPUs.
fn pod(name: &str, scheduler: &str, gpus: u32, labels: Value, annotations: Value) -> String {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": {"schedulerName": scheduler, "containers": [{"name": "main", "image": "busybox",
            "resources": {"limits": {"nvidia.com/gpu": gpus.to_string()}}}]},
    })
    .to_string()
}

async fn until_status(room: &Room, path: &str, pointer: &str, wanted: Value) -> Result<Value> {
    room.until(&format!("{pointer} of {path} is {wanted}"), async || {
        let object = room.get(path).await?;
        let found = object.pointer(pointer).cloned().unwrap_or_default();
        ensure!(found == wanted, "{found} in {}", object["status"]);
        Ok(object)
    })
    .await
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    list_of(object, "/status/conditions").find(|condition| condition["type"] == kind)
}

/// Two pods of a group of two: the first waits for the second.
pub async fn t9k_two_pods_dance_together(room: &Room) -> Result<()> {
    let (Some(group), Some(pods)) = (seed("002-06-podgroup-dance"), seed("002-07-pod-test1")) else {
        return Ok(());
    };
    let pods: Vec<&str> = pods.split("\n---\n").collect();
    let [first, second] = pods[..] else { anyhow::bail!("two pods are expected, not {}", pods.len()) };
    room.apply(&group).await?;
    room.apply(first).await?;
    let path = "/apis/scheduler.tensorstack.dev/v1beta1/namespaces/$NS/podgroups/dance";
    let path = path.replace("$NS", &room.ns);
    room.until("the first is counted", async || {
        let group = room.get(&path).await?;
        ensure!(group["status"].is_object(), "no status: {group}");
        Ok(())
    })
    .await?;
    ensure!(room.placed("").await? == (0, 1), "one pod of two has a place");
    room.apply(second).await?;
    room.until_placed("", 2, 2).await
}

/// A group with roles starts when each role has its least and all of them together have theirs.
pub async fn t9k_roles_come_together(room: &Room) -> Result<()> {
    let (Some(group), Some(pods)) = (seed("002-08-podgroup-role-test"), seed("002-09-pod-master")) else {
        return Ok(());
    };
    let pods: Vec<&str> = pods.split("\n---\n").collect();
    let [master, worker, more] = pods[..] else { anyhow::bail!("three pods are expected") };
    room.apply(&group).await?;
    // Each role has its least, and all together have one too few.
    room.apply(master).await?;
    room.apply(worker).await?;
    let path = format!("/apis/scheduler.tensorstack.dev/v1beta1/namespaces/{}/podgroups/role-test", room.ns);
    room.until("two are counted", async || {
        let group = room.get(&path).await?;
        ensure!(group["status"].is_object(), "no status: {group}");
        Ok(())
    })
    .await?;
    ensure!(room.placed("").await? == (0, 2), "two pods of three have places");
    room.apply(more).await?;
    room.until_placed("", 3, 3).await
}

/// A queue has what it is guaranteed, whatever another queue would take; a group below its minimum starts nothing.
pub async fn volcano_queue_with_a_guarantee(room: &Room) -> Result<()> {
    room.nodes(&[4], |_| json!({})).await?;
    let guaranteed = json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": format!("{}-kept", room.ns)},
        "spec": {"weight": 1, "reclaimable": false,
            "deserved": {"cpu": "4", "memory": "4Gi", "nvidia.com/gpu": "3"},
            "guarantee": {"resource": {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "2"}}},
    });
    room.apply(&guaranteed.to_string()).await?;
    let group = |name: &str, queue: &str, min: u32| {
        json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": name},
            "spec": {"minMember": min, "queue": queue}})
        .to_string()
    };
    let kept = format!("{}-kept", room.ns);
    // Admission learns of the queue by a watch.
    room.until("the group is taken", async || {
        let answer = room.try_apply(&group("train", &kept, 3)).await?;
        ensure!(answer.status == 201, "{}", String::from_utf8_lossy(&answer.body));
        Ok(())
    })
    .await?;
    let member = |name: &str| {
        pod(name, "volcano", 1, json!({"app": "train"}), json!({"scheduling.k8s.io/group-name": "train"}))
    };
    room.apply(&member("train-0")).await?;
    room.apply(&member("train-1")).await?;
    let path = format!("/apis/scheduling.volcano.sh/v1beta1/namespaces/{}/podgroups/train", room.ns);
    room.until("the group is told that it is not complete", async || {
        let group = room.get(&path).await?;
        ensure!(
            matches!(group["status"]["phase"].as_str(), Some("Pending" | "Inqueue")),
            "{}",
            group["status"]
        );
        let said = condition(&group, "Unschedulable").context("no condition Unschedulable")?;
        ensure!(said["status"] == "True", "{said}");
        Ok(())
    })
    .await?;
    ensure!(room.placed("app=train").await? == (0, 2), "two pods of three have places");
    room.apply(&member("train-2")).await?;
    room.until_placed("app=train", 3, 3).await?;
    until_status(room, &path, "/status/phase", json!("Running")).await?;
    let queue = format!("/apis/scheduling.volcano.sh/v1beta1/queues/{kept}");
    until_status(room, &queue, "/status/allocated/nvidia.com~1gpu", json!("3")).await?;
    until_status(room, &queue, "/status/running", json!(1)).await?;
    Ok(())
}

/// A gang by PodGroup: below its minimum nothing starts, and with it everything does.
pub async fn koordinator_gang(room: &Room) -> Result<()> {
    room.nodes(&[4], |_| json!({})).await?;
    let group = "{apiVersion: scheduling.sigs.k8s.io/v1alpha1, kind: PodGroup, metadata: {name: gang}, spec: {minMember: 3}}";
    room.apply(group).await?;
    let member = |name: &str| {
        let labels = json!({"pod-group.scheduling.sigs.k8s.io": "gang", "app": "gang"});
        pod(name, "koord-scheduler", 1, labels, json!({}))
    };
    room.apply(&member("gang-0")).await?;
    room.apply(&member("gang-1")).await?;
    let path = format!("/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{}/podgroups/gang", room.ns);
    room.until("the group has a phase", async || {
        let group = room.get(&path).await?;
        ensure!(group["status"]["phase"].is_string(), "{}", group["status"]);
        Ok(())
    })
    .await?;
    ensure!(room.placed("app=gang").await? == (0, 2), "two pods of three have places");
    room.apply(&member("gang-2")).await?;
    room.until_placed("app=gang", 3, 3).await?;
    until_status(room, &path, "/status/phase", json!("Running")).await?;
    Ok(())
}

/// A cluster queue of so many CPUs of the room's flavor, and a local queue `name` in the room, all of the room's own names.
fn queue(room: &Room, name: &str, cpus: u32, cohort: Option<&str>) -> String {
    let mut cluster = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue",
        "metadata": {"name": format!("{}-{name}", room.ns)},
        "spec": {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
            {"name": format!("{}-flavor", room.ns), "resources": [{"name": "cpu", "nominalQuota": cpus}]}]}]}});
    if let Some(cohort) = cohort {
        cluster["spec"]["cohortName"] = json!(cohort);
        cluster["spec"]["preemption"] = json!({"reclaimWithinCohort": "Any"});
    }
    let local = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": name},
        "spec": {"clusterQueue": format!("{}-{name}", room.ns)}});
    format!("{cluster}\n---\n{local}")
}

fn flavor(room: &Room) -> String {
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor",
        "metadata": {"name": format!("{}-flavor", room.ns)}})
    .to_string()
}

/// A Job that waits in a local queue: pods of one CPU each, for so many seconds.
fn job(name: &str, queue: &str, pods: u32, seconds: u32) -> String {
    json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": queue}},
        "spec": {"parallelism": pods, "completions": pods, "template": {
            "metadata": {"labels": {"app": name}, "annotations": {"sim.muster.dev/duration": format!("{seconds}s")}},
            "spec": {"schedulerName": "kai-scheduler", "restartPolicy": "Never", "containers": [
                {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}]}}}})
    .to_string()
}

/// The workload of a job.
async fn workload(room: &Room, job: &str) -> Result<Value> {
    let list = room.get(&format!("/apis/kueue.x-k8s.io/v1beta2/namespaces/{}/workloads", room.ns)).await?;
    let own = |w: &&Value| list_of(w, "/metadata/ownerReferences").any(|owner| owner["name"] == job);
    items(&list).find(own).cloned().with_context(|| format!("no workload of {job}"))
}

async fn until_workload(room: &Room, job: &str, kind: &str, status: &str) -> Result<()> {
    room.until(&format!("the workload of {job} is {kind}={status}"), async || {
        let workload = workload(room, job).await?;
        let found = condition(&workload, kind).map(|condition| condition["status"].clone());
        ensure!(found == Some(json!(status)), "{}", workload["status"]["conditions"]);
        Ok(())
    })
    .await
}

/// A job starts when there is quota for it; the next one when the first is done.
pub async fn kueue_quick_start(room: &Room) -> Result<()> {
    room.nodes(&[0], |_| json!({})).await?;
    room.apply(&flavor(room)).await?;
    room.apply(&queue(room, "team", 3, None)).await?;
    room.apply(&job("first", "team", 3, 12)).await?;
    until_workload(room, "first", "Admitted", "True").await?;
    room.apply(&job("second", "team", 3, 5)).await?;
    room.until_placed("app=first", 3, 3).await?;
    let waits = room.get(&format!("/apis/batch/v1/namespaces/{}/jobs/second", room.ns)).await?;
    ensure!(waits["spec"]["suspend"] == true, "the second job is not suspended: {}", waits["spec"]);
    until_workload(room, "first", "Finished", "True").await?;
    until_workload(room, "second", "Finished", "True").await?;
    let path = format!("/apis/kueue.x-k8s.io/v1beta2/clusterqueues/{}-team", room.ns);
    until_status(room, &path, "/status/admittedWorkloads", json!(0)).await?;
    Ok(())
}

/// What one queue of a cohort does not use, another borrows, and gives back when it is wanted.
pub async fn kueue_cohort_lends_and_takes_back(room: &Room) -> Result<()> {
    room.nodes(&[0], |_| json!({})).await?;
    room.apply(&flavor(room)).await?;
    let cohort = format!("{}-all", room.ns);
    room.apply(&queue(room, "a", 4, Some(&cohort))).await?;
    room.apply(&queue(room, "b", 4, Some(&cohort))).await?;
    room.apply(&job("borrower", "b", 8, 10_000)).await?;
    until_workload(room, "borrower", "Admitted", "True").await?;
    room.until_placed("app=borrower", 8, 8).await?;
    let path = format!("/apis/kueue.x-k8s.io/v1beta2/clusterqueues/{}-b", room.ns);
    until_status(room, &path, "/status/flavorsUsage/0/resources/0/borrowed", json!("4")).await?;
    room.apply(&job("owner", "a", 4, 5)).await?;
    until_workload(room, "borrower", "Evicted", "True").await?;
    until_workload(room, "owner", "Admitted", "True").await?;
    room.until_placed("app=owner", 4, 4).await?;
    until_workload(room, "owner", "Finished", "True").await?;
    // The borrower comes back when there is something to borrow again.
    until_workload(room, "borrower", "Admitted", "True").await?;
    room.until_placed("app=borrower", 8, 8).await
}

/// A gang of each system on one small node, and one more than there is room for: nobody is given what another holds.
pub async fn all_at_once(room: &Room) -> Result<()> {
    room.nodes(&[8], |_| json!({})).await?;
    let ns = &room.ns;
    let queues = format!(
        "{{apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {{name: {ns}-kai}}, spec: {{parentQueue: default-parent-queue, resources: {{cpu: {{quota: -1, limit: -1}}, memory: {{quota: -1, limit: -1}}, gpu: {{quota: 2, limit: -1}}}}}}}}\n---\n\
         {{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {{name: {ns}-volcano}}, spec: {{weight: 1}}}}\n---\n\
         {{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {{name: same}}, spec: {{minMember: 2, queue: {ns}-volcano}}}}\n---\n\
         {{apiVersion: scheduling.sigs.k8s.io/v1alpha1, kind: PodGroup, metadata: {{name: same}}, spec: {{minMember: 2}}}}\n---\n\
         {{apiVersion: scheduler.tensorstack.dev/v1beta1, kind: PodGroup, metadata: {{name: same}}, spec: {{minMember: 2, queue: default}}}}"
    );
    for object in queues.split("\n---\n") {
        room.until("the object is taken", async || {
            let answer = room.try_apply(object).await?;
            ensure!(answer.status == 201, "{}", String::from_utf8_lossy(&answer.body));
            Ok(())
        })
        .await?;
    }
    let none = || json!({});
    for n in 0..2 {
        let all = [
            pod(
                &format!("volcano-{n}"),
                "volcano",
                1,
                json!({"app": "fits"}),
                json!({"scheduling.k8s.io/group-name": "same"}),
            ),
            pod(
                &format!("koord-{n}"),
                "koord-scheduler",
                1,
                json!({"app": "fits", "pod-group.scheduling.sigs.k8s.io": "same"}),
                none(),
            ),
            pod(
                &format!("t9k-{n}"),
                "t9k-scheduler",
                1,
                json!({"app": "fits", "scheduler.tensorstack.dev/group-name": "same"}),
                none(),
            ),
            pod(
                &format!("kai-{n}"),
                "kai-scheduler",
                1,
                json!({"app": "fits", "kai.scheduler/queue": format!("{ns}-kai")}),
                none(),
            ),
        ];
        for pod in all {
            room.apply(&pod).await?;
        }
    }
    room.until_placed("app=fits", 8, 8).await?;
    // The node is full: whoever comes now waits, whichever system it is of.
    for scheduler in ["volcano", "koord-scheduler", "t9k-scheduler", "kai-scheduler"] {
        let labels = json!({"app": "late", "kai.scheduler/queue": format!("{ns}-kai")});
        room.apply(&pod(&format!("late-{scheduler}"), scheduler, 1, labels, none())).await?;
    }
    room.until_refused("app=late").await?;
    ensure!(room.placed("app=late").await?.0 == 0, "more pods than GPUs have places");
    ensure!(room.placed("app=fits").await? == (8, 8), "somebody lost its place");
    // A place that becomes free is taken by one of them, and by one only.
    room.delete(&format!("/api/v1/namespaces/{ns}/pods/koord-1")).await?;
    room.delete(&format!("/api/v1/namespaces/{ns}/pods/koord-0")).await?;
    room.until("two of those who waited are placed", async || {
        let placed = room.placed("app=late").await?.0;
        ensure!(placed == 2, "{placed}");
        Ok(())
    })
    .await
}
