"""What needs no JVM: settings, stores, options, errors and types, as pure functions."""

import errno
import json
import os

import fsspec
import pyarrow as pa
import pytest

from tfrecord_io.errors import DatasetExistsError, OptionError, UnsupportedTypeError

pytest.importorskip("pyspark")
from pyspark.errors import AnalysisException, PySparkException
from pyspark.ml.linalg import MatrixUDT, Vectors, VectorUDT
from pyspark.sql import datasource
from pyspark.sql.types import (
    ArrayType,
    GeographyType,
    GeometryType,
    MapType,
    NullType,
    StringType,
    StructType,
    VariantType,
    YearMonthIntervalType,
)

from tfrecord_io.engines.spark.conditions import as_raised, as_spark, in_words_of_spark
from tfrecord_io.engines.spark.filters import expression
from tfrecord_io.engines.spark.options import (
    REQUEST_OPTION,
    read_options,
    write_options,
)
from tfrecord_io.engines.spark.settings import (
    SECRET_OPTION,
    Settings,
    from_conf,
    from_options,
    of_session,
    with_site,
)
from tfrecord_io.engines.spark.source import TFRecordSource
from tfrecord_io.engines.spark.stores import resolve, storage_options
from tfrecord_io.engines.spark.types import arrow_schema, conformed, spark_schema, with_lists
from tfrecord_io.schema import normal_schema

CONF = {
    "spark.master": "local[3]",
    "spark.sql.files.maxPartitionBytes": "64m",
    "spark.sql.files.openCostInBytes": "1000",
    "spark.sql.files.minPartitionNum": "20",
    "spark.sql.files.maxPartitionNum": "30",
    "spark.sql.files.ignoreMissingFiles": "true",
    "spark.sql.files.maxRecordsPerFile": "7",
    "spark.sql.sources.partitionOverwriteMode": "DYNAMIC",
    "spark.sql.session.timeZone": "Asia/Tokyo",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.columnNameOfCorruptRecord": "bad",
    "spark.hadoop.fs.defaultFS": "hdfs://name:8020",
    "spark.hadoop.fs.s3a.access.key": "me",
    "spark.hadoop.fs.s3a.secret.key": "hidden-word",
    "spark.hadoop.fs.s3a.bucket.other.access.key": "you",
    "spark.hadoop.dfs.replication": "1",
}


def test_settings_of_a_session():
    settings = from_conf(CONF)
    assert settings == Settings(
        max_partition_bytes=64 * 1024**2,
        open_cost_bytes=1000,
        parallelism=3,
        least_partitions=20,
        most_partitions=30,
        ignore_missing_files=True,
        max_records_per_file=7,
        dynamic_overwrite=True,
        time_zone="Asia/Tokyo",
        infers_partition_types=False,
        infers_instants=False,
        corrupt_column="bad",
        hadoop={
            "fs.defaultFS": "hdfs://name:8020",
            "fs.s3a.access.key": "me",
            "fs.s3a.secret.key": "hidden-word",
            "fs.s3a.bucket.other.access.key": "you",
        },
    )
    assert from_options(settings.options(), Settings()) == settings
    assert from_options({}, settings) is settings
    leaves = {**CONF, "spark.sql.leafNodeDefaultParallelism": "9"}
    assert from_conf(leaves, parallelism=2).parallelism == from_conf(leaves).parallelism == 9


@pytest.mark.parametrize(
    ("conf", "parallelism"),
    [
        ({"spark.default.parallelism": "7", "spark.master": "local[3]"}, 7),
        ({"spark.master": "local[*]"}, os.cpu_count()),
        ({"spark.master": "yarn"}, 1),
        ({"spark.executor.cores": "4", "spark.executor.instances": "5"}, 20),
    ],
)
def test_how_many_tasks_run_at_once(conf, parallelism):
    assert from_conf(conf).parallelism == parallelism


def test_what_a_session_sets_goes_before_what_the_application_has():
    own = {"fs.s3a.access.key": "own", "fs.s3a.session.token": "of a while", "fs.other": "x"}
    hadoop = from_conf({**CONF, **own}).hadoop
    assert hadoop["fs.s3a.access.key"] == "own"
    assert hadoop["fs.s3a.secret.key"] == "hidden-word"
    assert "fs.other" not in hadoop
    assert storage_options("s3a://bucket/x", hadoop) == {
        "key": "own",
        "secret": "hidden-word",
        "token": "of a while",
    }


def test_settings_of_the_servers_files(tmp_path, monkeypatch):
    """A client of Spark Connect sees no core-site.xml: what stands there is looked up beside it."""
    for name in ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
        (tmp_path / name).mkdir()
    told = Settings(hadoop={"fs.s3a.access.key": "own"})
    assert with_site(told) is told
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "SPARK_CONF_DIR"))
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path / "HADOOP_CONF_DIR"))
    monkeypatch.setenv("YARN_CONF_DIR", str(tmp_path / "YARN_CONF_DIR"))
    assert with_site(told) is told

    def write(name, properties):
        entries = "".join(
            f"<property>\n<name>{key}</name><value> {value} </value><final>true</final></property>"
            for key, value in properties.items()
        )
        text = f'<?xml version="1.0"?>\n<configuration>{entries}</configuration>'
        (tmp_path / name / "core-site.xml").write_text(text)

    site = {"fs.defaultFS": "hdfs://name", "fs.s3a.access.key": "me", "io.sort.mb": "1"}
    write("HADOOP_CONF_DIR", site)
    write("YARN_CONF_DIR", {"fs.defaultFS": "hdfs://other"})
    found = with_site(told)
    assert found.hadoop == {"fs.defaultFS": "hdfs://name", "fs.s3a.access.key": "own"}
    # The data source goes by it, whether settings came as options or none did.
    for options in ({}, told.options()):
        source = TFRecordSource({"path": "/a", **options})
        assert source._settings.hadoop["fs.defaultFS"] == "hdfs://name"


def test_settings_come_from_the_jvm_as_they_are(classic):
    hard = "a -> b, (c=d)"
    classic.conf.set("spark.sql.columnNameOfCorruptRecord", hard)
    try:
        found = of_session(classic)
        told = dict(classic.conf.getAll)
        known = {"hadoop": found.hadoop, "parallelism": classic.sparkContext.defaultParallelism}
        assert found == from_conf(told, **known)
        assert found.corrupt_column == told["spark.sql.columnNameOfCorruptRecord"] == hard
    finally:
        classic.conf.unset("spark.sql.columnNameOfCorruptRecord")


@pytest.mark.parametrize("url", ["s3a://b/x", "gs://b/x", "abfss://b@mine.dfs.core.windows.net/x"])
def test_what_hadoop_says_by_default_says_nothing(classic, url):
    assert storage_options(url, of_session(classic).hadoop) == {}


def test_credentials_are_hidden():
    settings = from_conf(CONF)
    assert "hidden-word" not in repr(settings)
    # Spark redacts what has "secret" in its name (spark.redaction.regex).
    holders = [name for name, text in settings.options().items() if "hidden-word" in text]
    assert holders == [SECRET_OPTION]
    assert "secret" in SECRET_OPTION
    options = read_options({"path": "s3a://bucket/x", **settings.options()}, Settings())
    assert "hidden-word" not in repr(options)


@pytest.mark.parametrize(
    ("path", "default", "expected"),
    [
        ("/a/b", "hdfs://name:8020/", "hdfs://name:8020/a/b"),
        ("/a/b", "", "/a/b"),
        ("/a/b", "file:///", "/a/b"),
        ("file:/a/b", "hdfs://name:8020", "file:/a/b"),
        ("hdfs://other/a", "hdfs://name:8020", "hdfs://other/a"),
        ("/a/b", "s3a://bucket", "s3a://bucket/a/b"),
        # Of the default's scheme and without a host, it is the default's.
        ("hdfs:///a/{b,c}", "hdfs://name:8020/", "hdfs://name:8020/a/{b,c}"),
        ("hdfs:/a/b", "hdfs://name", "hdfs://name/a/b"),
        ("HDFS:///a/b", "hdfs://name", "hdfs://name/a/b"),
        ("hdfs:///a/b", "s3a://bucket", "hdfs:///a/b"),
        ("hdfs:///a/b", "", "hdfs:///a/b"),
        ("file:///a/b", "file:///", "file:///a/b"),
        ("s3a://a/b", "s3a://bucket", "s3a://a/b"),
    ],
)
def test_paths_resolve_as_in_spark(path, default, expected):
    assert resolve(path, {"fs.defaultFS": default}) == expected


def test_whose_home_folder_relative_paths_are_in(monkeypatch):
    """Hadoop's clients, Spark's too, take the user from the environment first."""
    hadoop = {"fs.defaultFS": "hdfs://name:8020"}
    monkeypatch.setenv("HADOOP_USER_NAME", "etl")
    assert resolve("a/b", hadoop) == "hdfs://name:8020/user/etl/a/b"
    monkeypatch.delenv("HADOOP_USER_NAME")
    monkeypatch.setattr("getpass.getuser", lambda: "me")
    assert resolve("a/b", hadoop) == "hdfs://name:8020/user/me/a/b"


def test_settings_of_a_bucket_go_before_those_of_all():
    hadoop = {
        "fs.s3a.access.key": "me",
        "fs.s3a.secret.key": "word",
        "fs.s3a.endpoint": "https://host",
        "fs.s3a.endpoint.region": "eu-north-1",
        "fs.s3a.bucket.other.access.key": "you",
        "fs.s3a.bucket.open.aws.credentials.provider": (
            "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
        ),
    }
    client = {"endpoint_url": "https://host", "region_name": "eu-north-1"}
    assert storage_options("s3a://bucket/x", hadoop) == {
        "key": "me",
        "secret": "word",
        "client_kwargs": client,
    }
    assert storage_options("s3://other/x", hadoop)["key"] == "you"
    assert storage_options("s3a://open/x", hadoop)["anon"] is True
    assert storage_options("/a/b", hadoop) == storage_options("hdfs://name/a", hadoop) == {}


def test_buckets_of_different_settings_are_not_read_together():
    """One of them would be asked with what is meant for the other: its endpoint, its secrets."""
    hadoop = {"fs.s3a.access.key": "me", "fs.s3a.bucket.other.access.key": "you"}

    def storage(*paths):
        return read_options({"paths": json.dumps(paths), **hadoop}, Settings()).storage

    assert storage("s3a://a/x", "/y", "s3://b/z", "s3a://a/w") == {"key": "me"}
    assert storage("s3a://other/x", "s3a://other/y") == {"key": "you"}
    assert storage("/x", "/y") == {}
    with pytest.raises(OptionError, match=r"'a' and 'other' .*fs\.s3a\.bucket.* load them apart"):
        storage("/y", "s3a://a/x", "s3a://other/x")
    # One name in two stores is two buckets.
    with pytest.raises(OptionError, match="different settings"):
        storage("s3a://a/x", "gs://a/x")


@pytest.mark.parametrize(
    ("providers", "keys", "is_anonymous"),
    [
        (["Anonymous"], True, True),
        (["Anonymous", "Simple"], True, True),
        (["Simple", "Anonymous"], True, False),
        (["Simple", "Anonymous"], False, True),
        (["Simple"], True, False),
    ],
)
def test_providers_are_asked_in_their_order(providers, keys, is_anonymous):
    package = "org.apache.hadoop.fs.s3a."
    named = ",".join(f"{package}{name}AWSCredentialsProvider" for name in providers)
    hadoop = {"fs.s3a.aws.credentials.provider": named}
    if keys:
        hadoop |= {"fs.s3a.access.key": "me", "fs.s3a.secret.key": "word"}
    assert storage_options("s3a://bucket/x", hadoop).get("anon", False) is is_anonymous


AZURE = "abfss://data@mine.dfs.core.windows.net/x"
OAUTH = {
    "fs.azure.account.auth.type": "OAuth",
    "fs.azure.account.oauth2.client.id": "me",
    "fs.azure.account.oauth2.client.secret": "word",
    "fs.azure.account.oauth2.client.endpoint": (
        "https://login.microsoftonline.com/tenant/oauth2/token"
    ),
}
PROVIDERS = "org.apache.hadoop.fs.azurebfs.oauth2."


@pytest.mark.parametrize(
    ("hadoop", "expected"),
    [
        ({"fs.azure.account.key.mine.dfs.core.windows.net": "a2V5"}, {"account_key": "a2V5"}),
        (
            {
                "fs.azure.account.key": "b3RoZXI=",
                "fs.azure.account.key.mine.dfs.core.windows.net": "a2V5",
                "fs.azure.account.key.other.dfs.core.windows.net": "b3RoZXI=",
                "fs.azure.sas.fixed.token": "sig=x",
            },
            {"account_key": "a2V5"},
        ),
        (
            {
                "fs.azure.account.auth.type.mine.dfs.core.windows.net": "SAS",
                "fs.azure.sas.fixed.token.mine.dfs.core.windows.net": "sig=x",
            },
            # adlfs puts the sign of a query before it.
            {"sas_token": "?sig=x"},
        ),
        (
            {
                **OAUTH,
                "fs.azure.account.oauth.provider.type": f"{PROVIDERS}ClientCredsTokenProvider",
            },
            {"tenant_id": "tenant", "client_id": "me", "client_secret": "word"},
        ),
    ],
)
def test_settings_of_azure(hadoop, expected):
    """By the names of Hadoop's connector, as adlfs takes them."""
    options = from_conf({f"spark.hadoop.{name}": text for name, text in hadoop.items()})
    found = storage_options(AZURE, options.hadoop)
    filesystem, path = fsspec.core.url_to_fs(AZURE, **found)
    assert (filesystem.account_name, path) == ("mine", "data/x")
    names = ("account_key", "sas_token", "tenant_id", "client_id", "client_secret")
    taken = {name: getattr(filesystem, name) for name in names}
    assert {name: text for name, text in taken.items() if text} == expected


@pytest.mark.parametrize("provider", ["MsiTokenProvider", "WorkloadIdentityTokenProvider"])
def test_identities_of_azure_are_found_by_its_client(provider):
    hadoop = {**OAUTH, "fs.azure.account.oauth.provider.type": PROVIDERS + provider}
    assert storage_options(AZURE, hadoop) == storage_options(AZURE, {}) == {}


@pytest.mark.parametrize(
    ("hadoop", "expected"),
    [
        ({}, {}),
        ({"fs.gs.auth.service.account.json.keyfile": "/key.json"}, {"token": "/key.json"}),
        (
            {
                "fs.gs.auth.type": "APPLICATION_DEFAULT",
                "fs.gs.auth.service.account.json.keyfile": "/key.json",
                "fs.gs.project.id": "mine",
            },
            {"token": "google_default", "project": "mine"},
        ),
        # Hadoop's default; gcsfs asks the environment, and then the machine.
        ({"fs.gs.auth.type": "COMPUTE_ENGINE"}, {}),
        (
            {
                "fs.gs.auth.type": "COMPUTE_ENGINE",
                "fs.gs.auth.service.account.json.keyfile": "/key.json",
            },
            {"token": "/key.json"},
        ),
        ({"fs.gs.auth.type": "USER_CREDENTIALS"}, {}),
    ],
)
def test_settings_of_google(hadoop, expected):
    assert storage_options("gs://bucket/x", {**hadoop, "fs.s3a.access.key": "me"}) == expected


def test_options_go_before_settings():
    settings = from_conf(CONF)
    plain = read_options({"path": "file:/a"}, settings)
    assert (plain.max_partition_bytes, plain.open_cost_bytes) == (64 * 1024**2, 1000)
    assert plain.ignore_missing
    assert (plain.on_corrupt, plain.compression) == ("raise", "infer")
    options = {
        "PATHS": json.dumps(["file:/a", "s3a://bucket/b"]),
        "MaxPartitionBytes": "1k",
        "ignoreMissingFiles": "FALSE",
        "fs.s3a.access.key": "own",
        "columns": "a, b",
    }
    own = read_options(options, settings)
    assert own.paths == ("file:/a", "s3a://bucket/b")
    assert own.max_partition_bytes == 1024
    assert not own.ignore_missing
    assert own.storage["key"] == "own"
    assert own.columns == ("a", "b")


@pytest.mark.parametrize(
    ("options", "overwrite", "mode", "partition_by"),
    [
        ({}, False, "append", ()),
        ({}, True, "overwrite", ()),
        ({"partitionBy": "a"}, True, "overwrite_partitions", ("a",)),
        ({"partitionBy": "a", "partitionOverwriteMode": "static"}, True, "overwrite", ("a",)),
        ({REQUEST_OPTION: '{"mode": "ignore", "partition_by": ["b"]}'}, False, "ignore", ("b",)),
        ({REQUEST_OPTION: '{"mode": "error", "partition_by": []}'}, False, "error", ()),
    ],
)
def test_modes(options, overwrite, mode, partition_by):
    found = write_options({"path": "/a", **options}, from_conf(CONF), overwrite=overwrite)
    assert (found.mode, found.partition_by) == (mode, partition_by)
    assert found.max_records_per_file == 7


@pytest.mark.parametrize("options", [{}, {"path": ""}, {"path": "/a", "partitonBy": "x"}])
def test_options_that_are_refused(options):
    with pytest.raises(OptionError, match=r"there is no path|did you mean 'partitionBy'"):
        write_options(options, Settings(), overwrite=False)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"maxPartitionBytes": "0"}, "maxPartitionBytes is '0'; it must be above 0"),
        ({"openCostInBytes": "0b"}, "openCostInBytes is '0b'; it must be above 0"),
        (
            {"columns": '["a", 1]'},
            r"""columns is '\["a", 1\]'; it must be names with commas, or a""",
        ),
        ({"columns": '["a"'}, "it must be names with commas, or a JSON list"),
        ({"samplingRatio": "half"}, "samplingRatio is 'half'; it must be above 0, and 1 at most"),
        ({"maxFilesPerTrigger": "few"}, "maxFilesPerTrigger is 'few'; it must be a whole number"),
        ({"paths": "/a,/b"}, "paths is '/a,/b'; it must be a JSON list of paths"),
        ({"paths": '"/a"'}, "it must be a JSON list of paths"),
        ({"paths": '["/a", 1]'}, "it must be a JSON list of paths"),
        ({"paths": "[]"}, "there is no path"),
        ({"paths": '["/a", ""]'}, "there is no path"),
    ],
)
def test_reads_that_are_refused(options, text):
    with pytest.raises(OptionError, match=text):
        read_options({"path": "/a", **options}, Settings())


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"writeLocality": "remote"}, "writeLocality is 'remote'; it must be distributed or local"),
        ({"partitionBy": '["a"'}, "partitionBy is .*; it must be names with commas, or a JSON"),
        ({"maxRecordsPerFile": "many"}, "maxRecordsPerFile is 'many'; it must be a whole number"),
    ],
)
def test_writes_that_are_refused(options, text):
    with pytest.raises(OptionError, match=text):
        write_options({"path": "/a", **options}, Settings(), overwrite=False)


def test_compression_by_either_name():
    """Two names of one option; where they contradict each other, neither is passed over."""
    for options in ({"codec": "gzip"}, {"compression": "gzip"}):
        found = write_options({"path": "/a", **options}, Settings(), overwrite=False)
        assert found.compression == "gzip"
    both = {"path": "/a", "codec": "org.apache.hadoop.io.compress.GzipCodec", "compression": "gz"}
    assert write_options(both, Settings(), overwrite=False).compression
    for compression in ("zstd", "none"):
        with pytest.raises(OptionError, match=r"codec .* compression"):
            write_options({**both, "compression": compression}, Settings(), overwrite=False)


def test_partition_columns_by_method_and_by_option():
    """As with compression: where the two contradict each other, neither is passed over."""
    request = {"path": "/a", REQUEST_OPTION: '{"mode": "append", "partition_by": ["b", "c"]}'}
    for more in ({}, {"partitionBy": "b,c"}, {"partitionBy": '["b", "c"]'}):
        found = write_options({**request, **more}, Settings(), overwrite=False)
        assert found.partition_by == ("b", "c")
    for named in ("a", "b", "c,b"):
        with pytest.raises(OptionError, match=r"b, c by the writer's method, and .* by the option"):
            write_options({**request, "partitionBy": named}, Settings(), overwrite=False)


def test_local_writes_and_speculative_tasks():
    options = {"path": "/a", "writeLocality": "local"}
    assert write_options(options, from_conf(CONF), overwrite=False).is_local
    speculative = from_conf({**CONF, "spark.speculation": "true"})
    assert not write_options({"path": "/a"}, speculative, overwrite=False).is_local
    with pytest.raises(OptionError, match=r"spark\.speculation"):
        write_options(options, speculative, overwrite=False)


def test_conditions():
    error = as_spark(DatasetExistsError("it is there", path="/a"))
    assert error.getCondition() == "PATH_ALREADY_EXISTS"
    text = (
        "[PYTHON_DATA_SOURCE_ERROR] Failed: Traceback (most recent call last):\n"
        '  File "a.py", line 1, in b\n'
        f"pyspark.errors.exceptions.base.AnalysisException: {error}\n SQLSTATE: 38000\n\nmore"
    )
    told = AnalysisException(
        message=text, errorClass="PYTHON_DATA_SOURCE_ERROR", messageParameters={}
    )
    raised = as_raised(told)
    assert raised.getCondition() == "PATH_ALREADY_EXISTS"
    assert str(raised) == "[PATH_ALREADY_EXISTS] it is there [/a]"
    other = PySparkException(message="x", errorClass="OTHER", messageParameters={})
    assert as_raised(other) is other


def test_where_credentials_are_given():
    denied = PermissionError(errno.EACCES, "no credentials for S3 were found: give key", "s3://a")
    said = str(as_spark(denied))
    assert "no credentials for S3 were found" in said
    assert "In Spark they are fs.s3a.access.key and fs.s3a.secret.key" in said
    other = PermissionError(errno.EACCES, "Permission denied", "s3://a")
    assert "fs.s3a" not in str(as_spark(other))


@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        ([datasource.EqualTo(("n",), 2)], [2]),
        ([datasource.In(("n",), (1, 3)), datasource.Not(datasource.EqualTo(("n",), 3))], [1]),
        # What cannot be said exactly is left to Spark.
        ([datasource.EqualTo(("n",), 2**70)], None),
        ([datasource.EqualTo(("n",), "2")], None),
        ([datasource.In(("n",), (1, None))], None),
        ([datasource.EqualTo(("n", "inner"), 2)], None),
        ([datasource.EqualTo(("none",), 2)], None),
        ([datasource.Not(datasource.EqualTo(("none",), 2))], None),
        ([datasource.EqualTo(("x",), 0.5)], None),
        ([datasource.EqualTo(("none",), 2), datasource.GreaterThan(("n",), 2)], [3]),
    ],
)
def test_filters_that_spark_pushes(filters, kept):
    table = pa.table({"n": [1, 2, 3], "x": [0.5, 1.0, 1.5]})
    found = expression(filters, table.schema)
    assert (None if found is None else table.filter(found)["n"].to_pylist()) == kept


def test_errors_name_options():
    """The core's arguments by their options' names; what users named is left as it is."""
    told = "write with record_type=\"SequenceExample\"; on_corrupt='keep' (see empty_partition)"
    users = " column 'record_type' of \"record_type\", in /data/path_column/x and my_record_type"
    with pytest.raises(OptionError) as error, in_words_of_spark():
        raise OptionError(told + users, feature="record_type")
    assert str(error.value) == (
        'write with recordType="SequenceExample"; mode=PERMISSIVE (see emptyPartition)'
        f"{users} [feature 'record_type']"
    )


def test_how_a_struct_is_taken_apart():
    schema = pa.schema([("s", pa.list_(pa.struct([("a", pa.int32())])))])
    with pytest.raises(UnsupportedTypeError) as error, in_words_of_spark():
        normal_schema(schema)
    assert 'columns of their own (select("column.field"))' in str(error.value)


def test_columns_there_and_back():
    struct = StructType()
    for name in ("boolean", "byte", "short", "integer", "long", "float", "double", "decimal(12,3)"):
        struct.add(name, name)
    for name in ("string", "binary", "date", "timestamp", "timestamp_ntz"):
        struct.add(name, name)
    struct.add("lists", ArrayType(ArrayType(StringType())))
    assert spark_schema(arrow_schema(struct)) == struct


@pytest.mark.parametrize(
    ("t", "type_"),
    [
        (pa.uint8(), "smallint"),
        (pa.uint16(), "int"),
        (pa.uint32(), "bigint"),
        (pa.uint64(), "bigint"),
        (pa.time64("ns"), "bigint"),
        (pa.float16(), "float"),
        (pa.date64(), "date"),
        (pa.decimal256(40, 2), "double"),
        (pa.decimal128(5, -2), "double"),
        (pa.decimal128(38, 38), "decimal(38,38)"),
        (pa.list_(pa.uint16(), 2), "array<int>"),
    ],
)
def test_types_that_spark_does_not_have(t, type_):
    (field,) = spark_schema(pa.schema([("x", t)]))
    assert field.dataType.simpleString() == type_


def test_rows_without_columns():
    batch = pa.record_batch({"x": [1, 2, 3]})
    assert conformed(batch, pa.schema([])).num_rows == 3


def test_a_column_without_an_arrow_form():
    struct = StructType().add("ok", "long").add("y", YearMonthIntervalType())
    with pytest.raises(UnsupportedTypeError, match="'y'"):
        arrow_schema(struct)


@pytest.mark.parametrize(
    ("t", "what"),
    [
        (ArrayType(NullType(), False), "array<void>, .* such as array<int>"),
        (ArrayType(ArrayType(NullType(), False), False), "such as array<array<int>>"),
        (MapType(NullType(), NullType()), "map<void,void>, .* a supported type "),
    ],
)
def test_a_type_of_nothing(t, what):
    with pytest.raises(UnsupportedTypeError, match=what):
        arrow_schema(StructType().add("x", t))


@pytest.mark.parametrize(
    ("spark_type", "text"),
    [
        (VariantType(), r"'c' has the type variant, .*: .*variant_get.*to_json\(column\)"),
        (ArrayType(VariantType()), r"'c' has the type array<variant>, .*variant_get"),
        (GeometryType(4326), r"'c' has the type geometry\(4326\), .*st_asbinary\(column\)"),
        (GeographyType(4326), r"'c' has the type geography\(4326\), .*st_asbinary\(column\)"),
    ],
)
def test_types_that_are_structs_to_arrow_alone(spark_type, text):
    """Of neither has SQL a field to select."""
    with pytest.raises(UnsupportedTypeError, match=text):
        arrow_schema(StructType().add("c", spark_type))


@pytest.mark.parametrize(
    ("t", "what"),
    [
        (ArrayType(VectorUDT()), r"array<vector>, .*transform\(column, vector_to_array\) "),
        (ArrayType(ArrayType(VectorUDT())), "array<array<vector>>, .* of your own"),
        (MatrixUDT(), "matrix, .* of your own"),
        (ArrayType(MatrixUDT()), "array<matrix>, .* of your own"),
    ],
)
def test_a_type_of_python_objects(t, what):
    """What takes structs apart, a field's name or JSON, Spark refuses for these."""
    with pytest.raises(UnsupportedTypeError, match=what):
        arrow_schema(StructType().add("x", t))


def test_vectors():
    vectors = [Vectors.sparse(3, [0, 2], [1.0, 3.0]), None, Vectors.dense([4.0]), None]
    vectors += [Vectors.sparse(2, [], []), Vectors.dense([]), Vectors.dense([5.0, 6.0])]
    storage = pa.struct(
        [
            pa.field("type", pa.int8(), nullable=False),
            pa.field("size", pa.int32()),
            pa.field("indices", pa.list_(pa.int32())),
            pa.field("values", pa.list_(pa.float64())),
        ]
    )
    keys = ("type", "size", "indices", "values")
    values = [
        None if one is None else dict(zip(keys, VectorUDT().serialize(one), strict=True))
        for one in vectors
    ]
    expected = [None if one is None else one.toArray().tolist() for one in vectors]
    batch = pa.record_batch({"i": range(7), "v": pa.array(values, storage)})
    assert with_lists(batch, ("v",))["v"].to_pylist() == expected
    assert with_lists(batch.slice(2, 4), ("v",))["v"].to_pylist() == expected[2:6]
    assert with_lists(batch.slice(0, 0), ("v",))["v"].to_pylist() == []
