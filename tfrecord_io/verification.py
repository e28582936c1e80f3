"""Whether a data set is sound: every byte of its files, and what its manifest says of them.

Reading finds damage in what it reads. It does not find that a file is gone, or that one of another
size stands in its place: of files, the manifest gives types and rows to those that still have the
size it says, and any others are read as they are. So `verify` holds one to the other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tfrecord_io.errors import (
    CorruptDataWarning,
    LimitExceededError,
    OptionError,
    SchemaMismatchError,
)
from tfrecord_io.listing import Listed
from tfrecord_io.manifest import Manifest, ManifestFile, read_manifest
from tfrecord_io.options import CodecName, Limits, RecordType
from tfrecord_io.plan import ScanPlan, ScanTask
from tfrecord_io.read import Paths, check_manifest, plan_files
from tfrecord_io.storage import Storage, threads_for
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
    its own checks, and each file has to end with a record. Where a folder, or one below it, has a
    manifest, the files it names have to be there, with the bytes and the number of records it says;
    that there are others is no fault. Columns and types are not looked at.

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
        The files are of another format, one of them is a pipe or a device, or an argument that is
        none.
    LayoutError
        A link that leads nowhere, or folders that name no partition.
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
    data_sets = [data_set for one in listed for data_set in _data_sets(one)]
    record_type = _record_type([one.manifest for one in data_sets], record_type)
    options = replace(plan.options, record_type=record_type, on_corrupt="skip_record")
    total = sum(task.file.size for task in plan.tasks)
    done = records = 0
    described = {url: file for one in data_sets for url, file in one.files()}
    faults = []
    count = threads_for(plan.locations, plan.storage_options, threads)
    for task, rows, found in _looked_at(replace(plan, options=options), count):
        url, size = task.file.url, task.file.size
        said = described.get(url)
        if said is not None and said.bytes != size:
            what = f"the manifest says that it has {said.bytes} bytes, and it has {size}"
            faults.append(Fault(path=url, what=what))
        elif said is not None and said.rows != rows and not found:
            what = f"the manifest says that it has {said.rows} records, and it has {rows}"
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
        faults=(*faults, *(fault for one in data_sets for fault in one.missing())),
    )


@dataclass(frozen=True, slots=True)
class _DataSet:
    """A folder that has a manifest."""

    storage: Storage
    root: str
    manifest: Manifest
    there: frozenset[str]

    def files(self) -> Iterator[tuple[str, ManifestFile]]:
        """Give the URL of each file that the manifest names, and what it says of it."""
        for file in self.manifest.files:
            yield self.storage.url(self._path(file)), file

    def missing(self) -> Iterator[Fault]:
        """Give those that are not there."""
        for url, file in self.files():
            path = self._path(file)
            # Of a folder below, the manifest may be newer than what was listed.
            if path not in self.there and not self.storage.exists(path):
                yield Fault(
                    path=url,
                    what=f"the manifest says that it is there and has {file.rows} records, and it "
                    "is not",
                )

    def _path(self, file: ManifestFile) -> str:
        return f"{self.root.rstrip('/')}/{file.path}"


def _data_sets(listed: Listed) -> Iterator[_DataSet]:
    """Give the data set that was listed, and those below it."""
    storage = listed.storage
    there = frozenset(info.path for info in listed.infos)
    if listed.manifest is not None:
        yield _DataSet(storage, listed.root, listed.manifest, there)
    for root in listed.data_sets:
        manifest = read_manifest(storage, root)
        if manifest is not None:
            yield _DataSet(storage, root, manifest, there)


def _record_type(manifests: Sequence[Manifest], asked: RecordType | None) -> RecordType:
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
                except (LimitExceededError, SchemaMismatchError) as error:
                    faults.append(Fault(path=task.file.url, start=error.offset, what=error.what))
                    yield task, rows, faults
                    # The others of this run end with it.
                    left = left[index + 1 :]
                    break
                yield task, rows, faults
            else:
                return
