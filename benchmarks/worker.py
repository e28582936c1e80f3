"""A peer's process: runs what it is told, and says how long it took.

Questions come as lines of JSON on stdin, answers go as lines of JSON to what was stdout: a peer's
own prints go to stderr.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import sys
import time
from typing import Any

import memory
from peers import Case
from workloads import find_workload


def _timed(case: Case) -> dict[str, Any]:
    case.prepare()
    gc.collect()
    before = memory.reset_peak()
    start = time.perf_counter()
    result = case.run()
    seconds = time.perf_counter() - start
    extra = memory.peak_bytes() - before
    del result
    return {"seconds": seconds, "extra_bytes": max(extra, 0), "file_bytes": case.file_bytes}


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer")
    parser.add_argument("workload")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    module = importlib.import_module(f"peers.{args.peer}")
    cases = module.cases(find_workload(args.workload, quick=args.quick))
    for line in sys.stdin:
        question = json.loads(line)
        if question["do"] == "versions":
            answer = module.VERSIONS
        elif question["do"] == "check":
            answer = cases[question["case"]].check().as_json()
        else:
            answer = _timed(cases[question["case"]])
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    _main()
