//! The forms that every writer makes: lengths where they are expected, numbers packed in one run, one kind, nothing else.
//!
//! Whatever does not look so is left to `message.rs`: the functions here answer with `None` or false and judge nothing.

use crate::wire::{LEN, squeeze};

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
        // Numbers are packed in one run.
        Some(Some((kind, self.within(list).last(0x0a)?)))
    }
}

/// The values of a BytesList, or `None` where something else stands between them.
#[inline(always)]
pub fn for_each_bytes(data: &[u8], list: Span, mut value: impl FnMut(Span) -> bool) -> bool {
    let mut at = At { data, pos: list.at, end: list.end };
    while at.pos < at.end {
        match at.delimited(0x0a) {
            Some(span) => {
                if !value(span) {
                    return false;
                }
            }
            None => return false,
        }
    }
    true
}

/// The one value of a BytesList, or `None` where it has no or several.
#[inline(always)]
pub fn one_bytes(data: &[u8], list: Span) -> Option<Span> {
    At { data, pos: list.at, end: list.end }.last(0x0a)
}

/// The steps of a FeatureList: a list each, or none where a step has no kind. False where something
/// else stands between them.
#[inline(always)]
pub fn for_each_step(
    data: &[u8],
    steps: Span,
    mut step: impl FnMut(Option<(Kind, Span)>) -> bool,
) -> bool {
    let mut at = At { data, pos: steps.at, end: steps.end };
    while at.pos < at.end {
        let Some(span) = at.delimited(0x0a) else { return false };
        if !at.within(span).feature().is_some_and(&mut step) {
            return false;
        }
    }
    true
}

/// The value of a run of bytes that is exactly one varint.
#[inline(always)]
pub fn one_varint(data: &[u8], value: Span) -> Option<u64> {
    let length = value.end - value.at;
    if let Some(window) = data[value.at..].first_chunk::<8>()
        && (1..=8).contains(&length)
    {
        let word = u64::from_le_bytes(*window) & (u64::MAX >> (64 - 8 * length));
        let continues = word & 0x8080_8080_8080_8080;
        let expected = 0x0080_8080_8080_8080 & ((1u64 << (8 * length - 8)) - 1);
        return (continues == expected).then(|| squeeze(word));
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

#[inline(always)]
pub fn one_float(data: &[u8], value: Span) -> Option<f32> {
    data[value.at..value.end].try_into().ok().map(f32::from_le_bytes)
}

/// Call `each` with every varint of a packed run; false if the run is damaged or `each` says so.
#[inline(always)]
pub fn for_each_varint(data: &[u8], run: Span, mut each: impl FnMut(u64) -> bool) -> bool {
    let mut at = run.at;
    while at < run.end {
        if let Some(window) = data[at..].first_chunk::<8>() {
            let mut word = u64::from_le_bytes(*window);
            // The top bit of each byte of the run that ends a varint.
            let mut stops = !word & 0x8080_8080_8080_8080;
            if run.end - at < 8 {
                stops &= (1 << (8 * (run.end - at))) - 1;
            }
            if stops != 0 {
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
