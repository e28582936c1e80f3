"""The plot: MB/s of each library by workload, reading and writing."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from measures import PEERS, READERS, WRITERS, Run, measures

mpl.use("svg")

_COLOURS = {"ours": "#d1495b", "tf": "#30638e", "tfx": "#7a9cc6", "pypi": "#b8b8b8"}

Summaries = dict[str, dict[Run, dict[str, float]]]


def _target(name: str, found: dict[Run, dict[str, float]], run: Run) -> float | None:
    """Return the MB/s that this run must reach."""
    for measure in measures(name):
        if measure.run == run and measure.against is not None and measure.target is not None:
            return measure.target * found[measure.against]["mb_per_s"]
    return None


def _bars(axes: Axes, summaries: Summaries, cases: dict[str, str], title: str) -> None:
    width = 0.8 / len(cases)
    has_target = False
    for index, run in enumerate(cases.items()):
        for place, (name, found) in enumerate(summaries.items()):
            if run not in found:
                continue
            rate = found[run]["mb_per_s"]
            x = place + (index - (len(cases) - 1) / 2) * width
            axes.bar(x, rate, width * 0.92, color=_COLOURS[run[0]])
            target = _target(name, found, run)
            top = max(rate, target or 0)
            axes.text(x, top * 1.06, f"{rate:,.0f}", ha="center", va="bottom", fontsize=6.5)
            if target is not None:
                has_target = True
                ends = [x - width * 0.46, x + width * 0.46]
                axes.plot(ends, [target, target], color="black", linewidth=1.6)
        axes.bar(0, 0, color=_COLOURS[run[0]], label=PEERS[run[0]].title)
    if has_target:
        axes.plot([], [], color="black", linewidth=1.6, label="target of tfrecord-io")
    axes.set_yscale("log")
    axes.set_xticks(range(len(summaries)), list(summaries))
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_ylabel("MB/s of TFRecord bytes, one thread")
    axes.margins(y=0.15)
    axes.grid(axis="y", linewidth=0.4, alpha=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.legend(
        fontsize=7,
        frameon=False,
        ncols=len(cases) + 1,
        loc="lower right",
        bbox_to_anchor=(1, 1),
        borderaxespad=0.2,
    )
    axes.set_ylim(bottom=1)


def save(summaries: Summaries, path: Path) -> None:
    """Write the plot."""
    with mpl.rc_context({"svg.hashsalt": "tfrecord-io", "svg.fonttype": "none", "font.size": 8}):
        figure, (above, below) = plt.subplots(2, 1, figsize=(9, 7.5), layout="constrained")
        _bars(above, summaries, READERS, "Reading: records to columns")
        _bars(below, summaries, WRITERS, "Writing: columns to records")
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)
