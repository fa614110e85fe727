//! The quota tree: cluster queues below cohorts below cohorts, and how much each may still use.
//!
//! In: queues and cohorts; then usage that comes and goes. Out: what is available to a queue, what could ever be, how far up it borrows, and its
//! share of what is borrowed. A cohort that is only named exists; cohorts that are their own ancestors disable everything below them.
//!
//! *Invariant:* the usage of a node is its own plus, for every child, what the child uses beyond the quota it keeps to itself. Adding usage and
//! taking it away again leaves no trace.
//! Hot path: every step of a search changes usage along one path to the root.

use crate::ids::{Ids, PairId, ResourceId, TreeId, Usage};
use crate::share::Share;
use crate::spec::{ClusterQueue, Cohort, ResourceGroup, Weight};
use dense::{Id, IdVec};
use muster_model::Name;
use std::collections::{BTreeMap, BTreeSet};

/// Quota and usage of one node for one pair of flavor and resource.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cell {
    /// Quota for the pair is written here or below.
    pub defined: bool,
    pub nominal: i64,
    pub borrowing: Option<i64>,
    pub lending: Option<i64>,
    /// Its own quota and what its children lend.
    pub subtree: i64,
    /// The part of it that nobody above can see.
    pub local: i64,
    /// The most that could be used here if nothing was used anywhere.
    pub potential: i64,
    pub usage: i64,
}

impl Cell {
    /// What is left of the part that nobody above can see.
    pub fn local_available(&self) -> i64 {
        self.local.saturating_sub(self.usage).max(0)
    }

    fn beyond_local(&self) -> i64 {
        self.usage.saturating_sub(self.local).max(0)
    }
}

#[derive(Clone, Debug)]
pub struct TreeNode {
    pub name: Name,
    pub parent: Option<TreeId>,
    pub queues: Vec<TreeId>,
    pub cohorts: Vec<TreeId>,
    pub weight: Weight,
    /// The distance to the farthest queue below.
    pub height: u32,
    pub depth: u32,
    pub root: TreeId,
    /// It has an object of its own and is not only named.
    pub explicit: bool,
    /// The tree above it goes in circles.
    pub cyclic: bool,
}

/// All queues and cohorts. Queues come first: the id of a queue is its place among the queues by name.
#[derive(Clone, Default)]
pub struct Tree {
    pub nodes: IdVec<TreeId, TreeNode>,
    n_queues: usize,
    n_pairs: usize,
    cells: Vec<Cell>,
    by_queue: BTreeMap<Name, TreeId>,
    by_cohort: BTreeMap<Name, TreeId>,
    /// For each cohort, by resource: what all flavors together could come to. The denominator of shares.
    lendable: Vec<Vec<(ResourceId, i64)>>,
    resources: Vec<ResourceId>,
    /// Resources by name: a tie for the dominant one goes to the first.
    rank: Vec<u32>,
}

impl Tree {
    pub fn build(
        queues: &BTreeMap<Name, ClusterQueue>,
        cohorts: &BTreeMap<Name, Cohort>,
        ids: &mut Ids,
    ) -> Self {
        let mut tree = Self::default();
        for queue in queues.values() {
            let id = tree.push(&queue.name, queue.weight, true);
            tree.by_queue.insert(queue.name.clone(), id);
        }
        tree.n_queues = queues.len();
        let named: BTreeSet<&Name> = cohorts
            .keys()
            .chain(cohorts.values().filter_map(|c| c.parent.as_ref()))
            .chain(queues.values().filter_map(|q| q.cohort.as_ref()))
            .collect();
        for name in named {
            let own = cohorts.get(name);
            let id = tree.push(name, own.map_or_else(Weight::default, |c| c.weight), own.is_some());
            tree.by_cohort.insert(name.clone(), id);
        }
        for queue in queues.values() {
            let (Some(&id), Some(parent)) = (tree.by_queue.get(&queue.name), &queue.cohort) else { continue };
            tree.hang(id, parent, true);
        }
        for cohort in cohorts.values() {
            let (Some(&id), Some(parent)) = (tree.by_cohort.get(&cohort.name), &cohort.parent) else {
                continue;
            };
            tree.hang(id, parent, false);
        }
        tree.find_cycles();
        let order = tree.top_down();
        tree.write_quota(queues, cohorts, ids);
        tree.sum_up(&order);
        tree.bound(&order, ids);
        tree
    }

    fn push(&mut self, name: &Name, weight: Weight, explicit: bool) -> TreeId {
        let id = self.nodes.next_id();
        self.nodes.push(TreeNode {
            name: name.clone(),
            parent: None,
            queues: Vec::new(),
            cohorts: Vec::new(),
            weight,
            height: 0,
            depth: 0,
            root: id,
            explicit,
            cyclic: false,
        })
    }

    fn hang(&mut self, child: TreeId, parent: &Name, is_queue: bool) {
        let Some(&parent) = self.by_cohort.get(parent) else { return };
        self.nodes[child].parent = Some(parent);
        let siblings = &mut self.nodes[parent];
        if is_queue { siblings.queues.push(child) } else { siblings.cohorts.push(child) }
    }

    /// Marks what hangs in a circle, or below one, and cuts it loose.
    fn find_cycles(&mut self) {
        // Every node is walked over once: known to end at a root, known not to, or on the way that is being walked.
        #[derive(Clone, Copy, PartialEq)]
        enum Seen {
            No,
            Now,
            Ends,
            Circles,
        }
        let mut seen: IdVec<TreeId, Seen> = IdVec::from_elem(Seen::No, self.nodes.len());
        for start in self.nodes.ids() {
            let mut way = Vec::new();
            let mut at = Some(start);
            let end = loop {
                let Some(id) = at else { break Seen::Ends };
                match seen[id] {
                    Seen::No => {
                        seen[id] = Seen::Now;
                        way.push(id);
                        at = self.nodes[id].parent;
                    }
                    Seen::Now => break Seen::Circles,
                    known => break known,
                }
            };
            for id in way {
                seen[id] = end;
                self.nodes[id].cyclic = end == Seen::Circles;
            }
        }
        for node in self.nodes.values_mut() {
            if node.cyclic {
                node.parent = None;
                node.queues.clear();
                node.cohorts.clear();
            }
        }
    }

    /// Parents before children; also fills in depth, root and height.
    fn top_down(&mut self) -> Vec<TreeId> {
        let mut order: Vec<TreeId> = self.nodes.ids().filter(|id| self.nodes[*id].parent.is_none()).collect();
        let mut next = 0;
        while let Some(&id) = order.get(next) {
            next += 1;
            let (depth, root) = (self.nodes[id].depth + 1, self.nodes[id].root);
            let children: Vec<TreeId> =
                self.nodes[id].cohorts.iter().chain(&self.nodes[id].queues).copied().collect();
            for child in children {
                self.nodes[child].depth = depth;
                self.nodes[child].root = root;
                order.push(child);
            }
        }
        for &id in order.iter().rev() {
            if let Some(parent) = self.nodes[id].parent {
                self.nodes[parent].height = self.nodes[parent].height.max(self.nodes[id].height + 1);
            }
        }
        order
    }

    fn write_quota(
        &mut self,
        queues: &BTreeMap<Name, ClusterQueue>,
        cohorts: &BTreeMap<Name, Cohort>,
        ids: &mut Ids,
    ) {
        let all = queues.values().map(|q| &q.groups).chain(cohorts.values().map(|c| &c.groups));
        for flavor in all.flatten().flat_map(|g| &g.flavors) {
            let id = ids.flavor(&flavor.flavor);
            for quota in &flavor.quotas {
                let resource = ids.resource(&quota.resource);
                ids.pair(id, resource);
            }
        }
        self.n_pairs = ids.n_pairs();
        self.cells = vec![Cell::default(); self.n_pairs * self.nodes.len()];
        for queue in queues.values() {
            let Some(&id) = self.by_queue.get(&queue.name) else { continue };
            self.write_groups(id, &queue.groups, ids);
        }
        for cohort in cohorts.values() {
            let Some(&id) = self.by_cohort.get(&cohort.name) else { continue };
            self.write_groups(id, &cohort.groups, ids);
        }
    }

    fn write_groups(&mut self, id: TreeId, groups: &[ResourceGroup], ids: &mut Ids) {
        for flavor in groups.iter().flat_map(|g| &g.flavors) {
            let flavor_id = ids.flavor(&flavor.flavor);
            for quota in &flavor.quotas {
                let resource = ids.resource(&quota.resource);
                let pair = ids.pair(flavor_id, resource);
                let at = self.at(id, pair);
                let Some(cell) = self.cells.get_mut(at) else { continue };
                cell.defined = true;
                cell.nominal = quota.nominal;
                cell.borrowing = quota.borrowing;
                cell.lending = quota.lending;
            }
        }
    }

    fn sum_up(&mut self, top_down: &[TreeId]) {
        for &id in top_down.iter().rev() {
            for pair in 0..self.n_pairs {
                let pair = PairId::from_index(pair);
                let at = self.at(id, pair);
                let cell = &mut self.cells[at];
                // What the children lend is there already: they came first.
                cell.subtree = cell.subtree.saturating_add(cell.nominal);
                cell.local = cell.lending.map_or(0, |l| cell.subtree.saturating_sub(l).max(0));
                let (defined, lent) = (cell.defined, cell.subtree.saturating_sub(cell.local));
                if let Some(parent) = self.nodes[id].parent {
                    let above = self.at(parent, pair);
                    self.cells[above].defined |= defined;
                    self.cells[above].subtree = self.cells[above].subtree.saturating_add(lent);
                }
            }
        }
    }

    fn bound(&mut self, top_down: &[TreeId], ids: &Ids) {
        for &id in top_down {
            for pair in 0..self.n_pairs {
                let pair = PairId::from_index(pair);
                let at = self.at(id, pair);
                let cell = self.cells[at];
                let potential = match self.nodes[id].parent {
                    None => cell.subtree,
                    Some(parent) => {
                        let above = self.cells[self.at(parent, pair)].potential;
                        let all = cell.local.saturating_add(above);
                        match cell.borrowing {
                            Some(limit) => all.min(cell.subtree.saturating_add(limit)),
                            None => all,
                        }
                    }
                };
                self.cells[at].potential = potential;
            }
        }
        let mut resources: Vec<ResourceId> =
            (0..self.n_pairs).map(|pair| ids.split(PairId::from_index(pair)).1).collect();
        self.resources.clone_from(&resources);
        resources.sort_by(|a, b| ids.resource_name(*a).cmp(ids.resource_name(*b)));
        resources.dedup();
        self.rank = vec![0; ids.n_resources()];
        for (rank, resource) in resources.iter().enumerate() {
            self.rank[resource.index()] = u32::try_from(rank).unwrap_or(u32::MAX);
        }
        self.lendable = vec![Vec::new(); self.nodes.len()];
        for id in self.nodes.ids().skip(self.n_queues) {
            let root = self.nodes[id].root;
            let mut sums: Vec<(ResourceId, i64)> = Vec::new();
            for pair in 0..self.n_pairs {
                let pair = PairId::from_index(pair);
                if !self.cells[self.at(root, pair)].defined {
                    continue;
                }
                let potential = self.cells[self.at(id, pair)].potential;
                let resource = self.resources[pair.index()];
                match sums.iter_mut().find(|(r, _)| *r == resource) {
                    Some((_, sum)) => *sum = sum.saturating_add(potential),
                    None => sums.push((resource, potential)),
                }
            }
            self.lendable[id.index()] = sums;
        }
    }

    fn at(&self, id: TreeId, pair: PairId) -> usize {
        id.index() * self.n_pairs + pair.index()
    }

    /// A pair that quota was never written for has nothing, and cannot be used.
    pub fn cell(&self, id: TreeId, pair: PairId) -> Cell {
        if pair.index() < self.n_pairs { self.cells[self.at(id, pair)] } else { Cell::default() }
    }

    pub fn n_pairs(&self) -> usize {
        self.n_pairs
    }

    pub fn n_queues(&self) -> usize {
        self.n_queues
    }

    pub fn queue(&self, name: &str) -> Option<TreeId> {
        self.by_queue.get(name).copied()
    }

    pub fn cohort(&self, name: &str) -> Option<TreeId> {
        self.by_cohort.get(name).copied()
    }

    pub fn is_queue(&self, id: TreeId) -> bool {
        id.index() < self.n_queues
    }

    pub fn queue_ids(&self) -> impl Iterator<Item = TreeId> + use<> {
        (0..self.n_queues).map(TreeId::from_index)
    }

    pub fn cohort_ids(&self) -> impl Iterator<Item = TreeId> + use<> {
        (self.n_queues..self.nodes.len()).map(TreeId::from_index)
    }

    pub fn parent(&self, id: TreeId) -> Option<TreeId> {
        self.nodes[id].parent
    }

    /// Its parent, the parent of that, and so on.
    pub fn above(&self, id: TreeId) -> impl Iterator<Item = TreeId> + '_ {
        std::iter::successors(self.nodes[id].parent, |at| self.nodes[*at].parent)
    }

    /// The names from the root down, as a path.
    pub fn path(&self, id: TreeId) -> String {
        let mut names: Vec<&str> =
            std::iter::once(id).chain(self.above(id)).map(|at| &*self.nodes[at].name).collect();
        names.reverse();
        format!("/{}", names.join("/"))
    }

    /// Every queue below a cohort.
    pub fn queues_below(&self, id: TreeId) -> Vec<TreeId> {
        let mut found = Vec::new();
        let mut open = vec![id];
        while let Some(at) = open.pop() {
            if self.is_queue(at) {
                found.push(at);
            }
            found.extend(&self.nodes[at].queues);
            open.extend(&self.nodes[at].cohorts);
        }
        found.sort_unstable();
        found
    }

    pub fn add(&mut self, queue: TreeId, usage: &[(PairId, i64)]) {
        for &(pair, amount) in usage {
            self.change(queue, pair, amount);
        }
    }

    pub fn remove(&mut self, queue: TreeId, usage: &[(PairId, i64)]) {
        for &(pair, amount) in usage {
            self.change(queue, pair, amount.saturating_neg());
        }
    }

    fn change(&mut self, queue: TreeId, pair: PairId, amount: i64) {
        if pair.index() >= self.n_pairs {
            return;
        }
        let mut at = queue;
        let mut by = amount;
        while by != 0 {
            let place = self.at(at, pair);
            let cell = &mut self.cells[place];
            let before = cell.beyond_local();
            cell.usage = cell.usage.saturating_add(by);
            by = cell.beyond_local().saturating_sub(before);
            match self.nodes[at].parent {
                Some(parent) => at = parent,
                None => break,
            }
        }
    }

    /// What a queue could still use now, of its own and of others; never negative.
    pub fn available(&self, queue: TreeId, pair: PairId) -> i64 {
        self.available_signed(queue, pair).max(0)
    }

    /// An overcommitted cohort makes this negative, and eats even what the queue keeps to itself.
    pub fn available_signed(&self, id: TreeId, pair: PairId) -> i64 {
        if pair.index() >= self.n_pairs {
            return 0;
        }
        let mut path = [TreeId::new(0); 16];
        let mut deep = Vec::new();
        let depth = self.nodes[id].depth as usize;
        let path: &mut [TreeId] = if depth < path.len() {
            &mut path[..=depth]
        } else {
            deep.resize(depth + 1, TreeId::new(0));
            &mut deep
        };
        let mut at = id;
        for place in path.iter_mut() {
            *place = at;
            at = self.nodes[at].parent.unwrap_or(at);
        }
        let mut above: Option<i64> = None;
        for &node in path.iter().rev() {
            let cell = &self.cells[self.at(node, pair)];
            above = Some(match above {
                None => cell.subtree.saturating_sub(cell.usage),
                Some(above) => {
                    let mut reach = above;
                    if let Some(limit) = cell.borrowing {
                        let stored = cell.subtree.saturating_sub(cell.local);
                        let most = stored.saturating_sub(cell.beyond_local()).saturating_add(limit);
                        reach = reach.min(most);
                    }
                    cell.local_available().saturating_add(reach)
                }
            });
        }
        above.unwrap_or(0)
    }

    /// The most that a queue could ever use.
    pub fn potential(&self, id: TreeId, pair: PairId) -> i64 {
        self.cell(id, pair).potential
    }

    /// Whether a queue would use more than its own, or a cohort more than all below it have together.
    pub fn borrows_with(&self, id: TreeId, pair: PairId, amount: i64) -> bool {
        let cell = self.cell(id, pair);
        let quota = if self.is_queue(id) { cell.nominal } else { cell.subtree };
        cell.usage.saturating_add(amount) > quota
    }

    pub fn borrows(&self, id: TreeId, pair: PairId) -> bool {
        self.borrows_with(id, pair, 0)
    }

    /// Whether nothing of these exceeds the quota of the node and of what is below it.
    pub fn within_quota(&self, id: TreeId, pairs: &[PairId]) -> bool {
        pairs.iter().all(|&pair| {
            let cell = self.cell(id, pair);
            cell.usage <= cell.subtree
        })
    }

    /// How high above a queue lies the lowest node that has room for an amount without borrowing itself, and whether there is more above that node.
    pub fn lowest_fit(&self, queue: TreeId, pair: PairId, amount: i64) -> (u32, bool) {
        let Some(_) = self.nodes[queue].parent else { return (0, false) };
        if !self.borrows_with(queue, pair, amount) {
            return (0, true);
        }
        let mut remaining = amount.saturating_sub(self.cell(queue, pair).local_available());
        let mut last = queue;
        for node in self.above(queue) {
            last = node;
            if !self.borrows_with(node, pair, remaining) {
                break;
            }
            remaining = remaining.saturating_sub(self.cell(node, pair).local_available());
        }
        (self.nodes[last].height, self.nodes[last].parent.is_some())
    }

    /// Whether requests fit a node's quota beside what is used, and what of them a parent would see.
    pub fn fits_quota(&self, id: TreeId, requests: &[(PairId, i64)]) -> (bool, Usage) {
        let mut fits = true;
        let mut remaining = Usage::with_capacity(requests.len());
        for &(pair, amount) in requests {
            let cell = self.cell(id, pair);
            fits &= cell.usage.saturating_add(amount) <= cell.subtree;
            remaining.push((pair, amount.saturating_sub(cell.local_available()).max(0)));
        }
        (fits, remaining)
    }

    /// The node's share of what is borrowed, with these requests on top.
    pub fn share_with(&self, id: TreeId, extra: &[(PairId, i64)]) -> Share {
        let weight = self.nodes[id].weight;
        let Some(parent) = self.nodes[id].parent else { return Share::none(weight) };
        let mut borrowed: Vec<(ResourceId, i64)> = Vec::new();
        let start = id.index() * self.n_pairs;
        for (i, cell) in self.cells[start..start + self.n_pairs].iter().enumerate() {
            if !cell.defined {
                continue;
            }
            let asked = if extra.is_empty() {
                0
            } else {
                extra.iter().find(|(p, _)| p.index() == i).map_or(0, |(_, a)| *a)
            };
            let over = cell.usage.saturating_add(asked).saturating_sub(cell.subtree);
            if over <= 0 {
                continue;
            }
            let resource = self.resources[i];
            match borrowed.iter_mut().find(|(r, _)| *r == resource) {
                Some((_, sum)) => *sum = sum.saturating_add(over),
                None => borrowed.push((resource, over)),
            }
        }
        let mut share = Share::none(weight);
        for (resource, over) in borrowed {
            let lendable =
                self.lendable[parent.index()].iter().find(|(r, _)| *r == resource).map_or(0, |(_, sum)| *sum);
            share.include(resource, self.rank[resource.index()], over, lendable);
        }
        share
    }

    pub fn share(&self, id: TreeId) -> Share {
        self.share_with(id, &[])
    }

    /// Pairs on which a queue borrows more than its subtree has.
    pub fn borrows_on_any(&self, id: TreeId, requested: &[(PairId, i64)]) -> bool {
        self.nodes[id].parent.is_some()
            && requested.iter().any(|&(pair, amount)| {
                let cell = self.cell(id, pair);
                amount > 0 && cell.defined && cell.usage > cell.subtree
            })
    }
}
