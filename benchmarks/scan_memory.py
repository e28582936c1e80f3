"""Scans one file as a stream in a process of its own; prints rows, seconds and peak memory."""

from __future__ import annotations

import argparse
import json
import time

import memory
from peers.ours import record_schema
from workloads import find_workload

from tfrecord_io.engines.local import scan


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload")
    parser.add_argument("path")
    parser.add_argument("threads", type=int)
    args = parser.parse_args()
    workload = find_workload(args.workload, quick=False)
    start = time.perf_counter()
    rows = sum(
        batch.num_rows
        for batch in scan(
            args.path,
            schema=record_schema(workload),
            record_type=workload.record_type,
            threads=args.threads,
        )
    )
    seconds = time.perf_counter() - start
    print(json.dumps({"rows": rows, "seconds": seconds, "peak_bytes": memory.peak_bytes()}))


if __name__ == "__main__":
    _main()
