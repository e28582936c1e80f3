"""One contract for all storages, and what only local folders and URLs have."""

from __future__ import annotations

import contextlib
import errno
import functools
import html
import http.server
import io
import os
import random
import re
import shutil
import socket
import stat
import struct
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import traceback
import tracemalloc
import urllib.parse
import uuid
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import aiohttp
import fsspec
import pyarrow as pa
import pyarrow.fs
import pytest
import s3fs
from azure.storage.blob.aio import BlobClient
from botocore.handlers import validate_bucket_name
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem
from fsspec.registry import _registry

import tfrecord_io as tfr
from tests.support.frames import frame as framed
from tests.support.memory_clients import HdfsClient, NameNode, http_error
from tests.support.objects import Objects
from tests.support.servers import Server
from tfrecord_io.commit.job import commit_job
from tfrecord_io.errors import (
    ChecksumError,
    CommitStateUnknownError,
    CorruptDataError,
    CorruptDataWarning,
    DatasetChangedError,
    LayoutError,
    LimitExceededError,
    MissingDependencyError,
    OptionError,
)
from tfrecord_io.layout import is_data_name
from tfrecord_io.storage import LocalStorage, Storage, Tree, open_storage, redact
from tfrecord_io.storage import generic as fsspec_storage
from tfrecord_io.storage.hdfs import HdfsStorage
from tfrecord_io.storage.markers import MARKER
from tfrecord_io.storage.remote_sink import Spool
from tfrecord_io.storage.s3 import S3Storage
from tfrecord_io.writing.attempt import write_task
from tfrecord_io.writing.plan import plan_write


def shown(error: BaseException) -> str:
    """All that is printed of an error."""
    return "".join(traceback.format_exception(error))


def put(storage: Storage, path: str, data: bytes) -> None:
    storage.write_bytes(path, data)


def count_requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that each request of a client by aiohttp is put into."""
    asked: list[str] = []
    request = aiohttp.ClientSession._request

    async def counted(self: Any, method: str, url: Any, **more: Any) -> Any:
        asked.append(f"{method} {url}")
        return await request(self, method, url, **more)

    monkeypatch.setattr(aiohttp.ClientSession, "_request", counted)
    return asked


class StorageContract:
    """What every storage does alike."""

    @pytest.fixture
    def place(self, tmp_path: Path) -> Iterator[tuple[Storage, str]]:
        raise NotImplementedError

    def test_a_sink_makes_a_file(self, place: tuple[Storage, str]) -> None:
        storage, root = place
        storage.make_folder(f"{root}/job")
        sink = storage.create_sink(f"{root}/job/0", f"{root}/f")
        sink.write(b"ab")
        sink.spill()
        sink.write(memoryview(b"cd"))
        assert sink.size == 4
        staged = sink.close()
        assert sink.buffered == 0
        assert not storage.exists(f"{root}/f")
        for _ in range(2):
            storage.publish(staged, f"{root}/f")
        assert storage.read_range(f"{root}/f", 1, 3) == b"bc"
        assert storage.read_range(f"{root}/f", 3, 9) == b"d"
        assert storage.info(f"{root}/f").size == 4
        with storage.open_read(f"{root}/f") as file:
            file.seek(1)
            assert file.read(2) == b"bc"

    def test_what_is_staged_and_lost(self, place: tuple[Storage, str]) -> None:
        storage, root = place
        storage.make_folder(f"{root}/job")
        sink = storage.create_sink(f"{root}/job/0", f"{root}/f")
        sink.write(b"ab")
        staged = sink.close()
        sink.discard()
        storage.abort_uploads(storage.uploads(root))
        storage.remove_tree(f"{root}/job")
        with pytest.raises(CommitStateUnknownError, match="write the data set again"):
            storage.publish(staged, f"{root}/f")

    def test_no_folder_no_file(self, place: tuple[Storage, str]) -> None:
        storage, root = place
        storage.make_folder(f"{root}/job")
        sink = storage.create_sink(f"{root}/job/0", f"{root}/f")
        sink.write(b"ab")
        storage.remove_tree(f"{root}/job")
        with pytest.raises(FileNotFoundError):
            sink.close()
        sink.discard()
        assert not storage.exists(f"{root}/job")
        assert storage.uploads(root) == []

    def test_parts_and_the_spool(self, place: tuple[Storage, str]) -> None:
        storage, root = place
        storage.make_folder(f"{root}/job")
        sink = storage.create_sink(f"{root}/job/0", f"{root}/f")
        lengths = (1, 1_500_000, 3, 256 * 1024, 3_000_000, 1 << 20, 4_500_001, 6_000_000, 7_500_000)
        pieces = [random.Random(length).randbytes(length) for length in lengths]
        for piece in pieces:
            sink.write(piece)
            if len(piece) % 2_000_000:
                sink.spill()
                assert sink.buffered == 0
        storage.publish(sink.close(), f"{root}/f")
        data = b"".join(pieces)
        assert storage.read_bytes(f"{root}/f", 1 << 30) == data
        assert storage.read_range(f"{root}/f", 1, 5_000_000) == data[1:5_000_000]
        end = len(data)
        assert storage.read_range(f"{root}/f", end - 2_000_000, end) == data[-2_000_000:]

    def test_removing_many(self, place: tuple[Storage, str]) -> None:
        storage, root = place
        # The last one has no place in XML, which S3 is asked in.
        for name in "abc\uffff":
            put(storage, f"{root}/{name}", b"1")
        storage.remove_files([f"{root}/{name}" for name in ("a", "none", "c", "\uffff")])
        assert storage.tree(root).files == ("b",)

    def test_listing_is_sorted_and_can_leave_out(self, place: tuple[Storage, str]) -> None:
        storage, root = place
        for path in ("b=1/x", "b=1/.y.crc", "_SUCCESS", "a", ".hidden/x", "_t/x", "_t=1/x"):
            storage.make_folders(f"{root}/{path}".rpartition("/")[0])
            put(storage, f"{root}/{path}", b"12")
        found = storage.list_files(root)
        assert [info.path for info in found] == sorted(info.path for info in found)
        assert len(found) == 7
        assert {info.size for info in found} == {2}
        kept = [
            info.path.removeprefix(f"{root}/") for info in storage.list_files(root, is_data_name)
        ]
        assert kept == ["_t=1/x", "a", "b=1/x"]

    def test_listing_a_file_gives_it(self, place: tuple[Storage, str]) -> None:
        storage, root = place
        put(storage, f"{root}/_f", b"1")
        found = storage.list_files(f"{root}/_f", is_data_name)
        assert found == [storage.info(f"{root}/_f")]

    def test_what_is_missing(self, place: tuple[Storage, str]) -> None:
        storage, root = place
        missing = f"{root}/missing"
        for call in (storage.list_files, storage.info, storage.open_read):
            with pytest.raises(FileNotFoundError):
                call(missing)
        with pytest.raises(FileNotFoundError):
            storage.create_exclusive(f"{missing}/x", b"", root)
        with pytest.raises(FileNotFoundError):
            storage.make_folder(f"{missing}/x")
        assert not storage.exists(missing)
        storage.remove(missing)
        storage.remove_tree(missing)
        assert storage.remove_folder(missing)

    def test_a_folder_is_no_file(self, place: tuple[Storage, str]) -> None:
        storage, root = place
        with pytest.raises(IsADirectoryError):
            storage.info(root)

    def test_a_version_changes_with_the_file(self, place: tuple[Storage, str]) -> None:
        storage, root = place
        path = f"{root}/f"
        put(storage, path, b"old")
        version = storage.info(path).version
        storage.open_read(path, version).close()
        put(storage, f"{root}/g", b"new")
        storage.rename(f"{root}/g", path)
        assert storage.read_bytes(path, 10) == b"new"
        with pytest.raises(DatasetChangedError):
            storage.open_read(path, version)
        assert storage.read_range(path, 0, 3, storage.info(path).version) == b"new"
        for _ in ("replaced", "gone"):
            with pytest.raises(DatasetChangedError):
                storage.read_range(path, 0, 3, version)
            storage.remove(path)

    def test_reading_bytes_is_limited(self, place: tuple[Storage, str]) -> None:
        storage, root = place
        put(storage, f"{root}/f", b"12345")
        assert storage.read_bytes(f"{root}/f", 5) == b"12345"
        with pytest.raises(LimitExceededError):
            storage.read_bytes(f"{root}/f", 4)

    def test_exclusive_creation(self, place: tuple[Storage, str]) -> None:
        storage, root = place
        assert storage.create_exclusive(f"{root}/f", b"first", root)
        assert not storage.create_exclusive(f"{root}/f", b"second", root)
        assert storage.read_bytes(f"{root}/f", 10) == b"first"
        assert storage.tree(root).files == ("f",)

    def test_releasing(self, place: tuple[Storage, str]) -> None:
        storage, root = place
        assert storage.create_exclusive(f"{root}/f", b"first", root)
        for _ in range(2):
            storage.release(f"{root}/f", f"{root}/mine")
            assert not storage.exists(f"{root}/f")
        storage.remove_tree(f"{root}/mine")
        assert storage.create_exclusive(f"{root}/f", b"second", root)
        storage.release(f"{root}/f", f"{root}/mine")
        assert not storage.exists(f"{root}/f")

    def test_folders(self, place: tuple[Storage, str]) -> None:
        storage, root = place
        storage.make_folders(f"{root}/a/b")
        storage.make_folders(f"{root}/a/b")
        put(storage, f"{root}/a/b/f", b"")
        put(storage, f"{root}/a/.g", b"")
        tree = storage.tree(root)
        assert tree.files == ("a/.g", "a/b/f")
        # Above what was made, an object store has only names.
        assert tree.folders in [("a", "a/b"), ("a/b",)]
        assert storage.tree(root, skip="a").files == ()
        assert not storage.remove_folder(f"{root}/a/b")
        storage.remove_tree(f"{root}/a")
        assert storage.tree(root).folders == ()
        storage.sync_folders([root])

    def test_whether_a_folder_holds_more(self, place: tuple[Storage, str]) -> None:
        storage, root = place
        assert not storage.holds_more(root, "a")
        for name in ("a", "a.b"):
            storage.make_folders(f"{root}/{name}")
            put(storage, f"{root}/{name}/f", b"")
            assert storage.holds_more(root, "a") is (name == "a.b")
        storage.remove_tree(f"{root}/a.b")
        assert not storage.holds_more(root, "a")
        put(storage, f"{root}/b", b"")
        assert storage.holds_more(root, "a")

    def test_folders_that_begin_alike(self, place: tuple[Storage, str]) -> None:
        storage, root = place
        for name in (".b[x]", ".a.1", "c"):
            storage.make_folders(f"{root}/{name}")
            put(storage, f"{root}/{name}/f", b"")
        put(storage, f"{root}/.d", b"")
        assert storage.folders(root, ".") == [".a.1", ".b[x]"]
        assert storage.folders(root, ".b[") == [".b[x]"]
        storage.remove_tree(f"{root}/.a.1")
        assert storage.folders(root, ".a") == storage.folders(f"{root}/none", ".") == []

    def test_glob(self, place: tuple[Storage, str]) -> None:
        storage, root = place
        storage.make_folders(f"{root}/p=1")
        for name in ("p=1/b", "p=1/a", "c"):
            put(storage, f"{root}/{name}", b"")
        a, b = f"{root}/p=1/a", f"{root}/p=1/b"
        assert storage.glob(f"{root}/*/*") == {a: storage.info(a), b: storage.info(b)}
        assert list(storage.glob(f"{root}/*/*")) == [a, b]
        assert storage.glob(f"{root}/p*") == {f"{root}/p=1": None}

    def test_when_files_were_written(self, place: tuple[Storage, str]) -> None:
        storage, root = place
        path = f"{root}/f"
        put(storage, path, b"")
        for info in (
            storage.info(path),
            *storage.list_files(root),
            storage.glob(f"{root}/*")[path],
        ):
            assert info is not None
            assert info.modified is not None
            assert abs(time.time() - info.modified) < 60

    def test_age(self, place: tuple[Storage, str]) -> None:
        storage, root = place
        put(storage, f"{root}/f", b"")
        assert -60 < storage.age_seconds(f"{root}/f") < 60


class TestLocal(StorageContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Iterator[tuple[Storage, str]]:
        yield open_storage(tmp_path)

    def test_links_are_read_through_and_never_deleted_through(self, tmp_path: Path) -> None:
        outside, root = tmp_path / "outside", tmp_path / "root"
        (outside / "sub").mkdir(parents=True)
        (outside / "sub" / "f").write_bytes(b"12")
        root.mkdir()
        for name in ("folder", "again"):
            (root / name).symlink_to("../outside")
        (root / "file").symlink_to(outside / "sub" / "f")
        storage = LocalStorage()
        found = ["again/sub/f", "file", "folder/sub/f"]
        assert [i.path for i in storage.list_files(str(root))] == [f"{root}/{n}" for n in found]
        selector = pyarrow.fs.FileSelector(str(root), recursive=True)
        theirs = pyarrow.fs.LocalFileSystem().get_file_info(selector)
        assert sorted(i.path for i in theirs if i.is_file) == [f"{root}/{n}" for n in found]
        patterns = ("*/sub/*", "*/**/f", "[af]*/**")
        last = {tuple(storage.glob(f"{root}/{pattern}"))[-1] for pattern in patterns}
        assert last == {f"{root}/folder/sub/f"}
        assert storage.tree(str(root)).files == ("again", "file", "folder")
        assert storage.tree(str(root)).folders == ()
        assert not storage.remove_folder(f"{root}/again")
        storage.remove(f"{root}/file")
        storage.remove_tree(str(root))
        assert (outside / "sub" / "f").read_bytes() == b"12"
        assert not root.exists()

    @pytest.mark.parametrize("target", [".", "..", "../..", "../other/back"])
    def test_links_that_go_round_in_circles(self, tmp_path: Path, target: str) -> None:
        (tmp_path / "root" / "sub").mkdir(parents=True)
        (tmp_path / "root" / "sub" / "f").write_bytes(b"1")
        (tmp_path / "root" / "other").mkdir()
        (tmp_path / "root" / "other" / "back").symlink_to("../sub")
        # More than one, and following each of them 40 times would never end.
        for name in ("circle", "_more", "_most"):
            (tmp_path / "root" / "sub" / name).symlink_to(target)
        storage, root = LocalStorage(), f"{tmp_path}/root"
        for look in (storage.list_files, lambda path: storage.glob(f"{path}/**/f")):
            with pytest.raises(LayoutError, match=r"folder that it is in; remove it.*/sub/"):
                look(root)
        hidden = storage.list_files(root, lambda name: "c" not in name and is_data_name(name))
        assert {Path(info.path).name for info in hidden} == {"f"}

    def test_links_that_lead_nowhere(self, tmp_path: Path) -> None:
        (tmp_path / "f").write_bytes(b"1")
        (tmp_path / "broken").symlink_to(tmp_path / "no")
        storage = LocalStorage()
        with pytest.raises(LayoutError, match=r"link leads nowhere; .*remove it.*/broken\]"):
            storage.list_files(str(tmp_path))
        assert len(storage.list_files(str(tmp_path), lambda name: name != "broken")) == 1
        # A pattern finds it, and whoever looks at it is told.
        assert storage.glob(f"{tmp_path}/*")[f"{tmp_path}/broken"] is None
        with pytest.raises(FileNotFoundError):
            storage.list_files(f"{tmp_path}/broken")

    def test_what_is_no_regular_file(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "null").symlink_to(os.devnull)
        storage = LocalStorage()
        for name in ("pipe", "null"):
            for look in (storage.info, storage.list_files):
                with pytest.raises(OptionError, match=rf"no regular file.*first.*/{name}\]"):
                    look(f"{tmp_path}/{name}")
            with pytest.raises(OptionError, match="no regular file"):
                storage.list_files(str(tmp_path), name.__eq__)
            assert storage.glob(f"{tmp_path}/{name}*") == {f"{tmp_path}/{name}": None}

    def test_folders_that_go_while_they_are_listed(self, tmp_path: Path) -> None:
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "f").write_bytes(b"1")

        def keep(name: str) -> bool:
            shutil.rmtree(tmp_path / "a", ignore_errors=True)
            return True

        found = LocalStorage().list_files(str(tmp_path), keep)
        assert [info.path for info in found] == [f"{tmp_path}/b/f"]

    def test_large_sinks_spill(self, tmp_path: Path) -> None:
        path = tmp_path / "f"
        sink = LocalStorage().create_sink(str(path), str(path))
        for _ in range(9):
            sink.write(bytes(1024 * 1024))
        assert sink.buffered < 4 * 1024 * 1024 <= path.stat().st_size
        sink.close()
        assert path.stat().st_size == sink.size == 9 * 1024 * 1024

    def test_creation_of_whole_files_only(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(descriptor: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            LocalStorage().create_exclusive(f"{tmp_path}/f", b"data", str(tmp_path))
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM])
    def test_a_mount_without_hard_links(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
    ) -> None:
        """As those of object stores, of Windows shares and of Google Drive are."""

        def refuse(source: str, target: str) -> None:
            raise OSError(number, os.strerror(number), source, None, target)

        tfr.write_table(pa.table({"a": [1]}), tmp_path / "data")
        before = sorted((tmp_path / "data").iterdir())
        monkeypatch.setattr(os, "link", refuse)
        taken = []

        def batches() -> Iterator[pa.RecordBatch]:
            taken.append("a row")
            yield pa.record_batch({"a": [2]})

        for mode in ("append", "overwrite"):
            with pytest.raises(OSError, match="hard links") as error:
                tfr.write_table(
                    batches(), tmp_path / "data", mode=mode, schema=pa.schema({"a": pa.int64()})
                )
            assert error.value.errno == number
            assert error.value.filename.startswith(str(tmp_path / "data"))
        # It is told before hours of work are lost.
        assert taken == []
        with pytest.raises(OSError, match="hard links"):
            tfr.convert(tmp_path / "data", tmp_path / "data.jsonl")
        assert sorted((tmp_path / "data").iterdir()) == before
        assert [*tmp_path.iterdir()] == [tmp_path / "data"]
        assert tfr.read_table(tmp_path / "data")["a"].to_pylist() == [1]
        tfr.convert(tmp_path / "data", tmp_path / "data.jsonl", mode="overwrite")
        assert (tmp_path / "data.jsonl").read_text() == '{"a":1}\n'

    @pytest.mark.filterwarnings("error")
    def test_answers_of_links_that_got_lost(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """link(2): of NFS they may be wrong, since the call is repeated."""
        make = os.link

        def link(source: str, target: str) -> None:
            make(source, target)
            make(source, target)

        monkeypatch.setattr(os, "link", link)
        for mode in ("error", "append"):
            tfr.write_table(pa.table({"a": [1]}), tmp_path / "data", mode=mode)
        assert tfr.count_rows(tmp_path / "data") == 2
        tfr.convert(tmp_path / "data", tmp_path / "data.jsonl")
        with pytest.raises(tfr.DatasetExistsError):
            tfr.convert(tmp_path / "data", tmp_path / "data.jsonl")
        assert (tmp_path / "data.jsonl").read_text() == '{"a":1}\n' * 2
        assert sorted(one.name for one in tmp_path.iterdir()) == ["data", "data.jsonl"]

    def test_a_turn_that_ends_when_another_job_asks_for_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        make, others = os.link, []

        def link(source: str, target: str) -> None:
            if not target.endswith("committing.json") or others:
                make(source, target)
                return
            others.append(target)
            Path(target).touch()
            try:
                make(source, target)
            finally:
                Path(target).unlink()

        monkeypatch.setattr(os, "link", link)
        tfr.write_table(pa.table({"a": [1]}), tmp_path / "data")
        assert len(others) == 1
        assert tfr.read_table(tmp_path / "data")["a"].to_pylist() == [1]

    def test_a_mount_that_syncs_no_folders(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """vfs_fsync(): EINVAL where the file system has none of it, as SMB's had long none."""
        sync, number = os.fsync, errno.EINVAL

        def fsync(descriptor: int) -> None:
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                raise OSError(number, os.strerror(number))
            sync(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)
        for mode in ("error", "append", "overwrite"):
            tfr.write_table(pa.table({"a": [1]}), tmp_path / "data", mode=mode)
        tfr.convert(tmp_path / "data", tmp_path / "data.jsonl")
        assert tfr.read_table(tmp_path / "data")["a"].to_pylist() == [1]
        number = errno.EIO
        with pytest.raises(OSError, match=f"Input/output error: '{tmp_path}/data/.*'"):
            tfr.write_table(pa.table({"a": [1]}), tmp_path / "data", mode="append")
        assert tfr.read_table(tmp_path / "data")["a"].to_pylist() == [1]

    def test_errors_of_reading_name_the_file(self) -> None:
        """The system names one only where it is opened. No memory is at the address 0."""
        path = "/proc/self/mem"
        with LocalStorage().open_read(path) as file:
            for read in (lambda: file.read(1), file.read, lambda: file.readinto(bytearray(1))):  # type: ignore[attr-defined]
                with pytest.raises(OSError, match=f"Input/output error: '{path}'"):
                    read()
        with pytest.raises(OSError, match=f"Input/output error: '{path}'"):
            LocalStorage().read_bytes(path, 10)

    def test_a_limit_takes_no_memory(self, tmp_path: Path) -> None:
        """Where memory is limited, a commit that was decided could not be read."""
        storage, root = open_storage(tmp_path)
        storage.write_bytes(f"{root}/f", b"12345")
        tracemalloc.start()
        try:
            assert storage.read_bytes(f"{root}/f", 1 << 30) == b"12345"
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
        finally:
            tracemalloc.stop()


class TestMemory(StorageContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Iterator[tuple[Storage, str]]:
        name = f"/storage-{uuid.uuid4().hex}"
        filesystem = fsspec.filesystem("memory")
        filesystem.mkdir(name)
        yield open_storage(f"memory:/{name}")
        if filesystem.exists(name):
            filesystem.rm(name, recursive=True)

    def test_a_store_that_replaces_no_file(
        self, place: tuple[Storage, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As WebHDFS, which does not tell."""
        move = MemoryFileSystem.mv

        def moved(self: MemoryFileSystem, source: str, target: str) -> None:
            if not self.exists(target):
                move(self, source, target)

        monkeypatch.setattr(MemoryFileSystem, "mv", moved)
        url = f"memory:/{place[1]}/ds"
        for rows in ([1, 2], [3]):
            table = pa.table({"x": rows})
            tfr.write_table(table, url, mode="overwrite")
            assert tfr.read_table(url) == table
        monkeypatch.setattr(MemoryFileSystem, "mv", lambda *_: None)
        table = pa.table({"x": [4]})
        with pytest.raises(CommitStateUnknownError, match="a file could not be moved here"):
            tfr.write_table(table, url, mode="overwrite")
        monkeypatch.setattr(MemoryFileSystem, "mv", moved)
        tfr.clean(url)
        assert tfr.read_table(url) == table

    def test_a_file_that_is_listed_with_a_slash(
        self, place: tuple[Storage, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As WebHDFS does."""
        storage, root = place
        put(storage, f"{root}/f", b"text")
        details = fsspec.filesystem("memory").info(f"{root}/f")
        monkeypatch.setattr(
            MemoryFileSystem, "find", lambda _, path, **__: {f"{path}/": {**details, "name": path}}
        )
        assert storage.list_files(f"{root}/f") == [storage.info(f"{root}/f")]


class TestObjects:
    """What stores of objects have in common, and servers do not do when asked to."""

    @pytest.fixture
    def place(self, objects: None) -> Iterator[tuple[Storage, str]]:
        storage, root = open_storage(f"objects://storage-{uuid.uuid4().hex}/place")
        storage.make_folders(root)
        yield storage, root
        storage.remove_tree(root)

    def test_a_bucket_that_is_not_there(
        self, place: tuple[Storage, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def missing(*_: Any, **__: Any) -> None:
            raise FileNotFoundError("objects://none")

        monkeypatch.setattr(Objects, "pipe_file", missing)
        with pytest.raises(OSError, match="the bucket does not exist") as caught:
            tfr.write_table(pa.table({"a": [1]}), "objects://none/ds")
        assert caught.value.errno == errno.ENXIO

    @pytest.mark.parametrize(
        ("package", "name", "told", "expected", "match"),
        [
            ("azure", "HttpError", {"status_code": 404}, FileNotFoundError, "No such file"),
            ("azure", "HttpError", {"status_code": 403}, PermissionError, "answers 403 HttpError"),
            ("gcsfs", "HttpError", {"code": "503"}, OSError, "answers 503 HttpError"),
            (
                "azure",
                "HttpError",
                {"status_code": 409, "error_code": "LeaseLost"},
                OSError,
                "answers 409 LeaseLost",
            ),
            ("google", "DefaultCredentialsError", {}, PermissionError, "could not be got"),
            ("azure", "ClientAuthenticationError", {}, PermissionError, "could not be got"),
            ("azure", "ServiceRequestError", {}, ConnectionError, "did not answer"),
        ],
    )
    def test_errors_of_clients(
        self,
        place: tuple[Storage, str],
        monkeypatch: pytest.MonkeyPatch,
        package: str,
        name: str,
        told: dict[str, Any],
        expected: type[OSError],
        match: str,
    ) -> None:
        """They are none of the system's, and their texts may have signed URLs in them."""
        kind = type(name, (Exception,), {"__module__": f"{package}.core", **told})

        def fail(*_: Any, **__: Any) -> None:
            raise kind("https://host/x?sig=hunter2")

        storage, root = place
        storage.write_bytes(f"{root}/f", b"text")
        monkeypatch.setattr(Objects, "cat_file", fail)
        monkeypatch.setattr(MemoryFile, "read", fail)
        for read in (
            lambda: storage.read_range(f"{root}/f", 0, 4),
            lambda: storage.read_bytes(f"{root}/f", 9),
        ):
            with pytest.raises(expected, match=match) as caught:
                read()
            assert caught.value.filename == storage.url(f"{root}/f")
            assert "hunter2" not in shown(caught.value)

    def test_a_failed_look_is_no_answer(
        self, place: tuple[Storage, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Else a commit would be taken for undecided while the network is down."""
        storage, root = place

        def fail(*_: Any, **__: Any) -> None:
            raise ConnectionError("no route")

        monkeypatch.setattr(Objects, "info", fail)
        for look in (storage.exists, storage.is_folder, lambda path: storage.make_folder(path)):
            with pytest.raises(ConnectionError):
                look(f"{root}/x")

    def test_a_data_set_has_no_marks(self, place: tuple[Storage, str]) -> None:
        _, root = place
        table = pa.table({"x": [1, 2], "p": ["a", "b"]})
        url = f"objects:/{root}/ds"
        tfr.write_table(table, url, partition_by="p")
        tfr.write_table(table, url, partition_by="p", mode="append")
        found = fsspec.filesystem("objects").find(f"{root}/ds")
        parts = [f"{root}/ds/p={p}/part-0000{n}-000.tfrecord" for p in "ab" for n in (0, 1)]
        assert found == [f"{root}/ds/_SUCCESS", *parts]


class TestStoresOfObjects(StorageContract):
    @pytest.fixture(params=["gcs", "azure"])
    def place(self, request: pytest.FixtureRequest) -> tuple[Storage, str]:
        server: Server = request.getfixturevalue(f"{request.param}_server")
        url = f"{server.url}/{uuid.uuid4().hex}"
        storage, root = open_storage(url, server.storage_options)
        storage.make_folders(root)
        return storage, root

    def test_each_range_is_one_request(
        self, place: tuple[Storage, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """To ask for the version first takes as long again, and Google's store lists for it."""
        storage, root = place
        put(storage, f"{root}/f", b"0123456789")
        version = storage.info(f"{root}/f").version
        asked = count_requests(monkeypatch)
        assert storage.read_range(f"{root}/f", 2, 5, version) == b"234"
        assert len(asked) == 1

    def test_what_a_move_asks_for(
        self, place: tuple[Storage, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        storage, root = place
        put(storage, f"{root}/f", b"text")
        asked = count_requests(monkeypatch)
        storage.rename(f"{root}/f", f"{root}/g")
        assert len(asked) == 2
        assert storage.read_bytes(f"{root}/g", 9) == b"text"
        assert not storage.exists(f"{root}/f")


def test_a_store_with_one_connection_is_asked_by_one_thread_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FTP's: the answers of calls that overlap are taken for each other's."""
    inside = threading.Lock()

    class OneConnection(MemoryFileSystem):
        protocol = "ftp"
        store: ClassVar[dict[str, Any]] = {}
        pseudo_dirs: ClassVar[list[str]] = [""]

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return MemoryFileSystem._strip_protocol(path.replace("ftp://", "memory://", 1))

        def cat_file(self, path: str, *arguments: Any, **options: Any) -> Any:
            assert inside.acquire(blocking=False)
            time.sleep(0.01)
            inside.release()
            return super().cat_file(path, *arguments, **options)

    monkeypatch.setitem(_registry, "ftp", OneConnection)
    table = pa.table({"x": [*range(20)], "p": [*range(20)]})
    tfr.write_table(table, tmp_path / "ds", partition_by="p")
    fsspec.filesystem("ftp").put(f"{tmp_path}/ds", "/ds", recursive=True)
    assert tfr.read_table("ftp:///ds", threads=8).sort_by("x")["x"] == table["x"]
    with pytest.raises(OptionError, match="writing to ftp:///new is not possible"):
        tfr.write_table(table, "ftp:///new")


class TestAzure:
    @pytest.fixture
    def place(self, azure_server: Server) -> tuple[Storage, str]:
        url = f"{azure_server.url}/{uuid.uuid4().hex}"
        return open_storage(url, azure_server.storage_options)

    def test_folders_of_a_hierarchical_namespace_go(
        self, place: tuple[Storage, str], azure_server: Server
    ) -> None:
        """Such accounts make and show them as empty objects that say so; Azurite has none."""
        options = azure_server.storage_options
        storage, root = place
        container = storage._filesystem.service_client.get_container_client("tests")  # type: ignore[attr-defined]

        def make(folder: str) -> None:
            mark = {"metadata": {"hdi_isfolder": "true"}, "overwrite": True}
            upload = container.upload_blob(folder.partition("/")[2], b"", **mark)
            fsspec.asyn.sync(storage._filesystem.loop, lambda: upload)  # type: ignore[attr-defined]

        table = pa.table({"x": [1, 2], "p": ["a", "b"]})
        url = storage.url(root)
        tfr.write_table(table, url, partition_by="p", storage_options=options)
        hidden = f"{root}/.tfrecord-io"
        for folder in (root, f"{root}/p=a", hidden, f"{hidden}/job", f"{hidden}/job/attempt"):
            make(folder)
            assert storage.is_folder(folder)
        storage.write_bytes(f"{hidden}/job/attempt/000000", b"staged")
        storage.remove_tree(f"{hidden}/job")
        assert storage.remove_folder(hidden)
        assert not storage.exists(hidden)
        for mode in ("append", "overwrite"):
            tfr.write_table(table, url, partition_by="p", mode=mode, storage_options=options)
        assert tfr.read_table(url, storage_options=options).num_rows == 2
        assert [info.path for info in storage.list_files(root)] == [
            f"{root}/_SUCCESS",
            f"{root}/p=a/part-00000-000.tfrecord",
            f"{root}/p=b/part-00000-000.tfrecord",
        ]

    @pytest.mark.parametrize("ends_as", ["success", "failed"])
    def test_a_copy_that_goes_on_after_its_answer(
        self, place: tuple[Storage, str], monkeypatch: pytest.MonkeyPatch, ends_as: str
    ) -> None:
        """Azure may take longer, and shows the file as empty until it is done."""
        storage, root = place
        storage.write_bytes(f"{root}/f", b"text")
        seen: list[str] = []

        service = storage._filesystem.service_client  # type: ignore[attr-defined]
        url = service.get_blob_client(*f"{root}/f".split("/", 1)).url

        async def pending(blob: BlobClient, source: str) -> dict[str, str]:
            assert source == url
            return {"copy_status": "pending"}

        async def properties(blob: BlobClient) -> Any:
            seen.append("pending" if len(seen) < 2 else ends_as)
            return SimpleNamespace(copy=SimpleNamespace(status=seen[-1]))

        monkeypatch.setattr(BlobClient, "start_copy_from_url", pending)
        monkeypatch.setattr(BlobClient, "get_blob_properties", properties)
        is_done = ends_as == "success"
        refusal = pytest.raises(OSError, match=r"the copy \(failed\)")
        with contextlib.nullcontext() if is_done else refusal:
            storage.rename(f"{root}/f", f"{root}/g")
        monkeypatch.undo()
        assert seen == ["pending", "pending", ends_as]
        assert storage.exists(f"{root}/f") is not is_done


class TestS3(StorageContract):
    @pytest.fixture
    def place(self, s3_server: Server) -> tuple[Storage, str]:
        storage, root = open_storage(
            f"{s3_server.url}/{uuid.uuid4().hex}", s3_server.storage_options
        )
        storage.make_folders(root)
        return storage, root

    def test_markers_of_other_writers(self, place: tuple[Storage, str]) -> None:
        storage, root = place
        files = [f"{root}/p=1/part", f"{root}/p=_$folder$/part"]
        for path in files:
            storage.write_bytes(path, b"data")
        for marker in ("p=1/", "p=1_$folder$", "p=2_$folder$", "p=1/q=1_$folder$"):
            storage.write_bytes(f"{root}/{marker}", b"")
        assert [info.path for info in storage.list_files(root)] == files
        assert [*storage.glob(f"{root}/p=*")] == [path.removesuffix("/part") for path in files]
        assert storage.tree(root) == Tree(
            files=("p=1/part", "p=_$folder$/part"), folders=("p=1", "p=1/q=1", "p=2")
        )

    def test_a_folder_goes_while_something_is_added(
        self, place: tuple[Storage, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        storage, root = place
        storage.make_folder(f"{root}/job")
        call = S3Storage._call

        def racing(self: S3Storage, method: str, path: str, **arguments: Any) -> Any:
            if method == "put_object":
                storage.remove(f"{root}/job/{MARKER}")
            return call(self, method, path, **arguments)

        monkeypatch.setattr(S3Storage, "_call", racing)
        with pytest.raises(FileNotFoundError):
            storage.make_folder(f"{root}/job/attempt")
        assert not storage.is_folder(f"{root}/job")

    def test_an_answer_that_got_lost(
        self, place: tuple[Storage, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        storage, root = place
        storage.make_folder(f"{root}/job")
        sink = storage.create_sink(f"{root}/job/0", f"{root}/f")
        sink.write(b"ab")
        staged = sink.close()
        call = S3Storage._call
        lost: list[str] = []

        def lossy(self: S3Storage, method: str, path: str, **arguments: Any) -> Any:
            answer = call(self, method, path, **arguments)
            if method in ("put_object", "complete_multipart_upload") and method not in lost:
                lost.append(method)
                raise ConnectionError("S3 did not answer")
            return answer

        monkeypatch.setattr(S3Storage, "_call", lossy)
        assert storage.create_exclusive(f"{root}/turn", b"mine", root)
        assert not storage.create_exclusive(f"{root}/turn", b"other", root)
        storage.publish(staged, f"{root}/f")
        assert lost == ["put_object", "complete_multipart_upload"]
        assert storage.read_bytes(f"{root}/f", 10) == b"ab"

    def test_a_release_whose_answer_got_lost(
        self, place: tuple[Storage, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The client tries again by itself."""
        storage, root = place
        assert storage.create_exclusive(f"{root}/turn", b"mine", root)
        call = S3Storage._call

        def twice(self: S3Storage, method: str, path: str, **arguments: Any) -> Any:
            answer = call(self, method, path, **arguments)
            if method == "delete_object":
                monkeypatch.undo()
                assert storage.create_exclusive(f"{root}/turn", b"other", root)
                answer = call(self, method, path, **arguments)
            return answer

        monkeypatch.setattr(S3Storage, "_call", twice)
        storage.release(f"{root}/turn", f"{root}/job")
        assert storage.read_bytes(f"{root}/turn", 10) == b"other"

    @pytest.mark.parametrize(("status", "is_gone"), [(400, True), (501, True), (403, False)])
    def test_a_release_that_is_refused(
        self,
        place: tuple[Storage, str],
        monkeypatch: pytest.MonkeyPatch,
        status: int,
        is_gone: bool,
    ) -> None:
        """Servers that know no condition of removals, and others."""
        storage, root = place
        assert storage.create_exclusive(f"{root}/turn", b"mine", root)
        call = S3Storage._call

        def refusing(self: S3Storage, method: str, path: str, **arguments: Any) -> Any:
            if "IfMatch" in arguments:
                raise http_error(status, errno.EIO)
            return call(self, method, path, **arguments)

        monkeypatch.setattr(S3Storage, "_call", refusing)
        with contextlib.nullcontext() if is_gone else pytest.raises(OSError, match=str(status)):
            storage.release(f"{root}/turn", f"{root}/job")
        assert storage.exists(f"{root}/turn") is not is_gone

    @pytest.mark.parametrize("size", [1_000, 3_000_000])
    def test_a_body_that_breaks_off_is_asked_for_again(
        self, place: tuple[Storage, str], monkeypatch: pytest.MonkeyPatch, size: int
    ) -> None:
        storage, root = place
        data = os.urandom(size)
        put(storage, f"{root}/f", data)
        ask = s3fs.S3FileSystem._call_s3
        asked: list[str] = []

        async def cut(self: s3fs.S3FileSystem, method: str, *args: Any, **arguments: Any) -> Any:
            answer = await ask(self, method, *args, **arguments)
            asked.append(method)
            if len(asked) < 3:
                # What comes in afterwards is lost, as when the connection is.
                answer["Body"]._raw_stream.content.set_exception(aiohttp.ClientPayloadError("cut"))
            return answer

        monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", cut)
        assert storage.read_range(f"{root}/f", 1, size) == data[1:]
        assert asked == ["get_object"] * 3

    def test_no_such_bucket(self, s3_server: Server) -> None:
        storage, root = open_storage("s3://no-such-bucket-here/x", s3_server.storage_options)
        for look, path in ((storage.list_files, root), (storage.glob, f"{root}*")):
            with pytest.raises(FileNotFoundError, match="bucket does not exist") as caught:
                look(path)
            assert caught.value.filename == f"s3://{path}"

    def test_an_empty_bucket_is_a_folder(self, s3_server: Server) -> None:
        options = s3_server.storage_options
        storage, root = open_storage(f"s3://empty-{uuid.uuid4().hex}", options)
        storage._filesystem.mkdir(root)  # type: ignore[attr-defined]
        assert storage.is_folder(root)
        assert storage.list_files(root) == []
        with pytest.raises(FileNotFoundError, match=f"no file fits s3://{root}/x"):
            tfr.read_table(f"s3://{root}/x*", storage_options=options)
        assert tfr.read_table(f"s3://{root}", storage_options=options).num_columns == 0
        table = pa.table({"n": [1, 2]})
        tfr.write_table(table, f"s3://{root}", mode="append", storage_options=options)
        assert tfr.read_table(f"s3://{root}", storage_options=options) == table

    def test_errors_name_the_path(self, s3_server: Server) -> None:
        options = s3_server.storage_options
        url = f"{s3_server.url}/{uuid.uuid4().hex}"
        missing = re.escape(f"[Errno 2] No such file or directory: '{url}'")
        for look in (tfr.read_table, tfr.count_rows, tfr.infer_schema, tfr.verify, tfr.clean):
            with pytest.raises(FileNotFoundError, match=f"^{missing}$"):
                look(url, storage_options=options)  # type: ignore[operator]
        for pattern in ("", "*"):
            with pytest.raises(PermissionError) as refused:
                tfr.read_table(url + pattern, storage_options={**options, "secret": "hunter2"})
            assert refused.value.filename == url + pattern

    def test_no_credentials(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            monkeypatch.delenv(name)
        for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
            monkeypatch.setenv(name, str(tmp_path / "none"))
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        options = {"endpoint_url": "http://127.0.0.1:9"}
        with pytest.raises(PermissionError, match=r"key and secret.*AWS_PROFILE.*anon=True"):
            tfr.read_table("s3://bucket/x", storage_options=options)

    def test_what_all_objects_get(self, s3_server: Server) -> None:
        url = f"{s3_server.url}/{uuid.uuid4().hex}"
        more = {"Metadata": {"owner": "me"}, "Tagging": "team=ads", "StorageClass": "STANDARD_IA"}
        options = {**s3_server.storage_options, "s3_additional_kwargs": more}
        tfr.write_table(pa.table({"x": [1]}), url, storage_options=options)
        filesystem, root = fsspec.core.url_to_fs(url, **s3_server.storage_options)
        for name in ("_SUCCESS", "part-00000-000.tfrecord"):
            path = f"{root}/{name}"
            assert filesystem.metadata(path)["owner"] == "me"
            assert filesystem.get_tags(path) == {"team": "ads"}
            assert filesystem.info(path)["StorageClass"] == "STANDARD_IA"

    @pytest.mark.parametrize(
        "more",
        [
            {"ChecksumAlgorithm": "SHA256"},
            {"ChecksumAlgorithm": "CRC32"},
            {"ChecksumAlgorithm": "CRC32", "ChecksumType": "FULL_OBJECT"},
            {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": "k" * 32},
        ],
        ids=lambda more: "-".join(more.values()),
    )
    def test_checksums_and_keys_that_are_asked_for(
        self, s3_server: Server, more: dict[str, str]
    ) -> None:
        url = f"{s3_server.url}/{uuid.uuid4().hex}"
        options = {**s3_server.storage_options, "s3_additional_kwargs": more}
        # Of several parts.
        table = pa.table({"x": [os.urandom(5 * 1024 * 1024) for _ in range(2)]})
        for mode in ("error", "append", "overwrite"):
            tfr.write_table(table, url, mode=mode, storage_options=options)
        assert tfr.read_table(url, storage_options=options).equals(table)
        filesystem, root = fsspec.core.url_to_fs(url, **options)
        path = f"{root}/part-00000-000.tfrecord"
        bucket, _, key = path.partition("/")
        head = filesystem.call_s3("head_object", Bucket=bucket, Key=key, ChecksumMode="ENABLED")
        told = head.get("SSECustomerAlgorithm") or [name for name in head if "Checksum" in name]
        assert told

    def test_a_server_that_is_down_is_named(self) -> None:
        options = {"key": "k", "secret": "s", "endpoint_url": "http://me:hunter2@127.0.0.1:9"}
        with pytest.raises(
            ConnectionError, match=r"http://127.0.0.1:9 did not.*s3://b/x"
        ) as caught:
            tfr.read_table("s3://b/x", storage_options=options)
        assert "hunter2" not in shown(caught.value)
        with pytest.raises(ConnectionError) as caught:
            options = {"anon": True, "endpoint_url": options["endpoint_url"]}
            tfr.read_table("s3://b/x", storage_options=options)
        assert "hunter2" not in shown(caught.value)

    @pytest.mark.parametrize("url", ["nonsense", "me:hunter2@nonsense", "http://me:hunter2@h:p"])
    def test_an_endpoint_that_is_no_url(self, url: str) -> None:
        options = {"key": "k", "secret": "s", "endpoint_url": url}
        with pytest.raises(OptionError, match="the URL of the endpoint is malformed") as caught:
            tfr.read_table("s3://b/x", storage_options=options)
        assert "hunter2" not in shown(caught.value)

    @pytest.mark.parametrize(
        ("options", "what"),
        [
            ({"secret": "hunter2"}, "key and secret go together, and one of them is missing"),
            ({"key": "k"}, "key and secret go together, and one of them is missing"),
            ({"profile": "hunter2"}, "have no profile of that name"),
            ({"anon": True, "client_kwargs": {"region_name": "no where"}}, "InvalidRegionError"),
            ({"anon": True, "config_kwargs": {"s3": {"addressing_style": "x"}}}, "AddressingStyle"),
        ],
    )
    def test_options_that_are_wrong_are_told_as_such(
        self, options: dict[str, Any], what: str
    ) -> None:
        with pytest.raises(OptionError, match=f"do not suit S3: .*{what}") as caught:
            tfr.read_table("s3://bucket/x", storage_options=options)
        assert "hunter2" not in shown(caught.value)

    @pytest.mark.parametrize("bucket", ["bad bucket", "b?d", "a,b"])
    def test_names_that_no_bucket_has(self, bucket: str) -> None:
        with pytest.raises(OptionError, match="the names of buckets hold no other"):
            open_storage(f"s3://{bucket}/x", {"anon": True})

    @pytest.mark.parametrize(
        "options",
        [
            {"nope": 1},
            {"client_kwargs": {"nope": 1}},
            {"config_kwargs": {"nope": 1}},
            {"client_kwargs": "nope"},
        ],
    )
    def test_options_that_there_are_not(self, options: dict[str, Any]) -> None:
        storage, path = open_storage("s3://bucket/x", {"anon": True, **options})
        with pytest.raises(OptionError, match=r"storage_options do not suit S3.*see s3fs"):
            storage.exists(path)

    def test_no_secret_is_shown(self, s3_server: Server) -> None:
        options = {**s3_server.storage_options, "secret": "hunter2"}
        storage, root = open_storage(f"{s3_server.url}/x", options)
        with pytest.raises(PermissionError) as caught:
            storage.write_bytes(f"{root}/f", b"")
        assert "hunter2" not in f"{caught.value!r} {storage!r} {storage.url(root)}"


class TestHdfs(StorageContract):
    @pytest.fixture
    def place(self, hdfs_server: Server) -> tuple[Storage, str]:
        storage, root = open_storage(f"{hdfs_server.url}/{uuid.uuid4().hex}")
        storage.make_folders(root)
        return storage, root

    def test_errors_are_short_and_of_the_system(self, place: tuple[Storage, str]) -> None:
        storage, root = place
        put(storage, f"{root}/f", b"")
        for call in (storage.list_files, storage.tree):
            with pytest.raises(OSError) as caught:
                call(f"{root}/f/none")
            assert "\n" not in str(caught.value)
        with pytest.raises(
            FileNotFoundError, match=r"^\[Errno 2\] No such file or directory: 'hdfs"
        ):
            storage.info(f"{root}/none")
        with pytest.raises(
            NotADirectoryError, match=r"^\[Errno 20\] /\S+/f \(is not a directory\): "
        ):
            storage.make_folders(f"{root}/f/below")
        with pytest.raises(OSError, match=r"^\[Errno 36\] The maximum path component") as caught:
            storage.make_folders(f"{root}/{'a' * 300}")
        assert caught.value.errno == errno.ENAMETOOLONG

    def test_a_refusal_is_told_as_the_name_node_says_it(self, place: tuple[Storage, str]) -> None:
        storage, root = place
        program = (
            "import sys, pyarrow as pa, tfrecord_io as tfr\n"
            "try:\n    tfr.write_table(pa.table({'x': [1]}), sys.argv[1])\n"
            "except PermissionError as error:\n    print(error)"
        )
        done = subprocess.run(
            [sys.executable, "-c", program, storage.url(f"{root}/ds")],
            env={**os.environ, "HADOOP_USER_NAME": "stranger"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert f'Permission denied: user=stranger, access=WRITE, inode="{root}":' in done.stdout

    def test_a_release_whose_answer_got_lost(self, place: tuple[Storage, str]) -> None:
        """The client tries again by itself."""
        storage, root = place
        storage.make_folder(f"{root}/job")
        assert storage.create_exclusive(f"{root}/turn", b"mine", root)
        storage.release(f"{root}/turn", f"{root}/job")
        assert storage.create_exclusive(f"{root}/turn", b"other", root)
        storage.release(f"{root}/turn", f"{root}/job")
        assert storage.read_bytes(f"{root}/turn", 10) == b"other"


def test_a_folder_that_is_there_and_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Another job removes the folder between pathlib's two looks at it.
    made, asked = os.mkdir, []

    def mkdir(path: Any, *args: Any) -> None:
        asked.append(path)
        if len(asked) == 1:
            raise FileExistsError(errno.EEXIST, "File exists", str(path))
        made(path, *args)

    storage, root = open_storage(str(tmp_path / "a"), {})
    monkeypatch.setattr(os, "mkdir", mkdir)
    storage.make_folders(root)
    assert (tmp_path / "a").is_dir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    for taken in ("file", "link", "link/below"):
        with pytest.raises(FileExistsError):
            storage.make_folders(str(tmp_path / taken))


def test_paths_and_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    expected = {
        "/a/b/": "/a/b",
        "file:///a b%20": "/a b%20",
        "file:/a": "/a",
        "file://localhost/a": "/a",
        "FILE://LocalHost/a": "/a",
        "local:///a": "/a",
        "x/../y": str(tmp_path / "y"),
        "~/d": str(tmp_path / "home" / "d"),
        "p=2026-01-02 03%3A04": str(tmp_path / "p=2026-01-02 03%3A04"),
    }
    for url, path in expected.items():
        assert open_storage(url)[1] == path
        assert isinstance(open_storage(url)[0], LocalStorage)
    assert open_storage(Path("/a/b"))[1] == "/a/b"


@pytest.mark.parametrize("url", ["", "a\0b", "nosuch://x"])
def test_what_is_no_path(url: str) -> None:
    with pytest.raises(OptionError):
        open_storage(url)


@pytest.mark.parametrize(
    "url", ["file://host/a", "file://a", "file://", "local://./a", "file://~/a"]
)
def test_files_of_another_host(url: str) -> None:
    with pytest.raises(OptionError, match=rf"{url} names .* of the host .*file:///"):
        open_storage(url)


def test_the_home_of_nobody() -> None:
    with pytest.raises(OptionError, match=r"~no-such-user/x begins .* write \./~no-such-user/x "):
        open_storage("~no-such-user/x")
    assert open_storage("./~no-such-user/x")[1].endswith("/~no-such-user/x")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*args: object, **kwargs: object) -> None:
        raise ImportError("no s3fs")

    monkeypatch.setattr(fsspec.core, "url_to_fs", missing)
    for url in ("s3://b/k", "s3a://b/k", "S3N://b/k"):
        with pytest.raises(MissingDependencyError, match=r"tfrecord-io\[s3\]"):
            open_storage(url)


@pytest.mark.parametrize(
    ("url", "package"),
    [
        ("gs://bucket/key", "gcsfs"),
        ("az://container/key", "adlfs"),
        # Of this one fsspec knows nothing until the package is there.
        ("abfss://container@account.dfs.core.windows.net/key", "adlfs"),
    ],
)
def test_a_missing_package_of_a_cloud_is_named(
    url: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    # Where it was used before.
    monkeypatch.delitem(_registry, url.split(":")[0], raising=False)
    with pytest.raises(MissingDependencyError, match=f"; install {package}$"):
        open_storage(url)


@pytest.mark.parametrize(
    ("url", "package"),
    [
        ("oss://bucket/key", "ossfs"),
        ("sftp://me:hunter2@host/key", "paramiko"),
        ("simplecache::gs://bucket/key", "gcsfs"),
        ("zip://x.tfrecord::oss://bucket/key.zip", "ossfs"),
    ],
)
def test_a_missing_package_of_another_store_is_named_as_fsspec_does(
    url: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    # Where it was used before.
    monkeypatch.delitem(_registry, "gs", raising=False)
    named = url if "::" in url else url.partition("//")[0]
    with pytest.raises(MissingDependencyError, match=f"^{named}.* needs .*: .*{package}") as caught:
        open_storage(url)
    assert "hunter2" not in shown(caught.value)


def test_arguments_that_a_file_system_misses() -> None:
    options = {"instance": "hunter2"}
    with pytest.raises(OptionError, match=r"storage_options do not suit: .* 'token'$") as caught:
        open_storage("dbfs:/mnt/x", options)
    assert "hunter2" not in shown(caught.value)


@pytest.mark.parametrize("name", ["run::1", "a::b/c::d", "tar::b", "a?b#c", "é %20"])
def test_local_paths_are_what_they_say(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fsspec takes "::" for a chain of URLs: "run::1" would be "run"."""
    monkeypatch.chdir(tmp_path)
    for text in (tmp_path / name, f"file://{tmp_path}/{name}", str(tmp_path / name)):
        storage, path = open_storage(text)
        assert (type(storage), path) == (LocalStorage, str(tmp_path / name))
    if name != "tar::b":
        assert open_storage(name)[1] == str(tmp_path / name)


def test_chains_are_opened() -> None:
    storage, path = open_storage("simplecache::memory://a/b")
    assert (storage.local_path(path), path) == (None, "/a/b")


def test_a_url_that_fsspec_takes_for_another_is_refused() -> None:
    for url in ("memory://a::b", "s3://bucket/a::b", "hdfs://host/a::b"):
        with pytest.raises(OptionError, match="'::'"):
            open_storage(url)


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("memory://", "memory:/// is the root of a file system"),
        ("hdfs://127.0.0.1:9/", "hdfs://127.0.0.1:9/ is the root of a file system"),
        ("hdfs://127.0.0.1:9/a//b", "an empty name"),
        ("hdfs://127.0.0.1:9/a/../b", "an empty name, '.' or '..'"),
        ("hdfs://127.0.0.1:9/2026-01-05T10:00", "has a colon in its path"),
        ("memory://a/./b", "an empty name, '.' or '..'"),
        ("s3://b//x", "has an empty name"),
        ("s3://b/a/../x", "'..' between its slashes"),
        ("s3://b/a\\b", "has a backslash"),
        ("s3://b/a\x01b", "no place in a list"),
        ("s3://b/a\uffffb", "no place in a list"),
        ("s3://b/a\udc80b", "no place in a list"),
        ("simplecache::s3://b/x", "which is for reading; write to the URL without simplecache::"),
        ("blockcache::memory://b/x", "write to the URL without blockcache::"),
        ("http://127.0.0.1:9/x", "write to a local folder and copy it"),
    ],
)
def test_targets_that_cannot_be_written_to(url: str, what: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"anon": True, "endpoint_url": "http://127.0.0.1:9"}
    options = options if url.startswith("s3:") else {}
    table = pa.table({"x": [1]})
    tfr.write_table(table, tmp_path / "x")
    file = f"{url.rstrip('/')}/x.csv"
    calls: list[Callable[[], Any]] = [lambda: tfr.write_table(table, url, storage_options=options)]
    if not what.endswith("file system"):
        calls += [
            lambda: tfr.convert(tmp_path / "x", file, target_storage_options=options),
            lambda: tfr.TFRecordWriter(file, storage_options=options),
        ]
    for call in calls:
        with pytest.raises(OptionError, match=re.escape(what)):
            call()


def test_keys_of_s3_with_unusual_characters(s3_server: Server) -> None:
    options = s3_server.storage_options
    table = pa.table({"x": [1]})
    for name in ("a b", "a%20b", "a+b", "a?b", "a#b", "a\nb", "a\x7fb", "a*b", "a&b<c", " a;b: "):
        url = f"{s3_server.url}/{uuid.uuid4().hex}/{name}/x"
        for mode in ("error", "overwrite"):
            tfr.write_table(table, url, mode=mode, storage_options=options)  # type: ignore[arg-type]
        assert tfr.read_table(url, storage_options=options) == table


@pytest.mark.parametrize("name", ["a*b", "a?b", "[ab]"])
def test_names_that_other_file_systems_take_for_patterns(name: str) -> None:
    base = f"/{uuid.uuid4().hex}"
    url = f"memory:/{base}/{name}"
    storage, root = open_storage(url)
    # What such a pattern would find.
    for other in ("a-b/x", "a/x"):
        storage.make_folders(f"{base}/{other}")
        put(storage, f"{base}/{other}/kept", b"1")
    table = pa.table({"x": [1, 2], "day": ["mon", "tue"]})
    for mode in ("error", "overwrite", "append"):
        tfr.write_table(table, url, mode=mode, partition_by="day")  # type: ignore[arg-type]
    read = tfr.read_table(url, path_column="path")
    assert read["x"].to_pylist() == [1, 1, 2, 2]
    assert {path.as_py().rpartition("/day=")[0] for path in read["path"]} == {f"memory://{root}"}
    names = [info.path.removeprefix(f"{root}/") for info in storage.list_files(root)]
    assert names == [
        "_SUCCESS",
        *(f"day={day}/part-0000{task}-000.tfrecord" for day in ("mon", "tue") for task in (0, 1)),
    ]
    storage.make_folders(f"{root}/x/y")
    put(storage, f"{root}/x/y/z", b"1")
    storage.remove_tree(f"{root}/x")
    assert not storage.exists(f"{root}/x")
    assert storage.exists(f"{base}/a-b/x/kept")
    assert storage.exists(f"{base}/a/x/kept")


@pytest.mark.parametrize("name", ["a//b", "./b", "../b", "a/\0b"])
def test_names_of_objects_that_are_no_paths(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"memory:///{uuid.uuid4().hex}"
    _, root = open_storage(url)
    table = pa.table({"x": [1, 2]})
    tfr.write_table(table, url)
    job = plan_write(table.schema, url, mode="overwrite")
    memory = fsspec.filesystem("memory")
    # As clients of stores of objects may name it; fsspec's own would make a path of it, and older
    # versions list it as another.
    memory.store[f"{root}/{name}"] = memory.store[f"{root}/part-00000-000.tfrecord"]

    def find(path: str, **how: Any) -> Any:
        listed = [one for one in memory.store if one.startswith(f"{path}/")]
        return {one: memory.ls(one)[0] | {"name": one} for one in listed}

    monkeypatch.setattr(memory, "find", find)
    try:
        before = [path for path in memory.store if ".tfrecord-io" not in path]
        for write in (
            functools.partial(commit_job, job, [write_task(job, 0, [table])]),
            functools.partial(tfr.write_table, table, url, mode="overwrite"),
        ):
            with pytest.raises(LayoutError, match="remove it by the store's own tools"):
                write()
            assert [*memory.store] == before
    finally:
        del memory.store[f"{root}/{name}"]
    tfr.write_table(table, url, mode="overwrite")
    assert tfr.read_table(url) == table


@pytest.mark.parametrize("has_dots", [False, True])
def test_whole_archives(tmp_path: Path, has_dots: bool) -> None:
    table = pa.table({"x": [1, 2], "day": ["mon", "tue"]})
    tfr.write_table(table, tmp_path / "t", partition_by="day")
    shutil.make_archive(str(tmp_path / "t"), "zip", tmp_path / "t")
    with tarfile.open(tmp_path / "t.tar", "w") as archive:
        if has_dots:
            archive.add(tmp_path / "t", ".")
        else:
            for path in (tmp_path / "t").iterdir():
                archive.add(path, path.name)
    urls = [f"zip://::{tmp_path}/t.zip"]
    if fsspec.__version__ >= "2026.9":  # older ones do not find what they list of tar archives
        urls.append(f"tar://::{tmp_path}/t.tar")
    for url in urls:
        assert tfr.read_table(url) == table
        assert tfr.verify(url).faults == ()
        assert tfr.convert(url, tmp_path / f"{url[:3]}.parquet").rows == 2
    # Its files are named as what stands before them.
    paths = tfr.read_table(f"zip://::{tmp_path}/t.zip", path_column="path")["path"].to_pylist()
    assert paths == [f"zip://day={day}/part-00000-000.tfrecord" for day in ("mon", "tue")]


def test_names_in_archives_are_whole(tmp_path: Path) -> None:
    # Two folders once had one path: what is no query, and no user, was left out of it.
    names = ["a#1/x", "a#2/x", "b?1/x", "me@c/x"]
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        for name in names:
            archive.writestr(name, framed(name.encode()))
    read = tfr.read_table(f"zip://::{tmp_path}/t.zip", record_type="ByteArray", path_column="path")
    assert read["path"].to_pylist() == [f"zip://{name}" for name in names]
    assert redact("zip://a@b#c::https://me:hunter2@host/a?b") == "zip://a@b#c::https://host/a"


@pytest.mark.parametrize("url", ["dir://a", "dir::memory://a/b"])
def test_the_folder_of_another_url_is_refused(url: str) -> None:
    with pytest.raises(OptionError, match="give the URL of that folder"):
        open_storage(url)


def test_hdfs_paths_are_what_they_say() -> None:
    for path in ("/d/run#2", "/a?b/c#d", "/a\tb", "/"):
        storage, found = open_storage(f"hdfs://127.0.0.1:9{path}")
        assert found == path
        assert storage.url(found) == f"hdfs://127.0.0.1:9{path}"


def test_no_credentials_in_texts() -> None:
    storage, path = open_storage("memory://x/y", {"secret": "hunter2"})
    assert "hunter2" not in repr(storage) + storage.url(path)
    assert storage.url(path) == "memory:///x/y"
    assert redact("https://me:hunter2@host/a?token=hunter2#x") == "https://host/a"
    assert redact("/plain/a?b") == "/plain/a?b"
    assert redact("gs://me:hunter2@bucket/a?b/c#d") == "gs://bucket/a?b/c#d"
    chain = "simplecache::https://me:hunter2@host/a"
    assert redact(chain) == "simplecache::https://host/a"
    assert redact("http://[hunter2/a") == "http://..."
    with pytest.raises(OptionError, match=r"nosuch::s3://h/x .*knows no nosuch://") as caught:
        open_storage("nosuch::s3://me:hunter2@h/x")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(OptionError) as caught:
        open_storage("nosuch://me:hunter2@host/x", {"secret": "hunter2"})
    assert "hunter2" not in str(caught.value)


class _Server(http.server.ThreadingHTTPServer):
    # Of more connections at once than the usual 5, the system lets some wait for a second.
    request_queue_size = 128


@contextlib.contextmanager
def serving(folder: Path, handler: type[_Quiet]) -> Iterator[str]:
    """Have a web server show a folder meanwhile, and give its URL."""
    served = functools.partial(handler, directory=str(folder))
    with _Server(("127.0.0.1", 0), served) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@pytest.fixture
def web_server(tmp_path: Path) -> Iterator[str]:
    with serving(tmp_path, _Quiet) as url:
        yield url


def test_files_of_a_web_server_are_read_at_their_size(tmp_path: Path, web_server: str) -> None:
    # Its listings tell no sizes, which once were taken for empty files.
    tfr.write_table(pa.table({"x": [1, 2, 3]}), tmp_path / "t")
    base = f"{web_server}/t"
    file = f"{base}/part-00000-000.tfrecord"
    for url in (base, f"{base}/*.tfrecord", file, f"{file}?token=a%20b"):
        assert tfr.read_table(url)["x"].to_pylist() == [1, 2, 3]


def test_a_web_server_that_gives_no_parts_of_files(
    tmp_path: Path, web_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As Python's, which once made every record that was asked for the first one.
    records = [b"one", b"two", b"three"]
    with tfr.TFRecordWriter(tmp_path / "x.tfrecord") as writer:
        for record in records:
            writer.write(record)
    for url in (f"{web_server}/x.tfrecord", f"{web_server}/x.tfrecord?token=a"):
        assert [tfr.TFRecordReader(url)[index] for index in range(3)] == records
    table = pa.table({"x": range(100_000)})
    tfr.write_table(table, tmp_path / "t")
    tfr.convert(tmp_path / "t", tmp_path / "t.parquet")
    assert tfr.convert(f"{web_server}/t.parquet", tmp_path / "again").rows == table.num_rows
    assert tfr.read_table(tmp_path / "again") == table
    monkeypatch.setattr(fsspec_storage, "_WHOLE_BYTES", 50)
    with pytest.raises(OSError, match="gives no parts of files") as refused:
        tfr.TFRecordReader(f"{web_server}/x.tfrecord").read(19)
    assert refused.value.filename == f"{web_server}/x.tfrecord"


@pytest.mark.parametrize("cache", ["simplecache", "filecache"])
@pytest.mark.parametrize("has_manifest", [True, False])
def test_caches_of_a_web_server(
    tmp_path: Path, web_server: str, cache: str, has_manifest: bool
) -> None:
    # One asked its listings for sizes, and read nothing; the other lost the partition column.
    table = pa.table({"x": [1, 2], "city": ["São", "a b"]})
    tfr.write_table(table, tmp_path / "t", partition_by="city")
    if not has_manifest:
        (tmp_path / "t" / "_SUCCESS").unlink()
    options = {cache: {"cache_storage": str(tmp_path / "cache")}}
    base = f"{cache}::{web_server}/t"
    for url in (base, f"{base}/*/*.tfrecord"):
        read = tfr.read_table(url, storage_options=options).sort_by("x")
        assert read.to_pydict() == table.to_pydict()
    file = f"{base}/city=S%C3%A3o/part-00000-000.tfrecord"
    assert tfr.read_table(file, storage_options=options)["x"].to_pylist() == [1]
    assert len(tfr.TFRecordReader(file, storage_options=options)) == 1


def test_threads_share_a_cache_that_reads_its_notes_again(tmp_path: Path, web_server: str) -> None:
    table = pa.table({"x": range(40), "p": range(40)})
    tfr.write_table(table, tmp_path / "t", partition_by="p")
    # As often as it can; by default after ten seconds.
    options = {"filecache": {"cache_storage": str(tmp_path / "cache"), "cache_check": 1e-9}}
    read = tfr.read_table(f"filecache::{web_server}/t", storage_options=options, threads=8)
    assert read.sort_by("x")["x"].to_pylist() == [*range(40)]


@pytest.mark.parametrize("has_manifest", [True, False])
def test_names_of_a_web_server_are_those_of_its_disk(
    tmp_path: Path, web_server: str, has_manifest: bool
) -> None:
    # Its listings and URLs have them quoted; even the "=" of partition folders once was taken so.
    cities = ["São", "a b", "a%20b", "a#b", "a?b", "a=b", "a&b", "a+b", "50%", "a/b", "ü*[x]", None]
    table = pa.table({"city": [*cities, "a<b>'", "日本", "a;b", "a\\b", "{x,y}"], "x": range(17)})
    here = tmp_path / "a b#é"
    tfr.write_table(table, here, partition_by="city")
    # As no writer names it.
    (here / "city=a b").rename(here / "city=a #?%zb")
    if not has_manifest:
        (here / "_SUCCESS").unlink()
    base = f"{web_server}/{urllib.parse.quote('a b#é')}"
    files = sorted(map(str, here.rglob("*.tfrecord")))
    urls = [web_server + urllib.parse.quote(file.removeprefix(str(tmp_path))) for file in files]

    def rows(paths: Any) -> list[str]:
        return sorted(map(repr, tfr.read_table(paths).to_pylist()))

    expected = rows(here)
    assert len(expected) == 17
    assert any("'city': 'São'" in row for row in expected)
    for url in (base, f"{base}/", f"{base}/city=*", f"{base}/*/*.tfrecord", f"{base}/**"):
        assert rows(url) == expected
    assert rows(urls) == rows(files)
    found = tfr.read_table(base, path_column="path")["path"].to_pylist()
    assert rows(found) == rows(files)
    assert tfr.count_rows(f"{base}/city=S%C3%A3o") == tfr.count_rows(f"{base}/city=São") == 1


def test_paths_of_a_web_server_are_urls(tmp_path: Path, web_server: str) -> None:
    names = ["50%25.tfrecord", "a b.tfrecord", "a#b.tfrecord", "é.tfrecord"]
    for name in names:
        with tfr.TFRecordWriter(tmp_path / name) as writer:
            writer.write(name.encode())
    read = functools.partial(tfr.read_table, record_type="ByteArray", path_column="path")
    found = read(web_server)["path"].to_pylist()
    assert found == [f"{web_server}/{urllib.parse.quote(name)}" for name in names]
    assert read(found)["byteArray"].to_pylist() == [name.encode() for name in names]


# A server may tell files by their queries, in which a slash ends no folder.
@pytest.mark.parametrize("query", ["?signature=hunter2", "?file=a/b/hunter2"])
def test_a_query_is_not_shown(tmp_path: Path, web_server: str, query: str) -> None:
    path = tmp_path / "a.tfrecord"
    with tfr.TFRecordWriter(path) as writer:
        writer.write(b"one")
        writer.write(b"two")
    url = f"{web_server}/a.tfrecord"
    read = functools.partial(tfr.read_table, url + query, record_type="ByteArray")
    assert read(path_column="path").to_pylist() == [
        {"byteArray": record, "path": url} for record in (b"one", b"two")
    ]
    frame = tfr.read_tfrecord(url + query, record_type="ByteArray")
    assert "hunter2" not in str(frame.expr)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(ChecksumError) as caught:
        read()
    assert caught.value.path == url
    with pytest.warns(CorruptDataWarning) as told:
        assert read(on_corrupt="skip_record").num_rows == 1
    assert "hunter2" not in str(caught.value) + str(told[0].message)


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_objects_that_mark_folders_of_other_stores(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Google's console makes an empty object ``folder/``, and gcsfs finds it among the files."""
    base = f"/markers-{uuid.uuid4().hex}/t"
    find, marked = MemoryFileSystem.find, [base]

    def with_markers(self: Any, path: str, **options: Any) -> Any:
        found = find(self, path, **{**options, "detail": True})
        for folder in marked:
            if folder.startswith(path):
                found[f"{folder}/"] = {"name": f"{folder}/", "size": 0, "type": kind}
        return found if options.get("detail") else list(found)

    monkeypatch.setattr(MemoryFileSystem, "find", with_markers)
    url = f"memory:/{base}"
    table = pa.table({"x": [1, 2], "p": ["a", "b"]})
    fsspec.filesystem("memory").makedirs(base)
    tfr.write_table(table, url, partition_by="p")
    marked += [f"{base}/p=a", f"{base}/p=c"]
    assert tfr.read_table(url) == table
    assert tfr.read_table(f"{url}/**") == table
    assert tfr.verify(url).files == 2
    tfr.write_table(table, url, partition_by="p", mode="append")
    tfr.write_table(table, url, partition_by="p", mode="overwrite")
    assert tfr.read_table(url) == table
    storage, path = open_storage(url)
    assert {name.rpartition("/")[0] for name in storage.tree(path).files} == {"", "p=a", "p=b"}


def test_what_is_discarded_on_hdfs_is_gone() -> None:
    """As what a TFRecordWriter cannot finish: no folder is removed with it."""
    client = HdfsClient(NameNode(time.time), lambda name, changes, call: call())
    storage = HdfsStorage(client)
    storage.make_folder("/a")
    sink = storage.create_sink("/a/b", "/a/b")
    for _ in range(3):
        sink.write(bytes(8 << 20))
    sink.discard()
    assert not storage.exists("/a/b")


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: Any) -> None:
        pass


class _WithoutListings(_Quiet):
    def list_directory(self, path: Any) -> None:
        self.send_error(403)


def test_many_files_of_a_web_server_that_lists_none(tmp_path: Path) -> None:
    # Of so many in one folder it is listed, where that is possible.
    records = [b"%d" % number for number in range(20)]
    with serving(tmp_path, _WithoutListings) as base:
        for record in records:
            with tfr.TFRecordWriter(tmp_path / record.decode()) as writer:
                writer.write(record)
        read = tfr.read_table(
            [f"{base}/{record.decode()}" for record in records], record_type="ByteArray"
        )
        with pytest.raises(PermissionError, match="the server answers 403"):
            tfr.count_rows(base)
    assert read["byteArray"].to_pylist() == records


class _AsApache(_Quiet):
    """Links as Apache's, to the page in other orders, to the folder above, and in HTML."""

    here = ""

    def list_directory(self, path: Any) -> Any:
        names = sorted(f"{one.name}/" if one.is_dir() else one.name for one in Path(path).iterdir())
        links = [f"{self.here}?C=N;O=D", "/", "../", "../../", f"{self.here}?C=M;O=A"]
        links += [self.here + urllib.parse.quote(name, safe="/=&") for name in names]
        page = "".join(f'<a href="{html.escape(link)}">_</a>' for link in links).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        return io.BytesIO(page)


class _AsCaddy(_AsApache):
    """Names begin with "./", so that none is taken for a protocol."""

    here = "./"


@pytest.mark.parametrize("handler", [_AsApache, _AsCaddy])
@pytest.mark.parametrize("has_manifest", [True, False])
def test_pages_of_other_web_servers(
    tmp_path: Path, handler: type[_Quiet], has_manifest: bool
) -> None:
    table = pa.table({"x": [1, 2, 3], "p": ["a", "b c", "d&e"]})
    tfr.write_table(table, tmp_path / "t", partition_by="p")
    if not has_manifest:
        (tmp_path / "t" / "_SUCCESS").unlink()
    with serving(tmp_path, handler) as base:
        url = f"{base}/t"
        found = [tfr.read_table(one) for one in (url, f"{url}/*/*.tfrecord", f"{url}/**")]
    assert found == [table] * 3


class _BreakingOff(_Quiet):
    def copyfile(self, source: Any, outputfile: Any) -> None:
        outputfile.write(source.read(5))
        self.close_connection = True


def test_a_web_server_that_breaks_off(tmp_path: Path) -> None:
    # aiohttp's error did not say which file it was.
    (tmp_path / "a.tfrecord").write_bytes(framed(b"one"))
    with serving(tmp_path, _BreakingOff) as base:
        url = f"{base}/a.tfrecord"
        with pytest.raises(OSError, match="the server's answer broke off") as caught:
            tfr.count_rows(f"{url}?signature=hunter2")
    assert caught.value.filename == url


class _Late(_Quiet):
    """Begins to answer, and gives nothing more; to a question for a head it answers."""

    def copyfile(self, source: Any, outputfile: Any) -> None:
        outputfile.write(source.read(5))
        outputfile.flush()
        # For longer than the client waits.
        time.sleep(1)
        self.close_connection = True


class _Reset(_Quiet):
    """Ends the connection as one ends whose process, or machine, is gone."""

    def copyfile(self, source: Any, outputfile: Any) -> None:
        outputfile.write(source.read(5))
        outputfile.flush()
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.close_connection = True
        self.connection.close()


@pytest.mark.parametrize("handler", [_Late, _Reset])
@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("on_corrupt", ["raise", "skip_record"])
def test_a_web_server_that_answers_no_more(
    tmp_path: Path, handler: type[_Quiet], compression: str | None, on_corrupt: Any
) -> None:
    # fsspec's error had no text at all, and aiohttp's no name of the file.
    table = pa.table({"x": [*range(1000)]})
    tfr.write_table(table, tmp_path / "t", compression=compression)
    (part,) = (tmp_path / "t").glob("part-*")
    (tmp_path / "t" / "_SUCCESS").unlink()
    waits = {"client_kwargs": {"timeout": aiohttp.ClientTimeout(sock_read=0.2)}}
    with serving(tmp_path, handler) as base:
        url = f"{base}/t/{part.name}"
        # Tracebacks show all lines of a call since Python 3.13.
        signed = f"{url}?signature=hunter2"
        with pytest.raises(OSError, match=r"did not answer|broke off") as caught:
            tfr.read_table(
                signed,
                schema=table.schema,
                on_corrupt=on_corrupt,
                storage_options=waits,
            )
    assert caught.value.filename == url
    assert "hunter2" not in shown(caught.value)


class _Silent(_Quiet):
    """Takes a question, and does not answer."""

    def do_GET(self) -> None:
        time.sleep(1)
        self.close_connection = True


@pytest.mark.parametrize("name", ["t", "t/*.tfrecord", "t/a.tfrecord"])
def test_a_web_server_that_does_not_answer(tmp_path: Path, name: str) -> None:
    waits = {"client_kwargs": {"timeout": aiohttp.ClientTimeout(sock_read=0.2)}}
    with serving(tmp_path, _Silent) as base:
        with pytest.raises(OSError, match="the server did not answer") as caught:
            tfr.read_table(f"{base}/{name}", storage_options=waits)
        assert caught.value.filename in (f"{base}/{name}", f"{base}/t", f"{base}/_SUCCESS")


class _WithPages(_Quiet):
    """As the server of an application answers: a page for whatever is not there."""

    page = b"<!doctype html><html></html>"

    def send_head(self) -> Any:
        if Path(self.translate_path(self.path)).is_file():
            return super().send_head()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(self.page)))
        self.end_headers()
        return io.BytesIO(self.page)


class _WithOnePage(_WithPages):
    page = b'<a href="about/">_</a><a href="news/">_</a>'


def test_a_web_server_with_one_page_for_all_folders(tmp_path: Path) -> None:
    # Its folders have no end, and were gone through for ever.
    with serving(tmp_path, _WithOnePage) as base:
        url = f"{base}/a"
        with pytest.raises(OSError, match="the same links in each folder") as caught:
            tfr.count_rows(url)
    assert caught.value.filename.startswith(f"{url}/")


class _WithoutSizes(_Quiet):
    def send_header(self, keyword: str, value: str) -> None:
        if keyword.lower() != "content-length":
            super().send_header(keyword, value)


class _WithPagesMadeWhenAsked(_WithPages):
    def send_header(self, keyword: str, value: str) -> None:
        if keyword != "Content-Length" or Path(self.translate_path(self.path)).is_file():
            super().send_header(keyword, value)


@pytest.mark.parametrize("handler", [_WithPages, _WithPagesMadeWhenAsked])
def test_a_web_server_with_pages_for_what_is_not_there(
    tmp_path: Path, handler: type[_Quiet]
) -> None:
    # They were taken for notes of a commit.
    with tfr.TFRecordWriter(tmp_path / "a.tfrecord") as writer:
        writer.write(b"one")
    with serving(tmp_path, handler) as base:
        url = f"{base}/a.tfrecord"
        found = [tfr.read_table(one, record_type="ByteArray") for one in (url, f"{url}?x=y")]
    assert [table["byteArray"].to_pylist() for table in found] == [[b"one"]] * 2


def test_a_web_server_that_tells_no_sizes(tmp_path: Path) -> None:
    with tfr.TFRecordWriter(tmp_path / "a.tfrecord") as writer:
        writer.write(b"one")
    with serving(tmp_path, _WithoutSizes) as base:
        url = f"{base}/a.tfrecord"
        for read in (tfr.read_table, tfr.count_rows, tfr.verify):
            with pytest.raises(
                OSError, match="file's size: fetch it, and read the copy"
            ) as refused:
                read(url)
            assert refused.value.filename == url


def test_an_archive_behind_a_web_server_without_ranges(tmp_path: Path, web_server: str) -> None:
    tfr.write_table(pa.table({"x": [1, 2, 3]}), tmp_path / "t")
    shutil.make_archive(str(tmp_path / "t"), "zip", tmp_path / "t")
    url = f"zip://*.tfrecord::{web_server}/t.zip"
    with pytest.raises(OptionError, match="no parts of files; put simplecache:: before"):
        tfr.count_rows(url)
    assert tfr.count_rows(url.replace("http:", "simplecache::http:")) == 3


@pytest.mark.parametrize("protocol", ["zip", "tar"])
def test_an_archive_that_is_none(tmp_path: Path, protocol: str) -> None:
    (tmp_path / "x").write_bytes(b"no archive" * 100)
    with pytest.raises(CorruptDataError, match="the archive cannot be read") as caught:
        tfr.count_rows(f"{protocol}://::{tmp_path}/x")
    assert caught.value.path == f"{protocol}://::{tmp_path}/x"


class _Refusing(_Quiet):
    """Answers as servers do that have too much to do, or permit nothing."""

    status: int
    of: tuple[str, ...]

    def send_head(self) -> Any:
        if self.path.endswith(self.of):
            self.send_error(self.status)
            return None
        return super().send_head()


@pytest.mark.parametrize(
    ("status", "kind", "what"),
    [
        # Object stores answer 403 for what is not there, too, to who may not list it.
        (403, FileNotFoundError, "No such file or directory"),
        (404, FileNotFoundError, "No such file or directory"),
        # Azure, of what needs a signature.
        (409, FileNotFoundError, "No such file or directory"),
        (429, OSError, "the server answers 429 Too Many Requests"),
        (503, OSError, "the server answers 503 Service Unavailable"),
    ],
)
def test_what_a_web_server_refuses_is_told_as_that(
    tmp_path: Path, status: int, kind: type[OSError], what: str
) -> None:
    # fsspec says of all of them that the file is not there, and shows the password.
    tfr.write_table(pa.table({"x": pa.array([1], pa.int8())}), tmp_path)
    (part,) = tmp_path.glob("part-*")
    answers = type("Answers", (_Refusing,), {"status": status, "of": ("/_SUCCESS", "/a.idx")})
    with serving(tmp_path, answers) as base:
        secret = base.replace("//", "//me:hunter2@")
        for name in ("a.idx", "_SUCCESS"):
            urls = f"{secret}/{name}", f"{secret}/{part.name}"
            for file, index in (urls, urls[::-1]):
                with pytest.raises(kind, match=what) as caught:
                    tfr.TFRecordReader(file, index=index)
                is_missing = isinstance(caught.value, FileNotFoundError)
                assert is_missing is (kind is FileNotFoundError)
                assert caught.value.filename == f"{base}/{name}"
                assert "hunter2" not in shown(caught.value)
        # A manifest of which nobody knows whether it is there tells no types, and they count.
        if kind is FileNotFoundError:
            assert tfr.read_table(f"{base}/{part.name}") == pa.table({"x": [1]})
        else:
            with pytest.raises(OSError, match=what):
                tfr.read_table(f"{base}/{part.name}")


def test_a_web_server_that_went_away(tmp_path: Path) -> None:
    (tmp_path / "a.tfrecord").write_bytes(framed(b"one"))
    with serving(tmp_path, _Quiet) as base:
        url = f"{base}/a.tfrecord"
        reader = tfr.TFRecordReader(url)
    # The file was told as removed.
    with pytest.raises(OSError, match="the server did not answer") as caught:
        reader.read(0)
    assert caught.value.filename == url


class _Expired(_Quiet):
    """As object stores answer once a signed URL has expired."""

    def do_GET(self) -> None:
        self.send_error(403)


class _ExpiredBelow(_Quiet):
    """As a server answers that shows its folders."""

    def do_GET(self) -> None:
        if self.path == "/":
            super().do_GET()
        else:
            self.send_error(403)


@pytest.mark.parametrize("answers", [_Expired, _ExpiredBelow])
def test_a_signed_url_that_expired_is_not_shown(tmp_path: Path, answers: type[_Quiet]) -> None:
    (tmp_path / "x").write_bytes(b"data")
    with serving(tmp_path, answers) as base:
        url = f"{base}/x"
        signed = f"{url}?X-Amz-Signature=hunter2"
        for look, asked in (
            (tfr.read_table, signed),
            (tfr.read_table, f"simplecache::{signed}"),
            (lambda url: len(tfr.TFRecordReader(url)), signed),
        ):
            with pytest.raises(PermissionError, match="the server answers 403 Forbidden") as caught:
                look(asked)
            assert "hunter2" not in shown(caught.value)
            assert caught.value.filename == url


@pytest.mark.parametrize("url", ["s3a://AKIA:hunter2@b/x", "s3://AKIA:hunt/er2@b/x"])
def test_credentials_in_an_s3_url_are_refused_and_not_shown(url: str) -> None:
    with pytest.raises(OptionError, match="give them as storage_options") as caught:
        open_storage(url)
    assert "hunt" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://", "https:///x"])
def test_a_web_url_without_a_host_is_refused(url: str) -> None:
    with pytest.raises(OptionError, match="names no host"):
        tfr.count_rows(url)


@pytest.mark.parametrize("url", ["hdfs:///x", "hdfs://name.invalid/x"])
def test_an_hdfs_url_that_no_configuration_completes(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    for name in ("HADOOP_CONF_DIR", "HADOOP_HOME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(OptionError, match=r"write hdfs://host:port/path.*HADOOP_CONF_DIR"):
        open_storage(url)


_ACCOUNT = "arn:aws:s3:us-east-1:123456789012"


@pytest.mark.parametrize(
    "name",
    [
        f"{_ACCOUNT}:accesspoint/my-ap",
        f"{_ACCOUNT}:accesspoint:my-ap",
        "arn:aws-cn:s3-object-lambda:cn-north-1:123456789012:accesspoint/my-ap",
        "arn:aws:s3-outposts:us-west-2:123456789012:outpost/op-0a1/accesspoint/my-ap",
        "arn:aws:s3-outposts:us-west-2:123456789012:outpost:op-0a1/accesspoint:my-ap",
    ],
)
@pytest.mark.parametrize("key", ["", "x", "a:b/accesspoint/c"])
def test_an_access_point_stands_in_the_place_of_a_bucket(name: str, key: str) -> None:
    path = open_storage(f"s3a://{name}/{key}", {"anon": True})[1]
    bucket, _, found = path.partition("/")
    assert (bucket.replace(":", "/"), found) == (name.replace(":", "/"), key)
    validate_bucket_name({"Bucket": bucket})
    assert s3fs.S3FileSystem(anon=True).split_path(path)[:2] == (bucket, key)


@pytest.mark.parametrize("name", ["arn:a", f"{_ACCOUNT}:accesspoint", f"{_ACCOUNT}:bucket/b"])
def test_other_names_of_aws_are_no_access_points(name: str) -> None:
    with pytest.raises(OptionError, match="names no access point of S3; write s3://arn:aws:s3:"):
        open_storage(f"s3://{name}")


def test_an_s3_url_without_a_bucket_is_refused() -> None:
    with pytest.raises(OptionError, match="names no bucket"):
        open_storage("s3:///b/x")


@pytest.mark.parametrize("options", ["key=a", 5, [("key", "a")]])
def test_storage_options_that_are_no_mapping(tmp_path: Path, options: Any) -> None:
    table = pa.table({"a": [1]})
    tfr.write_table(table, tmp_path / "x")
    for call in (
        lambda: tfr.write_table(table, tmp_path / "y", storage_options=options),
        lambda: tfr.read_table(tmp_path / "x", storage_options=options),
        lambda: tfr.count_rows("memory://x", storage_options=options),
        lambda: tfr.verify(tmp_path / "x", storage_options=options),
        lambda: tfr.convert(tmp_path / "x", tmp_path / "y", target_storage_options=options),
        lambda: tfr.TFRecordReader(tmp_path / "x" / "part", storage_options=options),
    ):
        with pytest.raises(OptionError, match=r"storage_options is a .*; it must be a mapping"):
            call()
    assert not (tmp_path / "y").exists()


def test_no_room_for_what_waits_for_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match=re.escape(f"on device: '{tempfile.gettempdir()}'")):
        Spool().put([memoryview(b"x")])
