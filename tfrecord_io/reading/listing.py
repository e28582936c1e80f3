"""From URLs to files: what stands in folders, what fits patterns, and what is named.

Of a folder it is everything below it that is not hidden, of a pattern what fits it, of a file the
file. Files are listed in one state of their data set: no commit was under way before or after. That
is asked for each data set, not for each file, so that many files take little more than their
listing. A file's data set is the first folder above it whose name is no ``key=value``; a folder may
hold several. Where streams of Spark's own file sink wrote, it is what their log names.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar

from tfrecord_io.commit.job import check_not_committing
from tfrecord_io.commit.staging import STAGING_NAME
from tfrecord_io.errors import DatasetChangedError
from tfrecord_io.layout import data_set_of, is_data_name, reading_order
from tfrecord_io.manifest import MANIFEST_NAME, Manifest, read_manifest
from tfrecord_io.parallel import each
from tfrecord_io.reading.sink_log import SINK_LOG_NAME, committed_files
from tfrecord_io.storage import FileInfo, Storage, has_query, open_storage, path_text

_MAGIC = re.compile(r"[*?[{]")
#: Not the brace of ``[{]``, which stands for itself.
_BRACES = re.compile(r"(?<!\[)\{([^{}]*)\}")
_STORE = re.compile(r"[^/:]+:(?://[^/]*|(?=/))")
_LISTING_TRIES = 10

#: What writers leave beside the files, of which a listing takes notice.
_OF_WRITERS = (MANIFEST_NAME, STAGING_NAME, SINK_LOG_NAME)

#: How long an empty folder is given to turn out to be somebody's beginning or end.
_MAKING_SECONDS = 0.02

#: A folder and a name in it that mean the same together and apart, and are no pattern.
_PLAIN_FOLDER = re.compile(r"(?:[^/:?#~*\[{]+://[^/:?#*\[{]+(?::[0-9]+)?|(?=/))(?:/[^/:?#*\[{]+)+")
_PLAIN_NAME = re.compile(r"(?!\.{1,2}$)[^:?#%\0*\[{]+")

#: So many files of one folder are found by listing it, unless it holds many times more.
_MANY = 16
_OTHERS = 50

#: What may be missing, and then has no files: nothing, what fits patterns, or whatever was named.
Missing: TypeAlias = Literal["error", "patterns", "any"]

S = TypeVar("S")
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
        The folder that was named, or that fits a pattern, or that files that were named or fit are
        in; the manifest is of it.
    is_folder : bool
        Whether the files are all that `root` holds, and not some in it.
    below : str
        The folder below which names of folders are partition values.
    infos : list of FileInfo
        The files.
    manifest : Manifest or None
        That of `root`.
    manifests : mapping of str to Manifest
        Those of other data sets that the files are in, by their folders: data sets below `root`,
        and the one of which a part was named.
    """

    location: int
    storage: Storage
    root: str
    is_folder: bool
    below: str
    infos: list[FileInfo]
    manifest: Manifest | None
    manifests: Mapping[str, Manifest] = field(default_factory=dict)

    def manifests_of(self, folder: str) -> Iterator[tuple[str, Manifest]]:
        """Give the data sets that a folder is in and their manifests, the nearest first."""
        while folder not in self.manifests and "=" in folder.rpartition("/")[2]:
            folder = _parent(folder)
        if folder in self.manifests:
            yield folder, self.manifests[folder]
        if self.manifest is not None:
            yield self.root, self.manifest


@dataclass(slots=True)
class _Named:
    """Paths of one folder that were named one after the other, or a pattern."""

    location: int
    folder: str
    roots: list[str]
    is_pattern: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """A folder, or what fits a pattern.

    `root`, `below`, `infos`, `is_folder` and `manifest` are as in `Listed`.

    Attributes
    ----------
    others : frozenset of str
        Data sets below the name, which commits have to be asked for as well.
    logged : mapping
        The files that the log of Spark's file sink names, by the folder that it is in.
    """

    root: str
    below: str
    infos: Sequence[FileInfo]
    is_folder: bool
    manifest: Manifest | None = None
    others: frozenset[str] = frozenset()
    logged: Mapping[str, frozenset[str]] = field(default_factory=dict)


_LookOf: TypeAlias = Callable[[Storage, str], _Look | FileInfo]


def _of_file(look: _Look | FileInfo) -> _Look:
    if isinstance(look, _Look):
        return look
    folder = _parent(look.path)
    return _Look(root=folder, below=folder, infos=[look], is_folder=False)


def list_paths(
    paths: Sequence[str | os.PathLike[str]],
    storage_options: Mapping[str, Any],
    missing: Missing = "error",
) -> tuple[tuple[str, ...], list[Listed]]:
    """List what paths stand for.

    Parameters
    ----------
    paths : list of str or path-like
        Folders, files and patterns.
    storage_options : mapping
        For the file systems.
    missing : {"error", "patterns", "any"}
        What may be missing.

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
    named, locations, storages = _open(paths, storage_options)
    manifests = [functools.cache(partial(read_manifest, storage)) for storage in storages]
    look_of = _look_if_there if missing == "any" else _look
    looks = [
        _look_at(
            storage,
            [one for one in named if one.location == location and not one.is_pattern],
            look_of,
        )
        for location, storage in enumerate(storages)
    ]
    found: list[Listed] = []
    # The folder of the files that were named last, one after the other.
    together: tuple[int, str] | None = None
    for one in named:
        location = one.location
        storage, folder = storages[location], (location, one.folder)
        for look in _looks_of(one, storage, looks[location], missing):
            if isinstance(look, FileInfo):
                if together == folder:
                    found[-1].infos.append(look)
                    continue
                together = folder
                look = _of_file(look)
            else:
                together = None
            data_sets = _data_sets_of(look)
            described = {name: manifests[location](name) for name in sorted(data_sets)}
            known = {name: one for name, one in described.items() if one is not None}
            found.append(
                Listed(
                    location=location,
                    storage=storage,
                    root=look.root,
                    is_folder=look.is_folder,
                    below=look.below,
                    infos=_committed(look, {look.root: look.manifest, **known}),
                    manifest=look.manifest,
                    manifests=known,
                )
            )
    return tuple(locations), found


def _looks_of(
    one: _Named, storage: Storage, looks: Mapping[str, _Look | FileInfo], missing: Missing
) -> Iterable[_Look | FileInfo]:
    if one.is_pattern:
        return _look_for(storage, *one.roots, may_be_missing=missing != "error")
    return map(looks.__getitem__, one.roots)


def _open(
    paths: Sequence[str | os.PathLike[str]], storage_options: Mapping[str, Any]
) -> tuple[list[_Named], list[str], list[Storage]]:
    """Return what is named, and a URL of each storage and the storage."""
    stores: dict[str, int] = {}
    locations: list[str] = []
    storages: list[Storage] = []

    def opening(url: str, known_as: str) -> tuple[int, str]:
        storage, root = open_storage(url, storage_options)
        location = stores.setdefault(_store_of(url), len(stores))
        if location == len(locations):
            locations.append(known_as)
            storages.append(storage)
        return location, root

    named: list[_Named] = []
    # Of many names in one folder the folder is opened once.
    folders: dict[str, tuple[int, str]] = {}
    last: str | None = None
    for path in paths:
        url = path_text(path)
        parent, _, name = url.rpartition("/")
        if not _PLAIN_NAME.fullmatch(name) or (
            parent != last and not _PLAIN_FOLDER.fullmatch(parent)
        ):
            location, root = opening(url, url)
            is_pattern = (
                bool(_MAGIC.search(root))
                and not has_query(url)
                and not storages[location].exists(root)
            )
            named.append(_Named(location, _parent(root), [root], is_pattern))
            last = None
            continue
        if parent != last:
            if parent not in folders:
                folders[parent] = opening(parent, url)
            location, folder = folders[parent]
            named.append(_Named(location, folder, []))
            last = parent
        named[-1].roots.append(f"{folder}/{name}")
    return named, locations, storages


def _store_of(url: str) -> str:
    """Return the part of a URL that says which storage it is in."""
    match = _STORE.match(url)
    return url if "::" in url else match[0] if match else ""


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def fixed_part(path: str) -> str:
    """Return the folder that all that fits a pattern is below; any other path as it is.

    Examples
    --------
    >>> fixed_part("/in/p=[12]*/x"), fixed_part("/in/p=1")
    ('/in', '/in/p=1')
    """
    magic = _MAGIC.search(path)
    return _parent(path[: magic.start()]) if magic else path


def _data_sets_of(look: _Look) -> set[str]:
    """Return the data sets that files are in, but for the one whose manifest was read."""
    if not look.is_folder:
        return {data_set_of(_parent(info.path)) for info in look.infos}
    return {*look.others, data_set_of(look.root)} - {look.root}


def _committed(look: _Look, manifests: Mapping[str, Manifest | None]) -> list[FileInfo]:
    """Return the files without those that a killed batch of a stream of Spark's left.

    What its log does not name may have been added by a commit of ours.
    """
    infos = [*look.infos]
    for folder, logged in look.logged.items():
        manifest, below = manifests.get(folder), f"{folder.rstrip('/')}/"
        ours = {below + file.path for file in manifest.files} if manifest is not None else set()
        infos = [
            info
            for info in infos
            if not info.path.startswith(below) or info.path in logged or info.path in ours
        ]
    return infos


# --- names ----------------------------------------------------------------------------------------


def _look_at(
    storage: Storage, named: list[_Named], look_of: _LookOf
) -> dict[str, _Look | FileInfo]:
    """Look at folders and files; many files in one folder are found together."""
    groups: dict[str, list[str]] = defaultdict(list)
    for one in named:
        groups[one.folder] += one.roots
    many = {folder: roots for folder, roots in groups.items() if len(roots) >= _MANY}
    looks: dict[str, _Look | FileInfo] = {}
    if many:
        find = partial(ask_each, storage, _found_of, list(many.items()))
        # Who may read files, of a web server most often, may not be let list their folder.
        with contextlib.suppress(OSError):
            for infos in _stable(storage, many, find):
                looks.update(infos)
    rest = [*dict.fromkeys(root for one in named for root in one.roots if root not in looks)]
    find_one = partial(_stable_look, look_of)
    looks.update(zip(rest, ask_each(storage, find_one, rest), strict=True))
    return looks


class _TooManyOthersError(Exception):
    """A folder holds many more files than are asked for."""


def _found_of(storage: Storage, group: tuple[str, list[str]]) -> dict[str, FileInfo]:
    """Return the files of a folder, by their paths, that are asked for and there.

    Others of their names, further below, come with them.
    """
    folder, paths = group
    names = {path.rpartition("/")[2] for path in paths}
    others = 0

    def keep(name: str) -> bool:
        nonlocal others
        if name in names:
            return True
        others += 1
        if others > _OTHERS * len(names):
            raise _TooManyOthersError
        return False

    try:
        found = storage.list_files(folder, keep)
    except (FileNotFoundError, _TooManyOthersError):
        return {}
    return {info.path: info for info in found}


def _stable_look(look_of: _LookOf, storage: Storage, root: str) -> _Look | FileInfo:
    asked = {root}
    while True:
        look = _stable(storage, asked, partial(look_of, storage, root))
        if isinstance(look, _Look) and not look.infos and look.manifest is None:
            # A first write makes the folder just before the hidden one in it, and one that fails
            # removes it just after.
            time.sleep(_MAKING_SECONDS)
            look = _stable(storage, asked, partial(look_of, storage, root))
        if isinstance(look, FileInfo) or look.others <= asked:
            return look
        asked |= look.others


def _look(storage: Storage, root: str) -> _Look | FileInfo:
    try:
        return _look_once(storage, root)
    except DatasetChangedError:
        # The log of a stream that runs may name files that came after their folder was listed.
        return _look_once(storage, root)


def _look_once(storage: Storage, root: str) -> _Look | FileInfo:
    infos = []
    others = set()
    logs: dict[str, list[str]] = defaultdict(list)
    has_manifest = False
    for info in storage.list_files(root, _is_of_interest):
        if info.path == root:
            return info
        # Most paths hold none of the names, and finding that out is quick.
        if "/_" in info.path or "/." in info.path:
            names = info.path[len(root.rstrip("/")) + 1 :].split("/")
            depths = [names.index(name) for name in _OF_WRITERS if name in names]
            if depths:
                depth = min(depths)
                folder = "/".join((root.rstrip("/"), *names[:depth])) or root
                if names[depth] == SINK_LOG_NAME:
                    logs[folder].append("/".join(names[depth + 1 :]))
                    continue
                has_manifest |= names[0] == MANIFEST_NAME
                others.add(folder)
                continue
        infos.append(info)
    infos.sort(key=lambda info: reading_order(info.path))
    if not infos and not has_manifest and storage.exists(f"{root}/{STAGING_NAME}"):
        # The folder is there for no other reason; see `tfrecord_io.commit.staging`.
        raise FileNotFoundError(
            errno.ENOENT,
            "there are no data yet: the first write to it runs, or was killed; tfrecord_io.clean "
            "tells which",
            storage.url(root),
        )
    return _Look(
        root=root,
        below=root,
        infos=infos,
        is_folder=True,
        manifest=read_manifest(storage, root) if has_manifest else None,
        others=frozenset(others),
        logged={
            folder: committed_files(storage, folder, batches, (info.path for info in infos))
            for folder, batches in logs.items()
        },
    )


def _look_if_there(storage: Storage, root: str) -> _Look | FileInfo:
    try:
        return _look(storage, root)
    except FileNotFoundError:
        return _Look(root=root, below=root, infos=[], is_folder=True)


def _is_of_interest(name: str) -> bool:
    return is_data_name(name) or name in _OF_WRITERS


# --- patterns -------------------------------------------------------------------------------------


def _look_for(storage: Storage, pattern: str, *, may_be_missing: bool) -> list[_Look]:
    """Look for what fits a pattern; partition folders begin below its fixed part."""
    base = fixed_part(pattern)
    # Usually all that fits is of the data set that the fixed part is in.
    asked = {base} if base else set()
    while True:
        find = partial(_fitting, storage, pattern, base, may_be_missing=may_be_missing)
        found, folders = _stable(storage, asked, find)
        others = {data_set_of(folder) for folder in folders}
        others.update(*(look.others for look in found if isinstance(look, _Look)))
        if others <= asked | {data_set_of(base)}:
            break
        asked |= others
    together: list[_Look] = []
    files: list[FileInfo] = []
    for look in found:
        if isinstance(look, _Look):
            files = []
            together.append(replace(look, below=base))
            continue
        if not files:
            together.append(_Look(root=base, below=base, infos=files, is_folder=False))
        files.append(look)
    return together


def _fitting(
    storage: Storage, pattern: str, base: str, *, may_be_missing: bool
) -> tuple[list[_Look | FileInfo], Iterable[str]]:
    """Return what fits in the order of its names, and the folders that it is or is in."""
    found: dict[str, FileInfo | None] = {}
    for one in without_braces(pattern):
        found |= storage.glob(one)
    if not found and not may_be_missing:
        raise FileNotFoundError(f"no file fits {storage.url(pattern)}")
    folders = {path.rstrip("/") for path, info in found.items() if info is None}
    hidden: dict[str, bool] = {}
    fitting: list[tuple[str, FileInfo | None]] = []
    places: set[str] = set()
    for path in sorted(found, key=reading_order):
        info = found[path]
        path = path.rstrip("/")
        folder, _, name = path.rpartition("/")
        if folder not in hidden:
            hidden[folder] = not _is_visible(folder[len(base) :]) or _is_in(folder, base, folders)
        if not hidden[folder] and is_data_name(name):
            fitting.append((path, info))
            places.add(path if info is None else folder)
    # What holds a manifest and nothing else is an empty data set.
    if not (fitting or may_be_missing or any(path.endswith(f"/{MANIFEST_NAME}") for path in found)):
        raise FileNotFoundError(
            f"no file fits {storage.url(pattern)} but those that are hidden, whose names or "
            "folders begin with '_' or '.': name them, without a pattern"
        )
    roots = [path for path, info in fitting if info is None]
    look_of = _look_if_there if may_be_missing else _look
    looks = dict(zip(roots, ask_each(storage, look_of, roots), strict=True))
    return [_of_file(looks[path]) if info is None else info for path, info in fitting], places


def without_braces(pattern: str) -> list[str]:
    """Return patterns that say together what one with ``{a,b}`` says.

    Examples
    --------
    >>> without_braces("{a,b{1,2}}.x")
    ['a.x', 'b1.x', 'b2.x']
    >>> without_braces("[{]a,b}")
    ['[{]a,b}']
    """
    found = _BRACES.search(pattern)
    if found is None:
        return [pattern]
    head, tail = pattern[: found.start()], pattern[found.end() :]
    choices = found[1].split(",")
    return [*dict.fromkeys(one for part in choices for one in without_braces(head + part + tail))]


def _is_in(folder: str, base: str, folders: set[str]) -> bool:
    """Return whether a folder, or one above it, is among those that come with all they hold."""
    while folder not in folders:
        if len(folder) <= len(base):
            return False
        folder = _parent(folder)
    return True


def _is_visible(path: str) -> bool:
    return all(is_data_name(name) for name in path.split("/") if name)


# --- in one state ---------------------------------------------------------------------------------


def _stable(storage: Storage, folders: Iterable[str], look: Callable[[], T]) -> T:
    """Look while nothing is published in the data sets of some folders."""
    asked = sorted(folders)
    for _ in range(_LISTING_TRIES):
        before = ask_each(storage, check_not_committing, asked)
        found = look()
        if ask_each(storage, check_not_committing, asked) == before:
            return found
    raise DatasetChangedError(
        "the data set is being written again and again; read it when its writers are done",
        path=storage.url(asked[0]),
    )


def ask_each(storage: Storage, ask: Callable[[Storage, S], U], paths: Sequence[S]) -> list[U]:
    """Ask a store about each of some paths, about several at a time where it lets us."""
    return each(partial(ask, storage), paths, storage.concurrency)
