"""URLs and paths to storages.

`open_storage` turns a URL or path into a `Storage` and a path in it: local disk by the operating
system's calls, S3 by s3fs, HDFS by hdfs-native, everything else by its fsspec file system.
"""

from __future__ import annotations

import os
import re
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tfrecord_io.errors import CorruptDataError, MissingDependencyError, OptionError
from tfrecord_io.options import settings
from tfrecord_io.parallel import thread_count
from tfrecord_io.storage import objects
from tfrecord_io.storage.generic import CACHES, FsspecStorage
from tfrecord_io.storage.local import LocalStorage as LocalStorage
from tfrecord_io.storage.protocol import FileInfo as FileInfo
from tfrecord_io.storage.protocol import Sink as Sink
from tfrecord_io.storage.protocol import Storage as Storage
from tfrecord_io.storage.protocol import Tree as Tree
from tfrecord_io.storage.protocol import Upload as Upload
from tfrecord_io.storage.redaction import redact as redact
from tfrecord_io.storage.web_files import WebFiles, unquoted

#: Hadoop's names of the same store.
_SYNONYMS = {"s3a": "s3", "s3n": "s3", "local": "file"}

#: What brings the usual stores; before that, fsspec knows nothing of "abfss".
_PACKAGES = {
    "s3": "tfrecord-io[s3]",
    "hdfs": "tfrecord-io[hdfs]",
    **dict.fromkeys(("gs", "gcs"), "gcsfs"),
    **dict.fromkeys(("abfs", "abfss", "az"), "adlfs"),
}

#: So many threads work with a remote store at least, however few the cores.
_REMOTE_THREADS = 4

#: What goes on behind "::" with the path or URL of what is wrapped, or no path at all.
_CHAIN = re.compile(
    r"(?:blockcache|cached|filecache|libarchive|reference|simplecache|tar|zip)(?:://.*?)?::"
    r"|[A-Za-z0-9+.-]+::[A-Za-z0-9+.-]+://",
    re.DOTALL,
)

#: A protocol has two letters or more, so that a drive letter is none.
_URL = re.compile(r"(?P<protocol>[A-Za-z][A-Za-z0-9+.-]+)(?:://|:(?=/))")

#: A URL of a web server that is of one file: it has a query, and is taken as it is.
_WITH_QUERY = re.compile(r"(?:.*::)?https?://[^?#]*[?#]", re.DOTALL)

_BUCKET = re.compile(r"[A-Za-z0-9._-]{1,255}")

#: The name of an access point, of Outposts and Object Lambda too, which stands in a bucket's place.
_ACCESS_POINT = re.compile(
    r"(?<=^s3://)arn:[^/]*:(?:outpost[:/][^:/]+[:/])?accesspoint[:/][^:/]+(?=/|$)"
)

#: Of Python's errors about arguments, which show names and no values.
_OF_ARGUMENTS = re.compile(r"missing \d+ required|unexpected keyword argument")

#: hdfs-native asks 15 times, and doubles its pauses up to 15 seconds: good for name nodes that take
#: over from each other. For one at an address Hadoop's client waits a second each time.
_HDFS_ADDRESS = re.compile(r"hdfs://[^/]*:\d+(/|$)")
_OF_HDFS_ADDRESS = {"dfs.client.failover.sleep.max.millis": "1000"}


def open_storage(
    url: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
) -> tuple[Storage, str]:
    """Return the storage of a URL and the path in it.

    Parameters
    ----------
    url : str or path-like
        A bare path (``~`` is expanded), ``file://``, or any URL that fsspec knows. ``s3a`` and
        ``s3n`` mean ``s3``.
    storage_options : mapping, optional
        Passed to the fsspec file system; local paths take none.

    Raises
    ------
    OptionError
        An empty path, a NUL in it, an unknown protocol or user, a file of another host, or options
        that the file system refuses.
    CorruptDataError
        An archive that is none.
    MissingDependencyError
        The protocol's package is not installed.

    Examples
    --------
    >>> open_storage("/data/events/")[1]
    '/data/events'
    """
    options = settings(storage_options)
    text = path_text(url)
    if text.startswith(("dir::", "dir://")):
        raise OptionError(
            f"{redact(text)}: dir:: says no more than which folder of a store is meant; give the "
            "URL of that folder"
        )
    match = _URL.match(text)
    protocol = _protocol(text)
    is_chain = _CHAIN.match(text) is not None
    if protocol == "file" and not is_chain:
        return LocalStorage(), _local_path(text, match)
    if match:
        text = f"{protocol}://{text[match.end() :]}"
        if "::" in text and not is_chain:
            raise OptionError(
                f"{redact(text)} has '::' in it, where fsspec would begin another URL; rename it"
            )
    if protocol == "s3" and not is_chain:
        # Of one part, as all names of buckets: AWS takes either sign there.
        text = _ACCESS_POINT.sub(lambda match: match[0].replace("/", ":"), text)
        _check_bucket(text)
    if text.startswith(("http:///", "https:///")) or text in ("http://", "https://"):
        raise OptionError(f"{text} names no host; write {protocol}://host/path")
    storage, path = _open_fsspec(text, protocol, options)
    _, slash, name = text.partition("://")[2].rstrip("/").rpartition("/")
    if (
        slash
        and not is_chain
        and protocol not in ("http", "https")
        and name != path.rpartition("/")[2]
    ):
        raise OptionError(
            f"{redact(text)} cannot be opened: its file system takes it for {path}; rename it, "
            "without '#', '?' and the like"
        )
    return storage, path


def path_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a path or URL.

    Raises
    ------
    OptionError
        It is none, is empty, or has a NUL in it.
    """
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else path
    if not isinstance(text, str) or not text or "\0" in text:
        raise OptionError(f"{text!r} is not a path or URL")
    return text


def has_query(url: str) -> bool:
    """Return whether a URL is of a web server and has a query, and so is no pattern.

    Examples
    --------
    >>> has_query("https://host/x?token=a"), has_query("https://host/x-?"), has_query("s3://b/x?")
    (True, True, False)
    """
    return _WITH_QUERY.match(url) is not None


def _local_path(text: str, match: re.Match[str] | None) -> str:
    """Return the absolute path of a path or, where `_URL` matches, of a URL of this machine."""
    if match:
        host, slash, below = text[match.end() :].partition("/")
        if host.lower() not in ("", "localhost") or not slash:
            raise OptionError(
                f"{redact(text)} names a file of the host {host.rpartition('@')[2]!r}, and only "
                "files of this machine are read and written: give a path, or a URL with three "
                "slashes, file:///folder"
            )
        text = f"/{below}"
    # Not pathlib's, which takes ./~ for ~.
    expanded = os.path.expanduser(text)  # noqa: PTH111
    if text[0] == "~" and expanded == text:
        raise OptionError(
            f"{text} begins with the home folder of a user whom this machine does not know; write "
            f"./{text} for a path of that name"
        )
    return str(Path(os.path.abspath(expanded)))  # noqa: PTH100


def _check_bucket(url: str) -> None:
    bucket = url.partition("://")[2].partition("/")[0]
    if not bucket:
        raise OptionError(f"{url} names no bucket; write s3://bucket/path")
    if "@" in bucket or (":" in bucket and not bucket.startswith("arn:")):
        # As Hadoop once took them. Nothing of it is shown: a secret may have a slash in it.
        raise OptionError(
            "an S3 URL has no credentials in it; give them as storage_options, key and secret"
        )
    if bucket.startswith("arn:"):
        if not _ACCESS_POINT.match(url, len("s3://")):
            raise OptionError(
                f"{url} names no access point of S3; write "
                "s3://arn:aws:s3:region:account:accesspoint/name/path"
            )
    elif not _BUCKET.fullmatch(bucket):
        raise OptionError(
            f"{url} names the bucket {bucket!r}, and the names of buckets hold no other characters "
            "than letters, digits, '.', '-' and '_'"
        )


def _protocol(text: str) -> str:
    match = _URL.match(text)
    protocol = match["protocol"].lower() if match else "file"
    return _SYNONYMS.get(protocol, protocol)


def target_options(
    target: str | os.PathLike[str],
    sources: Iterable[str | os.PathLike[str]],
    storage_options: Mapping[str, Any] | None,
    target_storage_options: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return the options of a target: its own, or if there are none, those of sources like it.

    Examples
    --------
    >>> target_options("s3://a/x", ["s3://b/y"], {"anon": True}, None)
    {'anon': True}
    >>> target_options("hdfs://a/x", ["s3://b/y"], {"anon": True}, None)
    {}
    """
    if target_storage_options is not None:
        return settings(target_storage_options, "target_storage_options")
    protocols = {_protocol(path_text(source)) for source in sources}
    return settings(storage_options) if _protocol(path_text(target)) in protocols else {}


def threads_for(
    urls: Iterable[str], storage_options: Mapping[str, Any] | None, threads: int | None
) -> int:
    """Return how many threads read or write: as many as asked for, or what suits the stores.

    Threads that wait for a remote store use no core, so there are some more of them.
    """
    count = thread_count(threads)
    if threads is not None:
        return count
    opened = (open_storage(url, storage_options) for url in urls)
    is_local = all(storage.local_path(path) is not None for storage, path in opened)
    return count if is_local else max(count, _REMOTE_THREADS)


def _open_fsspec(url: str, protocol: str, options: dict[str, Any]) -> tuple[Storage, str]:
    import fsspec

    if _HDFS_ADDRESS.match(url):
        options = {**_OF_HDFS_ADDRESS, **options}
    if protocol in objects.OBJECT_STORES:
        options = {**objects.OPTIONS, **options}
    try:
        filesystem, path = fsspec.core.url_to_fs(url, **options)
    except ImportError as error:
        # Of which store in a chain it is, fsspec tells.
        what = redact(url) if "::" in url else f"{protocol}://"
        raise _missing_package(what, _PACKAGES.get(protocol), str(error)) from error
    except (ValueError, TypeError) as error:
        # Other texts may tell what is secret.
        unknown = str(error).removeprefix("Protocol not known: ")
        if unknown != str(error) and unknown in _PACKAGES:
            raise _missing_package(f"{unknown}://", _PACKAGES[unknown]) from error
        why = f"fsspec knows no {unknown}://" if unknown != str(error) else type(error).__name__
        if "support range requests" in str(error):
            why = "the server gives no parts of files; put simplecache:: before its URL"
        elif isinstance(error, TypeError) and _OF_ARGUMENTS.search(str(error)):
            why = f"its storage_options do not suit: {error}"
        raise OptionError(f"{redact(url)} cannot be opened: {why}") from None
    except (zipfile.BadZipFile, tarfile.TarError) as error:
        raise CorruptDataError(f"the archive cannot be read: {error}", path=redact(url)) from error
    except RuntimeError as error:
        if protocol != "hdfs":
            raise
        # hdfs-native's, of a URL without a port that no configuration knows either.
        raise OptionError(
            f"{redact(url)} cannot be opened: {error}; write hdfs://host:port/path, or let "
            "HADOOP_CONF_DIR name the folder of the configuration that knows the host"
        ) from error
    return _storage_of(filesystem, path, url)


def _storage_of(filesystem: Any, path: Any, url: str) -> tuple[Storage, str]:
    """Return the storage of a file system, and the path in it of what fsspec found for a URL."""
    inner = str(path).rstrip("/") or "/"
    # The file system that was found decides: of a chained URL it is the outermost.
    kind = filesystem.protocol if isinstance(filesystem.protocol, str) else filesystem.protocol[0]
    if kind == "s3":
        from tfrecord_io.storage.s3 import S3Storage

        return S3Storage(filesystem), inner
    if kind == "hdfs":
        from tfrecord_io.storage.hdfs import HdfsStorage

        # hdfs-native takes a path for a URL, and leaves out what follows "?" or "#".
        below = url.partition("://")[2].partition("/")[2]
        return HdfsStorage(filesystem), f"/{below}".rstrip("/") or "/"
    behind = filesystem.fs if kind in CACHES else filesystem
    if "http" in behind.protocol:
        if not has_query(inner):
            return FsspecStorage(WebFiles(filesystem, behind), kind), unquoted(inner)
        # A slash in a query ends no folder; it is asked for as before.
        below, mark, query = re.split("([?#])", inner, maxsplit=1)
        return FsspecStorage(filesystem, kind), below + mark + query.replace("/", "%2F")
    if "::" in url and not path:
        # A whole archive; ``tar`` may have put "./" before all names.
        if not filesystem.isdir("."):
            return FsspecStorage(filesystem, kind, begin="/"), ""
        inner = "."
    if kind in objects.OBJECT_STORES:
        return objects.OBJECT_STORES[kind](filesystem, kind), inner
    return FsspecStorage(filesystem, kind), inner


def _missing_package(what: str, package: str | None, told: str = "") -> MissingDependencyError:
    how = f": {told}" if package is None and told else f"; install {package or 'its package'}"
    return MissingDependencyError(f"{what} needs a package that is not installed{how}")
