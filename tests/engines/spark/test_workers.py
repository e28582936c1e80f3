"""What is done about Spark's Python workers."""

import pickle
import socket
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
from tfrecord_io.engines.spark.reading import Reader
from tfrecord_io.engines.spark.streaming import StreamReader, StreamWriter
from tfrecord_io.engines.spark.workers import SentToTasks
from tfrecord_io.engines.spark.writing import LocalWriter, Writer


def test_workers_keep_what_is_loaded_out_of_collections(classic, tmp_path):
    def frozen(batches):
        import gc
        import sys

        # Only a task that reads or writes loads it.
        is_ours = "tfrecord_io.codec.native" in sys.modules
        for _ in batches:
            frozen = gc.get_freeze_count() if is_ours else -1
            yield pa.record_batch({"frozen": [frozen], "others": [len(gc.get_objects())]})

    frame = classic.range(0, 8, 1, 8)
    for _ in range(3):
        frame.write.format("tfrecord").mode("overwrite").save(str(tmp_path / "data"))
    found = frame.mapInArrow(frozen, "frozen long, others long").collect()
    of_ours = [row for row in found if row.frozen != -1]
    assert of_ours
    assert all(row.frozen > 10_000 > row.others for row in of_ours)


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
