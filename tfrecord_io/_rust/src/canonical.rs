//! The forms that every writer makes: lengths where they are expected, numbers packed in one run, one kind, nothing else.
//!
//! Whatever does not look so is left to `message.rs`: the functions here answer with `None` or false and judge nothing.

use crate::wire::{CONTINUES, FIXED32, LEN, VARINT, squeeze};

/// The three kinds of a Feature, by their field numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Bytes = 1,
    Float = 2,
    Int64 = 3,
}

impl Kind {
    pub const fn tag(self) -> u8 {
        (self as u8) << 3 | LEN
    }

    #[inline(always)]
    pub fn of_tag(tag: u8) -> Option<Self> {
        match tag {
            0x0a => Some(Self::Bytes),
            0x12 => Some(Self::Float),
            0x1a => Some(Self::Int64),
            _ => None,
        }
    }
}

/// The tag of values in the list of a kind, but for their form.
const NUMBER: u8 = 1 << 3;

/// A run of `data` that holds what a kind's list holds: packed numbers, or the entries of a
/// BytesList.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub at: usize,
    pub end: usize,
}

/// Reads canonical tags and lengths at a position; `None` is anything else.
#[derive(Clone, Copy)]
pub struct At<'a> {
    pub data: &'a [u8],
    pub pos: usize,
    pub end: usize,
}

impl<'a> At<'a> {
    /// `tag`, a length, and that many bytes within `end`: the bytes, and the position moves behind
    /// them.
    #[inline(always)]
    pub fn delimited(&mut self, tag: u8) -> Option<Span> {
        let data = &self.data[..self.end];
        if *data.get(self.pos)? != tag {
            return None;
        }
        let mut length = *data.get(self.pos + 1)? as usize;
        let mut at = self.pos + 2;
        if length >= 0x80 {
            length &= 0x7f;
            let mut shift = 7;
            loop {
                let byte = *data.get(at)? as usize;
                at += 1;
                length |= (byte & 0x7f) << shift;
                if byte < 0x80 {
                    break;
                }
                shift += 7;
                // Longer lengths are legal only beyond what a record can hold, or padded.
                if shift > 28 {
                    return None;
                }
            }
        }
        let end = at.checked_add(length)?;
        if end > self.end {
            return None;
        }
        self.pos = end;
        Some(Span { at, end })
    }

    /// The same, for a field that must be the last one.
    #[inline(always)]
    pub fn last(&mut self, tag: u8) -> Option<Span> {
        self.delimited(tag).filter(|span| span.end == self.end)
    }

    #[inline(always)]
    pub fn within(&self, span: Span) -> At<'a> {
        At { data: self.data, pos: span.at, end: span.end }
    }

    /// A step of numbers with lengths of one byte, which all follow from the first of them: what its
    /// list holds, and the position moves behind the step. `None` is any other step.
    #[inline(always)]
    fn short_numbers(&mut self) -> Option<(Kind, Span)> {
        let word = u64::from_le_bytes(*self.data[self.pos..].first_chunk()?);
        let [_, length, tag, ..] = word.to_le_bytes();
        let kind = Kind::of_tag(tag).filter(|kind| *kind != Kind::Bytes)?;
        if !(4..0x80).contains(&length) {
            return None;
        }
        let head = [0x0a, length, tag, length - 2, 0x0a, length - 4, 0, 0];
        let end = self.pos + 2 + length as usize;
        if word << 16 != u64::from_le_bytes(head) << 16 || end > self.end {
            return None;
        }
        let at = self.pos + 6;
        self.pos = end;
        Some((kind, Span { at, end }))
    }

    /// The next step of a FeatureList: its list, or the inner `None` for one without a kind.
    #[inline(always)]
    fn step(&mut self) -> Option<Option<(Kind, Span)>> {
        if let Some(list) = self.short_numbers() {
            return Some(Some(list));
        }
        let span = self.delimited(0x0a)?;
        self.within(span).feature()
    }

    /// The one kind of a Feature and what its list holds; the inner `None` is a Feature without a
    /// kind.
    #[inline(always)]
    pub fn feature(mut self) -> Option<Option<(Kind, Span)>> {
        if self.pos == self.end {
            return Some(None);
        }
        let kind = Kind::of_tag(self.data[self.pos])?;
        let list = self.last(kind.tag())?;
        if kind == Kind::Bytes || list.at == list.end {
            return Some(Some((kind, list)));
        }
        // Numbers are packed in one run; some writers let a single one stand by itself.
        let numbers = self.within(list);
        let run = { numbers }.last(0x0a).or_else(|| numbers.alone(kind))?;
        Some(Some((kind, run)))
    }

    /// The one number that a list holds, not packed: what a run of it would hold.
    #[inline(never)]
    fn alone(&self, kind: Kind) -> Option<Span> {
        let span = Span { at: self.pos + 1, end: self.end };
        let tag = *self.data.get(self.pos)?;
        let is_one = match kind {
            Kind::Float => tag == NUMBER | FIXED32 && span.end - span.at == size_of::<f32>(),
            Kind::Int64 => tag == NUMBER | VARINT && one_varint(self.data, span).is_some(),
            Kind::Bytes => false,
        };
        is_one.then_some(span)
    }
}

/// Call `value` with each value of a BytesList; false where something else stands between them, or
/// `value` says so.
#[inline(always)]
pub fn for_each_bytes(data: &[u8], list: Span, mut value: impl FnMut(Span) -> bool) -> bool {
    let mut at = At { data, pos: list.at, end: list.end };
    while at.pos < at.end {
        if !at.delimited(0x0a).is_some_and(&mut value) {
            return false;
        }
    }
    true
}

/// The one value of a BytesList, or `None` where it has no or several.
#[inline(always)]
pub fn one_bytes(data: &[u8], list: Span) -> Option<Span> {
    At { data, pos: list.at, end: list.end }.last(0x0a)
}

/// The same for the steps of a FeatureList: a list each, or none where a step has no kind.
#[inline(always)]
pub fn for_each_step(
    data: &[u8],
    steps: Span,
    mut step: impl FnMut(Option<(Kind, Span)>) -> bool,
) -> bool {
    let mut at = At { data, pos: steps.at, end: steps.end };
    while at.pos < at.end {
        if !at.step().is_some_and(&mut step) {
            return false;
        }
    }
    true
}

/// The value of a run of bytes that is exactly one varint.
#[inline(always)]
pub fn one_varint(data: &[u8], value: Span) -> Option<u64> {
    let length = value.end - value.at;
    if let Some(word) = data[value.at..].first_chunk()
        && (1..=8).contains(&length)
    {
        return whole_varint(u64::from_le_bytes(*word), length);
    }
    if let Some(window) = data[value.at..].first_chunk::<16>()
        && (9..=10).contains(&length)
    {
        let [low, high] =
            [0, 8].map(|at| u64::from_le_bytes(std::array::from_fn(|byte| window[at + byte])));
        let high = whole_varint(high, length - 8)?;
        return (low & CONTINUES == CONTINUES).then(|| squeeze(low) | high << 56);
    }
    let mut found = None;
    let mut count = 0;
    let whole = for_each_varint(data, value, |int| {
        found = Some(int);
        count += 1;
        true
    });
    found.filter(|_| whole && count == 1)
}

/// The value of the varint that the first `length` bytes of a word are, or of its last bytes.
#[inline(always)]
fn whole_varint(word: u64, length: usize) -> Option<u64> {
    let word = word & (u64::MAX >> (64 - 8 * length));
    let expected = CONTINUES & ((1u64 << (8 * length - 8)) - 1);
    (word & CONTINUES == expected).then(|| squeeze(word))
}

#[inline(always)]
pub fn one_float(data: &[u8], value: Span) -> Option<f32> {
    data[value.at..value.end].try_into().ok().map(f32::from_le_bytes)
}

/// The next eight bytes of a packed run, and of each that is the last of a varint the top bit.
/// `None` if no varint ends there, or fewer bytes follow.
#[inline(always)]
fn word_of(data: &[u8], at: usize, end: usize) -> Option<(u64, u64)> {
    let word = u64::from_le_bytes(*data[at..].first_chunk()?);
    let mut stops = !word & CONTINUES;
    if end - at < 8 {
        stops &= (1 << (8 * (end - at))) - 1;
    }
    (stops != 0).then_some((word, stops))
}

/// Call `each` with every varint of a packed run; false if the run is damaged or `each` says so.
#[inline(always)]
pub fn for_each_varint(data: &[u8], run: Span, mut each: impl FnMut(u64) -> bool) -> bool {
    let mut at = run.at;
    while at < run.end {
        if let Some((mut word, mut stops)) = word_of(data, at, run.end) {
            // Behind the last varint that ends in the word.
            at += 8 - stops.leading_zeros() as usize / 8;
            loop {
                let last_bit = stops.trailing_zeros();
                if !each(squeeze(word & (u64::MAX >> (63 - last_bit)))) {
                    return false;
                }
                // Twice, for a shift by 64 is none.
                word = word >> last_bit >> 1;
                stops = stops >> last_bit >> 1;
                if stops == 0 {
                    break;
                }
            }
            continue;
        }
        let mut int = 0u64;
        let mut shift = 0;
        loop {
            if at == run.end || shift == 70 {
                return false;
            }
            let byte = data[at];
            at += 1;
            int |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                break;
            }
        }
        if !each(int) {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A step of `count` floats, and what is behind it.
    fn step(count: u8) -> Vec<u8> {
        let run = 4 * count;
        let mut bytes = vec![0x0a, run + 4, Kind::Float.tag(), run + 2, 0x0a, run];
        bytes.resize(6 + run as usize, 1);
        bytes.extend([0; 4]);
        bytes
    }

    fn by_parts<'a>(at: &mut At<'a>) -> Option<Option<(Kind, Span)>> {
        let span = at.delimited(0x0a)?;
        at.within(span).feature()
    }

    #[test]
    fn short_steps_are_those_that_their_parts_are() {
        for count in 0..31 {
            let sound = step(count);
            let end = sound.len() - 4;
            let mut at = At { data: &sound, pos: 0, end };
            let (kind, list) = at.short_numbers().expect("it is short");
            assert_eq!((kind, list.at, list.end, at.pos), (Kind::Float, 6, end, end));
            // One byte of the head differs, or the end is elsewhere.
            for place in 0..6 {
                for byte in 0..=255 {
                    let mut bytes = sound.clone();
                    bytes[place] = byte;
                    for end in end - 1..end + 2 {
                        let whole = At { data: &bytes, pos: 0, end };
                        let (mut short, mut parts) = (whole, whole);
                        if let Some((kind, list)) = short.short_numbers() {
                            let (same_kind, same) =
                                by_parts(&mut parts).flatten().expect("it is a step");
                            assert_eq!((kind, list.at, list.end), (same_kind, same.at, same.end));
                            assert_eq!(short.pos, parts.pos);
                        }
                    }
                }
            }
        }
    }
}
