//! Frames to record batches.
//!
//! The fast walk goes over some records and notes where the values of each column stand (`Block`);
//! then each column takes its values in, one column after the other, so that nothing is decided
//! anew for each value. When the walk gives up on a record, or a value does not fit, the readable
//! decoder says what the record means or why it is bad.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_buffer::Buffer;
use arrow_schema::{DataType, FieldRef, Schema, SchemaRef};
use fearless_simd::{Level, Simd, dispatch};
use hashbrown::HashMap;

use crate::block::{Block, Places};
use crate::canonical::Span;
use crate::columns::Column;
use crate::error::{Fault, FaultKind, Place, Result};
use crate::framing::{Cursor, HEADER, OVERHEAD};
use crate::leaf::{Input, NotText, carried};
use crate::message::{Steps, Values};
use crate::record::{RecordType, parse};
use crate::walk::{Action, Unknown, Walker};

/// How much a batch or a record may hold.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub batch_rows: usize,
    pub batch_bytes: usize,
    pub max_features: usize,
}

/// Frames to record batches of one schema.
#[derive(Debug)]
pub struct Decoder {
    pub cursor: Cursor,
    pub full: bool,
    /// What batches are of, see `carried`.
    schema: SchemaRef,
    record_type: RecordType,
    unknown: Unknown,
    bounds: Bounds,
    columns: Vec<Column>,
    walker: Walker,
    block: Block,
    places: Places,
    flushed: Places,
    /// What the row behind the rows that were flushed last is refused for.
    refused: Option<Box<Fault>>,
    payload_bytes: usize,
    /// How many rows `reserve` made room for.
    expected_rows: usize,
}

impl Decoder {
    /// A decoder into `schema`, whose columns have these names; `unknown` says what becomes of other
    /// features. `Err` names the field whose type is no wire type.
    pub fn new(
        schema: SchemaRef,
        names: &[String],
        record_type: RecordType,
        unknown: Unknown,
        bounds: Bounds,
        cursor: Cursor,
    ) -> std::result::Result<Self, String> {
        let columns = schema
            .fields()
            .iter()
            .zip(names)
            .map(|(field, name)| {
                Column::new(name, field.data_type()).ok_or_else(|| {
                    format!("column {name:?} has no wire type: {}", field.data_type())
                })
            })
            .collect::<std::result::Result<Vec<_>, _>>()?;
        let carried = schema
            .fields()
            .iter()
            .map(|field| field.as_ref().clone().with_data_type(carried(field.data_type())));
        let schema = Arc::new(Schema::new(carried.collect::<Vec<_>>()));
        if record_type == RecordType::ByteArray {
            check_byte_array(&schema)?;
        }
        // Offsets in Arrow are 32 bits wide.
        let bounds = Bounds { batch_bytes: bounds.batch_bytes.min(i32::MAX as usize), ..bounds };
        Ok(Self::empty(schema, columns, record_type, unknown, bounds, cursor))
    }

    /// Another decoder of the same kind, which has met no record.
    pub fn fresh(&self) -> Self {
        let columns = self.columns.iter().map(Column::fresh).collect();
        let schema = self.schema.clone();
        let cursor = Cursor::new(0, 0, self.cursor.max_record_bytes);
        Self::empty(schema, columns, self.record_type, self.unknown, self.bounds, cursor)
    }

    fn empty(
        schema: SchemaRef,
        columns: Vec<Column>,
        record_type: RecordType,
        unknown: Unknown,
        bounds: Bounds,
        cursor: Cursor,
    ) -> Self {
        Self {
            cursor,
            full: false,
            schema,
            record_type,
            unknown,
            bounds,
            walker: walker_for(&columns, record_type, bounds.max_features, unknown),
            block: Block::new(&columns),
            columns,
            places: Places::default(),
            flushed: Places::default(),
            refused: None,
            payload_bytes: 0,
            expected_rows: 0,
        }
    }

    /// How many rows are buffered.
    pub fn rows(&self) -> usize {
        self.places.rows()
    }

    /// Decode whole frames of `buffer[start..]` until they end or the batch is full; return the
    /// bytes consumed.
    pub fn decode(&mut self, buffer: &Buffer, start: usize) -> Result<usize> {
        dispatch!(Level::new(), simd => self.decode_with(simd, buffer, start))
    }

    #[inline(always)]
    fn decode_with<S: Simd>(&mut self, simd: S, buffer: &Buffer, start: usize) -> Result<usize> {
        let input = Input { bytes: buffer.as_slice(), buffer };
        let mut pos = start;
        let mut checked = start;
        self.cursor.begin();
        while !self.full {
            match self.take_frame(simd, input, pos, &mut checked) {
                Ok(Some(length)) => pos += length + OVERHEAD,
                Ok(None) => break,
                // A record before it may be bad in a way that only the columns tell.
                Err(fault) => return self.settle(input).and(Err(fault)),
            }
            if self.block.is_full() {
                self.settle(input)?;
            }
        }
        self.settle(input)?;
        Ok(pos - start)
    }

    /// Take the frame at `pos` in and return the length of its payload; `None` if it must wait.
    /// Payloads before `checked` have been held to their CRCs.
    #[inline(always)]
    fn take_frame<S: Simd>(
        &mut self,
        simd: S,
        input: Input<'_>,
        pos: usize,
        checked: &mut usize,
    ) -> Result<Option<usize>> {
        let Some(length) = self.cursor.next_length(input.bytes, pos)? else { return Ok(None) };
        if self.rows() > 0 && self.payload_bytes + length > self.bounds.batch_bytes {
            self.full = true;
            return Ok(None);
        }
        if pos >= *checked {
            *checked = self.cursor.check_payloads(input.bytes, pos, length)?;
        }
        let payload = Span { at: pos + HEADER, end: pos + HEADER + length };
        self.block.begin_row(payload);
        let walked = match self.record_type {
            RecordType::ByteArray => self.columns.is_empty() || self.block.set_span(0, payload),
            _ => self
                .walker
                .walk(simd, input.bytes, payload.at, payload.end, &mut self.block)
                .is_some(),
        };
        if walked {
            self.block.end_row(payload);
        } else {
            self.block.drop_row();
            self.settle(input)?;
            self.decode_message(input, payload, self.cursor.place(), self.rows())?;
        }
        self.places.push(self.cursor.offset, self.cursor.record);
        self.payload_bytes += length;
        self.full = self.rows() >= self.bounds.batch_rows;
        self.cursor.advance(length);
        Ok(Some(length))
    }

    /// Take the block's values into the columns.
    fn settle(&mut self, input: Input<'_>) -> Result<()> {
        let rows = self.block.payloads.len();
        let first = self.rows() - rows;
        if self.extend(input, 0..rows) {
            if first == 0 && rows > 0 {
                self.reserve(input);
            }
            self.block.clear();
            return Ok(());
        }
        // Some value does not fit: record by record, so that those before it are kept.
        self.take_back(first);
        let payloads = std::mem::take(&mut self.block.payloads);
        let mut outcome = Ok(());
        for (index, payload) in payloads.iter().enumerate() {
            if self.extend(input, index..index + 1) {
                continue;
            }
            let row = first + index;
            self.take_back(row);
            let (offset, record) = self.places.get(row).unwrap_or_default();
            let place = Place::Record { offset, record };
            outcome = self.decode_message(input, *payload, place, row);
            if outcome.is_err() {
                self.cursor.seek(offset, record);
                self.places.truncate(row);
                let dropped = payloads[index..].iter().map(|span| span.end - span.at);
                self.payload_bytes -= dropped.sum::<usize>();
                self.full = false;
                break;
            }
        }
        self.block.clear();
        outcome
    }

    /// Make room for the rows that the rest of the input probably holds, judged by the first block.
    /// One block more than that: a column that is a little short is copied as a whole, to twice its
    /// size.
    #[cold]
    #[inline(never)]
    fn reserve(&mut self, input: Input<'_>) {
        if self.payload_bytes >= self.bounds.batch_bytes {
            // The batch is full with its first records.
            return;
        }
        let left = input.bytes.len() - self.block.end();
        let bytes = left.min(self.bounds.batch_bytes);
        let factor = (bytes / self.payload_bytes.max(1)).min(self.bounds.batch_rows / self.rows());
        self.columns.iter_mut().for_each(|column| column.reserve(factor + 1));
        self.expected_rows = self.rows() * (factor + 2);
    }

    /// Extend each column by some of the block's rows; false if a value does not fit.
    fn extend(&mut self, input: Input<'_>, rows: Range<usize>) -> bool {
        let block = &self.block;
        self.columns
            .iter_mut()
            .enumerate()
            .all(|(index, column)| column.extend(block.column(index, rows.clone()), input))
    }

    fn take_back(&mut self, rows: usize) {
        for column in &mut self.columns {
            column.truncate(rows);
        }
    }

    /// The readable way: the whole message first, then the columns in the order of the schema.
    #[cold]
    fn decode_message(
        &mut self,
        input: Input<'_>,
        payload: Span,
        place: Place,
        row: usize,
    ) -> Result<()> {
        self.push_message(input, payload, place).inspect_err(|_| self.take_back(row))
    }

    fn push_message(&mut self, input: Input<'_>, payload: Span, place: Place) -> Result<()> {
        let bytes = &input.bytes[payload.at..payload.end];
        let message = parse(bytes, self.record_type, self.bounds.max_features, place)?;
        // Of duplicate keys the last counts.
        let context: HashMap<&[u8], &Values<'_>> =
            message.context.iter().map(|(key, values)| (*key, values)).collect();
        let lists: HashMap<&[u8], &Steps<'_>> =
            message.feature_lists.iter().map(|(key, steps)| (*key, steps)).collect();
        for column in &mut self.columns {
            let name = &*column.name;
            let fits = match (column.is_feature_list(), context.get(name), lists.get(name)) {
                (false, Some(values), _) => column.push_feature(values, input),
                (true, _, Some(steps)) => column.push_feature_list(steps, input),
                (false, None, Some(_)) => {
                    Err("the name stands in the record's feature lists, the \
                    schema asks for a feature; ask for a list of lists"
                        .to_owned())
                }
                (true, Some(_), None) => {
                    Err("the name stands in the record's features (context), \
                    the schema asks for a feature list; ask for a value or a list"
                        .to_owned())
                }
                (_, None, None) => {
                    column.push_null();
                    Ok(())
                }
            };
            fits.map_err(|what| Fault::of_feature(FaultKind::Mismatch, what, place, &column.name))?;
        }
        Ok(())
    }

    /// The buffered rows as a batch, of the types that `carried` tells. Where they stand is kept for
    /// `row_place` until the next flush.
    ///
    /// Of rows with one that is not UTF-8 those before it; the decoder stays full then, and the next
    /// flush gives the fault.
    pub fn flush(&mut self) -> Result<RecordBatch> {
        if let Some(fault) = self.refused.take() {
            self.full = false;
            return Err(fault);
        }
        let fresh = self.columns.iter().map(Column::fresh).collect();
        let full = std::mem::replace(&mut self.columns, fresh);
        self.flushed = std::mem::take(&mut self.places);
        self.payload_bytes = 0;
        self.full = false;
        let mut arrays = Vec::with_capacity(full.len());
        // The first row that is not UTF-8, and in it the first column.
        let mut bad: Option<(usize, usize)> = None;
        for (index, column) in full.into_iter().enumerate() {
            match column.finish() {
                Ok(array) => arrays.push(array),
                Err(NotText { at, before }) => {
                    bad = Some(bad.map_or((at, index), |held| held.min((at, index))));
                    arrays.push(before);
                }
            }
        }
        let mut rows = self.flushed.rows();
        if rows < std::mem::take(&mut self.expected_rows) / 2 {
            // Damage can cut each batch short, and whoever holds them holds their room, too.
            arrays.iter_mut().filter_map(Arc::get_mut).for_each(|array| array.shrink_to_fit());
        }
        if let Some((row, index)) = bad {
            let (offset, record) = self.row_place(row).unwrap_or_default();
            let fault = Fault::of_feature(
                FaultKind::Mismatch,
                "the value is not valid UTF-8, the schema asks for a string; ask for binary",
                Place::Record { offset, record },
                &self.columns[index].name,
            );
            if row == 0 {
                return Err(fault);
            }
            (self.refused, self.full, rows) = (Some(fault), true, row);
            arrays = arrays.iter().map(|array| array.slice(0, row)).collect();
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options).map_err(|error| {
            Fault::boxed(FaultKind::Mismatch, error.to_string(), self.cursor.place())
        })
    }

    /// Offset and record of a row of the batch that was flushed last.
    pub fn row_place(&self, row: usize) -> Option<(u64, u64)> {
        self.flushed.get(row)
    }
}

fn walker_for(
    columns: &[Column],
    record_type: RecordType,
    max_features: usize,
    unknown: Unknown,
) -> Walker {
    let is_sequence = record_type == RecordType::SequenceExample;
    let mut walker = Walker::new(is_sequence, max_features, unknown);
    for (index, column) in columns.iter().enumerate() {
        let (here, elsewhere) = if column.is_feature_list() {
            (&mut walker.feature_lists, &mut walker.context)
        } else {
            (&mut walker.context, &mut walker.feature_lists)
        };
        here.expect(&column.name, Action::Column(index as u32), column.short_kind());
        elsewhere.expect(&column.name, Action::GiveUp, None);
    }
    walker
}

/// `schema` is of the types that `carried` tells.
fn check_byte_array(schema: &Schema) -> std::result::Result<(), String> {
    let is_bytes = |f: &FieldRef| matches!(f.data_type(), DataType::Binary | DataType::BinaryView);
    // No column at all counts the records.
    if schema.fields().len() <= 1 && schema.fields().iter().all(is_bytes) {
        Ok(())
    } else {
        Err("ByteArray records have one column, of binary or string".to_owned())
    }
}
