"""Work on several threads whose results come out in order, in bounded memory.

`in_order` pulls works one after the other, runs up to `threads` of them at a time and gives, for
each in turn, an iterator of its items. What waits to be taken is bounded: a thread whose work is
not the next in turn stops while more than `budget_bytes` wait, and no work is begun while many
wait. The next in turn may always go on, so nothing locks up. A caller that stops taking stops the
threads; one that ends early, or fails, ends them.

Threads are daemons: a generator that nobody finished must not hold up the end of the process.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Generic, TypeVar

from tfrecord_io.options import positive

T = TypeVar("T")

#: Bytes of items that wait to be taken.
BUDGET_BYTES = 128 * 1024 * 1024


def thread_count(threads: int | None) -> int:
    """Return how many threads to use: as many as asked for, or one for each core."""
    if threads is None:
        if hasattr(os, "sched_getaffinity"):
            return len(os.sched_getaffinity(0))
        return os.cpu_count() or 1
    positive("threads", threads)
    return threads


def in_order(
    works: Iterable[Callable[[], Iterator[T]]],
    *,
    threads: int,
    item_bytes: Callable[[T], int],
    budget_bytes: int = BUDGET_BYTES,
) -> Generator[Iterator[T], None, None]:
    """Run works on threads and give the items of each, in the order of the works.

    Parameters
    ----------
    works : iterable of callables
        Each returns an iterator. It is pulled as threads become free.
    threads : int
        How many run at a time; with 1, all run in the caller's thread when they are taken.
    item_bytes : callable
        Size of an item in memory.
    budget_bytes : int
        See above.

    Yields
    ------
    iterator
        The items of one work; what is not taken of it when the next is asked for is dropped. An
        error in a work, or in pulling it, is raised in its turn.
    """
    if threads == 1:
        for work in works:
            yield work()
        return
    yield from _on_threads(works, threads, item_bytes, budget_bytes)


def read_ahead(
    work: Callable[[], Iterator[T]], *, item_bytes: Callable[[T], int], budget_bytes: int
) -> Iterator[T]:
    """Run one work on a thread of its own, ahead of a caller who is busy with the last item.

    `item_bytes` and `budget_bytes` are those of `in_order`.
    """
    with contextlib.closing(_on_threads([work], 1, item_bytes, budget_bytes)) as streams:
        yield from itertools.chain.from_iterable(streams)


def _on_threads(
    works: Iterable[Callable[[], Iterator[T]]],
    threads: int,
    item_bytes: Callable[[T], int],
    budget_bytes: int,
) -> Generator[Iterator[T], None, None]:
    pool = _Pool(works, item_bytes, budget_bytes, most_waiting=4 * threads)
    pool.start(threads)
    try:
        while (stream := pool.next_stream()) is not None:
            yield pool.items(stream)
            pool.drop(stream)
    finally:
        pool.stop()


class _Stopped(Exception):  # noqa: N818 - no error, only the way out of a work
    """The items of this work are no longer wanted."""


class _Stream(Generic[T]):
    """The items of one work that wait to be taken."""

    def __init__(self) -> None:
        self.items: deque[tuple[T, int]] = deque()
        self.error: BaseException | None = None
        self.is_done = False
        self.is_dropped = False


class _Pool(Generic[T]):
    """The threads, and what waits; one lock guards everything."""

    def __init__(
        self,
        works: Iterable[Callable[[], Iterator[T]]],
        item_bytes: Callable[[T], int],
        budget_bytes: int,
        most_waiting: int,
    ) -> None:
        self._works = iter(works)
        self._item_bytes = item_bytes
        self._budget_bytes = budget_bytes
        self._most_waiting = most_waiting
        # Works are pulled by one thread at a time, and not under the lock: pulling may open files.
        self._pulling = threading.Lock()
        self._changed = threading.Condition()
        self._waiting: deque[_Stream[T]] = deque()
        self._current: _Stream[T] | None = None
        self._waiting_bytes = 0
        self._is_exhausted = False
        self._is_stopped = False
        self._threads: list[threading.Thread] = []

    def start(self, threads: int) -> None:
        for index in range(threads):
            thread = threading.Thread(target=self._run, name=f"tfrecord-io-{index}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        for thread in self._threads:
            # A generator may be closed by the garbage collector, on any thread.
            if thread is not threading.current_thread():
                thread.join()

    # The consumer's side

    def next_stream(self) -> _Stream[T] | None:
        with self._changed:
            while not self._waiting and not self._is_exhausted:
                self._changed.wait()
            self._current = self._waiting.popleft() if self._waiting else None
            self._changed.notify_all()
            return self._current

    def items(self, stream: _Stream[T]) -> Iterator[T]:
        while True:
            with self._changed:
                while not stream.items and not stream.is_done:
                    self._changed.wait()
                if not stream.items:
                    break
                item, size = stream.items.popleft()
                self._waiting_bytes -= size
                self._changed.notify_all()
            yield item
        if stream.error is not None:
            raise stream.error

    def drop(self, stream: _Stream[T]) -> None:
        with self._changed:
            stream.is_dropped = True
            self._waiting_bytes -= sum(size for _, size in stream.items)
            stream.items.clear()
            self._changed.notify_all()

    # The threads' side

    def _run(self) -> None:
        while (begun := self._pull()) is not None:
            stream, work = begun
            try:
                items = work()
                try:
                    for item in items:
                        self._put(stream, item)
                finally:
                    close = getattr(items, "close", None)
                    if close is not None:
                        close()
            except _Stopped:
                pass
            except BaseException as error:  # noqa: BLE001 - raised again where it is taken
                stream.error = error
            with self._changed:
                stream.is_done = True
                self._changed.notify_all()

    def _pull(self) -> tuple[_Stream[T], Callable[[], Iterator[T]]] | None:
        with self._pulling:
            with self._changed:
                while len(self._waiting) >= self._most_waiting and not self._is_stopped:
                    self._changed.wait()
                if self._is_stopped or self._is_exhausted:
                    return None
            stream = _Stream[T]()
            try:
                work = next(self._works, None)
            except BaseException as error:  # noqa: BLE001 - raised again where it is taken
                work = None
                stream.error = error
                stream.is_done = True
            with self._changed:
                if work is not None or stream.error is not None:
                    self._waiting.append(stream)
                if work is None:
                    self._is_exhausted = True
                self._changed.notify_all()
            return None if work is None else (stream, work)

    def _put(self, stream: _Stream[T], item: T) -> None:
        size = self._item_bytes(item)
        with self._changed:
            while (
                self._waiting_bytes >= self._budget_bytes
                and not (stream is self._head() and not stream.items)
                and not (self._is_stopped or stream.is_dropped)
            ):
                self._changed.wait()
            if self._is_stopped or stream.is_dropped:
                raise _Stopped
            stream.items.append((item, size))
            self._waiting_bytes += size
            self._changed.notify_all()

    def _head(self) -> _Stream[T] | None:
        if self._current is not None and not self._current.is_dropped:
            return self._current
        return self._waiting[0] if self._waiting else None
