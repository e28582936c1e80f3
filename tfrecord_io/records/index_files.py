"""Index files: where each record of a plain file starts, and how long its frame is, as text.

The form is that of DALI's and the tfrecord package's ``tfrecord2idx``: a line for each record, with
its offset in the file and the size of its whole frame, header and CRCs included, in decimal::

    0 116
    116 98

DALI wants one for each file to divide it between workers; here they save the one hop over a file
that random access needs. An index is only good for its own file, so its records have to lie one
behind the other, and to end where the file ends. That fits a file that was written again with other
records of the same length in sum, too, so one that is older than its file is warned of.
"""

from __future__ import annotations

import bisect
import contextlib
import io
import itertools
import os
import posixpath
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tfrecord_io.codec import get_codec
from tfrecord_io.codec.base import OVERHEAD_BYTES, Codec
from tfrecord_io.commit.file_staging import replace_file
from tfrecord_io.errors import (
    CorruptDataError,
    DatasetExistsError,
    OptionError,
    TFRecordError,
    TFRecordWarning,
    warn,
)
from tfrecord_io.layout import is_read_with
from tfrecord_io.options import Limits
from tfrecord_io.parallel import each
from tfrecord_io.plan import ScanFile, ScanOptions
from tfrecord_io.reading.files import Paths, as_list
from tfrecord_io.reading.frames import FrameCounter, walk
from tfrecord_io.reading.listing import Listed
from tfrecord_io.reading.plan import plan_files
from tfrecord_io.reading.source import OpenFile
from tfrecord_io.storage import Storage, open_storage, target_options, threads_for

#: Files can be cut at a record about every so many bytes.
_MARK_BYTES = 1024 * 1024

#: What the name of an index ends in, behind that of its file.
SUFFIX = ".idx"

#: How an index begins, and within how many bytes that shows.
_FIRST_LINE = re.compile(rb"0 [0-9]+\r?\n")
_HEAD_BYTES = 64

#: So many lines are made at a time, which takes many times the memory of their text.
_RUN_LINES = 65_536

#: An index of so many bytes is refused: it would describe more than a billion records.
_MOST_BYTES = 2**34


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexResult:
    """What `write_index` wrote.

    Attributes
    ----------
    files, records : int
        Index files, and the records that they describe.
    """

    files: int
    records: int


def record_starts(
    storage: Storage, file: ScanFile, options: ScanOptions, codec: Codec
) -> array[int]:
    """Return where each record of a file starts, and at last where the last one ends.

    Offsets are those in the decompressed file.

    Raises
    ------
    CorruptDataError, LimitExceededError
        A frame's length is damaged, or the file ends inside one; with the file's path.
    """
    with OpenFile(storage, file, options) as opened:
        return _starts(opened, file, options, codec)


def _starts(opened: OpenFile, file: ScanFile, options: ScanOptions, codec: Codec) -> array[int]:
    starts = array("Q", [0])
    counter = FrameCounter(codec, options.limits)

    def hop(data: pa.Buffer, start: int) -> None:
        begin = counter.offset
        counter.hop(data, start)
        sizes = pc.add(counter.lengths, pa.scalar(OVERHEAD_BYTES, pa.uint64()))
        ends = pc.cumulative_sum(sizes, start=begin)
        starts.frombytes(memoryview(ends.buffers()[1])[: 8 * len(ends)])

    try:
        for _ in walk(opened.source, counter, hop):
            pass
    except TFRecordError as error:
        if error.path is None:
            error.path = file.url
        raise
    return starts


def format_index(starts: array[int]) -> bytes:
    r"""Return the text of an index.

    Parameters
    ----------
    starts : array of int
        See `record_starts`.

    Examples
    --------
    >>> format_index(array("Q", [0, 116, 214]))
    b'0 116\n116 98\n'
    """
    runs = range(0, len(starts) - 1, _RUN_LINES)
    return b"".join(_lines(starts[first : first + _RUN_LINES + 1]) for first in runs)


def _lines(starts: array[int]) -> bytes:
    places = pa.array(starts, pa.uint64())
    offsets = places.slice(0, len(starts) - 1)
    sizes = pc.subtract(places.slice(1), offsets)
    texts = [offsets.cast(pa.string()), pa.scalar(" "), sizes.cast(pa.string()), pa.scalar("\n")]
    lines = pc.binary_join_element_wise(*texts, "")
    return "".join(lines.to_pylist()).encode()


def parse_index(text: bytes, file: ScanFile, url: str) -> array[int]:
    """Return what `record_starts` would, from the text of an index.

    Parameters
    ----------
    text : bytes
        What `format_index` returns, or another program wrote.
    file : ScanFile
        The file that it should describe.
    url : str
        How messages name the index.

    Raises
    ------
    CorruptDataError
        It is no index, or that of another file.
    """
    starts = array("Q", [0])
    for number, line in enumerate(io.BytesIO(text), 1):
        try:
            offset, size = map(int, line.split())
        except ValueError:
            raise CorruptDataError(
                f"line {number} of the index is {line.rstrip()[:60]!r}; it must be a record's "
                "offset and the size of its frame: write the index again",
                path=url,
            ) from None
        if offset != starts[-1] or not OVERHEAD_BYTES <= size <= file.size:
            raise CorruptDataError(
                f"line {number} of the index has a record of {size} bytes at {offset}, and the one "
                f"before it ends at {starts[-1]}: write the index again",
                path=url,
            )
        starts.append(offset + size)
    if starts[-1] != file.size:
        raise CorruptDataError(
            f"the index is that of another file, or of another state of it: it ends at byte "
            f"{starts[-1]}, and {file.url} at byte {file.size}; write the index again",
            path=url,
        )
    return starts


def read_index(
    path: str | os.PathLike[str],
    file: ScanFile,
    modified: float | None,
    storage_options: Mapping[str, Any] | None,
) -> array[int]:
    """Read the index of a file that was written at a time; see `parse_index` for what is raised.

    Warns if the index is older. That is no error: copying changes times.
    """
    storage, inner = open_storage(path, storage_options)
    url = storage.url(inner)
    starts = parse_index(storage.read_bytes(inner, _MOST_BYTES), file, url)
    written = storage.info(inner).modified
    if written is not None and modified is not None and written < modified:
        warn(
            f"{url} is older than the file that it is to describe, {file.url}, and may tell of "
            "other records; write the index again, or touch it if only copying made it older",
            TFRecordWarning,
        )
    return starts


def described_by(
    index: str | os.PathLike[str], storage_options: Mapping[str, Any] | None
) -> Callable[[str, ScanFile], ScanFile]:
    """Return what gives a file the marks of its index, see `tfrecord_io.reading.plan.plan_scan`.

    Parameters
    ----------
    index : str or path-like
        What `write_index` was given as its target.
    storage_options : mapping, optional
        For the file systems of the index and of the files.
    """
    into, base = open_storage(index, storage_options)
    is_folder = into.is_folder(base)

    def describe(found_through: str, file: ScanFile) -> ScanFile:
        storage, root = open_storage(found_through, storage_options)
        url = os.fspath(index)
        # Files of a list are found through the first of them.
        if file.path != root or is_folder:
            url = f"{url.rstrip('/')}/{_relative(file, root)}{SUFFIX}"
        starts = read_index(url, file, storage.info(file.path).modified, storage_options)
        marks: list[tuple[int, int]] = []
        for place in range(_MARK_BYTES, file.size, _MARK_BYTES):
            record = bisect.bisect_left(starts, place)
            if record < len(starts) - 1 and (not marks or marks[-1][1] < record):
                marks.append((starts[record], record))
        return file._replace(rows=len(starts) - 1, marks=tuple(marks))

    return describe


def write_index(
    source: Paths,
    target: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    target_storage_options: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
    threads: int | None = None,
) -> IndexResult:
    """Write index files, as DALI and the tfrecord package read them.

    Parameters
    ----------
    source : str, path-like or a list of them
        Folders, files or patterns, see `read_table`; uncompressed TFRecord files.
    target : str or path-like
        Of one file: the index file. Else a folder, for an index file for each file: in the same
        folders below it, with ``.idx`` behind its name. Not a folder of `source`, whose files are
        all taken for records, unless a name below it starts with ``_`` or ``.``. Older indexes
        are replaced, and nothing else is.
    storage_options, target_storage_options : mapping, optional
        For the fsspec file systems of source and target. Where the target's are not given, they are
        the source's if its URL is of the same kind.
    limits : Limits, optional
        What files may demand before they are refused.
    threads : int, optional
        How many files are worked on at a time; without it one for each core, and at least four
        for a remote store.

    Returns
    -------
    IndexResult
        How many files and records.

    Raises
    ------
    CorruptDataError, LimitExceededError
        A frame's length is damaged, or a file ends inside one.
    OptionError
        A compressed file, which no index can describe, two files with one index, or a target that
        is one of the sources or would be read with them.
    DatasetExistsError
        Where an index is to be, there is something else; nothing was written.
    FileNotFoundError, TFRecordError
        See `read_table`.

    Notes
    -----
    After an error, what this call made is removed.

    Examples
    --------
    >>> import tfrecord_io as tfr
    >>> with tfr.TFRecordWriter("memory://index.tfrecord") as writer:
    ...     writer.write(b"a record")
    >>> tfr.write_index("memory://index.tfrecord", "memory://index.idx")
    IndexResult(files=1, records=1)
    >>> tfr.TFRecordReader("memory://index.tfrecord", index="memory://index.idx")[0]
    b'a record'
    """
    options = target_options(target, as_list(source), storage_options, target_storage_options)
    found: list[Listed] = []
    plan = plan_files(source, storage_options=storage_options, limits=limits, tell=found.append)
    storages = [open_storage(url, storage_options) for url in plan.locations]
    into, base = open_storage(target, options)
    places = _places([task.file for task in plan.tasks], storages, into, base)
    _check_are_no_data(places, into, found)
    codec = get_codec()

    def write(place: str) -> int:
        file = places[place]
        with OpenFile(storages[file.location][0], file, plan.options) as opened:
            if opened.compression is not None:
                raise OptionError(
                    f"{file.url} is compressed with {opened.compression}; an index tells places in "
                    "a plain file: write the data without compression"
                )
            starts = _starts(opened, file, plan.options, codec)
        replace_file(into, place, format_index(starts))
        return len(starts) - 1

    count = max(
        threads_for(plan.locations, storage_options, threads),
        threads_for([into.url(base)], options, threads),
    )
    are_free = each(partial(_is_free, into), places, count)
    made = list(itertools.compress(places, are_free))
    with _undone(into, made):
        if into.has_folders:
            each(into.make_folders, {posixpath.dirname(place) for place in places} - {""}, count)
        counts = each(write, places, count)
    return IndexResult(files=len(counts), records=sum(counts))


def _places(
    files: Sequence[ScanFile], storages: Sequence[tuple[Storage, str]], into: Storage, base: str
) -> dict[str, ScanFile]:
    """Return where the index of each file goes; raise where that would be in the way of data."""
    places: dict[str, ScanFile] = {}
    for file in files:
        root = storages[file.location][1]
        is_one = len(files) == 1 and file.path == root
        place = base if is_one else f"{base}/{_relative(file, root)}{SUFFIX}"
        if place in places:
            raise OptionError(
                f"{file.url} and {places[place].url} would have one index, {into.url(place)}; "
                "write their indexes apart"
            )
        places[place] = file
    sources = {file.url for file in files}
    for place in (base, *places):
        if into.url(place) in sources:
            raise OptionError(
                "the target is one of the sources; name another file or folder for the index "
                "behind them",
                path=into.url(place),
            )
    if base not in places and into.exists(base) and not into.is_folder(base):
        raise DatasetExistsError(
            "the target is a file, and the indexes of several files go into a folder; choose "
            "another target",
            path=into.url(base),
        )
    return places


def _check_are_no_data(places: Iterable[str], into: Storage, found: Iterable[Listed]) -> None:
    folders = {one.storage.url(one.root) for one in found if one.is_folder}
    for place in places:
        if any(is_read_with(into.url(place), folder) for folder in folders):
            raise OptionError(
                "the index would stand in the folder of the data, whose files are all taken for "
                "records; choose a folder beside it, or below it one whose name starts with '_'",
                path=into.url(place),
            )


def _is_free(storage: Storage, place: str) -> bool:
    """Return whether nothing is there; raise unless it is an index, or an empty file."""
    try:
        size = storage.info(place).size
        is_other = size and not _FIRST_LINE.match(
            storage.read_range(place, 0, min(size, _HEAD_BYTES))
        )
    except FileNotFoundError:
        return True
    except IsADirectoryError:
        is_other = True
    if is_other:
        raise DatasetExistsError(
            "the target already exists and is no index; choose another target, or remove it",
            path=storage.url(place),
        )
    return False


@contextlib.contextmanager
def _undone(storage: Storage, files: list[str]) -> Iterator[None]:
    """After an error, remove new files of the block, and the new folders that they are in."""
    folders: set[str] = set()
    for folder in {posixpath.dirname(file) for file in files}:
        while folder and folder not in folders and not storage.is_folder(folder):
            folders.add(folder)
            folder = posixpath.dirname(folder)
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            storage.remove_files(files)
            for folder in sorted(folders, reverse=True):
                storage.remove_folder(folder)
        raise


def _relative(file: ScanFile, base: str) -> str:
    """Return a file's path below what was named, or its name."""
    if file.path.startswith(f"{base}/"):
        return file.path[len(base) + 1 :]
    return posixpath.basename(file.path)
