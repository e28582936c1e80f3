"""One JVM for all Spark tests: a classic session, and a Connect client of a server in its JVM."""

import os
import shutil
import socket
import sys
import warnings

import pytest


@pytest.fixture(scope="session")
def sessions():
    """The classic session and the Connect client, by name."""
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


@pytest.fixture(params=["classic", "connect"])
def spark(request, sessions):
    """A session of each kind, with the format registered."""
    from tfrecord_io.engines import spark as tfr_spark

    session = sessions[request.param]
    tfr_spark.register(session)
    yield session
    tfr_spark.unregister()


@pytest.fixture
def classic(sessions):
    """The classic session, with the format registered: for what the kind makes no difference to."""
    from tfrecord_io.engines import spark as tfr_spark

    tfr_spark.register(sessions["classic"])
    yield sessions["classic"]
    tfr_spark.unregister()
