"""The programs that are compared: each module has a function `cases(workload)`
and the `VERSIONS` that the results tell.

A module is imported in a process and an environment of its own (`worker.py`), so that none can
disturb another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from checks import Checked


@dataclass(frozen=True, slots=True)
class Case:
    """Something that a peer does with a workload.

    Attributes
    ----------
    run : callable
        What is timed. Its result is let go only after the clock has stopped.
    check : callable
        Does the same and tells what came out.
    file_bytes : int
        TFRecord bytes that one run reads or writes.
    prepare : callable
        Makes what `run` starts from, if it is not there yet.
    """

    run: Callable[[], object]
    check: Callable[[], Checked]
    file_bytes: int
    prepare: Callable[[], object] = int
