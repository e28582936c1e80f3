"""TFRecord files as a Dask frame.

The plan is made when the frame is: a listing, the manifest, and, where nothing describes the files,
a look at their records on threads of this process. A partition is a run of tasks of that plan:
large files are cut at record boundaries (`tfrecord_io.reading.boundaries`), small ones put
together.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from tfrecord_io.engines.dask.locations import check_dataframe, located
from tfrecord_io.engines.dask.workers import warnings_to_clients
from tfrecord_io.errors import OptionError, SchemaMismatchError
from tfrecord_io.filters import Filters
from tfrecord_io.options import CodecName, Limits, OnCorruptRows, RecordType, positive
from tfrecord_io.plan import DEFAULT_BATCH_ROWS, ScanPlan, ScanTask
from tfrecord_io.reading.cuts import packed
from tfrecord_io.reading.files import Paths
from tfrecord_io.reading.plan import plan_scan, projected
from tfrecord_io.reading.tasks import read_task, read_tasks
from tfrecord_io.records.index_files import described_by
from tfrecord_io.schema import schema_without_views
from tfrecord_io.storage import open_storage, redact

if TYPE_CHECKING:
    import dask.dataframe as dd
    import pandas as pd

    from tfrecord_io.engines.dask.frames import DtypeBackend

#: Bytes of files that make a partition, unless the caller says another number.
DEFAULT_BLOCKSIZE = "128 MiB"

_PATH_COLUMN = "path"


#: What stands for the rows of a partition: tasks, and numbers of rows that nobody needs.
Group: TypeAlias = tuple[ScanTask | int, ...]


class Partitions(Sequence[Group]):
    """The tasks of each partition, which Dask need not look through to name its own tasks."""

    __slots__ = ("_groups", "_token")

    def __init__(self, groups: Sequence[Group]) -> None:
        self._groups = tuple(groups)
        digest = hashlib.sha256()
        marks: object = None
        for group in self._groups:
            for task in group:
                told: object = task
                if isinstance(task, ScanTask):
                    file = task.file
                    # The reader's name tells the locations.
                    told = file.location, file.path, file.version, *task[1:]
                    if file.marks is not marks:
                        # Where records start may be told wrong. A large file has many, once.
                        marks = file.marks
                        digest.update(f"{marks!r}".encode())
                digest.update(f"{told!r},".encode())
            digest.update(b"|")
        self._token = digest.hexdigest()

    @overload
    def __getitem__(self, index: int) -> Group: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Group, ...]: ...
    def __getitem__(self, index: Any) -> Any:
        return self._groups[index]

    def __len__(self) -> int:
        return len(self._groups)

    def __dask_tokenize__(self) -> str:
        return self._token


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Reader:
    """Reads a partition.

    Attributes
    ----------
    plan : ScanPlan
        Without tasks.
    dtype_backend : {"pyarrow", "numpy_nullable"} or None
        See `read_tfrecord`.
    arrow_strings : bool
        See `tfrecord_io.engines.dask.frames.types_mapper`.
    limit : int or None
        Most rows that anybody wants of a partition.
    """

    plan: ScanPlan
    dtype_backend: DtypeBackend
    arrow_strings: bool
    limit: int | None = None

    def __call__(self, group: Group, columns: Sequence[str]) -> pd.DataFrame:
        """Return the rows of tasks, each at the place that it has in the partition."""
        plan = self.plan
        if list(columns) != plan.schema.names:
            plan = projected(plan, columns)
        tasks = _tasks(group)
        with warnings_to_clients():
            batches = list(_limited(plan, tasks, self.limit))
        frame = self.frame(pa.Table.from_batches(batches, plan.schema))
        if len(tasks) < len(group):
            frame.index = _places(group)
        return frame

    def __repr__(self) -> str:
        return f"Reader({', '.join(map(redact, self.plan.locations))})"

    def frame(self, table: pa.Table) -> pd.DataFrame:
        """Return a table with the dtypes that were asked for.

        Raises
        ------
        SchemaMismatchError
            A time or date that would be one of Python's is none; an integer that would be a float,
            beside a null, is none.
        """
        try:
            return self._frame(table)
        except ValueError as error:
            field = next((one for one in table.schema if not self._fits(table, one.name)), None)
            if field is None:
                raise
            raise SchemaMismatchError(
                f"column {field.name!r} is {field.type}, and the dtypes of "
                f"dtype_backend={self.dtype_backend!r} cannot hold a value: {error}; take "
                "dtype_backend='pyarrow', or leave the column out",
                feature=field.name,
            ) from error

    def _frame(self, table: pa.Table) -> pd.DataFrame:
        from tfrecord_io.engines.dask.frames import types_mapper, with_plain_bytes

        if self.dtype_backend is None:
            for column in table.columns:
                if pat.is_integer(column.type) and column.null_count:
                    # pandas would round what this refuses.
                    column.cast(pa.float64())
        if self.dtype_backend != "pyarrow":
            table = with_plain_bytes(table)
        return table.to_pandas(
            types_mapper=types_mapper(self.dtype_backend, arrow_strings=self.arrow_strings),
            ignore_metadata=True,
            use_threads=False,
        )

    def _fits(self, table: pa.Table, name: str) -> bool:
        try:
            self._frame(table.select([name]))
        except ValueError:
            return False
        return True

    def rows_of(self, group: Group) -> int | None:
        """Return how many rows a partition has, if that is known without reading."""
        return self._sum(task.rows for task in _tasks(group))

    def rows_of_all(self, partitions: Partitions) -> int | None:
        """Return how many rows all partitions have, if that is known without reading."""
        # A file that is listed twice is read twice: its first task stands there twice.
        tasks = itertools.chain.from_iterable(map(_tasks, partitions))
        return self._sum(task.file.rows for task in tasks if task.start == 0)

    def _sum(self, counts: Iterable[int | None]) -> int | None:
        """Return the sum of rows, unless one is not known, or some of the rows are left out."""
        plan = self.plan
        if plan.filter is not None or plan.options.on_corrupt != "raise" or self.limit is not None:
            return None
        total = 0
        for count in counts:
            if count is None:
                return None
            total += count
        return total

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        plan = self.plan
        schemas = [one.serialize().to_pybytes() for one in (plan.schema, plan.file_schema)]
        described = (
            *(plan.locations, sorted(map(repr, plan.storage_options.items()))),
            # The text of an expression leaves out what is long.
            *(schemas, pickle.dumps(plan.filter), plan.options),
            # What a manifest that is gone by now had told.
            *(sorted(plan.rounded), sorted(plan.written.items())),
            *(self.dtype_backend, self.arrow_strings, self.limit),
        )
        return type(self).__name__, hashlib.sha256(repr(described).encode()).hexdigest()


def _tasks(group: Group) -> list[ScanTask]:
    return [task for task in group if isinstance(task, ScanTask)]


def _places(group: Group) -> pd.Index:
    """Return the index of the rows of a group whose tasks all tell how many rows they have."""
    import pandas as pd

    places, row = [np.arange(0)], 0
    for task in group:
        rows = task if isinstance(task, int) else task.rows or 0
        if isinstance(task, ScanTask):
            places.append(np.arange(row, row + rows))
        row += rows
    return pd.Index(np.concatenate(places))


def _limited(
    plan: ScanPlan, tasks: Sequence[ScanTask], limit: int | None
) -> Iterator[pa.RecordBatch]:
    if limit is None:
        with contextlib.closing(read_tasks(plan, tasks)) as streams:
            yield from itertools.chain.from_iterable(streams)
        return
    rows = 0
    for batch in itertools.chain.from_iterable(read_task(plan, task) for task in tasks):
        yield batch.slice(0, limit - rows)
        rows += batch.num_rows
        if rows >= limit:
            return


def read_tfrecord(
    path: Paths,
    *,
    columns: str | Sequence[str] | None = None,
    filters: Filters = None,
    schema: pa.Schema | None = None,
    record_type: RecordType = "Example",
    compression: str | None = "infer",
    blocksize: int | str | None = DEFAULT_BLOCKSIZE,
    index: str | os.PathLike[str] | None = None,
    on_corrupt: OnCorruptRows = "raise",
    corrupt_column: str | None = None,
    include_path_column: bool | str = False,
    dtype_backend: DtypeBackend = "pyarrow",
    storage_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
    codec: CodecName = "auto",
    limits: Limits | None = None,
    batch_rows: int = DEFAULT_BATCH_ROWS,
    memory_map: bool = True,
    sample_files: int | None = None,
) -> dd.DataFrame | dd.Series:
    """Read TFRecord files as a Dask DataFrame.

    Parameters
    ----------
    path : str, path-like or a list of them
        Folders (read with all below them), files, or patterns; see `tfrecord_io.read_table`.
    columns : str, list or array of str, optional
        The columns to read, in this order; a string gives a Series. What is chosen of the frame
        later is pushed down just as well.
    filters : list of tuple, list of list of tuple, or pyarrow.compute.Expression, optional
        Keep the rows for which it is true, see `tfrecord_io.read_table`. Files whose partition
        values exclude them are not opened.
    schema : pyarrow.Schema, optional
        Columns and types; a view is read as the plain type. Without it, those that tfrecord-io
        recorded when it wrote the data set; for other files, those that all records are seen to
        have, for which all of them are read.
    record_type : {"Example", "SequenceExample", "ByteArray"}
        What a record's payload is. ByteArray gives one column, ``byteArray``.
    compression : str or None
        See `tfrecord_io.read_table`.
    blocksize : int, str or None
        Bytes of files that make a partition, such as ``"64 MiB"``. Larger uncompressed files are
        cut where records start, smaller files put together. None makes each file a partition.
    index : str or path-like, optional
        The index files of the data (`tfrecord_io.write_index`), which say where records start in
        files that no manifest describes; in the same storage. Only those of files that are to be
        cut are read.
    on_corrupt : {"raise", "skip_record", "skip_file", "keep"}
        What becomes of damaged files, see `tfrecord_io.read_table`. Files are cut only where damage
        is raised.
    corrupt_column : str, optional
        With "keep", name of a column that holds the damaged bytes.
    include_path_column : bool or str
        Whether a last column says which file a row is from; True names it ``path``.
    dtype_backend : {"pyarrow", "numpy_nullable"} or None
        Arrow's dtypes, which keep every type; pandas' nullable ones; or, with None, NumPy's, in
        which integers with nulls become floats, and booleans with nulls, lists and bytes become
        objects. Only of NumPy's does Dask make arrays of numbers (``to_dask_array``), and only of
        Arrow's no DatetimeIndex. A time that is no whole microsecond, or a date beyond the year
        9999, is an error with all but Arrow's; with None, so is an integer beyond 2**53 in a
        partition with nulls.
    storage_options : mapping, optional
        For the fsspec file system.
    filesystem : fsspec.AbstractFileSystem, optional
        The file system itself, instead of `storage_options`; `path` is a path in it.
    codec : {"auto", "native", "reference"}
        Which codec decodes, see `tfrecord_io.codec.get_codec`.
    limits, batch_rows, memory_map, sample_files
        See `tfrecord_io.read_table`.

    Returns
    -------
    dask.dataframe.DataFrame or Series
        Rows in the order of the files and of the records in them; partition columns last. An
        index counts the rows of each partition; divisions are not known.

    Raises
    ------
    FileNotFoundError, TFRecordError
        See `tfrecord_io.read_table`; an `OptionError` if the `index` is not there. What is wrong
        with a record is raised when it is computed.
    MissingDependencyError
        dask.dataframe cannot be imported.

    Warns
    -----
    CorruptDataWarning, InferenceWarning
        See `tfrecord_io.read_table`; on a cluster, the clients warn.

    Notes
    -----
    No records are read before something is computed where a manifest or a schema says what they
    hold. Where records start in a large file is known from its manifest, or from the look at its
    records for the schema. Else each process finds out, as it needs it, by hopping from header to
    header from the beginning: several GB a second from the page cache, but over a network as slow
    as reading.

    Examples
    --------
    >>> import pyarrow as pa
    >>> import tfrecord_io as tfr
    >>> _ = tfr.write_table(pa.table({"x": [1, 2, 3]}), "memory://dask-read-example")
    >>> frame = tfr.read_tfrecord("memory://dask-read-example")
    >>> len(frame), int(frame["x"].sum().compute())
    (3, 6)
    """
    check_dataframe()
    from dask.dataframe.utils import clear_known_categories, pyarrow_strings_enabled

    from tfrecord_io.engines.dask.expression import make_collection

    if dtype_backend not in ("pyarrow", "numpy_nullable", None):
        raise OptionError(
            f"dtype_backend is {dtype_backend!r}; it must be 'pyarrow', 'numpy_nullable' or None"
        )
    if index is not None and not isinstance(index, str | os.PathLike):
        raise OptionError(f"index is {index!r}; it must be the path of the data's index files")
    block = _block_bytes(blocksize)
    urls, options = located(path, filesystem, storage_options)
    located_index = "" if index is None else located(index, filesystem, storage_options)[0]
    if index is not None:
        storage, root = open_storage(located_index, options)
        if not storage.exists(root):
            # Files that need not be cut would not miss it.
            raise OptionError(
                f"index is {os.fspath(index)!r}, and there are no index files; to have a column as "
                "the index, call set_index on the frame"
            )
    if not isinstance(include_path_column, bool | str):
        raise OptionError(
            f"include_path_column is {include_path_column!r}; it must be True, False or a name"
        )
    if include_path_column is True:
        include_path_column = _PATH_COLUMN
    columns = getattr(columns, "tolist", lambda: columns)()
    plan = plan_scan(
        urls,
        columns=[columns] if isinstance(columns, str) else columns,
        # Neither pandas nor Dask can work on views.
        schema=schema_without_views(schema) if isinstance(schema, pa.Schema) else schema,
        filters=filters,
        record_type=record_type,
        compression=compression,
        on_corrupt=on_corrupt,
        corrupt_column=corrupt_column,
        path_column=include_path_column or None,
        storage_options=options,
        codec=codec,
        limits=limits,
        batch_rows=batch_rows,
        memory_map=memory_map,
        sample_files=sample_files,
        task_bytes=block,
        cut_unmarked=True,
        describe=None if index is None else described_by(located_index, options),
    )
    reader = Reader(
        plan=plan.without_tasks(),
        dtype_backend=dtype_backend,
        arrow_strings=pyarrow_strings_enabled(),
    )
    # Dask wants one partition at least.
    partitions = Partitions(packed(plan.tasks, block) or [()])
    # Each partition has the categories of its own rows: Dask knows none of them.
    meta = clear_known_categories(reader.frame(plan.schema.empty_table()))
    frame = make_collection(reader, partitions, meta)
    return frame[columns] if isinstance(columns, str) else frame


def _block_bytes(blocksize: int | str | None) -> int | None:
    if isinstance(blocksize, str):
        from dask.utils import parse_bytes

        try:
            blocksize = int(parse_bytes(blocksize))
        except (ValueError, OverflowError):
            raise OptionError(
                f"blocksize is {blocksize!r}; give bytes, a text such as '64 MiB', or None"
            ) from None
    if blocksize is not None:
        positive("blocksize", blocksize)
    return blocksize
