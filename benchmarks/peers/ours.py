"""tfrecord-io: its codec over a mapped file, and its functions from path to table."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
from arrow_values import add_batch, batches
from checks import Checked
from workloads import DATA, Column, Workload

import tfrecord_io
from peers import Case
from tfrecord_io import compute_statistics, infer_schema, read_table, scan, write_table
from tfrecord_io.cast import ToWire
from tfrecord_io.codec import get_codec
from tfrecord_io.codec.base import BatchEncoder
from tfrecord_io.options import DecodeOptions
from tfrecord_io.schema import wire_schema

VERSIONS = {"tfrecord-io": tfrecord_io.__version__, "pyarrow": pa.__version__}

_CODEC = get_codec("native")
#: So little stays in a cache, and so many bytes at once make the call cheap.
_ROOM_BYTES = 1 << 20
_LEAVES = {"int64": pa.int64(), "float": pa.float32(), "bytes": pa.binary()}


def _type(column: Column) -> pa.DataType:
    leaf = pa.string() if column.is_text else _LEAVES[column.kind]
    if column.shape == "one":
        return leaf
    return pa.list_(pa.list_(leaf)) if column.shape == "steps" else pa.list_(leaf)


def record_schema(workload: Workload) -> pa.Schema:
    """Return the natural schema of a workload."""
    return pa.schema([(c.name, _type(c)) for c in workload.columns])


def _with_views(schema: pa.Schema) -> pa.Schema:
    views = {pa.binary(): pa.binary_view(), pa.string(): pa.string_view()}
    return pa.schema([f.with_type(views.get(f.type, f.type)) for f in schema])


def _decode(workload: Workload, schema: pa.Schema, data: pa.Buffer) -> pa.Table:
    """Frames in memory to a table, batch by batch with the default sizes of a batch."""
    decoder = _CODEC.decoder(schema, DecodeOptions(record_type=workload.record_type))
    out = []
    position = 0
    while position < data.size:
        consumed = decoder.decode(data, position)
        position += consumed
        batch = decoder.flush()
        if not consumed and not batch.num_rows:
            raise ValueError("the file does not end at the end of a record")
        out.append(batch)
    return pa.Table.from_batches(out, schema)


def _observe(workload: Workload, data: pa.Buffer) -> object:
    observer = _CODEC.observer(DecodeOptions(record_type=workload.record_type))
    if observer.observe(data) != data.size:
        raise ValueError("the file does not end at the end of a record")
    return observer.result()


def _copy(data: np.ndarray, threads: int) -> Checked:
    """Copy all bytes to memory that is there already, and do nothing else."""

    def work(share: np.ndarray, room: np.ndarray) -> None:
        for start in range(0, len(share), len(room)):
            piece = share[start : start + len(room)]
            np.copyto(room[: len(piece)], piece)

    rooms = [np.ones(_ROOM_BYTES, np.uint8) for _ in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, np.array_split(data, threads), rooms))
    return Checked()


def _drain(read: Callable[[], Iterable[pa.RecordBatch]]) -> None:
    for _ in read():
        pass


class _Encoding:
    """Batches to framed records, casts to wire types included; outputs are dropped one by one."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._schema = record_schema(workload)
        self._to_wire = ToWire(self._schema, float64="warn")

    @functools.cached_property
    def _batches(self) -> list[pa.RecordBatch]:
        return list(batches(self._workload))

    def _encoder(self) -> BatchEncoder:
        wire = wire_schema(self._schema, reading=False)
        return _CODEC.encoder(wire, self._workload.record_type)

    def _encode(self, encoder: BatchEncoder, batch: pa.RecordBatch) -> pa.Buffer:
        wire, _ = self._to_wire(batch)
        return encoder.encode(wire)[0]

    def run(self) -> None:
        encoder = self._encoder()
        for batch in self._batches:
            self._encode(encoder, batch)

    def check(self) -> Checked:
        encoder = self._encoder()
        out = Checked(payload_bytes=0)
        for batch in self._batches:
            data = self._encode(encoder, batch)
            out.payload_bytes += data.size - 16 * batch.num_rows
            for decoded in _decode(self._workload, self._schema, data).to_batches():
                add_batch(out, self._workload, decoded)
        return out


class _Writing:
    """A table to a data set: part file, manifest, and all that a commit does."""

    def __init__(
        self, workload: Workload, compression: str | None = None, threads: int = 1
    ) -> None:
        self._workload = workload
        self._compression = compression
        self._threads = threads
        self._target = DATA / f"{workload.name}-written"

    @functools.cached_property
    def _table(self) -> pa.Table:
        return pa.Table.from_batches(list(batches(self._workload)))

    def run(self) -> None:
        shutil.rmtree(self._target, ignore_errors=True)
        write_table(
            self._table,
            self._target,
            record_type=self._workload.record_type,
            compression=self._compression,
            threads=self._threads,
        )

    def check(self) -> Checked:
        self.run()
        read = read_table(self._target, record_type=self._workload.record_type)
        out = _check(self._workload, read.to_batches())
        if self._compression is None:
            parts = sum(part.stat().st_size for part in Path(self._target).glob("part-*"))
            out.payload_bytes = parts - 16 * out.rows
        shutil.rmtree(self._target)
        return out


def _check(workload: Workload, read: Iterable[pa.RecordBatch]) -> Checked:
    out = Checked()
    for batch in read:
        add_batch(out, workload, batch)
    return out


def cases(workload: Workload) -> dict[str, Case]:
    """Return what is measured of tfrecord-io."""
    schema = record_schema(workload)
    data = pa.memory_map(str(workload.path)).read_buffer()
    size = data.size
    type_ = workload.record_type

    def reading(path: Path, schema: pa.Schema) -> Case:
        table = functools.partial(read_table, path, schema=schema, record_type=type_, threads=1)
        return Case(table, lambda: _check(workload, table().to_batches()), size)

    def tables(schema: pa.Schema) -> dict[str, Case]:
        codec = functools.partial(_decode, workload, schema, data)
        return {
            "decode": Case(codec, lambda: _check(workload, codec().to_batches()), size),
            "read_table": reading(workload.path, schema),
        }

    def writing(compression: str | None, threads: int) -> Case:
        found = _Writing(workload, compression, threads)
        return Case(found.run, found.check, size)

    def infer_checked(names: Callable[[], list[str]]) -> Checked:
        if sorted(names()) != sorted(schema.names):
            raise ValueError(f"the columns {names()} were inferred of {schema.names}")
        return Checked()

    def observed() -> list[str]:
        return [feature.name for feature in _observe(workload, data).features]

    def summed_up() -> Checked:
        return Checked(rows=statistics().rows)

    statistics = functools.partial(
        compute_statistics, workload.path, schema=schema, record_type=type_, threads=1
    )
    infer = functools.partial(infer_schema, workload.path, record_type=type_, threads=1)
    stream = functools.partial(scan, workload.path, schema=schema, record_type=type_, threads=1)
    out = {
        **tables(schema),
        **{f"{name}_views": case for name, case in tables(_with_views(schema)).items()},
        "scan": Case(lambda: _drain(stream), lambda: _check(workload, stream()), size),
        "observe": Case(
            functools.partial(_observe, workload, data), lambda: infer_checked(observed), size
        ),
        "infer_schema": Case(infer, lambda: infer_checked(lambda: infer().names), size),
        "statistics": Case(statistics, summed_up, size),
        "frames": Case(
            lambda: _CODEC.frames(data, check_payload=True),
            lambda: Checked(rows=len(_CODEC.frames(data, check_payload=True)[1])),
            size,
        ),
    }
    two = pa.schema([schema.field(name) for name in workload.checked[:2]])
    out |= {f"{name}_two": case for name, case in tables(two).items()}
    encoding = _Encoding(workload)
    out["encode"] = Case(encoding.run, encoding.check, size)
    out["write_table"] = writing(None, 1)
    out["read_table_gzip"] = reading(workload.gzip_path, schema)
    for threads, name in (1, "one"), (2, "two"):
        out[f"write_table_gzip_{name}"] = writing("gzip", threads)
    large_data = np.frombuffer(pa.memory_map(str(workload.large_path)).read_buffer(), np.uint8)
    for threads in (1, 2):
        arguments = {"schema": schema, "record_type": type_, "threads": threads}
        whole = functools.partial(read_table, workload.large_path, **arguments)
        streamed = functools.partial(scan, workload.large_path, **arguments)
        large = size * workload.large_repeats
        out[f"read_table_{threads}"] = Case(
            whole, lambda read=whole: _check(workload, read().to_batches()), large
        )
        out[f"scan_{threads}"] = Case(
            lambda read=streamed: _drain(read),
            lambda read=streamed: _check(workload, read()),
            large,
        )
        copy = functools.partial(_copy, large_data, threads)
        out[f"copy_{threads}"] = Case(copy, copy, large)
    return out
