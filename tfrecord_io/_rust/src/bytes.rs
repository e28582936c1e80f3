//! A growing run of bytes that is fast for short values and for long ones.
//!
//! Appending a few bytes to a `Vec` is a call; storing a constant number of bytes into a slice is
//! an instruction. So the bytes behind the end are kept zeroed for some way, short values are
//! stored with whatever stands behind them, and only the end moves on.
//!
//! Long values are copied to what was zeroed as well. A processor fetches lines that it copies to
//! from memory first, those that it zeroes it does not, and the copy finds them in its cache. With
//! images that saves a quarter of the time.

use arrow_buffer::{Buffer, MutableBuffer};

/// How far to zero ahead: little enough to stay in the first cache.
const AHEAD: usize = 16 * 1024;
/// How much of a long value is copied at a time.
const PIECE: usize = 2 * AHEAD;
/// How many bytes a short value is stored with.
pub const SHORT: usize = 16;
/// The same of one that is not quite as short.
const MIDDLE: usize = 64;

/// Bytes that are appended to.
#[derive(Debug, Default)]
pub struct ByteBuilder {
    /// Holds at least `len` bytes; those behind are of no meaning.
    bytes: MutableBuffer,
    len: usize,
}

impl ByteBuilder {
    pub fn with_capacity(capacity: usize) -> Self {
        Self { bytes: MutableBuffer::new(capacity), len: 0 }
    }

    pub fn reserve(&mut self, count: usize) {
        self.bytes.reserve(count);
    }

    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    fn ensure(&mut self, count: usize) {
        if self.bytes.len() - self.len < count {
            self.zero_ahead(count);
        }
    }

    /// Zero room for `count` bytes and more, but do not grow for more.
    #[cold]
    fn zero_ahead(&mut self, count: usize) {
        let ahead = (self.len + AHEAD).min(self.bytes.capacity());
        self.bytes.resize(ahead.max(self.len + count), 0);
    }

    /// Append the first `count` bytes of `chunk`.
    #[inline(always)]
    pub fn put_chunk<const N: usize>(&mut self, chunk: &[u8; N], count: usize) {
        self.ensure(N);
        self.bytes.as_slice_mut()[self.len..][..N].copy_from_slice(chunk);
        self.len += count;
    }

    /// Append `source[from..to]`.
    #[inline(always)]
    pub fn put_slice(&mut self, source: &[u8], from: usize, to: usize) {
        let count = to - from;
        if count <= SHORT
            && let Some(chunk) = source[from..].first_chunk::<SHORT>()
        {
            self.put_chunk(chunk, count);
        } else if count <= MIDDLE
            && let Some(chunk) = source[from..].first_chunk::<MIDDLE>()
        {
            self.put_chunk(chunk, count);
        } else if count <= PIECE {
            self.put_piece(&source[from..to]);
        } else {
            // Room for all of it: piece by piece it would be doubled on the way.
            self.bytes.reserve((self.len + count).saturating_sub(self.bytes.len()));
            source[from..to].chunks(PIECE).for_each(|piece| self.put_piece(piece));
        }
    }

    #[inline(always)]
    fn put_piece(&mut self, piece: &[u8]) {
        self.ensure(piece.len());
        self.bytes.as_slice_mut()[self.len..][..piece.len()].copy_from_slice(piece);
        self.len += piece.len();
    }

    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    pub fn into_buffer(mut self) -> Buffer {
        self.bytes.truncate(self.len);
        self.bytes.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_value_takes_room_for_itself_alone() {
        let source = vec![7; 100 * PIECE + 1];
        let mut held = ByteBuilder::default();
        held.put_slice(&source, 0, source.len());
        assert!(held.bytes.capacity() < source.len() + AHEAD);
    }

    #[test]
    fn values_of_any_length_stand_behind_each_other() {
        let edges = [0, SHORT, MIDDLE, AHEAD, PIECE, 2 * PIECE];
        let lengths: Vec<usize> =
            edges.iter().flat_map(|edge| [edge.saturating_sub(1), *edge, edge + 1]).collect();
        let source: Vec<u8> = (0..3 * PIECE).map(|index| ((index * index) >> 7) as u8).collect();
        for capacity in [0, 100, 10 * PIECE] {
            let mut held = ByteBuilder::with_capacity(capacity);
            let mut expected = Vec::new();
            for (round, length) in lengths.iter().cycle().take(5 * lengths.len()).enumerate() {
                // Some end with the source, where nothing stands behind them.
                let from = if round % 2 == 0 { round } else { source.len() - length };
                held.put_slice(&source, from, from + length);
                expected.extend_from_slice(&source[from..from + length]);
                if round % 7 == 0 {
                    held.truncate(expected.len() - length / 2);
                    expected.truncate(expected.len() - length / 2);
                }
                assert_eq!(held.len(), expected.len());
            }
            assert_eq!(held.into_buffer().as_slice(), expected);
        }
    }
}
