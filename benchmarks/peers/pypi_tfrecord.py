"""The `tfrecord` package: records to dicts of NumPy arrays, in plain Python, without CRC checks."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import numpy as np
from checks import Checked
from tfrecord.reader import tfrecord_loader
from workloads import Workload

from peers import Case

VERSIONS = {"tfrecord": version("tfrecord")}

_TYPES = {"int64": "int", "float": "float", "bytes": "byte"}


def _rows(workload: Workload) -> Iterator[dict[str, Any]]:
    single = {c.name: _TYPES[c.kind] for c in workload.columns if c.shape != "steps"}
    steps = {c.name: _TYPES[c.kind] for c in workload.columns if c.shape == "steps"}
    loader = tfrecord_loader(str(workload.path), None, single, sequence_description=steps or None)
    if not steps:
        return loader
    return ({**context, **lists} for context, lists in loader)


def _read(workload: Workload) -> None:
    for _ in _rows(workload):
        pass


def _check(workload: Workload) -> Checked:
    out = Checked()
    for row in _rows(workload):
        out.rows += 1
        for name in workload.checked:
            column, value = workload.column(name), row[name]
            if column.kind == "bytes":
                out.add_bytes(name, [value])
            elif column.shape == "steps":
                out.add(name, np.concatenate(value), [len(value)])
            else:
                out.add(name, value, [len(value)] if column.shape == "ragged" else ())
    return out


def cases(workload: Workload) -> dict[str, Case]:
    """Return what is measured of `tfrecord`, over the workload's head: it is that slow."""
    head = workload.head
    return {"read": Case(lambda: _read(head), lambda: _check(head), head.path.stat().st_size)}
