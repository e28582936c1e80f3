//! What is seen in records, for `tfrecord_io.infer`.
//!
//! Every payload is held to protobuf's rules. The fast walk confirms that a record shows nothing
//! new; a record that does, or that is out of the ordinary, goes through the readable decoder,
//! which takes the new things in.

use arrow_buffer::Buffer;
use fearless_simd::{Level, Simd, dispatch};
use hashbrown::HashMap;

use crate::canonical::{Kind, Span, for_each_bytes, for_each_step, one_varint};
use crate::error::{Fault, FaultKind, Result};
use crate::framing::{Cursor, HEADER, OVERHEAD};
use crate::message::{Steps, Values};
use crate::packed;
use crate::record::{RecordType, parse};
use crate::walk::{Action, Sink, Unknown, Walker};

/// Where something was seen first: offset and record.
pub type Sighting = (u64, u64);

/// What was seen under one name in one place.
#[derive(Clone, Debug)]
pub struct Feature {
    pub name: String,
    pub is_feature_list: bool,
    pub first: Sighting,
    is_single: bool,
    pub is_utf8: bool,
    /// Kinds seen with values, and kinds seen without any, in the order of first sight.
    pub with_values: Vec<(Kind, Sighting)>,
    pub empty: Vec<(Kind, Sighting)>,
}

/// Keys are UTF-8, or the record would have been refused.
fn name_of(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}

impl Feature {
    fn new(name: String, is_feature_list: bool, first: Sighting) -> Self {
        Self {
            name,
            is_feature_list,
            first,
            is_single: true,
            is_utf8: true,
            with_values: Vec::new(),
            empty: Vec::new(),
        }
    }

    /// Whether each Feature with a kind had one value; of the steps of feature lists nobody asks it.
    pub fn is_single(&self) -> bool {
        self.is_single || self.is_feature_list
    }

    /// What was seen, but for where, as bytes that are equal if that is.
    pub fn traits(&self) -> Vec<u8> {
        let bits = |seen: &[(Kind, Sighting)]| {
            seen.iter().fold(0, |bits, (kind, _)| bits | 1 << *kind as u8)
        };
        let flags = [self.is_feature_list, self.is_single(), self.is_utf8].map(u8::from);
        let kinds = [bits(&self.with_values), bits(&self.empty)];
        [&flags[..], &kinds, self.name.as_bytes()].concat()
    }

    fn has(seen: &[(Kind, Sighting)], kind: Kind) -> bool {
        seen.iter().any(|(held, _)| *held == kind)
    }

    /// Whether a list tells nothing new: well-formed, of a kind and a length seen before.
    #[inline(always)]
    fn knows(&self, kind: Kind, data: &[u8], list: Span) -> bool {
        let count = match kind {
            Kind::Bytes => {
                let mut count = 0;
                let counted = |value| {
                    count += 1;
                    !self.is_utf8 || is_utf8(data, value)
                };
                for_each_bytes(data, list, counted).then_some(count)
            }
            Kind::Float => {
                let bytes = list.end - list.at;
                bytes.is_multiple_of(4).then_some(bytes / 4)
            }
            Kind::Int64 => packed::count(list, data),
        };
        let Some(count) = count else { return false };
        let seen = if count == 0 { &self.empty } else { &self.with_values };
        (count == 1 || !self.is_single) && Self::has(seen, kind)
    }

    fn take_in(&mut self, values: &Values<'_>, place: Sighting) {
        let kind = match values {
            Values::None => return,
            Values::Bytes(values) => {
                self.is_utf8 &= values.iter().all(|v| simdutf8::basic::from_utf8(v).is_ok());
                Kind::Bytes
            }
            Values::Floats(_) => Kind::Float,
            Values::Ints(_) => Kind::Int64,
        };
        self.is_single &= values.len() == 1;
        let seen = if values.is_empty() { &mut self.empty } else { &mut self.with_values };
        if !Self::has(seen, kind) {
            seen.push((kind, place));
        }
    }
}

#[inline(always)]
fn is_utf8(data: &[u8], value: Span) -> bool {
    let length = value.end - value.at;
    if length <= 16
        && let Some(chunk) = data[value.at..].first_chunk::<16>()
    {
        // Of the bytes that belong to the value none has its top bit set: ASCII.
        let tops = u128::from_le_bytes(*chunk) & 0x8080_8080_8080_8080_8080_8080_8080_8080;
        if length == 0 || tops << (8 * (16 - length)) == 0 {
            return true;
        }
    }
    simdutf8::basic::from_utf8(&data[value.at..value.end]).is_ok()
}

/// Looks at frames.
#[derive(Debug)]
pub struct Observer {
    pub cursor: Cursor,
    pub records: u64,
    pub features: Vec<Feature>,
    /// Indices of features, and of feature lists.
    by_name: [HashMap<Box<[u8]>, usize>; 2],
    record_type: RecordType,
    max_features: usize,
    walker: Walker,
}

/// What the readable decoder found under a name.
enum Found<'a> {
    One(&'a Values<'a>),
    Steps(&'a Steps<'a>),
}

/// Confirms what is known already.
struct Known<'a>(&'a [Feature]);

impl Sink for Known<'_> {
    #[inline(always)]
    fn short(&mut self, column: usize, kind: Kind, data: &[u8], value: Span) -> bool {
        // The walk expects short values only of a kind that was seen with values.
        let feature = &self.0[column];
        match kind {
            Kind::Bytes => !feature.is_utf8 || is_utf8(data, value),
            _ if !feature.is_single => feature.knows(kind, data, value),
            Kind::Float => value.end - value.at == 4,
            Kind::Int64 => one_varint(data, value).is_some(),
        }
    }

    #[inline(always)]
    fn list(&mut self, column: usize, kind: Kind, data: &[u8], list: Span) -> bool {
        self.0[column].knows(kind, data, list)
    }

    fn kindless(&mut self, _: usize) -> bool {
        true
    }

    fn feature_list(&mut self, column: usize, data: &[u8], steps: Span) -> bool {
        let feature = &self.0[column];
        for_each_step(data, steps, |step| {
            step.is_none_or(|(kind, list)| feature.knows(kind, data, list))
        })
    }
}

impl Observer {
    pub fn new(record_type: RecordType, max_features: usize, cursor: Cursor) -> Self {
        Self {
            cursor,
            records: 0,
            features: Vec::new(),
            by_name: Default::default(),
            record_type,
            max_features,
            walker: Walker::new(
                record_type == RecordType::SequenceExample,
                max_features,
                Unknown::GiveUp,
            ),
        }
    }

    /// Look at the whole frames of `buffer[start..]`; return the bytes consumed.
    pub fn observe(&mut self, buffer: &Buffer, start: usize) -> Result<usize> {
        dispatch!(Level::new(), simd => self.observe_with(simd, buffer, start))
    }

    #[inline(always)]
    fn observe_with<S: Simd>(&mut self, simd: S, buffer: &Buffer, start: usize) -> Result<usize> {
        let data = buffer.as_slice();
        let mut pos = start;
        let mut checked = start;
        self.cursor.begin();
        while let Some(length) = self.cursor.next_length(data, pos)? {
            if pos >= checked {
                checked = self.cursor.check_payloads(data, pos, length)?;
            }
            let at = pos + HEADER;
            if self.record_type == RecordType::ByteArray {
                self.observe_byte_array();
            } else if self
                .walker
                .walk(simd, data, at, at + length, &mut Known(&self.features))
                .is_none()
            {
                self.observe_message(&data[at..at + length])?;
            }
            self.records += 1;
            self.cursor.advance(length);
            pos += length + OVERHEAD;
        }
        Ok(pos - start)
    }

    /// Opaque bytes are binary whatever they hold.
    fn observe_byte_array(&mut self) {
        if self.features.is_empty() {
            let first = (self.cursor.offset, self.cursor.record);
            self.features.push(Feature {
                is_utf8: false,
                with_values: vec![(Kind::Bytes, first)],
                ..Feature::new("byteArray".to_owned(), false, first)
            });
        }
    }

    #[cold]
    fn observe_message(&mut self, payload: &[u8]) -> Result<()> {
        let message = parse(payload, self.record_type, self.max_features, self.cursor.place())?;
        let sighting = (self.cursor.offset, self.cursor.record);
        let context = message.context.iter().map(|(key, one)| (false, *key, Found::One(one)));
        let lists = message.feature_lists.iter().map(|(key, all)| (true, *key, Found::Steps(all)));
        // Of duplicate keys the last counts, at the place of the first.
        let mut entries: Vec<(bool, &[u8], Found<'_>)> = Vec::new();
        let mut positions: HashMap<(bool, &[u8]), usize> = HashMap::new();
        for entry in context.chain(lists) {
            let position = *positions.entry((entry.0, entry.1)).or_insert(entries.len());
            if position == entries.len() {
                entries.push(entry);
            } else {
                entries[position] = entry;
            }
        }
        self.check_name_count(&entries)?;
        for (is_feature_list, key, found) in entries {
            let known = self.features.len();
            let index = self.feature_at(is_feature_list, key, sighting);
            let feature = &mut self.features[index];
            let kinds = feature.with_values.len();
            match found {
                Found::One(values) => feature.take_in(values, sighting),
                Found::Steps(steps) => steps.each(|values| feature.take_in(values, sighting)),
            }
            if index == known || feature.with_values.len() > kinds {
                self.expect(index);
            }
        }
        Ok(())
    }

    /// A record that has too many new names leaves no trace.
    fn check_name_count(&self, entries: &[(bool, &[u8], Found<'_>)]) -> Result<()> {
        let is_new = |(is_feature_list, key, _): &&(bool, &[u8], Found<'_>)| {
            !self.by_name[usize::from(*is_feature_list)].contains_key(*key)
        };
        let count = self.features.len() + entries.iter().filter(is_new).count();
        if count <= self.max_features {
            return Ok(());
        }
        let what = format!(
            "the records up to here have {count} distinct feature names, max_features is {}; raise max_features, or \
             give a schema",
            self.max_features
        );
        Err(Fault::boxed(FaultKind::Limit, what, self.cursor.place()))
    }

    fn feature_at(&mut self, is_feature_list: bool, key: &[u8], first: Sighting) -> usize {
        let next = self.features.len();
        let index = *self.by_name[usize::from(is_feature_list)].entry_ref(key).or_insert(next);
        if index == next {
            self.features.push(Feature::new(name_of(key), is_feature_list, first));
        }
        index
    }

    /// Let the walk expect what is known of a feature.
    fn expect(&mut self, index: usize) {
        let feature = &self.features[index];
        let single = feature.with_values.last().filter(|_| !feature.is_feature_list);
        let kind = single.map(|(kind, _)| *kind);
        let names = if feature.is_feature_list {
            &mut self.walker.feature_lists
        } else {
            &mut self.walker.context
        };
        names.expect(feature.name.as_bytes(), Action::Column(index as u32), kind);
    }
}
