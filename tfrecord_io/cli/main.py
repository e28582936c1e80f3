"""The commands of ``tfrecord-io``."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import click
import pyarrow as pa
from rich.console import Console
from rich.filesize import decimal
from rich.text import Text

import tfrecord_io
from tfrecord_io.cli import arguments
from tfrecord_io.cli.progress import bytes_bar
from tfrecord_io.cli.tables import RowTable, fault_text, schema_table, statistics_table
from tfrecord_io.cli.values import counted, json_line, json_lines, printable
from tfrecord_io.cli.verbs import DATA, OutputClosed, Program, is_terminal, write
from tfrecord_io.commit.file_staging import replace_file
from tfrecord_io.commit.job import clean as clean_target
from tfrecord_io.engines import local
from tfrecord_io.errors import DatasetExistsError, OptionError
from tfrecord_io.layout import is_read_with
from tfrecord_io.plan import CleanResult, ScanPlan
from tfrecord_io.reading.plan import plan_files, plan_scan
from tfrecord_io.records.index_files import write_index
from tfrecord_io.schema import schema_to_json
from tfrecord_io.statistics import html_page
from tfrecord_io.statistics.page import PAGE_START
from tfrecord_io.storage import LocalStorage, open_storage

#: Rows of a table that are laid out at a time on a terminal.
_TABLE_ROWS = 200


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(tfrecord_io.__version__, prog_name="tfrecord-io")
def program() -> None:
    """TFRecord files as tables: look at them, count them, convert them.

    PATH is a folder, a file, or a pattern like 'data/*.tfrecord'; a local path or a URL such as
    s3://bucket/data. On a terminal you get tables, in a pipe JSON lines.

    \b
    Exit codes: 0 done, 1 damaged or unfitting data or what has no other code,
    2 usage, 3 storage, 4 the target exists, 130 interrupted.
    """  # noqa: D301 - click takes this character for "leave the lines as they are"


def main() -> NoReturn:
    """Run the command line."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        # These end a command as Ctrl-C does, so that what it has begun is taken back.
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    program(prog_name="tfrecord-io")
    raise SystemExit(0)


@program.command()
@arguments.paths
@click.option("-n", "--rows", default=10, show_default=True, type=click.IntRange(min=1))
@arguments.selection
@arguments.as_json
@arguments.records
@arguments.access
def head(path: tuple[str, ...], rows: int, is_json: bool, **how: Any) -> None:
    """Show the first rows.

    Files that no manifest describes are all looked at for columns before; --sample-files looks at
    fewer.
    """
    _show_rows(path, rows, is_json, batch_rows=max(rows, 100), **how)


@program.command()
@arguments.paths
@arguments.selection
@arguments.as_json
@arguments.records
@arguments.access
def cat(path: tuple[str, ...], is_json: bool, **how: Any) -> None:
    """Write all rows."""
    _show_rows(path, None, is_json, **how)


def _show_rows(path: tuple[str, ...], rows: int | None, is_json: bool, **how: Any) -> None:
    plan = _plan(path, **how)
    console = Console(highlight=False)
    with contextlib.closing(local.read_plan(plan, threads=how["threads"])) as found:
        batches = _first(found, rows)
        if is_json or not is_terminal(sys.stdout):
            for batch in batches:
                write("".join(json_lines(batch)))
        else:
            _write_table(console, plan.schema, batches)


def _plan(path: tuple[str, ...], **how: Any) -> ScanPlan:
    with bytes_bar("looking for columns", at_once=False) as show:
        return plan_scan(list(path), progress=show, **how)


def _first(batches: Iterable[pa.RecordBatch], rows: int | None) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if rows is None:
            yield batch
            continue
        yield batch.slice(0, rows)
        rows -= min(rows, batch.num_rows)
        if not rows:
            return


def _write_table(console: Console, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
    table = RowTable(console, schema)
    # The first rows decide the widths, so those of small files wait for each other.
    waiting: list[pa.RecordBatch] = []
    count = 0
    try:
        for batch in batches:
            for start in range(0, batch.num_rows, _TABLE_ROWS):
                waiting.append(batch.slice(start, _TABLE_ROWS))
                if sum(part.num_rows for part in waiting) >= _TABLE_ROWS:
                    table.write(pa.concat_batches(waiting))
                    waiting = []
            count += batch.num_rows
    finally:
        if waiting:
            table.write(pa.concat_batches(waiting))
    if not count:
        # There is still the heading to be seen.
        table.write(pa.RecordBatch.from_pylist([], schema=schema))
    table.write_rest()


def _show_result(result: dict[str, Any], lines: Iterable[str | Text], is_json: bool) -> None:
    """Write what a command did: as JSON for a program, in lines for a person."""
    if is_json or not is_terminal(sys.stdout):
        write(json_line(result))
        return
    console = Console(highlight=False, soft_wrap=True)
    for line in lines:
        console.print(line)


@program.command()
@arguments.sources
@arguments.target
@arguments.formats
@arguments.columns
@arguments.filters
@arguments.schema
@arguments.writing
@arguments.record_type
@arguments.on_corrupt
@arguments.storage_options
@arguments.target_storage_options
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    default="threads",
    show_default=True,
    help='Of a Dask cluster; or "threads" or "synchronous", in this process.',
)
@arguments.threads
@arguments.as_json
def convert(source: tuple[str, ...], target: str, is_json: bool, **how: Any) -> None:
    """Convert between TFRecord, Parquet, ORC, CSV, JSON lines, Arrow IPC and Avro.

    SOURCE is one or more folders, files or patterns. TARGET is a folder, or one file if its name
    ends like one: x.parquet, x.csv.gz. CSV has commas, TSV has tabs, and both have names in the
    first line.
    """
    began = time.perf_counter()
    with bytes_bar("converting") as show:
        result = tfrecord_io.convert(
            list(source),
            target,
            progress=lambda now: show(now.bytes_done, now.bytes),
            **how,
        )
    seconds = time.perf_counter() - began
    done = (
        f"{counted(result.rows, 'row')} in {counted(result.files, 'file')}, "
        f"{decimal(result.bytes)} of {result.to_format}, in {seconds:.1f} s"
    )
    _show_result(dataclasses.asdict(result), [done], is_json)


@program.command()
@arguments.paths
@arguments.as_json
@arguments.records
@arguments.access
def schema(path: tuple[str, ...], is_json: bool, **how: Any) -> None:
    """Show columns and types."""
    plan = _plan(path, schema_only=True, **how)
    console = Console(highlight=False)
    if is_json or not is_terminal(sys.stdout):
        write("".join(json_line(column) for column in schema_to_json(plan.schema)))
    else:
        console.print(schema_table(plan.schema, plan.partition_schema.names))


@program.command()
@arguments.paths
@arguments.as_json
@arguments.access
def count(path: tuple[str, ...], is_json: bool, threads: int | None, **how: Any) -> None:
    """Count the rows."""
    plan = plan_files(list(path), **how)
    with bytes_bar("counting") as show:
        rows = local.count_plan(plan, threads=threads, progress=show)
    if is_json:
        write(json_line({"rows": rows}))
    else:
        write(f"{rows:,}\n" if is_terminal(sys.stdout) else f"{rows}\n")


@program.command()
@arguments.paths
@arguments.html
@arguments.selection
@arguments.as_json
@arguments.records
@arguments.access
def stats(path: tuple[str, ...], html: str | None, is_json: bool, codec: str, **how: Any) -> None:
    """Show what each feature holds: shares missing, extremes, quantiles, frequent strings.

    Distinct values, quantiles and frequent strings are estimates; --json tells how good.
    """
    if codec == "reference":
        raise click.UsageError("stats needs the native codec")
    if html is not None:
        _refuse_page(path, html, how["storage_options"])
    with bytes_bar("looking") as show:
        found = tfrecord_io.compute_statistics(list(path), progress=show, **how)
    console = Console(highlight=False)
    if html is not None:
        page = html_page(found, title=", ".join(path))
        try:
            # The title may be a path that is no UTF-8.
            _write_page(Path(html), page.encode(errors="backslashreplace"))
        except OSError as error:
            # A disk without room does not say what it had none for.
            error.filename = html
            raise
    elif is_json or not is_terminal(sys.stdout):
        write(json_line(found.to_json()))
    else:
        console.print(statistics_table(found, console.width))


def _refuse_page(path: tuple[str, ...], html: str, storage_options: Any) -> None:
    """Raise an error if a page would take the place of something else, or be read with the data."""
    place = Path(html).absolute()
    if place.is_file():
        with place.open("rb") as file:
            start = file.read(len(PAGE_START))
        if start and start != PAGE_START.encode():
            raise DatasetExistsError(
                "the file already exists and is no page of statistics; choose another name, or "
                "remove it",
                path=html,
            )
    for storage, root in (open_storage(one, storage_options) for one in path):
        if is_read_with(str(place), storage.url(root)):
            raise OptionError(
                "the page would stand in the folder of the data, whose files are all taken for "
                "records; choose a place beside it, or below it a name that starts with '_'",
                path=html,
            )


def _write_page(place: Path, page: bytes) -> None:
    """Write a page; an older one stays until the new one is complete."""
    if place.exists() and not place.is_file():
        # A pipe or device takes what it is given.
        place.write_bytes(page)
        return
    replace_file(LocalStorage(), str(place.absolute()), page)


@program.command()
@arguments.paths
@arguments.payloads
@arguments.as_json
@arguments.access
def verify(path: tuple[str, ...], is_json: bool, **how: Any) -> None:
    """Read every byte and tell what is damaged, missing or not what was written."""
    with bytes_bar("verifying") as show:
        report = tfrecord_io.verify(list(path), progress=show, **how)
    records, files = counted(report.records, "sound record"), counted(report.files, "file")
    done = f"{records} in {files}, {decimal(report.bytes)}"
    # The exit code tells of damage even if nobody reads the rest.
    with contextlib.suppress(OutputClosed):
        _show_result(dataclasses.asdict(report), [*map(fault_text, report.faults), done], is_json)
    if not report.is_sound:
        raise SystemExit(DATA)


@program.command()
@arguments.sources
@arguments.target
@arguments.payloads
@arguments.schema
@arguments.saving
@arguments.storage_options
@arguments.target_storage_options
@arguments.threads
@arguments.as_json
def repair(source: tuple[str, ...], target: str, is_json: bool, **how: Any) -> None:
    """Write the sound records to TARGET and tell what is left out.

    SOURCE is one or more folders, files or patterns. TARGET is a folder, or one file if its name
    ends like one: x.tfrecord, x.tfrecord.gz.
    """
    with bytes_bar("repairing") as show:
        report = tfrecord_io.repair(list(source), target, progress=show, **how)
    records, files = counted(report.records, "sound record"), counted(report.files, "file")
    done = f"{records} to {files}, {decimal(report.bytes)}"
    _show_result(dataclasses.asdict(report), [*map(fault_text, report.faults), done], is_json)


@program.command()
@arguments.sources
@arguments.target
@arguments.limits
@arguments.storage_options
@arguments.target_storage_options
@arguments.threads
@arguments.as_json
def index(source: tuple[str, ...], target: str, is_json: bool, **how: Any) -> None:
    """Write index files, as DALI and the tfrecord package read them.

    TARGET is an index file if SOURCE is one file, else a folder for an index of each file. Older
    indexes are replaced, and nothing else is.
    """
    result = write_index(source[0] if len(source) == 1 else list(source), target, **how)
    done = f"{counted(result.records, 'record')} of {counted(result.files, 'file')}"
    _show_result(dataclasses.asdict(result), [done], is_json)


@program.command()
@click.argument("path")
@click.option("--yes", is_flag=True, help="Do it; without it, only say what would be done.")
@click.option(
    "--stale-after",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Take writers on other machines for dead after so long without a change. Default: a day.",
)
@click.option(
    "--forget-missing",
    is_flag=True,
    help="Have the manifest forget files that were removed or rewritten on purpose, so that verify "
    "does not tell of them.",
)
@arguments.as_json
@arguments.storage_options
def clean(
    path: str,
    yes: bool,
    stale_after: float | None,
    forget_missing: bool,
    is_json: bool,
    storage_options: Any,
) -> None:
    """Finish or remove what killed writers left behind.

    PATH is a data set; or a local file that was to be converted to, or a folder of such files.
    """
    stale = {} if stale_after is None else {"stale_after": stale_after}
    result = clean_target(
        path, storage_options, dry_run=not yes, forget_missing=forget_missing, **stale
    )
    told = {**dataclasses.asdict(result), "done": yes}
    _show_result(told, _lines_of_clean(result, is_done=yes), is_json)


def _lines_of_clean(result: CleanResult, *, is_done: bool) -> Iterator[str | Text]:
    """Give what was cleaned, or would be, as lines for a person."""
    finished, removed = ("finished", "removed") if is_done else ("would finish", "would remove")
    for word, what, jobs in (
        (finished, "decided, not published in full", result.finished),
        (removed, "staged, never committed", result.removed),
        ("left alone", "may still run", result.running),
    ):
        for job in jobs:
            yield Text.assemble((word, "bold"), f" job {printable(job)} ", (f"({what})", "dim"))
    if result.uploads:
        word = "aborted" if is_done else "would abort"
        uploads = counted(result.uploads, "open upload")
        yield Text.assemble((word, "bold"), f" {uploads} ", ("(of no job that runs)", "dim"))
    for path in result.forgotten:
        word = "forgot" if is_done else "would forget"
        note = ("(gone, or of another length than the manifest says)", "dim")
        yield Text.assemble((word, "bold"), f" {printable(path)} ", note)
    changes = result.finished or result.removed or result.uploads or result.forgotten
    if not (changes or result.running):
        yield "nothing to clean"
    elif not is_done and changes:
        yield Text("nothing was changed; --yes does it", "dim")
