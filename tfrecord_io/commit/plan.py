"""What a commit changes: from task commits and the data set as it is to a record and a manifest.

Only names, sizes, rights and the old manifest are looked at, and nothing is written. Called by the
one job whose turn it is, so what is found here stays so until the record is carried out.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from tfrecord_io.commit.publish import CommitRecord, inside
from tfrecord_io.commit.staging import STAGING_NAME
from tfrecord_io.errors import (
    CommitConflictError,
    DatasetExistsError,
    LayoutError,
    SchemaMismatchError,
)
from tfrecord_io.layout import (
    data_set_of,
    format_part_path,
    is_data_name,
    next_task_index,
    parse_partition_path,
)
from tfrecord_io.manifest import MANIFEST_NAME, Manifest, ManifestFile, read_manifest
from tfrecord_io.options import RecordType
from tfrecord_io.partition_values import cast_partition_values, value_texts
from tfrecord_io.plan import StagedFile, TaskCommit, WriteJob
from tfrecord_io.schema import holds_records_of, is_nulls_of, normal_schema, without_bounds
from tfrecord_io.storage import Storage, Tree

#: Hadoop's checksum of the manifest, which no longer fits once the manifest is replaced.
_MANIFEST_CHECKSUM = f".{MANIFEST_NAME}.crc"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCommit:
    """A commit that only needs to be decided."""

    record: CommitRecord
    manifest: Manifest


def plan_commit(
    job: WriteJob, commits: Sequence[TaskCommit], storage: Storage, root: str
) -> PlannedCommit | None:
    """Work out final names, what is replaced, and the new manifest.

    Returns
    -------
    PlannedCommit or None
        None if nothing is to be written: the mode is "ignore" and there are data by now, or the
        batch of a stream was committed before.

    Raises
    ------
    DatasetExistsError
        The mode is "error" and there are data by now.
    CommitConflictError
        Another job has taken the names that uploads bear.
    SchemaMismatchError, LayoutError
        See `check_appended` and `check_removable`; or something is in the way of a file or folder.
    PermissionError
        A folder that is to be changed may not be; whether the store tells is up to it.
    """
    tree = storage.tree(root, skip=STAGING_NAME)
    if job.mode in ("error", "ignore") and (tree.files or tree.folders):
        if job.mode == "ignore":
            return None
        raise DatasetExistsError(
            "the target was empty when the job began and is not any more: another job wrote to it",
            path=storage.url(root),
        )
    manifest = None
    if job.mode in ("append", "overwrite_partitions"):
        manifest = read_manifest(storage, root)
        if _was_committed(job, manifest):
            return None
        manifest = check_appended(job, storage, root, tree, manifest)
    first_task = first_added_task(tree, manifest) if job.mode == "append" else 0
    if first_task != job.first_task_index and storage.stages_by == "upload":
        raise CommitConflictError(
            "another job has added to the data set since this one began, and uploads cannot be "
            "renamed; write again",
            path=storage.url(root),
        )
    publish = {
        _final_path(commit.task_index + first_task, file): file
        for commit in sorted(commits, key=lambda commit: commit.task_index)
        for file in commit.files
    }
    _check_places(storage, root, tree, publish)
    described = {file.path: file for file in manifest.files} if manifest is not None else {}
    there = {*tree.files}
    # Of files that the manifest names and that are gone, only these are forgotten with them.
    replaced = _replaced(job, there | described.keys(), publish)
    remove = [path for path in replaced if path in there]
    record = CommitRecord(
        publish=tuple((file.staged, final) for final, file in publish.items()),
        remove=tuple(remove),
        remove_folders=tuple(_emptied(job, tree, remove)),
    )
    check_removable(storage, root, (*record.remove, *record.remove_folders))
    storage.check_changeable(_changes(root, tree, record))
    kept = [described[path] for path in described.keys() - {*replaced, *publish}]
    planned = _new_manifest(job, publish, manifest, kept)
    if manifest is None and any(map(is_data_path, there - {*replaced, *publish})):
        planned = replace(planned, schema=schema_beside_others(job))
    return PlannedCommit(record=record, manifest=planned)


def plan_forgetting(storage: Storage, root: str) -> tuple[PlannedCommit, list[str]] | None:
    """Work out a manifest without the files that are not there any more as it says.

    Returns
    -------
    tuple of PlannedCommit and list of str, or None
        What changes the manifest alone, and the paths that it forgets; None if there are none.
    """
    manifest = read_manifest(storage, root)
    if manifest is None:
        return None
    sizes = {
        info.path.removeprefix(f"{root}/"): info.size
        for info in storage.list_files(root, keep=is_data_name)
    }
    forgotten = [file.path for file in manifest.files if sizes.get(file.path) != file.bytes]
    if not forgotten:
        return None
    kept = tuple(file for file in manifest.files if sizes.get(file.path) == file.bytes)
    nothing = CommitRecord(publish=(), remove=(), remove_folders=())
    return PlannedCommit(record=nothing, manifest=replace(manifest, files=kept)), forgotten


def _was_committed(job: WriteJob, manifest: Manifest | None) -> bool:
    if job.batch is None or manifest is None:
        return False
    return manifest.streams.get(job.batch.stream, -1) >= job.batch.number


def _streams(job: WriteJob, manifest: Manifest | None) -> dict[str, int]:
    """Return how far each stream is; a data set that replaces another begins anew."""
    found = dict(manifest.streams) if manifest is not None else {}
    if job.batch is not None:
        found[job.batch.stream] = job.batch.number
    return found


def check_appended(
    job: WriteJob, storage: Storage, root: str, tree: Tree, manifest: Manifest | None
) -> Manifest | None:
    """Return what describes a folder: its own manifest, or what those of others say of it.

    Raises
    ------
    SchemaMismatchError
        What a job writes cannot stand beside it: columns, types, record type or file format differ.
    LayoutError
        The partition columns differ.
    """
    if manifest is None:
        manifest = _manifest_of_others(job, storage, root, tree)
    with _placed(storage, root, root):
        _check_appendable(job, tree, manifest)
    return manifest


@contextlib.contextmanager
def _placed(storage: Storage, root: str, folder: str) -> Iterator[None]:
    """Have errors name the file below `root` that they name, or else a folder, by its URL."""
    try:
        yield
    except (SchemaMismatchError, LayoutError) as error:
        error.path = storage.url(folder if error.path is None else f"{root}/{error.path}")
        raise


def _manifest_of_others(job: WriteJob, storage: Storage, root: str, tree: Tree) -> Manifest | None:
    """Return what manifests of other data sets say of a folder that has none itself.

    A partition folder is a part of the data set above it, even if it is new; folders that were
    written one by one are data sets below it. None unless they describe all its data files.

    Raises
    ------
    SchemaMismatchError, LayoutError
        What a job writes cannot stand beside what one of them describes: see `_check_appendable`.
    """
    there = {*tree.files}
    files: dict[str, ManifestFile] = {}
    schemas: list[pa.Schema] = []
    for folder, part in _parts(job, storage, root, tree):
        described = {file.path: file for file in part.files if file.path in there}
        if not described and folder.startswith(f"{root}/"):
            continue
        with _placed(storage, root, folder):
            _check_appendable(job, tree, part)
        files = described | files
        schemas.append(part.schema)
    if not files or {*filter(is_data_path, there)} - files.keys():
        return None
    return Manifest(
        file_format=job.file_format,
        record_type=_record_type(job),
        compression=job.compression,
        schema=schemas[0],
        partition_schema=job.partition_schema,
        files=tuple(files.values()),
    )


def _parts(
    job: WriteJob, storage: Storage, root: str, tree: Tree
) -> Iterator[tuple[str, Manifest]]:
    """Give other data sets and their manifests as if they were the folder's, the nearest first."""
    places = [path.rpartition("/")[0] for path in tree.files if path.endswith(f"/{MANIFEST_NAME}")]
    for folder in sorted(places, key=lambda folder: -folder.count("/")):
        below = read_manifest(storage, f"{root}/{folder}")
        if below is not None:
            names = dict(parse_partition_path(folder))
            fields = [field for field in job.partition_schema if field.name in names]
            yield (
                f"{root}/{folder}",
                replace(
                    below,
                    partition_schema=pa.schema([*fields, *below.partition_schema]),
                    files=tuple(
                        replace(file, path=f"{folder}/{file.path}") for file in below.files
                    ),
                ),
            )
    whole = data_set_of(root)
    above = read_manifest(storage, whole) if whole != root else None
    if above is not None:
        part = f"{root.removeprefix(whole).strip('/')}/"
        names = dict(parse_partition_path(part))
        fields = [field for field in above.partition_schema if field.name not in names]
        inside = [file for file in above.files if file.path.startswith(part)]
        yield (
            whole,
            replace(
                above,
                partition_schema=pa.schema(fields),
                files=tuple(replace(file, path=file.path.removeprefix(part)) for file in inside),
            ),
        )


def _check_appendable(job: WriteJob, tree: Tree, manifest: Manifest | None) -> None:
    """Raise unless what a job writes can stand beside the data that are there.

    Raises
    ------
    SchemaMismatchError
        Columns, types, record type or file format differ.
    LayoutError
        The partition columns differ.
    """
    for path in filter(is_data_path, tree.files):
        folder, _, name = path.rpartition("/")
        names = tuple(name for name, _ in parse_partition_path(folder))
        if names != job.partition_by and "=" in name:
            raise LayoutError(
                "a link to a folder, or a file, stands where a partition folder would be; write to "
                "what it leads to, or remove it",
                path=path,
            )
        if names != job.partition_by:
            raise LayoutError(
                f"the data set is partitioned by {_names(names)} and the data to be added by "
                f"{_names(job.partition_by)}; partition them alike, or overwrite",
                path=path,
            )
    if manifest is None:
        return
    if tuple(manifest.partition_schema.names) != job.partition_by:
        raise LayoutError(
            f"the data set is partitioned by {_names(manifest.partition_schema.names)} and the "
            "data to be added by "
            f"{_names(job.partition_by)}; partition them alike, or overwrite"
        )
    record_type = _record_type(job)
    if (manifest.file_format, manifest.record_type) != (job.file_format, record_type):
        raise SchemaMismatchError(
            f"the data set holds {manifest.record_type or manifest.file_format} and the data to be "
            "added are "
            f"{record_type or job.file_format}; write them elsewhere, or overwrite"
        )
    old = pa.schema([*manifest.schema, *manifest.partition_schema])
    new = normal_schema(pa.schema([*job.data_schema, *job.partition_schema]))
    if _joined(job, old, new) is None:
        old_texts, new_texts = _columns(old), _columns(new)
        raise SchemaMismatchError(
            "the data to be added have other columns than the data set: it has "
            f"{_difference(old_texts, new_texts)}, they have {_difference(new_texts, old_texts)}; "
            "cast or reorder them, or overwrite"
        )


def _record_type(job: WriteJob) -> RecordType | None:
    """Return what a manifest says that the payloads of a job are."""
    return job.record_type if job.file_format == "tfrecord" else None


def _joined(job: WriteJob, old: pa.Schema, new: pa.Schema) -> pa.Schema | None:
    """Return the columns of what is there and what is added; None if they differ.

    A column of type null has no values, so its records are those of a column of any other type.
    Integers have the same records whatever their type, and those that the data set's type has room
    for become it. In files of other formats such columns look different from those of other types.
    """
    if old.names != new.names or (old.types != new.types and job.file_format != "tfrecord"):
        return None
    joined = []
    for before, added in zip(old, new, strict=True):
        if holds_records_of(before.type, added.type):
            joined.append(before)
        elif is_nulls_of(before.type, added.type):
            joined.append(added)
        else:
            return None
    return pa.schema(joined)


def schema_beside_others(job: WriteJob) -> pa.Schema:
    """Return the columns of what is added to files that no manifest describes.

    In any of those records, an integer may be larger than the type of the job's column.
    """
    schema = normal_schema(job.data_schema)
    return without_bounds(schema) if job.file_format == "tfrecord" else schema


def _columns(schema: pa.Schema) -> list[str]:
    return [f"{field.name}: {field.type}" for field in schema]


def _difference(these: list[str], those: list[str]) -> str:
    found = [text for text in these if text not in those]
    if not found:
        found = [] if {*these} != {*those} else these
    return ", ".join(found[:20]) + (" and more" if len(found) > 20 else "") or "nothing else"


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "nothing"


def is_data_path(path: str) -> bool:
    """Return whether a path in a data set is none of a hidden file."""
    return all(map(is_data_name, path.split("/")))


def first_added_task(tree: Tree, manifest: Manifest | None) -> int:
    """Return the first task index of an append: behind those of files, be they there or gone."""
    described = [file.path for file in manifest.files] if manifest is not None else []
    return next_task_index(path.rpartition("/")[2] for path in (*tree.files, *described))


def _final_path(task_index: int, file: StagedFile) -> str:
    return format_part_path(file.folder, task_index, file.file_index, file.extension)


def _check_places(storage: Storage, root: str, tree: Tree, publish: Iterable[str]) -> None:
    files, folders = {*tree.files}, {*tree.folders}
    for path in (*publish, MANIFEST_NAME):
        if path in folders or _folders_above(path) & files:
            raise LayoutError(
                "a folder stands where a file is to be, or a file or link where a folder is to be; "
                "remove it",
                path=storage.url(f"{root}/{path}"),
            )


def check_removable(storage: Storage, root: str, paths: Iterable[str]) -> None:
    """Raise `LayoutError` if a commit record cannot name what it is to remove.

    In stores of objects names may hold what no system has in a path.
    """
    name = ""
    try:
        for name in paths:
            inside(name)
    except ValueError:
        raise LayoutError(
            "the name has a NUL, an empty part, '.' or '..' in it, and what it means hangs on who "
            "reads it, so that overwriting does not remove it; remove it by the store's own tools, "
            "or write elsewhere",
            path=storage.url(f"{root}/{name}"),
        ) from None


def _changes(root: str, tree: Tree, record: CommitRecord) -> dict[str, set[str]]:
    """Return the folders that are there and change, and the names in them that go."""
    files, folders = {*tree.files}, {"", *tree.folders}
    changes: dict[str, set[str]] = defaultdict(set)
    published = [final for _, final in record.publish] + [MANIFEST_NAME]
    for path in (*published, *record.remove, *record.remove_folders):
        folder, _, name = path.rpartition("/")
        while folder not in folders:
            folder = folder.rpartition("/")[0]
        gone = {name} if path in files or path in folders else set()
        changes[f"{root}/{folder}".rstrip("/")] |= gone
    return changes


def _replaced(
    job: WriteJob, files: Collection[str], publish: Mapping[str, StagedFile]
) -> list[str]:
    """Return the files that go, sorted; files that a rename replaces are not among them."""
    if job.mode == "overwrite":
        return sorted(path for path in files if path not in publish and path != MANIFEST_NAME)
    checksums = [_MANIFEST_CHECKSUM] if _MANIFEST_CHECKSUM in files else []
    if job.mode == "overwrite_partitions":
        others = [path for path in files if path not in publish]
        partitions = _partitions([file.folder for file in publish.values()] + others, job)
        written = {partitions[file.folder] for file in publish.values()}
        gone = [path for path in others if partitions.get(path) in written]
        return sorted([*checksums, *gone])
    return checksums


def _partitions(paths: Iterable[str], job: WriteJob) -> dict[str, tuple[str | None, ...]]:
    """Return the partition of each folder or file that belongs to one, however it is spelled.

    Where all values of a column are of its type they are compared as such: ``01`` is 1.
    """
    texts: dict[str, tuple[str | None, ...]] = {}
    for path in paths:
        try:
            found = parse_partition_path("/".join(path.split("/")[: len(job.partition_by)]))
        except LayoutError:
            continue
        if tuple(name for name, _ in found) == job.partition_by:
            texts[path] = tuple(text for _, text in found)
    alike = [
        _alike(field, {values[index] for values in texts.values()})
        for index, field in enumerate(normal_schema(job.partition_schema))
    ]
    return {
        path: tuple(known.get(text) for known, text in zip(alike, values, strict=True))
        for path, values in texts.items()
    }


def _alike(field: pa.Field, texts: Iterable[str | None]) -> dict[str | None, str | None]:
    """Return for each text of a partition column the one that Spark gives its value."""
    known = [text for text in texts if text is not None]
    try:
        values = cast_partition_values(field.name, known, field.type)
        return dict(zip(known, value_texts(field.name, values), strict=True))
    except LayoutError:
        return dict(zip(known, known, strict=True))


def _emptied(job: WriteJob, tree: Tree, remove: Iterable[str]) -> list[str]:
    if job.mode == "overwrite":
        return list(tree.folders)
    return sorted({folder for path in remove for folder in _folders_above(path)})


def _folders_above(path: str) -> set[str]:
    """Return the folders that a path of the data set is in, without the data set's own."""
    parts = path.split("/")
    return {"/".join(parts[:depth]) for depth in range(1, len(parts))}


def _new_manifest(
    job: WriteJob,
    publish: Mapping[str, StagedFile],
    old: Manifest | None,
    kept: list[ManifestFile],
) -> Manifest:
    schema, partition_schema = normal_schema(job.data_schema), normal_schema(job.partition_schema)
    if old is not None:
        schema = _joined(job, old.schema, schema) or schema
        partition_schema = _joined(job, old.partition_schema, partition_schema) or partition_schema
    new = [
        ManifestFile(path=final, bytes=file.bytes, rows=file.rows, marks=file.marks)
        for final, file in publish.items()
    ]
    return Manifest(
        file_format=job.file_format,
        record_type=_record_type(job),
        compression=job.compression,
        schema=schema,
        partition_schema=partition_schema,
        files=(*kept, *new),
        streams=_streams(job, old),
    )
