//! Which slot an entry belongs to, found by its name.
//!
//! Where features are missing, or a writer's map has no order, what follows a feature differs from
//! record to record. A map of keys would do; this one is asked with what stands in the record, all
//! of which the slot's template checks anyway: so it only has to be right mostly.

use crate::hash::folded_multiply;
use crate::template::TEMPLATE_BYTES;

/// Where the key of a short entry begins: `0A e 0A K key`.
const KEY_AT: usize = 4;
/// Longer ones have no template.
const MAX_KEY: usize = TEMPLATE_BYTES - KEY_AT;
/// So many slots are looked at; of more whose hashes are alike some are not found.
const PROBES: usize = 8;

const WORDS: usize = TEMPLATE_BYTES / 8;

/// The bytes of a key of each length, where it stands in a record.
const KEPT: [[u64; WORDS]; MAX_KEY + 1] = {
    let mut kept = [[0; WORDS]; MAX_KEY + 1];
    let mut length = 0;
    while length <= MAX_KEY {
        let mut at = KEY_AT;
        while at < KEY_AT + length {
            kept[length][at / 8] |= 0xff << (8 * (at % 8));
            at += 1;
        }
        length += 1;
    }
    kept
};

/// Odd numbers without pattern: digits of pi.
const FACTORS: [u64; WORDS] =
    [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7345, 0xa409_3822_299f_31d1, 0x082e_fa98_ec4e_6c89];

/// Slots by the hashes of their keys.
#[derive(Debug)]
pub struct Finder {
    /// A power of two of places, three of four empty at least: a hash and a slot.
    places: Vec<Option<(u32, u32)>>,
    held: usize,
}

impl Finder {
    pub fn new() -> Self {
        Self { places: vec![None; 4], held: 0 }
    }

    /// Have a slot found by this key, unless that is long.
    pub fn insert(&mut self, key: &[u8], slot: u32) {
        let mut entry = [0; TEMPLATE_BYTES];
        let Some(place) = entry.get_mut(KEY_AT..KEY_AT + key.len()) else { return };
        place.copy_from_slice(key);
        entry[KEY_AT - 1] = key.len() as u8;
        self.held += 1;
        if self.places.len() < 4 * self.held {
            let places = vec![None; 2 * self.places.len()];
            let held = std::mem::replace(&mut self.places, places);
            held.into_iter().flatten().for_each(|(hash, slot)| self.put(hash, slot));
        }
        hash(&entry).into_iter().for_each(|hash| self.put(hash, slot));
    }

    fn put(&mut self, hash: u32, slot: u32) {
        let place = self.probes(hash).find(|place| self.places[*place].is_none());
        if let Some(place) = place {
            self.places[place] = Some((hash, slot));
        }
    }

    #[inline(always)]
    fn probes(&self, hash: u32) -> impl Iterator<Item = usize> + use<> {
        let last = self.places.len() - 1;
        (0..PROBES).map(move |probe| (hash as usize + probe) & last)
    }

    /// The slot that an entry may belong to.
    #[inline(always)]
    pub fn find(&self, entry: &[u8]) -> Option<u32> {
        let hash = hash(entry.first_chunk()?)?;
        let mut held = self.probes(hash).map_while(|place| self.places[place]);
        held.find(|(other, _)| *other == hash).map(|(_, slot)| slot)
    }
}

/// A hash of the key in an entry; none if it is too long.
#[inline(always)]
fn hash(entry: &[u8; TEMPLATE_BYTES]) -> Option<u32> {
    let kept = KEPT.get(usize::from(entry[KEY_AT - 1]))?;
    let mut mixed = 0;
    for ((word, kept), factor) in entry.as_chunks::<8>().0.iter().zip(kept).zip(FACTORS) {
        mixed ^= folded_multiply(u64::from_le_bytes(*word) & kept, factor);
    }
    Some(mixed as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &[u8], value: &[u8]) -> Vec<u8> {
        let head = [0x0a, (key.len() + value.len()) as u8, 0x0a, key.len() as u8];
        [&head, key, value, &[0xaa; TEMPLATE_BYTES]].concat()
    }

    #[test]
    fn keys_are_found_whatever_stands_behind_them() {
        let keys: Vec<Vec<u8>> = (0..=MAX_KEY)
            .flat_map(|length| (0..4).map(move |one| vec![b'a' + one; length]))
            .chain((0..5000).map(|index| format!("feature{index}").into_bytes()))
            .chain((0..=127).map(|length| vec![b'k'; length]))
            .collect();
        let mut finder = Finder::new();
        let found = |finder: &Finder, key: &[u8], value: &[u8]| {
            finder.find(&entry(key, value)).map(|slot| &*keys[slot as usize] == key)
        };
        let mut seen = std::collections::HashSet::new();
        for (slot, key) in keys.iter().enumerate().filter(|(_, key)| seen.insert(*key)) {
            assert_ne!(found(&finder, key, b"x"), Some(true));
            finder.insert(key, slot as u32);
        }
        let short = || keys.iter().filter(|key| key.len() <= MAX_KEY);
        for value in [b"x".as_slice(), b"another"] {
            let count = short().filter(|key| found(&finder, key, value) == Some(true)).count();
            // Of those whose hashes are alike some may not be.
            assert!(count * 100 > short().count() * 99, "{count}");
        }
        assert!(
            keys.iter().all(|key| key.len() <= MAX_KEY || finder.find(&entry(key, b"")).is_none())
        );
        assert_eq!(finder.find(&entry(b"key", b"")[..TEMPLATE_BYTES - 1]), None);
    }
}
