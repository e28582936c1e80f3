"""S3 by s3fs: parts are uploaded by tasks and completed by the driver, so that no byte is copied.

Invariants
----------
- Every call goes straight to the store: listings that s3fs keeps are never used.
- Folders are marked, see `tfrecord_io.storage.markers`.
- An upload bears a random mark as metadata, by which an object says whether that upload made it. So
  completing can be repeated, and an answer that got lost is found out by looking.
- A file's version is its ETag.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, BinaryIO, NamedTuple, TypeVar
from urllib.parse import urlsplit

import pyarrow as pa

from tfrecord_io.errors import CommitStateUnknownError, LimitExceededError, OptionError
from tfrecord_io.parallel import each
from tfrecord_io.storage.markers import MARKER, MARKER_BESIDE, MarksFolders, folder_of
from tfrecord_io.storage.protocol import (
    FileInfo,
    Keep,
    Sink,
    StagesBy,
    Upload,
    as_listed,
    check_names,
    check_version,
    error_number,
    is_a_folder,
    limited,
    may_not_change,
    not_found,
    staged_file_is_gone,
)
from tfrecord_io.storage.range_file import open_by_ranges
from tfrecord_io.storage.remote_sink import PART_BYTES, Piece, RemoteSink, Spool
from tfrecord_io.storage.sending import in_flight

#: S3 takes 10,000 parts of a file; they grow by half-way marks, so that 496 GiB fit in.
_MAX_PARTS = 10_000
_PARTS_OF_A_SIZE = 2_000

#: What a key may hold, and lists and a request to delete several may not: https://www.w3.org/TR/xml/#charsets
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_MARK = "tfrecord-io-upload"
_DELETE_AT_ONCE = 1000

#: How servers refuse a condition that they do not know.
_UNKNOWN_CONDITION = (400, 501)

#: Tries of a call whose answer got lost, and of a body that broke off.
_TRIES = 5

#: A body is read so much at a time.
_READ_BYTES = 1024 * 1024

_Result = TypeVar("_Result")


class S3Storage(MarksFolders):
    """A bucket and what is in it; a path is ``bucket/key``.

    Parameters
    ----------
    filesystem : s3fs.S3FileSystem
        Makes the calls.
    """

    stages_by: StagesBy = "upload"
    checks_ranges = True
    concurrency = close_concurrency = 32

    def __init__(self, filesystem: Any) -> None:
        self._filesystem = filesystem
        self._spool = Spool()

    def __repr__(self) -> str:
        return "S3Storage()"

    def url(self, path: str) -> str:  # noqa: D102 - the protocol has the docstrings
        return f"s3://{path}"

    def check_target(self, path: str) -> None:  # noqa: D102
        key = _key(path)
        if key:
            check_names(self.url(path), key)
        if "\\" in key or _NOT_IN_XML.search(key):
            raise OptionError(
                f"{self.url(path)!r} has a backslash, which some servers take for a slash, or a "
                "character that has no place in a list of uploads; write to another key"
            )

    # --- looking ----------------------------------------------------------------------------------

    def list_files(self, path: str, keep: Keep | None = None) -> list[FileInfo]:  # noqa: D102
        while True:
            infos = []
            is_there = not _key(path)
            for info in self._list(f"{path}/"):
                is_there = True
                below = info.path[len(path) + 1 :]
                if folder_of(below) is None and (keep is None or all(map(keep, below.split("/")))):
                    infos.append(info)
            if is_there:
                return sorted(infos, key=lambda info: info.path)
            # It may have been made since: then it is a folder now.
            with contextlib.suppress(IsADirectoryError):
                return [self.info(path)]

    def _list(self, prefix: str, limit: int | None = None) -> Iterator[FileInfo]:
        bucket = prefix.partition("/")[0]
        for page in self._pages(prefix, **({} if limit is None else {"MaxKeys": limit})):
            for item in page.get("Contents", ()):
                yield _info(f"{bucket}/{item['Key']}", item["Size"], item)
            if limit is not None:
                return

    def _pages(self, prefix: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        while True:
            page = self._call("list_objects_v2", prefix, as_prefix=True, **arguments)
            yield page
            if not page.get("IsTruncated"):
                return
            arguments["ContinuationToken"] = page["NextContinuationToken"]

    def info(self, path: str) -> FileInfo:  # noqa: D102
        if not _key(path):
            raise is_a_folder(self.url(path))
        try:
            head = self._call("head_object", path)
        except (FileNotFoundError, PermissionError):
            if self.is_folder(path):
                raise is_a_folder(self.url(path)) from None
            raise
        return _info(path, head["ContentLength"], head)

    def is_folder(self, path: str) -> bool:  # noqa: D102
        try:
            # A bucket is one even if it is empty.
            return next(self._list(f"{path}/", limit=1), None) is not None or not _key(path)
        except FileNotFoundError:
            return False

    def exists(self, path: str) -> bool:  # noqa: D102
        return self._head(path) is not None or self.is_folder(path)

    def is_object(self, path: str) -> bool:  # noqa: D102
        return self._head(path) is not None

    def _head(self, path: str) -> dict[str, Any] | None:
        if not _key(path):
            return None
        try:
            return self._call("head_object", path)
        except FileNotFoundError:
            return None

    def open_read(self, path: str, version: str | None = None) -> BinaryIO:  # noqa: D102
        return open_by_ranges(self, path, version)

    def read_range(  # noqa: D102
        self, path: str, start: int, end: int, version: str | None = None
    ) -> bytes | memoryview:
        more = {} if version is None else {"IfMatch": version}
        try:
            with as_listed(self.url(path), version):
                wanted = f"bytes={start}-{end - 1}"
                return self._get(path, end - start, Range=wanted, **more)
        except OSError as error:
            if version is not None and _status(error) == 412:
                check_version(self.url(path), version, "")
            raise

    def read_bytes(self, path: str, limit: int) -> bytes:  # noqa: D102
        try:
            data = bytes(self._get(path, limit + 1, Range=f"bytes=0-{limit}"))
            return limited(data, limit, self.url(path))
        except OSError as error:
            if _status(error) == 416:
                return b""
            raise

    def local_path(self, path: str) -> str | None:  # noqa: D102
        return None

    def glob(self, pattern: str) -> dict[str, FileInfo | None]:  # noqa: D102
        self._filesystem.invalidate_cache()
        found = self._run(lambda: self._filesystem._glob(pattern, detail=True), pattern)
        fitting: dict[str, FileInfo | None] = {}
        for path, details in sorted(found.items()):
            is_folder = details["type"] == "directory"
            # A folder may have any name.
            if folder_of(path.removesuffix(MARKER_BESIDE) if is_folder else path) is None:
                fitting[path] = None if is_folder else _info(path, details["size"], details)
        return fitting

    def names(self, path: str) -> Iterable[str]:  # noqa: D102
        return (found.path for found in self._list(f"{path}/"))

    def folders(self, path: str, start: str) -> list[str]:  # noqa: D102
        found = []
        for page in self._pages(f"{path}/{start}", Delimiter="/"):
            found += [one["Prefix"] for one in page.get("CommonPrefixes") or ()]
        names = sorted(prefix.rstrip("/").rpartition("/")[2] for prefix in found)
        # SeaweedFS also names those that are empty by now.
        return [name for name in names if self.is_folder(f"{path}/{name}")]

    def age_seconds(self, path: str) -> float:  # noqa: D102
        newest = None
        for page in self._pages(path):
            for item in page.get("Contents", ()):
                if (f"{item['Key']}/").startswith(f"{_key(path)}/"):
                    changed = item["LastModified"].timestamp()
                    newest = changed if newest is None else max(newest, changed)
        if newest is None:
            raise not_found(self.url(path))
        return max(0.0, time.time() - float(newest))

    # --- changing ---------------------------------------------------------------------------------

    def check_changeable(self, folders: Mapping[str, Collection[str]]) -> None:  # noqa: D102
        # What is staged could be written; whether files may be removed is not known yet. Removing
        # what is not there is allowed to those only who may remove it.
        folder = next(iter(folders))
        try:
            self.remove(f"{folder}/{MARKER}")
        except PermissionError as error:
            raise may_not_change(self.url(folder)) from error

    def create_sink(  # noqa: D102
        self, path: str, final: str, note: str | None = None
    ) -> Sink:
        if not _key(final):
            raise is_a_folder(self.url(final))
        attempt = None if path == final else path.rpartition("/")[0]
        return RemoteSink(self._spool, lambda: _PartsUpload(self, final, attempt, note))

    def write_bytes(self, path: str, data: bytes) -> None:  # noqa: D102
        self._call("put_object", path, Body=data)

    def put_if_none(self, path: str, data: bytes) -> bool:  # noqa: D102
        for left in range(_TRIES - 1, -1, -1):
            try:
                self._call("put_object", path, Body=data, IfNoneMatch="*")
            except OSError:  # noqa: PERF203 - a try each
                # Whatever the answer was, or if none came: what does the store hold?
                try:
                    return self._get(path) == data
                except FileNotFoundError:
                    if left:
                        continue
                raise
            else:
                return True
        raise AssertionError("not reached")

    def rename(self, source: str, target: str) -> None:  # noqa: D102
        bucket = source.partition("/")[0]
        copied = {"Bucket": bucket, "Key": _key(source)}
        # A key of the user's own has to be told once more for what it is read from.
        keys = {
            f"CopySource{name}": value
            for name, value in self._filesystem.s3_additional_kwargs.items()
            if name.startswith("SSECustomer")
        }
        self._call("copy_object", target, CopySource=copied, **keys)
        self.remove(source)

    def publish(self, staged: str, final: str) -> None:  # noqa: D102
        ticket = _Ticket.loads(staged, self.url(final))
        parts = [{**part, "PartNumber": number} for number, part in enumerate(ticket.parts, 1)]
        try:
            self._call(
                "complete_multipart_upload",
                final,
                UploadId=ticket.upload_id,
                MultipartUpload={"Parts": parts},
            )
        except OSError as error:
            head = self._head(final)
            if head is not None and head.get("Metadata", {}).get(_MARK) == ticket.mark:
                return
            if isinstance(error, FileNotFoundError):
                raise staged_file_is_gone(self.url(final)) from error
            raise

    def uploads(self, path: str) -> list[Upload]:  # noqa: D102
        bucket = path.partition("/")[0]
        found: list[Upload] = []
        more: dict[str, Any] = {}
        while True:
            page = self._call("list_multipart_uploads", f"{path}/", as_prefix=True, **more)
            for item in page.get("Uploads") or ():
                # Some servers do not hold to the prefix.
                name = f"{bucket}/{item['Key']}"
                if name.startswith(f"{path}/"):
                    found.append(Upload(path=name, upload_id=item["UploadId"]))
            if not page.get("IsTruncated"):
                return found
            more = {
                "KeyMarker": page["NextKeyMarker"],
                "UploadIdMarker": page["NextUploadIdMarker"],
            }

    def upload_id(self, staged: str) -> str:  # noqa: D102
        return _Ticket.loads(staged, "").upload_id

    def abort_uploads(self, uploads: Iterable[Upload]) -> None:  # noqa: D102
        def abort(upload: Upload) -> None:
            with contextlib.suppress(FileNotFoundError):
                self._call("abort_multipart_upload", upload.path, UploadId=upload.upload_id)

        each(abort, uploads, self.concurrency)

    def remove(self, path: str) -> None:  # noqa: D102
        with contextlib.suppress(FileNotFoundError):
            self._call("delete_object", path)

    def release(self, path: str, scratch: str) -> None:  # noqa: D102
        del scratch
        head = self._head(path)
        if head is None:
            return
        try:
            self._call("delete_object", path, IfMatch=head["ETag"])
        except FileNotFoundError:
            return
        except OSError as error:
            if _status(error) in _UNKNOWN_CONDITION:
                self.remove(path)
            elif _status(error) != 412:
                raise

    def remove_files(self, paths: Iterable[str]) -> None:  # noqa: D102
        keys = []
        for path in paths:
            if _NOT_IN_XML.search(path):
                self.remove(path)
            else:
                keys.append(path)
        for start in range(0, len(keys), _DELETE_AT_ONCE):
            some = keys[start : start + _DELETE_AT_ONCE]
            bucket = some[0].partition("/")[0]
            objects = [{"Key": _key(path)} for path in some]
            done = self._call("delete_objects", bucket, Delete={"Objects": objects, "Quiet": True})
            for error in done.get("Errors") or ():
                if error.get("Code") not in ("NoSuchKey", "404"):
                    url = self.url(f"{bucket}/{error.get('Key')}")
                    raise OSError(errno.EIO, f"it could not be removed: {error.get('Code')}", url)

    def remove_folder(self, path: str) -> bool:  # noqa: D102
        found = [info.path for info in self._list(f"{path}/", limit=3)]
        if {*found} <= {f"{path}/", f"{path}/{MARKER}"}:
            self.remove_files(found)
            return True
        return False

    def remove_tree(self, path: str) -> None:  # noqa: D102
        self.remove(f"{path}/{MARKER}")
        self.remove_files(self.names(path))

    def sync_folders(self, paths: Iterable[str]) -> None:  # noqa: D102
        return

    # --- calls ------------------------------------------------------------------------------------

    def _call(
        self, method: str, path: str, *, as_prefix: bool = False, **arguments: Any
    ) -> dict[str, Any]:
        bucket, key = path.partition("/")[0], _key(path)
        if as_prefix:
            arguments["Prefix"] = key
        elif method != "delete_objects":
            arguments["Key"] = key
        answer: dict[str, Any] = self._run(
            lambda: self._filesystem._call_s3(method, Bucket=bucket, **arguments), path
        )
        return answer

    def _get(self, path: str, most: int = 0, **arguments: Any) -> bytes | memoryview:
        """Return what a call gives; if that is large, and not over `most`, without a copy of it."""
        import s3fs.core

        bucket, key = path.partition("/")[0], _key(path)

        async def get() -> bytes | memoryview:
            for left in range(_TRIES - 1, -1, -1):
                answer = await self._filesystem._call_s3(
                    "get_object", Bucket=bucket, Key=key, **arguments
                )
                try:
                    # Not what is entered: up to aiobotocore 2 that reads no parts.
                    body = answer["Body"]
                    async with body:
                        length = answer.get("ContentLength", 0)
                        if _READ_BYTES < length <= most:
                            return await _filled(body, length)
                        return bytes(await body.read())
                except s3fs.core.S3_RETRYABLE_ERRORS:
                    if not left:
                        raise
                    await asyncio.sleep(0.1)
            raise AssertionError("not reached")

        found: bytes | memoryview = self._run(get, path)
        return found

    def _run(self, call: Callable[[], Any], path: str) -> Any:
        """Wait for a call; give what the client raises as ``OSError`` that names the path."""
        import aiohttp
        import botocore.exceptions as botocore
        import fsspec.asyn

        url = self.url(path.rstrip("/"))

        async def run() -> Any:
            try:
                # Made once, by the first call; it is here that s3fs looks at its options.
                await self._filesystem.set_session()
            except (TypeError, AttributeError, ValueError) as error:
                # Other texts may tell what is secret.
                why: object = error if isinstance(error, TypeError) else type(error).__name__
                if isinstance(error, ValueError) and "endpoint" in str(error):
                    why = "the URL of the endpoint is malformed"
                raise _unsuitable(why) from None
            return await call()

        try:
            return fsspec.asyn.sync(self._filesystem.loop, run)
        except botocore.NoCredentialsError as error:
            raise PermissionError(
                errno.EACCES,
                "no credentials for S3 were found: give key and secret, or profile, as "
                "storage_options, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
                "AWS_PROFILE; public buckets are read with anon=True",
                url,
            ) from error
        except (
            botocore.CredentialRetrievalError,
            botocore.TokenRetrievalError,
            botocore.MetadataRetrievalError,
            botocore.SSOError,
            botocore.LoginError,
        ) as error:
            what = f"credentials for S3 could not be got: {type(error).__name__}"
            raise PermissionError(errno.EACCES, what, url) from error
        except (
            botocore.HTTPClientError,
            botocore.ConnectionError,
            botocore.IncompleteReadError,
            botocore.ChecksumError,
            botocore.FlexibleChecksumError,
            aiohttp.ClientError,
            asyncio.TimeoutError,
        ) as error:
            client = getattr(self._filesystem, "_s3", None)
            at = f" at {_origin(client.meta.endpoint_url)}" if client is not None else ""
            what = f"S3{at} did not answer: {type(error).__name__}"
            raise ConnectionError(errno.EIO, what, url) from _without_login(error)
        except botocore.BotoCoreError as error:
            why = _OPTION_ERRORS.get(type(error).__name__, type(error).__name__)
            raise _unsuitable(why) from None
        except OSError as error:
            # What is told of the answer is found in the cause; see `_status`.
            number, cause = error_number(error), error.__cause__ or error
            is_plain = _response(error).get("Error", {}).get("Code") in ("404", "NoSuchKey")
            what = os.strerror(number) if is_plain else str(error.args[-1] if error.args else error)
            kind = ConnectionError if isinstance(error, ConnectionError) else OSError
            raise kind(number, what.rstrip("."), url) from cause


#: What botocore has against options, where its name of it is not plain enough.
_OPTION_ERRORS = {
    "PartialCredentialsError": "key and secret go together, and one of them is missing",
    "ProfileNotFound": "the files with AWS settings have no profile of that name",
    "EndpointResolutionError": "the URL of the endpoint is malformed",
}


def _unsuitable(why: object) -> OptionError:
    return OptionError(
        f"storage_options do not suit S3: {why}; see s3fs.S3FileSystem for those there are, such "
        "as key, secret, endpoint_url and client_kwargs"
    )


def _without_login(error: BaseException) -> BaseException | None:
    """Return an error, or None if it or what led to it may show the password of a URL."""
    link: BaseException | None = error
    while link is not None and "@" not in str(link):
        link = link.__cause__ or link.__context__
    return error if link is None else None


class _Ticket(NamedTuple):
    """What completes an upload, as text; of each part its ETag, and checksums."""

    upload_id: str
    mark: str
    parts: list[dict[str, str]]

    def dumps(self) -> str:
        return json.dumps(self)

    @staticmethod
    def loads(text: str, url: str) -> _Ticket:
        try:
            upload_id, mark, parts = json.loads(text)
            parts = [{str(name): str(value) for name, value in part.items()} for part in parts]
        except (ValueError, TypeError, AttributeError) as error:
            raise CommitStateUnknownError(
                "the upload of a decided commit cannot be understood", path=url
            ) from error
        return _Ticket(str(upload_id), str(mark), parts)


class _PartsUpload:
    """An upload in parts, several of them at a time."""

    def __init__(
        self, storage: S3Storage, final: str, attempt: str | None, note: str | None
    ) -> None:
        self._storage = storage
        self._final = final
        self._note = note
        self._mark = secrets.token_hex(16)
        self._parts: list[Future[dict[str, str]]] = []
        # Beside what s3_additional_kwargs may say.
        told = storage._filesystem.s3_additional_kwargs
        metadata = {**(told.get("Metadata") or {}), _MARK: self._mark}
        # Who completes an upload with a checksum that was asked for has to tell that of each part.
        self._tells = ("ETag", "Checksum") if "ChecksumAlgorithm" in told else ("ETag",)
        made = storage._call("create_multipart_upload", final, Metadata=metadata)
        self._upload = Upload(path=final, upload_id=made["UploadId"])
        try:
            if note is not None:
                storage.write_bytes(note, self._upload.upload_id.encode())
            # An abort removes the marker before it looks for uploads.
            if attempt is not None:
                storage.check_marker(attempt)
        except BaseException:
            self.cancel()
            raise

    def part_bytes(self) -> int:
        return PART_BYTES << min(4, len(self._parts) // _PARTS_OF_A_SIZE)

    def add(self, pieces: list[Piece]) -> None:
        number = len(self._parts) + 1
        if number > _MAX_PARTS:
            raise LimitExceededError(
                "a file on S3 has at most 10,000 parts, 496 GiB; write smaller ones with "
                "max_records_per_file",
                path=self._storage.url(self._final),
            )
        for part in self._parts:
            if part.done():
                # An error is told at the next part, not after the last one.
                part.result()
        data = b"".join(pieces)
        self._parts.append(in_flight(lambda: self._send(number, data)))

    def _send(self, number: int, data: bytes) -> dict[str, str]:
        # botocore adds a CRC-32, which the store checks.
        answer = self._storage._call(
            "upload_part",
            self._upload.path,
            UploadId=self._upload.upload_id,
            PartNumber=number,
            Body=data,
        )
        return {name: text for name, text in answer.items() if name.startswith(self._tells)}

    def finish(self) -> str:
        parts = [part.result() for part in self._parts]
        return _Ticket(self._upload.upload_id, self._mark, parts).dumps()

    def cancel(self) -> None:
        for part in self._parts:
            part.cancel()
            with contextlib.suppress(BaseException):
                part.result()
        with contextlib.suppress(OSError):
            self._storage.abort_uploads([self._upload])
            if self._note is not None:
                self._storage.remove(self._note)


def _info(path: str, size: Any, details: Mapping[str, Any]) -> FileInfo:
    changed = details.get("LastModified")
    return FileInfo(
        path=path,
        size=int(size),
        version=str(details["ETag"]),
        modified=None if changed is None else float(changed.timestamp()),
    )


async def _filled(body: Any, length: int) -> memoryview:
    """Return a body, each piece copied to its place as long as it is in the cache.

    To join all pieces at the end takes half as long again.
    """
    buffer = memoryview(pa.allocate_buffer(length)).cast("B")
    filled = 0
    while filled < length:
        piece = await body.read(min(_READ_BYTES, length - filled))
        if not piece:
            break
        buffer[filled : filled + len(piece)] = piece
        filled += len(piece)
    return buffer[:filled]


def _key(path: str) -> str:
    return path.partition("/")[2]


def _status(error: OSError) -> int | None:
    """Return the HTTP status of an error that s3fs made of the store's answer."""
    status = _response(error).get("ResponseMetadata", {}).get("HTTPStatusCode")
    return int(status) if status is not None else None


def _response(error: OSError) -> dict[str, Any]:
    return getattr(error.__cause__, "response", None) or {}


def _origin(url: str) -> str:
    """Return a URL's scheme, host and port."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
