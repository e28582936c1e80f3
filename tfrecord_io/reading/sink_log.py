"""The log of Spark's own file sink: which of the files of a folder its streams have committed.

Such a stream, of spark-tfrecord's jar for one, writes files under their final names, and they count
once a batch in ``_spark_metadata`` names them. What a killed batch left is in no batch: the query
writes its rows again when it goes on. So, as Spark's own sources do, a read of such a folder takes
what the log names.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator
from functools import partial
from urllib.parse import unquote

from tfrecord_io.errors import DatasetChangedError, ManifestError
from tfrecord_io.manifest import MAX_MANIFEST_BYTES
from tfrecord_io.parallel import each
from tfrecord_io.schema import shown
from tfrecord_io.storage import Storage

SINK_LOG_NAME = "_spark_metadata"

_VERSION = "v1"
#: A batch, or all up to it.
_BATCH = re.compile(r"(0|[1-9][0-9]*)(\.compact)?")


def committed_files(
    storage: Storage, folder: str, batches: Iterable[str], there: Iterable[str]
) -> frozenset[str]:
    """Return the files below a folder that its log names.

    Parameters
    ----------
    storage : Storage
        Where they are.
    folder : str
        The folder that the log is in.
    batches : iterable of str
        The names of the files of the log.
    there : iterable of str
        The paths of the files that are there, below the folder or elsewhere.

    Raises
    ------
    DatasetChangedError
        A file that the log names is not there.
    ManifestError
        The log cannot be understood.
    """
    root = f"{folder.rstrip('/')}/"
    known = {path.removeprefix(root): path for path in there if path.startswith(root)}
    found = set()
    for path in _logged(storage, f"{folder}/{SINK_LOG_NAME}", batches):
        # The log has whole URLs, and the data set may have been moved since.
        names = path.split("/")
        below = ("/".join(names[depth:]) for depth in range(len(names)))
        name = next((name for name in below if name in known), None)
        if name is None:
            raise DatasetChangedError(
                f"the log of Spark's stream names {shown(path)}, which is not there: bring it "
                "back, or, if it was removed on purpose, read what is left by a pattern such as "
                "folder/*",
                path=storage.url(f"{folder}/{SINK_LOG_NAME}"),
            )
        found.add(known[name])
    return frozenset(found)


def _logged(storage: Storage, log: str, batches: Iterable[str]) -> set[str]:
    """Return the paths that a log names."""
    names: dict[int, str] = {}
    first = 0
    for name in batches:
        match = _BATCH.fullmatch(name)
        if match is not None:
            number = int(match[1])
            names[number] = name
            first = max(first, number) if match[2] else first
    wanted = sorted(number for number in names if number >= first)
    for number, there in zip(itertools.count(first), wanted):
        if number != there:
            raise ManifestError(
                f"the log of Spark's stream has no batch {number}, so what it holds is not known",
                path=storage.url(log),
            )
    found: set[str] = set()
    paths = [f"{log}/{names[number]}" for number in wanted]
    for entries in each(partial(_entries, storage), paths, storage.concurrency):
        for action, path in entries:
            (found.add if action == "add" else found.discard)(path)
    return found


def _entries(storage: Storage, path: str) -> list[tuple[str, str]]:
    """Return what one file of a log says: what was done, to which path."""
    data = storage.read_bytes(path, MAX_MANIFEST_BYTES)
    try:
        version, *lines = data.decode().split("\n")
        if version != _VERSION:
            raise ValueError(f"its version is {shown(version)}, not {_VERSION!r}")
        return [*_parsed(lines)]
    except (ValueError, RecursionError) as error:
        raise ManifestError(
            f"the log of Spark's stream cannot be understood: {error}", path=storage.url(path)
        ) from error


def _parsed(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    for line in filter(None, lines):
        entry = json.loads(line)
        told = (entry.get("action"), entry.get("path")) if isinstance(entry, dict) else ()
        match told:
            case ("add" | "delete" as action, str(path)):
                yield action, unquote(path)
            case _:
                raise ValueError(f"{shown(line)} is not a file that was added or deleted")
