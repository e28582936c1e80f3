"""What writing relies on, asked of the real servers through the clients that it uses."""

from __future__ import annotations

import fcntl
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fsspec
import pytest
from hdfs_native import Client, WriteOptions

from tests.support.servers import Server, serve_hdfs, serve_s3

_PART_BYTES = 5 * 1024 * 1024  # S3's least for all parts but the last.


def _filesystem(server: Server) -> tuple[Any, str]:
    filesystem, root = fsspec.core.url_to_fs(server.url, **server.storage_options)
    return filesystem, root


def test_a_store_is_empty_and_takes_files(store: Server) -> None:
    filesystem, root = _filesystem(store)
    assert filesystem.find(root) == []
    filesystem.pipe_file(f"{root}/a/b" if store.url.startswith("s3") else f"{root}/b", b"data")
    (path,) = filesystem.find(root)
    assert filesystem.cat_file(path) == b"data"


class TestS3:
    def test_a_conditional_put_makes_a_file_once(self, s3_server: Server) -> None:
        filesystem, bucket = _filesystem(s3_server)
        put = {"Bucket": bucket, "Key": "conditional", "IfNoneMatch": "*"}
        filesystem.call_s3("put_object", Body=b"first", **put)
        with pytest.raises(OSError, match="condition") as refused:
            filesystem.call_s3("put_object", Body=b"second", **put)
        assert refused.value.__cause__.response["ResponseMetadata"]["HTTPStatusCode"] == 412
        assert filesystem.cat_file(f"{bucket}/conditional") == b"first"

    def test_another_process_completes_an_upload(self, s3_server: Server) -> None:
        filesystem, bucket = _filesystem(s3_server)
        place = {"Bucket": bucket, "Key": "multipart/file"}
        upload = filesystem.call_s3("create_multipart_upload", **place)["UploadId"]
        parts = [
            {
                "PartNumber": number,
                "ETag": filesystem.call_s3(
                    "upload_part", UploadId=upload, PartNumber=number, Body=body, **place
                )["ETag"],
            }
            for number, body in ((1, b"x" * _PART_BYTES), (2, b"end"))
        ]
        assert not filesystem.exists(f"{bucket}/multipart/file")
        listed = filesystem.call_s3("list_multipart_uploads", Bucket=bucket, Prefix="multipart/")
        assert [found["UploadId"] for found in listed["Uploads"]] == [upload]
        program = (
            "import json, sys, s3fs\n"
            "options, call = json.loads(sys.stdin.read())\n"
            "s3fs.S3FileSystem(**options).call_s3('complete_multipart_upload', **call)\n"
        )
        call = {**place, "UploadId": upload, "MultipartUpload": {"Parts": parts}}
        subprocess.run(
            [sys.executable, "-c", program],
            input=json.dumps([s3_server.storage_options, call]),
            text=True,
            check=True,
            timeout=60,
        )
        filesystem.invalidate_cache()
        assert filesystem.info(f"{bucket}/multipart/file")["size"] == _PART_BYTES + 3
        assert filesystem.cat_file(f"{bucket}/multipart/file", start=-3) == b"end"

    def test_a_wrong_secret_is_refused(self, s3_server: Server) -> None:
        options = {**s3_server.storage_options, "secret": "wrong"}
        filesystem, bucket = _filesystem(Server(url=s3_server.url, storage_options=options))
        with pytest.raises(PermissionError):
            filesystem.ls(bucket)


class TestHdfs:
    @pytest.fixture
    def client(self, hdfs_server: Server) -> Iterator[Client]:
        client = Client(hdfs_server.url)
        client.mkdirs("/smoke")
        yield client
        client.delete("/smoke", recursive=True)

    @staticmethod
    def _put(client: Client, path: str, data: bytes) -> None:
        with client.create(path, WriteOptions(overwrite=False)) as file:
            file.write(data)

    def test_create_makes_a_file_once(self, client: Client) -> None:
        self._put(client, "/smoke/a", b"first")
        with pytest.raises(FileExistsError):
            self._put(client, "/smoke/a", b"second")
        with client.read("/smoke/a") as file:
            assert file.read() == b"first"

    def test_rename_refuses_a_target_that_is_there(self, client: Client) -> None:
        self._put(client, "/smoke/a", b"a")
        self._put(client, "/smoke/b", b"b")
        with pytest.raises(FileExistsError):
            client.rename("/smoke/a", "/smoke/b")
        client.rename("/smoke/a", "/smoke/c")
        assert sorted(status.path for status in client.list_status("/smoke")) == [
            "/smoke/b",
            "/smoke/c",
        ]


_LEFT = {
    serve_s3: ["litter", "lock", "log", "s3.json", "users"],
    serve_hdfs: ["lock", "log", "users"],
}

# A process that uses a server and tells where it is, until its input closes.
_USER = """
import sys, pathlib
from tests.support import servers
with getattr(servers, sys.argv[1])(pathlib.Path(sys.argv[2])) as server:
    print(server.url, server.storage_options, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("serve", [serve_s3, serve_hdfs])
def test_users_share_a_server_that_ends_with_the_last(
    serve: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if serve is serve_hdfs:
        request.getfixturevalue("hdfs_server")  # Skips where there is none.

    def user() -> Any:
        return subprocess.Popen(
            [sys.executable, "-c", _USER, serve.__name__, str(tmp_path / "server")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    folder = tmp_path / "server"
    with user() as first, user() as second:
        try:
            assert first.stdout.readline() == second.stdout.readline() != ""
            first.kill()
            first.wait(30)
            with serve(folder) as server:
                filesystem, root = _filesystem(server)
                assert filesystem.exists(root)
                address = urlsplit(
                    server.storage_options.get("client_kwargs", {}).get("endpoint_url", server.url)
                )
            connection = socket.create_connection((address.hostname, address.port), timeout=30)
        finally:
            first.kill()
            second.kill()
    with connection:
        assert connection.recv(1) == b""
    with (folder / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        assert sorted(path.name for path in folder.iterdir()) == _LEFT[serve]
    litter = (folder / "litter").read_text().splitlines() if serve is serve_s3 else []
    assert not any(Path(path).exists() for path in litter)
