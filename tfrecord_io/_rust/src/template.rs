//! What stands before a short value, to compare with or to write.
//!
//! `0A e 0A K key 12 f kind l 0A v`: of a string or a run of packed numbers every length depends on
//! that of the value, l = v + 2, f = v + 4, e = v + K + 8, all below 128. Of a feature that nobody
//! asked for only `0A e 0A K key 12 f` with e = f + K + 4 is of interest, and f taken for v.

use fearless_simd::prelude::*;
use fearless_simd::u8x32;

use crate::canonical::Kind;

/// No template is longer, and as many bytes have to be there to look for one.
pub const TEMPLATE_BYTES: usize = 32;

/// The bytes before a short value.
#[derive(Clone, Copy, Debug)]
pub struct Template {
    /// The bytes before a value of no bytes; zeros behind them.
    bytes: [u8; TEMPLATE_BYTES],
    /// Ones where a byte grows with the value.
    grows: [u8; TEMPLATE_BYTES],
    /// The largest length for which the template holds.
    max_length: u8,
    /// How many bytes there are; the last of them is the length of the value.
    header_len: u8,
}

impl Template {
    /// The template of one value of this kind, or of a feature that nobody asked for; `None` if the
    /// key is too long for one.
    pub fn new(key: &[u8], kind: Option<Kind>) -> Option<Self> {
        // Behind the key: what is constant, and how much each length adds to the last one.
        let (tail, grows): (&[u8], &[u8]) = match kind {
            Some(kind) => (&[0x12, 4, kind.tag(), 2, 0x0a, 0], &[0, 0xff, 0, 0xff, 0, 0xff]),
            None => (&[0x12, 0], &[0, 0xff]),
        };
        let header_len = 4 + key.len() + tail.len();
        if header_len > TEMPLATE_BYTES {
            return None;
        }
        let entry_rest = header_len - 2;
        let mut template = Self {
            bytes: [0; TEMPLATE_BYTES],
            grows: [0; TEMPLATE_BYTES],
            max_length: 127 - entry_rest as u8,
            header_len: header_len as u8,
        };
        template.bytes[..4].copy_from_slice(&[0x0a, entry_rest as u8, 0x0a, key.len() as u8]);
        template.grows[1] = 0xff;
        template.bytes[4..4 + key.len()].copy_from_slice(key);
        template.bytes[4 + key.len()..header_len].copy_from_slice(tail);
        template.grows[4 + key.len()..header_len].copy_from_slice(grows);
        Some(template)
    }

    /// The bytes before a value of `length` bytes; `None` if it is too long for the template.
    #[inline(always)]
    pub fn header<S: Simd>(&self, simd: S, length: usize) -> Option<[u8; TEMPLATE_BYTES]> {
        (length <= self.max_length()).then(|| self.header_of(simd, length))
    }

    /// The same of a length that is known not to be too long.
    #[inline(always)]
    pub fn header_of<S: Simd>(&self, simd: S, length: usize) -> [u8; TEMPLATE_BYTES] {
        let length = u8x32::splat(simd, length as u8);
        let [bytes, grows] = [&self.bytes, &self.grows].map(|part| u8x32::simd_from(simd, *part));
        (bytes + (grows & length)).into()
    }

    /// The largest length for which there is a header.
    #[inline(always)]
    pub fn max_length(&self) -> usize {
        usize::from(self.max_length)
    }

    /// How many bytes of `header` count.
    #[inline(always)]
    pub fn header_len(&self) -> usize {
        usize::from(self.header_len)
    }
}

/// Looks for a template whose value probably has a certain length.
#[derive(Clone, Copy, Debug)]
pub struct Guess {
    /// What stands before a value of the length that is guessed.
    bytes: [u8; TEMPLATE_BYTES],
    /// Ones where it matters.
    keep: [u8; TEMPLATE_BYTES],
    grows: [u8; TEMPLATE_BYTES],
    header_len: u8,
    max_length: u8,
    length: u8,
}

impl Guess {
    /// Finds nothing: what does not matter is to be 1.
    pub const NEVER: Self = Self {
        bytes: [1; TEMPLATE_BYTES],
        keep: [0; TEMPLATE_BYTES],
        grows: [0; TEMPLATE_BYTES],
        header_len: 1,
        max_length: 0,
        length: 0,
    };

    pub fn new(template: &Template) -> Self {
        let Template { bytes, grows, max_length, header_len } = *template;
        let keep = std::array::from_fn(|i| if i < header_len.into() { 0xff } else { 0 });
        Self { bytes, keep, grows, header_len, max_length, length: 0 }
    }

    /// Guess another length.
    pub fn guess(&mut self, length: usize) {
        let more = (length as u8).wrapping_sub(self.length);
        for (byte, grows) in self.bytes.iter_mut().zip(self.grows) {
            *byte = byte.wrapping_add(more & grows);
        }
        self.length = length as u8;
    }

    /// Whether `data` begins with the template, and the value is as long as guessed.
    #[inline(always)]
    pub fn is_right<S: Simd>(&self, simd: S, data: &[u8]) -> bool {
        let Some(window) = data.first_chunk::<TEMPLATE_BYTES>() else { return false };
        let [window, bytes, keep] =
            [window, &self.bytes, &self.keep].map(|part| u8x32::simd_from(simd, *part));
        (window & keep).simd_eq(bytes).all_true()
    }

    /// How long the value is, if `data` begins with the template.
    #[inline(always)]
    pub fn measure<S: Simd>(&self, simd: S, data: &[u8]) -> Option<usize> {
        let window = data.first_chunk::<TEMPLATE_BYTES>()?;
        let length = window[usize::from(self.header_len - 1) % TEMPLATE_BYTES];
        let more = u8x32::splat(simd, length.wrapping_sub(self.length));
        let [window, bytes, keep, grows] = [window, &self.bytes, &self.keep, &self.grows]
            .map(|part| u8x32::simd_from(simd, *part));
        let is_so = ((window - (more & grows)) & keep).simd_eq(bytes).all_true();
        (is_so && length <= self.max_length).then_some(length.into())
    }

    /// How many bytes stand before the value.
    #[inline(always)]
    pub fn header_len(&self) -> usize {
        self.header_len.into()
    }

    /// The length that is guessed.
    #[inline(always)]
    pub fn length(&self) -> usize {
        self.length.into()
    }
}

#[cfg(test)]
mod tests {
    use fearless_simd::{Level, dispatch};

    use super::*;

    fn found(guess: &Guess, data: &[u8]) -> (bool, Option<usize>) {
        dispatch!(Level::new(), simd => (guess.is_right(simd, data), guess.measure(simd, data)))
    }

    #[test]
    fn a_template_is_found_with_lengths_of_one_byte_and_nowhere_else() {
        for (key, kind) in [
            (b"C".as_slice(), Some(Kind::Int64)),
            (b"a key of 18 bytes.", None),
            (b"a key of 22 bytes, all", Some(Kind::Bytes)),
        ] {
            let template = Template::new(key, kind).expect("it is short enough");
            let header_len = template.header_len();
            for (length, guessed) in (0..=255).flat_map(|length| [(length, 0), (length, 17)]) {
                let mut guess = Guess::new(&template);
                guess.guess(5);
                guess.guess(guessed);
                let mut data: [u8; TEMPLATE_BYTES] = std::array::from_fn(|i| {
                    template.bytes[i].wrapping_add(template.grows[i] & length as u8)
                });
                // What stands behind a header means nothing.
                data[header_len..].fill(0xaa);
                let is_so = length + header_len - 2 < 128;
                let expected = (is_so && length == guessed, is_so.then_some(length));
                assert_eq!(found(&guess, &data), expected);
                let header = dispatch!(Level::new(), simd => template.header(simd, length));
                if let Some(header) = header {
                    assert!(is_so);
                    assert_eq!(header[..header_len], data[..header_len]);
                }
                for place in 0..header_len {
                    for change in [1, 2, 0x80, 0xff] {
                        let mut damaged = data;
                        damaged[place] ^= change;
                        assert_eq!(found(&guess, &damaged), (false, None));
                    }
                }
                assert_eq!(found(&guess, &data[1..]), (false, None));
            }
        }
        assert!(Template::new(b"a key of 23 bytes, all.", Some(Kind::Bytes)).is_none());
        assert_eq!(found(&Guess::NEVER, &[0; TEMPLATE_BYTES]), (false, None));
    }
}
