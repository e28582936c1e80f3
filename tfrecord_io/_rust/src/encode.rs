//! Record batches to framed records.
//!
//! A block of rows at a time, and in it column by column, so that nothing is decided anew for each value: first all sizes
//! (every length of a record stands before what it measures), then the bytes, each row's at its own place. Features in the
//! order of the columns, numbers packed, nulls left out: the bytes that spark-tfrecord writes. A short value is written
//! behind a template of words in which the lengths depend on one byte, see `walk.rs`.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_buffer::{Buffer, NullBuffer};
use arrow_schema::DataType;

use crate::bytes::SHORT;
use crate::decode::RecordType;
use crate::error::{Fault, FaultKind, Place, Result};
use crate::framing::{HEADER, header, masked_crc};
use crate::walk::{Kind, Template};
use crate::wire::spread;

/// No protobuf reader takes a longer message.
const MAX_PAYLOAD: usize = i32::MAX as usize;

/// The values of a column, whatever lists they stand in.
enum Values<'a> {
    Int64(&'a [i64]),
    /// Float32 as its bytes.
    Float32(&'a [u8]),
    Bytes { offsets: Offsets<'a>, data: &'a [u8] },
    Null,
}

/// Where runs of elements begin and end.
enum Offsets<'a> {
    Narrow(&'a [i32]),
    Wide(&'a [i64]),
    Fixed(usize),
}

impl Offsets<'_> {
    #[inline(always)]
    fn get(&self, index: usize) -> (usize, usize) {
        match self {
            Self::Narrow(ends) => (ends[index] as usize, ends[index + 1] as usize),
            Self::Wide(ends) => (ends[index] as usize, ends[index + 1] as usize),
            Self::Fixed(size) => (index * size, (index + 1) * size),
        }
    }
}

/// Lists of one level.
struct Lists<'a> {
    offsets: Offsets<'a>,
    nulls: Option<&'a NullBuffer>,
}

enum Nesting<'a> {
    Bare,
    List(Lists<'a>),
    Steps { outer: Lists<'a>, inner: Lists<'a> },
}

struct Column<'a> {
    name: &'a str,
    nesting: Nesting<'a>,
    values: Values<'a>,
    nulls: Option<&'a NullBuffer>,
    /// `0A K key`.
    key: Vec<u8>,
    /// The tag of the kind in a Feature.
    kind: u8,
    template: Option<Template>,
}

#[inline(always)]
fn varint_len(value: u64) -> usize {
    // 7 bits a byte; one byte for 0.
    ((64 - (value | 1).leading_zeros() as usize) * 9 + 64) / 64
}

/// The size of a length-delimited field: tag, length, content.
#[inline(always)]
fn delimited_len(content: usize) -> usize {
    1 + varint_len(content as u64) + content
}

/// Writes into a record from front to back; what stands behind the pen is still to be written.
struct Pen<'a> {
    out: &'a mut [u8],
    pos: usize,
    /// The end of the record. A short value may be stored with whatever stands behind it, up to here.
    end: usize,
}

impl Pen<'_> {
    /// Write the first `count` bytes of `chunk`.
    #[inline(always)]
    fn chunk<const N: usize>(&mut self, chunk: &[u8; N], count: usize) {
        if self.pos + N <= self.end {
            // A copy of constant size is an instruction, one of variable size a call.
            self.out[self.pos..][..N].copy_from_slice(chunk);
        } else {
            self.out[self.pos..][..count].copy_from_slice(&chunk[..count]);
        }
        self.pos += count;
    }

    #[inline(always)]
    fn slice(&mut self, source: &[u8], from: usize, to: usize) {
        let count = to - from;
        if count <= SHORT
            && let Some(chunk) = source[from..].first_chunk::<SHORT>()
        {
            self.chunk(chunk, count);
        } else {
            self.out[self.pos..][..count].copy_from_slice(&source[from..to]);
            self.pos += count;
        }
    }

    /// Up to eight bytes are stored at once.
    #[inline(always)]
    fn varint(&mut self, mut value: u64) {
        if value < 1 << 56 {
            let count = varint_len(value);
            // All bytes but the last continue.
            let continues = 0x8080_8080_8080_8080 & ((1u64 << (8 * count - 8)) - 1);
            return self.chunk(&(spread(value) | continues).to_le_bytes(), count);
        }
        while value >= 0x80 {
            self.chunk(&[value as u8 | 0x80], 1);
            value >>= 7;
        }
        self.chunk(&[value as u8], 1);
    }

    /// Write what stands before a value of `length` bytes; false if it is too long for the template.
    #[inline(always)]
    fn template(&mut self, template: &Template, length: usize) -> bool {
        let Some((low, high)) = template.header(length) else { return false };
        let count = template.header_len();
        self.chunk(&low, count.min(16));
        if count > 16 {
            self.chunk(&high, count - 16);
        }
        true
    }

    #[inline(always)]
    fn tag(&mut self, tag: u8, length: usize) {
        if length < 0x80 {
            self.chunk(&[tag, length as u8], 2);
        } else {
            self.chunk(&[tag], 1);
            self.varint(length as u64);
        }
    }
}

fn lists_of(array: &ArrayRef) -> Option<(Lists<'_>, &ArrayRef)> {
    Some(match array.data_type() {
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let offsets = Offsets::Narrow(list.value_offsets());
            (Lists { offsets, nulls: list.nulls() }, list.values())
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            let offsets = Offsets::Wide(list.value_offsets());
            (Lists { offsets, nulls: list.nulls() }, list.values())
        }
        DataType::FixedSizeList(_, size) => {
            let list = array.as_fixed_size_list();
            (Lists { offsets: Offsets::Fixed(*size as usize), nulls: list.nulls() }, list.values())
        }
        _ => return None,
    })
}

fn values_of(array: &ArrayRef) -> Option<(Values<'_>, Option<Kind>)> {
    Some(match array.data_type() {
        DataType::Int64 => {
            (Values::Int64(array.as_primitive::<Int64Type>().values()), Some(Kind::Int64))
        }
        DataType::Float32 => {
            let floats = array.as_primitive::<Float32Type>().values().inner();
            (Values::Float32(floats.as_slice()), Some(Kind::Float))
        }
        DataType::Binary => {
            let bytes = array.as_binary::<i32>();
            let offsets = Offsets::Narrow(bytes.value_offsets());
            (Values::Bytes { offsets, data: bytes.value_data() }, Some(Kind::Bytes))
        }
        DataType::LargeBinary => {
            let bytes = array.as_binary::<i64>();
            let offsets = Offsets::Wide(bytes.value_offsets());
            (Values::Bytes { offsets, data: bytes.value_data() }, Some(Kind::Bytes))
        }
        DataType::Null => (Values::Null, None),
        _ => return None,
    })
}

impl<'a> Column<'a> {
    fn new(name: &'a str, array: &'a ArrayRef) -> Option<Self> {
        let (nesting, leaf) = match lists_of(array) {
            None => (Nesting::Bare, array),
            Some((outer, elements)) => match lists_of(elements) {
                None => (Nesting::List(outer), elements),
                Some((inner, values)) => (Nesting::Steps { outer, inner }, values),
            },
        };
        let (values, kind) = values_of(leaf)?;
        let mut key = vec![0; delimited_len(name.len())];
        let end = key.len();
        let mut pen = Pen { out: &mut key, pos: 0, end };
        pen.tag(0x0a, name.len());
        pen.slice(name.as_bytes(), 0, name.len());
        let template = match (&nesting, kind) {
            (Nesting::Bare, Some(kind)) => Template::of_single(name.as_bytes(), kind),
            _ => None,
        };
        let kind = kind.map_or(0, Kind::tag);
        Some(Self { name, nesting, values, nulls: array.nulls(), key, kind, template })
    }

    fn is_feature_list(&self) -> bool {
        matches!(self.nesting, Nesting::Steps { .. })
    }

    /// Whether the row has a feature at all.
    #[inline(always)]
    fn has(&self, row: usize) -> bool {
        match &self.nesting {
            Nesting::Bare if matches!(self.values, Values::Null) => false,
            _ => self.nulls.is_none_or(|nulls| nulls.is_valid(row)),
        }
    }

    /// The size of what a BytesList, FloatList or Int64List of these values holds; `None`: they have no kind.
    #[inline(always)]
    fn list_len(&self, (from, to): (usize, usize)) -> Option<usize> {
        Some(match &self.values {
            Values::Bytes { offsets, .. } => (from..to)
                .map(|index| {
                    let (start, end) = offsets.get(index);
                    delimited_len(end - start)
                })
                .sum(),
            _ if from == to && !matches!(self.values, Values::Null) => 0,
            Values::Int64(ints) => {
                let ints = &ints[from..to];
                delimited_len(ints.iter().map(|int| varint_len(*int as u64)).sum())
            }
            Values::Float32(_) => delimited_len((to - from) * 4),
            Values::Null => return None,
        })
    }

    /// Write a Feature (without its own tag and length) around a list of `list_len` bytes.
    #[inline(always)]
    fn put_feature(&self, pen: &mut Pen<'_>, (from, to): (usize, usize), list_len: usize) {
        pen.tag(self.kind, list_len);
        match &self.values {
            Values::Bytes { offsets, data } => {
                for index in from..to {
                    let (start, end) = offsets.get(index);
                    pen.tag(0x0a, end - start);
                    pen.slice(data, start, end);
                }
            }
            _ if from == to => {}
            Values::Int64(ints) => {
                pen.chunk(&[0x0a], 1);
                let packed = ints[from..to].iter().map(|int| varint_len(*int as u64)).sum::<usize>();
                pen.varint(packed as u64);
                for int in &ints[from..to] {
                    pen.varint(*int as u64);
                }
            }
            Values::Float32(bytes) => {
                pen.tag(0x0a, (to - from) * 4);
                pen.slice(bytes, from * 4, to * 4);
            }
            Values::Null => {}
        }
    }

    /// The elements of the row, for a bare or list column.
    #[inline(always)]
    fn elements(&self, row: usize) -> (usize, usize) {
        match &self.nesting {
            Nesting::List(lists) => lists.offsets.get(row),
            _ => (row, row + 1),
        }
    }

    #[inline(always)]
    fn put_entry(&self, pen: &mut Pen<'_>, row: usize, list_len: usize) {
        let feature_len = delimited_len(list_len);
        pen.tag(0x0a, self.key.len() + delimited_len(feature_len));
        pen.slice(&self.key, 0, self.key.len());
        pen.tag(0x12, feature_len);
        self.put_feature(pen, self.elements(row), list_len);
    }

    /// Append the sizes of what the lists of some rows hold; returns the first row that cannot be written.
    fn sizes(&self, rows: Range<usize>, into: &mut Vec<usize>) -> Option<usize> {
        let mut bad = None;
        let sizes = rows.clone();
        match (&self.nesting, &self.values) {
            (Nesting::Bare, Values::Null) => into.extend(sizes.map(|_| ABSENT)),
            (Nesting::Bare, Values::Int64(ints)) => into
                .extend(ints[rows.clone()].iter().map(|int| VALUE_HEADER + varint_len(*int as u64))),
            (Nesting::Bare, Values::Float32(_)) => into.extend(sizes.map(|_| VALUE_HEADER + 4)),
            (Nesting::Bare, Values::Bytes { offsets, .. }) => into.extend(sizes.map(|row| {
                let (from, to) = offsets.get(row);
                delimited_len(to - from)
            })),
            (Nesting::Steps { .. }, _) => into.extend(sizes.map(|row| {
                if !self.has(row) {
                    return ABSENT;
                }
                self.steps_len(row).unwrap_or_else(|| {
                    bad.get_or_insert(row);
                    ABSENT
                })
            })),
            (Nesting::List(_), _) => into.extend(sizes.map(|row| {
                if !self.has(row) {
                    return ABSENT;
                }
                self.list_len(self.elements(row)).unwrap_or_else(|| {
                    bad.get_or_insert(row);
                    ABSENT
                })
            })),
        }
        if let (Nesting::Bare, Some(nulls)) = (&self.nesting, self.nulls) {
            let first = into.len() - rows.len();
            for (size, row) in into[first..].iter_mut().zip(rows) {
                if nulls.is_null(row) {
                    *size = ABSENT;
                }
            }
        }
        bad
    }

    /// The size of one step's Feature.
    fn step_len(&self, inner: &Lists<'_>, step: usize) -> Option<usize> {
        if inner.nulls.is_some_and(|nulls| nulls.is_null(step)) {
            return Some(0);
        }
        self.list_len(inner.offsets.get(step)).map(delimited_len)
    }

    /// The size of what the row's FeatureList holds; `None`: a step has values without a kind.
    fn steps_len(&self, row: usize) -> Option<usize> {
        let Nesting::Steps { outer, inner } = &self.nesting else { return Some(0) };
        let (from, to) = outer.offsets.get(row);
        (from..to).map(|step| self.step_len(inner, step).map(delimited_len)).sum()
    }

    fn put_steps_entry(&self, pen: &mut Pen<'_>, row: usize, steps_len: usize) {
        let Nesting::Steps { outer, inner } = &self.nesting else { return };
        pen.tag(0x0a, self.key.len() + delimited_len(steps_len));
        pen.slice(&self.key, 0, self.key.len());
        pen.tag(0x12, steps_len);
        let (from, to) = outer.offsets.get(row);
        for step in from..to {
            if inner.nulls.is_some_and(|nulls| nulls.is_null(step)) {
                pen.tag(0x0a, 0);
                continue;
            }
            let elements = inner.offsets.get(step);
            let list_len = self.list_len(elements).unwrap_or_default();
            pen.tag(0x0a, delimited_len(list_len));
            self.put_feature(pen, elements, list_len);
        }
    }
}

/// Frames and where each begins.
pub struct Encoded {
    pub data: Buffer,
    pub offsets: Vec<u64>,
}

/// Encode a batch of wire types.
pub fn encode(batch: &RecordBatch, record_type: RecordType) -> Result<Encoded> {
    let schema = batch.schema_ref();
    let columns = schema
        .fields()
        .iter()
        .zip(batch.columns())
        .map(|(field, array)| {
            Column::new(field.name(), array).ok_or_else(|| {
                Fault::of_feature(
                    FaultKind::Encode,
                    format!("the column has no wire type: {}", field.data_type()),
                    Place::Row(0),
                    field.name().as_bytes(),
                )
            })
        })
        .collect::<Result<Vec<_>>>()?;
    let rows = batch.num_rows();
    let estimate = estimate(batch);
    let mut out = Vec::with_capacity(estimate + estimate / 16);
    let mut offsets = Vec::with_capacity(rows + 1);
    offsets.push(0);
    if record_type == RecordType::ByteArray {
        for row in 0..rows {
            put_byte_array(&mut out, &columns, row)?;
            offsets.push(out.len() as u64);
        }
    } else {
        let mut block = Block::new(&columns, record_type == RecordType::SequenceExample);
        let step = (BLOCK_BYTES / (estimate / rows.max(1)).max(1)).clamp(1, BLOCK_ROWS);
        for start in (0..rows).step_by(step) {
            block.encode(start..(start + step).min(rows), &mut out, &mut offsets)?;
        }
    }
    Ok(Encoded { data: Buffer::from_vec(out), offsets })
}

/// A block should stay in the second cache between its sizes, its bytes and its CRCs.
const BLOCK_BYTES: usize = 128 * 1024;
const BLOCK_ROWS: usize = 128;

/// About how many bytes the records take.
fn estimate(batch: &RecordBatch) -> usize {
    let overhead: usize = batch.schema_ref().fields().iter().map(|f| f.name().len() + 12).sum();
    let values: usize = batch
        .columns()
        .iter()
        .map(|array| array.to_data().get_slice_memory_size().unwrap_or_default())
        .sum();
    (overhead + 24) * batch.num_rows() + values
}

fn put_byte_array(out: &mut Vec<u8>, columns: &[Column<'_>], row: usize) -> Result<()> {
    let [Column { values: Values::Bytes { offsets, data }, nesting: Nesting::Bare, .. }] = columns
    else {
        let what = "ByteArray records are written from one column of binary";
        return Err(Fault::boxed(FaultKind::Encode, what, Place::Row(row)));
    };
    if !columns[0].has(row) {
        let what = "a null cannot be written as a ByteArray record; drop the row or fill it";
        let name = columns[0].name.as_bytes();
        return Err(Fault::of_feature(FaultKind::Encode, what, Place::Row(row), name));
    }
    let (from, to) = offsets.get(row);
    check_payload(to - from, row)?;
    out.extend_from_slice(&header(to - from));
    out.extend_from_slice(&data[from..to]);
    out.extend_from_slice(&masked_crc(&data[from..to]).to_le_bytes());
    Ok(())
}

fn check_payload(length: usize, row: usize) -> Result<()> {
    if length <= MAX_PAYLOAD {
        return Ok(());
    }
    let what = format!(
        "the row makes a record of {length} bytes, protobuf's readers take at most {MAX_PAYLOAD}; split the row"
    );
    Err(Fault::boxed(FaultKind::Limit, what, Place::Row(row)))
}

/// The row has no such feature.
const ABSENT: usize = usize::MAX;

/// Some rows on their way into records.
struct Block<'a> {
    columns: &'a [Column<'a>],
    is_sequence: bool,
    /// Column by column and row by row: the size of what the list (or feature list) holds, or `ABSENT`.
    sizes: Vec<usize>,
    /// Row by row: the size of Features and of FeatureLists, where the pen stands, and where the record ends.
    features_len: Vec<usize>,
    lists_len: Vec<usize>,
    pos: Vec<usize>,
    end: Vec<usize>,
}

impl<'a> Block<'a> {
    fn new(columns: &'a [Column<'a>], is_sequence: bool) -> Self {
        Self {
            columns,
            is_sequence,
            sizes: Vec::new(),
            features_len: Vec::new(),
            lists_len: Vec::new(),
            pos: Vec::new(),
            end: Vec::new(),
        }
    }

    /// Append the records of `rows` to `out` and their ends to `offsets`.
    fn encode(
        &mut self,
        rows: Range<usize>,
        out: &mut Vec<u8>,
        offsets: &mut Vec<u64>,
    ) -> Result<()> {
        let bad = self.measure(rows.clone());
        let start = out.len();
        let sound = rows.start..bad.map_or(rows.end, |(row, _)| row);
        let end = self.place(sound, start, offsets)?;
        if let Some((row, column)) = bad {
            let what = "a list in a column of null type has no kind, so that TFRecord cannot tell it from null; \
                        cast the column";
            let name = column.name.as_bytes();
            return Err(Fault::of_feature(FaultKind::Encode, what, Place::Row(row), name));
        }
        out.resize(end, 0);
        for (index, payload_end) in self.end.iter().enumerate() {
            let at = self.pos[index];
            let mut pen = Pen { out, pos: at, end: *payload_end };
            pen.chunk(&header(payload_end - 4 - at - HEADER), HEADER);
            pen.tag(0x0a, self.features_len[index]);
            self.pos[index] = pen.pos;
        }
        for column in 0..self.columns.len() {
            if !self.columns[column].is_feature_list() {
                self.put_column(column, rows.clone(), out);
            }
        }
        if self.is_sequence {
            for (index, end) in self.end.iter().enumerate() {
                let mut pen = Pen { out, pos: self.pos[index], end: *end };
                pen.tag(0x12, self.lists_len[index]);
                self.pos[index] = pen.pos;
            }
            for column in 0..self.columns.len() {
                if self.columns[column].is_feature_list() {
                    self.put_column(column, rows.clone(), out);
                }
            }
        }
        let mut at = start;
        for end in &self.end {
            let crc = masked_crc(&out[at + HEADER..end - 4]);
            out[end - 4..*end].copy_from_slice(&crc.to_le_bytes());
            at = *end;
        }
        Ok(())
    }

    /// The sizes of all cells and rows; a row that cannot be written, and its column, if there is one.
    fn measure(&mut self, rows: Range<usize>) -> Option<(usize, &'a Column<'a>)> {
        self.sizes.clear();
        for total in [&mut self.features_len, &mut self.lists_len] {
            total.clear();
            total.resize(rows.len(), 0);
        }
        let mut bad: Option<(usize, &Column<'_>)> = None;
        for column in self.columns {
            let first = self.sizes.len();
            if let Some(row) = column.sizes(rows.clone(), &mut self.sizes)
                && bad.is_none_or(|(held, _)| row < held)
            {
                bad = Some((row, column));
            }
            let key = column.key.len();
            let sizes = &self.sizes[first..];
            if column.is_feature_list() {
                for (total, size) in self.lists_len.iter_mut().zip(sizes) {
                    if *size != ABSENT {
                        *total += delimited_len(key + delimited_len(*size));
                    }
                }
            } else {
                for (total, size) in self.features_len.iter_mut().zip(sizes) {
                    if *size != ABSENT {
                        *total += delimited_len(key + delimited_len(delimited_len(*size)));
                    }
                }
            }
        }
        bad
    }

    /// Where each record begins and ends; returns where the last one ends.
    fn place(&mut self, rows: Range<usize>, start: usize, offsets: &mut Vec<u64>) -> Result<usize> {
        self.pos.clear();
        self.end.clear();
        let mut at = start;
        for (index, row) in rows.enumerate() {
            let mut payload_len = delimited_len(self.features_len[index]);
            if self.is_sequence {
                payload_len += delimited_len(self.lists_len[index]);
            }
            check_payload(payload_len, row)?;
            self.pos.push(at);
            at += HEADER + payload_len + 4;
            self.end.push(at);
            offsets.push(at as u64);
        }
        Ok(at)
    }

    /// Write a column's entries, each where its row's pen stands.
    fn put_column(&mut self, index: usize, rows: Range<usize>, out: &mut [u8]) {
        let column = &self.columns[index];
        let sizes = &self.sizes[index * rows.len()..][..rows.len()];
        let cells = Cells { rows, sizes, pos: &mut self.pos, end: &self.end };
        match (&column.nesting, &column.values, &column.template) {
            (Nesting::Bare, Values::Int64(ints), Some(template)) => {
                cells.put(out, |pen, row, size| {
                    if pen.template(template, size - VALUE_HEADER) {
                        pen.varint(ints[row] as u64);
                    } else {
                        column.put_entry(pen, row, size);
                    }
                });
            }
            (Nesting::Bare, Values::Float32(bytes), Some(template)) => {
                cells.put(out, |pen, row, size| {
                    if pen.template(template, size - VALUE_HEADER) {
                        pen.slice(bytes, row * 4, row * 4 + 4);
                    }
                });
            }
            (Nesting::Bare, Values::Bytes { offsets, data }, Some(template)) => {
                cells.put(out, |pen, row, size| {
                    let (from, to) = offsets.get(row);
                    if pen.template(template, to - from) {
                        pen.slice(data, from, to);
                    } else {
                        column.put_entry(pen, row, size);
                    }
                });
            }
            (Nesting::Steps { .. }, ..) => {
                cells.put(out, |pen, row, size| column.put_steps_entry(pen, row, size));
            }
            _ => cells.put(out, |pen, row, size| column.put_entry(pen, row, size)),
        }
    }
}

/// Of a list with one short value: the tag and the length before the value.
const VALUE_HEADER: usize = 2;

/// The cells of one column that are still to be written.
struct Cells<'a> {
    rows: Range<usize>,
    sizes: &'a [usize],
    pos: &'a mut [usize],
    end: &'a [usize],
}

impl Cells<'_> {
    #[inline(always)]
    fn put(self, out: &mut [u8], mut put: impl FnMut(&mut Pen<'_>, usize, usize)) {
        let places = self.pos.iter_mut().zip(self.end);
        for ((row, size), (pos, end)) in self.rows.zip(self.sizes).zip(places) {
            if *size != ABSENT {
                let mut pen = Pen { out, pos: *pos, end: *end };
                put(&mut pen, row, *size);
                *pos = pen.pos;
            }
        }
    }
}
