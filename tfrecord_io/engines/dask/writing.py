"""A Dask frame as a data set: partition k is task k, and one commit makes all of it visible.

The graph has a node for each partition, which stages part files and returns what it staged. Any of
them may run twice, or be lost with its worker and run again: every attempt stages on its own, and
only what the results name is published.

Who begins and ends the job:

- With ``compute=True``, and by ``compute()`` of what ``compute=False`` returns, this process does:
  it begins the job before the graph runs, and commits, or aborts, when it has run. A scheduler that
  runs nodes again can do no harm.
- Where such an object is computed in another way (``dask.compute``, ``client.compute``, in a larger
  graph), a first node begins the job and a last one commits it. Should a scheduler run them again
  because their worker was lost with their results, nothing is published twice: with "error" the
  data set is there, "append" holds to the state that it was made for, "overwrite" replaces what is
  there. What such a graph has staged when it fails stays hidden; the next write to the target, or
  `clean`, removes it once the process that began it is gone.
"""

from __future__ import annotations

import functools
import itertools
import os
import secrets
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as pat
from dask.base import compute_as_if_collection
from dask.delayed import Delayed

from tfrecord_io.commit.job import (
    abort_job,
    aborted_by_errors,
    check_not_committing,
    check_state,
    commit_job,
)
from tfrecord_io.engines.dask.locations import check_dataframe, located
from tfrecord_io.engines.dask.workers import warnings_to_clients
from tfrecord_io.errors import (
    CommitError,
    OptionError,
    SchemaMismatchError,
    TFRecordError,
)
from tfrecord_io.layout import EmptyPartition
from tfrecord_io.manifest import read_manifest
from tfrecord_io.options import (
    BYTE_ARRAY_COLUMN,
    CodecName,
    Float64Mode,
    RecordType,
    SaveMode,
    flag,
    settings,
)
from tfrecord_io.plan import TaskCommit, WriteJob, WriteResult
from tfrecord_io.schema import leaf_type, list_depth
from tfrecord_io.storage import Storage, open_storage, path_text
from tfrecord_io.writing.attempt import write_task
from tfrecord_io.writing.plan import as_names, plan_write

if TYPE_CHECKING:
    import dask.dataframe as dd
    from dask.bag import Bag

#: Records of a bag that are encoded at a time.
_BAG_ROWS = 1024

#: The column in which Dask's shuffle notes where a row goes.
_TAKEN = "_partitions"

_BYTES_SCHEMA = pa.schema([pa.field(BYTE_ARRAY_COLUMN, pa.binary(), nullable=False)])


# --- the nodes of a graph -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """What a node staged.

    Attributes
    ----------
    job_id : str
        The job that it staged it for.
    commit : TaskCommit
        What it is.
    """

    job_id: str
    commit: TaskCommit


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A write that is yet to begin.

    Attributes
    ----------
    schema : pyarrow.Schema
        All columns.
    path : str
        The data set.
    options : mapping
        For `tfrecord_io.writing.plan.plan_write`.
    state : str or None
        The state that the data set must still be in, see
        `tfrecord_io.commit.job.check_not_committing`.
    """

    schema: pa.Schema
    path: str
    options: Mapping[str, Any] = field(repr=False)
    state: str | None = None

    def begin(self) -> WriteJob:
        """Begin a job.

        Raises
        ------
        CommitConflictError
            The data set is in another state.
        """
        check_state(*self._opened(), self.state)
        return replace(plan_write(self.schema, self.path, **self.options), state=self.state)

    def current_state(self) -> str:
        """Return the state that the data set is in."""
        return check_not_committing(*self._opened())

    def _opened(self) -> tuple[Storage, str]:
        return open_storage(self.path, self.options["storage_options"])


def write_partition(task_index: int, given: frozenset[str], job: WriteJob, part: Any) -> Staged:
    """Stage a partition: a pandas frame, or raw records; the caller gave types of some columns."""
    try:
        commit = write_task(job, task_index, _batches(job, part, given))
    except TFRecordError as error:
        if not isinstance(error, CommitError):
            error.what += f" (in partition {task_index} of the Dask frame)"
        raise
    return Staged(job_id=job.job_id, commit=commit)


def _batches(
    job: WriteJob, part: Any, given: frozenset[str]
) -> Iterator[pa.RecordBatch | pa.Table]:
    if job.record_type != "ByteArray" or _is_a(part, "pandas", "DataFrame"):
        from tfrecord_io.engines.dask.frames import to_table

        yield to_table(part, job.schema, given=given, partition_by=job.partition_by)
        return
    if not isinstance(part, Iterable):
        raise SchemaMismatchError(
            f"a partition is a {type(part).__name__}; it must be an iterable of bytes"
        )
    records = iter(part)
    while held := list(itertools.islice(records, _BAG_ROWS)):
        for record in held:
            if not isinstance(record, bytes | bytearray | memoryview):
                raise SchemaMismatchError(
                    f"a record is a {type(record).__name__}; raw records must be bytes"
                )
        yield pa.record_batch([pa.array(held, pa.binary())], schema=job.schema)


def commit_staged(job: WriteJob, staged: Sequence[Staged]) -> WriteResult:
    """Publish what the nodes of a graph staged."""
    if any(one.job_id != job.job_id for one in staged):
        abort_job(job)
        raise CommitError(
            "the worker that began this write was lost when some of it was staged; nothing was "
            "written: compute it again",
            path=job.url,
        )
    with warnings_to_clients():
        return commit_job(job, [one.commit for one in staged])


# --- the graph ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A write of partitions that a graph makes.

    Attributes
    ----------
    target : Target
        Where they go.
    graph : mapping
        What makes them.
    parts : sequence
        Their keys in it.
    name : str
        What the keys of this write end in.
    given : frozenset of str
        See `tfrecord_io.engines.dask.frames.to_table`.
    """

    target: Target
    graph: Mapping[Any, Any]
    parts: Sequence[Any]
    name: str
    given: frozenset[str]

    def _nodes(self, begun: Any) -> tuple[dict[Any, Any], str, list[tuple[str, int]]]:
        begin = f"begin-tfrecord-{self.name}"
        graph = {**self.graph, begin: begun}
        writes = []
        for index, part in enumerate(self.parts):
            key = (f"write-tfrecord-{self.name}", index)
            graph[key] = (functools.partial(write_partition, index, self.given), begin, part)
            writes.append(key)
        return graph, begin, writes

    def run(self, **kwargs: Any) -> WriteResult:
        """Compute and commit; this process owns the job."""
        job = self.target.begin()
        if job.skip:
            return WriteResult()
        with aborted_by_errors(job):
            graph, _, writes = self._nodes(job)
            staged = compute_as_if_collection(Delayed, graph, writes, **kwargs)
        return commit_job(job, [one.commit for one in staged])

    def delayed(self) -> DelayedWrite:
        """Return an object whose computation is the write."""
        graph, begin, writes = self._nodes((self.target.begin,))
        commit = f"commit-tfrecord-{self.name}"
        graph[commit] = (commit_staged, begin, writes)
        return DelayedWrite(commit, graph, self)


class DelayedWrite(Delayed):  # type: ignore[misc]
    """A write that is done when it is computed; its value is a `tfrecord_io.WriteResult`."""

    __slots__ = ("_write",)

    def __init__(self, key: str, graph: Mapping[Any, Any], write: Write) -> None:
        super().__init__(key, graph)
        self._write = write

    def compute(self, **kwargs: Any) -> WriteResult:
        """Write; what is raised leaves the target as it was."""
        _check_waiting(kwargs)
        return self._write.run(**kwargs)


# --- what users call ------------------------------------------------------------------------------


def to_tfrecord(
    df: dd.DataFrame | Bag | Iterable[Delayed],
    path: str | os.PathLike[str],
    *,
    partition_on: str | Sequence[str] | None = None,
    append: bool = False,
    overwrite: bool = False,
    mode: SaveMode | None = None,
    write_index: bool | None = None,
    schema: pa.Schema | Mapping[str, pa.DataType] | str = "infer",
    record_type: RecordType = "Example",
    compression: str | None = None,
    compression_level: int | None = None,
    max_records_per_file: int | None = None,
    repartition_on: str | Sequence[str] | None = None,
    float64: Float64Mode = "warn",
    empty_partition: EmptyPartition = "error",
    codec: CodecName = "auto",
    storage_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
    compute: bool = True,
    compute_kwargs: Mapping[str, Any] | None = None,
    name_function: None = None,
) -> WriteResult | Delayed:
    """Write a Dask DataFrame as a data set of TFRecord files.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The rows; partition k makes the files ``part-{k}-...``. With ``record_type="ByteArray"``
        also a Dask bag of bytes, or Delayed objects that each hold an iterable of bytes.
    path : str or path-like
        The target folder; a local path or URL.
    partition_on : str or sequence of str, optional
        Columns that become ``key=value`` folders, outermost first, and stand in no record.
    append, overwrite : bool
        Add to the data that are there, or replace them once all is written. Else an existing target
        is refused.
    mode : {"error", "overwrite", "append", "ignore", "overwrite_partitions"}, optional
        Says the same, and more, instead of `append` and `overwrite`; see
        `tfrecord_io.writing.plan.plan_write`.
    write_index : bool, optional
        Whether the index becomes a column in front, or one for each of its levels. By default it
        does if it has a name or several levels; one of times or text without a name is warned of.
    schema : pyarrow.Schema, dict of str to pyarrow.DataType, or "infer"
        Types of all columns, or of some, to which values are converted that are the same there.
        Those of the others are what the frame's dtypes say; of dtype object, what the data have
        that rows are added to, or else what the values of the first partitions say, which are
        computed for that.
    record_type : {"Example", "SequenceExample", "ByteArray"}
        What a row becomes.
    compression, compression_level, max_records_per_file
        See `tfrecord_io.write_table`.
    repartition_on : str or sequence of str, optional
        Shuffle first, so that rows with the same values of these columns stand in one partition:
        with the same `partition_on`, each folder gets one file.
    float64, empty_partition, codec
        See `tfrecord_io.write_table`.
    storage_options : mapping, optional
        For the fsspec file system.
    filesystem : fsspec.AbstractFileSystem, optional
        The file system itself, instead of `storage_options`; `path` is a path in it.
    compute : bool
        Whether to write now, or return a Delayed that writes when it is computed.
    compute_kwargs : mapping, optional
        For Dask, such as ``{"scheduler": "processes"}`` or ``{"retries": 2}``.
    name_function : None
        Files cannot be named by the caller.

    Returns
    -------
    WriteResult or dask.delayed.Delayed
        What was written, or what gives it when it is computed.

    Raises
    ------
    OptionError, UnsupportedTypeError, InferenceError, LayoutError, DatasetExistsError
        What was asked for is not possible. Nothing was written, nothing but a look at columns of
        dtype object was computed.
    SchemaMismatchError, EncodeError
        A value cannot be written; names the column and the partition. Nothing was written.
    TFRecordError
        See `tfrecord_io.write_table`. The target is as it was, unless it is a
        `CommitStateUnknownError`.

    Warns
    -----
    PrecisionWarning
        Once, with all columns whose values were narrowed to float32.
    TFRecordWarning
        An index of times or text has no name, and is left out.

    Notes
    -----
    What is written is what `tfrecord_io.write_table` would write of the same rows, on every
    scheduler. A NaN in a NumPy column is a missing value, and so a null. Data that the frame itself
    is read from can be overwritten: they stay until all is staged.

    An append that is delayed is one append: it is refused, with nothing written, once the data set
    has changed since it was made, so that a computation that is repeated cannot add rows twice.

    Examples
    --------
    >>> import dask.dataframe as dd
    >>> import pandas as pd
    >>> import tfrecord_io as tfr
    >>> frame = dd.from_pandas(pd.DataFrame({"x": [1, 2, 3]}), npartitions=2)
    >>> tfr.to_tfrecord(frame, "memory://dask-write-example").files
    2
    """
    if name_function is not None:
        raise OptionError(
            "name_function cannot be given: names of files are fixed, so that equal writes give "
            "equal data sets on every engine"
        )
    for name, value in (("append", append), ("overwrite", overwrite), ("compute", compute)):
        flag(name, value)
    if write_index is not None:
        flag("write_index", write_index)
    kwargs = settings(compute_kwargs, "compute_kwargs")
    _check_waiting(kwargs)
    located_path, storage = located(path, filesystem, storage_options)
    target = Target(
        schema=_BYTES_SCHEMA,
        path=path_text(located_path),
        options={
            "partition_by": () if partition_on is None else as_names(partition_on),
            "mode": _mode(mode, append=append, overwrite=overwrite),
            "record_type": record_type,
            "compression": compression,
            "compression_level": compression_level,
            "max_records_per_file": max_records_per_file,
            "float64": float64,
            "codec": codec,
            "storage_options": storage,
            "empty_partition": empty_partition,
        },
    )
    given: frozenset[str] = frozenset()
    if _is_a(df, "dask.dataframe", "DataFrame"):
        given = _names_in(schema)
        target, graph, parts = _of_frame(df, target, schema, write_index, repartition_on, kwargs)
    else:
        graph, parts = _of_records(df, record_type)
        if schema != "infer" or repartition_on is not None or write_index is not None:
            raise OptionError(
                "schema, write_index and repartition_on are for data frames; raw records have none"
            )
    write = Write(
        target=target,
        graph=graph,
        parts=parts,
        name=secrets.token_hex(16),
        given=given,
    )
    if compute:
        return write.run(**kwargs)
    return replace(write, target=_tried(target)).delayed()


def _check_waiting(kwargs: Mapping[str, Any]) -> None:
    """Raise `OptionError` for arguments of Dask that make a computation return at once."""
    if kwargs.get("asynchronous") or not kwargs.get("sync", True):
        raise OptionError(
            "sync=False and asynchronous=True make Dask return futures, and a write is committed "
            "when all of it is there; give compute=False, and what returns to client.compute"
        )


def _mode(mode: SaveMode | None, *, append: bool, overwrite: bool) -> SaveMode:
    if append + overwrite + (mode is not None) > 1:
        raise OptionError("append, overwrite and mode say the same; give one of them")
    if mode is not None:
        return mode
    return "append" if append else "overwrite" if overwrite else "error"


def _tried(target: Target) -> Target:
    """Return a target that was found to be possible, as it is for any process at any time."""
    job = target.begin()
    abort_job(job)
    absolute = replace(target, path=job.url)
    if job.mode != "append":
        return absolute
    return replace(absolute, state=absolute.current_state())


def _is_a(value: object, module: str, name: str) -> bool:
    """Return whether a value is of a class; whoever has one has loaded its module."""
    found = sys.modules.get(module)
    return found is not None and isinstance(value, getattr(found, name))


def _of_frame(
    df: Any,
    target: Target,
    schema: Any,
    write_index: bool | None,
    repartition_on: str | Sequence[str] | None,
    kwargs: Mapping[str, Any],
) -> tuple[Target, Mapping[Any, Any], Sequence[Any]]:
    """Return the target with its schema, the graph of a frame and the keys of its partitions."""
    check_dataframe()
    from tfrecord_io.engines.dask.columns import declared_types, look, with_index
    from tfrecord_io.pandas_columns import check_names

    frame = with_index(df, write_index)
    check_names(list(frame.columns))
    types = declared_types(frame, schema)
    undeclared = [name for name, t in types.items() if t is None]
    types |= _types_of_data(target, undeclared)
    unknown = [name for name in undeclared if _is_unknown(types[name])]
    if unknown:
        # What is wrong anyhow is told before anything is computed. Text may stand everywhere.
        guess = {name: pa.string() if t is None else t for name, t in types.items()}
        try:
            _tried(replace(target, schema=pa.schema(list(guess.items()))))
        except SchemaMismatchError as error:
            # Of files that no manifest describes one was looked at, and the guess is wrong.
            if error.feature not in unknown:
                raise
        types |= look(frame[unknown], kwargs)
    found = schema if isinstance(schema, pa.Schema) else pa.schema(list(types.items()))
    if repartition_on is not None:
        frame = _shuffled(frame, repartition_on, found)
    frame = frame.optimize()
    return replace(target, schema=found), dict(frame.__dask_graph__()), frame.__dask_keys__()


def _shuffled(frame: Any, repartition_on: str | Sequence[str], schema: pa.Schema) -> Any:
    """Return a frame with rows of the same values in one partition."""
    on = list(as_names(repartition_on))
    missing = [name for name in on if name not in schema.names]
    if missing or not on:
        raise OptionError(
            f"repartition_on is {repartition_on!r}; the frame has the columns {schema.names}"
        )
    for name in on:
        if list_depth(schema.field(name).type):
            raise OptionError(
                f"repartition_on names column {name!r}, and pandas cannot shuffle by lists; give a "
                "column of plain values"
            )
    if _TAKEN in schema.names:
        raise OptionError(
            f"repartition_on is given, and Dask's shuffle takes the column {_TAKEN!r} for its own; "
            "rename it"
        )
    booleans = [name for name in on if str(frame.dtypes[name]) == "bool[pyarrow]"]
    if booleans:
        # Of Arrow's, pandas (2.3.3) hashes those beside nulls unlike others.
        frame = frame.astype(dict.fromkeys(booleans, "boolean"))
    # Of Dask's ways to shuffle the one whose rows come in the same order each time.
    return frame.shuffle(on=on, ignore_index=True, shuffle_method="tasks")


def _types_of_data(target: Target, names: Sequence[str]) -> dict[str, pa.DataType]:
    """Return the types of some columns in a data set that rows are added to, as far as known."""
    if not names or target.options["mode"] not in ("append", "overwrite_partitions"):
        return {}
    manifest = read_manifest(*open_storage(target.path, target.options["storage_options"]))
    schemas = () if manifest is None else (manifest.schema, manifest.partition_schema)
    return {field.name: field.type for schema in schemas for field in schema if field.name in names}


def _is_unknown(t: pa.DataType | None) -> bool:
    return t is None or pat.is_null(leaf_type(t))


def _names_in(schema: Any) -> frozenset[str]:
    """Return the columns whose types a schema says, in any of its forms."""
    if isinstance(schema, pa.Schema):
        return frozenset(schema.names)
    return frozenset(schema) if isinstance(schema, Mapping) else frozenset()


def _of_records(df: Any, record_type: RecordType) -> tuple[Mapping[Any, Any], Sequence[Any]]:
    """Return the graph of raw records and the keys of its partitions."""
    if _is_a(df, "dask.bag", "Bag"):
        delayed = df.to_delayed()
    elif isinstance(df, Iterable) and not hasattr(df, "__dask_graph__"):
        delayed = list(df)
    else:
        delayed = [df]
    if not delayed or not all(isinstance(one, Delayed) for one in delayed):
        raise OptionError(
            f"df is a {type(df).__name__}; it must be a Dask DataFrame, or a bag or Delayed "
            f"objects of raw records; {_advice(df, delayed)}"
        )
    if record_type != "ByteArray":
        raise OptionError(
            f"raw records are written with record_type='ByteArray', and it is {record_type!r}; "
            "rows become a frame by dd.from_delayed, those of a bag by its to_dataframe"
        )
    graph: dict[Any, Any] = {}
    seen: set[int] = set()
    for one in delayed:
        # Those of a bag share their graph.
        if id(one.dask) not in seen:
            seen.add(id(one.dask))
            graph.update(one.dask)
    return graph, [one.key for one in delayed]


def _advice(df: Any, delayed: Sequence[Any]) -> str:
    """Return how something else is written."""
    if _is_a(df, "dask.dataframe", "Series"):
        return "use df.to_frame()"
    if hasattr(df, "to_dask_dataframe"):
        return "use df.to_dask_dataframe()"
    if any(_is_a(one, "distributed", "Future") for one in delayed):
        return "from_delayed of dask.dataframe and of dask.bag takes futures"
    return "write_table writes what is in memory"
