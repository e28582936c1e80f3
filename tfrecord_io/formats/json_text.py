"""The text of JSON lines, looked at before pyarrow parses it, and again where it tells too little.

pyarrow's parser (26.0.1) ends the process at a ``null`` in the place of an object and at values
inside thousands of others, and takes an object that spans lines if it does not span blocks. So each
line must be objects that nest no deeper than `_MOST_DEPTH`.

Of a number it gives the nearest double, or a decimal whose arithmetic may have overflowed. Which of
them were other numbers is found by reading the lines in which there may be such with the standard
library's parser, which gives their digits.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.types as pat

from tfrecord_io.errors import CorruptDataError, SchemaMismatchError
from tfrecord_io.formats.base import InputFile, TextStream, shortened
from tfrecord_io.formats.exact import INTEGERS_END

#: A line must not be longer.
MOST_LINE_BYTES = 16 * 1024 * 1024

#: Values inside each other in a line.
_MOST_DEPTH = 100

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

#: No more of a line is shown in an error.
_SHOWN_BYTES = 60

#: One that has no end takes the rest, so that searching takes linear time.
_STRING = rb'"[^"\\]*(?:\\(?s:.)[^"\\]*)*(?:"|\\?\Z)'
_STRINGS = re.compile(_STRING)

#: The end of a line that is not one of an object, or that no other object follows.
_ODD_END = re.compile(rb"\n(?:(?<!\}\n)|(?!\{|\Z))")

_NULL_BEHIND_OBJECT = re.compile(rb"\}\s*null")

#: Leaves the openings of values and the ends of lines.
_OPENINGS = bytes.maketrans(b"{", b"[")
_NO_OPENINGS = bytes({*range(256)} - {*b"[{\n"})
_NO_BRACKETS = bytes({*range(256)} - {*b"[]{}"})


class JsonText(TextStream):
    """The lines of a file.

    Parameters
    ----------
    stream : file-like object
        The file's bytes, decompressed.
    url : str
        For errors.
    numbers : mapping of str to pyarrow.DataType, optional
        Columns of floats and decimals, and the types of their values.
    is_bared : bool
        Whether ``"NaN"``, ``"Infinity"`` and ``"-Infinity"`` lose their quotes where floats are.

    Attributes
    ----------
    has_tiny : bool
        Whether there was anything so far that may be a number which no float tells from zero.
    has_far : bool
        Whether there was anything that may be a number which pyarrow makes another decimal.

    Raises
    ------
    CorruptDataError
        By `faults`: a line is not UTF-8, not objects, or too long, or its values nest too deep.
    """

    def __init__(
        self,
        stream: BinaryIO,
        url: str,
        numbers: Mapping[str, pa.DataType] | None = None,
        *,
        is_bared: bool = False,
    ) -> None:
        super().__init__(self._read(_some_lines(stream, url)))
        numbers = numbers or {}
        self._floats = {name for name, t in numbers.items() if pat.is_floating(t)}
        self._has_decimals = len(self._floats) < len(numbers)
        self._is_bared = is_bared
        self.has_tiny = False
        self.has_far = False

    def _read(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for lines in pieces:
            if self._floats and not self.has_tiny:
                self.has_tiny = _may_hold_tiny(lines)
            if self._has_decimals and not self.has_far:
                self.has_far = bool(_FAR.search(lines))
            if self._floats and self._is_bared and _WORD.search(lines):
                yield _STRING_AND_VALUES.sub(self._bare, lines)
            else:
                yield lines

    def _bare(self, found: re.Match[bytes]) -> bytes:
        string, values = found[1], found[2]
        if values and _WORD.search(values) and _text_of(string) in self._floats:
            return string + _WORD.sub(rb"\1", values)
        return found[0]


#: In quotes, and no key.
_WORD = re.compile(rb'"(NaN|-?Infinity)"(?!\s*:)')

#: A string, and if it is a key, what is behind it up to another string than such a word.
_STRING_AND_VALUES = re.compile(
    rb"(" + _STRING + rb")(\s*:(?:" + _WORD.pattern + rb"|[][\w\s,.+-])*)?"
)


def _text_of(string: bytes) -> Any:
    """Return a JSON string's text; what cannot be read is None, and pyarrow tells."""
    try:
        return json.loads(string)
    except ValueError:
        return None


# --- lines ----------------------------------------------------------------------------------------


def _some_lines(stream: BinaryIO, url: str) -> Iterator[bytes]:
    """Give a stream's bytes, some lines at a time; each is objects."""
    rows = 0
    held = stream.read(len(_BYTE_ORDER_MARK)).removeprefix(_BYTE_ORDER_MARK)
    while data := stream.read(1024 * 1024):
        lines, newline, held = (held + data).rpartition(b"\n")
        if len(held) > MOST_LINE_BYTES:
            raise CorruptDataError(
                f"a line is longer than {MOST_LINE_BYTES // 1024**2} MiB; each line is to be one "
                "object, and there may be none so large",
                path=url,
                row=rows + lines.count(b"\n") + bool(newline),
            )
        if newline:
            lines += newline
            rows += _checked_rows(lines, url, rows)
            yield lines
    if held:
        _checked_rows(held, url, rows)
        yield held


def _checked_rows(lines: bytes, url: str, first_row: int) -> int:
    """Return how many lines have something in them; see `JsonText` for errors."""
    try:
        lines.decode()
    except UnicodeDecodeError as error:
        row = first_row + lines.count(b"\n", 0, error.start)
        raise CorruptDataError(f"a line is not UTF-8: {error.reason}", path=url, row=row) from error
    openings = lines.translate(_OPENINGS, _NO_OPENINGS)
    if _are_objects(lines, openings):
        return openings.count(b"\n")
    row = first_row
    for line in filter(None, map(bytes.strip, lines.split(b"\n"))):
        if not _are_objects(line, line.translate(_OPENINGS, _NO_OPENINGS)):
            _check_line(line, url, row)
        row += 1
    return row - first_row


def _are_objects(lines: bytes, openings: bytes) -> bool:
    """Return whether each line is objects; if not, they may be still."""
    return (
        lines.startswith(b"{")
        and lines.endswith((b"}\n", b"}"))
        and b"[" * _MOST_DEPTH not in openings
        and not _ODD_END.search(lines)
        and not _NULL_BEHIND_OBJECT.search(lines)
    )


def _check_line(line: bytes, url: str, row: int) -> None:
    bones = _STRINGS.sub(b'""', line)
    if not bones.startswith(b"{") or not bones.endswith(b"}") or _NULL_BEHIND_OBJECT.search(bones):
        shown = line[:_SHOWN_BYTES].decode(errors="backslashreplace")
        raise CorruptDataError(
            f'a line is not one object, such as {{"a": 1}}, but {shown!r}; write each row as an '
            "object on a line of its own, without brackets around them or commas between them",
            path=url,
            row=row,
        )
    steps = (1 if bracket in b"[{" else -1 for bracket in bones.translate(None, _NO_BRACKETS))
    if max(itertools.accumulate(steps)) > _MOST_DEPTH:
        raise CorruptDataError(
            f"a line has values inside more than {_MOST_DEPTH} others; write them flat",
            path=url,
            row=row,
        )


# --- numbers --------------------------------------------------------------------------------------

#: A number without a point or an exponent, of so many digits that no float may be it.
_LONG_WHOLE = re.compile(rb"(?<![\w.+-])-?\d{16,}(?![\w.])")

#: What there is in a number that no float tells from zero, whose exponent has three digits or whose
#: first other digit has hundreds of zeros before it; and in any that is not zero.
_TINY_EXPONENT = re.compile(rb"-(?<=[eE]-)0*\d{3}")
_MANY_ZEROS = b"0" * 200
_NONZERO = re.compile("[^eE]*[1-9]")

#: What there is in a number that pyarrow's arithmetic of decimals may not have room for: with fewer
#: digits before and behind its point, no exponent and a scale of so many it has.
_FAR = re.compile(rb"\d{39}|\d[eE]")
MOST_SCALE = 38

#: Of the words pyarrow takes more spellings than the standard library.
_STRING_OR_WORD = re.compile(rb"(" + _STRING + rb")|-?(?:NaN|Inf(?:inity)?)")


class _Digits(str):
    """A number as it is written."""

    __slots__ = ()


_DECODER = json.JSONDecoder(parse_int=_Digits, parse_float=_Digits, strict=False)


def refuse_changed(file: InputFile, numbers: Mapping[str, pa.DataType]) -> None:
    """Raise `SchemaMismatchError` for a number that pyarrow changes too much.

    In columns of floats that is a whole number that none of its type is, and one that is not zero
    and becomes zero; in columns of decimals any that is none of its type.

    Parameters
    ----------
    file : InputFile
        The file.
    numbers : mapping of str to pyarrow.DataType
        See `JsonText`.
    """
    has_decimals = any(map(pat.is_decimal, numbers.values()))
    is_scaled = any(pat.is_decimal(t) and abs(t.scale) > MOST_SCALE for t in numbers.values())

    def may_change(lines: bytes) -> bool:
        if is_scaled or _may_hold_tiny(lines) or _LONG_WHOLE.search(lines):
            return True
        return has_decimals and bool(_FAR.search(lines))

    with file.open_decompressed() as stream:
        for lines in filter(may_change, _some_lines(stream, file.url)):
            for line in filter(may_change, lines.split(b"\n")):
                _refuse_changed_in(line, numbers, file.url)


def _may_hold_tiny(lines: bytes) -> bool:
    return bool(_MANY_ZEROS in lines or _TINY_EXPONENT.search(lines))


def _refuse_changed_in(line: bytes, numbers: Mapping[str, pa.DataType], url: str) -> None:
    for row in _objects(line, url):
        for name, t in numbers.items():
            # pyarrow reads decimals in quotes, too.
            kind = str if pat.is_decimal(t) else _Digits
            for number in _leaves(row.get(name), kind):
                what = _what_is_changed(number, t)
                if what is not None:
                    raise SchemaMismatchError(
                        f"column {name!r} holds {shortened(number)}, which {what}",
                        path=url,
                        feature=name,
                    )


def _what_is_changed(number: str, t: pa.DataType) -> str | None:
    if pat.is_decimal(t):
        is_kept = _is_decimal(number, t)
        return None if is_kept else f"is no {t}; give a schema with a type that has room for it"
    if number.lstrip("-").isdigit():
        is_kept = _is_float(number, t)
        return None if is_kept else f"is no {t}; give a schema in which it is a decimal"
    if not float(number) and _NONZERO.match(number):
        return "no double tells from zero; write 0 if that is what it stands for"
    return None


def _is_decimal(number: str, t: pa.DataType) -> bool:
    try:
        _, digits, exponent = Decimal(number).as_tuple()
    except InvalidOperation:
        # Its exponent is beyond all, or it is a text.
        return False
    if isinstance(exponent, str):
        return False
    significant = len("".join(map(str, digits)).rstrip("0"))
    exponent += len(digits) - significant
    if digits[0] == 0:
        return True
    return bool(exponent >= -t.scale and significant + exponent <= t.precision - t.scale)


def _is_float(whole: str, t: pa.DataType) -> bool:
    number = float(whole)
    if abs(number) < INTEGERS_END:
        return True
    # Of one with thousands of digits Python makes no integer.
    return math.isfinite(number) and int(whole) == pa.scalar(number, t).as_py()


def _objects(line: bytes, url: str) -> Iterator[dict[str, Any]]:
    """Read the objects of a line, whose numbers are `_Digits`; words among them are left out."""
    text = _STRING_OR_WORD.sub(lambda found: found[1] or b"0", line).decode(errors="replace")
    try:
        while text := text.strip():
            found, end = _DECODER.raw_decode(text)
            yield found
            text = text[end:]
    except json.JSONDecodeError as error:
        what = f"a line cannot be read: {error.msg} at character {error.pos}"
        raise CorruptDataError(what, path=url) from error


def _leaves(value: Any, kind: type[str]) -> Iterator[str]:
    """Give the values of a kind inside all lists."""
    if isinstance(value, kind):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, kind)
