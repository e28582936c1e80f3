"""What a file format is for `convert`: how its files are looked at, read and written.

A format is a small frozen object that pickles. It is given open files and gives record batches, or
takes batches and gives bytes; folders, partition values, filters and commits are the business of
others.

Invariants
----------
- Reading streams: memory is bounded by a row group, stripe, batch or block of the file.
- Where a file is divided into pieces depends on the file alone.
- A value never changes its type in silence: what does not fit the columns that were found, or
  asked for, is a `SchemaMismatchError` with path and row.
- What is written depends on the rows alone, not on the batches that they come in.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import sys
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from tfrecord_io.cast_leaves import UNITS_OF_A_DAY
from tfrecord_io.compression import Compression, detect
from tfrecord_io.decompression import decompressor
from tfrecord_io.errors import (
    CompressionError,
    CorruptDataError,
    EncodeError,
    SchemaMismatchError,
    UnsupportedTypeError,
)
from tfrecord_io.formats.exact import exact_cast, leaves
from tfrecord_io.plan import ScanFile
from tfrecord_io.reading.source import read_head
from tfrecord_io.schema import leaf_type
from tfrecord_io.storage import Storage
from tfrecord_io.time_text import END_DAY, is_day_or_instant, storage_integer, units_of_a_day

#: A large file is divided into pieces of about so many bytes, where its format allows it.
PIECE_BYTES = 128 * 1024 * 1024

#: How much of a long error text is told: all digits of a float, at least.
_HEAD_CHARACTERS, _TAIL_CHARACTERS = 300, 100

#: pyarrow's threads let a stream go within a read of it, once they know of an error or its end.
_LETTING_GO_SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A run of a file's units: row groups of Parquet, stripes of ORC, batches of Arrow IPC.

    A file of another format, or an Arrow IPC stream, is one unit.

    Attributes
    ----------
    start, end : int
        The first unit, and the one behind the last.
    row : int or None
        Index in the file of the first row, where that is known.
    bytes : int
        Its share of the file, for progress.
    """

    start: int = 0
    end: int = 1
    row: int | None = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a look at a file told.

    Attributes
    ----------
    schema : pyarrow.Schema
        Its columns.
    pieces : tuple of Piece
        How it is divided.
    """

    schema: pa.Schema
    pieces: tuple[Piece, ...]


class InputFile:
    """A file to read, of any storage.

    Parameters
    ----------
    storage : Storage
        Where it is.
    file : ScanFile
        What it is; its version is held to.
    """

    def __init__(self, storage: Storage, file: ScanFile) -> None:
        self._storage = storage
        self._file = file
        self.url = file.url
        self.size = file.size

    def open(self) -> BinaryIO:
        """Open it as it is."""
        return self._storage.open_read(self._file.path, self._file.version)

    @contextlib.contextmanager
    def open_decompressed(self) -> Iterator[BinaryIO]:
        """Open it as a stream of decompressed bytes."""
        with self.open() as handle:
            head = read_head(handle)
            handle.seek(0)
            compression = detect(head, self._file.path)
            if compression is None:
                yield handle
            else:
                yield io.BufferedReader(_Decompressed(handle, compression, self.url))


class _Decompressed(io.RawIOBase):
    def __init__(self, handle: BinaryIO, compression: Compression, url: str) -> None:
        self._stream = decompressor(compression, handle)
        self._url = url

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._stream.read(len(buffer))
        except CompressionError as error:
            error.path = self._url
            raise
        buffer[: len(data)] = data
        return len(data)


class TableWriter(Protocol):
    """Writes one file."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows, of the schema that the writer was opened with."""

    def close(self) -> None:
        """Write what is left; the sink stays open."""


class Format(Protocol):
    """A file format.

    Attributes
    ----------
    name : str
        Its name, also in manifests.
    suffixes : tuple of str
        What names of its files end in, before a suffix of compression.
    compressions : tuple of str
        What it can be compressed with.
    leveled : tuple of str
        Which of them it takes a level for.
    default_compression : str or None
        What the users of the format expect.
    has_far_years : bool
        Whether it holds dates and timestamps beyond the years 1 to 9999.
    timestamp_unit : {"s", "ms", "ns"} or None
        The coarsest unit that timestamps are read from its files in: their numbers must fit 64
        bits in it. None where all times stay as they are; elsewhere dates are whole days, and times
        of a day.
    is_wrapped : bool
        Whether compression is put around the file, and shows in its name, as with text.
    is_grouped : bool
        Whether the rows of one `TableWriter.write` stay together in the file, so that where they
        are cut must not depend on the batches that come in.
    """

    @property
    def name(self) -> str: ...  # noqa: D102 - see above

    @property
    def suffixes(self) -> tuple[str, ...]: ...  # noqa: D102 - see above

    @property
    def compressions(self) -> tuple[Compression, ...]: ...  # noqa: D102 - see above

    @property
    def leveled(self) -> tuple[Compression, ...]: ...  # noqa: D102 - see above

    @property
    def default_compression(self) -> Compression | None: ...  # noqa: D102 - see above

    @property
    def has_far_years(self) -> bool: ...  # noqa: D102 - see above

    @property
    def timestamp_unit(self) -> Literal["s", "ms", "ns"] | None: ...  # noqa: D102 - see above

    @property
    def is_wrapped(self) -> bool: ...  # noqa: D102 - see above

    @property
    def is_grouped(self) -> bool: ...  # noqa: D102 - see above

    def look(self, file: InputFile, schema: pa.Schema | None) -> Look:
        """Look at a file; where `schema` is given, only how it is divided is of interest."""

    def read(
        self, file: InputFile, piece: Piece, schema: pa.Schema, found: pa.Schema | None
    ) -> Iterator[pa.RecordBatch]:
        """Give the rows of a piece: the columns of `schema` that it has, `conform` does the rest.

        Parameters
        ----------
        file : InputFile
            The file.
        piece : Piece
            Of its `look`.
        schema : pyarrow.Schema
            The columns that are wanted.
        found : pyarrow.Schema or None
            All columns that looking at the files told, if the file was one of them: it must
            not have others then.
        """

    def open_writer(
        self,
        stream: BinaryIO,
        schema: pa.Schema,
        compression: Compression | None,
        level: int | None,
    ) -> TableWriter:
        """Begin a file.

        Raises
        ------
        UnsupportedTypeError, pyarrow.ArrowException
            The format cannot hold the schema.
        """


class OpenedText:
    """What pyarrow makes of a text: its columns, and batches, as long as it is open."""

    reader: Any = None

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self.reader.schema

    def __iter__(self) -> OpenedText:
        return self

    def __next__(self) -> pa.RecordBatch:
        return self.reader.read_next_batch()


class TextStream(io.RawIOBase):
    """A text as a stream for pyarrow, whose faults are raised by `faults`, not by reading it.

    pyarrow reads on threads of its own. The last of them that held an error lets it go when it gets
    to it, as it does with a stream, and one may still read after a text could not be opened; if the
    interpreter has ended by then, that aborts the process.

    Parameters
    ----------
    pieces : iterator of bytes
        The text. An exception ends it.
    """

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._ready = memoryview(b"")
        self._fault: Exception | None = None
        self._is_ended = False

    @contextlib.contextmanager
    def opened_by(
        self, open_text: Callable[..., Any], buffer_bytes: int, **options: Any
    ) -> Iterator[OpenedText]:
        """Open the text by a function of pyarrow; behind the block no thread still reads it."""
        stream = io.BufferedReader(self, buffer_bytes)
        ours = sys.getrefcount(stream)
        opened = OpenedText()
        try:
            # Of bytes of Python's its threads would let go later.
            blocks = pa.BufferedInputStream(pa.PythonFile(stream, mode="r"), buffer_bytes)
            try:
                opened.reader = open_text(blocks, **options)
            finally:
                del blocks
            yield opened
        finally:
            self._is_ended = True
            opened.reader = None
            deadline = time.monotonic() + _LETTING_GO_SECONDS
            # A thread that lets go runs no Python after that, unlike one that frees the stream.
            while sys.getrefcount(stream) > ours and time.monotonic() < deadline:
                time.sleep(0.001)

    def readable(self) -> bool:
        """See `io.RawIOBase`."""
        return True

    def readinto(self, buffer: Any) -> int:
        """See `io.RawIOBase`."""
        while not self._ready:
            if self._is_ended:
                return 0
            try:
                piece = next(self._pieces, None)
            except Exception as error:  # noqa: BLE001 - raised again by `faults`
                self._fault = error
                return 0
            if piece is None:
                return 0
            self._ready = memoryview(piece)
        given = self._ready[: len(buffer)]
        self._ready = self._ready[len(given) :]
        buffer[: len(given)] = given
        return len(given)

    @contextlib.contextmanager
    def faults(self) -> Iterator[None]:
        """Raise what ended the text, and not what pyarrow says of the end."""
        try:
            yield
        except pa.ArrowException:
            if self._fault is not None:
                raise self._fault from None
            raise
        if self._fault is not None:
            raise self._fault


def said(error: Exception) -> str:
    """Return what an error says without the middle of a long text, which may be a whole value."""
    return shortened(str(error) or type(error).__name__)


def shortened(text: str) -> str:
    """Return a text without its middle if it is long."""
    if len(text) <= _HEAD_CHARACTERS + _TAIL_CHARACTERS:
        return text
    return f"{text[:_HEAD_CHARACTERS]} ... {text[-_TAIL_CHARACTERS:]}"


@contextlib.contextmanager
def damage_named(url: str) -> Iterator[None]:
    """Raise what pyarrow says of a damaged file as `CorruptDataError` with the file's path.

    pyarrow's own is an ``OSError`` without a number; those of stores have one, or are time-outs and
    the like, and pass.
    """
    try:
        yield
    except pa.ArrowNotImplementedError as error:
        raise UnsupportedTypeError(
            f"the file cannot be read, as it has what pyarrow {pa.__version__} does not know: "
            f"{said(error)}; write it anew without that",
            path=url,
        ) from error
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise CorruptDataError(f"the file cannot be read: {said(error)}", path=url) from error
    except MemoryError as error:
        raise CorruptDataError(
            "the file cannot be read: it is damaged, or a part of it is larger than memory",
            path=url,
        ) from error
    except OSError as error:
        if error.errno is not None or type(error) is not OSError:
            raise
        raise CorruptDataError(f"the file cannot be read: {said(error)}", path=url) from error


def divided(
    sizes: Sequence[int], file_size: int, rows: Sequence[int] | None = None
) -> tuple[Piece, ...]:
    """Return pieces of about `PIECE_BYTES` of units of known size.

    Parameters
    ----------
    sizes : sequence of int
        Bytes of each unit, as they count towards `PIECE_BYTES`.
    file_size : int
        Bytes of the file.
    rows : sequence of int, optional
        Rows of each unit.
    """
    total = sum(sizes) or 1
    cuts = [0]
    held = 0
    for index, size in enumerate(sizes):
        if held and held + size > PIECE_BYTES:
            cuts.append(index)
            held = 0
        held += size
    cuts.append(len(sizes))
    pieces = []
    done, done_bytes = 0, 0
    for start, end in itertools.pairwise(cuts):
        done += sum(sizes[start:end])
        upto = file_size if end == len(sizes) else file_size * done // total
        row: int | None = 0
        if start:
            row = None if rows is None else sum(rows[:start])
        pieces.append(Piece(start=start, end=end, row=row, bytes=upto - done_bytes))
        done_bytes = upto
    return tuple(pieces)


def conform(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, url: str, first_row: int | None
) -> Iterator[pa.RecordBatch]:
    """Bring batches to a schema: columns by name, missing ones null, values cast exactly.

    Raises
    ------
    SchemaMismatchError
        A value that does not fit its type, or a null in a column that is not nullable.
    UnsupportedTypeError
        See `refuse_twins`.
    """
    row = first_row
    for batch in batches:
        refuse_twins(batch.schema.names, schema.names, url)
        arrays = [_conformed(batch, field, url, row) for field in schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema) if arrays else batch.select([])
        row = None if row is None else row + batch.num_rows


def refuse_twins(names: Sequence[str], wanted: Container[str], url: str) -> None:
    """Raise `UnsupportedTypeError` if a file has two columns of one name that is wanted."""
    if len(set(names)) == len(names):
        return
    for index, name in enumerate(names):
        if name in wanted and name in names[:index]:
            raise UnsupportedTypeError(
                f"two columns are named {name!r}, and a record has one feature of a name: rename "
                "one of them, or give a schema without them",
                path=url,
                feature=name,
            )


def _conformed(batch: pa.RecordBatch, field: pa.Field, url: str, row: int | None) -> pa.Array:
    found = batch.schema.get_all_field_indices(field.name)
    array = batch.column(found[0]) if found else pa.nulls(batch.num_rows)
    if array.null_count and not field.nullable:
        raise SchemaMismatchError(
            f"column {field.name!r} has a null, and the schema says that it has none",
            path=url,
            feature=field.name,
            row=row_of(lambda part: part.null_count > 0, array, row),
        )
    if array.type == field.type:
        return array
    try:
        return exact_cast(array, field.type)
    except pa.ArrowException as error:
        raise SchemaMismatchError(
            f"column {field.name!r} is {array.type}, and its values do not fit {field.type}: "
            f"{said(error)}; give the column another type in the schema",
            path=url,
            feature=field.name,
            row=row_of(lambda part: not casts(part, field.type), array, row),
        ) from error


def casts(array: pa.Array, t: pa.DataType) -> bool:
    """Return whether all values of a column fit a type."""
    try:
        # Of a slice of lists pyarrow casts the items outside of it, too.
        exact_cast(pa.concat_arrays([array.slice(0, 0), array]), t)
    except pa.ArrowException:
        return False
    return True


def row_of(
    is_bad: Callable[[pa.Array], bool], array: pa.Array, first_row: int | None
) -> int | None:
    """Return the row of the first value that is bad, by halves."""
    if first_row is None:
        return None
    low, high = 0, len(array)
    while high - low > 1:
        middle = (low + high) // 2
        if is_bad(array.slice(low, middle - low)):
            high = middle
        else:
            low = middle
    return first_row + low


#: 1 January of the year 1, in days since 1970.
_FIRST_DAY = -719_162


def refuse_far_times(name: str, array: pa.Array, row_offset: int) -> None:
    """Raise `EncodeError` for the first date or timestamp beyond the years 1 to 9999."""
    t = leaf_type(array.type)
    if not is_day_or_instant(t):
        return
    units = units_of_a_day(t)
    what = (
        "has a time beyond the years 1 to 9999, which such files do not tell: leave it out "
        "with columns, or choose another format"
    )
    _refuse_beyond(name, array, row_offset, _FIRST_DAY * units, END_DAY * units, what)


def _refuse_beyond(
    name: str, array: pa.Array, row_offset: int, first: int, end: int, what: str
) -> None:
    """Raise `EncodeError` for the first time whose number is not in a range."""
    number = storage_integer(leaf_type(array.type))

    def is_beyond(part: pa.Array) -> bool:
        least, most = pc.min_max(leaves(part).view(number)).as_py().values()
        return least is not None and not first <= least <= most < end

    if is_beyond(array):
        raise EncodeError(
            f"column {name!r} {what}",
            feature=name,
            row=row_of(is_beyond, array, row_offset),
        )


def refuse_unfit_times(name: str, array: pa.Array, row_offset: int, file_format: Format) -> None:
    """Raise `EncodeError` for the first date or time that a format would make another one."""
    t, unit = leaf_type(array.type), file_format.timestamp_unit
    if unit is None:
        return
    if pat.is_time(t):
        what = (
            f"is {t}, and a value is no time of a day: correct it, or leave the column out with "
            "columns"
        )
        _refuse_beyond(name, array, row_offset, 0, UNITS_OF_A_DAY[t.unit], what)
        return
    if pat.is_date64(t):
        stored = pa.date32()
    elif pat.is_timestamp(t) and UNITS_OF_A_DAY[t.unit] < UNITS_OF_A_DAY[unit]:
        stored = pa.timestamp(unit, t.tz)
    else:
        return
    try:
        exact_cast(leaves(array), stored)
    except pa.ArrowInvalid as error:
        raise EncodeError(
            f"column {name!r} is {array.type}, and a value does not fit {stored}, which "
            f"{file_format.name} files are read as: {error}; correct it, leave the column out with "
            "columns, or choose another format",
            feature=name,
            row=row_of(lambda part: not casts(leaves(part), stored), array, row_offset),
        ) from error


def refuse_null(name: str, array: pa.Array, row_offset: int) -> None:
    """Raise `EncodeError` for the first null of a column that must have none."""
    if array.null_count:
        raise EncodeError(
            f"column {name!r} has a null, and is not nullable",
            feature=name,
            row=row_of(lambda part: part.null_count > 0, array, row_offset),
        )
