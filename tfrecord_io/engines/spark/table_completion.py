"""Completes what makes tables of Spark's catalog: refuses those that could not be of this format.

Of a table that replaces another Spark drops the other before it asks a data source anything, and of
a table with a schema it asks nothing. So, while a session is registered, these look at what they
were asked for first:

- ``DataFrameWriterV2.create``, ``replace`` and ``createOrReplace`` refuse.
- ``SparkSession.sql`` refuses ``REPLACE TABLE``, also in a text to execute and in a script, as far
  as the statement shows it. Spark asks for the rest before anything is done.
- ``Catalog.createTable`` refuses a schema: it may remember another table, see
  `tfrecord_io.engines.spark.tables`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from tfrecord_io.engines.spark.completion import complete, is_ours, java_field, refusal

_COMMENTS = re.compile(
    r"""(?P<kept>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|/\*.*?\*/|--[^\n]*""", re.DOTALL
)
_REPLACE = re.compile(
    r"\bREPLACE\s+TABLE\b(?:[^;]*?\bUSING\s+`?(?P<source>\w+))?", re.DOTALL | re.IGNORECASE
)
#: What may hold the statement: itself, ``EXECUTE IMMEDIATE 'text'``, and a script.
_HOLDERS = re.compile(
    r"\s*(?:(?:CREATE\s+OR\s+)?REPLACE\s+TABLE|EXECUTE\s+IMMEDIATE|BEGIN)\b", re.IGNORECASE
)

_INSTEAD = (
    'df.write.format("tfrecord").mode("overwrite").save(path) first, then '
    "CREATE TABLE name USING tfrecord LOCATION 'path'"
)


def install(*, connect: bool) -> None:
    """Complete the classes of one kind of session; once is enough."""
    if connect:
        from pyspark.sql.connect.catalog import Catalog
        from pyspark.sql.connect.readwriter import DataFrameWriterV2
        from pyspark.sql.connect.session import SparkSession

        source = _source_of_connect
    else:
        from pyspark.sql.catalog import Catalog
        from pyspark.sql.readwriter import DataFrameWriterV2
        from pyspark.sql.session import SparkSession

        source = _source_of_classic
    for name in ("create", "replace", "createOrReplace"):
        complete(DataFrameWriterV2, name, functools.partial(_completed_create, source, name))
    complete(SparkSession, "sql", _completed_sql)
    complete(Catalog, "createTable", _completed_create_table)


def _source_of_classic(writer: Any) -> str | None:
    told = java_field(writer._jwriter, "provider")
    return told.get() if told.isDefined() else None


def _source_of_connect(writer: Any) -> str | None:
    source: str | None = writer._write.provider
    return source


def _completed_create(
    source: Callable[[Any], str | None], name: str, own: Callable[..., Any]
) -> Callable[..., Any]:
    def create(self: Any) -> None:
        if not is_ours(source(self), self._spark):
            own(self)
            return
        raise refusal(f"writeTo(...).{name}() is not possible, and nothing was done: {_INSTEAD}")

    return create


def _completed_sql(own: Callable[..., Any]) -> Callable[..., Any]:
    def sql(self: Any, sqlQuery: str, args: Any = None, **kwargs: Any) -> Any:  # noqa: N803 - Spark's
        if not _replaces_table(sqlQuery, self):
            return own(self, sqlQuery, args, **kwargs)
        raise refusal(
            "REPLACE TABLE is not possible, and nothing was done: Spark drops the old table before "
            f"it asks this format. DROP TABLE name; for new rows {_INSTEAD}"
        )

    return sql


def _replaces_table(text: str, session: Any) -> bool:
    text = _COMMENTS.sub(lambda found: found["kept"] or " ", text)
    return _HOLDERS.match(text) is not None and any(
        is_ours(found["source"], session) for found in _REPLACE.finditer(text)
    )


def _completed_create_table(own: Callable[..., Any]) -> Callable[..., Any]:
    def create_table(
        self: Any,
        tableName: str,  # noqa: N803 - Spark's name
        path: str | None = None,
        source: str | None = None,
        schema: Any = None,
        description: str | None = None,
        **options: str,
    ) -> Any:
        if schema is None or not is_ours(source, self._sparkSession):
            return own(self, tableName, path, source, schema, description, **options)
        raise refusal(
            "a table cannot be given a schema, and none was made: it has the columns of the data "
            "in its path, so leave the schema out"
        )

    return create_table
