"""The tables that are measured: what their columns are, and their values.

Values are a pure function of the workload and the row's chunk, so that every environment makes the
same ones. This module needs numpy alone; each peer dresses the columns in its own types.
"""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

#: Counts up when the values change, so that cached files are made anew.
VERSION = 1

#: Rows that are made at a time.
CHUNK_ROWS = 5_000

DATA = Path(__file__).parent / "data"

#: The workload that is measured compressed, too: with gzip, as most compressed TFRecord files are.
COMPRESSED = "ctr"

Kind = Literal["int64", "float", "bytes"]
Shape = Literal["one", "fixed", "ragged", "steps"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a workload.

    Attributes
    ----------
    name : str
        The feature's name.
    kind : {"int64", "float", "bytes"}
        The feature's kind.
    shape : {"one", "fixed", "ragged", "steps"}
        One value a row; `width` values a row; any number of values; or a feature list with `width`
        values in each step.
    width : int
        See `shape`.
    is_text : bool
        Whether the bytes are text, which peers with a string type read as such.
    """

    name: str
    kind: Kind
    shape: Shape = "one"
    width: int = 1
    is_text: bool = False


@dataclass(frozen=True, slots=True)
class Lists:
    """Values of a ragged column or of a feature list: row i has `values[offsets[i]:offsets[i+1]]`.

    Of a feature list, `values` has a dimension of its own for the values of a step.
    """

    offsets: np.ndarray
    values: np.ndarray


#: Of "one" an array or a list of bytes, of "fixed" an array of two dimensions, else `Lists`.
Values: TypeAlias = np.ndarray | list[bytes] | Lists


@dataclass(frozen=True, slots=True)
class Workload:
    """A table, and the file of TFRecords that TensorFlow's writer made of it.

    Attributes
    ----------
    name : str
        What it is called in the results.
    rows : int
        How many rows it has.
    columns : tuple of Column
        In this order.
    checked : tuple of str
        The columns whose values every peer must read alike.
    repeats : int
        How often the file is repeated where there have to be some 200 MB or more.
    batch_rows : int
        Rows of a batch that is encoded.
    """

    name: str
    rows: int
    columns: tuple[Column, ...]
    checked: tuple[str, ...]
    repeats: int = 1
    batch_rows: int = CHUNK_ROWS

    @property
    def is_sequence(self) -> bool:
        """Whether its records are SequenceExamples."""
        return any(column.shape == "steps" for column in self.columns)

    @property
    def record_type(self) -> Literal["Example", "SequenceExample"]:
        """What its records are."""
        return "SequenceExample" if self.is_sequence else "Example"

    @property
    def path(self) -> Path:
        """The file with all rows."""
        return DATA / f"{self.name}-{self.rows}.tfrecord"

    @property
    def gzip_path(self) -> Path:
        """The file with all rows, compressed."""
        return self.path.with_suffix(".tfrecord.gz")

    @property
    def large_repeats(self) -> int:
        """How often it is repeated for measuring two threads.

        To 1 GB or more: of 200 MB, which take 20 ms, beginning and ending would be a good part.
        """
        return 5 * self.repeats

    @property
    def large_path(self) -> Path:
        """The file repeated `large_repeats` times."""
        return self.path.with_suffix(f".x{self.large_repeats}.tfrecord")

    @property
    def head(self) -> Workload:
        """The first twentieth of it, for peers that are two orders of magnitude slower."""
        return replace(self, rows=max(self.rows // 20, 1), repeats=1)

    def column(self, name: str) -> Column:
        """Return the column of this name."""
        return next(column for column in self.columns if column.name == name)

    def chunks(self) -> Iterator[tuple[int, dict[str, Values]]]:
        """Yield the number of rows and the values of one run of rows after the other."""
        make = globals()[f"_make_{self.name}"]
        seed = zlib.crc32(self.name.encode())
        for start in range(0, self.rows, CHUNK_ROWS):
            # A chunk is made whole and then cut, so that the head has the rows of the whole.
            rng = np.random.default_rng((VERSION, seed, start))
            rows = min(CHUNK_ROWS, self.rows - start)
            values = make(rng, start)
            yield rows, {name: _first(column, rows) for name, column in values.items()}


def _first(values: Values, rows: int) -> Values:
    if isinstance(values, Lists):
        offsets = values.offsets[: rows + 1]
        return Lists(offsets, values.values[: offsets[-1]])
    return values[:rows]


def _ids(start: int) -> np.ndarray:
    return np.arange(start, start + CHUNK_ROWS, dtype=np.int64)


def _offsets(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _make_ctr(rng: np.random.Generator, _start: int) -> dict[str, Values]:
    """Click logs: a label, counts with a long tail, and hashed categories."""
    values: dict[str, Values] = {"label": rng.integers(0, 2, CHUNK_ROWS)}
    for i in range(1, 14):
        values[f"I{i}"] = (rng.pareto(1.0, CHUNK_ROWS) * 10).clip(0, 1e6).astype(np.int64)
    letters = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
    for i in range(1, 27):
        values[f"C{i}"] = letters[rng.integers(0, 16, (CHUNK_ROWS, 8))].view("S8").ravel().tolist()
    return values


def _make_embedding(rng: np.random.Generator, start: int) -> dict[str, Values]:
    ids = _ids(start)
    return {
        "id": ids,
        "name": [b"item-%d" % i for i in ids],
        "embedding": rng.standard_normal((CHUNK_ROWS, 512), dtype=np.float32),
    }


def _make_image(rng: np.random.Generator, _start: int) -> dict[str, Values]:
    return {
        "image": [rng.bytes(20_000) for _ in range(CHUNK_ROWS)],
        "label": rng.integers(0, 1000, CHUNK_ROWS),
    }


def _make_ragged(rng: np.random.Generator, start: int) -> dict[str, Values]:
    ints, floats = (_offsets(rng.integers(0, 40, CHUNK_ROWS)) for _ in range(2))
    return {
        "id": _ids(start),
        "ints": Lists(ints, rng.integers(0, 100_000, ints[-1])),
        "floats": Lists(floats, rng.random(floats[-1], dtype=np.float32)),
    }


def _make_sequence(rng: np.random.Generator, start: int) -> dict[str, Values]:
    lengths = rng.integers(5, 40, CHUNK_ROWS)
    offsets = _offsets(lengths)
    steps = int(offsets[-1])
    return {
        "id": _ids(start),
        "length": lengths,
        "frames": Lists(offsets, rng.random((steps, 8), dtype=np.float32)),
        "tokens": Lists(offsets, rng.integers(0, 30_000, (steps, 1))),
    }


WORKLOADS: tuple[Workload, ...] = (
    Workload(
        "ctr",
        200_000,
        (
            Column("label", "int64"),
            *(Column(f"I{i}", "int64") for i in range(1, 14)),
            *(Column(f"C{i}", "bytes", is_text=True) for i in range(1, 27)),
        ),
        ("label", "I13", "C1", "C26"),
        repeats=2,
    ),
    Workload(
        "embedding",
        100_000,
        (
            Column("id", "int64"),
            Column("name", "bytes", is_text=True),
            Column("embedding", "float", "fixed", 512),
        ),
        ("id", "name", "embedding"),
    ),
    Workload(
        "image",
        10_000,
        (Column("image", "bytes"), Column("label", "int64")),
        ("image", "label"),
        batch_rows=500,
    ),
    Workload(
        "ragged",
        200_000,
        (
            Column("id", "int64"),
            Column("ints", "int64", "ragged"),
            Column("floats", "float", "ragged"),
        ),
        ("id", "ints", "floats"),
        repeats=6,
    ),
    Workload(
        "sequence",
        20_000,
        (
            Column("id", "int64"),
            Column("length", "int64"),
            Column("frames", "float", "steps", 8),
            Column("tokens", "int64", "steps", 1),
        ),
        ("id", "length", "frames", "tokens"),
        repeats=10,
    ),
)


def find_workload(name: str, *, quick: bool) -> Workload:
    """Return the workload of this name; the quick one has a tenth of the rows."""
    found = next(workload for workload in WORKLOADS if workload.name == name)
    return replace(found, rows=found.rows // 10, repeats=found.repeats * 4) if quick else found


def repeat_file(source: Path, target: Path, times: int) -> None:
    """Write a file `times` times in a row: records end to end are a file of records."""
    with target.open("wb") as out:
        for _ in range(times):
            with source.open("rb") as part:
                shutil.copyfileobj(part, out, 16 * 1024 * 1024)
