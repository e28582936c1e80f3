"""A sound data set of what is sound in a damaged one.

`tfrecord_io.verify` finds what is wrong, and `tfrecord_io.convert` writes the rest of it, as it
writes any other data set: committed as a whole, with a manifest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from tfrecord_io.commit.job import warn_of_rounded
from tfrecord_io.conversion import ConvertProgress, convert
from tfrecord_io.conversion.driver import refuse_target
from tfrecord_io.errors import (
    CorruptDataError,
    OptionError,
    PrecisionWarning,
    TFRecordWarning,
    warn,
    warnings_to,
)
from tfrecord_io.formats.detection import format_of_name
from tfrecord_io.options import RecordType, SaveMode, choice, function
from tfrecord_io.reading.files import Paths, as_list
from tfrecord_io.reading.plan import plan_scan
from tfrecord_io.schema import leaf_type
from tfrecord_io.storage import path_text, target_options
from tfrecord_io.verification import Fault, verify


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairReport:
    """What `repair` wrote, and what it left out.

    Attributes
    ----------
    files, records, bytes : int
        The files written, their records, and their length; 0 if the mode is "ignore" and there are
        data.
    faults : tuple of Fault
        What `tfrecord_io.verify` tells of the source.
    """

    files: int
    records: int
    bytes: int
    faults: tuple[Fault, ...]


def repair(
    source: Paths,
    target: str | os.PathLike[str],
    *,
    record_type: RecordType | None = None,
    schema: pa.Schema | None = None,
    mode: SaveMode = "error",
    compression: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    target_storage_options: Mapping[str, Any] | None = None,
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> RepairReport:
    """Write the sound records of TFRecord files to another place, and tell what is left out.

    The columns, their types and the partition folders are those of the source, which is not
    changed, unless it is the target and the mode "overwrite". It is gone through twice, and once
    more if no manifest tells the columns.

    Parameters
    ----------
    source : str, path-like or a list of them
        Folders, files or patterns, sound or not; local paths or fsspec URLs.
    target : str or path-like
        A folder, or a single file, as `tfrecord_io.convert` tells them apart.
    record_type : {"Example", "SequenceExample", "ByteArray"}, optional
        What a payload is. Without it what the manifest says, and Example where there is none.
    schema : pyarrow.Schema, optional
        Columns and types to read, instead of those found in the source.
    mode : {"error", "overwrite", "append", "ignore", "overwrite_partitions"}
        What becomes of data that are there. A single file takes "error", "overwrite" and "ignore".
    compression : str, optional
        Of the target's files, see `tfrecord_io.convert`.
    storage_options, target_storage_options : mapping, optional
        See `tfrecord_io.convert`.
    threads : int, optional
        How many work at a time; without it one for each core, and at least four for a remote store.
    progress : callable, optional
        Called with the bytes that are done, and of all: those of the source twice.

    Returns
    -------
    RepairReport
        What was written, and all faults of the source. That it has faults is no error.

    Raises
    ------
    CorruptDataError
        There are faults and no sound record.
    OptionError
        The target's name says another format, or an argument that is none.
    SchemaMismatchError
        A sound record does not fit the columns: such records are not left out. Give a schema.
    LimitExceededError
        A sound record is larger than the default limits allow.
    TFRecordError
        See `tfrecord_io.verify` and `tfrecord_io.convert`. The target is as it was, unless it is a
        `CommitStateUnknownError`.

    Warns
    -----
    CorruptDataWarning
        Of each file of which something is left out, as `tfrecord_io.read_table`.
    PrecisionWarning
        Of columns with integers among floats of which 32-bit floats cannot hold some exactly.

    Examples
    --------
    >>> import pyarrow as pa
    >>> import tfrecord_io as tfr
    >>> _ = tfr.write_table(pa.table({"x": [1, 2, 3]}), "memory://repair-example")
    >>> report = tfr.repair("memory://repair-example", "memory://repaired-example")
    >>> report.records, report.faults
    (3, ())
    """
    function("progress", progress)
    choice("mode", mode, SaveMode)
    name = path_text(target)
    named = format_of_name(name)
    if named is not None and named[0] != "tfrecord":
        raise OptionError(
            f"what is repaired is TFRecord, and the target's name says {named[0]}; choose another "
            "name, and convert the data afterwards",
            path=name,
        )
    # It would be a pity to find that out once all is verified.
    options = target_options(target, as_list(source), storage_options, target_storage_options)
    refuse_target(source, target, mode, storage_options, options)
    total = 0

    def verified(done: int, size: int) -> None:
        nonlocal total
        total = size
        if progress is not None:
            progress(done, 2 * size)

    def converted(now: ConvertProgress) -> None:
        if progress is not None:
            progress(total + now.bytes_done, total + now.bytes)

    found = verify(
        source,
        record_type=record_type,
        storage_options=storage_options,
        threads=threads,
        progress=verified,
    )
    if found.faults and not found.records:
        first = found.faults[0]
        raise CorruptDataError(
            f"there is no sound record to keep, and nothing was written: {first.what}",
            path=first.path,
            offset=first.start,
        )
    plan = plan_scan(
        source,
        schema=schema,
        record_type=found.record_type,
        on_corrupt="skip_record",
        storage_options=storage_options,
        threads=threads,
    )
    # Decimals were 32-bit floats before. Other columns of more bits may hold integers, too.
    decimals = {field.name for field in plan.schema if pat.is_decimal(leaf_type(field.type))}
    told: list[TFRecordWarning] = []
    try:
        with warnings_to(told.append):
            made = convert(
                source,
                target,
                from_format="tfrecord",
                to_format="tfrecord",
                schema=plan.schema,
                partition_by=plan.partition_schema.names,
                mode=mode,
                record_type=found.record_type,
                compression=compression,
                on_corrupt="skip_record",
                empty_partition="null",
                storage_options=storage_options,
                target_storage_options=options,
                threads=threads,
                progress=converted,
            )
    finally:
        for warning in told:
            if isinstance(warning, PrecisionWarning):
                warn_of_rounded({*warning.columns} - decimals)
            else:
                warn(warning, type(warning))
    return RepairReport(files=made.files, records=made.rows, bytes=made.bytes, faults=found.faults)
