"""Runs all peers side by side, holds what they read to the truth, and reports.

Each peer is a process of its own, pinned to one core (two, where two threads are measured) and
idle while another is asked. A round asks every one once, so that a slow moment of the machine hits
all alike; of all rounds the best counts.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import report
from checks import expected
from measures import MEMORY, PEERS, SLOW, Run, runs
from rich.console import Console
from workloads import DATA, WORKLOADS, Workload, find_workload, repeat_file

_HERE = Path(__file__).parent
_RESULTS = _HERE / "results"
_CORES = sorted(os.sched_getaffinity(0))
_ROUNDS = 9
_QUICK_ROUNDS = 3
_SLOW_ROUNDS = 2
_SCAN_BYTES = 4 * 2**30
_QUICK_SCAN_BYTES = 2**30
#: Copying gives no rows, and inference, which holds its columns to the workload's by itself.
_WITHOUT_ROWS = {"observe", "infer_schema", "copy_1", "copy_2"}


class Worker:
    """A peer's process, see `worker.py`."""

    def __init__(self, name: str, workload: Workload, python: str, *, quick: bool) -> None:
        peer = PEERS[name]
        self._name = name
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        command = [python, str(_HERE / "worker.py"), peer.module, workload.name]
        self._process = subprocess.Popen(
            _pinned(command, peer.cores) + (["--quick"] if quick else []),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def ask(self, do: str, case: str = "") -> dict[str, Any]:
        """Have a case checked or timed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps({"do": do, "case": case}), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            self._process.wait()
            self._errors.seek(0)
            raise SystemExit(f"{self._name} failed at {do} {case}:\n{self._errors.read()[-4000:]}")
        return json.loads(answer)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()


def _pinned(command: list[str], cores: int) -> list[str]:
    """Return the command on the last so many cores: the first has most of the system's own work."""
    if cores > len(_CORES):
        raise SystemExit(f"{cores} cores are needed, and this process may use {len(_CORES)}")
    return ["taskset", "--cpu-list", ",".join(map(str, _CORES[-cores:])), *command]


def _read_from_disk(path: Path) -> None:
    """Put a file into the page cache as reading it from the disk does, in whatever state it was."""
    with path.open("rb", buffering=0) as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while file.read(1 << 20):
            pass


def _hold_to_truth(workload: Workload, workers: dict[str, Worker], asked: list[Run]) -> None:
    """Fail if a peer's rows or values are not those that the workload was made of."""
    truths = {
        "whole": expected(workload),
        "head": expected(workload.head),
        "large": expected(workload, repeats=workload.large_repeats),
    }
    for peer, case in asked:
        # This is the warming up too.
        got = workers[peer].ask("check", case)
        size = "large" if case[-2:] in ("_1", "_2") else "whole"
        truth = truths["head" if (peer, case) in SLOW else size].as_json()
        for name, checksum in got["checksums"].items():
            if checksum != truth["checksums"][name]:
                raise SystemExit(f"{peer}, {case}: other values of {workload.name}.{name}")
        if case not in _WITHOUT_ROWS and got["rows"] != truth["rows"]:
            raise SystemExit(f"{peer}, {case}: {got['rows']} rows of {truth['rows']}")
        if got["payload_bytes"] is not None:
            path = workload.head.path if (peer, case) in SLOW else workload.path
            payloads = path.stat().st_size - 16 * truth["rows"]
            if got["payload_bytes"] != payloads:
                raise SystemExit(
                    f"{peer}, {case}: {got['payload_bytes']} bytes of payloads, not {payloads}"
                )


def _summary(answers: list[dict[str, Any]]) -> dict[str, float]:
    seconds = [answer["seconds"] for answer in answers]
    size = answers[0]["file_bytes"]
    return {
        "mb_per_s": size / 1e6 / min(seconds),
        "median_mb_per_s": size / 1e6 / statistics.median(seconds),
        "rounds": len(answers),
    }


def _measure(
    workload: Workload, pythons: dict[str, str], rounds: int, console: Console, *, quick: bool
) -> tuple[dict[Run, dict[str, float]], dict[str, str]]:
    asked = runs(workload.name)
    answers: dict[Run, list[dict[str, Any]]] = {run: [] for run in asked}
    for path in (workload.path, workload.large_path, workload.gzip_path):
        if path.exists():
            _read_from_disk(path)
    versions: dict[str, str] = {}
    with contextlib.ExitStack() as stack, console.status("") as status:
        workers = {}
        for name in dict.fromkeys(peer for peer, _ in asked):
            python = pythons[PEERS[name].environment]
            workers[name] = Worker(name, workload, python, quick=quick)
            stack.callback(workers[name].close)
            versions |= workers[name].ask("versions")
        status.update(f"{workload.name}: holding all peers to the same values")
        _hold_to_truth(workload, workers, asked)
        for number in range(rounds):
            status.update(f"{workload.name}: round {number + 1} of {rounds}")
            for run in asked:
                if run not in SLOW or number < _SLOW_ROUNDS:
                    answers[run].append(workers[run[0]].ask("time", run[1]))
    console.print(f"{workload.name}: all peers agree; {rounds} rounds")
    return {run: _summary(of_run) for run, of_run in answers.items()}, versions


def _memory(
    workload: Workload, pythons: dict[str, str], console: Console, *, quick: bool
) -> dict[Run, float]:
    """Return the MB that each kind of reading takes, in processes that did nothing before."""
    out = {}
    with console.status(f"{workload.name}: memory"):
        for name, case in MEMORY:
            python = pythons[PEERS[name].environment]
            worker = Worker(name, workload, python, quick=quick)
            try:
                out[name, case] = worker.ask("time", case)["extra_bytes"] / 1e6
            finally:
                worker.close()
    return out


def _scan_memory(python: str, console: Console, *, quick: bool) -> list[dict[str, float]]:
    """Scan a large file with one and with two threads, each in a process of its own."""
    workload = find_workload("embedding", quick=quick)
    size = workload.path.stat().st_size
    times = (_QUICK_SCAN_BYTES if quick else _SCAN_BYTES) // size + 1
    large = DATA / "large.tfrecord"
    out = []
    try:
        with console.status(f"scanning {size * times / 1e9:.1f} GB"):
            repeat_file(workload.path, large, times)
            for threads in (1, 2):
                command = [python, str(_HERE / "scan_memory.py"), workload.name, str(large)]
                command = _pinned([*command, str(threads)], threads)
                answer = json.loads(subprocess.run(command, stdout=-1, check=True).stdout)
                if answer["rows"] != workload.rows * times:
                    raise SystemExit(f"scan gave {answer['rows']} of {workload.rows * times} rows")
                out.append(
                    {
                        "threads": threads,
                        "file_mb": size * times / 1e6,
                        "mb_per_s": size * times / 1e6 / answer["seconds"],
                        "peak_mb": answer["peak_bytes"] / 1e6,
                    }
                )
    finally:
        large.unlink(missing_ok=True)
    console.print("scan: all rows, in bounded memory")
    return out


def _machine() -> dict[str, Any]:
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": model,
        "cores": len(_CORES),
        "memory_gb": round(memory / 1e9),
        "python": ".".join(map(str, sys.version_info[:3])),
    }


def _main() -> None:
    names = [workload.name for workload in WORKLOADS]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, three rounds")
    parser.add_argument("--only", action="append", choices=names, help="may be repeated")
    parser.add_argument("--rounds", type=int, help=f"by default {_ROUNDS}")
    for environment in ("ours", "tf", "tfx"):
        parser.add_argument(f"--{environment}", required=True, help=argparse.SUPPRESS)
    args = parser.parse_args()
    chosen = [name for name in names if not args.only or name in args.only]
    pythons = {"ours": args.ours, "tf": args.tf, "tfx": args.tfx}
    rounds = args.rounds or (_QUICK_ROUNDS if args.quick else _ROUNDS)
    console = Console(stderr=True)

    console.print("workloads: written by TensorFlow where they are not there yet")
    generate = [args.tf, str(_HERE / "generate.py"), *names] + ["--quick"] * args.quick
    made = subprocess.run(generate, stderr=subprocess.PIPE, text=True)
    if made.returncode:
        raise SystemExit(made.stderr)
    results: dict[str, dict[Run, dict[str, float]]] = {}
    memory: dict[str, dict[Run, float]] = {}
    versions: dict[str, str] = {}
    try:
        for name in chosen:
            workload = find_workload(name, quick=args.quick)
            results[name], of_peers = _measure(workload, pythons, rounds, console, quick=args.quick)
            versions |= of_peers
            memory[name] = _memory(workload, pythons, console, quick=args.quick)
    finally:
        for left in DATA.glob("*-written*"):
            shutil.rmtree(left) if left.is_dir() else left.unlink()
    scans = _scan_memory(args.ours, console, quick=args.quick)

    found = report.Results(
        machine=_machine(),
        versions=versions,
        rounds=rounds,
        is_quick=args.quick,
        rows={name: find_workload(name, quick=args.quick).rows for name in chosen},
        runs=results,
        memory=memory,
        scans=scans,
    )
    # Only a whole run is worth keeping.
    folder = DATA if args.quick or args.only else _RESULTS
    report.save(found, folder)
    # A terminal's tables fit its width; a file's need not.
    report.show(found, Console(width=None if sys.stdout.isatty() else 120))
    console.print(f"written to benchmarks/{folder.name}/latest.md, .json and .svg")


if __name__ == "__main__":
    _main()
