"""What all tests may ask for: codecs, stores, TensorFlow, one cluster and one JVM for all."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import fsspec
import pytest

from tests.support.objects import Objects
from tests.support.servers import (
    Server,
    ServerMissingError,
    serve_azure,
    serve_gcs,
    serve_hdfs,
    serve_s3,
)
from tfrecord_io import storage
from tfrecord_io.storage.objects import GoogleStorage

# Else gcsfs asks Google by gRPC, for a minute each, of which kind a bucket is.
os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let one process run all tests with Spark: a JVM takes long to start, and to get warm."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            is_spark = "/spark/" in nodeid or "[classic" in nodeid or "[connect" in nodeid
            return "spark" if is_spark else nodeid

    return Scheduling(config, log)


@pytest.fixture(params=["reference", "native"])
def codec(request):
    """Each codec's name. Where the kernel was not built, tests with it fail."""
    return request.param


@pytest.fixture(scope="session")
def hdfs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """HDFS on this machine; where Java is missing, tests with it are skipped, except in CI."""
    yield from _session_server(tmp_path_factory, "hdfs", serve_hdfs)


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A bucket of an S3 server on this machine."""
    yield from _session_server(tmp_path_factory, "s3", serve_s3)


@pytest.fixture(scope="session")
def gcs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A bucket of an emulator of Google's store on this machine."""
    yield from _session_server(tmp_path_factory, "gcs", serve_gcs)


@pytest.fixture(scope="session")
def azure_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A container of Azure's own emulator of its store on this machine."""
    yield from _session_server(tmp_path_factory, "azure", serve_azure)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A client of two single-threaded worker processes; they import this checkout."""
    import dask
    import distributed

    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[1])
    try:
        with (
            # How long a worker tries to reach one that was killed.
            dask.config.set({"distributed.comm.timeouts.connect": "3s"}),
            distributed.LocalCluster(
                n_workers=2,
                threads_per_worker=1,
                processes=True,
                dashboard_address=":0",
                local_directory=str(tmp_path_factory.mktemp("scratch")),
            ) as made,
            distributed.Client(made, set_as_default=False) as client,
        ):
            yield client
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


@pytest.fixture(scope="session")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The classic session, and a Connect client of a server in its JVM, by name."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        if "CI" in os.environ:
            pytest.fail("the Spark tests need Java, and there is none")
        pytest.skip("the Spark tests need Java")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession
        from pyspark.sql.connect.session import SparkSession as ConnectSession

        # Two threads, and a task may fail once.
        classic = (
            SparkSession.builder.master("local[2,2]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.memory", "1g")
            .config("spark.sql.shuffle.partitions", "3")
            .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
            .config("spark.sql.session.timeZone", "Asia/Kolkata")
            .config("spark.plugins", "org.apache.spark.sql.connect.SparkConnectPlugin")
            .config("spark.connect.grpc.binding.address", "127.0.0.1")
            .config("spark.connect.grpc.binding.port", str(port))
            .getOrCreate()
        )
        classic.sparkContext.setLogLevel("OFF")
        connect = ConnectSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
        connect.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    yield {"classic": classic, "connect": connect}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        connect.stop()
        classic.stop()


@pytest.fixture
def objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store of objects ``objects://``."""
    fsspec.register_implementation("objects", Objects, clobber=True)
    monkeypatch.setattr(storage.objects, "OBJECT_STORES", {"objects": GoogleStorage})


@pytest.fixture(params=["local", "hdfs", "s3", "gcs", "azure", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """A fresh empty folder in each kind of store."""
    name = uuid.uuid4().hex
    if request.param == "local":
        folder = tmp_path / "store"
        folder.mkdir()
        yield Server(url=str(folder))
    elif request.param == "memory":
        files = fsspec.filesystem("memory")
        files.makedirs(f"/{name}")
        yield Server(url=f"memory://{name}")
        files.rm(f"/{name}", recursive=True)
    else:
        server: Server = request.getfixturevalue(f"{request.param}_server")
        url = f"{server.url}/{name}"
        if request.param == "hdfs":
            fsspec.core.url_to_fs(url)[0].mkdir(f"/{name}")
        yield Server(url=url, storage_options=server.storage_options)


@pytest.fixture(scope="session")
def tf() -> Any:
    """TensorFlow: only tests that ask for it pay for the seconds that importing it takes."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import tensorflow
        from tensorflow import keras

        # Loaded on demand, with warnings of its own.
        _ = keras.layers
    return tensorflow


def _session_server(
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    start: Callable[[Path], AbstractContextManager[Server]],
) -> Iterator[Server]:
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        # Each worker's folder is in that of the whole run.
        folder = folder.parent
    try:
        server = start(folder / f"server-{name}")
        with server as found:
            yield found
    except ServerMissingError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))
