"""Writes to any store that are killed, each at another step.

Run as a program it finds out how many steps there are, and then does the work once for each, in a
forked child that is killed there. It prints the steps::

    python -m tests.support.kills URL MODE < STORAGE_OPTIONS

The data set of step n is ``URL/n``, at first a copy of ``URL/ds``, unless there must be none. No
client of a store is made before the forks, since clients have threads.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import fsspec

from tests.support.faults import NEW, Clock, kill, opener
from tests.support.trees import put_files, stored_files
from tfrecord_io.commit import job as commit
from tfrecord_io.engines.local import write_table
from tfrecord_io.options import SaveMode
from tfrecord_io.writing import attempt
from tfrecord_io.writing import plan as write_plan

#: Children at a time; they wait for the store most of the time.
_AT_ONCE = 6


def work(url: str, mode: SaveMode, options: dict[str, Any], clock: Clock) -> None:
    """Put the old rows there, unless there must be none, and write the new ones by the clock."""
    if mode != "error":
        old = f"{url.rpartition('/')[0]}/ds"
        put_files(url, options, stored_files(old, options))
    for module in (attempt, commit, write_plan):
        module.open_storage = opener(clock)  # type: ignore[attr-defined]
    write_table(
        NEW,
        url,
        mode=mode,
        partition_by="p",
        rows_per_task=2,
        threads=1,
        storage_options=options,
    )


def fork(url: str, mode: SaveMode, options: dict[str, Any], step: int, output: int) -> int:
    """Do the work in a child that is killed at a step, and writes how many it did otherwise."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        clock = Clock(step, kill)
        work(url, mode, options, clock)
        os.write(output, str(clock.count).encode())
        code = 0
    finally:
        os._exit(code)


def main(url: str, mode: SaveMode) -> None:
    """See the module."""
    options = json.load(sys.stdin)
    # Or each child would import it, which takes longer than all that it sends.
    fsspec.get_filesystem_class(url.partition(":")[0])
    reader, writer = os.pipe()
    _, status = os.waitpid(fork(f"{url}/none", mode, options, sys.maxsize, writer), 0)
    assert status == 0, status
    count = int(os.read(reader, 100))
    # Before the first call, and after each: before another the store is as after the one before it.
    steps = [0, *range(1, count, 2)]
    running = 0
    for step in steps:
        fork(f"{url}/{step}", mode, options, step, writer)
        running += 1
        while running >= _AT_ONCE or (running and step == steps[-1]):
            _, status = os.wait()
            assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, status
            running -= 1
    print(*steps)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])  # type: ignore[arg-type]
