"""A sink for stores across a network: what is small waits in memory, then on the local disk.

A task may write thousands of part files at once. Whole parts of `PART_BYTES` go to the store as
soon as they are there; the rest of each file waits in memory, and if that becomes too much for all
files together (the task tells by `Sink.spill`), in one temporary file that all sinks of a storage
share and that has no name, so that it goes with the process, however that ends.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from tfrecord_io.storage.protocol import naming
from tfrecord_io.storage.sending import Buffered

#: What is sent at a time; S3 takes no less than 5 MiB, but for the last part.
PART_BYTES = 8 * 1024 * 1024

#: What was written at once, or a part of it. Clients take only bytes without a slow copy.
Piece: TypeAlias = bytes | memoryview


class Transfer(Protocol):
    """One file on its way to the store."""

    def part_bytes(self) -> int:
        """Return how long the next part is to be."""

    def add(self, pieces: list[Piece]) -> None:
        """Send the next part, whose pieces follow each other; may return before it has arrived.

        The list is the transfer's own then.
        """

    def finish(self) -> str:
        """Wait until all parts have arrived durably; return what `Sink.close` returns."""

    def cancel(self) -> None:
        """Stop, and remove what can be removed; must not raise ``OSError``."""


class Spool:
    """A temporary file without a name, made when it is first needed."""

    def __init__(self) -> None:
        self._file: Any = None
        self._end = 0
        self._lock = threading.Lock()

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()

    def put(self, chunks: list[memoryview]) -> tuple[int, int]:
        """Append bytes; return their place, (start, end)."""
        with self._lock, naming(tempfile.gettempdir()):
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it goes with the spool
            start = self._end
            for chunk in chunks:
                done = 0
                while done < len(chunk):
                    done += os.pwrite(self._file.fileno(), chunk[done:], self._end + done)
                self._end += len(chunk)
            return start, self._end

    def get(self, place: tuple[int, int]) -> bytes:
        """Return the bytes of a place."""
        start, end = place
        pieces = []
        while start < end:
            piece = os.pread(self._file.fileno(), end - start, start)
            if not piece:
                raise OSError("the temporary file is shorter than what was written to it")
            pieces.append(piece)
            start += len(piece)
        return b"".join(pieces)


class RemoteSink(Buffered):
    """See `tfrecord_io.storage.protocol.Sink`.

    Parameters
    ----------
    spool : Spool
        For what waits and does not fit into memory.
    begin : callable
        Starts the transfer; called with the first bytes that are sent.
    """

    __slots__ = ("_begin", "_error", "_places", "_spool", "_transfer")

    def __init__(self, spool: Spool, begin: Callable[[], Transfer]) -> None:
        super().__init__()
        self._spool = spool
        self._begin = begin
        self._transfer: Transfer | None = None
        self._error: BaseException | None = None
        #: What waits: first the places in the spool, then what is in memory.
        self._places: list[tuple[int, int]] = []

    def write(self, data: Any) -> None:
        """Take bytes, and send them if they make up a part."""
        self._hold(data)
        while self._waiting() >= (part := self._part_bytes()):
            self._send(part)

    def spill(self) -> None:
        """Put what is in memory into the spool."""
        if self.buffered:
            self._places.append(self._spool.put(self._take(self.buffered)))

    def close(self) -> str:
        """Send the rest, and wait until all has arrived."""
        self._check()
        if self._waiting() or self._transfer is None:
            self._send(self._waiting())
        assert self._transfer is not None
        return self._transfer.finish()

    def discard(self) -> None:
        """Cancel the transfer."""
        self._places = []
        self._take(self.buffered)
        if self._transfer is not None:
            self._transfer.cancel()

    def _check(self) -> None:
        # The bytes that it had are lost, so what comes behind them makes no file.
        if self._error is not None:
            raise self._error

    def _part_bytes(self) -> int:
        return PART_BYTES if self._transfer is None else self._transfer.part_bytes()

    def _waiting(self) -> int:
        return self.buffered + sum(end - start for start, end in self._places)

    def _send(self, size: int) -> None:
        self._check()
        pieces: list[Piece] = []
        left = size
        while left and self._places:
            start, end = self._places.pop(0)
            if end - start > left:
                self._places.insert(0, (start + left, end))
                end = start + left
            pieces.append(self._spool.get((start, end)))
            left -= end - start
        pieces += self._take(left)
        try:
            if self._transfer is None:
                self._transfer = self._begin()
            self._transfer.add(pieces)
        except BaseException as error:
            self._error = error
            raise
