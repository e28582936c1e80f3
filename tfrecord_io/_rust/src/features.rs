//! Columns of wire types, seen as the features of records that are to be written.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int64Type};
use arrow_array::{Array, ArrayRef};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;
use fearless_simd::{Level, Simd, dispatch};

use crate::canonical::Kind;
use crate::fetch::{fetch, fetch_short};
use crate::packed::Packed;
use crate::pen::{Pen, delimited_len, varint_len};
use crate::template::Template;

/// The row has no such feature.
pub const ABSENT: usize = usize::MAX;

/// Of a list with one short value: the tag and the length before the value.
pub const VALUE_HEADER: usize = 2;

/// The values of a column, whatever lists they stand in.
pub enum Values<'a> {
    Int64(&'a [i64]),
    /// Float32 as its bytes.
    Float32(&'a [u8]),
    Bytes {
        offsets: Offsets<'a>,
        data: &'a [u8],
    },
    Null,
}

/// Where runs of elements begin and end.
pub enum Offsets<'a> {
    Narrow(&'a [i32]),
    Wide(&'a [i64]),
    Fixed(usize),
}

impl Offsets<'_> {
    #[inline(always)]
    pub fn get(&self, index: usize) -> (usize, usize) {
        match self {
            Self::Narrow(ends) => (ends[index] as usize, ends[index + 1] as usize),
            Self::Wide(ends) => (ends[index] as usize, ends[index + 1] as usize),
            Self::Fixed(size) => (index * size, (index + 1) * size),
        }
    }
}

/// The runs of packed numbers that some rows of a column of lists have.
#[derive(Debug, Default)]
pub struct Runs {
    pub ints: Packed,
    /// Where each row's run begins and ends: in `ints`, or in the column's floats.
    pub spans: Vec<(usize, usize)>,
}

/// Lists of one level.
pub struct Lists<'a> {
    offsets: Offsets<'a>,
    nulls: Option<&'a NullBuffer>,
}

pub enum Nesting<'a> {
    Bare,
    List(Lists<'a>),
    Steps { outer: Lists<'a>, inner: Lists<'a> },
}

pub struct Column<'a> {
    pub name: &'a str,
    pub nesting: Nesting<'a>,
    pub values: Values<'a>,
    pub nulls: Option<&'a NullBuffer>,
    /// `0A K key`.
    pub key: Vec<u8>,
    /// The tag of the kind in a Feature.
    pub kind: u8,
    pub template: Option<Template>,
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
    pub fn new(name: &'a str, array: &'a ArrayRef) -> Option<Self> {
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
            (Nesting::Steps { .. }, _) | (Nesting::List(_), Some(Kind::Bytes)) => None,
            (_, kind) => kind.and_then(|kind| Template::new(name.as_bytes(), Some(kind))),
        };
        let kind = kind.map_or(0, Kind::tag);
        Some(Self { name, nesting, values, nulls: array.nulls(), key, kind, template })
    }

    pub fn is_feature_list(&self) -> bool {
        matches!(self.nesting, Nesting::Steps { .. })
    }

    /// Whether the row has a feature at all.
    #[inline(always)]
    pub fn has(&self, row: usize) -> bool {
        match &self.nesting {
            Nesting::Bare if matches!(self.values, Values::Null) => false,
            _ => self.nulls.is_none_or(|nulls| nulls.is_valid(row)),
        }
    }

    /// The size of what a BytesList, FloatList or Int64List of these values holds; `None`: they
    /// have no kind.
    #[inline(always)]
    pub fn list_len(&self, (from, to): (usize, usize)) -> Option<usize> {
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

    /// Write what a BytesList, FloatList or Int64List of these values holds.
    #[inline(always)]
    pub fn put_list(&self, pen: &mut Pen<'_>, (from, to): (usize, usize)) {
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
                let packed =
                    ints[from..to].iter().map(|int| varint_len(*int as u64)).sum::<usize>();
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
    pub fn elements(&self, row: usize) -> (usize, usize) {
        match &self.nesting {
            Nesting::List(lists) => lists.offsets.get(row),
            _ => (row, row + 1),
        }
    }

    /// The elements of some rows, those of nulls among them.
    pub fn elements_of(&self, rows: &Range<usize>) -> (usize, usize) {
        match rows.is_empty() {
            true => (0, 0),
            false => (self.elements(rows.start).0, self.elements(rows.end - 1).1),
        }
    }

    #[inline(always)]
    pub fn put_entry(&self, pen: &mut Pen<'_>, row: usize, list_len: usize) {
        self.put_head(pen, list_len);
        self.put_list(pen, self.elements(row));
    }

    /// What stands before what the list of an entry holds.
    #[inline(always)]
    pub fn put_head(&self, pen: &mut Pen<'_>, list_len: usize) {
        let feature_len = delimited_len(list_len);
        pen.tag(0x0a, self.key.len() + delimited_len(feature_len));
        pen.slice(&self.key, 0, self.key.len());
        pen.tag(0x12, feature_len);
        pen.tag(self.kind, list_len);
    }

    /// Append the sizes of what the lists of some rows hold; returns the first row that cannot be
    /// written.
    ///
    /// To know how long a run of packed ints is takes as long as to pack it, so that is done here,
    /// into `runs`.
    pub fn sizes(
        &self,
        level: Level,
        rows: Range<usize>,
        into: &mut Vec<usize>,
        runs: &mut Runs,
    ) -> Option<usize> {
        let mut bad = None;
        let sizes = rows.clone();
        match (&self.nesting, &self.values) {
            (Nesting::Bare, Values::Null) => into.extend(sizes.map(|_| ABSENT)),
            (Nesting::Bare, Values::Int64(ints)) => {
                fetch(ints, rows.end..rows.end + rows.len());
                let ints = ints[rows.clone()].iter();
                dispatch!(level, _ => {
                    into.extend(ints.map(|int| VALUE_HEADER + varint_len(*int as u64)));
                });
            }
            (Nesting::Bare, Values::Float32(_)) => into.extend(sizes.map(|_| VALUE_HEADER + 4)),
            (Nesting::Bare, Values::Bytes { offsets: Offsets::Narrow(ends), data }) => {
                fetch(ends, rows.end..rows.end + rows.len());
                let ends = &ends[rows.start..=rows.end];
                fetch_short(data, ends[0] as usize..ends[rows.len()] as usize);
                dispatch!(level, _ => {
                    let lengths = ends.iter().zip(&ends[1..]).map(|(from, to)| (to - from) as usize);
                    into.extend(lengths.map(delimited_len));
                });
            }
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
            (Nesting::List(_), Values::Int64(ints)) => {
                let (first, end) = self.elements_of(&rows);
                runs.ints.pack(&ints[first..end]);
                let Runs { ints, spans } = runs;
                self.run_sizes(rows.clone(), into, spans, |(from, to)| {
                    ints.range((from - first, to - first))
                });
            }
            (Nesting::List(_), Values::Float32(_)) => {
                let span = |(from, to)| (from * 4, to * 4);
                self.run_sizes(rows.clone(), into, &mut runs.spans, span);
            }
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
            // Without branches: which rows have nulls is hard to predict.
            for (size, row) in into[first..].iter_mut().zip(rows) {
                *size |= ABSENT * usize::from(nulls.is_null(row));
            }
        }
        bad
    }

    /// The same for lists of numbers; also which bytes each row's run has.
    #[inline(always)]
    fn run_sizes(
        &self,
        rows: Range<usize>,
        into: &mut Vec<usize>,
        spans: &mut Vec<(usize, usize)>,
        span: impl Fn((usize, usize)) -> (usize, usize),
    ) {
        spans.clear();
        for row in rows {
            let has = self.has(row);
            let (start, end) = if has { span(self.elements(row)) } else { (0, 0) };
            spans.push((start, end));
            into.push(match end - start {
                _ if !has => ABSENT,
                0 => 0,
                run => delimited_len(run),
            });
        }
    }

    /// What stands before a run of packed numbers in an entry; an empty list has no run.
    #[inline(always)]
    pub fn put_run_head<S: Simd>(
        &self,
        simd: S,
        pen: &mut Pen<'_>,
        template: Option<&Template>,
        list_len: usize,
        run: usize,
    ) {
        if run > 0 && template.is_some_and(|template| pen.template(simd, template, run)) {
            return;
        }
        self.put_head(pen, list_len);
        if run > 0 {
            pen.tag(0x0a, run);
        }
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

    pub fn put_steps_entry(&self, pen: &mut Pen<'_>, row: usize, steps_len: usize) {
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
            pen.tag(self.kind, list_len);
            self.put_list(pen, elements);
        }
    }
}
