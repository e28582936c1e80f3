//! What a stream of values is like, in a few kilobytes: how many are distinct, which are frequent,
//! and a sample of them.

use std::marker::PhantomData;

use fearless_simd::prelude::*;
use fearless_simd::{u32x16, u64x4, u64x8};

use crate::hash::hash_bits;

/// A hash of 32 or 64 bits.
pub trait Hash: Copy + Default {
    /// So many of its bits are looked at.
    const BITS: u32;
    /// Those bits at the top of a word, and a one behind them, so that zeros end somewhere.
    fn ended(self) -> u64;
    /// A bit for each hash in which all bits of a mask of the top of a word are zeros.
    fn with_zeros<S: Simd>(simd: S, hashes: &[Self; GROUP], mask: u64) -> u32;
}

impl Hash for u64 {
    const BITS: u32 = 63;

    #[inline(always)]
    fn ended(self) -> u64 {
        self | 1
    }

    #[inline(always)]
    fn with_zeros<S: Simd>(simd: S, hashes: &[Self; GROUP], mask: u64) -> u32 {
        let mask = u64x8::splat(simd, mask);
        let (parts, _) = hashes.as_chunks::<8>();
        parts.iter().rev().fold(0, |bits, part| {
            let found = (u64x8::simd_from(simd, *part) & mask).simd_eq(0);
            bits << part.len() | found.to_bitmask() as u32
        })
    }
}

impl Hash for u32 {
    const BITS: u32 = 32;

    #[inline(always)]
    fn ended(self) -> u64 {
        u64::from(self) << 32 | 1 << 31
    }

    #[inline(always)]
    fn with_zeros<S: Simd>(simd: S, hashes: &[Self; GROUP], mask: u64) -> u32 {
        let mask = u32x16::splat(simd, (mask >> 32) as u32);
        let (parts, _) = hashes.as_chunks::<16>();
        parts.iter().rev().fold(0, |bits, part| {
            let found = (u32x16::simd_from(simd, *part) & mask).simd_eq(0);
            bits << part.len() | found.to_bitmask() as u32
        })
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
    /// So many values until few of them raise a register.
    early: usize,
    hash: PhantomData<H>,
}

const PRECISION: u32 = 14;
const REGISTERS: usize = 1 << PRECISION;
/// Hashes that are looked at together: a bit for each fits a word.
const GROUP: usize = u32::BITS as usize;
/// So many groups are searched before what was found in them is taken.
const GROUPS: usize = 16;
/// With so many bits a mask lets one hash of four through.
const WORTH_CHOOSING: u32 = 2;
/// When so many distinct values came, one of ten still raises a register.
const EARLY: usize = 16 * REGISTERS;

impl<H> Default for Distinct<H> {
    fn default() -> Self {
        let registers = Box::new([0; REGISTERS]);
        Self { registers, mask: 0, left: REGISTERS, early: EARLY, hash: PhantomData }
    }
}

impl<H: Hash> Distinct<H> {
    /// The largest rank: zeros in the bits that choose no register, and one.
    const MAX_RANK: usize = (H::BITS - PRECISION) as usize + 1;

    /// Add values by their hashes.
    #[inline(always)]
    pub fn extend<S: Simd, T: Copy>(&mut self, simd: S, values: &[T], hash: impl Fn(T) -> H) {
        let (groups, rest) = values.as_chunks();
        let mut looked_at = rest.len();
        // A mask of few bits lets so many through that choosing them costs more than it saves.
        if self.mask.count_ones() < WORTH_CHOOSING {
            looked_at = values.len();
            let is_early = self.early > 0;
            self.early = self.early.saturating_sub(values.len());
            for group in groups {
                group.map(&hash).into_iter().for_each(|hash| self.raise(hash, is_early));
            }
        } else {
            for groups in groups.chunks(GROUPS) {
                looked_at += self.raise_chosen(simd, groups, &hash);
            }
        }
        rest.iter().for_each(|value| self.raise(hash(*value), false));
        self.left = self.left.saturating_sub(looked_at);
        if self.left == 0 {
            self.look();
        }
    }

    /// Add those of some groups that the mask lets through; return how many these are.
    #[inline(always)]
    fn raise_chosen<S: Simd, T: Copy>(
        &mut self,
        simd: S,
        groups: &[[T; GROUP]],
        hash: impl Fn(T) -> H,
    ) -> usize {
        // Groups with any are noted without a branch, which could not be predicted.
        let (mut found, mut count) = ([(0, 0u32); GROUPS], 0);
        for (index, group) in groups.iter().enumerate() {
            let chosen = H::with_zeros(simd, &group.map(&hash), self.mask);
            found[count % GROUPS] = (index, chosen);
            count += usize::from(chosen != 0);
        }
        let mut raised = 0;
        for (index, chosen) in &found[..count] {
            raised += chosen.count_ones() as usize;
            let mut chosen = *chosen;
            while chosen != 0 {
                let at = chosen.trailing_zeros() as usize;
                self.raise(hash(groups[*index][at % GROUP]), false);
                chosen &= chosen - 1;
            }
        }
        raised
    }

    #[inline(always)]
    fn raise(&mut self, hash: H, is_early: bool) {
        let hash = hash.ended();
        let held = &mut self.registers[(hash >> (64 - PRECISION)) as usize];
        let rank = (hash << PRECISION).leading_zeros() as u8 + 1;
        // At first nobody could predict this. Later it is hardly ever true, and so no value waits
        // for an equal one before it.
        if is_early || rank > *held {
            *held = rank.max(*held);
        }
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

/// Of the estimator: what registers that no value met add to it.
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

/// The same of registers that hold the largest rank.
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
/// A string belongs to the set that its hash chooses. One that finds its set full takes one off
/// each counter there. So a count is never too high, and too low by what its set lost at most; a
/// string that comes more often than its set lost, and once more, is there in the end.
///
/// Counting needs no more of a string than its hash and its row, until `hold` is given the strings.
#[derive(Debug)]
pub struct Frequent {
    sets: Box<[Set; SETS]>,
    /// The strings, each with its hash: one whose counter was given away is of no meaning.
    held: Vec<[(u64, Vec<u8>); WAYS]>,
}

/// Its counters; vectors of them lie in one line of the cache.
#[derive(Debug)]
#[repr(align(32))]
struct Set {
    hashes: [u64; WAYS],
    counts: [u64; WAYS],
    /// The row in which each string was seen since the last `hold`; the last one is that of a
    /// string that found no counter.
    rows: [u32; WAYS + 1],
    /// What was taken off each counter.
    lost: u64,
}

const WAYS: usize = 4;
const SETS: usize = 512;
/// A row that is none.
const NOT_SEEN: u32 = u32::MAX;
/// Longer strings are not looked at: what is so long is no category.
pub const LONGEST: usize = 256;

/// Where a new string puts its hash, as a mask, and what it adds to the counts: for each way that may
/// be the first that is free, and if none is.
///
/// So all ways are stored as one vector, as they are loaded: else the next string of the set would
/// wait until this one has reached the cache.
const CHANGES: [([u64; WAYS], [u64; WAYS]); WAYS + 1] = {
    let mut changes = [([0; WAYS], [0; WAYS]); WAYS + 1];
    let mut way = 0;
    while way < WAYS {
        (changes[way].0[way], changes[way].1[way]) = (u64::MAX, 1);
        way += 1;
    }
    changes[WAYS].1 = [u64::MAX; WAYS];
    changes
};

/// A string, how often it was seen at least, and at most.
pub type Count = (Box<[u8]>, u64, u64);

impl Default for Frequent {
    fn default() -> Self {
        // No string of a set has a hash that belongs to another one.
        let set = |index: usize| Set {
            hashes: [!index as u64; WAYS],
            counts: [0; WAYS],
            rows: [NOT_SEEN; WAYS + 1],
            lost: 0,
        };
        let held =
            |index: usize| [const { Vec::new() }; WAYS].map(|string| (!index as u64, string));
        Self { sets: Box::new(std::array::from_fn(set)), held: (0..SETS).map(held).collect() }
    }
}

impl Frequent {
    /// Count strings, each by its hash and its row.
    #[inline(always)]
    pub fn extend<S: Simd>(&mut self, simd: S, strings: impl Iterator<Item = (u64, u32)>) {
        let sets = &mut *self.sets;
        for (hash, row) in strings {
            let set = &mut sets[hash as usize % SETS];
            let hashes = u64x4::simd_from(simd, set.hashes);
            // Most columns hold either few strings or ever new ones, so this can be predicted.
            let own = hashes.simd_eq(hash).to_bitmask().trailing_zeros() as usize;
            if own < WAYS {
                set.counts[own] += 1;
                set.rows[own] = row;
                continue;
            }
            // Nobody could predict whether there is a free counter, and which.
            let counts = u64x4::simd_from(simd, set.counts);
            let free = counts.simd_eq(0).to_bitmask() | 1 << WAYS;
            let way = free.trailing_zeros() as usize;
            let (taken, added) = CHANGES[way];
            let taken = u64x4::simd_from(simd, taken);
            (hashes ^ ((hashes ^ hash) & taken)).store_slice(&mut set.hashes);
            (counts + u64x4::simd_from(simd, added)).store_slice(&mut set.counts);
            set.rows[way] = row;
            set.lost += u64::from(way == WAYS);
        }
    }

    /// Get hold of the strings that were counted since the last time.
    ///
    /// Where strings come and go, one is only held when it came twice.
    pub fn hold<'a>(&mut self, string: impl Fn(u32) -> &'a [u8]) {
        for (set, held) in self.sets.iter_mut().zip(&mut self.held) {
            let least = u64::from(set.lost > 0);
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
                    found.push((value.as_slice().into(), count, count + set.lost));
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
    pub fn extend(&mut self, mut values: &[T]) {
        if self.level == 0 {
            // All are taken, up to the one that makes the sample full; each takes its random number,
            // so that the sample does not hang on how values are cut.
            let room = FULL - 1 - self.values.len();
            let (taken, rest) = values.split_at(room.min(values.len()));
            self.values.extend_from_slice(taken);
            self.random = self.random.wrapping_add(taken.len() as u64);
            values = rest;
        }
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
    use std::collections::{HashMap, HashSet};
    use std::fmt::Debug;

    use fearless_simd::{Level, dispatch};

    use super::*;
    use crate::hash::{hash_string, hash_word};

    fn extend<H: Hash>(found: &mut Distinct<H>, hashes: &[H]) {
        dispatch!(Level::new(), simd => found.extend(simd, hashes, |hash| hash));
    }

    fn hash_of(value: &[u8]) -> u64 {
        hash_string(value, 0, value.len())
    }

    /// Hold an estimate to five standard errors; of few values, to two that share a register.
    fn assert_near<H: Hash>(found: &Distinct<H>, count: usize, what: impl Debug) {
        let off = (found.estimate() - count as f64).abs();
        assert!(
            off <= (0.04 * count as f64).max(2.5),
            "{what:?}: {} for {count}",
            found.estimate()
        );
    }

    fn assert_counts<H: Hash>(hashes: impl IntoIterator<Item = H>, what: impl Debug) {
        let hashes: Vec<H> = hashes.into_iter().collect();
        let mut found = Distinct::default();
        // Each comes twice.
        extend(&mut found, &hashes);
        extend(&mut found, &hashes);
        assert_near(&found, hashes.len(), what);
    }

    #[test]
    fn counts_distinct_numbers() {
        for count in [0u64, 1, 2, 31, 33, 1000, 20_000, 200_000, 1 << 20] {
            assert_counts((0..count).map(hash_bits), ("ints", count));
            assert_counts((0..count).map(|value| hash_bits(value << 32)), ("high bits", count));
            assert_counts((0..count as u32).map(hash_word), ("words", count));
            assert_counts((0..count as u32).map(|value| hash_word(value << 9)), ("shifted", count));
        }
    }

    #[test]
    fn counts_distinct_floats_whatever_their_pattern() {
        let count = |values: &mut dyn Iterator<Item = f32>, what: &str| {
            let bits: HashSet<u32> = values.map(f32::to_bits).collect();
            assert!(bits.len() >= 256, "{what}");
            assert_counts(bits.into_iter().map(hash_word), what);
        };
        let ints = |most: i32| (-most..most).map(|value| value as f32);
        count(&mut ints(1 << 17), "ints");
        count(&mut ints(300), "few ints");
        count(&mut ints(1 << 17).map(|value| value * 0.1), "tenths");
        count(&mut ints(1 << 17).map(|value| value / 1024.0), "dyadic fractions");
        count(&mut ints(1 << 17).map(|value| 1e6 + value * 0.25), "a progression far from zero");
        count(&mut ints(1 << 14).map(|value| value * value), "squares");
        count(&mut (1..1 << 17).map(f32::from_bits), "subnormals");
        count(&mut (0..1 << 17).map(|value| f32::from_bits(value << 14)), "coarse");
        count(&mut (0..256).map(|power| f32::from_bits(power << 23)), "powers of two");
    }

    #[test]
    fn counts_distinct_strings_whatever_their_pattern() {
        let count = |string: &dyn Fn(u32) -> Vec<u8>, what: &str| {
            for count in [1000, 100_000] {
                assert_counts((0..count).map(|index| hash_of(&string(index))), (what, count));
            }
        };
        count(&|index| index.to_string().into(), "digits");
        count(&|index| format!("{index:08x}").into(), "eight hexadecimal digits");
        count(&|index| format!("user-{index:011}").into(), "16 bytes");
        count(&|index| format!("user-{index:012}").into(), "17 bytes");
        count(&|index| format!("{index:06}-at-the-end-of-it").into(), "a suffix in common");
        count(&|index| index.to_le_bytes().into(), "numbers");
        count(&|index| u64::from(index).to_be_bytes().into(), "long numbers");
        count(
            &|index| vec![0; index as usize % 40].into_iter().chain(index.to_le_bytes()).collect(),
            "zeros",
        );
    }

    /// The registers by their definition.
    fn registers_of(hashes: &[u32]) -> Vec<u8> {
        let mut registers = vec![0; REGISTERS];
        for hash in hashes {
            let rank = 1 + (hash << PRECISION | 1 << (PRECISION - 1)).leading_zeros() as u8;
            let held: &mut u8 = &mut registers[(hash >> (32 - PRECISION)) as usize];
            *held = rank.max(*held);
        }
        registers
    }

    #[test]
    fn no_value_is_overlooked() {
        let mut hashes: Vec<u32> = (0..3_000_000).map(hash_word).collect();
        // At the end of groups, and behind the last of them.
        hashes.extend((0..64).map(|index| (index << 18) | u32::from(index % 2 == 0)));
        hashes.extend([77 << 18, 78 << 18]);
        let expected = registers_of(&hashes);
        for piece in [1, 31, 32, 33, 512, 100_000, hashes.len()] {
            let mut found = Distinct::default();
            hashes.chunks(piece).for_each(|piece| extend(&mut found, piece));
            assert!(found.mask != 0);
            assert_eq!(found.registers[..], expected, "{piece}");
        }
    }

    #[test]
    fn estimates_reach_all_floats_there_are() {
        // The registers that a share of all 32-bit hashes leaves on average.
        for share in [0.001f64, 0.1, 0.5, 0.9] {
            let mut found = Distinct::<u32>::default();
            for (index, rank) in found.registers.iter_mut().enumerate() {
                let chance = (index as f64 + 0.5) / REGISTERS as f64;
                let reaches = |most: i32| (1.0 - share).powf(f64::from(18 - most).exp2()) >= chance;
                *rank = (0..19).find(|most| reaches(*most)).unwrap_or(19) as u8;
            }
            let all = share * 32f64.exp2();
            assert!((found.estimate() / all - 1.0).abs() < 0.01, "{share}: {}", found.estimate());
        }
        let mut found = Distinct::<u32>::default();
        found.registers.fill(19);
        assert_eq!(found.estimate(), 32f64.exp2());
    }

    fn count(sketch: &mut Frequent, hash: u64, row: u32) {
        dispatch!(Level::new(), simd => sketch.extend(simd, [(hash, row)].into_iter()));
    }

    /// Count strings in batches of so many; also how often each came.
    fn counted(strings: &[String], batch: usize) -> (Frequent, HashMap<&[u8], u64>) {
        let mut sketch = Frequent::default();
        let mut exact = HashMap::new();
        for strings in strings.chunks(batch) {
            for (row, string) in strings.iter().enumerate() {
                *exact.entry(string.as_bytes()).or_default() += 1;
                count(&mut sketch, hash_of(string.as_bytes()), row as u32);
            }
            sketch.hold(|row| strings[row as usize].as_bytes());
        }
        (sketch, exact)
    }

    #[test]
    fn counts_of_frequent_strings_hold() {
        // Every fourth string is one of ten, the others come once.
        let often_of_many = |step: u64| match step % 4 {
            0 => (step / 4 % 10).to_string(),
            _ => format!("x{step}"),
        };
        // A few come very often, and thousands now and then.
        let ever_less_often = |step: u64| {
            let share = hash_bits(step) as f64 / 2f64.powi(64);
            ((20_000.0 * share.powi(6)) as u64).to_string()
        };
        let samples: [Vec<_>; 2] = [
            (0..200_000).map(often_of_many).collect(),
            (0..300_000).map(ever_less_often).collect(),
        ];
        for (strings, batch) in samples.iter().flat_map(|one| [100, 200_000].map(|n| (one, n))) {
            let (sketch, exact) = counted(strings, batch);
            let top = sketch.top(usize::MAX).into_iter();
            let found: HashMap<_, _> =
                top.map(|(value, least, most)| (value, (least, most))).collect();
            for (value, count) in exact {
                // One that came more often than its set lost, and once more, is there.
                let lost = sketch.sets[hash_of(value) as usize % SETS].lost;
                match found.get(value) {
                    Some((least, most)) => {
                        assert!(*least <= count && count <= *most && most - least == lost);
                    }
                    None => assert!(count <= lost + 1, "{count} of {lost}"),
                }
            }
        }
    }

    #[test]
    fn few_strings_are_counted_exactly() {
        let strings: Vec<_> = (0..3000).map(|step| (step % 100).to_string()).collect();
        for batch in [1, 7, 3000] {
            let top = counted(&strings, batch).0.top(1000);
            assert_eq!(top.len(), 100);
            assert!(top.iter().all(|(_, least, most)| (*least, *most) == (30, 30)));
        }
    }

    #[test]
    fn strings_whose_hash_is_that_of_nothing_are_counted() {
        let mut sketch = Frequent::default();
        for (row, hash) in [0, u64::MAX, !1, 1, 0, 0, u64::MAX].into_iter().enumerate() {
            count(&mut sketch, hash, row as u32);
        }
        let names: Vec<_> = (0..7).map(|row: u8| [row]).collect();
        sketch.hold(|row| &names[row as usize]);
        let counts: Vec<_> =
            sketch.top(9).into_iter().map(|(_, least, most)| (least, most)).collect();
        assert_eq!(counts, [(3, 3), (2, 2), (1, 1), (1, 1)]);
    }

    #[test]
    fn samples_are_uniform() {
        let values: Vec<u64> = (0..1_000_000).collect();
        let mut sample = Sample::default();
        let (first, second) = values.split_at(300_000);
        first.iter().for_each(|value| sample.extend(&[*value]));
        second.chunks(1000).for_each(|chunk| sample.extend(chunk));
        let held = &sample.values;
        assert!((FULL / 2..FULL).contains(&held.len()), "{}", held.len());
        for part in 1..10 {
            let share = held.iter().filter(|value| **value < part * 100_000).count() as f64;
            let off = share / held.len() as f64 - part as f64 / 10.0;
            assert!(off.abs() < 0.01, "{part}: {off}");
        }
        // It is no comb: what recurs after any power of two is there as often as it comes.
        for period in [2, 16, 64, 128] {
            let share = held.iter().filter(|value| **value % period == 1).count() as f64;
            let expected = held.len() as f64 / period as f64;
            assert!((share - expected).abs() < 5.0 * expected.sqrt(), "{period}: {share}");
        }
    }

    #[test]
    fn samples_hold_everything_until_they_are_thinned() {
        let values: Vec<u64> = (0..FULL as u64).collect();
        let mut sample = Sample::default();
        values[..FULL - 1].chunks(100).for_each(|chunk| sample.extend(chunk));
        assert_eq!(sample.values, values[..FULL - 1]);
        sample.extend(&values[FULL - 1..]);
        assert_eq!(sample.values.len(), FULL / 2);
        assert!(sample.values.iter().enumerate().all(|(index, value)| *value / 2 == index as u64));
    }
}
