"""SQL: views, tables of the catalog, inserts; and what Spark does not let a Python source do."""

import pyarrow as pa
import pytest

import tfrecord_io as tfr

pyspark = pytest.importorskip("pyspark")
from pyspark.errors import AnalysisException, PySparkException  # noqa: E402


def rows(frame):
    return sorted(map(tuple, frame.collect()), key=repr)


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


def test_inserting_into_a_table(spark, table, words):
    def stored():
        frame = spark.read.format("tfrecord").option("recordType", "SequenceExample")
        return rows(frame.load(str(words)))

    spark.sql("INSERT INTO words VALUES ('new', 3)")
    assert (words / "number=3").is_dir()
    assert stored() == rows(spark.table("words")) == [("bat", 8), ("new", 3), ("xyz", 1)]
    spark.sql("INSERT INTO words SELECT upper(word), number + 1 FROM words WHERE number = 8")
    assert ("BAT", 9) in stored()
    spark.sql("INSERT OVERWRITE words VALUES ('only', 4)")
    assert stored() == rows(spark.table("words")) == [("only", 4)]


def test_inserting_columns_of_the_same_names_and_types(spark, table, words):
    """Spark passes them on as they are, and what the table tells is lost: WITH says it again."""
    spark.createDataFrame([("z", 5)], "word string, number int").createOrReplaceTempView("more")
    with pytest.raises(AnalysisException, match=r"WITH \(path='...'\)"):
        spark.sql("INSERT INTO words SELECT * FROM more")
    said = f"path='{words}', partitionBy='number', recordType='SequenceExample'"
    spark.sql(f"INSERT INTO words WITH ({said}) SELECT * FROM more")
    assert ("z", 5) in rows(spark.table("words"))
    spark.catalog.dropTempView("more")


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
            with pytest.raises(AnalysisException, match="without columns"):
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
