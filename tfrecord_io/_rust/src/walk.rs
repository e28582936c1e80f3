//! The fast walk over a payload: it expects the shape that the last records had, checks that, and
//! goes on.
//!
//! Records of one file mostly hold the same features in the same order, and most features hold one
//! short value. So each name has a *slot* that remembers which slot followed it last time, and the
//! bytes that stand before a single short value (`Template`); a hit costs a few word compares
//! instead of parsing seven tags and lengths. A miss parses the entry, a name out of order is
//! looked up, and whatever no writer makes (duplicate keys, merged or unpacked lists, unknown
//! fields, damage) makes the walk give up on the record: it returns false and `message.rs` decides
//! what the record means. The walk never accepts what `message.rs` would refuse, except inside
//! features that nobody asked for.

use hashbrown::HashMap;

use crate::canonical::{At, Kind, Span};
use crate::template::Template;

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

/// What is expected of one name. Half a page of slots should stay in the first cache, and finding
/// one be a shift.
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
/// Names that nobody asked for are remembered up to this many, so that hostile files cannot fill
/// the memory.
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

    /// Add a name, or change what is expected under it. `kind`: of its short values, if they are
    /// expected.
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

    /// Walk the payload `data[start..end]`; what stands behind `end` may be looked at, never
    /// believed.
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
            let value_at = at.pos + slot.template.header_len();
            let next = value_at + length;
            if next > at.end {
                return None;
            }
            at.pos = next;
            previous = expected;
            expected = slot.next;
            if let Action::Column(column) = slot.action {
                let value = Span { at: value_at, end: next };
                if !sink.short(column as usize, slot.kind, data, value) {
                    return None;
                }
            } else {
                (at.pos, previous, expected) = skip(&names.slots, at, previous, expected, left)?;
            }
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

/// Go over the next entries, while they are expected and nobody asked for them: where they end, the
/// last one's slot, and what is expected behind it.
///
/// Where each stands depends on the length of the one before, which stays in a register here.
#[inline(never)]
fn skip(
    slots: &[Slot],
    at: At<'_>,
    mut previous: u32,
    mut expected: u32,
    left: &mut usize,
) -> Option<(usize, u32, u32)> {
    let mut rest = &at.data[at.pos..];
    let behind = at.data.len() - at.end;
    let mut count = 0;
    while rest.len() > behind
        && let Some(slot) = slots.get(expected as usize)
        && slot.action == Action::Skip
        && let Some(length) = slot.template.length(rest, 0)
    {
        rest = rest.get(slot.template.header_len() + length..)?;
        previous = expected;
        expected = slot.next;
        count += 1;
    }
    *left = left.checked_sub(count)?;
    (rest.len() >= behind).then_some((at.data.len() - rest.len(), previous, expected))
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
