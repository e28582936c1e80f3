"""Folders that streams of Spark's own file sink wrote: a read takes what their log names.

The data set was written by spark-tfrecord's jar, whose query was killed in its sixth batch and
went on: one file of that batch is there twice. Spark reads 22 rows of it.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.servers import Server
from tests.support.trees import put_files
from tfrecord_io import count_rows, read_table, write_table
from tfrecord_io.errors import DatasetChangedError, ManifestError
from tfrecord_io.reading import listing

GOLDEN = Path(__file__).parent / "golden" / "spark_tfrecord" / "stream_killed"
LOG = "_spark_metadata"
#: What Spark reads, by its value of the partition column.
ROWS = {number: "a" if number % 2 == 0 else "b c/ä%" for number in range(22)}


@pytest.fixture
def streamed(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN, tmp_path / "streamed"))


def rows(path: Any, **options: Any) -> list[tuple[int, str]]:
    table = read_table(path, **options)
    return sorted(zip(table["id"].to_pylist(), table["w"].to_pylist(), strict=True))


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("w=*/*.tfrecord"))


def test_what_a_killed_batch_left_is_not_read(streamed: Path) -> None:
    assert len(files(streamed)) == len(ROWS) + 1
    assert rows(streamed) == [*ROWS.items()]
    assert count_rows(streamed) == len(ROWS)
    # Only folders have a log: what is named is read.
    assert count_rows(files(streamed)) == len(ROWS) + 1


def test_the_log_counts_on_every_store(store: Server) -> None:
    """Wherever the folder was moved, and whatever is named to read it."""
    # As after its first batch, with a file of the second.
    log = (GOLDEN / LOG / "0").read_bytes()
    first = [one for one in files(GOLDEN) if one.name.encode() in log]
    second = next(one for one in files(GOLDEN) if one not in first)
    held = {f"streamed/{one.relative_to(GOLDEN)}": one.read_bytes() for one in (*first, second)}
    put_files(store.url, store.storage_options, {f"streamed/{LOG}/0": log, **held})
    options = {"storage_options": store.storage_options}
    assert len(first) == 2
    assert rows(f"{store.url}/streamed", **options) == [*ROWS.items()][:2]
    for above in (store.url, f"{store.url}/stream*"):
        assert sorted(read_table(above, **options)["id"].to_pylist()) == [0, 1]


def test_what_is_appended_is_read_with_what_the_log_names(streamed: Path) -> None:
    write_table(pa.table({"id": [100], "w": ["a"]}), streamed, mode="append", partition_by=["w"])
    assert rows(streamed) == [*ROWS.items(), (100, "a")]
    assert sorted(read_table(streamed.parent)["id"].to_pylist()) == [*ROWS, 100]


def test_an_overwrite_leaves_no_log(streamed: Path) -> None:
    write_table(pa.table({"id": [100], "w": ["a"]}), streamed, mode="overwrite", partition_by="w")
    assert rows(streamed) == [(100, "a")]
    assert not (streamed / LOG).exists()


def test_a_file_that_the_log_names_has_to_be_there(streamed: Path) -> None:
    # The last batch's, whose entries no later one repeats.
    name = (streamed / LOG / "10").read_text().partition("/part-")[2].partition('"')[0]
    (gone,) = streamed.glob(f"w=*/part-{name}")
    gone.unlink()
    with pytest.raises(DatasetChangedError, match=f"part-{name}.*pattern such as folder/"):
        read_table(streamed)
    assert count_rows(f"{streamed}/*") == len(ROWS)


def test_a_batch_that_comes_while_files_are_listed_is_read_whole(
    streamed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = (streamed / LOG / "10").read_text()
    held = [one for one in files(streamed) if one.name in last]
    assert len(held) == 2
    away = [Path(shutil.move(one, streamed.parent / one.name)) for one in held]
    own = listing.committed_files

    def committed_files(*args: Any) -> frozenset[str]:
        # Listed without them, and they come before the log is read.
        for one, place in zip(away, held, strict=True):
            if one.exists():
                shutil.move(one, place)
        return own(*args)

    monkeypatch.setattr(listing, "committed_files", committed_files)
    assert rows(streamed) == [*ROWS.items()]


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("10", "v2\n", r"its version is 'v2', not 'v1' \[.*_spark_metadata/10\]"),
        ("10", "", "its version is ''"),
        ("10", 'v1\n{"path":"file:///a","action":"move"}', "is not a file that was added or"),
        ("10", "v1\n[]", "is not a file that was added or deleted"),
        ("10", "v1\n{", "cannot be understood: Expecting property name"),
        ("10", "v1\n" + "[" * 100_000, "cannot be understood"),
        ("12", "v1\n", r"has no batch 11, so what it holds is not known \[.*_spark_metadata\]"),
        ("9" * 200, "v1\n", "has no batch 11"),
    ],
)
def test_a_log_that_says_nothing_is_an_error(
    streamed: Path, name: str, text: str, what: str
) -> None:
    (streamed / LOG / name).write_text(text)
    with pytest.raises(ManifestError, match=what):
        read_table(streamed)


def test_what_the_log_took_back_is_not_read(streamed: Path) -> None:
    last = (streamed / LOG / "10").read_text()
    (streamed / LOG / "11").write_text(last.replace('"action":"add"', '"action":"delete"'))
    assert rows(streamed) == [*ROWS.items()][:20]
