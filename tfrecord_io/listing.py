"""From URLs to files: what stands in folders, what fits patterns, and what is named.

Of a folder it is everything below it that is not hidden, of a pattern what fits it, of a file the
file. Files are listed in one state of their data set: no commit was under way before or after. That
is asked for each data set, not for each file, so that many files take little more than their
listing. A file's data set is the first folder above it whose name is no ``key=value``.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from tfrecord_io.commit import check_not_committing
from tfrecord_io.errors import DatasetChangedError, ManifestError
from tfrecord_io.layout import is_data_name
from tfrecord_io.manifest import MANIFEST_NAME, MAX_MANIFEST_BYTES, Manifest
from tfrecord_io.storage import FileInfo, Storage, open_storage

_MAGIC = re.compile(r"[*?[]")
_STORE = re.compile(r"[^/:]+://[^/]*")
_LISTING_TRIES = 10

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """Files that were found through one name.

    Attributes
    ----------
    location : int
        Index of the URL whose storage they are in.
    storage : Storage
        That storage.
    root : str
        What was named: a file, or the folder that the manifest is of.
    below : str
        The folder below which names of folders are partition values.
    infos : list of FileInfo
        The files.
    manifest : Manifest or None
        That of `root`.
    """

    location: int
    storage: Storage
    root: str
    below: str
    infos: list[FileInfo]
    manifest: Manifest | None


#: The files that one name stands for, and the manifest beside them.
_Look = tuple[list[FileInfo], Manifest | None]


def list_paths(
    paths: Sequence[str | os.PathLike[str]], storage_options: Mapping[str, Any]
) -> tuple[tuple[str, ...], list[Listed]]:
    """List what paths stand for.

    Parameters
    ----------
    paths : list of str or path-like
        Folders, files and patterns.
    storage_options : mapping
        For the file systems.

    Returns
    -------
    tuple of str
        A URL of each storage that was met.
    list of Listed
        In the order of the paths.

    Raises
    ------
    FileNotFoundError
        Nothing is there.
    ManifestError
        A manifest cannot be understood.
    CommitConflictError, DatasetChangedError
        A data set is being written.
    """
    stores: dict[str, tuple[int, Storage]] = {}
    locations: list[str] = []
    opened: list[tuple[int, str]] = []
    for path in paths:
        url = os.fspath(path)
        storage, root = open_storage(url, storage_options)
        location, _ = stores.setdefault(_store_of(url), (len(stores), storage))
        if location == len(locations):
            locations.append(url)
        opened.append((location, root))
    storages = [storage for _, storage in stores.values()]

    patterns = [
        bool(_MAGIC.search(root)) and not storages[location].exists(root)
        for location, root in opened
    ]
    named: dict[tuple[int, str], _Look] = {}
    for location, storage in enumerate(storages):
        roots = dict.fromkeys(
            root
            for (of, root), is_pattern in zip(opened, patterns, strict=True)
            if of == location and not is_pattern
        )
        for root, look in _look_at(storage, list(roots)).items():
            named[location, root] = look

    found = []
    for (location, root), is_pattern in zip(opened, patterns, strict=True):
        storage = storages[location]
        if is_pattern:
            base = _fixed_part(root)
            looks = [(name, base, look) for name, look in _look_for(storage, root, base)]
        else:
            look = named[location, root]
            looks = [(root, root if _is_folder(root, look) else _parent(root), look)]
        for name, below, (infos, manifest) in looks:
            found.append(
                Listed(
                    location=location,
                    storage=storage,
                    root=name,
                    below=below,
                    infos=infos,
                    manifest=manifest,
                )
            )
    return tuple(locations), found


def _store_of(url: str) -> str:
    """Return the part of a URL that says which storage it is in."""
    match = _STORE.match(url)
    return url if "::" in url else match[0] if match else ""


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _fixed_part(pattern: str) -> str:
    magic = _MAGIC.search(pattern)
    return _parent(pattern[: magic.start()] if magic else pattern)


def _data_set(folder: str) -> str:
    while "=" in folder.rpartition("/")[2]:
        folder = _parent(folder)
    return folder


# --- names ----------------------------------------------------------------------------------------


def _look_at(storage: Storage, roots: list[str]) -> dict[str, _Look]:
    """Look at folders and files; many files in one folder are asked for together."""
    groups: dict[str, list[str]] = defaultdict(list)
    for root in roots:
        groups[_parent(root)].append(root)
    looks: dict[str, _Look] = {}
    for folder, names in groups.items():
        if len(names) > 1 and _info(storage, names[0]) is not None:
            infos = _stable(storage, [folder], partial(_each, storage, _info, names))
            looks.update(
                (name, ([info], None))
                for name, info in zip(names, infos, strict=True)
                if info is not None
            )
        rest = [name for name in names if name not in looks]
        looks.update(zip(rest, _each(storage, _stable_look, rest), strict=True))
    return looks


def _stable_look(storage: Storage, root: str) -> _Look:
    return _stable(storage, [root], lambda: _look(storage, root))


def _look(storage: Storage, root: str) -> _Look:
    infos = storage.list_files(root, is_data_name)
    return infos, _manifest(storage, root) if _is_folder(root, (infos, None)) else None


def _is_folder(root: str, look: _Look) -> bool:
    infos, _ = look
    return not (len(infos) == 1 and infos[0].path == root)


def _info(storage: Storage, path: str) -> FileInfo | None:
    try:
        return storage.info(path)
    except IsADirectoryError:
        return None


def _manifest(storage: Storage, root: str) -> Manifest | None:
    path = f"{root}/{MANIFEST_NAME}"
    try:
        return Manifest.loads(storage.read_bytes(path, MAX_MANIFEST_BYTES))
    except (FileNotFoundError, IsADirectoryError):
        return None
    except ManifestError as error:
        error.path = storage.url(path)
        raise


# --- patterns -------------------------------------------------------------------------------------


def _look_for(storage: Storage, pattern: str, base: str) -> list[tuple[str, _Look]]:
    """Look for what fits a pattern, whose fixed part is the folder `base`."""
    # Usually all that fits is of the data set that the fixed part is in.
    asked = {base} if base else set()
    while True:
        found, looks = _stable(storage, asked, partial(_fitting, storage, pattern, base))
        folders = {path if info is None else _parent(path) for path, info in found.items()}
        others = {_data_set(folder) for folder in folders}
        if others <= asked | {_data_set(base)}:
            break
        asked |= others
    together: list[tuple[str, _Look]] = []
    files: list[FileInfo] = []
    for path, info in found.items():
        if info is None:
            files = []
            together.append((path, looks[path]))
            continue
        if not files:
            together.append((base, (files, None)))
        files.append(info)
    return together


def _fitting(
    storage: Storage, pattern: str, base: str
) -> tuple[dict[str, FileInfo | None], dict[str, _Look]]:
    """Return what fits, and what is in the folders among that."""
    found = {path.rstrip("/"): info for path, info in storage.glob(pattern).items()}
    if not found:
        raise FileNotFoundError(f"no file fits {storage.url(pattern)}")
    hidden = {
        folder: not _is_visible(folder[len(base) :]) for folder in {_parent(path) for path in found}
    }
    folders = {path for path, info in found.items() if info is None}
    # What is in a folder that fits comes with it.
    for folder in hidden:
        above = folder
        while len(above) >= len(base) and not hidden[folder]:
            hidden[folder] = above in folders
            above = _parent(above)
    found = {
        path: info
        for path, info in found.items()
        if not hidden[_parent(path)] and is_data_name(path.rpartition("/")[2])
    }
    roots = [path for path in found if path in folders]
    return found, dict(zip(roots, _each(storage, _look, roots), strict=True))


def _is_visible(path: str) -> bool:
    return all(is_data_name(name) for name in path.split("/") if name)


# --- in one state ---------------------------------------------------------------------------------


def _stable(storage: Storage, folders: Iterable[str], look: Callable[[], T]) -> T:
    """Look while nothing is published in the data sets of some folders."""
    asked = sorted(folders)
    for _ in range(_LISTING_TRIES):
        before = _each(storage, check_not_committing, asked)
        found = look()
        if _each(storage, check_not_committing, asked) == before:
            return found
    raise DatasetChangedError(
        "the data set is being written again and again; read it when its writers are done",
        path=storage.url(asked[0]),
    )


def _each(storage: Storage, ask: Callable[[Storage, str], U], paths: Sequence[str]) -> list[U]:
    if len(paths) < 2 or storage.concurrency < 2:
        return [ask(storage, path) for path in paths]
    with ThreadPoolExecutor(storage.concurrency, "tfrecord-io-listing") as pool:
        return list(pool.map(lambda path: ask(storage, path), paths))
