"""The clients of S3 and HDFS over stores in memory, whose every call is a step of a schedule.

They do what `tfrecord_io.storage.s3` and `tfrecord_io.storage.hdfs` ask of s3fs and hdfs-native, by
the rules of the stores. A call may fail before it takes effect or after it, or take effect twice,
as when a client tries again because the answer got lost.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

import botocore.exceptions

#: Runs a call of this name, perhaps with a fault; True if it changes the store.
Around: TypeAlias = Callable[[str, bool, Callable[[], Any]], Any]

_Result = TypeVar("_Result")


def s3_errors() -> list[Exception]:
    """Make one of each error that s3fs lets through after its own tries."""
    return [
        OSError(errno.EREMOTEIO, "We encountered an internal error. Please try again."),
        OSError(errno.EBUSY, "Please reduce your request rate."),
        ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
        botocore.exceptions.ReadTimeoutError(endpoint_url="http://store"),
        TimeoutError(errno.ETIMEDOUT, "the answer did not come"),
    ]


def hdfs_errors() -> list[Exception]:
    """Make one of each error that hdfs-native raises."""
    return [
        OSError(errno.EIO, "Input/output error"),
        OSError(errno.ENOSPC, "No space left on device"),
        ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
        RuntimeError("RPCError(org.apache.hadoop.ipc.StandbyException: not active)"),
        TimeoutError(errno.ETIMEDOUT, "the answer did not come"),
    ]


# --- S3 -------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class _Object:
    data: bytes
    etag: str
    metadata: dict[str, str]
    modified: float


@dataclass(kw_only=True)
class _Parts:
    key: str
    metadata: dict[str, str]
    parts: dict[int, bytes] = field(default_factory=dict)


class Bucket:
    """A bucket: what all clients see."""

    def __init__(self, now: Callable[[], float], page: int) -> None:
        self.objects: dict[str, _Object] = {}
        self.uploads: dict[str, _Parts] = {}
        self.page = page
        self._now = now
        self._count = 0

    def put(self, key: str, data: bytes, metadata: dict[str, str]) -> dict[str, Any]:
        self._count += 1
        etag = f'"{hashlib.md5(data).hexdigest()}-{self._count}"'
        self.objects[key] = _Object(data=data, etag=etag, metadata=metadata, modified=self._now())
        return {"ETag": etag}

    def put_object(
        self, Key: str, Body: bytes, IfNoneMatch: str | None = None, **_: Any
    ) -> dict[str, Any]:
        if IfNoneMatch and Key in self.objects:
            raise FileExistsError("At least one of the pre-conditions you specified did not hold")
        return self.put(Key, bytes(Body), {})

    def _object(self, key: str) -> _Object:
        try:
            return self.objects[key]
        except KeyError:
            raise FileNotFoundError("The specified key does not exist.") from None

    def head_object(self, Key: str) -> dict[str, Any]:
        found = self._object(Key)
        size = len(found.data)
        return {"ContentLength": size, "ETag": found.etag, "Metadata": found.metadata}

    def get_object(
        self, Key: str, Range: str | None = None, IfMatch: str | None = None
    ) -> dict[str, Any]:
        found = self._object(Key)
        if IfMatch is not None and IfMatch != found.etag:
            raise http_error(412, errno.EINVAL)
        data = found.data
        if Range is not None:
            start, _, end = Range.removeprefix("bytes=").partition("-")
            if int(start) >= len(data):
                raise http_error(416, errno.EINVAL)
            data = data[int(start) : int(end) + 1]
        return {"Body": _Body(data)}

    def copy_object(self, Key: str, CopySource: dict[str, str]) -> dict[str, Any]:
        found = self._object(CopySource["Key"])
        return self.put(Key, found.data, found.metadata)

    def delete_object(self, Key: str, IfMatch: str | None = None) -> dict[str, Any]:
        if IfMatch is not None and Key in self.objects and IfMatch != self.objects[Key].etag:
            raise http_error(412, errno.EINVAL)
        self.objects.pop(Key, None)
        return {}

    def delete_objects(self, Delete: dict[str, Any]) -> dict[str, Any]:
        for item in Delete["Objects"]:
            self.objects.pop(item["Key"], None)
        return {}

    def list_objects_v2(
        self,
        Prefix: str,
        MaxKeys: int | None = None,
        ContinuationToken: str = "",
        Delimiter: str | None = None,
    ) -> dict[str, Any]:
        found = [key for key in sorted(self.objects) if key.startswith(Prefix)]
        if Delimiter is not None:
            below = [key[len(Prefix) :].partition(Delimiter) for key in found]
            folders = sorted({name + end for name, end, _ in below if end})
            common = [{"Prefix": Prefix + name} for name in folders]
            return {"CommonPrefixes": common, "IsTruncated": False}
        found = [key for key in found if key > ContinuationToken]
        some = found[: min(MaxKeys or self.page, self.page)]
        contents = [
            {
                "Key": key,
                "Size": len(self.objects[key].data),
                "ETag": self.objects[key].etag,
                "LastModified": datetime.fromtimestamp(self.objects[key].modified, timezone.utc),
            }
            for key in some
        ]
        if len(some) == len(found):
            return {"Contents": contents, "IsTruncated": False}
        return {"Contents": contents, "IsTruncated": True, "NextContinuationToken": some[-1]}

    def create_multipart_upload(self, Key: str, Metadata: dict[str, str]) -> dict[str, Any]:
        self._count += 1
        upload_id = f"upload-{self._count}"
        self.uploads[upload_id] = _Parts(key=Key, metadata=Metadata)
        return {"UploadId": upload_id}

    def _upload(self, upload_id: str) -> _Parts:
        try:
            return self.uploads[upload_id]
        except KeyError:
            raise FileNotFoundError("The specified multipart upload does not exist.") from None

    def upload_part(self, Key: str, UploadId: str, PartNumber: int, Body: bytes) -> dict[str, Any]:
        self._upload(UploadId).parts[PartNumber] = Body
        return {"ETag": hashlib.md5(Body).hexdigest()}

    def complete_multipart_upload(
        self, Key: str, UploadId: str, MultipartUpload: dict[str, Any]
    ) -> dict[str, Any]:
        upload = self._upload(UploadId)
        numbers = [part["PartNumber"] for part in MultipartUpload["Parts"]]
        assert upload.key == Key and numbers == sorted(upload.parts)
        del self.uploads[UploadId]
        return self.put(Key, b"".join(upload.parts[n] for n in numbers), upload.metadata)

    def abort_multipart_upload(self, Key: str, UploadId: str) -> dict[str, Any]:
        self._upload(UploadId)
        del self.uploads[UploadId]
        return {}

    def list_multipart_uploads(self, Prefix: str) -> dict[str, Any]:
        found = [
            {"Key": upload.key, "UploadId": upload_id}
            for upload_id, upload in self.uploads.items()
            if upload.key.startswith(Prefix)
        ]
        return {"Uploads": found, "IsTruncated": False}


_READS = {"head_object", "get_object", "list_objects_v2", "list_multipart_uploads"}


class _Body:
    def __init__(self, data: bytes) -> None:
        self._data = data

    async def __aenter__(self) -> _Body:
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    async def read(self) -> bytes:
        return self._data


def http_error(status: int, number: int) -> OSError:
    """Make the error that s3fs makes of an answer."""
    error = OSError(number, f"HTTP status {status}")
    cause = Exception()
    cause.response = {"ResponseMetadata": {"HTTPStatusCode": status}}  # type: ignore[attr-defined]
    error.__cause__ = cause
    return error


class S3Client:
    """What `tfrecord_io.storage.s3.S3Storage` uses of s3fs."""

    loop = None
    s3_additional_kwargs: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, bucket: Bucket, around: Around) -> None:
        self._bucket = bucket
        self._around = around

    async def set_session(self) -> None:
        """There are no options."""

    async def _call_s3(self, method: str, Bucket: str, **arguments: Any) -> Any:
        del Bucket
        call = getattr(self._bucket, method)
        place = arguments.get("Key", arguments.get("Prefix", ""))
        return self._around(f"{method} {place}", method not in _READS, lambda: call(**arguments))


# --- HDFS -----------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Status:
    """What hdfs-native tells of a file or folder."""

    path: str
    isdir: bool
    length: int
    modification_time: int


@dataclass(eq=False, kw_only=True)
class _Node:
    #: None for a folder.
    data: bytes | None
    modified: float
    is_open: bool = False


class NameNode:
    """A cluster: what all clients see."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.nodes: dict[str, _Node] = {}
        self._now = now

    def node(self, path: str) -> _Node:
        found = self.nodes.get(path)
        if found is None:
            raise FileNotFoundError(f"File does not exist: {path}")
        return found

    def is_folder(self, path: str) -> bool:
        return not path or (path in self.nodes and self.nodes[path].data is None)

    def below(self, path: str) -> list[str]:
        return sorted(one for one in self.nodes if one.startswith(f"{path}/"))

    def check_parent(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        if not self.is_folder(parent):
            raise FileNotFoundError(f"Parent directory doesn't exist: {parent}")

    def status(self, path: str) -> Status:
        node = self.node(path)
        length = 0 if node.data is None or node.is_open else len(node.data)
        return Status(
            path=path,
            isdir=node.data is None,
            length=length,
            modification_time=int(node.modified * 1000),
        )

    def list_status(self, path: str) -> list[Status]:
        if not self.is_folder(path):
            return [self.status(path)]
        start = len(path) + 1
        return [self.status(one) for one in self.below(path) if "/" not in one[start:]]

    def mkdirs(self, path: str, parents: bool) -> None:
        if not parents:
            self.check_parent(path)
        names = path.split("/")[1:]
        for depth in range(1, len(names) + 1):
            one = "/" + "/".join(names[:depth])
            if one in self.nodes and not self.is_folder(one):
                raise FileExistsError(f"Path is not a directory: {one}")
            self.nodes.setdefault(one, _Node(data=None, modified=self._now()))

    def create(self, path: str) -> _Node:
        self.check_parent(path)
        if self.is_folder(path):
            raise FileExistsError(f"{path} already exists as a directory")
        self.nodes[path] = _Node(data=b"", modified=self._now(), is_open=True)
        return self.nodes[path]

    def rename(self, source: str, target: str, overwrite: bool) -> None:
        node = self.node(source)
        self.check_parent(target)
        if target in self.nodes:
            if not overwrite:
                raise FileExistsError(f"rename destination {target} already exists")
            assert not self.is_folder(target) and not self.is_folder(source)
        assert node.data is not None
        del self.nodes[source]
        self.nodes[target] = node

    def delete(self, path: str, recursive: bool) -> bool:
        if path not in self.nodes:
            return False
        below = self.below(path)
        if below and not recursive:
            raise RuntimeError(
                "RPCError(org.apache.hadoop.fs.PathIsNotEmptyDirectoryException: is non empty)"
            )
        for one in [*below, path]:
            del self.nodes[one]
        return True


class HdfsClient:
    """What `tfrecord_io.storage.hdfs.HdfsStorage` uses of hdfs-native."""

    def __init__(self, name_node: NameNode, around: Around) -> None:
        self._node = name_node
        self._around = around
        self.client = self

    def unstrip_protocol(self, path: str) -> str:
        return f"hdfs://cluster{path}"

    def get_file_info(self, path: str) -> Status:
        return self._do(f"get_file_info {path}", False, lambda: self._node.status(path))

    def list_status(self, path: str) -> Iterator[Status]:
        return iter(self._do(f"list_status {path}", False, lambda: self._node.list_status(path)))

    def mkdirs(self, path: str, permission: int, create_parent: bool) -> None:
        self._do(f"mkdirs {path}", True, lambda: self._node.mkdirs(path, create_parent))

    def create(self, path: str, options: Any) -> _Writer:
        assert options.overwrite and not options.create_parent
        made = self._do(f"create {path}", True, lambda: self._node.create(path))
        return _Writer(self._node, path, made, self._around)

    def rename(self, source: str, target: str, overwrite: bool) -> None:
        self._do(
            f"rename {source} {target}", True, lambda: self._node.rename(source, target, overwrite)
        )

    def delete(self, path: str, recursive: bool) -> bool:
        return self._do(f"delete {path}", True, lambda: self._node.delete(path, recursive))

    def read(self, path: str) -> _Reader:
        return self._do(f"read {path}", False, lambda: _Reader(self._node.node(path), self._around))

    def _do(self, name: str, changes: bool, call: Callable[[], _Result]) -> _Result:
        found: _Result = self._around(name, changes, call)
        return found


class _Writer:
    def __init__(self, name_node: NameNode, path: str, node: _Node, around: Around) -> None:
        self._name_node = name_node
        self._path = path
        self._node = node
        self._around = around

    def _check(self) -> None:
        # A file that was removed or created anew has another node; closing twice is fine.
        if self._node not in self._name_node.nodes.values():
            raise FileNotFoundError(f"File does not exist: {self._path} (does not have open files)")

    def write(self, data: bytes) -> int:
        assert self._node.data is not None
        self._node.data += bytes(data)
        return len(data)

    def hsync(self) -> None:
        return

    def close(self) -> None:
        def close() -> None:
            self._check()
            self._node.is_open = False

        self._around(f"close {self._path}", True, close)


class _Reader:
    def __init__(self, node: _Node, around: Around) -> None:
        if node.data is None:
            raise RuntimeError("Path is a directory")
        self._data = node.data
        self._around = around

    def __len__(self) -> int:
        return len(self._data)

    def read_range(self, start: int, length: int) -> bytes:
        return bytes(self._around("read_range", False, lambda: self._data[start : start + length]))
