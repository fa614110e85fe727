//! How large random clusters are, and how often each oddity occurs in them.

/// Ranges are inclusive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    pub nodes: (u32, u32),
    /// GPUs of a node; each kind of node takes one of these.
    pub gpus: &'static [i64],
    pub queues: (u32, u32),
    /// Levels of the queue tree.
    pub queue_depth: (u32, u32),
    pub gangs: (u32, u32),
    pub pods_per_gang: (u32, u32),
    pub odds: Odds,
}

/// In how many of a hundred cases. Zero turns a thing off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Odds {
    // Of clusters.
    pub topology: u32,
    pub other_pods: u32,
    // Of kinds of nodes.
    pub mig: u32,
    pub numa: u32,
    pub links: u32,
    pub unknown_gpu_memory: u32,
    // Of nodes.
    pub taint: u32,
    pub unusable: u32,
    pub outside_topology: u32,
    // Of queues.
    pub limit: u32,
    pub min_runtime: u32,
    // Of gangs.
    pub running: u32,
    pub releasing: u32,
    pub stale: u32,
    pub succeeded: u32,
    pub gated: u32,
    pub elastic: u32,
    pub nested: u32,
    pub mixed_shapes: u32,
    pub non_preemptible: u32,
    pub rule_required: u32,
    pub rule_preferred: u32,
    pub delay: u32,
    // Of shapes.
    pub no_gpu: u32,
    pub share: u32,
    pub memory_share: u32,
    pub mig_profile: u32,
    pub port: u32,
    pub affinity: u32,
    pub anti_affinity: u32,
    pub spread: u32,
    pub selector: u32,
    pub toleration: u32,
    pub volume: u32,
    pub claim: u32,
    pub pinned: u32,
    /// Of queues, gangs, shapes and rules: missing parents, queues and topologies, absurd requests, minimums beyond reach.
    pub broken: u32,
}

impl Sizes {
    /// For the oracle: a handful of nodes and pods, and only rules that it knows.
    pub fn tiny() -> Self {
        Self {
            nodes: (1, 5),
            gpus: &[0, 1, 2, 4],
            queues: (1, 3),
            queue_depth: (1, 2),
            gangs: (1, 5),
            pods_per_gang: (1, 4),
            odds: Odds {
                topology: 60,
                taint: 15,
                unusable: 8,
                limit: 15,
                running: 35,
                elastic: 25,
                nested: 25,
                rule_required: 40,
                rule_preferred: 20,
                no_gpu: 25,
                share: 20,
                memory_share: 10,
                selector: 20,
                toleration: 30,
                ..Odds::default()
            },
        }
    }

    /// Everything at once, small enough to look at.
    pub fn small() -> Self {
        Self {
            nodes: (2, 16),
            gpus: &[0, 1, 2, 4, 8],
            queues: (1, 10),
            queue_depth: (1, 4),
            gangs: (4, 30),
            pods_per_gang: (1, 8),
            odds: Odds::everything(),
        }
    }

    /// Everything at once, large enough for indices to matter.
    pub fn medium() -> Self {
        Self {
            nodes: (60, 150),
            gpus: &[0, 4, 8],
            queues: (5, 30),
            queue_depth: (2, 4),
            gangs: (80, 200),
            pods_per_gang: (1, 16),
            odds: Odds::everything(),
        }
    }
}

impl Odds {
    pub fn everything() -> Self {
        Self {
            topology: 70,
            other_pods: 30,
            mig: 15,
            numa: 20,
            links: 25,
            unknown_gpu_memory: 15,
            taint: 12,
            unusable: 8,
            outside_topology: 10,
            limit: 35,
            min_runtime: 20,
            running: 50,
            releasing: 10,
            stale: 8,
            succeeded: 6,
            gated: 6,
            elastic: 25,
            nested: 25,
            mixed_shapes: 20,
            non_preemptible: 20,
            rule_required: 25,
            rule_preferred: 25,
            delay: 5,
            no_gpu: 25,
            share: 15,
            memory_share: 8,
            mig_profile: 8,
            port: 5,
            affinity: 6,
            anti_affinity: 6,
            spread: 5,
            selector: 12,
            toleration: 20,
            volume: 4,
            claim: 5,
            pinned: 10,
            broken: 3,
        }
    }
}
