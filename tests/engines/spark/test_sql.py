"""SQL: views, tables of the catalog, inserts; and what Spark does not let a Python source do."""

import pyarrow as pa
import pytest

import tfrecord_io as tfr
from tfrecord_io.engines import spark as tfr_spark

pyspark = pytest.importorskip("pyspark")
from pyspark.errors import AnalysisException, PySparkException  # noqa: E402
from pyspark.sql.functions import lit  # noqa: E402


def rows(frame):
    return sorted(map(tuple, frame.collect()), key=repr)


def snapshot(folder):
    return {path.name: path.read_bytes() for path in folder.rglob("part-*")}


def reread(spark, path):
    return rows(spark.read.format("tfrecord").load(str(path)))


@pytest.fixture
def words(tmp_path):
    """A data set with a partition column."""
    table = pa.table({"word": ["bat", "xyz"], "number": pa.array([8, 1], pa.int32())})
    tfr.write_table(table, tmp_path / "words", partition_by="number", record_type="SequenceExample")
    return tmp_path / "words"


@pytest.fixture
def table(spark, words):
    """A table of the catalog: Spark keeps neither its path nor its options for a Python source."""
    spark.sql(
        f"CREATE TABLE words USING tfrecord OPTIONS (recordType 'SequenceExample') "
        f"LOCATION '{words}'"
    )
    yield "words"
    spark.sql("DROP TABLE words")
    # What is in the catalog owns nothing.
    assert (words / "_SUCCESS").exists()


def test_temporary_view(spark, tmp_path):
    path = tmp_path / "data"
    spark.range(3).selectExpr("id", "id % 2 as p").write.format("tfrecord").partitionBy("p").save(
        str(path)
    )
    create = (
        "CREATE OR REPLACE TEMPORARY VIEW v USING tfrecord "
        f"OPTIONS (path '{path}', partitionBy 'p')"
    )
    spark.sql(create)
    assert rows(spark.sql("SELECT p, id FROM v WHERE p = 0")) == [(0, 0), (0, 2)]
    spark.sql("INSERT INTO v VALUES (7, 1)")
    assert len(list(path.glob("p=1/part-*"))) == 2
    # Spark keeps what it planned at the first look.
    assert rows(spark.sql("SELECT id FROM v WHERE p = 1")) == [(1,)]
    spark.sql(create)
    assert rows(spark.sql("SELECT id FROM v WHERE p = 1")) == [(1,), (7,)]
    spark.sql("INSERT OVERWRITE v VALUES (9, 5)")
    assert reread(spark, path) == [(9, 5)]
    spark.range(20, 21).selectExpr("id", "id as p").write.insertInto("v")
    with pytest.raises(PySparkException, match="create the view, again"):
        spark.sql("SELECT * FROM v").collect()
    assert reread(spark, path) == [(20, 20), (9, 5)]
    spark.sql("DROP VIEW v")


def test_reading_a_table(spark, table, words):
    assert rows(spark.sql("SELECT * FROM words WHERE number = 8")) == [("bat", 8)]
    assert rows(spark.table("words")) == [("bat", 8), ("xyz", 1)]
    # Other options go before.
    other = words.parent / "other"
    tfr.write_table(pa.table({"word": ["o"], "number": pa.array([2], pa.int32())}), other)
    assert rows(spark.sql(f"SELECT * FROM words WITH (path='{other}', recordType='Example')")) == [
        ("o", 2)
    ]


def test_columns_of_a_table_keep_their_names(spark, table):
    """Under another name no record has the feature, and all values would be nulls."""
    spark.sql("ALTER TABLE words ADD COLUMN more int")
    assert rows(spark.table("words").select("word", "more")) == [("bat", None), ("xyz", None)]
    spark.sql("ALTER TABLE words RENAME COLUMN word TO text")
    with pytest.raises(PySparkException, match=r"'text'.*that have 'word'.*create it again"):
        spark.table("words").collect()


def test_properties_of_a_table(spark, words):
    """They are the catalog's; what is an option has to be one."""
    options = "OPTIONS (recordType 'SequenceExample'{}) LOCATION '{}' TBLPROPERTIES ('a.b'='c')"
    spark.sql("CREATE TABLE props USING tfrecord " + options.format("", words))
    try:
        assert rows(spark.table("props")) == [("bat", 8), ("xyz", 1)]
    finally:
        spark.sql("DROP TABLE props")
    with pytest.raises(AnalysisException, match="there is no option 'option1'"):
        spark.sql("CREATE TABLE props USING tfrecord " + options.format(", option1 'x'", words))


def test_another_session(classic, words, tmp_path):
    """Each is registered by itself; what Spark tells of one that is not is a trace of Java."""
    other = classic.newSession()
    for use in (
        lambda: other.read.format("tfrecord").load(str(words)),
        lambda: other.readStream.format("tfrecord").schema("word string").load(str(words)),
        lambda: other.range(1).write.format("tfrecord").save(str(tmp_path / "new")),
    ):
        with pytest.raises(AnalysisException, match="not registered in this session") as error:
            use()
        assert error.value.getCondition() == "DATA_SOURCE_NOT_FOUND"
    for _ in range(2):
        tfr_spark.register(other)
    other.range(1).write.format("tfrecord").save(str(tmp_path / "new"))
    assert reread(other, tmp_path / "new") == [(0,)]


def test_inserting_into_a_table(spark, table, words):
    def stored():
        frame = spark.read.format("tfrecord").option("recordType", "SequenceExample")
        return rows(frame.load(str(words)))

    here = f"words WITH (path='{words}')"
    spark.sql(f"INSERT INTO {here} VALUES ('new', 3)")
    assert (words / "number=3").is_dir()
    assert stored() == rows(spark.table("words")) == [("bat", 8), ("new", 3), ("xyz", 1)]
    spark.sql(f"INSERT INTO {here} SELECT upper(word), number + 1 FROM words WHERE number = 8")
    assert ("BAT", 9) in stored()
    spark.sql(f"INSERT INTO {here} BY NAME SELECT number + 1 AS number, word FROM words")
    assert ("BAT", 10) in stored()
    spark.sql(f"INSERT OVERWRITE {here} VALUES ('only', 4)")
    assert stored() == rows(spark.table("words")) == [("only", 4)]
    # Spark passes columns of the same names and types on as they are: WITH says all of it.
    said = f"path='{words}', partitionBy='number', recordType='SequenceExample'"
    spark.createDataFrame([("z", 5)], "word string, number int").createOrReplaceTempView("more")
    spark.sql(f"INSERT INTO words WITH ({said}) SELECT * FROM more")
    assert stored() == rows(spark.table("words")) == [("only", 4), ("z", 5)]
    spark.catalog.dropTempView("more")


def statement(text):
    return lambda spark, **folders: spark.sql(text.format(**folders))


@pytest.fixture
def two_tables(spark, tmp_path):
    """The folders of two tables with the same columns, and a view of the first."""
    folders = {}
    for name, first in (("source", 0), ("target", 10)):
        folders[name] = tmp_path / name
        data = pa.table({"id": range(first, first + 3), "p": [0, 1, 0]})
        tfr.write_table(data, folders[name], rows_per_task=1)
        spark.sql(f"CREATE TABLE {name} USING tfrecord LOCATION '{folders[name]}'")
    options = f"OPTIONS (path '{folders['source']}')"
    spark.sql(f"CREATE TEMPORARY VIEW view_of_source USING tfrecord {options}")
    yield folders
    spark.catalog.dropTempView("view_of_source")
    for name in folders:
        spark.sql(f"DROP TABLE {name}")


@pytest.mark.parametrize(
    "write",
    [
        statement("INSERT INTO target SELECT * FROM source"),
        statement("INSERT INTO target BY NAME SELECT p, id FROM source"),
        statement("INSERT OVERWRITE target SELECT * FROM source WHERE id < 2"),
        statement("INSERT OVERWRITE target SELECT * FROM view_of_source"),
        # Seen from here these are no different.
        statement("INSERT INTO target SELECT id + 1, p FROM source"),
        statement("INSERT INTO target VALUES (1, 1)"),
        statement("INSERT OVERWRITE source SELECT * FROM source"),
        lambda spark: spark.table("source").write.insertInto("target"),
        lambda spark: spark.table("source").write.insertInto("target", overwrite=True),
        lambda spark: spark.table("source").writeTo("target").append(),
    ],
)
def test_a_write_that_spark_tells_no_target_of(spark, two_tables, write):
    """Columns remember the table that a query reads just as that which it writes to."""
    before = {name: snapshot(folder) for name, folder in two_tables.items()}
    with pytest.raises(AnalysisException, match=r"nothing was written.*WITH \(path='...'\)"):
        write(spark)
    assert {name: snapshot(folder) for name, folder in two_tables.items()} == before


def test_columns_that_went_through_other_files(spark, two_tables, tmp_path):
    spark.table("source").write.parquet(str(tmp_path / "parquet"))
    frame = spark.read.parquet(str(tmp_path / "parquet"))
    before = snapshot(two_tables["source"])
    with pytest.raises(AnalysisException, match="nothing was written"):
        frame.write.insertInto("target", overwrite=True)
    assert snapshot(two_tables["source"]) == before


@pytest.mark.parametrize(
    "write",
    [
        lambda spark, path: spark.sql(
            f"INSERT OVERWRITE target WITH (path='{path}') SELECT * FROM source WHERE id < 2"
        ),
        lambda spark, path: (
            spark.table("source")
            .where("id < 2")
            .write.format("tfrecord")
            .mode("overwrite")
            .save(path)
        ),
    ],
)
def test_a_write_that_says_its_target(spark, two_tables, write):
    path, before = str(two_tables["target"]), snapshot(two_tables["source"])
    write(spark, path)
    assert rows(spark.table("target")) == [(0, 0), (1, 1)]
    spark.table("source").where("id = 2").writeTo("target").option("path", path).append()
    assert rows(spark.table("target")) == [(0, 0), (1, 1), (2, 0)]
    assert snapshot(two_tables["source"]) == before


REFUSED_CREATE = [
    statement("CREATE TABLE new USING tfrecord LOCATION '{new}' AS SELECT * FROM source"),
    statement("CREATE TABLE new USING tfrecord OPTIONS (path '{target}') AS SELECT * FROM source"),
    statement("CREATE TABLE new USING tfrecord AS SELECT * FROM source"),
    statement("CREATE OR REPLACE TABLE target USING tfrecord LOCATION '{target}' SELECT 1 AS id"),
    statement("REPLACE TABLE target USING tfrecord AS SELECT * FROM source WHERE id < 2"),
    statement("-- a\ncreate /* b */ or replace table plain using `tfrecords` select * from source"),
    statement("EXECUTE IMMEDIATE 'CREATE OR REPLACE TABLE plain USING tfrecord AS SELECT 1 AS x'"),
    statement('execute immediate "replace table plain (x int) using tfrecord"'),
    statement("BEGIN SELECT 1; CREATE OR REPLACE TABLE plain USING tfrecord SELECT 1 AS x; END"),
    statement("REPLACE TABLE plain (x int COMMENT 'a -- b') USING tfrecord"),
    lambda spark, new, target: spark.table("source").writeTo("new").using("tfrecord").create(),
    lambda spark, new, target: (
        spark.table("source").writeTo("new").using("tfrecord").option("path", new).create()
    ),
    lambda spark, new, target: (
        spark.table("source")
        .writeTo("target")
        .using("tfrecord")
        .option("path", target)
        .createOrReplace()
    ),
    lambda spark, new, target: spark.table("source").writeTo("plain").using("tfrecord").replace(),
    lambda spark, new, target: spark.catalog.createTable(
        "new", source="tfrecord", schema=spark.table("source").schema, path=target
    ),
]


@pytest.mark.parametrize("make", REFUSED_CREATE)
def test_tables_that_are_refused(spark, two_tables, tmp_path, make):
    spark.sql("CREATE TABLE plain USING parquet AS SELECT 5 AS x")
    before = {name: snapshot(folder) for name, folder in two_tables.items()}
    try:
        with pytest.raises(
            AnalysisException, match=r"CREATE TABLE name USING|leave the schema out"
        ):
            make(spark, new=str(tmp_path / "new"), target=str(two_tables["target"]))
        assert not spark.catalog.tableExists("new")
        assert not (tmp_path / "new").exists()
        assert {name: snapshot(folder) for name, folder in two_tables.items()} == before
        assert rows(spark.table("target")) == [(10, 0), (11, 1), (12, 0)]
        assert rows(spark.table("plain")) == [(5,)]
    finally:
        spark.sql("DROP TABLE plain")


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE new LIKE seen USING tfrecord LOCATION '{target}'",
        "create table if not exists `new` like `seen` location '{target}' using tfrecord",
        "CREATE TABLE default.new /* empty */ LIKE source USING tfrecord",
    ],
)
def test_a_table_like_another(spark, two_tables, statement):
    """It would have the other's rows, whatever it is made of: columns remember where they are."""
    spark.sql("CREATE OR REPLACE TEMPORARY VIEW seen AS SELECT * FROM source")
    try:
        with pytest.raises(AnalysisException, match="LIKE is not possible, and nothing was done"):
            spark.sql(statement.format(target=two_tables["target"]))
        assert not spark.catalog.tableExists("new")
        spark.sql("CREATE TABLE new LIKE seen USING parquet")
        assert rows(spark.table("new")) == []
        with pytest.raises(PySparkException, match="TABLE_OR_VIEW_NOT_FOUND"):
            spark.sql("CREATE TABLE newer LIKE none USING tfrecord")
    finally:
        spark.sql("DROP TABLE IF EXISTS new")
        spark.sql("DROP VIEW seen")


def test_statements_in_texts_and_scripts(spark, two_tables):
    """Others that are told in the same way are Spark's."""
    assert rows(spark.sql("EXECUTE IMMEDIATE 'SELECT id FROM source WHERE id = 2'")) == [(2,)]
    text = "CREATE OR REPLACE TABLE other USING tfrecord"
    assert rows(spark.sql(f"SELECT '{text}'")) == [(text,)]
    script = "CREATE TABLE other USING parquet AS SELECT 1 AS x; SELECT x FROM other;"
    try:
        assert rows(spark.sql(f"BEGIN {script} END")) == [(1,)]
    finally:
        spark.sql("DROP TABLE other")


def test_tables_of_other_formats(spark, two_tables):
    """What is completed for this format is as before for others, whatever they select."""
    parquet = "CREATE OR REPLACE TABLE other USING parquet AS SELECT * FROM source"
    with pytest.raises(AnalysisException, match="does not support REPLACE TABLE AS SELECT"):
        spark.sql(parquet)
    frame = spark.table("source")
    frame.writeTo("other").using("parquet").create()
    try:
        frame.write.insertInto("other")
        assert spark.sql("SELECT * FROM other WHERE id = ?", args=[2]).count() == 2
    finally:
        spark.sql("DROP TABLE other")
    spark.catalog.createTable("other", source="parquet", schema=frame.schema)
    spark.sql("DROP TABLE other")


def test_the_format_as_the_default_of_tables(spark, two_tables):
    spark.conf.set("spark.sql.sources.default", "tfrecord")
    try:
        with pytest.raises(AnalysisException, match="nothing was done"):
            spark.table("source").writeTo("target").createOrReplace()
        with pytest.raises(AnalysisException, match="nothing was done"):
            spark.sql("REPLACE TABLE target SELECT * FROM source")
    finally:
        spark.conf.unset("spark.sql.sources.default")


def test_overwriting_by_the_second_api(classic, tmp_path):
    for name in ("one", "two"):
        classic.range(2).write.format("tfrecord").save(str(tmp_path / name))
    classic.sql(f"CREATE TABLE one USING tfrecord LOCATION '{tmp_path / 'one'}'")
    try:
        before = snapshot(tmp_path / "one")
        with pytest.raises(AnalysisException, match="nothing was written"):
            classic.table("one").writeTo("one").overwrite(lit(True))
        path = str(tmp_path / "two")
        classic.table("one").where("id = 1").writeTo("one").option("path", path).overwrite(
            lit(True)
        )
        assert reread(classic, path) == [(1,)]
        assert snapshot(tmp_path / "one") == before
    finally:
        classic.sql("DROP TABLE one")


def test_a_table_by_the_api(spark, words):
    options = {"recordType": "SequenceExample"}
    spark.catalog.createTable("by_api", path=str(words), source="tfrecord", **options).count()
    try:
        assert rows(spark.table("by_api")) == [("bat", 8), ("xyz", 1)]
    finally:
        spark.sql("DROP TABLE by_api")


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE no_path USING tfrecord AS SELECT 1 AS id",
        "CREATE TABLE no_path USING tfrecord LOCATION '{folder}/new' AS SELECT 1 AS id",
        "CREATE TABLE no_path USING tfrecord",
    ],
)
def test_tables_of_no_data(spark, tmp_path, statement):
    with pytest.raises(AnalysisException, match="CREATE TABLE name USING tfrecord LOCATION"):
        spark.sql(statement.format(folder=tmp_path))
    assert not spark.catalog.tableExists("no_path")
    assert list(tmp_path.iterdir()) == []


def test_a_table_with_columns_of_its_own(spark, words):
    spark.sql(f"CREATE TABLE own (word string) USING tfrecord LOCATION '{words}'")
    try:
        for statement in ("SELECT * FROM own", "INSERT INTO own VALUES ('x')"):
            with pytest.raises(AnalysisException, match="there is no path"):
                spark.sql(statement).collect()
        said = f"path='{words}', recordType='SequenceExample'"
        assert rows(spark.sql(f"SELECT * FROM own WITH ({said})")) == [("bat",), ("xyz",)]
    finally:
        spark.sql("DROP TABLE own")


def test_what_a_frame_remembers_leads_nowhere(classic, table, words, tmp_path):
    """Neither a write without a path nor one to another path goes to the table it was read from."""
    frame = classic.table("words")
    with pytest.raises(AnalysisException, match="there is no path"):
        frame.write.format("tfrecord").mode("append").save()
    frame.write.format("tfrecord").save(str(tmp_path / "other"))
    assert reread(classic, tmp_path / "other") == [("bat", 8), ("xyz", 1)]
    assert not list((tmp_path / "other").glob("number=*"))
    assert tfr.count_rows(words) == 2
