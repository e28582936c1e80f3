"""Measures the Dask adapter against Dask's own Parquet and `dask.delayed` over another reader.

Everything runs in turn, round by round; the best of all rounds counts, and ratios are of one run.
Numbers of rows and sums of a column are compared before anything is timed.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from workloads import DATA, find_workload

_ROOT = DATA / "dask"
#: Where files take no disk.
_MEMORY = "/dev/shm"
_PARTS = 32
#: So many that a cluster's round trips, some hundredths of a second a job, are little beside the
#: work.
_REPEATS = 8
_SMALL_FILES = 10_000
_LIMIT_BYTES = 512 * 2**20
_CHECKED = "I13"


def _best(
    rounds: int, cases: dict[str, Callable[[], Any]], before: Callable[[], Any] = lambda: None
) -> dict[str, float]:
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, run in cases.items():
            before()
            start = time.perf_counter()
            run()
            seconds = time.perf_counter() - start
            best[name] = min(seconds, best.get(name, seconds))
    return best


# --- the other reader, in an environment of its own -----------------------------------------------


def _peer_frame(path: str) -> Any:
    import pandas as pd
    from tfrecord.reader import tfrecord_loader

    workload = find_workload("ctr", quick=False)
    kinds = {c.name: "int" if c.kind == "int64" else "byte" for c in workload.columns}
    return pd.DataFrame(list(tfrecord_loader(path, None, kinds)))


def _peer(files: list[str]) -> None:
    """Print how long a frame of files takes by `dask.delayed` on the threaded scheduler."""
    import dask
    import dask.dataframe as dd

    def read() -> int:
        parts = [dask.delayed(_peer_frame)(file) for file in files]
        frame = dd.from_delayed(parts, meta=_peer_frame(files[0]).iloc[:0], verify_meta=False)
        return int(frame.map_partitions(len, meta=(None, "int64")).compute().sum())

    seconds = []
    with dask.config.set({"dataframe.convert-string": False, "scheduler": "threads"}):
        for _ in range(2):
            start = time.perf_counter()
            rows = read()
            seconds.append(time.perf_counter() - start)
    size = sum(Path(file).stat().st_size for file in files)
    print(json.dumps({"mb_per_second": size / min(seconds) / 1e6, "rows": rows}))


# --- data -----------------------------------------------------------------------------------------


def _table() -> Any:
    import pyarrow as pa
    from arrow_values import batches

    workload = find_workload("ctr", quick=False)
    once = pa.Table.from_batches(list(batches(workload)))
    return pa.concat_tables([once] * _REPEATS).combine_chunks()


def _make(table: Any) -> None:
    import pyarrow.parquet as pq

    import tfrecord_io as tfr

    shutil.rmtree(_ROOT, ignore_errors=True)
    per_part = table.num_rows // _PARTS
    tfr.write_table(table, _ROOT / "tfrecord", rows_per_task=per_part)
    (_ROOT / "parquet").mkdir()
    for part in range(_PARTS):
        rows = table.slice(part * per_part, per_part)
        pq.write_table(rows, _ROOT / f"parquet/part.{part}.parquet", compression="snappy")
    tfr.write_table(table.slice(0, 10_000), _ROOT / "head", rows_per_task=5_000)
    small = table.select(["label", "I1"]).slice(0, _SMALL_FILES)
    tfr.write_table(small, _ROOT / "small", rows_per_task=1)


# --- measures -------------------------------------------------------------------------------------


def _materialized(frame: Any) -> int:
    # The function may look at any column, so all of them are read.
    return int(frame.map_partitions(len, meta=(None, "int64")).compute().sum())


def _reading_and_writing(rounds: int) -> dict[str, float]:
    import dask.dataframe as dd

    import tfrecord_io as tfr

    source, parquet = str(_ROOT / "tfrecord"), str(_ROOT / "parquet")

    # Both put files together as they see fit.
    def ours() -> Any:
        return tfr.read_tfrecord(source)

    def theirs() -> Any:
        return dd.read_parquet(parquet, dtype_backend="pyarrow")

    # A copy: were it what a read gives, a cluster would find that read done already.
    frame = theirs().map_partitions(lambda part: part.copy()).persist()
    assert ours()[_CHECKED].sum().compute() == frame[_CHECKED].sum().compute()

    two = ["label", "C26"]
    cases: dict[str, Callable[[], Any]] = {
        "read": lambda: _materialized(ours()),
        "read_parquet": lambda: _materialized(theirs()),
        "read two": lambda: _materialized(ours()[two]),
    }
    with tempfile.TemporaryDirectory(dir=_MEMORY) as memory:
        stores = {"": str(_ROOT / "out"), ", memory": f"{memory}/out"}
        for store, out in stores.items():
            cases[f"write{store}"] = functools.partial(tfr.to_tfrecord, frame, out)
            cases[f"to_parquet{store}"] = functools.partial(
                frame.to_parquet, f"{out}-parquet", write_index=False
            )

        def cleared() -> None:
            # Both write to a folder that is not there; what takes a folder away takes its time.
            for out in stores.values():
                for written in (out, f"{out}-parquet"):
                    shutil.rmtree(written, ignore_errors=True)

        best = _best(rounds, cases, before=cleared)
        cleared()
        for out in stores.values():
            tfr.to_tfrecord(frame, out)
            assert tfr.count_rows(out) == _materialized(frame)
    return best


@contextlib.contextmanager
def _scheduler(name: str) -> Iterator[None]:
    import dask
    import distributed

    if name == "threads":
        with dask.config.set(scheduler="threads", num_workers=2):
            yield
        return
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster),
    ):
        yield


def _graph_seconds(rounds: int) -> dict[str, float]:
    import tfrecord_io as tfr
    from tfrecord_io.reading.plan import plan_files

    source = str(_ROOT / "small")

    def build(**options: Any) -> None:
        frame = tfr.read_tfrecord(source, **options)
        graph = frame.optimize().__dask_graph__()
        assert len(graph) >= frame.npartitions

    return _best(
        rounds,
        {
            "listing": lambda: plan_files(source),
            "graph": lambda: build(blocksize=None),
            "graph, packed": lambda: build(),
        },
    )


def _peak(frame: Any) -> Any:
    return frame.assign(I1=frame["I1"] + 1)


def _vm_hwm() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def _streaming() -> dict[str, Any]:
    """Stream ten times a worker's memory limit through; nothing may be spilled or restarted."""
    import dask
    import distributed

    import tfrecord_io as tfr

    source, out = _ROOT / "large", _ROOT / "large-out"
    part = next((_ROOT / "tfrecord").glob("part-*"))
    source.mkdir()
    copies = 10 * _LIMIT_BYTES // part.stat().st_size + 1
    for copy in range(copies):
        os.link(part, source / f"{copy:04d}.tfrecord")
    schema = tfr.infer_schema(part)
    settings = {"distributed.worker.memory.spill": False, "distributed.worker.memory.target": False}
    with (
        dask.config.set(settings),
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            memory_limit=_LIMIT_BYTES,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        pids = set(client.run(os.getpid).values())
        frame = tfr.read_tfrecord(source, schema=schema, blocksize="32 MiB")
        result = tfr.to_tfrecord(frame.map_partitions(_peak), out)
        assert set(client.run(os.getpid).values()) == pids
        peak = max(client.run(_vm_hwm).values())
    shutil.rmtree(out)
    shutil.rmtree(source)
    return {"bytes": result.bytes, "limit_bytes": _LIMIT_BYTES, "peak_bytes": peak}


def _report(results: dict[str, Any]) -> str:
    lines = ["| | threads | two worker processes |", "|---|---:|---:|"]
    on = [results["threads"], results["distributed"]]
    for name, over, under in (
        ("read / dd.read_parquet (snappy)", "read_parquet", "read"),
        ("write / dd.to_parquet (snappy)", "to_parquet", "write"),
        ("write / dd.to_parquet (snappy), to memory", "to_parquet, memory", "write, memory"),
        ("2 of 40 columns / all", "read", "read two"),
    ):
        lines.append(
            f"| {name} | " + " | ".join(f"{one[over] / one[under]:.2f}" for one in on) + " |"
        )
    lines.append(f"| read / `tfrecord` in dask.delayed | {results['read / tfrecord']:.0f} | |")
    graph, memory = results["graph"], results["streaming"]
    beyond = graph["graph"] - graph["listing"]
    lines += [
        "",
        f"Graph of {_SMALL_FILES} files: {beyond:.2f} s beyond the listing, "
        f"{graph['graph, packed'] - graph['listing']:.2f} s with files packed together.",
        f"Streaming {memory['bytes'] / 2**20:.0f} MiB through workers of "
        f"{memory['limit_bytes'] / 2**20:.0f} MiB: peak {memory['peak_bytes'] / 2**20:.0f} MiB.",
    ]
    return "\n".join(lines)


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", metavar="PYTHON", help="interpreter that has dask and tfrecord")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--as-peer", nargs="+", metavar="FILE", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.as_peer:
        _peer(args.as_peer)
        return
    table = _table()
    _make(table)
    del table
    results: dict[str, Any] = {}
    for name in ("threads", "distributed"):
        with _scheduler(name):
            results[name] = _reading_and_writing(args.rounds)
    results["graph"] = _graph_seconds(args.rounds)
    if args.peer:
        files = sorted(map(str, (_ROOT / "head").glob("part-*")))
        command = [args.peer, __file__, "--as-peer", *files]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        size = sum(file.stat().st_size for file in (_ROOT / "tfrecord").glob("part-*"))
        ours = size / results["threads"]["read"] / 1e6
        results["read / tfrecord"] = ours / json.loads(done.stdout)["mb_per_second"]
    results["streaming"] = _streaming()
    shutil.rmtree(_ROOT)
    (DATA / "dask.json").write_text(json.dumps(results, indent=2))
    print(_report(results))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    _main()
