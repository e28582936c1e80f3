"""A bar on standard error while something takes its time; nothing where no person looks."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from tfrecord_io.cli.verbs import error_console, is_terminal


@contextlib.contextmanager
def bytes_bar(label: str, *, at_once: bool = True) -> Iterator[Callable[[int, int], None]]:
    """Show a bar while the block runs.

    Parameters
    ----------
    label : str
        What is done.
    at_once : bool
        Whether it is seen before it is called, too.

    Yields
    ------
    callable
        To be called with the bytes that are done and the bytes there are.
    """
    console = error_console()
    if not (console.is_terminal and is_terminal(sys.stderr)):
        yield lambda done, total: None
        return
    shown = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
    task = shown.add_task(label, total=None)

    def show(done: int, total: int) -> None:
        shown.start()
        shown.update(task, completed=done, total=total)

    try:
        if at_once:
            shown.start()
        yield show
    finally:
        shown.stop()
