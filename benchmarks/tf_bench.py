"""Measures record files and datasets for TensorFlow against TensorFlow's own, in one process.

Everything runs in turn, round by round, on the same cores; the best of all rounds counts, and
ratios are of one run. Records and tensors are compared before anything is timed. Datasets are gone
through in a tf.function, as ``model.fit`` does.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import numpy as np
import tensorflow as tf
from workloads import DATA, Column, Workload, find_workload

import tfrecord_io as tfr

#: Payload size: how many records.
_RECORDS = {100: 500_000, 20_000: 20_000}
_CHECKED_BATCHES = 20
_FILE = DATA / "records.tfrecord"


def _best(rounds: int, cases: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Return the seconds of each case."""
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, run in cases.items():
            start = time.perf_counter()
            run()
            best[name] = min(time.perf_counter() - start, best.get(name, 1e9))
    return best


# --- records --------------------------------------------------------------------------------------


def _write(make: Callable[[str], Any], records: list[bytes], count: int) -> None:
    with make(str(_FILE)) as writer:
        for at in range(count):
            writer.write(records[at % len(records)])


def _read(records: Any) -> int:
    return sum(1 for _ in records)


def _take_bytes(records: Any) -> int:
    return sum(len(record.numpy()) for record in records)


def _records(size: int, count: int, rounds: int) -> dict[str, float]:
    """Return thousands of records a second."""
    random = np.random.default_rng(size)
    records = [random.bytes(size) for _ in range(1000)]
    iterate = tf.compat.v1.python_io.tf_record_iterator
    path = str(_FILE)
    _write(tfr.TFRecordWriter, records, 2500)
    assert list(iterate(path)) == list(tfr.TFRecordReader(path)) == (records * 3)[:2500]
    assert [one.numpy() for one in tfr.data.TFRecordDataset(path)] == (records * 3)[:2500]
    seconds = _best(
        rounds,
        {
            "write, tf.io": lambda: _write(tf.io.TFRecordWriter, records, count),
            "write": lambda: _write(tfr.TFRecordWriter, records, count),
            "read, tf.python_io": lambda: _read(iterate(path)),
            "read, tf.data": lambda: _read(tf.data.TFRecordDataset(path).as_numpy_iterator()),
            "read": lambda: _read(tfr.TFRecordReader(path)),
            "numpy(), tf.data": lambda: _take_bytes(tf.data.TFRecordDataset(path)),
            "numpy()": lambda: _take_bytes(tfr.data.TFRecordDataset(path)),
        },
    )
    _FILE.unlink()
    return {name: count / value / 1e3 for name, value in seconds.items()}


# --- datasets -------------------------------------------------------------------------------------


@tf.function
def _gone_through(dataset: Any) -> Any:
    count = tf.constant(0)
    for _ in dataset:
        count += 1
    return count


#: Workload, rows of a batch, and how often it is gone through in one run.
_DATASETS = (
    ("ctr", 1024, 1),
    ("ctr", 1024, 5),
    ("ragged", 1024, 1),
    ("embedding", 1024, 1),
    ("image", 128, 1),
)

_DTYPES = {"int64": tf.int64, "float": tf.float32, "bytes": tf.string}


def _feature(column: Column) -> Any:
    dtype = _DTYPES[column.kind]
    if column.shape == "ragged":
        return tf.io.RaggedFeature(dtype, row_splits_dtype=tf.int64)
    return tf.io.FixedLenFeature([] if column.shape == "one" else [column.width], dtype)


def _datasets(workload: Workload, batch_size: int, epochs: int, rounds: int) -> dict[str, float]:
    """Return thousands of rows a second."""
    spec = {column.name: _feature(column) for column in workload.columns}
    records = tf.data.TFRecordDataset(str(workload.path)).batch(batch_size)
    theirs = records.map(
        lambda batch: tf.io.parse_example(batch, spec), num_parallel_calls=tf.data.AUTOTUNE
    ).prefetch(tf.data.AUTOTUNE)
    ours = tfr.tf.dataset(workload.path, batch_size=batch_size, features=spec)
    shuffled = tfr.tf.dataset(workload.path, batch_size=batch_size, features=spec, shuffle=True)
    both = zip(ours.take(_CHECKED_BATCHES), theirs.take(_CHECKED_BATCHES), strict=True)
    for mine, other in both:
        for name in spec:
            equal = mine[name] == other[name]
            equal = getattr(equal, "flat_values", equal)
            assert bool(tf.reduce_all(equal)), name
    datasets = {
        "tf.data + parse_example": theirs.repeat(epochs),
        "tfr.tf.dataset": ours.repeat(epochs),
        "tfr.tf.dataset, shuffled": shuffled.repeat(epochs),
    }
    cases = {name: functools.partial(_gone_through, each) for name, each in datasets.items()}
    batches = {name: int(run()) for name, run in cases.items()}
    assert len(set(batches.values())) == 1, batches
    seconds = _best(rounds, cases)
    return {name: workload.rows * epochs / value / 1e3 for name, value in seconds.items()}


# --- report ---------------------------------------------------------------------------------------


def _report(results: dict[str, dict[str, float]]) -> str:
    lines = []
    for title, rates in results.items():
        lines.append(title)
        for name, rate in rates.items():
            ratios = [
                f"{rate / other:.2f} x {peer.removeprefix(f'{name}, ')}"
                for peer, other in rates.items()
                if peer.startswith((f"{name}, tf.", "tf.data +")) and peer != name
            ]
            lines.append(f"  {name:26}{rate:10,.0f} k/s   {', '.join(ratios)}".rstrip())
    return "\n".join(lines)


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows and records")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    names = sorted({name for name, _, _ in _DATASETS})
    generate = [sys.executable, str(Path(__file__).with_name("generate.py")), *names]
    subprocess.run(generate + ["--quick"] * args.quick, check=True, stderr=subprocess.DEVNULL)
    results = {
        f"records of {size:,} bytes": _records(
            size, count // (10 if args.quick else 1), args.rounds
        )
        for size, count in _RECORDS.items()
    }
    for name, batch_size, epochs in _DATASETS:
        workload = find_workload(name, quick=args.quick)
        title = f"rows of {name}" + f", {epochs} epochs" * (epochs > 1)
        results[title] = _datasets(workload, batch_size, epochs, args.rounds)
    (DATA / "tf.json").write_text(json.dumps(results, indent=2))
    print(_report(results))


if __name__ == "__main__":
    _main()
