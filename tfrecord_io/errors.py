"""The exceptions and warnings of tfrecord-io, in one tree.

::

    TFRecordError
    ├── CorruptDataError (ValueError)         the bytes are not what the format says
    │   ├── ChecksumError                     a frame's CRC-32C does not fit
    │   ├── TruncatedRecordError              the file ends inside a record
    │   ├── DecodeError                       a payload is not a valid protobuf message
    │   └── CompressionError                  a compressed stream is damaged
    ├── LimitExceededError (ValueError)       larger than a limit that can be raised
    ├── SchemaMismatchError (ValueError)      sound bytes that do not fit the schema asked for
    ├── InferenceError (ValueError)           records that no one schema describes
    ├── UnsupportedTypeError (TypeError)      a column type that TFRecord cannot hold
    ├── EncodeError (ValueError)              a value that cannot be written as it is
    ├── LayoutError (ValueError)              partition columns, values or folders that do not fit
    ├── ManifestError (ValueError)            a ``_SUCCESS`` text that cannot be understood
    ├── ClosedError (ValueError)              a reader or writer that is closed was used
    ├── OptionError (ValueError)              an option or argument with a wrong value
    ├── DatasetExistsError (FileExistsError)  the target is there and the mode is "error"
    ├── DatasetChangedError (RuntimeError)    files changed between planning and reading
    ├── CommitError (RuntimeError)            a write failed; the target is as it was
    │   └── CommitConflictError               another job has the target
    ├── CommitStateUnknownError (RuntimeError)  look at the target before you write again
    └── MissingDependencyError (ImportError)  an optional package is not installed

    TFRecordWarning (UserWarning)
    ├── InferenceWarning                      a type was chosen that a user should know of
    ├── PrecisionWarning                      float64 or decimal values were narrowed to float32
    ├── CorruptDataWarning                    damaged bytes were skipped or kept, as asked for
    └── ReferenceCodecWarning                 the slow codec is in use

A store's own errors (``FileNotFoundError``, ``PermissionError``, ...) pass untouched.

Every error says what is wrong, where, and what to do. Where it has to do with bytes or values it
carries ``path``, ``offset``, ``record``, ``feature`` and ``row`` as attributes (``None`` where not
known), and the message is made from them. Errors cross process borders, so all of them pickle with
their fields.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

_PACKAGE = str(Path(__file__).parent)
_PLACES = ("path", "offset", "record", "feature", "row")


class TFRecordError(Exception):
    """Base of all errors that this package raises.

    Parameters
    ----------
    what : str
        What is wrong, and where it helps, what to do about it.
    path : str, optional
        URL or path of the file, without credentials.
    offset : int, optional
        Byte offset in the (decompressed) file, 0-based: the start of the record's frame.
    record : int, optional
        Index of the record in its file, 0-based.
    feature : str, optional
        Name of the feature or column.
    row : int, optional
        Index of the row in the data that is being written, 0-based.
    """

    def __init__(
        self,
        what: str,
        *,
        path: str | None = None,
        offset: int | None = None,
        record: int | None = None,
        feature: str | None = None,
        row: int | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.path = path
        self.offset = offset
        self.record = record
        self.feature = feature
        self.row = row

    def __str__(self) -> str:
        places = []
        if self.path is not None:
            places.append(str(self.path))
        if self.offset is not None:
            places.append(f"byte offset {self.offset}")
        if self.record is not None:
            places.append(f"record {self.record}")
        if self.row is not None:
            places.append(f"row {self.row}")
        if self.feature is not None:
            places.append(f"feature {self.feature!r}")
        return f"{self.what} [{', '.join(places)}]" if places else self.what

    def __reduce__(self) -> tuple[Any, ...]:
        return self.reduced(type(self))

    def reduced(self, kind: type[TFRecordError]) -> tuple[Any, ...]:
        """Return what pickle makes an error of this class and with these fields from."""
        return _rebuild, (kind, self.what, {name: getattr(self, name) for name in _PLACES})


def _rebuild(kind: type[TFRecordError], what: str, places: dict[str, Any]) -> TFRecordError:
    return kind(what, **places)


class CorruptDataError(TFRecordError, ValueError):
    """The bytes are not what the format says."""


class ChecksumError(CorruptDataError):
    """A frame's length or payload does not fit its CRC-32C."""


class TruncatedRecordError(CorruptDataError):
    """The file ends inside a record."""


class DecodeError(CorruptDataError):
    """A payload with a fitting CRC is not a valid protobuf message of its record type."""


class CompressionError(CorruptDataError):
    """A compressed stream is damaged or ends early."""


class LimitExceededError(TFRecordError, ValueError):
    """Something is larger than a limit; the message names the limit to raise."""


class SchemaMismatchError(TFRecordError, ValueError):
    """Sound bytes do not fit the schema that was asked for."""


class InferenceError(TFRecordError, ValueError):
    """The records disagree so that no one schema describes them."""


class UnsupportedTypeError(TFRecordError, TypeError):
    """A column has a type that TFRecord cannot hold."""


class EncodeError(TFRecordError, ValueError):
    """A value cannot be written as it is."""


class LayoutError(TFRecordError, ValueError):
    """Partition columns, values or folders do not fit the layout."""


class ManifestError(TFRecordError, ValueError):
    """A ``_SUCCESS`` text, or the log of a stream of Spark's, cannot be understood."""


class ClosedError(TFRecordError, ValueError):
    """A reader or writer was used after it was closed."""


class OptionError(TFRecordError, ValueError):
    """An option or argument has a wrong value."""


class DatasetExistsError(TFRecordError, FileExistsError):
    """The target exists and the mode says that it must not."""


class DatasetChangedError(TFRecordError, RuntimeError):
    """Files changed, appeared or went between planning a read and carrying it out."""


class CommitError(TFRecordError, RuntimeError):
    """A write could not be committed; the target is as it was before."""


class CommitConflictError(CommitError):
    """Another job has, or has just changed, the target."""


class CommitStateUnknownError(TFRecordError, RuntimeError):
    """It is not known whether a commit took place; look at the target before writing again."""


class MissingDependencyError(TFRecordError, ImportError):
    """An optional package is not installed; the message names the extra that brings it."""


class TFRecordWarning(UserWarning):
    """Base of all warnings of this package."""


class InferenceWarning(TFRecordWarning):
    """Inference chose a type, or found no column, and a user should know of it."""


class PrecisionWarning(TFRecordWarning):
    """Values of float64 or decimal columns were narrowed to float32.

    Attributes
    ----------
    columns : tuple of str
        Their names, sorted.
    """

    columns: tuple[str, ...] = ()


class DamagedRange(NamedTuple):
    """A run of bytes of a file that belong to no sound record.

    Attributes
    ----------
    start, end : int, int or None
        Where it begins, and where the next sound record does; offsets in the (decompressed) file.
        None is the end of a compressed one.
    what : str
        What is wrong at its beginning.
    """

    start: int
    end: int | None
    what: str


class CorruptDataWarning(TFRecordWarning):
    """Damaged bytes were skipped because the caller asked for it.

    Attributes
    ----------
    ranges : tuple of DamagedRange
        Of the one file that is meant, in their order; none where the file was skipped as a whole.
    """

    ranges: tuple[DamagedRange, ...] = ()


class ReferenceCodecWarning(TFRecordWarning):
    """The native kernel is missing and the slow reference codec is in use."""


_taker: ContextVar[Callable[[TFRecordWarning], object] | None] = ContextVar("taker", default=None)


@contextlib.contextmanager
def warnings_to(take: Callable[[TFRecordWarning], object]) -> Iterator[None]:
    """Give what this thread warns of to a function: on a worker, nobody sees a warning."""
    token = _taker.set(take)
    try:
        yield
    finally:
        _taker.reset(token)


def warn(text: str | TFRecordWarning, category: type[TFRecordWarning]) -> None:
    """Warn, and name the caller's line, not one of this package."""
    take = _taker.get()
    if take is not None:
        take(text if isinstance(text, TFRecordWarning) else category(text))
        return
    frame = sys._getframe(1)
    depth = 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
        depth += 1
    warnings.warn(text, category, stacklevel=depth)
