"""What becomes of a stream's files once they were read: Spark's option cleanSource.

As in Spark, a file that cannot be removed or moved stays, and the query goes on.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable

from tfrecord_io.engines.spark.options import ReadOptions
from tfrecord_io.errors import OptionError, TFRecordWarning, warn
from tfrecord_io.parallel import each
from tfrecord_io.plan import ScanFile, ScanPlan
from tfrecord_io.reading.listing import fixed_part
from tfrecord_io.reading.sink_log import SINK_LOG_NAME
from tfrecord_io.storage import Storage, open_storage, redact


def check_cleaning(options: ReadOptions) -> None:
    """Raise `OptionError` unless the files of a stream may be cleaned as its options say."""
    if options.clean_source == "off":
        return
    for path in options.paths:
        storage, root = open_storage(path, options.storage)
        if options.archive is not None:
            other, archive = open_storage(options.archive, options.storage)
            if storage.url("/") != other.url("/"):
                raise OptionError(
                    f"sourceArchiveDir {redact(options.archive)} is in another store than "
                    f"{redact(path)}, and files can only be moved within one"
                )
            if f"{archive}/".startswith(f"{fixed_part(root).rstrip('/')}/"):
                raise OptionError(
                    f"sourceArchiveDir {redact(options.archive)} is inside of {redact(path)}, so "
                    "that what was moved there would be read again: name a folder elsewhere"
                )
        if storage.exists(f"{root}/{SINK_LOG_NAME}"):
            raise OptionError(
                f"cleanSource is not possible for {redact(path)}: it is what another stream of "
                "Spark's wrote, and its log names all of its files"
            )


def clean(scan: ScanPlan, files: Iterable[ScanFile], archive: str | None) -> None:
    """Remove files that were read, or move them to an archive, below it by their whole paths."""
    storages = scan.storages()
    folder = None if archive is None else open_storage(archive, scan.storage_options)[1]

    def act(file: ScanFile) -> None:
        storage = storages[file.location]
        try:
            if folder is None:
                storage.remove(file.path)
            else:
                _move(storage, file.path, folder)
        except OSError as error:
            warn(f"{file.url} was read and stays, as cleanSource failed: {error}", TFRecordWarning)

    each(act, files, min(storage.concurrency for storage in storages))


def _move(storage: Storage, path: str, folder: str) -> None:
    # In stores of objects a path begins with the bucket.
    below = path if path.startswith("/") else path[path.index("/") :]
    target = f"{folder}{below}"
    if storage.exists(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), storage.url(target))
    if storage.has_folders:
        storage.make_folders(target.rpartition("/")[0])
    storage.rename(path, target)
