//! The fast walk over a payload: it expects the shape that the last records had, checks that, and goes on.
//!
//! Records of one file mostly hold the same features in the same order, and most features hold one short value. So each
//! name has a *slot* that remembers which slot followed it last time, and the bytes that stand before a single short
//! value (`Template`); a hit costs a few word compares instead of parsing seven tags and lengths. A miss parses the entry,
//! a name out of order is looked up, and whatever no writer makes (duplicate keys, merged or unpacked lists, unknown
//! fields, damage) makes the walk give up on the record: it returns false and `message.rs` decides what the record means.
//! The walk never accepts what `message.rs` would refuse, except inside features that nobody asked for.

use hashbrown::HashMap;

use crate::wire::LEN;

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
    fn of_tag(tag: u8) -> Option<Self> {
        match tag {
            0x0a => Some(Self::Bytes),
            0x12 => Some(Self::Float),
            0x1a => Some(Self::Int64),
            _ => None,
        }
    }
}

/// What to do with an entry of a known name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nobody asked for it.
    Skip,
    /// It stands where the schema does not expect it: the readable decoder says what that means.
    GiveUp,
    /// It belongs to this column of the sink.
    Column(u32),
}

/// A run of `data` that holds what a kind's list holds: packed numbers, or the entries of a BytesList.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub at: usize,
    pub end: usize,
}

/// Takes the values that the walk finds. Each method returns false to give up on the record.
pub trait Sink {
    /// The bytes of one string, or a run of packed numbers that is not empty.
    fn short(&mut self, column: usize, kind: Kind, data: &[u8], value: Span) -> bool;
    /// A list of any length.
    fn list(&mut self, column: usize, kind: Kind, data: &[u8], list: Span) -> bool;
    /// A feature without a kind.
    fn kindless(&mut self, column: usize) -> bool;
    /// A feature list: the steps of a FeatureList, see `for_each_step`.
    fn feature_list(&mut self, column: usize, data: &[u8], steps: Span) -> bool;
}

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

/// The bytes of an entry before a short string or run of packed numbers, in which every length depends on one byte.
///
/// `0A e 0A K key 12 f kind l 0A v` with l = v + 2, f = v + 4, e = v + K + 8, all below 128; for a skipped feature only
/// `0A e 0A K key 12 f` with e = f + K + 4.
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
    const NEVER: Self = Self {
        words: [Word { bytes: 0, keep: 0, step: 0 }; TEMPLATE_WORDS],
        word_count: 0,
        max_length: 0,
        header_len: 1,
    };

    fn new(key: &[u8], kind: Option<Kind>) -> Self {
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

    /// The bytes before a value of `length` bytes, in two halves; `None` if it is too long for the template.
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
    fn length(&self, data: &[u8], pos: usize) -> Option<usize> {
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

/// What is expected of one name. Half a page of slots should stay in the first cache, and finding one be a shift.
#[derive(Debug)]
#[repr(align(128))]
struct Slot {
    template: Template,
    action: Action,
    /// The slot that followed last time.
    next: u32,
    kind: Kind,
}

/// No slot: the first record, or nothing followed yet.
const UNKNOWN: u32 = u32::MAX;
/// Names that nobody asked for are remembered up to this many, so that hostile files cannot fill the memory.
const MAX_SKIP_SLOTS: usize = 4096;

/// The names of the context, or those of the feature lists.
#[derive(Debug)]
pub struct Names {
    slots: Vec<Slot>,
    keys: Vec<Box<[u8]>>,
    by_key: HashMap<Box<[u8]>, u32>,
    first: u32,
    skip_slots: usize,
    /// Whether an unknown name is skipped (decoding) or makes the walk give up (inference).
    skip_unknown: bool,
}

impl Names {
    pub fn new(skip_unknown: bool) -> Self {
        Self {
            slots: Vec::new(),
            keys: Vec::new(),
            by_key: HashMap::new(),
            first: UNKNOWN,
            skip_slots: 0,
            skip_unknown,
        }
    }

    /// Add a name, or change what is expected under it. `kind`: of its short values, if they are expected.
    pub fn expect(&mut self, key: &[u8], action: Action, kind: Option<Kind>) {
        let template = match (action, kind) {
            (Action::Skip, _) => Template::new(key, None),
            (Action::Column(_), Some(kind)) => Template::new(key, Some(kind)),
            _ => Template::NEVER,
        };
        let kind = kind.unwrap_or(Kind::Bytes);
        if let Some(&known) = self.by_key.get(key) {
            let slot = &mut self.slots[known as usize];
            (slot.template, slot.action, slot.kind) = (template, action, kind);
            return;
        }
        self.by_key.insert(key.into(), self.slots.len() as u32);
        self.slots.push(Slot { template, action, next: UNKNOWN, kind });
        self.keys.push(key.into());
    }

    /// The slot of this key; unknown keys are learned or checked if they may be skipped.
    fn slot_of(&mut self, key: &[u8]) -> Option<Option<u32>> {
        if let Some(&slot) = self.by_key.get(key) {
            return Some(Some(slot));
        }
        if !self.skip_unknown || simdutf8::basic::from_utf8(key).is_err() {
            return None;
        }
        if self.skip_slots == MAX_SKIP_SLOTS {
            return Some(None);
        }
        self.skip_slots += 1;
        self.expect(key, Action::Skip, None);
        Some(Some(self.slots.len() as u32 - 1))
    }

    fn follow(&mut self, previous: u32, slot: u32) {
        if previous == UNKNOWN {
            self.first = slot;
        } else {
            self.slots[previous as usize].next = slot;
        }
    }

    fn next(&self, slot: u32) -> u32 {
        if slot == UNKNOWN { self.first } else { self.slots[slot as usize].next }
    }
}

/// Reads canonical tags and lengths at a position; `None` is anything else.
#[derive(Clone, Copy)]
struct At<'a> {
    data: &'a [u8],
    pos: usize,
    end: usize,
}

impl<'a> At<'a> {
    /// `tag`, a length, and that many bytes within `end`: the bytes, and the position moves behind them.
    #[inline(always)]
    fn delimited(&mut self, tag: u8) -> Option<Span> {
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
    fn last(&mut self, tag: u8) -> Option<Span> {
        self.delimited(tag).filter(|span| span.end == self.end)
    }

    #[inline(always)]
    fn within(&self, span: Span) -> At<'a> {
        At { data: self.data, pos: span.at, end: span.end }
    }

    /// The one kind of a Feature and what its list holds; the inner `None` is a Feature without a kind.
    #[inline(always)]
    fn feature(mut self) -> Option<Option<(Kind, Span)>> {
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

/// The steps of a FeatureList: a list each, or none where a step has no kind. False where something else stands
/// between them.
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

/// What is expected of records, learned from those before.
#[derive(Debug)]
pub struct Walker {
    pub context: Names,
    pub feature_lists: Names,
    is_sequence: bool,
    max_features: usize,
}

impl Walker {
    pub fn new(is_sequence: bool, max_features: usize, skip_unknown: bool) -> Self {
        Self {
            context: Names::new(skip_unknown),
            feature_lists: Names::new(skip_unknown),
            is_sequence,
            max_features,
        }
    }

    /// Walk the payload `data[start..end]`; what stands behind `end` may be looked at, never believed.
    pub fn walk<S: Sink>(&mut self, data: &[u8], start: usize, end: usize, sink: &mut S) -> bool {
        self.try_walk(data, start, end, sink).is_some()
    }

    fn try_walk<S: Sink>(
        &mut self,
        data: &[u8],
        start: usize,
        end: usize,
        sink: &mut S,
    ) -> Option<()> {
        let mut at = At { data, pos: start, end };
        let mut left = self.max_features;
        if at.pos < end && data[at.pos] == 0x0a {
            let features = at.delimited(0x0a)?;
            entries(&mut self.context, at.within(features), &mut left, sink)?;
        }
        if self.is_sequence && at.pos < end {
            let lists = at.last(0x12)?;
            feature_lists(&mut self.feature_lists, at.within(lists), &mut left, sink)?;
        }
        (at.pos == end).then_some(())
    }
}

/// The entries of a Features message.
#[inline(always)]
fn entries<S: Sink>(
    names: &mut Names,
    mut at: At<'_>,
    left: &mut usize,
    sink: &mut S,
) -> Option<()> {
    let data = at.data;
    let mut previous = UNKNOWN;
    let mut expected = names.first;
    while at.pos < at.end {
        *left = left.checked_sub(1)?;
        if let Some(slot) = names.slots.get(expected as usize)
            && let Some(length) = slot.template.length(data, at.pos)
        {
            let value_at = at.pos + usize::from(slot.template.header_len);
            let next = value_at + length;
            if next > at.end {
                return None;
            }
            if let Action::Column(column) = slot.action {
                let value = Span { at: value_at, end: next };
                if !sink.short(column as usize, slot.kind, data, value) {
                    return None;
                }
            }
            at.pos = next;
            previous = expected;
            expected = slot.next;
            continue;
        }
        let entry = at.delimited(0x0a)?;
        let mut fields = at.within(entry);
        let key = fields.delimited(0x0a)?;
        let value = fields.last(0x12)?;
        let slot = known(names, previous, expected, &data[key.at..key.end])?;
        if let Some(slot) = slot {
            match names.slots[slot as usize].action {
                Action::Skip => {}
                Action::GiveUp => return None,
                Action::Column(column) => {
                    let taken = match at.within(value).feature()? {
                        None => sink.kindless(column as usize),
                        Some((kind, list)) => sink.list(column as usize, kind, data, list),
                    };
                    if !taken {
                        return None;
                    }
                }
            }
            previous = slot;
        }
        expected = names.next(previous);
    }
    Some(())
}

/// The slot of `key`, and remember that it follows `previous`.
#[inline(always)]
fn known(names: &mut Names, previous: u32, expected: u32, key: &[u8]) -> Option<Option<u32>> {
    if names.keys.get(expected as usize).is_some_and(|known| **known == *key) {
        return Some(Some(expected));
    }
    let slot = names.slot_of(key)?;
    if let Some(slot) = slot {
        names.follow(previous, slot);
    }
    Some(slot)
}

/// The entries of a FeatureLists message.
fn feature_lists<S: Sink>(
    names: &mut Names,
    mut at: At<'_>,
    left: &mut usize,
    sink: &mut S,
) -> Option<()> {
    let data = at.data;
    let mut previous = UNKNOWN;
    while at.pos < at.end {
        *left = left.checked_sub(1)?;
        let entry = at.delimited(0x0a)?;
        let mut fields = at.within(entry);
        let key = fields.delimited(0x0a)?;
        let value = fields.last(0x12)?;
        let expected = names.next(previous);
        let Some(slot) = known(names, previous, expected, &data[key.at..key.end])? else {
            continue;
        };
        previous = slot;
        let column = match names.slots[slot as usize].action {
            Action::Skip => continue,
            Action::GiveUp => return None,
            Action::Column(column) => column,
        };
        if !sink.feature_list(column as usize, data, value) {
            return None;
        }
    }
    Some(())
}
