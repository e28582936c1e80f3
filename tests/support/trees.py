"""Folders as values: what is in one, and what a data set must be, from protobuf alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import fsspec

from tests.support.frames import examples
from tfrecord_io.storage import open_storage


def tree(root: Path) -> dict[str, bytes | None]:
    """Every entry below `root`, hidden ones too: a file's bytes, None for a folder."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes() if path.is_file() else None
        for path in sorted(root.rglob("*"))
    }


def stored_files(url: str, storage_options: Mapping[str, Any]) -> dict[str, bytes]:
    """Every file below a URL, hidden ones too; no upload may be open."""
    storage, root = open_storage(url, storage_options)
    assert storage.uploads(root) == []
    return {
        path: storage.read_bytes(f"{root}/{path}", 1 << 30) for path in storage.tree(root).files
    }


def put_files(url: str, storage_options: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
    """Write files below a URL, as no job of ours does."""
    filesystem, root = fsspec.core.url_to_fs(url, **storage_options)
    placed = {f"{root}/{path}": data for path, data in files.items()}
    for folder in sorted({path.rpartition("/")[0] for path in placed}):
        filesystem.makedirs(folder, exist_ok=True)
    filesystem.pipe(placed)


def data_files(root: Path) -> dict[str, bytes]:
    """The files that any reader sees: not hidden, in no hidden folder."""
    return {
        path: data
        for path, data in tree(root).items()
        if data is not None and not any(name[0] in "_." for name in path.split("/"))
    }


def expected_files(
    rows: Sequence[dict[str, Any]],
    partition_by: Iterable[str] = (),
    *,
    rows_per_task: int = 1_048_576,
    first_task: int = 0,
    suffix: str = "",
) -> dict[str, bytes]:
    """The part files of rows whose columns are in alphabetical order and need no escaping."""
    files: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for index, row in enumerate(rows):
        folder = "".join(f"{name}={row[name]}/" for name in partition_by)
        name = f"{folder}part-{first_task + index // rows_per_task:05d}-000.tfrecord{suffix}"
        files[name].append({key: row[key] for key in row if key not in {*partition_by}})
    return {name: examples(*members) for name, members in files.items()}
