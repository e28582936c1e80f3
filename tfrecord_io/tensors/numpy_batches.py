"""Batches of a data set as dicts of arrays: NumPy's, PyTorch's or JAX's.

`tfrecord_io.tensors.rows` decides which rows, `tfrecord_io.tensors.columns` which types.
"""

from __future__ import annotations

import hashlib
import importlib
import pickle
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfrecord_io.errors import MissingDependencyError, OptionError, UnsupportedTypeError
from tfrecord_io.filters import Filters
from tfrecord_io.options import OnCorrupt, RecordType, choice, not_negative
from tfrecord_io.plan import ScanTask
from tfrecord_io.reading.files import Paths
from tfrecord_io.tensors.columns import TensorColumn, taken_apart, tensor_columns
from tfrecord_io.tensors.rows import RowStream, plan_rows

Framework = Literal["numpy", "torch", "jax"]


class Ragged(NamedTuple):
    """Lists of any length, one for each row.

    Row ``i`` is ``values[row_splits[i]:row_splits[i + 1]]``, as in tf.RaggedTensor.

    Attributes
    ----------
    values : array or Ragged
        The values of all rows; of lists of lists a `Ragged` itself.
    row_splits : array of int64
        One more than there are rows.
    """

    values: Any
    row_splits: Any


class Batches:
    """Batches of a data set; each time it is gone through is an epoch.

    `tfrecord_io.batches` makes it. ``len()`` is there where the number of rows is known. Iterators
    have ``state_dict()`` and ``load_state_dict(state)``, for going on in the middle of an epoch.
    """

    def __init__(
        self, stream: RowStream, columns: Sequence[TensorColumn], framework: Framework
    ) -> None:
        self._stream = stream
        self._columns = tuple(columns)
        self._framework = framework
        self._epoch = 0

    def __iter__(self) -> Epoch:
        epoch, self._epoch = self._epoch, self._epoch + 1
        return Epoch(self, epoch)

    def __len__(self) -> int:
        count = self._stream.batch_count
        if count is None:
            raise TypeError("how many rows there are is not known before all are read")
        return count

    @property
    def epoch(self) -> int:
        """Number of the next epoch, on which the order hangs."""
        return self._epoch

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch is next.

        Parameters
        ----------
        epoch : int
            Its number, 0-based.

        Raises
        ------
        OptionError
            There is no such epoch.
        """
        not_negative("epoch", epoch)
        self._epoch = int(epoch)

    def of_worker(self, index: int, count: int) -> Batches:
        """Return the share of one of several workers: no row is in two of them.

        Parameters
        ----------
        index, count : int
            Which worker, 0-based, of how many.

        Returns
        -------
        Batches
            At the same epoch.

        Raises
        ------
        OptionError
            There is no such worker.
        """
        mine = Batches(self._stream.of_worker(index, count), self._columns, self._framework)
        mine.set_epoch(self._epoch)
        return mine

    def _from(self, epoch: int, seed: int, first: int) -> Generator[dict[str, Any], None, None]:
        """Give the batches of an epoch from the `first` on; none is made of the rows before it."""
        convert = _CONVERSIONS[self._framework]()
        stream = replace(self._stream, seed=seed)
        size = stream.batch_size
        left_out = first * size
        for block in stream.blocks(epoch):
            for start in range(min(left_out, block.num_rows), block.num_rows, size):
                batch = block.slice(start, size)
                yield {
                    column.name: _arrays(batch.column(index), column, convert)
                    for index, column in enumerate(self._columns)
                }
            left_out -= min(left_out, block.num_rows)


class Epoch(Iterator[dict[str, Any]]):
    """The batches of one epoch; its state says how far it is, so that another one may go on there.

    torchdata's StatefulDataLoader asks for it by these names.
    """

    def __init__(self, batches: Batches, epoch: int) -> None:
        self._batches = batches
        stream = batches._stream
        # Made once: a StatefulDataLoader asks for the state behind each batch.
        self._kind = {
            "batch_size": stream.batch_size,
            "shuffle": stream.shuffled_rows,
            "shard": list(stream.shard),
            "filters": _text_of(stream.plan.filter),
            "pieces": len(stream.plan.tasks),
            "cuts": _cuts_of(stream.plan.tasks),
            "bytes": sum(task.bytes for task in stream.plan.tasks),
        }
        self._begin(epoch, stream.seed, 0)

    def _begin(self, epoch: int, seed: int, given: int) -> None:
        self._epoch, self._seed, self._given = epoch, seed, given
        self._source = self._batches._from(epoch, seed, given)

    def __next__(self) -> dict[str, Any]:
        batch = next(self._source)
        self._given += 1
        return batch

    def close(self) -> None:
        """Stop reading ahead."""
        self._source.close()

    def state_dict(self) -> dict[str, Any]:
        """Return how far this epoch is: a dict of numbers, text and lists of numbers.

        Returns
        -------
        dict
            Seed and epoch are in it, and what must be the same where it is loaded.
        """
        return {"epoch": self._epoch, "seed": self._seed, "given": self._given, **self._kind}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on behind the batches that another iterator gave; the next epoch is the one after its.

        Parameters
        ----------
        state : mapping
            From `state_dict`, of the same filters, batch size, shuffling and shard or worker, and
            of the same files: so many pieces and bytes. Large files must be cut at the same places,
            so a schema is given to both or to none, and a manifest is there for both. Rows of
            batches that were given are read again, as they may share a file with the others.

        Raises
        ------
        OptionError
            The state is of other batches, or is none.
        """
        if not isinstance(state, Mapping):
            raise OptionError(
                f"the state is a {type(state).__name__}; it must be what state_dict() returned"
            )
        for name, value in self._kind.items():
            if name not in state or state[name] != value:
                raise OptionError(
                    f"the state is of batches with {name} {state.get(name)!r}, and here it is "
                    f"{value!r}: where another epoch was in them is not known"
                )
        for name in ("epoch", "seed", "given"):
            not_negative(f"{name} of the state", state.get(name))
        self.close()
        self._batches.set_epoch(state["epoch"] + 1)
        self._begin(state["epoch"], state["seed"], state["given"])


def _cuts_of(tasks: Sequence[ScanTask]) -> str:
    """Return a short text that tells where the pieces of files begin."""
    starts = repr([task.start for task in tasks])
    return hashlib.sha256(starts.encode()).hexdigest()[:16]


#: What Arrow's text of many values, which shows some of them, has in its middle.
_LEFT_OUT = "\n  ...\n"


def _text_of(row_filter: pc.Expression | None) -> str:
    text = str(row_filter)
    if _LEFT_OUT not in text:
        return text
    return f"{text} {hashlib.sha256(pickle.dumps(row_filter)).hexdigest()}"


_Convert = Callable[[Any, TensorColumn], Any]


def _arrays(array: pa.Array, column: TensorColumn, convert: _Convert) -> Any:
    lengths, leaves = taken_apart(array, column)
    values = leaves.to_numpy(zero_copy_only=False)
    if not values.flags.writeable:
        # Arrow's memory is not for writing, and frameworks expect that they may.
        values = values.copy()
    if column.inner is not None:
        values = values.reshape(-1, column.inner)
    made = convert(values, column)
    for counts in reversed(lengths):
        splits = np.concatenate(([0], np.cumsum(counts)))
        made = Ragged(made, convert(splits, column))
    return made


def _to_numpy() -> _Convert:
    return lambda values, column: values


def _to_torch() -> _Convert:
    torch = _framework("torch")

    def convert(values: Any, column: TensorColumn) -> Any:
        # A tensor holds no text.
        return values.tolist() if values.dtype == object else torch.from_numpy(values)

    return convert


def _to_jax() -> _Convert:
    jax = _framework("jax")

    def convert(values: Any, column: TensorColumn) -> Any:
        made = jax.numpy.asarray(values, jax.dtypes.canonicalize_dtype(values.dtype))
        lost = np.asarray(made) != values
        if values.dtype.kind == "f":
            # Whole numbers may have been integers; other doubles become what the records hold.
            lost &= values == np.trunc(values)
        if lost.any():
            raise UnsupportedTypeError(
                f"column {column.name!r} has values that {made.dtype} does not hold; have JAX use "
                "64 bits: jax.config.update('jax_enable_x64', True)",
                feature=column.name,
            )
        return made

    return convert


def _framework(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingDependencyError(f"framework={name!r} needs {name}; install it") from error


_CONVERSIONS: dict[str, Callable[[], _Convert]] = {
    "numpy": _to_numpy,
    "torch": _to_torch,
    "jax": _to_jax,
}


def batches(
    path: Paths,
    *,
    batch_size: int,
    columns: Sequence[str] | None = None,
    shuffle: bool | int = False,
    seed: int | None = None,
    drop_remainder: bool = False,
    shard: tuple[int, int] | None = None,
    framework: Framework = "numpy",
    defaults: Mapping[str, Any] | None = None,
    schema: pa.Schema | None = None,
    filters: Filters = None,
    record_type: RecordType = "Example",
    compression: str | None = "infer",
    on_corrupt: OnCorrupt = "raise",
    storage_options: Mapping[str, Any] | None = None,
    threads: int | None = None,
) -> Batches:
    """Read a data set as batches of arrays, for training.

    Parameters
    ----------
    path : str, path-like or a list of them
        See `read_table`.
    batch_size : int
        Rows of one batch.
    columns : list of str, optional
        The columns to read; partition columns may be among them.
    shuffle : bool or int
        Whether rows come in random order: files (pieces of 16 MiB of large ones) do, and rows are
        mixed in a buffer of this many; True means 65,536.
    seed : int, optional
        Makes the order reproducible; each epoch has another one.
    drop_remainder : bool
        Whether a last batch with fewer rows is left out.
    shard : tuple of (int, int), optional
        (index, count): read every count-th file (or piece of a large one), from the index-th on.
        Together the shards have every row once; a compressed file is in one shard as a whole.
    framework : {"numpy", "torch", "jax"}
        Whose arrays the batches hold.
    defaults : mapping, optional
        By column of single values or of fixed-size lists, what stands for null: a value, or a list.
    schema, filters, record_type, compression, on_corrupt, storage_options
        See `read_table`.
    threads : int, optional
        How many decode, the caller's thread among them while it waits for a batch; one for each
        core without it, shared between workers (`Batches.of_worker`). With 1, nothing is read
        ahead.

    Returns
    -------
    Batches
        An iterable of dicts, by column: an array of one value, or one fixed-size list, for each
        row, or a `Ragged` for lists. Text is an object array of str, bytes one of bytes; in torch
        both are lists.
        Dates, times, timestamps and durations are the integers that the file holds, decimals
        float64. In JAX 64 bits become 32, unless its ``jax_enable_x64`` is on. Each iteration over
        it is an epoch.

    Raises
    ------
    SchemaMismatchError
        While iterating: a null in a column of single values or fixed-size lists, without a default.
    UnsupportedTypeError
        A column of which no record has a value, or of fixed-size lists of no values; text or bytes
        with framework="jax", whose arrays hold none. While iterating: an integer that JAX's arrays
        do not hold.
    MissingDependencyError
        The framework is not installed.
    OptionError
        A wrong argument.
    FileNotFoundError, TFRecordError
        See `read_table`. What is wrong with a record is raised after the whole batches before it,
        or, with `shuffle`, at once.

    Examples
    --------
    >>> import pyarrow as pa
    >>> import tfrecord_io as tfr
    >>> table = pa.table({"x": [1, 2, 3], "tags": [[1], [], [2, 3]]})
    >>> _ = tfr.write_table(table, "memory://batches-example")
    >>> for batch in tfr.batches("memory://batches-example", batch_size=2):
    ...     print(batch["x"], batch["tags"].row_splits)
    [1 2] [0 1 1]
    [3] [0 2]
    """
    choice("framework", framework, Framework)
    stream = plan_rows(
        path,
        batch_size=batch_size,
        columns=columns,
        shuffle=shuffle,
        seed=seed,
        drop_remainder=drop_remainder,
        shard=shard,
        schema=schema,
        filters=filters,
        record_type=record_type,
        compression=compression,
        on_corrupt=on_corrupt,
        storage_options=storage_options,
        threads=threads,
    )
    found = tensor_columns(stream.plan.schema, defaults)
    if framework != "numpy":
        _framework(framework)
    name = next((column.name for column in found if column.is_bytes), None)
    if framework == "jax" and name is not None:
        raise UnsupportedTypeError(
            f"column {name!r} holds text or bytes, and JAX has no such arrays: leave it out "
            "with columns",
            feature=name,
        )
    return Batches(stream, found, framework)
