"""Streams: new files as they come, batches once whatever is killed, replayed or restarted."""

import datetime as dt
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tfrecord_io as tfr
from tests.support.trees import tree

pyspark = pytest.importorskip("pyspark")
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException  # noqa: E402

STAGING = ".tfrecord-io"


def add(path, ids, **options):
    """Add one file of rows to the input."""
    tfr.write_table(pa.table({"id": pa.array(ids, pa.int64())}), path, mode="append", **options)


def source(spark, path, **options):
    return (
        spark.readStream.format("tfrecord").schema("id bigint").options(**options).load(str(path))
    )


def run(frame, out, checkpoint, **start):
    """Write all that is there, and end."""
    writer = frame.writeStream.format("tfrecord").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start(str(out), **start)
    query.awaitTermination()
    return query


def ids(path):
    return sorted(tfr.read_table(path)["id"].to_pylist())


def batches(path):
    """How far the stream is, as the manifest says."""
    from tfrecord_io.manifest import Manifest

    (number,) = Manifest.loads((path / "_SUCCESS").read_bytes()).streams.values()
    return number + 1


def test_files_as_they_come(spark, tmp_path):
    paths = [tmp_path / name for name in ("in", "out", "checkpoint")]
    add(paths[0], [1, 2])
    run(source(spark, paths[0]), *paths[1:])
    assert ids(paths[1]) == [1, 2]
    # From the checkpoint: only what is new, however often it is started.
    add(paths[0], [3])
    add(paths[0], [4])
    for _ in range(2):
        run(source(spark, paths[0]), *paths[1:])
        assert ids(paths[1]) == [1, 2, 3, 4]
        assert batches(paths[1]) == 2
    # Files that were replaced are new ones; nothing of the old is read again.
    tfr.write_table(pa.table({"id": [50]}), paths[0], mode="overwrite")
    run(source(spark, paths[0]), *paths[1:])
    assert ids(paths[1]) == [1, 2, 3, 4, 50]
    assert {path.name[:5] for path in paths[1].iterdir()} == {"_SUCC", "part-"}


def test_asked_filters_leave_out_files_and_rows(spark, tmp_path):
    paths = [tmp_path / name for name in ("in", "out", "checkpoint")]
    for day, numbers in ((1, [1, 2]), (2, [3, 4, 5])):
        table = pa.table({"id": numbers, "day": [dt.date(2026, 1, day)] * len(numbers)})
        tfr.write_table(table, paths[0], mode="append", partition_by="day")
    for path in (paths[0] / "day=2026-01-01").iterdir():
        path.write_bytes(b"damaged")
    frame = source(spark, paths[0], filters='[["day", ">", "2026-01-01"], ["id", "!=", 4]]')
    run(frame.select("id"), *paths[1:])
    assert ids(paths[1]) == [3, 5]


def test_files_of_a_trigger(spark, tmp_path):
    for number in range(5):
        add(tmp_path / "in", [number])
    frame = source(spark, tmp_path / "in", maxFilesPerTrigger=2)
    run(frame, tmp_path / "out", tmp_path / "checkpoint")
    assert ids(tmp_path / "out") == [0, 1, 2, 3, 4]
    assert batches(tmp_path / "out") == 3


@pytest.fixture(params=["parquet", "tfrecord"])
def arriving(request, classic, tmp_path):
    """Adds a file of one row, which is some seconds old; and the batches of a query by now."""
    folder, now = tmp_path / "in", int(time.time())

    class Arriving:
        def add(self, number, age=0, name=None):
            place = folder / (name or f"a/{number}")
            place.parent.mkdir(parents=True, exist_ok=True)
            file = tmp_path / "written" / "part-00000-000.tfrecord"
            tfr.write_table(pa.table({"id": [number]}), file.parent, mode="overwrite")
            if request.param == "parquet":
                pq.write_table(pa.table({"id": [number]}), file)
            os.utime(file, (now - age, now - age))
            file.rename(place)

        def files(self, below=folder):
            return sorted(f"{p.parent.name}/{p.name}" for p in below.rglob("*") if p.is_file())

        def batches(self, checkpoint="checkpoint", **options):
            found = []
            reader = classic.readStream.format(request.param).schema("id bigint").options(**options)
            writer = reader.load(f"{folder}/*").writeStream.foreachBatch(
                lambda frame, _: found.append(sorted(row.id for row in frame.collect()))
            )
            writer = writer.option("checkpointLocation", str(tmp_path / checkpoint))
            writer.trigger(availableNow=True).start().awaitTermination()
            return found

    return Arriving()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"maxFilesPerTrigger": 1}, [[2], [0], [3], [1]]),
        ({"maxFilesPerTrigger": 3}, [[0, 2, 3], [1]]),
        ({"maxFilesPerTrigger": 3, "latestFirst": "true"}, [[0, 1, 3], [2]]),
        ({"maxBytesPerTrigger": 1}, [[2], [0], [3], [1]]),
        ({"maxBytesPerTrigger": 1, "latestFirst": "true"}, [[1], [3], [0], [2]]),
        ({"maxBytesPerTrigger": 10**9}, [[0, 1, 2, 3]]),
        ({"latestFirst": "true"}, [[0, 1, 2, 3]]),
    ],
)
def test_the_oldest_files_come_first(arriving, options, expected):
    """Later rows than those of an earlier batch may be dropped: watermarks."""
    for number, age in enumerate((30, 10, 40, 20)):
        arriving.add(number, age)
    assert arriving.batches(**options) == expected


def test_files_too_old_are_left_out_if_asked(arriving):
    for number, age in enumerate((100, 50, 10)):
        arriving.add(number, age)
    # Of the first batch none is too old, whatever its files are.
    assert arriving.batches(maxFileAge="20s") == [[0, 1, 2]]
    arriving.add(3, 60)
    arriving.add(4, 25)
    assert arriving.batches(maxFileAge="20s") == [[4]]
    assert arriving.batches(maxFileAge="20s") == []
    in_turn = {"maxFilesPerTrigger": 2, "latestFirst": "true", "maxFileAge": "1ms"}
    assert arriving.batches("another", **in_turn) == [[2, 4], [1, 3], [0]]


def test_an_offset_forgets_files_too_old(classic, tmp_path):
    """Else it would grow with all files that ever were; and they stay old without the option."""
    add(tmp_path / "in", [*range(20)], max_records_per_file=1)
    for path in (tmp_path / "in").glob("part-*"):
        os.utime(path, (10**9, 10**9))
    paths = (tmp_path / "out", tmp_path / "checkpoint")
    for number in (20, 21):
        run(source(classic, tmp_path / "in", maxFileAge="1d"), *paths)
        add(tmp_path / "in", [number])
    run(source(classic, tmp_path / "in"), *paths)
    assert ids(paths[0]) == [*range(22)]
    lengths = [len((paths[1] / "offsets" / name).read_text().split('"')[-4]) for name in "012"]
    assert lengths[0] > 200 > 40 > lengths[2]


def test_files_of_one_name_are_one_file_if_asked(arriving):
    arriving.add(0, name="a/x")
    assert arriving.batches(fileNameOnly="true") == [[0]]
    arriving.add(1, name="b/x")
    arriving.add(2, name="b/y")
    assert arriving.batches(fileNameOnly="true") == [[2]]


def test_files_that_were_read_are_cleaned_if_asked(arriving, tmp_path):
    # The files of the last batch are cleaned when there is a next one.
    for number in range(3):
        arriving.add(number, 10 - number)
    assert arriving.batches(cleanSource="delete", maxFilesPerTrigger=2) == [[0, 1], [2]]
    assert arriving.files() == ["a/2"]
    arriving.add(3)
    moved = tmp_path / "moved"
    options = {"cleanSource": "ARCHIVE", "sourceArchiveDir": str(moved)}
    assert arriving.batches(**options) == [[3]]
    assert (arriving.files(), arriving.files(moved)) == (["a/3"], ["a/2"])
    arriving.add(4)
    assert arriving.batches() == [[4]]
    # As its whole path, so that files of several folders have room.
    assert (moved / str(tmp_path / "in" / "a").lstrip("/")).is_dir()
    assert arriving.files() == ["a/3", "a/4"]


def test_a_checkpoint_of_another_source_is_refused(classic, tmp_path):
    for kind in ("parquet", "tfrecord"):
        classic.range(3).write.format(kind).save(str(tmp_path / kind))
    paths = (tmp_path / "out", tmp_path / "checkpoint")
    run(classic.readStream.schema("id bigint").parquet(str(tmp_path / "parquet")), *paths)
    with pytest.raises(StreamingQueryException, match=r"checkpoint is one of another source.*Loc"):
        run(source(classic, tmp_path / "tfrecord"), *paths)
    assert ids(paths[0]) == [0, 1, 2]
    run(source(classic, tmp_path / "tfrecord"), paths[0], tmp_path / "new")
    with pytest.raises(StreamingQueryException, match="a stream with another fileNameOnly"):
        run(source(classic, tmp_path / "tfrecord", fileNameOnly="true"), paths[0], tmp_path / "new")


def test_a_running_query_meets_new_files(classic, tmp_path):
    add(tmp_path / "in", [1])
    frame = source(classic, tmp_path / "in")
    writer = frame.writeStream.format("tfrecord").option("checkpointLocation", f"{tmp_path}/c")
    query = writer.start(str(tmp_path / "out"))
    try:
        query.processAllAvailable()
        assert ids(tmp_path / "out") == [1]
        add(tmp_path / "in", [2])
        query.processAllAvailable()
        assert ids(tmp_path / "out") == [1, 2]
    finally:
        query.stop()


@pytest.mark.parametrize("kind", ["parquet", "tfrecord"])
def test_folders_come_and_go(classic, tmp_path, kind):
    """As in Spark's own sources; on S3 a folder is there only as long as a file in it."""

    def write(folder, n):
        frame = classic.range(n, n + 1).coalesce(1)
        frame.write.format(kind).mode("append").save(str(tmp_path / "in" / folder))

    def found(name):
        queries[name].processAllAvailable()
        return sorted(row.id for row in classic.table(f"{kind}_{name}").collect())

    reader = classic.readStream.format(kind).schema("id bigint")
    with pytest.raises(AnalysisException) as error:
        reader.load(str(tmp_path / "in" / "a"))
    assert error.value.getCondition() == "PATH_NOT_FOUND"
    queries = {}

    def start(name, path):
        writer = reader.load(str(tmp_path / path)).writeStream.format("memory")
        writer = writer.option("checkpointLocation", f"{tmp_path}/checkpoint-{name}")
        queries[name] = writer.queryName(f"{kind}_{name}").start()

    try:
        start("pattern", "in/*")
        assert found("pattern") == []
        write("a", 1)
        start("folder", "in/a")
        assert found("pattern") == found("folder") == [1]
        shutil.rmtree(tmp_path / "in" / "a")
        assert found("pattern") == found("folder") == [1]
        write("b", 2)
        write("a", 3)
        assert (found("pattern"), found("folder")) == ([1, 2, 3], [1, 3])
    finally:
        for query in queries.values():
            query.stop()


def test_a_first_write_that_runs_has_no_files_yet(classic, tmp_path):
    from tfrecord_io.commit.job import commit_job
    from tfrecord_io.writing.attempt import write_task
    from tfrecord_io.writing.plan import plan_write

    table = pa.table({"id": [1]})
    (tmp_path / "in").mkdir()
    queries = []
    frame = source(classic, tmp_path / "in")

    def start(name):
        writer = frame.writeStream.format("tfrecord")
        writer = writer.option("checkpointLocation", f"{tmp_path}/checkpoint-{name}")
        queries.append(writer.start(str(tmp_path / name)))

    try:
        start("before")
        queries[0].processAllAvailable()
        job = plan_write(table.schema, tmp_path / "in", mode="append")
        staged = write_task(job, 0, table.to_batches())
        start("meanwhile")
        for query in queries:
            query.processAllAvailable()
        commit_job(job, [staged])
        for query in queries:
            query.processAllAvailable()
        assert ids(tmp_path / "before") == ids(tmp_path / "meanwhile") == [1]
    finally:
        for query in queries:
            query.stop()


def test_partitions_both_ways(spark, tmp_path):
    table = pa.table({"word": ["a", "b", "c"], "number": pa.array([8, 1, 8], pa.int32())})
    tfr.write_table(table, tmp_path / "in", partition_by="number")
    reader = spark.readStream.format("tfrecord").schema("word string")
    frame = reader.load(str(tmp_path / "in"))
    assert frame.isStreaming
    assert frame.columns == ["word", "number"]
    run(frame.where("number = 8"), tmp_path / "out", tmp_path / "c", partitionBy="number")
    assert [path.name for path in tmp_path.glob("out/number=*")] == ["number=8"]
    assert tfr.read_table(tmp_path / "out")["word"].to_pylist() == ["a", "c"]


def test_batches_by_a_function(spark, tmp_path):
    """With Connect it runs on the server, in a process in which nothing is registered."""
    add(tmp_path / "in", [1, 2, 3])
    out = str(tmp_path / "out")

    def write(frame, number):
        from tfrecord_io.engines import spark as tfr_spark

        tfr_spark.register(frame.sparkSession)
        frame = frame.selectExpr("id", "id % 2 AS odd")
        frame.write.format("tfrecord").partitionBy("odd").mode("overwrite").save(out)

    writer = source(spark, tmp_path / "in").writeStream.foreachBatch(write)
    writer = writer.option("checkpointLocation", f"{tmp_path}/c").trigger(availableNow=True)
    writer.start().awaitTermination()
    assert ids(tmp_path / "out") == [1, 2, 3]
    assert [path.name for path in sorted(tmp_path.glob("out/odd=*"))] == ["odd=0", "odd=1"]


def test_a_schema_is_given_or_asked_for(spark, tmp_path):
    add(tmp_path / "in", [1])
    reader = spark.readStream.format("tfrecord")
    with pytest.raises(AnalysisException, match="schemaInference") as error:
        reader.load(str(tmp_path / "in"))
    assert error.value.getCondition() == "UNABLE_TO_INFER_SCHEMA"
    spark.conf.set("spark.sql.streaming.schemaInference", "true")
    try:
        assert reader.load(str(tmp_path / "in")).dtypes == [("id", "bigint")]
    finally:
        spark.conf.unset("spark.sql.streaming.schemaInference")
    records = spark.readStream.format("tfrecord").option("recordType", "ByteArray")
    (tmp_path / "bytes").mkdir()
    assert records.load(str(tmp_path / "bytes")).columns == ["byteArray"]


def test_what_a_stream_cannot_do(spark, tmp_path):
    add(tmp_path / "in", [1])
    frame = source(spark, tmp_path / "in")
    writer = frame.writeStream.format("tfrecord").option("checkpointLocation", f"{tmp_path}/c")
    before = tree(tmp_path)
    counted = frame.groupBy("id").count().writeStream.format("tfrecord")
    for refused, text in (
        (lambda: counted.outputMode("complete").start(f"{tmp_path}/out"), "appended"),
        (lambda: writer.outputMode("update").start(f"{tmp_path}/out"), "appended"),
        (lambda: writer.outputMode("append").toTable("some_table"), "toTable"),
        (lambda: writer.start(f"{tmp_path}/out", writeLocality="local"), "writeLocality"),
        (lambda: source(spark, tmp_path / "in", maxFilesPerTrigger=0), "maxFilesPerTrigger"),
        (lambda: source(spark, tmp_path / "in", maxBytesPerTrigger=0), "maxBytesPerTrigger"),
        (
            lambda: source(spark, tmp_path / "in", maxBytesPerTrigger=9, maxFilesPerTrigger=9),
            "both given",
        ),
        (lambda: source(spark, tmp_path / "nothing"), "nothing"),
    ):
        with pytest.raises(AnalysisException, match=text):
            refused()
    mapped = frame.selectExpr("map(id, id) as m").writeStream.format("tfrecord")
    with pytest.raises(AnalysisException, match="'m'"):
        mapped.option("checkpointLocation", f"{tmp_path}/c").start(f"{tmp_path}/out")
    assert tree(tmp_path) == before


def test_other_formats_pass_through(spark, tmp_path):
    add(tmp_path / "in", [1])
    writer = source(spark, tmp_path / "in").writeStream.format("parquet")
    writer = writer.option("checkpointLocation", f"{tmp_path}/c").trigger(availableNow=True)
    writer.start(str(tmp_path / "out")).awaitTermination()
    back = spark.readStream.schema("id bigint").parquet(str(tmp_path / "out"))
    run(back, tmp_path / "again", tmp_path / "c2")
    assert ids(tmp_path / "again") == [1]
    try:
        writer = back.writeStream.option("checkpointLocation", f"{tmp_path}/c3")
        query = writer.trigger(availableNow=True).toTable("of_parquet", format="parquet")
        query.awaitTermination()
        assert [row.id for row in spark.table("of_parquet").collect()] == [1]
    finally:
        spark.sql("DROP TABLE IF EXISTS of_parquet")


def test_a_stream_keeps_its_name(spark, tmp_path):
    """Where Spark asks for names, by which it finds the place of each source in a checkpoint."""
    add(tmp_path / "in", [1])

    def named(name):
        reader = spark.readStream.format("tfrecord").schema("id bigint").name(name)
        return reader.load(str(tmp_path / "in"))

    evolution = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
    spark.conf.set(evolution, "true")
    try:
        run(named("clicks").union(named("views")), tmp_path / "out", tmp_path / "c")
        with pytest.raises(AnalysisException, match=r"(?i)duplicate.*clicks"):
            run(named("clicks").union(named("clicks")), tmp_path / "no", tmp_path / "no-c")
    finally:
        spark.conf.unset(evolution)
    assert ids(tmp_path / "out") == [1, 1]


def test_rows_of_a_stream_go_to_a_function_whatever_format_was_named(spark, tmp_path):
    add(tmp_path / "in", [1, 2])
    out = str(tmp_path / "out")

    def write(frame, number):
        frame.write.parquet(out)

    writer = source(spark, tmp_path / "in").writeStream.format("tfrecord")
    writer = writer.option("checkpointLocation", f"{tmp_path}/c").trigger(availableNow=True)
    writer.foreachBatch(write).start().awaitTermination()
    assert sorted(row.id for row in spark.read.parquet(out).collect()) == [1, 2]


def test_a_table_as_a_stream(spark, tmp_path):
    """As of a table that is read at once, its columns tell what it was made of."""
    tfr.write_table(
        pa.table({"id": [1, 2], "p": pa.array([5, 6], pa.int32())}),
        tmp_path / "in",
        partition_by="p",
        record_type="SequenceExample",
    )
    spark.sql(
        "CREATE TABLE streamed USING tfrecord OPTIONS (recordType 'SequenceExample') "
        f"LOCATION '{tmp_path / 'in'}'"
    )
    try:
        run(spark.readStream.table("streamed"), tmp_path / "out", tmp_path / "c")
    finally:
        spark.sql("DROP TABLE streamed")
    assert tfr.read_table(tmp_path / "out").sort_by("id").to_pydict() == {"id": [1, 2], "p": [5, 6]}


def test_all_that_start_and_load_take(spark, tmp_path):
    add(tmp_path / "in", [1])
    frame = spark.readStream.load(str(tmp_path / "in"), format="tfrecord", schema="id bigint")
    writer = frame.writeStream.trigger(availableNow=True)
    query = writer.start(
        str(tmp_path / "out"),
        format="tfrecord",
        outputMode="append",
        checkpointLocation=str(tmp_path / "c"),
    )
    query.awaitTermination()
    assert ids(tmp_path / "out") == [1]


# --- what goes wrong ------------------------------------------------------------------------------


def forget_the_last_batch(checkpoint):
    """As if the driver was killed between the commit of a batch and Spark's note of it."""
    notes = sorted(checkpoint.glob("commits/[0-9]*"), key=lambda path: int(path.name))
    notes[-1].unlink()
    (checkpoint / "commits" / f".{notes[-1].name}.crc").unlink(missing_ok=True)


def test_a_batch_that_is_replayed(classic, tmp_path):
    add(tmp_path / "in", [1, 2])
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    for expected in ([1, 2], [1, 2, 3]):
        run(source(classic, tmp_path / "in"), out, checkpoint)
        assert ids(out) == expected
        before = tree(out)
        forget_the_last_batch(checkpoint)
        run(source(classic, tmp_path / "in"), out, checkpoint)
        assert tree(out) == before
        add(tmp_path / "in", [3])
    # Another stream is another matter: it begins at the beginning.
    run(source(classic, tmp_path / "in"), out, tmp_path / "other")
    assert ids(out) == sorted([1, 2, 3, 1, 2, 3, 3])


def test_a_function_that_is_called_again_replaces_its_batch(classic, tmp_path):
    add(tmp_path / "in", [1, 2])
    calls = []

    def write(frame, number):
        calls.append(number)
        frame = frame.selectExpr("id", f"{number} AS batch")
        writer = frame.write.format("tfrecord").option("partitionOverwriteMode", "dynamic")
        writer.partitionBy("batch").mode("overwrite").save(str(tmp_path / "out"))

    def run_function():
        writer = source(classic, tmp_path / "in").writeStream.foreachBatch(write)
        writer = writer.option("checkpointLocation", f"{tmp_path}/c").trigger(availableNow=True)
        writer.start().awaitTermination()

    run_function()
    add(tmp_path / "in", [3])
    run_function()
    before = tree(tmp_path / "out")
    forget_the_last_batch(tmp_path / "c")
    run_function()
    assert calls == [0, 1, 1]
    assert tree(tmp_path / "out") == before
    assert ids(tmp_path / "out") == [1, 2, 3]


def test_a_batch_that_was_killed_while_publishing(classic, tmp_path):
    """The commit is decided, and its process gone: the replay finishes it and adds nothing."""
    add(tmp_path / "in", [1])
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    run(source(classic, tmp_path / "in"), out, checkpoint)
    wanted = tree(out)
    shutil.rmtree(out)
    forget_the_last_batch(checkpoint)
    query = re.search('"id":"([^"]*)"', (checkpoint / "metadata").read_text())[1]
    killed = (
        "import os, signal, sys\n"
        "from dataclasses import replace\n"
        "import pyarrow as pa\n"
        "from tfrecord_io import plan\n"
        "from tfrecord_io.commit import job as commit\n"
        "from tfrecord_io.writing import attempt\n"
        "from tfrecord_io.writing.plan import plan_write\n"
        "def kill(*_):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "commit.carry_out = kill\n"
        "rows = pa.record_batch({'id': [1]})\n"
        "job = plan_write(rows.schema, sys.argv[1], mode='append')\n"
        "job = replace(job, batch=plan.StreamBatch(stream=sys.argv[2], number=0))\n"
        "commit.commit_job(job, [attempt.write_task(job, 0, [rows])])\n"
    )
    done = subprocess.run([sys.executable, "-c", killed, str(out), query], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not (out / "_SUCCESS").exists()
    run(source(classic, tmp_path / "in"), out, checkpoint)
    assert tree(out) == wanted


def test_a_worker_that_is_killed(classic, tmp_path):
    add(tmp_path / "in", range(100))
    flag = str(tmp_path / "killed")

    def kill_once(found):
        for batch in found:
            yield batch
            if not Path(flag).exists():
                Path(flag).touch()
                os.kill(os.getpid(), signal.SIGKILL)

    frame = source(classic, tmp_path / "in").mapInArrow(kill_once, "id bigint")
    run(frame, tmp_path / "out", tmp_path / "checkpoint")
    assert Path(flag).exists()
    assert ids(tmp_path / "out") == [*range(100)]
    assert not (tmp_path / "out" / STAGING).exists()


def test_a_batch_that_fails(classic, tmp_path):
    """Nothing of it is left, and the query goes on once the cause is gone."""
    add(tmp_path / "in", [1, 2])
    out, checkpoint, flag = tmp_path / "out", tmp_path / "checkpoint", tmp_path / "bad"
    run(source(classic, tmp_path / "in"), out, checkpoint)
    before = tree(out)
    add(tmp_path / "in", [3])
    flag.touch()

    def fail(found):
        for batch in found:
            yield batch
            if flag.exists():
                raise RuntimeError("on purpose")

    with pytest.raises((StreamingQueryException, PySparkException), match="on purpose"):
        run(source(classic, tmp_path / "in").mapInArrow(fail, "id bigint"), out, checkpoint)
    assert tree(out) == before
    flag.unlink()
    run(source(classic, tmp_path / "in").mapInArrow(fail, "id bigint"), out, checkpoint)
    assert ids(out) == [1, 2, 3]


def test_a_batch_that_was_stopped_when_it_began(spark, tmp_path):
    """Spark aborts none of that; the query's next start removes it, and no other query does."""
    out, flag = tmp_path / "out", tmp_path / "left"

    def leave_a_job(found):
        if not flag.exists():
            flag.touch()
            (job,) = (out / STAGING).iterdir()
            shutil.copytree(job, job.with_name(job.name[:-8] + "0" * 8))
        yield from found

    for number, checkpoint in enumerate(["own", "other", "own"]):
        add(tmp_path / "in", [number])
        frame = source(spark, tmp_path / "in").mapInArrow(leave_a_job, "id bigint")
        run(frame, out, tmp_path / checkpoint)
        assert (out / STAGING).exists() == (number < 2)
    assert ids(out) == [0, 0, 1, 1, 2]


def test_files_that_went_before_they_were_read(classic, tmp_path):
    add(tmp_path / "in", [1])
    add(tmp_path / "in", [2])
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    run(source(classic, tmp_path / "in"), out, checkpoint)
    shutil.rmtree(out)
    forget_the_last_batch(checkpoint)
    (tmp_path / "in" / "part-00000-000.tfrecord").unlink()
    with pytest.raises(StreamingQueryException, match="ignoreMissingFiles"):
        run(source(classic, tmp_path / "in"), out, checkpoint)
    run(source(classic, tmp_path / "in", ignoreMissingFiles=True), out, checkpoint)
    assert ids(out) == [2]
