"""The tfrecord package of PyPI: what it writes we read, and the reverse.

It runs in a process of its own, because its messages clash with TensorFlow's.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

import tfrecord_io as tfr

WRITE = """
import sys, tfrecord
one = tfrecord.TFRecordWriter(sys.argv[1])
one.write({"n": (5, "int"), "x": ([0.5, 1.5], "float"), "b": (b"\\xff", "byte")})
one.close()
two = tfrecord.TFRecordWriter(sys.argv[2])
two.write(
    {"id": (1, "int")}, {"steps": ([[1, 2], [3]], "int"), "words": ([[b"a"], [b"b"]], "byte")}
)
two.close()
"""
READ = """
import json, sys
from tfrecord.reader import tfrecord_loader
kinds = {"n": "int", "x": "float", "b": "byte", "pair": "int"}
index = sys.argv[2] if len(sys.argv) > 2 else None
for row in tfrecord_loader(sys.argv[1], index, kinds, *map(eval, sys.argv[3:])):
    shown = {name: bytes(v).hex() if name == "b" else v.tolist() for name, v in row.items()}
    print(json.dumps(shown))
"""


def run(program: str, *arguments: object) -> list[Any]:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_it_writes_and_we_read(tmp_path: Path) -> None:
    run(WRITE, tmp_path / "one", tmp_path / "two")
    assert tfr.read_table(tmp_path / "one").to_pylist() == [{"n": 5, "x": [0.5, 1.5], "b": b"\xff"}]
    table = tfr.read_table(tmp_path / "two", record_type="SequenceExample")
    assert table.to_pylist() == [{"id": 1, "steps": [[1, 2], [3]], "words": [["a"], ["b"]]}]


def test_we_write_and_it_reads(tmp_path: Path) -> None:
    table = pa.table(
        {
            "n": [-(2**63), 0, 2**63 - 1],
            "x": pa.array([0.5, -1.0, 3e38], pa.float32()),
            "b": [b"\xff", b"", b"x"],
            "pair": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int64(), 2)),
        }
    )
    tfr.write_table(table, tmp_path / "data")
    (part,) = (tmp_path / "data").glob("part-*")
    rows = run(READ, part)
    assert [row["n"] for row in rows] == [[n] for n in table["n"].to_pylist()]
    assert [row["x"] for row in rows] == [[x] for x in table["x"].to_pylist()]
    assert [row["b"] for row in rows] == ["ff", "", "78"]
    assert [row["pair"] for row in rows] == table["pair"].to_pylist()


def test_it_reads_by_our_index(tmp_path: Path) -> None:
    table = pa.table({"n": range(10), "b": [b""] * 10})
    tfr.write_table(table, tmp_path / "data")
    (part,) = (tmp_path / "data").glob("part-*")
    tfr.write_index(part, tmp_path / "idx")
    kinds = '{"n": "int", "b": "byte"}'
    program = READ.replace('{"n": "int", "x": "float", "b": "byte", "pair": "int"}', kinds)
    shards = [run(program, part, tmp_path / "idx", (index, 3)) for index in range(3)]
    assert [[row["n"][0] for row in rows] for rows in shards] == [
        [0, 1, 2],
        [3, 4, 5],
        [6, 7, 8, 9],
    ]
