"""Google's and Azure's stores of objects, by gcsfs and adlfs.

Their uploads cannot be completed by another process, as those of S3 are, so what is staged is
copied to its place. Folders are marked, see `tfrecord_io.storage.markers`.

A file's version is its generation or its ETag, and a range is asked for on condition of it, in one
request.
"""

from __future__ import annotations

import contextlib
import errno
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, BinaryIO, TypeVar

from tfrecord_io.storage.generic import Calls, FsspecStorage, is_folder_entry
from tfrecord_io.storage.markers import MARKER, MarksFolders, folder_of
from tfrecord_io.storage.protocol import FileInfo, Keep, as_listed, check_version, not_found
from tfrecord_io.storage.range_file import open_by_ranges

#: What their file systems are told: what other processes do is seen at once.
OPTIONS = {"use_listings_cache": False}

#: The packages whose errors are none of the system's.
_CLIENTS = {"aiohttp", "azure", "gcsfs", "google"}

#: In the names of those of their errors that tell of no answer.
_OF_CREDENTIALS = ("Authentication", "Credentials", "Refresh")

#: So long a copy may take that Azure goes on with after its answer.
_COPY_SECONDS = 600.0

T = TypeVar("T")


class ObjectStorage(MarksFolders, FsspecStorage, ABC):
    """An fsspec file system in which folders are only the beginnings of names.

    Parameters
    ----------
    filesystem : fsspec.AbstractFileSystem
        Makes the calls; it keeps no listings, see `OPTIONS`.
    protocol : str
        Its name in URLs.
    """

    checks_ranges = True
    concurrency = close_concurrency = 32

    def __init__(self, filesystem: Any, protocol: str) -> None:
        super().__init__(Calls(filesystem, lambda path: _answers(self.url(path))), protocol)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._protocol!r})"

    def list_files(self, path: str, keep: Keep | None = None) -> list[FileInfo]:  # noqa: D102
        found = super().list_files(path, keep)
        return [one for one in found if one.path == path or folder_of(one.path) is None]

    def glob(self, pattern: str) -> dict[str, FileInfo | None]:  # noqa: D102
        found = super().glob(pattern)
        return {path: info for path, info in found.items() if folder_of(path) is None}

    def open_read(self, path: str, version: str | None = None) -> BinaryIO:  # noqa: D102
        return open_by_ranges(self, path, version)

    def read_range(  # noqa: D102
        self, path: str, start: int, end: int, version: str | None = None
    ) -> bytes:
        with as_listed(self.url(path), version):
            return self._read_range(path, start, end, version)

    @abstractmethod
    def _read_range(self, path: str, start: int, end: int, version: str | None) -> bytes:
        """Read a range of the version asked for; ``FileNotFoundError`` may say that it is gone."""

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

    @abstractmethod
    def is_object(self, path: str) -> bool:  # noqa: D102
        ...

    def _check_folder(self, path: str) -> None:
        self.check_marker(path)


class GoogleStorage(ObjectStorage):
    """Google's store; of zonal buckets gcsfs gives the latest version, whatever is asked for."""

    def is_object(self, path: str) -> bool:  # noqa: D102
        # Its content, which a marker has none of: for more gcsfs lists as well.
        try:
            self._filesystem.cat_file(path)
        except FileNotFoundError:
            return False
        return True

    def rename(self, source: str, target: str) -> None:  # noqa: D102
        self._filesystem.cp_file(source, target)
        self.remove(source)

    def _read_range(self, path: str, start: int, end: int, version: str | None) -> bytes:
        return bytes(self._filesystem.cat_file(path, start=start, end=end, generation=version))

    def _version(self, size: int, details: Mapping[str, Any]) -> str:
        return str(details["generation"])


class AzureStorage(ObjectStorage):
    """Azure's store; by the client of adlfs where that sets no conditions, or waits for no copy."""

    def is_object(self, path: str) -> bool:  # noqa: D102
        async def look(blob: Any) -> bool:
            return bool(await blob.exists())

        return self._ask(path, look)

    def rename(self, source: str, target: str) -> None:  # noqa: D102
        import asyncio

        async def copy(blob: Any) -> str:
            ends = time.monotonic() + _COPY_SECONDS
            async with self._blob(target) as made:
                status = str((await made.start_copy_from_url(blob.url))["copy_status"])
                while status == "pending" and time.monotonic() < ends:
                    await asyncio.sleep(0.1)
                    status = str((await made.get_blob_properties()).copy.status)
            return status

        status = self._ask(source, copy)
        if status != "success":
            raise OSError(
                errno.EIO, f"the store does not finish the copy ({status})", self.url(target)
            )
        self.remove(source)

    def remove_folder(self, path: str) -> bool:  # noqa: D102
        if not super().remove_folder(path):
            return False
        self._remove_empty(path)
        return True

    def remove_tree(self, path: str) -> None:  # noqa: D102
        super().remove_tree(path)
        left = self._filesystem.find(path, withdirs=True, detail=True)
        folders = (name for name, details in left.items() if is_folder_entry(name, details))
        for folder in sorted(folders, reverse=True):
            self._remove_empty(folder)
        self._remove_empty(path)

    def _remove_empty(self, folder: str) -> None:
        # Hierarchical namespaces have folders, and keep those that hold something.
        with contextlib.suppress(OSError):
            self.remove(folder)

    def _read_range(self, path: str, start: int, end: int, version: str | None) -> bytes:
        from azure.core import MatchConditions
        from azure.core.exceptions import ResourceModifiedError

        condition: dict[str, Any] = {}
        if version is not None:
            condition = {"etag": version, "match_condition": MatchConditions.IfNotModified}

        async def read(blob: Any) -> bytes:
            try:
                stream = await blob.download_blob(
                    offset=start,
                    length=end - start,
                    max_concurrency=self._filesystem.max_concurrency,
                    **condition,
                    **self._filesystem._timeout_kwargs,
                )
                return bytes(await stream.readall())
            except ResourceModifiedError:
                check_version(self.url(path), version, "")
                raise

        return self._ask(path, read)

    def _version(self, size: int, details: Mapping[str, Any]) -> str:
        # With the quotes that Azure's listings leave out: adlfs puts them there.
        return str(details["etag"])

    def _blob(self, path: str) -> Any:
        container, name, _ = self._filesystem.split_path(path)
        return self._filesystem.service_client.get_blob_client(container, name)

    def _ask(self, path: str, work: Callable[[Any], Awaitable[T]]) -> T:
        """Do what is to be done with an object by Azure's own client of it."""
        import fsspec.asyn

        async def run() -> T:
            async with self._blob(path) as blob:
                return await work(blob)

        with _answers(self.url(path)):
            answer: T = fsspec.asyn.sync(self._filesystem.loop, run)
        return answer


#: By the protocols of those stores.
OBJECT_STORES: dict[str, type[ObjectStorage]] = {
    **dict.fromkeys(("gs", "gcs"), GoogleStorage),
    **dict.fromkeys(("abfs", "abfss", "az"), AzureStorage),
}


@contextlib.contextmanager
def _answers(url: str) -> Iterator[None]:
    """Raise a client's own errors as ``OSError``."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        refusal = _refusal(error, url)
        if refusal is None:
            raise
        raise refusal from None


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
