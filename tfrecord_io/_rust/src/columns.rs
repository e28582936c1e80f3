//! Arrow columns in the making: append a row at a time, take back an unfinished row, finish into arrays.

use std::sync::Arc;

use arrow_array::types::{
    BinaryType, BinaryViewType, ByteArrayType, ByteViewType, StringViewType, Utf8Type,
};
use arrow_array::{
    ArrayRef, Float32Array, Float64Array, GenericByteArray, GenericByteViewArray,
    Int64Array, ListArray, NullArray,
};
use arrow_buffer::{Buffer, NullBuffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, FieldRef};

use crate::bytes::ByteBuilder;
use crate::decode::Cells;
use crate::message::Values;
use crate::walk::{Kind, Span, for_each_bytes, for_each_step};
use crate::wire::squeeze;

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
    Float32(Vec<f32>),
    Float64(Vec<f64>),
    Bytes(Bytes),
    Views(Views),
    Null(usize),
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
    fn push(&mut self, source: &[u8], value: Span) {
        self.data.put_slice(source, value.at, value.end);
        self.offsets.push(self.data.len() as i32);
    }

    fn finish<T: ByteArrayType<Offset = i32>>(
        self,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef, usize> {
        let offsets = OffsetBuffer::new(ScalarBuffer::from(self.offsets));
        let data = Buffer::from_vec(self.data.into_vec());
        match GenericByteArray::<T>::try_new(offsets.clone(), data.clone(), nulls) {
            Ok(array) => Ok(Arc::new(array)),
            Err(_) => Err(first_invalid(offsets.windows(2).map(|pair| {
                let (from, to) = (pair[0] as usize, pair[1] as usize);
                &data[from..to]
            }))),
        }
    }
}

/// The index of the first value that is not UTF-8.
fn first_invalid<'a>(mut values: impl Iterator<Item = &'a [u8]>) -> usize {
    values.position(|value| simdutf8::basic::from_utf8(value).is_err()).unwrap_or_default()
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

    fn value(view: u128, blocks: &[Buffer]) -> Vec<u8> {
        let bytes = view.to_le_bytes();
        let length = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
        if length <= INLINE {
            return bytes[4..4 + length].to_vec();
        }
        let block = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]) as usize;
        let offset = u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]) as usize;
        blocks[block][offset..offset + length].to_vec()
    }

    fn finish<T: ByteViewType>(self, nulls: Option<NullBuffer>) -> Result<ArrayRef, usize> {
        let views = ScalarBuffer::from(self.views);
        let blocks = self.blocks;
        match GenericByteViewArray::<T>::try_new(views.clone(), blocks.clone(), nulls) {
            Ok(array) => Ok(Arc::new(array)),
            Err(_) => Err(views
                .iter()
                .position(|view| {
                    simdutf8::basic::from_utf8(&Self::value(*view, &blocks)).is_err()
                })
                .unwrap_or_default()),
        }
    }
}

/// Room for the next batch, judged by the last one: a little more, so that it seldom has to grow.
fn room(held: usize) -> usize {
    held + held / 16
}

impl Leaf {
    /// An empty leaf of a wire type.
    pub fn new(data_type: &DataType) -> Option<Self> {
        let bytes = |is_utf8| Self::Bytes(Bytes { offsets: vec![0], data: ByteBuilder::default(), is_utf8 });
        let views =
            |is_utf8| Self::Views(Views { views: Vec::new(), blocks: Vec::new(), block: None, is_utf8 });
        Some(match data_type {
            DataType::Int64 => Self::Int64(Vec::new()),
            DataType::Float32 => Self::Float32(Vec::new()),
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
    fn fresh(&self) -> Self {
        match self {
            Self::Int64(values) => Self::Int64(Vec::with_capacity(room(values.len()))),
            Self::Float32(values) => Self::Float32(Vec::with_capacity(room(values.len()))),
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
    fn len(&self) -> usize {
        match self {
            Self::Int64(values) => values.len(),
            Self::Float32(values) => values.len(),
            Self::Float64(values) => values.len(),
            Self::Bytes(bytes) => bytes.offsets.len() - 1,
            Self::Views(views) => views.views.len(),
            Self::Null(length) => *length,
        }
    }

    fn push_null(&mut self) {
        match self {
            Self::Int64(values) => values.push(0),
            Self::Float32(values) => values.push(0.0),
            Self::Float64(values) => values.push(0.0),
            Self::Bytes(bytes) => bytes.offsets.push(bytes.data.len() as i32),
            Self::Views(views) => views.views.push(0),
            Self::Null(length) => *length += 1,
        }
    }

    fn truncate(&mut self, length: usize) {
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

    /// Push one value in its wire form; false if it is not one, or not of this leaf.
    #[inline(always)]
    fn push_single(&mut self, kind: Kind, input: Input<'_>, value: Span) -> bool {
        match (self, kind) {
            (Self::Bytes(bytes), Kind::Bytes) => bytes.push(input.bytes, value),
            (Self::Int64(values), Kind::Int64) => match one_varint(input.bytes, value) {
                Some(int) => values.push(int as i64),
                None => return false,
            },
            (Self::Float32(values), Kind::Float) => match one_float(input.bytes, value) {
                Some(float) => values.push(float),
                None => return false,
            },
            (Self::Views(views), Kind::Bytes) => views.push(input, value),
            (Self::Float64(values), Kind::Float) => match one_float(input.bytes, value) {
                Some(float) => values.push(f64::from(float)),
                None => return false,
            },
            (Self::Float64(values), Kind::Int64) => {
                match one_varint(input.bytes, value).map(|int| int as i64) {
                    Some(int) if int.unsigned_abs() <= EXACT => values.push(int as f64),
                    _ => return false,
                }
            }
            _ => return false,
        }
        true
    }

    /// Push the values of a list in its wire form; false if they are not of this leaf or not in that form.
    #[inline(always)]
    fn push_list(&mut self, kind: Kind, input: Input<'_>, list: Span) -> bool {
        if list.at == list.end {
            return true;
        }
        match (self, kind) {
            (Self::Int64(values), Kind::Int64) => extend_ints(values, input.bytes, list),
            (Self::Float32(values), Kind::Float) => extend_floats(values, input.bytes, list),
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
    fn push_values(&mut self, values: &Values<'_>, input: Input<'_>) -> Result<(), String> {
        match (self, values) {
            (_, values) if values.is_empty() => {}
            (Self::Int64(held), Values::Ints(ints)) => held.extend_from_slice(ints),
            (Self::Float32(held), Values::Floats(bits)) => {
                held.extend(bits.iter().map(|bits| f32::from_bits(*bits)));
            }
            (Self::Float64(held), Values::Floats(bits)) => {
                held.extend(bits.iter().map(|bits| f64::from(f32::from_bits(*bits))));
            }
            (Self::Float64(held), Values::Ints(ints)) => {
                if let Some(int) = ints.iter().find(|int| int.unsigned_abs() > EXACT) {
                    return Err(format!(
                        "the int {int} is beyond 2**53, so float64 may not hold it exactly; \
                         read the feature as int64"
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
                    "the record has a {}, the schema asks for {}",
                    values.kind_name(),
                    leaf.type_name()
                ));
            }
        }
        Ok(())
    }

    fn type_name(&self) -> &'static str {
        match self {
            Self::Int64(_) => "int64 (Int64List)",
            Self::Float32(_) => "float32 (FloatList)",
            Self::Float64(_) => "float64 (FloatList or Int64List)",
            Self::Bytes(Bytes { is_utf8: false, .. }) => "binary (BytesList)",
            Self::Bytes(_) => "string (BytesList)",
            Self::Views(Views { is_utf8: false, .. }) => "binary_view (BytesList)",
            Self::Views(_) => "string_view (BytesList)",
            Self::Null(_) => "null (no kind)",
        }
    }

    /// The finished array, or the index of the first value that is not UTF-8.
    fn finish(self, nulls: Option<NullBuffer>) -> Result<ArrayRef, usize> {
        Ok(match self {
            Self::Int64(values) => Arc::new(Int64Array::new(values.into(), nulls)),
            Self::Float32(values) => Arc::new(Float32Array::new(values.into(), nulls)),
            Self::Float64(values) => Arc::new(Float64Array::new(values.into(), nulls)),
            Self::Bytes(bytes) if bytes.is_utf8 => return bytes.finish::<Utf8Type>(nulls),
            Self::Bytes(bytes) => return bytes.finish::<BinaryType>(nulls),
            Self::Views(views) if views.is_utf8 => return views.finish::<StringViewType>(nulls),
            Self::Views(views) => return views.finish::<BinaryViewType>(nulls),
            Self::Null(length) => Arc::new(NullArray::new(length)),
        })
    }
}

/// Call `push` with each cell until one does not fit.
#[inline(always)]
fn fill(cells: Cells<'_>, mut push: impl FnMut(Option<Span>) -> bool) -> bool {
    for cell in cells.iter() {
        if !push(cell) {
            return false;
        }
    }
    true
}

#[inline(always)]
fn extend_ints(values: &mut Vec<i64>, source: &[u8], run: Span) -> bool {
    values.reserve(run.end - run.at);
    for_each_varint(source, run, |int| {
        values.push(int as i64);
        true
    })
}

#[inline(always)]
fn extend_floats(values: &mut Vec<f32>, source: &[u8], run: Span) -> bool {
    let (floats, rest) = source[run.at..run.end].as_chunks::<4>();
    values.extend(floats.iter().map(|bytes| f32::from_le_bytes(*bytes)));
    rest.is_empty()
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
fn one_float(data: &[u8], value: Span) -> Option<f32> {
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

/// How the values of a column nest.
#[derive(Debug)]
enum Nesting {
    /// One value a row.
    Bare,
    /// One list a row.
    List(Lists),
    /// One list of lists a row: the steps of a feature list.
    Steps { outer: Lists, inner: Lists, inner_nulls: NullBufferBuilder },
}

/// Where lists end.
#[derive(Debug)]
struct Lists {
    ends: Vec<i32>,
    field: FieldRef,
}

impl Lists {
    fn new(field: &FieldRef, capacity: usize) -> Self {
        let mut ends = Vec::with_capacity(capacity + 1);
        ends.push(0);
        Self { ends, field: field.clone() }
    }

    fn fresh(&self) -> Self {
        Self::new(&self.field, room(self.count()))
    }

    #[inline(always)]
    fn close(&mut self, end: usize) {
        self.ends.push(end as i32);
    }

    fn count(&self) -> usize {
        self.ends.len() - 1
    }

    /// Keep this many lists and return how many elements they hold.
    fn truncate(&mut self, count: usize) -> usize {
        self.ends.truncate(count + 1);
        self.ends[count] as usize
    }

    /// The list that holds an element.
    fn list_of(&self, element: usize) -> usize {
        self.ends.partition_point(|end| *end as usize <= element) - 1
    }

    fn finish(self, values: ArrayRef, nulls: Option<NullBuffer>) -> ArrayRef {
        let offsets = OffsetBuffer::new(ScalarBuffer::from(self.ends));
        Arc::new(ListArray::new(self.field, offsets, values, nulls))
    }
}

/// One column of the batch that is being decoded.
#[derive(Debug)]
pub struct Column {
    pub name: Box<[u8]>,
    pub rows: usize,
    nesting: Nesting,
    leaf: Leaf,
    nulls: NullBufferBuilder,
}

impl Column {
    /// An empty column of a wire type; `None` for any other type.
    pub fn new(name: &str, data_type: &DataType) -> Option<Self> {
        let (nesting, leaf) = match data_type {
            DataType::List(outer) => match outer.data_type() {
                DataType::List(inner) => {
                    let nesting = Nesting::Steps {
                        outer: Lists::new(outer, 0),
                        inner: Lists::new(inner, 0),
                        inner_nulls: NullBufferBuilder::new(0),
                    };
                    (nesting, inner.data_type())
                }
                leaf => (Nesting::List(Lists::new(outer, 0)), leaf),
            },
            leaf => (Nesting::Bare, leaf),
        };
        Some(Self {
            name: name.as_bytes().into(),
            rows: 0,
            nesting,
            leaf: Leaf::new(leaf)?,
            nulls: NullBufferBuilder::new(0),
        })
    }

    /// An empty column like this one, with room for about as many rows.
    pub fn fresh(&self) -> Self {
        let nesting = match &self.nesting {
            Nesting::Bare => Nesting::Bare,
            Nesting::List(lists) => Nesting::List(lists.fresh()),
            Nesting::Steps { outer, inner, .. } => Nesting::Steps {
                outer: outer.fresh(),
                inner: inner.fresh(),
                inner_nulls: NullBufferBuilder::new(0),
            },
        };
        Self {
            name: self.name.clone(),
            rows: 0,
            nesting,
            leaf: self.leaf.fresh(),
            nulls: NullBufferBuilder::new(0),
        }
    }

    /// Whether it reads feature lists.
    pub fn is_feature_list(&self) -> bool {
        matches!(self.nesting, Nesting::Steps { .. })
    }

    /// The kind of the short values that are expected: single ones, or short runs of packed numbers.
    pub fn short_kind(&self) -> Option<Kind> {
        let kind = self.leaf.kind()?;
        match self.nesting {
            Nesting::Bare => Some(kind),
            Nesting::List(_) if kind != Kind::Bytes => Some(kind),
            _ => None,
        }
    }

    /// The kind that features of this column have, if there is only one.
    pub fn kind(&self) -> Option<Kind> {
        self.leaf.kind()
    }

    /// Whether a row has one value, not a list.
    pub fn is_bare(&self) -> bool {
        matches!(self.nesting, Nesting::Bare)
    }

    fn end_row(&mut self) {
        self.nulls.append_non_null();
        self.rows += 1;
    }

    pub fn push_null(&mut self) {
        match &mut self.nesting {
            Nesting::Bare => self.leaf.push_null(),
            Nesting::List(lists) => lists.close(self.leaf.len()),
            Nesting::Steps { outer, inner, .. } => outer.close(inner.count()),
        }
        self.nulls.append_null();
        self.rows += 1;
    }

    /// Push a row for each cell; false if one does not fit, and then some rows may have been pushed.
    ///
    /// A cell is what the walk found: the bytes of one string, a run of packed numbers, the entries of a BytesList for a
    /// list of bytes, the steps of a feature list; or nothing, which is null. The loops stand apart for the types that most
    /// columns have, so that nothing is decided anew for each cell.
    pub fn extend(&mut self, cells: Cells<'_>, input: Input<'_>) -> bool {
        // The walk finds no values for a leaf that takes no kind.
        let kind = self.leaf.kind().unwrap_or(Kind::Bytes);
        let source = input.bytes;
        let fits = match (&mut self.nesting, &mut self.leaf) {
            (Nesting::Bare, Leaf::Int64(values)) => fill(cells, |cell| match cell {
                Some(value) => {
                    one_varint(source, value).map(|int| values.push(int as i64)).is_some()
                }
                None => {
                    values.push(0);
                    true
                }
            }),
            (Nesting::Bare, Leaf::Bytes(bytes)) => fill(cells, |cell| {
                bytes.push(source, cell.unwrap_or(Span { at: 0, end: 0 }));
                true
            }),
            (Nesting::Bare, leaf) => fill(cells, |cell| match cell {
                Some(value) => leaf.push_single(kind, input, value),
                None => {
                    leaf.push_null();
                    true
                }
            }),
            (Nesting::List(lists), Leaf::Int64(values)) => fill(cells, |cell| {
                let fits = cell.is_none_or(|run| extend_ints(values, source, run));
                lists.close(values.len());
                fits
            }),
            (Nesting::List(lists), Leaf::Float32(values)) => fill(cells, |cell| {
                let fits = cell.is_none_or(|run| extend_floats(values, source, run));
                lists.close(values.len());
                fits
            }),
            (Nesting::List(lists), leaf) => fill(cells, |cell| {
                let fits = cell.is_none_or(|list| leaf.push_list(kind, input, list));
                lists.close(leaf.len());
                fits
            }),
            (Nesting::Steps { outer, inner, inner_nulls }, leaf) => fill(cells, |cell| {
                let fits = cell.is_none_or(|steps| {
                    for_each_step(source, steps, |step| {
                        inner_nulls.append(step.is_some());
                        let fits = step.is_none_or(|(kind, list)| leaf.push_list(kind, input, list));
                        inner.close(leaf.len());
                        fits
                    })
                });
                outer.close(inner.count());
                fits
            }),
        };
        if cells.is_valid().all(|is_valid| is_valid) {
            self.nulls.append_n_non_nulls(cells.len());
        } else {
            cells.is_valid().for_each(|is_valid| self.nulls.append(is_valid));
        }
        self.rows += cells.len();
        fits
    }

    /// Push a row of what the readable decoder found under the column's name.
    pub fn push_feature(&mut self, values: &Values<'_>, input: Input<'_>) -> Result<(), String> {
        if *values == Values::None {
            self.push_null();
            return Ok(());
        }
        if matches!(self.nesting, Nesting::Bare) && values.len() != 1 {
            return Err(format!(
                "the record has {} values, the schema asks for one ({}); ask for a list of it",
                values.len(),
                self.leaf.type_name()
            ));
        }
        self.leaf.push_values(values, input)?;
        if let Nesting::List(lists) = &mut self.nesting {
            lists.close(self.leaf.len());
        }
        self.end_row();
        Ok(())
    }

    /// The same for a feature list.
    pub fn push_feature_list(
        &mut self,
        steps: &[Values<'_>],
        input: Input<'_>,
    ) -> Result<(), String> {
        if let Nesting::Steps { outer, inner, inner_nulls } = &mut self.nesting {
            for values in steps {
                inner_nulls.append(*values != Values::None);
                self.leaf.push_values(values, input)?;
                inner.close(self.leaf.len());
            }
            outer.close(inner.count());
        }
        self.end_row();
        Ok(())
    }

    /// Take back all but the first rows, and what an unfinished row has left.
    pub fn truncate(&mut self, rows: usize) {
        let values = match &mut self.nesting {
            Nesting::Bare => rows,
            Nesting::List(lists) => lists.truncate(rows),
            Nesting::Steps { outer, inner, inner_nulls } => {
                let steps = outer.truncate(rows);
                inner_nulls.truncate(steps);
                inner.truncate(steps)
            }
        };
        self.leaf.truncate(values);
        self.nulls.truncate(rows);
        self.rows = rows;
    }

    /// The finished array; or the first row that holds a string that is not UTF-8.
    pub fn finish(mut self) -> Result<ArrayRef, usize> {
        let nulls = self.nulls.finish();
        match self.nesting {
            Nesting::Bare => self.leaf.finish(nulls),
            Nesting::List(lists) => match self.leaf.finish(None) {
                Ok(values) => Ok(lists.finish(values, nulls)),
                Err(value) => Err(lists.list_of(value)),
            },
            Nesting::Steps { outer, inner, mut inner_nulls } => match self.leaf.finish(None) {
                Ok(values) => {
                    let steps = inner.finish(values, inner_nulls.finish());
                    Ok(outer.finish(steps, nulls))
                }
                Err(value) => Err(outer.list_of(inner.list_of(value))),
            },
        }
    }
}
