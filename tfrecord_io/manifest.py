"""The manifest: what the last commits wrote, as JSON in ``_SUCCESS``.

The text is a pure function of the data set (fixed order of keys, files sorted by path, one line a
file), so equal data sets have equal manifests. Reading trusts nothing: any bytes give a `Manifest`,
None for a ``_SUCCESS`` that another program wrote (Spark's is empty), or `ManifestError`; a path in
it never leaves the data set.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tfrecord_io.errors import ManifestError, OptionError
from tfrecord_io.layout import is_data_name
from tfrecord_io.options import RecordType, choice
from tfrecord_io.schema import is_unicode, schema_from_json, schema_to_json, shown
from tfrecord_io.storage.protocol import Storage

#: The manifest's name in a data set.
MANIFEST_NAME = "_SUCCESS"

#: A manifest of a million files has about 150 MB.
MAX_MANIFEST_BYTES = 256 * 1024 * 1024

#: The first key of the JSON, whose value is the format version.
_KEY = "tfrecord_io_manifest"
_VERSION = 1

#: Offsets and counts beyond this are no file's.
_MAX_COUNT = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFile:
    """A part file.

    Attributes
    ----------
    path : str
        Relative to the data set, with ``/``.
    bytes : int
        Its length, compressed as it is.
    rows : int
        Its records.
    marks : tuple of (int, int)
        For uncompressed TFRecord files, (offset, record) of the first record that starts at or
        after each multiple of `tfrecord_io.options.SPLIT_BYTES` above 0.
    """

    path: str
    bytes: int
    rows: int
    marks: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a data set is made of.

    Attributes
    ----------
    file_format : str
        ``tfrecord``, or a format that `tfrecord_io.convert` writes.
    record_type : {"Example", "SequenceExample", "ByteArray"} or None
        What a payload is; None for other file formats.
    compression : str or None
        Of the files that the last commit wrote.
    schema : pyarrow.Schema
        The columns in the files, in normal form.
    partition_schema : pyarrow.Schema
        The partition columns, in the order of the folders.
    files : tuple of ManifestFile
        Sorted by path.
    streams : mapping of str to int
        Of each stream that was written here, by its id, the number of the last batch.
    """

    file_format: str = "tfrecord"
    record_type: RecordType | None
    compression: str | None
    schema: pa.Schema
    partition_schema: pa.Schema
    files: tuple[ManifestFile, ...]
    streams: Mapping[str, int] = field(default_factory=dict)

    def dumps(self) -> bytes:
        """Return the manifest as JSON in UTF-8."""
        head: list[tuple[str, Any]] = [
            (_KEY, _VERSION),
            ("file_format", self.file_format),
            ("record_type", self.record_type),
            ("compression", self.compression),
        ]
        files = [_file_to_json(file) for file in sorted(self.files, key=lambda file: file.path)]
        lists: list[tuple[str, list[Any]]] = [
            ("schema", schema_to_json(self.schema)),
            ("partition_columns", schema_to_json(self.partition_schema)),
            ("files", files),
        ]
        if self.streams:
            head.append(("streams", dict(sorted(self.streams.items()))))
        members = [f" {_text(key)}: {_text(value)}" for key, value in head]
        members += [f" {_text(key)}: {_lines(values)}" for key, values in lists]
        return ("{\n" + ",\n".join(members) + "\n}\n").encode()

    @staticmethod
    def loads(data: bytes) -> Manifest | None:
        """Return the manifest of a ``_SUCCESS`` text, or None if another program wrote it.

        Raises
        ------
        ManifestError
            It is a manifest of ours that is damaged, hostile, or of a newer version.
        """
        try:
            value = json.loads(data, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            if _KEY.encode() in data[:100]:
                raise ManifestError(f"the manifest is not whole JSON: {error}") from error
            return None
        if not isinstance(value, dict) or _KEY not in value:
            return None
        version = value[_KEY]
        if type(version) is not int or version != _VERSION:
            raise ManifestError(
                f"the manifest has the format version {shown(version)}, this package reads "
                f"{_VERSION}; install a newer tfrecord-io"
            )
        return Manifest(
            file_format=_member(value, "file_format", str),
            record_type=_record_type(value),
            compression=_optional_text(value, "compression"),
            schema=schema_from_json(_member(value, "schema", list)),
            partition_schema=schema_from_json(_member(value, "partition_columns", list)),
            files=_files(_member(value, "files", list)),
            streams=_streams(value),
        )


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _lines(values: list[Any]) -> str:
    return "[\n" + ",\n".join(f"  {_text(value)}" for value in values) + "\n ]" if values else "[]"


def read_manifest(storage: Storage, root: str) -> Manifest | None:
    """Return the manifest of a data set, or None if it has none of ours.

    Raises
    ------
    ManifestError
        It cannot be understood; `path` names it.
    """
    path = f"{root}/{MANIFEST_NAME}"
    try:
        return Manifest.loads(storage.read_bytes(path, MAX_MANIFEST_BYTES))
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None
    except ManifestError as error:
        raise ManifestError(error.what, path=storage.url(path)) from error


def _file_to_json(file: ManifestFile) -> dict[str, Any]:
    return {
        "path": file.path,
        "bytes": file.bytes,
        "rows": file.rows,
        **({"marks": [list(mark) for mark in file.marks]} if file.marks else {}),
    }


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


def _member(value: dict[str, Any], key: str, kind: type) -> Any:
    found = value.get(key)
    if not isinstance(found, kind):
        raise ManifestError(f"{key} of the manifest is {shown(found)}, not a {kind.__name__}")
    return found


def _optional_text(value: dict[str, Any], key: str) -> str | None:
    return None if value.get(key) is None else str(_member(value, key, str))


def _record_type(value: dict[str, Any]) -> RecordType | None:
    found = _optional_text(value, "record_type")
    try:
        if found is not None:
            choice("record_type", found, RecordType)
    except OptionError as error:
        raise ManifestError(f"in the manifest, {error.what}") from error
    return found  # type: ignore[return-value]


def _streams(value: dict[str, Any]) -> dict[str, int]:
    found: dict[str, Any] = _member(value, "streams", dict) if "streams" in value else {}
    return {stream: _count(found, stream) for stream in found}


def _files(values: list[Any]) -> tuple[ManifestFile, ...]:
    files: dict[str, ManifestFile] = {}
    for value in values:
        if not isinstance(value, dict):
            raise ManifestError(f"a file of the manifest is {shown(value)}, not an object")
        path = _member(value, "path", str)
        check_relative(path)
        if path in files:
            raise ManifestError(f"the manifest lists {shown(path)} twice")
        size, rows = _count(value, "bytes"), _count(value, "rows")
        marks = _marks(value.get("marks", []), size, rows)
        files[path] = ManifestFile(path=path, bytes=size, rows=rows, marks=marks)
    return tuple(sorted(files.values(), key=lambda file: file.path))


def check_relative(path: str) -> None:
    """Raise `ManifestError` unless a path stays inside its data set and under visible names."""
    names = path.split("/")
    if (
        not is_unicode(path)
        or "\0" in path
        or any(name in ("", ".", "..") or not is_data_name(name) for name in names)
    ):
        raise ManifestError(f"the path {shown(path)} is not one of a data file inside a data set")


def _count(value: dict[str, Any], key: str) -> int:
    found = value.get(key)
    if type(found) is not int or not 0 <= found <= _MAX_COUNT:
        raise ManifestError(f"{shown(key)} in the manifest is {shown(found)}, not a count")
    return found


def _marks(value: Any, size: int, rows: int) -> tuple[tuple[int, int], ...]:
    marks = []
    last_offset, last_record = 0, 0
    for mark in value if isinstance(value, list) else [value]:
        if not isinstance(mark, list) or [type(number) for number in mark] != [int, int]:
            raise ManifestError(f"a mark of the manifest is {shown(mark)}, not [offset, record]")
        offset, record = mark
        if not (last_offset < offset < size and last_record < record < rows):
            raise ManifestError(f"the mark {shown(mark)} of the manifest does not fit its file")
        marks.append((offset, record))
        last_offset, last_record = offset, record
    return tuple(marks)
