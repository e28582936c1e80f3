"""What is done about Spark's Python workers."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import socket
import stat
import sys
from pathlib import Path
from typing import Any


class SentToTasks:
    """A reader or writer that Spark pickles for its tasks, and unpickles just before their rows."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        _acknowledge()


def _acknowledge() -> None:
    """Tell whoever this process has connections to that what they sent has come; on Linux.

    Spark sends a worker its task first and rows then, with Nagle's algorithm on: rows that fill no
    packet wait until the task is acknowledged. The system acknowledges at once what fills a packet,
    the rest 40 ms later or with an answer, and a worker has none yet (RFC 1122, 4.2.3.2; tcp(7),
    TCP_QUICKACK).
    """
    if not hasattr(socket, "TCP_QUICKACK"):
        return
    # Spark keeps the connection to itself.
    for descriptor in _descriptors():
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                with socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM) as connection:
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def _descriptors() -> list[int]:
    try:
        return [int(path.name) for path in Path("/proc/self/fd").iterdir()]
    except OSError:
        return []


def keep_what_is_loaded() -> None:
    """Keep what this worker has loaded out of its collections of garbage, from now on.

    A worker collects garbage after every task (``pyspark/daemon.py``), and its next task waits
    meanwhile. Nearly all it looks at are the modules' objects, which stay anyway: 40 ms.
    """
    _freeze(len(sys.modules))


@functools.lru_cache(maxsize=1)
def _freeze(modules: int) -> None:
    # Once for as many modules: a worker that has read may have loaded more when it has written.
    gc.freeze()
