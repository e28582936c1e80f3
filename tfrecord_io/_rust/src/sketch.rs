//! What a stream of values is like, in a few kilobytes: how many are distinct, which are frequent,
//! and a sample of them.

use std::hash::BuildHasher;
use std::marker::PhantomData;

use foldhash::quality::FixedState;

/// The longest strings that are hashed as two words.
const SHORT: usize = 16;

/// Which bits of two words belong to a string of so many bytes.
const MASKS: [[u64; 2]; SHORT + 1] = {
    let mut masks = [[0, 0]; SHORT + 1];
    let mut length = 0;
    while length <= SHORT {
        let bits = u128::MAX.unbounded_shr(128 - 8 * length as u32);
        masks[length] = [bits as u64, (bits >> 64) as u64];
        length += 1;
    }
    masks
};

/// Digits of pi.
const SEEDS: [u64; 3] = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344, 0xa409_3822_299f_31d0];

/// The hash of the string of `length` bytes at `start`; equal in all sketches of a process.
///
/// A short one is read as two words whatever its length, since lengths cannot be predicted, and
/// hashed as foldhash does it.
#[inline(always)]
pub fn hash_string(data: &[u8], start: usize, length: usize) -> u64 {
    if length > SHORT {
        const STATE: FixedState = FixedState::with_seed(0);
        return STATE.hash_one(&data[start..start + length]);
    }
    let words = match data.get(start..start + SHORT) {
        Some(words) => words.as_chunks().0,
        None => &last_words(&data[start..start + length]),
    };
    let [low, high] = [0, 1].map(|word| u64::from_le_bytes(words[word]) & MASKS[length][word]);
    let hash = folded_multiply(low ^ SEEDS[0], high ^ SEEDS[1]);
    folded_multiply(hash ^ length as u64, SEEDS[2])
}

/// A short string without so many bytes behind it.
#[cold]
fn last_words(value: &[u8]) -> [[u8; 8]; 2] {
    let mut words = [[0; 8]; 2];
    words.as_flattened_mut()[..value.len()].copy_from_slice(value);
    words
}

#[inline(always)]
fn folded_multiply(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}

/// The hash of a number, by its bits (the finalizer of SplitMix64).
#[inline(always)]
pub fn hash_bits(bits: u64) -> u64 {
    let mut word = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// The same of 32 bits: no two have the same hash.
///
/// Source: C. Wellons and others, "Hash Function Prospector" (2018-2023), the least biased of its
/// functions with two multiplications.
#[inline(always)]
pub fn hash_word(bits: u32) -> u32 {
    let mut word = bits ^ 0x9e37_79b9;
    word = (word ^ (word >> 16)).wrapping_mul(0x21f0_aaad);
    word = (word ^ (word >> 15)).wrapping_mul(0x735a_2d97);
    word ^ (word >> 15)
}

/// A hash of 32 or 64 bits.
pub trait Hash: Copy + Default {
    /// So many of its bits are looked at.
    const BITS: u32;
    /// Those bits at the top of a word, and a one behind them, so that zeros end somewhere.
    fn ended(self) -> u64;
    /// Whether all bits of a mask of the top of a word are zeros.
    fn is_zero_in(self, mask: u64) -> bool;
}

impl Hash for u64 {
    const BITS: u32 = 63;

    #[inline(always)]
    fn ended(self) -> u64 {
        self | 1
    }

    #[inline(always)]
    fn is_zero_in(self, mask: u64) -> bool {
        self & mask == 0
    }
}

impl Hash for u32 {
    const BITS: u32 = 32;

    #[inline(always)]
    fn ended(self) -> u64 {
        u64::from(self) << 32 | 1 << 31
    }

    #[inline(always)]
    fn is_zero_in(self, mask: u64) -> bool {
        self & (mask >> 32) as u32 == 0
    }
}

/// How many distinct values there are: HyperLogLog with 2^14 registers, standard error 0.8 %.
///
/// Source: P. Flajolet et al., "HyperLogLog" (2007); the estimator is that of O. Ertl, "New
/// cardinality estimation algorithms for HyperLogLog sketches" (2017), algorithm 6.
#[derive(Debug)]
pub struct Distinct<H> {
    registers: Box<[u8; REGISTERS]>,
    /// Only hashes with zeros here can have a rank that is not in every register already.
    mask: u64,
    /// So many of those until the mask is looked for again.
    left: usize,
    hash: PhantomData<H>,
}

const PRECISION: u32 = 14;
const REGISTERS: usize = 1 << PRECISION;
/// Hashes that are looked at together.
const GROUP: usize = 32;

impl<H> Default for Distinct<H> {
    fn default() -> Self {
        let registers = Box::new([0; REGISTERS]);
        Self { registers, mask: 0, left: REGISTERS, hash: PhantomData }
    }
}

impl<H: Hash> Distinct<H> {
    /// The largest rank: zeros in the bits that choose no register, and one.
    const MAX_RANK: usize = (H::BITS - PRECISION) as usize + 1;

    /// Add values by their hashes.
    #[inline(always)]
    pub fn extend(&mut self, hashes: &[H]) {
        let (groups, rest) = hashes.as_chunks::<GROUP>();
        for group in groups {
            let mask = self.mask;
            if group.iter().fold(false, |any, hash| any | hash.is_zero_in(mask)) {
                self.raise(group);
            }
        }
        self.raise(rest);
    }

    /// Add a group of values or less.
    fn raise(&mut self, hashes: &[H]) {
        let mut count = 0;
        if self.mask == 0 {
            count = hashes.len();
            hashes.iter().for_each(|hash| self.hold(hash.ended()));
        } else {
            // Those that matter are found without a branch that nobody could predict.
            let mut chosen = [0; GROUP];
            for hash in hashes {
                chosen[count % GROUP] = hash.ended();
                count += usize::from(hash.is_zero_in(self.mask));
            }
            chosen[..count].iter().for_each(|hash| self.hold(*hash));
        }
        self.left = self.left.saturating_sub(count);
        if self.left == 0 {
            self.look();
        }
    }

    #[inline(always)]
    fn hold(&mut self, hash: u64) {
        let held = &mut self.registers[(hash >> (64 - PRECISION)) as usize];
        *held = (*held).max((hash << PRECISION).leading_zeros() as u8 + 1);
    }

    /// Find the least rank held: no smaller one can change anything.
    #[cold]
    fn look(&mut self) {
        let least = self.registers.iter().fold(u8::MAX, |least, rank| least.min(*rank));
        let zeros = u64::MAX.unbounded_shl(64 - u32::from(least));
        self.mask = zeros >> PRECISION;
        self.left = REGISTERS;
    }

    pub fn estimate(&self) -> f64 {
        let mut counts = [0u32; 64];
        self.registers.iter().for_each(|rank| counts[usize::from(*rank)] += 1);
        let registers = REGISTERS as f64;
        let mut z = registers * tau(1.0 - f64::from(counts[Self::MAX_RANK]) / registers);
        for rank in (1..Self::MAX_RANK).rev() {
            z = 0.5 * (z + f64::from(counts[rank]));
        }
        z += registers * sigma(f64::from(counts[0]) / registers);
        let draws = registers * registers / (2.0 * std::f64::consts::LN_2 * z);
        // The estimator takes hashes for drawn at random. Where they are few and no two values
        // have the same, so many distinct ones look like this many draws.
        let hashes = f64::from(H::BITS).exp2();
        -hashes * (-draws / hashes).exp_m1()
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

/// Which strings are frequent: the counters of Misra and Gries, in many small sets.
///
/// A string belongs to the set that its hash chooses. One that finds its set full takes one off each
/// counter there. So a count is never too high, and too low by what its set has lost at most.
///
/// Counting needs no more of a string than its hash and its row, until `hold` is given the strings.
#[derive(Debug)]
pub struct Frequent {
    sets: Box<[Set]>,
    /// The strings, each with its hash: one whose counter was given away is of no meaning.
    held: Vec<[(u64, Vec<u8>); WAYS]>,
}

/// Its counters, and behind them one place more, for strings that found none: they need no branch.
#[derive(Clone, Copy, Debug)]
struct Set {
    hashes: [u64; WAYS + 1],
    /// The last one is what the others have lost.
    counts: [u64; WAYS + 1],
    /// The row in which each string was seen since the last `hold`.
    rows: [u32; WAYS + 1],
}

const WAYS: usize = 4;
const SETS: usize = 512;
/// A row that is none.
const NOT_SEEN: u32 = u32::MAX;
/// Longer strings are not looked at: what is so long is no category.
pub const LONGEST: usize = 256;

/// A string, how often it was seen at least, and at most.
pub type Count = (Box<[u8]>, u64, u64);

impl Set {
    fn lost(&self) -> u64 {
        self.counts[WAYS]
    }
}

impl Default for Frequent {
    fn default() -> Self {
        // No string of a set has a hash that belongs to another one.
        let set = |index: usize| Set {
            hashes: [!index as u64; WAYS + 1],
            counts: [0; WAYS + 1],
            rows: [NOT_SEEN; WAYS + 1],
        };
        let held = |index: usize| [const { Vec::new() }; WAYS].map(|string| (!index as u64, string));
        Self { sets: (0..SETS).map(set).collect(), held: (0..SETS).map(held).collect() }
    }
}

impl Frequent {
    /// Count a string. There is no branch in it, as nobody could predict any.
    #[inline(always)]
    pub fn add(&mut self, hash: u64, row: u32) {
        let set = &mut self.sets[hash as usize % SETS];
        // Its own counter, else the first that is free.
        let mut way = WAYS;
        for other in (0..WAYS).rev() {
            way = if set.counts[other] == 0 { other } else { way };
        }
        for other in 0..WAYS {
            way = if set.hashes[other] == hash { other } else { way };
        }
        let lost = u64::from(way == WAYS);
        set.counts[..WAYS].iter_mut().for_each(|count| *count -= lost);
        set.counts[way] += 1;
        set.hashes[way] = hash;
        set.rows[way] = row;
    }

    /// Get hold of the strings that were counted since the last time.
    ///
    /// Where strings come and go, one is only held when it came twice.
    pub fn hold<'a>(&mut self, string: impl Fn(u32) -> &'a [u8]) {
        for (set, held) in self.sets.iter_mut().zip(&mut self.held) {
            let least = u64::from(set.lost() > 0);
            for (way, (hash, value)) in held.iter_mut().enumerate() {
                let row = std::mem::replace(&mut set.rows[way], NOT_SEEN);
                if row != NOT_SEEN && set.counts[way] > least && *hash != set.hashes[way] {
                    *hash = set.hashes[way];
                    value.clear();
                    value.extend_from_slice(string(row));
                }
            }
        }
    }

    /// The most frequent strings, the most frequent first.
    pub fn top(&self, most: usize) -> Vec<Count> {
        let mut found: Vec<Count> = Vec::new();
        for (set, held) in self.sets.iter().zip(&self.held) {
            for (way, (hash, value)) in held.iter().enumerate() {
                let count = set.counts[way];
                if count > 0 && set.hashes[way] == *hash {
                    found.push((value.as_slice().into(), count, count + set.lost()));
                }
            }
        }
        found.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
        found.truncate(most);
        found
    }
}

/// A uniform sample: one value of each run of so many, chosen at random.
///
/// A quantile of it is off by no more, on average, than one of as many values chosen independently
/// (W. Cochran, "Sampling Techniques", chapter 5: strata of one size).
#[derive(Debug)]
pub struct Sample<T> {
    pub values: Vec<T>,
    /// A run has two to the power of this values.
    level: u32,
    /// So many values to pass over.
    skip: u64,
    /// So many values of its run come behind the next one that is taken.
    behind: u64,
    random: u64,
}

/// A sample is thinned when it holds this many: then the error of a quantile's rank is 0.6 %.
const FULL: usize = 16 * 1024;

impl<T> Default for Sample<T> {
    fn default() -> Self {
        Self { values: Vec::new(), level: 0, skip: 0, behind: 0, random: 0 }
    }
}

impl<T: Copy> Sample<T> {
    /// Add values that stand together.
    pub fn extend(&mut self, values: &[T]) {
        let mut at = self.skip as usize;
        while let Some(value) = values.get(at) {
            self.take(*value);
            at += 1 + self.skip as usize;
        }
        self.skip = (at - values.len()) as u64;
    }

    fn take(&mut self, value: T) {
        self.values.push(value);
        if self.values.len() >= FULL {
            self.thin();
        }
        let last = (1 << self.level) - 1;
        let chosen = self.next_random() & last;
        self.skip = self.behind + chosen;
        self.behind = last - chosen;
    }

    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(1);
        hash_bits(self.random)
    }

    /// Make one run of every two.
    fn thin(&mut self) {
        for index in 0..FULL / 2 {
            let chosen = self.next_random() as usize & 1;
            self.values[index] = self.values[2 * index + chosen];
        }
        self.values.truncate(FULL / 2);
        self.level += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash_of(value: &[u8]) -> u64 {
        hash_string(value, 0, value.len())
    }

    /// Six standard errors, and as many values that fell together as few of them may.
    fn assert_near<H: Hash>(found: &Distinct<H>, count: usize, what: impl std::fmt::Debug) {
        let off = (found.estimate() - count as f64).abs();
        let most_off = (0.05 * count as f64).min(0.005 * count as f64 + 4.0).max(0.6);
        let most_off = if count > 1000 { 0.05 * count as f64 } else { most_off };
        assert!(off <= most_off, "{what:?}: {} for {count}", found.estimate());
    }

    #[test]
    fn counts_distinct_values() {
        for (count, most_off) in [(0u64, 0.0), (1, 0.01), (12, 0.01), (1000, 0.01), (1 << 20, 0.03)]
        {
            let mut all = Distinct::default();
            // Each comes twice.
            (0..count).chain(0..count).for_each(|value| all.extend(&[hash_bits(value)]));
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
