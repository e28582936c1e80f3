//! Hashes of strings and numbers, for sketches: fast, and no defence against values that are made to
//! collide.

use std::hash::BuildHasher;

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

/// The halves of a product as one word: the low bits of the lower half depend on low bits alone.
#[inline(always)]
pub fn folded_multiply(one: u64, other: u64) -> u64 {
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

/// The same of 32 bits (the finalizer of MurmurHash3); no two have the same hash.
#[inline(always)]
pub fn hash_word(bits: u32) -> u32 {
    // Zero would stay zero.
    let mut word = bits ^ 0x9e37_79b9;
    word = (word ^ (word >> 16)).wrapping_mul(0x85eb_ca6b);
    word = (word ^ (word >> 13)).wrapping_mul(0xc2b2_ae35);
    word ^ (word >> 16)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn hashes_of_strings_depend_on_their_bytes_alone() {
        let text: Vec<u8> = (0..128u8).map(|index| index.wrapping_mul(37)).collect();
        let mut seen = HashMap::new();
        let mut see = |value: &[u8]| {
            let hash = hash_string(value, 0, value.len());
            // Alone, at the end of others, and among others.
            for (before, behind) in [(1, 0), (7, 3), (3, 15), (2, 16), (16, 40)] {
                let data = [&text[..before], value, &text[..behind]].concat();
                assert_eq!(hash_string(&data, before, value.len()), hash, "{value:?}");
            }
            let other = seen.insert(hash, value.to_vec());
            assert!(other.is_none_or(|other| other == value), "{value:?}");
        };
        for length in 0..=40 {
            see(&text[..length]);
            see(&vec![0; length]);
            see(&vec![255; length]);
            for place in 0..length {
                let mut value = text[..length].to_vec();
                value[place] ^= 1;
                see(&value);
                value[place] ^= 0x81;
                see(&value);
                value[place] = 0;
                see(&value);
            }
        }
    }
}
