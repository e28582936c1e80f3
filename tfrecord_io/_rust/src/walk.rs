//! The fast walk over a payload: it expects the shape that the last records had, checks that, and
//! goes on.
//!
//! Records of one file mostly hold the same features in the same order, and most features hold one
//! short value. So each name has a *slot* that remembers which slot follows it, and the bytes that
//! stand before a single short value (`Template`); a hit costs one compare instead of parsing seven
//! tags and lengths. A value is taken to be as long as most of its name: where the next entry stands
//! waits for nothing that a processor is still looking at. Where another feature follows, since one
//! is missing or the writer's map has no order, its slot is found by its name (`Finder`). Any other
//! miss parses the entry, and whatever no writer makes (duplicate keys, merged or unpacked lists,
//! unknown fields, damage) makes the walk give up on the record: it returns `None` and `message.rs`
//! decides what the record means. The walk never accepts what `message.rs` would refuse, except
//! inside features that nobody asked for, and there unless it is told to check them.

use fearless_simd::Simd;
use hashbrown::HashMap;

use crate::canonical::{At, Kind, Span, for_each_bytes, for_each_step};
use crate::finder::Finder;
use crate::packed;
use crate::template::{Guess, Template};

/// What to do with an entry of a known name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nobody asked for it.
    Skip,
    /// Nobody asked for it, and it has to be sound.
    Check,
    /// It stands where the schema does not expect it: the readable decoder says what that means.
    GiveUp,
    /// It belongs to this column of the sink.
    Column(u32),
}

/// What becomes of names that nothing was said of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    GiveUp,
    Skip,
    /// They are skipped if what stands under them is sound.
    Check,
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
    guess: Guess,
    /// Whether guesses were often wrong: then values are measured.
    varies: bool,
    action: Action,
    /// The slot that follows, and whether it is the neighbour and is skipped, or taken, as well.
    next: u32,
    leads_on: bool,
    /// The record in which another followed last, and in how many one did.
    strayed_in: u32,
    strays: u16,
    kind: Kind,
    /// How many guesses were wrong, and the record of the last of them.
    misses: u32,
    missed_in: u32,
}

const _: () = assert!(size_of::<Slot>() == 128);

impl Slot {
    fn new(key: &[u8], action: Action, kind: Option<Kind>) -> Self {
        let template = match action {
            Action::Skip => Template::new(key, None),
            Action::Column(_) => kind.and_then(|kind| Template::new(key, Some(kind))),
            Action::Check | Action::GiveUp => None,
        };
        Self {
            guess: template.map_or(Guess::NEVER, |template| Guess::new(&template)),
            varies: false,
            action,
            next: UNKNOWN,
            leads_on: false,
            strayed_in: 0,
            strays: 0,
            kind: kind.unwrap_or(Kind::Bytes),
            misses: 0,
            missed_in: 0,
        }
    }
}

/// No slot: nothing followed yet.
const UNKNOWN: u32 = u32::MAX;
/// The slot of no name, which the first one of a record follows.
const START: u32 = 0;
/// So often others followed that no slot is expected any more.
const LOST: u16 = u16::MAX;
/// So many wrong guesses of a value's length, or of what follows, are no reason to stop guessing.
const PATIENCE: u32 = 32;
/// Names that nobody asked for are remembered up to this many, and up to this length, so that
/// hostile files cannot fill the memory.
const MAX_SKIP_SLOTS: usize = 4096;
const MAX_SKIP_KEY: usize = 1024;

/// The names of the context, or those of the feature lists.
#[derive(Debug)]
pub struct Names {
    slots: Vec<Slot>,
    keys: Vec<Box<[u8]>>,
    by_key: HashMap<Box<[u8]>, u32>,
    finder: Finder,
    /// What was said of names, met or not.
    actions: HashMap<Box<[u8]>, (Action, Option<Kind>)>,
    skip_slots: usize,
    records: u32,
    unknown: Unknown,
}

impl Names {
    fn new(unknown: Unknown) -> Self {
        Self {
            slots: vec![Slot::new(&[], Action::GiveUp, None)],
            keys: vec![Box::default()],
            by_key: HashMap::new(),
            finder: Finder::new(),
            actions: HashMap::new(),
            skip_slots: 0,
            records: 0,
            unknown,
        }
    }

    /// Say what to do with entries of a name, from now on. `kind`: of its short values, if they are
    /// expected.
    pub fn expect(&mut self, key: &[u8], action: Action, kind: Option<Kind>) {
        self.actions.insert(key.into(), (action, kind));
        if let Some(&slot) = self.by_key.get(key) {
            let slot = &mut self.slots[slot as usize];
            // Strides rely on it.
            assert_eq!(slot.action == Action::Skip, action == Action::Skip, "skipped, or not");
            let Slot { next, leads_on, strayed_in, strays, .. } = *slot;
            *slot = Slot { next, leads_on, strayed_in, strays, ..Slot::new(key, action, kind) };
        }
    }

    /// The slot of this key, which is made when the key is met; the inner `None` is a key that may be
    /// skipped and is not remembered. `None`: give up on the record.
    fn slot_of(&mut self, key: &[u8]) -> Option<Option<u32>> {
        if let Some(&slot) = self.by_key.get(key) {
            return Some(Some(slot));
        }
        let (action, kind) = match self.actions.get(key) {
            Some(said) => *said,
            None if self.unknown == Unknown::GiveUp => return None,
            None if simdutf8::basic::from_utf8(key).is_err() => return None,
            None if self.skip_slots == MAX_SKIP_SLOTS || key.len() > MAX_SKIP_KEY => {
                return Some(None);
            }
            None => {
                self.skip_slots += 1;
                (self.skip(), None)
            }
        };
        let slot = self.slots.len() as u32;
        self.by_key.insert(key.into(), slot);
        self.finder.insert(key, slot);
        self.slots.push(Slot::new(key, action, kind));
        self.keys.push(key.into());
        Some(Some(slot))
    }

    /// What to do with a name that nobody asked for.
    fn skip(&self) -> Action {
        if self.unknown == Unknown::Check { Action::Check } else { Action::Skip }
    }

    /// The slot of an entry that holds one short value, or that nobody asked for, and the length of
    /// the value.
    #[inline(always)]
    fn find<V: Simd>(&self, simd: V, entry: &[u8]) -> Option<(u32, usize)> {
        let slot = self.finder.find(entry)?;
        let length = self.slots[slot as usize].guess.measure(simd, entry)?;
        Some((slot, length))
    }

    /// Learn that a slot follows another, if one has done so that was not expected two times
    /// running: else a feature may only be missing. Where that happens often, none is expected.
    #[inline]
    fn follow(&mut self, previous: u32, slot: u32) {
        let Slot { next, strayed_in, strays, .. } = self.slots[previous as usize];
        if strays == LOST {
            return;
        }
        let is_lost = u32::from(strays) > PATIENCE.max(self.records / 8);
        if is_lost {
            self.lead(previous, UNKNOWN);
        } else if next == UNKNOWN || self.records - strayed_in == 1 {
            self.lead(previous, slot);
        }
        let previous = &mut self.slots[previous as usize];
        previous.strayed_in = self.records;
        previous.strays = if is_lost { LOST } else { (strays + 1).min(LOST - 1) };
    }

    /// Let a new slot follow another, before what did so until now: it was missing there.
    fn insert(&mut self, previous: u32, slot: u32) {
        let behind = self.next(previous);
        self.lead(previous, slot);
        self.lead(slot, behind);
    }

    fn lead(&mut self, previous: u32, slot: u32) {
        let is_skipped = |slot: u32| self.slots[slot as usize].action == Action::Skip;
        let leads_on = slot == previous + 1 && is_skipped(slot) == is_skipped(previous);
        let previous = &mut self.slots[previous as usize];
        (previous.next, previous.leads_on) = (slot, leads_on);
    }

    fn next(&self, slot: u32) -> u32 {
        self.slots[slot as usize].next
    }

    /// Learn from a wrong guess.
    fn learn(&mut self, slot: u32, length: usize) {
        let slot = &mut self.slots[slot as usize];
        slot.misses += 1;
        slot.varies = slot.misses > PATIENCE && slot.misses > self.records / 16;
        if slot.misses == 1 || self.records - slot.missed_in == 1 {
            slot.guess.guess(length);
        }
        slot.missed_in = self.records;
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
    pub fn new(is_sequence: bool, max_features: usize, unknown: Unknown) -> Self {
        Self {
            context: Names::new(unknown),
            feature_lists: Names::new(unknown),
            is_sequence,
            max_features,
        }
    }

    /// Walk the payload `data[start..end]`, or give up on it; what stands behind `end` may be looked
    /// at, never believed.
    #[inline(always)]
    pub fn walk<V: Simd, S: Sink>(
        &mut self,
        simd: V,
        data: &[u8],
        start: usize,
        end: usize,
        sink: &mut S,
    ) -> Option<()> {
        let mut at = At { data, pos: start, end };
        let mut left = self.max_features;
        if at.pos < end && data[at.pos] == 0x0a {
            let features = at.delimited(0x0a)?;
            entries(simd, &mut self.context, at.within(features), &mut left, sink)?;
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
fn entries<V: Simd, S: Sink>(
    simd: V,
    names: &mut Names,
    mut at: At<'_>,
    left: &mut usize,
    sink: &mut S,
) -> Option<()> {
    let data = at.data;
    let mut previous = START;
    let mut expected = names.next(START);
    while at.pos < at.end {
        let slots = names.slots.get(expected as usize..).unwrap_or_default();
        let stride = match slots.first().map(|slot| slot.action) {
            Some(Action::Skip) => simd.vectorize(
                #[inline(always)]
                || stride::<false, _, _>(simd, slots, at, sink),
            )?,
            Some(Action::Column(_)) => stride::<true, _, _>(simd, slots, at, sink)?,
            _ => Stride { strayed: true, ..Stride::default() },
        };
        if stride.entries > 0 {
            *left = left.checked_sub(stride.entries)?;
            at.pos = data.len() - stride.rest;
            previous = expected + stride.entries as u32 - 1;
            expected = names.next(previous);
            if let Some(length) = stride.unexpected {
                names.learn(previous, length);
            }
        }
        if !stride.strayed {
            continue;
        }
        *left = left.checked_sub(1)?;
        if let Some((found, length)) = names.find(simd, &data[at.pos..]) {
            names.follow(previous, found);
            let slot = &names.slots[found as usize];
            let value_at = at.pos + slot.guess.header_len();
            let value = Span { at: value_at, end: value_at + length };
            // The sink looks at nothing behind the end.
            let is_taken = value.end <= at.end
                && match slot.action {
                    Action::Column(column) => sink.short(column as usize, slot.kind, data, value),
                    _ => true,
                };
            if !is_taken {
                return None;
            }
            at.pos = value.end;
            (previous, expected) = (found, slot.next);
            continue;
        }
        let entry = at.delimited(0x0a)?;
        let mut fields = at.within(entry);
        let key = fields.delimited(0x0a)?;
        let value = fields.last(0x12)?;
        let slot = known(names, previous, expected, &data[key.at..key.end])?;
        let is_taken = match slot.map_or(names.skip(), |slot| names.slots[slot as usize].action) {
            Action::Skip => true,
            Action::Check => is_sound(data, at.within(value).feature()?),
            Action::GiveUp => false,
            Action::Column(column) => match at.within(value).feature()? {
                None => sink.kindless(column as usize),
                Some((kind, list)) => sink.list(column as usize, kind, data, list),
            },
        };
        if !is_taken {
            return None;
        }
        previous = slot.unwrap_or(previous);
        expected = names.next(previous);
    }
    names.records = names.records.saturating_add(1);
    Some(())
}

/// Neighbouring entries that looked as expected.
#[derive(Default)]
struct Stride {
    entries: usize,
    /// How many bytes stand behind them.
    rest: usize,
    /// The length of the last value, if another was guessed.
    unexpected: Option<usize>,
    /// Whether they end before an entry that is not the one which was expected.
    strayed: bool,
}

/// Go over the next entries while they are those of `slots`: all are taken, or all skipped.
///
/// Where the length of a value is guessed, where the next entry stands waits for no load.
#[inline(always)]
fn stride<const TAKE: bool, V: Simd, S: Sink>(
    simd: V,
    slots: &[Slot],
    at: At<'_>,
    sink: &mut S,
) -> Option<Stride> {
    let mut rest = &at.data[at.pos..];
    let behind = at.data.len() - at.end;
    let mut entries = 0;
    let mut unexpected = None;
    let mut strayed = false;
    for slot in slots {
        let length = if !slot.varies && slot.guess.is_right(simd, rest) {
            slot.guess.length()
        } else {
            let Some(length) = slot.guess.measure(simd, rest) else {
                strayed = true;
                break;
            };
            if !slot.varies {
                unexpected = Some(length);
            }
            length
        };
        let value_at = at.data.len() - rest.len() + slot.guess.header_len();
        rest = rest.get(slot.guess.header_len() + length..)?;
        if rest.len() < behind {
            return None;
        }
        if TAKE && let Action::Column(column) = slot.action {
            let value = Span { at: value_at, end: value_at + length };
            if !sink.short(column as usize, slot.kind, at.data, value) {
                return None;
            }
        }
        entries += 1;
        if rest.len() == behind || unexpected.is_some() || !slot.leads_on {
            break;
        }
    }
    Some(Stride { entries, rest: rest.len(), unexpected, strayed })
}

/// The slot of `key`, as `slot_of` tells it, and remember that it follows `previous`.
#[inline(always)]
fn known(names: &mut Names, previous: u32, expected: u32, key: &[u8]) -> Option<Option<u32>> {
    if names.keys.get(expected as usize).is_some_and(|known| **known == *key) {
        return Some(Some(expected));
    }
    let count = names.slots.len() as u32;
    let slot = names.slot_of(key)?;
    match slot {
        Some(slot) if slot == count => names.insert(previous, slot),
        Some(slot) => names.follow(previous, slot),
        None => {}
    }
    Some(slot)
}

/// Whether protobuf would take what a Feature holds.
fn is_sound(data: &[u8], feature: Option<(Kind, Span)>) -> bool {
    feature.is_none_or(|(kind, list)| match kind {
        Kind::Bytes => for_each_bytes(data, list, |_| true),
        Kind::Float => (list.end - list.at).is_multiple_of(4),
        Kind::Int64 => packed::count(list, data).is_some(),
    })
}

/// The entries of a FeatureLists message.
fn feature_lists<S: Sink>(
    names: &mut Names,
    mut at: At<'_>,
    left: &mut usize,
    sink: &mut S,
) -> Option<()> {
    let data = at.data;
    let mut previous = START;
    while at.pos < at.end {
        *left = left.checked_sub(1)?;
        let entry = at.delimited(0x0a)?;
        let mut fields = at.within(entry);
        let key = fields.delimited(0x0a)?;
        let value = fields.last(0x12)?;
        let expected = names.next(previous);
        let slot = known(names, previous, expected, &data[key.at..key.end])?;
        let is_taken = match slot.map_or(names.skip(), |slot| names.slots[slot as usize].action) {
            Action::Skip => true,
            Action::Check => for_each_step(data, value, |step| is_sound(data, step)),
            Action::GiveUp => false,
            Action::Column(column) => sink.feature_list(column as usize, data, value),
        };
        if !is_taken {
            return None;
        }
        previous = slot.unwrap_or(previous);
    }
    names.records = names.records.saturating_add(1);
    Some(())
}

#[cfg(test)]
mod tests {
    use fearless_simd::{Level, dispatch};

    use super::*;

    /// Takes everything.
    struct All;

    impl Sink for All {
        fn short(&mut self, _: usize, _: Kind, _: &[u8], _: Span) -> bool {
            true
        }

        fn list(&mut self, _: usize, _: Kind, _: &[u8], _: Span) -> bool {
            true
        }

        fn kindless(&mut self, _: usize) -> bool {
            true
        }

        fn feature_list(&mut self, _: usize, _: &[u8], _: Span) -> bool {
            true
        }
    }

    #[test]
    fn only_some_names_that_nobody_asked_for_are_remembered() {
        let mut names = Names::new(Unknown::Skip);
        let long = [b'a'; MAX_SKIP_KEY + 1];
        assert_eq!(names.slot_of(&long), Some(None));
        assert!(names.slot_of(&long[1..]).flatten().is_some());
        for index in 0..MAX_SKIP_SLOTS {
            names.slot_of(index.to_string().as_bytes());
        }
        assert_eq!(names.slot_of(b"another"), Some(None));
        // Slots have the one that names begin behind, too.
        assert_eq!(names.keys.len(), 1 + MAX_SKIP_SLOTS);
        // What was asked for is remembered in any case.
        names.expect(&long, Action::Column(0), None);
        assert!(names.slot_of(&long).flatten().is_some());
    }

    #[test]
    fn what_follows_is_learned_of_features_and_of_feature_lists() {
        let mut walker = Walker::new(true, 10, Unknown::Check);
        for names in [b"abc", b"abc", b"acb", b"acb"] {
            // Of each name an empty Feature, and a FeatureList without steps.
            let entries: Vec<u8> =
                names.iter().flat_map(|name| [0x0a, 5, 0x0a, 1, *name, 0x12, 0]).collect();
            let part = |tag| [&[tag, entries.len() as u8], &entries[..]].concat();
            let payload = [part(0x0a), part(0x12)].concat();
            let walked = dispatch!(Level::new(), simd => {
                walker.walk(simd, &payload, 0, payload.len(), &mut All)
            });
            assert_eq!(walked, Some(()));
        }
        for names in [&walker.context, &walker.feature_lists] {
            let slot = |name: &[u8]| names.by_key[name];
            assert_eq!(names.next(slot(b"a")), slot(b"c"));
        }
    }
}
