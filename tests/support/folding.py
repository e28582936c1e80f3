"""A file system in memory that takes names for one that differ in case or in Unicode's form.

As those of macOS do.
"""

from __future__ import annotations

import unicodedata
from typing import Any, ClassVar

from fsspec.implementations.memory import MemoryFileSystem


class FoldingFiles(MemoryFileSystem):
    """Names are kept as they were first written, and found however they are."""

    protocol = "folding"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        path = super()._strip_protocol(path.replace("folding://", "memory://", 1))
        known = {name for place in (*cls.store, *cls.pseudo_dirs) for name in _lineage(place)}
        kept = {_folded(name): name for name in known}
        for above in _lineage(path):
            if _folded(above) in kept:
                return kept[_folded(above)] + path[len(above) :]
        return path


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()


def _lineage(path: str) -> list[str]:
    """Return a path and all above it."""
    names = path.split("/")
    return ["/".join(names[:count]) for count in range(len(names), 0, -1)]
