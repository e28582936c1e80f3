"""Completes what makes tables of Spark's catalog: refuses those that could not be of this format.

Of a table that replaces another Spark drops the other before it asks a data source anything, and of
a table with a schema it asks nothing. So, while a session is registered, these look at what they
were asked for first:

- ``DataFrameWriterV2.create``, ``replace`` and ``createOrReplace`` refuse.
- ``SparkSession.sql`` refuses ``REPLACE TABLE``, also in a text to execute and in a script, as far
  as the statement shows it. Spark asks for the rest before anything is done. It also refuses
  ``CREATE TABLE ... LIKE`` what was read by this format: Spark copies the columns, which remember
  where its rows are, and the new table would have these.
- ``Catalog.createTable`` refuses a schema: it may remember another table, see
  `tfrecord_io.engines.spark.tables`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from pyspark.errors import PySparkException

from tfrecord_io.engines.spark.completion import (
    MADE_OF_FILES,
    complete,
    is_ours,
    java_field,
    refusal,
)
from tfrecord_io.engines.spark.tables import remembers

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
_NAME = r"(?:`(?:[^`]|``)+`|\w+)(?:\s*\.\s*(?:`(?:[^`]|``)+`|\w+))*"
_LIKE = re.compile(
    rf"\bCREATE\s+TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?{_NAME}\s+LIKE\s+(?P<like>{_NAME})"
    r"(?:[^;]*?\bUSING\s+`?(?P<source>\w+))?",
    re.IGNORECASE,
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
        raise refusal(
            f"writeTo(...).{name}() is not possible, and nothing was done: {MADE_OF_FILES}"
        )

    return create


def _completed_sql(own: Callable[..., Any]) -> Callable[..., Any]:
    def sql(self: Any, sqlQuery: str, args: Any = None, **kwargs: Any) -> Any:  # noqa: N803 - Spark's
        text = _COMMENTS.sub(lambda found: found["kept"] or " ", sqlQuery).lstrip()
        holds = _HOLDERS.match(text) is not None
        if holds and any(is_ours(found["source"], self) for found in _REPLACE.finditer(text)):
            raise refusal(
                "REPLACE TABLE is not possible, and nothing was done: Spark drops the old table "
                f"before it asks this format. DROP TABLE name; for new rows {MADE_OF_FILES}"
            )
        likes = _LIKE.finditer(text) if holds else filter(None, [_LIKE.match(text)])
        if any(_is_like_ours(found, self) for found in likes):
            raise refusal(
                "CREATE TABLE ... LIKE is not possible, and nothing was done: the new table would "
                f"have the rows of the old one, whatever its LOCATION. {MADE_OF_FILES}"
            )
        return own(self, sqlQuery, args, **kwargs)

    return sql


def _is_like_ours(found: re.Match[str], session: Any) -> bool:
    """Return whether a table of this format would have columns that remember other files."""
    # Of a table of this format Spark refuses it without USING; of a view it takes the default.
    if not is_ours(found["source"], session):
        return False
    try:
        columns = session.table(found["like"]).schema
    except PySparkException:
        # Spark tells best what is wrong with it.
        return False
    return remembers(columns)


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
