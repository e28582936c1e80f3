//! The Python module `tfrecord_io._native`: buffers in, Arrow out, the GIL released. Its
//! documentation stands in `_native.pyi`.

use std::sync::Arc;

use arrow_array::types::{ArrowPrimitiveType, Float32Type, Float64Type, Int32Type, Int64Type};
use arrow_array::{Array, PrimitiveArray, RecordBatch, StructArray, UInt8Array, UInt64Array};
use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use arrow_data::ffi::FFI_ArrowArray;
use arrow_pyarrow::{FromPyArrow, PyArrowType, ToPyArrow};
use arrow_schema::Schema;
use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::canonical::Kind;
use crate::decode::{self, Bounds};
use crate::error::{self, Fault, FaultKind, Place};
use crate::framing::{self, Cursor};
use crate::record::RecordType;
use crate::summary::{Numbers, Values};
use crate::walk::Unknown;
use crate::{encode, infer, summary};

/// The exception that a fault becomes.
fn raised(py: Python<'_>, fault: &Fault) -> PyErr {
    let name = match fault.kind {
        FaultKind::Checksum => "ChecksumError",
        FaultKind::Malformed => "DecodeError",
        FaultKind::Limit => "LimitExceededError",
        FaultKind::Mismatch => "SchemaMismatchError",
        FaultKind::Encode => "EncodeError",
    };
    let build = || {
        let places = PyDict::new(py);
        match fault.place {
            Place::Record { offset, record } => {
                places.set_item("offset", offset)?;
                places.set_item("record", record)?;
            }
            Place::Row(row) => places.set_item("row", row)?,
        }
        places.set_item("feature", fault.feature.as_deref())?;
        let errors = py.import("tfrecord_io.errors")?;
        errors.getattr(name)?.call((fault.what.as_str(),), Some(&places))
    };
    match build() {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// Do work with the GIL released; a fault of it becomes an exception.
fn detached<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> error::Result<T> + Send,
) -> PyResult<T> {
    py.detach(work).map_err(|fault| raised(py, &fault))
}

fn record_type_of(name: &str) -> PyResult<RecordType> {
    match name {
        "Example" => Ok(RecordType::Example),
        "SequenceExample" => Ok(RecordType::SequenceExample),
        "ByteArray" => Ok(RecordType::ByteArray),
        _ => Err(PyValueError::new_err(format!("no record type {name:?}"))),
    }
}

/// The bytes of a pyarrow array of uint8, shared with it.
struct Bytes(Buffer);

impl<'py> FromPyObject<'_, 'py> for Bytes {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let data = ArrayData::from_pyarrow_bound(&object)?;
        let array = UInt8Array::from(data);
        Ok(Self(array.values().inner().clone()))
    }
}

fn starts_within(start: usize, data: &Buffer) -> PyResult<()> {
    if start <= data.len() {
        return Ok(());
    }
    Err(PyIndexError::new_err(format!("start {start} is behind the {} bytes given", data.len())))
}

fn unsigned(values: Vec<u64>) -> PyArrowType<ArrayData> {
    PyArrowType(UInt64Array::from(values).into_data())
}

#[pyclass(module = "tfrecord_io._native")]
struct Decoder {
    inner: decode::Decoder,
}

#[pymethods]
impl Decoder {
    #[new]
    #[pyo3(signature = (schema, names, record_type, check_all, batch_rows, batch_bytes, max_record_bytes, max_features))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        schema: PyArrowType<Schema>,
        names: Vec<String>,
        record_type: &str,
        check_all: bool,
        batch_rows: usize,
        batch_bytes: usize,
        max_record_bytes: u64,
        max_features: usize,
    ) -> PyResult<Self> {
        let bounds = Bounds { batch_rows, batch_bytes, max_features };
        let cursor = Cursor::new(0, 0, max_record_bytes);
        let (schema, record_type) = (Arc::new(schema.0), record_type_of(record_type)?);
        let unknown = if check_all { Unknown::Check } else { Unknown::Skip };
        let inner = decode::Decoder::new(schema, &names, record_type, unknown, bounds, cursor)
            .map_err(PyTypeError::new_err)?;
        Ok(Self { inner })
    }

    fn fresh(&self) -> Self {
        Self { inner: self.inner.fresh() }
    }

    #[getter]
    fn offset(&self) -> u64 {
        self.inner.cursor.offset
    }

    #[getter]
    fn record(&self) -> u64 {
        self.inner.cursor.record
    }

    #[getter]
    fn needed(&self) -> u64 {
        self.inner.cursor.needed
    }

    #[getter]
    fn rows(&self) -> usize {
        self.inner.rows()
    }

    #[getter]
    fn full(&self) -> bool {
        self.inner.full
    }

    fn seek(&mut self, offset: u64, record: u64) {
        self.inner.cursor.seek(offset, record);
    }

    fn decode(&mut self, py: Python<'_>, data: Bytes, start: usize) -> PyResult<usize> {
        starts_within(start, &data.0)?;
        detached(py, || self.inner.decode(&data.0, start))
    }

    /// `schema` is the one that the decoder was made for: it need not cross anew with each batch, and
    /// tells which of the binary that comes out is text.
    fn flush<'py>(
        &mut self,
        py: Python<'py>,
        schema: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let batch = detached(py, || self.inner.flush())?;
        let mut array = FFI_ArrowArray::new(&StructArray::from(batch).into_data());
        let address = &raw mut array as usize;
        let batches = py.import("pyarrow")?.getattr("RecordBatch")?;
        batches.call_method1("_import_from_c", (address, schema))
    }

    fn row_place(&self, row: usize) -> PyResult<(u64, u64)> {
        self.inner
            .row_place(row)
            .ok_or_else(|| PyIndexError::new_err(format!("the last batch has no row {row}")))
    }
}

#[pyclass(module = "tfrecord_io._native")]
struct Observer {
    inner: infer::Observer,
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Bytes => "bytes",
        Kind::Float => "float",
        Kind::Int64 => "int64",
    }
}

#[pymethods]
impl Observer {
    #[new]
    fn new(record_type: &str, max_record_bytes: u64, max_features: usize) -> PyResult<Self> {
        let cursor = Cursor::new(0, 0, max_record_bytes);
        let inner = infer::Observer::new(record_type_of(record_type)?, max_features, cursor);
        Ok(Self { inner })
    }

    #[getter]
    fn offset(&self) -> u64 {
        self.inner.cursor.offset
    }

    #[getter]
    fn record(&self) -> u64 {
        self.inner.cursor.record
    }

    #[getter]
    fn needed(&self) -> u64 {
        self.inner.cursor.needed
    }

    #[getter]
    fn records(&self) -> u64 {
        self.inner.records
    }

    fn seek(&mut self, offset: u64, record: u64) {
        self.inner.cursor.seek(offset, record);
    }

    fn observe(&mut self, py: Python<'_>, data: Bytes, start: usize) -> PyResult<usize> {
        starts_within(start, &data.0)?;
        detached(py, || self.inner.observe(&data.0, start))
    }

    fn traits<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyBytes>> {
        self.inner.features.iter().map(|feature| PyBytes::new(py, &feature.traits())).collect()
    }

    fn features<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let seen = |kinds: &[(Kind, infer::Sighting)]| {
            kinds.iter().map(|(kind, at)| (kind_name(*kind), *at)).collect::<Vec<_>>()
        };
        self.inner
            .features
            .iter()
            .map(|feature| {
                let dict = PyDict::new(py);
                dict.set_item("name", &feature.name)?;
                dict.set_item("is_feature_list", feature.is_feature_list)?;
                dict.set_item("first", feature.first)?;
                dict.set_item("is_single", feature.is_single())?;
                dict.set_item("is_utf8", feature.is_utf8)?;
                dict.set_item("with_values", seen(&feature.with_values))?;
                dict.set_item("empty", seen(&feature.empty))?;
                Ok(dict)
            })
            .collect()
    }
}

#[pyclass(module = "tfrecord_io._native")]
struct Summary {
    columns: Vec<summary::Column>,
}

#[pymethods]
impl Summary {
    #[new]
    fn new(columns: usize) -> Self {
        Self { columns: (0..columns).map(|_| summary::Column::default()).collect() }
    }

    fn update(&mut self, py: Python<'_>, batch: PyArrowType<RecordBatch>) -> PyResult<()> {
        let mut columns = self.columns.iter_mut().zip(batch.0.columns());
        py.detach(|| columns.try_for_each(|(column, array)| column.update(array)))
            .map_err(PyTypeError::new_err)
    }

    fn columns<'py>(
        &self,
        py: Python<'py>,
        most_frequent: usize,
    ) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let column = |column: &summary::Column| {
            let dict = PyDict::new(py);
            dict.set_item("nulls", column.nulls)?;
            let lengths = column.lengths.iter().map(|lengths| numbers::<Int32Type>(py, lengths));
            dict.set_item("lengths", lengths.collect::<PyResult<Vec<_>>>()?)?;
            let (kind, values, distinct) = match &column.values {
                Values::Nothing => return Ok(dict),
                Values::Ints(values, distinct) => {
                    ("int64", numbers::<Int64Type>(py, values)?, distinct.estimate())
                }
                Values::Floats(values, distinct) => {
                    ("float", numbers::<Float32Type>(py, values)?, distinct.estimate())
                }
                Values::Doubles(values, distinct) => {
                    ("float", numbers::<Float64Type>(py, values)?, distinct.estimate())
                }
                Values::Bytes(strings) => {
                    let top = strings.frequent.top(most_frequent).into_iter();
                    let top =
                        top.map(|(value, least, most)| (PyBytes::new(py, &value), least, most));
                    dict.set_item("frequent", top.collect::<Vec<_>>())?;
                    let lengths = numbers::<Int32Type>(py, &strings.lengths)?;
                    ("bytes", lengths, strings.distinct.estimate())
                }
            };
            dict.set_item("kind", kind)?;
            dict.set_item("values", values)?;
            dict.set_item("distinct", distinct)?;
            Ok(dict)
        };
        self.columns.iter().map(column).collect()
    }
}

fn numbers<'py, T>(py: Python<'py>, numbers: &Numbers<T::Native>) -> PyResult<Bound<'py, PyDict>>
where
    T: ArrowPrimitiveType<Native: summary::Number + IntoPyObject<'py>>,
{
    let dict = PyDict::new(py);
    dict.set_item("count", numbers.count)?;
    dict.set_item("nans", numbers.nans)?;
    dict.set_item("min", numbers.extremes.map(|(least, _)| least))?;
    dict.set_item("max", numbers.extremes.map(|(_, most)| most))?;
    dict.set_item("mean", numbers.mean())?;
    let sample = PrimitiveArray::<T>::from_iter_values(numbers.sorted_sample());
    dict.set_item("sample", sample.into_data().to_pyarrow(py)?)?;
    Ok(dict)
}

#[pyfunction]
fn encode_batch(
    py: Python<'_>,
    batch: PyArrowType<RecordBatch>,
    names: Vec<String>,
    record_type: &str,
    position: u64,
) -> PyResult<(PyArrowType<ArrayData>, PyArrowType<ArrayData>)> {
    let record_type = record_type_of(record_type)?;
    let encoded = detached(py, || encode::encode(&batch.0, &names, record_type, position))?;
    let data = UInt8Array::new(encoded.data.into(), None).into_data();
    Ok((PyArrowType(data), unsigned(encoded.offsets)))
}

#[pyfunction]
fn frames(
    py: Python<'_>,
    data: Bytes,
    start: usize,
    offset: u64,
    record: u64,
    check_payload: bool,
    max_record_bytes: u64,
) -> PyResult<(usize, PyArrowType<ArrayData>)> {
    starts_within(start, &data.0)?;
    let mut cursor = Cursor::new(offset, record, max_record_bytes);
    let (consumed, lengths) =
        detached(py, || framing::frames(&data.0, start, &mut cursor, check_payload))?;
    Ok((consumed, unsigned(lengths)))
}

#[pyfunction]
fn payloads<'py>(
    py: Python<'py>,
    data: Bytes,
    start: usize,
    offset: u64,
    record: u64,
    max_record_bytes: u64,
) -> PyResult<(usize, Bound<'py, PyList>)> {
    starts_within(start, &data.0)?;
    let mut cursor = Cursor::new(offset, record, max_record_bytes);
    let (consumed, found) = detached(py, || framing::payloads(&data.0, start, &mut cursor))?;
    let values = found.into_iter().map(|payload| PyBytes::new(py, payload));
    Ok((consumed, PyList::new(py, values.collect::<Vec<_>>())?))
}

#[pyfunction]
fn frame_payloads(py: Python<'_>, payloads: Vec<PyBackedBytes>) -> PyArrowType<ArrayData> {
    let framed = py.detach(|| framing::framed(&payloads));
    PyArrowType(UInt8Array::new(framed.into(), None).into_data())
}

#[pyfunction]
fn find_frame(py: Python<'_>, data: Bytes, start: usize, stop: Option<usize>) -> Option<usize> {
    py.detach(|| framing::find_frame(&data.0, start, stop.unwrap_or(usize::MAX)))
}

/// The native codec of tfrecord-io.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("IS_DEBUG_BUILD", cfg!(debug_assertions))?;
    module.add_class::<Decoder>()?;
    module.add_class::<Observer>()?;
    module.add_class::<Summary>()?;
    module.add_function(wrap_pyfunction!(encode_batch, module)?)?;
    module.add_function(wrap_pyfunction!(frames, module)?)?;
    module.add_function(wrap_pyfunction!(payloads, module)?)?;
    module.add_function(wrap_pyfunction!(frame_payloads, module)?)?;
    module.add_function(wrap_pyfunction!(find_frame, module)?)
}
