//! Single questions to a session's plugins: what Volcano's own tests ask of one function. Nothing is decided by it.
//!
//! In: questions in order; what one changes (a gang let in, a pod placed) is so for the next. Out: an answer to each; `Unknown` where what it is
//! about is not there.

use super::Session;
use super::amounts::Res;
use super::filter::Unfit;
use crate::cycle::Ledger;
use crate::ids::{NodeId, PodId};
use crate::state::State;
use muster_model::volcano::Load;
use muster_model::{Key, Name};
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    /// How good a node is for a pod, with this load measured on it.
    Score {
        pod: Key,
        node: Name,
        load: Option<Load>,
    },
    /// How good nodes are for a pod whose group has been placed in a domain, or nowhere yet.
    Scores {
        pod: Key,
        nodes: Vec<Name>,
        near: Option<Name>,
    },
    /// How good domains are for a sub-group of a gang.
    Domains {
        gang: Key,
        sub: Name,
        domains: Vec<Name>,
    },
    /// Whether the filters allow a pod on a node, with this load measured on it.
    Fits {
        pod: Key,
        node: Name,
        load: Option<Load>,
    },
    /// Whether a gang may be let in; and that it is.
    MayEnter {
        gang: Key,
    },
    Enter {
        gang: Key,
    },
    /// A pod gets a node.
    Place {
        pod: Key,
        node: Name,
    },
    /// Which of the running pods are in the wrong place; none named: of all.
    Misplaced {
        pods: Vec<Key>,
    },
    /// Which of these a gang may take.
    Evictable {
        gang: Key,
        candidates: Vec<Key>,
        reclaim: bool,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Unknown,
    Done,
    Yes(bool),
    /// In the order of what was asked about.
    Scores(Vec<f64>),
    /// The filters allow it, or they do not; then whether evicting others may help.
    Fits,
    Refused {
        for_now: bool,
    },
    /// In the order of their names.
    Pods(Vec<Key>),
}

impl State {
    /// Opens a session, asks, and takes everything back but measured loads.
    pub fn ask_volcano(&mut self, questions: &[Question]) -> Vec<Answer> {
        let Some(conf) = self.policy.volcano.clone() else { return vec![Answer::Unknown; questions.len()] };
        let mark = self.mark();
        let mut ledger = Ledger::default();
        let mut session = Session::open(self, &mut ledger, conf);
        let answers =
            questions.iter().map(|question| session.answer(question).unwrap_or(Answer::Unknown)).collect();
        drop(session);
        self.roll_back(mark);
        answers
    }
}

impl Session<'_> {
    fn answer(&mut self, question: &Question) -> Option<Answer> {
        if let Question::Score { node, load: Some(load), .. } | Question::Fits { node, load: Some(load), .. } =
            question
            && let Some(id) = self.st.nodes.get(node)
            && let Some(model) = &mut self.st.nodes.rows[id].model
        {
            Arc::make_mut(model).load = Some(*load);
        }
        Some(match question {
            Question::Score { pod, node, .. } => {
                Answer::Scores(self.scores(self.pod(pod)?, None, &[self.node(node)?]))
            }
            Question::Scores { pod, nodes, near } => {
                let nodes: Option<Vec<NodeId>> = nodes.iter().map(|node| self.node(node)).collect();
                let near = near.as_ref().and_then(|name| self.domains.named(name));
                Answer::Scores(self.scores(self.pod(pod)?, near, &nodes?))
            }
            Question::Domains { gang, sub, domains } => {
                let job = self.job(gang)?;
                let sub = self.jobs[job].subs.iter().position(|s| s.id == *sub).or(Some(0))?;
                let named: Option<Vec<usize>> = domains.iter().map(|name| self.domains.named(name)).collect();
                Answer::Scores(self.score_domains(job, sub, &named?))
            }
            Question::Fits { pod, node, .. } => match self.predicate(self.pod(pod)?, self.node(node)?) {
                Ok(()) => Answer::Fits,
                Err(unfit) => Answer::Refused { for_now: unfit == Unfit::ForNow },
            },
            Question::MayEnter { gang } => Answer::Yes(self.enqueueable(self.job(gang)?)),
            Question::Enter { gang } => {
                let job = self.job(gang)?;
                self.note_enqueued(job);
                Answer::Done
            }
            Question::Place { pod, node } => {
                let (pod, node) = (self.pod(pod)?, self.node(node)?);
                self.put(pod, node, true);
                Answer::Done
            }
            Question::Misplaced { pods } => {
                let all: Vec<PodId> = match pods.is_empty() {
                    true => self.running(),
                    false => pods.iter().filter_map(|key| self.pod(key)).collect(),
                };
                Answer::Pods(self.keys(&self.misplaced(&all)))
            }
            Question::Evictable { gang, candidates, reclaim } => {
                let job = self.job(gang)?;
                let pods: Vec<PodId> = candidates.iter().filter_map(|key| self.pod(key)).collect();
                Answer::Pods(self.keys(&self.evictable_by_gang(job, &Res::default(), &pods, *reclaim)))
            }
        })
    }

    fn pod(&self, key: &Key) -> Option<PodId> {
        self.st.pods.get(key)
    }

    fn node(&self, name: &Name) -> Option<NodeId> {
        self.st.nodes.get(name).filter(|node| self.st.nodes.rows[*node].model.is_some())
    }

    fn job(&self, key: &Key) -> Option<usize> {
        self.jobs.iter().position(|job| job.key == *key)
    }

    fn keys(&self, pods: &[PodId]) -> Vec<Key> {
        let mut keys: Vec<Key> = pods.iter().map(|pod| self.st.pods.row(*pod).model.key.clone()).collect();
        keys.sort();
        keys
    }
}
