//! What the columns of record batches hold: counts, extremes, sums, and the sketches of `sketch.rs`.

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Float32Type, Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;

use crate::sketch::{Count, Distinct, Frequent, LONGEST, Sample, hash_bits, hash_bytes};

/// Columns of batches that have the same schema.
#[derive(Debug)]
pub struct Summary {
    pub columns: Vec<Column>,
    pub rows: u64,
}

/// What is known of a column.
#[derive(Debug, Default)]
pub struct Column {
    pub nulls: u64,
    /// How many values each list has; of a list of lists, how many lists, and then how many values.
    pub lengths: Vec<Numbers<i64>>,
    pub values: Values,
}

/// What is known of the values, whatever lists they stand in.
#[derive(Debug, Default)]
pub enum Values {
    #[default]
    Nothing,
    Ints(Numbers<i64>, Distinct),
    Floats(Numbers<f64>, Distinct),
    Bytes(Strings),
}

/// What is known of strings.
#[derive(Debug, Default)]
pub struct Strings {
    /// In bytes.
    pub lengths: Numbers<i64>,
    pub distinct: Distinct,
    frequent: Frequent,
}

/// A number that `Numbers` takes.
pub trait Number: Copy + PartialOrd + Default {
    type Sum: Copy + Default + std::ops::AddAssign;
    fn sum(values: &[Self]) -> Self::Sum;
    fn mean(sum: Self::Sum, count: u64) -> f64;
}

impl Number for i64 {
    type Sum = i128;

    fn sum(values: &[Self]) -> i128 {
        values.iter().map(|value| i128::from(*value)).sum()
    }

    fn mean(sum: i128, count: u64) -> f64 {
        sum as f64 / count as f64
    }
}

impl Number for f64 {
    type Sum = f64;

    fn sum(values: &[Self]) -> f64 {
        // Sums side by side: one addition need not wait for the one before.
        let (groups, rest) = values.as_chunks::<8>();
        let mut sums = [0.0; 8];
        for group in groups {
            for (sum, value) in sums.iter_mut().zip(group) {
                *sum += value;
            }
        }
        sums.iter().chain(rest).sum()
    }

    fn mean(sum: f64, count: u64) -> f64 {
        sum / count as f64
    }
}

/// What is known of numbers; those that are no numbers are only counted.
#[derive(Debug, Default)]
pub struct Numbers<T: Number> {
    pub count: u64,
    pub nans: u64,
    pub extremes: Option<(T, T)>,
    sum: T::Sum,
    pub sample: Sample<T>,
}

impl<T: Number> Numbers<T> {
    /// Add values that stand together, none of them a NaN.
    fn extend(&mut self, values: &[T]) {
        let Some(first) = values.first() else { return };
        let (least, most) = self.extremes.unwrap_or((*first, *first));
        let (groups, rest) = values.as_chunks::<8>();
        let (mut least, mut most) = ([least; 8], [most; 8]);
        for group in groups {
            for (index, value) in group.iter().enumerate() {
                least[index] = if *value < least[index] { *value } else { least[index] };
                most[index] = if *value > most[index] { *value } else { most[index] };
            }
        }
        let less = |one: T, other: T| if other < one { other } else { one };
        let more = |one: T, other: T| if other > one { other } else { one };
        let [first_least, least @ ..] = least;
        let [first_most, most @ ..] = most;
        self.extremes = Some((
            least.iter().chain(rest).copied().fold(first_least, less),
            most.iter().chain(rest).copied().fold(first_most, more),
        ));
        self.sum += T::sum(values);
        self.count += values.len() as u64;
        self.sample.extend(values);
    }

    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| T::mean(self.sum, self.count))
    }
}

impl Strings {
    pub fn top(&self, most: usize) -> Vec<Count> {
        self.frequent.top(most)
    }

    #[inline(always)]
    fn add(&mut self, value: &[u8]) {
        let hash = hash_bytes(value);
        self.distinct.add(hash);
        if value.len() <= LONGEST {
            self.frequent.add(hash, value);
        }
    }
}

impl Summary {
    pub fn new(columns: usize) -> Self {
        Self { columns: (0..columns).map(|_| Column::default()).collect(), rows: 0 }
    }

    /// Add the rows of a batch; `Err` names a column of a type that is not summarized.
    pub fn update(&mut self, batch: &RecordBatch) -> Result<(), String> {
        for (column, array) in self.columns.iter_mut().zip(batch.columns()) {
            column.update(array)?;
        }
        self.rows += batch.num_rows() as u64;
        Ok(())
    }
}

impl Column {
    fn lengths_at(&mut self, depth: usize) -> &mut Numbers<i64> {
        while self.lengths.len() <= depth {
            self.lengths.push(Numbers::default());
        }
        &mut self.lengths[depth]
    }

    fn update(&mut self, array: &ArrayRef) -> Result<(), String> {
        self.nulls += array.logical_null_count() as u64;
        let mut array = array.clone();
        let mut depth = 0;
        while let Some(lists) = array.as_list_opt::<i32>() {
            let ends = lists.value_offsets();
            let lengths: Vec<i64> = runs(lists.len(), lists.nulls())
                .into_iter()
                .flat_map(|(from, to)| ends[from..=to].windows(2))
                .map(|end| i64::from(end[1] - end[0]))
                .collect();
            self.lengths_at(depth).extend(&lengths);
            let (from, to) = (ends[0] as usize, ends[lists.len()] as usize);
            array = lists.values().slice(from, to - from);
            depth += 1;
        }
        self.values.update(&array)
    }
}

impl Values {
    fn update(&mut self, array: &ArrayRef) -> Result<(), String> {
        match array.data_type() {
            DataType::Null => {}
            DataType::Int64 => {
                if matches!(self, Self::Nothing) {
                    *self = Self::Ints(Numbers::default(), Distinct::default());
                }
                if let Self::Ints(numbers, distinct) = self {
                    for_each_run::<Int64Type>(array, |values| {
                        values.iter().for_each(|value| distinct.add(hash_bits(*value as u64)));
                        numbers.extend(values);
                    });
                }
            }
            DataType::Float32 => {
                // A piece at a time, so that what is widened stays in the first cache.
                let mut wide = [0.0; 512];
                for_each_run::<Float32Type>(array, |values| {
                    for piece in values.chunks(wide.len()) {
                        let wide = &mut wide[..piece.len()];
                        for (wide, value) in wide.iter_mut().zip(piece) {
                            *wide = f64::from(*value);
                        }
                        self.update_floats(wide);
                    }
                });
            }
            DataType::Float64 => {
                for_each_run::<Float64Type>(array, |values| self.update_floats(values));
            }
            DataType::Utf8 => {
                let strings = array.as_string::<i32>();
                self.update_bytes(array, strings.value_offsets(), strings.value_data());
            }
            DataType::Binary => {
                let bytes = array.as_binary::<i32>();
                self.update_bytes(array, bytes.value_offsets(), bytes.value_data());
            }
            other => return Err(format!("a column of {other} cannot be summarized")),
        }
        Ok(())
    }

    fn update_floats(&mut self, values: &[f64]) {
        if matches!(self, Self::Nothing) {
            *self = Self::Floats(Numbers::default(), Distinct::default());
        }
        let Self::Floats(numbers, distinct) = self else { return };
        // Zero has two forms; they are equal.
        values.iter().for_each(|value| distinct.add(hash_bits((value + 0.0).to_bits())));
        let nans = values.iter().map(|value| u64::from(value.is_nan())).sum::<u64>();
        numbers.nans += nans;
        if nans == 0 {
            return numbers.extend(values);
        }
        for run in values.split(|value| value.is_nan()) {
            numbers.extend(run);
        }
    }

    fn update_bytes(&mut self, array: &ArrayRef, ends: &[i32], data: &[u8]) {
        if matches!(self, Self::Nothing) {
            *self = Self::Bytes(Strings::default());
        }
        let Self::Bytes(strings) = self else { return };
        let mut lengths = Vec::with_capacity(array.len());
        for (from, to) in runs(array.len(), array.nulls()) {
            for end in ends[from..=to].windows(2) {
                strings.add(&data[end[0] as usize..end[1] as usize]);
                lengths.push(i64::from(end[1] - end[0]));
            }
        }
        strings.lengths.extend(&lengths);
    }
}

/// Where runs of valid values begin and end.
fn runs(length: usize, nulls: Option<&NullBuffer>) -> Vec<(usize, usize)> {
    match nulls {
        None => vec![(0, length)],
        Some(nulls) => nulls.valid_slices().collect(),
    }
}

/// Call `each` with the values between nulls.
fn for_each_run<T: ArrowPrimitiveType>(array: &ArrayRef, mut each: impl FnMut(&[T::Native])) {
    let array = array.as_primitive::<T>();
    for (from, to) in runs(array.len(), array.nulls()) {
        each(&array.values()[from..to]);
    }
}
