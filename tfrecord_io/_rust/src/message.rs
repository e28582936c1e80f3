//! The readable decoder of Example and SequenceExample: every form that protobuf allows, entry by
//! entry.
//!
//! Everything that is out of the ordinary ends here: the fast walk in `walk.rs` gives up on a
//! record that does not look like one that any writer makes, and this module then says what it
//! means, or that it is malformed. It is the definition that the fast walk must agree with.

use std::mem::discriminant;

use crate::wire::{FIXED32, LEN, Malformed, Reader, Result, Tag, VARINT};

/// What a Feature holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Values<'a> {
    /// No kind is set.
    None,
    Bytes(Vec<&'a [u8]>),
    /// The bits of the floats.
    Floats(Vec<u32>),
    Ints(Vec<i64>),
}

impl Values<'_> {
    pub fn len(&self) -> usize {
        match self {
            Values::None => 0,
            Values::Bytes(values) => values.len(),
            Values::Floats(values) => values.len(),
            Values::Ints(values) => values.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The name of the message that holds the values.
    pub fn kind_name(&self) -> &'static str {
        match self {
            Values::None => "Feature without a kind",
            Values::Bytes(_) => "BytesList",
            Values::Floats(_) => "FloatList",
            Values::Ints(_) => "Int64List",
        }
    }
}

/// The steps of a feature list, as bytes that are known to be sound.
///
/// A step may be two bytes, so that a record's steps are not held as values, but one at a time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Steps<'a> {
    /// The FeatureList messages that merge; those without steps are left out.
    lists: Vec<&'a [u8]>,
}

impl<'a> Steps<'a> {
    pub fn each(&self, mut take: impl FnMut(&Values<'a>)) {
        for bytes in &self.lists {
            let sound = each_step(bytes, |values| take(&values));
            debug_assert!(sound.is_ok());
        }
    }
}

/// A record's entries in the order of the wire, duplicates of a key included (the last counts).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Message<'a> {
    pub context: Vec<(&'a [u8], Values<'a>)>,
    pub feature_lists: Vec<(&'a [u8], Steps<'a>)>,
    /// How many entries there are, those that upb takes for unknown fields included.
    pub context_entries: usize,
    pub feature_list_entries: usize,
    /// Only the first so many entries are held.
    most: usize,
}

impl<'a> Message<'a> {
    /// An Example or a SequenceExample with its first `most` entries: an entry may be two bytes.
    pub fn parse(payload: &'a [u8], is_sequence: bool, most: usize) -> Result<Self> {
        let mut message = Self { most, ..Self::default() };
        fields(payload, 0, |reader, tag| {
            if tag.is_len(1) {
                features(reader.delimited()?, &mut message)?;
            } else if is_sequence && tag.is_len(2) {
                feature_lists(reader.delimited()?, &mut message)?;
            } else {
                return Ok(false);
            }
            Ok(true)
        })?;
        Ok(message)
    }
}

/// Whether a message has a field that in a SequenceExample holds feature lists.
pub fn may_have_feature_lists(payload: &[u8]) -> bool {
    let mut found = false;
    let looked = fields(payload, 0, |_, tag| {
        found |= tag.is_len(2);
        Ok(false)
    });
    looked.is_ok() && found
}

/// Call `known` for each field of a message; it returns whether it took the value. Others are
/// skipped.
fn fields<'a>(
    bytes: &'a [u8],
    depth: u32,
    mut known: impl FnMut(&mut Reader<'a>, Tag) -> Result<bool>,
) -> Result<()> {
    let mut reader = Reader::new(bytes);
    while !reader.is_done() {
        let tag = reader.tag()?;
        if !known(&mut reader, tag)? {
            reader.skip(tag, depth)?;
        }
    }
    Ok(())
}

/// Call `take` with what each field 1 of a message holds, one that a length stands before.
fn each_first<'a>(
    bytes: &'a [u8],
    depth: u32,
    mut take: impl FnMut(&'a [u8]) -> Result<()>,
) -> Result<()> {
    fields(bytes, depth, |reader, tag| {
        if !tag.is_len(1) {
            return Ok(false);
        }
        take(reader.delimited()?)?;
        Ok(true)
    })
}

/// A map entry: its key and, merged in place, its value. Either may be absent.
///
/// upb takes an entry that has unknown fields itself for an unknown field: then there is no key.
fn entry<'a>(
    bytes: &'a [u8],
    mut value: impl FnMut(&'a [u8]) -> Result<()>,
) -> Result<Option<&'a [u8]>> {
    let mut key: &[u8] = b"";
    let mut is_known = true;
    fields(bytes, 2, |reader, tag| {
        if tag.is_len(1) {
            key = reader.delimited()?;
            simdutf8::basic::from_utf8(key).map_err(|_| Malformed)?;
        } else if tag.is_len(2) {
            value(reader.delimited()?)?;
        } else {
            is_known = false;
            return Ok(false);
        }
        Ok(true)
    })?;
    Ok(is_known.then_some(key))
}

fn features<'a>(bytes: &'a [u8], message: &mut Message<'a>) -> Result<()> {
    each_first(bytes, 1, |bytes| {
        let mut values = Values::None;
        let key = entry(bytes, |bytes| feature(bytes, 3, &mut values))?;
        message.context_entries += 1;
        if message.context_entries <= message.most {
            message.context.extend(key.map(|key| (key, values)));
        }
        Ok(())
    })
}

fn feature_lists<'a>(bytes: &'a [u8], message: &mut Message<'a>) -> Result<()> {
    each_first(bytes, 1, |bytes| {
        let mut steps = Steps::default();
        let key = entry(bytes, |bytes| {
            let mut has_steps = false;
            each_step(bytes, |_| has_steps = true)?;
            steps.lists.extend(has_steps.then_some(bytes));
            Ok(())
        })?;
        message.feature_list_entries += 1;
        if message.feature_list_entries <= message.most {
            message.feature_lists.extend(key.map(|key| (key, steps)));
        }
        Ok(())
    })
}

/// Call `take` for each Feature of a FeatureList.
fn each_step<'a>(bytes: &'a [u8], mut take: impl FnMut(Values<'a>)) -> Result<()> {
    each_first(bytes, 3, |bytes| {
        let mut values = Values::None;
        feature(bytes, 4, &mut values)?;
        take(values);
        Ok(())
    })
}

/// Merge a Feature's bytes into `values`: the same kind again appends, another kind replaces.
fn feature<'a>(bytes: &'a [u8], depth: u32, values: &mut Values<'a>) -> Result<()> {
    fields(bytes, depth, |reader, tag| {
        let empty = match tag {
            Tag { field: 1, wire_type: LEN } => Values::Bytes(Vec::new()),
            Tag { field: 2, wire_type: LEN } => Values::Floats(Vec::new()),
            Tag { field: 3, wire_type: LEN } => Values::Ints(Vec::new()),
            _ => return Ok(false),
        };
        if discriminant(values) != discriminant(&empty) {
            *values = empty;
        }
        let list = reader.delimited()?;
        match values {
            Values::None => {}
            Values::Bytes(held) => bytes_list(list, depth + 1, held)?,
            Values::Floats(held) => float_list(list, depth + 1, held)?,
            Values::Ints(held) => int64_list(list, depth + 1, held)?,
        }
        Ok(true)
    })
}

fn bytes_list<'a>(bytes: &'a [u8], depth: u32, into: &mut Vec<&'a [u8]>) -> Result<()> {
    each_first(bytes, depth, |value| {
        into.push(value);
        Ok(())
    })
}

fn float_list(bytes: &[u8], depth: u32, into: &mut Vec<u32>) -> Result<()> {
    fields(bytes, depth, |reader, tag| {
        match (tag.field, tag.wire_type) {
            (1, LEN) => {
                let packed = reader.delimited()?;
                if packed.len() % 4 != 0 {
                    return Err(Malformed);
                }
                let (chunks, _) = packed.as_chunks::<4>();
                into.extend(chunks.iter().map(|bytes| u32::from_le_bytes(*bytes)));
            }
            (1, FIXED32) => into.push(reader.fixed32()?),
            _ => return Ok(false),
        }
        Ok(true)
    })
}

fn int64_list(bytes: &[u8], depth: u32, into: &mut Vec<i64>) -> Result<()> {
    fields(bytes, depth, |reader, tag| {
        match (tag.field, tag.wire_type) {
            (1, LEN) => {
                let mut packed = Reader::new(reader.delimited()?);
                while !packed.is_done() {
                    into.push(packed.varint()? as i64);
                }
            }
            (1, VARINT) => into.push(reader.varint()? as i64),
            _ => return Ok(false),
        }
        Ok(true)
    })
}
