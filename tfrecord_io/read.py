"""Planning a read: from URLs to files, partition values, a schema, and tasks.

1. `tfrecord_io.listing` finds the files. Partition values are read from the folders below what was
   named; for a pattern, below the part of it that has no ``*``, ``?``, ``[`` or ``{``.
2. Files are excluded by their partition values before any is opened.
3. The schema is the caller's; else that of the manifest for the files that still have the size it
   says, joined with what the other files are seen to hold. The manifest's types win.
4. `tfrecord_io.tasks.read_task` carries a task out, anywhere.

A plan is small and holds no open file. Files are held to the version they had when they were
listed, and the listing to one state of the data set: no commit is under way before or after it.
"""

from __future__ import annotations

import bisect
import itertools
import os
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.types as pat

from tfrecord_io.compression import from_suffix, normalize_compression
from tfrecord_io.errors import (
    CorruptDataWarning,
    InferenceError,
    LayoutError,
    OptionError,
    SchemaMismatchError,
    warn,
)
from tfrecord_io.filters import (
    Filters,
    columns_of,
    expression,
    fits,
    kept_rows,
    only_columns,
    parse,
    possible_rows,
)
from tfrecord_io.infer import Observation, merge, to_schema
from tfrecord_io.layout import parse_partition_path
from tfrecord_io.listing import Listed, list_paths
from tfrecord_io.manifest import Manifest, ManifestFile
from tfrecord_io.options import (
    BYTE_ARRAY_COLUMN,
    CodecName,
    Limits,
    OnCorruptRows,
    RecordType,
    no_column,
    positive,
    settings,
)
from tfrecord_io.parallel import thread_count
from tfrecord_io.partition_values import cast_partition_values, infer_partition_types
from tfrecord_io.plan import DEFAULT_BATCH_ROWS, ScanFile, ScanOptions, ScanPlan, ScanTask
from tfrecord_io.schema import (
    holds_integers_of,
    is_nulls_of,
    leaf_type,
    normal_type,
    wire_schema,
    with_leaf,
)
from tfrecord_io.storage import FileInfo, Storage, open_storage
from tfrecord_io.tasks import Note, observing, read_task
from tfrecord_io.work import Observed, path_value

__all__ = [
    "Paths",
    "Selection",
    "check_manifest",
    "observe_files",
    "packed",
    "plan_files",
    "plan_scan",
    "projected",
    "read_task",
]

Paths: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

#: Takes the path or URL through which a file was found, and the file, and returns it with marks.
Describe: TypeAlias = Callable[[str, ScanFile], ScanFile]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which of the files that are found are read, and what their folders say.

    Attributes
    ----------
    keep : callable, optional
        Asked for every file; without it all are read.
    partition_base : str, optional
        URL of the folder below which folders name partition columns, instead of the one read.
    has_partitions : bool
        Whether folders name partition columns at all.
    is_flat : bool
        Whether files in folders below the one named are left out if no folder names a partition
        column.
    joins_paths : bool
        Whether a file that several paths lead to is read once, unless `is_flat` has each path read
        by itself: Spark's rule. Otherwise it is read as often as it is named.
    ignores_case : bool
        Whether a partition column is one of the schema that differs from it in case alone. One of
        the records, where a manifest tells them, is refused.
    time_zone : str, optional
        In which folders that no manifest describes tell times. Without it it is UTC.
    infers_types : bool
        Whether columns that neither a schema nor a manifest describes are of the type that their
        values look like, and not of text.
    infers_instants : bool
        Whether inferred times are instants where there is a `time_zone`.
    """

    keep: Callable[[Storage, FileInfo], bool] | None = None
    partition_base: str | None = None
    has_partitions: bool = True
    is_flat: bool = False
    joins_paths: bool = False
    ignores_case: bool = False
    time_zone: str | None = None
    infers_types: bool = True
    infers_instants: bool = True


@dataclass(slots=True)
class _Found:
    """Files of one folder that were found, before their place in a schema is known.

    `manifest` describes them all, or none of them. `is_below` says whether the folder is one below
    a folder that was named.
    """

    files: list[ScanFile]
    partition: dict[str, str | None]
    is_below: bool
    manifest: Manifest | None = None


@dataclass(slots=True)
class _Listing:
    """What the URLs hold: files, and the manifests met on the way."""

    locations: tuple[str, ...]
    found: list[_Found]
    manifests: list[Manifest]


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
        What becomes of damaged files, see `tfrecord_io.tasks`.
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
        Whether plain local files are mapped into memory. They must not be cut short in place
        meanwhile: the operating system then ends the process.
    sample_files : int, optional
        Look for the schema in so many files at most instead of in all.
    threads : int, optional
        For looking at files; one for each core without it.
    task_bytes : int, optional
        Cut files that a manifest has marks for into tasks of about this many bytes. Without it a
        task is a file.
    cut_unmarked : bool
        Cut other uncompressed files as well, and those with marks too far apart: where records
        were seen to start if all of them are looked at for the schema; else each task finds out,
        see `tfrecord_io.boundaries`.
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
    if schema is not None and not isinstance(schema, pa.Schema):
        raise OptionError(f"schema is a {type(schema).__name__}; it must be a pyarrow.Schema")
    parsed = parse(filters)
    listing = _list(
        _as_list(path),
        settings(storage_options),
        selection,
        # Others tell nothing of what is asked for.
        describes=lambda manifest: (
            (manifest.file_format, manifest.record_type or record_type)
            == (file_format, record_type)
        ),
    )
    if selection.ignores_case and schema is not None:
        _name_partitions_as(schema, listing)
        _check_case(schema, listing)
    for manifest in listing.manifests:
        check_manifest(manifest, file_format, record_type)
    partitions = _type_partitions(listing, schema, selection)
    found = listing.found
    early = only_columns(parsed, partitions) if isinstance(parsed, list) else parsed
    if early is not None and fits(early, partitions):
        found = _kept(found, partitions, early)

    plan = ScanPlan(
        locations=listing.locations,
        storage_options=settings(storage_options),
        schema=pa.schema([]),
        file_schema=pa.schema([]),
        partition_schema=partitions,
        path_column=path_column,
        options=options,
    )
    if schema is not None:
        file_schema = pa.schema([field for field in schema if field.name not in partitions.names])
    elif record_type == "ByteArray":
        file_schema = pa.schema([pa.field(BYTE_ARRAY_COLUMN, pa.binary())])
    else:
        # If no file is left, its columns are those of the others.
        looked_at = _files(one for one in found or listing.found if one.manifest is None)
        seen: Observation | pa.Schema
        if look is not None:
            seen = look(plan, looked_at[:sample_files])
        else:
            starts = _Starts() if task_bytes is not None and cut_unmarked else None
            seen = observe_files(
                plan,
                looked_at[:sample_files],
                thread_count(threads),
                tell_damage=schema_only,
                note=starts.note if starts is not None else None,
            )
            if starts is not None and on_corrupt == "raise":
                for one in found:
                    one.files = [*map(starts.describe, one.files)]
        file_schema = _file_schema(listing, seen)
    if describe is not None and task_bytes is not None and on_corrupt == "raise":
        for one in found:
            if one.manifest is None:
                one.files = [
                    describe(listing.locations[file.location], file)
                    if file.size > task_bytes and _may_be_plain(file, options)
                    else file
                    for file in one.files
                ]
    if look is None:
        wire_schema(file_schema, reading=True)
    full = _full_schema(file_schema, partitions, path_column, corrupt_column)
    out = _projected(full, columns, path_column, corrupt_column)
    row_filter = expression(parsed, full)
    of_filter: list[str] = []
    needed = set(out.names)
    if parsed is not None:
        of_filter = columns_of(parsed, full)
        needed |= set(of_filter)
        known = partitions
        if path_column in of_filter:
            # The files of a folder differ.
            found = [replace(one, files=[file]) for one in found for file in one.files]
            known = known.append(full.field(path_column))
        found = _possible(found, known, row_filter, full)
        if set(of_filter) <= set(known.names):
            found = _kept(found, known, row_filter)
            row_filter, of_filter = None, []
    read_schema = pa.schema([field for field in file_schema if field.name in needed])
    if on_corrupt == "keep":
        _check_nullable(read_schema)
    return replace(
        plan,
        schema=out,
        file_schema=read_schema,
        rounded=_rounded(found, read_schema),
        written=_written(found, read_schema),
        filter=row_filter,
        filter_columns=tuple(of_filter),
        tasks=tuple(_tasks(_files(found), options, task_bytes, cut_unmarked)),
    )


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
    listing = _list(_as_list(path), settings(storage_options), selection, tell)
    none = pa.schema([])
    return ScanPlan(
        locations=listing.locations,
        storage_options=settings(storage_options),
        schema=none,
        file_schema=none,
        partition_schema=none,
        options=options,
        tasks=tuple(map(_whole, _files(listing.found))),
    )


def _compression(name: str | None) -> str | None:
    return name if name == "infer" else normalize_compression(name)


# --- files ----------------------------------------------------------------------------------------


def _as_list(path: Paths) -> list[str | os.PathLike[str]]:
    if isinstance(path, str | os.PathLike):
        return [path]
    if not isinstance(path, Sequence) or isinstance(path, bytes):
        raise OptionError(f"path is {path!r}; it must be a path, a URL, or a list of them")
    if not path:
        raise OptionError("path is an empty list; name a file or folder")
    return list(path)


def _list(
    paths: list[str | os.PathLike[str]],
    storage_options: dict[str, Any],
    selection: Selection = Selection(),
    tell: Callable[[Listed], object] | None = None,
    describes: Callable[[Manifest], bool] = lambda manifest: False,
) -> _Listing:
    """List files; `describes` tells which manifests of data sets say what was not named as one."""
    locations, listed = list_paths(paths, storage_options)
    listing = _Listing(locations, [], [])
    by_path: dict[int, dict[str, ManifestFile]] = {}
    for one in listed:
        if tell is not None:
            tell(one)
        if selection.partition_base is not None:
            _, below = open_storage(selection.partition_base, storage_options)
            _check_below(one, below, selection.partition_base)
            one = replace(one, below=below)
        if one.manifest is not None:
            listing.manifests.append(one.manifest)
        fitting = {name: it for name, it in one.manifests.items() if describes(it)}
        one = replace(one, manifests=fitting)
        listing.manifests += fitting.values()
        if selection.keep is not None:
            kept = [info for info in one.infos if selection.keep(one.storage, info)]
            one = replace(one, infos=kept)
        listing.found += _found(one, by_path, has_partitions=selection.has_partitions)
    if selection.is_flat and not any(one.partition for one in listing.found):
        listing.found = [one for one in listing.found if not one.is_below]
    elif selection.joins_paths and len(paths) > 1:
        listing.found = _without_repeats(listing.found)
    return listing


def _without_repeats(found: list[_Found]) -> list[_Found]:
    """Leave out files that were found before, unless their folders mean something else now."""
    seen: set[tuple[str, ...]] = set()
    for one in found:
        files = {(file.url, *one.partition): file for file in one.files}
        one.files = [file for key, file in files.items() if key not in seen]
        seen.update(files)
    return [one for one in found if one.files]


def _check_below(listed: Listed, folder: str, name: str) -> None:
    for path in [info.path for info in listed.infos] or [listed.root]:
        if path != folder and not path.startswith(folder.rstrip("/") + "/"):
            raise OptionError(
                f"{listed.storage.url(path)} is not below {name!r}, where the partition folders "
                "are to begin"
            )


def check_manifest(manifest: Manifest, file_format: str, record_type: RecordType | None) -> None:
    """Hold a data set to the format of its files and the type of its records that were asked for.

    Raises
    ------
    OptionError
        Its files have another format.
    SchemaMismatchError
        Its records have another type.
    """
    if manifest.file_format != file_format:
        raise OptionError(
            f"the data set holds {manifest.file_format} files, not {file_format}; "
            f"convert reads them with from_format={manifest.file_format!r}"
        )
    if manifest.record_type not in (None, record_type):
        raise SchemaMismatchError(
            f"the data set holds records of type {manifest.record_type}; read it with "
            f"record_type={manifest.record_type!r}"
        )


def _found(
    listed: Listed, by_path: dict[int, dict[str, ManifestFile]], *, has_partitions: bool
) -> list[_Found]:
    """Return what was listed; `by_path` holds the files of manifests, by the manifests' ids."""
    found: list[_Found] = []
    last: str | None = None
    for path, size, version, _ in listed.infos:
        folder, _, name = path.rpartition("/")
        is_next = folder != last
        if is_next:
            last = folder
            url = listed.storage.url(folder)
            below = folder[len(listed.below) :].strip("/")
            partition = dict(parse_partition_path(below)) if has_partitions else {}
            is_below = not listed.is_pattern and folder != listed.root
            manifests = list(listed.manifests_of(folder))
            for _, manifest in manifests:
                if id(manifest) not in by_path:
                    by_path[id(manifest)] = {file.path: file for file in manifest.files}
        file = ScanFile(listed.location, path, f"{url}/{name}", size, version)
        described = None
        for root, manifest in manifests:
            written = by_path[id(manifest)].get(path[len(root.rstrip("/")) + 1 :])
            if written is not None and written.bytes == size:
                described = manifest
                file = file._replace(rows=written.rows, marks=written.marks)
                break
        if is_next or described is not found[-1].manifest:
            found.append(_Found([], partition, is_below, described))
        found[-1].files.append(file)
    return found


def _files(found: Iterable[_Found]) -> list[ScanFile]:
    return [file for one in found for file in one.files]


# --- partitions -----------------------------------------------------------------------------------


def _name_partitions_as(schema: pa.Schema, listing: _Listing) -> None:
    """Give partition columns the names of a schema that they differ from in case alone."""
    spelt = {name.lower(): name for name in schema.names}
    for one in listing.found:
        one.partition = {
            name if name in schema.names else spelt.get(name.lower(), name): text
            for name, text in one.partition.items()
        }


def _check_case(schema: pa.Schema, listing: _Listing) -> None:
    """Refuse columns that would be nulls, as a manifest has them in another case."""
    for manifest in listing.manifests:
        spelt = {name.lower(): name for name in manifest.schema.names}
        for name in schema.names:
            known = spelt.get(name.lower(), name)
            if name not in manifest.schema.names and known not in schema.names:
                raise SchemaMismatchError(
                    f"the schema has a column {name!r}, and the records have {known!r}: the case "
                    "of a feature's name counts, so spell it as they do",
                    feature=name,
                )


def _type_partitions(
    listing: _Listing, schema: pa.Schema | None, selection: Selection
) -> pa.Schema:
    """Return the partition columns with their types, and give every file its values."""
    found = listing.found
    first = found[0].partition if found else {}
    names = list(first)
    for other in found:
        if list(other.partition) != names:
            raise LayoutError(
                f"folders disagree about the partition columns: {found[0].files[0].url} has "
                f"{names or 'none'}, {other.files[0].url} has {list(other.partition) or 'none'}; "
                "read them apart, or name one folder"
            )
    texts = {name: [one.partition[name] for one in found] for name in names}
    if selection.infers_types:
        inferred = infer_partition_types(texts)
    else:
        inferred = dict.fromkeys(names, pa.string())
    written = {name for one in listing.manifests for name in one.partition_schema.names}
    zone = selection.time_zone if written.isdisjoint(names) else None
    if zone is not None and selection.infers_instants:
        inferred = {
            name: pa.timestamp(t.unit, "UTC") if pat.is_timestamp(t) else t
            for name, t in inferred.items()
        }
    fields = [_partition_field(name, inferred[name], schema, listing.manifests) for name in names]
    if not found and listing.manifests:
        fields = list(listing.manifests[0].partition_schema)
    values = [
        cast_partition_values(field.name, texts[field.name], field.type, zone or "UTC")
        for field in fields
        if found
    ]
    for index, one in enumerate(found if values else ()):
        partition = tuple(array[index] for array in values)
        one.files = [file._replace(partition=partition) for file in one.files]
    return pa.schema(fields)


def _partition_field(
    name: str, inferred: pa.DataType, schema: pa.Schema | None, manifests: list[Manifest]
) -> pa.Field:
    if schema is not None and name in schema.names:
        return schema.field(name)
    written = {
        manifest.partition_schema.field(name).type
        for manifest in manifests
        if name in manifest.partition_schema.names
    }
    return pa.field(name, written.pop() if len(written) == 1 else inferred)


def _known_table(found: list[_Found], known: pa.Schema) -> pa.Table:
    """Return what is known of files: the partition columns, perhaps with that of the path."""

    def values(file: ScanFile) -> tuple[pa.Scalar, ...]:
        if len(file.partition) == len(known):
            return file.partition
        return (*file.partition, path_value(file, known.names[-1]))

    columns = zip(*(values(one.files[0]) for one in found), strict=True)
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, known, strict=True)],
        schema=known,
    )


def _kept(found: list[_Found], known: pa.Schema, row_filter: Any) -> list[_Found]:
    if not known.names or not found:
        return found
    return [found[row] for row in kept_rows(_known_table(found, known), row_filter)]


def _possible(
    found: list[_Found], known: pa.Schema, row_filter: Any, full: pa.Schema
) -> list[_Found]:
    if not known.names or not found:
        return found
    return [found[row] for row in possible_rows(_known_table(found, known), row_filter, full)]


# --- schema ---------------------------------------------------------------------------------------


def _file_schema(listing: _Listing, seen_in_files: Observation | pa.Schema) -> pa.Schema:
    """Return the columns of the records: those in manifests, then what else was seen."""
    manifests = [one.manifest for one in listing.found if one.manifest is not None]
    known = _joined_schema(manifests or (listing.manifests if not listing.found else []))
    if isinstance(seen_in_files, pa.Schema):
        return pa.schema([*known, *(f for f in seen_in_files if f.name not in known.names)])
    seen = [feature for feature in seen_in_files.features if feature.name not in known.names]
    inferred = to_schema(replace(seen_in_files, features=tuple(seen)))
    return pa.schema([*known, *inferred])


def _rounded(found: list[_Found], schema: pa.Schema) -> frozenset[str]:
    """Return the columns of decimals that all files are known to have been written with."""
    known = [one.manifest.schema if one.manifest is not None else pa.schema([]) for one in found]

    def is_written(field: pa.Field, written: pa.Schema) -> bool:
        index = written.get_field_index(field.name)
        if index < 0:
            return False
        t, asked = written.field(index).type, normal_type(field.type)
        return bool(leaf_type(t) == leaf_type(asked)) or is_nulls_of(t, asked)

    return frozenset(
        field.name
        for field in schema
        if pat.is_decimal(leaf_type(field.type)) and all(is_written(field, one) for one in known)
    )


#: Times of one kind differ in their unit alone.
_KINDS_OF_TIME = (pat.is_timestamp, pat.is_duration, pat.is_date, pat.is_time)


def _written(found: list[_Found], schema: pa.Schema) -> dict[str, pa.DataType]:
    """Return the types of times in the records where the schema asks for another unit.

    A record holds a count alone. Of what, its manifest says; where there is none the schema does.
    """
    known = {id(one.manifest): one.manifest for one in found}.values()
    written = {}
    for field in schema:
        asked = leaf_type(field.type)
        types = {_unit_of(field, asked, manifest) for manifest in known} - {None}
        if len(types) > 1:
            raise SchemaMismatchError(
                f"files hold column {field.name!r} in different units, "
                f"{', '.join(sorted(map(str, types)))}; read them apart, or ask for int64",
                feature=field.name,
            )
        if types and types != {asked}:
            written[field.name] = with_leaf(field.type, types.pop())
    return written


def _unit_of(field: pa.Field, asked: pa.DataType, manifest: Manifest | None) -> pa.DataType | None:
    """Return the type of times in which to decode a column; None if any type is right."""
    kind = next((kind for kind in _KINDS_OF_TIME if kind(asked)), None)
    if kind is None:
        return None
    if manifest is None:
        return asked
    index = manifest.schema.get_field_index(field.name)
    if index < 0:
        return None
    found = leaf_type(manifest.schema.field(index).type)
    if pat.is_null(found):
        return None
    if pat.is_timestamp(found) and pat.is_timestamp(asked):
        return pa.timestamp(found.unit, asked.tz)
    if kind(found):
        return found
    if pat.is_boolean(found) or any(other(found) for other in _KINDS_OF_TIME):
        raise SchemaMismatchError(
            f"the data set holds column {field.name!r} as {found}, and the schema asks for "
            f"{asked}; ask for {found} and cast it, or for int64",
            feature=field.name,
        )
    return asked


def _joined_schema(manifests: Iterable[Manifest]) -> pa.Schema:
    fields: dict[str, pa.Field] = {}
    for manifest in {id(manifest): manifest for manifest in manifests}.values():
        is_tfrecord = manifest.file_format == "tfrecord"
        for field in manifest.schema:
            other = fields.setdefault(field.name, field)
            if field.type == other.type or (is_tfrecord and is_nulls_of(field.type, other.type)):
                continue
            if is_tfrecord and holds_integers_of(other.type, field.type):
                continue
            if is_tfrecord and (
                is_nulls_of(other.type, field.type) or holds_integers_of(field.type, other.type)
            ):
                fields[field.name] = field
            else:
                raise InferenceError(
                    f"column {field.name!r} is {other.type} in one data set and {field.type} in "
                    "another; read them apart, or give a schema",
                    feature=field.name,
                )
    return pa.schema(list(fields.values()))


def observe_files(
    plan: ScanPlan,
    files: Iterable[ScanFile],
    threads: int,
    *,
    tell_damage: bool = False,
    note: Note | None = None,
) -> Observation:
    """Look at all records of files.

    Parameters
    ----------
    plan : ScanPlan
        Says how files are opened and read.
    files : iterable of ScanFile
        In the order in which names are to be seen first.
    threads : int
        How many work at a time.
    tell_damage : bool
        Whether damage that is skipped is warned of. Where the files are read as well, reading them
        does that.
    note : callable, optional
        Told where records start, see `tfrecord_io.tasks.joined`.
    """
    options = plan.options
    if options.on_corrupt == "keep":
        # What becomes a row says nothing of the columns.
        options = replace(options, on_corrupt="skip_record", corrupt_column=None)
    seen = Observation()
    known: set[Hashable] = set()
    for items in observing(plan, options).run_all(
        (ScanTask(file=file) for file in files), threads, note
    ):
        for item in items:
            if isinstance(item, Observed):
                # Merged one by one: what is held does not grow with the number of files.
                more = item.observation(known)
                seen = merge([seen, more], limits=options.limits)
                known |= more.traits
            elif tell_damage:
                warn(item, CorruptDataWarning)
    return seen


def _full_schema(
    file_schema: pa.Schema,
    partitions: pa.Schema,
    path_column: str | None,
    corrupt_column: str | None,
) -> pa.Schema:
    both = [name for name in partitions.names if name in file_schema.names]
    if both:
        raise LayoutError(
            f"column {both[0]!r} is in the records and in the names of folders; rename the "
            "folders, or give a schema, which reads it from the folders",
            feature=both[0],
        )
    fields = [*file_schema, *partitions]
    if corrupt_column is not None:
        _check_free("corrupt_column", corrupt_column, fields)
        fields.insert(len(file_schema), pa.field(corrupt_column, pa.binary()))
    if path_column is not None:
        _check_free("path_column", path_column, fields)
        fields.append(pa.field(path_column, pa.string()))
    names = [field.name for field in fields]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise OptionError(f"the schema names column {twice!r} twice")
    return pa.schema(fields)


def _check_free(argument: str, name: str, fields: Iterable[pa.Field]) -> None:
    if not isinstance(name, str) or name in {field.name for field in fields}:
        raise OptionError(
            f"{argument} is {name!r}; it must be a name that no column of the data has"
        )
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise OptionError(f"{argument} is {name!r}; it must be a name in UTF-8") from error


def _check_nullable(schema: pa.Schema) -> None:
    for field in schema:
        if not field.nullable:
            raise SchemaMismatchError(
                f"the schema says that column {field.name!r} holds no null, and on_corrupt='keep' "
                "gives rows of nulls for what is damaged; declare it nullable",
                feature=field.name,
            )


def _projected(
    full: pa.Schema,
    columns: Sequence[str] | None,
    path_column: str | None,
    corrupt_column: str | None,
) -> pa.Schema:
    if columns is None:
        return full
    if isinstance(columns, str) or not isinstance(columns, Sequence):
        raise OptionError(f"columns is {columns!r}; it must be a list of names")
    wanted = list(columns)
    for of_ours in (corrupt_column, path_column):
        if of_ours is not None and of_ours not in wanted:
            wanted.append(of_ours)
    for name in wanted:
        if name not in full.names:
            raise no_column(name, full.names)
    if len(set(wanted)) < len(wanted):
        raise OptionError(f"columns names a column twice: {columns!r}")
    return pa.schema([full.field(name) for name in wanted])


# --- tasks ----------------------------------------------------------------------------------------


def _tasks(
    files: Sequence[ScanFile], options: ScanOptions, task_bytes: int | None, cut_unmarked: bool
) -> Iterable[ScanTask]:
    if task_bytes is None or options.on_corrupt != "raise":
        return map(_whole, files)
    cut = (_cut(file, options, task_bytes, cut_unmarked) for file in files)
    return itertools.chain.from_iterable(cut)


def _whole(file: ScanFile) -> ScanTask:
    return ScanTask(file, 0, None, 0, file.rows)


def _cut(
    file: ScanFile, options: ScanOptions, task_bytes: int, cut_unmarked: bool
) -> Iterable[ScanTask]:
    if file.marks and (not cut_unmarked or file.size <= task_bytes * (len(file.marks) + 1)):
        yield from _tasks_by_marks(file, task_bytes)
    elif cut_unmarked and file.size > task_bytes and _may_be_plain(file, options):
        starts = range(0, file.size, task_bytes)
        for start, end in zip(starts, (*starts[1:], None), strict=True):
            before = bisect.bisect_right(file.marks, start, key=lambda mark: mark[0])
            nearest = file.marks[max(before - 1, 0) : before]
            yield ScanTask(file=file._replace(marks=nearest), start=start, end=end, search=True)
    else:
        yield _whole(file)


def _tasks_by_marks(file: ScanFile, task_bytes: int) -> Iterable[ScanTask]:
    start, record = 0, 0
    ends = [*(offset for offset, _ in file.marks[1:]), file.size]
    for (offset, next_record), next_end in zip(file.marks, ends, strict=True):
        # At the mark that is nearest to the size asked for.
        if offset + next_end > 2 * (start + task_bytes):
            yield ScanTask(
                file=file, start=start, end=offset, record=record, rows=next_record - record
            )
            start, record = offset, next_record
    rows = None if file.rows is None else file.rows - record
    yield ScanTask(file=file, start=start, record=record, rows=rows)


def _may_be_plain(file: ScanFile, options: ScanOptions) -> bool:
    """Return whether a file is uncompressed, as far as that is known without a look at it."""
    if options.compression == "infer":
        return from_suffix(file.path) is None
    return options.compression is None


class _Starts:
    """Where records were seen to start while files were looked at."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, str], list[tuple[int, int]]] = {}

    def note(self, task: ScanTask, offset: int, record: int) -> None:
        """See `tfrecord_io.tasks.Note`."""
        self._seen.setdefault((task.file.location, task.file.path), []).append((offset, record))

    def describe(self, file: ScanFile) -> ScanFile:
        """Return a file with its rows and marks as a manifest would have them."""
        seen = self._seen.get((file.location, file.path))
        if not seen:
            return file
        # The last one is the end of the file, if its bytes are what it stores.
        marks = tuple(seen[:-1]) if seen[-1][0] == file.size else ()
        return file._replace(rows=seen[-1][1], marks=marks)


def packed(tasks: Iterable[ScanTask], task_bytes: int | None) -> list[tuple[ScanTask, ...]]:
    """Put tasks that follow each other together, up to a size.

    Parameters
    ----------
    tasks : iterable of ScanTask
        In the order in which they are to be read.
    task_bytes : int or None
        Only a task that is larger by itself goes over it; None leaves every task alone.

    Returns
    -------
    list of tuple of ScanTask
        Their files without the marks that the tasks need no more.
    """
    groups: list[list[ScanTask]] = []
    room = 0
    for task in tasks:
        if not groups or task_bytes is None or task.bytes > room:
            groups.append([])
            room = task_bytes or 0
        if task.file.marks and not task.search:
            groups[-1].append(task._replace(file=task.file._replace(marks=())))
        else:
            groups[-1].append(task)
        room -= task.bytes
    return [tuple(group) for group in groups]


def projected(plan: ScanPlan, columns: Sequence[str]) -> ScanPlan:
    """Return a plan that reads some of its columns, in this order, and filters as before."""
    schema = pa.schema([plan.schema.field(name) for name in columns])
    needed = {*columns, *plan.filter_columns}
    options = plan.options
    if options.corrupt_column not in needed:
        options = replace(options, corrupt_column=None)
    kept = [field for field in plan.file_schema if field.name in needed]
    return replace(plan, schema=schema, file_schema=pa.schema(kept), options=options)
