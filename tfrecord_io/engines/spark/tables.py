"""Tables of the catalog: a schema that remembers what the table was made of.

Of a table in the catalog Spark gives a Python data source the columns and nothing else: neither
path nor options. But it asks for the columns when the table is made, with path and options, and
keeps the metadata of columns. So the first column tells what to read.

It does not tell where to write. Spark gives a writer the table's columns where it has to fit those
of the query to them, and the query's own where they fit already; these may remember a table that
the query reads. The two look alike, so a write goes to the path among its options, or nowhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pyspark.sql.types import StructField, StructType

from tfrecord_io.engines.spark.options import REQUEST_OPTION, is_of_table
from tfrecord_io.errors import OptionError

_KEY = "tfrecord_io.table"
_COLUMNS_KEY = "tfrecord_io.columns"


def remembering(
    struct: StructType, options: Mapping[str, str], partition_by: Sequence[str]
) -> StructType:
    """Return columns that tell what they were read from.

    Parameters
    ----------
    struct : pyspark.sql.types.StructType
        The columns.
    options : mapping
        Those of the read. Settings of stores are left out, since they may be secrets.
    partition_by : sequence of str
        The columns that the data are partitioned by.
    """
    names = {name.lower().removeprefix("option."): name for name in options}
    known = {name: options[told] for name, told in names.items() if is_of_table(name)}
    if partition_by:
        known["partitionby"] = json.dumps(list(partition_by))
    fields = [
        StructField(field.name, field.dataType, field.nullable, field.metadata)
        for field in struct.fields
    ]
    for first in fields[:1]:
        told = {_KEY: json.dumps(known), _COLUMNS_KEY: json.dumps(struct.names)}
        first.metadata = {**(first.metadata or {}), **told}
    return StructType(fields)


def remembers(struct: StructType) -> bool:
    """Return whether columns tell what they were read from."""
    return any(_KEY in (field.metadata or {}) for field in struct)


def options_to_read(struct: StructType, options: Mapping[str, str]) -> Mapping[str, str]:
    """Return options, with those that the columns tell if they are of the same path.

    Raises
    ------
    OptionError
        Columns of a table were given other names.
    """
    known = _known(struct)
    if "path" not in options:
        _check_names(struct)
    elif not _is_of(options["path"], known):
        return options
    return {**known, **options}


def _check_names(struct: StructType) -> None:
    """Raise where ``ALTER TABLE`` renamed columns: under the new names no record has a feature."""
    names: list[str] = json.loads(_told(struct, _COLUMNS_KEY, "[]"))
    known, now = {*names}, {*struct.names}
    gone = [name for name in names if name not in now]
    new = [name for name in struct.names if name not in known]
    if gone and new:
        raise OptionError(
            f"the table has columns {_listed(new)}, and was made of records that have "
            f"{_listed(gone)}: features are found by their names, which ALTER TABLE does not "
            "change in them; drop the table and create it again, or name columns in a view"
        )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


def options_to_write(struct: StructType, options: Mapping[str, str]) -> Mapping[str, str]:
    """Return options, with those that the columns tell if the path is told and theirs."""
    known = _known(struct)
    if REQUEST_OPTION in options or not _is_of(options.get("path", ""), known):
        return options
    return {**known, **options}


def _known(struct: StructType) -> dict[str, str]:
    known: dict[str, str] = json.loads(_told(struct, _KEY, "{}"))
    return known


def _told(struct: StructType, key: str, default: str) -> str:
    return next((field.metadata[key] for field in struct if key in (field.metadata or {})), default)


def _is_of(path: str, known: Mapping[str, str]) -> bool:
    return path != "" and _bare(known.get("path", "")) == _bare(path)


def _bare(path: str) -> str:
    # Spark makes a URL of a LOCATION.
    return path.removeprefix("file:").removeprefix("//").rstrip("/")
