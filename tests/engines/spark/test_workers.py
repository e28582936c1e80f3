"""What is done about Spark's Python workers."""

import pickle
import socket
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
import tfrecord_io as tfr
from tfrecord_io.engines.spark.reading import Reader
from tfrecord_io.engines.spark.streaming import StreamReader, StreamWriter
from tfrecord_io.engines.spark.workers import SentToTasks
from tfrecord_io.engines.spark.writing import LocalWriter, Writer

# What a worker does, in a process that nothing else has loaded modules in.
READ_THEN_WRITE = """
import gc, sys
from pyspark.sql.types import StructType
from tfrecord_io.engines.spark.reading import Reader, Rows
from tfrecord_io.engines.spark.options import read_options, write_options
from tfrecord_io.engines.spark.settings import Settings
from tfrecord_io.engines.spark.types import arrow_schema
from tfrecord_io.engines.spark.writing import make_writer

source, target = sys.argv[1:]
struct = StructType().add("n", "long")
rows = Rows(read_options({"path": source}, Settings()), arrow_schema(struct), None)
reader = Reader(rows)
[partition] = reader.partitions()
batches = list(reader.read(partition))
print(gc.get_freeze_count(), len(gc.get_objects()))
options = write_options({"path": target, "writeLocality": "local"}, Settings(), overwrite=False)
make_writer(options, struct).write(iter(batches))
print(gc.get_freeze_count(), len(gc.get_objects()))
"""


def test_workers_keep_what_is_loaded_out_of_collections(tmp_path):
    tfr.write_table(pa.table({"n": [1, 2, 3]}), str(tmp_path / "source"))
    command = [sys.executable, "-c", READ_THEN_WRITE, tmp_path / "source", tmp_path / "target"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert tfr.read_table(str(tmp_path / "target"))["n"].to_pylist() == [1, 2, 3]
    after_read, after_write = (
        [int(count) for count in line.split()] for line in done.stdout.splitlines()
    )
    for frozen, others in (after_read, after_write):
        assert frozen > 10_000 > others


def test_workers_that_have_no_rows_load_no_pandas():
    script = (
        "import sys; from tfrecord_io.engines.spark.workers import keep_what_is_loaded; "
        "keep_what_is_loaded(); print('pandas' in sys.modules)"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


class Sent(SentToTasks):
    def __init__(self):
        self.value = 7


def is_acknowledging(connection):
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="an option of Linux")
def test_a_task_acknowledges_what_spark_sent_before_it_takes_rows():
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as worker,
        server.accept()[0] as spark,
    ):
        spark.sendall(b"a task")
        worker.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        assert not is_acknowledging(worker)
        pickled = pickle.dumps(Sent())
        assert not is_acknowledging(worker)
        count = len(list(Path("/proc/self/fd").iterdir()))
        assert pickle.loads(pickled).value == 7
        assert is_acknowledging(worker)
        assert len(list(Path("/proc/self/fd").iterdir())) == count
        assert worker.recv(6) == b"a task"
        worker.sendall(b"rows")
        assert spark.recv(4) == b"rows"


@pytest.mark.parametrize("kind", [Reader, Writer, LocalWriter, StreamReader, StreamWriter])
def test_all_that_goes_to_tasks_acknowledges(kind):
    assert kind.__setstate__ is SentToTasks.__setstate__
