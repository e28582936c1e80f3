//! Arrow columns in the making: append rows, take back an unfinished row, finish into arrays.

use std::sync::Arc;

use arrow_array::{ArrayRef, ListArray};
use arrow_buffer::{NullBuffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, FieldRef};

use crate::block::Cells;
use crate::canonical::{Kind, Span, for_each_step, one_varint};
use crate::leaf::{Input, Leaf, NotText, carried, room};
use crate::message::{Steps, Values};
use crate::packed::unpack;

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

    fn reserve(&mut self, factor: usize) {
        self.ends.reserve(self.ends.len().saturating_mul(factor));
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

    /// The list that holds an element that is not text, and the lists before it.
    fn cut(mut self, found: NotText, nulls: Option<NullBuffer>) -> NotText {
        let at = self.list_of(found.at);
        let values = found.before.slice(0, self.truncate(at));
        NotText { at, before: self.finish(values, nulls.map(|nulls| nulls.slice(0, at))) }
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
    nesting: Nesting,
    leaf: Leaf,
    nulls: NullBufferBuilder,
}

impl Column {
    /// An empty column of a wire type; `None` for any other type.
    pub fn new(name: &str, data_type: &DataType) -> Option<Self> {
        let nesting = match &carried(data_type) {
            DataType::List(outer) => match outer.data_type() {
                DataType::List(inner) => Nesting::Steps {
                    outer: Lists::new(outer, 0),
                    inner: Lists::new(inner, 0),
                    inner_nulls: NullBufferBuilder::new(0),
                },
                _ => Nesting::List(Lists::new(outer, 0)),
            },
            _ => Nesting::Bare,
        };
        let mut leaf = data_type;
        while let DataType::List(item) = leaf {
            leaf = item.data_type();
        }
        Some(Self {
            name: name.as_bytes().into(),
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
            nesting,
            leaf: self.leaf.fresh(),
            nulls: NullBufferBuilder::new(0),
        }
    }

    /// Make room for `factor` times as many rows as there are, if they are like these.
    pub fn reserve(&mut self, factor: usize) {
        self.leaf.reserve(factor);
        match &mut self.nesting {
            Nesting::Bare => {}
            Nesting::List(lists) => lists.reserve(factor),
            Nesting::Steps { outer, inner, .. } => {
                outer.reserve(factor);
                inner.reserve(factor);
            }
        }
    }

    /// Whether it reads feature lists.
    pub fn is_feature_list(&self) -> bool {
        matches!(self.nesting, Nesting::Steps { .. })
    }

    /// The kind of the short values that are expected: single ones, or short runs of packed
    /// numbers.
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

    pub fn push_null(&mut self) {
        match &mut self.nesting {
            Nesting::Bare => self.leaf.push_null(),
            Nesting::List(lists) => lists.close(self.leaf.len()),
            Nesting::Steps { outer, inner, .. } => outer.close(inner.count()),
        }
        self.nulls.append_null();
    }

    /// Push a row for each cell; false if one does not fit, and then some rows may have been
    /// pushed.
    ///
    /// A cell is what the walk found: the bytes of one string, a run of packed numbers, the entries
    /// of a BytesList for a list of bytes, the steps of a feature list; or nothing, which is null.
    /// The loops stand apart for the types that most columns have, so that nothing is decided anew
    /// for each cell.
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
                Some(value) => leaf.push_single(input, value),
                None => {
                    leaf.push_null();
                    true
                }
            }),
            (Nesting::List(lists), Leaf::Int64(values)) => fill(cells, |cell| {
                let fits = cell.is_none_or(|run| unpack(run, source, values));
                lists.close(values.len());
                fits
            }),
            (Nesting::List(lists), Leaf::Float32(values)) => fill(cells, |cell| {
                let fits = cell.is_none_or(|run| values.extend(source, run));
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
                        let fits =
                            step.is_none_or(|(kind, list)| leaf.push_list(kind, input, list));
                        inner.close(leaf.len());
                        fits
                    })
                });
                outer.close(inner.count());
                fits
            }),
        };
        if cells.are_valid() {
            self.nulls.append_n_non_nulls(cells.len());
        } else {
            self.nulls.append_buffer(&cells.validity());
        }
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
                "the record has {} values, the schema asks for one; ask for a list of its type",
                values.len()
            ));
        }
        self.leaf.push_values(values, input)?;
        if let Nesting::List(lists) = &mut self.nesting {
            lists.close(self.leaf.len());
        }
        self.nulls.append_non_null();
        Ok(())
    }

    /// The same for a feature list.
    pub fn push_feature_list(&mut self, steps: &Steps<'_>, input: Input<'_>) -> Result<(), String> {
        if let Nesting::Steps { outer, inner, inner_nulls } = &mut self.nesting {
            let mut fits = Ok(());
            steps.each(|values| {
                if fits.is_ok() {
                    inner_nulls.append(*values != Values::None);
                    fits = self.leaf.push_values(values, input);
                    inner.close(self.leaf.len());
                }
            });
            fits?;
            outer.close(inner.count());
        }
        self.nulls.append_non_null();
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
    }

    /// The finished array, of the type that `carried` tells; or the first row that holds a string
    /// that is not UTF-8.
    pub fn finish(mut self) -> Result<ArrayRef, NotText> {
        let nulls = self.nulls.finish();
        match self.nesting {
            Nesting::Bare => self.leaf.finish(nulls),
            Nesting::List(lists) => match self.leaf.finish(None) {
                Ok(values) => Ok(lists.finish(values, nulls)),
                Err(found) => Err(lists.cut(found, nulls)),
            },
            Nesting::Steps { outer, inner, mut inner_nulls } => {
                let inner_nulls = inner_nulls.finish();
                match self.leaf.finish(None) {
                    Ok(values) => Ok(outer.finish(inner.finish(values, inner_nulls), nulls)),
                    Err(found) => Err(outer.cut(inner.cut(found, inner_nulls), nulls)),
                }
            }
        }
    }
}
