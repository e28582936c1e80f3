"""The columns of a read: what manifests say, what files are seen to hold, what is asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.types as pat

from tfrecord_io.errors import (
    CorruptDataWarning,
    DatasetChangedError,
    InferenceError,
    InferenceWarning,
    LayoutError,
    OptionError,
    SchemaMismatchError,
    warn,
)
from tfrecord_io.infer import Observation, merge, to_schema
from tfrecord_io.manifest import Manifest
from tfrecord_io.options import column_list, no_column
from tfrecord_io.plan import ScanFile, ScanPlan, ScanTask
from tfrecord_io.reading.files import FolderFiles, Listing
from tfrecord_io.reading.tasks import Note, observing
from tfrecord_io.reading.work import Observed
from tfrecord_io.schema import (
    holds_records_of,
    is_nulls_of,
    leaf_type,
    normal_type,
    with_leaf,
    without_bounds,
)
from tfrecord_io.storage import redact


def file_schema_of(listing: Listing, seen_in_files: Observation | pa.Schema) -> pa.Schema:
    """Return the columns of the records: those in manifests, then what else was seen."""
    manifests = [one.manifest for one in listing.found if one.manifest is not None]
    known = _joined_schema(manifests or (listing.manifests if not listing.found else []))
    # Once: a schema makes the list of its names anew each time.
    names = {*known.names}
    if isinstance(seen_in_files, pa.Schema):
        return pa.schema([*known, *(f for f in seen_in_files if f.name not in names)])
    if seen_in_files.records and not seen_in_files.features and not names:
        text = (
            "no record has a feature: if they are of another message, "
            'record_type="ByteArray" reads them as bytes'
        )
        warn(text, InferenceWarning)
    # A column of nulls alone is of any type: that of the values that others have.
    of_nulls = {field.name for field in known if pat.is_null(leaf_type(field.type))}
    seen = [
        feature
        for feature in seen_in_files.features
        if feature.name not in names
        or (feature.name in of_nulls and (feature.with_values or feature.empty))
    ]
    inferred = to_schema(replace(seen_in_files, features=tuple(seen)))
    types = {field.name: field.type for field in inferred}
    joined = [
        field.with_type(_of_nulls_and(types[field.name], field.type))
        if field.name in types
        else field
        for field in known
    ]
    return pa.schema([*joined, *(field for field in inferred if field.name not in names)])


def _of_nulls_and(inferred: pa.DataType, t: pa.DataType) -> pa.DataType:
    """Return the type of values that were seen, and of nulls, or lists of them, of a type."""
    return inferred if pat.is_null(t) else with_leaf(t, leaf_type(inferred))


def check_unchanged(schema: pa.Schema, partitions: pa.Schema, listing: Listing) -> None:
    """Refuse columns that were there at an earlier look, and are not or are others now."""
    manifests = [one.manifest for one in listing.found if one.manifest is not None]
    if not manifests or len(manifests) < len(listing.found):
        return
    now = {field.name: field.type for field in without_bounds(_joined_schema(manifests))}
    of_folders = {*partitions.names}
    for field in without_bounds(schema):
        if field.name in of_folders:
            continue
        if now.get(field.name) != field.type:
            is_now = f"{now[field.name]} now" if field.name in now else "gone"
            raise DatasetChangedError(
                f"the data set was replaced since its columns were looked for: {field.name!r} was "
                f"{field.type} and is {is_now}; read the data set again",
                path=redact(listing.locations[0]),
                feature=field.name,
            )


def rounded_columns(found: list[FolderFiles], schema: pa.Schema) -> frozenset[str]:
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


def written_types(found: list[FolderFiles], schema: pa.Schema) -> dict[str, pa.DataType]:
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
            written[field.name] = with_leaf(normal_type(field.type), types.pop())
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
    different = {id(manifest): manifest for manifest in manifests}.values()
    written = [field for manifest in different for field in manifest.schema]
    widest: dict[str, pa.Field] = {}
    for field in written:
        if holds_records_of(field.type, widest.setdefault(field.name, field).type):
            widest[field.name] = field
    # At last: of int8, uint8 and int64 the third holds the others.
    for field in written:
        found = widest[field.name].type
        if not holds_records_of(found, field.type):
            raise InferenceError(
                f"column {field.name!r} is {found} in one data set and {field.type} in "
                "another; read them apart, or give a schema",
                feature=field.name,
            )
    return pa.schema(list(widest.values()))


def observe_files(
    plan: ScanPlan,
    files: Sequence[ScanFile],
    threads: int,
    *,
    tell_damage: bool = False,
    note: Note | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Observation:
    """Look at all records of files.

    Parameters
    ----------
    plan : ScanPlan
        Says how files are opened and read.
    files : sequence of ScanFile
        In the order in which names are to be seen first.
    threads : int
        How many work at a time.
    tell_damage : bool
        Whether damage that is skipped is warned of. Where the files are read as well, reading them
        does that.
    note : callable, optional
        Told where records start, see `tfrecord_io.reading.tasks.joined`.
    progress : callable, optional
        Called with the bytes that are done, and of all.
    """
    done, total = 0, sum(file.size for file in files)
    if plan.options.on_corrupt == "keep":
        # What becomes a row says nothing of the columns.
        skipping = replace(plan.options, on_corrupt="skip_record", corrupt_column=None)
        plan = replace(plan, options=skipping)
    seen = Observation()
    known: set[Hashable] = set()
    tasks = [ScanTask(file=file) for file in files]
    streams = observing(plan).run_all(tasks, threads, note)
    with contextlib.closing(streams):
        for task, items in zip(tasks, streams, strict=True):
            if progress is not None:
                progress(done, total)
            done += task.file.size
            for item in items:
                if isinstance(item, Observed):
                    # Merged one by one: what is held does not grow with the number of files.
                    more = item.observation(known)
                    seen = merge([seen, more], limits=plan.options.limits)
                    known |= more.traits
                elif tell_damage:
                    warn(item, CorruptDataWarning)
    return seen


def full_schema(
    file_schema: pa.Schema,
    partitions: pa.Schema,
    path_column: str | None,
    corrupt_column: str | None,
) -> pa.Schema:
    """Return all columns that may be read, in their order."""
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
        _check_free("the name of the column of paths", path_column, fields)
        fields.append(pa.field(path_column, pa.string()))
    check_names(fields)
    return pa.schema(fields)


def check_names(fields: Iterable[pa.Field]) -> None:
    """Refuse two columns of one name."""
    names = [field.name for field in fields]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise OptionError(f"the schema names column {twice!r} twice")


def _check_free(argument: str, name: str, fields: Iterable[pa.Field]) -> None:
    if not isinstance(name, str) or name in {field.name for field in fields}:
        raise OptionError(
            f"{argument} is {name!r}; it must be a name that no column of the data has"
        )
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise OptionError(f"{argument} is {name!r}; it must be a name in UTF-8") from error


def check_nullable(schema: pa.Schema) -> None:
    """Refuse columns without nulls where damage becomes rows of them."""
    for field in schema:
        if not field.nullable:
            raise SchemaMismatchError(
                f"the schema says that column {field.name!r} holds no null, and on_corrupt='keep' "
                "gives rows of nulls for what is damaged; declare it nullable",
                feature=field.name,
            )


def chosen_columns(
    full: pa.Schema,
    columns: Sequence[str] | None,
    path_column: str | None,
    corrupt_column: str | None,
) -> pa.Schema:
    """Return the columns to read, in the order that was asked for."""
    if columns is None:
        return full
    wanted = column_list(columns)
    for of_ours in (corrupt_column, path_column):
        if of_ours is not None and of_ours not in wanted:
            wanted.append(of_ours)
    known = {*full.names}
    for name in wanted:
        if not isinstance(name, str) or name not in known:
            raise no_column(name, full.names)
    if len(set(wanted)) < len(wanted):
        raise OptionError(f"columns names a column twice: {columns!r}")
    return pa.schema([full.field(name) for name in wanted])
