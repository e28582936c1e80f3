"""URLs without what must not be shown."""

from __future__ import annotations

from urllib.parse import urlsplit

#: In URLs of these "?" and "#" stand for themselves, in the names of files and folders.
_OF_NAMES = {"file", "gcs", "gs", "hdfs", "memory", "s3"}


#: URLs of these have nothing but a name in an archive.
_OF_ARCHIVES = {"libarchive", "tar", "zip"}


def redact(url: str) -> str:
    """Return a URL, or several in a chain, without users, passwords, queries and fragments.

    Examples
    --------
    >>> redact("https://me:secret@host/a?token=x")
    'https://host/a'
    >>> redact("simplecache::https://me:secret@host/a")
    'simplecache::https://host/a'
    >>> redact("memory:///a#b")
    'memory:///a#b'
    """
    return "::".join(map(_redact, url.split("::"))) if "://" in url else url


def _redact(url: str) -> str:
    if "://" not in url:
        return url
    scheme, _, below = url.partition("://")
    if scheme in _OF_ARCHIVES:
        return url
    if scheme in _OF_NAMES:
        host, slash, path = below.partition("/")
        return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"
    try:
        parts = urlsplit(url)
    except ValueError:
        # Where the parts end is not known.
        return f"{scheme}://..."
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
