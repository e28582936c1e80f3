"""Results as a table on the terminal, as Markdown, as JSON, and as a plot."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import plot
from measures import (
    MEMORY,
    PEERS,
    READERS,
    SCAN_LIMIT_BYTES,
    WRITERS,
    Run,
    against_title,
    measures,
)
from rich import box
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """All that one run of the benchmarks found.

    Attributes
    ----------
    machine, versions : dict
        What it ran on, and the versions of the packages.
    rounds : int
        Of how many the best counts.
    is_quick : bool
        Whether the workloads were cut to a tenth.
    rows : dict
        By workload.
    runs : dict
        By workload and run: see `bench._summary`.
    memory : dict
        By workload and run, the MB that reading takes.
    scans : list of dict
        The large file, by number of threads.
    """

    machine: dict[str, Any]
    versions: dict[str, str]
    rounds: int
    is_quick: bool
    rows: dict[str, int]
    runs: dict[str, dict[Run, dict[str, float]]]
    memory: dict[str, dict[Run, float]]
    scans: list[dict[str, float]]


@dataclass(frozen=True, slots=True)
class _Grid:
    """A table of text; `left` columns are words, the others numbers."""

    title: str
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]
    left: int


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _reached(is_reached: bool) -> str:
    return "yes" if is_reached else "no"


def _goals(results: Results) -> _Grid:
    out = []
    for name, found in results.runs.items():
        for measure in measures(name):
            mine = found[measure.run]
            against, rate, ratio, reached = "", None, None, ""
            if measure.against is not None:
                rate = found[measure.against]["mb_per_s"]
                ratio = mine["mb_per_s"] / rate
                against = against_title(measure.against)
            if measure.target is not None and ratio is not None:
                reached = _reached(ratio >= measure.target)
            out.append(
                (
                    name,
                    measure.title,
                    against,
                    _number(mine["mb_per_s"]),
                    _number(rate),
                    f"{ratio:.2f}" if ratio is not None else "",
                    f"{measure.target:g}" if measure.target is not None else "",
                    reached,
                )
            )
    head = ("workload", "measure", "against", "MB/s", "theirs", "ratio", "target", "reached")
    return _Grid("tfrecord-io against its targets", head, out, 3)


def _peers(results: Results, title: str, cases: dict[str, str]) -> _Grid:
    """MB/s of each peer by workload."""
    out = []
    for name, found in results.runs.items():
        rates = (found.get(run, {}).get("mb_per_s") for run in cases.items())
        out.append((name, *map(_number, rates)))
    return _Grid(title, ("workload", *(PEERS[peer].title for peer in cases)), out, 1)


def _memory(results: Results) -> _Grid:
    rows = [
        (name, *(f"{found[run]:,.0f}" for run in MEMORY)) for name, found in results.memory.items()
    ]
    titles = [case if peer == "ours" else PEERS[peer].title for peer, case in MEMORY]
    return _Grid("Memory taken by reading, MB", ("workload", *titles), rows, 1)


def _scans(results: Results) -> _Grid:
    limit = SCAN_LIMIT_BYTES / 1e6
    rows = [
        (
            f"{scan['threads']:.0f}",
            _number(scan["file_mb"]),
            _number(scan["mb_per_s"]),
            _number(scan["peak_mb"]),
            _number(limit),
            _reached(scan["peak_mb"] <= limit),
        )
        for scan in results.scans
    ]
    head = ("threads", "file MB", "MB/s", "peak MB", "limit MB", "reached")
    return _Grid("scan of a large file: peak memory of its process", head, rows, 0)


def _grids(results: Results) -> list[_Grid]:
    return [
        _goals(results),
        _peers(results, "Reading: records to columns, MB/s", READERS),
        _peers(results, "Writing: columns to records, MB/s", WRITERS),
        _memory(results),
        _scans(results),
    ]


def _spread(results: Results) -> float:
    """Return by how much the median run was slower than the best, typically."""
    ratios = sorted(
        summary["mb_per_s"] / summary["median_mb_per_s"]
        for found in results.runs.values()
        for summary in found.values()
    )
    return ratios[len(ratios) // 2] - 1


def _preface(results: Results) -> list[str]:
    machine = results.machine
    versions = ", ".join(f"{name} {version}" for name, version in sorted(results.versions.items()))
    quick = " A quick run: a tenth of the rows." if results.is_quick else ""
    return [
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB; "
        f"Python {machine['python']}; {versions}.",
        f"MB of TFRecord bytes a second, one thread, page cache; best of {results.rounds} "
        f"rounds, all peers in each. The median round was {_spread(results):.0%} slower.{quick}",
    ]


def show(results: Results, console: Console) -> None:
    """Print the tables."""
    colours = {"yes": "green", "no": "red"}
    for grid in _grids(results):
        # Of the long table, the first column becomes headings, so that it fits a terminal.
        skipped = 1 if grid.left == 3 else 0
        table = Table(title=grid.title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        for index, head in enumerate(grid.head[skipped:], skipped):
            is_word = index < grid.left
            table.add_column(head, justify="left" if is_word else "right", no_wrap=True)
        for above, row in zip([None, *grid.rows], grid.rows, strict=False):
            if skipped and (above is None or above[0] != row[0]):
                table.add_row(f"[bold]{row[0]}[/]")
            cells = [f"[{colours[text]}]{text}[/]" if text in colours else text for text in row]
            table.add_row(*cells[skipped:])
        console.print(table)
    for line in _preface(results):
        console.print(line)


def _markdown(results: Results) -> str:
    lines = ["# Benchmark results", ""]
    for line in _preface(results):
        lines += [line, ""]
    lines += ["See [README.md](../README.md) for what each line means.", ""]
    lines += ["![MB/s by workload and library](latest.svg)", ""]
    for grid in _grids(results):
        rule = ["---" if index < grid.left else "---:" for index in range(len(grid.head))]
        lines += [f"## {grid.title}", ""]
        lines += [f"| {' | '.join(row)} |" for row in (grid.head, rule, *grid.rows)]
        lines.append("")
    return "\n".join(lines)


def _json(results: Results) -> str:
    rounded = {
        name: {
            f"{PEERS[peer].title}: {case}": {key: round(v, 1) for key, v in summary.items()}
            for (peer, case), summary in found.items()
        }
        for name, found in results.runs.items()
    }
    goals = _goals(results)
    whole = {
        "machine": results.machine,
        "versions": results.versions,
        "rounds": results.rounds,
        "is_quick": results.is_quick,
        "rows": results.rows,
        "runs": rounded,
        "memory_mb": {
            name: {f"{PEERS[peer].title}: {case}": round(mb, 1) for (peer, case), mb in of.items()}
            for name, of in results.memory.items()
        },
        "goals": [dict(zip(goals.head, row, strict=True)) for row in goals.rows],
        "scans": [{key: round(v, 1) for key, v in scan.items()} for scan in results.scans],
    }
    return json.dumps(whole, indent=1) + "\n"


def save(results: Results, folder: Path) -> None:
    """Write latest.md, latest.json and latest.svg."""
    folder.mkdir(exist_ok=True)
    (folder / "latest.md").write_text(_markdown(results))
    (folder / "latest.json").write_text(_json(results))
    plot.save(results.runs, folder / "latest.svg")
