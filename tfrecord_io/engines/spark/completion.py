"""Completes Spark's DataFrameReader and DataFrameWriter for this format.

Of a DataFrameWriter with a Python data source, Spark lets only the modes ``append`` and
``overwrite`` through, refuses ``partitionBy``, and gives no settings of the session to a source;
the writer's own checks would come after jobs that shuffle. So, while a session is registered, four
methods look at what they were asked for:

- ``DataFrameReader.load`` first asks the data source which columns there are: what is wrong is told
  at once, partition columns are added to a schema of the user's, and Connect, which analyzes a plan
  anew for every action, infers nothing again. Then it has a fresh reader load these columns, with
  the session's settings as options.
- ``DataFrameWriter.save`` first asks it whether the write is possible, or, for the mode
  ``ignore``, needed. Then it has a fresh writer append, with mode and partition columns as options.
- ``DataFrameWriter.saveAsTable``, and ``save`` after ``bucketBy`` or ``sortBy``, refuse.

Whatever is not of this format goes on to Spark's own method with the arguments that came. The two
kinds of session (classic: state behind Py4J; Connect: plain attributes) differ in `_Classic` and
`_Connect` alone. Errors that workers raised are raised here as what they are.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType

from tfrecord_io.engines.spark.conditions import analysis_error, as_spark, translated
from tfrecord_io.engines.spark.options import (
    CHECK_OPTION,
    DESCRIBE_OPTION,
    REQUEST_OPTION,
    STORED_OPTION,
    STREAM_OPTION,
)
from tfrecord_io.engines.spark.row_batches import small_batches
from tfrecord_io.engines.spark.settings import is_connect, of_session
from tfrecord_io.engines.spark.source import CONNECTOR_NAME, NAMES, NOT_NEEDED, TFRecordSource
from tfrecord_io.engines.spark.stores import comma_separated
from tfrecord_io.errors import UnsupportedTypeError

_SAVE_MODES = {
    "error": "error",
    "errorifexists": "error",
    "default": "error",
    "append": "append",
    "overwrite": "overwrite",
    "ignore": "ignore",
}


#: How a table of the catalog is made of rows.
MADE_OF_FILES = (
    'df.write.format("tfrecord").mode("overwrite").save(path) first, then '
    "CREATE TABLE name USING tfrecord LOCATION 'path'"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a DataFrameReader was told so far."""

    session: Any
    source: str | None
    #: As JSON, or in Connect perhaps as DDL; empty without one.
    schema: str
    options: Mapping[str, str]
    #: What a stream is called in checkpoints.
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Writing:
    """What a DataFrameWriter was told so far."""

    session: Any
    source: str | None
    mode: str | None
    partition_by: tuple[str, ...]
    is_bucketed: bool
    options: Mapping[str, str]


class _Kind(Protocol):
    """What differs between the classic session and Connect."""

    reader: type
    writer: type

    def reading(self, reader: Any) -> Reading:
        """Return what a DataFrameReader was told."""

    def writing(self, writer: Any) -> _Writing:
        """Return what a DataFrameWriter was told."""

    def columns(self, writer: Any) -> Any:
        """Return the schema of its frame."""

    def fresh(self, writer: Any) -> Any:
        """Return another writer of its frame."""


class _Classic:
    """Sessions in this process; the state is the JVM's."""

    def __init__(self) -> None:
        from pyspark.sql.readwriter import DataFrameReader, DataFrameWriter

        self.reader, self.writer = DataFrameReader, DataFrameWriter

    def reading(self, reader: Any) -> Reading:
        java = reader._jreader
        given = java.userSpecifiedSchema()
        return Reading(
            session=reader._spark,
            source=java.source(),
            schema=given.get().json() if given.isDefined() else "",
            options=scala_map(java.extraOptions()),
        )

    def writing(self, writer: Any) -> _Writing:
        java = writer._jwrite
        columns = java.partitioningColumns()
        return _Writing(
            session=writer._spark,
            source=java.source(),
            mode=java.curmode().name(),
            partition_by=scala_sequence(columns.get()) if columns.isDefined() else (),
            is_bucketed=java.bucketColumnNames().isDefined() or java.sortColumnNames().isDefined(),
            options=scala_map(java.extraOptions()),
        )

    def columns(self, writer: Any) -> Any:
        return writer._df.schema

    def fresh(self, writer: Any) -> Any:
        return self.writer(writer._df)


def java_field(java: Any, name: str) -> Any:
    """Return a field, private or not, of an object of this process's JVM."""
    found = java.getClass().getDeclaredField(name)
    found.setAccessible(True)
    return found.get(java)


def scala_sequence(java: Any) -> tuple[str, ...]:
    """Return a Scala Seq of this process's JVM."""
    return tuple(java.apply(index) for index in range(java.size()))


def scala_map(java: Any) -> dict[str, str]:
    """Return a Scala Map of this process's JVM."""
    found = {}
    pairs = java.iterator()
    while pairs.hasNext():
        pair = pairs.next()
        found[pair._1()] = pair._2()
    return found


class _Connect:
    """Sessions on a server; the state is plain attributes."""

    def __init__(self) -> None:
        from pyspark.sql.connect.readwriter import DataFrameReader, DataFrameWriter

        self.reader, self.writer = DataFrameReader, DataFrameWriter

    def reading(self, reader: Any) -> Reading:
        return Reading(
            session=reader._client,
            source=reader._format,
            schema=reader._schema or "",
            options={name: text for name, text in reader._options.items() if text is not None},
        )

    def writing(self, writer: Any) -> _Writing:
        told = writer._write
        return _Writing(
            session=writer._spark,
            source=told.source,
            mode=told.mode,
            partition_by=tuple(told.partitioning_cols or ()),
            is_bucketed=bool(told.bucket_cols or told.sort_cols),
            options=dict(told.options),
        )

    def columns(self, writer: Any) -> Any:
        from pyspark.sql.connect.dataframe import DataFrame

        return DataFrame(writer._df, writer._spark).schema

    def fresh(self, writer: Any) -> Any:
        return self.writer(writer._df, writer._spark, writer._callback)


_replaced: dict[tuple[type, str], Callable[..., Any]] = {}


def install(*, connect: bool) -> None:
    """Complete the reader and the writer of one kind of session; once is enough."""
    kind: _Kind = _Connect() if connect else _Classic()
    complete(kind.reader, "load", functools.partial(_completed_load, kind))
    complete(kind.writer, "save", functools.partial(_completed_save, kind))
    complete(kind.writer, "saveAsTable", functools.partial(_completed_save_as_table, kind))


def complete(owner: type, name: str, make: Callable[[Callable[..., Any]], Any]) -> None:
    """Replace a method by what `make` makes of it, once; `uninstall` puts it back."""
    if (owner, name) not in _replaced:
        own = getattr(owner, name)
        _replaced[owner, name] = own
        setattr(owner, name, functools.wraps(own)(make(own)))


def uninstall() -> None:
    """Put Spark's own methods back."""
    for (owner, name), own in _replaced.items():
        setattr(owner, name, own)
    _replaced.clear()


def is_ours(source: str | None, session: Any) -> bool:
    """Return whether a format is this one; without a name it is the session's default."""
    if source is None:
        source = of_session(session).default_source
    return source.lower() in NAMES


def _check_registered(session: Any) -> None:
    """Refuse a session of this process that knows no such format; a server tells it well itself."""
    if is_connect(session):
        return
    known = session._jsparkSession.sessionState().dataSourceManager()
    if not known.dataSourceExists(NAMES[0]):
        # Spark's own condition, of which PySpark would show a trace of Java.
        raise analysis_error(
            "DATA_SOURCE_NOT_FOUND",
            "the format is not registered in this session; one made by newSession() needs "
            "it, too: tfrecord_io.engines.spark.register(session)",
        )


def _completed_load(kind: _Kind, own: Callable[..., Any]) -> Callable[..., Any]:
    def load(
        self: Any, path: Any = None, format: str | None = None, schema: Any = None, **options: Any
    ) -> Any:
        told = told_to_load(kind.reading, self, format, schema, options)
        if told is None:
            return own(self, path, format, schema, **options)
        if (told.source or "").lower() == CONNECTOR_NAME:
            path, told = _of_connector(path, told)
        return load_columns(told.session, path, told.schema, told.options)

    return load


def told_to_load(
    reading: Callable[[Any], Reading],
    reader: Any,
    format: str | None,
    schema: Any,
    options: Mapping[str, Any],
) -> Reading | None:
    """Tell a reader the arguments of its `load`, and return all that it was told by then.

    The schema is JSON. None, with nothing told, if it is to read another format.
    """
    told = reading(reader)
    if not is_ours(format or told.source, told.session):
        return None
    reader.options(**options)
    if format is not None:
        reader.format(format)
    if schema is not None:
        reader.schema(schema)
    told = reading(reader)
    if told.schema and not told.schema.startswith("{"):
        told = replace(told, schema=schema_of(told.session, told.schema))
    return told


def _of_connector(path: Any, told: Reading) -> tuple[Any, Reading]:
    """Return a path as the older connector took it: one text may hold several, with commas."""
    options = {name.lower(): text for name, text in told.options.items()}
    text = options.pop("path", None) if path is None else path
    if not isinstance(text, str) or len(paths := comma_separated(text)) == 1:
        return path, told
    return paths, replace(told, options=options)


def schema_of(session: Any, text: str) -> str:
    """Return the schema that a text says, as JSON; as all readers of the session take the text."""
    # What is to be loaded does not matter: nothing is looked at.
    schema: str = _load(session.read.schema(text), "unread", {}).schema.json()
    return schema


def load_columns(
    session: Any,
    path: Any,
    given: str,
    options: Mapping[str, str],
    *,
    is_stream: bool = False,
    stream_name: str | None = None,
) -> Any:
    """Load a data set after asking for its columns.

    Parameters
    ----------
    session : pyspark.sql.SparkSession
        Where the format is registered.
    path : str or list of str, optional
        What to load.
    given : str
        The schema that the user gave, as JSON; empty without one.
    options : mapping
        Options of the data source.
    is_stream : bool
        Whether to load it as a stream.
    stream_name : str, optional
        What the stream is called in checkpoints.
    """
    told = {**of_session(session).options(), **options}
    if given:
        _check_classes(given)
    with translated():
        question = {DESCRIBE_OPTION: given} | ({STREAM_OPTION: ""} if is_stream else {})
        found = json.loads(_ask(session, path, told | question))
        stored = {STORED_OPTION: json.dumps(found["stored"])}
        reader = session.readStream if is_stream else session.read
        if stream_name is not None:
            reader = reader.name(stream_name)
        columns = StructType.fromJson(found["columns"])
        return _load(reader.schema(columns), path, {**told, **stored})


def _ask(session: Any, path: Any, options: Mapping[str, str]) -> str:
    """Have the data source answer a question, beside the driver's JVM.

    A classic session's client is beside it and answers itself, unless it went to another folder
    since: relative paths are the JVM's. To make a worker answer would take 20 ms.
    """
    _check_registered(session)
    answer: str
    if is_connect(session) or not _is_in(session._jvm.System.getProperty("user.dir")):
        (answer,) = _load(session.read, path, options).columns
        return answer
    asked = CaseInsensitiveDict(options)
    if isinstance(path, str):
        asked["path"] = path
    elif path is not None:
        asked["paths"] = json.dumps(list(path))
    try:
        (answer,) = TFRecordSource(asked).schema().names
    except PySparkException:
        raise
    except Exception as error:
        # A store's own error, say. Spark's condition for it, had a worker raised it.
        raise analysis_error(
            "PYTHON_DATA_SOURCE_ERROR", f"{type(error).__name__}: {error}"
        ) from error
    return answer


def _is_in(folder: str) -> bool:
    try:
        return str(Path.cwd()) == folder
    except FileNotFoundError:
        # It was removed.
        return False


def _load(reader: Any, path: Any, options: Mapping[str, str]) -> Any:
    reader = reader.format(NAMES[0]).options(**options)
    return _own(reader, "load")(reader, path)


def _own(made: Any, name: str) -> Callable[..., Any]:
    """Return Spark's own method of an object's class, whether it is completed or not."""
    owner = type(made)
    return _replaced.get((owner, name)) or getattr(owner, name)


def _completed_save(kind: _Kind, own: Callable[..., Any]) -> Callable[..., Any]:
    def save(
        self: Any,
        path: str | None = None,
        format: str | None = None,
        mode: str | None = None,
        partitionBy: str | list[str] | None = None,  # noqa: N803 - Spark's name
        **options: Any,
    ) -> None:
        if not is_ours(format or kind.writing(self).source, self._spark):
            own(self, path, format, mode, partitionBy, **options)
            return
        self.mode(mode).options(**options)
        if partitionBy is not None:
            self.partitionBy(partitionBy)
        if format is not None:
            self.format(format)
        told = kind.writing(self)
        if told.is_bucketed:
            raise refusal("'save' supports neither bucketBy nor sortBy; use partitionBy")
        _save(kind, self, path, told)

    return save


def _completed_save_as_table(kind: _Kind, own: Callable[..., Any]) -> Callable[..., Any]:
    def save_as_table(
        self: Any, name: str, format: str | None = None, *args: Any, **more: Any
    ) -> None:
        if not is_ours(format or kind.writing(self).source, self._spark):
            own(self, name, format, *args, **more)
            return
        raise refusal(
            "saveAsTable is not possible: Spark tells a Python data source neither path nor "
            f"options of a table in the catalog. Use {MADE_OF_FILES}"
        )

    return save_as_table


def refusal(text: str) -> AnalysisException:
    """Return the error of what is not possible with this format."""
    return analysis_error("UNSUPPORTED_FEATURE.TFRECORD", text)


def _save(kind: _Kind, writer: Any, path: str | None, told: _Writing) -> None:
    mode = _SAVE_MODES.get((told.mode or "error").lower())
    if mode is None:
        # Of Connect alone; a classic session has refused it before, under this condition.
        raise analysis_error(
            "INVALID_SAVE_MODE",
            f"there is no save mode {told.mode!r}; it must be append, overwrite, ignore, "
            "error, errorifexists or default",
        )
    options = options_of_write(told.session, told.options, mode, told.partition_by)
    with translated():
        if is_needed(told.session, path, options, kind.columns(writer)):
            append(told.session, kind.fresh(writer), path, options)


def options_of_write(
    session: Any, given: Mapping[str, str], mode: str, partition_by: Sequence[str]
) -> dict[str, str]:
    """Return the options of a write, with what Spark would not let through among them."""
    request = {"mode": mode, "partition_by": list(partition_by)}
    return {**of_session(session).options(), **given, REQUEST_OPTION: json.dumps(request)}


def append(session: Any, writer: Any, path: str | None, options: Mapping[str, str]) -> None:
    """Have Spark add the rows of a fresh writer's frame; the options say the rest."""
    with small_batches(session, writer._df), active(session):
        own = _own(writer, "save")
        own(writer.format(NAMES[0]).mode("append").options(**options), path)


@contextlib.contextmanager
def active(session: Any) -> Iterator[None]:
    """Have a classic session be this thread's active one meanwhile.

    Writers look data sources up in that one, and a new thread has none.
    """
    if is_connect(session):
        yield
        return
    sessions = session._jvm.org.apache.spark.sql.classic.SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(session._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def is_needed(session: Any, path: str | None, options: Mapping[str, str], columns: Any) -> bool:
    """Ask whether a write is possible and would write anything."""
    told = columns.json()
    _check_classes(told)
    return _ask(session, path, {**options, CHECK_OPTION: told}) != NOT_NEEDED


def _check_classes(schema: str) -> None:
    """Refuse user-defined types of the main program: Spark's workers load no such class."""
    for field in json.loads(schema)["fields"]:
        if '"pyClass": "__main__.' in json.dumps(field["type"]):
            raise as_spark(
                UnsupportedTypeError(
                    f"column {field['name']!r} has a type of your own whose class is in the main "
                    "program, where Spark's workers do not find it: put it in a module that they "
                    "have, or make numbers, texts or lists of its objects by a udf of your own",
                    feature=field["name"],
                )
            )
