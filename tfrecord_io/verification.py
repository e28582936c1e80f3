"""Whether a data set is sound: every byte of its files, and what its manifest says of them.

Reading finds damage in what it reads. It does not find that a file is gone, or that one of another
size stands in its place: of files, the manifest gives types and rows to those that still have the
size it says, and any others are read as they are. Nor does it look at columns that nobody asks for.
So `verify` holds one to the other.
"""

from __future__ import annotations

import contextlib
import errno
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from tfrecord_io.errors import (
    CorruptDataWarning,
    LimitExceededError,
    OptionError,
    SchemaMismatchError,
)
from tfrecord_io.manifest import Manifest, ManifestFile
from tfrecord_io.options import CodecName, Limits, RecordType, choice, function
from tfrecord_io.plan import ScanPlan, ScanTask
from tfrecord_io.reading.files import Paths, check_manifest
from tfrecord_io.reading.listing import Listed
from tfrecord_io.reading.plan import plan_files
from tfrecord_io.reading.tasks import decoding
from tfrecord_io.schema import leaf_type
from tfrecord_io.storage import threads_for

#: What keeps one file from being read; of anything else the others would tell the same.
_UNREADABLE = (errno.EIO, errno.EBADMSG)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that is wrong with one file.

    Attributes
    ----------
    path : str
        The file.
    start, end : int or None
        Which of its bytes, in the decompressed file: where the damage begins, and where the next
        sound record does. An `end` of None with a `start`: what stands behind it was not looked at,
        or not for the same fault. Both are None where the file as a whole is not what the manifest
        says, or cannot be read.
    feature : str or None
        Whose values do not fit.
    what : str
        What is wrong.
    """

    path: str
    start: int | None = None
    end: int | None = None
    feature: str | None = None
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What `verify` found.

    Attributes
    ----------
    files, records, bytes : int
        The files there are, the sound records in them, and the length of the files.
    record_type : {"Example", "SequenceExample", "ByteArray"}
        What the payloads were held to.
    faults : tuple of Fault
        What is wrong, in the order of the files, those that are missing last.
    """

    files: int
    records: int
    bytes: int
    record_type: RecordType
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
    memory_map: bool = False,
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> VerifyReport:
    """Read every byte of a data set and tell what is wrong, without an end at the first fault.

    Each frame is held to its two CRCs, each payload to protobuf's rules, each compressed stream to
    its own checks, and each file has to end with a record. Where a folder has a manifest, or one
    below it or, for a part of a data set, the one above, the files it names have to be there, with
    the bytes and the number of records it says, and each value of all files has to fit the column
    of that name, as readers ask; of those that do not, the first of a file is told. That there are
    other files, or other features in the records, is no fault. `clean` can make a manifest forget
    what was removed on purpose.

    Parameters
    ----------
    path, compression, storage_options, codec, limits, threads
        See `read_table`.
    memory_map : bool
        Whether plain local files may be mapped into memory, which is up to twice as fast. Where the
        disk does not give a part of such a file, the operating system ends the process.
    record_type : {"Example", "SequenceExample", "ByteArray"}, optional
        What a payload is. Without it what the manifest says, and Example where there is none; of
        ByteArray payloads only the CRCs are checked.
    progress : callable, optional
        Called with the bytes of files that are done, and of all.

    Returns
    -------
    VerifyReport
        Counts and faults. A record that is larger than `limits` allow, or of another type, is a
        fault that ends its file, as is what the disk does not give or the store does not permit.

    Raises
    ------
    FileNotFoundError
        Nothing is there.
    OptionError
        The manifest names files of another format, one of them is a pipe or a device, or an
        argument that is none.
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
    function("progress", progress)
    if record_type is not None:
        choice("record_type", record_type, RecordType)
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
    parts = [_described(one) for one in listed]
    manifests = [manifest for one in parts for manifest in one.manifests.values()]
    record_type = _record_type(manifests, record_type)
    options = replace(plan.options, record_type=record_type, on_corrupt="skip_record")
    plan = replace(plan, options=options)
    total = sum(task.file.size for task in plan.tasks)
    done = records = 0
    described: dict[str, ManifestFile] = {}
    held: dict[str, ScanPlan] = {}
    for one in parts:
        url_of = one.listed.storage.url
        described |= {url_of(path): file for path, file in one.files()}
        held |= {url_of(path): found for path, found in one.held(plan)}
    faults = []
    count = threads_for(plan.locations, plan.storage_options, threads)
    for task, rows, found in _looked_at(plan, held, count):
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
        done += size
        if progress is not None:
            progress(done, total)
    return VerifyReport(
        files=len(plan.tasks),
        records=records,
        bytes=total,
        record_type=record_type,
        faults=(*faults, *(fault for one in parts for fault in one.missing())),
    )


@dataclass(frozen=True, slots=True)
class _Described:
    """What was listed, and by their folders the manifests of what it is, is in, or holds."""

    listed: Listed
    manifests: Mapping[str, Manifest]

    def files(self) -> Iterator[tuple[str, ManifestFile]]:
        """Give the path of each file that a manifest names, and what it says of it."""
        for root, manifest in self.manifests.items():
            for file in manifest.files:
                yield f"{root}/{file.path}", file

    def held(self, plan: ScanPlan) -> Iterator[tuple[str, ScanPlan]]:
        """Give the paths of the files in data sets, and plans for the columns of their manifests.

        Whether a manifest names them or not: readers ask all of them for its columns. Where those
        that it describes hold nulls alone, others may hold values.
        """
        plans = {root: _for_columns(plan, found.schema) for root, found in self.manifests.items()}
        described = {path: file.bytes for path, file in self.files()}

        @functools.cache
        def nearest(folder: str) -> tuple[ScanPlan, ScanPlan] | None:
            return plans.get(folder) or (nearest(_parent(folder)) if folder else None)

        for info in self.listed.infos:
            found = nearest(_parent(info.path))
            if found is not None:
                of_described, of_others = found
                is_described = described.get(info.path) == info.size
                yield info.path, of_described if is_described else of_others

    def missing(self) -> Iterator[Fault]:
        """Tell of those files of the folder that was listed that are not there."""
        if not self.listed.is_folder:
            return
        storage, inside = self.listed.storage, f"{self.listed.root.rstrip('/')}/"
        there = {info.path for info in self.listed.infos}
        for path, file in self.files():
            # The manifest may be newer than what was listed.
            if path.startswith(inside) and path not in there and not storage.exists(path):
                yield Fault(
                    path=storage.url(path),
                    what=f"the manifest says that it is there and has {file.rows} records, and it "
                    "is not",
                )


def _described(listed: Listed) -> _Described:
    manifests = {root.rstrip("/"): manifest for root, manifest in listed.manifests.items()}
    if listed.manifest is not None:
        manifests[listed.root.rstrip("/")] = listed.manifest
    return _Described(listed, dict(sorted(manifests.items())))


def _for_columns(plan: ScanPlan, schema: pa.Schema) -> tuple[ScanPlan, ScanPlan]:
    """Return plans for all columns, and for those that are of a kind."""
    decimals = [field.name for field in schema if pat.is_decimal(leaf_type(field.type))]
    plan = replace(plan, schema=schema, file_schema=schema, rounded=frozenset(decimals))
    of_a_kind = pa.schema([field for field in schema if not pat.is_null(leaf_type(field.type))])
    if len(of_a_kind) == len(schema):
        return plan, plan
    return plan, replace(plan, schema=of_a_kind, file_schema=of_a_kind)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _record_type(manifests: Sequence[Manifest], asked: RecordType | None) -> RecordType:
    for manifest in manifests:
        check_manifest(manifest, "tfrecord", asked or manifest.record_type)
    types = {manifest.record_type for manifest in manifests} - {None}
    if len(types) > 1:
        raise OptionError("the data sets have records of several types; verify them one by one")
    return asked or next(iter(types), None) or "Example"


def _looked_at(
    plan: ScanPlan, held: dict[str, ScanPlan], threads: int
) -> Iterator[tuple[ScanTask, int, list[Fault]]]:
    """Give each task with its sound records and what is wrong with its file.

    `held` has, by their URL, plans of the columns that files are held to.
    """
    left = list(plan.tasks)
    misfit: Fault | None = None
    while left:
        runner = decoding(plan, held)
        with contextlib.closing(runner.run_all(left, threads)) as streams:
            for index, task in enumerate(left):
                url = task.file.url
                rows = 0
                faults: list[Fault] = []
                end: Fault | None = None
                try:
                    for item in next(streams):
                        if isinstance(item, CorruptDataWarning):
                            faults += [Fault(path=url, **one._asdict()) for one in item.ranges]
                        else:
                            rows += item.num_rows
                except (LimitExceededError, SchemaMismatchError) as error:
                    end = Fault(
                        path=url, start=error.offset, feature=error.feature, what=error.what
                    )
                    if isinstance(error, SchemaMismatchError) and held.pop(url, None) is not None:
                        # The others of this run end with it. What is damaged shows without columns.
                        misfit, left = end, left[index:]
                        break
                except OSError as error:
                    if not (isinstance(error, PermissionError) or error.errno in _UNREADABLE):
                        raise
                    end = Fault(
                        path=url, what=f"the file cannot be read: {error.strerror or error}"
                    )
                if misfit is not None and (end is None or misfit.start != end.start):
                    faults.append(misfit)
                misfit = None
                if end is not None:
                    faults.append(end)
                yield task, rows, faults
                if end is not None:
                    left = left[index + 1 :]
                    break
            else:
                return
