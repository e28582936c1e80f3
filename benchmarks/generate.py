"""Writes the workloads' files with TensorFlow's own writer, as its users do.

Runs in TensorFlow's environment. Files that are there already and whole are left alone: a stamp
beside each, written last, says which version of the values it holds.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf
from workloads import (
    COMPRESSED,
    DATA,
    VERSION,
    Column,
    Lists,
    Values,
    Workload,
    find_workload,
    repeat_file,
)


def feature(column: Column, values: Any) -> tf.train.Feature:
    """Return the feature of one row (or step): `values` is a value or several."""
    listed = values if isinstance(values, list) else [values]
    if column.kind == "int64":
        return tf.train.Feature(int64_list=tf.train.Int64List(value=listed))
    if column.kind == "float":
        return tf.train.Feature(float_list=tf.train.FloatList(value=listed))
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=listed))


def _rows(values: Values) -> Iterator[Any]:
    """Yield each row's plain Python values."""
    if isinstance(values, Lists):
        offsets = values.offsets.tolist()
        listed = values.values.tolist()
        yield from (listed[a:b] for a, b in itertools.pairwise(offsets))
    else:
        yield from values if isinstance(values, list) else values.tolist()


def message(workload: Workload, row: tuple[Any, ...]) -> Any:
    """Return the Example or SequenceExample of a row's plain Python values."""
    single: dict[str, tf.train.Feature] = {}
    lists: dict[str, tf.train.FeatureList] = {}
    for column, value in zip(workload.columns, row, strict=True):
        if column.shape == "steps":
            steps = [feature(column, step) for step in value]
            lists[column.name] = tf.train.FeatureList(feature=steps)
        else:
            single[column.name] = feature(column, value)
    features = tf.train.Features(feature=single)
    if not workload.is_sequence:
        return tf.train.Example(features=features)
    return tf.train.SequenceExample(
        context=features, feature_lists=tf.train.FeatureLists(feature_list=lists)
    )


def rows(workload: Workload) -> Iterator[tuple[Any, ...]]:
    """Yield the rows as tuples of plain Python values."""
    for _, values in workload.chunks():
        yield from zip(*(_rows(values[c.name]) for c in workload.columns), strict=True)


def write(
    workload: Workload, path: Path, table: Iterator[tuple[Any, ...]], compression: str = ""
) -> None:
    """Write rows to a file of TFRecords."""
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for row in table:
            writer.write(message(workload, row).SerializeToString())


def compress(source: Path, target: Path) -> None:
    """Write the records of a file as a compressed one."""
    part = target.with_suffix(".part")
    with tf.io.TFRecordWriter(str(part), "GZIP") as writer:
        for record in tf.data.TFRecordDataset(str(source)).as_numpy_iterator():
            writer.write(record)
    part.replace(target)


def _make(workload: Workload) -> None:
    stamp = workload.path.with_suffix(".json")
    wanted = {"version": VERSION, "rows": workload.rows}
    if stamp.exists() and workload.path.exists():
        found = json.loads(stamp.read_text())
        if found == {**wanted, "bytes": workload.path.stat().st_size}:
            return
    stamp.unlink(missing_ok=True)
    for stale in DATA.glob(f"{workload.path.stem}.x*.tfrecord"):
        stale.unlink()
    workload.gzip_path.unlink(missing_ok=True)
    print(f"writing {workload.name}, {workload.rows:,} rows", flush=True)
    write(workload, workload.path, rows(workload))
    stamp.write_text(json.dumps({**wanted, "bytes": workload.path.stat().st_size}))


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    DATA.mkdir(exist_ok=True)
    for name in args.names:
        workload = find_workload(name, quick=args.quick)
        _make(workload)
        _make(workload.head)
        size = workload.path.stat().st_size * workload.large_repeats
        large = workload.large_path
        if not large.exists() or large.stat().st_size != size:
            repeat_file(workload.path, large, workload.large_repeats)
        if name == COMPRESSED and not workload.gzip_path.exists():
            compress(workload.path, workload.gzip_path)


if __name__ == "__main__":
    _main()
