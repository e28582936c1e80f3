"""What becomes of a stream's files once they were read, on every store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest

from tests.support.servers import Server
from tfrecord_io import write_table
from tfrecord_io.errors import OptionError, TFRecordWarning
from tfrecord_io.plan import ScanFile, ScanPlan
from tfrecord_io.reading.plan import plan_scan

pytest.importorskip("pyspark")
from tfrecord_io.engines.spark.cleaning import check_cleaning, clean
from tfrecord_io.engines.spark.options import ReadOptions, read_options
from tfrecord_io.engines.spark.settings import Settings


def asked(path: str, **options: str) -> ReadOptions:
    return read_options({"path": path, **options}, Settings())


def planned(store: Server) -> tuple[ScanPlan, list[ScanFile]]:
    """Two files, which are planned to be read."""
    options: dict[str, Any] = {"storage_options": store.storage_options}
    table = pa.table({"x": [1, 2], "p": ["a", "b"]})
    write_table(table, f"{store.url}/in", partition_by="p", **options)
    plan = plan_scan([f"{store.url}/in"], **options)
    return plan, [task.file for task in plan.tasks]


def found(store: Server, folder: str) -> list[str]:
    filesystem, root = fsspec.core.url_to_fs(f"{store.url}/{folder}", **store.storage_options)
    filesystem.invalidate_cache()
    # All but the manifest: no mark of a folder either.
    return sorted(
        path.partition("/in/")[2] for path in filesystem.find(root) if "_SUCCESS" not in path
    )


NAMES = [f"p={value}/part-00000-000.tfrecord" for value in "ab"]


def test_files_are_removed_or_moved(store: Server) -> None:
    plan, files = planned(store)
    assert found(store, "in") == NAMES
    clean(plan, files[:1], None)
    assert found(store, "in") == NAMES[1:]
    # Twice: what is gone is no error to anybody.
    clean(plan, files[:1], None)
    clean(plan, files[1:], f"{store.url}/old")
    assert (found(store, "in"), found(store, "old")) == ([], NAMES[1:])


def test_what_cannot_be_moved_stays(store: Server) -> None:
    plan, files = planned(store)
    clean(plan, files[:1], f"{store.url}/old")
    write_table(
        pa.table({"x": [3], "p": ["a"]}),
        f"{store.url}/in",
        partition_by="p",
        mode="overwrite",
        storage_options=store.storage_options,
    )
    with pytest.warns(TFRecordWarning, match="was read and stays, as cleanSource failed: .*xists"):
        clean(plan, files[:1], f"{store.url}/old")
    assert found(store, "in") == NAMES[:1]


@pytest.mark.parametrize(
    ("path", "archive", "what"),
    [
        ("/in", "/in/old", "is inside of /in, so that"),
        ("/in/p=*/x", "/in", "is inside of"),
        ("/in", "s3://bucket/old", "is in another store than /in"),
        ("s3://bucket/in", "/old", "is in another store than s3://bucket/in"),
    ],
)
def test_an_archive_is_elsewhere_in_the_same_store(path: str, archive: str, what: str) -> None:
    options = asked(path, cleanSource="archive", sourceArchiveDir=archive)
    with pytest.raises(OptionError, match=what):
        check_cleaning(options)
    check_cleaning(replace(options, clean_source="off"))


def test_an_archive_may_be_beside_what_is_read(tmp_path: Path) -> None:
    path = str(tmp_path / "in")
    check_cleaning(asked(path, cleanSource="archive", sourceArchiveDir=f"{path}-old"))
    check_cleaning(asked(f"{path}/*", cleanSource="archive", sourceArchiveDir=str(tmp_path)))


def test_what_a_stream_of_spark_wrote_is_not_cleaned(tmp_path: Path) -> None:
    (tmp_path / "_spark_metadata").mkdir()
    with pytest.raises(OptionError, match="its log names all of its files"):
        check_cleaning(asked(str(tmp_path), cleanSource="delete"))
    check_cleaning(asked(str(tmp_path)))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"cleanSource": "move"}, "cleanSource"),
        ({"cleanSource": "archive"}, "sourceArchiveDir"),
        ({"maxFileAge": "2 weeks"}, 'such as "7d"'),
        ({"maxFileAge": "-1s"}, 'such as "7d"'),
    ],
)
def test_options_that_mean_nothing(options: dict[str, str], what: str) -> None:
    with pytest.raises(OptionError, match=what):
        asked("/in", **options)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("7d", 604800), ("12h", 43200), ("5min", 300), ("5m", 300), ("90S", 90), ("20", 0.02)],
)
def test_durations_are_those_of_spark(text: str, seconds: float) -> None:
    assert asked("/in", maxFileAge=text).max_age == seconds
