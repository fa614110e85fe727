//! Topologies: which nodes are near each other, and where in the tree a group of pods can be placed.
//!
//! A tree has a root and one level per label. A node that lacks any of the labels is outside the tree. For pods of one class the number that
//! fits is kept per node and per domain and follows the journal of node changes, so asking for the best domain costs what changed.

use crate::ids::{ClassId, NodeId};
use crate::nodes::{Need, Nodes};
use dense::{Id, IdSet, IdVec, define_id};
use indexmap::IndexMap;
use muster_model::{Name, Reason, Topology, TopologyRule};
use rustc_hash::FxBuildHasher;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

define_id! {
    /// A domain of one tree.
    pub struct DomainId;
}

/// A set of nodes, in the order of names.
#[derive(Debug, Default, PartialEq)]
pub struct Members {
    pub list: Vec<NodeId>,
    pub set: IdSet<NodeId>,
}

impl FromIterator<NodeId> for Members {
    fn from_iter<T: IntoIterator<Item = NodeId>>(nodes: T) -> Self {
        let list: Vec<NodeId> = nodes.into_iter().collect();
        Self { set: list.iter().copied().collect(), list }
    }
}

/// Where a group may go, and which part of it is liked.
#[derive(Clone, Debug, Default)]
pub struct Area {
    /// `None`: every node.
    pub members: Option<Arc<Members>>,
    /// Points by node, for domains that are liked.
    pub bonus: Option<Arc<BTreeMap<NodeId, i64>>>,
}

#[derive(Default)]
pub struct Topologies {
    models: BTreeMap<Name, Arc<Topology>>,
    trees: BTreeMap<Name, Tree>,
    stale: bool,
}

struct Tree {
    /// Label keys, coarse to fine; level 0 is the root.
    levels: Vec<Name>,
    domains: IdVec<DomainId, Domain>,
    /// By level, in the order of ids.
    by_level: Vec<Vec<DomainId>>,
    /// The finest domain of each node.
    finest: IdVec<NodeId, Option<DomainId>>,
    fits: IndexMap<ClassId, Fits, FxBuildHasher>,
    /// What is free, for loads of several classes.
    frees: IndexMap<Vec<ClassId>, Free, FxBuildHasher>,
}

struct Domain {
    name: Name,
    parent: Option<DomainId>,
    level: usize,
    members: Arc<Members>,
}

/// How many pods of one class fit, by node and by domain.
struct Fits {
    per_node: IdVec<NodeId, i64>,
    per_domain: IdVec<DomainId, i64>,
    cursor: usize,
}

/// What is free on nodes that can take a pod of any of some classes, by dimension, per node and per domain.
struct Free {
    /// How many dimensions.
    dims: usize,
    /// Rows of so many numbers.
    per_node: Vec<i64>,
    per_domain: Vec<i128>,
    cursor: usize,
}

/// So many are kept: a handful is in use at any time; more would only take memory.
const MOST_FITS: usize = 256;
const MOST_FREES: usize = 32;

/// What is to be placed, as far as capacity goes.
pub struct Load<'a> {
    /// Distinct classes with their needs and how many pods there are of each.
    pub classes: &'a [(ClassId, Need, i64)],
    pub count: &'a dyn Fn(&Nodes, ClassId, NodeId) -> i64,
}

impl Load<'_> {
    fn ids(&self) -> Vec<ClassId> {
        let mut ids: Vec<ClassId> = self.classes.iter().map(|(class, _, _)| *class).collect();
        ids.sort_unstable();
        ids
    }

    /// One more than the highest dimension that is asked for.
    fn dims(&self) -> usize {
        let needs = self.classes.iter().flat_map(|(_, need, _)| need.iter());
        needs.map(|(dim, _)| *dim as usize + 1).max().unwrap_or(0)
    }
}

impl Topologies {
    pub fn put(&mut self, model: Arc<Topology>) {
        self.models.insert(model.name.clone(), model);
        self.stale = true;
    }

    pub fn drop(&mut self, name: &str) {
        self.models.remove(name);
        self.stale = true;
    }

    /// What a topology was said to be.
    pub fn model(&self, name: &str) -> Option<&Arc<Topology>> {
        self.models.get(name)
    }

    pub fn nodes_changed(&mut self) {
        self.stale = true;
    }

    /// Brings the trees up to date; call before a cycle, when the nodes have their ranks.
    pub fn refresh(&mut self, nodes: &Nodes, ranks_changed: bool) {
        if !std::mem::take(&mut self.stale) && !ranks_changed {
            return;
        }
        self.trees =
            self.models.iter().map(|(name, model)| (name.clone(), Tree::build(model, nodes))).collect();
    }

    /// The journal was cleared: counts that depend on it are forgotten.
    pub fn forget_fits(&mut self) {
        for tree in self.trees.values_mut() {
            tree.fits.clear();
            tree.frees.clear();
        }
    }

    /// What says the number of a node's domain at a level.
    pub fn domains(&self, topology: &str, level: &str) -> Option<impl Fn(NodeId) -> Option<u32>> {
        let tree = self.trees.get(topology)?;
        let level = tree.levels.iter().position(|l| &**l == level)? + 1;
        Some(move |node| tree.domain_at(node, level).map(|d| d.index() as u32))
    }

    /// The areas in which the rule allows the load, the best first: finer levels before coarser ones, then the tightest. `active` are the nodes of
    /// the group's pods that have a place already. Most callers are content with the best one; asking for `only_best` is cheaper by far.
    pub fn areas(
        &mut self,
        nodes: &Nodes,
        rule: &TopologyRule,
        load: &Load<'_>,
        within: &Area,
        active: &[NodeId],
        only_best: bool,
    ) -> Result<Vec<Area>, Reason> {
        let unknown = |level: Option<&Name>| Reason::TopologyUnknown {
            topology: rule.topology.clone(),
            level: level.cloned(),
        };
        let tree = self.trees.get_mut(&rule.topology).ok_or_else(|| unknown(None))?;
        let level_of = |label: &Option<Name>| match label {
            None => Ok(None),
            Some(label) => match tree.levels.iter().position(|l| l == label) {
                Some(at) => Ok(Some(at + 1)),
                None => Err(unknown(Some(label))),
            },
        };
        let (required, preferred) = (level_of(&rule.required)?, level_of(&rule.preferred)?);
        let Some(finest) = preferred.into_iter().chain(required).max() else {
            return Ok(vec![within.clone()]);
        };
        let coarsest = required.unwrap_or(0);
        let total: i64 = load.classes.iter().map(|(_, _, n)| *n).sum();
        if within.members.is_none() {
            tree.keep(nodes, load);
        }
        let tree = &*tree;
        let counts = tree.measure(nodes, load, within);
        // Pods that run tie the group to the required domain they are in.
        let tied: Option<Vec<DomainId>> = required.filter(|_| !active.is_empty()).map(|level| {
            let mut domains: Vec<DomainId> =
                active.iter().filter_map(|n| tree.domain_at(*n, level)).collect();
            domains.sort_unstable();
            domains.dedup();
            domains
        });
        let mut areas = Vec::new();
        let mut seen_whole = false;
        for level in (coarsest..=finest).rev() {
            let mut fitting: Vec<(Ratio, DomainId)> = tree.by_level[level]
                .iter()
                .filter(|d| {
                    tied.as_ref().is_none_or(|tied| {
                        required.is_some_and(|at| tree.ancestor(**d, at).is_some_and(|up| tied.contains(&up)))
                    })
                })
                .filter_map(|d| Some((counts.ratio(*d, load, total)?, *d)))
                .collect();
            // Tightest first; ids are in the order of names.
            let order = |a: &(Ratio, DomainId), b: &(Ratio, DomainId)| b.0.compare(&a.0).then(a.1.cmp(&b.1));
            if only_best {
                fitting = fitting.into_iter().min_by(order).into_iter().collect();
            } else {
                fitting.sort_by(order);
            }
            for (_, domain) in fitting {
                let members = &tree.domains[domain].members;
                let members = match &within.members {
                    None => members.clone(),
                    Some(within) => {
                        let inside: Members =
                            members.list.iter().copied().filter(|n| within.set.contains(*n)).collect();
                        if inside.list.len() == within.list.len() && std::mem::replace(&mut seen_whole, true)
                        {
                            continue;
                        }
                        Arc::new(inside)
                    }
                };
                let bonus = match preferred {
                    Some(preferred) if preferred > level => {
                        Some(Arc::new(tree.bonus(&members, preferred, &counts, load, total)))
                    }
                    _ => within.bonus.clone(),
                };
                areas.push(Area { members: Some(members), bonus });
            }
            if only_best && !areas.is_empty() {
                break;
            }
        }
        if areas.is_empty() {
            let level = rule.required.clone().or_else(|| rule.preferred.clone()).unwrap_or_default();
            let at = required.unwrap_or(finest);
            let best = tree.by_level[at]
                .iter()
                .copied()
                .max_by(|a, b| counts.fits(*a, load).cmp(&counts.fits(*b, load)).then(b.cmp(a)));
            return Err(Reason::NoDomain {
                group: Name::from(""),
                topology: rule.topology.clone(),
                level,
                domains: tree.by_level[at].len() as u32,
                best: best.map(|d| tree.domains[d].name.clone()),
                best_fits: best.map_or(0, |d| counts.fits(d, load)).clamp(0, i64::from(u32::MAX)) as u32,
                need: total as u32,
            });
        }
        Ok(areas)
    }
}

/// Request over what is free, exactly.
#[derive(Clone, Copy)]
struct Ratio(i128, i128);

impl Ratio {
    fn compare(&self, other: &Self) -> Ordering {
        (self.0 * other.1).cmp(&(other.0 * self.1))
    }
}

/// Capacity by domain for one load.
enum Counts<'a> {
    /// One class: how many pods fit.
    Pods(Cow<'a, IdVec<DomainId, i64>>),
    /// Several: what is free by dimension (rows of as many as are asked), and how many pods of each class fit.
    Mixed { free: Cow<'a, [i128]>, fits: Vec<Cow<'a, IdVec<DomainId, i64>>>, asked: Vec<i128> },
}

impl Counts<'_> {
    fn ratio(&self, d: DomainId, load: &Load<'_>, total: i64) -> Option<Ratio> {
        match self {
            Self::Pods(fits) => {
                let n = fits.get(d).copied().unwrap_or(0);
                (n >= total && n > 0).then_some(Ratio(i128::from(total), i128::from(n)))
            }
            Self::Mixed { free, fits, asked } => {
                if !load.classes.iter().zip(fits).all(|((_, _, n), f)| f.get(d).copied().unwrap_or(0) >= *n) {
                    return None;
                }
                let at = d.index() * asked.len();
                let free = free.get(at..at + asked.len())?;
                let mut tightest = Ratio(0, 1);
                for (asked, free) in asked.iter().zip(free) {
                    if *asked == 0 {
                        continue;
                    }
                    if asked > free {
                        return None;
                    }
                    // Scaled down, so that two of them can be multiplied.
                    let ratio = Ratio((*asked).min(i128::from(i64::MAX)), (*free).min(i128::from(i64::MAX)));
                    if ratio.compare(&tightest) == Ordering::Greater {
                        tightest = ratio;
                    }
                }
                Some(tightest)
            }
        }
    }

    /// How many pods of the load fit, at best.
    fn fits(&self, d: DomainId, load: &Load<'_>) -> i64 {
        match self {
            Self::Pods(fits) => fits.get(d).copied().unwrap_or(0),
            Self::Mixed { fits, .. } => load
                .classes
                .iter()
                .zip(fits)
                .map(|((_, _, n), f)| f.get(d).copied().unwrap_or(0).min(*n))
                .sum(),
        }
    }
}

impl Tree {
    fn build(model: &Topology, nodes: &Nodes) -> Self {
        let levels: Vec<Name> = model.levels.iter().map(|l| l.label.clone()).collect();
        let mut placed: Vec<(Vec<Name>, u32, NodeId)> = nodes
            .known()
            .filter_map(|id| {
                let row = &nodes.rows[id];
                let labels = &row.model.as_ref()?.labels;
                let path: Option<Vec<Name>> = levels.iter().map(|l| labels.get(l).cloned()).collect();
                Some((path?, row.rank, id))
            })
            .collect();
        placed.sort();
        let mut tree = Self {
            by_level: vec![Vec::new(); levels.len() + 1],
            levels,
            domains: IdVec::new(),
            finest: IdVec::from_elem(None, nodes.rows.len()),
            fits: IndexMap::default(),
            frees: IndexMap::default(),
        };
        let mut all: Vec<(u32, NodeId)> = placed.iter().map(|(_, rank, id)| (*rank, *id)).collect();
        all.sort_unstable();
        let root = tree.domains.push(Domain {
            name: Name::from("root"),
            parent: None,
            level: 0,
            members: Arc::new(all.into_iter().map(|(_, id)| id).collect()),
        });
        tree.by_level[0].push(root);
        tree.split(root, &placed, 0);
        tree
    }

    /// Makes the domains below one; `placed` are its nodes, sorted by path.
    fn split(&mut self, parent: DomainId, placed: &[(Vec<Name>, u32, NodeId)], depth: usize) {
        if depth == self.levels.len() {
            for (_, _, node) in placed {
                self.finest[*node] = Some(parent);
            }
            return;
        }
        for part in placed.chunk_by(|a, b| a.0[depth] == b.0[depth]) {
            let mut nodes: Vec<(u32, NodeId)> = part.iter().map(|(_, rank, id)| (*rank, *id)).collect();
            nodes.sort_unstable();
            let value = &part[0].0[depth];
            let name = if depth == 0 {
                value.clone()
            } else {
                Name::from(format!("{}.{value}", self.domains[parent].name))
            };
            let id = self.domains.push(Domain {
                name,
                parent: Some(parent),
                level: depth + 1,
                members: Arc::new(nodes.into_iter().map(|(_, id)| id).collect()),
            });
            self.by_level[depth + 1].push(id);
            self.split(id, part, depth + 1);
        }
    }

    fn ancestor(&self, domain: DomainId, level: usize) -> Option<DomainId> {
        let mut at = domain;
        while self.domains[at].level > level {
            at = self.domains[at].parent?;
        }
        (self.domains[at].level == level).then_some(at)
    }

    fn domain_at(&self, node: NodeId, level: usize) -> Option<DomainId> {
        self.ancestor((*self.finest.get(node)?)?, level)
    }

    /// Brings the kept counts of a load up to date.
    fn keep(&mut self, nodes: &Nodes, load: &Load<'_>) {
        if self.fits.len() + load.classes.len() > MOST_FITS {
            self.fits.clear();
        }
        for (class, _, _) in load.classes {
            self.keep_fits(nodes, *class, load);
        }
        if load.classes.len() > 1 {
            self.keep_free(nodes, load);
        }
    }

    fn measure(&self, nodes: &Nodes, load: &Load<'_>, within: &Area) -> Counts<'_> {
        let mixed = load.classes.len() > 1;
        let dims = load.dims();
        let mut asked = vec![0; dims];
        for (_, need, n) in load.classes {
            for (dim, amount) in need {
                asked[*dim as usize] += i128::from(*amount) * i128::from(*n);
            }
        }
        let Some(members) = &within.members else {
            let mut fits: Vec<_> = load
                .classes
                .iter()
                .map(|(class, _, _)| {
                    self.fits.get(class).map_or_else(Cow::default, |f| Cow::Borrowed(&f.per_domain))
                })
                .collect();
            if !mixed {
                return Counts::Pods(fits.pop().unwrap_or_default());
            }
            let free = self.frees.get(&load.ids()).map_or(&[][..], |f| &f.per_domain);
            return Counts::Mixed { free: Cow::Borrowed(free), fits, asked };
        };
        let n = self.domains.len();
        let mut fits: Vec<IdVec<DomainId, i64>> = vec![IdVec::from_elem(0, n); load.classes.len()];
        let mut free = vec![0; if mixed { n * dims } else { 0 }];
        for node in members.list.iter().copied() {
            let Some(Some(finest)) = self.finest.get(node).copied() else { continue };
            let mut any = false;
            for (i, (class, _, _)) in load.classes.iter().enumerate() {
                let count = (load.count)(nodes, *class, node);
                any |= count > 0;
                if count > 0 {
                    self.add_up(finest, count, &mut fits[i]);
                }
            }
            if mixed && any {
                let row: SmallVec<[i64; 8]> = (0..dims).map(|dim| nodes.coming(node, dim).max(0)).collect();
                self.add_free(finest, &row, &[], &mut free);
            }
        }
        let mut fits: Vec<_> = fits.into_iter().map(Cow::Owned).collect();
        if mixed {
            Counts::Mixed { free: Cow::Owned(free), fits, asked }
        } else {
            Counts::Pods(fits.pop().unwrap_or_default())
        }
    }

    fn add_up(&self, finest: DomainId, delta: i64, sums: &mut IdVec<DomainId, i64>) {
        let mut at = Some(finest);
        while let Some(domain) = at {
            sums[domain] += delta;
            at = self.domains[domain].parent;
        }
    }

    /// Adds one row to the sums of a domain and those above, and takes another off; an empty row is nothing.
    fn add_free(&self, finest: DomainId, new: &[i64], old: &[i64], sums: &mut [i128]) {
        let dims = new.len().max(old.len());
        let mut at = Some(finest);
        while let Some(domain) = at {
            let from = domain.index() * dims;
            let sums = &mut sums[from..from + dims];
            for (sum, n) in sums.iter_mut().zip(new) {
                *sum += i128::from(*n);
            }
            for (sum, n) in sums.iter_mut().zip(old) {
                *sum -= i128::from(*n);
            }
            at = self.domains[domain].parent;
        }
    }

    fn keep_fits(&mut self, nodes: &Nodes, class: ClassId, load: &Load<'_>) {
        let mut fits = self.fits.swap_remove(&class).unwrap_or_else(|| {
            let mut per_domain = IdVec::from_elem(0, self.domains.len());
            let mut per_node = IdVec::from_elem(0, nodes.rows.len());
            for node in &self.domains[DomainId::from_index(0)].members.list {
                let count = (load.count)(nodes, class, *node);
                per_node[*node] = count;
                if let Some(Some(finest)) = self.finest.get(*node) {
                    self.add_up(*finest, count, &mut per_domain);
                }
            }
            Fits { per_node, per_domain, cursor: nodes.journal.len() }
        });
        while let Some(node) = nodes.journal.get(fits.cursor).copied() {
            fits.cursor += 1;
            let Some(Some(finest)) = self.finest.get(node).copied() else { continue };
            let count = (load.count)(nodes, class, node);
            let delta = count - fits.per_node[node];
            if delta != 0 {
                fits.per_node[node] = count;
                self.add_up(finest, delta, &mut fits.per_domain);
            }
        }
        self.fits.insert(class, fits);
    }

    /// Call after the counts of the load's classes were brought up to date.
    fn keep_free(&mut self, nodes: &Nodes, load: &Load<'_>) {
        let ids = load.ids();
        let dims = load.dims();
        if self.frees.len() >= MOST_FREES && !self.frees.contains_key(&ids) {
            self.frees.clear();
        }
        let any = |node: NodeId| ids.iter().any(|c| self.fits.get(c).is_some_and(|f| f.per_node[node] > 0));
        let row = |node: NodeId| -> SmallVec<[i64; 8]> {
            let any = any(node);
            (0..dims).map(|dim| if any { nodes.coming(node, dim).max(0) } else { 0 }).collect()
        };
        let mut free = self.frees.swap_remove(&ids).unwrap_or_else(|| {
            let mut per_node = vec![0; nodes.rows.len() * dims];
            let mut per_domain = vec![0; self.domains.len() * dims];
            for node in self.domains[DomainId::from_index(0)].members.list.iter().copied() {
                let Some(Some(finest)) = self.finest.get(node).copied() else { continue };
                let new = row(node);
                self.add_free(finest, &new, &[], &mut per_domain);
                per_node[node.index() * dims..(node.index() + 1) * dims].copy_from_slice(&new);
            }
            Free { dims, per_node, per_domain, cursor: nodes.journal.len() }
        });
        while let Some(node) = nodes.journal.get(free.cursor).copied() {
            free.cursor += 1;
            let Some(Some(finest)) = self.finest.get(node).copied() else { continue };
            let new = row(node);
            let old = &mut free.per_node[node.index() * free.dims..(node.index() + 1) * free.dims];
            if *old != new[..] {
                self.add_free(finest, &new, old, &mut free.per_domain);
                old.copy_from_slice(&new);
            }
        }
        self.frees.insert(ids, free);
    }

    /// Points for the nodes of an area, by their domain at the preferred level: the roomier, the more.
    fn bonus(
        &self,
        members: &Members,
        level: usize,
        counts: &Counts<'_>,
        load: &Load<'_>,
        total: i64,
    ) -> BTreeMap<NodeId, i64> {
        let mut domains: Vec<DomainId> =
            members.list.iter().filter_map(|n| self.domain_at(*n, level)).collect();
        domains.sort_unstable();
        domains.dedup();
        let room = |d: &DomainId| counts.fits(*d, load).min(total.max(1) * 1000);
        domains.sort_by(|a, b| room(a).cmp(&room(b)).then(a.cmp(b)));
        let n = domains.len().max(1) as i64;
        let points: BTreeMap<DomainId, i64> =
            domains.into_iter().enumerate().map(|(i, d)| (d, 10 * i as i64 / n)).collect();
        members
            .list
            .iter()
            .filter_map(|node| Some((*node, *points.get(&self.domain_at(*node, level)?)?)))
            .collect()
    }
}
