"""One data set, five writers, three stores: the same bytes everywhere, and the same rows back.

What must come out is what `write_table` makes on the local disk; that those records are right is
shown elsewhere, against protobuf and against the files of spark-tfrecord.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import tfrecord_io as tfr
from tests.support.datasets import PARTITION_BY, as_in_spark, hard_table, sequence_table
from tests.support.servers import Server, s3a_options
from tests.support.trees import stored_files, tree
from tfrecord_io.options import RecordType, SaveMode

pd = pytest.importorskip("pandas")
pytest.importorskip("pyspark")

PER_TASK = 10
ENGINES = ["write_table", "threads", "distributed", "classic", "connect"]
STORES = ["local", "hdfs", "s3"]
TABLES: dict[RecordType, pa.Table] = {
    "Example": as_in_spark(hard_table()),
    "SequenceExample": sequence_table(),
}
#: On the remote stores, which take their time, every other one.
CASES: list[tuple[str, RecordType, str | None]] = [
    ("local", "Example", None),
    ("local", "SequenceExample", "gzip"),
    *(
        (store, record_type, compression)
        for store in STORES
        for record_type, compression in (("Example", "gzip"), ("SequenceExample", None))
    ),
]


def steps(record_type: RecordType) -> list[tuple[SaveMode, pa.Table]]:
    """What is written, one after the other: a new data set, as much again, then other rows."""
    table = TABLES[record_type]
    return [("error", table), ("append", table), ("overwrite", table.slice(3, 15))]


# --- writers --------------------------------------------------------------------------------------


def by_write_table(table: pa.Table, url: str, mode: SaveMode, options: dict[str, Any]) -> None:
    tfr.write_table(
        table, url, mode=mode, partition_by=PARTITION_BY, rows_per_task=PER_TASK, **options
    )


def by_dask(
    scheduler: Any, table: pa.Table, url: str, mode: SaveMode, options: dict[str, Any]
) -> None:
    import dask.dataframe as dd

    def part(start: int) -> Any:
        return table.slice(start, PER_TASK).to_pandas(types_mapper=pd.ArrowDtype)

    meta = table.slice(0, 0).to_pandas(types_mapper=pd.ArrowDtype)
    frame = dd.from_map(part, range(0, table.num_rows + PER_TASK, PER_TASK), meta=meta)
    tfr.to_tfrecord(
        frame,
        url,
        mode=mode,
        partition_on=PARTITION_BY,
        compute_kwargs={"scheduler": scheduler},
        **options,
    )


def by_spark(
    session: Any, table: pa.Table, url: str, mode: SaveMode, options: dict[str, Any]
) -> None:
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    struct = from_arrow_schema(table.schema)
    table = table.cast(to_arrow_schema(struct, timezone="UTC"))

    def part(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch["id"].to_pylist():
                yield from table.slice(index * PER_TASK, PER_TASK).to_batches()

    # The last partition has no rows.
    count = -(-table.num_rows // PER_TASK) + 1
    frame = session.range(0, count, 1, count).mapInArrow(part, struct)
    options = dict(options)
    names = {"record_type": "recordType", "max_records_per_file": "maxRecordsPerFile"}
    told = {
        names.get(name, name): str(value)
        for name, value in options.items()
        if name != "storage_options" and value is not None
    }
    writer = frame.write.format("tfrecord").partitionBy(*PARTITION_BY).mode(mode)
    writer.options(**told, **s3a_options(options["storage_options"])).save(url)


# --- readers: as an Arrow table of the rows, sorted, and the engine's own types -------------------


def read_by_core(url: str, options: dict[str, Any]) -> pa.Table:
    return tfr.read_table(url, **options)


def read_by_dask(scheduler: Any, url: str, options: dict[str, Any]) -> pa.Table:
    frame = tfr.read_tfrecord(url, **options)
    read = frame.compute(scheduler=scheduler)
    return pa.Table.from_pandas(read, preserve_index=False).replace_schema_metadata(None)


def read_by_spark(session: Any, url: str, options: dict[str, Any]) -> pa.Table:
    reader = session.read.format("tfrecord").option("recordType", options["record_type"])
    return reader.options(**s3a_options(options["storage_options"])).load(url).toArrow()


# --- the tests ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def engine(request: pytest.FixtureRequest) -> Iterator[tuple[str, Callable[..., Any], Any]]:
    """An engine's name, its writer and its reader."""
    name: str = request.param
    if name == "write_table":
        yield name, by_write_table, read_by_core
    elif name in ("threads", "distributed"):
        scheduler = request.getfixturevalue("cluster") if name == "distributed" else "threads"
        yield (
            name,
            functools.partial(by_dask, scheduler),
            functools.partial(read_by_dask, scheduler),
        )
    else:
        from tfrecord_io.engines import spark as tfr_spark

        session = request.getfixturevalue("sessions")[name]
        tfr_spark.register(session)
        yield name, functools.partial(by_spark, session), functools.partial(read_by_spark, session)
        tfr_spark.unregister()


@pytest.fixture(scope="module")
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Server:
    """A store of the parameter's kind."""
    if request.param == "local":
        return Server(url=str(tmp_path_factory.mktemp("identity")))
    server: Server = request.getfixturevalue(f"{request.param}_server")
    return Server(url=f"{server.url}/{uuid.uuid4().hex}", storage_options=server.storage_options)


@pytest.fixture(scope="module")
def expected(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[RecordType, str | None], list[dict[str, bytes | None]]]:
    """The tree after each step, as `write_table` leaves it on the local disk."""
    folder = tmp_path_factory.mktemp("expected")

    @functools.cache
    def trees(record_type: RecordType, compression: str | None) -> list[dict[str, bytes | None]]:
        path = folder / f"{record_type}-{compression}"
        found = []
        for mode, table in steps(record_type):
            by_write_table(table, str(path), mode, options_of(record_type, compression, {}))
            found.append({name: data for name, data in tree(path).items() if data is not None})
        return found

    return trees


def options_of(
    record_type: RecordType, compression: str | None, storage_options: dict[str, Any]
) -> dict[str, Any]:
    return {
        "record_type": record_type,
        "compression": compression,
        "max_records_per_file": 1,
        "storage_options": storage_options,
    }


@pytest.mark.parametrize(("place", "record_type", "compression"), CASES, indirect=["place"])
@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_every_tree_is_the_same(
    engine: Any, place: Server, expected: Any, record_type: RecordType, compression: str | None
) -> None:
    name, write, _ = engine
    url = f"{place.url}/{name}-{record_type}-{compression}"
    options = options_of(record_type, compression, place.storage_options)
    wanted = expected(record_type, compression)
    for (mode, table), files in zip(steps(record_type), wanted, strict=True):
        write(table, url, mode, options)
        assert stored_files(url, place.storage_options) == files


@pytest.mark.parametrize("record_type", TABLES)
@pytest.mark.parametrize("place", STORES, indirect=True)
@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_every_reader_has_the_same_rows(
    engine: Any, place: Server, record_type: RecordType
) -> None:
    _, _, read = engine
    url = f"{place.url}/read-{record_type}"
    table = TABLES[record_type]
    options = {"record_type": record_type, "storage_options": place.storage_options}
    tfr.write_table(table, url, mode="ignore", partition_by=PARTITION_BY, **options)
    columns = [one for one in table.column_names if one not in PARTITION_BY] + PARTITION_BY
    found = read(url, options).sort_by("row")
    assert found.column_names == columns
    assert found.cast(table.select(columns).schema).equals(table.select(columns))
