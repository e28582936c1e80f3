//! Frames to record batches.
//!
//! Each record goes through the fast walk first, which appends straight to the columns. When the walk gives up, the row is
//! taken back and the readable decoder says what the record means or why it is bad.

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_buffer::Buffer;
use arrow_schema::{DataType, SchemaRef};
use hashbrown::HashMap;

use crate::columns::{Column, Input};
use crate::error::{Fault, FaultKind, Place, Result};
use crate::framing::{Cursor, OVERHEAD};
use crate::message::{Message, Values};
use crate::walk::{Action, Kind, Sink, Span, Walker};

/// What a payload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordType {
    Example,
    SequenceExample,
    ByteArray,
}

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
    schema: SchemaRef,
    record_type: RecordType,
    bounds: Bounds,
    columns: Vec<Column>,
    walker: Walker,
    places: Places,
    flushed: Places,
    payload_bytes: usize,
}

/// Where the rows of a batch stand in their file.
#[derive(Debug, Default)]
struct Places {
    offsets: Vec<u64>,
    /// Row and record index wherever records begin to be counted anew.
    runs: Vec<(usize, u64)>,
    next_record: Option<u64>,
}

impl Places {
    #[inline(always)]
    fn push(&mut self, offset: u64, record: u64) {
        if self.next_record != Some(record) {
            self.runs.push((self.offsets.len(), record));
        }
        self.next_record = Some(record + 1);
        self.offsets.push(offset);
    }

    fn get(&self, row: usize) -> Option<(u64, u64)> {
        let offset = *self.offsets.get(row)?;
        let (first, record) = *self.runs.iter().rfind(|(first, _)| *first <= row)?;
        Some((offset, record + (row - first) as u64))
    }
}

/// Takes the walk's values into the columns, one row at a time.
struct Row<'a> {
    columns: &'a mut [Column],
    input: Input<'a>,
    row: usize,
    filled: usize,
}

impl Row<'_> {
    /// The column, unless the record has its name twice.
    #[inline(always)]
    fn column(&mut self, column: usize) -> Option<&mut Column> {
        self.filled += 1;
        self.columns.get_mut(column).filter(|column| column.rows == self.row)
    }
}

impl Sink for Row<'_> {
    #[inline(always)]
    fn single(&mut self, column: usize, kind: Kind, _: &[u8], value: Span) -> bool {
        let input = self.input;
        self.column(column).is_some_and(|column| column.push_single(kind, input, value))
    }

    #[inline(always)]
    fn list(&mut self, column: usize, kind: Kind, _: &[u8], list: Span) -> bool {
        let input = self.input;
        self.column(column).is_some_and(|column| column.push_list(kind, input, list))
    }

    fn kindless(&mut self, column: usize) -> bool {
        self.column(column).map(Column::push_null).is_some()
    }

    #[inline(always)]
    fn step(&mut self, column: usize, list: Option<(Kind, Span)>, _: &[u8]) -> bool {
        let input = self.input;
        self.columns
            .get_mut(column)
            .filter(|column| column.rows == self.row)
            .is_some_and(|column| column.push_step(list, input))
    }

    fn end_steps(&mut self, column: usize) -> bool {
        self.column(column).map(Column::end_steps).is_some()
    }
}

impl Decoder {
    /// A decoder into `schema`; `Err` names the field whose type is no wire type.
    pub fn new(
        schema: SchemaRef,
        record_type: RecordType,
        bounds: Bounds,
        cursor: Cursor,
    ) -> std::result::Result<Self, String> {
        let columns = schema
            .fields()
            .iter()
            .map(|field| {
                Column::new(field.name(), field.data_type()).ok_or_else(|| {
                    format!("column {:?} has no wire type: {}", field.name(), field.data_type())
                })
            })
            .collect::<std::result::Result<Vec<_>, _>>()?;
        if record_type == RecordType::ByteArray {
            check_byte_array(&schema)?;
        }
        let walker = walker_for(&columns, record_type, bounds.max_features);
        // Offsets in Arrow are 32 bits wide.
        let bounds = Bounds { batch_bytes: bounds.batch_bytes.min(i32::MAX as usize), ..bounds };
        Ok(Self {
            cursor,
            full: false,
            schema,
            record_type,
            bounds,
            columns,
            walker,
            places: Places::default(),
            flushed: Places::default(),
            payload_bytes: 0,
        })
    }

    /// How many rows are buffered.
    pub fn rows(&self) -> usize {
        self.places.offsets.len()
    }

    /// Decode whole frames of `buffer[start..]` until they end or the batch is full; return the bytes consumed.
    pub fn decode(&mut self, buffer: &Buffer, start: usize) -> Result<usize> {
        let input = Input { bytes: buffer.as_slice(), buffer };
        let mut pos = start;
        self.cursor.begin();
        while !self.full {
            let Some(length) = self.cursor.next_length(input.bytes, pos)? else { break };
            let rows = self.rows();
            if rows > 0 && self.payload_bytes + length > self.bounds.batch_bytes {
                self.full = true;
                break;
            }
            let payload_at = pos + crate::framing::HEADER;
            self.cursor.payload(input.bytes, pos, length)?;
            self.decode_record(input, Span { at: payload_at, end: payload_at + length })?;
            self.places.push(self.cursor.offset, self.cursor.record);
            self.payload_bytes += length;
            self.full = rows + 1 >= self.bounds.batch_rows;
            self.cursor.advance(length);
            pos += length + OVERHEAD;
        }
        Ok(pos - start)
    }

    #[inline(always)]
    fn decode_record(&mut self, input: Input<'_>, payload: Span) -> Result<()> {
        if self.record_type == RecordType::ByteArray {
            for column in &mut self.columns {
                column.push_single(Kind::Bytes, input, payload);
            }
            return Ok(());
        }
        let row = self.places.offsets.len();
        let mut sink = Row { columns: &mut self.columns, input, row, filled: 0 };
        if self.walker.walk(input.bytes, payload.at, payload.end, &mut sink) {
            if sink.filled < self.columns.len() {
                self.columns.iter_mut().filter(|c| c.rows == row).for_each(Column::push_null);
            }
            return Ok(());
        }
        self.take_back(row);
        self.decode_message(input, payload).inspect_err(|_| self.take_back(row))
    }

    fn take_back(&mut self, rows: usize) {
        for column in &mut self.columns {
            column.truncate(rows);
        }
    }

    /// The readable way: the whole message first, then the columns in the order of the schema.
    #[cold]
    fn decode_message(&mut self, input: Input<'_>, payload: Span) -> Result<()> {
        let place = self.cursor.place();
        let bytes = &input.bytes[payload.at..payload.end];
        let message =
            parse(bytes, self.record_type, self.bounds.max_features, place)?;
        refuse_feature_lists(bytes, self.record_type, place)?;
        // Of duplicate keys the last counts.
        let context: HashMap<&[u8], &Values<'_>> =
            message.context.iter().map(|(key, values)| (*key, values)).collect();
        let lists: HashMap<&[u8], &Vec<Values<'_>>> =
            message.feature_lists.iter().map(|(key, steps)| (*key, steps)).collect();
        for column in &mut self.columns {
            let name = column.name.clone();
            let fits = match (column.is_feature_list(), context.get(&*name), lists.get(&*name)) {
                (false, Some(values), _) => column.push_feature(values, input),
                (true, _, Some(steps)) => column.push_feature_list(steps, input),
                (false, None, Some(_)) => Err("the name stands in the record's feature lists, the \
                    schema asks for a feature; ask for a list of lists"
                    .to_owned()),
                (true, Some(_), None) => Err("the name stands in the record's features (context), \
                    the schema asks for a feature list; ask for a value or a list"
                    .to_owned()),
                (_, None, None) => {
                    column.push_null();
                    Ok(())
                }
            };
            fits.map_err(|what| Fault::of_feature(FaultKind::Mismatch, what, place, &name))?;
        }
        Ok(())
    }

    /// The buffered rows as a batch. Where they stand is kept for `row_place` until the next flush.
    pub fn flush(&mut self) -> Result<RecordBatch> {
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
                Err(row) => bad = Some(bad.map_or((row, index), |held| held.min((row, index)))),
            }
        }
        if let Some((row, index)) = bad {
            let (offset, record) = self.row_place(row).unwrap_or_default();
            return Err(Fault::of_feature(
                FaultKind::Mismatch,
                "the value is not valid UTF-8, the schema asks for a string; ask for binary",
                Place::Record { offset, record },
                &self.columns[index].name,
            ));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.flushed.offsets.len()));
        RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options).map_err(|error| {
            Fault::boxed(FaultKind::Mismatch, error.to_string(), self.cursor.place())
        })
    }

    /// Offset and record of a row of the batch that was flushed last.
    pub fn row_place(&self, row: usize) -> Option<(u64, u64)> {
        self.flushed.get(row)
    }
}

/// Parse a record or say why it cannot be one.
pub fn parse(
    payload: &[u8],
    record_type: RecordType,
    max_features: usize,
    place: Place,
) -> Result<Message<'_>> {
    let (message, name) = match record_type {
        RecordType::SequenceExample => (Message::sequence_example(payload), "SequenceExample"),
        _ => (Message::example(payload), "Example"),
    };
    let message = message.map_err(|_| {
        Fault::boxed(
            FaultKind::Malformed,
            format!(
                "the record is not a valid {name}, though its CRC fits: it holds something else \
                 (see record_type) or was damaged before it was written"
            ),
            place,
        )
    })?;
    let count = message.entry_count();
    if count > max_features {
        return Err(Fault::boxed(
            FaultKind::Limit,
            format!(
                "the record has {count} features, max_features is {max_features}; raise it if the file is to be \
                 trusted"
            ),
            place,
        ));
    }
    Ok(message)
}

/// Record type Example must not drop feature lists in silence.
pub fn refuse_feature_lists(payload: &[u8], record_type: RecordType, place: Place) -> Result<()> {
    if record_type != RecordType::Example
        || !Message::sequence_example(payload).is_ok_and(|message| !message.feature_lists.is_empty())
    {
        return Ok(());
    }
    Err(Fault::boxed(
        FaultKind::Mismatch,
        "the record is a SequenceExample: it has feature lists, which record type Example would drop; \
         read it with record_type=\"SequenceExample\"",
        place,
    ))
}

fn walker_for(columns: &[Column], record_type: RecordType, max_features: usize) -> Walker {
    let mut walker = Walker::new(record_type == RecordType::SequenceExample, max_features, true);
    for (index, column) in columns.iter().enumerate() {
        let (here, elsewhere) = if column.is_feature_list() {
            (&mut walker.feature_lists, &mut walker.context)
        } else {
            (&mut walker.context, &mut walker.feature_lists)
        };
        here.expect(&column.name, Action::Column(index), column.single_kind());
        elsewhere.expect(&column.name, Action::GiveUp, None);
    }
    walker
}

fn check_byte_array(schema: &SchemaRef) -> std::result::Result<(), String> {
    let is_bytes = |data_type: &DataType| {
        matches!(
            data_type,
            DataType::Binary | DataType::Utf8 | DataType::BinaryView | DataType::Utf8View
        )
    };
    // No column at all counts the records.
    if schema.fields().len() <= 1 && schema.fields().iter().all(|f| is_bytes(f.data_type())) {
        Ok(())
    } else {
        Err("ByteArray records have one column, of binary or string".to_owned())
    }
}
