"""What is known of a Spark session: the settings that reads and writes go by.

A Python data source runs beside the driver's JVM and sees no settings, so the client collects them:
`of_session` for the classic and the Connect session. They travel as two options, of which the
one with credentials has ``secret`` in its name: Spark then redacts it wherever it shows options.
Settings whose names look secret Spark gives to no Connect client; there they have to be options.
What only ``core-site.xml`` says no such client sees either, so the data source looks there itself,
on the server (`with_site`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tfrecord_io.errors import OptionError

SESSION_OPTION = "tfrecord_io.session"
SECRET_OPTION = "tfrecord_io.secret"

#: Hadoop's settings that say how stores are reached; `tfrecord_io.engines.spark.stores` reads them.
_HADOOP_KEYS = (
    "fs.defaultFS",
    "fs.s3a.access.key",
    "fs.s3a.secret.key",
    "fs.s3a.session.token",
    "fs.s3a.endpoint",
    "fs.s3a.endpoint.region",
    "fs.s3a.path.style.access",
    "fs.s3a.connection.ssl.enabled",
    "fs.s3a.aws.credentials.provider",
    "fs.gs.auth.type",
    "fs.gs.auth.service.account.json.keyfile",
    "fs.gs.project.id",
    "fs.gs.storage.root.url",
)
#: Those of one bucket or account have its name behind that.
_HADOOP_PREFIXES = ("fs.s3a.bucket.", "fs.azure.account.", "fs.azure.sas.fixed.token")

#: Name the folders of configuration that Spark's launcher puts on the class path, in this order
#: (``AbstractCommandBuilder.buildClassPath``).
_CONF_FOLDERS = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR")

_SIZE = re.compile(r"(-?\d+)\s*([kmgtp]?)(?:i?b)?", re.IGNORECASE)
_UNITS = {unit: 1024**power for power, unit in enumerate(("", "k", "m", "g", "t", "p"))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of a session; the defaults are Spark's, but for one.

    Attributes
    ----------
    max_partition_bytes : int
        ``spark.sql.files.maxPartitionBytes``.
    open_cost_bytes : int
        ``spark.sql.files.openCostInBytes``. Spark's default of 4 MiB, what its own sources read
        meanwhile, makes a task of every 32 small files. A task of Python takes longer to begin than
        we take to open hundreds, and where a store takes long, the next files are fetched ahead.
    parallelism : int
        How many tasks run at a time, as far as the client can tell; of tasks that read tables,
        ``spark.sql.leafNodeDefaultParallelism`` may say another number.
    least_partitions, most_partitions : int or None
        ``spark.sql.files.minPartitionNum`` and ``maxPartitionNum``.
    ignore_corrupt_files, ignore_missing_files : bool
        ``spark.sql.files.ignoreCorruptFiles`` and ``ignoreMissingFiles``.
    max_records_per_file : int
        ``spark.sql.files.maxRecordsPerFile``; 0 for no bound.
    dynamic_overwrite : bool
        Whether ``spark.sql.sources.partitionOverwriteMode`` is dynamic.
    speculation : bool
        ``spark.speculation``.
    push_filters : bool
        ``spark.sql.python.filterPushdown.enabled``.
    time_zone : str
        ``spark.sql.session.timeZone``.
    infers_partition_types : bool
        ``spark.sql.sources.partitionColumnTypeInference.enabled``.
    infers_instants : bool
        Whether ``spark.sql.timestampType`` is TIMESTAMP_LTZ.
    case_sensitive : bool
        ``spark.sql.caseSensitive``.
    default_source : str
        ``spark.sql.sources.default``.
    corrupt_column : str
        ``spark.sql.columnNameOfCorruptRecord``.
    hadoop : mapping
        Hadoop's settings of stores, without the prefix ``spark.hadoop.``.
    """

    max_partition_bytes: int = 128 * 1024 * 1024
    open_cost_bytes: int = 64 * 1024
    parallelism: int = 1
    least_partitions: int | None = None
    most_partitions: int | None = None
    ignore_corrupt_files: bool = False
    ignore_missing_files: bool = False
    max_records_per_file: int = 0
    dynamic_overwrite: bool = False
    speculation: bool = False
    push_filters: bool = False
    time_zone: str = "UTC"
    infers_partition_types: bool = True
    infers_instants: bool = True
    case_sensitive: bool = False
    default_source: str = "parquet"
    corrupt_column: str = "_corrupt_record"
    hadoop: Mapping[str, str] = field(default_factory=dict, repr=False)

    def options(self) -> dict[str, str]:
        """Return the options by which the settings travel."""
        shown = asdict(replace(self, hadoop={}))
        del shown["hadoop"]
        return {
            SESSION_OPTION: json.dumps(shown),
            SECRET_OPTION: json.dumps(dict(self.hadoop)),
        }


def from_options(options: Mapping[str, str], default: Settings) -> Settings:
    """Return the settings that came with options; `default` where none did."""
    if SESSION_OPTION not in options:
        return default
    hadoop = json.loads(options.get(SECRET_OPTION, "{}"))
    return Settings(**json.loads(options[SESSION_OPTION]), hadoop=hadoop)


def with_site(settings: Settings) -> Settings:
    """Return settings with those of Hadoop that only this machine's ``core-site.xml`` says."""
    for folder in filter(None, map(os.environ.get, _CONF_FOLDERS)):
        path = Path(folder, "core-site.xml")
        if path.is_file():
            found = _properties(path)
            known = {name: text for name, text in found.items() if _is_of_stores(name)}
            return replace(settings, hadoop={**known, **settings.hadoop})
    return settings


def _properties(path: Path) -> dict[str, str]:
    found = {}
    for one in ElementTree.parse(path).getroot().iter("property"):
        name, value = one.findtext("name"), one.findtext("value")
        if name and value:
            found[name.strip()] = value.strip()
    return found


def is_connect(session: Any) -> bool:
    """Return whether a session is a Spark Connect client."""
    return not hasattr(session, "_jsparkSession")


def of_session(session: Any) -> Settings:
    """Return the settings of a session as they are now."""
    if is_connect(session):
        return from_conf(dict(session.conf.getAll))
    return from_conf(
        _conf_of_jvm(session),
        hadoop=_hadoop_of_jvm(session),
        parallelism=session.sparkContext.defaultParallelism,
    )


def from_conf(
    conf: Mapping[str, str],
    *,
    hadoop: Mapping[str, str] | None = None,
    parallelism: int | None = None,
) -> Settings:
    """Return the settings that a session's ``spark.*`` entries say.

    Parameters
    ----------
    conf : mapping
        What ``session.conf.getAll`` holds.
    hadoop : mapping, optional
        Hadoop's settings; by default the entries ``spark.hadoop.fs.*`` and ``fs.*``.
    parallelism : int, optional
        How many tasks run at a time, if it is known; else worked out from the entries.
    """
    base = Settings()

    def is_true(name: str, default: str = "false") -> bool:
        return conf.get(name, default).lower() == "true"

    def size(name: str, default: int) -> int:
        return parse_bytes(name, conf[name]) if name in conf else default

    def count(name: str) -> int | None:
        return int(conf[name]) if name in conf else None

    overwrite = conf.get("spark.sql.sources.partitionOverwriteMode", "static")
    return Settings(
        max_partition_bytes=size("spark.sql.files.maxPartitionBytes", base.max_partition_bytes),
        open_cost_bytes=size("spark.sql.files.openCostInBytes", base.open_cost_bytes),
        parallelism=count("spark.sql.leafNodeDefaultParallelism")
        or parallelism
        or _parallelism(conf),
        least_partitions=count("spark.sql.files.minPartitionNum"),
        most_partitions=count("spark.sql.files.maxPartitionNum"),
        ignore_corrupt_files=is_true("spark.sql.files.ignoreCorruptFiles"),
        ignore_missing_files=is_true("spark.sql.files.ignoreMissingFiles"),
        max_records_per_file=int(conf.get("spark.sql.files.maxRecordsPerFile", "0")),
        dynamic_overwrite=overwrite.lower() == "dynamic",
        speculation=is_true("spark.speculation"),
        push_filters=is_true("spark.sql.python.filterPushdown.enabled"),
        time_zone=conf.get("spark.sql.session.timeZone", base.time_zone),
        infers_partition_types=is_true(
            "spark.sql.sources.partitionColumnTypeInference.enabled", "true"
        ),
        infers_instants=conf.get("spark.sql.timestampType", "").upper() != "TIMESTAMP_NTZ",
        case_sensitive=is_true("spark.sql.caseSensitive"),
        default_source=conf.get("spark.sql.sources.default", base.default_source),
        corrupt_column=conf.get("spark.sql.columnNameOfCorruptRecord", base.corrupt_column),
        hadoop=_hadoop_of_conf(conf) if hadoop is None else hadoop,
    )


def parse_bytes(name: str, text: str) -> int:
    """Return a size as Spark writes it.

    Examples
    --------
    >>> parse_bytes("maxPartitionBytes", "64m"), parse_bytes("maxPartitionBytes", "134217728b")
    (67108864, 134217728)
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise OptionError(f'{name} is {text!r}; it must be a size such as "128m"')
    size: int = int(found[1]) * _UNITS[found[2].lower()]
    return size


def _parallelism(conf: Mapping[str, str]) -> int:
    if "spark.default.parallelism" in conf:
        return int(conf["spark.default.parallelism"])
    threads = re.match(r"local\[(\d+|\*)", conf.get("spark.master", ""))
    if threads:
        return (os.cpu_count() or 1) if threads[1] == "*" else int(threads[1])
    cores = int(conf.get("spark.executor.cores", "1"))
    return cores * int(conf.get("spark.executor.instances", "1"))


def _is_of_stores(key: str) -> bool:
    return key in _HADOOP_KEYS or key.startswith(_HADOOP_PREFIXES)


def _hadoop_of_conf(conf: Mapping[str, str]) -> dict[str, str]:
    # Those of the application have a prefix; what a session sets itself, without one, goes before.
    prefix = "spark.hadoop."
    named = {key.removeprefix(prefix): conf[key] for key in conf if key.startswith(prefix)}
    named.update((key, conf[key]) for key in conf if not key.startswith("spark."))
    return {key: value for key, value in named.items() if _is_of_stores(key)}


def _conf_of_jvm(session: Any) -> dict[str, str]:
    """Return what ``session.conf.getAll`` holds, by one call instead of several for each entry."""
    pairs = session._jsparkSession.conf().getAll().mkString("\0").split("\0")
    return {key: value for key, _, value in (pair.partition(" -> ") for pair in pairs)}


def _hadoop_of_jvm(session: Any) -> dict[str, str]:
    """Return the settings with those from ``core-site.xml``, as the JVM takes them."""
    known = session._jsparkSession.sessionState().newHadoopConf()
    found = {key: known.get(key) for key in _HADOOP_KEYS}
    for prefix in _HADOOP_PREFIXES:
        more = known.getPropsWithPrefix(prefix)
        # To go through a map of the JVM ends with an exception, which costs 10 ms.
        if not more.isEmpty():
            found.update({f"{prefix}{key}": more[key] for key in more})
    return {key: value for key, value in found.items() if value}
