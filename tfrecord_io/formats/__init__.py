"""The other file formats of `convert`: Parquet, ORC, CSV, JSON lines, Arrow IPC and Avro.

Loaded by conversions alone; each format loads the packages that it needs when it is used.
"""

from __future__ import annotations

from tfrecord_io.errors import OptionError
from tfrecord_io.formats.avro import AvroFormat
from tfrecord_io.formats.base import Format
from tfrecord_io.formats.columnar import ArrowFormat, OrcFormat, ParquetFormat
from tfrecord_io.formats.json_lines import JsonLinesFormat
from tfrecord_io.formats.text import CsvFormat

#: What names of TFRecord files end in; the first is what ours end in, the last what those of the
#: Object Detection API do.
TFRECORD_SUFFIXES = (".tfrecord", ".tfrecords", ".tfrec", ".tfr", ".record")

_FORMATS: dict[str, Format] = {
    found.name: found
    for found in (
        ParquetFormat(),
        OrcFormat(),
        CsvFormat(),
        CsvFormat(name="tsv", delimiter="\t", suffixes=(".tsv",)),
        JsonLinesFormat(),
        ArrowFormat(),
        AvroFormat(),
    )
}


def format_names() -> tuple[str, ...]:
    """Return the names of the formats other than TFRecord."""
    return tuple(_FORMATS)


def get_format(name: str) -> Format:
    """Return the format of this name.

    Raises
    ------
    OptionError
        There is none.
    """
    if not isinstance(name, str) or name not in _FORMATS:
        known = ", ".join(map(repr, _FORMATS))
        raise OptionError(f"the file format is {name!r}; it must be 'tfrecord', {known}")
    return _FORMATS[name]
