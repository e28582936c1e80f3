//! Writing protobuf's wire format into a place of known size.

use crate::bytes::SHORT;
use crate::template::Template;
use crate::wire::spread;

#[inline(always)]
pub fn varint_len(value: u64) -> usize {
    // 7 bits a byte; one byte for 0.
    ((64 - (value | 1).leading_zeros() as usize) * 9 + 64) / 64
}

/// The size of a length-delimited field: tag, length, content.
#[inline(always)]
pub fn delimited_len(content: usize) -> usize {
    1 + varint_len(content as u64) + content
}

/// Writes into a record from front to back; what stands behind the pen is still to be written.
pub struct Pen<'a> {
    pub out: &'a mut [u8],
    pub pos: usize,
    /// The end of the record. A short value may be stored with whatever stands behind it, up to
    /// here.
    pub end: usize,
}

impl Pen<'_> {
    /// Write the first `count` bytes of `chunk`.
    #[inline(always)]
    pub fn chunk<const N: usize>(&mut self, chunk: &[u8; N], count: usize) {
        if self.pos + N <= self.end {
            // A copy of constant size is an instruction, one of variable size a call.
            self.out[self.pos..][..N].copy_from_slice(chunk);
        } else {
            self.out[self.pos..][..count].copy_from_slice(&chunk[..count]);
        }
        self.pos += count;
    }

    #[inline(always)]
    pub fn slice(&mut self, source: &[u8], from: usize, to: usize) {
        let count = to - from;
        if count <= SHORT
            && let Some(chunk) = source[from..].first_chunk::<SHORT>()
        {
            self.chunk(chunk, count);
        } else {
            self.out[self.pos..][..count].copy_from_slice(&source[from..to]);
            self.pos += count;
        }
    }

    /// Up to eight bytes are stored at once.
    #[inline(always)]
    pub fn varint(&mut self, value: u64) {
        self.varint_of(value, varint_len(value));
    }

    /// The same, where it is known how many bytes it takes.
    #[inline(always)]
    pub fn varint_of(&mut self, mut value: u64, count: usize) {
        if count <= 8 {
            // All bytes but the last continue.
            let continues = 0x8080_8080_8080_8080 & ((1u64 << (8 * count - 8)) - 1);
            return self.chunk(&(spread(value) | continues).to_le_bytes(), count);
        }
        while value >= 0x80 {
            self.chunk(&[value as u8 | 0x80], 1);
            value >>= 7;
        }
        self.chunk(&[value as u8], 1);
    }

    /// Write ints one behind the other, and where each begins into `starts`.
    #[inline(always)]
    fn varints(&mut self, ints: &[i64], starts: &mut [usize]) {
        for (int, start) in ints.iter().zip(starts) {
            *start = self.pos;
            self.varint(*int as u64);
        }
    }

    /// The same for up to `GROUP` short ints; four bytes behind the last one can be written to.
    ///
    /// The loops that do several ints at once stand apart from the one that cannot.
    #[inline(always)]
    fn short_varints(&mut self, ints: &[i64], starts: &mut [usize]) {
        let (mut words, mut lengths) = ([0; GROUP], [0; GROUP]);
        let (words, lengths) = (&mut words[..ints.len()], &mut lengths[..ints.len()]);
        for (word, int) in words.iter_mut().zip(ints) {
            *word = *int as i32;
        }
        for (word, length) in words.iter_mut().zip(lengths.iter_mut()) {
            (*word, *length) = short_varint(*word);
        }
        for ((word, length), start) in words.iter().zip(lengths).zip(starts) {
            *start = self.pos;
            self.out[self.pos..][..4].copy_from_slice(&word.to_le_bytes());
            self.pos += *length as usize;
        }
    }

    /// Write what stands before a value of `length` bytes; false if it is too long for the
    /// template.
    #[inline(always)]
    pub fn template(&mut self, template: &Template, length: usize) -> bool {
        let Some((low, high)) = template.header(length) else { return false };
        let count = template.header_len();
        self.chunk(&low, count.min(16));
        if count > 16 {
            self.chunk(&high, count - 16);
        }
        true
    }

    #[inline(always)]
    pub fn tag(&mut self, tag: u8, length: usize) {
        if length < 0x80 {
            self.chunk(&[tag, length as u8], 2);
        } else {
            self.chunk(&[tag], 1);
            self.varint(length as u64);
        }
    }
}

/// Ints packed one behind the other, and where each begins.
#[derive(Debug, Default)]
pub struct Packed {
    /// Those behind the last int are of no meaning: they need not be zeroed for each run.
    bytes: Vec<u8>,
    /// One more than there are ints: where the last one ends.
    starts: Vec<usize>,
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
        for (ints, starts) in ints.chunks(GROUP).zip(self.starts.chunks_mut(GROUP)) {
            if ints.iter().fold(0, |bits, int| bits | *int as u64) < SHORT_INT {
                pen.short_varints(ints, starts);
            } else {
                pen.varints(ints, starts);
            }
        }
        self.starts[ints.len()] = pen.pos;
    }

    /// Where in `bytes` the ints from one to before another stand.
    #[inline(always)]
    pub fn range(&self, (from, to): (usize, usize)) -> (usize, usize) {
        (self.starts[from], self.starts[to])
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

const MAX_VARINT: usize = 10;

/// So many ints are turned at once.
const GROUP: usize = 64;

/// Ints below this take four bytes at most.
const SHORT_INT: u64 = 1 << 28;

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

#[cfg(test)]
mod tests {
    use super::*;

    /// Protobuf's definition, byte by byte.
    fn varint(mut value: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
        bytes
    }

    #[test]
    fn packs_ints_of_all_lengths() {
        let edges =
            (0..64).flat_map(|bit| [-1i64, 0, 1].map(|step| (1i64 << bit).wrapping_add(step)));
        let ints: Vec<i64> = edges.chain(0..40).chain(-3..3).collect();
        let short: Vec<i64> =
            ints.iter().copied().filter(|int| (0..1 << 28).contains(int)).collect();
        let mut packed = Packed::default();
        for ints in [ints, short] {
            for from in 0..ints.len() {
                let ints = &ints[from..];
                packed.pack(ints);
                for (index, int) in ints.iter().enumerate() {
                    let (start, end) = packed.range((index, index + 1));
                    assert_eq!(packed.bytes()[start..end], varint(*int as u64));
                }
                let expected: Vec<u8> = ints.iter().flat_map(|int| varint(*int as u64)).collect();
                let (start, end) = packed.range((0, ints.len()));
                assert_eq!(packed.bytes()[start..end], expected);
            }
        }
    }

    #[test]
    fn knows_how_long_varints_are() {
        for bit in 0..64 {
            for value in [1u64 << bit, (1 << bit) - 1] {
                assert_eq!(varint_len(value), varint(value).len());
            }
        }
    }
}
