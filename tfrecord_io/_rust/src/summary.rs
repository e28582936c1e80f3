//! What the columns of record batches hold: counts, extremes, sums, and sketches (`sketch.rs`).

use std::cmp::Ordering;

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Float32Type, Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;
use fearless_simd::{Level, Simd, dispatch};

use crate::hash::{hash_bits, hash_string, hash_word};
use crate::sketch::{Distinct, Frequent, Hash, LONGEST, Sample};

/// Values that are looked at together: what is made of them stays in the first cache.
const BLOCK: usize = 512;

/// What is known of a column.
#[derive(Debug, Default)]
pub struct Column {
    pub nulls: u64,
    /// How many values each list has; of a list of lists, how many lists, and then how many values.
    pub lengths: Vec<Numbers<i32>>,
    pub values: Values,
}

/// What is known of the values, whatever lists they stand in.
#[derive(Debug, Default)]
pub enum Values {
    #[default]
    Nothing,
    Ints(Numbers<i64>, Distinct<u64>),
    Floats(Numbers<f32>, Distinct<u32>),
    Doubles(Numbers<f64>, Distinct<u64>),
    Bytes(Strings),
}

/// What is known of strings.
#[derive(Debug, Default)]
pub struct Strings {
    /// In bytes.
    pub lengths: Numbers<i32>,
    pub distinct: Distinct<u64>,
    pub frequent: Frequent,
}

/// A number that `Numbers` takes.
pub trait Number: Copy + Default + PartialOrd {
    type Sum: Sum;
    /// The least and the greatest of values and of two more.
    fn extremes(values: &[Self], least: Self, most: Self) -> (Self, Self);
    /// The sum of a block of values, which lie between the two.
    fn sum(values: &[Self], least: Self, most: Self) -> Self::Sum;
}

/// What numbers are added up in.
pub trait Sum: Copy + Default + std::ops::AddAssign {
    fn mean(self, count: u64) -> f64;
}

impl Sum for i128 {
    fn mean(self, count: u64) -> f64 {
        self as f64 / count as f64
    }
}

impl Sum for f64 {
    fn mean(self, count: u64) -> f64 {
        self / count as f64
    }
}

/// The value that beats all others and `first`: several side by side, so that one comparison need
/// not wait for the one before.
#[inline(always)]
fn best_of<T: Copy, const LANES: usize>(values: &[T], first: T, best: impl Fn(T, T) -> T) -> T {
    let (groups, rest) = values.as_chunks::<LANES>();
    let mut held = [first; LANES];
    for group in groups {
        for (held, value) in held.iter_mut().zip(group) {
            *held = best(*held, *value);
        }
    }
    // By halves: the compiler spoils the loop for a chain of comparisons.
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            held[lane] = best(held[lane], held[lane + width]);
        }
        width /= 2;
    }
    rest.iter().copied().fold(held[0], best)
}

#[inline(always)]
fn extremes_of<T: Copy + PartialOrd, const LANES: usize>(
    values: &[T],
    least: T,
    most: T,
) -> (T, T) {
    (
        best_of::<_, LANES>(values, least, |one, other| if other < one { other } else { one }),
        best_of::<_, LANES>(values, most, |one, other| if other > one { other } else { one }),
    )
}

/// The same of ints, where the compiler finds the lanes by itself.
#[inline(always)]
fn extremes_of_ints<T: Copy + Ord>(values: &[T], least: T, most: T) -> (T, T) {
    values.iter().fold((least, most), |(least, most), value| (least.min(*value), most.max(*value)))
}

/// The same for sums.
#[inline(always)]
fn sum_of<T: Copy + Into<f64>>(values: &[T]) -> f64 {
    let (groups, rest) = values.as_chunks::<16>();
    let mut sums = [0.0; 16];
    for group in groups {
        for (sum, value) in sums.iter_mut().zip(group) {
            *sum += (*value).into();
        }
    }
    sums.into_iter().chain(rest.iter().map(|value| (*value).into())).sum()
}

impl Number for i32 {
    type Sum = i128;

    #[inline(always)]
    fn extremes(values: &[i32], least: i32, most: i32) -> (i32, i32) {
        extremes_of_ints(values, least, most)
    }

    #[inline(always)]
    fn sum(values: &[i32], _: i32, _: i32) -> i128 {
        values.iter().map(|value| i64::from(*value)).sum::<i64>().into()
    }
}

impl Number for i64 {
    type Sum = i128;

    #[inline(always)]
    fn extremes(values: &[i64], least: i64, most: i64) -> (i64, i64) {
        extremes_of_ints(values, least, most)
    }

    #[inline(always)]
    fn sum(values: &[i64], least: i64, most: i64) -> i128 {
        const MOST: i64 = i64::MAX / BLOCK as i64;
        if -MOST <= least && most <= MOST {
            return values.iter().sum::<i64>().into();
        }
        values.iter().map(|value| i128::from(*value)).sum()
    }
}

impl Number for f32 {
    type Sum = f64;

    #[inline(always)]
    fn extremes(values: &[f32], least: f32, most: f32) -> (f32, f32) {
        extremes_of::<_, 32>(values, least, most)
    }

    #[inline(always)]
    fn sum(values: &[f32], _: f32, _: f32) -> f64 {
        sum_of(values)
    }
}

impl Number for f64 {
    type Sum = f64;

    #[inline(always)]
    fn extremes(values: &[f64], least: f64, most: f64) -> (f64, f64) {
        extremes_of::<_, 8>(values, least, most)
    }

    #[inline(always)]
    fn sum(values: &[f64], _: f64, _: f64) -> f64 {
        sum_of(values)
    }
}

/// A float, by which `Numbers` and `Distinct` take it.
trait Float: Number {
    const NAN: Self;
    type Hash: Hash;
    fn is_nan(self) -> bool;
    fn hash(self) -> Self::Hash;
}

impl Float for f32 {
    const NAN: f32 = f32::NAN;
    type Hash = u32;

    #[inline(always)]
    fn is_nan(self) -> bool {
        self.is_nan()
    }

    #[inline(always)]
    fn hash(self) -> u32 {
        // Zero has two forms; they are equal.
        hash_word((self + 0.0).to_bits())
    }
}

impl Float for f64 {
    const NAN: f64 = f64::NAN;
    type Hash = u64;

    #[inline(always)]
    fn is_nan(self) -> bool {
        self.is_nan()
    }

    #[inline(always)]
    fn hash(self) -> u64 {
        hash_bits((self + 0.0).to_bits())
    }
}

/// What is known of numbers; those that are no numbers are only counted.
#[derive(Debug, Default)]
pub struct Numbers<T: Number> {
    pub count: u64,
    pub nans: u64,
    pub extremes: Option<(T, T)>,
    sum: T::Sum,
    sample: Sample<T>,
}

impl<T: Number> Numbers<T> {
    /// Add a block of values, none of them a NaN.
    #[inline(always)]
    fn extend(&mut self, values: &[T]) {
        let Some(first) = values.first() else { return };
        let (least, most) = self.extremes.unwrap_or((*first, *first));
        let (least, most) = T::extremes(values, least, most);
        self.extremes = Some((least, most));
        self.sum += T::sum(values, least, most);
        self.count += values.len() as u64;
        self.sample.extend(values);
    }

    /// The sample, the least value first.
    pub fn sorted_sample(&self) -> Vec<T> {
        let mut values = self.sample.values.clone();
        values.sort_unstable_by(|one, other| one.partial_cmp(other).unwrap_or(Ordering::Equal));
        values
    }

    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum.mean(self.count))
    }
}

impl Strings {
    fn update(&mut self, nulls: Option<&NullBuffer>, ends: &[i32], data: &[u8]) {
        let level = Level::new();
        let (mut starts, mut lengths, mut hashes) = ([0; BLOCK], [0; BLOCK], [0; BLOCK]);
        for_each_block(ends.len() - 1, nulls, |rows| {
            let (lengths, hashes) = (&mut lengths[..rows.len()], &mut hashes[..rows.len()]);
            dispatch!(level, simd => {
                let starts = put_lengths(ends, rows, &mut starts, lengths);
                for ((start, length), hash) in starts.iter().zip(&*lengths).zip(&mut *hashes) {
                    *hash = hash_string(data, *start as usize, *length as usize);
                }
                self.lengths.extend(lengths);
                self.distinct.extend(simd, hashes, |hash| hash);
                let strings = lengths.iter().zip(hashes.iter().zip(rows));
                let short = strings.filter(|(length, _)| **length as usize <= LONGEST);
                self.frequent.extend(simd, short.map(|(_, (hash, row))| (*hash, *row)));
            });
        });
        self.frequent.hold(|row| {
            let [from, to] = [0, 1].map(|end| ends[row as usize + end] as usize);
            &data[from..to]
        });
    }
}

impl Column {
    /// Add the rows of an array; `Err` names a type that is not summarized.
    pub fn update(&mut self, array: &ArrayRef) -> Result<(), String> {
        self.nulls += array.logical_null_count() as u64;
        let level = Level::new();
        let mut array = array.clone();
        let mut depth = 0;
        while let Some(lists) = array.as_list_opt::<i32>() {
            let ends = lists.value_offsets();
            if depth == self.lengths.len() {
                self.lengths.push(Numbers::default());
            }
            let numbers = &mut self.lengths[depth];
            let (mut starts, mut lengths) = ([0; BLOCK], [0; BLOCK]);
            for_each_block(lists.len(), lists.nulls(), |rows| {
                let lengths = &mut lengths[..rows.len()];
                dispatch!(level, _ => {
                    put_lengths(ends, rows, &mut starts, lengths);
                    numbers.extend(lengths);
                });
            });
            let (from, to) = (ends[0] as usize, ends[lists.len()] as usize);
            array = lists.values().slice(from, to - from);
            depth += 1;
        }
        self.values.update(&array)
    }
}

impl Values {
    fn update(&mut self, array: &ArrayRef) -> Result<(), String> {
        if array.logical_null_count() == array.len() {
            return Ok(());
        }
        if matches!(self, Self::Nothing) {
            *self = Self::of(array.data_type())?;
        }
        // What is done with numbers is compiled for each instruction set, and the best is run.
        let level = Level::new();
        match (self, array.data_type()) {
            (Self::Ints(numbers, distinct), DataType::Int64) => {
                for_each_block_of::<Int64Type>(array, |block| {
                    dispatch!(level, simd => update_ints(simd, block, numbers, distinct));
                });
            }
            (Self::Floats(numbers, distinct), DataType::Float32) => {
                for_each_block_of::<Float32Type>(array, |block| {
                    dispatch!(level, simd => update_floats(simd, block, numbers, distinct));
                });
            }
            (Self::Doubles(numbers, distinct), DataType::Float64) => {
                for_each_block_of::<Float64Type>(array, |block| {
                    dispatch!(level, simd => update_floats(simd, block, numbers, distinct));
                });
            }
            (Self::Bytes(strings), DataType::Binary) => {
                let array = array.as_binary::<i32>();
                strings.update(array.nulls(), array.value_offsets(), array.value_data());
            }
            (_, other) => return Err(format!("a column of {other} had another type before")),
        }
        Ok(())
    }

    /// What is known before the first value of a type.
    fn of(data_type: &DataType) -> Result<Self, String> {
        match data_type {
            DataType::Int64 => Ok(Self::Ints(Numbers::default(), Distinct::default())),
            DataType::Float32 => Ok(Self::Floats(Numbers::default(), Distinct::default())),
            DataType::Float64 => Ok(Self::Doubles(Numbers::default(), Distinct::default())),
            DataType::Binary => Ok(Self::Bytes(Strings::default())),
            other => Err(format!("a column of {other} cannot be summarized")),
        }
    }
}

/// How long the strings or lists of some rows are; return where they begin, held by `starts` unless
/// they stand together.
#[inline(always)]
fn put_lengths<'a>(
    ends: &'a [i32],
    rows: &[u32],
    starts: &'a mut [i32; BLOCK],
    lengths: &mut [i32],
) -> &'a [i32] {
    let Some(first) = rows.first().map(|row| *row as usize) else { return &[] };
    let ends = &ends[first..];
    if rows.last().is_some_and(|row| *row as usize - first + 1 == rows.len()) {
        for ((start, end), length) in ends.iter().zip(&ends[1..]).zip(lengths) {
            *length = end - start;
        }
        return &ends[..rows.len()];
    }
    for ((row, held), length) in rows.iter().zip(&mut *starts).zip(lengths) {
        let row = *row as usize - first;
        (*held, *length) = (ends[row], ends[row + 1] - ends[row]);
    }
    &starts[..rows.len()]
}

/// Add a block of floats; all NaNs are one value.
#[inline(always)]
fn update_floats<S: Simd, T: Float>(
    simd: S,
    block: &[T],
    numbers: &mut Numbers<T>,
    distinct: &mut Distinct<T::Hash>,
) {
    let nans: u32 = block.iter().map(|value| u32::from(value.is_nan())).sum();
    if nans == 0 {
        distinct.extend(simd, block, T::hash);
        numbers.extend(block);
        return;
    }
    numbers.nans += u64::from(nans);
    distinct.extend(simd, &[T::NAN], T::hash);
    let mut packed = [T::default(); BLOCK];
    let mut count = 0;
    for value in block {
        packed[count % BLOCK] = *value;
        count += usize::from(!value.is_nan());
    }
    distinct.extend(simd, &packed[..count], T::hash);
    numbers.extend(&packed[..count]);
}

/// Add a block of ints.
#[inline(always)]
fn update_ints<S: Simd>(
    simd: S,
    block: &[i64],
    numbers: &mut Numbers<i64>,
    distinct: &mut Distinct<u64>,
) {
    distinct.extend(simd, block, |value| hash_bits(value as u64));
    numbers.extend(block);
}

/// Call `each` with the rows that are not null, a block at a time.
fn for_each_block(length: usize, nulls: Option<&NullBuffer>, mut each: impl FnMut(&[u32])) {
    let mut rows = [0; BLOCK];
    let Some(nulls) = nulls else {
        for start in (0..length).step_by(BLOCK) {
            let rows = &mut rows[..BLOCK.min(length - start)];
            for (row, number) in rows.iter_mut().zip(start as u32..) {
                *row = number;
            }
            each(rows);
        }
        return;
    };
    let mut filled = 0;
    for row in nulls.valid_indices() {
        rows[filled] = row as u32;
        filled += 1;
        if filled == BLOCK {
            each(&rows);
            filled = 0;
        }
    }
    each(&rows[..filled]);
}

/// Call `each` with the values that are not null, a block at a time.
fn for_each_block_of<T: ArrowPrimitiveType>(array: &ArrayRef, mut each: impl FnMut(&[T::Native])) {
    let array = array.as_primitive::<T>();
    let values = array.values();
    if array.null_count() == 0 {
        return values.chunks(BLOCK).for_each(each);
    }
    for_each_block(array.len(), array.nulls(), |rows| {
        let mut block = [T::Native::default(); BLOCK];
        let block = &mut block[..rows.len()];
        for (row, value) in rows.iter().zip(&mut *block) {
            *value = values[*row as usize];
        }
        each(block);
    });
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash;
    use std::sync::Arc;

    use arrow_array::{BinaryArray, Float32Array, Float64Array, Int64Array, ListArray};

    use super::*;

    /// Lengths around those of groups and blocks.
    const LENGTHS: [usize; 12] = [0, 1, 7, 8, 31, 32, 33, 511, 512, 513, 1024, 1500];

    fn updated(arrays: impl IntoIterator<Item = ArrayRef>) -> Column {
        let mut column = Column::default();
        arrays.into_iter().for_each(|array| column.update(&array).unwrap());
        column
    }

    /// Values by no rule, some of them twice.
    fn bits(index: usize) -> u64 {
        hash_bits(index as u64 % 1200)
    }

    fn sum_of_ints<T: Copy + Into<i128>>(values: &[T]) -> i128 {
        values.iter().copied().map(Into::into).sum()
    }

    fn assert_distinct<H: Hash>(
        found: &Distinct<H>,
        values: impl IntoIterator<Item = impl Eq + hash::Hash>,
    ) {
        let count = values.into_iter().collect::<HashSet<_>>().len() as f64;
        let off = (found.estimate() - count).abs();
        assert!(off <= (0.03 * count).max(1.5), "{off} of {count}");
    }

    #[test]
    fn ints_are_those_of_their_rows() {
        for length in LENGTHS {
            for nulls in [0, 1, 2, 5] {
                // Sums of some blocks go beyond 64 bits.
                for shift in [0, 9, 40] {
                    let value = |index| {
                        let is_null = nulls > 0 && index % (nulls + 1) == 1;
                        (!is_null).then(|| bits(index) as i64 >> shift)
                    };
                    let rows: Vec<_> = (0..length + 3).map(value).collect();
                    let array: ArrayRef = Arc::new(Int64Array::from(rows.clone()));
                    let column = updated([array.slice(3, length), array.slice(0, 3)]);
                    let values: Vec<i64> = rows.iter().copied().flatten().collect();
                    assert_eq!(column.nulls as usize, rows.len() - values.len());
                    let Values::Ints(found, distinct) = &column.values else {
                        assert!(values.is_empty());
                        continue;
                    };
                    assert_eq!(found.count as usize, values.len());
                    let (least, most) = (values.iter().min(), values.iter().max());
                    assert_eq!(found.extremes, least.copied().zip(most.copied()));
                    assert_eq!(found.sum, sum_of_ints(&values));
                    assert_distinct(distinct, &values);
                }
            }
        }
    }

    #[test]
    fn sums_of_great_ints_are_exact() {
        const MOST: i64 = i64::MAX / BLOCK as i64;
        for value in [i64::MIN, i64::MIN / 2, -MOST - 1, -MOST, MOST, MOST + 1, i64::MAX] {
            let column = updated([Arc::new(Int64Array::from(vec![value; 700])) as ArrayRef]);
            let Values::Ints(found, _) = &column.values else { panic!() };
            assert_eq!(
                (found.sum, found.extremes),
                (700 * i128::from(value), Some((value, value)))
            );
        }
    }

    #[test]
    fn zeros_are_one_value_and_nans_another() {
        let values = [0.0, -0.0, 1.0, f32::NAN, -f32::NAN, f32::from_bits(0x7f80_0001)];
        let singles: ArrayRef = Arc::new(Float32Array::from(values.to_vec()));
        let doubles: ArrayRef = Arc::new(Float64Array::from(values.map(f64::from).to_vec()));
        let Values::Floats(found, distinct) = updated([singles]).values else { panic!() };
        assert_eq!((found.count, found.nans, distinct.estimate().round()), (3, 3, 3.0));
        let Values::Doubles(found, distinct) = updated([doubles]).values else { panic!() };
        assert_eq!((found.count, found.nans, distinct.estimate().round()), (3, 3, 3.0));
    }

    /// Floats of both signs, zeros, infinities and subnormals, and NaNs of many forms.
    fn float(index: usize, nans: usize) -> f32 {
        match index.checked_rem(nans) {
            Some(0) => f32::from_bits(0xffc0_0000 + index as u32),
            Some(1) => f32::from_bits(0x7f80_0001 + index as u32),
            _ if index % 91 == 5 => [0.0, -0.0, f32::INFINITY, 1e-45, -1e-45][index % 5],
            _ => (bits(index) as i64 >> 30) as f32,
        }
    }

    fn assert_floats<T: Float<Sum = f64> + Into<f64>>(
        found: &Numbers<T>,
        distinct: &Distinct<T::Hash>,
        rows: &[f32],
    ) {
        let is_number = |value: &&f32| !value.is_nan();
        let values: Vec<f64> = rows.iter().filter(is_number).map(|value| (*value).into()).collect();
        let nans = rows.len() - values.len();
        assert_eq!((found.count as usize, found.nans as usize), (values.len(), nans));
        let extremes = found.extremes.map(|(least, most)| (least.into(), most.into()));
        let least = values.iter().copied().reduce(f64::min);
        assert_eq!(extremes, least.zip(values.iter().copied().reduce(f64::max)));
        let sum: f64 = values.iter().sum();
        let most_off = 1e-12 * values.iter().map(|value| value.abs()).sum::<f64>();
        assert!(found.sum == sum || (found.sum - sum).abs() <= most_off);
        // Zero is one value, and all NaNs together are.
        let patterns = values.iter().map(|value| (value + 0.0).to_bits());
        assert_distinct(distinct, patterns.chain((nans > 0).then_some(f64::NAN.to_bits())));
    }

    #[test]
    fn floats_are_those_of_their_rows() {
        for length in LENGTHS {
            for (nulls, nans) in [(0, 0), (0, 2), (0, 100), (3, 0), (3, 7), (1, 2)] {
                let is_null = |index: &usize| nulls > 0 && index % (nulls + 1) == 2;
                let row = |index: usize| (!is_null(&index)).then(|| float(index, nans));
                let rows: Vec<_> = (0..length + 3).map(row).collect();
                let values: Vec<f32> = rows.iter().copied().flatten().collect();
                let array: ArrayRef = Arc::new(Float32Array::from(rows.clone()));
                match updated([array.slice(3, length), array.slice(0, 3)]).values {
                    Values::Floats(found, distinct) => assert_floats(&found, &distinct, &values),
                    _ => assert!(values.is_empty()),
                }
                let wide = rows.iter().map(|value| value.map(f64::from)).collect::<Float64Array>();
                match updated([Arc::new(wide) as ArrayRef]).values {
                    Values::Doubles(found, distinct) => assert_floats(&found, &distinct, &values),
                    _ => assert!(values.is_empty()),
                }
            }
        }
    }

    #[test]
    fn strings_are_those_of_their_rows() {
        for length in LENGTHS {
            for nulls in [0, 1, 4] {
                let text = |index: usize| "ab".repeat(index % 23) + &(bits(index) % 50).to_string();
                let is_null = |index: usize| nulls > 0 && index % (nulls + 1) == 1;
                let rows: Vec<_> =
                    (0..length + 3).map(|index| (!is_null(index)).then(|| text(index))).collect();
                let array: ArrayRef = Arc::new(BinaryArray::from_iter(rows.iter().cloned()));
                let column = updated([array.slice(3, length), array.slice(0, 3)]);
                let values: Vec<_> = rows.iter().flatten().collect();
                let Values::Bytes(found) = &column.values else {
                    assert!(values.is_empty());
                    continue;
                };
                let lengths: Vec<_> = values.iter().map(|value| value.len() as i32).collect();
                assert_eq!(found.lengths.count as usize, values.len());
                let extremes = lengths.iter().copied().min().zip(lengths.iter().copied().max());
                assert_eq!(found.lengths.extremes, extremes);
                assert_eq!(found.lengths.sum, sum_of_ints(&lengths));
                let mut exact = hashbrown::HashMap::<&str, u64>::new();
                values.iter().for_each(|value| *exact.entry(value).or_default() += 1);
                assert_distinct(&found.distinct, &values);
                for (value, least, most) in found.frequent.top(5) {
                    let count = exact[std::str::from_utf8(&value).unwrap()];
                    assert!(least <= count && count <= most, "{least} {count} {most}");
                }
            }
        }
    }

    #[test]
    fn lengths_are_those_of_the_lists_that_are_there() {
        let rows = (0..1300).map(|index: i64| {
            (index % 3 > 0)
                .then(|| vec![Some(index); (index % 7) as usize * usize::from(index > 9)])
        });
        let array = ListArray::from_iter_primitive::<Int64Type, _, _>(rows.clone());
        let column = updated([Arc::new(array.slice(1, 1299)) as ArrayRef]);
        let lists: Vec<_> = rows.flatten().collect();
        let [lengths] = &column.lengths[..] else { panic!() };
        assert_eq!((column.nulls, lengths.count as usize), (433, lists.len()));
        assert_eq!(lengths.extremes, Some((0, 6)));
        let values: Vec<_> = lists.iter().flatten().flatten().copied().collect();
        assert_eq!(lengths.sum, values.len() as i128);
        let Values::Ints(found, _) = &column.values else { panic!() };
        assert_eq!(found.sum, sum_of_ints(&values));
    }

    #[test]
    fn other_types_are_refused() {
        let array: ArrayRef = Arc::new(arrow_array::Int32Array::from(vec![1]));
        let refusal = Column::default().update(&array).unwrap_err();
        assert_eq!(refusal, "a column of Int32 cannot be summarized");
        let mut column = updated([Arc::new(Int64Array::from(vec![1])) as ArrayRef]);
        let floats: ArrayRef = Arc::new(Float32Array::from(vec![1.0]));
        assert!(column.update(&floats).is_err());
    }
}
