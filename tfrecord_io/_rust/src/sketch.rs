//! What a stream of values is like, in a few kilobytes: how many are distinct, which are frequent,
//! and a sample of them.

use std::hash::BuildHasher;

use foldhash::quality::FixedState;

/// The hash of a value; equal in all sketches of a process.
#[inline(always)]
pub fn hash_bytes(value: &[u8]) -> u64 {
    const STATE: FixedState = FixedState::with_seed(0);
    STATE.hash_one(value)
}

/// The same of a number, by its bits (the finalizer of SplitMix64).
#[inline(always)]
pub fn hash_bits(bits: u64) -> u64 {
    let mut word = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// How many distinct values there are: HyperLogLog with 2^14 registers, standard error 0.8 %.
///
/// Source: P. Flajolet et al., "HyperLogLog" (2007); the estimator is that of O. Ertl, "New
/// cardinality estimation algorithms for HyperLogLog sketches" (2017), algorithm 6.
#[derive(Debug)]
pub struct Distinct {
    registers: Vec<u8>,
    /// What ranks behind the index are greater than this are in every register.
    limit: u64,
    /// So many values until the limit is looked for again.
    left: u32,
}

const PRECISION: u32 = 14;
const REGISTERS: usize = 1 << PRECISION;
const LOOK_AFTER: u32 = 4 * REGISTERS as u32;
/// The largest rank: zeros in the bits that choose no register, and one.
const MAX_RANK: usize = (64 - PRECISION) as usize + 1;

impl Default for Distinct {
    fn default() -> Self {
        Self { registers: vec![0; REGISTERS], limit: u64::MAX, left: LOOK_AFTER }
    }
}

impl Distinct {
    #[inline(always)]
    pub fn add(&mut self, hash: u64) {
        // A one behind the last bit, so that no bits but zeros end somewhere.
        let ranked = (hash << PRECISION) | (1 << (PRECISION - 1));
        if ranked <= self.limit {
            self.raise((hash >> (64 - PRECISION)) as usize, ranked.leading_zeros() as u8 + 1);
        }
    }

    #[inline(always)]
    fn raise(&mut self, index: usize, rank: u8) {
        let held = &mut self.registers[index % REGISTERS];
        *held = rank.max(*held);
        self.left -= 1;
        if self.left == 0 {
            self.look();
        }
    }

    /// Find the least rank held: no smaller one can change anything.
    #[cold]
    fn look(&mut self) {
        let least = self.registers.iter().min().copied().unwrap_or_default();
        self.limit = u64::MAX.checked_shr(u32::from(least)).unwrap_or_default();
        self.left = LOOK_AFTER;
    }

    pub fn estimate(&self) -> f64 {
        let mut counts = [0u32; MAX_RANK + 1];
        self.registers.iter().for_each(|rank| counts[usize::from(*rank)] += 1);
        let registers = REGISTERS as f64;
        let mut z = registers * tau(1.0 - f64::from(counts[MAX_RANK]) / registers);
        for rank in (1..MAX_RANK).rev() {
            z = 0.5 * (z + f64::from(counts[rank]));
        }
        z += registers * sigma(f64::from(counts[0]) / registers);
        registers * registers / (2.0 * std::f64::consts::LN_2 * z)
    }
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut sum, mut factor) = (x, 1.0);
    loop {
        x *= x;
        let before = sum;
        sum += x * factor;
        factor += factor;
        if sum == before {
            return sum;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut sum, mut factor) = (1.0 - x, 1.0);
    loop {
        x = x.sqrt();
        let before = sum;
        factor *= 0.5;
        sum -= (1.0 - x) * (1.0 - x) * factor;
        if sum == before {
            return sum / 3.0;
        }
    }
}

/// Which values are frequent: the counters of Misra and Gries, in many small sets.
///
/// A value belongs to the set that its hash chooses. One that finds its set full takes one off each
/// counter there. So a count is never too high, and too low by what its set has lost at most.
#[derive(Debug)]
pub struct Frequent {
    sets: Vec<Set>,
    /// The values, each with its hash: one whose counter was given away is of no meaning.
    values: Vec<(u64, Box<[u8]>)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Set {
    hashes: [u64; WAYS],
    counts: [u64; WAYS],
    lost: u64,
}

const WAYS: usize = 4;
const SETS: usize = 512;
/// Longer values are not looked at: what is so long is no category.
pub const LONGEST: usize = 256;

/// A value, how often it was seen at least, and at most.
pub type Count = (Box<[u8]>, u64, u64);

impl Default for Frequent {
    fn default() -> Self {
        let values = vec![(0, Box::default()); SETS * WAYS];
        Self { sets: vec![Set::default(); SETS], values }
    }
}

impl Frequent {
    #[inline(always)]
    pub fn add(&mut self, hash: u64, value: &[u8]) {
        // The high bits choose the register of `Distinct`.
        let index = hash as usize % SETS;
        let set = &mut self.sets[index];
        for way in 0..WAYS {
            if set.hashes[way] == hash && set.counts[way] > 0 {
                set.counts[way] += 1;
                self.hold(index * WAYS + way, hash, value);
                return;
            }
        }
        // The first of the least counters, found without a branch that nobody could predict.
        let mut way = 0;
        for other in 1..WAYS {
            way = if set.counts[other] < set.counts[way] { other } else { way };
        }
        if set.counts[way] > 0 {
            set.counts.iter_mut().for_each(|count| *count -= 1);
            set.lost += 1;
            return;
        }
        (set.hashes[way], set.counts[way]) = (hash, 1);
        // Where values come and go, one is only kept when it comes again.
        if set.lost == 0 {
            self.hold(index * WAYS + way, hash, value);
        }
    }

    #[inline(always)]
    fn hold(&mut self, index: usize, hash: u64, value: &[u8]) {
        let held = &mut self.values[index];
        if held.0 != hash || held.1.len() != value.len() {
            *held = (hash, value.into());
        }
    }

    /// The most frequent values, the most frequent first.
    pub fn top(&self, most: usize) -> Vec<Count> {
        let mut found: Vec<Count> = Vec::new();
        for (set, values) in self.sets.iter().zip(self.values.chunks(WAYS)) {
            for (way, (hash, value)) in values.iter().enumerate() {
                let count = set.counts[way];
                if count > 0 && set.hashes[way] == *hash {
                    found.push((value.clone(), count, count + set.lost));
                }
            }
        }
        found.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
        found.truncate(most);
        found
    }
}

/// A uniform sample: each value is in it with the same probability, a power of one half.
#[derive(Debug)]
pub struct Sample<T> {
    pub values: Vec<T>,
    /// The probability is one half to the power of this.
    level: u32,
    /// So many values to pass over.
    skip: u64,
    random: u64,
}

/// A sample is thinned when it holds this many: then the error of a quantile's rank is 0.6 %.
const FULL: usize = 16 * 1024;

impl<T> Default for Sample<T> {
    fn default() -> Self {
        Self { values: Vec::new(), level: 0, skip: 0, random: 0 }
    }
}

impl<T: Copy> Sample<T> {
    /// Add values that stand together.
    pub fn extend(&mut self, values: &[T]) {
        let mut at = self.skip as usize;
        while let Some(value) = values.get(at) {
            self.take(*value);
            at = at.saturating_add(1).saturating_add(self.skip as usize);
        }
        self.skip = (at - values.len()) as u64;
    }

    fn take(&mut self, value: T) {
        self.values.push(value);
        if self.values.len() >= FULL {
            self.thin();
        }
        self.skip = self.gap();
    }

    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(1);
        hash_bits(self.random)
    }

    /// How many values are passed over before the next one that is taken.
    fn gap(&mut self) -> u64 {
        if self.level == 0 {
            return 0;
        }
        let uniform = (self.next_random() >> 11) as f64 / (1u64 << 53) as f64;
        let missed = -(-(0.5f64.powi(self.level as i32))).ln_1p();
        (-(1.0 - uniform).ln() / missed) as u64
    }

    /// Make the probability one half of what it is.
    fn thin(&mut self) {
        let mut kept = std::mem::take(&mut self.values);
        kept.retain(|_| self.next_random() & 1 == 0);
        self.values = kept;
        self.level += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_distinct_values() {
        for (count, most_off) in [(0u64, 0.0), (1, 0.01), (12, 0.01), (1000, 0.01), (1 << 20, 0.03)]
        {
            let mut all = Distinct::default();
            // Each comes twice.
            (0..count).chain(0..count).for_each(|value| all.add(hash_bits(value)));
            let off = (all.estimate() - count as f64).abs();
            assert!(off <= most_off * count as f64, "{count}: {}", all.estimate());
        }
    }

    #[test]
    fn counts_of_frequent_values_hold() {
        let mut all = Frequent::default();
        let mut exact = hashbrown::HashMap::<Vec<u8>, u64>::new();
        for step in 0..200_000u64 {
            // Every fourth value is one of ten, the others come once.
            let value =
                if step % 4 == 0 { (step / 4 % 10).to_string() } else { format!("x{step}") };
            *exact.entry(value.clone().into_bytes()).or_default() += 1;
            all.add(hash_bytes(value.as_bytes()), value.as_bytes());
        }
        let top = all.top(10);
        assert_eq!(top.len(), 10);
        for (value, least, most) in top {
            let count = exact[&value.to_vec()];
            assert!(count == 5000 && least <= count && count <= most, "{least} {count} {most}");
        }
    }

    #[test]
    fn few_values_are_counted_exactly() {
        let mut sketch = Frequent::default();
        for step in 0..3000u64 {
            let value = (step % 100).to_string();
            sketch.add(hash_bytes(value.as_bytes()), value.as_bytes());
        }
        let top = sketch.top(1000);
        assert_eq!(top.len(), 100);
        assert!(top.iter().all(|(_, least, most)| (*least, *most) == (30, 30)));
    }

    #[test]
    fn samples_are_uniform() {
        let values: Vec<u64> = (0..1_000_000).collect();
        let mut sample = Sample::default();
        let (first, second) = values.split_at(300_000);
        first.iter().for_each(|value| sample.extend(&[*value]));
        second.chunks(1000).for_each(|chunk| sample.extend(chunk));
        let held = &sample.values;
        assert!((FULL / 3..FULL).contains(&held.len()), "{}", held.len());
        for part in 1..10 {
            let share = held.iter().filter(|value| **value < part * 100_000).count() as f64;
            let off = share / held.len() as f64 - part as f64 / 10.0;
            assert!(off.abs() < 0.03, "{part}: {off}");
        }
    }
}
