"""TFRecord as a table format: Arrow, Dask and Spark tables in and out of TFRecord files.

The names below are the public interface. Importing them loads pyarrow, and nothing of Dask, Spark,
TensorFlow, pandas, fastavro or fsspec: what needs one of those imports it when it is used.

No module may have the name of a function here: importing it would bind that name to the module.
"""

from __future__ import annotations

from tfrecord_io.commit import clean
from tfrecord_io.conversion import ConvertProgress, ConvertResult, convert
from tfrecord_io.engines.local import count_rows, infer_schema, read_table, scan
from tfrecord_io.errors import (
    ChecksumError,
    CommitConflictError,
    CommitError,
    CommitStateUnknownError,
    CompressionError,
    CorruptDataError,
    CorruptDataWarning,
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
from tfrecord_io.write import write_table

__version__ = "0.1.0"

__all__ = [
    "ChecksumError",
    "CleanResult",
    "CommitConflictError",
    "CommitError",
    "CommitStateUnknownError",
    "CompressionError",
    "ConvertProgress",
    "ConvertResult",
    "CorruptDataError",
    "CorruptDataWarning",
    "DatasetChangedError",
    "DatasetExistsError",
    "DecodeError",
    "EncodeError",
    "InferenceError",
    "InferenceWarning",
    "LayoutError",
    "LimitExceededError",
    "Limits",
    "ManifestError",
    "MissingDependencyError",
    "OptionError",
    "PrecisionWarning",
    "ReferenceCodecWarning",
    "SchemaMismatchError",
    "TFRecordError",
    "TFRecordWarning",
    "TruncatedRecordError",
    "UnsupportedTypeError",
    "WriteResult",
    "__version__",
    "clean",
    "convert",
    "count_rows",
    "infer_schema",
    "read_table",
    "scan",
    "write_table",
]
