"""Files of web servers by their names: fsspec takes and gives their URLs, where names are quoted.

A folder ``city=S%C3%A3o`` of a URL has the name ``city=São``, as it has on the disk of the server.
What is in a folder are the links of its page, which fsspec takes as they stand in it.
"""

from __future__ import annotations

import errno
import html
import re
from collections.abc import Callable
from typing import Any, BinaryIO
from urllib.parse import quote, unquote

from tfrecord_io.storage.redaction import redact

#: What comes before the path of a URL, and the path.
_PARTS = re.compile(r"([^/]*//[^/]*)(.*)", re.DOTALL)

#: What says in a path that the folder is meant that stands there.
_HERE = re.compile(r"/(?:\./)+")

#: What a URL's path may hold as it is: https://www.rfc-editor.org/rfc/rfc3986#section-3.3
_PLAIN = "/:@!$&'()*+,;="


class WebFiles:
    """What `tfrecord_io.storage.generic.FsspecStorage` reads of a file system, by names.

    Parameters
    ----------
    filesystem : fsspec.AbstractFileSystem
        Asks the servers, or keeps what is read of them.
    behind : fsspec.implementations.http.HTTPFileSystem
        Asks the servers.
    """

    def __init__(self, filesystem: Any, behind: Any) -> None:
        self._filesystem = filesystem
        self._behind = behind

    def __getattr__(self, name: str) -> Any:
        # What the others below do not name takes no path, or writes, which no server lets us.
        return getattr(self._filesystem, name)

    def unstrip_protocol(self, path: str) -> str:
        """Return a URL."""
        return quoted(path)

    def find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = True
    ) -> dict[str, Any]:
        """Return what is below a folder, by its path, or the file."""
        del detail
        found: dict[str, Any] = {}
        # Each with what the two folders above it hold.
        folders: list[tuple[str, list[set[str]]]] = [(path, [])]
        level = 0
        while folders and level != maxdepth:
            deeper = []
            for folder, above in folders:
                try:
                    links = self.ls(folder)
                except FileNotFoundError:
                    continue
                names = {one["name"].removeprefix(folder) for one in links}
                inner = [one["name"] for one in links if one["type"] == "directory"]
                if inner and above == [names, names]:
                    # A page that is given for every folder has its links again below each of them.
                    raise OSError(
                        errno.ELOOP,
                        "the server has the same links in each folder, without an end",
                        redact(quoted(folder)),
                    )
                deeper += [(name, [*above[-1:], names]) for name in inner]
                found |= {
                    one["name"]: one for one in links if withdirs or one["type"] != "directory"
                }
            folders, level = deeper, level + 1
        if not found and self.exists(path):
            found[path] = {}
        return found

    def ls(self, path: str, detail: bool = True) -> list[dict[str, Any]]:
        """Return what is in a folder: what its page has links to."""
        del detail
        found = {}
        for one in self._filesystem.ls(quoted(path)):
            # As it stands in HTML, and perhaps begins with "./".
            link = _HERE.sub("/", html.unescape(one["name"]))
            below, mark, _ = re.split("([?#]|$)", link, maxsplit=1)
            name = unquoted(below).rstrip("/")
            # Pages have links to themselves in another order, and to folders above.
            is_below = name.startswith(f"{path.rstrip('/')}/") and "/../" not in f"{below}/"
            if is_below and not (mark and below.endswith("/")):
                found[name] = {**one, "name": name}
        return [*found.values()]

    def glob(self, pattern: str, detail: bool = True) -> dict[str, Any]:
        """Return what fits a pattern."""
        from fsspec.utils import glob_translate

        del detail
        folder = re.split(r"[*?[]", pattern, maxsplit=1)[0].rpartition("/")[0]
        levels = None if "**" in pattern else pattern.rstrip("/").count("/", len(folder))
        fits = re.compile(glob_translate(pattern.rstrip("/"))).match
        found = self.find(folder, maxdepth=levels, withdirs=True)
        return {path: one for path, one in found.items() if fits(path.rstrip("/"))}

    def info(self, path: str) -> dict[str, Any]:
        """Return what a server tells of a file or folder."""
        # Most caches ask the listing of the folder, which tells no sizes.
        return {**self._behind.info(quoted(path)), "name": path}

    def isdir(self, path: str) -> bool:
        """Return whether there is a folder."""
        return bool(self._filesystem.isdir(quoted(path)))

    def exists(self, path: str) -> bool:
        """Return whether there is a file or folder."""
        return bool(self._filesystem.exists(quoted(path)))

    def cat_file(self, path: str, **options: Any) -> bytes:
        """Return bytes of a file."""
        return bytes(self._filesystem.cat_file(quoted(path), **options))

    def open(self, path: str, mode: str) -> BinaryIO:
        """Open a file."""
        file: BinaryIO = self._filesystem.open(quoted(path), mode)
        return file


def quoted(path: str) -> str:
    """Return the URL of a path.

    Examples
    --------
    >>> quoted("http://host/city=a#b")
    'http://host/city=a%23b'
    """
    return _with_path(path, lambda below: quote(below, _PLAIN, errors="surrogateescape"))


def unquoted(url: str) -> str:
    """Return the path of a URL without a query."""
    return _with_path(url, lambda below: unquote(below, errors="surrogateescape"))


def _with_path(url: str, change: Callable[[str], str]) -> str:
    match = _PARTS.fullmatch(url)
    return url if match is None else match[1] + change(match[2])
