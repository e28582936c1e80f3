"""Measures reading, writing, committing and planning on S3 and HDFS against their own clients.

Starts the servers of the tests, on this machine. Everything of one line is measured in one run, a
round of each in turn; the best round counts. Prints a table in Markdown, and writes the numbers to
``stores.json`` in the folder of the benchmarks' data.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import fsspec
import memory
import numpy as np
import pyarrow as pa
from workloads import DATA

import tfrecord_io as tfr
from tests.support.servers import Server, serve_hdfs, serve_s3
from tfrecord_io.commit.job import commit_job
from tfrecord_io.reading.plan import plan_scan
from tfrecord_io.writing.attempt import write_task
from tfrecord_io.writing.plan import plan_write

IMAGE_BYTES = 20_000
FILE_ROWS = 1_600
PARALLEL = 4
PART_BYTES = 8 * 1024 * 1024


class Store:
    """A server, and its own client's way to do things."""

    def __init__(self, server: Server) -> None:
        self.options = server.storage_options
        self.url = server.url
        self.filesystem, root = fsspec.core.url_to_fs(server.url, **self.options)
        self.root = root.rstrip("/")
        self.is_s3 = server.url.startswith("s3:")

    def put(self, path: str, data: bytes) -> None:
        more = {"chunksize": PART_BYTES} if self.is_s3 else {}
        self.filesystem.pipe_file(path, data, **more)

    def get(self, path: str) -> int:
        return len(self.filesystem.cat_file(path))

    def put_all(self, folder: str, files: dict[str, bytes]) -> None:
        self.filesystem.makedirs(folder, exist_ok=True)
        with ThreadPoolExecutor(PARALLEL) as pool:
            list(pool.map(self.put, [f"{folder}/{name}" for name in files], files.values()))

    def get_all(self, paths: Sequence[str]) -> int:
        with ThreadPoolExecutor(PARALLEL) as pool:
            return sum(pool.map(self.get, paths))

    def remove(self, folder: str) -> None:
        self.filesystem.invalidate_cache()
        with contextlib.suppress(FileNotFoundError):
            self.filesystem.rm(folder, recursive=True)

    @contextlib.contextmanager
    def counted(self) -> Iterator[list[int]]:
        """Count the calls that the client makes."""
        count = [0]
        if self.is_s3:
            owner: Any = type(self.filesystem)
            names = ["_call_s3"]
        else:
            owner = type(self.filesystem.client)
            names = ["get_file_info", "list_status", "mkdirs", "create", "rename", "delete", "read"]

        def counting(call: Callable[..., Any]) -> Callable[..., Any]:
            def run(*args: Any, **kwargs: Any) -> Any:
                count[0] += 1
                return call(*args, **kwargs)

            return run

        before = {name: getattr(owner, name) for name in names}
        for name, call in before.items():
            setattr(owner, name, counting(call))
        try:
            yield count
        finally:
            for name, call in before.items():
                setattr(owner, name, call)


def best(rounds: int, *works: Callable[[], object]) -> list[float]:
    """Return the seconds of each work's best round."""
    seconds = [float("inf")] * len(works)
    for _ in range(rounds):
        for index, work in enumerate(works):
            start = time.perf_counter()
            work()
            seconds[index] = min(seconds[index], time.perf_counter() - start)
    return seconds


def images(files: int) -> pa.Table:
    rows = files * FILE_ROWS
    noise = np.random.default_rng(7).bytes(rows * IMAGE_BYTES)
    offsets = pa.py_buffer(np.arange(0, (rows + 1) * IMAGE_BYTES, IMAGE_BYTES, np.int64))
    column = pa.Array.from_buffers(pa.large_binary(), rows, [None, offsets, pa.py_buffer(noise)])
    return pa.table({"image": column, "label": pa.array(range(rows))})


@dataclass(frozen=True, kw_only=True)
class Line:
    """One result.

    Attributes
    ----------
    ratio, target : float
        What counts, and what it is to reach.
    at_least : bool
        Whether the ratio is to be `target` or more; else `target` or less.
    """

    what: str
    shown: str
    ratio: float
    target: float
    at_least: bool = False

    @property
    def is_reached(self) -> bool:
        return self.ratio >= self.target if self.at_least else self.ratio <= self.target


def measure_rates(store: Store, files: int, rounds: int) -> Iterator[Line]:
    table = images(files)
    with tempfile.TemporaryDirectory() as folder:
        tfr.write_table(table, f"{folder}/ds", rows_per_task=FILE_ROWS)
        written = sorted(Path(folder, "ds").glob("part-*"))
        data = {path.name: path.read_bytes() for path in written}
    size = sum(map(len, data.values())) / 1e6
    each = size / len(data)
    url, own = f"{store.url}/rates", f"{store.root}/own"

    def write_ours() -> None:
        tfr.write_table(
            table,
            url,
            rows_per_task=FILE_ROWS,
            mode="overwrite",
            storage_options=store.options,
        )

    mine, theirs = best(rounds, write_ours, lambda: store.put_all(own, data))
    yield rate(f"write {len(data)} files of {each:.0f} MB", size, mine, theirs)
    paths = [f"{own}/{name}" for name in data]
    schema = tfr.infer_schema(url, storage_options=store.options)

    def check(rows: int) -> None:
        if rows != table.num_rows:
            raise SystemExit(f"{rows} rows were read of {table.num_rows}")

    def read_ours() -> None:
        batches = tfr.scan(url, schema=schema, storage_options=store.options)
        check(sum(batch.num_rows for batch in batches))

    def count_ours() -> None:
        # The data set without its manifest, which knows the number.
        check(tfr.count_rows(f"{url}/part-*", storage_options=store.options))

    mine, counted, theirs = best(rounds, read_ours, count_ours, lambda: store.get_all(paths))
    yield rate("read: scan", size, mine, theirs)
    yield rate("read: count_rows", size, counted, theirs)
    store.remove(f"{store.root}/rates")
    store.remove(own)


def rate(what: str, size: float, mine: float, theirs: float) -> Line:
    shown = f"{size / mine:.0f} MB/s, the client's own {size / theirs:.0f}: {theirs / mine:.0%}"
    return Line(what=what, shown=shown, ratio=theirs / mine, target=0.8, at_least=True)


def measure_commit(store: Store, files: int) -> Line:
    table = pa.table({"x": [1]})

    def commit(name: str, tasks: int) -> tuple[float, int]:
        job = plan_write(table.schema, f"{store.url}/{name}", storage_options=store.options)
        with ThreadPoolExecutor(8) as pool:
            commits = list(pool.map(lambda index: write_task(job, index, [table]), range(tasks)))
        start = time.perf_counter()
        with store.counted() as count:
            commit_job(job, commits)
        return time.perf_counter() - start, count[0]

    # What a file more costs; a commit without any takes some calls as well.
    few = files // 2
    _, calls_of_few = commit("few", few)
    seconds, calls = commit("many", files)
    calls_per_file = (calls - calls_of_few) / (files - few)
    shown = f"{seconds:.2f} s, {calls} calls, {calls_per_file:.2f} for each file more"
    return Line(what=f"commit of {files} part files", shown=shown, ratio=calls_per_file, target=2)


def measure_memory(store: Store, partitions: int) -> Line:
    """Measure the writer's memory while a task has a file open in each of many partitions."""
    rows = 3 * partitions
    batches = 60
    noise = np.random.default_rng(3)

    def stream() -> Iterator[pa.RecordBatch]:
        for _ in range(batches):
            payload = pa.array([noise.bytes(2_000) for _ in range(rows)])
            keys = pa.array(np.arange(rows) % partitions)
            yield pa.record_batch({"key": keys, "payload": payload})

    # What clients load when they are first used is not the writer's.
    tfr.write_table(pa.table({"x": [1]}), f"{store.url}/warm", storage_options=store.options)
    store.remove(f"{store.root}/warm")
    schema = pa.schema([("key", pa.int64()), ("payload", pa.binary())])
    url, options = f"{store.url}/open", store.options
    job = plan_write(schema, url, partition_by="key", storage_options=options)
    before = memory.reset_peak()
    commit_job(job, [write_task(job, 0, stream())])
    held = (memory.peak_bytes() - before) / 2**20
    store.remove(f"{store.root}/open")
    written = batches * rows * 2_000 / 2**20
    return Line(
        what=f"memory with {partitions} open partitions",
        shown=f"{held:.0f} MiB more than before, for {written:.0f} MiB of rows in one task",
        ratio=held,
        target=192,
    )


def measure_planning(store: Store | None, files: int, rounds: int) -> Iterator[Line]:
    names = [f"part-{index:05d}-000.tfrecord" for index in range(files)]
    schema = pa.schema([("x", pa.int64())])
    with contextlib.ExitStack() as stack:
        if store is None:
            options: dict[str, Any] = {}
            url = stack.enter_context(tempfile.TemporaryDirectory())
            for name in names:
                Path(url, name).write_bytes(b"")
        else:
            options, url = store.options, f"{store.url}/plan"
            store.put_all(f"{store.root}/plan", dict.fromkeys(names, b""))
        filesystem, root = fsspec.core.url_to_fs(url, **options)

        def check(count: int) -> None:
            if count != files:
                raise SystemExit(f"{count} files were found of {files}")

        def listing(ask: Callable[..., Any], path: str) -> None:
            filesystem.invalidate_cache()
            check(len(ask(path, detail=True)))

        def plan(path: str | list[str]) -> None:
            check(len(plan_scan(path, schema=schema, storage_options=options).tasks))

        listed, globbed, folder, pattern, named = best(
            rounds,
            lambda: listing(filesystem.ls, root),
            lambda: listing(filesystem.glob, f"{root}/*.tfrecord"),
            lambda: plan(url),
            lambda: plan(f"{url}/*.tfrecord"),
            lambda: plan([f"{url}/{name}" for name in names]),
        )
        for what, seconds, own in (
            ("folder", folder, listed),
            ("pattern", pattern, globbed),
            ("list", named, listed),
        ):
            yield Line(
                what=f"plan {files} files: {what}",
                shown=f"{seconds:.3f} s, its client lists in {own:.3f}: {seconds / own:.1f} times",
                ratio=seconds / own,
                target=2,
            )


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    parser.add_argument("--only", action="append", choices=["local", "s3", "hdfs"])
    args = parser.parse_args()
    rounds, part = (2, 10) if args.quick else (5, 1)
    kinds = args.only or ["local", "s3", "hdfs"]
    print("| store | what | result | target |\n|---|---|---|---|")
    results: list[dict[str, Any]] = []

    def show(kind: str, line: Line) -> None:
        sign = ">=" if line.at_least else "<="
        reached = "" if line.is_reached else ", missed"
        print(
            f"| {kind} | {line.what} | {line.shown} | {sign} {line.target}{reached} |", flush=True
        )
        results.append({"store": kind, **asdict(line), "is_reached": line.is_reached})

    if "local" in kinds:
        for line in measure_planning(None, 10_000 // part, rounds):
            show("local", line)
    for kind, serve in (("s3", serve_s3), ("hdfs", serve_hdfs)):
        if kind not in kinds:
            continue
        with contextlib.ExitStack() as stack:
            folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
            store = Store(stack.enter_context(serve(Path(stack.enter_context(folder)))))
            show(kind, measure_memory(store, 1_000 // part))
            for line in measure_rates(store, max(2, 32 // part), rounds):
                show(kind, line)
            show(kind, measure_commit(store, 1_000 // part))
            for line in measure_planning(store, 10_000 // part, rounds):
                show(kind, line)
    DATA.mkdir(parents=True, exist_ok=True)
    (DATA / "stores.json").write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    _main()
