"""The names in a data set: Hive folders, partition values, part files. Strings alone, no I/O.

Folders are named exactly as Spark names them (ExternalCatalogUtils.scala, PartitioningUtils.scala
of Apache Spark), so that Spark, pyarrow, DuckDB and Dask all read them right; reading also takes
the forms that pyarrow writes. What Spark would hide, cut or confuse is refused here, so nothing
downstream can leave the target or lose a row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

import pyarrow as pa

from tfrecord_io.errors import LayoutError
from tfrecord_io.partition_values import value_texts

EmptyPartition = Literal["error", "null"]

#: The folder value of a null, as Hive names it.
NULL_VALUE = "__HIVE_DEFAULT_PARTITION__"

#: Most bytes of one folder name: the limit of Linux, macOS and HDFS.
MAX_NAME_BYTES = 255

#: ExternalCatalogUtils.charToEscape, without NUL, which no file system takes.
_ESCAPED = re.compile("[\x01-\x1f\x7f\"#%'*/:=?\\\\{\\[\\]^]")
_PERCENT = re.compile("(?:%[0-9A-Fa-f]{2})+")

#: Hadoop's name of a copy that is not complete; Spark lists no such file or folder.
_COPYING = "._COPYING_"

_PART = re.compile(r"part-(?P<task>\d{5,18})-(?P<file>\d{3,18})(?P<extension>\..+)")
#: Names of part files in which a number has more digits than usual.
_LONG = re.compile(
    r"part-(?!\d{5}-\d{3}\.)(?P<task>\d{5}|[1-9]\d{5,17})-(?P<file>\d{3}|[1-9]\d{3,17})(?=\.)"
)
_NUMBERED = re.compile(r"part-(?P<task>\d{1,18})(?!\d)")


def is_data_name(name: str) -> bool:
    """Return whether a reader looks at a file or folder of this name.

    Hidden are names that start with ``.``, or with ``_`` unless they contain ``=``, and Hadoop's
    unfinished copies, as in Spark's ``shouldFilterOutPathName``.

    Examples
    --------
    >>> is_data_name("part-00000-000.tfrecord"), is_data_name("_SUCCESS"), is_data_name("_p=1")
    (True, False, True)
    """
    if name.startswith((".", "_")) and (name[0] == "." or "=" not in name):
        return False
    return not name.endswith(_COPYING)


def is_read_with(path: str, folder: str) -> bool:
    """Return whether who reads a folder would look at what is at a path.

    Examples
    --------
    >>> is_read_with("a/b/c", "a"), is_read_with("a/_b/c", "a"), is_read_with("ab/c", "a")
    (True, False, False)
    """
    above, below, names = path.partition(f"{folder.rstrip('/')}/")
    return bool(below) and not above and all(map(is_data_name, names.split("/")))


# --- part files -----------------------------------------------------------------------------------


def format_part_name(task_index: int, file_index: int, extension: str) -> str:
    """Return the name of a part file.

    Examples
    --------
    >>> format_part_name(3, 0, ".tfrecord.gz")
    'part-00003-000.tfrecord.gz'
    """
    return f"part-{task_index:05d}-{file_index:03d}{extension}"


def format_part_path(folder: str, task_index: int, file_index: int, extension: str) -> str:
    """Return the path of a part file in the data set.

    Examples
    --------
    >>> format_part_path("p=1", 3, 0, ".tfrecord")
    'p=1/part-00003-000.tfrecord'
    """
    name = format_part_name(task_index, file_index, extension)
    return f"{folder}/{name}" if folder else name


def parse_part_name(name: str) -> tuple[int, int, str] | None:
    """Return (task index, file index, extension) of a name of `format_part_name`, else None."""
    match = _PART.fullmatch(name)
    if match is None:
        return None
    parsed = int(match["task"]), int(match["file"]), match["extension"]
    return parsed if format_part_name(*parsed) == name else None


def reading_order(path: str) -> str:
    """Return what paths are sorted by, so that the rows of part files come as they were written.

    Numbers with more digits come behind those with less; all else is sorted as text.

    Examples
    --------
    >>> sorted(["part-00000-1000.x", "part-00000-999.x", "part-00000-0.x"], key=reading_order)
    ['part-00000-0.x', 'part-00000-999.x', 'part-00000-1000.x']
    """
    folder, slash, name = path.rpartition("/")
    match = _LONG.match(name)
    if match is None:
        return path
    task, file = (
        digits.rjust(2 * len(digits) - least, "~")
        for digits, least in ((match["task"], 5), (match["file"], 3))
    )
    return f"{folder}{slash}part-{task}-{file}{name[match.end() :]}"


def next_task_index(names: Iterable[str]) -> int:
    """Return the first task index after those in use.

    Names of other writers count as well, such as Spark's ``part-00007-<uuid>-c000.tfrecord``.
    """
    matches = (_NUMBERED.match(name) for name in names)
    return max((int(match["task"]) for match in matches if match), default=-1) + 1


# --- folders --------------------------------------------------------------------------------------


def escape(text: str) -> str:
    """Escape a partition column's name or value as Spark does.

    Examples
    --------
    >>> escape("a/b=50% é")
    'a%2Fb%3D50%25 é'
    """
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def unescape(text: str) -> str:
    """Decode ``%XX`` as UTF-8; malformed escapes stay as they are.

    A run of escapes that is not UTF-8 is taken character by character, as Spark takes all of them.

    Examples
    --------
    >>> unescape("%C3%A9"), unescape("é"), unescape("%E9"), unescape("100%"), unescape("%zz")
    ('é', 'é', 'é', '100%', '%zz')
    """

    def decode(match: re.Match[str]) -> str:
        data = bytes.fromhex(match[0].replace("%", ""))
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            return data.decode("latin-1")

    return _PERCENT.sub(decode, text)


def check_partition_name(name: str) -> None:
    """Raise `LayoutError` if no folder can be named for a partition column of this name."""
    if not name:
        raise LayoutError("a partition column has an empty name, and no folder can be named so")
    if name.startswith("."):
        raise LayoutError(
            f"partition column {name!r} starts with a dot, so that every reader would hide its "
            "folders; rename it"
        )
    if "\0" in name:
        raise LayoutError(f"partition column {name!r} has a NUL in its name; rename it")
    _check_length(name, escape(name) + "=")


def format_segments(
    name: str, values: pa.Array, *, empty_partition: EmptyPartition = "error"
) -> list[str]:
    """Return the folder name, ``name=value``, for each value of a partition column.

    Parameters
    ----------
    name : str
        The column's name.
    values : pyarrow.Array
        Distinct values (the work is done for each); nulls become ``__HIVE_DEFAULT_PARTITION__``.
    empty_partition : {"error", "null"}
        An empty string can't be told from null in a folder's name: refuse it, or write it as null.

    Raises
    ------
    LayoutError
        A value that no folder can be named for, or a type that has no text.
    """
    check_partition_name(name)
    prefix = escape(name) + "="
    segments = []
    for text in value_texts(name, values):
        if text == "" and empty_partition == "error":
            raise LayoutError(
                f"partition column {name!r} has an empty string, which a folder's name can't tell "
                "from null; replace it, or write it as null with "
                'empty_partition="null"',
                feature=name,
            )
        if text == NULL_VALUE:
            raise LayoutError(
                f"partition column {name!r} has the value {NULL_VALUE!r}, which would be read as "
                "null",
                feature=name,
            )
        if text is not None and "\0" in text:
            raise LayoutError(
                f"partition column {name!r} has a value with a NUL, {text!r}, which no folder's "
                "name can hold",
                feature=name,
            )
        segment = prefix + (escape(text) if text else NULL_VALUE)
        _check_length(name, segment)
        if not is_data_name(segment):
            raise LayoutError(
                f"partition column {name!r} has the value {text!r}, and readers hide folders that "
                "end so",
                feature=name,
            )
        segments.append(segment)
    return segments


def _check_length(name: str, segment: str) -> None:
    length = len(segment.encode())
    if length > MAX_NAME_BYTES:
        raise LayoutError(
            f"partition column {name!r} needs a folder name of {length} bytes, and file systems "
            "end at "
            f"{MAX_NAME_BYTES}; partition by a shorter value",
            feature=name,
        )


def data_set_of(folder: str) -> str:
    """Return the folder that holds a partition folder, or another one itself.

    Examples
    --------
    >>> data_set_of("/flights/year=2026/month=1"), data_set_of("/flights")
    ('/flights', '/flights')
    """
    while "=" in folder.rpartition("/")[2]:
        folder = folder.rpartition("/")[0]
    return folder


def parse_partition_path(folder: str) -> list[tuple[str, str | None]]:
    """Return the partition columns and values that a folder's path names.

    Parameters
    ----------
    folder : str
        Relative to its data set, with ``/``; names without ``=`` say nothing.

    Raises
    ------
    LayoutError
        An empty column name, or one column twice.

    Examples
    --------
    >>> parse_partition_path("year=2026/place=a%2Fb/tag=__HIVE_DEFAULT_PARTITION__")
    [('year', '2026'), ('place', 'a/b'), ('tag', None)]
    """
    found: dict[str, str | None] = {}
    for segment in folder.split("/"):
        raw_name, equals, raw_value = segment.partition("=")
        if not equals:
            continue
        name = unescape(raw_name)
        if not name:
            raise LayoutError(
                f"the folder {segment!r} names a partition column without a name", path=folder
            )
        if name in found:
            raise LayoutError(f"the path names the partition column {name!r} twice", path=folder)
        found[name] = None if raw_value == NULL_VALUE else unescape(raw_value)
    return list(found.items())
