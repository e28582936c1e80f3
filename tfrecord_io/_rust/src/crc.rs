//! CRC-32C as a frame holds it: of payloads and of their lengths.
//!
//! Source: TensorFlow's `core/lib/hash/crc32c.h`.

#[cfg(target_arch = "x86_64")]
use {
    fearless_simd::{Level, kernel},
    std::arch::x86_64::_mm_crc32_u64,
};

/// Data of fewer bytes is short.
#[cfg(target_arch = "x86_64")]
const SHORT: usize = 320;

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
        let (words, rest) = data.as_chunks();
        let crc = words
            .iter()
            .fold(u64::from(u32::MAX), |crc, word| _mm_crc32_u64(crc, u64::from_le_bytes(*word)));
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
        register = (register >> 1) ^ if register & 1 == 1 { 0x82f6_3b78 } else { 0 };
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
    fn crcs_of_lengths_are_those_of_their_bytes() {
        let edges = (0..64).flat_map(|bit| [1u64 << bit, (1 << bit) - 1, (1 << bit) | 0x5a]);
        for length in edges.chain(0..2000).chain([0x1234_5678, u64::MAX]) {
            assert_eq!(masked_crc_of_length(length), masked_crc(&length.to_le_bytes()));
        }
    }
}
