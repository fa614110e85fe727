//! Gangs as Volcano's jobs: roles, sub-groups, and whether enough of them is ready, promised, valid or starving.
//!
//! Counts are read from the gang's leaf groups, which the state keeps; a leaf is one role of one sub-group.

use super::Session;
use crate::ids::{GangId, PodId};
use crate::state::St;
use dense::IdVec;
use muster_model::volcano::{Group, Hook, Phase, PluginKind, Tier};
use muster_model::{Key, Name, Reason, Time};
use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Pods that are there at all, whatever became of them.
const THERE: [St; 8] = [
    St::Bound,
    St::Binding,
    St::Running,
    St::Allocated,
    St::Succeeded,
    St::Pipelined,
    St::Pending,
    St::Gated,
];

pub struct Job {
    pub gang: GangId,
    pub key: Key,
    pub uid: Name,
    pub created: Time,
    /// Its place by age, where nobody prefers one to another.
    pub rank: u32,
    pub queue: usize,
    pub priority: i32,
    pub model: Arc<Group>,
    pub phase: Phase,
    /// Its pods, in the order in which they are placed.
    pub tasks: Vec<PodId>,
    pub n_tasks: u32,
    pub has_best_effort: bool,
    /// Roles have minima of their own, and these count.
    pub roles_count: bool,
    pub subs: Vec<Sub>,
    /// It must be within a domain of this tier.
    pub limit: Option<i64>,
    /// It says something about the network.
    pub has_topology: bool,
    /// The domain that its pods are in.
    pub domain: Option<usize>,
    pub given_domain: Option<usize>,
    /// Roles of sub-groups that found no node.
    pub failed: BTreeSet<(usize, Name)>,
    pub standing: Cell<Option<Standing>>,
}

/// What decides whose turn it is and changes with a job's pods, as it was when these had moved so often.
#[derive(Clone, Copy)]
pub struct Standing {
    moves: u32,
    pub is_ready: bool,
    pub share: f64,
}

pub struct Sub {
    pub id: Name,
    pub policy: Option<usize>,
    pub index: i64,
    /// So many of it must run for it to count.
    pub size: u32,
    pub priority: i64,
    pub limit: Option<i64>,
    pub has_topology: bool,
    pub domain: Option<usize>,
    /// Leaf groups of the gang, with their roles.
    pub leaves: Vec<usize>,
    pub tasks: Vec<PodId>,
}

/// States of pods that hold their place.
const HELD: [St; 4] = [St::Bound, St::Binding, St::Running, St::Allocated];
/// The same and those that are over.
const READY: [St; 5] = [St::Bound, St::Binding, St::Running, St::Allocated, St::Succeeded];

impl Session<'_> {
    pub fn read_jobs(&mut self) {
        self.job_of = IdVec::from_elem(None, self.st.gangs.rows.len());
        let mut ids: Vec<GangId> = self.st.volcano_gangs.iter().collect();
        ids.sort_by(|a, b| self.st.gangs.rows[*a].key.cmp(&self.st.gangs.rows[*b].key));
        for gang in ids {
            let row = &self.st.gangs.rows[gang];
            let Some(model) = row.model.clone() else { continue };
            let Some(group) = model.volcano.clone() else { continue };
            // Gangs of a queue that is not there are not looked at.
            let Some(queue) = row.queue.and_then(|q| self.queue_of.get(q).copied().flatten()) else {
                continue;
            };
            let pods: Vec<PodId> = row.pods().collect();
            for pod in &pods {
                *self.tasks.ensure(*pod) = self.st.pods.row(*pod).model.volcano.clone();
            }
            let mut tasks: Vec<PodId> = pods.iter().copied().filter(|p| self.task(*p).is_some()).collect();
            tasks.sort_by(|a, b| self.compare_tasks(*a, *b));
            let job_limit = self.limit(group.topology.as_ref(), None);
            let mut subs: Vec<Sub> = group
                .sub_groups
                .iter()
                .map(|sub| {
                    let policy = sub.policy.and_then(|p| group.policies.get(p as usize));
                    let topology = match policy {
                        Some(policy) => policy.topology.as_ref(),
                        None => group.topology.as_ref(),
                    };
                    Sub {
                        id: sub.id.clone(),
                        policy: sub.policy.map(|p| p as usize),
                        index: sub.index,
                        size: match policy {
                            Some(policy) => policy.size,
                            None if group.policies.is_empty() => group.min_member,
                            None => 1,
                        },
                        priority: 0,
                        limit: self.limit(topology, job_limit),
                        has_topology: topology.is_some(),
                        domain: None,
                        leaves: Vec::new(),
                        tasks: Vec::new(),
                    }
                })
                .collect();
            for leaf in &group.leaves {
                if let Some(sub) = subs.get_mut(leaf.sub as usize) {
                    sub.leaves.push(leaf.group as usize);
                }
            }
            for pod in &tasks {
                let leaf = self.st.pods.row(*pod).leaf as usize;
                let priority = self.task(*pod).map_or(0, |t| t.priority);
                if let Some(sub) = subs.iter_mut().find(|s| s.leaves.contains(&leaf)) {
                    sub.tasks.push(*pod);
                    sub.priority = sub.priority.max(priority);
                }
            }
            let sum: u64 = group.roles.values().map(|n| u64::from(*n)).sum();
            let has_best_effort = tasks.iter().any(|p| self.is_best_effort(*p));
            self.job_of[gang] = Some(self.jobs.len());
            let given = group.allocated_domain.as_ref().and_then(|name| self.domains.named(name));
            self.jobs.push(Job {
                gang,
                key: model.key.clone(),
                uid: model.uid.clone(),
                created: model.created,
                rank: 0,
                queue,
                priority: model.priority,
                phase: group.phase,
                n_tasks: tasks.len() as u32,
                tasks,
                has_best_effort,
                roles_count: u64::from(group.min_member) >= sum,
                subs,
                limit: job_limit,
                has_topology: group.topology.is_some(),
                domain: given,
                given_domain: given,
                failed: BTreeSet::new(),
                standing: Cell::new(None),
                model: group,
            });
        }
        self.rank_jobs();
    }

    /// The oldest first, then by uid and key.
    fn rank_jobs(&mut self) {
        let mut order: Vec<usize> = (0..self.jobs.len()).collect();
        let age = |job: usize| (self.jobs[job].created, &self.jobs[job].uid, &self.jobs[job].key);
        order.sort_by(|a, b| age(*a).cmp(&age(*b)));
        for (rank, job) in order.into_iter().enumerate() {
            self.jobs[job].rank = rank as u32;
        }
    }

    /// The tier that a rule allows at most; soft rules allow the whole cluster, or what a hard rule around them allows.
    fn limit(
        &self,
        rule: Option<&muster_model::volcano::NetworkTopology>,
        around: Option<i64>,
    ) -> Option<i64> {
        let rule = rule?;
        let top = self.domains.top_tier();
        if rule.soft {
            return Some(around.unwrap_or(top));
        }
        Some(match &rule.highest {
            Tier::Top => top,
            Tier::At(tier) => *tier,
            // A name that no tier has asks for nothing.
            Tier::Named(name) => self.domains.tier_named(name)?,
        })
    }

    pub fn is_hard(&self, job: usize) -> bool {
        let job = &self.jobs[job];
        job.limit.is_some() || job.subs.iter().any(|s| s.limit.is_some())
    }

    pub fn has_policies(&self, job: usize) -> bool {
        !self.jobs[job].model.policies.is_empty()
    }

    /// Pods of a job in a state.
    pub fn count(&self, job: usize, st: St) -> u32 {
        self.st.gangs.rows[self.jobs[job].gang].leaves().map(|(_, g)| g.count(st)).sum()
    }

    fn count_in(&self, job: usize, leaves: &[usize], st: St) -> u32 {
        let groups = &self.st.gangs.rows[self.jobs[job].gang].groups;
        leaves.iter().filter_map(|leaf| groups.get(*leaf)).map(|g| g.count(st)).sum()
    }

    /// Pods that hold their place or are over.
    pub fn n_ready(&self, job: usize) -> u32 {
        self.count_all(job, &READY)
    }

    /// Pods of a job in any of some states; asked at every comparison of two jobs, so its groups are gone through once.
    fn count_all(&self, job: usize, states: &[St]) -> u32 {
        let groups = self.st.gangs.rows[self.jobs[job].gang].leaves();
        groups.map(|(_, group)| states.iter().map(|st| group.count(*st)).sum::<u32>()).sum()
    }

    fn waiting_best_effort(&self, pods: &[PodId]) -> u32 {
        pods.iter().filter(|p| self.is_waiting(**p) && self.is_best_effort(**p)).count() as u32
    }

    pub fn is_waiting(&self, pod: PodId) -> bool {
        matches!(self.status(pod), St::Pending | St::Gated)
    }

    fn n_best_effort(&self, job: usize) -> u32 {
        let row = &self.jobs[job];
        if row.has_best_effort { self.waiting_best_effort(&row.tasks) } else { 0 }
    }

    /// Hot: two jobs are asked about at every step of every heap.
    pub fn standing(&self, job: usize) -> Standing {
        let row = &self.jobs[job];
        let moves = self.st.gangs.rows[row.gang].moves;
        match row.standing.get().filter(|known| known.moves == moves) {
            Some(known) => known,
            None => {
                let now = Standing { moves, is_ready: self.is_ready(job), share: self.share_now(job) };
                row.standing.set(Some(now));
                now
            }
        }
    }

    pub fn is_ready(&self, job: usize) -> bool {
        self.n_ready(job) + self.n_best_effort(job) >= self.jobs[job].model.min_member
    }

    fn is_promised(&self, job: usize) -> bool {
        let n = self.n_ready(job) + self.count(job, St::Pipelined) + self.n_best_effort(job);
        n >= self.jobs[job].model.min_member
    }

    pub fn lacks_members(&self, job: usize) -> bool {
        self.n_ready(job) + self.count(job, St::Pipelined) < self.jobs[job].model.min_member
    }

    /// How many pods of each role there are in some states.
    pub fn by_role(&self, job: usize, states: &[St], best_effort: bool) -> BTreeMap<Name, u32> {
        let row = &self.jobs[job];
        let groups = &self.st.gangs.rows[row.gang].groups;
        let mut counts: BTreeMap<Name, u32> = BTreeMap::new();
        for leaf in &row.model.leaves {
            let Some(group) = groups.get(leaf.group as usize) else { continue };
            let n: u32 = states.iter().map(|st| group.count(*st)).sum();
            *counts.entry(leaf.role.clone()).or_default() += n;
        }
        if best_effort && row.has_best_effort {
            for pod in row.tasks.iter().filter(|p| self.is_waiting(**p) && self.is_best_effort(**p)) {
                if let Some(task) = self.task(*pod) {
                    *counts.entry(task.role.clone()).or_default() += 1;
                }
            }
        }
        counts
    }

    fn roles_have(&self, job: usize, states: &[St], best_effort: bool) -> bool {
        let row = &self.jobs[job];
        if !row.roles_count || row.model.roles.is_empty() {
            return true;
        }
        let counts = self.by_role(job, states, best_effort);
        row.model.roles.iter().all(|(role, min)| counts.get(role).copied().unwrap_or(0) >= *min)
    }

    fn subs_have(&self, job: usize, whole: impl Fn(&Self, usize) -> bool) -> bool {
        let row = &self.jobs[job];
        row.model.policies.iter().enumerate().all(|(i, policy)| {
            let of_policy = (0..row.subs.len()).filter(|s| row.subs[*s].policy == Some(i));
            policy.min_groups == 0
                || of_policy.filter(|s| whole(self, *s)).count() as u32 >= policy.min_groups
        })
    }

    pub fn sub_is_ready(&self, job: usize, sub: usize) -> bool {
        self.sub_has(job, sub, false)
    }

    pub fn sub_is_promised(&self, job: usize, sub: usize) -> bool {
        self.sub_has(job, sub, true)
    }

    fn sub_has(&self, job: usize, sub: usize, promises: bool) -> bool {
        let row = &self.jobs[job];
        let s = &row.subs[sub];
        let mut n: u32 = HELD.iter().map(|st| self.count_in(job, &s.leaves, *st)).sum();
        n += self.count_in(job, &s.leaves, St::Succeeded);
        if promises {
            n += self.count_in(job, &s.leaves, St::Pipelined);
        }
        if row.has_best_effort {
            n += self.waiting_best_effort(&s.tasks);
        }
        n >= s.size
    }

    /// What gang says: enough of everything holds a place.
    pub fn gang_ready(&self, job: usize) -> bool {
        let held = [St::Bound, St::Binding, St::Running, St::Allocated, St::Succeeded];
        self.roles_have(job, &held, true)
            && self.subs_have(job, |this, sub| this.sub_is_ready(job, sub))
            && self.is_ready(job)
    }

    /// The same with promises.
    pub fn gang_promised(&self, job: usize) -> bool {
        let held = [St::Bound, St::Binding, St::Running, St::Allocated, St::Succeeded, St::Pipelined];
        self.roles_have(job, &held, true)
            && self.subs_have(job, |this, sub| this.sub_is_promised(job, sub))
            && self.is_promised(job)
    }

    /// Enough pods are there at all.
    pub fn is_valid(&self, job: usize) -> bool {
        if self.plugin(|kind| matches!(kind, PluginKind::Gang)).is_none() {
            return true;
        }
        let row = &self.jobs[job];
        let n = self.count_all(job, &THERE);
        let groups_there = row.model.policies.iter().enumerate().all(|(i, policy)| {
            row.subs.iter().filter(|s| s.policy == Some(i)).count() as u32 >= policy.min_groups
        });
        self.roles_have(job, &THERE, false) && groups_there && n >= row.model.min_member
    }

    /// What a gang lacks that has too few pods: of a role, or in all.
    pub fn incomplete(&self, job: usize) -> Option<Reason> {
        let row = &self.jobs[job];
        let have: u32 = THERE.iter().map(|st| self.count(job, *st)).sum();
        let need = row.model.min_member;
        if have < need {
            return Some(Reason::NotReady { group: "".into(), have, need });
        }
        let counts = self.by_role(job, &THERE, false);
        let short = row.model.roles.iter().filter(|_| row.roles_count).find_map(|(role, min)| {
            let have = counts.get(role).copied().unwrap_or(0);
            (have < *min).then(|| Reason::NotReady { group: role.clone(), have, need: *min })
        });
        short.or_else(|| {
            row.model.policies.iter().enumerate().find_map(|(i, policy)| {
                let have = row.subs.iter().filter(|s| s.policy == Some(i)).count() as u32;
                let (group, need) = (policy.name.clone(), policy.min_groups);
                (have < need).then_some(Reason::NotReady { group, have, need })
            })
        })
    }

    /// Whether, after a pod found no node, it makes sense to go on with the others.
    pub fn may_go_on(&self, job: usize, sub: usize) -> bool {
        let row = &self.jobs[job];
        if row.model.min_member == row.n_tasks {
            return false;
        }
        let s = &row.subs[sub];
        if s.size as usize >= s.tasks.len() {
            return false;
        }
        if !row.model.policies.is_empty() {
            return true;
        }
        let failed = |role: &Name| row.failed.contains(&(sub, role.clone()));
        if !row.roles_count {
            let waiting = row.tasks.iter().filter(|p| self.is_waiting(**p));
            let left = waiting.filter(|p| self.task(**p).is_some_and(|t| !failed(&t.role))).count() as u32;
            return self.n_ready(job) + left >= row.model.min_member;
        }
        let held = [St::Bound, St::Binding, St::Running, St::Allocated, St::Succeeded];
        let counts = self.by_role(job, &held, true);
        row.model
            .roles
            .iter()
            .filter(|(role, min)| **min > 0 && failed(role))
            .all(|(role, min)| counts.get(role).copied().unwrap_or(0) >= *min)
    }

    /// The order of pods within a job.
    pub fn compare_tasks(&self, a: PodId, b: PodId) -> Ordering {
        let (Some(l), Some(r)) = (self.task(a), self.task(b)) else { return Ordering::Equal };
        for tier in self.voters(Hook::TaskOrder) {
            for kind in tier {
                let order = match kind {
                    PluginKind::Priority => r.priority.cmp(&l.priority),
                    PluginKind::TaskTopology { .. } => self.compare_by_bucket(a, b),
                    _ => Ordering::Equal,
                };
                if order != Ordering::Equal {
                    return order;
                }
            }
        }
        let (lp, rp) = (&self.st.pods.row(a).model, &self.st.pods.row(b).model);
        let by_index = match (l.index, r.index) {
            (Some(l), Some(r)) => l.cmp(&r),
            _ => Ordering::Equal,
        };
        by_index
            .then_with(|| lp.created.cmp(&rp.created))
            .then_with(|| lp.uid.cmp(&rp.uid))
            .then_with(|| lp.key.cmp(&rp.key))
    }

    /// The order that a job's own annotation gives its roles.
    fn compare_by_bucket(&self, a: PodId, b: PodId) -> Ordering {
        let place = |pod: PodId| {
            let gang = self.st.pods.row(pod).gang?;
            let group = self.st.gangs.rows[gang].model.as_ref()?.volcano.as_ref()?;
            let task = self.task(pod)?;
            Some(group.affinity.order.iter().position(|r| *r == task.role).unwrap_or(usize::MAX))
        };
        place(a).cmp(&place(b))
    }
}
