//! What the walk found of some records: a cell for each record and column, and where the records stand.

use std::ops::Range;

use arrow_buffer::{BooleanBuffer, NullBuffer};

use crate::canonical::{Kind, Span, one_bytes};
use crate::columns::Column;
use crate::walk::Sink;

/// Where the rows of a batch stand in their file.
#[derive(Debug, Default)]
pub struct Places {
    offsets: Vec<u64>,
    /// Row and record index wherever records begin to be counted anew.
    runs: Vec<(usize, u64)>,
    next_record: Option<u64>,
}

impl Places {
    pub fn rows(&self) -> usize {
        self.offsets.len()
    }

    #[inline(always)]
    pub fn push(&mut self, offset: u64, record: u64) {
        if self.next_record != Some(record) {
            self.runs.push((self.offsets.len(), record));
        }
        self.next_record = Some(record + 1);
        self.offsets.push(offset);
    }

    pub fn truncate(&mut self, rows: usize) {
        self.offsets.truncate(rows);
        self.runs.retain(|(first, _)| *first < rows);
        self.next_record = None;
    }

    pub fn get(&self, row: usize) -> Option<(u64, u64)> {
        let offset = *self.offsets.get(row)?;
        let (first, record) = *self.runs.iter().rfind(|(first, _)| *first <= row)?;
        Some((offset, record + (row - first) as u64))
    }
}

/// Where the values of some records stand: a cell for each record and column.
#[derive(Debug)]
pub struct Block {
    /// Column by column, `max_rows` each: where a value begins, counted from `base`, and how long
    /// it is.
    cells: Vec<u64>,
    base: usize,
    max_rows: usize,
    /// What the walk needs to know of each column: the kind it takes, and whether it takes one
    /// value.
    expected: Vec<(Option<Kind>, bool)>,
    /// The payload of each record.
    pub payloads: Vec<Span>,
}

/// The record does not have the feature.
const ABSENT: u64 = u64::MAX;
/// The record has the feature, without a kind.
const KINDLESS: u64 = u64::MAX - 1;
/// Cells of one block: they should stay in the first cache.
const BLOCK_CELLS: usize = 4096;
const BLOCK_ROWS: usize = 128;
/// Bytes of one block: they should still be near when their values are copied.
const BLOCK_BYTES: usize = 64 * 1024;

impl Block {
    pub fn new(columns: &[Column]) -> Self {
        let max_rows = (BLOCK_CELLS / columns.len().max(1)).clamp(1, BLOCK_ROWS);
        Self {
            cells: vec![ABSENT; max_rows * columns.len()],
            base: 0,
            max_rows,
            expected: columns.iter().map(|column| (column.kind(), column.is_bare())).collect(),
            payloads: Vec::new(),
        }
    }

    pub fn clear(&mut self) {
        self.cells.fill(ABSENT);
        self.payloads.clear();
    }

    pub fn is_full(&self) -> bool {
        self.payloads.len() >= self.max_rows || self.end() - self.base >= BLOCK_BYTES
    }

    /// Where the last record ends.
    pub fn end(&self) -> usize {
        self.payloads.last().map_or(self.base, |payload| payload.end)
    }

    pub fn begin_row(&mut self, payload: Span) {
        if self.payloads.is_empty() {
            self.base = payload.at;
        }
    }

    pub fn end_row(&mut self, payload: Span) {
        self.payloads.push(payload);
    }

    /// Forget what was noted of a row that has not ended.
    pub fn drop_row(&mut self) {
        self.cells
            .iter_mut()
            .skip(self.payloads.len())
            .step_by(self.max_rows)
            .for_each(|cell| *cell = ABSENT);
    }

    #[inline(always)]
    fn set(&mut self, column: usize, cell: u64) -> bool {
        match self.cells.get_mut(column * self.max_rows + self.payloads.len()) {
            Some(held) if *held == ABSENT => {
                *held = cell;
                true
            }
            // The record has the name twice.
            _ => false,
        }
    }

    #[inline(always)]
    pub fn set_span(&mut self, column: usize, span: Span) -> bool {
        let (at, length) = (span.at - self.base, span.end - span.at);
        self.set(column, (at as u64) << 32 | length as u64)
    }

    /// The cells of a column in some of the rows.
    pub fn column(&self, column: usize, rows: Range<usize>) -> Cells<'_> {
        let first = column * self.max_rows;
        let cells = &self.cells[first + rows.start..first + rows.end];
        Cells { cells, base: self.base }
    }
}

/// What the walk found of one column: a span a row, or nothing.
#[derive(Clone, Copy)]
pub struct Cells<'a> {
    cells: &'a [u64],
    base: usize,
}

impl Cells<'_> {
    pub fn len(self) -> usize {
        self.cells.len()
    }

    #[inline(always)]
    pub fn iter(self) -> impl Iterator<Item = Option<Span>> {
        self.cells.iter().map(move |cell| {
            (*cell < KINDLESS).then(|| {
                let at = self.base + (*cell >> 32) as usize;
                Span { at, end: at + (*cell as u32) as usize }
            })
        })
    }

    /// Whether all rows have a value.
    pub fn are_valid(self) -> bool {
        self.cells.iter().all(|cell| *cell < KINDLESS)
    }

    /// Which rows have a value.
    pub fn validity(self) -> NullBuffer {
        BooleanBuffer::collect_bool(self.len(), |row| self.cells[row] < KINDLESS).into()
    }
}

impl Sink for Block {
    #[inline(always)]
    fn short(&mut self, column: usize, _: Kind, _: &[u8], value: Span) -> bool {
        self.set_span(column, value)
    }

    #[inline(always)]
    fn list(&mut self, column: usize, kind: Kind, data: &[u8], list: Span) -> bool {
        match self.expected[column] {
            (Some(Kind::Bytes), true) if kind == Kind::Bytes => {
                one_bytes(data, list).is_some_and(|value| self.set_span(column, value))
            }
            (Some(expected), _) if kind == expected => self.set_span(column, list),
            // A list without values is one of any kind.
            (Some(_), false) if list.at == list.end => self.set_span(column, list),
            _ => false,
        }
    }

    fn kindless(&mut self, column: usize) -> bool {
        self.set(column, KINDLESS)
    }

    fn feature_list(&mut self, column: usize, _: &[u8], steps: Span) -> bool {
        self.set_span(column, steps)
    }
}
