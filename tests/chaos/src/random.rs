//! Numbers that look random, from a seed.
//!
//! Must stay true: the seed is all the state there is, so the same seed gives the same numbers everywhere and for ever.

use std::time::Duration;

/// splitmix64.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.number() % (high.saturating_sub(low) + 1)
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.number() % 100 < percent
    }

    pub fn of<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        let last = u64::try_from(all.len()).ok()?.checked_sub(1)?;
        all.get(usize::try_from(self.between(0, last)).ok()?)
    }

    /// One of them; each has a weight.
    pub fn weighted<T: Copy>(&mut self, all: &[(u64, T)]) -> Option<T> {
        let sum: u64 = all.iter().map(|(weight, _)| weight).sum();
        let mut at = self.number().checked_rem(sum)?;
        for (weight, item) in all {
            match at.checked_sub(*weight) {
                None => return Some(*item),
                Some(rest) => at = rest,
            }
        }
        None
    }

    pub fn millis(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_millis(self.between(low, high))
    }

    pub fn shuffle<T>(&mut self, all: &mut [T]) {
        for i in (1..all.len()).rev() {
            let j = usize::try_from(self.number() % (i as u64 + 1)).unwrap_or(0);
            all.swap(i, j);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_count() {
        let mut random = Random::new(1);
        let mut counts = [0_u32; 3];
        for _ in 0..4000 {
            counts[random.weighted(&[(1, 0), (0, 1), (3, 2)]).unwrap()] += 1;
        }
        assert!(counts[1] == 0 && (900..1100).contains(&counts[0]), "{counts:?}");
        assert_eq!(random.weighted::<u8>(&[]), None);
        assert_eq!(random.of::<u8>(&[]), None);
    }
}
