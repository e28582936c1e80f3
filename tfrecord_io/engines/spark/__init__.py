"""Spark: ``format("tfrecord")`` without a jar, for classic and Connect sessions.

`register` brings the format to a session; ``spark.read`` and ``df.write`` then work as with Spark's
own formats. `read_tfrecord` and `write_tfrecord` do the same without changing anything in Spark.

The package translates and does nothing else: `source` is what Spark calls; `reading` and `writing`
give the core's tasks to Spark's, `streaming` does so batch by batch; `completion`,
`stream_completion` and `table_completion` fill in, or refuse, what Spark does not let through a
Python data source; `options`, `settings` and `stores` say in the core's words what was asked for;
`types` and `filters` translate columns and filters, `conditions` errors.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tfrecord_io.errors import MissingDependencyError, OptionError
from tfrecord_io.filters import Filters
from tfrecord_io.layout import EmptyPartition
from tfrecord_io.options import (
    Float64Mode,
    OnCorruptRows,
    RecordType,
    SaveMode,
    choice,
    column_list,
)
from tfrecord_io.reading.files import Paths, as_list
from tfrecord_io.storage import path_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

try:
    from pyspark.errors import AnalysisException

    from tfrecord_io.engines.spark import completion, stream_completion, table_completion
except ImportError as error:
    raise MissingDependencyError(
        "the Spark adapter needs pyspark 4.2.1 or newer; install tfrecord-io[spark]"
    ) from error

from tfrecord_io.engines.spark.conditions import analysis_error, as_spark, translated
from tfrecord_io.engines.spark.filters import filters_text
from tfrecord_io.engines.spark.settings import Settings, is_connect, of_session
from tfrecord_io.engines.spark.source import NAMES, source_class

__all__ = ["read_tfrecord", "register", "unregister", "write_tfrecord"]

#: Registered sessions.
_registered: list[Any] = []


def register(session: SparkSession) -> None:
    """Bring ``format("tfrecord")``, and ``"tfrecords"``, to a session.

    Completes DataFrameReader, DataFrameWriter and their twins for streams in this process, see
    `tfrecord_io.engines.spark.completion`, and what makes tables of the catalog. Calling it again
    takes over changed settings for SQL.

    Parameters
    ----------
    session : pyspark.sql.SparkSession
        A classic or a Connect session. tfrecord-io must be installed on driver and executors.

    Raises
    ------
    pyspark.errors.AnalysisException
        A jar on the class path, such as spark-tfrecord's, has the name already.

    Examples
    --------
    >>> from tfrecord_io.engines import spark as tfr_spark
    >>> tfr_spark.register(spark)  # doctest: +SKIP
    >>> spark.read.format("tfrecord").load("/data/events")  # doctest: +SKIP
    """
    _register_source(session, of_session(session))
    if not _is_registered(session):
        _registered.append(session)
    completion.install(connect=is_connect(session))
    stream_completion.install(connect=is_connect(session))
    table_completion.install(connect=is_connect(session))


def unregister(session: SparkSession | None = None) -> None:
    """Undo `register`.

    Once no session is registered, Spark's classes are what they were. Spark itself forgets no data
    source before the session ends.

    Parameters
    ----------
    session : pyspark.sql.SparkSession, optional
        By default all sessions.
    """
    _registered[:] = [one for one in _registered if session is not None and one is not session]
    if not _registered:
        completion.uninstall()


def _is_registered(session: Any) -> bool:
    return any(known is session for known in _registered)


def _register_source(session: Any, settings: Settings) -> None:
    try:
        # Whether a name is free Spark looks up in the active session.
        with completion.active(session):
            for name in NAMES:
                session.dataSource.register(source_class(name, settings))
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
        raise analysis_error(
            "DATA_SOURCE_ALREADY_EXISTS",
            "a jar on Spark's class path brings the format already: take spark-tfrecord or "
            "spark-tensorflow-connector out of spark.jars and spark.jars.packages; their data sets "
            "are read without them",
        ) from error


def read_tfrecord(
    session: SparkSession,
    path: Paths,
    *,
    columns: Sequence[str] | None = None,
    filters: Filters = None,
    schema: StructType | str | None = None,
    record_type: RecordType = "Example",
    compression: str = "infer",
    on_corrupt: OnCorruptRows = "raise",
    corrupt_column: str | None = None,
    path_column: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Read TFRecord files as a DataFrame.

    Parameters
    ----------
    session : pyspark.sql.SparkSession
        A classic or a Connect session; need not be registered.
    path : str or path-like, or sequence of these
        Folders, files or patterns, as Spark resolves them.
    columns : sequence of str, optional
        The columns to read. Only these are decoded.
    filters : list of tuple, or list of list of tuple, optional
        Which rows to read, as for `tfrecord_io.read_table`; a text may stand for a value of any
        type. Files of folders without such rows are not opened.
    schema : pyspark.sql.types.StructType or str, optional
        Columns and types, instead of looking for them.
    record_type, compression, on_corrupt, path_column
        See `tfrecord_io.read_table`.
    corrupt_column : str, optional
        With "keep", name of the column that holds the damaged bytes; by default the session's,
        ``spark.sql.columnNameOfCorruptRecord``. A `schema` without it leaves them.
    options : mapping, optional
        More options of the data source, by Spark's names.

    Returns
    -------
    pyspark.sql.DataFrame
        Partition columns come last.

    Raises
    ------
    pyspark.errors.AnalysisException
        Nothing is there, an option that is none, or records that no one schema describes.
    """
    try:
        choice("on_corrupt", on_corrupt, OnCorruptRows)
        if corrupt_column is not None and on_corrupt != "keep":
            raise OptionError("corrupt_column needs on_corrupt='keep'")
        paths = [*map(path_text, as_list(path))]
        filters_told = None if filters is None else filters_text(filters)
        columns_told = None if columns is None else json.dumps(column_list(columns))
    except OptionError as error:
        raise as_spark(error) from error
    _know_source(session)
    defaults = {
        "recordType": record_type,
        "compression": compression,
        **_ON_CORRUPT[on_corrupt],
    }
    named = {
        "pathColumn": path_column,
        "columnNameOfCorruptRecord": corrupt_column,
        "filters": filters_told,
        "columns": columns_told,
    }
    found = _texts({**defaults, **(options or {})}) | _texts(named)
    if isinstance(schema, str):
        given = completion.schema_of(session, schema)
    else:
        given = "" if schema is None else schema.json()
    return completion.load_columns(session, paths if len(paths) > 1 else paths[0], given, found)


def write_tfrecord(
    df: DataFrame,
    path: str | os.PathLike[str],
    *,
    partition_by: str | Sequence[str] | None = (),
    mode: SaveMode = "error",
    record_type: RecordType = "Example",
    compression: str | None = None,
    compression_level: int | None = None,
    max_records_per_file: int | None = None,
    float64: Float64Mode = "warn",
    empty_partition: EmptyPartition = "error",
    options: Mapping[str, Any] | None = None,
) -> None:
    """Write a DataFrame as TFRecord files.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        Of a classic or a Connect session, which need not be registered.
    path : str or path-like
        The target folder, as Spark resolves it.
    partition_by : str or sequence of str, optional
        Columns that become ``key=value`` folders.
    mode, record_type, compression, compression_level, max_records_per_file
        See `tfrecord_io.write_table`.
    float64, empty_partition
        See `tfrecord_io.write_table`.
    options : mapping, optional
        More options of the data source, by Spark's names.

    Raises
    ------
    pyspark.errors.AnalysisException
        The write is not possible; nothing was written.
    """
    names = [partition_by] if isinstance(partition_by, str) else list(partition_by or ())
    session = df.sparkSession
    _know_source(session)
    given = {
        "recordType": record_type,
        "compression": compression,
        "compressionLevel": compression_level,
        "maxRecordsPerFile": max_records_per_file,
        "float64": float64,
        "emptyPartition": empty_partition,
        **(options or {}),
    }
    asked = completion.options_of_write(session, _texts(given), mode, names)
    with translated():
        target = path_text(path)
        if completion.is_needed(session, target, asked, df.schema):
            completion.append(session, df.write, target, asked)


def _know_source(session: Any) -> None:
    if not _is_registered(session):
        _register_source(session, of_session(session))


def _texts(options: Mapping[str, Any]) -> dict[str, str]:
    """Return options as Spark's readers and writers take them: true and false in lower case."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
        if value is not None
    }


_ON_CORRUPT: dict[OnCorruptRows, dict[str, str]] = {
    "raise": {"mode": "FAILFAST"},
    "keep": {"mode": "PERMISSIVE"},
    "skip_record": {"mode": "DROPMALFORMED"},
    "skip_file": {"ignoreCorruptFiles": "true"},
}
