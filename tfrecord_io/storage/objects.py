"""Google's and Azure's stores of objects, by gcsfs and adlfs.

Their uploads cannot be completed by another process, as those of S3 are, so what is staged is
copied to its place. Folders are marked, see `tfrecord_io.storage.markers`.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterable
from typing import Any

from tfrecord_io.storage.generic import FsspecStorage
from tfrecord_io.storage.markers import MARKER, MarksFolders, folder_of
from tfrecord_io.storage.protocol import FileInfo, Keep, not_found

#: The protocols of those stores.
OBJECT_STORES = {"gs", "gcs", "abfs", "abfss", "az"}

#: What their file systems are told: what other processes do is seen at once.
OPTIONS = {"use_listings_cache": False}

#: The packages whose errors are none of the system's.
_CLIENTS = {"aiohttp", "azure", "gcsfs", "google"}

#: In the names of those of their errors that tell of no answer.
_OF_CREDENTIALS = ("Authentication", "Credentials", "Refresh")

#: So long a copy may take that the store goes on with after its answer.
_COPY_SECONDS = 600.0


class ObjectStorage(MarksFolders, FsspecStorage):
    """An fsspec file system in which folders are only the beginnings of names.

    Parameters
    ----------
    filesystem : fsspec.AbstractFileSystem
        Makes the calls; it keeps no listings, see `OPTIONS`.
    protocol : str
        Its name in URLs.
    """

    def __init__(self, filesystem: Any, protocol: str) -> None:
        super().__init__(_Calls(filesystem, self.url), protocol)

    def __repr__(self) -> str:
        return f"ObjectStorage({self._protocol!r})"

    def list_files(self, path: str, keep: Keep | None = None) -> list[FileInfo]:  # noqa: D102
        found = super().list_files(path, keep)
        return [one for one in found if one.path == path or folder_of(one.path) is None]

    def glob(self, pattern: str) -> dict[str, FileInfo | None]:  # noqa: D102
        found = super().glob(pattern)
        return {path: info for path, info in found.items() if folder_of(path) is None}

    def names(self, path: str) -> Iterable[str]:  # noqa: D102
        return list(self._filesystem.find(path))

    def age_seconds(self, path: str) -> float:  # noqa: D102
        found = self._find(path)
        if not found:
            raise not_found(self.url(path))
        times = (self._told(name, details).modified for name, details in found.items())
        return max(0.0, time.time() - max(changed or 0.0 for changed in times))

    def write_bytes(self, path: str, data: bytes) -> None:  # noqa: D102
        self._filesystem.pipe_file(path, data)

    def rename(self, source: str, target: str) -> None:  # noqa: D102
        size = self.info(source).size
        self._filesystem.cp_file(source, target)
        # Azure may go on with a copy after its answer, and shows it as empty until it is done.
        ends = time.monotonic() + _COPY_SECONDS
        while self.info(target).size != size:
            if time.monotonic() > ends:
                raise OSError(
                    errno.ETIMEDOUT, "the store does not finish the copy", self.url(target)
                )
            time.sleep(0.1)
        self.remove(source)

    def remove_folder(self, path: str) -> bool:  # noqa: D102
        if self.holds_more(path, ""):
            return False
        self.remove(f"{path}/{MARKER}")
        return True

    def remove_tree(self, path: str) -> None:  # noqa: D102
        self.remove(f"{path}/{MARKER}")
        self.remove_files(self.names(path))

    def is_folder(self, path: str) -> bool:  # noqa: D102
        return self._type(path) == "directory"

    def exists(self, path: str) -> bool:  # noqa: D102
        return self._type(path) is not None

    def is_object(self, path: str) -> bool:  # noqa: D102
        return self._type(path) == "file"

    def _check_folder(self, path: str) -> None:
        self.check_marker(path)


class _Calls:
    """A client whose own errors are raised as ``OSError``; what it opens is one as well."""

    def __init__(self, client: Any, url: Callable[[str], str], path: str = "") -> None:
        self._client = client
        self._url = url
        self._path = path

    def __enter__(self) -> _Calls:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if not callable(found) or name == "unstrip_protocol":
            return found

        def call(*arguments: Any, **options: Any) -> Any:
            path = self._path or next(iter(arguments), "")
            try:
                answer = found(*arguments, **options)
            except OSError:
                raise
            except Exception as error:
                refusal = _refusal(error, self._url(path))
                if refusal is None:
                    raise
                raise refusal from None
            return _Calls(answer, self._url, path) if name == "open" else answer

        return call


def _refusal(error: Exception, url: str) -> OSError | None:
    """Return what a client's own error says; the rest of its text may have a signed URL in it."""
    import asyncio

    kind = type(error)
    if kind.__module__.partition(".")[0] not in _CLIENTS and kind is not asyncio.TimeoutError:
        return None
    told = str(getattr(error, "status_code", None) or getattr(error, "code", None))
    status = int(told) if told.isdigit() else None
    if status == 404:
        return not_found(url)
    code = getattr(error, "error_code", None) or kind.__name__
    what = str(getattr(code, "value", code))
    if status is not None:
        number = errno.EACCES if status in (401, 403) else errno.EIO
        return OSError(number, f"the store answers {status} {what}", url)
    if any(word in what for word in _OF_CREDENTIALS):
        return PermissionError(
            errno.EACCES, f"credentials for the store could not be got: {what}", url
        )
    return ConnectionError(errno.EIO, f"the store did not answer: {what}", url)
