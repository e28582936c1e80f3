"""The options of the data source: Spark's names and texts to what the core is told.

Names are taken in any case, as everywhere in Spark. An unknown name, and a value that means
nothing, is an error. Whatever the session says stands where an option says nothing.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias, cast

from tfrecord_io.compression import normalize_compression
from tfrecord_io.engines.spark.filters import parse_filters
from tfrecord_io.engines.spark.settings import (
    SECRET_OPTION,
    SESSION_OPTION,
    Settings,
    parse_bytes,
)
from tfrecord_io.engines.spark.stores import resolve, shared_options, storage_options
from tfrecord_io.engines.spark.time_zones import time_zone, zone_info
from tfrecord_io.errors import OptionError
from tfrecord_io.filters import Filters
from tfrecord_io.layout import EmptyPartition
from tfrecord_io.options import CodecName, Float64Mode, OnCorruptRows, RecordType, SaveMode, choice

#: How a completed DataFrameWriter says what Spark would not let through: mode and partitions.
REQUEST_OPTION = "tfrecord_io.write"
#: Asks only whether a write is possible; its value is the columns as JSON.
CHECK_OPTION = "tfrecord_io.check"
#: Asks only which columns a read has; its value is the schema that the user gave, or empty.
DESCRIBE_OPTION = "tfrecord_io.describe"
#: Marks the jobs of a query; see `tfrecord_io.engines.spark.streaming`.
STREAM_OPTION = "tfrecord_io.stream"
#: The types that the columns of a read have in the records, as the answer to that said.
STORED_OPTION = "tfrecord_io.stored"

_BOTH = ("path", "paths", "recordType", "codec", "compression", "implementation")
_READ = (
    *("basePath", "pathGlobFilter", "recursiveFileLookup", "modifiedBefore", "modifiedAfter"),
    *("ignoreCorruptFiles", "ignoreMissingFiles", "samplingRatio", "mode", "pathColumn"),
    *("columnNameOfCorruptRecord", "columns", "maxPartitionBytes", "openCostInBytes", "timeZone"),
    *("maxFilesPerTrigger", "maxBytesPerTrigger", "latestFirst", "maxFileAge", "fileNameOnly"),
    *("cleanSource", "sourceArchiveDir", "filters", "pushFilters"),
)
_WRITE = (
    *("maxRecordsPerFile", "compressionLevel", "float64", "emptyPartition", "partitionBy"),
    *("partitionOverwriteMode", "writeLocality"),
)
_NAMES = {name.lower(): name for name in (*_BOTH, *_READ, *_WRITE)}

#: What Spark itself adds for tables of the catalog, and for streams; and what means nothing here.
_OF_SPARK = {
    *("owner", "provider", "location", "external", "comment", "serialization.format"),
    *("checkpointlocation", "queryname", "outputmode"),
    # How its own sources keep their listings for the next batches: here each lists anew.
    *("maxcachedfiles", "discardcachedinputratio"),
}
_OF_OURS = {
    *(SESSION_OPTION, SECRET_OPTION, REQUEST_OPTION),
    *(CHECK_OPTION, DESCRIBE_OPTION, STORED_OPTION, STREAM_OPTION),
}

CleanSource: TypeAlias = Literal["off", "archive", "delete"]

#: Spark's units of time, in seconds (``JavaUtils.timeStringAs``).
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(f"([0-9]+)({'|'.join(_SECONDS)})?")

_ON_CORRUPT: dict[str, OnCorruptRows] = {
    "permissive": "keep",
    "dropmalformed": "skip_record",
    "failfast": "raise",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What a read was asked for.

    Attributes
    ----------
    paths : tuple of str
        URLs, resolved.
    storage : mapping
        Storage options.
    record_type, compression, on_corrupt, corrupt_column, codec, path_column
        See `tfrecord_io.reading.plan.plan_scan`.
    columns : tuple of str or None
        The columns to infer and read; all by default.
    base_path : str or None
        Where the partition folders begin.
    is_recursive : bool
        Whether folders are only folders: no partition columns.
    time_zone : str
        In which names of folders tell times.
    infers_partition_types, infers_instants : bool
        What becomes of names of folders that nothing describes, see
        `tfrecord_io.reading.files.Selection`.
    case_sensitive : bool
        Whether names of columns are told apart by case.
    name_glob : str or None
        What file names must fit.
    modified_after, modified_before : float or None
        Bounds of the files' times, in seconds since 1970.
    ignore_missing : bool
        Whether files that went meanwhile are passed over.
    sampling_ratio : float or None
        The share of the files that are looked at for the schema.
    max_partition_bytes, open_cost_bytes, parallelism : int
        How files are packed into tasks, see `tfrecord_io.engines.spark.reading`.
    least_partitions, most_partitions : int or None
        About how many tasks there are.
    max_files, max_bytes : int or None
        How many files a batch of a stream has at most; how large they are together, unless it is
        one. Not both are given.
    latest_first : bool
        Whether those of these that were written last come first.
    max_age : float or None
        Files of a stream that are older than the last one that was read by more than these seconds
        are left out.
    file_name_only : bool
        Whether a stream takes files of one name, in whichever folders, for one file.
    clean_source : {"off", "archive", "delete"}
        What becomes of a stream's files once they were read.
    archive : str or None
        URL of the folder that they are moved to.
    filters : list of list of tuple, optional
        Which rows are read, see `tfrecord_io.filters.parse`.
    push_filters : bool
        Whether Spark's filters leave files and rows out early; see
        `tfrecord_io.engines.spark.reading.FilteringReader`.
    """

    paths: tuple[str, ...]
    storage: Mapping[str, Any] = field(default_factory=dict, repr=False)
    record_type: RecordType
    compression: str
    on_corrupt: OnCorruptRows
    corrupt_column: str | None
    codec: CodecName
    path_column: str | None
    columns: tuple[str, ...] | None
    base_path: str | None
    is_recursive: bool
    time_zone: str
    infers_partition_types: bool
    infers_instants: bool
    case_sensitive: bool
    name_glob: str | None
    modified_after: float | None
    modified_before: float | None
    ignore_missing: bool
    sampling_ratio: float | None
    max_partition_bytes: int
    open_cost_bytes: int
    parallelism: int
    least_partitions: int | None
    most_partitions: int | None
    max_files: int | None
    max_bytes: int | None
    latest_first: bool
    max_age: float | None
    file_name_only: bool
    clean_source: CleanSource
    archive: str | None
    filters: Filters
    push_filters: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """What a write was asked for.

    Attributes
    ----------
    path : str
        The target's URL, resolved.
    storage : mapping
        Storage options.
    mode, partition_by, record_type, compression, compression_level, max_records_per_file, float64,
    empty_partition, codec, time_zone
        See `tfrecord_io.writing.plan.plan_write`.
    is_local : bool
        Whether each task writes to a disk of its own machine.
    case_sensitive : bool
        Whether names of columns are told apart by case.
    stream : str
        The mark of a query, empty without one.
    """

    path: str
    storage: Mapping[str, Any] = field(default_factory=dict, repr=False)
    mode: SaveMode
    partition_by: tuple[str, ...]
    record_type: RecordType
    compression: str | None
    compression_level: int | None
    max_records_per_file: int | None
    float64: Float64Mode
    empty_partition: EmptyPartition
    codec: CodecName
    time_zone: str
    is_local: bool
    case_sensitive: bool
    stream: str


class _Texts:
    """Options by their name in lower case."""

    def __init__(self, options: Mapping[str, str]) -> None:
        # Catalog.createTable tells options as properties of the table.
        self._texts = {name.lower().removeprefix("option."): options[name] for name in options}
        known = {*_NAMES, *_OF_SPARK, *_OF_OURS}
        told = {name.lower() for name in options}
        if "provider" in told:
            # A table's properties come along; what is an option of it comes under both names.
            known |= {name for name in told if f"option.{name}" not in told}
        for name in self._texts:
            if not (name in known or _is_store(name)):
                near = difflib.get_close_matches(name, _NAMES, 1)
                hint = f"; did you mean {_NAMES[near[0]]!r}?" if near else ""
                raise OptionError(
                    f"there is no option {name!r}{hint or '; there are ' + ', '.join(_listed())}"
                )

    def text(self, name: str) -> str | None:
        return self._texts.get(name.lower()) or None

    def flag(self, name: str, default: bool) -> bool:
        found = self.text(name)
        if found is None:
            return default
        if found.lower() not in ("true", "false"):
            raise OptionError(f"{name} is {found!r}; it must be true or false")
        return found.lower() == "true"

    def number(self, name: str) -> int | None:
        found = self.text(name)
        if found is None:
            return None
        try:
            return int(found)
        except ValueError:
            raise OptionError(f"{name} is {found!r}; it must be a whole number") from None

    def count(self, name: str) -> int | None:
        found = self.number(name)
        if found is not None and found < 1:
            raise OptionError(f"{name} is {found}; it must be above 0")
        return found

    def size(self, name: str, default: int) -> int:
        found = self.text(name)
        value = default if found is None else parse_bytes(name, found)
        if value < 1:
            raise OptionError(f"{name} is {found!r}; it must be above 0")
        return value

    def choice(self, name: str, choices: Any, default: Any) -> Any:
        found = self.text(name)
        if found is not None:
            choice(name, found, choices)
        return default if found is None else found

    def names(self, name: str) -> tuple[str, ...] | None:
        found = self.text(name)
        if found is None:
            return None
        if not found.lstrip().startswith("["):
            return tuple(part.strip() for part in found.split(",") if part.strip())
        names = _texts_of(found)
        if names is None:
            raise OptionError(f"{name} is {found!r}; it must be names with commas, or a JSON list")
        return names

    def hadoop(self, settings: Settings) -> dict[str, str]:
        own = {name: text for name, text in self._texts.items() if _is_store(name)}
        return {**settings.hadoop, **own}

    def paths(self) -> tuple[str, ...]:
        many = self.text("paths")
        found = (self.text("path") or "",) if many is None else _texts_of(many)
        if found is None:
            raise OptionError(f"paths is {many!r}; it must be a JSON list of paths")
        if not found or not all(found):
            raise OptionError(
                "there is no path. Name one: load(path), save(path) or OPTIONS (path '...'). Of a "
                "table in the catalog Spark tells a Python data source no path: make the table of "
                "data that are there, CREATE TABLE name USING tfrecord LOCATION '...' without "
                "columns and without AS SELECT, or say FROM name WITH (path='...')"
            )
        return found

    def target(self) -> str:
        path = self.text("path")
        if not path:
            raise OptionError(
                "there is no path, and nothing was written. Spark does not tell a Python data "
                "source which table of the catalog it writes to, so say where: "
                'df.write.format("tfrecord").mode("append").save(path), or in SQL '
                "INSERT INTO name WITH (path='...') SELECT ... A table cannot be made AS SELECT: "
                "save the rows first, then CREATE TABLE name USING tfrecord LOCATION '...'"
            )
        return path


def _texts_of(text: str) -> tuple[str, ...] | None:
    """Return what a JSON list of texts holds; None for any other text."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    is_list = isinstance(value, list) and all(isinstance(part, str) for part in value)
    return tuple(value) if is_list else None


def is_of_table(name: str) -> bool:
    """Return whether an option says what a table is; neither secrets nor what is asked of it."""
    return name.lower() in _NAMES


def _is_store(name: str) -> bool:
    return name.startswith("fs.")


def _listed() -> list[str]:
    return sorted(_NAMES.values(), key=str.lower)


def read_options(options: Mapping[str, str], settings: Settings) -> ReadOptions:
    """Return what the options of a read mean.

    Raises
    ------
    OptionError
        An unknown option, or a value that means nothing.
    """
    texts = _Texts(options)
    hadoop = texts.hadoop(settings)
    paths = tuple(resolve(_pattern(path), hadoop) for path in texts.paths())
    base_path = texts.text("basePath")
    given_zone = texts.text("timeZone")
    zone = time_zone(given_zone or settings.time_zone)
    if given_zone is not None:
        zone_info(zone)
    on_corrupt = _on_corrupt(texts, settings)
    corrupt_column = texts.text("columnNameOfCorruptRecord") or settings.corrupt_column
    max_files = texts.count("maxFilesPerTrigger")
    max_bytes = texts.count("maxBytesPerTrigger")
    if max_files is not None and max_bytes is not None:
        raise OptionError("maxFilesPerTrigger and maxBytesPerTrigger are both given; give one")
    latest_first = texts.flag("latestFirst", False)
    is_limited = max_files is not None or max_bytes is not None
    clean_source = (texts.text("cleanSource") or "off").lower()
    choice("cleanSource", clean_source, CleanSource)
    archive = texts.text("sourceArchiveDir") if clean_source == "archive" else None
    if clean_source == "archive" and archive is None:
        raise OptionError(
            "cleanSource is archive: say where files are moved to, by sourceArchiveDir"
        )
    return ReadOptions(
        paths=paths,
        storage=shared_options(paths, hadoop),
        record_type=texts.choice("recordType", RecordType, "Example"),
        compression=_compression(texts),
        on_corrupt=on_corrupt,
        corrupt_column=corrupt_column if on_corrupt == "keep" else None,
        codec=texts.choice("implementation", CodecName, "auto"),
        path_column=texts.text("pathColumn"),
        columns=texts.names("columns"),
        base_path=None if base_path is None else resolve(base_path, hadoop),
        is_recursive=texts.flag("recursiveFileLookup", False),
        time_zone=zone,
        infers_partition_types=settings.infers_partition_types,
        infers_instants=settings.infers_instants,
        case_sensitive=settings.case_sensitive,
        name_glob=_pattern(texts.text("pathGlobFilter") or "") or None,
        modified_after=_time(texts, "modifiedAfter", zone),
        modified_before=_time(texts, "modifiedBefore", zone),
        ignore_missing=texts.flag("ignoreMissingFiles", settings.ignore_missing_files),
        sampling_ratio=_ratio(texts),
        max_partition_bytes=texts.size("maxPartitionBytes", settings.max_partition_bytes),
        open_cost_bytes=texts.size("openCostInBytes", max(1, settings.open_cost_bytes)),
        parallelism=max(1, settings.parallelism),
        least_partitions=settings.least_partitions,
        most_partitions=settings.most_partitions,
        max_files=max_files,
        max_bytes=max_bytes,
        latest_first=latest_first,
        # Else files that are waiting would be taken for old ones: Spark's rule.
        max_age=None if latest_first and is_limited else _duration(texts, "maxFileAge"),
        file_name_only=texts.flag("fileNameOnly", False),
        clean_source=cast(CleanSource, clean_source),
        archive=None if archive is None else resolve(archive, hadoop),
        filters=parse_filters(texts.text("filters"), zone_info(zone)),
        push_filters=_pushes_filters(texts, settings),
    )


def _compression(texts: _Texts) -> str:
    """Return what files are compressed with; codec is the writer's, as with spark-tfrecord's jar.

    Programs that give one set of options to all that they read and write need it taken.
    """
    normalize_compression(texts.text("codec"))
    return texts.text("compression") or "infer"


def _written_compression(texts: _Texts) -> str | None:
    codec, compression = texts.text("codec"), texts.text("compression")
    if codec and compression and normalize_compression(codec) != normalize_compression(compression):
        raise OptionError(
            f"codec is {codec!r} and compression {compression!r}, and they say the same: give one"
        )
    return codec or compression


def _pattern(text: str) -> str:
    """Return a pattern of Hadoop's as one of Python's, where no backslash escapes."""

    def ours(found: re.Match[str]) -> str:
        escaped = found["escaped"]
        if escaped is None:
            return "[!"
        return f"[{escaped}]" if escaped in "*?[{" else escaped

    return re.sub(r"\\(?P<escaped>[^A-Za-z0-9])|\[\^", ours, text)


def _on_corrupt(texts: _Texts, settings: Settings) -> OnCorruptRows:
    mode = texts.text("mode")
    if mode is None and texts.text("columnNameOfCorruptRecord") is not None:
        # It would mean nothing otherwise.
        mode = "PERMISSIVE"
    if mode is not None and mode.lower() not in _ON_CORRUPT:
        raise OptionError(f"mode is {mode!r}; it must be PERMISSIVE, DROPMALFORMED or FAILFAST")
    if texts.flag("ignoreCorruptFiles", settings.ignore_corrupt_files and mode is None):
        if mode is not None:
            raise OptionError("mode and ignoreCorruptFiles contradict each other; give one of them")
        return "skip_file"
    return _ON_CORRUPT[(mode or "FAILFAST").lower()]


def _pushes_filters(texts: _Texts, settings: Settings) -> bool:
    is_asked = texts.flag("pushFilters", False)
    if is_asked and not settings.push_filters:
        raise OptionError(
            "pushFilters needs spark.sql.python.filterPushdown.enabled, which is false: set it to "
            "true"
        )
    if is_asked and texts.text("filters") is not None:
        raise OptionError("filters and pushFilters are both given; give one")
    return is_asked


def _time(texts: _Texts, name: str, zone: str) -> float | None:
    text = texts.text(name)
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise OptionError(
            f"{name} is {text!r}; it must be a time such as 2026-01-02T03:04:05"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone_info(zone))
    return moment.timestamp()


def _duration(texts: _Texts, name: str) -> float | None:
    """Return the seconds of a duration such as 7d; without a unit it is in milliseconds."""
    text = texts.text(name)
    if text is None:
        return None
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise OptionError(f'{name} is {text!r}; it must be a duration such as "7d" or "12h"')
    return int(found[1]) * _SECONDS[found[2] or "ms"]


def _ratio(texts: _Texts) -> float | None:
    text = texts.text("samplingRatio")
    if text is None:
        return None
    try:
        ratio = float(text)
    except ValueError:
        ratio = 0.0
    if not 0 < ratio <= 1:
        raise OptionError(f"samplingRatio is {text!r}; it must be above 0, and 1 at most")
    return None if ratio == 1 else ratio


def write_options(
    options: Mapping[str, str], settings: Settings, *, overwrite: bool
) -> WriteOptions:
    """Return what the options of a write mean.

    Parameters
    ----------
    options : mapping
        As the data source gets them.
    settings : Settings
        Of the session.
    overwrite : bool
        Whether Spark says that data are to be replaced, where no completed DataFrameWriter says
        more.

    Raises
    ------
    OptionError
        An unknown option, or a value that means nothing.
    """
    texts = _Texts(options)
    hadoop = texts.hadoop(settings)
    path = resolve(texts.target(), hadoop)
    request = json.loads(options[REQUEST_OPTION]) if REQUEST_OPTION in options else {}
    partition_by = _partition_by(request.get("partition_by") or (), texts.names("partitionBy"))
    mode = request.get("mode") or ("overwrite" if overwrite else "append")
    if _is_dynamic(texts, settings) and mode == "overwrite" and partition_by:
        mode = "overwrite_partitions"
    is_local = _is_local(texts, settings, mode)
    most = texts.number("maxRecordsPerFile")
    if most is None:
        most = settings.max_records_per_file
    return WriteOptions(
        path=path,
        storage=storage_options(path, hadoop),
        mode=cast(SaveMode, mode),
        partition_by=partition_by,
        record_type=texts.choice("recordType", RecordType, "Example"),
        compression=_written_compression(texts),
        compression_level=texts.number("compressionLevel"),
        # To Spark 0 and less mean: no bound.
        max_records_per_file=most if most > 0 else None,
        float64=texts.choice("float64", Float64Mode, "warn"),
        empty_partition=texts.choice("emptyPartition", EmptyPartition, "error"),
        codec=texts.choice("implementation", CodecName, "auto"),
        time_zone=time_zone(texts.text("timeZone") or settings.time_zone),
        is_local=is_local,
        case_sensitive=settings.case_sensitive,
        stream=options.get(STREAM_OPTION, ""),
    )


def _partition_by(asked: Sequence[str], option: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the partition columns by the writer's method, or by the option."""
    if asked and option and [*asked] != [*option]:
        raise OptionError(
            f"partitionBy is {', '.join(asked)} by the writer's method, and {', '.join(option)} by "
            "the option: give one"
        )
    return tuple(asked) or option or ()


def _is_local(texts: _Texts, settings: Settings, mode: str) -> bool:
    """Return whether tasks write to disks of their own machines, where that is possible."""
    locality = texts.text("writeLocality") or "distributed"
    if locality not in ("distributed", "local"):
        raise OptionError(f"writeLocality is {locality!r}; it must be distributed or local")
    if locality == "distributed":
        return False
    if mode.startswith("overwrite"):
        raise OptionError(
            "overwrite is not possible with writeLocality=local, since the driver does not see the "
            "disks of the workers: remove the old folders, or append"
        )
    if settings.speculation:
        raise OptionError(
            "writeLocality=local is not possible with spark.speculation: each task commits by "
            "itself, so a task that runs twice would add its rows twice"
        )
    return True


def _is_dynamic(texts: _Texts, settings: Settings) -> bool:
    text = (texts.text("partitionOverwriteMode") or "").lower()
    if text not in ("", "static", "dynamic"):
        raise OptionError(f"partitionOverwriteMode is {text!r}; it must be static or dynamic")
    return text == "dynamic" if text else settings.dynamic_overwrite
