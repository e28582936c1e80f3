"""Writes that fail: retried tasks, killed workers, aborts; all old or all new, nothing left."""

import os
import signal
import time
import uuid
from pathlib import Path

import pyarrow as pa
import pytest

import tfrecord_io as tfr
from tests.support.servers import s3a_options
from tests.support.trees import stored_files, tree
from tfrecord_io.commit.job import commit_job
from tfrecord_io.commit.ownership import start_time
from tfrecord_io.commit.staging import Staging
from tfrecord_io.storage import open_storage
from tfrecord_io.writing.attempt import write_task
from tfrecord_io.writing.plan import plan_write

pyspark = pytest.importorskip("pyspark")
from pyspark.errors import PySparkException  # noqa: E402
from pyspark.sql.types import StructType  # noqa: E402

from tfrecord_io.engines.spark.writing import Committed, Writer  # noqa: E402

MODES = ["error", "overwrite", "append"]


def save(frame, path, mode):
    frame.write.format("tfrecord").mode(mode).save(str(path))


@pytest.fixture
def target(request, tmp_path):
    """A path with data, unless the mode is that of a new data set."""
    path = tmp_path / "data"
    if request.getfixturevalue("mode") != "error":
        tfr.write_table(pa.table({"id": range(100, 103)}), path)
    return path


@pytest.mark.parametrize("mode", MODES)
def test_a_task_that_fails_once(classic, target, mode, tmp_path):
    flag = str(tmp_path / "failed")
    expected = [*range(100, 103)] if mode == "append" else []

    def fail_once(batches):
        for index, batch in enumerate(batches):
            yield batch
            if index == 0 and batch.column("id")[0].as_py() == 0 and not Path(flag).exists():
                Path(flag).touch()
                raise RuntimeError("once")

    frame = classic.range(0, 20_000, 1, 2).mapInArrow(fail_once, "id long")
    save(frame, target, mode)
    assert Path(flag).exists()
    assert sorted(tfr.read_table(target)["id"].to_pylist()) == sorted([*range(20_000), *expected])
    assert not (target / ".tfrecord-io").exists()


@pytest.mark.parametrize("mode", MODES)
def test_a_worker_that_is_killed(classic, target, mode, tmp_path):
    flag = str(tmp_path / "killed")

    def kill_once(batches):
        for batch in batches:
            yield batch
            if batch.column("id")[0].as_py() == 0 and not Path(flag).exists():
                Path(flag).touch()
                os.kill(os.getpid(), signal.SIGKILL)

    frame = classic.range(0, 20_000, 1, 2).mapInArrow(kill_once, "id long")
    save(frame, target, mode)
    assert Path(flag).exists()
    assert tfr.count_rows(target) == 20_000 + (3 if mode == "append" else 0)
    assert not (target / ".tfrecord-io").exists()


@pytest.mark.parametrize("mode", MODES)
def test_a_task_that_always_fails(spark, target, mode, tmp_path):
    before = tree(tmp_path)

    def fail(batches):
        for batch in batches:
            yield batch
            if batch.column("id")[0].as_py() >= 10_000:
                raise RuntimeError("always")

    frame = spark.range(0, 20_000, 1, 2).mapInArrow(fail, "id long")
    with pytest.raises(PySparkException, match="always"):
        save(frame, target, mode)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("mode", MODES)
def test_a_value_that_cannot_be_written(classic, target, mode, tmp_path):
    before = tree(tmp_path)
    frame = classic.range(0, 20, 1, 2).selectExpr("id", "if(id = 15, 1e300D, 1D) as big")
    with pytest.raises(PySparkException, match=r"EncodeError.*'big'"):
        save(frame.select("big"), target, "overwrite" if mode == "append" else mode)
    assert tree(tmp_path) == before


def test_a_commit_that_fails(spark, tmp_path):
    """Another writer is done first, and the mode is error."""
    path = str(tmp_path / "new")

    def interfere(batches):
        tfr.write_table(pa.table({"id": [1]}), path)
        yield from batches

    frame = spark.range(0, 2, 1, 1).mapInArrow(interfere, "id long")
    with pytest.raises(PySparkException, match="DatasetExistsError"):
        save(frame, path, "error")
    assert tfr.read_table(path)["id"].to_pylist() == [1]
    assert {one.name for one in Path(path).iterdir()} == {"_SUCCESS", "part-00000-000.tfrecord"}


def test_the_job_belongs_to_the_jvm(spark, sessions, tmp_path):
    """Another write meanwhile takes the job for a living one, and the JVM for its owner."""
    path, seen = str(tmp_path / "data"), str(tmp_path / "seen")

    def look(batches):
        (job,) = (one.name for one in Path(path, ".tfrecord-io").iterdir())
        Path(seen).write_text(job)
        tfr.clean(path)
        yield from batches

    frame = spark.range(0, 2, 1, 1).mapInArrow(look, "id long")
    save(frame, path, "error")
    assert tfr.count_rows(path) == 2
    jvm = sessions["classic"].sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    assert f"-{jvm}-{start_time(jvm)}" in Path(seen).read_text()


# --- on every kind of store -----------------------------------------------------------------------

MINUTE = 60


@pytest.fixture(params=["local", "hdfs", "s3"])
def remote(request, tmp_path):
    """A place on each kind of store, with what Spark and the core are told to get there."""
    if request.param == "local":
        return str(tmp_path / "stored"), {}, {}
    server = request.getfixturevalue(f"{request.param}_server")
    options = server.storage_options
    return f"{server.url}/{uuid.uuid4().hex}", s3a_options(options), options


def append(frame, url, told):
    frame.write.format("tfrecord").mode("append").options(**told).save(url)


def test_attempts_that_fail_or_are_killed(classic, remote, tmp_path):
    """Two tasks, of which one fails and one is killed, each once and after its first rows."""
    url, told, options = remote
    append(classic.range(100, 103), url, told)
    before = stored_files(url, options)
    flags = str(tmp_path)

    def once(batches):
        for index, batch in enumerate(batches):
            yield batch
            first = batch.column("id")[0].as_py()
            flag = Path(flags, f"flag-{first >= 10_000}")
            if index == 0 and not flag.exists():
                flag.touch()
                if first >= 10_000:
                    os.kill(os.getpid(), signal.SIGKILL)
                raise RuntimeError("once")

    append(classic.range(0, 20_000, 1, 2).mapInArrow(once, "id long"), url, told)
    assert len(list(tmp_path.glob("flag-*"))) == 2
    table = tfr.read_table(url, storage_options=options)
    assert sorted(table["id"].to_pylist()) == sorted([*range(20_000), 100, 101, 102])
    after = stored_files(url, options)
    assert len(after) == len(before) + 2
    assert {path: after[path] for path in before if path != "_SUCCESS"} == {
        path: data for path, data in before.items() if path != "_SUCCESS"
    }


def test_an_abort_while_a_task_writes(classic, remote, tmp_path):
    """One task fails for good while the other is in the midst of its rows, and goes on after it."""
    url, told, options = remote
    append(classic.range(100, 103), url, told)
    before = stored_files(url, options)
    began, ended = tmp_path / "began", tmp_path / "ended"

    def wait(condition):
        deadline = time.monotonic() + MINUTE
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError
            time.sleep(0.01)

    def part(batches):
        import pyarrow as pa

        staging = Staging(*open_storage(url, options))
        for batch in batches:
            yield batch
            if batch.column("id")[0].as_py() >= 10_000:
                wait(began.exists)
                raise RuntimeError("always")
            began.write_text(str(os.getpid()))
            try:
                wait(lambda: not staging.job_ids())
                for _ in range(100):
                    yield pa.record_batch({"id": pa.array(range(10_000), pa.int64())})
            finally:
                ended.touch()

    frame = classic.range(0, 20_000, 1, 2).mapInArrow(part, "id long")
    with pytest.raises(PySparkException, match="always"):
        append(frame, url, told)
    assert stored_files(url, options) == before
    wait(lambda: ended.exists() or start_time(int(began.read_text())) is None)
    assert stored_files(url, options) == before


def test_a_commit_that_is_refused(classic, remote):
    """Another writer is done first, and the mode is error."""
    url, told, options = remote

    def interfere(batches):
        tfr.write_table(pa.table({"id": [1]}), url, storage_options=options)
        yield from batches

    frame = classic.range(0, 2, 1, 1).mapInArrow(interfere, "id long")
    with pytest.raises(PySparkException, match="DatasetExistsError"):
        frame.write.format("tfrecord").options(**told).save(url)
    assert {*stored_files(url, options)} == {"_SUCCESS", "part-00000-000.tfrecord"}
    assert tfr.read_table(url, storage_options=options)["id"].to_pylist() == [1]


def test_an_abort_ends_what_tasks_uploaded_though_another_job_runs(s3_server):
    url, options = f"{s3_server.url}/{uuid.uuid4().hex}", s3_server.storage_options
    table = pa.table({"v": [1]})
    running, aborted = (
        plan_write(table.schema, url, storage_options=options, mode="append") for _ in range(2)
    )
    kept = write_task(running, 0, [table])
    staged = Committed(write_task(aborted, 0, [table]))
    Writer(aborted, StructType().add("v", "long")).abort([None, staged])
    storage, root = open_storage(url, options)
    assert len(storage.uploads(root)) == 1
    commit_job(running, [kept])
    assert tfr.read_table(url, storage_options=options) == table
