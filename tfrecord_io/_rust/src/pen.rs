//! Writing protobuf's wire format into a place of known size.

use fearless_simd::Simd;

use crate::bytes::SHORT;
use crate::fetch::fetch_ahead;
use crate::template::Template;
use crate::wire::{CONTINUES, last_two, spread};

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
            fetch_ahead(source, from..to);
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
    pub fn varint_of(&mut self, value: u64, count: usize) {
        if count <= 8 {
            // All bytes but the last continue.
            let continues = CONTINUES & ((1u64 << (8 * count - 8)) - 1);
            return self.chunk(&(spread(value) | continues).to_le_bytes(), count);
        }
        self.chunk(&(spread(value) | CONTINUES).to_le_bytes(), 8);
        self.chunk(&last_two(value), count - 8);
    }

    /// Write what stands before a value of `length` bytes; false if it is too long for the
    /// template.
    #[inline(always)]
    pub fn template<S: Simd>(&mut self, simd: S, template: &Template, length: usize) -> bool {
        let Some(header) = template.header(simd, length) else { return false };
        self.chunk(&header, template.header_len());
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

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Protobuf's definition, byte by byte.
    pub fn varint(mut value: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
        bytes
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
