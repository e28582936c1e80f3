//! Record batches to framed records.
//!
//! Row by row, in two passes over the columns: the first adds up sizes (every length of a record stands before what it
//! measures), the second writes. Features in the order of the columns, numbers packed, nulls left out: the bytes that
//! spark-tfrecord writes. A single short value is written as a template of words in which the lengths depend on one byte, see
//! `walk.rs`.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_buffer::{Buffer, NullBuffer};
use arrow_schema::DataType;

use crate::bytes::ByteBuilder;
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

/// Append a varint: up to eight bytes are stored at once.
#[inline(always)]
fn put_varint(out: &mut ByteBuilder, mut value: u64) {
    if value < 0x80 {
        return out.put(value as u8);
    }
    if value < 1 << 56 {
        let count = varint_len(value);
        // All bytes but the last continue.
        let continues = 0x8080_8080_8080_8080 & ((1u64 << (8 * count - 8)) - 1);
        return out.put_chunk(&(spread(value) | continues).to_le_bytes(), count);
    }
    while value >= 0x80 {
        out.put(value as u8 | 0x80);
        value >>= 7;
    }
    out.put(value as u8);
}

#[inline(always)]
fn put_tag(out: &mut ByteBuilder, tag: u8, length: usize) {
    if length < 0x80 {
        out.put_chunk(&[tag, length as u8], 2);
    } else {
        out.put(tag);
        put_varint(out, length as u64);
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
        let mut key = ByteBuilder::with_capacity(name.len() + 6);
        put_tag(&mut key, 0x0a, name.len());
        key.put_slice(name.as_bytes(), 0, name.len());
        let key = key.into_vec();
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
    fn put_feature(&self, out: &mut ByteBuilder, (from, to): (usize, usize), list_len: usize) {
        put_tag(out, self.kind, list_len);
        match &self.values {
            Values::Bytes { offsets, data } => {
                for index in from..to {
                    let (start, end) = offsets.get(index);
                    put_tag(out, 0x0a, end - start);
                    out.put_slice(data, start, end);
                }
            }
            _ if from == to => {}
            Values::Int64(ints) => {
                out.put(0x0a);
                let packed = ints[from..to].iter().map(|int| varint_len(*int as u64)).sum::<usize>();
                put_varint(out, packed as u64);
                for int in &ints[from..to] {
                    put_varint(out, *int as u64);
                }
            }
            Values::Float32(bytes) => {
                put_tag(out, 0x0a, (to - from) * 4);
                out.put_slice(bytes, from * 4, to * 4);
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

    /// The size of the row's whole map entry, and of what its list holds.
    #[inline(always)]
    fn entry_len(&self, list_len: usize) -> usize {
        delimited_len(self.key.len() + delimited_len(delimited_len(list_len)))
    }

    #[inline(always)]
    fn put_entry(&self, out: &mut ByteBuilder, row: usize, list_len: usize) {
        if let Some(template) = &self.template
            // The value's own tag and length are the list's first two bytes.
            && template.put(out, list_len - 2)
        {
            match &self.values {
                Values::Bytes { offsets, data } => {
                    let (from, to) = offsets.get(row);
                    out.put_slice(data, from, to);
                }
                Values::Int64(ints) => put_varint(out, ints[row] as u64),
                Values::Float32(bytes) => out.put_slice(bytes, row * 4, row * 4 + 4),
                Values::Null => {}
            }
            return;
        }
        let feature_len = delimited_len(list_len);
        put_tag(out, 0x0a, self.key.len() + delimited_len(feature_len));
        out.put_slice(&self.key, 0, self.key.len());
        put_tag(out, 0x12, feature_len);
        self.put_feature(out, self.elements(row), list_len);
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

    fn put_steps_entry(&self, out: &mut ByteBuilder, row: usize, steps_len: usize) {
        let Nesting::Steps { outer, inner } = &self.nesting else { return };
        put_tag(out, 0x0a, self.key.len() + delimited_len(steps_len));
        out.put_slice(&self.key, 0, self.key.len());
        put_tag(out, 0x12, steps_len);
        let (from, to) = outer.offsets.get(row);
        for step in from..to {
            if inner.nulls.is_some_and(|nulls| nulls.is_null(step)) {
                put_tag(out, 0x0a, 0);
                continue;
            }
            let elements = inner.offsets.get(step);
            let list_len = self.list_len(elements).unwrap_or_default();
            put_tag(out, 0x0a, delimited_len(list_len));
            self.put_feature(out, elements, list_len);
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
    let mut out = ByteBuilder::with_capacity(estimate(batch));
    let mut offsets = Vec::with_capacity(rows + 1);
    let mut sizes = Vec::with_capacity(columns.len());
    for row in 0..rows {
        offsets.push(out.len() as u64);
        if record_type == RecordType::ByteArray {
            put_byte_array(&mut out, &columns, row)?;
        } else {
            put_record(&mut out, &columns, record_type, row, &mut sizes)?;
        }
    }
    offsets.push(out.len() as u64);
    Ok(Encoded { data: Buffer::from_vec(out.into_vec()), offsets })
}

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

fn put_byte_array(out: &mut ByteBuilder, columns: &[Column<'_>], row: usize) -> Result<()> {
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
    out.put_chunk(&header(to - from), HEADER);
    out.put_slice(data, from, to);
    out.put_chunk(&masked_crc(&data[from..to]).to_le_bytes(), 4);
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

fn put_record(
    out: &mut ByteBuilder,
    columns: &[Column<'_>],
    record_type: RecordType,
    row: usize,
    sizes: &mut Vec<usize>,
) -> Result<()> {
    sizes.clear();
    let (mut features_len, mut lists_len) = (0, 0);
    for column in columns {
        if !column.has(row) {
            sizes.push(0);
            continue;
        }
        let size = if column.is_feature_list() {
            column.steps_len(row)
        } else {
            column.list_len(column.elements(row))
        };
        let Some(size) = size else {
            let what = "a list in a column of null type has no kind, so that TFRecord cannot tell it from null; \
                        cast the column";
            return Err(Fault::of_feature(
                FaultKind::Encode,
                what,
                Place::Row(row),
                column.name.as_bytes(),
            ));
        };
        if column.is_feature_list() {
            lists_len += delimited_len(column.key.len() + delimited_len(size));
        } else {
            features_len += column.entry_len(size);
        }
        sizes.push(size);
    }
    let is_sequence = record_type == RecordType::SequenceExample;
    let payload_len =
        delimited_len(features_len) + if is_sequence { delimited_len(lists_len) } else { 0 };
    check_payload(payload_len, row)?;
    out.put_chunk(&header(payload_len), HEADER);
    let start = out.len();
    put_tag(out, 0x0a, features_len);
    for (column, size) in columns.iter().zip(sizes.iter()) {
        if !column.is_feature_list() && column.has(row) {
            column.put_entry(out, row, *size);
        }
    }
    if is_sequence {
        put_tag(out, 0x12, lists_len);
        for (column, size) in columns.iter().zip(sizes.iter()) {
            if column.is_feature_list() && column.has(row) {
                column.put_steps_entry(out, row, *size);
            }
        }
    }
    let crc = masked_crc(out.tail(start));
    out.put_chunk(&crc.to_le_bytes(), 4);
    Ok(())
}
