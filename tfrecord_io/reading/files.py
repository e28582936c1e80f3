"""The files of a read: which are found, what their folders say, and what manifests know of them.

A file goes with the others of its folder, which share their partition values, as long as no schema
gives these a type. Nothing here opens a file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.types as pat

from tfrecord_io.errors import LayoutError, OptionError, SchemaMismatchError
from tfrecord_io.filters import kept_rows, possible_rows
from tfrecord_io.layout import parse_partition_path
from tfrecord_io.manifest import Manifest, ManifestFile
from tfrecord_io.options import RecordType
from tfrecord_io.partition_values import cast_partition_values, infer_partition_types
from tfrecord_io.plan import ScanFile
from tfrecord_io.reading.listing import Listed, Missing, list_paths
from tfrecord_io.reading.work import path_value, repeated
from tfrecord_io.schema import holds_records_of
from tfrecord_io.storage import FileInfo, Storage, open_storage

Paths: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


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
    needs_files : bool
        Whether it is an error that there are neither files nor a manifest where no schema tells
        the columns, and not a table without columns.
    was_seen : bool
        Whether a schema is what an earlier look found: columns that manifests have no more are an
        error then, and no nulls.
    missing : {"error", "patterns", "any"}
        What may be missing, and then has no files: nothing, what fits patterns, or whatever was
        named.
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
    needs_files: bool = False
    was_seen: bool = False
    missing: Missing = "error"


@dataclass(slots=True)
class FolderFiles:
    """Files of one folder that were found, before their place in a schema is known.

    `manifest` describes them all, or none of them. `is_below` says whether the folder is one below
    a folder that was named.
    """

    files: list[ScanFile]
    partition: dict[str, str | None]
    is_below: bool
    manifest: Manifest | None = None


@dataclass(slots=True)
class Listing:
    """What the URLs hold: files, and the manifests met on the way."""

    locations: tuple[str, ...]
    found: list[FolderFiles]
    manifests: list[Manifest]


def as_list(path: Paths) -> list[str | os.PathLike[str]]:
    """Return the names of files, folders and patterns that a read was given."""
    if isinstance(path, str | os.PathLike):
        return [path]
    if not isinstance(path, Sequence) or isinstance(path, bytes):
        raise OptionError(f"{path!r} is not a path or URL, or a list of them")
    if not path:
        raise OptionError("the list of paths is empty; name a file or folder")
    return list(path)


def list_files(
    paths: list[str | os.PathLike[str]],
    storage_options: dict[str, Any],
    selection: Selection = Selection(),
    tell: Callable[[Listed], object] | None = None,
    describes: Callable[[Manifest], bool] = lambda manifest: False,
) -> Listing:
    """List files; `describes` tells which manifests of data sets say what was not named as one."""
    locations, listed = list_paths(paths, storage_options, selection.missing)
    listing = Listing(locations, [], [])
    by_path: dict[int, dict[str, ManifestFile]] = {}
    of_below: set[int] = set()
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
        if one.is_folder:
            root = one.root.rstrip("/") + "/"
            of_below |= {id(it) for name, it in fitting.items() if name.startswith(root)}
        if selection.keep is not None:
            kept = [info for info in one.infos if selection.keep(one.storage, info)]
            one = replace(one, infos=kept)
        listing.found += _found(one, by_path, has_partitions=selection.has_partitions)
    if selection.is_flat and not any(one.partition for one in listing.found):
        listing.found = [one for one in listing.found if not one.is_below]
        # What tells of the files that are left out says nothing of the others.
        of_below -= {id(one.manifest) for one in listing.found}
        listing.manifests = [one for one in listing.manifests if id(one) not in of_below]
    elif selection.joins_paths and len(paths) > 1:
        listing.found = _without_repeats(listing.found, locations)
    return listing


def _without_repeats(found: list[FolderFiles], locations: Sequence[str]) -> list[FolderFiles]:
    """Leave out files that were found before, unless their folders mean something else now."""
    seen: set[tuple[str, ...]] = set()
    for one in found:
        files = {(*file.identity(locations), *one.partition): file for file in one.files}
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
        # Any bytes can look like an Example without features: that they are one has to be said.
        or_so = f", or by the names of its files, as path/part-*, if each is of type {record_type}"
        raise SchemaMismatchError(
            f"the data set holds records of type {manifest.record_type}; read it with "
            f"record_type={manifest.record_type!r}"
            f"{or_so if manifest.record_type == 'ByteArray' else ''}"
        )


def _found(
    listed: Listed, by_path: dict[int, dict[str, ManifestFile]], *, has_partitions: bool
) -> list[FolderFiles]:
    """Return what was listed; `by_path` holds the files of manifests, by the manifests' ids."""
    found: list[FolderFiles] = []
    last: str | None = None
    for path, size, version, modified in listed.infos:
        folder, _, name = path.rpartition("/")
        is_next = folder != last
        if is_next:
            last = folder
            url = listed.storage.url(folder)
            below = folder[len(listed.below) :].strip("/")
            partition = dict(parse_partition_path(below)) if has_partitions else {}
            is_below = listed.is_folder and folder != listed.root.rstrip("/")
            manifests = list(listed.manifests_of(folder))
            for _, manifest in manifests:
                if id(manifest) not in by_path:
                    by_path[id(manifest)] = {file.path: file for file in manifest.files}
        # Of web servers a path is a URL: its names are to be quoted, and a query is not to be seen.
        of_file = listed.storage.url(path) if "://" in path else f"{url}/{name}"
        file = ScanFile(listed.location, path, of_file, size, version, modified=modified)
        described = None
        for root, manifest in manifests:
            written = by_path[id(manifest)].get(path[len(root.rstrip("/")) + 1 :])
            if written is not None and written.bytes == size:
                described = manifest
                file = file._replace(rows=written.rows, marks=written.marks)
                break
        if is_next or described is not found[-1].manifest:
            found.append(FolderFiles([], partition, is_below, described))
        found[-1].files.append(file)
    return found


def files_of(found: Iterable[FolderFiles]) -> list[ScanFile]:
    """Return the files of all folders."""
    return [file for one in found for file in one.files]


# --- partitions -----------------------------------------------------------------------------------


def name_partitions_as(schema: pa.Schema, listing: Listing) -> None:
    """Give partition columns the names of a schema that they differ from in case alone."""
    # Once: a schema makes the list of its names anew each time.
    known = {*schema.names}
    spelt = {name.lower(): name for name in schema.names}
    for one in listing.found:
        partition = {
            name if name in known else spelt.get(name.lower(), name): text
            for name, text in one.partition.items()
        }
        if len(partition) < len(one.partition):
            raise LayoutError(
                f"folders name partition columns {list(one.partition)}, of which some differ in "
                "case alone, and case does not count here: rename them",
                path=one.files[0].url,
            )
        one.partition = partition


def check_case(schema: pa.Schema, listing: Listing) -> None:
    """Refuse columns that would be nulls, as a manifest has them in another case."""
    asked = schema.names
    names = {*asked}
    for manifest in listing.manifests:
        written = {*manifest.schema.names}
        spelt = {name.lower(): name for name in manifest.schema.names}
        for name in asked:
            known = spelt.get(name.lower(), name)
            if name not in written and known not in names:
                raise SchemaMismatchError(
                    f"the schema has a column {name!r}, and the records have {known!r}: the case "
                    "of a feature's name counts, so spell it as they do",
                    feature=name,
                )


def type_partitions(listing: Listing, schema: pa.Schema | None, selection: Selection) -> pa.Schema:
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
    if not found and listing.manifests:
        inferred = {one.name: one.type for one in listing.manifests[0].partition_schema}
    fields = [_partition_field(name, t, schema, listing.manifests) for name, t in inferred.items()]
    values = [
        cast_partition_values(field.name, texts[field.name], field.type, zone or "UTC")
        for field in fields
        if found
    ]
    for index, one in enumerate(found if values else ()):
        partition = tuple(array[index] for array in values)
        one.files = [file._replace(partition=partition) for file in one.files]
    return pa.schema(fields)


def check_partitions(found: list[FolderFiles], partitions: pa.Schema) -> None:
    """Hold the values of files that are to be read to a schema that allows no null."""
    for index, field in enumerate(partitions):
        if field.nullable:
            continue
        for one in found:
            if not one.files[0].partition[index].is_valid:
                raise SchemaMismatchError(
                    f"partition column {field.name!r} is null in a folder, and the schema allows "
                    "no null: declare it nullable, or leave the folder out by filters",
                    path=one.files[0].url,
                    feature=field.name,
                )


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
    of_all = (t for t in written if all(holds_records_of(t, other) for other in written))
    return pa.field(name, next(of_all, inferred))


def _known_table(found: list[FolderFiles], known: pa.Schema) -> pa.Table:
    """Return what is known of files: the partition columns, perhaps with that of the path."""

    def values(file: ScanFile) -> tuple[pa.Scalar, ...]:
        if len(file.partition) == len(known):
            return file.partition
        return (*file.partition, path_value(file, known.names[-1]))

    def column(scalars: Sequence[pa.Scalar], t: pa.DataType) -> pa.Array | pa.ChunkedArray:
        if not pat.is_dictionary(t):
            return pa.array(scalars, t)
        # Of scalars of dictionaries of views Arrow makes no array.
        return pa.chunked_array([repeated(scalar, 1) for scalar in scalars], t)

    columns = zip(*(values(one.files[0]) for one in found), strict=True)
    return pa.table(
        [column(scalars, field.type) for scalars, field in zip(columns, known, strict=True)],
        schema=known,
    )


def kept_files(found: list[FolderFiles], known: pa.Schema, row_filter: Any) -> list[FolderFiles]:
    """Return the files for whose known values a filter, which needs no others, is true."""
    if not known.names or not found:
        return found
    return [found[row] for row in kept_rows(_known_table(found, known), row_filter)]


def possible_files(
    found: list[FolderFiles], known: pa.Schema, row_filter: Any, full: pa.Schema
) -> list[FolderFiles]:
    """Return the files for whose known values a filter may be true."""
    if not known.names or not found:
        return found
    return [found[row] for row in possible_rows(_known_table(found, known), row_filter, full)]
