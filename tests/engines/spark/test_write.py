"""What Spark writes: the trees of the core, through the ordinary DataFrameWriter."""

import datetime as dt
import operator
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import tfrecord_io as tfr
from tests.codec.test_golden import CASES, Case
from tests.support.trees import tree
from tfrecord_io.commit.job import commit_job
from tfrecord_io.engines import spark as tfr_spark
from tfrecord_io.writing.attempt import write_task
from tfrecord_io.writing.plan import plan_write

pyspark = pytest.importorskip("pyspark")
from pyspark.errors import AnalysisException, PySparkException  # noqa: E402
from pyspark.sql.datasource import (  # noqa: E402
    DataSource,
    DataSourceArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.functions import explode, lit, udf  # noqa: E402
from pyspark.sql.types import (  # noqa: E402
    ArrayType,
    DoubleType,
    LongType,
    StructField,
    StructType,
    UserDefinedType,
)

from tfrecord_io.engines.spark import row_batches, writing  # noqa: E402
from tfrecord_io.engines.spark.row_batches import small_batches  # noqa: E402

WORDS = [(8, "bat"), (8, "abc"), (1, "xyz"), (2, "aaa")]


def words(spark):
    return spark.createDataFrame(WORDS, "number int, word string")


def rows(frame):
    return sorted(map(tuple, frame.collect()), key=repr)


def condition(error):
    return error.value.getCondition()


# --- the programs of spark-tfrecord's and spark-tensorflow-connector's documentation --------------


def test_partition_by_program(spark, tmp_path):
    d = str(tmp_path / "data")
    df = words(spark)
    (
        df.repartition(3, "number")
        .write.mode("overwrite")
        .partitionBy("number")
        .format("tfrecord")
        .option("recordType", "Example")
        .save(d)
    )
    names = {path.name for path in Path(d).iterdir()}
    assert names == {"_SUCCESS", "number=1", "number=2", "number=8"}
    back = spark.read.format("tfrecord").option("recordType", "Example").load(d)
    assert back.columns == ["word", "number"]
    assert rows(back) == sorted((word, number) for number, word in WORDS)


def test_table_of_all_kinds_program(spark, tmp_path):
    path = str(tmp_path / "data")
    schema = (
        "id int, IntegerCol int, LongCol bigint, FloatCol float, DoubleCol double, "
        "VectorCol array<double>, StringCol string"
    )
    data = [
        (11, 1, 23, 10.0, 14.0, [1.0, 2.0], "r1"),
        (21, 2, 24, 12.0, 15.0, [2.0, 2.0], "r2"),
    ]
    df = spark.createDataFrame(data, schema)
    df.write.format("tfrecord").option("recordType", "Example").save(path)
    inferred = spark.read.format("tfrecord").option("recordType", "Example").load(path)
    assert rows(inferred) == data
    assert inferred.schema == df.schema
    given = spark.read.format("tfrecord").schema(df.schema).load(path)
    assert rows(given) == data
    before = tree(Path(path))
    with pytest.raises(AnalysisException) as error:
        df.write.format("tfrecord").option("recordType", "Example").save(path)
    assert condition(error) == "PATH_ALREADY_EXISTS"
    # What programs look for that are older than conditions; the words of Spark's own sources.
    assert "already exists" in str(error.value)
    assert tree(Path(path)) == before


def test_connector_program(spark, tmp_path):
    from pyspark.ml.linalg import Vectors

    vectors = [Vectors.dense([1.0, 2.5]), Vectors.sparse(4, [1, 3], [7.0, 9.0]), None]
    vectors += [Vectors.dense([]), Vectors.sparse(2, [], [])]
    df = spark.createDataFrame([(i, v, i % 2 == 0) for i, v in enumerate(vectors)], ["i", "v", "b"])
    df.coalesce(1).write.format("tfrecords").save(str(tmp_path / "data"))
    table = tfr.read_table(tmp_path / "data")
    expected = [[1.0, 2.5], [0.0, 7.0, 0.0, 9.0], None, [], [0.0, 0.0]]
    assert table["v"].to_pylist() == expected
    assert table["b"].to_pylist() == [True, False, True, False, True]
    back = spark.read.format("tfrecords").load(str(tmp_path / "data"))
    assert [row.v for row in back.sort("i").collect()] == expected


@pytest.mark.parametrize("mode", ["append", "dynamic"])
def test_nothing_is_added_to_times_of_the_session_s_zone(spark, tmp_path, mode):
    """The manifest would say that they are in UTC, and so move them."""
    path = tmp_path / "data"
    frame = spark.sql("select 1 x, timestamp'2026-01-02 03:04:05' at, 'a' name")
    writer = frame.write.format("tfrecord").mode("overwrite" if mode == "dynamic" else mode)
    writer = writer.option("partitionOverwriteMode", mode if mode == "dynamic" else "static")
    writer.partitionBy("at", "name").save(str(path))
    at = rows(spark.read.format("tfrecord").load(str(path)).select("at"))
    (path / "_SUCCESS").unlink()
    (folder,) = path.glob("at=*")
    folder.rename(path / "at=2026-01-02 03%3A04%3A05")
    assert rows(spark.read.format("tfrecord").load(str(path)).select("at")) == at
    with pytest.raises(AnalysisException, match="zone Asia/Kolkata") as error:
        writer.partitionBy("at", "name").save(str(path))
    assert error.value.getCondition() == "TFRECORD_INVALID_PARTITIONING"
    assert rows(spark.read.format("tfrecord").load(str(path)).select("at")) == at
    plain = spark.sql("select 1 x, timestamp_ntz'2026-01-02 03:04:05' at, 'a' name")
    added = plain.write.format("tfrecord").mode("append").partitionBy("at", "name")
    added.save(str(path))
    assert spark.read.format("tfrecord").load(str(path)).count() == 2


def test_write_locality_local(spark, tmp_path):
    df = spark.range(0, 6, 1, 3)
    df.write.format("tfrecords").option("writeLocality", "local").save(str(tmp_path / "data"))
    assert sorted(tfr.read_table(tmp_path / "data")["id"].to_pylist()) == list(range(6))
    with pytest.raises(AnalysisException, match="writeLocality"):
        df.write.format("tfrecords").mode("overwrite").option("writeLocality", "local").save(
            str(tmp_path / "data")
        )


def test_errors_name_options(spark, tmp_path):
    """Those of a plan, of tasks that write, and of tasks that read."""
    lists = spark.sql("select array(array(1)) as record_type")
    with pytest.raises(AnalysisException, match='write with recordType="SequenceExample"') as error:
        lists.write.format("tfrecord").save(str(tmp_path / "data"))
    assert "column 'record_type'" in str(error.value)
    with pytest.raises(AnalysisException, match="compressionLevel is 99"):
        spark.range(1).write.format("tfrecord").option("compression", "gzip").option(
            "compressionLevel", 99
        ).save(str(tmp_path / "data"))
    empty = spark.createDataFrame([("", 1)], "p string, x int").write.format("tfrecord")
    with pytest.raises(PySparkException, match='emptyPartition="null"'):
        empty.partitionBy("p").save(str(tmp_path / "data"))
    lists.write.format("tfrecord").option("recordType", "SequenceExample").save(
        str(tmp_path / "data")
    )
    with pytest.raises(AnalysisException, match="read it with recordType='SequenceExample'"):
        spark.read.format("tfrecord").load(str(tmp_path / "data"))
    (tmp_path / "data" / "_SUCCESS").unlink()
    reader = spark.read.format("tfrecord").schema("record_type array<bigint>")
    with pytest.raises(PySparkException, match='recordType="SequenceExample"'):
        reader.load(str(tmp_path / "data")).collect()


def test_sequence_example(spark, tmp_path):
    path = str(tmp_path / "data")
    schema = "id bigint, names array<array<string>>, values array<array<float>>"
    data = [(1, [["a", "b"], ["c"]], [[1.5], []]), (2, [], None)]
    df = spark.createDataFrame(data, schema)
    df.write.format("tfrecord").option("recordType", "SequenceExample").save(path)
    back = spark.read.format("tfrecord").option("recordType", "SequenceExample").load(path)
    assert rows(back) == data


def test_byte_array(spark, tmp_path):
    path = str(tmp_path / "data")
    df = spark.createDataFrame([(bytearray(b"\0\xff"),), (bytearray(b""),)], "byteArray binary")
    df.write.format("tfrecord").option("recordType", "ByteArray").save(path)
    back = spark.read.format("tfrecord").option("recordType", "ByteArray").load(path)
    assert back.columns == ["byteArray"]
    assert sorted(bytes(row[0]) for row in back.collect()) == [b"", b"\0\xff"]


@pytest.mark.parametrize("name", CASES)
def test_records_are_those_of_spark_tfrecord(classic, name, tmp_path):
    case = Case(name)
    if case.batch.num_rows == 0:
        pytest.skip("a data set without rows has no part files here")
    frame = classic.createDataFrame(pa.Table.from_batches([case.batch])).coalesce(1)
    path = str(tmp_path / "d")
    tfr_spark.write_tfrecord(frame, path, partition_by=None, record_type=case.record_type)
    (part,) = (tmp_path / "d").glob("part-*")
    assert part.read_bytes() == case.data


# --- the same tree as the core --------------------------------------------------------------------

SELECT = [
    "id",
    "cast(id % 3 as byte) as b",
    "cast(id as short) as s",
    "cast(if(id % 5 = 0, null, id) as int) as i",
    "cast(id as float) / 4 as f",
    "cast(id as decimal(10, 2)) as dec",
    "id % 2 = 0 as flag",
    "concat('é', id) as text",
    "cast(concat('x', id) as binary) as raw",
    "date_add(date '2026-01-01', cast(id as int)) as day",
    "timestamp '2026-01-01 00:00:00 UTC' + make_dt_interval(0, id) as ts",
    "timestamp_ntz '2026-01-01 00:00:00' as ntz",
    "sequence(0L, id % 4) as longs",
    "if(id % 7 = 0, null, array(cast(id as string), 'z')) as texts",
    "element_at(array('a/b', 'ü %', 'plain'), cast(id % 3 + 1 as int)) as p",
    "if(id % 4 = 0, null, cast(id % 2 as int)) as q",
]


def table(ids):
    start = dt.datetime(2026, 1, 1)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "b": pa.array([i % 3 for i in ids], pa.int8()),
            "s": pa.array(ids, pa.int16()),
            "i": pa.array([None if i % 5 == 0 else i for i in ids], pa.int32()),
            "f": pa.array([i / 4 for i in ids], pa.float64()),
            "dec": pa.array([Decimal(i) for i in ids], pa.decimal128(10, 2)),
            "flag": pa.array([i % 2 == 0 for i in ids]),
            "text": pa.array([f"é{i}" for i in ids], pa.large_string()),
            "raw": pa.array([b"x%d" % i for i in ids], pa.large_binary()),
            "day": pa.array([dt.date(2026, 1, 1) + dt.timedelta(i) for i in ids]),
            "ts": pa.array(
                [start + dt.timedelta(hours=i) for i in ids], pa.timestamp("us", "Europe/Berlin")
            ),
            "ntz": pa.array([start for _ in ids], pa.timestamp("us")),
            "longs": pa.array([list(range(i % 4 + 1)) for i in ids], pa.large_list(pa.int64())),
            "texts": pa.array([None if i % 7 == 0 else [str(i), "z"] for i in ids]),
            "p": pa.array([("a/b", "ü %", "plain")[i % 3] for i in ids]).dictionary_encode(),
            "q": pa.array([None if i % 4 == 0 else i % 2 for i in ids], pa.int32()),
        }
    )


@pytest.mark.parametrize("partition_by", [[], ["p", "q"]], ids=["flat", "partitioned"])
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_same_tree_as_write_table(spark, tmp_path, partition_by, compression):
    frame = spark.range(0, 40, 1, 4).selectExpr(*SELECT)
    writer = frame.write.format("tfrecord").option("compression", compression)
    writer.partitionBy(*partition_by).save(str(tmp_path / "spark"))
    options = {"partition_by": partition_by, "compression": compression}
    tfr.write_table(table(range(40)), tmp_path / "core", rows_per_task=10, **options)
    assert tree(tmp_path / "spark") == tree(tmp_path / "core")

    writer.mode("append").partitionBy(*partition_by).save(str(tmp_path / "spark"))
    tfr.write_table(table(range(40)), tmp_path / "core", rows_per_task=10, mode="append", **options)
    assert tree(tmp_path / "spark") == tree(tmp_path / "core")


def test_tasks_are_spark_partitions(spark, tmp_path):
    frame = spark.range(0, 40, 1, 4).where("id < 10 or id >= 20")
    frame.write.format("tfrecord").save(str(tmp_path / "spark"))
    job = plan_write(pa.schema([("id", pa.int64())]), tmp_path / "core")
    runs = [range(10), range(0), range(20, 30), range(30, 40)]
    commits = [
        write_task(job, k, [pa.record_batch({"id": pa.array(run, pa.int64())})])
        for k, run in enumerate(runs)
    ]
    commit_job(job, commits)
    assert tree(tmp_path / "spark") == tree(tmp_path / "core")
    assert {path.name for path in (tmp_path / "spark").iterdir()} == {
        "_SUCCESS",
        *(f"part-{k:05d}-000.tfrecord" for k in (0, 2, 3)),
    }


def test_empty_frame(spark, tmp_path):
    frame = words(spark).where("number > 100")
    frame.write.format("tfrecord").partitionBy("number").save(str(tmp_path / "spark"))
    schema = pa.schema([("number", pa.int32()), ("word", pa.string())])
    tfr.write_table(schema.empty_table(), tmp_path / "core", partition_by="number")
    assert tree(tmp_path / "spark") == tree(tmp_path / "core")
    assert spark.read.format("tfrecord").load(str(tmp_path / "spark")).columns == ["word", "number"]


def test_functional_form(sessions, tmp_path):
    for name, session in sessions.items():
        frame = session.range(0, 40, 1, 4).selectExpr(*SELECT)
        path = tmp_path / name
        tfr_spark.write_tfrecord(
            frame, path, partition_by=["p", "q"], compression="gzip", max_records_per_file=2
        )
        with pytest.raises(AnalysisException) as error:
            tfr_spark.write_tfrecord(frame, path, partition_by=["p", "q"])
        assert condition(error) == "PATH_ALREADY_EXISTS"
        back = tfr_spark.read_tfrecord(session, path, columns=["p", "id"])
        assert back.columns == ["p", "id"]
        assert rows(back) == rows(frame.select("p", "id"))
        both = tfr_spark.read_tfrecord(session, [path / "p=plain", str(path / "p=a%2Fb")])
        assert both.count() == back.where("p in ('plain', 'a/b')").count() > 0
    assert tree(tmp_path / "classic") == tree(tmp_path / "connect")


# --- modes ----------------------------------------------------------------------------------------


def test_modes(spark, tmp_path):
    path = str(tmp_path / "data")

    def ids():
        return sorted(tfr.read_table(path)["id"].to_pylist())

    spark.range(2).write.mode("ignore").format("tfrecord").save(path)
    assert ids() == [0, 1]
    spark.range(5).write.mode("ignore").format("tfrecord").save(path)
    assert ids() == [0, 1]
    spark.range(2, 4).write.save(path, format="tfrecord", mode="append")
    assert ids() == [0, 1, 2, 3]
    spark.range(9, 10).write.save(path, mode="overwrite", format="tfrecord", partitionBy=None)
    assert ids() == [9]
    for mode in ("error", "errorifexists", None):
        with pytest.raises(AnalysisException) as error:
            spark.range(1).write.format("tfrecord").mode(mode).save(path)
        assert condition(error) == "PATH_ALREADY_EXISTS"
    # Spark itself raises an error of another class in Connect, before anything asks for a format.
    with pytest.raises(AnalysisException, match="bogus") as error:
        spark.range(1).write.format("tfrecord").mode("bogus").save(path)
    assert condition(error) == "INVALID_SAVE_MODE"
    assert ids() == [9]


@pytest.mark.parametrize("partition_by", ["number", ["number"]])
def test_all_said_in_save(spark, tmp_path, partition_by):
    path = str(tmp_path / "data")
    for _ in range(2):
        words(spark).write.save(
            path, format="tfrecord", mode="overwrite", partitionBy=partition_by, codec="gzip"
        )
        assert {one.name for one in Path(path).glob("number=*")} == {
            "number=1",
            "number=2",
            "number=8",
        }
    assert all(one.suffix == ".gz" for one in Path(path).rglob("part-*"))


def test_overwriting_what_is_read(spark, tmp_path):
    path = str(tmp_path / "data")
    spark.range(10).write.format("tfrecord").save(path)
    frame = spark.read.format("tfrecord").load(path)
    frame.selectExpr("id * 10 as id").write.format("tfrecord").mode("overwrite").save(path)
    assert sorted(tfr.read_table(path)["id"].to_pylist()) == list(range(0, 100, 10))


@pytest.mark.parametrize("by_option", [True, False])
def test_dynamic_partition_overwrite(spark, tmp_path, by_option):
    path = str(tmp_path / "data")
    words(spark).write.format("tfrecord").partitionBy("number").save(path)
    frame = spark.createDataFrame([(8, "new")], "number int, word string")
    writer = frame.write.format("tfrecord").mode("overwrite").partitionBy("number")
    if by_option:
        writer.option("partitionOverwriteMode", "dynamic").save(path)
    else:
        spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
        try:
            writer.save(path)
        finally:
            spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    back = rows(spark.read.format("tfrecord").load(path))
    assert back == [("aaa", 2), ("new", 8), ("xyz", 1)]


def test_max_records_per_file(spark, tmp_path):
    frame = spark.range(0, 10, 1, 1)
    frame.write.format("tfrecord").option("maxRecordsPerFile", 4).save(str(tmp_path / "data"))
    assert [tfr.count_rows(path) for path in sorted((tmp_path / "data").glob("part-*"))] == [
        4,
        4,
        2,
    ]


@pytest.mark.parametrize(
    ("options", "suffix"),
    [
        ({"codec": "org.apache.hadoop.io.compress.GzipCodec"}, ".gz"),
        ({"codec": "org.apache.hadoop.io.compress.SnappyCodec"}, ".snappy"),
        ({"compression": "zstd", "compressionLevel": "5"}, ".zst"),
        ({"compression": "bzip2"}, ".bz2"),
        ({"compression": "uncompressed"}, ""),
    ],
)
def test_compression(classic, tmp_path, options, suffix):
    path = str(tmp_path / "data")
    classic.range(0, 3, 1, 1).write.format("tfrecord").options(**options).save(path)
    assert [part.name for part in Path(path).glob("part-*")] == [f"part-00000-000.tfrecord{suffix}"]
    assert rows(classic.read.format("tfrecord").load(path)) == [(0,), (1,), (2,)]


def test_names_of_columns_in_any_case(spark, tmp_path):
    words(spark).write.format("TFRecord").partitionBy("NUMBER").save(str(tmp_path / "data"))
    assert (tmp_path / "data" / "number=1").is_dir()


# --- what is refused, before any work -------------------------------------------------------------


@pytest.mark.parametrize(
    ("select", "options", "expected", "text"),
    [
        ("map('a', id) as m", {}, "UNSUPPORTED_DATA_TYPE_FOR_DATASOURCE", "column 'm'"),
        ("struct(id) as s", {}, "UNSUPPORTED_DATA_TYPE_FOR_DATASOURCE", "column 's'"),
        ("array(array(id)) as a", {}, "UNSUPPORTED_DATA_TYPE_FOR_DATASOURCE", "SequenceExample"),
        ("make_ym_interval(1) as y", {}, "UNSUPPORTED_DATA_TYPE_FOR_DATASOURCE", "column 'y'"),
        ("id", {"recordTyp": "Example"}, "TFRECORD_INVALID_OPTION", "recordType"),
        ("id", {"recordType": "example"}, "TFRECORD_INVALID_OPTION", "SequenceExample"),
        ("id", {"codec": "rar"}, "TFRECORD_INVALID_OPTION", "rar"),
        ("id", {"maxRecordsPerFile": "many"}, "TFRECORD_INVALID_OPTION", "whole number"),
        ("id", {"partitionBy": "nothing"}, "TFRECORD_INVALID_OPTION", "nothing"),
        ("id", {"partitionOverwriteMode": "some"}, "TFRECORD_INVALID_OPTION", "static or dynamic"),
        ("id", {"partitionBy": "id"}, "TFRECORD_INVALID_PARTITIONING", "all columns"),
    ],
)
def test_refused_before_any_job(spark, tmp_path, select, options, expected, text):
    ran = tmp_path / "ran"

    def touch(batches):
        ran.touch()
        yield from batches

    # A shuffle would run before Spark itself asks the data source anything.
    frame = spark.range(3).mapInArrow(touch, "id long").repartition(2, "id").selectExpr(select)
    with pytest.raises(AnalysisException, match=text) as error:
        frame.write.format("tfrecord").options(**options).save(str(tmp_path / "data"))
    assert condition(error) == expected
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [{"format": "parquet"}, {"format": "json", "mode": "append"}])
def test_tables_of_other_formats_pass_through(spark, arguments):
    try:
        words(spark).write.format("tfrecord").saveAsTable("of_others", **arguments)
        assert spark.table("of_others").count() == words(spark).count()
    finally:
        spark.sql("DROP TABLE IF EXISTS of_others")


def test_save_as_table_and_buckets_are_refused(spark, tmp_path):
    frame = words(spark)
    with pytest.raises(AnalysisException, match="then CREATE TABLE name USING tfrecord LOCATION"):
        frame.write.format("tfrecord").saveAsTable("some_table")
    with pytest.raises(AnalysisException, match="bucketBy"):
        frame.write.format("tfrecord").bucketBy(2, "number").save(str(tmp_path / "data"))
    with pytest.raises(AnalysisException, match="sortBy"):
        frame.write.format("tfrecord").sortBy("number").save(str(tmp_path / "data"))
    with pytest.raises(AnalysisException, match="there is no path"):
        frame.write.format("tfrecord").save()


class _PointUDT(UserDefinedType):
    """A type whose class pretends to be of a notebook."""

    @classmethod
    def sqlType(cls):
        return ArrayType(DoubleType())

    @classmethod
    def module(cls):
        return "__main__"


def test_a_type_of_the_main_program_is_refused(spark, tmp_path, monkeypatch):
    """PySpark's workers load no class that comes pickled, and tell no more than that."""
    monkeypatch.setattr(sys.modules["__main__"], "_PointUDT", _PointUDT, raising=False)
    columns = StructType().add("x", LongType()).add("point", _PointUDT())
    path = str(tmp_path / "data")
    with pytest.raises(AnalysisException, match=r"'point' .* in a module that they have"):
        spark.createDataFrame([], columns).write.format("tfrecord").save(path)
    assert list(tmp_path.iterdir()) == []
    tfr.write_table(pa.table({"x": [1], "point": [[1.0, 2.0]]}), path)
    with pytest.raises(AnalysisException, match=r"'point' .* in a module that they have"):
        spark.read.format("tfrecord").schema(columns).load(path)


def test_a_frame_without_columns_is_refused(spark, tmp_path):
    for name in ("parquet", "tfrecord"):
        with pytest.raises(AnalysisException) as error:
            spark.range(3).select().write.format(name).save(str(tmp_path / name))
        assert condition(error).startswith("EMPTY_SCHEMA_NOT_SUPPORTED_FOR_DATASOURCE")
    assert list(tmp_path.iterdir()) == []


def test_writes_of_other_threads(spark, tmp_path):
    frame = spark.range(3)
    checkpoint = str(tmp_path / "checkpoint")

    def write(way):
        path = str(tmp_path / way)
        if way == "writer":
            frame.write.format("tfrecord").save(path)
        elif way == "functional":
            tfr_spark.write_tfrecord(frame, path)
        else:
            source = spark.readStream.format("tfrecord").schema("id long").load(path)
            writer = source.writeStream.format("tfrecord").trigger(availableNow=True)
            path = str(tmp_path / "out")
            writer.option("checkpointLocation", checkpoint).start(path).awaitTermination()
        return tfr.count_rows(path)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(write, "writer").result() == 3
        assert pool.submit(write, "functional").result() == 3
    shutil.copytree(tmp_path / "writer", tmp_path / "stream")
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(write, "stream").result() == 3


# --- what is not ours -----------------------------------------------------------------------------


def test_other_formats_pass_through(spark, tmp_path):
    frame = words(spark)
    frame.write.partitionBy("number").save(str(tmp_path / "parquet"))
    frame.write.format("json").mode("overwrite").save(str(tmp_path / "json"))
    assert rows(spark.read.load(str(tmp_path / "parquet"))) == rows(frame.select("word", "number"))
    assert rows(spark.read.load(str(tmp_path / "json"), format="json")) == rows(frame)
    with pytest.raises(AnalysisException, match="already exists"):
        frame.write.save(str(tmp_path / "parquet"))


def test_unregister_restores(sessions, tmp_path):
    from pyspark.sql import catalog as classic_catalog
    from pyspark.sql import readwriter as of_classic
    from pyspark.sql import session as classic_session
    from pyspark.sql.connect import catalog as connect_catalog
    from pyspark.sql.connect import readwriter as of_connect
    from pyspark.sql.connect import session as connect_session
    from pyspark.sql.connect.streaming import readwriter as streams_of_connect
    from pyspark.sql.streaming import readwriter as streams_of_classic

    names = {
        of_classic: ("DataFrameReader.load", "DataFrameWriter.save", "DataFrameWriter.saveAsTable"),
        streams_of_classic: (
            "DataStreamReader.load",
            "DataStreamWriter.start",
            "DataStreamWriter.toTable",
        ),
    }
    names[of_connect], names[streams_of_connect] = names.values()
    of_tables = ("create", "replace", "createOrReplace")
    for module in (of_classic, of_connect):
        names[module] += tuple(f"DataFrameWriterV2.{name}" for name in of_tables)
    for module in (classic_session, connect_session):
        names[module] = ("SparkSession.sql",)
    for module in (classic_catalog, connect_catalog):
        names[module] = ("Catalog.createTable",)

    def methods():
        return [
            operator.attrgetter(name)(module) for module, some in names.items() for name in some
        ]

    before = methods()
    for session in sessions.values():
        tfr_spark.register(session)
        tfr_spark.register(session)
    assert not set(before) & set(methods())
    tfr_spark.unregister(sessions["classic"])
    assert not set(before) & set(methods())
    tfr_spark.unregister()
    assert methods() == before


def test_names_that_differ_in_case_alone(spark, tmp_path):
    """By Spark's own sources; where case counts they are two columns."""
    frame = spark.createDataFrame([(1, 2)], "a int, A int")
    for name in ("parquet", "tfrecord"):
        with pytest.raises(AnalysisException, match="The column `a` already exists") as error:
            frame.write.format(name).save(str(tmp_path / name))
        assert condition(error) == "COLUMN_ALREADY_EXISTS"
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        frame.write.format("tfrecord").save(str(tmp_path / "tfrecord"))
        assert rows(spark.read.format("tfrecord").load(str(tmp_path / "tfrecord"))) == [(1, 2)]
        for name in ("parquet", "tfrecord"):
            with pytest.raises(AnalysisException, match=r"(no column 'NUMBER'|NUMBER. not found)"):
                words(spark).write.format(name).partitionBy("NUMBER").save(str(tmp_path / "w"))
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_a_name_with_a_nul(spark, tmp_path):
    frame = spark.createDataFrame([(1,)], "id int").withColumnRenamed("id", "a\0b")
    with pytest.raises(AnalysisException, match="has a NUL in its name"):
        frame.write.format("tfrecord").save(str(tmp_path / "data"))
    assert not (tmp_path / "data").exists()


# --- how rows come to the workers -----------------------------------------------------------------

BATCH_OPTION = "spark.sql.execution.arrow.maxBytesPerBatch"
ROWS_OPTION = "spark.sql.execution.arrow.maxRecordsPerBatch"
ANY_BYTES = str(2**31 - 1)


def rows_of_batches(batches):
    for batch in batches:
        yield pa.record_batch({"rows": [batch.num_rows]})


@pytest.mark.parametrize("way", ["writer", "functional"])
def test_rows_come_in_small_batches(spark, tmp_path, way):
    wide = spark.range(0, 600, 1, 1).selectExpr("repeat('x', 20000) as text")
    counts = wide.mapInArrow(rows_of_batches, "rows long")

    def batches_of(path):
        if way == "writer":
            counts.write.format("tfrecord").save(path)
        else:
            tfr_spark.write_tfrecord(counts, path)
        return [count for (count,) in rows(spark.read.format("tfrecord").load(path))]

    small = batches_of(str(tmp_path / "small"))
    assert sum(small) == 600
    assert max(small) * 20_000 < 5 * 2**20
    assert spark.conf.get(BATCH_OPTION, None) is None
    # A size that the session has is kept to, and kept.
    spark.conf.set(BATCH_OPTION, "32m")
    try:
        assert batches_of(str(tmp_path / "large")) == [600]
        assert spark.conf.get(BATCH_OPTION) in ("32m", str(32 * 2**20), f"{32 * 2**20}b")
    finally:
        spark.conf.unset(BATCH_OPTION)


def test_a_size_that_is_set_meanwhile_stays(sessions, tmp_path, monkeypatch):
    spark = sessions["connect"]
    own = type(spark.range(1).write).save

    def save(writer, *args, **more):
        assert spark.conf.get(BATCH_OPTION) == str(4 * 2**20)
        spark.conf.set(BATCH_OPTION, "1000000")
        own(writer, *args, **more)

    tfr_spark.unregister()
    monkeypatch.setattr(type(spark.range(1).write), "save", save)
    tfr_spark.register(spark)
    try:
        spark.range(1).selectExpr("'x' as text").write.format("tfrecord").save(
            str(tmp_path / "data")
        )
        assert spark.conf.get(BATCH_OPTION).startswith("1000000")
    finally:
        spark.conf.unset(BATCH_OPTION)
        tfr_spark.unregister()


@pytest.fixture
def limits(classic, monkeypatch):
    """Give what tells how many bytes and rows a batch may have while a frame is written."""
    found = []
    tfr_spark.unregister()
    own = type(classic.range(1).write).save

    def of_thread():
        return tuple(map(classic.sparkContext.getLocalProperty, (BATCH_OPTION, ROWS_OPTION)))

    def save(writer, *args, **more):
        found.append(of_thread())
        assert classic.conf.get(BATCH_OPTION, None) is None
        own(writer, *args, **more)

    monkeypatch.setattr(type(classic.range(1).write), "save", save)
    tfr_spark.register(classic)

    def of(frame, path):
        frame.write.format("tfrecord").save(str(path))
        assert of_thread() == (None, None)
        return found.pop()

    yield of
    # Before the method is Spark's own again, or this one would be put back.
    tfr_spark.unregister()


def texts(session, count):
    return session.range(5000).selectExpr(
        *(f"repeat('x', id % 7) as text{at}" for at in range(count))
    )


def numbers(session, count):
    return session.range(5000).selectExpr(*(f"id as number{at}" for at in range(count)))


def test_rows_are_counted_where_that_is_safe(classic, tmp_path, limits):
    few = classic.range(5).selectExpr("id", "double(id) as x", "date'2024-01-01' as day")
    assert limits(few, tmp_path / "few numbers") == (ANY_BYTES, "10000")
    many = numbers(classic, 1024).limit(5)
    assert limits(many, tmp_path / "many numbers") == (ANY_BYTES, "1024")
    assert rows(classic.read.format("tfrecord").load(str(tmp_path / "many numbers"))) == rows(many)


@pytest.mark.parametrize(
    ("columns", "expected"), [(1, 10_000), (100, 2621), (500, 1024), (4096, 1024), (8192, 512)]
)
def test_batches_of_many_numbers_have_enough_rows(columns, expected):
    """A batch costs by its columns, so few rows of many columns would be slow."""
    fields = [StructField(f"number{at}", LongType()) for at in range(columns)]
    assert row_batches._rows_per_batch(StructType(fields)) == expected


def test_small_batches_are_put_together_in_a_task(tmp_path, monkeypatch):
    """The session may set how many rows a batch has, which are few for each of many folders."""
    seen = []

    def write(job, task, batches):
        batches = list(batches)
        seen.extend(batch.num_rows for batch in batches)
        return write_task(job, task, batches)

    monkeypatch.setattr(writing, "write_task", write)
    monkeypatch.setattr(writing, "keep_what_is_loaded", lambda: None)
    batch = pa.record_batch({"number": range(100)})
    job = plan_write(batch.schema, str(tmp_path / "data"))
    commit_job(job, [writing.stage(job, 0, iter([batch] * 30), ())])
    assert seen == [3000]
    assert tfr.read_table(tmp_path / "data")["number"].to_pylist() == [*range(100)] * 30


def test_bytes_are_counted_where_rows_may_be_long(classic, tmp_path, limits):
    bytes_alone = (str(4 * 2**20), None)
    wide = numbers(classic, 20)
    for number, frame in enumerate(
        [
            texts(classic, 1),
            texts(classic, 20),
            wide.selectExpr("*", "string(number1) as text"),
            wide.selectExpr("*", "binary('x') as data"),
            wide.selectExpr("*", "array(1L) as items"),
            # These hand rows to Python themselves, under the same limits.
            wide.mapInArrow(lambda batches: batches, wide.schema),
            wide.mapInArrow(lambda batches: batches, wide.schema).cache(),
            wide.withColumn("more", udf(lambda value: value, "long")("number1")).where("more > 1"),
            wide.select("*", explode(lit([1, 2]))),
        ]
    ):
        assert limits(frame, tmp_path / str(number)) == bytes_alone
    classic.conf.set(ROWS_OPTION, "100")
    try:
        assert limits(wide, tmp_path / "set") == bytes_alone
    finally:
        classic.conf.unset(ROWS_OPTION)


def test_one_long_text_among_many_columns(classic, tmp_path):
    """Spark's own limit holds for such rows; of 2,048 of them the JVM would have no memory left."""
    short = [f"id as number{at}" for at in range(15)]
    frame = classic.range(0, 3000, 1, 1).selectExpr(*short, "repeat('x', 400000) as text")
    frame.write.format("tfrecord").option("compression", "gzip").save(str(tmp_path / "data"))
    assert tfr.count_rows(tmp_path / "data") == 3000


def test_workers_get_batches_of_so_many_rows(classic, tmp_path):
    class Probe(DataSource):
        @classmethod
        def name(cls):
            return "probe"

        def writer(self, schema, overwrite):
            return ProbeWriter()

    class ProbeWriter(DataSourceArrowWriter):
        def write(self, iterator):
            target.write_text(" ".join(str(batch.num_rows) for batch in iterator))
            return WriterCommitMessage()

    target = tmp_path / "counts"
    classic.dataSource.register(Probe)
    frame = numbers(classic, 128).coalesce(1)
    with small_batches(classic, frame):
        frame.write.format("probe").mode("append").save()
    assert target.read_text() == "2048 2048 904"
    frame.write.format("probe").mode("append").save()
    assert target.read_text() == "5000"


def test_a_column_of_nulls_goes_with_any_type(classic, tmp_path):
    d = str(tmp_path / "data")
    for value in (lit(None), lit(5), lit(None)):
        classic.range(1).withColumn("x", value).write.format("tfrecord").mode("append").save(d)
    back = classic.read.format("tfrecord").load(d)
    assert back.schema["x"].dataType.simpleString() == "int"
    assert rows(back) == [(0, 5), (0, None), (0, None)]


def test_arrays_of_no_type_are_refused(spark, tmp_path):
    frame = spark.range(1).selectExpr("id", "array() x")
    with pytest.raises(AnalysisException, match=r"'x'.*array<void>.*such as array<int>") as error:
        frame.write.format("tfrecord").save(str(tmp_path / "data"))
    assert condition(error) == "UNSUPPORTED_DATA_TYPE_FOR_DATASOURCE"
    frame = frame.selectExpr("id", "cast(x as array<int>) x")
    frame.write.format("tfrecord").save(str(tmp_path / "data"))
    assert tfr.read_table(tmp_path / "data")["x"].to_pylist() == [[]]
