"""Paths and store settings as Spark means them, to URLs and storage options.

The one place where ``fs.defaultFS`` and ``fs.s3a.*`` are understood: pure functions on strings.
"""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from tfrecord_io.errors import OptionError

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
#: What stands before the path of a URL that names no host.
_NO_HOST = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?://)?(?=/(?!/))")
_S3_SCHEMES = ("s3", "s3a", "s3n")
_S3A = "fs.s3a."


def resolve(path: str, hadoop: Mapping[str, str]) -> str:
    """Return a path as a URL, a bare one as a path of the session's default file system.

    So is a URL without a host that has the default's scheme.

    Parameters
    ----------
    path : str
        As given to Spark.
    hadoop : mapping
        Hadoop's settings.

    Examples
    --------
    >>> resolve("/data/x", {"fs.defaultFS": "hdfs://name:8020"})
    'hdfs://name:8020/data/x'
    >>> resolve("hdfs:///data/x", {"fs.defaultFS": "hdfs://name:8020"})
    'hdfs://name:8020/data/x'
    >>> resolve("s3a://bucket/x", {"fs.defaultFS": "hdfs://name:8020"})
    's3a://bucket/x'
    >>> resolve("/data/x", {"fs.defaultFS": "file:///"})
    '/data/x'
    """
    default = hadoop.get("fs.defaultFS", "")
    if not default or default.startswith("file:"):
        return path
    found = _NO_HOST.match(path)
    if found and found["scheme"].lower() == urlsplit(default).scheme:
        return default.rstrip("/") + path[found.end() :]
    if _SCHEME.match(path):
        return path
    rooted = path if path.startswith("/") else f"/user/{_user()}/{path}"
    return default.rstrip("/") + rooted


def _user() -> str:
    """Return whom Hadoop takes this process's user for (``UserGroupInformation``)."""
    return os.environ.get("HADOOP_USER_NAME") or getpass.getuser()


def comma_separated(text: str) -> list[str]:
    """Return the paths of a text that has them with commas, as Hadoop's jobs take it.

    Examples
    --------
    >>> comma_separated("/a,/b/{x,y}")
    ['/a', '/b/{x,y}']
    """
    found, depth = [""], 0
    for sign in text:
        depth += (sign == "{") - (sign == "}")
        if sign == "," and depth <= 0:
            found.append("")
        else:
            found[-1] += sign
    return found


def storage_options(url: str, hadoop: Mapping[str, str]) -> dict[str, Any]:
    """Return the storage options that Hadoop's settings say for a URL.

    Parameters
    ----------
    url : str
        From `resolve`.
    hadoop : mapping
        Hadoop's settings; those of one bucket go before those of all.

    Examples
    --------
    >>> storage_options("s3a://b/x", {"fs.s3a.endpoint": "host:9000",
    ...     "fs.s3a.connection.ssl.enabled": "false", "fs.s3a.path.style.access": "true"})
    {'client_kwargs': {'endpoint_url': 'http://host:9000'}, 'config_kwargs': \
{'s3': {'addressing_style': 'path'}}}
    """
    parts = urlsplit(url)
    return _s3_options(parts.netloc, hadoop) if parts.scheme in _S3_SCHEMES else {}


def shared_options(urls: Sequence[str], hadoop: Mapping[str, str]) -> dict[str, Any]:
    """Return the storage options of URLs that are read together.

    Raises
    ------
    OptionError
        Settings of their buckets differ, and a read has one set of options for all.
    """
    of_buckets = {
        parts.netloc: _s3_options(parts.netloc, hadoop)
        for parts in map(urlsplit, urls)
        if parts.scheme in _S3_SCHEMES
    }
    names = list(of_buckets)
    for name in names[1:]:
        if of_buckets[name] != of_buckets[names[0]]:
            raise OptionError(
                f"the buckets {names[0]!r} and {name!r} have different settings, by "
                f"{_S3A}bucket.*, and what is read together has those of one: load them apart, and "
                "put them together by union"
            )
    return of_buckets[names[0]] if names else {}


def _s3_options(bucket: str, hadoop: Mapping[str, str]) -> dict[str, Any]:
    def setting(name: str) -> str:
        return hadoop.get(f"{_S3A}bucket.{bucket}.{name}") or hadoop.get(f"{_S3A}{name}") or ""

    options: dict[str, Any] = {}
    for name, key in (("access.key", "key"), ("secret.key", "secret"), ("session.token", "token")):
        if setting(name):
            options[key] = setting(name)
    # Hadoop asks providers in their order, and the anonymous one always has an answer.
    first, *others = setting("aws.credentials.provider").split(",")
    if "Anonymous" in first or ("key" not in options and any("Anonymous" in it for it in others)):
        options["anon"] = True
    client = {}
    if endpoint := setting("endpoint"):
        scheme = "http" if setting("connection.ssl.enabled").lower() == "false" else "https"
        client["endpoint_url"] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
    if setting("endpoint.region"):
        client["region_name"] = setting("endpoint.region")
    if client:
        options["client_kwargs"] = client
    if setting("path.style.access").lower() == "true":
        options["config_kwargs"] = {"s3": {"addressing_style": "path"}}
    return options
