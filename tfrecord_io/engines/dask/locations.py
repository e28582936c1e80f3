"""Paths as Dask's users give them, with a file system object or without, as the core takes them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from tfrecord_io.errors import MissingDependencyError, OptionError
from tfrecord_io.options import settings
from tfrecord_io.reading.files import Paths, as_list
from tfrecord_io.storage import path_text


def check_dataframe() -> None:
    """Raise `MissingDependencyError` unless dask.dataframe can be imported."""
    try:
        import dask.dataframe  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            "dask.dataframe needs pandas, which is not installed: pip install 'tfrecord-io[dask]'"
        ) from error


def located(
    path: Paths, filesystem: Any, storage_options: Mapping[str, Any] | None
) -> tuple[Any, dict[str, Any]]:
    """Return URLs, or what was given if there is no file system object, and storage options.

    Raises
    ------
    OptionError
        A file system that is none of fsspec's, or that comes with storage options.
    """
    options = settings(storage_options)
    if filesystem is None or filesystem == "fsspec":
        return path, options
    # Whoever has a file system has loaded fsspec.
    fsspec = sys.modules.get("fsspec")
    if fsspec is None or not isinstance(filesystem, fsspec.AbstractFileSystem):
        raise OptionError(
            f"filesystem is {filesystem!r}; give an fsspec file system, or none at all and a URL"
        )
    if options:
        raise OptionError("storage_options and filesystem are both given; the latter has its own")
    filesystem, paths = _behind(filesystem, [path_text(one) for one in as_list(path)])
    if filesystem.storage_args:
        raise OptionError(
            f"this {type(filesystem).__name__} was made with positional arguments; give a URL and "
            "storage_options instead"
        )
    urls = [filesystem.unstrip_protocol(one) for one in paths]
    is_one = isinstance(path, str | os.PathLike)
    return urls[0] if is_one else urls, dict(filesystem.storage_options)


def _behind(filesystem: Any, paths: list[str]) -> tuple[Any, list[str]]:
    """Return the file system that is behind others, and paths in it.

    Raises
    ------
    OptionError
        It cannot be named by a URL and options.
    """
    from fsspec.implementations.arrow import ArrowFSWrapper
    from fsspec.implementations.cached import CachingFileSystem
    from fsspec.implementations.dirfs import DirFileSystem

    while isinstance(filesystem, DirFileSystem):
        paths = ["/".join(filter(None, (filesystem.path, one.strip("/")))) for one in paths]
        filesystem = filesystem.fs
    is_named = filesystem.unstrip_protocol("/").startswith(("file:", "local:"))
    if isinstance(filesystem, ArrowFSWrapper | CachingFileSystem) and not is_named:
        raise OptionError(
            f"filesystem is of type {type(filesystem).__name__}, which stands before another one; "
            "give that one, if it is fsspec's, or none at all and a URL with storage_options"
        )
    return filesystem, paths
