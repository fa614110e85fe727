//! Shares: how much of what a cohort could lend a node has borrowed, by its dominant resource and divided by its weight.
//!
//! *Invariant:* shares are exact fractions, and compare as such: no rounding decides who is preempted.

use crate::ids::ResourceId;
use crate::spec::Weight;
use std::cmp::Ordering;

/// One in the units of [`Weight`].
const ONE: i128 = 1_000_000_000;

/// The share of one node.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    weight: Weight,
    /// Of the dominant resource: borrowed, and lendable.
    borrowed: i64,
    lendable: i64,
    resource: Option<(ResourceId, u32)>,
    borrowing: bool,
}

impl Share {
    pub fn none(weight: Weight) -> Self {
        Self { weight, borrowed: 0, lendable: 1, resource: None, borrowing: false }
    }

    /// Takes in a resource of which so much is borrowed; `rank` is its place by name.
    pub fn include(&mut self, resource: ResourceId, rank: u32, borrowed: i64, lendable: i64) {
        self.borrowing = true;
        if lendable <= 0 {
            return;
        }
        let than = compare(borrowed.into(), lendable.into(), self.borrowed.into(), self.lendable.into());
        let first = self.resource.is_none_or(|(_, known)| rank < known);
        if than == Ordering::Greater || (than == Ordering::Equal && first && self.resource.is_some()) {
            *self = Self { borrowed, lendable, resource: Some((resource, rank)), ..*self };
        }
    }

    pub fn is_borrowing(&self) -> bool {
        self.borrowing
    }

    pub fn resource(&self) -> Option<ResourceId> {
        self.resource.map(|(resource, _)| resource)
    }

    /// Without a weight every bit that is borrowed is too much.
    fn is_infinite(&self) -> bool {
        self.weight.0 <= 0 && self.borrowing
    }

    /// In thousandths of what could be lent, rounded up; [`i64::MAX`] without a weight.
    pub fn per_mille(&self) -> i64 {
        if self.is_infinite() {
            return i64::MAX;
        }
        if self.borrowed <= 0 {
            return 0;
        }
        let above = i128::from(self.borrowed) * ONE * 1000;
        let below = i128::from(self.lendable) * i128::from(self.weight.0.max(1));
        i64::try_from((above + below - 1) / below).unwrap_or(i64::MAX)
    }
}

impl PartialEq for Share {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Share {}

impl PartialOrd for Share {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Share {
    /// Two without weights compare by what they borrowed alone.
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.is_infinite(), other.is_infinite()) {
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (true, true) => compare(
                self.borrowed.into(),
                self.lendable.into(),
                other.borrowed.into(),
                other.lendable.into(),
            ),
            (false, false) => compare(
                i128::from(self.borrowed) * ONE,
                i128::from(self.lendable) * i128::from(self.weight.0.max(1)),
                i128::from(other.borrowed) * ONE,
                i128::from(other.lendable) * i128::from(other.weight.0.max(1)),
            ),
        }
    }
}

/// `a / b` against `c / d`, for positive `b` and `d`, without a product that could overflow.
fn compare(mut a: i128, mut b: i128, mut c: i128, mut d: i128) -> Ordering {
    let mut turned = false;
    loop {
        let order = a.div_euclid(b).cmp(&c.div_euclid(d));
        let (left, right) = (a.rem_euclid(b), c.rem_euclid(d));
        let order = match order {
            Ordering::Equal if left == 0 || right == 0 => left.min(1).cmp(&right.min(1)),
            order => order,
        };
        if order != Ordering::Equal || left == 0 {
            return if turned { order.reverse() } else { order };
        }
        // Equal whole parts: the greater rest is the smaller of the turned fractions.
        (a, b, c, d) = (b, left, d, right);
        turned = !turned;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(a: (i128, i128), c: (i128, i128), expected: Ordering) {
        assert_eq!(compare(a.0, a.1, c.0, c.1), expected, "{a:?} {c:?}");
        assert_eq!(compare(c.0, c.1, a.0, a.1), expected.reverse(), "{c:?} {a:?}");
    }

    #[test]
    fn fractions_compare_exactly() {
        check((1, 2), (1, 2), Ordering::Equal);
        check((2, 4), (1, 2), Ordering::Equal);
        check((1, 3), (1, 2), Ordering::Less);
        check((7, 3), (9, 4), Ordering::Greater);
        check((0, 5), (1, 1 << 100), Ordering::Less);
        let big = 1_i128 << 100;
        check((big, big + 1), (big - 1, big), Ordering::Greater);
        check((355, 113), (355_000_001, 113_000_000), Ordering::Less);
    }

    #[test]
    fn a_share_is_rounded_up_and_has_no_end_without_a_weight() {
        let share = |weight: i64, borrowed: i64, lendable: i64| {
            let mut share = Share::none(Weight(weight));
            share.include(ResourceId::new(1), 0, borrowed, lendable);
            share
        };
        assert_eq!(share(1_000_000_000, 1, 3).per_mille(), 334);
        assert_eq!(share(500_000_000, 2, 10).per_mille(), 400);
        assert_eq!(share(0, 1, 10).per_mille(), i64::MAX);
        assert!(share(0, 1, 10) < share(0, 2, 10));
        assert!(share(0, 1, 10) > share(1, i64::MAX, 1));
        assert_eq!(Share::none(Weight(0)).per_mille(), 0);
    }
}
