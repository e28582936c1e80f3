//! Runs of packed ints, varints one behind the other: to ints and from ints.

use fearless_simd::prelude::*;
use fearless_simd::{Level, dispatch, u8x64};
#[cfg(target_arch = "x86_64")]
use {
    crate::fetch::{AHEAD, fetch},
    fearless_simd::{i64x8, kernel, u64x8},
    std::arch::x86_64::*,
};

use crate::canonical::{Span, for_each_varint};
use crate::pen::Pen;
use crate::wire::{CONTINUES, last_two, spread, squeeze};

/// Append the ints of a run; false if it is damaged.
#[inline(always)]
pub fn unpack(run: Span, source: &[u8], values: &mut Vec<i64>) -> bool {
    values.reserve(run.end - run.at);
    let mut rest = run;
    if run.end - run.at >= WORTH_A_CALL {
        let level = Level::new();
        #[cfg(target_arch = "x86_64")]
        if let Level::Avx512(avx512) = level {
            rest.at = take_16_at_once(avx512, run, source, values);
        }
        if rest.end - rest.at >= WORTH_A_CALL {
            rest.at = dispatch!(level, simd => take_64_bytes_at_once(simd, rest, source, values));
        }
    }
    for_each_varint(source, rest, |int| {
        values.push(int as i64);
        true
    })
}

/// How many ints a run holds; none if it is damaged.
#[inline(always)]
pub fn count(run: Span, source: &[u8]) -> Option<usize> {
    let (mut rest, mut count) = (run, 0);
    if run.end - run.at >= WORTH_A_CALL {
        (rest.at, count) =
            dispatch!(Level::new(), simd => count_64_bytes_at_once(simd, run, source));
    }
    let counted = |_| {
        count += 1;
        true
    };
    for_each_varint(source, rest, counted).then_some(count)
}

/// Where the first int begins that is damaged, or whose 64 bytes are not there; and how many there
/// are before it.
#[inline(always)]
fn count_64_bytes_at_once<S: Simd>(simd: S, run: Span, source: &[u8]) -> (usize, usize) {
    let (mut at, mut count) = (run.at, 0);
    while at < run.end
        && let Some(window) = source[at..].first_chunk::<64>()
        && let Some((_, stops)) = varints(u8x64::from_slice(simd, window), run.end - at)
    {
        count += stops.count_ones() as usize;
        at += bytes_to_last(stops);
    }
    (at, count)
}

/// Of the bytes that belong to a run of this length, a bit for each that continues a varint, and
/// for each that is the last of one. `None` if none is, or a varint has more bytes than any may.
#[inline(always)]
fn varints<S: Simd>(bytes: u8x64<S>, length: usize) -> Option<(u64, u64)> {
    let is_of_run = u64::MAX >> (64 - length.min(64));
    let continues = bytes.simd_ge(0x80).to_bitmask() & is_of_run;
    let stops = !continues & is_of_run;
    (stops != 0 && behind_each_other(continues, MAX_VARINT) == 0).then_some((continues, stops))
}

/// The bits at which so many bits begin that are all set.
#[inline(always)]
fn behind_each_other(bits: u64, count: usize) -> u64 {
    let (mut found, mut there) = (bits, 1);
    while there < count {
        let more = there.min(count - there);
        found &= found >> more;
        there += more;
    }
    found
}

/// How many bytes the varints take that end there.
#[inline(always)]
fn bytes_to_last(stops: u64) -> usize {
    64 - stops.leading_zeros() as usize
}

/// Shorter runs are done before others have begun.
const WORTH_A_CALL: usize = 16;

#[cfg(target_arch = "x86_64")]
kernel!(
    /// Append ints up to the first that is not short, or whose 64 bytes are not there: where that
    /// one begins. The bytes of 16 varints are spread over the lanes of a register and made ints
    /// there.
    fn take_16_at_once(avx512: Avx512, run: Span, source: &[u8], values: &mut Vec<i64>) -> usize {
        let mut at = run.at;
        while at < run.end
            && let Some(window) = source[at..].first_chunk::<64>()
            && let bytes = u8x64::from_slice(avx512, window)
            && let Some((continues, stops)) = varints(bytes, run.end - at)
            && behind_each_other(continues, 4) == 0
        {
            let bytes: __m512i = bytes.into();
            let places: [u8; 64] = std::array::from_fn(|place| place as u8);
            let places: __m512i = u8x64::from_slice(avx512, &places).into();
            let mut starts = _mm512_maskz_compress_epi8(stops << 1 | 1, places);
            let (held, count) = (values.len(), stops.count_ones() as usize);
            for _ in 0..count.div_ceil(16) {
                // Of each varint the four bytes from its start on.
                let start = _mm512_cvtepu8_epi32(_mm512_castsi512_si128(starts));
                // A product with bytes of one: its start in each.
                let start = _mm512_mullo_epi32(start, _mm512_set1_epi32(0x0101_0101));
                let four = _mm512_add_epi8(start, _mm512_set1_epi32(0x0302_0100));
                let words = _mm512_permutexvar_epi8(four, bytes);
                // All up to the first byte that does not continue, seven bits of each.
                let stop = _mm512_andnot_si512(words, _mm512_set1_epi8(-0x80));
                let below = _mm512_xor_si512(stop, _mm512_sub_epi32(stop, _mm512_set1_epi32(1)));
                let sevens =
                    _mm512_and_si512(_mm512_and_si512(words, below), _mm512_set1_epi8(0x7f));
                // Of each pair the first and 2^7 times the second, then of those 2^14 times it.
                let pairs = _mm512_maddubs_epi16(_mm512_set1_epi16(0x80_01u16 as i16), sevens);
                let ints = _mm512_madd_epi16(pairs, _mm512_set1_epi32(1 << 30 | 1));
                let mut wide = [0; 16];
                let halves = [_mm512_castsi512_si256(ints), _mm512_extracti64x4_epi64::<1>(ints)];
                for (half, wide) in halves.into_iter().zip(wide.as_chunks_mut::<8>().0) {
                    let half: i64x8<_> = _mm512_cvtepu32_epi64(half).simd_into(avx512);
                    half.store_slice(wide);
                }
                values.extend_from_slice(&wide);
                starts = _mm512_alignr_epi64::<2>(_mm512_setzero_si512(), starts);
            }
            values.truncate(held + count);
            at += bytes_to_last(stops);
        }
        at
    }
);

/// Append ints of any length up to the first that is damaged, or behind which too few bytes follow:
/// where that one begins. The stops of 64 bytes are found at once, so that no int waits for the one
/// before.
#[inline(always)]
fn take_64_bytes_at_once<S: Simd>(
    simd: S,
    run: Span,
    source: &[u8],
    values: &mut Vec<i64>,
) -> usize {
    let mut at = run.at;
    // Of each int that begins in the 64 bytes, sixteen are looked at.
    while at < run.end
        && let Some(window) = source[at..].first_chunk::<{ 64 + 16 }>()
    {
        let bytes = u8x64::from_slice(simd, &window[..64]);
        let Some((continues, stops)) = varints(bytes, run.end - at) else { break };
        let held = values.len();
        let count = stops.count_ones() as usize;
        if continues == 0 {
            values.extend(window[..count].iter().map(|byte| i64::from(*byte)));
            at += count;
            continue;
        }
        values.resize(held + count, 0);
        let values = &mut values[held..];
        let (mut begin, mut left) = (0, stops);
        // Where the next int begins, and how many bytes it has.
        let mut next = || {
            let from = begin;
            begin = left.trailing_zeros() as usize + 1;
            left &= left - 1;
            (from & 63, begin - from)
        };
        let word = |at| u64::from_le_bytes(std::array::from_fn(|byte| window[at + byte]));
        if behind_each_other(continues, 8) == 0 {
            for value in values.iter_mut() {
                let (from, length) = next();
                *value = (word(from) & u64::MAX >> (64 - 8 * length)) as i64;
            }
            // In steps that a processor does for several ints at once.
            for value in values {
                *value = squeeze(*value as u64) as i64;
            }
        } else {
            for value in values {
                let (from, length) = next();
                let low = word(from) & u64::MAX >> (64 - 8 * length.min(8));
                let high = word(from + 8) & ((1 << (8 * length.saturating_sub(8))) - 1);
                *value = (squeeze(low) | squeeze(high) << 56) as i64;
            }
        }
        at += bytes_to_last(stops);
    }
    at
}

/// Ints packed one behind the other, and where each begins.
#[derive(Debug, Default)]
pub struct Packed {
    /// Those behind the last int are of no meaning: they need not be zeroed for each run.
    bytes: Vec<u8>,
    /// One more than there are ints: where the last one ends.
    starts: Vec<u64>,
}

impl Packed {
    /// Pack some ints instead of those that are held.
    pub fn pack(&mut self, ints: &[i64]) {
        let end = ints.len() * MAX_VARINT;
        if self.bytes.len() < end {
            self.bytes.resize(2 * end, 0);
        }
        self.starts.resize(ints.len() + 1, 0);
        let mut pen = Pen { out: &mut self.bytes, pos: 0, end };
        match Level::new() {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512(avx512) => put_16_at_once(avx512, ints, &mut pen, &mut self.starts),
            _ => put(ints, &mut pen, &mut self.starts),
        }
        self.starts[ints.len()] = pen.pos as u64;
    }

    /// Where in `bytes` the ints from one to before another stand.
    #[inline(always)]
    pub fn range(&self, (from, to): (usize, usize)) -> (usize, usize) {
        (self.starts[from] as usize, self.starts[to] as usize)
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

const MAX_VARINT: usize = 10;

/// Ints below this take four bytes at most.
const SHORT_INT: u64 = 1 << 28;

/// Ints below this take eight.
const MIDDLE_INT: u64 = 1 << 56;

/// Write ints one behind the other, and where each begins into `starts`; eight bytes behind the
/// last one can be written to.
#[inline(always)]
fn put(ints: &[i64], pen: &mut Pen<'_>, starts: &mut [u64]) {
    for (ints, starts) in ints.chunks(GROUP).zip(starts.chunks_mut(GROUP)) {
        if ints.iter().fold(0, |bits, int| bits | *int as u64) < SHORT_INT {
            put_short(ints, pen, starts);
        } else {
            put_long(ints, pen, starts);
        }
    }
}

/// So many ints are turned at once.
const GROUP: usize = 64;

/// Write up to `GROUP` short ints; four bytes behind the last one can be written to.
///
/// The loops that do several ints at once stand apart from the one that cannot.
#[inline(always)]
fn put_short(ints: &[i64], pen: &mut Pen<'_>, starts: &mut [u64]) {
    let (mut words, mut lengths) = ([0; GROUP], [0; GROUP]);
    let (words, lengths) = (&mut words[..ints.len()], &mut lengths[..ints.len()]);
    for (word, int) in words.iter_mut().zip(ints) {
        *word = *int as i32;
    }
    for (word, length) in words.iter_mut().zip(lengths.iter_mut()) {
        (*word, *length) = short_varint(*word);
    }
    for ((word, length), start) in words.iter().zip(lengths).zip(starts) {
        *start = pen.pos as u64;
        pen.out[pen.pos..][..4].copy_from_slice(&word.to_le_bytes());
        pen.pos += *length as usize;
    }
}

/// The same of ints of any length.
#[inline(always)]
fn put_long(ints: &[i64], pen: &mut Pen<'_>, starts: &mut [u64]) {
    let mut words = [0; GROUP];
    let words = &mut words[..ints.len()];
    for (word, int) in words.iter_mut().zip(ints) {
        *word = first_eight(*int as u64);
    }
    for ((word, int), start) in words.iter().zip(ints).zip(starts) {
        *start = pen.pos as u64;
        let out = &mut pen.out[pen.pos..];
        if (*int as u64) < MIDDLE_INT {
            out[..8].copy_from_slice(&word.to_le_bytes());
            pen.pos += 8 - (word | 1).leading_zeros() as usize / 8;
        } else {
            let rest = last_two(*int as u64);
            out[..8].copy_from_slice(&(word | CONTINUES).to_le_bytes());
            out[8..MAX_VARINT].copy_from_slice(&rest);
            pen.pos += 9 + usize::from(rest[1]);
        }
    }
}

/// The varint of an int below `MIDDLE_INT`; of others, its first bytes, some without the bit that
/// says that it continues. In steps that a processor does for several ints at once.
#[inline(always)]
pub fn first_eight(int: u64) -> u64 {
    let sevens = spread(int);
    // All bytes behind which another one is not zero continue.
    let behind = sevens >> 8;
    let behind = behind | behind >> 8;
    let behind = behind | behind >> 16;
    let behind = behind | behind >> 32;
    sevens | (behind + 0x7f7f_7f7f_7f7f_7f7f) & CONTINUES
}

/// The varint of a short int and how many bytes it takes, in steps that a processor does for
/// several ints at once.
#[inline(always)]
fn short_varint(int: i32) -> (i32, i32) {
    let sevens =
        int & 0x7f | (int & 0x3f80) << 1 | (int & 0x1f_c000) << 2 | (int & 0xfe0_0000) << 3;
    // All bytes but the last continue.
    let [two, three, four] = [0x7f, 0x3fff, 0x1f_ffff].map(|most| i32::from(int > most));
    (sevens | two << 7 | three << 15 | four << 23, 1 + two + three + four)
}

#[cfg(target_arch = "x86_64")]
kernel!(
    /// The same as `put`: 16 varints are made in a register, and one instruction moves their bytes
    /// together.
    fn put_16_at_once(avx512: Avx512, ints: &[i64], pen: &mut Pen<'_>, starts: &mut [u64]) {
        let (groups, rest) = ints.as_chunks::<16>();
        let places = starts.as_chunks_mut::<16>().0;
        for (index, (group, starts)) in groups.iter().zip(places).enumerate() {
            let ahead = 16 * index + AHEAD / size_of::<i64>();
            fetch(ints, ahead..ahead + 16);
            let [low, high] = [&group[..8], &group[8..]]
                .map(|half| -> __m512i { i64x8::from_slice(avx512, half).into() });
            let most = _mm512_set1_epi64(SHORT_INT as i64 - 1);
            if _mm512_cmpgt_epu64_mask(_mm512_or_si512(low, high), most) != 0 {
                put(group, pen, starts);
                continue;
            }
            let even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
            let words = _mm512_permutex2var_epi32(low, even, high);
            // Eight bits from each seventh one on, and of them the lower seven.
            let bits = _mm512_set1_epi64(i64::from_le_bytes([0, 7, 14, 21, 32, 39, 46, 53]));
            let sevens =
                _mm512_and_si512(_mm512_multishift_epi64_epi8(bits, words), _mm512_set1_epi8(0x7f));
            let one = _mm512_set1_epi32(1);
            let (mut varints, mut lengths) = (sevens, one);
            for (most, continues) in [(0x7f, 0x80), (0x3fff, 0x8000), (0x1f_ffff, 0x80_0000)] {
                let is_longer = _mm512_cmpgt_epi32_mask(words, _mm512_set1_epi32(most));
                let continues = _mm512_set1_epi32(continues);
                varints = _mm512_mask_or_epi32(varints, is_longer, varints, continues);
                lengths = _mm512_mask_add_epi32(lengths, is_longer, lengths, one);
            }
            // Of a varint only the first byte can be zero.
            let is_used = _mm512_test_epi8_mask(varints, varints) | 0x1111_1111_1111_1111;
            let packed: u8x64<_> = _mm512_maskz_compress_epi8(is_used, varints).simd_into(avx512);
            packed.store_slice(&mut pen.out[pen.pos..][..64]);
            // Each begins where all before it end.
            let zero = _mm512_setzero_si512();
            let mut ends = lengths;
            ends = _mm512_add_epi32(ends, _mm512_alignr_epi32::<15>(ends, zero));
            ends = _mm512_add_epi32(ends, _mm512_alignr_epi32::<14>(ends, zero));
            ends = _mm512_add_epi32(ends, _mm512_alignr_epi32::<12>(ends, zero));
            ends = _mm512_add_epi32(ends, _mm512_alignr_epi32::<8>(ends, zero));
            let begins = _mm512_sub_epi32(ends, lengths);
            let pos = _mm512_set1_epi64(pen.pos as i64);
            let halves = [_mm512_castsi512_si256(begins), _mm512_extracti64x4_epi64::<1>(begins)];
            for (half, starts) in halves.into_iter().zip(starts.as_chunks_mut::<8>().0) {
                let begins = _mm512_add_epi64(_mm512_cvtepu32_epi64(half), pos);
                let begins: u64x8<_> = begins.simd_into(avx512);
                begins.store_slice(starts);
            }
            pen.pos += is_used.count_ones() as usize;
        }
        let done = ints.len() - rest.len();
        put(rest, pen, &mut starts[done..]);
    }
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pen::tests::varint;
    use crate::wire::Reader;

    type Put = Box<dyn Fn(&[i64], &mut Pen<'_>, &mut [u64])>;

    /// All ways to pack that this machine has.
    fn ways() -> Vec<Put> {
        let mut ways: Vec<Put> = vec![Box::new(put)];
        #[cfg(target_arch = "x86_64")]
        if let Some(avx512) = Level::new().as_avx512() {
            ways.push(Box::new(move |ints, pen, starts| put_16_at_once(avx512, ints, pen, starts)));
        }
        ways
    }

    #[test]
    fn packs_ints_of_all_lengths() {
        let edges =
            (0..64).flat_map(|bit| [-1i64, 0, 1].map(|step| (1i64 << bit).wrapping_add(step)));
        let ints: Vec<i64> = edges.chain(0..40).chain(-3..3).collect();
        let short: Vec<i64> =
            ints.iter().copied().filter(|int| (0..1 << 28).contains(int)).collect();
        for ints in [ints, short] {
            for from in 0..ints.len() {
                let ints = &ints[from..];
                let expected: Vec<Vec<u8>> = ints.iter().map(|int| varint(*int as u64)).collect();
                let starts = expected.iter().scan(0, |at, varint| {
                    *at += varint.len() as u64;
                    Some(*at - varint.len() as u64)
                });
                let starts: Vec<u64> = starts.collect();
                for put in ways() {
                    let mut bytes = vec![0xff; ints.len() * MAX_VARINT];
                    let end = bytes.len();
                    let mut pen = Pen { out: &mut bytes, pos: 0, end };
                    let mut found = vec![0; ints.len()];
                    put(ints, &mut pen, &mut found);
                    let end = pen.pos;
                    assert_eq!((&bytes[..end], found), (&*expected.concat(), starts.clone()));
                }
            }
        }
    }

    #[test]
    fn unpacks_what_a_run_holds() {
        // Ints of all lengths; many short ones, some of them zero; one long one among them; and many
        // as long as hashes are.
        let edges: Vec<i64> =
            (0..64).flat_map(|bit| [(1i64 << bit).wrapping_sub(1), 1i64 << bit]).collect();
        let short: Vec<i64> =
            (0..300).map(|index| (index * 7919 % 50) << (index % 5 * 5)).collect();
        let mixed = [&short[..90], &[-1], &short[90..]].concat();
        let long: Vec<i64> =
            (1..90i64).map(|index| index.wrapping_mul(0x9e37_79b9_7f4a_7c15u64 as i64)).collect();
        for ints in [edges, short, mixed, long] {
            for from in 0..ints.len() {
                let ints = &ints[from..];
                let run: Vec<u8> = ints.iter().flat_map(|int| varint(*int as u64)).collect();
                for behind in [0, 3, 70, 90] {
                    let source = [&[0xff; 5], &run[..], &vec![0x81; behind]].concat();
                    let run = Span { at: 5, end: 5 + run.len() };
                    let mut found = vec![17];
                    assert!(unpack(run, &source, &mut found));
                    assert_eq!((found[0], &found[1..]), (17, ints));
                    // Without its last byte the last varint is none, or another one.
                    let cut = Span { end: run.end - 1, ..run };
                    let whole = ints.last().is_some_and(|int| (0..0x80).contains(int));
                    assert_eq!(unpack(cut, &source, &mut Vec::new()), whole);
                    assert_eq!(count(run, &source), Some(ints.len()));
                    assert_eq!(count(cut, &source), whole.then(|| ints.len() - 1));
                }
            }
        }
    }

    #[test]
    fn takes_any_bytes_as_the_reader_does() {
        let mut state = 1u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize
        };
        for round in 0..2_000 {
            // Of so many bytes one is the last of a varint: some have more than any may.
            let share = 1 + round % 8;
            let length = random() % 200;
            let data: Vec<u8> = (0..length + random() % 100)
                .map(|_| (random() & 0x7f) as u8 | if random() % share == 0 { 0 } else { 0x80 })
                .collect();
            let mut reader = Reader::new(&data[..length]);
            let mut expected = Vec::new();
            while !reader.is_done()
                && let Ok(int) = reader.varint()
            {
                expected.push(int as i64);
            }
            let run = Span { at: 0, end: length };
            let mut found = Vec::new();
            assert_eq!(unpack(run, &data, &mut found), reader.is_done());
            assert_eq!(found, expected);
            assert_eq!(count(run, &data), reader.is_done().then_some(expected.len()));
        }
    }

    #[test]
    fn tells_where_ints_stand() {
        let mut packed = Packed::default();
        packed.pack(&[1, -1, 300]);
        assert_eq!(packed.range((0, 1)), (0, 1));
        packed.pack(&[300, 1, 70_000]);
        assert_eq!(
            [(0, 0), (0, 1), (1, 3)].map(|ints| packed.range(ints)),
            [(0, 0), (0, 2), (2, 6)]
        );
        assert_eq!(packed.bytes()[..6], [0xac, 2, 1, 0xf0, 0xa2, 4]);
    }
}
