//! The node table. Hot path: `cargo xtask bench engine` guards it.
//!
//! Per node and resource dimension three numbers are kept: what it has (`cap`), what is idle now, and how much of what is used is being
//! released (less what was promised to pipelined pods). Rows are node-major with one stride, so a fit check reads one or two cache
//! lines. A name that pods refer to and that no node has yet gets a row too: it has nothing, so nothing is charged there.
//!
//! *Invariant:* `idle` and `releasing` change only through [`Nodes::charge`] and the GPU shares, each the exact inverse of itself.

use crate::ids::{ClassId, DimId, NodeId, PodId};
use crate::numa::Zones;
use crate::shares::SharedGpu;
use dense::{Id, IdVec, Interner};
use indexmap::IndexMap;
use muster_model::{GPU, MigStrategy, Name, Node, Resource};
use rustc_hash::FxBuildHasher;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::sync::Arc;

pub const CPU_DIM: usize = 0;
pub const MEMORY_DIM: usize = 1;
pub const GPU_DIM: usize = 2;
pub const PODS_DIM: usize = 3;

/// Amounts are held to this on the way in, a pebibyte in bytes: thousands of pods on a node add up without wrapping around.
pub const MOST: i64 = 1 << 50;

/// What a class needs: (dimension, amount), only what is not zero.
pub type Need = SmallVec<[(u32, i64); 4]>;

/// How much of one dimension is needed, if any.
pub fn amount_of(need: &[(u32, i64)], dim: usize) -> Option<i64> {
    need.iter().find(|(d, _)| *d as usize == dim).map(|(_, amount)| *amount)
}

pub struct Nodes {
    ids: IndexMap<Name, NodeId, FxBuildHasher>,
    /// Those of names that are forgotten have no model and no pod; they go to whoever comes next.
    pub rows: IdVec<NodeId, Row>,
    free: Vec<NodeId>,
    pub dims: Interner<DimId, Resource>,
    stride: usize,
    cap: Vec<i64>,
    idle: Vec<i64>,
    releasing: Vec<i64>,
    /// Every node that changed since the journal was last cleared; indexes read on from their own cursor.
    pub journal: Vec<NodeId>,
    ranks_stale: bool,
}

pub struct Row {
    pub name: Name,
    pub model: Option<Arc<Node>>,
    /// Of a node: its place in the order of names, which breaks ties.
    pub rank: u32,
    /// Shared GPUs that some pod holds or was promised a part of.
    pub shared: Vec<SharedGpu>,
    /// Pods of the cluster (not of a trial) that hold room here.
    pub pods: Vec<PodId>,
    /// Indices of whole GPUs that nobody is known to hold; used only where links are known.
    pub free_gpus: u64,
    /// NUMA zones, where they are modelled.
    pub zones: Option<Zones>,
    /// Classes of pods here that hold ports or volumes.
    pub exclusive: Vec<ClassId>,
    /// Pods whose MIG devices are not among their requests: nobody can tell what is left of MIG here.
    pub n_legacy_mig: u32,
    /// CPU, memory and GPUs held by pods of other schedulers.
    pub foreign: [i128; 3],
}

impl Default for Nodes {
    fn default() -> Self {
        let dims = [Resource::Cpu, Resource::Memory, Resource::Gpu, Resource::Pods].into_iter().collect();
        Self {
            ids: IndexMap::default(),
            rows: IdVec::new(),
            free: Vec::new(),
            dims,
            stride: 8,
            cap: Vec::new(),
            idle: Vec::new(),
            releasing: Vec::new(),
            journal: Vec::new(),
            ranks_stale: false,
        }
    }
}

impl Nodes {
    /// The row of a name, if there is one.
    pub fn get(&self, name: &str) -> Option<NodeId> {
        self.ids.get(name).copied()
    }

    /// The row of a name, made if need be.
    pub fn intern(&mut self, name: &Name) -> NodeId {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let row = Row {
            name: name.clone(),
            model: None,
            rank: u32::MAX,
            shared: Vec::new(),
            pods: Vec::new(),
            free_gpus: 0,
            zones: None,
            exclusive: Vec::new(),
            n_legacy_mig: 0,
            foreign: [0; 3],
        };
        let id = match self.free.pop() {
            Some(id) => {
                self.rows[id] = row;
                id
            }
            None => self.rows.push(row),
        };
        let len = self.rows.len() * self.stride;
        self.cap.resize(len, 0);
        self.idle.resize(len, 0);
        self.releasing.resize(len, 0);
        self.ids.insert(name.clone(), id);
        id
    }

    /// Gives back the row of a name that neither a node has nor a pod refers to any more.
    pub fn forget_if_gone(&mut self, id: NodeId) {
        let row = &self.rows[id];
        let is_gone = row.model.is_none() && row.pods.is_empty();
        if is_gone && self.ids.get(&row.name) == Some(&id) {
            self.ids.swap_remove(&row.name);
            self.free.push(id);
        }
    }

    pub fn dim(&mut self, resource: &Resource) -> usize {
        let dim = self.dims.intern_ref(resource).index();
        if dim >= self.stride {
            self.widen(dim + 1);
        }
        dim
    }

    fn widen(&mut self, at_least: usize) {
        let stride = at_least.next_power_of_two();
        for column in [&mut self.cap, &mut self.idle, &mut self.releasing] {
            let mut wide = vec![0; self.rows.len() * stride];
            for (old, new) in column.chunks_exact(self.stride).zip(wide.chunks_exact_mut(stride)) {
                new[..self.stride].copy_from_slice(old);
            }
            *column = wide;
        }
        self.stride = stride;
    }

    /// Sets what a node has. Nothing may be charged to it at that moment: callers lift its pods off first.
    pub fn set_model(&mut self, id: NodeId, model: Option<Arc<Node>>) {
        let amounts: Vec<(usize, i64)> = match &model {
            Some(node) => {
                let list: Vec<_> = node.allocatable.iter().map(|(r, a)| (r.clone(), a)).collect();
                list.into_iter().map(|(r, a)| (self.dim(&r), a.clamp(0, MOST))).collect()
            }
            None => Vec::new(),
        };
        let base = id.index() * self.stride;
        for column in [&mut self.cap, &mut self.idle] {
            column[base..base + self.stride].fill(0);
            for (dim, amount) in &amounts {
                column[base + dim] = *amount;
            }
        }
        self.releasing[base..base + self.stride].fill(0);
        let row = &mut self.rows[id];
        // Only nodes are compared by rank: names that pods refer to come and go without that.
        self.ranks_stale |= row.model.is_none() && model.is_some();
        row.free_gpus = model
            .as_ref()
            .and_then(|n| n.gpus.links.as_ref())
            .map_or(0, |l| if l.gpus >= 64 { u64::MAX } else { (1 << l.gpus) - 1 });
        row.zones = None;
        row.model = model;
        self.journal.push(id);
    }

    pub fn cap(&self, id: NodeId, dim: usize) -> i64 {
        self.cap[id.index() * self.stride + dim]
    }

    pub fn idle(&self, id: NodeId, dim: usize) -> i64 {
        self.idle[id.index() * self.stride + dim]
    }

    pub fn releasing(&self, id: NodeId, dim: usize) -> i64 {
        self.releasing[id.index() * self.stride + dim]
    }

    /// Idle or going to be.
    pub fn coming(&self, id: NodeId, dim: usize) -> i64 {
        self.idle(id, dim) + self.releasing(id, dim)
    }

    /// Adds to idle and releasing, for each dimension that the node has at all.
    pub fn charge(&mut self, id: NodeId, need: &[(u32, i64)], idle: i64, releasing: i64) {
        let base = id.index() * self.stride;
        for &(dim, amount) in need {
            let at = base + dim as usize;
            if self.cap[at] > 0 {
                self.idle[at] += idle * amount;
                self.releasing[at] += releasing * amount;
            }
        }
        self.journal.push(id);
    }

    /// Adds whole GPUs to idle and releasing, for shared GPUs that open and close.
    pub fn charge_gpus(&mut self, id: NodeId, idle: i64, releasing: i64) {
        let at = id.index() * self.stride + GPU_DIM;
        if self.cap[at] > 0 {
            self.idle[at] += idle * GPU;
            self.releasing[at] += releasing * GPU;
        }
        self.journal.push(id);
    }

    pub fn fits_now(&self, id: NodeId, need: &[(u32, i64)]) -> bool {
        let base = id.index() * self.stride;
        need.iter().all(|&(dim, amount)| self.idle[base + dim as usize] >= amount)
    }

    pub fn fits_soon(&self, id: NodeId, need: &[(u32, i64)]) -> bool {
        let base = id.index() * self.stride;
        need.iter().all(|&(dim, amount)| {
            let at = base + dim as usize;
            self.idle[at] + self.releasing[at] >= amount
        })
    }

    /// How many pods with this need fit into what is idle or coming, at most `most`.
    pub fn count_soon(&self, id: NodeId, need: &[(u32, i64)], most: i64) -> i64 {
        let base = id.index() * self.stride;
        need.iter().fold(most, |n, &(dim, amount)| {
            let at = base + dim as usize;
            n.min((self.idle[at] + self.releasing[at]).max(0) / amount)
        })
    }

    /// What a GPU of the node can be divided into: thousandths of a MiB, of 100 MiB where the size is not known.
    pub fn gpu_size(&self, id: NodeId) -> i64 {
        self.gpu_memory(id).unwrap_or(100).min(MOST / 1000) * 1000
    }

    pub fn gpu_memory(&self, id: NodeId) -> Option<i64> {
        self.rows[id].model.as_ref().and_then(|n| n.gpus.memory).filter(|m| *m > 0)
    }

    /// Idle or coming GPUs, parts of shared ones included, in thousandths.
    pub fn gpus_left(&self, id: NodeId) -> i64 {
        let shared = &self.rows[id].shared;
        let whole = self.coming(id, GPU_DIM);
        if shared.is_empty() {
            return whole;
        }
        let size = self.gpu_size(id);
        // A GPU that is being released wholly is counted in `whole` already.
        whole
            + shared
                .iter()
                .filter(|g| g.counts_apart())
                .map(|g| (i128::from(g.left_soon(size).max(0)) * i128::from(GPU) / i128::from(size)) as i64)
                .sum::<i64>()
    }

    pub fn has_gpus(&self, id: NodeId) -> bool {
        self.cap(id, GPU_DIM) > 0
            || self.rows[id].model.as_ref().is_some_and(|n| n.gpus.mig != MigStrategy::None || n.gpus.dra)
    }

    /// Every row that is a node, in no order that means anything.
    pub fn known(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.rows.iter().filter(|(_, row)| row.model.is_some()).map(|(id, _)| id)
    }

    /// Gives every node its place in the order of names; true if any place changed.
    pub fn refresh_ranks(&mut self) -> bool {
        if !std::mem::take(&mut self.ranks_stale) {
            return false;
        }
        let mut order: Vec<NodeId> = self.ids.values().copied().collect();
        order.sort_by(|a, b| self.rows[*a].name.cmp(&self.rows[*b].name));
        for (rank, id) in order.into_iter().enumerate() {
            self.rows[id].rank = rank as u32;
        }
        true
    }
}

/// Nodes in the order in which a placement strategy likes them, kept current by the journal.
#[derive(Default)]
pub struct FreeIndex {
    order: BTreeSet<(i64, u32, NodeId)>,
    keys: IdVec<NodeId, Option<(i64, u32)>>,
    cursor: usize,
}

impl FreeIndex {
    /// Forgets everything: ranks changed.
    pub fn reset(&mut self) {
        self.order.clear();
        self.keys.clear();
        self.cursor = 0;
    }

    /// The journal was cleared after this index had read it.
    pub fn rewind(&mut self) {
        self.cursor = 0;
    }

    pub fn build(&mut self, nodes: &Nodes, key: impl Fn(&Nodes, NodeId) -> Option<i64>) {
        self.reset();
        for id in nodes.rows.ids() {
            let new = key(nodes, id).map(|k| (k, nodes.rows[id].rank));
            *self.keys.ensure(id) = new;
            if let Some((k, rank)) = new {
                self.order.insert((k, rank, id));
            }
        }
        self.cursor = nodes.journal.len();
    }

    pub fn is_built(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Reads what changed. `key` says where a node stands; `None`: it is not in this index.
    pub fn refresh(&mut self, nodes: &Nodes, key: impl Fn(&Nodes, NodeId) -> Option<i64>) {
        while let Some(id) = nodes.journal.get(self.cursor).copied() {
            self.cursor += 1;
            let new = key(nodes, id).map(|k| (k, nodes.rows[id].rank));
            let old = self.keys.ensure(id);
            if *old == new {
                continue;
            }
            if let Some((k, rank)) = *old {
                self.order.remove(&(k, rank, id));
            }
            *old = new;
            if let Some((k, rank)) = new {
                self.order.insert((k, rank, id));
            }
        }
    }

    /// Nodes from this key on, the best liked first.
    pub fn from(&self, key: i64) -> impl Iterator<Item = NodeId> + '_ {
        self.order.range((key, 0, NodeId::from_index(0))..).map(|&(_, _, id)| id)
    }
}
