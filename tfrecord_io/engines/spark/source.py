"""The data source that Spark sees: options and schemas in, a reader or a writer out.

Spark makes it in Python workers beside the driver's JVM, once for the schema and once more for a
write; tasks only get the reader or the writer.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from tfrecord_io.engines.spark import reading, streaming, tables, writing
from tfrecord_io.engines.spark.conditions import analysis_error, in_worker
from tfrecord_io.engines.spark.options import (
    CHECK_OPTION,
    DESCRIBE_OPTION,
    STORED_OPTION,
    STREAM_OPTION,
    ReadOptions,
    read_options,
    write_options,
)
from tfrecord_io.engines.spark.settings import Settings, from_options, with_site
from tfrecord_io.engines.spark.types import arrow_schema, spark_schema, vector_columns
from tfrecord_io.engines.spark.workers import keep_what_is_loaded
from tfrecord_io.errors import OptionError, SchemaMismatchError, UnsupportedTypeError
from tfrecord_io.plan import ScanPlan
from tfrecord_io.reading.listing import Missing
from tfrecord_io.schema import schema_from_json, schema_to_json

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )

#: The name of spark-tensorflow-connector's format.
CONNECTOR_NAME = "tfrecords"
#: The format's name, and that of the older connector.
NAMES = ("tfrecord", CONNECTOR_NAME)

#: Columns of the answer to a check.
NEEDED, NOT_NEEDED = "needed", "not_needed"


class TFRecordSource(DataSource):  # type: ignore[misc]
    """TFRecord files as a table."""

    #: The session's, for reads and writes that come past the completed reader and writer: SQL.
    session_settings: ClassVar[Settings] = Settings()
    source_name: ClassVar[str] = NAMES[0]

    _stored: pa.Schema | None = None

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return cls.source_name

    @property
    def _settings(self) -> Settings:
        return with_site(from_options(self.options, self.session_settings))

    @in_worker
    def schema(self) -> StructType:
        """Return the columns that are there; or the answer to a question of the client's."""
        if CHECK_OPTION in self.options:
            return StructType().add(self._is_needed(), "boolean")
        asked = read_options(self.options, self._settings)
        if DESCRIBE_OPTION in self.options:
            # As in Spark's own sources: what fits a pattern may come when the stream runs.
            missing: Missing = "patterns" if STREAM_OPTION in self.options else "error"
            found = _described(asked, self.options[DESCRIBE_OPTION], missing)
            return StructType().add(found, "boolean")
        plan = reading.plan(asked, columns=asked.columns, schema_only=True)
        self._stored = _types_in_records(plan)
        return tables.remembering(
            spark_schema(plan.schema), self.options, plan.partition_schema.names
        )

    def _is_needed(self) -> str:
        options = write_options(self.options, self._settings, overwrite=False)
        if options.stream:
            streaming.check_writable(options)
        columns = StructType.fromJson(json.loads(self.options[CHECK_OPTION]))
        return NEEDED if writing.is_needed(options, columns) else NOT_NEEDED

    @in_worker
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads these columns."""
        rows = self._rows(schema)
        kind = reading.FilteringReader if rows.options.push_filters else reading.Reader
        return kind(rows)

    @in_worker
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return what reads these columns of files as they come."""
        return streaming.StreamReader(self._rows(schema))

    def _rows(self, schema: StructType) -> reading.Rows:
        options = read_options(tables.options_to_read(schema, self.options), self._settings)
        told = json.loads(self.options.get(STORED_OPTION, "null"))
        stored = self._stored if told is None else schema_from_json(told)
        was_found = stored is not None or STORED_OPTION in self.options
        return reading.Rows(options, _readable(schema, options), stored, was_found=was_found)

    @in_worker
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Begin a write."""
        known = tables.options_to_write(schema, self.options)
        options = write_options(known, self._settings, overwrite=overwrite)
        made = writing.make_writer(options, schema)
        keep_what_is_loaded()
        return made

    @in_worker
    def streamWriter(  # noqa: N802 - Spark's name, as above
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Begin the batches of a query."""
        if overwrite:
            raise OptionError("outputMode is complete; files can only be appended to: say append")
        options = write_options(self.options, self._settings, overwrite=False)
        streaming.check_writable(options)
        return streaming.StreamWriter(options, schema)


def _described(asked: ReadOptions, given: str, missing: Missing) -> str:
    """Return the columns of a read as JSON: Spark's, and their types in the records.

    `given` are the columns that the user gave, as JSON; empty where they are to be found.
    """
    if given:
        struct = _completed(asked, StructType.fromJson(json.loads(given)), missing)
        return json.dumps({"columns": struct.jsonValue(), "stored": None})
    plan = reading.plan(asked, columns=asked.columns, schema_only=True)
    stored = schema_to_json(_types_in_records(plan))
    return json.dumps({"columns": spark_schema(plan.schema).jsonValue(), "stored": stored})


def _completed(asked: ReadOptions, struct: StructType, missing: Missing) -> StructType:
    """Return the columns of a read of these, with those of folders and the path among them."""
    readable = _readable(struct, asked)
    if asked.on_corrupt == "keep":
        # As in Spark's own sources: what is damaged is a row of nulls.
        struct = StructType(
            [StructField(one.name, one.dataType, True, one.metadata) for one in struct]
        )
        readable = arrow_schema(struct)
    plan = reading.plan(asked, schema=readable, columns=asked.columns, missing=missing)
    names = plan.schema.names
    fields = {field.name: field for field in struct}
    added = pa.schema([field for field in plan.schema if field.name not in fields])
    fields |= {field.name: field for field in spark_schema(added)}
    if asked.columns is None:
        # As in Spark's own sources: partition columns come last, named by the schema or not.
        # The path's comes behind them, as without a schema.
        last = [*plan.partition_schema.names, asked.path_column]
        own = [name for name in struct.names if name not in last]
        names = [*dict.fromkeys((*own, *names))]
    return StructType([fields[name] for name in names])


def _types_in_records(plan: ScanPlan) -> pa.Schema:
    """Return the types, in the records, of the columns that are read or filtered by."""
    names = {*plan.schema.names}
    more = [field for field in plan.file_schema if field.name not in names]
    return pa.schema([*plan.schema, *more])


def _readable(struct: StructType, options: ReadOptions) -> pa.Schema:
    for field in struct:
        if field.name == options.corrupt_column and not (
            field.nullable and isinstance(field.dataType, BinaryType)
        ):
            # Spark's own condition for this column of its text formats.
            got = field.dataType.simpleString().upper() + ("" if field.nullable else " NOT NULL")
            raise analysis_error(
                "INVALID_CORRUPT_RECORD_TYPE",
                f"the column {field.name!r} for corrupt records must have the nullable "
                f"BINARY type, but got {got}; damaged bytes are hardly ever text",
            )
        if field.name == options.path_column and not isinstance(field.dataType, StringType):
            raise SchemaMismatchError(
                f"column {field.name!r} holds the files' paths, by the option pathColumn, and is "
                f"asked for as {field.dataType.simpleString()}: it must be string",
                feature=field.name,
            )
    for name in vector_columns(struct):
        raise UnsupportedTypeError(
            f"column {name!r} is asked for as an ML vector, and records hold lists: read it as "
            "array<double>, and make vectors of it with pyspark.ml.functions.array_to_vector",
            feature=name,
        )
    return arrow_schema(struct)


def source_class(name: str, settings: Settings) -> type[TFRecordSource]:
    """Return a data source of this name that knows a session's settings.

    Spark pickles the class it registers; one made here is pickled with its attributes.
    """
    return type(
        TFRecordSource.__name__,
        (TFRecordSource,),
        {"source_name": name, "session_settings": settings},
    )
