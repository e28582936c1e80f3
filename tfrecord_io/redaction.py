"""URLs without what must not be shown."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit


def redact(url: str) -> str:
    """Return a URL without user, password, query and fragment.

    Examples
    --------
    >>> redact("https://me:secret@host/a?token=x")
    'https://host/a'
    """
    if "://" not in url:
        return url
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
