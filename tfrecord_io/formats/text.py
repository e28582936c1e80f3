"""CSV and TSV through pyarrow.

Types are those that pyarrow infers from a file's first `_BLOCK_BYTES`, or those that are given. A
later value that does not fit is an error, never another type. Floats, decimals and signed integers
are given as their digits, for `tfrecord_io.formats.exact` to cast: pyarrow's parser makes a float
that is too large infinite, lets decimals have more digits than their type, and takes hexadecimal
digits for the bits of a negative number (``0xff`` for -1 as int8).

An empty field without quotes is null and nothing else is (``NA`` is text), an empty field in quotes
is an empty string. In a file of one column an empty line is a row with a null, for the same reason.
Files have a header. Written are texts in quotes, floats with a point, NaN and infinities as the
words ``NaN``, ``Infinity`` and ``-Infinity``, durations as their integers, all else as pyarrow
writes it.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from tfrecord_io.compression import Compression
from tfrecord_io.errors import CorruptDataError, SchemaMismatchError, UnsupportedTypeError
from tfrecord_io.formats.base import (
    InputFile,
    Look,
    OpenedText,
    Piece,
    TableWriter,
    TextStream,
    refuse_twins,
    said,
)
from tfrecord_io.schema import is_any_list

_BLOCK_BYTES = 4 * 1024 * 1024

#: Names are looked for in so much, then in whole blocks: pyarrow parses the values as well.
_NAMES_BYTES = 64 * 1024

#: Blocks are no longer than this: pyarrow takes less than twice as much.
_MOST_BLOCK_BYTES = 1024**3

#: So much of the text is looked at at a time, and so much of that again with what follows it.
_PIECE_BYTES = 1024 * 1024
_OVERLAP_BYTES = 64 * 1024

#: No more of a value is shown in an error.
_SHOWN_BYTES = 60

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

#: pyarrow counts lines from 1, the header among them.
_ROW = re.compile(r"Row #([0-9]+)")
_COLUMN = re.compile(r"In CSV column #([0-9]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvFormat:
    """Text with delimiters; see `tfrecord_io.formats.base.Format`."""

    name: str = "csv"
    delimiter: str = ","
    suffixes: tuple[str, ...] = (".csv",)
    compressions: tuple[Compression, ...] = get_args(Compression)
    leveled: tuple[Compression, ...] = get_args(Compression)
    default_compression: Compression | None = None
    has_far_years: bool = False
    timestamp_unit: Literal["s", "ms", "ns"] | None = "s"
    is_wrapped: bool = True
    is_grouped: bool = False

    def look(self, file: InputFile, schema: pa.Schema | None) -> Look:
        """Infer types from the first block."""
        found = schema
        if found is None:
            with self._reader(file, {}) as reader:
                found = pa.schema([]) if reader is None else reader.schema
        return Look(schema=found, pieces=(Piece(bytes=file.size),))

    def read(
        self, file: InputFile, piece: Piece, schema: pa.Schema, found: pa.Schema | None
    ) -> Iterator[pa.RecordBatch]:
        """Read the file."""
        del piece, found
        types = {field.name: _parsed_type(field, file.url) for field in schema}
        numbers = [index for index, field in enumerate(schema) if _is_digits(field.type)]
        with self._reader(file, types) as reader:
            for batch in reader or ():
                columns = batch.columns
                for index in numbers:
                    # As pyarrow does before it parses a number.
                    columns[index] = pc.ascii_trim(columns[index], " \t")
                yield pa.RecordBatch.from_arrays(columns, names=batch.schema.names)

    @contextlib.contextmanager
    def _reader(
        self, file: InputFile, types: dict[str, pa.DataType]
    ) -> Iterator[OpenedText | None]:
        """Open a file; None for one that is empty."""
        import pyarrow.csv as pcsv

        known: list[str] = []
        with _explained(file.url, known):
            names, block_bytes = self._names(file)
            known += names
            if not names:
                yield None
                return
            refuse_twins(names, types, file.url)
            with (
                self._opened(file) as text,
                text.opened_by(
                    pcsv.open_csv,
                    _PIECE_BYTES,
                    read_options=pcsv.ReadOptions(block_size=block_bytes, use_threads=False),
                    parse_options=pcsv.ParseOptions(
                        delimiter=self.delimiter,
                        newlines_in_values=True,
                        ignore_empty_lines=len(names) > 1,
                    ),
                    convert_options=pcsv.ConvertOptions(
                        column_types=types,
                        include_columns=list(types),
                        include_missing_columns=True,
                        null_values=[""],
                        strings_can_be_null=True,
                        quoted_strings_can_be_null=False,
                    ),
                ) as opened,
            ):
                yield opened

    def _names(self, file: InputFile) -> tuple[list[str], int]:
        """Return the columns, none of an empty file, and the length of a block with them."""
        import pyarrow.csv as pcsv

        block_bytes = min(_NAMES_BYTES, _BLOCK_BYTES)
        while True:
            with self._opened(file) as text:
                try:
                    with text.opened_by(
                        pcsv.open_csv,
                        _PIECE_BYTES,
                        read_options=pcsv.ReadOptions(block_size=block_bytes, use_threads=False),
                        parse_options=pcsv.ParseOptions(
                            delimiter=self.delimiter, newlines_in_values=True
                        ),
                    ) as opened:
                        return list(opened.schema.names), max(block_bytes, _BLOCK_BYTES)
                except pa.ArrowInvalid as error:
                    if block_bytes < _BLOCK_BYTES:
                        # Perhaps of the end of a block.
                        block_bytes = _BLOCK_BYTES
                        continue
                    if "Empty CSV" not in str(error):
                        raise
                    # pyarrow says so of a block without a whole line, too.
            if not _is_as_long(file, block_bytes):
                _refuse_open_quote(file, self.delimiter)
                return [], block_bytes
            if block_bytes >= _MOST_BLOCK_BYTES:
                raise CorruptDataError(
                    f"the first line is longer than {block_bytes // 1024**2} MiB", path=file.url
                )
            block_bytes *= 2

    @contextlib.contextmanager
    def _opened(self, file: InputFile) -> Iterator[TextStream]:
        with file.open_decompressed() as stream:
            text = TextStream(_checked(stream, self.delimiter, file))
            with text.faults():
                yield text

    def open_writer(
        self,
        stream: BinaryIO,
        schema: pa.Schema,
        compression: Compression | None,
        level: int | None,
    ) -> TableWriter:
        """Begin a file with its header."""
        del compression, level
        for field in schema:
            t = field.type
            if is_any_list(t) or pat.is_binary(t) or pat.is_fixed_size_binary(t):
                raise UnsupportedTypeError(f"text cannot hold {t}", feature=field.name)
        return _Writer(stream, schema, self.delimiter)


def _checked(stream: BinaryIO, delimiter: str, file: InputFile) -> Iterator[bytes]:
    """Give a text whose lines all end, and in which quotes are neither escaped nor left open.

    A quote that a backslash escapes, as Spark does it, ends the value for pyarrow, which takes what
    follows for more of it, and all that stands behind one that nothing closes. Without the end of
    the last line it takes nothing behind a text in quotes for an empty text.
    """
    ends = _ends(delimiter)
    escaped = re.compile(rb'[%b]("[^"]*\\")[^%b"]' % (ends, ends))
    before = b"\n"
    quotes = 0
    for data in _pieces(stream):
        text = before + data
        if text.startswith((b"\n\xff\xfe", b"\n\xfe\xff")):
            raise CorruptDataError("the text is in UTF-16; save it as UTF-8", path=file.url)
        if b'\\"' in text and (found := escaped.search(text)):
            shown = found[1][:_SHOWN_BYTES].decode(errors="backslashreplace")
            raise CorruptDataError(
                f"a quote in a value is escaped by a backslash, as Spark does it by default: "
                f"{shown}; quotes in values are to be doubled: write the file with Spark's option "
                "escape='\"'",
                path=file.url,
            )
        before = text[-_OVERLAP_BYTES:]
        quotes += data.count(b'"')
        yield data
    # An even number is taken for pairs: it takes another look at all of the text to know.
    if quotes % 2:
        _refuse_open_quote(file, delimiter)
    if before[-1:] not in (b"\r", b"\n"):
        yield b"\n"


def _pieces(stream: BinaryIO) -> Iterator[bytes]:
    """Give a text from its first line on that is not empty.

    Where there is one column pyarrow takes an empty line before the header for it.
    """
    is_begun = False
    while data := stream.read(_PIECE_BYTES):
        if not is_begun:
            data = data.removeprefix(_BYTE_ORDER_MARK).lstrip(b"\r\n")
            is_begun = bool(data)
        if data:
            yield data


def _ends(delimiter: str) -> bytes:
    """Return what a value may stand behind, for a set of a regular expression."""
    return re.escape(delimiter).encode() + rb"\r\n"


def _refuse_open_quote(file: InputFile, delimiter: str) -> None:
    """Raise `CorruptDataError` if a text ends within a value in quotes.

    Quotes that stand inside of a value without quotes are characters as others.
    """
    begin = rb'(?<![^%b])"' % _ends(delimiter)
    opening, whole = re.compile(begin), re.compile(begin + rb'[^"]*(?:""[^"]*)*"(?!")')
    held = b""
    with file.open_decompressed() as stream:
        for data in _pieces(stream):
            text = held + data
            # What is behind a quote tells whether it closes.
            known = text.rstrip(b'"')
            rest = whole.sub(b"", known)
            found = opening.search(rest)
            held = (rest[found.start() :] if found else rest[-1:]) + text[len(known) :]
    if opening.search(whole.sub(b"", held)):
        raise CorruptDataError(
            "a quote is not closed; close it, or put a value that begins with one in quotes and "
            "double it",
            path=file.url,
        )


def _is_as_long(file: InputFile, size: int) -> bool:
    with file.open_decompressed() as stream:
        while size > 0 and (found := stream.read(min(size, _BLOCK_BYTES))):
            size -= len(found)
        return size <= 0


class _Writer:
    """Writes rows as lines."""

    def __init__(self, stream: BinaryIO, schema: pa.Schema, delimiter: str) -> None:
        self._stream = stream
        self._delimiter = delimiter
        names = _quoted(pa.array(schema.names, pa.large_string())).to_pylist()
        stream.write(f"{delimiter.join(names)}\n".encode())

    def write(self, batch: pa.RecordBatch) -> None:
        fields = [_texts(column) for column in batch.columns]
        rows = _joined(*fields, by=self._delimiter)
        self._stream.write("".join(_joined(rows, "\n").to_pylist()).encode())

    def close(self) -> None:
        """See `TableWriter`: nothing is held back."""


def _texts(array: pa.Array) -> pa.Array:
    t = array.type
    if pat.is_string(t):
        return _quoted(array.cast(pa.large_string()))
    if pat.is_duration(t):
        array = array.cast(pa.int64())
    texts = array.cast(pa.large_string())
    if pat.is_floating(t):
        if not pc.all(pc.is_finite(array), min_count=0).as_py():
            # The words that Spark reads; of others it makes nulls.
            texts = pc.replace_substring_regex(texts, "^-?nan$", "NaN")
            texts = pc.replace_substring(texts, "inf", "Infinity")
        # Without a point readers take a number for an integer.
        return pc.if_else(
            pc.match_substring_regex(texts, "^-?[0-9]+$"), _joined(texts, ".0"), texts
        )
    return texts


def _quoted(texts: pa.Array) -> pa.Array:
    doubled = pc.replace_substring(texts, '"', '""')
    quoted = _joined('"', doubled, '"')
    return pc.if_else(texts.is_valid(), quoted, texts)


def _joined(*parts: pa.Array | str, by: str = "") -> pa.Array:
    """Join row by row; null counts as an empty text."""
    text = pa.large_string()
    same = [pa.scalar(part, text) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(
        *same, pa.scalar(by, text), null_handling="replace", null_replacement=""
    )


def _is_digits(t: pa.DataType) -> bool:
    return bool(pat.is_floating(t) or pat.is_decimal(t) or pat.is_signed_integer(t))


def _parsed_type(field: pa.Field, url: str) -> pa.DataType:
    """Return the type to parse a column as, from which casting leads to the one asked for."""
    t = field.type
    if is_any_list(t):
        raise UnsupportedTypeError(
            f"column {field.name!r} is asked for as {t}, and CSV holds no lists; read it as a "
            "string",
            path=url,
            feature=field.name,
        )
    if _is_digits(t) or pat.is_string_view(t) or pat.is_binary_view(t):
        return pa.string()
    if not _is_parsed(t):
        raise UnsupportedTypeError(
            f"column {field.name!r} is asked for as {t}, which is not read from text; give it "
            "another type in the schema, such as string",
            path=url,
            feature=field.name,
        )
    return t


@functools.cache
def _is_parsed(t: pa.DataType) -> bool:
    """Return whether pyarrow parses texts of a type; only trying tells."""
    import pyarrow.csv as pcsv

    options = pcsv.ConvertOptions(column_types={"x": t})
    text = TextStream(iter([b"x\n"]))
    try:
        with text.opened_by(pcsv.open_csv, _PIECE_BYTES, convert_options=options):
            return True
    except pa.ArrowNotImplementedError:
        return False


@contextlib.contextmanager
def _explained(url: str, names: Sequence[str]) -> Iterator[None]:
    """Raise what pyarrow says of a file's text as an error with path, row and column."""
    try:
        yield
    except pa.ArrowException as error:
        match = _ROW.search(str(error))
        row = int(match[1]) - 2 if match else None
        if "conversion error" in str(error):
            column = _COLUMN.search(str(error))
            raise SchemaMismatchError(
                f"a value does not fit its column: {said(error)}; types were told by the first "
                f"{_BLOCK_BYTES // 1024**2} MiB of the file or by the schema: give a schema in "
                "which this column has another type",
                path=url,
                feature=names[int(column[1])] if column else None,
                row=row,
            ) from error
        what = f"the file cannot be read: {said(error)}"
        if "straddl" in what:
            what = f"a row is longer than {_BLOCK_BYTES // 1024**2} MiB, or a quote is not closed"
        elif "Expected 1 columns" in what:
            what += (
                "; the header is taken for one column, since csv has commas between columns and "
                "tsv has tabs: read text of another kind by pyarrow.csv.open_csv, and write what "
                "that gives by write_table"
            )
        raise CorruptDataError(what, path=url, row=row) from error
    except UnicodeDecodeError as error:
        raise CorruptDataError(f"the header cannot be read: {error}", path=url) from error
