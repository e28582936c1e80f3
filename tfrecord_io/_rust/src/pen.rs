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

    /// Two short ints are stored at once.
    #[inline(always)]
    fn two_varints(&mut self, first: u64, second: u64) {
        if first | second >= SHORT_INT {
            self.varint(first);
            return self.varint(second);
        }
        let (first, first_len) = short_varint(first as u32);
        let (second, second_len) = short_varint(second as u32);
        let word = u64::from(first) | u64::from(second) << (8 * first_len);
        self.chunk(&word.to_le_bytes(), first_len + second_len);
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

/// Runs of packed ints one behind the other.
#[derive(Debug, Default)]
pub struct Packed {
    /// Holds at least `len` bytes, so that they need not be zeroed for each run.
    bytes: Vec<u8>,
    len: usize,
}

impl Packed {
    pub fn clear(&mut self) {
        self.len = 0;
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Append the varints of some ints; returns how many bytes they take.
    #[inline(always)]
    pub fn push(&mut self, ints: &[i64]) -> usize {
        let start = self.len;
        let end = start + ints.len() * MAX_VARINT;
        if self.bytes.len() < end {
            self.bytes.resize(2 * end, 0);
        }
        let mut pen = Pen { out: &mut self.bytes, pos: start, end };
        let (pairs, rest) = ints.as_chunks::<2>();
        for [first, second] in pairs {
            pen.two_varints(*first as u64, *second as u64);
        }
        for int in rest {
            pen.varint(*int as u64);
        }
        self.len = pen.pos;
        self.len - start
    }
}

const MAX_VARINT: usize = 10;

/// Ints below this take four bytes at most.
const SHORT_INT: u64 = 1 << 28;

/// The varint of a short int and how many bytes it takes.
#[inline(always)]
fn short_varint(int: u32) -> (u32, usize) {
    let sevens =
        int & 0x7f | (int & 0x3f80) << 1 | (int & 0x1f_c000) << 2 | (int & 0xfe0_0000) << 3;
    // All bytes but the last continue.
    let more = (sevens | 1).ilog2() / 8;
    (sevens | 0x80_8080 & ((1 << (8 * more)) - 1), more as usize + 1)
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
        for from in 0..ints.len() {
            let mut packed = Packed::default();
            packed.push(&[7]);
            let length = packed.push(&ints[from..]);
            let expected: Vec<u8> =
                ints[from..].iter().flat_map(|int| varint(*int as u64)).collect();
            assert_eq!((&packed.bytes()[1..], length), (&*expected, expected.len()));
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
