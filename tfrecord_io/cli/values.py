"""One value as text: short for a person, whole as JSON for a program.

JSON has no bytes and no infinities; they are written as protobuf's JSON mapping writes them: bytes
in base64, and the strings "NaN", "Infinity" and "-Infinity". Dates, times and timestamps are in
ISO 8601's form, durations are whole numbers of their unit, decimals are strings.

Nothing that came from a file reaches a terminal without `printable`: a value must not move the
cursor or set the title of somebody's window.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat
from rich.filesize import decimal as size_text
from rich.text import Text

from tfrecord_io.schema import is_any_list, leaf_type
from tfrecord_io.statistics.result import image_kind, json_scalar
from tfrecord_io.time_text import time_texts

#: Values of a list, and characters of a text, that a person gets to see.
_SHOWN_ITEMS = 3
_SHOWN_CHARACTERS = 40
_SHOWN_BYTES = 8

#: Those that JSON allows in its texts. To a terminal U+009B is the beginning of a command.
_CONTROLS = re.compile("[\x7f-\x9f]")

_NULL = Text("null", style="dim")


def printable(text: str, keep: str = "") -> str:
    """Return a text with what is not printable written as in a Python string."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text
    )


def counted(count: int, what: str) -> str:
    """Return a count with what is counted."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def plain_values(column: pa.Array) -> list[Any]:
    """Return a column as Python numbers, texts, bytes, lists of these, and None."""
    t = column.type
    if pat.is_dictionary(t):
        return plain_values(column.dictionary_decode())
    if is_any_list(t):
        items = iter(plain_values(column.flatten()))
        counts = pc.list_value_length(column).to_pylist()
        return [None if n is None else [*itertools.islice(items, n)] for n in counts]
    if pat.is_duration(t):
        column = column.cast(pa.int64())
    elif pat.is_temporal(t):
        return time_texts(column)
    elif pat.is_decimal(t):
        column = column.cast(pa.string())
    elif pat.is_float16(t):
        column = column.cast(pa.float32())
    return column.to_pylist()  # type: ignore[no-any-return]


def json_lines(batch: pa.RecordBatch) -> Iterator[str]:
    """Return each row as a JSON object, on a line of its own."""
    columns = [
        [_json_value(value, leaf_type(column.type)) for value in plain_values(column)]
        for column in batch.columns
    ]
    names = batch.schema.names
    for row in range(batch.num_rows):
        yield json_line({name: column[row] for name, column in zip(names, columns, strict=True)})


def json_line(value: Any) -> str:
    """Return a value of JSON's types on one line."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"


def _json_value(value: Any, leaf: pa.DataType) -> Any:
    if isinstance(value, list):
        return [_json_value(item, leaf) for item in value]
    if isinstance(value, str) and pat.is_timestamp(leaf):
        # A person reads the space that Arrow writes, a program a T.
        return value.replace(" ", "T")
    return json_scalar(value)


def short_text(value: Any, t: pa.DataType) -> Text:
    """Return one of `plain_values` for a table that a person reads."""
    if value is None:
        return _NULL
    if isinstance(value, list):
        return _short_list(value, t.value_type)
    if isinstance(value, bytes):
        return Text(_short_bytes(value))
    if isinstance(value, bool):
        return Text(str(value).lower())
    if isinstance(value, float):
        return Text(repr(value) if pat.is_float64(t) else f"{value:.7g}")
    return Text(_cut(str(value)))


def _short_list(values: list[Any], t: pa.DataType) -> Text:
    # The last item shows no more than its neighbours; what counts is how many there are.
    shown = [short_text(value, t) for value in values[:_SHOWN_ITEMS]]
    text = Text(", ").join(shown)
    if len(values) > _SHOWN_ITEMS:
        return Text.assemble("[", text, ", … ", (f"{len(values)} values", "dim"), "]")
    return Text.assemble("[", text, "]")


def _cut(text: str) -> str:
    if len(text) > _SHOWN_CHARACTERS:
        return printable(text[: _SHOWN_CHARACTERS - 1]) + "…"
    return printable(text)


def _short_bytes(value: bytes) -> str:
    size = size_text(len(value)).replace("bytes", "B").replace("byte", "B")
    if image := _image_type(value):
        return f"{image}, {size}"
    start = value[:_SHOWN_BYTES].hex(" ")
    more = " …" if len(value) > _SHOWN_BYTES else ""
    return f"{size}: {start}{more}" if value else "0 B"


def _image_type(value: bytes) -> str | None:
    kind = image_kind(value)
    if kind == "png" and len(value) >= 24:
        return f"PNG {int.from_bytes(value[16:20], 'big')}x{int.from_bytes(value[20:24], 'big')}"
    if kind == "gif" and len(value) >= 10:
        return f"GIF {int.from_bytes(value[6:8], 'little')}x{int.from_bytes(value[8:10], 'little')}"
    if kind == "jpeg":
        return "JPEG" + _jpeg_size(value)
    return "WebP" if kind == "webp" else None


def _jpeg_size(value: bytes) -> str:
    """Return the size that a JPEG's start-of-frame segment says (ITU T.81, B.2.2)."""
    at = 2
    while at + 9 <= len(value) and value[at] == 0xFF:
        marker = value[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = value[at + 5 : at + 7], value[at + 7 : at + 9]
            return f" {int.from_bytes(width, 'big')}x{int.from_bytes(height, 'big')}"
        at += 2 + int.from_bytes(value[at + 2 : at + 4], "big")
    return ""
