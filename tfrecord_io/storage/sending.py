"""What is on its way to a store, on threads of this process, while the next of it is made."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

#: Calls that run at a time, over all files of this process.
_IN_FLIGHT = 8

_Result = TypeVar("_Result")


class _Threads:
    def __init__(self) -> None:
        self.begin()
        if hasattr(os, "register_at_fork"):
            # A fork has none of the threads of its parent, whatever the copy of a pool says.
            os.register_at_fork(after_in_child=self.begin)

    def begin(self) -> None:
        self.room = threading.BoundedSemaphore(_IN_FLIGHT)
        self.pool = ThreadPoolExecutor(_IN_FLIGHT, "tfrecord-io-send")


_threads = _Threads()


def in_flight(call: Callable[[], _Result]) -> Future[_Result]:
    """Run a call on a thread; wait first while too many run."""
    room = _threads.room
    room.acquire()
    try:
        future = _threads.pool.submit(call)
    except BaseException:
        room.release()
        raise
    future.add_done_callback(lambda _: room.release())
    return future


class Sender:
    """Makes one call after the other that sends bytes, each on a thread."""

    __slots__ = ("_chunks", "_sent")

    def __init__(self) -> None:
        self._chunks: list[Any] = []
        self._sent: Future[None] | None = None

    def send(self, chunks: list[Any], call: Callable[[], None]) -> None:
        """Wait for the last call, then begin one that sends `chunks`, a list of its own."""
        self.wait()
        self._chunks = chunks
        self._sent = in_flight(call)

    def wait(self) -> None:
        """Wait for the last call, and raise what it raised."""
        sent, self._sent = self._sent, None
        if sent is None:
            return
        try:
            sent.result()
        finally:
            # Here, not there: what another thread frees, an allocator gives out again much later.
            self._chunks.clear()


class Buffered:
    """What sinks have in common: bytes that wait in memory, front to back.

    Attributes
    ----------
    size, buffered : int
        See `tfrecord_io.storage.protocol.Sink`.
    """

    __slots__ = ("_chunks", "buffered", "size")

    def __init__(self) -> None:
        self._chunks: list[memoryview] = []
        self.size = 0
        self.buffered = 0

    def _hold(self, data: Any) -> None:
        """Add bytes."""
        chunk = memoryview(data).cast("B")
        self._chunks.append(chunk)
        self.size += len(chunk)
        self.buffered += len(chunk)

    def _take(self, size: int) -> list[memoryview]:
        """Remove the first bytes, and return them."""
        self.buffered -= size
        return take(self._chunks, size)


def take(chunks: list[memoryview], size: int) -> list[memoryview]:
    """Remove the first bytes from chunks that hold at least as many, and return them."""
    taken, count = [], 0
    while size:
        chunk = chunks[count]
        if len(chunk) > size:
            taken.append(chunk[:size])
            chunks[count] = chunk[size:]
            break
        taken.append(chunk)
        size -= len(chunk)
        count += 1
    del chunks[:count]
    return taken
