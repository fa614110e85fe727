//! Numbers that look random and come from a seed alone: SplitMix64, a counter and a mixer.
//!
//! *Invariant:* the same seed and the same calls give the same numbers, on every machine and in every release; saved seeds depend on it.

/// A stream of numbers.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A stream of its own, so that more draws for one purpose do not shift the draws for another.
    pub fn fork(&self, purpose: u64) -> Self {
        Self { state: mix(self.state ^ mix(purpose.wrapping_add(STEP))) }
    }

    pub fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        mix(self.state)
    }

    /// From zero up to, and without, `end`; zero if `end` is.
    pub fn below(&mut self, end: u64) -> u64 {
        // The high half of the product: no division, and the bias is far below what a test could see.
        ((u128::from(self.number()) * u128::from(end)) >> 64) as u64
    }

    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Both ends included.
    pub fn between(&mut self, (low, high): (u32, u32)) -> u32 {
        low + self.below(u64::from(high.saturating_sub(low)) + 1) as u32
    }

    /// True this many times in a hundred.
    pub fn percent(&mut self, odds: u32) -> bool {
        self.below(100) < u64::from(odds)
    }

    /// One of the choices.
    ///
    /// # Panics
    /// If there are none.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.index(choices.len())]
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            let other = self.index(i + 1);
            items.swap(i, other);
        }
    }
}

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::Rng;

    #[test]
    fn the_first_numbers_never_change() {
        let mut rng = Rng::new(1_234_567);
        let known = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!([rng.number(), rng.number(), rng.number()], known);
    }

    #[test]
    fn ranges_are_kept_and_filled() {
        let mut rng = Rng::new(7);
        let mut seen = [0; 4];
        for _ in 0..1000 {
            seen[rng.between((2, 5)) as usize - 2] += 1;
        }
        assert!(seen.iter().all(|n| *n > 150), "{seen:?}");
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.between((3, 3)), 3);
    }

    #[test]
    fn forks_differ_from_each_other_and_leave_the_stream_alone() {
        let mut rng = Rng::new(7);
        let (mut a, mut b) = (rng.fork(1), rng.fork(2));
        assert_ne!(a.number(), b.number());
        assert_eq!(rng.number(), Rng::new(7).number());
    }
}
