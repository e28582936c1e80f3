//! CRC-32C as a frame holds it: of payloads and of their lengths.
//!
//! Source: TensorFlow's `core/lib/hash/crc32c.h`.

use std::ops::Range;

#[cfg(target_arch = "x86_64")]
use {
    fearless_simd::{Level, kernel},
    std::arch::x86_64::_mm_crc32_u64,
};

/// Data of fewer bytes is short.
const SHORT: usize = 320;

/// The lengths of payloads that gain by `masked_crcs`: with shorter ones a processor begins the next
/// by itself, and longer ones are folded, which takes as many bytes at a time.
pub const ALIKE: Range<usize> = SHORT..1024;

const MASK_DELTA: u32 = 0xa282_ead8;

/// CRC-32C of `data` as a frame holds it.
#[inline]
pub fn masked_crc(data: &[u8]) -> u32 {
    mask(crc(data))
}

#[inline]
fn mask(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(MASK_DELTA)
}

/// So many payloads are gone through at once.
const AT_ONCE: usize = 3;

/// CRC-32Cs of payloads as frames hold them. If none is much longer than another, a step of one
/// waits for the step before it, and those of the others are done meanwhile.
pub fn masked_crcs(payloads: [&[u8]; AT_ONCE]) -> [u32; AT_ONCE] {
    #[cfg(target_arch = "x86_64")]
    {
        let [a, b, c] = payloads.map(<[u8]>::len);
        let (shortest, longest) = (a.min(b).min(c), a.max(b).max(c));
        if longest <= 2 * shortest
            && let Some(sse) = Level::new().as_sse4_2()
        {
            return crcs_by_words(sse, payloads).map(mask);
        }
    }
    payloads.map(masked_crc)
}

/// CRC-32C. What folds long data takes longer to begin with than short data takes word by word.
#[inline]
fn crc(data: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if data.len() < SHORT
        && let (Some(sse), Some(last)) = (Level::new().as_sse4_2(), data.last_chunk())
    {
        return crc_by_words(sse, data, last);
    }
    crc_fast::crc32_iscsi(data)
}

#[cfg(target_arch = "x86_64")]
kernel!(
    fn crc_by_words(sse: Sse4_2, data: &[u8], last: &[u8; 8]) -> u32 {
        crc_from(sse, u64::from(u32::MAX), data, last)
    }
);

#[cfg(target_arch = "x86_64")]
kernel!(
    fn crcs_by_words(sse: Sse4_2, payloads: [&[u8]; AT_ONCE]) -> [u32; AT_ONCE] {
        let words = payloads.map(|data| data.as_chunks().0);
        let mut crcs = [u64::from(u32::MAX); AT_ONCE];
        let mut common = 0;
        for ((a, b), c) in words[0].iter().zip(words[1]).zip(words[2]) {
            for (crc, word) in crcs.iter_mut().zip([a, b, c]) {
                *crc = _mm_crc32_u64(*crc, u64::from_le_bytes(*word));
            }
            common += size_of_val(a);
        }
        std::array::from_fn(|which| match payloads[which].last_chunk() {
            Some(last) => crc_from(sse, crcs[which], &payloads[which][common..], last),
            None => crc(payloads[which]),
        })
    }
);

#[cfg(target_arch = "x86_64")]
kernel!(
    /// The CRC of data, `crc` being that of what stands before `rest`; `last` are the last bytes of
    /// all.
    #[inline]
    fn crc_from(sse: Sse4_2, crc: u64, rest: &[u8], last: &[u8; 8]) -> u32 {
        let (words, rest) = rest.as_chunks();
        let crc = words.iter().fold(crc, |crc, word| _mm_crc32_u64(crc, u64::from_le_bytes(*word)));
        // The bytes behind the last word, as a word that begins with zeros: these do not change a
        // CRC of zero. What is held already meets the first bytes, and what is left of it the CRC.
        let bits = 8 * rest.len() as u32;
        let top = |word: u64| word.unbounded_shl(64 - bits);
        let rest = u64::from_le_bytes(*last) & top(u64::MAX) ^ top(crc);
        !((crc.unbounded_shr(bits) ^ _mm_crc32_u64(0, rest)) as u32)
    }
);

/// CRC-32C of a length as a frame holds it. A CRC is linear: it is that of 0, and what each byte changes in it.
#[inline]
pub fn masked_crc_of_length(length: u64) -> u32 {
    let [a, b, c, d, rest @ ..] = length.to_le_bytes();
    if rest != [0; 4] {
        return masked_crc(&length.to_le_bytes());
    }
    let [first, second, third, fourth] = &LENGTH_CRCS;
    let changes = first[a as usize] ^ second[b as usize] ^ third[c as usize] ^ fourth[d as usize];
    mask(CRC_OF_ZERO ^ changes)
}

/// CRCs of many parts of the same data, each of them in the same time however long it is.
///
/// A CRC is a remainder: that of some bytes with others behind them is the first one's times `x`
/// to the power of the others' bits, plus that of the others. So the CRC of a part follows from
/// those of what ends where it begins and where it ends. A few of these are kept.
///
/// Source: `crc32_combine` of zlib's `crc32.c`.
#[derive(Debug)]
pub struct PartCrcs<'a> {
    data: &'a [u8],
    /// CRCs of the first 0, 1, 2 ... blocks, as far as somebody asked.
    of_blocks: Vec<u32>,
}

impl<'a> PartCrcs<'a> {
    const BLOCK: usize = 1024;

    pub fn new(data: &'a [u8]) -> Self {
        Self { data, of_blocks: Vec::new() }
    }

    /// CRC-32C of `data[part]` as a frame holds it.
    pub fn masked_crc(&mut self, part: Range<usize>) -> u32 {
        let before = times(self.up_to(part.start), power(part.len()));
        mask(self.up_to(part.end) ^ before)
    }

    fn up_to(&mut self, end: usize) -> u32 {
        let block = end / Self::BLOCK;
        while self.of_blocks.len() <= block {
            let crc = match self.of_blocks.last() {
                None => 0,
                Some(&before) => {
                    let at = (self.of_blocks.len() - 1) * Self::BLOCK;
                    joined(before, &self.data[at..at + Self::BLOCK])
                }
            };
            self.of_blocks.push(crc);
        }
        joined(self.of_blocks[block], &self.data[block * Self::BLOCK..end])
    }
}

/// The CRC of data with a CRC of `before`, and `data` behind it.
fn joined(before: u32, data: &[u8]) -> u32 {
    times(before, power(data.len())) ^ crc(data)
}

/// `x` to the power of the bits in so many bytes.
fn power(bytes: usize) -> u32 {
    let digits = bytes.to_le_bytes().into_iter().zip(&POWERS);
    digits
        .filter(|(digit, _)| *digit != 0)
        .fold(ONE, |product, (digit, powers)| times(product, powers[digit as usize]))
}

/// The product of two polynomials modulo that of the CRC. The top bit stands for 1.
const fn times(a: u32, b: u32) -> u32 {
    let (mut product, mut shifted, mut bit) = (0, b, 32);
    while bit > 0 {
        bit -= 1;
        product ^= shifted & (a >> bit & 1).wrapping_neg();
        shifted = shifted >> 1 ^ POLYNOMIAL & (shifted & 1).wrapping_neg();
    }
    product
}

const POLYNOMIAL: u32 = 0x82f6_3b78;
const ONE: u32 = 1 << 31;

/// What `power` gives for each value of each byte of its number.
static POWERS: [[u32; 256]; size_of::<usize>()] = {
    let mut tables = [[ONE; 256]; size_of::<usize>()];
    let mut one_more = ONE >> 8;
    let mut byte = 0;
    while byte < tables.len() {
        let mut value = 1;
        while value < 256 {
            tables[byte][value] = times(tables[byte][value - 1], one_more);
            value += 1;
        }
        one_more = times(tables[byte][255], one_more);
        byte += 1;
    }
    tables
};

const CRC_OF_ZERO: u32 = crc_of_length(0);

/// What the four low bytes of a length change in its CRC.
static LENGTH_CRCS: [[u32; 256]; 4] = {
    let mut tables = [[0; 256]; 4];
    let mut index = 0;
    while index < 4 * 256 {
        let (byte, value) = (index / 256, index % 256);
        tables[byte][value] = crc_of_length((value as u64) << (8 * byte)) ^ CRC_OF_ZERO;
        index += 1;
    }
    tables
};

/// CRC-32C of the eight bytes of a length, bit by bit.
const fn crc_of_length(length: u64) -> u32 {
    let mut register = length ^ 0xffff_ffff;
    let mut bit = 0;
    while bit < 64 {
        register = (register >> 1) ^ if register & 1 == 1 { POLYNOMIAL as u64 } else { 0 };
        bit += 1;
    }
    !(register as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crcs_of_short_data_are_those_of_any_data() {
        // The catalogue's check value of CRC-32/ISCSI.
        assert_eq!(crc(b"123456789"), 0xe306_9283);
        let data: Vec<u8> = (0..700u32).map(|index| ((index * index) >> 3) as u8).collect();
        for from in [0, 1, 5, 8] {
            for to in from..data.len() {
                assert_eq!(crc(&data[from..to]), crc_fast::crc32_iscsi(&data[from..to]));
            }
        }
    }

    #[test]
    fn crcs_at_once_are_those_of_each() {
        let data: Vec<u8> = (0..5000u32).map(|index| ((index * index) >> 3) as u8).collect();
        let lengths = [0, 1, 7, 8, 9, 15, 16, 31, 319, 320, 500, 639, 640, 641, 1023, 2000];
        for (first, second) in lengths.into_iter().flat_map(|a| lengths.map(|b| (a, b))) {
            for third in lengths {
                let payloads = [&data[..first], &data[5..5 + second], &data[9..9 + third]];
                assert_eq!(
                    masked_crcs(payloads),
                    payloads.map(|data| mask(crc_fast::crc32_iscsi(data)))
                );
            }
        }
    }

    #[test]
    fn crcs_of_lengths_are_those_of_their_bytes() {
        let edges = (0..64).flat_map(|bit| [1u64 << bit, (1 << bit) - 1, (1 << bit) | 0x5a]);
        for length in edges.chain(0..2000).chain([0x1234_5678, u64::MAX]) {
            assert_eq!(masked_crc_of_length(length), masked_crc(&length.to_le_bytes()));
        }
    }

    #[test]
    fn crcs_of_parts_are_those_of_their_bytes() {
        let data: Vec<u8> =
            (0..700_000u32).map(|index| (index.wrapping_mul(index) >> 5) as u8).collect();
        let mut parts = PartCrcs::new(&data);
        let edges = [0, 1, 255, 256, 1023, 1024, 1025, 2048, 65_536, 300_001, 699_999, 700_000];
        for (from, to) in edges.into_iter().flat_map(|from| edges.map(|to| (from, to))) {
            if from <= to {
                assert_eq!(parts.masked_crc(from..to), masked_crc(&data[from..to]));
            }
        }
    }

    #[test]
    fn powers_of_large_numbers() {
        // To the power of 2^31 - 1, and so of that many bytes, x is 1.
        let round = i32::MAX as usize;
        assert_eq!(power(round), ONE);
        assert_eq!(power(round + 3), ONE >> 24);
        #[cfg(target_pointer_width = "64")]
        assert_eq!(power(round * 1000 + 3), ONE >> 24);
    }
}
