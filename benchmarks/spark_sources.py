"""Measures Spark's TFRecord sources in one run: tfrecord-io, and spark-tfrecord's jar beside it.

    python benchmarks/spark_sources.py --jars A.jar,B.jar --only ctr --only ragged

Each source runs in a JVM of its own, idle while the other is asked; of all rounds the best counts.
Reads go to Spark's noop sink, writes come from a cached frame. Without ``--jars`` (spark-tfrecord
built for this Spark, and the jars it needs) tfrecord-io is measured alone. ``transfer`` reads
finished Arrow batches: what a Python data source moves when nothing has to be decoded.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from arrow_values import batches
from rich.console import Console
from rich.table import Table
from workloads import Workload, find_workload

import tfrecord_io as tfr

OURS, JAR = "tfrecord", "com.linkedin.spark.datasources.tfrecord.DefaultSource"
MANY_FILES = 1_000
FILES = 8
ROUNDS = 3


# --- data -----------------------------------------------------------------------------------------


def make_data(workload: Workload, root: Path) -> int:
    """Write the data sets of a workload and return the bytes of its TFRecord files."""
    table = pa.Table.from_batches(list(batches(workload)))
    rows = -(-table.num_rows // FILES)
    tfr.write_table(table, root / "own", rows_per_task=rows, record_type=workload.record_type)
    shutil.copytree(root / "own", root / "wild")
    (root / "wild" / "_SUCCESS").unlink()
    tfr.write_table(table, root / "one", rows_per_task=table.num_rows)
    (root / "one" / "_SUCCESS").unlink()
    pq.write_table(table, root / "rows.parquet")
    one = table.slice(0, MANY_FILES).select(table.column_names[:1])
    tfr.write_table(one, root / "many", rows_per_task=1)
    (root / "many" / "_SUCCESS").unlink()
    return sum(part.stat().st_size for part in (root / "wild").glob("part-*"))


# --- in the process of one source -----------------------------------------------------------------


def measures(
    spark: Any, source: str, workload: Workload, root: Path
) -> dict[str, Callable[[], Any]]:
    """Return what can be measured, by name."""
    names = [column.name for column in workload.columns[:2]]

    def load(folder: str, schema: Any = None) -> Any:
        reader = spark.read.format(source).option("recordType", workload.record_type)
        return (reader if schema is None else reader.schema(schema)).load(str(root / folder))

    def noop(frame: Any) -> None:
        frame.write.format("noop").mode("overwrite").save()

    schema = load("wild").schema
    two = type(schema)([field for field in schema.fields if field.name in names])
    few = type(schema)(two.fields[:1])
    # Of a frame that was read by the source itself, Spark would answer the reads from the cache.
    cached = spark.read.parquet(str(root / "rows.parquet")).cache()
    noop(cached)

    def write() -> None:
        writer = cached.write.format(source).option("recordType", workload.record_type)
        writer.mode("overwrite").save(str(root / f"by-{source}"))

    found: dict[str, Callable[[], Any]] = {
        "read": lambda: noop(load("wild", schema)),
        "read two columns": lambda: noop(load("wild", two)),
        # One file: the jar never looks at a second one.
        "infer": lambda: load("one").schema,
        "plan 1,000 files": lambda: load("many", few).rdd.getNumPartitions(),
        "write": write,
    }
    if source == OURS:
        transferring = transfer(spark, schema, root)
        found["transfer"] = lambda: noop(transferring)
        found["schema of a manifest"] = lambda: load("own").schema
    return found


def transfer(spark: Any, schema: Any, root: Path) -> Any:
    """Return a frame of batches that are ready, of the same rows, files and sizes."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    from tfrecord_io.engines.spark.reading import _pieces
    from tfrecord_io.engines.spark.types import arrow_schema, conformed

    target = arrow_schema(schema)
    files = []
    for part in sorted((root / "own").glob("part-*")):
        files.append(str(root / f"{part.name}.arrow"))
        with pa.ipc.new_file(files[-1], target) as out:
            for batch in tfr.scan(part):
                for piece in _pieces(conformed(batch, target)):
                    out.write_batch(piece)

    class Reader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(file) for file in files]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            with pa.memory_map(partition.value) as mapped:
                opened = pa.ipc.open_file(mapped)
                yield from map(opened.get_batch, range(opened.num_record_batches))

    class Transfer(DataSource):
        @classmethod
        def name(cls) -> str:
            return "transfer"

        def reader(self, schema: Any) -> DataSourceReader:
            return Reader()

    spark.dataSource.register(Transfer)
    return spark.read.format("transfer").schema(schema).load()


def serve(source: str, name: str, root: Path, threads: int, jars: str) -> None:
    """Answer each name of a measure with its seconds."""
    from pyspark.sql import SparkSession

    from tfrecord_io.engines import spark as tfr_spark

    builder = (
        SparkSession.builder.master(f"local[{threads}]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "3g")
    )
    spark = (builder.config("spark.jars", jars) if source == JAR else builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if source == OURS:
        tfr_spark.register(spark)
    known = measures(spark, source, find_workload(name, quick=False), root)
    print(json.dumps(sorted(known)), flush=True)
    for line in sys.stdin:
        begin = time.perf_counter()
        known[line.strip()]()
        print(json.dumps(time.perf_counter() - begin), flush=True)


# --- in the first process -------------------------------------------------------------------------


class Server:
    """The process of one source."""

    def __init__(self, source: str, name: str, root: Path, threads: int, jars: str) -> None:
        command = [sys.executable, __file__, "--serve", source, "--only", name]
        command += ["--root", str(root), "--threads", str(threads), "--jars", jars]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.measures: list[str] = self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a source's process ended; see its messages above")
        return json.loads(line)

    def seconds(self, measure: str) -> float:
        """Return how long one measure takes."""
        assert self._process.stdin is not None
        print(measure, file=self._process.stdin, flush=True)
        return float(self._answer())

    def stop(self) -> None:
        """End the process."""
        self._process.communicate()


def compare(name: str, threads: int, jars: str, rounds: int) -> Table:
    """Measure a workload and return the results as a table."""
    best: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="spark-sources-") as folder:
        root = Path(folder)
        megabytes = make_data(find_workload(name, quick=False), root) / 1e6
        sources = [OURS, JAR] if jars else [OURS]
        servers = {source: Server(source, name, root, threads, jars) for source in sources}
        for _ in range(rounds):
            for measure in servers[OURS].measures:
                for source, server in servers.items():
                    if measure in server.measures:
                        times = best.setdefault(measure, {})
                        times[source] = min(
                            times.get(source, float("inf")), server.seconds(measure)
                        )
        for server in servers.values():
            server.stop()
    table = Table(title=f"{name}, {megabytes:.0f} MB, local[{threads}]")
    for column in ("", "tfrecord-io s", "MB/s", "spark-tfrecord s", "MB/s", "times"):
        table.add_column(column, justify="left" if not column else "right")
    for measure, times in best.items():
        ours, jar = times[OURS], times.get(JAR)
        table.add_row(
            measure,
            *(f"{ours:.2f}", f"{megabytes / ours:.0f}"),
            *((f"{jar:.2f}", f"{megabytes / jar:.0f}", f"{jar / ours:.1f}") if jar else ()),
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", action="append", help="a workload; may be repeated")
    parser.add_argument("--jars", default=os.environ.get("SPARK_TFRECORD_JARS", ""))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    names = asked.only or ["ctr", "embedding", "image", "ragged"]
    if asked.serve:
        serve(asked.serve, names[0], asked.root, asked.threads, asked.jars)
        return
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for name in names:
        Console().print(compare(name, asked.threads, asked.jars, asked.rounds))


if __name__ == "__main__":
    main()
