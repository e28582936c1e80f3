//! Record batches to framed records.
//!
//! A block of rows at a time, and in it column by column, so that nothing is decided anew for each
//! value: first all sizes (every length of a record stands before what it measures), then the
//! bytes, each row's at its own place. Features in the order of the columns, numbers packed, nulls
//! left out: the bytes that spark-tfrecord writes. A short value is written behind a template in
//! which the lengths depend on one byte.

use std::mem;
use std::ops::Range;

use arrow_array::{Array, RecordBatch};
use arrow_buffer::Buffer;
use fearless_simd::{Level, Simd, dispatch};

use crate::bytes::SHORT;
use crate::crc::{ALIKE, masked_crc, masked_crcs};
use crate::error::{Fault, FaultKind, Place, Result};
use crate::features::{ABSENT, Column, Nesting, Runs, VALUE_HEADER, Values};
use crate::framing::{HEADER, OVERHEAD, header, put_frame};
use crate::packed::first_eight;
use crate::pen::{Pen, delimited_len};
use crate::record::RecordType;
use crate::template::{TEMPLATE_BYTES, Template};
use crate::wire::{CONTINUES, last_two};

/// No protobuf reader takes a longer message.
const MAX_PAYLOAD: usize = i32::MAX as usize;

/// Frames and where each begins.
pub struct Encoded {
    pub data: Buffer,
    pub offsets: Vec<u64>,
}

/// Direct writes take whole blocks, from addresses and to places that are multiples of this.
const WRITE_BLOCK: usize = 4096;

/// Fewer bytes are as well copied: those of many files may have to wait in memory.
const ALIGNED_BYTES: usize = 16 * WRITE_BLOCK;

/// Encode a batch of wire types, whose columns have these names, that will stand at `position` of a
/// file: if it is large, then in memory, too, it begins as far from the border of a block.
pub fn encode(
    batch: &RecordBatch,
    names: &[String],
    record_type: RecordType,
    position: u64,
) -> Result<Encoded> {
    let columns = batch
        .columns()
        .iter()
        .zip(names)
        .map(|(array, name)| {
            Column::new(name, array).ok_or_else(|| {
                Fault::of_feature(
                    FaultKind::Encode,
                    format!("the column has no wire type: {}", array.data_type()),
                    Place::Row(0),
                    name.as_bytes(),
                )
            })
        })
        .collect::<Result<Vec<_>>>()?;
    let rows = batch.num_rows();
    let estimate = estimate(batch);
    let mut out = room(estimate + estimate / 16, position);
    let lead = out.len();
    let mut offsets = Vec::with_capacity(rows + 1);
    offsets.push(lead as u64);
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
    for offset in &mut offsets {
        *offset -= lead as u64;
    }
    Ok(Encoded { data: Buffer::from_vec(out).slice(lead), offsets })
}

/// Room for the records, behind as many bytes as `position` asks for.
fn room(capacity: usize, position: u64) -> Vec<u8> {
    if capacity < ALIGNED_BYTES {
        return Vec::with_capacity(capacity);
    }
    let mut out: Vec<u8> = Vec::with_capacity(capacity + WRITE_BLOCK);
    let lead = (position as usize).wrapping_sub(out.as_ptr().addr()) % WRITE_BLOCK;
    out.resize(lead, 0);
    out
}

/// A block should stay in the second cache between its sizes, its bytes and its CRCs.
const BLOCK_BYTES: usize = 128 * 1024;
const BLOCK_ROWS: usize = 128;

/// About how many bytes the records take: values, and what stands around each entry and each record.
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
    put_frame(out, &data[from..to]);
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

/// Some rows on their way into records.
struct Block<'a> {
    columns: &'a [Column<'a>],
    is_sequence: bool,
    /// Column by column and row by row: the size of what the list (or feature list) holds, or
    /// `ABSENT`.
    sizes: Vec<usize>,
    /// For each column that is a list of numbers, those of all rows.
    runs: Vec<Runs>,
    /// Row by row: the size of Features and of FeatureLists, where the pen stands, and where the
    /// record ends.
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
            runs: columns.iter().map(|_| Runs::default()).collect(),
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
            let mut pen = Pen { out, pos: self.pos[index] + HEADER, end: *payload_end };
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
        self.seal(start, out);
        Ok(())
    }

    /// The sizes of all cells and rows; a row that cannot be written, and its column, if there is
    /// one.
    fn measure(&mut self, rows: Range<usize>) -> Option<(usize, &'a Column<'a>)> {
        self.sizes.clear();
        for total in [&mut self.features_len, &mut self.lists_len] {
            total.clear();
            total.resize(rows.len(), 0);
        }
        let level = Level::new();
        let mut bad: Option<(usize, &Column<'_>)> = None;
        for (column, runs) in self.columns.iter().zip(&mut self.runs) {
            let first = self.sizes.len();
            if let Some(row) = column.sizes(level, rows.clone(), &mut self.sizes, runs)
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
                dispatch!(level, _ => add_entries(&mut self.features_len, key, sizes));
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

    /// Write what stands around the payloads, of which the first record begins at `start`.
    fn seal(&self, start: usize, out: &mut [u8]) {
        let mean = (self.end.last().map_or(start, |end| *end) - start) / self.end.len().max(1);
        let (groups, rest) =
            if ALIKE.contains(&mean) { self.end.as_chunks() } else { (&[][..], &*self.end) };
        let mut at = start;
        for ends in groups {
            let payloads = ends.map(|end| {
                let begin = mem::replace(&mut at, end);
                out[begin..][..HEADER].copy_from_slice(&header(end - OVERHEAD - begin));
                (begin + HEADER, end - 4)
            });
            let crcs = masked_crcs(payloads.map(|(from, to)| &out[from..to]));
            for ((_, end), crc) in payloads.into_iter().zip(crcs) {
                out[end..][..4].copy_from_slice(&crc.to_le_bytes());
            }
        }
        for end in rest {
            out[at..][..HEADER].copy_from_slice(&header(end - OVERHEAD - at));
            let crc = masked_crc(&out[at + HEADER..end - 4]);
            out[end - 4..*end].copy_from_slice(&crc.to_le_bytes());
            at = *end;
        }
    }

    /// Write a column's entries, each where its row's pen stands.
    fn put_column(&mut self, index: usize, rows: Range<usize>, out: &mut [u8]) {
        dispatch!(Level::new(), simd => self.put_column_with(simd, index, rows, out));
    }

    #[inline(always)]
    fn put_column_with<S: Simd>(
        &mut self,
        simd: S,
        index: usize,
        rows: Range<usize>,
        out: &mut [u8],
    ) {
        let column = &self.columns[index];
        let sizes = &self.sizes[index * rows.len()..][..rows.len()];
        let first = rows.start;
        let mut cells = Cells { rows: rows.clone(), sizes, pos: &mut self.pos, end: &self.end };
        match (&column.nesting, &column.values, &column.template) {
            (Nesting::Bare, Values::Int64(ints), Some(template)) => {
                let mut words = [0; BLOCK_ROWS];
                for (word, int) in words.iter_mut().zip(&ints[rows]) {
                    *word = first_eight(*int as u64);
                }
                cells.put_short(
                    simd,
                    template,
                    out,
                    #[inline(always)]
                    |row, length, into: &mut [u8; SHORT]| {
                        let continues = if length > 8 { CONTINUES } else { 0 };
                        let word = words[row - first] | continues;
                        into[..8].copy_from_slice(&word.to_le_bytes());
                        into[8..10].copy_from_slice(&last_two(ints[row] as u64));
                        true
                    },
                );
                cells.put(
                    out,
                    #[inline(always)]
                    |pen, row, size| {
                        if pen.template(simd, template, size - VALUE_HEADER) {
                            pen.varint_of(ints[row] as u64, size - VALUE_HEADER);
                        } else {
                            column.put_entry(pen, row, size);
                        }
                    },
                );
            }
            (Nesting::Bare, Values::Float32(bytes), Some(template)) => {
                let floats = bytes.as_chunks().0;
                cells.put_short(
                    simd,
                    template,
                    out,
                    #[inline(always)]
                    |row, _, into: &mut [u8; 4]| {
                        *into = floats[row];
                        true
                    },
                );
                cells.put(
                    out,
                    #[inline(always)]
                    |pen, row, size| {
                        if pen.template(simd, template, size - VALUE_HEADER) {
                            pen.slice(bytes, row * 4, row * 4 + 4);
                        }
                    },
                );
            }
            (Nesting::Bare, Values::Bytes { offsets, data }, Some(template)) => {
                cells.put_short(
                    simd,
                    template,
                    out,
                    #[inline(always)]
                    |row, _, into: &mut [u8; SHORT]| {
                        let chunk = data[offsets.get(row).0..].first_chunk();
                        chunk.inspect(|chunk| *into = **chunk).is_some()
                    },
                );
                cells.put(
                    out,
                    #[inline(always)]
                    |pen, row, size| {
                        let (from, to) = offsets.get(row);
                        if pen.template(simd, template, to - from) {
                            pen.slice(data, from, to);
                        } else {
                            column.put_entry(pen, row, size);
                        }
                    },
                );
            }
            (Nesting::List(_), Values::Int64(_) | Values::Float32(_), template) => {
                let Runs { ints, spans } = &self.runs[index];
                let bytes = match column.values {
                    Values::Float32(bytes) => bytes,
                    _ => ints.bytes(),
                };
                cells.put(
                    out,
                    #[inline(always)]
                    |pen, row, size| {
                        let (start, end) = spans[row - first];
                        column.put_run_head(simd, pen, template.as_ref(), size, end - start);
                        pen.slice(bytes, start, end);
                    },
                );
            }
            (Nesting::Steps { .. }, ..) => {
                cells.put(
                    out,
                    #[inline(always)]
                    |pen, row, size| column.put_steps_entry(pen, row, size),
                );
            }
            _ => cells.put(
                out,
                #[inline(always)]
                |pen, row, size| column.put_entry(pen, row, size),
            ),
        }
    }
}

/// Add to each row's total the size of its entry, if it has one.
#[inline(always)]
fn add_entries(totals: &mut [usize], key: usize, sizes: &[usize]) {
    // Mostly all rows have one, and a short one.
    let longest = longest(sizes);
    if longest != ABSENT
        && let Some(len) = short_entry_len(key, longest)
    {
        for (total, size) in totals.iter_mut().zip(sizes) {
            *total += len - longest + size;
        }
        return;
    }
    let present = |size: &usize| if *size == ABSENT { 0 } else { *size };
    let longest = sizes.iter().map(present).fold(0, usize::max);
    if let Some(len) = short_entry_len(key, longest) {
        // Without branches: which rows have nulls is hard to predict.
        for (total, size) in totals.iter_mut().zip(sizes) {
            *total += if *size == ABSENT { 0 } else { len - longest + size };
        }
        return;
    }
    for (total, size) in totals.iter_mut().zip(sizes) {
        if *size != ABSENT {
            *total += entry_len(key, *size);
        }
    }
}

/// The largest of some sizes: `ABSENT` if a row has none.
#[inline(always)]
fn longest(sizes: &[usize]) -> usize {
    sizes.iter().fold(0, |longest, size| longest.max(*size))
}

/// The size of a map entry whose list holds `size` bytes behind a key field of `key` bytes.
#[inline(always)]
fn entry_len(key: usize, size: usize) -> usize {
    short_entry_len(key, size)
        .unwrap_or_else(|| delimited_len(key + delimited_len(delimited_len(size))))
}

/// The same, if the lengths before the entry, the Feature and the list are of one byte each.
#[inline(always)]
fn short_entry_len(key: usize, size: usize) -> Option<usize> {
    let content = key + size + 4;
    (content < 0x80).then_some(content + 2)
}

/// The cells of one column that are still to be written.
struct Cells<'a> {
    rows: Range<usize>,
    sizes: &'a [usize],
    pos: &'a mut [usize],
    end: &'a [usize],
}

impl Cells<'_> {
    /// Write values of up to `N` bytes, each behind the template, if no row has a longer one, and
    /// up to a row at the end of `out`, or for which `value` returns false.
    ///
    /// All is stored in pieces of constant size, over what stands behind and is written later: the
    /// rest of the record, and what stands before the next payload. Not so in blocks of few rows: a
    /// Zen 3 took a fifth longer to copy long values to where such pieces had been stored.
    #[inline(always)]
    fn put_short<S: Simd, const N: usize>(
        &mut self,
        simd: S,
        template: &Template,
        out: &mut [u8],
        value: impl Fn(usize, usize, &mut [u8; N]) -> bool,
    ) {
        let header_len = template.header_len().min(TEMPLATE_BYTES);
        let room = TEMPLATE_BYTES.max(header_len + N);
        // As signed numbers: `ABSENT` is below all others then, and they take fewer instructions.
        let longest = self.sizes.iter().fold(0, |longest, size| longest.max(*size as isize));
        let least = self.pos.iter().zip(self.end).map(|(pos, end)| (end + HEADER - pos) as isize);
        if self.sizes.len() < BLOCK_ROWS / 2
            || longest as usize > VALUE_HEADER + template.max_length().min(N)
            || least.fold(isize::MAX, isize::min) < room as isize
        {
            return;
        }
        let mut done = 0;
        for (size, pos) in self.sizes.iter().zip(self.pos.iter_mut()) {
            let length = size.wrapping_sub(VALUE_HEADER);
            let Some(room) = out.get_mut(*pos..*pos + TEMPLATE_BYTES + N) else { break };
            room[..TEMPLATE_BYTES].copy_from_slice(&template.header_of(simd, length));
            let Some(into) = room[header_len..].first_chunk_mut() else { break };
            if !value(self.rows.start + done, length, into) {
                break;
            }
            // Without branches: which rows have nulls is hard to predict.
            *pos += if *size == ABSENT { 0 } else { header_len + length };
            done += 1;
        }
        self.rows.start += done;
        self.sizes = &self.sizes[done..];
        self.pos = &mut mem::take(&mut self.pos)[done..];
        self.end = &self.end[done..];
    }

    /// `put` is called in two places: that it is to be inlined into both its closure has to say.
    #[inline(always)]
    fn put(self, out: &mut [u8], mut put: impl FnMut(&mut Pen<'_>, usize, usize)) {
        if longest(self.sizes) != ABSENT {
            let places = self.pos.iter_mut().zip(self.end);
            for ((row, size), (pos, end)) in self.rows.zip(self.sizes).zip(places) {
                let mut pen = Pen { out, pos: *pos, end: *end };
                put(&mut pen, row, *size);
                *pos = pen.pos;
            }
            return;
        }
        // Without branches, as above.
        let (mut present, mut count) = ([0; BLOCK_ROWS], 0);
        for (index, size) in self.sizes.iter().enumerate() {
            present[count] = index;
            count += usize::from(*size != ABSENT);
        }
        for &index in &present[..count] {
            let mut pen = Pen { out, pos: self.pos[index], end: self.end[index] };
            put(&mut pen, self.rows.start + index, self.sizes[index]);
            self.pos[index] = pen.pos;
        }
    }
}
