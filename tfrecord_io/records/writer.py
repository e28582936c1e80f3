"""Writes single files of records, given as bytes, as tf.io.TFRecordWriter does.

Records wait in a list and are framed many at a time by one call of the codec. A local file takes
them in place, so that it holds, after a flush and even if the process is killed, everything up to
it. In a remote store the file appears when it is closed.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import sys
import weakref
import zlib
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Protocol

from tfrecord_io.codec import get_codec
from tfrecord_io.errors import ClosedError, LimitExceededError, UnsupportedTypeError
from tfrecord_io.options import MAX_PAYLOAD_BYTES
from tfrecord_io.records.options import compressor_to_write, options_of
from tfrecord_io.storage import Storage, open_storage
from tfrecord_io.storage.protocol import naming
from tfrecord_io.tf_errors import as_tensorflow, dressed

#: Records wait until they are so many, or their payloads so many bytes.
_WAITING_RECORDS = 1024
_WAITING_BYTES = 256 * 1024

#: The name of a field in the format of a buffer.
_FIELD_NAME = re.compile(":[^:]*:")


class _Target(Protocol):
    """What bytes are written to."""

    def write(self, data: Any) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...
    def discard(self) -> None: ...
    def leave(self) -> None: ...


class _LocalFile:
    def __init__(self, path: str) -> None:
        self._path = path
        # Buffering is what the waiting list does.
        self._file = open(path, "wb", buffering=0)  # noqa: SIM115, PTH123
        self._error: BaseException | None = None

    def write(self, data: Any) -> None:
        self._check()
        view = memoryview(data)
        try:
            with naming(self._path):
                while view:
                    view = view[self._file.write(view) :]
        except BaseException as error:
            self._error = error
            raise

    def flush(self) -> None:
        """Nothing waits here."""
        self._check()

    def close(self) -> None:
        self._check()
        # Network file systems may tell only here that there is no room.
        with naming(self._path):
            self._file.close()

    def _check(self) -> None:
        # The file lacks bytes, so what came behind them could not be read.
        if self._error is not None:
            raise self._error

    def discard(self) -> None:
        self._file.close()

    def leave(self) -> None:
        self._file.close()


class _RemoteFile:
    def __init__(self, storage: Storage, path: str) -> None:
        self._storage = storage
        self._path = path
        storage.check_target(path)
        if storage.has_folders:
            # As TensorFlow's file systems do.
            storage.make_folders(path.rpartition("/")[0])
        self._sink = storage.create_sink(path, path)

    def write(self, data: Any) -> None:
        self._sink.write(data)

    def flush(self) -> None:
        """Nothing shows before the file is closed."""

    def close(self) -> None:
        staged = self._sink.close()
        if self._storage.stages_by == "upload":
            self._storage.publish(staged, self._path)

    def discard(self) -> None:
        self._sink.discard()

    def leave(self) -> None:
        """Let the parent end the transfer."""


#: Writers that are not closed.
_open_writers: weakref.WeakSet[TFRecordWriter] = weakref.WeakSet()


def _after_fork() -> None:
    for writer in list(_open_writers):
        writer._inherit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def _close_all() -> None:
    """Close what is open when the interpreter ends, as long as it can still do so."""
    for writer in list(_open_writers):
        try:
            writer.close()
        # As Python tells of errors where nobody is to catch them.
        except Exception:  # noqa: BLE001, PERF203
            sys.excepthook(*sys.exc_info())


class TFRecordWriter:
    """Writes records, given as bytes, to one file; the arguments of tf.io.TFRecordWriter.

    Parameters
    ----------
    path : str, bytes or path-like
        Local path or fsspec URL; a file there is replaced. In a remote store missing folders are
        made.
    options : TFRecordOptions, str, int or None
        See `TFRecordOptions`; the name or number of a compression will do.
    storage_options : mapping, optional
        For the fsspec file system.

    Raises
    ------
    OptionError
        No such compression.
    FileNotFoundError, PermissionError, IsADirectoryError
        The file cannot be made.

    Notes
    -----
    A context manager, which closes the file. For use by one thread at a time. A process that is
    forked meanwhile leaves the file to its parent, unless it writes to it.

    Examples
    --------
    >>> import tfrecord_io as tfr
    >>> with tfr.TFRecordWriter("memory://writer.tfrecord") as writer:
    ...     writer.write(b"a record")
    """

    def __init__(
        self,
        path: str | bytes | os.PathLike[str],
        options: Any = None,
        *,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._target: _Target | None = None
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        # In a process that was forked: what waited in its parent, until this one writes as well.
        self._inherited: list[bytes] | None = None
        self._stream = compressor_to_write(options_of(options))
        self._codec = get_codec()
        with as_tensorflow():
            storage, inner = open_storage(
                os.fsdecode(path) if isinstance(path, bytes) else path, storage_options
            )
            self._url = storage.url(inner)
            local = storage.local_path(inner)
            self._target = _RemoteFile(storage, inner) if local is None else _LocalFile(local)
        _open_writers.add(self)

    def write(self, record: bytes | str) -> None:
        """Write a record.

        Parameters
        ----------
        record : bytes or str
            Its payload; any bytes-like object will do. Text is written as UTF-8, as TensorFlow
            writes it.

        Raises
        ------
        UnsupportedTypeError
            Something else, such as a message, or text that UTF-8 has no form of.
        LimitExceededError
            More than 2**31 - 1 bytes, which no reader of this package takes; the file is as before.
        ClosedError
            The writer is closed.
        """
        payload = record if type(record) is bytes else _as_bytes(record)
        if len(payload) > MAX_PAYLOAD_BYTES:
            raise LimitExceededError(
                f"the record has {len(payload)} bytes, and readers take at most "
                f"{MAX_PAYLOAD_BYTES}: split it",
                path=self._url,
            )
        waiting = self._waiting
        waiting.append(payload)
        self._waiting_bytes += len(payload)
        if self._waiting_bytes >= _WAITING_BYTES or len(waiting) >= _WAITING_RECORDS:
            self._drain()

    def flush(self) -> None:
        """Give the file everything that was written so far.

        Raises
        ------
        ClosedError
            The writer is closed.
        """
        self._drain()
        assert self._target is not None
        if self._inherited is not None:
            return
        with as_tensorflow():
            if self._stream is not None:
                self._target.write(self._stream.flush(zlib.Z_PARTIAL_FLUSH))
            self._target.flush()

    def close(self) -> None:
        """Make the file complete; once more is fine."""
        if self._target is None:
            return
        target = self._target
        try:
            self._drain()
            if self._inherited is not None:
                target.leave()
                return
            with as_tensorflow():
                if self._stream is not None:
                    target.write(self._stream.flush())
                target.close()
        except BaseException:
            target.discard()
            raise
        finally:
            self._target = None
            _open_writers.discard(self)
            # So that the next record does not wait, but finds the writer closed.
            self._waiting_bytes = _WAITING_BYTES

    def _drain(self) -> None:
        waiting, self._waiting = self._waiting, []
        if self._target is None:
            raise dressed(ClosedError("Writer is closed; open another one", path=self._url))
        self._waiting_bytes = 0
        if not waiting:
            return
        if self._inherited is not None:
            waiting, self._inherited = self._inherited + waiting, None
        data = self._codec.frame_payloads(waiting)
        with as_tensorflow():
            self._target.write(data if self._stream is None else self._stream.compress(data))

    def _inherit(self) -> None:
        """Leave the file to the parent, which would have its records twice, until a write."""
        self._inherited = (self._inherited or []) + self._waiting
        self._waiting = []

    def __enter__(self) -> TFRecordWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # As with TensorFlow's: a writer that was forgotten closes its file. Nobody hears of errors.
        with contextlib.suppress(Exception):
            self.close()


def _as_bytes(record: Any) -> bytes:
    if isinstance(record, str):
        try:
            return record.encode()
        except UnicodeEncodeError as error:
            raise UnsupportedTypeError(
                "a record must be bytes, and this is text that UTF-8 has no form of: character "
                f"{error.start} is {record[error.start]!a}; write it encoded"
            ) from None
    try:
        view = memoryview(record)
    except (TypeError, ValueError):
        raise UnsupportedTypeError(
            f"a record must be bytes, and this is of the type {type(record).__name__}: of a "
            "message, write what its SerializeToString() returns"
        ) from None
    # Of texts TensorFlow's tensors, and NumPy's arrays of objects, hold but addresses.
    if "O" in _FIELD_NAME.sub("", view.format):
        raise UnsupportedTypeError(
            f"a record must be bytes, and this is of the type {type(record).__name__}, which holds "
            "objects: of a tensor of one text, write what its numpy() returns"
        )
    return bytes(view)
