"""The source of a conversion: what there is to read, in pieces, whatever the format.

The pieces are worked out from the source alone, so that what is written depends on neither the
scheduler nor the number of workers. A plan pickles; `read_piece` carries out one piece anywhere.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from tfrecord_io.errors import (
    CorruptDataWarning,
    InferenceError,
    OptionError,
    UnsupportedTypeError,
)
from tfrecord_io.filters import Filters
from tfrecord_io.formats import get_format
from tfrecord_io.formats.base import (
    PIECE_BYTES,
    Format,
    InputFile,
    Look,
    Piece,
    conform,
    refuse_twins,
)
from tfrecord_io.layout import data_set_of
from tfrecord_io.options import OnCorrupt, RecordType, choice
from tfrecord_io.parallel import each
from tfrecord_io.plan import ScanFile, ScanPlan, ScanTask
from tfrecord_io.reading.files import Paths, as_list
from tfrecord_io.reading.listing import ask_each
from tfrecord_io.reading.plan import plan_scan
from tfrecord_io.reading.tasks import decoding
from tfrecord_io.reading.work import Finisher
from tfrecord_io.schema import is_any_list, normal_type
from tfrecord_io.storage import Storage, open_storage

#: Folders with the logs of tables of Delta Lake and Hudi.
_LOGS = ("_delta_log", ".hoodie")

#: Files that are looked at, at the same time.
_LOOKING_THREADS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePiece:
    """What one task reads: a run of records or units of one file.

    Attributes
    ----------
    task : ScanTask
        The file, and of TFRecord the run of records.
    piece : Piece or None
        Of another format, the run of units.
    bytes : int
        Its share of the file.
    is_inferred : bool
        Whether the file's columns were told by a look at it, which a later part may belie.
    """

    task: ScanTask
    piece: Piece | None = None
    bytes: int = 0
    is_inferred: bool = False

    @property
    def row(self) -> int | None:
        """Index in the file of the first row, where that is known."""
        return self.task.record if self.piece is None else self.piece.row


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePlan:
    """One read of a source.

    Attributes
    ----------
    scan : ScanPlan
        Columns, partition values and filters; without tasks.
    file_format : Format or None
        How the files are read; None for TFRecord.
    found : pyarrow.Schema or None
        The columns that looking at files told; None where nothing had to be told.
    pieces : tuple of SourcePiece
        What there is to read, in order.
    """

    scan: ScanPlan
    file_format: Format | None
    found: pa.Schema | None
    pieces: tuple[SourcePiece, ...]

    def without_pieces(self) -> SourcePlan:
        """Return the plan as each worker needs it beside its one piece."""
        return replace(self, pieces=())


def plan_source(
    path: Paths,
    *,
    file_format: str,
    columns: Sequence[str] | None,
    schema: pa.Schema | None,
    filters: Filters,
    record_type: RecordType,
    on_corrupt: OnCorrupt,
    storage_options: Mapping[str, Any] | None,
) -> SourcePlan:
    """Plan the read of a source; see `tfrecord_io.conversion.convert` for the arguments.

    Raises
    ------
    TFRecordError, FileNotFoundError
        See `tfrecord_io.reading.plan.plan_scan`; `InferenceError` if files disagree about a column,
        `UnsupportedTypeError` if a file has two of one name, `OptionError` for a table with a log.
    """
    choice("on_corrupt", on_corrupt, OnCorrupt)
    if file_format == "tfrecord":
        scan = plan_scan(
            path,
            columns=columns,
            schema=schema,
            filters=filters,
            record_type=record_type,
            on_corrupt=on_corrupt,
            storage_options=storage_options,
            task_bytes=PIECE_BYTES,
        )
        return SourcePlan(
            scan=scan.without_tasks(),
            file_format=None,
            found=None,
            pieces=tuple(SourcePiece(task=task, bytes=task.bytes) for task in scan.tasks),
        )
    if on_corrupt != "raise":
        raise OptionError(
            f"on_corrupt is {on_corrupt!r}, and the source is {file_format}: damaged records can "
            "be left out of TFRecord files alone"
        )
    looking = _Looking(get_format(file_format))
    scan = plan_scan(
        path,
        columns=columns,
        schema=schema,
        filters=filters,
        storage_options=storage_options,
        file_format=file_format,
        look=looking.look,
    )
    _refuse_logs(path, scan)
    return SourcePlan(
        scan=scan.without_tasks(),
        file_format=looking.file_format,
        found=looking.found,
        pieces=tuple(looking.pieces(scan)),
    )


def _refuse_logs(path: Paths, scan: ScanPlan) -> None:
    """Raise `OptionError` for files not named one by one where a log says which of them count."""
    opened = [open_storage(one, scan.storage_options) for one in as_list(path)]
    storages = scan.storages()
    named = {root for _, root in opened}
    files = {task.file.path: storages[task.file.location] for task in scan.tasks}
    above: dict[Storage, set[str]] = {}
    for file, storage in files.items():
        if file not in named:
            above.setdefault(storage, set()).add(data_set_of(file.rpartition("/")[0]))
    for storage, root in opened:
        # Tables may have partitions in folders whose names do not say so.
        if root not in files:
            above.setdefault(storage, set()).add(root)
    for storage, folders in above.items():
        logs = [(folder, log) for folder in sorted(folders) for log in _LOGS]
        for folder, log in itertools.compress(logs, ask_each(storage, _has_log, logs)):
            raise OptionError(
                f"the source is a table whose log, {log!r}, says which of its files hold rows "
                "that were not changed or deleted since, and the log is not read: name these "
                "files, one by one, or convert a copy that the table's own software writes",
                path=storage.url(folder),
            )


def _has_log(storage: Storage, log: tuple[str, str]) -> bool:
    return storage.exists("/".join(log))


class _Looking:
    """Looks at the files of a scan, once at each."""

    def __init__(self, file_format: Format) -> None:
        self.file_format = file_format
        self.found: pa.Schema | None = None
        self._looks: dict[tuple[int, str], Look] = {}
        self._inferred: set[tuple[int, str]] = set()

    def look(self, scan: ScanPlan, files: Sequence[ScanFile]) -> pa.Schema:
        """Return the columns of files, in the order of first sight."""
        self._look_at(scan, files, None)
        self._inferred = {*self._looks}
        types: dict[str, pa.DataType] = {}
        seen_in: dict[str, str] = {}
        for file in files:
            schema = self._looks[file.key].schema
            refuse_twins(schema.names, schema.names, file.url)
            for field in schema:
                before = types.get(field.name)
                joined = field.type if before is None else _joined_type(before, field.type)
                if joined is None:
                    raise InferenceError(
                        f"column {field.name!r} is {before} in {seen_in[field.name]} and "
                        f"{field.type} in {file.url}; give a schema",
                        feature=field.name,
                    )
                if joined != before:
                    types[field.name], seen_in[field.name] = joined, file.url
        self.found = pa.schema(types)
        return self.found

    def pieces(self, scan: ScanPlan) -> Iterator[SourcePiece]:
        """Give the pieces of the files that a plan reads."""
        self._look_at(scan, [task.file for task in scan.tasks], scan.file_schema)
        for task in scan.tasks:
            is_inferred = task.file.key in self._inferred
            for piece in self._looks[task.file.key].pieces:
                yield SourcePiece(
                    task=task, piece=piece, bytes=piece.bytes, is_inferred=is_inferred
                )

    def _look_at(self, scan: ScanPlan, files: Sequence[ScanFile], schema: pa.Schema | None) -> None:
        storages = scan.storages()
        new = [file for file in files if file.key not in self._looks]

        def look(file: ScanFile) -> Look:
            opened = InputFile(storages[file.location], file)
            return self.file_format.look(opened, schema)

        for file, found in zip(new, each(look, new, _LOOKING_THREADS), strict=True):
            self._looks[file.key] = found


def _joined_type(before: pa.DataType, now: pa.DataType) -> pa.DataType | None:
    """Return the type that tells more, null telling nothing; None if they are no one type.

    Types of one normal form are one: dictionaries and texts, or texts of two libraries.
    """
    if before == now or pat.is_null(now):
        return before
    if pat.is_null(before):
        return now
    if _has_offsets(before) and _has_offsets(now):
        values = _joined_type(before.value_type, now.value_type)
        return None if values is None else pa.list_(values)
    with contextlib.suppress(UnsupportedTypeError):
        normal = normal_type(before)
        return normal if normal == normal_type(now) else None
    return None


def _has_offsets(t: pa.DataType) -> bool:
    return is_any_list(t) and not pat.is_fixed_size_list(t)


def read_piece(
    plan: SourcePlan, piece: SourcePiece, *, threads: int = 1
) -> Iterator[pa.RecordBatch | CorruptDataWarning]:
    """Read one piece.

    Parameters
    ----------
    plan : SourcePlan
        `SourcePlan.without_pieces` is enough.
    piece : SourcePiece
        One of its pieces.
    threads : int
        How many decode the frames of a TFRecord file.

    Yields
    ------
    pyarrow.RecordBatch or CorruptDataWarning
        Batches of the plan's schema, and what was left out.

    Raises
    ------
    DatasetChangedError
        The file is not the one that was planned, before it is read or after.
    TFRecordError
        What the format raises.
    """
    if plan.file_format is None or piece.piece is None:
        with contextlib.closing(decoding(plan.scan).run_all([piece.task], threads)) as tasks:
            yield from itertools.chain.from_iterable(tasks)
        return
    file = piece.task.file
    storage = open_storage(plan.scan.locations[file.location], plan.scan.storage_options)[0]
    opened = InputFile(storage, file)
    finish = Finisher(plan.scan, file)
    found = plan.found if piece.is_inferred else None
    batches = plan.file_format.read(opened, piece.piece, plan.scan.file_schema, found)
    for batch in conform(batches, plan.scan.file_schema, file.url, piece.piece.row):
        finished = finish(batch)
        if finished.num_rows:
            yield finished
    if not storage.checks_ranges:
        # A file may be cut short, or written anew, while it is read, and text and Avro do not tell
        # where they end.
        opened.open().close()
