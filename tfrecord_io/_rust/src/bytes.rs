//! A growing run of bytes that is fast for short values.
//!
//! Appending a few bytes to a `Vec` is a call; storing a constant number of bytes into a slice is
//! an instruction. So the bytes behind the end are kept zeroed for some way, short values are
//! stored with whatever stands behind them, and only the end moves on.

/// How far to zero ahead: little enough to stay in the first cache.
const AHEAD: usize = 16 * 1024;
/// From this length on a value is appended without zeroing first.
const LONG: usize = 4 * 1024;
/// How many bytes a short value is stored with.
pub const SHORT: usize = 16;

/// Bytes that are appended to.
#[derive(Debug, Default)]
pub struct ByteBuilder {
    /// Holds at least `len` bytes; those behind are of no meaning.
    bytes: Vec<u8>,
    len: usize,
}

impl ByteBuilder {
    pub fn with_capacity(capacity: usize) -> Self {
        Self { bytes: Vec::with_capacity(capacity), len: 0 }
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

    #[cold]
    fn zero_ahead(&mut self, count: usize) {
        self.bytes.resize(self.len + count.max(AHEAD), 0);
    }

    /// Append the first `count` bytes of `chunk`.
    #[inline(always)]
    fn put_chunk<const N: usize>(&mut self, chunk: &[u8; N], count: usize) {
        self.ensure(N);
        self.bytes[self.len..][..N].copy_from_slice(chunk);
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
        } else {
            self.put_long(&source[from..to]);
        }
    }

    fn put_long(&mut self, value: &[u8]) {
        if value.len() < LONG {
            self.ensure(value.len());
            self.bytes[self.len..][..value.len()].copy_from_slice(value);
        } else {
            self.bytes.truncate(self.len);
            self.bytes.extend_from_slice(value);
        }
        self.len += value.len();
    }

    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    pub fn into_vec(mut self) -> Vec<u8> {
        self.bytes.truncate(self.len);
        self.bytes
    }
}
