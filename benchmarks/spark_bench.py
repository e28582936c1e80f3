"""Measures Spark's TFRecord sources in one run: tfrecord-io, spark-tfrecord's jar, Spark's Parquet.

Each source runs in a JVM of its own, idle while another is asked; of all rounds the best counts,
and ratios are of one run. Reads go to Spark's noop sink, writes come from a cached frame. The
``ceiling`` is a Python data source that hands out Arrow batches which are ready: the same rows in
batches of the same size, with nothing to decode. A read, of it as of all others, begins with
``load``.
"""

from __future__ import annotations

import argparse
import contextlib
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

import workloads
from workloads import Workload, find_workload

OURS, JAR = "tfrecord", "com.linkedin.spark.datasources.tfrecord.DefaultSource"
MANY_FILES = 1_000
#: A JVM is at its fastest after some rounds of the same.
ROUNDS = 8

#: What takes longer than so many seconds is measured in so many rounds.
SLOW_SECONDS, SLOW_ROUNDS = 10, 2

#: Files that were replaced take a disk up to half as long to free.
REST_SECONDS = 0.2

NAMES = ("ctr", "ragged", "image", "embedding")


# --- data -----------------------------------------------------------------------------------------


def make_data(workload: Workload, root: Path, threads: int) -> int:
    """Lay out the data sets of a workload and return the bytes of its TFRecord files.

    They are the one that TensorFlow's writer made, under as many names as give each thread at least
    100 MB or so.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq
    from arrow_values import batches

    import tfrecord_io as tfr

    source = workloads.DATA / workload.path.name
    if not source.exists():
        raise SystemExit(
            f"there is no {source}: 'benchmarks/run' makes it, --data says where it is"
        )
    table = pa.Table.from_batches(list(batches(workload)))
    for folder in ("wild", "one", "parquet"):
        (root / folder).mkdir()
    (root / "one" / "part-0.tfrecord").symlink_to(source.resolve())
    pq.write_table(table, root / "rows.parquet")
    files = threads * workload.repeats
    for index in range(files):
        (root / "wild" / f"part-{index}.tfrecord").symlink_to(source.resolve())
        (root / "parquet" / f"part-{index}.parquet").symlink_to(root / "rows.parquet")
    tfr.write_table(table, root / "own", record_type=workload.record_type)
    one = table.slice(0, MANY_FILES).select(table.column_names[:1])
    tfr.write_table(one, root / "many", rows_per_task=1)
    (root / "many" / "_SUCCESS").unlink()
    return files * source.stat().st_size


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

    # The types of all sources are those of the Parquet file.
    rows = spark.read.parquet(str(root / "parquet"))
    schema = rows.schema
    two = type(schema)([field for field in schema.fields if field.name in names])
    few = type(schema)(two.fields[:1])
    count = load("wild", schema).count()
    assert count == rows.count(), f"{source} reads {count} rows"
    cached = rows.cache()
    noop(cached)

    def write(by: str) -> None:
        writer = cached.write.format(by)
        if by != "parquet":
            writer = writer.option("recordType", workload.record_type)
        writer.mode("overwrite").save(str(root / f"by-{source}-{by}"))

    found: dict[str, Callable[[], Any]] = {
        "read": lambda: noop(load("wild", schema)),
        "read two columns": lambda: noop(load("wild", two)),
        # One file: the jar never looks at a second one.
        "infer": lambda: load("one").schema,
        "write": lambda: write(source),
    }
    if source == OURS:
        register_ceiling(spark, schema, root)
        ready = spark.read.format("ceiling").schema(schema)
        again = type(schema)(schema.fields)
        found["ceiling"] = lambda: noop(ready.load())
        found["schema of a manifest"] = lambda: load("own").schema
        found["plan 1,000 files"] = lambda: load("many", few).rdd.getNumPartitions()
        # Of the very frame that is cached Spark would answer from the cache.
        options = {"mergeSchema": "false", "recursiveFileLookup": "true"}
        found["Parquet read"] = lambda: noop(
            spark.read.schema(again).options(**options).parquet(str(root / "parquet") + "/*")
        )
        found["Parquet write"] = lambda: write("parquet")
    return found


def register_ceiling(spark: Any, schema: Any, root: Path) -> None:
    """Register a source of batches that are ready, of the same rows, files and sizes."""
    import pyarrow as pa
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    import tfrecord_io as tfr
    from tfrecord_io.engines.spark.reading import _pieces
    from tfrecord_io.engines.spark.types import arrow_schema, conformed
    from tfrecord_io.engines.spark.workers import SentToTasks

    target = arrow_schema(schema)
    file = str(root / "ready.arrow")
    wild = sorted(map(str, (root / "wild").glob("part-*")))
    with pa.ipc.new_file(file, target) as out:
        for batch in tfr.scan(wild[0], schema=target, columns=target.names):
            for piece in _pieces(conformed(batch, target)):
                out.write_batch(piece)

    class Reader(SentToTasks, DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(index) for index in range(len(wild))]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            with pa.memory_map(file) as mapped:
                opened = pa.ipc.open_file(mapped)
                yield from map(opened.get_batch, range(opened.num_record_batches))

    class Ceiling(DataSource):
        @classmethod
        def name(cls) -> str:
            return "ceiling"

        def reader(self, schema: Any) -> DataSourceReader:
            return Reader()

    spark.dataSource.register(Ceiling)


def serve(source: str, name: str, root: Path, threads: int, jars: str) -> None:
    """Answer each name of a measure with its seconds."""
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.master(f"local[{threads}]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "3g")
        # A file is a task to all, also where it is longer than 128 MB.
        .config("spark.sql.files.maxPartitionBytes", "1g")
        .config("spark.sql.files.openCostInBytes", "1g")
    )
    spark = (builder.config("spark.jars", jars) if source == JAR else builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if source == OURS:
        from tfrecord_io.engines import spark as tfr_spark

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

    def __init__(
        self, python: str, source: str, name: str, root: Path, threads: int, jars: str
    ) -> None:
        command = [python, __file__, "--serve", source, "--only", name]
        command += ["--root", str(root), "--threads", str(threads), "--jars", jars]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python},
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


def leave_disk_at_rest() -> None:
    """Wait for what the last measure left to the disk: pages to write, replaced files to free."""
    os.sync()
    time.sleep(REST_SECONDS)


def compare(name: str, threads: int, peers: dict[str, tuple[str, str]], rounds: int) -> Any:
    """Measure a workload.

    Returns
    -------
    dict
        ``bytes``, and ``seconds`` by source and measure.
    """
    best: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="spark-bench-") as folder, contextlib.ExitStack() as on:
        root = Path(folder)
        size = make_data(find_workload(name, quick=False), root, threads)
        servers = {}
        for label, (python, jars) in {"ours": (sys.executable, ""), **peers}.items():
            server = Server(python, JAR if jars else OURS, name, root, threads, jars)
            on.callback(server.stop)
            servers[label] = server
        for number in range(rounds):
            for measure in servers["ours"].measures:
                for label, server in servers.items():
                    times = best.setdefault(label, {})
                    is_slow = times.get(measure, 0) > SLOW_SECONDS and number >= SLOW_ROUNDS
                    if measure in server.measures and not is_slow:
                        leave_disk_at_rest()
                        seconds = server.seconds(measure)
                        times[measure] = min(times.get(measure, seconds), seconds)
        shutil.rmtree(root / "own")
    return {"bytes": size, "seconds": best}


#: What is compared: a name, what ours is divided by, and the least ratio for each workload. Of the
#: embeddings the jar built for Spark 4 reads very slowly: there the one for Spark 3.5 counts.
TARGETS: tuple[tuple[str, str, str, dict[str, float]], ...] = (
    ("read", "jar", "read", {"ctr": 3, "ragged": 2, "image": 6}),
    ("read", "jar on 3.5", "read", {"embedding": 3}),
    ("read", "ours", "ceiling", {"ctr": 0.85, "ragged": 0.85, "image": 0.85, "embedding": 0.85}),
    ("read", "ours", "Parquet read", {}),
    ("read two columns", "jar", "read two columns", {"ctr": 5}),
    ("infer", "jar", "infer", {"ctr": 10, "ragged": 10, "image": 10, "embedding": 10}),
    ("write", "jar", "write", {"ctr": 1.5, "embedding": 1.5}),
    ("write", "ours", "Parquet write", {}),
)


def report(name: str, threads: int, found: Any) -> str:
    """Return the results of a workload as text."""
    megabytes, seconds = found["bytes"] / 1e6, found["seconds"]
    lines = [f"\n## {name}, {megabytes:.0f} MB, local[{threads}]\n"]
    labels = list(seconds)
    lines.append("| MB/s | " + " | ".join(labels) + " |")
    lines.append("|---|" + "---:|" * len(labels))
    for measure in seconds["ours"]:
        cells = [
            f"{megabytes / seconds[label][measure]:.0f}" if measure in seconds[label] else ""
            for label in labels
        ]
        lines.append(f"| {measure} | " + " | ".join(cells) + " |")
    lines += ["", "| | times | target |", "|---|---:|---:|"]
    for measure, label, over, targets in TARGETS:
        if over not in seconds.get(label, {}):
            continue
        ratio = seconds[label][over] / seconds["ours"][measure]
        target = targets.get(name)
        missed = "" if target is None or ratio >= target else ", missed"
        against = over if label == "ours" else label
        said = "" if target is None else f"{target}{missed}"
        lines.append(f"| {measure} / {against} | {ratio:.2f} | {said} |")
    ours = seconds["ours"]
    lines.append(
        f"\nIn seconds: planning 1,000 files {ours['plan 1,000 files']:.2f} (target 2), the schema "
        f"of a manifest {ours['schema of a manifest']:.2f}, that of one file {ours['infer']:.2f}."
    )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", action="append", choices=NAMES, help="may be repeated")
    parser.add_argument("--threads", action="append", type=int, help="may be repeated")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--data", type=Path, help="where benchmarks/run has put its files")
    parser.add_argument("--jar", default=os.environ.get("SPARK_TFRECORD_JAR", ""))
    parser.add_argument("--jar-35", default=os.environ.get("SPARK_TFRECORD_JAR_35", ""))
    parser.add_argument("--python-35", help="interpreter that has pyspark 3.5")
    parser.add_argument(
        "--libraries", type=Path, help="folder of the jars that spark-tfrecord needs"
    )
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--jars", default="", help=argparse.SUPPRESS)
    parser.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        serve(asked.serve, asked.only[0], asked.root, asked.threads[0], asked.jars)
        return
    if asked.data is not None:
        workloads.DATA = asked.data
    libraries = (
        [str(jar) for jar in sorted(asked.libraries.glob("*.jar"))] if asked.libraries else []
    )
    peers = {}
    if asked.jar:
        peers["jar"] = (sys.executable, ",".join([asked.jar, *libraries]))
    if asked.jar_35 and asked.python_35:
        peers["jar on 3.5"] = (asked.python_35, ",".join([asked.jar_35, *libraries]))
    results = {}
    for threads in asked.threads or [1, 2]:
        for name in asked.only or NAMES:
            found = results[f"{name}, local[{threads}]"] = compare(
                name, threads, peers, asked.rounds
            )
            print(report(name, threads, found), flush=True)
    target = Path(__file__).parent / "data" / "spark.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
