//! Shuffle: plugins name running pods that are in the wrong place, and these are evicted.

use super::Session;
use crate::ids::PodId;
use crate::state::St;
use muster_model::Action;
use muster_model::volcano::{Hook, PluginKind, ReschedulingConf};

impl Session<'_> {
    pub fn shuffle(&mut self) {
        let victims = self.misplaced(&self.running());
        let mark = self.st.mark();
        for pod in victims {
            self.send_away(pod);
        }
        self.commit(mark, Action::Shuffle, None);
    }

    pub fn running(&self) -> Vec<PodId> {
        let pods = self.jobs.iter().flat_map(|job| job.tasks.iter().copied());
        pods.filter(|p| self.status(*p) == St::Running).collect()
    }

    /// What the plugins would evict, each pod once; disruption budgets cut it down.
    pub fn misplaced(&self, running: &[PodId]) -> Vec<PodId> {
        let mut victims: Vec<PodId> = Vec::new();
        let mut budgets = false;
        for kind in self.voters(Hook::Victim).flatten() {
            match kind {
                PluginKind::Tdm(conf) => {
                    let closed: Vec<PodId> = running
                        .iter()
                        .copied()
                        .filter(|p| {
                            let node = self.st.pods.row(*p).spot.node;
                            let zone = node.and_then(|n| self.zone_of(n));
                            zone.is_some_and(|zone| !self.zone_is_active(conf, zone))
                                && self.task(*p).is_some_and(|t| t.preemptable)
                        })
                        .collect();
                    victims.extend(self.within_job_budgets(&closed));
                }
                PluginKind::Rescheduling(conf) => victims.extend(self.overloading(conf, running)),
                PluginKind::Pdb => budgets = true,
                _ => {}
            }
        }
        victims.sort_by(|a, b| self.st.pods.row(*a).model.key.cmp(&self.st.pods.row(*b).model.key));
        victims.dedup();
        if budgets { self.within_budgets(&victims) } else { victims }
    }

    /// Pods of the least priority on nodes above a threshold, as long as there is a node that is below all of them.
    fn overloading(&self, conf: &ReschedulingConf, running: &[PodId]) -> Vec<PodId> {
        let load = |n: crate::ids::NodeId, name: &str| {
            let load = self.st.nodes.rows[n].model.as_ref()?.load?;
            match name {
                "cpu" => Some(load.cpu),
                "memory" | "mem" => Some(load.memory),
                _ => None,
            }
        };
        let below = |n: &crate::ids::NodeId| {
            conf.thresholds.iter().all(|(name, t)| load(*n, name).is_some_and(|l| l < *t))
        };
        let above = |n: &crate::ids::NodeId| {
            conf.target_thresholds.iter().any(|(name, t)| load(*n, name).is_some_and(|l| l > *t))
        };
        if conf.thresholds.is_empty() || !self.nodes.iter().any(below) {
            return Vec::new();
        }
        let mut victims = Vec::new();
        for node in self.nodes.iter().filter(|n| above(n)) {
            let here = running.iter().copied().filter(|p| self.st.pods.row(*p).spot.node == Some(*node));
            let least = here.min_by_key(|p| {
                let task = self.task(*p);
                (
                    task.map_or(0, |t| t.priority),
                    !self.is_best_effort(*p),
                    self.st.pods.row(*p).model.key.clone(),
                )
            });
            victims.extend(least);
        }
        victims
    }
}
