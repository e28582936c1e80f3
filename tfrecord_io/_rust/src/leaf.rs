//! The values of a column in the making, whatever lists they stand in.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BinaryArray, BinaryViewArray, Float32Array, Float64Array, Int64Array, NullArray,
};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::DataType;

use crate::bytes::ByteBuilder;
use crate::canonical::{Kind, Span, for_each_bytes, for_each_varint, one_float, one_varint};
use crate::message::Values;
use crate::packed::unpack;

/// The largest int that float64 surely holds exactly.
const EXACT: u64 = 1 << 53;

/// The bytes that are being decoded, as a slice and as the buffer that views may point into.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    pub bytes: &'a [u8],
    pub buffer: &'a Buffer,
}

/// The values of a column, whatever lists they stand in.
#[derive(Debug)]
pub enum Leaf {
    Int64(Vec<i64>),
    Float32(Floats),
    Float64(Vec<f64>),
    Bytes(Bytes),
    Views(Views),
    Null(usize),
}

/// Floats as their bytes: runs of them are copied as they are.
#[derive(Debug, Default)]
pub struct Floats(ByteBuilder);

impl Floats {
    const SIZE: usize = size_of::<f32>();

    fn with_capacity(count: usize) -> Self {
        Self(ByteBuilder::with_capacity(count * Self::SIZE))
    }

    fn reserve(&mut self, count: usize) {
        self.0.reserve(count.saturating_mul(Self::SIZE));
    }

    #[inline(always)]
    pub fn len(&self) -> usize {
        self.0.len() / Self::SIZE
    }

    #[inline(always)]
    fn push(&mut self, value: f32) {
        self.push_bits(value.to_bits());
    }

    #[inline(always)]
    fn push_bits(&mut self, bits: u32) {
        self.0.put_chunk(&bits.to_le_bytes(), Self::SIZE);
    }

    fn truncate(&mut self, count: usize) {
        self.0.truncate(count * Self::SIZE);
    }

    /// Push a packed run; false if its last float is not whole.
    #[inline(always)]
    pub fn extend(&mut self, source: &[u8], run: Span) -> bool {
        let is_whole = (run.end - run.at).is_multiple_of(Self::SIZE);
        if is_whole {
            self.0.put_slice(source, run.at, run.end);
        }
        is_whole
    }
}

/// Values copied one behind the other.
#[derive(Debug)]
pub struct Bytes {
    offsets: Vec<i32>,
    data: ByteBuilder,
    is_utf8: bool,
}

impl Bytes {
    #[inline(always)]
    pub fn push(&mut self, source: &[u8], value: Span) {
        self.data.put_slice(source, value.at, value.end);
        self.offsets.push(self.data.len() as i32);
    }

    fn finish(self, nulls: Option<NullBuffer>) -> Result<ArrayRef, NotText> {
        let offsets = OffsetBuffer::new(ScalarBuffer::from(self.offsets));
        let data = self.data.into_buffer();
        let not_text = self.is_utf8.then(|| first_not_text(&offsets, &data)).flatten();
        let Some(at) = not_text else {
            return Ok(Arc::new(BinaryArray::new(offsets, data, nulls)));
        };
        let sound = data.slice_with_length(0, offsets[at] as usize);
        let nulls = nulls.map(|nulls| nulls.slice(0, at));
        Err(NotText { at, before: Arc::new(BinaryArray::new(offsets.slice(0, at), sound, nulls)) })
    }
}

/// A value, or row, that is not UTF-8 where text is asked for.
#[derive(Debug)]
pub struct NotText {
    /// Its index.
    pub at: usize,
    /// Those before it.
    pub before: ArrayRef,
}

/// The index of the first value that is not UTF-8, of those that stand one behind the other.
fn first_not_text(offsets: &[i32], data: &[u8]) -> Option<usize> {
    let is_text = |bytes| simdutf8::basic::from_utf8(bytes).is_ok();
    let begins_character = |at: &i32| data.get(*at as usize).is_none_or(|byte| byte & 0xc0 != 0x80);
    if is_text(data) && offsets.iter().all(begins_character) {
        return None;
    }
    offsets.windows(2).position(|pair| !is_text(&data[pair[0] as usize..pair[1] as usize]))
}

/// Values that point into the input's own bytes, but for short ones, which a view holds itself.
#[derive(Debug)]
pub struct Views {
    views: Vec<u128>,
    blocks: Vec<Buffer>,
    /// The address of the input's first byte and where in it the last block begins.
    block: Option<(usize, usize)>,
    is_utf8: bool,
}

/// Up to this length a view holds the value itself.
const INLINE: usize = 12;

impl Views {
    fn push(&mut self, input: Input<'_>, value: Span) {
        let bytes = &input.bytes[value.at..value.end];
        let length = bytes.len();
        let mut view = [0u8; 16];
        view[..4].copy_from_slice(&(length as u32).to_le_bytes());
        if length <= INLINE {
            view[4..4 + length].copy_from_slice(bytes);
        } else {
            let start = self.block_start(input, value);
            let block = (self.blocks.len() - 1) as u32;
            view[4..8].copy_from_slice(&bytes[..4]);
            view[8..12].copy_from_slice(&block.to_le_bytes());
            view[12..].copy_from_slice(&((value.at - start) as u32).to_le_bytes());
        }
        self.views.push(u128::from_le_bytes(view));
    }

    /// Where the block that holds `value` begins in the input; offsets in a block are 32 bits wide.
    fn block_start(&mut self, input: Input<'_>, value: Span) -> usize {
        let address = input.bytes.as_ptr() as usize;
        match self.block {
            Some((known, start))
                if known == address
                    && value.at >= start
                    && self.blocks.last().is_some_and(|block| value.end - start <= block.len()) =>
            {
                start
            }
            _ => {
                let length = (input.buffer.len() - value.at).min(i32::MAX as usize);
                self.blocks.push(input.buffer.slice_with_length(value.at, length));
                self.block = Some((address, value.at));
                value.at
            }
        }
    }

    fn is_text(view: u128, blocks: &[Buffer]) -> bool {
        let bytes = view.to_le_bytes();
        let [length, block, offset] =
            [0, 8, 12].map(|at| u32::from_le_bytes([0, 1, 2, 3].map(|i| bytes[at + i])) as usize);
        let value = match bytes[4..].get(..length) {
            Some(inline) => inline,
            None => &blocks[block][offset..offset + length],
        };
        simdutf8::basic::from_utf8(value).is_ok()
    }

    fn finish(self, nulls: Option<NullBuffer>) -> Result<ArrayRef, NotText> {
        let Self { views, blocks, is_utf8, .. } = self;
        let not_text =
            is_utf8.then(|| views.iter().position(|view| !Self::is_text(*view, &blocks))).flatten();
        let views = ScalarBuffer::from(views);
        let Some(at) = not_text else {
            return Ok(Arc::new(BinaryViewArray::new(views, blocks, nulls)));
        };
        let nulls = nulls.map(|nulls| nulls.slice(0, at));
        Err(NotText {
            at,
            before: Arc::new(BinaryViewArray::new(views.slice(0, at), blocks, nulls)),
        })
    }
}

/// The type in which a column of this type leaves the kernel: text as binary. The columns check
/// text themselves, and pyarrow is told that it is some: Arrow's own check takes up to ten times as
/// long where characters are not ASCII, and there is no safe way around it.
pub fn carried(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8 => DataType::Binary,
        DataType::Utf8View => DataType::BinaryView,
        DataType::List(item) => {
            let carried = carried(item.data_type());
            DataType::List(Arc::new(item.as_ref().clone().with_data_type(carried)))
        }
        other => other.clone(),
    }
}

/// Room for the next batch, judged by the last one: a little more, so that it seldom has to grow.
pub fn room(held: usize) -> usize {
    held + held / 16
}

impl Leaf {
    /// An empty leaf of a wire type.
    pub fn new(data_type: &DataType) -> Option<Self> {
        let bytes = |is_utf8| {
            Self::Bytes(Bytes { offsets: vec![0], data: ByteBuilder::default(), is_utf8 })
        };
        let views = |is_utf8| {
            Self::Views(Views { views: Vec::new(), blocks: Vec::new(), block: None, is_utf8 })
        };
        Some(match data_type {
            DataType::Int64 => Self::Int64(Vec::new()),
            DataType::Float32 => Self::Float32(Floats::default()),
            DataType::Float64 => Self::Float64(Vec::new()),
            DataType::Binary => bytes(false),
            DataType::Utf8 => bytes(true),
            DataType::BinaryView => views(false),
            DataType::Utf8View => views(true),
            DataType::Null => Self::Null(0),
            _ => return None,
        })
    }

    /// An empty leaf with room for about as many values as this one holds.
    pub fn fresh(&self) -> Self {
        match self {
            Self::Int64(values) => Self::Int64(Vec::with_capacity(room(values.len()))),
            Self::Float32(values) => Self::Float32(Floats::with_capacity(room(values.len()))),
            Self::Float64(values) => Self::Float64(Vec::with_capacity(room(values.len()))),
            Self::Bytes(Bytes { offsets, data, is_utf8 }) => {
                let mut fresh = Vec::with_capacity(room(offsets.len()));
                fresh.push(0);
                let data = ByteBuilder::with_capacity(room(data.len()));
                Self::Bytes(Bytes { offsets: fresh, data, is_utf8: *is_utf8 })
            }
            Self::Views(Views { views, is_utf8, .. }) => Self::Views(Views {
                views: Vec::with_capacity(room(views.len())),
                blocks: Vec::new(),
                block: None,
                is_utf8: *is_utf8,
            }),
            Self::Null(_) => Self::Null(0),
        }
    }

    /// Make room for `factor` times as many values as there are.
    pub fn reserve(&mut self, factor: usize) {
        match self {
            Self::Int64(values) => values.reserve(values.len().saturating_mul(factor)),
            Self::Float32(values) => values.reserve(values.len().saturating_mul(factor)),
            Self::Float64(values) => values.reserve(values.len().saturating_mul(factor)),
            Self::Bytes(bytes) => {
                bytes.offsets.reserve(bytes.offsets.len().saturating_mul(factor));
                bytes.data.reserve(bytes.data.len().saturating_mul(factor));
            }
            Self::Views(views) => views.views.reserve(views.views.len().saturating_mul(factor)),
            Self::Null(_) => {}
        }
    }

    /// The kind that single values are expected to have.
    pub fn kind(&self) -> Option<Kind> {
        match self {
            Self::Int64(_) => Some(Kind::Int64),
            Self::Float32(_) | Self::Float64(_) => Some(Kind::Float),
            Self::Bytes(_) | Self::Views(_) => Some(Kind::Bytes),
            Self::Null(_) => None,
        }
    }

    #[inline(always)]
    pub fn len(&self) -> usize {
        match self {
            Self::Int64(values) => values.len(),
            Self::Float32(values) => values.len(),
            Self::Float64(values) => values.len(),
            Self::Bytes(bytes) => bytes.offsets.len() - 1,
            Self::Views(views) => views.views.len(),
            Self::Null(length) => *length,
        }
    }

    pub fn push_null(&mut self) {
        match self {
            Self::Int64(values) => values.push(0),
            Self::Float32(values) => values.push(0.0),
            Self::Float64(values) => values.push(0.0),
            Self::Bytes(bytes) => bytes.offsets.push(bytes.data.len() as i32),
            Self::Views(views) => views.views.push(0),
            Self::Null(length) => *length += 1,
        }
    }

    pub fn truncate(&mut self, length: usize) {
        match self {
            Self::Int64(values) => values.truncate(length),
            Self::Float32(values) => values.truncate(length),
            Self::Float64(values) => values.truncate(length),
            Self::Bytes(bytes) => {
                bytes.offsets.truncate(length + 1);
                bytes.data.truncate(bytes.offsets[length] as usize);
            }
            Self::Views(views) => views.views.truncate(length),
            Self::Null(held) => *held = length,
        }
    }

    /// Push one value of this leaf's kind in its wire form; false if it is not one.
    #[inline(always)]
    pub fn push_single(&mut self, input: Input<'_>, value: Span) -> bool {
        match self {
            Self::Int64(values) => match one_varint(input.bytes, value) {
                Some(int) => values.push(int as i64),
                None => return false,
            },
            Self::Float32(values) => match one_float(input.bytes, value) {
                Some(float) => values.push(float),
                None => return false,
            },
            Self::Float64(values) => match one_float(input.bytes, value) {
                Some(float) => values.push(f64::from(float)),
                None => return false,
            },
            Self::Bytes(bytes) => bytes.push(input.bytes, value),
            Self::Views(views) => views.push(input, value),
            Self::Null(_) => return false,
        }
        true
    }

    /// Push the values of a list in its wire form; false if they are not of this leaf or not in
    /// that form.
    #[inline(always)]
    pub fn push_list(&mut self, kind: Kind, input: Input<'_>, list: Span) -> bool {
        if list.at == list.end {
            return true;
        }
        match (self, kind) {
            (Self::Int64(values), Kind::Int64) => unpack(list, input.bytes, values),
            (Self::Float32(values), Kind::Float) => values.extend(input.bytes, list),
            (Self::Bytes(bytes), Kind::Bytes) => for_each_bytes(input.bytes, list, |value| {
                bytes.push(input.bytes, value);
                true
            }),
            (Self::Views(views), Kind::Bytes) => for_each_bytes(input.bytes, list, |value| {
                views.push(input, value);
                true
            }),
            (Self::Float64(values), Kind::Float) => {
                let (floats, rest) = input.bytes[list.at..list.end].as_chunks::<4>();
                values.extend(floats.iter().map(|bytes| f64::from(f32::from_le_bytes(*bytes))));
                rest.is_empty()
            }
            (Self::Float64(values), Kind::Int64) => for_each_varint(input.bytes, list, |int| {
                values.push(int as i64 as f64);
                (int as i64).unsigned_abs() <= EXACT
            }),
            _ => false,
        }
    }

    /// Push values that the readable decoder found. `Err` says why they do not fit.
    pub fn push_values(&mut self, values: &Values<'_>, input: Input<'_>) -> Result<(), String> {
        match (self, values) {
            (_, values) if values.is_empty() => {}
            (Self::Int64(held), Values::Ints(ints)) => held.extend_from_slice(ints),
            (Self::Float32(held), Values::Floats(bits)) => {
                bits.iter().for_each(|bits| held.push_bits(*bits));
            }
            (Self::Float64(held), Values::Floats(bits)) => {
                held.extend(bits.iter().map(|bits| f64::from(f32::from_bits(*bits))));
            }
            (Self::Float64(held), Values::Ints(ints)) => {
                if let Some(int) = ints.iter().find(|int| int.unsigned_abs() > EXACT) {
                    return Err(format!(
                        "the int {int} is beyond 2**53, so float64 may not hold it exactly: \
                         leave the feature out, or read it as int64 if no record has floats in it"
                    ));
                }
                held.extend(ints.iter().map(|int| *int as f64));
            }
            (Self::Bytes(held), Values::Bytes(values)) => {
                for value in values {
                    held.push(value, Span { at: 0, end: value.len() });
                }
            }
            (Self::Views(held), Values::Bytes(values)) => {
                let base = input.bytes.as_ptr() as usize;
                for value in values {
                    let at = value.as_ptr() as usize - base;
                    held.push(input, Span { at, end: at + value.len() });
                }
            }
            (leaf, values) => {
                return Err(format!(
                    "the record has a {}, the schema's type is that of {}: give it a type that \
                     fits, or leave it out",
                    values.kind_name(),
                    leaf.kind_name()
                ));
            }
        }
        Ok(())
    }

    /// The kinds that fit: of the column's own type, such as a date, a leaf does not know.
    fn kind_name(&self) -> &'static str {
        match self {
            Self::Int64(_) => "an Int64List",
            Self::Float32(_) => "a FloatList",
            Self::Float64(_) => "a FloatList or Int64List",
            Self::Bytes(_) | Self::Views(_) => "a BytesList",
            Self::Null(_) => "no kind",
        }
    }

    /// The finished array, of the type that `carried` tells, or the first value that is not UTF-8.
    pub fn finish(self, nulls: Option<NullBuffer>) -> Result<ArrayRef, NotText> {
        Ok(match self {
            Self::Int64(values) => Arc::new(Int64Array::new(values.into(), nulls)),
            Self::Float32(values) => {
                Arc::new(Float32Array::new(values.0.into_buffer().into(), nulls))
            }
            Self::Float64(values) => Arc::new(Float64Array::new(values.into(), nulls)),
            Self::Bytes(bytes) => return bytes.finish(nulls),
            Self::Views(views) => return views.finish(nulls),
            Self::Null(length) => Arc::new(NullArray::new(length)),
        })
    }
}
