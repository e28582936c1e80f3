"""A storage that fails or kills its process at the n-th call that changes something.

Run as a program it does so for n = 0, 1, 2, ... until the work gets to its end, each time in a
forked child on a copy of ``TARGETS/template``::

    python -m tests.support.faults WORK MODE TARGETS

WORK is a name in `WORKS`; the folder of step n is ``TARGETS/n``.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from tfrecord_io.commit import job as commit
from tfrecord_io.engines.local import write_table
from tfrecord_io.options import SaveMode
from tfrecord_io.storage import Sink, Storage, open_storage
from tfrecord_io.storage.protocol import publish_by_rename
from tfrecord_io.writing import attempt
from tfrecord_io.writing import plan as write_plan

CHANGES = (
    *("make_folder", "make_folders", "create_sink", "create_exclusive", "rename", "remove"),
    *("write_bytes", "release"),
    *("remove_folder", "remove_tree", "sync_folders", "abort_uploads"),
)

NEED_ROOM = (
    "make_folder",
    "make_folders",
    "create_sink",
    "create_exclusive",
    "close",
    "write_bytes",
)

#: What every test of faults writes over or adds to, and what it writes.
OLD = pa.table({"p": [1, 1, 2, 3], "v": [1, 2, 3, 4]})
NEW = pa.table({"p": [2, 2, 4], "v": [10, 20, 30]})


class Clock:
    """Counts calls, and does something at one of them, before or after it takes effect.

    With `goes_on`, it does so at all later calls that need room as well.
    """

    def __init__(self, step: int, act: Callable[[], None], *, goes_on: bool = False) -> None:
        self.step = step
        self.act = act
        self.goes_on = goes_on
        self.count = 0

    def around(self, name: str, call: Callable[[], Any]) -> Any:
        self.tick(name)
        result = call()
        self.tick(name)
        return result

    def tick(self, name: str) -> None:
        now, self.count = self.count, self.count + 1
        if now == self.step or (self.goes_on and now > self.step and name in NEED_ROOM):
            self.act()


class FaultySink:
    def __init__(self, inner: Sink, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def close(self) -> str:
        return self._clock.around("close", self._inner.close)


class FaultyStorage:
    """A storage whose changes go by a clock."""

    def __init__(self, inner: Storage, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock
        # So that calls come in one order.
        self.concurrency = self.close_concurrency = 1

    def publish(self, staged: str, final: str) -> None:
        if self._inner.stages_by == "rename":
            publish_by_rename(cast("Storage", self), staged, final)
        else:
            self._clock.around("publish", lambda: self._inner.publish(staged, final))

    def remove_files(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.remove(path)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in CHANGES:
            return found

        def call(*args: Any) -> Any:
            made = self._clock.around(name, lambda: found(*args))
            return FaultySink(made, self._clock) if name == "create_sink" else made

        return call


def opener(clock: Clock) -> Callable[..., tuple[Any, str]]:
    """An `open_storage` whose storages go by `clock`."""

    def open_faulty(url: Any, options: Any = None) -> tuple[Any, str]:
        storage, path = open_storage(url, options)
        return FaultyStorage(storage, clock), path

    return open_faulty


def full_disk() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def work_write(root: str, mode: SaveMode) -> None:
    write_table(NEW, root, mode=mode, partition_by="p", rows_per_task=2, threads=1)


def work_clean(root: str, mode: SaveMode) -> None:
    commit.clean(root)


WORKS = {"write": work_write, "clean": work_clean}


def run_all(work: str, mode: SaveMode, targets: Path) -> None:
    template = targets / "template"
    for step in range(10_000):
        base = targets / str(step)
        shutil.copytree(template, base)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                clock = Clock(step, kill)
                for module in (attempt, commit, write_plan):
                    module.open_storage = opener(clock)  # type: ignore[attr-defined]
                WORKS[work](str(base / "ds"), mode)
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            sys.exit(os.WEXITSTATUS(status))


if __name__ == "__main__":
    run_all(sys.argv[1], sys.argv[2], Path(sys.argv[3]))  # type: ignore[arg-type]
