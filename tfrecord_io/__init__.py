"""TFRecord as a table format: Arrow, Dask and Spark tables in and out of TFRecord files.

The names below are the public interface. Importing them loads pyarrow, and nothing of Dask, Spark,
TensorFlow, pandas, fastavro or fsspec: what needs one of those imports it when it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tfrecord_io.commit.job import clean
from tfrecord_io.engines.local import count_rows, infer_schema, read_table, scan, write_table
from tfrecord_io.errors import (
    ChecksumError,
    ClosedError,
    CommitConflictError,
    CommitError,
    CommitStateUnknownError,
    CompressionError,
    CorruptDataError,
    CorruptDataWarning,
    DamagedRange,
    DatasetChangedError,
    DatasetExistsError,
    DecodeError,
    EncodeError,
    InferenceError,
    InferenceWarning,
    LayoutError,
    LimitExceededError,
    ManifestError,
    MissingDependencyError,
    OptionError,
    PrecisionWarning,
    ReferenceCodecWarning,
    SchemaMismatchError,
    TFRecordError,
    TFRecordWarning,
    TruncatedRecordError,
    UnsupportedTypeError,
)
from tfrecord_io.options import Limits
from tfrecord_io.plan import CleanResult, WriteResult
from tfrecord_io.records.index_files import IndexResult, write_index
from tfrecord_io.records.options import TFRecordOptions
from tfrecord_io.records.reader import TFRecordReader
from tfrecord_io.records.writer import TFRecordWriter
from tfrecord_io.verification import Fault, VerifyReport, verify

if TYPE_CHECKING:
    from tfrecord_io import compat, data, io, python_io, tf, torch, train
    from tfrecord_io.conversion import ConvertProgress, ConvertResult, convert
    from tfrecord_io.engines.dask import read_tfrecord, to_tfrecord
    from tfrecord_io.repairs import RepairReport, repair
    from tfrecord_io.statistics import compute_statistics
    from tfrecord_io.tensors.numpy_batches import Batches, Ragged, batches

__version__ = "0.1.0"

__all__ = [
    "Batches",
    "ChecksumError",
    "CleanResult",
    "ClosedError",
    "CommitConflictError",
    "CommitError",
    "CommitStateUnknownError",
    "CompressionError",
    "ConvertProgress",
    "ConvertResult",
    "CorruptDataError",
    "CorruptDataWarning",
    "DamagedRange",
    "DatasetChangedError",
    "DatasetExistsError",
    "DecodeError",
    "EncodeError",
    "Fault",
    "IndexResult",
    "InferenceError",
    "InferenceWarning",
    "LayoutError",
    "LimitExceededError",
    "Limits",
    "ManifestError",
    "MissingDependencyError",
    "OptionError",
    "PrecisionWarning",
    "Ragged",
    "ReferenceCodecWarning",
    "RepairReport",
    "SchemaMismatchError",
    "TFRecordError",
    "TFRecordOptions",
    "TFRecordReader",
    "TFRecordWarning",
    "TFRecordWriter",
    "TruncatedRecordError",
    "UnsupportedTypeError",
    "VerifyReport",
    "WriteResult",
    "__version__",
    "batches",
    "clean",
    "compat",
    "compute_statistics",
    "convert",
    "count_rows",
    "data",
    "infer_schema",
    "io",
    "python_io",
    "read_table",
    "read_tfrecord",
    "repair",
    "scan",
    "tf",
    "to_tfrecord",
    "torch",
    "train",
    "verify",
    "write_index",
    "write_table",
]

#: Names that are imported when they are first used, and where from.
_LAZY = {
    "ConvertProgress": "tfrecord_io.conversion",
    "ConvertResult": "tfrecord_io.conversion",
    "compute_statistics": "tfrecord_io.statistics",
    "convert": "tfrecord_io.conversion",
    "batches": "tfrecord_io.tensors.numpy_batches",
    "Batches": "tfrecord_io.tensors.numpy_batches",
    "Ragged": "tfrecord_io.tensors.numpy_batches",
    "read_tfrecord": "tfrecord_io.engines.dask",
    "repair": "tfrecord_io.repairs",
    "RepairReport": "tfrecord_io.repairs",
    "to_tfrecord": "tfrecord_io.engines.dask",
}


#: Modules that are public names, imported when they are first used.
_LAZY_MODULES = ("compat", "data", "io", "python_io", "tf", "torch", "train")


def __getattr__(name: str) -> Any:
    if name in _LAZY_MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_LAZY[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_LAZY_MODULES})
