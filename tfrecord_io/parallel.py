"""Work on several threads whose results come out in order, in bounded memory.

`in_order` pulls works one after the other, runs up to `threads` of them at a time and gives, for
each in turn, an iterator of its items. The caller's thread is one of the threads: it works while
it would wait. What waits to be taken is bounded: a thread whose work is not the next in turn
pauses while more than `budget_bytes` wait, and no work is begun while many wait. The next in turn
may always go on, so nothing locks up. A caller that stops taking stops the threads; one that ends
early, or fails, ends them.

An interrupt, as by a user who presses stop, may come at any call of Python code, also between a
condition's own `__enter__` and the block: whoever holds its lock then holds it for good, and the
threads that are to end wait for it. So blocks take the lock itself, which runs no Python code.

Threads are daemons: a generator that nobody finished must not hold up the end of the process. They
are stopped when it begins: CPython ends daemons wherever they ask for the interpreter's lock, and
inside native code that aborts the process.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, NoReturn, Protocol, TypeVar

from tfrecord_io.options import positive

S = TypeVar("S")
T = TypeVar("T")

#: Bytes of items that wait to be taken.
BUDGET_BYTES = 128 * 1024 * 1024

#: Items are handed on one by one if they are large, and together up to this part of the budget:
#: each time wakes the others.
_STEP_PART = 512

#: How long the end of the process waits for threads, in seconds; a store may not answer.
_EXIT_SECONDS = 5.0


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
        How many run at a time, the caller's among them; with 1, items are made as they are taken,
        small ones some ahead.
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
    pool = _Pool(works, item_bytes, budget_bytes, most_waiting=4 * threads)
    yield from pool.streams(threads - 1)


def each(call: Callable[[S], T], items: Iterable[S], threads: int) -> list[T]:
    """Call with each of some items, several at a time, and return what comes of them in order.

    The first error in that order is raised, when the calls that had begun have ended; some of those
    behind it may have.
    """
    todo = list(items)
    if len(todo) < 2 or threads < 2:
        return [call(item) for item in todo]
    with ThreadPoolExecutor(min(threads, len(todo)), "tfrecord-io-each") as pool:
        return list(pool.map(call, todo))


def read_ahead(
    work: Callable[[], Iterator[T]], *, item_bytes: Callable[[T], int], budget_bytes: int
) -> Generator[T, None, None]:
    """Run one work on a thread of its own, ahead of a caller who is busy with the last item.

    `item_bytes` and `budget_bytes` are those of `in_order`.
    """
    pool = _Pool([work], item_bytes, budget_bytes, most_waiting=1, caller_works=False)
    with contextlib.closing(pool.streams(1)) as streams:
        yield from itertools.chain.from_iterable(streams)


def check_not_forked(process: int) -> None:
    """Raise a RuntimeError in a fork of the process that began to read: threads do not come along.

    Parameters
    ----------
    process : int
        Which one began.
    """
    if process != os.getpid():
        raise RuntimeError(
            "reading was begun before this process was forked, by threads that only its parent "
            "has; begin to read in this process"
        )


class Failed(Protocol):
    """What keeps an error until its turn comes."""

    error: BaseException | None


def raise_once(failed: Failed) -> NoReturn:
    """Raise an error that is kept, and keep it no more.

    Its traceback leads to all who wait for it, and from there back to where it was kept: threads
    that hold on to it would never end.
    """
    error, failed.error = failed.error, None
    assert error is not None
    try:
        raise error
    finally:
        del error


class _Stream(Generic[T]):
    """One work, and its items that wait to be taken."""

    def __init__(self, items: Generator[T, None, None]) -> None:
        self.source = items
        # What one step made each, and its size.
        self.items: deque[tuple[deque[T], int]] = deque()
        self.error: BaseException | None = None
        self.is_done = False
        self.is_dropped = False


#: Threads that run, and whose they are.
_RUNNING: dict[threading.Thread, _Pool[Any]] = {}


class _Pool(Generic[T]):
    """The threads, and what waits; one lock guards everything."""

    def __init__(
        self,
        works: Iterable[Callable[[], Iterator[T]]],
        item_bytes: Callable[[T], int],
        budget_bytes: int,
        most_waiting: int,
        *,
        caller_works: bool = True,
    ) -> None:
        self._works = iter(works)
        self._item_bytes = item_bytes
        self._budget_bytes = budget_bytes
        self._most_waiting = most_waiting
        self._caller_works = caller_works
        self.threads: list[threading.Thread] = []
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._waiting: deque[_Stream[T]] = deque()
        self._current: _Stream[T] | None = None
        self._waiting_bytes = 0
        # Works are pulled by one thread at a time, and not under the lock: pulling may open files.
        self._is_pulling = False
        self._is_exhausted = False
        self._is_stopped = False
        # What the caller's thread works on.
        self._own: _Stream[T] | None = None

    # The caller's side

    def streams(self, threads: int) -> Generator[Iterator[T], None, None]:
        """Give the items of each work, with so many threads beside the caller's."""
        try:
            for index in range(threads):
                thread = threading.Thread(
                    target=self._run, name=f"tfrecord-io-{index}", daemon=True
                )
                self.threads.append(thread)
                thread.start()
            while (stream := self._next_stream()) is not None:
                yield self._items(stream)
                self._drop(stream)
        finally:
            self.stop()
            with self._lock:
                left = [self._current, *self._waiting]
            for stream in filter(None, left):
                self._drop(stream)
            # The garbage collector may close a generator on any thread, and on one of these while
            # it has the lock that the others need to end.
            if threading.current_thread() not in self.threads:
                for thread in self.threads:
                    # One that could not be started, or was not waited for until it was.
                    with contextlib.suppress(RuntimeError):
                        thread.join()

    def stop(self) -> None:
        """Let the threads end after what they are at."""
        with self._lock:
            self._is_stopped = True
            self._changed.notify_all()

    def _next_stream(self) -> _Stream[T] | None:
        self._work_until(lambda: bool(self._waiting) or self._is_exhausted)
        with self._lock:
            self._current = self._waiting.popleft() if self._waiting else None
            self._changed.notify_all()
            return self._current

    def _items(self, stream: _Stream[T]) -> Iterator[T]:
        while True:
            self._work_until(lambda: bool(stream.items) or stream.is_done)
            if not stream.items:
                break
            items = self._taken(stream)
            while items:
                # Nothing here holds what the caller drops.
                yield items.popleft()
        if stream.error is not None:
            raise_once(stream)

    def _taken(self, stream: _Stream[T]) -> deque[T]:
        with self._lock:
            items, size = stream.items.popleft()
            self._waiting_bytes -= size
            self._changed.notify_all()
        return items

    def _drop(self, stream: _Stream[T]) -> None:
        with self._lock:
            stream.is_dropped = True
            # Its traceback leads to the work's files, and back to here.
            stream.error = None
            self._waiting_bytes -= sum(size for _, size in stream.items)
            stream.items.clear()
            self._changed.notify_all()
        if stream is self._own:
            stream.source.close()
            self._own = None

    def _work_until(self, is_there: Callable[[], bool]) -> None:
        """Wait for the threads; work meanwhile."""
        while True:
            with self._lock:
                while not (is_done := is_there()):
                    if self._is_stopped:
                        raise RuntimeError("reading has been stopped, since the process ends")
                    if self._can_work():
                        break
                    check_not_forked(self._process)
                    self._changed.wait()
            if is_done:
                return
            if self._own is None:
                self._own = self._pull(waits=False)
            elif not self._step(self._own):
                own, self._own = self._own, None
                if isinstance(own.error, KeyboardInterrupt):
                    raise_once(own)

    def _can_work(self) -> bool:
        if self._own is not None:
            return self._has_room(self._own)
        return self._caller_works and self._can_pull()

    # The threads' side

    def _run(self) -> None:
        thread = threading.current_thread()
        _RUNNING[thread] = self
        try:
            while (stream := self._pull(waits=True)) is not None:
                while self._is_wanted(stream) and self._step(stream):
                    pass
                stream.source.close()
        finally:
            del _RUNNING[thread]

    def _is_wanted(self, stream: _Stream[T]) -> bool:
        """Wait for room for an item; false if no more are wanted."""
        with self._lock:
            while not (self._is_stopped or stream.is_dropped or self._has_room(stream)):
                self._changed.wait()
            return not (self._is_stopped or stream.is_dropped)

    # Both sides

    def _has_room(self, stream: _Stream[T]) -> bool:
        if self._waiting_bytes < self._budget_bytes:
            return True
        # Where none is in turn, the caller is about to take the next one, or there is none.
        return stream is self._current and not stream.items

    def _can_pull(self) -> bool:
        is_free = not self._is_pulling and not self._is_exhausted
        return is_free and len(self._waiting) < self._most_waiting

    def _pull(self, *, waits: bool) -> _Stream[T] | None:
        """Begin the next work; None if there is none, or it fails to come.

        The caller must not wait for room, which only it makes; it gets None then.
        """
        with self._lock:
            while not (self._is_stopped or self._is_exhausted or self._can_pull()):
                if not waits:
                    return None
                self._changed.wait()
            if self._is_stopped or self._is_exhausted:
                return None
            self._is_pulling = True
        stream: _Stream[T] | None = None
        try:
            work = next(self._works, None)
            if work is not None:
                stream = _Stream(_begun(work))
        except BaseException as error:
            if not waits and isinstance(error, KeyboardInterrupt):
                raise
            # Raised again in its turn, which is the last.
            stream = _Stream(_begun(lambda: iter(())))
            stream.error = error
        with self._lock:
            self._is_pulling = False
            self._is_exhausted = stream is None or stream.error is not None
            self._changed.notify_all()
            if stream is not None:
                self._waiting.append(stream)
            return stream

    def _step(self, stream: _Stream[T]) -> bool:
        """Make items of a stream up to some size; false if there are no more."""
        items: deque[T] = deque()
        size = 0
        is_done = False
        try:
            for item in stream.source:
                items.append(item)
                size += self._item_bytes(item)
                if size > self._budget_bytes // _STEP_PART:
                    break
            else:
                is_done = True
        except BaseException as error:  # noqa: BLE001 - raised again where it is taken
            stream.error = error
            is_done = True
        with self._lock:
            if stream.is_dropped:
                stream.error = None
            elif items:
                stream.items.append((items, size))
                self._waiting_bytes += size
            stream.is_done = is_done
            self._changed.notify_all()
        return not is_done


@atexit.register
def _stop_running() -> None:
    """Stop all threads, and wait for them."""
    running = _RUNNING.copy()
    for pool in running.values():
        pool.stop()
    end = time.monotonic() + _EXIT_SECONDS
    for thread in running:
        thread.join(max(0.0, end - time.monotonic()))


if hasattr(os, "register_at_fork"):
    # Threads do not come along, and whoever held a lock does not let it go.
    os.register_at_fork(after_in_child=_RUNNING.clear)


def _begun(work: Callable[[], Iterator[T]]) -> Generator[T, None, None]:
    yield from work()
