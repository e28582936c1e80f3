"""Planning a read: from URLs to files, partition values, a schema, and tasks.

1. `tfrecord_io.reading.listing` finds the files. Partition values are read from the folders below
   what was named; for a pattern, below the part of it that has no ``*``, ``?``, ``[`` or ``{``.
2. Files are excluded by their partition values before any is opened.
3. The schema is the caller's; else that of the manifest for the files that still have the size it
   says, joined with what the other files are seen to hold. The manifest's types win.
4. `tfrecord_io.reading.tasks.read_task` carries a task out, anywhere.

A plan is small and holds no open file. Files are held to the version they had when they were
listed, and the listing to one state of the data set: no commit is under way before or after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tfrecord_io.compression import normalize_compression
from tfrecord_io.errors import InferenceError
from tfrecord_io.filters import Filters, columns_of, expression, fits, only_columns, parse
from tfrecord_io.infer import Observation
from tfrecord_io.options import (
    BYTE_ARRAY_COLUMN,
    CodecName,
    Limits,
    OnCorruptRows,
    RecordType,
    positive,
    settings,
)
from tfrecord_io.plan import DEFAULT_BATCH_ROWS, ScanFile, ScanOptions, ScanPlan
from tfrecord_io.reading.cuts import Starts, cut_tasks, may_be_plain, whole_task
from tfrecord_io.reading.files import (
    FolderFiles,
    Listing,
    Paths,
    Selection,
    as_list,
    check_case,
    check_manifest,
    check_partitions,
    files_of,
    kept_files,
    list_files,
    name_partitions_as,
    possible_files,
    type_partitions,
)
from tfrecord_io.reading.listing import Listed
from tfrecord_io.reading.schema import (
    check_names,
    check_nullable,
    check_unchanged,
    chosen_columns,
    file_schema_of,
    full_schema,
    observe_files,
    rounded_columns,
    written_types,
)
from tfrecord_io.schema import check_byte_array, check_schema, wire_schema
from tfrecord_io.storage import redact, threads_for

#: Takes the path or URL through which a file was found, and the file, and returns it with marks.
Describe: TypeAlias = Callable[[str, ScanFile], ScanFile]


def plan_scan(
    path: Paths,
    *,
    columns: Sequence[str] | None = None,
    schema: pa.Schema | None = None,
    filters: Filters = None,
    record_type: RecordType = "Example",
    compression: str | None = "infer",
    on_corrupt: OnCorruptRows = "raise",
    corrupt_column: str | None = None,
    path_column: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    codec: CodecName = "auto",
    limits: Limits | None = None,
    batch_rows: int = DEFAULT_BATCH_ROWS,
    memory_map: bool = True,
    sample_files: int | None = None,
    threads: int | None = None,
    task_bytes: int | None = None,
    cut_unmarked: bool = False,
    describe: Describe | None = None,
    schema_only: bool = False,
    file_format: str = "tfrecord",
    look: Callable[[ScanPlan, Sequence[ScanFile]], pa.Schema] | None = None,
    selection: Selection = Selection(),
    progress: Callable[[int, int], object] | None = None,
) -> ScanPlan:
    """Plan a read.

    Parameters
    ----------
    path : str, path-like or a list of them
        Folders (read with all below them), files, or patterns with ``*``, ``?``, ``[...]``,
        ``{a,b}`` and ``**``.
    columns : list of str, optional
        The columns to read, in this order. Only these are decoded.
    schema : pyarrow.Schema, optional
        Columns and types, instead of looking for them. May name partition columns to give them a
        type; those that it does not name are read as well.
    filters : list of tuple, list of list of tuple, or pyarrow.compute.Expression, optional
        Keep the rows for which it is true, see `tfrecord_io.filters`.
    record_type : {"Example", "SequenceExample", "ByteArray"}
        What a record's payload is.
    compression : str or None
        "infer" looks at each file; else see `tfrecord_io.compression.normalize_compression`.
    on_corrupt : {"raise", "skip_record", "skip_file", "keep"}
        What becomes of damaged files, see `tfrecord_io.reading.tasks`.
    corrupt_column : str, optional
        With "keep", name of a binary column that holds the damaged bytes; the last one that is of
        files.
    path_column : str, optional
        Name of a last column that holds the file's URL.
    storage_options : mapping, optional
        For the file system.
    codec : {"auto", "native", "reference"}
        See `tfrecord_io.codec.get_codec`.
    limits : Limits, optional
        What files may demand, see `tfrecord_io.options.Limits`.
    batch_rows : int
        Most rows of one batch.
    memory_map : bool
        Whether plain local files may be mapped into memory. They must not be cut short in place
        meanwhile: the operating system then ends the process.
    sample_files : int, optional
        Look for the schema in so many files at most instead of in all; in as many more where those
        have no records, as that of an engine's empty first partition.
    threads : int, optional
        For looking at files; without it one for each core, and at least four for a remote store.
    task_bytes : int, optional
        Cut files that a manifest has marks for into tasks of about this many bytes. Without it a
        task is a file.
    cut_unmarked : bool
        Cut other uncompressed files as well, and those with marks too far apart: where records
        were seen to start if all of them are looked at for the schema; else each task finds out,
        see `tfrecord_io.reading.boundaries`.
    describe : callable, optional
        Asked for what is known of a file that no manifest describes, and that is to be cut.
    schema_only : bool
        The plan is for its schema alone: damage that is skipped while files are looked at is warned
        of here, since no reading will.
    file_format : str
        What a manifest must say that the files are.
    look : callable, optional
        Returns the columns of files of another format. Their records are not looked at then, and
        types that only other formats have may stand in the plan.
    selection : Selection
        Which files are read, see `Selection`.
    progress : callable, optional
        Called with the bytes that were looked at for the schema, and with all that will be.

    Returns
    -------
    ScanPlan
        Without tasks if there is nothing to read.

    Raises
    ------
    FileNotFoundError
        Nothing is there.
    OptionError
        An argument that is none, an unknown column, or filters that do not fit the columns.
    LayoutError
        Folders that disagree about partition columns, or a column in folders and records.
    InferenceError, CorruptDataError, LimitExceededError
        From looking at the files.
    ManifestError
        The manifest cannot be understood.
    CommitConflictError, DatasetChangedError
        The data set is being written.
    """
    options = ScanOptions(
        record_type=record_type,
        compression=_compression(compression),
        on_corrupt=on_corrupt,
        corrupt_column=corrupt_column,
        batch_rows=batch_rows,
        limits=limits if limits is not None else Limits(),
        memory_map=memory_map,
        codec=codec,
    )
    for name, number in (("sample_files", sample_files), ("task_bytes", task_bytes)):
        if number is not None:
            positive(name, number)
    check_schema(schema)
    check_names(schema or ())
    parsed = parse(filters)
    listing = list_files(
        as_list(path),
        settings(storage_options),
        selection,
        # Others tell nothing of what is asked for.
        describes=lambda manifest: (
            (manifest.file_format, manifest.record_type or record_type)
            == (file_format, record_type)
        ),
    )
    if selection.ignores_case and schema is not None:
        name_partitions_as(schema, listing)
        check_case(schema, listing)
    for manifest in listing.manifests:
        # Whatever its records are, each is its payload, too.
        asked = manifest.record_type if record_type == "ByteArray" else record_type
        check_manifest(manifest, file_format, asked)
    partitions = type_partitions(listing, schema, selection)
    if selection.was_seen and schema is not None and record_type != "ByteArray":
        check_unchanged(schema, partitions, listing)
    found = _kept_early(listing.found, partitions, parsed)
    plan = ScanPlan(
        locations=listing.locations,
        storage_options=settings(storage_options),
        schema=pa.schema([]),
        file_schema=pa.schema([]),
        partition_schema=partitions,
        path_column=path_column,
        options=options,
    )
    # Where damage may be passed over, no record is known to start where another one ends.
    may_cut = task_bytes is not None and on_corrupt == "raise"
    file_schema = _given_columns(schema, partitions, record_type)
    if file_schema is None:
        if selection.needs_files and not (listing.found or listing.manifests):
            raise _no_files(listing)
        # If no file is left, its columns are those of the others.
        looked_at = files_of(one for one in found or listing.found if one.manifest is None)
        seen: Observation | pa.Schema = Observation()
        if look is not None:
            seen = look(plan, looked_at[:sample_files])
        else:
            starts = Starts() if may_cut and cut_unmarked else None
            for some in _samples(looked_at, sample_files):
                seen = observe_files(
                    plan,
                    some,
                    threads_for(plan.locations, plan.storage_options, threads),
                    tell_damage=schema_only,
                    note=starts.note if starts is not None else None,
                    progress=progress,
                )
                if seen.records:
                    break
            if starts is not None:
                found = _with_files(found, starts.describe)
        file_schema = file_schema_of(listing, seen)
    if look is None:
        wire_schema(file_schema, reading=True)
    if describe is not None and task_bytes is not None and may_cut:
        found = _with_files(found, _described_by(describe, plan, task_bytes))
    full = full_schema(file_schema, partitions, path_column, corrupt_column)
    out = chosen_columns(full, columns, path_column, corrupt_column)
    found, row_filter, of_filter = _filtered(found, partitions, parsed, full, path_column)
    check_partitions(found, partitions)
    needed = {*out.names, *of_filter}
    read_schema = pa.schema([field for field in file_schema if field.name in needed])
    if on_corrupt == "keep":
        check_nullable(read_schema)
    return replace(
        plan,
        schema=out,
        file_schema=read_schema,
        rounded=rounded_columns(found, read_schema),
        written=written_types(found, read_schema),
        filter=row_filter,
        filter_columns=tuple(of_filter),
        tasks=tuple(cut_tasks(files_of(found), options, task_bytes, cut_unmarked)),
    )


def _kept_early(
    found: list[FolderFiles], partitions: pa.Schema, parsed: Filters
) -> list[FolderFiles]:
    """Return the files that are left when only the partition columns are known."""
    early = only_columns(parsed, partitions) if isinstance(parsed, list) else parsed
    if early is None or not fits(early, partitions):
        return found
    return kept_files(found, partitions, early)


def _samples(files: Sequence[ScanFile], count: int | None) -> Iterator[Sequence[ScanFile]]:
    """Give so many files at a time, or all."""
    count = count or max(len(files), 1)
    for first in range(0, len(files), count):
        yield files[first : first + count]


def _given_columns(
    schema: pa.Schema | None, partitions: pa.Schema, record_type: RecordType
) -> pa.Schema | None:
    """Return the columns of records that no record need be looked at for."""
    if schema is None:
        is_known = record_type == "ByteArray"
        return pa.schema([pa.field(BYTE_ARRAY_COLUMN, pa.binary())]) if is_known else None
    given = pa.schema([field for field in schema if field.name not in partitions.names])
    # Of records that are only counted no column is asked for.
    if record_type == "ByteArray" and given.names:
        check_byte_array(given, "read")
    return given


def _no_files(listing: Listing) -> InferenceError:
    return InferenceError(
        "there is no file to find columns in: give a schema, or check the path. Files in folders "
        "below are left out where these name no partition columns: name them, with a pattern such "
        "as folder/*, or say is_flat=False",
        path=redact(listing.locations[0]),
    )


def _with_files(
    found: list[FolderFiles], change: Callable[[ScanFile], ScanFile]
) -> list[FolderFiles]:
    """Return what was found, with files that no manifest describes as `change` makes them."""
    return [
        one if one.manifest is not None else replace(one, files=[*map(change, one.files)])
        for one in found
    ]


def _described_by(
    describe: Describe, plan: ScanPlan, task_bytes: int
) -> Callable[[ScanFile], ScanFile]:
    def described(file: ScanFile) -> ScanFile:
        if file.size <= task_bytes or not may_be_plain(file, plan.options):
            return file
        return describe(plan.locations[file.location], file)

    return described


def _filtered(
    found: list[FolderFiles],
    partitions: pa.Schema,
    parsed: Filters,
    full: pa.Schema,
    path_column: str | None,
) -> tuple[list[FolderFiles], pc.Expression | None, list[str]]:
    """Return the files that filters leave; what rows must fulfil yet, and the columns it needs."""
    if parsed is None:
        return found, None, []
    row_filter = expression(parsed, full)
    of_filter = columns_of(parsed, full)
    known = partitions
    if path_column in of_filter:
        # The files of a folder differ.
        found = [replace(one, files=[file]) for one in found for file in one.files]
        known = known.append(full.field(path_column))
    found = possible_files(found, known, row_filter, full)
    # What needs no column at all is asked of rows, if there is nothing to ask of files.
    if known.names and set(of_filter) <= set(known.names):
        return kept_files(found, known, row_filter), None, []
    return found, row_filter, of_filter


def plan_files(
    path: Paths,
    *,
    compression: str | None = "infer",
    storage_options: Mapping[str, Any] | None = None,
    codec: CodecName = "auto",
    limits: Limits | None = None,
    memory_map: bool = True,
    selection: Selection = Selection(),
    tell: Callable[[Listed], object] | None = None,
) -> ScanPlan:
    """Plan to look at files as they are, whatever their records hold and their folders say.

    The parameters, and what is raised, are those of `plan_scan`; `tell` is called with what was
    found through each name.

    Returns
    -------
    ScanPlan
        One task for each file, and no columns.
    """
    options = ScanOptions(
        compression=_compression(compression),
        limits=limits if limits is not None else Limits(),
        memory_map=memory_map,
        codec=codec,
    )
    listing = list_files(as_list(path), settings(storage_options), selection, tell)
    none = pa.schema([])
    return ScanPlan(
        locations=listing.locations,
        storage_options=settings(storage_options),
        schema=none,
        file_schema=none,
        partition_schema=none,
        options=options,
        tasks=tuple(map(whole_task, files_of(listing.found))),
    )


def _compression(name: str | None) -> str | None:
    return name if name == "infer" else normalize_compression(name)


def projected(plan: ScanPlan, columns: Sequence[str]) -> ScanPlan:
    """Return a plan that reads some of its columns, in this order, and filters as before."""
    schema = pa.schema([plan.schema.field(name) for name in columns])
    needed = {*columns, *plan.filter_columns}
    options = plan.options
    if options.corrupt_column not in needed:
        options = replace(options, corrupt_column=None)
    kept = [field for field in plan.file_schema if field.name in needed]
    return replace(plan, schema=schema, file_schema=pa.schema(kept), options=options)
