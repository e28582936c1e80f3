"""The data source that Spark sees: options and schemas in, a reader or a writer out.

Spark makes it in Python workers beside the driver's JVM, once for the schema and once more for a
write; tasks only get the reader or the writer.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from tfrecord_io.engines.spark import reading, writing
from tfrecord_io.engines.spark.conditions import in_worker
from tfrecord_io.engines.spark.options import (
    CHECK_OPTION,
    read_options,
    write_options,
)
from tfrecord_io.engines.spark.settings import Settings, from_options
from tfrecord_io.engines.spark.types import arrow_schema, spark_schema

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceWriter

#: The format's name, and that of the older connector.
NAMES = ("tfrecord", "tfrecords")

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
        return from_options(self.options, self.session_settings)

    @in_worker
    def schema(self) -> StructType:
        """Return the columns that are there; or, if asked so, whether a write is possible."""
        if CHECK_OPTION in self.options:
            options = write_options(self.options, self._settings, overwrite=False)
            columns = StructType.fromJson(json.loads(self.options[CHECK_OPTION]))
            is_needed = writing.is_needed(options, columns)
            return StructType().add(NEEDED if is_needed else NOT_NEEDED, "boolean")
        asked = read_options(self.options, self._settings)
        plan = reading.plan(asked, columns=asked.columns, schema_only=True)
        self._stored = plan.schema
        return spark_schema(plan.schema)

    @in_worker
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads these columns."""
        options = read_options(self.options, self._settings)
        kind = reading.FilteringReader if self._settings.push_filters else reading.Reader
        return kind(options, arrow_schema(schema), self._stored)

    @in_worker
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Begin a write."""
        options = write_options(self.options, self._settings, overwrite=overwrite)
        return writing.Writer(writing.plan(options, schema), schema)


def source_class(name: str, settings: Settings) -> type[TFRecordSource]:
    """Return a data source of this name that knows a session's settings.

    Spark pickles the class it registers; one made here is pickled with its attributes.
    """
    return type(
        TFRecordSource.__name__, (TFRecordSource,), {"source_name": name, "session_settings": settings}
    )
