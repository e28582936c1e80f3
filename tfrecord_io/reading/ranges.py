"""A remote file's bytes, fetched in ranges ahead of whoever reads them.

Up to `_RANGES_AHEAD` ranges of `_RANGE_BYTES` are under way, on threads of their own, while the one
before them is worked on: so much memory a file takes, and no more. A reader that wants the bytes up
to a certain place only, and perhaps a few behind it, says so; behind that place nothing is fetched
before it is asked for. A file of one range costs one request and no thread.

`FirstRanges` does the same from file to file: while some are read, it fetches how the next begin.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, TypeVar

from tfrecord_io.errors import DatasetChangedError
from tfrecord_io.parallel import check_not_forked

#: Large enough that neither a store's time to answer nor the client's for each request matters.
_RANGE_BYTES = 32 * 1024 * 1024
_RANGES_AHEAD = 2

#: What is fetched behind the stop: first with the rest, for usual records, then in growing steps.
_BEHIND_BYTES = 64 * 1024

#: How many files are begun before their turn, and with how many bytes in all.
_FILES_AHEAD = 16
_FILES_AHEAD_BYTES = 2 * _RANGE_BYTES

#: Takes the offsets of the first byte and behind the last, and returns what is between.
Fetch = Callable[[int, int], bytes | memoryview]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FirstRange:
    """A file's first range, under way: the offset behind it, and its bytes."""

    end: int
    data: Future[bytes | memoryview]


class Ranges:
    """The bytes of a file from an offset on, in order.

    Parameters
    ----------
    fetch : Fetch
        Called by several threads.
    size : int
        Length of the file.
    start : int
        Offset of the first byte.
    stop : int, optional
        Offset up to which all bytes are wanted; without it, the end of the file.
    first : FirstRange, optional
        What is fetched already, from `start` on.
    """

    def __init__(
        self,
        fetch: Fetch,
        size: int,
        *,
        start: int = 0,
        stop: int | None = None,
        first: FirstRange | None = None,
    ) -> None:
        self._fetch = fetch
        self._size = size
        self._offset = start
        self._stop = size if stop is None else min(stop + _BEHIND_BYTES, size)
        self._behind_bytes = _BEHIND_BYTES
        self._ahead: deque[Future[bytes | memoryview]] = deque()
        if first is not None:
            self._ahead.append(first.data)
            self._offset = first.end
        self._left = memoryview(b"")
        self._process = os.getpid()
        self._pool: ThreadPoolExecutor | None = None
        if range_end(start, self._stop) < self._stop:
            self._pool = _threads()
        self._fetch_ahead()

    def reach_the_end(self) -> None:
        """Want all bytes up to the end of the file, wherever the stop was, once more are taken."""
        self._stop = self._size
        if self._pool is None and self._offset < self._stop:
            self._pool = _threads()

    def peek(self, size: int) -> bytes:
        """Return the next bytes without taking them: `size`, or fewer where a range ends before."""
        self._left = self.take()
        return bytes(self._left[:size])

    def take(self) -> memoryview:
        """Return the next bytes, as many as are there at once, or none at the end."""
        taken, self._left = self._left or memoryview(self._next()), memoryview(b"")
        return taken

    def read(self, size: int, /) -> bytes:
        """Return at least one and at most `size` bytes, or none at the end."""
        taken = self.take()
        self._left = taken[size:]
        return bytes(taken[:size])

    def close(self) -> None:
        """End what is under way."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def _next(self) -> bytes | memoryview:
        if not self._ahead:
            self._fetch_ahead()
        if self._ahead:
            if not self._ahead[0].done():
                check_not_forked(self._process)
            data = self._ahead.popleft().result()
            self._fetch_ahead()
            return data
        if self._offset < self._stop:
            return self._fetched(self._stop)
        if self._offset < self._size:
            end = min(self._offset + self._behind_bytes, self._size)
            self._behind_bytes = min(2 * self._behind_bytes, _RANGE_BYTES)
            return self._fetched(end)
        return b""

    def _fetched(self, stop: int) -> bytes | memoryview:
        start, self._offset = self._offset, range_end(self._offset, stop)
        return whole(self._fetch, start, self._offset)

    def _fetch_ahead(self) -> None:
        if self._pool is None:
            return
        while self._offset < self._stop and len(self._ahead) < _RANGES_AHEAD:
            start, self._offset = self._offset, range_end(self._offset, self._stop)
            self._ahead.append(self._pool.submit(whole, self._fetch, start, self._offset))


class FirstRanges(Generic[T]):
    """Fetches the first ranges of files that will be read soon; a context manager.

    Parameters
    ----------
    begin : callable
        Takes an item of `over` and returns how its file is fetched, and the offsets of the bytes
        that are wanted of it; None if there is nothing to fetch.
    """

    def __init__(self, begin: Callable[[T], tuple[Fetch, int, int] | None]) -> None:
        self._begin = begin
        self._found: dict[int, FirstRange] = {}
        self._pool: ThreadPoolExecutor | None = None

    def over(self, items: Iterable[T]) -> Iterator[T]:
        """Give the items, and begin their files some items ahead."""
        waiting: deque[tuple[T, int]] = deque()
        waiting_bytes = 0
        for item in items:
            size = self._fetch(item)
            waiting.append((item, size))
            waiting_bytes += size
            while len(waiting) > _FILES_AHEAD or waiting_bytes > _FILES_AHEAD_BYTES:
                next_item, size = waiting.popleft()
                waiting_bytes -= size
                yield next_item
        for item, _ in waiting:
            yield item

    def take(self, item: T) -> FirstRange | None:
        """Return what was begun of an item that `over` gave, once."""
        return self._found.pop(id(item), None)

    def _fetch(self, item: T) -> int:
        self._found.pop(id(item), None)
        begun = self._begin(item)
        if begun is None:
            return 0
        fetch, start, stop = begun
        end = range_end(start, stop)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_FILES_AHEAD, "tfrecord-io-first-ranges")
        self._found[id(item)] = FirstRange(end, self._pool.submit(whole, fetch, start, end))
        return end - start

    def __enter__(self) -> FirstRanges[T]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)


def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_RANGES_AHEAD, "tfrecord-io-ranges")


def range_end(start: int, stop: int) -> int:
    """Return where a range that begins at `start` ends; a little that is left goes with it."""
    return stop if stop - start <= _RANGE_BYTES * 3 // 2 else start + _RANGE_BYTES


def whole(fetch: Fetch, start: int, end: int) -> bytes | memoryview:
    """Fetch a range, all of it."""
    data = fetch(start, end)
    if len(data) != end - start:
        raise DatasetChangedError(
            f"the file ended before byte {end} when it was read, and behind it when it was listed; "
            "read the data set again"
        )
    return data
