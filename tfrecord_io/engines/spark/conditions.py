"""The project's errors as Spark names them: conditions in workers, exceptions in the client.

What fails while Spark plans fails in a Python worker beside the driver's JVM; Spark passes on its
traceback as text, under the condition ``PYTHON_DATA_SOURCE_ERROR``. So a worker raises an error
whose text begins with the condition that Spark's own file sources would use (`as_spark`), and the
client, where it stands between user and Spark, raises that condition itself (`as_raised`).

The core's texts name its own arguments; `in_words_of_spark` gives them the names of the options.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from pyspark.errors import AnalysisException, PySparkException

from tfrecord_io.errors import (
    CommitError,
    CorruptDataError,
    DatasetChangedError,
    DatasetExistsError,
    EncodeError,
    InferenceError,
    LayoutError,
    OptionError,
    SchemaMismatchError,
    TFRecordError,
    UnsupportedTypeError,
)

#: The first that fits names the condition. Those with TFRECORD have no counterpart in Spark.
_CONDITIONS: tuple[tuple[type[Exception], str], ...] = (
    (DatasetExistsError, "PATH_ALREADY_EXISTS"),
    (FileNotFoundError, "PATH_NOT_FOUND"),
    (PermissionError, "TFRECORD_PERMISSION_DENIED"),
    (UnsupportedTypeError, "UNSUPPORTED_DATA_TYPE_FOR_DATASOURCE"),
    (InferenceError, "UNABLE_TO_INFER_SCHEMA"),
    (CorruptDataError, "FAILED_READ_FILE.NO_HINT"),
    (DatasetChangedError, "FAILED_READ_FILE.NO_HINT"),
    (EncodeError, "TASK_WRITE_FAILED"),
    (OptionError, "TFRECORD_INVALID_OPTION"),
    (LayoutError, "TFRECORD_INVALID_PARTITIONING"),
    (SchemaMismatchError, "TFRECORD_SCHEMA_MISMATCH"),
    (CommitError, "TFRECORD_COMMIT_FAILED"),
    (TFRecordError, "TFRECORD_ERROR"),
)

#: What the core's texts name, and an option or a method has another name for.
_OPTIONS = {
    "record_type": "recordType",
    "compression_level": "compressionLevel",
    "empty_partition": "emptyPartition",
    "path_column": "pathColumn",
    "corrupt_column": "columnNameOfCorruptRecord",
    "on_corrupt='keep'": "mode=PERMISSIVE",
    "is_flat=False": "recursiveFileLookup=true",
    "pyarrow.Table.flatten": 'select("column.field")',
    "time_zone": "the option timeZone or as spark.sql.session.timeZone",
}
#: Not in quotes and not in paths: there it is a user's word.
_ARGUMENT = re.compile(rf"(?<![\w'\"/.=])(?:{'|'.join(map(re.escape, _OPTIONS))})(?![\w'\"/])")

#: Spark's text about a worker that failed: a traceback that ends in ``module.Class: [NAME] text``.
_IN_TRACEBACK = re.compile(
    r"^[\w.]*AnalysisException: \[(?P<condition>[A-Z_.]+)\] (?P<text>.*?)(?:\n? SQLSTATE: |\Z)",
    re.MULTILINE | re.DOTALL,
)

_F = TypeVar("_F", bound=Callable[..., Any])


def in_worker(function: _F) -> _F:
    """Return a function whose errors of this project's tree bear Spark's conditions."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            with in_words_of_spark():
                return function(*args, **kwargs)
        except (TFRecordError, FileNotFoundError, PermissionError) as error:
            raise as_spark(error) from error

    return wrapped  # type: ignore[return-value]


@contextmanager
def in_words_of_spark() -> Iterator[None]:
    """Have the texts of errors name Spark's options instead of the core's arguments."""
    try:
        yield
    except TFRecordError as error:
        error.what = _ARGUMENT.sub(lambda found: _OPTIONS[found[0]], error.what)
        raise


def analysis_error(condition: str, text: str) -> AnalysisException:
    """Return an exception of Spark's with a condition of Spark's, or of this project's."""
    return AnalysisException(message=text, errorClass=condition, messageParameters={})


def as_spark(error: Exception) -> AnalysisException:
    """Return an error as an exception of Spark's, with the condition that fits."""
    condition = next((name for kind, name in _CONDITIONS if isinstance(error, kind)), None)
    text = str(error)
    if isinstance(error, PermissionError) and "credentials for S3" in text:
        text += (
            ". In Spark they are fs.s3a.access.key and fs.s3a.secret.key, as settings of a classic "
            "session, or as options; Spark Connect passes on no secrets among its settings"
        )
    return analysis_error(condition or "TFRECORD_ERROR", text)


def as_raised(error: PySparkException) -> PySparkException:
    """Return the exception that a worker raised, found in what Spark made of it."""
    if error.getCondition() != "PYTHON_DATA_SOURCE_ERROR":
        return error
    found = _IN_TRACEBACK.search(str(error))
    if found is None:
        return error
    return analysis_error(found["condition"], found["text"].strip())


@contextmanager
def translated() -> Iterator[None]:
    """Raise what workers raised, instead of what Spark makes of it."""
    try:
        yield
    except PySparkException as error:
        raised = as_raised(error)
        if raised is error:
            raise
        raise raised from error
