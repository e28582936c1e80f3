"""What Spark reads: columns, options, filters, damage; rows as the core has them."""

import datetime as dt
import decimal
import gzip
import json
import os
import re
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tfrecord_io as tfr
from tests.codec.test_golden import GOLDEN
from tests.support.frames import examples, header
from tests.support.frames import frame as framed
from tests.support.sessions import settings
from tfrecord_io.engines import spark as tfr_spark
from tfrecord_io.errors import TFRecordWarning

pyspark = pytest.importorskip("pyspark")
from pyspark.errors import AnalysisException, PySparkException  # noqa: E402
from pyspark.sql.types import (  # noqa: E402
    ArrayType,
    BinaryType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructType,
)

#: Warnings of a load reach the client of a classic session; of a Connect session, the server's log.
WARNED = pytest.mark.filterwarnings("default::tfrecord_io.errors.TFRecordWarning")


def load(spark, path, **options):
    return spark.read.format("tfrecord").options(**options).load(str(path))


def rows(frame):
    return sorted(map(tuple, frame.collect()), key=repr)


PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    """3 days of 4 rows each, written by the core."""
    path = tmp_path_factory.mktemp("events") / "data"
    table = pa.table(
        {
            "id": pa.array(range(12), pa.int64()),
            "x": pa.array([i / 2 for i in range(12)], pa.float32()),
            "name": pa.array([None if i % 5 == 4 else f"n{i}" for i in range(12)]),
            "day": pa.array([f"2026-01-0{1 + i // 4}" for i in range(12)]),
            "n": pa.array([i // 2 for i in range(12)], pa.int32()),
        }
    )
    tfr.write_table(table, path, partition_by=["day", "n"])
    return path


def test_times_of_other_units_than_sparks(spark, tmp_path):
    moment, wait = dt.datetime(2026, 1, 1, 12, 0, 1), dt.timedelta(seconds=90)
    table = pa.table(
        {
            "seen": pa.array([moment], pa.timestamp("ms", "UTC")),
            "took": pa.array([wait], pa.duration("ms")),
            "many": pa.array([[moment]], pa.list_(pa.timestamp("ns"))),
        }
    )
    tfr.write_table(table, tmp_path / "ds")
    asked = "seen timestamp, took interval day to second, many array<timestamp_ntz>"
    inferred = load(spark, tmp_path / "ds")
    declared = spark.read.format("tfrecord").schema(asked).load(str(tmp_path / "ds"))
    assert inferred.dtypes == declared.dtypes
    assert declared.collect() == inferred.collect()
    row = declared.selectExpr("unix_seconds(seen)", "took", "many").collect()[0]
    seconds = int(moment.replace(tzinfo=dt.timezone.utc).timestamp())
    assert tuple(row) == (seconds, wait, [moment])


@pytest.fixture
def wild(events, tmp_path):
    """The same without the manifest: as others would have written it."""
    shutil.copytree(events, tmp_path / "wild")
    (tmp_path / "wild" / "_SUCCESS").unlink()
    return tmp_path / "wild"


def test_types_of_an_own_data_set(spark, tmp_path):
    moment = dt.datetime(2026, 1, 2, 3, 4, 5)
    table = pa.table(
        {
            "u8": pa.array([200], pa.uint8()),
            "u64": pa.array([2**62], pa.uint64()),
            "half": pa.array([0.5], pa.float16()),
            "seconds": pa.array([moment], pa.timestamp("s", "UTC")),
            "nanos": pa.array([moment], pa.timestamp("ns")),
            "date64": pa.array([dt.date(2026, 1, 2)], pa.date64()),
            "time": pa.array([dt.time(1, 2, 3)], pa.time32("s")),
            "wait": pa.array([dt.timedelta(seconds=5)], pa.duration("ms")),
            "fixed": pa.array([[1, 2]], pa.list_(pa.int16(), 2)),
            "nothing": pa.nulls(1),
        }
    )
    tfr.write_table(table, tmp_path / "data")
    frame = load(spark, tmp_path / "data")
    assert [field.dataType.simpleString() for field in frame.schema] == [
        *("smallint", "bigint", "float", "timestamp", "timestamp_ntz", "date", "bigint"),
        *("interval day to second", "array<smallint>", "void"),
    ]
    (row,) = frame.selectExpr("*", "unix_timestamp(seconds) as unix").collect()
    assert row.unix == int(moment.replace(tzinfo=dt.timezone.utc).timestamp())
    assert row.asDict() | {"seconds": None, "unix": None} == {
        "u8": 200,
        "u64": 2**62,
        "half": 0.5,
        "seconds": None,
        "nanos": moment,
        "date64": dt.date(2026, 1, 2),
        "time": 3723,
        "wait": dt.timedelta(seconds=5),
        "fixed": [1, 2],
        "nothing": None,
        "unix": None,
    }


def test_times_that_microseconds_do_not_tell(classic, tmp_path):
    table = pa.table({"t": pa.array([1_700_000_000_000_000_001], pa.timestamp("ns"))})
    tfr.write_table(table, tmp_path / "data")
    told = r"do not fit the types that Spark has for them: .*such as bigint, or leave it out"
    with pytest.raises(PySparkException, match=told) as error:
        load(classic, tmp_path / "data").collect()
    assert "part-00000-000.tfrecord" in str(error.value)
    reader = classic.read.format("tfrecord").schema("t bigint")
    assert reader.load(str(tmp_path / "data")).collect() == [(1_700_000_000_000_000_001,)]


@WARNED
def test_inference(spark, tmp_path):
    (tmp_path / "a").write_bytes(
        examples({"i": 1, "f": 0.5, "s": "x", "b": b"\xff", "many": [1, 2]}, {"mixed": 1})
    )
    (tmp_path / "b").write_bytes(examples({"mixed": 0.5, "late": "y"}))
    schema = {field.name: field.dataType for field in load(spark, tmp_path).schema}
    assert schema == {
        "i": LongType(),
        "f": FloatType(),
        "s": StringType(),
        "b": BinaryType(),
        "many": ArrayType(LongType()),
        "mixed": DoubleType(),
        "late": StringType(),
    }
    assert load(spark, tmp_path).count() == 3


def test_warnings_reach_the_client(classic, tmp_path):
    (tmp_path / "a").write_bytes(examples({"mixed": 1}))
    (tmp_path / "b").write_bytes(examples({"mixed": 0.5}) + b"noise")
    with pytest.warns(TFRecordWarning) as found:
        load(classic, tmp_path, mode="DROPMALFORMED")
    texts = [str(warning.message) for warning in found]
    assert [warning.filename for warning in found] == [__file__] * 2
    assert "skipped 1 damaged byte range (5 bytes)" in texts[0]
    assert "int64 and float values are mixed, read as float64: 'mixed'" in texts[1]


def test_what_no_condition_fits(classic):
    """A store that is not there: the condition is the one that a worker's error has."""
    path = "s3a://bucket/data"
    settings = {"fs.s3a.endpoint": "127.0.0.1:1", "fs.s3a.connection.ssl.enabled": "false"}
    keys = {"fs.s3a.access.key": "a", "fs.s3a.secret.key": "b"}
    with pytest.raises(AnalysisException) as error:
        load(classic, path, **settings, **keys)
    assert error.value.getCondition() == "PYTHON_DATA_SOURCE_ERROR"
    assert "S3 at http://127.0.0.1:1 did not answer" in str(error.value)


def test_sampling_ratio(spark, tmp_path):
    for name, row in (("a", {"x": 1}), ("b", {"y": 1})):
        (tmp_path / name).write_bytes(examples(row))
    assert load(spark, tmp_path, samplingRatio=0.5).columns == ["x"]
    assert load(spark, tmp_path).columns == ["x", "y"]


def test_sampling_ratio_is_of_the_files_that_are_read(classic, tmp_path):
    """Half of a and b is one file, however many others are there."""
    for name in "abcd":
        (tmp_path / name).write_bytes(examples({name: 1}))
        os.utime(tmp_path / name, (1_700_000_000 + ord(name), 1_700_000_000 + ord(name)))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "e").write_bytes(examples({"e": 1}))
    before_c = {"modifiedBefore": "2023-11-14T22:14:59", "timeZone": "UTC"}
    for which in ({"pathGlobFilter": "[ab]"}, before_c):
        assert load(classic, tmp_path, **which).columns == ["a", "b"]
        assert load(classic, tmp_path, samplingRatio=0.5, **which).columns == ["a"]


@pytest.mark.parametrize("kind", ["events", "wild"])
def test_rows_and_partition_columns(spark, request, kind):
    path = request.getfixturevalue(kind)
    frame = load(spark, path)
    assert frame.columns == ["id", "x", "name", "day", "n"]
    types = {field.name: field.dataType.simpleString() for field in frame.schema}
    # The manifest says that a day is a string; Spark's own inference finds a date.
    assert types["day"] == ("string" if kind == "events" else "date")
    assert types["n"] == "int"
    expected = tfr.read_table(path).to_pylist()
    assert rows(frame) == sorted((tuple(row.values()) for row in expected), key=repr)


def test_a_users_schema(spark, events):
    frame = spark.read.format("tfrecord").schema("name string, id int").load(str(events))
    assert frame.columns == ["name", "id", "day", "n"]
    assert frame.schema["id"].dataType == IntegerType()
    assert sorted(row.id for row in frame.collect()) == list(range(12))
    typed = spark.read.load(str(events), format="tfrecord", schema="n string, id double, day date")
    assert typed.columns == ["id", "day", "n"]
    assert typed.where("n = '3'").select("day").distinct().collect()[0][0] == dt.date(2026, 1, 2)


def test_columns_of_a_users_schema(spark, events):
    """Only those that are asked for are read, in this order, as `read_table` has them."""
    schema = "name string, id int, day date"

    def read(**options):
        reader = spark.read.format("tfrecord").schema(schema)
        return reader.options(**options).load(str(events))

    frame = read(columns="day,id")
    assert frame.dtypes == [("day", "date"), ("id", "int")]
    assert sorted(row.id for row in frame.collect()) == list(range(12))
    assert read(columns="id", pathColumn="f").columns == ["id", "f"]
    functional = tfr_spark.read_tfrecord(spark, str(events), schema=schema, columns=["id"])
    assert functional.columns == ["id"]
    with pytest.raises(AnalysisException, match="columns is 'id'; it must be a list of names"):
        tfr_spark.read_tfrecord(spark, str(events), schema=schema, columns="id")
    with pytest.raises(AnalysisException, match="there is no column 'other'"):
        read(columns="other")


@pytest.mark.parametrize(
    "schema",
    ["n string, id long, day date", "id long, N long, DAY string", "DAY date, id long", "id long"],
)
def test_partition_columns_of_a_schema_are_as_in_parquet(spark, tmp_path, schema):
    """By Spark's own sources: they come last, and names are in any case."""
    frame = spark.range(4).selectExpr("id", "date '2026-01-02' as day", "id % 2 as n")

    def read(name):
        path = str(tmp_path / name)
        frame.write.format(name).partitionBy("day", "n").save(path)
        (tmp_path / name / "_SUCCESS").unlink()
        return spark.read.format(name).schema(schema).load(path)

    ours, theirs = read("tfrecord"), read("parquet")
    assert ours.dtypes == theirs.dtypes
    assert rows(ours) == rows(theirs)


def test_folders_tell_times_in_the_sessions_zone(spark, tmp_path):
    """By Spark's own sources; the zone is not UTC."""
    assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Kolkata"
    folders_tell_times(spark, tmp_path)


def folders_tell_times(spark, tmp_path):
    for name in ("parquet", "tfrecord"):
        spark.range(1).coalesce(1).write.format(name).save(str(tmp_path / f"one-{name}"))
        (part,) = (tmp_path / f"one-{name}").glob("part-*")
        folder = tmp_path / name / "at=2026-01-02 03%3A04%3A05"
        folder.mkdir(parents=True)
        shutil.copy(part, folder)

    def told(name, schema=None):
        reader = spark.read.format(name)
        frame = (reader if schema is None else reader.schema(schema)).load(str(tmp_path / name))
        at = "timestamp '2026-01-02 03:04:05'"
        return frame.dtypes, rows(frame.selectExpr("string(at)", f"at = {at}"))

    assert told("tfrecord") == told("parquet")
    for kind in ("timestamp", "timestamp_ntz"):
        assert told("tfrecord", f"id long, at {kind}") == told("parquet", f"id long, at {kind}")


def test_folders_tell_times_that_clocks_left_out_or_python_has_not(classic, tmp_path):
    """By Spark's own sources; in UTC the last is in the year 10000."""
    for name, row in (("csv", b"1\n"), ("tfrecord", examples({"n": 1}))):
        for time in ("2026-03-08 02%3A30%3A00", "9999-12-31 23%3A59%3A59"):
            folder = tmp_path / name / f"at={time}"
            folder.mkdir(parents=True)
            (folder / "part").write_bytes(row)

    def told(name):
        frame = classic.read.format(name).schema("n int").load(str(tmp_path / name))
        return rows(frame.selectExpr("string(at)"))

    zone = classic.conf.get("spark.sql.session.timeZone")
    classic.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        assert told("tfrecord") == told("csv")
    finally:
        classic.conf.set("spark.sql.session.timeZone", zone)


def test_folders_that_are_no_partitions(spark, tmp_path):
    """By Spark's own sources, files below them are read if recursiveFileLookup says so."""
    for name in ("parquet", "tfrecord"):
        spark.range(2).coalesce(1).write.format(name).save(str(tmp_path / name))
        spark.range(7, 9).coalesce(1).write.format(name).save(str(tmp_path / name / "backup"))
        spark.range(20, 21).write.format(name).save(str(tmp_path / name / "backup" / "older"))

    def ids(name, path="", **options):
        frame = spark.read.format(name).options(**options).load(str(tmp_path / name) + path)
        return sorted(row.id for row in frame.collect())

    for options in ({}, {"recursiveFileLookup": False}, {"recursiveFileLookup": True}):
        assert ids("tfrecord", **options) == ids("parquet", **options)
    assert ids("tfrecord", "/back*") == ids("parquet", "/back*") == [7, 8]
    # Of what a pattern fits, folders bring the files that are right in them.
    for pattern in ("/b*", "/{backup,other}", "/*/older", "/*/part-*", "/*/*"):
        assert ids("tfrecord", pattern) == ids("parquet", pattern)
    everything = {"recursiveFileLookup": True}
    assert ids("tfrecord", "/b*", **everything) == ids("parquet", "/b*", **everything) == [7, 8, 20]


def test_nothing_to_find_columns_in(spark, tmp_path):
    """By Spark's own sources an error, too: no rows and no columns would be lost ones."""
    for name in ("parquet", "tfrecord"):
        path = tmp_path / name
        for folder, n in (("x", "1L"), ("y", "'text'")):
            spark.sql(f"SELECT {n} AS N").write.format(name).save(str(path / folder))
        reader = spark.read.format(name)
        with pytest.raises(AnalysisException) as error:
            reader.load(str(path)).collect()
        assert error.value.getCondition() == "UNABLE_TO_INFER_SCHEMA"
        # What stands below says nothing of the columns.
        frame = reader.schema("n string").load(str(path))
        assert (frame.columns, frame.collect()) == (["n"], [])
        (path / "x" / "_SUCCESS").unlink()
        filtered = spark.read.format(name).option("pathGlobFilter", "*.none")
        with pytest.raises(AnalysisException) as other:
            filtered.load(str(path / "x")).collect()
        assert other.value.getCondition() == "UNABLE_TO_INFER_SCHEMA"
        assert filtered.schema("n string").load(str(path / "x")).count() == 0
    assert re.search(r"folder/\*.*recursiveFileLookup=true.*tfrecord", str(error.value))


def test_a_schema_in_which_values_do_not_fit(spark, events):
    frame = spark.read.format("tfrecord").schema("name bigint").load(str(events))
    with pytest.raises(PySparkException, match=r"SchemaMismatchError.*'name'"):
        frame.collect()
    with_nulls = StructType().add("name", "string", nullable=False)
    with pytest.raises(PySparkException, match="no null"):
        spark.read.format("tfrecord").schema(with_nulls).load(str(events)).collect()


def test_a_vector_cannot_be_asked_for(classic, events):
    from pyspark.ml.linalg import VectorUDT

    with pytest.raises(AnalysisException, match="array_to_vector"):
        classic.read.format("tfrecord").schema(StructType().add("v", VectorUDT())).load(str(events))


def test_paths(spark, wild):
    def ids(*paths, **options):
        reader = spark.read.format("tfrecord").options(**options)
        found = reader.load([str(path) for path in paths] if len(paths) > 1 else str(paths[0]))
        return sorted(row.id for row in found.select("id").collect())

    first, second = wild / "day=2026-01-01", wild / "day=2026-01-02"
    assert ids(first) == [0, 1, 2, 3]
    assert ids(first, second) == list(range(8))
    assert ids(wild / "day=*" / "n=[13]") == [2, 3, 6, 7]
    assert ids(wild / "day=2026-01-0{1,2,7}" / "n={1,3}") == [2, 3, 6, 7]
    assert ids(wild / "day=*" / "n=[^0-4]") == [10, 11]
    assert ids(f"file://{first}") == ids(f"file:{first}") == [0, 1, 2, 3]
    part = next((first / "n=0").glob("part-*"))
    assert ids(part) == [0, 1]
    assert load(spark, first).columns == ["id", "x", "name", "n"]
    assert load(spark, first, basePath=wild).columns == ["id", "x", "name", "day", "n"]
    assert load(spark, wild, recursiveFileLookup=True).columns == ["id", "x", "name"]
    with pytest.raises(AnalysisException, match="not below"):
        load(spark, first, basePath=second)


def test_paths_with_commas(spark, tmp_path):
    """As spark-tensorflow-connector took them: outside braces, commas are between paths."""
    for name in ("a", "b1", "b2", "c,d"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_bytes(examples({"name": name.encode()}))

    def names(path, source="tfrecords", **schema):
        return sorted(row.name for row in spark.read.load(path, format=source, **schema).collect())

    two = f"{tmp_path}/a,{tmp_path}/b{{1,2}}"
    assert names(two) == names(two, schema="name string") == ["a", "b1", "b2"]
    by_option = spark.read.format("TFRecords").option("path", two).load()
    assert by_option.count() == 3
    assert names(f"{tmp_path}/c,d", "tfrecord") == names([f"{tmp_path}/c,d"]) == ["c,d"]
    with pytest.raises(AnalysisException) as error:
        names(f"{tmp_path}/a,{tmp_path}/none")
    assert error.value.getCondition() == "PATH_NOT_FOUND"
    assert f"{tmp_path}/none'" in str(error.value)


@pytest.mark.parametrize(
    ("paths", "options"),
    [
        (["", ""], {}),
        (["", "/"], {}),
        (["/part=1", ""], {"basePath": ""}),
        (["", "/part=1"], {"basePath": ""}),
        (["/part=1", "/part=1"], {"basePath": ""}),
        (["/part=1/file", "/part=1/file"], {"basePath": ""}),
        (["", ""], {"recursiveFileLookup": True}),
        (["/part=1", "/part=1"], {}),
        (["/part=1/file", "/part=1/file"], {}),
    ],
)
def test_paths_that_overlap(spark, tmp_path, paths, options):
    """By Spark's own sources: with partition columns, each file is read once."""

    def read(name):
        path = tmp_path / name
        frame = spark.range(4).selectExpr("id", "id % 2 as part").coalesce(1)
        frame.write.format(name).partitionBy("part").save(str(path))
        (file,) = (path / "part=1").glob("part-*")
        there = [str(path) + one.replace("/file", f"/{file.name}") for one in paths]
        base = {key: path if key == "basePath" else value for key, value in options.items()}
        return rows(spark.read.format(name).options(**base).load(there))

    assert read("tfrecord") == read("parquet")


def test_paths_that_overlap_and_disagree(spark, tmp_path):
    """By Spark's own sources an error, too: whether `part` is a column the paths do not agree."""
    frame = spark.range(4).selectExpr("id", "id % 2 as part")
    for name in ("parquet", "tfrecord"):
        path = str(tmp_path / name)
        frame.write.format(name).partitionBy("part").save(path)
        for paths in ([path, f"{path}/part=1"], [f"{path}/part=1", path]):
            with pytest.raises(PySparkException, match=r"Conflicting directory|folders disagree"):
                spark.read.format(name).load(paths).collect()


def test_path_glob_filter_and_times(spark, tmp_path):
    times = {"a.tfrecord": 1_700_000_000, "b.tfr": 1_700_000_100, "c.txt": 1_800_000_000}
    for name, moment in times.items():
        data = examples({"name": name}) if name != "c.txt" else b"no records"
        (tmp_path / name).write_bytes(data)
        os.utime(tmp_path / name, (moment, moment))

    def names(**options):
        return [row.name for row in load(spark, tmp_path, **options).sort("name").collect()]

    assert names(pathGlobFilter="*.tf*") == ["a.tfrecord", "b.tfr"]
    assert names(pathGlobFilter="{a,x}.*") == names(pathGlobFilter="[^bc]*") == ["a.tfrecord"]
    # 1,700,000,050 in the session's zone, Asia/Kolkata.
    between = "2023-11-15T03:44:10"
    assert names(pathGlobFilter="*.tf*", modifiedBefore=between) == ["a.tfrecord"]
    assert names(modifiedAfter=between, modifiedBefore="2024-01-01") == ["b.tfr"]
    in_tokyo = {"modifiedAfter": between, "timeZone": "Asia/Tokyo"}
    assert names(pathGlobFilter="*.tf*", **in_tokyo) == ["a.tfrecord", "b.tfr"]


@pytest.mark.parametrize("name", ["a*b", "a?b", "a[b]", "a{b}", "a,b"])
def test_patterns_escape_what_is_none(classic, tmp_path, name):
    """By Spark's Parquet source: a backslash takes the meaning from what is behind it."""
    escaped = re.sub(r"([^a-z])", r"\\\1", name)
    for kind in ("tfrecord", "parquet"):
        for folder, n in ((name, 1), ("axb", 2)):
            frame = classic.range(n, n + 1).coalesce(1)
            frame.write.format(kind).save(str(tmp_path / kind / folder))
        reader = classic.read.format(kind)
        assert rows(reader.load(str(tmp_path / kind / escaped))) == [(1,)]
        filtered = reader.option("pathGlobFilter", r"part\-*")
        assert rows(filtered.load(str(tmp_path / kind / "axb"))) == [(2,)]


def test_a_folder_with_a_manifest_leaves_the_times_of_others_alone(spark, tmp_path):
    """What a manifest says of a folder's own files says nothing of how the folder is named."""
    for day in ("01", "02"):
        folder = tmp_path / f"at=2020-01-{day} 10%3A00%3A00"
        folder.mkdir()
        (folder / "part-00000.tfrecord").write_bytes(examples({"n": 1}))
    expected = [("2020-01-01 10:00:00",), ("2020-01-02 10:00:00",)]

    def times(schema=None):
        reader = spark.read.format("tfrecord")
        frame = (reader.schema(schema) if schema else reader).load(str(tmp_path))
        assert dict(frame.dtypes)["at"] == "timestamp"
        return rows(frame.selectExpr("string(at)"))

    assert times() == expected
    frame = spark.range(1).withColumnRenamed("id", "n")
    frame.write.format("tfrecord").mode("overwrite").save(str(folder))
    assert times() == times("n bigint, at timestamp") == expected


def test_partition_types_are_inferred_as_the_session_says(spark, tmp_path):
    """Spark's own sources are asked for the expected types."""
    folders = ("p=001/at=2020-01-01 10%3A00%3A00", "p=02/at=2020-01-02 00%3A00%3A00")
    for name in folders:
        for kind in ("tfrecord", "csv"):
            folder = tmp_path / kind / name
            folder.mkdir(parents=True)
            data = examples({"n": 1}) if kind == "tfrecord" else b"1"
            (folder / f"part.{kind}").write_bytes(data)

    def found(kind):
        frame = spark.read.format(kind).schema("n bigint").load(str(tmp_path / kind))
        return frame.dtypes, rows(frame.selectExpr("p", "string(at)"))

    for name, value in {
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
        "spark.sql.timestampType": "TIMESTAMP_NTZ",
    }.items():
        before = found("tfrecord")
        spark.conf.set(name, value)
        try:
            assert found("tfrecord") == found("csv") != before
        finally:
            spark.conf.unset(name)


def test_partition_types_of_times_are_those_of_sparks_own_sources(classic, tmp_path):
    """Text with more digits of a second's fraction than one is text."""
    times = ["2026-01-02 03:04:05", "2026-01-02 03:04:05.6", "2026-01-02 03:04:05.60"]
    for time in [*times, "2026-01-02 03:04:05.123456789", "2026-01-02 03:04"]:
        folder = tmp_path / "folders" / f"at={time.replace(':', '%3A')}"
        folder.mkdir(parents=True)
        (folder / "part").write_bytes(b"")
        ours, theirs = (
            classic.read.format(name).schema("n long").load(str(tmp_path / "folders")).dtypes
            for name in ("tfrecord", "csv")
        )
        assert ours == theirs
        shutil.rmtree(folder)


def test_path_column(spark, wild):
    frame = load(spark, wild, pathColumn="file")
    assert frame.columns[-1] == "file"
    found = {row.file for row in frame.select("file").collect()}
    assert found == {str(path) for path in wild.rglob("part-*")}


def test_a_column_may_be_called_true(classic, wild):
    """Options are texts, and of these only those of Python's own True are lower-cased."""
    more = {"recursiveFileLookup": True}
    frame = tfr_spark.read_tfrecord(classic, str(wild), path_column="True", options=more)
    assert frame.columns[-1] == "True"


def test_a_schema_with_the_path_column(spark, wild):
    frame = load(spark, wild, pathColumn="file")
    reader = spark.read.format("tfrecord").schema(frame.schema)
    again = reader.option("pathColumn", "file").load(str(wild))
    assert again.schema == frame.schema
    assert rows(again) == rows(frame)


@pytest.mark.parametrize("kind", ["int", "binary", "array<string>"])
def test_the_type_of_the_path_column(spark, wild, kind):
    reader = spark.read.format("tfrecord").schema(f"id bigint, file {kind}")
    with pytest.raises(AnalysisException, match=f"'file'.*pathColumn.*{kind}.*string") as error:
        reader.option("pathColumn", "file").load(str(wild))
    assert error.value.getCondition() == "TFRECORD_SCHEMA_MISMATCH"


def test_a_schema_that_differs_in_case_alone(spark, tmp_path):
    """By Spark's own sources, columns are found in any case; a feature has one spelling."""
    frame = spark.sql("select 1 Label, 'x' Name, 2 Part")
    frame.write.format("tfrecord").partitionBy("Part").save(str(tmp_path / "data"))
    reader = spark.read.format("tfrecord").schema("label int, NAME string, part int")
    with pytest.raises(AnalysisException, match="'label', and the records have 'Label'"):
        reader.load(str(tmp_path / "data"))
    there = spark.read.format("tfrecord").schema("Label int, part int").load(str(tmp_path / "data"))
    assert rows(there) == [(1, 2)]
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        exact = spark.read.format("tfrecord").schema("label int").load(str(tmp_path / "data"))
        assert exact.select("label").collect()[0].label is None
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_columns_that_differ_in_case_alone(spark, tmp_path):
    """By Spark's own sources: two in the records are an error, in a schema the folders' goes first.

    Of one in records and folders they take the folders' in silence; that is an error here.
    """
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        for name in ("parquet", "tfrecord"):
            frame = spark.sql("select 1L as Label, 5L as x").coalesce(1)
            frame.write.format(name).save(str(tmp_path / f"one-{name}"))
            (part,) = (tmp_path / f"one-{name}").glob("part-*")
            for folder in ("label=7", "a=1/A=2"):
                there = tmp_path / f"{name}-{folder[0]}" / folder
                there.mkdir(parents=True)
                shutil.copy(part, there)
            twice = spark.sql("select 1L as Label, 5L as label")
            twice.write.format(name).save(str(tmp_path / f"{name}-twice"))
        exact = load(spark, tmp_path / "tfrecord-l")
        assert exact.dtypes == [("Label", "bigint"), ("x", "bigint"), ("label", "int")]
        assert rows(exact) == [(1, 5, 7)]
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    for name, folder in (
        *(("parquet", "twice"), ("parquet", "a")),
        *(("tfrecord", "twice"), ("tfrecord", "a"), ("tfrecord", "l")),
    ):
        with pytest.raises(AnalysisException) as error:
            # Of Spark's own sources a Connect session asks for columns late.
            assert spark.read.format(name).load(str(tmp_path / f"{name}-{folder}")).columns
        assert error.value.getCondition() == "COLUMN_ALREADY_EXISTS"

    def read(name):
        reader = spark.read.format(name).schema("Label long, x long")
        frame = reader.load(str(tmp_path / f"{name}-l"))
        return frame.dtypes, rows(frame)

    assert read("tfrecord") == read("parquet") == ([("x", "bigint"), ("Label", "bigint")], [(5, 7)])


@pytest.mark.parametrize("zone", ["GMT+8", "UTC-3", "+8:00", "PST", "Z"])
def test_zones_by_names_of_java(classic, tmp_path, zone):
    classic.conf.set("spark.sql.session.timeZone", zone)
    try:
        folders_tell_times(classic, tmp_path)
        (part,) = (tmp_path / "one-tfrecord").glob("part-*")
        there = dt.datetime.fromisoformat(
            classic.sql(f"select string(timestamp_seconds({int(part.stat().st_mtime)}))").first()[0]
        )
        for hours, count in ((-1, 1), (1, 0)):
            after = (there + dt.timedelta(hours=hours)).isoformat()
            assert load(classic, tmp_path / "one-tfrecord", modifiedAfter=after).count() == count
    finally:
        classic.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")


@pytest.mark.parametrize("zone", ["Mars/Base", "Europe", "+25:00"])
def test_a_zone_that_is_none(spark, wild, tmp_path, zone):
    times = tmp_path / "times"
    shutil.copytree(wild / "day=2026-01-01" / "n=0", times / "at=2026-01-02 03%3A04%3A05")
    for path, options in ((wild, {"modifiedAfter": "2024-01-01"}), (times, {}), (wild, {})):
        with pytest.raises(AnalysisException, match=f"no time zone '{re.escape(zone)}'") as error:
            load(spark, path, timeZone=zone, **options)
        assert error.value.getCondition() == "TFRECORD_INVALID_OPTION"
        assert "as the option timeZone or as spark.sql.session.timeZone" in str(error.value)


def test_lists_of_times_of_the_day(spark, tmp_path):
    """Numbers, as single times are."""
    moments = [[dt.time(0, 0, 2), dt.time(0, 1)], None, []]
    table = pa.table(
        {
            "seconds": pa.array(moments, pa.list_(pa.time32("s"))),
            "fixed": pa.array([moments[0]] * 3, pa.list_(pa.time32("ms"), 2)),
            "micros": pa.array(moments, pa.large_list(pa.time64("us"))),
        }
    )
    tfr.write_table(table, tmp_path / "data")
    frame = load(spark, tmp_path / "data")
    assert {kind for _, kind in frame.dtypes} == {"array<bigint>"}
    assert frame.collect()[0].asDict() == {
        "seconds": [2, 60],
        "fixed": [2000, 60_000],
        "micros": [2_000_000, 60_000_000],
    }
    assert frame.collect()[1].seconds is None


@pytest.mark.parametrize(
    "load",
    [
        lambda spark, path, schema: tfr_spark.read_tfrecord(spark, path, schema=schema),
        lambda spark, path, schema: spark.read.format("tfrecord").schema(schema).load(path),
        lambda spark, path, schema: spark.readStream.format("tfrecord").schema(schema).load(path),
    ],
)
def test_a_schema_in_words_is_what_spark_takes_it_for(spark, tmp_path, load):
    """Spark's readers take no char, and say so; frames of none show a trace of Java."""
    path = str(tmp_path / "data")
    tfr.write_table(pa.table({"c": ["x"], "n": [1]}), path)
    found = load(spark, path, "n int NOT NULL COMMENT 'a', c string").schema
    assert found.simpleString() == "struct<n:int,c:string>"
    assert found["n"].metadata == {"comment": "a"}
    with pytest.raises(AnalysisException) as error:
        load(spark, path, "c char(3)")
    assert error.value.getCondition() == "UNSUPPORTED_CHAR_OR_VARCHAR_AS_STRING"


def test_a_working_folder_that_is_gone(spark, tmp_path, monkeypatch):
    """Spark's own sources ask for none."""
    tfr.write_table(pa.table({"x": [1]}), tmp_path / "data")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "here").rmdir()
    frame = spark.read.format("tfrecord").load(str(tmp_path / "data"))
    frame.write.format("tfrecord").save(str(tmp_path / "again"))
    assert tfr.read_table(tmp_path / "again")["x"].to_pylist() == [1]


def test_missing_paths(spark, tmp_path):
    for frame in (
        lambda: load(spark, tmp_path / "nothing"),
        lambda: spark.read.format("tfrecord").schema("a int").load(str(tmp_path / "nothing")),
    ):
        with pytest.raises(AnalysisException) as error:
            frame()
        assert error.value.getCondition() == "PATH_NOT_FOUND"
        assert "nothing" in str(error.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"recursiveFileLookup": "maybe"}, "true or false"),
        ({"mode": "PERMISSIVE", "ignoreCorruptFiles": "true"}, "contradict"),
        ({"columnNameOfCorruptRecord": "c", "ignoreCorruptFiles": "true"}, "contradict"),
        ({"columnNameOfCorruptRecord": "id"}, "columnNameOfCorruptRecord is 'id'"),
        ({"mode": "whatever"}, "FAILFAST"),
        ({"mode": "DROPMALFORMED", "ignoreCorruptFiles": "true"}, "contradict"),
        ({"samplingRatio": "2"}, "samplingRatio"),
        ({"modifiedAfter": "yesterday"}, "modifiedAfter"),
        ({"maxPartitionBytes": "lots"}, "128m"),
        ({"maxPartitionBytes": "0"}, "maxPartitionBytes is '0'; it must be above 0"),
        ({"paths": "/a,/b"}, "paths is '/a,/b'; it must be a JSON list of paths"),
        ({"columns": '["id"'}, "it must be names with commas, or a JSON list"),
        ({"header": "true"}, "no option 'header'"),
        ({"recordType": "SequenceExample"}, "recordType"),
    ],
)
def test_wrong_options(classic, events, options, text):
    with pytest.raises(AnalysisException, match=text):
        load(classic, events, **options)


def test_conflicting_kinds(spark, tmp_path):
    (tmp_path / "a").write_bytes(examples({"x": 1}, {"x": "text"}))
    with pytest.raises(AnalysisException, match="'x'") as error:
        load(spark, tmp_path)
    assert error.value.getCondition() == "UNABLE_TO_INFER_SCHEMA"


# --- damage ---------------------------------------------------------------------------------------


@pytest.fixture
def damaged(tmp_path):
    """Two files of 10 records; record 4 of the second has a wrong byte."""
    tfr.write_table(
        pa.table({"i": range(20)}), tmp_path / "damaged", rows_per_task=10, mode="append"
    )
    (tmp_path / "damaged" / "_SUCCESS").unlink()
    path = tmp_path / "damaged" / "part-00001-000.tfrecord"
    data = bytearray(path.read_bytes())
    data[len(data) // 10 * 4 + 14] ^= 1
    path.write_bytes(data)
    return tmp_path / "damaged"


def test_damage_is_an_error(spark, damaged):
    with pytest.raises(AnalysisException, match=r"part-00001-000.tfrecord.*record 4") as error:
        load(spark, damaged)
    assert error.value.getCondition() == "FAILED_READ_FILE.NO_HINT"
    frame = spark.read.format("tfrecord").schema("i bigint").load(str(damaged))
    with pytest.raises(PySparkException, match=r"part-00001-000.tfrecord.*record 4"):
        frame.collect()


@WARNED
def test_damage_is_skipped(spark, damaged):
    assert rows(load(spark, damaged, mode="DROPMALFORMED")) == sorted(
        ((i,) for i in range(20) if i != 14), key=repr
    )
    expected = sorted(((i,) for i in range(10)), key=repr)
    assert rows(load(spark, damaged, ignoreCorruptFiles=True)) == expected
    spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    try:
        assert rows(load(spark, damaged)) == expected
    finally:
        spark.conf.unset("spark.sql.files.ignoreCorruptFiles")


@pytest.fixture(scope="module")
def battered(tmp_path_factory):
    """A folder p=N for each kind of damage, and by path what is whole and what is damaged."""
    rows = [examples({"i": i, "s": f"text {i}"}) for i in range(10)]
    whole = b"".join(rows)
    flipped = rows[4][:14] + b"?" + rows[4][15:]
    foreign = framed(b"no Example")
    kinds = {
        0: (whole, range(10), []),
        1: (b"".join([*rows[:4], flipped, *rows[5:]]), [*range(4), *range(5, 10)], [flipped]),
        2: (whole[:-5], range(9), [rows[9][:-5]]),
        3: (
            b"".join([*rows[:3], header(2**20), bytes(99), *rows[3:]]),
            range(10),
            [header(2**20) + bytes(99)],
        ),
        4: (b"".join([b"noise", *rows, foreign]), range(10), [b"noise", foreign]),
    }
    path = tmp_path_factory.mktemp("battered")
    for p, (data, _, _) in kinds.items():
        (path / f"p={p}").mkdir()
        name = "a.gz" if p == 4 else "a"
        (path / f"p={p}" / name).write_bytes(gzip.compress(data) if p == 4 else data)
    return path, {p: (list(numbers), bad) for p, (_, numbers, bad) in kinds.items()}


def found_rows(frame, column):
    """Rows as (p, i, damaged bytes)."""
    picked = frame.select("p", "i", column).collect()
    found = [(row[0], row[1], None if row[2] is None else bytes(row[2])) for row in picked]
    return sorted(found, key=repr)


def battered_rows(kinds):
    return sorted(
        [
            *((p, i, None) for p, (numbers, _) in kinds.items() for i in numbers),
            *((p, None, bad) for p, (_, damaged) in kinds.items() for bad in damaged),
        ],
        key=repr,
    )


@WARNED
def test_damage_is_a_row(spark, battered):
    path, kinds = battered
    frame = load(spark, path, mode="PERMISSIVE")
    assert frame.columns == ["i", "s", "_corrupt_record", "p"]
    assert frame.schema["_corrupt_record"].dataType == BinaryType()
    assert found_rows(frame, "_corrupt_record") == battered_rows(kinds)
    damaged = sum(len(bad) for _, bad in kinds.values())
    assert frame.where("_corrupt_record is not null and s is null").count() == damaged
    assert frame.count() == load(spark, path, mode="DROPMALFORMED").count() + damaged


def test_damage_in_a_users_schema(spark, battered):
    path, kinds = battered
    reader = spark.read.format("tfrecord").option("mode", "permissive")
    # Where it says, under the name that it says; nulls are allowed everywhere, as in Spark's own.
    schema = StructType().add("bad", "binary").add("i", "long", nullable=False).add("p", "integer")
    frame = reader.option("columnNameOfCorruptRecord", "bad").schema(schema).load(str(path))
    assert frame.columns == ["bad", "i", "p"]
    assert frame.schema["i"].nullable
    assert found_rows(frame, "bad") == battered_rows(kinds)
    # Without the column the rows are there all the same.
    frame = reader.schema("i long").load(str(path))
    assert frame.columns == ["i", "p"]
    assert rows(frame) == sorted(((i, p) for p, i, _ in battered_rows(kinds)), key=repr)


@WARNED
def test_the_name_of_the_corrupt_column(classic, battered):
    path, kinds = battered
    # The name alone asks for the mode that has the column; another mode has none.
    frame = load(classic, path, columnNameOfCorruptRecord="bad", pathColumn="file")
    assert frame.columns == ["i", "s", "bad", "p", "file"]
    frame = load(classic, path, columnNameOfCorruptRecord="bad", mode="DROPMALFORMED")
    assert frame.columns == ["i", "s", "p"]
    classic.conf.set("spark.sql.columnNameOfCorruptRecord", "of_session")
    try:
        frame = load(classic, path, mode="PERMISSIVE", columns="i")
        assert frame.columns == ["i", "of_session"]
        functional = tfr_spark.read_tfrecord(classic, str(path), on_corrupt="keep")
        assert functional.columns == ["i", "s", "of_session", "p"]
        assert found_rows(functional, "of_session") == battered_rows(kinds)
    finally:
        classic.conf.unset("spark.sql.columnNameOfCorruptRecord")
    functional = tfr_spark.read_tfrecord(
        classic, str(path), on_corrupt="keep", corrupt_column="damage"
    )
    assert functional.columns == ["i", "s", "damage", "p"]
    assert found_rows(functional, "damage") == battered_rows(kinds)
    with pytest.raises(AnalysisException, match="on_corrupt='keep'"):
        tfr_spark.read_tfrecord(classic, str(path), corrupt_column="bad")
    with pytest.raises(AnalysisException, match="on_corrupt is 'skip'; it must be one of"):
        tfr_spark.read_tfrecord(classic, str(path), on_corrupt="skip")


@pytest.mark.parametrize(
    ("field", "got"),
    [
        (("string", True), "STRING"),
        (("binary", False), "BINARY NOT NULL"),
        (("integer", True), "INT"),
    ],
)
def test_the_type_of_the_corrupt_column(classic, battered, field, got):
    kind, nullable = field
    schema = StructType().add("i", "long").add("_corrupt_record", kind, nullable=nullable)
    reader = classic.read.format("tfrecord").option("mode", "PERMISSIVE").schema(schema)
    with pytest.raises(AnalysisException, match=f"nullable BINARY type, but got {got};") as error:
        reader.load(str(battered[0]))
    assert error.value.getCondition() == "INVALID_CORRUPT_RECORD_TYPE"


def test_damage_in_sql_and_of_the_other_record_types(classic, battered, tmp_path):
    path, kinds = battered
    with_columns = "i bigint NOT NULL, _corrupt_record binary"
    view = f"USING tfrecord OPTIONS (path '{path}', mode 'PERMISSIVE')"
    classic.sql(f"CREATE OR REPLACE TEMPORARY VIEW battered {view}")
    assert found_rows(classic.table("battered"), "_corrupt_record") == battered_rows(kinds)
    classic.sql(f"CREATE OR REPLACE TEMPORARY VIEW battered ({with_columns}) {view}")
    with pytest.raises(PySparkException, match="'i' holds no null"):
        classic.table("battered").collect()
    classic.sql("DROP VIEW battered")
    classic.sql(f"CREATE TABLE battered {view}")
    try:
        assert found_rows(classic.table("battered"), "_corrupt_record") == battered_rows(kinds)
    finally:
        classic.sql("DROP TABLE battered")
    (tmp_path / "a").write_bytes(framed(b"one") + b"noise" + framed(b"two"))
    found = load(classic, tmp_path, recordType="ByteArray", mode="PERMISSIVE").collect()
    assert [tuple(row) for row in found] == [(b"one", None), (None, b"noise"), (b"two", None)]


@WARNED
def test_damage_in_filters(classic, battered, pushdown):
    path, kinds = battered
    loaded = load(classic, path, mode="PERMISSIVE", pushFilters=True)
    only = loaded.where("_corrupt_record is not null and p = 4")
    assert sorted(bytes(row._corrupt_record) for row in only.collect()) == sorted(kinds[4][1])


def test_damage_in_a_stream(classic, battered, tmp_path):
    path, kinds = battered
    stream = (
        classic.readStream.format("tfrecord")
        .schema("i long, _corrupt_record binary")
        .option("mode", "PERMISSIVE")
        .load(str(path))
    )
    writer = stream.writeStream.format("memory").queryName("damaged_rows")
    writer.option("checkpointLocation", str(tmp_path)).trigger(
        availableNow=True
    ).start().awaitTermination()
    assert found_rows(classic.table("damaged_rows"), "_corrupt_record") == battered_rows(kinds)


def test_files_that_went(spark, wild):
    """After the read was planned, which Spark does at the first look at a frame."""
    reader = spark.read.format("tfrecord").schema("id bigint").option("maxPartitionBytes", "1g")
    strict = reader.load(str(wild))
    assert strict.count() == 12
    lenient = reader.option("ignoreMissingFiles", True).load(str(wild))
    assert lenient.count() == 12
    gone, changed, *_ = wild.rglob("part-*")
    gone.unlink()
    assert lenient.count() == 10
    with pytest.raises(PySparkException, match=r"removed.*create the view, again"):
        strict.count()
    # What was replaced is not missing.
    changed.write_bytes(changed.read_bytes() * 2)
    with pytest.raises(PySparkException, match="replaced"):
        lenient.count()


@pytest.mark.parametrize("schema", [None, "id bigint"])
def test_folders_that_went_before_the_first_look(classic, tmp_path, schema):
    """By Spark's own sources, ignoreMissingFiles passes over them, not over a name of nothing."""
    for name in ("parquet", "tfrecord"):
        paths = [str(tmp_path / name / folder) for folder in "abc"]
        for n, path in enumerate(paths):
            classic.range(n, n + 1).coalesce(1).write.format(name).save(path)
        reader = classic.read.format(name).option("ignoreMissingFiles", True)
        reader = reader if schema is None else reader.schema(schema)
        some, one = reader.load(paths), reader.load(paths[1])
        shutil.rmtree(paths[1])
        assert sorted(row.id for row in some.collect()) == [0, 2]
        assert one.collect() == []
        with pytest.raises(AnalysisException) as error:
            reader.load(paths).collect()
        assert error.value.getCondition() == "PATH_NOT_FOUND"


@pytest.mark.parametrize(
    ("replacement", "what"),
    [
        ("2 AS z", "'at' was timestamp.* and is gone"),
        ("2L AS at, 'b' AS x", "'at' was timestamp.* and is int64 now"),
        ("timestamp'2026-01-03' AS at, 2L AS x", "'x' was string and is int64 now"),
    ],
)
def test_a_data_set_that_is_replaced_after_it_was_loaded(spark, tmp_path, replacement, what):
    """Columns that went are no columns of nulls, and integers are no times."""
    path = str(tmp_path / "d")
    spark.sql("SELECT timestamp'2026-01-02' AS at, 'a' AS x").write.format("tfrecord").save(path)
    loaded = load(spark, path)
    spark.sql(f"SELECT {replacement}").write.format("tfrecord").mode("overwrite").save(path)
    with pytest.raises(PySparkException, match=what):
        loaded.collect()


def test_rows_that_come_after_a_data_set_was_loaded(spark, tmp_path):
    path = str(tmp_path / "d")
    spark.sql("SELECT 1 AS n, 'a' AS x").write.format("tfrecord").save(path)
    loaded = load(spark, path, pathColumn="file").select("n", "x")
    spark.sql("SELECT 2 AS n, 'b' AS x").write.format("tfrecord").mode("append").save(path)
    assert rows(loaded) == [(1, "a"), (2, "b")]


# --- filters and tasks ----------------------------------------------------------------------------


@pytest.fixture
def pushdown(sessions):
    """Sessions whose user wants filters to be pushed down."""
    for session in sessions.values():
        session.conf.set(PUSHDOWN, "true")
    yield
    for session in sessions.values():
        session.conf.unset(PUSHDOWN)


def test_filters_do_not_meet(spark, filtered, pushdown):
    """Spark would use the filters that it pushed last for all that is made of one frame."""
    frame = load(spark, filtered)
    early, late = frame.where("n < 2"), frame.where("day = '2026-01-03'")
    assert (early.count(), late.count(), frame.count()) == (4, 4, 12)
    assert early.union(late).count() == 8
    assert early.crossJoin(late.select("id")).count() == 16
    frame.createOrReplaceTempView("twice")
    two = "SELECT * FROM twice WHERE n < 2 UNION ALL SELECT * FROM twice WHERE n > 3"
    assert spark.sql(two).count() == 8
    assert spark.sql("SELECT * FROM twice").count() == 12


def test_pushing_filters_has_to_be_possible(spark, filtered):
    with pytest.raises(AnalysisException, match="filterPushdown"):
        load(spark, filtered, pushFilters=True)


def test_filters_prune_files(spark, wild, pushdown):
    """Files that a filter on partition columns excludes are not opened: they are damaged."""
    for path in (wild / "day=2026-01-03").rglob("part-*"):
        path.write_bytes(b"damaged")
    reader = spark.read.format("tfrecord").schema("id bigint, name string")
    frame = reader.option("pushFilters", True).load(str(wild))
    assert frame.where("day < '2026-01-03' and n > 0").count() == 6
    assert frame.where("day in ('2026-01-01')").where("id % 2 = 0").count() == 2
    with pytest.raises(PySparkException, match="day=2026-01-03"):
        frame.where("n >= 4").count()


FILTERS = [
    *("id = 3", "id <> 3", "id > 3", "id <= 3", "id in (1, 2, 99)", "id not in (1, 2)"),
    *("name is null", "name is not null", "name like 'n1%'", "name like '%0'", "name like '%1%'"),
    *("not name like 'n1%'", "name <=> null", "name > 'n2'", "x > 1", "x <> 1.5", "x = 'NaN'"),
    *("id = 3 or name = 'n4'", "day = '2026-01-02' and id > 5", "n = 0 and x < 1", "flag"),
    *("not flag", "when > timestamp '2026-01-01 05:00:00'", "dec = 1.5", "id = 1e300"),
]


@pytest.fixture(scope="module")
def filtered(tmp_path_factory):
    path = tmp_path_factory.mktemp("filtered") / "data"
    start = dt.datetime(2026, 1, 1)
    table = pa.table(
        {
            "id": [*range(11), None],
            "x": pa.array([float("nan"), *(i / 2 for i in range(11))], pa.float32()),
            "name": [None if i % 5 == 4 else f"n{i}" for i in range(12)],
            "flag": [None, *([True, False] * 5), True],
            "when": pa.array(
                [start + dt.timedelta(hours=i) for i in range(12)], pa.timestamp("us")
            ),
            "dec": pa.array([i / 2 for i in range(12)], pa.float32()),
            "day": [f"2026-01-0{1 + i // 4}" for i in range(12)],
            "n": [i // 2 for i in range(12)],
        }
    )
    tfr.write_table(table, path, partition_by=["day", "n"])
    return path


@pytest.mark.parametrize("text", FILTERS)
def test_filters_keep_what_spark_keeps(classic, filtered, text, pushdown):
    frame = load(classic, filtered, pushFilters=True)
    # Of rows that came from Python nothing is pushed down: Spark filters by itself.
    expected = classic.createDataFrame(frame.collect(), frame.schema).where(text)
    # As text: NaN is no equal of itself.
    assert repr(rows(frame.where(text))) == repr(rows(expected))


@pytest.fixture(scope="module")
def typed(sessions, tmp_path_factory):
    """Rows of all kinds that a filter may name, written by Spark; days are dates."""
    path = tmp_path_factory.mktemp("typed") / "data"
    columns = [
        *("id", "0.5F * id AS x", "concat('n', id) AS name", "id % 2 = 0 AS flag"),
        *("timestamp_micros(3600000000 * id) AS at", "cast(id / 4 AS decimal(6, 2)) AS price"),
        "date_add(date '2026-01-01', cast(id / 4 AS int)) AS day",
        "cast(if(id = 7, null, id) AS int) AS n",
    ]
    frame = sessions["classic"].range(12).selectExpr(*columns)
    tfr_spark.write_tfrecord(frame.coalesce(1), path, partition_by=["day", "n"])
    return path


#: A filter of the option, and the same in SQL.
OPTIONS = [
    ([["id", "=", 3]], "id = 3"),
    ([["id", "not in", [1, 2]], ["x", ">", 1.5]], "id not in (1, 2) AND x > 1.5"),
    ([["id", "<", "3"]], "id < '3'"),
    ([["name", "in", ["n1", "n11", "1"]]], "name in ('n1', 'n11', '1')"),
    ([["flag", "=", True]], "flag"),
    ([["flag", "=", "false"]], "flag = 'false'"),
    ([["at", ">=", "1970-01-01 10:00:00"]], "at >= '1970-01-01 10:00:00'"),
    ([["at", "<", "1970-01-01T05:00:00+02:00"]], "at < '1970-01-01T05:00:00+02:00'"),
    ([["price", ">", "1.25"], ["price", "!=", 2]], "price > 1.25 AND price <> 2"),
    ([["day", ">=", "2026-01-02"], ["n", "<", 9]], "day >= '2026-01-02' AND n < 9"),
    ([["day", "in", ["2026-01-01", "2026-01-03"]]], "day in ('2026-01-01', '2026-01-03')"),
    ([["n", "is", None]], "n IS NULL"),
    ([["n", "is not", None], ["day", "=", "2026-01-02"]], "n IS NOT NULL AND day = '2026-01-02'"),
    ([[["day", "=", "2026-01-01"]], [["id", "=", 9]]], "day = '2026-01-01' OR id = 9"),
    ([], "true"),
]


@pytest.mark.parametrize(("filters", "sql"), OPTIONS)
def test_asked_filters_keep_what_spark_keeps(classic, typed, filters, sql):
    expected = rows(load(classic, typed).where(sql))
    assert len(expected) not in (0, 12) or not filters
    assert rows(load(classic, typed, filters=json.dumps(filters))) == expected


def test_asked_filters_in_python(spark, typed):
    terms = [
        ("day", "in", {dt.date(2026, 1, 1), dt.date(2026, 1, 2)}),
        ("at", ">", dt.datetime(1970, 1, 1, 2, tzinfo=dt.timezone.utc)),
        ("price", "<=", decimal.Decimal("1.5")),
        ("n", "<", np.int64(6)),
    ]
    found = tfr_spark.read_tfrecord(spark, typed, columns=["name"], filters=terms)
    assert found.columns == ["name"]
    assert rows(found) == [("n3",), ("n4",), ("n5",)]


def test_times_of_asked_filters_are_in_the_zone_of_the_read(classic, typed):
    for zone, ids in (("UTC", [(11,)]), ("Europe/Berlin", [(10,), (11,)]), ("-01:00", [])):
        options = {"timeZone": zone, "filters": '[["at", ">=", "1970-01-01 11:00:00"]]'}
        assert rows(load(classic, typed, **options).select("id")) == rows(
            classic.createDataFrame(ids, "id bigint")
        )


def test_asked_filters_open_no_other_files(spark, wild):
    """And frames of one path, filtered in several ways, do not meet."""
    for path in (wild / "day=2026-01-03").rglob("part-*"):
        path.write_bytes(b"damaged")
    early = load(spark, wild, filters='[["day", "<", "2026-01-03"], ["id", ">", 1]]')
    first = load(spark, wild, filters='[["day", "=", "2026-01-01"]]')
    assert early.columns == ["id", "x", "name", "day", "n"]
    assert (early.count(), first.count(), early.union(first).count()) == (6, 4, 10)
    assert early.where("id > 6").count() == 1
    late = spark.read.format("tfrecord").schema("id int")
    with pytest.raises(PySparkException, match="day=2026-01-03"):
        late.option("filters", '[["day", ">", "2026-01-01"]]').load(str(wild)).count()


def test_asked_filters_of_columns_that_are_not_read(spark, typed):
    path = str(typed)
    asked = json.dumps([["id", ">", 8], ["day", "<", "2026-02-01"]])
    reader = spark.read.format("tfrecord").option("filters", asked)
    assert rows(reader.option("columns", "name").load(path)) == [("n10",), ("n11",), ("n9",)]
    told = spark.read.format("tfrecord").option("filters", asked).schema("id int, x float")
    assert told.load(path).columns == ["id", "x", "day", "n"]
    assert told.load(path).count() == 3
    view = f"CREATE OR REPLACE TEMPORARY VIEW late USING tfrecord OPTIONS (path '{path}', "
    spark.sql(f"{view} columns 'name,x', filters '{asked}')")
    assert rows(spark.sql("SELECT name FROM late WHERE x < 5.5")) == [("n10",), ("n9",)]
    with pytest.raises(AnalysisException, match="'id'"):
        spark.read.format("tfrecord").option("filters", asked).schema("x float").load(path)


@pytest.mark.parametrize(
    ("filters", "text"),
    [
        ("id > 3", "it must be JSON like"),
        ('["id", ">", 3]', "it must be JSON like"),
        ('[["id", ">"]]', "it must be JSON like"),
        ('[["id", "~", 3]]', "operator '~'"),
        ('[["id", "=", null]]', "'is', None"),
        ('[["id", "in", 3]]', "takes a list"),
        ('[["ident", ">", 3]]', "'ident'"),
        ('[["day", ">", "soon"]]', "'day' with 'soon'"),
        ('[["id", "=", "three"]]', "'id' with 'three'"),
        ('[["flag", "=", 3]]', "'flag'"),
    ],
)
def test_asked_filters_that_mean_nothing(classic, typed, filters, text):
    with pytest.raises(AnalysisException, match=re.escape(text)):
        load(classic, typed, filters=filters)


def test_asked_filters_are_no_expressions(classic, typed, pushdown):
    for filters in (pc.field("id") > 3, [("name", "=", b"n3")]):
        with pytest.raises(AnalysisException, match="lists of"):
            tfr_spark.read_tfrecord(classic, typed, filters=filters)
    with pytest.raises(AnalysisException, match="give one"):
        load(classic, typed, filters="[]", pushFilters=True)


def test_tasks_are_packed(classic, tmp_path):
    table = pa.table({"i": pa.array(range(1000, 5000), pa.int64())})
    tfr.write_table(table, tmp_path / "data", rows_per_task=40)
    size = (tmp_path / "data" / "part-00000-000.tfrecord").stat().st_size

    def partitions(most="128m", cost=None):
        asked = {} if cost is None else {"openCostInBytes": cost}
        frame = load(classic, tmp_path / "data", maxPartitionBytes=most, **asked)
        batches = frame.rdd.glom().collect()
        assert [row.i for batch in batches for row in batch] == list(range(1000, 5000))
        return len(batches)

    # As FilePartition.getFilePartitions: a file costs its length and the cost of opening it.
    assert partitions(10 * (size + 1), 1) == 10
    assert partitions("1g", 1) == 2
    assert partitions(3 * size, size) == 50
    # By default, that is less than Spark's: no more tasks than run at a time.
    assert partitions(cost="4m") == 4
    assert partitions() == 2


@pytest.mark.parametrize(
    "asked",
    [
        {"spark_sql_files_minPartitionNum": 30},
        {"spark_sql_files_minPartitionNum": 3, "spark_sql_leafNodeDefaultParallelism": 30},
        {"spark_sql_leafNodeDefaultParallelism": 30},
        {"spark_sql_files_maxPartitionNum": 1},
        {"spark_sql_files_maxPartitionNum": 7, "spark_sql_files_maxPartitionBytes": "20k"},
        {"spark_sql_files_maxPartitionNum": 50, "spark_sql_files_maxPartitionBytes": "20k"},
    ],
)
def test_tasks_are_as_many_as_the_session_asks_for(classic, tmp_path, asked):
    table = pa.table({"i": pa.array(range(1000, 5000), pa.int64())})
    tfr.write_table(table, tmp_path / "data", rows_per_task=40)
    with settings(classic, spark_sql_files_openCostInBytes=1000, **asked):
        # Spark's own source of files that it does not cut.
        texts = classic.read.text(str(tmp_path / "data"), wholetext=True)
        ours = load(classic, tmp_path / "data")
        assert ours.rdd.getNumPartitions() == texts.rdd.getNumPartitions()


def test_a_large_file_that_nothing_describes_is_shared(classic, tmp_path):
    path = tmp_path / "data"
    path.write_bytes(examples(*({"i": n, "b": bytes(20_000)} for n in range(2000))))

    def rows_of_parts():
        parts = load(classic, path).select("i").rdd.glom().collect()
        assert [row.i for part in parts for row in part] == list(range(2000))
        return [len(part) for part in parts]

    assert [900 < rows < 1100 for rows in rows_of_parts()] == [True, True]
    with settings(classic, spark_sql_files_minPartitionNum=10):
        assert [150 < rows < 250 for rows in rows_of_parts()] == [True] * 10
    # Damage may hide where records start.
    assert load(classic, path, mode="DROPMALFORMED").rdd.getNumPartitions() == 1


def test_nothing_to_read(spark, tmp_path):
    tfr.write_table(pa.table({"a": pa.array([], pa.int64())}), tmp_path / "data")
    frame = load(spark, tmp_path / "data")
    assert frame.columns == ["a"]
    assert frame.collect() == []


@pytest.mark.parametrize("name", ["arrays", "seq_basic", "codec_gzip", "part_two_levels"])
def test_data_sets_of_spark_tfrecord(spark, name):
    manifest = json.loads((GOLDEN / f"{name}.manifest.json").read_text())
    options = {"recordType": manifest["write_options"]["recordType"]}
    frame = load(spark, GOLDEN / name, **options)
    assert {*frame.columns} == {field["name"] for field in manifest["schema"]["fields"]}
    assert frame.count() == len(manifest["rows"])


def test_codec_is_the_writers(spark, tmp_path):
    """Spark-tfrecord reads by suffix, whatever codec says; so shared options must do."""
    codec = "org.apache.hadoop.io.compress.GzipCodec"
    tfr.write_table(pa.table({"a": [1, 2]}), tmp_path / "plain")
    tfr.write_table(pa.table({"a": [1, 2]}), tmp_path / "zst", compression="zstd")
    for name in ("plain", "zst"):
        assert rows(load(spark, tmp_path / name, codec=codec)) == [(1,), (2,)]
    with pytest.raises(PySparkException, match="rar"):
        load(spark, tmp_path / "plain", codec="rar").collect()
    with pytest.raises(PySparkException, match="plain TFRecord"):
        load(spark, tmp_path / "plain", compression="gzip", codec=codec).collect()


def test_session_without_register(sessions, events):
    """The functional form changes nothing in Spark."""
    for session in sessions.values():
        frame = tfr_spark.read_tfrecord(session, str(events), schema="id int", path_column="at")
        assert frame.columns == ["id", "day", "n", "at"]
        assert frame.where("n = 1").count() == 2
