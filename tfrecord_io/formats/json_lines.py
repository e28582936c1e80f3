"""JSON lines: an object a line, one for each row.

Reading is pyarrow's. Types are those that it infers from a file's first `_BLOCK_BYTES` (texts that
look like timestamps become such, of UTC if they tell a zone), or those that are given. A later
value that does not fit, and a key that was not seen in the first block, is an error, and so are
numbers that would change: a large whole one that no double is, a tiny one that would be zero.

Writing follows Spark, and what it writes pyarrow reads: a key for each column with an explicit
null; dates and times as ISO 8601 texts (`time_text` says how those of far years look, which are
read as times where a schema asks for them), durations as their integers, decimals as numbers with
all their digits, float32 with the shortest digits that give it back, NaN and infinities as the
words ``NaN``, ``Infinity`` and ``-Infinity``, bytes as Base64. Where a schema asks for bytes,
Base64 is read, and where it asks for floats, these words in quotes are, too, as protobuf and the
command line write them.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import functools
import io
import json
import re
from collections.abc import Callable, Iterator
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
    row_of,
    shortened,
)
from tfrecord_io.formats.exact import INTEGERS_END, leaves
from tfrecord_io.formats.json_text import MOST_LINE_BYTES, MOST_SCALE, JsonText, refuse_changed
from tfrecord_io.schema import is_any_list, is_bytes, leaf_type, with_leaf
from tfrecord_io.time_text import far_times, is_day_or_instant, time_texts

#: pyarrow reads so much at a time, in which a line has room.
_BLOCK_BYTES = MOST_LINE_BYTES

#: pyarrow counts rows from the start of a block.
_ROW = re.compile(r" in row ([0-9]+)")

#: At the end of a timestamp; that of a date is none.
_ZONE = "[T ][0-9:.]+(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"

_MISFIT = ("changed from", "Failed to convert", "unexpected field", "is not a valid decimal")


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonLinesFormat:
    """JSON lines; see `tfrecord_io.formats.base.Format`."""

    name: str = "jsonl"
    suffixes: tuple[str, ...] = (".jsonl", ".ndjson", ".json")
    compressions: tuple[Compression, ...] = get_args(Compression)
    leveled: tuple[Compression, ...] = get_args(Compression)
    default_compression: Compression | None = None
    has_far_years: bool = True
    timestamp_unit: Literal["s", "ms", "ns"] | None = "s"
    is_wrapped: bool = True
    is_grouped: bool = False

    def look(self, file: InputFile, schema: pa.Schema | None) -> Look:
        """Infer types from the first block."""
        found = schema
        if found is None:
            with file.open_decompressed() as stream, _explained(file.url, _Count()):
                text = JsonText(stream, file.url)
                with text.faults(), _opened(text, None, "infer") as opened:
                    found = pa.schema([]) if opened is None else opened.schema
            if any(pat.is_timestamp(leaf_type(field.type)) for field in found):
                found = _with_zones(file, found)
        return Look(schema=found, pieces=(Piece(bytes=file.size),))

    def read(
        self, file: InputFile, piece: Piece, schema: pa.Schema, found: pa.Schema | None
    ) -> Iterator[pa.RecordBatch]:
        """Read the file."""
        del piece
        parsed = [pa.field(field.name, _parsed_type(field.type)) for field in schema]
        _refuse_unparsed(parsed, file.url)
        if found is not None:
            given = {*schema.names}
            parsed += [field for field in found if field.name not in given]
        leaf_types = {field.name: leaf_type(field.type) for field in schema}
        numbers = {
            name: t for name, t in leaf_types.items() if pat.is_floating(t) or pat.is_decimal(t)
        }
        count = _Count()
        with file.open_decompressed() as stream, _explained(file.url, count):
            text = JsonText(stream, file.url, numbers, is_bared=found is None)
            unexpected = "ignore" if found is None else "error"
            is_checked = False
            with text.faults(), _opened(text, pa.schema(parsed), unexpected) as opened:
                for batch in opened or ():
                    if not is_checked and any(_may_change(batch[name], text) for name in numbers):
                        refuse_changed(file, numbers)
                        is_checked = True
                    yield _decoded(batch, schema, file.url, count.rows)
                    count.rows += batch.num_rows

    def open_writer(
        self,
        stream: BinaryIO,
        schema: pa.Schema,
        compression: Compression | None,
        level: int | None,
    ) -> TableWriter:
        """Begin a file."""
        del compression, level
        return _Writer(stream, schema)


class _Count:
    """How many rows were given out."""

    rows = 0


@contextlib.contextmanager
def _opened(
    text: JsonText, schema: pa.Schema | None, unexpected: str
) -> Iterator[OpenedText | None]:
    """Open a file; None for one without rows."""
    import pyarrow.json as pj

    with contextlib.ExitStack() as stack:
        try:
            opened = stack.enter_context(
                text.opened_by(
                    pj.open_json,
                    io.DEFAULT_BUFFER_SIZE,
                    read_options=pj.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False),
                    parse_options=pj.ParseOptions(
                        explicit_schema=schema, unexpected_field_behavior=unexpected
                    ),
                )
            )
        except pa.ArrowInvalid as error:
            if "Empty JSON" not in str(error):
                raise
            opened = None
        yield opened


@contextlib.contextmanager
def _explained(url: str, count: _Count) -> Iterator[None]:
    """Raise what pyarrow says of a file's text as an error with path and row."""
    try:
        yield
    except pa.ArrowException as error:
        match = _ROW.search(str(error))
        row = count.rows + int(match[1]) if match else None
        text = shortened(_ROW.sub("", str(error)))
        if row is None and count.rows:
            text += f" (behind row {count.rows - 1})"
        if any(sign in str(error) for sign in _MISFIT):
            raise SchemaMismatchError(
                f"a value does not fit its column: {text}; types were told by the first "
                f"{_BLOCK_BYTES // 1024**2} MiB of the file or by the schema: give a schema that "
                "has this column with another type",
                path=url,
                row=row,
            ) from error
        raise CorruptDataError(f"the file cannot be read: {text}", path=url, row=row) from error


# --- reading --------------------------------------------------------------------------------------


def _key(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def _may_change(array: pa.Array, text: JsonText) -> bool:
    """Return whether there may be numbers that were others in the text."""
    values = leaves(array)
    if pat.is_decimal(values.type):
        return text.has_far or abs(values.type.scale) > MOST_SCALE
    found = pc.greater_equal(pc.abs(values), float(INTEGERS_END))
    if text.has_tiny:
        found = pc.or_(found, pc.equal(values, 0.0))
    return bool(pc.any(found, min_count=0).as_py())


def _parsed_type(t: pa.DataType) -> pa.DataType:
    """Return the type to parse as, from which decoding and casting lead to the one asked for."""
    if pat.is_dictionary(t):
        return _parsed_type(t.value_type)
    if is_any_list(t):
        return pa.list_(_parsed_type(t.value_type))
    if pat.is_floating(t):
        return pa.float64()
    if pat.is_decimal(t):
        # The parser does not count the digits of whole numbers, and the cast does.
        return pa.decimal256(76, t.scale)
    if pat.is_duration(t):
        return pa.int64()
    if pat.is_temporal(t) or pat.is_string_view(t) or is_bytes(t):
        # Of times pyarrow's parser drops the zone, or takes that of the type for granted.
        return pa.string()
    return t


def _with_zones(file: InputFile, found: pa.Schema) -> pa.Schema:
    """Return inferred columns, whose timestamps are of UTC if all that are there tell a zone.

    Those that only some tell are texts, as in CSV.
    """
    schema = pa.schema([pa.field(field.name, _parsed_type(field.type)) for field in found])
    with (
        file.open_decompressed() as stream,
        _explained(file.url, _Count()),
        _opened(JsonText(stream, file.url), schema, "ignore") as opened,
    ):
        first: pa.RecordBatch = next(iter(opened or ()))
    fields = []
    for field in found:
        t = leaf_type(field.type)
        if pat.is_timestamp(t):
            texts = leaves(first[field.name]).drop_null()
            zoned = pc.sum(pc.match_substring_regex(texts, _ZONE)).as_py()
            if zoned:
                t = pa.timestamp(t.unit, "UTC") if zoned == len(texts) else pa.string()
            field = field.with_type(with_leaf(field.type, t))
        fields.append(field)
    return pa.schema(fields)


def _refuse_unparsed(fields: list[pa.Field], url: str) -> None:
    """Raise `UnsupportedTypeError` for a column of a type that pyarrow does not parse."""
    for field in fields:
        if not _is_parsed(field.type):
            raise UnsupportedTypeError(
                f"column {field.name!r} is asked for as {field.type}, which is not read from JSON; "
                "give it another type in the schema, such as string",
                path=url,
                feature=field.name,
            )


@functools.cache
def _is_parsed(t: pa.DataType) -> bool:
    """Return whether pyarrow parses values of a type; only trying tells."""
    text = JsonText(io.BytesIO(b"{}"), "")
    try:
        with _opened(text, pa.schema([("x", t)]), "ignore"):
            return True
    except pa.ArrowNotImplementedError:
        return False


def _decoded(batch: pa.RecordBatch, schema: pa.Schema, url: str, first_row: int) -> pa.RecordBatch:
    """Make bytes of Base64, times of their texts, and digits for floats that are narrow."""
    arrays = []
    for field in schema:
        array = batch.column(field.name)
        leaf = leaf_type(field.type)
        if pat.is_float16(leaf) or pat.is_float32(leaf):
            # A double's nearest float is not always that of the digits it was read from.
            array = _mapped(array, _digits_of)
        elif is_bytes(leaf) or pat.is_time(leaf) or is_day_or_instant(leaf):
            parse = _bytes_of
            if not is_bytes(leaf):
                parse = functools.partial(_times_of if pat.is_time(leaf) else far_times, t=leaf)
            try:
                array = _mapped(array, parse)
            except (binascii.Error, pa.ArrowInvalid) as error:
                raise SchemaMismatchError(
                    f"column {field.name!r} is asked for as {field.type}, and a text in it is not "
                    f"{'Base64' if is_bytes(leaf) else 'a time'}: {error}; read it as a string",
                    path=url,
                    feature=field.name,
                    row=row_of(functools.partial(_is_bad, parse=parse), array, first_row),
                ) from error
        arrays.append(array)
    if not arrays:
        return batch.select([])
    return pa.RecordBatch.from_arrays(arrays, names=schema.names)


_Parse = Callable[[pa.Array], pa.Array]


def _is_bad(array: pa.Array, parse: _Parse) -> bool:
    try:
        _mapped(array, parse)
    except (binascii.Error, pa.ArrowInvalid):
        return True
    return False


def _mapped(array: pa.Array, parse: _Parse) -> pa.Array:
    """Parse the texts inside all lists."""
    if not pat.is_list(array.type):
        return parse(array)
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    zero = pa.array([0], pa.int64())
    offsets = pa.concat_arrays([zero, pc.cumulative_sum(lengths.cast(pa.int64()))])
    mask = array.is_null() if array.null_count else None
    return pa.LargeListArray.from_arrays(offsets, _mapped(array.flatten(), parse), mask=mask)


def _bytes_of(texts: pa.Array) -> pa.Array:
    values = [None if x is None else base64.b64decode(x, validate=True) for x in texts.to_pylist()]
    return pa.array(values, pa.large_binary())


def _digits_of(doubles: pa.Array) -> pa.Array:
    return doubles.cast(pa.string())


def _times_of(texts: pa.Array, t: pa.DataType) -> pa.Array:
    # Arrow parses timestamps, and no times alone.
    days = pc.binary_join_element_wise("1970-01-01T", texts, "")
    return days.cast(pa.timestamp(t.unit)).cast(t)


# --- writing --------------------------------------------------------------------------------------


class _Writer:
    """Writes rows as lines."""

    def __init__(self, stream: BinaryIO, schema: pa.Schema) -> None:
        self._stream = stream
        names = [_key(name) for name in schema.names]
        self._keys = [f"{',' if index else ''}{name}:" for index, name in enumerate(names)]

    def write(self, batch: pa.RecordBatch) -> None:
        columns = [_texts(column) for column in batch.columns]
        keyed = [
            [key + text for text in texts] for key, texts in zip(self._keys, columns, strict=True)
        ]
        rows = map("".join, zip(*keyed, strict=True))
        self._stream.write("".join([f"{{{row}}}\n" for row in rows]).encode())

    def close(self) -> None:
        """See `TableWriter`: nothing is held back."""


def _texts(array: pa.Array) -> list[str]:
    """Return the JSON of each value."""
    return ["null" if text is None else text for text in _leaf_or_list(array)]


def _leaf_or_list(array: pa.Array) -> list[str | None]:
    t = array.type
    if is_any_list(t):
        return _lists(array)
    if pat.is_null(t):
        return [None] * len(array)
    if pat.is_boolean(t) or pat.is_integer(t):
        return list(array.cast(pa.string()).to_pylist())
    if pat.is_duration(t):
        return list(array.cast(pa.int64()).cast(pa.string()).to_pylist())
    if pat.is_floating(t):
        # pyarrow's text has the shortest digits for the width.
        return [None if x is None else _number(x) for x in array.cast(pa.string()).to_pylist()]
    if pat.is_decimal(t):
        return [None if x is None else f"{x:f}" for x in array.to_pylist()]
    if is_bytes(t):
        return [
            None if x is None else f'"{base64.b64encode(x).decode()}"' for x in array.to_pylist()
        ]
    if pat.is_string(t):
        quote = json.encoder.encode_basestring
        return [None if x is None else quote(x) for x in array.to_pylist()]
    # Dates, times and timestamps.
    return [None if x is None else f'"{x.replace(" ", "T")}"' for x in time_texts(array)]


def _number(text: str) -> str:
    words = {"nan": "NaN", "-nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    if text in words:
        return words[text]
    # Without a point readers take it for an integer.
    return text if "." in text or "e" in text else f"{text}.0"


def _lists(array: pa.Array) -> list[str | None]:
    items = _texts(array.flatten())
    lists: list[str | None] = []
    start = 0
    for length in pc.list_value_length(array).to_pylist():
        if length is None:
            lists.append(None)
        else:
            lists.append(f"[{','.join(items[start : start + length])}]")
            start += length
    return lists
