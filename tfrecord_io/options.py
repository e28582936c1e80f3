"""The options of reading and writing: choices, shared defaults, and their checks.

Layers below the public functions take these frozen objects; adapters (Dask, Spark, the command
line) build them from their own spelling of the same words.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal, get_args

from tfrecord_io.errors import OptionError

RecordType = Literal["Example", "SequenceExample", "ByteArray"]
SaveMode = Literal["error", "overwrite", "append", "ignore", "overwrite_partitions"]
OnCorrupt = Literal["raise", "skip_record", "skip_file"]
#: Where rows are all that is asked for, damage may be rows as well.
OnCorruptRows = Literal[OnCorrupt, "keep"]
Float64Mode = Literal["warn", "cast", "error"]
CodecName = Literal["auto", "native", "reference"]

#: No reader takes a longer payload: here protobuf ends, and an Arrow array of bytes.
MAX_PAYLOAD_BYTES = 2**31 - 1

_INT64_MAX = 2**63 - 1

#: The one column of a ByteArray data set when it is read, as spark-tfrecord names it.
BYTE_ARRAY_COLUMN = "byteArray"

#: Rows of one task when a table is written without an engine.
DEFAULT_ROWS_PER_TASK = 1_048_576

#: Record-offset marks of a manifest stand about this far apart; engines split files there.
SPLIT_BYTES = 16 * 1024 * 1024


def choice(name: str, value: object, choices: object) -> None:
    """Raise `OptionError` unless `value` is one of the literal type's values."""
    allowed = get_args(choices)
    if value not in allowed:
        listed = ", ".join(repr(a) for a in allowed)
        raise OptionError(f"{name} is {value!r}; it must be one of {listed}")


def positive(name: str, value: object) -> None:
    """Raise `OptionError` unless `value` is a whole number above 0 that 64 bits hold."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise OptionError(f"{name} is {value!r}; it must be a whole number above 0")
    if int(value) > _INT64_MAX:
        raise OptionError(f"{name} is {value}; it must be at most {_INT64_MAX}")


def not_negative(name: str, value: object) -> None:
    """Raise `OptionError` unless `value` is a whole number of 0 or more."""
    if not isinstance(value, Integral) or value < 0:
        raise OptionError(f"{name} is {value!r}; it must be a whole number of 0 or more")


def flag(name: str, value: object) -> None:
    """Raise `OptionError` unless `value` is True or False."""
    if not isinstance(value, bool):
        raise OptionError(f"{name} is {value!r}; it must be True or False")


def function(name: str, value: object) -> None:
    """Raise `OptionError` unless `value` can be called, or is None."""
    if value is not None and not callable(value):
        raise OptionError(f"{name} is {value!r}; it must be a function, or None")


def settings(value: object, name: str = "storage_options") -> dict[str, Any]:
    """Return a copy of a mapping, empty for None; raise `OptionError` for anything else."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        # Not shown: it may hold what is secret.
        raise OptionError(
            f"{name} is a {type(value).__name__}; it must be a mapping of names to values"
        )
    return dict(value)


def column_list(columns: object) -> list[Any]:
    """Return the names of columns that are asked for; a text is no list of names.

    Raises
    ------
    OptionError
        They are no list.
    """
    if isinstance(columns, str) or not isinstance(columns, Sequence):
        raise OptionError(f"columns is {columns!r}; it must be a list of names")
    return list(columns)


def no_column(name: object, names: Sequence[str]) -> OptionError:
    """Return the error of a column that is not among those of the data set, or a given schema."""
    near = difflib.get_close_matches(str(name), names, 3)
    if near:
        hint = f"did you mean {', '.join(map(repr, near))}?"
    elif names:
        more = " ..." if len(names) > 20 else ""
        hint = f"the columns are {', '.join(map(repr, names[:20]))}{more}"
    else:
        hint = "there are none"
    return OptionError(f"there is no column {name!r}; {hint}")


def no_time_zone(name: str) -> OptionError:
    """Return the error of a time zone that this system does not know."""
    return OptionError(
        f"there is no time zone {name!r} that this system knows; name one such as Europe/Berlin or "
        "+01:00, as time_zone"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a file may demand before it is refused, so that hostile files cannot exhaust memory.

    Attributes
    ----------
    max_record_bytes : int
        Length of one payload. Protobuf itself ends at 2 GiB.
    max_features : int
        Features and feature lists of one record, and distinct names that inference keeps.
    max_decompressed_bytes : int
        Decompressed size of one file.
    """

    max_record_bytes: int = 1024**3
    max_features: int = 100_000
    max_decompressed_bytes: int = 1024**4

    def __post_init__(self) -> None:
        for name in ("max_record_bytes", "max_features", "max_decompressed_bytes"):
            positive(name, getattr(self, name))
        if self.max_record_bytes > MAX_PAYLOAD_BYTES:
            raise OptionError(
                f"max_record_bytes is {self.max_record_bytes}; protobuf ends at {MAX_PAYLOAD_BYTES}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeOptions:
    """What a codec needs to know to turn frames into batches.

    Attributes
    ----------
    record_type : {"Example", "SequenceExample", "ByteArray"}
        What a payload is.
    batch_rows : int
        Most rows of one batch.
    batch_bytes : int
        A batch ends before the record that would take its payloads over this many bytes
        (a single larger record still makes a batch of its own).
    limits : Limits
        See `Limits`.
    check_all : bool
        Whether malformed bytes in a feature that the schema does not name make a record bad, too.
    """

    record_type: RecordType = "Example"
    batch_rows: int = 65_536
    batch_bytes: int = 32 * 1024 * 1024
    limits: Limits = Limits()
    check_all: bool = False

    def __post_init__(self) -> None:
        choice("record_type", self.record_type, RecordType)
        positive("batch_rows", self.batch_rows)
        positive("batch_bytes", self.batch_bytes)
