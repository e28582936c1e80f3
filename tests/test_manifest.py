"""The manifest's text, and what becomes of damaged and hostile ones."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrecord_io.errors import ManifestError
from tfrecord_io.manifest import Manifest, ManifestFile

MANIFEST = Manifest(
    record_type="Example",
    compression=None,
    schema=pa.schema([("a", pa.int64()), ("é", pa.list_(pa.float32()))]),
    partition_schema=pa.schema([("p", pa.date32())]),
    files=(
        ManifestFile(path="p=2026-01-03/part-00001-000.tfrecord", bytes=90, rows=3),
        ManifestFile(
            path="p=2026-01-02/part-00000-000.tfrecord", bytes=100, rows=7, marks=((20, 2), (50, 4))
        ),
    ),
)

TEXT = """{
 "tfrecord_io_manifest": 1,
 "file_format": "tfrecord",
 "record_type": "Example",
 "compression": null,
 "schema": [
  {"name": "a", "type": "int64"},
  {"name": "é", "type": "list<float32>"}
 ],
 "partition_columns": [
  {"name": "p", "type": "date32"}
 ],
 "files": [
  {"path": "p=2026-01-02/part-00000-000.tfrecord", "bytes": 100, "rows": 7, "marks": [[20, 2], [50, 4]]},
  {"path": "p=2026-01-03/part-00001-000.tfrecord", "bytes": 90, "rows": 3}
 ]
}
"""  # noqa: E501


def test_text() -> None:
    assert MANIFEST.dumps().decode() == TEXT


def test_loads_what_was_dumped() -> None:
    loaded = Manifest.loads(TEXT.encode())
    assert loaded is not None
    assert loaded.dumps().decode() == TEXT
    assert loaded.schema == MANIFEST.schema
    assert loaded.files == tuple(sorted(MANIFEST.files, key=lambda file: file.path))
    assert loaded.streams == {}


def test_streams() -> None:
    text = replace(MANIFEST, streams={"b": 0, "a": 7}).dumps()
    line = ' "streams": {"a": 7, "b": 0},\n "schema": ['
    assert text.decode() == TEXT.replace(' "schema": [', line)
    loaded = Manifest.loads(text)
    assert loaded is not None
    assert loaded.streams == {"a": 7, "b": 0}


@pytest.mark.parametrize(
    "foreign",
    [
        b"",
        b" ",
        b"job done",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"{}",
        b'{"name": "SuccessData/1"}',
        b"{",
    ],
)
def test_foreign_texts_are_no_manifest(foreign: bytes) -> None:
    assert Manifest.loads(foreign) is None


def changed(**members: Any) -> bytes:
    return json.dumps({**json.loads(TEXT), **members}).encode()


def changed_file(**members: Any) -> bytes:
    """Change a file without marks, so that none of them is refused in the place of what changes."""
    return changed(files=[{**json.loads(TEXT)["files"][1], **members}])


def marked_file(*marks: Any) -> bytes:
    return changed_file(bytes=100, rows=7, marks=list(marks))


HOSTILE = {
    "cut": TEXT.encode()[:200],
    "deep": b'{"tfrecord_io_manifest": ' + b"[" * 100_000,
    "nan": TEXT.replace(' "files"', ' "more": NaN,\n "files"').encode(),
    "long number": TEXT.replace("100,", "9" * 10_000 + ",").encode(),
    "newer": changed(tfrecord_io_manifest=2),
    "version": changed(tfrecord_io_manifest="1"),
    "version that is true": changed(tfrecord_io_manifest=True),
    "version that is no integer": changed(tfrecord_io_manifest=1.0),
    "format": changed(file_format=None),
    "record type": changed(record_type="Sample"),
    "compression": changed(compression=3),
    "schema": changed(schema={"a": "int64"}),
    "schema type": changed(schema=[{"name": "a", "type": "object"}]),
    "partition columns": changed(partition_columns=None),
    "streams": changed(streams=["a"]),
    "a stream": changed(streams={"a": -1}),
    "files": changed(files={"a": 1}),
    "a file": changed(files=["part"]),
    "twice": changed(files=json.loads(TEXT)["files"] * 2),
    "bytes": changed_file(bytes=-1),
    "bool": changed_file(rows=True),
    "float": changed_file(rows=1.5),
    "huge": changed_file(bytes=2**64),
    "marks": changed_file(marks=3),
    "mark": marked_file([1]),
    "mark that is true": marked_file([20, True]),
    "mark order": marked_file([50, 2], [20, 4]),
    "mark order of records": marked_file([20, 4], [50, 2]),
    "marks of one place": marked_file([20, 2], [20, 4]),
    "marks of one record": marked_file([20, 2], [50, 2]),
    "mark beyond": marked_file([100, 4]),
    "mark beyond the records": marked_file([50, 7]),
    "mark at 0": marked_file([0, 1]),
    "mark at record 0": marked_file([20, 0]),
    **{
        f"path {path!r}": changed_file(path=path)
        for path in (
            *("/etc/passwd", "../x", "a/../x", "a//x", "", ".", "a/.", "x\0", "_SUCCESS", "\ud800"),
            *(".tfrecord-io/x", "a/", None),
        )
    },
}


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_texts_are_refused(hostile: bytes) -> None:
    with pytest.raises(ManifestError):
        Manifest.loads(hostile)


@given(st.data())
def test_any_damage_gives_a_manifest_none_or_the_one_error(data: st.DataObject) -> None:
    text = bytearray(TEXT.encode())
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    try:
        loaded = Manifest.loads(bytes(text))
    except ManifestError:
        return
    if loaded is not None:
        assert Manifest.loads(loaded.dumps()) == loaded


def test_empty_data_set() -> None:
    empty = Manifest(
        record_type="ByteArray",
        compression="gzip",
        schema=pa.schema([("byteArray", pa.binary())]),
        partition_schema=pa.schema([]),
        files=(),
    )
    assert Manifest.loads(empty.dumps()) == empty
