"""Whether a data set is sound: every byte of its files, and what its manifest says of them.

Reading finds damage in what it reads. It does not find that a file is gone, or that another one
stands in its place: of files, the manifest gives types and rows to those that still have the size
it says, and any others are read as they are. So `verify` holds one to the other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tfrecord_io.errors import CorruptDataWarning, OptionError, TFRecordError
from tfrecord_io.listing import Listed
from tfrecord_io.options import CodecName, Limits, RecordType
from tfrecord_io.plan import ScanPlan, ScanTask
from tfrecord_io.read import Paths, check_manifest, plan_files
from tfrecord_io.storage import threads_for
from tfrecord_io.tasks import decoding


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that is wrong with one file.

    Attributes
    ----------
    path : str
        The file.
    start, end : int or None
        Which of its bytes, in the decompressed file: where the damage begins, and where the next
        sound record does. An `end` of None with a `start`: nothing behind it was looked at. Both
        are None where the file as a whole is not what the manifest says.
    what : str
        What is wrong.
    """

    path: str
    start: int | None = None
    end: int | None = None
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What `verify` found.

    Attributes
    ----------
    files, records, bytes : int
        The files there are, the sound records in them, and the length of the files.
    faults : tuple of Fault
        What is wrong, in the order of the files, those that are missing last.
    """

    files: int
    records: int
    bytes: int
    faults: tuple[Fault, ...]

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults


def verify(
    path: Paths,
    *,
    record_type: RecordType | None = None,
    compression: str | None = "infer",
    storage_options: Mapping[str, Any] | None = None,
    codec: CodecName = "auto",
    limits: Limits | None = None,
    memory_map: bool = True,
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> VerifyReport:
    """Read every byte of a data set and tell what is wrong, without an end at the first fault.

    Each frame is held to its two CRCs, each payload to protobuf's rules, each compressed stream to
    its own checks, and each file has to end with a record. Of a folder that has a manifest, the
    files it names have to be there, with the bytes and the records it says; that there are others
    is no fault.

    Parameters
    ----------
    path, compression, storage_options, codec, limits, memory_map, threads
        See `read_table`.
    record_type : {"Example", "SequenceExample", "ByteArray"}, optional
        What a payload is. Without it what the manifest says, and Example where there is none; of
        ByteArray payloads only the CRCs are checked.
    progress : callable, optional
        Called with the bytes of files that are done, and of all.

    Returns
    -------
    VerifyReport
        Counts and faults. A record that is larger than `limits` allow, or of another type, is a
        fault that ends its file.

    Raises
    ------
    FileNotFoundError
        Nothing is there.
    OptionError
        The files are of another format, or an argument that is none.
    SchemaMismatchError
        The data set has records of another type than `record_type`.
    ManifestError
        The manifest cannot be understood.
    CommitConflictError, DatasetChangedError
        The data set is being written.

    Examples
    --------
    >>> import pyarrow as pa
    >>> import tfrecord_io as tfr
    >>> _ = tfr.write_table(pa.table({"x": [1, 2, 3]}), "memory://verify-example")
    >>> report = tfr.verify("memory://verify-example")
    >>> report.is_sound, report.files, report.records
    (True, 1, 3)
    """
    listed: list[Listed] = []
    plan = plan_files(
        path,
        compression=compression,
        storage_options=storage_options,
        codec=codec,
        limits=limits,
        memory_map=memory_map,
        tell=listed.append,
    )
    record_type = _record_type(listed, record_type)
    options = replace(plan.options, record_type=record_type, on_corrupt="skip_record")
    total = sum(task.file.size for task in plan.tasks)
    done = records = 0
    other_size = _of_another_size(listed)
    faults = []
    count = threads_for(plan.locations, plan.storage_options, threads)
    for task, rows, found in _looked_at(replace(plan, options=options), count):
        url = task.file.url
        if url in other_size:
            faults.append(Fault(path=url, what=other_size[url]))
        elif task.rows not in (None, rows) and not found:
            what = f"the manifest says that it has {task.rows} records, and it has {rows}"
            faults.append(Fault(path=url, what=what))
        faults += found
        records += rows
        done += task.file.size
        if progress is not None:
            progress(done, total)
    return VerifyReport(
        files=len(plan.tasks),
        records=records,
        bytes=total,
        faults=(*faults, *_missing(listed)),
    )


def _record_type(listed: Sequence[Listed], asked: RecordType | None) -> RecordType:
    manifests = [one.manifest for one in listed if one.manifest is not None]
    for manifest in manifests:
        check_manifest(manifest, "tfrecord", asked or manifest.record_type)
    types = {manifest.record_type for manifest in manifests} - {None}
    if asked is None and len(types) > 1:
        raise OptionError("the data sets have records of several types; verify them one by one")
    return asked or next(iter(types), None) or "Example"


def _looked_at(plan: ScanPlan, threads: int) -> Iterator[tuple[ScanTask, int, list[Fault]]]:
    """Give each task with its sound records and what is wrong with its file."""
    runner = decoding(plan)
    left = list(plan.tasks)
    while left:
        with contextlib.closing(runner.run_all(left, threads)) as streams:
            for index, (task, items) in enumerate(zip(left, streams, strict=True)):
                rows = 0
                faults: list[Fault] = []
                try:
                    for item in items:
                        if isinstance(item, CorruptDataWarning):
                            faults += [
                                Fault(path=task.file.url, **one._asdict()) for one in item.ranges
                            ]
                        else:
                            rows += item.num_rows
                except TFRecordError as error:
                    faults.append(Fault(path=task.file.url, start=error.offset, what=error.what))
                    yield task, rows, faults
                    # The others of this run end with it.
                    left = left[index + 1 :]
                    break
                yield task, rows, faults
            else:
                return


def _of_another_size(listed: Sequence[Listed]) -> dict[str, str]:
    """Return what is wrong with files that have another length than their manifest says."""
    wrong = {}
    for one in listed:
        sizes = {info.path: info.size for info in one.infos}
        for url, path, file_bytes, _ in _named(one):
            size = sizes.get(path, file_bytes)
            if size != file_bytes:
                wrong[url] = f"the manifest says that it has {file_bytes} bytes, and it has {size}"
    return wrong


def _missing(listed: Sequence[Listed]) -> Iterator[Fault]:
    for one in listed:
        there = {info.path for info in one.infos}
        for url, path, _, rows in _named(one):
            if path not in there:
                what = f"the manifest says that it is there and has {rows} records, and it is not"
                yield Fault(path=url, what=what)


def _named(one: Listed) -> Iterator[tuple[str, str, int, int]]:
    """Give the URL, path, bytes and rows of each file that a manifest names."""
    for file in one.manifest.files if one.manifest is not None else ():
        path = f"{one.root.rstrip('/')}/{file.path}"
        yield one.storage.url(path), path, file.bytes, file.rows
