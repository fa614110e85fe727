//! One step after the other: what users, machines and bad luck do.
//!
//! In: a world and random numbers. Out: the world a step further, and a line that says what was done. Must stay true: a step acts at
//! the server as users and administrators do; whatever the steps break, [`Driver::heal`] mends.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use anyhow::Result;
use muster_sim::faults::{Fault, Rule};
use serde_json::{Value, json};

use crate::audit::Auditor;
use crate::process::Role;
use crate::random::Random;
use crate::work::{Kind, Workload, pod_path, workload};
use crate::world::{NAMESPACE, QUEUES, World, queue};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Submit,
    Delete,
    Scale,
    DeletePod,
    Kill,
    Restart,
    CrashServer,
    RecoverServer,
    ResetLines,
    Storm,
    FairWeather,
    FailNode,
    NodeNotReady,
    SickGpus,
    HealNode,
    Cordon,
    DeleteNode,
    CreateNode,
    Quota,
    LoseReservation,
    LoseBindRequest,
    LosePodGroup,
    Lull,
}

const STEPS: [(u64, Step); 23] = [
    (30, Step::Submit),
    (5, Step::Delete),
    (4, Step::Scale),
    (4, Step::DeletePod),
    (5, Step::Kill),
    (8, Step::Restart),
    (1, Step::CrashServer),
    (3, Step::RecoverServer),
    (1, Step::ResetLines),
    (4, Step::Storm),
    (4, Step::FairWeather),
    (1, Step::FailNode),
    (1, Step::NodeNotReady),
    (1, Step::SickGpus),
    (5, Step::HealNode),
    (1, Step::Cordon),
    (1, Step::DeleteNode),
    (3, Step::CreateNode),
    (2, Step::Quota),
    (2, Step::LoseReservation),
    (2, Step::LoseBindRequest),
    (1, Step::LosePodGroup),
    (1, Step::Lull),
];

/// With more than this many workloads, some are deleted instead of more being submitted.
const MOST: usize = 30;

/// Long enough for a gang in part to be seen (a lease runs out after 15 s), to become stale (60 s), and to go (30 s and more).
pub const LULL: Duration = Duration::from_secs(200);

pub struct Driver {
    pub random: Random,
    pub works: BTreeMap<String, Workload>,
    auditor: Auditor,
    /// Nodes that were deleted.
    gone: BTreeSet<String>,
    n_submitted: u64,
    /// Pauses between steps are shorter by this factor.
    pub haste: u32,
    /// Claims of volumes whose pods were deleted.
    claims: VecDeque<String>,
}

impl Driver {
    pub fn new(seed: u64, auditor: Auditor) -> Self {
        Driver {
            random: Random::new(seed),
            works: BTreeMap::new(),
            auditor,
            gone: BTreeSet::new(),
            n_submitted: 0,
            haste: 1,
            claims: VecDeque::new(),
        }
    }

    /// Takes one step, and lets some time pass. Out: what was done.
    pub async fn step(&mut self, world: &mut World) -> Result<String> {
        let step = self.random.weighted(&STEPS).unwrap_or(Step::Submit);
        let said = self.take(world, step).await?;
        let pause = match self.random.between(0, 19) {
            0 => self.random.millis(5_000, 30_000),
            1..=5 => self.random.millis(500, 5_000),
            6..=8 => Duration::ZERO,
            _ => self.random.millis(1, 500),
        } / self.haste;
        tokio::time::sleep(pause).await;
        Ok(format!("{said}; then {} ms", pause.as_millis()))
    }

    async fn take(&mut self, world: &mut World, step: Step) -> Result<String> {
        Ok(match step {
            Step::Submit if self.works.len() < MOST => self.submit(world).await?,
            Step::Submit | Step::Delete => self.delete(world).await?,
            Step::Scale => self.scale(world).await?,
            Step::DeletePod => {
                let pods = world.list(&format!("/api/v1/namespaces/{NAMESPACE}/pods")).await?;
                let Some(name) = self.random.of(&names(&pods)).cloned() else {
                    return Ok("no pod to delete".into());
                };
                let at_once = self.random.chance(20);
                if at_once {
                    // Its node still has it for a while.
                    self.auditor.excuse("kubelets");
                }
                world.delete(&pod_path(&name), at_once).await?;
                format!("deleted pod {name}{}", if at_once { " at once" } else { "" })
            }
            Step::Kill => {
                let roles: Vec<Role> = world.processes.keys().copied().collect();
                match self.random.of(&roles).copied() {
                    Some(role) => {
                        world.kill(role);
                        format!("killed {}", role.name())
                    }
                    None => "nobody to kill".into(),
                }
            }
            Step::Restart => {
                let all = Role::muster(world.mode).iter().copied().chain([Role::Sim]);
                let down: Vec<Role> = all.filter(|role| !world.processes.contains_key(role)).collect();
                match self.random.of(&down).copied() {
                    Some(role) => {
                        world.start(role);
                        format!("started {}", role.name())
                    }
                    None => "all run".into(),
                }
            }
            Step::CrashServer => {
                world.crash_server();
                "killed the API server".into()
            }
            Step::RecoverServer if world.server_is_down() => {
                let forgetful = self.random.chance(50);
                world.recover_server(forgetful).await?;
                format!(
                    "the API server is back{}",
                    if forgetful { " and has forgotten old versions" } else { "" }
                )
            }
            Step::RecoverServer => "the API server is up".into(),
            Step::ResetLines => {
                world.reset_lines();
                "all connections broke".into()
            }
            Step::Storm => self.storm(world),
            Step::FairWeather => {
                for role in [Role::Scheduler, Role::Binder, Role::Grouper, Role::Controllers, Role::Sim] {
                    world.set_faults(role, Vec::new());
                }
                "fair weather".into()
            }
            Step::FailNode => self.annotate_node(world, "sim.muster.dev/fail", "true").await?,
            Step::NodeNotReady => self.annotate_node(world, "sim.muster.dev/not-ready", "on fire").await?,
            Step::SickGpus => self.annotate_node(world, "sim.muster.dev/unhealthy-gpus", "0,2").await?,
            Step::HealNode => {
                let nodes = world.list("/api/v1/nodes").await?;
                let Some(name) = self.random.of(&names(&nodes)).cloned() else { return Ok("no node".into()) };
                heal(world, &name).await?;
                format!("healed {name}")
            }
            Step::Cordon => {
                let nodes = world.list("/api/v1/nodes").await?;
                let Some(name) = self.random.of(&names(&nodes)).cloned() else { return Ok("no node".into()) };
                world
                    .patch(&format!("/api/v1/nodes/{name}"), &json!({"spec": {"unschedulable": true}}))
                    .await?;
                format!("cordoned {name}")
            }
            Step::DeleteNode => {
                let nodes = world.list("/api/v1/nodes").await?;
                if nodes.len() < 6 {
                    return Ok("few nodes are left".into());
                }
                let Some(name) = self.random.of(&names(&nodes)).cloned() else { return Ok("no node".into()) };
                self.auditor.excuse(&name);
                world.delete(&format!("/api/v1/nodes/{name}"), false).await?;
                self.gone.insert(name.clone());
                format!("deleted node {name}")
            }
            Step::CreateNode => {
                let gone: Vec<String> = self.gone.iter().cloned().collect();
                match self.random.of(&gone).cloned() {
                    Some(name) => {
                        self.create_node(world, &name).await?;
                        format!("node {name} is back")
                    }
                    None => "all nodes are there".into(),
                }
            }
            Step::Lull => {
                world.calm().await?;
                world.reset_lines();
                tokio::time::sleep(LULL / self.haste).await;
                "a lull".into()
            }
            Step::Quota => self.quota(world).await?,
            Step::LoseReservation => {
                self.lose(world, "/api/v1/namespaces/kai-resource-reservation/pods", "reservation").await?
            }
            Step::LoseBindRequest => {
                let path = format!("/apis/scheduling.run.ai/v1alpha2/namespaces/{NAMESPACE}/bindrequests");
                self.lose(world, &path, "bind request").await?
            }
            Step::LosePodGroup => {
                let path = format!("/apis/scheduling.run.ai/v2alpha2/namespaces/{NAMESPACE}/podgroups");
                let groups = world.list(&path).await?;
                // Those that a user made are not made again.
                let made: Vec<Value> =
                    groups.into_iter().filter(|g| g["metadata"]["ownerReferences"].is_array()).collect();
                let Some(name) = self.random.of(&names(&made)).cloned() else {
                    return Ok("no pod group".into());
                };
                self.auditor.excuse("podgroups");
                world.delete(&format!("{path}/{name}"), false).await?;
                format!("deleted pod group {name}")
            }
        })
    }

    async fn submit(&mut self, world: &World) -> Result<String> {
        let work = workload(&mut self.random, self.n_submitted);
        self.n_submitted += 1;
        for object in &work.objects {
            world.create(object).await?;
            if self.random.chance(20) {
                tokio::time::sleep(self.random.millis(1, 300)).await;
            }
        }
        let said = format!("submitted {} {:?}", work.name, work.kind);
        self.works.insert(work.name.clone(), work);
        Ok(said)
    }

    async fn delete(&mut self, world: &World) -> Result<String> {
        let all: Vec<String> = self.works.keys().cloned().collect();
        let Some(name) = self.random.of(&all).cloned() else { return Ok("nothing to delete".into()) };
        if let Some(work) = self.works.remove(&name) {
            for path in work.paths() {
                world.delete(&path, false).await?;
            }
            self.claims.extend(work.claim());
        }
        // The embedded server looks at all pods whenever anything changes while a claim waits for its pod to go.
        if self.claims.len() > 4
            && let Some(claim) = self.claims.pop_front()
        {
            world.delete(&claim, false).await?;
        }
        Ok(format!("deleted {name}"))
    }

    async fn scale(&mut self, world: &World) -> Result<String> {
        let can = |work: &&Workload| matches!(work.kind, Kind::Deployment | Kind::Elastic);
        let all: Vec<String> = self.works.values().filter(can).map(|work| work.name.clone()).collect();
        let Some(name) = self.random.of(&all).cloned() else { return Ok("nothing to scale".into()) };
        let Some(work) = self.works.get(&name) else { return Ok("nothing to scale".into()) };
        let (kind, path) = (work.kind, work.path());
        // Fewer than its minimum would be a gang that never can be.
        let n = if kind == Kind::Deployment {
            self.random.between(0, 5)
        } else {
            self.random.between(work.min, 8)
        };
        let patch = match kind {
            Kind::Deployment => json!({"spec": {"replicas": n}}),
            _ => json!({"spec": {"parallelism": n}}),
        };
        world.patch(&path, &patch).await?;
        Ok(format!("scaled {name} to {n}"))
    }

    /// Some of what a process asks for goes wrong.
    fn storm(&mut self, world: &World) -> String {
        let roles: Vec<Role> = world.processes.keys().copied().collect();
        let Some(role) = self.random.of(&roles).copied() else { return "nobody is there to suffer".into() };
        let random = &mut self.random;
        let heavy = u16::try_from(random.between(20, 250)).unwrap_or(20);
        let mut rules = Vec::new();
        for _ in 0..random.between(1, 3) {
            let rule = match random.between(0, 12) {
                0 => Rule::on("create", "pods/binding")
                    .chance(heavy)
                    .fault(Fault::Delay(random.millis(500, 12_000))),
                1 => Rule::on("create", "pods/binding").chance(heavy).fault(Fault::LostAnswer),
                2 => Rule::on("create", "pods/binding").chance(heavy).fault(Fault::Status(500)),
                3 => Rule::on("patch", "").chance(heavy).fault(Fault::Status(409)),
                4 => Rule::on("", "").chance(heavy).fault(Fault::Status(429)),
                5 => Rule::on("", "").chance(heavy).fault(Fault::Status(503)),
                6 => Rule::on("", "").chance(heavy).fault(Fault::LostAnswer),
                7 => Rule::on("", "").chance(heavy / 4).fault(Fault::Silence),
                8 => Rule::on("", "").chance(heavy).fault(Fault::Delay(random.millis(50, 3_000))),
                9 => Rule::on("watch", "").chance(500).fault(Fault::CutWatch { after: small(random, 20) }),
                10 => {
                    Rule::on("watch", "").chance(500).fault(Fault::ExpireWatch { after: small(random, 20) })
                }
                11 => Rule::on("watch", "").chance(300).fault(Fault::StallWatch { after: small(random, 20) }),
                _ => Rule::on("watch", "").chance(500).fault(Fault::RepeatEvents(300)),
            };
            rules.push(rule);
        }
        let said = format!("storm over {}: {rules:?}", role.name());
        world.set_faults(role, rules);
        if world.processes.len() > 3 && random.chance(50) {
            // Watches that stand already suffer too.
            world.reset_lines();
        }
        said
    }

    async fn annotate_node(&mut self, world: &World, annotation: &str, value: &str) -> Result<String> {
        let nodes = world.list("/api/v1/nodes").await?;
        let Some(name) = self.random.of(&names(&nodes)).cloned() else { return Ok("no node".into()) };
        self.auditor.excuse(&name);
        world
            .patch(
                &format!("/api/v1/nodes/{name}"),
                &json!({"metadata": {"annotations": {annotation: value}}}),
            )
            .await?;
        Ok(format!("{annotation} on {name}"))
    }

    async fn create_node(&mut self, world: &World, name: &str) -> Result<()> {
        for node in world.fleet.nodes().into_iter().filter(|node| node["metadata"]["name"] == name) {
            world.create(&node).await?;
        }
        self.gone.remove(name);
        Ok(())
    }

    async fn quota(&mut self, world: &World) -> Result<String> {
        let Some((name, parent, quota, limit, weight)) = self.random.of(&QUEUES).copied() else {
            return Ok("no queue".into());
        };
        let quota = i64::try_from(self.random.between(0, 2 * quota.max(4).unsigned_abs())).unwrap_or(quota);
        let limit = if limit < 0 {
            limit
        } else {
            i64::try_from(self.random.between(6, 24)).unwrap_or(limit).max(quota)
        };
        let spec = &queue(name, parent, quota, limit, weight)["spec"];
        self.auditor.excuse(name);
        world.patch(&format!("/apis/scheduling.run.ai/v2/queues/{name}"), &json!({"spec": spec})).await?;
        Ok(format!("queue {name} has quota {quota} and limit {limit}"))
    }

    async fn lose(&mut self, world: &World, path: &str, what: &str) -> Result<String> {
        let all = world.list(path).await?;
        let Some(name) = self.random.of(&names(&all)).cloned() else {
            return Ok(format!("no {what} to lose"));
        };
        let at_once = self.random.chance(50);
        self.auditor.excuse("reservations");
        if at_once {
            self.auditor.excuse("kubelets");
        }
        world.delete(&format!("{path}/{name}"), at_once).await?;
        Ok(format!("deleted {what} {name}"))
    }

    /// No queue stands in anybody's way any more.
    pub async fn lift_quotas(&self, world: &World) -> Result<()> {
        for (name, parent, _, _, weight) in QUEUES {
            let spec = &queue(name, parent, -1, -1, weight)["spec"];
            world.patch(&format!("/apis/scheduling.run.ai/v2/queues/{name}"), &json!({"spec": spec})).await?;
        }
        Ok(())
    }

    /// Mends everything that steps have broken: machines, processes, lines.
    pub async fn heal(&mut self, world: &mut World) -> Result<()> {
        world.calm().await?;
        for name in self.gone.clone() {
            self.create_node(world, &name).await?;
        }
        for name in names(&world.list("/api/v1/nodes").await?) {
            heal(world, &name).await?;
        }
        for (name, parent, quota, limit, weight) in QUEUES {
            let spec = &queue(name, parent, quota, limit, weight)["spec"];
            world.patch(&format!("/apis/scheduling.run.ai/v2/queues/{name}"), &json!({"spec": spec})).await?;
        }
        Ok(())
    }
}

fn small(random: &mut Random, most: u64) -> u32 {
    u32::try_from(random.between(0, most)).unwrap_or(0)
}

async fn heal(world: &World, name: &str) -> Result<()> {
    let well: Value = json!({
        "metadata": {"annotations": {
            "sim.muster.dev/fail": null, "sim.muster.dev/not-ready": null, "sim.muster.dev/unhealthy-gpus": null}},
        "spec": {"unschedulable": null},
    });
    world.patch(&format!("/api/v1/nodes/{name}"), &well).await.map(drop)
}

pub fn names(all: &[Value]) -> Vec<String> {
    all.iter().filter_map(|object| object["metadata"]["name"].as_str().map(str::to_owned)).collect()
}
