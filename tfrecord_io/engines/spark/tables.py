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

_KEY = "tfrecord_io.table"


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
        first.metadata = {**(first.metadata or {}), _KEY: json.dumps(known)}
    return StructType(fields)


def options_to_read(struct: StructType, options: Mapping[str, str]) -> Mapping[str, str]:
    """Return options, with those that the columns tell if they are of the same path."""
    known = _known(struct)
    if "path" in options and not _is_of(options["path"], known):
        return options
    return {**known, **options}


def options_to_write(struct: StructType, options: Mapping[str, str]) -> Mapping[str, str]:
    """Return options, with those that the columns tell if the path is told and theirs."""
    known = _known(struct)
    if REQUEST_OPTION in options or not _is_of(options.get("path", ""), known):
        return options
    return {**known, **options}


def _known(struct: StructType) -> dict[str, str]:
    told = next((field.metadata[_KEY] for field in struct if _KEY in (field.metadata or {})), "{}")
    known: dict[str, str] = json.loads(told)
    return known


def _is_of(path: str, known: Mapping[str, str]) -> bool:
    return path != "" and _bare(known.get("path", "")) == _bare(path)


def _bare(path: str) -> str:
    # Spark makes a URL of a LOCATION.
    return path.removeprefix("file:").removeprefix("//").rstrip("/")
