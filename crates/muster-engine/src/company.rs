//! Hot path: who is near whom. Pod affinity, anti-affinity in both directions, liked and disliked company, and topology spread, as
//! kube-scheduler's InterPodAffinity and PodTopologySpread judge them.
//!
//! In: nodes with labels and taints; guests (pods of one namespace, one set of labels and one set of rules are one guest); who is on
//! which node. Out: for a guest and a node, whether the company allows it ([`Company::filter`]) and how much it is liked
//! ([`Company::score`], [`Company::spread_score`]).
//!
//! A rule is about a *crowd* (pods by namespace and selector) and a topology key; the pair is a *term*. Per term and domain three things
//! are counted: members of the crowd that are there, guests there that shun the crowd, and the weight with which guests there like
//! it. A placement touches only the terms that its guest is counted in or carries; a question reads one number per term.
//!
//! *Invariant:* [`Company::add`] and [`Company::remove`] are exact inverses, and so are [`Company::leave`] and [`Company::stay`].
//! *Invariant:* the answers depend on the nodes that are present and on who is where, never on the order in which that came to be.
//! *Invariant:* a guest on a node that is not there counts nowhere, and counts again when the node is put back.

mod crowds;
mod places;
mod tally;

#[cfg(test)]
mod tests;

use crate::ids::NodeId;
use crowds::{Crowds, Part};
use dense::{IdSet, IdVec, Interner, define_id};
use indexmap::IndexMap;
use muster_model::{
    AffinityTerm, Labels, Name, NodeReason, NodeRule, PodRules, Shape, SpreadRule, Taint, Toleration,
};
use places::{GroundRule, NOWHERE, Places};
use rustc_hash::FxBuildHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use tally::{Levels, Tally};

type FxIndexMap<K, V> = IndexMap<K, V, FxBuildHasher>;

define_id! {
    /// Pods that are alike in namespace, labels and rules about other pods.
    pub struct GuestId;
    /// A set of guests that a rule is about.
    struct CrowdId;
    /// A topology key.
    struct KeyId;
    /// The nodes on which a spread rule counts.
    struct GroundId;
    /// A crowd, a key, and for spread rules a ground.
    struct TermId;
    /// What one shape says about other pods.
    struct RulesId;
}

#[derive(Clone, Debug)]
pub struct Company {
    places: Places,
    crowds: Crowds,
    term_ids: Interner<TermId, (CrowdId, KeyId, Option<GroundId>)>,
    terms: IdVec<TermId, Term>,
    manners: Interner<RulesId, Manners>,
    rules: IdVec<RulesId, Rules>,
    keys: Interner<GuestId, GuestKey>,
    guests: IdVec<GuestId, Guest>,
    /// Who is on each node, the nodes that are not there included.
    seats: IdVec<NodeId, Vec<Seat>>,
    /// What a guest's required affinity adds to its liking.
    hard_weight: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct GuestKey {
    namespace: Name,
    labels: Arc<Labels>,
    rules: Option<RulesId>,
}

#[derive(Clone, Debug, Default)]
struct Guest {
    rules: Option<RulesId>,
    /// Terms whose crowd it belongs to and whose members are counted.
    counted: Vec<TermId>,
    /// Terms whose crowd it belongs to and that someone may shun.
    shunned: Vec<TermId>,
    /// Terms whose crowd it belongs to and that someone may like.
    liked: Vec<TermId>,
    /// It is of the crowd that it wants to be near to.
    near_itself: bool,
    /// For each required spread rule, whether the guest is among those it spreads.
    spreads_itself: Vec<bool>,
    /// How many of it are on nodes.
    n_placed: u32,
}

/// How many of a guest are on a node.
#[derive(Clone, Copy, Debug)]
struct Seat {
    guest: GuestId,
    n: u32,
    /// So many of them are about to leave; spread rules look past these.
    n_leaving: u32,
}

#[derive(Clone, Debug, Default)]
struct Term {
    /// Members of the crowd are counted in `here`.
    counts: bool,
    /// Some guest shuns the crowd.
    shuns: bool,
    /// Some guest likes or dislikes the crowd.
    likes: bool,
    here: Tally,
    shunning: Tally,
    liking: Tally,
    /// For terms with a ground only.
    levels: Levels,
}

/// A shape, compared by what matters here alone.
#[derive(Clone, Debug)]
struct Manners(Arc<Shape>);

/// What a shape says about other pods, in terms.
#[derive(Clone, Debug, Default)]
struct Rules {
    /// The crowd of those that match every affinity term, and one term per topology key.
    near: Option<(CrowdId, Vec<Where>)>,
    away: Vec<Where>,
    likes: Vec<(i64, Where)>,
    carried: Vec<Carried>,
    spread: Vec<Spread>,
    liked_spread: Vec<Spread>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Where {
    term: TermId,
    key: KeyId,
}

/// What others see of a guest's rules.
#[derive(Clone, Copy, Debug)]
struct Carried {
    at: Where,
    shuns: bool,
    weight: i64,
}

#[derive(Clone, Debug)]
struct Spread {
    at: Where,
    ground: GroundId,
    max_skew: i64,
    min_domains: usize,
    rule: SpreadRule,
}

impl Company {
    /// As kube-scheduler is set up by default: the required affinity of those who are there counts as liking with weight one.
    pub fn new() -> Self {
        Self::with_hard_affinity_weight(1)
    }

    /// With another weight for the required affinity of those who are there. KAI and Volcano leave it at zero.
    pub fn with_hard_affinity_weight(hard_weight: i64) -> Self {
        Self {
            places: Places::default(),
            crowds: Crowds::default(),
            term_ids: Interner::new(),
            terms: IdVec::new(),
            manners: Interner::new(),
            rules: IdVec::new(),
            keys: Interner::new(),
            guests: IdVec::new(),
            seats: IdVec::new(),
            hard_weight,
        }
    }

    /// A node comes, or changes. Those who are on it count where it is now.
    pub fn put_node(&mut self, node: NodeId, name: &Name, labels: &Labels, taints: &[Taint]) {
        if !self.places.is(node, name, labels, taints) {
            self.move_node(node, |places| places.put(node, name, labels, taints));
        }
    }

    /// A node goes. Those who are on it stay on record.
    pub fn drop_node(&mut self, node: NodeId) {
        self.move_node(node, |places| places.drop(node));
    }

    /// The guest that stands for pods with this namespace, these labels and the shape's rules. It is kept until
    /// [`Company::forget`]: call that when [`Company::n_guests`] has grown far beyond the pods there are.
    pub fn register(&mut self, namespace: &Name, labels: &Arc<Labels>, shape: &Arc<Shape>) -> GuestId {
        let rules = if shape.pods.is_empty() { None } else { Some(self.rules_of(shape)) };
        let key = GuestKey { namespace: namespace.clone(), labels: labels.clone(), rules };
        let id = self.keys.intern(key);
        if self.guests.get(id).is_none() {
            let guest = self.meet(id);
            self.guests.push(guest);
        }
        id
    }

    /// How many different guests are registered.
    pub fn n_guests(&self) -> usize {
        self.guests.len()
    }

    /// Forgets the guests that are on no node and are not to be kept, with the rules that only they had. Everyone gets a new id, which
    /// is given by the old one; nothing else changes. It takes as long as building anew, so call it when many have gone.
    pub fn forget(&mut self, keep: impl Fn(GuestId) -> bool) -> IdVec<GuestId, Option<GuestId>> {
        let anew = Self::with_hard_affinity_weight(self.hard_weight);
        let old = std::mem::replace(self, anew);
        for (node, name, labels, taints) in old.places.nodes() {
            self.put_node(node, name, labels, taints);
        }
        let plain = Arc::new(Shape::default());
        let ids = old.guests.map(|id, guest| {
            (guest.n_placed > 0 || keep(id)).then(|| {
                let key = &old.keys[id];
                let shape = key.rules.map_or(&plain, |rules| &old.manners[rules].0);
                self.register(&key.namespace, &key.labels, shape)
            })
        });
        for (node, seats) in old.seats.iter() {
            for seat in seats {
                let guest = ids[seat.guest].expect("whoever is on a node is kept");
                self.seats.ensure(node).push(Seat { guest, ..*seat });
                self.guests[guest].n_placed += seat.n;
                self.count(guest, node, seat.all(), seat.staying());
            }
        }
        ids
    }

    /// One more of the guest is on the node.
    pub fn add(&mut self, guest: GuestId, node: NodeId) {
        let seats = self.seats.ensure(node);
        match seats.iter_mut().find(|seat| seat.guest == guest) {
            Some(seat) => seat.n += 1,
            None => seats.push(Seat { guest, n: 1, n_leaving: 0 }),
        }
        self.guests[guest].n_placed += 1;
        self.count(guest, node, 1, 1);
    }

    /// One of the guest is gone from the node; one that stays, if there is one. Nothing happens if there is none.
    pub fn remove(&mut self, guest: GuestId, node: NodeId) {
        let Some(seats) = self.seats.get_mut(node) else { return };
        let Some(at) = seats.iter().position(|seat| seat.guest == guest) else { return };
        let seat = &mut seats[at];
        let staying = i64::from(seat.n > seat.n_leaving);
        seat.n -= 1;
        seat.n_leaving = seat.n_leaving.min(seat.n);
        if seat.n == 0 {
            seats.swap_remove(at);
        }
        self.guests[guest].n_placed -= 1;
        self.count(guest, node, -1, -staying);
    }

    /// One of the guest on the node is about to leave: spread rules no longer count it, affinity rules do until it is removed.
    /// Nothing happens if there is none.
    pub fn leave(&mut self, guest: GuestId, node: NodeId) {
        if let Some(seat) = self.seat_mut(guest, node)
            && seat.n_leaving < seat.n
        {
            seat.n_leaving += 1;
            self.count(guest, node, 0, -1);
        }
    }

    /// Takes [`Company::leave`] back.
    pub fn stay(&mut self, guest: GuestId, node: NodeId) {
        if let Some(seat) = self.seat_mut(guest, node)
            && seat.n_leaving > 0
        {
            seat.n_leaving -= 1;
            self.count(guest, node, 0, 1);
        }
    }

    /// Whether [`Company::filter`] allows every node, whoever is where: the guest requires nothing, and no registered guest shuns it.
    #[inline]
    pub fn is_silent(&self, guest: GuestId) -> bool {
        let guest = &self.guests[guest];
        guest.shunned.is_empty() && guest.rules.is_none_or(|id| !self.rules[id].requires())
    }

    /// Whether [`Company::score`] is zero for every node, whoever is where: the guest likes nobody, and no registered guest likes it.
    #[inline]
    pub fn is_indifferent(&self, guest: GuestId) -> bool {
        let guest = &self.guests[guest];
        guest.liked.is_empty() && guest.rules.is_none_or(|id| self.rules[id].likes.is_empty())
    }

    /// Whether the guest has spread rules that are only liked.
    #[inline]
    pub fn likes_to_spread(&self, guest: GuestId) -> bool {
        self.guests[guest].rules.is_some_and(|id| !self.rules[id].liked_spread.is_empty())
    }

    /// Whether one more of the guest may join those who are there.
    ///
    /// Affinity: for each topology key the node's domain holds someone who matches *all* affinity terms; if nobody in the cluster
    /// does, in a place with one of the keys, then a guest that matches its own terms may begin wherever the keys are.
    /// Anti-affinity: nobody in the domain matches one of its terms, and nobody in the domain shuns the guest.
    /// Spread: the count of the domain, with the guest if it is among those spread, exceeds the least count of any domain by no more
    /// than the skew. Nodes without all the keys of the required rules, and those that the rule's policies leave out, neither count
    /// nor make a domain. With fewer domains than wanted the least count is zero. A selector without expressions counts nobody.
    pub fn filter(&self, guest: GuestId, node: NodeId) -> Result<(), NodeReason> {
        let guest = &self.guests[guest];
        if let Some(id) = guest.rules {
            let rules = &self.rules[id];
            if !self.is_near(guest, rules, node) {
                return Err(NodeReason::PodAffinity);
            }
            if rules.away.iter().any(|at| self.here(*at, node).is_some_and(|n| n > 0)) {
                return Err(NodeReason::PodAntiAffinity);
            }
        }
        if guest.shunned.iter().any(|term| self.shunning(*term, node) > 0) {
            return Err(NodeReason::PodAntiAffinity);
        }
        if let Some(id) = guest.rules
            && !self.is_spread(guest, &self.rules[id], node)
        {
            return Err(NodeReason::TopologySpread);
        }
        Ok(())
    }

    /// How much the company is liked: for each of the guest's own preferred terms its weight (negative for anti-affinity) times those
    /// in the node's domain who match it, plus the same for the terms of those who are there towards the guest, plus the weight of
    /// required affinity ([`Company::with_hard_affinity_weight`]) for each such term of theirs. Raw: not brought to a scale.
    pub fn score(&self, guest: GuestId, node: NodeId) -> i64 {
        let guest = &self.guests[guest];
        let own = guest.rules.map_or(0, |id| {
            self.rules[id]
                .likes
                .iter()
                .map(|(weight, at)| weight * self.here(*at, node).unwrap_or(0))
                .sum::<i64>()
        });
        let theirs = |term: &TermId| {
            let domain = self.places.domain(self.term_ids[*term].1, node);
            if domain == NOWHERE { 0 } else { self.terms[*term].liking.get(domain) }
        };
        own + guest.liked.iter().map(theirs).sum::<i64>()
    }

    /// How well the node suits the guest's spread rules that are only liked; more is better, zero is the most. `None` if the node
    /// lacks one of the keys, which is worse than any number. Zero for guests without such rules.
    ///
    /// In thousandths: minus the sum over the rules of `count * ln(domains + 2) + max_skew - 1`, where `count` is the number of
    /// matching guests in the node's domain and `domains` the number of domains on the rule's ground. The logarithm keeps a rule over
    /// few large domains from drowning in one over many small ones.
    pub fn spread_score(&self, guest: GuestId, node: NodeId) -> Option<i64> {
        let rules = self.guests[guest].rules.map_or(&[][..], |id| &self.rules[id].liked_spread);
        let mut cost: i128 = 0;
        for spread in rules {
            let count = self.here(spread.at, node)?;
            cost += spread.cost(count, self.places.n_domains(spread.ground, spread.at.key));
        }
        Some(-in_i64((cost * 1000) >> LN_BITS))
    }

    /// The same on kube-scheduler's scale, for nodes that passed every filter: `100 * (most + least - cost) / most`, where the cost is
    /// that of [`Company::spread_score`] in whole numbers with the domains of these nodes only, and a node that lacks a key gets zero.
    /// All zero for guests without such rules.
    pub fn spread_scores(&self, guest: GuestId, nodes: &[NodeId]) -> Vec<i64> {
        let rules = self.guests[guest].rules.map_or(&[][..], |id| &self.rules[id].liked_spread);
        if rules.is_empty() {
            return vec![0; nodes.len()];
        }
        let has_all_keys = |node: NodeId| rules.iter().all(|s| self.places.domain(s.at.key, node) != NOWHERE);
        let n_domains = |spread: &Spread| {
            let mut domains: Vec<_> = nodes
                .iter()
                .filter(|n| has_all_keys(**n))
                .map(|n| self.places.domain(spread.at.key, *n))
                .collect();
            domains.sort_unstable();
            domains.dedup();
            domains.len()
        };
        let n_domains: Vec<usize> = rules.iter().map(n_domains).collect();
        let cost = |node: NodeId| {
            has_all_keys(node).then(|| {
                let costs = rules.iter().zip(&n_domains);
                let sum: i128 = costs.map(|(s, n)| s.cost(self.here(s.at, node).unwrap_or(0), *n)).sum();
                (sum + (1 << (LN_BITS - 1))) >> LN_BITS
            })
        };
        let costs: Vec<Option<i128>> = nodes.iter().map(|node| cost(*node)).collect();
        let least = costs.iter().flatten().min().copied().unwrap_or(0);
        let most = costs.iter().flatten().max().copied().unwrap_or(0);
        let scale = |cost: &Option<i128>| match cost {
            None => 0,
            Some(_) if most <= 0 => 100,
            Some(cost) => in_i64(100 * (most + least - cost) / most),
        };
        costs.iter().map(scale).collect()
    }

    /// How many are counted in the node's domain; `None` where it has none.
    #[inline]
    fn here(&self, at: Where, node: NodeId) -> Option<i64> {
        let domain = self.places.domain(at.key, node);
        (domain != NOWHERE).then(|| self.terms[at.term].here.get(domain))
    }

    fn shunning(&self, term: TermId, node: NodeId) -> i64 {
        let shunning = &self.terms[term].shunning;
        if shunning.n_domains() == 0 {
            return 0;
        }
        let domain = self.places.domain(self.term_ids[term].1, node);
        if domain == NOWHERE { 0 } else { shunning.get(domain) }
    }

    fn is_near(&self, guest: &Guest, rules: &Rules, node: NodeId) -> bool {
        let Some((_, places)) = &rules.near else { return true };
        let mut someone_everywhere = true;
        for at in places {
            match self.here(*at, node) {
                None => return false,
                Some(n) => someone_everywhere &= n > 0,
            }
        }
        someone_everywhere
            || (guest.near_itself && places.iter().all(|at| self.terms[at.term].here.total() == 0))
    }

    fn is_spread(&self, guest: &Guest, rules: &Rules, node: NodeId) -> bool {
        rules.spread.iter().zip(&guest.spreads_itself).all(|(spread, itself)| {
            let Some(count) = self.here(spread.at, node) else { return false };
            let term = &self.terms[spread.at.term];
            let n_domains = self.places.n_domains(spread.ground, spread.at.key);
            let some_empty = term.here.n_domains() < n_domains;
            let least = if n_domains < spread.min_domains || some_empty {
                0
            } else {
                term.levels.least().unwrap_or(0)
            };
            count + i64::from(*itself) - least <= spread.max_skew
        })
    }

    /// Counts the guest in (or out, where negative) on the node: so many for all rules, so many for spread rules.
    fn count(&mut self, guest: GuestId, node: NodeId, all: i64, staying: i64) {
        let guest = &self.guests[guest];
        for id in &guest.counted {
            let (_, key, ground) = self.term_ids[*id];
            let (term, places) = (&mut self.terms[*id], &self.places);
            term.count(places, node, key, ground, all, staying);
        }
        let Some(rules) = guest.rules else { return };
        for carried in &self.rules[rules].carried {
            let domain = self.places.domain(carried.at.key, node);
            if domain == NOWHERE || all == 0 {
                continue;
            }
            let term = &mut self.terms[carried.at.term];
            if carried.shuns {
                term.shunning.add(domain, all);
            }
            if carried.weight != 0 {
                term.liking.add(domain, carried.weight * all);
            }
        }
    }

    fn move_node(&mut self, node: NodeId, change: impl FnOnce(&mut Places)) {
        let seats = self.seats.get_mut(node).map(std::mem::take).unwrap_or_default();
        for seat in &seats {
            self.count(seat.guest, node, -seat.all(), -seat.staying());
        }
        change(&mut self.places);
        for seat in &seats {
            self.count(seat.guest, node, seat.all(), seat.staying());
        }
        if !seats.is_empty() {
            *self.seats.ensure(node) = seats;
        }
    }

    fn seat_mut(&mut self, guest: GuestId, node: NodeId) -> Option<&mut Seat> {
        self.seats.get_mut(node)?.iter_mut().find(|seat| seat.guest == guest)
    }

    /// A guest that is new: the terms that are about it.
    fn meet(&mut self, id: GuestId) -> Guest {
        let key = &self.keys[id];
        let mut guest = Guest { rules: key.rules, ..Guest::default() };
        for crowd in self.crowds.join(id, key) {
            for term in &self.crowds.crowd(crowd).terms {
                let Term { counts, shuns, likes, .. } = self.terms[*term];
                guest.counted.extend(counts.then_some(*term));
                guest.shunned.extend(shuns.then_some(*term));
                guest.liked.extend(likes.then_some(*term));
            }
        }
        if let Some(rules) = key.rules {
            let rules = &self.rules[rules];
            guest.near_itself =
                rules.near.as_ref().is_some_and(|(crowd, _)| self.crowds.describes(*crowd, key));
            guest.spreads_itself =
                rules.spread.iter().map(|s| s.rule.selector.matches(&key.labels)).collect();
        }
        guest
    }

    fn rules_of(&mut self, shape: &Arc<Shape>) -> RulesId {
        let manners = Manners(shape.clone());
        if let Some(id) = self.manners.get(&manners) {
            return id;
        }
        let PodRules { affinity, anti_affinity, preferred, spread } = &shape.pods;
        let mut rules = Rules::default();
        if !affinity.is_empty() {
            let crowd = self.crowds.found(affinity.iter().map(Part::of).collect(), &self.keys);
            let mut places = Vec::new();
            for term in affinity {
                let at = self.term(crowd, &term.topology_key, None);
                self.start_counting(at);
                if !places.contains(&at) {
                    places.push(at);
                }
                if self.hard_weight != 0 {
                    let at = self.term_of(term);
                    self.start_liking(at);
                    rules.carry(at, false, self.hard_weight);
                }
            }
            rules.near = Some((crowd, places));
        }
        for term in anti_affinity {
            let at = self.term_of(term);
            self.start_counting(at);
            self.start_shunning(at);
            if !rules.away.contains(&at) {
                rules.away.push(at);
                rules.carry(at, true, 0);
            }
        }
        for (weight, term) in preferred.iter().filter(|(weight, _)| *weight != 0) {
            let at = self.term_of(term);
            self.start_counting(at);
            self.start_liking(at);
            rules.likes.push((i64::from(*weight), at));
            rules.carry(at, false, i64::from(*weight));
        }
        rules.spread = self.spread_of(spread.iter().filter(|rule| rule.required), shape);
        rules.liked_spread = self.spread_of(spread.iter().filter(|rule| !rule.required), shape);
        self.rules.push(rules);
        self.manners.intern(manners)
    }

    /// Rules of one kind look at each other: a node that lacks the key of one counts for none.
    fn spread_of<'a>(
        &mut self,
        rules: impl Iterator<Item = &'a SpreadRule> + Clone,
        shape: &Shape,
    ) -> Vec<Spread> {
        let mut keys: Vec<KeyId> = rules.clone().map(|rule| self.places.key(&rule.topology_key)).collect();
        keys.sort_unstable();
        keys.dedup();
        let one = |rule: &SpreadRule| {
            let node = (rule.honour_node_rules && !shape.node.is_open()).then(|| NodeRule {
                all: shape.node.all.clone(),
                any: shape.node.any.clone(),
                preferred: Vec::new(),
            });
            let tolerations: Option<Vec<Toleration>> = rule.honour_taints.then(|| shape.tolerations.clone());
            let ground = self.places.ground(GroundRule { keys: keys.clone(), node, tolerations });
            let part = if rule.selector.all.is_empty() {
                Part::nobody()
            } else {
                Part::new(Some(vec![rule.namespace.clone()]), rule.selector.all.clone())
            };
            let crowd = self.crowds.found(vec![part], &self.keys);
            let at = self.term(crowd, &rule.topology_key, Some(ground));
            self.start_counting(at);
            Spread {
                at,
                ground,
                max_skew: i64::from(rule.max_skew),
                min_domains: rule.min_domains.and_then(|n| usize::try_from(n).ok()).unwrap_or(1).max(1),
                rule: rule.clone(),
            }
        };
        rules.map(one).collect()
    }

    fn term_of(&mut self, term: &AffinityTerm) -> Where {
        let crowd = self.crowds.found(vec![Part::of(term)], &self.keys);
        self.term(crowd, &term.topology_key, None)
    }

    fn term(&mut self, crowd: CrowdId, key: &Name, ground: Option<GroundId>) -> Where {
        let key = self.places.key(key);
        let term = self.term_ids.intern((crowd, key, ground));
        if self.terms.get(term).is_none() {
            self.terms.push(Term::default());
            self.crowds.add_term(crowd, term);
        }
        Where { term, key }
    }

    fn start_counting(&mut self, at: Where) {
        if std::mem::replace(&mut self.terms[at.term].counts, true) {
            return;
        }
        let (crowd, key, ground) = self.term_ids[at.term];
        let mut members = IdSet::new();
        let mut n_placed: u64 = 0;
        for id in &self.crowds.crowd(crowd).members {
            let guest = &mut self.guests[*id];
            guest.counted.push(at.term);
            if guest.n_placed > 0 {
                members.insert(*id);
                n_placed += u64::from(guest.n_placed);
            }
        }
        // Most new rules are about pods that nobody has placed yet; the nodes are gone through only as far as there are such pods.
        let term = &mut self.terms[at.term];
        for (node, seats) in self.seats.iter() {
            if n_placed == 0 {
                break;
            }
            for seat in seats.iter().filter(|seat| members.contains(seat.guest)) {
                n_placed -= u64::from(seat.n);
                term.count(&self.places, node, key, ground, seat.all(), seat.staying());
            }
        }
    }

    // Whoever shuns or likes carries the rule, so nobody who does was placed before the rule was known.

    fn start_shunning(&mut self, at: Where) {
        if !std::mem::replace(&mut self.terms[at.term].shuns, true) {
            for id in &self.crowds.crowd(self.term_ids[at.term].0).members {
                self.guests[*id].shunned.push(at.term);
            }
        }
    }

    fn start_liking(&mut self, at: Where) {
        if !std::mem::replace(&mut self.terms[at.term].likes, true) {
            for id in &self.crowds.crowd(self.term_ids[at.term].0).members {
                self.guests[*id].liked.push(at.term);
            }
        }
    }
}

impl Default for Company {
    fn default() -> Self {
        Self::new()
    }
}

impl Rules {
    fn requires(&self) -> bool {
        self.near.is_some() || !self.away.is_empty() || !self.spread.is_empty()
    }

    fn carry(&mut self, at: Where, shuns: bool, weight: i64) {
        match self.carried.iter_mut().find(|carried| carried.at == at) {
            Some(carried) => {
                carried.shuns |= shuns;
                carried.weight += weight;
            }
            None => self.carried.push(Carried { at, shuns, weight }),
        }
    }
}

impl Term {
    fn count(
        &mut self,
        places: &Places,
        node: NodeId,
        key: KeyId,
        ground: Option<GroundId>,
        all: i64,
        staying: i64,
    ) {
        let domain = places.domain(key, node);
        if domain == NOWHERE {
            return;
        }
        match ground {
            None if all != 0 => {
                self.here.add(domain, all);
            }
            Some(ground) if staying != 0 && places.is_on(ground, node) => {
                let change = self.here.add(domain, staying);
                self.levels.shift(change);
            }
            _ => {}
        }
    }
}

impl Seat {
    fn all(&self) -> i64 {
        i64::from(self.n)
    }

    fn staying(&self) -> i64 {
        i64::from(self.n - self.n_leaving)
    }
}

impl Spread {
    /// With [`LN_BITS`] binary places.
    fn cost(&self, count: i64, n_domains: usize) -> i128 {
        i128::from(count) * ln(n_domains as u64 + 2) + (i128::from(self.max_skew - 1) << LN_BITS)
    }
}

impl Manners {
    fn view(&self) -> impl Hash + PartialEq + '_ {
        let Shape { node, tolerations, pods, .. } = &*self.0;
        let ground = (!pods.spread.is_empty()).then_some((&node.all, &node.any, tolerations));
        (pods, ground)
    }
}

impl PartialEq for Manners {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.view() == other.view()
    }
}

impl Eq for Manners {}

impl Hash for Manners {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.view().hash(state);
    }
}

const LN_BITS: u32 = 32;

/// The natural logarithm of a positive number with [`LN_BITS`] binary places, in whole numbers so that every machine agrees.
fn ln(n: u64) -> i128 {
    /// The natural logarithm of two with 64 binary places.
    const LN_2: u128 = 12_786_308_645_202_655_659;
    let whole = n.max(1).ilog2();
    // The number as a fraction from one to below two, with 63 binary places. Squaring it doubles the logarithm: each time that makes it two
    // or more, the next binary place is set.
    let mut fraction = u128::from(n.max(1)) << (63 - whole);
    let mut log2 = u128::from(whole);
    for _ in 0..48 {
        fraction = (fraction * fraction) >> 63;
        let bit = fraction >> 64;
        fraction >>= bit;
        log2 = (log2 << 1) | bit;
    }
    i128::try_from((log2 * LN_2) >> (48 + 64 - LN_BITS)).expect("a logarithm is small")
}

fn in_i64(n: i128) -> i64 {
    i64::try_from(n).unwrap_or(if n < 0 { i64::MIN } else { i64::MAX })
}
