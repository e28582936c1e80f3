"""One task of a write: batches to staged part files.

`write_task` runs wherever an engine puts it. It splits rows by partition value (rows of one value
keep their order) and stages files in a folder of its own, so attempts at one task never meet. What
it writes depends on the rows alone, never on the sizes of the batches. `tfrecord_io.commit.job`
makes the files visible.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from tfrecord_io.arrow_take import take_rows
from tfrecord_io.arrow_views import without_dictionary_views
from tfrecord_io.commit.file_staging import note_path
from tfrecord_io.commit.staging import Staging
from tfrecord_io.compression import Map
from tfrecord_io.errors import CommitError, EncodeError, LimitExceededError, SchemaMismatchError
from tfrecord_io.layout import format_part_path, format_segments
from tfrecord_io.parallel import each
from tfrecord_io.plan import StagedFile, TaskCommit, WriteJob
from tfrecord_io.schema import is_any_list, normal_type
from tfrecord_io.storage import Sink, open_storage
from tfrecord_io.writing.part_writer import FileWriter, file_format

#: Batches larger than this are cut before they are encoded.
_PIECE_BYTES = 16 * 1024 * 1024

#: All files of a task together hold no more than about this much in memory.
_BUFFER_BYTES = 64 * 1024 * 1024


def write_task(
    job: WriteJob,
    task_index: int,
    batches: Iterable[pa.RecordBatch | pa.Table],
    *,
    row_offset: int = 0,
    map_pieces: Map = map,
) -> TaskCommit:
    """Stage the part files of one task.

    Parameters
    ----------
    job : WriteJob
        Of `plan_write`.
    task_index : int
        Which task, 0-based: the order of the rows in the data set is the order of the tasks.
    batches : iterable of pyarrow.RecordBatch or pyarrow.Table
        The task's rows, with the columns of the job's schema in any order.
    row_offset : int
        Number of the task's first row, for errors.
    map_pieces : callable
        Calls what compresses the pieces of a file, as `map` does or on several threads; what is
        written does not depend on it.

    Returns
    -------
    TaskCommit
        For `tfrecord_io.commit.job.commit_job`. Without rows there are no files.

    Raises
    ------
    EncodeError, LimitExceededError, LayoutError, SchemaMismatchError
        A batch cannot be written; what this attempt staged is removed.
    CommitError
        The job was aborted meanwhile.
    """
    attempt = _Attempt(job, task_index, map_pieces)
    rows = row_offset
    try:
        for batch in () if job.skip else _record_batches(batches):
            for piece in _pieces(batch):
                attempt.write(piece, rows)
                rows += piece.num_rows
        return attempt.commit()
    except BaseException:
        attempt.discard()
        raise


def _record_batches(batches: Iterable[pa.RecordBatch | pa.Table]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from batch.to_batches() if isinstance(batch, pa.Table) else (batch,)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch into pieces of about `_PIECE_BYTES`."""
    size = sum(map(_decoded_bytes, batch.columns))
    count = max(1, min(batch.num_rows, -(-size // _PIECE_BYTES)))
    rows = max(1, -(-batch.num_rows // count))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def _decoded_bytes(array: pa.Array) -> int:
    """Return about how many bytes an array takes where no value stands for several rows."""
    t = array.type
    if not len(array):
        return 0
    if isinstance(t, pa.BaseExtensionType):
        return _decoded_bytes(array.storage)
    if pat.is_dictionary(t):
        return _mean_bytes(array.dictionary) * len(array)
    if pat.is_list_view(t) or pat.is_large_list_view(t):
        return _mean_bytes(array.values) * (pc.sum(array.sizes).as_py() or 0)
    if pat.is_string_view(t) or pat.is_binary_view(t):
        # Each view has 16 bytes and begins with the length: columnar format, "Variable-size Binary
        # View Layout".
        views = np.frombuffer(array.buffers()[1], np.int32, 4 * len(array), 16 * array.offset)
        return 16 * len(array) + int(views[::4].sum(dtype=np.int64))
    if is_any_list(t):
        return 8 * len(array) + _decoded_bytes(array.flatten())
    return int(array.nbytes)


def _mean_bytes(values: pa.Array) -> int:
    return -(-_decoded_bytes(values) // len(values)) if len(values) else 0


class _Folder:
    """The files of one partition folder of a task."""

    __slots__ = ("file_index", "rows", "sink", "writer")

    def __init__(self) -> None:
        self.file_index = -1
        self.rows = 0
        self.sink: Sink | None = None
        self.writer: FileWriter | None = None


class _Attempt:
    """One attempt at one task."""

    def __init__(self, job: WriteJob, task_index: int, map_pieces: Map) -> None:
        self._job = job
        self._task_index = task_index
        self._storage, self._root = open_storage(job.url, job.storage_options)
        self._name = f"{task_index:05d}-{secrets.token_hex(4)}"
        self._job_folder = Staging(self._storage, self._root).job_folder(job.job_id)
        self._folder = f"{self._job_folder}/{self._name}"
        self._format = file_format(job, map_pieces)
        self._data_names = job.data_schema.names
        self._folders: dict[str, _Folder] = {}
        self._files: list[StagedFile] = []
        self._sinks: list[Sink] = []
        self._inexact: set[str] = set()

    def write(self, batch: pa.RecordBatch, row_offset: int) -> None:
        """Add a batch's rows to the files of their folders."""
        self._check_columns(batch)
        data = batch.select(self._data_names)
        prepared, inexact = self._format.prepare(data, row_offset)
        self._inexact |= inexact
        for path, rows, order in _split(batch, prepared, self._job, row_offset):
            self._write_rows(path, rows, row_offset, order)
        self._bound_buffers()

    def _check_columns(self, batch: pa.RecordBatch) -> None:
        expected = self._job.schema
        if sorted(batch.schema.names) != sorted(expected.names):
            raise SchemaMismatchError(
                f"a batch has the columns {batch.schema.names}, and {expected.names} are declared, "
                "by the schema or by the first batch: give each batch those, nulls where it has "
                "no values"
            )
        for name in self._job.partition_by:
            t = normal_type(batch.schema.field(name).type)
            if not pat.is_null(t) and t != expected.field(name).type:
                raise SchemaMismatchError(
                    f"partition column {name!r} has the type {t} in this batch, and "
                    f"{expected.field(name).type} is declared: cast it, or declare {t}",
                    feature=name,
                )

    @contextlib.contextmanager
    def _telling_of_aborts(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise CommitError(
                "the job of this task was aborted, or cleaned away; nothing is written",
                path=self._storage.url(self._job_folder),
            ) from None

    def _write_rows(
        self, path: str, rows: pa.RecordBatch, row_offset: int, order: pa.Array | None
    ) -> None:
        folder = self._folders.setdefault(path, _Folder())
        start = 0
        while start < rows.num_rows:
            writer = folder.writer or self._open(path, folder)
            limit = self._job.max_records_per_file
            part = rows.slice(start, None if limit is None else limit - folder.rows)
            try:
                with self._telling_of_aborts():
                    writer.write(part)
            except (EncodeError, LimitExceededError) as error:
                raise _with_true_row(error, start, row_offset, order) from error
            start += part.num_rows
            folder.rows += part.num_rows
            if folder.rows == self._job.max_records_per_file:
                self._files += self._close(path, folder)

    def _open(self, path: str, folder: _Folder) -> FileWriter:
        folder.file_index += 1
        folder.rows = 0
        if not self._sinks:
            with self._telling_of_aborts():
                self._storage.make_folder(self._folder)
        staged = f"{self._folder}/{len(self._sinks):06d}"
        if self._job.file is not None:
            final, note = self._job.file, note_path(self._root, self._name)
        else:
            index = self._task_index + self._job.first_task_index
            part = format_part_path(path, index, folder.file_index, self._format.extension)
            final, note = f"{self._root}/{part}", None
        folder.sink = self._storage.create_sink(staged, final, note)
        self._sinks.append(folder.sink)
        folder.writer = self._format.open(folder.sink)
        return folder.writer

    def _close(self, path: str, folder: _Folder) -> Iterator[StagedFile]:
        """Make a folder's file whole, and give it, if there is one."""
        if folder.writer is None:
            return
        with self._telling_of_aborts():
            written = folder.writer.close()
        folder.writer = folder.sink = None
        yield StagedFile(
            staged=written.staged.removeprefix(f"{self._job_folder}/"),
            folder=path,
            file_index=folder.file_index,
            extension=self._format.extension,
            bytes=written.bytes,
            rows=written.rows,
            marks=written.marks,
        )

    def _bound_buffers(self) -> None:
        sinks = [folder.sink for folder in self._folders.values() if folder.sink is not None]
        if sum(sink.buffered for sink in sinks) > _BUFFER_BYTES:
            for sink in sinks:
                sink.spill()

    def commit(self) -> TaskCommit:
        """Close all files and say what was staged."""
        # Each file waits for the store to have it for good; they wait together.
        concurrency = self._storage.close_concurrency
        for files in each(lambda item: [*self._close(*item)], self._folders.items(), concurrency):
            self._files += files
        if self._files:
            self._storage.sync_folders([self._folder, self._job_folder])
        files = sorted(self._files, key=lambda file: (file.folder, file.file_index))
        return TaskCommit(
            task_index=self._task_index,
            files=tuple(files),
            inexact_columns=tuple(sorted(self._inexact)),
        )

    def discard(self) -> None:
        """Remove what was staged; whatever stays goes with the job's folder."""
        for sink in self._sinks:
            sink.discard()
        if self._sinks:
            with contextlib.suppress(OSError):
                self._storage.remove_tree(self._folder)


def _with_true_row(
    error: EncodeError | LimitExceededError, start: int, row_offset: int, order: pa.Array | None
) -> EncodeError | LimitExceededError:
    """Return an encoder's error with the row as the caller counts it."""
    if error.row is None:
        return error
    row = start + error.row
    return type(error)(
        error.what,
        feature=error.feature,
        row=row_offset + (row if order is None else order[row].as_py()),
    )


def _split(
    batch: pa.RecordBatch, prepared: pa.RecordBatch, job: WriteJob, row_offset: int
) -> Iterator[tuple[str, pa.RecordBatch, pa.Array | None]]:
    """Give the rows of each partition folder.

    Yields
    ------
    folder : str
        Its path; empty without partition columns.
    rows : pyarrow.RecordBatch
        The rows of `prepared` that belong in it, in their order.
    order : pyarrow.Array or None
        Their indices in `prepared`; None if these are all rows.
    """
    if not job.partition_by:
        yield "", prepared, None
        return
    folders, codes = _folders(batch, job, row_offset)
    if len(folders) == 1:
        yield folders[0], prepared, None
        return
    # Arrow's sort of indices is stable, so rows of one folder keep their order.
    order = pc.sort_indices(codes)
    runs = pc.run_end_encode(codes.take(order))
    sorted_rows = take_rows(prepared, order)
    start = 0
    for code, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        length = end - start
        yield folders[code], sorted_rows.slice(start, length), order.slice(start, length)
        start = end


def _folders(batch: pa.RecordBatch, job: WriteJob, row_offset: int) -> tuple[list[str], pa.Array]:
    """Return the folders of a batch's rows, and which of them is each row's.

    Each is named once: names for every row may have no room in one array.
    """
    folders = [""]
    codes = pa.repeat(0, batch.num_rows)
    for name in job.partition_by:
        values = _normal_column(batch, name, job.schema.field(name).type)
        if values.dictionary.null_count and not job.schema.field(name).nullable:
            null = values.dictionary.is_null().index(True).as_py()
            raise EncodeError(
                f"column {name!r} is declared not nullable and holds a null",
                feature=name,
                row=row_offset + values.indices.index(null).as_py(),
            )
        segments = format_segments(name, values.dictionary, empty_partition=job.empty_partition)
        # Two values may have one name.
        encoded = pa.array(segments, pa.string()).dictionary_encode()
        names = encoded.dictionary.to_pylist()
        within = encoded.indices.take(values.indices)
        pairs = pc.add(pc.multiply(codes.cast(pa.int64()), len(names)), within).dictionary_encode()
        above = [divmod(pair, len(names)) for pair in pairs.dictionary.to_pylist()]
        folders = [f"{folders[folder]}/{names[index]}" for folder, index in above]
        codes = pairs.indices
    return [folder.removeprefix("/") for folder in folders], codes


def _normal_column(batch: pa.RecordBatch, name: str, t: pa.DataType) -> pa.DictionaryArray:
    values = batch.column(name)
    if isinstance(values.type, pa.BaseExtensionType):
        values = values.storage
    if pat.is_null(normal_type(values.type)):
        zeros = pa.array([0] * len(values), pa.int32())
        return pa.DictionaryArray.from_arrays(zeros, pa.nulls(1, t))
    values = without_dictionary_views(values).cast(t)
    if pat.is_float16(t):
        # Of halves pyarrow makes dictionaries since version 26 only.
        encoded = values.cast(pa.float32()).dictionary_encode(null_encoding="encode")
        return encoded.cast(pa.dictionary(pa.int32(), t))
    return values.dictionary_encode(null_encoding="encode")
