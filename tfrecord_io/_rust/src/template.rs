//! What stands before a short value, as words to compare with or to write.

use crate::canonical::Kind;

const TEMPLATE_WORDS: usize = 4;
const TEMPLATE_BYTES: usize = TEMPLATE_WORDS * 8;

/// Eight bytes of a template.
#[derive(Clone, Copy, Debug, Default)]
struct Word {
    /// The expected bytes when the length byte is 0.
    bytes: u64,
    /// Ones where a byte belongs to the template.
    keep: u64,
    /// 01 in each byte that grows with the length byte.
    step: u64,
}

impl Word {
    #[inline(always)]
    fn with(self, length: usize) -> u64 {
        self.bytes.wrapping_add(self.step.wrapping_mul(length as u64))
    }

    #[inline(always)]
    fn differs(self, found: &[u8; 8], length: u8) -> u64 {
        (u64::from_le_bytes(*found) ^ self.with(length as usize)) & self.keep
    }
}

/// The bytes of an entry before a short string or run of packed numbers, in which every length
/// depends on one byte.
///
/// `0A e 0A K key 12 f kind l 0A v` with l = v + 2, f = v + 4, e = v + K + 8, all below 128; for a
/// skipped feature only `0A e 0A K key 12 f` with e = f + K + 4.
#[derive(Clone, Copy, Debug)]
pub struct Template {
    words: [Word; TEMPLATE_WORDS],
    /// How many words hold it; 0 if the key is too long for a template.
    word_count: u8,
    /// The largest length for which the template holds.
    max_length: u8,
    /// How many bytes stand before the value; the last of them is the length byte.
    header_len: u8,
}

impl Template {
    pub const NEVER: Self = Self {
        words: [Word { bytes: 0, keep: 0, step: 0 }; TEMPLATE_WORDS],
        word_count: 0,
        max_length: 0,
        header_len: 1,
    };

    pub fn new(key: &[u8], kind: Option<Kind>) -> Self {
        // Behind the key: what is constant, and how much each length adds to the last one.
        let (tail, grows): (&[u8], &[u8]) = match kind {
            Some(kind) => (&[0x12, 4, kind.tag(), 2, 0x0a, 0], &[0, 1, 0, 1, 0, 1]),
            None => (&[0x12, 0], &[0, 1]),
        };
        let header_len = 4 + key.len() + tail.len();
        if header_len > TEMPLATE_BYTES {
            return Self::NEVER;
        }
        let entry_rest = header_len - 2;
        let mut bytes = [0u8; TEMPLATE_BYTES];
        let mut step = [0u8; TEMPLATE_BYTES];
        bytes[..4].copy_from_slice(&[0x0a, entry_rest as u8, 0x0a, key.len() as u8]);
        step[1] = 1;
        bytes[4..4 + key.len()].copy_from_slice(key);
        bytes[4 + key.len()..header_len].copy_from_slice(tail);
        step[4 + key.len()..header_len].copy_from_slice(grows);
        // The length byte itself may be anything.
        let compared = header_len - 1;
        let keep = std::array::from_fn(|i| if i < compared { 0xff } else { 0 });
        let [bytes, keep, step] = [bytes, keep, step].map(|bytes| {
            let (chunks, _) = bytes.as_chunks::<8>();
            std::array::from_fn::<_, TEMPLATE_WORDS, _>(|i| u64::from_le_bytes(chunks[i]))
        });
        Self {
            words: std::array::from_fn(|i| Word { bytes: bytes[i], keep: keep[i], step: step[i] }),
            word_count: compared.div_ceil(8) as u8,
            max_length: 127 - entry_rest as u8,
            header_len: header_len as u8,
        }
    }

    /// The template of a single value, if the key is short enough for one.
    pub fn of_single(key: &[u8], kind: Kind) -> Option<Self> {
        Some(Self::new(key, Some(kind))).filter(|template| template.word_count > 0)
    }

    /// The bytes before a value of `length` bytes, in two halves; `None` if it is too long for the
    /// template.
    #[inline(always)]
    pub fn header(&self, length: usize) -> Option<([u8; 16], [u8; 16])> {
        let word = |i: usize| u128::from(self.words[i].with(length));
        (length <= usize::from(self.max_length)).then(|| {
            ((word(0) | word(1) << 64).to_le_bytes(), (word(2) | word(3) << 64).to_le_bytes())
        })
    }

    /// How many bytes of `header` count.
    #[inline(always)]
    pub fn header_len(&self) -> usize {
        usize::from(self.header_len)
    }

    /// The length byte, if the entry at `pos` has this template's shape.
    #[inline(always)]
    pub fn length(&self, data: &[u8], pos: usize) -> Option<usize> {
        let window = data[pos..].first_chunk::<TEMPLATE_BYTES>()?;
        let length = window[usize::from(self.header_len - 1) % TEMPLATE_BYTES];
        let (chunks, _) = window.as_chunks::<8>();
        let differs = |i: usize| self.words[i].differs(&chunks[i], length);
        let mut difference = differs(0);
        if self.word_count > 1 {
            difference |= differs(1);
        }
        if self.word_count > 2 {
            difference |= differs(2) | differs(3);
        }
        (difference == 0 && length <= self.max_length && self.word_count > 0)
            .then_some(length as usize)
    }
}
