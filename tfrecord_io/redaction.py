"""URLs without what must not be shown."""

from __future__ import annotations

from urllib.parse import urlsplit


def redact(url: str) -> str:
    """Return a URL, or several in a chain, without users, passwords, queries and fragments.

    Examples
    --------
    >>> redact("https://me:secret@host/a?token=x")
    'https://host/a'
    >>> redact("simplecache::https://me:secret@host/a")
    'simplecache::https://host/a'
    >>> redact("memory:///a")
    'memory:///a'
    """
    return "::".join(map(_redact, url.split("::"))) if "://" in url else url


def _redact(url: str) -> str:
    if "://" not in url:
        return url
    try:
        parts = urlsplit(url)
    except ValueError:
        # Where the parts end is not known.
        return f"{url.partition('://')[0]}://..."
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
