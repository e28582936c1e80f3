"""Settings of the session, against real servers: where paths are, and who may read them."""

import datetime as dt
import uuid
import zipfile
import zoneinfo

import fsspec
import pyarrow as pa
import pytest

import tfrecord_io as tfr
from tests.support.frames import examples
from tests.support.sessions import settings
from tests.support.trees import data_files

pyspark = pytest.importorskip("pyspark")
from pyspark.errors import AnalysisException, PySparkException  # noqa: E402


def s3a(server, **changes):
    """The server's settings as Hadoop's users have them: no scheme, no TLS, bucket in the path."""
    host = server.storage_options["client_kwargs"]["endpoint_url"].removeprefix("http://")
    return {
        "fs_s3a_endpoint": host,
        "fs_s3a_endpoint_region": "us-east-1",
        "fs_s3a_connection_ssl_enabled": "false",
        "fs_s3a_path_style_access": "true",
        "fs_s3a_access_key": server.storage_options["key"],
        "fs_s3a_secret_key": server.storage_options["secret"],
        **changes,
    }


def secrets(session, server):
    """What a Connect client has to say again: Spark gives it no setting that looks secret."""
    if hasattr(session, "_jsparkSession"):
        return {}
    return {
        "fs.s3a.access.key": server.storage_options["key"],
        "fs.s3a.secret.key": server.storage_options["secret"],
    }


def test_s3a(spark, s3_server):
    path = f"{s3_server.url}/{uuid.uuid4().hex}".replace("s3://", "s3a://")
    more = secrets(spark, s3_server)
    with settings(spark, **s3a(s3_server)):
        spark.range(0, 6, 1, 2).write.format("tfrecord").options(**more).save(path)
        frame = spark.read.format("tfrecord").options(**more).load(path)
        assert sorted(row.id for row in frame.collect()) == [*range(6)]
        if more:
            with pytest.raises(AnalysisException, match="as options") as error:
                spark.read.format("tfrecord").load(path)
            assert error.value.getCondition() == "TFRECORD_PERMISSION_DENIED"
    table = tfr.read_table(path, storage_options=s3_server.storage_options)
    assert table["id"].to_pylist() == [*range(6)]


def test_gs(spark, gcs_server):
    path = f"{gcs_server.url}/{uuid.uuid4().hex}"
    entries = {
        "fs_gs_auth_type": "UNAUTHENTICATED",
        "fs_gs_storage_root_url": gcs_server.storage_options["endpoint_url"],
    }
    with settings(spark, **entries):
        spark.range(0, 6, 1, 2).write.format("tfrecord").save(path)
        frame = spark.read.format("tfrecord").load(path)
        assert sorted(row.id for row in frame.collect()) == [*range(6)]
    table = tfr.read_table(path, storage_options=gcs_server.storage_options)
    assert table["id"].to_pylist() == [*range(6)]


def test_settings_of_one_bucket(classic, s3_server):
    path = f"{s3_server.url}/{uuid.uuid4().hex}".replace("s3://", "s3a://")
    bucket = s3_server.url.removeprefix("s3://")
    wrong = s3a(s3_server, fs_s3a_access_key="nobody")
    right = {f"fs_s3a_bucket_{bucket}_access_key": s3_server.storage_options["key"]}
    with settings(classic, **wrong, **right):
        classic.range(3).write.format("tfrecord").save(path)
        assert classic.read.format("tfrecord").load(path).count() == 3


@pytest.mark.parametrize("way", ["settings", "options"])
def test_secrets_show_nowhere(spark, s3_server, capfd, way):
    """Neither in plans, which the UI shows as well, nor in errors, nor in what is logged."""
    path = f"{s3_server.url}/{uuid.uuid4().hex}".replace("s3://", "s3a://")
    word = "wordthatmustnotshow"
    tfr.write_table(pa.table({"id": [1]}), path, storage_options=s3_server.storage_options)

    def reading(schema, secret):
        reader = spark.read.format("tfrecord").schema(schema)
        options = {"fs.s3a.secret.key": secret} if way == "options" else {}
        return reader.options(**{**secrets(spark, s3_server), **options}).load(path)

    with settings(spark, **s3a(s3_server)):
        frame = reading("id long", s3_server.storage_options["secret"])
        assert frame.count() == 1
        for mode in ("simple", "extended", "codegen", "cost", "formatted"):
            frame.where("id > 0").explain(mode=mode)
        shown = capfd.readouterr()
        assert "tfrecord" in shown.out
        secret = s3_server.storage_options["secret"]
        assert secret not in shown.out + shown.err + repr(frame) + str(frame.schema)
    options = {"fs.s3a.access.key": "nobody", "fs.s3a.secret.key": word}
    changed = {name.replace(".", "_"): value for name, value in options.items()}
    with settings(spark, **s3a(s3_server, **changed)):
        more = {**secrets(spark, s3_server), **options} if way == "options" else {}
        for refused in (
            lambda: spark.read.format("tfrecord").options(**more).load(path),
            lambda: (
                spark.range(1).write.format("tfrecord").options(**more).mode("append").save(path)
            ),
        ):
            with pytest.raises(PySparkException) as error:
                refused()
            assert word not in str(error.value) + repr(error.value)
        shown = capfd.readouterr()
        assert word not in shown.out + shown.err


def test_bare_paths_are_of_the_default_file_system(spark, hdfs_server, tmp_path):
    name = f"/{uuid.uuid4().hex}"
    fsspec.core.url_to_fs(hdfs_server.url)[0].mkdir(name)
    frame = spark.range(0, 6, 1, 2).selectExpr("id", "id % 2 as p")
    with settings(spark, fs_defaultFS=hdfs_server.url):
        frame.write.format("tfrecord").partitionBy("p").save(f"{name}/data")
        assert spark.read.format("tfrecord").load(f"{name}/data/p=1").count() == 3
        assert spark.read.format("tfrecord").load(f"{name}/data").columns == ["id", "p"]
        assert spark.read.format("tfrecord").load(f"hdfs://{name}/data/*").count() == 6
        # What names its file system is where it says.
        frame.write.format("tfrecord").partitionBy("p").save(f"file://{tmp_path}/data")
        with pytest.raises(PySparkException, match="PATH_ALREADY_EXISTS"):
            frame.write.format("tfrecord").save(f"{hdfs_server.url}{name}/data")
    files = tfr.read_table(f"{hdfs_server.url}{name}/data", path_column="file")
    assert files.num_rows == 6
    found = {file.partition(f"{name}/data/")[2] for file in files["file"].to_pylist()}
    assert found == {*data_files(tmp_path / "data")}


@pytest.mark.parametrize("kind", ["s3", "hdfs"])
def test_when_files_were_written(classic, request, kind):
    """The bounds are what the store itself says of two files; the zone is the session's."""
    server = request.getfixturevalue(f"{kind}_server")
    root = f"{server.url}/{uuid.uuid4().hex}"
    files, folder = fsspec.core.url_to_fs(root, **server.storage_options)
    files.makedirs(folder, exist_ok=True)

    def write(name):
        files.pipe_file(f"{folder}/{name}", examples({"name": name}))
        files.invalidate_cache()
        info = files.info(f"{folder}/{name}")
        if kind == "s3":
            return info["LastModified"]
        return dt.datetime.fromtimestamp(info["modification_time"] / 1000, dt.timezone.utc)

    first = write("a")
    while (second := write("b")) == first:
        # Where the store counts seconds.
        pass

    def names(zone=None, **bounds):
        there = zoneinfo.ZoneInfo(zone or "Asia/Kolkata")
        texts = {
            name: moment.astimezone(there).replace(tzinfo=None).isoformat()
            for name, moment in bounds.items()
        }
        options = texts if zone is None else {**texts, "timeZone": zone}
        path = root.replace("s3://", "s3a://")
        return sorted(
            row.name
            for row in classic.read.format("tfrecord").options(**options).load(path).collect()
        )

    with settings(classic, **(s3a(server) if kind == "s3" else {})):
        assert names(modifiedAfter=first) == ["b"]
        assert names(modifiedBefore=second) == ["a"]
        assert names(modifiedAfter=first - dt.timedelta(seconds=1)) == ["a", "b"]
        assert names(zone="America/New_York", modifiedBefore=second) == ["a"]


def test_a_store_that_tells_no_times(classic, tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.tfrecord", examples({"name": "a"}))
    reader = classic.read.format("tfrecord")
    path = f"zip://a.tfrecord::file://{tmp_path}/a.zip"
    assert [row.name for row in reader.load(path).collect()] == ["a"]
    with pytest.raises(AnalysisException, match=r"a\.tfrecord.*does not tell when"):
        reader.option("modifiedAfter", "2026-01-01").load(path)


def test_a_temporary_view_of_a_registered_session(classic, s3_server):
    """SQL says nothing of a session: the settings are those at the time of register."""
    from tfrecord_io.engines import spark as tfr_spark

    path = f"{s3_server.url}/{uuid.uuid4().hex}".replace("s3://", "s3a://")
    with settings(classic, **s3a(s3_server)):
        classic.range(3).write.format("tfrecord").save(path)
        tfr_spark.register(classic)
        classic.sql(f"CREATE TEMPORARY VIEW stored USING tfrecord OPTIONS (path '{path}')")
        try:
            classic.sql("INSERT INTO stored VALUES (3)")
            assert classic.read.format("tfrecord").load(path).count() == 4
        finally:
            classic.sql("DROP VIEW stored")
    tfr_spark.register(classic)


def test_a_stream(classic, s3_server, hdfs_server, tmp_path):
    """From one store to another, the checkpoint on a third; a replayed batch adds nothing."""
    name = uuid.uuid4().hex
    source = f"{s3_server.url}/{name}".replace("s3://", "s3a://")
    target = f"{hdfs_server.url}/{name}"
    with settings(classic, **s3a(s3_server)):
        classic.range(4).write.format("tfrecord").save(source)
        reader = classic.readStream.format("tfrecord").schema("id bigint")
        for _ in range(2):
            writer = reader.load(source).writeStream.format("tfrecord")
            writer = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
            writer.start(target).awaitTermination()
            assert tfr.count_rows(target) == 4
            (tmp_path / "commits" / "0").unlink()
            (tmp_path / "commits" / ".0.crc").unlink()
