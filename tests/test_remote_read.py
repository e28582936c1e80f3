"""Files in a store are read like files on this machine."""

from __future__ import annotations

import gzip
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest

from tests.support.frames import examples
from tests.support.servers import Server
from tfrecord_io import convert, count_rows, infer_schema, read_table, write_index, write_table
from tfrecord_io.errors import DatasetChangedError
from tfrecord_io.reading import ranges, tasks
from tfrecord_io.reading.plan import plan_scan
from tfrecord_io.reading.tasks import read_task, read_tasks
from tfrecord_io.storage.generic import FsspecStorage

ROWS = 3000
TABLE = pa.table(
    {
        "id": pa.array(range(ROWS)),
        # Records of 100 bytes, and some that are larger than a range.
        "text": pa.array(["x" * (20_000 if row % 700 == 0 else 60) for row in range(ROWS)]),
    }
)


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(ranges, "_RANGE_BYTES", 16_384)
    monkeypatch.setattr(ranges, "_BEHIND_BYTES", 100)
    monkeypatch.setattr(tasks, "_REMOTE_SPAN_BYTES", 90_000)
    yield


def copy(folder: Path, store: Server) -> Any:
    filesystem, root = fsspec.core.url_to_fs(store.url, **store.storage_options)
    for path in folder.iterdir():
        filesystem.pipe_file(f"{root}/{path.name}", path.read_bytes())
    return filesystem


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("compression", [None, "gzip", "zstd"])
@pytest.mark.parametrize("marked", [True, False])
def test_reading(
    store: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    compression: str | None,
    marked: bool,
    threads: int,
) -> None:
    monkeypatch.setattr("tfrecord_io.writing.part_writer.SPLIT_BYTES", 30_000)
    source = tmp_path / "source"
    write_table(TABLE, source, compression=compression, max_records_per_file=2000)
    if not marked:
        (source / "_SUCCESS").unlink()
    copy(source, store)
    options = {"storage_options": store.storage_options, "threads": threads}
    assert read_table(store.url, **options).equals(TABLE)
    assert infer_schema(store.url, **options) == TABLE.schema
    assert count_rows(store.url, **options) == ROWS
    assert read_table(store.url, on_corrupt="skip_file", **options).equals(TABLE)


def test_tasks_begin_at_marks(store: Server, tmp_path: Path) -> None:
    source = tmp_path / "source"
    write_table(TABLE, source)
    copy(source, store)
    plan = plan_scan(store.url, storage_options=store.storage_options, task_bytes=40_000)
    batches = [batch for task in plan.tasks for batch in read_task(plan, task)]
    assert pa.Table.from_batches(batches).equals(TABLE)


@pytest.mark.parametrize("function", [write_index, convert])
def test_at_least_four_files_of_a_store_are_worked_on_at_a_time(
    monkeypatch: pytest.MonkeyPatch, function: Any
) -> None:
    """However few the cores are: each waits for the store's answers most of the time."""
    source = f"memory://four-{function.__name__}"
    with fsspec.open_files(f"{source}/*", "wb", num=8) as files:
        for number, file in enumerate(files):
            file.write(examples({"n": number}))
    together = threading.Barrier(4, timeout=30)
    fetch = FsspecStorage.read_range

    def fetched(storage: FsspecStorage, path: str, *arguments: Any) -> Any:
        if path.startswith("/four-"):
            together.wait()
        return fetch(storage, path, *arguments)

    options: dict[str, Any] = {}
    if function is convert:
        # Else a first file is looked at, alone.
        options = {"from_format": "tfrecord", "to_format": "parquet"}
        options["schema"] = pa.schema([("n", pa.int64())])
    monkeypatch.setattr(FsspecStorage, "read_range", fetched)
    function(source, f"memory://target-{function.__name__}/x", **options)
    assert not together.broken


def test_a_compressed_file_is_fetched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many tasks or spans it would have if it were plain."""
    data = gzip.compress(examples(*({"b": random.Random(n).randbytes(1000)} for n in range(300))))
    path = "memory://compressed/a"
    fsspec.filesystem("memory").pipe_file("/compressed/a", data)
    fetch = FsspecStorage.read_range
    fetched = 0

    def counted(storage: FsspecStorage, path: str, start: int, end: int, version: str) -> Any:
        nonlocal fetched
        fetched += end - start
        return fetch(storage, path, start, end, version)

    monkeypatch.setattr(FsspecStorage, "read_range", counted)
    schema = pa.schema([("b", pa.binary())])
    assert read_table(path, schema=schema).num_rows == 300
    # Beside it, some bytes to tell that it is compressed.
    assert len(data) <= fetched < len(data) + 1000

    fetched = 0
    plan = plan_scan(path, schema=schema, task_bytes=len(data) // 8, cut_unmarked=True)
    rows = [sum(batch.num_rows for batch in batches) for batches in read_tasks(plan, plan.tasks)]
    assert rows == [300] + [0] * (len(plan.tasks) - 1)
    assert len(rows) >= 8
    assert len(data) <= fetched < len(data) + 1000


def test_tasks_in_turn_go_on_behind_an_error(store: Server, tmp_path: Path) -> None:
    source = tmp_path / "source"
    write_table(TABLE, source, rows_per_task=300)
    filesystem = copy(source, store)
    plan = plan_scan(store.url, storage_options=store.storage_options)
    filesystem.pipe_file(plan.tasks[3].file.path, b"something else")
    filesystem.rm_file(plan.tasks[5].file.path)
    rows = []
    for number, batches in enumerate(read_tasks(plan, plan.tasks)):
        if number in (3, 5):
            with pytest.raises(DatasetChangedError):
                list(batches)
        else:
            rows += [row for batch in batches for row in batch["id"].to_pylist()]
    assert rows == [row for row in range(ROWS) if row // 300 not in (3, 5)]


def test_a_file_that_was_replaced_is_refused(store: Server, tmp_path: Path) -> None:
    source = tmp_path / "source"
    write_table(TABLE, source)
    filesystem = copy(source, store)
    plan = plan_scan(store.url, storage_options=store.storage_options)
    (task,) = plan.tasks
    data = filesystem.cat_file(task.file.path)
    filesystem.pipe_file(task.file.path, data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(DatasetChangedError):
        list(read_task(plan, task))
