"""Paths and store settings as Spark means them, to URLs and storage options.

The one place where ``fs.defaultFS``, ``fs.s3a.*``, ``fs.azure.*`` and ``fs.gs.*`` are understood:
pure functions on strings.
"""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from tfrecord_io.errors import OptionError

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
#: What stands before the path of a URL that names no host.
_NO_HOST = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?://)?(?=/(?!/))")
_S3A, _AZURE, _GCS = "fs.s3a.", "fs.azure.", "fs.gs."


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
        Hadoop's settings; those of one bucket or account go before those of all.

    Examples
    --------
    >>> storage_options("s3a://b/x", {"fs.s3a.endpoint": "host:9000",
    ...     "fs.s3a.connection.ssl.enabled": "false", "fs.s3a.path.style.access": "true"})
    {'client_kwargs': {'endpoint_url': 'http://host:9000'}, 'config_kwargs': \
{'s3': {'addressing_style': 'path'}}}
    """
    parts = urlsplit(url)
    options_of = _OPTIONS.get(parts.scheme)
    return {} if options_of is None else options_of(parts.netloc, hadoop)


def shared_options(urls: Sequence[str], hadoop: Mapping[str, str]) -> dict[str, Any]:
    """Return the storage options of URLs that are read together.

    Raises
    ------
    OptionError
        Settings of their buckets differ, and a read has one set of options for all.
    """
    of_buckets = [
        (urlsplit(url).netloc, storage_options(url, hadoop))
        for url in urls
        if urlsplit(url).scheme in _OPTIONS
    ]
    for name, options in of_buckets:
        first, shared = of_buckets[0]
        if options != shared:
            raise OptionError(
                f"the buckets {first!r} and {name!r} have different settings, such as "
                f"{_S3A}bucket.*, and what is read together has those of one: load them apart, and "
                "put them together by union"
            )
    return of_buckets[0][1] if of_buckets else {}


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


def _azure_options(container: str, hadoop: Mapping[str, str]) -> dict[str, Any]:
    """Return what the ABFS connector's settings say in adlfs's words.

    https://hadoop.apache.org/docs/stable/hadoop-azure/abfs.html
    """
    host = container.rpartition("@")[2]

    def setting(name: str) -> str:
        return hadoop.get(f"{_AZURE}{name}.{host}") or hadoop.get(f"{_AZURE}{name}") or ""

    kind = setting("account.auth.type").lower() or "sharedkey"
    found = {}
    if kind == "sharedkey":
        found["account_key"] = setting("account.key")
    elif kind == "sas":
        found["sas_token"] = setting("sas.fixed.token")
    elif setting("account.oauth.provider.type").endswith("ClientCredsTokenProvider"):
        # https://login.microsoftonline.com/TENANT/oauth2/token
        endpoint = urlsplit(setting("account.oauth2.client.endpoint"))
        found["tenant_id"] = endpoint.path.strip("/").partition("/")[0]
        found["client_id"] = setting("account.oauth2.client.id")
        found["client_secret"] = setting("account.oauth2.client.secret")
    return {name: value for name, value in found.items() if value}


def _gcs_options(bucket: str, hadoop: Mapping[str, str]) -> dict[str, Any]:
    """Return what the settings of Google's connector say in gcsfs's words.

    https://github.com/GoogleCloudDataproc/hadoop-connectors/blob/master/gcs/CONFIGURATION.md
    """
    del bucket

    def setting(name: str) -> str:
        return hadoop.get(f"{_GCS}{name}", "")

    # By default it is COMPUTE_ENGINE, and then gcsfs asks the environment and the machine.
    keyfile = setting("auth.service.account.json.keyfile")
    tokens = {"UNAUTHENTICATED": "anon", "APPLICATION_DEFAULT": "google_default"}
    found = {
        "token": tokens.get(setting("auth.type").upper(), keyfile),
        "project": setting("project.id"),
        "endpoint_url": setting("storage.root.url").rstrip("/"),
    }
    return {name: value for name, value in found.items() if value}


_OPTIONS: dict[str, Callable[[str, Mapping[str, str]], dict[str, Any]]] = {
    **dict.fromkeys(("s3", "s3a", "s3n"), _s3_options),
    **dict.fromkeys(("abfs", "abfss"), _azure_options),
    "gs": _gcs_options,
}
