//! Who is meant: sets of guests that are described by namespaces and selectors.
//!
//! In: descriptions and guests, in any order. Out: the guests of each crowd and the crowds of each guest, however late one of them
//! comes. Nobody is compared with everybody: a crowd waits at the label that its members must have, and guests are looked up there.
//!
//! *Invariant:* a guest is a member of a crowd exactly if the description holds for it.

use super::{CrowdId, FxIndexMap, GuestId, GuestKey, TermId};
use dense::{IdVec, Interner};
use muster_model::{AffinityTerm, Expr, Labels, Name, Op};

#[derive(Clone, Debug, Default)]
pub(super) struct Crowds {
    ids: Interner<CrowdId, Vec<Part>>,
    crowds: IdVec<CrowdId, Crowd>,
    /// By label key: only keys for which a crowd waits, so that guests cost nothing before that.
    anchors: FxIndexMap<Name, Anchor>,
    /// Crowds that wait at no label: each new guest is compared with them.
    open: Vec<CrowdId>,
}

/// Pods of these namespaces for which these expressions hold. A crowd is described by several parts at once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Part {
    namespaces: Option<Vec<Name>>,
    all: Vec<Expr>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Crowd {
    pub members: Vec<GuestId>,
    /// The terms that are about this crowd.
    pub terms: Vec<TermId>,
}

#[derive(Clone, Debug, Default)]
struct Anchor {
    guests: FxIndexMap<Name, Vec<GuestId>>,
    by_value: FxIndexMap<Name, Vec<CrowdId>>,
    by_presence: Vec<CrowdId>,
}

impl Part {
    pub fn of(term: &AffinityTerm) -> Self {
        Self::new(term.namespaces.clone(), term.selector.all.clone())
    }

    pub fn new(mut namespaces: Option<Vec<Name>>, mut all: Vec<Expr>) -> Self {
        if let Some(names) = &mut namespaces {
            names.sort_unstable();
            names.dedup();
        }
        all.sort_unstable();
        all.dedup();
        Self { namespaces, all }
    }

    pub fn nobody() -> Self {
        Self { namespaces: Some(Vec::new()), all: vec![Expr { key: "".into(), op: Op::Never }] }
    }

    fn holds(&self, namespace: &Name, labels: &Labels) -> bool {
        self.namespaces.as_ref().is_none_or(|names| names.binary_search(namespace).is_ok())
            && self.all.iter().all(|e| e.holds(labels.get(&e.key).map(|v| &**v)))
    }
}

impl Crowds {
    pub fn crowd(&self, id: CrowdId) -> &Crowd {
        &self.crowds[id]
    }

    pub fn add_term(&mut self, id: CrowdId, term: TermId) {
        self.crowds[id].terms.push(term);
    }

    pub fn describes(&self, id: CrowdId, guest: &GuestKey) -> bool {
        self.ids[id].iter().all(|part| part.holds(&guest.namespace, &guest.labels))
    }

    /// The crowd that all of these parts describe; at first sight it is filled with the guests that are known.
    pub fn found(&mut self, mut parts: Vec<Part>, guests: &Interner<GuestId, GuestKey>) -> CrowdId {
        parts.sort_unstable();
        parts.dedup();
        if let Some(id) = self.ids.get(&parts) {
            return id;
        }
        let id = self.crowds.push(Crowd::default());
        let candidates = self.wait_for_members(id, &parts, guests);
        let described = self.ids.intern(parts);
        debug_assert_eq!(described, id, "ids and crowds grow together");
        let members = candidates.into_iter().filter(|guest| self.describes(id, &guests[*guest])).collect();
        self.crowds[id].members = members;
        id
    }

    /// Makes a new guest a member of the crowds that describe it, and says which.
    pub fn join(&mut self, id: GuestId, guest: &GuestKey) -> Vec<CrowdId> {
        if self.ids.is_empty() {
            return Vec::new();
        }
        let mut joined = self.open.clone();
        if !self.anchors.is_empty() {
            for (key, value) in &*guest.labels {
                let Some(anchor) = self.anchors.get_mut(key) else { continue };
                anchor.guests.entry(value.clone()).or_default().push(id);
                joined.extend_from_slice(&anchor.by_presence);
                joined.extend(anchor.by_value.get(value).into_iter().flatten());
            }
        }
        joined.retain(|crowd| self.describes(*crowd, guest));
        for crowd in &joined {
            self.crowds[*crowd].members.push(id);
        }
        joined
    }

    /// Puts a new crowd where it will meet its members, and gives the known guests that may be some.
    fn wait_for_members(
        &mut self,
        id: CrowdId,
        parts: &[Part],
        guests: &Interner<GuestId, GuestKey>,
    ) -> Vec<GuestId> {
        let exprs = || parts.iter().flat_map(|part| &part.all);
        if exprs().any(|e| e.op == Op::Never) {
            return Vec::new();
        }
        let by_value = exprs().filter_map(|e| match &e.op {
            Op::In(values) => Some((&e.key, values)),
            _ => None,
        });
        if let Some((key, values)) = by_value.min_by_key(|(_, values)| values.len()) {
            let mut values = values.clone();
            values.sort_unstable();
            values.dedup();
            let anchor = self.anchor(key, guests);
            let mut candidates = Vec::new();
            for value in values {
                candidates.extend(anchor.guests.get(&value).into_iter().flatten());
                anchor.by_value.entry(value).or_default().push(id);
            }
            return candidates;
        }
        let by_presence = exprs().find(|e| matches!(e.op, Op::Exists | Op::Above(_) | Op::Below(_)));
        if let Some(Expr { key, .. }) = by_presence {
            let anchor = self.anchor(key, guests);
            anchor.by_presence.push(id);
            return anchor.guests.values().flatten().copied().collect();
        }
        self.open.push(id);
        guests.ids().collect()
    }

    fn anchor(&mut self, key: &Name, guests: &Interner<GuestId, GuestKey>) -> &mut Anchor {
        self.anchors.entry(key.clone()).or_insert_with(|| {
            let mut anchor = Anchor::default();
            for (id, guest) in guests.iter() {
                if let Some(value) = guest.labels.get(key) {
                    anchor.guests.entry(value.clone()).or_default().push(id);
                }
            }
            anchor
        })
    }
}
