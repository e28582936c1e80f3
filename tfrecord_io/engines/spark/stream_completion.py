"""Completes Spark's DataStreamReader and DataStreamWriter for this format.

For the reasons of `tfrecord_io.engines.spark.completion`, and in the same way:

- ``DataStreamReader.load`` first asks which columns there are, and has a fresh reader load
  them. As with Spark's own sources, columns are only looked for if
  ``spark.sql.streaming.schemaInference`` is on: a query that starts before its files are there
  would else have none.
- ``DataStreamWriter.start`` first asks whether an append is possible, and starts with the
  session's settings and the partition columns, which Spark leaves out without a word, as options.
- ``DataStreamWriter.toTable`` refuses.

In a classic session what a reader or writer was told is in private fields of the JVM's object.
"""

from __future__ import annotations

import functools
import hashlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tfrecord_io.engines.spark.completion import (
    Reading,
    active,
    complete,
    is_needed,
    is_ours,
    java_field,
    load_columns,
    options_of_write,
    refusal,
    scala_map,
    scala_sequence,
    told_to_load,
)
from tfrecord_io.engines.spark.conditions import analysis_error, translated
from tfrecord_io.engines.spark.options import STREAM_OPTION

_INFERENCE = "spark.sql.streaming.schemaInference"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Starting:
    """What a DataStreamWriter was told so far."""

    session: Any
    source: str | None
    output_mode: str
    partition_by: tuple[str, ...]
    options: Mapping[str, str]


class _Kind(Protocol):
    """What differs between the classic session and Connect."""

    reader: type
    writer: type

    def reading(self, reader: Any) -> Reading:
        """Return what a DataStreamReader was told."""

    def starting(self, writer: Any) -> _Starting:
        """Return what a DataStreamWriter was told."""

    def columns(self, writer: Any) -> Any:
        """Return the schema of its frame."""


class _Classic:
    """Sessions in this process; the state is the JVM's."""

    def __init__(self) -> None:
        from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

        self.reader, self.writer = DataStreamReader, DataStreamWriter

    def reading(self, reader: Any) -> Reading:
        java = reader._jreader
        given = java_field(java, "userSpecifiedSchema")
        name = java_field(java, "userProvidedSourceName")
        return Reading(
            session=reader._spark,
            source=java_field(java, "source"),
            schema=given.get().json() if given.isDefined() else "",
            options=scala_map(java_field(java, "extraOptions")),
            name=name.get() if name.isDefined() else None,
        )

    def starting(self, writer: Any) -> _Starting:
        java = writer._jwrite
        columns = java_field(java, "partitioningColumns")
        return _Starting(
            session=writer._spark,
            source=java_field(java, "source"),
            output_mode=java_field(java, "outputMode").toString(),
            partition_by=scala_sequence(columns.get()) if columns.isDefined() else (),
            options=scala_map(java_field(java, "extraOptions")),
        )

    def columns(self, writer: Any) -> Any:
        return writer._df.schema


class _Connect:
    """Sessions on a server; the state is plain attributes."""

    def __init__(self) -> None:
        from pyspark.sql.connect.streaming.readwriter import DataStreamReader, DataStreamWriter

        self.reader, self.writer = DataStreamReader, DataStreamWriter

    def reading(self, reader: Any) -> Reading:
        return Reading(
            session=reader._client,
            source=reader._format,
            schema=reader._schema or "",
            options=dict(reader._options),
            name=reader._source_name,
        )

    def starting(self, writer: Any) -> _Starting:
        told = writer._write_proto
        # As in a classic session: what functions take goes to no format, whichever was named.
        is_for_functions = told.HasField("foreach_batch") or told.HasField("foreach_writer")
        return _Starting(
            session=writer._session,
            source="foreachBatch" if is_for_functions else told.format or None,
            output_mode=told.output_mode,
            partition_by=tuple(told.partitioning_column_names),
            options=dict(told.options),
        )

    def columns(self, writer: Any) -> Any:
        from pyspark.sql.connect.dataframe import DataFrame

        return DataFrame(writer._write_stream._child, writer._session).schema


def install(*, connect: bool) -> None:
    """Complete the stream reader and writer of one kind of session; once is enough."""
    kind: _Kind = _Connect() if connect else _Classic()
    complete(kind.reader, "load", functools.partial(_completed_load, kind))
    complete(kind.writer, "start", functools.partial(_completed_start, kind))
    complete(kind.writer, "toTable", functools.partial(_completed_to_table, kind))


def _completed_load(kind: _Kind, own: Callable[..., Any]) -> Callable[..., Any]:
    def load(
        self: Any, path: Any = None, format: str | None = None, schema: Any = None, **options: Any
    ) -> Any:
        told = told_to_load(kind.reading, self, format, schema, options)
        if told is None:
            return own(self, path, format, schema, **options)
        if not told.schema and not _may_infer(told):
            raise analysis_error(
                "UNABLE_TO_INFER_SCHEMA",
                "a stream needs a schema: give one by schema(...), such as that of "
                "spark.read.format('tfrecord').load(path), or turn "
                f"{_INFERENCE} on",
            )
        return load_columns(
            told.session, path, told.schema, told.options, is_stream=True, stream_name=told.name
        )

    return load


def _may_infer(told: Reading) -> bool:
    record_type = {name.lower(): text for name, text in told.options.items()}.get("recordtype")
    is_on = told.session.conf.get(_INFERENCE, "false").lower() == "true"
    return is_on or record_type == "ByteArray"


def _completed_start(kind: _Kind, own: Callable[..., Any]) -> Callable[..., Any]:
    def start(
        self: Any,
        path: str | None = None,
        format: str | None = None,
        outputMode: str | None = None,  # noqa: N803 - Spark's names
        partitionBy: str | list[str] | None = None,  # noqa: N803
        queryName: str | None = None,  # noqa: N803
        **options: Any,
    ) -> Any:
        told = kind.starting(self)
        if not is_ours(format or told.source, told.session):
            return own(self, path, format, outputMode, partitionBy, queryName, **options)
        self.options(**options)
        if outputMode is not None:
            self.outputMode(outputMode)
        if partitionBy is not None:
            self.partitionBy(partitionBy)
        if format is not None:
            self.format(format)
        told = kind.starting(self)
        if (told.output_mode or "append").lower() != "append":
            raise refusal(
                f"files can only be appended to, and outputMode is {told.output_mode}: use append, "
                "or foreachBatch with df.write"
            )
        asked = options_of_write(told.session, told.options, "append", told.partition_by)
        asked[STREAM_OPTION] = _mark(told.options)
        with translated():
            is_needed(told.session, path, asked, kind.columns(self))
        self.options(**asked)
        with active(told.session):
            return own(self, path, queryName=queryName)

    return start


def _mark(options: Mapping[str, str]) -> str:
    """Return a query's mark: the same at each start from one checkpoint, if one is named."""
    checkpoint = {name.lower(): text for name, text in options.items()}.get("checkpointlocation")
    if not checkpoint:
        return secrets.token_hex(16)
    return hashlib.sha256(checkpoint.encode(errors="surrogatepass")).hexdigest()


def _completed_to_table(kind: _Kind, own: Callable[..., Any]) -> Callable[..., Any]:
    def to_table(
        self: Any,
        tableName: str,  # noqa: N803 - Spark's name
        format: str | None = None,
        *args: Any,
        **more: Any,
    ) -> Any:
        told = kind.starting(self)
        if not is_ours(format or told.source, told.session):
            return own(self, tableName, format, *args, **more)
        raise refusal("toTable is not possible, as saveAsTable is not: use start(path)")

    return to_table
